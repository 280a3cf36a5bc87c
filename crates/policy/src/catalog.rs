//! Everything that is configured about who may call what, as one immutable snapshot.
//!
//! Invariants: a [`Catalog`] passed validation as a whole; every name in it resolves; it never changes, a change is a
//! new catalog. What one tenant has can be a catalog of its own, on top of one that all share: that has the models and
//! pools and their limits, this the tenant and what belongs to it; ids of limits and calendars count through both. One resolved model id serves access, limits, price and accounting (B171): names are compared byte for
//! byte, an alias resolves once, anything else is unknown.
//! When a draft is wrong: all problems are told, none of it is used.

use crate::calendar::{Calendar, CalendarId};
use crate::limit::{Limit, LimitDraft};
use crate::meter::MeterPair;
use crate::network::Network;
use crate::problem::{Problem, Warning};
use crate::subject::{Scope, Subject};
use crate::validate;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;
use tollbook_ledger::{AccountId, LimitId, SubjectId};

/// What an operator configures. Lists are flat; parents are named by id.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub tenants: Vec<Tenant>,
    pub projects: Vec<Project>,
    pub keys: Vec<Key>,
    pub services: Vec<Service>,
    pub users: Vec<User>,
    pub pools: Vec<Pool>,
    pub models: Vec<Model>,
    pub limits: Vec<LimitDraft>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenant {
    pub id: String,
    pub disabled: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Project {
    pub tenant: String,
    pub id: String,
    pub disabled: bool,
}

/// An API key: what is known of it without the secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    pub tenant: String,
    pub project: String,
    /// Stays when the secret is rotated.
    pub id: String,
    /// Keyed hashes of the secrets it is known by: one, or two while a rotation overlaps.
    pub secrets: Vec<Secret>,
    pub disabled: bool,
    /// UTC seconds from which it is refused.
    pub expires_at: Option<u64>,
    /// Ids of the models it may use; absent = all.
    pub models: Option<Vec<String>>,
    /// Where its calls may come from; absent = anywhere.
    pub addresses: Option<Vec<Network>>,
    /// The service its calls belong to unless they name one.
    pub service: Option<String>,
}

/// A secret a key is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secret {
    /// Keyed hash; who computes it knows the hash key.
    pub digest: [u8; 32],
    /// UTC seconds from which this secret is refused.
    pub expires_at: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    pub tenant: String,
    pub id: String,
    pub disabled: bool,
}

/// An end user of a tenant of whom something is configured; others may call too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    pub tenant: String,
    /// As the client names it.
    pub id: String,
    pub disabled: bool,
}

/// One upstream account × model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    pub id: String,
    /// How the provider counts; the default meter of the pool's limits.
    pub meter: MeterPair,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Model {
    pub id: String,
    pub aliases: Vec<String>,
    /// Ids of the pools that serve it, in order of preference.
    pub pools: Vec<String>,
}

/// Why a key that is known may not call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyRefusal {
    #[error("the key is disabled")]
    KeyDisabled,
    #[error("the key has expired")]
    KeyExpired,
    #[error("the project is disabled")]
    ProjectDisabled,
    #[error("the tenant is disabled")]
    TenantDisabled,
}

/// A limit in force, with the time it is in force (L16).
#[derive(Clone, Debug)]
pub struct Rule {
    pub limit: Limit,
    /// Of a quota.
    pub calendar: Option<CalendarId>,
    /// UTC seconds. Before, its account is only written, like a shadow, so that it starts full.
    pub enforced_from: u64,
    /// UTC seconds from which it is gone: set for what an older version of a limit left behind.
    pub until: u64,
    /// The account's name without the subject.
    pub(crate) account_name: u64,
}

impl Rule {
    /// Whether it exists only because of a limit's older version.
    pub fn is_left_behind(&self) -> bool {
        self.until != u64::MAX
    }

    /// The account it is over; of a limit on each user, that of one of them.
    pub fn account(&self, user: Option<&str>) -> Option<AccountId> {
        let subject = match (&self.limit.scope, user) {
            (Scope::One(subject), None) => subject.id(),
            (Scope::EachUser { tenant }, Some(user)) => {
                Subject::User { tenant: tenant.clone(), user: user.to_owned() }.id()
            }
            (Scope::One(_), Some(_)) | (Scope::EachUser { .. }, None) => return None,
        };
        Some(AccountId { subject, name: self.account_name })
    }
}

