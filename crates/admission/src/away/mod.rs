//! The book slow or gone: who is still asked, what is decided instead, and what is told of it.
//!
//! Invariants: while a breaker is open no call waits for the book; a call with an enforced limit that is `closed` is then
//! refused, one with a `local` limit is admitted by a local book within its share of the ceiling, any other one is
//! admitted and counted. Everyone who asks the book for a call tells here what became of it. Once a second the shards that
//! failed are probed; the first good answer ends their absence. A shard whose store has lost data is away, but is asked: it
//! answers at once, and takes calls from the moment when it is whole; for that moment a call waits shortly, if none has
//! done so in vain.
//! What was admitted so keeps its whole receipt, and is posted to the book by the settler as it ends.

mod absence;
mod breaker;
mod door;
mod local;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tollbook_engine::{Answer, Engine, EngineError, ErrorKind, LostShards, RenewCall, Reply, Shard};
use tollbook_ledger::{Growth, Micros, Renewed};
use tollbook_policy::WhenAway;
use tollbook_telemetry::log::Every;
use tollbook_telemetry::{Metrics, labels};

use crate::live::WARN_EVERY;

use absence::Absence;
pub use absence::{AwayReport, Counts as AwayCounts};
use breaker::{Breaker, Told};
pub use breaker::{BreakerBounds, FAILURES_MAX, OF_LAST_MAX};
pub(crate) use door::{Ended, Unanswered, admits, admits_any, aged, share, unbooked};
pub(crate) use local::{Local, LocalEnd, base_id, is_local};

/// How often a shard that takes no calls is asked whether it does again.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);
/// Shards probed at once while the whole book is away: enough to meet every node of a cluster before long.
const PROBES: u8 = 8;
/// So many deadlines after it began, a verb that is still awaited tells of a process that stood still, not of the book.
const STANDSTILL: u32 = 2;
/// Gateways that a ceiling can be shared among.
pub const GATEWAYS_MAX: u32 = 10_000;

/// How the absence of the book is met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AwayBounds {
    pub breaker: BreakerBounds,
    /// Gateways that share the book, as far as it is known at the start.
    pub gateways: u32,
}

impl Default for AwayBounds {
    fn default() -> Self {
        Self { breaker: BreakerBounds::default(), gateways: 1 }
    }
}

/// How a call was admitted that the book was not there for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Degraded {
    /// By no book: none of its limits wants one.
    Open,
    /// By a local book.
    Local,
}

impl Degraded {
    /// As headers and documents say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Local => "local",
        }
    }
}

/// What a gateway knows of the book's absence, and its own books.
pub(crate) struct Away {
    metrics: Arc<Metrics>,
    breaker: Breaker,
    absence: Absence,
    local: Arc<Local>,
    gateways: AtomicU32,
    /// Where lost shards are told, if the book can lose them.
    lost: Option<Arc<LostShards>>,
    odd: Every,
    /// Where the probes of the whole book go on.
    probe: AtomicU8,
}

impl Away {
    pub(crate) fn new(bounds: AwayBounds, metrics: Arc<Metrics>, lost: Option<Arc<LostShards>>) -> Self {
        let away = Self {
            breaker: Breaker::new(bounds.breaker),
            absence: Absence::default(),
            local: Arc::new(Local::new(Arc::clone(&metrics))),
            gateways: AtomicU32::new(1),
            lost,
            odd: Every::new(WARN_EVERY),
            probe: AtomicU8::new(0),
            metrics,
        };
        away.set_gateways(bounds.gateways);
        away
    }

    /// Gateways among which a ceiling is shared from now on.
    pub(crate) fn set_gateways(&self, gateways: u32) {
        self.gateways.store(gateways.clamp(1, GATEWAYS_MAX), Ordering::Relaxed);
    }

    pub(crate) fn gateways(&self) -> u32 {
        self.gateways.load(Ordering::Relaxed)
    }

    /// The shard is not to be asked: it failed, or was slow.
    pub(crate) fn is_open(&self, shard: Shard) -> bool {
        self.breaker.is_open(shard)
    }

