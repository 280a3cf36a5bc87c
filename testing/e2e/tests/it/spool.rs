//! The book's log finds no room, calls end all the same, and what ended is kept in the spool: from outside, by a limit on
//! the size of files, which the log meets long before the spool does, as it would a disk with little room.
//!
//! Calls of another key fill what room there is; from then on the engine takes nothing, and a queue of one posting sends
//! nearly everything that ends to the spool.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{LIMIT, metric};
use tollbook_e2e::journal::{Entry, Journal};
use tollbook_e2e::load::{self, Job, Leaves, Outcome};
use tollbook_mock_upstream::{MockUpstream, Recorded};

/// Calls that are in flight when the engine goes away.
const IN_FLIGHT: usize = 40;
/// Postings that may wait in memory, and one whose try is just under way: what a kill may take.
const IN_MEMORY: usize = 2;
/// Far more calls than there is room for.
const FILLERS_MAX: usize = 5_000;
/// So many are made before the calls in flight begin, which should not have to wait long for the rest.
const FILLERS_BEFORE: usize = 180;
/// Makes the filler's records longer: it stands in them several times.
const FILLER: &str = "filler-0123456789-0123456789-0123456789-0123456789-012345678";
const FILLERS_AT_ONCE: usize = 16;
/// A hold's life, the sweep that is due every second, and as much again for a machine that is busy.
const FREE_LIMIT: Duration = Duration::from_secs(30);

/// A tenant, so that all calls are in one shard; what the filler's key is limited by makes its records long.
fn configuration(upstream: &str, fillers: &str) -> Config {
    let filler =
        json!({"name": "fillers", "dialect": "openai", "base_url": format!("{fillers}/v1"), "retries": 0});
    let model = json!({"name": FILLER, "upstream": "fillers", "upstream_model": "mock-small", "context": 128_000,
        "output": {"default": 1, "max": 64}});
    let long: Vec<Value> = (1..=28)
        .map(|n| json!({"name": format!("filler {n}"), "measure": "requests", "window": format!("{n}s"), "ceiling": 1_000_000_000}))
        .collect();
    let quota = |measure: &str| json!({"name": format!("spool {measure}"), "measure": measure, "period": "lifetime", "ceiling": 1_000_000_000});
    let tenant = json!({"id": "spool", "limits": [quota("requests"), quota("tokens")], "projects": [
        {"id": "spool-project", "keys": [
            {"id": "spool-key", "secret": secret("spool-key")},
            {"id": "filler-key", "secret": secret("filler-key"), "limits": long},
        ]}
    ]});
    Config::new(upstream)
        .set("/calls", json!({"settle_queue_max": 1, "renewed_life": "8s", "renew_every": "1s"}))
        .push("/upstreams", filler)
        .push("/models", model)
        .tenant(tenant)
}

fn job(label: String, key: &str, model: &str, stream: bool, words: u64) -> Job {
    let path = if model == MESSAGES_MODEL { "/v1/messages" } else { "/v1/chat/completions" };
    Job {
        at_ms: 0,
        label,
        path: path.to_owned(),
        api_key: secret(key),
        body: json!({"model": model, "stream": stream, "max_tokens": 64,
            "messages": [{"role": "user", "content": "what is in the book?"}]}),
        script: json!({"answer": {"generate": {"output_llm_tokens": words}}}),
        leaves: Leaves::AtTheEnd,
    }
}

/// The gateway with a full log, and a spool that holds what ended.
struct Spooling {
    gateway: Gateway,
    providers: [MockUpstream; 2],
    outcomes: Vec<Outcome>,
}

