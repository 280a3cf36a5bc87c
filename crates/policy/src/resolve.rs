//! Which limits bind a call.
//!
//! All limits that match bind; none overrides another (B229). Each account appears once, however many limits and code
//! paths lead to it (B008), in the order of account ids, so two gateways build the same legs.
//! Tenant and pool are two bindings: they are two reservations, in two shards (L1).
//! A binding depends on time only through L16; it says until when it holds and may be cached that long.

use crate::calendar::CalendarId;
use crate::catalog::{Catalog, Key, Rule};
use crate::limit::{EstimatorChoice, FACTOR_ONE, Strictness, WhenAway};
use crate::meter::MeterPair;
use crate::subject::{USER_ID_MAX, key_id, pool_id, project_id, service_id, tenant_id, user_id};
use tollbook_ledger::units::LIMITS_PER_LEG_MAX;
use tollbook_ledger::{self as ledger, AccountId, Hold, LEGS_MAX, LimitId, Measure, Shape, SubjectId};

/// Who calls what.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub key: &'a Key,
    /// Id of an enabled service of the key's tenant.
    pub service: Option<&'a str>,
    /// End user as the client names it, at most [`USER_ID_MAX`] bytes.
    pub user: Option<&'a str>,
    /// Resolved model id.
    pub model: &'a str,
}

/// The accounts of one side of a call.
#[derive(Clone, Debug)]
pub struct Binding {
    /// By account id, at most [`LEGS_MAX`].
    pub accounts: Vec<BoundAccount>,
    /// UTC seconds from which it must be resolved again.
    pub valid_until: u64,
    /// Rules left behind by changed limits for which there was no leg left; not enforced, to be told.
    pub dropped: usize,
}

/// One account and all limits over it that match the call.
#[derive(Clone, Debug)]
pub struct BoundAccount {
    pub account: AccountId,
    pub measure: Measure,
    pub shape: Shape,
    pub calendar: Option<CalendarId>,
    /// Masked by the measure.
    pub meter: MeterPair,
    pub estimator: EstimatorChoice,
    /// By what the expected demand is multiplied, in thousandths.
    pub expected_factor: u32,
    /// By what the worst case is multiplied, in thousandths.
    pub worst_factor: u32,
    pub refund_failed: bool,
    /// An enforced hard limit binds.
    pub hard: bool,
    /// An enforced limit binds; else the leg is only written.
    pub enforced: bool,
    /// The strictest of the enforced limits.
    pub when_away: WhenAway,
    pub limits: Vec<ledger::Limit>,
}

/// A user id from a client that is longer than [`USER_ID_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the user id is longer than {USER_ID_MAX} bytes")]
pub struct UserTooLong;

impl Catalog {
    /// The tenant side: limits of tenant, project, key, service and user that match, at `now` (UTC seconds).
    ///
    /// # Errors
    /// When the user id is too long to be kept.
    pub fn resolve(&self, call: &Call<'_>, now: u64) -> Result<Binding, UserTooLong> {
        if call.user.is_some_and(|user| user.len() > USER_ID_MAX) {
            return Err(UserTooLong);
        }
        let Key { tenant, project, id, .. } = call.key;
        let mut gather = Gather::new(self, call.model, now);
        let tenant_subject = tenant_id(tenant);
        gather.subject(tenant_subject);
        gather.subject(project_id(tenant, project));
        gather.subject(key_id(tenant, project, id));
        if let Some(service) = call.service {
            gather.subject(service_id(tenant, service));
        }
        if let Some(user) = call.user {
            let subject = user_id(tenant, user);
            gather.subject(subject);
            gather.rules(subject, self.each_user.get(&tenant_subject).into_iter().flatten().copied());
        }
        Ok(gather.binding())
    }

    /// What an end user's own limits bind, whoever calls for it.
    pub fn resolve_user(&self, tenant: &str, user: &str, model: &str, now: u64) -> Binding {
        let mut gather = Gather::new(self, model, now);
        gather.subject(user_id(tenant, user));
        gather.binding()
    }

    /// The pool side: the provider's own limits on us.
    pub fn resolve_pool(&self, pool: &str, model: &str, now: u64) -> Binding {
        let mut gather = Gather::new(self, model, now);
        gather.subject(pool_id(pool));
        gather.binding()
    }
}

/// Rules that match, as they are found.
struct Gather<'a> {
    catalog: &'a Catalog,
    model: &'a str,
    now: u64,
    found: Vec<(AccountId, usize, &'a Rule)>,
    valid_until: u64,
}

