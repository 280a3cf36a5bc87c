//! What stands before, behind and around a call: pages in browsers, proxies on both sides, certificates of upstreams,
//! redirects, encoded requests, and how many streams a key may have.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollbook_gateway::{Cors, Network, Proxies, Proxy};
use tollbook_mock_upstream::{Script, Step};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_telemetry::labels;

use crate::authority::Authority;
use crate::world::{API_KEY, Answer, Plan, World, ask, ask_stream, key, quota, rate, tenant};

const CHAT: &str = "/v1/chat/completions";

fn requests(ceiling: i128) -> Plan {
    Plan::with([rate(key(), Measure::Requests, ceiling)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b136_a_preflight_needs_no_key_and_refusals_can_be_read() {
    let world = World::start(Plan {
        config: |c| {
            let origins = vec!["https://app.example.com".to_owned()];
            c.cors = Some(Cors { origins, max_age: Duration::from_secs(600) });
        },
        ..requests(1)
    })
    .await;
    let origin = ("origin", "https://app.example.com");
    let preflight = [
        origin,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-stainless-lang"),
    ];
    let answer = world.send("OPTIONS", CHAT, &preflight, "").await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0));
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    let asked = answer.header("access-control-allow-headers").unwrap();
    assert_eq!(asked, "authorization, content-type, x-stainless-lang");
    assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"));
    assert_eq!(world.balance(0).await, (0, 0));
    let readable = |answer: &Answer| {
        let exposed = answer.header("access-control-expose-headers").unwrap_or_default();
        answer.header("access-control-allow-origin") == Some("https://app.example.com")
            && ["retry-after", "x-ratelimit-remaining-requests", "x-request-id"]
                .iter()
                .all(|n| exposed.contains(n))
    };
    // The provider's own words on CORS are not ours.
    world.up.script(Script::output(5).header("access-control-allow-origin", "*"));
    let body = ask("x").to_string();
    for (api_key, status) in [("wrong", 401), (API_KEY, 200), (API_KEY, 429)] {
        let answer = world.send("POST", CHAT, &[origin, ("x-api-key", api_key)], body.clone()).await;
        assert_eq!(answer.status, status);
        assert!(readable(&answer), "{status}: {:?}", answer.headers);
    }
    let foreign = [("origin", "https://evil.example.com"), ("x-api-key", API_KEY)];
    let answer = world.send("POST", CHAT, &foreign, body.clone()).await;
    assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control-")));
    // A cache between must not give one origin what another was told.
    assert_eq!(answer.header("vary"), Some("origin"));
    let nobodys = world.send("POST", CHAT, &[("x-api-key", API_KEY)], body.clone()).await;
    assert_eq!(nobodys.header("vary"), Some("origin"));
    // Off: no header at all, and a preflight is a method the path does not take.
    let world = World::start(requests(10)).await;
    world.up.script(Script::output(5).header("access-control-allow-origin", "*"));
    for answer in [
        world.send("OPTIONS", CHAT, &preflight, "").await,
        world.send("POST", CHAT, &[origin, ("x-api-key", API_KEY)], body).await,
    ] {
        assert!(
            !answer.headers.keys().any(|name| name.as_str().starts_with("access-control-")),
            "{answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b136_a_page_may_use_the_methods_that_its_path_takes() {
    let world = World::start(Plan {
        config: |c| {
            c.cors = Some(Cors { origins: vec!["*".to_owned()], max_age: Duration::from_secs(600) });
            c.upstreams[0].passes = vec!["/v1/vector_stores".to_owned()];
        },
        ..requests(10)
    })
    .await;
    let preflight = [("origin", "https://a.example"), ("access-control-request-method", "PUT")];
    for (path, all) in [(CHAT, false), ("/v1/files", false), ("/v1/vector_stores/vs_1", true)] {
        let answer = world.send("OPTIONS", path, &preflight, "").await;
        let methods = answer.header("access-control-allow-methods").unwrap();
        assert_eq!((methods.contains("PUT"), methods.contains("PATCH")), (all, all), "{path}: {methods}");
    }
    let answer = world.send("GET", "/healthz", &[preflight[0]], "").await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("vary"), None, "it is the same for all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_heads_of_all_connections_are_bounded() {
    let world =
        World::start(Plan { config: |c| c.bounds.heads_in_flight_max = 128 << 10, ..requests(10) }).await;
    let mut held = Vec::new();
    let mut refused = None;
    for _ in 0..5 {
        let mut socket = TcpStream::connect(world.addr).await.unwrap();
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\na: {}", "b".repeat(50 << 10));
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        match tokio::time::timeout(Duration::from_millis(300), socket.read(&mut answer)).await {
            Ok(read) => {
                answer.truncate(read.unwrap());
                refused = Some(String::from_utf8(answer).unwrap());
            }
            Err(_) => held.push(socket),
        }
    }
    assert_eq!(held.len(), 2, "each holds what a head may have, without what is free");
    let refused = refused.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\"overloaded\""), "{refused}");
    // Calls like any other are served beside them.
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    drop(held);
    let large = [("x-api-key", API_KEY), ("x-large", &"b".repeat(60 << 10))];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while world.send("POST", CHAT, &large, ask("x").to_string()).await.status != 200 {
        assert!(tokio::time::Instant::now() < deadline, "the room is given back");
    }
}

/// Sends bytes on a bare connection and reads to its end.
async fn raw(addr: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut out = Vec::new();
    drop(stream.read_to_end(&mut out).await);
    String::from_utf8_lossy(&out).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_header_is_asked_of_trusted_peers_and_of_no_other() {
    let get = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let line = format!("PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n{get}");
    let mut binary =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x09\x0a\x00\x00\x01\x12\x34\x01\xbb".to_vec();
    binary.extend_from_slice(get.as_bytes());
    let world = World::start(Plan {
        config: |c| {
            c.timeouts.handshake = Duration::from_millis(300);
            let trusted = vec![Network::parse("127.0.0.0/8").unwrap()];
            c.proxies = Proxies { trusted, proxy_protocol: true };
        },
        ..requests(10)
    })
    .await;
    for bytes in [line.as_bytes(), &binary] {
        let answer = raw(world.addr, bytes).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for without in [get.as_bytes(), b"PROXY TCP9 a b\r\n", b"PRO"] {
        assert_eq!(raw(world.addr, without).await, "");
    }
    let cut = |why| world.metrics.connections_cut.get((why,));
    assert_eq!(cut(labels::ConnectionCut::ProxyHeader), 2);
    assert_eq!(cut(labels::ConnectionCut::HandshakeTime), 1);
    // Whoever is not trusted sends a request that is none.
    for proxy_protocol in [false, true] {
        let world = World::start(Plan {
            config: if proxy_protocol {
                |c| {
                    let trusted = vec![Network::parse("192.0.2.0/24").unwrap()];
                    c.proxies = Proxies { trusted, proxy_protocol: true };
                }
            } else {
                |_| ()
            },
            ..requests(10)
        })
        .await;
        let answer = raw(world.addr, line.as_bytes()).await;
        assert!(!answer.contains(" 200 "), "{answer}");
        let answer = raw(world.addr, get.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// A proxy that answers CONNECT, keeps what it was asked, and leads everywhere to `target`.
async fn proxy(target: SocketAddr, answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(near.read_u8().await.unwrap());
                }
                kept.lock().unwrap().push(String::from_utf8(head).unwrap());
                near.write_all(answer.as_bytes()).await.unwrap();
                let mut far = TcpStream::connect(target).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
            });
        }
    });
    (addr, asked)
}

