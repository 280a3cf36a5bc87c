//! Checks a draft as a whole and makes the catalog of it.
//!
//! Collects every problem; checks across objects run only where the objects themselves are right, so that one mistake
//! is told once.

use crate::catalog::{Catalog, Draft, Key, Model, User};
use crate::check_limit;
use crate::limit::Limit;
use crate::meter::{MeterPair, WEIGHT_MAX};
use crate::problem::{List, Place, Problem, ProblemKind, Warning, WarningKind};
use crate::subject::{ID_MAX, MODEL_ID_MAX, Scope, Subject, USER_ID_MAX, USERS_MAX, project_id, tenant_id};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tollbook_ledger::units::LIMITS_PER_LEG_MAX;
use tollbook_ledger::{LEGS_MAX, SubjectId};

pub(crate) fn catalog(below: Option<Arc<Catalog>>, draft: Draft) -> Result<Catalog, Vec<Problem>> {
    let mut check = Check { problems: Vec::new(), pools: Vec::new() };
    let (mut catalog, drafts) = check.objects(below, draft);
    let mut kept: Vec<(usize, Limit)> = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let limit = check_limit::limit(&mut check, &catalog, index, draft);
        // no ceiling: no limit (B223), but what is there must be right
        if let (Some(limit), Some(_)) = (limit, draft.ceiling) {
            kept.push((index, limit));
        }
    }
    check_limit::names(&mut check, &drafts, &kept);
    let origins: Vec<usize> = kept.iter().map(|&(index, _)| index).collect();
    for (_, limit) in kept {
        catalog.add_rule(limit, 0, u64::MAX);
    }
    check.shared_accounts(&catalog, &origins);
    check.leg_counts(&catalog);
    catalog.warnings = warnings(&catalog, &origins);
    if check.problems.is_empty() {
        Ok(catalog)
    } else {
        check.problems.sort_by_key(|problem| problem.place);
        Err(check.problems)
    }
}

/// Problems as they are found.
pub(crate) struct Check {
    problems: Vec<Problem>,
    /// Ids of the pools in the order of the draft.
    pools: Vec<String>,
}

impl Check {
    pub(crate) fn problem(&mut self, list: List, index: usize, field: &'static str, kind: ProblemKind) {
        self.problems.push(Problem { place: Place { list, index, field }, kind });
    }

    /// An id of the configuration: not empty, not too long, printable.
    pub(crate) fn id(&mut self, list: List, index: usize, field: &'static str, id: &str, max: usize) {
        if let Err(kind) = check_id(id, max) {
            self.problem(list, index, field, kind);
        }
    }

    fn repeated(&mut self, list: List, index: usize, field: &'static str, id: &str) {
        self.problem(list, index, field, ProblemKind::Repeated(id.to_owned()));
    }

    fn unknown(&mut self, list: List, index: usize, field: &'static str, kind: &'static str, id: &str) {
        self.problem(list, index, field, ProblemKind::Unknown { kind, id: id.to_owned() });
    }

