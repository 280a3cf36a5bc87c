//! The figures of several replays as a table for people.

use std::fmt::Write as _;

use crate::judge::Figures;

/// One replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub trace: String,
    pub settings: String,
    /// Of the one account, or `per key`.
    pub limit: String,
    pub figures: Figures,
}

const HEAD: [&str; 11] = [
    "trace",
    "booking",
    "limit / 60 s",
    "calls",
    "util",
    "over 1.00",
    "over 1.05",
    "peak",
    "refused",
    "false",
    "hold/actual",
];
/// Columns of words; the others are figures and stand to the right.
const WORDS: usize = 2;

/// The whole table.
pub fn table(lines: &[Line]) -> String {
    let rows: Vec<[String; HEAD.len()]> = lines.iter().map(cells).collect();
    let mut widths = HEAD.map(|head| head.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    put(&mut out, &HEAD.map(str::to_owned), widths);
    for row in &rows {
        put(&mut out, row, widths);
    }
    out
}

fn put(out: &mut String, cells: &[String; HEAD.len()], widths: [usize; HEAD.len()]) {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        // Writing into a string cannot fail.
        let _ = match at {
            0 => write!(line, "{cell:<width$}"),
            at if at < WORDS => write!(line, "  {cell:<width$}"),
            _ => write!(line, "  {cell:>width$}"),
        };
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn cells(line: &Line) -> [String; HEAD.len()] {
    let figures = &line.figures;
    let judged = figures.looks > 0;
    let when = |judged: bool, text: String| if judged { text } else { "–".to_owned() };
    [
        line.trace.clone(),
        line.settings.clone(),
        line.limit.clone(),
        grouped(figures.calls),
        figures.utilisation.map_or("–".to_owned(), |share| percent(share, 1)),
        when(judged, percent(figures.over, 2)),
        when(judged, percent(figures.over_5, 3)),
        when(judged, format!("{:.3}", figures.peak)),
        percent(share(figures.refused, figures.calls), 2),
        percent(share(figures.false_refused, figures.calls), 2),
        figures.hold_to_actual.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
    ]
}

/// A part of a whole; 0 of nothing.
#[allow(clippy::float_arithmetic, reason = "a figure for people")]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { crate::counts::figure(part) / crate::counts::figure(whole) }
}

/// `0.9443` as `94.4 %`.
#[allow(clippy::float_arithmetic, reason = "a figure for people")]
pub fn percent(share: f64, places: usize) -> String {
    format!("{:.places$} %", share * 100.0)
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
