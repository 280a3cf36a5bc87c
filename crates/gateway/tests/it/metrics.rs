//! The scrape tells the same story as the journal, the answers and the provider's own record.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollbook_mock_upstream::{Generate, Script};
use tollbook_policy::{Measure, PeriodKind, Scope, Subject};
use tollbook_store::{Ending, EntryBody, Side};

use crate::world::{API_KEY, OTHER_API_KEY, Plan, World, ask, ask_stream, key, quota, rate, tenant};

const PROMPT: &str = "my-secret-prompt";
const USER: &str = "alice-of-sales";

/// Series by name, each with its labels and value.
struct Scrape {
    text: String,
    series: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Scrape {
    async fn take(world: &World) -> Self {
        let text = world.send("GET", "/metrics", &[], "").await.text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = name.split_once('{').unwrap_or((name, ""));
                let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
                let labels = labels.map(|label| {
                    let (name, value) = label.split_once('=').unwrap();
                    (name.to_owned(), value.trim_matches('"').to_owned())
                });
                (name.to_owned(), labels.collect(), value.parse().unwrap())
            })
            .collect();
        Self { text, series }
    }

    /// Sum of the series that carry these labels.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let name = format!("tollbook_{name}");
        let carries = |has: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| has.get(*label).is_some_and(|v| v == value))
        };
        let found = self.series.iter().filter(|(n, has, _)| *n == name && carries(has));
        let sum: f64 = found.map(|(_, _, value)| value).sum();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        let sum = sum as u64;
        sum
    }
}

fn plan() -> Plan {
    let claude = Scope::One(Subject::Pool { pool: "anthropic/claude".into() });
    let mut shadow = rate(tenant(), Measure::Requests, 1);
    shadow.shadow = true;
    Plan::with([
        rate(key(), Measure::Requests, 16),
        quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        quota(tenant(), Measure::Cost, PeriodKind::Month, 1_000_000_000),
        rate(claude, Measure::Requests, 1),
        shadow,
    ])
}

fn message() -> Value {
    json!({ "model": "claude", "max_tokens": 50, "messages": [{ "role": "user", "content": PROMPT }] })
}

