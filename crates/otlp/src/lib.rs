//! Sends finished spans to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! Invariants: it only takes from the tracer's bounded queue, so nothing a collector does or leaves undone reaches a
//! call; every wait has a bound; what is not taken is dropped and counted by why.
//! When the collector is away: a batch is tried again a few times, further and further apart, while the queue fills and
//! drops what is new. At a stop what waits is sent within a bound, then given up.
//! Written by hand, because one fixed message needs no generated code and no second HTTP client. Knows no calls.

mod encode;
mod export;
mod protobuf;

pub use encode::{Resource, encode};
pub use export::{BATCH_MAX, Exporter, Settings, TRIES_MAX, WAIT_MAX};
