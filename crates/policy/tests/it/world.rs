//! A small configuration the tests start from.

use tollbook_policy::{
    Anchor, Booking, Catalog, Draft, Key, LimitDraft, Measure, MeterPair, Model, PeriodKind, Pool, Problem,
    Project, Scope, Secret, Service, ShapeDraft, Subject, Tenant,
};

pub(crate) fn draft() -> Draft {
    Draft {
        tenants: ["acme", "globex"].map(|id| Tenant { id: id.to_owned(), disabled: false }).to_vec(),
        projects: vec![project("acme", "web"), project("acme", "batch"), project("globex", "web")],
        keys: vec![key("acme", "web", "k1", 1), key("acme", "web", "k2", 2), key("globex", "web", "k1", 3)],
        services: vec![Service { tenant: "acme".to_owned(), id: "search".to_owned(), disabled: false }],
        users: Vec::new(),
        pools: ["east", "west"].map(|id| Pool { id: id.to_owned(), meter: MeterPair::PLAIN }).to_vec(),
        models: vec![model("base", &["base-fast"], &["east", "west"]), model("large", &[], &["east"])],
        limits: Vec::new(),
    }
}

pub(crate) fn with(limits: Vec<LimitDraft>) -> Catalog {
    Catalog::new(Draft { limits, ..draft() }).unwrap()
}

pub(crate) fn problems(limits: Vec<LimitDraft>) -> Vec<String> {
    told(&Catalog::new(Draft { limits, ..draft() }).unwrap_err())
}

pub(crate) fn told(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

pub(crate) fn project(tenant: &str, id: &str) -> Project {
    Project { tenant: tenant.to_owned(), id: id.to_owned(), disabled: false }
}

pub(crate) fn key(tenant: &str, project: &str, id: &str, secret: u8) -> Key {
    Key {
        tenant: tenant.to_owned(),
        project: project.to_owned(),
        id: id.to_owned(),
        secrets: vec![Secret { digest: [secret; 32], expires_at: None }],
        disabled: false,
        expires_at: None,
        models: None,
        addresses: None,
        service: None,
    }
}

pub(crate) fn model(id: &str, aliases: &[&str], pools: &[&str]) -> Model {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Model { id: id.to_owned(), aliases: owned(aliases), pools: owned(pools) }
}

pub(crate) fn tenant(id: &str) -> Scope {
    Scope::One(Subject::Tenant { tenant: id.to_owned() })
}

pub(crate) fn of_project(tenant: &str, project: &str) -> Scope {
    Scope::One(Subject::Project { tenant: tenant.to_owned(), project: project.to_owned() })
}

pub(crate) fn of_key(tenant: &str, project: &str, key: &str) -> Scope {
    Scope::One(Subject::Key { tenant: tenant.to_owned(), project: project.to_owned(), key: key.to_owned() })
}

pub(crate) fn of_user(tenant: &str, user: &str) -> Scope {
    Scope::One(Subject::User { tenant: tenant.to_owned(), user: user.to_owned() })
}

pub(crate) fn pool(id: &str) -> Scope {
    Scope::One(Subject::Pool { pool: id.to_owned() })
}

pub(crate) fn rate(window_s: i64) -> ShapeDraft {
    ShapeDraft::Rate { window_s, bucket_s: None, weights: None }
}

pub(crate) fn quota(period: PeriodKind, zone: Option<&str>, anchor: Option<Anchor>) -> ShapeDraft {
    ShapeDraft::Quota { period, zone: zone.map(str::to_owned), anchor }
}

pub(crate) fn rpm(scope: Scope, ceiling: i128) -> LimitDraft {
    LimitDraft::new(scope, Measure::Requests, rate(60), ceiling)
}

/// A rate on llm_tokens that is booked as held.
pub(crate) fn held(limit: LimitDraft) -> LimitDraft {
    LimitDraft { booking: Some(Booking::Held), ..limit }
}

pub(crate) fn tpm(scope: Scope, ceiling: i128) -> LimitDraft {
    LimitDraft::new(scope, Measure::Tokens, rate(60), ceiling)
}

pub(crate) fn daily(scope: Scope, measure: Measure, ceiling: i128) -> LimitDraft {
    LimitDraft::new(scope, measure, quota(PeriodKind::Day, None, None), ceiling)
}

pub(crate) fn named(name: &str, limit: LimitDraft) -> LimitDraft {
    LimitDraft { name: Some(name.to_owned()), ..limit }
}
