//! Runs with the real admission and the real jobs, over the same wire, engine and auditor as the model.
//!
//! Beside the auditor the provider judges: what it told of a call is in the journal, to the llm_token, unless the gateway
//! died with it. The real code draws its ids from the system and takes some turns as its runtime chooses, so a seed makes
//! nearly the same run, not always the same.

mod call;
mod catalog;
mod gateway;
mod port;
mod store;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollbook_admission::Snapshot;
use tollbook_engine::Engine;
use tollbook_engine_suite::random::Random;
use tollbook_jobs::{Drain, Sweep};
use tollbook_store::Journal;
use tollbook_telemetry::Metrics;

use crate::bank::{Bank, Setup};
use crate::config::S;
use crate::knobs::{Knobs, Part, Plan, Trouble, stream};
use crate::wire::Wire;
use crate::world::{Failure, Report, failed};
use call::Fate;
use gateway::{Gateway, directory};
use port::Port;
use store::{Kept, Record};

/// Longest that healing may take on virtual time.
const HEALING_MAX: Duration = Duration::from_secs(600);

/// Everything in one run.
struct Real {
    plan: Plan,
    bank: Arc<Bank>,
    root: TempDir,
    hosts: Vec<Host>,
    catalog: Mutex<catalog::Plan>,
    snapshot: Mutex<Arc<Snapshot>>,
    kept: Arc<Kept>,
    record: Arc<Record>,
    is_healing: AtomicBool,
}

/// A place where a gateway runs.
struct Host {
    running: Mutex<Option<Arc<Gateway>>>,
    /// How many there have been; each has a directory of its own.
    booted: Mutex<u64>,
    random: Mutex<Random>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) async fn drive(knobs: &Knobs, is_traced: bool) -> Report {
    match Real::new(knobs, is_traced) {
        Ok(real) => Arc::new(real).all(knobs.seed).await,
        Err(finding) => failed(finding),
    }
}

impl Real {
    fn new(knobs: &Knobs, is_traced: bool) -> Result<Self, String> {
        let plan = Plan::draw(knobs);
        let bank = Arc::new(Bank::open(Setup {
            start: plan.start,
            shards: plan.shards,
            has_log: plan.has_log,
            journal_records_max: plan.journal_records_max,
            is_traced,
        })?);
        let catalog = catalog::Plan::draw(&mut stream(knobs.seed, Part::Config));
        let snapshot = Mutex::new(catalog.snapshot(1)?);
        let host = |n| Host {
            running: Mutex::new(None),
            booted: Mutex::new(0),
            random: Mutex::new(stream(knobs.seed, Part::Gateway(n))),
        };
        let hosts = (0..plan.gateways).map(host).collect();
        let root = TempDir::new().map_err(|error| error.to_string())?;
        let catalog = Mutex::new(catalog);
        let (kept, record) = (Arc::default(), Arc::default());
        Ok(Self {
            plan,
            bank,
            root,
            hosts,
            catalog,
            snapshot,
            kept,
            record,
            is_healing: AtomicBool::new(false),
        })
    }

    async fn all(self: Arc<Self>, seed: u64) -> Report {
        for at in 0..self.hosts.len() {
            self.boot(at).await;
        }
        let mut jobs = JoinSet::new();
        let chaos = stream(seed, Part::Jobs);
        jobs.spawn(Arc::clone(&self).jobs(chaos));
        let mut troubles = JoinSet::new();
        let mut chaos = stream(seed, Part::Chaos);
        for trouble in Trouble::ALL {
            let random = Random::new(chaos.draw());
            if self.plan.has(*trouble) {
                troubles.spawn(Arc::clone(&self).make(*trouble, random));
            }
        }
        self.let_calls_arrive(&mut stream(seed, Part::Arrivals)).await;
        // Whatever is under way comes to its own end.
        self.is_healing.store(true, Ordering::Relaxed);
        while troubles.join_next().await.is_some() {}
        self.heal(jobs).await;
        let failure = self.bank.finding().map(|finding| Failure { finding });
        Report { stats: self.bank.stats(|stats| *stats), failure, trace: self.bank.trace() }
    }

