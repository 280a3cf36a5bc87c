//! Tests of pricing, by subject.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

#[cfg(feature = "exact")]
mod accuracy;
mod calendar;
mod charges;
mod counting;
mod decimals;
mod images;
mod learning;
mod legs;
#[cfg(feature = "exact")]
mod overhead;
mod prices;
mod world;
