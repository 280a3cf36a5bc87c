//! Loops: backoff while something is away, everything written before the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_jobs::Drain;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Job, Run};

use crate::doubles::{Kept, Scripted, record};
use crate::world::body;

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_less_and_less_often_and_then_gets_everything() {
    let engine = Arc::new(Scripted::with_shards(&[1]));
    engine.records.lock().unwrap().insert(1, vec![record(1, 1, body(1, 1).encode())]);
    let journal = Arc::new(Kept::default());
    journal.away.store(u32::MAX, Ordering::SeqCst);
    let metrics = Arc::new(Metrics::new());
    let drain = Drain::new(engine.clone(), journal.clone(), metrics.clone());
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move { drain.run(stopped).await });

    // 0.1 + 0.2 + 0.4 + … : seven tries in the first ten seconds, then one every ten.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(journal.appends.load(Ordering::SeqCst), 7);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!((16..=18).contains(&journal.appends.load(Ordering::SeqCst)));
    assert_eq!(engine.waiting(), 1);

    journal.away.store(0, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!((engine.waiting(), journal.len()), (0, 1));
    assert!(metrics.jobs_runs.get((Job::Drain, Run::Failed)) >= 16);
    stop.send_replace(true);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn b222_what_ends_at_the_last_moment_is_written_before_the_job_ends() {
    let engine = Arc::new(Scripted::with_shards(&[1]));
    let journal = Arc::new(Kept::default());
    let drain = Drain::new(engine.clone(), journal.clone(), Arc::new(Metrics::new()));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move { drain.run(stopped).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let hundred = (1..=100).map(|i| record(i, u128::from(i), body(1, 1).encode())).collect();
    engine.records.lock().unwrap().insert(1, hundred);
    stop.send_replace(true);
    task.await.unwrap();
    assert_eq!((engine.waiting(), journal.len()), (0, 100));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_does_not_keep_the_process_from_stopping() {
    let engine = Arc::new(Scripted::with_shards(&[1]));
    engine.records.lock().unwrap().insert(1, vec![record(1, 1, body(1, 1).encode())]);
    let journal = Arc::new(Kept::default());
    journal.away.store(u32::MAX, Ordering::SeqCst);
    let drain = Drain::new(engine.clone(), journal.clone(), Arc::new(Metrics::new()));
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move { drain.run(stopped).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let told = tokio::time::Instant::now();
    stop.send_replace(true);
    task.await.unwrap();
    assert!(told.elapsed() < Duration::from_secs(11));
    assert_eq!(engine.waiting(), 1);
}
