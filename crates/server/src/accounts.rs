//! Every account that the configuration names, as the engine has it now: for operators and the demo's table.
//!
//! Accounts of single end users are not among them: only calls name those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tollbook_admission::{Admission, Snapshot, shard};
use tollbook_engine::{Balance, Shard};
use tollbook_ledger::{AccountId, LimitId, Shape};
use tollbook_policy::{Binding, CalendarId, Call, Catalog, Form, Key, Raise, Strictness, measure_word};

use crate::text::instant;

/// Most accounts told at once.
pub const ACCOUNTS_MAX: usize = 10_000;
/// Accounts asked for in one verb.
const BATCH: usize = 256;
/// Booked by forecast.
const FORECAST: &str = "forecast";
const DEADLINE: Duration = Duration::from_secs(2);

/// One limit and what its account stands at. Amounts in the account's unit; cost in nano-currency.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub limit: LimitId,
    pub name: String,
    /// `key acme/web/web-1`.
    pub subject: String,
    pub measure: &'static str,
    /// `rate 60 s`, `rate 60 s by forecast`, `quota day Europe/Berlin`.
    pub form: String,
    /// How a rate is booked, `held` or `forecast`; other shapes hold, and are not asked.
    pub booking: Option<&'static str>,
    pub model: Option<String>,
    pub hard: bool,
    pub shadow: bool,
    pub ceiling: u64,
    pub posted: i64,
    /// Of a forecast account: what is planned.
    pub held: i64,
    pub live_holds: u64,
    /// Microseconds until the account is empty if nothing else comes.
    pub reset: u64,
    pub shadow_denied: u64,
    /// Calls this limit refused since the start of this process.
    pub denied: u64,
}

impl Line {
    /// By how much the fullest window to come is planned to be fuller; nothing where amounts are held.
    pub fn planned(&self) -> Option<i64> {
        (self.booking == Some(FORECAST)).then_some(self.held)
    }
}

pub(crate) fn booking(form: &Form) -> Option<&'static str> {
    match form {
        Form::Rate { .. } => Some("held"),
        Form::Forecast { .. } => Some(FORECAST),
        Form::Quota(_) | Form::Concurrency => None,
    }
}

/// One account and the limits over it.
pub(crate) struct Account {
    shard: Shard,
    quota: bool,
    calendar: Option<CalendarId>,
    pub(crate) limits: BTreeSet<(LimitId, bool)>,
}

/// Asks the engine for all of them. Where tenants are looked up one by one, the snapshots are those of the tenants that
/// called lately, after that of what all share; only as many of them are told as there is room for.
pub async fn standing(admission: &Arc<Admission>, snapshots: &[Arc<Snapshot>]) -> anyhow::Result<Vec<Line>> {
    let mut accounts: Vec<(&Catalog, AccountId, Account)> = Vec::new();
    for snapshot in snapshots {
        let of_it = own(&snapshot.catalog, admission.now() / 1_000_000);
        if accounts.len().saturating_add(of_it.len()) > ACCOUNTS_MAX {
            if accounts.is_empty() {
                bail!("more than {ACCOUNTS_MAX} accounts");
            }
            break;
        }
        accounts.extend(of_it.into_iter().map(|(id, account)| (snapshot.catalog.as_ref(), id, account)));
    }
    let mut by_shard: BTreeMap<Shard, Vec<&(&Catalog, AccountId, Account)>> = BTreeMap::new();
    for account in &accounts {
        by_shard.entry(account.2.shard).or_default().push(account);
    }
    let denials = admission.denials();
    let mut lines = Vec::new();
    for (shard, of_it) in by_shard {
        for some in of_it.chunks(BATCH) {
            let ids: Vec<AccountId> = some.iter().map(|(_, id, _)| *id).collect();
            let asked = admission.balances(shard, &ids);
            let reply = tokio::time::timeout(DEADLINE, asked)
                .await
                .context("the engine did not answer in time")??;
            let now = reply.now / 1_000_000;
            for ((catalog, _, account), balance) in some.iter().zip(reply.value) {
                lines.extend(told(catalog, account, balance.as_ref(), now, &denials));
            }
        }
    }
    lines.sort_by(|a, b| (a.limit, &a.subject).cmp(&(b.limit, &b.subject)));
    Ok(lines)
}

