//! The posted side of a rate account: buckets of a rolling window with running sums.
//!
//! Invariants: `sum` is the sum of all cells and at most 2^53 − 1; `decay` is Σ cell × (n − age); `newest` is the
//! number of the newest bucket. Reading does not write: [`Ring::at`] says how the ring would look at a time, and the
//! other reads take that. Before a write comes [`Ring::advance`], which touches only the buckets that left.
//! When the clock steps back: by more than two windows the ring restarts at the new time with its sum in the current
//! bucket; by less it stands still, its newest bucket stays the current one.
//!
//! Cells are 32 bits wide until one needs more, so an idle ring of 61 buckets takes 244 bytes.

use crate::account::Weights;
use crate::units::{AMOUNT_MAX, BUCKETS_MAX, Micros};

/// Buckets of one rate account.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    cells: Cells,
    width: Micros,
    newest: u64,
    sum: u64,
    decay: u64,
    buckets: u8,
    /// Index of the newest bucket's cell.
    head: u8,
    weights: Weights,
}

#[derive(Clone, Debug)]
enum Cells {
    /// All zero.
    None,
    Narrow(Box<[u32]>),
    Wide(Box<[u64]>),
}

/// How a ring stands at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// Number of the current bucket.
    pub(crate) bucket: u64,
    /// Buckets that have left since the last write; at most all.
    gone: u8,
    /// Time passed inside the current bucket; 0 while standing still.
    inside: Micros,
    restart: bool,
}

impl Ring {
    /// Buckets and width are bounded by the shape check; a damaged log gets the nearest that can be.
    pub(crate) fn new(buckets: u8, width: Micros, weights: Weights) -> Self {
        let buckets = buckets.clamp(2, BUCKETS_MAX);
        Self {
            cells: Cells::None,
            width: width.max(1),
            newest: 0,
            sum: 0,
            decay: 0,
            buckets,
            head: 0,
            weights,
        }
    }

    pub(crate) fn shape(&self) -> (u8, Micros, Weights) {
        (self.buckets, self.width, self.weights)
    }

    /// How the ring stands at `now`.
    #[inline]
    pub(crate) fn at(&self, now: Micros) -> At {
        let start = self.newest.saturating_mul(self.width);
        // The common case costs no division.
        if now.wrapping_sub(start) < self.width && now >= start {
            return At { bucket: self.newest, gone: 0, inside: now - start, restart: false };
        }
        let bucket = now / self.width;
        if bucket >= self.newest {
            let gone = u8::try_from(bucket - self.newest).unwrap_or(u8::MAX).min(self.buckets);
            return At { bucket, gone, inside: now % self.width, restart: false };
        }
        if self.newest - bucket > 2 * u64::from(self.buckets) {
            return At { bucket, gone: 0, inside: now % self.width, restart: true };
        }
        At { bucket: self.newest, gone: 0, inside: 0, restart: false }
    }

    /// The clock has stepped back so far that the next write restarts the ring.
    pub(crate) fn restarts(&self, now: Micros) -> bool {
        self.at(now).restart
    }

    /// Posted in the window, by the ring's weights, rounded up.
    #[inline]
    pub(crate) fn posted(&self, at: At) -> u64 {
        let (sum, decay) = self.sums(at);
        match self.weights {
            Weights::Whole => sum,
            Weights::Oldest => {
                let oldest = self.amount(at, self.buckets.saturating_sub(1));
                sum - oldest + self.inside_part(oldest, at.inside)
            }
            Weights::Decay => decay.div_ceil(u64::from(self.buckets.max(1))),
        }
    }

    /// The smallest time after which at most `room` is posted in the window, if nothing else is; `extra` is counted as
    /// posted to the current bucket.
    pub(crate) fn wait(&self, at: At, now: Micros, room: u64, extra: u64) -> Micros {
        let (mut sum, mut decay) = self.sums(at);
        let n = self.buckets;
        sum += extra;
        decay += extra * u64::from(n);
        for step in 0..n {
            let oldest_age = n - 1 - step;
            let oldest = self.amount(at, oldest_age) + if oldest_age == 0 { extra } else { 0 };
            let inside = if step == 0 { at.inside } else { 0 };
            let fits = match self.weights {
                Weights::Whole => (sum <= room).then_some(inside),
                Weights::Oldest => self.fits_inside(sum - oldest, oldest, room, inside),
                Weights::Decay => (u128::from(decay) <= u128::from(room) * u128::from(n)).then_some(inside),
            };
            if let Some(inside) = fits {
                return self.instant(at.bucket.saturating_add(u64::from(step)), inside).saturating_sub(now);
            }
            decay -= sum;
            sum -= oldest;
        }
        self.instant(at.bucket.saturating_add(u64::from(n)), 0).saturating_sub(now)
    }

