//! A gateway as the engine sees it: ids, renewals in rounds, a bounded settle queue, and a spool that outlives it.
//!
//! Invariants: as in the real one. No call is sent without its holds; every call it admitted ends in one posting per
//! reservation, acknowledged, waiting, or on its disk; a crash loses what was in memory and nothing else.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tollbook_engine::ledger::{Leg, Micros, Profile, ReleaseWhy, ReservationId, Reserve};
use tollbook_engine::{
    Applied, Claim, EngineError, ErrorKind, ExpireCall, Receipt, ReleaseCall, RenewCall, ReserveCall,
    SettleCall, Shard, Verdict,
};

use crate::config::{Config, S};
use crate::plans::Plans;
use crate::wire::Wire;

/// Longest a reserve may take, and any other verb.
pub(crate) const RESERVE_DEADLINE: Duration = Duration::from_millis(500);
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// Life at the door, and what a renewal gives.
const DOOR_LIFE: Micros = 15 * S;
pub(crate) const RENEWED_LIFE: Micros = 60 * S;
/// Pause between two rounds of renewals.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Pause between two rounds of telling what streams did.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// Times a verdict is asked for at most.
const ASKS_MAX: usize = 5;
/// Pause before a posting is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The end of one reservation on its way to the engine.
#[derive(Clone, Debug)]
pub(crate) enum Posting {
    Settle(SettleCall),
    Release(ReleaseCall),
}

/// A posting on disk, with the engine time at which its call ended.
#[derive(Clone, Debug)]
pub(crate) struct Spooled {
    posting: Posting,
    ended: Micros,
}

/// The disk of one gateway.
pub(crate) type Disk = Arc<Mutex<Vec<Spooled>>>;

#[derive(Debug)]
struct Job {
    posting: Posting,
    ended: Instant,
}

/// A live call, as far as renewals are concerned.
#[derive(Debug)]
pub(crate) struct Live {
    claims: Mutex<Vec<Claim>>,
    pub(crate) is_sent: AtomicBool,
    pub(crate) has_ended: AtomicBool,
    /// Output expected by now, to be told with the next renewal; 0: nothing new.
    pub(crate) growth: AtomicU64,
    /// Output so far, and the engine time of the first of it; 0: none yet.
    pub(crate) output: AtomicU64,
    pub(crate) first: AtomicU64,
    /// What is expected of a stream that outgrew its forecast, to be told with the next renewal; 0: nothing new.
    pub(crate) outgrown: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) wire: Arc<Wire>,
    prefix: u64,
    queue_max: usize,
    disk: Disk,
    mind: Mutex<Mind>,
    tasks: Mutex<JoinSet<()>>,
    /// No renewals while it is stalled.
    pub(crate) is_stalled: AtomicBool,
    pub(crate) is_stopping: AtomicBool,
}

#[derive(Debug)]
struct Mind {
    next: u64,
    /// Engine time as last told, and when that was.
    told: (Micros, Instant),
    config: Arc<Config>,
    live: Vec<Arc<Live>>,
    plans: Plans,
    queue: VecDeque<Job>,
    under_way: usize,
}

/// What a reserve came to.
#[derive(Debug)]
pub(crate) enum Asked {
    Admitted(Receipt),
    Denied,
    /// Nothing limits it.
    Nothing,
    /// No verdict; what may have been held is given back.
    Gone,
}

impl Gateway {
    /// Starts one over a disk that an earlier one may have left.
    pub(crate) fn start(
        wire: Arc<Wire>,
        config: Arc<Config>,
        disk: Disk,
        queue_max: usize,
        prefix: u64,
        now: Micros,
    ) -> Arc<Self> {
        let mind = Mind {
            next: 0,
            told: (now, Instant::now()),
            config,
            live: Vec::new(),
            plans: Plans::new(prefix),
            queue: VecDeque::new(),
            under_way: 0,
        };
        let gateway = Arc::new(Self {
            wire,
            prefix,
            queue_max,
            disk,
            mind: Mutex::new(mind),
            tasks: Mutex::new(JoinSet::new()),
            is_stalled: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        });
        gateway.spawn(Arc::clone(&gateway).renew_in_rounds());
        gateway.spawn(Arc::clone(&gateway).post_what_waits());
        gateway.spawn(Arc::clone(&gateway).tell_in_rounds());
        gateway
    }

