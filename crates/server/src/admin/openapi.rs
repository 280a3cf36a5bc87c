//! The description of the operators' API (OpenAPI 3.1), made of the table of routes and the forms of documents.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use tollbook_store::ObjectKind;

use super::query::{PAGE, PAGE_MAX, filters};
use super::routes::{Action, ROOT, ROUTES, Route};
use crate::config::{children, file, id_member, secret_fields};

/// The whole document.
pub(crate) fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|s| s.definitions_path = "/components/schemas".into())
        .into_generator();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES.iter() {
        let method = route.method.as_str().to_ascii_lowercase();
        let operation = operation(route, &mut generator);
        paths.entry(format!("{ROOT}{}", route.path)).or_default().insert(method, operation);
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollbook: operators' API", "version": env!("CARGO_PKG_VERSION"),
            "description": "Tenants, projects, keys, services, users, plans and operators, changed while calls run.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "description": format!("For {:?}s and above.", route.role).to_lowercase(),
        "parameters": parameters(route),
        "responses": responses(route),
    });
    if let (Some(body), Value::Object(members)) = (body(route.action, generator), &mut operation) {
        let required = !matches!(route.action, Action::Rotate(_));
        let content = json!({"application/json": {"schema": body}});
        members.insert("requestBody".to_owned(), json!({"required": required, "content": content}));
    }
    operation
}

