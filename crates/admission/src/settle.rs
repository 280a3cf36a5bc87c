//! Settles reservations after a call has ended, exactly once each.
//!
//! Invariants: a posting is acknowledged by the engine, or it waits in the bounded queue, or it lies in the spool; the
//! engine makes repeats harmless. An engine at hand is asked at once, in place; only what it cannot take waits.
//! When the engine is away: postings wait, oldest first, those of a shard that is there pass the others; a full queue
//! spills to the spool file; a full spool raises [`Settler::is_full`], which closes the door and turns readiness off.
//! Nothing known is dropped. What local books admitted meanwhile is restored; an engine that cannot do that gets its entry
//! to be kept apart, with an alarm (L8).
//! Knows nothing about HTTP.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tollbook_engine::{Engine, EngineError, ErrorKind, Loss, RestoreCall, Shard};
use tollbook_ledger::{Met, Micros, Settled};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Verb;

use crate::away::{self, Away};
use crate::outcome::Posting;
use crate::report;
use crate::spool::{Spool, SpoolError, Spooled};
use crate::time::EngineTime;
use crate::verb;
use crate::vouchers::Vouchers;

/// First and longest pause between two tries while the engine is away.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Shards that may fail in one round before the rest of it is left for the next; lost ones, which answer fast, are none.
const FAILED_MAX: usize = 4;

/// Bounds of settling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettleBounds {
    /// Postings that wait in memory, those under way included.
    pub queue_max: usize,
    /// Longest a single verb may take.
    pub deadline: Duration,
}

impl Default for SettleBounds {
    fn default() -> Self {
        Self { queue_max: 16_384, deadline: Duration::from_secs(2) }
    }
}

/// One posting that waits.
struct Job {
    posting: Arc<Posting>,
    ended: Instant,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    under_way: usize,
}

/// Takes postings from Tickets and sees them through.
pub(crate) struct Settler {
    engine: Arc<dyn Engine>,
    away: Arc<Away>,
    time: Arc<EngineTime>,
    metrics: Arc<Metrics>,
    bounds: SettleBounds,
    queue: Mutex<Queue>,
    wake: Notify,
    spool: Mutex<Option<Spool>>,
    full: AtomicBool,
    vouchers: Option<Arc<Vouchers>>,
}

/// A posting on its way to the engine.
type Sending = Pin<Box<dyn Future<Output = Result<Settled, EngineError>> + Send>>;

impl Settler {
    pub(crate) fn new(
        (engine, away): (Arc<dyn Engine>, Arc<Away>),
        time: Arc<EngineTime>,
        metrics: Arc<Metrics>,
        bounds: SettleBounds,
        spool: Option<Spool>,
        vouchers: Option<Arc<Vouchers>>,
    ) -> Self {
        Self {
            engine,
            away,
            time,
            metrics,
            bounds,
            queue: Mutex::default(),
            wake: Notify::new(),
            spool: Mutex::new(spool),
            full: AtomicBool::new(false),
            vouchers,
        }
    }

