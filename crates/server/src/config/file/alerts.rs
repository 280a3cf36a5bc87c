//! Alerts and webhooks as they are written.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::values::{Secret, Span};

/// Tells webhooks when quotas cross thresholds, once per crossing. Off without `webhooks`. A change takes effect at the
/// next start. Gateways that share a journal need the same.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alerts {
    /// Where events are sent.
    #[serde(default)]
    pub webhooks: Vec<Webhook>,
    /// How often the quotas of the tenants that called lately are looked at.
    #[serde(default = "default_every")]
    pub every: Span,
    /// Percent of a quota: told when less than this is left to post. Empty: never.
    #[serde(default = "default_remaining")]
    pub remaining: Vec<u8>,
    /// Percent of a quota: told when calls in flight hold more than this. 0: never.
    #[serde(default = "default_held")]
    pub held: u8,
}

fn default_every() -> Span {
    Span::from_secs(15)
}

fn default_remaining() -> Vec<u8> {
    vec![10, 5]
}

fn default_held() -> u8 {
    20
}

/// Where events are sent, signed by the convention of Standard Webhooks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Unique name.
    pub id: String,
    /// `https://…`; plain `http` to a loopback address, or with `allow_insecure`. No user, query or fragment.
    pub url: String,
    /// Signs what is sent: `whsec_` and 24 to 64 bytes in base64, or any text of at least 24 bytes.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// File that holds `secret`.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Only events of this tenant; of all if absent.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Only these events; all if absent.
    #[serde(default)]
    pub events: Option<Vec<EventKind>>,
    /// Plain `http` to anywhere: what is sent can be read on the way.
    #[serde(default)]
    pub allow_insecure: bool,
}

/// What an event tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
pub enum EventKind {
    /// Less than a threshold is left of a quota.
    #[serde(rename = "quota.remaining")]
    Remaining,
    /// Calls in flight hold more than a threshold of a quota.
    #[serde(rename = "quota.held")]
    Held,
}
