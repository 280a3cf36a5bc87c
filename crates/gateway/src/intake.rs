//! Reads a client's body, within bounds of size, of silence, and of all bodies held together.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::budget::{Budget, Counted, Full, Share};
use crate::encoding::{self, Decoder, EncodingError};
use crate::pace::{Debt, Pace};

/// Encoded bodies decoded at once.
const DECODERS_MAX: usize = 4;
/// How much of a body that is refused for its size is read on, and how long: a client that is still sending when its
/// connection is closed may never see why.
const LINGER_MAX: usize = 64 << 20;
const LINGER: Duration = Duration::from_secs(5);
/// A client that pauses so long waits for its answer.
const LINGER_SILENCE: Duration = Duration::from_millis(250);
/// What a request says of its body's length is believed so far.
const ANNOUNCED_MAX: usize = 1 << 20;

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

impl From<Full> for IntakeError {
    fn from(_: Full) -> Self {
        Self::Busy
    }
}

/// A body, and its share of the bound on all bodies.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    pub(crate) share: Option<Share>,
}

/// Bounds the bytes of all request bodies held at once. What counts is what has arrived, and the room for what is decoded
/// of it, so a slow client holds no more than it sent, and nobody waits for anybody: over the bound the call is refused
/// with a hint to come again.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    all: Budget,
    body_max: usize,
    pace: Pace,
    decoders: Arc<Semaphore>,
}

impl Intake {
    pub(crate) fn new(body_max: usize, in_flight_max: usize, pace: Pace) -> Self {
        Self {
            all: Budget::new(in_flight_max.max(body_max)),
            body_max,
            pace,
            decoders: Arc::new(Semaphore::new(DECODERS_MAX)),
        }
    }

    /// Other bounds for bodies that come from now on; what is held is counted together.
    pub(crate) fn with(&self, body_max: usize, in_flight_max: usize, pace: Pace) -> Self {
        let all = self.all.with(in_flight_max.max(body_max));
        Self { all, ..Self::new(body_max, in_flight_max, pace) }
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
            linger(&mut body).await;
            return Err(IntakeError::TooLarge);
        }
        // What is announced is not believed beyond a megabyte.
        let expected = announced.unwrap_or(0).min(ANNOUNCED_MAX);
        let mut share = self.all.share();
        let mut first: Option<Bytes> = None;
        let mut rest = Counted::new(self.all.share());
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
                drop((first, rest, share));
                linger(&mut body).await;
                return Err(IntakeError::TooLarge);
            }
            // Most bodies come in one frame and are never copied.
            if first.is_none() && rest.len() == 0 {
                share.take(data.len())?;
                first = Some(data);
                continue;
            }
            if let Some(first) = first.take() {
                rest.extend(&first, expected)?;
                share = self.all.share();
            }
            rest.extend(&data, expected)?;
        }
        let (bytes, share) = match first {
            Some(first) => (first, Some(share)),
            None => rest.finish(),
        };
        if coded {
            return self.decode(coding, bytes, share).await;
        }
        Ok(Taken { bytes, share })
    }

    /// Decodes a body that is there in whole: a client that sends slowly holds no decoder, and few run at once.
    async fn decode(
        &self,
        coding: Option<String>,
        coded: Bytes,
        share: Option<Share>,
    ) -> Result<Taken, IntakeError> {
        let Ok(_turn) = self.decoders.acquire().await else { return Err(IntakeError::Busy) };
        let (room, plain) = (self.body_max, Counted::new(self.all.share()));
        let work = move || {
            let mut decoder = Decoder::new(coding.as_deref())?;
            decoder.keep(plain, room);
            decoder.push_kept(&coded)?;
            let kept = decoder.finish_kept();
            // What was encoded is held until here.
            drop((coded, share));
            kept
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok((bytes, share))) => Ok(Taken { bytes, share }),
            Ok(Err(EncodingError::TooLarge)) => Err(IntakeError::TooLarge),
            Ok(Err(EncodingError::Full)) => Err(IntakeError::Busy),
            Ok(Err(EncodingError::Unknown | EncodingError::Damaged)) | Err(_) => Err(IntakeError::Damaged),
        }
    }
}

/// Reads on and forgets what comes.
async fn linger(body: &mut Incoming) {
    let reading = async {
        let mut left = LINGER_MAX;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(LINGER_SILENCE, body.frame()).await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    drop(tokio::time::timeout(LINGER, reading).await);
}
