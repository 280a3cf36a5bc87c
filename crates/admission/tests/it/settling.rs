//! Settle exactly once, whatever the engine does meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollbook_admission::{Ending, Outcome, Readiness, Refused, Settings, SettleBounds, shard};
use tollbook_engine::{Cursor, Engine as _, Loss, Source};
use tollbook_policy::{LimitDraft, Measure, WhenAway};
use tollbook_telemetry::labels::{Away, EngineTrouble, Surface, Verb};
use tollbook_wire::Usage;

use crate::flaky::Mood;
use crate::world::{World, daily, pool_daily, requests};

pub(crate) fn used(input: u64, output: u64) -> Outcome {
    let usage = Usage {
        input,
        output,
        input_reported: true,
        output_reported: true,
        complete: true,
        ..Usage::default()
    };
    Outcome { usage: Some(usage), output_seen: true, ..Outcome::bare(Ending::Complete) }
}

pub(crate) fn limits() -> Vec<tollbook_policy::LimitDraft> {
    vec![requests(100_000), daily(Measure::Tokens, 1_000_000_000)]
}

#[tokio::test(start_paused = true)]
async fn a_settle_waits_while_the_engine_is_away_and_is_posted_once() {
    let world = World::start(limits(), Settings::default(), None).await;
    let mut calls = Vec::new();
    for _ in 0..10 {
        let mut admitted = world.admit(false).await.unwrap();
        admitted.ticket.sending();
        calls.push(admitted);
    }
    for mood in [Mood::Away, Mood::Silent] {
        world.engine.set(mood);
        for admitted in calls.drain(..5.min(calls.len())) {
            admitted.ticket.end(&used(10, 5));
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        let before = if mood == Mood::Away { 0 } else { 5 };
        assert_eq!(world.journal().await.len(), before, "nothing is posted while the engine is away");
        world.engine.set(Mood::Well);
        let due = if mood == Mood::Away { 5 } else { 10 };
        world.until("all are posted", async || world.journal().await.len() == due).await;
    }
    assert_eq!(world.balance(1).await, (150, 0));
}

#[tokio::test(start_paused = true)]
async fn l03_a_lost_reply_is_asked_for_again_and_counts_once() {
    let world = World::start(limits(), Settings::default(), None).await;
    let engine = Arc::clone(&world.engine);
    for _ in 0..20 {
        let mut admitted = world.admit(false).await.unwrap();
        admitted.ticket.sending();
        let before = engine.settles.load(Ordering::SeqCst);
        engine.set(Mood::LosesReplies);
        admitted.ticket.end(&used(10, 5));
        let sent = async || engine.settles.load(Ordering::SeqCst) > before;
        world.until("the reply was lost", sent).await;
        engine.set(Mood::Well);
    }
    world
        .until("all settles were acknowledged", async || {
            world.journal().await.len() == 20 && engine.settles.load(Ordering::SeqCst) >= 40
        })
        .await;
    assert_eq!(world.balance(1).await, (20 * 15, 0));
    assert!(world.journal().await.iter().all(|r| r.source == Source::Settled && r.seq == 0));
}

#[tokio::test(start_paused = true)]
async fn b012_a_hold_that_cannot_be_written_admits_nothing() {
    let world = World::start(limits(), Settings::default(), None).await;
    for mood in [Mood::Away, Mood::Silent] {
        world.engine.set(mood);
        assert!(matches!(world.admit(false).await, Err(Refused::Away { .. })), "{mood:?}");
    }
    // A reserve whose reply was lost may be held: it is given back, and nobody was admitted.
    world.engine.set(Mood::LosesReplies);
    assert!(matches!(world.admit(false).await, Err(Refused::Away { .. })));
    world.engine.set(Mood::Well);
    world.until("what was held is given back", async || world.balance(1).await == (0, 0)).await;
    assert_eq!(world.balance(0).await, (0, 0));
    // Each is counted: three calls without a verdict, and every ask that failed.
    assert_eq!(world.metrics.admission_degraded.get((Away::Closed,)), 3);
    let failed = |trouble| world.metrics.engine_failures.get((Verb::Reserve, trouble));
    assert!(failed(EngineTrouble::Away) >= 1 && failed(EngineTrouble::Deadline) >= 1);
    assert_eq!(world.metrics.calls_in_flight.get((Surface::Chat,)), 0);
}

/// The first ask may have been applied, though the second certainly was not.
#[tokio::test(start_paused = true)]
async fn what_the_first_of_two_asks_may_have_held_is_given_back() {
    let world = World::start(limits(), Settings::default(), None).await;
    world.engine.set(Mood::Breaks);
    assert!(matches!(world.admit(false).await, Err(Refused::Away { .. })));
    assert_ne!(world.balance(1).await, (0, 0), "it was applied");
    world.engine.set(Mood::Well);
    let life = Settings::default().lives.door;
    let back = async || world.balance(1).await == (0, 0);
    tokio::time::timeout(life, world.until("what was held is given back", back))
        .await
        .expect("before its life ends");
}

/// What meets damaged data waits until it is mended, however many there are; what ended after them does not.
#[tokio::test(start_paused = true)]
async fn a_settle_that_meets_damaged_data_holds_up_no_other() {
    let world = World::start(limits(), Settings::default(), None).await;
    let mut calls = Vec::new();
    for _ in 0..9 {
        calls.push(world.admit(false).await.unwrap());
    }
    world.engine.set(Mood::Away);
    for call in calls {
        call.ticket.end(&used(10, 5));
    }
    world.engine.damages.store(6, Ordering::SeqCst);
    world.engine.set(Mood::Well);
    world.until("the others are posted", async || world.journal().await.len() == 3).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.journal().await.len(), 3, "they cannot be posted yet");
    world.engine.damaged.lock().unwrap().clear();
    world.until("they are mended", async || world.journal().await.len() == 9).await;
    assert_eq!(world.balance(1).await, (9 * 15, 0));
}

