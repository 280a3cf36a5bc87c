//! The conformance suite of the store port's cache, written once and run over every one; and a cache in memory, for tests
//! of those who use one.
//!
//! A cache's own tests bring a [`Factory`] and call [`cache_suite!`], which stamps every case as a test of theirs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a library of tests: a failure is a panic"
)]

pub mod cache;
mod memory;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tollbook_store::ConfigCache;

pub use memory::MemoryCache;

/// One cache, empty at first.
pub trait Harness {
    /// Another gateway's way to it.
    fn gateway(&self) -> Arc<dyn ConfigCache>;
    /// What is kept under an id has had its time.
    fn entry_ends(&self, id: &str);
    /// What was forgotten of an id is not known any more.
    fn version_ends(&self, id: &str);
    /// Everything is gone.
    fn lose(&self);
}

/// Makes a harness.
pub type Factory = fn() -> Box<dyn Harness>;

/// Longest a test waits for an answer.
const DEADLINE: Duration = Duration::from_secs(60);

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

/// Stamps every case of the suite as a test against the caches that a factory makes; `together`: all as one test, where
/// what a test's process needs takes long to start.
#[macro_export]
macro_rules! cache_suite {
    ($factory:ident) => {
        $crate::cache_suite!(each $factory);
    };
    ($stamp:ident $factory:ident) => {
        $crate::cache_suite_cases!($stamp $factory:
            what_one_gateway_has_read_is_there_for_all
            what_is_forgotten_is_gone_and_what_is_newer_stays
            a_version_is_never_lowered
            of_two_readers_the_newer_counts
            who_knows_of_a_change_gets_nothing_older
            a_gap_is_filled_only_while_it_is_known
            what_is_below_a_revision_is_gone_of_all_ids
            a_slow_reader_brings_nothing_old_back
            readers_and_writers_at_once_see_nothing_old
            bounds_hold
            many_ids_are_forgotten_at_once
            ids_are_told_apart
        );
    };
}

/// Stamps cases as tests.
#[doc(hidden)]
#[macro_export]
macro_rules! cache_suite_cases {
    (together $factory:ident: $($case:ident)+) => {
        #[test]
        fn every_case() {
            $(
                std::println!(stringify!($case));
                $crate::cache::$case(&*$factory());
            )+
        }
    };
    (each $factory:ident: $($case:ident)+) => {
        $(
            #[test]
            fn $case() {
                $crate::cache::$case(&*$factory());
            }
        )+
    };
}
