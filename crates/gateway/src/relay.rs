//! Relays a provider's stream to the client and meters a copy.
//!
//! Invariants: bytes go on unchanged but for the usage chunk the client did not ask for; our own events stand only at
//! event boundaries; the Ticket ends exactly once, before the last byte is handed out, or when the body is dropped; what
//! is held back is bounded by the reader of `wire`. Time limits are about silence: one timer per stream, re-armed only
//! when it fires. A silent provider's stream gets keepalives, once its head was sent. When the upstream breaks, the client gets its dialect's error event, never an invented good end.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tollbook_admission::{Ending, Leave, Outcome, Ticket};
use tollbook_telemetry::InFlight;
use tollbook_wire::{ErrorDetail, ErrorKind, StopUsage, StreamRelay, Surface};

use crate::cut::Cut;
use crate::encoding::Decoder;
use crate::hidden::Joint;
use crate::open::OpenStream;
use crate::problem::Problem;
use crate::upstream::Upstream;
use crate::{refusal, trace};

/// Most bytes one decoded chunk may grow to.
const EXPAND_MAX: usize = 8 << 20;
/// How long the end of the body is awaited behind the terminal event.
const TAIL_SILENCE: Duration = Duration::from_secs(1);

/// A stream on its way to the client.
pub(crate) struct RelayBody {
    upstream: Incoming,
    decoder: Decoder,
    relay: StreamRelay,
    ready: VecDeque<Bytes>,
    scratch: Vec<Bytes>,
    /// Whose stream it is.
    from: Arc<Upstream>,
    /// What may be the beginning of its credential.
    joint: Joint,
    /// `None` once the call has ended.
    ticket: Option<Ticket>,
    surface: Surface,
    usage_asked: bool,
    bounded: bool,
    /// Some account wants to hear how the output goes.
    planned: bool,
    silence: Duration,
    /// Longest the provider may give signs of life and nothing else (B138).
    patience: Duration,
    /// How often a silent stream gets a keepalive.
    keepalive: Option<Duration>,
    /// One for all limits of time; it fires no later than the first of them.
    timer: Pin<Box<Sleep>>,
    /// The provider's last bytes.
    heard: Instant,
    /// The last event that said something, and how many there were.
    told: (Instant, u64),
    /// Our last keepalive.
    kept: Option<Instant>,
    /// The client has the head.
    begun: bool,
    first_output: Option<Instant>,
    cut: Cut,
    /// Where the client's leaving does not end the call: how the rest is read.
    drains: Option<Drains>,
    client_left: bool,
    /// The terminal event was seen.
    tail: bool,
}

/// Reading on for the usage after a client left (policy `drain`).
#[derive(Clone, Debug)]
pub(crate) struct Drains {
    /// Streams drained at once; beyond it the upstream is cut.
    pub(crate) slots: Arc<Semaphore>,
    /// Longest one stream is drained.
    pub(crate) bound: Duration,
}

/// What kind of stream it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamOf {
    pub(crate) surface: Surface,
    /// The client asked for the usage chunk.
    pub(crate) usage_asked: bool,
    /// Longest the provider may say nothing.
    pub(crate) silence: Duration,
    /// Longest it may say nothing but comments and pings.
    pub(crate) patience: Duration,
    /// Pause between keepalives; zero for none.
    pub(crate) keepalive: Duration,
}

impl RelayBody {
    pub(crate) fn new(
        upstream: Incoming,
        decoder: Decoder,
        relay: StreamRelay,
        (ticket, from): (Ticket, Arc<Upstream>),
        stream: StreamOf,
        cut: Cut,
        drains: Option<Drains>,
    ) -> Self {
        let now = Instant::now();
        let keepalive = Some(stream.keepalive).filter(|pause| !pause.is_zero());
        let first = stream.silence.min(stream.patience).min(keepalive.unwrap_or(Duration::MAX));
        Self {
            upstream,
            decoder,
            relay,
            ready: VecDeque::new(),
            scratch: Vec::new(),
            bounded: ticket.is_bounded(),
            planned: ticket.is_planned(),
            ticket: Some(ticket),
            from,
            joint: Joint::default(),
            surface: stream.surface,
            usage_asked: stream.usage_asked,
            silence: stream.silence,
            patience: stream.patience,
            keepalive,
            timer: Box::pin(tokio::time::sleep(first)),
            heard: now,
            told: (now, 0),
            kept: None,
            begun: false,
            first_output: None,
            cut,
            drains,
            client_left: false,
            tail: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ticket.is_none() && self.ready.is_empty()
    }

    /// Whether the stream was over before it gave anything: what to answer instead of an empty success (B162).
    /// The call is ended then; what the provider may still send is not awaited.
    pub(crate) fn failed_at_once(&mut self) -> Option<Problem> {
        let meter = self.relay.meter();
        if meter.first_output_seen || meter.finish_seen {
            return None;
        }
        let problem = match &meter.error {
            Some(error) => refusal::error_in_200(error),
            None if self.ticket.is_none() && meter.events == 0 => {
                Problem::upstream("the provider's stream ended before it began")
            }
            None => return None,
        };
        let _: Poll<()> = self.finish(Ending::UpstreamError);
        Some(problem)
    }

    /// Reads ahead until the stream shows whether it is a stream at all: an event, an error, its end, or `bound` bytes.
    pub(crate) async fn peek(&mut self, bound: usize) {
        std::future::poll_fn(|cx| {
            loop {
                let held: usize = self.ready.iter().map(Bytes::len).sum();
                if self.ticket.is_none() || self.relay.meter().events > 0 || held >= bound {
                    return Poll::Ready(());
                }
                if self.advance(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.begun = true;
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(bytes));
            }
            if self.ticket.is_none() {
                return Poll::Ready(None);
            }
            if self.advance(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes one step: a chunk, the end, a limit of time. Pending when there is nothing to do.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.upstream).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.chunk(data, cx);
                }
                // Comments that never pause are no reason to go on either.
                if self.ticket.is_some() && self.told.0.elapsed() >= self.patience {
                    return self.finish(Ending::Timeout);
                }
                Poll::Ready(())
            }
            Poll::Ready(Some(Err(_))) => self.finish(Ending::Reset),
            Poll::Ready(None) => self.finish(Ending::Complete),
            Poll::Pending => self.wait(cx),
        }
    }

