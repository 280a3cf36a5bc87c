//! `GET /admin/v1/limits`: every limit in force, what it is and where it is written.
//!
//! One bound to a tenant sees that tenant's, those of its plan among them, and no pool's.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollbook_policy::{Catalog, Hold, Limit, OnExpiry, Scope, Strictness, Subject, WhenAway, measure_word};
use tollbook_store::{ObjectKind, ObjectName, ObjectsQuery, nano_text};

use super::answer::away;
use super::query::PAGE_MAX;
use super::query::Query;
use super::routes::Action;
use super::{Admin, Asked, Refusal, bad};
use crate::text::{escaped, unescaped};
use crate::{accounts, config};

/// Tenants of the store that one page reads at most: one without limits costs as much as one with many.
const TENANTS_READ: usize = 200;

pub(super) async fn answer(admin: &Admin, asked: &Asked<'_>) -> Result<Value, Refusal> {
    let query = Query::parse(Action::Limits, asked.query)?;
    let most = query.limit()?;
    let after = match query.text("after") {
        None => Place::default(),
        Some(text) => Place::parse(text).ok_or_else(|| bad("`after` is no `next` of a page before"))?,
    };
    let mut page = Page { most, after, rows: Vec::new(), next: None, stored: stored_pools(admin) };
    match (query.text("tenant"), asked.grant.tenant.as_deref()) {
        // What others have is not told, neither that there is nothing.
        (Some(wanted), Some(own)) if wanted != own => {}
        (Some(one), _) | (None, Some(one)) => {
            let snapshot = admin.snapshot_of(one).await?;
            page.take(&Place::of(one, ""), &snapshot.catalog, |limit| tenant(&limit.scope) == Some(one));
        }
        (None, None) => all(admin, &mut page).await?,
    }
    let data: Vec<Value> = page.rows;
    Ok(json!({"object": "list", "data": data, "next": page.next.map(|next| next.text())}))
}

/// What all tenants share, with those of the file; then tenant by tenant, as the store has them.
async fn all(admin: &Admin, page: &mut Page) -> Result<(), Refusal> {
    page.take(&Place::default(), &admin.admission.snapshot().catalog, |_| true);
    let Some(counter) = &admin.counter else { return Ok(()) };
    let (mut read, mut from) = (0, page.after.tenant.clone());
    // The one in which the page before ended may have more.
    let mut tenants = if from.is_empty() { Vec::new() } else { vec![from.clone()] };
    while page.next.is_none() {
        for tenant_id in std::mem::take(&mut tenants) {
            if read == TENANTS_READ && page.next.is_none() {
                page.next = Some(Place::of(&tenant_id, ""));
            }
            if page.next.is_some() {
                return Ok(());
            }
            read += 1;
            let snapshot = admin.snapshot_of(&tenant_id).await?;
            let of_it = |limit: &Limit| tenant(&limit.scope) == Some(tenant_id.as_str());
            page.take(&Place::of(&tenant_id, ""), &snapshot.catalog, of_it);
        }
        let after = (!from.is_empty()).then(|| ObjectName::tenant(&from));
        let query = ObjectsQuery { after, ..ObjectsQuery::of(ObjectKind::Tenant, PAGE_MAX) };
        let (_, found) = counter.page(&query).await.map_err(|error| away(&error.to_string()))?;
        tenants = found.into_keys().map(|name| name.tenant).collect();
        let Some(last) = tenants.last() else { return Ok(()) };
        last.clone_into(&mut from);
    }
    Ok(())
}

/// Where a list is: a tenant of the store, or what all share, and the name of a limit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Place {
    tenant: String,
    limit: String,
}

impl Place {
    fn of(tenant: &str, limit: &str) -> Self {
        Self { tenant: tenant.to_owned(), limit: limit.to_owned() }
    }

    fn parse(text: &str) -> Option<Self> {
        let (tenant, limit) = text.split_once('/')?;
        Some(Self { tenant: unescaped(tenant)?, limit: unescaped(limit)? })
    }

    /// Ids have any letters.
    fn text(&self) -> String {
        format!("{}/{}", escaped(&self.tenant), escaped(&self.limit))
    }
}

struct Page {
    most: usize,
    /// Rows come after it.
    after: Place,
    rows: Vec<Value>,
    /// The last row, where there are more.
    next: Option<Place>,
    stored: BTreeSet<String>,
}

impl Page {
    /// Takes the limits of a place that are meant, by their names, until the page is full.
    fn take(&mut self, place: &Place, catalog: &Catalog, is_meant: impl Fn(&Limit) -> bool) {
        let rules = catalog.rules().map(|(_, rule)| rule).filter(|rule| !rule.is_left_behind());
        let mut limits: Vec<&Limit> = rules.map(|rule| &rule.limit).filter(|limit| is_meant(limit)).collect();
        // Names are unique.
        limits.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut last = None;
        for limit in limits {
            let at = Place::of(&place.tenant, &limit.name);
            if at <= self.after {
                continue;
            }
            if self.rows.len() == self.most {
                // The place of the last row, or where nothing of this one was taken, just before it.
                self.next = Some(last.unwrap_or_else(|| place.clone()));
                return;
            }
            self.rows.push(row(limit, &self.stored));
            last = Some(at);
        }
    }
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
    let models = view.common.iter().filter(|(name, _)| name.kind == ObjectKind::Model);
    models.filter_map(|(_, kept)| config::pool_of(&kept.form)).collect()
}

fn row(limit: &Limit, stored: &BTreeSet<String>) -> Value {
    let measure = measure_word(limit.measure);
    let cost = i64::try_from(limit.ceiling).unwrap_or(i64::MAX);
    let mut row = json!({
        "limit": limit.name, "subject": limit.scope.to_string(), "tenant": tenant(&limit.scope),
        "measure": measure, "shape": limit.form.with_booking(), "model": limit.model,
        "ceiling": limit.ceiling, "decimal": (measure == "cost").then(|| nano_text(cost)),
        "booking": accounts::booking(&limit.form),
        "strictness": match limit.strictness { Strictness::Hard => "hard", Strictness::Soft => "soft" },
        "hold": match limit.hold { Hold::Expected => "expected", Hold::Worst => "worst" },
        "on_expiry": match limit.on_expiry { OnExpiry::Release => "release", OnExpiry::Charge => "charge" },
        "when_away": match limit.when_away {
            WhenAway::Local => "local",
            WhenAway::Closed => "closed",
            WhenAway::Open => "open",
        },
        "shadow": limit.shadow, "from": from(limit, stored),
    });
    accounts::tell_raise(&mut row, limit.raise);
    row
}

/// What wrote it, where, and whether that is the file or the store.
fn from(limit: &Limit, stored: &BTreeSet<String>) -> Value {
    let (at, is_stored) = config::origin(limit.origin.as_deref().unwrap_or_default());
    let of_plan = ["plans/", "plans["].iter().any(|head| at.starts_with(head));
    let kind = match &limit.scope {
        _ if of_plan => "plan",
        Scope::EachUser { .. } | Scope::One(Subject::Tenant { .. }) => "tenant",
        Scope::One(Subject::User { .. }) => "user",
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