    /// Runs something that dies with the gateway.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.look_after_tasks();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
    }

    /// A task that panicked is a finding.
    pub(crate) fn look_after_tasks(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(done) = tasks.try_join_next() {
            if let Err(error) = done {
                self.wire.bank.fail(format!("a task of a gateway ended badly: {error}"));
            }
        }
    }

    /// Dies: what was in memory is gone.
    pub(crate) fn crash(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.abort_all();
        drop(std::mem::take(&mut *tasks));
    }

    /// Shuts down in order: what the engine did not take goes to disk.
    pub(crate) fn spill_all(&self) {
        let jobs: Vec<Job> = self.mind().queue.drain(..).collect();
        for job in jobs {
            self.spill(job);
        }
    }

    /// Calls in flight, and postings that were not acknowledged, those on disk included.
    pub(crate) fn unfinished(&self) -> (usize, usize) {
        self.look_after_tasks();
        let mind = self.mind();
        let live = mind.live.iter().filter(|live| !live.has_ended.load(Ordering::Relaxed)).count();
        let waiting = mind.queue.len() + mind.under_way;
        drop(mind);
        (live, waiting + self.disk().len())
    }

    fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, Vec<Spooled>> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.mind().config)
    }

    pub(crate) fn replace(&self, config: Arc<Config>) {
        self.mind().config = config;
    }

    /// Engine time, as far as the gateway knows.
    pub(crate) fn now(&self) -> Micros {
        let (told, at) = self.mind().told;
        told + micros(at.elapsed())
    }

    fn told(&self, now: Micros) {
        self.mind().told = (now, Instant::now());
    }

    /// Ids of a new call: the tenant's reservation, and the pool's.
    pub(crate) fn fresh_ids(&self) -> (ReservationId, ReservationId) {
        let mut mind = self.mind();
        mind.next += 1;
        let id = u128::from(self.prefix) << 64 | u128::from(mind.next);
        (ReservationId(id), ReservationId(id | 1 << 63))
    }

    /// Asks for a reservation, and once more for each reason there is to.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        shard: Shard,
        (id, attempt): (ReservationId, u16),
        legs: impl Fn(Micros) -> Vec<Leg>,
    ) -> Asked {
        let mut call = reserve_call(shard, (id, attempt), legs(self.now()));
        let (mut recalendared, mut swept, mut repeated) = (false, false, false);
        for _ in 0..ASKS_MAX {
            let reply = match self.wire.reserve(RESERVE_DEADLINE, &call).await {
                Ok(reply) => reply,
                Err(error) if error.applied == Applied::Unknown && !repeated => {
                    repeated = true;
                    continue;
                }
                Err(error) => return self.gave_no_verdict(&call, &error),
            };
            self.told(reply.now);
            match reply.value {
                Verdict::Admit(receipt) => return Asked::Admitted(receipt),
                Verdict::Recalendar if !recalendared => {
                    recalendared = true;
                    call.reserve.legs = legs(reply.now);
                }
                Verdict::Deny { due, .. } if !due.is_empty() && !swept => {
                    swept = true;
                    let calls =
                        due.into_iter().map(|due| ExpireCall { claim: due.claim, subjects: due.subjects });
                    drop(self.wire.expire(RESERVE_DEADLINE, calls.collect()).await);
                }
                Verdict::Deny { .. } => return Asked::Denied,
                Verdict::Ended(_) | Verdict::Conflict(_) | Verdict::Recalendar => return Asked::Gone,
            }
        }
        Asked::Gone
    }

    fn gave_no_verdict(self: &Arc<Self>, call: &ReserveCall, error: &EngineError) -> Asked {
        if error.applied == Applied::Unknown {
            let claim = Claim { shard: call.shard, id: call.reserve.id, attempt: call.reserve.attempt };
            let accounts = call.reserve.legs.iter().map(|leg| leg.account).collect();
            self.post(Posting::Release(ReleaseCall {
                claim,
                accounts,
                why: ReleaseWhy::NeverSent,
                entry: None,
            }));
        }
        Asked::Gone
    }

    pub(crate) fn register(&self, claims: Vec<Claim>) -> Arc<Live> {
        let live = Arc::new(Live {
            claims: Mutex::new(claims),
            is_sent: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            growth: AtomicU64::new(0),
            output: AtomicU64::new(0),
            first: AtomicU64::new(0),
            outgrown: AtomicU64::new(0),
        });
        self.mind().live.push(Arc::clone(&live));
        live
    }

    /// Changes what is told of streams.
    pub(crate) fn plans<T>(&self, change: impl FnOnce(&mut Plans) -> T) -> T {
        change(&mut self.mind().plans)
    }

    async fn tell_in_rounds(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TELL_EVERY).await;
            if self.is_stalled.load(Ordering::Relaxed) {
                continue;
            }
            let now = self.now();
            for call in self.plans(|plans| plans.ask(now)) {
                // A batch without an answer comes again.
                if let Ok(reply) = self.wire.progress(DEADLINE, call.clone()).await {
                    self.told(reply.now);
                    self.plans(|plans| plans.acknowledged(&call));
                }
            }
        }
    }

    async fn renew_in_rounds(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            if self.is_stalled.load(Ordering::Relaxed) {
                continue;
            }
            let calls: Vec<RenewCall> = {
                let mut mind = self.mind();
                mind.live.retain(|live| !live.has_ended.load(Ordering::Relaxed));
                mind.live.iter().flat_map(|live| live.renewals()).collect()
            };
            // A batch that is missed is made up for by the next one.
            for batch in calls.chunks(8) {
                drop(self.wire.renew(DEADLINE, batch.to_vec()).await);
            }
        }
    }

    /// Hands over the end of a reservation. Never waits; at worst it is spooled.
    pub(crate) fn post(self: &Arc<Self>, posting: Posting) {
        let job = Job { posting, ended: Instant::now() };
        self.mind().under_way += 1;
        let gateway = Arc::clone(self);
        self.spawn(async move {
            let taken = gateway.send(&job).await;
            gateway.mind().under_way -= 1;
            if !taken {
                gateway.wait_or_spill(job);
            }
        });
    }

    /// True once the engine has acknowledged it.
    async fn send(&self, job: &Job) -> bool {
        let sent = match &job.posting {
            Posting::Settle(call) => {
                let age = call.age + micros(job.ended.elapsed());
                self.wire.settle(DEADLINE, SettleCall { age, ..call.clone() }).await
            }
            Posting::Release(call) => self.wire.release(DEADLINE, call.clone()).await,
        };
        match sent {
            Ok(reply) => {
                self.told(reply.now);
                true
            }
            Err(EngineError { kind: ErrorKind::Refused(refusal), .. }) => {
                self.wire.bank.fail(format!("a posting was refused: {refusal}"));
                true
            }
            Err(_) => false,
        }
    }

    fn wait_or_spill(&self, job: Job) {
        let mut mind = self.mind();
        if mind.queue.len() + mind.under_way < self.queue_max {
            mind.queue.push_back(job);
        } else {
            drop(mind);
            self.spill(job);
        }
    }

    fn spill(&self, job: Job) {
        let ended = self.now().saturating_sub(micros(job.ended.elapsed()));
        self.disk().push(Spooled { posting: job.posting, ended });
        self.wire.bank.stats(|stats| stats.spooled += 1);
    }

    async fn post_what_waits(self: Arc<Self>) {
        let mut pause = BACKOFF.0;
        loop {
            let progress = self.post_queue().await && self.post_spool().await;
            pause = if progress { BACKOFF.0 } else { (pause * 2).min(BACKOFF.1) };
            tokio::time::sleep(if progress { BACKOFF.1 } else { pause }).await;
        }
    }

    async fn post_queue(&self) -> bool {
        loop {
            let job = {
                let mut mind = self.mind();
                let Some(job) = mind.queue.pop_front() else { return true };
                mind.under_way += 1;
                job
            };
            let taken = self.send(&job).await;
            let mut mind = self.mind();
            mind.under_way -= 1;
            if !taken {
                mind.queue.push_front(job);
                return false;
            }
        }
    }

    /// Posts what lies on disk with its true age; the disk forgets only what was acknowledged.
    async fn post_spool(&self) -> bool {
        loop {
            let Some(spooled) = self.disk().first().cloned() else { return true };
            let mut posting = spooled.posting;
            if let Posting::Settle(call) = &mut posting {
                call.age = self.now().saturating_sub(spooled.ended);
            }
            if !self.send(&Job { posting, ended: Instant::now() }).await {
                return false;
            }
            self.disk().remove(0);
            self.wire.bank.stats(|stats| stats.unspooled += 1);
        }
    }
}

