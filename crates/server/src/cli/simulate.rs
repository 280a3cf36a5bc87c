//! `tollbook simulate`: a trace replayed against a limit, in figures.
//!
//! Everything is read and checked before anything is replayed, and nothing is written before all is known.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tollbook_simulate::make::{self, Kind};
use tollbook_simulate::offer::{FIRST_MAX, PACE_MAX};
use tollbook_simulate::report::{Plot, Section, page};
use tollbook_simulate::settings::thousandths;
use tollbook_simulate::table::{Line, grouped, share, table};
use tollbook_simulate::{
    Ceiling, Counted, Decision, Figures, Habits, Limits, Offer, Settings, Trace, judge, offer, replay, trace,
};

use super::args::Simulate;
use super::{Console, Failure};
use crate::config::values::Span;

/// Runs that end sooner show no progress.
const QUIET: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(100);
/// Cells of the progress bar.
const BAR: usize = 30;

pub(super) fn run(args: &Simulate, console: &mut Console<'_>) -> Result<(), Failure> {
    let plan = Plan::of(args)?;
    check_files(args)?;
    let Some(ceiling) = plan.ceiling else {
        let Some(kind) = plan.made else { return Err(usage("give --limit N or --load X")) };
        let made = make::make(kind, micros(args.length), args.seed);
        console.out.write_all(made.csv().as_bytes())?;
        return Ok(());
    };
    let offers = plan.offers(args)?;
    if args.decisions.is_some() && offers.len() * plan.settings.len() != 1 {
        return Err(usage("--decisions takes one trace and one configuration"));
    }
    let mut bar = Bar::new(offers.iter().map(|offer| offer.calls.len()).sum::<usize>() * plan.settings.len());
    let (mut runs, mut plots) = (Vec::new(), Vec::new());
    for offer in &offers {
        let counted = plan.counted;
        let limits = Limits::of(offer, ceiling, args.per_key, counted)
            .map_err(|error| Failure::Usage(format!("tollbook: {}: {error}", offer.name)))?;
        for settings in &plan.settings {
            let (limit, most) =
                (limits.ceilings().iter().max().copied().unwrap_or(0), settings.ceiling_max());
            if limit > most {
                return Err(usage(&format!("{settings}: the limit {limit} is above {most}")));
            }
            let replay = replay(offer, settings, &limits, &mut |done| bar.at(done));
            let decisions = replay.map_err(|error| anyhow!("{}: {error}", offer.name))?.decisions;
            let judgement = judge(&decisions, limits.ceilings(), counted);
            if let Some(path) = &args.decisions {
                write_file(path, &decisions_csv(&decisions, offer))?;
            }
            if args.report.is_some() {
                let key = offer.keys.get(usize::try_from(judgement.series.account).unwrap_or(usize::MAX));
                plots.push(Plot::of(&judgement, &decisions, counted, key.filter(|_| args.per_key).cloned()));
            }
            bar.next(offer.calls.len());
            runs.push(Run {
                trace: offer.name.clone(),
                settings: *settings,
                limits: limits.clone(),
                figures: judgement.figures,
            });
        }
    }
    bar.clear();
    if let Some(path) = &args.report {
        let sections = runs.iter().map(Run::line).zip(plots).map(|(line, plot)| Section { line, plot });
        write_file(path, &page(&sections.collect::<Vec<_>>(), args.seed))?;
    }
    if args.json {
        let runs: Vec<Value> = runs.iter().map(Run::json).collect();
        return super::json(console, &json!({"seed": args.seed, "runs": runs}));
    }
    let lines: Vec<Line> = runs.iter().map(Run::line).collect();
    console.out.write_all(table(&lines).as_bytes())?;
    if runs.iter().any(|run| run.figures.looks == 0) {
        writeln!(
            console.err,
            "a trace of less than 120 s is too short to be judged: its figures over time are absent"
        )?;
    }
    Ok(())
}

