//! Damaged logs: what opens is a prefix of what was written, and what does not is left as it was.
//!
//! The log of a small history is written once; the input is a list of damages to it. Bytes that never reached the disk are
//! lost from the end; everything else is damage that a start must name. A record with a good checksum and a wrong inside
//! must be refused or read, never a panic.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;
use tollbook_engine::ledger::{Measure, Micros, Profile, ReservationId};
use tollbook_engine::{Claim, Engine, SettleCall, Verdict};
use tollbook_engine_memory::{Clock, MemoryEngine, OpenError, Options};
use tollbook_engine_suite::legs::{H, R, SHARD, START, daily, rpm, tpm};
use tollbook_engine_suite::wait;

use super::{Target, gist, must, signature, steered};
use crate::corpus::Corpus;

pub(super) const TARGET: Target = Target {
    name: "log",
    check,
    dictionary: &["\0\0\0\0\0", "\u{1}", "\u{2}\u{10}\u{10}", "\u{3}", "\u{4}\u{7f}", "\u{5}\u{20}\u{1}"],
    corpus: || Corpus::read("log"),
    runs: 120,
};

const CALLS: u128 = 12;
/// Before the first frame.
const HEADER: usize = 64;
/// Length, checksum.
const FRAME_HEAD: usize = 8;

/// One segment, and the state after each of its records.
struct History {
    name: String,
    bytes: Vec<u8>,
    /// Behind the last record.
    written: usize,
    states: BTreeSet<Vec<String>>,
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Micros {
        START
    }
}

fn options() -> Options {
    let mut options = Options::on(Arc::new(Still));
    options.shards = 1;
    options.segment_bytes = 256 * 1024;
    options.background = false;
    options
}

fn check(input: &[u8]) -> Result<u64, String> {
    let ([which], damages) = steered::<1>(input);
    let history = history(which & 1 != 0)?;
    let mut bytes = history.bytes.clone();
    let mut honest = true;
    for damage in damages.chunks_exact(5).take(8) {
        honest &= harm(&mut bytes, history.written, damage);
    }
    let folder = folder(history, &bytes).map_err(|error| error.to_string())?;
    let opened = MemoryEngine::open(Some(folder.path()), options());
    let kind = match opened {
        Err(OpenError::Damaged { path, offset, what }) => {
            let stands = fs::read(&path).map_err(|error| error.to_string())?;
            must(stands == bytes, || "a damaged file was changed".to_owned())?;
            must(offset <= u64::try_from(bytes.len()).unwrap_or(u64::MAX), || format!("damage at {offset}"))?;
            what
        }
        Err(OpenError::Layout { .. }) => "layout".to_owned(),
        Err(other) => return Err(format!("not opened: {other}")),
        Ok(opened) => {
            let state = opened.engine.dump(SHARD0);
            must(!honest || history.states.contains(&state), || {
                format!("no state of the history: {state:?}")
            })?;
            let torn = opened.report.torn_tails;
            opened.engine.abandon();
            // What was cut off once stays off.
            let again = MemoryEngine::open(Some(folder.path()), options());
            let again = again.map_err(|error| format!("opened once, then not: {error}"))?;
            must(again.report.torn_tails == 0, || "torn twice".to_owned())?;
            must(again.engine.dump(SHARD0) == state, || "another state at the second start".to_owned())?;
            format!("{torn} {}", state.len())
        }
    };
    Ok(signature(&format!("{honest} {} {}", gist(&kind), kind.len())))
}

const SHARD0: tollbook_engine::Shard = tollbook_engine::Shard(0);

/// Applies one damage; false if a checksum was made to fit it, so that nothing can be promised of what is read.
fn harm(bytes: &mut Vec<u8>, written: usize, damage: &[u8]) -> bool {
    let &[kind, high, low, value, length] = damage else { return true };
    let place = usize::from(high) * 256 + usize::from(low);
    let at = place.checked_rem(written).unwrap_or(0);
    let end = at.saturating_add(usize::from(length)).saturating_add(1).min(bytes.len());
    match kind % 6 {
        // A power cut: nothing behind this place.
        0 => bytes.iter_mut().skip(at).for_each(|byte| *byte = 0),
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= value.max(1);
            }
        }
        2 => bytes.get_mut(at..end).unwrap_or_default().fill(value),
        3 => bytes.truncate(at),
        4 => {
            let piece = bytes.get(at..end).unwrap_or_default().to_vec();
            let to = usize::from(value).saturating_mul(16).min(bytes.len());
            let tail = bytes.split_off(to);
            bytes.extend(piece);
            bytes.extend(tail);
        }
        _ => return !with_checksum(bytes, place, value, length),
    }
    true
}

