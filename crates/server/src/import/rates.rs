//! Prices in LiteLLM's fields: currency per llm_token, by part, size step and service tier.
//!
//! Invariants: a number is read from its text, exactly, into whole pico-currency; finer ones are rounded up and told.
//! A price that our price book has no place for is told, never guessed, and a 0 needs no place.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tollbook_pricing::{DecimalError, FEE_MAX, RATE_MAX, STEPS_MAX, TIER_MAX, nano_text, parse_scaled};

use super::{Notes, fields, get, is_null, items, problem, scalar};
use crate::config::Problem;
use crate::config::node::Node;

/// Our part of a price, LiteLLM's field, and whether a size step may change it.
const PARTS: [(&str, &str, bool); 9] = [
    ("input", "input_cost_per_token", true),
    ("cached", "cache_read_input_token_cost", true),
    ("cache_write", "cache_creation_input_token_cost", true),
    ("cache_write_1h", "cache_creation_input_token_cost_above_1hr", true),
    ("image_input", "input_cost_per_image_token", false),
    ("audio_input", "input_cost_per_audio_token", false),
    ("output", "output_cost_per_token", true),
    ("reasoning", "output_cost_per_reasoning_token", true),
    ("audio_output", "output_cost_per_audio_token", false),
];
const INPUT: usize = 0;
const OUTPUT: usize = 6;
/// Decimal places of a pico.
const PICO: u32 = 12;
/// Most decimal places that are looked at; a number in a JSON file that was a float once has at most 17 digits.
const PLACES_MAX: u32 = 40;
/// Tiers whose prices have fields of their own.
const TIERS: [&str; 2] = ["flex", "priority"];
const WEB_SEARCH: &str = "search_context_cost_per_query";
const TIERED: &str = "tiered_pricing";
/// LiteLLM's fee of a hosted tool, our tool, and for how many calls it is.
const TOOLS: [(&str, &str, u64); 2] = [
    ("file_search_cost_per_1k_calls", "file_search", 1000),
    ("code_interpreter_cost_per_session", "code_interpreter", 1),
];

/// Pico-currency per llm_token of each of [`PARTS`].
type Rates = BTreeMap<usize, u64>;

/// A price as our price book has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Price {
    base: Rates,
    /// By the size that the whole input must be above.
    steps: BTreeMap<u64, Rates>,
    /// Multipliers in thousandths.
    tiers: BTreeMap<&'static str, u64>,
    /// Nano-currency.
    web_search: Option<u64>,
    tools: BTreeMap<&'static str, u64>,
}

/// What became of the fields of a model.
#[derive(Debug)]
pub(super) enum Priced {
    Known(Price),
    /// No price of ours can be made of it: why.
    Inexpressible(String),
    /// No field tells a price.
    Absent,
}

impl Price {
    /// Whether every rate is 0.
    pub(super) fn is_free(&self) -> bool {
        let of_steps = self.steps.values().flat_map(BTreeMap::values);
        self.base.values().chain(of_steps).all(|rate| *rate == 0)
    }

    /// As the configuration writes it, per million llm_tokens.
    pub(super) fn value(&self) -> Value {
        let mut price = rates_value(&self.base);
        if !self.steps.is_empty() {
            let step = |(above, rates): (&u64, &Rates)| {
                let mut step = Map::new();
                step.insert("above".to_owned(), (*above).into());
                step.extend(rates_value(rates));
                Value::Object(step)
            };
            price.insert("steps".to_owned(), self.steps.iter().map(step).collect());
        }
        if let Some(fee) = self.web_search {
            price.insert("web_search".to_owned(), nano_text(fee).into());
        }
        if !self.tools.is_empty() {
            let fees = self.tools.iter().map(|(tool, fee)| ((*tool).to_owned(), nano_text(*fee).into()));
            price.insert("tools".to_owned(), Value::Object(fees.collect()));
        }
        if !self.tiers.is_empty() {
            let tiers = self.tiers.iter().map(|(tier, thousandths)| {
                ((*tier).to_owned(), nano_text(thousandths.saturating_mul(1_000_000)).into())
            });
            price.insert("tiers".to_owned(), Value::Object(tiers.collect()));
        }
        Value::Object(price)
    }
}

