//! What llm_tokens cost.
//!
//! Prices are pico-currency per llm_token, whole numbers; a cost is summed in 128 bits and rounded up once per call
//! (L13). A rate that is not given falls back to the rate of the part that contains it; input and output must be given:
//! missing is not zero, and an explicit zero is free (B090).
//! The same lookup serves check, hold and settle: whoever holds a call keeps the book it was priced with.

use crate::decimal::{DecimalError, parse_scaled};
use crate::parts::Parts;
use std::collections::BTreeMap;
use tollbook_ledger::AMOUNT_MAX;
use tollbook_wire::{HostedCalls, HostedTool, HostedTools};

/// Largest rate: a thousand currency units per llm_token, in pico-currency.
pub const RATE_MAX: u64 = 1_000_000_000_000_000;
/// Largest fee per web search or call of a hosted tool: a thousand currency units, in nano-currency.
pub const FEE_MAX: u64 = 1_000_000_000_000;
/// Smallest and largest multiplier of a service tier, in thousandths.
pub const TIER_MAX: u32 = 100_000;
/// Most size steps and service tiers of one price.
pub const STEPS_MAX: usize = 16;
/// A multiplier of one.
const ONE: u32 = 1000;

/// Pico-currency per llm_token of each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    pub input: u64,
    pub cache_read: u64,
    pub cache_write_5m: u64,
    pub cache_write_1h: u64,
    pub audio_input: u64,
    pub image_input: u64,
    pub output: u64,
    pub reasoning: u64,
    pub audio_output: u64,
}

/// Rates of calls whose whole input is larger than `above` llm_tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub above: u64,
    pub rates: Rates,
}

/// The price of one model. Steps are in order of size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Price {
    base: Rates,
    steps: Vec<Step>,
    /// Multipliers of service tiers, in thousandths.
    tiers: BTreeMap<String, u32>,
    /// Nano-currency per web search.
    web_search: u64,
    /// Nano-currency per call of other hosted tools.
    tools: BTreeMap<HostedTool, u64>,
}

/// A price as an operator writes it: decimal texts in currency units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PriceDraft {
    pub unit: PriceUnit,
    pub rates: RatesDraft,
    pub steps: Vec<(u64, RatesDraft)>,
    /// Name and multiplier (`2`, `0.5`).
    pub tiers: Vec<(String, String)>,
    /// Currency units per web search.
    pub web_search: Option<String>,
    /// Currency units per call of a hosted tool, by its name; `other` is for those that are not named.
    pub tools: Vec<(String, String)>,
}

/// What a price text is per.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PriceUnit {
    #[default]
    PerMillion,
    PerToken,
}

/// Rates as decimal texts; absent falls back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RatesDraft {
    pub input: Option<String>,
    pub cache_read: Option<String>,
    pub cache_write_5m: Option<String>,
    pub cache_write_1h: Option<String>,
    pub audio_input: Option<String>,
    pub image_input: Option<String>,
    pub output: Option<String>,
    pub reasoning: Option<String>,
    pub audio_output: Option<String>,
}

/// A field of a price draft that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {kind}")]
pub struct PriceProblem {
    /// `rates.output`, `steps[1].input`, `tiers.priority`, `web_search`.
    pub field: String,
    pub kind: PriceProblemKind,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PriceProblemKind {
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    #[error("is missing; write 0 for a free model")]
    Missing,
    #[error("is too large")]
    TooLarge,
    #[error("must grow from step to step")]
    Order,
    #[error(
        "is no hosted tool; name code_interpreter, file_search, image_generation, computer_use, mcp or other"
    )]
    NoTool,
    #[error("is given twice")]
    Repeated,
    #[error("more than {STEPS_MAX}")]
    TooMany,
}

impl Price {
    /// A flat price.
    pub fn flat(rates: Rates) -> Self {
        Self { base: rates, steps: Vec::new(), tiers: BTreeMap::new(), web_search: 0, tools: BTreeMap::new() }
    }

