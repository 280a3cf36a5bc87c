//! Which limits bind which call.

use crate::world::{
    daily, draft, held, named, of_key, of_project, of_user, pool, rate, rpm, tenant, tpm, with,
};
use tollbook_policy::{
    Binding, Booking, Call, Catalog, Draft, EstimatorChoice, Hold, LimitDraft, Measure, Meter, MeterPair,
    Scope, Strictness, Subject, USER_ID_MAX, UserTooLong, WhenAway,
};

fn search() -> Scope {
    Scope::One(Subject::Service { tenant: "acme".to_owned(), service: "search".to_owned() })
}

fn resolve(catalog: &Catalog, secret: u8, service: Option<&str>, user: Option<&str>, model: &str) -> Binding {
    let key = catalog.key(&[secret; 32]).unwrap();
    catalog.resolve(&Call { key, service, user, model }, 0).unwrap()
}

/// Names of the limits that bind, in the order of their accounts.
fn names(catalog: &Catalog, binding: &Binding) -> Vec<String> {
    let mut names: Vec<String> = catalog.explain(binding, 0).into_iter().map(|line| line.name).collect();
    names.sort();
    names
}

#[test]
fn every_level_binds_and_no_other() {
    let catalog = with(vec![
        named("tenant", rpm(tenant("acme"), 1)),
        named("other tenant", rpm(tenant("globex"), 1)),
        named("project", rpm(of_project("acme", "web"), 1)),
        named("other project", rpm(of_project("acme", "batch"), 1)),
        named("key", rpm(of_key("acme", "web", "k1"), 1)),
        named("other key", rpm(of_key("acme", "web", "k2"), 1)),
        named("same key elsewhere", rpm(of_key("globex", "web", "k1"), 1)),
        named("service", rpm(search(), 1)),
        named("each user", rpm(Scope::EachUser { tenant: "acme".to_owned() }, 9)),
        named("one user", rpm(of_user("acme", "u1"), 1)),
        named("pool", rpm(pool("east"), 1)),
        named("large", LimitDraft { model: Some("large".to_owned()), ..rpm(tenant("acme"), 1) }),
    ]);
    let of = |service, user, model| names(&catalog, &resolve(&catalog, 1, service, user, model));
    assert_eq!(of(None, None, "base"), ["key", "project", "tenant"]);
    assert_eq!(of(Some("search"), None, "base"), ["key", "project", "service", "tenant"]);
    assert_eq!(of(None, Some("u2"), "base"), ["each user", "key", "project", "tenant"]);
    assert_eq!(of(None, Some("u1"), "base"), ["each user", "key", "one user", "project", "tenant"]);
    assert_eq!(of(None, None, "large"), ["key", "large", "project", "tenant"]);
    assert_eq!(
        names(&catalog, &resolve(&catalog, 3, None, Some("u1"), "base")),
        ["other tenant", "same key elsewhere"]
    );
    assert_eq!(names(&catalog, &catalog.resolve_pool("east", "base", 0)), ["pool"]);
    assert!(catalog.resolve_pool("west", "base", 0).accounts.is_empty());
}

/// B008: a subject that is reached once is charged once, whatever else the configuration holds.
#[test]
fn b008_an_account_appears_once() {
    let model = Some("base".to_owned());
    let catalog = with(vec![LimitDraft { model, ..rpm(of_project("acme", "web"), 10) }]);
    let binding = resolve(&catalog, 1, None, None, "base");
    assert_eq!(binding.accounts.len(), 1);
    assert_eq!(binding.accounts[0].limits.len(), 1);
}

