//! Figures and how they are shown: a table for people, JSON for programs.
//!
//! A row compares the same quantity of baseline and gateway; the ratio is the median over the rounds, not the ratio of
//! the medians. `must` is the bound of the design; a row without one is for information.

use std::fmt::Write as _;

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub what: String,
    pub unit: &'static str,
    pub baseline: Option<f64>,
    pub gateway: f64,
    pub ratio: Option<f64>,
    /// Smallest and largest ratio of a round.
    pub spread: Option<(f64, f64)>,
    pub must: Option<Must>,
}

/// What the design demands.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Must {
    RatioAtMost(f64),
    ValueAtMost(f64),
    ValueAtLeast(f64),
}

impl Row {
    /// One figure per round on each side.
    pub fn compared(what: &str, unit: &'static str, rounds: &[(f64, f64)], must: Option<Must>) -> Self {
        let ratios: Vec<f64> = rounds.iter().map(|(baseline, gateway)| gateway / baseline).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        Self {
            what: what.to_owned(),
            unit,
            baseline: Some(median(rounds.iter().map(|round| round.0))),
            gateway: median(rounds.iter().map(|round| round.1)),
            ratio: Some(median(ratios)),
            spread: Some((least, most)),
            must,
        }
    }

    pub fn single(what: &str, unit: &'static str, gateway: f64, must: Option<Must>) -> Self {
        Self { what: what.to_owned(), unit, baseline: None, gateway, ratio: None, spread: None, must }
    }

    pub fn met(&self) -> Option<bool> {
        Some(match self.must? {
            Must::RatioAtMost(most) => self.ratio? <= most,
            Must::ValueAtMost(most) => self.gateway <= most,
            Must::ValueAtLeast(least) => self.gateway >= least,
        })
    }
}

pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    if values.len().is_multiple_of(2) {
        f64::midpoint(at(upper.saturating_sub(1)), at(upper))
    } else {
        at(upper)
    }
}

pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<44} {:>6} {:>12} {:>12} {:>7} {:>13}  {:<16}\n",
        "", "unit", "baseline", "gateway", "ratio", "of the rounds", "must"
    );
    for row in rows {
        let number = |value: Option<f64>| value.map_or(String::new(), figure);
        let spread = row.spread.map_or(String::new(), |(least, most)| format!("{least:.2} – {most:.2}"));
        let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let must = match (row.must, row.met()) {
            (Some(must), Some(met)) => format!("{} {}", demand(must), if met { "met" } else { "MISSED" }),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "{:<44} {:>6} {:>12} {:>12} {ratio:>7} {spread:>13}  {must:<16}",
            row.what,
            row.unit,
            number(row.baseline),
            figure(row.gateway),
        );
    }
    text
}

fn demand(must: Must) -> String {
    match must {
        Must::RatioAtMost(most) => format!("≤ {most} ×"),
        Must::ValueAtMost(most) => format!("≤ {}", figure(most)),
        Must::ValueAtLeast(least) => format!("≥ {}", figure(least)),
    }
}

fn figure(value: f64) -> String {
    if value.abs() >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_the_rounds() {
        let row =
            Row::compared("x", "µs", &[(1.0, 2.0), (10.0, 10.0), (1.0, 9.0)], Some(Must::RatioAtMost(1.9)));
        assert_eq!((row.ratio, row.spread), (Some(2.0), Some((1.0, 9.0))));
        assert_eq!(row.met(), Some(false));
        assert!(table(&[row]).contains("MISSED"));
        let row = Row::single("y", "MiB", 12.0, Some(Must::ValueAtMost(20.0)));
        assert_eq!(row.met(), Some(true));
    }

    #[test]
    fn median_of_even_and_odd() {
        assert!((median([3.0, 1.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
