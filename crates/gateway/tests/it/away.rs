//! The book away, as clients and operators see it.

use std::time::Instant;

use serde_json::{Value, json};
use tollbook_admission::{AwayBounds, BreakerBounds, Settings};
use tollbook_policy::{LimitDraft, Measure, PeriodKind, WhenAway};

use crate::flaky::{Mood, SLOW};
use crate::world::{Answer, Plan, World, ask, key, quota, rate, tenant};

fn messages(stream: bool) -> Value {
    json!({
        "model": "claude",
        "max_tokens": 50,
        "stream": stream,
        "messages": [{ "role": "user", "content": "hello" }],
    })
}

fn shared_by(gateways: u32, limits: impl IntoIterator<Item = LimitDraft>) -> Plan {
    let away = AwayBounds { gateways, ..AwayBounds::default() };
    Plan { settings: Settings { away, ..Settings::default() }, ..Plan::with(limits) }
}

fn degraded(answer: &Answer) -> Option<&str> {
    answer.header("x-tollbook-degraded")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_admitted_without_the_book_says_so_in_each_dialect_and_form() {
    let open = LimitDraft {
        when_away: Some(WhenAway::Open),
        ..quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000)
    };
    let world = World::start(shared_by(2, [rate(key(), Measure::Requests, 12), open])).await;
    for stream in [false, true] {
        let mut chat = ask("hello");
        chat["stream"] = json!(stream);
        for (path, body) in [("/v1/chat/completions", chat), ("/v1/messages", messages(stream))] {
            world.engine.set(Mood::Well);
            let answer = world.post(path, &body).await;
            assert_eq!((answer.status.as_u16(), degraded(&answer)), (200, None), "{path}");
            world.engine.set(Mood::Away);
            let answer = world.post(path, &body).await;
            assert_eq!((answer.status.as_u16(), degraded(&answer)), (200, Some("local")), "{path}");
            let prefix = if path == "/v1/messages" {
                "anthropic-ratelimit-requests-limit"
            } else {
                "x-ratelimit-limit-requests"
            };
            assert_eq!(answer.header(prefix), Some("6"), "the part of this gateway");
        }
    }
    // Four of six are gone.
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let refused = world.chat(&ask("x")).await;
    assert_eq!((refused.status.as_u16(), degraded(&refused)), (429, Some("local")));
    assert!(refused.header("retry-after").is_some());
    let ready = world.send("GET", "/readyz", &[], "").await;
    assert!(ready.status == 200 && ready.text().starts_with("degraded"), "{}", ready.text());
    // Every call that the provider saw is in the journal, once.
    world.engine.set(Mood::Well);
    world.settled().await;
    let sent = world.up.calls().len();
    world.until("all are journaled", || world.metrics.settle_restored.get(()) == 6).await;
    let journal = world.journal().await;
    assert_eq!((journal.len(), sent), (10, 10));
    assert_eq!(journal.iter().filter(|(_, entry)| entry.flags.degraded).count(), 6);
    assert_eq!(world.balance(0).await.0, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b012_a_closed_limit_is_named_where_it_refuses() {
    let world = World::start(shared_by(
        1,
        [rate(key(), Measure::Requests, 100), quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000)],
    ))
    .await;
    for mood in [Mood::Away, Mood::Lost] {
        world.engine.set(mood);
        for (path, body) in [("/v1/chat/completions", ask("x")), ("/v1/messages", messages(false))] {
            let answer = world.post(path, &body).await;
            assert_eq!((answer.status.as_u16(), degraded(&answer)), (503, None));
            assert!(answer.text().contains("tenant acme tokens quota day"), "{}", answer.text());
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
    }
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.send("GET", "/readyz", &[], "").await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_book_is_waited_for_no_more() {
    let breaker = BreakerBounds { of_last: 2, share: 100, ..BreakerBounds::default() };
    let away = AwayBounds { breaker, ..AwayBounds::default() };
    let settings = Settings { away, ..Settings::default() };
    let world = World::start(Plan { settings, ..Plan::with([rate(key(), Measure::Requests, 100)]) }).await;
    world.engine.set(Mood::Slow);
    let answer = world.chat(&ask("x")).await;
    assert_eq!((answer.status.as_u16(), degraded(&answer)), (200, None));
    world.until("its settle was slow too", || world.metrics.away_shards.get(()) > 0).await;
    let began = Instant::now();
    let answer = world.chat(&ask("x")).await;
    let took = began.elapsed();
    assert_eq!((answer.status.as_u16(), degraded(&answer)), (200, Some("local")));
    assert!(took < SLOW, "{took:?}");
}
