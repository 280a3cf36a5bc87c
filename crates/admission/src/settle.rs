//! Settles reservations after a call has ended, exactly once each.
//!
//! Invariants: a posting is acknowledged by the engine, or it waits in the bounded queue, or it lies in the spool; the
//! engine makes repeats harmless. An engine at hand is asked at once, in place; only what it cannot take waits.
//! When the engine is away: postings wait, those that were tried behind the others, and a shard that is there passes
//! one that is not; a full queue
//! spills to the spool file; a full spool raises [`Settler::is_full`], which closes the door and turns readiness off until
//! there is room again. What waits is tried after a pause, or at once when something is back; never because a call has
//! ended. Nothing known is dropped. What local books admitted meanwhile is restored; an engine that cannot do that gets
//! its entry to be kept apart, with an alarm (L8).
//! Knows nothing about HTTP.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tollbook_engine::{Engine, EngineError, ErrorKind, Loss, Reply, RestoreCall, Shard};
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
/// Postings of one shard that may meet damaged data in one round; a few of them say nothing of the others.
const DAMAGED_MAX: u32 = 4;

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
    /// Something waits, for its turn after the pause.
    waits: Notify,
    /// What waits has its turn at once.
    wake: Notify,
    stopping: AtomicBool,
    spool: Mutex<Option<Spool>>,
    full: AtomicBool,
    vouchers: Option<Arc<Vouchers>>,
}

/// A posting that has to be sent again; without an error the book was made whole without its call, and will hear of it.
struct Left {
    job: Job,
    error: Option<EngineError>,
}

/// What a round of tries has met so far.
#[derive(Default)]
struct Round {
    /// Shards whose postings wait for the next one.
    kept: BTreeSet<Shard>,
    damaged: BTreeMap<Shard, u32>,
    failed: usize,
}

impl Round {
    fn note(&mut self, shard: Shard, error: Option<&EngineError>) {
        match error.map(|error| &error.kind) {
            Some(ErrorKind::Damaged(_)) => {
                let met = self.damaged.entry(shard).or_default();
                *met = met.saturating_add(1);
                if *met < DAMAGED_MAX {
                    return;
                }
            }
            Some(ErrorKind::Lost(_)) | None => {}
            Some(_) => self.failed = self.failed.saturating_add(1),
        }
        self.kept.insert(shard);
    }

    fn is_over(&self) -> bool {
        self.failed >= FAILED_MAX
    }
}

