//! Black-box tests: the fake provider on one side, clients on the other, the built program between them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a panic is a failed test"
)]

mod away;
mod calls;
mod changed_file;
mod command_line;
mod described;
mod endings;
mod faults;
mod fleet;
mod forecast;
mod journal_export;
mod kills;
mod live;
mod losses;
mod office;
mod sdk_and_provider;
mod sdk_matrix;
mod soak;
mod spool;
mod trace;
