//! Makes legs of a demand: coefficients, worst case, estimator, periods.
//!
//! A leg's amount for an output of e llm_tokens is ⌈(base + per_output × e) / 1000⌉ in the account's unit; that one
//! formula serves requests, llm_tokens with weights, and cost (pico-currency are thousandths of nano-currency).
//! Legs stand in the order of the bound accounts; so do [`crate::actuals`].
//! A call without a price is refused where an account counts cost (B090); one whose demand does not fit the ledger's
//! numbers is refused as too large, never cut.

use crate::demand::Demand;
use crate::parts::Parts;
use crate::price::{Price, Rates};
use tollbook_ledger::{AMOUNT_MAX, Estimator, EstimatorId, EstimatorKind, Leg, LimitId, SubjectId};
use tollbook_policy::{BoundAccount, EstimatorChoice, Measure, Meter, PeriodTable};

/// Why a call cannot be booked. The limit is one that needed the figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LegsError {
    #[error("the model has no price, and a limit counts cost")]
    Unpriced(LimitId),
    #[error("the demand is larger than any account can hold")]
    TooLarge(LimitId),
}

/// A kind of calls, as the client names it: they have estimators of their own beside the key's other calls. A tag stands for
/// one of [`Task::KINDS`] by its digest, so a client that sends a new one with every call makes nothing grow without end;
/// two tags that meet in one learn together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task(u8);

impl Task {
    /// Longest tag.
    pub const TAG_MAX: usize = 64;
    /// Kinds of calls that a key and model have at most.
    pub const KINDS: u16 = 256;

    /// `None`: a tag is 1 to [`Task::TAG_MAX`] ASCII letters, digits, `-`, `_`, `.`, `:` and `/`.
    pub fn new(tag: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        let fits = (1..=Self::TAG_MAX).contains(&tag.len()) && tag.bytes().all(is_plain);
        fits.then(|| {
            let [first, ..] = *blake3::hash(tag.as_bytes()).as_bytes();
            Self(first)
        })
    }
}

/// Where the estimators of a call live: its own, and its model's for when that is young.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EstimatorIds {
    pub own: EstimatorId,
    pub prior: EstimatorId,
}

impl EstimatorIds {
    /// Of a key (by its subject) and a model. Cache it with the binding.
    pub fn new(key: SubjectId, model: &str) -> Self {
        Self { own: digest(1, key.0, model.as_bytes()), prior: digest(2, 0, model.as_bytes()) }
    }

    /// Of the calls of one task; its model's prior is that of all tasks.
    pub fn of_task(self, task: Option<Task>) -> Self {
        let own = task.map_or(self.own, |Task(kind)| digest(3, self.own.0, &[kind]));
        Self { own, ..self }
    }

    /// Each kind keeps a state of its own.
    #[must_use]
    pub fn of_kind(self, kind: EstimatorKind) -> Self {
        let apart: u64 = match kind {
            EstimatorKind::Ema => 0,
            EstimatorKind::RecentMean => 1,
            EstimatorKind::P95 => 2,
            EstimatorKind::Forecast => 3,
        };
        let of = |id: EstimatorId| EstimatorId(id.0 ^ apart);
        Self { own: of(self.own), prior: of(self.prior) }
    }

    fn learned(self, kind: EstimatorKind, demand: &Demand) -> Estimator {
        let Self { own, prior } = self.of_kind(kind);
        Estimator::Learned { kind, own, prior, first: demand.first_output }
    }
}

fn digest(kind: u8, of: u64, name: &[u8]) -> EstimatorId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"tollbook estimator 1").update(&[kind]).update(&of.to_le_bytes()).update(name);
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    EstimatorId(u64::from_le_bytes(first))
}

/// Where the expected output comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// From each account's estimator.
    Estimated(EstimatorIds),
    /// Already known: a pool takes it from the tenant's receipt.
    Known(u64),
}

/// The legs of a call over the accounts that bind it.
///
/// # Errors
/// When a price is missing, or an amount is larger than the ledger's largest.
pub fn legs(
    bound: &[BoundAccount],
    demand: &Demand,
    price: Option<&Price>,
    output: Output,
    periods: &PeriodTable,
) -> Result<Vec<Leg>, LegsError> {
    bound.iter().map(|account| leg(account, demand, price, output, periods)).collect()
}

fn leg(
    bound: &BoundAccount,
    demand: &Demand,
    price: Option<&Price>,
    output: Output,
    periods: &PeriodTable,
) -> Result<Leg, LegsError> {
    let limit = bound.limits.first().map_or(LimitId(u32::MAX), |limit| limit.id);
    let figures = match bound.measure {
        Measure::Requests | Measure::Concurrency => Figures { base: 1_000, per_output: 0, worst: 1 },
        _ if demand.free => Figures { base: 0, per_output: 0, worst: 0 },
        Measure::Tokens | Measure::InputTokens | Measure::OutputTokens => weighed(bound, demand),
        Measure::Cost => priced(bound, demand, price.ok_or(LegsError::Unpriced(limit))?),
    };
    let most = u128::from(AMOUNT_MAX);
    let largest = figures.base.saturating_add(figures.per_output.saturating_mul(u128::from(demand.cap)));
    if largest > most || figures.worst > most {
        return Err(LegsError::TooLarge(limit));
    }
    let fits = |figure: u128| u64::try_from(figure).map_err(|_| LegsError::TooLarge(limit));
    Ok(Leg {
        account: bound.account,
        measure: bound.measure,
        shape: bound.shape,
        periods: periods.get(bound.calendar),
        base: fits(figures.base)?,
        per_output: fits(figures.per_output)?,
        cap: demand.cap,
        worst: fits(figures.worst)?,
        estimator: estimator(bound.estimator, demand, output),
        refund_failed: bound.refund_failed,
        limits: bound.limits.clone(),
    })
}