    /// Reads a draft.
    ///
    /// # Errors
    /// Every field that is wrong.
    pub fn new(draft: &PriceDraft) -> Result<Self, Vec<PriceProblem>> {
        let mut read = Reader { unit: draft.unit, problems: Vec::new() };
        let base = read.rates("rates", &draft.rates, None);
        let mut steps: Vec<Step> = Vec::new();
        for (index, (above, rates)) in draft.steps.iter().enumerate() {
            let field = format!("steps[{index}]");
            let rates = read.rates(&field, rates, Some(&base));
            if steps.last().is_some_and(|last| last.above >= *above) {
                read.problem(format!("{field}.above"), PriceProblemKind::Order);
            }
            steps.push(Step { above: *above, rates });
        }
        let mut tiers = BTreeMap::new();
        for (name, text) in &draft.tiers {
            let field = format!("tiers.{name}");
            let multiplier = read.number(&field, text, 3, u64::from(TIER_MAX));
            if tiers.insert(name.clone(), u32::try_from(multiplier).unwrap_or(TIER_MAX)).is_some() {
                read.problem(field, PriceProblemKind::Repeated);
            }
        }
        if draft.steps.len() > STEPS_MAX {
            read.problem("steps".to_owned(), PriceProblemKind::TooMany);
        }
        if draft.tiers.len() > STEPS_MAX {
            read.problem("tiers".to_owned(), PriceProblemKind::TooMany);
        }
        let web_search =
            draft.web_search.as_ref().map_or(0, |text| read.number("web_search", text, 9, FEE_MAX));
        let mut tools = BTreeMap::new();
        for (name, text) in &draft.tools {
            let field = format!("tools.{name}");
            let fee = read.number(&field, text, 9, FEE_MAX);
            match HostedTool::named(name) {
                None => read.problem(field, PriceProblemKind::NoTool),
                Some(tool) if tools.insert(tool, fee).is_some() => {
                    read.problem(field, PriceProblemKind::Repeated);
                }
                Some(_) => {}
            }
        }
        if read.problems.is_empty() {
            Ok(Self { base, steps, tiers, web_search, tools })
        } else {
            Err(read.problems)
        }
    }

    /// The rates that no step changes.
    pub fn base(&self) -> &Rates {
        &self.base
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Multipliers of service tiers, in thousandths.
    pub fn tiers(&self) -> &BTreeMap<String, u32> {
        &self.tiers
    }

    /// Nano-currency per call of hosted tools, but for web searches.
    pub fn tools(&self) -> &BTreeMap<HostedTool, u64> {
        &self.tools
    }

    /// The rates of a call with that much input in all.
    pub fn rates(&self, input: u64) -> &Rates {
        self.steps.iter().rev().find(|step| input > step.above).map_or(&self.base, |step| &step.rates)
    }

    /// The rates a call with at most that much input can meet.
    pub fn reachable(&self, input: u64) -> impl Iterator<Item = &Rates> {
        let steps = self.steps.iter().filter(move |step| input > step.above);
        core::iter::once(&self.base).chain(steps.map(|step| &step.rates))
    }

    /// The multiplier of the tier a call was served in, in thousandths; an unknown tier is the standard one.
    pub fn tier(&self, name: Option<&str>) -> u32 {
        name.and_then(|name| self.tiers.get(name).copied()).unwrap_or(ONE)
    }

    /// The multiplier of the dearest tier a call that asks for `name` can be served in: the standard one when it is
    /// downgraded, and the dearest there is when the name says nothing.
    pub fn tier_worst(&self, name: Option<&str>) -> u32 {
        let asked = match name {
            None | Some("default" | "standard") => ONE,
            Some(name) => match self.tiers.get(name) {
                Some(&multiplier) => multiplier,
                None => self.tiers.values().copied().max().unwrap_or(ONE),
            },
        };
        asked.max(ONE)
    }

    /// Nano-currency per web search.
    pub fn web_search(&self) -> u64 {
        self.web_search
    }

    /// What a call cost, in nano-currency, rounded up once.
    pub fn cost(&self, parts: &Parts, web_searches: u64, tier: Option<&str>) -> u64 {
        let rates = self.rates(parts.input());
        let pico = parts.pico(rates);
        let scaled = pico.saturating_mul(u128::from(self.tier(tier)));
        let nano = scaled.div_ceil(1_000_000).saturating_add(u128::from(self.fees(web_searches)));
        u64::try_from(nano).unwrap_or(AMOUNT_MAX).min(AMOUNT_MAX)
    }

    /// A tool among these whose fee is not known.
    pub fn unpriced(&self, tools: HostedTools) -> Option<HostedTool> {
        tools.iter().find(|tool| self.tool(*tool).is_none())
    }

    fn tool(&self, tool: HostedTool) -> Option<u64> {
        self.tools.get(&tool).or_else(|| self.tools.get(&HostedTool::Other)).copied()
    }

    /// What calls of hosted tools cost, in nano-currency.
    pub fn tool_fees(&self, calls: &HostedCalls) -> u64 {
        let fee = |(tool, calls)| self.tool(tool).unwrap_or(0).saturating_mul(u64::from(calls));
        calls.iter().map(fee).fold(0, u64::saturating_add).min(AMOUNT_MAX)
    }

    pub(crate) fn fees(&self, web_searches: u64) -> u64 {
        self.web_search.saturating_mul(web_searches)
    }
}

/// Reads texts and keeps what was wrong.
struct Reader {
    unit: PriceUnit,
    problems: Vec<PriceProblem>,
}

impl Reader {
    fn problem(&mut self, field: String, kind: PriceProblemKind) {
        self.problems.push(PriceProblem { field, kind });
    }

