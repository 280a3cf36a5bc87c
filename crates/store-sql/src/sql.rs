//! Every statement, from its `.sql` files: one for SQLite, one for MySQL and MariaDB, of one name and the same parameters.
//!
//! Parameters are numbered in both. MySQL knows none with numbers: there they are put in order, as often as they are used.

use std::sync::LazyLock;

/// One statement in both dialects.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sqlite: &'static str,
    pub(crate) mysql: LazyLock<Ordered>,
}

/// A text whose parameters have no numbers, and the number that stands at each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ordered {
    pub(crate) text: String,
    /// Counted from 0.
    pub(crate) order: Vec<usize>,
}

impl Ordered {
    fn of(text: &str) -> Self {
        let mut to = Self { text: String::with_capacity(text.len()), order: Vec::new() };
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        for (place, line) in lines.enumerate() {
            if place > 0 {
                to.text.push('\n');
            }
            to.line(line);
        }
        to
    }

    fn line(&mut self, line: &str) {
        let mut parts = line.split('?');
        self.text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(digits);
            // One without a number comes after those before it.
            let number = number.parse::<usize>().map_or(self.order.len(), |number| number.saturating_sub(1));
            self.order.push(number);
            self.text.push('?');
            self.text.push_str(rest);
        }
    }
}

/// Names the statements and lists them for the test that prepares each.
macro_rules! statements {
    (
        both: $($name:ident $file:literal),+;
        sqlite: $($only:ident $only_file:literal),+;
        mysql: $($server:ident $server_file:literal),+;
    ) => {
        $(pub(crate) static $name: Statement = Statement {
            sqlite: include_str!(concat!("../sql/sqlite/", $file, ".sql")),
            mysql: LazyLock::new(|| Ordered::of(include_str!(concat!("../sql/mysql/", $file, ".sql")))),
        };)+
        $(pub(crate) static $only: Statement = Statement {
            sqlite: include_str!(concat!("../sql/sqlite/", $only_file, ".sql")),
            mysql: LazyLock::new(|| Ordered::of("")),
        };)+
        $(pub(crate) static $server: Statement = Statement {
            sqlite: "",
            mysql: LazyLock::new(|| Ordered::of(include_str!(concat!("../sql/mysql/", $server_file, ".sql")))),
        };)+

        #[cfg(test)]
        const BOTH: &[(&str, &Statement)] = &[$(($file, &$name)),+];
        #[cfg(test)]
        const SQLITE: &[(&str, &Statement)] = &[$(($only_file, &$only)),+];
        #[cfg(test)]
        const MYSQL: &[(&str, &Statement)] = &[$(($server_file, &$server)),+];
    };
}

