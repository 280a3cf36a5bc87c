//! Reads `tollbook.yaml`: text, tree, environment, typed file, domain.
//!
//! Each step names all mistakes it can, with line and column, and hands on only what has none.

mod alerts;
mod catalog;
mod clients;
mod engine;
mod environment;
pub mod file;
mod limits;
mod mistakes;
mod models;
pub(crate) mod node;
mod objects;
mod problem;
mod read;
mod reconcile;
mod setup;
mod tokenizers;
mod traces;
mod upstreams;
pub mod values;
mod warnings;

use std::path::Path;

pub use alerts::{Alerts, WEBHOOKS_MAX, Webhook};
pub use engine::Book;
pub use environment::Lookup;
pub use node::{DEPTH_MAX, FILE_BYTES_MAX, NODES_MAX};
pub use objects::{
    Base, Directory, Fault, Form, Kept, SEALED, children, form, id_member, origin, place, pool_of,
    secret_fields, unrounded,
};
pub use problem::{LoadError, PROBLEMS_MAX, Place, Problem, Report};
pub use reconcile::Reconcile;
pub use setup::{Admin, Setup, api_key_hash, journal, journal_keep_days, load, load_text, load_whole};

pub use tokenizers::Look;
pub use traces::Traces;

use mistakes::Mistake;
use node::{Kind, Node};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A file's form, and where each part of it stands.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    root: Node,
    /// Of the text.
    digest: blake3::Hash,
}

impl Source {
    /// Names mistakes by the paths of the parts at fault.
    fn report(&self, mistakes: Vec<Mistake>) -> Report {
        let place =
            |(path, what, help): Mistake| Problem { place: self.root.locate(&path), path, what, help };
        Report::new(&self.name, mistakes.into_iter().map(place).collect())
    }
}

/// Reads a file from disk.
pub fn read_file(path: &Path, lookup: Lookup<'_>) -> Result<(file::File, Source), LoadError> {
    let text = text_of(path)?;
    read_text(&path.display().to_string(), &text, lookup).map_err(LoadError::Invalid)
}

/// Reads some fields of a file from disk, as if it had no others.
fn read_fields<T: DeserializeOwned>(
    path: &Path,
    names: &[&str],
    lookup: Lookup<'_>,
) -> Result<(T, Source), LoadError> {
    let text = text_of(path)?;
    read_part(&path.display().to_string(), &text, Some(names), lookup).map_err(LoadError::Invalid)
}

fn text_of(path: &Path) -> Result<String, LoadError> {
    let name = path.display().to_string();
    let fail = |source| LoadError::Read { file: name.clone(), source };
    let found = std::fs::metadata(path).map_err(fail)?;
    // Opening a pipe would wait for whoever writes to it.
    if !found.is_file() {
        return Err(fail(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let length = found.len();
    if length > FILE_BYTES_MAX {
        let what = format!("larger than {FILE_BYTES_MAX} bytes");
        return Err(fail(std::io::Error::new(std::io::ErrorKind::FileTooLarge, what)));
    }
    std::fs::read_to_string(path).map_err(fail)
}

/// Reads a file's text; `name` stands for it in messages.
pub fn read_text(name: &str, text: &str, lookup: Lookup<'_>) -> Result<(file::File, Source), Report> {
    read_part(name, text, None, lookup)
}

/// Of all fields, or of these alone.
fn read_part<T: DeserializeOwned>(
    name: &str,
    text: &str,
    names: Option<&[&str]>,
    lookup: Lookup<'_>,
) -> Result<(T, Source), Report> {
    let report = |problems| Report::new(name, problems);
    let parsed = node::parse(text).map_err(|problem| report(vec![problem]))?;
    let Some(mut root) = parsed else {
        let what = "the file is empty".to_owned();
        let help = "see docs/config.example.yaml".to_owned();
        let place = Place { line: 1, column: 1 };
        return Err(report(vec![Problem { place, path: String::new(), what, help }]));
    };
    if let (Some(names), Kind::Map(fields)) = (names, &mut root.kind) {
        fields.retain(|field| names.contains(&field.name.as_str()));
    }
    let mut problems = Vec::new();
    environment::interpolate(&mut root, "", lookup, &mut problems);
    let typed = read::read(&root);
    if !problems.is_empty() {
        // A value that is still a variable has no form yet: of one place the variable is told alone.
        let form = typed.err().unwrap_or_default();
        let unset: Vec<Place> = problems.iter().map(|problem| problem.place).collect();
        problems.extend(form.into_iter().filter(|problem| !unset.contains(&problem.place)));
        return Err(report(problems));
    }
    let typed = typed.map_err(report)?;
    Ok((typed, Source { name: name.to_owned(), root, digest: blake3::hash(text.as_bytes()) }))
}

/// The plans and tenants of a file as one JSON object, and if asked for its upstreams and models, whatever else it holds; mistakes of form have line and column.
pub fn people(path: &Path, providers: bool, lookup: Lookup<'_>) -> Result<Map<String, Value>, LoadError> {
    let names: &[&str] =
        if providers { &["plans", "tenants", "upstreams", "models"] } else { &["plans", "tenants"] };
    let (People { .. }, source): (People, _) = read_fields(path, names, lookup)?;
    match objects::json(&source.root) {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct People {
    #[serde(default, rename = "plans")]
    _plans: Vec<file::Plan>,
    #[serde(default, rename = "tenants")]
    _tenants: Vec<file::Tenant>,
    #[serde(default, rename = "upstreams")]
    _upstreams: Vec<file::Upstream>,
    #[serde(default, rename = "models")]
    _models: Vec<file::Model>,
}

/// A value as YAML writes it in a line.
pub fn value(text: &str) -> Result<Value, String> {
    let node = node::parse(text).map_err(|problem| problem.what)?;
    Ok(node.as_ref().map_or(Value::Null, objects::json))
}

/// The JSON Schema of the file.
pub fn schema() -> Value {
    schemars::schema_for!(file::File).to_value()
}
