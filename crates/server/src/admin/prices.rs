//! `GET /admin/v1/prices`: the price book in force, and what earlier versions of it said.

use serde_json::{Value, json};
use tollbook_store::{ObjectKind, ObjectName};

use super::query::Query;
use super::routes::Action;
use super::{Admin, Asked, Refusal};
use crate::prices;

pub(super) fn answer(admin: &Admin, asked: &Asked<'_>) -> Result<Value, Refusal> {
    let query = Query::parse(Action::Prices, asked.query)?;
    let snapshot = admin.admission.snapshot();
    let book = prices::document(&snapshot.prices);
    told(admin, &book, (snapshot.prices.version, true), query.text("model"))
}

/// A book, or what it says of one model.
fn told(
    admin: &Admin,
    book: &Value,
    (version, in_force): (u64, bool),
    model: Option<&str>,
) -> Result<Value, Refusal> {
    let default = &book["default"];
    let models = book["models"].as_object();
    let row = |model: &str, price: &Value| json!({"model": model, "price": price, "source": in_force.then(|| source(admin, model))});
    let data: Vec<Value> = match model {
        None => models.into_iter().flatten().map(|(model, price)| row(model, price)).collect(),
        Some(model) => {
            let own = models.and_then(|models| models.get(model)).map(|price| row(model, price));
            let by_default = || {
                Some(json!({"model": model, "price": default, "source": "default"}))
                    .filter(|_| !default.is_null())
            };
            let Some(row) = own.or_else(by_default) else {
                let message = format!("`{model}` has no price in this book");
                return Err(Refusal::new(http::StatusCode::NOT_FOUND, "no_price", message));
            };
            vec![row]
        }
    };
    // Beyond what a JSON reader takes exactly, a number is text.
    Ok(json!({
        "object": "list", "version": version.to_string(), "in_force": in_force, "default": default, "data": data,
    }))
}

/// Who defines a model now.
fn source(admin: &Admin, model: &str) -> &'static str {
    let (tenant, project) = (String::new(), String::new());
    let name = ObjectName { kind: ObjectKind::Model, tenant, project, id: model.to_owned() };
    let stored = admin.counter.as_ref().is_some_and(|counter| counter.view().objects.contains_key(&name));
    if stored { "store" } else { "file" }
}
