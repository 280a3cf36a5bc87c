//! Sweep: every shard, every second, whatever ails another.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_engine::Shard;
use tollbook_jobs::{JobError, Sweep, Swept};
use tollbook_ledger::Measure;
use tollbook_ledger::units::SECOND;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::{Job, Run};

use crate::doubles::Scripted;
use crate::world::{World, leg, llm_tokens};

#[tokio::test]
async fn l07_what_is_due_is_expired_and_nothing_else() {
    let world = World::new().await;
    for id in 0..300 {
        world.reserve(id).await;
    }
    world.pass(10 * SECOND);
    world.send(1000).await;
    assert_eq!(world.swept().await, Swept::default());
    world.pass(6 * SECOND);
    assert_eq!(world.swept().await.expired, 300);
    assert_eq!(world.metrics.engine_expired.get(()), 300);
    assert_eq!(world.swept().await, Swept::default());
}

#[tokio::test]
async fn l07_every_shard_is_swept() {
    let world = World::new().await;
    for shard in 0..8 {
        world.reserve_legs(Shard(shard), u128::from(shard), vec![leg(llm_tokens(), Measure::Tokens)]).await;
    }
    world.pass(16 * SECOND);
    assert_eq!(world.swept().await.expired, 8);
}

#[tokio::test]
async fn a_shard_in_trouble_keeps_no_other_waiting() {
    let engine = Arc::new(Scripted::with_shards(&[1, 2, 3]));
    engine.due.lock().unwrap().extend([(1, 5), (2, 5), (3, 130)]);
    engine.away.lock().unwrap().push(1);
    let metrics = Arc::new(Metrics::new());
    let sweep = Sweep::new(engine.clone(), metrics.clone());
    assert!(matches!(sweep.once().await, Err(JobError::Engine(_))));
    assert_eq!(metrics.engine_expired.get(()), 135);
    engine.away.lock().unwrap().clear();
    assert_eq!(sweep.once().await, Ok(Swept { expired: 5, spared: 0 }));
}

/// Holds that are told as due but were renewed meanwhile must not be asked for again and again.
#[tokio::test]
async fn a_round_that_expires_nothing_is_the_last() {
    let engine = Arc::new(Scripted { renewed: true, ..Scripted::with_shards(&[1]) });
    engine.due.lock().unwrap().insert(1, 1000);
    let sweep = Sweep::new(engine.clone(), Arc::new(Metrics::new()));
    assert_eq!(sweep.once().await, Ok(Swept { expired: 0, spared: 64 }));
    assert_eq!(engine.asked.lock().unwrap()[&1].len(), 1);
}

#[tokio::test(start_paused = true)]
async fn l07_every_shard_is_swept_at_least_once_a_second_also_with_one_away() {
    let engine = Arc::new(Scripted::with_shards(&[1, 2, 255]));
    engine.away.lock().unwrap().push(2);
    let metrics = Arc::new(Metrics::new());
    let sweep = Sweep::new(engine.clone(), metrics.clone());
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move { sweep.run(stopped).await });
    tokio::time::sleep(Duration::from_secs(20)).await;
    stop.send_replace(true);
    task.await.unwrap();
    for (shard, times) in engine.asked.lock().unwrap().iter() {
        assert!(times.len() >= 20, "shard {shard} was swept {} times", times.len());
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max().unwrap() < Duration::from_secs(1));
    }
    assert!(metrics.jobs_runs.get((Job::Sweep, Run::Failed)) >= 20);
}
