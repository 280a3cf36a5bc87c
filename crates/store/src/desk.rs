//! What operators are told later: what the versions of the price book said. And which gateway does a job that one does for
//! all.
//!
//! Invariants: what a version said never changes; a lease ends by the store's own clock. Every call may be repeated.

use std::time::Duration;

use crate::{Answer, GatewayId};

/// Longest document of a price book, in bytes: some ten thousand models.
pub const PRICE_BOOK_MAX: usize = 8 << 20;
/// Longest name of a job, in bytes.
pub const JOB_NAME_MAX: usize = 64;

/// One version of the price book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PriceVersion {
    /// As entries of the journal name it.
    pub version: u64,
    /// When it was first in force, Unix milliseconds of the store's clock.
    pub first_at: u64,
    /// What it said; written and read by the same code.
    pub document: String,
}

/// Keeps what every version of the price book said. Object safe.
pub trait PriceBooks: Send + Sync + 'static {
    /// Keeps a version; one that is there stays as it is. True if it was new.
    fn price_book_keep<'a>(&'a self, version: u64, document: &'a str) -> Answer<'a, bool>;
    /// What a version said.
    fn price_book(&self, version: u64) -> Answer<'_, Option<PriceVersion>>;
    /// So many versions and when they were first in force, the newest first.
    fn price_versions(&self, most: usize) -> Answer<'_, Vec<(u64, u64)>>;
}

/// Says which of the gateways that share a store does a job. Object safe.
pub trait JobLeases: Send + Sync + 'static {
    /// Takes or keeps the lease of a job for so long. False while another gateway has it.
    fn job_lease<'a>(&'a self, job: &'static str, gateway: GatewayId, life: Duration) -> Answer<'a, bool>;
    /// Gives it back.
    fn job_leave<'a>(&'a self, job: &'static str, gateway: GatewayId) -> Answer<'a, ()>;
}
