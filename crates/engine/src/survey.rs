//! What is kept of one shard, for people: accounts, live reservations, what estimators have learned.
//!
//! Each list is cut at what was asked for, and says so; whoever looks may be looking because there is too much.

use tollbook_ledger::{AccountId, Attempt, EstimatorId, EstimatorKind, Micros, ReservationId};

use crate::Balance;

/// Everything that is kept of one shard, up to a bound of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Survey {
    pub accounts: Vec<Balance>,
    /// Those due soonest first.
    pub holds: Vec<LiveHold>,
    pub learned: Vec<Learned>,
    /// There is more of one of them than was asked for.
    pub more: bool,
}

/// Attempts of a reservation that are looked for by its id.
pub const ATTEMPTS_SHOWN: Attempt = 64;

/// A reservation that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveHold {
    pub id: ReservationId,
    pub attempt: Attempt,
    /// Since its admission.
    pub age: Micros,
    /// Until it may be swept; 0: it is due.
    pub due: Micros,
    /// It has left the gateway, and may be charged when it expires.
    pub sent: bool,
    /// What its expiry would write to the journal.
    pub context: Vec<u8>,
    pub legs: Vec<LiveLeg>,
}

/// What a live reservation has on one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveLeg {
    pub account: AccountId,
    /// Quota: start of the period. Rate: number of the bucket at the door. Forecast: second of the door. Else 0.
    pub place: u64,
    pub held: u64,
    /// The amount last decided; of `requests`, what is posted for the call.
    pub decided: u64,
    /// Expected output.
    pub output: u64,
}

/// What one estimator has learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learned {
    pub id: EstimatorId,
    pub kind: EstimatorKind,
    /// Calls it has learned from.
    pub calls: u64,
    /// The mean it keeps, in thousandths; 0 where it keeps none.
    pub mean: u64,
    /// Numbers it keeps besides: outputs of calls, or three for each minute.
    pub samples: u64,
    /// Since it was last used.
    pub idle: Micros,
}
