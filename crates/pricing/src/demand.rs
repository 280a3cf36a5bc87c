//! What a call will probably use, and what it can use at most.
//!
//! Invariants: a missing cap is never "unlimited"; an estimate is never above the client's own cap (the engine sees to
//! it with the cap of the leg); the worst case covers every usage that stays within the counted input × margin and the
//! cap. A cap is written into the request where the worst case has to be true and would not be otherwise.

use crate::count::InputCount;
use crate::facts::{FACT_MAX, ModelFacts, WEB_SEARCHES_MAX};
use crate::learned::Learned;
use tollbook_policy::{BoundAccount, Measure};
use tollbook_wire::{HostedCalls, HostedTools, Request};

/// Margin of the worst case over an exact count and over any other, in thousandths.
pub const MARGIN_EXACT: u64 = 1_020;
pub const MARGIN_ESTIMATED: u64 = 1_250;

/// What the client asked for, as far as it decides the demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asked<'a> {
    /// The largest cap the client sent, per choice.
    pub output_cap: Option<u64>,
    /// The most reasoning the client allows: inside the cap, so the cap is not below it …
    pub thinking_cap: Option<u64>,
    /// … or on top of it, as some providers count.
    pub thinking_beside: Option<u64>,
    /// What the surface cuts to where the client sends no cap.
    pub output_cap_unsaid: Option<u64>,
    /// The call writes nothing.
    pub no_output: bool,
    /// Answers that are made.
    pub choices: u64,
    /// Answers that are sent; 0 stands for all.
    pub choices_shown: u64,
    /// How often the answer repeats the prompts.
    pub echoes: u64,
    /// Input lies with the provider and is only named.
    pub stored: bool,
    pub cache: bool,
    pub cache_hour: bool,
    pub web_search: bool,
    /// The most searches the client allows, where it says so.
    pub web_searches: Option<u64>,
    /// One search is made whatever comes.
    pub web_search_certain: bool,
    /// Other tools that the provider runs, and the most calls the client allows.
    pub hosted: HostedTools,
    pub tool_calls_max: Option<u64>,
    pub images: bool,
    pub other_media: bool,
    /// The answer may contain sound.
    pub audio_output: bool,
    pub service_tier: Option<&'a str>,
}

impl<'a> Asked<'a> {
    pub fn of(request: &'a Request<'a>) -> Self {
        Self {
            output_cap: request.output_cap,
            thinking_cap: request.thinking_cap,
            thinking_beside: request.thinking_beside,
            output_cap_unsaid: request.output_cap_unsaid,
            no_output: !request.surface.has_output(),
            choices: request.choices,
            choices_shown: request.choices_shown,
            echoes: request.echoes,
            stored: request.content.stored,
            cache: request.cache_asked,
            cache_hour: request.cache_hour_asked,
            web_search: request.web_search,
            web_searches: request.web_searches,
            web_search_certain: request.web_search_certain,
            hosted: request.hosted,
            tool_calls_max: request.tool_calls_max,
            images: !request.content.images.is_empty(),
            other_media: request.content.other_media > 0,
            audio_output: request.audio_asked,
            service_tier: request.service_tier.as_deref(),
        }
    }
}

/// The two demands of a call, before weights and prices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Demand {
    pub input: InputCount,
    /// Input × margin, at most the model's context.
    pub worst_input: u64,
    /// Share of the text input expected to be read from a cache, in thousandths.
    pub cached_share: u64,
    /// Output cap of all choices together; 0 where nothing is written.
    pub cap: u64,
    /// Answers made, answers sent, and how often these repeat the prompts.
    pub choices: u64,
    pub choices_shown: u64,
    pub echoes: u64,
    /// Part of the input was not in the body, so its count teaches nothing.
    pub stored: bool,
    /// The upstream is told the cap, by the client or by us. If not, more may come back, and is charged.
    pub cap_is_told: bool,
    /// Cap per choice to be written into the request.
    pub inject_cap: Option<u64>,
    /// Expected output before anything was learned.
    pub first_output: u64,
    /// Dearer kinds of input the call can meet.
    pub cache_write: bool,
    pub cache_write_hour: bool,
    pub images: bool,
    pub other_media: bool,
    pub audio_output: bool,
    pub web_searches_worst: u64,
    /// Searches that were made, if a provider does not say how many.
    pub web_searches_least: u64,
    /// Calls of other hosted tools, at most.
    pub hosted_worst: HostedCalls,
    /// Nothing is used that is counted or has a price.
    pub free: bool,
    pub service_tier: Option<String>,
}

