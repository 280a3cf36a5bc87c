//! What a draft must be, and what is said when it is not.

use crate::world::{
    daily, draft, held, key, model, named, of_key, of_project, of_user, pool, problems, project, quota, rate,
    rpm, tenant, told, tpm, with,
};
use tollbook_ledger::{AMOUNT_MAX, Shape};
use tollbook_policy::{
    Anchor, Booking, CONSTANT_MAX, COST_CEILING_MAX, Call, Catalog, ChargeAt, Draft, EstimatorChoice,
    FACTOR_MAX, Form, Hold, KeyRefusal, LimitDraft, Measure, Meter, MeterPair, OnExpiry, Opening, PeriodKind,
    RaiseDraft, Scope, Secret, ShapeDraft, Strictness, Subject, Tenant, USER_ID_MAX, USERS_MAX, User,
    WEIGHT_MAX, WEIGHTED_CEILING_MAX, Weights, WhenAway,
};

fn acme() -> Scope {
    tenant("acme")
}

/// One limit, and the one thing that is said about it.
fn says(limit: LimitDraft, expected: &str) {
    assert_eq!(problems(vec![limit]), [expected]);
}

#[test]
fn defaults_follow_from_the_shape() {
    let limits = vec![
        rpm(acme(), 10),
        daily(acme(), Measure::Cost, 10),
        LimitDraft::new(acme(), Measure::Concurrency, ShapeDraft::Concurrency, 3),
    ];
    let catalog = with(limits);
    let decided: Vec<_> = catalog
        .rules()
        .map(|(_, rule)| (rule.limit.strictness, rule.limit.hold, rule.limit.on_expiry, rule.limit.when_away))
        .collect();
    let soft = (Strictness::Soft, Hold::Expected, OnExpiry::Release, WhenAway::Local);
    let hard = (Strictness::Hard, Hold::Worst, OnExpiry::Charge, WhenAway::Closed);
    assert_eq!(decided, [soft, hard, soft]);
    let names: Vec<&str> = catalog.rules().map(|(_, rule)| rule.limit.name.as_str()).collect();
    assert_eq!(names, ["tenant acme requests rate", "tenant acme cost quota day", "tenant acme concurrency"]);
}

#[test]
fn strictness_sets_the_rest_and_may_be_overruled() {
    let hard = LimitDraft { strictness: Some(Strictness::Hard), ..tpm(acme(), 10) };
    let overruled = LimitDraft {
        name: Some("b".to_owned()),
        hold: Some(Hold::Expected),
        on_expiry: Some(OnExpiry::Release),
        when_away: Some(WhenAway::Open),
        ..hard.clone()
    };
    let catalog = with(vec![hard, overruled]);
    let holds: Vec<_> = catalog.rules().map(|(_, rule)| (rule.limit.hold, rule.limit.when_away)).collect();
    assert_eq!(holds, [(Hold::Worst, WhenAway::Closed), (Hold::Expected, WhenAway::Open)]);
}

#[test]
fn a_ring_has_a_sixtieth_of_the_window_per_bucket_and_one_more() {
    let second = tollbook_ledger::units::SECOND;
    for (window_s, bucket_s, n, width) in [
        (1, None, 2, 1),
        (60, None, 61, 1),
        (61, None, 32, 2),
        (60, Some(10), 7, 10),
        (90, None, 46, 2),
        (3600, None, 61, 60),
        (86_400, None, 61, 1440),
        (63, Some(1), 64, 1),
    ] {
        let limit =
            LimitDraft { shape: ShapeDraft::Rate { window_s, bucket_s, weights: None }, ..rpm(acme(), 1) };
        let catalog = with(vec![limit]);
        let (_, rule) = catalog.rules().next().unwrap();
        let expected = Shape::Rate { buckets: n, width: width * second, weights: Weights::Whole };
        assert_eq!(rule.limit.form.shape(), expected, "{window_s} {bucket_s:?}");
    }
}

