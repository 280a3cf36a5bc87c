//! The door and the end of every call: resolve, estimate, reserve, hand out a Ticket, settle exactly once.
//!
//! Invariants: no call passes without its holds; every admitted call ends in exactly one posting per reservation,
//! acknowledged by the engine, waiting in a bounded queue, or on disk in the spool; live holds are renewed in batches.
//! Where the book can be lost, what it acknowledged is remembered until the journal has it.
//! When the engine is away: each limit says what becomes of its calls; known outcomes wait, nothing is dropped.
//! Knows no HTTP and no adapter.

mod admit;
mod away;
mod bound;
mod bytes;
mod charge;
mod counting;
mod denials;
mod estimate;
mod explain;
mod figures;
mod keys;
mod live;
mod lost;
mod outcome;
mod overflow;
mod plans;
mod ratios;
mod refused;
mod report;
mod restoration;
mod settle;
mod snapshot;
mod spool;
mod streaming;
mod ticket;
mod time;
mod trace;
mod used;
mod verb;
mod vouchers;

pub use admit::{Admission, Admitted, Asking, OpenError, Place, Readiness, Settings, Way, pool_id};
pub use away::{
    AwayBounds, AwayCounts, AwayReport, BreakerBounds, Degraded, FAILURES_MAX, GATEWAYS_MAX, OF_LAST_MAX,
};
pub use bound::shard;
pub use counting::{
    CountMode, Counted, Counting, CountingBounds, FILE_WEIGHT, Fallback, INLINE_MAX, TokenizerFile, warm,
};
pub use explain::{Explanation, StandingLine};
pub use figures::{Figure, Figures};
pub use keys::{Caller, Callers, CallersAway, Lookup};
pub use live::{Leave, Lives};
pub use outcome::{Ending, Outcome};
pub use ratios::{IDLE as RATIO_IDLE, RATIOS_MAX};
pub use refused::{LimitRefusal, Refused};
pub use settle::SettleBounds;
pub use snapshot::{ApiKeyHash, ModelPlan, Principal, Snapshot, Target};
pub use spool::SpoolError;
pub use ticket::{SentMark, Ticket};
pub use tollbook_ledger::{DenyKind, Measure};
pub use tollbook_policy::Network;
pub use tollbook_pricing::Task;
pub use tollbook_store::nano_text;
pub use vouchers::{Losable, VOUCHERS_ASKED_EVERY, VoucherBounds, VoucherError, Vouchers};
