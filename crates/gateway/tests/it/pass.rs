//! Calls that are passed through: limited and counted like any other, and never a second way in.

use std::time::Duration;

use serde_json::json;
use tollbook_mock_upstream::{Script, Step};
use tollbook_policy::{Measure, PeriodKind, Scope, Subject};
use tollbook_store::{Ending, Figures};

use crate::world::{API_KEY, Plan, World, ask, key, quota, rate, tenant};

const REQUESTS: u32 = 0;
const LLM_TOKENS: u32 = 1;
const COST: u32 = 2;

fn limits() -> Plan {
    Plan {
        config: |c| {
            c.passes.openai = Some("openai".into());
            c.passes.anthropic = Some("anthropic".into());
        },
        upstream: |u| u.retries = 0,
        ..Plan::with([
            rate(key(), Measure::Requests, 100),
            quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000),
            quota(tenant(), Measure::Cost, PeriodKind::Month, 10_000_000_000),
        ])
    }
}

/// Only requests are limited.
fn loose() -> Plan {
    Plan { limits: vec![rate(key(), Measure::Requests, 100)], ..limits() }
}

fn headers(content_type: &str) -> [(&str, &str); 2] {
    [("x-api-key", API_KEY), ("content-type", content_type)]
}

const ANTHROPIC: [(&str, &str); 3] =
    [("x-api-key", API_KEY), ("content-type", "application/json"), ("anthropic-version", "2023-06-01")];

fn form(fields: &[(&str, &str)], file: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.extend(
            format!("--B0\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
                .into_bytes(),
        );
    }
    if let Some(file) = file {
        out.extend(
            b"--B0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n",
        );
        out.extend_from_slice(file);
        out.extend(b"\r\n");
    }
    out.extend(b"--B0--\r\n");
    out
}