/// The command line, understood.
struct Plan {
    ceiling: Option<Ceiling>,
    made: Option<Kind>,
    settings: Vec<Settings>,
    counted: Counted,
    habits: Habits,
}

impl Plan {
    fn of(args: &Simulate) -> Result<Self, Failure> {
        let ceiling = match (args.limit, &args.load) {
            (Some(0), _) => return Err(usage("--limit is at least 1")),
            (Some(limit), _) => Some(Ceiling::Limit(limit)),
            (None, Some(load)) => {
                Some(Ceiling::Load(thousandths(load).map_err(|error| usage(&format!("--load: {error}")))?))
            }
            (None, None) => None,
        };
        let made = args.make.as_deref().map(str::parse).transpose();
        let made = made.map_err(|error: String| usage(&format!("--make is {error}")))?;
        if args.traces.is_empty() && made.is_none() {
            return Err(usage("give a trace, or --make a kind of traffic"));
        }
        let counted = match args.measure.as_str() {
            "input_tokens" => Counted::Input,
            "output_tokens" => Counted::Output,
            _ => Counted::Both,
        };
        let mut settings = Vec::new();
        for text in texts(args) {
            let parsed: Settings =
                text.parse().map_err(|error| usage(&format!("configuration '{text}': {error}")))?;
            settings.push(Settings { counted, ..parsed });
        }
        Ok(Self { ceiling, made, settings, counted, habits: habits(args)? })
    }

    /// Every trace, read and given its habits.
    fn offers(&self, args: &Simulate) -> Result<Vec<Offer>, Failure> {
        if let Some(kind) = self.made {
            return Ok(vec![offer(&make::make(kind, micros(args.length), args.seed), &self.habits)]);
        }
        args.traces.iter().map(|path| Ok(offer(&read(path)?, &self.habits))).collect()
    }
}

/// What is written must not go over a trace, nor over each other.
fn check_files(args: &Simulate) -> Result<(), Failure> {
    let same = |one: &Path, other: &Path| {
        let real = |path: &Path| path.canonicalize().ok();
        one == other || real(one).is_some_and(|one| real(other) == Some(one))
    };
    for file in args.decisions.iter().chain(&args.report) {
        if args.traces.iter().any(|trace| same(trace, file)) {
            return Err(usage(&format!("{} is a trace, it would be overwritten", file.display())));
        }
    }
    match (&args.decisions, &args.report) {
        (Some(decisions), Some(report)) if same(decisions, report) => {
            Err(usage("--decisions and --report name the same file"))
        }
        _ => Ok(()),
    }
}

/// The configurations as text; the single options make one.
fn texts(args: &Simulate) -> Vec<String> {
    if !args.configs.is_empty() {
        return args.configs.clone();
    }
    let part = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={value}"));
    let parts = [
        part("booking", &args.booking),
        part("window", &args.window),
        part("estimator", &args.estimator),
        part("factor", &args.factor),
        part("gateways", &args.gateways),
        args.strict.then(|| "strict".to_owned()),
    ];
    vec![parts.into_iter().flatten().collect::<Vec<_>>().join(",")]
}

fn habits(args: &Simulate) -> Result<Habits, Failure> {
    let wrong = || usage("--pace is two times joined by -, the smaller one first, at most 1s, as 20ms-40ms");
    let (least, most) = args.pace.split_once('-').ok_or_else(wrong)?;
    let pace = |text: &str| Span::parse(text).map(|span| micros(span.0));
    let (Some(least), Some(most)) = (pace(least), pace(most)) else { return Err(wrong()) };
    if least > most || most > PACE_MAX {
        return Err(wrong());
    }
    if micros(args.first) > FIRST_MAX {
        return Err(usage("--first is at most 10m"));
    }
    if micros(args.length) > make::LENGTH_MAX {
        return Err(usage("--for is at most 7d"));
    }
    if args.max_tokens > trace::LLM_TOKENS_MAX {
        return Err(usage(&format!("--max-tokens is at most {}", trace::LLM_TOKENS_MAX)));
    }
    Ok(Habits {
        seed: args.seed,
        first: micros(args.first),
        pace: (least, most),
        max_tokens: args.max_tokens,
        spread: micros(args.spread).min(FIRST_MAX),
    })
}

