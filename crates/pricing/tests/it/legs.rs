//! Demands and the legs they become.

use crate::world::{bind, concurrency, daily, fx1, price, rate, used};
use std::collections::BTreeSet;

use proptest::prelude::*;
use tollbook_ledger::{AMOUNT_MAX, Estimator, EstimatorKind, Leg, SubjectId};
use tollbook_policy::{Booking, EstimatorChoice, LimitDraft, Measure, Meter, MeterPair, Strictness};
use tollbook_pricing::{
    Asked, Demand, EstimatorIds, FACT_MAX, FIRST_OUTPUT, Family, InputCount, Learned, LegsError, ModelFacts,
    OUTPUT_DEFAULT, Output, Price, PriceDraft, RatesDraft, Task, WEB_SEARCHES_MAX, WEB_SEARCHES_WORST,
    actuals, legs, needs_cap,
};
use tollbook_wire::Usage;

fn facts() -> ModelFacts {
    ModelFacts::of(Family::O200k)
}

fn input(llm_tokens: u64) -> InputCount {
    InputCount { llm_tokens, built_in: crate::world::kinds(llm_tokens), images: 0, exact: false }
}

fn asked(output_cap: Option<u64>) -> Asked<'static> {
    Asked { output_cap, choices: 1, ..Asked::default() }
}

fn demand(llm_tokens: u64, output_cap: Option<u64>) -> Demand {
    Demand::new(&asked(output_cap), input(llm_tokens), &facts(), &Learned::default(), true)
}

fn ids() -> Output {
    Output::Estimated(EstimatorIds::new(SubjectId(7), "base"))
}

fn made(limits: Vec<LimitDraft>, demand: &Demand, price: Option<&Price>) -> Result<Vec<Leg>, LegsError> {
    let (bound, periods) = bind(limits);
    legs(&bound, demand, price, ids(), &periods)
}

fn one(limit: LimitDraft, demand: &Demand) -> Leg {
    made(vec![limit], demand, Some(&price(&fx1()))).unwrap().remove(0)
}

fn amount(leg: &Leg, output: u64) -> u64 {
    (leg.base + leg.per_output * output).div_ceil(1_000)
}

#[test]
fn each_measure_makes_its_leg() {
    let demand = demand(100, Some(50));
    for (limit, base, per_output, worst) in [
        (rate(Measure::Requests, 9), 1_000, 0, 1),
        (concurrency(9), 1_000, 0, 1),
        (rate(Measure::Tokens, 9), 100_000, 1_000, 125 + 50),
        (rate(Measure::InputTokens, 9), 100_000, 0, 125),
        (rate(Measure::OutputTokens, 9), 0, 1_000, 50),
        // 125 × 2,500 (a cache may be written unasked) + 50 × 10,000
        (daily(Measure::Cost, 9), 100 * 2_000_000, 10_000_000, 312_500 + 500_000),
    ] {
        let leg = one(limit, &demand);
        assert_eq!((leg.base, leg.per_output, leg.worst), (base, per_output, worst), "{:?}", leg.measure);
        assert_eq!(leg.cap, 50);
    }
}

/// B097, B100, B111: the cap and whether it is written into the request.
#[test]
fn b097_b100_b111_caps() {
    let limited = ModelFacts { output_max: Some(1_000), ..facts() };
    let ours = ModelFacts { output_cap: Some(300), ..limited };
    // (facts, sent, choices, must hold) → (cap, injected)
    for (what, facts, sent, choices, must_hold, cap, injected) in [
        ("b111 absent", facts(), None, 1, false, OUTPUT_DEFAULT, None),
        ("b111 absent, hard", facts(), None, 1, true, OUTPUT_DEFAULT, Some(OUTPUT_DEFAULT)),
        ("b111 absent, small model", limited, None, 1, true, 1_000, Some(1_000)),
        ("b097 sent", facts(), Some(700), 1, true, 700, None),
        ("choices", facts(), Some(700), 3, true, 2_100, None),
        ("b100 zero", facts(), Some(0), 1, true, 1, None),
        ("above the model", limited, Some(5_000), 1, true, 1_000, None),
        ("above ours", ours, Some(500), 1, false, 300, Some(300)),
        ("absent, ours", ours, None, 2, false, 600, Some(300)),
        ("below ours", ours, Some(200), 1, true, 200, None),
        ("absurd", facts(), Some(u64::MAX), 1, true, FACT_MAX, None),
    ] {
        let asked = Asked { choices, ..asked(sent) };
        let demand = Demand::new(&asked, input(10), &facts, &Learned::default(), must_hold);
        assert_eq!((demand.cap, demand.inject_cap), (cap, injected), "{what}");
    }
}

