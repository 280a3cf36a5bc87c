//! Field cases SSE and HTP that are about *when*: what reaches the client before the provider goes on, and what stands
//! where a provider says nothing. The provider is played by hand, piece by piece, so that no test waits for time.

use std::io::Write as _;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::{Ending, Figures};

use crate::world::{Plan, World, ask_stream, key, quota, rate};

const DEADLINE: Duration = Duration::from_secs(20);
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n";

/// A provider in the test's own hands.
struct Hand(TcpListener);

/// One answer of it.
struct Given(TcpStream);

impl Hand {
    /// A world in which every upstream is this one.
    async fn world(plan: Plan) -> (World, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let world = World::start(plan).await;
        let mut config = world.config.clone();
        for upstream in &mut config.upstreams {
            upstream.base_url = format!("http://{addr}/v1").parse().unwrap();
        }
        let prepared = world.gateway.prepare(config, world.admission.snapshot()).unwrap();
        world.gateway.replace(prepared);
        (world, Self(listener))
    }

    /// Reads one call and answers it with a head; `more` are further header lines.
    async fn take(&self, more: &str) -> Given {
        let (mut socket, _) = self.0.accept().await.unwrap();
        let mut got = Vec::new();
        let mut whole = None;
        while whole.is_none_or(|whole| got.len() < whole) {
            assert!(socket.read_buf(&mut got).await.unwrap() > 0, "the call was cut");
            let text = String::from_utf8_lossy(&got).to_ascii_lowercase();
            if let Some(head) = text.find("\r\n\r\n") {
                let (_, length) = text.split_once("content-length: ").unwrap();
                let length = length.lines().next().unwrap();
                whole = Some(head + 4 + length.parse::<usize>().unwrap());
            }
        }
        socket.write_all(format!("{STREAM}{more}\r\n").as_bytes()).await.unwrap();
        Given(socket)
    }
}

impl Given {
    async fn give(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.0.write_all(&chunk).await.unwrap();
    }

    async fn end(mut self) {
        self.0.write_all(b"0\r\n\r\n").await.unwrap();
    }
}

/// The client's side of one answer.
struct Got {
    head: http::response::Parts,
    body: Incoming,
    bytes: Vec<u8>,
}

impl Got {
    /// Opens a stream and gives its first piece; the head comes with it.
    async fn open(
        world: &World,
        hand: &Hand,
        (path, body): (&str, &Value),
        more: &str,
        first: &[u8],
    ) -> (Self, Given) {
        let headers = [("accept-encoding", "gzip, br, zstd")];
        let playing = async {
            let mut given = hand.take(more).await;
            given.give(first).await;
            given
        };
        let opening = async { tokio::join!(world.open_stream_with(path, &headers, body), playing) };
        let (response, given) = tokio::time::timeout(DEADLINE, opening).await.unwrap();
        let (head, body) = response.into_parts();
        (Self { head, body, bytes: Vec::new() }, given)
    }

    /// Reads on until the test has seen enough.
    async fn until(&mut self, enough: impl Fn(&str) -> bool) {
        let reading = async {
            while !enough(&self.text()) {
                let frame = self.body.frame().await.expect("more was to come").unwrap();
                self.bytes.extend_from_slice(&frame.into_data().unwrap());
            }
        };
        tokio::time::timeout(DEADLINE, reading).await.expect("it never came");
    }

    /// Reads to the end.
    async fn rest(mut self) -> String {
        let rest = tokio::time::timeout(DEADLINE, self.body.collect()).await.expect("no end").unwrap();
        self.bytes.extend_from_slice(&rest.to_bytes());
        String::from_utf8(self.bytes).unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

fn limits() -> Plan {
    Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)])
}

/// A chat answer of 37 llm_tokens in six events, with this line end.
fn chat_events(line_end: &str) -> Vec<String> {
    let delta = |text: &str, finish: Value| {
        json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": finish }] })
            .to_string()
    };
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37 } });
    let data = [
        delta("one", json!(null)),
        delta("two", json!(null)),
        delta("three", json!(null)),
        delta("", json!("stop")),
        usage.to_string(),
        "[DONE]".to_owned(),
    ];
    data.iter().map(|data| format!("data: {data}{line_end}{line_end}")).collect()
}

