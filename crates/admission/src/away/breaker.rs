//! Whether a shard of the book is asked at all.
//!
//! Invariants: a gate opens after so many failures in a row, or when so large a share of its last verbs failed or was
//! slow; an open one is closed by a probe alone. Every shard has a gate, because a cluster can lose a part; the whole book
//! has one over all shards, so that one that is gone is not found out 256 times; that one opens for failures in a row
//! alone, because a share of all verbs may be those of one busy shard. While all is well a verb costs three loads.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tollbook_engine::Shard;

/// Verbs that a gate remembers at most.
pub const OF_LAST_MAX: u32 = 64;
/// Failures in a row that can be asked for at most.
pub const FAILURES_MAX: u32 = 1_000;
const SHARDS: usize = 256;

/// When a gate opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerBounds {
    /// Failures in a row, 1 to [`FAILURES_MAX`].
    pub failures: u32,
    /// The last so many verbs, 1 to [`OF_LAST_MAX`], ...
    pub of_last: u32,
    /// ... of which so many in a hundred failed or were slow, 1 to 100.
    pub share: u32,
    /// From here on a verb is slow.
    pub slow: Duration,
}

impl Default for BreakerBounds {
    fn default() -> Self {
        Self { failures: 5, of_last: 32, share: 75, slow: Duration::from_millis(200) }
    }
}

impl BreakerBounds {
    /// As near to what was asked for as can be.
    fn kept(self) -> Self {
        Self {
            failures: self.failures.clamp(1, FAILURES_MAX),
            of_last: self.of_last.clamp(1, OF_LAST_MAX),
            share: self.share.clamp(1, 100),
            slow: self.slow,
        }
    }
}

/// What became of a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Well,
    Slow,
    Failed,
}

#[derive(Debug, Default)]
struct Gate {
    /// Failures in a row.
    row: AtomicU32,
    /// The last verbs, the newest in the lowest bit; 1: it failed or was slow.
    last: AtomicU64,
    open: AtomicBool,
}

impl Gate {
    /// Notes a verb; true if the gate has to open.
    fn note(&self, told: Told, bounds: &BreakerBounds) -> bool {
        let well = told == Told::Well;
        if well && self.row.load(Ordering::Relaxed) == 0 && self.last.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let in_a_row = self.note_row(told, bounds);
        let shifted = |last: u64| Some(last << 1 | u64::from(!well));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shifted).unwrap_or_default();
        let last = (last << 1 | u64::from(!well)) & (u64::MAX >> OF_LAST_MAX.saturating_sub(bounds.of_last));
        !well && (in_a_row || last.count_ones() * 100 >= bounds.of_last * bounds.share)
    }

    /// Notes a verb; true if so many have failed, with none that did not in between.
    fn note_row(&self, told: Told, bounds: &BreakerBounds) -> bool {
        if told == Told::Failed {
            return self.row.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= bounds.failures;
        }
        if self.row.load(Ordering::Relaxed) > 0 {
            self.row.store(0, Ordering::Relaxed);
        }
        false
    }

    fn close(&self) -> bool {
        self.row.store(0, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
        self.open.swap(false, Ordering::Relaxed)
    }
}

/// All gates of a book.
#[derive(Debug)]
pub(crate) struct Breaker {
    bounds: BreakerBounds,
    whole: Gate,
    shards: Box<[Gate]>,
    /// Gates that are open.
    open: AtomicU32,
}

impl Breaker {
    pub(crate) fn new(bounds: BreakerBounds) -> Self {
        let shards = (0..SHARDS).map(|_| Gate::default()).collect();
        Self { bounds: bounds.kept(), whole: Gate::default(), shards, open: AtomicU32::new(0) }
    }

    pub(crate) fn bounds(&self) -> &BreakerBounds {
        &self.bounds
    }

    /// The shard is not to be asked.
    pub(crate) fn is_open(&self, shard: Shard) -> bool {
        self.open.load(Ordering::Relaxed) > 0
            && (self.is_whole_open()
                || self.gate(shard).is_some_and(|gate| gate.open.load(Ordering::Relaxed)))
    }

    pub(crate) fn is_whole_open(&self) -> bool {
        self.whole.open.load(Ordering::Relaxed)
    }

    /// Shards whose own gates are open.
    pub(crate) fn shards_open(&self) -> impl Iterator<Item = Shard> {
        let shards = (0..=u8::MAX).zip(&self.shards);
        shards.filter(|(_, gate)| gate.open.load(Ordering::Relaxed)).map(|(shard, _)| Shard(shard))
    }