/// All accounts of a catalog but those that what it stands on names.
fn own(catalog: &Catalog, now: u64) -> BTreeMap<AccountId, Account> {
    let mut accounts = all(catalog, now);
    let first = catalog.own_rules().next().map_or(LimitId(u32::MAX), |(id, _)| id);
    accounts.retain(|_, account| account.limits.iter().any(|(id, _)| *id >= first));
    accounts
}

/// The accounts that calls of configured keys, services and pools meet, and those of users' own limits.
pub(crate) fn all(catalog: &Catalog, now: u64) -> BTreeMap<AccountId, Account> {
    let mut accounts = of_keys(catalog, now, None);
    for model in catalog.models() {
        for pool in &model.pools {
            add(&mut accounts, shard(pool), &catalog.resolve_pool(pool, &model.id, now));
        }
    }
    accounts
}

/// Those that calls of one tenant's keys meet, its pools' left out.
pub(crate) fn of_tenant(catalog: &Catalog, now: u64, tenant: &str) -> BTreeMap<AccountId, Account> {
    of_keys(catalog, now, Some(tenant))
}

fn of_keys(catalog: &Catalog, now: u64, tenant: Option<&str>) -> BTreeMap<AccountId, Account> {
    let of = |key: &&Key| tenant.is_none_or(|tenant| key.tenant == tenant);
    let mut accounts = BTreeMap::new();
    for model in catalog.models() {
        for user in catalog.users().filter(|user| tenant.is_none_or(|tenant| user.tenant == tenant)) {
            let binding = catalog.resolve_user(&user.tenant, &user.id, &model.id, now);
            add(&mut accounts, shard(&user.tenant), &binding);
        }
        for key in catalog.keys().iter().filter(of).filter(|key| catalog.may_use(key, &model.id)) {
            let services = catalog.services().filter(|service| service.tenant == key.tenant);
            for service in std::iter::once(None).chain(services.map(|service| Some(service.id.as_str()))) {
                let call = Call { key, service, user: None, model: &model.id };
                // Only a user's name can be too long, and there is none.
                let Ok(binding) = catalog.resolve(&call, now) else { continue };
                add(&mut accounts, shard(&key.tenant), &binding);
            }
        }
    }
    accounts
}

fn add(accounts: &mut BTreeMap<AccountId, Account>, shard: Shard, binding: &Binding) {
    for bound in &binding.accounts {
        let quota = bound.shape == Shape::Quota;
        let account = accounts.entry(bound.account).or_insert_with(|| Account {
            shard,
            quota,
            calendar: bound.calendar,
            limits: BTreeSet::new(),
        });
        account.limits.extend(bound.limits.iter().map(|limit| (limit.id, limit.shadow)));
    }
}

fn told<'a>(
    catalog: &'a Catalog,
    account: &'a Account,
    balance: Option<&'a Balance>,
    now: u64,
    denials: &'a BTreeMap<(String, String), u64>,
) -> impl Iterator<Item = Line> + 'a {
    // Of a period that is over nothing counts any more.
    let calendar = account.calendar.and_then(|id| catalog.calendar(id)).filter(|_| account.quota);
    let current = move |period: u64| calendar.is_none_or(|calendar| calendar.current(now).0 <= period);
    let standing = balance.map(|balance| balance.standing).filter(|standing| current(standing.period));
    account.limits.iter().filter_map(move |(id, shadow)| {
        let limit = &catalog.rule(*id)?.limit;
        let named = (limit.scope.to_string(), limit.name.clone());
        let denied = denials.get(&named).copied().unwrap_or(0);
        let (subject, name) = named;
        Some(Line {
            limit: *id,
            name,
            subject,
            measure: measure_word(limit.measure),
            form: limit.form.with_booking(),
            booking: booking(&limit.form),
            model: limit.model.clone(),
            hard: limit.strictness == Strictness::Hard,
            shadow: *shadow,
            ceiling: limit.ceiling_at(now),
            posted: standing.map_or(0, |standing| standing.posted),
            held: standing.map_or(0, |standing| standing.held),
            live_holds: balance.map_or(0, |balance| balance.live_holds),
            reset: standing.map_or(0, |standing| standing.reset),
            shadow_denied: balance.map_or(0, |balance| balance.shadow_denied),
            denied,
        })
    })
}

/// Adds a raise to what operators are told of a limit.
pub(crate) fn tell_raise(line: &mut Value, raise: Option<Raise>) {
    if let (Some(fields), Some(Raise { by, until })) = (line.as_object_mut(), raise) {
        fields.insert("raise".to_owned(), json!({ "by": by, "until": instant(until.saturating_mul(1_000)) }));
    }
}
