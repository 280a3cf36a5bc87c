//! A disk that is full for a while: writes fail, and go on when there is space again.
//!
//! SQLite then ends the transaction by itself. Here rather than under `tests/`, because the bound is the writer's own.

use sqlx::AssertSqlSafe;
use tempfile::TempDir;
use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_store::{
    Appended, Applied, Entry, EntryBody, Journal, LimitHistory, LimitRow, Name, Origin, StoreError,
    StoreErrorKind,
};

use crate::SqlStore;
use crate::db::Pools;

const BATCH: u128 = 200;
const ACCOUNT: AccountId = AccountId { subject: SubjectId(1), name: 1 };
const PERIOD: u64 = 100;
const AMOUNT: i64 = 15;

async fn store() -> (TempDir, SqlStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
    (dir, store)
}

fn writer(store: &SqlStore) -> &sqlx::SqlitePool {
    match &store.pools {
        Pools::Sqlite { writer, .. } => writer,
        Pools::MySql { .. } => panic!("no file"),
    }
}

/// Lets the file have at most `pages`, or what it has if that is more, on this connection and later ones.
async fn bound(store: &SqlStore, pages: u32) {
    let options = writer(store).connect_options().as_ref().clone();
    writer(store).set_connect_options(options.pragma("max_page_count", pages.to_string()));
    let pragma = format!("PRAGMA max_page_count = {pages}");
    sqlx::raw_sql(AssertSqlSafe(pragma)).execute(writer(store)).await.unwrap();
}

fn call(id: u128) -> Entry {
    Entry {
        reservation: ReservationId(id),
        attempt: 0,
        seq: 0,
        origin: Origin::Settled,
        admitted_at: 1,
        ended_at: 2,
        requests: 1,
        posted: vec![Posted { account: ACCOUNT, period: PERIOD, amount: AMOUNT }],
        body: EntryBody {
            request_id: Name::from(format!("req_{id}")),
            tenant: Name::from("acme"),
            ..EntryBody::default()
        },
    }
}

fn row(version: u32) -> LimitRow {
    let definition = format!("{{\"text\":\"{}\"}}", "x".repeat(100_000));
    LimitRow { limit: Name::from("a"), version, seen_at: 1, digest: [7; 32], definition }
}

fn assert_full<T: std::fmt::Debug>(result: &Result<T, StoreError>) {
    let Err(StoreError { kind: StoreErrorKind::Away(text), applied: Applied::No }) = result else {
        panic!("not full: {result:?}");
    };
    assert!(text.contains("full"), "{text}");
}

#[tokio::test]
async fn a_full_disk_stops_the_journal_only_while_it_is_full() {
    let (_dir, store) = store().await;
    store.append(&[call(0)]).await.unwrap();
    let batch: Vec<_> = (0..=BATCH).map(call).collect();
    bound(&store, 1).await;
    for _ in 0..3 {
        assert_full(&store.append(&batch).await);
        assert_eq!(store.posted_sum(ACCOUNT, PERIOD).await, Ok(AMOUNT));
        assert!(store.by_reservation(ReservationId(1)).await.unwrap().is_empty());
    }
    bound(&store, 1_000_000).await;
    let inserted = u64::try_from(BATCH).unwrap();
    assert_eq!(store.append(&batch).await, Ok(Appended { inserted, repeated: 1 }));
    assert_eq!(store.append(&batch).await, Ok(Appended { inserted: 0, repeated: inserted + 1 }));
    let all = i64::try_from(batch.len()).unwrap();
    assert_eq!(store.posted_sum(ACCOUNT, PERIOD).await, Ok(all * AMOUNT));
    for entry in &batch {
        assert_eq!(store.by_reservation(entry.reservation).await.as_deref(), Ok(&[entry.clone()][..]));
    }
}

#[tokio::test]
async fn a_full_disk_stops_the_limit_history_only_while_it_is_full() {
    let (_dir, store) = store().await;
    bound(&store, 1).await;
    for _ in 0..3 {
        assert_full(&store.limit_rows_append("", &[row(1), row(2)]).await);
        assert!(store.limit_rows("").await.unwrap().is_empty());
    }
    bound(&store, 1_000_000).await;
    assert_eq!(store.limit_rows_append("", &[row(1), row(2)]).await, Ok(2));
    assert_eq!(store.limit_rows("").await.unwrap(), [row(1), row(2)]);
}

/// A write that fails in the one place must not stop the other: they share the connection.
#[tokio::test]
async fn the_journal_goes_on_after_the_limit_history_met_a_full_disk() {
    let (_dir, store) = store().await;
    bound(&store, 1).await;
    assert_full(&store.limit_rows_append("", &[row(1)]).await);
    bound(&store, 1_000_000).await;
    assert_eq!(store.append(&[call(1)]).await, Ok(Appended { inserted: 1, repeated: 0 }));
}

/// SQLite ends a transaction by itself at some errors of a disk; a trigger makes it do so half-way through a batch.
#[tokio::test]
async fn the_journal_goes_on_after_sqlite_ended_its_transaction() {
    let (_dir, store) = store().await;
    store.append(&[call(0)]).await.unwrap();
    let trigger = "CREATE TRIGGER stop BEFORE INSERT ON posted BEGIN SELECT RAISE(ROLLBACK, 'stop'); END";
    sqlx::raw_sql(trigger).execute(writer(&store)).await.unwrap();
    for _ in 0..3 {
        let failed = store.append(&[call(0), call(1)]).await.unwrap_err();
        assert!(matches!(failed.kind, StoreErrorKind::Refused(_)), "{failed:?}");
        assert_eq!(failed.applied, Applied::No);
        assert!(store.by_reservation(ReservationId(1)).await.unwrap().is_empty());
    }
    sqlx::raw_sql("DROP TRIGGER stop").execute(writer(&store)).await.unwrap();
    let batch = [call(0), call(1)];
    assert_eq!(store.append(&batch).await, Ok(Appended { inserted: 1, repeated: 1 }));
    assert_eq!(store.posted_sum(ACCOUNT, PERIOD).await, Ok(2 * AMOUNT));
    assert_eq!(store.by_reservation(ReservationId(1)).await.as_deref(), Ok(&[call(1)][..]));
}
