//! The journal's store in memory, and the provider's own record to judge it by.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollbook_engine::ledger::{AccountId, ReservationId};
use tollbook_store::{
    Answer, Appended, CallPage, CallPlace, CallsQuery, Entry, EntryKey, EntryPlace, Journal, Name, Origin,
    Page, PostedSum, Side, Span, StoreError, StoreErrorKind, Total, TotalsQuery, UsageQuery, UsageSum,
};

use crate::stats::Stats;

/// Keeps entries; can be away.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    entries: Mutex<BTreeMap<EntryKey, Entry>>,
    /// Takes the next batch and does not say so.
    pub(crate) forgets_to_answer: AtomicBool,
}

/// What a call really used, as the provider told it.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) input: i64,
    pub(crate) output: i64,
    /// The gateway died before it had told all it knew.
    pub(crate) gateway_died: Arc<AtomicBool>,
}

/// Calls whose usage was told, by request id.
pub(crate) type Record = Mutex<BTreeMap<Arc<str>, Truth>>;

impl Kept {
    /// Every call whose outcome was known to a gateway that lived is in the journal, to the llm_token.
    pub(crate) fn judge(&self, record: &Record, stats: &mut Stats) -> Result<(), String> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
        for entry in entries.values().filter(|entry| entry.body.side == Side::Tenant) {
            calls.entry(&entry.body.request_id).or_default().push(entry);
        }
        for (request_id, truth) in record.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let entries = calls.get(&**request_id).map(Vec::as_slice).unwrap_or_default();
            let unbooked = entries.iter().find(|entry| entry.is_unbooked());
            let booked = entries.iter().filter(|entry| !entry.is_unbooked());
            let is_told = booked.clone().any(|entry| matches!(entry.origin, Origin::Settled | Origin::Late));
            let sum = booked
                .fold((0, 0), |sum, entry| (sum.0 + entry.body.usage.input, sum.1 + entry.body.usage.output));
            let want = (truth.input, truth.output);
            match (is_told, unbooked) {
                (true, _) if sum == want => stats.calls_journaled += 1,
                (false, Some(entry)) if (entry.body.usage.input, entry.body.usage.output) == want => {
                    stats.calls_unbooked += 1;
                }
                (false, None) if truth.gateway_died.load(Ordering::Relaxed) => stats.calls_died += 1,
                _ => {
                    let told: Vec<String> = entries.iter().map(|entry| brief(entry)).collect();
                    return Err(format!(
                        "call {request_id} used {want:?}, its journal says {sum:?}: {told:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn take(&self, batch: &[Entry]) -> Result<Appended, StoreError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut appended = Appended::default();
        for entry in batch {
            match entries.entry(entry.key()) {
                Slot::Occupied(_) => appended.repeated += 1,
                Slot::Vacant(free) => {
                    free.insert(entry.clone());
                    appended.inserted += 1;
                }
            }
        }
        if self.forgets_to_answer.swap(false, Ordering::Relaxed) {
            return Err(StoreError::unknown(StoreErrorKind::Away("the answer got lost".to_owned())));
        }
        Ok(appended)
    }
}

fn brief(entry: &Entry) -> String {
    let (usage, figures) = (entry.body.usage, entry.body.figures);
    format!(
        "{} attempt {} seq {}: {:?}, {figures:?}, input {}, output {}",
        entry.reservation, entry.attempt, entry.seq, entry.origin, usage.input, usage.output
    )
}

fn none<'a, T: Send + 'a>() -> Answer<'a, T> {
    Box::pin(ready(Err(StoreError::not_applied(StoreErrorKind::Refused("nobody asks for this here")))))
}

impl Journal for Kept {
    fn append<'a>(&'a self, batch: &'a [Entry]) -> Answer<'a, Appended> {
        Box::pin(ready(self.take(batch)))
    }

    fn by_reservation(&self, id: ReservationId) -> Answer<'_, Vec<Entry>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entries.values().filter(|entry| entry.reservation == id).cloned().collect();
        Box::pin(ready(Ok(found)))
    }

    fn by_request<'a>(&'a self, _: &'a str) -> Answer<'a, Vec<Entry>> {
        none()
    }

    fn entries(&self, _: Span, _: EntryPlace, _: usize) -> Answer<'_, Page> {
        none()
    }

    fn totals<'a>(&'a self, _: &'a TotalsQuery) -> Answer<'a, Vec<Total>> {
        none()
    }

    fn posted_sums(&self, _: u64, _: Option<(AccountId, u64)>, _: usize) -> Answer<'_, Vec<PostedSum>> {
        none()
    }

    fn posted_sum(&self, _: AccountId, _: u64) -> Answer<'_, i64> {
        none()
    }

    fn usage_sum<'a>(&'a self, _: &'a UsageQuery) -> Answer<'a, UsageSum> {
        none()
    }

    fn users<'a>(&'a self, _: &'a str, _: Span, _: &'a str, _: usize) -> Answer<'a, Vec<Name>> {
        none()
    }

    fn tenants<'a>(&'a self, _: &'a str, _: usize) -> Answer<'a, Vec<Name>> {
        none()
    }

    fn calls<'a>(&'a self, _: &'a CallsQuery, _: CallPlace, _: usize) -> Answer<'a, CallPage> {
        none()
    }
}
