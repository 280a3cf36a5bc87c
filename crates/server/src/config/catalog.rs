//! Who may call what, and what binds them: the file's tree, or the store's objects, into the flat draft that `policy` checks.
//!
//! Every object of the draft remembers its path, so that what `policy` refuses is told with line and column, or with the
//! object's name.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::ExposeSecret;
use tollbook_admission::ApiKeyHash;
use tollbook_policy as policy;
use tollbook_policy::{Catalog, Draft, List, MeterPair, ProblemKind, Scope, Subject, WarningKind};

use super::file::{self, File};
use super::limits;
use super::mistakes::Mistakes;
use super::objects::{Directory, Form, parent_tenant, path};
use crate::key::KeyHash;

/// The paths of a draft's objects, list by list.
#[derive(Debug, Default)]
struct Paths {
    tenants: Vec<String>,
    projects: Vec<String>,
    keys: Vec<String>,
    services: Vec<String>,
    users: Vec<String>,
    pools: Vec<String>,
    models: Vec<String>,
    limits: Vec<String>,
}

/// The tenant's zone for its limits; one that nobody knows is told at the tenant and not again at each limit.
fn known_zone(tenant: &file::Tenant) -> Option<&str> {
    tenant.zone.as_deref().filter(|name| jiff::tz::TimeZoneDatabase::bundled().get(name).is_ok())
}

/// The pool that serves a model: the upstream's account × the model's name there.
pub(super) fn pool_id(model: &file::Model) -> String {
    format!("{}/{}", model.upstream, model.upstream_model.as_deref().unwrap_or(&model.name))
}

/// The catalog and what is legal but probably not meant, or nothing after the mistakes were told.
pub(super) fn catalog(
    mistakes: &mut Mistakes,
    file: &File,
    hasher: &ApiKeyHash,
) -> Option<(Catalog, Vec<String>)> {
    made(mistakes, None, hasher, |maker| {
        maker.models(file);
        for (index, plan) in file.plans.iter().enumerate() {
            maker.plan(format!("plans[{index}]"), plan);
        }
        for (index, tenant) in file.tenants.iter().enumerate() {
            maker.tenant(&format!("tenants[{index}]"), tenant);
        }
    })
}

/// What all tenants of the store share: the models of a file, which has no tenants then. The plans among the objects are
/// looked at.
pub(super) fn of_models(
    mistakes: &mut Mistakes,
    file: &File,
    common: &Directory,
    hasher: &ApiKeyHash,
) -> Option<(Catalog, Vec<String>)> {
    made(mistakes, None, hasher, |maker| {
        maker.models(file);
        for (name, kept) in common {
            if let Form::Plan(plan) = &kept.form {
                maker.plan(path(name), plan);
            }
        }
    })
}

/// What one tenant has, on top of that. The plans of `common` were looked at with it.
pub(super) fn of_tenant(
    mistakes: &mut Mistakes,
    below: &Arc<Catalog>,
    (common, objects): (&Directory, &Directory),
    hasher: &ApiKeyHash,
) -> Option<(Catalog, Vec<String>)> {
    made(mistakes, Some(below), hasher, |maker| {
        for (name, kept) in common {
            if let Form::Plan(plan) = &kept.form {
                maker.plans.insert(&plan.id, (path(name), plan));
            }
        }
        // By name, and so by kind: a tenant comes before what it has.
        for (name, kept) in objects {
            let zone = parent_tenant(objects, name).and_then(known_zone);
            let (at, tenant, project) = (path(name), &name.tenant, &name.project);
            match &kept.form {
                Form::Tenant(tenant) => maker.tenant(&at, tenant),
                Form::Project(project) => maker.project(&at, (tenant, zone), project),
                Form::Key(key) => maker.key(&at, (tenant, zone), project, key),
                Form::Service(service) => maker.service(&at, (tenant, zone), service),
                Form::User(user) => maker.user(&at, (tenant, zone), user),
                Form::Plan(_) | Form::Operator(_) | Form::Upstream(_) | Form::Model(_) => {}
            }
        }
    })
}

fn made<'a>(
    mistakes: &'a mut Mistakes,
    below: Option<&Arc<Catalog>>,
    hasher: &'a ApiKeyHash,
    who: impl FnOnce(&mut Maker<'a>),
) -> Option<(Catalog, Vec<String>)> {
    let before = mistakes.0.len();
    let (draft, paths) = (Draft::default(), Paths::default());
    let (plans, key_ids) = (BTreeMap::new(), BTreeMap::new());
    let mut maker = Maker { mistakes, hasher, draft, paths, plans, key_ids };
    who(&mut maker);
    let Maker { mistakes, draft, paths, .. } = maker;
    // A limit with mistakes is not in the draft, so indices and paths still agree.
    let catalog = match below {
        Some(below) => Catalog::on(below, draft),
        None => Catalog::new(draft),
    };
    match catalog {
        Ok(catalog) if mistakes.0.len() == before => {
            let warnings = catalog.warnings().iter().map(|warning| warning_text(warning, &paths)).collect();
            Some((catalog, warnings))
        }
        Ok(_) => None,
        Err(problems) => {
            for problem in problems {
                let what = problem_text(&problem.kind, &paths);
                mistakes.add(path_of(&problem.place, &paths), what);
            }
            None
        }
    }
}

