//! Tests of the store port: stored forms, bounds, money as text.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

mod codec;
mod entry;
