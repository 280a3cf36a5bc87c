//! The log's files: torn tails, damage, power cuts, snapshots, full disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollbook_engine::{Applied, Engine, EngineError, ErrorKind, Shard, Verdict};
use tollbook_engine_memory::{Durability, MemoryEngine, OpenError, Options};
use tollbook_engine_suite::legs::START;
use tollbook_engine_suite::random::Random;
use tollbook_engine_suite::wait;

use crate::harness::{Hand, options};
use crate::load::{Known, all_known, drain, dump, known, quotas, reserve, settle};

fn one_shard() -> Options {
    Options { shards: 1, ..options(Hand::at(START)) }
}

fn open(dir: &Path, options: Options) -> MemoryEngine {
    MemoryEngine::open(Some(dir), options).unwrap().engine
}

/// A hundred calls, three of four settled.
fn fill(engine: &MemoryEngine, ids: std::ops::Range<u128>) {
    for id in ids {
        assert!(matches!(reserve(engine, id, START), Ok(Verdict::Admit(_))));
        if id % 4 != 0 {
            settle(engine, id).unwrap();
        }
    }
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    files.sort();
    files
}

/// A copy of a directory that nobody uses.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

/// Bytes up to the last that is not zero.
fn written(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_and_counted() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), one_shard());
    fill(&engine, 0..5);
    let (before, path) = (dump(&engine), files(temp.path(), "log").remove(0));
    let from = written(&fs::read(&path).unwrap());
    settle(&engine, 0).unwrap();
    let after = dump(&engine);
    engine.abandon();
    let whole = fs::read(&path).unwrap();
    let to = written(&whole);
    assert!(to > from + 30);
    for cut in from..=to {
        let copy = copy(temp.path());
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        fs::write(copy.path().join(path.file_name().unwrap()), &bytes).unwrap();
        let opened = MemoryEngine::open(Some(copy.path()), one_shard()).unwrap();
        let torn = u64::from(cut > from && cut < to);
        assert_eq!(opened.report.torn_tails, torn, "cut at {cut}");
        assert_eq!(opened.engine.stats().torn_tails, torn);
        assert_eq!(
            dump(&opened.engine),
            if cut < to { before.clone() } else { after.clone() },
            "cut at {cut}"
        );
        // The engine goes on behind the cut, and the next start finds nothing torn.
        assert_eq!(settle(&opened.engine, 0), Ok(()));
        let goes_on = dump(&opened.engine);
        opened.engine.abandon();
        let again = MemoryEngine::open(Some(copy.path()), one_shard()).unwrap();
        assert_eq!((again.report.torn_tails, dump(&again.engine)), (0, goes_on));
    }
}

#[test]
fn damage_in_synced_data_stops_the_start_and_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), one_shard());
    fill(&engine, 0..9);
    engine.close().unwrap();
    let path = files(temp.path(), "log").remove(0);
    let whole = fs::read(&path).unwrap();
    let reference = dump(&open(copy(temp.path()).path(), one_shard()));
    for at in (0..300).chain((300..whole.len()).step_by(3)) {
        let copy = copy(temp.path());
        let damaged = copy.path().join(path.file_name().unwrap());
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&damaged, &bytes).unwrap();
        match MemoryEngine::open(Some(copy.path()), one_shard()) {
            Err(OpenError::Damaged { path, offset, .. }) => {
                assert_eq!(path, damaged);
                assert!(offset <= at as u64, "the record at {offset} holds byte {at}");
                assert_eq!(fs::read(&damaged).unwrap(), bytes, "nothing is changed");
            }
            Err(other) => panic!("byte {at}: {other}"),
            // Spare bytes of the header mean nothing.
            Ok(opened) => {
                assert!((40..64).contains(&at), "byte {at} was not missed");
                assert_eq!(dump(&opened.engine), reference);
            }
        }
    }
}

#[test]
fn a_missing_segment_is_damage() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), Options { snapshot_bytes: u64::MAX, ..one_shard() });
    fill(&engine, 0..3000);
    engine.close().unwrap();
    let segments = files(temp.path(), "log");
    assert!(segments.len() > 2, "{segments:?}");
    fs::remove_file(&segments[1]).unwrap();
    let opened = MemoryEngine::open(Some(temp.path()), one_shard());
    assert!(matches!(opened, Err(OpenError::Damaged { path, .. }) if path == segments[2]));
}

