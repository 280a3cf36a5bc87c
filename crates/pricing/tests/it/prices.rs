//! What calls cost.

use crate::world::{fx1, price, used};
use proptest::prelude::*;
use tollbook_pricing::{Parts, Price, PriceBook, PriceDraft, PriceUnit, Rates, RatesDraft};
use tollbook_wire::{HostedCalls, HostedTool, HostedTools, Usage};

#[allow(clippy::unnecessary_wraps, reason = "as a draft's fields want it")]
fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn cost(price: &Price, usage: &Usage) -> u64 {
    price.cost(&Parts::of(usage), usage.web_searches, None)
}

fn problems(draft: &PriceDraft) -> Vec<String> {
    Price::new(draft).unwrap_err().iter().map(ToString::to_string).collect()
}

/// Usage objects and what they cost at `fx-1`, in nano-currency.
#[test]
fn b068_b075_b076_b078_b079_b093_costs_of_known_usages() {
    let fx1 = price(&fx1());
    let table = [
        ("b093 cached within the prompt", Usage { cached: 900, ..used(1_000, 50) }, 880_000),
        ("b093 cached above the prompt", Usage { cached: 150, ..used(100, 0) }, 20_000),
        (
            "b068 both cache lifetimes",
            Usage { cache_write: 1_000, cache_write_1h: 600, ..used(1_010, 1) },
            3_430_000,
        ),
        ("b068 no breakdown", Usage { cache_write: 1_000, ..used(1_010, 1) }, 20_000 + 2_500_000 + 10_000),
        ("b075 reasoning inside the output", Usage { reasoning: 400, ..used(20, 550) }, 5_540_000),
        ("b076 reasoning is not added again", used(20, 550), 5_540_000),
        ("b078 audio output", Usage { audio_output: 40, reasoning: 20, ..used(0, 60) }, 680_000),
        ("b079 two searches", Usage { web_searches: 2, ..used(0, 0) }, 20_000_000),
        ("nothing", used(0, 0), 0),
    ];
    for (what, usage, nano) in table {
        assert_eq!(cost(&fx1, &usage), nano, "{what}");
    }
}

/// B088: the smallest fraction counts, and is rounded up once per call, not once per part.
#[test]
fn b088_a_cost_is_rounded_up_once() {
    let per_token = |input: &str, output: &str| {
        price(&PriceDraft {
            unit: PriceUnit::PerToken,
            rates: RatesDraft { input: text(input), output: text(output), ..RatesDraft::default() },
            ..PriceDraft::default()
        })
    };
    let tiny = per_token("1e-12", "1e-12");
    assert_eq!(cost(&tiny, &used(1, 0)), 1);
    assert_eq!(cost(&tiny, &used(1, 1)), 1);
    assert_eq!(cost(&tiny, &used(500, 500)), 1);
    assert_eq!(cost(&tiny, &used(501, 500)), 2);
}

/// B092: the step of the true input size prices the whole call, and the tier multiplies it.
#[test]
fn b092_size_steps_and_service_tiers() {
    let step = RatesDraft { input: text("0.000004"), ..RatesDraft::default() };
    let draft = PriceDraft {
        steps: vec![(200_000, step)],
        tiers: vec![("priority".to_owned(), "2".to_owned()), ("flex".to_owned(), "0.5".to_owned())],
        ..fx1()
    };
    let price = price(&draft);
    let of = |input, tier| price.cost(&Parts::of(&used(input, 10)), 0, tier);
    assert_eq!(of(200_000, None), 400_000_000 + 100_000);
    assert_eq!(of(200_001, None), 800_004_000 + 100_000);
    assert_eq!(of(100, Some("priority")), 2 * 300_000);
    assert_eq!(of(100, Some("flex")), 150_000);
    assert_eq!(of(100, Some("unheard of")), 300_000);
    // what can be met at the door: a downgraded tier is the standard one, an unknown one the dearest
    let worst = [None, Some("default"), Some("flex"), Some("priority"), Some("auto")]
        .map(|tier| price.tier_worst(tier));
    assert_eq!(worst, [1_000, 1_000, 1_000, 2_000, 2_000]);
    // parts the base prices on their own keep their prices in a step
    assert_eq!((price.rates(200_001).cache_read, price.rates(200_001).audio_output), (200_000, 12_000_000));
}

#[test]
fn missing_rates_fall_back_to_what_contains_them() {
    let rates = RatesDraft { input: text("2"), output: text("10"), ..RatesDraft::default() };
    let price = price(&PriceDraft { rates, ..PriceDraft::default() });
    let all = Rates {
        input: 2_000_000,
        cache_read: 2_000_000,
        cache_write_5m: 2_000_000,
        cache_write_1h: 2_000_000,
        audio_input: 2_000_000,
        image_input: 2_000_000,
        output: 10_000_000,
        reasoning: 10_000_000,
        audio_output: 10_000_000,
    };
    assert_eq!(*price.rates(1), all);
}

/// B090: missing is not free; an explicit 0 is.
#[test]
fn b090_missing_and_zero_are_different() {
    assert_eq!(
        problems(&PriceDraft::default()),
        [
            "rates.input: is missing; write 0 for a free model",
            "rates.output: is missing; write 0 for a free model"
        ]
    );
    let free = RatesDraft { input: text("0"), output: text("0.0"), ..RatesDraft::default() };
    let free = price(&PriceDraft { rates: free, ..PriceDraft::default() });
    assert_eq!(cost(&free, &used(1_000_000, 1_000_000)), 0);

    let mut book = PriceBook::default();
    book.models.insert("free".to_owned(), free.clone());
    assert!(book.price("free").is_some());
    assert!(book.price("unknown").is_none());
    book.default = Some(free);
    assert!(book.price("unknown").is_some());
}

