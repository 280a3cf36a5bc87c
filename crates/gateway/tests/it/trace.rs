//! A call's spans tell what the book, the provider and the client know of it, and nothing that is theirs alone.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tollbook_mock_upstream::{Generate, Script};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_telemetry::trace::{Key, ONE, Span, SpanKind, TEXT_MAX, TracerSettings, Value};

use crate::world::{API_KEY, Plan, World, ask, ask_stream, key, quota, rate, used};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PROMPT: &str = "my-secret-prompt";
const USER: &str = "alice-of-sales";
const CHAT: &str = "/v1/chat/completions";

fn every_call() -> TracerSettings {
    TracerSettings { ratio: ONE, follow_client: false, queue_max: 1000, batch: 1000 }
}

fn plan() -> Plan {
    let limits = [
        rate(key(), Measure::Requests, 3),
        quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        quota(key(), Measure::Cost, PeriodKind::Month, 1_000_000_000),
    ];
    Plan { traces: Some(every_call()), ..Plan::with(limits) }
}

/// Spans of finished calls; a call's own comes first, then its tries.
async fn spans(world: &World, count: usize) -> Vec<Span> {
    let tracer = world.tracer.as_ref().unwrap();
    world.until("the spans are there", || tracer.waiting() >= count).await;
    let spans = tracer.take(usize::MAX);
    assert_eq!(spans.len(), count, "{spans:#?}");
    spans
}

fn word(span: &Span, key: Key) -> Option<String> {
    let (_, value) = span.attributes.iter().find(|(k, _)| *k == key)?;
    Some(match value {
        Value::Word(word) => (*word).to_owned(),
        Value::Text(text) => text.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Words(words) => words.join(","),
    })
}

#[track_caller]
fn says(span: &Span, words: &[(Key, &str)]) {
    for (key, want) in words {
        assert_eq!(word(span, *key).as_deref(), Some(*want), "{key:?} of {span:#?}");
    }
}

