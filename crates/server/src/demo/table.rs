//! The demo's live table of accounts: rows in, text out.
//!
//! Drawn in place with plain ANSI sequences; who draws it sees to it that the output is a terminal.

use std::fmt::Write;

use crate::text::{grouped, money};

/// One account, as shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Who is charged, as `key team/web/team-1`.
    pub subject: String,
    /// What is counted and over what time, as `tokens per 60s`.
    pub limit: String,
    pub ceiling: u64,
    pub posted: i64,
    pub held: i64,
    /// What stands in `held` is planned, not held.
    pub planned: bool,
    pub denied: u64,
    /// Amounts are nano-currency.
    pub money: bool,
}

const HEAD: [&str; 7] = ["subject", "limit", "ceiling", "posted", "held", "remaining", "denied"];
const CLEAR_TO_END: &str = "\x1b[K";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// The whole table; `width` columns at most, `height` lines at most.
pub fn draw(rows: &[Row], width: usize, height: usize, colours: bool) -> String {
    let dim = if colours { DIM } else { "" };
    let shown = rows.len().min(height.saturating_sub(2));
    let cells: Vec<[String; 7]> = rows.iter().take(shown).map(cells).collect();
    let mut widths = HEAD.map(str::len);
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    line(&mut out, &HEAD.map(str::to_owned), widths, width, dim);
    for (row, cells) in rows.iter().zip(&cells) {
        line(&mut out, cells, widths, width, if colours { colour(row) } else { "" });
    }
    if shown < rows.len() {
        // Writing into a string cannot fail.
        let _ = writeln!(out, "… and {} more{CLEAR_TO_END}", rows.len() - shown);
    }
    out
}

/// Moves the cursor up over what was drawn last.
pub fn back(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r") }
}

fn colour(row: &Row) -> &'static str {
    let ceiling = i128::from(row.ceiling);
    let used = i128::from(row.posted) + i128::from(row.held).max(0);
    if used >= ceiling {
        RED
    } else if used * 10 >= ceiling * 8 {
        YELLOW
    } else {
        ""
    }
}

fn cells(row: &Row) -> [String; 7] {
    let remaining = i128::from(row.ceiling) - i128::from(row.posted) - i128::from(row.held).max(0);
    let amount = |n: i128| if row.money { money(n) } else { grouped(n) };
    [
        row.subject.clone(),
        row.limit.clone(),
        amount(i128::from(row.ceiling)),
        amount(i128::from(row.posted)),
        held(row, amount(i128::from(row.held))),
        amount(remaining.max(0)),
        grouped(i128::from(row.denied)),
    ]
}

/// A plan is no hold: it gives way to fact every two seconds, and says so.
fn held(row: &Row, amount: String) -> String {
    if row.planned { format!("{amount} planned") } else { amount }
}

fn line(out: &mut String, cells: &[String; 7], widths: [usize; 7], width: usize, colour: &str) {
    let mut text = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let gap = if index == 0 { "" } else { "  " };
        let _ =
            if index < 2 { write!(text, "{gap}{cell:<width$}") } else { write!(text, "{gap}{cell:>width$}") };
    }
    let cut: String = text.chars().take(width).collect();
    let reset = if colour.is_empty() { "" } else { RESET };
    let _ = writeln!(out, "{colour}{cut}{reset}{CLEAR_TO_END}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(posted: i64, held: i64) -> Row {
        let (subject, limit) = ("key a/b/c".to_owned(), "requests per 60s".to_owned());
        Row { subject, limit, ceiling: 1000, posted, held, planned: false, denied: 3, money: false }
    }

    fn plain(text: &str) -> String {
        let mut out = text.to_owned();
        for sequence in [CLEAR_TO_END, DIM, RED, YELLOW, RESET] {
            out = out.replace(sequence, "");
        }
        out
    }

    #[test]
    fn columns_line_up() {
        let text = plain(&draw(&[row(5, 10), row(-1, 0)], 200, 50, true));
        let want = "\
subject    limit             ceiling  posted  held  remaining  denied
key a/b/c  requests per 60s    1,000       5    10        985       3
key a/b/c  requests per 60s    1,000      -1     0      1,001       3
";
        assert_eq!(text, want);
    }

    #[test]
    fn what_is_planned_says_so() {
        let planned = Row { planned: true, ..row(5, 10) };
        let text = plain(&draw(&[planned, row(5, 0)], 200, 50, false));
        let want = "\
subject    limit             ceiling  posted        held  remaining  denied
key a/b/c  requests per 60s    1,000       5  10 planned        985       3
key a/b/c  requests per 60s    1,000       5           0        995       3
";
        assert_eq!(text, want);
    }

    #[test]
    fn it_stays_inside_the_terminal() {
        let rows = vec![row(0, 0); 30];
        let text = plain(&draw(&rows, 20, 10, true));
        assert_eq!(text.lines().count(), 10);
        assert!(text.lines().all(|line| line.chars().count() <= 20));
        assert!(text.ends_with("… and 22 more\n"));
    }

    #[test]
    fn without_colours_there_are_none() {
        let text = draw(&[row(1000, 0)], 200, 50, false);
        assert!(!text.replace(CLEAR_TO_END, "").contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn a_full_account_is_red_a_nearly_full_one_yellow() {
        assert_eq!(colour(&row(1000, 0)), RED);
        assert_eq!(colour(&row(500, 300)), YELLOW);
        assert_eq!(colour(&row(500, 299)), "");
    }
}
