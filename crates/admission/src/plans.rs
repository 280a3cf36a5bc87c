//! Tells forecast accounts what streams really do, and what they will.
//!
//! Invariants: every admitted call with a leg on a forecast account is followed from its receipt until its Ticket ends;
//! all streams of one account go into one batch per flush, all batches of one shard into few calls of `progress`, so the
//! cost at the engine depends on accounts, not on streams. A batch is repeated under its number until the engine has it.
//! When the engine is away: plans die there by themselves within a minute; batches wait, one per account. When this
//! process dies the same happens, and nothing has to be cleaned up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tollbook_engine::{Claim, Engine, EngineError, ProgressCall, RenewCall, Shard};
use tollbook_ledger::stream::{Seen, Share, Stream};
use tollbook_ledger::units::PROGRESS_ACCOUNTS_MAX;
use tollbook_ledger::{AccountId, Micros, Progress, Receipt, Reserve, Shape};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Verb;
use tollbook_telemetry::log::Every;

use crate::away::Away;
use crate::live::WARN_EVERY;
use crate::report;
use crate::time::EngineTime;

/// What a stream shows of itself, told chunk by chunk and read at every flush.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    output: AtomicU64,
    /// Engine time of the first output; 0: none was seen.
    first: AtomicU64,
}

impl Watch {
    fn seen(&self) -> Seen {
        match self.first.load(Ordering::Acquire) {
            0 => Seen::Nothing,
            first => Seen::Output { output: self.output.load(Ordering::Relaxed), first },
        }
    }
}

/// One account with the streams of this gateway.
struct Planned {
    shard: Shard,
    share: Share,
    streams: Vec<Option<Followed>>,
    free: Vec<usize>,
}

struct Followed {
    stream: Stream,
    per_output: u64,
    watch: Arc<Watch>,
    claim: Claim,
    streams: bool,
}

impl Followed {
    /// A stream that has shown nothing yet is not one that cannot show anything.
    fn seen(&self) -> Seen {
        match self.watch.seen() {
            Seen::Nothing if self.streams => Seen::Output { output: 0, first: 0 },
            seen => seen,
        }
    }
}

/// A call's places among the plans; given back when it ends.
#[derive(Default)]
pub(crate) struct Plan {
    watch: Arc<Watch>,
    places: Vec<(Arc<Mutex<Planned>>, usize)>,
}

impl Plan {
    /// Nothing is planned for the call.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The stream has given so much, the first of it at `first`.
    pub(crate) fn tell(&self, output: u64, first: Micros) {
        self.watch.output.store(output, Ordering::Relaxed);
        if self.watch.first.load(Ordering::Relaxed) == 0 {
            self.watch.first.store(first.max(1), Ordering::Release);
        }
    }

    /// The call has ended with so much output in all; the next flush takes back what is left of its plan. Its places are
    /// another call's from now on.
    pub(crate) fn end(&mut self, now: Micros, output: u64) {
        for (planned, place) in self.places.drain(..) {
            let mut planned = lock(&planned);
            let Some(followed) = planned.streams.get_mut(place).and_then(Option::take) else { continue };
            planned.free.push(place);
            for ramp in followed.stream.end(now, followed.seen(), output) {
                planned.share.land(now, ramp, followed.per_output);
            }
        }
    }
}

/// A call that is dropped before it has a Ticket was never sent: what it has shown stands, the rest is taken back.
impl Drop for Plan {
    fn drop(&mut self) {
        self.end(0, 0);
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("accounts", &self.places.len()).finish_non_exhaustive()
    }
}

/// Who has the accounts that calls are planned on.
pub(crate) enum Keeper {
    Engine(Arc<dyn Engine>, Arc<Away>),
    /// The local books.
    Local(Arc<Away>),
}

