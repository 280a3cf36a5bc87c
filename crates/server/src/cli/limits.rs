//! `tollbook limit list`: the limits in force, through a gateway's operators' listener.

use http::Method;
use serde_json::{Value, json};

use super::args::{LimitCommand, Limits};
use super::objects::Session;
use super::{Console, Failure};
use crate::text::{aligned, escaped, grouped};

/// Limits that one page has.
const PAGE: usize = 1_000;

pub(super) fn run(args: &Limits, console: &mut Console<'_>) -> Result<(), Failure> {
    let LimitCommand::List { tenant } = &args.command;
    let rows = list(&Session::new(&args.operators)?, tenant.as_deref())?;
    if args.json {
        return super::json(console, &json!(rows));
    }
    Ok(console.out.write_all(table(&rows).as_bytes())?)
}

/// All pages.
fn list(session: &Session<'_>, tenant: Option<&str>) -> Result<Vec<Value>, Failure> {
    let tenant = tenant.map(|tenant| format!("&tenant={}", escaped(tenant))).unwrap_or_default();
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let page = &session.send(Method::GET, &format!("limits?limit={PAGE}{tenant}{after}"), None)?;
        rows.extend(page["data"].as_array().into_iter().flatten().cloned());
        let Some(next) = page["next"].as_str() else { return Ok(rows) };
        after = format!("&after={}", escaped(next));
    }
}

fn table(rows: &[Value]) -> String {
    let head = ["limit", "of", "counts", "as", "ceiling", "model", "strictness", "written at"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let word = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        let ceiling = row["decimal"].as_str().map(str::to_owned);
        let shadow = if row["shadow"] == true { ", shadow" } else { "" };
        let from = &row["from"];
        let part = |name: &str| from[name].as_str().unwrap_or("?");
        cells.push(vec![
            word("limit"),
            word("subject"),
            word("measure"),
            word("shape"),
            ceiling.unwrap_or_else(|| grouped(row["ceiling"].as_u64().unwrap_or(0).into())),
            word("model"),
            format!("{}{shadow}", word("strictness")),
            format!("{} of the {}, {}", part("kind"), part("source"), part("at")),
        ]);
    }
    aligned(&cells, head.len())
}
