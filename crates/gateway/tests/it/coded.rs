//! Field case B130: answers in content codings, known and unknown. What can be read is metered and relayed plain; what
//! cannot is never charged as nothing.

use std::io::Write as _;

use base64::Engine as _;
use serde_json::{Value, json};
use tollbook_mock_upstream::{Script, Step};
use tollbook_policy::{Hold, Measure, PeriodKind, Strictness};
use tollbook_store::{Ending, EntryBody, Figures};

use crate::world::{API_KEY, Plan, World, ask, ask_stream, key, quota, rate, tenant};

const RATE: u32 = 0;
const QUOTA: u32 = 1;

fn limits() -> Plan {
    Plan {
        upstream: |u| u.retries = 0,
        ..Plan::with([
            rate(key(), Measure::Tokens, 1_000_000),
            quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        ])
    }
}

/// An answer of 37 llm_tokens.
fn plain(body: &Value) -> String {
    let usage = json!({ "prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37 });
    if body["stream"] == true {
        let text =
            json!({ "choices": [{ "index": 0, "delta": { "content": "hi" }, "finish_reason": "stop" }] });
        let last = json!({ "choices": [], "usage": usage });
        format!("data: {text}\n\ndata: {last}\n\ndata: [DONE]\n\n")
    } else {
        json!({ "choices": [{ "index": 0, "message": { "content": "hi" }, "finish_reason": "stop" }], "usage": usage })
            .to_string()
    }
}

fn coded(coding: &str, plain: &[u8]) -> Vec<u8> {
    let gzip = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    };
    match coding {
        "br" => {
            let mut out = Vec::new();
            brotli::CompressorWriter::new(&mut out, 4096, 5, 22).write_all(plain).unwrap();
            out
        }
        "zstd" => zstd::encode_all(plain, 3).unwrap(),
        "gzip" => gzip(plain),
        "gzip, gzip" => gzip(&gzip(plain)),
        _ => plain.iter().map(|byte| byte ^ 0x55).collect(),
    }
}

fn script(coding: &str, bytes: &[u8]) -> Script {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    Script::steps(vec![Step::Base64(text)]).header("content-encoding", coding)
}

async fn last(world: &World) -> EntryBody {
    world.settled().await;
    world.journal().await.pop().expect("an entry").1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b130_the_provider_is_asked_for_plain_bytes_and_decoded_all_the_same() {
    let headers = [("x-api-key", API_KEY), ("accept-encoding", "br, zstd, gzip")];
    for coding in ["br", "zstd", "gzip"] {
        let world = World::start(limits()).await;
        for (call, body) in [ask("x"), ask_stream("x")].iter().enumerate() {
            let plain = plain(body);
            world.up.script(script(coding, &coded(coding, plain.as_bytes())));
            let answer = world.send("POST", "/v1/chat/completions", &headers, body.to_string()).await;
            assert_eq!(answer.status, 200, "{coding}");
            assert!(answer.header("content-encoding").is_none());
            assert!(answer.text().contains("\"hi\""), "{coding}: {}", answer.text());
            assert_eq!(world.up.calls()[call].header("accept-encoding"), Some("identity"));
            assert_eq!(last(&world).await.figures, Figures::Reported, "{coding}");
        }
        assert_eq!((world.balance(RATE).await, world.balance(QUOTA).await), ((74, 0), (74, 0)), "{coding}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b130_a_stream_that_cannot_be_read_goes_on_and_what_was_held_stands() {
    for coding in ["x-foo", "gzip, gzip"] {
        let world = World::start(limits()).await;
        let body = ask_stream("x");
        let bytes = coded(coding, plain(&body).as_bytes());
        world.up.script(script(coding, &bytes));
        let answer = world.chat(&body).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-encoding")), (200, Some(coding)));
        assert_eq!(answer.body, bytes, "{coding}");
        assert_eq!(answer.header("cache-control"), Some("no-cache, no-transform"));
        let entry = last(&world).await;
        assert_eq!((entry.ending, entry.figures), (Ending::Complete, Figures::Unknown), "{coding}");
        stands(&world, &entry).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b130_a_plain_answer_that_cannot_be_read_is_a_bad_answer_and_what_was_held_stands() {
    for coding in ["x-foo", "gzip, gzip"] {
        let world = World::start(limits()).await;
        world.up.script(script(coding, &coded(coding, plain(&ask("x")).as_bytes())));
        let answer = world.chat(&ask("x")).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-encoding")), (502, None));
        assert_eq!(answer.json()["error"]["code"], "upstream_error");
        let entry = last(&world).await;
        assert_eq!(entry.figures, Figures::Unknown, "{coding}");
        stands(&world, &entry).await;
    }
}

/// The expected demand on the rate, the worst case on the quota; neither is nothing.
async fn stands(world: &World, entry: &EntryBody) {
    let signed = |amount: u64| i64::try_from(amount).unwrap();
    let (expected, worst) = (signed(entry.hold.expected_llm_tokens), signed(entry.hold.worst_llm_tokens));
    assert!(expected > signed(entry.hold.input_llm_tokens) && worst >= expected, "{:?}", entry.hold);
    assert_eq!(world.balance(RATE).await, (expected, 0));
    assert_eq!(world.balance(QUOTA).await, (worst, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b130_where_a_hard_limit_would_have_to_end_it_an_unread_stream_is_not_relayed() {
    let mut limit = quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000);
    limit.strictness = Some(Strictness::Hard);
    limit.hold = Some(Hold::Expected);
    let world = World::start(Plan { upstream: |u| u.retries = 0, ..Plan::with([limit]) }).await;
    let body = ask_stream("x");
    world.up.script(script("x-foo", &coded("x-foo", plain(&body).as_bytes())));
    let answer = world.chat(&body).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()["error"]["code"].as_str()),
        (502, Some("upstream_error"))
    );
    let entry = last(&world).await;
    assert_eq!(entry.figures, Figures::Unknown);
    assert!(world.balance(0).await.0 > i64::try_from(entry.hold.input_llm_tokens).unwrap());
}
