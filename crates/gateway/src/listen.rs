//! Accepts connections and finds out what they speak: PROXY header, TLS, HTTP/2 or HTTP/1.1.
//!
//! hyper's own accept loop leaves head timeouts off; here every connection has a timer, a bound on its head, no Nagle
//! delay, and a guard against peers that take no bytes. Nothing a peer sends or withholds delays the accept loop: what
//! comes before the first request happens in the connection's own task, within the handshake time.
//! At most `connections_max` are served; while one more waits, HTTP/1.1 connections that are older than the time for a
//! head close where they have no call, and after their answer where they have one: who holds connections and asks nothing
//! keeps nobody out for longer. Further ones wait in the backlog. On shutdown nothing new is accepted, idle connections
//! close, busy ones finish their answer and close.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tollbook_telemetry::log::Every;
use tollbook_telemetry::{Metrics, labels};

use crate::body::OutBody;
use crate::budget::Budget;
use crate::config::{Bounds, Http2, Proxies, Timeouts};
use crate::cors::Cors;
use crate::http2;
use crate::pace::Pace;
use crate::peer::is_trusted;
use crate::prefixed::Prefixed;
use crate::proxy_protocol;
use crate::screen::{HeadBounds, Heads, Screen};
use crate::stall::StallGuard;
use crate::tls::{Tls, chose_http2};

/// How an HTTP/2 connection begins. No HTTP/1.1 request begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How often room is asked for while there is none, and how often that is told.
const ASK_ROOM_EVERY: Duration = Duration::from_secs(1);
const WARN_EVERY: Duration = Duration::from_secs(10);

/// What a connection is told while it is open.
#[derive(Clone, Debug)]
struct Told {
    stop: watch::Receiver<bool>,
    /// Another one waits for its place.
    full: Arc<Notify>,
}

impl Told {
    /// Resolves when a connection should end as soon as it has no call; for want of room only once it is `grown`.
    async fn asked_to_leave(&mut self, grown: Duration) {
        let wanted = async {
            tokio::time::sleep(grown).await;
            self.full.notified().await;
        };
        tokio::select! {
            () = stopped(&mut self.stop) => {}
            () = wanted => {}
        }
    }
}

/// What all connections of a listener share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) bounds: Bounds,
    /// What unfinished heads of all connections may hold.
    pub(crate) heads: Budget,
    pub(crate) timeouts: Timeouts,
    pub(crate) http2: Http2,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) cors: Option<Cors>,
    pub(crate) proxies: Proxies,
}

type Socket = Prefixed<StallGuard<TcpStream>>;

/// Serves `handler` on `listener` until `stop` turns true; returns when the last connection has closed. `front` is asked
/// for each connection, as it is then; only `connections_max` stays as it was at first.
pub(crate) async fn serve<H, F>(
    listener: TcpListener,
    front: impl Fn() -> Arc<Front>,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
    handler: Arc<H>,
) where
    H: Fn(IpAddr, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<OutBody>> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(front().bounds.connections_max.min(Semaphore::MAX_PERMITS)));
    let open = slots.available_permits();
    let (full, warn) = (Arc::new(Notify::new()), Every::new(WARN_EVERY));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors or the like: a short pause instead of a hot loop.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let slot = tokio::select! {
            slot = room(&slots, &full, &warn) => slot,
            () = stopped(&mut stop) => break,
        };
        let Some(slot) = slot else { break };
        drop(stream.set_nodelay(true));
        let (front, handler) = (front(), Arc::clone(&handler));
        let told = Told { stop: stop.clone(), full: Arc::clone(&full) };
        let metrics = Arc::clone(&metrics);
        tokio::spawn(async move {
            let _open = metrics.connections_open.enter(());
            if let Err(trouble) = connection(stream, peer, &front, &metrics, told, handler).await {
                metrics.connections_cut.inc((trouble,));
                tracing::debug!(%peer, ?trouble, "a connection was ended");
            }
            drop(slot);
        });
    }
    drop(listener);
    let all = u32::try_from(open).unwrap_or(u32::MAX);
    drop(slots.acquire_many(all).await);
}

/// A place for one more connection. While there is none, those that are open are asked for theirs.
async fn room(slots: &Arc<Semaphore>, full: &Notify, warn: &Every) -> Option<OwnedSemaphorePermit> {
    let mut slot = std::pin::pin!(Arc::clone(slots).acquire_owned());
    let mut ask = tokio::time::interval(ASK_ROOM_EVERY);
    loop {
        tokio::select! {
            biased;
            slot = slot.as_mut() => return slot.ok(),
            _ = ask.tick() => {
                if let Some(suppressed) = warn.pass(tokio::time::Instant::now().into_std()) {
                    tracing::warn!(suppressed, "`connections_max` are open: idle ones are closed");
                }
                full.notify_waiters();
            }
        }
    }
}

