//! `tollbook journal export`: the journal's calls as a trace, which `tollbook simulate` reads.
//!
//! Invariants: the journal is opened to read only; every line that is written is one that a trace may have; what is left
//! out is counted. A file appears whole or not at all, a pipe gets lines as they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde_json::{Value, json};
use tollbook_ledger::Micros;
use tollbook_ledger::units::SECOND;
use tollbook_simulate::trace::{ARRIVAL_MAX_S, CALLS_MAX, KEYS_MAX, LLM_TOKENS_MAX, quoted};
use tollbook_store::{Call, Calls, Day, DayRows, Due, Journal, JournalDays as _, Name, Span};
use tollbook_store_sql::{Place, SqlStore};

use super::args::{JournalDays, JournalExport, Moment};
use super::output::{Whole, cannot_write};
use super::{Console, Failure, environment};
use crate::config;
use crate::report::day_text;
use crate::text::{aligned, grouped};

const HEADER: &str = "arrival_s,input_tokens,output_tokens,key,tenant,model,ended_s,figures\n";
/// Exports that end sooner show no progress.
const QUIET: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(100);

pub(super) fn export(args: &JournalExport, console: &mut Console<'_>) -> Result<(), Failure> {
    let admitted = span(args)?;
    let place = config::journal(&args.config, &environment)?;
    let mut export = Export::new(args, admitted);
    let output = args.output.as_deref().filter(|path| *path != Path::new("-"));
    if args.json && output.is_none() {
        return Err(Failure::Usage("tollbook journal export: --json needs a file for the calls".to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(to) = output {
        let mut file = Whole::new(to).with_context(|| cannot_write(to))?;
        runtime.block_on(export.read(&place, &mut file.out))?;
        file.keep().with_context(|| cannot_write(to))?;
    } else {
        let mut out = BufWriter::new(&mut *console.out);
        runtime.block_on(export.read(&place, &mut out))?;
        out.flush()?;
    }
    if args.json {
        return super::json(console, &export.told.json(output));
    }
    console.err.write_all(export.told.text().as_bytes())?;
    Ok(())
}

/// The days that have entries, and which of them go.
pub(super) fn days(args: &JournalDays, console: &mut Console<'_>) -> Result<(), Failure> {
    let place = config::journal(&args.config, &environment)?;
    let keep = match args.keep_days {
        Some(days) => Some(days),
        None => config::journal_keep_days(&args.config, &environment)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (days, due, whole) = runtime.block_on(async {
        let store = open(&place).await?;
        let days = store.days().await.context("cannot read the journal")?;
        let due = match keep {
            Some(keep) => Some(store.due(keep).await.context("cannot read the journal")?),
            None => None,
        };
        let whole = whole_since(&store).await?;
        store.close().await;
        Ok::<_, Failure>((days, due, whole))
    })?;
    let state = |rows: &DayRows| due.map_or("kept", |due| state(rows, due));
    if args.json {
        let day = |rows: &DayRows| json!({"day": day_text(rows.day), "entries": rows.entries, "state": state(rows)});
        let whole = (whole > Day(0)).then(|| day_text(whole));
        let days: Vec<Value> = days.iter().map(day).collect();
        return super::json(console, &json!({"keep_days": keep, "whole_since": whole, "days": days}));
    }
    let mut lines = vec![["day", "entries", "state"].map(str::to_owned).to_vec()];
    lines.extend(
        days.iter()
            .map(|rows| vec![day_text(rows.day), grouped(rows.entries.into()), state(rows).to_owned()]),
    );
    console.out.write_all(aligned(&lines, 1).as_bytes())?;
    if whole > Day(0) {
        writeln!(console.err, "{}", no_longer_whole(whole))?;
    }
    Ok(())
}

/// What becomes of a day's rows. On a server a day that stands together with later ones goes with the last of them.
fn state(rows: &DayRows, due: Due) -> &'static str {
    match (rows.day < due.from, rows.newest <= due.settled) {
        (false, _) => "kept",
        (true, true) => "goes",
        (true, false) => "waits",
    }
}

/// The times of admission that are asked for.
fn span(args: &JournalExport) -> Result<Span, Failure> {
    let span = Span { from: args.since.map_or(0, at), to: args.until.map_or(u64::MAX, at) };
    if span.from >= span.to {
        return Err(Failure::Usage("tollbook journal export: --since must be before --until".to_owned()));
    }
    Ok(span)
}

/// Microseconds since 1970.
pub(super) fn at(moment: Moment) -> Micros {
    match moment {
        Moment::At(micros) => micros,
        Moment::Ago(time) => now().saturating_sub(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
    }
}

#[expect(clippy::disallowed_methods, reason = "a time ago counts from the wall clock, as the journal does")]
fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A journal, to read it.
pub(super) async fn open(place: &Place) -> Result<SqlStore, Failure> {
    if let Some(path) = place.file().filter(|path| !path.exists()) {
        let what = "there is no journal at";
        return Err(Failure::Run(anyhow!("{what} {}; a gateway makes it at its start", path.display())));
    }
    let store = SqlStore::open_to_read(place).await;
    Ok(store.with_context(|| format!("cannot open the journal {place}"))?)
}

/// The first day whose calls are all there.
pub(super) async fn whole_since(store: &SqlStore) -> Result<Day, Failure> {
    let since = Journal::kept_since(store).await.context("cannot read the journal")?;
    Ok(Day::whole_since(since))
}

pub(super) fn no_longer_whole(from: Day) -> String {
    format!("calls of days before {} are no longer all in the journal (`journal_keep_days`)", day_text(from))
}

/// What is asked for, and what was found so far.
struct Export {
    admitted: Span,
    tenant: Option<Name>,
    model: Option<String>,
    told: Told,
    progress: Progress,
}

impl Export {
    fn new(args: &JournalExport, admitted: Span) -> Self {
        let (tenant, model) = (args.tenant.as_deref().map(Name::from), args.model.clone());
        Self { admitted, tenant, model, told: Told::default(), progress: Progress::new() }
    }

    /// Writes every call; the header comes with the first.
    async fn read(&mut self, place: &Place, out: &mut dyn Write) -> Result<(), Failure> {
        let store = open(place).await?;
        let written = self.write(&store, out).await;
        self.progress.clear();
        store.close().await;
        written?;
        if self.told.calls == 0 {
            let left_out = self.told.left_out.text().map(|text| format!("; {text}")).unwrap_or_default();
            return Err(Failure::Run(anyhow!("the journal has no call to write{left_out}")));
        }
        Ok(())
    }

    async fn write(&mut self, store: &SqlStore, out: &mut dyn Write) -> Result<(), Failure> {
        const CANNOT: &str = "cannot read the journal";
        let whole = whole_since(store).await?;
        if self.admitted.from < whole.begins() {
            if self.admitted.from > 0 {
                return Err(Failure::Run(anyhow!("tollbook journal export: {}", no_longer_whole(whole))));
            }
            self.admitted.from = whole.begins();
            self.told.whole = Some(whole);
        }
        let mut calls = Calls::open(store, self.tenant.clone(), self.admitted).await.context(CANNOT)?;
        while let Some(call) = calls.next().await.context(CANNOT)? {
            if self.model.as_ref().is_some_and(|model| **model != *call.model_used) {
                continue;
            }
            if let Some(line) = self.told.take(&call) {
                out.write_all(line.as_bytes()).context("cannot write the calls")?;
            }
            self.progress.at(&self.told);
        }
        Ok(())
    }
}

/// What was written, and what was not.
#[derive(Default)]
struct Told {
    calls: usize,
    first: Micros,
    last: Micros,
    input: u64,
    output: u64,
    /// At most one more than a trace may have.
    keys: BTreeSet<Name>,
    figures: BTreeMap<&'static str, usize>,
    left_out: LeftOut,
    /// Days before it are left out.
    whole: Option<Day>,
}

#[derive(Default)]
struct LeftOut {
    without_usage: usize,
    unbooked: usize,
    /// Without a time of admission, or with amounts that a trace cannot have.
    untellable: usize,
}

impl Told {
    /// The call's line, and before the first the header; `None` if the call is left out.
    fn take(&mut self, call: &Call) -> Option<String> {
        if call.is_unbooked {
            self.left_out.unbooked += 1;
            return None;
        }
        if !call.has_usage() {
            self.left_out.without_usage += 1;
            return None;
        }
        let amount = |amount: i64| u64::try_from(amount).ok().filter(|amount| *amount <= LLM_TOKENS_MAX);
        let amounts = amount(call.usage.input).zip(amount(call.usage.output));
        let Some((input, output)) = amounts.filter(|_| call.admitted_at > 0) else {
            self.left_out.untellable += 1;
            return None;
        };
        let header = if self.calls == 0 { HEADER } else { "" };
        self.first = if self.calls == 0 { call.admitted_at } else { self.first };
        self.last = call.admitted_at;
        self.calls += 1;
        self.input = self.input.saturating_add(input);
        self.output = self.output.saturating_add(output);
        if self.keys.len() <= KEYS_MAX {
            self.keys.insert(Name::clone(&call.key));
        }
        *self.figures.entry(call.figures.word()).or_default() += 1;
        Some(format!(
            "{header}{},{input},{output},{},{},{},{},{}\n",
            seconds(call.admitted_at.saturating_sub(self.first)),
            quoted(&call.key),
            quoted(&call.tenant),
            quoted(&call.model_used),
            seconds(call.ended_at.saturating_sub(self.first)),
            call.figures.word(),
        ))
    }

    fn text(&self) -> String {
        let mut text = format!(
            "calls {}, keys {}, llm_tokens of input {} and of output {}, admitted from {} to {}\n",
            people(self.calls),
            people(self.keys.len()),
            grouped(self.input.into()),
            grouped(self.output.into()),
            moment(self.first),
            moment(self.last),
        );
        let left_out = self.left_out.text().map(|left_out| format!("{left_out}\n"));
        text.extend(left_out);
        text.extend(self.whole.map(|whole| format!("{}\n", no_longer_whole(whole))));
        text.extend(self.too_much().map(|too_much| format!("{too_much}\n")));
        text
    }

    /// Why `tollbook simulate` would refuse the whole.
    fn too_much(&self) -> Option<String> {
        let days = ARRIVAL_MAX_S / 86_400;
        let is_long = self.last.saturating_sub(self.first) >= (ARRIVAL_MAX_S + 1) * SECOND;
        (is_long || self.calls > CALLS_MAX || self.keys.len() > KEYS_MAX).then(|| {
            format!(
                "tollbook simulate takes at most {days} days, {} calls and {} keys: narrow it with --since and --until",
                people(CALLS_MAX),
                people(KEYS_MAX)
            )
        })
    }

    fn json(&self, file: Option<&Path>) -> Value {
        let left_out = &self.left_out;
        json!({
            "file": file,
            "calls": self.calls,
            "keys": self.keys.len(),
            "input_tokens": self.input,
            "output_tokens": self.output,
            "admitted_first": moment(self.first),
            "admitted_last": moment(self.last),
            "figures": self.figures,
            "left_out": {
                "without_usage": left_out.without_usage,
                "unbooked": left_out.unbooked,
                "untellable": left_out.untellable,
            },
            "whole_since": self.whole.map(day_text),
            "warning": self.too_much(),
        })
    }
}

impl LeftOut {
    /// `None` where nothing was.
    fn text(&self) -> Option<String> {
        let all = self.without_usage + self.unbooked + self.untellable;
        (all > 0).then(|| {
            format!(
                "left out: without usage {}, unbooked {}, untellable {}",
                people(self.without_usage),
                people(self.unbooked),
                people(self.untellable)
            )
        })
    }
}

fn people(count: usize) -> String {
    grouped(i128::try_from(count).unwrap_or(i128::MAX))
}

fn seconds(micros: Micros) -> String {
    format!("{}.{:06}", micros / SECOND, micros % SECOND)
}

/// To the second, UTC.
fn moment(at: Micros) -> String {
    let second = i64::try_from(at / SECOND).ok().and_then(|second| Timestamp::from_second(second).ok());
    second.map(|second| second.to_string()).unwrap_or_default()
}

/// How far it is, drawn in one line of a terminal once it takes long.
struct Progress {
    started: Instant,
    drawn: Option<Instant>,
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        Self { started: Instant::now(), drawn: None, terminal: io::stderr().is_terminal() }
    }

    fn at(&mut self, told: &Told) {
        if !self.terminal {
            return;
        }
        let due = self.started.elapsed() > QUIET && self.drawn.is_none_or(|drawn| drawn.elapsed() > REDRAW);
        if due {
            self.drawn = Some(Instant::now());
            let _ = write!(io::stderr(), "\r{} calls, up to {}", people(told.calls), moment(told.last));
        }
    }

    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
