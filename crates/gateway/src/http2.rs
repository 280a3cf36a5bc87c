//! HTTP/2 connections: many calls on one socket, each as bounded as if it had a socket of its own.
//!
//! hyper and h2 bound frames, header lists, windows and resets of streams nobody took yet. What they leave open is bounded
//! here: a stream whose client gives it no window (its body is taken away, so that the call settles, and the stream is
//! reset), resets of calls already begun, and connections without a stream. Nothing of a stream's answer is handed to h2
//! in pieces above `PIECE_MAX`, because h2 keeps what the client's window does not take.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;
use tollbook_telemetry::labels;

use crate::body::OutBody;
use crate::config::{Bounds, Http2, Timeouts};
use crate::listen::stopped;
use crate::pace::{Debt, Pace};

/// Largest piece of an answer that is handed out at once.
const PIECE_MAX: usize = 16 << 10;
/// Bytes of answers h2 may buffer per stream beyond the client's window.
const SEND_BUFFER: usize = 32 << 10;
/// Largest frame taken.
const FRAME_MAX: u32 = 16 << 10;
/// Streams reset by the client before they were begun, at once; beyond it the connection ends. They wait with their heads
/// in memory, where no other bound sees them, so this is not the thousand of `resets_max`.
const PENDING_RESETS_MAX: usize = 32;
/// Streams reset by us for errors of the client; beyond it the connection ends.
const ERROR_RESETS_MAX: usize = 64;
/// How long a connection that was told to end may take to do so.
const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// The time over which resets are counted.
const RESETS_WINDOW: Duration = Duration::from_secs(60);

/// What one connection serves.
#[derive(Debug)]
pub(crate) struct Streams {
    inner: Mutex<Inner>,
    pace: Pace,
    idle: Duration,
    /// As `idle`, before the first stream.
    first: Duration,
    resets_max: u32,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    live: usize,
    slots: BTreeMap<u64, Arc<Slot>>,
    quiet_since: Instant,
    resets: u32,
    resets_since: Instant,
}

/// Where a stream's answer lies: with its connection, so that it can be taken away while nobody asks for it.
#[derive(Debug)]
struct Slot(Mutex<Answer>);

#[derive(Debug)]
struct Answer {
    /// `None` once it was taken away.
    body: Option<OutBody>,
    /// What is left of a chunk that was too large for one piece.
    rest: Bytes,
    debt: Debt,
    /// Size of the piece that is waiting for the client's window.
    given: usize,
}

/// The watch's finding.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    Well,
    /// No stream for long; told so long ago.
    Idle(Duration),
    Flood,
}

impl Streams {
    fn new(bounds: &Bounds, timeouts: &Timeouts, http2: &Http2) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            inner: Mutex::new(Inner {
                next: 0,
                live: 0,
                slots: BTreeMap::new(),
                quiet_since: now,
                resets: 0,
                resets_since: now,
            }),
            pace: Pace { patience: timeouts.write_stall, bytes_per_s: bounds.pace_min },
            idle: timeouts.idle,
            first: timeouts.head,
            resets_max: http2.resets_max,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream begins.
    fn enter(self: &Arc<Self>) -> Live {
        let mut inner = self.lock();
        inner.live += 1;
        inner.next = inner.next.wrapping_add(1);
        Live { streams: Arc::clone(self), id: inner.next, answering: false, whole: false }
    }

    /// Takes away the answers that nobody takes, and looks for what ends the connection.
    fn check(&self, now: Instant) -> Finding {
        let stalled: Vec<OutBody> = {
            let mut inner = self.lock();
            let mut taken = Vec::new();
            inner.slots.retain(|_, slot| match slot.take_if_due(now, self.pace) {
                Some(body) => {
                    taken.push(body);
                    false
                }
                None => true,
            });
            inner.left(taken.len(), now);
            taken
        };
        // Dropped outside the lock: a call settles here.
        drop(stalled);
        let inner = self.lock();
        let quiet = now.saturating_duration_since(inner.quiet_since);
        let limit = if inner.next == 0 { self.first } else { self.idle };
        if inner.resets > self.resets_max {
            Finding::Flood
        } else if inner.live == 0 && quiet >= limit {
            Finding::Idle(quiet.saturating_sub(limit))
        } else {
            Finding::Well
        }
    }

