//! The fleet's questions.

use std::time::Duration;

use tollbook_ledger::Micros;
use tollbook_store::{
    Answer, BATCH_MAX, Entry, EntryKey, EpochCause, FORGOTTEN_AFTER, Fleet, GatewayId, Journal as _, LEASE,
    LIVE_WITHIN, Restored, Restorer, ShardEpoch, ShardSums, Stage, StoreError, StoreErrorKind,
};

use crate::db::{Ask, Row, ask};
use crate::error::not_applied;
use crate::line::{json, stored};
use crate::sql::{
    ENTRY_LAST, ENTRY_PLACES, FLEET_ID, GATEWAY_BEAT, GATEWAY_FORGET, GATEWAY_LEAVE, GATEWAY_LIVE, LEASE_END,
    LEASE_FREE, LEASE_LEAVE, LEASE_TAKE, POSTED_ASTRAY, POSTED_BY_SHARD, RESTORER_AWAIT, RESTORER_FORGET,
    RESTORER_LIST, RESTORER_REPORT, SHARD_BEGIN, SHARD_END, SHARD_FIRST, SHARD_LIST, SHARD_MARK, SHARD_STAGE,
};
use crate::{SqlStore, row};

const CAUSES: [EpochCause; 3] = [EpochCause::First, EpochCause::Tail, EpochCause::All];
const STAGES: [Stage; 3] = [Stage::Begun, Stage::Restoring, Stage::Open];

/// An entry's key as the statement takes it.
type KeyLine = (String, u8, u16, u16, u8);

impl SqlStore {
    /// One statement that writes, whatever it changes.
    pub(crate) fn changed(&self, write: impl Fn() -> Ask + Send + 'static) -> Answer<'_, ()> {
        self.pools.again(move || {
            let write = write();
            Box::pin(async move { self.pools.change(write).await.map(|_| ()) })
        })
    }
}

impl Fleet for SqlStore {
    fn id(&self) -> Answer<'_, u64> {
        let first = |rows: &[Row]| rows.first().map_or(Err(sqlx::Error::RowNotFound), |row| row.int("id"));
        self.found(|| ask(&FLEET_ID), move |rows| first(rows).map(i64::cast_unsigned))
    }