#[test]
fn a_newer_layout_and_a_second_owner_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), one_shard());
    fill(&engine, 0..3);
    assert!(matches!(MemoryEngine::open(Some(temp.path()), one_shard()), Err(OpenError::InUse { .. })));
    engine.close().unwrap();
    let path = files(temp.path(), "log").remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let opened = MemoryEngine::open(Some(temp.path()), one_shard());
    assert!(matches!(opened, Err(OpenError::Layout { found: 9, known: 1, .. })), "{opened:?}");
}

/// Zeroes pages that had not been synced, as a power cut may, some here and some there.
fn cut_power(dir: &Path, random: &mut Random) {
    for path in files(dir, "log") {
        let mut bytes = fs::read(&path).unwrap();
        let mark = usize::try_from(u32::from_le_bytes(bytes[32..36].try_into().unwrap())).unwrap();
        for page in (0..bytes.len()).step_by(4096) {
            if random.one_in(3) {
                let from = page.max(mark);
                let to = (page + 4096).min(bytes.len());
                bytes[from.min(to)..to].fill(0);
            }
        }
        fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn a_power_cut_loses_a_tail_and_nothing_before_it() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let temp = tempfile::tempdir().unwrap();
        let engine = open(temp.path(), Options { snapshot_bytes: u64::MAX, ..one_shard() });
        let calls = 500 + random.below(3000);
        let mut synced = 0;
        for id in 0..u128::from(calls) {
            reserve(&engine, id * 4, START).unwrap();
            if random.one_in(400) {
                engine.tick();
                synced = id + 1;
            }
        }
        engine.abandon();
        cut_power(temp.path(), &mut random);
        let opened = MemoryEngine::open(Some(temp.path()), one_shard()).unwrap();
        let states = all_known(&opened.engine);
        let kept = states.len();
        let first: Vec<_> = (0..kept as u128).map(|id| id * 4).collect();
        assert!(states.keys().eq(first.iter()), "seed {seed}: a hole in the log");
        assert!(kept as u128 >= synced, "seed {seed}: {kept} kept, {synced} had been synced");
        lost += usize::from((kept as u64) < calls);
    }
    assert!(lost > 5, "the power cuts hit nothing");
}

