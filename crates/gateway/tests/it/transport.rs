//! TLS, HTTP/2 and what stands before a request: the same calls on every transport, and no peer that costs more than
//! its bounds.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollbook_mock_upstream::{Script, Step};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::Ending;
use tollbook_telemetry::labels;

use crate::world::{API_KEY, Plan, Via, World, ask, ask_stream, key, quota, rate};

fn plan(via: Via) -> Plan {
    Plan {
        via,
        ..Plan::with([
            rate(key(), Measure::Requests, 1_000),
            quota(key(), Measure::Tokens, PeriodKind::Day, 100_000_000),
        ])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_the_same_over_http2_and_tls() {
    for via in [Via::Http1, Via::Http2, Via::Tls] {
        let world = World::start(plan(via)).await;
        world.up.script(Script::output(7));
        let answer = world.chat(&ask("hello")).await;
        assert_eq!(answer.status, 200, "{via:?}: {}", answer.text());
        assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("1000"));
        world.up.script(Script::output(50));
        let text = world.chat(&ask_stream("hello")).await.text();
        assert!(text.ends_with("data: [DONE]\n\n"), "{via:?}: {text}");
        world.settled().await;
        assert_eq!(world.journal().await.len(), 2);
        let spoken = if via == Via::Http1 { labels::Protocol::Http1 } else { labels::Protocol::Http2 };
        assert!(world.metrics.connections_accepted.get((spoken,)) > 0);
        let head = world.send("HEAD", "/healthz", &[], "").await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), Some("3"), "{via:?}");
    }
}

/// A connection of HTTP/2 that is held by its frames, without a client's good manners.
async fn bare(world: &World, window: u32) -> (SendRequest<Bytes>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(world.addr).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).max_concurrent_reset_streams(10_000);
    let (sender, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    (sender, tokio::spawn(async move { drop(connection.await) }))
}

/// Sends a chat call on a stream of its own.
fn call(sender: &mut SendRequest<Bytes>, body: &serde_json::Value) -> h2::client::ResponseFuture {
    let request = http::Request::post("http://gateway/v1/chat/completions").header("x-api-key", API_KEY);
    let (answer, mut sending) = sender.send_request(request.body(()).unwrap(), false).unwrap();
    sending.send_data(Bytes::from(body.to_string()), true).unwrap();
    answer
}

/// A stream that lasts.
fn long() -> Script {
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "word " } }] });
    Script::steps(vec![Step::Repeat { text: format!("data: {chunk}\n\n"), times: 100_000, every_ms: 10 }])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_stream_ends_its_call_and_no_other() {
    let world = World::start(plan(Via::Http2)).await;
    let (mut sender, _connection) = bare(&world, 1 << 20).await;
    world.up.script(long());
    let mut leaving = call(&mut sender, &ask_stream("x")).await.unwrap().into_body();
    world.up.script(long());
    let mut staying = call(&mut sender, &ask_stream("x")).await.unwrap().into_body();
    assert!(leaving.data().await.unwrap().is_ok());
    drop(leaving);
    world.until("the provider sees one stream left", || world.up.totals().in_flight == 1).await;
    assert!(staying.data().await.unwrap().is_ok());
    drop(staying);
    world.settled().await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), 2);
    assert!(journal.iter().all(|(_, body)| body.ending == Ending::ClientGone && body.usage.output > 0));
    assert_eq!(world.send("GET", "/healthz", &[], "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_window_is_cut_and_settled_and_its_neighbours_go_on() {
    let world = World::start(Plan {
        config: |c| c.timeouts.write_stall = Duration::from_millis(300),
        ..plan(Via::Http2)
    })
    .await;
    let (mut sender, _connection) = bare(&world, 100).await;
    world.up.script(long());
    let mut taken = call(&mut sender, &ask_stream("x")).await.unwrap().into_body();
    world.up.script(long());
    let mut stuck = call(&mut sender, &ask_stream("x")).await.unwrap().into_body();
    // One is read and given its window back, the other gets no more than its first hundred bytes.
    let reading = tokio::spawn(async move {
        while let Some(Ok(data)) = taken.data().await {
            taken.flow_control().release_capacity(data.len()).unwrap();
        }
    });
    world.until("one of them is over", || world.up.totals().in_flight == 1).await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), 1);
    assert_eq!(journal[0].1.ending, Ending::ClientGone);
    assert!(!reading.is_finished());
    // It hears of it as soon as it takes bytes again.
    let end = loop {
        match stuck.data().await.expect("an end that says why") {
            Ok(data) => stuck.flow_control().release_capacity(data.len()).unwrap(),
            Err(error) => break error,
        }
    };
    assert!(end.is_reset());
    reading.abort();
    world.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_resets_ends_the_connection() {
    let world = World::start(Plan { config: |c| c.http2.resets_max = 20, ..plan(Via::Http2) }).await;
    world.up.set_default(long());
    let (sender, connection) = bare(&world, 1 << 20).await;
    let mut sent = 0;
    while !connection.is_finished() && sent < 1_000 {
        let Ok(mut sender) = sender.clone().ready().await else { break };
        let request = http::Request::post("http://gateway/v1/chat/completions").header("x-api-key", API_KEY);
        let (answer, mut sending) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        drop(sending.send_data(Bytes::from(ask_stream("x").to_string()), true));
        world
            .until("it is with the provider", || world.up.calls().len() > sent || connection.is_finished())
            .await;
        sent += 1;
        drop(answer);
    }
    assert!((20..=400).contains(&sent), "{sent} were let in");
    world
        .until("it was counted", || world.metrics.connections_cut.get((labels::ConnectionCut::Resets,)) == 1)
        .await;
    world.settled().await;
}

