//! The scenarios: what is measured, for how long, against which bound of the design.
//!
//! Baseline and gateway take turns within each round. Before the first round both are warmed up, so that connections,
//! allocator and caches are as they will be. All figures are those of the measured process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use tempfile::TempDir;

use crate::gateway;
use crate::load::{self, Call, Standing, Transport};
use crate::process::Process;
use crate::report::{Must, Row, median};
use crate::tls::{self, Files};

const CONNECTIONS: usize = 32;
const SMALL_BODY_BYTES: usize = 300;
const LARGE_BODY_BYTES: usize = 100 * 1024;
/// Over HTTP/2.
const CALLS_PER_CONNECTION: usize = 8;
const STREAMS: usize = 50;
const CHUNKS_PER_STREAM: u64 = 200;
const CHUNK_EVERY_MS: u64 = 5;
const CALLS_PER_SECOND: u32 = 1_000;
const MIB: f64 = 1024.0 * 1024.0;
const KIB: f64 = 1024.0;

#[derive(Debug, Clone)]
pub struct Plan {
    pub rounds: u32,
    pub round: Duration,
    pub standing_streams: usize,
    pub starts: u32,
    /// None: the gateway's place is taken by a second pass-through, which must come out at 1.
    pub gateway: Option<PathBuf>,
}

/// The processes of one run.
#[derive(Debug)]
pub struct Bench {
    plan: Plan,
    provider: Process,
    baseline: Process,
    gateway: Process,
    /// The gateway's data; lives as long as it.
    _dir: TempDir,
}

impl Bench {
    pub fn start(plan: Plan) -> Result<Self> {
        let provider = Process::start_self(&["provider"])?;
        let baseline = start_baseline(provider.addr(), None)?;
        let dir = tempfile::tempdir()?;
        let gateway = start_gateway(plan.gateway.as_deref(), dir.path(), provider.addr(), None)?;
        Ok(Self { plan, provider, baseline, gateway, _dir: dir })
    }

    /// CPU time per call with a small body.
    pub async fn small(&self) -> Result<Vec<Row>> {
        self.plain("CPU per call, 300-byte body", SMALL_BODY_BYTES, 1.8).await
    }

    /// CPU time per call with a large body.
    pub async fn large(&self) -> Result<Vec<Row>> {
        self.plain("CPU per call, 100-KB body", LARGE_BODY_BYTES, 2.0).await
    }

    async fn plain(&self, what: &str, body_bytes: usize, must: f64) -> Result<Vec<Row>> {
        let body = plain_body(body_bytes);
        let call = |process: &Process| call_to(process.addr(), &body);
        let mut rounds = Vec::new();
        for round in 0..=self.plan.rounds {
            let baseline = self.cpu_per_call(&self.baseline, &call(&self.baseline), CONNECTIONS).await?;
            let gateway = self.cpu_per_call(&self.gateway, &call(&self.gateway), CONNECTIONS).await?;
            // The first one is the warm-up.
            if round > 0 {
                rounds.push((baseline, gateway));
            }
        }
        Ok(vec![Row::compared(what, "µs", &rounds, Some(Must::RatioAtMost(must)))])
    }

    /// CPU time per chunk of paced streams, the calls' own share included.
    pub async fn chunks(&self) -> Result<Vec<Row>> {
        let body = stream_body(CHUNKS_PER_STREAM, CHUNK_EVERY_MS);
        let call = |process: &Process| call_to(process.addr(), &body);
        let mut rounds = Vec::new();
        for round in 0..=self.plan.rounds {
            let baseline = self.cpu_per_call(&self.baseline, &call(&self.baseline), STREAMS).await?;
            let gateway = self.cpu_per_call(&self.gateway, &call(&self.gateway), STREAMS).await?;
            if round > 0 {
                let chunks = CHUNKS_PER_STREAM as f64;
                rounds.push((baseline / chunks, gateway / chunks));
            }
        }
        Ok(vec![Row::compared("CPU per streamed chunk", "µs", &rounds, Some(Must::RatioAtMost(1.4)))])
    }

    async fn cpu_per_call(&self, process: &Process, call: &Call, callers: usize) -> Result<f64> {
        let before = process.cpu_nanos()?;
        let calls = load::closed(call, callers, self.plan.round).await?;
        let nanos = process.cpu_nanos()?.saturating_sub(before);
        Ok(nanos as f64 / calls as f64 / 1_000.0)
    }