#[test]
fn windows_and_buckets_have_bounds() {
    let shape = |window_s, bucket_s| LimitDraft {
        shape: ShapeDraft::Rate { window_s, bucket_s, weights: None },
        ..rpm(acme(), 1)
    };
    says(shape(0, None), "limits[0].window: must be from 1 s to 86400 s");
    says(shape(86_401, None), "limits[0].window: must be from 1 s to 86400 s");
    says(shape(-60, None), "limits[0].window: must not be negative");
    says(shape(i64::MIN, None), "limits[0].window: must not be negative");
    says(shape(60, Some(0)), "limits[0].bucket: must be from 1 s to 86400 s");
    says(shape(60, Some(61)), "limits[0].bucket: a bucket is wider than the window");
    says(
        shape(64, Some(1)),
        "limits[0].bucket: a ring of 65 buckets is too long, 64 is the most; use wider buckets",
    );
}

/// B223, B086: absent = no limit, 0 = nothing passes, negative = refused; bounds are exact.
#[test]
fn b223_b086_ceilings() {
    let ceiling = |ceiling| LimitDraft { ceiling, ..rpm(acme(), 1) };
    assert_eq!(with(vec![ceiling(None)]).rules().count(), 0);
    for passes in [0, 1, i128::from(AMOUNT_MAX)] {
        let catalog = with(vec![ceiling(Some(passes))]);
        assert_eq!(i128::from(catalog.rules().next().unwrap().1.limit.ceiling), passes);
    }
    says(ceiling(Some(-1)), "limits[0].ceiling: must not be negative");
    says(ceiling(Some(i128::MIN)), "limits[0].ceiling: must not be negative");
    says(ceiling(Some(1 << 53)), "limits[0].ceiling: must be from 0 to 9007199254740991");
    says(ceiling(Some(i128::MAX)), "limits[0].ceiling: must be from 0 to 9007199254740991");

    let budget = |ceiling| LimitDraft { ceiling: Some(ceiling), ..daily(acme(), Measure::Cost, 1) };
    with(vec![budget(i128::from(COST_CEILING_MAX))]);
    says(budget(i128::from(COST_CEILING_MAX) + 1), "limits[0].ceiling: must be from 0 to 9000000000000000");

    let decay = |ceiling| LimitDraft {
        shape: ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: Some(Weights::Decay) },
        ceiling: Some(ceiling),
        ..tpm(acme(), 1)
    };
    with(vec![decay(i128::from(WEIGHTED_CEILING_MAX))]);
    says(decay(i128::from(WEIGHTED_CEILING_MAX) + 1), "limits[0].ceiling: must be from 0 to 9000000000");
}

/// The raise is on top until its second, not in it; whoever resolved before is told to look again then.
#[test]
fn b227_a_raise_ends_at_its_instant() {
    let raised =
        |by, until| LimitDraft { raise: Some(RaiseDraft { by, until }), ..daily(acme(), Measure::Cost, 2) };
    let catalog = with(vec![raised(100, 1_000)]);
    let key = catalog.key(&[1; 32]).unwrap();
    let call = Call { key, service: None, user: None, model: "base" };
    for (now, ceiling, valid_until) in [(0, 102, 1_000), (999, 102, 1_000), (1_000, 2, u64::MAX)] {
        let binding = catalog.resolve(&call, now).unwrap();
        assert_eq!(
            (binding.accounts[0].limits[0].ceiling, binding.valid_until),
            (ceiling, valid_until),
            "{now}"
        );
    }
    let max = i128::from(COST_CEILING_MAX);
    with(vec![raised(max - 2, 1)]);
    says(raised(max - 1, 1), "limits[0].raise: must be from 1 to 8999999999999998");
    says(raised(0, 1), "limits[0].raise: must be from 1 to 8999999999999998");
    says(raised(-1, 1), "limits[0].raise: must not be negative");
    says(
        LimitDraft { ceiling: None, ..raised(1, 1) },
        "limits[0].raise: raise has no meaning for a limit without a ceiling",
    );
}

/// What is wrong with a limit is told also where its ceiling is absent.
#[test]
fn b223_an_absent_ceiling_excuses_nothing_else() {
    let limit = LimitDraft { ceiling: None, shape: rate(0), ..rpm(acme(), 1) };
    says(limit, "limits[0].window: must be from 1 s to 86400 s");
}

#[test]
fn measures_and_shapes_must_fit() {
    says(
        LimitDraft::new(acme(), Measure::Concurrency, rate(60), 1),
        "limits[0].shape: concurrency cannot have the shape rate",
    );
    says(
        LimitDraft::new(acme(), Measure::Tokens, ShapeDraft::Concurrency, 1),
        "limits[0].shape: tokens cannot have the shape concurrency",
    );
    says(
        LimitDraft::new(acme(), Measure::Concurrency, quota(PeriodKind::Day, None, None), 1),
        "limits[0].shape: concurrency cannot have the shape quota",
    );
}

