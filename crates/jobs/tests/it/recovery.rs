//! A lost shard is made whole again, whoever dies meanwhile.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use tollbook_engine::Shard;
use tollbook_store::{EpochCause, Fleet, Journal, Stage};
use tollbook_telemetry::labels::Lost;

use crate::losing::{Gateway, Losing, shard};

/// Steps of gateways in turn until the shard is open and nobody finds it lost.
async fn mended(world: &Losing, gateways: &[&Gateway]) {
    for _ in 0..20 {
        for gateway in gateways {
            gateway.step().await;
        }
        let whole = gateways.iter().all(|gateway| gateway.lost.list().is_empty());
        if whole && world.is_open() && world.row().await.is_some_and(|row| row.stage == Stage::Open) {
            return;
        }
    }
    panic!("the shard stays lost: {:?}", world.row().await);
}

async fn opened(world: &Losing, gateways: &[&Gateway]) {
    gateways[0].meets_loss();
    mended(world, gateways).await;
}

#[tokio::test]
async fn the_first_use_of_a_shard_opens_it_at_once() {
    let world = Losing::new().await;
    let (one, two) = (world.gateway(1).await, world.gateway(2).await);
    one.meets_loss();
    assert!(one.step().await);
    assert!(world.is_open() && one.lost.list().is_empty(), "one step is all it takes");
    let row = world.row().await.unwrap();
    assert_eq!((row.epoch, row.cause, row.stage), (1, EpochCause::First, Stage::Open));
    two.meets_loss();
    mended(&world, &[&two]).await;
    assert_eq!(world.row().await.unwrap().epoch, 1, "the second finds it open");
    assert_eq!(one.metrics.recovery_opened.get((Lost::First,)), 1);
}

/// Whoever was to say in SQL that it is open is slow or dead, and what it took since is lost.
#[tokio::test]
async fn what_is_lost_right_after_the_first_use_comes_back() {
    for (steps, less) in (1..16).flat_map(|steps| (0..4).map(move |less| (steps, less))) {
        let mut world = Losing::new().await;
        let (one, two) = (world.gateway(1).await, world.gateway(2).await);
        one.steps.set(steps);
        one.meets_loss();
        one.step().await;
        if world.is_open() {
            // The second finds it open, or opens it.
            two.meets_loss();
            two.steps.set(steps.saturating_sub(less));
            two.step().await;
            two.steps.set(u64::MAX);
            world.ends(&two, 100);
            world.server.flush();
        }
        one.steps.set(u64::MAX);
        one.meets_loss();
        mended(&world, &[&one, &two]).await;
        assert_eq!(world.server.posted(), world.truth, "after {steps} steps, {less} less");
    }
}

#[tokio::test]
async fn the_first_use_after_the_journal_has_calls_starts_from_its_sums() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 40);
    world.drain().await;
    world.server.flush();
    world.pass("DELETE FROM shard_epoch").await;
    // A new gateway, which knows nothing: SQL has no epoch, the store neither, the journal has calls.
    let two = world.gateway(2).await;
    world.pass("DELETE FROM gateway WHERE id = 1").await;
    opened(&world, &[&two]).await;
    assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (40, EpochCause::All));
}

#[tokio::test]
async fn l08_what_is_lost_comes_back_from_the_journal_and_from_every_gateways_calls() {
    let mut world = Losing::new().await;
    let (one, two) = (world.gateway(1).await, world.gateway(2).await);
    opened(&world, &[&one, &two]).await;
    world.ends(&one, 100);
    world.ends(&two, 20);
    world.drain().await;
    world.ends(&one, 3);
    world.ends(&two, 4);
    world.server.flush();
    one.meets_loss();
    assert!(one.step().await);
    assert!(!world.is_open(), "the second has not restored");
    mended(&world, &[&one, &two]).await;
    assert_eq!((world.server.posted(), world.truth), (127, 127));
    let row = world.row().await.unwrap();
    assert_eq!((row.epoch, row.cause, row.watermark), (2, EpochCause::All, 2));
    assert_eq!(one.metrics.recovery_opened.get((Lost::All,)), 1);
    assert_eq!(one.metrics.recovery_missing.get(()), 0);
}

#[tokio::test]
async fn a_lost_tail_clears_nothing_and_is_restored_by_those_who_know_it() {
    let mut world = Losing::new().await;
    let (one, two) = (world.gateway(1).await, world.gateway(2).await);
    opened(&world, &[&one, &two]).await;
    world.ends(&one, 100);
    let before = world.server.kept();
    world.ends(&two, 20);
    world.server.back_to(before);
    assert_eq!(world.server.posted(), 100);
    two.meets_loss();
    mended(&world, &[&two, &one]).await;
    assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (120, EpochCause::Tail));
}