    /// Time until the window is empty if nothing else comes; `busy` counts something as posted now.
    pub(crate) fn reset(&self, at: At, now: Micros, busy: bool) -> Micros {
        let age = if busy { Some(0) } else { (0..self.buckets).find(|age| self.amount(at, *age) > 0) };
        let Some(age) = age else { return 0 };
        let left = u64::from(self.buckets) - u64::from(age);
        self.instant(at.bucket.saturating_add(left), 0).saturating_sub(now)
    }

    /// What could be taken out of bucket `number` now.
    pub(crate) fn in_bucket(&self, at: At, number: u64) -> u64 {
        match at.bucket.checked_sub(number).map(u8::try_from) {
            Some(Ok(age)) if age < self.buckets => self.amount(at, age),
            _ => 0,
        }
    }

    /// Make the bucket of `now` the newest; true if the ring had to restart.
    #[inline]
    pub(crate) fn advance(&mut self, now: Micros) -> bool {
        let at = self.at(now);
        if at.bucket == self.newest {
            return false;
        }
        if at.restart {
            self.clear();
            self.set(self.head, self.sum);
            self.decay = self.sum * u64::from(self.buckets);
        } else if at.gone >= self.buckets {
            self.clear();
            (self.sum, self.decay) = (0, 0);
        } else {
            for _ in 0..at.gone {
                self.head = if self.head + 1 < self.buckets { self.head + 1 } else { 0 };
                self.decay -= self.sum;
                self.sum -= self.cell(self.head);
                self.set(self.head, 0);
            }
        }
        self.newest = at.bucket;
        at.restart && self.sum > 0
    }

    /// Post to the newest bucket; the part that did not fit below 2^53.
    #[inline]
    pub(crate) fn post(&mut self, amount: u64) -> u64 {
        let taken = amount.min(AMOUNT_MAX - self.sum);
        self.add(taken);
        self.sum += taken;
        self.decay += taken * u64::from(self.buckets);
        amount - taken
    }

    /// Take out of bucket `number`, never below zero; the part that could not be taken.
    pub(crate) fn take_back(&mut self, number: u64, amount: u64) -> u64 {
        let Some(Ok(age)) = self.newest.checked_sub(number).map(u8::try_from) else { return amount };
        if age >= self.buckets {
            return amount;
        }
        let index = self.index(age);
        let taken = amount.min(self.cell(index));
        self.set(index, self.cell(index) - taken);
        self.sum -= taken;
        self.decay -= taken * u64::from(self.buckets - age);
        amount - taken
    }

    /// Nothing is posted in any bucket at `now`.
    pub(crate) fn is_clear(&self, now: Micros) -> bool {
        self.sums(self.at(now)).0 == 0
    }

    /// Number of the newest bucket, and the amounts from newest to oldest without trailing zeros.
    pub(crate) fn dump(&self, into: &mut Vec<u64>) -> u64 {
        into.clear();
        into.extend((0..self.buckets).map(|age| self.cell(self.index(age))));
        while into.last() == Some(&0) {
            into.pop();
        }
        self.newest
    }

    /// The inverse of [`Ring::dump`], on a new ring.
    pub(crate) fn load(&mut self, newest: u64, amounts: &[u64]) {
        self.newest = newest;
        for (age, amount) in (0..self.buckets).zip(amounts) {
            let amount = (*amount).min(AMOUNT_MAX - self.sum);
            self.set(self.index(age), amount);
            self.sum += amount;
            self.decay += amount * u64::from(self.buckets - age);
        }
    }

    /// Sum and decayed sum at a time.
    #[inline]
    fn sums(&self, at: At) -> (u64, u64) {
        if at.restart {
            return (self.sum, self.sum * u64::from(self.buckets));
        }
        if at.gone >= self.buckets {
            return (0, 0);
        }
        let (mut sum, mut decay) = (self.sum, self.decay);
        for gone in 0..at.gone {
            decay -= sum;
            sum -= self.cell(self.index(self.buckets - 1 - gone));
        }
        (sum, decay)
    }

