//! Answers that come in one piece: what an error reports is charged, and what is held of answers has a bound.

use serde_json::{Value, json};
use tollbook_mock_upstream::Script;
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::{Ending, Figures};

use crate::world::{Plan, World, ask, ask_stream, key, quota, rate};

const LLM_TOKENS: u32 = 0;
const REQUESTS: u32 = 1;

fn limits() -> Plan {
    Plan {
        upstream: |u| u.retries = 2,
        ..Plan::with([
            quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
            rate(key(), Measure::Requests, 100),
        ])
    }
}

/// An error of either dialect that says what it used.
fn failed(kind: &str, usage: &Value) -> Value {
    json!({ "type": "error", "error": { "message": "no", "type": kind }, "usage": usage })
}

fn openai_usage() -> Value {
    json!({ "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_in_an_error_answer_is_settled_and_not_paid_for_twice() {
    let world = World::start(limits()).await;
    let messages =
        json!({ "model": "claude", "max_tokens": 50, "messages": [{ "role": "user", "content": "x" }] });
    let asked = [
        ("/v1/chat/completions", ask("x"), openai_usage()),
        ("/v1/chat/completions", ask_stream("x"), openai_usage()),
        ("/v1/messages", messages, json!({ "input_tokens": 5, "output_tokens": 7 })),
    ];
    let (mut calls, mut posted) = (0, 0);
    for (path, body, usage) in asked {
        for (status, told) in [(400, 400), (422, 422), (429, 429), (500, 502), (503, 503)] {
            let what = format!("{status} at {path}");
            world.up.set_default(Script::json(status, failed("server_error", &usage)));
            let answer = world.post(path, &body).await;
            calls += 1;
            posted += 12;
            let overloaded = answer.status == 529 && told == 503;
            assert!(answer.status == told || overloaded, "{what}: {}", answer.text());
            assert!(answer.json()["error"]["message"].is_string(), "{what}");
            world.settled().await;
            assert_eq!(world.balance(LLM_TOKENS).await, (posted, 0), "{what}");
            assert_eq!(world.up.calls().len(), calls, "{what}: what was paid for is not tried again");
            let entry = world.journal().await.pop().unwrap().1;
            assert_eq!((entry.ending, entry.figures), (Ending::UpstreamError, Figures::Reported), "{what}");
        }
    }
    assert_eq!(world.balance(REQUESTS).await.0, i64::try_from(calls).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_without_usage_or_with_none_used_is_tried_again_and_costs_nothing() {
    let world = World::start(limits()).await;
    let nothing = json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 });
    let absurd = json!({ "prompt_tokens": -5, "completion_tokens": "x" });
    for (turn, usage) in [nothing, absurd, Value::Null].into_iter().enumerate() {
        let script = Script::json(500, failed("server_error", &usage)).header("retry-after-ms", "1");
        world.up.set_default(script);
        assert_eq!(world.chat(&ask("x")).await.status, 502);
        assert_eq!(world.up.calls().len(), (turn + 1) * 3);
        world.settled().await;
        assert_eq!(world.balance(LLM_TOKENS).await, (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_under_a_200_with_usage_is_settled_and_told_as_an_error() {
    let world = World::start(limits()).await;
    let mut posted = 0;
    for body in [ask("x"), ask_stream("x")] {
        for (kind, status) in [("server_error", 503), ("invalid_request_error", 502)] {
            world.up.script(Script::json(200, failed(kind, &openai_usage())));
            let answer = world.chat(&body).await;
            assert_eq!(answer.status, status, "{}", answer.text());
            assert!(answer.json()["error"]["message"].is_string());
            posted += 12;
            world.settled().await;
            assert_eq!(world.balance(LLM_TOKENS).await, (posted, 0));
            let entry = world.journal().await.pop().unwrap().1;
            assert_eq!((entry.ending, entry.figures), (Ending::UpstreamError, Figures::Reported));
        }
    }
    // What was written and paid for is the client's, whatever stands beside it.
    let mut answer = failed("server_error", &openai_usage());
    answer["choices"] =
        json!([{ "index": 0, "message": { "content": "half of it" }, "finish_reason": "stop" }]);
    world.up.script(Script::json(200, answer));
    let answer = world.chat(&ask("x")).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("half of it"));
    world.settled().await;
    assert_eq!(world.balance(LLM_TOKENS).await, (posted + 12, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passed_error_that_reports_usage_is_settled() {
    let world = World::start(limits()).await;
    let body = json!({ "model": "gpt", "prompt": "a cat" });
    let usage = json!({ "input_tokens": 5, "output_tokens": 7, "total_tokens": 12 });
    let mut posted = 0;
    for (status, told) in [(200, 502), (400, 400), (500, 502)] {
        world.up.set_default(Script::json(status, failed("odd", &usage)));
        let answer = world.post("/v1/images/generations", &body).await;
        assert_eq!(answer.status, told, "{status}: {}", answer.text());
        posted += 12;
        world.settled().await;
        assert_eq!(world.balance(LLM_TOKENS).await, (posted, 0), "{status}");
    }
    assert_eq!(world.up.calls().len(), 3);
    let mut answer = failed("odd", &usage);
    answer["data"] = json!([{ "b64_json": "AAAA" }]);
    world.up.set_default(Script::json(200, answer));
    assert_eq!(world.post("/v1/images/generations", &body).await.status, 200);
    world.settled().await;
    assert_eq!(world.balance(LLM_TOKENS).await, (posted + 12, 0));
}

/// A plain answer of that many mebibytes.
fn large(mebibytes: usize) -> Script {
    let text = "a".repeat(mebibytes << 20);
    Script::json(
        200,
        json!({ "choices": [{ "index": 0, "message": { "content": text }, "finish_reason": "stop" }], "usage": openai_usage() }),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_answers_together_are_bounded() {
    let plan = Plan {
        config: |c| {
            c.bounds.answer_max = 18 << 20;
            c.bounds.answers_in_flight_max = 20 << 20;
        },
        ..limits()
    };
    let world = World::start(plan).await;
    // Half of it is more than any socket takes.
    world.up.script(large(16));
    let untaken = world.open_stream("/v1/chat/completions", &ask("x")).await;
    assert_eq!(untaken.status(), 200);
    world.settled().await;
    let before = world.balance(LLM_TOKENS).await.0;
    world.up.script(large(8));
    let refused = world.chat(&ask("x")).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    world.settled().await;
    let entry = world.journal().await.pop().unwrap().1;
    assert_eq!((entry.ending, entry.figures), (Ending::Reset, Figures::Unknown), "the provider did the work");
    assert!(world.balance(LLM_TOKENS).await.0 > before);
    // What fits beside it is served, and so are streams.
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    assert_eq!(world.chat(&ask_stream("x")).await.status, 200);
    let taken = http_body_util::BodyExt::collect(untaken.into_body()).await.unwrap().to_bytes();
    assert!(taken.len() > 16 << 20);
    world.up.script(large(16));
    assert_eq!(world.chat(&ask("x")).await.status, 200, "the room is given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_finds_no_room_is_not_begun() {
    let plan = Plan {
        config: |c| {
            c.bounds.answer_max = 17 << 20;
            c.bounds.answers_in_flight_max = 17 << 20;
        },
        ..limits()
    };
    let world = World::start(plan).await;
    world.up.script(large(16));
    let untaken = world.open_stream("/v1/chat/completions", &ask("x")).await;
    world.settled().await;
    let posted = world.balance(LLM_TOKENS).await;
    let refused = world.chat(&ask("x")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.json()["error"]["code"].as_str()),
        (503, Some("overloaded"))
    );
    assert_eq!((world.up.calls().len(), world.balance(LLM_TOKENS).await), (1, posted));
    assert_eq!(world.chat(&ask_stream("x")).await.status, 200);
    drop(untaken);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while world.chat(&ask("x")).await.status != 200 {
        assert!(tokio::time::Instant::now() < deadline, "the room of a client that left is given back");
    }
}