fn read(path: &Path) -> Result<Trace, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::Usage(format!("tollbook: {error}"));
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let opened = File::open(path);
        Box::new(
            opened.map_err(|error| wrong(&format!("{}: cannot read the trace: {error}", path.display())))?,
        )
    };
    let mut trace = Trace::read(&path.display().to_string(), input).map_err(|error| wrong(&error))?;
    // In tables the file's name is enough.
    if let Some(name) = path.file_name() {
        let name = name.to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        name.strip_suffix(".csv").unwrap_or(name).clone_into(&mut trace.name);
    }
    Ok(trace)
}

fn decisions_csv(decisions: &[Decision], offer: &Offer) -> String {
    tollbook_simulate::replay::csv(decisions, &offer.keys)
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn usage(message: &str) -> Failure {
    Failure::Usage(format!("tollbook simulate: {message}"))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// One trace under one configuration.
struct Run {
    trace: String,
    settings: Settings,
    limits: Limits,
    figures: Figures,
}

impl Run {
    fn line(&self) -> Line {
        let ceilings = self.limits.ceilings();
        let (least, most) = (ceilings.iter().min(), ceilings.iter().max());
        let limit = match (least, most) {
            (Some(least), Some(most)) if least != most => format!("{}–{}", grouped(*least), grouped(*most)),
            (_, most) => grouped(most.copied().unwrap_or(0)),
        };
        let limit = if self.limits.per_key() { format!("{limit} per key") } else { limit };
        Line { trace: self.trace.clone(), settings: self.settings.to_string(), limit, figures: self.figures }
    }

    fn json(&self) -> Value {
        let figures = &self.figures;
        let over_time = |value: f64| (figures.looks > 0).then_some(value);
        let ceilings = self.limits.ceilings();
        json!({
            "trace": self.trace,
            "configuration": self.settings.to_string(),
            "per_key": self.limits.per_key(),
            "limit": ceilings.iter().max(),
            "limit_least": ceilings.iter().min(),
            "calls": figures.calls,
            "refused": figures.refused,
            "refused_share": share(figures.refused, figures.calls),
            "false_refused": figures.false_refused,
            "false_refused_share": share(figures.false_refused, figures.calls),
            "llm_tokens_demanded": figures.demanded,
            "llm_tokens_admitted": figures.admitted,
            "utilisation": figures.utilisation,
            "over_100_share": over_time(figures.over),
            "over_105_share": over_time(figures.over_5),
            "peak": over_time(figures.peak),
            "hold_to_actual": figures.hold_to_actual,
        })
    }
}

/// How far all replays are, drawn in one line of a terminal once they take long.
struct Bar {
    drawn: Option<Instant>,
    started: Instant,
    terminal: bool,
    before: usize,
    all: usize,
}

impl Bar {
    fn new(all: usize) -> Self {
        Self { drawn: None, started: Instant::now(), terminal: io::stderr().is_terminal(), before: 0, all }
    }

    /// So many calls of the current replay are done.
    fn at(&mut self, done: usize) {
        let due = self.started.elapsed() > QUIET && self.drawn.is_none_or(|drawn| drawn.elapsed() > REDRAW);
        if !self.terminal || !due {
            return;
        }
        self.drawn = Some(Instant::now());
        let done = self.before + done;
        let full = (done * BAR).checked_div(self.all).unwrap_or(BAR).min(BAR);
        let percent = (done * 100).checked_div(self.all).unwrap_or(100);
        let _ = write!(io::stderr(), "\r{}{} {percent:>3} %", "█".repeat(full), "░".repeat(BAR - full));
    }

    fn next(&mut self, calls: usize) {
        self.before += calls;
    }

    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
