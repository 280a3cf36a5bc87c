//! The default engine: the book in one process, with a log on disk.
//!
//! Each shard is one lock over a [`tollbook_ledger::Book`], its queue for the journal and its end of the log. A verb
//! runs under the lock to its end: it decides, appends one record, applies it. An acknowledged verb survives the end of
//! the process, `kill -9` included, because its record is in mapped pages; it survives a power cut once it is synced
//! (every 50 ms, or before the answer with `Durability::Fsync`).
//! When the log is full or away: verbs are refused and change nothing. When the log is damaged: the engine does not start.
//! Knows nothing of limits, of HTTP, of the journal's store.

mod background;
mod clock;
mod codec;
mod durable;
mod engine;
mod error;
mod journal;
mod log;
mod open;
mod options;
mod restore;
mod shard;
mod stats;
mod survey;
mod wire;

pub use clock::{Clock, SystemClock};
pub use engine::MemoryEngine;
pub use error::OpenError;
pub use open::{Opened, Report};
pub use options::{Durability, Options};
pub use stats::Stats;
