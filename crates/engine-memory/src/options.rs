//! How an engine is to be run, and the bounds of every setting.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::error::OpenError;
use crate::log::frame::PAYLOAD_MAX;

/// What an acknowledged verb survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// The end of the process, `kill -9` included; a power cut loses what was not synced yet (every `sync_every`).
    Mapped,
    /// A power cut too: a verb is answered once its record is on the disk. Verbs share a sync.
    Fsync,
}

/// Settings of a memory engine. The defaults are for production.
#[derive(Clone)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Locks, and parts of the log: 1 to 256. A directory keeps the number it was made with.
    pub shards: u16,
    pub durability: Durability,
    /// How often what was written is synced: 1 ms to 10 s.
    pub sync_every: Duration,
    /// Size of one log file: 256 KiB to 1 GiB.
    pub segment_bytes: usize,
    /// A shard's log is folded into a snapshot when its full segments hold more than this, and more than the last snapshot.
    pub snapshot_bytes: u64,
    /// Most bytes all segments together may take, at least two per shard; verbs are refused above it.
    pub log_bytes_max: u64,
    /// Most ended calls that wait for the journal's store, per shard: at least 1.
    pub journal_records_max: usize,
    /// Most bytes of them, per shard: at least 64 KiB.
    pub journal_bytes_max: usize,
    /// Run the threads that sync, prune and take snapshots. Without them the caller calls `tick`.
    pub background: bool,
}

impl Options {
    /// Production settings on a given clock.
    pub fn on(clock: Arc<dyn Clock>) -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            clock,
            shards: 16,
            durability: Durability::Mapped,
            sync_every: Duration::from_millis(50),
            segment_bytes: 8 * MIB,
            snapshot_bytes: 64 * MIB as u64,
            log_bytes_max: 16 * 1024 * MIB as u64,
            journal_records_max: 65_536,
            journal_bytes_max: 32 * MIB,
            background: true,
        }
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |what, bounds| Err(OpenError::Option { what, bounds });
        if !(1..=256).contains(&self.shards) {
            return wrong("shards", "from 1 to 256");
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(10)).contains(&self.sync_every) {
            return wrong("sync_every", "from 1 ms to 10 s");
        }
        if !(SEGMENT_MIN..=SEGMENT_MAX).contains(&self.segment_bytes) {
            return wrong("segment_bytes", "from 256 KiB to 1 GiB");
        }
        if self.log_bytes_max / 2 / u64::from(self.shards) < self.segment_bytes as u64 {
            return wrong("log_bytes_max", "at least two segments per shard");
        }
        if self.journal_records_max == 0 || self.journal_bytes_max < PAYLOAD_MAX {
            return wrong("the journal's bounds", "at least 1 record and 64 KiB");
        }
        Ok(())
    }
}

/// A segment holds a few records of any size.
const SEGMENT_MIN: usize = 4 * PAYLOAD_MAX;
/// Lengths in files are 32 bits wide, and a start reads a segment in one piece.
const SEGMENT_MAX: usize = 1024 * 1024 * 1024;

impl Default for Options {
    fn default() -> Self {
        Self::on(Arc::new(SystemClock::start()))
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("shards", &self.shards)
            .field("durability", &self.durability)
            .field("sync_every", &self.sync_every)
            .field("segment_bytes", &self.segment_bytes)
            .field("snapshot_bytes", &self.snapshot_bytes)
            .field("log_bytes_max", &self.log_bytes_max)
            .field("journal_records_max", &self.journal_records_max)
            .field("journal_bytes_max", &self.journal_bytes_max)
            .field("background", &self.background)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_at_their_bounds() {
        let with = |change: &dyn Fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().is_ok()
        };
        assert!(with(&|_| ()));
        assert!(with(&|options| options.shards = 256));
        assert!(!with(&|options| options.shards = 257));
        assert!(!with(&|options| options.shards = 0));
        assert!(with(&|options| options.segment_bytes = SEGMENT_MIN));
        assert!(!with(&|options| options.segment_bytes = SEGMENT_MIN - 1));
        assert!(!with(&|options| options.segment_bytes = SEGMENT_MAX + 1));
        assert!(with(&|options| options.log_bytes_max = 2 * 16 * 8 * 1024 * 1024));
        assert!(!with(&|options| options.log_bytes_max = 2 * 16 * 8 * 1024 * 1024 - 1));
        assert!(!with(&|options| options.sync_every = Duration::ZERO));
        assert!(!with(&|options| options.journal_records_max = 0));
        assert!(!with(&|options| options.journal_bytes_max = PAYLOAD_MAX - 1));
    }
}
