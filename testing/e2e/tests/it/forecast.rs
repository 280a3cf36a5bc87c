//! Recorded traffic through the built program in real time, beside what `tollbook simulate` says of the same piece.
//!
//! The simulator replays the piece against the real ledger on virtual time and writes its decisions; the provider then
//! streams each call at the pace that the simulator drew for it. Both lists are judged here in the same way: how much of
//! the limit really landed. Once through one gateway, once through four that share a book in Redis. One minute by default;
//! `TOLLBOOK_TRACE_MINUTES=10` plays ten.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tollbook_e2e::client;
use tollbook_e2e::config::{CHAT_MODEL, Config, secret};
use tollbook_e2e::gateway::{Gateway, program};
use tollbook_e2e::load::{Job, Leaves, Outcome};
use tollbook_e2e::trace::{self, Traced};
use tollbook_mock_upstream::MockUpstream;
use tollbook_redis_world::Plan;

/// Client processes; where there are four gateways, each has one to itself.
const PROCESSES: usize = 4;
const GATEWAYS: usize = 4;
const WORKERS: usize = 96;
/// The demand of the piece is so many tenths of the limit.
const LOAD_TENTHS: u64 = 15;
/// A busy part of the recording: one call is a small part of the limit.
const FROM_MINUTE: u64 = 22;
const MINUTE_US: u64 = 60_000_000;
/// What an OpenAI model is taken to make of plain text.
const LLM_TOKENS_PER_1000_BYTES: u64 = 270;
/// Two points of utilisation, by which the two may differ.
const POINTS: u64 = 200;

/// One admitted call, as it lands: input at the door, output evenly over a span. Microseconds.
struct Landed {
    comes: u64,
    first: u64,
    ends: u64,
    input: u64,
    output: u64,
}

impl Landed {
    /// llm_tokens that have landed by a time.
    fn by(&self, now: u64) -> u64 {
        let input = if self.comes <= now { self.input } else { 0 };
        let span = self.ends.saturating_sub(self.first).max(1);
        input + self.output * now.saturating_sub(self.first).min(span) / span
    }

    fn within(&self, from: u64, to: u64) -> u64 {
        // What came at the very start is in the first minute.
        self.by(to) - if from == 0 { 0 } else { self.by(from) }
    }
}

/// Landed in the last minute by the limit, in hundredths of a percent: the mean over every second from the end of the
/// second minute on, or where there are no more, at the end of the first.
fn utilisation(calls: &[Landed], limit: u64, minutes: u64) -> u64 {
    let from = if minutes > 2 { 2 * MINUTE_US } else { MINUTE_US };
    let seconds: Vec<u64> = (from..=minutes * MINUTE_US).step_by(1_000_000).collect();
    let landed = |now: u64| calls.iter().map(|call| call.within(now - MINUTE_US, now)).sum::<u64>();
    let sum: u64 = seconds.iter().map(|now| landed(*now)).sum();
    sum * 10_000 / limit / u64::try_from(seconds.len()).unwrap()
}

/// A part of the recording that is played, and the limit that it is played against.
struct Piece {
    calls: Vec<Traced>,
    source: String,
    minutes: u64,
    limit: u64,
}

