//! `kill -9` at any moment under load: after a restart every acknowledged verb is there, and nothing half of one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use tollbook_engine::{Engine, Source};
use tollbook_engine_memory::{MemoryEngine, Options};
use tollbook_engine_suite::random::Random;
use tollbook_engine_suite::wait;

use crate::load::{Known, all_known, cost, drain, quotas, reserve, settle, shard};

const DIR: &str = "TOLLBOOK_TEST_LOG_DIR";
const FIRST: &str = "TOLLBOOK_TEST_FIRST_ID";
const WORKERS: u128 = 3;
/// Ids of one round and worker.
const IDS: u128 = 1_000_000;
/// Acknowledgements: a mark, what was acknowledged, the id.
const ACK: usize = 10;

fn options() -> Options {
    let mut options = Options { shards: 4, ..Options::default() };
    options.segment_bytes = 256 * 1024;
    options.snapshot_bytes = 512 * 1024;
    options.journal_records_max = 1_000_000;
    options
}

fn ack(kind: u8, id: u128) {
    let mut bytes = [0xa5, kind, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[2..].copy_from_slice(&u64::try_from(id).unwrap().to_le_bytes());
    // One write: a pipe takes it whole or not at all.
    std::io::stderr().write_all(&bytes).unwrap();
}

/// The load that is killed. Started by the test below in a process of its own; by itself it has no log to write to.
#[test]
fn a_child_books_until_it_is_killed() {
    let (Ok(dir), Ok(first)) = (std::env::var(DIR), std::env::var(FIRST)) else { return };
    let first: u128 = first.parse().unwrap();
    let engine = MemoryEngine::open(Some(Path::new(&dir)), options()).unwrap().engine;
    let engine: &dyn Engine = &engine;
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || {
                let start = first + worker * IDS;
                for id in start..start + IDS {
                    let now = wait(engine.due(shard(id), 1)).unwrap().now;
                    reserve(engine, id, now).unwrap();
                    ack(b'r', id);
                    // Some calls are still running when the process dies.
                    if id % 7 != 0 {
                        settle(engine, id).unwrap();
                        ack(b's', id);
                    }
                }
            });
        }
    });
}

fn start(dir: &Path, first: u128) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::a_child_books_until_it_is_killed", "--nocapture"])
        .env(DIR, dir)
        .env(FIRST, first.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What was acknowledged, and what the journal has given out.
#[derive(Default)]
struct Record {
    reserved: BTreeSet<u128>,
    settled: BTreeSet<u128>,
    entries: BTreeMap<u128, u64>,
}

impl Record {
    /// Reads acknowledgements; kills the child after a number of them.
    fn run(&mut self, dir: &Path, first: u128, acks: u64) {
        let mut child = start(dir, first);
        let mut pipe = child.stderr.take().unwrap();
        let mut bytes = [0; ACK];
        let mut read = 0;
        while pipe.read_exact(&mut bytes).is_ok() {
            assert_eq!(bytes[0], 0xa5, "the child says: {}", String::from_utf8_lossy(&bytes));
            let id = u128::from(u64::from_le_bytes(bytes[2..].try_into().unwrap()));
            if bytes[1] == b'r' {
                self.reserved.insert(id)
            } else {
                self.settled.insert(id)
            };
            read += 1;
            if read == acks {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(read >= acks, "the child ended by itself after {read} acknowledgements");
    }

    fn compare(&mut self, engine: &MemoryEngine, first: u128) {
        let states = all_known(engine);
        for id in self.reserved.range(first..) {
            let state = states.get(id).copied().unwrap_or(Known::No);
            let settled = self.settled.contains(id);
            assert!(state == Known::Settled || (state == Known::Live && !settled), "{id}: {state:?}");
        }
        for shard in engine.shards() {
            for record in drain(engine, shard) {
                assert_eq!(record.source, Source::Settled);
                assert_eq!(record.body, record.id.0.to_le_bytes());
                let posted: i64 = record.posted.iter().map(|posted| posted.amount).sum();
                let cost = self.entries.insert(record.id.0, posted.unsigned_abs());
                assert_eq!(cost, None, "{} was journaled twice", record.id);
            }
        }
        let lost: Vec<_> = self.settled.iter().filter(|id| !self.entries.contains_key(id)).collect();
        assert_eq!(lost, Vec::<&u128>::new(), "acknowledged settles without an entry");
    }

    /// Per shard: posted is the sum of the journal, held the sum of what lives.
    fn balance(&self, engine: &dyn Engine) {
        let mut posted: BTreeMap<u8, i64> = (0..4).map(|shard| (shard, 0)).collect();
        for (id, cost) in &self.entries {
            *posted.get_mut(&shard(*id).0).unwrap() += cost.cast_signed();
            assert_eq!(*cost, crate::load::cost(*id));
        }
        for (shard, (got, held)) in quotas(engine) {
            assert_eq!(got, posted[&shard], "shard {shard}");
            assert!(held >= 0);
            let mut cursor = Some(0);
            while let Some(at) = cursor {
                let drift = wait(engine.drift(tollbook_engine::Shard(shard), at, 1000)).unwrap().value;
                assert_eq!(drift.differences, []);
                cursor = drift.next;
            }
        }
        let live = self.reserved.iter().filter(|id| *id % 7 == 0).map(|id| cost(*id).cast_signed());
        let held: i64 = quotas(engine).values().map(|(_, held)| held).sum();
        assert!(held >= live.sum(), "an acknowledged hold is missing");
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let temp = tempfile::tempdir().unwrap();
    let mut random = Random::new(9);
    let mut record = Record::default();
    for round in 0..20 {
        let first = round * WORKERS * IDS;
        record.run(temp.path(), first, 20 + random.below(3000));
        let opened = MemoryEngine::open(Some(temp.path()), options()).unwrap();
        // The pages of a killed process are all there; at most the record under way is not whole.
        assert!(opened.report.torn_tails <= 4, "{:?}", opened.report);
        record.compare(&opened.engine, first);
        record.balance(&opened.engine);
        if random.one_in(2) { opened.engine.close().unwrap() } else { opened.engine.abandon() }
    }
    assert!(record.settled.len() > 1000, "only {} settles", record.settled.len());
    let files = std::fs::read_dir(temp.path()).unwrap();
    let snapshots =
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|is| is == "snap"));
    assert!(snapshots.count() > 0, "the log was never folded");
}
