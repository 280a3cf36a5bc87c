//! Prints how many reserve and settle pairs one core books per second through the engine: three levels, each with RPM
//! and TPM windows of 61 × 1 s and a daily quota, with a log on disk and without, and with a 300-byte entry per call.
//!
//! `cargo run --release -p tollbook-engine-memory --example engine_pairs [seconds]`

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a measuring program"
)]

mod calls;

use std::path::Path;
use std::time::{Duration, Instant};

use calls::{KEYS, call, now, settle};
use tollbook_engine::ledger::ReservationId;
use tollbook_engine::{Cursor, Engine, Verdict};
use tollbook_engine_memory::{Clock, MemoryEngine, Options, SystemClock};

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    let dir = std::env::temp_dir().join(format!("tollbook-engine-pairs-{}", std::process::id()));
    run("without a log", None, seconds);
    run("with a log", Some(&dir), seconds);
    std::fs::remove_dir_all(&dir).unwrap();
}

fn run(name: &str, dir: Option<&Path>, seconds: u64) {
    let mut calls: Vec<_> = (0..KEYS).map(|key| call(key, SystemClock::start().now())).collect();
    let engine = MemoryEngine::open(dir, Options::default()).unwrap().engine;
    let (mut pairs, mut refused) = (0_u64, 0_u64);
    let (began, cpu) = (Instant::now(), cpu_nanos());
    while began.elapsed() < Duration::from_secs(seconds) {
        for reserve in &mut calls {
            pairs += 1;
            reserve.reserve.id = ReservationId(u128::from(pairs));
            let verdict = now(engine.reserve(reserve));
            refused += u64::from(!matches!(verdict.unwrap().value, Verdict::Admit(_)));
            refused += u64::from(now(engine.settle(&settle(reserve))).is_err());
        }
        for shard in engine.shards() {
            now(engine.journal_trim(shard, Cursor(u64::MAX))).unwrap();
        }
    }
    // Of this thread alone: other work on the machine counts little.
    let nanos = (cpu_nanos() - cpu).max(1);
    let rate = u128::from(pairs) * 1_000_000_000 / u128::from(nanos);
    let stats = engine.stats();
    let bytes = stats.log_bytes / pairs.max(1);
    println!(
        "{name}: {rate} pairs per second and core, {} ns per pair, {refused} refused, {} snapshots, {bytes} bytes of log left per pair",
        nanos / pairs,
        stats.snapshots
    );
}

/// Time this thread has spent on a core.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
