//! What the two drivers have in common: values, rows, transactions.
//!
//! Invariants: whoever writes takes a turn first — SQLite's write lock, on MySQL the row of `turn` — so writers never meet
//! half-way, and no transaction outlives the caller that drops it: SQLite's is rolled back, a connection to a server is
//! closed. No statement to a server is waited for without end.

use std::time::{Duration, Instant};

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Arguments, AssertSqlSafe, ColumnIndex, Executor as _, MySql, MySqlPool, Row as _, Sqlite, SqlitePool,
    Transaction,
};
use tollbook_store::{Answer, Applied, Name, StoreError, StoreErrorKind};

use crate::error::{commit, not_applied};
use crate::sql::{ENTRY_LAST, STEPS, Statement, Stepped};

/// Longest wait for the answer to a question. The server gives up before.
const READ_WITHIN: Duration = Duration::from_secs(75);
/// Longest wait for one step of a write.
const WRITE_WITHIN: Duration = Duration::from_secs(30);
/// A write that was rolled back by the server, or lost with its connection, is tried again: so often, and so long.
const TRIES: u32 = 3;
const TRY_WITHIN: Duration = Duration::from_secs(2);
/// Takes a turn and so many places; the server tells the last of them with its answer.
const TURN_WITH_PLACES: &str =
    "UPDATE turn SET taken = taken + 1, place = LAST_INSERT_ID(place + ?) WHERE number = 1";

/// A value of a parameter.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
    Name(Name),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Name> for Value {
    fn from(value: Name) -> Self {
        Self::Name(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.to_vec())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A statement and its values.
#[derive(Debug)]
pub(crate) struct Ask {
    statement: &'static Statement,
    values: Vec<Value>,
}

pub(crate) fn ask(statement: &'static Statement) -> Ask {
    Ask { statement, values: Vec::new() }
}

impl Ask {
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(crate) fn sqlite(self) -> Result<(&'static str, SqliteArguments), StoreError> {
        Ok((self.statement.sqlite, sqlite_arguments(self.values)?))
    }

    pub(crate) fn mysql(&self) -> Result<(&'static str, MySqlArguments), StoreError> {
        let ordered = &*self.statement.mysql;
        let values = ordered.order.iter().map(|place| self.values.get(*place).unwrap_or(&Value::Null));
        Ok((ordered.text.as_str(), mysql_arguments(values)?))
    }
}

pub(crate) fn sqlite_arguments(values: Vec<Value>) -> Result<SqliteArguments, StoreError> {
    let mut to = SqliteArguments::default();
    to.reserve(values.len(), 0);
    for value in values {
        let added = match value {
            Value::Null => to.add(None::<i64>),
            Value::Int(value) => to.add(value),
            Value::Text(value) => to.add(value),
            Value::Name(value) => to.add(value),
            Value::Bytes(value) => to.add(value),
        };
        added.map_err(|_| refused())?;
    }
    Ok(to)
}

fn mysql_arguments<'a>(values: impl Iterator<Item = &'a Value>) -> Result<MySqlArguments, StoreError> {
    let mut to = MySqlArguments::default();
    for value in values {
        let added = match value {
            Value::Null => to.add(None::<i64>),
            Value::Int(value) => to.add(*value),
            Value::Text(value) => to.add(value.as_str()),
            Value::Name(value) => to.add(&**value),
            Value::Bytes(value) => to.add(value.as_slice()),
        };
        added.map_err(|_| refused())?;
    }
    Ok(to)
}

fn refused() -> StoreError {
    StoreError::not_applied(StoreErrorKind::Refused("a value cannot be written"))
}

/// A row of either.
#[derive(Debug)]
pub(crate) enum Row {
    Sqlite(SqliteRow),
    MySql(MySqlRow),
}

impl Row {
    pub(crate) fn int<C>(&self, column: C) -> Result<i64, sqlx::Error>
    where
        C: ColumnIndex<SqliteRow> + ColumnIndex<MySqlRow>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }
    }

    pub(crate) fn maybe_int(&self, column: &'static str) -> Result<Option<i64>, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }
    }

    pub(crate) fn text(&self, column: &'static str) -> Result<&str, sqlx::Error> {
        self.maybe_text(column)?.ok_or_else(|| sqlx::Error::ColumnNotFound(column.to_owned()))
    }

    /// Names are bytes to a server, and text to us.
    pub(crate) fn maybe_text(&self, column: &'static str) -> Result<Option<&str>, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get_unchecked(column),
        }
    }

    pub(crate) fn bytes(&self, column: &'static str) -> Result<&[u8], sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }
    }
}

/// The connections of one store: one that writes, so that writers take turns here first, and some that read.
#[derive(Clone, Debug)]
pub(crate) enum Pools {
    Sqlite { writer: SqlitePool, readers: SqlitePool },
    MySql { writer: MySqlPool, readers: MySqlPool },
}

