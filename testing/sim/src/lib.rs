//! A simulation of many gateways against one engine, on virtual time, from one seed.
//!
//! One thread, a paused clock, one generator of choices: a seed always makes the same run. Gateways behave at the port as
//! `tollbook-admission` does: tenant then pool, due holds expired and asked once more, renewals in rounds, a bounded
//! settle queue, a spool that outlives them, forecast accounts told of their streams. Requests and replies are lost, late, or doubled; gateways die; the engine is
//! killed and replays its log; its clock steps; limits change. An auditor with books of its own judges every answer.
//! A failure names the seed, and the run is made smaller as long as it still fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a library of tests: a failure is a panic"
)]

mod audit;
mod bank;
mod brief;
mod call;
mod clock;
mod config;
mod gateway;
mod jobs;
mod knobs;
mod plans;
mod probe;
mod real;
mod seeds;
mod stats;
mod wire;
mod world;

pub use knobs::{Knobs, Trouble};
pub use seeds::{TRACE_SHOWN, explain, run_seeds, shrink};
pub use stats::Stats;
pub use world::{Failure, Report, run};
