//! Tests of the program and its configuration.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

mod config;
mod domain;
mod program;
