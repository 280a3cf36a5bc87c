//! Whole calls out of entries, and the calls of all tenants in the order of their admission.
//!
//! Invariants: a call is the sum of its booked entries on the tenant's side, corrections and earlier attempts included;
//! unbooked entries are in no sum (L8). However long the journal is, [`Calls`] keeps [`READ_AHEAD`] calls in memory, or
//! [`PAGE_LEAST`] per tenant where there are many.
//! When the store fails in the middle: the error is handed on; what was read before it stands.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::vec::IntoIter;

use tollbook_ledger::{Micros, ReservationId};

use crate::{Entry, Figures, Journal, Name, Origin, PAGE_MAX, Span, StoreError, Usage};

/// Calls that are read before they are asked for, over all tenants.
pub const READ_AHEAD: usize = 16_384;
/// Calls of one tenant that are read at once, however many tenants there are.
const PAGE_LEAST: usize = 16;

/// Whose calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallsQuery {
    pub tenant: Name,
    /// By time of admission.
    pub admitted: Span,
}

/// A place among a tenant's calls by their admission; the default is before the first. Opaque to callers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct CallPlace {
    pub admitted_at: Micros,
    pub number: i64,
}

/// Some calls, and where to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallPage {
    pub calls: Vec<Call>,
    /// `None` at the end.
    pub next: Option<CallPlace>,
}

/// One call of a tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub reservation: ReservationId,
    /// Engine time; 0 when unknown.
    pub admitted_at: Micros,
    /// Of the last entry.
    pub ended_at: Micros,
    pub tenant: Name,
    /// The key's id.
    pub key: Name,
    /// The configured model that was called, of the last attempt.
    pub model_used: Name,
    /// The sum of what is booked.
    pub usage: Usage,
    /// Where the last booked figures come from.
    pub figures: Figures,
    /// Nothing of it is booked: the engine no longer knew it when it ended.
    pub is_unbooked: bool,
}

impl Call {
    /// The call that all these entries of one reservation and side tell, by attempt and seq; `None` of none.
    pub fn of(entries: &[Entry]) -> Option<Self> {
        let first = entries.first()?;
        let mut call = Self {
            reservation: first.reservation,
            admitted_at: first.admitted_at,
            ended_at: first.ended_at,
            tenant: Name::clone(&first.body.tenant),
            key: Name::clone(&first.body.key),
            model_used: Name::clone(&first.body.model_used),
            usage: Usage::default(),
            figures: first.body.figures,
            is_unbooked: entries.iter().all(Entry::is_unbooked),
        };
        for entry in entries.iter().filter(|entry| !entry.is_unbooked()) {
            call.usage = call.usage.plus(&entry.body.usage);
            call.ended_at = call.ended_at.max(entry.ended_at);
            // An adjusting entry moves amounts; who was called, and who counted, is told by the others.
            if entry.origin != Origin::Adjusted {
                call.model_used = Name::clone(&entry.body.model_used);
                call.figures = entry.body.figures;
            }
        }
        Some(call)
    }

    /// The provider was used, as far as anybody knows.
    pub fn has_usage(&self) -> bool {
        match self.figures {
            Figures::Reported | Figures::Metered | Figures::Partial => true,
            Figures::Unknown | Figures::Expired | Figures::Adjusted => self.usage.llm_tokens() != 0,
            Figures::Nothing => false,
        }
    }
}

/// Calls in the order of their admission, over all tenants or of one.
pub struct Calls<'a> {
    journal: &'a dyn Journal,
    admitted: Span,
    page: usize,
    tenants: Vec<Ahead>,
    /// The tenants that have a call left, by its admission.
    order: BinaryHeap<Reverse<(Micros, usize)>>,
}

impl fmt::Debug for Calls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("admitted", &self.admitted).finish_non_exhaustive()
    }
}

/// What was read ahead of one tenant; `waiting` stands before `rest`.
struct Ahead {
    tenant: Name,
    waiting: Option<Call>,
    rest: IntoIter<Call>,
    next: Option<CallPlace>,
}

impl<'a> Calls<'a> {
    /// Of one tenant, or of all that have entries.
    pub async fn open(
        journal: &'a dyn Journal,
        tenant: Option<Name>,
        admitted: Span,
    ) -> Result<Self, StoreError> {
        let names = match tenant {
            Some(tenant) => vec![tenant],
            None => tenants(journal).await?,
        };
        let page = (READ_AHEAD / names.len().max(1)).clamp(PAGE_LEAST, PAGE_MAX);
        let mut calls = Self { journal, admitted, page, tenants: Vec::new(), order: BinaryHeap::new() };
        for (at, tenant) in names.into_iter().enumerate() {
            let next = Some(CallPlace::default());
            let mut ahead = Ahead { tenant, waiting: None, rest: Vec::new().into_iter(), next };
            ahead.step(journal, admitted, page).await?;
            calls.order.extend(ahead.waiting.iter().map(|call| Reverse((call.admitted_at, at))));
            calls.tenants.push(ahead);
        }
        Ok(calls)
    }

    /// The next call; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Call>, StoreError> {
        let Some(Reverse((_, at))) = self.order.pop() else { return Ok(None) };
        let Some(ahead) = self.tenants.get_mut(at) else { return Ok(None) };
        let call = ahead.waiting.take();
        ahead.step(self.journal, self.admitted, self.page).await?;
        self.order.extend(ahead.waiting.iter().map(|call| Reverse((call.admitted_at, at))));
        Ok(call)
    }
}

impl Ahead {
    /// Puts the tenant's next call in front.
    async fn step(&mut self, journal: &dyn Journal, admitted: Span, max: usize) -> Result<(), StoreError> {
        self.waiting = self.rest.next();
        if let (None, Some(after)) = (&self.waiting, self.next) {
            let query = CallsQuery { tenant: Name::clone(&self.tenant), admitted };
            let page = journal.calls(&query, after, max).await?;
            (self.rest, self.next) = (page.calls.into_iter(), page.next);
            self.waiting = self.rest.next();
        }
        Ok(())
    }
}

async fn tenants(journal: &dyn Journal) -> Result<Vec<Name>, StoreError> {
    let mut names: Vec<Name> = Vec::new();
    loop {
        let after = names.last().map(Name::clone).unwrap_or_default();
        let found = journal.tenants(&after, PAGE_MAX).await?;
        let is_last = found.len() < PAGE_MAX;
        names.extend(found);
        if is_last {
            return Ok(names);
        }
    }
}
