//! Many streams at once for a long time, while clients leave, providers fall silent and the configuration changes.
//!
//! So many streams are open at every moment; what becomes of each is drawn from the seed. Judged at the end: nothing is
//! held, every call of the provider has one entry in the journal with its figures, every reload came in force, and the
//! program's memory is as flat as its own record of ended calls allows.
//! Invariant: nothing the gateway says of itself is believed where the provider or the system can be asked.

mod calls;
mod judge;
mod memory;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollbook_mock_upstream::MockUpstream;

use crate::config::{CHAT_MODEL, Config, UPSTREAM_KEY};
use crate::gateway::{Gateway, wait_for};
use crate::http::metric;
use crate::journal::Journal;
use crate::load::pause_until;

pub use judge::Tally;
pub use memory::{Sample, Shape};

/// The tenant of every call.
const TENANT: &str = "acme";
/// The budget of llm_tokens that every call is charged to.
const BUDGET: &str = "soak budget";
/// A provider whose streams are read on after their clients left.
const DRAINED: &str = "drained";
/// How long the provider may be silent before the gateway ends a stream.
const SILENCE: Duration = Duration::from_secs(3);
/// How long the end of the last stream, and of everything held, is waited for.
const REST_LIMIT: Duration = Duration::from_mins(3);
/// Files that a process may have open: two sockets per stream, and room.
const FILES_PER_STREAM: u64 = 4;
const FILES_MORE: u64 = 1024;

/// What is run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub streams: usize,
    pub length: Duration,
    /// Not judged by its memory.
    pub warm_up: Duration,
    pub reload_every: Duration,
    /// Content chunks of a stream, from … to.
    pub chunks: (u64, u64),
    pub chunk_every: Duration,
    pub seed: u64,
}

impl Plan {
    /// As issue by issue it is to be shown: minutes, thousands of streams.
    pub fn long(length: Duration, streams: usize, seed: u64) -> Self {
        let warm_up = length / 5;
        let (reload_every, chunk_every) = (Duration::from_secs(5), Duration::from_millis(700));
        Self { streams, length, warm_up, reload_every, chunks: (15, 60), chunk_every, seed }
    }

    /// Short enough for every run of the tests.
    pub fn short(seed: u64) -> Self {
        Self {
            streams: 200,
            length: Duration::from_secs(20),
            warm_up: Duration::from_secs(5),
            reload_every: Duration::from_secs(2),
            chunks: (5, 25),
            chunk_every: Duration::from_millis(200),
            seed,
        }
    }
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Report {
    pub plan: Plan,
    pub samples: Vec<Sample>,
    pub shape: Shape,
    pub tally: Tally,
    pub reloads: u64,
    /// Configurations that came in force, by the gateway's count.
    pub generations: u64,
    /// Everything that is not as it must be.
    pub faults: Vec<String>,
}

/// Runs a plan; `say` is told how it goes.
pub fn run(plan: Plan, mut say: impl FnMut(&str)) -> Report {
    raise_file_limit(plan.streams);
    let mock = start(MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))));
    let mut gateway = Gateway::start(&configuration(&mock.url(), 0));
    let pid = gateway.pid().unwrap_or_default();
    let stop = Arc::new(AtomicBool::new(false));
    let clients = {
        let (addr, stop) = (gateway.addr(), Arc::clone(&stop));
        std::thread::spawn(move || calls::run(addr, plan, &stop))
    };
    let (mut samples, mut reloads) = (Vec::new(), 0_u64);
    let started = Instant::now();
    let (mut next_sample, mut next_reload) = (started, started + plan.reload_every);
    while started.elapsed() < plan.length {
        let sample = memory::sample(pid, started.elapsed(), &gateway.metrics());
        if sample.at.as_secs().is_multiple_of(10) {
            say(&sample.line());
        }
        samples.push(sample);
        if Instant::now() >= next_reload {
            reloads += 1;
            gateway.replace_config(&configuration(&mock.url(), reloads));
            next_reload += plan.reload_every;
        }
        next_sample += Duration::from_secs(1);
        pause_until(next_sample);
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes = clients.join().unwrap_or_default();
    say(&format!("{} calls were made; waiting for the last to settle", outcomes.len()));
    let mut faults = at_rest(&gateway);
    let settled = wait_for(REST_LIMIT, || (gateway.generation() > reloads).then_some(()));
    if settled.is_none() {
        faults.push(format!("{reloads} reloads, but generation {}", gateway.generation()));
    }
    let (generations, posted) = (gateway.generation(), posted(&gateway));
    if !gateway.terminate().success() {
        faults.push("the gateway did not stop in good order".to_owned());
    }
    let journal = Journal::read(&gateway.data_dir());
    let tally = judge::judge(&outcomes, &mock.calls_at_rest(), &journal, posted, &mut faults);
    let shape = Shape::of(&samples, plan.warm_up);
    faults.extend(shape.fault());
    faults.extend(memory::too_few(&samples, plan));
    Report { plan, samples, shape, tally, reloads, generations, faults }
}

