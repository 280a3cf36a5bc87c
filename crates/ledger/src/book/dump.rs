//! The whole state as events, for snapshots, inspection and tests.

use super::Book;
use crate::account::AccountId;
use crate::event::{ClockRow, Event};
use crate::id::ReservationId;

impl Book {
    /// Every row, in the order of [`Event`]'s snapshot variants: folding them into a new book gives an equal one.
    pub fn dump(&self, row: &mut dyn FnMut(&Event<'_>)) {
        row(&Event::Clock(ClockRow { seen: self.seen, behind: self.behind, slots: self.accounts.len() }));
        let mut buckets = Vec::new();
        for (slot, account) in self.accounts.iter() {
            row(&Event::Account(account.row(slot, &mut buckets)));
        }
        for live in self.lives.iter() {
            row(&Event::Live(live.row()));
        }
        for tomb in self.tombs.iter() {
            row(&Event::Tombstone(tomb.row()));
        }
        for estimate in self.estimates.iter() {
            row(&Event::Estimate(estimate.row(&mut buckets)));
        }
        for (id, applied) in &self.adjusts.order {
            row(&Event::AdjustKnown { id: *id, applied: *applied });
        }
    }

    /// The rows of one reservation, all attempts. Looks through everything.
    pub fn inspect_reservation(&self, id: ReservationId, row: &mut dyn FnMut(&Event<'_>)) {
        for live in self.lives.iter().filter(|live| live.id == id) {
            row(&Event::Live(live.row()));
        }
        for tomb in self.tombs.iter().filter(|tomb| tomb.id == id) {
            row(&Event::Tombstone(tomb.row()));
        }
    }

    /// The row of one account.
    pub fn inspect_account(&self, id: AccountId, row: &mut dyn FnMut(&Event<'_>)) {
        let slot = self.accounts.find(id);
        if let Some((slot, account)) = slot.and_then(|slot| Some((slot, self.accounts.get(slot)?))) {
            row(&Event::Account(account.row(slot, &mut Vec::new())));
        }
    }
}
