//! Every way a call can end (design, section 5), through the built program: what the journal says of it, what its quota
//! was charged, and that nothing stays held.
//!
//! Each way is tried for a tenant whose quota holds what is expected, and for one whose quota holds the worst case.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, UPSTREAM_KEY, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{Connection, LIMIT};
use tollbook_e2e::journal::{Entry, Journal};
use tollbook_e2e::load::{self, Job, Leaves};
use tollbook_mock_upstream::{MockUpstream, Recorded};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const TENANTS: [&str; 2] = ["expected", "worst"];
/// Content chunks of a whole answer, one word and one llm_token each.
const CHUNKS: u64 = 5;
const CAP: u64 = 64;
/// Later than any time limit of the configuration.
const NEVER_MS: u64 = 30_000;

/// What the table says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charged {
    /// No entry, and the request is given back.
    Nothing,
    /// The request is kept, nothing else.
    Failed,
    Reported,
    /// The input as counted, and what so many words count.
    Metered(u64),
    /// The input as the provider told at the start, and what so many words count.
    MeteredWithInput(u64),
    /// The same with a tenth more, at most the cap.
    Partial(u64),
    /// The input as the provider told at the start, and the rest as `Partial`.
    PartialWithInput(u64),
    /// What is expected or held.
    Unknown,
}

/// A call, its name, and what must become of it.
struct Case {
    name: String,
    chat: bool,
    model: &'static str,
    body: Value,
    script: Value,
    leaves: Leaves,
    charged: Charged,
    ending: &'static str,
}

fn case(name: &str, chat: bool, stream: bool, charged: Charged, ending: &'static str) -> Case {
    let form =
        format!("{}-{}", if chat { "chat" } else { "messages" }, if stream { "stream" } else { "plain" });
    let model = if chat { CHAT_MODEL } else { MESSAGES_MODEL };
    Case {
        name: format!("{name}-{form}"),
        chat,
        model,
        body: json!({"model": model, "stream": stream, "max_tokens": CAP,
            "messages": [{"role": "user", "content": "what is in the book?"}]}),
        script: json!({"answer": {"generate": {"output_llm_tokens": CHUNKS}}}),
        leaves: Leaves::AtTheEnd,
        charged,
        ending,
    }
}

impl Case {
    fn generate(mut self, more: &Value) -> Self {
        let generate = self.script.pointer_mut("/answer/generate").and_then(Value::as_object_mut).unwrap();
        generate.extend(more.as_object().unwrap().clone());
        self
    }

    /// The provider tells no usage.
    fn untold(self) -> Self {
        self.generate(&json!({"usage": "never"}))
    }

    fn script(mut self, script: Value) -> Self {
        self.script = script;
        self
    }

    fn leaves(mut self, leaves: Leaves) -> Self {
        self.leaves = leaves;
        self
    }

    fn model(mut self, model: &'static str) -> Self {
        self.model = model;
        self.body["model"] = json!(model);
        self
    }

    fn cap(mut self, cap: u64) -> Self {
        self.body["max_tokens"] = json!(cap);
        self
    }

    fn label(&self, tenant: &str) -> String {
        format!("{tenant} {}", self.name)
    }

    fn job(&self, tenant: &str) -> Job {
        Job {
            at_ms: 0,
            label: self.label(tenant),
            path: if self.chat { CHAT } else { MESSAGES }.to_owned(),
            api_key: secret(&format!("{tenant}-key")),
            body: self.body.clone(),
            script: self.script.clone(),
            leaves: self.leaves,
        }
    }
}

/// Events of a stream before its first content chunk.
fn opening(chat: bool) -> usize {
    if chat { 1 } else { 3 }
}

