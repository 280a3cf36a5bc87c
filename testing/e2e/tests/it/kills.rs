//! The gateway dies under load, again and again, and is started on the same folder: what was acknowledged stays, what was
//! in flight expires, and the provider's own record says the same.
//!
//! A client that has its whole answer has the proof that its call was settled, because the call ends before the last byte
//! is handed out. So only calls without a whole answer may end by expiry, and only after a kill.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::LIMIT;
use tollbook_e2e::journal::{Entry, Journal};
use tollbook_e2e::load::{self, Job, Leaves, Outcome, pause_until};
use tollbook_e2e::random::{Random, seed};
use tollbook_mock_upstream::{MockUpstream, Recorded};

const KILLS: usize = 12;
const ORDERLY_STOPS: usize = 4;
const CLIENTS: usize = 12;
/// What frees the holds of a dead gateway: one life of 2 s and the sweep that is due every second; and as much again
/// for a machine that is busy.
const FREE_LIMIT: Duration = Duration::from_secs(6);

fn configuration(upstream: &str) -> Config {
    let timeouts = json!({"first_byte": "1s", "silence": "500ms"});
    let mut config = Config::new(upstream)
        .set("/calls", json!({"door_life": "2s", "renewed_life": "2s", "renew_every": "150ms"}))
        .set("/timeouts", json!({"drain": "1s"}))
        .set("/upstreams/0/timeouts", timeouts.clone())
        .set("/upstreams/1/timeouts", timeouts);
    for (tenant, strictness) in [("soft", "soft"), ("hard", "hard")] {
        let quota = |measure: &str| {
            json!({"name": format!("{tenant} {measure}"), "measure": measure, "period": "lifetime",
                "ceiling": 1_000_000_000, "strictness": strictness})
        };
        let limits = [
            quota("requests"),
            quota("tokens"),
            json!({"measure": "tokens", "window": "60s", "ceiling": 1_000_000_000}),
            json!({"measure": "concurrency", "ceiling": 1000}),
        ];
        config = config.simple_tenant(tenant, &json!(limits));
    }
    config
}

/// `quick`: the provider takes no time, so that the gateway is mostly at work itself.
fn job(label: String, quick: bool, random: &mut Random) -> Job {
    let chat = random.chance(50);
    let stream = random.chance(60);
    let tenant = if random.chance(50) { "soft" } else { "hard" };
    let words = 1 + random.below(12);
    let every = if quick { 0 } else { random.below(40) };
    let mut generate = json!({"output_llm_tokens": words, "chunk_every_ms": every});
    let mut leaves = Leaves::AtTheEnd;
    let at = random.below(words + 1);
    match random.below(12) {
        0 => generate["error_at_chunk"] = json!(at),
        1 => generate["reset_at_chunk"] = json!(at),
        2 => generate["close_at_chunk"] = json!(at),
        3 => generate["stall_at_chunk"] = json!(at),
        4 => generate["usage"] = json!("never"),
        5 if stream => {
            let seen = usize::try_from(at).unwrap() + if chat { 1 } else { 3 };
            leaves =
                if random.chance(50) { Leaves::AfterEvents(seen) } else { Leaves::ResetAfterEvents(seen) };
        }
        6 => leaves = Leaves::BeforeTheAnswer,
        _ => {}
    }
    let (path, model) =
        if chat { ("/v1/chat/completions", CHAT_MODEL) } else { ("/v1/messages", MESSAGES_MODEL) };
    Job {
        at_ms: 0,
        label,
        path: path.to_owned(),
        api_key: secret(&format!("{tenant}-key")),
        body: json!({"model": model, "stream": stream, "max_tokens": 64,
            "messages": [{"role": "user", "content": "what is in the book?"}]}),
        script: json!({"head_after_ms": if quick { 0 } else { random.below(60) }, "answer": {"generate": generate}}),
        leaves,
    }
}

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Kill,
    Orderly,
}

/// A call, and what its client saw.
struct Called {
    job: Job,
    outcome: Outcome,
    /// The round's stop had begun when the client was through.
    until_the_stop: bool,
}

/// Everything that is known after the run.
struct World {
    calls: Vec<Called>,
    provider: Vec<Recorded>,
    journal: Journal,
    posted: BTreeMap<String, i64>,
    freed_after: Duration,
}