/// The configuration after so many changes: ceilings, prices, keys and time limits move, what calls need stays.
fn configuration(upstream: &str, change: u64) -> Config {
    let odd = change % 2;
    let timeouts = json!({"silence": format!("{}ms", SILENCE.as_millis()), "idle": format!("{}s", 15 + odd)});
    let drained = json!({"name": DRAINED, "dialect": "openai", "base_url": format!("{upstream}/v1"),
        "api_key": UPSTREAM_KEY, "retries": 0, "drains": true, "timeouts": timeouts});
    let model = json!({"name": DRAINED, "upstream": DRAINED, "upstream_model": "mock-drained", "context": 128_000,
        "output": {"default": 64, "max": 4096}, "price": {"input": "1.00", "output": format!("{}.00", 4 + odd)}});
    let limits = json!([
        {"name": BUDGET, "measure": "tokens", "period": "lifetime", "ceiling": 1_000_000_000_000_u64 + change},
        {"measure": "requests", "window": "60s", "ceiling": 1_000_000 + odd},
        {"measure": "concurrency", "ceiling": 1_000_000},
    ]);
    let config = Config::new(upstream)
        .set("/upstreams/0/timeouts", timeouts.clone())
        .set("/upstreams/1/timeouts", timeouts)
        .push("/upstreams", drained)
        .push("/models", model)
        .simple_tenant(TENANT, &limits);
    if odd == 1 { config.simple_tenant("sometimes", &json!([])) } else { config }
}

/// Nothing is held and nothing waits, within the limit; else what is.
fn at_rest(gateway: &Gateway) -> Vec<String> {
    let left = || {
        let page = gateway.admin_get("/admin/v1/accounts").map(|answer| answer.json()).unwrap_or_default();
        let lines = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        let held = |line: &Value| line.get("held").and_then(Value::as_i64);
        let mut left: Vec<String> = lines
            .iter()
            .filter(|line| held(line) != Some(0))
            .map(|line| format!("still held: {line}"))
            .collect();
        let metrics = gateway.metrics();
        for name in
            ["tollbook_calls_streams_open", "tollbook_settle_queue_depth", "tollbook_settle_spool_bytes"]
        {
            if let Some(count) = metric(&metrics, name, &[]).filter(|count| *count > 0) {
                left.push(format!("{name} is {count} at rest"));
            }
        }
        if lines.is_empty() {
            left.push("the operator's page of accounts is empty".to_owned());
        }
        left
    };
    match wait_for(REST_LIMIT, || left().is_empty().then_some(())) {
        Some(()) => Vec::new(),
        None => left(),
    }
}

/// What the budget says was used.
fn posted(gateway: &Gateway) -> Option<i64> {
    let page = gateway.admin_get("/admin/v1/accounts").ok()?.json();
    let lines = page.get("data")?.as_array()?;
    lines.iter().find(|line| line.get("limit").is_some_and(|name| name == BUDGET))?.get("posted")?.as_i64()
}

fn models() -> [(&'static str, &'static str); 3] {
    [
        ("/v1/chat/completions", CHAT_MODEL),
        ("/v1/chat/completions", DRAINED),
        ("/v1/messages", crate::config::MESSAGES_MODEL),
    ]
}

/// So that the program and its clients may open a socket for each stream and each side.
fn raise_file_limit(streams: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let streams = u64::try_from(streams).unwrap_or(u64::MAX);
    let needed = streams.saturating_mul(FILES_PER_STREAM).saturating_add(FILES_MORE);
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < needed) {
        let current = now.maximum.map_or(needed, |most| most.min(needed));
        // Where it is refused, connections will fail and the report will say so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: now.maximum });
    }
}

#[allow(clippy::panic, reason = "test code: a panic is a failed test")]
fn start(mock: std::io::Result<MockUpstream>) -> MockUpstream {
    mock.unwrap_or_else(|error| panic!("no provider: {error}"))
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { streams, length, seed, .. } = self.plan;
        writeln!(f, "{streams} streams for {} s, seed {seed}", length.as_secs())?;
        writeln!(f, "{}", self.tally)?;
        writeln!(f, "reloads: {}, configurations in force: {}", self.reloads, self.generations)?;
        writeln!(f, "{}", self.shape)?;
        if self.faults.is_empty() {
            return write!(f, "as it must be");
        }
        for fault in self.faults.iter().take(40) {
            writeln!(f, "FAULT: {fault}")?;
        }
        write!(f, "{} faults", self.faults.len())
    }
}