statements!(
    both:
    ENTRY_INSERT "entry_insert",
    ENTRY_BY_RESERVATION "entry_by_reservation",
    ENTRY_BY_REQUEST "entry_by_request",
    ENTRY_BY_END "entry_by_end",
    POSTED_ADD "posted_add",
    POSTED_SUMS "posted_sums",
    POSTED_SUM "posted_sum",
    TOTAL_ADD "total_add",
    TOTAL_LIST "total_list",
    USAGE_BY_TENANT "usage_by_tenant",
    USAGE_BY_POOL "usage_by_pool",
    USER_LIST "user_list",
    TENANT_LIST "tenant_list",
    CALL_LIST "call_list",
    LIMIT_LIST "limit_list",
    LIMIT_INSERT "limit_insert",
    LIMIT_PAGE "limit_page",
    POSTED_BY_SHARD "posted_by_shard",
    POSTED_ASTRAY "posted_astray",
    SHARD_END_SET "shard_end_set",
    SHARD_END "shard_end",
    ENTRY_PLACES "entry_places",
    ENTRY_LAST "entry_last",
    FLEET_ID "fleet_id",
    GATEWAY_BEAT "gateway_beat",
    GATEWAY_LEAVE "gateway_leave",
    GATEWAY_FORGET "gateway_forget",
    GATEWAY_LIVE "gateway_live",
    SHARD_LIST "shard_list",
    SHARD_FIRST "shard_first",
    SHARD_BEGIN "shard_begin",
    SHARD_MARK "shard_mark",
    SHARD_STAGE "shard_stage",
    LEASE_FREE "lease_free",
    LEASE_TAKE "lease_take",
    LEASE_LEAVE "lease_leave",
    LEASE_END "lease_end",
    RESTORER_AWAIT "restorer_await",
    RESTORER_FORGET "restorer_forget",
    RESTORER_REPORT "restorer_report",
    RESTORER_LIST "restorer_list",
    OBJECT_LIST "object_list",
    OBJECT_LIST_OF "object_list_of",
    OBJECT_OF_TENANT "object_of_tenant",
    OBJECT_ONE "object_one",
    OBJECT_PAGE "object_page",
    OBJECT_PUT "object_put",
    OBJECT_DELETE "object_delete",
    OBJECT_DOCUMENTS "object_documents",
    MARK_INSERT "mark_insert",
    MARK_FIND "mark_find",
    MARK_LIST "mark_list",
    MARK_DELETE "mark_delete",
    CHANGE_INSERT "change_insert",
    CHANGE_NEWEST "change_newest",
    CHANGE_SINCE "change_since",
    CHANGE_LIST "change_list",
    CHANGE_OF_TENANT "change_of_tenant",
    PRICE_BOOK_KEEP "price_book_keep",
    PRICE_BOOK_ONE "price_book_one",
    PRICE_BOOK_LIST "price_book_list",
    JOB_FREE "job_free",
    JOB_TAKE "job_take",
    JOB_LEAVE "job_leave",
    KEPT_SINCE "kept_since",
    KEPT_RAISE "kept_raise",
    DAY_NOTE "day_note",
    DAY_DUE "day_due",
    DAY_NEXT "day_next",
    DAY_ROWS "day_rows",
    ENTRY_KNOWN "entry_known",
    ENTRY_GONE "entry_gone",
    ALERT_MARK_LIST "alert_mark_list",
    ALERT_MARK_FIRST "alert_mark_first",
    ALERT_MARK_AGAIN "alert_mark_again",
    ALERT_MARK_REARM "alert_mark_rearm",
    ALERT_MARK_FORGET "alert_mark_forget",
    DELIVERY_INSERT "delivery_insert",
    DELIVERY_DUE "delivery_due",
    DELIVERY_TOLD "delivery_told",
    DELIVERY_WAITING "delivery_waiting",
    DELIVERY_FORGET "delivery_forget";
    sqlite:
    ENTRY_KEY_INSERT "entry_key_insert",
    ENTRY_OWNERS "entry_owners",
    ROW_DELETE "row_delete";
    mysql:
    ENTRY_KEY_COPY "entry_key_copy",
    PARTITION_LIST "partition_list";
);

/// Columns of [`ENTRY_INSERT`], in order.
pub(crate) const ENTRY_COLUMNS: usize = 15;
/// Columns of [`ENTRY_KEY_INSERT`], in order.
pub(crate) const KEY_COLUMNS: usize = 7;
/// Entries that one execution takes: enough that the trip to the connection's thread is shared by many.
pub(crate) const ENTRY_ROWS: usize = 64;
/// How many rows one execution takes where rows are not padded: few texts, and few executions for any number.
pub(crate) const STEPS: [usize; 4] = [64, 16, 4, 1];

/// [`ENTRY_INSERT`] of SQLite for [`ENTRY_ROWS`] rows.
pub(crate) static ENTRIES_INSERT: LazyLock<String> =
    LazyLock::new(|| repeated(ENTRY_INSERT.sqlite, ENTRY_COLUMNS, ENTRY_ROWS));

