//! The quotas that a correction of earlier calls still counts for, and how it is posted to them.
//!
//! Invariants: an account is posted to once for each id, also after the engine has forgotten it: the journal is asked first.
//! Only a period that runs, and contains the time in question, is posted to; what is over is history.
//! When the engine does not answer, whether it was posted is not known; the same again is harmless.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tollbook_admission::shard;
use tollbook_engine::{AdjustCall, Engine, Shard};
use tollbook_ledger::{self as ledger, AMOUNT_MAX, AccountId, Measure, Posted, ReservationId};
use tollbook_policy::{Catalog, Meter, Rule, Scope, Subject};
use tollbook_store::{EntryBody, Journal, Side, Usage, UsageSum};

use crate::adjust::{away, told};
use crate::admin::{Admin, Refusal};
use crate::history::amount;

const DEADLINE: Duration = Duration::from_secs(2);

/// What a correction is posted through.
pub(crate) struct Books<'a> {
    pub(crate) catalogs: Catalogs<'a>,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) journal: &'a dyn Journal,
    /// Engine time.
    pub(crate) now: u64,
    /// Who asked for it.
    pub(crate) who: &'a str,
}

/// The limits that bind a tenant and the pools.
pub(crate) enum Catalogs<'a> {
    /// Those of everybody.
    #[cfg(test)]
    One(Arc<Catalog>),
    /// Those that are in force, looked up tenant by tenant where they are kept so.
    Of(&'a Admin),
}

impl Catalogs<'_> {
    /// Of a tenant that is not there, or of none: what all share.
    pub(crate) async fn of(&self, tenant: &str) -> Result<Arc<Catalog>, Refusal> {
        match self {
            #[cfg(test)]
            Self::One(catalog) => Ok(Arc::clone(catalog)),
            Self::Of(admin) => Ok(Arc::clone(&admin.snapshot_of(tenant).await?.catalog)),
        }
    }
}

/// One running period of a quota.
struct Quota {
    side: Side,
    shard: Shard,
    measure: Measure,
    meter: Meter,
    period: u64,
    end: u64,
}

/// What a correction changes: the sums before and after it.
pub(crate) struct Change {
    pub(crate) before: UsageSum,
    pub(crate) after: UsageSum,
}

impl Change {
    pub(crate) fn delta(&self) -> UsageSum {
        UsageSum {
            requests: self.after.requests.saturating_sub(self.before.requests),
            usage: self.after.usage.minus(&self.before.usage),
            cost_nano: self.after.cost_nano.saturating_sub(self.before.cost_nano),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        let UsageSum { requests, usage, cost_nano } = self.delta();
        (requests, usage, cost_nano) == (0, Usage::default(), 0)
    }
}

impl Books<'_> {
    /// Posts a change to every quota of those the entry names, `at` being the time of the calls (UTC seconds); `id` names
    /// the change. The accounts of the entry's own side, with nothing posted: the change's entry says with them that it is
    /// in there, so that an opening does not count it again.
    pub(crate) async fn post(
        &self,
        (id, at): (u128, u64),
        sides: &[Side],
        body: &EntryBody,
        change: &Change,
    ) -> Result<Vec<Posted>, Refusal> {
        let mut met = Vec::new();
        let catalog = self.catalogs.of(&body.tenant).await?;
        for (account, quota) in self.quotas(&catalog, sides, body, at) {
            let count = amount(quota.measure, quota.meter);
            let counted = |sum: &UsageSum| count(sum).min(AMOUNT_MAX).cast_signed();
            let delta = counted(&change.after).saturating_sub(counted(&change.before));
            if quota.side == body.side {
                met.push(Posted { account, period: quota.period, amount: 0 });
            }
            if delta != 0 {
                self.adjust(id, account, &quota, delta, body).await?;
            }
        }
        Ok(met)
    }