/// B099: where nothing counts output, no cap is asked for.
#[test]
fn b099_only_hard_limits_on_output_need_a_cap() {
    let needs = |limit| needs_cap(&bind(vec![limit]).0);
    let hard = |limit| LimitDraft { strictness: Some(Strictness::Hard), ..limit };
    assert!(!needs(rate(Measure::Requests, 9)));
    assert!(!needs(hard(rate(Measure::Requests, 9))));
    assert!(!needs(hard(rate(Measure::InputTokens, 9))));
    assert!(!needs(rate(Measure::Tokens, 9)));
    assert!(!needs(LimitDraft { shadow: true, ..daily(Measure::Cost, 9) }));
    assert!(needs(daily(Measure::Cost, 9)));
    assert!(needs(hard(rate(Measure::OutputTokens, 9))));
}

/// B111: with the default cap two calls of four fit into 10,000 llm_tokens.
#[test]
fn b111_the_default_cap_is_what_is_held() {
    let leg = one(daily(Measure::Tokens, 10_000), &demand(100, None));
    assert_eq!(leg.worst, 125 + 4_096);
    assert_eq!(10_000 / leg.worst, 2);
}

/// B095: the prompt is in the hold whatever the cap.
#[test]
fn b095_the_prompt_is_part_of_the_hold() {
    let leg = one(daily(Measure::Tokens, 20_000), &demand(108_000, Some(1)));
    assert!(leg.worst > 80_000 && amount(&leg, 1) > 80_000);
}

#[test]
fn the_worst_case_is_at_most_the_context() {
    let exact = InputCount { exact: true, ..input(1_000) };
    let of = |input, context| {
        let facts = ModelFacts { context, ..facts() };
        Demand::new(&asked(None), input, &facts, &Learned::default(), true).worst_input
    };
    assert_eq!(of(input(1_000), None), 1_250);
    assert_eq!(of(exact, None), 1_020);
    assert_eq!(of(input(1_000), Some(1_100)), 1_100);
    assert_eq!(of(input(1_000), Some(900)), 1_250);
    assert_eq!(of(input(u64::MAX), None), u64::MAX);
}

/// B112: what is read from a cache counts or not, by one setting; what was learned shows at the door.
#[test]
fn b112_cached_input_counts_by_setting() {
    let mut learned = Learned::default();
    learned.learn(&crate::world::kinds(9_990), &Usage { cached: 8_000, ..used(9_990, 10) });
    let demand = Demand::new(&asked(Some(10)), input(10_000), &facts(), &learned, false);
    let limit = |meter| LimitDraft { meter: Some(meter), ..rate(Measure::Tokens, 10_000) };
    let include = one(limit(MeterPair::PLAIN), &demand);
    let exclude = one(limit(MeterPair::WITHOUT_CACHE_READ), &demand);
    assert_eq!(amount(&include, 0), 10_000);
    assert_eq!(amount(&exclude, 0), 2_000);
    // the worst case trusts no cache
    assert_eq!((include.worst, exclude.worst), (12_510, 12_510));
    let usage = Usage { cached: 8_000, ..used(9_990, 10) };
    for (meter, posted) in [(MeterPair::PLAIN, 10_000), (MeterPair::WITHOUT_CACHE_READ, 2_000)] {
        let (bound, _) = bind(vec![limit(meter)]);
        assert_eq!(actuals(&bound, &usage, None, None), [posted]);
    }
}

/// B090: refused where an account counts cost; elsewhere served.
#[test]
fn b090_a_call_without_a_price() {
    let demand = demand(100, None);
    let (bound, _) = bind(vec![daily(Measure::Cost, 9)]);
    let error = LegsError::Unpriced(bound[0].limits[0].id);
    assert_eq!(made(vec![daily(Measure::Cost, 9)], &demand, None).unwrap_err(), error);
    assert!(made(vec![rate(Measure::Tokens, 9)], &demand, None).is_ok());
    let free =
        RatesDraft { input: Some("0".to_owned()), output: Some("0".to_owned()), ..RatesDraft::default() };
    let free = price(&PriceDraft { rates: free, ..PriceDraft::default() });
    let leg = made(vec![daily(Measure::Cost, 9)], &demand, Some(&free)).unwrap().remove(0);
    assert_eq!((leg.base, leg.per_output, leg.worst), (0, 0, 0));
}