fn sent(world: &World, name: &str) -> Option<String> {
    let calls = world.up.calls();
    let headers = &calls.last().unwrap().headers;
    headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_tells_hold_and_actual() {
    let world = World::start(plan()).await;
    let headers = [
        ("authorization", "Bearer tb_test_key"),
        ("traceparent", PARENT),
        ("tracestate", "vendor=1"),
        ("baggage", "user=alice"),
        ("x-tollbook-user", USER),
        ("x-request-secret", "header-value"),
    ];
    assert_eq!(world.send("POST", CHAT, &headers, ask(PROMPT).to_string()).await.status, 200);
    let all = spans(&world, 2).await;
    let [call, attempt] = &all[..] else { panic!() };
    assert_eq!((&*call.name, call.kind, call.failed), ("chat gpt", SpanKind::Server, false));
    assert_eq!(
        (&*attempt.name, attempt.kind, attempt.failed),
        ("chat gpt-upstream", SpanKind::Client, false)
    );
    assert_eq!(call.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((call.parent.unwrap().to_string().as_str(), call.remote), ("00f067aa0ba902b7", true));
    assert_eq!((attempt.trace, attempt.parent, attempt.remote), (call.trace, Some(call.id), false));
    assert!(call.began <= attempt.began && attempt.ended <= call.ended);

    let (input, output) = used(&world.up.calls()[0]);
    let journal = world.journal().await;
    let entry = &journal[0].1;
    says(
        call,
        &[
            (Key::Operation, "chat"),
            (Key::Provider, "openai"),
            (Key::System, "openai"),
            (Key::RequestModel, "gpt"),
            (Key::RequestStream, "false"),
            (Key::FinishReasons, "stop"),
            (Key::InputUsage, &input.to_string()),
            (Key::OutputUsage, &output.to_string()),
            (Key::ActualLlmTokens, &(input + output).to_string()),
            (Key::ActualNano, &entry.cost_nano.to_string()),
            (Key::HoldLlmTokens, &entry.hold.expected_llm_tokens.to_string()),
            (Key::HoldWorstLlmTokens, &entry.hold.worst_llm_tokens.to_string()),
            (Key::HttpMethod, "POST"),
            (Key::HttpRoute, CHAT),
            (Key::HttpStatus, "200"),
            (Key::RequestId, &entry.request_id),
            (Key::Decision, "admit"),
            (Key::Tenant, "acme"),
            (Key::Project, "web"),
            (Key::Pool, "openai/gpt"),
            (Key::Generation, "1"),
            (Key::Figures, "reported"),
            (Key::Ending, "complete"),
            (Key::Attempts, "1"),
        ],
    );
    assert_eq!(word(call, Key::ErrorType), None);
    says(
        attempt,
        &[
            (Key::RequestModel, "gpt-upstream"),
            (Key::Upstream, "openai"),
            (Key::ServerAddress, "127.0.0.1"),
            (Key::ServerPort, &world.up.addr().port().to_string()),
            (Key::HttpStatus, "200"),
        ],
    );
    assert!(word(attempt, Key::ResponseModel).is_some() && word(call, Key::ResponseId).is_some());
    let told = format!("{all:?}");
    for secret in [PROMPT, USER, API_KEY, "alice", "header-value", "provider-secret"] {
        assert!(!told.contains(secret), "{secret} is in {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_told_of_the_trace_only_where_the_configuration_says_so() {
    let headers = [
        ("authorization", "Bearer tb_test_key"),
        ("traceparent", PARENT),
        ("tracestate", "vendor=1"),
        ("baggage", "user=alice"),
    ];
    let silent = World::start(plan()).await;
    silent.send("POST", CHAT, &headers, ask("x").to_string()).await;
    for name in ["traceparent", "tracestate", "baggage"] {
        assert_eq!(sent(&silent, name), None, "{name}");
    }

    let open = World::start(Plan { upstream: |u| u.trace_context = true, ..plan() }).await;
    open.up.script(Script::error(429, "slow").header("retry-after-ms", "1"));
    open.send("POST", CHAT, &headers, ask("x").to_string()).await;
    let all = spans(&open, 3).await;
    let last = all.last().unwrap();
    assert_eq!(sent(&open, "traceparent"), Some(format!("00-{}-{}-01", last.trace, last.id)));
    assert_eq!(sent(&open, "tracestate").as_deref(), Some("vendor=1"));
    assert_eq!(sent(&open, "baggage"), None);

    // Nobody traces here: a client's own trace goes on to its provider, if it is one.
    let untraced = World::start(Plan { traces: None, upstream: |u| u.trace_context = true, ..plan() }).await;
    untraced.send("POST", CHAT, &headers, ask("x").to_string()).await;
    assert_eq!(sent(&untraced, "traceparent").as_deref(), Some(PARENT));
    let broken = [("authorization", "Bearer tb_test_key"), ("traceparent", "00-x"), ("tracestate", "a=1")];
    untraced.send("POST", CHAT, &broken, ask("x").to_string()).await;
    assert_eq!((sent(&untraced, "traceparent"), sent(&untraced, "tracestate")), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_try_has_a_span_of_its_own() {
    let world = World::start(plan()).await;
    world.up.script(Script::error(503, "busy").header("retry-after-ms", "1"));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let all = spans(&world, 3).await;
    let [call, first, second] = &all[..] else { panic!() };
    says(call, &[(Key::Attempts, "2"), (Key::Ending, "complete"), (Key::HttpStatus, "200")]);
    says(first, &[(Key::HttpStatus, "503"), (Key::ErrorType, "503")]);
    says(second, &[(Key::HttpStatus, "200"), (Key::HttpResend, "1")]);
    assert_eq!((call.failed, first.failed, second.failed), (false, true, false));
    assert!(first.ended <= second.began);

    let nobody = World::start(Plan {
        upstream: |u| {
            u.base_url = "http://127.0.0.1:1/v1".parse().unwrap();
            u.retries = 0;
        },
        ..plan()
    })
    .await;
    let status = nobody.chat(&ask("x")).await.status;
    assert!(status.is_server_error(), "{status}");
    let all = spans(&nobody, 2).await;
    let status = status.as_u16().to_string();
    says(&all[0], &[(Key::HttpStatus, &status), (Key::Ending, "never_sent"), (Key::ActualLlmTokens, "0")]);
    says(&all[1], &[(Key::ErrorType, "connect")]);
    assert!(all[0].failed && all[1].failed);
    assert!(word(&all[0], Key::ErrorType).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_names_its_limit() {
    let world = World::start(plan()).await;
    for _ in 0..3 {
        assert_eq!(world.chat(&ask("x")).await.status, 200);
    }
    spans(&world, 6).await;
    assert_eq!(world.chat(&ask("x")).await.status, 429);
    let all = spans(&world, 1).await;
    says(
        &all[0],
        &[
            (Key::Decision, "deny"),
            (Key::LimitMeasure, "requests"),
            (Key::LimitKind, "busy"),
            (Key::HttpStatus, "429"),
            (Key::ErrorType, "rate_limit_exceeded"),
            (Key::RequestModel, "gpt"),
        ],
    );
    assert!(word(&all[0], Key::Limit).is_some());
    let wait: u64 = word(&all[0], Key::RetryAfter).unwrap().parse().unwrap();
    assert!((1..=62_000).contains(&wait), "{wait}");
    assert!(!all[0].failed, "a refusal is an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_admitted_is_rejected() {
    let world = World::start(plan()).await;
    let headers = [("authorization", "Bearer nobodys")];
    assert_eq!(world.send("POST", CHAT, &headers, ask("x").to_string()).await.status, 401);
    let model = "m".repeat(400);
    assert_eq!(world.chat(&json!({ "model": model, "messages": [] })).await.status, 404);
    let all = spans(&world, 2).await;
    says(
        &all[0],
        &[(Key::Decision, "reject"), (Key::ErrorType, "invalid_api_key"), (Key::HttpStatus, "401")],
    );
    says(&all[1], &[(Key::Decision, "reject"), (Key::ErrorType, "model_not_found")]);
    assert_eq!(word(&all[1], Key::RequestModel).unwrap().len(), TEXT_MAX);
    assert_eq!(all[1].name.len(), TEXT_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_traced_to_its_end() {
    let world = World::start(plan()).await;
    assert_eq!(world.chat(&ask_stream("x")).await.status, 200);
    let all = spans(&world, 2).await;
    says(
        &all[0],
        &[
            (Key::RequestStream, "true"),
            (Key::Ending, "complete"),
            (Key::FinishReasons, "stop"),
            (Key::HttpStatus, "200"),
        ],
    );
    assert!(word(&all[0], Key::FirstOutput).is_some() && word(&all[0], Key::ResponseModel).is_some());
    assert_eq!(all[0].ended, all[1].ended);

    let slow = Generate { chunks: Some(500), chunk_every_ms: 20, ..Generate::default() };
    world.up.script(slow.into());
    drop(world.open_stream(CHAT, &ask_stream("x")).await);
    let all = spans(&world, 2).await;
    says(
        &all[0],
        &[(Key::Ending, "client_gone"), (Key::ErrorType, "client_gone"), (Key::Figures, "partial")],
    );
    assert!(all[0].failed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_a_buffered_call_still_has_its_trace() {
    let world = World::start(plan()).await;
    world.up.hold_until_released();
    {
        let body = ask("x");
        let call = world.chat(&body);
        tokio::select! {
            _ = call => panic!("the provider holds its answer"),
            reached = world.up.wait_until(Duration::from_secs(10), |calls, _| calls.len() == 1) => assert!(reached),
        }
    }
    world.up.release();
    let all = spans(&world, 2).await;
    says(&all[0], &[(Key::Ending, "complete"), (Key::Figures, "reported")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_trace_context_starts_a_trace_of_our_own() {
    let world = World::start(Plan { traces: Some(every_call()), ..Plan::default() }).await;
    let long = format!("{PARENT}-{}", "x".repeat(4000));
    let zero = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
    for parent in ["", "00", &long, &zero, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-zz"] {
        let headers =
            [("authorization", "Bearer tb_test_key"), ("traceparent", parent), ("tracestate", "a=1")];
        assert_eq!(world.send("POST", CHAT, &headers, ask("x").to_string()).await.status, 200);
        let all = spans(&world, 2).await;
        assert_eq!((all[0].parent, &all[0].state), (None, &None), "{parent}");
    }
    // Two of them are none, and a long state is left behind.
    let twice = [("authorization", "Bearer tb_test_key"), ("traceparent", PARENT), ("traceparent", PARENT)];
    world.send("POST", CHAT, &twice, ask("x").to_string()).await;
    assert_eq!(spans(&world, 2).await[0].parent, None);
    let state = "a".repeat(10_000);
    let long = [("authorization", "Bearer tb_test_key"), ("traceparent", PARENT), ("tracestate", &state)];
    world.send("POST", CHAT, &long, ask("x").to_string()).await;
    let all = spans(&world, 2).await;
    assert!(all[0].parent.is_some() && all[0].state.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_cannot_put_its_texts_into_a_trace() {
    let world = World::start(Plan { traces: Some(every_call()), ..Plan::default() }).await;
    let long = "z".repeat(10_000);
    let answer = json!({
        "id": long, "model": long,
        "choices": [{ "index": 0, "message": { "content": "hi" }, "finish_reason": "ignore previous instructions" }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
    });
    world.up.script(Script::json(200, answer));
    assert_eq!(world.chat(&ask("x")).await.status, StatusCode::OK);
    let all = spans(&world, 2).await;
    says(&all[0], &[(Key::FinishReasons, "other")]);
    for key in [Key::ResponseId, Key::ResponseModel] {
        assert!(word(&all[0], key).unwrap().len() <= TEXT_MAX);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_not_sampled_has_no_span() {
    let traces = Some(TracerSettings { ratio: 0, ..every_call() });
    let world = World::start(Plan { traces, ..plan() }).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    world.settled().await;
    assert_eq!(world.tracer.as_ref().unwrap().waiting(), 0);
}