/// The journal knows what the server does not: then its sums are the truth.
#[tokio::test]
async fn a_server_older_than_the_journal_is_rebuilt_from_it() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 100);
    let before = world.server.kept();
    world.ends(&one, 20);
    world.drain().await;
    world.server.back_to(before);
    opened(&world, &[&one]).await;
    assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (120, EpochCause::All));
}

#[tokio::test]
async fn a_restart_that_lost_nothing_changes_nothing() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 100);
    world.server.restart();
    opened(&world, &[&one]).await;
    assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (100, EpochCause::Tail));
}

/// The leader dies after each of its steps; another goes on when its lease is over, and the sum is right.
#[tokio::test]
async fn a_leader_that_dies_at_any_step_is_followed_by_another() {
    for loses_all in [true, false] {
        let mut died = 0;
        for steps in 0..if loses_all { 28 } else { 20 } {
            let mut world = Losing::new().await;
            let (one, two) = (world.gateway(1).await, world.gateway(2).await);
            opened(&world, &[&one, &two]).await;
            world.ends(&two, 100);
            world.drain().await;
            let before = world.server.kept();
            world.ends(&two, 20);
            if loses_all {
                world.server.flush();
            } else {
                world.server.back_to(before);
            }
            one.steps.set(steps);
            one.meets_loss();
            while !one.steps.are_over() && !world.is_open() {
                one.step().await;
                two.step().await;
            }
            died += u32::from(one.steps.are_over());
            world.leases_end().await;
            world.pass("UPDATE shard_epoch SET staged_at = staged_at - 10001").await;
            two.meets_loss();
            for _ in 0..3 {
                two.step().await;
                world.pass("UPDATE shard_epoch SET staged_at = staged_at - 10001").await;
            }
            mended(&world, &[&two]).await;
            assert_eq!(world.server.posted(), 120, "after {steps} steps");
        }
        assert!(died > 8, "the leader died at {died} steps");
    }
}

#[tokio::test]
async fn gateways_that_find_it_at_the_same_moment_rebuild_it_once() {
    for _ in 0..10 {
        let mut world = Losing::new().await;
        let gateways = [world.gateway(1).await, world.gateway(2).await, world.gateway(3).await];
        let all: Vec<&Gateway> = gateways.iter().collect();
        opened(&world, &all).await;
        for gateway in &gateways {
            world.ends(gateway, 10);
        }
        world.drain().await;
        for gateway in &gateways {
            world.ends(gateway, 1);
        }
        world.server.flush();
        gateways.iter().for_each(Gateway::meets_loss);
        for _ in 0..8 {
            tokio::join!(gateways[0].step(), gateways[1].step(), gateways[2].step());
        }
        mended(&world, &all).await;
        assert_eq!((world.server.posted(), world.row().await.unwrap().epoch), (33, 2));
        let opened: u64 = gateways.iter().map(|one| one.metrics.recovery_opened.get((Lost::All,))).sum();
        assert_eq!(opened, 1);
    }
}

#[tokio::test]
async fn a_gateway_that_comes_late_restores_what_nobody_else_knows() {
    let mut world = Losing::new().await;
    let (one, late) = (world.gateway(1).await, world.gateway(2).await);
    opened(&world, &[&one, &late]).await;
    world.ends(&late, 100);
    world.server.flush();
    one.meets_loss();
    one.step().await;
    one.step().await;
    assert!(!world.is_open(), "it is awaited");
    world.pass("UPDATE shard_epoch SET staged_at = staged_at - 10001").await;
    mended(&world, &[&one]).await;
    assert_eq!((world.server.posted(), one.metrics.recovery_missing.get(())), (0, 1));
    late.hears(2);
    assert!(late.step().await);
    assert_eq!(world.server.posted(), 100);
    let told = world.sql.restorers(shard().0, 2).await.unwrap();
    assert!(told.iter().all(|one| one.restored.is_some()), "{told:?}");
}

/// A tail was lost, and its leader died or was slow; what is lost meanwhile is more than it judged.
#[tokio::test]
async fn what_is_lost_while_a_tail_is_rebuilt_is_judged_anew() {
    for dies in [true, false] {
        let mut world = Losing::new().await;
        let (one, two) = (world.gateway(1).await, world.gateway(2).await);
        opened(&world, &[&one, &two]).await;
        world.ends(&two, 60);
        world.drain().await;
        world.ends(&one, 40);
        world.server.restart();
        one.meets_loss();
        if dies {
            // It lives until the epoch is begun in SQL.
            for steps in 1.. {
                one.steps.set(steps);
                one.step().await;
                if world.row().await.unwrap().epoch == 2 {
                    break;
                }
                world.leases_end().await;
            }
            let row = world.row().await.unwrap();
            assert_eq!((row.cause, row.stage), (EpochCause::Tail, Stage::Begun));
            world.server.flush();
            world.leases_end().await;
        } else {
            world.server.loses_at_begin.store(true, Ordering::SeqCst);
            one.step().await;
        }
        one.steps.set(u64::MAX);
        mended(&world, &[&two, &one]).await;
        assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (100, EpochCause::All));
    }
}

