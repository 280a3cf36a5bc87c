//! Makes the configuration page from the JSON Schema that `tollbook schema` prints.
//!
//! One section per object: first the file itself, then every definition in the order of its name.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

pub fn configuration(schema: &Value) -> Result<String> {
    let mut page = String::from("# Configuration\n\n");
    page.push_str("Every field of `tollbook.yaml`. Unknown fields are errors. ");
    page.push_str("Absent or null means no limit, 0 lets nothing pass, a negative number is refused.\n");
    section(&mut page, "The file", schema)?;
    for (name, definition) in schema.get("$defs").and_then(Value::as_object).into_iter().flatten() {
        section(&mut page, name, definition)?;
    }
    Ok(page)
}

fn section(page: &mut String, name: &str, schema: &Value) -> Result<()> {
    write!(page, "\n## {name}\n")?;
    if let Some(text) = schema.get("description").and_then(Value::as_str) {
        write!(page, "\n{}\n", text.trim())?;
    }
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        write!(page, "\n{}", fields_table(fields, schema)?)?;
    }
    let choices = ["oneOf", "anyOf"].iter().find_map(|key| schema.get(key).and_then(Value::as_array));
    match choices {
        Some(choices) => write_choices(page, choices),
        None if !schema.get("properties").is_some_and(Value::is_object) => {
            write!(page, "\n{}\n", type_of(schema)).context("cannot write")
        }
        None => Ok(()),
    }
}

fn write_choices(page: &mut String, choices: &[Value]) -> Result<()> {
    page.push_str("\nOne of:\n\n");
    for choice in choices {
        let text = choice.get("description").and_then(Value::as_str).map(one_line).unwrap_or_default();
        let colon = if text.is_empty() { "" } else { ": " };
        writeln!(page, "* {}{colon}{text}", type_of(choice))?;
        if let Some(fields) = choice.get("properties").and_then(Value::as_object) {
            write!(page, "\n{}\n", fields_table(fields, choice)?)?;
        }
    }
    Ok(())
}

fn fields_table(fields: &Map<String, Value>, schema: &Value) -> Result<String> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut table = String::from("| field | type | default | meaning |\n| --- | --- | --- | --- |\n");
    for (name, field) in fields {
        let default = match field.get("default") {
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            None | Some(Value::Null) => "–".to_owned(),
            // The fields' own defaults stand in the section of the object.
            Some(Value::Object(_)) => "see there".to_owned(),
            Some(value) => format!("`{}`", value.to_string().replace('|', "\\|")),
        };
        let meaning = field.get("description").and_then(Value::as_str).map(one_line).unwrap_or_default();
        writeln!(table, "| `{name}` | {} | {default} | {meaning} |", type_of(field).replace('|', "\\|"))?;
    }
    Ok(table)
}

fn type_of(schema: &Value) -> String {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let name = target.rsplit('/').next().unwrap_or(target);
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(value) = schema.get("const") {
        return format!("`{}`", plain(value));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(|value| format!("`{}`", plain(value))).collect::<Vec<_>>().join(", ");
    }
    if let Some(choices) = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| schema.get(key)?.as_array()) {
        let named: Vec<String> = choices.iter().map(type_of).filter(|name| name != "null").collect();
        return named.join(" or ");
    }
    match schema.get("type") {
        Some(Value::String(kind)) => kind_of(kind, schema),
        Some(Value::Array(kinds)) => {
            let named = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            named.map(|kind| kind_of(kind, schema)).collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    }
}

fn kind_of(kind: &str, schema: &Value) -> String {
    match kind {
        "array" => match schema.get("items") {
            Some(items) => format!("list of {}", type_of(items)),
            None => "list".to_owned(),
        },
        "object" => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => format!("map of {}", type_of(values)),
            _ => "object".to_owned(),
        },
        other => other.to_owned(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        let schema = serde_json::json!({
            "type": "object",
            "required": ["listen"],
            "properties": {
                "listen": { "type": "string", "description": "Where clients\ncome in." },
                "limits": { "type": "array", "items": { "$ref": "#/$defs/Limit" }, "default": [] },
                "log": { "$ref": "#/$defs/Plan", "default": { "a": 1 } },
                "names": { "type": "object", "additionalProperties": { "type": ["string", "null"] } },
                "plan": { "anyOf": [{ "$ref": "#/$defs/Plan" }, { "type": "null" }] },
            },
            "$defs": {
                "Limit": { "type": "object", "properties": { "max": { "type": ["integer", "null"] } } },
                "Plan": { "oneOf": [{ "const": "free", "description": "Nothing | little." }, { "const": "paid" }] },
                "Zone": { "type": "string", "description": "A name." },
            },
        });
        configuration(&schema).unwrap()
    }

    #[test]
    fn fields_have_type_default_and_meaning() {
        let page = page();
        assert!(page.contains("| `listen` | string | required | Where clients come in. |\n"), "{page}");
        assert!(page.contains("| `limits` | list of [Limit](#limit) | `[]` |  |\n"), "{page}");
        assert!(page.contains("| `log` | [Plan](#plan) | see there |  |\n"), "{page}");
        assert!(page.contains("| `names` | map of string | – |  |\n"), "{page}");
        assert!(page.contains("| `plan` | [Plan](#plan) | – |  |\n"), "{page}");
        assert!(page.contains("| `max` | integer | – |  |\n"), "{page}");
    }

    #[test]
    fn choices_and_plain_types_have_their_sections() {
        let page = page();
        assert!(page.contains("## Plan\n\nOne of:\n\n* `free`: Nothing \\| little.\n* `paid`\n"), "{page}");
        assert!(page.contains("## Zone\n\nA name.\n\nstring\n"), "{page}");
    }
}
