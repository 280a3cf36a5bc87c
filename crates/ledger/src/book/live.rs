//! Reservations that have not ended, found by id and by the second in which they are due.
//!
//! Invariants: (id, attempt) is unique; every reservation is in the list of its due second and in no other. Lists are
//! linked through the reservations, so renewing and ending cost the same however many there are.

use std::collections::BTreeMap;

use super::fresh::halves;
use super::slab::Slab;
use super::table::{Table, tag};
use crate::event::{HeldLeg, Learner, LiveRow};
use crate::id::{Attempt, ReservationId};
use crate::reply::Due;
use crate::units::{Micros, SECOND};

#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) id: ReservationId,
    /// Engine time of the admission.
    pub(crate) admitted: Micros,
    /// On the steady clock.
    due: Micros,
    pub(crate) legs: Box<[HeldLeg]>,
    learners: Learners,
    pub(crate) context: Box<[u8]>,
    before: u32,
    after: u32,
    pub(crate) attempt: Attempt,
    pub(crate) sent: bool,
    /// No tombstone can bear the same name.
    pub(crate) first: bool,
}

/// Nearly every call has one.
#[derive(Clone, Debug)]
enum Learners {
    One(Learner),
    Many(Box<[Learner]>),
}

const NONE: u32 = u32::MAX;

impl Live {
    pub(crate) fn new(row: &LiveRow<'_>, first: bool) -> Self {
        Self {
            id: row.id,
            admitted: row.admitted,
            due: row.due,
            legs: row.legs.into(),
            learners: match row.learners {
                [one] => Learners::One(*one),
                many => Learners::Many(many.into()),
            },
            context: row.context.into(),
            before: NONE,
            after: NONE,
            attempt: row.attempt,
            sent: row.sent,
            first,
        }
    }

    pub(crate) fn due(&self) -> Micros {
        self.due
    }

    pub(crate) fn learners(&self) -> &[Learner] {
        match &self.learners {
            Learners::One(one) => core::slice::from_ref(one),
            Learners::Many(many) => many,
        }
    }

    pub(crate) fn row(&self) -> LiveRow<'_> {
        LiveRow {
            id: self.id,
            attempt: self.attempt,
            admitted: self.admitted,
            due: self.due,
            sent: self.sent,
            context: &self.context,
            learners: self.learners(),
            legs: &self.legs,
        }
    }
}

/// All live reservations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lives {
    slots: Slab<Live>,
    index: Table,
    /// First reservation of each due second.
    heads: BTreeMap<u64, u32>,
}

impl Lives {
    /// Live reservations.
    pub(crate) fn count(&self) -> usize {
        self.index.count()
    }

    #[inline]
    pub(crate) fn find(&self, id: ReservationId, attempt: Attempt) -> Option<u32> {
        self.index.find(key_tag(id, attempt), |slot| {
            self.slots.get(slot).is_some_and(|live| live.id == id && live.attempt == attempt)
        })
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Live> {
        self.slots.get(slot)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Live> {
        self.slots.get_mut(slot)
    }

    /// Add one whose id is not there.
    pub(crate) fn insert(&mut self, live: Live) -> u32 {
        let tag = key_tag(live.id, live.attempt);
        let slot = self.slots.insert(live);
        self.index.insert(tag, slot);
        self.link(slot);
        slot
    }

    /// Slots, empty ones included.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len()
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Live> {
        self.unlink(slot);
        let live = self.slots.remove(slot)?;
        self.index.remove(key_tag(live.id, live.attempt), slot);
        Some(live)
    }

    pub(crate) fn set_due(&mut self, slot: u32, due: Micros) {
        if self.get(slot).is_some_and(|live| live.due / SECOND == due / SECOND) {
            if let Some(live) = self.get_mut(slot) {
                live.due = due;
            }
            return;
        }
        self.unlink(slot);
        if let Some(live) = self.get_mut(slot) {
            live.due = due;
        }
        self.link(slot);
    }

    /// Those due at a time of the steady clock, by second.
    pub(crate) fn due(&self, steady: Micros, max: usize) -> Vec<Due> {
        let mut found = Vec::new();
        for head in self.heads.range(..=steady / SECOND).map(|(_, head)| *head) {
            let mut slot = head;
            while let Some(live) = self.get(slot) {
                if found.len() >= max {
                    return found;
                }
                if live.due <= steady {
                    found.push(Due { id: live.id, attempt: live.attempt });
                }
                slot = live.after;
            }
        }
        found
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Live> {
        self.slots.iter().map(|(_, live)| live)
    }

    fn link(&mut self, slot: u32) {
        let Some(second) = self.get(slot).map(|live| live.due / SECOND) else { return };
        let after = self.heads.insert(second, slot).unwrap_or(NONE);
        if let Some(live) = self.get_mut(slot) {
            (live.before, live.after) = (NONE, after);
        }
        if let Some(next) = self.get_mut(after) {
            next.before = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some((second, before, after)) =
            self.get(slot).map(|live| (live.due / SECOND, live.before, live.after))
        else {
            return;
        };
        if let Some(next) = self.get_mut(after) {
            next.before = before;
        }
        if let Some(previous) = self.get_mut(before) {
            previous.after = after;
        } else if after == NONE {
            self.heads.remove(&second);
        } else {
            self.heads.insert(second, after);
        }
    }
}

/// Tag of a reservation. A gateway's ids are counters: eight in a row get neighbouring cells, so that the ids of
/// calls that come after each other share a cache line.
#[inline]
pub(crate) fn key_tag(id: ReservationId, attempt: Attempt) -> u32 {
    let (gateway, counter) = halves(id);
    let block = tag((counter >> 3) ^ gateway.rotate_left(32) ^ (u64::from(attempt) << 40));
    block << 3 | u32::from(counter.to_le_bytes()[0] & 7)
}

impl PartialEq for Lives {
    fn eq(&self, other: &Self) -> bool {
        let rows = |all: &Self| {
            let mut found: Vec<Live> = all.iter().cloned().collect();
            found.sort_unstable_by_key(|live| (live.id, live.attempt));
            found
        };
        let (left, right) = (rows(self), rows(other));
        left.len() == right.len() && left.iter().zip(&right).all(|(left, right)| left.row() == right.row())
    }
}

impl Eq for Lives {}
