//! `tollbook check`: what binds whom, per key and model.
//!
//! A call is bound by its tenant, project and key, by its service and end user where it names them, and by the pool it
//! goes to.

use std::fmt::Write as _;

use anyhow::anyhow;
use serde_json::{Value, json};
use tollbook_policy::{BoundLine, Call, Catalog, Hold, Key, OnExpiry, Strictness, WhenAway};

use super::args::Check;
use super::{Console, Failure, environment};
use crate::accounts;
use crate::config::{self, LoadError, Problem};
use crate::text::{grouped, instant, money};

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";
/// Columns of a line about a limit.
const COLUMNS: usize = 6;

pub(super) fn run(args: &Check, console: &mut Console<'_>) -> Result<(), Failure> {
    let setup = match config::load_whole(&args.config, &environment, &[]) {
        Err(error) if args.json => {
            super::json(console, &errors(&error))?;
            return Err(error.into());
        }
        loaded => loaded?,
    };
    let bounds = bounds(&setup.snapshot.catalog)?;
    if args.json {
        let objects: Vec<Value> = bounds.iter().map(|bound| bound.json(&setup.snapshot.catalog)).collect();
        let file = args.config.display().to_string();
        return super::json(console, &json!({"file": file, "warnings": setup.warnings, "bindings": objects}));
    }
    console.out.write_all(print(&bounds, console.colours).as_bytes())?;
    for warning in &setup.warnings {
        writeln!(console.err, "warning: {warning}")?;
    }
    let (keys, models) = (setup.snapshot.catalog.keys().len(), setup.snapshot.catalog.models().len());
    writeln!(console.err, "{} is valid: keys {keys}, models {models}", args.config.display())?;
    Ok(())
}

/// What is wrong with a file, for programs; people read the same on stderr.
fn errors(error: &LoadError) -> Value {
    match error {
        LoadError::Read { file, source } => {
            json!({"errors": [{"file": file, "message": format!("cannot read the configuration: {source}")}]})
        }
        LoadError::Invalid(report) => {
            let one = |problem: &Problem| {
                let (place, help) = (problem.place, Some(&problem.help).filter(|help| !help.is_empty()));
                json!({
                    "file": report.file, "line": place.line, "column": place.column, "path": problem.path,
                    "message": problem.what, "help": help,
                })
            };
            json!({"errors": report.problems.iter().map(one).collect::<Vec<_>>(), "more": report.more})
        }
    }
}

/// What binds calls of one kind.
struct Bound {
    title: String,
    who: Value,
    lines: Vec<BoundLine>,
}

impl Bound {
    fn json(&self, catalog: &Catalog) -> Value {
        let mut object = self.who.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.insert(
                "limits".to_owned(),
                self.lines.iter().map(|line| line_json(catalog, line)).collect(),
            );
        }
        object
    }
}

/// Every key with every model it may use.
fn bounds(catalog: &Catalog) -> Result<Vec<Bound>, Failure> {
    let mut bounds = Vec::new();
    for key in catalog.keys() {
        for model in catalog.models().iter().filter(|model| catalog.may_use(key, &model.id)) {
            let pool = model.pools.first().map_or("", String::as_str);
            let mut lines = bound_by(catalog, key, key.service.as_deref(), &model.id)?;
            lines.extend(catalog.explain(&catalog.resolve_pool(pool, &model.id, 0), 0));
            lines.sort_by_key(|line| (level(&line.scope), line.measure, line.form.clone()));
            let service = key.service.as_ref().map(|id| format!(", service {id}")).unwrap_or_default();
            let disabled = if key.disabled { " (disabled)" } else { "" };
            bounds.push(Bound {
                title: format!(
                    "key {}/{}/{}{disabled}, model {}{service}",
                    key.tenant, key.project, key.id, model.id
                ),
                who: json!({
                    "tenant": key.tenant, "project": key.project, "key": key.id, "model": model.id,
                    "service": key.service, "pool": pool, "disabled": key.disabled,
                }),
                lines,
            });
        }
    }
    Ok(bounds)
}

