//! What the suite needs of an engine under test.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tollbook_engine::Engine;
use tollbook_engine::ledger::{AccountId, Micros};

/// One engine with a clock the suite can move. Empty at first.
pub trait Harness {
    fn engine(&self) -> &dyn Engine;

    /// The same engine, for many threads.
    fn shared(&self) -> Arc<dyn Engine>;

    fn now(&self) -> Micros;

    /// Lets engine time pass.
    fn advance(&self, by: Micros);

    /// Puts engine time back; false where the engine's time cannot be put back.
    fn step_back(&self, by: Micros) -> bool;

    /// Ends the engine in order and starts it on what it kept; false where there is nothing to restart.
    fn restart(&mut self) -> bool;

    /// Kills the engine and starts it on what it kept.
    fn kill(&mut self) -> bool;

    /// Does what runs in the background of the engine, once.
    fn tick(&self);

    /// Writes a wrong `held` past the verbs, as a fault would; false where that cannot be done.
    fn corrupt_held(&self, account: AccountId, held: i64) -> bool;
}

/// Makes a harness whose clock stands at a given time.
pub type Factory = fn(Micros) -> Box<dyn Harness>;

/// Longest a test waits for an answer.
const DEADLINE: Duration = Duration::from_secs(20);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for an answer on this thread.
pub fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = Context::from_waker(&waker);
    let began = Instant::now();
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut task) {
            return done;
        }
        assert!(began.elapsed() < DEADLINE, "no answer within {DEADLINE:?}");
        thread::park_timeout(DEADLINE);
    }
}
