//! Background jobs: expire what is due, drain the journal, check held against its holds, open new quotas,
//! make a lost book whole again, tell the fleet's cache what to forget, let old days of the journal go; and which thresholds a
//! quota has crossed.
//!
//! Invariants: every job is idempotent and without input; a job that dies half-way and one that runs twice leave the
//! same books. `once` does what there is to do and returns; `run` repeats it until told to stop.
//! When the engine or the store is away: the job says so in a metric and, now and then, in the log, waits longer, and
//! goes on where it was. Nothing is lost: the engine keeps an entry until the store has it.
//! Knows no HTTP, no adapter, no configuration.

mod alerts;
mod days;
mod drain;
mod drift;
mod forgets;
mod openings;
mod pace;
mod record;
mod recovery;
mod sweep;

pub use alerts::{Amounts, BACK, Known, Step, Threshold, step};
pub use days::{DAYS_EVERY, Days};
pub use drain::{DRAIN_EVERY, Drain, Drained};
pub use drift::{DRIFT_EVERY, Drift, DriftFound};
pub use forgets::{FORGETS_EVERY, FORGETS_MAX, Forgets};
pub use openings::{OPENINGS_MAX, OPENINGS_ROUNDS, Opened, Opening, OpeningAmount, Openings, users};
pub use record::entry;
pub use recovery::{
    OPENED_AFTER, Part, QuotaAnswer, QuotaPeriod, QuotaPeriods, Recover, RestoreAnswer, WATCH_EVERY,
};
pub use sweep::{SWEEP_EVERY, Sweep, Swept};

use tollbook_engine::EngineError;
use tollbook_store::StoreError;

/// What kept a job from finishing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "the shared book is kept by gateways with another journal; all gateways of a book need the same one"
    )]
    Foreign,
}