fn rates_value(rates: &Rates) -> Map<String, Value> {
    let named = |(part, pico): (&usize, &u64)| {
        // Pico per llm_token is micro per million of them; the texts of nano are made of a thousand times as much.
        let text = nano_text(pico.saturating_mul(1000));
        PARTS.get(*part).map(|(name, ..)| ((*name).to_owned(), text.into()))
    };
    rates.iter().filter_map(named).collect()
}

/// What a field is the price of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Meaning<'a> {
    part: usize,
    above: Option<u64>,
    tier: Option<&'a str>,
}

/// `None` if the field is no price of a part.
fn meaning(field: &str) -> Option<Meaning<'_>> {
    let tiered = TIERS.iter().chain(&["batches"]).find_map(|tier| {
        field.strip_suffix(tier).and_then(|rest| rest.strip_suffix('_')).map(|rest| (rest, Some(*tier)))
    });
    let (rest, tier) = tiered.unwrap_or((field, None));
    let (name, above) = match rest.strip_suffix("k_tokens").and_then(|rest| rest.rsplit_once("_above_")) {
        Some((name, thousands)) => (name, Some(thousands.parse::<u64>().ok()?.checked_mul(1000)?)),
        None => (rest, None),
    };
    let part = PARTS.iter().position(|(_, theirs, _)| *theirs == name)?;
    Some(Meaning { part, above, tier })
}

/// Reads the fields of one model; `objects` are asked in turn, the first that gives a field counts.
pub(super) fn priced(
    model: &str,
    objects: &[&Node],
    mode: Option<&str>,
    notes: &mut Notes,
) -> Result<Priced, Vec<Problem>> {
    let mut reader = Reader { model, notes, problems: Vec::new() };
    let mut given: BTreeMap<&str, &Node> = BTreeMap::new();
    for object in objects.iter().rev() {
        let found = fields(object).unwrap_or_default().iter().filter(|field| !is_null(&field.value));
        given.extend(found.map(|field| (field.name.as_str(), &field.value)));
    }
    let priced = reader.price(&given, mode);
    if reader.problems.is_empty() { Ok(priced) } else { Err(reader.problems) }
}

