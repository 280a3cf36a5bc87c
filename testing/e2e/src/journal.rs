//! The journal of a gateway, read from its file past the program.
//!
//! Invariant: no code of the gateway takes part, so the journal is judged by what is stored. A file that cannot be read is a
//! panic with the reason.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::python;

/// One stored entry; names as in the store's view `journal`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Entry {
    pub reservation: String,
    /// `tenant` or `pool`.
    pub side: String,
    pub attempt: i64,
    pub seq: i64,
    pub unbooked: i64,
    /// How it came about: `settled`, `released`, `expired`, …
    pub origin: String,
    /// Engine time, microseconds since 1970.
    pub admitted_at: i64,
    pub ended_at: i64,
    pub requests: i64,
    pub request_id: String,
    pub tenant: String,
    pub project: String,
    pub key_id: String,
    /// Tests name each call by its end user.
    pub end_user: String,
    pub pool: String,
    pub input: i64,
    pub cached: i64,
    pub cache_write: i64,
    pub output: i64,
    pub reasoning: i64,
    pub cost_nano: i64,
    pub hold_input: i64,
    pub hold_expected: i64,
    pub hold_worst: i64,
    pub charged_on_expiry: i64,
    /// Where the amounts come from: `reported`, `metered`, `partial`, …
    pub figures: String,
    pub ending: String,
    pub overrun_llm_tokens: i64,
    pub overrun_cost_nano: i64,
    pub posted: Vec<Posted>,
}

/// What an entry posted to one quota.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Posted {
    /// Subject, account and period in one.
    pub account: String,
    pub amount: i64,
}

impl Entry {
    pub fn llm_tokens(&self) -> i64 {
        self.input.saturating_add(self.output)
    }
}

/// All entries of one gateway.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Journal {
    pub entries: Vec<Entry>,
    /// What was posted by account, as the journal sums it itself.
    pub sums: BTreeMap<String, i64>,
}

impl Journal {
    /// The gateway must have stopped.
    pub fn read(data_dir: &Path) -> Self {
        python::run("journal.py", &[&data_dir.join("journal.sqlite").to_string_lossy()])
    }

    /// Entries of one side, by the end user that names the call.
    pub fn by_call(&self, side: &str) -> BTreeMap<&str, Vec<&Entry>> {
        let mut calls: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.side == side) {
            calls.entry(&entry.end_user).or_default().push(entry);
        }
        calls
    }

    /// Everything the entries posted, by account.
    pub fn posted(&self) -> BTreeMap<String, i64> {
        let mut sums = BTreeMap::new();
        for posted in self.entries.iter().flat_map(|entry| &entry.posted) {
            let sum: &mut i64 = sums.entry(posted.account.clone()).or_default();
            *sum = sum.saturating_add(posted.amount);
        }
        sums
    }

    /// Keys that occur more than once; the journal must have none.
    pub fn repeated(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for entry in &self.entries {
            let key = format!("{} {} {} {}", entry.reservation, entry.side, entry.attempt, entry.seq);
            let count = seen.entry(key).or_default();
            *count = count.saturating_add(1);
        }
        seen.into_iter().filter(|(_, count)| *count > 1).map(|(key, _)| key).collect()
    }
}