/// Clients call without a pause until the gateway stops; then it is started anew, and again.
fn play(rounds: usize, stop: Stop, random: &mut Random) -> World {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let mut gateway = Gateway::start(&configuration(&mock.url()));
    let (number, calls, started) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    for round in 0..rounds {
        let quick = round % 2 == 1;
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.number()).collect();
        let moment = Duration::from_millis(100 + random.below(600));
        let stopping = AtomicBool::new(false);
        let addr = gateway.addr();
        std::thread::scope(|scope| {
            for seed in seeds {
                let (number, calls, stopping) = (&number, &calls, &stopping);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut connection = None;
                    while !stopping.load(Ordering::Acquire) {
                        let label = format!("call {}", number.fetch_add(1, Ordering::Relaxed));
                        let job = job(label, quick, &mut random);
                        let outcome = load::perform(addr, &mut connection, &job, started);
                        let until_the_stop = stopping.load(Ordering::Acquire);
                        calls.lock().unwrap().push(Called { job, outcome, until_the_stop });
                    }
                });
            }
            pause_until(Instant::now() + moment);
            stopping.store(true, Ordering::Release);
            match stop {
                Stop::Kill => gateway.kill(),
                Stop::Orderly => assert!(gateway.terminate().success()),
            }
        });
        gateway.start_again();
    }
    assert!(mock.wait_until_blocking(LIMIT, |_, totals| totals.in_flight == 0));
    let restarted = Instant::now();
    let free = wait_for(FREE_LIMIT, || {
        let lines = gateway.accounts();
        lines.iter().all(|line| line.held == 0).then_some(lines)
    });
    let freed_after = restarted.elapsed();
    let lines = free.unwrap_or_else(|| panic!("something stays held: {:?}", gateway.accounts()));
    assert!(gateway.terminate().success());
    World {
        calls: calls.into_inner().unwrap(),
        provider: mock.calls(),
        journal: Journal::read(&gateway.data_dir()),
        posted: lines.into_iter().map(|line| (line.limit, line.posted)).collect(),
        freed_after,
    }
}

/// How many calls ended in which way.
#[derive(Default)]
struct Counts {
    settled: usize,
    expired: usize,
    at_the_door: usize,
    /// Charged for their input, though they never arrived.
    on_the_way: usize,
    /// Of those that expired or were given back: those whose usage the provider had sent.
    untold: usize,
}

impl World {
    fn count(&self) -> Counts {
        assert_eq!(self.journal.repeated(), Vec::<String>::new());
        assert!(self.journal.entries.iter().all(|entry| entry.unbooked == 0));
        let provider: BTreeMap<&str, &Recorded> =
            self.provider.iter().map(|call| (call.label.as_deref().unwrap(), call)).collect();
        assert_eq!(provider.len(), self.provider.len(), "a call came twice");
        let entries = self.journal.by_call("tenant");
        let mut counts = Counts::default();
        for called in &self.calls {
            let label = called.job.label.as_str();
            let found = entries.get(label).map_or(&[][..], Vec::as_slice);
            let provider = provider.get(label).copied();
            let told = provider.is_some_and(|call| call.usage_complete);
            match found {
                [] if provider.is_none() => {
                    // Neither the provider nor the book knows of it: it came too late.
                    assert!(!called.outcome.complete || called.outcome.status == 503, "{:?}", called.outcome);
                }
                [] => {
                    may_expire(called);
                    counts.at_the_door += 1;
                    counts.untold += usize::from(told);
                }
                [entry] if entry.origin == "expired" => {
                    may_expire(called);
                    expired_as_configured(entry);
                    counts.expired += 1;
                    counts.untold += usize::from(told);
                }
                [entry] if provider.is_none() => {
                    left_while_it_was_sent(called, entry);
                    counts.on_the_way += 1;
                }
                entries => {
                    equals_the_record(entries, provider.unwrap_or_else(|| panic!("never sent: {entries:?}")));
                    counts.settled += 1;
                }
            }
        }
        let known = self.calls.iter().map(|called| called.job.label.as_str());
        assert_eq!(known.filter(|label| entries.contains_key(label)).count(), entries.len());
        self.sums_are_kept();
        counts
    }

    /// What the accounts show is what the entries posted, and each request that was not given back.
    fn sums_are_kept(&self) {
        assert_eq!(self.journal.posted(), self.journal.sums);
        for tenant in ["soft", "hard"] {
            let own = || self.journal.entries.iter().filter(|entry| entry.tenant == tenant);
            let requests: i64 = own().map(|entry| entry.requests).sum();
            assert_eq!(self.posted[&format!("{tenant} requests")], requests);
            let posted: i64 = own().flat_map(|entry| &entry.posted).map(|posted| posted.amount).sum();
            assert_eq!(self.posted[&format!("{tenant} tokens")] + requests, posted);
        }
    }