#[test]
fn quotas_name_a_zone_of_the_table_and_an_anchor_that_fits() {
    let of = |period, zone, anchor| LimitDraft { shape: quota(period, zone, anchor), ..tpm(acme(), 1) };
    says(
        of(PeriodKind::Day, Some("Mars/Olympus"), None),
        "limits[0].zone: there is no time zone `Mars/Olympus` in the bundled table",
    );
    says(of(PeriodKind::Lifetime, Some("UTC"), None), "limits[0].zone: zone has no meaning for this period");
    let anchor = "limits[0].anchor: a month's anchor is a day from 1 to 31, a week's a weekday; no other period has one";
    says(of(PeriodKind::Month, None, Some(Anchor::DayOfMonth(0))), anchor);
    says(of(PeriodKind::Month, None, Some(Anchor::DayOfMonth(32))), anchor);
    says(of(PeriodKind::Month, None, Some(Anchor::Weekday(1))), anchor);
    says(of(PeriodKind::Week, None, Some(Anchor::Weekday(8))), anchor);
    says(of(PeriodKind::Day, None, Some(Anchor::Weekday(1))), anchor);
    // one zone under the table's spelling, so that spelling makes no second budget
    let catalog = with(vec![of(PeriodKind::Day, Some("europe/BERLIN"), None)]);
    let (_, rule) = catalog.rules().next().unwrap();
    assert!(matches!(&rule.limit.form, Form::Quota(rule) if rule.zone == "Europe/Berlin"));
}

#[test]
fn settings_without_meaning_are_errors() {
    with(vec![held(tpm(acme(), 1))]);
    let forecast = || LimitDraft { booking: Some(Booking::Forecast), ..tpm(acme(), 1) };
    with(vec![forecast()]);
    for (limit, why) in [
        (LimitDraft { shape: rate(61), ..forecast() }, "its window is longer than 60 s"),
        (
            LimitDraft { strictness: Some(Strictness::Hard), ..forecast() },
            "it is hard, and a hard limit holds the worst case",
        ),
        (LimitDraft { hold: Some(Hold::Worst), ..forecast() }, "it holds the worst case"),
        (LimitDraft { ceiling: Some(9_000_000_001), ..forecast() }, "its ceiling is above 9000000000"),
        (
            LimitDraft {
                shape: ShapeDraft::Rate { window_s: 60, bucket_s: Some(10), weights: None },
                ..forecast()
            },
            "its buckets are not of one second",
        ),
        (
            LimitDraft {
                shape: ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: Some(Weights::Oldest) },
                ..forecast()
            },
            "its buckets have weights",
        ),
    ] {
        says(limit, &format!("limits[0].booking: cannot be booked by forecast: {why}"));
    }
    let measure = "limits[0].booking: booking has no meaning for anything but a rate on llm_tokens";
    says(LimitDraft { booking: Some(Booking::Forecast), ..rpm(acme(), 1) }, measure);
    let strict = "limits[0].strict: strict has no meaning for a limit that is not booked by forecast";
    says(LimitDraft { strict: Some(true), ..held(tpm(acme(), 1)) }, strict);
    let charge = "limits[0].charge: charge has no meaning for anything but a pool's rate on llm_tokens";
    says(LimitDraft { charge: Some(ChargeAt::Stream), ..tpm(acme(), 1) }, charge);
    says(
        LimitDraft { opening: Some(Opening::Zero), ..tpm(acme(), 1) },
        "limits[0].opening: opening has no meaning for a limit that is no quota",
    );
    says(
        LimitDraft { count_denied: true, ..daily(acme(), Measure::Tokens, 1) },
        "limits[0].count_denied: count_denied has no meaning for a limit that is no rate",
    );
    let refund =
        "limits[0].refund_failed: refund_failed has no meaning for anything but the requests of a tenant";
    says(LimitDraft { refund_failed: true, ..tpm(acme(), 1) }, refund);
    says(LimitDraft { refund_failed: true, ..rpm(pool("east"), 1) }, refund);
    with(vec![LimitDraft { refund_failed: true, ..rpm(acme(), 1) }]);
    says(
        LimitDraft { meter: Some(MeterPair::PLAIN), ..rpm(acme(), 1) },
        "limits[0].meter: meter has no meaning for requests",
    );
    let heavy = Meter { output: WEIGHT_MAX + 1, ..Meter::PLAIN };
    says(
        LimitDraft { meter: Some(MeterPair::same(heavy)), ..tpm(acme(), 1) },
        "limits[0].meter: must be from 0 to 100000",
    );
    says(
        LimitDraft { estimator: Some(EstimatorChoice::Capped), ..rpm(acme(), 1) },
        "limits[0].estimator: estimator has no meaning for requests",
    );
    says(
        LimitDraft { estimator: Some(EstimatorChoice::Constant(CONSTANT_MAX + 1)), ..tpm(acme(), 1) },
        "limits[0].estimator: must be from 0 to 10000000",
    );
    let charge = LimitDraft::new(acme(), Measure::Concurrency, ShapeDraft::Concurrency, 1);
    says(
        LimitDraft { on_expiry: Some(OnExpiry::Charge), ..charge },
        "limits[0].on_expiry: on_expiry has no meaning for concurrency",
    );
}