/// Calls that end in every way a client or a provider can bring about; says how many a limit refused.
async fn mix(world: &World) -> u64 {
    let user = [("authorization", "Bearer tb_test_key"), ("x-tollbook-user", USER)];
    let answer = world.send("POST", "/v1/chat/completions", &user, ask(PROMPT).to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for _ in 0..2 {
        assert_eq!(world.chat(&ask_stream(PROMPT)).await.status, 200);
    }
    // A request the provider does not like, one it does not take at first, and one whose client leaves.
    world.up.script(Script::error(400, "the context is too long"));
    assert_eq!(world.chat(&ask(PROMPT)).await.status, 400);
    world.up.script(Script::error(429, "slow").header("retry-after-ms", "1"));
    assert_eq!(world.chat(&ask(PROMPT)).await.status, 200);
    let slow = Generate { chunks: Some(500), chunk_every_ms: 20, ..Generate::default() };
    world.up.script(slow.into());
    let stream = world.open_stream("/v1/chat/completions", &ask_stream(PROMPT)).await;
    let scrape = Scrape::take(world).await;
    assert_eq!(scrape.sum("calls_in_flight", &[("surface", "chat")]), 1);
    assert_eq!(scrape.sum("calls_streams_open", &[]), 1);
    drop(stream);
    // Never admitted: no key, no such model, no JSON.
    let chat = "/v1/chat/completions";
    assert_eq!(world.send("POST", chat, &[], ask(PROMPT).to_string()).await.status, 401);
    assert_eq!(world.chat(&json!({ "model": PROMPT, "messages": [] })).await.status, 404);
    assert_eq!(world.post(chat, &json!([PROMPT])).await.status, 400);
    // The pool has room for one.
    assert_eq!(world.post("/v1/messages", &message()).await.status, 200);
    let mut refused = 0;
    assert_eq!(world.post("/v1/messages", &message()).await.status, 429);
    refused += 1;
    for _ in 0..40 {
        refused += u64::from(world.chat(&ask(PROMPT)).await.status == 429);
        if refused == 4 {
            break;
        }
    }
    refused
}

fn total(entries: &[EntryBody], figure: impl Fn(&EntryBody) -> i64) -> u64 {
    u64::try_from(entries.iter().map(figure).sum::<i64>()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scrape_adds_up_with_the_journal() {
    let world = World::start(plan()).await;
    let refused = mix(&world).await;
    assert_eq!(refused, 4);
    world.settled().await;
    let (metrics, chat) = (&world.metrics, tollbook_telemetry::labels::Surface::Chat);
    let quiet = || metrics.calls_in_flight.get((chat,)) == 0 && metrics.calls_streams_open.get(()) == 0;
    world.until("no call is in flight", quiet).await;

    let scrape = Scrape::take(&world).await;
    let journal: Vec<EntryBody> = world.journal().await.into_iter().map(|(_, body)| body).collect();
    let (entries, of_pool): (Vec<_>, Vec<_>) = journal.into_iter().partition(|b| b.side == Side::Tenant);
    let entered = u64::try_from(entries.len()).unwrap();
    let never_sent = scrape.sum("calls_ended_total", &[("ending", "never_sent")]);
    let ended = scrape.sum("calls_ended_total", &[]);

    assert_eq!((never_sent, of_pool.len()), (1, 1));
    assert_eq!(ended, entered + never_sent);
    for (ending, word) in [
        (Ending::Complete, "complete"),
        (Ending::UpstreamError, "upstream_error"),
        (Ending::ClientGone, "client_gone"),
    ] {
        let count = entries.iter().filter(|b| b.ending == ending).count();
        assert!(count > 0, "{word}");
        let told = scrape.sum("calls_ended_total", &[("ending", word)]);
        assert_eq!(told, u64::try_from(count).unwrap(), "{word}");
    }
    assert_eq!(scrape.sum("admission_denied_total", &[]), refused);
    assert_eq!(scrape.sum("admission_denied_total", &[("side", "pool"), ("measure", "requests")]), 1);
    assert_eq!(scrape.sum("admission_admitted_total", &[("side", "tenant")]), ended);
    assert_eq!(scrape.sum("admission_shadow_denied_total", &[("measure", "requests")]), ended - 1);
    assert_eq!(scrape.sum("calls_rejected_total", &[]), 3);
    for problem in ["unauthorized", "unknown_model", "bad_request"] {
        assert_eq!(scrape.sum("calls_rejected_total", &[("problem", problem)]), 1, "{problem}");
    }

    for (part, sum) in [
        ("input", total(&entries, |b| b.usage.input)),
        ("output", total(&entries, |b| b.usage.output)),
        ("cached", total(&entries, |b| b.usage.cached)),
        ("reasoning", total(&entries, |b| b.usage.reasoning)),
    ] {
        assert_eq!(scrape.sum("usage_llm_tokens_total", &[("part", part)]), sum, "{part}");
    }
    assert!(scrape.sum("usage_llm_tokens_total", &[("model", "claude"), ("part", "output")]) > 0);
    assert_eq!(scrape.sum("usage_cost_nano_total", &[]), total(&entries, |b| b.cost_nano));
    // A call that was never sent is charged nothing, and has no entry to say so.
    assert_eq!(scrape.sum("settle_figures_total", &[("side", "tenant")]), ended);
    assert_eq!(scrape.sum("settle_figures_total", &[("side", "pool")]), 1);

    let tried = u64::try_from(world.up.calls().len()).unwrap();
    assert_eq!(scrape.sum("upstream_requests_total", &[]), tried);
    assert_eq!(scrape.sum("upstream_answer_seconds_count", &[]), tried);
    assert_eq!(scrape.sum("upstream_requests_total", &[("pool", "openai/gpt"), ("status", "429")]), 1);
    assert_eq!(scrape.sum("upstream_errors_total", &[("pool", "openai/gpt")]), 2);
    assert_eq!(scrape.sum("upstream_retries_total", &[("pool", "openai/gpt")]), 1);
    assert_eq!(scrape.sum("calls_duration_seconds_count", &[]), ended);
    assert_eq!(scrape.sum("calls_overhead_seconds_count", &[]), entered);
    assert_eq!(scrape.sum("process_ready", &[]), 1);
    assert_eq!(scrape.sum("engine_failures_total", &[]), 0);

    // The engine keeps nothing live, and remembers what it has ended.
    let stats = world.engine.inner.stats();
    let admitted = scrape.sum("admission_admitted_total", &[]);
    assert_eq!((stats.live, stats.tombstones), (0, admitted));
    assert!(stats.accounts >= 5, "{}", stats.accounts);

    // No label tells who called or what was said; names are those of the configuration.
    for secret in
        [API_KEY, OTHER_API_KEY, "provider-secret", PROMPT, USER, "acme", "\"k1\"", "\"web\"", "req_"]
    {
        assert!(!scrape.text.contains(secret), "{secret} is in the scrape");
    }
    let models = ["gpt", "claude"];
    let model = scrape.series.iter().filter_map(|(_, labels, _)| labels.get("model"));
    assert!(model.into_iter().all(|model| models.contains(&model.as_str())));
}
