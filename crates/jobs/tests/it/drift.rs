//! Drift: found, counted, told; in batches; once a minute.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_engine::Drift as Batch;
use tollbook_jobs::{Drift, DriftFound};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Alarm;

use crate::doubles::Scripted;
use crate::world::{World, llm_tokens, requests};

#[tokio::test]
async fn l10_held_is_the_sum_of_live_holds() {
    let world = World::new().await;
    for id in 0..50 {
        world.send(id).await;
    }
    for id in 0..20 {
        world.settle(id, 3).await;
    }
    let drift = Drift::new(world.engine.clone(), world.metrics.clone());
    assert_eq!(drift.once().await, Ok(DriftFound::default()));
    assert_eq!(world.metrics.engine_alarms.get((Alarm::Drift,)), 0);
}

#[tokio::test]
async fn l10_a_difference_in_any_batch_is_an_alarm() {
    let engine = Arc::new(Scripted::with_shards(&[4]));
    *engine.drift.lock().unwrap() = vec![
        Batch { differences: vec![(llm_tokens(), 0, 7, 5, 1)], unconfirmed: 0, next: Some(1) },
        Batch { differences: Vec::new(), unconfirmed: 0, next: Some(2) },
        Batch { differences: vec![(requests(), 100, -1, 0, 9)], unconfirmed: 0, next: None },
    ];
    let metrics = Arc::new(Metrics::new());
    let drift = Drift::new(engine.clone(), metrics.clone());
    assert_eq!(drift.once().await, Ok(DriftFound { differences: 2, unconfirmed: 0 }));
    assert_eq!((metrics.engine_drift.get(()), metrics.engine_alarms.get((Alarm::Drift,))), (2, 2));
    // Gone at the next check: the gauge falls, the alarm stays.
    engine.drift.lock().unwrap().clear();
    assert_eq!(drift.once().await, Ok(DriftFound::default()));
    assert_eq!((metrics.engine_drift.get(()), metrics.engine_alarms.get((Alarm::Drift,))), (0, 2));
}

#[tokio::test]
async fn a_cursor_that_stands_still_ends_the_check() {
    let engine = Arc::new(Scripted::with_shards(&[4]));
    *engine.drift.lock().unwrap() = vec![Batch { differences: Vec::new(), unconfirmed: 0, next: Some(0) }];
    let drift = Drift::new(engine.clone(), Arc::new(Metrics::new()));
    assert_eq!(drift.once().await, Ok(DriftFound::default()));
    assert_eq!(engine.checks.load(Ordering::SeqCst), 1);
}

/// Cursors of a shared book have no order.
#[tokio::test]
async fn l10_a_cursor_may_fall() {
    let engine = Arc::new(Scripted::with_shards(&[4]));
    *engine.drift.lock().unwrap() = vec![
        Batch { differences: Vec::new(), unconfirmed: 1, next: Some(2) },
        Batch { differences: vec![(llm_tokens(), 0, 7, 5, 1)], unconfirmed: 0, next: None },
        Batch { differences: Vec::new(), unconfirmed: 2, next: Some(1) },
    ];
    let drift = Drift::new(engine.clone(), Arc::new(Metrics::new()));
    assert_eq!(drift.once().await, Ok(DriftFound { differences: 1, unconfirmed: 3 }));
}

/// One shard is away: the others are checked, and it is told.
#[tokio::test]
async fn l10_a_shard_that_fails_keeps_no_other_from_being_checked() {
    let engine = Arc::new(Scripted::with_shards(&[4, 5]));
    engine.away.lock().unwrap().push(4);
    *engine.drift.lock().unwrap() =
        vec![Batch { differences: vec![(llm_tokens(), 0, 7, 5, 1)], unconfirmed: 0, next: None }];
    let metrics = Arc::new(Metrics::new());
    assert!(Drift::new(engine.clone(), metrics.clone()).once().await.is_err());
    assert_eq!((metrics.engine_drift.get(()), metrics.engine_alarms.get((Alarm::Drift,))), (1, 1));
}

/// A check that never ends: bounded, and an error.
#[tokio::test]
async fn l10_a_check_in_circles_is_an_error() {
    let engine = Arc::new(Scripted::with_shards(&[4]));
    *engine.drift.lock().unwrap() = vec![
        Batch { differences: Vec::new(), unconfirmed: 0, next: Some(1) },
        Batch { differences: Vec::new(), unconfirmed: 0, next: Some(0) },
    ];
    let drift = Drift::new(engine.clone(), Arc::new(Metrics::new()));
    assert!(drift.once().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn l10_the_check_runs_once_a_minute() {
    let engine = Arc::new(Scripted::with_shards(&[1, 2]));
    let drift = Drift::new(engine.clone(), Arc::new(Metrics::new()));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move { drift.run(stopped).await });
    tokio::time::sleep(Duration::from_secs(610)).await;
    drop(stop);
    task.await.unwrap();
    assert_eq!(engine.checks.load(Ordering::SeqCst), 20);
}