/// A validated snapshot. Cheap to share, never changed.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// What it stands on; that itself stands on nothing.
    pub(crate) below: Option<Arc<Catalog>>,
    pub(crate) tenants: BTreeMap<String, Tenant>,
    pub(crate) projects: BTreeMap<(String, String), Project>,
    pub(crate) services: BTreeMap<(String, String), Service>,
    pub(crate) users: BTreeMap<(String, String), User>,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) keys: Vec<Key>,
    pub(crate) key_by_secret: BTreeMap<[u8; 32], usize>,
    pub(crate) models: Vec<Model>,
    pub(crate) model_by_name: BTreeMap<String, usize>,
    pub(crate) rules: Vec<Rule>,
    /// Rules by the one subject they cover, as their limits are counted.
    pub(crate) by_subject: BTreeMap<SubjectId, Vec<usize>>,
    /// Rules for each user, by their tenant's subject.
    pub(crate) each_user: BTreeMap<SubjectId, Vec<usize>>,
    pub(crate) calendars: Vec<Calendar>,
    pub(crate) warnings: Vec<Warning>,
}

impl Catalog {
    /// Checks a draft as a whole.
    ///
    /// # Errors
    /// All problems, in the order of lists and indices.
    pub fn new(draft: Draft) -> Result<Self, Vec<Problem>> {
        validate::catalog(None, draft)
    }

    /// Checks a draft that has neither models nor pools and takes those of `below`, which stands on nothing itself.
    ///
    /// # Errors
    /// All problems, in the order of lists and indices.
    pub fn on(below: &Arc<Self>, draft: Draft) -> Result<Self, Vec<Problem>> {
        validate::catalog(Some(Arc::clone(below)), draft)
    }

    /// What has the models and pools.
    fn house(&self) -> &Self {
        self.below.as_deref().unwrap_or(self)
    }

    fn rules_below(&self) -> &[Rule] {
        self.below.as_deref().map_or(&[], |below| &below.rules)
    }

    fn calendars_below(&self) -> &[Calendar] {
        self.below.as_deref().map_or(&[], |below| &below.calendars)
    }

    /// The key a secret's keyed hash belongs to.
    pub fn key(&self, digest: &[u8; 32]) -> Option<&Key> {
        self.key_by_secret.get(digest).and_then(|&at| self.keys.get(at))
    }

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Whether a key may call at `now` (UTC seconds) with the secret of that hash.
    ///
    /// # Errors
    /// The first reason why not. Expiry is exact: at its second it is refused (B230).
    pub fn check_key(&self, key: &Key, digest: &[u8; 32], now: u64) -> Result<(), KeyRefusal> {
        let due = |expiry: Option<u64>| expiry.is_some_and(|at| at <= now);
        let secret_due = key.secrets.iter().filter(|s| s.digest == *digest).all(|s| due(s.expires_at));
        let project = self.projects.get(&(key.tenant.clone(), key.project.clone()));
        if key.disabled {
            Err(KeyRefusal::KeyDisabled)
        } else if due(key.expires_at) || secret_due {
            Err(KeyRefusal::KeyExpired)
        } else if project.is_none_or(|project| project.disabled) {
            Err(KeyRefusal::ProjectDisabled)
        } else if self.tenants.get(&key.tenant).is_none_or(|tenant| tenant.disabled) {
            Err(KeyRefusal::TenantDisabled)
        } else {
            Ok(())
        }
    }

    /// The model an id or alias stands for; everything after this uses its id.
    pub fn model(&self, name: &str) -> Option<&Model> {
        let house = self.house();
        house.model_by_name.get(name).and_then(|&at| house.models.get(at))
    }

    pub fn models(&self) -> &[Model] {
        &self.house().models
    }

    /// Whether a key may use a model (by id). Re-asked at every hop (B167).
    pub fn may_use(&self, key: &Key, model: &str) -> bool {
        key.models.as_ref().is_none_or(|ids| ids.iter().any(|id| id == model))
    }