    /// Shards that are not asked.
    pub(crate) fn count_open(&self) -> u64 {
        let open = if self.is_whole_open() { SHARDS } else { self.shards_open().count() };
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    /// A verb of a shard has ended; how many gates opened for it.
    pub(crate) fn told(&self, shard: Shard, told: Told) -> u64 {
        let own = self.gate(shard).is_some_and(|gate| gate.note(told, &self.bounds) && self.open_gate(gate));
        let whole = self.whole.note_row(told, &self.bounds) && self.open_gate(&self.whole);
        u64::from(own) + u64::from(whole)
    }

    /// A probe of the shard was answered well: its gate closes, and that of the whole; how many were open.
    pub(crate) fn answered(&self, shard: Shard) -> u64 {
        let own = self.gate(shard).is_some_and(Gate::close);
        let closed = u32::from(own) + u32::from(self.whole.close());
        self.open.fetch_sub(closed, Ordering::Relaxed);
        u64::from(closed)
    }

    fn open_gate(&self, gate: &Gate) -> bool {
        // Counted first: a gate that is open is never overlooked.
        self.open.fetch_add(1, Ordering::Relaxed);
        let news = !gate.open.swap(true, Ordering::Relaxed);
        if !news {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        news
    }

    fn gate(&self, shard: Shard) -> Option<&Gate> {
        self.shards.get(usize::from(shard.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(BreakerBounds::default())
    }

    #[test]
    fn failures_in_a_row_open_a_gate_and_a_probe_closes_it() {
        let breaker = breaker();
        let shard = Shard(3);
        for round in 0..3 {
            for _ in 0..4 {
                assert_eq!(breaker.told(shard, Told::Failed), 0);
            }
            assert!(!breaker.is_open(shard));
            assert_eq!(breaker.told(shard, Told::Failed), 2, "round {round}: the shard's and the whole's");
            assert!(breaker.is_open(shard) && breaker.is_open(Shard(4)));
            assert_eq!(breaker.count_open(), 256);
            assert_eq!(breaker.told(shard, Told::Failed), 0, "it is open already");
            assert_eq!(breaker.answered(shard), 2);
            assert!(!breaker.is_open(shard) && !breaker.is_open(Shard(4)));
            assert_eq!((breaker.count_open(), breaker.answered(shard)), (0, 0));
        }
    }

    /// A cluster that has lost a node: the others answer in between.
    #[test]
    fn a_shard_that_is_lost_leaves_the_others_open_to_calls() {
        let breaker = breaker();
        for _ in 0..5 {
            breaker.told(Shard(1), Told::Failed);
            for other in 2..5 {
                breaker.told(Shard(other), Told::Well);
            }
        }
        assert!(breaker.is_open(Shard(1)) && !breaker.is_open(Shard(2)) && !breaker.is_whole_open());
        assert_eq!(breaker.shards_open().collect::<Vec<_>>(), [Shard(1)]);
        assert_eq!(breaker.answered(Shard(2)), 0, "another shard's answer says nothing of it");
        assert!(breaker.is_open(Shard(1)));
        assert_eq!(breaker.answered(Shard(1)), 1);
    }

    #[test]
    fn slowness_opens_a_gate_at_its_share_of_the_last_verbs() {
        let breaker = breaker();
        let shard = Shard(9);
        // Three of four: 24 of the last 32, with the 31st.
        let told = |verb| if verb % 4 == 3 { Told::Well } else { Told::Slow };
        let opened = (0..100).position(|verb| breaker.told(shard, told(verb)) > 0);
        assert_eq!(opened, Some(30));
        let breaker = self::breaker();
        for verb in 0..1_000 {
            let told = if verb % 2 == 0 { Told::Well } else { Told::Slow };
            assert_eq!(breaker.told(shard, told), 0, "half is less than the share");
        }
    }

    /// However busy it is: 24 of the last 32 verbs of all shards are its own.
    #[test]
    fn a_slow_shard_leaves_the_others_open_to_calls() {
        let breaker = breaker();
        for verb in 0..1_000 {
            breaker.told(Shard(1), if verb % 2 == 0 { Told::Slow } else { Told::Failed });
            if verb % 4 == 0 {
                breaker.told(Shard(2), Told::Well);
            }
        }
        assert!(breaker.is_open(Shard(1)) && !breaker.is_open(Shard(2)) && !breaker.is_whole_open());
    }

    #[test]
    fn bounds_are_kept_within_bounds() {
        for (failures, of_last, share) in [(0, 0, 0), (u32::MAX, u32::MAX, u32::MAX)] {
            let bounds = BreakerBounds { failures, of_last, share, ..BreakerBounds::default() };
            let breaker = Breaker::new(bounds);
            let most = if failures == 0 { 1 } else { 64 };
            let opened = (0..most).position(|_| breaker.told(Shard(0), Told::Failed) > 0);
            assert_eq!(opened, Some(most - 1));
        }
    }
}
