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
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A call that is sent again and again.
#[derive(Debug, Clone)]
pub struct Call {
    pub addr: SocketAddr,
    pub api_key: String,
    pub body: Bytes,
}

impl Call {
    fn request(&self) -> Result<Request<Full<Bytes>>> {
        Ok(Request::post("/v1/chat/completions")
            .header("host", self.addr.to_string())
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.api_key))
            .body(Full::new(self.body.clone()))?)
    }
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    async fn open(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    async fn begin(&mut self, call: &Call) -> Result<Incoming> {
        self.sender.ready().await?;
        let response = self.sender.send_request(call.request()?).await?;
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

/// One call on a connection of its own.
pub async fn once(call: &Call) -> Result<()> {
    Connection::open(call.addr).await?.whole(call).await
}

/// Each of the connections calls again as soon as it has its answer. Returns the number of calls.
pub async fn closed(call: &Call, connections: usize, time: Duration) -> Result<u64> {
    let mut workers = JoinSet::new();
    let deadline = Instant::now() + time;
    for _ in 0..connections {
        let call = call.clone();
        workers.spawn(async move {
            let mut connection = Connection::open(call.addr).await?;
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
        let connection = Connection::open(call.addr).await?;
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
        None => Connection::open(state.call.addr).await?,
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
                let mut connection = Connection::open(call.addr).await?;
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
