//! Recorded traffic through the built program, judged by the provider's own record.
//!
//! The first 2,000 calls of a conversation service come from four client processes, thirty times as fast as they were
//! recorded, in both dialects, plain and streamed, for four tenants whose limits refuse a good part of them. The
//! recording has no text: each call tells the provider what it is to count, and brings about as much text as that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tollbook_e2e::client;
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, concurrency, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{LIMIT, metric};
use tollbook_e2e::journal::{Entry, Journal};
use tollbook_e2e::load::{Job, Leaves, Outcome, pause_until};
use tollbook_e2e::random::{Random, seed};
use tollbook_e2e::trace::{self, Traced};
use tollbook_mock_upstream::{Ending, MockUpstream, Recorded};

const CALLS: usize = 2000;
const FASTER: u64 = 30;
const PROCESSES: usize = 4;
const WORKERS: usize = 24;
/// Of one chunk of a stream; an llm_token takes 25 ms of recorded time.
const CHUNK_MS: u64 = 10;
const CHUNK_LLM_TOKENS: u64 = 12;
const WINDOW_S: u64 = 5;
const SAMPLE_EVERY: Duration = Duration::from_millis(40);

const TENANTS: [&str; 4] = ["rated", "narrow", "budget", "open"];
/// Nano-currency per llm_token, as the configuration has it per million.
const INPUT_NANO: u64 = 1000;
const OUTPUT_NANO: u64 = 4000;

/// What a sample of the accounts showed.
struct Sample {
    /// Engine time, microseconds: the sample was taken within this span.
    from: i64,
    to: i64,
    lines: Vec<Line>,
}

#[derive(Clone)]
struct Line {
    limit: String,
    measure: String,
    quota: bool,
    ceiling: i64,
    posted: i64,
    held: i64,
    denied: u64,
    shadow_denied: u64,
}

#[test]
fn trace_of_2000_calls_is_booked_as_the_provider_recorded_it() {
    let seed = seed(1);
    let (calls, source) = trace::first("azure_conv_2023.csv.gz", CALLS);
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let mut gateway = Gateway::start(&configuration(&mock.url()));
    let jobs = jobs(&calls, &mut Random::new(seed));
    let (outcomes, samples) = play(&gateway, &jobs);

    let idle = |totals: &tollbook_mock_upstream::Totals| totals.in_flight == 0;
    assert!(mock.wait_until_blocking(LIMIT, |_, totals| idle(totals)));
    let settled = wait_for(LIMIT, || {
        let lines = lines(&gateway);
        lines.iter().all(|line| line.held == 0).then_some(lines)
    });
    let last = settled.expect("something stays held");
    let metrics = gateway.metrics();
    assert!(gateway.terminate().success());
    let journal = Journal::read(&gateway.data_dir());

    let world = World { jobs, outcomes, provider: mock.calls(), journal, last, samples };
    world.admitted_is_what_the_provider_got();
    world.journal_is_the_providers_record();
    world.quotas_are_the_sum_of_the_journal();
    world.refusals_are_counted();
    world.no_sample_is_above_its_ceiling();
    world.overruns_are_told(&metrics);
    world.print(&source, seed);
}

fn configuration(upstream: &str) -> Config {
    let window = format!("{WINDOW_S}s");
    let rate = |name: &str, measure: &str, ceiling: u64| json!({"name": name, "measure": measure, "window": window, "ceiling": ceiling});
    let mut config = Config::new(upstream)
        .set("/models/0/output", json!({"default": 500, "max": 4096}))
        .set("/models/1/output", json!({"default": 500, "max": 4096}))
        .set("/models/0/limits", json!([concurrency(26)]))
        .set("/models/1/limits", json!([rate("messages pool", "requests", 100_000)]));
    let hard_rate = json!({"name": "narrow tokens", "measure": "tokens", "window": window, "ceiling": 110_000,
        "strictness": "hard", "hold": "worst"});
    let shadow = json!({"name": "open trial", "measure": "requests", "window": window, "ceiling": 20,
        "shadow": true});
    let limits: [Vec<Value>; 4] = [
        vec![rate("rated requests", "requests", 120)],
        vec![json!({"name": "narrow concurrency", "measure": "concurrency", "ceiling": 6}), hard_rate],
        vec![json!({"name": "budget cost", "measure": "cost", "period": "lifetime", "ceiling": "0.40"})],
        vec![rate("open tokens", "tokens", 170_000), shadow],
    ];
    for (tenant, mut limits) in TENANTS.into_iter().zip(limits) {
        // What is posted here is compared with the provider; it refuses nothing.
        for (measure, ceiling) in [("requests", "1000000"), ("tokens", "1000000000"), ("cost", "1000000")] {
            limits.push(json!({"name": format!("{tenant} sum {measure}"), "measure": measure,
                "period": "lifetime", "ceiling": ceiling, "strictness": "soft"}));
        }
        let key = |name: &str, limits: Value| {
            let id = format!("{tenant}-{name}");
            json!({"secret": secret(&id), "id": id, "limits": limits})
        };
        let few = json!([{"name": format!("{tenant} second key"), "measure": "requests", "period": "day",
            "ceiling": 90}]);
        config = config.tenant(json!({"id": tenant, "limits": limits, "projects": [
            {"id": format!("{tenant}-one"), "keys": [key("first", json!([]))]},
            {"id": format!("{tenant}-two"), "keys": [key("second", few)]}
        ]}));
    }
    config
}