/// From the whole to the part, and the pool last.
fn level(scope: &str) -> usize {
    ["tenant", "project", "key", "service", "each", "user"]
        .iter()
        .position(|kind| scope.starts_with(kind))
        .unwrap_or(6)
}

fn bound_by(
    catalog: &Catalog,
    key: &Key,
    service: Option<&str>,
    model: &str,
) -> Result<Vec<BoundLine>, Failure> {
    let call = Call { key, service, user: None, model };
    let binding = catalog.resolve(&call, 0).map_err(|error| anyhow!(error))?;
    Ok(catalog.explain(&binding, 0))
}

fn line_json(catalog: &Catalog, line: &BoundLine) -> Value {
    let limit = catalog.rule(line.limit).map(|rule| &rule.limit);
    let hold = limit.map(|limit| match limit.hold {
        Hold::Expected => "expected",
        Hold::Worst => "worst",
    });
    let on_expiry = limit.map(|limit| match limit.on_expiry {
        OnExpiry::Release => "release",
        OnExpiry::Charge => "charge",
    });
    let when_away = limit.map(|limit| match limit.when_away {
        WhenAway::Open => "open",
        WhenAway::Local => "local",
        WhenAway::Closed => "closed",
    });
    let mut told = json!({
        "limit": line.name, "scope": line.scope, "measure": line.measure, "shape": line.form, "model": line.model,
        "ceiling": line.ceiling, "unit": unit(line), "strictness": strictness(line), "hold": hold,
        "on_expiry": on_expiry, "when_away": when_away, "shadow": line.shadow,
        "account": format!("{:016x}:{:016x}", line.account.subject.0, line.account.name),
    });
    accounts::tell_raise(&mut told, line.raise);
    told
}

fn unit(line: &BoundLine) -> &'static str {
    match line.measure {
        "cost" => "nano-currency",
        "requests" | "concurrency" => "calls",
        _ => "llm_tokens",
    }
}

fn strictness(line: &BoundLine) -> &'static str {
    match line.strictness {
        Strictness::Soft => "soft",
        Strictness::Hard => "hard",
    }
}

fn print(bounds: &[Bound], colours: bool) -> String {
    let (bold, dim, reset) = if colours { (BOLD, DIM, RESET) } else { ("", "", "") };
    let rows: Vec<Vec<[String; COLUMNS]>> =
        bounds.iter().map(|bound| bound.lines.iter().map(cells).collect()).collect();
    let mut widths = [0; COLUMNS];
    for row in rows.iter().flatten() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for (bound, rows) in bounds.iter().zip(&rows) {
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{bold}{}{reset}", bound.title);
        if rows.is_empty() {
            let _ = writeln!(out, "  {dim}no limit{reset}");
        }
        for [scope, measure, form, ceiling, strictness, name] in rows {
            let [scope_w, measure_w, form_w, ceiling_w, strictness_w, _] = widths;
            let _ = write!(
                out,
                "  {scope:<scope_w$}  {measure:<measure_w$}  {form:<form_w$}  {ceiling:>ceiling_w$}  "
            );
            let _ = writeln!(out, "{strictness:<strictness_w$}  {dim}{name}{reset}");
        }
        out.push('\n');
    }
    out
}

fn cells(line: &BoundLine) -> [String; COLUMNS] {
    let amount = |amount: u64| {
        let amount = i128::from(amount);
        if line.measure == "cost" { money(amount) } else { grouped(amount) }
    };
    let ceiling = match line.raise {
        Some(raise) => {
            let until = instant(raise.until.saturating_mul(1_000));
            format!("{} + {} until {until}", amount(line.ceiling), amount(raise.by))
        }
        None => amount(line.ceiling),
    };
    let shadow = if line.shadow { " shadow" } else { "" };
    let form = match &line.model {
        Some(model) => format!("{}, {model} only", line.form),
        None => line.form.clone(),
    };
    let strictness = format!("{}{shadow}", strictness(line));
    [line.scope.clone(), line.measure.to_owned(), form, ceiling, strictness, line.name.clone()]
}
