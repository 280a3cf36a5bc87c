//! The store's objects as typed forms, and what a file says about them.
//!
//! A document is JSON in the form the file has for the same thing, without its id and without its children, which are
//! objects of their own. Mistakes are told by object and field.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tollbook_admission::{ApiKeyHash, TokenizerFile};
use tollbook_policy::Catalog;
use tollbook_pricing::PriceBook;
use tollbook_store::{ObjectKind, ObjectName};

use super::file::{self, File};
use super::mistakes::Mistakes;
use super::node::{Field, Kind, Node, Scalar};
use super::problem::{LoadError, Place};
use super::setup::{self, Setup};
use super::tokenizers::Look;
use super::{Source, catalog, engine, read, warnings};
use crate::seal::Seal;
use crate::text::escaped;

/// Digits that every number in JSON keeps.
const JSON_DIGITS: usize = 15;

/// A document, typed.
#[derive(Debug)]
pub enum Form {
    Plan(file::Plan),
    Tenant(file::Tenant),
    Project(file::Project),
    Key(file::Key),
    Service(file::Service),
    User(file::User),
    Operator(file::Operator),
    Upstream(Box<file::Upstream>),
    Model(Box<file::Model>),
}

/// An object as it is in force.
#[derive(Debug)]
pub struct Kept {
    pub version: u64,
    /// As the store has it.
    pub document: String,
    /// Unix milliseconds.
    pub created_at: u64,
    pub changed_at: u64,
    pub form: Form,
}

/// All objects, by name.
pub type Directory = BTreeMap<ObjectName, Arc<Kept>>;

/// What is wrong with an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// As in the operators' API, `tenants/acme/projects/web`; empty where it is not of one object.
    pub object: String,
    /// `limits[0].ceiling`; empty for the whole object.
    pub field: String,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = [&self.object, &self.field];
        for part in told.into_iter().filter(|part| !part.is_empty()) {
            write!(f, "{part}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// Where an object is in the operators' API, below its version.
pub fn place(name: &ObjectName) -> String {
    let ObjectName { kind, tenant, project, id } = name;
    let (tenant, project, id) = (escaped(tenant), escaped(project), escaped(id));
    match kind {
        ObjectKind::Plan => format!("plans/{id}"),
        ObjectKind::Tenant => format!("tenants/{tenant}"),
        ObjectKind::Project => format!("tenants/{tenant}/projects/{project}"),
        ObjectKind::Key => format!("tenants/{tenant}/projects/{project}/keys/{id}"),
        ObjectKind::Service => format!("tenants/{tenant}/services/{id}"),
        ObjectKind::User => format!("tenants/{tenant}/users/{id}"),
        ObjectKind::Operator => format!("operators/{id}"),
        ObjectKind::Upstream => format!("upstreams/{id}"),
        ObjectKind::Model => format!("models/{id}"),
    }
}

/// Ends an object's place in the path of a mistake; no text that can be kept has it.
const END: char = '\u{1f}';

/// What the paths of an object's mistakes begin with.
pub(super) fn path(name: &ObjectName) -> String {
    format!("{}{END}", place(name))
}

fn fault((path, what, help): (String, String, String)) -> Fault {
    let (object, field) = path.split_once(END).unwrap_or(("", &path));
    let what = if help.is_empty() { what } else { format!("{what}; {help}") };
    Fault {
        object: object.to_owned(),
        field: field.trim_start_matches('.').to_owned(),
        what: readable(&what),
    }
}

/// The pool of a model.
pub fn pool_of(form: &Form) -> Option<String> {
    match form {
        Form::Model(model) => Some(catalog::pool_id(model)),
        _ => None,
    }
}

/// Where a limit is written, for people; whether that is the store.
pub fn origin(path: &str) -> (String, bool) {
    (readable(path), path.contains(END))
}

/// Places in a text as they are shown: `tenants/acme: limits[0]`.
fn readable(text: &str) -> String {
    text.replace(&format!("{END}."), ": ").replace(END, "")
}

/// The tenant that an object belongs to.
pub(super) fn parent_tenant<'a>(objects: &'a Directory, name: &ObjectName) -> Option<&'a file::Tenant> {
    match &objects.get(&ObjectName::tenant(&name.tenant))?.form {
        Form::Tenant(tenant) => Some(tenant),
        _ => None,
    }
}