/// A world whose upstreams were changed once their addresses are known.
async fn changed(plan: Plan, change: impl Fn(&mut tollbook_gateway::Upstream, SocketAddr)) -> World {
    let world = World::start(plan).await;
    let up: SocketAddr =
        world.up.url().trim_start_matches("http://").split('/').next().unwrap().parse().unwrap();
    let mut config = world.config.clone();
    for upstream in &mut config.upstreams {
        upstream.retries = 0;
        change(upstream, up);
    }
    let prepared = world.gateway.prepare(config, world.admission.snapshot()).unwrap();
    world.gateway.replace(prepared);
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_is_reached_through_a_proxy() {
    let world = World::start(requests(100)).await;
    let up: SocketAddr =
        world.up.url().trim_start_matches("http://").split('/').next().unwrap().parse().unwrap();
    for (answer, status) in [
        ("HTTP/1.1 200 Connection established\r\n\r\n", 200),
        ("HTTP/1.0 200 OK\r\nx-proxy: 1\r\n\r\n", 200),
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", 502),
        ("HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\n\r\n", 502),
        ("SSH-2.0-hello\r\n\r\n", 502),
    ] {
        let (addr, asked) = proxy(up, answer).await;
        let world = changed(requests(100), |upstream, _| {
            upstream.base_url = "http://api.provider.example/v1".parse().unwrap();
            let url = format!("http://{addr}").parse().unwrap();
            upstream.proxy = Some(Proxy { url, authorization: Some("Basic dTpw".to_owned().into()) });
        })
        .await;
        assert_eq!(world.chat(&ask("x")).await.status, status, "{answer:?}");
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 1, "{answer:?}");
        assert!(asked[0].starts_with("CONNECT api.provider.example:80 HTTP/1.1\r\n"), "{}", asked[0]);
        assert!(asked[0].contains("proxy-authorization: Basic dTpw\r\n"));
        assert!(!asked[0].contains("provider-secret"));
        // What never got through cost nothing.
        assert_eq!(world.balance(0).await.0, i64::from(status == 200));
    }
}

