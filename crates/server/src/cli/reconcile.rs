//! `tollbook reconcile`: what providers counted beside the journal. The journal is opened to read only; what is posted is
//! posted by the running gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use tollbook_pricing::parse_scaled;
use tollbook_simulate::trace::quoted;
use tollbook_store::{Day, DayRange, Journal as _, Name, Side, Total, TotalsQuery};

use super::args::{Moment, Reconcile};
use super::output::put;
use super::{Console, Failure, client, environment, journal, reconcile_unbooked};
use crate::config;
use crate::reconcile::files::Read;
use crate::reconcile::{
    Columns, Found, Key, Line, Ours, PERCENT_PLACES, Usage, Whose, compare, ours, renamed,
};
use crate::report::day_text;
use crate::text::{aligned, exact, grouped, money};

/// What one order to a gateway holds: it is done well within a client's patience.
const POSTED_AT_ONCE: usize = 100;

pub(super) fn run(args: &Reconcile, console: &mut Console<'_>) -> Result<(), Failure> {
    if args.unbooked {
        return reconcile_unbooked::run(args, console);
    }
    let poster = Poster::new(args)?;
    let tolerance = parse_scaled(&args.tolerance, PERCENT_PLACES);
    let tolerance = tolerance.map_err(|error| usage(format!("--tolerance {error}: `{}`", args.tolerance)))?;
    let models = models(args)?;
    let Read { usage, told, currencies } = files(args)?;
    let days = days(args, &usage)?;
    let usage: Usage =
        usage.into_iter().filter(|(key, _)| (days.from..=days.to).contains(&key.day)).collect();
    let scopes = usage.keys().map(|key| key.scope.clone()).collect();
    let ours: Ours = ours(&totals(args, days)?, &scopes);
    let found = compare(&renamed(usage, &ours, &models), &ours, tolerance);
    let text = if args.json {
        format!("{:#}\n", object(args, days, &currencies, &found))
    } else if args.csv {
        csv(&found, args.all)
    } else {
        table(&found, args.all)
    };
    put(&text, args.output.as_deref(), console)?;
    if !args.json {
        console.err.write_all(told.as_bytes())?;
        console.err.write_all(summary(days, &found).as_bytes())?;
    }
    let above = found.above().count();
    if above == 0 {
        return Ok(());
    }
    let what = format!("{above} of {} amounts differ by more than {} %", found.lines.len(), args.tolerance);
    let Some(poster) = poster else { return Err(Failure::Found(format!("tollbook reconcile: {what}"))) };
    let (posted, rows) = poster.post("rows", &rows(&found))?;
    Ok(writeln!(console.err, "{what}; posted {posted} of {rows} rows")?)
}

/// The rows of which an amount is above the tolerance, with all that the provider tells of them.
fn rows(found: &Found) -> Vec<Value> {
    let above: BTreeSet<&Key> = found.above().map(|line| &line.key).collect();
    let mut rows: BTreeMap<&Key, Map<String, Value>> = BTreeMap::new();
    for line in found.lines.iter().filter(|line| above.contains(&line.key)) {
        let row = rows.entry(&line.key).or_insert_with(|| {
            let key = &line.key;
            let names = [
                ("day", day_text(key.day)),
                ("tenant", key.scope.tenant.clone()),
                ("upstream", key.scope.upstream.clone()),
                ("model", key.model.clone()),
            ];
            names.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text))).collect()
        });
        let counted = counted(line).unwrap_or(0);
        let amount = match line.measure {
            "cost" => exact(counted).into(),
            _ => i64::try_from(counted).unwrap_or(i64::MAX).into(),
        };
        row.insert(line.measure.to_owned(), amount);
    }
    rows.into_values().map(Value::Object).collect()
}

/// The running gateway, to post with.
pub(super) struct Poster<'a> {
    admin: &'a str,
    key: String,
}

