//! How accounts are named.
//!
//! An account's name is a digest of everything that makes it another account, and of nothing else: measure, shape with
//! its ring and weights, booking, period with zone and anchor, model qualifier, meter. Not the limit's name, not the
//! ceiling, not strictness: recreating a limit gives no second budget, and a changed ceiling meets the same account (L16).

use crate::calendar::{Anchor, Calendar, PeriodRule};
use crate::digest::Digest;
use crate::limit::{Form, Limit, PeriodKind, buckets};
use crate::meter::counts_llm_tokens;
use tollbook_ledger::{Measure, Weights};

/// The name part of the account a limit counts in, the same for every subject.
pub(crate) fn account_name(limit: &Limit) -> u64 {
    let mut digest = Digest::new("tollbook account 1");
    digest.byte(measure_code(limit.measure));
    form(&mut digest, &limit.form);
    digest.byte(u8::from(matches!(limit.form, Form::Forecast { .. })));
    digest.optional_text(limit.model.as_deref());
    if counts_llm_tokens(limit.measure) {
        // masked, so that a weight that never counts makes no other account
        let pair = limit.meter.masked(limit.measure);
        for (_, weight) in pair.reserve.parts().into_iter().chain(pair.settle.parts()) {
            digest.number(u64::from(weight));
        }
    }
    digest.short()
}

impl Limit {
    /// Of a quota: its account's name, the same for every subject, and its calendar.
    pub fn quota(&self) -> Option<(u64, Calendar)> {
        match &self.form {
            Form::Quota(rule) => Some((account_name(self), Calendar::new(rule.clone()))),
            Form::Rate { .. } | Form::Forecast { .. } | Form::Concurrency => None,
        }
    }
}

fn form(digest: &mut Digest, form: &Form) {
    match form {
        Form::Rate { window_s, bucket_s, weights } => {
            digest.byte(1);
            digest.number(u64::from(buckets(*window_s, *bucket_s)));
            digest.number(u64::from(*bucket_s));
            digest.byte(match weights {
                Weights::Whole => 0,
                Weights::Oldest => 1,
                Weights::Decay => 2,
            });
        }
        Form::Forecast { window_s, strict } => {
            digest.byte(4);
            digest.number(u64::from(*window_s));
            digest.byte(u8::from(*strict));
        }
        Form::Quota(rule) => {
            digest.byte(2);
            period(digest, rule);
        }
        Form::Concurrency => digest.byte(3),
    }
}

fn period(digest: &mut Digest, rule: &PeriodRule) {
    digest.byte(match rule.kind {
        PeriodKind::Minute => 1,
        PeriodKind::Hour => 2,
        PeriodKind::Day => 3,
        PeriodKind::Week => 4,
        PeriodKind::Month => 5,
        PeriodKind::Lifetime => 6,
    });
    digest.text(&rule.zone);
    match rule.anchor {
        None => digest.byte(0),
        Some(Anchor::Weekday(day)) => {
            digest.byte(1);
            digest.byte(day);
        }
        Some(Anchor::DayOfMonth(day)) => {
            digest.byte(2);
            digest.byte(day);
        }
    }
}

fn measure_code(measure: Measure) -> u8 {
    match measure {
        Measure::Requests => 1,
        Measure::Tokens => 2,
        Measure::InputTokens => 3,
        Measure::OutputTokens => 4,
        Measure::Cost => 5,
        Measure::Concurrency => 6,
    }
}

/// The word for a measure.
pub fn measure_word(measure: Measure) -> &'static str {
    match measure {
        Measure::Requests => "requests",
        Measure::Tokens => "tokens",
        Measure::InputTokens => "input_tokens",
        Measure::OutputTokens => "output_tokens",
        Measure::Cost => "cost",
        Measure::Concurrency => "concurrency",
    }
}