/// B229: two limits over one account share its leg; both ceilings are tested.
#[test]
fn b229_limits_over_one_account_share_a_leg() {
    let catalog = with(vec![
        named("soft", LimitDraft { hold_factor_thousandths: Some(2000), ..held(tpm(tenant("acme"), 100)) }),
        named(
            "hard",
            LimitDraft {
                strictness: Some(Strictness::Hard),
                hold_factor_thousandths: Some(1250),
                ..tpm(tenant("acme"), 200)
            },
        ),
        named(
            "shadow",
            LimitDraft { shadow: true, hold_factor_thousandths: Some(9000), ..held(tpm(tenant("acme"), 50)) },
        ),
    ]);
    let binding = resolve(&catalog, 1, None, None, "base");
    let [bound] = binding.accounts.as_slice() else { panic!("one leg") };
    let limits: Vec<_> = bound.limits.iter().map(|l| (l.id.0, l.ceiling, l.hard, l.shadow, l.hold)).collect();
    assert_eq!(
        limits,
        [
            (0, 100, false, false, Hold::Expected),
            (1, 200, true, false, Hold::Worst),
            (2, 50, false, true, Hold::Expected)
        ]
    );
    assert_eq!((bound.expected_factor, bound.worst_factor), (2000, 1250));
    assert!(bound.hard && bound.enforced);
    assert_eq!(bound.when_away, WhenAway::Closed);
}

#[test]
fn a_leg_of_shadows_alone_is_only_written() {
    let shadow = LimitDraft {
        shadow: true,
        strictness: Some(Strictness::Hard),
        hold_factor_thousandths: Some(1500),
        ..tpm(tenant("acme"), 50)
    };
    let binding = resolve(&with(vec![shadow]), 1, None, None, "base");
    let bound = &binding.accounts[0];
    assert!(!bound.enforced && !bound.hard);
    assert_eq!(bound.worst_factor, 1500);
}

/// A user that each-user limits cover has an account of its own; a named user's limits are over the same one.
#[test]
fn users_have_accounts_of_their_own() {
    let catalog = with(vec![
        named("each", rpm(Scope::EachUser { tenant: "acme".to_owned() }, 9)),
        named("one", rpm(of_user("acme", "u1"), 1)),
    ]);
    let of = |user| resolve(&catalog, 1, None, Some(user), "base").accounts;
    let (one, other) = (of("u1"), of("u2"));
    assert_eq!((one.len(), one[0].limits.len()), (1, 2));
    assert_eq!((other.len(), other[0].limits.len()), (1, 1));
    assert_ne!(one[0].account, other[0].account);
    assert_eq!(one[0].account.name, other[0].account.name);
}

#[test]
fn a_users_id_is_bounded_and_otherwise_anything() {
    let catalog = with(vec![rpm(Scope::EachUser { tenant: "acme".to_owned() }, 9)]);
    let key = catalog.key(&[1; 32]).unwrap();
    let call = |user: &str| {
        catalog.resolve(&Call { key, service: None, user: Some(user), model: "base" }, 0).map(drop)
    };
    assert_eq!(call(&"u".repeat(USER_ID_MAX)), Ok(()));
    assert_eq!(call(&"u".repeat(USER_ID_MAX + 1)), Err(UserTooLong));
    assert_eq!(call("a\r\n{x}\0"), Ok(()));
    assert_eq!(call(""), Ok(()));
}

/// Two gateways with limits in another order build the same legs but for limit ids.
#[test]
fn the_order_of_limits_does_not_matter() {
    let limits = vec![
        named("a", rpm(tenant("acme"), 1)),
        named("b", tpm(tenant("acme"), 2)),
        named("c", rpm(of_key("acme", "web", "k1"), 3)),
        named("d", daily(of_project("acme", "web"), Measure::Cost, 4)),
    ];
    let accounts = |limits: Vec<LimitDraft>| {
        let binding = resolve(&with(limits), 1, None, None, "base");
        binding.accounts.into_iter().map(|bound| (bound.account, bound.limits[0].ceiling)).collect::<Vec<_>>()
    };
    let forwards = accounts(limits.clone());
    assert!(forwards.is_sorted());
    assert_eq!(forwards, accounts(limits.into_iter().rev().collect()));
}

