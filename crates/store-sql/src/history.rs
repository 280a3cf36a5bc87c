//! The limit history's questions.

use tollbook_store::{Answer, LimitHistory, LimitRow};

use crate::db::{Row, ask};
use crate::line::stored;
use crate::sql::{LIMIT_INSERT, LIMIT_LIST};
use crate::{SqlStore, row};

impl LimitHistory for SqlStore {
    fn limit_rows(&self) -> Answer<'_, Vec<LimitRow>> {
        self.found(|| ask(&LIMIT_LIST), |rows| rows.iter().map(limit_row).collect())
    }

    fn limit_rows_append<'a>(&'a self, rows: &'a [LimitRow]) -> Answer<'a, u64> {
        self.pools.again(move || {
            Box::pin(async move {
                let mut tx = self.pools.begin().await?;
                let mut added = 0;
                for row in rows {
                    let insert = ask(&LIMIT_INSERT)
                        .bind(&*row.limit)
                        .bind(i64::from(row.version))
                        .bind(stored(row.seen_at))
                        .bind(row.digest.as_slice())
                        .bind(row.definition.as_str());
                    added += tx.change(insert).await?;
                }
                tx.commit().await?;
                Ok(added)
            })
        })
    }
}

fn limit_row(row: &Row) -> Result<LimitRow, sqlx::Error> {
    Ok(LimitRow {
        limit: row::name(row, "limit_name")?,
        version: row::number(row, "version")?,
        seen_at: row::number(row, "seen_at")?,
        digest: row::bytes(row, "digest")?,
        definition: row.text("definition")?.to_owned(),
    })
}