#[test]
fn fsync_answers_only_what_a_power_cut_cannot_take() {
    for seed in 0..5 {
        let mut random = Random::new(100 + seed);
        let temp = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Fsync, background: true, ..one_shard() };
        let engine = Arc::new(open(temp.path(), options));
        let threads: Vec<_> = (0..4_u128)
            .map(|thread| {
                let engine = engine.clone();
                std::thread::spawn(move || {
                    for id in (0..40).map(|n| (thread * 1000 + n) * 4) {
                        reserve(&*engine, id, START).unwrap();
                        settle(&*engine, id).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        Arc::try_unwrap(engine).unwrap().abandon();
        cut_power(temp.path(), &mut random);
        let states = all_known(&open(temp.path(), one_shard()));
        for id in (0..4_u128).flat_map(|thread| (0..40).map(move |n| (thread * 1000 + n) * 4)) {
            assert_eq!(states.get(&id), Some(&Known::Settled), "seed {seed}, id {id}");
        }
    }
}

/// The same load with snapshots and without.
#[test]
fn snapshot_and_log_equal_the_log_alone() {
    for seed in 0..3 {
        let clock = Hand::at(START);
        let with = Options { shards: 1, snapshot_bytes: 100_000, ..options(clock.clone()) };
        let without = Options { snapshot_bytes: u64::MAX, ..with.clone() };
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut engines = [open(dirs[0].path(), with.clone()), open(dirs[1].path(), without.clone())];
        let mut random = Random::new(seed);
        let mut now = START;
        for step in 0..6000_u128 {
            let (settles, drains, ticks) = (random.below(4), random.one_in(500), random.one_in(300));
            for engine in &engines {
                reserve(engine, step, now).unwrap();
                if settles > 0 {
                    settle(engine, step - step.min(u128::from(settles - 1))).unwrap();
                }
                if drains {
                    drain(engine, Shard(u8::try_from(step % 4).unwrap()));
                }
                if ticks {
                    engine.tick();
                }
            }
            now += random.below(2_000_000);
            clock.set(now);
        }
        assert!(engines[0].stats().snapshots > 0 && engines[1].stats().snapshots == 0);
        let live = engines.each_ref().map(dump);
        assert_eq!(live[0], live[1], "seed {seed}");
        let settings = [with, without];
        engines = std::array::from_fn(|at| {
            // One ends in order, the other does not.
            let engine = std::mem::replace(
                &mut engines[at],
                MemoryEngine::open(None, options(clock.clone())).unwrap().engine,
            );
            if seed % 2 == 0 {
                engine.close().unwrap();
            } else {
                engine.abandon();
            }
            open(dirs[at].path(), settings[at].clone())
        });
        let replayed = engines.each_ref().map(dump);
        assert_eq!(replayed[0], live[0], "seed {seed}");
        assert_eq!(replayed[1], live[1], "seed {seed}");
    }
}

#[test]
fn a_damaged_snapshot_stops_the_start() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), Options { snapshot_bytes: 100_000, ..one_shard() });
    fill(&engine, 0..2500);
    engine.tick();
    assert!(engine.stats().snapshots > 0);
    engine.close().unwrap();
    let path = files(temp.path(), "snap").remove(0);
    let whole = fs::read(&path).unwrap();
    let mut random = Random::new(3);
    for _ in 0..60 {
        let at = 64 + usize::try_from(random.below(whole.len() as u64 - 64)).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let opened = MemoryEngine::open(Some(temp.path()), one_shard());
        assert!(matches!(opened, Err(OpenError::Damaged { .. })), "byte {at}");
    }
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(MemoryEngine::open(Some(temp.path()), one_shard()), Err(OpenError::Damaged { .. })));
    fs::write(&path, &whole).unwrap();
    assert_eq!(known(&open(temp.path(), one_shard()), 1), Known::Settled);
}

#[test]
fn an_unfinished_snapshot_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), one_shard());
    fill(&engine, 0..10);
    let reference = dump(&engine);
    engine.abandon();
    let unfinished = temp.path().join("s000-0000000002.tmp");
    fs::write(&unfinished, b"half a snapshot").unwrap();
    assert_eq!(dump(&open(temp.path(), one_shard())), reference);
    assert!(!unfinished.exists());
}

fn is_away<T: std::fmt::Debug>(answer: Result<T, EngineError>) {
    let error = answer.expect_err("the log is full");
    assert!(matches!(error.kind, ErrorKind::Away(_)), "{error}");
    assert_eq!(error.applied, Applied::No);
}

#[test]
fn a_full_log_refuses_and_applies_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options { log_bytes_max: 2 * 256 * 1024, ..one_shard() };
    let engine = open(temp.path(), options.clone());
    let mut id = 0;
    while reserve(&engine, id, START).is_ok() {
        id += 1;
        assert!(id < 10_000, "the bound is never reached");
    }
    let full = dump(&engine);
    is_away(reserve(&engine, id, START));
    is_away(settle(&engine, 0));
    is_away(wait(engine.takes(Shard(0))).map(|reply| reply.value));
    assert_eq!(dump(&engine), full);
    assert_eq!(known(&engine, id), Known::No);
    // A snapshot makes room.
    engine.tick();
    assert!(wait(engine.takes(Shard(0))).is_ok());
    assert_eq!(settle(&engine, 0), Ok(()));
    let after = dump(&engine);
    engine.abandon();
    let engine = open(temp.path(), options);
    assert_eq!(dump(&engine), after);
}

#[test]
fn a_starved_shard_gets_what_another_can_spare() {
    let temp = tempfile::tempdir().unwrap();
    let two = Options { shards: 2, snapshot_bytes: u64::MAX, ..options(Hand::at(START)) };
    let engine = open(temp.path(), Options { log_bytes_max: 4 * 256 * 1024, ..two });
    // Shard 0 takes three of four segments; shard 1 cannot go on.
    let fill = |first: u128| (0..20_000).find(|n| reserve(&engine, first + n * 2, START).is_err()).unwrap();
    fill(0);
    let stuck = fill(1) * 2 + 1;
    is_away(reserve(&engine, stuck, START));
    engine.tick();
    assert!(matches!(reserve(&engine, stuck, START), Ok(Verdict::Admit(_))));
}