/// Answers that come to an end of their own.
fn whole() -> Vec<Case> {
    let mut cases = Vec::new();
    for (chat, stream) in [(true, false), (true, true), (false, false), (false, true)] {
        let case = |name: &str, charged, ending| case(name, chat, stream, charged, ending);
        cases.push(case("complete", Charged::Reported, "complete"));
        let cached = json!({"input_llm_tokens": 900, "cached_llm_tokens": 300, "reasoning_llm_tokens": 2});
        cases.push(case("cached", Charged::Reported, "complete").generate(&cached));
        for words in 0..=CHUNKS {
            let some = json!({"output_llm_tokens": words});
            let name = format!("untold{words}");
            cases.push(case(&name, Charged::Metered(words), "complete").untold().generate(&some));
        }
        let odd = json!({"usage": "negative"});
        let start = !chat && stream;
        let counted = if start { Charged::MeteredWithInput(CHUNKS) } else { Charged::Metered(CHUNKS) };
        cases.push(case("negative", counted, "complete").generate(&odd));
        for status in [400, 429, 500, 503] {
            let error = json!({"status": status, "answer": {"error": {"message": "no"}}});
            cases.push(case(&format!("error{status}"), Charged::Failed, "upstream_error").script(error));
        }
    }
    let zero = json!({"usage": {"odd": {"prompt_tokens": 0, "completion_tokens": 0}}});
    cases.push(case("zero", true, true, Charged::Reported, "complete").generate(&zero));
    let absurd = json!({"usage": {"odd": {"prompt_tokens": 1_000_000_000, "completion_tokens": 5}}});
    cases.push(case("absurd", true, true, Charged::Metered(CHUNKS), "complete").generate(&absurd));
    let first = json!({"error_at_chunk": 0});
    cases.push(case("error-first", true, true, Charged::Failed, "upstream_error").untold().generate(&first));
    cases.push(case("error-first", false, true, Charged::Failed, "upstream_error").untold().generate(&first));
    cases.push(case("dead", true, false, Charged::Nothing, "never_sent").model("dead"));
    cases
}

/// Streams that are cut, at every chunk.
fn cut_streams() -> Vec<Case> {
    let mut cases = Vec::new();
    for (chat, words) in
        [true, false].into_iter().flat_map(|chat| (0..=CHUNKS).map(move |words| (chat, words)))
    {
        let partial = Charged::Partial(words);
        let case = |name: &str, ending| case(&format!("{name}{words}"), chat, true, partial, ending).untold();
        let at = |how: &str| json!({(format!("{how}_at_chunk")): words});
        cases.push(case("reset", "reset").generate(&at("reset")));
        cases.push(case("closed", "reset").generate(&at("close")));
        cases.push(case("silent", "timeout").generate(&at("stall")));
        if words > 0 {
            cases.push(case("error", "upstream_error").generate(&at("error")));
        }
        let seen = opening(chat) + usize::try_from(words).unwrap();
        let stalls = at("stall");
        cases.push(case("gone", "client_gone").generate(&stalls).leaves(Leaves::AfterEvents(seen)));
        cases.push(case("gone-hard", "client_gone").generate(&stalls).leaves(Leaves::ResetAfterEvents(seen)));
        if !chat {
            // The provider tells the input at the start.
            let mut told = case("told", "reset").generate(&at("reset")).generate(&json!({"usage": "auto"}));
            told.charged = Charged::PartialWithInput(words);
            cases.push(told);
        }
    }
    let short = case("capped", true, true, Charged::Partial(CHUNKS), "reset").untold();
    cases.push(short.cap(CHUNKS).generate(&json!({"reset_at_chunk": CHUNKS})));
    let late = json!({"head_after_ms": NEVER_MS});
    for chat in [true, false] {
        let drained = case("drained", chat, true, Charged::Reported, "client_gone");
        let drained = drained.generate(&json!({"chunk_every_ms": 10}));
        if chat {
            cases.push(drained.model("drained").leaves(Leaves::AfterEvents(opening(chat) + 1)));
        }
        cases.push(case("no-head", chat, true, Charged::Partial(0), "timeout").script(late.clone()));
    }
    cases
}

/// Answers in one piece that are cut.
fn cut_buffered() -> Vec<Case> {
    let mut cases = Vec::new();
    for chat in [true, false] {
        let case = |name: &str, charged, ending| case(name, chat, false, charged, ending);
        for at in [0, 1] {
            let reset = json!({"reset_at_chunk": at});
            cases.push(case(&format!("reset{at}"), Charged::Unknown, "reset").generate(&reset));
        }
        let late = json!({"head_after_ms": NEVER_MS});
        cases.push(case("no-head", Charged::Unknown, "timeout").script(late));
        let silent = json!({"stall_at_chunk": 1});
        cases.push(case("silent", Charged::Unknown, "timeout").generate(&silent));
    }
    cases
}

