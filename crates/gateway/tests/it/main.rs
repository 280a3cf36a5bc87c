//! The gateway in process: real sockets, the memory engine, a scripted provider that keeps its own record.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "a test that meets something unexpected fails there"
)]

mod adm;
mod bad;
mod edge;
mod ending;
mod metrics;
mod openai;
mod pass;
mod res;
mod smoke;
mod trace;
mod transcripts;
mod world;
