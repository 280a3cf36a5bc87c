//! What the book keeps of one tenant, named as the configuration names it: accounts, live reservations, what estimators
//! have learned. For `tollbook inspect` and the operator's listener.
//!
//! A shard keeps several tenants. What the configuration gives to others is left out; what it does not name, as the
//! accounts of end users and of limits that are gone, is told as unnamed, and may be another tenant's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tollbook_admission::shard;
use tollbook_engine::{Balance, Engine, Learned, LiveHold, LiveLeg, Survey};
use tollbook_ledger::{AccountId, EstimatorId, EstimatorKind, Micros, SECOND, Shape};
use tollbook_policy::{Catalog, Strictness, Subject, measure_word};
use tollbook_pricing::EstimatorIds;

use crate::accounts::{self, Account};

/// Most accounts, reservations and estimators of a shard that are looked at.
pub const SHOWN_MAX: usize = 10_000;
const DEADLINE: Duration = Duration::from_secs(20);
/// Whose an estimator is that is nobody's alone.
const ALL_KEYS: &str = "all keys";
/// Estimators keep a state for each kind, under ids that differ in their last bits.
const KINDS: [EstimatorKind; 4] =
    [EstimatorKind::Ema, EstimatorKind::RecentMean, EstimatorKind::P95, EstimatorKind::Forecast];

/// Asks the engine, and names what it says. What has no name, and what is learned of all keys, may be other tenants': it
/// is for those who may see all of them; `others` name what is another's, as far as is known.
///
/// # Errors
/// No such tenant, or an engine that does not answer.
pub async fn tenant(
    engine: &dyn Engine,
    (catalog, others): (&Catalog, impl Iterator<Item = &Catalog>),
    tenant: &str,
    sees_all: bool,
) -> anyhow::Result<Value> {
    if !catalog.keys().iter().any(|key| key.tenant == tenant) {
        bail!("no key of the configuration is of the tenant `{tenant}`");
    }
    let shard = shard(tenant);
    let asked = engine.survey(shard, SHOWN_MAX);
    let reply =
        tokio::time::timeout(DEADLINE, asked).await.context("the engine did not answer in time")??;
    let Survey { accounts, mut holds, learned, more } = reply.value;
    let mut names = Names::of(catalog, others, tenant, reply.now / SECOND);
    holds.retain(|hold| hold.legs.iter().all(|leg| !names.others.contains(&leg.account)));
    if !sees_all {
        holds.retain(|hold| hold.legs.iter().any(|leg| names.accounts.contains_key(&leg.account)));
        names.estimators.retain(|_, of| !of.starts_with(ALL_KEYS));
    }
    let rows = |named: bool| -> Vec<Value> {
        let accounts = accounts.iter().filter(|row| is_named(&names, &row.account) == Some(named));
        accounts.map(|row| account(catalog, &names, row)).collect()
    };
    let (of_tenant, unnamed) = (rows(true), if sees_all { rows(false) } else { Vec::new() });
    let estimators: Vec<Value> = learned.iter().filter_map(|row| estimator(&names, row)).collect();
    Ok(json!({
        "tenant": tenant, "shard": shard.0, "epoch": reply.epoch, "now_us": reply.now, "cut": more,
        "accounts": of_tenant, "unnamed_accounts": unnamed,
        "holds": holds.iter().map(|hold| live(catalog, &names, hold)).collect::<Vec<_>>(),
        "estimators": estimators,
    }))
}

/// What the configuration calls the accounts and estimators of a shard.
struct Names {
    accounts: BTreeMap<AccountId, Account>,
    /// Accounts that are another tenant's.
    others: BTreeSet<AccountId>,
    estimators: BTreeMap<EstimatorId, String>,
}