    /// Everything but the limits.
    fn objects(
        &mut self,
        below: Option<Arc<Catalog>>,
        draft: Draft,
    ) -> (Catalog, Vec<crate::limit::LimitDraft>) {
        let mut catalog = Catalog { below, ..Catalog::default() };
        let Draft { tenants, projects, keys, services, users, pools, models, limits } = draft;
        for (index, tenant) in tenants.into_iter().enumerate() {
            self.id(List::Tenants, index, "id", &tenant.id, ID_MAX);
            if let Some(old) = catalog.tenants.insert(tenant.id.clone(), tenant) {
                self.repeated(List::Tenants, index, "id", &old.id);
            }
        }
        for (index, project) in projects.into_iter().enumerate() {
            self.id(List::Projects, index, "id", &project.id, ID_MAX);
            self.tenant(&catalog, List::Projects, index, &project.tenant);
            let name = (project.tenant.clone(), project.id.clone());
            if let Some(old) = catalog.projects.insert(name, project) {
                self.repeated(List::Projects, index, "id", &old.id);
            }
        }
        for (index, service) in services.into_iter().enumerate() {
            self.id(List::Services, index, "id", &service.id, ID_MAX);
            self.tenant(&catalog, List::Services, index, &service.tenant);
            let name = (service.tenant.clone(), service.id.clone());
            if let Some(old) = catalog.services.insert(name, service) {
                self.repeated(List::Services, index, "id", &old.id);
            }
        }
        self.users(&mut catalog, users);
        for (index, pool) in pools.into_iter().enumerate() {
            self.id(List::Pools, index, "id", &pool.id, ID_MAX);
            self.meter(List::Pools, index, &pool.meter);
            self.pools.push(pool.id.clone());
            if let Some(old) = catalog.pools.insert(pool.id.clone(), pool) {
                self.repeated(List::Pools, index, "id", &old.id);
            }
        }
        self.models(&mut catalog, models);
        self.keys(&mut catalog, keys);
        (catalog, limits)
    }

    fn users(&mut self, catalog: &mut Catalog, users: Vec<User>) {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (index, user) in users.into_iter().enumerate() {
            self.id(List::Users, index, "id", &user.id, USER_ID_MAX);
            self.tenant(catalog, List::Users, index, &user.tenant);
            let count = counts.entry(user.tenant.clone()).or_default();
            *count += 1;
            // Told once.
            if *count == USERS_MAX + 1 {
                self.problem(List::Users, index, "", ProblemKind::TooManyUsers { max: USERS_MAX });
            }
            let name = (user.tenant.clone(), user.id.clone());
            if let Some(old) = catalog.users.insert(name, user) {
                self.repeated(List::Users, index, "id", &old.id);
            }
        }
    }

    fn tenant(&mut self, catalog: &Catalog, list: List, index: usize, tenant: &str) {
        if !catalog.tenants.contains_key(tenant) {
            self.unknown(list, index, "tenant", "tenant", tenant);
        }
    }

    pub(crate) fn meter(&mut self, list: List, index: usize, meter: &MeterPair) {
        let weights = meter.reserve.parts().into_iter().chain(meter.settle.parts());
        if weights.into_iter().any(|(_, weight)| weight > WEIGHT_MAX) {
            self.problem(list, index, "meter", ProblemKind::Range { min: 0, max: u64::from(WEIGHT_MAX) });
        }
    }

    fn models(&mut self, catalog: &mut Catalog, models: Vec<Model>) {
        for (index, model) in models.into_iter().enumerate() {
            self.id(List::Models, index, "id", &model.id, MODEL_ID_MAX);
            if model.id.contains('*') {
                self.problem(List::Models, index, "id", ProblemKind::Pattern(model.id.clone()));
            }
            if catalog.model_by_name.insert(model.id.clone(), index).is_some() {
                self.repeated(List::Models, index, "id", &model.id);
            }
            for alias in &model.aliases {
                self.id(List::Models, index, "aliases", alias, MODEL_ID_MAX);
                if catalog.model_by_name.insert(alias.clone(), index).is_some() {
                    self.repeated(List::Models, index, "aliases", alias);
                }
            }
            if model.pools.is_empty() {
                self.problem(List::Models, index, "pools", ProblemKind::Empty);
            }
            for (at, pool) in model.pools.iter().enumerate() {
                if !catalog.pools.contains_key(pool) {
                    self.unknown(List::Models, index, "pools", "pool", pool);
                } else if model.pools.iter().take(at).any(|other| other == pool) {
                    self.repeated(List::Models, index, "pools", pool);
                }
            }
            catalog.models.push(model);
        }
    }

