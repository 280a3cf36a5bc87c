//! A look at one shard's whole book, for people. It is read under the shard's lock, so its bound is the caller's.

use std::collections::BTreeMap;

use tollbook_engine::{ATTEMPTS_SHOWN, Learned, LiveHold, LiveLeg, Survey};
use tollbook_ledger::event::{EstimateRow, LiveRow};
use tollbook_ledger::{AccountId, Book, Event, Micros, ReservationId};

/// At most `max` of each kind.
pub(crate) fn survey(book: &Book, now: Micros, max: usize) -> Survey {
    let steady = book.steady(now);
    let mut survey = Survey::default();
    let mut names: BTreeMap<u32, AccountId> = BTreeMap::new();
    let mut lives = Vec::new();
    book.dump(&mut |row| match row {
        Event::Account(row) => {
            names.insert(row.opened.slot, row.opened.account);
        }
        Event::Live(row) => lives.push((row.due, hold(row, &names, (now, steady)))),
        Event::Estimate(row) => survey.learned.push(learned(row, steady)),
        _ => {}
    });
    lives.sort_by_key(|(due, hold)| (*due, hold.id, hold.attempt));
    survey.holds = lives.into_iter().map(|(_, hold)| hold).collect();
    survey.accounts = book.balances(now).map(crate::shard::balance_of).collect();
    survey.more =
        [survey.accounts.len(), survey.holds.len(), survey.learned.len()].iter().any(|len| *len > max);
    survey.accounts.truncate(max);
    survey.holds.truncate(max);
    survey.learned.truncate(max);
    survey
}

/// The attempts of a reservation that have not ended.
pub(crate) fn live(book: &Book, now: Micros, id: ReservationId) -> Vec<LiveHold> {
    let mut names = BTreeMap::new();
    let times = (now, book.steady(now));
    let mut found = Vec::new();
    let mut look = |names: &BTreeMap<u32, AccountId>| {
        found.clear();
        book.inspect_reservation(id, &mut |row| match row {
            Event::Live(row) if row.attempt < ATTEMPTS_SHOWN => found.push(hold(row, names, times)),
            _ => {}
        });
        !found.is_empty()
    };
    if look(&names) {
        book.dump(&mut |row| {
            if let Event::Account(row) = row {
                names.insert(row.opened.slot, row.opened.account);
            }
        });
        look(&names);
    }
    found
}

fn hold(row: &LiveRow<'_>, names: &BTreeMap<u32, AccountId>, (now, steady): (Micros, Micros)) -> LiveHold {
    let legs = row.legs.iter().filter_map(|leg| {
        let account = *names.get(&leg.slot)?;
        Some(LiveLeg { account, place: leg.place, held: leg.held, decided: leg.decided, output: leg.output })
    });
    LiveHold {
        id: row.id,
        attempt: row.attempt,
        age: now.saturating_sub(row.admitted),
        due: row.due.saturating_sub(steady),
        sent: row.sent,
        context: row.context.to_vec(),
        legs: legs.collect(),
    }
}

fn learned(row: &EstimateRow<'_>, steady: Micros) -> Learned {
    Learned {
        id: row.id,
        kind: row.kind,
        calls: row.n,
        mean: row.m,
        samples: row.samples.len() as u64,
        idle: steady.saturating_sub(row.used),
    }
}
