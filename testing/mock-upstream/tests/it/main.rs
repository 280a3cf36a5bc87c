//! The fake provider over real sockets: what it sends, and above all what it records.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test code: a panic is a failed test"
)]

mod client;
mod ends;
mod serve;