/// A store with an older epoch takes calls of gateways that have not heard of a newer one, until it is closed.
#[tokio::test]
async fn a_call_that_ends_before_the_shard_is_closed_is_in_the_sums() {
    let mut world = Losing::new().await;
    let (one, dead) = (world.gateway(1).await, world.gateway(2).await);
    opened(&world, &[&one, &dead]).await;
    world.ends(&dead, 100);
    world.drain().await;
    world.ends(&dead, 20);
    let mut kept = world.server.kept();
    *world.server.ends_at_begin.lock().unwrap() = kept.stream.pop();
    world.server.shards.lock().unwrap().insert(shard().0, kept);
    world.pass("DELETE FROM gateway WHERE id = 2; UPDATE shard_epoch SET epoch = 2").await;
    opened(&world, &[&one]).await;
    assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (120, EpochCause::All));
}

/// Two journals' files count epochs apart: whose the book is not leaves it alone, also when it was emptied.
#[tokio::test]
async fn gateways_of_another_file_leave_the_book_alone() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 100);
    let mut other = Losing::new().await;
    other.server = std::sync::Arc::clone(&world.server);
    let theirs = other.gateway(2).await;
    theirs.meets_loss();
    for _ in 0..3 {
        let error = theirs.recover.once().await.1.unwrap_err();
        assert!(matches!(error, tollbook_jobs::JobError::Foreign), "{error}");
    }
    assert_eq!((world.server.posted(), world.server.kept().epoch, world.is_open()), (100, 1, true));
    // Emptied, it is kept by who comes first, and by nobody else.
    world.server.flush();
    opened(&world, &[&one]).await;
    theirs.recover.once().await.1.unwrap_err();
    assert_eq!((world.server.posted(), world.is_open()), (100, true));
}

/// What the leader takes to prepare is not the others' time to restore.
#[tokio::test]
async fn a_slow_leader_takes_no_time_from_those_who_restore() {
    let mut world = Losing::new().await;
    let (one, two) = (world.gateway(1).await, world.gateway(2).await);
    opened(&world, &[&one, &two]).await;
    world.ends(&two, 100);
    world.server.flush();
    one.meets_loss();
    for steps in 1.. {
        one.steps.set(steps);
        one.step().await;
        if world.row().await.unwrap().stage == Stage::Restoring {
            break;
        }
        world.leases_end().await;
        world.pass("UPDATE shard_epoch SET staged_at = staged_at - 10001").await;
    }
    one.steps.set(u64::MAX);
    one.step().await;
    assert!(!world.is_open(), "the second is awaited");
    mended(&world, &[&one, &two]).await;
    assert_eq!((world.server.posted(), one.metrics.recovery_missing.get(())), (100, 0));
}

/// SQL came from a backup: gateways and the store know newer epochs than it.
#[tokio::test]
async fn a_gateway_that_knows_a_newer_epoch_than_sql_uses_the_shard_again() {
    for store_too in [true, false] {
        let mut world = Losing::new().await;
        let one = world.gateway(1).await;
        opened(&world, &[&one]).await;
        world.ends(&one, 100);
        world.drain().await;
        if store_too {
            let mut kept = world.server.kept();
            kept.epoch = 9;
            world.server.back_to(kept);
        }
        one.hears(9);
        mended(&world, &[&one]).await;
        let epoch = world.row().await.unwrap().epoch;
        assert!(epoch > 9 && world.server.kept().epoch == epoch, "{epoch}");
        assert_eq!(world.server.posted(), 100);
    }
}

#[tokio::test]
async fn a_shard_in_trouble_does_not_hold_up_another() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 100);
    world.server.flush();
    let other = Shard(shard().0.wrapping_add(1));
    *world.server.away.lock().unwrap() = Some(other);
    one.lost.found(other);
    one.meets_loss();
    let (under_way, result) = one.recover.once().await;
    assert!(under_way && result.is_err(), "the other's trouble is told, and this one goes on");
    one.recover.once().await.1.unwrap_err();
    assert!(world.is_open());
    assert_eq!((world.server.posted(), one.lost.list()), (100, vec![other]));
}

