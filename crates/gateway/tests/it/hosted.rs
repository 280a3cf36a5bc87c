//! Tools that the provider runs: priced by the price list, or refused where a limit counts cost.

use serde_json::{Value, json};
use tollbook_mock_upstream::{Script, Step};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_pricing::{Price, PriceDraft};
use tollbook_telemetry::labels;

use crate::world::{Plan, World, fixture_price, key, quota, rate};

const RESPONSES: &str = "/v1/responses";
const BUDGET: i128 = 1_000_000_000_000;

/// A world whose price list knows these fees, with a budget.
fn priced(tools: &[(&str, &str)]) -> Plan {
    let tools = tools.iter().map(|(name, fee)| ((*name).to_owned(), (*fee).to_owned())).collect();
    Plan {
        price: Some(Price::new(&PriceDraft { tools, ..fixture_price() }).unwrap()),
        ..Plan::with([
            quota(key(), Measure::Cost, PeriodKind::Day, BUDGET),
            rate(key(), Measure::Requests, 100),
        ])
    }
}

fn ask(tools: &[&str], stream: bool) -> Value {
    let tools: Vec<Value> = tools.iter().map(|kind| json!({ "type": kind })).collect();
    json!({ "model": "gpt", "input": "x", "max_output_tokens": 50, "stream": stream, "tools": tools })
}

/// A response that called these tools.
fn called(items: &[&str]) -> Value {
    let output: Vec<Value> =
        items.iter().map(|kind| json!({ "type": kind, "status": "completed" })).collect();
    json!({
        "id": "resp_1", "object": "response", "status": "completed", "output": output,
        "usage": { "input_tokens": 100, "output_tokens": 10, "total_tokens": 110 },
    })
}

/// 100 llm_tokens in, 10 out, by the price list of the field cases.
const OF_TOKENS: i64 = 100 * 2_000 + 10 * 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hosted_tool_without_a_fee_does_not_pass_a_budget() {
    let tools =
        ["code_interpreter", "file_search", "image_generation", "computer_use_preview", "mcp", "shell"];
    let world = World::start(priced(&[])).await;
    for tool in tools {
        let refused = world.post(RESPONSES, &ask(&[tool], false)).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]["code"]),
            (400, &json!("tool_unpriced"))
        );
        assert_eq!(refused.header("x-should-retry"), Some("false"));
    }
    let messages = |more: Value| {
        let mut body =
            json!({ "model": "claude", "max_tokens": 50, "messages": [{ "role": "user", "content": "x" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for more in [
        json!({ "tools": [{ "type": "code_execution_20250825", "name": "code_execution" }] }),
        json!({ "mcp_servers": [{ "type": "url", "url": "https://x", "name": "x" }] }),
    ] {
        let refused = world.post("/v1/messages", &messages(more)).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
    }
    assert_eq!((world.up.calls().len(), world.balance(0).await, world.balance(1).await), (0, (0, 0), (0, 0)));
    // What a client runs, and web searches, are no such tools.
    let own = json!({ "tools": [
        { "name": "f", "input_schema": { "type": "object" } }, { "type": "bash_20250124", "name": "bash" },
        { "type": "web_search_20250305", "name": "web_search" },
    ] });
    assert_eq!(world.post("/v1/messages", &messages(own)).await.status, 200);
    // Without a budget nothing has to be known.
    let world = World::start(Plan::with([rate(key(), Measure::Requests, 100)])).await;
    for tool in tools {
        assert_eq!(world.post(RESPONSES, &ask(&[tool], false)).await.status, 200, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_hosted_tools_are_held_and_charged_by_their_fees() {
    let fees = [("file_search", "0.0025"), ("code_interpreter", "0.03"), ("other", "0.1"), ("mcp", "0")];
    for stream in [false, true] {
        let world = World::start(priced(&fees)).await;
        let answer = called(&[
            "file_search_call",
            "file_search_call",
            "code_interpreter_call",
            "mcp_call",
            "shell_call",
            "message",
        ]);
        world.up.script(if stream {
            let event = |kind: &str, more: Value| {
                let mut event = json!({ "type": kind });
                event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                format!("event: {kind}\ndata: {event}\n\n")
            };
            let items = answer["output"].as_array().unwrap().iter();
            let told = items.flat_map(|item| {
                ["response.output_item.added", "response.output_item.done"]
                    .map(|kind| event(kind, json!({ "item": item })))
            });
            let end = event("response.completed", json!({ "response": answer }));
            Script::steps(vec![Step::Text(told.chain([end]).collect())])
        } else {
            Script::json(200, answer)
        });
        let body = ask(&["file_search", "code_interpreter", "mcp", "shell"], stream);
        assert_eq!(world.post(RESPONSES, &body).await.status, 200);
        world.settled().await;
        let cost = 2 * 2_500_000 + 30_000_000 + 100_000_000 + OF_TOKENS;
        assert_eq!(world.journal().await.pop().unwrap().1.cost_nano, cost, "{stream}");
        assert_eq!(world.balance(0).await, (cost, 0), "{stream}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_holds_what_hosted_tools_may_cost_at_most() {
    let mut body = ask(&["code_interpreter", "file_search"], false);
    body["max_tool_calls"] = json!(3);
    let fees = [("code_interpreter", "0.03"), ("file_search", "0.0025")];
    let plan = |ceiling: i128| Plan {
        limits: vec![quota(key(), Measure::Cost, PeriodKind::Day, ceiling)],
        ..priced(&fees)
    };
    // Three calls of each, and the llm_tokens.
    let most = 3 * (30_000_000 + 2_500_000);
    for (ceiling, status) in [(most, 413), (most + 10_000_000, 200)] {
        let world = World::start(plan(ceiling)).await;
        assert_eq!(world.post(RESPONSES, &body).await.status, status, "{ceiling}");
        let too_large =
            world.metrics.calls_rejected.get((labels::Dialect::OpenAi, labels::Problem::TooLarge));
        assert_eq!(too_large, u64::from(status == 413));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_an_answer_does_not_tell_its_calls_what_could_be_is_charged() {
    let world = World::start(priced(&[("other", "0.01")])).await;
    let body = json!({
        "model": "claude", "max_tokens": 50, "messages": [{ "role": "user", "content": "x" }],
        "tools": [{ "type": "code_execution_20250825", "name": "code_execution" }],
    });
    world.up.script(Script::json(200, json!({
        "id": "msg_1", "type": "message", "role": "assistant", "content": [{ "type": "text", "text": "hi" }],
        "stop_reason": "end_turn", "usage": { "input_tokens": 100, "output_tokens": 10 },
    })));
    assert_eq!(world.post("/v1/messages", &body).await.status, 200);
    world.settled().await;
    let cost = world.journal().await.pop().unwrap().1.cost_nano;
    let calls = (cost - OF_TOKENS) / 10_000_000;
    assert!(calls >= 1 && (cost - OF_TOKENS) % 10_000_000 == 0, "{cost}");
}