    /// Hands over the posting of a call that ended now. Never blocks, never fails: at worst it is spooled.
    pub(crate) fn post(self: &Arc<Self>, posting: Posting) {
        let job = Job { posting: Arc::new(posting), ended: Instant::now() };
        let shard = job.shard();
        if self.away.is_open(shard) {
            return self.wait_or_spill(job);
        }
        let mut sending = self.first(&job);
        match sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => {
                self.away.told(shard, &result, Duration::ZERO);
                match result {
                    Ok(settled) => self.done(job, &settled),
                    Err(error) => self.failed(job, &error),
                }
            }
            Poll::Pending => self.go_on(job, sending),
        }
    }

    /// Something that was away is back: what waits for it need not wait on.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// True while the spool is full: the caller closes the door and readiness.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Postings not yet acknowledged, those in the spool not counted.
    pub(crate) fn depth(&self) -> usize {
        let queue = self.lock();
        queue.waiting.len() + queue.under_way
    }

    /// Serves what waits until `stop` resolves and everything is acknowledged or spooled.
    pub(crate) async fn run(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut pause = BACKOFF.0;
        let mut stopping = false;
        loop {
            let progress = self.drain().await && self.unspool().await;
            if progress {
                self.full.store(false, Ordering::Relaxed);
            }
            pause = if progress { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
            if stopping && (self.depth() == 0 || !progress) {
                self.spill_all();
                return;
            }
            let retry = async {
                if progress && self.is_spool_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = retry => {}
                () = &mut stop, if !stopping => stopping = true,
            }
        }
    }

    /// The first try: the call ended now, so the posting is sent as it is.
    fn first(&self, job: &Job) -> Sending {
        self.send(Arc::clone(&job.posting))
    }

    /// A later try: its age is told as of now.
    fn again(&self, job: &Job) -> Sending {
        let mut posting = Posting::clone(&job.posting);
        age(&mut posting, Micros::try_from(job.ended.elapsed().as_micros()).unwrap_or(Micros::MAX));
        self.send(Arc::new(posting))
    }

    /// A future that owns its posting.
    fn send(&self, posting: Arc<Posting>) -> Sending {
        let shard = posting.claim().shard;
        if self.vouchers.as_ref().is_some_and(|vouchers| vouchers.is_behind(shard)) {
            let error = EngineError::not_applied(ErrorKind::Lost(Loss::Rebuilding));
            return Box::pin(std::future::ready(Err(error)));
        }
        let engine = Arc::clone(&self.engine);
        Box::pin(async move {
            match &*posting {
                Posting::Settle(call) => engine.settle(call).await.map(|r| r.value),
                Posting::Release(call) => engine.release(call).await.map(|r| r.value),
                Posting::Restore(call) => restore(&*engine, call).await,
            }
        })
    }

    /// Lets a remote engine answer in a task of its own, within the queue's bound.
    fn go_on(self: &Arc<Self>, job: Job, sending: Sending) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return self.wait_or_spill(job);
        };
        {
            let mut queue = self.lock();
            if queue.waiting.len() + queue.under_way >= self.bounds.queue_max {
                drop(queue);
                return self.spill(job);
            }
            queue.under_way += 1;
        }
        let settler = Arc::clone(self);
        runtime.spawn(async move {
            let began = tokio::time::Instant::now();
            let result = verb::within_owned(settler.bounds.deadline, sending).await;
            settler.away.told(job.shard(), &result, began.elapsed());
            settler.lock().under_way -= 1;
            match result {
                Ok(settled) => settler.done(job, &settled),
                Err(error) => settler.failed(job, &error),
            }
            settler.wake.notify_one();
        });
    }

    fn done(&self, job: Job, settled: &Settled) {
        let is_release = matches!(*job.posting, Posting::Release(_));
        let is_unbooked = settled.before == Met::Unknown && !is_release;
        report::settled(&self.metrics, settled, !is_release);
        if matches!(*job.posting, Posting::Restore(_)) {
            if is_unbooked {
                tracing::error!(
                    claim = ?job.posting.claim(),
                    "a call that was admitted while the book was away cannot be booked by this engine: unbooked"
                );
            } else {
                self.metrics.settle_restored.inc(());
            }
            return;
        }
        if self.vouchers.as_ref().is_some_and(|vouchers| !vouchers.ended(&job.posting, settled.before)) {
            // The book was made whole without this call, and will hear of it.
            return self.wait_or_spill(job);
        }
        if is_unbooked {
            tracing::error!(claim = ?job.posting.claim(), "a settle met an id the engine no longer knows: unbooked");
        }
    }

    fn failed(&self, job: Job, error: &EngineError) {
        report::failed(&self.metrics, verb_of(&job.posting), error);
        if let ErrorKind::Refused(refusal) = &error.kind {
            // A repeat cannot help; the hold expires and the entry of expiry tells of the call.
            tracing::error!(claim = ?job.posting.claim(), %refusal, "the engine refused a settle");
            return self.refused(&job.posting);
        }
        self.is_lost(&job, error);
        self.metrics.settle_retried.inc(());
        self.wait_or_spill(job);
    }

    fn wait_or_spill(&self, job: Job) {
        let mut queue = self.lock();
        if queue.waiting.len() + queue.under_way < self.bounds.queue_max {
            queue.waiting.push_back(job);
            drop(queue);
            self.wake.notify_one();
        } else {
            drop(queue);
            self.spill(job);
        }
    }

    /// Writes a posting to the spool. A full one keeps it in memory beyond the queue's bound: nothing known is dropped,
    /// and because nothing is admitted then, that is at most one posting per reservation in flight.
    fn spill(&self, job: Job) {
        if let Some(job) = self.spool(job) {
            self.full.store(true, Ordering::Relaxed);
            self.lock().waiting.push_back(job);
            self.wake.notify_one();
        }
    }

    /// Gives the job back if it found no room.
    fn spool(&self, job: Job) -> Option<Job> {
        let age = Micros::try_from(job.ended.elapsed().as_micros()).unwrap_or(Micros::MAX);
        let spooled =
            Spooled { posting: Posting::clone(&job.posting), ended: self.time.now().saturating_sub(age) };
        let mut spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match spool.as_mut() {
            Some(spool) => spool.append(&spooled),
            None => Err(SpoolError::Full { bytes_max: 0 }),
        };
        if let Some(spool) = spool.as_ref() {
            self.metrics.settle_spool_bytes.set((), spool.bytes());
        }
        drop(spool);
        if let Err(error) = result {
            tracing::error!(%error, claim = ?spooled.posting.claim(), "an outcome finds no room: no call is admitted");
            return Some(job);
        }
        self.metrics.settle_spooled.inc(());
        None
    }

    /// Posts what waits, each once; false when something waits on. A shard that fails, or is lost, keeps back its own
    /// postings alone, and data that cannot be read the postings that need it.
    async fn drain(&self) -> bool {
        let mut kept: BTreeSet<Shard> = BTreeSet::new();
        let mut failed = 0;
        let mut back = VecDeque::new();
        let mut left = self.lock().waiting.len();
        while left > 0 && failed < FAILED_MAX {
            left -= 1;
            let Some(job) = self.next() else { break };
            let shard = job.shard();
            if kept.contains(&shard) || self.away.is_open(shard) {
                back.push_back(job);
                continue;
            }
            let began = tokio::time::Instant::now();
            let result = verb::within_owned(self.bounds.deadline, self.again(&job)).await;
            self.away.told(shard, &result, began.elapsed());
            match result {
                Ok(settled) => {
                    self.lock().under_way -= 1;
                    self.done(job, &settled);
                }
                Err(error) => {
                    report::failed(&self.metrics, verb_of(&job.posting), &error);
                    if let ErrorKind::Refused(refusal) = &error.kind {
                        self.lock().under_way -= 1;
                        tracing::error!(claim = ?job.posting.claim(), %refusal, "the engine refused a settle");
                        self.refused(&job.posting);
                        continue;
                    }
                    self.metrics.settle_retried.inc(());
                    if self.is_lost(&job, &error) {
                        kept.insert(shard);
                    } else if !matches!(error.kind, ErrorKind::Damaged(_)) {
                        kept.insert(shard);
                        failed += 1;
                    }
                    back.push_back(job);
                }
            }
        }
        // What was taken up and not posted counts as under way until here, within the queue's bound.
        let mut queue = self.lock();
        queue.under_way -= back.len();
        while let Some(job) = back.pop_back() {
            queue.waiting.push_front(job);
        }
        queue.waiting.is_empty()
    }

    /// Nothing is left to restore of a call whose end was refused: it expires.
    fn refused(&self, posting: &Posting) {
        if let Some(vouchers) = &self.vouchers {
            vouchers.forget(posting.claim());
        }
    }

    /// Whether the shard is lost, which is told to those who mend it.
    fn is_lost(&self, job: &Job, error: &EngineError) -> bool {
        match &self.vouchers {
            Some(vouchers) => vouchers.lost.met(job.posting.claim().shard, error),
            None => matches!(error.kind, ErrorKind::Lost(_)),
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        let job = queue.waiting.pop_front()?;
        queue.under_way += 1;
        Some(job)
    }

    /// Posts what the spool holds, then clears it; false when the engine took something not.
    async fn unspool(&self) -> bool {
        let left = {
            let mut spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
            match spool.as_mut() {
                Some(spool) if !spool.is_empty() => spool.read_back(),
                _ => return true,
            }
        };
        let left = match left {
            Ok(left) => left,
            Err(error) => {
                tracing::error!(%error, "the spool cannot be read");
                return false;
            }
        };
        let count = left.len();
        for spooled in left {
            if self.away.is_open(spooled.posting.claim().shard) || self.repost(spooled).await.is_err() {
                return false;
            }
        }
        self.clear_spool(count)
    }

    /// Posts one outcome of the spool, told with its true age (L8).
    async fn repost(&self, mut spooled: Spooled) -> Result<(), EngineError> {
        let later = self.time.now().saturating_sub(spooled.ended);
        let told = told_age(&spooled.posting);
        age(&mut spooled.posting, later.saturating_sub(told));
        let job = Job { posting: Arc::new(spooled.posting), ended: Instant::now() };
        let began = tokio::time::Instant::now();
        let result = verb::within_owned(self.bounds.deadline, self.again(&job)).await;
        self.away.told(job.shard(), &result, began.elapsed());
        let error = match result {
            Ok(settled) => {
                self.done(job, &settled);
                return Ok(());
            }
            Err(error) => error,
        };
        report::failed(&self.metrics, verb_of(&job.posting), &error);
        if let ErrorKind::Refused(refusal) = &error.kind {
            tracing::error!(claim = ?job.posting.claim(), %refusal, "the engine refused a spooled settle");
            self.refused(&job.posting);
            return Ok(());
        }
        self.is_lost(&job, &error);
        self.metrics.settle_retried.inc(());
        Err(error)
    }

    /// Clears the spool unless something was spilled to it meanwhile (then all of it is posted again, harmlessly).
    fn clear_spool(&self, posted: usize) -> bool {
        let mut spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(spool) = spool.as_mut() else { return true };
        match spool.read_back().map(|all| all.len() == posted) {
            Ok(true) if spool.clear().is_ok() => {
                self.metrics.settle_spool_bytes.set((), 0);
                tracing::info!(posted, path = %spool.path().display(), "the spool was posted and cleared");
                true
            }
            _ => false,
        }
    }

    /// At the end: what the engine did not take goes to disk.
    fn spill_all(&self) {
        loop {
            // The lock is not held while the file is written.
            let next = self.lock().waiting.pop_front();
            let Some(job) = next else { return };
            if self.spool(job).is_some() {
                tracing::error!(
                    "an outcome is lost with this process: its hold will expire and tell of the call"
                );
            }
        }
    }

    fn is_spool_empty(&self) -> bool {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(Spool::is_empty)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn shard(&self) -> Shard {
        self.posting.claim().shard
    }
}

/// Restores a call of a local book. Where the engine cannot do that, or will not, what is known of the call goes to the
/// journal all the same, kept apart.
async fn restore(engine: &dyn Engine, call: &RestoreCall) -> Result<Settled, EngineError> {
    match engine.restore(call).await {
        Ok(_) => Ok(Settled { before: Met::Held, overrun: Vec::new(), posted: Vec::new(), admitted: 0 }),
        Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::Refused(_)) => {
            engine.settle(&away::unbooked(call)).await.map(|reply| reply.value)
        }
        Err(error) => Err(error),
    }
}

/// Makes a posting older.
fn age(posting: &mut Posting, later: Micros) {
    match posting {
        Posting::Settle(call) => call.age = call.age.saturating_add(later),
        Posting::Restore(call) => away::aged(call, later),
        Posting::Release(_) => {}
    }
}

/// How old a posting says it is; nothing for one that is not asked.
fn told_age(posting: &Posting) -> Micros {
    match posting {
        Posting::Settle(call) => call.age,
        Posting::Restore(call) => match &call.state {
            tollbook_engine::RestoredState::Ended { age, .. } => *age,
            tollbook_engine::RestoredState::Held { .. } => 0,
        },
        Posting::Release(_) => 0,
    }
}

fn verb_of(posting: &Posting) -> Verb {
    match posting {
        Posting::Restore(_) => Verb::Restore,
        Posting::Settle(_) => Verb::Settle,
        Posting::Release(_) => Verb::Release,
    }
}
