//! Field cases EST, HTP and ERR as whole calls: what a request is taken to need, and how it is refused.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tollbook_mock_upstream::{Generate, Script};
use tollbook_policy::{Anchor, EstimatorChoice, Hold, Measure, PeriodKind, ShapeDraft};
use tollbook_pricing::ModelFacts;
use tollbook_telemetry::labels::{Denial, Dialect, Measure as Counted, Problem, Side};

use crate::edge::raw;
use crate::flaky::Mood;
use crate::world::{API_KEY, Answer, Plan, World, ask, concurrency, key, quota, rate, tenant};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn messages(text: &str) -> Value {
    json!({ "model": "claude", "max_tokens": 50, "messages": [{ "role": "user", "content": text }] })
}

fn daily(ceiling: i128) -> Plan {
    Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, ceiling)])
}

/// What a call holds on the first limit while it is at the provider.
async fn held_by(world: &World, path: &str, body: &Value) -> i64 {
    let (held, answer) = world.held_by(path, body).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b095_a_long_prompt_is_held_and_refused_whatever_the_cap() {
    let prompt = "lorem ipsum ".repeat(33_334);
    assert!(prompt.len() > 400_000);
    for cap in [Some(1), None] {
        let mut body = ask(&prompt);
        if let Some(cap) = cap {
            body["max_tokens"] = json!(cap);
        }
        let small = World::start(daily(20_000)).await;
        let refused = small.chat(&body).await;
        assert_eq!(refused.status, 413, "{cap:?}: {}", refused.text());
        assert_eq!((small.up.calls().len(), small.balance(0).await), (0, (0, 0)));
        let wide = World::start(daily(100_000_000)).await;
        let held = held_by(&wide, CHAT, &body).await;
        assert!(held >= 80_000, "{cap:?}: {held}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b097_of_two_caps_the_larger_is_held_on_every_surface() {
    let chat = |caps: Value| {
        let mut body = ask("hi");
        body.as_object_mut().unwrap().extend(caps.as_object().unwrap().clone());
        (CHAT, body)
    };
    let cases = [
        chat(json!({ "max_tokens": 1, "max_completion_tokens": 700 })),
        chat(json!({ "max_tokens": 700, "max_completion_tokens": 1 })),
        (RESPONSES, json!({ "model": "gpt", "input": "hi", "max_output_tokens": 700 })),
        (RESPONSES, json!({ "model": "gpt", "input": "hi", "max_output_tokens": 700, "max_tokens": 1 })),
    ];
    for (path, body) in cases {
        let world = World::start(daily(50)).await;
        let refused = world.post(path, &body).await;
        assert_eq!(refused.status, 413, "{body}: {}", refused.text());
        assert_eq!((world.up.calls().len(), world.balance(0).await), (0, (0, 0)), "{body}");
        let world = World::start(daily(5_000)).await;
        let held = held_by(&world, path, &body).await;
        assert!((700..800).contains(&held), "{body}: {held}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b100_odd_caps_are_refused_before_any_hold_and_absent_ones_are_the_models() {
    let response = || json!({ "model": "gpt", "input": "hi" });
    let world =
        World::start(Plan::with([quota(key(), Measure::OutputTokens, PeriodKind::Day, 100_000)])).await;
    for (path, body, member) in [
        (CHAT, ask("hi"), "max_tokens"),
        (CHAT, ask("hi"), "max_completion_tokens"),
        (RESPONSES, response(), "max_output_tokens"),
        (MESSAGES, messages("hi"), "max_tokens"),
    ] {
        let before = (world.balance(0).await, world.up.calls().len());
        for odd in [json!(-1), json!("100"), json!(1.5), json!([]), json!({}), json!(true)] {
            let mut body = body.clone();
            body[member] = odd;
            let answer = world.post(path, &body).await;
            assert_told(path, &answer, 400, "invalid_request_error");
            assert!(answer.text().contains(member), "it is named: {}", answer.text());
        }
        assert_eq!((world.balance(0).await, world.up.calls().len()), before, "{path} {member}");
    }
    for (path, body, member) in
        [(CHAT, ask("hi"), "max_tokens"), (RESPONSES, response(), "max_output_tokens")]
    {
        for (cap, held) in [(Some(json!(null)), 4_096), (None, 4_096), (Some(json!(0)), 1)] {
            let world =
                World::start(Plan::with([quota(key(), Measure::OutputTokens, PeriodKind::Day, 100_000)]))
                    .await;
            let mut body = body.clone();
            if let Some(cap) = &cap {
                body[member] = cap.clone();
            }
            assert_eq!(held_by(&world, path, &body).await, held, "{path} {cap:?}");
        }
    }
}

/// A picture of that many bytes, as text: the header of a PNG of 1024 × 768 and then anything.
fn picture(bytes: usize) -> String {
    let header = "iVBORw0KGgoAAAANSUhEUgAABAAAAAMA";
    let noise = "q83vASNFZ4mrze8BI0VniavN7wEjRWeJ";
    format!("{header}{}", noise.repeat(bytes / 24))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b101_inline_images_cost_a_flat_figure_on_every_surface() {
    let data = picture(2_500_000);
    let url = format!("data:image/png;base64,{data}");
    let chat = json!({ "type": "image_url", "image_url": { "url": url } });
    let response = json!({ "type": "input_image", "image_url": url });
    let message =
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } });
    let body = |path: &str, images: usize| {
        let (text, image, model) = match path {
            CHAT => ("text", &chat, "gpt"),
            RESPONSES => ("input_text", &response, "gpt"),
            _ => ("text", &message, "claude"),
        };
        let mut parts = vec![json!({ "type": text, "text": "word" })];
        parts.extend(vec![image.clone(); images]);
        let said = json!([{ "role": "user", "content": parts }]);
        match path {
            RESPONSES => json!({ "model": model, "max_output_tokens": 10, "input": said }),
            _ => json!({ "model": model, "max_tokens": 10, "messages": said }),
        }
    };
    let per_minute = || {
        let mut limit = rate(key(), Measure::Tokens, 50_000);
        limit.estimator = Some(EstimatorChoice::Constant(1));
        Plan::with([limit])
    };
    for path in [CHAT, RESPONSES, MESSAGES] {
        let mut held = Vec::new();
        for images in 0..3 {
            // A world for each: what was learned from one call changes the hold of the next.
            let world = World::start(per_minute()).await;
            held.push(held_by(&world, path, &body(path, images)).await);
        }
        let each = held[1] - held[0];
        assert!((85..=5_000).contains(&each), "{path}: {held:?}");
        assert_eq!(held[2] - held[0], 2 * each, "{path}: {held:?}");
        let world = World::start(per_minute()).await;
        let mut text = body(path, 0);
        let said = if path == RESPONSES { "input" } else { "messages" };
        text[said][0]["content"] = json!(data);
        let refused = world.post(path, &text).await;
        assert_eq!((refused.status.as_u16(), world.up.calls().len()), (413, 0), "{path}: text is text");
    }
}

/// What a picture adds to a hold is the same wherever it lies: in a turn of the user, or in the result of a tool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b102_a_picture_in_the_result_of_a_tool_is_held_like_any_other() {
    let data = picture(300_000);
    let url = format!("data:image/png;base64,{data}");
    let response = json!({ "type": "input_image", "image_url": url });
    let message =
        json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": data } });
    let body = |path: &str, nested: bool, pictured: bool| {
        let (mut parts, image) = match path {
            RESPONSES => (vec![json!({ "type": "input_text", "text": "seen" })], &response),
            _ => (vec![json!({ "type": "text", "text": "seen" })], &message),
        };
        parts.extend(pictured.then(|| image.clone()));
        let said = match (path, nested) {
            (RESPONSES, true) => json!([{ "type": "function_call_output", "call_id": "c", "output": parts }]),
            (_, true) => {
                let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": parts });
                json!([{ "role": "user", "content": [result] }])
            }
            (_, false) => json!([{ "role": "user", "content": parts }]),
        };
        match path {
            RESPONSES => json!({ "model": "gpt", "max_output_tokens": 10, "input": said }),
            _ => json!({ "model": "claude", "max_tokens": 10, "messages": said }),
        }
    };
    for path in [RESPONSES, MESSAGES] {
        let mut added = Vec::new();
        for nested in [false, true] {
            let mut held = Vec::new();
            for pictured in [false, true] {
                // A world for each: what was learned from one call changes the hold of the next.
                let world = World::start(daily(50_000)).await;
                held.push(held_by(&world, path, &body(path, nested, pictured)).await);
            }
            assert!(held[0] < 100, "the text alone: {held:?}");
            added.push(held[1] - held[0]);
        }
        assert!((85..=6_250).contains(&added[0]), "{path}: {added:?}");
        assert!((added[1] - added[0]).abs() <= 1, "{path}: rounding apart they are one: {added:?}");
    }
}

/// Four calls without a cap at one moment; how many are let in, and what of the others once those have ended.
async fn four_without_a_cap(facts: ModelFacts) -> (usize, Vec<Answer>) {
    let world = Arc::new(World::start(Plan { facts, ..daily(10_000) }).await);
    world.up.set_default(Script::output(100));
    world.up.hold_until_released();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.chat(&ask("hi")).await })
        })
        .collect();
    let busy = (Side::Tenant, Counted::LlmTokens, Denial::Busy);
    let decided = || world.up.calls().len() as u64 + world.metrics.admission_denied.get(busy);
    world.until("all four are decided", || decided() == 4).await;
    let admitted = world.up.calls().len();
    world.up.release();
    for call in calls {
        call.await.unwrap();
    }
    world.settled().await;
    let mut later = Vec::new();
    for _ in 0..4 - admitted {
        later.push(world.chat(&ask("hi")).await);
    }
    (admitted, later)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b111_without_a_cap_the_default_is_held_and_given_back() {
    let (admitted, later) = four_without_a_cap(ModelFacts::guessed("gpt-4o")).await;
    assert_eq!((admitted, later.len()), (2, 2), "4,096 each");
    assert!(later.iter().all(|answer| answer.status == 200), "what was not used is free again");
    let own = ModelFacts { output_default: 2_000, ..ModelFacts::guessed("gpt-4o") };
    assert_eq!(four_without_a_cap(own).await.0, 4, "a model may have its own");
    // Neither nothing nor all that the model can give.
    let large = ModelFacts { output_max: Some(64_000), ..ModelFacts::guessed("gpt-4o") };
    assert_eq!(four_without_a_cap(large).await.0, 2);
}

