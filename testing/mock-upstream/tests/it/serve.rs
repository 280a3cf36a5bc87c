//! Answers, scripts and control.

use std::io::Read as _;

use serde_json::{Value, json};
use tollbook_mock_upstream::{
    Afterwards, Dialect, Ending, Framing, Generate, MockUpstream, Script, Step, Usage, UsageMode,
};

use crate::client::{Client, LIMIT};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

#[tokio::test]
async fn plain_chat_reports_what_it_used() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7}"#;
    client.post(CHAT, "authorization: Bearer k\r\n", body).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["usage"]["completion_tokens"], 7);
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "length");
    client.get("/v1/models", "").await;
    assert_eq!(client.answer().await.json()["data"][0]["id"], "mock-small");

    let calls = mock.calls();
    assert_eq!(calls.len(), 2);
    let call = &calls[0];
    let input = u64::try_from(body.len()).unwrap().div_ceil(4);
    assert_eq!(call.reported, Some(Usage { input, output: 7, ..Usage::default() }));
    assert_eq!(call.reported, Some(call.generated));
    assert!(call.usage_complete);
    assert_eq!((call.order, call.connection), (1, 1));
    assert_eq!((call.method.as_str(), call.path()), ("POST", CHAT));
    assert_eq!(call.model.as_deref(), Some("m"));
    assert_eq!(call.header("Authorization"), Some("Bearer k"));
    assert_eq!(call.json()["max_tokens"], 7);
    assert_eq!(call.ending, Ending::Complete);
    assert_eq!(call.afterwards, Afterwards::NextCall);
    assert_eq!(calls[1].afterwards, Afterwards::Quiet);
}

