//! The conformance suite over the memory engine, with and without a log, and what is its own: files, kills, faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]

mod files;
mod fixture;
mod harness;
mod kills;
mod load;
mod restored;

/// The suite on an engine that keeps nothing on disk.
mod in_memory {
    use crate::harness::without_log;
    tollbook_engine_suite::engine_suite!(without_log);
}

/// The suite on an engine with a log.
mod on_disk {
    use crate::harness::with_log;
    tollbook_engine_suite::engine_suite!(with_log);
}