    /// How often to check.
    fn tick(&self) -> Duration {
        let least = self.pace.patience.min(self.idle).min(self.first);
        (least / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

impl Inner {
    /// So many streams are served no more.
    fn left(&mut self, streams: usize, now: Instant) {
        self.live = self.live.saturating_sub(streams);
        if streams > 0 && self.live == 0 {
            self.quiet_since = now;
        }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_if_due(&self, now: Instant, pace: Pace) -> Option<OutBody> {
        let mut answer = self.lock();
        if !answer.debt.is_due(now, pace) {
            return None;
        }
        answer.rest = Bytes::new();
        answer.body.take()
    }
}

/// A stream from its request to the end of its answer. Dropped before that, it was reset by its client.
#[derive(Debug)]
struct Live {
    streams: Arc<Streams>,
    id: u64,
    /// Its answer has begun, and is with the connection.
    answering: bool,
    whole: bool,
}

impl Drop for Live {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut inner = self.streams.lock();
        // An answer that was taken away has left already.
        let slot = inner.slots.remove(&self.id);
        let present = slot.is_some() || !self.answering;
        inner.left(usize::from(present), now);
        if !self.whole {
            if now.saturating_duration_since(inner.resets_since) >= RESETS_WINDOW {
                inner.resets_since = now;
                inner.resets = 0;
            }
            inner.resets = inner.resets.saturating_add(1);
        }
        drop(inner);
        // Outside the lock: with it goes the answer, and its call settles.
        drop(slot);
    }
}

/// Why a stream is reset by us.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the client takes no bytes")]
    Stalled,
    #[error("the answer broke off")]
    Answer(#[source] std::io::Error),
}

/// An answer on its way out of a stream.
#[derive(Debug)]
struct Guarded {
    slot: Arc<Slot>,
    live: Live,
}

impl Guarded {
    fn new(body: OutBody, mut live: Live) -> Self {
        let answer = Answer { body: Some(body), rest: Bytes::new(), debt: Debt::default(), given: 0 };
        let slot = Arc::new(Slot(Mutex::new(answer)));
        live.answering = true;
        live.streams.lock().slots.insert(live.id, Arc::clone(&slot));
        Self { slot, live }
    }
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        let mut answer = this.slot.lock();
        let answer = &mut *answer;
        // Being asked means that what was given has found room.
        let given = std::mem::take(&mut answer.given);
        answer.debt.pay(Instant::now(), given, this.live.streams.pace);
        let Some(body) = &mut answer.body else { return Poll::Ready(Some(Err(Broken::Stalled))) };
        if answer.rest.is_empty() {
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    this.live.whole = true;
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => answer.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                Poll::Ready(Some(Err(error))) => {
                    // Not of the client's making.
                    this.live.whole = true;
                    return Poll::Ready(Some(Err(Broken::Answer(error))));
                }
            }
        }
        let piece = answer.rest.split_to(answer.rest.len().min(PIECE_MAX));
        answer.given = piece.len();
        answer.debt.wait(Instant::now());
        if answer.rest.is_empty() && answer.body.as_ref().is_some_and(Body::is_end_stream) {
            this.live.whole = true;
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        let answer = self.slot.lock();
        answer.rest.is_empty() && answer.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let answer = self.slot.lock();
        let rest = u64::try_from(answer.rest.len()).unwrap_or(u64::MAX);
        match answer.body.as_ref().and_then(|body| body.size_hint().exact()) {
            Some(more) => SizeHint::with_exact(rest.saturating_add(more)),
            None => SizeHint::default(),
        }
    }
}

/// Serves one connection to its end; says so if it was ended for its client's behaviour.
pub(crate) async fn serve<S, H, F>(
    stream: S,
    peer: IpAddr,
    bounds: &Bounds,
    timeouts: &Timeouts,
    settings: &Http2,
    mut stop: watch::Receiver<bool>,
    handler: Arc<H>,
) -> Result<(), labels::ConnectionCut>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(IpAddr, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<OutBody>> + Send + 'static,
{
    let streams = Streams::new(bounds, timeouts, settings);
    let entering = Arc::clone(&streams);
    let service = service_fn(move |request: Request<Incoming>| {
        let live = entering.enter();
        let head = request.method() == Method::HEAD;
        let answer = handler(peer, request);
        async move {
            let answer = answer.await;
            Ok::<_, Infallible>(if head { headless(answer) } else { answer }.map(|b| Guarded::new(b, live)))
        }
    });
    let serving = builder(bounds, settings).serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let mut ticks = tokio::time::interval(streams.tick());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut going = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                let Err(error) = ended else { return Ok(()) };
                tracing::debug!(%error, "an HTTP/2 connection ended early");
                return if is_flood(&error) { Err(labels::ConnectionCut::Resets) } else { Ok(()) };
            }
            () = stopped(&mut stop), if !going => {
                going = true;
                serving.as_mut().graceful_shutdown();
            }
            _ = ticks.tick() => match streams.check(Instant::now()) {
                Finding::Well => {}
                Finding::Flood => return Err(labels::ConnectionCut::Resets),
                Finding::Idle(told) if going && told >= CLOSE_GRACE => return Err(labels::ConnectionCut::Idle),
                Finding::Idle(_) if going => {}
                Finding::Idle(_) => {
                    going = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Whether the library ended the connection for what its client piled up.
fn is_flood(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_library() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

fn builder(bounds: &Bounds, settings: &Http2) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams_max)
        .initial_stream_window_size(settings.stream_window)
        .initial_connection_window_size(settings.connection_window)
        .max_frame_size(FRAME_MAX)
        .max_header_list_size(u32::try_from(bounds.head_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(
            PENDING_RESETS_MAX.min(usize::try_from(settings.resets_max).unwrap_or(usize::MAX)),
        )
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(settings.ping_every)
        .keep_alive_timeout(settings.ping_within);
    builder
}

/// An answer to HEAD: as long as it would be, and empty. hyper does this for HTTP/1.1 only.
fn headless(answer: Response<OutBody>) -> Response<OutBody> {
    let length = answer.body().size_hint().exact();
    let mut answer = answer.map(|_| OutBody::full(Bytes::new()));
    if let Some(length) = length {
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    answer
}