impl Pools {
    /// The answer to one question.
    pub(crate) async fn rows(&self, ask: Ask) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite { readers, .. } => {
                let (text, arguments) = ask.sqlite()?;
                let rows = sqlx::query_with(text, arguments).fetch_all(readers).await.map_err(not_applied)?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::MySql { readers, .. } => {
                let mut held = Held::of(readers).await?;
                let rows = held.rows(&ask, READ_WITHIN).await?;
                held.is_clean = true;
                Ok(rows)
            }
        }
    }

    /// Questions that are answered as of one moment.
    pub(crate) async fn look(&self) -> Result<Tx<'_>, StoreError> {
        match self {
            Self::Sqlite { readers, .. } => Ok(Tx::Sqlite(readers.begin().await.map_err(not_applied)?)),
            Self::MySql { readers, .. } => {
                let mut held = Held::of(readers).await?;
                held.say("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await?;
                Ok(Tx::MySql(held))
            }
        }
    }

    /// Begins to write: waits for the turn.
    pub(crate) async fn begin(&self) -> Result<Tx<'_>, StoreError> {
        match self {
            Self::Sqlite { writer, .. } => {
                Ok(Tx::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?))
            }
            Self::MySql { writer, .. } => {
                let mut held = Held::of(writer).await?;
                held.say("START TRANSACTION").await?;
                held.say("UPDATE turn SET taken = taken + 1 WHERE number = 1").await?;
                Ok(Tx::MySql(held))
            }
        }
    }

    /// Begins to write entries; the first of so many places that are theirs.
    pub(crate) async fn begin_with_places(&self, places: usize) -> Result<(Tx<'_>, i64), StoreError> {
        let places = i64::try_from(places).unwrap_or(i64::MAX);
        match self {
            Self::Sqlite { .. } => {
                let mut tx = self.begin().await?;
                let last = tx.row(ask(&ENTRY_LAST)).await?.map_or(Ok(0), |row| row.int("place"));
                Ok((tx, last.map_err(not_applied)?.saturating_add(1)))
            }
            Self::MySql { writer, .. } => {
                let mut held = Held::of(writer).await?;
                held.say("START TRANSACTION").await?;
                let taken = mysql_arguments([Value::Int(places)].iter())?;
                let query = sqlx::query_with(TURN_WITH_PLACES, taken);
                let done = within(WRITE_WITHIN, query.execute(&mut *held.connection)).await?;
                let last = i64::try_from(done.last_insert_id()).unwrap_or(i64::MAX);
                Ok((Tx::MySql(held), last.saturating_sub(places).saturating_add(1)))
            }
        }
    }

    /// One statement that writes; how many rows it changed.
    pub(crate) async fn change(&self, ask: Ask) -> Result<u64, StoreError> {
        if let Self::Sqlite { writer, .. } = self {
            let (text, arguments) = ask.sqlite()?;
            let done = sqlx::query_with(text, arguments).execute(writer).await.map_err(commit)?;
            return Ok(done.rows_affected());
        }
        let mut tx = self.begin().await?;
        let changed = tx.change(ask).await?;
        tx.commit().await?;
        Ok(changed)
    }

    /// A number that a server answers; the text is made of names and numbers of this crate. 0 of a file.
    pub(crate) async fn number(&self, text: String) -> Result<i64, StoreError> {
        let Self::MySql { readers, .. } = self else { return Ok(0) };
        let mut held = Held::of(readers).await?;
        let query = sqlx::query_scalar(AssertSqlSafe(text)).persistent(false);
        let number = within(READ_WITHIN, query.fetch_one(&mut *held.connection)).await?;
        held.is_clean = true;
        Ok(number)
    }

    /// Changes a table of a server, on a connection that is set up for it and closed after it.
    pub(crate) async fn alter(&self, set_up: &'static str, text: String) -> Result<(), StoreError> {
        let Self::MySql { writer, .. } = self else { return Ok(()) };
        let mut held = Held::of(writer).await?;
        held.say(set_up).await?;
        within(READ_WITHIN, held.connection.execute(AssertSqlSafe(text))).await.map(|_| ())
    }

    /// Runs a question or a write that is the same when it is repeated, and tries again where a server rolled it back.
    pub(crate) fn again<'a, T: Send + 'a>(
        &self,
        mut once: impl FnMut() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        if matches!(self, Self::Sqlite { .. }) {
            return once();
        }
        Box::pin(async move {
            let start = Instant::now();
            let mut tries = 1;
            loop {
                match once().await {
                    Err(error)
                        if error.is_transient()
                            && error.applied == Applied::No
                            && tries < TRIES
                            && start.elapsed() < TRY_WITHIN =>
                    {
                        tries += 1;
                    }
                    done => return done,
                }
            }
        })
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::MySql { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
        }
    }
}

