//! A future that outlives its caller.
//!
//! hyper drops a handler when its client leaves. A buffered call goes on being paid for at the provider, so it is
//! awaited to its end within a bound: polled in place as long as the client is there (no task, no channel), moved to a
//! task of its own when dropped unfinished.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Runs in place; if dropped unfinished, runs on in a task for at most `bound`, then is dropped for good.
pub(crate) struct Detach<F: Future + Send + 'static>
where
    F::Output: Send,
{
    inner: Option<Pin<Box<F>>>,
    bound: Duration,
}

impl<F: Future + Send + 'static> Detach<F>
where
    F::Output: Send,
{
    pub(crate) fn new(future: F, bound: Duration) -> Self {
        Self { inner: Some(Box::pin(future)), bound }
    }
}

impl<F: Future + Send + 'static> Future for Detach<F>
where
    F::Output: Send,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(inner) = self.inner.as_mut() else {
            return Poll::Pending;
        };
        let result = inner.as_mut().poll(cx);
        if result.is_ready() {
            self.inner = None;
        }
        result
    }
}

impl<F: Future + Send + 'static> Drop for Detach<F>
where
    F::Output: Send,
{
    fn drop(&mut self) {
        if let (Some(inner), Ok(runtime)) = (self.inner.take(), tokio::runtime::Handle::try_current()) {
            let bound = self.bound;
            runtime.spawn(async move {
                // Past the bound the future is dropped, and whatever it owns settles as unknown.
                drop(tokio::time::timeout(bound, inner).await);
            });
        }
    }
}
