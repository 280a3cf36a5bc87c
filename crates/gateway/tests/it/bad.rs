//! Bad input, from both sides: one meaning, one refusal in JSON; nothing metered twice or not at all; memory bounded.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tollbook_mock_upstream::{Framing, Script, Step};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::{Ending, Figures};

use crate::edge::raw;
use crate::world::{API_KEY, OTHER_API_KEY, Plan, World, ask, ask_stream, key, quota, rate};

const REQUESTS: u32 = 0;
const LLM_TOKENS: u32 = 1;

fn limits() -> Plan {
    Plan {
        upstream: |u| {
            u.retries = 0;
            u.silence_timeout = Duration::from_secs(5);
        },
        ..Plan::with([
            rate(key(), Measure::Requests, 1_000),
            quota(key(), Measure::Tokens, PeriodKind::Day, 100_000_000),
        ])
    }
}

/// A plain call as bytes, with these lines in its head, and this body.
fn post(lines: &str, body: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\n{lines}\r\n{body}")
}

/// The answers on a connection: status and body of each.
fn answers(text: &str) -> Vec<(String, String)> {
    text.split("HTTP/1.1 ")
        .skip(1)
        .filter(|answer| !answer.starts_with("100"))
        .map(|answer| {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
            (head.get(..3).unwrap_or_default().to_owned(), body.to_owned())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smuggling_shapes_have_one_refusal_in_json() {
    let world = World::start(limits()).await;
    let body = ask("x").to_string();
    let length = format!("content-length: {}\r\n", body.len());
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let smuggled = post(&length, &body);
    let shapes = [
        ("bare line ends", post(&length, &body).replace("\r\n", "\n")),
        ("one bare line end", post(&format!("a: b\n{length}"), &body)),
        ("a folded header", post(&format!("a: b\r\n c: d\r\n{length}"), &body)),
        ("a space before the colon", post(&format!("content-length : 3\r\n{length}"), &body)),
        ("two codings", post("transfer-encoding: gzip, chunked\r\n", &chunked)),
        ("another coding", post("transfer-encoding: identity\r\n", &chunked)),
        ("a coding twice", post("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", &chunked)),
        ("length and coding", post(&format!("{length}transfer-encoding: chunked\r\n"), &chunked)),
        ("coding and length", post(&format!("transfer-encoding: chunked\r\n{length}"), &chunked)),
        ("a length twice, the same", post(&format!("{length}{length}"), &body)),
        ("a length twice", post(&format!("{length}content-length: 3\r\n"), &body)),
        ("two lengths in one", post("content-length: 3, 3\r\n", &body)),
        ("a signed length", post("content-length: +3\r\n", &body)),
        ("a negative length", post("content-length: -3\r\n", &body)),
        ("a length that is none", post("content-length: 99999999999999999999\r\n", &body)),
        ("two hosts", post(&format!("host: y\r\n{length}"), &body)),
        ("a control character", post(&format!("a: b\0c\r\n{length}"), &body)),
        ("no version", post(&length, &body).replace(" HTTP/1.1", "")),
        ("a fragment", post(&length, &body).replace("completions HTTP", "completions#/../x HTTP")),
    ];
    for (name, bytes) in &shapes {
        let bytes = format!("{bytes}{smuggled}");
        let text = tokio::task::block_in_place(|| raw(&world, bytes.as_bytes()));
        let all = answers(&text);
        assert_eq!(all.len(), 1, "{name}: {text}");
        assert_eq!(all[0].0, "400", "{name}: {text}");
        let error: Value = serde_json::from_str(&all[0].1).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
        assert_eq!(error["error"]["code"], "malformed_request", "{name}");
        assert!(text.contains("x-request-id: "), "{name}: {text}");
    }
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.balance(REQUESTS).await, (0, 0));
    // Behind a good call the same: the good one is answered, the bad one refused, what follows is not read.
    for (name, bytes) in &shapes {
        let bytes = format!("{smuggled}{bytes}{smuggled}");
        let text = tokio::task::block_in_place(|| raw(&world, bytes.as_bytes()));
        let statuses: Vec<String> = answers(&text).into_iter().map(|(status, _)| status).collect();
        assert_eq!(statuses, ["200", "400"], "{name}: {text}");
    }
    let good = i64::try_from(shapes.len()).unwrap();
    assert_eq!(world.balance(REQUESTS).await, (good, 0));
    assert_eq!(world.journal().await.len(), shapes.len());
    // In the dialect of the path, as far as it can be read.
    let bytes = smuggled.replace("/v1/chat/completions", "/v1/messages").replace("\r\n", "\n");
    let text = tokio::task::block_in_place(|| raw(&world, bytes.as_bytes()));
    let error: Value = serde_json::from_str(&answers(&text)[0].1).unwrap();
    assert_eq!(
        (error["type"].as_str(), error["error"]["type"].as_str()),
        (Some("error"), Some("invalid_request_error"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_heads_are_refused_in_json() {
    let world = World::start(limits()).await;
    for (name, lines) in [
        ("many headers", "a: b\r\n".repeat(200)),
        ("a long header", format!("a: {}\r\n", "b".repeat(200_000))),
        ("a header without end", format!("a: {}", "b".repeat(200_000))),
    ] {
        let text = tokio::task::block_in_place(|| raw(&world, post(&lines, "").as_bytes()));
        let all = answers(&text);
        assert_eq!(all.len(), 1, "{name}: {text}");
        assert_eq!(all[0].0, "431", "{name}: {text}");
        let error: Value = serde_json::from_str(&all[0].1).unwrap();
        assert_eq!(error["error"]["code"], "malformed_request", "{name}");
    }
    assert_eq!(world.balance(REQUESTS).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_break_their_framing_take_nothing() {
    let world = World::start(limits()).await;
    let body = ask("x").to_string();
    let smuggled = post(&format!("content-length: {}\r\n", body.len()), &body);
    let chunk = |size: &str| format!("{size}\r\n{body}\r\n0\r\n\r\n");
    for (name, bytes) in [
        ("a chunk with a bare line end", format!("{:x}\n{body}\r\n0\r\n\r\n", body.len())),
        ("a chunk shorter than its data", chunk(&format!("{:x}", body.len() - 1))),
        ("a chunk longer than its data", chunk(&format!("{:x}", body.len() + 1))),
        ("a size that is none", chunk("0x5g")),
        ("a size beyond all numbers", chunk("fffffffffffffffff")),
        ("a negative size", chunk("-1")),
        ("an extension with a line end", chunk(&format!("{:x};a\nb", body.len()))),
    ] {
        let bytes = format!("{}{smuggled}", post("transfer-encoding: chunked\r\n", &bytes));
        let text = tokio::task::block_in_place(|| raw(&world, bytes.as_bytes()));
        let all = answers(&text);
        assert!(all.len() <= 1 && all.iter().all(|(status, _)| status == "400"), "{name}: {text}");
        if let Some((_, body)) = all.first() {
            serde_json::from_str::<Value>(body).unwrap();
        }
    }
    // A length longer than the body: the client's own mistake, told when it closes its side or the time is over.
    let mut socket = std::net::TcpStream::connect(world.addr).unwrap();
    socket.write_all(post(&format!("content-length: {}\r\n", body.len() + 5), &body).as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    let _ = socket.read_to_string(&mut text);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.balance(REQUESTS).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doubled_headers_have_one_meaning_or_one_refusal() {
    let world = World::start(limits()).await;
    let body = ask("x").to_string();
    let send = async |more: &[(&str, &str)]| {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend_from_slice(more);
        world.send("POST", "/v1/chat/completions", &headers, body.clone()).await
    };
    let bearer = format!("Bearer {API_KEY}");
    let other = format!("Bearer {OTHER_API_KEY}");
    let key = ("x-api-key", API_KEY);
    for (name, headers, want) in [
        ("one key twice", vec![key, key], 200),
        ("two keys", vec![key, ("x-api-key", OTHER_API_KEY)], 401),
        ("two bearers", vec![("authorization", bearer.as_str()), ("authorization", &other)], 401),
        ("two services", vec![key, ("x-tollbook-service", "a"), ("x-tollbook-service", "b")], 400),
        ("two users", vec![key, ("x-tollbook-user", "a"), ("x-tollbook-user", "b")], 400),
    ] {
        let got = send(&headers).await;
        assert_eq!(got.status, want, "{name}: {}", got.text());
        if want != 200 {
            assert!(got.json()["error"]["message"].is_string());
        }
    }
    assert_eq!(world.balance(REQUESTS).await, (1, 0));
}

/// The key in the header, in the other header, and in the query, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b143_a_key_in_three_places_is_one_key_or_none() {
    let world = World::start(limits()).await;
    let (good, other) = (format!("Bearer {API_KEY}"), format!("Bearer {OTHER_API_KEY}"));
    for (name, path, headers, want) in [
        (
            "three times the same",
            "?key=tb_test_key",
            vec![("authorization", good.as_str()), ("x-api-key", API_KEY)],
            200,
        ),
        ("another in the query", "?key=tb_other_key&api_key=x", vec![("authorization", good.as_str())], 200),
        ("only in the query", "?key=tb_test_key", vec![], 401),
        ("only in the query, encoded", "?%6bey=tb_test_key", vec![], 401),
        ("in a header nobody reads", "", vec![("api-key", API_KEY), ("x-goog-api-key", API_KEY)], 401),
        (
            "two that differ",
            "?key=tb_test_key",
            vec![("authorization", other.as_str()), ("x-api-key", API_KEY)],
            401,
        ),
        (
            "a bad one beside a good one",
            "",
            vec![("authorization", "Basic abc"), ("x-api-key", API_KEY)],
            401,
        ),
        (
            "an empty one beside a good one",
            "",
            vec![("authorization", good.as_str()), ("x-api-key", "")],
            401,
        ),
    ] {
        let path = format!("/v1/chat/completions{path}");
        let got = world.send("POST", &path, &headers, ask("x").to_string()).await;
        assert_eq!(got.status, want, "{name}: {}", got.text());
    }
    for call in world.up.calls_at_rest() {
        let seen = format!("{:?} {}", call.headers, call.target);
        assert!(!seen.contains(API_KEY) && !seen.contains(OTHER_API_KEY), "{seen}");
    }
    assert_eq!(world.balance(REQUESTS).await, (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_and_long_json_is_read_in_linear_time_or_refused() {
    let world = World::start(limits()).await;
    let headers = [("x-api-key", API_KEY)];
    let send = async |path: &str, body: String| world.send("POST", path, &headers, body).await;
    let deep = "[".repeat(100_000);
    for body in [
        format!(r#"{{"model":"gpt","messages":{deep}"#),
        format!(
            r#"{{"model":"gpt","messages":[{{"role":"user","content":{deep}{}}}]}}"#,
            "]".repeat(100_000)
        ),
        format!(r#"{{"x":{}"#, r#"{"x":"#.repeat(100_000)),
    ] {
        for path in ["/v1/chat/completions", "/v1/messages", "/v1/images/generations"] {
            let got = send(path, body.clone()).await;
            assert_eq!(got.status, 400, "{path}: {}", got.text());
            assert!(got.text().contains("too deeply"), "{}", got.text());
        }
    }
    assert_eq!(world.up.calls().len(), 0);
    // Ten megabytes on one line are a large call and no trouble.
    let long = ask(&"word ".repeat(2 << 20)).to_string();
    assert!(long.len() > 10 << 20 && !long.contains('\n'));
    let got = send("/v1/chat/completions", long.clone()).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(
        world.up.calls_at_rest()[0].body_bytes,
        u64::try_from(long.len() + "-upstream".len() + r#""max_completion_tokens":4096,"#.len()).unwrap()
    );
    assert_eq!(world.balance(REQUESTS).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_hundred_thousand_tiny_chunks_is_metered_once() {
    let world = World::start(limits()).await;
    let event = r#"data: {"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let end = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":70}}\n\ndata: [DONE]\n\n"
    );
    // Two bytes a write: every event comes in thirty pieces.
    let text = format!("{event}\n\n").repeat(3_500);
    let tiny: Vec<Step> =
        text.as_bytes().chunks(2).map(|c| Step::Text(String::from_utf8_lossy(c).into())).collect();
    let steps = tiny.into_iter().chain([Step::Text(end.into())]).collect();
    world.up.script(Script::steps(steps));
    let got = world.chat(&ask_stream("x")).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.text().matches("\"content\":\"a\"").count(), 3_500);
    assert!(got.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(world.balance(LLM_TOKENS).await, (100, 0));
}

/// Signs of life without an answer keep a connection, not for ever and not for free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_keepalives_end_with_the_clients_patience_and_are_charged() {
    let world = World::start(limits()).await;
    world.up.script(Script::steps(vec![Step::Repeat {
        text: ": keep-alive\n\n".into(),
        times: 1_000_000,
        every_ms: 1,
    }]));
    let response = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut seen = 0;
    while seen < 1_000 {
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        seen += frame.into_data().unwrap().len();
    }
    drop(body);
    world.settled().await;
    let journal = world.journal().await;
    assert_eq!((journal[0].1.ending, journal[0].1.figures), (Ending::ClientGone, Figures::Partial));
    assert!(journal[0].1.usage.input > 0 && journal[0].1.usage.output == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_in_answers_are_stopped_at_their_bound() {
    let world = World::start(Plan { config: |c| c.bounds.answer_max = 1 << 20, ..limits() }).await;
    let bomb = " ".repeat(64 << 20);
    // A plain answer: over its bound it is an error, and what was held stands.
    world.up.script(
        Script::steps(vec![Step::Text(bomb.clone())]).gzip().header("content-type", "application/json"),
    );
    let got = world.chat(&ask("x")).await;
    assert_eq!(got.status, 502, "{}", got.text());
    assert_eq!(got.json()["error"]["code"], "upstream_error");
    world.settled().await;
    let first = world.balance(LLM_TOKENS).await.0;
    assert!(first > 0, "the provider worked");
    // In a stream it ends the stream, with an error event.
    world.up.script(Script::steps(vec![Step::Text(format!("data: {bomb}\n\n"))]).gzip());
    let got = world.chat(&ask_stream("x")).await;
    assert!(got.status.as_u16() >= 500 || got.text().contains("stream_incomplete"), "{}", got.status);
    // Codings in codings are none that is understood.
    for coding in ["gzip, gzip", "br, gzip", "identity, gzip", "zstd,zstd"] {
        world.up.script(Script::json(200, json!({ "choices": [] })).header("content-encoding", coding));
        assert_eq!(world.chat(&ask("x")).await.status, 502, "{coding}");
    }
    world.settled().await;
    assert_eq!(world.balance(REQUESTS).await.0, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lying_content_types_and_lengths_of_answers_are_not_believed() {
    let world = World::start(limits()).await;
    let answer =
        json!({ "choices": [{ "index": 0, "message": { "content": "hi" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 4 } })
        .to_string();
    // A plain answer is what it is, whatever it calls itself.
    for kind in ["text/html", "text/event-stream", "application/octet-stream", ""] {
        world.up.script(Script::steps(vec![Step::Text(answer.clone())]).header("content-type", kind));
        let got = world.chat(&ask("x")).await;
        assert_eq!((got.status.as_u16(), got.text()), (200, answer.clone()), "{kind}");
    }
    assert_eq!(world.balance(LLM_TOKENS).await, (28, 0));
    // A stream that says it is JSON is read as JSON, and is none.
    let events = "data: {\"choices\":[]}\n\ndata: [DONE]\n\n";
    world
        .up
        .script(Script::steps(vec![Step::Text(events.into())]).header("content-type", "application/json"));
    assert_eq!(world.chat(&ask_stream("x")).await.status, 502);
    // JSON that says it is a stream gives nothing a stream could give.
    world.up.script(
        Script::steps(vec![Step::Text("<html></html>".into())]).header("content-type", "text/event-stream"),
    );
    let got = world.chat(&ask_stream("x")).await;
    assert!(got.status == 502 || got.text().contains("\"error\""), "{}", got.text());
    // A length that is too long is a cut answer; what was held stands.
    world.settled().await;
    let before = world.balance(LLM_TOKENS).await.0;
    let longer = u64::try_from(answer.len() + 10).unwrap();
    let mut lying = Script::steps(vec![Step::Text(answer.clone()), Step::Close]);
    lying.framing = Framing::WrongLength(longer);
    world.up.script(lying.header("content-type", "application/json"));
    assert_eq!(world.chat(&ask("x")).await.status, 502);
    world.settled().await;
    assert!(world.balance(LLM_TOKENS).await.0 > before);
    // One that is too short is a shorter body, which is no JSON.
    let mut lying = Script::steps(vec![Step::Text(answer.clone()), Step::Close]);
    lying.framing = Framing::WrongLength(10);
    world.up.script(lying.header("content-type", "application/json"));
    assert_eq!(world.chat(&ask("x")).await.status, 502);
    world.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_that_cannot_be_true_or_comes_late_is_charged_once() {
    let world = World::start(limits()).await;
    let text = r#"data: {"choices":[{"index":0,"delta":{"content":"hi there"},"finish_reason":"stop"}]}"#;
    let usage = |usage: Value| format!("data: {}\n\n", json!({ "choices": [], "usage": usage }));
    let late = usage(json!({ "prompt_tokens": 30, "completion_tokens": 7 }));
    let less = usage(json!({ "prompt_tokens": 1, "completion_tokens": 1 }));
    for (events, want) in [
        (format!("{text}\n\ndata: [DONE]\n\n{late}"), 37),
        (format!("{text}\n\n{late}data: [DONE]\n\n{less}"), 37),
        (format!("{text}\n\n{late}data: [DONE]\n\n{late}"), 37),
    ] {
        let before = world.balance(LLM_TOKENS).await.0;
        world.up.script(Script::steps(vec![Step::Text(events)]));
        let got = world.chat(&ask_stream("x")).await;
        assert!(!got.text().contains("prompt_tokens"), "{}", got.text());
        world.settled().await;
        assert_eq!(world.balance(LLM_TOKENS).await.0 - before, want);
    }
    for odd in [
        json!({ "prompt_tokens": -5, "completion_tokens": -9 }),
        json!({ "prompt_tokens": 1e30, "completion_tokens": "many" }),
        json!([]),
        json!("free"),
    ] {
        let before = world.balance(LLM_TOKENS).await.0;
        world.up.script(Script::json(200, json!({
            "choices": [{ "index": 0, "message": { "content": "hi there" }, "finish_reason": "stop" }], "usage": odd,
        })));
        assert_eq!(world.chat(&ask("x")).await.status, 200);
        world.settled().await;
        assert!(world.balance(LLM_TOKENS).await.0 > before, "{odd}");
        assert_eq!(world.journal().await.last().unwrap().1.figures, Figures::Metered);
    }
}