    fn keys(&mut self, catalog: &mut Catalog, keys: Vec<Key>) {
        let mut names = BTreeSet::new();
        // Many catalogs are kept.
        catalog.keys.reserve_exact(keys.len());
        for (index, key) in keys.into_iter().enumerate() {
            self.id(List::Keys, index, "id", &key.id, ID_MAX);
            self.tenant(catalog, List::Keys, index, &key.tenant);
            if !catalog.projects.contains_key(&(key.tenant.clone(), key.project.clone())) {
                self.unknown(List::Keys, index, "project", "project", &key.project);
            }
            if !names.insert((key.tenant.clone(), key.project.clone(), key.id.clone())) {
                self.repeated(List::Keys, index, "id", &key.id);
            }
            if key.secrets.is_empty() {
                self.problem(List::Keys, index, "secrets", ProblemKind::Empty);
            }
            for secret in &key.secrets {
                if catalog.key_by_secret.insert(secret.digest, index).is_some() {
                    self.repeated(List::Keys, index, "secrets", "this secret");
                }
            }
            if let Some(service) = &key.service
                && !catalog.services.contains_key(&(key.tenant.clone(), service.clone()))
            {
                self.unknown(List::Keys, index, "service", "service", service);
            }
            for model in key.models.iter().flatten() {
                self.model(catalog, List::Keys, index, "models", model);
            }
            catalog.keys.push(key);
        }
    }

    /// A model named by its own id.
    pub(crate) fn model(
        &mut self,
        catalog: &Catalog,
        list: List,
        index: usize,
        field: &'static str,
        name: &str,
    ) {
        match catalog.model(name) {
            Some(model) if model.id == name => {}
            Some(model) => {
                let kind = ProblemKind::Alias { alias: name.to_owned(), model: model.id.clone() };
                self.problem(list, index, field, kind);
            }
            None if name.contains('*') => {
                self.problem(list, index, field, ProblemKind::Pattern(name.to_owned()));
            }
            None => self.unknown(list, index, field, "model", name),
        }
    }

    /// Limits over one account agree on what the account or its leg has only once, and fit on one leg.
    fn shared_accounts(&mut self, catalog: &Catalog, origins: &[usize]) {
        let mut groups: BTreeMap<(SubjectId, u64), Vec<usize>> = BTreeMap::new();
        for (at, rule) in catalog.rules.iter().enumerate() {
            let subject = covered(&rule.limit.scope);
            groups.entry((subject, rule.account_name)).or_default().push(at);
        }
        // a user's own limits share accounts with those of each user
        for (at, rule) in catalog.rules.iter().enumerate() {
            let Scope::One(Subject::User { tenant, .. }) = &rule.limit.scope else { continue };
            let Some(each) = groups.get(&(any_user(tenant), rule.account_name)).cloned() else { continue };
            let group = groups.entry((covered(&rule.limit.scope), rule.account_name)).or_default();
            group.extend(each);
            group.push(at);
            group.sort_unstable();
            group.dedup();
        }
        for group in groups.values() {
            self.shared_account(catalog, origins, group);
        }
    }

    fn shared_account(&mut self, catalog: &Catalog, origins: &[usize], group: &[usize]) {
        let rules: Vec<(usize, &Limit)> =
            group.iter().filter_map(|&at| Some((*origins.get(at)?, &catalog.rules.get(at)?.limit))).collect();
        if let Some(&(index, _)) = rules.get(LIMITS_PER_LEG_MAX) {
            self.problem(List::Limits, index, "", ProblemKind::TooManyLimits { max: LIMITS_PER_LEG_MAX });
        }
        for (at, &(index, limit)) in rules.iter().enumerate() {
            for &(other, before) in rules.iter().take(at) {
                let setting = if limit.refund_failed != before.refund_failed {
                    "refund_failed"
                } else if limit.opening != before.opening {
                    "opening"
                } else if let (Some(a), Some(b)) = (limit.estimator, before.estimator)
                    && a != b
                {
                    "estimator"
                } else {
                    continue;
                };
                self.problem(List::Limits, index, setting, ProblemKind::Contradicts { other, setting });
                return;
            }
        }
    }

