//! Ended calls as the engine hands them to the journal.

use tollbook_ledger::{Attempt, Micros, Posted, ReservationId};

/// A place in one shard's stream of ended calls; 0 is before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Cursor(pub u64);

/// Longest entry a verb may carry, in bytes; a longer one is refused.
pub const ENTRY_MAX: usize = 16 * 1024;
/// `seq` of the end of an attempt.
pub const SEQ_END: u16 = 0;
/// `seq` of the one late settle or release.
pub const SEQ_LATE: u16 = 1;
/// `seq` of an adjust; its id is the adjust's own.
pub const SEQ_ADJUST: u16 = 2;
/// `seq` of an unbooked entry: apart from every other, the same for every repeat.
pub const SEQ_UNBOOKED: u16 = u16::MAX;

/// One ended call, or one correction of it. Unique by (id, side in `body`, attempt, seq).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRecord {
    pub cursor: Cursor,
    pub id: ReservationId,
    pub attempt: Attempt,
    /// 0 the end of the attempt, 1.. corrections.
    pub seq: u16,
    pub source: Source,
    /// Engine time of the admission; 0 when the engine no longer knows it.
    pub admitted: Micros,
    pub ended: Micros,
    /// What was posted to quotas by this record; rebuilding a quota sums these.
    pub posted: Vec<Posted>,
    /// What the caller wrote: the entry of the verb, or the reservation's context on expiry.
    pub body: Vec<u8>,
}

/// Which verb wrote a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Settled,
    Released,
    Expired,
    Rebooked,
    /// A late settle or release after an expiry (L8); `seq` ≥ 1.
    Late,
    Adjusted,
    /// A claim for an id the engine no longer knows; no account changed (L8).
    Unbooked,
}
