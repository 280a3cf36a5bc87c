//! Opening a database of a MySQL or MariaDB server: sessions, version checks, layouts.
//!
//! Many gateways may start at the same moment: the layout is changed under a lock of the server's. There each statement that
//! changes a layout is a transaction of its own, so each is noted when it is done, and can be run again: a start that died
//! half-way is gone on with by the next.
//! A session is set up the same whatever the server's defaults are. A server that lost its client ends what that had open
//! within a minute.

use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, MySqlConnection, MySqlPool};
use tollbook_store::{StoreError, StoreErrorKind};

use crate::days;
use crate::db::Pools;
use crate::error::not_applied;
use crate::place::Server;
use crate::sql::MYSQL_MIGRATIONS;

/// How long the first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a caller waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const READERS: u32 = 4;
/// Shorter than the server's own patience (`wait_timeout` below).
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Every text is a file of this crate; a cache of all of them is small.
const STATEMENTS: usize = 128;
/// How long a start waits for another's change of the layout.
const LOCK_SECONDS: i64 = 120;
/// Earlier versions have no `JSON_TABLE`.
const MARIADB_MIN: (u32, u32) = (10, 6);
const MYSQL_MIN: (u32, u32) = (8, 0);

const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
const READ_ONLY: &str = "SET SESSION TRANSACTION READ ONLY";
/// MariaDB makes IN of EXISTS, and a statement that was made so loses the condition when it is run again on its connection
/// (seen with 10.11). What is in `/*M! */` is read by MariaDB alone, what is in `/*!80000 */` by MySQL alone.
const SESSION: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', \
     innodb_lock_wait_timeout = 5, wait_timeout = 60 \
     /*M!100100 , max_statement_time = 60, idle_transaction_timeout = 30, optimizer_switch = 'exists_to_in=off' */ /*!80000 , max_execution_time = 60000 */";

/// A step that fills or rebuilds a table takes as long as the table is large.
const PATIENT: &str = "SET SESSION innodb_lock_wait_timeout = 50 /*M!100100 , max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */";

const LAYOUT: &str = "CREATE TABLE IF NOT EXISTS tollbook_layout (layout SMALLINT NOT NULL, step SMALLINT NOT NULL, \
     PRIMARY KEY (layout, step)) ENGINE = InnoDB";
const LOCK: &str = "SELECT GET_LOCK(CONCAT('tollbook_', LEFT(SHA2(DATABASE(), 256), 32)), ?)";
const UNLOCK: &str = "SELECT RELEASE_LOCK(CONCAT('tollbook_', LEFT(SHA2(DATABASE(), 256), 32)))";
/// In one statement: between two, another start may make the first table.
const TABLES: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(table_name = 'tollbook_layout'), 0) AS SIGNED) \
     FROM information_schema.tables WHERE table_schema = DATABASE()";
const NEWEST: &str = "SELECT CAST(layout AS SIGNED), CAST(step AS SIGNED) FROM tollbook_layout \
     ORDER BY layout DESC, step DESC LIMIT 1";
const DONE: &str = "INSERT INTO tollbook_layout (layout, step) VALUES (?, ?)";

/// What a server says of a column that is there. Only MariaDB can be asked to add one only if it is not: that it is, says
/// that the step was done, and nobody could note it.
const COLUMN_IS_THERE: u16 = 1060;
/// The same of a key to be dropped and of a table to be renamed: it is not there any more.
const KEY_IS_GONE: u16 = 1091;
const TABLE_IS_GONE: u16 = 1146;

/// Stands in a step where the days of a table's rows come in.
const DAYS: &str = "/*days*/";
/// The first and the last day that rows are of, and today.
const DAYS_OF_ROWS: &str = "SELECT CAST(COALESCE(MIN(ended_at), 0) DIV 86400000000 AS SIGNED), \
     CAST(COALESCE(MAX(ended_at), 0) DIV 86400000000 AS SIGNED), CAST(UNIX_TIMESTAMP() DIV 86400 AS SIGNED) FROM entry_row";

/// A layout and how many of its steps are done, both counted from 1.
type At = (usize, usize);

/// Brings the layout up to date.
pub(crate) async fn open(server: &Server) -> Result<Pools, StoreError> {
    let options = options(server)?;
    let mut first = connect(&options).await?;
    check_version(&mut first).await?;
    if at(&mut first).await? != newest() {
        migrate(&mut first).await?;
    }
    let _ = first.close().await;
    Ok(Pools::MySql { writer: pool(1, options.clone(), false), readers: pool(READERS, options, false) })
}

