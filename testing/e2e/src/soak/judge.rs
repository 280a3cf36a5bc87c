//! Compares the journal with what the provider and the clients have seen, call by call.

use std::collections::BTreeMap;

use tollbook_mock_upstream::Recorded;

use super::calls::{Fate, Outcome};
use crate::journal::{Entry, Journal};

/// Words are counted by their bytes where the provider told nothing: at most so many llm_tokens for one of the
/// provider's, and so many more.
const COUNTED_PER_WORD: u64 = 3;
const COUNTED_MORE: u64 = 16;

/// How many calls ended in which way.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub calls: u64,
    pub at_provider: u64,
    /// Entries by where their figures come from.
    pub figures: BTreeMap<String, u64>,
    /// Entries by how the call ended.
    pub endings: BTreeMap<String, u64>,
    /// llm_tokens in the journal.
    pub llm_tokens: i64,
}

/// Counts, and appends what is not as it must be.
pub(super) fn judge(
    outcomes: &[Outcome],
    provider: &[Recorded],
    journal: &Journal,
    posted: Option<i64>,
    faults: &mut Vec<String>,
) -> Tally {
    let entries = journal.by_call("tenant");
    let mut tally =
        Tally { calls: count(outcomes.len()), at_provider: count(provider.len()), ..Tally::default() };
    for entry in entries.values().flatten() {
        *tally.figures.entry(entry.figures.clone()).or_default() += 1;
        *tally.endings.entry(entry.ending.clone()).or_default() += 1;
        tally.llm_tokens = tally.llm_tokens.saturating_add(entry.llm_tokens());
    }
    faults.extend(journal.repeated().into_iter().map(|key| format!("twice in the journal: {key}")));
    let mut known: BTreeMap<&str, &Recorded> = BTreeMap::new();
    for call in provider {
        if known.insert(call.label.as_deref().unwrap_or_default(), call).is_some() {
            faults.push(format!("{:?} came to the provider twice", call.label));
        }
    }
    for (label, call) in &known {
        match entries.get(label).map(Vec::as_slice) {
            Some([entry]) => faults.extend(compare(label, call, entry)),
            other => faults.push(format!("{label} has {} entries", other.map_or(0, <[_]>::len))),
        }
    }
    for label in entries.keys().filter(|label| !known.contains_key(*label)) {
        faults.push(format!("{label} is in the journal and was never at the provider"));
    }
    for outcome in outcomes {
        faults.extend(client_saw(outcome, entries.get(outcome.label.as_str()).map(Vec::as_slice)));
    }
    let sum: i64 =
        entries.values().flatten().flat_map(|entry| &entry.posted).map(|posted| posted.amount).sum();
    if posted != Some(sum) {
        faults.push(format!("the budget has {posted:?} posted, its entries {sum}"));
    }
    tally
}

fn compare(label: &str, call: &Recorded, entry: &Entry) -> Option<String> {
    let is = (entry.input, entry.output);
    let right = match entry.figures.as_str() {
        "reported" => call.reported.is_some_and(|told| is == (signed(told.input), signed(told.output))),
        "partial" => {
            let most = call.generated.output.saturating_mul(COUNTED_PER_WORD).saturating_add(COUNTED_MORE);
            let input = call.reported.map(|told| signed(told.input));
            (entry.input == entry.hold_input || Some(entry.input) == input)
                && (0..=signed(most)).contains(&entry.output)
        }
        _ => false,
    };
    let told = (call.generated, call.reported);
    (!right)
        .then(|| format!("{label}: {} {} {is:?}, the provider says {told:?}", entry.figures, entry.ending))
}

/// What a client has seen whole was charged as the provider told it; nobody was refused.
fn client_saw(outcome: &Outcome, entries: Option<&[&Entry]>) -> Option<String> {
    let Outcome { label, fate, status, whole } = outcome;
    let figures = entries.and_then(<[_]>::first).map_or("none", |entry| entry.figures.as_str());
    let right = match fate {
        Fate::Whole => *whole && *status == 200 && figures == "reported",
        Fate::Leaves(_) | Fate::Resets(_) => *status == 200,
        // Cut before the first word it is an answer with an error, after it an event.
        Fate::Silent | Fate::Broken => !whole && matches!(*status, 200 | 502 | 504),
    };
    (!right).then(|| format!("{label}: {fate:?} was answered {status}, whole: {whole}, figures {figures}"))
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { calls, at_provider, figures, endings, llm_tokens } = self;
        write!(f, "calls: {calls}, at the provider: {at_provider}, llm_tokens journaled: {llm_tokens}")?;
        write!(f, "\nfigures: {figures:?}\nendings: {endings:?}")
    }
}
