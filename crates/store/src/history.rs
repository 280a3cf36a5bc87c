//! How limits were defined over time (L16).

use crate::{Answer, Name};
use tollbook_ledger::Micros;

/// One definition of one limit, as first seen. Plain data: what a definition means is known to `policy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitRow {
    pub limit: Name,
    /// 1, 2, … per limit.
    pub version: u32,
    /// When this definition was first in force.
    pub seen_at: Micros,
    /// Digest of the definition; equal digests are equal definitions.
    pub digest: [u8; 32],
    /// The definition as text, written and read by the same code; empty when the limit was removed.
    pub definition: String,
}

/// Keeps limit definitions. Object safe.
pub trait LimitHistory: Send + Sync + 'static {
    /// All rows, by limit and version.
    fn limit_rows(&self) -> Answer<'_, Vec<LimitRow>>;
    /// Adds rows; one whose (limit, version) is there already changes nothing. Returns how many were new.
    fn limit_rows_append<'a>(&'a self, rows: &'a [LimitRow]) -> Answer<'a, u64>;
}