impl<'a> Poster<'a> {
    /// `None` without `--post`.
    pub(super) fn new(args: &'a Reconcile) -> Result<Option<Self>, Failure> {
        let with = |key| Self { admin: &args.operators.admin, key };
        args.post.then(|| client::key(&args.operators).map(with)).transpose()
    }

    /// How many were posted, and of how many.
    pub(super) fn post(&self, what: &str, all: &[Value]) -> Result<(usize, usize), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut posted = 0;
        for some in all.chunks(POSTED_AT_ONCE) {
            let mut order = Map::new();
            order.insert(what.to_owned(), some.into());
            let order = Some(Value::Object(order).to_string());
            let answer =
                runtime.block_on(client::ask(self.admin, "/admin/v1/reconcile", &self.key, order))?;
            let done = answer.get(what).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            posted += done.iter().filter(|one| one.get("posted") == Some(&Value::Bool(true))).count();
        }
        Ok((posted, all.len()))
    }
}

fn usage(what: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("tollbook reconcile: {what}"))
}

/// Their names and ours.
fn models(args: &Reconcile) -> Result<BTreeMap<String, String>, Failure> {
    let one = |pair: &String| {
        let (theirs, ours) =
            pair.split_once('=').ok_or_else(|| usage(format!("--model: `{pair}` is not as THEIRS=OURS")))?;
        Ok((theirs.to_owned(), ours.to_owned()))
    };
    args.models.iter().map(one).collect()
}

fn files(args: &Reconcile) -> Result<Read, Failure> {
    let columns = args.columns.as_deref().map(Columns::parse).transpose();
    let columns = columns.map_err(|what| usage(format!("--columns: {what}")))?;
    let whose = Whose { tenant: args.tenant.clone(), upstream: args.upstream.clone() };
    let mut all = Read::default();
    all.take(&args.files, columns.as_ref(), &whose).map_err(Failure::Usage)?;
    all.in_one_currency().map_err(usage)?;
    Ok(all)
}

/// The days that are compared.
fn days(args: &Reconcile, usage: &Usage) -> Result<DayRange, Failure> {
    let day = |moment: Moment| Day::of(journal::at(moment));
    let (first, last) = (usage.keys().next(), usage.keys().next_back());
    let days = DayRange {
        from: args.from.map(day).or_else(|| first.map(|key| key.day)).unwrap_or_default(),
        to: args.to.map(day).or_else(|| last.map(|key| key.day)).unwrap_or_default(),
    };
    if days.from > days.to {
        let (from, to) = (day_text(days.from), day_text(days.to));
        return Err(self::usage(format!("there is no day to compare: from {from} to {to}")));
    }
    Ok(days)
}

/// What the journal has of these days.
fn totals(args: &Reconcile, days: DayRange) -> Result<Vec<Total>, Failure> {
    let place = config::journal(&args.config, &environment)?;
    let all = Name::default;
    let query = TotalsQuery { days, side: Side::Tenant, tenant: all(), pool: all(), model: all() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = journal::open(&place).await?;
        let totals = store.totals(&query).await.context("cannot read the journal");
        store.close().await;
        totals.map_err(Failure::from)
    })
}

/// A part as a percentage of a whole, from millionths.
fn percent(millionths: u128) -> String {
    format!("{}.{:02} %", millionths / 10_000, millionths % 10_000 / 100)
}

/// By how much they differ, of what the provider counted.
fn share(line: &Line) -> String {
    let counted = line.provider.unwrap_or(0);
    let differs = difference(line).unsigned_abs();
    differs.saturating_mul(1_000_000).checked_div(counted).map_or_else(|| "-".to_owned(), percent)
}

/// What the provider counted and we have not; negative where it is the other way round.
fn difference(line: &Line) -> i128 {
    let counted = i128::try_from(line.provider.unwrap_or(0)).unwrap_or(i128::MAX);
    counted.saturating_sub(line.journal.unwrap_or(0))
}

