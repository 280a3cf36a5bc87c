//! What admission tells operators: counters and log lines, never a prompt, a key or an answer.

use tollbook_engine::{EngineError, ErrorKind, Receipt};
use tollbook_ledger::{DenyKind, Measure, Met, Settled};
use tollbook_policy::Binding;
use tollbook_store::{Ending, Figures, Overrun, Side};
use tollbook_telemetry::{InFlight, Metrics, ModelLabel, labels};
use tollbook_wire::{Dialect, Surface};

use crate::admit::{Admission, Way};
use crate::charge::Charge;
use crate::counting::{Counted, Fallback};
use crate::outcome::Outcome;
use crate::refused::Refused;
use crate::snapshot::Snapshot;
use crate::ticket::Open;

/// A settle or release was acknowledged.
pub(crate) fn settled(metrics: &Metrics, settled: &Settled, is_settle: bool) {
    match settled.before {
        Met::Late => metrics.settle_late.inc(()),
        Met::Unknown if is_settle => metrics.settle_unknown.inc(()),
        // An unknown release follows a reserve without an answer: it was never applied.
        Met::Held | Met::Ended(_) | Met::Unknown => {}
    }
}

/// A verb got no answer, or an error for one.
pub(crate) fn failed(metrics: &Metrics, verb: labels::Verb, error: &EngineError) {
    let trouble = match &error.kind {
        ErrorKind::Refused(_) | ErrorKind::EntryTooLong | ErrorKind::NoSuchShard => {
            labels::EngineTrouble::Refused
        }
        ErrorKind::Unsupported => labels::EngineTrouble::Unsupported,
        ErrorKind::Away(_) => labels::EngineTrouble::Away,
        ErrorKind::Deadline => labels::EngineTrouble::Deadline,
        ErrorKind::Lost(_) => labels::EngineTrouble::Lost,
        ErrorKind::Damaged(_) => labels::EngineTrouble::Damaged,
    };
    metrics.engine_failures.inc((verb, trouble));
}

/// The input of a call was counted.
pub(crate) fn counted(metrics: &Metrics, counted: Counted) {
    let label = match counted {
        Counted::Learned => labels::Counted::Learned,
        Counted::Exact => labels::Counted::Exact,
        Counted::Fallback(Fallback::Budget) => labels::Counted::Budget,
        Counted::Fallback(Fallback::Loading) => labels::Counted::Loading,
        Counted::Fallback(Fallback::Failed) => labels::Counted::Failed,
    };
    metrics.admission_counted.inc((label,));
}

/// Gives the names of a configuration labels of their own; before the first call that uses it.
pub(crate) fn name(metrics: &Metrics, snapshot: &Snapshot) {
    metrics.models_set(snapshot.catalog.models().iter().map(|model| model.id.as_str()));
    metrics.pools_set(snapshot.catalog.pools().map(|pool| pool.id.as_str()));
}

/// A call used more than was decided for it; counted once per call, as the tenant's entry tells it.
pub(crate) fn overrun(metrics: &Metrics, overrun: Overrun) {
    if overrun.llm_tokens > 0 {
        metrics.settle_overruns.inc((labels::Measure::LlmTokens,));
        metrics.settle_overrun_llm_tokens.add((), overrun.llm_tokens);
    }
    if overrun.cost_nano > 0 {
        metrics.settle_overruns.inc((labels::Measure::Cost,));
        metrics.settle_overrun_nano.add((), overrun.cost_nano);
    }
}

impl Admission {
    /// Brings gauges up to date; before a scrape.
    pub fn observe(&self) {
        let depth = u64::try_from(self.settler.depth()).unwrap_or(u64::MAX);
        self.metrics.settle_queue_depth.set((), depth);
        self.metrics.config_generation.set((), self.snapshot().generation);
    }

    /// How often each limit has refused since the start, by its name.
    pub fn denials(&self) -> std::collections::BTreeMap<(String, String), u64> {
        self.denials.counts()
    }

    /// Counts a call until the returned value is dropped.
    pub(crate) fn enter(&self, surface: Surface, way: Way<'_>) -> InFlight {
        let label = if way == Way::Surface { surface_label(surface) } else { labels::Surface::Other };
        self.metrics.calls_in_flight.enter((label,))
    }

    pub(crate) fn note_admitted(&self, side: Side, binding: &Binding, receipt: &Receipt) {
        self.metrics.admission_admitted.inc((side_label(side),));
        for (account, leg) in binding.accounts.iter().zip(&receipt.receipt.legs) {
            if leg.shadow_denied {
                self.metrics.admission_shadow_denied.inc((measure_label(account.measure),));
                tracing::debug!(id = %receipt.receipt.id, "a shadow limit would have denied the call");
            }
        }
    }

    /// A limit has refused for good: what is asked again is not told of.
    pub(crate) fn note_refused(&self, refused: &Refused) {
        let Refused::Limit(refusal) = refused else { return };
        let kind = match refusal.kind {
            DenyKind::TooLarge => labels::Denial::TooLarge,
            DenyKind::Exhausted => labels::Denial::Exhausted,
            DenyKind::Spent(_) => labels::Denial::Spent,
            DenyKind::Busy(_) => labels::Denial::Busy,
        };
        let side = if refusal.pool { Side::Pool } else { Side::Tenant };
        self.metrics.admission_denied.inc((side_label(side), measure_label(refusal.measure), kind));
        self.denials.note(&refusal.subject, &refusal.limit);
    }