/// B086: every wrong field is told by name.
#[test]
fn b086_wrong_prices_name_their_fields() {
    let rates = RatesDraft {
        input: text("-1"),
        output: text("NaN"),
        cache_read: text("1e-20"),
        reasoning: text("1e30"),
        image_input: text("1000000001"),
        ..RatesDraft::default()
    };
    let draft = PriceDraft {
        rates,
        steps: vec![
            (10, RatesDraft { input: text("x"), ..RatesDraft::default() }),
            (10, RatesDraft::default()),
        ],
        tiers: vec![("fast".to_owned(), "-2".to_owned()), ("fast".to_owned(), "2.0005".to_owned())],
        web_search: text("Infinity"),
        tools: [("hammer", "1"), ("mcp", "-1"), ("other", "0.0000000001"), ("other", "1"), ("other", "2")]
            .map(|(name, fee)| (name.to_owned(), fee.to_owned()))
            .to_vec(),
        ..PriceDraft::default()
    };
    assert_eq!(
        problems(&draft),
        [
            "rates.input: must not be negative",
            "rates.output: must be finite",
            "rates.cache_read: is finer than the smallest unit, 1e-6",
            "rates.image_input: is too large",
            "rates.reasoning: is too large",
            "steps[0].input: is not a decimal number",
            "steps[1].above: must grow from step to step",
            "tiers.fast: must not be negative",
            "tiers.fast: is finer than the smallest unit, 1e-3",
            "tiers.fast: is given twice",
            "web_search: must be finite",
            "tools.hammer: is no hosted tool; name code_interpreter, file_search, image_generation, computer_use, mcp or other",
            "tools.mcp: must not be negative",
            "tools.other: is finer than the smallest unit, 1e-9",
            "tools.other: is given twice",
            "tools.other: is given twice",
        ]
    );
    let many = PriceDraft {
        steps: (0..17).map(|above| (above, RatesDraft::default())).collect(),
        tiers: (0..17).map(|n| (n.to_string(), "1".to_owned())).collect(),
        ..fx1()
    };
    assert_eq!(problems(&many), ["steps: more than 16", "tiers: more than 16"]);
}

/// Largest rates and usages: no overflow, and the ledger's largest amount at most.
#[test]
fn costs_saturate_at_the_ledgers_largest_amount() {
    let rates = RatesDraft { input: text("1000000000"), output: text("1000000000"), ..RatesDraft::default() };
    let dear = price(&PriceDraft { rates, web_search: text("1000"), ..PriceDraft::default() });
    let huge = Usage { web_searches: u64::MAX, ..used(u64::MAX, u64::MAX) };
    assert_eq!(cost(&dear, &huge), tollbook_ledger::AMOUNT_MAX);
}

#[test]
fn fees_of_hosted_tools_are_by_kind_and_saturate() {
    let fees = |tools: &[(&str, &str)]| {
        let tools = tools.iter().map(|(name, fee)| ((*name).to_owned(), (*fee).to_owned())).collect();
        price(&PriceDraft { tools, ..fx1() })
    };
    let all: HostedTools = HostedTool::ALL.into_iter().map(|(tool, _)| tool).collect();
    let only = |tool| [tool].into_iter().collect::<HostedTools>();
    let none = fees(&[]);
    assert_eq!(none.unpriced(all), Some(HostedTool::CodeInterpreter));
    assert_eq!(none.unpriced(HostedTools::default()), None);
    let some = fees(&[("file_search", "0.0025"), ("mcp", "0")]);
    assert_eq!(some.unpriced(only(HostedTool::Mcp)), None, "0 is a fee");
    assert_eq!(some.unpriced(only(HostedTool::Other)), Some(HostedTool::Other));
    assert_eq!(some.tool_fees(&HostedCalls::each(all, 3)), 7_500_000);
    let rest = fees(&[("file_search", "0.0025"), ("other", "1")]);
    assert_eq!(rest.unpriced(all), None);
    assert_eq!(rest.tool_fees(&HostedCalls::each(all, 1)), 5_002_500_000);
    let dear = fees(&[("other", "1000")]);
    assert_eq!(dear.tool_fees(&HostedCalls::each(all, u32::MAX)), tollbook_ledger::AMOUNT_MAX);
}

fn any_usage() -> impl Strategy<Value = Usage> {
    let n = 0u64..20_000_000;
    (n.clone(), n.clone(), n.clone(), n.clone(), n.clone(), n.clone(), n.clone(), n.clone(), n, 0u64..5)
        .prop_map(
            |(
                input,
                output,
                cached,
                cache_write,
                cache_write_1h,
                audio_input,
                image_input,
                reasoning,
                audio_output,
                web,
            )| {
                Usage {
                    cached,
                    cache_write,
                    cache_write_1h,
                    audio_input,
                    image_input,
                    reasoning,
                    audio_output,
                    web_searches: web,
                    ..used(input, output)
                }
            },
        )
}

proptest! {
    /// B093: parts are disjoint and make up the whole, however the figures contradict each other.
    #[test]
    fn b093_parts_always_make_up_the_whole(usage in any_usage()) {
        let parts = Parts::of(&usage);
        prop_assert_eq!((parts.input(), parts.output()), (usage.input, usage.output));
    }

    /// B087: sums of calls are the sums of their integers; a call never costs less than nothing or than a smaller one.
    #[test]
    fn b087_cost_grows_with_usage(usage in any_usage(), more in 1u64..1_000) {
        let fx1 = price(&fx1());
        let larger = Usage { output: usage.output + more, ..usage };
        prop_assert!(cost(&fx1, &larger) >= cost(&fx1, &usage));
    }
}
