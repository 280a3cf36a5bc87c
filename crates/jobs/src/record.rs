//! An engine's record as a journal entry.
//!
//! A correction carries the difference to the entries before it, so that sums are right (section 12). A record whose
//! body cannot be read still becomes an entry: what was posted is never lost.

use tollbook_engine::{JournalRecord, Source};
use tollbook_store::{Ending, Entry, EntryBody, Figures, Flags, Lapse, Line, Origin, Side, Usage, signed};

/// The entry of a record; `earlier` are the entries of its reservation that are known so far (read only for
/// corrections). `None` if the record tells nothing: a correction without a body, of nothing.
pub fn entry(record: &JournalRecord, earlier: &[Entry]) -> Option<Entry> {
    let origin = origin(record.source);
    let earlier: Vec<&Entry> = earlier
        .iter()
        .filter(|e| e.reservation == record.id && e.attempt == record.attempt && e.seq < record.seq)
        .filter(|e| !e.is_unbooked())
        .collect();
    let body = match EntryBody::decode(&record.body) {
        Ok(body) => body,
        Err(_) if origin == Origin::Late && record.body.is_empty() => released_late(record, &earlier)?,
        Err(_) => {
            let flags = Flags { damaged: true, ..Flags::default() };
            EntryBody { side: Side::Unreadable, figures: Figures::Unknown, flags, ..EntryBody::default() }
        }
    };
    let mut entry = Entry {
        reservation: record.id,
        attempt: record.attempt,
        seq: record.seq,
        origin,
        admitted_at: record.admitted,
        ended_at: record.ended,
        requests: requests(origin, &body),
        posted: record.posted.clone(),
        body,
    };
    match origin {
        Origin::Expired => expire(&mut entry),
        Origin::Late => correct(&mut entry, &earlier),
        Origin::Adjusted => {
            entry.body.figures = Figures::Adjusted;
            entry.body.ending = Ending::Adjusted;
        }
        Origin::Settled | Origin::Released | Origin::Rebooked | Origin::Unbooked => {}
    }
    Some(entry)
}

fn origin(source: Source) -> Origin {
    match source {
        Source::Settled => Origin::Settled,
        Source::Released => Origin::Released,
        Source::Expired => Origin::Expired,
        Source::Rebooked => Origin::Rebooked,
        Source::Late => Origin::Late,
        Source::Adjusted => Origin::Adjusted,
        Source::Unbooked => Origin::Unbooked,
    }
}

/// Calls that an entry adds before it is corrected. A rebooked attempt of a tenant adds none: the request goes on to the
/// next attempt. A provider counts each try.
fn requests(origin: Origin, body: &EntryBody) -> i64 {
    let goes_on = origin == Origin::Rebooked && body.side == Side::Tenant;
    let never_sent = body.ending == Ending::NeverSent;
    i64::from(!(goes_on || never_sent || origin == Origin::Adjusted))
}

/// What an expiry charged: the expected demand if a quota of the call says so, else nothing but the request (L7). What the
/// quotas were charged tells the output that was expected; without it the guess of the door stands.
fn expire(entry: &mut Entry) {
    let hold = entry.body.hold;
    entry.body.figures = Figures::Expired;
    entry.body.ending = Ending::Expired;
    if hold.charged_on_expiry {
        let Lapse { output: line, cost } = entry.body.lapse;
        let posted = |line: &Line| {
            let posted = entry.posted.iter().find(|posted| posted.account.name == line.account);
            posted.and_then(|posted| u64::try_from(posted.amount).ok())
        };
        let learned = line.and_then(|line| line.output(posted(&line)?));
        let input = hold.input_llm_tokens.min(hold.expected_llm_tokens);
        let output = learned.unwrap_or(hold.expected_llm_tokens.saturating_sub(input));
        let priced = cost.and_then(|cost| posted(&cost).or_else(|| Some(cost.amount(learned?))));
        let cost_nano = priced.unwrap_or(hold.expected_cost_nano);
        entry.body.usage = Usage { input: signed(input), output: signed(output), ..Usage::default() };
        entry.body.cost_nano = signed(cost_nano);
        entry.body.hold.expected_llm_tokens = input.saturating_add(output);
        entry.body.hold.expected_cost_nano = cost_nano;
    }
    entry.body.lapse = Lapse::default();
}

/// Makes the truth of a late settle or release the difference to what was charged before (L8).
fn correct(entry: &mut Entry, earlier: &[&Entry]) {
    for before in earlier.iter().filter(|e| e.body.side == entry.body.side) {
        entry.requests = entry.requests.saturating_sub(before.requests);
        entry.body.usage = entry.body.usage.minus(&before.body.usage);
        entry.body.cost_nano = entry.body.cost_nano.saturating_sub(before.body.cost_nano);
        if entry.admitted_at == 0 {
            entry.admitted_at = before.admitted_at;
        }
    }
}

/// The body of a late release that wrote none: who and what from the entry it takes back.
fn released_late(record: &JournalRecord, earlier: &[&Entry]) -> Option<EntryBody> {
    let touched = |entry: &Entry| {
        let mut accounts = entry.posted.iter().map(|p| p.account.subject);
        accounts.any(|subject| record.posted.iter().any(|p| p.account.subject == subject))
    };
    let before = match earlier {
        [] if record.posted.is_empty() => return None,
        [one] => Some(one),
        // Both sides of the call have expired; the subjects tell which side this is.
        many => many.iter().find(|e| touched(e)),
    };
    let Some(before) = before else {
        let flags = Flags { damaged: true, ..Flags::default() };
        return Some(EntryBody { side: Side::Unreadable, flags, ..EntryBody::default() });
    };
    let nothing = EntryBody { usage: Usage::default(), cost_nano: 0, ..before.body.clone() };
    Some(EntryBody { figures: Figures::Nothing, ending: Ending::NeverSent, ..nothing })
}
