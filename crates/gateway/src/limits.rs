//! `GET /v1/limits`: a key holder's own limits, as the engine has them.

use serde::Serialize;
use tollbook_admission::{StandingLine, nano_text};

#[derive(Serialize)]
struct Page<'a> {
    object: &'static str,
    data: Vec<Line<'a>>,
}

/// One limit; amounts in `unit`.
#[derive(Serialize)]
struct Line<'a> {
    limit: &'a str,
    subject: &'a str,
    measure: &'static str,
    /// What the amounts count: `calls`, `llm_tokens` or `nano-currency` (billionths of a currency unit).
    unit: &'static str,
    form: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    strictness: &'static str,
    ceiling: u64,
    posted: i64,
    held: i64,
    remaining: u64,
    /// Seconds until the account is empty if nothing else comes.
    reset_s: u64,
    /// The same amounts in currency units, where they are money.
    #[serde(skip_serializing_if = "Option::is_none")]
    decimal: Option<Decimal>,
}

/// Exact decimal texts: integers in readers that have only floats lose their last digits.
#[derive(Serialize)]
struct Decimal {
    ceiling: String,
    posted: String,
    held: String,
    remaining: String,
}

impl Decimal {
    fn of(line: &StandingLine) -> Self {
        let unsigned = |nano: u64| nano_text(i64::try_from(nano).unwrap_or(i64::MAX));
        Self {
            ceiling: unsigned(line.ceiling),
            posted: nano_text(line.posted),
            held: nano_text(line.held),
            remaining: unsigned(line.remaining),
        }
    }
}

/// The page's JSON.
pub(crate) fn body(lines: &[StandingLine]) -> Vec<u8> {
    let data = lines
        .iter()
        .map(|line| Line {
            limit: &line.limit,
            subject: &line.subject,
            measure: line.measure,
            unit: unit(line.measure),
            form: &line.form,
            model: line.model.as_deref(),
            strictness: if line.hard { "hard" } else { "soft" },
            ceiling: line.ceiling,
            posted: line.posted,
            held: line.held,
            remaining: line.remaining,
            reset_s: line.reset.div_ceil(1_000_000),
            decimal: (line.measure == "cost").then(|| Decimal::of(line)),
        })
        .collect();
    serde_json::to_vec(&Page { object: "list", data }).unwrap_or_default()
}

fn unit(measure: &str) -> &'static str {
    match measure {
        "cost" => "nano-currency",
        "requests" | "concurrency" => "calls",
        _ => "llm_tokens",
    }
}