    fn beat(&self, gateway: GatewayId) -> Answer<'_, u32> {
        self.pools.again(move || {
            Box::pin(async move {
                let mut tx = self.pools.begin().await?;
                tx.change(ask(&GATEWAY_BEAT).bind(gateway.cast_signed())).await?;
                tx.change(ask(&GATEWAY_FORGET).bind(millis(FORGOTTEN_AFTER))).await?;
                let live = tx.row(ask(&GATEWAY_LIVE).bind(millis(LIVE_WITHIN))).await?;
                tx.commit().await?;
                let live = live.map_or(Ok(0), |row| row.int(0)).map_err(not_applied)?;
                Ok(u32::try_from(live).unwrap_or(u32::MAX))
            })
        })
    }

    fn leave(&self, gateway: GatewayId) -> Answer<'_, ()> {
        self.changed(move || ask(&GATEWAY_LEAVE).bind(gateway.cast_signed()))
    }

    fn epochs(&self) -> Answer<'_, Vec<ShardEpoch>> {
        self.found(|| ask(&SHARD_LIST), |rows| rows.iter().map(shard_epoch).collect())
    }

    fn first_epoch(&self, shard: u8) -> Answer<'_, bool> {
        self.pools.again(move || {
            let first = ask(&SHARD_FIRST).bind(i64::from(shard));
            Box::pin(async move { Ok(self.pools.change(first).await? == 1) })
        })
    }

    fn lease(&self, shard: u8, gateway: GatewayId) -> Answer<'_, bool> {
        let of = move |statement| {
            ask(statement).bind(i64::from(shard)).bind(gateway.cast_signed()).bind(millis(LEASE))
        };
        self.pools.again(move || {
            Box::pin(async move {
                let mut tx = self.pools.begin().await?;
                tx.change(of(&LEASE_FREE)).await?;
                let taken = tx.change(of(&LEASE_TAKE)).await?;
                tx.commit().await?;
                Ok(taken == 1)
            })
        })
    }

    fn lease_end(&self, shard: u8, gateway: GatewayId) -> Answer<'_, ()> {
        self.changed(move || ask(&LEASE_LEAVE).bind(i64::from(shard)).bind(gateway.cast_signed()))
    }

    fn epoch_begin(
        &self,
        gateway: GatewayId,
        known: ShardEpoch,
        next: u64,
        cause: EpochCause,
    ) -> Answer<'_, bool> {
        self.pools.again(move || {
            Box::pin(async move {
                let shard = i64::from(known.shard);
                if next <= known.epoch {
                    return Err(StoreError::not_applied(StoreErrorKind::Refused("an epoch only grows")));
                }
                let mut tx = self.pools.begin().await?;
                let begin = ask(&SHARD_BEGIN).bind(shard).bind(gateway.cast_signed()).bind(stored(next));
                let begin = begin.bind(code(&CAUSES, cause)).bind(stored(known.epoch));
                if tx.change(begin.bind(code(&STAGES, known.stage))).await? == 0 {
                    return Ok(false);
                }
                tx.change(ask(&RESTORER_FORGET).bind(shard).bind(stored(next))).await?;
                let wait = ask(&RESTORER_AWAIT).bind(shard).bind(stored(next)).bind(millis(LIVE_WITHIN));
                tx.change(wait).await?;
                tx.commit().await?;
                Ok(true)
            })
        })
    }

    fn shard_sums(&self, shard: u8, epoch: u64, since: u64) -> Answer<'_, Option<ShardSums>> {
        self.pools.again(move || {
            Box::pin(async move {
                let shard = i64::from(shard);
                let first = |row: Option<Row>| row.map_or(Ok(0), |row| row.int(0)).map_err(not_applied);
                let mut tx = self.pools.begin().await?;
                let watermark = first(tx.row(ask(&ENTRY_LAST)).await?)?;
                let mark = ask(&SHARD_MARK).bind(shard).bind(stored(epoch)).bind(watermark);
                if tx.change(mark).await? == 0 {
                    return Ok(None);
                }
                let sums = tx.rows(ask(&POSTED_BY_SHARD).bind(shard).bind(stored(since))).await?;
                let astray = first(tx.row(ask(&POSTED_ASTRAY).bind(stored(since))).await?)?;
                tx.commit().await?;
                let sums = sums.iter().map(row::posted_sum).collect::<Result<_, _>>().map_err(not_applied)?;
                Ok(Some(ShardSums { watermark, sums, astray: u64::try_from(astray).unwrap_or(0) }))
            })
        })
    }

    fn epoch_stage(&self, shard: u8, epoch: u64, stage: Stage) -> Answer<'_, bool> {
        self.pools.again(move || {
            Box::pin(async move {
                let shard = i64::from(shard);
                let mut tx = self.pools.begin().await?;
                let moved = ask(&SHARD_STAGE).bind(shard).bind(stored(epoch)).bind(code(&STAGES, stage));
                if tx.change(moved).await? == 0 {
                    return Ok(false);
                }
                if stage == Stage::Open {
                    tx.change(ask(&LEASE_END).bind(shard)).await?;
                }
                tx.commit().await?;
                Ok(true)
            })
        })
    }

    fn report(&self, shard: u8, epoch: u64, gateway: GatewayId, restored: Restored) -> Answer<'_, ()> {
        self.changed(move || {
            let report = ask(&RESTORER_REPORT).bind(i64::from(shard)).bind(stored(epoch));
            let report = report.bind(gateway.cast_signed()).bind(stored(restored.held));
            report.bind(stored(restored.ended)).bind(stored(restored.failed))
        })
    }

    fn restorers(&self, shard: u8, epoch: u64) -> Answer<'_, Vec<Restorer>> {
        let question = move || ask(&RESTORER_LIST).bind(i64::from(shard)).bind(stored(epoch));
        self.found(question, |rows| rows.iter().map(restorer).collect())
    }

    fn newest_end(&self, shard: u8) -> Answer<'_, Option<Micros>> {
        let question = move || ask(&SHARD_END).bind(i64::from(shard));
        self.found(question, |rows| rows.first().map(|found| row::number(found, "ended_at")).transpose())
    }

    fn entry_places<'a>(&'a self, keys: &'a [EntryKey]) -> Answer<'a, Vec<Option<i64>>> {
        self.pools.again(move || {
            Box::pin(async move {
                if keys.len() > BATCH_MAX {
                    return Err(StoreError::not_applied(StoreErrorKind::Refused("the batch is too long")));
                }
                let rows = self.pools.rows(places_of(keys.iter().copied())?).await?;
                places(&rows, keys.len()).map_err(not_applied)
            })
        })
    }

    fn entry(&self, key: EntryKey) -> Answer<'_, Option<Entry>> {
        Box::pin(async move {
            let entries = self.by_reservation(key.reservation).await?;
            Ok(entries.into_iter().find(|entry| entry.key() == key))
        })
    }
}