    /// Amount of the bucket that is `age` buckets older than the current one at a time.
    #[inline]
    fn amount(&self, at: At, age: u8) -> u64 {
        match (at.restart, age.checked_sub(at.gone)) {
            (true, _) => {
                if age == 0 {
                    self.sum
                } else {
                    0
                }
            }
            (false, None) => 0,
            (false, Some(age)) => self.cell(self.index(age)),
        }
    }

    /// The part of the oldest bucket still inside the window, rounded up.
    fn inside_part(&self, oldest: u64, inside: Micros) -> u64 {
        let left = u128::from(oldest) * u128::from(self.width - inside.min(self.width));
        u64::try_from(left.div_ceil(u128::from(self.width))).unwrap_or(oldest)
    }

    /// The first time inside a bucket, from `inside` on, at which the weighted oldest one leaves enough room.
    fn fits_inside(&self, rest: u64, oldest: u64, room: u64, inside: Micros) -> Option<Micros> {
        let room = room.checked_sub(rest)?;
        if self.inside_part(oldest, inside) <= room {
            return Some(inside);
        }
        // oldest > room here, so it is not 0: oldest × (width − t) ≤ room × width.
        let still = u128::from(room) * u128::from(self.width) / u128::from(oldest);
        let first = self.width - u64::try_from(still).unwrap_or(self.width).min(self.width);
        (first < self.width).then_some(first)
    }

    fn instant(&self, bucket: u64, inside: Micros) -> Micros {
        bucket.saturating_mul(self.width).saturating_add(inside)
    }

    /// Index of the cell that is `age` older than the newest.
    #[inline]
    fn index(&self, age: u8) -> u8 {
        if age <= self.head { self.head - age } else { (self.head + self.buckets).saturating_sub(age) }
    }

    #[inline]
    fn cell(&self, index: u8) -> u64 {
        match &self.cells {
            Cells::None => 0,
            Cells::Narrow(cells) => cells.get(usize::from(index)).copied().map_or(0, u64::from),
            Cells::Wide(cells) => cells.get(usize::from(index)).copied().unwrap_or(0),
        }
    }

    fn set(&mut self, index: u8, amount: u64) {
        if matches!(self.cells, Cells::None) {
            if amount == 0 {
                return;
            }
            self.cells = Cells::Narrow(vec![0; usize::from(self.buckets)].into());
        }
        if let (Cells::Narrow(cells), Err(_)) = (&self.cells, u32::try_from(amount)) {
            self.cells = Cells::Wide(cells.iter().copied().map(u64::from).collect());
        }
        match &mut self.cells {
            Cells::None => {}
            Cells::Narrow(cells) => {
                if let (Some(cell), Ok(amount)) = (cells.get_mut(usize::from(index)), u32::try_from(amount)) {
                    *cell = amount;
                }
            }
            Cells::Wide(cells) => {
                if let Some(cell) = cells.get_mut(usize::from(index)) {
                    *cell = amount;
                }
            }
        }
    }

    /// Add to the newest cell.
    #[inline]
    fn add(&mut self, amount: u64) {
        if let Cells::Narrow(cells) = &mut self.cells
            && let Some(cell) = cells.get_mut(usize::from(self.head))
            && let Some(sum) = u32::try_from(amount).ok().and_then(|amount| cell.checked_add(amount))
        {
            *cell = sum;
            return;
        }
        self.set(self.head, self.cell(self.head) + amount);
    }

    fn clear(&mut self) {
        match &mut self.cells {
            Cells::None => {}
            Cells::Narrow(cells) => cells.fill(0),
            Cells::Wide(cells) => cells.fill(0),
        }
    }
}

/// Equal if they hold the same amounts in the same buckets, however wide their cells are.
impl PartialEq for Ring {
    fn eq(&self, other: &Self) -> bool {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        self.shape() == other.shape()
            && self.dump(&mut left) == other.dump(&mut right)
            && left == right
            && (self.sum, self.decay) == (other.sum, other.decay)
    }
}