impl Live {
    pub(crate) fn set_claims(&self, claims: Vec<Claim>) {
        *self.claims.lock().unwrap_or_else(PoisonError::into_inner) = claims;
    }

    fn renewals(&self) -> Vec<RenewCall> {
        let sent = self.is_sent.load(Ordering::Relaxed);
        let growth = self.growth.swap(0, Ordering::Relaxed);
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let output_expected = (growth > 0).then_some(growth);
        let outgrown = self.outgrown.swap(0, Ordering::Relaxed);
        let outgrown = (outgrown > 0).then_some(outgrown);
        let renewal = |claim: &Claim| RenewCall {
            claim: *claim,
            subjects: Vec::new(),
            sent,
            life: RENEWED_LIFE,
            output_expected,
            outgrown,
        };
        claims.iter().map(renewal).collect()
    }
}

pub(crate) fn reserve_call(shard: Shard, (id, attempt): (ReservationId, u16), legs: Vec<Leg>) -> ReserveCall {
    let context = format!("context {id} {attempt}").into_bytes();
    let reserve = Reserve { id, attempt, life: DOOR_LIFE, profile: profile(id), legs, context };
    ReserveCall { shard, reserve, class: 0, waiting: false }
}

/// Ids so far apart have the same profile.
pub(crate) const PROFILES: u128 = 12;

/// How a call is expected to stream: by its id, so that a repeat says the same.
pub(crate) fn profile(ReservationId(id): ReservationId) -> Profile {
    let of = |from: &[Micros], id: u128| {
        let at = usize::try_from(id % from.len() as u128).unwrap_or(0);
        from.get(at).copied().unwrap_or(0)
    };
    Profile { ttft: of(&[300_000, 0, 1_500_000], id), pace: of(&[30_000, 2_000, 400_000, 30_000], id / 3) }
}

pub(crate) fn micros(span: Duration) -> Micros {
    Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX)
}