/// Reads a document.
///
/// # Errors
/// Every mistake of its form.
pub fn form(name: &ObjectName, document: &Map<String, Value>) -> Result<Form, Vec<Fault>> {
    let one = |field: &str, what: &str| {
        vec![Fault { object: place(name), field: field.to_owned(), what: what.to_owned() }]
    };
    if let Some(field) = children(name.kind).iter().find(|field| document.contains_key(**field)) {
        return Err(one(field, "are objects of their own"));
    }
    for (field, what) in secret_fields(name.kind) {
        if document.contains_key(*field) {
            return Err(one(field, what));
        }
    }
    let id = match name.kind {
        ObjectKind::Tenant => &name.tenant,
        ObjectKind::Project => &name.project,
        _ => &name.id,
    };
    let mut whole = document.clone();
    let member = id_member(name.kind);
    if whole.insert(member.to_owned(), Value::from(id.as_str())).is_some_and(|given| given != id.as_str()) {
        return Err(one(member, "is not the one in the path"));
    }
    whole.remove(SEALED);
    let node = node(&Value::Object(whole));
    Ok(match name.kind {
        ObjectKind::Plan => Form::Plan(typed(name, &node)?),
        ObjectKind::Tenant => Form::Tenant(typed(name, &node)?),
        ObjectKind::Project => Form::Project(typed(name, &node)?),
        ObjectKind::Key => Form::Key(typed(name, &node)?),
        ObjectKind::Service => Form::Service(typed(name, &node)?),
        ObjectKind::User => Form::User(typed(name, &node)?),
        ObjectKind::Operator => Form::Operator(typed(name, &node)?),
        ObjectKind::Upstream => Form::Upstream(Box::new(typed(name, &node)?)),
        ObjectKind::Model => Form::Model(Box::new(typed(name, &node)?)),
    })
}

/// The sealed key of an upstream.
pub const SEALED: &str = "sealed_api_key";

/// What a file calls the id of such an object.
pub fn id_member(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Upstream | ObjectKind::Model => "name",
        _ => "id",
    }
}

/// What a file has inside of such an object, and the store as objects of their own.
pub fn children(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Tenant => &["projects", "services", "users"],
        ObjectKind::Project => &["keys"],
        _ => &[],
    }
}

/// Fields that a document may not have: secrets in the clear, and files of the gateway's machine, which are not for those
/// who may change objects to name.
pub fn secret_fields(kind: ObjectKind) -> &'static [(&'static str, &'static str)] {
    const FILE: &str = "names a file of the gateway's machine; that is for its own configuration";
    match kind {
        ObjectKind::Key | ObjectKind::Operator => {
            &[("secret", "a document holds no secret; give its `hash`")]
        }
        ObjectKind::Upstream => {
            &[("api_key", "a document holds no secret in the clear"), ("api_key_file", FILE), ("tls", FILE)]
        }
        ObjectKind::Model => &[("tokenizer", FILE)],
        _ => &[],
    }
}

fn typed<T: DeserializeOwned>(name: &ObjectName, node: &Node) -> Result<T, Vec<Fault>> {
    read::read(node).map_err(|problems| {
        let fault = |problem: super::Problem| Fault {
            object: place(name),
            field: problem.path,
            what: if problem.help.is_empty() {
                problem.what
            } else {
                format!("{}; {}", problem.what, problem.help)
            },
        };
        problems.into_iter().map(fault).collect()
    })
}

