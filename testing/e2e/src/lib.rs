//! What black-box tests of the gateway need: the built program as a process, a client of bare bytes, client processes with
//! a plan, the official SDKs, and a reader of the journal.
//!
//! Invariants: no code of the gateway is linked; each test has its own processes, ports and folder; waiting is always
//! for a state, with a deadline. A failure prints what the gateway logged.

pub mod client;
pub mod config;
pub mod drivers;
pub mod gateway;
pub mod http;
pub mod journal;
pub mod load;
pub mod matrix;
pub mod python;
pub mod random;
pub mod soak;
pub mod tap;
pub mod trace;
