//! Bookings of a rate limit compared: the targets of the forecast booking, and the papers' bookings beside it.
//!
//! Every row is replayed over the real ledger, but for the ones that `models` names. The judge is that of
//! `tollbook-simulate`, which knows decisions alone. What a row says is what was measured; a target that is missed is
//! told as missed.

mod models;
mod works;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rustix::time::ClockId;
use serde::Serialize;
use tollbook_simulate::trace::Trace;
use tollbook_simulate::{
    Ceiling, Counted, Decision, Figures, Habits, Limits, Offer, Settings, judge, offer, replay,
};

use self::models::{Provider, percentile_bucket, refused_behind};
use self::works::{BURST_LIMIT, Burst, Work};
use crate::book::cpu_time;

const LOADS: [u64; 2] = [1_500, 3_000];
const FORECAST: &str = "";
const PERFECT: &str = "estimator=perfect";
/// Four gateways share the book: each knows its own streams only, and what it tells is under way for a while.
const FLEET: &str = "gateways=4";

/// How much is replayed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seeds: u64,
    /// Folder of the recordings; made traces stand in if there is none.
    pub recordings: Option<PathBuf>,
    /// Made traces of some minutes only.
    pub short: bool,
}

/// One target and what was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    pub number: u8,
    pub what: String,
    pub demanded: String,
    pub measured: String,
    pub met: bool,
}

/// One booking over all workloads.
#[derive(Debug, Clone, Serialize)]
pub struct Booking {
    pub name: &'static str,
    pub traces: Mean,
    pub stress: Mean,
}

/// Means over workloads, loads and seeds, and the worst single one.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Mean {
    pub util: f64,
    pub over: f64,
    pub over_5: f64,
    pub over_worst: f64,
    pub peak: f64,
    pub refused: f64,
    pub false_refused: f64,
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub recorded: bool,
    pub targets: Vec<Target>,
    pub bookings: Vec<Booking>,
    /// The forecast booking, workload by workload; and its utilisation if it knew every output.
    pub single: Vec<(String, Mean, f64)>,
    pub notes: Vec<String>,
}

/// Least utilisation, most time over 1.00 and over 1.05.
const TRACES: (f64, f64, f64) = (0.93, 0.005, 0.0005);
const STRESS: (f64, f64, f64) = (0.90, 0.01, 0.002);

/// The bookings that are compared, and how they are written; none: a plain model.
const BOOKINGS: [(&str, Option<&str>); 10] = [
    ("ledger paper: 7 × 10 s, 2 × EMA held", Some("booking=held,window=7x10s,estimator=ema")),
    ("the same, 61 × 1 s", Some("booking=held,window=61x1s,estimator=ema")),
    (
        "service paper: fixed minute, ten-minute mean",
        Some("booking=held,window=minute,estimator=recent_mean"),
    ),
    (
        "budget paper: (input + cap) × 1.25, fixed minute",
        Some("booking=held,window=minute,estimator=capped,factor=1.25"),
    ),
    ("SLO paper: P95, bucket of the limit's size", None),
    ("P95 held, 61 × 1 s", Some("booking=held,window=61x1s,estimator=p95")),
    ("counted when a call has ended", Some("booking=held,window=61x1s,estimator=none")),
    ("forecast", Some(FORECAST)),
    ("forecast, four gateways", Some(FLEET)),
    ("forecast, strict", Some("strict")),
];

