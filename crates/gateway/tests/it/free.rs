//! Field cases B252, B012 and B148: a budget that is spent stops nothing that is free, and an engine that is away stops
//! everything.

use serde_json::{Value, json};
use tollbook_mock_upstream::{Generate, Script};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_telemetry::labels::Away;

use crate::flaky::Mood;
use crate::world::{Answer, Plan, World, ask, key, quota, rate, tenant};

const BUDGET: i128 = 1_000_000_000;

fn messages(stream: bool) -> Value {
    json!({
        "model": "claude",
        "max_tokens": 50,
        "stream": stream,
        "messages": [{ "role": "user", "content": "hello" }],
    })
}

/// One overrun spends everything: the provider used more than anyone could know.
async fn overrun(world: &World) {
    let usage = Generate {
        input_llm_tokens: Some(400_000),
        output_llm_tokens: Some(40_000),
        ignore_cap: true,
        ..Generate::default()
    };
    world.up.script(usage.into());
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let (posted, held) = world.balance(0).await;
    assert!(posted >= 440_000 && held == 0, "{posted} {held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b252_a_free_model_is_served_after_the_budget_is_spent() {
    for period in [PeriodKind::Day, PeriodKind::Lifetime] {
        let limits = [quota(tenant(), Measure::Cost, period, BUDGET), rate(key(), Measure::Cost, BUDGET)];
        let world = World::start(Plan { claude_is_free: true, ..Plan::with(limits) }).await;
        overrun(&world).await;
        let spent = (world.balance(0).await, world.balance(1).await);
        assert!(spent.0.0 > 1_000_000_000 && spent.1.0 > 1_000_000_000, "{spent:?}");
        assert_eq!(world.chat(&ask("x")).await.status, 429, "what has a price is refused");
        for stream in [false, true] {
            let answer = world.post("/v1/messages", &messages(stream)).await;
            assert_eq!(answer.status, 200, "{period:?}: {}", answer.text());
        }
        world.settled().await;
        assert_eq!((world.balance(0).await, world.balance(1).await), spent);
        let journal = world.journal().await;
        let free = journal.iter().filter(|(_, entry)| entry.cost_nano == 0 && entry.usage.output > 0).count();
        assert_eq!((journal.len(), free), (3, 2), "they are journaled with what they used");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b252_input_is_counted_after_budget_and_llm_tokens_are_spent() {
    let world = World::start(Plan::with([
        quota(tenant(), Measure::Cost, PeriodKind::Day, BUDGET),
        quota(key(), Measure::Tokens, PeriodKind::Day, 100_000),
    ]))
    .await;
    overrun(&world).await;
    let mut body = messages(false);
    assert_eq!(world.post("/v1/messages", &body).await.status, 402, "the call itself is refused");
    body.as_object_mut().unwrap().retain(|name, _| matches!(name.as_str(), "model" | "messages"));
    world.up.script(Script::json(200, json!({ "input_tokens": 7 })));
    let counted = world.post("/v1/messages/count_tokens", &body).await;
    assert_eq!((counted.status.as_u16(), counted.json()), (200, json!({ "input_tokens": 7 })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b252_a_price_of_nothing_passes_no_other_limit() {
    let world = World::start(Plan {
        claude_is_free: true,
        ..Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 100_000)])
    })
    .await;
    overrun(&world).await;
    assert_eq!(world.post("/v1/messages", &messages(false)).await.status, 402);
    assert_eq!(world.up.calls().len(), 1);
}

/// What stands in the answer of a gateway that has no engine.
fn assert_ledger_unavailable(path: &str, answer: &Answer) {
    let what = format!("{path}: {}", answer.text());
    assert_eq!(answer.status, 503, "{what}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
    assert_eq!(answer.header("retry-after"), Some("1"), "{what}");
    let body = answer.json();
    if path == "/v1/messages" {
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("overloaded_error")));
        assert!(body["request_id"].as_str().unwrap().starts_with("req_"), "{what}");
    } else {
        assert_eq!(body["error"]["code"], "ledger_unavailable", "{what}");
        assert!(body["error"]["type"].is_string() && body["error"]["message"].is_string(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b012_b148_without_the_engine_nothing_is_sent_and_each_dialect_is_told() {
    let limits =
        [rate(key(), Measure::Requests, 100), quota(tenant(), Measure::Cost, PeriodKind::Day, BUDGET)];
    let world = World::start(Plan::with(limits)).await;
    let mut refused = 0;
    for mood in [Mood::Away, Mood::Silent, Mood::LosesReplies] {
        world.engine.set(mood);
        for stream in [false, true] {
            let mut chat = ask("hello");
            chat["stream"] = json!(stream);
            let response = json!({ "model": "gpt", "input": "hello", "stream": stream });
            for (path, body) in [
                ("/v1/chat/completions", chat),
                ("/v1/responses", response),
                ("/v1/messages", messages(stream)),
            ] {
                assert_ledger_unavailable(path, &world.post(path, &body).await);
                refused += 1;
            }
        }
    }
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.metrics.admission_degraded.get((Away::Closed,)), refused);
    // A reply that was lost may have held something: it is given back once the engine answers.
    world.engine.set(Mood::Well);
    world.settled().await;
    assert_eq!((world.balance(0).await, world.balance(1).await), ((0, 0), (0, 0)));
    // It was not waited for any more; the next probe finds it there.
    world.until("the engine is asked again", || world.admission.is_ready()).await;
    assert_eq!(world.chat(&ask("hello")).await.status, 200);
    assert_eq!(world.up.calls().len(), 1);
}