/// Says where a number stands that may not be the one that was written: a fraction, or one beyond all integers, of more
/// digits than its type keeps. It is for what comes in; what the store has is what it is.
///
/// # Errors
/// The first one.
pub fn unrounded(name: &ObjectName, document: &Map<String, Value>) -> Result<(), Fault> {
    let what = "has more digits than a number in JSON keeps; write it in quotes".to_owned();
    match rounded(document) {
        None => Ok(()),
        Some(field) => Err(Fault { object: place(name), field, what }),
    }
}

fn rounded(fields: &Map<String, Value>) -> Option<String> {
    fields.iter().find_map(|(name, value)| rounded_in(name, value))
}

fn rounded_in(path: &str, value: &Value) -> Option<String> {
    match value {
        Value::Number(number) if number.as_i64().is_none() && number.as_u64().is_none() => {
            let text = number.to_string();
            let digits = text.split(['e', 'E']).next().unwrap_or_default().bytes().filter(u8::is_ascii_digit);
            (digits.skip_while(|digit| *digit == b'0').count() > JSON_DIGITS).then(|| path.to_owned())
        }
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| rounded_in(&format!("{path}[{index}]"), item))
        }
        Value::Object(fields) => rounded(fields).map(|rest| format!("{path}.{rest}")),
        _ => None,
    }
}

/// JSON as the tree that forms are read from; it has no lines.
fn node(value: &Value) -> Node {
    let place = Place { line: 0, column: 0 };
    let scalar = |text: String, plain| Kind::Scalar(Scalar { text, plain, written: None });
    let kind = match value {
        Value::Null => scalar("null".to_owned(), true),
        Value::Bool(_) | Value::Number(_) => scalar(value.to_string(), true),
        Value::String(text) => scalar(text.clone(), false),
        Value::Array(items) => Kind::List(items.iter().map(node).collect()),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| Field { name: name.clone(), place, value: node(value) };
            Kind::Map(fields.iter().map(field).collect())
        }
    };
    Node { place, kind }
}

/// The tree as JSON: what is written without quotes and looks like a number or a truth is one.
pub(super) fn json(node: &Node) -> Value {
    match &node.kind {
        Kind::Scalar(scalar) if scalar.is_null() => Value::Null,
        Kind::Scalar(Scalar { text, plain: true, .. }) => match text.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            // A fraction stays the text it is: it is exact. So does what would be written otherwise, as `007`.
            text => {
                let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
                number.map_or_else(|| Value::from(text), Value::from)
            }
        },
        Kind::Scalar(scalar) => Value::from(scalar.text.as_str()),
        Kind::List(items) => items.iter().map(json).collect(),
        Kind::Map(fields) => {
            Value::Object(fields.iter().map(|field| (field.name.clone(), json(&field.value))).collect())
        }
    }
}

/// What of a file objects are checked against, and become a catalog with.
#[derive(Debug)]
pub struct Base {
    pub(super) file: Arc<File>,
    pub(super) source: Source,
    pub(super) folder: PathBuf,
    pub(super) hasher: ApiKeyHash,
    pub(super) prices: PriceBook,
    pub(super) seal: Option<Arc<Seal>>,
}

