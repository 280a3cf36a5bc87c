//! Units and bounds every amount and time in the book obeys (L13).

/// The largest amount an account, leg or ceiling may carry: 2^53 − 1.
pub const AMOUNT_MAX: u64 = (1 << 53) - 1;
/// Most legs one reservation may carry in one shard.
pub const LEGS_MAX: usize = 32;
/// Most enforced or shadow limits one leg may carry.
pub const LIMITS_PER_LEG_MAX: usize = 8;
/// Most buckets a rate window may have.
pub const BUCKETS_MAX: u8 = 64;
/// Longest `context` a reservation may keep for its expiry entry, in bytes.
pub const CONTEXT_MAX: usize = 512;
/// Due holds told in one denial (L7).
pub const DUE_MAX: usize = 16;
/// How long a tombstone answers after its end, in microseconds (L2): 30 min.
pub const REMEMBER: Micros = 30 * 60 * SECOND;
/// Life a reservation is born with unless the caller says otherwise (L7): 15 s.
pub const DOOR_LIFE: Micros = 15 * SECOND;
/// Life a renewal gives (L7): 60 s.
pub const RENEWED_LIFE: Micros = 60 * SECOND;

/// Longest window of a forecast account, in seconds.
pub const FORECAST_WINDOW_MAX: u8 = 60;
/// Seconds ahead of now that a forecast account plans.
pub const FORECAST_AHEAD: u8 = 61;
/// Largest ceiling of a forecast account: its sums times 10^6 stay integers that every engine can hold.
pub const FORECAST_CEILING_MAX: u64 = 9_000_000_000;
/// Most seconds one batch of progress speaks of.
pub const PROGRESS_SECONDS_MAX: usize = 128;
/// Most accounts of one shard in one `progress`.
pub const PROGRESS_ACCOUNTS_MAX: usize = 32;
/// Most gateways whose last batch an account remembers; of more, the one heard longest ago is forgotten.
pub const PROGRESS_GATEWAYS_MAX: usize = 256;
/// A gateway's last batch is remembered for 130 s: by then every second it spoke of has left the account.
pub const PROGRESS_REMEMBER: Micros = 130 * SECOND;

/// Engine time, or a span of it, in microseconds. As an instant: since the Unix epoch, UTC.
pub type Micros = u64;
/// One second in [`Micros`].
pub const SECOND: Micros = 1_000_000;

/// Periods of a quota are kept this long after their end, in microseconds: [`REMEMBER`] + 1 h.
pub const PERIOD_KEPT: Micros = REMEMBER + 60 * 60 * SECOND;
/// Estimators not learned from, and quota accounts whose newest period is over, are forgotten after 7 days.
pub const FORGET: Micros = 7 * 24 * 60 * 60 * SECOND;
/// Rate and concurrency accounts equal to fresh ones are closed after 10 min without use.
pub const IDLE: Micros = 10 * 60 * SECOND;
/// Widest bucket a rate window may have: 24 h.
pub const WIDTH_MAX: Micros = 24 * 60 * 60 * SECOND;
/// `held` of one account stays below this, so that sums cannot overflow; a hold that would pass it is cut.
pub const HELD_MAX: u64 = 1 << 62;

/// An amount as a signed one.
#[inline]
pub(crate) fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// A signed amount as an unsigned one; negative is 0.
#[inline]
pub(crate) fn unsigned(amount: i64) -> u64 {
    u64::try_from(amount).unwrap_or(0)
}

/// Seconds as microseconds; far futures saturate.
#[inline]
pub(crate) fn micros(seconds: u64) -> Micros {
    seconds.saturating_mul(SECOND)
}
