//! Load: closed loop for CPU time, open loop for latency, standing streams for memory.
//!
//! Invariants: every answer is read to its end and must be 200; connections are kept and not shared; the open loop
//! sends at fixed instants whatever the answers do, and measures from the instant at which a call was due.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tls;

/// A call that is sent again and again.
#[derive(Debug, Clone)]
pub struct Call {
    pub addr: SocketAddr,
    pub api_key: String,
    pub body: Bytes,
    pub transport: Transport,
}

/// What a call goes over.
#[derive(Debug, Clone)]
pub enum Transport {
    Plain,
    /// HTTP/1.1 in TLS.
    Tls(Arc<ClientConfig>),
    /// HTTP/2 in TLS; so many calls share a connection.
    Http2(Arc<ClientConfig>, usize),
}

impl Call {
    fn request(&self) -> Result<Request<Full<Bytes>>> {
        let request = match &self.transport {
            Transport::Plain | Transport::Tls(_) => {
                Request::post("/v1/chat/completions").header("host", self.addr.to_string())
            }
            Transport::Http2(..) => Request::post(format!("https://{}/v1/chat/completions", self.addr)),
        };
        Ok(request
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.api_key))
            .body(Full::new(self.body.clone()))?)
    }
}

#[derive(Debug)]
enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    async fn open(call: &Call) -> Result<Self> {
        let stream = TcpStream::connect(call.addr).await?;
        stream.set_nodelay(true)?;
        match &call.transport {
            Transport::Plain => Self::first(stream).await,
            Transport::Tls(config) => Self::first(secured(config, stream).await?).await,
            Transport::Http2(config, _) => {
                let stream = TokioIo::new(secured(config, stream).await?);
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Ok(Self::Http2(sender))
            }
        }
    }

    async fn first<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self::Http1(sender))
    }

    /// The same connection once more, where it can be shared.
    fn shared(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
        }
    }

    async fn begin(&mut self, call: &Call) -> Result<Incoming> {
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(call.request()?).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(call.request()?).await?
            }
        };
        if response.status() != 200 {
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            bail!("answered {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(response.into_body())
    }

    async fn whole(&mut self, call: &Call) -> Result<()> {
        let mut body = self.begin(call).await?;
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok(())
    }
}

async fn secured(config: &Arc<ClientConfig>, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
    let name = rustls_pki_types::ServerName::try_from(tls::NAME)?;
    Ok(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?)
}

/// Connections for so many callers: one each, or shared where the transport allows it.
async fn connections(call: &Call, callers: usize) -> Result<Vec<Connection>> {
    let mut connections: Vec<Connection> = Vec::with_capacity(callers);
    let together = match &call.transport {
        Transport::Http2(_, together) => *together,
        Transport::Plain | Transport::Tls(_) => 1,
    };
    for caller in 0..callers {
        let shared = if caller.checked_rem(together).unwrap_or(0) == 0 {
            None
        } else {
            connections.last().and_then(Connection::shared)
        };
        connections.push(match shared {
            Some(shared) => shared,
            None => Connection::open(call).await?,
        });
    }
    Ok(connections)
}

/// One call on a connection of its own.
pub async fn once(call: &Call) -> Result<()> {
    Connection::open(call).await?.whole(call).await
}

/// Each of the callers calls again as soon as it has its answer. Returns the number of calls.
pub async fn closed(call: &Call, callers: usize, time: Duration) -> Result<u64> {
    let mut workers = JoinSet::new();
    let connections = connections(call, callers).await?;
    let deadline = Instant::now() + time;
    for mut connection in connections {
        let call = call.clone();
        workers.spawn(async move {
            let mut count = 0_u64;
            while Instant::now() < deadline {
                connection.whole(&call).await?;
                count = count.saturating_add(1);
            }
            anyhow::Ok(count)
        });
    }
    let mut calls = 0_u64;
    while let Some(count) = workers.join_next().await {
        calls = calls.saturating_add(count??);
    }
    Ok(calls)
}

#[derive(Debug)]
struct Open {
    call: Call,
    idle: Mutex<Vec<Connection>>,
    latencies: Mutex<Histogram<u64>>,
    failure: Mutex<Option<anyhow::Error>>,
}

/// `per_second` calls at equal distances for `time`; latencies in nanoseconds.
pub async fn open(call: &Call, per_second: u32, time: Duration) -> Result<Histogram<u64>> {
    let state = Arc::new(Open {
        call: call.clone(),
        idle: Mutex::default(),
        latencies: Mutex::new(Histogram::new_with_bounds(1_000, 60_000_000_000, 3)?),
        failure: Mutex::default(),
    });
    for _ in 0..32 {
        let connection = Connection::open(call).await?;
        lock(&state.idle).push(connection);
    }
    let runtime = tokio::runtime::Handle::current();
    let inner = Arc::clone(&state);
    // A thread keeps time to some 50 µs; the runtime's timer only to a millisecond.
    let clock = std::thread::spawn(move || {
        let started = Instant::now();
        let distance = Duration::from_secs(1) / per_second;
        let mut due = Duration::ZERO;
        let mut calls = Vec::new();
        while due < time {
            if let Some(early) = due.checked_sub(started.elapsed()) {
                #[allow(clippy::disallowed_methods, reason = "the load's own clock thread")]
                std::thread::sleep(early);
            }
            calls.push(runtime.spawn(timed(Arc::clone(&inner), started + due)));
            due += distance;
        }
        calls
    });
    let calls = tokio::task::spawn_blocking(move || clock.join()).await?;
    for call in calls.ok().context("the clock thread failed")? {
        call.await?;
    }
    if let Some(error) = lock(&state.failure).take() {
        return Err(error);
    }
    let latencies = lock(&state.latencies).clone();
    Ok(latencies)
}

async fn timed(state: Arc<Open>, due: Instant) {
    if let Err(error) = timed_call(&state, due).await {
        lock(&state.failure).get_or_insert(error);
    }
}

async fn timed_call(state: &Open, due: Instant) -> Result<()> {
    let idle = lock(&state.idle).pop();
    let mut connection = match idle {
        Some(connection) => connection,
        None => Connection::open(&state.call).await?,
    };
    connection.whole(&state.call).await?;
    let nanos = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
    lock(&state.latencies).saturating_record(nanos);
    lock(&state.idle).push(connection);
    Ok(())
}

/// Streams that have begun and are being read, until this is dropped.
#[derive(Debug)]
pub struct Standing {
    readers: JoinSet<()>,
}

impl Standing {
    /// Opens them, a few at a time, and returns when each has its first event.
    pub async fn open(call: &Call, count: usize) -> Result<Self> {
        let mut opening = JoinSet::new();
        let mut readers = JoinSet::new();
        let gate = Arc::new(tokio::sync::Semaphore::new(16));
        for _ in 0..count {
            let (call, gate) = (call.clone(), Arc::clone(&gate));
            opening.spawn(async move {
                let _place = gate.acquire().await?;
                let mut connection = Connection::open(&call).await?;
                let mut body = connection.begin(&call).await?;
                body.frame().await.context("the stream ended at once")??;
                anyhow::Ok((connection, body))
            });
        }
        while let Some(opened) = opening.join_next().await {
            let (connection, mut body) = opened??;
            readers.spawn(async move {
                while let Some(Ok(_)) = body.frame().await {}
                drop(connection);
            });
        }
        Ok(Self { readers })
    }

    pub fn count(&self) -> usize {
        self.readers.len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
