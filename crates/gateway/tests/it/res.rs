//! Field cases RES and DIS: every hold has one end, whatever becomes of its owner; what was produced is charged.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollbook_mock_upstream::{Generate, Script, Step, UsageMode};
use tollbook_policy::{EstimatorChoice, Measure, PeriodKind, Scope, Subject};
use tollbook_store::{Ending, Figures};
use tollbook_telemetry::labels::Surface;

use crate::world::{Plan, World, ask, ask_stream, concurrency, key, quota, rate, tenant, used};

/// One limit of each kind, wide enough to pass.
fn wide() -> Plan {
    Plan::with([
        rate(tenant(), Measure::Requests, 10_000),
        rate(key(), Measure::Tokens, 10_000_000),
        quota(tenant(), Measure::Tokens, PeriodKind::Day, 100_000_000),
        concurrency(key(), 100),
    ])
}

fn short_silence(plan: Plan) -> Plan {
    Plan {
        upstream: |upstream| {
            upstream.silence_timeout = Duration::from_millis(300);
            upstream.first_byte_timeout = Duration::from_millis(300);
            upstream.retries = 0;
        },
        ..plan
    }
}

async fn last_entry(world: &World) -> (Figures, Ending, i64) {
    let journal = world.journal().await;
    let (_, body) = journal.last().expect("an entry");
    (body.figures, body.ending, body.usage.input + body.usage.output)
}

