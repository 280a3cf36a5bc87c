//! What operators define — plans, tenants, projects, keys, services, users, operators, upstreams, models — as documents, and how they changed.
//!
//! Invariants: a document and the record of its change are written together or not at all; changes are numbered without
//! gaps being reused, and a document's version is the number of the change that wrote it, so a version never comes back,
//! also where an object was deleted and made again. Changes are never removed: they are the feed that gateways follow and
//! the history that auditors read.
//! An object is found by its name, or by one of its marks: a mark is at most one object's, as of the end of each write.
//! Plain data: what a document means is known to whoever writes it. No document holds a secret in the clear.

use crate::Answer;

/// Longest document, in bytes.
pub const DOCUMENT_MAX: usize = 64 << 10;
/// Most documents that one write changes.
pub const EDITS_MAX: usize = 10_000;
/// Most changes that one question returns.
pub const CHANGES_MAX: usize = 1_000;
/// Most objects on one page.
pub const OBJECTS_MAX: usize = 1_000;
/// Most marks of one object.
pub const MARKS_MAX: usize = 8;
/// Longest mark, in bytes.
pub const MARK_MAX: usize = 128;

/// What an object is. The order is that in which they can be made; stores number kinds by it, so a new one comes last.
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
    /// An end user of a tenant, as clients name it.
    User,
}

impl ObjectKind {
    pub const ALL: [Self; 9] = [
        Self::Plan,
        Self::Tenant,
        Self::Project,
        Self::Key,
        Self::Service,
        Self::Operator,
        Self::Upstream,
        Self::Model,
        Self::User,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Tenant => "tenant",
            Self::Project => "project",
            Self::Key => "key",
            Self::Service => "service",
            Self::User => "user",
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

impl ObjectName {
    /// Of a tenant.
    pub fn tenant(id: &str) -> Self {
        Self { tenant: id.to_owned(), ..Self::before(ObjectKind::Tenant) }
    }

    /// Of what has no owner: plans, operators, upstreams, models.
    pub fn common(kind: ObjectKind, id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::before(kind) }
    }

    /// What stands before all names of a kind.
    pub fn before(kind: ObjectKind) -> Self {
        Self { kind, tenant: String::new(), project: String::new(), id: String::new() }
    }
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
    /// All that it is found by from now on, besides its name: at most [`MARKS_MAX`], each of 1 to [`MARK_MAX`] bytes,
    /// compared byte for byte. Of a deleted object none.
    pub marks: Vec<String>,
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

/// Objects, as of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Objects {
    /// The newest change's number; 0 before the first.
    pub revision: u64,
    /// By name.
    pub objects: Vec<Object>,
}

/// Which objects of one kind a question is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectsQuery {
    pub kind: ObjectKind,
    /// Only objects of this tenant.
    pub tenant: Option<String>,
    /// Only objects of this project; it needs a tenant.
    pub project: Option<String>,
    /// How an object's own id begins: a tenant's name, a project's, any other's id. It needs the ids that lead there, so
    /// that what is passed over is not read: keys the tenant and the project, projects and services the tenant.
    pub prefix: String,
    /// Only objects after this name.
    pub after: Option<ObjectName>,
    /// At most [`OBJECTS_MAX`].
    pub limit: usize,
}

impl ObjectsQuery {
    /// All objects of a kind, from the first.
    pub fn of(kind: ObjectKind, limit: usize) -> Self {
        Self { kind, tenant: None, project: None, prefix: String::new(), after: None, limit }
    }
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
    /// All objects of those kinds, with the revision they are of.
    fn objects_of<'a>(&'a self, kinds: &'a [ObjectKind]) -> Answer<'a, Objects>;
    /// A tenant, its projects, keys and services, with the revision they are of; none if the tenant is not there.
    fn tenant_objects<'a>(&'a self, tenant: &'a str) -> Answer<'a, Objects>;
    /// One object, if it is there.
    fn object<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Option<Object>>;
    /// The object that has this mark.
    fn marked<'a>(&'a self, mark: &'a str) -> Answer<'a, Option<ObjectName>>;
    /// One page of the objects of a kind, in the order of their names, with the revision they are of.
    fn objects_page<'a>(&'a self, query: &'a ObjectsQuery) -> Answer<'a, Objects>;
    /// The changes after `revision`, oldest first, at most [`CHANGES_MAX`]. Cheap where there is none.
    fn changes_since(&self, revision: u64) -> Answer<'_, Vec<Change>>;
    /// Writes all edits, or none where something was changed since `revision`: then `None`. Otherwise the new revision;
    /// the changes are numbered from `revision` + 1 in the order of the edits. To delete what is not there is refused, and so
    /// is a mark that another object has when all edits are made ([`StoreErrorKind::Taken`](crate::StoreErrorKind::Taken)).
    fn write<'a>(&'a self, revision: u64, who: &'a str, edits: &'a [Edit]) -> Answer<'a, Option<u64>>;
    /// What was changed, newest first.
    fn changes<'a>(&'a self, query: &'a ChangesQuery) -> Answer<'a, Vec<Change>>;
}