/// An amount by its measure; nothing where one side has no such row.
fn shown(line: &Line, amount: Option<i128>, cost: fn(i128) -> String, other: fn(i128) -> String) -> String {
    amount.map(if line.measure == "cost" { cost } else { other }).unwrap_or_default()
}

fn counted(line: &Line) -> Option<i128> {
    line.provider.map(|counted| i128::try_from(counted).unwrap_or(i128::MAX))
}

fn table(found: &Found, all: bool) -> String {
    let lines: Vec<&Line> = found.lines.iter().filter(|line| all || line.above).collect();
    if lines.is_empty() {
        return String::new();
    }
    let head = ["day", "tenant", "upstream", "model", "measure", "provider", "journal", "differs"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for line in &lines {
        let named = |name: &String| if name.is_empty() { "-".to_owned() } else { name.clone() };
        let side = |amount| Some(shown(line, amount, money, grouped)).filter(|text| !text.is_empty());
        let missing = || "missing".to_owned();
        cells.push(vec![
            day_text(line.key.day),
            named(&line.key.scope.tenant),
            named(&line.key.scope.upstream),
            line.key.model.clone(),
            line.measure.to_owned(),
            side(counted(line)).unwrap_or_else(missing),
            side(line.journal).unwrap_or_else(missing),
            share(line),
        ]);
    }
    aligned(&cells, 5)
}

fn csv(found: &Found, all: bool) -> String {
    let mut out = "day,tenant,upstream,model,measure,provider,journal,difference,above\n".to_owned();
    for line in found.lines.iter().filter(|line| all || line.above) {
        let (key, amount) = (&line.key, |amount| shown(line, amount, exact, |whole| whole.to_string()));
        let cells = [
            day_text(key.day),
            quoted(&key.scope.tenant),
            quoted(&key.scope.upstream),
            quoted(&key.model),
            line.measure.to_owned(),
            amount(counted(line)),
            amount(line.journal),
            amount(Some(difference(line))),
            line.above.to_string(),
        ];
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{}", cells.join(","));
    }
    out
}

fn summary(days: DayRange, found: &Found) -> String {
    let (from, to) = (day_text(days.from), day_text(days.to));
    let rate = found.error_millionths().map_or_else(|| "unknown".to_owned(), percent);
    let of = found.error_of();
    format!("compared {} amounts from {from} to {to}; error rate of {of} {rate}\n", found.lines.len())
}

fn object(args: &Reconcile, days: DayRange, currencies: &BTreeSet<String>, found: &Found) -> Value {
    // Cost is exact text; beyond what a JSON reader takes exactly, a number is text too.
    let amount = |line: &Line, amount: Option<i128>| match amount {
        None => Value::Null,
        Some(nano) if line.measure == "cost" => exact(nano).into(),
        Some(amount) => i64::try_from(amount).map_or_else(|_| amount.to_string().into(), Value::from),
    };
    let name = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    let one = |line: &Line| {
        json!({
            "day": day_text(line.key.day), "tenant": name(&line.key.scope.tenant),
            "upstream": name(&line.key.scope.upstream), "model": line.key.model, "measure": line.measure,
            "provider": amount(line, counted(line)), "journal": amount(line, line.journal),
            "difference": amount(line, Some(difference(line))), "above": line.above,
        })
    };
    let shown = found.lines.iter().filter(|line| args.all || line.above);
    // Millionths have the form of a decimal's nano, cut by three places.
    let rate =
        found.error_millionths().and_then(|rate| i128::try_from(rate.saturating_mul(1000)).ok()).map(exact);
    json!({
        "files": args.files, "from": day_text(days.from), "to": day_text(days.to),
        "currency": currencies.first(), "tolerance_percent": args.tolerance,
        "compared": found.lines.len(), "above": found.above().count(),
        "error_rate": rate, "error_rate_of": found.error_of(),
        "differences": shown.map(one).collect::<Vec<_>>(),
    })
}
