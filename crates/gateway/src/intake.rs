//! Reads a client's body, within bounds of size, of silence, and of all bodies held together.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit in which held bodies are counted.
const BLOCK: usize = 4096;

/// Why a body was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IntakeError {
    TooLarge,
    /// The client fell silent or left.
    Cut,
    Timeout,
    /// A content encoding of the request that is not taken.
    Encoded,
}

/// A part of the bound on all bodies, given back when dropped; lives as long as the bytes do.
#[derive(Debug)]
pub(crate) struct Share(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// A body, and its share of the bound on all bodies.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) bytes: Bytes,
    pub(crate) share: Share,
}

/// Bounds the bytes of all request bodies held at once.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    blocks: Arc<Semaphore>,
    body_max: usize,
    silence: Duration,
}

impl Intake {
    pub(crate) fn new(body_max: usize, in_flight_max: usize, silence: Duration) -> Self {
        let blocks = (in_flight_max.max(body_max) / BLOCK + 1).min(Semaphore::MAX_PERMITS);
        Self { blocks: Arc::new(Semaphore::new(blocks)), body_max, silence }
    }

    /// Reads the whole body. Waits while the others together hold the bound.
    pub(crate) async fn read(
        &self,
        headers: &http::HeaderMap,
        mut body: Incoming,
    ) -> Result<Taken, IntakeError> {
        let coded =
            headers.get(http::header::CONTENT_ENCODING).is_some_and(|v| v != "identity" && !v.is_empty());
        if coded {
            return Err(IntakeError::Encoded);
        }
        let announced = body.size_hint().exact().map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        if announced.is_some_and(|n| n > self.body_max) {
            return Err(IntakeError::TooLarge);
        }
        let share = self.share(announced.unwrap_or(self.body_max)).await?;
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
            // Most bodies come in one frame and are never copied.
            if first.is_none() && rest.is_empty() {
                first = Some(data);
                continue;
            }
            if let Some(first) = first.take() {
                rest.reserve(announced.unwrap_or(first.len() * 2).max(first.len() + data.len()));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
        let bytes = first.unwrap_or_else(|| rest.freeze());
        Ok(Taken { bytes, share: Share(share) })
    }

    async fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit, IntakeError> {
        let blocks = u32::try_from(bytes / BLOCK + 1).unwrap_or(u32::MAX);
        let taking = Arc::clone(&self.blocks).acquire_many_owned(blocks);
        match tokio::time::timeout(self.silence, taking).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(IntakeError::Timeout),
        }
    }
}
