//! Opening an SQLite file: connections, version checks, layouts.
//!
//! Two processes may open a new file at the same moment: the layout is read and changed under the write lock.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection, SqlitePool};
use tollbook_store::{StoreError, StoreErrorKind};

use crate::backfill;
use crate::db::Tx;
use crate::error::not_applied;
use crate::sql::{MIGRATIONS, SHARDS_LAYOUT};

/// How long a writer waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a caller waits for a connection of this process.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const READERS: u32 = 4;
/// Earlier versions can lose committed pages when a checkpoint meets a writer.
const SQLITE_MIN: (u32, u32, u32) = (3, 51, 3);
/// Marks the file as ours: "TLBK".
const APPLICATION_ID: i64 = 0x544c_424b;
/// Tries to open while another process changes the file's journal mode, a moment SQLite does not wait through.
const OPEN_TRIES: u32 = 100;
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// Writer and readers.
pub(crate) async fn open(path: &Path) -> Result<(SqlitePool, SqlitePool), StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
        .pragma("temp_store", "memory")
        .page_size(16_384)
        .pragma("wal_autocheckpoint", "2000")
        // Every text is a file of this crate; a cache of all of them is small.
        .statement_cache_capacity(64);
    let writer = connect(options.clone().journal_mode(SqliteJournalMode::Wal)).await?;
    check_version(&writer).await?;
    migrate(&writer).await?;
    let readers = pool(READERS).connect_lazy_with(options.pragma("query_only", "on"));
    Ok((writer, readers))
}

/// Readers alone, of a file that is there and has this layout; nothing is written to it.
pub(crate) async fn open_to_read(path: &Path) -> Result<SqlitePool, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("temp_store", "memory")
        .pragma("query_only", "on");
    let readers = connect(options).await?;
    check_version(&readers).await?;
    let mut connection = readers.acquire().await.map_err(not_applied)?;
    let layout: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await.map_err(not_applied)?;
    let application: i64 =
        sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await.map_err(not_applied)?;
    drop(connection);
    let known = MIGRATIONS.len();
    let text = if application != APPLICATION_ID {
        "the file holds another program's database".to_owned()
    } else if usize::try_from(layout) != Ok(known) {
        format!("the file has layout {layout}, this version reads {known}")
    } else {
        return Ok(readers);
    };
    Err(StoreError::not_applied(StoreErrorKind::Damaged(text)))
}

async fn connect(options: SqliteConnectOptions) -> Result<SqlitePool, StoreError> {
    let mut tries = 0;
    loop {
        let result = pool(1).connect_with(options.clone()).await.map_err(not_applied);
        tries += 1;
        match result {
            Err(e) if e.kind == StoreErrorKind::Busy && tries < OPEN_TRIES => {
                tokio::time::sleep(OPEN_PAUSE).await;
            }
            other => return other,
        }
    }
}

fn pool(max: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(max)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // Connections are to a file: neither age nor idleness makes them worse.
        .max_lifetime(None)
        .idle_timeout(None)
        // A dropped transaction is rolled back by the ping that this turns on.
        .test_before_acquire(true)
        // After some errors, a full disk among them, SQLite has rolled back by itself. The driver's own rollback then
        // fails, and it believes for good that a transaction is open: such a connection is closed, a new one takes its
        // place. Here rather than where a write fails, so that no failure and no cancelled caller is missed.
        .before_acquire(|connection, _| Box::pin(async { Ok(!connection.is_in_transaction()) }))
}

async fn check_version(writer: &SqlitePool) -> Result<(), StoreError> {
    let text: String =
        sqlx::query_scalar("SELECT sqlite_version()").fetch_one(writer).await.map_err(not_applied)?;
    if version(&text).is_some_and(|v| v >= SQLITE_MIN) {
        return Ok(());
    }
    let (major, minor, patch) = SQLITE_MIN;
    let needed = format!("SQLite {text} is linked, {major}.{minor}.{patch} or later is needed");
    Err(StoreError::not_applied(StoreErrorKind::Damaged(needed)))
}

fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    let (major, minor, patch) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    Some((major, minor, patch))
}

/// Applies the layouts the file does not have yet, all or none.
async fn migrate(writer: &SqlitePool) -> Result<(), StoreError> {
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    let layout: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *tx).await.map_err(not_applied)?;
    let application: i64 =
        sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *tx).await.map_err(not_applied)?;
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&mut *tx)
        .await
        .map_err(not_applied)?;
    let is_new = layout == 0 && application == 0 && tables == 0;
    if !is_new && application != APPLICATION_ID {
        let text = "the file holds another program's database".to_owned();
        return Err(StoreError::not_applied(StoreErrorKind::Damaged(text)));
    }
    let known = MIGRATIONS.len();
    let done = usize::try_from(layout).ok().filter(|done| *done <= known);
    let Some(done) = done else {
        let text = format!("the file has layout {layout}, this version knows up to {known}");
        return Err(StoreError::not_applied(StoreErrorKind::Damaged(text)));
    };
    for migration in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(*migration).execute(&mut *tx).await.map_err(not_applied)?;
    }
    if done < known {
        // Pragmas take no parameters; both texts are made of numbers of this file.
        let marks = format!("PRAGMA user_version = {known}; PRAGMA application_id = {APPLICATION_ID}");
        sqlx::raw_sql(AssertSqlSafe(marks)).execute(&mut *tx).await.map_err(not_applied)?;
    }
    let mut tx = Tx::Sqlite(tx);
    if !is_new && done < SHARDS_LAYOUT {
        backfill::shards(&mut tx).await?;
    }
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use super::{SQLITE_MIN, version};

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(version("3.51.3"), Some(SQLITE_MIN));
        assert!(version("3.9.20") < Some(SQLITE_MIN));
        assert!(version("3.100.0") > Some(SQLITE_MIN));
        assert_eq!(version("3.x"), None);
    }
}
