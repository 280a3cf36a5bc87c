//! The journal's rows by day. On a server each day is a part of the table, made ahead and dropped whole; in a file rows are
//! deleted a batch at a time.
//!
//! Invariants: the last part takes whatever no other takes, so an append never fails for want of one; it is divided while it
//! has few rows. That rows are gone is noted, and committed, before they go; what breaks off in between goes at the next turn.
//! When another session uses the table for long, a part is made or dropped later: nobody waits for it behind us for more than
//! [`METADATA_WAIT`].

use tollbook_ledger::Micros;
use tollbook_store::{Answer, Day, DayRows, Due, Gone, JournalDays, SETTLED_DAYS, StoreError};

use crate::db::{Pools, Row, ask};
use crate::line::stored;
use crate::sql::{DAY_DUE, DAY_NEXT, DAY_NOTE, DAY_ROWS, KEPT_RAISE, KEPT_SINCE, PARTITION_LIST, ROW_DELETE};
use crate::{SqlStore, row};

const DAY_MICROS: i64 = 86_400_000_000;
/// Days to come that have a part of their own.
const AHEAD: i64 = 7;
/// Days of before that get a part of their own when a table is first divided; earlier ones stand together.
const BEFORE_MAX: i64 = 400;
/// A server takes 8,192 parts.
const PARTS_MAX: usize = 8_000;
/// Rows of the last part that are moved when it is divided.
const MOVED_MAX: i64 = 10_000;
/// Rows deleted from a file in one transaction.
const DELETED_AT_ONCE: i64 = 5_000;
/// The part that takes what no other takes.
const REST: &str = "rest";
const METADATA_WAIT: &str = "SET SESSION lock_wait_timeout = 5";

/// The parts of a table that is divided for the first time, given the first and last day of its rows and today.
pub(crate) fn first((oldest, newest, today): (i64, i64, i64)) -> String {
    let has_rows = newest > 0;
    let from = if has_rows { oldest.clamp(today.saturating_sub(BEFORE_MAX), today) } else { today };
    parts(from.saturating_add(1), today)
}

/// Parts whose rows end before these days, from one up to what is ahead of today.
fn parts(from: i64, today: i64) -> String {
    let to = today.saturating_add(1).saturating_add(AHEAD);
    let part = |day: i64| {
        let end = day.saturating_mul(DAY_MICROS);
        format!("PARTITION to_{day} VALUES LESS THAN ({end}), ")
    };
    (from..=to).map(part).collect()
}

/// A part of the table on a server.
struct Part {
    name: String,
    /// Its rows end before; `None`: the last part.
    before: Option<i64>,
    /// About so many.
    entries: u64,
}

fn part(found: &Row) -> Result<Part, sqlx::Error> {
    Ok(Part {
        name: found.text("name")?.to_owned(),
        before: found.maybe_int("before_end")?,
        entries: row::number(found, "entries")?,
    })
}

impl JournalDays for SqlStore {
    fn kept_since(&self) -> Answer<'_, Micros> {
        self.found(
            || ask(&KEPT_SINCE),
            |rows| rows.first().map_or(Ok(0), |found| row::number(found, "since")),
        )
    }

    fn day_begins(&self) -> Answer<'_, bool> {
        Box::pin(async move {
            self.changed(|| ask(&DAY_NOTE)).await?;
            match self.pools {
                Pools::Sqlite { .. } => Ok(true),
                Pools::MySql { .. } => self.divide().await,
            }
        })
    }

    fn days(&self) -> Answer<'_, Vec<DayRows>> {
        Box::pin(async move {
            let (mut days, mut from) = (Vec::new(), 0);
            while let Some(next) = self.next_end(from).await? {
                let day = Day(u32::try_from(next / DAY_MICROS).unwrap_or(u32::MAX));
                let begins = next - next % DAY_MICROS;
                let ends = begins.saturating_add(DAY_MICROS);
                let question = move || ask(&DAY_ROWS).bind(begins).bind(ends);
                let read = |rows: &[Row]| {
                    let found = rows.first().ok_or(sqlx::Error::RowNotFound)?;
                    Ok((row::number(found, "entries")?, found.int("newest")?))
                };
                let (entries, newest) = self.found(question, read).await?;
                days.push(DayRows { day, entries, newest });
                if ends == i64::MAX {
                    break;
                }
                from = ends;
            }
            Ok(days)
        })
    }

    fn due(&self, keep_days: u32) -> Answer<'_, Due> {
        Box::pin(async move { self.looked(keep_days).await })
    }

    fn let_go(&self, keep_days: u32) -> Answer<'_, Gone> {
        Box::pin(async move {
            let due = self.looked(keep_days).await?;
            let before = stored(due.from.begins());
            if due.settled == 0 || before == 0 {
                return Ok(Gone::default());
            }
            match &self.pools {
                Pools::Sqlite { .. } => self.delete(before, due.settled).await,
                Pools::MySql { .. } => self.drop_part(before, due.settled).await,
            }
        })
    }
}