/// TLS in front of an upstream; counts handshakes that went well.
async fn tls_front(
    target: SocketAddr,
    authority: &Authority,
    asks_client: bool,
) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    use rustls_pki_types::pem::PemObject as _;
    let (certificate, key) = authority.issue("localhost");
    let chain = vec![rustls_pki_types::CertificateDer::from_pem_file(certificate).unwrap()];
    let key = rustls_pki_types::PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if asks_client {
        let roots = Arc::new(authority.roots());
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let good = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&good);
    tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                let Ok(mut near) = acceptor.accept(near).await else { return };
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut far = TcpStream::connect(target).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
            });
        }
    });
    (addr, good)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstreams_certificate_is_verified_against_what_was_configured() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (name, trusts, asks_client, shows, status) in [
        ("a private authority", Some(&authority), false, false, 200),
        ("another authority", Some(&stranger), false, false, 502),
        ("the public ones only", None, false, false, 502),
        ("a client certificate", Some(&authority), true, true, 200),
        ("no client certificate where one is asked", Some(&authority), true, false, 502),
    ] {
        let world = World::start(requests(10)).await;
        let up: SocketAddr =
            world.up.url().trim_start_matches("http://").split('/').next().unwrap().parse().unwrap();
        let (addr, handshakes) = tls_front(up, &authority, asks_client).await;
        let world = changed(requests(10), |upstream, _| {
            upstream.base_url = format!("https://localhost:{}/v1", addr.port()).parse().unwrap();
            upstream.tls.ca_files.extend(trusts.map(Authority::file));
            upstream.tls.client = shows.then(|| authority.issue("gateway"));
        })
        .await;
        let answer = world.chat(&ask("x")).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        let went_well = handshakes.load(std::sync::atomic::Ordering::Relaxed) > 0;
        assert_eq!(went_well, status == 200, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_never_followed() {
    // Something to be led to, on a private address.
    let lure = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("http://{}/v1/chat/completions", lure.local_addr().unwrap());
    let world = World::start(Plan::with([
        rate(key(), Measure::Requests, 1_000),
        quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
    ]))
    .await;
    let mut sent = 0;
    for location in [
        here.as_str(),
        "/v1/elsewhere",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://[fd00::1]/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://[::ffff:169.254.169.254]/",
        "https://api.openai.com/v1/chat/completions",
    ] {
        for status in [301, 302, 307, 308] {
            for body in [ask("x"), ask_stream("x")] {
                world.up.script(Script::error(status, "moved").header("location", location));
                let answer = world.chat(&body).await;
                sent += 1;
                assert_eq!(answer.status, 502, "{status} to {location}");
                assert!(answer.header("location").is_none());
                assert!(!answer.text().contains(location));
                assert_eq!(world.up.calls().len(), sent, "asked once and not again");
            }
        }
    }
    let lured = tokio::time::timeout(Duration::from_millis(100), lure.accept()).await;
    assert!(lured.is_err(), "nothing came where the redirects led");
    world.settled().await;
    assert_eq!(world.balance(1).await.0, 0, "a redirect costs nothing");
}

type Coder = dyn Fn(&[u8]) -> Vec<u8>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encoded_requests_are_read_within_their_bound() {
    let world = World::start(Plan { config: |c| c.bounds.body_max = 100_000, ..requests(100) }).await;
    let send = async |coding: &str, body: Vec<u8>| {
        let headers = [("x-api-key", API_KEY), ("content-encoding", coding)];
        world.send("POST", CHAT, &headers, Bytes::from(body)).await
    };
    let gzip = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    };
    let br = |plain: &[u8]| {
        let mut out = Vec::new();
        brotli::CompressorWriter::new(&mut out, 4096, 5, 22).write_all(plain).unwrap();
        out
    };
    let zstd = |plain: &[u8]| zstd::encode_all(plain, 3).unwrap();
    let coders: [(&str, &Coder); 3] = [("gzip", &gzip), ("br", &br), ("zstd", &zstd)];
    let body = ask("hello").to_string();
    let empty = ask("").to_string().len();
    for (coding, encode) in coders {
        assert_eq!(send(coding, encode(body.as_bytes())).await.status, 200, "{coding}");
        let call = world.up.calls().last().unwrap().clone();
        assert!(call.header("content-encoding").is_none());
        assert_eq!(call.json()["messages"][0]["content"], "hello");
        let of_size = |size: usize| encode(ask(&"a".repeat(size - empty)).to_string().as_bytes());
        assert_eq!(send(coding, of_size(100_000)).await.status, 200, "{coding} at the bound");
        let bomb = send(coding, of_size(100_001)).await;
        assert_eq!(bomb.status, 413, "{coding} above it: {}", bomb.text());
        assert_eq!(send(coding, of_size(5_000_000)).await.status, 413, "{coding}: a bomb");
        let mut cut = encode(body.as_bytes());
        cut.truncate(cut.len() / 2);
        assert_eq!(send(coding, cut).await.status, 400, "{coding}: cut");
    }
    for (coding, status) in [("x-foo", 415), ("gzip, gzip", 415), ("gzip", 400), ("identity", 200)] {
        assert_eq!(send(coding, body.clone().into_bytes()).await.status, status, "{coding}");
    }
    assert_eq!(world.balance(0).await, (7, 0), "what was refused cost nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_so_many_streams_and_no_more() {
    let world = World::start(Plan { config: |c| c.bounds.streams_per_key_max = 3, ..requests(100) }).await;
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "word " } }] });
    let long = Script::steps(vec![Step::Repeat {
        text: format!("data: {chunk}\n\n"),
        times: 100_000,
        every_ms: 20,
    }]);
    world.up.set_default(long);
    let mut open = Vec::new();
    for _ in 0..3 {
        let stream = world.open_stream(CHAT, &ask_stream("x")).await;
        assert_eq!(stream.status(), 200);
        open.push(stream);
    }
    let refused = world.chat(&ask_stream("x")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "too_many_streams");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let mut claude = json!({ "model": "claude", "max_tokens": 5, "messages": [], "stream": true });
    claude["messages"] = json!([{ "role": "user", "content": "x" }]);
    let refused = world.post("/v1/messages", &claude).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    // Neither was a call; another key and a plain call are not concerned.
    assert_eq!(world.balance(0).await.0, 3);
    world.up.script(Script::output(3));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let other = [("x-api-key", crate::world::OTHER_API_KEY)];
    world.up.script(Script::output(3));
    assert_eq!(world.send("POST", CHAT, &other, ask_stream("x").to_string()).await.status, 200);
    drop(open.pop());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let again = loop {
        let stream = world.open_stream(CHAT, &ask_stream("x")).await;
        if stream.status() == 200 {
            break stream;
        }
        assert!(tokio::time::Instant::now() < deadline, "a place was never given back");
    };
    drop((again, open));
    world.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_trickles_in_is_given_up() {
    let world = World::start(Plan {
        config: |c| {
            c.timeouts.body_silence = Duration::from_millis(300);
            c.bounds.pace_min = 100_000;
        },
        ..requests(10)
    })
    .await;
    let mut stream = TcpStream::connect(world.addr).await.unwrap();
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\ncontent-length: 90000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    // Never silent for long, and far below the pace.
    let trickle = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while writing.write_all(b" ").await.is_ok() {
            ticks.tick().await;
        }
    });
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), reading.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "it is still read");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    trickle.abort();
    assert_eq!(world.balance(0).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b231_a_budget_overdrawn_by_one_call_is_closed_at_once() {
    // 10 units of money, of which one call uses 15.
    let world = World::start(Plan::with([quota(tenant(), Measure::Cost, PeriodKind::Day, 10_000_000)])).await;
    let over = tollbook_mock_upstream::Generate {
        input_llm_tokens: Some(10),
        output_llm_tokens: Some(1_500),
        ignore_cap: true,
        ..tollbook_mock_upstream::Generate::default()
    };
    world.up.script(over.into());
    let mut body = ask("x");
    body["max_tokens"] = json!(10);
    assert_eq!(world.chat(&body).await.status, 200);
    assert!(world.balance(0).await.0 > 10_000_000);
    let refused = world.chat(&body).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "insufficient_quota");
    let limits = world.send("GET", "/v1/limits", &[("x-api-key", API_KEY)], "").await.json();
    assert_eq!(limits["data"][0]["remaining"], 0, "{limits}");
    assert_eq!(world.up.calls().len(), 1);
}

/// No job runs in this world: nobody drains, sweeps or sums. What limits go by is written on the way of the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b221_a_budget_holds_while_no_job_has_ever_run() {
    // Room for one call at its worst, 40 units of money, and not for a second beside what that one uses, 30.
    let world = World::start(Plan::with([quota(tenant(), Measure::Cost, PeriodKind::Day, 40_000_000)])).await;
    let used = tollbook_mock_upstream::Generate {
        input_llm_tokens: Some(10),
        output_llm_tokens: Some(3_000),
        ignore_cap: true,
        ..tollbook_mock_upstream::Generate::default()
    };
    world.up.script(used.into());
    let mut body = ask("x");
    body["max_tokens"] = json!(3_000);
    assert_eq!(world.chat(&body).await.status, 200);
    let (posted, held) = world.balance(0).await;
    assert!(posted > 10_000_000 && held == 0, "{posted} {held}");
    let refused = world.chat(&body).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["code"], "insufficient_quota");
    assert_eq!(world.up.calls().len(), 1);
}
