//! Who may ask, as it is written: plans, tenants, projects, keys, services, users, and the operators that change them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limit::Limit;
use crate::config::values::Secret;

/// Where plans, tenants, projects, keys, services and users are defined.
#[derive(Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Truth {
    /// `file`: in this file. `sql`: in the store, beside the journal; they are changed in a running gateway, by
    /// `tollbook apply` or the operators' API, and this file has no `plans` and no `tenants`. Upstreams and models may be
    /// in both, under different names.
    pub source: Origin,
    /// Seals the keys of upstreams in the store; all gateways need the same. Changing it makes them unreadable.
    #[serde(skip_serializing)]
    pub secrets_key: Option<Secret>,
    /// File that holds `secrets_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_key_file: Option<PathBuf>,
}

/// Where they are defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// In this file.
    #[default]
    File,
    /// In the store.
    Sql,
}

/// A named set of limits. Each tenant of the plan has accounts of its own for them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Unique name.
    pub id: String,
    /// Limits on everything a tenant of this plan does, beside its own.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Limits on each end user of such a tenant.
    #[serde(default)]
    pub user_limits: Vec<Limit>,
}

/// Who may look at and change what the store defines, beside the holder of `admin.api_key`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// Unique name; it stands in the history of changes.
    pub id: String,
    /// The hash of the bearer key, as `tollbook keys new` prints it.
    #[serde(default)]
    pub hash: Option<String>,
    /// How the key begins, to tell keys apart; means nothing else.
    #[serde(default)]
    pub prefix: Option<String>,
    /// What it may do.
    pub role: Role,
    /// The one tenant it may do it to; all if absent.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Refuse it.
    #[serde(default)]
    pub disabled: bool,
    /// Refuse it from this instant on, as `2027-01-01T00:00:00Z`; the zone must be given.
    #[serde(default)]
    pub expires: Option<String>,
}

/// What an operator may do; each may do what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Viewer,
    /// Change tenants, projects, keys, services, users and plans.
    Admin,
    /// Change operators too.
    Owner,
}

/// Who is charged: a customer, a department. Limits of a tenant bind all its projects and keys together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Unique name.
    pub id: String,
    /// Refuse all its keys.
    #[serde(default)]
    pub disabled: bool,
    /// The plan whose limits are added to its own.
    #[serde(default)]
    pub plan: Option<String>,
    /// Time zone of its quotas, as `Europe/Amsterdam`; UTC if absent.
    #[serde(default)]
    pub zone: Option<String>,
    /// Limits on everything this tenant does.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Limits on each end user of this tenant, with an account of its own; a call names one in the header
    /// `x-tollbook-user`.
    #[serde(default)]
    pub user_limits: Vec<Limit>,
    /// Parts of a tenant, with keys.
    #[serde(default)]
    pub projects: Vec<Project>,
    /// Fixed business services; a call names one in the header `x-tollbook-service`.
    #[serde(default)]
    pub services: Vec<Service>,
    /// End users of whom something is to be said: limits of their own, or that their calls are refused. Others may call too.
    #[serde(default)]
    pub users: Vec<User>,
}

/// A part of a tenant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// Unique in its tenant.
    pub id: String,
    /// Refuse all its keys.
    #[serde(default)]
    pub disabled: bool,
    /// Limits on everything this project does.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// What clients show to be let in.
    #[serde(default)]
    pub keys: Vec<Key>,
}

/// What a client shows to be let in. The accounts hang on `id`, so a new secret starts no new budget.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Unique in the whole file.
    pub id: String,
    /// The secret's hash, as `tollbook keys new` prints it.
    #[serde(default)]
    pub hash: Option<String>,
    /// How its secret begins, to tell keys apart; means nothing else.
    #[serde(default)]
    pub prefix: Option<String>,
    /// The secret itself, instead of `hash`; for tests and `${VARIABLE}`s.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// The secret before this one, while a rotation overlaps.
    #[serde(default)]
    pub previous: Option<PreviousSecret>,
    /// The service its calls belong to unless they name one.
    #[serde(default)]
    pub service: Option<String>,
    /// Models this key may use; all if absent.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// Where its calls may come from, as `203.0.113.0/24` or one address; anywhere if absent. Behind proxies that are
    /// trusted (`proxies`) it is the client's address that counts.
    #[serde(default)]
    pub addresses: Option<Vec<String>>,
    /// Limits on this key alone.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Refuse this key.
    #[serde(default)]
    pub disabled: bool,
    /// Refuse this key from this instant on, as `2027-01-01T00:00:00Z`; the zone must be given.
    #[serde(default)]
    pub expires: Option<String>,
}

/// A secret that is being replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviousSecret {
    /// Its hash.
    pub hash: String,
    /// Refused from this instant on, as `2027-01-01T00:00:00Z`; the zone must be given.
    pub until: String,
}

/// A fixed business service of a tenant.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Unique in its tenant.
    pub id: String,
    /// Calls per calendar minute.
    #[serde(default)]
    pub rpm: Option<u64>,
    /// llm_tokens per calendar minute.
    #[serde(default)]
    pub tpm: Option<u64>,
    /// Whether the service takes calls.
    #[serde(default)]
    pub status: Status,
    /// More limits on this service.
    #[serde(default)]
    pub limits: Vec<Limit>,
}

/// Whether a service takes calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It does.
    #[default]
    On,
    /// Its calls are refused.
    Off,
}

/// An end user of a tenant of whom something is to be said. One that is no object here is bound by the `user_limits` of tenant
/// and plan alone; one that is, by its own limits beside them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// As clients name it in the header `x-tollbook-user`, byte for byte; unique in its tenant.
    pub id: String,
    /// Whether calls for this user are taken.
    #[serde(default)]
    pub status: UserStatus,
    /// Limits on this user alone, over all keys of the tenant.
    #[serde(default)]
    pub limits: Vec<Limit>,
}

/// Whether calls for a user are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserStatus {
    /// They are.
    #[default]
    Active,
    /// They are refused (403, `user_disabled`).
    Disabled,
}