const FORM: &str = "multipart/form-data; boundary=B0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_input_is_a_request_and_nothing_else() {
    let pool = Scope::One(Subject::Pool { pool: "anthropic/claude".into() });
    let mut plan = limits();
    plan.limits.push(rate(pool, Measure::Requests, 1));
    let world = World::start(plan).await;
    let answer = json!({ "input_tokens": 2_095 });
    world.up.set_default(Script::json(200, answer.clone()));
    let body = json!({
        "model": "claude",
        "messages": [{ "role": "user", "content": "word ".repeat(10_000) }],
        "tools": [{ "name": "t", "input_schema": { "type": "object" } }],
    });
    for n in 1..=3 {
        let got = world.send("POST", "/v1/messages/count_tokens", &ANTHROPIC, body.to_string()).await;
        assert_eq!((got.status.as_u16(), got.json()), (200, answer.clone()));
        assert_eq!(world.balance(REQUESTS).await, (n, 0));
    }
    assert_eq!(world.balance(LLM_TOKENS).await, (0, 0));
    assert_eq!(world.balance(COST).await, (0, 0));
    assert_eq!(world.balance(3).await, (0, 0), "it has a rate of its own at the provider");
    let call = &world.up.calls()[0];
    assert_eq!(call.target, "/v1/messages/count_tokens");
    assert_eq!(call.json()["model"], "claude-upstream");
    assert_eq!(call.header("x-api-key"), Some("provider-secret"));
    let journal = world.journal().await;
    assert_eq!(journal.len(), 3);
    let entry = &journal[0].1;
    assert_eq!((entry.figures, entry.ending, entry.cost_nano), (Figures::Nothing, Ending::Complete, 0));
    assert_eq!(entry.usage.input, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_input_obeys_keys_models_and_limits() {
    let world = World::start(Plan { limits: vec![rate(key(), Measure::Requests, 1)], ..limits() }).await;
    world.up.set_default(Script::json(200, json!({ "input_tokens": 1 })));
    let send = async |headers: &[(&str, &str)], body: &str| {
        world.send("POST", "/v1/messages/count_tokens", headers, body.to_owned()).await
    };
    let good = json!({ "model": "claude", "messages": [] }).to_string();
    for (headers, body, status, kind) in [
        (&ANTHROPIC[1..], good.as_str(), 401, "authentication_error"),
        (&ANTHROPIC, r#"{"model":"nope","messages":[]}"#, 404, "not_found_error"),
        (&ANTHROPIC, r#"{"model":"gpt","messages":[]}"#, 400, "invalid_request_error"),
        (&ANTHROPIC, r#"{"messages":[]}"#, 400, "invalid_request_error"),
        (&ANTHROPIC, "{", 400, "invalid_request_error"),
        (&ANTHROPIC, r#"{"model":"claude","Model":"dear","messages":[]}"#, 400, "invalid_request_error"),
    ] {
        let got = send(headers, body).await;
        assert_eq!(got.status, status, "{body}: {}", got.text());
        assert_eq!(
            (got.json()["type"].as_str(), got.json()["error"]["type"].as_str()),
            (Some("error"), Some(kind))
        );
    }
    for wrong in [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "Multipart/Form-Data; boundary=b",
    ] {
        let headers: Vec<_> = ANTHROPIC.into_iter().filter(|(name, _)| *name != "content-type").collect();
        let got = send(&[&headers[..], &[("content-type", wrong)]].concat(), &good).await;
        let (status, body) = (got.status.as_u16(), got.json());
        assert_eq!((status, &body["type"]), (415, &json!("error")), "{wrong}: {body}");
        assert_eq!(body["error"]["type"], "invalid_request_error", "{wrong}: {body}");
        assert!(body["error"]["message"].as_str().unwrap().contains("application/json"), "{wrong}: {body}");
    }
    assert_eq!((world.up.calls().len(), world.balance(0).await), (0, (0, 0)));
    assert_eq!(send(&ANTHROPIC, &good).await.status, 200);
    assert_eq!(send(&ANTHROPIC, &good).await.status, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passed_answer_is_charged_what_it_reports() {
    let world = World::start(limits()).await;
    let usage = json!({ "type": "tokens", "input_tokens": 120, "output_tokens": 15, "total_tokens": 135,
        "input_token_details": { "audio_tokens": 100, "text_tokens": 20 } });
    world.up.script(Script::json(200, json!({ "text": "x", "usage": usage })));
    let sound = vec![7; 300_000];
    let body = form(&[("language", "en"), ("model", "gpt")], Some(&sound));
    let got = world.send("POST", "/v1/audio/transcriptions", &headers(FORM), body).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.json()["text"], "x");
    assert_eq!(world.balance(LLM_TOKENS).await, (135, 0));
    assert_eq!(world.balance(COST).await, (120 * 2_000 + 15 * 10_000, 0));
    let call = &world.up.calls()[0];
    assert_eq!((call.target.as_str(), call.header("content-type")), ("/v1/audio/transcriptions", Some(FORM)));
    assert_eq!(call.body.as_bytes(), form(&[("language", "en"), ("model", "gpt-upstream")], Some(&sound)));

    let images = json!({ "data": [], "usage": { "input_tokens": 10, "output_tokens": 4_000,
        "input_tokens_details": { "image_tokens": 0, "text_tokens": 10 } } });
    world.up.script(Script::json(200, images));
    let body = json!({ "model": "gpt", "prompt": "a gate", "n": 2 }).to_string();
    let got = world.send("POST", "/v1/images/generations", &headers("application/json"), body).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(world.balance(LLM_TOKENS).await, (135 + 4_010, 0));
    assert_eq!(world.journal().await[1].1.figures, Figures::Reported);
}

/// B077: seconds are no llm_tokens, and no usage is no zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b077_an_answer_without_llm_tokens_is_charged_what_was_held() {
    let world = World::start(limits()).await;
    let anomalies = || {
        let label = (tollbook_telemetry::labels::Anomaly::Missing,);
        world.metrics.usage_anomalies.get(label)
    };
    world
        .up
        .script(Script::json(200, json!({ "text": "x", "usage": { "type": "duration", "seconds": 12 } })));
    let body = form(&[("model", "gpt")], Some(&[7; 6_400]));
    let got = world.send("POST", "/v1/audio/transcriptions", &headers(FORM), body).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let (first, held) = world.balance(LLM_TOKENS).await;
    assert!(first > 2_000 && held == 0, "{first}");
    assert!(world.balance(COST).await.0 > 0);
    assert_eq!(anomalies(), 1);
    // Sound comes back as bytes, unchanged, and says nothing of what it cost.
    let sound = "\u{1}\u{2}noise".repeat(10_000);
    world.up.script(Script::steps(vec![Step::Text(sound.clone())]).header("content-type", "audio/mpeg"));
    let body = json!({ "model": "gpt", "input": "Hello there.", "voice": "alloy" }).to_string();
    let got = world.send("POST", "/v1/audio/speech", &headers("application/json"), body).await;
    assert_eq!((got.status.as_u16(), got.header("content-type")), (200, Some("audio/mpeg")));
    assert_eq!(got.text(), sound);
    assert!(world.balance(LLM_TOKENS).await.0 > first);
    assert_eq!(anomalies(), 2);
    assert!(world.journal().await.iter().all(|(_, body)| body.figures == Figures::Unknown));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_among_the_events_of_a_passed_stream_counts_once() {
    let world = World::start(limits()).await;
    let events = concat!(
        "event: transcript.text.delta\ndata: {\"type\":\"transcript.text.delta\",\"delta\":\"hi\"}\n\n",
        "event: transcript.text.done\ndata: {\"type\":\"transcript.text.done\",\"text\":\"hi\",",
        "\"usage\":{\"type\":\"tokens\",\"input_tokens\":14,\"output_tokens\":3,\"total_tokens\":17}}\n\n",
        "data: [DONE]\n\n"
    );
    for step in
        [vec![Step::Text(events.into())], events.split_inclusive('t').map(|t| Step::Text(t.into())).collect()]
    {
        world.up.script(Script::steps(step).header("content-type", "text/event-stream"));
        let body = form(&[("model", "gpt"), ("stream", "true")], Some(b"RIFF"));
        let got = world.send("POST", "/v1/audio/transcriptions", &headers(FORM), body).await;
        assert_eq!(got.text(), events);
        assert_eq!(got.header("x-accel-buffering"), Some("no"));
    }
    world.settled().await;
    assert_eq!(world.balance(LLM_TOKENS).await, (34, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moderations_cost_nothing_and_need_no_model_here() {
    let world = World::start(limits()).await;
    world.up.set_default(Script::json(200, json!({ "results": [{ "flagged": false }] })));
    for model in [json!(null), json!("omni-moderation-latest"), json!("gpt")] {
        let body = json!({ "model": model, "input": "text" }).to_string();
        let got = world.send("POST", "/v1/moderations", &headers("application/json"), body).await;
        assert_eq!(got.status, 200, "{model}: {}", got.text());
    }
    assert_eq!(world.balance(REQUESTS).await, (3, 0));
    assert_eq!(world.balance(LLM_TOKENS).await, (0, 0));
    let sent: Vec<_> = world.up.calls().iter().map(|call| call.json()["model"].clone()).collect();
    assert_eq!(sent, [json!(null), json!("omni-moderation-latest"), json!("gpt-upstream")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_stream_both_ways_and_count_as_requests() {
    let world = World::start(limits()).await;
    world.up.script(Script::json(200, json!({ "id": "file-1", "object": "file" })));
    let large = vec![b'x'; 5 << 20];
    let body = form(&[("purpose", "batch")], Some(&large));
    let got = world.send("POST", "/v1/files", &headers(FORM), body.clone()).await;
    assert_eq!(got.json()["id"], "file-1");
    let call = &world.up.calls_at_rest()[0];
    assert_eq!(
        (call.body_bytes, call.header("content-type")),
        (u64::try_from(body.len()).unwrap(), Some(FORM))
    );
    assert_eq!(call.header("content-length"), Some(body.len().to_string().as_str()));
    assert_eq!(call.header("authorization"), Some("Bearer provider-secret"));

    let content = "line\n".repeat(200_000);
    world
        .up
        .script(Script::steps(vec![Step::Text(content.clone())]).header("content-type", "application/jsonl"));
    let got = world.send("GET", "/v1/files/file-1/content", &headers("text/plain"), "").await;
    assert_eq!(got.text(), content);
    assert_eq!(got.header("content-length"), Some("1000000"));
    world.up.script(Script::json(200, json!({ "id": "file-1", "deleted": true })));
    let got = world.send("DELETE", "/v1/files/file-1?key=k&after=x", &headers("application/json"), "").await;
    assert_eq!(got.json()["deleted"], true);
    let call = world.up.calls_at_rest()[2].clone();
    assert_eq!((call.method.as_str(), call.target.as_str()), ("DELETE", "/v1/files/file-1?after=x"));

    // The same path in the other dialect is the other provider's.
    world.up.script(Script::json(200, json!({ "data": [] })));
    assert_eq!(world.send("GET", "/v1/files", &ANTHROPIC, "").await.status, 200);
    assert_eq!(world.up.calls_at_rest()[3].header("x-api-key"), Some("provider-secret"));
    world.settled().await;
    assert_eq!(world.balance(REQUESTS).await, (4, 0));
    assert_eq!(world.balance(LLM_TOKENS).await, (0, 0));
    assert_eq!(world.journal().await.len(), 4);
    assert!(
        world.journal().await.iter().all(|(_, b)| b.figures == Figures::Nothing && b.model_used.is_empty())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_are_bounded_in_size_and_silence() {
    let world = World::start(Plan {
        config: |c| {
            c.passes.openai = Some("openai".into());
            c.bounds.upload_max = 100_000;
            c.timeouts.body_silence = Duration::from_millis(300);
        },
        ..loose()
    })
    .await;
    world.up.set_default(Script::json(200, json!({ "id": "file-1" })));
    let of = |bytes: usize| vec![b'x'; bytes];
    assert_eq!(world.send("POST", "/v1/files", &headers(FORM), of(100_000)).await.status, 200);
    let over = world.send("POST", "/v1/files", &headers(FORM), of(100_001)).await;
    assert_eq!(
        (over.status.as_u16(), over.json()["error"]["code"].as_str()),
        (413, Some("request_too_large"))
    );
    assert_eq!(world.up.calls().len(), 1, "what is announced too large is not begun");
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\ncontent-type: {FORM}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let chunks = format!("1000\r\n{}\r\n", "a".repeat(4096)).repeat(30);
    let answer = tokio::task::block_in_place(|| {
        crate::edge::raw(&world, format!("{head}{chunks}0\r\n\r\n").as_bytes())
    });
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let answer =
        tokio::task::block_in_place(|| crate::edge::raw(&world, format!("{head}5\r\nhello\r\n").as_bytes()));
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("did not arrive in time"), "{answer}");
    let answer = tokio::task::block_in_place(|| crate::edge::trickle(&world, &head));
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("did not arrive in time"), "{answer}");
    world.settled().await;
    assert!(
        world.up.calls_at_rest().iter().skip(1).all(|call| call.status.is_none()),
        "never sent as a whole"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_without_a_model_needs_a_place() {
    let world = World::start(Plan { config: |_| (), ..loose() }).await;
    for (method, path) in [("GET", "/v1/files"), ("POST", "/v1/batches"), ("POST", "/v1/moderations")] {
        let body = if method == "POST" { "{}" } else { "" };
        let got = world.send(method, path, &headers("application/json"), body).await;
        assert_eq!(
            (got.status.as_u16(), got.json()["error"]["code"].as_str()),
            (404, Some("not_found")),
            "{path}"
        );
    }
    let got = world.send("GET", "/v1/messages/batches", &ANTHROPIC, "").await;
    assert_eq!((got.status.as_u16(), got.json()["error"]["type"].as_str()), (404, Some("not_found_error")));
    let got =
        world.send("POST", "/v1/images/generations", &headers("application/json"), r#"{"prompt":"x"}"#).await;
    assert_eq!((got.status.as_u16(), got.json()["error"]["param"].as_str()), (400, Some("model")));
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.balance(REQUESTS).await, (0, 0));
}

/// Work that is billed later would be a way around every limit that counts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_closed_to_keys_whose_use_is_limited() {
    let batch = r#"{"input_file_id":"file-1","endpoint":"/v1/chat/completions","completion_window":"24h"}"#;
    let limited = World::start(limits()).await;
    for (path, headers) in
        [("/v1/batches", &headers("application/json")[..]), ("/v1/messages/batches", &ANTHROPIC)]
    {
        let got = limited.send("POST", path, headers, batch).await;
        assert_eq!(got.status, 403, "{}", got.text());
        assert!(got.text().contains("cannot be counted"), "{}", got.text());
    }
    assert_eq!(limited.up.calls().len(), 0);
    assert_eq!(limited.balance(REQUESTS).await, (0, 0));
    let loose = World::start(loose()).await;
    loose.up.set_default(Script::json(
        200,
        json!({ "id": "batch_1", "usage": { "input_tokens": 5, "output_tokens": 5 } }),
    ));
    for (method, path) in
        [("POST", "/v1/batches"), ("GET", "/v1/batches/batch_1"), ("POST", "/v1/batches/batch_1/cancel")]
    {
        let body = if path == "/v1/batches" { batch } else { "" };
        assert_eq!(loose.send(method, path, &headers("application/json"), body).await.status, 200);
    }
    assert_eq!(loose.balance(REQUESTS).await, (3, 0));
    assert!(
        loose.journal().await.iter().all(|(_, b)| b.usage.input == 0),
        "looking at a batch is not paid for"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opened_prefix_counts_requests_and_reported_usage() {
    let world = World::start(Plan {
        upstream: |u| {
            u.retries = 0;
            if u.name == "openai" {
                u.passes = vec!["/v1/vector_stores".into()];
            }
        },
        ..limits()
    })
    .await;
    let answer = json!({ "id": "vs_1", "usage": { "prompt_tokens": 40, "total_tokens": 40 } });
    world.up.set_default(Script::json(200, answer));
    let got = world.send("POST", "/v1/vector_stores", &headers("application/json"), r#"{"name":"x"}"#).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(world.balance(LLM_TOKENS).await, (40, 0));
    // Looking it up again is no use.
    assert_eq!(
        world.send("GET", "/v1/vector_stores/vs_1", &headers("application/json"), "").await.status,
        200
    );
    world.settled().await;
    assert_eq!(world.balance(LLM_TOKENS).await, (40, 0));
    assert_eq!(world.balance(REQUESTS).await, (2, 0));
}

/// Whatever a path is spelt like, the provider sees the path that was checked, or nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b144_tricks_of_the_path_reach_nothing() {
    let world =
        World::start(Plan { upstream: |u| u.passes = vec!["/v1/vector_stores".into()], ..loose() }).await;
    world.up.set_default(Script::json(200, json!({})));
    let host = world.addr;
    for target in [
        "/v1/files/../chat/completions".to_owned(),
        "/v1/files/..%2fchat%2fcompletions".to_owned(),
        "/v1/files/%2e%2e/chat/completions".to_owned(),
        "/v1//files".to_owned(),
        "//v1/files".to_owned(),
        "/v1/files;x=/../../chat/completions".to_owned(),
        "/v1/files\\..\\batches".to_owned(),
        "/v1/files/".to_owned(),
        "/v1/vector_stores/../../admin".to_owned(),
        "/v1/vector_stores/.".to_owned(),
        "/v1/vector_stores/%00".to_owned(),
        format!("http://{host}/v1/files/../batches"),
        format!("http://{host}//v1/files"),
        "*".to_owned(),
        "http://api.example.com/v1/files/%2e%2e".to_owned(),
    ] {
        for method in ["GET", "POST", "DELETE", "OPTIONS"] {
            let request = format!(
                "{method} {target} HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
            );
            let answer = tokio::task::block_in_place(|| crate::edge::raw(&world, request.as_bytes()));
            let status = answer.get(9..12).unwrap_or_default().to_owned();
            assert!(["400", "404", "405"].contains(&status.as_str()), "{method} {target}: {answer}");
        }
    }
    assert_eq!(world.up.calls().len(), 0);
    // An absolute form with a plain path is that path, here and upstream.
    let request = format!(
        "GET http://api.example.com/v1/files?limit=1 HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\nconnection: close\r\n\r\n"
    );
    let answer = tokio::task::block_in_place(|| crate::edge::raw(&world, request.as_bytes()));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(world.up.calls_at_rest()[0].target, "/v1/files?limit=1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_that_two_readers_take_apart_differently_are_refused() {
    let world = World::start(limits()).await;
    let model = |head: &str| format!("--B0\r\n{head}\r\n\r\ngpt\r\n--B0--\r\n");
    let good = "Content-Disposition: form-data; name=\"model\"";
    for (why, content_type, body) in [
        ("model twice", FORM, form(&[("model", "gpt"), ("model", "dear")], None)),
        ("model misspelt", FORM, form(&[("model", "gpt"), ("Model", "dear")], None)),
        (
            "model as a file",
            FORM,
            model("Content-Disposition: form-data; name=\"model\"; filename=\"x\"").into_bytes(),
        ),
        ("two dispositions", FORM, model(&format!("{good}\r\n{good}")).into_bytes()),
        ("two names", FORM, model(&format!("{good}; name=\"x\"")).into_bytes()),
        ("an extended name", FORM, model(&format!("{good}; name*=utf-8''x")).into_bytes()),
        ("an escaped name", FORM, model("Content-Disposition: form-data; name=\"mo\\del\"").into_bytes()),
        ("a folded head", FORM, model("Content-Disposition: form-data;\r\n name=\"model\"").into_bytes()),
        (
            "bare line ends",
            FORM,
            form(&[("model", "gpt")], None).into_iter().filter(|b| *b != b'\r').collect(),
        ),
        ("a preamble", FORM, [b"x\r\n".to_vec(), form(&[("model", "gpt")], None)].concat()),
        ("an epilogue", FORM, [form(&[("model", "gpt")], None), form(&[("model", "dear")], None)].concat()),
        ("no end", FORM, b"--B0\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt".to_vec()),
        ("no boundary", "multipart/form-data", form(&[("model", "gpt")], None)),
        ("two boundaries", "multipart/form-data; boundary=B0; boundary=B1", form(&[("model", "gpt")], None)),
        ("an odd boundary", "multipart/form-data; boundary=\"B 0\"", form(&[("model", "gpt")], None)),
        ("too many parts", FORM, form(&[("x", "y"); 300], None)),
        ("no bytes", FORM, Vec::new()),
    ] {
        let got = world.send("POST", "/v1/audio/transcriptions", &headers(content_type), body).await;
        assert_eq!(got.status, 400, "{why}: {}", got.text());
        assert!(got.json()["error"]["message"].is_string());
    }
    let got = world.send("POST", "/v1/audio/transcriptions", &headers("text/plain"), "model=gpt").await;
    assert_eq!(got.status, 415);
    let two = [("x-api-key", API_KEY), ("content-type", FORM), ("content-type", "application/json")];
    let got = world.send("POST", "/v1/audio/transcriptions", &two, form(&[("model", "gpt")], None)).await;
    assert_eq!(got.status, 400);
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.balance(REQUESTS).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_off_never_looks_whole() {
    let world = World::start(limits()).await;
    let cut = Script {
        framing: tollbook_mock_upstream::Framing::Chunked,
        ..Script::steps(vec![Step::Text("half".into()), Step::Reset])
    };
    world.up.script(cut.clone().header("content-type", "application/octet-stream"));
    let request = format!(
        "GET /v1/files/a/content HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\nconnection: close\r\n\r\n"
    );
    let answer = tokio::task::block_in_place(|| crate::edge::raw(&world, request.as_bytes()));
    assert!(answer.starts_with("HTTP/1.1 200") && !answer.ends_with("0\r\n\r\n"), "{answer}");
    world.up.script(cut.header("content-type", "text/event-stream"));
    let body = form(&[("model", "gpt"), ("stream", "true")], Some(b"RIFF"));
    let got = world.send("POST", "/v1/audio/transcriptions", &headers(FORM), body).await;
    assert!(
        got.text().starts_with("half\n\ndata: {\"error\"") && got.text().contains("stream_incomplete"),
        "{}",
        got.text()
    );
    world.settled().await;
    let journal = world.journal().await;
    assert_eq!((journal[1].1.ending, journal[1].1.figures), (Ending::Reset, Figures::Unknown));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_the_provider_are_told_and_cost_nothing() {
    let world = World::start(limits()).await;
    for (status, want) in [(400, 400), (404, 404), (401, 502), (429, 429), (500, 502), (503, 503)] {
        world.up.script(Script::error(status, "no"));
        let body = form(&[("model", "gpt")], Some(b"RIFF"));
        let got = world.send("POST", "/v1/audio/transcriptions", &headers(FORM), body).await;
        assert_eq!(got.status, want, "{status}: {}", got.text());
        assert!(got.json()["error"]["message"].is_string());
    }
    world.settled().await;
    assert_eq!(world.balance(LLM_TOKENS).await, (0, 0));
    assert_eq!(world.balance(REQUESTS).await, (6, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websockets_and_realtime_are_refused_clearly() {
    let world = World::start(loose()).await;
    let upgrade = [
        ("x-api-key", API_KEY),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (path, headers) in [
        ("/v1/realtime?model=gpt", &upgrade[..]),
        ("/v1/realtime?model=gpt", &upgrade[..1]),
        ("/v1/realtime/sessions", &upgrade[..1]),
        ("/v1/responses", &upgrade),
        ("/v1/chat/completions", &upgrade),
        ("/v1/files", &upgrade),
        ("/v1/realtime", &[]),
    ] {
        for method in ["GET", "POST"] {
            let got = world.send(method, path, headers, "").await;
            assert_eq!(got.status, 400, "{method} {path}: {}", got.text());
            assert_eq!(got.json()["error"]["code"], "realtime_not_served");
            assert_eq!(got.header("x-should-retry"), Some("false"));
        }
    }
    let mut anthropic = upgrade.to_vec();
    anthropic.push(("anthropic-version", "2023-06-01"));
    let got = world.send("GET", "/v1/messages", &anthropic, "").await;
    assert_eq!((got.status.as_u16(), got.json()["type"].as_str()), (400, Some("error")));
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.balance(REQUESTS).await, (0, 0));
    // Another protocol that is offered is ignored, as HTTP allows.
    let h2c = [("x-api-key", API_KEY), ("connection", "Upgrade"), ("upgrade", "h2c")];
    assert_eq!(world.send("POST", "/v1/chat/completions", &h2c, ask("x").to_string()).await.status, 200);
}