/// [`ENTRY_KEY_INSERT`] of SQLite for [`ENTRY_ROWS`] keys.
pub(crate) static ENTRY_KEYS_INSERT: LazyLock<String> =
    LazyLock::new(|| repeated(ENTRY_KEY_INSERT.sqlite, KEY_COLUMNS, ENTRY_ROWS));

/// [`ENTRY_INSERT`] of MySQL for each of [`STEPS`].
pub(crate) static ENTRY_STEPS_INSERT: LazyLock<[String; STEPS.len()]> =
    LazyLock::new(|| STEPS.map(|rows| repeated(&ENTRY_INSERT.mysql.text, ENTRY_COLUMNS, rows)));

/// A statement with a row of parameters, for each of [`STEPS`] with as many rows.
#[derive(Debug)]
pub(crate) struct Stepped {
    pub(crate) sqlite: [String; STEPS.len()],
    pub(crate) mysql: [String; STEPS.len()],
}

impl Stepped {
    fn of(statement: &Statement, columns: usize) -> Self {
        let steps = |text: &str| STEPS.map(|rows| repeated(text, columns, rows));
        Self { sqlite: steps(statement.sqlite), mysql: steps(&statement.mysql.text) }
    }
}

pub(crate) static OBJECT_PUTS: LazyLock<Stepped> = LazyLock::new(|| Stepped::of(&OBJECT_PUT, 8));
pub(crate) static CHANGE_INSERTS: LazyLock<Stepped> = LazyLock::new(|| Stepped::of(&CHANGE_INSERT, 9));
pub(crate) static MARK_INSERTS: LazyLock<Stepped> = LazyLock::new(|| Stepped::of(&MARK_INSERT, 5));
pub(crate) static MARK_DELETES: LazyLock<Stepped> = LazyLock::new(|| Stepped::of(&MARK_DELETE, 1));

fn repeated(text: &str, columns: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; columns].join(", "));
    text.replace(&row, &vec![row.as_str(); rows].join(", "))
}

/// The layouts, in order. A released file is never edited; a change is a new file.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../sql/sqlite/migrations/0001_journal.sql"),
    include_str!("../sql/sqlite/migrations/0002_limit_history.sql"),
    include_str!("../sql/sqlite/migrations/0003_fleet.sql"),
    include_str!("../sql/sqlite/migrations/0004_objects.sql"),
    include_str!("../sql/sqlite/migrations/0005_marks.sql"),
    include_str!("../sql/sqlite/migrations/0006_prices_and_jobs.sql"),
    include_str!("../sql/sqlite/migrations/0007_days.sql"),
    include_str!("../sql/sqlite/migrations/0008_alerts.sql"),
    include_str!("../sql/sqlite/migrations/0009_users.sql"),
];

/// The same for MySQL; one statement is one step.
pub(crate) const MYSQL_MIGRATIONS: &[&str] = &[
    include_str!("../sql/mysql/migrations/0001_journal.sql"),
    include_str!("../sql/mysql/migrations/0002_limit_history.sql"),
    include_str!("../sql/mysql/migrations/0003_fleet.sql"),
    include_str!("../sql/mysql/migrations/0004_objects.sql"),
    include_str!("../sql/mysql/migrations/0005_marks.sql"),
    include_str!("../sql/mysql/migrations/0006_prices_and_jobs.sql"),
    include_str!("../sql/mysql/migrations/0007_days.sql"),
    include_str!("../sql/mysql/migrations/0008_alerts.sql"),
    include_str!("../sql/mysql/migrations/0009_users.sql"),
];

/// Layouts before this one know no shards.
pub(crate) const SHARDS_LAYOUT: usize = 3;

#[cfg(test)]
mod tests {
    use sqlx::{Either, Executor, SqlSafeStr, Statement};

    use super::{
        BOTH, CHANGE_INSERTS, ENTRY_STEPS_INSERT, MARK_DELETES, MARK_INSERTS, MIGRATIONS, MYSQL,
        MYSQL_MIGRATIONS, OBJECT_PUTS, Ordered, SQLITE, STEPS,
    };

