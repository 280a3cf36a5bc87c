//! Alerts: what is watched, and where it is told.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use tollbook_jobs::Threshold;

use super::file::{self, EventKind};
use super::mistakes::Mistakes;
use super::setup::secret;
use super::upstreams::url;

/// Most webhooks.
pub const WEBHOOKS_MAX: usize = 100;
/// Most thresholds of what is left.
const THRESHOLDS_MAX: usize = 8;
/// Longest name of a webhook, in bytes.
const ID_MAX: usize = 64;
/// Bytes of a secret: the standard's bounds.
const SECRET_MIN: usize = 24;
const SECRET_MAX: usize = 64;
/// How a secret in base64 begins.
const IN_BASE64: &str = "whsec_";
/// Shortest and longest pause between two looks.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_hours(1);

/// What is watched, and where it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alerts {
    pub every: Duration,
    pub thresholds: Vec<Threshold>,
    pub webhooks: Vec<Webhook>,
}

/// Where events are sent.
#[derive(Clone)]
pub struct Webhook {
    pub id: String,
    pub url: Uri,
    /// Signs what is sent.
    pub secret: SecretSlice<u8>,
    pub tenant: Option<String>,
    /// `None`: all.
    pub events: Option<Vec<EventKind>>,
}

impl Webhook {
    /// Whether such an event of a tenant is told to it.
    pub fn wants(&self, event: EventKind, tenant: &str) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
            && self.events.as_ref().is_none_or(|events| events.contains(&event))
    }
}

impl PartialEq for Webhook {
    fn eq(&self, other: &Self) -> bool {
        let secrets = (self.secret.expose_secret(), other.secret.expose_secret());
        (&self.id, &self.url, &self.tenant, &self.events)
            == (&other.id, &other.url, &other.tenant, &other.events)
            && secrets.0 == secrets.1
    }
}

impl Eq for Webhook {}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("id", &self.id).finish_non_exhaustive()
    }
}

/// `None` where nobody is told.
pub(super) fn alerts(mistakes: &mut Mistakes, folder: &Path, given: Option<&file::Alerts>) -> Option<Alerts> {
    let given = given?;
    if !(EVERY_MIN..=EVERY_MAX).contains(&given.every.0) {
        mistakes.add("alerts.every", "must be from 100ms to 1h");
    }
    if given.remaining.len() > THRESHOLDS_MAX {
        mistakes.add("alerts.remaining", format!("has more than {THRESHOLDS_MAX} thresholds"));
    }
    for (index, percent) in given.remaining.iter().enumerate() {
        let at = format!("alerts.remaining[{index}]");
        if !(1..=100).contains(percent) {
            mistakes.add(at, "must be from 1 to 100 percent");
        } else if given.remaining.iter().take(index).any(|other| other == percent) {
            mistakes.add(at, format!("{percent} is there twice"));
        }
    }
    if given.held > 100 {
        mistakes.add("alerts.held", "must be from 0 to 100 percent");
    }
    if given.webhooks.len() > WEBHOOKS_MAX {
        mistakes.add("alerts.webhooks", format!("more than {WEBHOOKS_MAX} webhooks"));
    }
    let mut webhooks: Vec<Webhook> = Vec::new();
    for (index, one) in given.webhooks.iter().enumerate() {
        let path = format!("alerts.webhooks[{index}]");
        if given.webhooks.iter().take(index).any(|other| other.id == one.id) {
            mistakes.add(format!("{path}.id"), format!("`{}` is already taken", one.id));
        }
        webhooks.extend(webhook(mistakes, &path, one, folder));
    }
    let mut thresholds: Vec<Threshold> = given.remaining.iter().copied().map(Threshold::Remaining).collect();
    thresholds.extend((given.held > 0).then_some(Threshold::Held(given.held)));
    (!webhooks.is_empty()).then_some(Alerts { every: given.every.0, thresholds, webhooks })
}

fn webhook(mistakes: &mut Mistakes, path: &str, given: &file::Webhook, folder: &Path) -> Option<Webhook> {
    let id = given.id.as_str();
    if id.is_empty()
        || id.len() > ID_MAX
        || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    {
        let what = format!("must have 1 to {ID_MAX} letters, digits, `-`, `_` or `.`");
        mistakes.add(format!("{path}.id"), what);
    }
    if given.events.as_ref().is_some_and(Vec::is_empty) {
        mistakes.add(format!("{path}.events"), "must not be empty; without it all events are sent");
    }
    let at = format!("{path}.secret");
    let text = secret(mistakes, &at, given.secret.as_ref(), given.secret_file.as_deref(), folder);
    if text.is_none() && given.secret.is_none() && given.secret_file.is_none() {
        mistakes.add(&at, "is missing; what is sent is signed with it");
    }
    let key = text.and_then(|text| {
        let key = key(&text);
        if key.is_none() {
            let what = format!("must be `{IN_BASE64}` and {SECRET_MIN} to {SECRET_MAX} bytes in base64, or a text of at least {SECRET_MIN} bytes");
            mistakes.add(&at, what);
        }
        key
    });
    let at = format!("{path}.url");
    let url = url(mistakes, &at, &given.url)?;
    if url.scheme_str() == Some("http") && !given.allow_insecure && !url.host().is_some_and(is_loopback) {
        mistakes.add(at, "must be https; `allow_insecure: true` sends what can be read on the way");
    }
    Some(Webhook {
        id: given.id.clone(),
        url,
        secret: key?,
        tenant: given.tenant.clone(),
        events: given.events.clone(),
    })
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// What signs, of a secret as it is written.
fn key(secret: &SecretString) -> Option<SecretSlice<u8>> {
    let text = secret.expose_secret();
    let bytes = match text.strip_prefix(IN_BASE64) {
        Some(coded) => {
            STANDARD.decode(coded).ok().filter(|bytes| (SECRET_MIN..=SECRET_MAX).contains(&bytes.len()))?
        }
        None => Some(text.as_bytes().to_vec()).filter(|bytes| bytes.len() >= SECRET_MIN)?,
    };
    Some(SecretSlice::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_the_bounds_of_the_standard() {
        let of = |text: &str| key(&SecretString::from(text)).map(|key| key.expose_secret().len());
        let coded = |bytes: usize| format!("{IN_BASE64}{}", STANDARD.encode(vec![7; bytes]));
        assert_eq!(of(&coded(24)), Some(24));
        assert_eq!(of(&coded(64)), Some(64));
        assert_eq!(of(&coded(23)), None);
        assert_eq!(of(&coded(65)), None);
        assert_eq!(of("whsec_no base64 at all, of any length"), None);
        assert_eq!(of(&"x".repeat(24)), Some(24));
        assert_eq!(of(&"x".repeat(23)), None);
    }

    #[test]
    fn a_secret_is_in_no_debug_text() {
        let webhook = Webhook {
            id: "ops".to_owned(),
            url: Uri::from_static("https://example.com"),
            secret: SecretSlice::from(b"do-not-show-this-secret-x".to_vec()),
            tenant: None,
            events: None,
        };
        assert_eq!(format!("{webhook:?}"), "Webhook { id: \"ops\", .. }");
    }
}