    /// A call has ended.
    pub(crate) fn report(&self, open: &Open, outcome: &Outcome, charge: &Charge, disbelieved: bool) {
        let metrics = &self.metrics;
        if disbelieved {
            metrics.usage_anomalies.inc((labels::Anomaly::AboveContext,));
        }
        let odd = &outcome.anomalies;
        for (count, label) in [
            (odd.negative, labels::Anomaly::Negative),
            (odd.absurd, labels::Anomaly::TooLarge),
            (odd.fraction, labels::Anomaly::Fraction),
            (odd.malformed, labels::Anomaly::NotANumber),
            (odd.inconsistent, labels::Anomaly::Inconsistent),
            (odd.unparsable, labels::Anomaly::Other),
            (odd.oversized, labels::Anomaly::Other),
        ] {
            if count > 0 {
                metrics.usage_anomalies.add((label,), u64::from(count));
            }
        }
        let dialect = match open.surface.dialect() {
            Dialect::OpenAi => labels::Dialect::OpenAi,
            Dialect::Anthropic => labels::Dialect::Anthropic,
        };
        let surface = if open.passed { labels::Surface::Other } else { surface_label(open.surface) };
        metrics.calls_ended.inc((dialect, surface, ending_label(outcome.ending)));
        let model = open.bound.model_label;
        metrics.calls_duration.observe((model,), open.started.elapsed());
        if let Some(first) = outcome.first_output {
            metrics.calls_ttft.observe((model,), first.duration_since(open.started));
        }
        charged(metrics, model, open, charge);
        let source = charge.figures();
        metrics.settle_figures.inc((labels::Side::Tenant, figures_label(source)));
        if open.pool.is_some() {
            metrics.settle_figures.inc((labels::Side::Pool, figures_label(source)));
        }
        if open.passed && source == Figures::Unknown && outcome.ending == Ending::Complete {
            metrics.usage_anomalies.inc((labels::Anomaly::Missing,));
        }
        if source != Figures::Reported && source != Figures::Nothing {
            tracing::info!(
                request_id = %open.request_id,
                ending = ?outcome.ending,
                figures = ?source,
                "a call was charged without the provider's figures"
            );
        }
    }
}

/// llm_tokens and cost charged to tenants.
fn charged(metrics: &Metrics, model: ModelLabel, open: &Open, charge: &Charge) {
    let Charge::Settle(settle) = charge else { return };
    if open.bound.price.is_none() {
        metrics.usage_unpriced.inc((model,));
    }
    metrics.usage_cost_nano.add((model,), settle.cost(open));
    let Some(usage) = &settle.usage else { return };
    for (part, amount) in [
        (labels::Part::Input, usage.input),
        (labels::Part::Cached, usage.cached),
        (labels::Part::CacheWrite, usage.cache_write),
        (labels::Part::Output, usage.output),
        (labels::Part::Reasoning, usage.reasoning),
    ] {
        metrics.usage_llm_tokens.add((model, part), amount);
    }
}

fn surface_label(surface: Surface) -> labels::Surface {
    match surface {
        Surface::Chat => labels::Surface::Chat,
        Surface::Responses => labels::Surface::Responses,
        Surface::Completions => labels::Surface::Completions,
        Surface::Embeddings => labels::Surface::Embeddings,
        Surface::Messages => labels::Surface::Messages,
    }
}

pub(crate) fn side_label(side: Side) -> labels::Side {
    match side {
        Side::Tenant | Side::Unreadable => labels::Side::Tenant,
        Side::Pool => labels::Side::Pool,
    }
}

pub(crate) fn measure_label(measure: Measure) -> labels::Measure {
    match measure {
        Measure::Requests => labels::Measure::Requests,
        Measure::Tokens => labels::Measure::LlmTokens,
        Measure::InputTokens => labels::Measure::InputLlmTokens,
        Measure::OutputTokens => labels::Measure::OutputLlmTokens,
        Measure::Cost => labels::Measure::Cost,
        Measure::Concurrency => labels::Measure::Concurrency,
    }
}

fn figures_label(figures: Figures) -> labels::Figures {
    match figures {
        Figures::Reported => labels::Figures::Reported,
        Figures::Metered => labels::Figures::Metered,
        Figures::Partial => labels::Figures::Partial,
        Figures::Unknown => labels::Figures::Unknown,
        Figures::Expired => labels::Figures::Expired,
        Figures::Adjusted => labels::Figures::Adjusted,
        Figures::Nothing => labels::Figures::Nothing,
    }
}

/// The journal's word for an ending, as a label.
fn ending_label(ending: Ending) -> labels::Ending {
    match ending {
        Ending::Complete => labels::Ending::Complete,
        Ending::NeverSent => labels::Ending::NeverSent,
        Ending::UpstreamError => labels::Ending::UpstreamError,
        Ending::Reset => labels::Ending::Reset,
        Ending::Truncated => labels::Ending::Truncated,
        Ending::ClientGone => labels::Ending::ClientGone,
        Ending::Timeout => labels::Ending::Timeout,
        Ending::StoppedAtLimit => labels::Ending::StoppedAtLimit,
        Ending::Shutdown => labels::Ending::Shutdown,
        Ending::Expired => labels::Ending::Expired,
        Ending::Adjusted => labels::Ending::Adjusted,
    }
}
