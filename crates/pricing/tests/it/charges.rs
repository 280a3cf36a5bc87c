//! The table of endings.

use crate::world::{bind, concurrency, daily, fx1, price, rate, used};
use tollbook_ledger::{Receipt, ReleaseWhy, ReservationId};
use tollbook_policy::Measure;
use tollbook_pricing::{
    Asked, Charge, Decision, Demand, Ending, Family, Figures, InputCount, Learned, ModelFacts, Seen, actuals,
    charge, unknown_actuals,
};
use tollbook_wire::Usage;

const INPUT: u64 = 100;
const CAP: u64 = 50;

fn facts() -> ModelFacts {
    ModelFacts { context: Some(10_000), ..ModelFacts::of(Family::O200k) }
}

fn demand() -> Demand {
    let input =
        InputCount { llm_tokens: INPUT, built_in: crate::world::kinds(INPUT), images: 0, exact: false };
    let asked = Asked { output_cap: Some(CAP), choices: 1, ..Asked::default() };
    Demand::new(&asked, input, &facts(), &Learned::default(), false)
}

fn decide(ending: Ending, usage: Option<Usage>, output: u64) -> Decision {
    charge(ending, &Seen { usage, output, output_seen: output > 0, web_searches: 0 }, &demand(), &facts())
}

fn settled(input: u64, output: u64, figures: Figures, learn: Option<u64>) -> Charge {
    Charge::Settle { usage: Usage { input, output, ..Usage::default() }, figures, learn }
}

/// Every row of the table, without a usage.
#[test]
fn endings_without_usage() {
    use Ending::{Complete, CutBuffered, CutStream, NeverSent, ProviderError};
    for (ending, output, expected) in [
        (NeverSent, 0, Charge::Release(ReleaseWhy::NeverSent)),
        (ProviderError, 0, Charge::Release(ReleaseWhy::Failed)),
        (Complete, 20, settled(INPUT, 20, Figures::Metered, None)),
        (Complete, 0, settled(INPUT, 0, Figures::Metered, None)),
        (CutStream, 20, settled(INPUT, 22, Figures::Partial, None)),
        (CutStream, 21, settled(INPUT, 24, Figures::Partial, None)),
        // at most the worst case
        (CutStream, 48, settled(INPUT, CAP, Figures::Partial, None)),
        (CutStream, 5_000, settled(INPUT, CAP, Figures::Partial, None)),
        (Complete, 5_000, settled(INPUT, CAP, Figures::Metered, None)),
        (CutStream, 0, settled(INPUT, 0, Figures::Partial, None)),
        (CutBuffered, 0, Charge::Unknown),
    ] {
        assert_eq!(
            decide(ending, None, output),
            Decision { charge: expected, disbelieved: false },
            "{ending:?}"
        );
    }
}

/// Where nobody told the upstream a cap, what came is charged although it is more than was reserved.
#[test]
fn output_beyond_a_cap_nobody_told_is_charged() {
    let input =
        InputCount { llm_tokens: INPUT, built_in: crate::world::kinds(INPUT), images: 0, exact: false };
    let asked = Asked { choices: 1, ..Asked::default() };
    let demand = Demand::new(&asked, input, &facts(), &Learned::default(), false);
    assert!(!demand.cap_is_told);
    for (ending, output, charged) in [
        (Ending::CutStream, 4_000, 4_096),
        (Ending::CutStream, 5_000, 5_000),
        (Ending::Complete, 5_000, 5_000),
        (Ending::Complete, 100, 100),
    ] {
        let seen = Seen { usage: None, output, output_seen: true, web_searches: 0 };
        let Charge::Settle { usage, .. } = charge(ending, &seen, &demand, &facts()).charge else { panic!() };
        assert_eq!(usage.output, charged, "{ending:?} {output}");
    }
}

/// Any ending with a usage object is charged by it, and learned from if it is final.
#[test]
fn endings_with_usage_are_charged_by_it() {
    let usage = used(120, 30);
    for ending in [Ending::Complete, Ending::ProviderError, Ending::CutStream, Ending::CutBuffered] {
        let expected = Charge::Settle { usage, figures: Figures::Reported, learn: Some(30) };
        assert_eq!(decide(ending, Some(usage), 5).charge, expected, "{ending:?}");
    }
    assert_eq!(decide(Ending::NeverSent, Some(usage), 0).charge, Charge::Release(ReleaseWhy::NeverSent));
    // above the cap, above the hold: the truth
    let over = used(500, 900);
    assert!(
        matches!(decide(Ending::Complete, Some(over), 0).charge, Charge::Settle { usage, .. } if usage == over)
    );
}

/// A usage that is only the start of one (Anthropic's first event): its input stands, the output is counted.
#[test]
fn start_values_are_not_the_end() {
    let start = Usage { complete: false, ..used(120, 1) };
    let of = |ending, output| match decide(ending, Some(start), output).charge {
        Charge::Settle { usage, figures, learn } => (usage.input, usage.output, figures, learn),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(Ending::CutStream, 20), (120, 22, Figures::Partial, None));
    assert_eq!(of(Ending::CutStream, 0), (120, 1, Figures::Partial, None));
    assert_eq!(of(Ending::Complete, 20), (120, 20, Figures::Metered, None));
}