/// A posting on its way to the engine.
type Sending = Pin<Box<dyn Future<Output = Result<Reply<Settled>, EngineError>> + Send>>;

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
            waits: Notify::new(),
            wake: Notify::new(),
            stopping: AtomicBool::new(false),
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
                self.away.told(shard, &result, (Duration::ZERO, self.bounds.deadline));
                if let Some(left) = self.took(job, result) {
                    self.wait_or_spill(left.job);
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
            let mut round = Round::default();
            self.drain(&mut round).await;
            self.unspool(&mut round).await;
            self.make_room();
            let waits = self.is_waiting();
            if stopping && (waits || self.depth() == 0) {
                return self.finish().await;
            }
            pause = if waits { (pause * 2).min(BACKOFF.1) } else { BACKOFF.0 };
            let retry = async {
                if !waits {
                    self.waits.notified().await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = retry => {}
                () = &mut stop, if !stopping => {
                    stopping = true;
                    self.stopping.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Anything that is not under way: it is tried again.
    fn is_waiting(&self) -> bool {
        !self.lock().waiting.is_empty() || !self.is_spool_empty() || self.is_full()
    }

    /// At the end: what the engine does not take goes to disk, also what was under way.
    async fn finish(&self) {
        self.spill_all();
        let landed = async {
            while self.lock().under_way > 0 {
                self.wake.notified().await;
            }
        };
        // Each verb has a deadline of its own, and began before.
        let all = tokio::time::timeout(self.bounds.deadline + BACKOFF.0, landed).await;
        if all.is_err() {
            tracing::error!(
                "outcomes are still under way at the end: those that fail are lost with this process"
            );
        }
        self.spill_all();
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
                Posting::Settle(call) => engine.settle(call).await,
                Posting::Release(call) => engine.release(call).await,
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
            let result = settler.answer(job.shard(), sending).await;
            let left = settler.took(job, result);
            {
                // In one: at the end nothing is overlooked in between.
                let mut queue = settler.lock();
                queue.under_way -= 1;
                if let Some(left) = left {
                    queue.waiting.push_back(left.job);
                    settler.waits.notify_one();
                }
            }
            if settler.stopping.load(Ordering::Relaxed) {
                settler.wake.notify_one();
            }
        });
    }

    /// Awaits what the engine says to a posting.
    async fn answer(&self, shard: Shard, sending: Sending) -> Result<Reply<Settled>, EngineError> {
        let began = tokio::time::Instant::now();
        let result = verb::within_owned(self.bounds.deadline, sending).await;
        self.away.told(shard, &result, (began.elapsed(), self.bounds.deadline));
        result
    }

    /// Notes what became of a posting, and gives it back if it has to be sent again.
    fn took(&self, job: Job, result: Result<Reply<Settled>, EngineError>) -> Option<Left> {
        let error = match result {
            Ok(reply) => return self.done(job, &reply),
            Err(error) => error,
        };
        report::failed(&self.metrics, verb_of(&job.posting), &error);
        if let ErrorKind::Refused(refusal) = &error.kind {
            // A repeat cannot help; the hold expires and the entry of expiry tells of the call.
            tracing::error!(claim = ?job.posting.claim(), %refusal, "the engine refused a settle");
            if let Some(vouchers) = &self.vouchers {
                vouchers.forget(job.posting.claim());
            }
            return None;
        }
        if let Some(vouchers) = &self.vouchers {
            // Told to those who mend it, if that is it.
            vouchers.lost.met(job.shard(), &error);
        }
        self.metrics.settle_retried.inc(());
        Some(Left { job, error: Some(error) })
    }

    fn done(&self, job: Job, reply: &Reply<Settled>) -> Option<Left> {
        let settled = &reply.value;
        let is_release = matches!(*job.posting, Posting::Release(_));
        let is_unbooked = settled.before == Met::Unknown && !is_release;
        report::settled(&self.metrics, settled, !is_release);
        let met = (reply.epoch, settled.before);
        if self.vouchers.as_ref().is_some_and(|vouchers| !vouchers.ended(&job.posting, job.age(), met)) {
            return Some(Left { job, error: None });
        }
        let claim = job.posting.claim();
        match &*job.posting {
            Posting::Restore(_) if is_unbooked => tracing::error!(
                ?claim,
                "a call that was admitted while the book was away cannot be booked by this engine: unbooked"
            ),
            Posting::Restore(_) => self.metrics.settle_restored.inc(()),
            _ if is_unbooked => {
                tracing::error!(?claim, "a settle met an id the engine no longer knows: unbooked");
            }
            _ => {}
        }
        None
    }

    fn wait_or_spill(&self, job: Job) {
        let mut queue = self.lock();
        if queue.waiting.len() + queue.under_way < self.bounds.queue_max {
            queue.waiting.push_back(job);
            drop(queue);
            self.waits.notify_one();
        } else {
            drop(queue);
            self.spill(job);
        }
    }

    /// Writes a posting to the spool. A full one keeps it in memory beyond the queue's bound: nothing known is dropped,
    /// and because nothing is admitted then, that is at most one posting per reservation in flight.
    fn spill(&self, job: Job) {
        if let Err((job, error)) = self.spool(job) {
            tracing::error!(%error, claim = ?job.posting.claim(), "an outcome finds no room: no call is admitted");
            self.full.store(true, Ordering::Relaxed);
            self.lock().waiting.push_back(job);
        }
        self.waits.notify_one();
    }

    /// While there is none: what waits beyond the queue's bound goes to the spool, newest first. The door opens when there is
    /// a place again.
    fn make_room(&self) {
        while self.is_full() {
            let job = {
                let mut queue = self.lock();
                if queue.waiting.len() + queue.under_way < self.bounds.queue_max {
                    self.full.store(false, Ordering::Relaxed);
                    return;
                }
                queue.waiting.pop_back()
            };
            let Some(job) = job else { return };
            if let Err((job, _)) = self.spool(job) {
                self.lock().waiting.push_back(job);
                return;
            }
        }
    }

    /// Gives the job back if it found no room.
    fn spool(&self, job: Job) -> Result<(), (Job, SpoolError)> {
        let age = Micros::try_from(job.ended.elapsed().as_micros()).unwrap_or(Micros::MAX);
        let spooled =
            Spooled { posting: Posting::clone(&job.posting), ended: self.time.now().saturating_sub(age) };
        let mut spool = self.lock_spool();
        let result = match spool.as_mut() {
            Some(spool) => spool.append(&spooled),
            None => Err(SpoolError::Full { bytes_max: 0 }),
        };
        self.show_spool(spool.as_ref());
        drop(spool);
        result.map_err(|error| (job, error))?;
        self.metrics.settle_spooled.inc(());
        Ok(())
    }

    fn show_spool(&self, spool: Option<&Spool>) {
        if let Some(spool) = spool {
            self.metrics.settle_spool_bytes.set((), spool.bytes());
        }
    }

    /// Posts what waits, each once. A shard that fails, or is lost, keeps back its own postings alone, and data that cannot
    /// be read the postings that need it.
    async fn drain(&self, round: &mut Round) {
        let (mut kept, mut tried) = (VecDeque::new(), VecDeque::new());
        let mut left = self.lock().waiting.len();
        while left > 0 && !round.is_over() {
            left -= 1;
            let Some(job) = self.next() else { break };
            let shard = job.shard();
            if self.is_kept(round, shard) {
                kept.push_back(job);
                continue;
            }
            let result = self.answer(shard, self.again(&job)).await;
            if let Some(left) = self.took(job, result) {
                round.note(shard, left.error.as_ref());
                tried.push_back(left.job);
            } else {
                self.lock().under_way -= 1;
            }
        }
        // What was taken up and not posted counts as under way until here, within the queue's bound.
        let mut queue = self.lock();
        queue.under_way -= kept.len() + tried.len();
        // Behind those that had no turn: they have the next one.
        queue.waiting.append(&mut kept);
        queue.waiting.append(&mut tried);
    }

    /// Whether the shard's postings wait for another round.
    fn is_kept(&self, round: &Round, shard: Shard) -> bool {
        round.kept.contains(&shard) || self.away.is_open(shard)
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        let job = queue.waiting.pop_front()?;
        queue.under_way += 1;
        Some(job)
    }

    /// Posts what the spool holds, each once, and keeps what the engine took not. Reads it only if some of it can be taken.
    async fn unspool(&self, round: &mut Round) {
        let read = match self.lock_spool().as_mut() {
            Some(spool) if spool.shards().iter().any(|shard| !self.is_kept(round, *shard)) => {
                spool.read_back()
            }
            _ => return,
        };
        let (all, read) = match read {
            Ok(read) => read,
            Err(error) => return tracing::error!(%error, "the spool cannot be read"),
        };
        round.failed = 0;
        let (mut posted, mut unasked, mut kept, mut tried) = (0_usize, Vec::new(), Vec::new(), Vec::new());
        for spooled in all {
            let shard = spooled.posting.claim().shard;
            if round.is_over() {
                unasked.push(spooled);
            } else if self.is_kept(round, shard) {
                kept.push(spooled);
            } else if let Some(left) = self.repost(&spooled).await {
                round.note(shard, left.error.as_ref());
                tried.push(spooled);
            } else {
                posted = posted.saturating_add(1);
            }
        }
        if posted == 0 && unasked.is_empty() && round.damaged.is_empty() {
            return;
        }
        // Those that had no turn have the next one.
        unasked.append(&mut kept);
        unasked.append(&mut tried);
        self.keep(&unasked, read, posted);
    }

    fn keep(&self, left: &[Spooled], read: u64, posted: usize) {
        let mut spool = self.lock_spool();
        let Some(file) = spool.as_mut() else { return };
        // What was posted and stays is posted again, harmlessly.
        if let Err(error) = file.keep(left, read) {
            return tracing::error!(%error, posted, "the spool cannot be cleared of what was posted");
        }
        if file.is_empty() {
            tracing::info!(posted, path = %file.path().display(), "the spool was posted and cleared");
        }
        self.show_spool(spool.as_ref());
    }

    /// Posts one outcome of the spool, told with its true age (L8).
    async fn repost(&self, spooled: &Spooled) -> Option<Left> {
        let later = self.time.now().saturating_sub(spooled.ended);
        let mut posting = spooled.posting.clone();
        age(&mut posting, later.saturating_sub(told_age(&spooled.posting)));
        let job = Job { posting: Arc::new(posting), ended: Instant::now() };
        let result = self.answer(job.shard(), self.first(&job)).await;
        self.took(job, result)
    }

    /// At the end: what the engine did not take goes to disk.
    fn spill_all(&self) {
        loop {
            // The lock is not held while the file is written.
            let next = self.lock().waiting.pop_front();
            let Some(job) = next else { return };
            if let Err((_, error)) = self.spool(job) {
                tracing::error!(
                    %error,
                    "an outcome is lost with this process: its hold will expire and tell of the call"
                );
            }
        }
    }

    fn is_spool_empty(&self) -> bool {
        self.lock_spool().as_ref().is_none_or(Spool::is_empty)
    }

    fn lock_spool(&self) -> std::sync::MutexGuard<'_, Option<Spool>> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn shard(&self) -> Shard {
        self.posting.claim().shard
    }

    /// Time since the call ended.
    fn age(&self) -> Micros {
        let later = Micros::try_from(self.ended.elapsed().as_micros()).unwrap_or(Micros::MAX);
        told_age(&self.posting).saturating_add(later)
    }
}