impl Base {
    /// The file with the upstreams and models among the objects put in, checked as one. Tokenizers among `known` are taken
    /// where their files have not changed.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn with_providers(
        &self,
        objects: &Directory,
        known: &[Arc<TokenizerFile>],
    ) -> Result<Setup, Vec<Fault>> {
        let mut source = self.source.clone();
        let mut names: Vec<(String, &ObjectName)> = Vec::new();
        let mut faults = Vec::new();
        for (name, kept) in objects {
            let Some(field) = list_of(name.kind) else { continue };
            match self.opened(name, kept) {
                Ok(value) => names.push((add(&mut source.root, field, node(&value)), name)),
                Err(what) => {
                    faults.push(Fault {
                        object: place(name),
                        field: "api_key".to_owned(),
                        what: what.to_owned(),
                    });
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let told = |problems: Vec<super::Problem>| {
            let mut faults: Vec<Fault> =
                problems.into_iter().map(|problem| of_provider(problem, &names)).collect();
            faults.dedup();
            faults
        };
        let file: File = read::read(&source.root).map_err(told)?;
        setup::check(file, &source, &self.folder, Look::Whole(known)).map_err(|error| match error {
            LoadError::Invalid(report) => told(report.problems),
            LoadError::Read { .. } => {
                vec![Fault { object: String::new(), field: String::new(), what: error.to_string() }]
            }
        })
    }

    /// The document as a file would have it, with its secret.
    fn opened(&self, name: &ObjectName, kept: &Kept) -> Result<Value, &'static str> {
        let mut document: Map<String, Value> = serde_json::from_str(&kept.document).unwrap_or_default();
        document.insert(id_member(name.kind).to_owned(), Value::from(name.id.as_str()));
        let Some(sealed) = document.remove(SEALED) else { return Ok(Value::Object(document)) };
        let Some(seal) = &self.seal else { return Err("is sealed, and config.secrets_key is not set") };
        let opened = sealed.as_str().and_then(|sealed| seal.open(name, sealed));
        let opened = opened.ok_or("was sealed with another config.secrets_key, or for another object")?;
        document.insert("api_key".to_owned(), Value::from(opened.expose_secret()));
        Ok(Value::Object(document))
    }

    /// What seals secrets; `None` where no key for it is configured.
    pub(crate) fn seal(&self) -> Option<&Arc<Seal>> {
        self.seal.as_ref()
    }

    /// What all tenants share: the file's models. The plans among the objects are looked at.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn shared(&self, common: &Directory) -> Result<Catalog, Vec<Fault>> {
        let mut mistakes = Mistakes::default();
        let made = catalog::of_models(&mut mistakes, &self.file, common, &self.hasher);
        self.right(mistakes, made).map(|(catalog, _)| catalog)
    }

    /// The catalog of one tenant's objects on top of that, and what is legal but probably not meant. `common` are the
    /// objects that the shared one was made with.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn of_tenant(
        &self,
        shared: &Arc<Catalog>,
        common: &Directory,
        objects: &Directory,
    ) -> Result<(Catalog, Vec<String>), Vec<Fault>> {
        let mut mistakes = Mistakes::default();
        let made = catalog::of_tenant(&mut mistakes, shared, (common, objects), &self.hasher);
        self.right(mistakes, made)
    }

    fn right(
        &self,
        mut mistakes: Mistakes,
        made: Option<(Catalog, Vec<String>)>,
    ) -> Result<(Catalog, Vec<String>), Vec<Fault>> {
        engine::gateways(&mut mistakes, &self.file, made.as_ref().map(|(catalog, _)| catalog));
        match made {
            Some((catalog, mut told)) if mistakes.0.is_empty() => {
                told = told.iter().map(|told| readable(told)).collect();
                told.extend(warnings::unpriced(&self.file, &self.prices, &catalog));
                Ok((catalog, told))
            }
            _ => {
                let mut faults: Vec<Fault> = mistakes.0.into_iter().map(fault).collect();
                faults.sort();
                faults.dedup();
                Err(faults)
            }
        }
    }

    /// The hash by which keys and operators are known.
    pub fn hasher(&self) -> &ApiKeyHash {
        &self.hasher
    }
}

/// Where a file has such objects beside the store's.
fn list_of(kind: ObjectKind) -> Option<&'static str> {
    match kind {
        ObjectKind::Upstream => Some("upstreams"),
        ObjectKind::Model => Some("models"),
        _ => None,
    }
}

/// Adds to a list of the file, which is made if it is not there; tells its path.
fn add(root: &mut Node, name: &str, item: Node) -> String {
    let place = root.place;
    let Kind::Map(fields) = &mut root.kind else { return name.to_owned() };
    if !fields.iter().any(|field| field.name == name && matches!(field.value.kind, Kind::List(_))) {
        fields.retain(|field| field.name != name);
        let value = Node { place, kind: Kind::List(Vec::new()) };
        fields.push(Field { name: name.to_owned(), place, value });
    }
    let mut path = String::new();
    for field in fields.iter_mut().filter(|field| field.name == name) {
        if let Kind::List(list) = &mut field.value.kind {
            path = format!("{name}[{}]", list.len());
            list.push(item);
            break;
        }
    }
    path
}

