//! The journal: insert-only entries, daily totals, and the sums others are rebuilt from.

use tollbook_ledger::{AccountId, Micros};

use crate::{Answer, CallPage, CallPlace, CallsQuery, Entry, Name, Side, Usage};

/// Most entries one `append` takes.
pub const BATCH_MAX: usize = 1024;
/// Most rows one page holds.
pub const PAGE_MAX: usize = 1000;

/// Keeps the journal. Object safe; shared by jobs, reports and the server.
pub trait Journal: Send + Sync + 'static {
    /// Adds entries and their daily totals in one transaction. An entry whose key is there already changes nothing.
    fn append<'a>(&'a self, batch: &'a [Entry]) -> Answer<'a, Appended>;
    /// Every entry of one reservation id, unbooked ones included, by side, attempt and seq.
    fn by_reservation(&self, id: tollbook_ledger::ReservationId) -> Answer<'_, Vec<Entry>>;
    /// Every entry of one request, at most [`PAGE_MAX`], in order of insertion.
    fn by_request<'a>(&'a self, request_id: &'a str) -> Answer<'a, Vec<Entry>>;
    /// Entries that ended within a span, oldest first, after a place, at most `max` or [`PAGE_MAX`].
    fn entries(&self, ended: Span, after: EntryPlace, max: usize) -> Answer<'_, Page>;
    /// Daily totals, by day, side, tenant, pool and model.
    fn totals<'a>(&'a self, query: &'a TotalsQuery) -> Answer<'a, Vec<Total>>;
    /// What was posted to quota periods that start at or after `since` (UTC seconds), per account and period;
    /// at most `max` or [`PAGE_MAX`], after a place.
    fn posted_sums(
        &self,
        since: u64,
        after: Option<(AccountId, u64)>,
        max: usize,
    ) -> Answer<'_, Vec<PostedSum>>;
    /// The sum of one account's period.
    fn posted_sum(&self, account: AccountId, period: u64) -> Answer<'_, i64>;
    /// What a subject's calls used, by time of admission; the opening of a quota added in mid-period (L16).
    fn usage_sum<'a>(&'a self, query: &'a UsageQuery) -> Answer<'a, UsageSum>;
    /// End users of a tenant that had calls admitted within a span, in byte order, after a name, at most `max` or
    /// [`PAGE_MAX`].
    fn users<'a>(
        &'a self,
        tenant: &'a str,
        admitted: Span,
        after: &'a str,
        max: usize,
    ) -> Answer<'a, Vec<Name>>;
    /// Tenants that have entries, in byte order, after a name, at most `max` or [`PAGE_MAX`].
    fn tenants<'a>(&'a self, after: &'a str, max: usize) -> Answer<'a, Vec<Name>>;
    /// A tenant's calls in the order of their admission, each as the sum of its entries, after a place, at most `max` or
    /// [`PAGE_MAX`].
    fn calls<'a>(&'a self, query: &'a CallsQuery, after: CallPlace, max: usize) -> Answer<'a, CallPage>;
    /// From which end (engine time) on all entries can still be read; 0: all can. Of a call that was admitted before, entries
    /// may be missing from every answer but totals, sums and places.
    fn kept_since(&self) -> Answer<'_, Micros> {
        Box::pin(std::future::ready(Ok(0)))
    }
    /// Whether every entry of this reservation can still be read; also where there is none.
    fn is_whole(&self, id: tollbook_ledger::ReservationId) -> Answer<'_, bool> {
        let _ = id;
        Box::pin(std::future::ready(Ok(true)))
    }
    /// Whether an entry of this reservation was ever written, also where it can no longer be read.
    fn was_written(&self, id: tollbook_ledger::ReservationId) -> Answer<'_, bool> {
        Box::pin(async move { Ok(!self.by_reservation(id).await?.is_empty()) })
    }
}

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Appended {
    pub inserted: u64,
    /// Were there already.
    pub repeated: u64,
}

/// A UTC day, counted from 1970-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Day(pub u32);

impl Day {
    /// When it begins.
    pub fn begins(self) -> Micros {
        Micros::from(self.0) * 86_400 * tollbook_ledger::units::SECOND
    }

    /// The first day whose calls can all be summed, where entries that ended before `since` have gone. A day later, since the
    /// book's time may step back.
    pub fn whole_since(since: Micros) -> Self {
        if since == 0 { Self(0) } else { Self(Self::of(since).0.saturating_add(1)) }
    }

    /// The day that contains an instant.
    pub fn of(at: Micros) -> Self {
        const DAY: Micros = 86_400 * tollbook_ledger::units::SECOND;
        Self(u32::try_from(at / DAY).unwrap_or(u32::MAX))
    }
}

/// Days from `from` to `to`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DayRange {
    pub from: Day,
    pub to: Day,
}

/// From `from` up to but not including `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub from: Micros,
    pub to: Micros,
}

/// A place among entries by their end; the default is before the first. Opaque to callers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct EntryPlace {
    pub ended_at: Micros,
    pub number: i64,
}

/// Some entries, and where to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// `None` at the end.
    pub next: Option<EntryPlace>,
}

/// Which totals; an empty name means all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TotalsQuery {
    pub days: DayRange,
    pub side: Side,
    pub tenant: Name,
    pub pool: Name,
    pub model: Name,
}

/// The sum of one day's entries of one tenant, pool and model; unbooked entries are not in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Total {
    pub day: Day,
    pub side: Side,
    pub tenant: Name,
    pub pool: Name,
    /// The configured model that was called.
    pub model: Name,
    pub entries: i64,
    pub requests: i64,
    pub usage: Usage,
    pub cost_nano: i64,
}

/// What was posted to one account in one period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostedSum {
    pub account: AccountId,
    pub period: u64,
    pub amount: i64,
}

/// Whose calls; an empty name matches all. On the tenant side a tenant must be named, on the pool side a pool, else the
/// store refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageQuery {
    pub side: Side,
    pub tenant: Name,
    pub project: Name,
    pub key: Name,
    pub service: Name,
    pub user: Name,
    pub pool: Name,
    pub model: Name,
    /// By time of admission.
    pub admitted: Span,
    /// Leave out calls of which an entry posted to this account.
    pub without: Option<AccountId>,
}

/// The sum of a subject's calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsageSum {
    pub requests: i64,
    pub usage: Usage,
    pub cost_nano: i64,
}
