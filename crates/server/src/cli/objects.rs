//! `tollbook tenant | project | key | service | plan | operator`, `apply`, `export`, `changes`: what operators define in
//! the store, through a gateway's operators' listener.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::BufRead as _;

use http::Method;
use serde_json::{Map, Value, json};
use tollbook_store::{ObjectKind, ObjectName};

use super::args::{Adjust, Apply, Changes, Export, ObjectCommand, Objects, Operators};
use super::client::{self, usage};
use super::serve::runtime;
use super::{Console, Failure, environment, output};
use crate::config::{self, place};
use crate::import::fragment;
use crate::text::escaped;

/// Objects that one page of a list has.
const PAGE: usize = 1_000;
/// Members that a table does not show: they are in `show`, or the same everywhere.
const NOT_IN_TABLES: [&str; 5] = ["tenant", "project", "created_at", "changed_at", "version"];

/// A listener and the key for it.
pub(super) struct Session<'a> {
    admin: &'a str,
    key: String,
}

impl<'a> Session<'a> {
    pub(super) fn new(operators: &'a Operators) -> Result<Self, Failure> {
        Ok(Self { admin: &operators.admin, key: client::key(operators)? })
    }

    pub(super) fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        self.send_for(method, path, body, client::ANY)
    }

    fn send_for(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: &str,
    ) -> Result<Value, Failure> {
        let (path, body) = (format!("/admin/v1/{path}"), (body.map(Value::to_string), version));
        Ok(runtime()?.block_on(client::send(self.admin, method, &path, &self.key, body))?)
    }
}

pub(super) fn run(kind: ObjectKind, args: &Objects, console: &mut Console<'_>) -> Result<(), Failure> {
    let session = Session::new(&args.operators)?;
    let answer = match &args.command {
        ObjectCommand::List { owner, prefix } => {
            let rows = list(&session, kind, owner, prefix.as_deref())?;
            if args.json {
                return super::json(console, &json!(rows));
            }
            return Ok(console.out.write_all(table(&rows).as_bytes())?);
        }
        ObjectCommand::Show { ids } => session.send(Method::GET, &one(kind, ids)?, None)?,
        ObjectCommand::Create { ids, fields } => {
            let (last, owner) = ids.split_last().ok_or_else(|| usage("an id is needed"))?;
            let mut document = set(&fields.set)?;
            document.insert("id".to_owned(), Value::from(last.as_str()));
            let path = dry(collection(kind, owner)?, fields.dry_run);
            session.send(Method::POST, &path, Some(&Value::Object(document)))?
        }
        ObjectCommand::Update { ids, fields } => {
            let path = dry(one(kind, ids)?, fields.dry_run);
            session.send(Method::PATCH, &path, Some(&Value::Object(set(&fields.set)?)))?
        }
        ObjectCommand::Delete { ids, cascade, dry_run } => {
            let path = format!("{}?cascade={cascade}&dry_run={dry_run}", one(kind, ids)?);
            session.send(Method::DELETE, &path, None)?
        }
        ObjectCommand::Rotate { ids, overlap } => {
            if !matches!(kind, ObjectKind::Key | ObjectKind::Operator) {
                return Err(usage(&format!("a {} has no secret", kind.word())));
            }
            let body = overlap.as_ref().map_or_else(|| json!({}), |overlap| json!({"overlap": overlap}));
            session.send(Method::POST, &format!("{}/rotate", one(kind, ids)?), Some(&body))?
        }
    };
    if args.json {
        return super::json(console, &answer);
    }
    let text =
        if answer.get("changed").is_some() { difference(&answer, console.colours) } else { lines(&answer) };
    console.out.write_all(text.as_bytes())?;
    if answer.get("secret").is_some() && console.terminal {
        writeln!(console.err, "\nThe secret is not shown again.")?;
    }
    warn(&answer, console)
}

pub(super) fn apply(args: &Apply, console: &mut Console<'_>) -> Result<(), Failure> {
    let document = Value::Object(config::people(&args.file, args.providers, &environment)?);
    let session = Session::new(&args.operators)?;
    let send = |dry_run: bool, version: &str| {
        let path = format!("apply?prune={}&dry_run={dry_run}", args.prune);
        session.send_for(Method::POST, &path, Some(&document), version)
    };
    let planned = send(true, client::ANY)?;
    let deletes = array(&planned, "changed").iter().any(|one| member(one, "change") == "deleted");
    let same = array(&planned, "changed").is_empty();
    if !args.json {
        console.out.write_all(difference(&planned, console.colours).as_bytes())?;
        warn(&planned, console)?;
    }
    if args.dry_run || same {
        return if args.json { super::json(console, &planned) } else { Ok(()) };
    }
    let asks = !args.yes && (console.terminal || deletes);
    if asks && !confirmed(console)? {
        return Err(Failure::Run(anyhow::anyhow!("nothing was changed")));
    }
    // What somebody agreed to is what they saw.
    let version = if asks { member(&planned, "revision").to_string() } else { client::ANY.to_owned() };
    let done = send(false, &version)?;
    if args.json {
        return super::json(console, &done);
    }
    Ok(writeln!(console.out, "applied; the store is at revision {}", member(&done, "revision"))?)
}

