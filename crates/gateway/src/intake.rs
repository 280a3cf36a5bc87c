//! Reads a client's body, within bounds of size, of silence, and of all bodies held together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::encoding::{self, Decoder, EncodingError};
use crate::pace::{Debt, Pace};

/// Encoded bodies decoded at once.
const DECODERS_MAX: usize = 4;

/// Why a body was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IntakeError {
    TooLarge,
    /// The client left.
    Cut,
    /// The client fell silent, or sends too slowly.
    Timeout,
    /// All bodies together are at their bound.
    Busy,
    /// A content encoding of the request that is not taken.
    Encoded,
    /// What is encoded cannot be decoded.
    Damaged,
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
    pace: Pace,
    decoders: Arc<Semaphore>,
}

impl Intake {
    pub(crate) fn new(body_max: usize, in_flight_max: usize, pace: Pace) -> Self {
        Self {
            held: Arc::default(),
            in_flight_max: in_flight_max.max(body_max),
            body_max,
            pace,
            decoders: Arc::new(Semaphore::new(DECODERS_MAX)),
        }
    }

    /// Other bounds for bodies that come from now on; what is held is counted together.
    pub(crate) fn with(&self, body_max: usize, in_flight_max: usize, pace: Pace) -> Self {
        Self { held: Arc::clone(&self.held), ..Self::new(body_max, in_flight_max, pace) }
    }

    /// Reads the whole body.
    pub(crate) async fn read(
        &self,
        headers: &http::HeaderMap,
        mut body: Incoming,
    ) -> Result<Taken, IntakeError> {
        let coding = encoding::named(headers);
        let coded = match Decoder::new(coding.as_deref()) {
            Ok(decoder) => !decoder.is_identity(),
            Err(_) => return Err(IntakeError::Encoded),
        };
        let announced = body.size_hint().exact().map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        if announced.is_some_and(|n| n > self.body_max) {
            return Err(IntakeError::TooLarge);
        }
        let mut share = Share { held: Arc::clone(&self.held), bytes: 0 };
        let mut first: Option<Bytes> = None;
        let mut rest = BytesMut::new();
        let mut debt = Debt::default();
        loop {
            let now = Instant::now();
            debt.wait(now);
            let left = self.pace.patience.saturating_sub(debt.owed(now));
            let frame = match tokio::time::timeout(left, body.frame()).await {
                Err(_) => return Err(IntakeError::Timeout),
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(IntakeError::Cut),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            debt.pay(Instant::now(), data.len(), self.pace);
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
        let mut bytes = first.unwrap_or_else(|| rest.freeze());
        if coded {
            bytes = self.decode(coding, bytes).await?;
            if !share.grow(bytes.len(), self.in_flight_max) {
                return Err(IntakeError::Busy);
            }
        }
        Ok(Taken { bytes, share })
    }

    /// Decodes a body that is there in whole: a client that sends slowly holds no decoder, and few run at once.
    async fn decode(&self, coding: Option<String>, coded: Bytes) -> Result<Bytes, IntakeError> {
        let Ok(_turn) = self.decoders.acquire().await else { return Err(IntakeError::Busy) };
        let room = self.body_max;
        let work = move || {
            let mut decoder = Decoder::new(coding.as_deref())?;
            let mut plain = Vec::new();
            decoder.push(&coded, &mut plain, room)?;
            decoder.finish(&mut plain)?;
            Ok(Bytes::from(plain))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(plain)) => Ok(plain),
            Ok(Err(EncodingError::TooLarge)) => Err(IntakeError::TooLarge),
            Ok(Err(EncodingError::Unknown | EncodingError::Damaged)) | Err(_) => Err(IntakeError::Damaged),
        }
    }
}
