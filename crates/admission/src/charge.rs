//! What an ended call is charged: the table of `pricing`, applied to a reservation.

use tollbook_engine::Receipt;
use tollbook_ledger::{AMOUNT_MAX, Measure, ReleaseWhy, Shape};
use tollbook_policy::Binding;
use tollbook_pricing::{self as pricing, Decision, Parts, Seen, actuals, unknown_actuals};
use tollbook_store::{EntryBody, Figures, Usage as EntryUsage, signed};
use tollbook_wire::{HostedCalls, Surface, Usage};

use crate::outcome::{Ending, Outcome};
use crate::ticket::{Open, is_watched};

/// What is done with a call's reservations.
#[derive(Clone, Debug)]
pub(crate) enum Charge {
    Release(ReleaseWhy),
    Settle(Settle),
}

/// A charge.
#[derive(Clone, Debug)]
pub(crate) struct Settle {
    /// `None`: nothing is known, what was expected or held stands.
    pub(crate) usage: Option<Usage>,
    pub(crate) figures: Figures,
    pub(crate) learn: Option<u64>,
    tier: Option<String>,
    /// Calls of hosted tools, beside the usage.
    hosted: HostedCalls,
}

/// The charge, and whether the provider's figures were not believed.
pub(crate) fn of(open: &Open, outcome: &Outcome) -> (Charge, bool) {
    let facts = open.bound.facts();
    let output = open.estimate.demand.made(pricing::count_output(&outcome.output, facts));
    let seen = Seen {
        usage: outcome.usage,
        output,
        output_seen: outcome.output_seen,
        web_searches: outcome.web_searches,
    };
    let Decision { charge, disbelieved } =
        pricing::charge(ending(open, outcome), &seen, &open.estimate.demand, facts);
    let tier = outcome.service_tier.clone().or_else(|| open.estimate.demand.service_tier.clone());
    let hosted = if open.free { HostedCalls::default() } else { hosted(open, outcome) };
    let settle = |usage, figures, learn| Charge::Settle(Settle { usage, figures, learn, tier, hosted });
    let told = outcome.usage.is_some() && !disbelieved;
    let charge = match charge {
        pricing::Charge::Settle { .. } | pricing::Charge::Unknown if open.free && !told => {
            settle(Some(Usage::default()), Figures::Nothing, None)
        }
        // What is passed through is not understood: without the provider's word what was held stands (B077).
        pricing::Charge::Settle { .. } if open.passed && !told => settle(None, Figures::Unknown, None),
        pricing::Charge::Settle { usage, figures, .. } if open.passed => {
            settle(Some(usage), source(figures), None)
        }
        pricing::Charge::Release(why) => Charge::Release(why),
        pricing::Charge::Settle { usage, figures, learn } => settle(Some(usage), source(figures), learn),
        pricing::Charge::Unknown => settle(None, Figures::Unknown, None),
    };
    (charge, disbelieved)
}

/// Calls of hosted tools: as the answer tells them, and at most what the call could make where its surface tells none.
fn hosted(open: &Open, outcome: &Outcome) -> HostedCalls {
    match open.surface {
        Surface::Responses => outcome.hosted,
        _ => open.estimate.demand.hosted_worst,
    }
}

/// The row of the table that an outcome belongs to.
fn ending(open: &Open, outcome: &Outcome) -> pricing::Ending {
    match outcome.ending {
        Ending::NeverSent => pricing::Ending::NeverSent,
        Ending::UpstreamError if !outcome.output_seen => pricing::Ending::ProviderError,
        // Of an answer that came and cannot be read what was held stands, also of a stream (B130).
        _ if outcome.blind && (outcome.output_seen || !open.stream) => pricing::Ending::CutBuffered,
        Ending::Complete => pricing::Ending::Complete,
        _ => pricing::Ending::CutStream,
    }
}

fn source(figures: pricing::Figures) -> Figures {
    match figures {
        pricing::Figures::Reported => Figures::Reported,
        pricing::Figures::Metered => Figures::Metered,
        pricing::Figures::Partial => Figures::Partial,
        pricing::Figures::Unknown => Figures::Unknown,
    }
}

impl Charge {
    pub(crate) fn figures(&self) -> Figures {
        match self {
            Self::Release(_) => Figures::Nothing,
            Self::Settle(settle) => settle.figures,
        }
    }
}

