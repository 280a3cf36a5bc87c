//! What the gateway costs, measured as ratios to a minimal pass-through proxy in the same run.
//!
//! Provider, proxy and gateway are processes of their own; the load comes from this one. Baseline and gateway take
//! turns in short rounds, and the median of the rounds' ratios is reported, so that a slow minute of the machine meets
//! both. CPU time is that of the measured process alone, from the scheduler's own account.
//! Never judges correctness: a call that is not answered 200 is an error that ends the run.
#![allow(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "measurements and ratios for people to read; nothing is booked from them"
)]

pub mod book;
pub mod bookings;
pub mod count;
pub mod gateway;
pub mod load;
pub mod pass_through;
pub mod plans;
pub mod process;
pub mod provider;
pub mod report;
pub mod scenario;
pub mod shared;
pub mod tls;
