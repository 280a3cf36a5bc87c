//! Field cases HTP, ERR, SSE and USE at the gateway's edge: what is checked is what is sent, every refusal has the
//! dialect's shape and costs nothing.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tollbook_mock_upstream::{ErrorBody, Generate, Script, Step, UsageMode};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::Figures;

use crate::world::{API_KEY, OTHER_API_KEY, Plan, World, ask, ask_stream, key, quota, rate, tenant};

fn requests(ceiling: i128) -> Plan {
    Plan::with([rate(key(), Measure::Requests, ceiling)])
}

fn messages(text: &str) -> Value {
    json!({ "model": "claude", "max_tokens": 50, "messages": [{ "role": "user", "content": text }] })
}

/// Sends bytes on a bare socket and returns what comes back until the end of the connection or two seconds of silence.
pub(crate) fn raw(world: &World, bytes: &[u8]) -> String {
    let mut socket = std::net::TcpStream::connect(world.addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let _ = socket.write_all(bytes);
    let mut out = Vec::new();
    let _ = socket.read_to_end(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Sends a head and then a chunk of one byte at a time, until there is an answer or 10 s are over.
pub(crate) fn trickle(world: &World, head: &str) -> String {
    let mut socket = std::net::TcpStream::connect(world.addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    let mut out = Vec::new();
    for _ in 0..200 {
        if !out.is_empty() || socket.write_all(b"1\r\nx\r\n").is_err() {
            break;
        }
        let _ = socket.read_to_end(&mut out);
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b133_an_edited_body_has_its_own_length() {
    let world = World::start(requests(10)).await;
    assert_eq!(world.chat(&ask_stream("hello")).await.status, 200);
    let call = &world.up.calls()[0];
    let length: u64 = call.header("content-length").unwrap().parse().unwrap();
    assert_eq!(length, call.body_bytes);
    assert_eq!(call.json()["stream_options"]["include_usage"], true);
    assert_eq!(call.json()["model"], "gpt-upstream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b135_bodies_at_the_bound() {
    let world = World::start(Plan { config: |c| c.bounds.body_max = 100_000, ..requests(1_000) }).await;
    let of_size = |bytes: usize| {
        let empty = ask("").to_string().len();
        ask(&"a".repeat(bytes - empty)).to_string()
    };
    let headers = [("x-api-key", API_KEY)];
    let fits = world.send("POST", "/v1/chat/completions", &headers, of_size(100_000)).await;
    assert_eq!(fits.status, 200);
    for (path, kind) in [("/v1/chat/completions", "request_too_large"), ("/v1/messages", "request_too_large")]
    {
        let over = world.send("POST", path, &headers, of_size(100_001)).await;
        assert_eq!(over.status, 413);
        assert!(over.text().contains(kind));
    }
    assert_eq!(world.up.calls().len(), 1);
    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n",
        format!("1000\r\n{}\r\n", "a".repeat(4096)).repeat(25)
    );
    let answer = tokio::task::block_in_place(|| raw(&world, chunked.as_bytes()));
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(world.balance(0).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b140_unpaired_surrogates_are_the_clients_mistake() {
    let world = World::start(requests(10)).await;
    let headers = [("x-api-key", API_KEY)];
    let body = r#"{"model":"gpt","messages":[{"role":"user","content":"x \ud83d"}]}"#;
    let answer = world.send("POST", "/v1/chat/completions", &headers, body).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].is_string());
    let pair = r#"{"model":"gpt","messages":[{"role":"user","content":"x \ud83d\ude00"}]}"#;
    assert_eq!(world.send("POST", "/v1/chat/completions", &headers, pair).await.status, 200);
    let bytes = b"{\"model\":\"gpt\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}".to_vec();
    assert_eq!(world.send("POST", "/v1/chat/completions", &headers, bytes).await.status, 400);
    assert_eq!(world.balance(0).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b141_the_clients_credential_goes_nowhere() {
    let world = World::start(requests(10)).await;
    let bearer = format!("Bearer {API_KEY}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("x-api-key", API_KEY),
        ("api-key", API_KEY),
        ("cookie", API_KEY),
    ];
    let path = format!("/v1/chat/completions?key={API_KEY}&beta=true");
    assert_eq!(world.send("POST", &path, &headers, ask("x").to_string()).await.status, 200);
    let call = &world.up.calls()[0];
    assert!(!format!("{:?} {}", call.headers, call.target).contains(API_KEY));
    assert!(call.target.ends_with("?beta=true"));
    assert_eq!(call.header("authorization"), Some("Bearer provider-secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b142_b143_one_key_one_account_however_it_is_spelt() {
    let world = World::start(requests(3)).await;
    let body = ask("x").to_string();
    let status = async |headers: &[(&str, &str)]| {
        world.send("POST", "/v1/chat/completions", headers, body.clone()).await.status.as_u16()
    };
    let bearer = format!("Bearer {API_KEY}");
    assert_eq!(status(&[("authorization", &bearer)]).await, 200);
    assert_eq!(status(&[("authorization", &format!("bearer  {API_KEY}"))]).await, 200);
    assert_eq!(status(&[("x-api-key", API_KEY)]).await, 200);
    assert_eq!(status(&[("x-api-key", API_KEY), ("authorization", &bearer)]).await, 429);
    assert_eq!(status(&[("x-api-key", OTHER_API_KEY), ("authorization", &bearer)]).await, 401);
    assert_eq!(status(&[("authorization", &format!("x Bearer {API_KEY}"))]).await, 401);
    assert_eq!(status(&[]).await, 401);
    assert_eq!(status(&[("x-api-key", "tb_unknown")]).await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b252_discovery_works_with_every_limit_spent() {
    let world = World::start(requests(0)).await;
    let headers = [("x-api-key", API_KEY)];
    let models = world.send("GET", "/v1/models", &headers, "").await;
    assert!(models.text().contains("\"gpt\""));
    let limits = world.send("GET", "/v1/limits", &headers, "").await.json();
    assert_eq!(limits["data"][0]["ceiling"], 0, "{limits}");
    assert_eq!(world.send("GET", "/v1/limits", &[], "").await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b145_duplicate_keys_are_refused() {
    let world = World::start(requests(10)).await;
    let headers = [("x-api-key", API_KEY)];
    for body in [
        r#"{"model":"gpt","model":"dear","messages":[]}"#,
        r#"{"model":"gpt","max_tokens":1,"max_tokens":9000,"messages":[]}"#,
        r#"{"model":"gpt","stream":false,"stream":true,"messages":[]}"#,
    ] {
        let answer = world.send("POST", "/v1/chat/completions", &headers, body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.json()["error"]["param"].is_string(), "{}", answer.text());
    }
    assert_eq!(world.up.calls().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b147_an_error_under_a_200_is_an_error() {
    let world = World::start(Plan {
        upstream: |u| u.retries = 0,
        ..Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])
    })
    .await;
    let error = |kind: &str| json!({ "error": { "message": "no", "type": kind, "code": null } });
    let html = |status| Script {
        status: Some(status),
        ..Script::steps(vec![Step::Text("<html>busy</html>".into())]).header("content-type", "text/html")
    };
    let mut calls = 0;
    for body in [ask("x"), ask_stream("x")] {
        for (script, status) in [
            (Script::json(200, error("server_error")), 503),
            (Script::json(200, error("invalid_request_error")), 502),
            (Script::json(500, error("server_error")), 502),
            (html(200), 502),
            (html(429), 429),
            (Script::steps(vec![]), 502),
        ] {
            let what = format!("{script:?} asked by {body}");
            world.up.script(script);
            let answer = world.chat(&body).await;
            calls += 1;
            assert_eq!(answer.status, status, "{what}: {}", answer.text());
            assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
            assert!(answer.json()["error"]["message"].is_string(), "{what}");
            world.settled().await;
            assert_eq!(world.balance(0).await, (0, 0), "{what}");
        }
    }
    assert_eq!(world.up.calls().len(), calls);
}

/// Text that is special to a vocabulary is text, however the input is counted: by its bytes, or exactly near a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b108_special_words_are_forwarded_unchanged() {
    let text = "<|endoftext|> <|im_start|>user<|im_end|> <|fim_prefix|> <|endofprompt|>".repeat(20);
    for ceiling in [1_000_000, 2_500] {
        let limit = quota(key(), Measure::Tokens, PeriodKind::Day, ceiling);
        let world = World::start(Plan::with([limit])).await;
        for (path, model) in [("/v1/chat/completions", "gpt"), ("/v1/messages", "claude")] {
            let body = json!({ "model": model, "max_tokens": 40, "messages": [{ "role": "user", "content": text }] });
            let answer = world.post(path, &body).await;
            assert_eq!(answer.status, 200, "{path} under {ceiling}: {}", answer.text());
            let call = world.up.calls_at_rest().pop().unwrap();
            assert_eq!(call.json()["messages"], body["messages"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b148_errors_speak_the_clients_dialect() {
    let plan = Plan::with([
        rate(key(), Measure::Requests, 1),
        quota(tenant(), Measure::Cost, PeriodKind::Day, 10_000_000),
    ]);
    let world = World::start(plan).await;
    let headers = [("x-api-key", API_KEY)];
    let told = async |headers: &[(&str, &str)], body: &str| {
        let answer = world.send("POST", "/v1/messages", headers, body.to_owned()).await;
        let json = answer.json();
        assert_eq!(json["type"], "error", "{json}");
        assert!(json["request_id"].as_str().unwrap().starts_with("req_"));
        (answer.status.as_u16(), json["error"]["type"].as_str().unwrap().to_owned())
    };
    assert_eq!(told(&headers, "{").await, (400, "invalid_request_error".into()));
    assert_eq!(told(&[("x-api-key", "no")], "{}").await, (401, "authentication_error".into()));
    let unknown = json!({ "model": "nope", "max_tokens": 5, "messages": [] }).to_string();
    assert_eq!(told(&headers, &unknown).await, (404, "not_found_error".into()));
    let large = json!({ "model": "claude", "max_tokens": 1_000_000, "messages": [] }).to_string();
    assert_eq!(told(&headers, &large).await, (413, "request_too_large".into()));
    assert_eq!(world.post("/v1/messages", &messages("x")).await.status, 200);
    assert_eq!(told(&headers, &messages("x").to_string()).await, (429, "rate_limit_error".into()));
    let stream = {
        let mut m = messages("x");
        m["stream"] = json!(true);
        m.to_string()
    };
    assert_eq!(told(&headers, &stream).await, (429, "rate_limit_error".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b149_a_spent_budget_has_its_own_type_in_both_dialects() {
    let budget = quota(tenant(), Measure::Cost, PeriodKind::Day, 1_000_000_000);
    let world = World::start(Plan::with([budget])).await;
    // One overrun spends it: the provider used more than anyone could know.
    world.up.script(
        Generate {
            input_llm_tokens: Some(400_000),
            output_llm_tokens: Some(40_000),
            ignore_cap: true,
            ..Generate::default()
        }
        .into(),
    );
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let (posted, _) = world.balance(0).await;
    assert!(posted > 1_000_000_000);
    for stream in [false, true] {
        let mut body = ask("x");
        body["stream"] = json!(stream);
        let refused = world.chat(&body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.json()["error"]["code"].as_str()),
            (429, Some("insufficient_quota"))
        );
        assert_eq!(refused.header("x-should-retry"), Some("false"));
        assert!(refused.header("x-tollbook-reset").unwrap().ends_with("T00:00:00Z"));
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("starts anew at"));
        let mut body = messages("x");
        body["stream"] = json!(stream);
        let refused = world.post("/v1/messages", &body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.json()["error"]["type"].as_str()),
            (402, Some("billing_error"))
        );
    }
    assert_eq!(world.up.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b149_a_streamed_message_fails_with_the_type_of_a_plain_one() {
    let world = World::start(Plan {
        upstream: |u| u.retries = 0,
        ..Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])
    })
    .await;
    for stream in [false, true] {
        let mut body = messages("x");
        body["stream"] = json!(stream);
        let told = async |api_key: &str| {
            let headers = [("x-api-key", api_key)];
            let answer = world.send("POST", "/v1/messages", &headers, body.to_string()).await;
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let json = answer.json();
            assert_eq!(json["type"], "error", "{json}");
            (answer.status.as_u16(), json["error"]["type"].as_str().unwrap().to_owned())
        };
        assert_eq!(told("tb_unknown").await, (401, "authentication_error".into()));
        // The provider's own refusals, before its first event.
        for (status, kind, want) in [
            (529, "overloaded_error", (529, "overloaded_error")),
            (400, "invalid_request_error", (400, "invalid_request_error")),
            (404, "not_found_error", (404, "not_found_error")),
        ] {
            let error = ErrorBody { message: "no".into(), kind: kind.into(), code: None };
            let answer = tollbook_mock_upstream::Answer::Error(error);
            world.up.script(Script { status: Some(status), answer, ..Script::default() });
            assert_eq!(told(API_KEY).await, (want.0, want.1.into()), "{status}, stream: {stream}");
        }
        // An error behind the first words is an event of the same type.
        if stream {
            let start = json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message",
                "role": "assistant", "model": "m", "content": [], "usage": { "input_tokens": 3, "output_tokens": 1 } } });
            let delta = json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "text_delta", "text": "hi" } });
            let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "no" } });
            let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
            let events = [start, delta, error].map(event).concat();
            world.up.script(Script::steps(vec![Step::Text(events.clone())]));
            let answer = world.post("/v1/messages", &body).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (200, events));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b150_a_rate_refusal_tells_how_long_to_wait() {
    let world = World::start(requests(1)).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let refused = world.chat(&ask("x")).await;
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(refused.json()["error"]["type"], "requests");
    // With its jitter a full window may pass the minute, and then SDKs are told not to sleep it.
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((58..=75).contains(&seconds), "{seconds}");
    if seconds <= 60 {
        let millis: u64 = refused.header("retry-after-ms").unwrap().parse().unwrap();
        assert_eq!(millis.div_ceil(1000), seconds);
    } else {
        assert_eq!(refused.header("x-should-retry"), Some("false"));
    }
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("Please try again in "));
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b162_an_error_as_the_first_event_is_an_error_answer() {
    let world = World::start(Plan {
        upstream: |u| u.retries = 0,
        ..Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])
    })
    .await;
    let event = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    world.up.script(Script::steps(vec![Step::Text(": hi\n\n".into()), Step::Text(event.into())]));
    let mut body = messages("x");
    body["stream"] = json!(true);
    let answer = world.post("/v1/messages", &body).await;
    assert!(matches!(answer.status.as_u16(), 503 | 529), "{answer:?}");
    assert_eq!(answer.json()["error"]["type"], "overloaded_error");
    assert_eq!(world.balance(0).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b048_an_option_the_client_never_sent_is_taken_back() {
    let plan = Plan::with([
        rate(key(), Measure::Requests, 10),
        quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
    ]);
    let world = World::start(plan).await;
    world.up.script(Script::error(400, "unknown field stream_options"));
    world.up.script(
        Generate { usage: UsageMode::Never, output_llm_tokens: Some(30), ..Generate::default() }.into(),
    );
    let answer = world.chat(&ask_stream("x")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(world.balance(0).await, (1, 0));
    assert_eq!(world.journal().await[0].1.figures, Figures::Metered);
    assert!(world.up.calls()[1].json().get("stream_options").is_none());
    // A client that sent it itself gets the refusal.
    world.up.script(Script::error(400, "unknown field stream_options"));
    let mut body = ask_stream("x");
    body["stream_options"] = json!({ "include_usage": true });
    assert_eq!(world.chat(&body).await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b174_retries_wait_as_told_and_hold_once() {
    let plan = Plan { upstream: |u| u.retries = 2, ..requests(10) };
    let world = World::start(plan).await;
    world.up.script(Script::error(429, "slow").header("retry-after-ms", "100"));
    world.up.script(Script::error(429, "slow").header("retry-after-ms", "300"));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let calls = world.up.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls[1].arrived_ms - calls[0].arrived_ms >= 100);
    assert!(calls[2].arrived_ms - calls[1].arrived_ms >= 300);
    assert_eq!(world.balance(0).await, (1, 0));
    assert_eq!(world.journal().await[0].1.attempts, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b175_tries_are_bounded_whatever_the_provider_says() {
    let world = World::start(Plan { upstream: |u| u.retries = 1, ..requests(10) }).await;
    world.up.set_default(Script::error(503, "no").header("retry-after-ms", "1"));
    assert_eq!(world.chat(&ask("x")).await.status, 503);
    assert_eq!(world.up.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_account_is_never_quoted() {
    let world = World::start(Plan { upstream: |u| u.retries = 0, ..requests(100) }).await;
    let secret = "org-secret-12345 has run out of money";
    for (status, kind, code) in
        [(401, "", ""), (402, "", ""), (429, "insufficient_quota", "insufficient_quota"), (403, "", "")]
    {
        let body = ErrorBody { message: secret.into(), kind: kind.into(), code: Some(code.to_owned()) };
        let script = Script {
            status: Some(status),
            answer: tollbook_mock_upstream::Answer::Error(body),
            ..Script::default()
        };
        world.up.script(
            script.header("x-ratelimit-remaining-requests", "7").header("openai-organization", "org-secret"),
        );
        let answer = world.chat(&ask("x")).await;
        assert!(answer.status.as_u16() >= 500, "{status}: {}", answer.status);
        assert!(!answer.text().contains("org-secret"));
        assert!(answer.header("openai-organization").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_heads_are_answered_and_cost_nothing() {
    let world = World::start(Plan {
        config: |c| {
            c.timeouts.head = Duration::from_millis(300);
            c.timeouts.body_silence = Duration::from_millis(300);
        },
        ..requests(10)
    })
    .await;
    let many = "a: b\r\n".repeat(200);
    let long = format!("a: {}\r\n", "b".repeat(200_000));
    for (name, bytes) in [
        ("endless headers", format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{many}\r\n")),
        ("a long header", format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{long}\r\n")),
        ("nonsense", "\u{0}\u{1}\u{2}\r\n\r\n".to_owned()),
        ("a slow head", "POST /v1/chat/comp".to_owned()),
        (
            "a slow body",
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\ncontent-length: 50\r\n\r\n{{"
            ),
        ),
        (
            "two lengths",
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde".to_owned(),
        ),
        ("a negative length", "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n".to_owned()),
    ] {
        let answer = tokio::task::block_in_place(|| raw(&world, bytes.as_bytes()));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{name}: {answer}");
    }
    assert_eq!(world.balance(0).await, (0, 0));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b235_a_client_that_never_reads_is_cut_and_settled() {
    let world = World::start(Plan {
        config: |c| c.timeouts.write_stall = Duration::from_millis(500),
        ..Plan::with([
            rate(key(), Measure::Requests, 10),
            quota(key(), Measure::Tokens, PeriodKind::Day, 100_000_000),
        ])
    })
    .await;
    let chunk = format!(
        "data: {}\n\n",
        json!({ "choices": [{ "index": 0, "delta": { "content": "y".repeat(100_000) } }] })
    );
    world.up.script(Script::steps(vec![Step::Repeat { text: chunk, times: 1_000, every_ms: 0 }]));
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\ncontent-length: {}\r\n\r\n{}",
        ask_stream("x").to_string().len(),
        ask_stream("x")
    );
    let mut socket = std::net::TcpStream::connect(world.addr).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    world.until("the call is at the provider", || !world.up.calls().is_empty()).await;
    world.settled().await;
    assert!(world.journal().await[0].1.usage.output > 0);
    drop(socket);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b125_a_missing_done_is_added_where_the_answer_was_whole() {
    let world = World::start(requests(10)).await;
    world.up.script(Generate { omit_done: true, ..Generate::default() }.into());
    let text = world.chat(&ask_stream("x")).await.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b099_a_missing_cap_is_no_mistake_where_only_requests_are_limited() {
    let world = World::start(requests(10)).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let call = world.up.calls()[0].json();
    assert!(call.get("max_tokens").is_none() && call.get("max_completion_tokens").is_none());
    // Where a hard limit counts output, the cap that was held is written into the request.
    let world = World::start(Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    assert_eq!(world.up.calls()[0].json()["max_completion_tokens"], 4096);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b046_a_client_that_opted_out_of_usage_gets_none() {
    let world = World::start(Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])).await;
    for options in [json!({ "include_usage": false }), json!({}), json!(null)] {
        let mut body = ask_stream("x");
        body["stream_options"] = options;
        let text = world.chat(&body).await.text();
        assert!(!text.contains("\"choices\":[]"), "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"));
    }
    assert!(world.journal().await.iter().all(|(_, b)| b.figures == Figures::Reported));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b161_a_refusal_before_the_first_byte_has_its_own_status() {
    let world = World::start(Plan { upstream: |u| u.retries = 0, ..requests(10) }).await;
    world.up.script(Script::error(400, "the context is too long").head_after_ms(200));
    let answer = world.chat(&ask_stream("x")).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json()["error"]["message"], "the context is too long");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b161_a_stream_that_reaches_nobody_is_told_so_and_costs_nothing() {
    // Nothing listens on the port; retries are part of it.
    let world = World::start(Plan {
        upstream: |u| u.base_url = "http://127.0.0.1:1/v1".parse().unwrap(),
        ..Plan::with([
            rate(key(), Measure::Requests, 10),
            quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        ])
    })
    .await;
    for stream in [false, true] {
        let mut chat = ask("x");
        chat["stream"] = json!(stream);
        let answer = world.chat(&chat).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["error"]["code"].as_str()),
            (502, Some("upstream_error"))
        );
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let mut message = messages("x");
        message["stream"] = json!(stream);
        let answer = world.post("/v1/messages", &message).await;
        assert_eq!((answer.status.as_u16(), answer.json()["type"].as_str()), (502, Some("error")));
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    assert_eq!((world.balance(0).await, world.balance(1).await), ((0, 0), (0, 0)), "requests are given back");
    assert!(world.journal().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b127_a_last_event_without_a_blank_line_counts() {
    let world = World::start(Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])).await;
    for end in ["\n", ""] {
        let content = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
        let usage =
            r#"data: {"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37}}"#;
        world.up.script(Script::steps(vec![Step::Text(format!("{content}\n\n{usage}{end}"))]));
        assert_eq!(world.chat(&ask_stream("x")).await.status, 200);
    }
    assert_eq!(world.balance(0).await, (74, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_behind_a_body_withhold_no_answer() {
    let world = World::start(requests(10)).await;
    let body = ask("x").to_string();
    for (tail, close) in [("\r\n", true), ("\r\n", false), ("G", false)] {
        let connection = if close { "close" } else { "keep-alive" };
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\nconnection: {connection}\r\n\
             content-length: {}\r\n\r\n{body}{tail}",
            body.len()
        );
        let answer = tokio::task::block_in_place(|| raw(&world, request.as_bytes()));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"choices\""), "{tail:?}: {answer}");
    }
    let folded = "POST / HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n";
    let answer = tokio::task::block_in_place(|| raw(&world, folded.as_bytes()));
    assert!(answer.starts_with("HTTP/1.1 400"), "a malformed head is told: {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_hold_what_they_sent_and_block_nobody() {
    let world = World::start(Plan {
        config: |c| {
            c.bounds.body_max = 1 << 20;
            c.bounds.bodies_in_flight_max = 1 << 20;
        },
        ..requests(100)
    })
    .await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut socket = std::net::TcpStream::connect(world.addr).unwrap();
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(b"1\r\n{\r\n").unwrap();
        slow.push(socket);
    }
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    // Over the bound the call is refused at once, with a hint.
    let mut large = std::net::TcpStream::connect(world.addr).unwrap();
    large.write_all(head.as_bytes()).unwrap();
    large.write_all(format!("f0000\r\n{}", "x".repeat(0xf_0000)).as_bytes()).unwrap();
    let refused = async || world.chat(&ask(&"y".repeat(200_000))).await;
    let mut answer = refused().await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while answer.status == 200 && tokio::time::Instant::now() < deadline {
        answer = refused().await;
    }
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("1")));
    drop((slow, large));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while refused().await.status != 200 {
        assert!(tokio::time::Instant::now() < deadline, "the share is given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_credential_is_shown_to_no_client() {
    let world = World::start(Plan { upstream: |u| u.retries = 0, ..requests(10) }).await;
    for status in [400, 404, 422] {
        world
            .up
            .script(Script::error(status, "the key provider-secret is odd").header("x-tollbook-reset", "1"));
        let answer = world.chat(&ask("x")).await;
        assert_eq!(answer.status, status);
        assert!(!answer.text().contains("provider-secret"), "{}", answer.text());
        assert!(answer.header("x-tollbook-reset").is_none());
    }
    let answers = |text: &str| json!({"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}});
    world.up.script(Script::json(200, answers("fine")).header("x-debug", "Bearer provider-secret"));
    let answer = world.chat(&ask("x")).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-debug")), (200, None));
    let events = [
        r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}"#,
        r#"data: {"error":{"message":"the key provider-secret is odd"}}"#,
    ];
    world.up.script(Script::steps(events.map(|event| Step::Text(format!("{event}\n\n"))).to_vec()));
    let text = world.chat(&ask_stream("x")).await.text();
    assert!(text.contains("hi") && text.contains("error") && !text.contains("provider-secret"), "{text}");
    world.up.script(Script::json(200, answers("the key is provider-secret")));
    let answer = world.chat(&ask("x")).await;
    assert_eq!(answer.status, 502);
    assert!(!answer.text().contains("provider-secret"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_answer_that_is_no_json_is_a_bad_answer() {
    let world = World::start(Plan {
        upstream: |u| u.retries = 0,
        ..Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])
    })
    .await;
    world.up.script(
        Script::steps(vec![Step::Text("<html>hello</html>".into())]).header("content-type", "text/html"),
    );
    let answer = world.chat(&ask("x")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(world.balance(0).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_left_open_behind_its_last_event_is_ended_soon() {
    let world = World::start(Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])).await;
    let content = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let usage =
        r#"data: {"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37}}"#;
    world.up.script(Script::steps(vec![
        Step::Text(format!("{content}\n\n{usage}\n\ndata: [DONE]\n\n")),
        Step::Stall,
    ]));
    let begun = tokio::time::Instant::now();
    let text = world.chat(&ask_stream("x")).await.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(30), "far sooner than the silence of a minute");
    assert_eq!(world.balance(0).await, (37, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b048_a_second_try_that_the_pool_refuses_costs_nothing() {
    let pool = tollbook_policy::Scope::One(tollbook_policy::Subject::Pool { pool: "openai/gpt".into() });
    let plan = Plan::with([
        quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        rate(pool, Measure::Requests, 1),
    ]);
    let world = World::start(plan).await;
    world.up.script(Script::error(400, "unknown field stream_options"));
    assert_eq!(world.chat(&ask_stream(&"word ".repeat(500))).await.status, 429);
    assert_eq!(world.balance(0).await, (0, 0));
}