#[test]
fn hold_factors_have_bounds() {
    let factor = |factor, limit| LimitDraft { hold_factor_thousandths: Some(factor), ..limit };
    let hard = || daily(acme(), Measure::Cost, 1);
    says(factor(999, hard()), "limits[0].hold_factor: a hard limit cannot hold less than the demand");
    says(factor(99, tpm(acme(), 1)), "limits[0].hold_factor: must be from 100 to 10000");
    says(factor(i64::from(FACTOR_MAX) + 1, hard()), "limits[0].hold_factor: must be from 100 to 10000");
    says(factor(-1, hard()), "limits[0].hold_factor: must not be negative");
    says(factor(1250, rpm(acme(), 1)), "limits[0].hold_factor: hold_factor has no meaning for requests");
    with(vec![factor(1000, hard()), factor(100, tpm(acme(), 1))]);
}

#[test]
fn limits_that_can_never_apply_are_errors() {
    says(rpm(tenant("nobody"), 1), "limits[0].scope: there is no tenant `nobody`");
    says(rpm(of_project("acme", "none"), 1), "limits[0].scope: there is no project `none`");
    says(rpm(of_project("globex", "batch"), 1), "limits[0].scope: there is no project `batch`");
    says(rpm(of_key("acme", "batch", "k1"), 1), "limits[0].scope: there is no key `k1`");
    says(rpm(pool("north"), 1), "limits[0].scope: there is no pool `north`");
    says(rpm(of_user("nobody", "u"), 1), "limits[0].scope: there is no tenant `nobody`");
    says(
        rpm(Scope::EachUser { tenant: "nobody".to_owned() }, 1),
        "limits[0].scope: there is no tenant `nobody`",
    );
    let service = Subject::Service { tenant: "globex".to_owned(), service: "search".to_owned() };
    says(rpm(Scope::One(service), 1), "limits[0].scope: there is no service `search`");

    let of = |model: &str, scope| LimitDraft { model: Some(model.to_owned()), ..rpm(scope, 1) };
    says(of("tiny", acme()), "limits[0].model: there is no model `tiny`");
    says(
        of("base-fast", acme()),
        "limits[0].model: `base-fast` is an alias; a limit names the model itself, `base`",
    );
    says(
        of("large", pool("west")),
        "limits[0].model: can never apply: pool `west` does not serve model `large`",
    );

    let mut restricted = draft();
    restricted.keys[0].models = Some(vec!["large".to_owned()]);
    restricted.limits = vec![of("base", of_key("acme", "web", "k1"))];
    assert_eq!(
        told(&Catalog::new(restricted).unwrap_err()),
        ["limits[0].model: can never apply: key `k1` may not use model `base`"]
    );
}

/// B172: a pattern is never a shared counter by accident; it is refused.
#[test]
fn b172_a_limit_on_a_pattern_of_models_is_refused() {
    let limit = LimitDraft { model: Some("vendor/*".to_owned()), ..rpm(acme(), 1) };
    says(limit, "limits[0].model: a limit names one model; `vendor/*` is a pattern");
}

