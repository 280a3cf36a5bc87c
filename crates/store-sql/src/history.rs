//! The limit history's questions.

use tollbook_store::{Answer, LIMIT_ROWS_MAX, LimitHistory, LimitPage, LimitPlace, LimitRow};

use crate::db::{Row, ask};
use crate::line::stored;
use crate::sql::{LIMIT_INSERT, LIMIT_LIST, LIMIT_PAGE};
use crate::{SqlStore, row};

impl LimitHistory for SqlStore {
    fn limit_rows<'a>(&'a self, tenant: &'a str) -> Answer<'a, Vec<LimitRow>> {
        self.found(move || ask(&LIMIT_LIST).bind(tenant), |rows| rows.iter().map(limit_row).collect())
    }

    fn limit_rows_append<'a>(&'a self, tenant: &'a str, rows: &'a [LimitRow]) -> Answer<'a, u64> {
        self.pools.again(move || {
            Box::pin(async move {
                let mut tx = self.pools.begin().await?;
                let mut added = 0;
                for row in rows {
                    let insert = ask(&LIMIT_INSERT)
                        .bind(tenant)
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

    fn limit_rows_page<'a>(&'a self, after: &'a LimitPlace, max: usize) -> Answer<'a, LimitPage> {
        let max = max.clamp(1, LIMIT_ROWS_MAX);
        let question = move || {
            ask(&LIMIT_PAGE)
                .bind(&*after.tenant)
                .bind(&*after.limit)
                .bind(i64::from(after.version))
                .bind(i64::try_from(max).unwrap_or(i64::MAX))
        };
        self.found(question, move |rows| {
            let of = |row: &Row| Ok((row::name(row, "tenant")?, limit_row(row)?));
            let rows = rows.iter().map(of).collect::<Result<Vec<_>, sqlx::Error>>()?;
            let place = |(tenant, row): &(_, LimitRow)| LimitPlace {
                tenant: std::sync::Arc::clone(tenant),
                limit: std::sync::Arc::clone(&row.limit),
                version: row.version,
            };
            let next = rows.last().filter(|_| rows.len() == max).map(place);
            Ok(LimitPage { rows, next })
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
