//! Several writers, in one process and in two.

use std::time::Duration;

use tollbook_store::{Applied, Entry, Journal, LimitHistory, Side, StoreErrorKind};
use tollbook_store_sql::SqlStore;

use crate::make::{World, both, call, totals};

both!(
    b220_parallel_writers_and_readers_meet_no_lock_and_lose_no_row,
    two_processes_that_append_the_same_entries_count_them_once,
    many_processes_may_make_the_store_at_once,
    b220_a_writer_waits_for_the_lock_of_another_process,
    b220_a_lock_that_stays_is_busy_and_nothing_was_applied,
);

/// Two stores over one file stand for two processes: each has its own connections.
async fn b220_parallel_writers_and_readers_meet_no_lock_and_lose_no_row(world: World) {
    let one = world.open().await;
    let two = world.open().await;
    let mut tasks = Vec::new();
    for writer in 0..32_u128 {
        let store = if writer % 2 == 0 { one.clone() } else { two.clone() };
        tasks.push(tokio::spawn(async move {
            for round in 0..5 {
                let batch: Vec<Entry> = (0..3).map(|i| call(writer * 100 + round * 10 + i)).collect();
                store.append(&batch).await.unwrap();
                store.by_request("req_7").await.unwrap();
                totals(&store, Side::Tenant).await;
                store.limit_rows("").await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let total = &totals(&one, Side::Tenant).await[0];
    assert_eq!((total.entries, total.cost_nano), (480, 480 * 8_000));
}

/// Two drains of one stream: every entry is offered twice, at the same time, and counted once.
async fn two_processes_that_append_the_same_entries_count_them_once(world: World) {
    let one = world.open().await;
    let two = world.open().await;
    let append = async |store: SqlStore| {
        let mut inserted = 0;
        for part in 0..20_u128 {
            let batch: Vec<Entry> = (0..10).map(|i| call(part * 10 + i)).collect();
            inserted += store.append(&batch).await.unwrap().inserted;
        }
        inserted
    };
    let (first, second) = tokio::join!(append(one.clone()), append(two));
    assert_eq!(first + second, 200);
    assert_eq!(totals(&one, Side::Tenant).await[0].entries, 200);
}

async fn many_processes_may_make_the_store_at_once(world: World) {
    let tasks: Vec<_> = (0..8_u128)
        .map(|i| {
            let place = world.place();
            tokio::spawn(async move {
                let store = SqlStore::open(place).await.unwrap();
                store.append(&[call(i)]).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let store = world.open().await;
    assert_eq!(totals(&store, Side::Tenant).await[0].entries, 8);
}

async fn b220_a_writer_waits_for_the_lock_of_another_process(world: World) {
    let store = world.open().await;
    let mut other = world.other().await;
    other.take_turn().await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.append(&[call(1)]).await }
    });
    // A reader is not kept waiting, and sees nothing half-done.
    assert!(totals(&store, Side::Tenant).await.is_empty());
    tokio::time::timeout(Duration::from_millis(300), async {
        while !waiting.is_finished() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap_err();
    other.say("COMMIT").await;
    assert_eq!(waiting.await.unwrap().unwrap().inserted, 1);
    other.close().await;
}

async fn b220_a_lock_that_stays_is_busy_and_nothing_was_applied(world: World) {
    let store = world.open().await;
    let mut other = world.other().await;
    other.take_turn().await;
    let error = store.append(&[call(1)]).await.unwrap_err();
    assert_eq!((error.kind.clone(), error.applied), (StoreErrorKind::Busy, Applied::No));
    assert!(error.is_transient());
    other.say("COMMIT").await;
    other.close().await;
    assert_eq!(store.append(&[call(1)]).await.unwrap().inserted, 1);
}