impl SqlStore {
    async fn next_end(&self, from: i64) -> Result<Option<i64>, StoreError> {
        let read = |rows: &[Row]| rows.first().map_or(Ok(None), |found| found.maybe_int("ended_at"));
        self.found(move || ask(&DAY_NEXT).bind(from), read).await
    }

    /// A day is old when both clocks say so: one that has jumped ahead lets nothing go.
    async fn looked(&self, keep_days: u32) -> Result<Due, StoreError> {
        let read = |rows: &[Row]| {
            let found = rows.first().ok_or(sqlx::Error::RowNotFound)?;
            let newest = found.int("newest_end")? / DAY_MICROS;
            let today = found.int("today")?.min(newest);
            let from = today.saturating_sub(i64::from(keep_days)).max(0);
            Ok(Due { from: Day(u32::try_from(from).unwrap_or(0)), settled: found.int("settled")? })
        };
        self.found(|| ask(&DAY_DUE).bind(i64::from(SETTLED_DAYS)), read).await
    }

    async fn delete(&self, before: i64, settled: i64) -> Result<Gone, StoreError> {
        let mut tx = self.pools.begin().await?;
        let delete = ask(&ROW_DELETE).bind(before).bind(settled).bind(DELETED_AT_ONCE);
        let entries = tx.change(delete).await?;
        if entries == 0 {
            return Ok(Gone::default());
        }
        tx.change(ask(&KEPT_RAISE).bind(before).bind(settled)).await?;
        tx.commit().await?;
        Ok(Gone { entries, more: i64::try_from(entries) == Ok(DELETED_AT_ONCE) })
    }

    async fn parts(&self) -> Result<Vec<Part>, StoreError> {
        self.found(|| ask(&PARTITION_LIST), |rows| rows.iter().map(part).collect()).await
    }

    /// Drops one part whose rows are old, and were written long enough ago.
    async fn drop_part(&self, before: i64, settled: i64) -> Result<Gone, StoreError> {
        let parts = self.parts().await?;
        let is_old = |part: &&Part| part.before.is_some_and(|end| end <= before);
        for part in parts.iter().filter(is_old) {
            let newest = format!("SELECT COALESCE(MAX(place), 0) FROM entry_row PARTITION ({})", part.name);
            let newest = self.pools.number(newest).await?;
            if newest > settled {
                continue;
            }
            if newest > 0 {
                self.changed(move || ask(&KEPT_RAISE).bind(before).bind(newest)).await?;
            }
            let drop = format!("ALTER TABLE entry_row DROP PARTITION {}", part.name);
            self.pools.alter(METADATA_WAIT, drop).await?;
            return Ok(Gone { entries: if newest > 0 { part.entries } else { 0 }, more: true });
        }
        Ok(Gone::default())
    }

    /// Makes the parts of the days to come out of the last one.
    async fn divide(&self) -> Result<bool, StoreError> {
        let parts_now = self.parts().await?;
        let due = self
            .found(|| ask(&DAY_DUE).bind(0), |rows| rows.first().map_or(Ok(0), |found| found.int("today")));
        let today = due.await?;
        let newest =
            parts_now.iter().filter_map(|part| part.before).max().map_or(today, |end| end / DAY_MICROS);
        let wanted = parts(newest.saturating_add(1), today);
        if wanted.is_empty() {
            return Ok(true);
        }
        let some = format!(
            "SELECT COUNT(*) FROM (SELECT 1 FROM entry_row PARTITION ({REST}) LIMIT {}) AS some",
            MOVED_MAX + 1
        );
        if parts_now.len() >= PARTS_MAX || self.pools.number(some).await? > MOVED_MAX {
            return Ok(false);
        }
        let divide = format!(
            "ALTER TABLE entry_row REORGANIZE PARTITION {REST} INTO ({wanted}PARTITION {REST} VALUES LESS THAN MAXVALUE)"
        );
        self.pools.alter(METADATA_WAIT, divide).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, BEFORE_MAX, first, parts};

    fn count(text: &str) -> i64 {
        i64::try_from(text.matches("PARTITION").count()).unwrap()
    }

    #[test]
    fn a_table_is_divided_by_the_days_of_its_rows_and_those_to_come() {
        assert_eq!(count(&first((0, 0, 20_000))), AHEAD + 1, "without rows");
        assert!(
            first((19_990, 19_999, 20_000))
                .starts_with("PARTITION to_19991 VALUES LESS THAN (1727222400000000), ")
        );
        assert_eq!(count(&first((19_990, 19_999, 20_000))), 10 + AHEAD + 1);
        assert_eq!(count(&first((1, 19_999, 20_000))), BEFORE_MAX + AHEAD + 1, "however old");
        assert_eq!(count(&first((30_000, 30_000, 20_000))), AHEAD + 1, "of a clock that was ahead");
        assert_eq!(parts(20_009, 20_000), "", "they are there");
        assert_eq!(count(&parts(20_008, 20_000)), 1);
    }
}
