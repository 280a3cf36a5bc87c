//! The provider's credential in what comes back, cut in two.

use http_body_util::BodyExt;
use serde_json::json;
use tollbook_mock_upstream::{Script, Step};
use tollbook_policy::Measure;
use tollbook_store::Ending;

use crate::world::{Plan, World, ask_stream, key, rate};

/// Pieces that arrive apart: the second is sent long after the first.
fn apart(pieces: &[&str]) -> Script {
    let mut steps = Vec::new();
    for piece in pieces {
        steps.extend([Step::Text((*piece).to_owned()), Step::DelayMs(100)]);
    }
    Script::steps(steps)
}

const DELTA: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}"#;
const STOP: &str = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_over_two_pieces_of_a_stream_reaches_no_client() {
    let world = World::start(Plan::with([rate(key(), Measure::Requests, 100)])).await;
    for cut in [1, 8, 14] {
        let (first, second) = "provider-secret".split_at(cut);
        let before =
            format!("{DELTA}\n\ndata: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{first}");
        let after = format!("{second}\"}},\"finish_reason\":null}}]}}\n\n{STOP}\n\ndata: [DONE]\n\n");
        let mut asked = ask_stream("x");
        for told in [false, true] {
            asked["stream_options"] = json!({ "include_usage": told });
            world.up.script(apart(&[&before, &after]));
            let text = world.chat(&asked).await.text();
            assert!(text.contains("\"hi\"") && !text.contains("[DONE]"), "{text}");
            assert!(!text.contains("provider-s") && !text.contains("secret"), "{text}");
            assert!(text.contains("stream_incomplete"), "{text}");
            world.settled().await;
            assert_eq!(world.journal().await.pop().unwrap().1.ending, Ending::Reset);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_begin_the_credential_waits_and_then_goes_on() {
    let world = World::start(Plan::with([rate(key(), Measure::Requests, 100)])).await;
    let pieces = [
        &format!("{DELTA}\n\ndata: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"provider-sec"),
        &format!("ond\"}}}}]}}\n\n{STOP}\n\ndata: [DONE]\n\n: provider-"),
    ];
    world.up.script(apart(&pieces.map(String::as_str)));
    let mut asked = ask_stream("x");
    asked["stream_options"] = json!({ "include_usage": true });
    assert_eq!(world.chat(&asked).await.text(), pieces.map(String::as_str).concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_in_an_answer_that_is_passed_reaches_no_client() {
    let world = World::start(Plan {
        config: |c| c.passes.openai = Some("openai".into()),
        ..Plan::with([rate(key(), Measure::Requests, 100)])
    })
    .await;
    let headers = [("authorization", "Bearer tb_test_key")];
    for pieces in [&["line\nprovider-secret\n", "more"][..], &["line\nprovider-sec", "ret\nmore"]] {
        for kind in ["text/event-stream", "application/jsonl"] {
            world.up.script(apart(pieces).header("content-type", kind));
            let request =
                http::Request::get(world.url("/v1/files/f-1/content")).header(headers[0].0, headers[0].1);
            // An event stream ends with its error event, anything else breaks off, before its head if it can.
            let Ok(response) = world.request(request).await else {
                assert_eq!(kind, "application/jsonl");
                continue;
            };
            match (kind, response.into_body().collect().await) {
                ("text/event-stream", Ok(body)) => {
                    let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
                    assert!(text.contains("stream_incomplete") && !text.contains("ret\n"), "{text}");
                }
                ("application/jsonl", Err(_)) => {}
                (_, body) => panic!("{kind}: {body:?}"),
            }
        }
    }
    let whole = "a file that ends with provider-secre";
    world.up.script(apart(&[whole]).header("content-type", "text/plain"));
    assert_eq!(world.send("GET", "/v1/files/f-1/content", &headers, "").await.text(), whole);
}