impl Piece {
    fn cut() -> Self {
        let minutes: u64 =
            std::env::var("TOLLBOOK_TRACE_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        let (calls, source) = trace::first("azure_conv_2023.csv.gz", 13_000);
        let begins = FROM_MINUTE * 60_000;
        let moved = calls.into_iter().filter(|call| call.arrival_ms >= begins);
        let moved = moved.map(|call| Traced { arrival_ms: call.arrival_ms - begins, ..call });
        let calls: Vec<Traced> = moved.take_while(|call| call.arrival_ms < minutes * 60_000).collect();
        let demand: u64 = calls.iter().map(|call| call.input + call.output).sum();
        Self { calls, source, minutes, limit: demand * 10 / LOAD_TENTHS / minutes }
    }

    fn configuration(&self, upstream: &str) -> Config {
        let limits = json!([{"name": "minute", "measure": "tokens", "window": "60s", "ceiling": self.limit}]);
        Config::new(upstream)
            .set("/models/0/output", json!({"default": 500, "max": 8192}))
            .simple_tenant("acme", &limits)
    }

    /// Plays it through the gateways; what landed must be what the simulator says of as many.
    fn play(&self, gateways: Vec<Gateway>) {
        let folder = tempfile::tempdir().unwrap();
        let decisions = simulated(folder.path(), self, gateways.len());
        let expected = utilisation(&landed_of(&decisions), self.limit, self.minutes);
        let jobs: Vec<Job> = self
            .calls
            .iter()
            .zip(&decisions)
            .enumerate()
            .map(|(number, (call, decision))| job(number, call, decision))
            .collect();
        let program = Path::new(env!("CARGO_BIN_EXE_e2e-client"));
        let addrs: Vec<SocketAddr> = gateways.iter().map(Gateway::addr).collect();
        let outcomes = client::run(program, &addrs, &jobs, PROCESSES, WORKERS);
        for mut gateway in gateways {
            assert!(gateway.terminate().success());
        }

        let served = |outcome: &&Outcome| outcome.status == 200;
        let refused = outcomes.iter().filter(|outcome| outcome.status == 429).count();
        let real: Vec<Landed> =
            outcomes.iter().filter(served).map(|outcome| seen(outcome, &self.calls)).collect();
        let others: Vec<_> =
            outcomes.iter().filter(|outcome| ![200, 429].contains(&outcome.status)).collect();
        let late = outcomes.iter().map(|outcome| outcome.late_ms).max().unwrap_or(0);
        let found = utilisation(&real, self.limit, self.minutes);
        let admitted = decisions.iter().filter(|decision| decision.admitted).count();
        let text = format!(
            "{}, {} min, {} calls through {}, limit {}: utilisation {found} of 10,000, simulated {expected}; \
             admitted {}, simulated {admitted}; latest call {late} ms\n",
            self.source,
            self.minutes,
            self.calls.len(),
            addrs.len(),
            self.limit,
            real.len()
        );
        io::stdout().write_all(text.as_bytes()).unwrap();
        assert!(others.is_empty(), "every call is served or refused: {others:?}");
        assert!(refused > self.calls.len() / 10, "the limit is reached: {refused} refused");
        assert!(
            found.abs_diff(expected) <= POINTS,
            "utilisation {found} of 10,000, the simulator says {expected}"
        );
    }
}

#[test]
fn a_minute_of_trace_uses_the_limit_as_the_simulator_says() {
    let piece = Piece::cut();
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    piece.play(vec![Gateway::start(&piece.configuration(&mock.url()))]);
}

#[test]
fn a_minute_of_trace_through_four_gateways_that_share_a_book() {
    let piece = Piece::cut();
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    // Nothing dies here: what the server writes down is no part of what is measured.
    let redis = Plan::redis().start();
    let shared = tempfile::tempdir().unwrap();
    let config = piece
        .configuration(&mock.url())
        .set("/journal", json!(shared.path().join("journal.sqlite")))
        .set("/engine", json!({"redis": {"url": redis.url(), "deadline": "5s", "fleet_size": GATEWAYS}}))
        .set("/calls", json!({"lost_wait": "5s", "breaker": {"slow": "2s"}}));
    piece.play((0..GATEWAYS).map(|_| Gateway::start(&config)).collect());
}

/// One line of the simulator's decisions.
struct Decision {
    admitted: bool,
    comes: u64,
    first: u64,
    pace_us: u64,
    input: u64,
    output: u64,
}

fn simulated(folder: &Path, piece: &Piece, gateways: usize) -> Vec<Decision> {
    let mut text = String::from("arrival_s,input_tokens,output_tokens\n");
    for call in &piece.calls {
        let (seconds, millis) = (call.arrival_ms / 1000, call.arrival_ms % 1000);
        writeln!(text, "{seconds}.{millis:03},{},{}", call.input, call.output).unwrap();
    }
    let (trace, out) = (folder.join("piece.csv"), folder.join("decisions.csv"));
    std::fs::write(&trace, text).unwrap();
    let run = Command::new(program())
        .arg("simulate")
        .arg(&trace)
        .args(["--limit", &piece.limit.to_string(), "--booking", "forecast"])
        .args(["--gateways", &gateways.to_string(), "--decisions"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let decisions = std::fs::read_to_string(&out).unwrap();
    let mut lines = decisions.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines.map(|line| decision(&names, line)).collect()
}

fn decision(names: &[&str], line: &str) -> Decision {
    let fields: Vec<&str> = line.split(',').collect();
    let field = |name: &str| fields[names.iter().position(|other| *other == name).unwrap()];
    let micros = |name: &str| {
        let (seconds, fraction) = field(name).split_once('.').unwrap();
        assert_eq!(fraction.len(), 6, "microseconds: {line}");
        seconds.parse::<u64>().unwrap() * 1_000_000 + fraction.parse::<u64>().unwrap()
    };
    Decision {
        admitted: field("admitted") == "1",
        comes: micros("arrival_s"),
        first: micros("start_s"),
        pace_us: micros("pace_s"),
        input: field("input_tokens").parse().unwrap(),
        output: field("output_tokens").parse().unwrap(),
    }
}

fn landed_of(decisions: &[Decision]) -> Vec<Landed> {
    let admitted = decisions.iter().filter(|decision| decision.admitted);
    admitted
        .map(|decision| Landed {
            comes: decision.comes,
            first: decision.first,
            ends: decision.first + decision.output * decision.pace_us,
            input: decision.input,
            output: decision.output,
        })
        .collect()
}

fn job(number: usize, call: &Traced, decision: &Decision) -> Job {
    // The recording has no text: as much of it as the gateway takes for that many llm_tokens before it has learned.
    let bytes = usize::try_from(call.input * 1000 / LLM_TOKENS_PER_1000_BYTES).unwrap();
    let text: String = "the book of all calls is kept here ".chars().cycle().take(bytes).collect();
    let mut body = json!({"model": CHAT_MODEL, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": text}]});
    if number.is_multiple_of(2) {
        body["max_tokens"] = json!(4096);
    }
    // A chunk is what comes in about a tenth of a second; the last llm_token lands when the simulator says.
    let chunks = (call.output * decision.pace_us / 100_000).max(1);
    let every_ms = call.output * decision.pace_us / chunks / 1000;
    Job {
        at_ms: call.arrival_ms,
        label: number.to_string(),
        path: "/v1/chat/completions".to_owned(),
        api_key: secret("acme-key"),
        body,
        script: json!({"answer": {"generate": {
            "input_llm_tokens": call.input, "output_llm_tokens": call.output,
            "chunks": chunks, "chunk_every_ms": every_ms, "first_chunk_after_ms": 300
        }}}),
        leaves: Leaves::AtTheEnd,
    }
}

/// A served call as it landed.
fn seen(outcome: &Outcome, piece: &[Traced]) -> Landed {
    let call = piece[outcome.label.parse::<usize>().unwrap()];
    let usage: Option<(u64, u64)> = outcome.usage;
    assert_eq!(usage, Some((call.input, call.output)), "{}", outcome.label);
    let first = outcome.begun_us + 300_000;
    Landed {
        comes: outcome.begun_us,
        first,
        ends: outcome.ended_us.max(first),
        input: call.input,
        output: call.output,
    }
}

#[test]
fn what_landed_is_judged_by_the_second() {
    let call = |comes: u64| Landed { comes, first: comes, ends: comes + 10_000_000, input: 50, output: 100 };
    let limit = 100;
    assert_eq!(utilisation(&[call(1_000_000)], limit, 1), 15_000);
    assert_eq!(utilisation(&[call(55_000_000)], limit, 1), 10_000);
    assert_eq!(utilisation(&[call(0)], limit, 1), 15_000);
    // From the end of the second minute on it is seen for as long as it is in the minute.
    // 31 seconds see the input, and the output as it comes: 1,550 and 2,550 llm_tokens over 61 seconds.
    assert_eq!(utilisation(&[call(150_000_000)], limit, 3), 4_100 * 10_000 / 100 / 61);
}