    /// No shard is asked.
    pub(crate) fn is_whole_open(&self) -> bool {
        self.breaker.is_whole_open()
    }

    /// Some reservation got no verdict, and its shard none since.
    pub(crate) fn is_away(&self) -> bool {
        self.absence.is_away()
    }

    pub(crate) fn report(&self) -> Option<AwayReport> {
        self.absence.report()
    }

    pub(crate) fn local(&self) -> &Arc<Local> {
        &self.local
    }

    /// Awaits a verb of a shard within `deadline` and notes how it went. An engine at hand answers on the first poll, is
    /// never slow, and costs no look at the clock.
    pub(crate) async fn timed<T>(
        &self,
        shard: Shard,
        deadline: Duration,
        mut answer: Answer<'_, T>,
    ) -> Result<Reply<T>, EngineError> {
        if let Poll::Ready(result) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            self.told(shard, &result, (Duration::ZERO, deadline));
            return result;
        }
        let began = Instant::now();
        let result = match tokio::time::timeout(deadline, answer).await {
            Ok(result) => result,
            Err(_) => Err(EngineError::unknown(ErrorKind::Deadline)),
        };
        self.told(shard, &result, (began.elapsed(), deadline));
        result
    }

    /// A verb of a shard took so long, of what it had, and came to this.
    pub(crate) fn told<T>(
        &self,
        shard: Shard,
        result: &Result<T, EngineError>,
        (took, deadline): (Duration, Duration),
    ) {
        if took >= deadline.saturating_mul(STANDSTILL) && !took.is_zero() {
            return;
        }
        let told = match result {
            // The store is there and answers at once; what it has lost is mended apart, and told when it is.
            Err(EngineError { kind: ErrorKind::Lost(_), .. }) => return,
            Err(error) if is_absence(error) => Told::Failed,
            // Anything else the engine says, it says while it is there.
            _ if took >= self.breaker.bounds().slow => Told::Slow,
            _ => Told::Well,
        };
        let opened = self.breaker.told(shard, told);
        if opened > 0 {
            self.opened(opened, shard, if told == Told::Slow { "slow" } else { "failing" });
        }
    }

    /// A reservation got no verdict.
    pub(crate) fn unanswered(&self, shard: Shard, instead: WhenAway, error: Option<&EngineError>) {
        let label = match instead {
            WhenAway::Closed => labels::Away::Closed,
            WhenAway::Local => labels::Away::Local,
            WhenAway::Open => labels::Away::Open,
        };
        self.metrics.admission_degraded.inc((label,));
        match error {
            Some(error) if !is_absence(error) && !matches!(error.kind, ErrorKind::Lost(_)) => {
                if let Some(suppressed) = self.odd.pass(Instant::now().into_std()) {
                    let shard = shard.0;
                    tracing::error!(%error, shard, suppressed, "the book is there, and cannot decide a call");
                }
            }
            _ => self.absence.unanswered(shard, instead, error),
        }
    }

    /// A shard gave a verdict.
    pub(crate) fn answered(&self, shard: Shard) {
        self.absence.answered(shard);
    }

    fn opened(&self, gates: u64, shard: Shard, why: &'static str) {
        self.metrics.away_breaker.add((labels::Turn::Opened,), gates);
        self.show();
        let whole = self.breaker.is_whole_open();
        tracing::debug!(
            shard = shard.0,
            whole,
            why,
            "the breaker has opened: no call waits for the book any more"
        );
    }

    fn show(&self) {
        self.metrics.away_shards.set((), self.breaker.count_open());
    }

    /// Probes shards that take no calls; true if one does again.
    pub(crate) async fn probe(&self, engine: &dyn Engine, deadline: Duration) -> bool {
        let was_whole = self.breaker.is_whole_open();
        let mut back = self.probe_each(engine, deadline).await;
        if was_whole && !self.breaker.is_whole_open() {
            // It is there again: those that were left out have their turn at once.
            back |= self.probe_each(engine, deadline).await;
        }
        self.show();
        back
    }

    async fn probe_each(&self, engine: &dyn Engine, deadline: Duration) -> bool {
        let slow = self.breaker.bounds().slow;
        let probes = self.to_probe().into_iter().map(|shard| async move {
            let began = Instant::now();
            let answer = tokio::time::timeout(deadline, engine.takes(shard)).await;
            let lost = matches!(answer, Ok(Err(EngineError { kind: ErrorKind::Lost(_), .. })));
            let well = (lost || matches!(answer, Ok(Ok(_)))) && began.elapsed() < slow;
            well.then_some((shard, lost))
        });
        let back: Vec<(Shard, bool)> = join_all(probes).await.into_iter().flatten().collect();
        for (shard, lost) in &back {
            if !lost {
                self.absence.answered(*shard);
            }
            // A gate that is closed learns from verbs alone: a probe may be answered where they are not.
            let closed = if self.breaker.is_open(*shard) { self.breaker.answered(*shard) } else { 0 };
            if closed > 0 {
                self.metrics.away_breaker.add((labels::Turn::Closed,), closed);
                tracing::debug!(shard = shard.0, "the breaker has closed: the book is asked again");
            }
        }
        !back.is_empty()
    }

    /// Those that failed; while the whole book is away only some, and some others, since a part of it may be there.
    fn to_probe(&self) -> Vec<Shard> {
        let mut shards = self.absence.shards_away();
        shards.extend(self.breaker.shards_open());
        shards.sort_unstable();
        shards.dedup();
        if self.breaker.is_whole_open() {
            shards.truncate(usize::from(PROBES));
            let first = self.probe.fetch_add(PROBES, Ordering::Relaxed);
            shards.extend((0..PROBES).map(|n| Shard(first.wrapping_add(n))));
        }
        shards
    }

    /// Forgets what local books need no more.
    pub(crate) fn tidy(&self, now: Micros) {
        let away = self.absence.shards_away();
        self.local.tidy(now, |shard| self.breaker.is_open(shard) || away.contains(&shard));
    }

    /// Renews holds where they are: in the engine, or in a local book. One answer per call, in order; `None` where the
    /// engine gave none, and the first error. Shards that are not asked, or fail, keep the others from nothing.
    pub(crate) async fn renew(
        &self,
        engine: &dyn Engine,
        (now, deadline): (Micros, Duration),
        calls: &[RenewCall],
    ) -> (Vec<Option<Renewed>>, Option<EngineError>) {
        let mut answers = Vec::with_capacity(calls.len());
        let mut asked: BTreeMap<Shard, (Vec<usize>, Vec<RenewCall>)> = BTreeMap::new();
        for (at, call) in calls.iter().enumerate() {
            let locally = self.renew_locally(now, call);
            if locally.is_none() && !self.is_open(call.claim.shard) {
                let (places, batch) = asked.entry(call.claim.shard).or_default();
                places.push(at);
                batch.push(call.clone());
            }
            answers.push(locally);
        }
        let asking = asked.into_iter().map(|(shard, (places, batch))| async move {
            (shard, places, crate::verb::within(deadline, engine.renew(&batch)).await)
        });
        let mut first = None;
        for (shard, places, answer) in join_all(asking).await {
            match answer {
                Ok(reply) => {
                    for (at, renewed) in places.into_iter().zip(reply.value) {
                        if let Some(answer) = answers.get_mut(at) {
                            *answer = Some(renewed);
                        }
                    }
                }
                Err(error) => {
                    if let Some(lost) = &self.lost {
                        lost.met(shard, &error);
                    }
                    first.get_or_insert(error);
                }
            }
        }
        (answers, first)
    }

    /// `None`: it is none of theirs.
    pub(crate) fn renew_locally(&self, now: Micros, call: &RenewCall) -> Option<Renewed> {
        let growth = call.output_expected.map_or(Growth::Unchanged, Growth::Output);
        is_local(call.claim.id).then(|| self.local.renew(now, call.claim, growth, call.outgrown))
    }
}

/// The engine is not there; a caller's mistake or damaged data is no absence.
fn is_absence(error: &EngineError) -> bool {
    matches!(error.kind, ErrorKind::Away(_) | ErrorKind::Deadline)
}
