//! The gateway in process: real sockets, the memory engine, a scripted provider that keeps its own record.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "a test that meets something unexpected fails there"
)]
#![allow(clippy::duplicate_mod, reason = "the endings stand here twice on purpose: see over_http2")]

mod adm;
mod asked;
mod authority;
mod away;
mod bad;
mod charged;
mod coded;
mod doors;
mod edge;
mod ending;
/// The engine that admission's own tests take away.
#[allow(dead_code, reason = "not every mood is needed here")]
#[path = "../../../admission/tests/it/flaky.rs"]
mod flaky;
mod free;
mod hidden;
mod hosted;
mod left;
mod metrics;
mod openai;
mod pass;
mod paths;
mod plans;
mod prompt;
mod ready;
mod res;
mod smoke;
mod task;
mod trace;
mod transcripts;
mod transport;
mod whole;
mod world;

/// Every ending once more over HTTP/2: a reset stream is a client that left, and nothing else differs.
#[path = "."]
mod over_http2 {
    #[path = "ending.rs"]
    mod ending;
    #[path = "res.rs"]
    mod res;
    #[path = "smoke.rs"]
    mod smoke;
}
