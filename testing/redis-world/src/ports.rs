//! Ports for servers that cannot be told to choose one, and that must come back on the one they had.
//!
//! Invariants: a port is below those that the kernel gives to outgoing connections, so that nobody takes it while its
//! server is down; it belongs to one owner on this machine as long as that lives, by a lock that ends with the process.

use std::fs::{self, File};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fail;

/// Linux gives outgoing connections ports from 32768 on.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;
/// Tests that run at once begin to look at different places.
const STRIDE: u32 = 37;

/// A port that is ours until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Held locked.
    _lock: File,
}

impl Port {
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// A port that nobody listens on and no other test has.
pub fn free() -> Port {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = std::env::temp_dir().join("tollbook-test-ports");
    if let Err(error) = fs::create_dir_all(&folder) {
        fail(&format!("cannot make {}: {error}", folder.display()));
    }
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = std::process::id().wrapping_mul(STRIDE).wrapping_add(step) % COUNT;
        let Ok(number) = u16::try_from(FIRST + offset) else { continue };
        let Ok(lock) = File::options().create(true).append(true).open(folder.join(number.to_string())) else {
            continue;
        };
        // The lock first: who has it may try the port without taking it from somebody else's try.
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
            return Port { number, _lock: lock };
        }
    }
    fail("no free port");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_owner() {
        let ports: Vec<Port> = (0..50).map(|_| free()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        assert!(numbers.iter().all(|number| (20_000..32_000).contains(number)));
    }

    #[test]
    fn a_port_that_is_listened_on_is_not_given() {
        let taken = free();
        let number = taken.number();
        let _listener = TcpListener::bind(("127.0.0.1", number)).unwrap();
        drop(taken);
        // All that are left would have to be asked to be sure; its neighbours are asked next.
        assert!((0..100).map(|_| free()).all(|port| port.number() != number));
    }
}
