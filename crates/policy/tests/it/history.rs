//! L16: limits are data, and what their past leaves behind.

use crate::world::{daily, draft, named, quota, rate, rpm, tenant, tpm, with};
use proptest::prelude::*;
use std::collections::BTreeSet;
use tollbook_policy::{
    Anchor, Call, Catalog, Draft, EstimatorChoice, HistoryRow, Hold, Limit, LimitDraft, Measure, MeterPair,
    OnExpiry, Opening, OpeningNeeded, PeriodKind, RaiseDraft, Scope, ShapeDraft, Strictness, Subject,
    WhenAway, diff,
};
use tollbook_policy::{LimitId, Weights};

/// A store of rows and what a gateway makes of it, start after start.
#[derive(Default)]
struct Gateway {
    rows: Vec<HistoryRow>,
}

impl Gateway {
    /// Starts with a file at a time, as after a restart: the rows go through their stored form.
    fn start(&mut self, now: u64, limits: Vec<LimitDraft>) -> (Catalog, Vec<OpeningNeeded>) {
        for row in &mut self.rows {
            row.definition = row.definition.as_ref().map(|limit| Limit::from_text(&limit.to_text()).unwrap());
        }
        let catalog = with(limits);
        let new = diff(&self.rows, &catalog, now);
        self.rows.extend(new);
        catalog.with_history(&self.rows, now)
    }
}

/// (ceiling, account name, shadow) of every limit that binds key k1 at a time, by account.
fn bound(catalog: &Catalog, now: u64) -> Vec<(u64, u64, bool)> {
    let key = catalog.key(&[1; 32]).unwrap();
    let binding = catalog.resolve(&Call { key, service: None, user: None, model: "base" }, now).unwrap();
    let mut all: Vec<_> = binding
        .accounts
        .iter()
        .flat_map(|bound| bound.limits.iter().map(|limit| (limit.ceiling, bound.account.name, limit.shadow)))
        .collect();
    all.sort_unstable();
    all
}

fn ceilings(catalog: &Catalog, now: u64) -> Vec<(u64, bool)> {
    let mut all: Vec<_> =
        bound(catalog, now).into_iter().map(|(ceiling, _, shadow)| (ceiling, shadow)).collect();
    all.sort_unstable();
    all
}

fn window(window_s: i64, ceiling: i128) -> Vec<LimitDraft> {
    vec![LimitDraft { shape: rate(window_s), ..tpm(tenant("acme"), ceiling) }]
}

fn zoned(zone: &str, ceiling: i128) -> Vec<LimitDraft> {
    vec![LimitDraft {
        shape: quota(PeriodKind::Day, Some(zone), None),
        ..daily(tenant("acme"), Measure::Tokens, ceiling)
    }]
}

fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_second()).unwrap()
}

/// B211: a changed ceiling meets the same account at once.
#[test]
fn l16_a_changed_ceiling_meets_the_same_account() {
    let mut gateway = Gateway::default();
    let (before, _) = gateway.start(1_000, window(60, 100));
    let (after, _) = gateway.start(1_010, window(60, 50));
    assert_eq!(bound(&before, 1_010)[0].1, bound(&after, 1_010)[0].1);
    assert_eq!(ceilings(&after, 1_010), [(50, false)]);
    assert_eq!(gateway.rows.len(), 2);
}

/// A changed window: the old account beside the new one, for one window of the old length, to the second.
#[test]
fn l16_a_changed_window_keeps_the_old_account_for_one_window() {
    let mut gateway = Gateway::default();
    let (before, _) = gateway.start(1_000, window(60, 100));
    let (after, _) = gateway.start(2_000, window(3600, 1_000));
    assert_eq!(ceilings(&after, 2_000), [(100, false), (1_000, false)]);
    assert_eq!(bound(&after, 2_000)[0], bound(&before, 1_000)[0]);
    assert_eq!(ceilings(&after, 2_059), [(100, false), (1_000, false)]);
    assert_eq!(ceilings(&after, 2_060), [(1_000, false)]);
    let key = after.key(&[1; 32]).unwrap();
    let binding = after.resolve(&Call { key, service: None, user: None, model: "base" }, 2_000).unwrap();
    assert_eq!(binding.valid_until, 2_060);
    let lines = after.explain(&binding, 2_000);
    let old = lines.iter().find(|line| line.ceiling == 100).unwrap();
    assert_eq!((old.until, old.name.as_str()), (Some(2_060), "tenant acme tokens rate"));
}

