//! Decides which calls are traced, and keeps the finished ones until they are sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use super::attributes::{Key, Value};
use super::call::CallTrace;
use super::context::{Context, SpanId, TraceId};
use crate::labels::SpanLoss;
use crate::list::Metrics;

/// The ratio at which every call is sampled: ratios are in millionths.
pub const ONE: u32 = 1_000_000;

/// Which calls are traced, and how many of them may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracerSettings {
    /// Share of the calls that is sampled, in millionths.
    pub ratio: u32,
    /// Do as a client's `traceparent` says, where there is one.
    pub follow_client: bool,
    /// Spans that may wait to be sent.
    pub queue_max: usize,
    /// So many waiting spans wake the exporter.
    pub batch: usize,
}

/// Makes traces and keeps what is finished.
pub struct Tracer {
    settings: TracerSettings,
    metrics: Arc<Metrics>,
    /// Random at start, then scattered counting: unique, cheap, no secret.
    seed: u64,
    counter: AtomicU64,
    queue: Mutex<VecDeque<Span>>,
    wake: Notify,
}

/// Which side of a connection a span tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanKind {
    Server,
    Client,
}

/// A finished span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    /// The parent is in another process.
    pub remote: bool,
    pub state: Option<Box<str>>,
    pub name: Arc<str>,
    pub kind: SpanKind,
    /// Nanoseconds since 1970.
    pub began: u64,
    pub ended: u64,
    pub attributes: Vec<(Key, Value)>,
    pub failed: bool,
}

impl Tracer {
    /// `seed` is random; two processes must not share one.
    pub fn new(settings: TracerSettings, metrics: Arc<Metrics>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            settings,
            metrics,
            seed,
            counter: AtomicU64::new(0),
            queue: Mutex::default(),
            wake: Notify::new(),
        })
    }

    /// A call is at the door; `parent` is what its client said of a trace. Nothing if it is not sampled.
    pub fn call(self: &Arc<Self>, parent: Option<Context>) -> Option<CallTrace> {
        let fresh = (self.number(), self.number());
        let low = parent.as_ref().map_or(fresh.1, |p| low_half(p.trace));
        let sampled = match &parent {
            Some(parent) if self.settings.follow_client => parent.sampled,
            _ => takes(self.settings.ratio, low),
        };
        sampled.then(|| CallTrace::new(self, parent, joined(fresh.0, fresh.1)))
    }

    pub(super) fn span_id(&self) -> SpanId {
        SpanId(self.number().to_be_bytes())
    }

    /// Never zero, and no two alike in one process.
    fn number(&self) -> u64 {
        loop {
            let n = self.counter.fetch_add(1, Ordering::Relaxed);
            let number = scatter(self.seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            if number != 0 {
                return number;
            }
        }
    }

    /// Keeps the spans of a finished call, all of them or none.
    pub(super) fn offer(&self, spans: Vec<Span>) {
        let count = spans.len();
        let waiting = {
            let mut queue = self.lock();
            if queue.len().saturating_add(count) > self.settings.queue_max {
                drop(queue);
                let lost = u64::try_from(count).unwrap_or(u64::MAX);
                self.metrics.traces_dropped.add((SpanLoss::QueueFull,), lost);
                return;
            }
            queue.extend(spans);
            queue.len()
        };
        if waiting >= self.settings.batch {
            self.wake.notify_one();
        }
    }

    /// Takes what has waited longest.
    pub fn take(&self, most: usize) -> Vec<Span> {
        let mut queue = self.lock();
        let count = queue.len().min(most);
        queue.drain(..count).collect()
    }

    /// Spans that wait.
    pub fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// Resolves once a whole batch waits.
    pub async fn batch_waits(&self) {
        self.wake.notified().await;
    }

    /// Where what becomes of spans is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Span>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The share of all numbers that a ratio takes: the same answer for one trace wherever it is asked.
fn takes(ratio: u32, low: u64) -> bool {
    u128::from(low) * u128::from(ONE) < u128::from(ratio) << 64
}

fn low_half(trace: TraceId) -> u64 {
    let low = u128::from_be_bytes(trace.0) & u128::from(u64::MAX);
    u64::try_from(low).unwrap_or_default()
}

fn joined(high: u64, low: u64) -> TraceId {
    TraceId(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
}

/// A fixed bijection that scatters neighbouring numbers (the finalizer of splitmix64).
fn scatter(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The wall clock, for the times people read; no decision is made by it.
#[allow(clippy::disallowed_methods, reason = "a time for people, not an input to a decision")]
pub(super) fn wall() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_takes_its_share_at_both_ends() {
        assert!(!takes(0, 0));
        assert!(takes(1, 0));
        assert!(takes(ONE, u64::MAX));
        assert!(!takes(ONE - 1, u64::MAX));
        assert!(takes(ONE / 2, u64::MAX / 2));
        assert!(!takes(ONE / 2, u64::MAX / 2 + 1));
    }

    #[test]
    fn halves_join_to_a_whole() {
        assert_eq!(low_half(joined(1, 2)), 2);
        assert_eq!(joined(1, 2).to_string(), "00000000000000010000000000000002");
    }
}
