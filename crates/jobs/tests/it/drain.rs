//! Drain: everything arrives, once, whatever fails in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollbook_jobs::{Drain, Drained, JobError};
use tollbook_ledger::{Met, ReleaseWhy, ReservationId};
use tollbook_store::{Figures, Journal, Origin, Side};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::StoreTrouble;

use crate::doubles::{Kept, Scripted, record};
use crate::world::{World, body, failed, llm_tokens, requests, sum};

#[tokio::test]
async fn ended_calls_arrive_and_leave_the_engine() {
    let world = World::new().await;
    for id in 1..=3 {
        world.send(id).await;
    }
    world.settle(1, 7).await;
    world.release(2, ReleaseWhy::Failed, Some(failed(2))).await;
    world.release(3, ReleaseWhy::NeverSent, None).await;
    assert_eq!(world.drained().await, Drained { inserted: 2, ..Drained::default() });
    assert_eq!(world.drained().await, Drained::default());

    let settled = &world.entries(1).await[0];
    assert_eq!(
        (settled.origin, settled.requests, settled.body.figures),
        (Origin::Settled, 1, Figures::Reported)
    );
    assert_eq!(settled.body, body(1, 7));
    let refused = world.entries(2).await;
    assert_eq!((refused[0].origin, sum(&refused)), (Origin::Released, (1, 0, 0)));
    assert!(world.entries(3).await.is_empty());
    assert_eq!((world.journaled(llm_tokens()).await, world.journaled(requests()).await), (17, 2));
    assert_eq!((world.balance(llm_tokens()).await, world.balance(requests()).await), (17, 2));
}

#[tokio::test]
async fn more_than_a_batch_of_many_shards_arrives() {
    let engine = Arc::new(Scripted::with_shards(&[1, 2, 3, 200]));
    for shard in [1, 3, 200] {
        let all =
            (1..=1500_u64).map(|i| record(i, u128::from(i) * 1000 + u128::from(shard), body(1, 1).encode()));
        engine.records.lock().unwrap().insert(shard, all.collect());
    }
    let journal = Arc::new(Kept::default());
    let drain = Drain::new(engine.clone(), journal.clone(), Arc::new(Metrics::new()));
    assert_eq!(drain.once().await, Ok(Drained { inserted: 4500, ..Drained::default() }));
    assert_eq!((engine.waiting(), journal.len()), (0, 4500));
}

/// The crash between append and trim: the batch comes again and changes nothing.
#[tokio::test]
async fn l08_a_crash_between_append_and_trim_only_repeats() {
    let engine = Arc::new(Scripted::with_shards(&[1]));
    let two = vec![record(1, 1, body(1, 1).encode()), record(2, 2, body(2, 1).encode())];
    engine.records.lock().unwrap().insert(1, two);
    engine.trims_fail.store(1, Ordering::SeqCst);
    let journal = Arc::new(Kept::default());
    let metrics = Arc::new(Metrics::new());
    let drain = Drain::new(engine.clone(), journal.clone(), metrics.clone());
    assert!(matches!(drain.once().await, Err(JobError::Engine(_))));
    assert_eq!((engine.waiting(), journal.len()), (2, 2));

    let after_restart = Drain::new(engine.clone(), journal.clone(), metrics.clone());
    assert_eq!(after_restart.once().await, Ok(Drained { repeated: 2, ..Drained::default() }));
    assert_eq!((engine.waiting(), journal.len()), (0, 2));
    assert_eq!((metrics.journal_drained.get(()), metrics.journal_repeated.get(())), (2, 2));
}

#[tokio::test]
async fn b222_with_the_store_away_nothing_is_lost() {
    let engine = Arc::new(Scripted::with_shards(&[1]));
    engine.records.lock().unwrap().insert(1, vec![record(1, 1, body(1, 1).encode())]);
    let journal = Arc::new(Kept::default());
    journal.away.store(2, Ordering::SeqCst);
    let metrics = Arc::new(Metrics::new());
    let drain = Drain::new(engine.clone(), journal.clone(), metrics.clone());
    for _ in 0..2 {
        assert!(matches!(drain.once().await, Err(JobError::Store(_))));
        assert_eq!(engine.waiting(), 1);
    }
    assert_eq!(drain.once().await.unwrap().inserted, 1);
    assert_eq!(metrics.journal_store_errors.get((StoreTrouble::Away,)), 2);
}

/// One entry the store will never take keeps its own shard waiting behind it, and nothing else.
#[tokio::test]
async fn a_refused_entry_stays_and_holds_up_no_other_shard() {
    let engine = Arc::new(Scripted::with_shards(&[1, 2]));
    let of = |ids: &[u128]| {
        ids.iter().zip(1..).map(|(id, cursor)| record(cursor, *id, body(*id, 1).encode())).collect()
    };
    engine.records.lock().unwrap().insert(1, of(&[11, 12, 13]));
    engine.records.lock().unwrap().insert(2, of(&[21, 22]));
    let journal = Arc::new(Kept { refused: Some(ReservationId(12)), ..Kept::default() });
    let drain = Drain::new(engine.clone(), journal.clone(), Arc::new(Metrics::new()));
    assert!(matches!(drain.once().await, Err(JobError::Store(_))));
    assert_eq!(journal.len(), 3);
    assert_eq!(engine.records.lock().unwrap()[&1].len(), 2);
    assert!(engine.records.lock().unwrap()[&2].is_empty());
    assert!(drain.once().await.is_err());
    assert_eq!(engine.waiting(), 2);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_still_becomes_an_entry() {
    let world = World::new().await;
    world.send(1).await;
    world.settle_body(1, 7, b"{\"v\":1,".to_vec()).await;
    assert_eq!(world.drained().await, Drained { inserted: 1, damaged: 1, ..Drained::default() });
    let entry = &world.entries(1).await[0];
    assert!(entry.body.flags.damaged);
    assert_eq!((entry.body.side, entry.body.figures), (Side::Unreadable, Figures::Unknown));
    assert_eq!(world.journaled(llm_tokens()).await, 17);
    assert_eq!(world.metrics.journal_damaged.get(()), 1);
}

#[tokio::test]
async fn l08_a_claim_the_engine_does_not_know_is_kept_apart() {
    let world = World::new().await;
    assert_eq!(world.settle(9, 5).await.before, Met::Unknown);
    assert_eq!(world.drained().await, Drained { inserted: 1, unbooked: 1, ..Drained::default() });
    let entries = world.entries(9).await;
    assert!(entries[0].is_unbooked());
    assert_eq!(entries[0].body.usage.output, 5);
    assert_eq!(sum(&entries), (0, 0, 0));
    assert_eq!(world.metrics.journal_unbooked.get(()), 1);
    // The same claim again is the same entry.
    world.settle(9, 5).await;
    assert_eq!(world.drained().await.repeated, 1);
    assert_eq!(world.metrics.journal_unbooked.get(()), 1);
}

#[tokio::test]
async fn two_drains_at_once_write_every_entry_once() {
    let world = World::new().await;
    for id in 0..200 {
        world.send(id).await;
        world.settle(id, 1).await;
    }
    let (one, two) = (world.drain(), world.drain());
    let (one, two) = tokio::join!(one.once(), two.once());
    assert_eq!(one.unwrap().inserted + two.unwrap().inserted, 200);
    assert_eq!(world.journaled(requests()).await, 200);
    assert!(world.store.by_request("req_7").await.unwrap().len() == 1);
}
