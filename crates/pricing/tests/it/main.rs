//! Tests of pricing, by subject.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

mod calendar;
mod charges;
mod counting;
mod decimals;
mod images;
mod learning;
mod legs;
mod prices;
mod world;