impl Demand {
    /// `cap_must_hold`: what [`needs_cap`] says of the limits that bind, pools included.
    pub fn new(
        asked: &Asked<'_>,
        input: InputCount,
        facts: &ModelFacts,
        learned: &Learned,
        cap_must_hold: bool,
    ) -> Self {
        let bounds = [facts.output_cap, facts.output_max].into_iter().flatten();
        let most = bounds.fold(FACT_MAX, u64::min);
        // zero is passed on as it is, but something may come back (B100)
        let unsaid = asked.output_cap_unsaid.unwrap_or(facts.output_default);
        let cap = asked.output_cap.unwrap_or(unsaid).max(asked.thinking_cap.unwrap_or(0));
        let per_choice = if asked.no_output { 0 } else { cap.clamp(1, most.max(1)) };
        let beside = asked.thinking_beside.unwrap_or(0).min(FACT_MAX);
        let above_ours = asked.output_cap.zip(facts.output_cap).is_some_and(|(sent, ours)| sent > ours);
        let unbounded = asked.output_cap.is_none() && (cap_must_hold || facts.output_cap.is_some());
        let inject = !asked.no_output && (above_ours || unbounded);
        let choices = asked.choices.max(1);
        Self {
            worst_input: worst_input(&input, facts),
            input,
            cached_share: learned.cached_share(),
            cap: per_choice.saturating_add(beside).saturating_mul(choices),
            choices,
            choices_shown: if asked.choices_shown == 0 { choices } else { asked.choices_shown },
            echoes: asked.echoes,
            stored: asked.stored,
            cap_is_told: inject || asked.no_output || asked.output_cap.is_some(),
            inject_cap: inject.then_some(per_choice),
            first_output: if asked.no_output { 0 } else { facts.first_output },
            cache_write: asked.cache || facts.caches_unasked,
            cache_write_hour: asked.cache_hour,
            images: asked.images,
            other_media: asked.other_media,
            audio_output: asked.audio_output,
            web_searches_worst: if asked.web_search {
                asked.web_searches.unwrap_or(facts.web_searches_worst).min(WEB_SEARCHES_MAX)
            } else {
                0
            },
            web_searches_least: u64::from(asked.web_search_certain),
            hosted_worst: hosted_worst(asked, facts),
            free: false,
            service_tier: asked.service_tier.map(str::to_owned),
        }
    }

    /// The output that was made, from what was counted in the text that came: without the prompts it repeats, and with
    /// the answers that were made and not sent (`best_of`), as long as those that were.
    pub fn made(&self, counted: u64) -> u64 {
        let own = counted.saturating_sub(self.input.built_in.total().saturating_mul(self.echoes));
        let made = u128::from(own) * u128::from(self.choices.max(self.choices_shown));
        u64::try_from(made.div_ceil(u128::from(self.choices_shown.max(1)))).unwrap_or(u64::MAX)
    }

    /// The same call, if it uses nothing: whatever its price, it holds requests and its place in flight alone.
    #[must_use]
    pub fn free(mut self) -> Self {
        self.free = true;
        self.worst_input = 0;
        self.cap = 0;
        self.inject_cap = None;
        self.web_searches_worst = 0;
        self.hosted_worst = HostedCalls::default();
        self
    }

    /// The same call with a lower cap per choice (clamp); the cap is then always written.
    pub fn clamped(mut self, cap_per_choice: u64, choices: u64) -> Self {
        let cap = cap_per_choice.max(1).saturating_mul(choices.max(1));
        if cap < self.cap {
            self.cap = cap;
            self.cap_is_told = true;
            self.inject_cap = Some(cap_per_choice.max(1));
        }
        self
    }
}

/// Each tool that is offered may take all the calls there are.
fn hosted_worst(asked: &Asked<'_>, facts: &ModelFacts) -> HostedCalls {
    let most = asked.tool_calls_max.unwrap_or(facts.web_searches_worst).min(WEB_SEARCHES_MAX);
    HostedCalls::each(asked.hosted, u32::try_from(most).unwrap_or(u32::MAX))
}

fn worst_input(input: &InputCount, facts: &ModelFacts) -> u64 {
    let margin = if input.exact { MARGIN_EXACT } else { MARGIN_ESTIMATED };
    let worst = (u128::from(input.llm_tokens) * u128::from(margin)).div_ceil(1_000);
    let worst = u64::try_from(worst).unwrap_or(u64::MAX);
    // no provider takes more than its context; a count above it is the count's mistake or the client's
    match facts.context {
        Some(context) if context >= input.llm_tokens => worst.min(context),
        Some(_) | None => worst,
    }
}

/// Whether an enforced hard limit binds that counts output, so that the cap must be in the request (B099: where only
/// requests are limited none is asked for).
pub fn needs_cap(bound: &[BoundAccount]) -> bool {
    bound.iter().any(|account| {
        account.hard && matches!(account.measure, Measure::Tokens | Measure::OutputTokens | Measure::Cost)
    })
}
