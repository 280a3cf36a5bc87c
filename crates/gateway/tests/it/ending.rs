//! The end of the gateway itself: what is open finishes or is ended properly, and everything is settled.

use std::time::Duration;

use http_body_util::BodyExt;
use tollbook_mock_upstream::Generate;
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::Ending;

use crate::world::{Plan, World, ask, ask_stream, key, quota, rate};

fn plan(drain_ms: u64) -> Plan {
    let config = match drain_ms {
        300 => |c: &mut tollbook_gateway::Config| c.timeouts.drain = Duration::from_millis(300),
        _ => |c: &mut tollbook_gateway::Config| c.timeouts.drain = Duration::from_secs(20),
    };
    Plan {
        config,
        ..Plan::with([
            rate(key(), Measure::Requests, 100),
            quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000),
        ])
    }
}

fn slow(chunks: u64) -> tollbook_mock_upstream::Script {
    Generate {
        chunks: Some(chunks),
        output_llm_tokens: Some(chunks),
        chunk_every_ms: 50,
        ..Generate::default()
    }
    .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b243_a_stream_within_the_drain_time_finishes() {
    let world = World::start(plan(20_000)).await;
    world.up.script(slow(20));
    let response = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
    world.stop.send_replace(true);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert!(text.ends_with(b"data: [DONE]\n\n"));
    let World { serving, engine, .. } = world;
    tokio::time::timeout(Duration::from_secs(5), serving).await.unwrap().unwrap();
    drop(engine);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b243_a_stream_beyond_the_drain_time_is_ended_with_an_error_event_and_settled() {
    let world = World::start(plan(300)).await;
    world.up.script(slow(10_000));
    let response = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
    world.stop.send_replace(true);
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&text).unwrap();
    assert!(text.contains("\"code\":\"shutting_down\"") && !text.contains("[DONE]"), "{text}");
    world.settled().await;
    let journal = world.journal().await;
    assert_eq!(journal.len(), 1);
    assert_eq!(journal[0].1.ending, Ending::Shutdown);
    assert!(journal[0].1.usage.output > 0);
    tokio::time::timeout(Duration::from_secs(10), world.serving).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_stops_takes_nothing_new() {
    let world = World::start(plan(20_000)).await;
    assert_eq!(world.send("GET", "/readyz", &[], "").await.status, 200);
    world.up.script(slow(40));
    let open = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
    world.stop.send_replace(true);
    world.until("the port is closed", || std::net::TcpStream::connect(world.addr).is_err()).await;
    drop(open);
    world.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_ends_expires_and_leaves_nothing_held() {
    let world = World::start(plan(20_000)).await;
    world.up.script(slow(10_000));
    let mut response = world.open_stream("/v1/chat/completions", &ask_stream("x")).await;
    assert!(response.body_mut().frame().await.is_some());
    assert!(world.held().await > 0);
    assert_eq!(world.sweep().await, 0, "a live hold is not due");
    drop(response);
    world.settled().await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
}
