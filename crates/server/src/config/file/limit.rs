//! Limits as they are written.

use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::json;

use crate::config::values::{Decimal, Span};

/// One rule. All limits that match a call bind it; none overrides another. `window` makes it a rate, `period` a quota
/// (on `cost`: a budget), neither a bound on what is in flight at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Shown in refusals and in `check`; made from the rest if absent.
    #[serde(default)]
    pub name: Option<String>,
    /// What is counted.
    pub measure: Measure,
    /// Rate: a rolling window, 1 s to 24 h.
    #[serde(default)]
    pub window: Option<Span>,
    /// Rate: width of the window's buckets; a sixtieth of the window, at least 1 s, if absent.
    #[serde(default)]
    pub bucket: Option<Span>,
    /// Rate: how the buckets are summed.
    #[serde(default)]
    pub weights: Option<Weights>,
    /// Quota: a calendar period.
    #[serde(default)]
    pub period: Option<Period>,
    /// Quota: time zone of the period; the tenant's if absent.
    #[serde(default)]
    pub zone: Option<String>,
    /// Quota: the day a week (`monday`) or a month (`1` to `31`) begins on.
    #[serde(default)]
    pub anchor: Option<String>,
    /// The most that fits: whole, on `cost` in currency units. Absent or null: no limit. 0: nothing passes.
    #[serde(default)]
    pub ceiling: Option<Decimal>,
    /// On top of the ceiling until an instant, of the book's clock, to the second. What is used counts on.
    #[serde(default)]
    pub raise: Option<Raise>,
    /// Whether it may be exceeded by what is not known at the door. Rates and concurrency are soft, quotas hard.
    #[serde(default)]
    pub strictness: Option<Strictness>,
    /// What a call holds; `worst` where hard, else `expected`.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// Times the hold, as `1.25`; 1 if absent.
    #[serde(default)]
    pub hold_factor: Option<Decimal>,
    /// What becomes of a hold whose gateway died; `charge` where hard, else `release`.
    #[serde(default)]
    pub on_expiry: Option<OnExpiry>,
    /// What happens while the book is away: it failed, is slow, or has lost its data. `local` where soft, `closed` where hard.
    #[serde(default)]
    pub when_away: Option<WhenAway>,
    /// Only calls to this model.
    #[serde(default)]
    pub model: Option<String>,
    /// Which llm_tokens count how much.
    #[serde(default)]
    pub meter: Option<Meter>,
    /// Where the expected output comes from; `forecast` where it is booked by forecast, else `ema`.
    #[serde(default)]
    pub estimator: Option<Estimator>,
    /// Count, but refuse nothing.
    #[serde(default)]
    pub shadow: bool,
    /// Count refused calls too.
    #[serde(default)]
    pub count_denied: bool,
    /// Give `requests` back when the provider failed.
    #[serde(default)]
    pub refund_failed: bool,
    /// Quota: what a limit that is added in mid-period starts from.
    #[serde(default)]
    pub opening: Option<Opening>,
    /// Rate on llm_tokens: how they are booked. `forecast` where a tenant's limit is soft, its window at most 60 s and
    /// nothing is said of its buckets; else `held`.
    #[serde(default)]
    pub booking: Option<Booking>,
    /// Forecast: no burst, however placed, passes the ceiling; costs a second of the window and, where output counts, a hundredth.
    #[serde(default)]
    pub strict: Option<bool>,
    /// Pool's rate on llm_tokens: when the provider counts a call; `start` if absent.
    #[serde(default)]
    pub charge: Option<Charge>,
}

/// A ceiling that is higher for a while.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raise {
    /// By how much, in the ceiling's unit; more than 0.
    pub by: Decimal,
    /// Until when, with its zone, as `2027-01-01T00:00:00Z`.
    pub until: String,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Calls.
    Requests,
    /// Input and output llm_tokens.
    Tokens,
    /// Input llm_tokens.
    InputTokens,
    /// Output llm_tokens.
    OutputTokens,
    /// Money.
    Cost,
    /// Calls in flight.
    Concurrency,
}

/// How the buckets of a window are summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// All of them whole.
    Whole,
    /// The oldest by the part that is still inside.
    Oldest,
    /// Each less the older it is.
    Decay,
}

