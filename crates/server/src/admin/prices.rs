//! `GET /admin/v1/prices`: the price book in force, and what earlier versions of it said.

use http::StatusCode;
use serde_json::{Value, json};
use tollbook_store::{ObjectKind, ObjectName};

use super::answer::away;
use super::query::Query;
use super::routes::Action;
use super::{Admin, Asked, Refusal, bad};
use crate::prices;
use crate::text::instant;

/// Versions that are told, the newest.
const VERSIONS_MAX: usize = 100;

pub(super) async fn answer(admin: &Admin, asked: &Asked<'_>) -> Result<Value, Refusal> {
    let query = Query::parse(Action::Prices, asked.query)?;
    let snapshot = admin.admission.snapshot();
    let (now, model) = (snapshot.prices.version, query.text("model"));
    let version = query.text("version").map(str::parse).transpose();
    let version: u64 = version.map_err(|_| bad("`version` is no number"))?.unwrap_or(now);
    let book = if version == now {
        prices::document(&snapshot.prices)
    } else {
        let message =
            || format!("there was no version {version} of the price book, or it is older than this store");
        kept(admin, version)
            .await?
            .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "no_version", message()))?
    };
    let mut answer = told(admin, &book, (version, version == now), model)?;
    let versions =
        admin.prices.price_versions(VERSIONS_MAX).await.map_err(|error| away(&error.to_string()))?;
    let versions = versions
        .into_iter()
        .map(|(version, first)| json!({"version": version.to_string(), "first_in_force": instant(first)}));
    if let Value::Object(members) = &mut answer {
        members.insert("versions".to_owned(), versions.collect());
    }
    Ok(answer)
}

/// What a version said, by the store.
async fn kept(admin: &Admin, version: u64) -> Result<Option<Value>, Refusal> {
    let kept = admin.prices.price_book(version).await.map_err(|error| away(&error.to_string()))?;
    let read = kept.map(|kept| serde_json::from_str(&kept.document)).transpose();
    read.map_err(|error| away(&format!("version {version} of the price book cannot be read: {error}")))
}

/// What a version said of a model; nothing where that is not known.
pub(super) async fn of_model(admin: &Admin, version: u64, model: &str) -> Result<Value, Refusal> {
    let snapshot = admin.admission.snapshot();
    if version == snapshot.prices.version {
        return Ok(snapshot.prices.price(model).map(prices::price).unwrap_or_default());
    }
    let book = kept(admin, version).await?;
    Ok(book.as_ref().and_then(|book| prices::of_model(book, model)).cloned().unwrap_or_default())
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
                return Err(Refusal::new(StatusCode::NOT_FOUND, "no_price", message));
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
    let name = ObjectName::common(ObjectKind::Model, model);
    let stored = admin.counter.as_ref().is_some_and(|counter| counter.view().common.contains_key(&name));
    if stored { "store" } else { "file" }
}
