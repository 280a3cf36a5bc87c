//! What settled usage teaches.

use crate::world::{kinds, used};
use proptest::prelude::*;
use tollbook_pricing::{HIDDEN_MAX, Kinds, Learned, RATIO_MAX, RATIO_MIN, WEIGHT_MAX};
use tollbook_wire::Usage;

fn taught(samples: &[(u64, Usage)]) -> Learned {
    let mut learned = Learned::default();
    for (estimate, usage) in samples {
        learned.learn(&kinds(*estimate), usage);
    }
    learned
}

/// A call of chat: `ascii` of text in a frame of six.
fn chat(ascii: u64) -> Kinds {
    Kinds { ascii, around: 6, ..Kinds::default() }
}

#[test]
fn nothing_learned_corrects_nothing() {
    let learned = Learned::default();
    let ratios = Kinds { ascii: 1_000, signs: 1_000, cjk: 1_000, other: 1_000, around: 1_000, known: 1_000 };
    assert_eq!((learned.ratios(), learned.hidden(), learned.cached_share()), (ratios, 0, 0));
    assert_eq!((learned.correct(&chat(123)), learned.samples()), (129, 0));
}

#[test]
fn a_steady_ratio_is_found() {
    let learned = taught(&[(10_000, used(15_000, 1)); 30]);
    assert!((1_480..=1_500).contains(&learned.ratios().ascii), "{:?}", learned.ratios());
    let learned = taught(&[(10_000, used(6_000, 1)); 30]);
    assert!((600..=620).contains(&learned.ratios().ascii), "{:?}", learned.ratios());
}

/// One key that writes English and Chinese in turn gets a ratio for each.
#[test]
fn each_kind_of_text_has_its_ratio() {
    let mut learned = Learned::default();
    for _ in 0..20 {
        learned.learn(&Kinds { ascii: 2_000, ..Kinds::default() }, &used(1_500, 1));
        learned.learn(&Kinds { cjk: 2_000, ..Kinds::default() }, &used(2_800, 1));
    }
    let ratios = learned.ratios();
    assert!((745..=770).contains(&ratios.ascii) && (1_370..=1_400).contains(&ratios.cjk), "{ratios:?}");
    assert_eq!((ratios.other, ratios.around), (1_000, 1_000), "what was never seen stays as it was");
}

/// A hidden prompt is learned as what it is: tiny calls do not inflate the estimate of a large one.
#[test]
fn a_hidden_prompt_does_not_inflate_large_calls() {
    let mut learned = Learned::default();
    for _ in 0..100 {
        learned.learn(&chat(10), &used(10 + 6 + 64, 1));
    }
    assert!((75..=81).contains(&learned.correct(&chat(10))), "{}", learned.correct(&chat(10)));
    assert!(learned.correct(&chat(10_000)) < 12_000, "{}", learned.correct(&chat(10_000)));
    assert!((40..=64).contains(&learned.hidden()), "{}", learned.hidden());
}

#[test]
fn a_change_is_followed_within_a_few_calls() {
    let mut learned = taught(&[(10_000, used(10_000, 1)); 30]);
    for _ in 0..8 {
        learned.learn(&kinds(10_000), &used(20_000, 1));
    }
    assert!(learned.ratios().ascii > 1_700, "{:?}", learned.ratios());
}

/// A usage that cannot be true of its text moves nothing far: 0 and missing teach nothing, anything else counts for at
/// most twice and at least half of what was expected.
#[test]
fn an_absurd_usage_does_not_poison_the_ratio() {
    let steady = taught(&[(25_000, used(25_000, 1)); 30]);
    for absurd in [0, 1, 25, 1_000_000_000, u64::MAX] {
        let mut learned = steady;
        learned.learn(&kinds(25_000), &Usage { cached: absurd, ..used(absurd, 1) });
        assert!((850..=1_200).contains(&learned.ratios().ascii), "{absurd}: {:?}", learned.ratios());
        for _ in 0..3 {
            learned.learn(&kinds(25_000), &used(25_000, 1));
        }
        assert!((900..=1_100).contains(&learned.ratios().ascii), "{absurd}: {:?}", learned.ratios());
    }
    let untouched = |usage: Usage| {
        let mut learned = steady;
        learned.learn(&kinds(25_000), &usage);
        learned == steady
    };
    assert!(untouched(used(0, 1)), "nothing reported, nothing learned");
    let mut young = Learned::default();
    young.learn(&kinds(25_000), &used(u64::MAX, 1));
    assert!(young.ratios().ascii <= 2_000, "{:?}", young.ratios());
}

/// One call of any size weighs no more than the bound: what small calls taught is not lost to it for long.
#[test]
fn a_giant_call_weighs_no_more_than_the_bound() {
    let mut learned = taught(&[(1_000, used(1_000, 1)); 30]);
    learned.learn(&kinds(100 * WEIGHT_MAX), &used(200 * WEIGHT_MAX, 1));
    let mut bound = taught(&[(1_000, used(1_000, 1)); 30]);
    bound.learn(&kinds(WEIGHT_MAX), &used(2 * WEIGHT_MAX, 1));
    assert_eq!(learned.ratios(), bound.ratios());
}

/// What was sent as numbers, and what is stored at the provider, is no text: the rest of the usage teaches.
#[test]
fn what_is_known_is_taken_off_before_learning() {
    let mut learned = Learned::default();
    for _ in 0..30 {
        learned.learn(&Kinds { ascii: 1_000, known: 8_192, ..Kinds::default() }, &used(8_192 + 800, 1));
    }
    assert!((800..=830).contains(&learned.ratios().ascii), "{:?}", learned.ratios());
    let before = learned;
    learned.learn(&Kinds { known: 5, ..Kinds::default() }, &used(5, 1));
    assert_eq!(learned, before, "numbers alone teach nothing");
}

/// Text of bytes that fall into no script of their own has a ratio like any other.
#[test]
fn text_of_other_bytes_alone_is_learned() {
    let mut learned = Learned::default();
    for _ in 0..30 {
        learned.learn(&Kinds { other: 3_000, ..Kinds::default() }, &used(1_500, 1));
    }
    assert!((500..=520).contains(&learned.ratios().other), "{:?}", learned.ratios());
}

#[test]
fn the_share_read_from_a_cache_is_found_at_once() {
    let cached = Usage { cached: 8_000, ..used(10_000, 1) };
    assert!((799..=800).contains(&taught(&[(10_000, cached)]).cached_share()));
    // the whole of the input teaches the ratio, cached or not
    assert_eq!(taught(&[(10_000, cached)]).ratios().ascii, 1_000);
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
    fn the_correction_is_bounded(samples in prop::collection::vec(
        (prop::array::uniform6((any::<u64>(), 0u32..64).prop_map(|(n, bits)| n >> bits)), any::<u64>(), 0u32..64),
        0..20,
    )) {
        let mut learned = Learned::default();
        for ([ascii, signs, cjk, other, around, known], input, bits) in samples {
            let input = input >> bits;
            let estimate = Kinds { ascii, signs, cjk, other, around, known };
            learned.learn(&estimate, &Usage { cached: input, ..used(input, 0) });
            let Kinds { ascii, signs, cjk, other, around, .. } = learned.ratios();
            for ratio in [ascii, signs, cjk, other, around] {
                prop_assert!((RATIO_MIN..=RATIO_MAX).contains(&ratio));
            }
            prop_assert!(learned.hidden() <= HIDDEN_MAX);
            prop_assert!(learned.cached_share() <= 1_000);
        }
    }
}
