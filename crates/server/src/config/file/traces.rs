//! Traces as they are written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::{Decimal, Secret, Span};

/// Spans of calls, sent to an OpenTelemetry collector over OTLP (HTTP, protobuf). Off, and free of cost, without
/// `endpoint`. No span holds a prompt, an answer, a key or a header. A change takes effect at the next start.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traces {
    /// The collector, as `http://127.0.0.1:4318`; `/v1/traces` is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Sent with every request to the collector, as `x-api-key: ${KEY}`.
    #[serde(skip_serializing)]
    pub headers: BTreeMap<String, Secret>,
    /// Share of the calls that is traced, from 0 to 1 in steps of a millionth. It is decided by the trace's id, so
    /// services with the same share agree.
    #[serde(serialize_with = "as_written")]
    pub sample: Decimal,
    /// Trace a call if its client's `traceparent` says sampled, and only then; `sample` is for the others. For trusted
    /// clients: anyone can ask for every call to be traced.
    pub follow_client: bool,
    /// Longest one request to the collector may take.
    pub timeout: Span,
    /// Longest a finished span waits before it is sent.
    pub every: Span,
    /// Longest the last spans are seen to at a stop.
    pub flush: Span,
    /// Spans that may wait; more are dropped and counted.
    pub queue_max: u32,
    /// The name this gateway has in traces.
    pub service_name: String,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: BTreeMap::new(),
            sample: Decimal("1".to_owned()),
            follow_client: false,
            timeout: Span::from_secs(5),
            every: Span::from_secs(2),
            flush: Span::from_secs(5),
            queue_max: 8192,
            service_name: "tollbook".to_owned(),
        }
    }
}

fn as_written<S: serde::Serializer>(decimal: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&decimal.0)
}
