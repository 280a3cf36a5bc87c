//! When and how providers' files are compared with the journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tollbook_pricing::parse_scaled;

use super::file;
use super::mistakes::Mistakes;
use crate::reconcile::{Columns, PERCENT_PLACES};

/// In percent.
const TOLERANCE: &str = "5";
/// Days back that are compared at most.
const DAYS_MAX: u32 = 400;

/// The daily comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reconcile {
    pub folder: PathBuf,
    /// Seconds after midnight, UTC.
    pub at: u64,
    /// In thousandths of a percent.
    pub tolerance: u64,
    pub days: u32,
    pub models: BTreeMap<String, String>,
    pub(crate) columns: Option<Columns>,
}

pub(super) fn reconcile(
    mistakes: &mut Mistakes,
    folder: &Path,
    given: Option<&file::Reconcile>,
) -> Option<Reconcile> {
    let given = given?;
    let at = at(&given.at);
    if at.is_none() {
        mistakes.add("reconcile.at", format!("must be a time of the day, as 06:00, not `{}`", given.at));
    }
    let tolerance = given.tolerance.as_ref().map_or(TOLERANCE, |tolerance| tolerance.0.as_str());
    let parsed = parse_scaled(tolerance, PERCENT_PLACES);
    if let Err(error) = &parsed {
        mistakes.add("reconcile.tolerance", format!("{error}: `{tolerance}`"));
    }
    if !(1..=DAYS_MAX).contains(&given.days) {
        mistakes.add("reconcile.days", format!("must be from 1 to {DAYS_MAX}"));
    }
    let columns = given.columns.as_deref().map(Columns::parse).transpose();
    if let Err(what) = &columns {
        mistakes.add("reconcile.columns", what.clone());
    }
    Some(Reconcile {
        folder: folder.join(&given.folder),
        at: at?,
        tolerance: parsed.ok()?,
        days: given.days,
        models: given.models.clone(),
        columns: columns.ok()?,
    })
}

/// `HH:MM` as seconds after midnight.
fn at(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: u64| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| digits && *number < below)
    };
    Some(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)
}

#[cfg(test)]
mod tests {
    use super::at;

    #[test]
    fn a_time_of_the_day_is_two_numbers() {
        assert_eq!((at("00:00"), at("06:30"), at("23:59")), (Some(0), Some(23_400), Some(86_340)));
        for text in ["24:00", "12:60", "6:00", "06:00:00", "-1:00", "0600", "", "+6:00", "06:+1"] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