    /// The worst combination of key, service, user and model fits in one reservation.
    fn leg_counts(&mut self, catalog: &Catalog) {
        let counts = Counts::new(catalog);
        for (index, key) in catalog.keys.iter().enumerate() {
            if let Some((model, legs)) = counts.worst_of_key(catalog, key) {
                let who = match model {
                    None => "this key".to_owned(),
                    Some(model) => format!("this key for model `{model}`"),
                };
                self.problem(List::Keys, index, "", ProblemKind::TooManyLegs { who, legs, max: LEGS_MAX });
            }
        }
        for (index, pool) in self.pools.clone().iter().enumerate() {
            let subject = crate::subject::pool_id(pool);
            let models = counts.models_of(&[subject]);
            for model in models {
                let legs = counts.of(subject, model);
                if legs > LEGS_MAX {
                    let who = format!("pool `{pool}`");
                    self.problem(
                        List::Pools,
                        index,
                        "",
                        ProblemKind::TooManyLegs { who, legs, max: LEGS_MAX },
                    );
                    break;
                }
            }
        }
    }
}

/// The subject of a scope; "each user" counts as one more user, with an id no client can send.
fn covered(scope: &Scope) -> SubjectId {
    match scope {
        Scope::One(subject) => subject.id(),
        Scope::EachUser { tenant } => any_user(tenant),
    }
}

/// How many accounts each subject has, for any model and for each.
struct Counts<'a> {
    accounts: BTreeMap<SubjectId, BTreeMap<Option<&'a str>, BTreeSet<u64>>>,
    /// Subjects of a tenant's services.
    services: BTreeMap<&'a str, BTreeSet<SubjectId>>,
    /// Of a tenant's users, how many accounts the one with the most of them has: a tenant has many more users than keys,
    /// so they are counted once.
    users: BTreeMap<&'a str, BTreeMap<Option<&'a str>, usize>>,
}

impl<'a> Counts<'a> {
    fn new(catalog: &'a Catalog) -> Self {
        let mut counts =
            Self { accounts: BTreeMap::new(), services: BTreeMap::new(), users: BTreeMap::new() };
        let mut users: BTreeMap<&str, BTreeSet<SubjectId>> = BTreeMap::new();
        for rule in &catalog.rules {
            let subject = covered(&rule.limit.scope);
            let names = counts.accounts.entry(subject).or_default();
            names.entry(rule.limit.model.as_deref()).or_default().insert(rule.account_name);
            match &rule.limit.scope {
                Scope::One(Subject::Service { tenant, .. }) => {
                    counts.services.entry(tenant).or_default().insert(subject);
                }
                Scope::One(Subject::User { tenant, .. }) => {
                    users.entry(tenant).or_default().insert(subject);
                }
                Scope::One(_) | Scope::EachUser { .. } => {}
            }
        }
        for (tenant, subjects) in users {
            let mut most: BTreeMap<Option<&str>, usize> = BTreeMap::new();
            for subject in subjects {
                for model in counts.models_of(&[subject]) {
                    let most = most.entry(model).or_default();
                    *most = counts.of(subject, model).max(*most);
                }
            }
            counts.users.insert(tenant, most);
        }
        counts
    }

    /// The accounts of the user with the most of them. Who has none for the model itself has those for any.
    fn of_users(&self, tenant: &str, model: Option<&str>) -> usize {
        let Some(most) = self.users.get(tenant) else { return 0 };
        let of = |model: Option<&str>| most.get(&model).copied().unwrap_or(0);
        of(None).max(of(model))
    }

