//! `tollbook report`: what calls were charged, as a table, CSV or JSON. The journal is opened to read only.

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tollbook_simulate::trace::quoted;
use tollbook_store::{Day, DayRange, Name};

use super::args::{Moment, Report};
use super::journal;
use super::output::put;
use super::{Console, Failure, environment};
use crate::config;
use crate::report::{PARTS, Query, Rows, Sums, day_text, rows};
use crate::text::{aligned, exact, grouped, money};

/// What a table shows of the parts; the other forms tell all of them.
const SHOWN: [&str; 3] = ["input", "cached", "output"];

pub(super) fn run(args: &Report, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut query = query(args)?;
    let place = config::journal(&args.config, &environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        let store = journal::open(&place).await?;
        let whole = journal::whole_since(&store).await?;
        if query.reads_entries() && query.days.from < whole {
            let told = journal::no_longer_whole(whole);
            if args.from.is_some() {
                let help = "the columns day, tenant, model and pool tell all days";
                return Err(Failure::Run(anyhow!("tollbook report: {told}; {help}")));
            }
            writeln!(console.err, "{told}")?;
            query.days = DayRange { from: whole, to: query.days.to.max(whole) };
        }
        let found = rows(&store, &query).await.context("cannot read the journal");
        store.close().await;
        found.map_err(Failure::from)
    })?;
    let text = if args.json {
        format!("{:#}\n", object(&query, &rows))
    } else if args.csv {
        csv(&query, &rows)
    } else {
        table(&query, &rows)
    };
    put(&text, args.output.as_deref(), console)
}

fn query(args: &Report) -> Result<Query, Failure> {
    let day = |moment: Moment| Day::of(journal::at(moment));
    let days = DayRange {
        from: args.from.map_or(Day(0), day),
        to: args.to.map_or_else(|| Day::of(journal::at(Moment::Ago(std::time::Duration::ZERO))), day),
    };
    if days.from > days.to {
        return Err(Failure::Usage("tollbook report: --from must not be after --to".to_owned()));
    }
    let mut by = Vec::new();
    for one in &args.by {
        if !by.contains(one) {
            by.push(*one);
        }
    }
    let name = |text: &Option<String>| text.as_deref().map(Name::from).unwrap_or_default();
    Ok(Query { by, days, tenant: name(&args.tenant), model: name(&args.model) })
}

fn total(rows: &Rows) -> Sums {
    let mut total = Sums::default();
    for row in rows.values() {
        total.add(row);
    }
    total
}

fn sums_object(sums: &Sums) -> Map<String, Value> {
    // Beyond what a JSON reader takes exactly, a sum is text.
    let number = |amount: i128| i64::try_from(amount).map_or_else(|_| amount.to_string().into(), Value::from);
    let mut object = Map::new();
    object.insert("requests".to_owned(), number(sums.requests));
    object.insert("llm_tokens".to_owned(), number(sums.llm_tokens()));
    object.extend(PARTS.iter().zip(sums.parts).map(|(name, amount)| ((*name).to_owned(), number(amount))));
    object.insert("cost".to_owned(), exact(sums.cost_nano).into());
    object
}

fn object(query: &Query, rows: &Rows) -> Value {
    let words: Vec<&str> = query.by.iter().map(|by| by.word()).collect();
    let row = |(names, sums): (&Vec<String>, &Sums)| {
        let mut object: Map<String, Value> =
            words.iter().zip(names).map(|(word, name)| ((*word).to_owned(), name.as_str().into())).collect();
        object.extend(sums_object(sums));
        Value::Object(object)
    };
    let from = (query.days.from > Day(0)).then(|| day_text(query.days.from));
    json!({
        "from": from, "to": day_text(query.days.to), "by": words,
        "rows": rows.iter().map(row).collect::<Vec<_>>(), "total": Value::Object(sums_object(&total(rows))),
    })
}

fn csv(query: &Query, rows: &Rows) -> String {
    let words = query.by.iter().map(|by| by.word());
    let head: Vec<&str> = words.chain(["requests"]).chain(PARTS).chain(["cost"]).collect();
    let mut out = format!("{}\n", head.join(","));
    for (names, sums) in rows {
        let names = names.iter().map(|name| quoted(name));
        let parts = sums.parts.iter().map(i128::to_string);
        let cells = names.chain([sums.requests.to_string()]).chain(parts).chain([exact(sums.cost_nano)]);
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join(","));
    }
    out
}

fn table(query: &Query, rows: &Rows) -> String {
    let words = query.by.iter().map(|by| by.word().to_owned());
    let head =
        words.chain(["requests".to_owned()]).chain(SHOWN.map(str::to_owned)).chain(["cost".to_owned()]);
    let cells = |names: &[String], sums: &Sums| -> Vec<String> {
        let shown = SHOWN.iter().map(|part| grouped(sums.part(part)));
        let names = names.iter().map(|name| if name.is_empty() { "-".to_owned() } else { name.clone() });
        names.chain([grouped(sums.requests)]).chain(shown).chain([money(sums.cost_nano)]).collect()
    };
    let mut lines: Vec<Vec<String>> = vec![head.collect()];
    lines.extend(rows.iter().map(|(names, sums)| cells(names, sums)));
    let label: Vec<String> =
        (0..query.by.len()).map(|at| if at == 0 { "total" } else { " " }.to_owned()).collect();
    lines.push(cells(&label, &total(rows)));
    aligned(&lines, query.by.len())
}
