//! Real Redis and Valkey servers for tests: single, a cluster, a trio of sentinels, and a wire that can be cut.
//!
//! Invariants: each test has its own servers, ports and folders; a server that exists has answered; none outlives the
//! test's process, however that ends; waiting is always for a state, with a deadline. What cannot be started is a panic
//! that says what to do. Links no code of the product and no driver: what a server holds is asked in bare protocol.

mod cluster;
pub mod folder;
pub mod ports;
pub mod process;
mod proxy;
pub mod resp;
mod sentinels;
mod server;

pub use cluster::{Cluster, SLOTS};
pub use proxy::{Mode, Proxy};
pub use sentinels::{SERVICE, Sentinels};
pub use server::{Plan, Server};

use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Asks until there is an answer, for at most `limit`.
pub fn wait_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        pause(LOOK_AGAIN);
    }
}

#[allow(clippy::disallowed_methods, reason = "a test's own thread, waiting for another process")]
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Ends a test that cannot go on.
#[allow(clippy::panic, reason = "test code: a panic is a failed test")]
pub fn fail(why: &str) -> ! {
    panic!("{why}")
}