/// Replays everything.
pub fn run(plan: &Plan) -> Result<Report> {
    let (traces, recorded) = works::traces(plan.recordings.as_deref(), plan.short)?;
    let stress = works::stress(plan.short, true);
    let mut bookings = Vec::new();
    for (name, settings) in BOOKINGS {
        let over = |works: &[Work]| mean_over(works, &LOADS, plan.seeds, settings);
        bookings.push(Booking { name, traces: over(&traces)?, stress: over(&stress)? });
    }
    let perfect = Booking {
        name: "forecast, every output known",
        traces: mean_over(&traces, &LOADS, plan.seeds, Some(PERFECT))?,
        stress: mean_over(&stress, &LOADS, plan.seeds, Some(PERFECT))?,
    };
    let of = |settings: &str| {
        let at = BOOKINGS.iter().position(|(_, text)| *text == Some(settings));
        at.and_then(|at| bookings.get(at)).cloned().with_context(|| format!("no booking {settings:?}"))
    };
    let (forecast, fleet) = (of(FORECAST)?, of(FLEET)?);
    bookings.push(perfect.clone());
    let mut single = Vec::new();
    for work in traces.iter().chain(&stress) {
        let of = |text| mean_over(std::slice::from_ref(work), &LOADS, plan.seeds, Some(text));
        single.push((work.name.to_owned(), of(FORECAST)?, of(PERFECT)?.util));
    }
    let many = mean_over(&works::stress(plan.short, false), &LOADS, plan.seeds, Some(FORECAST))?;
    let mut notes = vec![format!(
        "stress loads of twenty keys instead of one, each learned on its own: util {}, over 1.00 {}, over 1.05 {}",
        percent(many.util),
        percent(many.over),
        percent(many.over_5)
    )];
    let targets = vec![
        about_means(1, "traces", &forecast.traces, TRACES),
        about_worst("traces", &forecast.traces),
        about_means(3, "stress loads", &forecast.stress, STRESS),
        about_small(&traces, plan, &mut notes)?,
        about_half_load(&traces, plan)?,
        about_idle(&traces)?,
        about_provider(&traces, plan)?,
        about_perfect(&forecast.traces, &perfect.traces),
        about_bursts(&mut notes)?,
        about_means(1, "four gateways, traces", &fleet.traces, TRACES),
        about_worst("four gateways, traces", &fleet.traces),
        about_means(3, "four gateways, stress loads", &fleet.stress, STRESS),
    ];
    if !plan.short {
        notes.push(format!(
            "a trace of a million calls, from its text to its figures: {:.1} s of CPU",
            million()?
        ));
    }
    Ok(Report { recorded, targets, bookings, single, notes })
}

/// CPU time of this thread from the text of a trace of a million calls to its figures.
fn million() -> Result<f64> {
    let text = works::million();
    let began = cpu_time(ClockId::ThreadCPUTime);
    let trace = Trace::read("million", text.as_bytes())?;
    let offer = offer(&trace, &Habits::default());
    let limits = Limits::of(&offer, Ceiling::Load(1_500), false, Counted::Both)?;
    let decisions = decided(&offer, FORECAST, &limits, Counted::Both)?;
    judge(&decisions, limits.ceilings(), Counted::Both);
    Ok(cpu_time(ClockId::ThreadCPUTime).saturating_sub(began).as_secs_f64())
}

fn decided(offer: &Offer, text: &str, limits: &Limits, counted: Counted) -> Result<Vec<Decision>> {
    let parsed: Settings = text.parse()?;
    let settings = Settings { counted, ..parsed };
    Ok(replay(offer, &settings, limits, &mut |_| {})?.decisions)
}

fn mean_over(works: &[Work], loads: &[u64], seeds: u64, settings: Option<&str>) -> Result<Mean> {
    let mut all = Vec::new();
    for work in works {
        for seed in 1..=seeds {
            let offer = work.offer(seed);
            for load in loads {
                let limits = Limits::of(&offer, Ceiling::Load(*load), false, work.counted)?;
                let decisions = match settings {
                    Some(text) => decided(&offer, text, &limits, work.counted)?,
                    None => percentile_bucket(&offer, limits.ceiling(0), work.counted),
                };
                all.push(judge(&decisions, limits.ceilings(), work.counted).figures);
            }
        }
    }
    Ok(Mean::of(&all))
}

