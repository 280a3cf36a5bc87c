//! Which limits bind a call, and in which calendar periods they count.
//!
//! Pure: no I/O, no clock, no floats; time is an argument (UTC seconds of the engine's clock). Everything configured is
//! one immutable [`Catalog`]; a wrong configuration is refused as a whole with every problem named.
//! Knows no prices, no usage, no wire formats and no store.

mod account;
mod calendar;
mod catalog;
mod check_limit;
mod definition;
mod digest;
mod explain;
mod history;
mod limit;
mod meter;
mod network;
mod problem;
mod resolve;
mod subject;
mod validate;

pub use account::measure_word;
pub use calendar::{Anchor, Calendar, CalendarId, DEFAULT_ZONE, PeriodCache, PeriodRule, PeriodTable};
pub use catalog::{
    Catalog, Draft, Key, KeyRefusal, Model, Pool, Project, Rule, Secret, Service, Tenant, User,
};
pub use definition::DefinitionError;
pub use explain::BoundLine;
pub use history::{HistoryRow, OpeningNeeded, diff};
pub use limit::{
    Booking, CONSTANT_MAX, COST_CEILING_MAX, ChargeAt, EstimatorChoice, FACTOR_MAX, FACTOR_MIN, FACTOR_ONE,
    Form, LIMIT_NAME_MAX, Limit, LimitDraft, Opening, PeriodKind, Raise, RaiseDraft, ShapeDraft, Strictness,
    WEIGHTED_CEILING_MAX, WINDOW_MAX_S, WINDOW_MIN_S, WhenAway,
};
pub use meter::{Meter, MeterPair, WEIGHT_MAX, WHOLE, counts_llm_tokens};
pub use network::Network;
pub use problem::{List, Place, Problem, ProblemKind, Warning, WarningKind};
pub use resolve::{Binding, BoundAccount, Call, UserTooLong};
pub use subject::{ID_MAX, MODEL_ID_MAX, Scope, Subject, USER_ID_MAX, USERS_MAX};
pub use tollbook_ledger::{Hold, LimitId, Measure, OnExpiry, Weights};
pub use validate::check_id;