/// Asks on a terminal; elsewhere what deletes needs `--yes`.
fn confirmed(console: &mut Console<'_>) -> Result<bool, Failure> {
    if !console.terminal {
        return Err(usage("objects would be deleted: give --yes"));
    }
    write!(console.err, "apply this? [y/N] ")?;
    console.err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(super) fn export(args: &Export, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut whole = Session::new(&args.operators)?.send(Method::GET, "export", None)?;
    literal(&mut whole);
    let text = if args.json {
        format!("{whole:#}\n")
    } else {
        ["upstreams", "models", "plans", "tenants"]
            .into_iter()
            .filter(|name| !array(&whole, name).is_empty())
            .map(|name| fragment(name, array(&whole, name)))
            .collect()
    };
    output::put(&text, args.output.as_deref(), console)
}

/// Texts as a file has to write them: what looks like a variable of the environment is none. Else a name that somebody
/// gave would be read as one when the file is applied.
fn literal(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("${", "$${"),
        Value::Array(items) => items.iter_mut().for_each(literal),
        Value::Object(members) => members.values_mut().for_each(literal),
        _ => {}
    }
}

pub(super) fn changes(args: &Changes, console: &mut Console<'_>) -> Result<(), Failure> {
    let tenant =
        args.tenant.as_ref().map(|tenant| format!("&tenant={}", escaped(tenant))).unwrap_or_default();
    let path = format!("changes?limit={}{tenant}", args.limit.clamp(1, 1_000));
    let answer = Session::new(&args.operators)?.send(Method::GET, &path, None)?;
    if args.json {
        return super::json(console, member(&answer, "data"));
    }
    let mut out = String::new();
    for change in array(&answer, "data") {
        let what = what(change.get("before"), change.get("after"));
        let at = member(change, "at").as_str().unwrap_or("?");
        let (object, who) = (text(member(change, "object")), text(member(change, "who")));
        // Writing into a string cannot fail, here and below.
        let _ = writeln!(out, "{:>6}  {at}  {who}  {what} {object}", member(change, "number"));
    }
    Ok(console.out.write_all(out.as_bytes())?)
}

pub(super) fn adjust(args: &Adjust, console: &mut Console<'_>) -> Result<(), Failure> {
    let Adjust { limit, delta, reason, user, id, .. } = args;
    let mut order = json!({"limit": limit, "delta": delta, "reason": reason});
    for (member, value) in [("user", user), ("id", id)] {
        if let (Value::Object(members), Some(value)) = (&mut order, value) {
            members.insert(member.to_owned(), Value::from(value.as_str()));
        }
    }
    let path = format!("tenants/{}/adjust", escaped(&args.tenant));
    let answer = Session::new(&args.operators)?.send(Method::POST, &path, Some(&order))?;
    if args.json {
        return super::json(console, &answer);
    }
    let word = if member(&answer, "applied") == true { "posted" } else { "was posted before" };
    let part = |name: &str| text(member(&answer, name));
    Ok(writeln!(
        console.out,
        "{} {word} to {limit}: {} of {} used, {} left",
        part("delta"),
        part("posted"),
        part("ceiling"),
        part("remaining")
    )?)
}

fn what(before: Option<&Value>, after: Option<&Value>) -> &'static str {
    let absent = |value: Option<&Value>| value.is_none_or(Value::is_null);
    match (absent(before), absent(after)) {
        (true, _) => "created",
        (false, false) => "changed",
        (false, true) => "deleted",
    }
}

/// All pages.
fn list(
    session: &Session<'_>,
    kind: ObjectKind,
    owner: &[String],
    prefix: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    let path = collection(kind, owner)?;
    let prefix = prefix.map(|prefix| format!("&prefix={}", escaped(prefix))).unwrap_or_default();
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let page = session.send(Method::GET, &format!("{path}?limit={PAGE}{prefix}{after}"), None)?;
        rows.extend_from_slice(array(&page, "data"));
        let Some(next) = member(&page, "next").as_str() else { return Ok(rows) };
        after = format!("&after={}", escaped(next));
    }
}

fn owners(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Project | ObjectKind::Service | ObjectKind::User => &["TENANT"],
        ObjectKind::Key => &["TENANT", "PROJECT"],
        _ => &[],
    }
}

fn collection(kind: ObjectKind, owner: &[String]) -> Result<String, Failure> {
    let wanted = owners(kind);
    if owner.len() != wanted.len() {
        let all = if wanted.is_empty() { "no ids of others".to_owned() } else { wanted.join(" ") };
        return Err(usage(&format!("{}s are below {all}", kind.word())));
    }
    let ids: Vec<String> = owner.iter().chain([&"x".to_owned()]).cloned().collect();
    let path = one(kind, &ids)?;
    Ok(path.rsplit_once('/').map(|(all, _)| all.to_owned()).unwrap_or(path))
}

