//! The log on disk: segments per shard, written before a verb is answered, read back at start.
//!
//! Invariants: a record is whole or absent; records of a shard are replayed in the order they were written, without a
//! gap; a segment is only removed once a snapshot that contains it is on the disk. Each segment has a mark: everything
//! before it had been synced. What is unreadable behind the mark of the newest data is a torn tail, cut off and counted;
//! anything else unreadable is damage, and the engine does not start.
//! Knows nothing of verbs; only `replay` knows events.

pub(crate) mod dir;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod replay;
pub(crate) mod segment;
pub(crate) mod shard_log;
pub(crate) mod snapshot;
