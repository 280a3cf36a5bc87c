//! Keeps the holds of calls in flight alive and lets them grow.
//!
//! Invariants: every admitted call is registered until its Ticket ends; every live call is renewed in batches, well within
//! its life, the first renewal after dispatch making it `sent` (L7); a stream that nears its allowance on a hard limit
//! asks for a step before it gets there, and learns where it must stop when the step is refused (L9).
//! When the engine is away: renewals are missed, holds may expire, the calls go on, and their settle is late (L8). Holds
//! in local books need none, and grow there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use ahash::AHashSet;
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tollbook_engine::{Claim, Engine, Receipt, RenewCall};
use tollbook_ledger::{Micros, Renewed, SubjectId};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Verb;
use tollbook_telemetry::log::Every;

use crate::away::{Away, is_local};
use crate::report;
use crate::time::EngineTime;

/// Most renewals sent in one call.
pub(crate) const BATCH_MAX: usize = 256;
/// One warning of a kind in this time.
pub(crate) const WARN_EVERY: Duration = Duration::from_secs(10);
/// Lists of live calls; a power of two, to spread their locks.
const LISTS: usize = 16;
/// Smallest step by which a hold on a hard limit grows, in llm_tokens (L9).
const STEP_MIN: u64 = 256;

/// How lives are kept up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lives {
    /// Life a reservation is born with.
    pub door: Duration,
    /// Life a renewal gives.
    pub renewed: Duration,
    /// Pause between two rounds of renewals.
    pub every: Duration,
    /// Pause between two batches of progress for what is planned.
    pub flush: Duration,
}

impl Default for Lives {
    fn default() -> Self {
        Self {
            door: Duration::from_secs(15),
            renewed: Duration::from_mins(1),
            every: Duration::from_secs(5),
            flush: Duration::from_secs(2),
        }
    }
}

/// What the stream of a call and the renewals of its holds tell each other.
#[derive(Debug)]
pub(crate) struct Live {
    tenant: Claim,
    /// Of the tenant's accounts, if its holds may grow.
    subjects: Vec<SubjectId>,
    pool: Mutex<Option<Claim>>,
    sent: AtomicBool,
    ended: AtomicBool,
    /// Output the holds on hard limits cover; `u64::MAX` where none is held at the expected demand.
    allowance: AtomicU64,
    /// Output that steps were granted for; 0 before the first.
    granted: AtomicU64,
    /// Output asked for and not yet answered; 0 when none is.
    asked: AtomicU64,
    /// The last step was refused: the stream ends at `allowance`.
    refused: AtomicBool,
    stream: AtomicWaker,
}

/// What a stream may do after some output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    GoOn,
    /// A hard limit is reached: end the stream now, cleanly.
    Stop,
}

impl Live {
    pub(crate) fn new(tenant: &Receipt, pool: Option<Claim>, allowance: u64) -> Self {
        Self {
            tenant: tenant.claim(),
            subjects: if allowance == u64::MAX { Vec::new() } else { tenant.subjects() },
            pool: Mutex::new(pool),
            sent: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            allowance: AtomicU64::new(allowance),
            granted: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            stream: AtomicWaker::new(),
        }
    }

    pub(crate) fn mark_sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_pool(&self, pool: Option<Claim>) {
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = pool;
    }

    /// Whether the call's output is watched at all.
    pub(crate) fn is_bounded(&self) -> bool {
        self.allowance.load(Ordering::Relaxed) != u64::MAX
    }

    /// Output that the last granted step covers, if there was one.
    pub(crate) fn granted(&self) -> Option<u64> {
        Some(self.granted.load(Ordering::Acquire)).filter(|output| *output > 0)
    }

    fn claims(&self) -> impl Iterator<Item = Claim> {
        let pool = *self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        [Some(self.tenant), pool].into_iter().flatten()
    }
}

/// All live calls of a gateway.
pub(crate) struct LiveCalls {
    engine: Arc<dyn Engine>,
    away: Arc<Away>,
    time: Arc<EngineTime>,
    metrics: Arc<Metrics>,
    lives: Lives,
    deadline: Duration,
    lists: [Mutex<Vec<Arc<Live>>>; LISTS],
    next: AtomicU64,
    growing: Mutex<Vec<Arc<Live>>>,
    grow: Notify,
    /// A round has many batches, and an engine that is away misses each.
    missed: Every,
    ungrown: Every,
}

impl LiveCalls {
    pub(crate) fn new(
        (engine, away): (Arc<dyn Engine>, Arc<Away>),
        time: Arc<EngineTime>,
        metrics: Arc<Metrics>,
        lives: Lives,
        deadline: Duration,
    ) -> Self {
        Self {
            engine,
            away,
            time,
            metrics,
            lives,
            deadline,
            lists: std::array::from_fn(|_| Mutex::default()),
            next: AtomicU64::new(0),
            growing: Mutex::default(),
            grow: Notify::new(),
            missed: Every::new(WARN_EVERY),
            ungrown: Every::new(WARN_EVERY),
        }
    }