    /// Starts a gateway where none runs, over what the one before has left on its disk.
    async fn boot(&self, at: usize) {
        let host = &self.hosts[at];
        if lock(&host.running).is_some() {
            return;
        }
        let (number, random) = {
            let mut booted = lock(&host.booted);
            *booted += 1;
            (*booted, Random::new(lock(&host.random).draw()))
        };
        let wire = Arc::new(Wire::new(Arc::clone(&self.bank), &self.plan, random));
        let Ok(spool) = directory(self.root.path(), at, number) else {
            return self.bank.fail("no directory for a spool");
        };
        let queue_max = self.plan.settle_queue_max;
        for _ in 0..600 {
            let snapshot = Arc::clone(&lock(&self.snapshot));
            if let Some(gateway) = Gateway::start(&wire, snapshot, &spool, queue_max).await {
                *lock(&host.running) = Some(gateway);
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
        self.bank.fail("a gateway could not start for ten minutes");
    }

    /// What the next gateway of a host finds on its disk: the spool as it is now.
    fn keep_disk(&self, at: usize) {
        let number = *lock(&self.hosts[at].booted);
        let copied = directory(self.root.path(), at, number).and_then(|last| {
            let next = directory(self.root.path(), at, number + 1)?;
            std::fs::copy(last.join(SPOOL), next.join(SPOOL))
        });
        if let Err(error) = copied {
            self.bank.fail(format!("the spool could not be copied: {error}"));
        }
    }

    /// Sweep and drain as the server runs them, now and then with a store that forgets to answer.
    async fn jobs(self: Arc<Self>, mut random: Random) {
        let wire = Arc::new(Wire::new(Arc::clone(&self.bank), &self.plan, Random::new(0)));
        wire.heal();
        let engine: Arc<dyn Engine> = Arc::new(Port(wire));
        let metrics = Arc::new(Metrics::new());
        let journal = Arc::clone(&self.kept) as Arc<dyn Journal>;
        let sweep = Sweep::new(Arc::clone(&engine), Arc::clone(&metrics));
        let drain = Drain::new(engine, journal, metrics);
        for round in 0_u64.. {
            sleep(Duration::from_millis(700)).await;
            drop(sweep.once().await);
            if round % 4 == 0 {
                let is_torn = self.plan.has(Trouble::Torn) && random.one_in(4);
                self.kept.forgets_to_answer.store(is_torn, Ordering::Relaxed);
                drop(drain.once().await);
                self.bank.tick();
            }
        }
    }

    async fn let_calls_arrive(&self, random: &mut Random) {
        let mut left = self.plan.calls;
        while left > 0 && !self.bank.has_failed() {
            let burst = (1 + random.below(12)).min(left);
            for _ in 0..burst {
                left -= 1;
                let fate = Fate::draw(random);
                let at = usize::try_from(random.below(self.hosts.len() as u64)).unwrap_or(0);
                let Some(gateway) = lock(&self.hosts[at].running).clone() else { continue };
                if gateway.is_stopping.load(Ordering::Relaxed) {
                    continue;
                }
                let request_id: Arc<str> = Arc::from(format!("req_{left}"));
                let record = Arc::clone(&self.record);
                gateway.spawn(call::live(Arc::clone(&gateway), fate, request_id, record));
            }
            let pause = *random.of(&[50, 400, 2_000, 6_000, 15_000]);
            sleep(Duration::from_millis(random.below(pause))).await;
        }
    }

    /// One kind of trouble, again and again; those that the wire or the jobs make are not made here.
    async fn make(self: Arc<Self>, trouble: Trouble, mut random: Random) {
        loop {
            sleep(Duration::from_millis(500 + random.below(20_000))).await;
            if self.is_healing.load(Ordering::Relaxed) {
                return;
            }
            let at = usize::try_from(random.below(self.hosts.len() as u64)).unwrap_or(0);
            let bank = &self.bank;
            match trouble {
                Trouble::Away => {
                    bank.set_away(true);
                    sleep(Duration::from_millis(random.below(12_000))).await;
                    bank.set_away(false);
                }
                Trouble::Restart => bank.restart(random.one_in(2)),
                Trouble::Crash => self.crash(at, &mut random).await,
                Trouble::Stop => self.stop(at).await,
                Trouble::Forward => {
                    bank.step_forward(random.below(600 * S).min(self.plan.jump_max()));
                }
                Trouble::Back => {
                    let by = *random.of(&[S, 70 * S, 3600 * S]);
                    bank.step_back(random.below(by));
                }
                Trouble::Limits => self.change_limits(&mut random),
                _ => return,
            }
        }
    }

    async fn crash(&self, at: usize, random: &mut Random) {
        let gateway = lock(&self.hosts[at].running).take();
        if let Some(gateway) = gateway {
            self.bank.note(|| format!("gateway {at} dies"));
            self.bank.stats(|stats| stats.gateway_crashes += 1);
            gateway.die();
            self.keep_disk(at);
            gateway.bury();
        }
        sleep(Duration::from_millis(random.below(30_000))).await;
        self.boot(at).await;
    }

    async fn stop(&self, at: usize) {
        let gateway = lock(&self.hosts[at].running).clone();
        if let Some(gateway) = gateway {
            gateway.stop().await;
            if gateway.has_died.load(Ordering::Relaxed) {
                return;
            }
            self.bank.note(|| format!("gateway {at} has stopped"));
            self.bank.stats(|stats| stats.gateway_stops += 1);
            self.keep_disk(at);
            *lock(&self.hosts[at].running) = None;
        }
        self.boot(at).await;
    }

    /// Stops every gateway in good order, and starts it again as long as it leaves outcomes on its disk.
    async fn stop_until_nothing_waits(&self) {
        for (at, host) in self.hosts.iter().enumerate() {
            for round in 0.. {
                sleep(Duration::from_secs(5)).await;
                let gateway = lock(&host.running).take();
                if let Some(gateway) = gateway {
                    gateway.stop().await;
                }
                self.keep_disk(at);
                if self.bank.has_failed() || self.spooled(at) == 0 {
                    break;
                }
                if round > 50 {
                    return self.bank.fail("a spool is never emptied");
                }
                self.boot(at).await;
                if let Some(gateway) = lock(&host.running).as_ref() {
                    gateway.heal();
                }
            }
        }
    }

    /// Bytes that the last gateway of a host left in its spool.
    fn spooled(&self, at: usize) -> u64 {
        let number = *lock(&self.hosts[at].booted);
        let path = directory(self.root.path(), at, number).map(|path| path.join(SPOOL));
        path.and_then(std::fs::metadata).map_or(0, |metadata| metadata.len())
    }

    fn change_limits(&self, random: &mut Random) {
        let mut catalog = lock(&self.catalog);
        catalog.change(random);
        let generation = lock(&self.snapshot).generation + 1;
        let Ok(snapshot) = catalog.snapshot(generation) else { return };
        *lock(&self.snapshot) = Arc::clone(&snapshot);
        self.bank.stats(|stats| stats.ceilings_changed += 1);
        for host in &self.hosts {
            if let Some(gateway) = lock(&host.running).as_ref() {
                gateway.admission().replace(Arc::clone(&snapshot));
            }
        }
    }

    /// Calls that have not ended.
    fn live(&self) -> usize {
        let running = self.hosts.iter().filter_map(|host| lock(&host.running).clone());
        running.map(|gateway| gateway.live()).sum()
    }

    /// Ends all troubles, stops every gateway in good order, and looks at what is left.
    async fn heal(&self, mut jobs: JoinSet<()>) {
        self.bank.set_away(false);
        for (at, host) in self.hosts.iter().enumerate() {
            self.boot(at).await;
            if let Some(gateway) = lock(&host.running).as_ref() {
                gateway.heal();
            }
        }
        let began = Instant::now();
        while self.live() > 0 && !self.bank.has_failed() {
            if began.elapsed() > HEALING_MAX {
                self.bank.fail(format!("healed, and {} calls do not end", self.live()));
            }
            sleep(Duration::from_secs(1)).await;
        }
        self.stop_until_nothing_waits().await;
        // Messages on their way, lives that nobody renews, and a drain or two.
        sleep(Duration::from_secs(200)).await;
        jobs.shutdown().await;
        let checks = self.bank.auditor(|auditor| {
            auditor.nothing_is_held()?;
            auditor.journal.is_complete()?;
            auditor.quotas_are_their_journal()?;
            self.kept.judge(&self.record, &mut auditor.stats)
        });
        if let Err(finding) = checks {
            self.bank.fail(format!("after healing: {finding}"));
        }
    }
}

/// The spool's file in a gateway's directory.
const SPOOL: &str = "settle.spool";
