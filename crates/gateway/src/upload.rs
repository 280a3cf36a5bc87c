//! A client's body on its way upstream, never held as a whole.
//!
//! Bounded in size, in silence and in slowness. Its progress is seen from outside, so that the time limit for the answer begins when
//! the body has ended, and an upstream that stops taking it is noticed. A body that fails is never sent as a whole one:
//! the request upstream is broken off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::pace::{Debt, Pace};

/// Why a body failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadError {
    TooLarge = 1,
    Timeout = 2,
    Cut = 3,
}

/// How far a body has come.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    /// Milliseconds from the start to the last piece.
    last_ms: AtomicU64,
    failed: AtomicU8,
}

impl Progress {
    fn new() -> Self {
        Self { started: Instant::now(), last_ms: AtomicU64::new(0), failed: AtomicU8::new(0) }
    }

    fn mark(&self) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
    }

    /// When the last piece was taken, or the body ended.
    pub(crate) fn last(&self) -> Instant {
        self.started + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn failed(&self) -> Option<UploadError> {
        match self.failed.load(Ordering::Relaxed) {
            1 => Some(UploadError::TooLarge),
            2 => Some(UploadError::Timeout),
            3 => Some(UploadError::Cut),
            _ => None,
        }
    }
}

/// The body.
#[derive(Debug)]
pub(crate) struct Upload {
    body: Incoming,
    left: u64,
    pace: Pace,
    debt: Debt,
    timer: Pin<Box<Sleep>>,
    progress: Arc<Progress>,
}

impl Upload {
    pub(crate) fn new(body: Incoming, max: u64, pace: Pace) -> Self {
        let timer = Box::pin(tokio::time::sleep(pace.patience));
        Self { body, left: max, pace, debt: Debt::default(), timer, progress: Arc::new(Progress::new()) }
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn fail(&self, why: UploadError) -> io::Error {
        self.progress.failed.store(why as u8, Ordering::Relaxed);
        io::Error::other("the client's body failed")
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                let now = Instant::now();
                self.debt.wait(now);
                if self.debt.is_due(now, self.pace) {
                    return Poll::Ready(Some(Err(self.fail(UploadError::Timeout))));
                }
                let deadline = now + self.pace.patience.saturating_sub(self.debt.owed(now));
                self.timer.as_mut().reset(deadline);
                ready!(self.timer.as_mut().poll(cx));
                // It is due now; the next turn of the loop says so.
                continue;
            };
            self.progress.mark();
            match frame {
                None => return Poll::Ready(None),
                Some(Err(_)) => return Poll::Ready(Some(Err(self.fail(UploadError::Cut)))),
                Some(Ok(frame)) => {
                    // Trailers go nowhere.
                    let Ok(data) = frame.into_data() else { continue };
                    let len = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    let Some(left) = self.left.checked_sub(len) else {
                        return Poll::Ready(Some(Err(self.fail(UploadError::TooLarge))));
                    };
                    self.left = left;
                    let pace = self.pace;
                    self.debt.pay(Instant::now(), data.len(), pace);
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
