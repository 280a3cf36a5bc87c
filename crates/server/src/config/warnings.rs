//! What is legal in a file, but probably not meant.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret, SecretString};
use tollbook_policy::{Binding, Call, Catalog, Measure};
use tollbook_pricing::PriceBook;

use super::catalog::pool_id;
use super::file::File;

/// A secret below this many bytes can be guessed.
const SECRET_MIN: usize = 24;

/// Models without a price where something counts cost: calls to them are refused, whatever is left.
pub(super) fn unpriced(file: &File, prices: &PriceBook, catalog: &Catalog) -> Vec<String> {
    if !catalog.rules().any(|(_, rule)| rule.limit.measure == Measure::Cost) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for (index, model) in file.models.iter().enumerate() {
        if prices.price(&model.name).is_some() {
            continue;
        }
        let mut scopes = cost_scopes(catalog, &catalog.resolve_pool(&pool_id(model), &model.name, 0));
        for key in catalog.keys().iter().filter(|key| !key.disabled && catalog.may_use(key, &model.name)) {
            let call = Call { key, service: key.service.as_deref(), user: None, model: &model.name };
            // Only a user's id can be wrong in a call, and this one has none.
            if let Ok(binding) = catalog.resolve(&call, 0) {
                scopes.extend(cost_scopes(catalog, &binding));
            }
        }
        let who = match (scopes.first(), scopes.len()) {
            (None, _) => continue,
            (Some(scope), 1) => format!("{scope} limits cost: every call is refused"),
            (Some(scope), more) => {
                format!(
                    "{scope} and {} more limit cost: every call of theirs is refused",
                    more.saturating_sub(1)
                )
            }
        };
        warnings.push(format!("models[{index}]: has no price, and {who}; give price or default_price"));
    }
    warnings
}

/// The scopes of the limits that count cost.
fn cost_scopes(catalog: &Catalog, binding: &Binding) -> BTreeSet<String> {
    let accounts = binding.accounts.iter().filter(|account| account.measure == Measure::Cost);
    let rules = accounts.flat_map(|account| &account.limits).filter_map(|limit| catalog.rule(limit.id));
    rules.map(|rule| rule.limit.scope.to_string()).collect()
}

/// Secrets that stand in the file, or in the environment, and are too short.
pub(super) fn weak_secrets(file: &File, admin: Option<&SecretString>) -> Vec<String> {
    let mut warnings: Vec<String> =
        admin.and_then(|secret| weak_secret("admin.api_key", secret)).into_iter().collect();
    for (t, tenant) in file.tenants.iter().enumerate() {
        for (p, project) in tenant.projects.iter().enumerate() {
            for (k, key) in project.keys.iter().enumerate() {
                let path = format!("tenants[{t}].projects[{p}].keys[{k}].secret");
                warnings.extend(key.secret.as_ref().and_then(|secret| weak_secret(&path, &secret.0)));
            }
        }
    }
    warnings
}

fn weak_secret(path: &str, secret: &SecretString) -> Option<String> {
    let length = secret.expose_secret().len();
    (length < SECRET_MIN).then(|| {
        format!("{path} has {length} bytes; below {SECRET_MIN} it can be guessed. `tollbook keys new` makes a good one")
    })
}
