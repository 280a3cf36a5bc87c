//! Gateways over one book, clients that call without a pause, and a fault in the middle of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, concurrency, per_minute, quota, secret};
use tollbook_e2e::gateway::{Account, Gateway, wait_for};
use tollbook_e2e::http::{self, Connection, metric};
use tollbook_e2e::journal::Journal;
use tollbook_e2e::load::{self, Job, Leaves, Outcome, pause_until};
use tollbook_e2e::random::Random;
use tollbook_mock_upstream::MockUpstream;

use super::check::{Called, Gone, Story};
use super::servers::{Place, Servers};

const GATEWAYS: usize = 2;
const CLIENTS: usize = 8;
/// Of one verb, as configured.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// Answers of each gateway before the fault, and after it was healed.
const ENOUGH: usize = 12;
/// How long gateways may take to serve again; with a machine that does other things too.
const BACK_LIMIT: Duration = Duration::from_secs(30);
/// Until nothing is held any more. What was asked for and given up may stand as long as a life at the door: it may have
/// arrived after it was given back.
const FREE_LIMIT: Duration = Duration::from_secs(15);
/// A client's pause after it was refused.
const AFTER_REFUSAL: Duration = Duration::from_millis(10);

pub(crate) const REQUESTS_MAX: u64 = 40;
pub(crate) const LLM_TOKENS_MAX: u64 = 1_500;
pub(crate) const RATE_MAX: u64 = 20;
pub(crate) const IN_FLIGHT_MAX: u64 = 2;
const PLENTY: u64 = 1_000_000_000;
/// `victim`: whose shard's key is replaced where a fault is about that.
pub(crate) const TENANTS: [&str; 6] = ["wide", "scarce", "metered", "rated", "narrow", "victim"];
/// Who calls, by share.
const CALLERS: [&str; 10] =
    ["wide", "wide", "wide", "wide", "scarce", "metered", "rated", "narrow", "victim", "victim"];

/// One row: what happens, for how long, and what clients may see of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) inject: fn(&mut World),
    pub(crate) lasts: Duration,
    pub(crate) heal: fn(&mut World),
    /// Tenants that may be refused while it lasts, because their account cannot be read; `*`: all.
    pub(crate) refuses: &'static [&'static str],
    /// Lives are short, so that what a killed gateway held is free soon.
    pub(crate) short_lives: bool,
    /// Data are lost: rates know of the calls that were restored, and of no others.
    pub(crate) forgets_rates: bool,
}

/// The stage of one fault.
#[derive(Debug)]
pub(crate) struct World {
    mock: MockUpstream,
    pub(crate) servers: Servers,
    pub(crate) gateways: Vec<Gateway>,
    shared: TempDir,
    gone: Vec<Gone>,
    load: Arc<Load>,
    /// The key of the shard of `victim`, which keeps nobody else's accounts.
    victim: String,
}

/// What the clients share.
#[derive(Debug)]
struct Load {
    started: Instant,
    /// Where the gateways are; one that is down answers nothing.
    addresses: RwLock<Vec<SocketAddr>>,
    number: AtomicUsize,
    stops: AtomicBool,
    calls: Mutex<Vec<Called>>,
    served: [AtomicUsize; GATEWAYS],
}

/// Stops the clients, whatever happens to who holds it.
struct Running<'a>(&'a Load);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.stops.store(true, Ordering::Release);
    }
}

