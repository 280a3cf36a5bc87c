//! Tests of the SQLite store.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

mod calls;
mod file;
mod fleet;
mod history;
mod journal;
mod make;
mod objects;
mod order;
mod sums;
mod together;