/// The same over a restart: the history in the store says it, not the process.
#[test]
fn l16_the_old_window_survives_a_restart() {
    let mut gateway = Gateway::default();
    gateway.start(1_000, window(3600, 100));
    gateway.start(2_000, window(60, 10));
    let (restarted, _) = gateway.start(3_000, window(60, 10));
    assert_eq!(gateway.rows.len(), 2);
    assert_eq!(ceilings(&restarted, 3_000), [(10, false), (100, false)]);
    let (later, _) = gateway.start(5_600, window(60, 10));
    assert_eq!(ceilings(&later, 5_600), [(10, false)]);
}

#[test]
fn l16_two_changes_of_the_window_leave_two_old_accounts() {
    let mut gateway = Gateway::default();
    gateway.start(1_000, window(600, 1));
    gateway.start(1_100, window(300, 2));
    let (catalog, _) = gateway.start(1_200, window(60, 3));
    assert_eq!(ceilings(&catalog, 1_200), [(1, false), (2, false), (3, false)]);
    assert_eq!(ceilings(&catalog, 1_500), [(1, false), (3, false)]);
    assert_eq!(ceilings(&catalog, 1_700), [(3, false)]);
}

/// Changed and changed back: the account is the current one again, with the current ceiling only.
#[test]
fn l16_a_window_changed_back_leaves_only_the_one_between() {
    let mut gateway = Gateway::default();
    gateway.start(1_000, window(60, 100));
    gateway.start(1_010, window(600, 7));
    let (catalog, _) = gateway.start(1_020, window(60, 200));
    assert_eq!(ceilings(&catalog, 1_020), [(7, false), (200, false)]);
}

/// The last ceiling of the old window counts, not every one it ever had.
#[test]
fn l16_an_old_window_keeps_its_last_ceiling() {
    let mut gateway = Gateway::default();
    gateway.start(1_000, window(600, 100));
    gateway.start(1_010, window(600, 50));
    let (catalog, _) = gateway.start(1_020, window(60, 9));
    assert_eq!(ceilings(&catalog, 1_020), [(9, false), (50, false)]);
}

#[test]
fn l16_a_removed_limit_is_gone_at_once_and_leaves_nothing_when_it_returns() {
    let mut gateway = Gateway::default();
    gateway.start(1_000, window(600, 100));
    let (removed, _) = gateway.start(1_010, Vec::new());
    assert_eq!(ceilings(&removed, 1_010), []);
    assert_eq!(gateway.rows.last().unwrap().definition, None);
    let (back, _) = gateway.start(1_020, window(60, 9));
    assert_eq!(ceilings(&back, 1_020), [(9, false)]);
    let versions: Vec<u32> = gateway.rows.iter().map(|row| row.version).collect();
    assert_eq!(versions, [1, 2, 3]);
}

/// B188: until the old day ends the old calendar counts; the new one is written, and counts from then on.
#[test]
fn l16_a_changed_zone_takes_effect_at_the_next_boundary_of_the_old_calendar() {
    let mut gateway = Gateway::default();
    let (before, _) = gateway.start(at("2026-06-01T00:00:00Z"), zoned("UTC", 100));
    let changed = at("2026-06-10T12:00:00Z");
    let boundary = at("2026-06-11T00:00:00Z");
    let (after, _) = gateway.start(changed, zoned("Asia/Tokyo", 100));
    let old_name = bound(&before, changed)[0].1;

    for now in [changed, boundary - 1] {
        let all = bound(&after, now);
        assert_eq!(all.len(), 2);
        for (_, name, shadow) in all {
            assert_eq!(shadow, name != old_name);
        }
    }
    let all = bound(&after, boundary);
    assert_eq!(all.len(), 1);
    assert!(all[0].1 != old_name && !all[0].2);

    // a restart in between says the same
    let (restarted, _) = gateway.start(boundary - 10, zoned("Asia/Tokyo", 100));
    assert_eq!(bound(&restarted, boundary - 10), bound(&after, boundary - 10));
    assert_eq!(bound(&restarted, boundary), bound(&after, boundary));
}

