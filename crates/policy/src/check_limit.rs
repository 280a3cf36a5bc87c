//! Checks one limit and decides what its operator left out.
//!
//! Contradictory settings and limits that can never apply are errors, not silence.

use crate::account::measure_word;
use crate::calendar::{PeriodRule, RuleProblem};
use crate::catalog::Catalog;
use crate::limit::{
    Booking, CONSTANT_MAX, COST_CEILING_MAX, ChargeAt, EstimatorChoice, FACTOR_MAX, FACTOR_MIN, FACTOR_ONE,
    Form, LIMIT_NAME_MAX, Limit, LimitDraft, Opening, Raise, RaiseDraft, ShapeDraft, Strictness,
    WEIGHTED_CEILING_MAX, WINDOW_MAX_S, WINDOW_MIN_S, WhenAway, buckets, default_bucket_s,
};
use crate::meter::{MeterPair, counts_llm_tokens};
use crate::problem::{List, ProblemKind};
use crate::subject::{Scope, Subject, USER_ID_MAX};
use crate::validate::Check;
use std::collections::BTreeMap;
use tollbook_ledger::units::{AMOUNT_MAX, BUCKETS_MAX, FORECAST_CEILING_MAX, FORECAST_WINDOW_MAX};
use tollbook_ledger::{Hold, Measure, OnExpiry, Weights};

/// The limit, if everything about it is right; its ceiling is 0 where none is given.
pub(crate) fn limit(check: &mut Check, catalog: &Catalog, index: usize, draft: &LimitDraft) -> Option<Limit> {
    let mut one = One { check, catalog, index, draft, ok: true };
    one.name();
    one.scope();
    one.model();
    one.combination();
    let form = one.form();
    let ceiling = one.ceiling();
    let raise = one.raise();
    one.settings();
    let hold_factor = one.hold_factor();
    if !one.ok {
        return None;
    }
    let strictness = strictness(draft);
    let hard = strictness == Strictness::Hard;
    Some(Limit {
        name: draft.name.clone().unwrap_or_else(|| made_up_name(draft)),
        scope: draft.scope.clone(),
        model: draft.model.clone(),
        measure: draft.measure,
        form: form?,
        ceiling: ceiling?,
        raise: raise?,
        strictness,
        hold: draft.hold.unwrap_or(if hard { Hold::Worst } else { Hold::Expected }),
        on_expiry: draft.on_expiry.unwrap_or(if hard { OnExpiry::Charge } else { OnExpiry::Release }),
        when_away: draft.when_away.unwrap_or(if hard { WhenAway::Closed } else { WhenAway::Local }),
        meter: meter(catalog, draft),
        hold_factor_thousandths: hold_factor?,
        estimator: draft.estimator,
        shadow: draft.shadow,
        count_denied: draft.count_denied,
        refund_failed: draft.refund_failed,
        opening: draft.opening.unwrap_or(Opening::FromJournal),
        origin: draft.origin.clone(),
    })
}

/// Names are unique among those of one catalog: each has its own history. A made-up name that is not says that one is
/// needed.
pub(crate) fn names(check: &mut Check, drafts: &[LimitDraft], kept: &[(usize, Limit)]) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, limit) in kept {
        let Some(&other) = seen.get(limit.name.as_str()) else {
            seen.insert(&limit.name, *index);
            continue;
        };
        let given = |at: usize| drafts.get(at).is_some_and(|draft| draft.name.is_some());
        let kind = if given(*index) || given(other) {
            ProblemKind::Repeated(limit.name.clone())
        } else {
            ProblemKind::NeedsName
        };
        check.problem(List::Limits, *index, "name", kind);
    }
}

/// Without window and ceiling, so that its history goes on when they change.
fn made_up_name(draft: &LimitDraft) -> String {
    let measure = measure_word(draft.measure);
    let mut name = match &draft.shape {
        ShapeDraft::Rate { .. } => format!("{} {measure} rate", draft.scope),
        ShapeDraft::Quota { period, .. } => format!("{} {measure} quota {}", draft.scope, period.word()),
        ShapeDraft::Concurrency => format!("{} {measure}", draft.scope),
    };
    if let Some(model) = &draft.model {
        name.push_str(" of ");
        name.push_str(model);
    }
    if draft.shadow {
        name.push_str(" shadow");
    }
    name
}

fn strictness(draft: &LimitDraft) -> Strictness {
    draft.strictness.unwrap_or(match draft.shape {
        ShapeDraft::Quota { .. } => Strictness::Hard,
        ShapeDraft::Rate { .. } | ShapeDraft::Concurrency => Strictness::Soft,
    })
}

