//! Period starts, against instants written by hand.

use crate::world::{daily, quota, tenant, with};
use proptest::prelude::*;
use tollbook_ledger::Periods;
use tollbook_policy::{
    Anchor, Calendar, LimitDraft, Measure, PeriodCache, PeriodKind, PeriodRule, PeriodTable,
};

/// UTC seconds of an RFC 3339 time.
fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_second()).unwrap()
}

fn calendar(kind: PeriodKind, zone: &str, anchor: Option<Anchor>) -> Calendar {
    let zone = (!matches!(kind, PeriodKind::Minute | PeriodKind::Lifetime)).then_some(zone);
    let limit = LimitDraft { shape: quota(kind, zone, anchor), ..daily(tenant("acme"), Measure::Tokens, 1) };
    with(vec![limit]).calendars().next().unwrap().clone()
}

fn starts(calendar: &Calendar, now: &str) -> [String; 4] {
    let Periods::Calendar(starts) = calendar.periods_around(at(now)) else { panic!("not a calendar") };
    starts.map(|start| jiff::Timestamp::from_second(i64::try_from(start).unwrap()).unwrap().to_string())
}

/// Kind, zone, anchor, a now, and the four starts around it.
type Row = (PeriodKind, &'static str, Option<Anchor>, &'static str, [&'static str; 4]);

#[test]
fn b180_b176_starts_around_known_instants() {
    use PeriodKind::{Day, Hour, Month, Week};
    let table: &[Row] = &[
        (
            Day,
            "Asia/Tokyo",
            None,
            "2026-10-31T14:59:59Z",
            ["2026-10-29T15:00:00Z", "2026-10-30T15:00:00Z", "2026-10-31T15:00:00Z", "2026-11-01T15:00:00Z"],
        ),
        (
            Day,
            "Asia/Kathmandu",
            None,
            "2026-11-01T00:00:00Z",
            ["2026-10-30T18:15:00Z", "2026-10-31T18:15:00Z", "2026-11-01T18:15:00Z", "2026-11-02T18:15:00Z"],
        ),
        // 23 hours
        (
            Day,
            "Europe/Amsterdam",
            None,
            "2026-03-29T12:00:00Z",
            ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"],
        ),
        // 25 hours
        (
            Day,
            "Europe/Amsterdam",
            None,
            "2026-10-25T22:59:59Z",
            ["2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z"],
        ),
        // no midnight: the day begins at one
        (
            Day,
            "Africa/Cairo",
            None,
            "2026-04-24T10:00:00Z",
            ["2026-04-22T22:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z", "2026-04-25T21:00:00Z"],
        ),
        // midnight twice: the day begins at the first
        (
            Day,
            "America/Havana",
            None,
            "2023-11-05T05:30:00Z",
            ["2023-11-04T04:00:00Z", "2023-11-05T04:00:00Z", "2023-11-06T05:00:00Z", "2023-11-07T05:00:00Z"],
        ),
        // a whole day that never was
        (
            Day,
            "Pacific/Apia",
            None,
            "2011-12-30T09:00:00Z",
            ["2011-12-28T10:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"],
        ),
        (
            Hour,
            "Asia/Kathmandu",
            None,
            "2026-06-01T12:14:59Z",
            ["2026-06-01T10:15:00Z", "2026-06-01T11:15:00Z", "2026-06-01T12:15:00Z", "2026-06-01T13:15:00Z"],
        ),
        // the repeated hour is an hour of its own
        (
            Hour,
            "Europe/Amsterdam",
            None,
            "2026-10-25T01:30:00Z",
            ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"],
        ),
        // half an hour is repeated: one hour of 90 minutes
        (
            Hour,
            "Australia/Lord_Howe",
            None,
            "2026-04-04T15:15:00Z",
            ["2026-04-04T13:00:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:30:00Z", "2026-04-04T16:30:00Z"],
        ),
        (
            Week,
            "UTC",
            None,
            "2026-11-01T23:59:59Z",
            ["2026-10-19T00:00:00Z", "2026-10-26T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z"],
        ),
        (
            Week,
            "America/New_York",
            Some(Anchor::Weekday(7)),
            "2026-11-01T04:00:00Z",
            ["2026-10-25T04:00:00Z", "2026-11-01T04:00:00Z", "2026-11-08T05:00:00Z", "2026-11-15T05:00:00Z"],
        ),
        // clamped to the length of the month, and no drift after it
        (
            Month,
            "UTC",
            Some(Anchor::DayOfMonth(31)),
            "2026-03-15T00:00:00Z",
            ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-30T00:00:00Z"],
        ),
        (
            Month,
            "UTC",
            Some(Anchor::DayOfMonth(31)),
            "2028-02-29T00:00:00Z",
            ["2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z", "2028-04-30T00:00:00Z"],
        ),
        (
            Month,
            "America/Los_Angeles",
            None,
            "2026-11-01T06:59:59Z",
            ["2026-09-01T07:00:00Z", "2026-10-01T07:00:00Z", "2026-11-01T07:00:00Z", "2026-12-01T08:00:00Z"],
        ),
        (
            Month,
            "UTC",
            None,
            "2026-12-31T23:59:59Z",
            ["2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"],
        ),
    ];
    for (kind, zone, anchor, now, expected) in table {
        let calendar = calendar(*kind, zone, *anchor);
        assert_eq!(starts(&calendar, now), *expected, "{kind:?} {zone} {now}");
    }
}

/// B176: exhausted for the month, admitted from local midnight on and not a second later or earlier.
#[test]
fn b176_a_month_ends_at_local_midnight() {
    for (zone, midnight) in [
        ("Asia/Tokyo", "2026-11-01T00:00:00+09:00"),
        ("America/Los_Angeles", "2026-11-01T00:00:00-07:00"),
        ("Asia/Kathmandu", "2026-11-01T00:00:00+05:45"),
    ] {
        let calendar = calendar(PeriodKind::Month, zone, None);
        let midnight = at(midnight);
        assert_eq!(calendar.current(midnight - 1).1, midnight, "{zone}");
        assert_eq!(calendar.current(midnight).0, midnight, "{zone}");
    }
}

/// B178: one year of an anchor on the 31st, from boundary to boundary.
#[test]
fn b178_an_anchor_does_not_drift() {
    let calendar = calendar(PeriodKind::Month, "UTC", Some(Anchor::DayOfMonth(31)));
    let mut now = at("2027-01-31T00:00:00Z");
    let mut days = Vec::new();
    for _ in 0..14 {
        let (start, end) = calendar.current(now);
        assert_eq!(start, now);
        days.push(
            jiff::Timestamp::from_second(i64::try_from(start).unwrap())
                .unwrap()
                .strftime("%m-%d")
                .to_string(),
        );
        now = end;
    }
    assert_eq!(
        days,
        [
            "01-31", "02-28", "03-31", "04-30", "05-31", "06-30", "07-31", "08-31", "09-30", "10-31",
            "11-30", "12-31", "01-31", "02-29"
        ]
    );
}

/// B180: one reset on each change day, windows of 23 and 25 hours.
#[test]
fn b180_a_day_is_as_long_as_the_clock_makes_it() {
    let calendar = calendar(PeriodKind::Day, "Europe/Amsterdam", None);
    let hours = |now: &str| {
        let (start, end) = calendar.current(at(now));
        (end - start) / 3600
    };
    assert_eq!(hours("2026-03-29T00:30:00Z"), 23);
    assert_eq!(hours("2026-10-25T00:30:00Z"), 25);
    assert_eq!(hours("2026-10-26T00:30:00Z"), 24);
}

/// B188: the reset is the calendar's, whenever the limit was made or first used.
#[test]
fn b188_a_day_resets_at_local_midnight() {
    let calendar = calendar(PeriodKind::Day, "Europe/Berlin", None);
    let (_, reset) = calendar.current(at("2026-06-10T13:43:00Z"));
    assert_eq!(reset, at("2026-06-11T00:00:00+02:00"));
    assert_eq!(calendar.current(reset - 1).1, reset);
    assert_eq!(calendar.current(reset).0, reset);
}

/// B190: every quota that is accepted has a reset that can be computed.
#[test]
fn b190_every_accepted_quota_has_a_next_reset() {
    for kind in [PeriodKind::Minute, PeriodKind::Hour, PeriodKind::Day, PeriodKind::Week, PeriodKind::Month] {
        let now = at("2026-06-10T13:43:00Z");
        let (start, end) = calendar(kind, "Asia/Tokyo", None).current(now);
        assert!(start <= now && now < end, "{kind:?}");
    }
    assert_eq!(calendar(PeriodKind::Lifetime, "UTC", None).current(5), (0, u64::MAX));
}

#[test]
fn near_the_epoch_the_first_period_begins_at_zero() {
    for kind in [PeriodKind::Minute, PeriodKind::Hour, PeriodKind::Day, PeriodKind::Week, PeriodKind::Month] {
        let calendar = Calendar::new(PeriodRule::utc(kind));
        let Periods::Calendar(starts) = calendar.periods_around(30) else { panic!() };
        assert_eq!(starts[0], 0, "{kind:?}");
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "{kind:?} {starts:?}");
        assert_eq!(calendar.current(30), (0, starts[1]), "{kind:?}");
    }
}

#[test]
fn a_cache_answers_only_for_its_own_period() {
    let calendar = calendar(PeriodKind::Day, "Africa/Cairo", None);
    let now = at("2026-04-24T10:00:00Z");
    let mut cache = PeriodCache::EMPTY;
    assert_eq!(cache.get(now), None);
    let periods = cache.refresh(&calendar, now);
    let (start, end) = calendar.current(now);
    assert_eq!(cache.get(start), Some(periods));
    assert_eq!(cache.get(end - 1), Some(periods));
    assert_eq!((cache.get(end), cache.get(start - 1)), (None, None));
    assert_ne!(cache.refresh(&calendar, end), periods);
}

#[test]
fn a_table_is_valid_until_the_first_of_its_calendars_turns() {
    let day =
        LimitDraft { shape: quota(PeriodKind::Day, None, None), ..daily(tenant("acme"), Measure::Tokens, 1) };
    let hour = LimitDraft { shape: quota(PeriodKind::Hour, None, None), ..day.clone() };
    let catalog = with(vec![day, hour]);
    let now = at("2026-06-10T13:43:00Z");
    let table = PeriodTable::new(catalog.calendars(), now);
    assert!(table.valid(now) && table.valid(at("2026-06-10T13:59:59Z")));
    assert!(!table.valid(at("2026-06-10T14:00:00Z")) && !table.valid(at("2026-06-10T12:59:59Z")));
    for (_, rule) in catalog.rules() {
        let own = catalog.calendar(rule.calendar.unwrap()).unwrap();
        assert_eq!(table.get(rule.calendar), own.periods_around(now));
    }
    assert_eq!(table.get(None), Periods::None);
}

/// Every zone of the table, over fifty years of odd instants: the period contains its time, starts grow, and
/// neighbouring periods agree.
#[test]
fn every_zone_every_kind_is_sound() {
    let kinds = [
        (PeriodKind::Hour, None),
        (PeriodKind::Day, None),
        (PeriodKind::Week, Some(Anchor::Weekday(7))),
        (PeriodKind::Month, Some(Anchor::DayOfMonth(31))),
    ];
    let database = jiff::tz::TimeZoneDatabase::bundled();
    let mut seen = 0;
    for (index, zone) in database.available().enumerate() {
        let (kind, anchor) = kinds[index % kinds.len()];
        let calendar = calendar(kind, zone.as_str(), anchor);
        for step in 0..40u64 {
            sound(&calendar, 400_000_000 + step * 39_916_801 + index as u64 * 7_919);
        }
        seen += 1;
    }
    assert!(seen > 400);
}

fn sound(calendar: &Calendar, now: u64) {
    let Periods::Calendar([before, start, end, after]) = calendar.periods_around(now) else { panic!() };
    assert!(before < start && start <= now && now < end && end < after, "{calendar:?} {now}");
    let Periods::Calendar(next) = calendar.periods_around(end) else { panic!() };
    assert_eq!([next[0], next[1], next[2]], [start, end, after], "{calendar:?} {now}");
    let Periods::Calendar(last) = calendar.periods_around(start - 1) else { panic!() };
    assert_eq!([last[1], last[2], last[3]], [before, start, end], "{calendar:?} {now}");
}

proptest! {
    #[test]
    fn the_period_of_any_instant_contains_it(now in 86_400u64 * 40..4_000_000_000, zone in 0usize..6, kind in 0usize..5) {
        let zones =
            ["UTC", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "America/Havana", "Pacific/Apia"];
        let kinds =
            [PeriodKind::Minute, PeriodKind::Hour, PeriodKind::Day, PeriodKind::Week, PeriodKind::Month];
        sound(&calendar(kinds[kind], zones[zone], None), now);
    }
}
