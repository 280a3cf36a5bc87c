//! The data plane: dialects, upstreams, relay, meter.
//!
//! Serves clients over HTTP/1.1, asks `admission` for every call, relays what the provider answers, and hands the outcome
//! to the call's Ticket. Invariants: no metered path around admission; every refusal is JSON of the client's dialect;
//! every body, head, queue and silence has a bound; our credentials go only upstream, the client's never do.
//! Knows no engine, no store and no SQL.

mod body;
mod call;
mod config;
mod cut;
mod detach;
mod encoding;
mod figures;
mod gateway;
mod headers;
mod intake;
mod limits;
mod listen;
mod outgoing;
mod pass;
mod pass_body;
mod passes;
mod paths;
mod plane;
mod problem;
mod refusal;
mod relay;
mod screen;
mod stall;
mod trace;
mod upload;
mod upstream;

pub use config::{Bounds, Config, Passes, Timeouts, Upstream};
pub use gateway::Gateway;
pub use passes::{may_be_opened, passed_paths};
pub use paths::served_paths;
pub use plane::Prepared;
