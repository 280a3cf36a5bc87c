//! One run: gateways, jobs and troubles on virtual time; then healing, and what must be true afterwards.
//!
//! Safety first: the bank's auditor judges every verb while everything is in disorder. Then liveness: troubles stop, the
//! gateways finish, what nobody ended expires with one sweep, and nothing is held by anybody.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollbook_engine_memory::Clock;
use tollbook_engine_suite::random::Random;

use crate::bank::{Bank, Setup};
use crate::call::{self, Fate};
use crate::config::{self, Config};
use crate::gateway::{Disk, Gateway};
use crate::jobs::{self, Jobs};
use crate::knobs::{Knobs, Part, Plan, Trouble, stream};
use crate::real;
use crate::stats::Stats;
use crate::wire::Wire;

/// A place where a gateway runs: its disk stays when it dies.
#[derive(Debug)]
pub(crate) struct Host {
    running: Mutex<Option<Arc<Gateway>>>,
    disk: Disk,
    random: Mutex<Random>,
}

/// Everything in one run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) bank: Arc<Bank>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) hosts: Vec<Host>,
    /// The limits as they are in force; gateways learn of changes one by one.
    pub(crate) config: Mutex<Arc<Config>>,
}

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    pub stats: Stats,
    pub failure: Option<Failure>,
    /// Every verb, if they were written down.
    pub trace: Vec<String>,
}

/// The first difference between the engine and the auditor's books, or what else went wrong.
#[derive(Debug)]
pub struct Failure {
    pub finding: String,
}

/// Longest that healing may take on virtual time.
const HEALING_MAX: Duration = Duration::from_secs(900);
/// Everything that nobody renews is due after this long.
const ALL_LIVES: Duration = Duration::from_secs(61);

/// Runs one seed on a runtime of its own whose clock stands still when nobody waits for it.
pub fn run(knobs: &Knobs, is_traced: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) if knobs.is_real => runtime.block_on(real::drive(knobs, is_traced)),
        Ok(runtime) => runtime.block_on(drive(knobs, is_traced)),
        Err(error) => failed(format!("no runtime: {error}")),
    }
}

pub(crate) fn failed(finding: String) -> Report {
    Report { stats: Stats::default(), failure: Some(Failure { finding }), trace: Vec::new() }
}

async fn drive(knobs: &Knobs, is_traced: bool) -> Report {
    let plan = Plan::draw(knobs);
    let setup = Setup {
        start: plan.start,
        shards: plan.shards,
        has_log: plan.has_log,
        journal_records_max: plan.journal_records_max,
        is_traced,
    };
    let bank = match Bank::open(setup) {
        Ok(bank) => Arc::new(bank),
        Err(error) => return failed(error),
    };
    let world = Arc::new(World::new(knobs.seed, plan, Arc::clone(&bank)));
    for host in &world.hosts {
        world.boot(host);
    }
    let jobs = Jobs::start(&world, knobs.seed);
    world.let_calls_arrive(&mut stream(knobs.seed, Part::Arrivals)).await;
    world.heal(jobs).await;
    let stats = bank.stats(|stats| *stats);
    let failure = bank.finding().map(|finding| Failure { finding });
    Report { stats, failure, trace: bank.trace() }
}

impl World {
    fn new(seed: u64, plan: Plan, bank: Arc<Bank>) -> Self {
        let config = Arc::new(config::draw(&mut stream(seed, Part::Config)));
        let wire = Arc::new(Wire::new(Arc::clone(&bank), &plan, stream(seed, Part::Network)));
        let host = |n| Host {
            running: Mutex::new(None),
            disk: Disk::default(),
            random: Mutex::new(stream(seed, Part::Gateway(n))),
        };
        let hosts = (0..plan.gateways).map(host).collect();
        Self { plan, bank, wire, hosts, config: Mutex::new(config) }
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a gateway where none runs.
    pub(crate) fn boot(&self, host: &Host) {
        let mut running = host.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return;
        }
        let prefix = host.random.lock().unwrap_or_else(PoisonError::into_inner).draw();
        let queue_max = self.plan.settle_queue_max;
        let (wire, disk) = (Arc::clone(&self.wire), Arc::clone(&host.disk));
        // A gateway does not start before the engine has told it the time.
        let now = self.bank.now().map_or_else(|_| self.bank.clock.now(), |reply| reply.now);
        *running = Some(Gateway::start(wire, self.config(), disk, queue_max, prefix, now));
    }

    /// Calls in bursts, on any gateway that runs.
    async fn let_calls_arrive(&self, random: &mut Random) {
        let mut left = self.plan.calls;
        while left > 0 && !self.bank.has_failed() {
            let burst = (1 + random.below(12)).min(left);
            left -= burst;
            for _ in 0..burst {
                let fate = Fate::draw(random, &self.config());
                let is_careless = random.one_in(12) && self.plan.has(Trouble::Conflict);
                let at = usize::try_from(random.below(self.hosts.len() as u64)).unwrap_or(0);
                let Some(gateway) = self.hosts[at].gateway() else { continue };
                let call = Arc::clone(&gateway);
                if is_careless {
                    gateway.spawn(call::careless(call, fate));
                } else {
                    gateway.spawn(call::live(call, fate));
                }
                if random.one_in(3) {
                    sleep(Duration::from_millis(random.below(200))).await;
                }
            }
            let pause = *random.of(&[50, 400, 2_000, 6_000, 15_000]);
            sleep(Duration::from_millis(random.below(pause))).await;
        }
    }

    /// Ends all troubles, lets everything finish, and looks whether it has.
    async fn heal(self: &Arc<Self>, mut jobs: Jobs) {
        jobs.end_troubles();
        self.wire.heal();
        self.bank.set_away(false);
        for host in &self.hosts {
            self.boot(host);
            if let Some(gateway) = host.gateway() {
                gateway.is_stalled.store(false, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let began = Instant::now();
        while self.unfinished() != (0, 0) && !self.bank.has_failed() {
            if began.elapsed() > HEALING_MAX {
                self.bank
                    .fail(format!("healed, and (calls, postings) {:?} are unfinished", self.unfinished()));
            }
            sleep(Duration::from_secs(1)).await;
        }
        // Requests that were still on their way, and lives that nobody renews.
        sleep(Duration::from_secs(100)).await;
        self.must_be(jobs::sweep(&self.bank).map(|_| ()));
        sleep(ALL_LIVES).await;
        self.must_be(jobs::sweep(&self.bank).map(|_| ()));
        jobs.end();
        self.must_be(self.bank.auditor(|auditor| auditor.nothing_is_held()));
        while jobs::drain(&self.bank, false).is_ok_and(|drained| drained > 0) {}
        self.must_be(self.bank.auditor(|auditor| auditor.journal.is_complete()));
        self.must_be(self.bank.auditor(|auditor| auditor.quotas_are_their_journal()));
        self.bank.tick();
        for host in &self.hosts {
            host.crash();
        }
    }

    fn must_be(&self, checked: Result<(), String>) {
        if let Err(finding) = checked {
            self.bank.fail(format!("after healing: {finding}"));
        }
    }

    /// Calls in flight and postings not acknowledged, on all gateways.
    fn unfinished(&self) -> (usize, usize) {
        let gateways = self.hosts.iter().filter_map(Host::gateway);
        gateways.map(|gateway| gateway.unfinished()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Host {
    pub(crate) fn gateway(&self) -> Option<Arc<Gateway>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The gateway dies; true if one ran.
    pub(crate) fn crash(&self) -> bool {
        let gateway = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(gateway) = &gateway {
            gateway.crash();
        }
        gateway.is_some()
    }
}
