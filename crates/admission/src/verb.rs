//! Drives one engine verb within its deadline.
//!
//! An engine at hand answers on the first poll and costs no timer; a remote one runs against the deadline, after which
//! nobody can say whether the verb was applied.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollbook_engine::{Answer, EngineError, ErrorKind, Reply};

/// Awaits a verb for at most `deadline`.
pub(crate) async fn within<T>(
    deadline: Duration,
    mut answer: Answer<'_, T>,
) -> Result<Reply<T>, EngineError> {
    if let Poll::Ready(result) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return result;
    }
    match tokio::time::timeout(deadline, answer).await {
        Ok(result) => result,
        Err(_) => Err(EngineError::unknown(ErrorKind::Deadline)),
    }
}

/// The same for a future that owns its call and needs only the value.
pub(crate) async fn within_owned<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    match tokio::time::timeout(deadline, answer).await {
        Ok(result) => result,
        Err(_) => Err(EngineError::unknown(ErrorKind::Deadline)),
    }
}
