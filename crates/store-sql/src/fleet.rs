//! The fleet's questions.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use tollbook_ledger::Micros;
use tollbook_store::{
    Answer, BATCH_MAX, EntryKey, EpochCause, FORGOTTEN_AFTER, Fleet, GatewayId, LEASE, LIVE_WITHIN, Restored,
    Restorer, ShardEpoch, ShardSums, Stage, StoreError, StoreErrorKind,
};

use crate::error::{commit, not_applied};
use crate::line::{json, stored};
use crate::sql::{
    ENTRY_LAST, ENTRY_PLACES, FLEET_ID, GATEWAY_BEAT, GATEWAY_FORGET, GATEWAY_LEAVE, GATEWAY_LIVE, LEASE_END,
    LEASE_LEAVE, LEASE_TAKE, POSTED_ASTRAY, POSTED_BY_SHARD, RESTORER_AWAIT, RESTORER_FORGET, RESTORER_LIST,
    RESTORER_REPORT, SHARD_BEGIN, SHARD_END, SHARD_FIRST, SHARD_LIST, SHARD_MARK, SHARD_STAGE,
};
use crate::{SqliteStore, row};

const CAUSES: [EpochCause; 3] = [EpochCause::First, EpochCause::Tail, EpochCause::All];
const STAGES: [Stage; 3] = [Stage::Begun, Stage::Restoring, Stage::Open];

/// An entry's key as the statement takes it.
type KeyLine = (String, u8, u16, u16, u8);

impl SqliteStore {
    async fn begin(&self) -> Result<Transaction<'_, Sqlite>, StoreError> {
        self.writer.begin_with("BEGIN IMMEDIATE").await.map_err(not_applied)
    }
}

