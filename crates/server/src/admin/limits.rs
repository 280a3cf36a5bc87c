//! `GET /admin/v1/limits`: every limit in force, what it is and where it is written.
//!
//! One bound to a tenant sees that tenant's, those of its plan among them, and no pool's.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollbook_policy::{Form, Hold, Limit, OnExpiry, Scope, Strictness, Subject, WhenAway, measure_word};
use tollbook_store::{ObjectKind, nano_text};

use super::objects::{PAGE, PAGE_MAX};
use super::query::Query;
use super::routes::Action;
use super::{Admin, Asked, Refusal};
use crate::config;

pub(super) fn answer(admin: &Admin, asked: &Asked<'_>) -> Result<Value, Refusal> {
    let query = Query::parse(Action::Limits, asked.query)?;
    let page = query.number("limit")?.map_or(PAGE, |limit| limit.clamp(1, PAGE_MAX));
    let (after, wanted) = (query.text("after").unwrap_or_default(), query.text("tenant"));
    let snapshot = admin.admission.snapshot();
    let is_meant = |limit: &Limit| {
        let of = tenant(&limit.scope);
        let mine = asked.grant.tenant.as_deref().is_none_or(|tenant| of == Some(tenant));
        mine && wanted.is_none_or(|tenant| of == Some(tenant)) && *limit.name > *after
    };
    let rules = snapshot.catalog.rules().map(|(_, rule)| rule).filter(|rule| !rule.is_left_behind());
    let mut limits: Vec<&Limit> = rules.map(|rule| &rule.limit).filter(|limit| is_meant(limit)).collect();
    // Names are unique.
    limits.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let stored = stored_pools(admin);
    let more = limits.len() > page;
    limits.truncate(page);
    let next = limits.last().filter(|_| more).map(|limit| &limit.name);
    let data: Vec<Value> = limits.iter().map(|limit| row(limit, &stored)).collect();
    Ok(json!({"object": "list", "data": data, "next": next}))
}

fn tenant(scope: &Scope) -> Option<&str> {
    match scope {
        Scope::EachUser { tenant } => Some(tenant),
        Scope::One(subject) => subject.tenant(),
    }
}

/// Pools of models that the store defines; those are put among the file's before limits are read.
fn stored_pools(admin: &Admin) -> BTreeSet<String> {
    let Some(counter) = &admin.counter else { return BTreeSet::new() };
    let view = counter.view();
    let models = view.objects.iter().filter(|(name, _)| name.kind == ObjectKind::Model);
    models.filter_map(|(_, kept)| config::pool_of(&kept.form)).collect()
}

fn row(limit: &Limit, stored: &BTreeSet<String>) -> Value {
    let measure = measure_word(limit.measure);
    let cost = i64::try_from(limit.ceiling).unwrap_or(i64::MAX);
    json!({
        "limit": limit.name, "subject": limit.scope.to_string(), "tenant": tenant(&limit.scope),
        "measure": measure, "shape": limit.form.with_booking(), "model": limit.model,
        "ceiling": limit.ceiling, "decimal": (measure == "cost").then(|| nano_text(cost)),
        "booking": match limit.form {
            Form::Rate { .. } => Some("held"),
            Form::Forecast { .. } => Some("forecast"),
            Form::Quota(_) | Form::Concurrency => None,
        },
        "strictness": match limit.strictness { Strictness::Hard => "hard", Strictness::Soft => "soft" },
        "hold": match limit.hold { Hold::Expected => "expected", Hold::Worst => "worst" },
        "on_expiry": match limit.on_expiry { OnExpiry::Release => "release", OnExpiry::Charge => "charge" },
        "when_away": match limit.when_away {
            WhenAway::Local => "local",
            WhenAway::Closed => "closed",
            WhenAway::Open => "open",
        },
        "shadow": limit.shadow, "from": from(limit, stored),
    })
}

/// What wrote it, where, and whether that is the file or the store.
fn from(limit: &Limit, stored: &BTreeSet<String>) -> Value {
    let (at, is_stored) = config::origin(limit.origin.as_deref().unwrap_or_default());
    let of_plan = ["plans/", "plans["].iter().any(|head| at.starts_with(head));
    let kind = match &limit.scope {
        _ if of_plan => "plan",
        Scope::EachUser { .. } | Scope::One(Subject::Tenant { .. } | Subject::User { .. }) => "tenant",
        Scope::One(Subject::Project { .. }) => "project",
        Scope::One(Subject::Key { .. }) => "key",
        Scope::One(Subject::Service { .. }) => "service",
        Scope::One(Subject::Pool { .. }) => "model",
    };
    let is_stored = match &limit.scope {
        Scope::One(Subject::Pool { pool }) => stored.contains(pool),
        _ => is_stored,
    };
    json!({"kind": kind, "source": if is_stored { "store" } else { "file" }, "at": at})
}