/// A calendar period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Lifetime,
}

/// Whether a limit may be exceeded by what is not known at the door.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strictness {
    /// A little, by a call that was already let in.
    Soft,
    /// No: the worst case must fit.
    Hard,
}

/// What a call holds while it is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// What it will probably use.
    Expected,
    /// The most it can use.
    Worst,
}

/// What becomes of a hold whose gateway died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It is freed.
    Release,
    /// What was expected is charged.
    Charge,
}

/// What happens while the book is away. Of the limits that bind a call the strictest answer wins. The embedded book is away only
/// when its disk is full or gone. What is admitted meanwhile is posted to the book afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenAway {
    /// Each gateway admits within its part of the ceiling, counted from nothing: the ceiling by the gateways that share the
    /// book (`engine.redis.fleet_size` until they have counted each other), rounded up.
    Local,
    /// Calls are refused with 503.
    Closed,
    /// Calls are admitted, and counted.
    Open,
}

/// Which llm_tokens count how much: `{ preset: NAME }` for a known way, or weights. Weights are decimals with up to three places;
/// a part without one counts by the part that contains it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// A known way: `plain`, `without_cache_read`, `openai`, `azure`, `anthropic_input`, `anthropic_output`,
    /// `gemini_input`, `bedrock`, `bedrock_5x`, `bedrock_10x`, `bedrock_15x`.
    #[serde(default)]
    pub preset: Option<String>,
    /// Weights from the start of a call on; replaces `preset`.
    #[serde(default)]
    pub weights: Option<MeterWeights>,
    /// Weights at the end of a call, where the provider counts differently then; `weights` if absent.
    #[serde(default)]
    pub weights_at_end: Option<MeterWeights>,
}

/// Weights of the parts of a call's llm_tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeterWeights {
    /// Input neither read from nor written to a cache.
    pub input: Decimal,
    /// Input read from a cache; as `input` if absent.
    #[serde(default)]
    pub cache_read: Option<Decimal>,
    /// Input written to a cache; as `input` if absent.
    #[serde(default)]
    pub cache_write: Option<Decimal>,
    /// Output.
    pub output: Decimal,
    /// Output that is reasoning; as `output` if absent.
    #[serde(default)]
    pub reasoning: Option<Decimal>,
    /// Images sent; as `input` if absent.
    #[serde(default)]
    pub image: Option<Decimal>,
    /// Sound sent; as `input` if absent.
    #[serde(default)]
    pub audio_input: Option<Decimal>,
    /// Sound received; as `output` if absent.
    #[serde(default)]
    pub audio_output: Option<Decimal>,
}

/// Where the expected output comes from. The kind alone may stand for it, where it needs nothing else: `estimator: p95`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = or_kind)]
pub struct Estimator {
    /// The way it is found.
    pub kind: EstimatorKind,
    /// For `constant` alone: that many llm_tokens.
    #[serde(default)]
    pub output: Option<u64>,
}

/// An editor takes the kinds that need nothing else as words.
fn or_kind(schema: &mut Schema) {
    schema.insert("type".to_owned(), json!(["object", "string"]));
    schema.insert("pattern".to_owned(), json!("^(ema|recent_mean|p95|forecast|capped)$"));
}

/// The way the expected output is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EstimatorKind {
    /// Twice a moving mean of what this key and model used.
    Ema,
    /// The mean of what they used in the last ten full minutes.
    RecentMean,
    /// What 95 of their last 100 calls did not exceed.
    P95,
    /// Twice a slow mean, moved too by a stream that outgrows it.
    Forecast,
    /// The call's output cap.
    Capped,
    /// A fixed number.
    Constant,
}

/// What a quota that is added in mid-period starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// What the journal knows of the period.
    Journal,
    /// Nothing.
    Zero,
}

/// How llm_tokens are booked on a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Booking {
    /// Held until the call ends.
    Held,
    /// Planned into the seconds in which they will stream; plan gives way to fact every two seconds.
    Forecast,
}

/// When a provider counts a call against its limit on us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// As it is admitted, by the cap it asks for; what most do. Booked as held.
    Start,
    /// As it streams. Booked by forecast.
    Stream,
}
