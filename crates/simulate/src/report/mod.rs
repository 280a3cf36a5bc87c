//! One self-contained page about several replays: figures, and pictures of what landed, what was refused and how good
//! the estimates were. No script, no network: it can be mailed.
//!
//! Names of traces come from outside and are escaped. Long traces are thinned to a fixed number of columns and points;
//! a column shows the most that stood in it, so no peak is lost.

#![allow(clippy::float_arithmetic, reason = "pictures are floats")]

mod chart;

use std::fmt::Write as _;

use crate::counts::{index, wide};
use crate::judge::{Counted, Judgement, STEP, Series, WARM_UP};
use crate::replay::Decision;
use crate::table::{Line, grouped, percent, share};
use chart::{Landed, Refused, Scatter};

/// Columns of the picture of what landed.
const COLUMNS: usize = 720;
/// Bars of the picture of refusals.
const BARS: usize = 120;
/// Points of the picture of estimates.
const POINTS: usize = 1_500;

/// One replay on the page.
#[derive(Clone, PartialEq, Debug)]
pub struct Section {
    pub line: Line,
    pub plot: Plot,
}

/// What the pictures of one replay show.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    limit: u64,
    /// Only the account with the largest demand is drawn; its name, if there are others.
    account: Option<String>,
    /// Time of the last column's end, in microseconds.
    until: u64,
    columns: Vec<Column>,
    bars: Vec<Bar>,
    /// Expected and actual output.
    points: Vec<(u64, u64)>,
    /// Share of calls that used more output than was expected.
    outgrown: f64,
}

/// Most that landed in an exact 60 s, and most that was asked for.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Column {
    landed: u64,
    demand: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Bar {
    refused: u64,
    needless: u64,
}

impl Plot {
    /// `account` names the one that is drawn, if there are others.
    pub fn of(
        judgement: &Judgement,
        decisions: &[Decision],
        counted: Counted,
        account: Option<String>,
    ) -> Self {
        let series = &judgement.series;
        // What streams on after the last arrival is shown for one window.
        let last = decisions.last().map_or(0, |decision| decision.arrival) + crate::limits::WINDOW;
        let until = last.max(STEP);
        let mine = || decisions.iter().filter(|decision| decision.account == series.account);
        let outgrown = mine().filter(|decision| decision.output > expected_output(decision, counted)).count();
        Self {
            limit: series.limit,
            account,
            until,
            columns: columns(series, until),
            bars: bars(series, until),
            points: points(mine(), mine().count(), counted),
            outgrown: share(wide(outgrown), wide(mine().count())),
        }
    }
}

fn expected_output(decision: &Decision, counted: Counted) -> u64 {
    match counted {
        Counted::Both => decision.expected.saturating_sub(decision.input),
        Counted::Input | Counted::Output => decision.expected,
    }
}

fn columns(series: &Series, until: u64) -> Vec<Column> {
    let mut columns = vec![Column::default(); COLUMNS];
    let looks = series.landed.iter().zip(&series.demand);
    for (at, (landed, demand)) in looks.enumerate() {
        let time = series.from + wide(at) * STEP;
        if let Some(column) = columns.get_mut(place(time, until, COLUMNS)) {
            column.landed = column.landed.max(*landed);
            column.demand = column.demand.max(*demand);
        }
    }
    columns
}

fn bars(series: &Series, until: u64) -> Vec<Bar> {
    let mut bars = vec![Bar::default(); BARS];
    for (time, needless) in &series.refusals {
        if let Some(bar) = bars.get_mut(place(*time, until, BARS)) {
            bar.refused += 1;
            bar.needless += u64::from(*needless);
        }
    }
    bars
}

/// Which of so many equal parts a time falls into.
fn place(time: u64, until: u64, parts: usize) -> usize {
    let place = u128::from(time) * u128::from(wide(parts)) / u128::from(until.max(1));
    u64::try_from(place).map_or(usize::MAX, index)
}

/// Evenly thinned.
fn points<'a>(calls: impl Iterator<Item = &'a Decision>, count: usize, counted: Counted) -> Vec<(u64, u64)> {
    let every = count.div_ceil(POINTS).max(1);
    calls.step_by(every).map(|decision| (expected_output(decision, counted), decision.output)).collect()
}

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub fn page(sections: &[Section], seed: u64) -> String {
    let mut out = String::with_capacity(64 * 1024 * (sections.len() + 1));
    out.push_str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    // Writing into a string cannot fail.
    let _ = write!(out, "<title>tollbook simulate</title><style>{STYLE}</style></head><body>");
    out.push_str("<header><h1>What a limit would do</h1><p>Calls of a trace, replayed against a limit of llm_tokens per 60 s. ");
    let _ =
        write!(out, "What landed was added up independently of the ledger. Seed {seed}.</p></header><main>");
    summary(&mut out, sections);
    for (number, section) in sections.iter().enumerate() {
        one(&mut out, number, section, scale(section, sections));
    }
    out.push_str(WORDS);
    out.push_str("</main></body></html>\n");
    out
}