    async fn adjust(
        &self,
        change: u128,
        account: AccountId,
        quota: &Quota,
        delta: i64,
        body: &EntryBody,
    ) -> Result<(), Refusal> {
        let id = id("tollbook reconcile account 1", |hasher| {
            hasher.update(&change.to_le_bytes());
            for number in [account.subject.0, account.name, quota.period] {
                hasher.update(&number.to_le_bytes());
            }
        });
        if self.journal.was_written(ReservationId(id)).await.map_err(|error| told(&error))? {
            return Ok(());
        }
        // The usage is in the change's own entry.
        let entry = EntryBody { side: quota.side, usage: Usage::default(), cost_nano: 0, ..body.clone() };
        let opening = Some(ledger::Opening { measure: quota.measure, end: quota.end });
        let adjust = ledger::Adjust { id, account, period: quota.period, delta, opening };
        let call = AdjustCall { shard: quota.shard, adjust, entry: entry.encode() };
        let asked = tokio::time::timeout(DEADLINE, self.engine.adjust(&call)).await;
        asked.map_err(|_| away())?.map_err(|error| told(&error))?;
        Ok(())
    }

    /// By account: several limits may be over one.
    fn quotas(
        &self,
        catalog: &Catalog,
        sides: &[Side],
        body: &EntryBody,
        at: u64,
    ) -> BTreeMap<AccountId, Quota> {
        let mut quotas = BTreeMap::new();
        for (_, rule) in catalog.rules().filter(|(_, rule)| !rule.is_left_behind()) {
            let of_model = rule.limit.model.as_deref().is_none_or(|model| model == &*body.model_used);
            let calendar = rule.calendar.and_then(|id| catalog.calendar(id));
            let (Some(calendar), true) = (calendar, of_model) else { continue };
            let Some((account, side, shard)) = account(rule, sides, body) else { continue };
            let (period, end) = calendar.current(self.now / 1_000_000);
            if period <= at {
                let (measure, meter) = (rule.limit.measure, rule.limit.meter.settle);
                quotas.insert(account, Quota { side, shard, measure, meter, period, end });
            }
        }
        quotas
    }
}

/// The account of a rule, its side and its shard, if the rule is about whom the entry names.
fn account(rule: &Rule, sides: &[Side], body: &EntryBody) -> Option<(AccountId, Side, Shard)> {
    let of_tenant = |tenant: &String| sides.contains(&Side::Tenant) && **tenant == *body.tenant;
    let (matches, user) = match &rule.limit.scope {
        Scope::EachUser { tenant } => {
            let user = Some(&*body.user).filter(|user| !user.is_empty());
            (of_tenant(tenant) && user.is_some(), user)
        }
        Scope::One(subject) => (
            match subject {
                Subject::Tenant { tenant } => of_tenant(tenant),
                Subject::Project { tenant, project } => of_tenant(tenant) && **project == *body.project,
                Subject::Key { tenant, project, key } => {
                    of_tenant(tenant) && **project == *body.project && **key == *body.key
                }
                Subject::Service { tenant, service } => of_tenant(tenant) && **service == *body.service,
                Subject::User { tenant, user } => of_tenant(tenant) && **user == *body.user,
                Subject::Pool { pool } => sides.contains(&Side::Pool) && **pool == *body.pool,
            },
            None,
        ),
    };
    let tenant = match &rule.limit.scope {
        Scope::EachUser { tenant } => Some(tenant.as_str()),
        Scope::One(subject) => subject.tenant(),
    };
    let (side, owner) = tenant.map_or((Side::Pool, &*body.pool), |tenant| (Side::Tenant, tenant));
    rule.account(user).filter(|_| matches).map(|account| (account, side, shard(owner)))
}

/// An id that the same parts always give.
pub(crate) fn id(of: &str, parts: impl FnOnce(&mut blake3::Hasher)) -> u128 {
    let mut hasher = blake3::Hasher::new_derive_key(of);
    parts(&mut hasher);
    let mut bits = [0_u8; 16];
    hasher.finalize_xof().fill(&mut bits);
    u128::from_le_bytes(bits)
}
