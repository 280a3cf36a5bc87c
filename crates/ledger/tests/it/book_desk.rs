//! The book as a [`Desk`], with a second book that only sees the events.
//!
//! After every row: the second book equals the first (a book is the fold of its events), a book rebuilt from the dump
//! equals both, and no account drifts (L10).

use tollbook_ledger::{
    AccountId, Adjust, Balance, Book, Event, ExpireOne, Expired, Full, Log, Micros, Rebook, Refusal, Release,
    Renew, Renewed, Reserve, Settle, Settled, Verdict,
};

use crate::desk::{Desk, check, drift_words};

/// Follows a book by its events; can be told to be full.
#[derive(Default)]
pub(crate) struct Follower {
    pub(crate) book: Book,
    pub(crate) events: usize,
    pub(crate) full: bool,
}

impl Log for Follower {
    fn append(&mut self, event: &Event<'_>) -> Result<(), Full> {
        if self.full {
            return Err(Full);
        }
        self.book.apply(event);
        self.events += 1;
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct BookDesk {
    pub(crate) book: Book,
    pub(crate) log: Follower,
    /// Drift is part of the scenario.
    pub(crate) may_drift: bool,
}

/// Run one scenario over a new book.
pub(crate) fn over_book(scenario: &str) {
    check(&mut BookDesk::default(), scenario);
}

/// A new book from the rows of another.
pub(crate) fn rebuilt(book: &Book) -> Book {
    let mut new = Book::new();
    book.dump(&mut |row| new.apply(row));
    new
}

impl Desk for BookDesk {
    fn reserve(&mut self, now: Micros, cmd: &Reserve) -> Result<Verdict, Refusal> {
        self.book.reserve(now, cmd, &mut self.log)
    }

    fn rebook(&mut self, now: Micros, cmd: &Rebook) -> Result<(Verdict, Option<Settled>), Refusal> {
        self.book.rebook(now, cmd, &mut self.log)
    }

    fn renew(&mut self, now: Micros, cmd: &Renew) -> Result<Renewed, Refusal> {
        self.book.renew(now, cmd, &mut self.log)
    }

    fn settle(&mut self, now: Micros, cmd: &Settle) -> Result<Settled, Refusal> {
        self.book.settle(now, cmd, &mut self.log)
    }

    fn release(&mut self, now: Micros, cmd: &Release) -> Result<Settled, Refusal> {
        self.book.release(now, cmd, &mut self.log)
    }

    fn expire(&mut self, now: Micros, cmd: &ExpireOne) -> Result<Expired, Refusal> {
        self.book.expire(now, cmd, &mut self.log)
    }

    fn adjust(&mut self, now: Micros, cmd: &Adjust) -> Result<bool, Refusal> {
        self.book.adjust(now, cmd, &mut self.log)
    }

    fn balance(&mut self, now: Micros, account: AccountId) -> Option<Balance> {
        self.book.balance(now, account)
    }

    fn period(&mut self, account: AccountId, start: u64) -> Option<(i64, i64)> {
        self.book.period(account, start)
    }

    fn extra(&mut self, now: Micros, verb: &str, words: &[&str]) -> Option<String> {
        let alarms = *self.book.alarms();
        Some(match verb {
            "due" => {
                let due = self.book.due(now, 16);
                due.iter().map(|due| format!("{}.{} ", due.id.0, due.attempt)).collect()
            }
            "prune" => {
                let count = self.book.prune(now, 1_000, &mut self.log).expect("log");
                format!(
                    "tombstones {} adjusts {} estimators {} accounts {}",
                    count.tombstones, count.adjusts, count.estimators, count.accounts
                )
            }
            "accounts" => self.book.balances(now).count().to_string(),
            "events" => self.log.events.to_string(),
            "log" => {
                self.log.full = words[0] == "full";
                String::new()
            }
            "alarm" => match words[0] {
                "negative_held" => alarms.negative_held,
                "ring_restarts" => alarms.ring_restarts,
                "clock_steps_back" => alarms.clock_steps_back,
                "unknown_claims" => alarms.unknown_claims,
                "dropped_postings" => alarms.dropped_postings,
                "dropped_refunds" => alarms.dropped_refunds,
                "saturated" => alarms.saturated,
                _ => return None,
            }
            .to_string(),
            // Damage the first account's held, as a broken log would.
            "damage" => {
                self.may_drift = true;
                let held = words[0].parse().expect("held");
                let event = Event::Repaired { now, slot: 0, period: 0, held };
                self.book.apply(&event);
                self.log.book.apply(&event);
                String::new()
            }
            "drift" => {
                let (drifts, next) = self.book.drift(0, 1_000);
                assert_eq!(next, None);
                drift_words(&drifts)
            }
            "repair" => {
                let (drifts, _) = self.book.drift(0, 1_000);
                let mut seen = drifts[0];
                if words.first() == Some(&"stale") {
                    seen.version = seen.version.wrapping_sub(1);
                }
                self.book.repair(now, &seen, &mut self.log).expect("log").to_string()
            }
            _ => return None,
        })
    }

    fn audit(&mut self) {
        assert!(self.book == self.log.book, "the fold of the events is another book");
        assert!(rebuilt(&self.book) == self.book, "the dump is another book");
        if !self.may_drift {
            assert_eq!(self.book.drift(0, u32::MAX), (Vec::new(), None));
        }
        assert_eq!(self.book.alarms().misfits, 0);
        assert_eq!(self.log.book.alarms().misfits, 0);
    }
}
