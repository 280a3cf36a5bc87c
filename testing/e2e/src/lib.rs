//! What black-box tests of the gateway need: the built program as a process, a client of bare bytes, the official SDKs.
//!
//! Invariants: no code of the gateway is linked; each test has its own processes, ports and folder; waiting is always
//! for a state, with a deadline. A failure prints what the gateway logged.

pub mod config;
pub mod gateway;
pub mod http;
pub mod python;