fn jobs(calls: &[Traced], random: &mut Random) -> Vec<Job> {
    calls.iter().enumerate().map(|(index, call)| job(index, call, random)).collect()
}

fn job(index: usize, call: &Traced, random: &mut Random) -> Job {
    let tenant = *random.pick(&TENANTS).unwrap();
    let key = if random.chance(70) { "first" } else { "second" };
    let chat = random.chance(60);
    let stream = random.chance(60);
    // Where nothing may be exceeded the text is as long as the provider counts; elsewhere it misleads.
    let (bytes_tenths, lies) = match tenant {
        "narrow" => (40, false),
        "open" => (25 + random.below(30), random.chance(4)),
        _ => (25 + random.below(30), false),
    };
    let length = usize::try_from(call.input * bytes_tenths / 10).unwrap();
    let mut body = json!({"model": if chat { CHAT_MODEL } else { MESSAGES_MODEL }, "stream": stream,
        "messages": [{"role": "user", "content": text(length)}]});
    let cap = match random.below(4) {
        0 => call.output,
        1 => 2 * call.output,
        _ => 1024,
    };
    if !chat || random.chance(60) {
        body["max_tokens"] = json!(if lies { call.output / 2 + 1 } else { cap });
    }
    let cached = if random.chance(20) { call.input / 2 } else { 0 };
    let chunks = call.output.div_ceil(CHUNK_LLM_TOKENS);
    Job {
        at_ms: call.arrival_ms / FASTER,
        label: format!("{tenant}-{index}"),
        path: if chat { "/v1/chat/completions" } else { "/v1/messages" }.to_owned(),
        api_key: secret(&format!("{tenant}-{key}")),
        body,
        script: json!({"answer": {"generate": {
            "input_llm_tokens": call.input, "cached_llm_tokens": cached, "output_llm_tokens": call.output,
            "ignore_cap": lies, "chunks": chunks, "chunk_every_ms": CHUNK_MS
        }}}),
        leaves: Leaves::AtTheEnd,
    }
}

fn text(length: usize) -> String {
    "the book of all calls is kept here ".chars().cycle().take(length).collect()
}

/// Runs the clients; looks at the accounts as long as they run.
fn play(gateway: &Gateway, jobs: &[Job]) -> (Vec<Outcome>, Vec<Sample>) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut samples = Vec::new();
            while !done.load(Ordering::Acquire) {
                let next = Instant::now() + SAMPLE_EVERY;
                let from = wall_us();
                let lines = lines(gateway);
                samples.push(Sample { from, to: wall_us(), lines });
                pause_until(next);
            }
            samples
        });
        let program = Path::new(env!("CARGO_BIN_EXE_e2e-client"));
        let outcomes = client::run(program, &[gateway.addr()], jobs, PROCESSES, WORKERS);
        done.store(true, Ordering::Release);
        (outcomes, sampler.join().unwrap())
    })
}

fn lines(gateway: &Gateway) -> Vec<Line> {
    let page = gateway.admin_get("/admin/v1/accounts").unwrap();
    assert_eq!(page.status, 200, "{}", page.text());
    let line = |line: &Value| Line {
        limit: line["limit"].as_str().unwrap().to_owned(),
        measure: line["measure"].as_str().unwrap().to_owned(),
        quota: line["shape"].as_str().unwrap().starts_with("quota"),
        ceiling: line["ceiling"].as_i64().unwrap(),
        posted: line["posted"].as_i64().unwrap(),
        held: line["held"].as_i64().unwrap(),
        denied: line["denied"].as_u64().unwrap(),
        shadow_denied: line["shadow_denied"].as_u64().unwrap(),
    };
    page.json()["data"].as_array().unwrap().iter().map(line).collect()
}