impl<'a> Gather<'a> {
    fn new(catalog: &'a Catalog, model: &'a str, now: u64) -> Self {
        Self { catalog, model, now, found: Vec::with_capacity(16), valid_until: u64::MAX }
    }

    fn subject(&mut self, subject: SubjectId) {
        self.rules(subject, self.catalog.over(&subject));
    }

    fn rules(&mut self, subject: SubjectId, rules: impl Iterator<Item = usize>) {
        for at in rules {
            let Some(rule) = self.catalog.rule_at(at) else { continue };
            if rule.limit.model.as_deref().is_some_and(|model| model != self.model) || rule.until <= self.now
            {
                continue;
            }
            let raised = rule.limit.raise.map_or(0, |raise| raise.until);
            for change in [rule.enforced_from, rule.until, raised] {
                if change > self.now {
                    self.valid_until = self.valid_until.min(change);
                }
            }
            self.found.push((AccountId { subject, name: rule.account_name }, at, rule));
        }
    }

    fn binding(mut self) -> Binding {
        // configured limits first, so that what is dropped at the bounds is what was left behind
        self.found.sort_unstable_by_key(|&(account, at, _)| (at, account));
        let mut accounts: Vec<BoundAccount> = Vec::with_capacity(self.found.len());
        let mut dropped = 0;
        for (account, at, rule) in self.found {
            let enforced = !rule.limit.shadow && rule.enforced_from <= self.now;
            let limit = ledger_limit(at, rule, enforced, self.now);
            let legs = accounts.len();
            match accounts.iter_mut().find(|bound| bound.account == account) {
                Some(bound) if bound.limits.len() < LIMITS_PER_LEG_MAX => bound.join(rule, limit),
                None if legs < LEGS_MAX => accounts.push(BoundAccount::new(account, rule, limit)),
                Some(_) | None => dropped += 1,
            }
        }
        for bound in &mut accounts {
            bound.decide(self.catalog);
        }
        accounts.sort_unstable_by_key(|bound| bound.account);
        Binding { accounts, valid_until: self.valid_until, dropped }
    }
}

fn ledger_limit(at: usize, rule: &Rule, enforced: bool, now: u64) -> ledger::Limit {
    let limit = &rule.limit;
    ledger::Limit {
        id: LimitId(u32::try_from(at).unwrap_or(u32::MAX)),
        ceiling: limit.ceiling_at(now),
        hard: limit.strictness == Strictness::Hard,
        shadow: !enforced,
        count_denied: limit.count_denied,
        hold: limit.hold,
        on_expiry: limit.on_expiry,
    }
}

impl BoundAccount {
    fn new(account: AccountId, rule: &Rule, limit: ledger::Limit) -> Self {
        Self {
            account,
            measure: rule.limit.measure,
            shape: rule.limit.form.shape(),
            calendar: rule.calendar,
            meter: rule.limit.meter.masked(rule.limit.measure),
            estimator: rule.limit.estimator.unwrap_or_else(|| rule.limit.form.estimator()),
            expected_factor: FACTOR_ONE,
            worst_factor: FACTOR_ONE,
            refund_failed: rule.limit.refund_failed,
            hard: false,
            enforced: false,
            when_away: WhenAway::Open,
            limits: vec![limit],
        }
    }

    fn join(&mut self, rule: &Rule, limit: ledger::Limit) {
        if let Some(estimator) = rule.limit.estimator {
            self.estimator = estimator;
        }
        self.limits.push(limit);
    }

    /// What follows from all limits together. The leg holds the largest amount they ask for, so each hold takes the
    /// largest factor of those that ask for it; shadows count only where nothing is enforced.
    fn decide(&mut self, catalog: &Catalog) {
        self.enforced = self.limits.iter().any(|limit| !limit.shadow);
        let mut expected: Option<u32> = None;
        let mut worst: Option<u32> = None;
        for limit in self.limits.iter().filter(|limit| !limit.shadow || !self.enforced) {
            let Some(rule) = catalog.rule(limit.id) else { continue };
            let factor = Some(rule.limit.hold_factor_thousandths);
            match limit.hold {
                Hold::Expected => expected = expected.max(factor),
                Hold::Worst => worst = worst.max(factor),
            }
            if !limit.shadow {
                self.hard |= limit.hard;
                self.when_away = self.when_away.max(rule.limit.when_away);
            }
        }
        self.expected_factor = expected.or(worst).unwrap_or(FACTOR_ONE);
        self.worst_factor = worst.or(expected).unwrap_or(FACTOR_ONE);
    }
}