/// B092: the hold is priced at the dearest step and tier the call can meet.
#[test]
fn b092_holds_are_priced_at_the_dearest_rate() {
    let step = RatesDraft { input: Some("0.000004".to_owned()), ..RatesDraft::default() };
    let draft = PriceDraft {
        rates: RatesDraft { cache_write_5m: None, cache_write_1h: None, ..fx1().rates },
        steps: vec![(200_000, step)],
        tiers: vec![("priority".to_owned(), "2".to_owned())],
        ..fx1()
    };
    let price = price(&draft);
    let worst = |llm_tokens, service_tier| {
        let asked = Asked { service_tier, ..asked(Some(10)) };
        let demand = Demand::new(&asked, input(llm_tokens), &facts(), &Learned::default(), true);
        made(vec![daily(Measure::Cost, 9)], &demand, Some(&price)).unwrap()[0].worst
    };
    let output = 100_000;
    assert_eq!(worst(160_000, None), 200_000 * 2_000 + output);
    // with the margin the call can be above the step although the estimate is not
    assert_eq!(worst(170_000, None), 212_500 * 4_000 + output);
    assert_eq!(worst(250_000, None), 312_500 * 4_000 + output);
    assert_eq!(worst(100, Some("priority")), 2 * (125 * 2_000 + output));
}

/// B079: searches the client offers are in the worst case.
#[test]
fn b079_offered_searches_are_in_the_worst_case() {
    let facts = ModelFacts { caches_unasked: false, web_searches_worst: 3, ..facts() };
    let worst = |web_search| {
        let asked = Asked { web_search, ..asked(Some(1)) };
        let demand = Demand::new(&asked, input(100), &facts, &Learned::default(), true);
        one(daily(Measure::Cost, 9), &demand).worst
    };
    assert_eq!(worst(true) - worst(false), 3 * 10_000_000);
}

/// Cache writes are priced where the body asks for them, or where the provider writes unasked.
#[test]
fn cache_writes_are_priced_where_they_can_happen() {
    let worst = |family, cache, cache_hour| {
        let asked = Asked { cache, cache_hour, ..asked(Some(1)) };
        let demand = Demand::new(&asked, input(1_000), &ModelFacts::of(family), &Learned::default(), true);
        (one(daily(Measure::Cost, 9), &demand).worst - 10_000) / 1_250
    };
    assert_eq!(worst(Family::Claude, false, false), 2_000);
    assert_eq!(worst(Family::Claude, true, false), 2_500);
    assert_eq!(worst(Family::Claude, true, true), 4_000);
    assert_eq!(worst(Family::O200k, false, false), 2_500);
}

#[test]
fn hold_factors_multiply_the_whole() {
    let demand = demand(100, Some(50));
    let limit = |factor| LimitDraft { hold_factor_thousandths: Some(factor), ..daily(Measure::Tokens, 9) };
    let leg = one(limit(1_250), &demand);
    assert_eq!((leg.base, leg.per_output, leg.worst), (125_000, 1_250, 219));
    let (bound, _) = bind(vec![limit(1_250)]);
    assert_eq!(actuals(&bound, &used(100, 50), None, None), [150]);
}

#[test]
fn estimators_are_chosen_by_the_limit() {
    let demand = demand(100, Some(50));
    let of = |estimator| one(LimitDraft { estimator, ..rate(Measure::Tokens, 9) }, &demand).estimator;
    let ids = EstimatorIds::new(SubjectId(7), "base");
    let learned = |choice| match of(choice) {
        Estimator::Learned { kind, own, prior, first: FIRST_OUTPUT } => (kind, own, prior),
        other => panic!("{other:?}"),
    };
    assert_eq!(learned(Some(EstimatorChoice::Ema)), (EstimatorKind::Ema, ids.own, ids.prior));
    // What is planned is forecast unless the limit says otherwise; what is held takes the plain mean.
    assert_eq!(learned(None).0, EstimatorKind::Forecast);
    let held = LimitDraft { booking: Some(Booking::Held), ..rate(Measure::Tokens, 9) };
    assert!(matches!(one(held, &demand).estimator, Estimator::Learned { kind: EstimatorKind::Ema, .. }));
    let choices =
        [EstimatorChoice::Ema, EstimatorChoice::RecentMean, EstimatorChoice::P95, EstimatorChoice::Forecast];
    let states: BTreeSet<_> = choices.into_iter().map(|choice| learned(Some(choice)).1).collect();
    assert_eq!(states.len(), 4, "every kind has a state of its own");
    assert_eq!(of(Some(EstimatorChoice::Capped)), Estimator::Capped);
    assert_eq!(of(Some(EstimatorChoice::Constant(8))), Estimator::Constant { output: 8 });
    // a pool takes the output from the tenant's receipt
    let (bound, periods) = bind(vec![rate(Measure::Tokens, 9)]);
    let known = legs(&bound, &demand, None, Output::Known(33), &periods).unwrap();
    assert_eq!(known[0].estimator, Estimator::Constant { output: 33 });
}

