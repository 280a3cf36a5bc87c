//! Reservations that have ended, remembered for [`REMEMBER`] from their end.
//!
//! Invariants: the queue is in order of end on the steady clock, which never goes back; each key is indexed once. Only
//! an expired one keeps what a late claim needs, and only until its one correction (L8), so a plain one takes 48 bytes.

use super::live::key_tag;
use super::queue::Queue;
use super::table::Table;
use crate::event::{Learner, QuotaLeg, TombstoneRow};
use crate::id::{Attempt, ReservationId};
use crate::reply::End;
use crate::units::{Micros, REMEMBER};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tomb {
    pub(crate) id: ReservationId,
    /// Engine time of the admission.
    pub(crate) admitted: Micros,
    /// On the steady clock.
    pub(crate) ended: Micros,
    pub(crate) late: Option<Box<Late>>,
    pub(crate) attempt: Attempt,
    pub(crate) end: End,
    pub(crate) legs: u8,
}

/// What the one late claim of an expired reservation needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Late {
    pub(crate) learners: Box<[Learner]>,
    pub(crate) quotas: Box<[QuotaLeg]>,
}

impl Tomb {
    pub(crate) fn new(row: &TombstoneRow<'_>) -> Self {
        let late = (row.end == End::Expired)
            .then(|| Box::new(Late { learners: row.learners.into(), quotas: row.quotas.into() }));
        Self {
            id: row.id,
            admitted: row.admitted,
            ended: row.ended,
            late,
            attempt: row.attempt,
            end: row.end,
            legs: row.legs,
        }
    }

    pub(crate) fn row(&self) -> TombstoneRow<'_> {
        let (learners, quotas): (&[Learner], &[QuotaLeg]) =
            self.late.as_deref().map_or((&[], &[]), |late| (&late.learners, &late.quotas));
        TombstoneRow {
            id: self.id,
            attempt: self.attempt,
            end: self.end,
            admitted: self.admitted,
            ended: self.ended,
            legs: self.legs,
            learners,
            quotas,
        }
    }

    fn is(&self, id: ReservationId, attempt: Attempt) -> bool {
        self.id == id && self.attempt == attempt
    }
}

/// All tombstones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tombs {
    queue: Queue<Tomb>,
    /// Number of the first in the queue; numbers count up and wrap below `u32::MAX`.
    first: u32,
    index: Table,
}

impl Tombs {
    /// Tombstones kept, those that prune has not come to included.
    pub(crate) fn count(&self) -> usize {
        self.queue.count()
    }

    /// The tombstone, unless it is old enough to be forgotten.
    #[inline]
    pub(crate) fn find(&self, id: ReservationId, attempt: Attempt, steady: Micros) -> Option<&Tomb> {
        let number = self.number(id, attempt)?;
        self.queue.get(self.position(number)).filter(|tomb| !is_over(tomb, steady))
    }

    pub(crate) fn find_mut(&mut self, id: ReservationId, attempt: Attempt) -> Option<&mut Tomb> {
        let position = self.position(self.number(id, attempt)?);
        self.queue.get_mut(position)
    }

    /// Add one. `first`: no tombstone can bear the same name; otherwise a forgotten one that prune has not come to may.
    pub(crate) fn push(&mut self, tomb: Tomb, first: bool) {
        let tag = key_tag(tomb.id, tomb.attempt);
        if !first && let Some(old) = self.number(tomb.id, tomb.attempt) {
            self.index.remove(tag, old);
        }
        let number = self.step(u32::try_from(self.queue.count()).unwrap_or(0));
        self.queue.push(tomb);
        self.index.insert(tag, number);
    }

    /// How many of the oldest, at most `max`, are to be forgotten.
    pub(crate) fn over(&self, steady: Micros, max: usize) -> u32 {
        let count = self.queue.iter().take(max).take_while(|tomb| is_over(tomb, steady)).count();
        u32::try_from(count).unwrap_or(0)
    }

    pub(crate) fn drop_first(&mut self, count: u32) {
        for _ in 0..count {
            let Some(tomb) = self.queue.pop() else { return };
            self.index.remove(key_tag(tomb.id, tomb.attempt), self.first);
            self.first = self.step(1);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tomb> {
        self.queue.iter()
    }

    fn number(&self, id: ReservationId, attempt: Attempt) -> Option<u32> {
        self.index.find(key_tag(id, attempt), |number| {
            self.queue.get(self.position(number)).is_some_and(|tomb| tomb.is(id, attempt))
        })
    }

    fn step(&self, ahead: u32) -> u32 {
        let number = (u64::from(self.first) + u64::from(ahead)) % u64::from(u32::MAX);
        u32::try_from(number).unwrap_or(0)
    }

    #[inline]
    fn position(&self, number: u32) -> usize {
        let wrap = u64::from(u32::MAX);
        let ahead = (u64::from(number) + wrap - u64::from(self.first)) % wrap;
        usize::try_from(ahead).unwrap_or(usize::MAX)
    }
}

fn is_over(tomb: &Tomb, steady: Micros) -> bool {
    tomb.ended.saturating_add(REMEMBER) <= steady
}

impl PartialEq for Tombs {
    fn eq(&self, other: &Self) -> bool {
        self.queue.iter().eq(other.queue.iter())
    }
}

impl Eq for Tombs {}
