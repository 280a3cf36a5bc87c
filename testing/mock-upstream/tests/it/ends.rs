//! How calls end: by the script, by the client, by a stop. Each ending has to be recorded for what it was.

use serde_json::json;
use tollbook_mock_upstream::{
    Afterwards, Dialect, Ending, Generate, MockUpstream, Recorded, Script, Step, Usage, UsageMode,
};

use crate::client::{Client, LIMIT};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const STREAM: &str = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;

/// The latest call, once it has ended; a test sends one call at a time and has seen part of its answer.
async fn ended(mock: &MockUpstream) -> Recorded {
    assert!(
        mock.wait_until(LIMIT, |calls, _| calls.last().is_some_and(|call| call.ending != Ending::Open)).await
    );
    mock.calls().pop().unwrap()
}

async fn closed_afterwards(mock: &MockUpstream) -> Afterwards {
    let known = |calls: &[Recorded]| calls.last().is_some_and(|call| call.afterwards != Afterwards::Quiet);
    assert!(mock.wait_until(LIMIT, |calls, _| known(calls)).await);
    mock.calls().pop().unwrap().afterwards
}

#[tokio::test]
async fn script_resets_and_closes_where_it_says() {
    let mock = MockUpstream::start().await.unwrap();
    for at in 0..=3 {
        let reset = Generate { chunks: Some(3), reset_at_chunk: Some(at), ..Generate::default() };
        mock.script(reset.into());
        let mut client = Client::connect(mock.addr()).await;
        client.post(CHAT, "", STREAM).await;
        let (_, clean) = client.read_to_end().await;
        assert!(!clean, "a reset is seen as one");
        let call = ended(&mock).await;
        assert_eq!((call.ending, call.content_chunks, call.generated.output), (Ending::Reset, at, at * 4));
        assert!(!call.usage_complete);
        assert_eq!(call.reported, None);

        let close = Generate { chunks: Some(3), close_at_chunk: Some(at), ..Generate::default() };
        mock.script(close.into());
        let mut client = Client::connect(mock.addr()).await;
        client.post(MESSAGES, "", STREAM).await;
        let (bytes, clean) = client.read_to_end().await;
        assert!(clean);
        assert!(!String::from_utf8(bytes).unwrap().ends_with("0\r\n\r\n"), "the body must not look complete");
        let call = ended(&mock).await;
        assert_eq!((call.ending, call.content_chunks), (Ending::Closed, at));
        assert_eq!(call.reported.map(|usage| usage.output), Some(1), "message_start tells one");
        assert!(!call.usage_complete);
    }
}