impl Mean {
    fn of(all: &[Figures]) -> Self {
        let mean = |of: &dyn Fn(&Figures) -> Option<f64>| {
            let values: Vec<f64> = all.iter().filter_map(of).collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        let most = |of: &dyn Fn(&Figures) -> f64| all.iter().map(of).fold(0.0, f64::max);
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        Self {
            util: mean(&|figures| figures.utilisation),
            over: mean(&|figures| Some(figures.over)),
            over_5: mean(&|figures| Some(figures.over_5)),
            over_worst: most(&|figures| figures.over),
            peak: most(&|figures| figures.peak),
            refused: mean(&|figures| Some(share(figures.refused, figures.calls))),
            false_refused: mean(&|figures| Some(share(figures.false_refused, figures.calls))),
        }
    }
}

fn percent(share: f64) -> String {
    let places = if share < 0.1 { 3 } else { 1 };
    format!("{:.places$} %", share * 100.0)
}

fn about_means(number: u8, what: &str, mean: &Mean, (util, over, over_5): (f64, f64, f64)) -> Target {
    let three = |util: f64, over: f64, over_5: f64| {
        format!("{} / {} / {}", percent(util), percent(over), percent(over_5))
    };
    Target {
        number,
        what: format!("{what}: util / over 1.00 / over 1.05"),
        demanded: format!("≥ {}", three(util, over, over_5).replace(" / ", " / ≤ ")),
        measured: three(mean.util, mean.over, mean.over_5),
        met: mean.util >= util && mean.over <= over && mean.over_5 <= over_5,
    }
}

fn about_worst(what: &str, mean: &Mean) -> Target {
    Target {
        number: 2,
        what: format!("{what}, worst single run: over 1.00 / peak"),
        demanded: "≤ 3 % / ≤ 1.10".to_owned(),
        measured: format!("{} / {:.3}", percent(mean.over_worst), mean.peak),
        met: mean.over_worst <= 0.03 && mean.peak <= 1.10,
    }
}

/// Five to fifteen calls per window.
fn about_small(works: &[Work], plan: &Plan, notes: &mut Vec<String>) -> Result<Target> {
    let mut all = Vec::new();
    for per_window in [5, 10, 15] {
        let mut some = Vec::new();
        for work in works.iter().filter(|work| work.counted == Counted::Both) {
            for seed in 1..=plan.seeds {
                for load in LOADS {
                    let (offer, limit) = works::small(work, seed, load, per_window);
                    let limits = Limits::of(&offer, Ceiling::Limit(limit), true, work.counted)?;
                    let decisions = decided(&offer, FORECAST, &limits, work.counted)?;
                    some.push(judge(&decisions, limits.ceilings(), work.counted).figures);
                }
            }
        }
        let mean = Mean::of(&some);
        notes.push(format!(
            "small limits of {per_window} mean calls: util {}, over 1.00 {}, peak {:.3}",
            percent(mean.util),
            percent(mean.over),
            mean.peak
        ));
        all.extend(some);
    }
    let mean = Mean::of(&all);
    Ok(Target {
        number: 4,
        what: "small limits, one per key, 5 to 15 mean calls: util / over 1.00".to_owned(),
        demanded: "≥ 77 % / ≤ 0.5 %".to_owned(),
        measured: format!("{} / {}", percent(mean.util), percent(mean.over)),
        met: mean.util >= 0.77 && mean.over <= 0.005,
    })
}

fn about_half_load(works: &[Work], plan: &Plan) -> Result<Target> {
    let refused = |text: &'static str| {
        Ok::<f64, anyhow::Error>(mean_over(works, &[500], plan.seeds, Some(text))?.refused)
    };
    let (ours, perfect) = (refused(FORECAST)?, refused(PERFECT)?);
    Ok(Target {
        number: 5,
        what: "refused at half load, beside every output known".to_owned(),
        demanded: "≤ 0.5 points more".to_owned(),
        measured: format!("{} beside {}", percent(ours), percent(perfect)),
        met: ours - perfect <= 0.005,
    })
}

/// A call that fits alone is admitted, on a new account and on an idle one that has a history.
fn about_idle(works: &[Work]) -> Result<Target> {
    let (mut refused, mut all) = (0, 0);
    for work in works.iter().filter(|work| work.counted == Counted::Both) {
        for own_keys in [true, false] {
            let offer = works::apart(work, 1, own_keys);
            // So high a load leaves each key the limit of its largest call.
            let limits = Limits::of(&offer, Ceiling::Load(100_000_000), true, work.counted)?;
            for decision in decided(&offer, FORECAST, &limits, work.counted)? {
                all += 1;
                refused += u64::from(!decision.admitted);
            }
        }
    }
    Ok(Target {
        number: 6,
        what: "calls on idle accounts, first calls of new keys: refused".to_owned(),
        demanded: "0".to_owned(),
        measured: format!("{refused} of {all}"),
        met: refused == 0,
    })
}

fn about_provider(works: &[Work], plan: &Plan) -> Result<Target> {
    let (mut log, mut bucket) = (Vec::new(), Vec::new());
    for work in works.iter().filter(|work| work.counted == Counted::Both) {
        for seed in 1..=plan.seeds {
            let offer = work.offer(seed);
            for load in LOADS {
                let limits = Limits::of(&offer, Ceiling::Load(load), false, work.counted)?;
                let decisions = decided(&offer, FORECAST, &limits, work.counted)?;
                for (provider, shares) in [(Provider::Log, &mut log), (Provider::Bucket, &mut bucket)] {
                    let (refused, all) = refused_behind(&decisions, limits.ceiling(0), provider);
                    shares.push(refused as f64 / (all as f64).max(1.0));
                }
            }
        }
    }
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let (log, bucket) = (mean(&log), mean(&bucket));
    Ok(Target {
        number: 7,
        what: "refused by a provider with the same limit: exact log / bucket".to_owned(),
        demanded: "≤ 0.5 % / 0".to_owned(),
        measured: format!("{} / {}", percent(log), percent(bucket)),
        met: log <= 0.005 && bucket == 0.0,
    })
}

