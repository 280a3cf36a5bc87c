//! What the gateways of a fleet have read of the store, kept nearer to them: text under ids, each read at a revision.
//!
//! Invariants: an entry counts only as long as nothing newer is known of its id, by any gateway; what [`ConfigCache::forget`]
//! has forgotten is never kept again, however slow somebody is who read it before: a put names the gap that it fills, and
//! a gap is gone with all that was known of the id when it was seen. Whatever is lost or damaged is a gap, never an entry.
//! When the cache is away: every question fails soon, and the caller asks the store; a forget that was not delivered has
//! to be delivered later. Until then those who know what has changed say so when they ask (`least`).
//! Plain data: what an id and its text mean is known to whoever writes them.

use std::time::Duration;

use crate::Answer;

/// Longest id that something is kept under, in bytes.
pub const CACHE_ID_MAX: usize = 256;
/// Longest text that is kept, in bytes.
pub const CACHED_MAX: usize = 1 << 20;
/// Largest revision that something is kept of.
pub const CACHED_REVISION_MAX: u64 = (1 << 53) - 1;
/// How long an entry is kept after it was read.
pub const CACHED_FOR: Duration = Duration::from_mins(10);
/// How much longer it is known what was forgotten of an id.
pub const FORGOTTEN_FOR: Duration = Duration::from_hours(1);

/// What was read of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cached {
    /// Of the store, when it was read.
    pub revision: u64,
    pub text: String,
}

/// Nothing is kept of an id. Whoever reads it from the store now fills this gap; it is seen before the store is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Gap(pub u64);

/// What is found under an id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    Kept(Cached),
    Gap(Gap),
}

/// What the gateways of a fleet have read of the store, kept nearer to them. Object safe.
pub trait ConfigCache: Send + Sync + 'static {
    /// What is kept under an id. What was read before revision `least` does not count any more: the caller knows that the
    /// id has changed then; 0 if it knows of nothing.
    fn get<'a>(&'a self, id: &'a str, least: u64) -> Answer<'a, Look>;
    /// Keeps what was read after the gap was seen. False, and not kept: something newer is known of the id, nothing is
    /// known of the gap any more, or id, text or revision is too large.
    fn put<'a>(&'a self, gap: Gap, id: &'a str, read: &'a Cached) -> Answer<'a, bool>;
    /// Nothing of these ids that was read before these revisions counts any more. After an error some may count still;
    /// a repeat is harmless. An id that nothing is kept under is forgotten already.
    fn forget<'a>(&'a self, ids: &'a [(String, u64)]) -> Answer<'a, ()>;
    /// Nothing of any id that was read before this revision counts any more.
    fn forget_below(&self, revision: u64) -> Answer<'_, ()>;
}

/// Something can be kept under this id.
pub fn is_cache_id(id: &str) -> bool {
    (1..=CACHE_ID_MAX).contains(&id.len())
}

/// This can be kept.
pub fn is_cacheable(read: &Cached) -> bool {
    read.text.len() <= CACHED_MAX && read.revision <= CACHED_REVISION_MAX
}
