//! How a limit books its calls: one configuration of a comparison, as text and as legs of the ledger.
//!
//! Text: parts joined by commas, in any order: `booking=held`, `window=7x10s`, `estimator=ema`, `factor=1.25`,
//! `strict`, `gateways=4`. A part that is absent has its default; one that cannot apply to the booking is refused.

use core::fmt;
use core::str::FromStr;

use tollbook_ledger::units::FORECAST_CEILING_MAX;
use tollbook_ledger::{
    AMOUNT_MAX, AccountId, Estimator, EstimatorId, EstimatorKind, Hold, Leg, Limit, LimitId, Measure, Micros,
    OnExpiry, Periods, SECOND, Shape, SubjectId, Weights,
};

use crate::judge::Counted;
use crate::limits::WINDOW;
use crate::offer::Call;

/// Expected output of the very first call, when nothing has been learned.
const FIRST_OUTPUT: u64 = 500;
/// Largest factor on a hold, in thousandths.
const FACTOR_MAX: u64 = 100_000;

/// One configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    pub booking: Booking,
    pub estimator: Guess,
    /// Thousandths by which a hold is multiplied.
    pub factor: u64,
    pub counted: Counted,
    /// Gateways that share the book, each of which knows its own streams only.
    pub gateways: u64,
}

/// Most gateways that share a book here.
pub const GATEWAYS_MAX: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Booking {
    /// Input is posted at the door, output is planned into the seconds in which it will land, plan replaced by fact.
    Forecast {
        /// The oldest second counts whole.
        strict: bool,
    },
    /// The expected demand is held until the call ends, then the truth is posted.
    Held(Window),
}

/// The window of a held booking; it covers 60 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    Ring {
        buckets: u8,
        width: Micros,
        weights: Weights,
    },
    /// Calendar minutes.
    Minute,
}

/// Where the expected output comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guess {
    Learned(EstimatorKind),
    Capped,
    Constant(u64),
    /// The true output, which no gateway knows.
    Perfect,
    /// Nothing is held; what was used is counted once the call has ended.
    None,
}

/// The default window: 61 buckets of a second.
pub const FINE: Window = Window::Ring { buckets: 61, width: SECOND, weights: Weights::Whole };

impl Default for Settings {
    fn default() -> Self {
        Self {
            booking: Booking::Forecast { strict: false },
            estimator: Guess::Learned(EstimatorKind::Forecast),
            factor: 1000,
            counted: Counted::default(),
            gateways: 1,
        }
    }
}

/// Why a configuration was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let mut given = Given::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let place = match name {
                "booking" => &mut given.booking,
                "window" => &mut given.window,
                "estimator" => &mut given.estimator,
                "factor" => &mut given.factor,
                "strict" if part == name => &mut given.strict,
                "gateways" => &mut given.gateways,
                _ => {
                    return Err(SettingsError(format!(
                        "'{part}' is no part of a configuration; write booking=, window=, estimator=, factor=, gateways= or strict"
                    )));
                }
            };
            if place.replace(value).is_some() {
                return Err(SettingsError(format!("{name} is given twice")));
            }
        }
        given.settings()
    }
}

/// The parts of a configuration as they were written.
#[derive(Default)]
struct Given<'a> {
    booking: Option<&'a str>,
    window: Option<&'a str>,
    estimator: Option<&'a str>,
    factor: Option<&'a str>,
    strict: Option<&'a str>,
    gateways: Option<&'a str>,
}

impl Given<'_> {
    fn settings(&self) -> Result<Settings, SettingsError> {
        let defaults = Settings::default();
        let refused = |what: &str| Err(SettingsError(what.to_owned()));
        let (booking, estimator) = match (self.booking, self.window) {
            (None | Some("forecast"), Some(_)) => return refused("window goes with booking=held"),
            (None | Some("forecast"), None) => {
                (Booking::Forecast { strict: self.strict.is_some() }, defaults.estimator)
            }
            (Some("held"), _) if self.strict.is_some() => {
                return refused("strict goes with booking=forecast");
            }
            // A held booking tells the book nothing while a call runs: gateways change nothing.
            (Some("held"), _) if self.gateways.is_some() => {
                return refused("gateways goes with booking=forecast");
            }
            (Some("held"), text) => {
                (Booking::Held(text.map_or(Ok(FINE), window)?), Guess::Learned(EstimatorKind::Ema))
            }
            (Some(other), _) => return refused(&format!("booking is forecast or held, not '{other}'")),
        };
        Ok(Settings {
            booking,
            estimator: self.estimator.map_or(Ok(estimator), guess)?,
            factor: self.factor.map_or(Ok(defaults.factor), thousandths)?,
            counted: defaults.counted,
            gateways: self.gateways.map_or(Ok(defaults.gateways), gateways)?,
        })
    }
}