#[test]
fn estimators_are_told_apart() {
    let ids = |key, model| EstimatorIds::new(SubjectId(key), model);
    assert_ne!(ids(1, "a").own, ids(2, "a").own);
    assert_ne!(ids(1, "a").own, ids(1, "b").own);
    assert_ne!(ids(0, "a").own, ids(0, "a").prior);
    assert_eq!(ids(1, "a").prior, ids(2, "a").prior);
    assert_ne!(ids(1, "a").prior, ids(1, "b").prior);
}

#[test]
fn a_task_has_an_estimator_of_its_own_and_the_models_prior() {
    let task = |tag: &str| Task::new(tag).unwrap();
    let key = EstimatorIds::new(SubjectId(7), "base");
    assert_eq!(key.of_task(None), key);
    let (sums, titles) = (key.of_task(Some(task("sums"))), key.of_task(Some(task("titles"))));
    assert_eq!(BTreeSet::from([key.own, sums.own, titles.own]).len(), 3);
    assert_eq!((sums.prior, titles.prior), (key.prior, key.prior));
    assert_eq!(sums, key.of_task(Some(task("sums"))));
    let other = EstimatorIds::new(SubjectId(8), "base").of_task(Some(task("sums")));
    assert_ne!(other.own, sums.own, "another key's task of that name");
    // However many tags a client makes up.
    let all: BTreeSet<_> = (0..20_000).map(|n| key.of_task(Some(task(&format!("t-{n}")))).own).collect();
    assert_eq!(all.len(), usize::from(Task::KINDS));
}

#[test]
fn a_tag_is_short_and_plain() {
    let longest = "x".repeat(Task::TAG_MAX);
    for tag in ["a", "Summary-v2_eu.1", "team/chat:title", longest.as_str()] {
        assert!(Task::new(tag).is_some(), "{tag}");
    }
    let longer = format!("{longest}x");
    for tag in ["", " ", "a b", "a\n", "a\0", "größe", "a;b", "a\"", longer.as_str()] {
        assert_eq!(Task::new(tag), None, "{tag:?}");
    }
}

/// Bedrock: cache reads and output weigh differently at the door and at the end; the worst case covers both.
#[test]
fn a_pools_two_meters_are_both_covered_by_the_worst_case() {
    let meter = MeterPair::preset("bedrock_5x").unwrap();
    let limit = LimitDraft { meter: Some(meter), ..rate(Measure::Tokens, 9) };
    let leg = one(limit.clone(), &demand(100, Some(50)));
    assert_eq!((leg.base, leg.per_output, leg.worst), (100_000, 1_000, 125 + 250));
    let (bound, _) = bind(vec![limit]);
    assert_eq!(actuals(&bound, &Usage { cached: 40, ..used(100, 50) }, None, None), [60 + 250]);
}

#[test]
fn images_weigh_by_their_own_weight() {
    let meter = MeterPair::same(Meter { image: 2_000, ..Meter::PLAIN });
    let demand = Demand { input: InputCount { images: 30, ..input(100) }, ..demand(100, Some(1)) };
    let leg = one(LimitDraft { meter: Some(meter), ..rate(Measure::Tokens, 9) }, &demand);
    assert_eq!(leg.base, 70_000 + 60_000);
}

/// A demand beyond the ledger's numbers is refused as too large; the largest that fits is not.
#[test]
fn demands_beyond_the_ledger_are_too_large() {
    let fits = AMOUNT_MAX / 1_000;
    let of_input = |llm_tokens| {
        let demand = Demand { worst_input: llm_tokens, ..demand(llm_tokens, Some(1)) };
        made(vec![rate(Measure::InputTokens, 9)], &demand, None)
    };
    assert!(of_input(fits).is_ok());
    assert!(matches!(of_input(fits + 1), Err(LegsError::TooLarge(_))));
    assert!(matches!(of_input(u64::MAX), Err(LegsError::TooLarge(_))));
    let huge = Demand { cap: u64::MAX, ..demand(1, Some(1)) };
    assert!(matches!(
        made(vec![daily(Measure::Cost, 9)], &huge, Some(&price(&fx1()))),
        Err(LegsError::TooLarge(_))
    ));
}

