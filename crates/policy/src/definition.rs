//! A limit's definition as text, the form in which its history is stored.
//!
//! One line per field, a word and its arguments; `%XX` stands for every byte that is not plain. Old texts stay readable:
//! a reader takes what it knows, fills what is missing with its default, and refuses only what it cannot mean.

use crate::account::measure_word;
use crate::calendar::{Anchor, DEFAULT_ZONE, PeriodRule};
use crate::limit::{
    EstimatorChoice, FACTOR_ONE, Form, Limit, Opening, PeriodKind, Raise, Strictness, WhenAway,
    default_bucket_s,
};
use crate::meter::{Meter, MeterPair};
use crate::subject::{Scope, Subject};
use core::fmt::Write as _;
use std::collections::BTreeMap;
use tollbook_ledger::{Hold, Measure, OnExpiry, Weights};

/// First line of the text.
const HEAD: &str = "limit 1";

/// A stored definition that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a stored definition has no readable `{0}`")]
pub struct DefinitionError(pub &'static str);

impl Limit {
    /// The stored form.
    pub fn to_text(&self) -> String {
        let mut text = Text(HEAD.to_owned());
        text.line("name", &[&self.name]);
        text.scope(&self.scope);
        if let Some(model) = &self.model {
            text.line("model", &[model]);
        }
        text.line("measure", &[measure_word(self.measure)]);
        text.form(&self.form);
        text.line("ceiling", &[&self.ceiling.to_string()]);
        if let Some(Raise { by, until }) = self.raise {
            text.line("raise", &[&by.to_string(), &until.to_string()]);
        }
        text.line("strictness", &[strictness_word(self.strictness)]);
        text.line("hold", &[hold_word(self.hold)]);
        text.line("on_expiry", &[on_expiry_word(self.on_expiry)]);
        text.line("when_away", &[when_away_word(self.when_away)]);
        if self.meter != MeterPair::PLAIN {
            text.meter("meter_reserve", &self.meter.reserve);
            text.meter("meter_settle", &self.meter.settle);
        }
        if self.hold_factor_thousandths != FACTOR_ONE {
            text.line("hold_factor", &[&self.hold_factor_thousandths.to_string()]);
        }
        match self.estimator {
            None => {}
            Some(EstimatorChoice::Ema) => text.line("estimator", &["ema"]),
            Some(EstimatorChoice::RecentMean) => text.line("estimator", &["recent_mean"]),
            Some(EstimatorChoice::P95) => text.line("estimator", &["p95"]),
            Some(EstimatorChoice::Forecast) => text.line("estimator", &["forecast"]),
            Some(EstimatorChoice::Capped) => text.line("estimator", &["capped"]),
            Some(EstimatorChoice::Constant(output)) => {
                text.line("estimator", &["constant", &output.to_string()]);
            }
        }
        for (word, set) in [
            ("shadow", self.shadow),
            ("count_denied", self.count_denied),
            ("refund_failed", self.refund_failed),
            ("opening_zero", self.opening == Opening::Zero),
        ] {
            if set {
                text.line(word, &[]);
            }
        }
        text.0
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// Names the first field that is missing or cannot be read.
    pub fn from_text(text: &str) -> Result<Self, DefinitionError> {
        let lines = Lines::read(text)?;
        let measure = lines.measure()?;
        let form = lines.form()?;
        let strictness = match lines.word("strictness")? {
            "hard" => Strictness::Hard,
            "soft" => Strictness::Soft,
            _ => return Err(DefinitionError("strictness")),
        };
        Ok(Self {
            name: lines.text("name")?,
            scope: lines.scope()?,
            model: lines.has("model").then(|| lines.text("model")).transpose()?,
            measure,
            form,
            ceiling: lines.number("ceiling")?,
            raise: lines.raise()?,
            strictness,
            hold: match lines.word("hold")? {
                "expected" => Hold::Expected,
                "worst" => Hold::Worst,
                _ => return Err(DefinitionError("hold")),
            },
            on_expiry: match lines.word("on_expiry")? {
                "release" => OnExpiry::Release,
                "charge" => OnExpiry::Charge,
                _ => return Err(DefinitionError("on_expiry")),
            },
            when_away: match lines.word("when_away")? {
                "open" => WhenAway::Open,
                "local" => WhenAway::Local,
                "closed" => WhenAway::Closed,
                _ => return Err(DefinitionError("when_away")),
            },
            meter: lines.meter()?,
            hold_factor_thousandths: if lines.has("hold_factor") {
                lines.number("hold_factor")?
            } else {
                FACTOR_ONE
            },
            estimator: lines.estimator()?,
            shadow: lines.has("shadow"),
            count_denied: lines.has("count_denied"),
            refund_failed: lines.has("refund_failed"),
            opening: if lines.has("opening_zero") { Opening::Zero } else { Opening::FromJournal },
            origin: None,
        })
    }
}

fn strictness_word(strictness: Strictness) -> &'static str {
    match strictness {
        Strictness::Soft => "soft",
        Strictness::Hard => "hard",
    }
}

fn hold_word(hold: Hold) -> &'static str {
    match hold {
        Hold::Expected => "expected",
        Hold::Worst => "worst",
    }
}

