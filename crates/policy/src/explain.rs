//! What binds whom, as plain data for people.

use crate::account::measure_word;
use crate::calendar::{Anchor, PeriodRule};
use crate::catalog::Catalog;
use crate::limit::{Form, PeriodKind, Raise, Strictness};
use crate::resolve::Binding;
use tollbook_ledger::{AccountId, LimitId};

/// One limit that binds a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundLine {
    pub limit: LimitId,
    pub name: String,
    /// `project acme/web`.
    pub scope: String,
    pub measure: &'static str,
    /// `rate 60 s`, `rate 60 s by forecast`, `quota day Europe/Berlin`.
    pub form: String,
    pub model: Option<String>,
    pub ceiling: u64,
    pub raise: Option<Raise>,
    pub strictness: Strictness,
    pub account: AccountId,
    /// Only written: a shadow limit, or one that takes effect later.
    pub shadow: bool,
    /// UTC seconds until which it is enforced, for what an older version left behind.
    pub until: Option<u64>,
    /// UTC seconds from which it is enforced, if that is later than now.
    pub from: Option<u64>,
}

impl Catalog {
    /// The limits of a binding, by account and then in their configured order.
    pub fn explain(&self, binding: &Binding, now: u64) -> Vec<BoundLine> {
        let mut lines = Vec::new();
        for bound in &binding.accounts {
            for limit in &bound.limits {
                let Some(rule) = self.rule(limit.id) else { continue };
                lines.push(BoundLine {
                    limit: limit.id,
                    name: rule.limit.name.clone(),
                    scope: rule.limit.scope.to_string(),
                    measure: measure_word(rule.limit.measure),
                    form: rule.limit.form.with_booking(),
                    model: rule.limit.model.clone(),
                    ceiling: rule.limit.ceiling,
                    raise: rule.limit.raise,
                    strictness: rule.limit.strictness,
                    account: bound.account,
                    shadow: limit.shadow,
                    until: rule.is_left_behind().then_some(rule.until),
                    from: (rule.enforced_from > now).then_some(rule.enforced_from),
                });
            }
        }
        lines
    }
}

impl Form {
    /// The form, and its booking where that is not `held`: for operators and holders of keys, who set and read limits.
    pub fn with_booking(&self) -> String {
        match self {
            Self::Forecast { strict: false, .. } => format!("{self} by forecast"),
            Self::Forecast { strict: true, .. } => format!("{self} by forecast, strict"),
            Self::Rate { .. } | Self::Quota(_) | Self::Concurrency => self.to_string(),
        }
    }
}

impl core::fmt::Display for Form {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Rate { window_s, .. } => write!(f, "rate {window_s} s"),
            Self::Forecast { window_s, .. } => write!(f, "rate {window_s} s"),
            Self::Quota(rule) => write!(f, "quota {rule}"),
            Self::Concurrency => f.write_str("concurrency"),
        }
    }
}

impl core::fmt::Display for PeriodRule {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.kind.word())?;
        match self.anchor {
            Some(Anchor::Weekday(day)) if day != 1 => write!(f, " from weekday {day}")?,
            Some(Anchor::DayOfMonth(day)) if day != 1 => write!(f, " from day {day}")?,
            _ => {}
        }
        if matches!(self.kind, PeriodKind::Minute | PeriodKind::Lifetime) {
            Ok(())
        } else {
            write!(f, " {}", self.zone)
        }
    }
}

impl PeriodKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Lifetime => "lifetime",
        }
    }
}
