//! Reads a client's body, within bounds of size, of silence, and of all bodies held together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

/// Why a body was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IntakeError {
    TooLarge,
    /// The client fell silent or left.
    Cut,
    Timeout,
    /// All bodies together are at their bound.
    Busy,
    /// A content encoding of the request that is not taken.
    Encoded,
}

/// Bytes of the bound on all bodies, given back when dropped; lives as long as the bytes do.
#[derive(Debug)]
pub(crate) struct Share {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Share {
    /// Takes more; false if the bound would be passed.
    fn grow(&mut self, more: usize, bound: usize) -> bool {
        let before = self.held.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        before.saturating_add(more) <= bound
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body, and its share of the bound on all bodies.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    pub(crate) share: Share,
}

/// Bounds the bytes of all request bodies held at once. What counts is what has arrived, so a slow client holds no more
/// than it sent, and nobody waits for anybody: over the bound the call is refused with a hint to come again.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    held: Arc<AtomicUsize>,
    in_flight_max: usize,
    body_max: usize,
    silence: Duration,
}

impl Intake {
    pub(crate) fn new(body_max: usize, in_flight_max: usize, silence: Duration) -> Self {
        Self { held: Arc::default(), in_flight_max: in_flight_max.max(body_max), body_max, silence }
    }

    /// Other bounds for bodies that come from now on; what is held is counted together.
    pub(crate) fn with(&self, body_max: usize, in_flight_max: usize, silence: Duration) -> Self {
        Self { held: Arc::clone(&self.held), ..Self::new(body_max, in_flight_max, silence) }
    }

    /// Reads the whole body.
    pub(crate) async fn read(
        &self,
        headers: &http::HeaderMap,
        mut body: Incoming,
    ) -> Result<Taken, IntakeError> {
        let codings = headers.get_all(http::header::CONTENT_ENCODING);
        let coded = codings.iter().any(|v| v != "identity" && !v.is_empty());
        if coded {
            return Err(IntakeError::Encoded);
        }
        let announced = body.size_hint().exact().map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        if announced.is_some_and(|n| n > self.body_max) {
            return Err(IntakeError::TooLarge);
        }
        let mut share = Share { held: Arc::clone(&self.held), bytes: 0 };
        let mut first: Option<Bytes> = None;
        let mut rest = BytesMut::new();
        loop {
            let frame = match tokio::time::timeout(self.silence, body.frame()).await {
                Err(_) => return Err(IntakeError::Timeout),
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(IntakeError::Cut),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            let held = first.as_ref().map_or(0, Bytes::len) + rest.len();
            if held + data.len() > self.body_max {
                return Err(IntakeError::TooLarge);
            }
            if !share.grow(data.len(), self.in_flight_max) {
                return Err(IntakeError::Busy);
            }
            // Most bodies come in one frame and are never copied.
            if first.is_none() && rest.is_empty() {
                first = Some(data);
                continue;
            }
            if let Some(first) = first.take() {
                // What is announced is not believed beyond a megabyte.
                let expected = announced.unwrap_or(0).min(1 << 20);
                rest.reserve(expected.max(first.len() + data.len()));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
        let bytes = first.unwrap_or_else(|| rest.freeze());
        Ok(Taken { bytes, share })
    }
}