fn with_usage() -> Value {
    let mut body = ask_stream("x");
    body["stream_options"] = json!({ "include_usage": true });
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b113_each_event_is_with_the_client_before_the_next_is_sent_whatever_ends_its_lines() {
    let (world, hand) = Hand::world(limits()).await;
    let mut calls = 0;
    for line_end in ["\n", "\r\n", "\r"] {
        for asked in [true, false] {
            let body = if asked { with_usage() } else { ask_stream("x") };
            let events = chat_events(line_end);
            let chat = ("/v1/chat/completions", &body);
            let (mut got, mut given) = Got::open(&world, &hand, chat, "", events[0].as_bytes()).await;
            let mut want = events[0].clone();
            got.until(|text| text == want).await;
            for event in &events[1..] {
                given.give(event).await;
                if asked || !event.contains("usage") {
                    want.push_str(event);
                    got.until(|text| text == want).await;
                }
            }
            given.end().await;
            assert_eq!(got.rest().await, want, "{line_end:?}");
            world.settled().await;
            calls += 1;
            assert_eq!(world.balance(0).await, (37 * calls, 0), "{line_end:?}, asked: {asked}");
        }
    }
    assert!(world.journal().await.iter().all(|(_, entry)| entry.figures == Figures::Reported));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b131_no_event_waits_for_the_next_whatever_the_client_or_the_provider_compresses() {
    let (world, hand) = Hand::world(limits()).await;
    let body = with_usage();
    let events = chat_events("\n");
    for coded in [false, true] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut piece = |event: &str| {
            if !coded {
                return event.as_bytes().to_vec();
            }
            gzip.write_all(event.as_bytes()).unwrap();
            gzip.flush().unwrap();
            std::mem::take(gzip.get_mut())
        };
        let more = if coded { "content-encoding: gzip\r\n" } else { "" };
        let chat = ("/v1/chat/completions", &body);
        let (mut got, mut given) = Got::open(&world, &hand, chat, more, &piece(&events[0])).await;
        let header = |name: &str| got.head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("content-encoding"), None);
        assert_eq!(header("content-type").as_deref(), Some("text/event-stream; charset=utf-8"));
        assert_eq!(header("cache-control").as_deref(), Some("no-cache, no-transform"));
        assert_eq!(header("x-accel-buffering").as_deref(), Some("no"));
        let mut want = events[0].clone();
        got.until(|text| text == want).await;
        for event in &events[1..] {
            given.give(piece(event)).await;
            want.push_str(event);
            got.until(|text| text == want).await;
        }
        if coded {
            given.give(gzip.finish().unwrap()).await;
        }
        given.end().await;
        assert_eq!(got.rest().await, want);
    }
    world.settled().await;
    assert_eq!(world.balance(0).await, (74, 0));
}

/// Per dialect: path, body, events, a keepalive.
fn dialects() -> [(&'static str, Value, Vec<String>, &'static str); 2] {
    let event = |data: Value| {
        let kind = data["type"].as_str().unwrap().to_owned();
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let text = |text: &str| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-upstream",
        "content": [], "stop_reason": null, "usage": { "input_tokens": 30, "output_tokens": 1 } });
    let events = vec![
        event(json!({ "type": "message_start", "message": message })),
        event(
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        ),
        event(text("one")),
        event(json!({ "type": "content_block_stop", "index": 0 })),
        event(
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 7 } }),
        ),
        event(json!({ "type": "message_stop" })),
    ];
    let body = json!({ "model": "claude", "max_tokens": 50, "stream": true,
        "messages": [{ "role": "user", "content": "x" }] });
    [
        ("/v1/chat/completions", with_usage(), chat_events("\n"), ": keepalive\n"),
        ("/v1/messages", body, events, "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
    ]
}

