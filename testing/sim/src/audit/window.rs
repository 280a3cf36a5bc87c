//! A rate account's posted side by its definition: a list of postings, summed anew at every look.

use std::collections::BTreeMap;

use tollbook_engine::ledger::{Micros, Weights};

/// Postings of one account by bucket number.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    buckets: u64,
    width: Micros,
    weights: Weights,
    newest: u64,
    posts: BTreeMap<u64, u64>,
}

/// What a window looks like at a time.
#[derive(Clone, Copy, Debug)]
struct Look {
    current: u64,
    inside: Micros,
    /// The clock stepped back by more than two windows: all that was posted counts as posted now (L12).
    restart: bool,
}

impl Window {
    pub(crate) fn new(buckets: u8, width: Micros, weights: Weights) -> Self {
        Self { buckets: u64::from(buckets), width, weights, newest: 0, posts: BTreeMap::new() }
    }

    /// The longest time for which something posted now can count.
    pub(crate) fn span(&self) -> Micros {
        self.width * self.buckets
    }

    /// Length of the window as limits name it: the oldest bucket comes on top.
    pub(crate) fn length(&self) -> Micros {
        self.width * (self.buckets - 1)
    }

    pub(crate) fn bucket(&self, now: Micros) -> u64 {
        self.look(now).current
    }

    fn look(&self, now: Micros) -> Look {
        let bucket = now / self.width;
        let restart = bucket + 2 * self.buckets < self.newest;
        if bucket >= self.newest || restart {
            Look { current: bucket, inside: now % self.width, restart }
        } else {
            Look { current: self.newest, inside: 0, restart }
        }
    }

    /// Amounts of the buckets in the window, with their ages.
    fn aged(&self, look: Look) -> Vec<(u64, u64)> {
        let newest = if look.restart { self.newest } else { look.current };
        let oldest = (newest + 1).saturating_sub(self.buckets);
        let inside = self.posts.range(oldest..=newest);
        if look.restart {
            return vec![(0, inside.map(|(_, amount)| amount).sum())];
        }
        inside.map(|(bucket, amount)| (newest - bucket, *amount)).collect()
    }

    /// What counts as posted in the window.
    pub(crate) fn posted(&self, now: Micros) -> u64 {
        let look = self.look(now);
        let aged = self.aged(look);
        let sum: u64 = aged.iter().map(|(_, amount)| amount).sum();
        match self.weights {
            Weights::Whole => sum,
            Weights::Oldest => {
                let last = self.buckets - 1;
                let oldest: u64 = aged.iter().filter(|(age, _)| *age == last).map(|(_, amount)| amount).sum();
                sum - oldest + (oldest * (self.width - look.inside)).div_ceil(self.width)
            }
            Weights::Decay => {
                let weighted: u64 = aged.iter().map(|(age, amount)| amount * (self.buckets - age)).sum();
                weighted.div_ceil(self.buckets)
            }
        }
    }

    /// The first moment from `now` on at which no more than `room` counts, if nothing is posted but `extra` now.
    pub(crate) fn wait(&self, now: Micros, room: u64, extra: u64) -> Micros {
        let mut then = self.clone();
        then.post(now, extra);
        if then.posted(now) <= room {
            return 0;
        }
        // What counts only gets less, so the moment can be searched by halves.
        let (mut before, mut after) = (now, (then.newest + self.buckets) * self.width);
        while before + 1 < after {
            let middle = before + (after - before) / 2;
            if then.posted(middle) <= room { after = middle } else { before = middle }
        }
        after - now
    }

    pub(crate) fn post(&mut self, now: Micros, amount: u64) {
        self.advance(now);
        if amount > 0 {
            *self.posts.entry(self.newest).or_default() += amount;
        }
    }

    /// Starts anew if the clock is far behind.
    pub(crate) fn restart(&mut self, now: Micros) {
        if self.look(now).restart {
            self.advance(now);
        }
    }

    /// How much could be taken back out of a bucket.
    pub(crate) fn refundable(&self, now: Micros, bucket: u64) -> u64 {
        let look = self.look(now);
        let age = look.current.checked_sub(bucket);
        self.aged(look).iter().find(|(of, _)| Some(*of) == age).map_or(0, |(_, amount)| *amount)
    }

    pub(crate) fn take_back(&mut self, now: Micros, bucket: u64, amount: u64) {
        self.advance(now);
        if let Some(there) = self.posts.get_mut(&bucket) {
            *there = there.saturating_sub(amount);
        }
    }

    /// Nothing counts any more.
    pub(crate) fn is_clear(&self, now: Micros) -> bool {
        self.aged(self.look(now)).iter().all(|(_, amount)| *amount == 0)
    }

    /// Time until nothing counts any more; `busy`: something counts as posted now.
    pub(crate) fn reset(&self, now: Micros, busy: bool) -> Micros {
        let look = self.look(now);
        let youngest = self.aged(look).iter().filter(|(_, amount)| *amount > 0).map(|(age, _)| *age).min();
        let Some(age) = (if busy { Some(0) } else { youngest }) else { return 0 };
        ((look.current + self.buckets - age) * self.width).saturating_sub(now)
    }

    fn advance(&mut self, now: Micros) {
        let look = self.look(now);
        if look.restart {
            let sum = self.aged(look).iter().map(|(_, amount)| amount).sum();
            self.posts = BTreeMap::from([(look.current, sum)]);
        }
        self.newest = look.current;
        let oldest = (self.newest + 1).saturating_sub(self.buckets);
        self.posts = self.posts.split_off(&oldest);
    }
}
