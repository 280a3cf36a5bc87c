//! Tests of telemetry: the list, label bounds, the scrape, logs.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

mod log;
mod metrics;
mod trace;