/// Serves one connection to its end; an error says why it was not its peer's.
async fn connection<H, F>(
    stream: TcpStream,
    peer: SocketAddr,
    front: &Front,
    metrics: &Metrics,
    mut told: Told,
    handler: Arc<H>,
) -> Result<(), labels::ConnectionCut>
where
    H: Fn(IpAddr, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<OutBody>> + Send + 'static,
{
    let (bounds, timeouts) = (&front.bounds, &front.timeouts);
    let pace = Pace { patience: timeouts.write_stall, bytes_per_s: bounds.pace_min };
    let mut stream = Prefixed::new(StallGuard::new(stream, pace));
    let mut peer = peer.ip().to_canonical();
    if front.proxies.proxy_protocol && is_trusted(&front.proxies.trusted, peer) {
        let read = tokio::time::timeout(timeouts.handshake, proxy_protocol::read(&mut stream)).await;
        match read {
            Ok(Ok(client)) => peer = client.unwrap_or(peer),
            Ok(Err(_)) => return Err(labels::ConnectionCut::ProxyHeader),
            Err(_) => return Err(labels::ConnectionCut::HandshakeTime),
        }
    }
    if let Some(tls) = &front.tls {
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(timeouts.handshake, tls.accept(stream)) => shaken,
            () = stopped(&mut told.stop) => return Ok(()),
        };
        let stream = match shaken {
            Ok(Ok(stream)) => Box::new(stream),
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a TLS handshake failed");
                return Err(labels::ConnectionCut::Tls);
            }
            Err(_) => return Err(labels::ConnectionCut::HandshakeTime),
        };
        return if chose_http2(&stream) {
            Box::pin(second(stream, peer, front, metrics, told.stop, handler)).await
        } else {
            Box::pin(first(stream, peer, front, metrics, told, handler)).await;
            Ok(())
        };
    }
    if !front.http2.enabled {
        first(stream, peer, front, metrics, told, handler).await;
        return Ok(());
    }
    let sniffed = tokio::select! {
        sniffed = tokio::time::timeout(timeouts.head, sniff(stream)) => sniffed,
        () = stopped(&mut told.stop) => return Ok(()),
    };
    match sniffed {
        Ok(Ok((stream, true))) => Box::pin(second(stream, peer, front, metrics, told.stop, handler)).await,
        Ok(Ok((stream, false))) => {
            first(stream, peer, front, metrics, told, handler).await;
            Ok(())
        }
        // It closed, or said nothing, before it asked for anything.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Reads ahead until it is certain whether this is HTTP/2.
async fn sniff(mut stream: Socket) -> io::Result<(Socket, bool)> {
    loop {
        if stream.ahead() == PREFACE {
            return Ok((stream, true));
        }
        if !PREFACE.starts_with(stream.ahead()) {
            return Ok((stream, false));
        }
        if !stream.look(PREFACE.len()).await? {
            // What a peer said before it shut its side may still be a request.
            return Ok((stream, false));
        }
    }
}

/// HTTP/2.
async fn second<S, H, F>(
    stream: S,
    peer: IpAddr,
    front: &Front,
    metrics: &Metrics,
    stop: watch::Receiver<bool>,
    handler: Arc<H>,
) -> Result<(), labels::ConnectionCut>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(IpAddr, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<OutBody>> + Send + 'static,
{
    metrics.connections_accepted.inc((labels::Protocol::Http2,));
    http2::serve(stream, peer, &front.bounds, &front.timeouts, &front.http2, stop, handler).await
}

/// HTTP/1.1.
async fn first<S, H, F>(
    stream: S,
    peer: IpAddr,
    front: &Front,
    metrics: &Metrics,
    mut told: Told,
    handler: Arc<H>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(IpAddr, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<OutBody>> + Send + 'static,
{
    let bounds = HeadBounds { bytes: front.bounds.head_max, lines: front.bounds.headers_max };
    let heads = Heads { bounds, patience: front.timeouts.head, share: front.heads.share() };
    metrics.connections_accepted.inc((labels::Protocol::Http1,));
    let service = service_fn(move |request| {
        let answer = handler(peer, request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        // The screen waits for heads that have begun; this is the time without any.
        .header_read_timeout(front.timeouts.idle)
        .max_headers(front.bounds.headers_max.saturating_add(8))
        .max_buf_size(front.bounds.head_max.max(8192).saturating_add(1024))
        .serve_connection(TokioIo::new(Screen::new(stream, heads)), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = told.asked_to_leave(front.timeouts.head) => {
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
