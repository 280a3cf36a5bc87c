//! Limits as a file writes them, into the drafts that `policy` checks.

use tollbook_policy as policy;
use tollbook_policy::{Anchor, LimitDraft, MeterPair, PeriodKind, Scope, ShapeDraft};

use super::file;
use super::mistakes::Mistakes;
use super::values::Decimal;

/// Decimal places of nano-currency.
const NANO: u32 = 9;

/// A limit's draft, or nothing after its mistakes were told. `zone` is the tenant's.
pub(super) fn draft(
    mistakes: &mut Mistakes,
    path: &str,
    scope: Scope,
    zone: Option<&str>,
    limit: &file::Limit,
) -> Option<LimitDraft> {
    let before = mistakes.0.len();
    let shape = shape(mistakes, path, zone, limit);
    let (places, unit) = match limit.measure {
        file::Measure::Cost => (NANO, "0.000000001"),
        _ => (0, "1"),
    };
    let ceiling = limit.ceiling.as_ref();
    let ceiling = ceiling.map(|given| mistakes.amount(&format!("{path}.ceiling"), given, places, unit));
    let raise = limit.raise.as_ref().map(|raise| {
        let by = mistakes.amount(&format!("{path}.raise.by"), &raise.by, places, unit);
        let until = mistakes.instant(&format!("{path}.raise.until"), &raise.until);
        Some(policy::RaiseDraft { by: i128::from(by?), until: until? })
    });
    let factor_path = format!("{path}.hold_factor");
    let factor = limit.hold_factor.as_ref().map(|factor| mistakes.amount(&factor_path, factor, 3, "0.001"));
    let estimator =
        limit.estimator.as_ref().map(|given| estimator(mistakes, &format!("{path}.estimator"), given));
    let meter = limit.meter.as_ref().map(|given| meter(mistakes, &format!("{path}.meter"), given));
    if mistakes.0.len() > before {
        return None;
    }
    Some(LimitDraft {
        name: limit.name.clone(),
        scope,
        model: limit.model.clone(),
        measure: measure(limit.measure),
        shape: shape?,
        ceiling: ceiling.flatten().map(i128::from),
        raise: raise.flatten(),
        strictness: limit.strictness.map(|given| match given {
            file::Strictness::Soft => policy::Strictness::Soft,
            file::Strictness::Hard => policy::Strictness::Hard,
        }),
        hold: limit.hold.map(|given| match given {
            file::Hold::Expected => policy::Hold::Expected,
            file::Hold::Worst => policy::Hold::Worst,
        }),
        on_expiry: limit.on_expiry.map(|given| match given {
            file::OnExpiry::Release => policy::OnExpiry::Release,
            file::OnExpiry::Charge => policy::OnExpiry::Charge,
        }),
        when_away: limit.when_away.map(|given| match given {
            file::WhenAway::Local => policy::WhenAway::Local,
            file::WhenAway::Closed => policy::WhenAway::Closed,
            file::WhenAway::Open => policy::WhenAway::Open,
        }),
        meter: meter.flatten(),
        hold_factor_thousandths: factor.flatten().and_then(|factor| i64::try_from(factor).ok()),
        estimator: estimator.flatten(),
        shadow: limit.shadow,
        count_denied: limit.count_denied,
        refund_failed: limit.refund_failed,
        opening: limit.opening.map(|given| match given {
            file::Opening::Journal => policy::Opening::FromJournal,
            file::Opening::Zero => policy::Opening::Zero,
        }),
        booking: limit.booking.map(|given| match given {
            file::Booking::Held => policy::Booking::Held,
            file::Booking::Forecast => policy::Booking::Forecast,
        }),
        strict: limit.strict,
        charge: limit.charge.map(|given| match given {
            file::Charge::Start => policy::ChargeAt::Start,
            file::Charge::Stream => policy::ChargeAt::Stream,
        }),
        origin: Some(path.into()),
    })
}