#[allow(
    clippy::disallowed_methods,
    reason = "compared with the engine's own time, which begins with this clock"
)]
fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// Everything that is known after the run.
struct World {
    jobs: Vec<Job>,
    outcomes: Vec<Outcome>,
    provider: Vec<Recorded>,
    journal: Journal,
    last: Vec<Line>,
    samples: Vec<Sample>,
}

fn tenant_of(label: &str) -> &str {
    label.split('-').next().unwrap()
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap()
}

fn equal(entry: &Entry, call: &Recorded) {
    let used = call.generated;
    let label = &entry.end_user;
    assert_eq!(
        (entry.origin.as_str(), entry.figures.as_str(), entry.ending.as_str(), entry.requests),
        ("settled", "reported", "complete", 1),
        "{label}"
    );
    assert_eq!(
        (entry.input, entry.cached, entry.output),
        (signed(used.input), signed(used.cached), signed(used.output)),
        "{label}"
    );
    assert_eq!(entry.cost_nano, signed(used.input * INPUT_NANO + used.output * OUTPUT_NANO), "{label}");
    assert_eq!(entry.tenant, tenant_of(label));
}

impl World {
    fn admitted(&self) -> BTreeSet<&str> {
        self.outcomes.iter().filter(|outcome| outcome.status == 200).map(|o| o.label.as_str()).collect()
    }