    fn print(&self, how: &str, rounds: usize, seed: u64, counts: &Counts) {
        let whole = self.calls.iter().filter(|called| called.outcome.complete).count();
        let text = format!(
            "kills: seed {seed}, {rounds} {how}, {} calls, {} reached the provider, {whole} answered in whole\n\
             kills: {} settled, {} ended by expiry, {} given back at the door, {} of them with their usage sent; \
             {} were left on the way\n\
             kills: nothing held {} ms after the last start\n",
            self.calls.len(),
            self.provider.len(),
            counts.settled,
            counts.expired,
            counts.at_the_door,
            counts.untold,
            counts.on_the_way,
            self.freed_after.as_millis(),
        );
        io::stdout().write_all(text.as_bytes()).unwrap();
    }
}

/// Only a call whose end nobody was told of.
fn may_expire(called: &Called) {
    assert!(!called.outcome.complete, "its client had the whole answer: {:?}", called.outcome);
    let left = called.job.leaves != Leaves::AtTheEnd;
    assert!(called.until_the_stop || left, "it was not in flight at a kill: {:?}", called.outcome);
}

/// A client that leaves while its call is on the way to the provider: it may have arrived, so its input is charged.
fn left_while_it_was_sent(called: &Called, entry: &Entry) {
    assert_eq!(called.job.leaves, Leaves::BeforeTheAnswer, "never sent: {entry:?}");
    assert_eq!((entry.figures.as_str(), entry.ending.as_str()), ("partial", "client_gone"), "{entry:?}");
    assert_eq!((entry.input, entry.output), (entry.hold_input, 0), "{entry:?}");
}

/// A hard quota is charged what was expected, from the input up to the worst case; a soft one nothing. The request is kept.
fn expired_as_configured(entry: &Entry) {
    assert_eq!((entry.figures.as_str(), entry.ending.as_str(), entry.requests), ("expired", "expired", 1));
    let charged = entry.posted.iter().map(|posted| posted.amount).sum::<i64>() - entry.requests;
    if entry.tenant == "hard" {
        assert!((entry.hold_input..=entry.hold_worst).contains(&charged), "{entry:?}");
    } else {
        assert_eq!((charged, entry.llm_tokens()), (0, 0), "{entry:?}");
    }
}

/// To the llm_token where the provider told its usage; else by the table, which the test of endings knows.
pub(crate) fn equals_the_record(entries: &[&Entry], provider: &Recorded) {
    let (input, output) =
        entries.iter().fold((0, 0), |(input, output), entry| (input + entry.input, output + entry.output));
    let told = provider
        .reported
        .map(|told| (i64::try_from(told.input).unwrap(), i64::try_from(told.output).unwrap()));
    let last = entries.last().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.requests).sum::<i64>(), 1, "{entries:?}");
    if last.figures == "reported" {
        assert_eq!(told, Some((input, output)), "{entries:?}");
        assert!(provider.usage_complete, "{entries:?}");
    } else {
        assert!(["metered", "partial", "unknown", "nothing"].contains(&last.figures.as_str()), "{entries:?}");
        // What arrived whole is believed, unless the stream went on or the answer was lost behind its head.
        let lost = ["partial", "unknown"].contains(&last.figures.as_str());
        assert!(!provider.usage_complete || lost, "{entries:?} {provider:?}");
    }
    if last.figures == "nothing" {
        assert_eq!((input, output), (0, 0));
    }
}

#[test]
fn kills_under_load_lose_nothing_that_was_acknowledged_and_leave_nothing_held() {
    let seed = seed(7);
    let world = play(KILLS, Stop::Kill, &mut Random::new(seed));
    let counts = world.count();
    world.print("kills", KILLS, seed, &counts);
    assert!(counts.settled > 100 && counts.expired > 0 && counts.at_the_door > 0);
}

#[test]
fn without_a_kill_no_call_ends_by_expiry() {
    let seed = seed(8);
    let world = play(ORDERLY_STOPS, Stop::Orderly, &mut Random::new(seed));
    let counts = world.count();
    world.print("orderly stops", ORDERLY_STOPS, seed, &counts);
    assert!(counts.settled > 50);
    assert_eq!((counts.expired, counts.at_the_door, counts.untold), (0, 0, 0));
}