fn measure(given: file::Measure) -> policy::Measure {
    match given {
        file::Measure::Requests => policy::Measure::Requests,
        file::Measure::Tokens => policy::Measure::Tokens,
        file::Measure::InputTokens => policy::Measure::InputTokens,
        file::Measure::OutputTokens => policy::Measure::OutputTokens,
        file::Measure::Cost => policy::Measure::Cost,
        file::Measure::Concurrency => policy::Measure::Concurrency,
    }
}

/// A window makes a rate, a period a quota, neither what is in flight.
fn shape(mistakes: &mut Mistakes, path: &str, zone: Option<&str>, limit: &file::Limit) -> Option<ShapeDraft> {
    match (limit.window, limit.period) {
        (Some(_), Some(_)) => {
            mistakes.add_with_help(
                format!("{path}.period"),
                "a limit has a window or a period, not both",
                "make two limits",
            );
            None
        }
        (None, None) if limit.measure != file::Measure::Concurrency => {
            let help = "give `window` for a rate, `period` for a quota";
            mistakes.add_with_help(path, "a limit needs a window or a period", help);
            None
        }
        (Some(window), None) => {
            meaningless(
                mistakes,
                path,
                "a rate",
                &[("zone", limit.zone.is_some()), ("anchor", limit.anchor.is_some())],
            );
            let window_s = mistakes.seconds(&format!("{path}.window"), window);
            let bucket_s = limit.bucket.map(|bucket| mistakes.seconds(&format!("{path}.bucket"), bucket));
            let weights = limit.weights.map(|given| match given {
                file::Weights::Whole => policy::Weights::Whole,
                file::Weights::Oldest => policy::Weights::Oldest,
                file::Weights::Decay => policy::Weights::Decay,
            });
            Some(ShapeDraft::Rate { window_s: window_s?, bucket_s: bucket_s.flatten(), weights })
        }
        (None, Some(period)) => {
            meaningless(
                mistakes,
                path,
                "a quota",
                &[("bucket", limit.bucket.is_some()), ("weights", limit.weights.is_some())],
            );
            let period = period_kind(period);
            let inherited = zone.filter(|_| !matches!(period, PeriodKind::Minute | PeriodKind::Lifetime));
            let zone = limit.zone.as_deref().or(inherited).map(str::to_owned);
            let anchor =
                limit.anchor.as_deref().map(|given| anchor(mistakes, &format!("{path}.anchor"), given));
            Some(ShapeDraft::Quota { period, zone, anchor: anchor.flatten() })
        }
        (None, None) => {
            let of_others = [
                ("bucket", limit.bucket.is_some()),
                ("weights", limit.weights.is_some()),
                ("zone", limit.zone.is_some()),
                ("anchor", limit.anchor.is_some()),
            ];
            meaningless(mistakes, path, "concurrency", &of_others);
            Some(ShapeDraft::Concurrency)
        }
    }
}

fn meaningless(mistakes: &mut Mistakes, path: &str, what: &str, fields: &[(&str, bool)]) {
    for (field, _) in fields.iter().filter(|(_, given)| *given) {
        mistakes.add_with_help(
            format!("{path}.{field}"),
            format!("{field} has no meaning for {what}"),
            "remove it",
        );
    }
}

fn period_kind(given: file::Period) -> PeriodKind {
    match given {
        file::Period::Minute => PeriodKind::Minute,
        file::Period::Hour => PeriodKind::Hour,
        file::Period::Day => PeriodKind::Day,
        file::Period::Week => PeriodKind::Week,
        file::Period::Month => PeriodKind::Month,
        file::Period::Lifetime => PeriodKind::Lifetime,
    }
}