impl Settle {
    /// One finished amount per leg of one side.
    pub(crate) fn amounts(&self, open: &Open, binding: &Binding, receipt: &Receipt) -> Vec<u64> {
        match &self.usage {
            Some(usage) => {
                let price = open.bound.price.as_ref();
                let mut all = actuals(&binding.accounts, usage, price, self.tier.as_deref());
                let fees = price.map_or(0, |price| price.tool_fees(&self.hosted));
                let costs = binding.accounts.iter().zip(&mut all).filter(|(a, _)| a.measure == Measure::Cost);
                costs.for_each(|(_, cost)| *cost = cost.saturating_add(fees).min(AMOUNT_MAX));
                all
            }
            None => unknown_actuals(&binding.accounts, &receipt.receipt),
        }
    }

    /// Writes the charge into a journal entry.
    pub(crate) fn describe(
        &self,
        body: &mut EntryBody,
        open: &Open,
        binding: &Binding,
        receipt: &Receipt,
        actual: &[u64],
    ) {
        body.figures = self.figures;
        body.usage = match &self.usage {
            Some(usage) => parts(usage),
            None => unknown(open),
        };
        body.cost_nano = signed(self.cost(open));
        for ((account, decided), actual) in
            binding.accounts.iter().zip(decided(open, binding, receipt)).zip(actual)
        {
            let over = actual.saturating_sub(decided);
            match account.measure {
                Measure::Tokens => body.overrun.llm_tokens = body.overrun.llm_tokens.max(over),
                Measure::Cost => body.overrun.cost_nano = body.overrun.cost_nano.max(over),
                _ => {}
            }
        }
        // The receipt knows what was learned; the guess of the door gives way to it. A pool that has no such limit was
        // asked with what the tenant's receipt expects.
        let of = |binding: &Binding, receipt: &Receipt, measure: Measure| {
            let legs = binding.accounts.iter().zip(&receipt.receipt.legs);
            legs.filter(|(account, _)| account.measure == measure).map(|(_, leg)| leg.expected).max()
        };
        let expected =
            |measure| of(binding, receipt, measure).or_else(|| of(&open.bound.tenant, &open.tenant, measure));
        if let Some(llm_tokens) = expected(Measure::Tokens) {
            body.hold.expected_llm_tokens = llm_tokens;
        }
        if let Some(nano) = expected(Measure::Cost) {
            body.hold.expected_cost_nano = nano;
        }
    }

    /// What the call cost, in nano-currency; the hold's worst case where nothing is known.
    pub(crate) fn cost(&self, open: &Open) -> u64 {
        let Some(price) = &open.bound.price else { return 0 };
        match &self.usage {
            Some(usage) => {
                let cost = price.cost(&Parts::of(usage), usage.web_searches, self.tier.as_deref());
                cost.saturating_add(price.tool_fees(&self.hosted)).min(AMOUNT_MAX)
            }
            None => open.hold.worst_cost_nano,
        }
    }
}

/// What was last decided for each leg: what the door held, or what a hold on a hard limit was granted to grow to (L9).
/// Growth of soft legs is recorded, not decided.
fn decided(open: &Open, binding: &Binding, receipt: &Receipt) -> Vec<u64> {
    // A plan holds nothing; what was decided is what was planned.
    let held = binding.accounts.iter().zip(&receipt.receipt.legs).map(|(account, leg)| match account.shape {
        Shape::Forecast { .. } => leg.expected,
        _ => leg.held,
    });
    let grew = open.live.granted().filter(|_| std::ptr::eq(binding, &raw const open.bound.tenant));
    let Some(output) = grew else { return held.collect() };
    let periods = open.bound.periods(open.admission.now_s());
    let legs = open.estimate.legs(&open.bound, &periods).unwrap_or_default();
    let grown = |index: usize| {
        let leg = legs.get(index).filter(|_| is_watched(binding, index))?;
        let thousandths = leg.per_output.saturating_mul(output.min(leg.cap)).saturating_add(leg.base);
        Some(thousandths.div_ceil(1000))
    };
    held.enumerate().map(|(index, held)| grown(index).unwrap_or(0).max(held)).collect()
}

fn parts(usage: &Usage) -> EntryUsage {
    EntryUsage {
        input: signed(usage.input),
        cached: signed(usage.cached),
        cache_write: signed(usage.cache_write),
        cache_write_1h: signed(usage.cache_write_1h),
        output: signed(usage.output),
        reasoning: signed(usage.reasoning),
        audio_input: signed(usage.audio_input),
        audio_output: signed(usage.audio_output),
        image_input: signed(usage.image_input),
        web_searches: signed(usage.web_searches),
    }
}

/// The worst case in parts, for the report of a call of which nothing is known.
fn unknown(open: &Open) -> EntryUsage {
    let demand = &open.estimate.demand;
    EntryUsage { input: signed(demand.worst_input), output: signed(demand.cap), ..EntryUsage::default() }
}