/// Asks where entries stand.
pub(crate) fn places_of(keys: impl Iterator<Item = EntryKey>) -> Result<Ask, StoreError> {
    let lines: Vec<KeyLine> = keys.map(|key| key_line(&key)).collect();
    Ok(ask(&ENTRY_PLACES).bind(json(&lines)?))
}

/// The answer, by the keys' order.
pub(crate) fn places(rows: &[Row], keys: usize) -> Result<Vec<Option<i64>>, sqlx::Error> {
    let mut places = vec![None; keys];
    for found in rows {
        let number: usize = row::number(found, "number")?;
        if let Some(place) = places.get_mut(number) {
            *place = Some(found.int("place")?);
        }
    }
    Ok(places)
}

fn key_line(key: &EntryKey) -> KeyLine {
    let reservation = format!("{:032x}", key.reservation.0);
    (reservation, key.side.code(), key.attempt, key.seq, u8::from(key.unbooked))
}

fn shard_epoch(found: &Row) -> Result<ShardEpoch, sqlx::Error> {
    let age: i64 = found.int("age")?;
    Ok(ShardEpoch {
        shard: row::number(found, "shard")?,
        epoch: row::number(found, "epoch")?,
        cause: coded(&CAUSES, found, "loss")?,
        stage: coded(&STAGES, found, "stage")?,
        watermark: found.int("watermark")?,
        age: since(age),
    })
}

fn restorer(found: &Row) -> Result<Restorer, sqlx::Error> {
    let told = Restored {
        held: row::number(found, "held")?,
        ended: row::number(found, "ended")?,
        failed: row::number(found, "failed")?,
    };
    let has = |column: &'static str| found.int(column).map(|flag| flag != 0);
    let gateway = found.int("gateway")?.cast_unsigned();
    Ok(Restorer { gateway, awaited: has("awaited")?, restored: has("reported")?.then_some(told) })
}

/// A value's number on disk: its place among all.
fn code<T: PartialEq + Copy>(all: &[T], value: T) -> i64 {
    all.iter().position(|one| *one == value).and_then(|place| i64::try_from(place).ok()).unwrap_or(0)
}

fn coded<T: Copy>(all: &[T], found: &Row, column: &'static str) -> Result<T, sqlx::Error> {
    let code: usize = row::number(found, column)?;
    all.get(code).copied().ok_or_else(|| sqlx::Error::ColumnNotFound(column.to_owned()))
}

/// A span by the database's clock. Of an instant that is far ahead, because the clock has stepped back, nobody knows.
fn since(age: i64) -> Duration {
    match u64::try_from(age) {
        Ok(age) => Duration::from_millis(age),
        Err(_) if age >= -millis(LEASE) => Duration::ZERO,
        Err(_) => Duration::MAX,
    }
}

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