/// Where axes end: the same for all replays of one trace against one limit, so that their pictures can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scale {
    landed: u64,
    refused: u64,
    output: u64,
}

fn scale(section: &Section, all: &[Section]) -> Scale {
    let is_same =
        |other: &&Section| other.line.trace == section.line.trace && other.plot.limit == section.plot.limit;
    let most = |of: &dyn Fn(&Plot) -> Option<u64>| {
        all.iter().filter(is_same).filter_map(|other| of(&other.plot)).max().unwrap_or(0)
    };
    let landed =
        most(&|plot| plot.columns.iter().map(|column| column.landed).max()).max(section.plot.limit).max(1);
    Scale {
        landed: landed.saturating_add(landed / 5),
        refused: most(&|plot| plot.bars.iter().map(|bar| bar.refused).max()).max(1),
        output: most(&|plot| plot.points.iter().map(|(expected, actual)| *expected.max(actual)).max()),
    }
}

const HEAD: [&str; 9] = [
    "limit / 60 s",
    "calls",
    "utilisation",
    "over 1.00",
    "over 1.05",
    "peak",
    "refused",
    "falsely",
    "held ÷ used",
];

fn figures(line: &Line) -> [String; HEAD.len()] {
    let figures = &line.figures;
    let over_time = |text: String| if figures.looks > 0 { text } else { "–".to_owned() };
    [
        line.limit.clone(),
        grouped(figures.calls),
        figures.utilisation.map_or("–".to_owned(), |share| percent(share, 1)),
        over_time(percent(figures.over, 2)),
        over_time(percent(figures.over_5, 3)),
        over_time(format!("{:.3} ×", figures.peak)),
        percent(share(figures.refused, figures.calls), 2),
        percent(share(figures.false_refused, figures.calls), 2),
        figures.hold_to_actual.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
    ]
}

fn summary(out: &mut String, sections: &[Section]) {
    out.push_str("<div class=\"wide\"><table><thead><tr><th>trace</th><th>booking</th>");
    for head in HEAD {
        let _ = write!(out, "<th class=\"n\">{head}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    for (number, section) in sections.iter().enumerate() {
        let (trace, settings) = (escaped(&section.line.trace), escaped(&section.line.settings));
        let _ = write!(out, "<tr><td>{trace}</td><td><a href=\"#run-{number}\">{settings}</a></td>");
        for figure in figures(&section.line) {
            let _ = write!(out, "<td class=\"n\">{figure}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

fn one(out: &mut String, number: usize, section: &Section, scale: Scale) {
    let Section { line, plot } = section;
    let (settings, trace) = (escaped(&line.settings), escaped(&line.trace));
    let _ = write!(out, "<section id=\"run-{number}\"><h2>{settings} <span>{trace}</span></h2>");
    if let Some(account) = &plot.account {
        let _ = write!(
            out,
            "<p>One limit per key; drawn is the key with the largest demand: {}.</p>",
            escaped(account)
        );
    }
    out.push_str("<dl>");
    for (head, figure) in HEAD.iter().zip(figures(line)).skip(2) {
        let _ = write!(out, "<div><dt>{head}</dt><dd>{figure}</dd></div>");
    }
    out.push_str("</dl><div class=\"charts\"><div class=\"over-time\">");
    Landed { plot, number, top: scale.landed, warm_up: WARM_UP }.draw(out);
    Refused { plot, top: scale.refused }.draw(out);
    out.push_str("</div><div>");
    Scatter { plot, top: scale.output }.draw(out);
    out.push_str("</div></div></section>");
}

const WORDS: &str = "<section class=\"words\"><h2>How to read this</h2><ul>\
<li><b>Utilisation</b>: the mean of landed ÷ limit while at least the limit was asked for. Input lands when a call is \
admitted, output while it streams.</li>\
<li><b>Over</b>: the share of time in which more landed in the last exact 60 s than the limit, and than 1.05 times the \
limit, from 120 s to the last arrival. <b>Peak</b>: the most that ever did.</li>\
<li><b>Falsely</b> refused: so many more calls could have been served within the limit by somebody who knew everything. \
A refused call does not come again.</li>\
<li><b>Held ÷ used</b>: what was reserved for the admitted calls, by what they used.</li></ul></section>";

/// Text inside HTML, also inside attributes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