/// A request of that many bytes, most of them blanks: they are read like any others.
fn of_size(path: &str, bytes: usize) -> String {
    let body = if path == MESSAGES { messages("x") } else { ask("x") }.to_string();
    let (head, end) = body.split_at(body.len() - 1);
    format!("{head}{}{end}", " ".repeat(bytes - body.len()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b135_bodies_of_many_megabytes_are_served_by_default_and_those_over_it_refused() {
    const BOUND: usize = 32 << 20;
    assert_eq!(tollbook_gateway::Bounds::default().body_max, BOUND);
    let world = World::start(Plan::with([quota(key(), Measure::Requests, PeriodKind::Day, 100)])).await;
    let headers = [("x-api-key", API_KEY)];
    let mut served = 0;
    for bytes in [2_097_151, 2_097_153, 20_000_000, BOUND] {
        let answer = world.send("POST", CHAT, &headers, of_size(CHAT, bytes)).await;
        assert_eq!(answer.status, 200, "{bytes}: {}", answer.text());
        served += 1;
    }
    let rejected = |dialect| world.metrics.calls_rejected.get((dialect, Problem::TooLarge));
    for (path, dialect) in [(CHAT, Dialect::OpenAi), (MESSAGES, Dialect::Anthropic)] {
        let before = rejected(dialect);
        // What is too long by its own account is refused before any of it is read.
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\n");
        let told = format!("{head}content-length: {}\r\n\r\n", BOUND + 1);
        let answer = tokio::task::block_in_place(|| raw(&world, told.as_bytes()));
        assert_too_large(path, &answer);
        assert_eq!(rejected(dialect) - before, 1, "{path}: it is counted once");
        // The same without a length; more is sent than is read.
        let piece = format!("100000\r\n{}\r\n", "a".repeat(1 << 20));
        let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{}", piece.repeat(33));
        let answer = tokio::task::block_in_place(|| raw(&world, chunked.as_bytes()));
        assert_too_large(path, &answer);
        assert_eq!(rejected(dialect) - before, 2, "{path}");
    }
    assert_eq!(world.up.calls().len(), served);
    assert_eq!(world.balance(0).await, (i64::try_from(served).unwrap(), 0));
}

/// The answer on a bare socket: 413, in the shape of the path.
fn assert_too_large(path: &str, answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
    assert!(answer.contains("content-type: application/json"), "{path}: {answer}");
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let member = if path == MESSAGES { "type" } else { "code" };
    assert_eq!(body["error"][member], "request_too_large", "{path}: {answer}");
    assert_eq!(body["type"] == "error", path == MESSAGES, "{path}: {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b140_odd_text_is_the_clients_mistake_in_both_dialects() {
    let world = World::start(Plan::with([rate(key(), Measure::Requests, 10)])).await;
    let headers = [("x-api-key", API_KEY)];
    for path in [CHAT, MESSAGES] {
        let model = if path == CHAT { "gpt" } else { "claude" };
        let of = |text: &[u8]| {
            let head =
                format!(r#"{{"model":"{model}","max_tokens":9,"messages":[{{"role":"user","content":""#);
            [head.as_bytes(), text, br#""}]}"#].concat()
        };
        let (posted, sent) = (world.balance(0).await.0, world.up.calls().len());
        for text in
            [&br"x \ud83d"[..], br"x \udE00", br"\ud83d\u0041", b"x \xff", b"\xed\xa0\xbd", b"\xc0\xaf"]
        {
            let answer = world.send("POST", path, &headers, of(text)).await;
            assert_told(path, &answer, 400, "invalid_request_error");
            assert_eq!(answer.header("retry-after"), None);
        }
        assert_eq!((world.balance(0).await, world.up.calls().len()), ((posted, 0), sent), "{path}");
        let pair = world.send("POST", path, &headers, of(br"x \ud83d\ude00")).await;
        assert_eq!(pair.status, 200, "{path}: {}", pair.text());
        assert_eq!(world.up.calls().len(), sent + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b141_each_provider_sees_its_own_credential_alone() {
    let world = World::start(Plan::with([rate(key(), Measure::Requests, 10)])).await;
    let bearer = format!("Bearer {API_KEY}");
    let cookie = format!("session={API_KEY}; key={API_KEY}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("x-api-key", API_KEY),
        ("api-key", API_KEY),
        ("x-goog-api-key", API_KEY),
        ("proxy-authorization", bearer.as_str()),
        ("cookie", cookie.as_str()),
    ];
    let response = json!({ "model": "gpt", "input": "x" });
    for (path, body) in [(CHAT, ask("x")), (RESPONSES, response), (MESSAGES, messages("x"))] {
        let target = format!("{path}?key={API_KEY}&beta=true&api-key={API_KEY}");
        let answer = world.send("POST", &target, &headers, body.to_string()).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let call = world.up.calls().pop().unwrap();
        let seen = format!("{:?} {} {}", call.headers, call.target, call.body);
        assert!(!seen.contains(API_KEY), "{path}: {seen}");
        assert!(call.target.contains("beta=true"), "{path}: {}", call.target);
        let own = if path == MESSAGES { "x-api-key" } else { "authorization" };
        let value = if path == MESSAGES { "provider-secret" } else { "Bearer provider-secret" };
        assert_eq!(call.header(own), Some(value), "{path}");
        let others =
            ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization"];
        for other in others.into_iter().filter(|name| *name != own) {
            assert_eq!(call.header(other), None, "{path}: {other}");
        }
    }
}

/// An error in the dialect of its path: the shape, the type, nothing that a client cannot classify.
fn assert_told(path: &str, answer: &Answer, status: u16, kind: &str) {
    let what = format!("{path}: {} {}", answer.status, answer.text());
    assert_eq!(answer.status, status, "{what}");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
    let body = answer.json();
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{what}");
    assert!(error["type"].as_str().is_some_and(|text| !text.is_empty() && text != "None"), "{what}");
    if path == MESSAGES {
        let mut members: Vec<&String> = body.as_object().unwrap().keys().collect();
        members.sort_unstable();
        assert_eq!(members, ["error", "request_id", "type"], "{what}");
        assert_eq!((&body["type"], error["type"].as_str()), (&json!("error"), Some(kind)), "{what}");
        assert!(body["request_id"].as_str().unwrap().starts_with("req_"), "{what}");
    } else {
        let mut members: Vec<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
        members.sort_unstable();
        assert_eq!((body.as_object().unwrap().len(), members), (1, vec!["code", "message", "param", "type"]));
        assert!(error["type"] == kind || error["code"] == kind, "{what}");
        assert!(error["code"] != "None" && error["param"] != "None", "{what}");
    }
}

/// Everything that can stand in a call's way, in both dialects, plain and streamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b148_every_refusal_is_told_in_the_dialect_of_its_path() {
    let limits = || {
        let mut budget = quota(tenant(), Measure::Cost, PeriodKind::Day, 1_000_000_000);
        budget.hold = Some(Hold::Expected);
        [rate(key(), Measure::Requests, 1), budget]
    };
    let body_of = |path: &str| if path == CHAT { ask("x") } else { messages("x") };
    for path in [CHAT, MESSAGES] {
        for stream in [false, true] {
            let anthropic = path == MESSAGES;
            let kind =
                |openai: &'static str, messages: &'static str| if anthropic { messages } else { openai };
            let mut body = body_of(path);
            body["stream"] = json!(stream);
            let world = World::start(Plan {
                config: |c| c.bounds.body_max = 10_000,
                upstream: |u| u.retries = 0,
                ..Plan::with(limits())
            })
            .await;
            let headers = [("x-api-key", API_KEY)];
            let sent =
                async |headers: &[(&str, &str)], body: String| world.send("POST", path, headers, body).await;
            assert_told(path, &sent(&headers, "{".into()).await, 400, "invalid_request_error");
            let no_key = sent(&[("x-api-key", "no")], body.to_string()).await;
            assert_told(path, &no_key, 401, kind("invalid_api_key", "authentication_error"));
            let mut unknown = body.clone();
            unknown["model"] = json!("nope");
            let unknown = sent(&headers, unknown.to_string()).await;
            assert_told(path, &unknown, 404, kind("model_not_found", "not_found_error"));
            let large = sent(&headers, of_size(path, 10_001)).await;
            assert_told(path, &large, 413, "request_too_large");

            // The provider says no, or is not there.
            world.up.script(Script::error(500, "no"));
            let down = sent(&headers, body.to_string()).await;
            assert_told(path, &down, 502, kind("server_error", "api_error"));
            let limited = sent(&headers, body.to_string()).await;
            assert_told(path, &limited, 429, kind("rate_limit_exceeded", "rate_limit_error"));
            assert!(limited.header("retry-after").is_some());
            world.engine.set(Mood::Away);
            let away = sent(&headers, body.to_string()).await;
            assert_told(path, &away, 503, kind("ledger_unavailable", "overloaded_error"));

            let [_, budget] = limits();
            let world = World::start(Plan::with([budget])).await;
            let over = Generate {
                input_llm_tokens: Some(900_000),
                output_llm_tokens: Some(9),
                ignore_cap: true,
                ..Generate::default()
            };
            world.up.script(over.into());
            assert_eq!(world.post(path, &body_of(path)).await.status, 200);
            let spent = world.post(path, &body).await;
            assert_told(
                path,
                &spent,
                if anthropic { 402 } else { 429 },
                kind("insufficient_quota", "billing_error"),
            );

            let world = World::start(Plan {
                upstream: |u| u.base_url = "http://127.0.0.1:1/v1".parse().unwrap(),
                ..Plan::with(limits())
            })
            .await;
            let gone = world.post(path, &body).await;
            assert_told(path, &gone, 502, kind("upstream_error", "api_error"));
        }
    }
}

/// A day of the month that lies between nine days and three weeks ahead, whatever today is.
fn a_day_well_ahead() -> u8 {
    let today = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::now()).day();
    u8::try_from((i16::from(today) + 13) % 28 + 1).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b153_a_budget_that_is_spent_for_weeks_makes_no_client_wait() {
    let mut budget = quota(tenant(), Measure::Cost, PeriodKind::Month, 1_000_000);
    let anchor = Some(Anchor::DayOfMonth(a_day_well_ahead()));
    budget.shape = ShapeDraft::Quota { period: PeriodKind::Month, zone: None, anchor };
    let world = World::start(Plan::with([budget])).await;
    let over = Generate {
        input_llm_tokens: Some(600),
        output_llm_tokens: Some(50),
        ignore_cap: true,
        ..Generate::default()
    };
    world.up.script(over.into());
    let small = |path: &str| {
        let mut body = if path == CHAT { ask("x") } else { messages("x") };
        body["max_tokens"] = json!(20);
        body
    };
    assert_eq!(world.chat(&small(CHAT)).await.status, 200);
    world.settled().await;
    assert!(world.balance(0).await.0 > 1_000_000);
    for path in [CHAT, MESSAGES] {
        let begun = std::time::Instant::now();
        let refused = world.post(path, &small(path)).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "nothing waits");
        let status = if path == CHAT { 429 } else { 402 };
        assert_told(
            path,
            &refused,
            status,
            if path == CHAT { "insufficient_quota" } else { "billing_error" },
        );
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        assert_eq!((refused.header("retry-after"), refused.header("retry-after-ms")), (None, None));
        let reset: jiff::Timestamp = refused.header("x-tollbook-reset").unwrap().parse().unwrap();
        let days = (reset.as_second() - jiff::Timestamp::now().as_second()) / 86_400;
        assert!((9..25).contains(&days), "{reset}");
        let told = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(told.contains(&reset.to_string()), "the message tells it too: {told}");
    }
    assert_eq!(world.up.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b135_b140_refused_bodies_take_no_slot() {
    let world =
        World::start(Plan { config: |c| c.bounds.body_max = 10_000, ..Plan::with([concurrency(key(), 1)]) })
            .await;
    let headers = [("x-api-key", API_KEY)];
    for _ in 0..5 {
        assert_eq!(world.send("POST", CHAT, &headers, of_size(CHAT, 10_001)).await.status, 413);
        assert_eq!(
            world
                .send(
                    "POST",
                    CHAT,
                    &headers,
                    &br#"{"model":"gpt","messages":[{"role":"user","content":"\ud83d"}]}"#[..]
                )
                .await
                .status,
            400
        );
        assert_eq!(world.balance(0).await, (0, 0));
    }
    assert_eq!(world.chat(&ask("x")).await.status, 200);
}
