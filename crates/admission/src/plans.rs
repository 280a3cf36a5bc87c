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

use tollbook_engine::{Claim, Engine, ProgressCall, RenewCall, Shard};
use tollbook_ledger::stream::{Seen, Share, Stream};
use tollbook_ledger::units::PROGRESS_ACCOUNTS_MAX;
use tollbook_ledger::{AccountId, Micros, Progress, Receipt, Reserve, Shape};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Verb;

use crate::time::EngineTime;
use crate::{report, verb};

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

    /// The call has ended with so much output in all; the next flush takes back what is left of its plan.
    pub(crate) fn end(&self, now: Micros, output: u64) {
        for (planned, place) in &self.places {
            let mut planned = lock(planned);
            let Some(followed) = planned.streams.get_mut(*place).and_then(Option::take) else { continue };
            planned.free.push(*place);
            for ramp in followed.stream.end(now, followed.seen(), output) {
                planned.share.land(now, ramp, followed.per_output);
            }
        }
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("accounts", &self.places.len()).finish_non_exhaustive()
    }
}

/// All plans of a gateway.
pub(crate) struct Plans {
    engine: Arc<dyn Engine>,
    time: Arc<EngineTime>,
    metrics: Arc<Metrics>,
    /// Names this gateway's batches; random at each start.
    gateway: u64,
    /// Pause between two flushes.
    every: Duration,
    deadline: Duration,
    accounts: RwLock<Accounts>,
}

type Accounts = HashMap<(Shard, AccountId), Arc<Mutex<Planned>>>;

/// What one flush has to say to the engine.
#[derive(Default)]
struct Said {
    batches: Vec<(Shard, Progress)>,
    outgrown: HashMap<Claim, u64>,
}

impl Plans {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        time: Arc<EngineTime>,
        metrics: Arc<Metrics>,
        gateway: u64,
        (every, deadline): (Duration, Duration),
    ) -> Self {
        Self { engine, time, metrics, gateway, every, deadline, accounts: RwLock::default() }
    }

    /// Follows a call that the engine admitted, on each of its forecast accounts.
    pub(crate) fn admitted(&self, shard: Shard, reserve: &Reserve, receipt: &Receipt, streams: bool) -> Plan {
        let mut plan = Plan::default();
        let claim = Claim { shard, id: receipt.id, attempt: receipt.attempt };
        for (leg, taken) in reserve.legs.iter().zip(&receipt.legs) {
            let Shape::Forecast { window, .. } = leg.shape else { continue };
            let planned = self.of((shard, leg.account), window, receipt.now);
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

    fn of(&self, name: (Shard, AccountId), window: u8, now: Micros) -> Arc<Mutex<Planned>> {
        if let Some(planned) = self.accounts.read().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Arc::clone(planned);
        }
        let mut all = self.accounts.write().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let (shard, account) = name;
            let share = Share::new(account, window, now);
            Arc::new(Mutex::new(Planned { shard, share, streams: Vec::new(), free: Vec::new() }))
        };
        Arc::clone(all.entry(name).or_insert_with(new))
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
            all.retain(|_, planned| Arc::strong_count(planned) > 1 || !lock(planned).is_idle());
        }
        self.metrics.plan_streams.set((), followed);
        said
    }

    async fn send(&self, batches: &[(Shard, Progress)]) {
        let Some(&(shard, _)) = batches.first() else { return };
        let call = ProgressCall { shard, batches: batches.iter().map(|(_, batch)| batch.clone()).collect() };
        match verb::within(self.deadline, self.engine.progress(&call)).await {
            Ok(reply) => {
                self.time.told(reply.now);
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
                tracing::warn!(%error, "a batch of progress was missed; it is sent again");
            }
        }
    }

    /// What outgrew its forecast is learned from at once; the renewal says it.
    async fn learn(&self, outgrown: HashMap<Claim, u64>) {
        let calls: Vec<RenewCall> = outgrown
            .into_iter()
            .map(|(claim, output)| RenewCall {
                claim,
                sent: true,
                life: 0,
                output_expected: None,
                outgrown: Some(output),
            })
            .collect();
        for batch in calls.chunks(crate::live::BATCH_MAX) {
            if let Err(error) = verb::within(self.deadline, self.engine.renew(batch)).await {
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