/// B057: one member missing: what is there stands, the rest is counted.
#[test]
fn b057_one_member_missing() {
    let of = |usage| match decide(Ending::Complete, Some(usage), 20).charge {
        Charge::Settle { usage, figures, learn } => (usage.input, usage.output, figures, learn),
        other => panic!("{other:?}"),
    };
    let no_output = Usage { output_reported: false, output: 0, ..used(120, 0) };
    assert_eq!(of(no_output), (120, 20, Figures::Metered, None));
    let no_input = Usage { input_reported: false, input: 0, ..used(0, 30) };
    assert_eq!(of(no_input), (INPUT, 30, Figures::Metered, None));
    let only_total = Usage { split_estimated: true, ..used(150, 0) };
    assert_eq!(of(only_total), (INPUT, 50, Figures::Reported, None));
}

/// B082, B084: what cannot be true is not believed; the estimate stands and the call is charged.
#[test]
fn b084_absurd_usage_is_not_believed() {
    let absurd = Some(used(10, 10_001));
    assert_eq!(
        decide(Ending::Complete, absurd, 20),
        Decision { charge: settled(INPUT, 20, Figures::Metered, None), disbelieved: true }
    );
    assert_eq!(
        decide(Ending::ProviderError, absurd, 0),
        Decision { charge: Charge::Release(ReleaseWhy::Failed), disbelieved: true }
    );
    assert!(!decide(Ending::Complete, Some(used(10_000, 10_000)), 0).disbelieved);
    let unbounded = ModelFacts { context: None, ..facts() };
    let seen = Seen { usage: absurd, output: 0, output_seen: false, web_searches: 0 };
    assert!(!charge(Ending::Complete, &seen, &demand(), &unbounded).disbelieved);
}

/// Amounts per leg, by measure, from one usage.
#[test]
fn a_usage_becomes_one_amount_per_leg() {
    let (bound, _) = bind(vec![
        rate(Measure::Requests, 9),
        rate(Measure::Tokens, 9_000),
        rate(Measure::InputTokens, 9_000),
        rate(Measure::OutputTokens, 9_000),
        daily(Measure::Cost, 9_000),
        concurrency(9),
    ]);
    let usage = Usage { cached: 900, ..used(1_000, 50) };
    let amounts = actuals(&bound, &usage, Some(&price(&fx1())), None);
    for (account, amount) in bound.iter().zip(&amounts) {
        let expected = match account.measure {
            Measure::Requests => 1,
            Measure::Concurrency => 0,
            Measure::Tokens => 1_050,
            Measure::InputTokens => 1_000,
            Measure::OutputTokens => 50,
            Measure::Cost => 880_000,
        };
        assert_eq!(*amount, expected, "{:?}", account.measure);
    }
    let unpriced = actuals(&bound, &usage, None, None);
    assert!(unpriced.iter().zip(&bound).all(|(n, account)| *n == 0 || account.measure != Measure::Cost));
}

/// A buffered call whose answer never came: expected on rates, held on quotas.
#[test]
fn unknown_outcomes_are_charged_as_held() {
    let (bound, _) = bind(vec![
        rate(Measure::Requests, 9),
        rate(Measure::Tokens, 9_000),
        daily(Measure::Tokens, 9_000),
        concurrency(9),
    ]);
    let legs = bound
        .iter()
        .map(|account| tollbook_ledger::LegReceipt {
            account: account.account,
            place: 0,
            expected: 70,
            held: 150,
            output: 20,
            ceiling: 9_000,
            posted: 0,
            held_total: 150,
            reset: 0,
            shadow_denied: false,
        })
        .collect();
    let receipt = Receipt { id: ReservationId(1), attempt: 0, now: 0, legs };
    let amounts = unknown_actuals(&bound, &receipt);
    for (account, amount) in bound.iter().zip(amounts) {
        let expected = match (account.measure, account.shape) {
            (Measure::Requests, _) => 1,
            (Measure::Concurrency, _) => 0,
            (_, tollbook_ledger::Shape::Quota) => 150,
            _ => 70,
        };
        assert_eq!(amount, expected, "{:?}", account.measure);
    }
}

#[test]
fn b079_a_search_that_is_certain_is_charged_though_nobody_reports_it() {
    let certain = Demand { web_searches_least: 1, ..demand() };
    let usage = Usage {
        input: 5,
        output: 6,
        input_reported: true,
        output_reported: true,
        complete: true,
        ..Usage::default()
    };
    for (reported, want) in [(0, 1), (1, 1), (4, 4)] {
        let seen = Seen {
            usage: Some(Usage { web_searches: reported, ..usage }),
            output: 6,
            output_seen: true,
            web_searches: 0,
        };
        let facts = ModelFacts::of(Family::O200k);
        let Charge::Settle { usage, .. } = charge(Ending::Complete, &seen, &certain, &facts).charge else {
            panic!("a complete call is settled")
        };
        assert_eq!(usage.web_searches, want);
    }
    let seen = Seen { usage: None, output: 0, output_seen: false, web_searches: 0 };
    let facts = ModelFacts::of(Family::O200k);
    assert_eq!(
        charge(Ending::ProviderError, &seen, &certain, &facts).charge,
        Charge::Release(ReleaseWhy::Failed)
    );
}
