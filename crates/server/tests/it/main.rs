//! Tests of the program and its configuration.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail the test"
)]

mod alerts;
mod cases;
mod config;
mod counting;
mod days;
mod demo;
mod domain;
mod fleet;
mod import;
mod journal;
mod listed;
mod office;
mod office_attacks;
mod office_unreadable;
mod office_users;
mod office_world;
mod process;
mod program;
mod providers;
mod reconcile;
mod reconcile_post;
mod release;
mod report;
mod serve;
mod simulate;
mod values;
