//! Appending a batch: new entries, what they posted and their totals, in one transaction.
//!
//! Entries go to the database many at a time, sums as JSON in one statement each: a statement costs a trip to the connection's
//! thread or to the server, a row does not. Sums are made here first, so that a batch touches each total once.

use std::collections::{BTreeMap, BTreeSet};

use tollbook_store::{
    Appended, BATCH_MAX, Entry, EntryKey, Name, Side, StoreError, StoreErrorKind, shard_of,
};

use crate::db::{Pools, Tx, Value, ask};
use crate::error::not_applied;
use crate::fleet::{places, places_of};
use crate::line::{
    PostedLine, body_text, bounded, json, posted_line, stored, total_add, total_key, total_line, total_of,
};
use crate::row;
use crate::sql::{
    ENTRIES_INSERT, ENTRY_COLUMNS, ENTRY_NEWEST, ENTRY_ROWS, ENTRY_STEPS_INSERT, POSTED_ADD, SHARD_END_SET,
    STEPS, TOTAL_ADD,
};

pub(crate) async fn append(pools: &Pools, batch: &[Entry]) -> Result<Appended, StoreError> {
    if batch.is_empty() {
        return Ok(Appended::default());
    }
    if batch.len() > BATCH_MAX {
        return Err(StoreError::not_applied(StoreErrorKind::Refused("the batch is too long")));
    }
    let mut tx = pools.begin().await?;
    let inserted = match pools {
        Pools::Sqlite { .. } => insert_new(&mut tx, batch).await?,
        Pools::MySql { .. } => insert_absent(&mut tx, batch).await?,
    };
    // Unbooked ones are in no sum (L8).
    let new: Vec<&Entry> = inserted.iter().copied().filter(|entry| !entry.is_unbooked()).collect();
    let (posted, totals) = (posted(&new), totals(&new)?);
    if let Some(ends) = ends(&new)? {
        tx.change(ask(&SHARD_END_SET).bind(ends)).await?;
    }
    if !posted.is_empty() {
        tx.change(ask(&POSTED_ADD).bind(json(&posted)?)).await?;
    }
    if let Some(totals) = totals {
        tx.change(ask(&TOTAL_ADD).bind(totals)).await?;
    }
    tx.commit().await?;
    let count = |entries: usize| u64::try_from(entries).unwrap_or(u64::MAX);
    let inserted = inserted.len();
    Ok(Appended { inserted: count(inserted), repeated: count(batch.len().saturating_sub(inserted)) })
}

/// Inserts what is not there yet; returns that. SQLite tells how many rows it left alone.
async fn insert_new<'a>(tx: &mut Tx<'_>, batch: &'a [Entry]) -> Result<Vec<&'a Entry>, StoreError> {
    let mut inserted = 0;
    for rows in batch.chunks(ENTRY_ROWS) {
        let mut values = values(rows.iter())?;
        values.resize(ENTRY_ROWS * ENTRY_COLUMNS, Value::Null);
        inserted += tx.change_text(ENTRIES_INSERT.as_str(), values).await?;
    }
    if usize::try_from(inserted) == Ok(batch.len()) {
        return Ok(batch.iter().collect());
    }
    // Places are given in order and nobody else writes: the newest rows are the ones of this batch.
    let count = i64::try_from(inserted).unwrap_or(i64::MAX);
    let rows = tx.rows(ask(&ENTRY_NEWEST).bind(count)).await?;
    let mut new: BTreeSet<EntryKey> =
        rows.iter().map(row::key).collect::<Result<_, _>>().map_err(not_applied)?;
    Ok(batch.iter().filter(|entry| new.remove(&entry.key())).collect())
}

/// The same where an insert that leaves rows alone would hide other errors too: looks first. Nobody else writes.
async fn insert_absent<'a>(tx: &mut Tx<'_>, batch: &'a [Entry]) -> Result<Vec<&'a Entry>, StoreError> {
    let rows = tx.rows(places_of(batch.iter().map(Entry::key))?).await?;
    let places = places(&rows, batch.len()).map_err(not_applied)?;
    let mut seen = BTreeSet::new();
    let absent = batch.iter().zip(places).filter(|(_, place)| place.is_none()).map(|(entry, _)| entry);
    let absent: Vec<&Entry> = absent.filter(|entry| seen.insert(entry.key())).collect();
    let mut rest = absent.as_slice();
    for (step, text) in STEPS.iter().zip(ENTRY_STEPS_INSERT.iter()) {
        while let Some((some, more)) = rest.split_at_checked(*step) {
            tx.change_text(text.as_str(), values(some.iter().copied())?).await?;
            rest = more;
        }
    }
    Ok(absent)
}

/// The parameters of one insert.
fn values<'a>(entries: impl Iterator<Item = &'a Entry>) -> Result<Vec<Value>, StoreError> {
    let mut to = Vec::with_capacity(ENTRY_ROWS * ENTRY_COLUMNS);
    for entry in entries {
        let body = &entry.body;
        let posted: Vec<PostedLine> = entry.posted.iter().map(posted_line).collect();
        to.extend([
            Value::Bytes(entry.reservation.0.to_be_bytes().to_vec()),
            Value::Int(i64::from(body.side.code())),
            Value::Int(i64::from(entry.attempt)),
            Value::Int(i64::from(entry.seq)),
            Value::Int(i64::from(entry.is_unbooked())),
            Value::Int(i64::from(entry.origin.code())),
            Value::Int(stored(entry.admitted_at)),
            Value::Int(stored(entry.ended_at)),
            Value::Int(bounded(entry.requests)),
            Value::Name(Name::clone(&body.request_id)),
            Value::Name(Name::clone(&body.tenant)),
            Value::Name(Name::clone(&body.pool)),
            Value::Text(json(&posted)?),
            Value::Text(body_text(body)?),
        ]);
    }
    Ok(to)
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