/// B188: no second budget on one local day: the new day starts with what the journal has since its beginning.
#[test]
fn l16_b188_a_changed_zone_needs_the_new_days_total() {
    let mut gateway = Gateway::default();
    gateway.start(at("2026-06-01T00:00:00Z"), zoned("UTC", 100));
    let changed = at("2026-06-10T20:00:00Z");
    let (_, openings) = gateway.start(changed, zoned("Asia/Tokyo", 100));
    let [opening] = openings.as_slice() else { panic!("one opening") };
    // Tokyo's 11 June began at 15:00 UTC; it is the day in which the old calendar ends
    assert_eq!(opening.period, at("2026-06-10T15:00:00Z"));
    assert_eq!(opening.since, changed);

    // changed in a Tokyo day that ends before the boundary, the new account sees its whole first day
    let mut gateway = Gateway::default();
    gateway.start(at("2026-06-01T00:00:00Z"), zoned("UTC", 100));
    let (_, openings) = gateway.start(at("2026-06-10T14:00:00Z"), zoned("Asia/Tokyo", 100));
    assert_eq!(openings, []);
}

#[test]
fn l16_a_ceiling_changed_with_the_zone_counts_at_once() {
    let mut gateway = Gateway::default();
    gateway.start(at("2026-06-01T00:00:00Z"), zoned("UTC", 100));
    let changed = at("2026-06-10T12:00:00Z");
    let (after, _) = gateway.start(changed, zoned("Asia/Tokyo", 40));
    assert_eq!(ceilings(&after, changed), [(40, false), (40, true)]);
}

/// Changed twice before the boundary, only the last one ever counts; changed back, nothing happens.
#[test]
fn l16_a_zone_changed_twice_or_back() {
    let mut gateway = Gateway::default();
    let (first, _) = gateway.start(at("2026-06-01T00:00:00Z"), zoned("UTC", 1));
    gateway.start(at("2026-06-10T10:00:00Z"), zoned("Asia/Tokyo", 2));
    let (third, _) = gateway.start(at("2026-06-10T11:00:00Z"), zoned("Europe/Berlin", 3));
    let now = at("2026-06-10T11:00:00Z");
    assert_eq!(ceilings(&third, now), [(3, false), (3, true)]);
    assert_eq!(bound(&third, now).iter().find(|b| !b.2).unwrap().1, bound(&first, now)[0].1);

    let (back, _) = gateway.start(at("2026-06-10T12:00:00Z"), zoned("UTC", 4));
    assert_eq!(bound(&back, now), [(4, bound(&first, now)[0].1, false)]);
}

/// The second change waits for the boundary of the calendar that is in force by then.
#[test]
fn l16_a_second_change_after_the_first_took_effect() {
    let mut gateway = Gateway::default();
    gateway.start(at("2026-06-01T00:00:00Z"), zoned("UTC", 1));
    gateway.start(at("2026-06-10T10:00:00Z"), zoned("Asia/Tokyo", 2));
    let (third, _) = gateway.start(at("2026-06-12T10:00:00Z"), zoned("Europe/Berlin", 3));
    let boundary = at("2026-06-12T15:00:00Z");
    assert_eq!(ceilings(&third, boundary - 1), [(3, false), (3, true)]);
    assert_eq!(ceilings(&third, boundary), [(3, false)]);
}