struct Maker<'a> {
    mistakes: &'a mut Mistakes,
    hasher: &'a ApiKeyHash,
    draft: Draft,
    paths: Paths,
    /// With their paths.
    plans: BTreeMap<&'a str, (String, &'a file::Plan)>,
    /// The first key of each id.
    key_ids: BTreeMap<String, usize>,
}

impl<'a> Maker<'a> {
    fn models(&mut self, file: &File) {
        let mut meters: BTreeMap<String, (MeterPair, String)> = BTreeMap::new();
        for (index, model) in file.models.iter().enumerate() {
            let path = format!("models[{index}]");
            let pool = pool_id(model);
            let dialect =
                file.upstreams.iter().find(|upstream| upstream.name == model.upstream).map(|u| u.dialect);
            if dialect.is_none() {
                let mut known: Vec<&str> =
                    file.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
                known.dedup();
                let help = format!("known are {}", known.join(", "));
                let what = format!("there is no upstream `{}`", model.upstream);
                self.mistakes.add_with_help(format!("{path}.upstream"), what, help);
            }
            let given = model
                .meter
                .as_ref()
                .map(|meter| limits::meter(self.mistakes, &format!("{path}.meter"), meter));
            let meter = given.flatten().unwrap_or(match dialect {
                Some(file::Dialect::Anthropic) => MeterPair::WITHOUT_CACHE_READ,
                _ => MeterPair::PLAIN,
            });
            match meters.get(&pool) {
                None => {
                    meters.insert(pool.clone(), (meter, path.clone()));
                    self.draft.pools.push(policy::Pool { id: pool.clone(), meter });
                    self.paths.pools.push(path.clone());
                }
                Some((other, first)) if *other != meter => {
                    let what = format!("contradicts {first}, which is served by the same upstream model");
                    self.mistakes.add(format!("{path}.meter"), what);
                }
                Some(_) => {}
            }
            let (id, aliases, pools) = (model.name.clone(), model.aliases.clone(), vec![pool.clone()]);
            self.draft.models.push(policy::Model { id, aliases, pools });
            self.paths.models.push(path.clone());
            self.limits(&path, "limits", &Scope::One(Subject::Pool { pool }), None, &model.limits);
        }
    }

    fn plan(&mut self, path: String, plan: &'a file::Plan) {
        if let Err(kind) = policy::check_id(&plan.id, policy::ID_MAX) {
            self.mistakes.add(format!("{path}.id"), kind.to_string());
        }
        if let Some((first, _)) = self.plans.get(plan.id.as_str()) {
            let what = format!("`{}` is already taken by {first}", plan.id);
            return self.mistakes.add(format!("{path}.id"), what);
        }
        // Looked at here too: a plan that no tenant has yet must be right.
        let nobody = Scope::One(Subject::Tenant { tenant: String::new() });
        for (field, list) in [("limits", &plan.limits), ("user_limits", &plan.user_limits)] {
            for (index, limit) in list.iter().enumerate() {
                limits::draft(
                    self.mistakes,
                    &format!("{path}.{field}[{index}]"),
                    nobody.clone(),
                    None,
                    limit,
                );
            }
        }
        self.plans.insert(&plan.id, (path, plan));
    }

    /// What a tenant has of its plan.
    fn plan_limits(&mut self, path: &str, tenant: &file::Tenant, zone: Option<&str>) {
        let Some(name) = &tenant.plan else { return };
        let Some((at, plan)) = self.plans.get(name.as_str()) else {
            let known: Vec<&str> = self.plans.keys().copied().collect();
            let help =
                if known.is_empty() { String::new() } else { format!("known are {}", known.join(", ")) };
            return self.mistakes.add_with_help(
                format!("{path}.plan"),
                format!("there is no plan `{name}`"),
                help,
            );
        };
        let (at, plan) = (at.clone(), *plan);
        let id = &tenant.id;
        let all = Scope::One(Subject::Tenant { tenant: id.clone() });
        let each = Scope::EachUser { tenant: id.clone() };
        let first = self.draft.limits.len();
        self.limits(&at, "limits", &all, zone, &plan.limits);
        self.limits(&at, "user_limits", &each, zone, &plan.user_limits);
        // Names are unique, and every tenant of the plan has these.
        for limit in self.draft.limits.iter_mut().skip(first) {
            limit.name = limit.name.take().map(|name| format!("{name} of {id}"));
        }
    }