#[test]
fn a_directory_that_is_gone_refuses_and_comes_back() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("log");
    let engine = open(&dir, Options { snapshot_bytes: u64::MAX, ..one_shard() });
    let aside = temp.path().join("aside");
    fs::rename(&dir, &aside).unwrap();
    let mut id = 0;
    while reserve(&engine, id, START).is_ok() {
        id += 1;
        assert!(id < 10_000, "a segment was created in a directory that is gone");
    }
    let before = quotas(&engine);
    is_away(reserve(&engine, id, START));
    assert_eq!(quotas(&engine), before);
    fs::rename(&aside, &dir).unwrap();
    assert!(matches!(reserve(&engine, id, START), Ok(Verdict::Admit(_))));
    engine.abandon();
    assert_eq!(known(&open(&dir, one_shard()), id), Known::Live);
}

#[test]
fn a_full_journal_refuses_endings_and_applies_nothing() {
    let engine = MemoryEngine::open(None, Options { journal_records_max: 3, ..one_shard() }).unwrap().engine;
    for id in 0..4 {
        reserve(&engine, id * 4, START).unwrap();
    }
    for id in 0..3 {
        settle(&engine, id * 4).unwrap();
    }
    let full = dump(&engine);
    is_away(settle(&engine, 12));
    assert_eq!(dump(&engine), full);
    // Admissions go on; once the store has taken entries, so do endings.
    reserve(&engine, 16, START).unwrap();
    assert_eq!(drain(&engine, Shard(0)).len(), 3);
    settle(&engine, 12).unwrap();
}

#[test]
fn an_entry_above_the_bound_is_refused() {
    let engine = MemoryEngine::open(None, one_shard()).unwrap().engine;
    reserve(&engine, 4, START).unwrap();
    let mut call = crate::load::settle_call(4);
    call.entry = vec![7; tollbook_engine::ENTRY_MAX + 1];
    let error = wait(engine.settle(&call)).unwrap_err();
    assert_eq!(error, EngineError::not_applied(ErrorKind::EntryTooLong));
    assert_eq!(known(&engine, 4), Known::Live);
    call.entry.pop();
    wait(engine.settle(&call)).unwrap();
    assert_eq!(drain(&engine, Shard(0))[0].body.len(), tollbook_engine::ENTRY_MAX);
}

#[test]
fn many_restarts_leave_few_files() {
    let temp = tempfile::tempdir().unwrap();
    for round in 0..30_u128 {
        let engine = open(temp.path(), one_shard());
        if round % 3 == 0 {
            reserve(&engine, round * 4, START).unwrap();
        }
        if round % 2 == 0 { engine.close().unwrap() } else { engine.abandon() }
    }
    let files = files(temp.path(), "log");
    assert!(files.len() <= 11, "{files:?}");
    let engine = open(temp.path(), one_shard());
    assert!((0..30).step_by(3).all(|round| known(&engine, round * 4) == Known::Live));
}

#[test]
fn the_number_of_shards_is_the_directory_s() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), options(Hand::at(START)));
    fill(&engine, 0..20);
    let reference = dump(&engine);
    engine.close().unwrap();
    let opened = MemoryEngine::open(Some(temp.path()), Options { shards: 16, ..one_shard() }).unwrap();
    assert_eq!(opened.report.shards, 4);
    assert_eq!(dump(&opened.engine), reference);
}

#[test]
fn l12_a_start_behind_the_log_is_told_and_revives_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let engine = open(temp.path(), one_shard());
    fill(&engine, 0..5);
    engine.close().unwrap();
    let behind = Options { clock: Hand::at(START - 7_200_000_000), ..one_shard() };
    let opened = MemoryEngine::open(Some(temp.path()), behind).unwrap();
    assert_eq!(opened.report.clock_behind, 7_200_000_000);
    assert_eq!(opened.engine.stats().alarms.clock_steps_back, 1);
    assert_eq!(known(&opened.engine, 1), Known::Settled);
    assert_eq!(known(&opened.engine, 4), Known::Live);
}
