//! The journal's rows by day: which there are, and that old ones go.
//!
//! Invariants: a row goes with its day, that of its end, and never its key, so an entry is one entry also after its row has
//! gone; totals and sums stay. What was written within [`SETTLED_DAYS`] does not go, whenever it ended; nor does anything while
//! the store's clock or the newest end says that it is not old yet. What has gone is told before it goes.

use tollbook_ledger::Micros;

use crate::{Answer, Day};

/// Fewer days are never kept: 32 of the longest month with a change of zone, since a quota that is added in mid-period is
/// opened from the calls of its period; one, since a zone's month begins up to 14 hours before UTC's; one for the day that is
/// not over; one for a clock that stepped back. What else reads rows needs less: a correction meets its expiry within the 30 minutes
/// that the book remembers it, vouchers are of hours, and what reconcile posts of unbooked calls is of periods that run.
pub const KEEP_DAYS_MIN: u32 = 35;
/// More than ten years.
pub const KEEP_DAYS_MAX: u32 = 4_000;
/// Rows go this long after they were written at the earliest, by the store's clock.
pub const SETTLED_DAYS: u32 = 7;

/// The rows that ended on one day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DayRows {
    pub day: Day,
    pub entries: u64,
    /// The newest of their places.
    pub newest: i64,
}

/// What may go if so many days are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// The oldest day that is kept.
    pub from: Day,
    /// Rows up to this place were written long enough ago.
    pub settled: i64,
}

/// What went at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gone {
    /// As far as the store knows without counting.
    pub entries: u64,
    /// There is more that may go.
    pub more: bool,
}

/// Keeps the journal's rows by day. Object safe.
pub trait JournalDays: Send + Sync + 'static {
    /// From which end on all rows are there; 0: none has gone.
    fn kept_since(&self) -> Answer<'_, Micros>;
    /// Notes where the journal is today, and makes room for the days to come. False if that room cannot be made: rows of
    /// those days then stand together, and go together.
    fn day_begins(&self) -> Answer<'_, bool>;
    /// The days that have rows, oldest first.
    fn days(&self) -> Answer<'_, Vec<DayRows>>;
    /// What may go.
    fn due(&self, keep_days: u32) -> Answer<'_, Due>;
    /// Lets a bounded part of what may go, go.
    fn let_go(&self, keep_days: u32) -> Answer<'_, Gone>;
}
