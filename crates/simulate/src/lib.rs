//! Replays a trace of calls against the real book on virtual time, and judges what it admitted.
//!
//! A trace says when calls came and how much they used. [`offer`] gives each the pace and the cap that a trace does not
//! know, from a seed; [`replay`] asks the ledger about every call and yields one [`Decision`] each; [`judge`] adds up
//! what those decisions let land, and knows nothing of the ledger. The same trace, settings and seed give the same
//! decisions on every machine: times and amounts are integers, and floats appear only in figures for people.
//! Knows no files, no terminal and no clock: bytes come in, text goes out.

mod counts;
pub mod judge;
pub mod limits;
pub mod make;
pub mod offer;
pub mod random;
pub mod replay;
pub mod report;
pub mod settings;
pub mod table;
mod teller;
pub mod trace;

pub use judge::{Counted, Figures, judge};
pub use limits::{Ceiling, Limits};
pub use offer::{Call, Habits, Offer, offer};
pub use replay::{Decision, Replay, replay};
pub use settings::Settings;
pub use trace::{Trace, TraceError};