/// Readers alone, of a database that has this layout; nothing is written to it.
pub(crate) async fn open_to_read(server: &Server) -> Result<Pools, StoreError> {
    let options = options(server)?;
    let mut first = connect(&options).await?;
    check_version(&mut first).await?;
    let (at, known) = (at(&mut first).await?, newest());
    let _ = first.close().await;
    match at {
        (0, _) => Err(damaged("the database has no store; a gateway makes it at its start".to_owned())),
        at if at == known => {
            let readers = pool(READERS, options, true);
            Ok(Pools::MySql { writer: readers.clone(), readers })
        }
        (layout, _) => {
            Err(damaged(format!("the database has layout {layout}, this version reads {}", known.0)))
        }
    }
}

fn options(server: &Server) -> Result<MySqlConnectOptions, StoreError> {
    if let Some(problem) = server.unreadable() {
        return Err(damaged(problem));
    }
    let refused = || StoreError::not_applied(StoreErrorKind::Refused("the URL cannot be read"));
    Ok(server.options().ok_or_else(refused)?.statement_cache_capacity(STATEMENTS))
}

/// Outside of a pool, which would try a server that is away again and again.
async fn connect(options: &MySqlConnectOptions) -> Result<MySqlConnection, StoreError> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, options.connect()).await;
    let late = |_| {
        let text = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
        StoreError::not_applied(StoreErrorKind::Away(text))
    };
    let mut connection = connecting.map_err(late)?.map_err(not_applied)?;
    set_up(&mut connection, false).await.map_err(not_applied)?;
    Ok(connection)
}

async fn set_up(connection: &mut MySqlConnection, read_only: bool) -> Result<(), sqlx::Error> {
    connection.execute(SESSION).await?;
    connection.execute(ISOLATION).await?;
    if read_only {
        connection.execute(READ_ONLY).await?;
    }
    Ok(())
}

fn pool(max: u32, options: MySqlConnectOptions, read_only: bool) -> MySqlPool {
    MySqlPoolOptions::new()
        .max_connections(max)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .max_lifetime(None)
        .idle_timeout(IDLE_TIMEOUT)
        .test_before_acquire(true)
        .after_connect(move |connection, _| Box::pin(set_up(connection, read_only)))
        .connect_lazy_with(options)
}