impl Load {
    fn new(gateways: &[Gateway]) -> Self {
        Self {
            started: Instant::now(),
            addresses: RwLock::new(gateways.iter().map(Gateway::addr).collect()),
            number: AtomicUsize::new(0),
            stops: AtomicBool::new(false),
            calls: Mutex::default(),
            served: Default::default(),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap()
    }

    /// One client, until the load stops.
    fn client(&self, seed: u64) {
        let mut random = Random::new(seed);
        let mut connections: [_; GATEWAYS] = std::array::from_fn(|_| None);
        let mut addresses = self.addresses.read().unwrap().clone();
        while !self.stops.load(Ordering::Acquire) {
            let gateway = usize::try_from(random.below(GATEWAYS as u64)).unwrap();
            let tenant = random.pick(&CALLERS).copied().unwrap();
            let address = self.addresses.read().unwrap()[gateway];
            if addresses[gateway] != address {
                (addresses[gateway], connections[gateway]) = (address, None);
            }
            let job = self.job(tenant, &mut random);
            if self.call(gateway, &mut connections[gateway], tenant, job).status != 200 {
                pause_until(Instant::now() + AFTER_REFUSAL);
            }
        }
    }

    fn call(
        &self,
        gateway: usize,
        connection: &mut Option<Connection>,
        tenant: &'static str,
        job: Job,
    ) -> Outcome {
        let address = self.addresses.read().unwrap()[gateway];
        let outcome = load::perform(address, connection, &job, self.started);
        self.calls.lock().unwrap().push(Called { job, tenant, outcome: outcome.clone(), gateway });
        if outcome.status == 200 && outcome.complete {
            self.served[gateway].fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    fn job(&self, tenant: &str, random: &mut Random) -> Job {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (chat, stream) = (random.chance(50), random.chance(60));
        let (words, every) = match tenant {
            "narrow" => (5, 20),
            "wide" | "victim" if random.chance(10) => (30, 40),
            _ => (1 + random.below(8), random.below(20)),
        };
        let leaves = if stream && tenant == "wide" && random.chance(5) {
            Leaves::AfterEvents(if chat { 1 } else { 3 })
        } else {
            Leaves::AtTheEnd
        };
        let (path, model) =
            if chat { ("/v1/chat/completions", CHAT_MODEL) } else { ("/v1/messages", MESSAGES_MODEL) };
        Job {
            at_ms: 0,
            label: format!("{tenant} {number}"),
            path: path.to_owned(),
            api_key: secret(&format!("{tenant}-key")),
            body: json!({"model": model, "stream": stream, "max_tokens": 64,
                "messages": [{"role": "user", "content": "what is in the book?"}]}),
            script: json!({"head_after_ms": random.below(10),
                "answer": {"generate": {"output_llm_tokens": words, "chunk_every_ms": every}}}),
            leaves,
        }
    }
}

impl World {
    fn start(fault: &Fault) -> Self {
        let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let servers = Servers::start(fault.place);
        let shared = tempfile::tempdir().unwrap();
        let mut config = Config::new(&mock.url())
            .set("/journal", json!(shared.path().join("journal.sqlite")))
            .set("/timeouts", json!({"drain": "2s"}))
            .set(
                "/engine",
                json!({"redis": {"url": servers.url(), "deadline": "2s", "fleet_size": GATEWAYS}}),
            );
        for model in 0..2 {
            let limits = [per_minute("requests", PLENTY), per_minute("tokens", PLENTY), concurrency(1_000)];
            config = config.set(&format!("/models/{model}/limits"), json!(limits));
        }
        // A door life is longer than any fault, so that no call of a living gateway expires.
        let lives = if fault.short_lives { ["2s", "2s", "150ms"] } else { ["7s", "60s", "2s"] };
        let [door, renewed, every] = lives;
        let calls = json!({
            "decide_within": "2s", "lost_wait": "2s",
            "door_life": door, "renewed_life": renewed, "renew_every": every,
            // The machine may be slow; the servers are not.
            "breaker": {"slow": "1800ms"},
        });
        config = config.set("/calls", calls);
        let config =
            TENANTS.iter().fold(config, |config, tenant| config.simple_tenant(tenant, &limits(tenant)));
        let gateways: Vec<Gateway> = (0..GATEWAYS).map(|_| Gateway::start(&config)).collect();
        let load = Arc::new(Load::new(&gateways));
        Self { mock, servers, gateways, shared, gone: Vec::new(), load, victim: book_of("victim") }
    }

    pub(crate) fn gateway_is_killed(&mut self, index: usize) {
        let from = self.load.now_us();
        self.gateways[index].kill();
        self.gone.push(Gone { gateway: index, from, until: u64::MAX, killed: true });
    }

    pub(crate) fn gateway_starts_again(&mut self, index: usize) {
        self.gateways[index].start_again();
        self.load.addresses.write().unwrap()[index] = self.gateways[index].addr();
        self.came_back(index);
    }

    pub(crate) fn gateway_stands_still(&mut self, index: usize) {
        let from = self.load.now_us();
        self.gateways[index].signal(Signal::STOP);
        self.gone.push(Gone { gateway: index, from, until: u64::MAX, killed: false });
    }

    pub(crate) fn gateway_goes_on(&mut self, index: usize) {
        self.gateways[index].signal(Signal::CONT);
        self.came_back(index);
    }

    fn came_back(&mut self, index: usize) {
        let now = self.load.now_us();
        let gone = self.gone.iter_mut().rfind(|gone| gone.gateway == index);
        gone.expect("it was gone").until = now;
    }

    pub(crate) fn victim_is_replaced(&mut self) {
        self.servers.key_is_replaced(&self.victim);
    }

    pub(crate) fn victim_is_given_back(&mut self) {
        self.servers.key_is_given_back(&self.victim);
    }

    fn logs(&self) -> String {
        let logs: Vec<String> = self.gateways.iter().map(Gateway::log).collect();
        logs.join("\n--- the other ---\n")
    }

    /// Waits until every gateway has served so many more.
    fn serves(&self) {
        let served = &self.load.served;
        let before: Vec<usize> = served.iter().map(|served| served.load(Ordering::Relaxed)).collect();
        let enough = || {
            let mut counts = served.iter().zip(&before);
            counts.all(|(now, then)| now.load(Ordering::Relaxed) >= then + ENOUGH).then_some(())
        };
        let has = wait_for(BACK_LIMIT, enough);
        assert!(has.is_some(), "not served: {served:?} after {before:?}\n{}", self.logs());
    }

    /// Calls until the tenant's quota is spent.
    fn is_spent(&self, tenant: &'static str) {
        let spend = |client: usize| {
            let (mut random, mut connection) = (Random::new(client as u64), None);
            let gateway = client % GATEWAYS;
            let spent = wait_for(BACK_LIMIT, || {
                let job = self.load.job(tenant, &mut random);
                let outcome = self.load.call(gateway, &mut connection, tenant, job);
                (outcome.status == 402 || outcome.code == "insufficient_quota").then_some(())
            });
            assert!(spent.is_some(), "the quota of {tenant} has no end");
        };
        http::together(CLIENTS, spend);
    }

    fn held(&self, gateway: usize) -> Option<Vec<Account>> {
        let page = self.gateways[gateway].admin_get("/admin/v1/accounts").ok()?;
        (page.status == 200).then(|| self.gateways[gateway].accounts())
    }

    /// Waits until no gateway sees anything held.
    fn is_free(&self) -> Duration {
        let began = Instant::now();
        for gateway in 0..GATEWAYS {
            let free = || self.held(gateway)?.iter().all(|line| line.held == 0).then_some(());
            if wait_for(FREE_LIMIT, free).is_none() {
                let lines = self.held(gateway).unwrap_or_default();
                let held: Vec<_> = lines.into_iter().filter(|line| line.held != 0).collect();
                panic!("stays held: {held:?}\n{}", self.logs());
            }
        }
        began.elapsed()
    }

    /// The fault in the middle of the load. From when to when calls may be refused for it.
    fn trouble(&mut self, fault: &Fault) -> (u64, u64) {
        let load = Arc::clone(&self.load);
        let _running = Running(&load);
        self.serves();
        let from = load.now_us();
        (fault.inject)(self);
        pause_until(Instant::now() + fault.lasts);
        (fault.heal)(self);
        self.serves();
        let until = load.now_us();
        self.serves();
        (from, until)
    }

    fn finish(mut self, fault: Fault, trouble: (u64, u64), freed_after: Duration) -> Story {
        let accounts = self.gateways[0].accounts();
        let spooled = |gateway: &Gateway| metric(&gateway.metrics(), "tollbook_settle_spooled_total", &[]);
        let spooled = self.gateways.iter().filter_map(spooled).sum();
        for gateway in &self.gateways {
            gateway.signal(Signal::TERM);
        }
        for gateway in &mut self.gateways {
            assert!(gateway.wait().success(), "{}", gateway.log());
        }
        Story {
            fault,
            calls: std::mem::take(&mut *self.load.calls.lock().unwrap()),
            provider: self.mock.calls(),
            journal: Journal::read(self.shared.path()),
            accounts,
            gone: self.gone,
            trouble,
            freed_after,
            left_over: self.servers.left_over(),
            spooled,
        }
    }
}

/// The key of the book of a tenant's shard.
fn book_of(tenant: &str) -> String {
    let mut crc = flate2::Crc::new();
    crc.update(tenant.as_bytes());
    format!("tb:{{{}}}:b", crc.sum() % 256)
}

fn limits(tenant: &str) -> Value {
    let (requests, llm_tokens) = match tenant {
        "scarce" => (REQUESTS_MAX, PLENTY),
        "metered" => (PLENTY, LLM_TOKENS_MAX),
        _ => (PLENTY, PLENTY),
    };
    let rate = if tenant == "rated" { RATE_MAX } else { PLENTY };
    let at_once = if tenant == "narrow" { IN_FLIGHT_MAX } else { 1_000 };
    let named = |limit: Value, name: &str| {
        let mut limit = limit;
        limit["name"] = json!(format!("{tenant} {name}"));
        limit
    };
    json!([
        named(quota("requests", "lifetime", &requests.to_string()), "requests"),
        named(quota("tokens", "lifetime", &llm_tokens.to_string()), "tokens"),
        named(per_minute("requests", rate), "rate"),
        named(per_minute("tokens", PLENTY), "llm_tokens a minute"),
        named(concurrency(at_once), "at once"),
    ])
}

/// Runs one fault on a stage of its own.
pub(crate) fn play(fault: Fault, random: &mut Random) -> Story {
    let mut world = World::start(&fault);
    let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.number()).collect();
    let load = Arc::clone(&world.load);
    let trouble = std::thread::scope(|scope| {
        for seed in seeds {
            let load = &load;
            scope.spawn(move || load.client(seed));
        }
        world.trouble(&fault)
    });
    let freed_after = world.is_free();
    for tenant in ["scarce", "metered"] {
        world.is_spent(tenant);
    }
    world.is_free();
    assert!(world.mock.wait_until_blocking(BACK_LIMIT, |_, totals| totals.in_flight == 0));
    world.finish(fault, trouble, freed_after)
}