fn gateways(text: &str) -> Result<u64, SettingsError> {
    let count = text.parse().ok().filter(|count| (1..=GATEWAYS_MAX).contains(count));
    count.ok_or_else(|| SettingsError(format!("gateways is a number from 1 to {GATEWAYS_MAX}, not '{text}'")))
}

fn window(text: &str) -> Result<Window, SettingsError> {
    if text == "minute" {
        return Ok(Window::Minute);
    }
    let wrong = || {
        SettingsError(format!(
            "window is minute, or buckets x width as 61x1s or 7x10s, maybe with :oldest or :decay; not '{text}'"
        ))
    };
    let (ring, weights) = text.split_once(':').unwrap_or((text, ""));
    let weights = match weights {
        "" => Weights::Whole,
        "oldest" => Weights::Oldest,
        "decay" => Weights::Decay,
        _ => return Err(wrong()),
    };
    let (buckets, width) = ring.split_once('x').ok_or_else(wrong)?;
    let buckets: u8 = buckets.parse().map_err(|_| wrong())?;
    let width: u64 = width.strip_suffix('s').and_then(|width| width.parse().ok()).ok_or_else(wrong)?;
    let width = width.checked_mul(SECOND).filter(|width| (1..=WINDOW).contains(width)).ok_or_else(wrong)?;
    if !(2..=tollbook_ledger::units::BUCKETS_MAX).contains(&buckets) {
        return Err(wrong());
    }
    let all = width * u64::from(buckets);
    if all != WINDOW && all - width != WINDOW {
        return Err(SettingsError(format!(
            "the window {text} does not cover 60 s: with or without its oldest bucket it must"
        )));
    }
    Ok(Window::Ring { buckets, width, weights })
}

/// Names of the estimators that learn.
const KINDS: [(&str, EstimatorKind); 4] = [
    ("forecast", EstimatorKind::Forecast),
    ("ema", EstimatorKind::Ema),
    ("recent_mean", EstimatorKind::RecentMean),
    ("p95", EstimatorKind::P95),
];

fn guess(text: &str) -> Result<Guess, SettingsError> {
    let constant = text.strip_prefix("constant:").and_then(|number| number.parse().ok());
    let kind = KINDS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
    match (text, constant) {
        _ if kind.is_some() => Ok(kind.map_or(Guess::None, Guess::Learned)),
        ("capped", _) => Ok(Guess::Capped),
        ("perfect", _) => Ok(Guess::Perfect),
        ("none", _) => Ok(Guess::None),
        (_, Some(output)) if output <= crate::trace::LLM_TOKENS_MAX => Ok(Guess::Constant(output)),
        _ => {
            Err(SettingsError(format!("estimator is ema, capped, constant:N, perfect or none, not '{text}'")))
        }
    }
}

/// A decimal number with up to three places, in thousandths.
pub fn thousandths(text: &str) -> Result<u64, SettingsError> {
    let wrong = || SettingsError(format!("'{text}' is no number above 0 with up to three places, as 1.5"));
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
    let value = whole.checked_mul(1000).and_then(|whole| whole.checked_add(part));
    value.filter(|value| (1..=FACTOR_MAX).contains(value)).ok_or_else(wrong)
}

impl fmt::Display for Settings {
    /// Short, and enough to tell configurations apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.booking {
            Booking::Held(window) => write!(f, "held {window} {}", self.estimator)?,
            Booking::Forecast { strict } => {
                f.write_str(if strict { "forecast strict" } else { "forecast" })?;
                if self.estimator != Guess::Learned(EstimatorKind::Forecast) {
                    write!(f, " {}", self.estimator)?;
                }
                if self.gateways > 1 {
                    write!(f, " {} gateways", self.gateways)?;
                }
            }
        }
        if self.factor != 1000 {
            let number = format!("{}.{:03}", self.factor / 1000, self.factor % 1000);
            write!(f, " × {}", number.trim_end_matches('0').trim_end_matches('.'))?;
        }
        Ok(())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Ring { buckets, width, weights } = *self else { return f.write_str("minute") };
        write!(f, "{buckets}x{}s", width / SECOND)?;
        f.write_str(match weights {
            Weights::Whole => "",
            Weights::Oldest => ":oldest",
            Weights::Decay => ":decay",
        })
    }
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Learned(kind) => {
                f.write_str(KINDS.iter().find(|(_, other)| other == kind).map_or("", |(name, _)| name))
            }
            Self::Capped => f.write_str("capped"),
            Self::Constant(output) => write!(f, "constant:{output}"),
            Self::Perfect => f.write_str("perfect"),
            Self::None => f.write_str("none"),
        }
    }
}

impl Settings {
    /// The largest limit that this booking takes.
    pub fn ceiling_max(&self) -> u64 {
        match self.booking {
            Booking::Forecast { .. } => FORECAST_CEILING_MAX,
            Booking::Held(Window::Ring { weights, .. }) if weights != Weights::Whole => FORECAST_CEILING_MAX,
            Booking::Held(_) => AMOUNT_MAX,
        }
    }

