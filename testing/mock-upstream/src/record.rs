//! The provider's own record of every call it received: the independent judge of conservation tests.
//!
//! Invariants: calls are numbered from 1 in the order in which their heads were read; a count moves only after the bytes
//! it speaks of were handed to the kernel; nothing here is derived from what the gateway says of itself.
//! At most `CALLS_KEPT_MAX` calls are kept; beyond that calls are counted and `not_kept` tells how many are missing.

use serde::Serialize;
use serde_json::Value;

pub const CALLS_KEPT_MAX: usize = 200_000;

/// Amounts as the provider sees them: `input` is everything read, cached and cache-written included; `output`
/// is everything written, reasoning included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Usage {
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
    pub reasoning: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    OpenAi,
    Anthropic,
}

/// How a call ended, seen from the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Not ended: generating, held, or stalled (see `stalled`).
    Open,
    /// Every byte of the answer was written.
    Complete,
    /// The script reset the connection.
    Reset,
    /// The script closed the connection within the body.
    Closed,
    /// The script closed its sending side within the body.
    HalfClosed,
    /// The client left before the answer was complete; `content_chunks` tells where.
    ClientGone,
    /// The client left before its own request was complete.
    RequestCut,
    /// The request could not be read or the script could not be; a 4xx was sent.
    Refused,
    /// The mock was stopped.
    Stopped,
}

/// What happened on the connection after the last byte of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Afterwards {
    /// Nothing yet.
    Quiet,
    /// The client sent its next call: it has read this answer to the end.
    NextCall,
    /// The client closed in an orderly way; whether it had read everything is not known.
    Closed,
    /// The client reset the connection: it left bytes unread.
    Reset,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    /// From 1.
    pub order: u64,
    /// Which connection, from 1.
    pub connection: u64,
    pub method: String,
    /// With the query, as received.
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// The body as text; bytes that are no UTF-8 are replaced (`body_bytes` counts the real ones).
    pub body: String,
    pub body_bytes: u64,
    pub dialect: Dialect,
    pub model: Option<String>,
    pub stream: bool,
    pub label: Option<String>,
    /// Milliseconds since the mock started.
    pub arrived_ms: u64,
    pub answered_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    /// As written; none if no head was written.
    pub status: Option<u16>,
    /// Content chunks handed to the kernel.
    pub content_chunks: u64,
    pub bytes_sent: u64,
    /// What the provider has really used for this call so far, told or not: it would bill this.
    pub generated: Usage,
    /// Every usage object put on the wire, as it was.
    pub usage_sent: Vec<Value>,
    /// Those, merged as the dialect defines; none if there was none that is a count.
    pub reported: Option<Usage>,
    /// The final usage object was handed to the kernel, whatever it says.
    pub usage_complete: bool,
    pub stalled: bool,
    /// The client was seen to be gone after that many content chunks (also where the mock ignored it).
    pub gone_at_chunk: Option<u64>,
    pub ending: Ending,
    pub afterwards: Afterwards,
}

impl Recorded {
    /// The first header of that name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as JSON, null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// Counts over all calls, kept or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub calls: u64,
    pub connections: u64,
    /// Received and not ended.
    pub in_flight: u64,
    pub in_flight_max: u64,
    /// Of those: waiting at the barrier.
    pub waiting: u64,
    pub not_kept: u64,
}

/// The book itself.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) calls: Vec<Recorded>,
    pub(crate) totals: Totals,
    /// Calls below this order were cleared.
    first: u64,
}

impl Record {
    pub(crate) fn open(&mut self, mut call: Recorded) -> u64 {
        self.totals.calls = self.totals.calls.saturating_add(1);
        self.totals.in_flight = self.totals.in_flight.saturating_add(1);
        self.totals.in_flight_max = self.totals.in_flight_max.max(self.totals.in_flight);
        call.order = self.totals.calls;
        let order = call.order;
        if self.totals.not_kept == 0 && self.calls.len() < CALLS_KEPT_MAX {
            if self.calls.is_empty() {
                self.first = order;
            }
            self.calls.push(call);
        } else {
            self.totals.not_kept = self.totals.not_kept.saturating_add(1);
        }
        order
    }

    pub(crate) fn call_mut(&mut self, order: u64) -> Option<&mut Recorded> {
        let index = usize::try_from(order.checked_sub(self.first)?).ok()?;
        self.calls.get_mut(index).filter(|call| call.order == order)
    }

    pub(crate) fn end(&mut self, order: u64, ending: Ending, at_ms: u64) {
        self.totals.in_flight = self.totals.in_flight.saturating_sub(1);
        if let Some(call) = self.call_mut(order) {
            call.ending = ending;
            call.ended_ms = Some(at_ms);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.totals.not_kept = 0;
        self.totals.in_flight_max = self.totals.in_flight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn call() -> Recorded {
        Recorded {
            order: 0,
            connection: 1,
            method: "POST".into(),
            target: "/v1/messages?beta=1".into(),
            headers: vec![("X-Api-Key".into(), "k".into())],
            body: String::new(),
            body_bytes: 0,
            dialect: Dialect::OpenAi,
            model: None,
            stream: false,
            label: None,
            arrived_ms: 0,
            answered_ms: None,
            ended_ms: None,
            status: None,
            content_chunks: 0,
            bytes_sent: 0,
            generated: Usage::default(),
            usage_sent: Vec::new(),
            reported: None,
            usage_complete: false,
            stalled: false,
            gone_at_chunk: None,
            ending: Ending::Open,
            afterwards: Afterwards::Quiet,
        }
    }

    #[test]
    fn orders_survive_a_clear() {
        let mut record = Record::default();
        let first = record.open(call());
        record.clear();
        let second = record.open(call());
        assert_eq!((first, second), (1, 2));
        record.end(first, Ending::Complete, 1);
        record.end(second, Ending::Reset, 2);
        assert_eq!(record.calls.len(), 1);
        assert_eq!(record.calls[0].ending, Ending::Reset);
        assert_eq!(record.totals.in_flight, 0);
        assert_eq!(record.totals.in_flight_max, 2);
    }

    #[test]
    fn calls_beyond_the_bound_are_counted() {
        let mut record = Record { calls: vec![call(); CALLS_KEPT_MAX], ..Record::default() };
        record.open(call());
        assert_eq!(record.calls.len(), CALLS_KEPT_MAX);
        assert_eq!((record.totals.calls, record.totals.not_kept), (1, 1));
    }

    #[test]
    fn header_and_path_are_found() {
        assert_eq!(call().header("x-api-key"), Some("k"));
        assert_eq!(call().path(), "/v1/messages");
    }
}