impl Spooling {
    fn start() -> Self {
        let mock = || MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let providers = [mock(), mock()];
        let gateway = Gateway::start(&configuration(&providers[0].url(), &providers[1].url()));
        let mut outcomes = fill(&gateway, 0..FILLERS_BEFORE);
        assert!(outcomes.iter().all(|outcome| outcome.status == 200), "{outcomes:?}");
        providers[0].hold_until_released();
        let jobs: Vec<Job> = (0..IN_FLIGHT)
            .map(|n| {
                let model = if n % 2 == 0 { CHAT_MODEL } else { MESSAGES_MODEL };
                job(format!("call {n}"), "spool-key", model, n % 3 == 0, 1 + n as u64)
            })
            .collect();
        let addr = gateway.addr();
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| load::run(addr, &jobs, IN_FLIGHT));
            let arrived = |totals: u64| totals >= IN_FLIGHT as u64;
            assert!(providers[0].wait_until_blocking(LIMIT, |_, totals| arrived(totals.in_flight)));
            limit_files(&gateway, Some(ROOM));
            outcomes.extend(fill(&gateway, FILLERS_BEFORE..FILLERS_MAX));
            assert_eq!(gateway.get("/readyz", "").unwrap().status, 503);
            // Calls end while the engine takes nothing: no client notices.
            providers[0].release();
            let ended = calls.join().unwrap();
            assert!(
                ended.iter().all(|outcome| (outcome.status, outcome.complete) == (200, true)),
                "{ended:?}"
            );
            outcomes.extend(ended);
        });
        outcomes.retain(|outcome| outcome.status != 503);
        let spooled = || {
            (count(&gateway, "tollbook_settle_spooled_total") >= (IN_FLIGHT - IN_MEMORY) as u64).then_some(())
        };
        assert!(wait_for(LIMIT, spooled).is_some(), "{}", gateway.metrics());
        assert!(fs::metadata(gateway.data_dir().join("settle.spool")).unwrap().len() > 0);
        assert_eq!(gateway.get("/readyz", "").unwrap().status, 503, "it is still away");
        Self { gateway, providers, outcomes }
    }

    /// The disk has room again.
    fn heal(&self) {
        limit_files(&self.gateway, None);
    }

    /// Waits until nothing is held and the spool is empty; then what the journal says is what the providers wrote down.
    /// Returns how many calls ended by expiry alone.
    fn settles(mut self) -> usize {
        let spool = self.gateway.data_dir().join("settle.spool");
        let rest = || {
            let held = self.gateway.accounts().iter().map(|line| line.held).sum::<i64>();
            (held == 0 && fs::metadata(&spool).unwrap().len() == 0).then_some(())
        };
        assert!(wait_for(FREE_LIMIT, rest).is_some(), "{:?}", self.gateway.accounts());
        let answer = self.gateway.post(
            "/v1/chat/completions",
            &secret("spool-key"),
            &job(String::new(), "", CHAT_MODEL, false, 1).body,
        );
        assert_eq!(answer.unwrap().status, 200, "calls are taken again");
        let posted = self.gateway.accounts();
        assert!(self.gateway.terminate().success());
        let journal = Journal::read(&self.gateway.data_dir());
        assert_eq!(journal.repeated(), Vec::<String>::new());
        assert_eq!(journal.posted(), journal.sums);
        let requests: i64 = journal.entries.iter().filter(|e| e.side == "tenant").map(|e| e.requests).sum();
        let posted = posted.iter().find(|line| line.limit == "spool requests");
        assert_eq!(posted.map(|line| line.posted), Some(requests));
        let records: Vec<Recorded> = self.providers.iter().flat_map(MockUpstream::calls).collect();
        let entries = journal.by_call("tenant");
        let provider: BTreeMap<&str, &Recorded> =
            records.iter().filter_map(|call| Some((call.label.as_deref()?, call))).collect();
        assert_eq!(
            self.outcomes.len(),
            provider.len(),
            "every call that was admitted reached a provider once"
        );
        // The hold of a call whose end nobody knows expires; one that was not renewed since it was sent leaves no entry.
        let of = |label: &str| entries.get(label).map_or(&[][..], Vec::as_slice);
        let lost: Vec<&str> = provider
            .keys()
            .copied()
            .filter(|label| of(label).iter().all(|e| e.origin == "expired"))
            .collect();
        for (label, call) in &provider {
            if !lost.contains(label) {
                equals_the_record(of(label), call);
            }
        }
        lost.len()
    }
}

/// To the llm_token, also where a hold ran out first and was corrected.
fn equals_the_record(entries: &[&Entry], call: &Recorded) {
    let sum = |of: fn(&Entry) -> i64| entries.iter().map(|entry| of(entry)).sum::<i64>();
    let told = call.reported.unwrap();
    let told = (i64::try_from(told.input).unwrap(), i64::try_from(told.output).unwrap());
    assert_eq!(
        (sum(|e| e.input), sum(|e| e.output), sum(|e| e.requests)),
        (told.0, told.1, 1),
        "{entries:?} {call:?}"
    );
    assert!(entries.iter().all(|entry| entry.unbooked == 0), "{entries:?}");
}

/// Makes these calls, or as many of them as there is room for.
fn fill(gateway: &Gateway, numbers: Range<usize>) -> Vec<Outcome> {
    let (numbers, outcomes, begun) = (Mutex::new(numbers), Mutex::new(Vec::new()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..FILLERS_AT_ONCE {
            scope.spawn(|| {
                let mut connection = None;
                let next = || numbers.lock().unwrap().next();
                while let Some(n) = next() {
                    let job = job(format!("filler {n}"), "filler-key", FILLER, false, 1);
                    let outcome = load::perform(gateway.addr(), &mut connection, &job, begun);
                    let status = outcome.status;
                    outcomes.lock().unwrap().push(outcome);
                    if status == 503 {
                        return;
                    }
                    assert_eq!(status, 200);
                }
            });
        }
    });
    outcomes.into_inner().unwrap()
}

/// The log is brought into memory in stretches of 256 KiB. What lies in the first one has its place; from then on the
/// disk has none, whichever file grows beyond this.
const ROOM: u64 = 511 << 10;

fn limit_files(gateway: &Gateway, current: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(gateway.pid().unwrap()).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
}

fn count(gateway: &Gateway, name: &str) -> u64 {
    metric(&gateway.metrics(), name, &[]).unwrap_or_default()
}

#[test]
fn what_was_spooled_is_settled_once_the_log_has_room_again() {
    let world = Spooling::start();
    world.heal();
    assert_eq!(world.settles(), 0);
}

#[test]
fn a_stop_with_a_full_log_loses_nothing() {
    let mut world = Spooling::start();
    assert!(world.gateway.terminate().success());
    world.gateway.start_again();
    assert_eq!(world.settles(), 0);
}

/// Only what waited in memory may end by expiry.
#[test]
fn a_kill_with_a_full_log_loses_nothing_that_was_spooled() {
    let mut world = Spooling::start();
    world.gateway.kill();
    world.gateway.start_again();
    let lost = world.settles();
    assert!(lost <= IN_MEMORY, "{lost} calls were not settled");
}
