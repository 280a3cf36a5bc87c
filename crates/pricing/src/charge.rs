//! How a call ended, and what it is charged for it.
//!
//! One pure function holds the whole table. Zero and missing are different; a usage that cannot be true is not
//! believed; every charge that is not what a provider reported carries its reason.

use crate::demand::Demand;
use crate::facts::{FACT_MAX, ModelFacts};
use tollbook_ledger::ReleaseWhy;
use tollbook_wire::Usage;

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ending {
    /// Denied later, queue left, connect or TLS failed.
    NeverSent,
    /// The provider's complete error, or an error as the first event of a 200.
    ProviderError,
    /// The answer came to its end.
    Complete,
    /// The stream was cut: client gone, timeout, reset, stopped at a limit.
    CutStream,
    /// The answer to a buffered call never came.
    CutBuffered,
}

/// What was seen of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub usage: Option<Usage>,
    /// Output counted from what streamed or came, in llm_tokens.
    pub output: u64,
    /// Anything of the answer's output was seen.
    pub output_seen: bool,
    /// Web searches that the answer told of.
    pub web_searches: u64,
}

/// Where the figures of a charge come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Figures {
    Reported,
    /// Input count and counted output.
    Metered,
    /// Cut: input count and received output with a margin.
    Partial,
    /// Nothing is known; what was expected or held.
    Unknown,
}

/// What to do with the reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Charge {
    Release(ReleaseWhy),
    /// Settle with this usage; `learn` is what the estimator may learn from.
    Settle {
        usage: Usage,
        figures: Figures,
        learn: Option<u64>,
    },
    /// Settle with [`crate::unknown_actuals`].
    Unknown,
}

/// A charge, and whether a reported usage was not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    pub charge: Charge,
    pub disbelieved: bool,
}

/// The table.
pub fn charge(ending: Ending, seen: &Seen, demand: &Demand, facts: &ModelFacts) -> Decision {
    let reported = seen.usage.filter(|usage| believable(usage, facts));
    let disbelieved = reported.is_none() && seen.usage.is_some();
    let most = if demand.cap_is_told { demand.cap } else { demand.cap.max(seen.output).min(FACT_MAX) };
    let input = demand.input.llm_tokens;
    let estimate = Estimate { input, output: seen.output, most, web_searches: seen.web_searches };
    let charge = match (ending, reported) {
        (Ending::NeverSent, _) => Charge::Release(ReleaseWhy::NeverSent),
        (_, Some(usage)) => by_usage(ending, &usage, &estimate, demand.cap > 0),
        // an error with a usage nobody can believe was still an error
        (Ending::ProviderError, None) => Charge::Release(ReleaseWhy::Failed),
        (Ending::Complete, None) => settle(estimate.metered(), Figures::Metered),
        (Ending::CutStream, None) if seen.output_seen || seen.output > 0 => {
            settle(estimate.partial(), Figures::Partial)
        }
        (Ending::CutStream, None) => settle(estimate.input_only(), Figures::Partial),
        (Ending::CutBuffered, None) => Charge::Unknown,
    };
    Decision { charge: searched(charge, demand.web_searches_least), disbelieved }
}

/// A search that is certain was made, whether it was reported or not.
fn searched(charge: Charge, least: u64) -> Charge {
    match charge {
        Charge::Settle { usage, figures, learn } => {
            let usage = Usage { web_searches: usage.web_searches.max(least), ..usage };
            Charge::Settle { usage, figures, learn }
        }
        other => other,
    }
}

/// Whether figures can be true: within the model's context, where that is known. A window holds input and output.
pub fn believable(usage: &Usage, facts: &ModelFacts) -> bool {
    facts.context.is_none_or(|context| usage.input <= context && usage.output <= context)
}

fn settle(usage: Usage, figures: Figures) -> Charge {
    Charge::Settle { usage, figures, learn: None }
}

fn by_usage(ending: Ending, reported: &Usage, estimate: &Estimate, writes: bool) -> Charge {
    let mut usage = reported.split(estimate.input);
    usage.web_searches = usage.web_searches.max(estimate.web_searches);
    if usage.complete && usage.input_reported && usage.output_reported {
        let learn = (writes && !usage.split_estimated).then_some(usage.output);
        return Charge::Settle { usage, figures: Figures::Reported, learn };
    }
    // start values, or one member missing: what is reported stands, the rest is counted
    let cut = matches!(ending, Ending::CutStream | Ending::CutBuffered);
    if !usage.input_reported {
        usage.input = usage.input.max(estimate.input);
    }
    if !(usage.output_reported && usage.complete) {
        let counted = if cut { estimate.received() } else { estimate.output.min(estimate.most) };
        usage.output = usage.output.max(counted);
    }
    settle(usage, if cut { Figures::Partial } else { Figures::Metered })
}

/// What is known without the provider's word.
struct Estimate {
    input: u64,
    output: u64,
    /// No more output than this can have come: the cap, or what did come where nobody told the upstream a cap.
    most: u64,
    web_searches: u64,
}

impl Estimate {
    fn metered(&self) -> Usage {
        self.usage(self.output.min(self.most))
    }

    fn partial(&self) -> Usage {
        self.usage(self.received())
    }

    fn input_only(&self) -> Usage {
        self.usage(0)
    }

    /// Received × 1.1, within the most: the upstream may have made more than arrived, but not more than it was allowed.
    fn received(&self) -> u64 {
        let more = (u128::from(self.output) * 11).div_ceil(10);
        u64::try_from(more).unwrap_or(u64::MAX).min(self.most)
    }

    fn usage(&self, output: u64) -> Usage {
        Usage { input: self.input, output, web_searches: self.web_searches, ..Usage::default() }
    }
}