    fn chunk(&mut self, data: Bytes, cx: &mut Context<'_>) {
        self.heard = Instant::now();
        let data = if self.decoder.is_identity() {
            data
        } else {
            let mut plain = Vec::new();
            if self.decoder.push(&data, &mut plain, EXPAND_MAX).is_err() {
                let _ = self.finish(Ending::Reset);
                return;
            }
            Bytes::from(plain)
        };
        // Our key at the provider is no client's to see: the stream breaks off before it.
        let Ok(data) = self.joint.pass(&self.from.hidden, data) else {
            let _ = self.finish(Ending::Reset);
            return;
        };
        self.relay.push(data, &mut self.scratch);
        self.ready.extend(self.scratch.drain(..));
        let told = self.relay.meter().told();
        if told != self.told.1 {
            self.told = (self.heard, told);
        }
        if !self.tail && self.relay.meter().saw_done {
            // The answer is whole; the connection's own end is awaited only briefly, so that it can be used again.
            self.tail = true;
            self.silence = self.silence.min(TAIL_SILENCE);
            self.timer.as_mut().reset(tokio::time::Instant::now() + self.silence);
        }
        if self.first_output.is_none() && self.relay.meter().first_output_seen {
            self.first_output = Some(self.heard);
        }
        if self.planned
            && let Some(ticket) = &self.ticket
        {
            ticket.told(&self.relay.meter().output, self.first_output);
        }
        // In mid-event the rest of it goes out first; the limit is not passed by more than an event.
        if self.bounded && self.relay.at_boundary() && self.leave(cx) == Leave::Stop {
            self.stop();
        }
    }

    fn leave(&self, cx: &Context<'_>) -> Leave {
        match &self.ticket {
            Some(ticket) => ticket.streamed(&self.relay.meter().output, self.first_output, Some(cx.waker())),
            None => Leave::GoOn,
        }
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.bounded && self.relay.at_boundary() && self.leave(cx) == Leave::Stop {
            self.stop();
            return Poll::Ready(());
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let quiet = self.heard.elapsed();
            let idle = self.told.0.elapsed();
            if quiet >= self.silence || idle >= self.patience {
                return self.finish(Ending::Timeout);
            }
            let (keep, written) = self.keep_alive(quiet);
            let left = self.silence.saturating_sub(quiet).min(self.patience.saturating_sub(idle)).min(keep);
            self.timer.as_mut().reset(tokio::time::Instant::now() + left);
            if written {
                return Poll::Ready(());
            }
        }
        if self.cut.poll(cx).is_ready() {
            return self.finish(Ending::Shutdown);
        }
        Poll::Pending
    }

    /// Writes a keepalive if one is due and fits. Then: how long until the next may be due, and whether one was written.
    /// It is no sign of the provider's life, so no other limit of time sees it (B124).
    fn keep_alive(&mut self, quiet: Duration) -> (Duration, bool) {
        let Some(pause) = self.keepalive else { return (Duration::MAX, false) };
        let since = self.kept.map_or(quiet, |kept| quiet.min(kept.elapsed()));
        let left = pause.saturating_sub(since);
        if !left.is_zero() {
            return (left, false);
        }
        // In mid-event there will be bytes first, and they count as life themselves.
        let fits = self.begun && !self.tail && self.relay.takes_keepalive();
        if fits {
            self.kept = Some(Instant::now());
            self.ready.push_back(Bytes::from_static(tollbook_wire::keepalive(self.surface)));
        }
        (pause, fits)
    }