#[test]
fn limits_over_one_account_must_agree() {
    let a = named("a", rpm(acme(), 10));
    let b = named("b", LimitDraft { refund_failed: true, ..rpm(acme(), 5) });
    assert_eq!(
        problems(vec![a, b]),
        ["limits[1].refund_failed: contradicts limits[0], which shares its account: refund_failed differs"]
    );
    let capped = LimitDraft { estimator: Some(EstimatorChoice::Capped), ..tpm(acme(), 10) };
    let constant = LimitDraft { estimator: Some(EstimatorChoice::Constant(9)), ..tpm(acme(), 10) };
    assert_eq!(
        problems(vec![named("a", capped.clone()), named("b", constant)]),
        ["limits[1].estimator: contradicts limits[0], which shares its account: estimator differs"]
    );
    with(vec![named("a", capped), named("b", tpm(acme(), 5))]);
    let zero = LimitDraft { opening: Some(Opening::Zero), ..daily(acme(), Measure::Tokens, 5) };
    assert_eq!(
        problems(vec![named("a", daily(acme(), Measure::Tokens, 9)), named("b", zero)]),
        ["limits[1].opening: contradicts limits[0], which shares its account: opening differs"]
    );
}

/// Each user and one named user share an account, so their limits must agree; tenant and users do not.
#[test]
fn each_user_and_one_user_share_an_account() {
    let each = named("each", rpm(Scope::EachUser { tenant: "acme".to_owned() }, 10));
    let one = named("one", LimitDraft { refund_failed: true, ..rpm(of_user("acme", "u1"), 5) });
    assert_eq!(
        problems(vec![each.clone(), one]),
        ["limits[1].refund_failed: contradicts limits[0], which shares its account: refund_failed differs"]
    );
    with(vec![each, named("tenant", LimitDraft { refund_failed: true, ..rpm(acme(), 5) })]);
}

#[test]
fn at_most_eight_limits_share_an_account() {
    let limits = |n: i128| (0..n).map(|i| named(&format!("l{i}"), rpm(acme(), i))).collect::<Vec<_>>();
    with(limits(8));
    assert_eq!(problems(limits(9)), ["limits[8]: more than 8 limits share this account"]);
}

/// The worst combination over key, service, user and model is what counts, at its bound.
#[test]
fn at_most_thirty_two_legs_on_a_side() {
    let windows = |scope: &Scope, n: i64| -> Vec<LimitDraft> {
        let limit = |i| {
            named(
                &format!("{scope} {i}"),
                LimitDraft { shape: rate(3_600 + i * 60), ..rpm(scope.clone(), 1) },
            )
        };
        (0..n).map(limit).collect()
    };
    let service = Scope::One(Subject::Service { tenant: "acme".to_owned(), service: "search".to_owned() });
    let mut limits = windows(&acme(), 10);
    limits.extend(windows(&of_key("acme", "web", "k1"), 10));
    limits.extend(windows(&service, 5));
    limits.extend(windows(&Scope::EachUser { tenant: "acme".to_owned() }, 3));
    limits.extend(
        windows(&of_user("acme", "u1"), 3).into_iter().map(|l| LimitDraft { measure: Measure::Tokens, ..l }),
    );
    limits.push(LimitDraft { model: Some("base".to_owned()), ..rpm(acme(), 1) });
    with(limits.clone());
    limits.push(LimitDraft { model: Some("base".to_owned()), ..tpm(acme(), 1) });
    assert_eq!(
        problems(limits),
        ["keys[0]: a call of this key for model `base` would touch 33 accounts on one side, 32 is the most"]
    );
    with(windows(&pool("east"), 32));
    assert_eq!(
        problems(windows(&pool("west"), 33)),
        ["pools[1]: a call of pool `west` would touch 33 accounts on one side, 32 is the most"]
    );
}