#[test]
fn l16_a_changed_anchor_waits_for_the_old_month_to_end() {
    let month = |day| {
        vec![LimitDraft {
            shape: quota(PeriodKind::Month, None, Some(Anchor::DayOfMonth(day))),
            ..daily(tenant("acme"), Measure::Cost, 10)
        }]
    };
    let mut gateway = Gateway::default();
    gateway.start(at("2026-01-01T00:00:00Z"), month(1));
    let (after, _) = gateway.start(at("2026-06-10T00:00:00Z"), month(15));
    assert_eq!(ceilings(&after, at("2026-06-30T23:59:59Z")), [(10, false), (10, true)]);
    assert_eq!(ceilings(&after, at("2026-07-01T00:00:00Z")), [(10, false)]);
}

/// A quota added in mid-period starts from the journal's total, unless it is to start from 0.
#[test]
fn l16_a_quota_added_in_mid_period_needs_an_opening() {
    let mut gateway = Gateway::default();
    gateway.start(at("2026-06-01T00:00:00Z"), Vec::new());
    let added = at("2026-06-10T12:00:00Z");
    let (catalog, openings) = gateway.start(added, zoned("Europe/Berlin", 100));
    let [opening] = openings.as_slice() else { panic!("one opening") };
    assert_eq!(opening.period, at("2026-06-10T00:00:00+02:00"));
    let account = opening.account(None).unwrap();
    assert_eq!(account.name, bound(&catalog, added)[0].1);
    assert_eq!(catalog.rule(opening.limit).unwrap().limit.measure, Measure::Tokens);

    // a repeat after a restart is the same opening, under the same id
    let (_, again) = gateway.start(added + 100, zoned("Europe/Berlin", 100));
    assert_eq!(again, openings);
    assert_eq!(again[0].adjust_id(account), opening.adjust_id(account));
    // and when its period is over there is nothing left to open
    assert_eq!(gateway.start(at("2026-06-11T00:00:00+02:00"), zoned("Europe/Berlin", 100)).1, []);

    let mut gateway = Gateway::default();
    let zero =
        zoned("UTC", 1).into_iter().map(|l| LimitDraft { opening: Some(Opening::Zero), ..l }).collect();
    assert_eq!(gateway.start(added, zero).1, []);
}

#[test]
fn l16_a_quota_there_since_the_period_began_needs_no_opening() {
    let mut gateway = Gateway::default();
    let midnight = at("2026-06-10T00:00:00Z");
    assert_eq!(gateway.start(midnight, zoned("UTC", 100)).1, []);
    assert_eq!(gateway.start(midnight + 1, zoned("UTC", 50)).1, []);
}

/// A renamed limit is the same account; a limit that was away for a while missed what passed meanwhile.
#[test]
fn l16_an_account_counts_whatever_its_limits_were_called() {
    let called = |name: &str| vec![named(name, daily(tenant("acme"), Measure::Tokens, 10))];
    let mut gateway = Gateway::default();
    let midnight = at("2026-06-10T00:00:00Z");
    gateway.start(midnight, called("a"));
    assert_eq!(gateway.start(midnight + 10, called("b")).1, []);
    gateway.start(midnight + 20, Vec::new());
    let (_, openings) = gateway.start(midnight + 30, called("a"));
    assert_eq!(openings.len(), 1);
    assert_eq!(openings[0].since, midnight + 30);
    let account = openings[0].account(None).unwrap();
    assert_eq!(openings[0].earlier_ids(account), [], "from midnight on it counted itself");
    // Away again: what it was opened with before is told, for it is in the account still.
    gateway.start(midnight + 40, Vec::new());
    let (_, again) = gateway.start(midnight + 50, called("c"));
    assert_eq!(again[0].earlier_ids(account), [openings[0].adjust_id(account)]);
}