fn one(kind: ObjectKind, ids: &[String]) -> Result<String, Failure> {
    let (tenant, project, id) = match (kind, ids) {
        (ObjectKind::Tenant, [tenant]) => (tenant.as_str(), "", ""),
        (ObjectKind::Project, [tenant, project]) => (tenant.as_str(), project.as_str(), ""),
        (ObjectKind::Key, [tenant, project, id]) => (tenant.as_str(), project.as_str(), id.as_str()),
        (ObjectKind::Service | ObjectKind::User, [tenant, id]) => (tenant.as_str(), "", id.as_str()),
        (ObjectKind::Plan | ObjectKind::Operator | ObjectKind::Upstream | ObjectKind::Model, [id]) => {
            ("", "", id.as_str())
        }
        _ => {
            let word = kind.word();
            let own = word.to_uppercase();
            let names: Vec<&str> = owners(kind).iter().copied().chain([own.as_str()]).collect();
            return Err(usage(&format!("a {word} is named by {}", names.join(" "))));
        }
    };
    let name = |text: &str| text.to_owned();
    Ok(place(&ObjectName { kind, tenant: name(tenant), project: name(project), id: name(id) }))
}

fn dry(path: String, dry_run: bool) -> String {
    if dry_run { format!("{path}?dry_run=true") } else { path }
}

fn set(fields: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut document = Map::new();
    for given in fields {
        let Some((field, text)) = given.split_once('=') else {
            return Err(usage(&format!("--set {given}: must be FIELD=VALUE")));
        };
        let value = config::value(text).map_err(|what| usage(&format!("--set {field}: {what}")))?;
        if document.insert(field.to_owned(), value).is_some() {
            return Err(usage(&format!("--set {field}: is given twice")));
        }
    }
    Ok(document)
}

fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

fn array<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    member(value, name).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What somebody wrote is shown, and never obeyed by a terminal.
fn text(value: &Value) -> String {
    let shown = |text: &str| text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    value.as_str().map_or_else(|| value.to_string(), shown)
}

/// An object, a member a line.
fn lines(object: &Value) -> String {
    let mut out = String::new();
    for (member, value) in object.as_object().into_iter().flatten() {
        let _ = writeln!(out, "{member}: {}", text(value));
    }
    out
}

/// Objects as a table; a column for every member that one of them has.
fn table(rows: &[Value]) -> String {
    let members = |row: &Value| -> Vec<String> {
        let all = row.as_object().into_iter().flat_map(Map::keys);
        all.filter(|member| !NOT_IN_TABLES.contains(&member.as_str()) && *member != "id").cloned().collect()
    };
    let rest: BTreeSet<String> = rows.iter().flat_map(members).collect();
    let columns: Vec<String> = std::iter::once("id".to_owned()).chain(rest).collect();
    let cell = |row: &Value, column: &str| match row.get(column) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Array(items)) => format!("{} of them", items.len()),
        Some(value) => text(value),
    };
    let mut cells: Vec<Vec<String>> = vec![columns.iter().map(|column| column.to_uppercase()).collect()];
    cells.extend(rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()));
    let width = |at: usize| {
        cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    for row in &cells {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "{}", line.join("  ").trim_end());
    }
    out
}

/// What is changed, an object a line, its members below it.
fn difference(answer: &Value, colours: bool) -> String {
    let all = array(answer, "changed");
    if all.is_empty() {
        return "nothing to change\n".to_owned();
    }
    let mut out = String::new();
    for one in all {
        let (sign, colour) = match member(one, "change").as_str() {
            Some("created") => ('+', "32"),
            Some("deleted") => ('-', "31"),
            _ => ('~', "33"),
        };
        let line = format!("{sign} {}", text(member(one, "object")));
        let _ =
            if colours { writeln!(out, "\u{1b}[{colour}m{line}\u{1b}[0m") } else { writeln!(out, "{line}") };
        if sign == '-' {
            continue;
        }
        let empty = Map::new();
        let (before, after) = (
            member(one, "before").as_object().unwrap_or(&empty),
            member(one, "after").as_object().unwrap_or(&empty),
        );
        let members: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for member in members {
            match (before.get(member), after.get(member)) {
                (old, new) if old == new => {}
                (None, Some(new)) => drop(writeln!(out, "    {member}: {}", text(new))),
                (Some(old), None) => drop(writeln!(out, "    {member}: {} → nothing", text(old))),
                (Some(old), Some(new)) => drop(writeln!(out, "    {member}: {} → {}", text(old), text(new))),
                (None, None) => {}
            }
        }
    }
    out
}

fn warn(answer: &Value, console: &mut Console<'_>) -> Result<(), Failure> {
    for warning in array(answer, "warnings") {
        writeln!(console.err, "warning: {}", text(warning))?;
    }
    Ok(())
}