impl Keeper {
    /// `None`: the shard is not asked at the moment.
    async fn progress(
        &self,
        (now, deadline): (Micros, Duration),
        call: &ProgressCall,
    ) -> Option<Result<Micros, EngineError>> {
        match self {
            Self::Engine(_, away) if away.is_open(call.shard) => None,
            Self::Engine(engine, away) => {
                let reply = away.timed(call.shard, deadline, engine.progress(call)).await;
                Some(reply.map(|reply| reply.now))
            }
            Self::Local(away) => {
                away.local().progress(now, call.shard, &call.batches);
                Some(Ok(now))
            }
        }
    }

    async fn renew(
        &self,
        (now, deadline): (Micros, Duration),
        calls: &[RenewCall],
    ) -> Result<(), EngineError> {
        match self {
            Self::Engine(engine, away) => {
                away.renew(&**engine, (now, deadline), calls).await.1.map_or(Ok(()), Err)
            }
            Self::Local(away) => {
                for call in calls {
                    away.renew_locally(now, call);
                }
                Ok(())
            }
        }
    }
}

/// All plans of a gateway at one keeper.
pub(crate) struct Plans {
    keeper: Keeper,
    time: Arc<EngineTime>,
    metrics: Arc<Metrics>,
    /// Names this gateway's batches; random at each start.
    gateway: u64,
    /// Pause between two flushes.
    every: Duration,
    deadline: Duration,
    accounts: RwLock<Accounts>,
    accounts_max: usize,
    /// The largest number of a batch of an account that is followed no more.
    numbered: AtomicU64,
    missed: Every,
}

/// Accounts followed at once, two KiB each. Calls on further ones are not followed: their plans go by the clock alone,
/// which errs on the side of the limit.
pub(crate) const ACCOUNTS_MAX: usize = 65_536;

type Accounts = HashMap<(Shard, AccountId), Arc<Mutex<Planned>>>;

/// What one flush has to say to the engine.
#[derive(Default)]
struct Said {
    batches: Vec<(Shard, Progress)>,
    outgrown: HashMap<Claim, u64>,
}

impl Plans {
    pub(crate) fn new(
        keeper: Keeper,
        time: Arc<EngineTime>,
        metrics: Arc<Metrics>,
        gateway: u64,
        (every, deadline): (Duration, Duration),
        accounts_max: usize,
    ) -> Self {
        let (accounts, numbered, missed) = (RwLock::default(), AtomicU64::new(0), Every::new(WARN_EVERY));
        Self { keeper, time, metrics, gateway, every, deadline, accounts, accounts_max, numbered, missed }
    }

    /// Follows a call that the engine admitted, on each of its forecast accounts.
    pub(crate) fn admitted(&self, shard: Shard, reserve: &Reserve, receipt: &Receipt, streams: bool) -> Plan {
        let mut plan = Plan::default();
        let claim = Claim { shard, id: receipt.id, attempt: receipt.attempt };
        for (leg, taken) in reserve.legs.iter().zip(&receipt.legs) {
            let Shape::Forecast { window, .. } = leg.shape else { continue };
            let Some(planned) = self.of((shard, leg.account), window, receipt.now) else {
                self.metrics.plan_unfollowed.inc(());
                continue;
            };
            let place = {
                let mut planned = lock(&planned);
                let coefficients = (leg.base, leg.per_output);
                planned.share.admitted(receipt.now, reserve.profile, coefficients, taken.output);
                let stream = Stream::admitted(receipt.now, reserve.profile, taken.output, leg.cap);
                let watch = Arc::clone(&plan.watch);
                planned.follow(Followed { stream, per_output: leg.per_output, watch, claim, streams })
            };
            plan.places.push((planned, place));
        }
        plan
    }