#[tokio::test]
async fn streams_speak_both_dialects() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", r#"{"stream":true,"stream_options":{"include_usage":true}}"#).await;
    let text = client.answer().await.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(text.matches(r#""usage":null"#).count(), 14);
    assert_eq!(text.matches(r#""choices":[]"#).count(), 1);

    client.post(MESSAGES, "", r#"{"stream":true,"max_tokens":100}"#).await;
    let text = client.answer().await.text();
    assert!(text.starts_with("event: message_start\ndata: {"), "{text}");
    assert!(text.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), "{text}");
    let calls = mock.calls();
    assert_eq!(calls[1].dialect, Dialect::Anthropic);
    assert_eq!(calls[1].usage_sent.len(), 2);
    for call in calls {
        assert_eq!(call.reported, Some(call.generated));
        assert_eq!((call.content_chunks, call.generated.output), (12, 12));
        assert!(call.usage_complete);
    }
}

#[tokio::test]
async fn scripts_are_chosen_in_order() {
    let mock = MockUpstream::start().await.unwrap();
    mock.set_default(Script::output(1).label("default"));
    mock.set_for_model("special", Script::output(2).label("model"));
    mock.script(Script::output(3).label("queue"));
    let mut client = Client::connect(mock.addr()).await;
    let own = serde_json::to_string(&Script::output(4).label("own")).unwrap();
    for (headers, body) in [
        (format!("x-mock-script: {own}\r\n"), r#"{"model":"special"}"#),
        (String::new(), r#"{"model":"special"}"#),
        (String::new(), "{}"),
        (String::new(), "{}"),
    ] {
        client.post(CHAT, &headers, body).await;
        client.answer().await;
    }
    let labels: Vec<_> = mock.calls().into_iter().map(|call| (call.label, call.generated.output)).collect();
    let expected = [("own", 4), ("model", 2), ("queue", 3), ("default", 1)];
    assert_eq!(labels, expected.map(|(label, output)| (Some(label.to_owned()), output)));
}

#[tokio::test]
async fn bad_script_is_refused_and_recorded() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    client.post(MESSAGES, "x-mock-script: {\"statsu\":1}\r\n", "{}").await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("statsu"));
    assert_eq!(mock.calls()[0].ending, Ending::Refused);
}

#[tokio::test]
async fn odd_usage_goes_out_as_written() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    let odd = json!({"prompt_tokens": "12", "completion_tokens": 1e300});
    for (usage, sent) in [
        (UsageMode::Never, vec![]),
        (UsageMode::Null, vec![Value::Null]),
        (UsageMode::Odd(odd.clone()), vec![odd]),
    ] {
        mock.script(Generate { usage, ..Generate::default() }.into());
        client.post(CHAT, "", "{}").await;
        client.answer().await;
        let call = mock.calls().pop().unwrap();
        assert_eq!(call.usage_sent, sent);
        assert_eq!(call.reported, None);
        assert_eq!(call.generated.output, 12);
    }
    mock.script(Generate { usage: UsageMode::Negative, ..Generate::default() }.into());
    client.post(CHAT, "", "{}").await;
    assert_eq!(client.answer().await.json()["usage"]["completion_tokens"], -12);
}

#[tokio::test]
async fn cumulative_usage_ends_with_the_total() {
    let mock = MockUpstream::start().await.unwrap();
    mock.set_default(
        Generate { usage: UsageMode::Cumulative, chunks: Some(4), ..Generate::default() }.into(),
    );
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", r#"{"stream":true}"#).await;
    client.answer().await;
    let call = mock.calls().pop().unwrap();
    let running: Vec<u64> =
        call.usage_sent.iter().map(|usage| usage["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(running, [3, 6, 9, 12, 12]);
    assert!(call.usage_complete);
}

#[tokio::test]
async fn gzip_and_framing_are_as_scripted() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    mock.script(Script::json(200, json!({"usage": {"prompt_tokens": 3, "completion_tokens": 4}})).gzip());
    client.post(CHAT, "", "{}").await;
    let answer = client.answer().await;
    assert!(answer.head.contains("content-encoding: gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(answer.body.as_slice()).read_to_string(&mut text).unwrap();
    assert!(text.contains("prompt_tokens"));
    let call = mock.calls().pop().unwrap();
    assert_eq!(call.reported, Some(Usage { input: 3, output: 4, ..Usage::default() }));

    let mut script = Script::steps(vec![Step::Text("a".into()), Step::Base64("/w==".into())]);
    script.framing = Framing::Chunked;
    mock.script(script.clone());
    client.post("/v1/other", "", "{}").await;
    assert_eq!(client.answer().await.body, b"a\xff");
    script.framing = Framing::UntilClose;
    mock.script(script);
    client.post("/v1/other", "", "{}").await;
    let (bytes, clean) = client.read_to_end().await;
    assert!(clean);
    assert!(bytes.ends_with(b"\r\n\r\na\xff"));
}

#[tokio::test]
async fn raw_bytes_are_the_whole_answer() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    mock.script(Script::raw(vec![Step::Text("HTTP/9 what\n".into())]));
    client.post(CHAT, "", "{}").await;
    assert_eq!(client.read_to_end().await, (b"HTTP/9 what\n".to_vec(), true));
    let call = mock.calls().pop().unwrap();
    assert_eq!((call.status, call.bytes_sent, call.ending), (None, 12, Ending::Complete));
}

#[tokio::test]
async fn barrier_holds_all_and_releases_all() {
    let mock = MockUpstream::start().await.unwrap();
    mock.hold_until_released();
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(mock.addr()).await;
        client.post(CHAT, "", "{}").await;
        clients.push(client);
    }
    assert!(mock.wait_until(LIMIT, |_, totals| totals.waiting == 20).await);
    let gone = clients.pop().unwrap();
    drop(gone);
    assert!(mock.wait_until(LIMIT, |_, totals| totals.waiting == 19 && totals.in_flight == 19).await);
    assert!(mock.calls().iter().all(|call| call.answered_ms.is_none()));
    mock.release();
    for client in &mut clients {
        assert_eq!(client.answer().await.status, 200);
    }
    assert!(mock.wait_until(LIMIT, |_, totals| totals.in_flight == 0).await);
    let totals = mock.totals();
    assert_eq!((totals.calls, totals.in_flight_max, totals.waiting), (20, 20, 0));
    assert_eq!(mock.calls().iter().filter(|call| call.ending == Ending::ClientGone).count(), 1);
}

#[tokio::test]
async fn control_paths_steer_and_leave_no_trace() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    let scripts = serde_json::to_string(&[Script::output(5), Script::error(429, "later")]).unwrap();
    client.post("/__script", "", &scripts).await;
    assert_eq!(client.answer().await.json()["queued"], 2);
    client.post("/__default", "", r#"{"answer":{"generate":{"output_llm_tokens":2}}}"#).await;
    assert_eq!(client.answer().await.status, 200);
    client.post("/__default", "", "{").await;
    assert_eq!(client.answer().await.status, 400);
    client.post("/__nothing", "", "").await;
    assert_eq!(client.answer().await.status, 404);
    let mut seen = Vec::new();
    for _ in 0..3 {
        client.post(MESSAGES, "", "{}").await;
        let answer = client.answer().await;
        seen.push((answer.status, answer.json()["usage"]["output_tokens"].as_u64()));
    }
    assert_eq!(seen, [(200, Some(5)), (429, None), (200, Some(2))]);
    client.get("/__record", "").await;
    let record = client.answer().await.json();
    assert_eq!(record.as_array().unwrap().len(), 3);
    assert_eq!(record[0]["ending"], "complete");
    assert_eq!(record[0]["reported"]["output"], 5);
    assert_eq!(record[1]["reported"], Value::Null);
    client.get("/__totals", "").await;
    assert_eq!(client.answer().await.json()["calls"], 3);
}

#[test]
fn runs_without_a_runtime_of_the_caller() {
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let mock = MockUpstream::start_in_thread(addr).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let status = runtime.block_on(async {
        let mut client = Client::connect(mock.addr()).await;
        client.post(CHAT, "transfer-encoding: chunked\r\nx-", "").await;
        client.stream.try_write(b"3\r\n{ }\r\n0\r\n\r\n").unwrap();
        client.answer().await.status
    });
    assert_eq!(status, 200);
    assert!(mock.wait_until_blocking(LIMIT, |calls, _| calls[0].ending == Ending::Complete));
    assert!(!mock.wait_until_blocking(std::time::Duration::from_millis(5), |calls, _| calls.len() > 1));
    assert_eq!(mock.calls()[0].body, "{ }");
    let addr = mock.addr();
    mock.stop_blocking();
    assert!(std::net::TcpStream::connect(addr).is_err());
}