    /// Whether a key's call may come from an address.
    pub fn may_come_from(&self, key: &Key, address: IpAddr) -> bool {
        key.addresses.as_ref().is_none_or(|networks| networks.iter().any(|network| network.contains(address)))
    }

    /// An enabled service of a tenant.
    pub fn service(&self, tenant: &str, id: &str) -> Option<&Service> {
        let key = (tenant.to_owned(), id.to_owned());
        self.services.get(&key).filter(|service| !service.disabled)
    }

    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// An end user of a tenant, if something is configured of it.
    pub fn user(&self, tenant: &str, id: &str) -> Option<&User> {
        if self.users.is_empty() {
            return None;
        }
        self.users.get(&(tenant.to_owned(), id.to_owned()))
    }

    pub fn users(&self) -> impl ExactSizeIterator<Item = &User> {
        self.users.values()
    }

    pub fn pool(&self, id: &str) -> Option<&Pool> {
        self.house().pools.get(id)
    }

    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.house().pools.values()
    }

    pub fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.values()
    }

    /// What a verdict's limit id stands for.
    pub fn rule(&self, id: LimitId) -> Option<&Rule> {
        self.rule_at(usize::try_from(id.0).ok()?)
    }

    pub(crate) fn rule_at(&self, at: usize) -> Option<&Rule> {
        let below = self.rules_below();
        below.get(at).or_else(|| self.rules.get(at.checked_sub(below.len())?))
    }

    /// Where the rules over one subject are, in the order of their ids.
    pub(crate) fn over(&self, subject: &SubjectId) -> impl Iterator<Item = usize> {
        let below = self.below.as_deref().and_then(|below| below.by_subject.get(subject));
        below.into_iter().chain(self.by_subject.get(subject)).flatten().copied()
    }

    /// All rules with their ids: those below, then its own; of each the configured ones first, in their order.
    pub fn rules(&self) -> impl Iterator<Item = (LimitId, &Rule)> {
        (0u32..).map(LimitId).zip(self.rules_below().iter().chain(&self.rules))
    }

    /// Its own rules, without those below.
    pub fn own_rules(&self) -> impl Iterator<Item = (LimitId, &Rule)> {
        self.rules().skip(self.rules_below().len())
    }

    /// The calendars of all quotas; [`crate::PeriodTable`] is computed over them.
    pub fn calendars(&self) -> impl Iterator<Item = &Calendar> {
        self.calendars_below().iter().chain(&self.calendars)
    }

    pub fn calendar(&self, id: CalendarId) -> Option<&Calendar> {
        self.calendars().nth(usize::from(id.0))
    }

    /// What quotas' accounts are called without their subject, what they count and over which calendar.
    pub fn quotas(&self) -> impl Iterator<Item = (u64, tollbook_ledger::Measure, &Calendar)> {
        self.rules().filter_map(|(_, rule)| {
            let calendar = self.calendar(rule.calendar?)?;
            Some((rule.account_name, rule.limit.measure, calendar))
        })
    }

    /// What is legal but probably not meant.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Adds a rule and finds it by its scope.
    pub(crate) fn add_rule(&mut self, limit: Limit, enforced_from: u64, until: u64) {
        use crate::limit::Form;
        use crate::subject::tenant_id;
        let calendar = match &limit.form {
            Form::Quota(rule) => self.calendar_of(rule),
            Form::Rate { .. } | Form::Forecast { .. } | Form::Concurrency => None,
        };
        let at = self.rules_below().len() + self.rules.len();
        match &limit.scope {
            Scope::One(subject) => self.by_subject.entry(subject.id()).or_default().push(at),
            Scope::EachUser { tenant } => self.each_user.entry(tenant_id(tenant)).or_default().push(at),
        }
        let account_name = crate::account::account_name(&limit);
        self.rules.push(Rule { limit, calendar, enforced_from, until, account_name });
    }

    fn calendar_of(&mut self, rule: &crate::calendar::PeriodRule) -> Option<CalendarId> {
        let known = self.calendars().position(|calendar| calendar.rule() == rule);
        let at = known.unwrap_or_else(|| {
            self.calendars.push(Calendar::new(rule.clone()));
            self.calendars_below().len() + self.calendars.len() - 1
        });
        u16::try_from(at).ok().map(CalendarId)
    }
}
