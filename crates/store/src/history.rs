//! How limits were defined over time (L16).

use crate::{Answer, Name};
use tollbook_ledger::Micros;

/// Most rows on one page.
pub const LIMIT_ROWS_MAX: usize = 1_000;

/// One definition of one limit, as first seen. Plain data: what a definition means is known to `policy`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitRow {
    pub limit: Name,
    /// 1, 2, … per limit of a tenant.
    pub version: u32,
    /// When this definition was first in force.
    pub seen_at: Micros,
    /// Digest of the definition; equal digests are equal definitions.
    pub digest: [u8; 32],
    /// The definition as text, written and read by the same code; empty when the limit was removed.
    pub definition: String,
}

/// Where a row stands among those of all tenants.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LimitPlace {
    pub tenant: Name,
    pub limit: Name,
    pub version: u32,
}

/// Some rows of the history, each with its tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitPage {
    pub rows: Vec<(Name, LimitRow)>,
    /// Where the next page goes on; none after the last row.
    pub next: Option<LimitPlace>,
}

/// Keeps limit definitions, each tenant's apart; the tenant of limits that are nobody's, as those of pools, is empty.
/// Object safe.
pub trait LimitHistory: Send + Sync + 'static {
    /// A tenant's rows, by limit and version.
    fn limit_rows<'a>(&'a self, tenant: &'a str) -> Answer<'a, Vec<LimitRow>>;
    /// Adds rows of a tenant; one whose (limit, version) is there already changes nothing. Returns how many were new.
    fn limit_rows_append<'a>(&'a self, tenant: &'a str, rows: &'a [LimitRow]) -> Answer<'a, u64>;
    /// The rows of all tenants, by tenant, limit and version, after a place, at most `max` or [`LIMIT_ROWS_MAX`].
    fn limit_rows_page<'a>(&'a self, after: &'a LimitPlace, max: usize) -> Answer<'a, LimitPage>;
}