    pub(crate) fn register(&self, live: &Arc<Live>) {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let index = usize::try_from(turn).unwrap_or(0) % LISTS;
        if let Some(list) = self.lists.get(index) {
            list.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(live));
        }
    }

    /// The reservations of the calls that left the gateway.
    pub(crate) fn sent(&self) -> AHashSet<Claim> {
        let mut sent = AHashSet::new();
        for list in &self.lists {
            let list = list.lock().unwrap_or_else(PoisonError::into_inner);
            sent.extend(list.iter().filter(|live| live.is_sent()).flat_map(|live| live.claims()));
        }
        sent
    }

    /// Told by a stream: `output` llm_tokens so far, at `pace` llm_tokens per second.
    pub(crate) fn streamed(&self, live: &Arc<Live>, output: u64, pace: u64, waker: Option<&Waker>) -> Leave {
        let allowance = live.allowance.load(Ordering::Acquire);
        let step = STEP_MIN.max(pace.saturating_mul(3 * self.lives.every.as_secs()));
        if output.saturating_add(step / 2) < allowance {
            return Leave::GoOn;
        }
        if live.refused.load(Ordering::Acquire) {
            return if output >= allowance { Leave::Stop } else { Leave::GoOn };
        }
        if let Some(waker) = waker {
            live.stream.register(waker);
        }
        let wanted = allowance.max(output).saturating_add(step);
        if live.asked.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.growing.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(live));
            self.grow.notify_one();
        }
        Leave::GoOn
    }

    /// Renews in rounds, and grows on demand, until `stop` resolves.
    pub(crate) async fn run(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut round = tokio::time::interval(self.lives.every);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = round.tick() => self.renew_all().await,
                () = self.grow.notified() => self.grow_asked().await,
                () = &mut stop => return,
            }
        }
    }

    /// One round: forgets ended calls, renews the others.
    async fn renew_all(&self) {
        let life = micros(self.lives.renewed);
        for list in &self.lists {
            let live: Vec<Arc<Live>> = {
                let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
                list.retain(|live| !live.ended.load(Ordering::Relaxed));
                list.clone()
            };
            let calls: Vec<RenewCall> = live
                .iter()
                .flat_map(|live| {
                    let sent = live.is_sent();
                    live.claims().filter(|claim| !is_local(claim.id)).map(move |claim| RenewCall {
                        claim,
                        subjects: Vec::new(),
                        sent,
                        life,
                        output_expected: None,
                        outgrown: None,
                    })
                })
                .collect();
            for batch in calls.chunks(BATCH_MAX) {
                let within = (self.time.now(), self.deadline);
                let (answers, error) = self.away.renew(&*self.engine, within, batch).await;
                self.metrics.admission_renewed.add((), count(answers.iter().flatten().count()));
                if let Some(error) = error {
                    report::failed(&self.metrics, Verb::Renew, &error);
                    if let Some(suppressed) = self.missed.pass(now()) {
                        tracing::warn!(%error, suppressed, "a batch of renewals was missed");
                    }
                }
            }
        }
    }

    /// Asks for every step that streams wanted since the last time.
    async fn grow_asked(&self) {
        let asking = std::mem::take(&mut *self.growing.lock().unwrap_or_else(PoisonError::into_inner));
        let life = micros(self.lives.renewed);
        for batch in asking.chunks(BATCH_MAX) {
            let calls: Vec<RenewCall> = batch
                .iter()
                .map(|live| RenewCall {
                    claim: live.tenant,
                    subjects: live.subjects.clone(),
                    sent: live.is_sent(),
                    life,
                    output_expected: Some(live.asked.load(Ordering::Acquire)),
                    outgrown: None,
                })
                .collect();
            let within = (self.time.now(), self.deadline);
            let (answers, error) = self.away.renew(&*self.engine, within, &calls).await;
            if let Some(error) = error {
                report::failed(&self.metrics, Verb::Renew, &error);
                if let Some(suppressed) = self.ungrown.pass(now()) {
                    tracing::warn!(%error, suppressed, "holds could not grow");
                }
            }
            let short = answers.iter().filter(|a| matches!(a, Some(Renewed::Short(_)))).count();
            self.metrics.admission_short.add((), count(short));
            for (index, live) in batch.iter().enumerate() {
                answered(live, answers.get(index).and_then(Option::as_ref));
            }
        }
    }
}

/// Writes the answer to a growth request where the stream looks, and wakes it.
fn answered(live: &Live, answer: Option<&Renewed>) {
    let asked = live.asked.load(Ordering::Acquire);
    match answer {
        Some(Renewed::Held(_)) => {
            live.allowance.fetch_max(asked, Ordering::AcqRel);
            live.granted.fetch_max(asked, Ordering::AcqRel);
        }
        // An expired hold is billed late and in full; the stream is not cut for it (L7).
        Some(Renewed::Ended(_) | Renewed::Unknown) => live.allowance.store(u64::MAX, Ordering::Release),
        // Hard limits fail closed: no answer is no room.
        Some(Renewed::Short(_)) | None => live.refused.store(true, Ordering::Release),
    }
    live.asked.store(0, Ordering::Release);
    live.stream.wake();
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> Micros {
    Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX)
}
