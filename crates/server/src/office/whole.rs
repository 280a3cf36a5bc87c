//! All objects as one document, in the form of a configuration file's `plans`, `tenants`, `upstreams` and `models`, and
//! back.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tollbook_store::{ObjectKind, ObjectName};

use super::{When, Wish};
use crate::config::{Directory, Fault, SEALED, id_member, place};

type Document = Map<String, Value>;

/// What objects have to become for a document to be true. With `prune`, the plans and tenants among those objects that it
/// does not have are deleted. `hash` makes the hash of a secret that is given in the clear.
///
/// # Errors
/// Parts that are no objects or have no id.
pub fn wishes(
    document: Document,
    secrets: &dyn Secrets,
    prune: Option<&Directory>,
) -> Result<Vec<Wish>, Vec<Fault>> {
    let kinds = kinds(&document);
    let mut taking = Taking { wishes: BTreeMap::new(), faults: Vec::new(), secrets };
    taking.document(document);
    let Taking { wishes, faults, .. } = taking;
    if !faults.is_empty() {
        return Err(faults);
    }
    let gone = prune.into_iter().flat_map(Directory::keys).rev();
    let gone: Vec<ObjectName> =
        gone.filter(|name| kinds.contains(&name.kind) && !wishes.contains_key(*name)).cloned().collect();
    let wish = |(name, document)| Wish { name, document: Some(document), when: When::Any, cascade: false };
    let delete = |name| Wish { name, document: None, when: When::Any, cascade: true };
    // What goes below another that goes was there a moment ago, and may be gone with it.
    let gone = outermost(gone).into_iter().map(delete);
    Ok(wishes.into_iter().map(wish).chain(gone).collect())
}

/// What the store has in place of secrets that are given in the clear.
pub trait Secrets {
    /// The hash of a key's secret.
    fn hash(&self, secret: &str) -> String;
    /// An upstream's key, sealed; what is wrong if it cannot be.
    fn seal(&self, name: &ObjectName, secret: &str) -> Result<String, String>;
}

/// The kinds that a document speaks of: it says all of them.
fn kinds(document: &Document) -> Vec<ObjectKind> {
    use ObjectKind::{Key, Plan, Project, Service, Tenant, User};
    let mut kinds = vec![Plan, Tenant, Project, Key, Service, User];
    for (field, kind) in [("upstreams", ObjectKind::Upstream), ("models", ObjectKind::Model)] {
        if document.contains_key(field) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Without those whose owner is among them.
fn outermost(names: Vec<ObjectName>) -> Vec<ObjectName> {
    let all: BTreeSet<ObjectName> = names.iter().cloned().collect();
    let owner = |name: &ObjectName, kind| ObjectName {
        kind,
        tenant: name.tenant.clone(),
        project: if kind == ObjectKind::Project { name.project.clone() } else { String::new() },
        id: String::new(),
    };
    let is_below = |name: &ObjectName| match name.kind {
        ObjectKind::Project | ObjectKind::Service | ObjectKind::User => {
            all.contains(&owner(name, ObjectKind::Tenant))
        }
        ObjectKind::Key => {
            [ObjectKind::Tenant, ObjectKind::Project].into_iter().any(|kind| all.contains(&owner(name, kind)))
        }
        _ => false,
    };
    names.into_iter().filter(|name| !is_below(name)).collect()
}

struct Taking<'a> {
    wishes: BTreeMap<ObjectName, Document>,
    faults: Vec<Fault>,
    secrets: &'a dyn Secrets,
}

impl Taking<'_> {
    fn document(&mut self, mut document: Document) {
        let plans = self.list("", &mut document, "plans");
        let tenants = self.list("", &mut document, "tenants");
        let upstreams = self.list("", &mut document, "upstreams");
        let models = self.list("", &mut document, "models");
        for field in document.keys() {
            self.faults.push(fault(
                field,
                "is not known here; a document has `plans`, `tenants`, `upstreams` and `models`",
            ));
        }
        for (at, upstream) in upstreams {
            self.object(&at, ObjectKind::Upstream, upstream, ("", ""));
        }
        for (at, model) in models {
            self.object(&at, ObjectKind::Model, model, ("", ""));
        }
        for (at, plan) in plans {
            self.object(&at, ObjectKind::Plan, plan, ("", ""));
        }
        for (at, mut tenant) in tenants {
            let projects = self.list(&at, &mut tenant, "projects");
            let services = self.list(&at, &mut tenant, "services");
            let users = self.list(&at, &mut tenant, "users");
            let Some(owner) = self.object(&at, ObjectKind::Tenant, tenant, ("", "")) else { continue };
            for (at, service) in services {
                self.object(&at, ObjectKind::Service, service, (&owner, ""));
            }
            for (at, user) in users {
                self.object(&at, ObjectKind::User, user, (&owner, ""));
            }
            for (at, mut project) in projects {
                let keys = self.list(&at, &mut project, "keys");
                let Some(id) = self.object(&at, ObjectKind::Project, project, (&owner, "")) else { continue };
                for (at, key) in keys {
                    self.object(&at, ObjectKind::Key, key, (&owner, &id));
                }
            }
        }
    }

    /// The objects of a list, with their paths.
    fn list(&mut self, path: &str, object: &mut Document, field: &str) -> Vec<(String, Document)> {
        let path = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
        let items = match object.remove(field) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.faults.push(fault(&path, "must be a list"));
                return Vec::new();
            }
        };
        let mut objects = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            match item {
                Value::Object(object) => objects.push((path, object)),
                _ => self.faults.push(fault(&path, "must have fields")),
            }
        }
        objects
    }

    /// Takes an object; its id.
    fn object(
        &mut self,
        path: &str,
        kind: ObjectKind,
        mut document: Document,
        (tenant, project): (&str, &str),
    ) -> Option<String> {
        let member = id_member(kind);
        let id = match document.remove(member) {
            Some(Value::String(id)) => id,
            Some(Value::Number(id)) => id.to_string(),
            _ => {
                self.faults.push(fault(path, &format!("`{member}` is missing")));
                return None;
            }
        };
        let part = |of: &str, here: bool| if here { id.clone() } else { of.to_owned() };
        let name = ObjectName {
            kind,
            tenant: part(tenant, kind == ObjectKind::Tenant),
            project: part(project, kind == ObjectKind::Project),
            id: part("", !matches!(kind, ObjectKind::Tenant | ObjectKind::Project)),
        };
        if let Err(what) = closed(self.secrets, &name, &mut document) {
            self.faults.push(fault(path, &what));
        }
        if self.wishes.contains_key(&name) {
            self.faults.push(fault(path, &format!("{} is there twice", place(&name))));
        }
        self.wishes.insert(name, document);
        Some(id)
    }
}