/// A transaction. Dropped without a commit, nothing of it stays.
#[derive(Debug)]
pub(crate) enum Tx<'a> {
    Sqlite(Transaction<'a, Sqlite>),
    MySql(Held),
}

impl Tx<'_> {
    pub(crate) async fn rows(&mut self, ask: Ask) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let (text, arguments) = ask.sqlite()?;
                let rows =
                    sqlx::query_with(text, arguments).fetch_all(&mut **tx).await.map_err(not_applied)?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::MySql(held) => held.rows(&ask, READ_WITHIN).await,
        }
    }

    pub(crate) async fn row(&mut self, ask: Ask) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(ask).await?.into_iter().next())
    }

    /// How many rows were changed; on a server, one that was set to what it was counts too.
    pub(crate) async fn change(&mut self, ask: Ask) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let (text, arguments) = ask.sqlite()?;
                let done = sqlx::query_with(text, arguments).execute(&mut **tx).await.map_err(not_applied)?;
                Ok(done.rows_affected())
            }
            Self::MySql(held) => {
                let (text, arguments) = ask.mysql()?;
                held.change(text, arguments).await
            }
        }
    }

    /// The same with a text that is no [`Statement`].
    pub(crate) async fn change_text(
        &mut self,
        text: &'static str,
        values: Vec<Value>,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let query = sqlx::query_with(text, sqlite_arguments(values)?);
                Ok(query.execute(&mut **tx).await.map_err(not_applied)?.rows_affected())
            }
            Self::MySql(held) => held.change(text, mysql_arguments(values.iter())?).await,
        }
    }

    /// A statement for all rows, many of them at a time.
    pub(crate) async fn change_all(
        &mut self,
        stepped: &'static Stepped,
        rows: Vec<Vec<Value>>,
    ) -> Result<(), StoreError> {
        let texts = match self {
            Self::Sqlite(_) => &stepped.sqlite,
            Self::MySql(_) => &stepped.mysql,
        };
        let mut rows = rows.into_iter();
        for (step, text) in STEPS.iter().zip(texts) {
            while rows.len() >= *step {
                let values = rows.by_ref().take(*step).flatten().collect();
                self.change_text(text.as_str(), values).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(tx) => tx.commit().await.map_err(commit),
            Self::MySql(mut held) => {
                let done = tokio::time::timeout(WRITE_WITHIN, held.connection.execute("COMMIT")).await;
                match done {
                    Ok(done) => done.map_err(commit)?,
                    Err(_) => return Err(StoreError::unknown(late(WRITE_WITHIN))),
                };
                held.is_clean = true;
                Ok(())
            }
        }
    }
}

/// A connection to a server. Unless it is left in good order, it is closed: the server then rolls back what is open.
#[derive(Debug)]
pub(crate) struct Held {
    connection: PoolConnection<MySql>,
    is_clean: bool,
}

impl Held {
    async fn of(pool: &MySqlPool) -> Result<Self, StoreError> {
        let connection = pool.acquire().await.map_err(|error| match error {
            // The pool has tried for as long as a caller waits.
            sqlx::Error::PoolTimedOut => {
                let text = "the server is away, or gives no more connections".to_owned();
                StoreError::not_applied(StoreErrorKind::Away(text))
            }
            error => not_applied(error),
        })?;
        Ok(Self { connection, is_clean: false })
    }

    async fn say(&mut self, text: &'static str) -> Result<(), StoreError> {
        within(WRITE_WITHIN, self.connection.execute(text)).await.map(|_| ())
    }

    async fn rows(&mut self, ask: &Ask, limit: Duration) -> Result<Vec<Row>, StoreError> {
        let (text, arguments) = ask.mysql()?;
        let query = sqlx::query_with(text, arguments);
        let rows = within(limit, query.fetch_all(&mut *self.connection)).await?;
        Ok(rows.into_iter().map(Row::MySql).collect())
    }

    async fn change(&mut self, text: &'static str, arguments: MySqlArguments) -> Result<u64, StoreError> {
        let query = sqlx::query_with(text, arguments);
        Ok(within(WRITE_WITHIN, query.execute(&mut *self.connection)).await?.rows_affected())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_clean {
            self.connection.close_on_drop();
        }
    }
}

/// An answer within a time. Nothing was applied without it: the commit comes later, and is not waited for here.
async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(not_applied),
        Err(_) => Err(StoreError::not_applied(late(limit))),
    }
}

fn late(limit: Duration) -> StoreErrorKind {
    StoreErrorKind::Away(format!("no answer within {} s", limit.as_secs()))
}