fn anchor(mistakes: &mut Mistakes, path: &str, text: &str) -> Option<Anchor> {
    let weekdays = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let weekday = weekdays.iter().position(|name| *name == text).and_then(|at| u8::try_from(at + 1).ok());
    match (weekday, text.parse::<u8>()) {
        (Some(day), _) => Some(Anchor::Weekday(day)),
        (None, Ok(day)) => Some(Anchor::DayOfMonth(day)),
        (None, Err(_)) => {
            mistakes.add(
                path,
                format!("must be a weekday, as monday, or a day of the month, 1 to 31, not `{text}`"),
            );
            None
        }
    }
}

fn estimator(
    mistakes: &mut Mistakes,
    path: &str,
    given: &file::Estimator,
) -> Option<policy::EstimatorChoice> {
    let choice = match (given.kind, given.output) {
        (file::EstimatorKind::Constant, Some(output)) => {
            return Some(policy::EstimatorChoice::Constant(output));
        }
        (file::EstimatorKind::Constant, None) => {
            let help = "write { kind: constant, output: 500 }";
            mistakes.add_with_help(path, "constant needs `output`", help);
            return None;
        }
        (file::EstimatorKind::Ema, _) => policy::EstimatorChoice::Ema,
        (file::EstimatorKind::RecentMean, _) => policy::EstimatorChoice::RecentMean,
        (file::EstimatorKind::P95, _) => policy::EstimatorChoice::P95,
        (file::EstimatorKind::Capped, _) => policy::EstimatorChoice::Capped,
        (file::EstimatorKind::Forecast, _) => policy::EstimatorChoice::Forecast,
    };
    if given.output.is_some() {
        let help = "remove it";
        mistakes.add_with_help(format!("{path}.output"), "output has a meaning for constant alone", help);
        return None;
    }
    Some(choice)
}

/// The pair of meters a file gives.
pub(super) fn meter(mistakes: &mut Mistakes, path: &str, given: &file::Meter) -> Option<MeterPair> {
    match given {
        file::Meter { preset: Some(name), weights: None, weights_at_end: None } => {
            let known = MeterPair::preset(name);
            if known.is_none() {
                let help = format!("known are {}", MeterPair::PRESETS.join(", "));
                mistakes.add_with_help(format!("{path}.preset"), format!("`{name}` is not known"), help);
            }
            known
        }
        file::Meter { preset: None, weights: Some(start), weights_at_end } => {
            let reserve = weights(mistakes, &format!("{path}.weights"), start);
            let end =
                weights_at_end.as_ref().map(|end| weights(mistakes, &format!("{path}.weights_at_end"), end));
            let reserve = reserve?;
            Some(MeterPair { reserve, settle: end.map_or(Some(reserve), |end| end)? })
        }
        _ => {
            mistakes
                .add(path, "a meter needs `preset` or `weights`, and `weights_at_end` only with `weights`");
            None
        }
    }
}

fn weights(mistakes: &mut Mistakes, path: &str, given: &file::MeterWeights) -> Option<policy::Meter> {
    let mut weight = |name: &str, decimal: &Decimal| {
        let thousandths = mistakes.amount(&format!("{path}.{name}"), decimal, 3, "0.001")?;
        Some(u32::try_from(thousandths).unwrap_or(u32::MAX))
    };
    let mut or = |name: &str, decimal: &Option<Decimal>, whole: Option<u32>| match decimal {
        Some(decimal) => weight(name, decimal),
        None => whole,
    };
    let input = or("input", &Some(given.input.clone()), None);
    let output = or("output", &Some(given.output.clone()), None);
    let cache_read = or("cache_read", &given.cache_read, input);
    let cache_write = or("cache_write", &given.cache_write, input);
    let reasoning = or("reasoning", &given.reasoning, output);
    let image = or("image", &given.image, input);
    let audio_input = or("audio_input", &given.audio_input, input);
    let audio_output = or("audio_output", &given.audio_output, output);
    Some(policy::Meter {
        uncached_input: input?,
        cache_read: cache_read?,
        cache_write: cache_write?,
        output: output?,
        reasoning: reasoning?,
        image: image?,
        audio_input: audio_input?,
        audio_output: audio_output?,
    })
}
