//! Figures for metrics.

use std::sync::atomic::Ordering;

use tollbook_ledger::Alarms;

use crate::engine::Inner;
use crate::log::shard_log::ShardLog;

/// What an engine keeps and what it has met since it started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Records ever written to the log.
    pub records: u64,
    /// Bytes of log the next start would replay.
    pub log_bytes: u64,
    /// Bytes of disk the segments take.
    pub disk_bytes: u64,
    /// Reservations that hold something.
    pub live: u64,
    /// Ended reservations still remembered.
    pub tombstones: u64,
    pub accounts: u64,
    /// Ended calls that wait for the journal's store.
    pub journal_records: u64,
    pub journal_bytes: u64,
    /// Entries for claims the engine did not know (L8).
    pub unbooked: u64,
    pub torn_tails: u64,
    pub torn_bytes: u64,
    pub snapshots: u64,
    /// Of the last snapshot.
    pub snapshot_bytes: u64,
    pub snapshots_failed: u64,
    /// Shards that refuse every verb.
    pub shards_failed: u64,
    pub alarms: Alarms,
}

impl Stats {
    pub(crate) fn of(inner: &Inner) -> Self {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = Self {
            disk_bytes: inner.dir.as_ref().map_or(0, |dir| dir.bytes_taken()),
            torn_tails: read(&inner.counters.torn_tails),
            torn_bytes: read(&inner.counters.torn_bytes),
            snapshots: read(&inner.counters.snapshots),
            snapshot_bytes: read(&inner.counters.snapshot_bytes),
            snapshots_failed: read(&inner.counters.snapshots_failed),
            ..Self::default()
        };
        for slot in &inner.shards {
            let Ok(state) = slot.state.lock() else {
                stats.shards_failed += 1;
                continue;
            };
            stats.shards_failed += u64::from(state.failed.is_some());
            stats.records += state.log.as_ref().map_or(0, ShardLog::records);
            stats.log_bytes += state.log.as_ref().map_or(0, ShardLog::bytes);
            stats.journal_records += state.journal.len() as u64;
            stats.journal_bytes += state.journal.bytes() as u64;
            stats.unbooked += state.unbooked;
            let (live, tombstones, accounts) = state.book.sizes();
            stats.live += live as u64;
            stats.tombstones += tombstones as u64;
            stats.accounts += accounts as u64;
            stats.alarms = sum(stats.alarms, *state.book.alarms());
        }
        stats
    }
}

fn sum(one: Alarms, other: Alarms) -> Alarms {
    Alarms {
        negative_held: one.negative_held + other.negative_held,
        ring_restarts: one.ring_restarts + other.ring_restarts,
        clock_steps_back: one.clock_steps_back + other.clock_steps_back,
        unknown_claims: one.unknown_claims + other.unknown_claims,
        dropped_postings: one.dropped_postings + other.dropped_postings,
        dropped_refunds: one.dropped_refunds + other.dropped_refunds,
        progress_outside: one.progress_outside.saturating_add(other.progress_outside),
        progress_below: one.progress_below.saturating_add(other.progress_below),
        progress_repeated: one.progress_repeated + other.progress_repeated,
        saturated: one.saturated + other.saturated,
        misfits: one.misfits + other.misfits,
    }
}