/// Restores a call of a local book. Where the engine cannot do that, or will not, what is known of the call goes to the
/// journal all the same, kept apart.
async fn restore(engine: &dyn Engine, call: &RestoreCall) -> Result<Reply<Settled>, EngineError> {
    match engine.restore(call).await {
        Ok(Reply { epoch, now, value: () }) => {
            let value = Settled { before: Met::Held, overrun: Vec::new(), posted: Vec::new(), admitted: 0 };
            Ok(Reply { epoch, now, value })
        }
        Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::Refused(_)) => {
            engine.settle(&away::unbooked(call)).await
        }
        Err(error) => Err(error),
    }
}

/// Makes a posting older.
pub(crate) fn age(posting: &mut Posting, later: Micros) {
    match posting {
        Posting::Settle(call) => call.age = call.age.saturating_add(later),
        Posting::Restore(call) => away::aged(call, later),
        Posting::Release(_) => {}
    }
}

/// How old a posting says it is; nothing for one that is not asked.
pub(crate) fn told_age(posting: &Posting) -> Micros {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_keeps_what_belongs_to_shards_that_failed() {
        let mut round = Round::default();
        let damaged = EngineError::not_applied(ErrorKind::Damaged("a test".into()));
        for _ in 1..DAMAGED_MAX {
            round.note(Shard(1), Some(&damaged));
            assert!(!round.kept.contains(&Shard(1)), "the others may be whole");
        }
        round.note(Shard(1), Some(&damaged));
        round.note(Shard(2), Some(&EngineError::not_applied(ErrorKind::Lost(Loss::All))));
        round.note(Shard(3), None);
        assert_eq!(round.kept, [1, 2, 3].map(Shard).into());
        for shard in 4..8 {
            assert!(!round.is_over());
            round.note(Shard(shard), Some(&EngineError::unknown(ErrorKind::Deadline)));
        }
        assert!(round.is_over());
    }
}