    /// A hard limit is used up: the dialect's own clean end, as if the output cap had been reached (L9).
    fn stop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        self.relay.end(&mut self.scratch);
        let (input, output) = ticket.metered(&self.relay.meter().output);
        let usage = StopUsage { input, output, asked: self.usage_asked };
        let events = tollbook_wire::stop_at_limit(self.surface, self.relay.meter(), usage);
        self.relay.append(Bytes::from(events), &mut self.scratch);
        self.ready.extend(self.scratch.drain(..));
        self.close(ticket, Ending::StoppedAtLimit);
    }

    /// The stream is over; `how` is what the transport said, the events may know better.
    fn finish(&mut self, how: Ending) -> Poll<()> {
        let Some(ticket) = self.ticket.take() else { return Poll::Ready(()) };
        let rest = self.joint.rest();
        if !rest.is_empty() {
            self.relay.push(rest, &mut self.scratch);
        }
        let end = self.relay.end(&mut self.scratch);
        let ending = if self.relay.meter().error.is_some() {
            Ending::UpstreamError
        } else if end.complete {
            Ending::Complete
        } else if how == Ending::Complete {
            Ending::Truncated
        } else {
            how
        };
        match ending {
            Ending::UpstreamError => {}
            Ending::Complete => {
                if let Some(marker) = tollbook_wire::done_marker(self.surface).filter(|_| end.marker_due) {
                    self.relay.append(Bytes::from_static(marker), &mut self.scratch);
                }
            }
            other => {
                let event = self.error_event(other, ticket.request_id());
                self.relay.append(Bytes::from(event), &mut self.scratch);
            }
        }
        self.ready.extend(self.scratch.drain(..));
        // What ended in order and was no stream at all is the provider's failure, like an error under a 200.
        let no_stream = how == Ending::Complete && self.relay.meter().events == 0;
        let told = match ending {
            _ if self.client_left => Ending::ClientGone,
            Ending::Truncated if no_stream => Ending::UpstreamError,
            other => other,
        };
        self.close(ticket, told);
        Poll::Ready(())
    }

    fn error_event(&self, ending: Ending, request_id: &str) -> Vec<u8> {
        let (kind, code, message) = match ending {
            Ending::Timeout => {
                (ErrorKind::Timeout, "stream_timeout", "the provider fell silent in mid-stream")
            }
            Ending::Shutdown => (ErrorKind::Unavailable, "shutting_down", "the gateway is shutting down"),
            _ => (
                ErrorKind::Upstream,
                "stream_incomplete",
                "the provider's stream ended before its answer did",
            ),
        };
        {
            let detail = ErrorDetail { code: Some(code), ..ErrorDetail::default() };
            let meter = self.relay.meter();
            tollbook_wire::broken_stream(self.surface, meter, kind, detail, message, request_id)
        }
    }

    fn close(&self, ticket: Ticket, ending: Ending) {
        trace::streamed(&ticket, self.relay.meter());
        ticket.end(&self.outcome(ending));
    }

    fn outcome(&self, ending: Ending) -> Outcome {
        let meter = self.relay.meter();
        Outcome {
            ending,
            usage: meter.usage,
            output: meter.output,
            output_seen: meter.first_output_seen,
            anomalies: meter.anomalies,
            first_output: self.first_output,
            service_tier: meter.service_tier.clone(),
            web_searches: meter.web_searches,
            hosted: meter.hosted,
            blind: false,
        }
    }
}

impl RelayBody {
    /// A client that leaves after the answer was complete has not cut it short (B038).
    fn is_whole(&self) -> bool {
        let meter = self.relay.meter();
        meter.finish_seen && meter.usage.is_some_and(|u| u.complete)
    }

    /// Reads the rest for its usage; what it gives goes nowhere.
    async fn drain(mut self: Box<Self>, drains: Drains, slot: OwnedSemaphorePermit) {
        self.client_left = true;
        let rest = std::future::poll_fn(|cx| {
            while self.ticket.is_some() {
                if self.advance(cx).is_pending() {
                    return Poll::Pending;
                }
                self.ready.clear();
            }
            Poll::Ready(())
        });
        // Past the bound the body is dropped, and settles by what was received.
        drop(tokio::time::timeout(drains.bound, rest).await);
        drop(slot);
    }
}

impl Drop for RelayBody {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let ending = if self.is_whole() && !self.client_left { Ending::Complete } else { Ending::ClientGone };
        self.close(ticket, ending);
    }
}

/// A stream as the connection holds it: dropped when its client leaves.
#[derive(Debug)]
pub(crate) struct Relayed {
    body: Option<Box<RelayBody>>,
    _open: (InFlight, Option<OpenStream>),
}

impl Relayed {
    pub(crate) fn new(body: RelayBody, counted: InFlight, open: Option<OpenStream>) -> Self {
        Self { body: Some(Box::new(body)), _open: (counted, open) }
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.body.as_mut().map_or(Poll::Ready(None), |body| body.poll_next(cx))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_done())
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        if body.ticket.is_none() || body.is_whole() {
            return;
        }
        let Some(drains) = body.drains.clone() else { return };
        let slot = Arc::clone(&drains.slots).try_acquire_owned();
        if let (Ok(slot), Ok(runtime)) = (slot, tokio::runtime::Handle::try_current()) {
            runtime.spawn(body.drain(drains, slot));
        }
    }
}

impl std::fmt::Debug for RelayBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayBody").field("surface", &self.surface).finish_non_exhaustive()
    }
}
