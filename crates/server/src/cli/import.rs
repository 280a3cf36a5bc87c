//! `tollbook import`: another gateway's files as parts of a configuration.
//!
//! The result goes to the output alone, everything that a reader must know of it to the standard error. Where a file has
//! a mistake, or nothing is left, nothing is written.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::anyhow;
use serde_json::{Value, json};

use super::args::{ImportConfig, ImportPrices};
use super::output::put;
use super::{Console, Failure};
use crate::config::{self, Report};
use crate::import::{self, Notes, Table};

/// Most models that are named as left out.
const LEFT_OUT_SHOWN: usize = 20;

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self::Usage(report.to_string())
    }
}

pub(super) fn prices(args: &ImportPrices, console: &mut Console<'_>) -> Result<(), Failure> {
    let table = table(&args.file)?;
    let chosen = import::chosen(&table, &args.only, args.upstream.as_deref())?;
    let mut told = left_out_text(&chosen.left_out);
    told.push_str(&chosen.notes.text());
    if chosen.free > 0 {
        // Writing into a string cannot fail.
        let _ = writeln!(told, "free: {} cost 0, so no limit on cost ever stops them", chosen.free);
    }
    if chosen.models.is_empty() {
        console.err.write_all(told.as_bytes())?;
        return Err(Failure::Run(anyhow!("no model of {} is left", args.file.display())));
    }
    let text = if args.json {
        let left_out = chosen.left_out.iter().map(|(model, why)| json!({"model": model, "reason": why}));
        let (left_out, notes) = (left_out.collect::<Vec<_>>(), notes(&chosen.notes));
        format!("{:#}\n", json!({"models": chosen.models, "left_out": left_out, "notes": notes}))
    } else {
        import::fragment("models", &chosen.models)
    };
    put(&text, args.output.as_deref(), console)?;
    if !args.json {
        console.err.write_all(told.as_bytes())?;
    }
    Ok(())
}

pub(super) fn config(args: &ImportConfig, console: &mut Console<'_>) -> Result<(), Failure> {
    let table = args.prices.as_deref().map(table).transpose()?;
    let text = text(&args.file)?;
    let carried = import::config(&name(&args.file), &text, table.as_ref())?;
    let mut told = String::new();
    if !carried.left_out.problems.is_empty() {
        let _ = writeln!(told, "not carried over:\n{}", carried.left_out);
    }
    told.push_str(&carried.notes.text());
    if carried.models == 0 {
        console.err.write_all(told.as_bytes())?;
        return Err(Failure::Run(anyhow!("no model of {} can be carried over", args.file.display())));
    }
    // Any address will do for a variable that holds one, and a number for one that bounds.
    let lookup = |variable: &str| {
        let is_number = carried.text.contains(&format!("ceiling: \"${{{variable}}}\""));
        Some(if is_number { "1" } else { "https://example.invalid" }.to_owned())
    };
    if let Err(error) = config::load_text("the result", &carried.text, Path::new(""), &lookup) {
        return Err(Failure::Run(anyhow!("the result would not be valid, and is not written: {error}")));
    }
    put(&carried.text, args.output.as_deref(), console)?;
    console.err.write_all(told.as_bytes())?;
    Ok(())
}

fn table(path: &Path) -> Result<Table, Failure> {
    Ok(Table::read(&name(path), &text(path)?)?)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn text(path: &Path) -> Result<String, Failure> {
    import::read(path).map_err(|error| Failure::Usage(format!("{}: cannot be read: {error}", path.display())))
}

fn left_out_text(left_out: &[(String, String)]) -> String {
    let mut text = String::new();
    for (model, why) in left_out.iter().take(LEFT_OUT_SHOWN) {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "left out: {model}: {why}");
    }
    if left_out.len() > LEFT_OUT_SHOWN {
        let _ = writeln!(text, "left out: {} more; --json names all", left_out.len() - LEFT_OUT_SHOWN);
    }
    text
}

fn notes(notes: &Notes) -> Value {
    notes.iter().map(|(what, models)| json!({"note": what, "models": models})).collect()
}
