//! What the layout of shards needs of entries that were written before it: whose accounts they posted to, and when they ended.
//!
//! Invariants: within the migration's transaction, so once; a bounded number of entries is in memory. A sum that no entry
//! names stays in no shard, and is counted when sums are asked for.

use std::collections::BTreeMap;

use tollbook_store::{Side, StoreError};

use crate::append::owned_by;
use crate::db::{Row, Tx, ask};
use crate::error::not_applied;
use crate::line::{PostedLine, json, stored};
use crate::row;
use crate::sql::{ENTRY_OWNERS, POSTED_ADD, SHARD_END_SET};

/// Entries read at once.
const ENTRIES_AT_ONCE: i64 = 4_096;

/// The shards of sums and their newest ends, from all entries.
pub(crate) async fn shards(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let (mut after, mut ends) = (0_i64, BTreeMap::new());
    loop {
        let some = tx.rows(ask(&ENTRY_OWNERS).bind(after).bind(ENTRIES_AT_ONCE)).await?;
        let Some(last) = some.last() else { break };
        after = last.int("place").map_err(not_applied)?;
        let mut sums = BTreeMap::new();
        for found in &some {
            note(found, &mut sums, &mut ends).map_err(not_applied)?;
        }
        if !sums.is_empty() {
            // Nothing is added to what was posted; it learns where it is.
            let line = |((subject, account, period), shard)| (subject, account, period, 0_i64, shard);
            let lines: Vec<(i64, i64, i64, i64, u8)> = sums.into_iter().map(line).collect();
            tx.change(ask(&POSTED_ADD).bind(json(&lines)?)).await?;
        }
    }
    let ends: Vec<(u8, i64)> = ends.into_iter().collect();
    tx.change(ask(&SHARD_END_SET).bind(json(&ends)?)).await.map(|_| ())
}

/// One entry's part.
fn note(
    found: &Row,
    sums: &mut BTreeMap<(i64, i64, i64), u8>,
    ends: &mut BTreeMap<u8, i64>,
) -> Result<(), sqlx::Error> {
    let side = Side::of(row::number(found, "side")?);
    let Some(shard) = owned_by(side, found.text("tenant")?, found.text("pool")?) else { return Ok(()) };
    let end = ends.entry(shard).or_default();
    *end = stored(row::number(found, "ended_at")?).max(*end);
    let posted: Vec<PostedLine> = row::posted(found)?;
    sums.extend(posted.into_iter().map(|(subject, account, period, _)| ((subject, account, period), shard)));
    Ok(())
}
