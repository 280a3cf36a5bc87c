//! Every statement, from its `.sql` file.

use std::sync::LazyLock;

/// Names the statements and lists them for the test that prepares each.
macro_rules! statements {
    ($($name:ident $file:literal),+ $(,)?) => {
        $(pub(crate) const $name: &str = include_str!(concat!("../sql/sqlite/", $file, ".sql"));)+

        #[cfg(test)]
        const ALL: &[(&str, &str)] = &[$(($file, $name)),+];
    };
}

statements!(
    ENTRY_INSERT "entry_insert",
    ENTRY_BY_RESERVATION "entry_by_reservation",
    ENTRY_BY_REQUEST "entry_by_request",
    ENTRY_BY_END "entry_by_end",
    ENTRY_NEWEST "entry_newest",
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
    POSTED_BY_SHARD "posted_by_shard",
    POSTED_ASTRAY "posted_astray",
    SHARD_END_SET "shard_end_set",
    SHARD_END "shard_end",
    ENTRY_PLACES "entry_places",
    ENTRY_LAST "entry_last",
    ENTRY_OWNERS "entry_owners",
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
    LEASE_TAKE "lease_take",
    LEASE_LEAVE "lease_leave",
    LEASE_END "lease_end",
    RESTORER_AWAIT "restorer_await",
    RESTORER_FORGET "restorer_forget",
    RESTORER_REPORT "restorer_report",
    RESTORER_LIST "restorer_list",
    OBJECT_LIST "object_list",
    OBJECT_PUT "object_put",
    OBJECT_DELETE "object_delete",
    OBJECT_DOCUMENT "object_document",
    CHANGE_INSERT "change_insert",
    CHANGE_NEWEST "change_newest",
    CHANGE_SINCE "change_since",
    CHANGE_LIST "change_list",
);

/// Columns of [`ENTRY_INSERT`], in order.
pub(crate) const ENTRY_COLUMNS: usize = 14;
/// Entries that one execution takes: enough that the trip to the connection's thread is shared by many.
pub(crate) const ENTRY_ROWS: usize = 64;

/// [`ENTRY_INSERT`] for [`ENTRY_ROWS`] rows.
pub(crate) static ENTRIES_INSERT: LazyLock<String> = LazyLock::new(|| {
    let row = format!("({})", vec!["?"; ENTRY_COLUMNS].join(", "));
    ENTRY_INSERT.replace(&row, &vec![row.as_str(); ENTRY_ROWS].join(", "))
});

/// The layouts, in order. A released file is never edited; a change is a new file.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../sql/sqlite/migrations/0001_journal.sql"),
    include_str!("../sql/sqlite/migrations/0002_limit_history.sql"),
    include_str!("../sql/sqlite/migrations/0003_fleet.sql"),
    include_str!("../sql/sqlite/migrations/0004_objects.sql"),
];

/// Layouts before this one know no shards.
pub(crate) const SHARDS_LAYOUT: usize = 3;

#[cfg(test)]
mod tests {
    use sqlx::{Either, Executor, SqlSafeStr, Statement};

    use super::{ALL, MIGRATIONS};

    #[tokio::test]
    async fn every_statement_prepares_on_a_fresh_schema() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, readers) = crate::open::open(&dir.path().join("store.db")).await.unwrap();
        for (name, text) in ALL {
            let statement = (&writer).prepare(text.into_sql_str()).await;
            let statement = statement.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(statement.parameters().is_some(), "{name}");
        }
        let entries = (&writer).prepare(super::ENTRIES_INSERT.as_str().into_sql_str()).await.unwrap();
        let parameters = super::ENTRY_COLUMNS * super::ENTRY_ROWS;
        assert!(matches!(entries.parameters(), Some(Either::Right(n)) if n == parameters));
        readers.close().await;
        writer.close().await;
    }

    #[test]
    fn every_sql_file_is_used() {
        let count = |dir: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
            std::fs::read_dir(path).unwrap().filter(|f| f.as_ref().unwrap().path().is_file()).count()
        };
        assert_eq!(count("sql/sqlite"), ALL.len());
        assert_eq!(count("sql/sqlite/migrations"), MIGRATIONS.len());
    }
}
