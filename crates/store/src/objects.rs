//! What operators define — plans, tenants, projects, keys, services, operators, upstreams, models — as documents, and how they changed.
//!
//! Invariants: a document and the record of its change are written together or not at all; changes are numbered without
//! gaps being reused, and a document's version is the number of the change that wrote it, so a version never comes back,
//! also where an object was deleted and made again. Changes are never removed: they are the feed that gateways follow and
//! the history that auditors read.
//! Plain data: what a document means is known to whoever writes it. No document holds a secret in the clear.

use crate::Answer;

/// Longest document, in bytes.
pub const DOCUMENT_MAX: usize = 64 << 10;
/// Most documents that one write changes.
pub const EDITS_MAX: usize = 10_000;
/// Most changes that one question returns.
pub const CHANGES_MAX: usize = 1_000;

/// What an object is. The order is that in which they can be made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ObjectKind {
    Plan,
    Tenant,
    Project,
    Key,
    Service,
    Operator,
    /// An account with a provider. Its key is sealed.
    Upstream,
    Model,
}

impl ObjectKind {
    pub const ALL: [Self; 8] = [
        Self::Plan,
        Self::Tenant,
        Self::Project,
        Self::Key,
        Self::Service,
        Self::Operator,
        Self::Upstream,
        Self::Model,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Tenant => "tenant",
            Self::Project => "project",
            Self::Key => "key",
            Self::Service => "service",
            Self::Operator => "operator",
            Self::Upstream => "upstream",
            Self::Model => "model",
        }
    }
}

/// What an object is called: its kind and the ids that lead to it; empty where the kind has none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectName {
    pub kind: ObjectKind,
    /// Of tenants and what belongs to them.
    pub tenant: String,
    /// Of projects and keys.
    pub project: String,
    /// Of all but tenants and projects.
    pub id: String,
}

/// One object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub name: ObjectName,
    /// The number of the change that wrote it.
    pub version: u64,
    pub document: String,
    /// Unix milliseconds of the store's clock.
    pub created_at: u64,
    pub changed_at: u64,
}

/// One object's next document; `None` deletes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    pub name: ObjectName,
    pub document: Option<String>,
}

/// What was changed, when and by whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// 1, 2, … over all objects.
    pub number: u64,
    /// Unix milliseconds of the store's clock.
    pub at: u64,
    /// Who asked for it.
    pub who: String,
    pub name: ObjectName,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// All objects, as of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Objects {
    /// The newest change's number; 0 before the first.
    pub revision: u64,
    /// By name.
    pub objects: Vec<Object>,
}

/// Which changes a question is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangesQuery {
    /// Only changes of this tenant's objects.
    pub tenant: Option<String>,
    /// Only changes before this number, newest first.
    pub before: Option<u64>,
    /// At most [`CHANGES_MAX`].
    pub limit: usize,
}

/// Keeps what operators define. Object safe.
pub trait ObjectStore: Send + Sync + 'static {
    /// All of them, with the revision they are of.
    fn objects(&self) -> Answer<'_, Objects>;
    /// The changes after `revision`, oldest first, at most [`CHANGES_MAX`]. Cheap where there is none.
    fn changes_since(&self, revision: u64) -> Answer<'_, Vec<Change>>;
    /// Writes all edits, or none where something was changed since `revision`: then `None`. Otherwise the new revision;
    /// the changes are numbered from `revision` + 1 in the order of the edits. To delete what is not there is refused.
    fn write<'a>(&'a self, revision: u64, who: &'a str, edits: &'a [Edit]) -> Answer<'a, Option<u64>>;
    /// What was changed, newest first.
    fn changes<'a>(&'a self, query: &'a ChangesQuery) -> Answer<'a, Vec<Change>>;
}
