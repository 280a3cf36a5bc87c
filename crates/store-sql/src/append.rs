//! Appending a batch: new entries, what they posted and their totals, in one transaction.
//!
//! The batch goes to SQLite as JSON in three statements, whatever its size: a statement costs a trip to the
//! connection's thread, a row does not. Sums are made here first, so that a batch touches each total once.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{Sqlite, SqlitePool, Transaction};
use tollbook_store::{Appended, BATCH_MAX, Entry, EntryKey, StoreError, StoreErrorKind};

use crate::error::{commit, not_applied};
use crate::line::{PostedLine, entry_lines, json, posted_line, total_add, total_key, total_line, total_of};
use crate::row;
use crate::sql::{ENTRY_INSERT, ENTRY_NEWEST, POSTED_ADD, TOTAL_ADD};

pub(crate) async fn append(writer: &SqlitePool, batch: &[Entry]) -> Result<Appended, StoreError> {
    if batch.is_empty() {
        return Ok(Appended::default());
    }
    if batch.len() > BATCH_MAX {
        return Err(StoreError::not_applied(StoreErrorKind::Refused("the batch is too long")));
    }
    let lines = entry_lines(batch)?;
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    let done = sqlx::query(ENTRY_INSERT).bind(lines).execute(&mut *tx).await.map_err(not_applied)?;
    let inserted = done.rows_affected();
    let new = new_entries(&mut tx, batch, inserted).await?;
    let (posted, totals) = (posted(&new), totals(&new)?);
    if !posted.is_empty() {
        sqlx::query(POSTED_ADD).bind(json(&posted)?).execute(&mut *tx).await.map_err(not_applied)?;
    }
    if let Some(totals) = totals {
        sqlx::query(TOTAL_ADD).bind(totals).execute(&mut *tx).await.map_err(not_applied)?;
    }
    tx.commit().await.map_err(commit)?;
    let offered = u64::try_from(batch.len()).unwrap_or(u64::MAX);
    Ok(Appended { inserted, repeated: offered.saturating_sub(inserted) })
}

/// The entries that were not there yet, once each. Unbooked ones are left out: they are in no sum (L8).
async fn new_entries<'a>(
    tx: &mut Transaction<'_, Sqlite>,
    batch: &'a [Entry],
    inserted: u64,
) -> Result<Vec<&'a Entry>, StoreError> {
    let booked = batch.iter().filter(|entry| !entry.is_unbooked());
    if usize::try_from(inserted) == Ok(batch.len()) {
        return Ok(booked.collect());
    }
    // Places are given in order and nobody else writes: the newest rows are the ones of this batch.
    let count = i64::try_from(inserted).unwrap_or(i64::MAX);
    let rows = sqlx::query(ENTRY_NEWEST).bind(count).fetch_all(&mut **tx).await.map_err(not_applied)?;
    let mut new: BTreeSet<EntryKey> =
        rows.iter().map(row::key).collect::<Result<_, _>>().map_err(not_applied)?;
    Ok(booked.filter(|entry| new.remove(&entry.key())).collect())
}

/// What the entries posted, summed by account and period.
fn posted(entries: &[&Entry]) -> Vec<PostedLine> {
    let mut sums: BTreeMap<(i64, i64, i64), i64> = BTreeMap::new();
    for leg in entries.iter().flat_map(|entry| &entry.posted) {
        let (subject, account, period, amount) = posted_line(leg);
        let sum = sums.entry((subject, account, period)).or_default();
        *sum = sum.saturating_add(amount);
    }
    sums.into_iter().map(|((subject, account, period), amount)| (subject, account, period, amount)).collect()
}

/// What the entries add to the totals, if anything.
fn totals(entries: &[&Entry]) -> Result<Option<String>, StoreError> {
    let mut totals = BTreeMap::new();
    for entry in entries {
        let more = total_of(entry);
        totals.entry(total_key(&more)).and_modify(|to| total_add(to, &more)).or_insert(more);
    }
    if totals.is_empty() {
        return Ok(None);
    }
    let lines: Vec<_> = totals.values().map(total_line).collect();
    json(&lines).map(Some)
}
