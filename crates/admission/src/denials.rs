//! How often each configured limit refused, for operators and the demo's table.
//!
//! Starts at 0 with the process. Limits that are configured no more are forgotten where all are known; where tenants come
//! and go, the first [`LIMITS_MAX`] that refuse are counted, and the rest is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Most limits counted.
pub(crate) const LIMITS_MAX: usize = 10_000;

/// What a limit is over, and its name, which another tenant's may have too.
pub(crate) type Named = (String, String);

/// Refusals by limit.
#[derive(Debug, Default)]
pub(crate) struct Denials(Mutex<BTreeMap<Named, u64>>);

impl Denials {
    pub(crate) fn note(&self, subject: &str, limit: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (subject.to_owned(), limit.to_owned());
        if counts.len() < LIMITS_MAX || counts.contains_key(&name) {
            let count = counts.entry(name).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Forgets the limits that are configured no more.
    pub(crate) fn keep(&self, configured: &BTreeSet<Named>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|limit, _| configured.contains(limit));
    }

    pub(crate) fn counts(&self) -> BTreeMap<Named, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_up_to_a_bound_and_by_whose_they_are() {
        let denials = Denials::default();
        for name in 0..=LIMITS_MAX {
            denials.note("tenant a", &name.to_string());
        }
        denials.note("tenant a", "0");
        denials.note("tenant b", "0");
        let counts = denials.counts();
        assert_eq!(counts.len(), LIMITS_MAX);
        assert_eq!(counts.get(&("tenant a".to_owned(), "0".to_owned())), Some(&2));
        denials.keep(&BTreeSet::from([("tenant a".to_owned(), "7".to_owned())]));
        denials.note("tenant b", "7");
        assert_eq!(denials.counts().len(), 2);
    }
}
