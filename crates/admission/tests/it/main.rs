//! Admission over the memory engine, on a paused clock, with an engine between that can be away.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "a test that meets something unexpected fails there"
)]

mod away;
mod callers;
mod counting;
mod explain;
mod flaky;
mod plans;
mod raise;
mod settling;
mod streaming;
mod vouchers;
mod world;