    fn tenant(&mut self, path: &str, tenant: &'a file::Tenant) {
        let id = tenant.id.clone();
        let zone = known_zone(tenant);
        if let (None, Some(name)) = (zone, &tenant.zone) {
            self.mistakes
                .add(format!("{path}.zone"), format!("there is no time zone `{name}` in the bundled table"));
        }
        self.draft.tenants.push(policy::Tenant { id: id.clone(), disabled: tenant.disabled });
        self.paths.tenants.push(path.to_owned());
        self.limits(
            path,
            "limits",
            &Scope::One(Subject::Tenant { tenant: id.clone() }),
            zone,
            &tenant.limits,
        );
        self.limits(path, "user_limits", &Scope::EachUser { tenant: id }, zone, &tenant.user_limits);
        self.plan_limits(path, tenant, zone);
        let owner = (tenant.id.as_str(), zone);
        for (index, project) in tenant.projects.iter().enumerate() {
            self.project(&format!("{path}.projects[{index}]"), owner, project);
        }
        for (index, service) in tenant.services.iter().enumerate() {
            self.service(&format!("{path}.services[{index}]"), owner, service);
        }
        for (index, user) in tenant.users.iter().enumerate() {
            self.user(&format!("{path}.users[{index}]"), owner, user);
        }
    }

    /// `owner`: the tenant's id and zone, here and below.
    fn project(&mut self, path: &str, owner: (&str, Option<&str>), project: &file::Project) {
        let (tenant, id) = (owner.0.to_owned(), project.id.clone());
        let disabled = project.disabled;
        self.draft.projects.push(policy::Project { tenant: tenant.clone(), id: id.clone(), disabled });
        self.paths.projects.push(path.to_owned());
        let scope = Scope::One(Subject::Project { tenant, project: id.clone() });
        self.limits(path, "limits", &scope, owner.1, &project.limits);
        for (index, key) in project.keys.iter().enumerate() {
            self.key(&format!("{path}.keys[{index}]"), owner, &id, key);
        }
    }

    fn key(&mut self, path: &str, owner: (&str, Option<&str>), project: &str, key: &file::Key) {
        self.key_itself(path, owner.0, project, key);
        let (tenant, project) = (owner.0.to_owned(), project.to_owned());
        let subject = Subject::Key { tenant, project, key: key.id.clone() };
        self.limits(path, "limits", &Scope::One(subject), owner.1, &key.limits);
    }

    fn key_itself(&mut self, path: &str, tenant: &str, project: &str, key: &file::Key) {
        let mut secrets = Vec::new();
        match (&key.hash, &key.secret) {
            (Some(hash), None) => secrets.extend(self.hash(&format!("{path}.hash"), hash, None)),
            (None, Some(secret)) => {
                let digest = self.hasher.digest(secret.0.expose_secret());
                secrets.push(policy::Secret { digest, expires_at: None });
            }
            _ => self.mistakes.add_with_help(
                path,
                "a key has either `hash` or `secret`",
                "make one with `tollbook keys new`",
            ),
        }
        if let Some(previous) = &key.previous {
            let until = self.mistakes.instant(&format!("{path}.previous.until"), &previous.until);
            secrets.extend(self.hash(&format!("{path}.previous.hash"), &previous.hash, until));
        }
        let expires_at =
            key.expires.as_ref().and_then(|text| self.mistakes.instant(&format!("{path}.expires"), text));
        // A key without a secret was told of above; the catalog need not say it again.
        let placeholder = || policy::Secret { digest: self.hasher.digest(path), expires_at: None };
        if secrets.is_empty() {
            secrets.push(placeholder());
        }
        let index = *self.key_ids.entry(key.id.clone()).or_insert(self.draft.keys.len());
        // Twice in one project is told by `policy`.
        let elsewhere =
            |other: &policy::Key| (other.tenant.as_str(), other.project.as_str()) != (tenant, project);
        if self.draft.keys.get(index).is_some_and(elsewhere) {
            let first = self.paths.keys.get(index).cloned().unwrap_or_default();
            self.mistakes.add(format!("{path}.id"), format!("`{}` is already taken by {first}", key.id));
        }
        let addresses = self.addresses(path, key.addresses.as_deref());
        self.draft.keys.push(policy::Key {
            tenant: tenant.to_owned(),
            project: project.to_owned(),
            id: key.id.clone(),
            secrets,
            disabled: key.disabled,
            expires_at,
            models: key.models.clone(),
            addresses,
            service: key.service.clone(),
        });
        self.paths.keys.push(path.to_owned());
    }