/// What the limit says, else the pool's, else plain llm_tokens.
fn meter(catalog: &Catalog, draft: &LimitDraft) -> MeterPair {
    let of_pool = match &draft.scope {
        Scope::One(Subject::Pool { pool }) if counts_llm_tokens(draft.measure) => {
            catalog.pool(pool).map(|pool| pool.meter)
        }
        _ => None,
    };
    draft.meter.or(of_pool).unwrap_or(MeterPair::PLAIN)
}

/// The booking that the draft names, itself or by how the provider charges.
fn asked_booking(draft: &LimitDraft) -> Option<Booking> {
    draft.booking.or(draft.charge.map(|charge| match charge {
        ChargeAt::Start => Booking::Held,
        ChargeAt::Stream => Booking::Forecast,
    }))
}

/// A tenant's llm_tokens are forecast where nothing stands against it; a pool's are held, for most providers charge at
/// the start.
fn booking(draft: &LimitDraft) -> Booking {
    let rate = matches!(draft.shape, ShapeDraft::Rate { .. });
    let forecasts = rate && counts_llm_tokens(draft.measure) && !draft.scope.is_pool();
    let default = if forecasts && no_forecast(draft).is_none() { Booking::Forecast } else { Booking::Held };
    asked_booking(draft).unwrap_or(default)
}

/// What stands against a forecast.
fn no_forecast(draft: &LimitDraft) -> Option<&'static str> {
    let ShapeDraft::Rate { window_s, bucket_s, weights } = &draft.shape else { return Some("it is no rate") };
    let hard = strictness(draft) == Strictness::Hard;
    let checks = [
        (*window_s > i64::from(FORECAST_WINDOW_MAX), "its window is longer than 60 s"),
        (bucket_s.is_some_and(|bucket| bucket != 1), "its buckets are not of one second"),
        (weights.is_some_and(|weights| weights != Weights::Whole), "its buckets have weights"),
        (hard, "it is hard, and a hard limit holds the worst case"),
        (draft.hold == Some(Hold::Worst), "it holds the worst case"),
        (
            highest(draft).is_some_and(|ceiling| ceiling > i128::from(FORECAST_CEILING_MAX)),
            "its ceiling is above 9000000000",
        ),
    ];
    checks.into_iter().find(|(stands, _)| *stands).map(|(_, why)| why)
}

/// The ceiling with what is on top of it for a while.
fn highest(draft: &LimitDraft) -> Option<i128> {
    let by = draft.raise.map_or(0, |raise| raise.by);
    draft.ceiling.map(|ceiling| ceiling.saturating_add(by))
}

fn shape_word(shape: &ShapeDraft) -> &'static str {
    match shape {
        ShapeDraft::Rate { .. } => "rate",
        ShapeDraft::Quota { .. } => "quota",
        ShapeDraft::Concurrency => "concurrency",
    }
}

/// One draft under examination.
struct One<'a> {
    check: &'a mut Check,
    catalog: &'a Catalog,
    index: usize,
    draft: &'a LimitDraft,
    ok: bool,
}

