//! How often each configured limit refused, for operators and the demo's table.
//!
//! Bounded by the configuration: only names of its limits are counted. Starts at 0 with the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Refusals by limit.
#[derive(Debug, Default)]
pub(crate) struct Denials(Mutex<BTreeMap<String, u64>>);

impl Denials {
    pub(crate) fn note(&self, limit: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(limit) {
            Some(count) => *count = count.saturating_add(1),
            None => {
                counts.insert(limit.to_owned(), 1);
            }
        }
    }

    /// Forgets the limits that are configured no more.
    pub(crate) fn keep(&self, configured: &BTreeSet<&str>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|limit, _| configured.contains(limit.as_str()));
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