fn configuration(upstream: &str) -> Config {
    // A port where nobody listens: it was free a moment ago.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let timeouts = json!({"first_byte": "400ms", "silence": "400ms"});
    let another = |name: &str, address: &str, drains: bool| {
        json!({"name": name, "dialect": "openai", "base_url": format!("{address}/v1"), "api_key": UPSTREAM_KEY,
            "retries": 0, "drains": drains})
    };
    let model = |name: &str| {
        json!({"name": name, "upstream": name, "upstream_model": "mock-small", "context": 128_000,
            "price": {"input": "1.00", "output": "4.00"}})
    };
    let mut config = Config::new(upstream)
        .set("/upstreams/0/timeouts", timeouts.clone())
        .set("/upstreams/1/timeouts", timeouts)
        .push("/upstreams", another("dead", &format!("http://{dead}"), false))
        .push("/upstreams", another("drained", upstream, true))
        .push("/models", model("dead"))
        .push("/models", model("drained"));
    for tenant in TENANTS {
        let quota = json!({"name": format!("{tenant} tokens"), "measure": "tokens", "period": "lifetime",
            "ceiling": 1_000_000_000, "strictness": if tenant == "worst" { "hard" } else { "soft" }});
        let requests = json!({"name": format!("{tenant} requests"), "measure": "requests", "window": "1h",
            "ceiling": 1_000_000});
        config = config.simple_tenant(tenant, &json!([quota, requests]));
    }
    config
}

