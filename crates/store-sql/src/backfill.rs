//! What the layout of shards needs of entries that were written before it: whose accounts they posted to, and when they ended.
//!
//! Invariants: within the migration's transaction, so once; a bounded number of entries is in memory. A sum that no entry
//! names stays in no shard, and is counted when sums are asked for.

use std::collections::BTreeMap;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use tollbook_store::{Side, StoreError};

use crate::append::owned_by;
use crate::error::not_applied;
use crate::line::{PostedLine, json, stored};
use crate::row;
use crate::sql::{ENTRY_OWNERS, POSTED_ADD, SHARD_END_SET};

/// Entries read at once.
const ENTRIES_AT_ONCE: i64 = 4_096;

/// The shards of sums and their newest ends, from all entries.
pub(crate) async fn shards(tx: &mut Transaction<'_, Sqlite>) -> Result<(), StoreError> {
    let (mut after, mut ends) = (0_i64, BTreeMap::new());
    loop {
        let some = sqlx::query(ENTRY_OWNERS).bind(after).bind(ENTRIES_AT_ONCE);
        let some = some.fetch_all(&mut **tx).await.map_err(not_applied)?;
        let Some(last) = some.last() else { break };
        after = last.try_get("place").map_err(not_applied)?;
        let mut sums = BTreeMap::new();
        for found in &some {
            note(found, &mut sums, &mut ends).map_err(not_applied)?;
        }
        if !sums.is_empty() {
            // Nothing is added to what was posted; it learns where it is.
            let line = |((subject, account, period), shard)| (subject, account, period, 0_i64, shard);
            let lines: Vec<(i64, i64, i64, i64, u8)> = sums.into_iter().map(line).collect();
            sqlx::query(POSTED_ADD).bind(json(&lines)?).execute(&mut **tx).await.map_err(not_applied)?;
        }
    }
    let ends: Vec<(u8, i64)> = ends.into_iter().collect();
    sqlx::query(SHARD_END_SET).bind(json(&ends)?).execute(&mut **tx).await.map_err(not_applied)?;
    Ok(())
}

/// One entry's part.
fn note(
    found: &SqliteRow,
    sums: &mut BTreeMap<(i64, i64, i64), u8>,
    ends: &mut BTreeMap<u8, i64>,
) -> Result<(), sqlx::Error> {
    let side = Side::of(row::number(found, "side")?);
    let Some(shard) = owned_by(side, found.try_get("tenant")?, found.try_get("pool")?) else { return Ok(()) };
    let end = ends.entry(shard).or_default();
    *end = stored(row::number(found, "ended_at")?).max(*end);
    let posted: Vec<PostedLine> = row::posted(found)?;
    sums.extend(posted.into_iter().map(|(subject, account, period, _)| ((subject, account, period), shard)));
    Ok(())
}