impl Names {
    /// `others`: catalogs that name accounts of others, as far as they are known.
    fn of<'a>(catalog: &Catalog, others: impl Iterator<Item = &'a Catalog>, tenant: &str, now: u64) -> Self {
        let accounts = accounts::of_tenant(catalog, now, tenant);
        let all = others.flat_map(|catalog| accounts::all(catalog, now).into_keys());
        let others = all.filter(|id| !accounts.contains_key(id)).collect();
        let mut estimators = BTreeMap::new();
        for model in catalog.models() {
            for key in catalog.keys().iter().filter(|key| key.tenant == tenant) {
                let subject = Subject::Key {
                    tenant: key.tenant.clone(),
                    project: key.project.clone(),
                    key: key.id.clone(),
                };
                let ids = EstimatorIds::new(subject.id(), &model.id);
                for kind in KINDS {
                    let EstimatorIds { own, prior } = ids.of_kind(kind);
                    estimators.insert(own, format!("{subject} on {}", model.id));
                    estimators.insert(prior, format!("{ALL_KEYS} on {}", model.id));
                }
            }
        }
        Self { accounts, others, estimators }
    }

    /// The names of the limits over an account.
    fn limits(&self, catalog: &Catalog, account: &AccountId) -> Vec<String> {
        let limits = self.accounts.get(account).into_iter().flat_map(|account| &account.limits);
        limits.filter_map(|(id, _)| Some(catalog.rule(*id)?.limit.name.clone())).collect()
    }
}

/// Whether an account is the tenant's by name, or nobody's; `None`: another's.
fn is_named(names: &Names, account: &AccountId) -> Option<bool> {
    if names.others.contains(account) {
        return None;
    }
    Some(names.accounts.contains_key(account))
}

pub(crate) fn text(account: &AccountId) -> String {
    format!("{:016x}:{:016x}", account.subject.0, account.name)
}

fn account(catalog: &Catalog, names: &Names, row: &Balance) -> Value {
    let limits = names.accounts.get(&row.account).into_iter().flat_map(|account| &account.limits);
    let limits: Vec<Value> = limits
        .filter_map(|(id, shadow)| {
            let limit = &catalog.rule(*id)?.limit;
            let mut line = json!({
                "limit": limit.name, "subject": limit.scope.to_string(), "model": limit.model,
                "form": limit.form.with_booking(), "ceiling": limit.ceiling, "shadow": shadow,
                "strictness": if limit.strictness == Strictness::Hard { "hard" } else { "soft" },
            });
            accounts::tell_raise(&mut line, limit.raise);
            Some(line)
        })
        .collect();
    let standing = &row.standing;
    json!({
        "account": text(&row.account), "limits": limits, "measure": measure_word(row.measure),
        "shape": shape(row.shape), "posted": standing.posted, "held": standing.held,
        "period": matches!(row.shape, Shape::Quota).then_some(standing.period),
        "reset_ms": span(standing.reset), "live_holds": row.live_holds, "shadow_denied": row.shadow_denied,
    })
}

/// In milliseconds; absent: it never ends.
fn span(time: Micros) -> Option<u64> {
    (time < Micros::MAX).then(|| time.div_ceil(1000))
}

fn shape(shape: Shape) -> String {
    match shape {
        Shape::Rate { buckets, width, .. } => {
            format!("rate {buckets} × {} s", width / SECOND)
        }
        Shape::Forecast { window, strict } => {
            format!("rate {window} s by forecast{}", if strict { ", strict" } else { "" })
        }
        Shape::Quota => "quota".to_owned(),
        Shape::Concurrency => "concurrency".to_owned(),
    }
}

fn live(catalog: &Catalog, names: &Names, hold: &LiveHold) -> Value {
    let leg = |leg: &LiveLeg| {
        json!({
            "account": text(&leg.account), "limits": names.limits(catalog, &leg.account), "place": leg.place,
            "held": leg.held, "decided": leg.decided, "output": leg.output,
        })
    };
    json!({
        "id": hold.id.to_string(), "attempt": hold.attempt, "age_ms": span(hold.age), "due_ms": span(hold.due),
        "sent": hold.sent, "legs": hold.legs.iter().map(leg).collect::<Vec<_>>(),
    })
}

/// Of the tenant's keys, and of models as all keys of the shard use them; those of tasks have no name.
fn estimator(names: &Names, row: &Learned) -> Option<Value> {
    let of = names.estimators.get(&row.id)?;
    let kind = match row.kind {
        EstimatorKind::Ema => "ema",
        EstimatorKind::RecentMean => "recent_mean",
        EstimatorKind::P95 => "p95",
        EstimatorKind::Forecast => "forecast",
    };
    Some(json!({
        "id": format!("{:016x}", row.id.0), "of": of, "kind": kind, "calls": row.calls,
        "mean_llm_tokens_thousandths": row.mean, "samples": row.samples, "idle_ms": span(row.idle),
    }))
}