/// A lifetime quota starts from everything there is.
#[test]
fn l16_a_lifetime_quota_opens_with_the_whole_journal() {
    let lifetime = LimitDraft {
        shape: quota(PeriodKind::Lifetime, None, None),
        ..daily(tenant("acme"), Measure::Cost, 10)
    };
    let (_, openings) = Gateway::default().start(at("2026-06-10T00:00:00Z"), vec![lifetime]);
    assert_eq!(openings[0].period, 0);
}

#[test]
fn l16_openings_of_each_user_name_each_users_account() {
    let each = daily(Scope::EachUser { tenant: "acme".to_owned() }, Measure::Tokens, 10);
    let (_, openings) = Gateway::default().start(at("2026-06-10T12:00:00Z"), vec![each]);
    assert_eq!(openings[0].account(None), None);
    let accounts: BTreeSet<_> = ["u1", "u2"].map(|user| openings[0].account(Some(user)).unwrap()).into();
    let ids: BTreeSet<u128> = accounts.iter().map(|&account| openings[0].adjust_id(account)).collect();
    assert_eq!((accounts.len(), ids.len()), (2, 2));
    let subject = Subject::User { tenant: "acme".to_owned(), user: "u1".to_owned() }.id();
    assert!(accounts.iter().any(|account| account.subject == subject));
}

/// Nothing is appended when nothing changed; a clock that stepped back makes no older version.
#[test]
fn l16_the_history_is_append_only_and_in_order() {
    let mut gateway = Gateway::default();
    gateway.start(1_000, window(60, 1));
    gateway.start(2_000, window(60, 1));
    // Where it is written is no part of what it says.
    let elsewhere = |limit: LimitDraft| LimitDraft { origin: Some("tenants[7]".into()), ..limit };
    gateway.start(2_000, window(60, 1).into_iter().map(elsewhere).collect());
    assert_eq!(gateway.rows.len(), 1);
    gateway.start(500, window(60, 2));
    let rows: Vec<_> = gateway.rows.iter().map(|row| (row.version, row.seen_at)).collect();
    assert_eq!(rows, [(1, 1_000), (2, 1_000)]);
}

/// A changed meter of a rate is another account: the old one binds for a window.
#[test]
fn l16_a_changed_meter_is_a_changed_account() {
    let limit = |meter| vec![LimitDraft { meter: Some(meter), ..tpm(tenant("acme"), 10) }];
    let mut gateway = Gateway::default();
    gateway.start(1_000, limit(MeterPair::PLAIN));
    let (after, _) = gateway.start(2_000, limit(MeterPair::WITHOUT_CACHE_READ));
    assert_eq!(ceilings(&after, 2_059).len(), 2);
    assert_eq!(ceilings(&after, 2_060).len(), 1);
}

/// At the bound of legs the configured limits stay and the leftovers are told as dropped.
#[test]
fn l16_leftovers_never_push_out_a_limit() {
    let many = |by: i64| -> Vec<LimitDraft> {
        let limit = |i: i64| {
            named(&format!("l{i}"), LimitDraft { shape: rate(3_600 + i * 60 + by), ..rpm(tenant("acme"), 1) })
        };
        (0..20).map(limit).collect()
    };
    let mut gateway = Gateway::default();
    gateway.start(1_000, many(0));
    let (after, _) = gateway.start(1_010, many(36_000));
    let key = after.key(&[1; 32]).unwrap();
    let binding = after.resolve(&Call { key, service: None, user: None, model: "base" }, 1_010).unwrap();
    assert_eq!((binding.accounts.len(), binding.dropped), (32, 8));
    let configured =
        binding.accounts.iter().flat_map(|b| &b.limits).filter(|limit| limit.id < LimitId(20)).count();
    assert_eq!(configured, 20);
}