#[test]
fn pool_limits_count_as_their_provider_does() {
    let meter = MeterPair::preset("bedrock_5x").unwrap();
    let mut with_meter = draft();
    with_meter.pools[0].meter = meter;
    with_meter.limits = vec![
        named("provider's", tpm(pool("east"), 100)),
        named(
            "own",
            LimitDraft { shape: rate(3600), meter: Some(MeterPair::PLAIN), ..tpm(pool("east"), 100) },
        ),
        named("input", LimitDraft { measure: Measure::InputTokens, ..tpm(pool("east"), 100) }),
        named("requests", rpm(pool("east"), 100)),
    ];
    let catalog = Catalog::new(with_meter).unwrap();
    let binding = catalog.resolve_pool("east", "base", 0);
    let meter_of = |name: &str| {
        let found = binding
            .accounts
            .iter()
            .find(|bound| catalog.rule(bound.limits[0].id).unwrap().limit.name == name);
        found.unwrap().meter
    };
    assert_eq!(meter_of("provider's"), meter);
    assert_eq!(meter_of("own"), MeterPair::PLAIN);
    let input = meter_of("input");
    assert_eq!((input.reserve.uncached_input, input.reserve.output), (1000, 0));
    assert_eq!((input.settle.cache_read, input.settle.output, input.settle.audio_output), (0, 0, 0));
}

#[test]
fn meters_have_presets_by_name() {
    for name in MeterPair::PRESETS {
        assert!(MeterPair::preset(name).is_some(), "{name}");
    }
    assert_eq!(MeterPair::preset("other"), None);
    let meter = MeterPair::preset("anthropic_input").unwrap().settle;
    assert_eq!(meter, Meter { image: 1000, audio_input: 1000, ..Meter::of(1000, 0, 1000, 0) });
    assert_eq!(MeterPair::preset("anthropic_output").unwrap().reserve, Meter::of(0, 0, 0, 1000));
    assert_eq!(MeterPair::preset("bedrock_15x").unwrap().settle.output, 15_000);
}

#[test]
fn an_explicit_estimator_wins_over_the_default() {
    let catalog = with(vec![
        named("a", tpm(tenant("acme"), 1)),
        named("b", LimitDraft { estimator: Some(EstimatorChoice::Constant(77)), ..tpm(tenant("acme"), 2) }),
    ]);
    let binding = resolve(&catalog, 1, None, None, "base");
    assert_eq!(binding.accounts[0].estimator, EstimatorChoice::Constant(77));
}

/// B167: asked again for every model.
#[test]
fn b167_a_key_uses_only_its_models() {
    let mut draft = draft();
    draft.keys[0].models = Some(vec!["large".to_owned()]);
    let catalog = Catalog::new(draft).unwrap();
    let key = catalog.key(&[1; 32]).unwrap();
    assert!(catalog.may_use(key, "large"));
    assert!(!catalog.may_use(key, "base"));
    assert!(catalog.may_use(catalog.key(&[2; 32]).unwrap(), "base"));
}

/// B224: what binds is told in plain words, with nothing hidden.
#[test]
fn b224_explain_tells_every_limit() {
    let catalog = with(vec![
        daily(of_project("acme", "web"), Measure::Cost, 250_000_000),
        LimitDraft { model: Some("base".to_owned()), shadow: true, ..rpm(tenant("acme"), 7) },
        LimitDraft { booking: Some(Booking::Forecast), ..tpm(tenant("acme"), 8) },
        named(
            "strict",
            LimitDraft { strict: Some(true), booking: Some(Booking::Forecast), ..tpm(tenant("acme"), 9) },
        ),
    ]);
    let binding = resolve(&catalog, 1, None, None, "base");
    let mut lines: Vec<String> = catalog
        .explain(&binding, 0)
        .into_iter()
        .map(|l| format!("{}: {} {} {} {:?} {}", l.scope, l.measure, l.form, l.ceiling, l.model, l.shadow))
        .collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "project acme/web: cost quota day UTC 250000000 None false",
            "tenant acme: requests rate 60 s 7 Some(\"base\") true",
            "tenant acme: tokens rate 60 s by forecast 8 None false",
            "tenant acme: tokens rate 60 s by forecast, strict 9 None false",
        ]
    );
}

#[test]
fn an_empty_configuration_binds_nothing() {
    let catalog = Catalog::new(Draft { limits: Vec::new(), ..draft() }).unwrap();
    let binding = resolve(&catalog, 1, Some("search"), Some("u"), "base");
    assert!(binding.accounts.is_empty());
    assert_eq!((binding.valid_until, binding.dropped), (u64::MAX, 0));
}
