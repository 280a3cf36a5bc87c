//! Starts an engine: takes the directory, replays every shard, opens new segments.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tollbook_ledger::Micros;

use crate::durable::Durable;
use crate::engine::{Counters, Inner, MemoryEngine, Slot};
use crate::error::OpenError;
use crate::journal::Bounds;
use crate::log::dir::{LogDir, ShardFiles};
use crate::log::replay::{Image, Loaded, load};
use crate::log::shard_log::ShardLog;
use crate::options::Options;
use crate::shard::ShardState;

/// A started engine, and what its start found.
#[derive(Debug)]
pub struct Opened {
    pub engine: MemoryEngine,
    pub report: Report,
}

/// What a start found on the disk.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Of the directory; the setting counts only for a new one.
    pub shards: u16,
    /// Records read from the log, those in snapshots not counted.
    pub records: u64,
    /// Shards whose last record was not whole. Ordinary after a kill or a power cut.
    pub torn_tails: u64,
    /// Bytes cut off with them.
    pub torn_bytes: u64,
    /// Ended calls that wait for the journal's store.
    pub journal_waiting: u64,
    /// By how much the clock is behind the log's last time (L12); 0 if it is not.
    pub clock_behind: Micros,
    pub took: Duration,
}

/// Most segments have to be opened by a start; two thousand would be one process's limit on open files.
const SEGMENTS_IN_FLIGHT_MAX: usize = 16;

pub(crate) fn open(dir: Option<&Path>, options: Options) -> Result<Opened, OpenError> {
    options.check()?;
    let began = Instant::now();
    let bounds = Bounds { records: options.journal_records_max, bytes: options.journal_bytes_max };
    let mut report = Report { shards: options.shards, ..Report::default() };
    let mut seen = 0;
    let mut slots = Vec::new();
    let mut counters = Counters::default();
    let dir = match dir {
        None => {
            slots.extend((0..options.shards).map(|_| slot(Image::default(), None, bounds)));
            None
        }
        Some(path) => {
            let dir =
                Arc::new(LogDir::open(path, options.shards, options.segment_bytes, options.log_bytes_max)?);
            report.shards = dir.shards();
            for (shard, loaded) in (0..=u8::MAX).zip(load_all(&dir)?) {
                report.records += loaded.replayed;
                report.torn_tails += loaded.torn.tails;
                report.torn_bytes += loaded.torn.bytes;
                report.journal_waiting += loaded.image.journal.len() as u64;
                seen = seen.max(loaded.image.seen);
                let log = ShardLog::start(Arc::clone(&dir), shard, loaded.from)
                    .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
                slots.push(slot(loaded.image, Some(log), bounds));
            }
            Some(dir)
        }
    };
    *counters.torn_tails.get_mut() = report.torn_tails;
    *counters.torn_bytes.get_mut() = report.torn_bytes;
    let now = options.clock.now();
    report.clock_behind = Micros::saturating_sub(seen, now);
    for slot in &mut slots {
        if let Ok(state) = slot.state.get_mut() {
            // A full log is told by the first verb; until then nothing is due that was not.
            let _outcome = state.notice_step_back(now);
        }
    }
    let engine = MemoryEngine::new(Inner { shards: slots, dir, options, counters })
        .map_err(|source| OpenError::Io { path: Path::new("threads").to_owned(), source })?;
    report.took = began.elapsed();
    Ok(Opened { engine, report })
}

fn slot(image: Image, log: Option<ShardLog>, bounds: Bounds) -> Slot {
    let state = ShardState::new(image, log, bounds);
    Slot { state: Mutex::new(state), durable: Durable::default() }
}

/// Loads all shards, as many at a time as there are cores.
fn load_all(dir: &LogDir) -> Result<Vec<Loaded>, OpenError> {
    let files = dir.scan().map_err(|source| OpenError::Io { path: dir.path().to_owned(), source })?;
    let files: Vec<(u8, ShardFiles)> = (0..=u8::MAX).zip(files).collect();
    let cores = thread::available_parallelism().map_or(1, usize::from).min(SEGMENTS_IN_FLIGHT_MAX);
    let share = files.len().div_ceil(cores).max(1);
    if files.iter().all(|(_, files)| files.segments.is_empty() && files.snapshots.is_empty()) {
        return files.iter().map(|(shard, files)| load(dir, *shard, files)).collect();
    }
    let loaded: Vec<Vec<Result<Loaded, OpenError>>> = thread::scope(|scope| {
        let parts: Vec<_> = files
            .chunks(share)
            .map(|part| {
                scope.spawn(move || {
                    part.iter().map(|(shard, files)| load(dir, *shard, files)).collect::<Vec<_>>()
                })
            })
            .collect();
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    loaded.into_iter().flatten().collect()
}