fn on_expiry_word(on_expiry: OnExpiry) -> &'static str {
    match on_expiry {
        OnExpiry::Release => "release",
        OnExpiry::Charge => "charge",
    }
}

fn when_away_word(when_away: WhenAway) -> &'static str {
    match when_away {
        WhenAway::Open => "open",
        WhenAway::Local => "local",
        WhenAway::Closed => "closed",
    }
}

/// Text as it is written.
struct Text(String);

impl Text {
    fn line(&mut self, word: &str, arguments: &[&str]) {
        self.0.push('\n');
        self.0.push_str(word);
        for argument in arguments {
            self.0.push(' ');
            escape(argument, &mut self.0);
        }
    }

    fn scope(&mut self, scope: &Scope) {
        match scope {
            Scope::EachUser { tenant } => self.line("scope", &["each_user", tenant]),
            Scope::One(Subject::Tenant { tenant }) => self.line("scope", &["tenant", tenant]),
            Scope::One(Subject::Project { tenant, project }) => {
                self.line("scope", &["project", tenant, project]);
            }
            Scope::One(Subject::Key { tenant, project, key }) => {
                self.line("scope", &["key", tenant, project, key]);
            }
            Scope::One(Subject::Service { tenant, service }) => {
                self.line("scope", &["service", tenant, service]);
            }
            Scope::One(Subject::User { tenant, user }) => self.line("scope", &["user", tenant, user]),
            Scope::One(Subject::Pool { pool }) => self.line("scope", &["pool", pool]),
        }
    }

    fn form(&mut self, form: &Form) {
        match form {
            Form::Concurrency => self.line("concurrency", &[]),
            Form::Rate { window_s, bucket_s, weights } => {
                let weights = match weights {
                    Weights::Whole => "whole",
                    Weights::Oldest => "oldest",
                    Weights::Decay => "decay",
                };
                self.line("rate", &[&window_s.to_string(), &bucket_s.to_string(), weights]);
            }
            Form::Forecast { window_s, strict } => {
                let oldest = if *strict { "strict" } else { "part" };
                self.line("forecast", &[&window_s.to_string(), oldest]);
            }
            Form::Quota(rule) => {
                self.line("quota", &[rule.kind.word(), &rule.zone]);
                match rule.anchor {
                    None => {}
                    Some(Anchor::Weekday(day)) => self.line("weekday", &[&day.to_string()]),
                    Some(Anchor::DayOfMonth(day)) => self.line("day_of_month", &[&day.to_string()]),
                }
            }
        }
    }

    fn meter(&mut self, word: &str, meter: &Meter) {
        let weights = meter.parts().map(|(_, weight)| weight.to_string());
        let weights: Vec<&str> = weights.iter().map(String::as_str).collect();
        self.line(word, &weights);
    }
}

fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            // writing to a string cannot fail
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(core::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Lines as they are read: word and arguments, still escaped.
struct Lines<'a>(BTreeMap<&'a str, Vec<&'a str>>);

impl<'a> Lines<'a> {
    fn read(text: &'a str) -> Result<Self, DefinitionError> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(DefinitionError("version"));
        }
        let fields = lines.filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.collect()))
        });
        Ok(Self(fields.collect()))
    }

    fn has(&self, word: &str) -> bool {
        self.0.contains_key(word)
    }

    fn arguments(&self, word: &'static str) -> Result<&[&'a str], DefinitionError> {
        self.0.get(word).map(Vec::as_slice).ok_or(DefinitionError(word))
    }

    fn word(&self, word: &'static str) -> Result<&'a str, DefinitionError> {
        self.arguments(word)?.first().copied().ok_or(DefinitionError(word))
    }

    fn text(&self, word: &'static str) -> Result<String, DefinitionError> {
        unescape(self.word(word)?).ok_or(DefinitionError(word))
    }

    fn number<N: core::str::FromStr>(&self, word: &'static str) -> Result<N, DefinitionError> {
        self.word(word)?.parse().map_err(|_| DefinitionError(word))
    }

    fn measure(&self) -> Result<Measure, DefinitionError> {
        let known = [
            Measure::Requests,
            Measure::Tokens,
            Measure::InputTokens,
            Measure::OutputTokens,
            Measure::Cost,
            Measure::Concurrency,
        ];
        let word = self.word("measure")?;
        known.into_iter().find(|&measure| measure_word(measure) == word).ok_or(DefinitionError("measure"))
    }

    fn scope(&self) -> Result<Scope, DefinitionError> {
        let wrong = DefinitionError("scope");
        let words = self.arguments("scope")?;
        let ids: Option<Vec<String>> = words.iter().skip(1).map(|id| unescape(id)).collect();
        let ids = ids.ok_or_else(|| wrong.clone())?;
        let one = match (words.first().copied(), ids.as_slice()) {
            (Some("each_user"), [tenant]) => return Ok(Scope::EachUser { tenant: tenant.clone() }),
            (Some("tenant"), [tenant]) => Subject::Tenant { tenant: tenant.clone() },
            (Some("project"), [tenant, project]) => {
                Subject::Project { tenant: tenant.clone(), project: project.clone() }
            }
            (Some("key"), [tenant, project, key]) => {
                Subject::Key { tenant: tenant.clone(), project: project.clone(), key: key.clone() }
            }
            (Some("service"), [tenant, service]) => {
                Subject::Service { tenant: tenant.clone(), service: service.clone() }
            }
            (Some("user"), [tenant, user]) => Subject::User { tenant: tenant.clone(), user: user.clone() },
            (Some("pool"), [pool]) => Subject::Pool { pool: pool.clone() },
            _ => return Err(wrong),
        };
        Ok(Scope::One(one))
    }

    fn form(&self) -> Result<Form, DefinitionError> {
        if self.has("concurrency") {
            Ok(Form::Concurrency)
        } else if self.has("rate") {
            self.rate()
        } else if self.has("forecast") {
            self.forecast()
        } else {
            self.quota()
        }
    }

    fn rate(&self) -> Result<Form, DefinitionError> {
        let wrong = || DefinitionError("rate");
        let words = self.arguments("rate")?;
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
        let window_s = number(0).filter(|&window| window > 0).ok_or_else(wrong)?;
        let bucket_s = number(1).filter(|&bucket| bucket > 0).unwrap_or_else(|| default_bucket_s(window_s));
        let weights = match words.get(2).copied() {
            None | Some("whole") => Weights::Whole,
            Some("oldest") => Weights::Oldest,
            Some("decay") => Weights::Decay,
            Some(_) => return Err(wrong()),
        };
        Ok(Form::Rate { window_s, bucket_s, weights })
    }

    fn forecast(&self) -> Result<Form, DefinitionError> {
        let wrong = || DefinitionError("forecast");
        let words = self.arguments("forecast")?;
        let window_s = words.first().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
        match words.get(1).copied() {
            Some("strict") => Ok(Form::Forecast { window_s, strict: true }),
            None | Some("part") => Ok(Form::Forecast { window_s, strict: false }),
            Some(_) => Err(wrong()),
        }
    }

    fn quota(&self) -> Result<Form, DefinitionError> {
        let wrong = || DefinitionError("quota");
        let words = self.arguments("quota")?;
        let kinds = [
            PeriodKind::Minute,
            PeriodKind::Hour,
            PeriodKind::Day,
            PeriodKind::Week,
            PeriodKind::Month,
            PeriodKind::Lifetime,
        ];
        let word = words.first().copied().ok_or_else(wrong)?;
        let kind = kinds.into_iter().find(|kind| kind.word() == word).ok_or_else(wrong)?;
        let anchor = if self.has("weekday") {
            Some(Anchor::Weekday(self.number("weekday")?))
        } else if self.has("day_of_month") {
            Some(Anchor::DayOfMonth(self.number("day_of_month")?))
        } else {
            None
        };
        let zone =
            words.get(1).map_or(Some(DEFAULT_ZONE.to_owned()), |zone| unescape(zone)).ok_or_else(wrong)?;
        // a zone the table no longer has must not make a history unreadable; it counts in UTC
        let zone = if matches!(kind, PeriodKind::Minute | PeriodKind::Lifetime) { None } else { Some(zone) };
        let rule =
            PeriodRule::new(kind, zone.as_deref(), anchor).or_else(|_| PeriodRule::new(kind, None, None));
        rule.map(Form::Quota).map_err(|_| wrong())
    }

    fn raise(&self) -> Result<Option<Raise>, DefinitionError> {
        if !self.has("raise") {
            return Ok(None);
        }
        let number = |word: &&str| word.parse().ok();
        match self.arguments("raise")? {
            [by, until] => number(by).zip(number(until)).map(|(by, until)| Some(Raise { by, until })),
            _ => None,
        }
        .ok_or(DefinitionError("raise"))
    }

    fn meter(&self) -> Result<MeterPair, DefinitionError> {
        if !self.has("meter_reserve") {
            return Ok(MeterPair::PLAIN);
        }
        Ok(MeterPair { reserve: self.weights("meter_reserve")?, settle: self.weights("meter_settle")? })
    }

    fn weights(&self, word: &'static str) -> Result<Meter, DefinitionError> {
        let weights: Option<Vec<u32>> =
            self.arguments(word)?.iter().map(|weight| weight.parse().ok()).collect();
        match weights.as_deref() {
            Some(
                &[
                    uncached_input,
                    cache_read,
                    cache_write,
                    output,
                    reasoning,
                    image,
                    audio_input,
                    audio_output,
                ],
            ) => Ok(Meter {
                uncached_input,
                cache_read,
                cache_write,
                output,
                reasoning,
                image,
                audio_input,
                audio_output,
            }),
            _ => Err(DefinitionError(word)),
        }
    }

    fn estimator(&self) -> Result<Option<EstimatorChoice>, DefinitionError> {
        if !self.has("estimator") {
            return Ok(None);
        }
        let wrong = || DefinitionError("estimator");
        match self.arguments("estimator")? {
            ["ema"] => Ok(Some(EstimatorChoice::Ema)),
            ["recent_mean"] => Ok(Some(EstimatorChoice::RecentMean)),
            ["p95"] => Ok(Some(EstimatorChoice::P95)),
            ["forecast"] => Ok(Some(EstimatorChoice::Forecast)),
            ["capped"] => Ok(Some(EstimatorChoice::Capped)),
            ["constant", output] => Ok(Some(EstimatorChoice::Constant(output.parse().map_err(|_| wrong())?))),
            _ => Err(wrong()),
        }
    }
}