/// Puts what the store may have in place of a secret in the clear.
///
/// # Errors
/// What is wrong, if it cannot be.
pub fn closed(secrets: &dyn Secrets, name: &ObjectName, document: &mut Document) -> Result<(), String> {
    match name.kind {
        ObjectKind::Key | ObjectKind::Operator if !document.contains_key("hash") => {
            let secret = match document.get("secret") {
                Some(Value::String(secret)) => secret.clone(),
                // Digits without quotes.
                Some(Value::Number(secret)) => secret.to_string(),
                _ => return Ok(()),
            };
            if secret.is_empty() {
                return Err("`secret` must not be empty".to_owned());
            }
            document.remove("secret");
            document.insert("hash".to_owned(), Value::from(secrets.hash(&secret)));
        }
        ObjectKind::Upstream => match document.remove("api_key") {
            Some(Value::String(secret)) => {
                document.insert(SEALED.to_owned(), Value::from(secrets.seal(name, &secret)?));
            }
            // Told to be without one.
            Some(Value::Null) => drop(document.insert(SEALED.to_owned(), Value::Null)),
            Some(_) => return Err("`api_key` is no text".to_owned()),
            None => {}
        },
        _ => {}
    }
    Ok(())
}

fn fault(field: &str, what: &str) -> Fault {
    Fault { object: String::new(), field: field.to_owned(), what: what.to_owned() }
}

/// All plans and tenants as one document. Operators are not among it.
pub fn nested(objects: &Directory) -> Value {
    let (mut plans, mut upstreams, mut models) = (Vec::new(), Vec::new(), Vec::new());
    let mut tenants: BTreeMap<&str, Value> = BTreeMap::new();
    let mut projects: BTreeMap<(&str, &str), Value> = BTreeMap::new();
    for (name, kept) in objects {
        let ObjectName { kind, tenant, project, id } = name;
        let document: Document = serde_json::from_str(&kept.document).unwrap_or_default();
        let with = |id: &str| {
            let mut whole = Map::from_iter([(id_member(*kind).to_owned(), Value::from(id))]);
            whole.extend(document.clone());
            Value::Object(whole)
        };
        match kind {
            ObjectKind::Plan => plans.push(with(id)),
            ObjectKind::Tenant => drop(tenants.insert(tenant, with(tenant))),
            ObjectKind::Project => drop(projects.insert((tenant, project), with(project))),
            ObjectKind::Key => {
                if let Some(owner) = projects.get_mut(&(tenant.as_str(), project.as_str())) {
                    push(owner, "keys", with(id));
                }
            }
            ObjectKind::Service => {
                if let Some(owner) = tenants.get_mut(tenant.as_str()) {
                    push(owner, "services", with(id));
                }
            }
            ObjectKind::User => {
                if let Some(owner) = tenants.get_mut(tenant.as_str()) {
                    push(owner, "users", with(id));
                }
            }
            ObjectKind::Operator => {}
            ObjectKind::Upstream => upstreams.push(with(id)),
            ObjectKind::Model => models.push(with(id)),
        }
    }
    for ((tenant, _), project) in projects {
        if let Some(owner) = tenants.get_mut(tenant) {
            push(owner, "projects", project);
        }
    }
    let mut whole = json!({"plans": plans, "tenants": tenants.into_values().collect::<Vec<_>>()});
    if let Value::Object(members) = &mut whole {
        // A store without them says nothing of them, and so does what it exports.
        let lists =
            [("upstreams", upstreams), ("models", models)].into_iter().filter(|(_, list)| !list.is_empty());
        members.extend(lists.map(|(name, list)| (name.to_owned(), Value::Array(list))));
    }
    whole
}

/// Adds to a list of an object.
fn push(owner: &mut Value, field: &str, value: Value) {
    let Value::Object(owner) = owner else { return };
    if let Value::Array(list) = owner.entry(field).or_insert_with(|| Value::Array(Vec::new())) {
        list.push(value);
    }
}