/// A clamp only ever lowers, and is then written.
#[test]
fn a_clamp_lowers_the_cap_and_writes_it() {
    let demand = demand(100, Some(50));
    assert_eq!(demand.clone().clamped(60, 1), demand);
    let clamped = demand.clamped(20, 2);
    assert_eq!((clamped.cap, clamped.inject_cap), (40, Some(20)));
}

/// A usage within the counted input's margin and the cap.
fn any_usage_within(worst_input: u64, cap: u64) -> impl Strategy<Value = Usage> {
    let part = 0u64..=worst_input.max(cap);
    (0..=worst_input, 0..=cap, part.clone(), part.clone(), part.clone(), part, 0u64..=10).prop_map(
        |(input, output, cached, cache_write, cache_write_1h, reasoning, web_searches)| Usage {
            cached,
            cache_write,
            cache_write_1h,
            image_input: cached / 2,
            audio_input: cache_write / 3,
            reasoning,
            audio_output: reasoning / 2,
            web_searches,
            ..used(input, output)
        },
    )
}

proptest! {
    /// The worst case is never below what any usage within it costs, on any measure, meter, price, tier and factor.
    #[test]
    fn the_worst_case_covers_every_usage_within_it(
        (llm_tokens, cap, usage) in (1u64..300_000, 1u64..5_000).prop_flat_map(|(llm_tokens, cap)| {
            let worst = (llm_tokens * 1_250).div_ceil(1_000);
            (Just(llm_tokens), Just(cap), any_usage_within(worst, cap))
        }),
        tier in prop::sample::select(vec![None, Some("priority"), Some("flex"), Some("odd")]),
        echoed in prop::sample::select(vec![None, Some("default")]),
        factor in 1_000i64..3_000,
        preset in prop::sample::select(MeterPair::PRESETS.to_vec()),
    ) {
        let step = RatesDraft {
            input: Some("0.000004".to_owned()),
            output: Some("0.000003".to_owned()),
            ..RatesDraft::default()
        };
        let draft = PriceDraft {
            steps: vec![(200_000, step)],
            tiers: vec![("priority".to_owned(), "1.7".to_owned()), ("flex".to_owned(), "0.5".to_owned())],
            ..fx1()
        };
        let price = price(&draft);
        let asked = Asked {
            cache: true,
            cache_hour: true,
            web_search: true,
            images: true,
            other_media: true,
            audio_output: true,
            service_tier: tier,
            ..asked(Some(cap))
        };
        let demand = Demand::new(&asked, input(llm_tokens), &facts(), &Learned::default(), true);
        let factored = |limit| LimitDraft { hold_factor_thousandths: Some(factor), ..limit };
        let metered = |measure| LimitDraft { meter: MeterPair::preset(preset), ..factored(daily(measure, 9)) };
        let (bound, periods) = bind(vec![
            metered(Measure::Tokens),
            metered(Measure::InputTokens),
            metered(Measure::OutputTokens),
            factored(daily(Measure::Cost, 9)),
            rate(Measure::Requests, 9),
        ]);
        let legs = legs(&bound, &demand, Some(&price), ids(), &periods).unwrap();
        let amounts = actuals(&bound, &usage, Some(&price), echoed.or(tier));
        for (leg, amount) in legs.iter().zip(amounts) {
            prop_assert!(leg.worst >= amount, "{:?}: worst {} actual {}", leg.measure, leg.worst, amount);
        }
    }

    /// Nothing a client or a model's configuration says makes a leg panic or break the ledger's bounds.
    #[test]
    fn every_demand_has_legs_or_a_refusal(
        llm_tokens: u64,
        sent in prop::option::of(any::<u64>()),
        choices: u64,
        must_hold: bool,
    ) {
        let asked = Asked { choices, web_search: true, ..asked(sent) };
        let demand = Demand::new(&asked, input(llm_tokens), &facts(), &Learned::default(), must_hold);
        let limits = vec![rate(Measure::Tokens, 9), daily(Measure::Cost, 9)];
        if let Ok(legs) = made(limits, &demand, Some(&price(&fx1()))) {
            for leg in legs {
                prop_assert!(leg.worst <= AMOUNT_MAX);
                prop_assert!(u128::from(leg.base) + u128::from(leg.per_output) * u128::from(leg.cap) <= u128::from(AMOUNT_MAX));
            }
        }
    }
}