    fn number(&mut self, field: &str, text: &str, digits: u32, max: u64) -> u64 {
        let kind = match parse_scaled(text, digits) {
            Ok(number) if number <= max => return number,
            Ok(_) => PriceProblemKind::TooLarge,
            Err(error) => PriceProblemKind::Decimal(error),
        };
        self.problem(field.to_owned(), kind);
        0
    }

    fn rate(&mut self, field: String, text: Option<&String>, fallback: Option<u64>) -> u64 {
        let digits = match self.unit {
            PriceUnit::PerToken => 12,
            PriceUnit::PerMillion => 6,
        };
        match (text, fallback) {
            (Some(text), _) => self.number(&field, text, digits, RATE_MAX),
            (None, Some(fallback)) => fallback,
            (None, None) => {
                self.problem(field, PriceProblemKind::Missing);
                0
            }
        }
    }

    /// A step falls back to its own input and output, and those to the base.
    fn rates(&mut self, at: &str, draft: &RatesDraft, base: Option<&Rates>) -> Rates {
        let field = |name: &str| format!("{at}.{name}");
        let input = self.rate(field("input"), draft.input.as_ref(), base.map(|rates| rates.input));
        let output = self.rate(field("output"), draft.output.as_ref(), base.map(|rates| rates.output));
        // a part the base prices on its own keeps that price in a step, unless the step's input is dearer
        let part = |own: fn(&Rates) -> u64, whole: u64, whole_of: fn(&Rates) -> u64| {
            base.filter(|rates| own(rates) != whole_of(rates)).map_or(whole, own)
        };
        let of_input: fn(&Rates) -> u64 = |rates| rates.input;
        let of_output: fn(&Rates) -> u64 = |rates| rates.output;
        let cache_read = part(|rates| rates.cache_read, input, of_input);
        let cache_write_5m = part(|rates| rates.cache_write_5m, input, of_input);
        let cache_write_5m =
            self.rate(field("cache_write_5m"), draft.cache_write_5m.as_ref(), Some(cache_write_5m));
        let cache_write_1h = part(|rates| rates.cache_write_1h, cache_write_5m, |rates| rates.cache_write_5m);
        let audio_input = part(|rates| rates.audio_input, input, of_input);
        let image_input = part(|rates| rates.image_input, input, of_input);
        let reasoning = part(|rates| rates.reasoning, output, of_output);
        let audio_output = part(|rates| rates.audio_output, output, of_output);
        Rates {
            input,
            output,
            cache_write_5m,
            cache_read: self.rate(field("cache_read"), draft.cache_read.as_ref(), Some(cache_read)),
            cache_write_1h: self.rate(
                field("cache_write_1h"),
                draft.cache_write_1h.as_ref(),
                Some(cache_write_1h),
            ),
            audio_input: self.rate(field("audio_input"), draft.audio_input.as_ref(), Some(audio_input)),
            image_input: self.rate(field("image_input"), draft.image_input.as_ref(), Some(image_input)),
            reasoning: self.rate(field("reasoning"), draft.reasoning.as_ref(), Some(reasoning)),
            audio_output: self.rate(field("audio_output"), draft.audio_output.as_ref(), Some(audio_output)),
        }
    }
}

/// All prices of one version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PriceBook {
    /// Named by hold, settle and journal.
    pub version: u64,
    pub models: BTreeMap<String, Price>,
    /// For models without a price of their own; without it they are refused where an account counts cost.
    pub default: Option<Price>,
}

impl PriceBook {
    /// The price of a resolved model.
    pub fn price(&self, model: &str) -> Option<&Price> {
        self.models.get(model).or(self.default.as_ref())
    }
}
