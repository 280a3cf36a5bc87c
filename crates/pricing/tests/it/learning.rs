//! What settled usage teaches.

use crate::world::used;
use proptest::prelude::*;
use tollbook_pricing::{Learned, RATIO_MAX, RATIO_MIN};
use tollbook_wire::Usage;

fn taught(samples: &[(u64, Usage)]) -> Learned {
    let mut learned = Learned::default();
    for (estimate, usage) in samples {
        learned.learn(*estimate, usage);
    }
    learned
}

#[test]
fn nothing_learned_corrects_nothing() {
    let learned = Learned::default();
    assert_eq!((learned.ratio(), learned.cached_share(), learned.correct(123)), (1_000, 0, 123));
}

#[test]
fn a_steady_ratio_is_found() {
    let learned = taught(&[(10_000, used(15_000, 1)); 30]);
    assert!((1_480..=1_500).contains(&learned.ratio()), "{}", learned.ratio());
    let learned = taught(&[(10_000, used(6_000, 1)); 30]);
    assert!((600..=620).contains(&learned.ratio()), "{}", learned.ratio());
}

/// Tiny calls with a hidden prompt do not triple the estimate of a large one.
#[test]
fn tiny_calls_do_not_inflate_large_ones() {
    let learned = taught(&[(10, used(33, 1)); 100]);
    assert!(learned.ratio() < 1_100, "{}", learned.ratio());
}

#[test]
fn a_change_is_followed_within_a_few_calls() {
    let mut learned = taught(&[(10_000, used(10_000, 1)); 30]);
    for _ in 0..8 {
        learned.learn(10_000, &used(20_000, 1));
    }
    assert!(learned.ratio() > 1_850, "{}", learned.ratio());
}

#[test]
fn the_share_read_from_a_cache_is_found_at_once() {
    let cached = Usage { cached: 8_000, ..used(10_000, 1) };
    assert_eq!(taught(&[(10_000, cached)]).cached_share(), 800);
}

/// Only what a provider reported as final teaches.
#[test]
fn guesses_teach_nothing() {
    let start = Usage { complete: false, ..used(10_000, 1) };
    let split = Usage { split_estimated: true, ..used(10_000, 1) };
    let missing = Usage { input_reported: false, ..used(10_000, 1) };
    assert_eq!(taught(&[(1, start), (1, split), (1, missing), (1, used(0, 5))]), Learned::default());
}

proptest! {
    #[test]
    fn the_correction_is_bounded(samples in prop::collection::vec((0u64..u64::MAX, 0u64..u64::MAX), 0..20)) {
        let mut learned = Learned::default();
        for (estimate, input) in samples {
            learned.learn(estimate, &Usage { cached: input, ..used(input, 0) });
            prop_assert!((RATIO_MIN..=RATIO_MAX).contains(&learned.ratio()));
            prop_assert!(learned.cached_share() <= 1_000);
        }
    }
}