/// Of all users the one with the most accounts counts, for each model.
#[test]
fn many_users_count_as_the_one_with_the_most_accounts() {
    let windows = |scope: &Scope, model: Option<&str>, n: i64| -> Vec<LimitDraft> {
        let limit = |i| LimitDraft {
            shape: rate(3_600 + i * 60),
            model: model.map(str::to_owned),
            ..rpm(scope.clone(), 1)
        };
        (0..n).map(|i| named(&format!("{scope} {model:?} {i}"), limit(i))).collect()
    };
    let mut limits = windows(&acme(), None, 27);
    for user in 0..10_000 {
        limits.extend(windows(&of_user("acme", &format!("u{user}")), None, 1));
    }
    limits.extend(windows(&of_user("acme", "most of any"), None, 5));
    limits.extend(windows(&of_user("acme", "most of base"), None, 1));
    limits.extend(windows(&of_user("acme", "most of base"), Some("base"), 4));
    let begun = std::time::Instant::now();
    with(limits.clone());
    println!("10,000 users' limits are checked in {:?}", begun.elapsed());
    let told = |more: Vec<LimitDraft>| problems(limits.iter().cloned().chain(more).collect())[0].clone();
    let base = LimitDraft { model: Some("base".to_owned()), ..tpm(of_user("acme", "most of base"), 1) };
    assert!(told(vec![base]).contains("for model `base` would touch 33 accounts"));
    let any = tpm(of_user("acme", "most of any"), 1);
    assert!(told(vec![any]).contains("a call of this key would touch 33 accounts"));
}

#[test]
fn names_are_unique_and_made_up_only_where_they_tell_apart() {
    assert_eq!(
        problems(vec![rpm(acme(), 1), LimitDraft { shape: rate(3600), ..rpm(acme(), 1) }]),
        ["limits[1].name: needs a name: another limit has the same scope, measure and shape"]
    );
    assert_eq!(
        problems(vec![named("x", rpm(acme(), 1)), named("x", tpm(acme(), 1))]),
        ["limits[1].name: `x` is already taken"]
    );
    says(named("", rpm(acme(), 1)), "limits[0].name: must not be empty");
    says(named(&"n".repeat(129), rpm(acme(), 1)), "limits[0].name: is longer than 128 bytes");
    with(vec![named(&"n".repeat(128), rpm(acme(), 1))]);
    says(named("a\nb", rpm(acme(), 1)), "limits[0].name: contains a control character");
}

/// All problems at once, each with its place.
#[test]
fn every_problem_is_told() {
    let mut wrong = draft();
    wrong.tenants.push(Tenant { id: String::new(), disabled: false });
    wrong.projects.push(project("nobody", "web"));
    wrong.keys.push(key("acme", "none", "k9", 1));
    wrong.models.push(model("base", &["large"], &["north"]));
    wrong.models.push(model("x*", &[], &[]));
    wrong.limits = vec![rpm(acme(), -1), LimitDraft { shape: rate(0), ..tpm(tenant("nobody"), 1) }];
    assert_eq!(
        told(&Catalog::new(wrong).unwrap_err()),
        [
            "tenants[2].id: must not be empty",
            "projects[3].tenant: there is no tenant `nobody`",
            "keys[3].project: there is no project `none`",
            "keys[3].secrets: `this secret` is already taken",
            "models[2].aliases: `large` is already taken",
            "models[2].id: `base` is already taken",
            "models[2].pools: there is no pool `north`",
            "models[3].id: a limit names one model; `x*` is a pattern",
            "models[3].pools: must not be empty",
            "limits[0].ceiling: must not be negative",
            "limits[1].scope: there is no tenant `nobody`",
            "limits[1].window: must be from 1 s to 86400 s",
        ]
    );
}

/// B210: ids are bounded and printable, whatever they contain otherwise.
#[test]
fn b210_ids_are_bounded() {
    let tenant =
        |id: &str| Draft { tenants: vec![Tenant { id: id.to_owned(), disabled: false }], ..Draft::default() };
    for fine in ["{x}", "a{b}c{d}", "a:b|c d", &"x".repeat(64), "租户"] {
        Catalog::new(tenant(fine)).unwrap();
    }
    for wrong in ["", "a\r\nb", "a\0b", &"x".repeat(65)] {
        Catalog::new(tenant(wrong)).unwrap_err();
    }
}

/// B229: legal, but told.
#[test]
fn b229_a_ceiling_above_its_parents_is_a_warning() {
    let catalog = with(vec![
        rpm(of_key("acme", "web", "k1"), 100),
        rpm(of_project("acme", "web"), 5),
        rpm(acme(), 50),
        rpm(of_key("acme", "web", "k2"), 5),
        LimitDraft { shape: rate(3600), ..rpm(of_project("acme", "batch"), 1000) },
    ]);
    let warnings: Vec<String> = catalog.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["limits[0].ceiling: is above limits[1] of its project, which binds first"]);
}