/// A leg's numbers before they are known to fit: thousandths, thousandths, and a finished amount.
struct Figures {
    base: u128,
    per_output: u128,
    worst: u128,
}

fn estimator(choice: EstimatorChoice, demand: &Demand, output: Output) -> Estimator {
    match (output, choice) {
        (Output::Known(output), _) | (Output::Estimated(_), EstimatorChoice::Constant(output)) => {
            Estimator::Constant { output }
        }
        (Output::Estimated(_), EstimatorChoice::Capped) => Estimator::Capped,
        (Output::Estimated(ids), EstimatorChoice::Ema) => ids.learned(EstimatorKind::Ema, demand),
        (Output::Estimated(ids), EstimatorChoice::RecentMean) => {
            ids.learned(EstimatorKind::RecentMean, demand)
        }
        (Output::Estimated(ids), EstimatorChoice::P95) => ids.learned(EstimatorKind::P95, demand),
        (Output::Estimated(ids), EstimatorChoice::Forecast) => ids.learned(EstimatorKind::Forecast, demand),
    }
}

/// The input as it is expected, in parts.
fn expected_input(demand: &Demand) -> Parts {
    let text = demand.input.llm_tokens.saturating_sub(demand.input.images);
    let cached = u128::from(text) * u128::from(demand.cached_share.min(1_000)) / 1_000;
    let cached = u64::try_from(cached).unwrap_or(text);
    Parts {
        text_input: text - cached,
        cache_read: cached,
        image_input: demand.input.images,
        ..Parts::default()
    }
}

fn weighed(bound: &BoundAccount, demand: &Demand) -> Figures {
    let meter = &bound.meter.reserve;
    let base = expected_input(demand).weighed(meter);
    // a pool's two meters may differ; the worst case covers both
    let (input, output) = dearest_weights(meter, &bound.meter.settle);
    let worst = u128::from(demand.worst_input) * input + u128::from(demand.cap) * output;
    Figures {
        base: times(base, bound.expected_factor),
        per_output: times(u128::from(meter.output), bound.expected_factor),
        worst: times(worst, bound.worst_factor).div_ceil(1_000),
    }
}

fn dearest_weights(reserve: &Meter, settle: &Meter) -> (u128, u128) {
    let of = |pick: fn(&Meter) -> u32| pick(reserve).max(pick(settle));
    let input = [
        of(|m| m.uncached_input),
        of(|m| m.cache_read),
        of(|m| m.cache_write),
        of(|m| m.image),
        of(|m| m.audio_input),
    ];
    let output = [of(|m| m.output), of(|m| m.reasoning), of(|m| m.audio_output)];
    let dearest = |weights: &[u32]| u128::from(weights.iter().copied().max().unwrap_or(0));
    (dearest(&input), dearest(&output))
}

fn priced(bound: &BoundAccount, demand: &Demand, price: &Price) -> Figures {
    let tier = demand.service_tier.as_deref();
    let expected = expected_input(demand);
    let rates = price.rates(expected.input());
    let base = times(expected.pico(rates), price.tier(tier));
    let per_output = times(u128::from(rates.output), price.tier(tier));

    let reachable = || price.reachable(demand.worst_input);
    let input = reachable().map(|rates| dearest_input(rates, demand)).max().unwrap_or(0);
    let output = reachable().map(|rates| dearest_output(rates, demand)).max().unwrap_or(0);
    let pico =
        u128::from(demand.worst_input) * u128::from(input) + u128::from(demand.cap) * u128::from(output);
    let nano = times(pico, price.tier_worst(tier)).div_ceil(1_000);
    let fees = price.fees(demand.web_searches_worst).saturating_add(price.tool_fees(&demand.hosted_worst));
    let worst = nano.saturating_add(u128::from(fees));
    Figures {
        base: times(base, bound.expected_factor),
        per_output: times(per_output, bound.expected_factor),
        worst: times(worst, bound.worst_factor),
    }
}

/// The dearest rate an llm_token of input can meet: no cache discount, cache writes where they can happen.
fn dearest_input(rates: &Rates, demand: &Demand) -> u64 {
    let mut dearest = rates.input.max(rates.cache_read);
    for (can_happen, rate) in [
        (demand.cache_write, rates.cache_write_5m),
        (demand.cache_write_hour, rates.cache_write_1h),
        (demand.images, rates.image_input),
        (demand.other_media, rates.audio_input),
    ] {
        if can_happen {
            dearest = dearest.max(rate);
        }
    }
    dearest
}

fn dearest_output(rates: &Rates, demand: &Demand) -> u64 {
    let text = rates.output.max(rates.reasoning);
    if demand.audio_output { text.max(rates.audio_output) } else { text }
}

fn times(amount: u128, thousandths: u32) -> u128 {
    amount.saturating_mul(u128::from(thousandths)).div_ceil(1_000)
}
