//! Places among the plans: each is one call's, from its receipt until its end, however it ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollbook_admission::{Ending, Lives, Outcome, Settings};
use tollbook_policy::{Booking, LimitDraft, Measure, Scope, ShapeDraft, Subject, WhenAway};

use crate::flaky::Mood;
use crate::world::World;

/// A limit that is booked by forecast, on the pool.
fn of_pool(ceiling: i128) -> LimitDraft {
    let scope = Scope::One(Subject::Pool { pool: "pool".into() });
    let minute = ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: None };
    LimitDraft {
        booking: Some(Booking::Forecast),
        ..LimitDraft::new(scope, Measure::OutputTokens, minute, ceiling)
    }
}

/// Followed streams, after two rounds of flushes on the paused clock.
async fn followed(world: &World) -> i64 {
    tokio::time::sleep(2 * Lives::default().flush).await;
    world.metrics.plan_streams.get(())
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_given_back_is_not_ended_again() {
    let closed = LimitDraft { when_away: Some(WhenAway::Closed), ..of_pool(1_000_000) };
    let world = World::start(vec![closed], Settings::default(), None).await;
    let mut first = world.admit(true).await.unwrap();
    first.ticket.sending();
    world.engine.set(Mood::Away);
    assert!(first.ticket.tried_again().await.is_err(), "the pool is not asked");
    world.engine.set(Mood::Well);
    let second = world.admit(true).await.unwrap();
    assert_eq!(followed(&world).await, 1);
    first.ticket.end(&Outcome::upstream_error());
    assert_eq!(followed(&world).await, 1, "the second call goes on");
    drop(second);
    assert_eq!(followed(&world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_at_the_door_leaves_no_plan() {
    let mut tenant = of_pool(1_000_000);
    tenant.scope = crate::world::key();
    let world = World::start(vec![tenant, of_pool(1_000_000)], Settings::default(), None).await;
    world.engine.set(Mood::PoolSilent);
    let left = tokio::time::timeout(Duration::from_millis(1), world.admit(true)).await;
    assert!(left.is_err(), "its client left before the pool answered");
    world.engine.set(Mood::Well);
    assert_eq!(followed(&world).await, 0);
}

/// An account is followed, forgotten, and followed again under a clock that was set back meanwhile: the engine remembers
/// the numbers of before, and must not take what is new for a repeat.
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_makes_no_batch_a_repeat() {
    let world = World::start(vec![of_pool(1_000_000)], Settings::default(), None).await;
    let repeated = || world.engine.inner.stats().alarms.progress_repeated;
    for round in 0..3 {
        let before = world.metrics.plan_batches.get(());
        let mut call = world.admit(true).await.unwrap();
        call.ticket.sending();
        assert_eq!(followed(&world).await, 1);
        call.ticket.end(&Outcome::bare(Ending::ClientGone));
        assert_eq!(followed(&world).await, 0);
        assert!(world.metrics.plan_batches.get(()) > before, "round {round}");
        assert_eq!(repeated(), 0, "round {round}");
        // Nothing of it is in a window any more; a question tells the gateway so, and a flush forgets.
        world.clock.0.fetch_add(100_000_000, Ordering::SeqCst);
        world.explain("hi").await;
        assert_eq!(followed(&world).await, 0);
        world.clock.0.fetch_sub(100_500_000, Ordering::SeqCst);
        world.explain("hi").await;
    }
}