    /// Latency at a fixed rate, less that without anything between.
    pub async fn latency(&self) -> Result<Vec<Row>> {
        let body = plain_body(SMALL_BODY_BYTES);
        let quantiles = [("p50", 0.5, 200.0), ("p99", 0.99, 600.0)];
        let mut added = vec![Vec::new(); quantiles.len()];
        for round in 0..=self.plan.rounds {
            let mut seen = Vec::new();
            for addr in [self.provider.addr(), self.baseline.addr(), self.gateway.addr()] {
                let call = call_to(addr, &body);
                seen.push(load::open(&call, CALLS_PER_SECOND, self.plan.round).await?);
            }
            let [direct, baseline, gateway] = seen.as_slice() else { continue };
            if round == 0 {
                continue;
            }
            for ((_, quantile, _), added) in quantiles.iter().zip(&mut added) {
                let micros =
                    |side: &hdrhistogram::Histogram<u64>| side.value_at_quantile(*quantile) as f64 / 1_000.0;
                added.push((micros(baseline) - micros(direct), micros(gateway) - micros(direct)));
            }
        }
        let rows = quantiles.iter().zip(&added).map(|((name, _, most), rounds)| {
            let what = format!("added latency at {CALLS_PER_SECOND} calls/s, {name}");
            let gateway = median(rounds.iter().map(|round: &(f64, f64)| round.1));
            Row {
                baseline: Some(median(rounds.iter().map(|round| round.0))),
                ..Row::single(&what, "µs", gateway, Some(Must::ValueAtMost(*most)))
            }
        });
        Ok(rows.collect())
    }

    /// Memory of fresh processes: idle, and per open stream.
    pub async fn memory(&self) -> Result<Vec<Row>> {
        let body = stream_body(600, 1_000);
        let dir = tempfile::tempdir()?;
        let mut idle = Vec::new();
        let mut per_stream = Vec::new();
        for gateway in [false, true] {
            let process = if gateway {
                start_gateway(self.plan.gateway.as_deref(), dir.path(), self.provider.addr(), None)?
            } else {
                start_baseline(self.provider.addr(), None)?
            };
            idle.push(process.memory()?.resident as f64 / MIB);
            load::once(&call_to(process.addr(), &plain_body(SMALL_BODY_BYTES))).await?;
            let before = process.memory()?.resident;
            let standing =
                Standing::open(&call_to(process.addr(), &body), self.plan.standing_streams).await?;
            // Let each stream carry a few chunks before it is weighed.
            tokio::time::sleep(Duration::from_secs(3)).await;
            let more = process.memory()?.resident.saturating_sub(before);
            per_stream.push(more as f64 / standing.count() as f64 / KIB);
        }
        let pair = |sides: &[f64]| match sides {
            [baseline, gateway] => vec![(*baseline, *gateway)],
            _ => Vec::new(),
        };
        let most = |most: f64| Some(Must::ValueAtMost(most));
        let streams = format!("memory per open stream, of {}", self.plan.standing_streams);
        Ok(vec![
            Row::compared("memory, idle", "MiB", &pair(&idle), most(20.0)),
            Row::compared(&streams, "KiB", &pair(&per_stream), most(24.0)),
        ])
    }

    /// From the start of the process to the end of its first answer.
    pub async fn start_time(&self) -> Result<Vec<Row>> {
        let body = plain_body(SMALL_BODY_BYTES);
        let mut rounds = Vec::new();
        for _ in 0..self.plan.starts {
            let started = Instant::now();
            let baseline = start_baseline(self.provider.addr(), None)?;
            load::once(&call_to(baseline.addr(), &body)).await?;
            let first = started.elapsed();
            drop(baseline);
            let dir = tempfile::tempdir()?;
            let started = Instant::now();
            let gateway =
                start_gateway(self.plan.gateway.as_deref(), dir.path(), self.provider.addr(), None)?;
            load::once(&call_to(gateway.addr(), &body)).await?;
            rounds.push((first.as_secs_f64() * 1_000.0, started.elapsed().as_secs_f64() * 1_000.0));
        }
        Ok(vec![Row::compared("start to first served call", "ms", &rounds, Some(Must::ValueAtMost(50.0)))])
    }
}

impl Bench {
    /// CPU time per call with a small body and TLS on both sides; the provider's side is HTTP/1.1 in both rows.
    pub async fn tls(&self) -> Result<Vec<Row>> {
        let secure = Secure::start(self.plan.gateway.as_deref())?;
        let body = plain_body(SMALL_BODY_BYTES);
        let transports = [
            ("CPU per call, TLS on both sides", Transport::Tls(secure.files.client(false)?)),
            (
                "CPU per call, HTTP/2 in TLS",
                Transport::Http2(secure.files.client(true)?, CALLS_PER_CONNECTION),
            ),
        ];
        let mut rows = Vec::new();
        for (what, transport) in transports {
            let call =
                |process: &Process| Call { transport: transport.clone(), ..call_to(process.addr(), &body) };
            let mut rounds = Vec::new();
            for round in 0..=self.plan.rounds {
                let baseline = &secure.baseline;
                let baseline = self.cpu_per_call(baseline, &call(baseline), CONNECTIONS).await?;
                let gateway = &secure.gateway;
                let gateway = self.cpu_per_call(gateway, &call(gateway), CONNECTIONS).await?;
                if round > 0 {
                    rounds.push((baseline, gateway));
                }
            }
            rows.push(Row::compared(what, "µs", &rounds, None));
        }
        Ok(rows)
    }