fn keeping(silence_ms: u64) -> Plan {
    let upstream = match silence_ms {
        700 => |u: &mut tollbook_gateway::Upstream| u.silence_timeout = Duration::from_millis(700),
        _ => |u: &mut tollbook_gateway::Upstream| u.silence_timeout = Duration::from_secs(60),
    };
    Plan { config: |c| c.timeouts.keepalive = Duration::from_millis(50), upstream, ..limits() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b123_a_silent_provider_gets_its_client_signs_of_life_that_are_no_events() {
    for (path, body, events, keepalive) in dialects() {
        let (world, hand) = Hand::world(keeping(60_000)).await;
        let (mut got, mut given) = Got::open(&world, &hand, (path, &body), "", events[0].as_bytes()).await;
        got.until(|text| text.matches(keepalive).count() >= 3).await;
        for event in &events[1..] {
            given.give(event).await;
        }
        given.end().await;
        let text = got.rest().await;
        assert!(!text.contains("id:"), "{text}");
        assert_eq!(
            text.replace(keepalive, ""),
            events.concat(),
            "whole events in their order, between them keepalives"
        );
        world.settled().await;
        assert_eq!(world.balance(0).await, (37, 0), "{path}");
        let journal = world.journal().await;
        assert_eq!((journal[0].1.figures, journal[0].1.ending), (Figures::Reported, Ending::Complete));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b124_nothing_is_put_into_an_event_and_our_signs_of_life_are_not_the_providers() {
    for (path, body, events, keepalive) in dialects() {
        let (world, hand) = Hand::world(keeping(700)).await;
        let (mut got, mut given) = Got::open(&world, &hand, (path, &body), "", events[0].as_bytes()).await;
        got.until(|text| text.contains(keepalive)).await;
        let (half, _) = events[1].split_at(events[1].len() / 2);
        given.give(half).await;
        // The provider's silence ends the stream, many keepalives later than the last one that had a place.
        let text = got.rest().await;
        let (_, behind) = text.rsplit_once(half).unwrap();
        assert!(behind.starts_with("\n\n") && behind.contains("error"), "{text}");
        assert!(!behind.contains(keepalive), "{text}");
        world.settled().await;
        let journal = world.journal().await;
        assert_eq!(journal[0].1.ending, Ending::Timeout, "{path}");
        assert_ne!(journal[0].1.figures, Figures::Unknown);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b124_a_line_end_that_is_cut_in_two_takes_no_keepalive() {
    let (world, hand) = Hand::world(keeping(700)).await;
    let events = chat_events("\r\n");
    let first = events[0].trim_end_matches('\n');
    let body = with_usage();
    let chat = ("/v1/chat/completions", &body);
    let (got, _given) = Got::open(&world, &hand, chat, "", first.as_bytes()).await;
    let text = got.rest().await;
    assert!(text.starts_with(first) && text.contains("stream_timeout"), "{text}");
    assert!(!text.contains(": keepalive"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keepalives_can_be_switched_off() {
    let plan = Plan { config: |c| c.timeouts.keepalive = Duration::ZERO, ..keeping(700) };
    let (world, hand) = Hand::world(plan).await;
    let events = chat_events("\n");
    let body = with_usage();
    let chat = ("/v1/chat/completions", &body);
    let (got, _given) = Got::open(&world, &hand, chat, "", events[0].as_bytes()).await;
    let text = got.rest().await;
    assert!(text.contains("stream_timeout") && !text.contains(": keepalive"), "{text}");
}

fn impatient() -> Plan {
    Plan {
        upstream: |u| {
            u.event_timeout = Duration::from_millis(600);
            u.retries = 0;
        },
        ..Plan::with([
            rate(key(), Measure::Requests, 100),
            quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        ])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b138_signs_of_life_alone_keep_a_stream_for_a_bounded_time() {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    for ((path, body, events, _), life) in dialects().into_iter().zip([": working\n\n", ping]) {
        let (world, hand) = Hand::world(impatient()).await;
        let first = events[..3].concat();
        let (got, given) = Got::open(&world, &hand, (path, &body), "", first.as_bytes()).await;
        let begun = std::time::Instant::now();
        let living = tokio::spawn(async move {
            let mut given = given;
            let piece = format!("{:x}\r\n{life}\r\n", life.len());
            while given.0.write_all(piece.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let text = got.rest().await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(10), "{took:?}");
        assert!(text.starts_with(&format!("{first}{life}")), "{text}");
        let code = if path == "/v1/messages" { "timeout_error" } else { "stream_timeout" };
        assert!(text.contains(code) && !text.contains("[DONE]"), "{text}");
        tokio::time::timeout(DEADLINE, living).await.expect("the provider is let go").unwrap();
        world.settled().await;
        let journal = world.journal().await;
        let entry = &journal[0].1;
        assert_eq!((entry.ending, entry.figures), (Ending::Timeout, Figures::Partial), "{path}");
        assert!(entry.usage.input > 0 && entry.usage.output > 0, "{:?}", entry.usage);
        assert_eq!(world.balance(1).await, (entry.usage.input + entry.usage.output, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b138_a_stream_whose_events_keep_coming_is_not_bounded() {
    let world = World::start(impatient()).await;
    let slow = tollbook_mock_upstream::Generate {
        chunks: Some(8),
        output_llm_tokens: Some(8),
        chunk_every_ms: 150,
        ..Default::default()
    };
    world.up.script(slow.into());
    let text = world.chat(&ask_stream("x")).await.text();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(world.journal().await[0].1.figures, Figures::Reported);
}
