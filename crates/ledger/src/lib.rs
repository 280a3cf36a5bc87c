//! The book: accounts, reservations, and the verbs that move amounts between held and posted.
//!
//! Pure and total: no I/O, no clock, no randomness, no floats; time is an argument, every verb answers.
//! Invariants: the rules L1–L18 of `docs/spec/ledger.md`. Every verb decides first, hands one [`event::Event`] to
//! the caller's log, and only then applies it; applying cannot fail, so a book is the fold of its events.
//! When the log refuses an event, the verb changed nothing and says so.

pub mod account;
pub mod book;
pub mod codes;
pub mod command;
pub mod event;
pub mod id;
pub mod reply;
pub mod stream;
pub mod units;

pub use account::{AccountId, Measure, Shape, SubjectId, Weights};
pub use book::Book;
pub use command::{
    Adjust, Estimator, EstimatorId, EstimatorKind, ExpireOne, Growth, Hold, Leg, Limit, OnExpiry, Opening,
    Periods, Profile, Progress, Rebook, Release, ReleaseWhy, Renew, Reserve, Settle,
};
pub use event::{Event, Full, Log};
pub use id::{Attempt, LimitId, ReservationId};
pub use reply::{
    Alarms, Balance, Binding, Denial, DenyKind, Drift, Due, End, Expired, LegReceipt, Met, Posted,
    PruneCount, Receipt, Refusal, Renewed, Settled, Verdict, Wait,
};
pub use units::{AMOUNT_MAX, LEGS_MAX, Micros, SECOND};
