//! What the simulator promises: traces are read whole or not at all, replays repeat, figures are plausible.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail the test"
)]

mod replays;
mod traces;