/// A queue of four and a spool of a few kilobytes, filled to the brim, then the engine comes back.
#[tokio::test(start_paused = true)]
async fn a_full_queue_spills_and_a_full_spool_closes_hard_limits() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        settle: SettleBounds { queue_max: 4, ..SettleBounds::default() },
        spool_max: 4_000,
        ..Settings::default()
    };
    let world = World::start(limits(), settings, Some(dir.path())).await;
    let mut calls = Vec::new();
    for _ in 0..40 {
        let mut admitted = world.admit(false).await.unwrap();
        admitted.ticket.sending();
        calls.push(admitted);
    }
    world.engine.set(Mood::Away);
    let mut ended = 0;
    while world.admission.is_ready() {
        calls.pop().expect("the spool fills before the calls are used up").ticket.end(&used(10, 5));
        ended += 1;
    }
    assert!(ended > 5, "some were spooled before it was full");
    world.engine.set(Mood::Well);
    assert!(matches!(world.admit(false).await, Err(Refused::Away { .. })), "the door is closed");
    // Calls in flight end all the same.
    calls.pop().unwrap().ticket.end(&used(10, 5));
    world.until("all of them are posted", async || world.journal().await.len() == ended + 1).await;
    world.until("readiness is back", async || world.admission.is_ready()).await;
    assert!(world.admit(false).await.is_ok());
}

/// One shard stays lost: what belongs to the others leaves the queue and the spool, once, and the door opens again.
#[tokio::test(start_paused = true)]
async fn a_shard_that_stays_away_keeps_no_door_closed_and_no_spool_unread() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        settle: SettleBounds { queue_max: 4, ..SettleBounds::default() },
        spool_max: 20_000,
        ..Settings::default()
    };
    let local = |limit| LimitDraft { when_away: Some(WhenAway::Local), ..limit };
    let limits = vec![local(requests(1_000)), local(pool_daily(Measure::Requests, 1_000))];
    let world = World::start(limits, settings, Some(dir.path())).await;
    world.engine.set(Mood::Away);
    let mut calls = Vec::new();
    for _ in 0..100 {
        let mut admitted = world.admit(false).await.unwrap();
        admitted.ticket.sending();
        calls.push(admitted);
    }
    let mut ended = 0;
    while world.admission.readiness() != Readiness::SpoolFull {
        calls.pop().expect("the spool fills before the calls are used up").ticket.end(&used(10, 5));
        ended += 1;
    }
    *world.engine.lost.lock().unwrap() = Some((shard("pool"), Loss::All));
    world.engine.set(Mood::Well);
    let posted = || world.metrics.settle_restored.get(());
    world.until("the tenant's side is posted", async || posted() == ended).await;
    world.until("the door is open", async || world.admission.readiness() != Readiness::SpoolFull).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((posted(), world.balance(0).await.0), (ended, i64::try_from(ended).unwrap()), "once each");
    assert_ne!(world.metrics.settle_spool_bytes.get(()), 0, "the pool's side waits");
    *world.engine.lost.lock().unwrap() = None;
    world.until("all of it is posted", async || posted() == 2 * ended).await;
    world.until("the spool is empty", async || world.metrics.settle_spool_bytes.get(()) == 0).await;
}

