//! Waiting for the disk: verbs that ask for it resolve once their place in the log is synced.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use tollbook_engine::{EngineError, ErrorKind};

/// The synced place of one shard's log, and who waits for a later one.
#[derive(Default, Debug)]
pub(crate) struct Durable {
    reached: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default, Debug)]
struct Waiting {
    wakers: Vec<(u64, Waker)>,
    failed: Option<String>,
}

impl Durable {
    /// Everything before `position` is on the disk.
    pub(crate) fn reach(&self, position: u64) {
        self.reached.fetch_max(position, Ordering::AcqRel);
        let mut ready = Vec::new();
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.wakers.retain(|(wanted, waker)| {
                let reached = *wanted <= position;
                if reached {
                    ready.push(waker.clone());
                }
                !reached
            });
        }
        ready.into_iter().for_each(Waker::wake);
    }

    /// Nothing more will reach the disk.
    pub(crate) fn fail(&self, why: &str) {
        let mut wakers = Vec::new();
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.failed = Some(why.to_owned());
            wakers = std::mem::take(&mut waiting.wakers);
        }
        for (_, waker) in wakers {
            waker.wake();
        }
    }

    /// Whether `position` is reached; if not, wakes the task when it is.
    pub(crate) fn poll(&self, position: u64, task: &mut Context<'_>) -> Poll<Result<(), EngineError>> {
        if self.reached.load(Ordering::Acquire) >= position {
            return Poll::Ready(Ok(()));
        }
        let unknown = |why: &str| EngineError::unknown(ErrorKind::Away(why.to_owned()));
        let Ok(mut waiting) = self.waiting.lock() else {
            return Poll::Ready(Err(unknown("a fault stopped this shard")));
        };
        // Looked at again under the lock: `reach` may have run in between, and then nobody would wake the task.
        if self.reached.load(Ordering::Acquire) >= position {
            return Poll::Ready(Ok(()));
        }
        if let Some(why) = &waiting.failed {
            return Poll::Ready(Err(unknown(why)));
        }
        waiting.wakers.push((position, task.waker().clone()));
        Poll::Pending
    }
}

/// Resolves to a value once places in some shards' logs are on the disk.
pub(crate) struct OnDisk<'a, T> {
    value: Option<T>,
    wait_for: Vec<(&'a Durable, u64)>,
}

impl<'a, T> OnDisk<'a, T> {
    pub(crate) fn new(value: T, wait_for: Vec<(&'a Durable, u64)>) -> Self {
        Self { value: Some(value), wait_for }
    }
}

impl<T: Unpin> Future for OnDisk<'_, T> {
    type Output = Result<T, EngineError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some((durable, position)) = self.wait_for.last() {
            match durable.poll(*position, task) {
                Poll::Ready(Ok(())) => drop(self.wait_for.pop()),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        match self.value.take() {
            Some(value) => Poll::Ready(Ok(value)),
            // Polled again after it was ready, which no executor does.
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn poll_once<T: Unpin>(future: Pin<&mut OnDisk<'_, T>>) -> Poll<Result<T, EngineError>> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_value_waits_for_every_place() {
        let (first, second) = (Durable::default(), Durable::default());
        let mut future = pin!(OnDisk::new(7, vec![(&first, 10), (&second, 20)]));
        assert!(poll_once(future.as_mut()).is_pending());
        second.reach(20);
        assert!(poll_once(future.as_mut()).is_pending());
        first.reach(9);
        assert!(poll_once(future.as_mut()).is_pending());
        first.reach(11);
        assert_eq!(poll_once(future.as_mut()), Poll::Ready(Ok(7)));
    }

    #[test]
    fn a_failed_sync_leaves_the_outcome_unknown() {
        let durable = Durable::default();
        durable.reach(5);
        durable.fail("the disk is gone");
        assert_eq!(poll_once(pin!(OnDisk::new(1, vec![(&durable, 5)]))), Poll::Ready(Ok(1)));
        let Poll::Ready(Err(error)) = poll_once(pin!(OnDisk::new(1, vec![(&durable, 6)]))) else { panic!() };
        assert_eq!(error.applied, tollbook_engine::Applied::Unknown);
    }
}