    fn refused(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.status != 200)
    }

    fn admitted_is_what_the_provider_got(&self) {
        assert_eq!((self.jobs.len(), self.outcomes.len()), (CALLS, CALLS));
        for outcome in &self.outcomes {
            assert!(matches!(outcome.status, 200 | 402 | 429), "{outcome:?}");
            assert!(outcome.complete, "{outcome:?}");
        }
        let got: BTreeSet<&str> = self.provider.iter().filter_map(|call| call.label.as_deref()).collect();
        assert_eq!(got.len(), self.provider.len(), "the provider got a call twice, or one of nobody");
        assert_eq!(got, self.admitted());
        for call in &self.provider {
            assert_eq!((call.ending, call.status, call.usage_complete), (Ending::Complete, Some(200), true));
        }
    }

    /// To the llm_token, on both sides, and once.
    fn journal_is_the_providers_record(&self) {
        assert_eq!(self.journal.repeated(), Vec::<String>::new());
        for side in ["tenant", "pool"] {
            let entries = self.journal.by_call(side);
            assert_eq!(entries.keys().copied().collect::<BTreeSet<_>>(), self.admitted(), "{side}");
            for call in &self.provider {
                let label = call.label.as_deref().unwrap();
                let [entry] = entries[label][..] else { panic!("{label}: {:?}", entries[label]) };
                equal(entry, call);
            }
        }
        let entries = self.journal.by_call("tenant");
        for outcome in self.outcomes.iter().filter(|outcome| outcome.usage.is_some()) {
            let entry = entries[outcome.label.as_str()][0];
            let told = outcome.usage.map(|(input, output)| (signed(input), signed(output)));
            assert_eq!(told, Some((entry.input, entry.output)), "{}", outcome.label);
            assert_eq!(entry.request_id, outcome.request_id);
        }
    }

    fn quotas_are_the_sum_of_the_journal(&self) {
        for tenant in TENANTS {
            let calls =
                self.provider.iter().filter(|call| tenant_of(call.label.as_deref().unwrap()) == tenant);
            let (mut requests, mut llm_tokens, mut nano) = (0, 0, 0);
            for used in calls.map(|call| call.generated) {
                requests += 1;
                llm_tokens += used.input + used.output;
                nano += used.input * INPUT_NANO + used.output * OUTPUT_NANO;
            }
            for (measure, sum) in [("requests", requests), ("tokens", llm_tokens), ("cost", nano)] {
                let line = self.line(&format!("{tenant} sum {measure}"));
                assert_eq!(line.posted, signed(sum), "{tenant} {measure}");
            }
        }
        // The budget and the sum of cost are limits over one account.
        let budget = self.line("budget cost").posted;
        assert_eq!(budget, self.line("budget sum cost").posted);
        let quotas: i64 =
            self.last.iter().filter(|line| line.quota).map(|line| line.posted).sum::<i64>() - budget;
        assert_eq!(self.journal.posted(), self.journal.sums);
        assert_eq!(self.journal.sums.values().sum::<i64>(), quotas);
    }

    fn line(&self, limit: &str) -> &Line {
        self.last.iter().find(|line| line.limit == limit).unwrap()
    }

    /// Each refusal is one limit's, and each limit that was to refuse did.
    fn refusals_are_counted(&self) {
        let denied: BTreeMap<&str, u64> =
            self.last.iter().map(|line| (line.limit.as_str(), line.denied)).collect();
        assert_eq!(denied.values().sum::<u64>(), u64::try_from(self.refused().count()).unwrap());
        let refusing =
            ["rated requests", "narrow concurrency", "narrow tokens", "budget cost", "open tokens"];
        for limit in refusing {
            assert!(denied[limit] > 0, "{limit} refused nothing: {denied:?}");
        }
        assert_eq!(denied["open trial"], 0);
        assert!(self.line("open trial").shadow_denied > 0);
        let spent = self.refused().filter(|outcome| {
            matches!(
                (outcome.status, outcome.code.as_str()),
                (402, "billing_error") | (429, "insufficient_quota")
            )
        });
        assert!(spent.count() > 0, "no budget was spent");
        let share = 100 * self.refused().count() / CALLS;
        assert!((10..80).contains(&share), "{share} % refused");
    }

    fn no_sample_is_above_its_ceiling(&self) {
        assert!(self.samples.len() > 20, "{} samples", self.samples.len());
        for sample in &self.samples {
            for line in sample.lines.iter().filter(|line| line.limit != "open trial") {
                let above = line.posted + line.held - line.ceiling;
                let allowed = match line.measure.as_str() {
                    "requests" | "concurrency" => 0,
                    _ => self.overrun_in_window(line, sample),
                };
                assert!(above <= allowed, "{}: {above} above its ceiling, {allowed} by overruns", line.limit);
            }
        }
        // Where the truth is within the hold there is no overrun to hide behind.
        let tenant = self.journal.by_call("tenant");
        let narrow = tenant.values().flatten().filter(|entry| entry.tenant == "narrow");
        for entry in narrow {
            assert!(entry.llm_tokens() <= entry.hold_worst, "{entry:?}");
        }
    }

    /// What calls that ended within the window used above what they held there. Nothing on what holds the worst case,
    /// unless the provider itself went beyond it.
    fn overrun_in_window(&self, line: &Line, sample: &Sample) -> i64 {
        let tenant = line.limit.split(' ').next().unwrap();
        // What a quota that never ends was posted stays.
        let since = if line.quota { 0 } else { sample.from - 1_000_000 * signed(WINDOW_S + 1) };
        let recent = self.journal.entries.iter().filter(|entry| {
            entry.side == "tenant" && entry.tenant == tenant && (since..=sample.to).contains(&entry.ended_at)
        });
        let over = |entry: &Entry| match (line.limit.as_str(), line.measure.as_str()) {
            (_, "cost") => entry.overrun_cost_nano,
            ("open tokens", _) => entry.overrun_llm_tokens,
            _ => (entry.llm_tokens() - entry.hold_worst).max(0),
        };
        recent.map(over).sum()
    }

    fn overruns(&self) -> impl Iterator<Item = i64> {
        let tenant = self.journal.entries.iter().filter(|entry| entry.side == "tenant");
        tenant.map(|entry| entry.overrun_llm_tokens).filter(|over| *over > 0)
    }

    /// The metric, the journal and the provider tell the same story.
    fn overruns_are_told(&self, metrics: &str) {
        let told = metric(metrics, "tollbook_settle_overrun_llm_tokens_total", &[]);
        assert_eq!(told, Some(self.overruns().sum::<i64>().try_into().unwrap()));
        let beyond = self.journal.entries.iter().filter(|entry| entry.llm_tokens() > entry.hold_worst);
        for entry in beyond {
            assert!(entry.side == "pool" || entry.overrun_llm_tokens > 0, "not told: {entry:?}");
        }
        assert!(self.overruns().count() > 0);
    }

    fn print(&self, source: &str, seed: u64) {
        let late = self.outcomes.iter().map(|outcome| outcome.late_ms).max().unwrap();
        let took = self.outcomes.iter().map(|outcome| outcome.ended_us).max().unwrap() / 1000;
        let mut refused: BTreeMap<String, usize> = BTreeMap::new();
        for outcome in self.refused() {
            *refused.entry(format!("{} {}", outcome.status, outcome.code)).or_default() += 1;
        }
        let llm_tokens: u64 =
            self.provider.iter().map(|call| call.generated.input + call.generated.output).sum();
        let text = format!(
            "trace: {source}, seed {seed}, {FASTER} times as fast, {took} ms, latest call {late} ms late\n\
             trace: {CALLS} calls, {} admitted, refused {refused:?}\n\
             trace: {llm_tokens} llm_tokens by the provider, {} calls overran by {} llm_tokens, {} samples\n",
            self.admitted().len(),
            self.overruns().count(),
            self.overruns().sum::<i64>(),
            self.samples.len(),
        );
        io::stdout().write_all(text.as_bytes()).unwrap();
    }
}
