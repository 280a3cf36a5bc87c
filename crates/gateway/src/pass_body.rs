//! An answer that is passed through: bytes in, the same bytes out, and a look at its events for a usage.
//!
//! Invariants: memory is one piece of the answer and the reader's bound; the Ticket ends exactly once, at the end of the
//! body or when it is dropped; our credential goes no further. An answer that breaks off is never made to look whole: an event stream gets its dialect's
//! error event, anything else fails towards the client.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;
use tollbook_admission::{Ending, Outcome, Ticket};
use tollbook_telemetry::InFlight;
use tollbook_wire::{Dialect, ErrorDetail, ErrorKind, PassedMeter};

use crate::cut::Cut;
use crate::encoding::Decoder;
use crate::hidden::Joint;
use crate::open::OpenStream;
use crate::upstream::Upstream;

/// Most bytes one decoded chunk may grow to.
const EXPAND_MAX: usize = 8 << 20;

/// The body.
pub(crate) struct PassBody {
    upstream: Incoming,
    decoder: Decoder,
    /// Whose answer it is.
    from: Arc<Upstream>,
    /// What may be the beginning of its credential.
    joint: Joint,
    ticket: Option<Ticket>,
    dialect: Dialect,
    /// Of an event stream whose usage counts.
    meter: Option<PassedMeter>,
    events: bool,
    silence: Duration,
    timer: Pin<Box<Sleep>>,
    heard: Instant,
    /// Its coding is not understood.
    unread: bool,
    /// Some bytes of it came.
    came: bool,
    cut: Cut,
    _open: (InFlight, Option<OpenStream>),
}

/// What kind of answer it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassOf {
    pub(crate) dialect: Dialect,
    /// Server-sent events.
    pub(crate) events: bool,
    /// A usage in it counts.
    pub(crate) metered: bool,
    /// In a coding that is not understood: its bytes go on as they are.
    pub(crate) unread: bool,
    pub(crate) silence: Duration,
}

impl PassBody {
    pub(crate) fn new(
        upstream: Incoming,
        decoder: Decoder,
        (ticket, from): (Ticket, Arc<Upstream>),
        of: PassOf,
        cut: Cut,
        open: (InFlight, Option<OpenStream>),
    ) -> Self {
        Self {
            upstream,
            decoder,
            from,
            joint: Joint::default(),
            ticket: Some(ticket),
            dialect: of.dialect,
            meter: (of.events && of.metered).then(|| PassedMeter::new(of.dialect)),
            events: of.events,
            silence: of.silence,
            timer: Box::pin(tokio::time::sleep(of.silence)),
            heard: Instant::now(),
            unread: of.unread,
            came: false,
            cut,
            _open: open,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ticket.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let as_it_is = self.decoder.is_identity() && !self.events;
        if as_it_is { self.upstream.size_hint() } else { SizeHint::default() }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if self.ticket.is_none() {
                return Poll::Ready(None);
            }
            let frame = match Pin::new(&mut self.upstream).poll_frame(cx) {
                Poll::Pending => match self.wait(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(ending) => return Poll::Ready(Some(self.broken(ending))),
                },
                Poll::Ready(frame) => frame,
            };
            self.heard = Instant::now();
            match frame {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.came |= !data.is_empty();
                    let Some(data) = self.decoded(data) else {
                        return Poll::Ready(Some(self.broken(Ending::Reset)));
                    };
                    let Ok(mut data) = self.joint.pass(&self.from.hidden, data) else {
                        return Poll::Ready(Some(self.broken(Ending::Reset)));
                    };
                    // A body of known length is not asked for its end.
                    let over = self.decoder.is_identity() && self.upstream.is_end_stream();
                    if over {
                        data = with(data, self.joint.rest());
                    }
                    if let Some(meter) = &mut self.meter {
                        meter.push(&data);
                    }
                    if over {
                        self.end(Ending::Complete);
                    }
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Some(Err(_)) => return Poll::Ready(Some(self.broken(Ending::Reset))),
                None => {
                    let mut tail = Vec::new();
                    if self.decoder.finish(&mut tail).is_err() {
                        return Poll::Ready(Some(self.broken(Ending::Reset)));
                    }
                    let Ok(tail) = self.joint.pass(&self.from.hidden, tail.into()) else {
                        return Poll::Ready(Some(self.broken(Ending::Reset)));
                    };
                    let tail = with(tail, self.joint.rest());
                    if let Some(meter) = &mut self.meter {
                        meter.push(&tail);
                    }
                    self.end(Ending::Complete);
                    return Poll::Ready(Some(tail).filter(|tail| !tail.is_empty()).map(Ok));
                }
            }
        }
    }

    fn decoded(&mut self, data: Bytes) -> Option<Bytes> {
        if self.decoder.is_identity() {
            return Some(data);
        }
        let mut plain = Vec::new();
        self.decoder.push(&data, &mut plain, EXPAND_MAX).ok()?;
        Some(Bytes::from(plain))
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let quiet = self.heard.elapsed();
            if quiet >= self.silence {
                return Poll::Ready(Ending::Timeout);
            }
            let next = tokio::time::Instant::now() + self.silence.saturating_sub(quiet);
            self.timer.as_mut().reset(next);
        }
        self.cut.poll(cx).map(|()| Ending::Shutdown)
    }

    /// The answer ends before its end: what the client is told.
    fn broken(&mut self, ending: Ending) -> io::Result<Bytes> {
        let request_id =
            self.ticket.as_ref().map(|ticket| ticket.request_id().to_owned()).unwrap_or_default();
        self.end(ending);
        if !self.events {
            return Err(io::Error::other("the answer broke off"));
        }
        let detail = ErrorDetail { code: Some("stream_incomplete"), ..ErrorDetail::default() };
        let text = "the provider's stream ended before its answer did";
        let event = tollbook_wire::error_event(self.dialect, ErrorKind::Upstream, detail, text, &request_id);
        // What stood before may be half an event.
        Ok(Bytes::from([b"\n\n", &event[..]].concat()))
    }

    fn end(&mut self, ending: Ending) {
        let Some(ticket) = self.ticket.take() else { return };
        let mut outcome = if self.unread { Outcome::unreadable(ending) } else { Outcome::bare(ending) };
        outcome.output_seen = !self.unread || self.came;
        if let Some(mut meter) = self.meter.take() {
            meter.finish();
            outcome.usage = meter.usage_found();
            outcome.anomalies = meter.anomalies;
            if meter.error.is_some() && !meter.answered {
                outcome.ending = Ending::UpstreamError;
                outcome.output_seen = false;
            }
        }
        ticket.end(&outcome);
    }
}

/// Both, one behind the other.
fn with(first: Bytes, second: Bytes) -> Bytes {
    match (first.is_empty(), second.is_empty()) {
        (_, true) => first,
        (true, _) => second,
        _ => Bytes::from([&first[..], &second[..]].concat()),
    }
}

impl Drop for PassBody {
    fn drop(&mut self) {
        self.end(Ending::ClientGone);
    }
}

impl std::fmt::Debug for PassBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassBody").field("events", &self.events).finish_non_exhaustive()
    }
}