impl Fleet for SqliteStore {
    fn id(&self) -> Answer<'_, u64> {
        Box::pin(async move {
            let id: i64 = sqlx::query_scalar(FLEET_ID).fetch_one(&self.readers).await.map_err(not_applied)?;
            Ok(id.cast_unsigned())
        })
    }

    fn beat(&self, gateway: GatewayId) -> Answer<'_, u32> {
        Box::pin(async move {
            let mut tx = self.begin().await?;
            let beat = sqlx::query(GATEWAY_BEAT).bind(gateway.cast_signed());
            beat.execute(&mut *tx).await.map_err(not_applied)?;
            let forget = sqlx::query(GATEWAY_FORGET).bind(millis(FORGOTTEN_AFTER));
            forget.execute(&mut *tx).await.map_err(not_applied)?;
            let live = sqlx::query_scalar(GATEWAY_LIVE).bind(millis(LIVE_WITHIN));
            let live = live.fetch_one(&mut *tx).await.map_err(not_applied)?;
            tx.commit().await.map_err(commit)?;
            Ok(live)
        })
    }

    fn leave(&self, gateway: GatewayId) -> Answer<'_, ()> {
        Box::pin(async move {
            let leave = sqlx::query(GATEWAY_LEAVE).bind(gateway.cast_signed());
            leave.execute(&self.writer).await.map(|_| ()).map_err(commit)
        })
    }

    fn epochs(&self) -> Answer<'_, Vec<ShardEpoch>> {
        Box::pin(async move {
            let rows = sqlx::query(SHARD_LIST).fetch_all(&self.readers).await.map_err(not_applied)?;
            rows.iter().map(shard_epoch).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn first_epoch(&self, shard: u8) -> Answer<'_, bool> {
        Box::pin(async move {
            let first = sqlx::query(SHARD_FIRST).bind(i64::from(shard));
            let done = first.execute(&self.writer).await.map_err(commit)?;
            Ok(done.rows_affected() == 1)
        })
    }

    fn lease(&self, shard: u8, gateway: GatewayId) -> Answer<'_, bool> {
        Box::pin(async move {
            let take = sqlx::query(LEASE_TAKE).bind(i64::from(shard)).bind(gateway.cast_signed());
            let done = take.bind(millis(LEASE)).execute(&self.writer).await.map_err(commit)?;
            Ok(done.rows_affected() == 1)
        })
    }

    fn lease_end(&self, shard: u8, gateway: GatewayId) -> Answer<'_, ()> {
        Box::pin(async move {
            let leave = sqlx::query(LEASE_LEAVE).bind(i64::from(shard)).bind(gateway.cast_signed());
            leave.execute(&self.writer).await.map(|_| ()).map_err(commit)
        })
    }

    fn epoch_begin(
        &self,
        gateway: GatewayId,
        known: ShardEpoch,
        next: u64,
        cause: EpochCause,
    ) -> Answer<'_, bool> {
        Box::pin(async move {
            let shard = known.shard;
            if next <= known.epoch {
                return Err(StoreError::not_applied(StoreErrorKind::Refused("an epoch only grows")));
            }
            let mut tx = self.begin().await?;
            let begin = sqlx::query(SHARD_BEGIN).bind(i64::from(shard)).bind(gateway.cast_signed());
            let begin = begin.bind(stored(next)).bind(code(&CAUSES, cause)).bind(stored(known.epoch));
            let begin = begin.bind(code(&STAGES, known.stage));
            if begin.execute(&mut *tx).await.map_err(not_applied)?.rows_affected() == 0 {
                return Ok(false);
            }
            let forget = sqlx::query(RESTORER_FORGET).bind(i64::from(shard)).bind(stored(next));
            forget.execute(&mut *tx).await.map_err(not_applied)?;
            let wait = sqlx::query(RESTORER_AWAIT).bind(i64::from(shard)).bind(stored(next));
            wait.bind(millis(LIVE_WITHIN)).execute(&mut *tx).await.map_err(not_applied)?;
            tx.commit().await.map_err(commit)?;
            Ok(true)
        })
    }

    fn shard_sums(&self, shard: u8, epoch: u64, since: u64) -> Answer<'_, Option<ShardSums>> {
        Box::pin(async move {
            let mut tx = self.begin().await?;
            let watermark: i64 =
                sqlx::query_scalar(ENTRY_LAST).fetch_one(&mut *tx).await.map_err(not_applied)?;
            let mark = sqlx::query(SHARD_MARK).bind(i64::from(shard)).bind(stored(epoch)).bind(watermark);
            if mark.execute(&mut *tx).await.map_err(not_applied)?.rows_affected() == 0 {
                return Ok(None);
            }
            let sums = sqlx::query(POSTED_BY_SHARD).bind(i64::from(shard)).bind(stored(since));
            let sums = sums.fetch_all(&mut *tx).await.map_err(not_applied)?;
            let astray: i64 = sqlx::query_scalar(POSTED_ASTRAY)
                .bind(stored(since))
                .fetch_one(&mut *tx)
                .await
                .map_err(not_applied)?;
            tx.commit().await.map_err(commit)?;
            let sums = sums.iter().map(row::posted_sum).collect::<Result<_, _>>().map_err(not_applied)?;
            Ok(Some(ShardSums { watermark, sums, astray: u64::try_from(astray).unwrap_or(0) }))
        })
    }

    fn epoch_stage(&self, shard: u8, epoch: u64, stage: Stage) -> Answer<'_, bool> {
        Box::pin(async move {
            let mut tx = self.begin().await?;
            let moved = sqlx::query(SHARD_STAGE).bind(i64::from(shard)).bind(stored(epoch));
            let moved = moved.bind(code(&STAGES, stage)).execute(&mut *tx).await.map_err(not_applied)?;
            if moved.rows_affected() == 0 {
                return Ok(false);
            }
            if stage == Stage::Open {
                let end = sqlx::query(LEASE_END).bind(i64::from(shard));
                end.execute(&mut *tx).await.map_err(not_applied)?;
            }
            tx.commit().await.map_err(commit)?;
            Ok(true)
        })
    }

    fn report(&self, shard: u8, epoch: u64, gateway: GatewayId, restored: Restored) -> Answer<'_, ()> {
        Box::pin(async move {
            let report = sqlx::query(RESTORER_REPORT).bind(i64::from(shard)).bind(stored(epoch));
            let report = report.bind(gateway.cast_signed()).bind(stored(restored.held));
            let report = report.bind(stored(restored.ended)).bind(stored(restored.failed));
            report.execute(&self.writer).await.map(|_| ()).map_err(commit)
        })
    }

    fn restorers(&self, shard: u8, epoch: u64) -> Answer<'_, Vec<Restorer>> {
        Box::pin(async move {
            let list = sqlx::query(RESTORER_LIST).bind(i64::from(shard)).bind(stored(epoch));
            let rows = list.fetch_all(&self.readers).await.map_err(not_applied)?;
            rows.iter().map(restorer).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn newest_end(&self, shard: u8) -> Answer<'_, Option<Micros>> {
        Box::pin(async move {
            let end = sqlx::query(SHARD_END).bind(i64::from(shard)).fetch_optional(&self.readers);
            let end = end.await.map_err(not_applied)?;
            end.map(|found| row::number(&found, "ended_at")).transpose().map_err(not_applied)
        })
    }

    fn entry_places<'a>(&'a self, keys: &'a [EntryKey]) -> Answer<'a, Vec<Option<i64>>> {
        Box::pin(async move {
            if keys.len() > BATCH_MAX {
                return Err(StoreError::not_applied(StoreErrorKind::Refused("the batch is too long")));
            }
            let lines: Vec<KeyLine> = keys.iter().map(key_line).collect();
            let rows = sqlx::query(ENTRY_PLACES).bind(json(&lines)?).fetch_all(&self.readers);
            let mut places = vec![None; keys.len()];
            for found in rows.await.map_err(not_applied)? {
                let number: usize = row::number(&found, "number").map_err(not_applied)?;
                if let Some(place) = places.get_mut(number) {
                    *place = Some(found.try_get("place").map_err(not_applied)?);
                }
            }
            Ok(places)
        })
    }
}

fn key_line(key: &EntryKey) -> KeyLine {
    let reservation = format!("{:032x}", key.reservation.0);
    (reservation, key.side.code(), key.attempt, key.seq, u8::from(key.unbooked))
}

fn shard_epoch(found: &SqliteRow) -> Result<ShardEpoch, sqlx::Error> {
    let age: i64 = found.try_get("age")?;
    Ok(ShardEpoch {
        shard: row::number(found, "shard")?,
        epoch: row::number(found, "epoch")?,
        cause: coded(&CAUSES, found, "loss")?,
        stage: coded(&STAGES, found, "stage")?,
        watermark: found.try_get("watermark")?,
        age: since(age),
    })
}

fn restorer(found: &SqliteRow) -> Result<Restorer, sqlx::Error> {
    let told = Restored {
        held: row::number(found, "held")?,
        ended: row::number(found, "ended")?,
        failed: row::number(found, "failed")?,
    };
    let has = |column| found.try_get::<i64, _>(column).map(|flag| flag != 0);
    let gateway = found.try_get::<i64, _>("gateway")?.cast_unsigned();
    Ok(Restorer { gateway, awaited: has("awaited")?, restored: has("reported")?.then_some(told) })
}

/// A value's number on disk: its place among all.
fn code<T: PartialEq + Copy>(all: &[T], value: T) -> i64 {
    all.iter().position(|one| *one == value).and_then(|place| i64::try_from(place).ok()).unwrap_or(0)
}

fn coded<T: Copy>(all: &[T], found: &SqliteRow, column: &'static str) -> Result<T, sqlx::Error> {
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

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
