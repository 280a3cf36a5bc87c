//! The signal that ends open streams at the end of a graceful shutdown.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::watch;

/// One stream's ear for the signal. Nothing is allocated before the stream first waits.
pub(crate) struct Cut {
    signal: watch::Receiver<bool>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Cut {
    pub(crate) fn new(signal: watch::Receiver<bool>) -> Self {
        Self { signal, waiting: None }
    }

    /// Ready once streams must end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waiting = self.waiting.get_or_insert_with(|| {
            let mut signal = self.signal.clone();
            Box::pin(async move {
                if signal.wait_for(|cut| *cut).await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        });
        waiting.as_mut().poll(cx)
    }
}