    #[tokio::test]
    async fn every_statement_prepares_on_a_fresh_schema() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, readers) = crate::open::open(&dir.path().join("store.db")).await.unwrap();
        for (name, text) in BOTH.iter().chain(SQLITE) {
            let statement = (&writer).prepare(text.sqlite.into_sql_str()).await;
            let statement = statement.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(statement.parameters().is_some(), "{name}");
        }
        let entries = (&writer).prepare(super::ENTRIES_INSERT.as_str().into_sql_str()).await.unwrap();
        let parameters = super::ENTRY_COLUMNS * super::ENTRY_ROWS;
        assert!(matches!(entries.parameters(), Some(Either::Right(n)) if n == parameters));
        readers.close().await;
        writer.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_statement_prepares_on_a_fresh_database() {
        let server = tollbook_sql_world::Server::start();
        let place: crate::Place = server.url().parse().unwrap();
        let crate::Place::Server(place) = place else { panic!("a file") };
        let crate::db::Pools::MySql { writer, readers } = crate::mysql::open(&place).await.unwrap() else {
            panic!("a file");
        };
        for (name, text) in BOTH.iter().chain(MYSQL) {
            let statement = (&writer).prepare(text.mysql.text.as_str().into_sql_str()).await;
            let statement = statement.unwrap_or_else(|e| panic!("{name}: {e}"));
            let parameters = text.mysql.order.len();
            assert!(matches!(statement.parameters(), Some(Either::Right(n)) if n == parameters), "{name}");
        }
        readers.close().await;
        writer.close().await;
    }

    /// A statement takes as many values in the one dialect as in the other.
    #[test]
    fn both_dialects_number_the_same_parameters() {
        for (name, text) in BOTH {
            let numbers = |text: &str| Ordered::of(text).order.into_iter().max();
            assert_eq!(numbers(text.sqlite), numbers(&mysql_text(name)), "{name}");
        }
    }

    fn mysql_text(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("sql/mysql/{name}.sql"));
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn numbered_parameters_are_put_in_order() {
        let text = "-- of ?9\nSELECT ?2, ?1\nWHERE a = ?2 AND ?10 IS NULL";
        let ordered = Ordered::of(text);
        assert_eq!(ordered.text, "SELECT ?, ?\nWHERE a = ? AND ? IS NULL");
        assert_eq!(ordered.order, [1, 0, 1, 9]);
        assert_eq!(Ordered::of("VALUES (?, ?)").order, [0, 1]);
    }

    #[test]
    fn rows_are_written_in_steps() {
        let stepped = [(&*OBJECT_PUTS, 8), (&*CHANGE_INSERTS, 9), (&*MARK_INSERTS, 5), (&*MARK_DELETES, 1)];
        let texts =
            stepped.iter().flat_map(|(text, columns)| [(&text.sqlite, *columns), (&text.mysql, *columns)]);
        for (texts, columns) in texts.chain([(&*ENTRY_STEPS_INSERT, super::ENTRY_COLUMNS)]) {
            for (rows, text) in STEPS.iter().zip(texts) {
                assert_eq!(text.matches('?').count(), rows * columns, "{text}");
            }
        }
        assert_eq!(STEPS.last(), Some(&1), "any number of rows is made of steps");
    }

    #[test]
    fn every_sql_file_is_used() {
        let count = |dir: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
            std::fs::read_dir(path).unwrap().filter(|f| f.as_ref().unwrap().path().is_file()).count()
        };
        assert_eq!(count("sql/sqlite"), BOTH.len() + SQLITE.len());
        assert_eq!(count("sql/mysql"), BOTH.len() + MYSQL.len());
        assert_eq!(count("sql/sqlite/migrations"), MIGRATIONS.len());
        assert_eq!(count("sql/mysql/migrations"), MYSQL_MIGRATIONS.len());
    }
}
