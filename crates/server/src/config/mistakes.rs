//! Collects what is wrong with the meaning of a file, by path.

use jiff::Timestamp;
use tollbook_pricing::{DecimalError, parse_scaled};

use super::values::{Decimal, Span};

/// A path in the file, what is wrong there, and what to do.
pub(super) type Mistake = (String, String, String);

/// Mistakes so far.
#[derive(Debug, Default)]
pub(super) struct Mistakes(pub(super) Vec<Mistake>);

impl Mistakes {
    pub(super) fn add(&mut self, path: impl Into<String>, what: impl Into<String>) {
        self.add_with_help(path, what, "");
    }

    pub(super) fn add_with_help(
        &mut self,
        path: impl Into<String>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push((path.into(), what.into(), help.into()));
    }

    /// `decimal` × 10^`places`; `unit` is the smallest part that counts.
    pub(super) fn amount(&mut self, path: &str, decimal: &Decimal, places: u32, unit: &str) -> Option<u64> {
        let what = match parse_scaled(&decimal.0, places) {
            Ok(amount) => return Some(amount),
            Err(DecimalError::TooFine(_)) => format!("must be a multiple of {unit}, not `{}`", decimal.0),
            Err(error) => format!("{error}: `{}`", decimal.0),
        };
        self.add(path, what);
        None
    }

    /// UTC seconds of an instant; a date without a zone is refused (B230).
    pub(super) fn instant(&mut self, path: &str, text: &str) -> Option<u64> {
        let seconds =
            text.parse::<Timestamp>().ok().and_then(|instant| u64::try_from(instant.as_second()).ok());
        if seconds.is_none() {
            let what = format!("must be an instant with its zone, as 2027-01-01T00:00:00Z, not `{text}`");
            self.add(path, what);
        }
        seconds
    }

    /// A length of time as whole seconds.
    pub(super) fn seconds(&mut self, path: &str, span: Span) -> Option<i64> {
        if span.0.subsec_nanos() != 0 {
            self.add(path, format!("must be whole seconds, not `{span}`"));
            return None;
        }
        i64::try_from(span.0.as_secs()).ok()
    }
}