struct Reader<'a> {
    model: &'a str,
    notes: &'a mut Notes,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn note(&mut self, what: impl Into<String>) {
        self.notes.add(self.model, what);
    }

    /// A number × 10^`places`, rounded up where it is finer.
    fn number(&mut self, name: &str, node: &Node, places: u32, max: u64) -> Option<u64> {
        let path = format!("{}.{name}", self.model);
        let Some(written) = scalar(node).filter(|scalar| scalar.plain) else {
            self.problems.push(problem(node, path, "must be a number"));
            return None;
        };
        let exact = parse_scaled(&written.text, places);
        let rounded = match exact {
            Err(DecimalError::TooFine(_)) => {
                let finer = (places + 1..=PLACES_MAX).find_map(|digits| {
                    let more = 10u64.checked_pow(digits - places);
                    // Beyond what a power can tell, any number that fits is below one.
                    parse_scaled(&written.text, digits).ok().map(|n| more.map_or(1, |more| n.div_ceil(more)))
                });
                self.note(format!("{name} is finer than 1e-{places} and is rounded up"));
                finer.ok_or(DecimalError::TooFine(places))
            }
            other => other,
        };
        let what = match rounded {
            Ok(number) if number <= max => return Some(number),
            Ok(_) => DecimalError::TooLarge.to_string(),
            Err(error) => error.to_string(),
        };
        self.problems.push(problem(node, path, format!("`{}` {what}", written.text)));
        None
    }

    fn price(&mut self, given: &BTreeMap<&str, &Node>, mode: Option<&str>) -> Priced {
        let mut price = Price::default();
        let mut tiers: BTreeMap<&'static str, BTreeMap<(Option<u64>, usize), u64>> = BTreeMap::new();
        let mut others: Vec<(&str, &Node)> = Vec::new();
        for (name, node) in given {
            let Some(meaning) = meaning(name) else {
                others.push((name, node));
                continue;
            };
            let Some(pico) = self.number(name, node, PICO, RATE_MAX) else { continue };
            match (meaning.tier, meaning.above) {
                (Some("batches"), _) => {
                    self.note(
                        "prices of batches have no place: batches are billed where the gateway does not look",
                    );
                }
                (Some(tier), above) => {
                    if let Some(tier) = TIERS.iter().find(|known| **known == tier) {
                        tiers.entry(tier).or_default().insert((above, meaning.part), pico);
                    }
                }
                (None, None) => drop(price.base.insert(meaning.part, pico)),
                (None, Some(above)) if PARTS.get(meaning.part).is_some_and(|(.., in_steps)| *in_steps) => {
                    price.steps.entry(above).or_default().insert(meaning.part, pico);
                }
                (None, Some(_)) => self.note(format!("{name} has no place: a size step has no price of it")),
            }
        }
        self.others(&mut price, &others);
        self.service_tiers(&mut price, &tiers);
        Self::judge(price, given, mode)
    }

    /// Fields that are no price of a part.
    fn others(&mut self, price: &mut Price, others: &[(&str, &Node)]) {
        for (name, node) in others {
            if *name == TIERED {
                self.tiered(price, node);
            } else if *name == WEB_SEARCH {
                self.web_search(price, node);
            } else if let Some((_, tool, calls)) = TOOLS.iter().find(|(theirs, ..)| theirs == name) {
                // A session may serve several calls of the tool: charging each is never too little.
                let fee = self.number(name, node, 9, FEE_MAX);
                price.tools.extend(fee.filter(|fee| *fee > 0).map(|fee| (*tool, fee.div_ceil(*calls))));
            } else if name.contains("cost") && !is_zero(node) {
                self.note(format!("{name} has no place"));
            }
        }
    }

    /// One fee per search: the dearest.
    fn web_search(&mut self, price: &mut Price, node: &Node) {
        let sizes = fields(node).unwrap_or_default();
        if sizes.is_empty() {
            self.problems.push(problem(
                node,
                format!("{}.{WEB_SEARCH}", self.model),
                "must be an object of fees",
            ));
        }
        let fees: Vec<u64> =
            sizes.iter().filter_map(|size| self.number(WEB_SEARCH, &size.value, 9, FEE_MAX)).collect();
        let (low, high) = (fees.iter().min().copied(), fees.iter().max().copied());
        if low != high {
            self.note("a web search has one fee: the dearest of its sizes is taken");
        }
        price.web_search = high.filter(|fee| *fee > 0);
    }

    /// Prices by ranges of input: the first range is the base, the others are steps.
    fn tiered(&mut self, price: &mut Price, node: &Node) {
        let path = format!("{}.{TIERED}", self.model);
        let Some(ranges) = items(node).filter(|ranges| !ranges.is_empty()) else {
            self.problems.push(problem(node, path, "must be a list of ranges"));
            return;
        };
        for (index, range) in ranges.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let from = get(range, "range").and_then(items).and_then(<[Node]>::first);
            let above = from.and_then(scalar).and_then(|from| parse_scaled(&from.text, 0).ok());
            let Some(above) = above else {
                self.problems.push(problem(range, path, "its `range` must begin with a whole number"));
                continue;
            };
            let mut rates = Rates::new();
            for field in fields(range).unwrap_or_default().iter().filter(|field| field.name != "range") {
                let known = meaning(&field.name).filter(|m| m.above.is_none() && m.tier.is_none());
                match known
                    .filter(|m| above == 0 || PARTS.get(m.part).is_some_and(|(.., in_steps)| *in_steps))
                {
                    Some(meaning) => {
                        let pico = self.number(
                            &format!("{TIERED}[{index}].{}", field.name),
                            &field.value,
                            PICO,
                            RATE_MAX,
                        );
                        rates.extend(pico.map(|pico| (meaning.part, pico)));
                    }
                    None if is_zero(&field.value) => {}
                    None => self.note(format!("{} of {TIERED} has no place", field.name)),
                }
            }
            if above == 0 {
                price.base.extend(rates);
            } else {
                price.steps.entry(above).or_default().extend(rates);
            }
        }
    }

    /// A tier is one multiplier of all prices here, and is carried over where it is one there.
    fn service_tiers(
        &mut self,
        price: &mut Price,
        tiers: &BTreeMap<&'static str, BTreeMap<(Option<u64>, usize), u64>>,
    ) {
        let base = price.base.iter().map(|(part, pico)| ((None, *part), *pico));
        let steps = price.steps.iter();
        let steps =
            steps.flat_map(|(above, rates)| rates.iter().map(|(part, pico)| ((Some(*above), *part), *pico)));
        let standard: BTreeMap<(Option<u64>, usize), u64> = base.chain(steps).collect();
        for (tier, rates) in tiers {
            let multiplier =
                standard.get(&(None, INPUT)).zip(rates.get(&(None, INPUT))).and_then(|(one, this)| {
                    let scaled = this.checked_mul(1000)?;
                    (*one > 0 && scaled.is_multiple_of(*one)).then(|| scaled / one)
                });
            let holds = |multiplier: u64| {
                let scaled = |pico: u64| u128::from(pico) * u128::from(multiplier);
                multiplier <= u64::from(TIER_MAX)
                    && standard.len() == rates.len()
                    && standard.iter().all(|(what, pico)| {
                        rates.get(what).is_some_and(|this| u128::from(*this) * 1000 == scaled(*pico))
                    })
            };
            match multiplier.filter(|multiplier| holds(*multiplier)) {
                Some(multiplier) => drop(price.tiers.insert(tier, multiplier)),
                None => self.note(format!(
                    "the prices of tier `{tier}` are no one multiple of the standard ones and have no place"
                )),
            }
        }
    }

    fn judge(mut price: Price, given: &BTreeMap<&str, &Node>, mode: Option<&str>) -> Priced {
        if price.base.contains_key(&INPUT) && !price.base.contains_key(&OUTPUT) && mode == Some("embedding") {
            price.base.insert(OUTPUT, 0);
        }
        if price.steps.len() > STEPS_MAX {
            return Priced::Inexpressible(format!("more than {STEPS_MAX} size steps"));
        }
        match (price.base.contains_key(&INPUT), price.base.contains_key(&OUTPUT)) {
            (true, true) => Priced::Known(price),
            (true, false) => Priced::Inexpressible("no price of output llm_tokens".to_owned()),
            (false, true) => Priced::Inexpressible("no price of input llm_tokens".to_owned()),
            (false, false) => {
                let priced = given.iter().filter(|(name, node)| name.contains("cost") && !is_zero(node));
                let by: Vec<&str> = priced.map(|(name, _)| *name).collect();
                if by.is_empty() {
                    Priced::Absent
                } else {
                    Priced::Inexpressible(format!("priced by {}", by.join(", ")))
                }
            }
        }
    }
}