    /// `None` stands for a model that no limit names.
    fn models_of(&self, subjects: &[SubjectId]) -> BTreeSet<Option<&'a str>> {
        let mut models: BTreeSet<Option<&str>> = subjects
            .iter()
            .filter_map(|s| self.accounts.get(s))
            .flat_map(|names| names.keys().copied())
            .collect();
        models.insert(None);
        models
    }

    fn of(&self, subject: SubjectId, model: Option<&str>) -> usize {
        let Some(names) = self.accounts.get(&subject) else { return 0 };
        let any = names.get(&None).map_or(0, BTreeSet::len);
        any + model.and_then(|model| names.get(&Some(model))).map_or(0, BTreeSet::len)
    }

    fn worst_of_key(&self, catalog: &Catalog, key: &Key) -> Option<(Option<&'a str>, usize)> {
        let chain = [
            tenant_id(&key.tenant),
            project_id(&key.tenant, &key.project),
            crate::subject::key_id(&key.tenant, &key.project, &key.id),
        ];
        let none = BTreeSet::new();
        let services = self.services.get(key.tenant.as_str()).unwrap_or(&none);
        let each = any_user(&key.tenant);
        let subjects: Vec<SubjectId> = chain.iter().chain(services).chain([&each]).copied().collect();
        let mut models = self.models_of(&subjects);
        models.extend(self.users.get(key.tenant.as_str()).into_iter().flat_map(BTreeMap::keys));
        for model in models {
            if model.is_some_and(|model| !catalog.may_use(key, model)) {
                continue;
            }
            let own: usize = chain.iter().map(|&subject| self.of(subject, model)).sum();
            let service = services.iter().map(|&subject| self.of(subject, model)).max().unwrap_or(0);
            let named = self.of_users(&key.tenant, model);
            let legs = own + service + named + self.of(each, model);
            if legs > LEGS_MAX {
                return Some((model, legs));
            }
        }
        None
    }
}

/// A subject of its own kind, so it is no user's.
fn any_user(tenant: &str) -> SubjectId {
    let mut digest = crate::digest::Digest::new("tollbook any user");
    digest.text(tenant);
    SubjectId(digest.short())
}

/// Ceilings above those of the level above them, which bind first (B229).
fn warnings(catalog: &Catalog, origins: &[usize]) -> Vec<Warning> {
    let mut ceilings: BTreeMap<(SubjectId, u64), (usize, u64)> = BTreeMap::new();
    for (rule, &origin) in catalog.rules.iter().zip(origins) {
        let Scope::One(subject) = &rule.limit.scope else { continue };
        let lowest =
            ceilings.entry((subject.id(), rule.account_name)).or_insert((origin, rule.limit.ceiling));
        if rule.limit.ceiling < lowest.1 {
            *lowest = (origin, rule.limit.ceiling);
        }
    }
    let mut warnings = Vec::new();
    for (rule, &origin) in catalog.rules.iter().zip(origins) {
        let parents = match &rule.limit.scope {
            Scope::One(Subject::Key { tenant, project, .. }) => {
                vec![("project", project_id(tenant, project)), ("tenant", tenant_id(tenant))]
            }
            Scope::One(
                Subject::Project { tenant, .. }
                | Subject::Service { tenant, .. }
                | Subject::User { tenant, .. },
            )
            | Scope::EachUser { tenant } => vec![("tenant", tenant_id(tenant))],
            Scope::One(Subject::Tenant { .. } | Subject::Pool { .. }) => continue,
        };
        for (level, subject) in parents {
            if let Some(&(parent, ceiling)) = ceilings.get(&(subject, rule.account_name))
                && rule.limit.ceiling > ceiling
            {
                let place = Place { list: List::Limits, index: origin, field: "ceiling" };
                warnings.push(Warning { place, kind: WarningKind::AboveParent { parent, level } });
                break;
            }
        }
    }
    warnings
}

/// What an id must be: not empty, at most `max` bytes, and printable.
///
/// # Errors
/// What it is not.
pub fn check_id(id: &str, max: usize) -> Result<(), ProblemKind> {
    if id.is_empty() {
        Err(ProblemKind::Empty)
    } else if id.len() > max {
        Err(ProblemKind::TooLong(max))
    } else if id.chars().any(char::is_control) {
        Err(ProblemKind::ControlCharacter)
    } else {
        Ok(())
    }
}