/// Reads `n` data frames of a stream, then drops it.
async fn read_some(world: &World, path: &str, body: &Value, n: usize) {
    let mut response = world.open_stream(path, body).await;
    assert_eq!(response.status(), 200);
    for _ in 0..n {
        if response.body_mut().frame().await.is_none() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b015_a_cancelled_stream_frees_its_slot() {
    let world = World::start(Plan::with([concurrency(key(), 1)])).await;
    for _ in 0..100 {
        world.up.script(
            Generate {
                chunk_every_ms: 5,
                output_llm_tokens: Some(1_000),
                ignore_cap: true,
                ..Generate::default()
            }
            .into(),
        );
        read_some(&world, "/v1/chat/completions", &ask_stream("x"), 3).await;
        let left = std::time::Instant::now();
        world.settled().await;
        world.until("no call is in flight", || idle(&world)).await;
        assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
        assert_eq!(world.chat(&ask("x")).await.status, 200);
    }
    assert_eq!((world.balance(0).await, idle(&world)), ((0, 0), true));
}

/// No call in flight, no stream open, by the gauges.
fn idle(world: &World) -> bool {
    let in_flight = world.metrics.calls_in_flight.get((Surface::Chat,));
    in_flight == 0 && world.metrics.calls_streams_open.get(()) == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b016_streams_aborted_before_their_first_byte_leave_no_money_held() {
    let mut budget = quota(key(), Measure::Cost, PeriodKind::Day, 10_000_000);
    budget.hold = Some(tollbook_policy::Hold::Worst);
    let world = World::start(Plan::with([budget])).await;
    let mut body = ask_stream("x");
    body["max_tokens"] = json!(98);
    for n in 0..50 {
        world.up.script(Script::default().head_after_ms(600_000));
        let sent = async {
            world.until("it is at the provider", || world.up.calls().len() == n + 1).await;
            world.balance(0).await.1
        };
        let held = tokio::select! {
            held = sent => held,
            answer = world.open_stream("/v1/chat/completions", &body) => panic!("call {n}: {answer:?}"),
        };
        assert!((980_000..1_020_000).contains(&held), "ten of them fill the budget: {held}");
        world.settled().await;
    }
    // The provider has read the input, and nothing else is charged.
    let journal = world.journal().await;
    assert_eq!(journal.len(), 50);
    let input = journal[0].1.usage.input;
    assert!((1..20).contains(&input), "{input}");
    for (_, entry) in &journal {
        assert_eq!((entry.usage.input, entry.usage.output, entry.figures), (input, 0, Figures::Partial));
        assert_eq!(entry.cost_nano, input * 2_000);
    }
    assert_eq!(world.balance(0).await, (50 * input * 2_000, 0));
    assert_eq!(world.chat(&body).await.status, 200, "there is room for one that is served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b018_malformed_calls_take_nothing() {
    let world = World::start(Plan::with([concurrency(key(), 1), rate(key(), Measure::Requests, 10)])).await;
    let unknown = json!({ "model": "nope", "messages": [] });
    assert_eq!(world.chat(&unknown).await.status, 404);
    let unnamed = json!({ "messages": [{ "role": "user2" }] });
    assert_eq!(world.chat(&unnamed).await.status, 400);
    assert_eq!((world.balance(0).await, world.balance(1).await), ((0, 0), (0, 0)));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b020_an_upstream_outage_leaves_nothing_held() {
    let world = World::start(short_silence(Plan::with([concurrency(key(), 10)]))).await;
    world.up.set_default(Script::steps(vec![Step::Stall]).head_after_ms(60_000));
    for _ in 0..10 {
        assert_eq!(world.chat(&ask("x")).await.status, 504);
    }
    world.up.set_default(Script::raw(vec![Step::Close]));
    for _ in 0..10 {
        assert_eq!(world.chat(&ask("x")).await.status, 502);
    }
    world.up.set_default(Script::default());
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    assert_eq!(world.balance(0).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b022_a_client_that_leaves_before_the_head_frees_its_slot() {
    let world = World::start(Plan::with([concurrency(key(), 1)])).await;
    world.up.script(Script::default().head_after_ms(600_000));
    let body = ask_stream("x");
    let call = world.open_stream("/v1/chat/completions", &body);
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    world.settled().await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b023_a_slot_is_held_until_the_stream_has_ended() {
    let world = World::start(Plan::with([concurrency(key(), 2)])).await;
    world.up.set_default(
        Generate {
            chunk_every_ms: 20,
            chunks: Some(500),
            output_llm_tokens: Some(500),
            ignore_cap: true,
            ..Generate::default()
        }
        .into(),
    );
    let mut first = world.open_stream("/v1/chat/completions", &ask_stream("a")).await;
    let second = world.open_stream("/v1/chat/completions", &ask_stream("b")).await;
    assert!(first.body_mut().frame().await.is_some());
    assert_eq!(world.chat(&ask_stream("c")).await.status, 429);
    drop(first);
    world.until_held(1).await;
    let third = world.open_stream("/v1/chat/completions", &ask_stream("d")).await;
    assert_eq!(third.status(), 200);
    drop((second, third));
    world.settled().await;
}

/// Heads come at once, events later: the next call goes out only after the last byte of an earlier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b023_the_next_stream_begins_after_the_last_byte_of_an_earlier_one() {
    let world = World::start(Plan::with([concurrency(key(), 2)])).await;
    let slow = Generate { chunk_every_ms: 100, chunks: Some(10), ..Generate::default() };
    world.up.set_default(slow.into());
    let first = world.open_stream("/v1/chat/completions", &ask_stream("a")).await;
    let second = world.open_stream("/v1/chat/completions", &ask_stream("b")).await;
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let read = [first, second].map(|stream| tokio::spawn(stream.into_body().collect()));
    for _ in 0..3 {
        let refused = world.chat(&ask_stream("c")).await;
        assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    }
    assert_eq!((world.up.calls().len(), world.balance(0).await.1), (2, 2));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while world.chat(&ask_stream("d")).await.status == 429 {
        assert!(tokio::time::Instant::now() < deadline, "a slot comes free");
    }
    for body in read {
        assert!(body.await.unwrap().unwrap().to_bytes().ends_with(b"data: [DONE]\n\n"), "both were whole");
    }
    let calls = world.up.calls_at_rest();
    assert_eq!(calls.len(), 3, "no refused one was sent");
    let ended = calls[..2].iter().map(|call| call.ended_ms.unwrap()).min().unwrap();
    assert!(calls[2].arrived_ms >= ended, "{} before {ended}", calls[2].arrived_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b024_a_stream_lowers_its_hold_to_the_truth() {
    let mut limit = quota(key(), Measure::OutputTokens, PeriodKind::Day, 10_000);
    limit.estimator = Some(EstimatorChoice::Constant(4_000));
    let world = World::start(Plan::with([limit])).await;
    world.up.set_default(Script::output(100));
    for _ in 0..20 {
        let mut body = ask_stream("x");
        body["max_tokens"] = json!(4_000);
        assert_eq!(world.chat(&body).await.status, 200);
    }
    assert_eq!(world.balance(0).await, (2_000, 0));
}

/// Content, then the usage of 30 + 7, then a reset, as near to each other as sockets allow.
fn usage_then_reset(between: Vec<Step>) -> Script {
    let usage = json!({ "prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37 });
    let chunk = format!("data: {}\n\n", json!({ "choices": [], "usage": usage }));
    let content = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let mut steps = vec![Step::Text(format!("{content}\n\n"))];
    steps.extend(between);
    steps.push(Step::Usage { text: chunk, usage });
    steps.push(Step::Reset);
    Script::steps(steps).ignore_disconnect()
}

/// The client leaves within the same instants in which the usage comes and the connection is reset, earlier and later
/// from one call to the next.
async fn race_usage_reset_and_leaving(world: &World, calls: usize) {
    for call in 0..calls {
        world.up.script(usage_then_reset(vec![Step::DelayMs(1)]));
        let mut response = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
        assert!(response.body_mut().frame().await.unwrap().is_ok());
        // 0 to 2 ms, across the moment at which the other two happen.
        let leaving =
            std::time::Instant::now() + Duration::from_micros(u64::try_from(call % 41).unwrap() * 50);
        while std::time::Instant::now() < leaving {
            tokio::task::yield_now().await;
        }
        drop(response);
    }
    world.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b025_usage_reset_and_a_leaving_client_settle_once() {
    const CALLS: usize = 205;
    // The provider is read to its usage whoever leaves: it is charged whatever came first.
    let world = World::start(Plan { upstream: |u| u.drains = true, ..wide() }).await;
    race_usage_reset_and_leaving(&world, CALLS).await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), CALLS);
    assert!(journal.iter().all(|(record, entry)| record.seq == 0 && entry.figures == Figures::Reported));
    assert!(journal.iter().any(|(_, entry)| entry.ending == Ending::ClientGone), "some left first");
    assert_eq!(world.balance(0).await.0, i64::try_from(CALLS).unwrap());
    assert_eq!(world.balance(2).await, (i64::try_from(CALLS * 37).unwrap(), 0));

    // Without, either end may win, and what is charged is what that one entry says.
    let world = World::start(wide()).await;
    race_usage_reset_and_leaving(&world, CALLS).await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), CALLS);
    let total: i64 = journal.iter().map(|(_, entry)| entry.usage.input + entry.usage.output).sum();
    assert_eq!(world.balance(2).await, (total, 0));
    for (_, entry) in &journal {
        let used = entry.usage.input + entry.usage.output;
        assert!(used > 0 && (entry.figures != Figures::Reported || used == 37), "{entry:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b025_an_error_event_and_then_a_finish_with_usage_settle_once() {
    let world = World::start(Plan { upstream: |u| u.retries = 0, ..wide() }).await;
    let error = r#"data: {"error":{"message":"overloaded","type":"server_error","code":null}}"#;
    for _ in 0..20 {
        world.up.script(usage_then_reset(vec![Step::Text(format!("{error}\n\n"))]));
        let text = world.chat(&ask_stream("x")).await.text();
        assert!(text.contains("overloaded") && !text.contains("[DONE]"), "{text}");
    }
    let event = |name: &str, data: Value| Step::Text(format!("event: {name}\ndata: {data}\n\n"));
    let body = json!({ "model": "claude", "max_tokens": 50, "stream": true, "messages": [{ "role": "user", "content": "hi" }] });
    for _ in 0..20 {
        world.up.script(Script::steps(vec![
            event(
                "message_start",
                json!({ "type": "message_start", "message": { "id": "m", "usage": { "input_tokens": 30, "output_tokens": 1 } } }),
            ),
            event("content_block_delta", json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "hi" } })),
            event("error", json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } })),
            event("message_delta", json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 7 } })),
            event("message_stop", json!({ "type": "message_stop" })),
        ]));
        assert!(world.post("/v1/messages", &body).await.text().contains("overloaded_error"));
    }
    world.settled().await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), 40);
    assert!(journal.iter().all(|(_, e)| (e.figures, e.ending) == (Figures::Reported, Ending::UpstreamError)));
    assert_eq!(world.balance(0).await, (40, 0));
    assert_eq!(world.balance(2).await, (40 * 37, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b019_a_pool_that_refuses_gives_the_slot_back() {
    let pool = Scope::One(Subject::Pool { pool: "openai/gpt".into() });
    let world =
        Arc::new(World::start(Plan::with([concurrency(key(), 2), rate(pool, Measure::Requests, 0)])).await);
    for _ in 0..5 {
        let refused = world.chat(&ask("x")).await;
        assert!(matches!(refused.status.as_u16(), 413 | 429 | 503), "{refused:?}");
        assert_eq!(world.balance(0).await, (0, 0), "the slot is free before the refusal is told");
    }
    assert_eq!(world.up.calls().len(), 0);
    world.up.hold_until_released();
    let body =
        json!({ "model": "claude", "max_tokens": 50, "messages": [{ "role": "user", "content": "x" }] });
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let (world, body) = (Arc::clone(&world), body.clone());
            tokio::spawn(async move { world.post("/v1/messages", &body).await.status })
        })
        .collect();
    world.until("both are at the provider", || world.up.totals().in_flight == 2).await;
    assert_eq!(world.post("/v1/messages", &body).await.status, 429, "there are two slots");
    world.up.release();
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(world.balance(0).await, (0, 0));
    assert_eq!(world.metrics.calls_in_flight.get((Surface::Messages,)), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b035_a_cancelled_messages_stream_keeps_its_reported_input() {
    let world = World::start(wide()).await;
    let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
    let start = event(
        "message_start",
        json!({ "type": "message_start", "message": { "id": "m", "usage": { "input_tokens": 40, "output_tokens": 1 } } }),
    );
    let mut steps = vec![Step::Text(start)];
    for _ in 0..5 {
        steps.push(Step::Text(event("content_block_delta", json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "word " } }))));
        steps.push(Step::DelayMs(1));
    }
    steps.push(Step::Stall);
    world.up.script(Script::steps(steps));
    let body = json!({ "model": "claude", "max_tokens": 50, "stream": true, "messages": [{ "role": "user", "content": "hi" }] });
    let mut response = world.open_stream("/v1/messages", &body).await;
    let mut text = Vec::new();
    while text.windows(5).filter(|w| *w == b"word ").count() < 5 {
        text.extend_from_slice(&response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap());
    }
    drop(response);
    world.settled().await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), 1);
    let usage = journal[0].1.usage;
    assert_eq!(usage.input, 40);
    assert!((5..=50).contains(&usage.output), "{usage:?}");
    assert_eq!(journal[0].1.figures, Figures::Partial);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b038_a_client_that_leaves_after_the_usage_is_charged_the_usage() {
    let world = World::start(wide()).await;
    let mut body = ask_stream("x");
    body["stream_options"] = json!({ "include_usage": true });
    for marker in ["\"usage\":{", "[DONE]"] {
        world.up.clear();
        let mut response = world.open_stream("/v1/chat/completions", &body).await;
        let mut text = String::new();
        while !text.contains(marker) {
            let Some(frame) = response.body_mut().frame().await else { break };
            text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
        drop(response);
        world.settled().await;
        let (input, output) = used(&world.up.calls_at_rest()[0]);
        let (figures, ending, total) = last_entry(&world).await;
        assert_eq!((figures, total), (Figures::Reported, i64::try_from(input + output).unwrap()));
        assert_eq!(ending, Ending::Complete);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b039_a_buffered_call_is_awaited_after_its_client_left() {
    let world = World::start(wide()).await;
    let usage = Generate {
        input_llm_tokens: Some(1_000),
        output_llm_tokens: Some(400),
        ignore_cap: true,
        ..Generate::default()
    };
    world.up.script(Script::from(usage).head_after_ms(300));
    let body = ask("x");
    let call = world.open_stream("/v1/chat/completions", &body);
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    world.settled().await;
    assert_eq!(world.balance(2).await, (1_400, 0));
    assert_eq!(last_entry(&world).await, (Figures::Reported, Ending::Complete, 1_400));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b040_a_buffered_call_that_never_ends_is_charged_as_held() {
    let limit = quota(key(), Measure::OutputTokens, PeriodKind::Day, 90_000);
    let world = World::start(short_silence(Plan::with([limit]))).await;
    world.up.script(Script::default().head_after_ms(600_000));
    let mut body = ask("x");
    body["max_tokens"] = json!(50_000);
    assert_eq!(world.chat(&body).await.status, 504);
    assert_eq!(world.balance(0).await, (50_000, 0));
    assert_eq!(last_entry(&world).await.0, Figures::Unknown);
    // A later identical call sees that: what is left of the quota is less than it asks for.
    let refused = world.chat(&body).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["error"]["code"]),
        (429, &json!("insufficient_quota"))
    );
    assert_eq!(world.up.calls().len(), 1);
    body["max_tokens"] = json!(30_000);
    assert_eq!(world.chat(&body).await.status, 200, "a smaller one still fits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b041_every_surface_and_cut_is_charged_once() {
    let said = json!([{ "role": "user", "content": "x" }]);
    let surfaces = [
        (
            "/v1/chat/completions",
            json!({ "model": "gpt", "max_tokens": 300, "stream": true, "messages": said }),
        ),
        ("/v1/completions", json!({ "model": "gpt", "max_tokens": 300, "stream": true, "prompt": "x" })),
        ("/v1/responses", json!({ "model": "gpt", "max_output_tokens": 300, "stream": true, "input": "x" })),
        ("/v1/messages", json!({ "model": "claude", "max_tokens": 300, "stream": true, "messages": said })),
    ];
    for (path, body) in &surfaces {
        for (cut, ending) in [
            ("client", Ending::ClientGone),
            ("reset", Ending::Reset),
            ("stall", Ending::Timeout),
            ("close", Ending::Reset),
        ] {
            let plan = if cut == "stall" { short_silence(wide()) } else { wide() };
            let world = World::start(plan).await;
            let base = Generate {
                output_llm_tokens: Some(200),
                chunks: Some(200),
                chunk_every_ms: 2,
                ignore_cap: true,
                ..Generate::default()
            };
            let script = match cut {
                "reset" => Generate { reset_at_chunk: Some(5), ..base },
                "stall" => Generate { stall_at_chunk: Some(5), ..base },
                "close" => Generate { close_at_chunk: Some(5), ..base },
                _ => base,
            };
            world.up.script(script.into());
            if cut == "client" {
                read_some(&world, path, body, 5).await;
            } else {
                let text = world.post(path, body).await.text();
                assert!(text.contains("error"), "{path} {cut}: {text}");
                for good_end in ["[DONE]", "message_stop", "response.completed"] {
                    assert!(!text.contains(good_end), "{path} {cut}: {text}");
                }
            }
            world.settled().await;
            let journal = world.journal().await;
            assert_eq!(journal.len(), 1, "{path} {cut}");
            let entry = &journal[0].1;
            let (input, output) = (entry.usage.input, entry.usage.output);
            assert!(input > 0 && output > 0, "{path} {cut}: {entry:?}");
            assert_eq!(entry.cost_nano, input * 2_000 + output * 10_000, "{path} {cut}");
            assert_eq!((entry.figures, entry.ending), (Figures::Partial, ending), "{path} {cut}");
            assert_eq!(world.balance(2).await, (input + output, 0), "{path} {cut}");
            assert_eq!(world.held().await, 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b042_a_cut_is_not_a_good_end() {
    let three = Generate { chunks: Some(3), output_llm_tokens: Some(3), ..Generate::default() };
    let clean = Generate { omit_finish: true, omit_done: true, usage: UsageMode::Never, ..three.clone() };
    let cut = Generate { close_at_chunk: Some(3), chunks: Some(9), output_llm_tokens: Some(9), ..three };
    for (script, ends_as) in [(clean, Ending::Truncated), (cut, Ending::Reset)] {
        let world = World::start(wide()).await;
        world.up.script(script.into());
        let text = world.chat(&ask_stream("x")).await.text();
        let content = text.matches("\"content\":\"").count() - text.matches("\"content\":\"\"").count();
        assert_eq!(content, 3, "{text}");
        assert!(!text.contains("[DONE]") && !text.contains("\"finish_reason\":\"stop\""), "{text}");
        let last = text.trim_end_matches("\n\n").rsplit("\n\n").next().unwrap();
        let error: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(error["error"]["code"], "stream_incomplete", "the error is the last event: {text}");
        assert_eq!(text.matches("\"error\"").count(), 1, "{text}");
        world.settled().await;
        let (figures, ending, total) = last_entry(&world).await;
        assert_eq!((figures, ending), (Figures::Partial, ends_as), "it is journaled as what it was");
        let usage = world.journal().await[0].1.usage;
        assert!(usage.input > 0 && usage.output >= 3, "what came is charged: {usage:?}");
        assert_eq!(world.balance(2).await, (total, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b043_a_messages_stream_without_stop_gets_an_error_event() {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let piece = |text: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": text });
        event(json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
    };
    let usage = json!({ "input_tokens": 40, "output_tokens": 1 });
    let tool = json!({ "type": "tool_use", "id": "t", "name": "look", "input": {} });
    let sent = [
        event(json!({ "type": "message_start", "message": { "id": "m", "usage": usage } })),
        event(json!({ "type": "content_block_start", "index": 0, "content_block": tool })),
        piece("{\"city\":"),
        piece("\"Par"),
    ]
    .concat();
    for cut in [Step::Reset, Step::Close] {
        let world = World::start(wide()).await;
        world.up.script(Script::steps(vec![Step::Text(sent.clone()), Step::DelayMs(50), cut.clone()]));
        let body = json!({ "model": "claude", "max_tokens": 50, "stream": true, "messages": [{ "role": "user", "content": "x" }] });
        let text = world.post("/v1/messages", &body).await.text();
        let added = text.strip_prefix(sent.as_str()).unwrap_or_else(|| panic!("{cut:?}: {text}"));
        assert!(
            added.starts_with("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\""),
            "{cut:?}: {added}"
        );
        assert_eq!(added.matches("event: ").count(), 1, "nothing else is made up: {added}");
        world.settled().await;
        let (figures, _, _) = last_entry(&world).await;
        let usage = world.journal().await[0].1.usage;
        assert!(figures == Figures::Partial && usage.input == 40 && usage.output > 0, "{usage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b160_a_refusal_by_the_provider_costs_no_llm_tokens() {
    let world = World::start(Plan { upstream: |u| u.retries = 0, ..wide() }).await;
    for (n, status) in [400_u16, 401, 404, 422, 429, 500, 503].into_iter().enumerate() {
        world.up.script(Script::error(status, "no"));
        let answer = world.chat(&ask("x")).await;
        assert!(answer.status.as_u16() >= 400, "{status}");
        assert_eq!(world.balance(0).await, (i64::try_from(n).unwrap() + 1, 0), "{status}: requests are kept");
        assert_eq!(world.balance(2).await, (0, 0), "{status}");
        assert_eq!(world.balance(3).await, (0, 0), "{status}");
    }
    let figures: Vec<Figures> = world.journal().await.iter().map(|(_, b)| b.figures).collect();
    assert_eq!(figures, [Figures::Nothing; 7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_never_left_gives_its_request_back() {
    let world = World::start(Plan {
        upstream: |u| {
            // Nobody listens there.
            u.base_url = "http://127.0.0.1:9/v1".parse().unwrap();
            u.retries = 1;
        },
        ..wide()
    })
    .await;
    assert_eq!(world.chat(&ask("x")).await.status, 502);
    for limit in 0..4 {
        assert_eq!(world.balance(limit).await, (0, 0));
    }
    assert!(world.journal().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complete_without_usage_is_metered() {
    let world = World::start(wide()).await;
    for body in [ask("hello there"), ask_stream("hello there")] {
        world.up.script(
            Generate { usage: UsageMode::Never, output_llm_tokens: Some(40), ..Generate::default() }.into(),
        );
        assert_eq!(world.chat(&body).await.status, 200);
        let (figures, ending, total) = last_entry(&world).await;
        assert_eq!((figures, ending), (Figures::Metered, Ending::Complete));
        assert!(total > 10, "{total}");
    }
}

/// Dropped at every chunk: one entry each, nothing held, whatever the moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b044_a_client_gone_at_every_chunk_settles_once() {
    let world = Arc::new(World::start(wide()).await);
    for chunk in 0..12 {
        world.up.script(
            Generate {
                chunks: Some(10),
                output_llm_tokens: Some(10),
                chunk_every_ms: 2,
                ..Generate::default()
            }
            .into(),
        );
        read_some(&world, "/v1/chat/completions", &ask_stream("x"), chunk).await;
        world.settled().await;
        assert_eq!(world.journal().await.len(), chunk + 1);
    }
    assert_eq!(world.balance(0).await, (12, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b138_a_silent_upstream_is_ended_with_an_error_event() {
    let world = World::start(short_silence(wide())).await;
    world.up.script(Generate { stall_at_chunk: Some(3), chunks: Some(9), ..Generate::default() }.into());
    let begun = std::time::Instant::now();
    let text = world.chat(&ask_stream("x")).await.text();
    assert!(text.contains("stream_timeout") && !text.contains("[DONE]"), "{text}");
    assert!(begun.elapsed() >= Duration::from_millis(300) && begun.elapsed() < Duration::from_secs(10));
    assert_eq!(world.held().await, 0);
    let (figures, ending, amount) = last_entry(&world).await;
    assert_eq!((figures, ending), (Figures::Partial, Ending::Timeout));
    let entry = &world.journal().await[0].1;
    assert!(
        entry.usage.input > 0 && entry.usage.output > 0,
        "what had streamed is charged: {:?}",
        entry.usage
    );
    assert_eq!((world.balance(0).await, world.balance(2).await), ((1, 0), (amount, 0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b137_a_stream_longer_than_every_limit_of_silence_completes() {
    let world = World::start(short_silence(wide())).await;
    world.up.script(
        Generate {
            chunks: Some(10),
            output_llm_tokens: Some(10),
            chunk_every_ms: 100,
            ..Generate::default()
        }
        .into(),
    );
    let text = world.chat(&ask_stream("x")).await.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b036_a_draining_upstream_is_read_to_its_usage_within_its_bound() {
    let plan = Plan {
        upstream: |u| u.drains = true,
        config: |c| c.bounds.drains_max = 3,
        ..Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000), concurrency(key(), 100)])
    };
    let world = World::start(plan).await;
    let generate = Generate {
        input_llm_tokens: Some(100),
        output_llm_tokens: Some(500),
        chunks: Some(50),
        chunk_every_ms: 4,
        ignore_cap: true,
        ..Generate::default()
    };
    world.up.set_default(Script::from(generate).ignore_disconnect());
    read_some(&world, "/v1/chat/completions", &ask_stream("x"), 5).await;
    assert_eq!(world.balance(1).await.1, 1, "the slot is held while it is drained");
    world.settled().await;
    assert_eq!(world.balance(0).await, (600, 0));
    assert_eq!(last_entry(&world).await, (Figures::Reported, Ending::ClientGone, 600));
    let drained = world.up.calls_at_rest();
    assert_eq!((drained[0].content_chunks, drained[0].gone_at_chunk), (50, None), "it was read to its end");
    // Over the bound of three the upstream is cut, and what was received is charged.
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut stream = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
        let mut text = Vec::new();
        while !text.windows(12).any(|w| w == b"\"content\":\" ") {
            text.extend_from_slice(&stream.body_mut().frame().await.unwrap().unwrap().into_data().unwrap());
        }
        open.push(stream);
    }
    drop(open);
    world.settled().await;
    let journal = world.journal().await;
    let reported = journal.iter().filter(|(_, b)| b.figures == Figures::Reported).count();
    assert_eq!((journal.len(), reported), (5, 4));
    let cut: Vec<_> = journal.iter().filter(|(_, b)| b.figures == Figures::Partial).collect();
    let usage = cut[0].1.usage;
    assert!(usage.input > 0 && usage.output > 0, "{usage:?}");
    assert_eq!(world.balance(0).await, (4 * 600 + usage.input + usage.output, 0));
    let gone = world.up.calls_at_rest().iter().filter(|call| call.gone_at_chunk.is_some()).count();
    assert_eq!(gone, 1, "the provider saw one leave");
    // The places are given back.
    read_some(&world, "/v1/chat/completions", &ask_stream("x"), 5).await;
    world.settled().await;
    assert_eq!(last_entry(&world).await, (Figures::Reported, Ending::ClientGone, 600));
    assert!(idle(&world));
}
