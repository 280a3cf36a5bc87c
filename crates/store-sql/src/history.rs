//! The limit history's questions.

use tollbook_store::{Answer, LimitHistory, LimitRow};

use crate::error::{commit, not_applied};
use crate::line::stored;
use crate::sql::{LIMIT_INSERT, LIMIT_LIST};
use crate::{SqliteStore, row};

impl LimitHistory for SqliteStore {
    fn limit_rows(&self) -> Answer<'_, Vec<LimitRow>> {
        Box::pin(async move {
            let rows = sqlx::query(LIMIT_LIST).fetch_all(&self.readers).await.map_err(not_applied)?;
            rows.iter().map(limit_row).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn limit_rows_append<'a>(&'a self, rows: &'a [LimitRow]) -> Answer<'a, u64> {
        Box::pin(async move {
            let mut tx = self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
            let mut added = 0;
            for row in rows {
                let done = sqlx::query(LIMIT_INSERT)
                    .bind(&*row.limit)
                    .bind(i64::from(row.version))
                    .bind(stored(row.seen_at))
                    .bind(row.digest.as_slice())
                    .bind(row.definition.as_str())
                    .execute(&mut *tx)
                    .await
                    .map_err(not_applied)?;
                added += done.rows_affected();
            }
            tx.commit().await.map_err(commit)?;
            Ok(added)
        })
    }
}

fn limit_row(row: &sqlx::sqlite::SqliteRow) -> Result<LimitRow, sqlx::Error> {
    use sqlx::Row;
    Ok(LimitRow {
        limit: row::name(row, "limit_name")?,
        version: row::number(row, "version")?,
        seen_at: row::number(row, "seen_at")?,
        digest: row::bytes(row, "digest")?,
        definition: row.try_get("definition")?,
    })
}
