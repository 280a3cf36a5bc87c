//! The main job: a call goes through, is booked, metered and settled.

use serde_json::json;
use tollbook_mock_upstream::Script;
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::{Ending, Figures};

use crate::world::{Plan, World, ask, ask_stream, key, quota, rate, tenant, used};

fn limits() -> Plan {
    Plan::with([
        rate(tenant(), Measure::Requests, 100),
        rate(key(), Measure::Tokens, 100_000),
        quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        quota(tenant(), Measure::Cost, PeriodKind::Month, 1_000_000_000),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_call_is_booked_as_the_provider_reports_it() {
    let world = World::start(limits()).await;
    world.up.script(Script::output(7));
    let answer = world.chat(&ask("hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let usage = used(&world.up.calls_at_rest()[0]);
    let total = i64::try_from(usage.0 + usage.1).unwrap();
    assert_eq!(world.balance(0).await, (1, 0));
    assert_eq!(world.balance(1).await, (total, 0));
    assert_eq!(world.balance(2).await, (total, 0));
    let cost = i64::try_from(usage.0 * 2_000 + usage.1 * 10_000).unwrap();
    assert_eq!(world.balance(3).await, (cost, 0));
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("100"));
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("99"));
    let journal = world.journal().await;
    assert_eq!(journal.len(), 1);
    let (_, body) = &journal[0];
    assert_eq!((body.figures, body.ending), (Figures::Reported, Ending::Complete));
    assert_eq!(body.cost_nano, cost);
    assert_eq!(&*body.model_asked, "gpt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_settles_before_its_last_byte() {
    let world = World::start(limits()).await;
    world.up.script(Script::output(20));
    let answer = world.chat(&ask_stream("hello")).await;
    assert_eq!(answer.status, 200);
    let text = answer.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(!text.contains("\"usage\":{"), "the client did not ask for usage: {text}");
    let usage = used(&world.up.calls_at_rest()[0]);
    let total = i64::try_from(usage.0 + usage.1).unwrap();
    assert_eq!(world.balance(1).await, (total, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_plain_and_streamed() {
    let world = World::start(limits()).await;
    for stream in [false, true] {
        let body = json!({
            "model": "claude", "max_tokens": 50, "stream": stream,
            "messages": [{ "role": "user", "content": "hello" }],
        });
        let answer = world.post("/v1/messages", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let sum: u64 = world.up.calls_at_rest().iter().map(used).map(|(i, o)| i + o).sum();
    assert_eq!(world.balance(2).await, (i64::try_from(sum).unwrap(), 0));
    assert!(world.up.calls().iter().all(|c| c.header("x-api-key") == Some("provider-secret")));
}
