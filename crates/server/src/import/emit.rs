//! A configuration's parts as YAML: objects of a list with a field per line, all that is inside them in one line.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A list under its name.
pub(crate) fn fragment(name: &str, objects: &[Value]) -> String {
    let mut out = format!("{name}:\n");
    for object in objects {
        let mut lead = "  - ";
        for (field, value) in object.as_object().into_iter().flatten() {
            // Writing into a string cannot fail.
            let _ = writeln!(out, "{lead}{}: {}", scalar(field), inline(value));
            lead = "    ";
        }
    }
    out
}

/// An object of some fields; those without a value are left out.
pub(super) fn object(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let kept = fields.into_iter().filter_map(|(name, value)| value.map(|value| (name.to_owned(), value)));
    Value::Object(kept.collect::<Map<_, _>>())
}

fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{}: {}", scalar(name), inline(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// A text, quoted unless it can be nothing else.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    // JSON's quoted texts are YAML's too.
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fragment_reads_back_as_what_it_was() {
        let models = [
            json!({"name": "a/b-1.5", "price": {"input": "2.5", "steps": [{"above": 200_000, "input": "5"}]}}),
            json!({"name": "no", "list": ["x: y", "#", "${A}", "ü\"\n"], "none": {}}),
        ];
        let text = fragment("models", &models);
        assert!(
            text.starts_with("models:\n  - name: a/b-1.5\n    price: { input: \"2.5\", steps: "),
            "{text}"
        );
        let node = crate::config::node::parse(&text).unwrap().unwrap();
        let second = &super::super::items(&super::super::fields(&node).unwrap()[0].value).unwrap()[1];
        let list = super::super::items(super::super::get(second, "list").unwrap()).unwrap();
        let texts: Vec<&str> = list.iter().filter_map(super::super::text).collect();
        assert_eq!(texts, ["x: y", "#", "${A}", "ü\"\n"]);
    }
}