fn operation_id(route: &Route) -> String {
    let word = |verb: &str, kind: ObjectKind| format!("{verb}_{}", kind.word());
    match route.action {
        Action::List(kind) => word("list", kind),
        Action::Create(kind) => word("create", kind),
        Action::Show(kind) => word("show", kind),
        Action::Replace(kind) => word("replace", kind),
        Action::Merge(kind) => word("merge", kind),
        Action::Delete(kind) => word("delete", kind),
        Action::Rotate(kind) => word("rotate", kind),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn parameters(route: &Route) -> Vec<Value> {
    let text = |place: &str, name: &str, required: bool, about: &str| json!({"in": place, "name": name, "required": required, "description": about, "schema": {"type": "string"}});
    let mut parameters = Vec::new();
    for name in ["tenant", "project", "id"] {
        if route.path.contains(&format!("{{{name}}}")) {
            parameters.push(text("path", name, true, "Percent-encoded"));
        }
    }
    let flag = |name: &str, about: &str| json!({"in": "query", "name": name, "description": about, "schema": {"type": "boolean"}});
    let limit = json!({
        "in": "query", "name": "limit", "description": format!("At most so many; {PAGE} if absent"),
        "schema": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
    });
    match route.action {
        Action::List(kind) => {
            parameters.push(limit);
            parameters.push(text("query", "after", false, "Ids after this one: `next` of the page before"));
            parameters.push(text("query", "prefix", false, "Ids that begin so"));
            parameters.extend(filters(kind).iter().map(|field| match *field {
                "disabled" => flag("disabled", "Those that are disabled, or are not"),
                field => text("query", field, false, "Those that have this"),
            }));
        }
        Action::Changes => {
            parameters.push(limit);
            let before = json!({
                "in": "query", "name": "before", "description": "Changes before this number: `next` of the page before",
                "schema": {"type": "integer", "minimum": 0},
            });
            parameters.push(before);
            parameters.push(text("query", "tenant", false, "Of this tenant's objects"));
        }
        Action::Limits => {
            parameters.push(limit);
            parameters.push(text(
                "query",
                "after",
                false,
                "Limits after this place: `next` of the page before",
            ));
            parameters.push(text(
                "query",
                "tenant",
                false,
                "Of this tenant, its projects, keys, services and users",
            ));
        }
        Action::Prices => {
            parameters.push(text("query", "model", false, "Only what is said of this one"));
            let about = "A version, as entries of the journal name it; the one in force if absent";
            let version = json!({"type": "string", "pattern": "^[0-9]{1,19}$"});
            parameters
                .push(json!({"in": "query", "name": "version", "description": about, "schema": version}));
        }
        Action::Replace(_) | Action::Merge(_) | Action::Delete(_) | Action::Rotate(_) => {
            parameters.push(if_match("The version that is changed, as ETag told it; `*` for any"));
            parameters.push(flag("dry_run", "Only say what would become of it"));
        }
        Action::Create(_) => parameters.push(flag("dry_run", "Only say what would become of it")),
        Action::Apply => {
            parameters.push(if_match(
                "The revision that a dry run told: nothing is done if something was changed since",
            ));
            parameters.push(flag("dry_run", "Only say what would become of it"));
            parameters.push(flag(
                "prune",
                "Delete plans, tenants and what is in them that the document does not have",
            ));
        }
        _ => {}
    }
    if matches!(route.action, Action::Delete(_)) {
        parameters.push(flag("cascade", "Delete what is below it too"));
    }
    parameters
}

fn if_match(about: &str) -> Value {
    let schema = json!({"type": "string", "pattern": r#"^(\*|(W/)?"?[0-9]{1,19}"?)$"#});
    json!({"in": "header", "name": "If-Match", "required": false, "description": about, "schema": schema})
}

fn responses(route: &Route) -> Value {
    let problem = |about: &str| {
        let schema = json!({"$ref": "#/components/schemas/Problem"});
        json!({"description": about, "content": {"application/problem+json": {"schema": schema}}})
    };
    let good =
        json!({"description": "Done", "content": {"application/json": {"schema": {"type": "object"}}}});
    let mut limited = problem(
        "Too many wrong keys came from this address: until then none is looked at that was not good from there",
    );
    if let Value::Object(members) = &mut limited {
        let seconds = json!({"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 1}});
        members.insert("headers".to_owned(), json!({"Retry-After": seconds}));
    }
    let mut responses = json!({
        "200": good, "400": problem("It cannot be read, or is not right: `faults` names object, field and mistake"), "401": problem("No operator's key"),
        "403": problem("The operator may not do this"), "404": problem("Not there, or not to be seen"),
        "413": problem("The body is too large"),
        "429": limited, "503": problem("The store or the book is away"),
    });
    let Value::Object(members) = &mut responses else { return responses };
    let changes = matches!(
        route.action,
        Action::Create(_)
            | Action::Replace(_)
            | Action::Merge(_)
            | Action::Delete(_)
            | Action::Rotate(_)
            | Action::Apply
    );
    if changes {
        members.insert("405".to_owned(), problem("The objects are in the gateway's file"));
        members.insert(
            "409".to_owned(),
            problem("Not as the change takes it to be; `current` is what is there"),
        );
    }
    if matches!(route.action, Action::Release) {
        members.insert("409".to_owned(), problem("The call has not left the gateway, or has ended just now"));
    }
    if matches!(route.action, Action::Explain) {
        members.insert("422".to_owned(), problem("Such a call is refused whatever the limits"));
    }
    if matches!(route.action, Action::Create(_) | Action::Replace(_)) {
        let made =
            json!({"description": "Made", "content": {"application/json": {"schema": {"type": "object"}}}});
        members.insert("201".to_owned(), made);
    }
    if matches!(route.action, Action::Replace(_)) {
        members.insert("428".to_owned(), problem("It is there, and no version was named"));
    }
    responses
}

fn body(action: Action, generator: &mut SchemaGenerator) -> Option<Value> {
    match action {
        Action::Create(kind) => Some(json!({"allOf": [form(kind, generator)], "required": ["id"]})),
        Action::Replace(kind) => Some(form(kind, generator)),
        Action::Merge(_) | Action::Explain => Some(json!({"type": "object"})),
        Action::Rotate(_) => Some(json!({
            "type": "object",
            "properties": {"overlap": {"type": "string", "description": "How long the secret before works too, as `24h`"}},
        })),
        Action::Adjust => Some(json!({
            "type": "object",
            "required": ["limit", "delta", "reason"],
            "properties": {
                "limit": {"type": "string", "description": "The limit's name"},
                "user": {"type": "string", "description": "Of a limit on each user: which"},
                "delta": {"type": "string", "description": "Decimal, in the limit's unit: above 0 is used, below 0 is given back"},
                "reason": {"type": "string"},
                "id": {"type": "string", "description": "Makes a repeat harmless"},
            },
        })),
        Action::Release => Some(json!({
            "type": "object",
            "required": ["reason"],
            "properties": {"reason": {"type": "string", "description": "Stands in the journal"}},
        })),
        Action::Reconcile => Some(json!({
            "type": "object",
            "properties": {
                "rows": {"type": "array", "items": {
                    "type": "object",
                    "required": ["day", "model"],
                    "properties": {
                        "day": {"type": "string", "format": "date", "description": "A UTC day that is over"},
                        "tenant": {"type": "string"},
                        "upstream": {"type": "string"},
                        "model": {"type": "string", "description": "The upstream's name of it where an upstream is named"},
                        "requests": {"type": "integer"}, "input": {"type": "integer"},
                        "cached": {"type": "integer"}, "output": {"type": "integer"},
                        "cost": {"type": "string", "description": "Decimal"},
                    },
                }},
                "unbooked": {"type": "array", "items": {
                    "type": "object",
                    "required": ["reservation", "attempt", "side"],
                    "properties": {
                        "reservation": {"type": "string"}, "attempt": {"type": "integer"},
                        "side": {"type": "string", "enum": ["tenant", "pool"]},
                    },
                }},
            },
        })),
        Action::Apply => Some(json!({
            "type": "object",
            "properties": {
                "plans": {"type": "array", "items": generator.subschema_for::<file::Plan>()},
                "tenants": {"type": "array", "items": generator.subschema_for::<file::Tenant>()},
            },
        })),
        _ => None,
    }
}

/// The form of a kind's objects, as a component: that of the file, under `id`, without what is inside of them there and
/// without what they may not have, and with what an answer tells and a request may tell back.
fn form(kind: ObjectKind, generator: &mut SchemaGenerator) -> Value {
    let of_file = match kind {
        ObjectKind::Plan => generator.subschema_for::<file::Plan>(),
        ObjectKind::Tenant => generator.subschema_for::<file::Tenant>(),
        ObjectKind::Project => generator.subschema_for::<file::Project>(),
        ObjectKind::Key => generator.subschema_for::<file::Key>(),
        ObjectKind::Service => generator.subschema_for::<file::Service>(),
        ObjectKind::User => generator.subschema_for::<file::User>(),
        ObjectKind::Operator => generator.subschema_for::<file::Operator>(),
        ObjectKind::Upstream => generator.subschema_for::<file::Upstream>(),
        ObjectKind::Model => generator.subschema_for::<file::Model>(),
    };
    let named = of_file.get("$ref").and_then(Value::as_str).and_then(|place| place.rsplit('/').next());
    let form = named.and_then(|name| generator.definitions().get(name)).cloned();
    let Some(Value::Object(mut form)) = form else { return of_file.to_value() };
    if let Some(Value::Object(fields)) = form.get_mut("properties") {
        let closed = secret_fields(kind).iter().map(|(field, _)| *field);
        // The key of an upstream is taken, and sealed.
        for field in children(kind).iter().copied().chain(closed).filter(|field| *field != "api_key") {
            fields.remove(field);
        }
        if let Some(Value::Object(mut id)) = fields.remove(id_member(kind)) {
            id.insert("minLength".to_owned(), json!(1));
            fields.insert("id".to_owned(), Value::Object(id));
        }
        for (field, type_name) in [("version", "integer"), ("created_at", "string"), ("changed_at", "string")]
        {
            fields.insert(field.to_owned(), json!({"type": type_name, "readOnly": true}));
        }
    }
    // It is in the path, or is asked for where it is not.
    if let Some(Value::Array(required)) = form.get_mut("required") {
        required.retain(|field| field != id_member(kind));
    }
    let name = format!("{}_object", kind.word());
    let place = json!({"$ref": format!("#/components/schemas/{name}")});
    generator.definitions_mut().insert(name, Value::Object(form));
    place
}

/// RFC 9457.
fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {
            "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
            "detail": {"type": "string"}, "code": {"type": "string"},
            "faults": {"type": "array", "items": {
                "type": "object",
                "properties": {"object": {"type": "string"}, "field": {"type": "string"}, "what": {"type": "string"}},
            }},
            "current": {"type": ["object", "null"]},
        },
    })
}