impl Eq for Ring {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Ring, Weights};
    use crate::units::{AMOUNT_MAX, Micros};

    fn post(ring: &mut Ring, now: Micros, amount: u64) -> u64 {
        ring.advance(now);
        ring.post(amount)
    }

    /// The window by its definition, from a list of postings.
    fn by_definition(posts: &[(u64, u64)], n: u8, width: Micros, weights: Weights, now: Micros) -> u64 {
        let n = u64::from(n);
        let current = now / width;
        let inside = now % width;
        let aged = |age: u64| -> u128 {
            posts.iter().filter(|(bucket, _)| bucket + age == current).map(|(_, x)| u128::from(*x)).sum()
        };
        let total = match weights {
            Weights::Whole => (0..n).map(aged).sum::<u128>(),
            Weights::Oldest => {
                (0..n - 1).map(aged).sum::<u128>()
                    + (aged(n - 1) * u128::from(width - inside)).div_ceil(u128::from(width))
            }
            Weights::Decay => {
                (0..n).map(|age| aged(age) * u128::from(n - age)).sum::<u128>().div_ceil(u128::from(n))
            }
        };
        u64::try_from(total).unwrap()
    }

    fn any_weights() -> impl Strategy<Value = Weights> {
        prop_oneof![Just(Weights::Whole), Just(Weights::Oldest), Just(Weights::Decay)]
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_definition(
            n in 2_u8..8,
            width in 1_u64..50,
            weights in any_weights(),
            steps in prop::collection::vec((0_u64..120, 0_u64..5_000_000_000), 1..60),
        ) {
            let mut ring = Ring::new(n, width, weights);
            let (mut now, mut posts) = (1_000, Vec::new());
            for (pause, amount) in steps {
                now += pause;
                prop_assert_eq!(ring.posted(ring.at(now)), by_definition(&posts, n, width, weights, now));
                prop_assert_eq!(post(&mut ring, now, amount), 0);
                posts.push((now / width, amount));
                prop_assert_eq!(ring.posted(ring.at(now)), by_definition(&posts, n, width, weights, now));
            }
        }

        /// The wait is the first microsecond at which the amount fits.
        #[test]
        fn wait_is_exact(
            n in 2_u8..6,
            width in 1_u64..20,
            weights in any_weights(),
            steps in prop::collection::vec((0_u64..30, 0_u64..40), 1..20),
            pause in 0_u64..60,
            room in 0_u64..120,
            extra in 0_u64..20,
        ) {
            let mut ring = Ring::new(n, width, weights);
            let mut now = 1_000;
            for (pause, amount) in steps {
                now += pause;
                post(&mut ring, now, amount);
            }
            now += pause;
            let wait = ring.wait(ring.at(now), now, room, extra);
            post(&mut ring, now, extra);
            prop_assert!(ring.posted(ring.at(now + wait)) <= room);
            for before in now..now + wait {
                prop_assert!(ring.posted(ring.at(before)) > room);
            }
        }
    }

    #[test]
    fn l12_a_small_step_back_stands_still_a_large_one_restarts() {
        let mut ring = Ring::new(4, 10, Weights::Whole);
        post(&mut ring, 1_000, 5);
        post(&mut ring, 1_010, 7);
        // Two windows are 8 buckets: 80 back stands still, 90 back restarts.
        assert_eq!((ring.at(930).bucket, ring.posted(ring.at(930))), (101, 12));
        assert!(!ring.clone().advance(930));
        assert!(ring.advance(920));
        ring.post(1);
        assert_eq!((ring.at(920).bucket, ring.posted(ring.at(920))), (92, 13));
        assert_eq!(ring.posted(ring.at(959)), 13);
        assert_eq!(ring.posted(ring.at(960)), 0);
    }

    #[test]
    fn l13_the_sum_stops_at_the_largest_amount() {
        let mut ring = Ring::new(64, 1, Weights::Decay);
        assert_eq!(post(&mut ring, 7, AMOUNT_MAX), 0);
        assert_eq!(post(&mut ring, 8, 3), 3);
        assert_eq!(ring.posted(ring.at(8)), (AMOUNT_MAX * 63).div_ceil(64));
    }

    #[test]
    fn taking_back_never_goes_below_zero_nor_outside_the_ring() {
        let mut ring = Ring::new(3, 10, Weights::Whole);
        post(&mut ring, 100, 2);
        post(&mut ring, 110, 2);
        assert_eq!(ring.take_back(10, 3), 1);
        ring.advance(131);
        assert_eq!(ring.take_back(10, 1), 1);
        assert_eq!(ring.take_back(99, 1), 1);
        assert_eq!(ring.posted(ring.at(131)), 2);
        assert_eq!(ring.take_back(11, 1), 0);
        assert_eq!(ring.posted(ring.at(131)), 1);
    }
}
