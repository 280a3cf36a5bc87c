//! Field cases RES and DIS that need a bare socket or a gateway that is torn down: settling depends on neither.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollbook_mock_upstream::Generate;
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::{Ending, Figures};
use tollbook_telemetry::labels::Surface;

use crate::world::{API_KEY, Plan, World, ask, ask_stream, concurrency, key, quota};

/// A long stream, an event every 5 ms.
fn long() -> Generate {
    Generate { chunk_every_ms: 5, output_llm_tokens: Some(1_000), ignore_cap: true, ..Generate::default() }
}

/// The socket is reset, not closed: bytes on their way are lost, and no FIN is ever seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b015_a_reset_connection_frees_its_slot() {
    let world = World::start(Plan::with([concurrency(key(), 1)])).await;
    let body = ask_stream("x").to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {API_KEY}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for round in 0..100 {
        world.up.script(long().into());
        let mut socket = tokio::net::TcpStream::connect(world.addr).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        while text.windows(6).filter(|w| *w == b"data: ").count() < 3 {
            assert!(socket.read_buf(&mut text).await.unwrap() > 0, "round {round}");
        }
        socket.set_zero_linger().unwrap();
        drop(socket);
        let left = tokio::time::Instant::now();
        world.settled().await;
        let idle = || world.metrics.calls_in_flight.get((Surface::Chat,)) == 0;
        world.until("no call is in flight", idle).await;
        assert!(left.elapsed() < Duration::from_secs(1), "round {round}: {:?}", left.elapsed());
        assert_eq!(world.chat(&ask("x")).await.status, 200, "round {round}");
    }
    assert_eq!(world.balance(0).await, (0, 0));
    assert_eq!(world.journal().await.len(), 200);
}

/// The tasks that serve the clients are dropped where they stand, between two events; the books live on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b044_a_server_that_is_torn_down_in_mid_stream_settles_what_it_served() {
    let world = World::start(Plan::with([
        quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        concurrency(key(), 10),
    ]))
    .await;
    world.up.set_default(long().into());
    let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = doomed.spawn(tokio::net::TcpListener::bind("127.0.0.1:0")).await.unwrap().unwrap();
    let addr = listener.local_addr().unwrap();
    doomed.spawn(std::sync::Arc::clone(&world.gateway).serve(listener, world.stop.subscribe()));

    let client = Client::builder(TokioExecutor::new()).build_http::<Full<bytes::Bytes>>();
    let mut streams = Vec::new();
    for _ in 0..4 {
        let request = http::Request::post(format!("http://{addr}/v1/chat/completions"))
            .header("x-api-key", API_KEY)
            .body(Full::new(bytes::Bytes::from(ask_stream("x").to_string())))
            .unwrap();
        let mut stream = client.request(request).await.unwrap();
        for _ in 0..3 {
            assert!(stream.body_mut().frame().await.unwrap().is_ok());
        }
        streams.push(stream);
    }
    assert_eq!(world.balance(1).await, (0, 4));
    doomed.shutdown_background();
    world.settled().await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), 4);
    let mut total = 0;
    for (_, entry) in &journal {
        assert!(matches!(entry.ending, Ending::ClientGone | Ending::Shutdown), "{:?}", entry.ending);
        assert_eq!(entry.figures, Figures::Partial);
        assert!(entry.usage.input > 0 && entry.usage.output > 0, "{:?}", entry.usage);
        total += entry.usage.input + entry.usage.output;
    }
    assert_eq!(world.balance(0).await, (total, 0));
    drop(streams);
}
