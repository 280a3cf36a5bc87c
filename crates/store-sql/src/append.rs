//! Appending a batch: new entries, what they posted and their totals, in one transaction.
//!
//! The batch goes to SQLite as JSON in three statements, whatever its size: a statement costs a trip to the
//! connection's thread, a row does not.

use std::collections::BTreeMap;

use sqlx::SqlitePool;
use tollbook_store::{Appended, BATCH_MAX, Entry, EntryKey, StoreError, StoreErrorKind};

use crate::error::{commit, not_applied};
use crate::line::{
    EntryLine, PostedLine, entry_line, posted_line, total_add, total_key, total_line, total_of,
};
use crate::row;
use crate::sql::{ENTRY_INSERT, POSTED_INSERT, TOTAL_ADD};

pub(crate) async fn append(writer: &SqlitePool, batch: &[Entry]) -> Result<Appended, StoreError> {
    if batch.is_empty() {
        return Ok(Appended::default());
    }
    if batch.len() > BATCH_MAX {
        return Err(StoreError::not_applied(StoreErrorKind::Refused("the batch is too long")));
    }
    let lines: Vec<EntryLine<'_>> = batch.iter().map(entry_line).collect();
    let lines = json(&lines)?;
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    let rows = sqlx::query(ENTRY_INSERT).bind(lines).fetch_all(&mut *tx).await.map_err(not_applied)?;
    let places: BTreeMap<EntryKey, i64> =
        rows.iter().map(row::inserted).collect::<Result<_, _>>().map_err(not_applied)?;
    let inserted = places.len();
    let (posted, totals) = consequences(batch, places);
    if !posted.is_empty() {
        sqlx::query(POSTED_INSERT).bind(json(&posted)?).execute(&mut *tx).await.map_err(not_applied)?;
    }
    if let Some(totals) = totals {
        sqlx::query(TOTAL_ADD).bind(totals?).execute(&mut *tx).await.map_err(not_applied)?;
    }
    tx.commit().await.map_err(commit)?;
    let repeated = batch.len().saturating_sub(inserted);
    Ok(Appended { inserted: count(inserted), repeated: count(repeated) })
}

/// What the new entries posted, and what they add to the totals, if anything. Unbooked ones do neither (L8).
fn consequences(
    batch: &[Entry],
    mut places: BTreeMap<EntryKey, i64>,
) -> (Vec<PostedLine>, Option<Result<String, StoreError>>) {
    let mut posted = Vec::new();
    let mut totals = BTreeMap::new();
    for entry in batch {
        // Taken out: a second entry of the same key in one batch is a repeat.
        let Some(place) = places.remove(&entry.key()) else { continue };
        if entry.is_unbooked() {
            continue;
        }
        posted.extend(entry.posted.iter().enumerate().map(|(leg, amount)| posted_line(place, leg, amount)));
        let more = total_of(entry);
        totals.entry(total_key(&more)).and_modify(|to| total_add(to, &more)).or_insert(more);
    }
    if totals.is_empty() {
        return (posted, None);
    }
    let lines: Vec<_> = totals.values().map(total_line).collect();
    (posted, Some(json(&lines)))
}

pub(crate) fn json<T: serde::Serialize>(rows: &T) -> Result<String, StoreError> {
    serde_json::to_string(rows)
        .map_err(|_| StoreError::not_applied(StoreErrorKind::Refused("the rows cannot be written as JSON")))
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
