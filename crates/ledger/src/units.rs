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

/// Engine time, or a span of it, in microseconds. As an instant: since the Unix epoch, UTC.
pub type Micros = u64;
/// One second in [`Micros`].
pub const SECOND: Micros = 1_000_000;
