//! Prints how long a start takes: with an empty log, and how many records per second it replays (nine legs per reserve,
//! one entry per settle).
//!
//! `cargo run --release -p tollbook-engine-memory --example engine_replay [pairs]`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

#[path = "engine_pairs/calls.rs"]
mod calls;

use std::time::Instant;

use calls::{call, now, settle};
use tollbook_engine::ledger::ReservationId;
use tollbook_engine::{Cursor, Engine};
use tollbook_engine_memory::{Clock, MemoryEngine, Options, SystemClock};

fn main() {
    let pairs: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(500_000);
    let dir = std::env::temp_dir().join(format!("tollbook-engine-replay-{}", std::process::id()));
    let options = Options { snapshot_bytes: u64::MAX, ..Options::default() };
    let began = Instant::now();
    let opened = MemoryEngine::open(Some(&dir), options.clone()).unwrap();
    println!("start with an empty log: {} µs", began.elapsed().as_micros());
    let engine = opened.engine;
    let mut calls: Vec<_> = (0..calls::KEYS).map(|key| call(key, SystemClock::start().now())).collect();
    for id in 0..pairs {
        let at = usize::try_from(id % calls::KEYS).unwrap();
        let reserve = calls.get_mut(at).unwrap();
        reserve.reserve.id = ReservationId(u128::from(id));
        now(engine.reserve(reserve)).unwrap();
        now(engine.settle(&settle(reserve))).unwrap();
        if id % 1000 == 0 {
            for shard in engine.shards() {
                now(engine.journal_trim(shard, Cursor(u64::MAX))).unwrap();
            }
        }
    }
    println!("wrote {} records, {} MiB", engine.stats().records, engine.stats().log_bytes >> 20);
    engine.close().unwrap();
    for _ in 0..3 {
        let began = Instant::now();
        let opened = MemoryEngine::open(Some(&dir), options.clone()).unwrap();
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap().max(1);
        let rate = opened.report.records * 1_000_000 / micros;
        println!("replayed {} records in {} ms: {rate} per second", opened.report.records, micros / 1000);
        opened.engine.close().unwrap();
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