impl One<'_> {
    fn problem(&mut self, field: &'static str, kind: ProblemKind) {
        self.ok = false;
        self.check.problem(List::Limits, self.index, field, kind);
    }

    fn meaningless(&mut self, setting: &'static str, what: &'static str) {
        self.problem(setting, ProblemKind::Meaningless { setting, what });
    }

    fn name(&mut self) {
        if let Some(name) = &self.draft.name {
            self.check.id(List::Limits, self.index, "name", name, LIMIT_NAME_MAX);
        }
    }

    fn scope(&mut self) {
        let catalog = self.catalog;
        let known = |tenant: &str| catalog.tenants.contains_key(tenant);
        let missing = match &self.draft.scope {
            Scope::EachUser { tenant } | Scope::One(Subject::Tenant { tenant }) => {
                (!known(tenant)).then_some(("tenant", tenant))
            }
            Scope::One(Subject::Project { tenant, project }) => {
                let name = (tenant.clone(), project.clone());
                (!catalog.projects.contains_key(&name)).then_some(("project", project))
            }
            Scope::One(Subject::Key { tenant, project, key }) => {
                let found =
                    catalog.keys.iter().any(|k| k.tenant == *tenant && k.project == *project && k.id == *key);
                (!found).then_some(("key", key))
            }
            Scope::One(Subject::Service { tenant, service }) => {
                let name = (tenant.clone(), service.clone());
                (!catalog.services.contains_key(&name)).then_some(("service", service))
            }
            Scope::One(Subject::User { tenant, user }) => {
                self.check.id(List::Limits, self.index, "user", user, USER_ID_MAX);
                (!known(tenant)).then_some(("tenant", tenant))
            }
            Scope::One(Subject::Pool { pool }) => {
                (!catalog.pools.contains_key(pool)).then_some(("pool", pool))
            }
        };
        if let Some((kind, id)) = missing {
            self.problem("scope", ProblemKind::Unknown { kind, id: id.clone() });
        }
    }

    fn model(&mut self) {
        let Some(name) = &self.draft.model else { return };
        self.check.model(self.catalog, List::Limits, self.index, "model", name);
        let Some(model) = self.catalog.model(name) else {
            self.ok = false;
            return;
        };
        self.ok &= model.id == *name;
        match &self.draft.scope {
            Scope::One(Subject::Pool { pool }) if !model.pools.contains(pool) => {
                let why = format!("pool `{pool}` does not serve model `{name}`");
                self.problem("model", ProblemKind::NeverApplies(why));
            }
            Scope::One(Subject::Key { tenant, project, key }) => {
                let found = self
                    .catalog
                    .keys
                    .iter()
                    .find(|k| k.tenant == *tenant && k.project == *project && k.id == *key);
                if found.is_some_and(|found| !self.catalog.may_use(found, name)) {
                    let why = format!("key `{key}` may not use model `{name}`");
                    self.problem("model", ProblemKind::NeverApplies(why));
                }
            }
            _ => {}
        }
    }

    fn combination(&mut self) {
        let concurrency = matches!(self.draft.shape, ShapeDraft::Concurrency);
        if (self.draft.measure == Measure::Concurrency) != concurrency {
            let measure = measure_word(self.draft.measure);
            let shape = shape_word(&self.draft.shape);
            self.problem("shape", ProblemKind::ShapeOfMeasure { measure, shape });
        }
    }

    fn form(&mut self) -> Option<Form> {
        match &self.draft.shape {
            ShapeDraft::Rate { window_s, bucket_s, weights } => self.rate(*window_s, *bucket_s, *weights),
            ShapeDraft::Concurrency => Some(Form::Concurrency),
            ShapeDraft::Quota { period, zone, anchor } => {
                match PeriodRule::new(*period, zone.as_deref(), *anchor) {
                    Ok(rule) => return Some(Form::Quota(rule)),
                    Err(RuleProblem::Anchor) => self.problem("anchor", ProblemKind::Anchor),
                    Err(RuleProblem::MeaninglessZone) => self.meaningless("zone", "this period"),
                    Err(RuleProblem::UnknownZone) => {
                        self.problem("zone", ProblemKind::UnknownZone(zone.clone().unwrap_or_default()));
                    }
                }
                None
            }
        }
    }

    fn rate(&mut self, window_s: i64, bucket_s: Option<i64>, weights: Option<Weights>) -> Option<Form> {
        let window = self.seconds("window", i128::from(window_s), u64::from(WINDOW_MIN_S))?;
        let window_s = u32::try_from(window).ok()?;
        let bucket_s = match bucket_s {
            None => default_bucket_s(window_s),
            Some(given) => {
                let bucket = self.seconds("bucket", i128::from(given), 1)?;
                u32::try_from(bucket).ok()?
            }
        };
        if bucket_s > window_s {
            self.problem("bucket", ProblemKind::BucketWiderThanWindow);
            return None;
        }
        let ring = buckets(window_s, bucket_s);
        if ring > u32::from(BUCKETS_MAX) {
            self.problem("bucket", ProblemKind::TooManyBuckets(ring));
            return None;
        }
        match (booking(self.draft), u8::try_from(window_s)) {
            (Booking::Forecast, Ok(window_s)) => {
                Some(Form::Forecast { window_s, strict: self.draft.strict.unwrap_or(false) })
            }
            _ => Some(Form::Rate { window_s, bucket_s, weights: weights.unwrap_or(Weights::Whole) }),
        }
    }

    fn ceiling(&mut self) -> Option<u64> {
        let max = self.ceiling_max();
        match self.draft.ceiling {
            None => Some(0),
            Some(ceiling) => self.whole("ceiling", ceiling, 0, max),
        }
    }

    /// Outer `None`: a problem was told.
    #[allow(clippy::option_option, reason = "there is none, or it is wrong")]
    fn raise(&mut self) -> Option<Option<Raise>> {
        let Some(RaiseDraft { by, until }) = self.draft.raise else { return Some(None) };
        let Some(ceiling) = self.draft.ceiling else {
            self.meaningless("raise", "a limit without a ceiling");
            return None;
        };
        let room = i128::from(self.ceiling_max()).saturating_sub(ceiling.max(0));
        let by = self.whole("raise", by, 1, u64::try_from(room).unwrap_or(0))?;
        Some(Some(Raise { by, until }))
    }

    fn ceiling_max(&self) -> u64 {
        let weighted = matches!(self.draft.shape, ShapeDraft::Rate { weights: Some(weights), .. } if weights != Weights::Whole);
        if weighted {
            WEIGHTED_CEILING_MAX
        } else if self.draft.measure == Measure::Cost {
            COST_CEILING_MAX
        } else {
            AMOUNT_MAX
        }
    }

    /// A number within bounds; negative is told apart, because it is what tools send for "unset".
    fn whole(&mut self, field: &'static str, number: i128, min: u64, max: u64) -> Option<u64> {
        let kind = match u64::try_from(number) {
            Ok(whole) if (min..=max).contains(&whole) => return Some(whole),
            Err(_) if number < 0 => ProblemKind::Negative,
            Ok(_) | Err(_) => ProblemKind::Range { min, max },
        };
        self.problem(field, kind);
        None
    }

    fn seconds(&mut self, field: &'static str, number: i128, min: u64) -> Option<u64> {
        let max = u64::from(WINDOW_MAX_S);
        let whole = u64::try_from(number).ok().filter(|whole| (min..=max).contains(whole));
        if whole.is_none() {
            let kind = if number < 0 { ProblemKind::Negative } else { ProblemKind::Seconds { min, max } };
            self.problem(field, kind);
        }
        whole
    }

    /// Settings that say nothing where they stand.
    fn settings(&mut self) {
        let draft = self.draft;
        let measure = measure_word(draft.measure);
        let rate = matches!(draft.shape, ShapeDraft::Rate { .. });
        let concurrency = draft.measure == Measure::Concurrency;
        if draft.opening.is_some() && !matches!(draft.shape, ShapeDraft::Quota { .. }) {
            self.meaningless("opening", "a limit that is no quota");
        }
        if draft.count_denied && !rate {
            self.meaningless("count_denied", "a limit that is no rate");
        }
        if draft.refund_failed && (draft.measure != Measure::Requests || draft.scope.is_pool()) {
            self.meaningless("refund_failed", "anything but the requests of a tenant");
        }
        if draft.meter.is_some() && !counts_llm_tokens(draft.measure) {
            self.meaningless("meter", measure);
        }
        if let Some(meter) = &draft.meter {
            self.check.meter(List::Limits, self.index, meter);
        }
        if draft.on_expiry == Some(OnExpiry::Charge) && concurrency {
            self.meaningless("on_expiry", measure);
        }
        self.booking();
        if let Some(estimator) = draft.estimator {
            if matches!(draft.measure, Measure::Requests | Measure::Concurrency | Measure::InputTokens) {
                self.meaningless("estimator", measure);
            }
            if matches!(estimator, EstimatorChoice::Constant(output) if output > CONSTANT_MAX) {
                self.problem("estimator", ProblemKind::Range { min: 0, max: CONSTANT_MAX });
            }
        }
    }

    /// What forbids a forecast, and what has no meaning without one.
    fn booking(&mut self) {
        let draft = self.draft;
        let rate = matches!(draft.shape, ShapeDraft::Rate { .. });
        let llm_tokens = counts_llm_tokens(draft.measure);
        if draft.charge.is_some() && !(rate && llm_tokens && draft.scope.is_pool()) {
            self.meaningless("charge", "anything but a pool's rate on llm_tokens");
        }
        match (draft.charge, draft.booking) {
            (Some(ChargeAt::Start), Some(Booking::Forecast))
            | (Some(ChargeAt::Stream), Some(Booking::Held)) => {
                self.problem("charge", ProblemKind::ChargeAgainstBooking);
            }
            _ => {}
        }
        if draft.booking.is_some() && !(rate && llm_tokens) {
            self.meaningless("booking", "anything but a rate on llm_tokens");
        } else if asked_booking(draft) == Some(Booking::Forecast)
            && let Some(why) = no_forecast(draft)
        {
            let field = if draft.booking.is_some() { "booking" } else { "charge" };
            self.problem(field, ProblemKind::CannotForecast(why));
        }
        if draft.strict.is_some() && booking(draft) == Booking::Held {
            self.meaningless("strict", "a limit that is not booked by forecast");
        }
    }

    fn hold_factor(&mut self) -> Option<u32> {
        let Some(given) = self.draft.hold_factor_thousandths else { return Some(FACTOR_ONE) };
        if matches!(self.draft.measure, Measure::Requests | Measure::Concurrency) {
            self.meaningless("hold_factor", measure_word(self.draft.measure));
            return None;
        }
        let factor =
            self.whole("hold_factor", i128::from(given), u64::from(FACTOR_MIN), u64::from(FACTOR_MAX))?;
        let factor = u32::try_from(factor).ok()?;
        if factor < FACTOR_ONE && strictness(self.draft) == Strictness::Hard {
            self.problem("hold_factor", ProblemKind::HardFactorBelowOne);
            return None;
        }
        Some(factor)
    }
}