/// Changes a byte inside a record and makes its checksum fit. False if there is no such record.
fn with_checksum(bytes: &mut [u8], place: usize, value: u8, inside: u8) -> bool {
    let frames = frames(bytes);
    let Some(&(start, length)) = frames.get(place.checked_rem(frames.len()).unwrap_or(0)) else {
        return false;
    };
    let body = start.saturating_add(FRAME_HEAD);
    let at = body.saturating_add(usize::from(inside).checked_rem(length).unwrap_or(0));
    let Some(byte) = bytes.get_mut(at) else { return false };
    *byte ^= value.max(1);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes.get(start..start.saturating_add(4)).unwrap_or_default());
    hasher.update(bytes.get(body..body.saturating_add(length)).unwrap_or_default());
    let sum = hasher.finalize().to_le_bytes();
    match bytes.get_mut(start.saturating_add(4)..body) {
        Some(slot) => slot.copy_from_slice(&sum),
        None => return false,
    }
    true
}

/// Start and length of each record, checksums not looked at.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut frames = Vec::new();
    let mut at = HEADER;
    while let Some(head) = bytes.get(at..at.saturating_add(4)) {
        let length = usize::try_from(u32::from_le_bytes(head.try_into().unwrap_or([0; 4]))).unwrap_or(0);
        let next = at.saturating_add(FRAME_HEAD).saturating_add(length);
        if length == 0 || next > bytes.len() {
            break;
        }
        frames.push((at, length));
        at = next;
    }
    frames
}

fn folder(history: &History, bytes: &[u8]) -> std::io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join(&history.name), bytes)?;
    Ok(folder)
}

/// Written once per process: left as a kill leaves it, or closed.
fn history(closed: bool) -> Result<&'static History, String> {
    static LEFT: OnceLock<Result<History, String>> = OnceLock::new();
    static CLOSED: OnceLock<Result<History, String>> = OnceLock::new();
    let slot = if closed { &CLOSED } else { &LEFT };
    slot.get_or_init(|| write(closed)).as_ref().map_err(Clone::clone)
}

fn write(closed: bool) -> Result<History, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let opened = MemoryEngine::open(Some(folder.path()), options()).map_err(|error| error.to_string())?;
    let engine = opened.engine;
    let mut states = BTreeSet::from([engine.dump(SHARD0)]);
    for id in 0..CALLS {
        reserve(&engine, id)?;
        states.insert(engine.dump(SHARD0));
        if id % 4 != 0 {
            let claim = Claim { shard: SHARD, id: ReservationId(id), attempt: 1 };
            let entry = id.to_le_bytes().to_vec();
            let call = SettleCall {
                claim,
                accounts: Vec::new(),
                actual: vec![1, 9, 9],
                landed: 0,
                learn: None,
                entry,
                age: 0,
            };
            wait(engine.settle(&call)).map_err(|error| format!("{error:?}"))?;
            states.insert(engine.dump(SHARD0));
        }
    }
    if closed {
        engine.close().map_err(|error| error.to_string())?;
    } else {
        engine.abandon();
    }
    let path = segment(folder.path())?;
    let bytes = fs::read(&path).map_err(|error| error.to_string())?;
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(History { name, bytes, written, states })
}

fn reserve(engine: &MemoryEngine, id: u128) -> Result<(), String> {
    let most = 1 << 40;
    let legs = vec![rpm("t:rpm", most), tpm("t:tpm", most, 10), daily("t:cost", Measure::Cost, most, 10)];
    let call = R { id, attempt: 1, life: H, legs, context: b"context".to_vec(), profile: Profile::default() }
        .at(START);
    match wait(engine.reserve(&call)) {
        Ok(reply) if matches!(reply.value, Verdict::Admit(_)) => Ok(()),
        other => Err(format!("not admitted: {other:?}")),
    }
}

fn segment(folder: &Path) -> Result<PathBuf, String> {
    let files = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut logs: Vec<PathBuf> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    logs.sort();
    logs.into_iter().next().ok_or_else(|| "no segment was written".to_owned())
}