#[test]
fn every_ending_is_charged_by_the_table_and_leaves_nothing_held() {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let mut gateway = Gateway::start(&configuration(&mock.url()));
    let mut cases: Vec<Case> = [whole(), cut_streams(), cut_buffered()].into_iter().flatten().collect();
    let jobs: Vec<Job> = cases.iter().flat_map(|case| TENANTS.map(|tenant| case.job(tenant))).collect();
    load::run(gateway.addr(), &jobs, 16);
    cases.extend(client_leaves_before_the_answer(&mock, &gateway));

    let held = |gateway: &Gateway| {
        let page = gateway.admin_get("/admin/v1/accounts").unwrap().json();
        page["data"].as_array().unwrap().iter().map(|line| line["held"].as_i64().unwrap()).sum::<i64>()
    };
    assert!(wait_for(LIMIT, || (held(&gateway) == 0).then_some(())).is_some(), "something stays held");
    let posted = posted(&gateway);
    assert!(gateway.terminate().success());
    let journal = Journal::read(&gateway.data_dir());
    assert_eq!(journal.repeated(), Vec::<String>::new());
    let calls = mock.calls();
    let provider: BTreeMap<&str, &Recorded> =
        calls.iter().filter_map(|call| Some((call.label.as_deref()?, call))).collect();
    assert_eq!(provider.len(), calls.len(), "a call came twice");

    let entries = journal.by_call("tenant");
    let mut wrong = Vec::new();
    for case in &cases {
        for tenant in TENANTS {
            let label = case.label(tenant);
            let found = entries.get(label.as_str()).map_or(&[][..], Vec::as_slice);
            if let Err(why) = judge(case, tenant, found, &entries, provider.get(label.as_str()).copied()) {
                wrong.push(format!("{label}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let charged = cases.iter().filter(|case| case.charged != Charged::Nothing).count();
    assert_eq!(entries.values().map(Vec::len).sum::<usize>(), charged * TENANTS.len());
    for tenant in TENANTS {
        let own = || journal.entries.iter().filter(|entry| entry.tenant == tenant);
        let llm_tokens: i64 = own().flat_map(|entry| &entry.posted).map(|posted| posted.amount).sum();
        assert_eq!(posted[&format!("{tenant} tokens")], llm_tokens);
        assert_eq!(posted[&format!("{tenant} requests")], own().map(|entry| entry.requests).sum::<i64>());
    }
}

fn posted(gateway: &Gateway) -> BTreeMap<String, i64> {
    let page = gateway.admin_get("/admin/v1/accounts").unwrap().json();
    let lines = page["data"].as_array().unwrap().iter();
    lines.map(|line| (line["limit"].as_str().unwrap().to_owned(), line["posted"].as_i64().unwrap())).collect()
}

/// Clients that leave once the provider has the call: a buffered answer is awaited, a stream is not.
fn client_leaves_before_the_answer(mock: &MockUpstream, gateway: &Gateway) -> Vec<Case> {
    let mut cases = Vec::new();
    for chat in [true, false] {
        let late = json!({"head_after_ms": 150, "answer": {"generate": {"output_llm_tokens": CHUNKS}}});
        let never = json!({"head_after_ms": NEVER_MS});
        let case = |name: &str, stream, charged, ending| case(name, chat, stream, charged, ending);
        cases.push(case("left", false, Charged::Reported, "complete").script(late.clone()));
        cases.push(case("left-for-ever", false, Charged::Unknown, "timeout").script(never.clone()));
        cases.push(case("left", true, Charged::Partial(0), "client_gone").script(late));
        cases.push(case("left-for-ever", true, Charged::Partial(0), "client_gone").script(never));
    }
    for (case, tenant) in cases.iter().flat_map(|case| TENANTS.map(|tenant| (case, tenant))) {
        let job = case.job(tenant);
        let mut script = job.script.clone();
        script["label"] = json!(job.label);
        let (bearer, script) = (format!("Bearer {}", job.api_key), script.to_string());
        let headers =
            [("authorization", bearer.as_str()), ("x-mock-script", &script), ("x-tollbook-user", &job.label)];
        let mut connection = Connection::open(gateway.addr()).unwrap();
        connection.post(&job.path, &headers, job.body.to_string().as_bytes()).unwrap();
        let arrived = |calls: &[Recorded]| calls.iter().any(|call| call.label.as_deref() == Some(&job.label));
        assert!(mock.wait_until_blocking(LIMIT, |calls, _| arrived(calls)));
    }
    cases
}

/// What a call was charged, against the table; `all` has the calls that tell how so many words are counted.
fn judge(
    case: &Case,
    tenant: &str,
    found: &[&Entry],
    all: &BTreeMap<&str, Vec<&Entry>>,
    provider: Option<&Recorded>,
) -> Result<(), String> {
    let entry = match (found, case.charged) {
        ([], Charged::Nothing) => return equal("calls at the provider", provider.is_some(), false),
        ([entry], _) => *entry,
        _ => return Err(format!("{} entries: {found:?}", found.len())),
    };
    let provider = provider.ok_or("never reached the provider")?;
    let counted = |words: u64| {
        let form = if case.chat { "chat" } else { "messages" };
        all[format!("{tenant} untold{words}-{form}-stream").as_str()][0].output
    };
    let received = |words: u64| {
        let cap = case.body["max_tokens"].as_i64().unwrap();
        ((counted(words) * 11 + 9) / 10).min(cap)
    };
    let told = provider.reported;
    let (figures, input, output) = match case.charged {
        Charged::Nothing => return Err(format!("an entry: {entry:?}")),
        Charged::Failed => ("nothing", 0, 0),
        Charged::Reported => {
            let told = told.ok_or("the provider told nothing")?;
            equal("cached", entry.cached, signed(told.cached))?;
            equal("reasoning", entry.reasoning, signed(told.reasoning))?;
            ("reported", signed(told.input), signed(told.output))
        }
        Charged::Metered(words) => ("metered", entry.hold_input, counted(words)),
        Charged::MeteredWithInput(words) => {
            let told = told.ok_or("the provider told nothing")?;
            ("metered", signed(told.input), counted(words).max(signed(told.output)))
        }
        Charged::Partial(words) => ("partial", entry.hold_input, received(words)),
        Charged::PartialWithInput(words) => {
            let told = told.ok_or("the provider told nothing")?;
            ("partial", signed(told.input), received(words).max(signed(told.output)))
        }
        // The entry tells the most it can have been; what was charged is what the quota held.
        Charged::Unknown => ("unknown", entry.input, entry.output),
    };
    equal("origin", entry.origin.as_str(), if figures == "nothing" { "released" } else { "settled" })?;
    equal("figures", entry.figures.as_str(), figures)?;
    equal("ending", entry.ending.as_str(), case.ending)?;
    equal("requests", entry.requests, 1)?;
    equal("input", entry.input, input)?;
    equal("output", entry.output, output)?;
    let held = if tenant == "worst" { entry.hold_worst } else { entry.hold_expected };
    let charged = if case.charged == Charged::Unknown { held } else { input + output };
    equal("posted", entry.posted.iter().map(|posted| posted.amount).sum(), charged)?;
    if case.charged != Charged::Failed && case.charged != Charged::Reported && entry.input <= 0 {
        return Err(format!("no input is charged: {entry:?}"));
    }
    Ok(())
}

fn equal<T: Copy + PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what} is {is:?}, should be {should:?}")) }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap()
}

#[test]
fn stream_that_outlives_a_shutdown_is_ended_and_charged_for_what_was_received() {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let limits = json!([{"measure": "tokens", "period": "lifetime", "ceiling": 1_000_000}]);
    let config = Config::new(&mock.url())
        .set("/timeouts", json!({"drain": "100ms"}))
        .simple_tenant("expected", &limits);
    let mut gateway = Gateway::start(&config);
    let stalls = case("cut", true, true, Charged::Partial(3), "shutdown").untold();
    let job = stalls.generate(&json!({"stall_at_chunk": 3})).job("expected");
    let mut script = job.script.clone();
    script["label"] = json!(job.label);
    let mut connection = Connection::open(gateway.addr()).unwrap();
    let (bearer, script) = (format!("Bearer {}", job.api_key), script.to_string());
    let headers = [("authorization", bearer.as_str()), ("x-mock-script", &script)];
    connection.post(&job.path, &headers, job.body.to_string().as_bytes()).unwrap();
    connection.read_events(4).unwrap();
    gateway.signal(Signal::TERM);
    let answer = connection.answer().unwrap();
    assert!(answer.complete && answer.text().contains("shutting_down"), "{}", answer.text());
    assert!(gateway.wait().success());
    let journal = Journal::read(&gateway.data_dir());
    let [entry] = journal.entries.iter().filter(|entry| entry.side == "tenant").collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", journal.entries)
    };
    assert_eq!((entry.figures.as_str(), entry.ending.as_str()), ("partial", "shutdown"));
    assert!(entry.output > 0 && entry.input == entry.hold_input, "{entry:?}");
    assert_eq!(entry.posted[0].amount, entry.llm_tokens());
    assert!(mock.wait_until_blocking(Duration::from_secs(5), |_, totals| totals.in_flight == 0));
}

#[test]
fn client_that_leaves_while_the_provider_is_being_connected_pays_nothing() {
    // It takes connections and never says a word of TLS.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}/v1", silent.local_addr().unwrap());
    let limits = json!([{"name": "all", "measure": "requests", "period": "lifetime", "ceiling": 10},
        {"name": "words", "measure": "tokens", "period": "lifetime", "ceiling": 1_000_000}]);
    let config = Config::new("http://127.0.0.1:9")
        .set("/upstreams/0/base_url", json!(address))
        .set("/upstreams/0/timeouts", json!({"connect": "60s"}))
        .simple_tenant("acme", &limits);
    let mut gateway = Gateway::start(&config);
    let bearer = format!("Bearer {}", secret("acme-key"));
    let body = json!({"model": CHAT_MODEL, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let mut connection = Connection::open(gateway.addr()).unwrap();
    connection
        .post("/v1/chat/completions", &[("authorization", &bearer)], body.to_string().as_bytes())
        .unwrap();
    let (socket, _) = silent.accept().unwrap();
    let line = |name: &str| {
        let page = gateway.admin_get("/admin/v1/accounts").unwrap().json();
        let lines = page["data"].as_array().unwrap().iter();
        lines
            .filter(|line| line["limit"] == name)
            .map(|line| (line["posted"].clone(), line["held"].clone()))
            .next()
    };
    assert_eq!(line("all"), Some((json!(1), json!(0))));
    drop(connection);
    let given_back = || (line("all") == Some((json!(0), json!(0)))).then_some(());
    assert!(wait_for(LIMIT, given_back).is_some(), "{:?}", line("all"));
    assert_eq!(line("words"), Some((json!(0), json!(0))));
    drop(socket);
    assert!(gateway.terminate().success());
    assert!(Journal::read(&gateway.data_dir()).entries.is_empty());
}
