//! `tollbook price list | show`: what models cost, through a gateway's operators' listener.

use http::Method;
use serde_json::{Map, Value};

use super::args::{PriceCommand, Prices};
use super::objects::Session;
use super::{Console, Failure};
use crate::text::{aligned, escaped};

pub(super) fn run(args: &Prices, console: &mut Console<'_>) -> Result<(), Failure> {
    let session = Session::new(&args.operators)?;
    let path = match &args.command {
        PriceCommand::List | PriceCommand::Versions => "prices".to_owned(),
        PriceCommand::Show { model, version } => {
            let version = version.map(|version| format!("&version={version}")).unwrap_or_default();
            format!("prices?model={}{version}", escaped(model))
        }
    };
    let book = &session.send(Method::GET, &path, None)?;
    if args.json {
        return super::json(console, book);
    }
    if matches!(args.command, PriceCommand::Versions) {
        return Ok(console.out.write_all(versions(book).as_bytes())?);
    }
    let text = match &args.command {
        PriceCommand::Show { .. } => shown(book),
        PriceCommand::List | PriceCommand::Versions => table(book),
    };
    let word = if book["in_force"] == true { "in force" } else { "not in force" };
    writeln!(console.out, "version {}, {word}", book["version"].as_str().unwrap_or("?"))?;
    Ok(console.out.write_all(text.as_bytes())?)
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| if value.is_null() { "-".to_owned() } else { value.to_string() }, str::to_owned)
}

fn versions(book: &Value) -> String {
    let mut cells = vec![["version", "first in force"].map(str::to_owned).to_vec()];
    for row in book["versions"].as_array().into_iter().flatten() {
        cells.push(vec![text(&row["version"]), text(&row["first_in_force"])]);
    }
    aligned(&cells, 2)
}

fn table(book: &Value) -> String {
    let parts = ["input", "cached", "cache_write", "output", "reasoning"];
    let head: Vec<&str> = ["model"].into_iter().chain(parts).chain(["steps", "tiers", "source"]).collect();
    let mut cells = vec![head.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    let by_default = (!book["default"].is_null())
        .then(|| serde_json::json!({"model": "(any other)", "price": book["default"], "source": "file"}));
    for row in book["data"].as_array().into_iter().flatten().chain(&by_default) {
        let price = &row["price"];
        let count = |name: &str| match &price[name] {
            Value::Array(some) => some.len().to_string(),
            Value::Object(some) => some.len().to_string(),
            _ => "-".to_owned(),
        };
        let mut cell = vec![text(&row["model"])];
        cell.extend(parts.iter().map(|part| text(&price[*part])));
        cell.extend([count("steps"), count("tiers"), text(&row["source"])]);
        cells.push(cell);
    }
    aligned(&cells, 1)
}

/// Every part on a line of its own.
fn shown(book: &Value) -> String {
    let mut cells = Vec::new();
    for row in book["data"].as_array().into_iter().flatten() {
        cells.push(vec!["model".to_owned(), text(&row["model"])]);
        if !row["source"].is_null() {
            cells.push(vec!["source".to_owned(), text(&row["source"])]);
        }
        lines("", row["price"].as_object(), &mut cells);
    }
    aligned(&cells, 2)
}

fn lines(head: &str, parts: Option<&Map<String, Value>>, cells: &mut Vec<Vec<String>>) {
    for (name, part) in parts.into_iter().flatten() {
        match part {
            Value::Object(parts) => lines(&format!("{head}{name}."), Some(parts), cells),
            Value::Array(steps) => {
                for step in steps {
                    let above = text(&step["above"]);
                    lines(&format!("{head}above {above} llm_tokens: "), step.as_object(), cells);
                }
            }
            part => cells.push(vec![format!("{head}{name}"), text(part)]),
        }
    }
}
