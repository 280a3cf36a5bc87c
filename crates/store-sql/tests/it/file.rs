//! The file: layouts, other programs' files, restarts.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tollbook_ledger::ReservationId;
use tollbook_store::{Journal, StoreError, StoreErrorKind};
use tollbook_store_sql::SqliteStore;

use crate::make::{call, full, store};

async fn run(path: &std::path::Path, sql: &'static str) {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut other = options.connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
}

fn is_damaged(result: &Result<SqliteStore, StoreError>) -> bool {
    matches!(result, Err(e) if matches!(e.kind, StoreErrorKind::Damaged(_)))
}

#[tokio::test]
async fn entries_survive_a_restart() {
    let (dir, store) = store().await;
    store.append(&[full(1)]).await.unwrap();
    store.close().await;
    let again = SqliteStore::open(&dir.path().join("store.db")).await.unwrap();
    assert_eq!(again.by_reservation(ReservationId(1)).await.unwrap(), [full(1)]);
    assert_eq!(again.append(&[full(1), call(2)]).await.unwrap().inserted, 1);
}

/// The layout a fresh file gets is the released one; a change of it is a new migration and a new line here.
#[tokio::test]
async fn a_fresh_schema_is_the_released_one() {
    let (dir, store) = store().await;
    store.close().await;
    let options = SqliteConnectOptions::new().filename(dir.path().join("store.db"));
    let mut raw = options.connect().await.unwrap();
    let statements: Vec<String> =
        sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name")
            .fetch_all(&mut raw)
            .await
            .unwrap();
    raw.close().await.unwrap();
    let schema = statements.join(";\n\n") + ";\n";
    let released = include_str!("../data/schema.sql");
    assert!(schema == released, "the schema differs from tests/data/schema.sql:\n{schema}");
}

#[tokio::test]
async fn a_file_of_the_first_layout_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    run(&path, include_str!("../../sql/sqlite/migrations/0001_journal.sql")).await;
    run(&path, "PRAGMA user_version = 1; PRAGMA application_id = 1414283851").await;
    let store = SqliteStore::open(&path).await.unwrap();
    store.append(&[call(1)]).await.unwrap();
    assert!(tollbook_store::LimitHistory::limit_rows(&store).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_file_of_a_later_layout_is_not_opened() {
    let (dir, store) = store().await;
    store.close().await;
    let path = dir.path().join("store.db");
    run(&path, "PRAGMA user_version = 9999").await;
    assert!(is_damaged(&SqliteStore::open(&path).await));
}

#[tokio::test]
async fn another_programs_file_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    run(&path, "CREATE TABLE theirs (a)").await;
    assert!(is_damaged(&SqliteStore::open(&path).await));
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database, and longer than a header would be. ".repeat(40)).unwrap();
    assert!(is_damaged(&SqliteStore::open(&text).await));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let result = SqliteStore::open(&dir.path().join("no").join("store.db")).await;
    assert!(matches!(result, Err(e) if matches!(e.kind, StoreErrorKind::Away(_))));
}