    /// A leg to be filled call by call.
    pub(crate) fn leg(&self) -> Leg {
        let (shape, periods) = match self.booking {
            Booking::Held(Window::Ring { buckets, width, weights }) => {
                (Shape::Rate { buckets, width, weights }, Periods::None)
            }
            Booking::Forecast { strict } => (Shape::Forecast { window: 60, strict }, Periods::None),
            Booking::Held(Window::Minute) => (Shape::Quota, Periods::Calendar([0, 1, 2, 3])),
        };
        let limit = Limit {
            id: LimitId(0),
            ceiling: 0,
            hard: false,
            shadow: false,
            count_denied: false,
            hold: Hold::Expected,
            on_expiry: OnExpiry::Release,
        };
        Leg {
            account: AccountId { subject: SubjectId(0), name: 0 },
            measure: match self.counted {
                Counted::Both => Measure::Tokens,
                Counted::Input => Measure::InputTokens,
                Counted::Output => Measure::OutputTokens,
            },
            shape,
            periods,
            base: 0,
            per_output: 0,
            cap: 0,
            worst: 0,
            estimator: Estimator::Capped,
            refund_failed: false,
            limits: vec![limit],
        }
    }

    /// The leg of one call.
    pub(crate) fn fill(&self, leg: &mut Leg, call: &Call, place: &Place) {
        let (input, per_output) = match self.counted {
            Counted::Both => (call.input, self.factor),
            Counted::Input => (call.input, 0),
            Counted::Output => (0, self.factor),
        };
        leg.account.subject = SubjectId(u64::from(place.account) + 1);
        leg.cap = call.max_tokens.map_or(place.model_cap, |cap| cap.min(place.model_cap));
        (leg.base, leg.per_output) = (input * self.factor, per_output);
        let (own, prior) = (EstimatorId(u64::from(call.key) + 1), EstimatorId(0));
        leg.estimator = match self.estimator {
            Guess::Learned(kind) => Estimator::Learned { kind, own, prior, first: FIRST_OUTPUT },
            Guess::Capped => Estimator::Capped,
            Guess::Constant(output) => Estimator::Constant { output },
            Guess::Perfect => Estimator::Constant { output: call.output },
            Guess::None => {
                (leg.base, leg.per_output) = (0, 0);
                Estimator::Constant { output: 0 }
            }
        };
        let worst = leg.base.saturating_add(leg.per_output.saturating_mul(leg.cap)).div_ceil(1000);
        // A call that may still cost something is not free, though nothing is held for it.
        leg.worst = worst.max(u64::from(self.estimator == Guess::None));
        if let Some(limit) = leg.limits.first_mut() {
            limit.ceiling = place.ceiling;
        }
        if let Booking::Held(Window::Minute) = self.booking {
            let minute = place.now / SECOND / 60 * 60;
            leg.periods = Periods::Calendar([minute, minute + 60, minute + 120, minute + 180]);
        }
    }
}

/// Where and when a call is booked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) now: Micros,
    pub(crate) account: u32,
    pub(crate) ceiling: u64,
    /// Bounds the output of a call that sends no bound of its own.
    pub(crate) model_cap: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        text.parse::<Settings>().map(|settings| settings.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn configurations_are_read_in_any_order() {
        for (text, shown) in [
            ("", "forecast"),
            ("strict", "forecast strict"),
            ("estimator=perfect,strict,booking=forecast", "forecast strict perfect"),
            ("gateways=4,strict", "forecast strict 4 gateways"),
            ("gateways=1", "forecast"),
            ("gateways=64", "forecast 64 gateways"),
            ("booking=held", "held 61x1s ema"),
            ("estimator=capped, window=7x10s,booking=held", "held 7x10s capped"),
            ("booking=held,window=6x10s:oldest,estimator=constant:300", "held 6x10s:oldest constant:300"),
            ("booking=held,window=minute,estimator=capped,factor=1.25", "held minute capped × 1.25"),
            ("booking=held,window=2x60s:decay,estimator=none", "held 2x60s:decay none"),
            ("booking=held,estimator=p95,factor=2", "held 61x1s p95 × 2"),
            ("booking=held,estimator=recent_mean", "held 61x1s recent_mean"),
            ("booking=held,estimator=forecast", "held 61x1s forecast"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            "booking=",
            "booking=guess",
            "window=60s",
            "window=1x60s",
            "window=65x1s",
            "window=30x1s",
            "window=0x0s",
            "window=7x10s:newest",
            "estimator=mean",
            "estimator=constant:x",
            "estimator=constant:99999999999",
            "factor=0",
            "factor=-1",
            "factor=1.2345",
            "factor=1e3",
            "factor=101",
            "speed=1",
            "gateways=0",
            "gateways=65",
            "gateways=-1",
            "gateways=4,booking=held",
            "window=minute,window=minute",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
