//! Tests of policy, by subject.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

mod below;
mod calendar;
mod catalog;
mod history;
mod naming;
mod resolve;
mod world;
