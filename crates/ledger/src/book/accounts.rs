//! All accounts of a shard, found by name or by slot.
//!
//! Invariants: a name is indexed once; slots keep their account until it is closed.

use super::account::Account;
use super::slab::Slab;
use super::table::{Table, tag};
use crate::account::AccountId;

#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    slots: Slab<Account>,
    index: Table,
}

impl Accounts {
    #[inline]
    pub(crate) fn find(&self, id: AccountId) -> Option<u32> {
        self.index.find(id_tag(id), |slot| self.get(slot).is_some_and(|account| account.id == id))
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Account> {
        self.slots.get(slot)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Account> {
        self.slots.get_mut(slot)
    }

    /// The slot that the account opened after `ahead` others would get.
    pub(crate) fn vacant(&self, ahead: usize) -> u32 {
        self.slots.vacant(ahead)
    }

    /// Fill a slot; false if it is taken, out of reach, or the name is there already.
    pub(crate) fn fill(&mut self, slot: u32, account: Account) -> bool {
        // Only a damaged log names a slot far behind the last one.
        let reach = self.slots.len().saturating_add(REACH);
        if slot >= reach || self.find(account.id).is_some() {
            return false;
        }
        let tag = id_tag(account.id);
        let filled = self.slots.fill(slot, account);
        if filled {
            self.index.insert(tag, slot);
        }
        filled
    }

    pub(crate) fn close(&mut self, slot: u32) {
        if let Some(account) = self.slots.remove(slot) {
            self.index.remove(id_tag(account.id), slot);
        }
    }

    /// Accounts kept.
    pub(crate) fn count(&self) -> usize {
        self.index.count()
    }

    pub(crate) fn len(&self) -> u32 {
        self.slots.len()
    }

    pub(crate) fn extend(&mut self, slots: u32) {
        self.slots.extend(slots);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Account)> {
        self.slots.iter()
    }
}

/// Slots that one event may open behind the last one.
const REACH: u32 = 64;

#[inline]
fn id_tag(id: AccountId) -> u32 {
    tag(id.subject.0.rotate_left(32) ^ id.name)
}

impl PartialEq for Accounts {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Accounts {}
