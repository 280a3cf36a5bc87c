//! Appending a batch: new entries, what they posted and their totals, in one transaction.
//!
//! Entries go to SQLite many at a time, sums as JSON in one statement each: a statement costs a trip to the connection's
//! thread, a row does not. Sums are made here first, so that a batch touches each total once.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, Sqlite, SqlitePool, Transaction};
use tollbook_store::{
    Appended, BATCH_MAX, Entry, EntryKey, Name, Side, StoreError, StoreErrorKind, shard_of,
};

use crate::error::{commit, not_applied};
use crate::line::{
    PostedLine, body_text, bounded, json, posted_line, stored, total_add, total_key, total_line, total_of,
};
use crate::row;
use crate::sql::{
    ENTRIES_INSERT, ENTRY_COLUMNS, ENTRY_NEWEST, ENTRY_ROWS, POSTED_ADD, SHARD_END_SET, TOTAL_ADD,
};

pub(crate) async fn append(writer: &SqlitePool, batch: &[Entry]) -> Result<Appended, StoreError> {
    if batch.is_empty() {
        return Ok(Appended::default());
    }
    if batch.len() > BATCH_MAX {
        return Err(StoreError::not_applied(StoreErrorKind::Refused("the batch is too long")));
    }
    let mut tx = writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)?;
    let mut inserted = 0;
    for rows in batch.chunks(ENTRY_ROWS) {
        let arguments = arguments(rows)?;
        let query = sqlx::query_with(ENTRIES_INSERT.as_str(), arguments);
        inserted += query.execute(&mut *tx).await.map_err(not_applied)?.rows_affected();
    }
    let new = new_entries(&mut tx, batch, inserted).await?;
    let (posted, totals) = (posted(&new), totals(&new)?);
    if let Some(ends) = ends(&new)? {
        sqlx::query(SHARD_END_SET).bind(ends).execute(&mut *tx).await.map_err(not_applied)?;
    }
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

/// The parameters of one insert, padded with nulls.
fn arguments(entries: &[Entry]) -> Result<SqliteArguments, StoreError> {
    let mut to = SqliteArguments::default();
    to.reserve(ENTRY_ROWS * ENTRY_COLUMNS, 0);
    for entry in entries {
        let body = &entry.body;
        let posted: Vec<PostedLine> = entry.posted.iter().map(posted_line).collect();
        let added = to
            .add(entry.reservation.0.to_be_bytes().to_vec())
            .and_then(|()| to.add(i64::from(body.side.code())))
            .and_then(|()| to.add(i64::from(entry.attempt)))
            .and_then(|()| to.add(i64::from(entry.seq)))
            .and_then(|()| to.add(i64::from(entry.is_unbooked())))
            .and_then(|()| to.add(i64::from(entry.origin.code())))
            .and_then(|()| to.add(stored(entry.admitted_at)))
            .and_then(|()| to.add(stored(entry.ended_at)))
            .and_then(|()| to.add(bounded(entry.requests)))
            .and_then(|()| to.add(Name::clone(&body.request_id)))
            .and_then(|()| to.add(Name::clone(&body.tenant)))
            .and_then(|()| to.add(Name::clone(&body.pool)));
        added
            .and_then(|()| to.add(json(&posted)?))
            .and_then(|()| to.add(body_text(body)?))
            .map_err(|_| refused())?;
    }
    for _ in entries.len() * ENTRY_COLUMNS..ENTRY_ROWS * ENTRY_COLUMNS {
        to.add(None::<i64>).map_err(|_| refused())?;
    }
    Ok(to)
}

fn refused() -> StoreError {
    StoreError::not_applied(StoreErrorKind::Refused("an entry cannot be written as a row"))
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

/// What the entries posted, summed by account and period, with the account's shard.
fn posted(entries: &[&Entry]) -> Vec<(i64, i64, i64, i64, Option<u8>)> {
    let mut sums: BTreeMap<(i64, i64, i64), (i64, Option<u8>)> = BTreeMap::new();
    for entry in entries {
        let shard = shard(entry);
        for leg in &entry.posted {
            let (subject, account, period, amount) = posted_line(leg);
            let (sum, of) = sums.entry((subject, account, period)).or_default();
            (*sum, *of) = (sum.saturating_add(amount), shard.or(*of));
        }
    }
    let line = |((subject, account, period), (amount, shard))| (subject, account, period, amount, shard);
    sums.into_iter().map(line).collect()
}

/// Where an entry's accounts are kept, as far as it tells.
fn shard(entry: &Entry) -> Option<u8> {
    owned_by(entry.body.side, &entry.body.tenant, &entry.body.pool)
}

/// The shard of a side's accounts, if they can be told.
pub(crate) fn owned_by(side: Side, tenant: &str, pool: &str) -> Option<u8> {
    match side {
        Side::Tenant => Some(shard_of(tenant)),
        Side::Pool => Some(shard_of(pool)),
        Side::Unreadable => None,
    }
}

/// The newest end in each shard, if any is known.
fn ends(entries: &[&Entry]) -> Result<Option<String>, StoreError> {
    let mut newest: BTreeMap<u8, i64> = BTreeMap::new();
    for entry in entries {
        let Some(shard) = shard(entry) else { continue };
        let end = newest.entry(shard).or_default();
        *end = (*end).max(stored(entry.ended_at));
    }
    if newest.is_empty() {
        return Ok(None);
    }
    json(&newest.into_iter().collect::<Vec<_>>()).map(Some)
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
