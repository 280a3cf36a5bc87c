//! What is used of accounts with hard limits, as the last reply in this gateway showed: whichever call it answered.
//!
//! A hint and no more: it decides whether a text is worth counting exactly, never whether a call may pass. Bounded; a full
//! table is emptied, and what binds already keeps its own cells.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollbook_ledger::{AccountId, Leg};
use tollbook_policy::BoundAccount;

use crate::refused::counts_input;

/// Accounts kept at once.
const ACCOUNTS_MAX: usize = 131_072;
/// Nothing was shown yet.
const UNKNOWN: u64 = u64::MAX;

/// One account's.
#[derive(Clone, Debug)]
pub(crate) struct Used(Arc<AtomicU64>);

impl Used {
    /// Posted and held, as a reply told them.
    pub(crate) fn show(&self, posted: i64, held: i64) {
        let used = u64::try_from(posted.saturating_add(held.max(0))).unwrap_or(0);
        self.0.store(used.min(UNKNOWN - 1), Ordering::Relaxed);
    }

    /// Whether a leg's worst case comes within a tenth of what is left of its hard limits, or goes beyond it; never where the
    /// input is no part of it.
    pub(crate) fn is_near(&self, leg: &Leg) -> bool {
        if !counts_input(leg.measure) {
            return false;
        }
        let used = self.0.load(Ordering::Relaxed);
        let hard = leg.limits.iter().filter(|limit| limit.hard && !limit.shadow).map(|limit| limit.ceiling);
        match hard.min() {
            Some(ceiling) if used != UNKNOWN => {
                let left = u128::from(ceiling.saturating_sub(used));
                u128::from(leg.worst) * 10 >= left * 9
            }
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct AllUsed(Mutex<HashMap<AccountId, Used>>);

impl AllUsed {
    /// One cell per account, in their order; those without a hard limit have one of their own that nothing is told to.
    pub(crate) fn of(&self, accounts: &[BoundAccount]) -> Vec<Used> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Used(Arc::new(AtomicU64::new(UNKNOWN)));
        let mut cell = |account: &BoundAccount| {
            if !account.hard {
                return fresh();
            }
            if all.len() >= ACCOUNTS_MAX {
                all.clear();
            }
            all.entry(account.account).or_insert_with(fresh).clone()
        };
        accounts.iter().map(&mut cell).collect()
    }
}