/// An entry that the journal does not take stays in the stream, for people to look at; its gateway knows the call.
#[tokio::test]
async fn an_entry_that_is_refused_does_not_keep_a_shard_closed() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 100);
    world.drain().await;
    world.ends(&one, 7);
    let before = world.server.kept();
    let last = world.ends(&one, 20);
    world.sql.append(&[last]).await.unwrap();
    world.server.back_to(before);
    world.pass("CREATE TRIGGER no BEFORE INSERT ON entry_row BEGIN SELECT RAISE(ABORT, 'no'); END").await;
    opened(&world, &[&one]).await;
    assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (127, EpochCause::All));
    assert_eq!(world.server.kept().stream.len(), 1);
}

/// The sums have its calls; a lost tail that it hears of first does not change that.
#[tokio::test]
async fn a_gateway_that_comes_late_after_two_losses_posts_nothing_twice() {
    let mut world = Losing::new().await;
    let (one, late) = (world.gateway(1).await, world.gateway(2).await);
    opened(&world, &[&one, &late]).await;
    world.ends(&late, 100);
    world.drain().await;
    world.ends(&late, 20);
    world.server.flush();
    world.pass("DELETE FROM gateway WHERE id = 2").await;
    opened(&world, &[&one]).await;
    assert_eq!((world.server.posted(), world.row().await.unwrap().cause), (100, EpochCause::All));
    world.ends(&one, 3);
    world.server.restart();
    opened(&world, &[&one]).await;
    let row = world.row().await.unwrap();
    assert_eq!((row.epoch, row.cause, row.watermark), (3, EpochCause::Tail, 1));
    late.hears(3);
    assert!(late.step().await);
    assert_eq!(world.server.posted(), 123);
    // Everything is lost once more: other sums, another watermark.
    world.drain().await;
    world.server.flush();
    opened(&world, &[&one, &late]).await;
    let row = world.row().await.unwrap();
    assert_eq!((world.server.posted(), row.epoch, row.watermark), (123, 4, 2));
}

#[tokio::test]
async fn while_sql_is_away_the_shard_stays_closed_and_afterwards_it_goes_on() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 100);
    world.server.flush();
    one.meets_loss();
    one.steps.set(0);
    for _ in 0..3 {
        assert!(!one.step().await);
    }
    assert!(!world.is_open());
    assert_eq!(one.lost.list(), [shard()]);
    one.steps.set(u64::MAX);
    mended(&world, &[&one]).await;
    assert_eq!(world.server.posted(), 100);
}

#[tokio::test]
async fn a_loss_that_no_call_meets_is_found_by_looking() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    world.ends(&one, 100);
    world.server.flush();
    // A gateway that has just started looks at once; others every two seconds.
    let two = world.gateway(2).await;
    two.step().await;
    mended(&world, &[&one, &two]).await;
    assert_eq!(world.server.posted(), 100);
}

#[tokio::test]
async fn a_sum_that_no_limit_names_is_left_out_and_counted() {
    let mut world = Losing::new().await;
    let one = world.gateway(1).await;
    opened(&world, &[&one]).await;
    let entry = world.ends(&one, 100);
    world.drain().await;
    let mut foreign = entry;
    foreign.reservation.0 += 1_000;
    foreign.posted[0].account.name += 1;
    world.sql.append(&[foreign]).await.unwrap();
    world.server.flush();
    opened(&world, &[&one]).await;
    assert_eq!((world.server.posted(), one.metrics.recovery_unnamed.get(())), (100, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Whatever was drained, lost, and lost again while it was rebuilt: the balance is what the calls posted.
    #[test]
    fn after_any_losses_the_quota_is_what_calls_posted(moves in proptest::collection::vec((0_u8..8, 1_i64..100), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = Losing::new().await;
            let gateways = [world.gateway(1).await, world.gateway(2).await];
            let all: Vec<&Gateway> = gateways.iter().collect();
            opened(&world, &all).await;
            let mut kept = world.server.kept();
            for (what, amount) in moves {
                match what {
                    0..=3 => {
                        if !world.is_open() {
                            opened(&world, &all).await;
                        }
                        let which = usize::try_from(amount % 2).unwrap();
                        world.ends(&gateways[which], amount);
                    }
                    4 => world.drain().await,
                    5 => {
                        world.server.flush();
                        gateways[0].meets_loss();
                    }
                    6 => {
                        // Only what SQL knows to be newer makes an older copy of the same epoch a loss of all.
                        if kept.epoch == world.server.kept().epoch {
                            world.server.back_to(kept.clone());
                            gateways[1].meets_loss();
                        }
                        kept = world.server.kept();
                    }
                    _ => {
                        gateways[0].step().await;
                    }
                }
            }
            opened(&world, &all).await;
            assert_eq!(world.server.posted(), world.truth);
        });
    }
}
