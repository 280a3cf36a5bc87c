//! Who is charged.
//!
//! Invariants: a subject's digest is over its kind and its ids with their lengths, so no two subjects share one
//! (B209); user text is only ever digested, never part of a store key (B210).

use crate::digest::Digest;
use tollbook_ledger::SubjectId;

/// Longest id of a tenant, project, key, service or pool, in bytes.
pub const ID_MAX: usize = 64;
/// Longest id or alias of a model, in bytes.
pub const MODEL_ID_MAX: usize = 64;
/// Longest id of an end user, which comes from the client, in bytes. What the journal keeps whole.
pub const USER_ID_MAX: usize = 64;
/// Most end users of a tenant of whom something is configured; how many call is not bounded.
pub const USERS_MAX: usize = 10_000;

/// Who is charged. A key hangs on its id, not on its secret: rotation keeps its accounts (B228).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    Tenant {
        tenant: String,
    },
    Project {
        tenant: String,
        project: String,
    },
    Key {
        tenant: String,
        project: String,
        key: String,
    },
    /// A fixed business service of a tenant.
    Service {
        tenant: String,
        service: String,
    },
    /// An end user of a tenant.
    User {
        tenant: String,
        user: String,
    },
    /// One upstream account × model: the provider's own limit on us.
    Pool {
        pool: String,
    },
}

impl Subject {
    /// The digest accounts are named by.
    pub fn id(&self) -> SubjectId {
        match self {
            Self::Tenant { tenant } => tenant_id(tenant),
            Self::Project { tenant, project } => project_id(tenant, project),
            Self::Key { tenant, project, key } => key_id(tenant, project, key),
            Self::Service { tenant, service } => service_id(tenant, service),
            Self::User { tenant, user } => user_id(tenant, user),
            Self::Pool { pool } => pool_id(pool),
        }
    }

    /// The tenant it belongs to; a pool belongs to none.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::Tenant { tenant }
            | Self::Project { tenant, .. }
            | Self::Key { tenant, .. }
            | Self::Service { tenant, .. }
            | Self::User { tenant, .. } => Some(tenant),
            Self::Pool { .. } => None,
        }
    }

    /// The word for its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tenant { .. } => "tenant",
            Self::Project { .. } => "project",
            Self::Key { .. } => "key",
            Self::Service { .. } => "service",
            Self::User { .. } => "user",
            Self::Pool { .. } => "pool",
        }
    }

    pub fn is_pool(&self) -> bool {
        matches!(self, Self::Pool { .. })
    }
}

/// For people: `key acme/web/k1`. Not unique where ids contain slashes; the digest is.
impl core::fmt::Display for Subject {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tenant { tenant } => write!(f, "tenant {tenant}"),
            Self::Project { tenant, project } => write!(f, "project {tenant}/{project}"),
            Self::Key { tenant, project, key } => write!(f, "key {tenant}/{project}/{key}"),
            Self::Service { tenant, service } => write!(f, "service {tenant}/{service}"),
            Self::User { tenant, user } => write!(f, "user {tenant}/{user}"),
            Self::Pool { pool } => write!(f, "pool {pool}"),
        }
    }
}

/// What a limit covers: one subject, or each end user of a tenant with an account of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    One(Subject),
    EachUser { tenant: String },
}

impl Scope {
    pub fn is_pool(&self) -> bool {
        matches!(self, Self::One(subject) if subject.is_pool())
    }
}

impl core::fmt::Display for Scope {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::One(subject) => subject.fmt(f),
            Self::EachUser { tenant } => write!(f, "each user of {tenant}"),
        }
    }
}

pub(crate) fn tenant_id(tenant: &str) -> SubjectId {
    subject_digest(1, &[tenant])
}

pub(crate) fn project_id(tenant: &str, project: &str) -> SubjectId {
    subject_digest(2, &[tenant, project])
}

pub(crate) fn key_id(tenant: &str, project: &str, key: &str) -> SubjectId {
    subject_digest(3, &[tenant, project, key])
}

pub(crate) fn service_id(tenant: &str, service: &str) -> SubjectId {
    subject_digest(4, &[tenant, service])
}

pub(crate) fn user_id(tenant: &str, user: &str) -> SubjectId {
    subject_digest(5, &[tenant, user])
}

pub(crate) fn pool_id(pool: &str) -> SubjectId {
    subject_digest(6, &[pool])
}

fn subject_digest(kind: u8, ids: &[&str]) -> SubjectId {
    let mut digest = Digest::new("tollbook subject 1");
    digest.byte(kind);
    for id in ids {
        digest.text(id);
    }
    SubjectId(digest.short())
}