    fn of(&self, name: (Shard, AccountId), window: u8, now: Micros) -> Option<Arc<Mutex<Planned>>> {
        if let Some(planned) = self.accounts.read().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Some(Arc::clone(planned));
        }
        let mut all = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= self.accounts_max && !all.contains_key(&name) {
            return None;
        }
        let new = || {
            let (shard, account) = name;
            let share = Share::new(account, window, now).above(self.numbered.load(Ordering::Relaxed));
            Arc::new(Mutex::new(Planned { shard, share, streams: Vec::new(), free: Vec::new() }))
        };
        Some(Arc::clone(all.entry(name).or_insert_with(new)))
    }

    /// Flushes in rounds until `stop` resolves, and once more then.
    pub(crate) async fn run(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut round = tokio::time::interval(self.every);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = round.tick() => self.flush().await,
                () = &mut stop => return self.flush().await,
            }
        }
    }

    /// One round: every account's streams are asked, what changed is sent.
    pub(crate) async fn flush(&self) {
        let started = Instant::now();
        let Said { mut batches, outgrown } = self.ask();
        self.metrics.plan_flush.observe((), started.elapsed());
        batches.sort_by_key(|(shard, _)| *shard);
        for of_shard in batches.chunk_by(|(one, _), (other, _)| one == other) {
            for chunk in of_shard.chunks(PROGRESS_ACCOUNTS_MAX) {
                self.send(chunk).await;
            }
        }
        self.learn(outgrown).await;
    }

    fn ask(&self) -> Said {
        let mut said = Said::default();
        let all: Vec<Arc<Mutex<Planned>>> =
            self.accounts.read().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect();
        let (mut followed, mut idle) = (0, false);
        for planned in all {
            let mut planned = lock(&planned);
            let now = self.time.now();
            followed += planned.ask(now, &mut said.outgrown);
            let shard = planned.shard;
            said.batches.extend(planned.share.flush(now, self.gateway).map(|batch| (shard, batch)));
            idle |= planned.is_idle();
        }
        if idle {
            // One that a call has just taken is in its hands too, and stays.
            let mut all = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, planned| {
                let stays = Arc::strong_count(planned) > 1 || !lock(planned).is_idle();
                if !stays {
                    self.numbered.fetch_max(lock(planned).share.seq(), Ordering::Relaxed);
                }
                stays
            });
        }
        self.metrics.plan_streams.set((), followed);
        said
    }

    async fn send(&self, batches: &[(Shard, Progress)]) {
        let Some(&(shard, _)) = batches.first() else { return };
        let call = ProgressCall { shard, batches: batches.iter().map(|(_, batch)| batch.clone()).collect() };
        let Some(answer) = self.keeper.progress((self.time.now(), self.deadline), &call).await else {
            return;
        };
        match answer {
            Ok(now) => {
                self.time.told(now);
                self.metrics.plan_batches.add((), u64::try_from(batches.len()).unwrap_or(u64::MAX));
                let all = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
                for (shard, batch) in batches {
                    if let Some(planned) = all.get(&(*shard, batch.account)) {
                        lock(planned).share.acknowledged(batch.seq);
                    }
                }
            }
            Err(error) => {
                report::failed(&self.metrics, Verb::Progress, &error);
                if let Some(suppressed) = self.missed.pass(tokio::time::Instant::now().into_std()) {
                    tracing::warn!(%error, suppressed, "a batch of progress was missed; it is sent again");
                }
            }
        }
    }

    /// What outgrew its forecast is learned from at once; the renewal says it.
    async fn learn(&self, outgrown: HashMap<Claim, u64>) {
        let calls: Vec<RenewCall> = outgrown
            .into_iter()
            .map(|(claim, output)| RenewCall {
                claim,
                subjects: Vec::new(),
                sent: true,
                life: 0,
                output_expected: None,
                outgrown: Some(output),
            })
            .collect();
        for batch in calls.chunks(crate::live::BATCH_MAX) {
            if let Err(error) = self.keeper.renew((self.time.now(), self.deadline), batch).await {
                report::failed(&self.metrics, Verb::Renew, &error);
                tracing::warn!(%error, "streams that outgrew their forecast were not learned from");
            }
        }
    }
}