    fn hash(&mut self, path: &str, text: &str, expires_at: Option<u64>) -> Option<policy::Secret> {
        let hash = KeyHash::parse(text);
        if hash.is_none() {
            let what = "must be `blake3:` and 64 hexadecimal digits";
            self.mistakes.add_with_help(path, what, "make one with `tollbook keys new`");
        }
        hash.map(|hash| policy::Secret { digest: hash.0, expires_at })
    }

    fn addresses(&mut self, path: &str, given: Option<&[String]>) -> Option<Vec<policy::Network>> {
        let mut networks = Vec::new();
        for (index, text) in given?.iter().enumerate() {
            let network = policy::Network::parse(text);
            if network.is_none() {
                let what = format!("must be an address or a network, as 10.0.0.0/8, not `{text}`");
                self.mistakes.add(format!("{path}.addresses[{index}]"), what);
            }
            networks.extend(network);
        }
        Some(networks)
    }

    fn service(&mut self, path: &str, owner: (&str, Option<&str>), service: &file::Service) {
        let (tenant, id) = (owner.0.to_owned(), service.id.clone());
        let disabled = service.status == file::Status::Off;
        self.draft.services.push(policy::Service { tenant: tenant.clone(), id: id.clone(), disabled });
        self.paths.services.push(path.to_owned());
        let scope = Scope::One(Subject::Service { tenant, service: id });
        for (field, measure, ceiling) in
            [("rpm", policy::Measure::Requests, service.rpm), ("tpm", policy::Measure::Tokens, service.tpm)]
        {
            let Some(ceiling) = ceiling else { continue };
            let shape =
                policy::ShapeDraft::Quota { period: policy::PeriodKind::Minute, zone: None, anchor: None };
            let mut draft = policy::LimitDraft::new(scope.clone(), measure, shape, i128::from(ceiling));
            draft.strictness = Some(policy::Strictness::Soft);
            let path = format!("{path}.{field}");
            draft.origin = Some(path.as_str().into());
            self.draft.limits.push(draft);
            self.paths.limits.push(path);
        }
        self.limits(path, "limits", &scope, owner.1, &service.limits);
    }

    fn user(&mut self, path: &str, owner: (&str, Option<&str>), user: &file::User) {
        let (tenant, id) = (owner.0.to_owned(), user.id.clone());
        let disabled = user.status == file::UserStatus::Disabled;
        self.draft.users.push(policy::User { tenant: tenant.clone(), id: id.clone(), disabled });
        self.paths.users.push(path.to_owned());
        let scope = Scope::One(Subject::User { tenant, user: id });
        self.limits(path, "limits", &scope, owner.1, &user.limits);
    }

    fn limits(&mut self, path: &str, field: &str, scope: &Scope, zone: Option<&str>, limits: &[file::Limit]) {
        for (index, limit) in limits.iter().enumerate() {
            let path = format!("{path}.{field}[{index}]");
            if let Some(draft) = limits::draft(self.mistakes, &path, scope.clone(), zone, limit) {
                self.draft.limits.push(draft);
                self.paths.limits.push(path);
            }
        }
    }
}

/// Where the file says what `policy` speaks of.
fn path_of(place: &policy::Place, paths: &Paths) -> String {
    let list = match place.list {
        List::Tenants => &paths.tenants,
        List::Projects => &paths.projects,
        List::Keys => &paths.keys,
        List::Services => &paths.services,
        List::Users => &paths.users,
        List::Pools => &paths.pools,
        List::Models => &paths.models,
        List::Limits => &paths.limits,
    };
    let object = list.get(place.index).map_or("", String::as_str);
    let field = match (place.list, place.field) {
        (_, "" | "shape" | "scope" | "tenant" | "project") => return object.to_owned(),
        (List::Models, "id") => "name",
        (List::Models, "pools") => "upstream",
        (List::Pools, "id") => "upstream_model",
        (List::Keys, "secrets") => "hash",
        // `rpm` and `tpm` are the whole limit.
        (List::Limits, _) if !object.ends_with(']') => return object.to_owned(),
        (_, field) => field,
    };
    format!("{object}.{field}")
}

fn limit_path(paths: &Paths, index: usize) -> &str {
    paths.limits.get(index).map_or("another limit", String::as_str)
}

fn problem_text(kind: &ProblemKind, paths: &Paths) -> String {
    match kind {
        ProblemKind::Contradicts { other, setting } => {
            format!("contradicts {}, which shares its account: {setting} differs", limit_path(paths, *other))
        }
        other => other.to_string(),
    }
}

fn warning_text(warning: &policy::Warning, paths: &Paths) -> String {
    let path = path_of(&warning.place, paths);
    match &warning.kind {
        WarningKind::AboveParent { parent, level } => {
            format!("{path}: is above {} of its {level}, which binds first", limit_path(paths, *parent))
        }
    }
}
