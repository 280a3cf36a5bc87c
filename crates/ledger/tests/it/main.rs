//! Integration tests of the ledger: scenarios as tables, exhaustive small worlds, a naive model in lockstep, properties.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::format_push_string,
    clippy::format_collect,
    reason = "a test that meets something unexpected fails there"
)]

mod book_desk;
mod bounds;
mod desk;
mod field_cases;
mod model;
mod properties;
mod random;
mod shares;
mod tables;
mod worlds;
