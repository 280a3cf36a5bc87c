//! Names of keys. Only ids and digests appear in them; user text never does.
//!
//! Invariant: all keys of one verb share the hash tag of its shard, and every key a script touches is declared.

use std::fmt::Write as _;

use tollbook_engine::Shard;
use tollbook_engine::ledger::{AccountId, Attempt, ReservationId, SubjectId};

/// The keys of one verb: those of the shard, then what is added, each once.
#[derive(Debug)]
pub(crate) struct Keys {
    shard: Shard,
    tag: String,
    all: Vec<Vec<u8>>,
    subjects: Vec<(SubjectId, usize)>,
}

impl Keys {
    pub(crate) fn of(prefix: &str, shard: Shard) -> Self {
        let tag = format!("{prefix}:{{{}}}:", shard.0);
        let all = ["meta", "due", "e", "j", "s"].map(|name| format!("{tag}{name}").into_bytes()).to_vec();
        Self { shard, tag, all, subjects: Vec::new() }
    }

    pub(crate) fn shard(&self) -> Shard {
        self.shard
    }

    fn add(&mut self, name: std::fmt::Arguments<'_>) -> usize {
        self.all.push(format!("{}{name}", self.tag).into_bytes());
        self.all.len()
    }

    pub(crate) fn reservation(&mut self, id: ReservationId, attempt: Attempt) -> usize {
        self.add(format_args!("r:{:032x}:{attempt}", id.0))
    }

    pub(crate) fn adjust(&mut self, id: u128) -> usize {
        self.add(format_args!("x:{id:032x}"))
    }

    /// Keys that another answer named: what follows the hash tag.
    pub(crate) fn named(&mut self, name: &str) {
        self.add(format_args!("{name}"));
    }

    /// The place of a subject's key in KEYS, counted from one.
    pub(crate) fn subject(&mut self, subject: SubjectId) -> usize {
        if let Some((_, place)) = self.subjects.iter().find(|(known, _)| *known == subject) {
            return *place;
        }
        let place = self.add(format_args!("a:{:016x}", subject.0));
        self.subjects.push((subject, place));
        place
    }

    pub(crate) fn accounts<'a>(&mut self, accounts: impl IntoIterator<Item = &'a AccountId>) {
        for account in accounts {
            self.subject(account.subject);
        }
    }

    pub(crate) fn list(&self) -> &[Vec<u8>] {
        &self.all
    }

    /// One of the shard's own keys: `due`, `j`, `s`.
    pub(crate) fn own(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.tag).into_bytes()
    }
}

pub(crate) fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

pub(crate) fn id(id: u128) -> String {
    let mut text = String::with_capacity(32);
    // Writing to a string cannot fail.
    let _ = write!(text, "{id:032x}");
    text
}
