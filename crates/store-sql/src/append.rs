//! Appending a batch: new entries with their keys, what they posted and their totals, in one transaction.
//!
//! Entries go to the database many at a time, sums as JSON in one statement each: a statement costs a trip to the connection's
//! thread or to the server, a row does not. Sums are made here first, so that a batch touches each total once.

use std::collections::{BTreeMap, BTreeSet};

use tollbook_store::{Appended, BATCH_MAX, Entry, Name, Side, StoreError, StoreErrorKind, shard_of};

use crate::db::{Pools, Tx, Value, ask};
use crate::error::not_applied;
use crate::fleet::{places, places_of};
use crate::line::{
    PostedLine, body_text, bounded, json, posted_line, stored, total_add, total_key, total_line, total_of,
};
use crate::sql::{
    ENTRIES_INSERT, ENTRY_COLUMNS, ENTRY_KEY_COPY, ENTRY_KEYS_INSERT, ENTRY_ROWS, ENTRY_STEPS_INSERT,
    KEY_COLUMNS, POSTED_ADD, SHARD_END_SET, STEPS, TOTAL_ADD,
};

pub(crate) async fn append(pools: &Pools, batch: &[Entry]) -> Result<Appended, StoreError> {
    if batch.is_empty() {
        return Ok(Appended::default());
    }
    if batch.len() > BATCH_MAX {
        return Err(StoreError::not_applied(StoreErrorKind::Refused("the batch is too long")));
    }
    let (mut tx, first) = pools.begin_with_places(batch.len()).await?;
    let inserted = match pools {
        Pools::Sqlite { .. } => insert_new(&mut tx, first, batch).await?,
        Pools::MySql { .. } => insert_absent(&mut tx, first, batch).await?,
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

/// An entry and the place that it gets.
type Placed<'a> = (i64, &'a Entry);

/// Inserts what is not there yet; returns that. SQLite tells how many keys it left alone. Nobody else writes.
async fn insert_new<'a>(
    tx: &mut Tx<'_>,
    first: i64,
    batch: &'a [Entry],
) -> Result<Vec<&'a Entry>, StoreError> {
    let mut placed: Vec<Placed<'a>> = (first..).zip(batch).collect();
    let mut inserted = 0;
    for some in placed.chunks(ENTRY_ROWS) {
        let mut values = Vec::with_capacity(ENTRY_ROWS * KEY_COLUMNS);
        for (place, entry) in some {
            values.extend(key_values(entry));
            values.extend([Value::Int(*place), Value::Int(stored(entry.ended_at))]);
        }
        values.resize(ENTRY_ROWS * KEY_COLUMNS, Value::Null);
        inserted += tx.change_text(ENTRY_KEYS_INSERT.as_str(), values).await?;
    }
    if usize::try_from(inserted) != Ok(batch.len()) {
        // The key of what was there, in the store or earlier in this batch, has another place.
        let rows = tx.rows(places_of(batch.iter().map(Entry::key))?).await?;
        let places = places(&rows, batch.len()).map_err(not_applied)?;
        let told = placed.into_iter().zip(places);
        placed = told.filter(|((place, _), of)| *of == Some(*place)).map(|(placed, _)| placed).collect();
    }
    for some in placed.chunks(ENTRY_ROWS) {
        let mut values = values(some)?;
        values.resize(ENTRY_ROWS * ENTRY_COLUMNS, Value::Null);
        tx.change_text(ENTRIES_INSERT.as_str(), values).await?;
    }
    Ok(placed.into_iter().map(|(_, entry)| entry).collect())
}

/// The same where an insert that leaves rows alone would hide other errors too: looks first. Nobody else writes.
async fn insert_absent<'a>(
    tx: &mut Tx<'_>,
    first: i64,
    batch: &'a [Entry],
) -> Result<Vec<&'a Entry>, StoreError> {
    let rows = tx.rows(places_of(batch.iter().map(Entry::key))?).await?;
    let places = places(&rows, batch.len()).map_err(not_applied)?;
    let mut seen = BTreeSet::new();
    let absent = batch.iter().zip(places).filter(|(_, place)| place.is_none()).map(|(entry, _)| entry);
    let absent: Vec<&Entry> = absent.filter(|entry| seen.insert(entry.key())).collect();
    let placed: Vec<Placed<'a>> = (first..).zip(absent.iter().copied()).collect();
    let mut rest = placed.as_slice();
    for (step, text) in STEPS.iter().zip(ENTRY_STEPS_INSERT.iter()) {
        while let Some((some, more)) = rest.split_at_checked(*step) {
            tx.change_text(text.as_str(), values(some)?).await?;
            rest = more;
        }
    }
    let ends = || absent.iter().map(|entry| stored(entry.ended_at));
    if let (Some((last, _)), Some(from), Some(to)) = (placed.last(), ends().min(), ends().max()) {
        tx.change(ask(&ENTRY_KEY_COPY).bind(first).bind(*last).bind(from).bind(to)).await?;
    }
    Ok(absent)
}

/// What makes an entry unique, as columns.
fn key_values(entry: &Entry) -> [Value; 5] {
    [
        Value::Bytes(entry.reservation.0.to_be_bytes().to_vec()),
        Value::Int(i64::from(entry.body.side.code())),
        Value::Int(i64::from(entry.attempt)),
        Value::Int(i64::from(entry.seq)),
        Value::Int(i64::from(entry.is_unbooked())),
    ]
}

/// The parameters of one insert.
fn values(entries: &[Placed<'_>]) -> Result<Vec<Value>, StoreError> {
    let mut to = Vec::with_capacity(ENTRY_ROWS * ENTRY_COLUMNS);
    for (place, entry) in entries {
        let body = &entry.body;
        let posted: Vec<PostedLine> = entry.posted.iter().map(posted_line).collect();
        to.push(Value::Int(*place));
        to.extend(key_values(entry));
        to.extend([
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
