//! The clients: so many streams open at once, each drawn from the seed, a new one for each that ended.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Plan, TENANT, models};
use crate::config::secret;
use crate::random::Random;

/// Longest silence of an answer.
const READ_LIMIT: Duration = Duration::from_mins(1);
const READ_BYTES: usize = 8 * 1024;
const EVENT: &[u8] = b"\ndata:";
/// Caps are above what is generated.
const CAP: u64 = 256;

/// What a client and a provider do with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Whole,
    /// The client leaves after so many events, in good order.
    Leaves(usize),
    /// … by a reset.
    Resets(usize),
    /// The provider falls silent.
    Silent,
    /// The provider resets.
    Broken,
}

/// What became of a call, seen by its client.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) label: String,
    pub(super) fate: Fate,
    /// 0: no answer came.
    pub(super) status: u16,
    /// The dialect's last event came.
    pub(super) whole: bool,
}

/// Makes calls until told to stop, and sees the last of them to their end.
pub(super) fn run(addr: SocketAddr, plan: Plan, stop: &Arc<AtomicBool>) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    runtime.block_on(async {
        let next = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..plan.streams)
            .map(|_| tokio::spawn(client(addr, plan, Arc::clone(&next), Arc::clone(stop))))
            .collect();
        let mut outcomes = Vec::new();
        for client in clients {
            outcomes.extend(client.await.unwrap_or_default());
        }
        outcomes
    })
}

async fn client(addr: SocketAddr, plan: Plan, next: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::new(plan.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (label, fate) = (format!("c{number}"), fate(plan, &mut random));
        let request = request(plan, &label, fate, &mut random);
        let (status, whole) = call(addr, &request, fate).await.unwrap_or_default();
        if status == 0 && matches!(fate, Fate::Whole) {
            // Nobody answers: not so fast.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        outcomes.push(Outcome { label, fate, status, whole });
    }
    outcomes
}

fn fate(plan: Plan, random: &mut Random) -> Fate {
    let events = |random: &mut Random| usize::try_from(1 + random.below(plan.chunks.0)).unwrap_or(1);
    match random.below(100) {
        0..60 => Fate::Whole,
        60..80 => Fate::Leaves(events(random)),
        80..88 => Fate::Resets(events(random)),
        88..94 => Fate::Silent,
        _ => Fate::Broken,
    }
}

fn request(plan: Plan, label: &str, fate: Fate, random: &mut Random) -> Vec<u8> {
    let (least, most) = plan.chunks;
    let chunks = least + random.below(most.saturating_sub(least) + 1);
    let at = 1 + random.below(chunks.saturating_sub(1).max(1));
    let every = plan.chunk_every.as_millis();
    let mut generate = json!({"output_llm_tokens": chunks, "chunks": chunks, "chunk_every_ms": every,
        "input_llm_tokens": 20 + random.below(50)});
    let trouble = match fate {
        Fate::Silent => Some("stall_at_chunk"),
        Fate::Broken => Some("reset_at_chunk"),
        Fate::Whole | Fate::Leaves(_) | Fate::Resets(_) => None,
    };
    if let (Some(trouble), Some(fields)) = (trouble, generate.as_object_mut()) {
        fields.insert(trouble.to_owned(), Value::from(at));
    }
    let script = json!({"label": label, "answer": {"generate": generate}}).to_string();
    let models = models();
    let (path, model) = random.pick(&models).copied().unwrap_or_default();
    let body = json!({"model": model, "stream": true, "max_tokens": CAP,
        "messages": [{"role": "user", "content": "tell me something long"}]})
    .to_string();
    let key = secret(&format!("{TENANT}-key"));
    format!(
        "POST {path} HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer {key}\r\nx-tollbook-user: {label}\r\n\
         x-mock-script: {script}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The status, and whether the answer was whole.
async fn call(addr: SocketAddr, request: &[u8], fate: Fate) -> io::Result<(u16, bool)> {
    let mut socket = TcpStream::connect(addr).await?;
    socket.write_all(request).await?;
    let mut answer = Vec::new();
    let leaves = match fate {
        Fate::Leaves(events) | Fate::Resets(events) => events,
        Fate::Whole | Fate::Silent | Fate::Broken => usize::MAX,
    };
    let (mut piece, mut events, mut looked) = (vec![0; READ_BYTES], 0, 0);
    loop {
        let count = match tokio::time::timeout(READ_LIMIT, socket.read(&mut piece)).await {
            Ok(Ok(0)) => break,
            Ok(Ok(count)) => count,
            Ok(Err(error)) if answer.is_empty() => return Err(error),
            Ok(Err(_)) => break,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        answer.extend(piece.iter().take(count).copied());
        let from = usize::saturating_sub(looked, EVENT.len());
        let fresh = answer.get(from..).unwrap_or_default();
        let found = fresh.windows(EVENT.len()).filter(|bytes| *bytes == EVENT).count();
        // What stands across the seam was not counted before, what stands before it was.
        let seam = answer.get(from..looked).unwrap_or_default();
        events += found.saturating_sub(seam.windows(EVENT.len()).filter(|bytes| *bytes == EVENT).count());
        looked = answer.len();
        if events >= leaves {
            if matches!(fate, Fate::Resets(_)) {
                // A socket that refuses this is closed in good order.
                let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
            }
            return Ok((status(&answer), false));
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let whole = text.contains("data: [DONE]") || text.contains("event: message_stop");
    Ok((status(&answer), whole))
}

fn status(answer: &[u8]) -> u16 {
    let head = String::from_utf8_lossy(answer.get(..answer.len().min(32)).unwrap_or_default()).into_owned();
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}
