//! The verbs' arguments and answers, where they are more than the ledger's.

use tollbook_ledger as ledger;
use tollbook_ledger::{AccountId, Attempt, Measure, Micros, ReleaseWhy, ReservationId, Shape, SubjectId};

/// One of 256 shards: crc32 of the tenant's or pool's id, modulo 256. Fixed when a store is first used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shard(pub u8);

/// An answer with the engine's epoch and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<T> {
    pub epoch: u64,
    pub now: Micros,
    pub value: T,
}

/// `reserve`.
#[derive(Clone, Debug)]
pub struct ReserveCall {
    pub shard: Shard,
    pub reserve: ledger::Reserve,
    /// Priority class; 0 is the highest.
    pub class: u8,
    /// The caller queues if denied; sets the accounts' wanted bits.
    pub waiting: bool,
}

/// Proof of an admitted reservation; every later verb shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    pub shard: Shard,
    pub epoch: u64,
    pub receipt: ledger::Receipt,
}

impl Receipt {
    /// Subjects of its accounts, each once.
    pub fn subjects(&self) -> Vec<SubjectId> {
        let mut found = Vec::new();
        for leg in &self.receipt.legs {
            if !found.contains(&leg.account.subject) {
                found.push(leg.account.subject);
            }
        }
        found
    }

    /// What a later verb names.
    pub fn claim(&self) -> Claim {
        Claim { shard: self.shard, id: self.receipt.id, attempt: self.receipt.attempt }
    }
}

/// Names a reservation in its shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Claim {
    pub shard: Shard,
    pub id: ReservationId,
    pub attempt: Attempt,
}

/// The answer to `reserve` and `rebook`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Admit(Receipt),
    Ended(ledger::End),
    Conflict(usize),
    /// Ask once more with period starts around the reply's `now`.
    Recalendar,
    /// `due` names holds the caller may expire before it asks once more.
    Deny {
        denial: ledger::Denial,
        due: Vec<DueHold>,
    },
}

/// `rebook`.
#[derive(Clone, Debug)]
pub struct RebookCall {
    pub receipt: Receipt,
    /// What the ended attempt used, per leg of its receipt; `None` posts nothing.
    pub actual: Option<Vec<u64>>,
    /// Output llm_tokens of the ended attempt that landed.
    pub landed: u64,
    /// Journal entry of the ended attempt.
    pub entry: Option<Vec<u8>>,
    pub next: ReserveCall,
}

/// One renewal.
#[derive(Clone, Debug)]
pub struct RenewCall {
    pub claim: Claim,
    /// Subjects of the receipt's accounts, if an output is given; lets an adapter declare its keys.
    pub subjects: Vec<SubjectId>,
    pub sent: bool,
    pub life: Micros,
    pub output_expected: Option<u64>,
    /// A stream outgrew its forecast: the output now expected, to be learned at once.
    pub outgrown: Option<u64>,
}

/// Facts that replace plans (forecast booking): batches for at most [`ledger::units::PROGRESS_ACCOUNTS_MAX`] accounts.
#[derive(Clone, Debug)]
pub struct ProgressCall {
    pub shard: Shard,
    pub batches: Vec<ledger::Progress>,
}

/// A settle whose call ended longer ago than this is journaled as `unbooked` (L8): 25 min, within `REMEMBER`.
pub const SETTLE_AGE_MAX: Micros = 25 * 60 * 1_000_000;

/// `settle`.
#[derive(Clone, Debug)]
pub struct SettleCall {
    pub claim: Claim,
    /// Accounts of the receipt, in its order; lets an adapter declare its keys.
    pub accounts: Vec<AccountId>,
    pub actual: Vec<u64>,
    /// Output llm_tokens that landed, reported or metered.
    pub landed: u64,
    pub learn: Option<u64>,
    pub entry: Vec<u8>,
    /// How long ago the call ended. Older than [`SETTLE_AGE_MAX`], or for an id the engine no longer knows: no account
    /// changes, the entry is journaled as `Unbooked` and the answer says `Met::Unknown` (L8).
    pub age: Micros,
}

/// `release`.
#[derive(Clone, Debug)]
pub struct ReleaseCall {
    pub claim: Claim,
    pub accounts: Vec<AccountId>,
    pub why: ReleaseWhy,
    pub entry: Option<Vec<u8>>,
}

/// One expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpireCall {
    pub claim: Claim,
    pub subjects: Vec<SubjectId>,
}

/// An expiry that somebody asks for before it is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpireNow {
    pub claim: Claim,
    /// Goes to the journal instead of the reservation's context: that, and who asked and why.
    pub entry: Vec<u8>,
}

/// A hold that is due, with what `expire` must declare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueHold {
    pub claim: Claim,
    pub subjects: Vec<SubjectId>,
}

/// `restore`: a reservation as its voucher tells. Given once per (id, attempt); what the book still has of it is left alone.
#[derive(Clone, Debug)]
pub struct RestoreCall {
    /// What was asked at the door.
    pub asked: ReserveCall,
    /// What was answered: places, outputs and holds are taken from here, leg by leg.
    pub receipt: Receipt,
    /// Time since the admission. Of a call admitted while the book was away nobody but the caller knows it.
    pub age: Micros,
    pub state: RestoredState,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestoredState {
    /// Under way: the holds are written, and `requests` posted at the door.
    Held {
        /// The call left the gateway.
        sent: bool,
    },
    Ended {
        how: ledger::End,
        /// What was posted per leg, `requests` included; `None` where the journal's sums have it already: then only the
        /// end is remembered.
        posted: Option<Vec<u64>>,
        /// Output llm_tokens that landed.
        landed: u64,
        /// Time since the end.
        age: Micros,
        /// Goes to the journal, unless it is there.
        entry: Option<Vec<u8>>,
    },
}

/// `adjust`.
#[derive(Clone, Debug)]
pub struct AdjustCall {
    pub shard: Shard,
    pub adjust: ledger::Adjust,
    pub entry: Vec<u8>,
}

/// One account as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    pub account: AccountId,
    pub measure: Measure,
    pub shape: Shape,
    pub standing: Standing,
    pub live_holds: u64,
    pub shadow_denied: u64,
    pub shadow_demand: u64,
    /// Changes with every write; `repair` shows it.
    pub version: u64,
}

/// Posted and held of the current window or newest period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Start of the newest period (quota), UTC seconds; else 0.
    pub period: u64,
    pub posted: i64,
    pub held: i64,
    /// Time until the account is empty if nothing else comes.
    pub reset: Micros,
}

/// What a person wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspection {
    Reservation(ReservationId),
    Account(AccountId),
}

/// One batch of the drift check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drift {
    /// Accounts whose held is not the sum of their live holds: (account, period, held, sum, version).
    pub differences: Vec<(AccountId, u64, i64, i64, u64)>,
    /// Accounts that could not be compared: too much of them is live at once, or changes too fast.
    pub unconfirmed: u64,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// `repair`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repair {
    pub shard: Shard,
    pub account: AccountId,
    pub period: u64,
    pub version: u64,
}
