//! Accepts connections and serves HTTP/1.1 on them.
//!
//! hyper's own accept loop leaves head timeouts off; here every connection has a timer, a bound on its head, no Nagle
//! delay, and a guard against peers that take no bytes. At most `connections_max` are open; more wait in the backlog.
//! On shutdown nothing new is accepted, idle connections close, busy ones finish their answer and close.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::body::OutBody;
use crate::config::{Bounds, Timeouts};
use crate::screen::{HeadBounds, Screen};
use crate::stall::StallGuard;

/// Serves `handler` on `listener` until `stop` turns true; returns when the last connection has closed. `settings` are
/// asked for each connection, as they are then; only `connections_max` stays as it was at first.
pub(crate) async fn serve<H, F>(
    listener: TcpListener,
    settings: impl Fn() -> (Bounds, Timeouts),
    mut stop: watch::Receiver<bool>,
    handler: Arc<H>,
) where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<OutBody>> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(settings().0.connections_max.min(Semaphore::MAX_PERMITS)));
    let open = slots.available_permits();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors or the like: a short pause instead of a hot loop.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        drop(stream.set_nodelay(true));
        let handler = Arc::clone(&handler);
        let stop = stop.clone();
        let (bounds, timeouts) = settings();
        tokio::spawn(async move {
            connection(StallGuard::new(stream, timeouts.write_stall), bounds, timeouts, stop, handler).await;
            drop(slot);
        });
    }
    drop(listener);
    let all = u32::try_from(open).unwrap_or(u32::MAX);
    drop(slots.acquire_many(all).await);
}

/// Serves one connection to its end.
async fn connection<H, F>(
    stream: StallGuard<tokio::net::TcpStream>,
    bounds: Bounds,
    timeouts: Timeouts,
    mut stop: watch::Receiver<bool>,
    handler: Arc<H>,
) where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<OutBody>> + Send + 'static,
{
    let heads = HeadBounds { bytes: bounds.head_max, lines: bounds.headers_max };
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.head)
        .max_headers(bounds.headers_max.saturating_add(8))
        .max_buf_size(bounds.head_max.max(8192).saturating_add(1024))
        .serve_connection(TokioIo::new(Screen::new(stream, heads)), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stopped(&mut stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Resolves once `stop` is true, or nobody is left to say so.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stopped| *stopped).await);
}
