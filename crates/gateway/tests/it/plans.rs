//! Limits booked by forecast, through the gateway: what streams is told while it streams, and nothing stays planned.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::json;
use tollbook_admission::{Lives, Settings};
use tollbook_mock_upstream::{Generate, Script, UsageMode};
use tollbook_policy::{LimitDraft, Measure};
use tollbook_store::Figures;

use crate::world::{Plan, World, ask, ask_stream, forecast, key, rate, tenant, used};

/// A plan is told of every 30 ms, so that a test has not long to wait.
fn quick(limits: impl IntoIterator<Item = LimitDraft>) -> Plan {
    let lives = Lives { flush: Duration::from_millis(30), ..Lives::default() };
    Plan { settings: Settings { lives, ..Settings::default() }, ..Plan::with(limits) }
}

fn wide() -> Plan {
    quick([forecast(key(), Measure::Tokens, 1_000_000), rate(tenant(), Measure::Requests, 1_000)])
}

/// Waits until the first limit shows exactly so much.
async fn until(world: &World, what: &str, wanted: impl Fn((i64, i64)) -> bool) -> (i64, i64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let balance = world.balance(0).await;
        if wanted(balance) {
            return balance;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: {balance:?}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// What a call of that kind is expected to use in all; its provider reports nothing, so nothing is learned from it.
async fn expected(world: &World) -> u64 {
    let mut body = ask("hello");
    body["max_tokens"] = json!(4_000);
    let script = Generate { usage: UsageMode::Never, output_llm_tokens: Some(2), ..Generate::default() };
    world.up.script(script.into());
    assert_eq!(world.chat(&body).await.status, 200);
    let journal = world.journal().await;
    let metered = journal.iter().rev().find(|(_, body)| body.figures == Figures::Metered);
    metered.map_or(0, |(_, body)| body.hold.expected_llm_tokens)
}

fn total(world: &World) -> i64 {
    let sum: u64 = world.up.calls_at_rest().iter().map(used).map(|(input, output)| input + output).sum();
    i64::try_from(sum).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stream_gave_replaces_its_plan() {
    let world = World::start(wide()).await;
    for stream in [true, false] {
        world.up.script(Script::output(40));
        let body = if stream { ask_stream("hello") } else { ask("hello") };
        assert_eq!(world.chat(&body).await.status, 200);
    }
    // 500 were expected of each; the provider's figures are all that is left.
    let wanted = total(&world);
    until(&world, "the truth and no plan", |balance| balance == (wanted, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_under_way_is_seen_as_it_lands() {
    let world = World::start(wide()).await;
    let script = Generate {
        chunk_every_ms: 10,
        output_llm_tokens: Some(400),
        chunks: Some(400),
        ..Generate::default()
    };
    world.up.script(script.into());
    let mut response = world.open_stream("/v1/chat/completions", &ask_stream("hello")).await;
    for _ in 0..100 {
        response.body_mut().frame().await.unwrap().unwrap();
    }
    let (posted, planned) = until(&world, "it lands", |(posted, _)| posted >= 80).await;
    // At its pace of a hundred a second most of what is expected comes within the next minute.
    assert!(posted < 400 && planned > 100, "{posted} {planned}");
    drop(response);
    world.up.calls_at_rest();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while world.journal().await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the call is charged");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let usage = world.journal().await[0].1.usage;
    let charged = usage.input + usage.output;
    until(&world, "a stream that was left keeps what it gave", |(posted, planned)| {
        planned == 0 && (posted - charged).abs() <= 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_happened_leaves_nothing() {
    let world = World::start(Plan { upstream: |upstream| upstream.retries = 0, ..wide() }).await;
    world.up.script(Script::error(500, "broken"));
    assert_eq!(world.chat(&ask("hello")).await.status, 502);
    until(&world, "a failure gives its input back", |balance| balance == (0, 0)).await;
    // Refused by another limit: the tenant's side was never admitted.
    let world = World::start(quick([
        forecast(key(), Measure::Tokens, 1_000_000),
        rate(tenant(), Measure::Requests, 1),
    ]))
    .await;
    assert_eq!(world.chat(&ask("hello")).await.status, 200);
    assert_eq!(world.chat(&ask("hello")).await.status, 429);
    let wanted = total(&world);
    until(&world, "the one that passed", |balance| balance == (wanted, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_outgrows_its_forecast_is_learned_from_while_it_streams() {
    let world = World::start(wide()).await;
    let script = Generate {
        chunk_every_ms: 2,
        output_llm_tokens: Some(3_000),
        chunks: Some(1_500),
        ..Generate::default()
    };
    world.up.script(script.into());
    let mut body = ask_stream("hello");
    body["max_tokens"] = json!(4_000);
    let mut response = world.open_stream("/v1/chat/completions", &body).await;
    let mut seen = 0;
    // The first guess is 500; past it four times as much is expected, and the next call hears of it.
    while seen < 600 {
        response.body_mut().frame().await.unwrap().unwrap();
        seen += 1;
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let expected = expected(&world).await;
        if expected >= 2_000 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "still {expected} are expected");
        for _ in 0..20 {
            response.body_mut().frame().await;
        }
    }
    drop(response);
}

/// The window holds as many calls as fit, however they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_parallel_calls_admit_what_fits() {
    for _ in 0..20 {
        // Each may write eight llm_tokens, and is expected to: its cap is below every guess.
        let world = World::start(quick([forecast(key(), Measure::OutputTokens, 80)])).await;
        let mut body = ask("hello");
        body["max_tokens"] = json!(8);
        let calls = (0..200).map(|_| {
            let (world, body) = (&world, &body);
            async move { world.chat(body).await.status }
        });
        let statuses = futures_util::future::join_all(calls).await;
        let admitted = statuses.iter().filter(|status| **status == 200).count();
        assert!(statuses.iter().all(|status| [200, 429].contains(&status.as_u16())), "{statuses:?}");
        assert_eq!((admitted, world.up.calls_at_rest().len()), (10, 10));
    }
}