/// What waits is tried on its timer.
#[tokio::test(start_paused = true)]
async fn a_call_that_ends_makes_no_other_be_tried_again() {
    let world =
        World::start(vec![requests(1_000), pool_daily(Measure::Requests, 1_000)], Settings::default(), None)
            .await;
    let mut calls = Vec::new();
    for _ in 0..50 {
        calls.push(world.admit(false).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    *world.engine.lost.lock().unwrap() = Some((shard("pool"), Loss::All));
    for mut call in calls {
        call.ticket.sending();
        call.ticket.end(&used(10, 5));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(world.engine.settles.load(Ordering::SeqCst), 100, "each once");
    *world.engine.lost.lock().unwrap() = None;
    world
        .until("the others have their turn", async || world.engine.settles.load(Ordering::SeqCst) == 150)
        .await;
}

/// The tenant's shard is lost, so something waits; the pool's verb is under way when the gateway stops, and fails then.
#[tokio::test(start_paused = true)]
async fn what_is_under_way_when_the_gateway_stops_is_spooled_if_it_fails() {
    let dir = tempfile::tempdir().unwrap();
    let limits = || vec![requests(1_000), pool_daily(Measure::Requests, 1_000)];
    let world = World::start(limits(), Settings::default(), Some(dir.path())).await;
    let mut admitted = world.admit(false).await.unwrap();
    admitted.ticket.sending();
    *world.engine.lost.lock().unwrap() = Some((shard("acme"), Loss::All));
    world.engine.set(Mood::PoolSilent);
    admitted.ticket.end(&used(10, 5));
    let (engine, clock) = world.shut_down().await;
    *engine.lost.lock().unwrap() = None;
    engine.set(Mood::Well);
    let world = World::on(engine, clock, limits(), Settings::default(), Some(dir.path())).await;
    let journaled =
        async |name| world.engine.journal_read(shard(name), Cursor(0), 10).await.unwrap().value.len();
    world
        .until("both sides are posted", async || journaled("acme").await + journaled("pool").await == 2)
        .await;
}

/// A gateway that is not ready is sent no calls: it must find out by itself that the engine is back.
#[tokio::test(start_paused = true)]
async fn an_engine_that_takes_no_calls_turns_readiness_off_until_it_is_back() {
    let world = World::start(limits(), Settings::default(), None).await;
    for _ in 0..2 {
        assert_eq!(world.admission.readiness(), Readiness::Ready);
        world.engine.set(Mood::Away);
        for _ in 0..3 {
            assert!(matches!(world.admit(false).await, Err(Refused::Away { .. })));
            assert_eq!(world.admission.readiness(), Readiness::EngineAway);
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(world.admission.readiness(), Readiness::EngineAway, "it is still away");
        world.engine.set(Mood::Well);
        world.until("readiness is back", async || world.admission.is_ready()).await;
        // A call that is sent all the same shows it at once.
        world.engine.set(Mood::Away);
        assert!(world.admit(false).await.is_err());
        world.engine.set(Mood::Well);
        assert!(world.admit(false).await.is_ok());
        assert_eq!(world.admission.readiness(), Readiness::Ready);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_spooled_is_settled_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::start(limits(), Settings::default(), Some(dir.path())).await;
    for _ in 0..7 {
        let mut admitted = world.admit(false).await.unwrap();
        admitted.ticket.sending();
        world.engine.set(Mood::Away);
        admitted.ticket.end(&used(10, 5));
        world.engine.set(Mood::Well);
    }
    world.engine.set(Mood::Away);
    // The engine stays away: what waits goes to disk when the gateway stops.
    let (engine, clock) = world.shut_down().await;
    assert!(std::fs::metadata(dir.path().join("settle.spool")).unwrap().len() > 0);
    engine.set(Mood::Well);
    let world = World::on(engine, clock, limits(), Settings::default(), Some(dir.path())).await;
    world.until("all seven are posted", async || world.journal().await.len() == 7).await;
    assert_eq!(world.balance(1).await, (7 * 15, 0));
    world
        .until("the spool is cleared", async || {
            std::fs::metadata(dir.path().join("settle.spool")).unwrap().len() == 0
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_ticket_settles_by_what_is_known_of_it() {
    let world = World::start(limits(), Settings::default(), None).await;
    // Never sent: everything is given back.
    drop(world.admit(false).await.unwrap());
    assert_eq!((world.balance(0).await, world.balance(1).await), ((0, 0), (0, 0)));
    assert!(world.journal().await.is_empty());
    // A sent stream: its input. A sent buffered call: what was held.
    for (stream, most) in [(true, 30), (false, 3_000)] {
        let mut admitted = world.admit(stream).await.unwrap();
        admitted.ticket.sending();
        let before = world.balance(1).await.0;
        drop(admitted);
        let charged = world.balance(1).await.0 - before;
        assert!(charged > 0 && charged <= most, "stream {stream}: {charged}");
    }
    assert_eq!(world.balance(1).await.1, 0);
    assert_eq!(world.balance(0).await, (2, 0));
}

#[tokio::test(start_paused = true)]
async fn l07_renewals_keep_a_long_call_alive_and_a_silent_gateway_lets_it_expire() {
    let world = World::start(limits(), Settings::default(), None).await;
    let mut admitted = world.admit(true).await.unwrap();
    admitted.ticket.sending();
    let shard = tollbook_admission::shard("acme");
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.clock.0.fetch_add(5_000_000, Ordering::SeqCst);
        tokio::task::yield_now().await;
        assert!(world.engine.due(shard, 10).await.unwrap().value.is_empty());
    }
    assert!(world.balance(1).await.1 > 0);
    // The gateway dies: nobody renews, and the hold is due within a minute.
    world.running.abort();
    world.clock.0.fetch_add(61_000_000, Ordering::SeqCst);
    assert_eq!(world.engine.due(shard, 10).await.unwrap().value.len(), 1);
    drop(admitted);
}
