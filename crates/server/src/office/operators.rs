//! Who may look at and change objects.
//!
//! The holder of the file's `admin.api_key` is an owner. Other operators are objects: their keys are known by keyed
//! hashes, as clients' keys are. One that is bound to a tenant neither sees nor finds out what others have.

use std::collections::{BTreeMap, BTreeSet};

use tollbook_store::{ObjectKind, ObjectName};

use super::View;
use crate::config::file::Role;
use crate::config::{Directory, Fault, Form, place};
use crate::key::KeyHash;

/// Who changes what the file's own key orders.
pub const ADMIN_KEY_HOLDER: &str = "admin.api_key";

/// What somebody who showed a key may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// As the history of changes names them.
    pub who: String,
    pub role: Role,
    /// The one tenant it is for; `None`: all of them.
    pub tenant: Option<String>,
}

impl Grant {
    /// The holder of the file's key.
    pub fn owner() -> Self {
        Self { who: ADMIN_KEY_HOLDER.to_owned(), role: Role::Owner, tenant: None }
    }

    /// Whether an object is any business of theirs.
    pub fn sees(&self, name: &ObjectName) -> bool {
        match &self.tenant {
            None => true,
            Some(tenant) => *tenant == name.tenant && !name.tenant.is_empty(),
        }
    }

    /// Whether what is told by an object's place, `tenants/acme: …`, is any business of theirs.
    pub fn may_hear(&self, told: &str) -> bool {
        let Some(tenant) = &self.tenant else { return true };
        let rest = told.strip_prefix(place(&ObjectName::tenant(tenant)).as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
    }

    /// What of a change's faults is any business of theirs: what others have is not told, neither that it is wrong nor
    /// that it has taken a name.
    pub fn faults(&self, mut faults: Vec<Fault>) -> Vec<Fault> {
        if self.tenant.is_none() {
            return faults;
        }
        faults.retain(|fault| {
            fault.object.is_empty() && fault.field.is_empty() || self.may_hear(&fault.object)
        });
        for fault in &mut faults {
            if let Some((what, by)) = fault.what.rsplit_once(" by ")
                && by.starts_with("tenants/")
                && !self.may_hear(by)
            {
                fault.what = what.to_owned();
            }
        }
        if faults.is_empty() {
            let what = "does not fit what is outside of this tenant, as an id of a key or a name of a limit that is taken";
            faults.push(Fault { object: String::new(), field: String::new(), what: what.to_owned() });
        }
        faults
    }
}

impl View {
    /// What the holder of a key may do at `now` (UTC seconds), by the key's digest.
    pub fn grant(&self, digest: &[u8; 32], now: u64) -> Option<Grant> {
        let name = self.operators.get(digest)?;
        let Form::Operator(operator) = &self.common.get(name)?.form else { return None };
        let expired = operator.expires.as_deref().is_some_and(|text| expiry(text).is_none_or(|at| at <= now));
        if operator.disabled || expired {
            return None;
        }
        Some(Grant { who: operator.id.clone(), role: operator.role, tenant: operator.tenant.clone() })
    }
}

fn expiry(text: &str) -> Option<u64> {
    let instant = text.parse::<jiff::Timestamp>().ok()?;
    u64::try_from(instant.as_second()).ok()
}

/// The tenants that operators are bound to.
pub(super) fn bound_to(objects: &Directory) -> BTreeSet<String> {
    let bound = objects.values().filter_map(|kept| match &kept.form {
        Form::Operator(operator) => operator.tenant.clone(),
        _ => None,
    });
    bound.collect()
}

/// Operators by the digest of their keys.
pub(super) fn by_key(objects: &Directory) -> BTreeMap<[u8; 32], ObjectName> {
    let operators = objects.range(ObjectName::before(ObjectKind::Operator)..).filter_map(|(name, kept)| {
        match &kept.form {
            Form::Operator(operator) => {
                let hash = KeyHash::parse(operator.hash.as_deref()?)?;
                Some((hash.0, name.clone()))
            }
            _ => None,
        }
    });
    operators.collect()
}

/// What is wrong with operators; the catalog does not know them. `tenants`: those that exist, of the ones they are bound
/// to.
pub(super) fn check(objects: &Directory, tenants: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut hashes: BTreeMap<&str, &ObjectName> = BTreeMap::new();
    for (name, kept) in objects {
        let Form::Operator(operator) = &kept.form else { continue };
        let mut wrong = |field: &str, what: String| {
            faults.push(Fault { object: place(name), field: field.to_owned(), what });
        };
        if let Err(kind) = tollbook_policy::check_id(&operator.id, tollbook_policy::ID_MAX) {
            wrong("id", kind.to_string());
        }
        match operator.hash.as_deref() {
            None => wrong("hash", "is missing".to_owned()),
            Some(text) if KeyHash::parse(text).is_none() => {
                wrong("hash", "must be `blake3:` and 64 hexadecimal digits".to_owned());
            }
            Some(text) => {
                if let Some(other) = hashes.insert(text, name) {
                    wrong("hash", format!("is that of {}", place(other)));
                }
            }
        }
        if operator.role == Role::Owner && operator.tenant.is_some() {
            wrong("tenant", "an owner is not bound to a tenant".to_owned());
        }
        if let Some(text) = &operator.expires
            && expiry(text).is_none()
        {
            wrong(
                "expires",
                format!("must be an instant with its zone, as 2027-01-01T00:00:00Z, not `{text}`"),
            );
        }
        if let Some(tenant) = operator.tenant.as_ref().filter(|tenant| !tenants.contains(*tenant)) {
            wrong("tenant", format!("there is no tenant `{tenant}`"));
        }
    }
    faults
}
