//! Readiness as an orchestrator sees it.

use tollbook_policy::{LimitDraft, Measure, WhenAway};

use crate::flaky::Mood;
use crate::world::{Plan, World, ask, rate, tenant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_follows_the_engine_and_comes_back_by_itself() {
    let closed = LimitDraft { when_away: Some(WhenAway::Closed), ..rate(tenant(), Measure::Requests, 100) };
    let world = World::start(Plan::with([closed])).await;
    let readyz = async || {
        let answer = world.send("GET", "/readyz", &[], "").await;
        (answer.status.as_u16(), answer.text())
    };
    let ready = |page: &str| page.lines().any(|line| line == "tollbook_process_ready 1");
    assert_eq!(readyz().await, (200, "ready\n".to_owned()));
    world.engine.set(Mood::Away);
    for _ in 0..3 {
        assert_eq!(world.chat(&ask("x")).await.status, 503);
    }
    let (status, why) = readyz().await;
    assert!(status == 503 && why.starts_with("the book takes no bookings"), "{status} {why}");
    assert!(!ready(&world.send("GET", "/metrics", &[], "").await.text()));
    assert_eq!(world.send("GET", "/healthz", &[], "").await.status, 200, "a restart would not help");
    world.engine.set(Mood::Well);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while readyz().await.0 != 200 {
        assert!(tokio::time::Instant::now() < deadline, "no call was sent, and it is ready again");
    }
    assert!(ready(&world.send("GET", "/metrics", &[], "").await.text()));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
}