impl Planned {
    fn follow(&mut self, followed: Followed) -> usize {
        if let Some(place) = self.free.pop()
            && let Some(slot) = self.streams.get_mut(place)
        {
            *slot = Some(followed);
            return place;
        }
        self.streams.push(Some(followed));
        self.streams.len() - 1
    }

    /// Tells the share of every stream; how many there are.
    fn ask(&mut self, now: Micros, outgrown: &mut HashMap<Claim, u64>) -> u64 {
        let mut count = 0;
        for followed in self.streams.iter_mut().flatten() {
            count += 1;
            let told = followed.stream.flush(now, followed.seen());
            self.share.land(now, told.landed, followed.per_output);
            self.share.come(told.coming, followed.per_output);
            if let Some(output) = told.outgrown {
                let most = outgrown.entry(followed.claim).or_default();
                *most = output.max(*most);
            }
        }
        count
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.streams.len() && self.share.is_clear()
    }
}

fn lock(planned: &Mutex<Planned>) -> MutexGuard<'_, Planned> {
    planned.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tollbook_engine_memory::{MemoryEngine, Options};
    use tollbook_ledger::{Estimator, Leg, LegReceipt, Measure, Periods, Profile, ReservationId, SubjectId};

    use super::*;

    fn call(account: u64) -> (Reserve, Receipt) {
        let account = AccountId { subject: SubjectId(account), name: 1 };
        let leg = Leg {
            account,
            measure: Measure::Tokens,
            shape: Shape::Forecast { window: 60, strict: false },
            periods: Periods::None,
            base: 0,
            per_output: 1_000,
            cap: 100,
            worst: 100,
            estimator: Estimator::Capped,
            refund_failed: false,
            limits: Vec::new(),
        };
        let (id, now) = (ReservationId(1), 1_800_000_000_000_000);
        let taken = LegReceipt {
            account,
            place: 0,
            expected: 100,
            held: 0,
            output: 100,
            ceiling: 1_000,
            posted: 0,
            held_total: 0,
            reset: 0,
            shadow_denied: false,
        };
        let profile = Profile::default();
        let reserve = Reserve { id, attempt: 0, life: 1, profile, legs: vec![leg], context: Vec::new() };
        (reserve, Receipt { id, attempt: 0, now, legs: vec![taken] })
    }

    /// Beyond the bound a call is not followed and nothing else changes; room comes when accounts are clear.
    #[tokio::test]
    async fn accounts_are_followed_up_to_a_bound() {
        let engine = MemoryEngine::open(None, Options::default()).unwrap().engine;
        let time = Arc::new(EngineTime::new(1_800_000_000_000_000));
        let metrics = Arc::new(Metrics::new());
        let pauses = (Duration::from_secs(2), Duration::from_secs(1));
        let away = Arc::new(Away::new(crate::away::AwayBounds::default(), Arc::clone(&metrics), None));
        let keeper = Keeper::Engine(Arc::new(engine), away);
        let plans = Plans::new(keeper, Arc::clone(&time), Arc::clone(&metrics), 7, pauses, 2);
        let admit = |account: u64| {
            let (reserve, receipt) = call(account);
            plans.admitted(Shard(0), &reserve, &receipt, true)
        };
        let mut followed: Vec<Plan> = (0..2).map(admit).collect();
        assert!(followed.iter().all(|plan| !plan.is_empty()));
        let dropped = admit(1);
        assert!(!dropped.is_empty(), "an account that is followed takes more calls");
        assert!(admit(2).is_empty());
        assert!(metrics.encode().contains("tollbook_plan_unfollowed_total 1"));
        // Everything has ended, and a minute later nothing of it is in a window.
        for plan in &mut followed {
            plan.end(time.now(), 0);
        }
        drop(followed);
        drop(dropped);
        plans.flush().await;
        time.told(1_800_000_000_000_000 + 200_000_000);
        plans.flush().await;
        plans.flush().await;
        let left = plans.accounts.read().unwrap().len();
        assert_eq!(left, 0, "one whose call was dropped without an end is clear too");
        assert!(!admit(2).is_empty());
    }
}
