//! The wire room from outside, by its public API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::format_collect,
    reason = "a test may fail loudly, and its helpers with it"
)]

mod answers;
mod billed;
mod kit;
mod late;
mod openai;
mod passed;
mod recorded;
mod refusals;
mod requests;
mod sse;
mod transcripts;
mod usage;