fn about_perfect(ours: &Mean, perfect: &Mean) -> Target {
    let ratio = ours.util / perfect.util;
    Target {
        number: 8,
        what: "util beside every output known".to_owned(),
        demanded: "≥ 98 %".to_owned(),
        measured: percent(ratio),
        met: ratio >= 0.98,
    }
}

/// Bursts at the worst places within a second.
fn about_bursts(notes: &mut Vec<String>) -> Result<Target> {
    let peak = |kind: Burst, text: &str| -> Result<f64> {
        let mut peak: f64 = 0.0;
        for phase in [0, 250_000, 500_000, 750_000, 990_000] {
            for every in [
                58_000_000, 59_000_000, 59_500_000, 60_000_000, 60_250_000, 60_500_000, 60_750_000,
                61_000_000,
            ] {
                let offer = works::bursts(kind, phase, every);
                let limits = Limits::of(&offer, Ceiling::Limit(BURST_LIMIT), false, Counted::Both)?;
                let decisions = decided(&offer, text, &limits, Counted::Both)?;
                peak = peak.max(judge(&decisions, limits.ceilings(), Counted::Both).figures.peak);
            }
        }
        Ok(peak)
    };
    let (mixed, mixed_strict) = (peak(Burst::Mixed, FORECAST)?, peak(Burst::Mixed, "strict")?);
    let (input, input_strict) = (peak(Burst::Input, FORECAST)?, peak(Burst::Input, "strict")?);
    notes.push(format!(
        "placed bursts of chat calls within two seconds: peak {mixed:.3}, strict {mixed_strict:.3}; of input alone \
         within a hundredth of a second: {input:.3}, strict {input_strict:.3}"
    ));
    let (worst, strict) = (mixed.max(input), mixed_strict.max(input_strict));
    Ok(Target {
        number: 9,
        what: "placed bursts, peak: forecast / strict".to_owned(),
        demanded: "≤ 1.10 / ≤ 1.00".to_owned(),
        measured: format!("{worst:.3} / {strict:.3}"),
        met: worst <= 1.10 && strict <= 1.0,
    })
}

impl Report {
    /// Two tables, as Markdown.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let traces =
            if self.recorded { "recorded traces" } else { "made traces (the recordings are not there)" };
        // Writing into a string cannot fail.
        let _ = writeln!(out, "Over {traces}, loads 1.5 and 3.\n");
        let _ = writeln!(out, "| # | what | demanded | measured | |\n| --- | --- | --- | --- | --- |");
        for target in &self.targets {
            let Target { number, what, demanded, measured, met } = target;
            let met = if *met { "met" } else { "missed" };
            let _ = writeln!(out, "| {number} | {what} | {demanded} | {measured} | {met} |");
        }
        let head = "util | over 1.00 | over 1.05 | peak | refused | false";
        let _ = writeln!(out, "\n| booking | traces: {head} | stress: {head} |\n|{}", " --- |".repeat(13));
        for booking in &self.bookings {
            let _ = writeln!(
                out,
                "| {} | {} | {} |",
                booking.name,
                booking.traces.cells(),
                booking.stress.cells()
            );
        }
        let _ =
            writeln!(out, "\n| forecast on | {head} | util, every output known |\n|{}", " --- |".repeat(8));
        for (name, mean, known) in &self.single {
            let _ = writeln!(out, "| {name} | {} | {} |", mean.cells(), percent(*known));
        }
        out.push('\n');
        for note in &self.notes {
            let _ = writeln!(out, "* {note}");
        }
        out
    }
}

impl Mean {
    fn cells(&self) -> String {
        let Self { util, over, over_5, peak, refused, false_refused, .. } = *self;
        let shares = [util, over, over_5].map(percent).join(" | ");
        format!("{shares} | {peak:.3} | {} | {}", percent(refused), percent(false_refused))
    }
}
