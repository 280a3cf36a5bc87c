//! `tollbook inspect`: what the book keeps of one tenant.
//!
//! A shared book is asked directly; one in a gateway's own process through that gateway's operator's listener.

use std::fmt::Write as _;

use anyhow::anyhow;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tollbook_engine_redis::{Link, RedisEngine};

use super::args::Inspect;
use super::client::ask;
use super::serve::runtime;
use super::{Console, Failure, environment};
use crate::config::{self, Book, Setup};
use crate::text::{escaped, grouped, money};

pub(super) fn run(args: &Inspect, console: &mut Console<'_>) -> Result<(), Failure> {
    let setup = config::load(&args.config, &environment)?;
    let kept = runtime()?.block_on(kept(&setup, args))?;
    if args.json {
        return super::json(console, &kept);
    }
    console.out.write_all(text(&kept).as_bytes())?;
    Ok(())
}

async fn kept(setup: &Setup, args: &Inspect) -> anyhow::Result<Value> {
    // Tenants of the store are known to the gateway alone.
    if let (Book::Redis(options), None) = (&setup.book, &setup.base) {
        let link = Link::open(options).map_err(|error| anyhow!("engine.redis: {error}"))?;
        let engine = RedisEngine::new(link, options.prefix.clone());
        let catalog = setup.snapshot.catalog.as_ref();
        let catalogs = (catalog, std::iter::once(catalog));
        return crate::inspect::tenant(&engine, catalogs, &args.tenant, true).await;
    }
    let Some(admin) = &setup.admin else {
        return Err(anyhow!(
            "the book is in the gateway's own process, and is seen through its operator's listener: set \
             admin.api_key, start the gateway again, and ask once more"
        ));
    };
    let listener = args.admin.clone().unwrap_or_else(|| format!("http://{}", admin.listen));
    let path = format!("/admin/v1/inspect/{}", escaped(&args.tenant));
    ask(&listener, &path, admin.api_key.expose_secret(), None).await
}

/// Writing into a string cannot fail, here and below.
fn text(kept: &Value) -> String {
    let list = |name: &str| kept[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out =
        format!("tenant {}, shard {}, epoch {}\n", word(&kept["tenant"]), kept["shard"], kept["epoch"]);
    let accounts = list("accounts");
    let _ = writeln!(out, "\naccounts: {}", accounts.len());
    for row in accounts {
        account(row, &mut out);
    }
    let unnamed = list("unnamed_accounts");
    if !unnamed.is_empty() {
        let _ = writeln!(
            out,
            "\naccounts of this shard that the configuration does not name, as those of end users: {}",
            unnamed.len()
        );
        for row in unnamed {
            account(row, &mut out);
        }
    }
    let holds = list("holds");
    let _ = writeln!(out, "\nlive reservations: {}", holds.len());
    for row in holds {
        hold(row, &mut out);
    }
    let estimators = list("estimators");
    let _ = writeln!(out, "\nestimators: {}", estimators.len());
    for row in estimators {
        estimator(row, &mut out);
    }
    if kept["cut"] == true {
        let most = crate::inspect::SHOWN_MAX;
        let _ = writeln!(out, "\nthe shard keeps more than {most} of one of them; the rest is not shown");
    }
    out
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn number(value: &Value) -> i128 {
    value.as_i64().map_or_else(|| value.as_u64().map_or(0, i128::from), i128::from)
}

/// In the unit of the measure.
fn amount(measure: &str, value: &Value) -> String {
    if measure == "cost" { money(number(value)) } else { grouped(number(value)) }
}

/// Milliseconds as seconds; absent: never.
fn seconds(value: &Value) -> String {
    value.as_u64().map_or_else(|| "never".to_owned(), |ms| format!("{}.{:03} s", ms / 1000, ms % 1000))
}

fn account(row: &Value, out: &mut String) {
    let measure = word(&row["measure"]);
    let beside = if word(&row["shape"]).contains("forecast") { "planned" } else { "held" };
    let _ = write!(
        out,
        "  {} {measure}, {}: posted {}, {beside} {}, {} live, empty in {}",
        word(&row["account"]),
        word(&row["shape"]),
        amount(measure, &row["posted"]),
        amount(measure, &row["held"]),
        number(&row["live_holds"]),
        seconds(&row["reset_ms"]),
    );
    if let Some(period) = row["period"].as_i64().filter(|start| *start > 0) {
        let since =
            jiff::Timestamp::from_second(period).map_or_else(|_| period.to_string(), |at| at.to_string());
        let _ = write!(out, ", period from {since}");
    }
    if number(&row["shadow_denied"]) > 0 {
        let _ = write!(out, ", {} would be denied in shadow", number(&row["shadow_denied"]));
    }
    out.push('\n');
    for limit in row["limits"].as_array().into_iter().flatten() {
        let model = limit["model"].as_str().map_or_else(String::new, |model| format!(" on {model}"));
        let shadow = if limit["shadow"] == true { ", shadow" } else { "" };
        let _ = writeln!(
            out,
            "    {} of {}{model}: {}, ceiling {}, {}{shadow}",
            word(&limit["limit"]),
            word(&limit["subject"]),
            word(&limit["form"]),
            amount(measure, &limit["ceiling"]),
            word(&limit["strictness"]),
        );
    }
}

fn hold(row: &Value, out: &mut String) {
    let state = if row["sent"] == true { "sent" } else { "at the door" };
    let due = match row["due_ms"].as_u64() {
        Some(0) => "due".to_owned(),
        _ => format!("due in {}", seconds(&row["due_ms"])),
    };
    let _ = writeln!(
        out,
        "  {} attempt {}: {state}, {} old, {due}",
        word(&row["id"]),
        row["attempt"],
        seconds(&row["age_ms"])
    );
    for leg in row["legs"].as_array().into_iter().flatten() {
        let limits: Vec<&str> = leg["limits"].as_array().into_iter().flatten().map(word).collect();
        let name = if limits.is_empty() { word(&leg["account"]).to_owned() } else { limits.join(", ") };
        let _ = writeln!(
            out,
            "    {name}: held {}, decided {}, output expected {}",
            grouped(number(&leg["held"])),
            grouped(number(&leg["decided"])),
            grouped(number(&leg["output"])),
        );
    }
}

fn estimator(row: &Value, out: &mut String) {
    let thousandths = number(&row["mean_llm_tokens_thousandths"]);
    let mean = format!("{}.{:03}", grouped(thousandths / 1000), thousandths % 1000);
    let _ = writeln!(
        out,
        "  {}, {}: {} calls, mean {mean} llm_tokens, {} samples, last used {} ago",
        word(&row["of"]),
        word(&row["kind"]),
        number(&row["calls"]),
        number(&row["samples"]),
        seconds(&row["idle_ms"]),
    );
}