#[tokio::test]
async fn error_event_ends_the_stream_cleanly() {
    let mock = MockUpstream::start().await.unwrap();
    mock.set_default(Generate { chunks: Some(3), error_at_chunk: Some(2), ..Generate::default() }.into());
    let mut client = Client::connect(mock.addr()).await;
    client.post(MESSAGES, "", STREAM).await;
    let text = client.answer().await.text();
    assert!(text.contains("event: error\ndata: "), "{text}");
    assert!(!text.contains("message_stop"));
    client.post(CHAT, "", STREAM).await;
    assert!(client.answer().await.text().contains(r#"data: {"error":{"#));
    client.post(CHAT, "", "{}").await;
    assert_eq!(client.answer().await.status, 500);
    let calls = mock.calls();
    assert!(calls.iter().all(|call| call.ending == Ending::Complete));
    assert_eq!(calls[0].generated.output, 8);
}

#[tokio::test]
async fn client_gone_at_each_chunk_is_seen() {
    let mock = MockUpstream::start().await.unwrap();
    for at in 0..4_u64 {
        let steps = (0..8)
            .flat_map(|index| {
                [Step::Text(format!("<{index}>")), Step::DelayMs(if index < at { 0 } else { 60_000 })]
            })
            .collect();
        mock.script(Script::steps(steps));
        let mut client = Client::connect(mock.addr()).await;
        client.post(CHAT, "", STREAM).await;
        client.read_until(&format!("<{at}>")).await;
        drop(client);
        let call = ended(&mock).await;
        assert_eq!((call.ending, call.gone_at_chunk), (Ending::ClientGone, Some(at + 1)));
        assert_eq!(call.content_chunks, at + 1);
    }
}

#[tokio::test]
async fn ignored_disconnect_generates_to_the_end() {
    let mock = MockUpstream::start().await.unwrap();
    let generate =
        Generate { output_llm_tokens: Some(100), chunks: Some(20), chunk_every_ms: 2, ..Generate::default() };
    mock.set_default(Script::from(generate).ignore_disconnect());
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", STREAM).await;
    client.read_until("the book").await;
    drop(client);
    let call = ended(&mock).await;
    assert_eq!(call.ending, Ending::ClientGone);
    assert_eq!(call.generated.output, 100, "all of it was made");
    assert!(call.content_chunks < 20, "not all of it was sent");
    assert_eq!(call.gone_at_chunk, Some(call.content_chunks));
    assert!(call.usage_sent.is_empty());
}

#[tokio::test]
async fn stall_lasts_until_the_client_goes() {
    let mock = MockUpstream::start().await.unwrap();
    for (index, (body, chunks)) in [(STREAM, 2), ("{}", 0)].into_iter().enumerate() {
        mock.script(Generate { stall_at_chunk: Some(2), ..Generate::default() }.into());
        let mut client = Client::connect(mock.addr()).await;
        client.post(CHAT, "", body).await;
        assert!(mock.wait_until(LIMIT, |calls, _| calls.get(index).is_some_and(|call| call.stalled)).await);
        assert_eq!(mock.calls()[index].ending, Ending::Open);
        drop(client);
        let call = ended(&mock).await;
        assert_eq!((call.ending, call.content_chunks), (Ending::ClientGone, chunks));
    }
}

#[tokio::test]
async fn unread_answer_ends_in_a_reset() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", "{}").await;
    assert_eq!(ended(&mock).await.ending, Ending::Complete);
    // The answer lies in the socket; closing now leaves it unread.
    client.stream.readable().await.unwrap();
    drop(client);
    assert_eq!(closed_afterwards(&mock).await, Afterwards::Reset);

    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", "{}").await;
    client.answer().await;
    drop(client);
    assert_eq!(closed_afterwards(&mock).await, Afterwards::Closed);
}

#[tokio::test]
async fn request_cut_short_is_no_complete_call() {
    let mock = MockUpstream::start().await.unwrap();
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "content-length: 10\r\nx-", "abc").await;
    drop(client);
    let call = ended(&mock).await;
    assert_eq!((call.ending, call.body_bytes), (Ending::RequestCut, 0));
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_record() {
    let mock = MockUpstream::start().await.unwrap();
    for (request, status) in [
        ("nonsense\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    ] {
        let mut client = Client::connect(mock.addr()).await;
        client.stream.try_write(request.as_bytes()).unwrap();
        assert_eq!(client.answer().await.status, status, "{request}");
        drop(client);
        assert_eq!(ended(&mock).await.ending, Ending::Refused);
    }
}

#[tokio::test]
async fn half_close_leaves_the_other_side_open() {
    let mock = MockUpstream::start().await.unwrap();
    mock.script(Script::steps(vec![Step::Text("part".into()), Step::HalfClose, Step::Text("rest".into())]));
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", "{}").await;
    let (bytes, clean) = client.read_to_end().await;
    assert!(clean);
    assert!(bytes.ends_with(b"part"));
    assert_eq!(mock.calls()[0].ending, Ending::Open);
    drop(client);
    assert_eq!(ended(&mock).await.ending, Ending::HalfClosed);
}

#[tokio::test]
async fn usage_in_a_raw_step_counts_once_written() {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 2});
    let mock = MockUpstream::start().await.unwrap();
    mock.script(Script::steps(vec![
        Step::Text("data: {}\n\n".into()),
        Step::Usage { text: format!("data: {{\"usage\":{usage}}}\n\n"), usage: usage.clone() },
        Step::Reset,
    ]));
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", STREAM).await;
    client.read_to_end().await;
    let call = ended(&mock).await;
    assert_eq!(call.ending, Ending::Reset);
    assert_eq!(call.reported, Some(Usage { input: 9, output: 2, ..Usage::default() }));
    assert!(call.usage_complete);
    assert_eq!(call.dialect, Dialect::OpenAi);
}

#[tokio::test]
async fn idle_connections_close_and_busy_ones_do_not() {
    let mock = MockUpstream::start().await.unwrap();
    let mut idle = Client::connect(mock.addr()).await;
    idle.post(CHAT, "", "{}").await;
    idle.answer().await;
    mock.hold_until_released();
    let mut busy = Client::connect(mock.addr()).await;
    busy.post(CHAT, "", "{}").await;
    assert!(mock.wait_until(LIMIT, |_, totals| totals.waiting == 1).await);
    mock.close_idle();
    assert_eq!(idle.read_to_end().await, (Vec::new(), true));
    mock.release();
    assert_eq!(busy.answer().await.status, 200);
}

#[tokio::test]
async fn stop_closes_everything() {
    let mock = MockUpstream::start().await.unwrap();
    mock.set_default(Generate { stall_at_chunk: Some(1), ..Generate::default() }.into());
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", STREAM).await;
    assert!(mock.wait_until(LIMIT, |calls, _| calls.last().is_some_and(|call| call.stalled)).await);
    let addr = mock.addr();
    mock.stop().await;
    client.read_to_end().await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    let again = MockUpstream::start_at(addr).await.unwrap();
    let mut client = Client::connect(again.addr()).await;
    client.post(CHAT, "", "{}").await;
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test]
async fn huge_answer_is_written_piece_by_piece() {
    let mock = MockUpstream::start().await.unwrap();
    let text = "x".repeat(64 * 1024);
    mock.script(Script::steps(vec![Step::Repeat { text, times: 1000, every_ms: 0 }]));
    let mut client = Client::connect(mock.addr()).await;
    client.post(CHAT, "", STREAM).await;
    client.read_until("xxxx").await;
    drop(client);
    let call = ended(&mock).await;
    assert_eq!(call.ending, Ending::ClientGone);
    assert!(call.content_chunks < 1000);
}

#[tokio::test]
async fn usage_of_a_cut_plain_answer_is_not_reported() {
    let mock = MockUpstream::start().await.unwrap();
    for usage in [UsageMode::Auto, UsageMode::Final] {
        mock.script(Generate { reset_at_chunk: Some(1), usage, ..Generate::default() }.into());
        let mut client = Client::connect(mock.addr()).await;
        client.post(MESSAGES, "", "{}").await;
        assert!(!client.read_to_end().await.1);
        let call = ended(&mock).await;
        assert_eq!((call.reported, call.usage_complete), (None, false));
        assert_eq!(call.status, Some(200));
    }
}