    /// Memory per open stream of fresh processes with TLS on both sides.
    pub async fn tls_memory(&self) -> Result<Vec<Row>> {
        let secure = Secure::start(self.plan.gateway.as_deref())?;
        let transport = Transport::Tls(secure.files.client(false)?);
        let call = |process: &Process, body: &Bytes| Call {
            transport: transport.clone(),
            ..call_to(process.addr(), body)
        };
        let mut sides = Vec::new();
        for process in [&secure.baseline, &secure.gateway] {
            load::once(&call(process, &plain_body(SMALL_BODY_BYTES))).await?;
            let before = process.memory()?.resident;
            let body = stream_body(600, 1_000);
            let standing = Standing::open(&call(process, &body), self.plan.standing_streams).await?;
            // Let each stream carry a few chunks before it is weighed.
            tokio::time::sleep(Duration::from_secs(3)).await;
            let more = process.memory()?.resident.saturating_sub(before);
            sides.push(more as f64 / standing.count() as f64 / KIB);
        }
        let what = format!("memory per open stream, TLS on both sides, of {}", self.plan.standing_streams);
        let pair = match sides.as_slice() {
            [baseline, gateway] => vec![(*baseline, *gateway)],
            _ => Vec::new(),
        };
        Ok(vec![Row::compared(&what, "KiB", &pair, Some(Must::ValueAtMost(72.0)))])
    }
}

/// Provider, baseline and gateway once more, with TLS between all of them.
#[derive(Debug)]
struct Secure {
    files: Files,
    baseline: Process,
    gateway: Process,
    _provider: Process,
    _dir: TempDir,
}

impl Secure {
    fn start(program: Option<&Path>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let files = Files::make(dir.path())?;
        let folder = dir.path().to_str().context("the folder's name")?.to_owned();
        let provider = Process::start_self(&["provider", "--tls", &folder])?;
        let baseline = start_baseline(provider.addr(), Some(dir.path()))?;
        let gateway = start_gateway(program, dir.path(), provider.addr(), Some(dir.path()))?;
        Ok(Self { files, baseline, gateway, _provider: provider, _dir: dir })
    }
}

/// `tls` is the folder of the run's certificate.
fn start_baseline(provider: SocketAddr, tls: Option<&Path>) -> Result<Process> {
    let upstream = match tls {
        None => provider.to_string(),
        Some(_) => format!("{}:{}", tls::NAME, provider.port()),
    };
    let mut arguments = vec!["pass-through", "--upstream", &upstream];
    if let Some(folder) = tls {
        arguments.extend(["--tls", folder.to_str().context("the folder's name")?]);
    }
    Process::start_self(&arguments).context("the baseline")
}

fn start_gateway(
    program: Option<&Path>,
    dir: &Path,
    provider: SocketAddr,
    tls: Option<&Path>,
) -> Result<Process> {
    match program {
        Some(program) => {
            gateway::start(program, dir, provider, tls.map(Files::of).as_ref()).context("the gateway")
        }
        None => start_baseline(provider, tls),
    }
}

fn call_to(addr: SocketAddr, body: &Bytes) -> Call {
    Call { addr, api_key: gateway::API_KEY.to_owned(), body: body.clone(), transport: Transport::Plain }
}

/// A chat call of exactly that many bytes.
fn plain_body(bytes: usize) -> Bytes {
    let (before, after) =
        (r#"{"model":"bench","max_tokens":64,"messages":[{"role":"user","content":""#, r#""}]}"#);
    let text = bytes.saturating_sub(before.len()).saturating_sub(after.len());
    let words: String = "What is kept in the book of all calls? ".chars().cycle().take(text).collect();
    format!("{before}{words}{after}").into()
}

fn stream_body(chunks: u64, every_ms: u64) -> Bytes {
    format!(
        r#"{{"model":"bench","max_tokens":{chunks},"stream":true,"messages":[{{"role":"user","content":"every_ms={every_ms}"}}]}}"#
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size_and_are_json() {
        for bytes in [SMALL_BODY_BYTES, LARGE_BODY_BYTES] {
            let body = plain_body(bytes);
            assert_eq!(body.len(), bytes);
            assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
        }
        assert!(serde_json::from_slice::<serde_json::Value>(&stream_body(3, 5)).is_ok());
    }
}