/// A mistake of the whole, told of the object it is in.
fn of_provider(problem: super::Problem, names: &[(String, &ObjectName)]) -> Fault {
    let super::Problem { path, what, help, .. } = problem;
    let what = if help.is_empty() { what } else { format!("{what}; {help}") };
    for (at, name) in names {
        if let Some(rest) = path.strip_prefix(at.as_str())
            && (rest.is_empty() || rest.starts_with(['.', '[']))
        {
            return Fault { object: place(name), field: rest.trim_start_matches('.').to_owned(), what };
        }
    }
    Fault { object: String::new(), field: path, what }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(kind: ObjectKind, tenant: &str, project: &str, id: &str) -> ObjectName {
        ObjectName { kind, tenant: tenant.into(), project: project.into(), id: id.into() }
    }

    fn faults(name: &ObjectName, document: Value) -> Vec<String> {
        let Value::Object(document) = document else { panic!("no object") };
        form(name, &document).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn places_are_paths_and_ids_are_encoded() {
        assert_eq!(place(&name(ObjectKind::Key, "a/b", "p#", "k")), "tenants/a%2Fb/projects/p%23/keys/k");
        assert_eq!(place(&name(ObjectKind::Plan, "", "", "gold")), "plans/gold");
    }

    #[test]
    fn mistakes_of_form_are_told_by_object_and_field() {
        let tenant = name(ObjectKind::Tenant, "acme", "", "");
        let limit = |ceiling: Value| json!({"limits": [{"measure": "requests", "window": "60s", "ceiling": ceiling}]});
        assert!(form(&tenant, limit(json!(5)).as_object().unwrap()).is_ok());
        assert!(form(&tenant, limit(Value::Null).as_object().unwrap()).is_ok());
        assert_eq!(
            faults(&tenant, limit(json!("many"))),
            [
                "tenants/acme: limits[0].ceiling: must be a decimal number, as 600, 2.50 or 2.5e-06, not `many`"
            ]
        );
        assert_eq!(
            faults(&tenant, json!({"projects": []})),
            ["tenants/acme: projects: are objects of their own"]
        );
        assert_eq!(faults(&tenant, json!({"id": "other"})), ["tenants/acme: id: is not the one in the path"]);
        assert_eq!(faults(&tenant, json!({"zome": "UTC"})).len(), 1);
        let key = name(ObjectKind::Key, "acme", "web", "k");
        assert_eq!(faults(&key, json!({"secret": "x"})).len(), 1);
    }

    #[test]
    fn a_number_that_json_rounds_is_refused_where_it_comes_in_and_read_where_it_is() {
        let tenant = name(ObjectKind::Tenant, "acme", "", "");
        let limit = |text: &str| {
            let text = format!(r#"{{"limits":[{{"measure":"cost","window":"60s","ceiling":{text}}}]}}"#);
            serde_json::from_str::<Map<String, Value>>(&text).unwrap()
        };
        for text in ["8388608.000000001", "123456789012345678901234"] {
            let told = unrounded(&tenant, &limit(text)).unwrap_err().to_string();
            let wrong = "tenants/acme: limits[0].ceiling: has more digits than a number in JSON keeps; write it in quotes";
            assert_eq!(told, wrong);
        }
        assert!(
            form(&tenant, &limit("8388608.000000001")).is_ok(),
            "one that was written before is no fault"
        );
        for text in ["838860.000000001", "0.000000001", "18446744073709551615", "\"8388608.000000001\""] {
            assert_eq!(unrounded(&tenant, &limit(text)), Ok(()), "{text}");
        }
    }
}
