//! How subjects and accounts are named.

use crate::world::{daily, draft, held, named, of_key, quota, rate, rpm, tenant, tpm, with};
use proptest::prelude::*;
use std::collections::BTreeSet;
use tollbook_policy::{
    Anchor, Booking, Call, Catalog, Draft, LimitDraft, Measure, Meter, MeterPair, PeriodKind, ShapeDraft,
    Subject, Weights,
};

fn project(tenant: &str, project: &str) -> Subject {
    Subject::Project { tenant: tenant.to_owned(), project: project.to_owned() }
}

/// B209: names that join to the same text are different subjects.
#[test]
fn b209_separators_inside_names_do_not_collide() {
    assert_ne!(project("a:b", "c").id(), project("a", "b:c").id());
    for separator in ["|", "/", " ", "\n", "\0", "🙂", ":", "{", "}"] {
        let left = project(&format!("a{separator}b"), "c");
        let right = project("a", &format!("b{separator}c"));
        assert_ne!(left.id(), right.id(), "{separator:?}");
    }
    let service = Subject::Service { tenant: "a".to_owned(), service: "b".to_owned() };
    let user = Subject::User { tenant: "a".to_owned(), user: "b".to_owned() };
    assert_ne!(service.id(), user.id());
}

/// B208: one id in every scope, and one scope under two parents, make as many subjects.
#[test]
fn b208_rules_of_different_scopes_count_apart() {
    let id = || "x".to_owned();
    let subjects = [
        Subject::Tenant { tenant: id() },
        Subject::Tenant { tenant: "y".to_owned() },
        project("x", "x"),
        project("y", "x"),
        Subject::Service { tenant: id(), service: id() },
        Subject::Service { tenant: "y".to_owned(), service: id() },
        Subject::User { tenant: id(), user: id() },
        Subject::User { tenant: "y".to_owned(), user: id() },
    ];
    let ids: BTreeSet<_> = subjects.iter().map(Subject::id).collect();
    assert_eq!(ids.len(), subjects.len());
}

proptest! {
    /// B209, B210: over random strings, equal digests mean equal subjects.
    #[test]
    fn b209_digests_are_equal_only_for_equal_ids(a in ".{0,8}", b in ".{0,8}", c in ".{0,8}", d in ".{0,8}") {
        let same = (&a, &b) == (&c, &d);
        prop_assert_eq!(project(&a, &b).id() == project(&c, &d).id(), same);
        let joined = format!("{a}{b}");
        prop_assert_ne!(project(&a, &b).id(), Subject::Tenant { tenant: joined }.id());
    }
}

/// The name part of the one account that a limit makes for key k1.
fn name_of(limit: LimitDraft) -> u64 {
    let catalog = with(vec![limit]);
    let key = catalog.key(&[1; 32]).unwrap();
    let binding = catalog.resolve(&Call { key, service: None, user: None, model: "base" }, 0).unwrap();
    binding.accounts[0].account.name
}

/// B208, L16: everything that makes another account, and nothing else, changes its name.
#[test]
fn l16_an_account_is_named_by_what_it_counts() {
    let base = || tpm(tenant("acme"), 100);
    let shape = |shape: ShapeDraft| LimitDraft { shape, ..base() };
    let zone = |zone, anchor| shape(quota(PeriodKind::Month, zone, anchor));
    let others = [
        shape(rate(61)),
        shape(ShapeDraft::Rate { window_s: 60, bucket_s: Some(10), weights: None }),
        shape(ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: Some(Weights::Oldest) }),
        shape(ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: Some(Weights::Decay) }),
        LimitDraft { booking: Some(Booking::Held), ..base() },
        LimitDraft { strict: Some(true), ..base() },
        shape(rate(59)),
        zone(None, None),
        zone(Some("Europe/Berlin"), None),
        zone(None, Some(Anchor::DayOfMonth(2))),
        shape(quota(PeriodKind::Week, None, None)),
        shape(quota(PeriodKind::Week, None, Some(Anchor::Weekday(2)))),
        LimitDraft { model: Some("base".to_owned()), ..base() },
        LimitDraft { meter: Some(MeterPair::WITHOUT_CACHE_READ), ..base() },
        LimitDraft { measure: Measure::InputTokens, ..base() },
        LimitDraft { measure: Measure::OutputTokens, ..base() },
        LimitDraft { measure: Measure::Requests, ..base() },
        LimitDraft { measure: Measure::Cost, ..base() },
    ];
    let mut names: BTreeSet<u64> = others.into_iter().map(name_of).collect();
    assert_eq!(names.len(), 18);
    assert!(names.insert(name_of(base())));

    let same = [
        LimitDraft { ceiling: Some(7), ..base() },
        LimitDraft { shadow: true, count_denied: true, ..base() },
        LimitDraft { hold_factor_thousandths: Some(1250), ..base() },
        named("another name", base()),
        shape(ShapeDraft::Rate { window_s: 60, bucket_s: Some(1), weights: Some(Weights::Whole) }),
        // the weight of what the measure does not count makes no difference
        LimitDraft { meter: Some(MeterPair::same(Meter::PLAIN)), ..base() },
    ];
    for limit in same {
        assert_eq!(name_of(limit), name_of(base()));
    }
    let masked =
        Meter { uncached_input: 5, cache_read: 5, cache_write: 5, image: 5, audio_input: 5, ..Meter::PLAIN };
    let output = |meter| {
        name_of(LimitDraft { measure: Measure::OutputTokens, meter: Some(MeterPair::same(meter)), ..base() })
    };
    assert_eq!(output(masked), output(Meter::PLAIN));
}

/// Account names are stored; a change of their making would lose every budget.
#[test]
fn account_names_do_not_change_between_versions() {
    let subject = Subject::Key { tenant: "acme".to_owned(), project: "web".to_owned(), key: "k1".to_owned() };
    let names = [
        subject.id().0,
        name_of(rpm(tenant("acme"), 1)),
        name_of(held(tpm(tenant("acme"), 1))),
        name_of(daily(tenant("acme"), Measure::Cost, 1)),
    ];
    assert_eq!(names, KNOWN);
}

const KNOWN: [u64; 4] = [
    7_219_516_252_803_639_502,
    2_669_391_887_854_661_941,
    1_724_497_258_361_778_119,
    1_983_382_200_557_537_748,
];

/// B228: accounts hang on the key's id; another secret is the same key.
#[test]
fn b228_rotating_a_key_keeps_its_accounts() {
    let account = |draft: Draft, secret: u8| {
        let catalog = Catalog::new(draft).unwrap();
        let key = catalog.key(&[secret; 32]).unwrap();
        let binding = catalog.resolve(&Call { key, service: None, user: None, model: "base" }, 0).unwrap();
        binding.accounts[0].account
    };
    let limits = vec![rpm(of_key("acme", "web", "k1"), 5)];
    let before = Draft { limits: limits.clone(), ..draft() };
    let mut after = Draft { limits, ..draft() };
    after.keys[0].secrets[0].digest = [9; 32];
    assert_eq!(account(before, 1), account(after, 9));
}