fn is_zero(node: &Node) -> bool {
    match (scalar(node), fields(node)) {
        (Some(scalar), _) => parse_scaled(&scalar.text, 0) == Ok(0),
        (_, Some(fields)) => fields.iter().all(|field| is_zero(&field.value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::node::parse;

    fn of(text: &str) -> (Result<Priced, Vec<Problem>>, Notes) {
        let node = parse(text).unwrap().unwrap();
        let mut notes = Notes::default();
        (priced("m", &[&node], None, &mut notes), notes)
    }

    fn known(text: &str) -> Price {
        match of(text).0 {
            Ok(Priced::Known(price)) => price,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn names_of_fields() {
        let meant = |part, above, tier| Some(Meaning { part, above, tier });
        for (field, want) in [
            ("input_cost_per_token", meant(0, None, None)),
            ("input_cost_per_token_above_200k_tokens", meant(0, Some(200_000), None)),
            ("output_cost_per_token_above_272k_tokens_priority", meant(6, Some(272_000), Some("priority"))),
            ("cache_creation_input_token_cost_above_1hr", meant(3, None, None)),
            ("cache_creation_input_token_cost_above_1hr_above_200k_tokens", meant(3, Some(200_000), None)),
            ("cache_read_input_token_cost_flex", meant(1, None, Some("flex"))),
            ("output_cost_per_token_batches", meant(6, None, Some("batches"))),
            ("input_cost_per_second", None),
            ("input_cost_per_token_above_xk_tokens", None),
            ("input_cost_per_token_above_99999999999999999999k_tokens", None),
        ] {
            assert_eq!(meaning(field), want, "{field}");
        }
    }

    /// 1.5e-07 per llm_token is exactly 150,000 pico: 0.15 per million.
    #[test]
    fn numbers_are_exact_and_finer_ones_are_rounded_up_and_told() {
        for (text, pico, per_million, told) in [
            ("1.5e-07", 150_000, "0.15", false),
            ("0.00000015", 150_000, "0.15", false),
            ("3e-06", 3_000_000, "3", false),
            ("1e-12", 1, "0.000001", false),
            ("1e-13", 1, "0.000001", true),
            ("1e-39", 1, "0.000001", true),
            ("3.0000000000000004e-08", 30_001, "0.030001", true),
            ("0.0", 0, "0", false),
        ] {
            let (priced, notes) = of(&format!("{{input_cost_per_token: {text}, output_cost_per_token: 0}}"));
            let Ok(Priced::Known(price)) = priced else { panic!("{text}: {priced:?}") };
            assert_eq!(price.base.get(&INPUT), Some(&pico), "{text}");
            assert_eq!(price.value()["input"], per_million, "{text}");
            assert_eq!(notes.iter().count(), usize::from(told), "{text}");
        }
        for (text, want) in [
            ("-1e-6", "must not be negative"),
            ("NaN", "must be finite"),
            ("1e4", "is too large"),
            ("1e-50", "is finer than the smallest unit"),
            ("\"1e-6\"", "must be a number"),
            ("[1]", "must be a number"),
            ("1,5", "is not a decimal number"),
        ] {
            let (priced, _) = of(&format!("input_cost_per_token: {text}"));
            let problems = priced.unwrap_err();
            assert!(problems[0].what.contains(want), "{text}: {problems:?}");
            assert_eq!((problems[0].place.line, problems[0].path.as_str()), (1, "m.input_cost_per_token"));
        }
    }

    #[test]
    fn tiers_are_one_multiple_or_told() {
        let base =
            "input_cost_per_token: 2e-06, output_cost_per_token: 8e-06, cache_read_input_token_cost: 5e-07";
        let flex = "input_cost_per_token_flex: 1e-06, output_cost_per_token_flex: 4e-06";
        let whole = known(&format!("{{{base}, {flex}, cache_read_input_token_cost_flex: 2.5e-07}}"));
        assert_eq!(whole.value()["tiers"], serde_json::json!({"flex": "0.5"}));
        for rest in ["", ", cache_read_input_token_cost_flex: 2.4e-07"] {
            let (priced, notes) = of(&format!("{{{base}, {flex}{rest}}}"));
            assert!(matches!(priced, Ok(Priced::Known(price)) if price.tiers.is_empty()), "{rest}");
            assert!(notes.text().starts_with("the prices of tier `flex`"), "{}", notes.text());
        }
    }

    #[test]
    fn ranges_are_steps() {
        let text = "tiered_pricing: [{range: [0, 32000.0], input_cost_per_token: 1e-06, output_cost_per_token: 5e-06}, \
                    {range: [32000.0, 128000.0], input_cost_per_token: 2e-06, output_cost_per_token: 1e-05}]";
        let want = serde_json::json!({
            "input": "1", "output": "5", "steps": [{"above": 32000, "input": "2", "output": "10"}],
        });
        assert_eq!(known(&format!("{{{text}}}")).value(), want);
        for wrong in
            ["tiered_pricing: 1", "tiered_pricing: []", "tiered_pricing: [{input_cost_per_token: 1}]"]
        {
            assert!(of(wrong).0.is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_has_no_place_is_told() {
        let fees = "search_context_cost_per_query: {low: 0.03, high: 0.05}, file_search_cost_per_1k_calls: 2.5, \
                    input_cost_per_image: 0.001, output_cost_per_image: 0.0, input_cost_per_token_batches: 1e-06, \
                    input_cost_per_audio_token_above_200k_tokens: 1e-06";
        let (priced, notes) =
            of(&format!("{{input_cost_per_token: 2e-06, output_cost_per_token: 8e-06, {fees}}}"));
        let Ok(Priced::Known(price)) = priced else { panic!("{priced:?}") };
        let want = serde_json::json!({"input": "2", "output": "8", "web_search": "0.05", "tools": {"file_search": "0.0025"}});
        assert_eq!(price.value(), want);
        let told: Vec<&str> = notes.iter().map(|(what, _)| what).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(
            matches!(of("output_cost_per_image: 0.04").0, Ok(Priced::Inexpressible(why)) if why.contains("per_image"))
        );
        assert!(matches!(of("output_cost_per_image: 0.0").0, Ok(Priced::Absent)));
    }
}