/// The text of a definition as version 1 wrote it stays readable.
#[test]
fn stored_definitions_of_version_1_stay_readable() {
    let text = "limit 1\nname tpm%20of%20k%C3%A9y\nscope key acme we%0Ab k1\nmodel base\nmeasure tokens\n\
                rate 60 10 oldest\nceiling 1000\nstrictness hard\nhold worst\non_expiry charge\nwhen_away closed\n\
                meter_reserve 1000 0 1000 5000 5000 1000 1000 5000\nmeter_settle 1000 0 1000 5000 5000 1000 1000 5000\n\
                hold_factor 1250\nestimator constant 77\nshadow\ncount_denied";
    let limit = Limit::from_text(text).unwrap();
    assert_eq!(limit.name, "tpm of kéy");
    assert_eq!(limit.scope.to_string(), "key acme/we\nb/k1");
    assert_eq!((limit.strictness, limit.hold), (Strictness::Hard, Hold::Worst));
    assert_eq!((limit.on_expiry, limit.when_away), (OnExpiry::Charge, WhenAway::Closed));
    assert_eq!(limit.estimator, Some(EstimatorChoice::Constant(77)));
    assert!(limit.shadow && limit.count_denied && !limit.refund_failed);
    assert_eq!(limit.to_text(), text);
    for (wrong, field) in [
        ("limit 2", "version"),
        ("limit 1", "measure"),
        ("limit 1\nmeasure tokens\nrate x", "rate"),
        ("limit 1\nmeasure tokens\nquota fortnight", "quota"),
        ("limit 1\nmeasure tokens\nrate 60\nstrictness hard\nname %zz", "name"),
        (
            "limit 1\nname x\nscope tenant a\nmeasure tokens\nrate 60\nceiling 1\nstrictness hard\nraise 5",
            "raise",
        ),
    ] {
        assert_eq!(Limit::from_text(wrong).unwrap_err().0, field, "{wrong}");
    }
}

fn any_shape() -> impl Strategy<Value = (Measure, ShapeDraft)> {
    let zones = prop::sample::select(vec!["UTC", "Asia/Kathmandu", "America/Argentina/Buenos_Aires"]);
    prop_oneof![
        (1i64..86_400, prop::sample::select(vec![Weights::Whole, Weights::Oldest, Weights::Decay])).prop_map(
            |(window_s, weights)| {
                (Measure::Tokens, ShapeDraft::Rate { window_s, bucket_s: None, weights: Some(weights) })
            }
        ),
        (zones.clone(), 1u8..=31).prop_map(|(zone, day)| {
            (Measure::Cost, quota(PeriodKind::Month, Some(zone), Some(Anchor::DayOfMonth(day))))
        }),
        (zones, 1u8..=7).prop_map(|(zone, day)| {
            (Measure::OutputTokens, quota(PeriodKind::Week, Some(zone), Some(Anchor::Weekday(day))))
        }),
        Just((Measure::Concurrency, ShapeDraft::Concurrency)),
        Just((Measure::InputTokens, quota(PeriodKind::Lifetime, None, None))),
    ]
}

proptest! {
    /// Every limit survives its stored form, and reading garbage never panics.
    #[test]
    fn definitions_survive_their_stored_form(
        (measure, shape) in any_shape(),
        name in "[^\\p{Cc}]{1,20}",
        user in "[^\\p{Cc}]{1,20}",
        ceiling in 0i128..9_000_000_000,
        shadow: bool,
        raise in prop::option::of((1i128..9_000_000_000, any::<u64>())),
        garbage in ".{0,60}",
    ) {
        let scope = Scope::One(Subject::User { tenant: "acme".to_owned(), user });
        let raise = raise.map(|(by, until)| RaiseDraft { by: by.min(9_000_000_000 - ceiling).max(1), until });
        let limit = LimitDraft::new(scope, measure, shape, ceiling);
        let limit = LimitDraft { name: Some(name), shadow, raise, ..limit };
        let catalog = Catalog::new(Draft { limits: vec![limit], ..draft() }).unwrap();
        let limit = &catalog.rules().next().unwrap().1.limit;
        prop_assert_eq!(&Limit::from_text(&limit.to_text()).unwrap(), limit);
        let _ = Limit::from_text(&garbage);
        let _ = Limit::from_text(&format!("limit 1\nmeasure tokens\n{garbage}"));
    }
}
