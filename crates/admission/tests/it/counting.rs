//! When a text is counted exactly: near what is left of a hard limit, and once more after a hard limit denied.

use tollbook_admission::{Outcome, Refused, Settings};
use tollbook_policy::Measure;

use crate::world::{World, daily};

/// 4,000 words that the built-in ratio counts too high.
fn easy_text() -> String {
    "information ".repeat(4_000)
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_a_hard_limit_is_asked_again_with_the_exact_count() {
    // By its classes the text is about 12,000 llm_tokens × 1.25; exactly it is 4,000 × 1.02.
    let world = World::start(vec![daily(Measure::InputTokens, 5_000)], Settings::default(), None).await;
    let admitted = world.admit_text(&easy_text()).await.unwrap();
    let (_, held) = world.balance(0).await;
    assert!((4_000..=5_000).contains(&held), "{held}");
    admitted.ticket.end(&Outcome::never_sent());
    assert!(matches!(world.admit_text(&"information ".repeat(6_000)).await, Err(Refused::Limit(_))));
}

#[tokio::test(start_paused = true)]
async fn near_a_hard_limit_the_text_is_counted_exactly_at_once() {
    let world = World::start(vec![daily(Measure::InputTokens, 26_000)], Settings::default(), None).await;
    let mut held = Vec::new();
    let mut open = Vec::new();
    for _ in 0..3 {
        let before = world.balance(0).await.1;
        open.push(world.admit_text(&easy_text()).await.unwrap());
        held.push(world.balance(0).await.1 - before);
    }
    assert!(held[0] > 10_000, "far from the limit by the ratio: {held:?}");
    assert!(held[1] < 5_000 && held[2] < 5_000, "near it exactly: {held:?}");
}
