//! The file: layouts, other programs' files, restarts.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row};
use tollbook_ledger::ReservationId;
use tollbook_store::{Journal, StoreError, StoreErrorKind, signed};
use tollbook_store_sql::SqlStore;

use crate::make::{call, full, store};

async fn run(path: &std::path::Path, sql: &'static str) {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut other = options.connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
}

fn is_damaged(result: &Result<SqlStore, StoreError>) -> bool {
    matches!(result, Err(e) if matches!(e.kind, StoreErrorKind::Damaged(_)))
}

#[tokio::test]
async fn entries_survive_a_restart() {
    let (dir, store) = store().await;
    store.append(&[full(1)]).await.unwrap();
    store.close().await;
    let again = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
    assert_eq!(again.by_reservation(ReservationId(1)).await.unwrap(), [full(1)]);
    assert_eq!(again.append(&[full(1), call(2)]).await.unwrap().inserted, 1);
}

/// The view gives every member of a stored body its name.
#[tokio::test]
async fn the_view_tells_what_the_entries_say() {
    let (dir, store) = store().await;
    let (one, two) = (full(1), call(2));
    store.append(&[one.clone(), two.clone()]).await.unwrap();
    let options = SqliteConnectOptions::new().filename(dir.path().join("store.db"));
    let mut raw = options.connect().await.unwrap();
    let rows = sqlx::query("SELECT * FROM journal ORDER BY place").fetch_all(&mut raw).await.unwrap();
    for (entry, row) in [one, two].iter().zip(&rows) {
        let text = |column| row.get::<&str, _>(column).to_owned();
        let number = |column| row.get::<i64, _>(column);
        let (body, usage, hold) = (&entry.body, &entry.body.usage, &entry.body.hold);
        assert_eq!(text("reservation"), entry.reservation.to_string());
        for (column, value) in [
            ("request_id", &body.request_id),
            ("tenant", &body.tenant),
            ("project", &body.project),
            ("key_id", &body.key),
            ("service", &body.service),
            ("end_user", &body.user),
            ("model_asked", &body.model_asked),
            ("model_priced", &body.model_priced),
            ("model_used", &body.model_used),
            ("pool", &body.pool),
        ] {
            assert_eq!(text(column), **value, "{column}");
        }
        for (column, value) in [
            ("side", i64::from(body.side.code())),
            ("attempt", i64::from(entry.attempt)),
            ("seq", i64::from(entry.seq)),
            ("unbooked", 0),
            ("origin", i64::from(entry.origin.code())),
            ("admitted_at", entry.admitted_at.cast_signed()),
            ("ended_at", entry.ended_at.cast_signed()),
            ("requests", entry.requests),
            ("input", usage.input),
            ("cached", usage.cached),
            ("cache_write", usage.cache_write),
            ("cache_write_1h", usage.cache_write_1h),
            ("output", usage.output),
            ("reasoning", usage.reasoning),
            ("audio_input", usage.audio_input),
            ("audio_output", usage.audio_output),
            ("image_input", usage.image_input),
            ("web_searches", usage.web_searches),
            ("cost_nano", body.cost_nano),
            ("hold_input", signed(hold.input_llm_tokens)),
            ("hold_expected", signed(hold.expected_llm_tokens)),
            ("hold_worst", signed(hold.worst_llm_tokens)),
            ("hold_expected_cost_nano", signed(hold.expected_cost_nano)),
            ("hold_worst_cost_nano", signed(hold.worst_cost_nano)),
            ("charged_on_expiry", i64::from(hold.charged_on_expiry)),
            ("figures", i64::from(body.figures.code())),
            ("ending", i64::from(body.ending.code())),
            ("overrun_llm_tokens", signed(body.overrun.llm_tokens)),
            ("overrun_cost_nano", signed(body.overrun.cost_nano)),
            ("latency_ms", i64::from(body.latency_ms)),
            ("attempts", i64::from(body.attempts)),
            ("flags", i64::from(body.flags.bits())),
        ] {
            assert_eq!(number(column), value, "{column}");
        }
        assert_eq!(row.get::<Option<i64>, _>("ttft_ms"), body.ttft_ms.map(i64::from));
    }
    assert_eq!(rows[0].get::<&str, _>("ladder"), r#"["wait 1","clamp 2"]"#);
    assert_eq!(rows[1].get::<&str, _>("ladder"), "[]");
    raw.close().await.unwrap();
}

/// The layout a fresh file gets is the released one; a change of it is a new migration and a new line here.
#[tokio::test]
async fn a_fresh_schema_is_the_released_one() {
    let (dir, store) = store().await;
    store.close().await;
    let schema = schema(&dir.path().join("store.db")).await;
    let released = include_str!("../data/schema.sql");
    assert!(schema == released, "the schema differs from tests/data/schema.sql:\n{schema}");
}

#[tokio::test]
async fn a_file_of_the_first_layout_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    run(&path, include_str!("../../sql/sqlite/migrations/0001_journal.sql")).await;
    run(&path, "PRAGMA user_version = 1; PRAGMA application_id = 1414283851").await;
    let store = SqlStore::open(&path).await.unwrap();
    store.append(&[call(1)]).await.unwrap();
    assert!(tollbook_store::LimitHistory::limit_rows(&store, "").await.unwrap().is_empty());
    store.close().await;
    assert!(schema(&path).await == include_str!("../data/schema.sql"), "it is not that of a fresh file");
}

/// Everything that a file is made of.
async fn schema(path: &std::path::Path) -> String {
    let mut raw = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let statements: Vec<String> =
        sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name")
            .fetch_all(&mut raw)
            .await
            .unwrap();
    raw.close().await.unwrap();
    statements.join(";\n\n") + ";\n"
}

#[tokio::test]
async fn a_file_of_a_later_layout_is_not_opened() {
    let (dir, store) = store().await;
    store.close().await;
    let path = dir.path().join("store.db");
    run(&path, "PRAGMA user_version = 9999").await;
    assert!(is_damaged(&SqlStore::open(&path).await));
}

#[tokio::test]
async fn another_programs_file_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    run(&path, "CREATE TABLE theirs (a)").await;
    assert!(is_damaged(&SqlStore::open(&path).await));
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database, and longer than a header would be. ".repeat(40)).unwrap();
    assert!(is_damaged(&SqlStore::open(&text).await));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let result = SqlStore::open(&dir.path().join("no").join("store.db")).await;
    assert!(matches!(result, Err(e) if matches!(e.kind, StoreErrorKind::Away(_))));
}