/// B230: at its second a key has expired; secrets of a rotation have their own ends.
#[test]
fn b230_expiry_is_exact() {
    let mut draft = draft();
    draft.keys[0].expires_at = Some(1_000);
    draft.keys[1].secrets.push(Secret { digest: [7; 32], expires_at: Some(500) });
    draft.projects[1].disabled = true;
    draft.keys.push(key("acme", "batch", "k3", 4));
    let catalog = Catalog::new(draft).unwrap();
    let check = |digest: u8, now| {
        let digest = [digest; 32];
        catalog.check_key(catalog.key(&digest).unwrap(), &digest, now)
    };
    assert_eq!((check(1, 999), check(1, 1_000)), (Ok(()), Err(KeyRefusal::KeyExpired)));
    assert_eq!((check(7, 499), check(7, 500)), (Ok(()), Err(KeyRefusal::KeyExpired)));
    assert_eq!(check(2, 5_000), Ok(()));
    assert_eq!(check(4, 0), Err(KeyRefusal::ProjectDisabled));
    assert!(catalog.key(&[9; 32]).is_none());
}

#[test]
fn disabled_keys_tenants_and_services_are_told() {
    let mut draft = draft();
    draft.keys[0].disabled = true;
    draft.tenants[1].disabled = true;
    draft.services[0].disabled = true;
    let catalog = Catalog::new(draft).unwrap();
    let check = |digest: u8| catalog.check_key(catalog.key(&[digest; 32]).unwrap(), &[digest; 32], 0);
    assert_eq!(check(1), Err(KeyRefusal::KeyDisabled));
    assert_eq!(check(3), Err(KeyRefusal::TenantDisabled));
    assert!(catalog.service("acme", "search").is_none());
}

/// B171: one resolved id, or nothing.
#[test]
fn b171_names_resolve_once_or_not_at_all() {
    let catalog = with(Vec::new());
    assert_eq!(catalog.model("base").unwrap().id, "base");
    assert_eq!(catalog.model("base-fast").unwrap().id, "base");
    for unknown in ["BASE", " base", "base ", "provider/base", "", "base-fas"] {
        assert!(catalog.model(unknown).is_none(), "{unknown:?}");
    }
}

fn user(id: &str, disabled: bool) -> User {
    User { tenant: "acme".to_owned(), id: id.to_owned(), disabled }
}

#[test]
fn users_are_one_tenants_and_told_apart_byte_by_byte() {
    let users = vec![user("u", true), user("U", false), user("u ", false)];
    let catalog = Catalog::new(Draft { users, ..draft() }).unwrap();
    assert!(catalog.user("acme", "u").unwrap().disabled);
    assert!(!catalog.user("acme", "U").unwrap().disabled);
    assert_eq!(catalog.user("globex", "u"), None);
    assert_eq!(catalog.users().len(), 3);
    let other = User { tenant: "nobody".to_owned(), ..user("v", false) };
    let long = user(&"u".repeat(USER_ID_MAX + 1), false);
    let users = vec![user("u", false), user("u", false), other, long, user("", false)];
    assert_eq!(
        told(&Catalog::new(Draft { users, ..draft() }).unwrap_err()),
        [
            "users[1].id: `u` is already taken",
            "users[2].tenant: there is no tenant `nobody`",
            "users[3].id: is longer than 64 bytes",
            "users[4].id: must not be empty",
        ]
    );
}

/// As many as a tenant may have, each with limits, and one more.
#[test]
fn a_tenant_says_something_of_so_many_users_and_no_more() {
    let users = |count: usize| {
        let ids: Vec<String> = (0..count).map(|at| format!("u{at}")).collect();
        let limits =
            ids.iter().flat_map(|id| [rpm(of_user("acme", id), 5), tpm(of_user("acme", id), 5)]).collect();
        Catalog::new(Draft { users: ids.iter().map(|id| user(id, false)).collect(), limits, ..draft() })
    };
    let catalog = users(USERS_MAX).unwrap();
    assert_eq!(catalog.resolve_user("acme", "u7", "base", 0).accounts.len(), 2);
    assert_eq!(
        told(&users(USERS_MAX + 1).unwrap_err()),
        ["users[10000]: is one user more than the 10000 of whom a tenant can say something"]
    );
}
