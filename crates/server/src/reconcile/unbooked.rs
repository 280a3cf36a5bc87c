//! Calls that ended when the engine no longer knew them (L8): what of them is in no account and no sum.
//!
//! Invariant: what is missing is what the attempt used less what its booked entries have; nothing if it had been settled.

use serde::{Deserialize, Serialize};
use tollbook_ledger::{Attempt, Micros, ReservationId};
use tollbook_store::{Entry, Origin, Side, UsageSum};

use super::quotas::Change;

/// One side of one attempt, as paths and files write it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    /// 32 hexadecimal digits.
    pub(crate) reservation: String,
    pub(crate) attempt: Attempt,
    pub(crate) side: SideWord,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SideWord {
    Tenant,
    Pool,
}

impl SideWord {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Pool => "pool",
        }
    }

    pub(crate) fn side(self) -> Side {
        match self {
            Self::Tenant => Side::Tenant,
            Self::Pool => Side::Pool,
        }
    }
}

impl Named {
    /// `None` of an entry whose body could not be read.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let side = match entry.body.side {
            Side::Tenant => SideWord::Tenant,
            Side::Pool => SideWord::Pool,
            Side::Unreadable => return None,
        };
        let reservation = format!("{:032x}", entry.reservation.0);
        Some(Self { reservation, attempt: entry.attempt, side })
    }

    pub(crate) fn id(&self) -> Option<ReservationId> {
        ReservationId::parse(&self.reservation)
    }
}

/// What an unbooked attempt is missing.
pub(crate) struct Missing {
    pub(crate) entry: Entry,
    pub(crate) change: Change,
    /// Engine time of the admission, or of the end where that is not known.
    pub(crate) at: Micros,
    /// It was posted already.
    pub(crate) posted: bool,
}

/// Of all entries of a reservation; `None` if the attempt has no unbooked entry on that side.
pub(crate) fn missing(entries: &[Entry], attempt: Attempt, side: Side) -> Option<Missing> {
    let of = |entry: &&Entry| entry.attempt == attempt && entry.body.side == side;
    let entry = entries.iter().filter(of).find(|entry| entry.is_unbooked())?.clone();
    let mut before = UsageSum::default();
    let (mut at, mut posted) = (entry.admitted_at, false);
    for booked in entries.iter().filter(of).filter(|entry| !entry.is_unbooked()) {
        before.requests = before.requests.saturating_add(booked.requests);
        before.usage = before.usage.plus(&booked.body.usage);
        before.cost_nano = before.cost_nano.saturating_add(booked.body.cost_nano);
        at = if at == 0 { booked.admitted_at } else { at };
        posted |= booked.origin == Origin::Adjusted;
    }
    let after =
        UsageSum { requests: entry.requests, usage: entry.body.usage, cost_nano: entry.body.cost_nano };
    let at = if at == 0 { entry.ended_at } else { at };
    Some(Missing { entry, change: Change { before, after }, at, posted })
}

impl Missing {
    /// There is something to post.
    pub(crate) fn is_open(&self) -> bool {
        !self.posted && !self.change.is_nothing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollbook_store::{EntryBody, Usage};

    fn entry(attempt: u16, seq: u16, origin: Origin, input: i64, requests: i64) -> Entry {
        Entry {
            reservation: ReservationId(7),
            attempt,
            seq,
            origin,
            admitted_at: if origin == Origin::Unbooked { 0 } else { 5 },
            ended_at: 9,
            requests,
            posted: Vec::new(),
            body: EntryBody {
                usage: Usage { input, ..Usage::default() },
                cost_nano: input * 10,
                ..EntryBody::default()
            },
        }
    }

    /// L8: actual less the sum of that attempt's entries.
    #[test]
    fn l8_what_is_missing_is_the_actual_less_what_is_booked() {
        let unbooked = || entry(1, u16::MAX, Origin::Unbooked, 100, 1);
        let told = |entries: &[Entry]| {
            let found = missing(entries, 1, Side::Tenant).unwrap();
            let delta = found.change.delta();
            (delta.requests, delta.usage.input, delta.cost_nano, found.at, found.is_open())
        };
        assert_eq!(told(&[unbooked()]), (1, 100, 1000, 9, true));
        // Another attempt's entries are not this one's.
        assert_eq!(told(&[entry(0, 0, Origin::Rebooked, 30, 0), unbooked()]), (1, 100, 1000, 9, true));
        assert_eq!(told(&[entry(1, 0, Origin::Expired, 30, 1), unbooked()]), (0, 70, 700, 5, true));
        assert_eq!(told(&[entry(1, 0, Origin::Settled, 100, 1), unbooked()]), (0, 0, 0, 5, false));
        let late = [entry(1, 0, Origin::Expired, 30, 1), entry(1, 1, Origin::Late, 70, 0), unbooked()];
        assert_eq!(told(&late), (0, 0, 0, 5, false));
        assert!(!told(&[entry(1, 2, Origin::Adjusted, 1, 1), unbooked()]).4);
        assert!(missing(&[unbooked()], 0, Side::Tenant).is_none());
        assert!(missing(&[unbooked()], 1, Side::Pool).is_none());
        assert!(missing(&late[..2], 1, Side::Tenant).is_none());
    }
}