#[test]
fn reasoning_raises_the_cap_or_stands_beside_it() {
    let facts = ModelFacts::of(Family::O200k);
    let count = InputCount { llm_tokens: 10, built_in: crate::world::kinds(10), images: 0, exact: true };
    let cap = |asked: Asked<'_>| Demand::new(&asked, count, &facts, &Learned::default(), true).cap;
    let plain = asked(Some(100));
    assert_eq!(cap(Asked { thinking_cap: Some(9_000), ..plain }), 9_000);
    assert_eq!(cap(Asked { thinking_cap: Some(9_000), ..asked(Some(20_000)) }), 20_000);
    assert_eq!(cap(Asked { thinking_cap: Some(9_000), ..asked(None) }), 9_000);
    assert_eq!(cap(Asked { thinking_beside: Some(9_000), choices: 2, ..plain }), 18_200);
    assert_eq!(cap(Asked { thinking_beside: Some(u64::MAX), ..plain }), 100 + FACT_MAX);
    let untold = Demand::new(
        &Asked { thinking_cap: Some(9_000), ..asked(None) },
        count,
        &facts,
        &Learned::default(),
        false,
    );
    assert!(!untold.cap_is_told);
}

#[test]
fn b079_searches_of_the_worst_case_are_those_the_client_allows() {
    let facts = ModelFacts::of(Family::O200k);
    let count = InputCount { llm_tokens: 10, built_in: crate::world::kinds(10), images: 0, exact: true };
    let worst =
        |asked: Asked<'_>| Demand::new(&asked, count, &facts, &Learned::default(), true).web_searches_worst;
    let search = Asked { web_search: true, ..asked(Some(1)) };
    assert_eq!(worst(search), WEB_SEARCHES_WORST);
    assert_eq!(worst(Asked { web_searches: Some(3), ..search }), 3);
    assert_eq!(worst(Asked { web_searches: Some(40), ..search }), 40);
    assert_eq!(worst(Asked { web_searches: Some(u64::MAX), ..search }), WEB_SEARCHES_MAX);
    assert_eq!(worst(Asked { web_search: false, web_searches: Some(3), ..search }), 0);
}

/// Embeddings write nothing: there is no cap to hold, to send or to learn from.
#[test]
fn a_call_without_output_has_no_output_leg() {
    let asked = Asked { no_output: true, ..asked(None) };
    let ours = ModelFacts { output_cap: Some(300), ..facts() };
    let demand = Demand::new(&asked, input(100), &ours, &Learned::default(), true);
    assert_eq!((demand.cap, demand.inject_cap, demand.first_output), (0, None, 0));
    assert!(demand.cap_is_told);
}

/// What a surface says of an absent cap is held, and sent where a hard limit needs one.
#[test]
fn an_unsaid_cap_is_the_surfaces_own() {
    let asked = Asked { output_cap_unsaid: Some(16), choices: 3, ..asked(None) };
    let free = Demand::new(&asked, input(100), &facts(), &Learned::default(), false);
    assert_eq!((free.cap, free.inject_cap, free.cap_is_told), (48, None, false));
    let hard = Demand::new(&asked, input(100), &facts(), &Learned::default(), true);
    assert_eq!((hard.cap, hard.inject_cap, hard.cap_is_told), (48, Some(16), true));
}

#[test]
fn output_that_was_made_leaves_echoes_out_and_takes_unseen_answers_in() {
    let made = |choices, choices_shown, echoes, counted| {
        let asked = Asked { choices, choices_shown, echoes, ..asked(Some(50)) };
        Demand::new(&asked, input(100), &facts(), &Learned::default(), false).made(counted)
    };
    assert_eq!(made(1, 1, 0, 30), 30);
    assert_eq!(made(1, 0, 0, 30), 30, "all are shown where nothing is said");
    assert_eq!(made(4, 2, 0, 31), 62);
    assert_eq!(made(5, 2, 0, 31), 78, "rounded up");
    assert_eq!(made(2, 2, 2, 230), 30, "each of two answers repeats the prompt");
    assert_eq!(made(1, 1, 1, 90), 0);
    assert_eq!(made(u64::MAX, 1, 0, u64::MAX), u64::MAX);
}
