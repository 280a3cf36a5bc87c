//! Many seeds, and what is done with one that fails.

use std::fmt::Write as _;

use crate::knobs::{Knobs, Trouble};
use crate::stats::Stats;
use crate::world::{Failure, run};

/// Lines of a trace that a failure shows unless more are asked for.
pub const TRACE_SHOWN: usize = 40;
/// Characters of each of them.
const LINE_SHOWN: usize = 1200;

/// Runs seeds from `first` on; at the first that fails, the smallest run that still does, as text.
pub fn run_seeds(first: u64, count: u64, is_real: bool) -> Result<Stats, String> {
    let mut stats = Stats::default();
    for seed in first..first + count {
        let knobs = Knobs { is_real, ..Knobs::of(seed) };
        let report = run(&knobs, false);
        stats.add(&report.stats);
        if let Some(failure) = report.failure {
            return Err(explain(&shrink(knobs, &failure), &failure, TRACE_SHOWN));
        }
    }
    Ok(stats)
}

/// Takes away what the failure does not need: troubles one by one, then calls, then gateways.
pub fn shrink(mut knobs: Knobs, first: &Failure) -> Knobs {
    let fails =
        |knobs: &Knobs| run(knobs, false).failure.is_some_and(|failure| kind(&failure) == kind(first));
    for trouble in Trouble::ALL {
        let mut less = knobs.clone();
        less.without.push(*trouble);
        if fails(&less) {
            knobs = less;
        }
    }
    for step in [64, 16, 4, 1] {
        loop {
            let mut less = knobs.clone();
            less.calls = less.calls.min(128).saturating_sub(step);
            if less.calls == 0 || !fails(&less) {
                break;
            }
            knobs = less;
        }
    }
    while knobs.gateways > 1 {
        let mut less = knobs.clone();
        less.gateways -= 1;
        if !fails(&less) {
            break;
        }
        knobs = less;
    }
    knobs
}

/// The words of a finding up to its first figure: smaller runs must fail in the same way.
fn kind(failure: &Failure) -> &str {
    failure.finding.split(|c: char| c.is_ascii_digit() || "{[(".contains(c)).next().unwrap_or_default()
}

/// The run again with its last verbs written down.
pub fn explain(knobs: &Knobs, first: &Failure, lines: usize) -> String {
    let report = run(knobs, true);
    let mut text = format!("seed {}: {}\n", knobs.seed, first.finding);
    let Some(failure) = report.failure else {
        let _infallible = writeln!(text, "the smaller run did not fail again: {}", knobs.command());
        return text;
    };
    let skipped = report.trace.len().saturating_sub(lines);
    let _infallible = writeln!(text, "made smaller, after {} verbs: {}", report.trace.len(), failure.finding);
    for line in report.trace.iter().skip(skipped) {
        let line: String = line.chars().take(LINE_SHOWN).collect();
        let _infallible = writeln!(text, "  {line}");
    }
    let _infallible = write!(text, "repeat: {}", knobs.command());
    text
}
