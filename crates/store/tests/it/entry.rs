//! Entries: days, keys, sums, money as text.

use tollbook_ledger::{AMOUNT_MAX, ReservationId};
use tollbook_store::{Day, Entry, EntryBody, Origin, Usage, nano_text, shard_of, signed};

const DAY_MICROS: u64 = 86_400_000_000;

fn entry(origin: Origin, admitted_at: u64, ended_at: u64) -> Entry {
    Entry {
        reservation: ReservationId(1),
        attempt: 0,
        seq: 0,
        origin,
        admitted_at,
        ended_at,
        requests: 1,
        posted: Vec::new(),
        body: EntryBody::default(),
    }
}

#[test]
fn an_entry_counts_for_the_day_of_its_admission() {
    let over_midnight = entry(Origin::Settled, 3 * DAY_MICROS - 1, 3 * DAY_MICROS + 1);
    assert_eq!(over_midnight.day(), Day(2));
    assert_eq!(entry(Origin::Settled, 0, 3 * DAY_MICROS).day(), Day(3));
    assert_eq!(Day::of(u64::MAX), Day(213_503_982));
}

#[test]
fn l08_unbooked_entries_have_keys_of_their_own() {
    let (booked, unbooked) = (entry(Origin::Settled, 1, 2), entry(Origin::Unbooked, 1, 2));
    assert_ne!(booked.key(), unbooked.key());
}

#[test]
fn l13_amounts_are_cut_at_the_largest() {
    assert_eq!(signed(AMOUNT_MAX), 9_007_199_254_740_991);
    assert_eq!(signed(AMOUNT_MAX + 1), 9_007_199_254_740_991);
    assert_eq!(signed(u64::MAX), 9_007_199_254_740_991);
}

#[test]
fn usage_adds_and_subtracts_part_by_part() {
    let one = Usage { input: 10, cached: 4, output: 7, reasoning: 2, web_searches: 1, ..Usage::default() };
    let two = Usage { input: 1, output: 9, audio_output: 3, ..Usage::default() };
    assert_eq!(one.plus(&two).minus(&two), one);
    assert_eq!(one.minus(&two).llm_tokens(), 7);
    assert_eq!(Usage { input: i64::MAX, ..one }.plus(&one).input, i64::MAX);
}

#[test]
fn b089_money_as_text_is_exact() {
    for (nano, text) in [
        (0, "0"),
        (1, "0.000000001"),
        (8_000, "0.000008"),
        (662_000_000, "0.662"),
        (1_000_000_000, "1"),
        (-1_500_000_000, "-1.5"),
        (i64::MAX, "9223372036.854775807"),
        (i64::MIN, "-9223372036.854775808"),
    ] {
        assert_eq!(nano_text(nano), text);
    }
}

/// Part of the stored form: what was once in a shard is looked for there for ever.
#[test]
fn an_owners_shard_is_the_crc_of_its_id() {
    assert_eq!([shard_of("acme"), shard_of("")], [62, 0]);
}
