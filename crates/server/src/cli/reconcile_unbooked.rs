//! `tollbook reconcile --unbooked`: calls that ended when the engine no longer knew them, and what of them is missing (L8).

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::{Value, json};
use tollbook_ledger::units::SECOND;
use tollbook_store::{Day, EntryPlace, Journal, PAGE_MAX, Span};

use super::args::{Moment, Reconcile};
use super::output::put;
use super::reconcile::Poster;
use super::{Console, Failure, environment, journal};
use crate::config;
use crate::reconcile::unbooked::{Missing, Named, missing};
use crate::report::day_text;
use crate::text::{aligned, exact, grouped, money};

const DAY: u64 = 86_400 * SECOND;

pub(super) fn run(args: &Reconcile, console: &mut Console<'_>) -> Result<(), Failure> {
    let poster = Poster::new(args)?;
    let path = config::journal(&args.config, &environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let all = runtime.block_on(async {
        let store = journal::open(&path).await?;
        let all = read(&store, ended(args)).await.context("cannot read the journal");
        store.close().await;
        all.map_err(Failure::from)
    })?;
    let shown: Vec<_> = all.iter().filter(|(_, missing)| args.all || missing.is_open()).collect();
    let text = if args.json {
        let rows: Vec<Value> = shown.iter().map(|(named, missing)| object(named, missing)).collect();
        format!("{:#}\n", json!({"unbooked": all.len(), "missing": rows}))
    } else {
        table(&shown)
    };
    put(&text, args.output.as_deref(), console)?;
    let open: Vec<Value> =
        all.iter().filter(|(_, missing)| missing.is_open()).map(|(named, _)| json!(named)).collect();
    let what = format!("{} unbooked attempts, something is missing of {}", all.len(), open.len());
    match poster {
        _ if open.is_empty() => Ok(writeln!(console.err, "{what}")?),
        None => Err(Failure::Found(format!("tollbook reconcile: {what}"))),
        Some(poster) => {
            let (posted, of) = poster.post("unbooked", &open)?;
            Ok(writeln!(console.err, "{what}; posted {posted} of {of}")?)
        }
    }
}

/// When they ended, whole days.
fn ended(args: &Reconcile) -> Span {
    let day = |moment: Moment| u64::from(Day::of(journal::at(moment)).0);
    Span {
        from: args.from.map_or(0, |from| day(from).saturating_mul(DAY)),
        to: args.to.map_or(u64::MAX, |to| day(to).saturating_add(1).saturating_mul(DAY)),
    }
}

async fn read(
    journal: &dyn Journal,
    ended: Span,
) -> Result<Vec<(Named, Missing)>, tollbook_store::StoreError> {
    let (mut all, mut place) = (Vec::new(), Some(EntryPlace::default()));
    let mut seen = BTreeSet::new();
    while let Some(after) = place {
        let page = journal.entries(ended, after, PAGE_MAX).await?;
        for entry in page.entries.iter().filter(|entry| entry.is_unbooked()) {
            let Some(named) = Named::of(entry) else { continue };
            if seen.insert(entry.key()) {
                if !journal.is_whole(entry.reservation).await? {
                    continue;
                }
                let entries = journal.by_reservation(entry.reservation).await?;
                all.extend(missing(&entries, entry.attempt, entry.body.side).map(|found| (named, found)));
            }
        }
        place = page.next;
    }
    Ok(all)
}

fn state(missing: &Missing) -> &'static str {
    match (missing.posted, missing.is_open()) {
        (true, _) => "posted",
        (false, true) => "missing",
        (false, false) => "settled",
    }
}

fn table(shown: &[&(Named, Missing)]) -> String {
    if shown.is_empty() {
        return String::new();
    }
    let head =
        ["day", "request", "side", "tenant", "key", "model", "state", "requests", "input", "output", "cost"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    for (named, missing) in shown {
        let (body, delta) = (&missing.entry.body, missing.change.delta());
        let name = |name: &str| if name.is_empty() { "-".to_owned() } else { name.to_owned() };
        cells.push(vec![
            day_text(Day::of(missing.at)),
            name(if body.request_id.is_empty() { &named.reservation } else { &body.request_id }),
            named.side.word().to_owned(),
            name(&body.tenant),
            name(&body.key),
            name(&body.model_used),
            state(missing).to_owned(),
            grouped(delta.requests.into()),
            grouped(delta.usage.input.into()),
            grouped(delta.usage.output.into()),
            money(delta.cost_nano.into()),
        ]);
    }
    aligned(&cells, 7)
}

fn object(named: &Named, missing: &Missing) -> Value {
    let (body, delta) = (&missing.entry.body, missing.change.delta());
    json!({
        "reservation": named.reservation, "attempt": named.attempt, "side": named.side,
        "request_id": *body.request_id, "day": day_text(Day::of(missing.at)), "tenant": *body.tenant,
        "key": *body.key, "model": *body.model_used, "pool": *body.pool, "state": state(missing),
        "requests": delta.requests, "input": delta.usage.input, "cached": delta.usage.cached,
        "output": delta.usage.output, "cost": exact(delta.cost_nano.into()),
    })
}