/// The bytes of a client that asks so many times and takes each back in the same breath, then asks once for `/healthz`.
fn burst(resets: u32) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    // POST, http, /, authority x; then GET and a literal path.
    let ask = [0x83, 0x86, 0x84, 0x41, 1, b'x'];
    let health = [&[0x82, 0x86, 0x04, 8][..], b"/healthz", &[0x41, 1, b'x']].concat();
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    out.extend(frame(4, 0, 0, &[]));
    for n in 0..resets {
        out.extend(frame(1, 4, 2 * n + 1, &ask));
        out.extend(frame(3, 0, 2 * n + 1, &8_u32.to_be_bytes()));
    }
    out.extend(frame(1, 5, 2 * resets + 1, &health));
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_resets_before_anything_was_begun_has_its_own_bound() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for (most, resets, served) in [(1_000, 32, true), (1_000, 64, false), (10, 10, true), (10, 20, false)] {
        let mut plan = plan(Via::Http2);
        plan.config = match most {
            10 => |c| c.http2.resets_max = 10,
            _ => |_| (),
        };
        let world = World::start(plan).await;
        let mut stream = TcpStream::connect(world.addr).await.unwrap();
        stream.write_all(&burst(resets)).await.unwrap();
        let mut got = Vec::new();
        let mut piece = [0; 4096];
        let reading = async {
            while !got.windows(3).any(|w| w == b"ok\n") {
                match stream.read(&mut piece).await {
                    Ok(0) | Err(_) => return false,
                    Ok(n) => got.extend_from_slice(&piece[..n]),
                }
            }
            true
        };
        let answered = tokio::time::timeout(std::time::Duration::from_secs(10), reading).await.unwrap();
        assert_eq!(answered, served, "{resets} of {most}");
        let cut = || world.metrics.connections_cut.get((labels::ConnectionCut::Resets,));
        if served {
            assert_eq!(cut(), 0);
        } else {
            world.until("it was counted", || cut() == 1).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_a_connection_are_bounded() {
    let world = World::start(Plan { config: |c| c.http2.streams_max = 3, ..plan(Via::Http2) }).await;
    world.up.set_default(long());
    let (mut sender, _connection) = bare(&world, 1 << 20).await;
    let first = call(&mut sender, &ask_stream("x")).await.unwrap();
    // The settings are known once something was answered.
    let open: Vec<_> = (0..2).map(|_| call(&mut sender, &ask_stream("x"))).collect();
    world.until("three are open", || world.up.totals().in_flight == 3).await;
    let fourth = call(&mut sender.ready().await.unwrap(), &ask_stream("x"));
    assert_eq!(world.send("GET", "/v1/models", &[("x-api-key", API_KEY)], "").await.status, 200);
    assert_eq!(world.up.calls().len(), 3, "a fourth has to wait");
    drop(first);
    world.until("the fourth came in", || world.up.calls().len() == 4).await;
    drop((open, fourth));
    world.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_list_has_the_bound_of_a_head() {
    let world = World::start(Plan { config: |c| c.bounds.head_max = 16 << 10, ..plan(Via::Http2) }).await;
    let (mut sender, _connection) = bare(&world, 1 << 20).await;
    for (size, fits) in [(8 << 10, true), (20 << 10, false)] {
        let request = http::Request::get("http://gateway/healthz").header("x-long", "a".repeat(size));
        let (answer, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
        match answer.await {
            Ok(answer) => assert_eq!(answer.status() == 200, fits, "{size}: {}", answer.status()),
            Err(_) => assert!(!fits, "{size}"),
        }
    }
    // The fields are counted too, as on HTTP/1.1; 100 by default.
    for (fields, status) in [(100, 200), (101, 431)] {
        let mut request = http::Request::get("http://gateway/healthz");
        for field in 0..fields {
            request = request.header(format!("x-{field}"), "a");
        }
        let (answer, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), status, "{fields} fields");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_stream_is_closed() {
    let world = World::start(Plan {
        config: |c| {
            c.timeouts.head = Duration::from_millis(100);
            c.timeouts.idle = Duration::from_millis(100);
        },
        ..plan(Via::Http2)
    })
    .await;
    let (mut sender, connection) = bare(&world, 1 << 20).await;
    let (answer, _) =
        sender.send_request(http::Request::get("http://x/healthz").body(()).unwrap(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    tokio::time::timeout(Duration::from_secs(10), connection).await.unwrap().unwrap();
    // Nothing at all, and half a preface, and half a head.
    for begun in ["", "\r\n", "PRI * HTTP/2.0\r\n", "POST /v1/ch", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = TcpStream::connect(world.addr).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{begun:?} stays");
    }
}

/// Between two calls the time without any counts; once a head has begun, the time for heads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http1_connection_has_its_times() {
    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(3600);
    let idle: fn(&mut tollbook_gateway::Config) = |c| (c.timeouts.head, c.timeouts.idle) = (LONG, SHORT);
    let head: fn(&mut tollbook_gateway::Config) = |c| (c.timeouts.head, c.timeouts.idle) = (SHORT, LONG);
    for (config, begun) in [(idle, ""), (head, "GET /heal")] {
        let world = World::start(Plan { config, ..plan(Via::Http1) }).await;
        let mut stream = TcpStream::connect(world.addr).await.unwrap();
        let asked = format!("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n{begun}");
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{begun:?} stays");
        assert!(rest.starts_with(b"HTTP/1.1 200"), "{begun:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preface_is_told_from_a_request_at_every_split() {
    let world = World::start(plan(Via::Http1)).await;
    let request = b"PROPFIND / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for split in 1..8 {
        let mut stream = TcpStream::connect(world.addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&request[..split]).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&request[split..]).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 404"), "{split}: {text}");
    }
    // Where it is switched off it is a bad request.
    let world = World::start(Plan { config: |c| c.http2.enabled = false, ..plan(Via::Http1) }).await;
    let mut stream = TcpStream::connect(world.addr).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut text = Vec::new();
    drop(stream.read_to_end(&mut text).await);
    assert!(text.is_empty() || text.starts_with(b"HTTP/1.1 4"), "{text:?}");
}

/// The name on the certificate that a new connection is shown.
async fn shown(world: &World) -> String {
    let roots = world.authority.as_ref().unwrap().roots();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    for name in ["localhost", "renewed"] {
        let stream = TcpStream::connect(world.addr).await.unwrap();
        if connector.connect(name.try_into().unwrap(), stream).await.is_ok() {
            return name.to_owned();
        }
    }
    "none".to_owned()
}

/// In one step, so that no half of it is ever seen.
fn replace(file: &std::path::Path, text: &str) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, file).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_taken_up_and_a_bad_one_is_not() {
    let world = World::start(plan(Via::Tls)).await;
    let loaded = |result| world.metrics.tls_reloads.get((result,));
    world.up.script(long());
    let mut open = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
    assert_eq!(shown(&world).await, "localhost");
    let authority = world.authority.as_ref().unwrap();
    let (certificate, key) = authority.issue("renewed");
    world.until("the new one is in use", || loaded(labels::Loaded::Good) > 0).await;
    assert_eq!(shown(&world).await, "renewed");
    // Bad in four ways; a key of another certificate is the last.
    let mut told = loaded(labels::Loaded::Bad);
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let good = std::fs::read(&certificate).unwrap();
    for (file, bad) in
        [(&certificate, "nonsense"), (&certificate, damaged), (&key, "nonsense"), (&key, &other)]
    {
        if file == &key {
            std::fs::write(&certificate, &good).unwrap();
        }
        replace(file, bad);
        world.until("the bad one was told of", || loaded(labels::Loaded::Bad) > told).await;
        told = loaded(labels::Loaded::Bad);
        assert_eq!(shown(&world).await, "renewed");
    }
    // What was open under the first is still open.
    assert!(http_body_util::BodyExt::frame(open.body_mut()).await.unwrap().is_ok());
    drop(open);
    world.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_handshakes_hold_nobody_up_and_end() {
    let world = World::start(Plan {
        config: |c| c.timeouts.handshake = Duration::from_millis(500),
        ..plan(Via::Tls)
    })
    .await;
    let mut slow = Vec::new();
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01", b"\x16"] {
        for _ in 0..10 {
            let mut stream = TcpStream::connect(world.addr).await.unwrap();
            stream.write_all(begun).await.unwrap();
            slow.push(stream);
        }
    }
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    for mut stream in slow {
        let mut rest = Vec::new();
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
    let cut = |why| world.metrics.connections_cut.get((why,));
    world.until("all were counted", || cut(labels::ConnectionCut::HandshakeTime) == 30).await;
    // Plain HTTP on a TLS listener is no handshake.
    let mut stream = TcpStream::connect(world.addr).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest).await);
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
    world.until("it was counted", || cut(labels::ConnectionCut::Tls) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b134_what_a_provider_says_of_its_connection_reaches_no_client() {
    for via in [Via::Http1, Via::Http2, Via::Tls] {
        let world = World::start(plan(via)).await;
        for body in [ask("x"), ask_stream("x")] {
            let script = Script::output(5).header("Connection", "close, X-Drop").header("X-Drop", "1");
            world.up.script(script.header("Keep-Alive", "timeout=5").header("X-KEPT", "1"));
            let headers = [("x-api-key", API_KEY), ("te", "trailers")];
            let answer = world.send("POST", "/v1/chat/completions", &headers, body.to_string()).await;
            assert_eq!(answer.status, 200, "{via:?}");
            assert!(answer.text().contains("choices"));
            assert_eq!(answer.header("x-kept"), Some("1"));
            for dropped in ["x-drop", "keep-alive", "connection"] {
                assert!(answer.header(dropped).is_none(), "{via:?}: {dropped}");
            }
            assert!(world.up.calls().last().unwrap().header("te").is_none());
        }
    }
}

/// A connection on which nothing is asked does not keep a gateway from stopping, whatever was said on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_call_close_at_a_stop() {
    for said in [
        "",
        "\r\n",
        "\r\n\r",
        "GET /heal",
        "PRI * HTTP/2.0\r\n",
        "\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n\r\n",
    ] {
        const LONG: Duration = Duration::from_secs(3600);
        let long: fn(&mut tollbook_gateway::Config) =
            |c| (c.timeouts.head, c.timeouts.idle, c.timeouts.drain) = (LONG, LONG, LONG);
        let world = World::start(Plan { config: long, ..plan(Via::Http1) }).await;
        let mut stream = TcpStream::connect(world.addr).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        if said.contains("healthz") {
            let mut first = [0; 12];
            stream.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
        }
        world.stop.send_replace(true);
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{said:?} stays");
    }
}

/// Who holds every place and asks nothing gives one up to who asks; a call under way is not disturbed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_call_make_room_when_all_places_are_taken() {
    const OPEN: usize = 6;
    let world = World::start(Plan {
        config: |c| {
            c.bounds.connections_max = OPEN;
            (c.timeouts.head, c.timeouts.idle) = (Duration::from_secs(1), Duration::from_secs(3600));
        },
        ..plan(Via::Http1)
    })
    .await;
    let health = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut idle = Vec::new();
    for _ in 1..OPEN {
        let mut stream = TcpStream::connect(world.addr).await.unwrap();
        stream.write_all(health).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        idle.push(stream);
    }
    world.up.hold_until_released();
    let body = ask("x");
    let ask_more = async {
        world.until("a call is under way", || !world.up.calls().is_empty()).await;
        for _ in 0..3 {
            let mut stream = TcpStream::connect(world.addr).await.unwrap();
            stream.write_all(health).await.unwrap();
            let mut first = [0; 12];
            let read = stream.read_exact(&mut first);
            tokio::time::timeout(Duration::from_secs(20), read).await.expect("there is room").unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
        }
        // Held open by their clients all the while.
        drop(idle);
        world.up.release();
    };
    let (answer, ()) = tokio::join!(world.chat(&body), ask_more);
    assert_eq!(answer.status, 200, "{}", answer.text());
}