async fn check_version(connection: &mut MySqlConnection) -> Result<(), StoreError> {
    let text: String =
        sqlx::query_scalar("SELECT VERSION()").fetch_one(connection).await.map_err(not_applied)?;
    let (name, least) =
        if text.contains("MariaDB") { ("MariaDB", MARIADB_MIN) } else { ("MySQL", MYSQL_MIN) };
    if version(&text).is_some_and(|version| version >= least) {
        return Ok(());
    }
    let (major, minor) = least;
    Err(damaged(format!("the server is {text}; {name} {major}.{minor} or later is needed")))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(['.', '-']).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Where the database's layout is; (0, 0) where it is empty.
async fn at(connection: &mut MySqlConnection) -> Result<At, StoreError> {
    let (tables, ours): (i64, i64) =
        sqlx::query_as(TABLES).fetch_one(&mut *connection).await.map_err(not_applied)?;
    if ours == 0 {
        if tables > 0 {
            return Err(damaged("the database has another program's tables".to_owned()));
        }
        return Ok((0, 0));
    }
    let newest: Option<(i64, i64)> =
        sqlx::query_as(NEWEST).fetch_optional(&mut *connection).await.map_err(not_applied)?;
    let (layout, step) = newest.unwrap_or_default();
    let known = MYSQL_MIGRATIONS.len();
    match (usize::try_from(layout), usize::try_from(step)) {
        (Ok(layout), Ok(step)) if layout <= known => Ok((layout, step)),
        _ => Err(damaged(format!("the database has layout {layout}, this version knows up to {known}"))),
    }
}

/// Where a database is that has every step.
fn newest() -> At {
    let steps = MYSQL_MIGRATIONS.last().map_or(0, |text| steps(text).len());
    (MYSQL_MIGRATIONS.len(), steps)
}

/// Takes the steps that are not done yet.
async fn migrate(connection: &mut MySqlConnection) -> Result<(), StoreError> {
    let locked: Option<i64> =
        sqlx::query_scalar(LOCK).bind(LOCK_SECONDS).fetch_one(&mut *connection).await.map_err(not_applied)?;
    if locked != Some(1) {
        return Err(StoreError::not_applied(StoreErrorKind::Busy));
    }
    // Another start may have been here before. If this one fails, the lock goes with the connection.
    let done = at(connection).await?;
    connection.execute(PATIENT).await.map_err(not_applied)?;
    connection.execute(LAYOUT).await.map_err(not_applied)?;
    for (layout, text) in (1..).zip(MYSQL_MIGRATIONS) {
        for (step, statement) in (1..).zip(steps(text)) {
            if (layout, step) <= done {
                continue;
            }
            let done = step_is_done(&statement);
            let statement = if statement.contains(DAYS) {
                let days: (i64, i64, i64) =
                    sqlx::query_as(DAYS_OF_ROWS).fetch_one(&mut *connection).await.map_err(not_applied)?;
                statement.replace(DAYS, &days::first(days))
            } else {
                statement
            };
            if let Err(error) = connection.execute(AssertSqlSafe(statement)).await
                && number_of(&error).is_none_or(|number| Some(number) != done)
            {
                return Err(not_applied(error));
            }
            sqlx::query(DONE)
                .bind(i64::try_from(layout).unwrap_or(i64::MAX))
                .bind(i64::try_from(step).unwrap_or(i64::MAX))
                .execute(&mut *connection)
                .await
                .map_err(not_applied)?;
        }
    }
    connection.execute(UNLOCK).await.map(|_| ()).map_err(not_applied)
}

/// By which error a server says that a step was done before.
fn step_is_done(statement: &str) -> Option<u16> {
    let alters = statement.starts_with("ALTER TABLE");
    if alters && statement.contains("ADD COLUMN") {
        Some(COLUMN_IS_THERE)
    } else if alters && statement.contains("DROP KEY") {
        Some(KEY_IS_GONE)
    } else {
        statement.starts_with("RENAME TABLE").then_some(TABLE_IS_GONE)
    }
}

fn number_of(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
    error.map(MySqlDatabaseError::number)
}

/// A layout's statements.
fn steps(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split(';').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

fn damaged(text: String) -> StoreError {
    StoreError::not_applied(StoreErrorKind::Damaged(text))
}

#[cfg(test)]
mod tests {
    use super::{MARIADB_MIN, MYSQL_MIGRATIONS, connect, migrate, options, step_is_done, steps, version};

    #[test]
    fn versions_are_read_from_what_servers_say() {
        assert_eq!(version("10.11.6-MariaDB-0+deb12u1"), Some((10, 11)));
        assert_eq!(version("8.0.36"), Some((8, 0)));
        assert_eq!(version("8.4.0-commercial"), Some((8, 4)));
        assert!(version("10.5.1-MariaDB") < Some(MARIADB_MIN));
        assert_eq!(version("x"), None);
    }

    /// Else a start on a large database would end its own step, and so would the next.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_step_may_take_longer_than_a_question() {
        let server = tollbook_sql_world::Server::start();
        let crate::Place::Server(place) = server.url().parse().unwrap() else { panic!("a file") };
        let mut connection = connect(&options(&place).unwrap()).await.unwrap();
        let limit = "SELECT CAST(@@SESSION.max_statement_time AS SIGNED)";
        let seconds: i64 = sqlx::query_scalar(limit).fetch_one(&mut connection).await.unwrap();
        assert_eq!(seconds, 60);
        migrate(&mut connection).await.unwrap();
        let seconds: i64 = sqlx::query_scalar(limit).fetch_one(&mut connection).await.unwrap();
        assert_eq!(seconds, 0, "no limit");
    }

    /// What died half-way is run again.
    #[test]
    fn every_step_can_be_run_again() {
        for step in MYSQL_MIGRATIONS.iter().flat_map(|text| steps(text)) {
            let again = ["IF NOT EXISTS", "OR REPLACE", "WHERE NOT EXISTS", "REPLACE INTO"];
            let again = again.into_iter().chain(["GREATEST(place", "COMMENT ="]);
            assert!(
                step_is_done(&step).is_some() || again.into_iter().any(|words| step.contains(words)),
                "{step}"
            );
        }
    }
}
