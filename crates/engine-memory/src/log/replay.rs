//! Reads a shard's files back into its state.
//!
//! A record that is not whole is a torn tail only where nothing later had reached the disk: behind its segment's mark,
//! with no later segment that has a mark. Then it and what follows was never acknowledged as durable; it is cut off and
//! counted. Everywhere else it is damage: the error names file and place, and no file is changed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tollbook_engine::Cursor;
use tollbook_ledger::{Book, Event, Micros};

use super::dir::{LogDir, ShardFiles};
use super::frame::{Kind, Step, step};
use super::header::{BadHeader, FileKind, HEADER, Header, LAYOUT, MARK_AT, Mark};
use super::shard_log::Continue;
use super::snapshot;
use crate::codec::Arena;
use crate::error::OpenError;
use crate::journal::JournalQueue;
use crate::wire::{Malformed, Read, Reader};

/// A shard's state as its files tell it.
#[derive(Default, Debug)]
pub(crate) struct Image {
    pub(crate) book: Book,
    pub(crate) journal: JournalQueue,
    /// Records ever written, those in snapshots included.
    pub(crate) records: u64,
    /// Engine time of the last event.
    pub(crate) seen: Micros,
}

/// What was cut off at the end of a shard's log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Torn {
    pub(crate) tails: u64,
    pub(crate) bytes: u64,
}

/// The outcome of reading one shard.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) image: Image,
    pub(crate) torn: Torn,
    pub(crate) from: Continue,
    /// Records read from segments.
    pub(crate) replayed: u64,
}

impl Image {
    /// Folds one record into the state.
    pub(crate) fn apply(&mut self, arena: &mut Arena, kind: Kind, payload: &[u8]) -> Read<()> {
        let mut from = Reader::new(payload);
        match kind {
            Kind::Event => self.event(arena, &mut from)?,
            Kind::EventAndEntry => {
                self.event(arena, &mut from)?;
                self.journal.push_checked(from.rest())?;
                from = Reader::new(&[]);
            }
            Kind::Entry => {
                self.journal.push_checked(from.rest())?;
                from = Reader::new(&[]);
            }
            Kind::Trim => {
                self.journal.trim(Cursor(from.u64("cursor")?));
            }
            Kind::Open
            | Kind::SnapshotHead
            | Kind::SnapshotState
            | Kind::SnapshotEntry
            | Kind::SnapshotEnd => {
                return Err(Malformed { what: "kind of record" });
            }
        }
        from.end("end of record")?;
        self.records = self.records.saturating_add(1);
        Ok(())
    }

    fn event<'a>(&mut self, arena: &'a mut Arena, from: &mut Reader<'a>) -> Read<()> {
        let event = arena.decode(from)?;
        self.seen = time_of(&event);
        self.book.apply(&event);
        Ok(())
    }
}

/// Engine time of an event; 0 for rows of a snapshot other than the clock.
pub(crate) fn time_of(event: &Event<'_>) -> Micros {
    match event {
        Event::Reserved(row) => row.now,
        Event::Denied { now, .. } | Event::Progressed { now, .. } | Event::Repaired { now, .. } => *now,
        Event::Renewed(row) => row.now,
        Event::Ended(row) => row.now,
        Event::Rebooked { reserved, .. } => reserved.now,
        Event::Corrected(row) => row.now,
        Event::Adjusted(row) => row.now,
        Event::Pruned(row) => row.now,
        Event::Clock(row) => row.seen,
        Event::Account(_)
        | Event::Live(_)
        | Event::Tombstone(_)
        | Event::Estimate(_)
        | Event::AdjustKnown { .. } => 0,
    }
}

/// How reading a segment ended.
enum SegmentEnd {
    /// Read up to a place behind which nothing was written.
    Whole { len: usize, mark: usize, any: bool },
    /// Unreadable from a place on, behind the mark.
    Torn { at: usize },
}

/// Reads a shard and puts its files in order: cuts a torn tail, removes what a snapshot replaces.
pub(crate) fn load(dir: &LogDir, shard: u8, files: &ShardFiles) -> Result<Loaded, OpenError> {
    let mut image = Image::default();
    let mut base_seq = 1;
    if let Some((seq, path)) = files.snapshots.last() {
        image = snapshot::read(path, dir.header(FileKind::Snapshot, shard, *seq))?;
        base_seq = *seq;
    }
    let before = image.records;
    let mut torn = Torn::default();
    let mut kept = Vec::new();
    let mut segments = files.segments.iter().filter(|(seq, _)| *seq >= base_seq);
    while let Some((seq, path)) = segments.next() {
        let bytes = std::fs::read(path).map_err(io_at(path))?;
        match read_segment(&bytes, path, dir.header(FileKind::Log, shard, *seq), &mut image)? {
            SegmentEnd::Whole { len, mark, any } => {
                kept.push(Kept { seq: *seq, path, len, mark, any, size: bytes.len() });
            }
            SegmentEnd::Torn { at } => {
                let later: Vec<_> = segments.by_ref().map(|(_, path)| path).collect();
                torn = cut(path, &bytes, at, &later)?;
                kept.push(Kept { seq: *seq, path, len: at, mark: 0, any: at > HEADER, size: bytes.len() });
            }
        }
    }
    let next_seq = files.segments.last().map_or(0, |(seq, _)| *seq).saturating_add(1).max(base_seq);
    let mut behind = Vec::new();
    for kept in &kept {
        let bytes = put_in_order(dir, kept).map_err(io_at(kept.path))?;
        if bytes > 0 {
            behind.push((kept.seq, bytes));
        }
    }
    remove_replaced(files, base_seq)?;
    let records = image.records;
    let from = Continue { next_seq, records, base_seq, behind };
    Ok(Loaded { image, torn, from, replayed: records - before })
}

/// A segment that was read.
struct Kept<'a> {
    seq: u64,
    path: &'a PathBuf,
    len: usize,
    mark: usize,
    any: bool,
    size: usize,
}

/// Cuts a segment to what was read and marks it as durable; removes one without records. Its bytes if it stays.
fn put_in_order(dir: &LogDir, kept: &Kept<'_>) -> io::Result<u64> {
    if !kept.any {
        std::fs::remove_file(kept.path)?;
        return Ok(0);
    }
    let len = kept.len as u64;
    dir.take(len);
    if kept.size == kept.len && kept.mark == kept.len {
        return Ok(len);
    }
    let file = File::options().write(true).open(kept.path)?;
    file.set_len(len)?;
    file.sync_data()?;
    file.write_all_at(&Mark::at(kept.len).encode(), MARK_AT as u64)?;
    Ok(len)
}

fn remove_replaced(files: &ShardFiles, base_seq: u64) -> Result<(), OpenError> {
    let segments = files.segments.iter().filter(|(seq, _)| *seq < base_seq);
    let snapshots = files.snapshots.iter().filter(|(seq, _)| *seq < base_seq);
    for (_, path) in segments.chain(snapshots) {
        std::fs::remove_file(path).map_err(io_at(path))?;
    }
    Ok(())
}

/// Counts a torn tail and removes the segments behind it, which must hold nothing that had reached the disk.
fn cut(path: &Path, bytes: &[u8], at: usize, later: &[&PathBuf]) -> Result<Torn, OpenError> {
    let mut torn = Torn { tails: 1, bytes: written(bytes, at) };
    for later in later {
        let bytes = std::fs::read(later).map_err(io_at(later))?;
        if matches!(Header::decode(&bytes), Ok((_, mark)) if mark > HEADER) {
            return Err(damaged(path, at, "a record is not whole, and later ones had been synced"));
        }
        torn.bytes += written(&bytes, HEADER);
    }
    for later in later {
        std::fs::remove_file(later).map_err(io_at(later))?;
    }
    Ok(torn)
}

/// Bytes from `at` on up to the last that is not zero.
fn written(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

fn read_segment(
    bytes: &[u8],
    path: &Path,
    expected: Header,
    image: &mut Image,
) -> Result<SegmentEnd, OpenError> {
    let mark = match Header::decode(bytes) {
        Ok((header, mark)) if header == expected => mark,
        Ok(_) => return Err(damaged(path, 0, "the header is another file's")),
        Err(BadHeader::Unwritten) => return Ok(SegmentEnd::Torn { at: 0 }),
        Err(BadHeader::Layout(found)) => {
            return Err(OpenError::Layout { path: path.to_owned(), found, known: LAYOUT });
        }
        Err(BadHeader::Damaged) => return Err(damaged(path, 0, "the header does not match its checksum")),
    };
    let mut arena = Arena::default();
    let mut at = HEADER;
    let mut any = false;
    loop {
        let (kind, payload, next) = match step(bytes, at) {
            Step::Frame { kind, payload, next } => (kind, payload, next),
            Step::End if at >= mark => return Ok(SegmentEnd::Whole { len: at, mark, any }),
            Step::End | Step::Bad if at < mark => {
                return Err(damaged(path, at, "a synced record is not whole"));
            }
            Step::End | Step::Bad => return Ok(SegmentEnd::Torn { at }),
        };
        let read = if at == HEADER {
            match first_record(kind, payload) {
                Ok(first) if first == image.records => Ok(()),
                Ok(_) if mark > HEADER => {
                    return Err(damaged(path, at, "records before this segment are missing"));
                }
                Ok(_) => return Ok(SegmentEnd::Torn { at }),
                Err(error) => Err(error),
            }
        } else {
            any = true;
            image.apply(&mut arena, kind, payload)
        };
        read.map_err(|error| damaged(path, at, &error.to_string()))?;
        at = next;
    }
}

fn first_record(kind: Kind, payload: &[u8]) -> Read<u64> {
    if kind != Kind::Open {
        return Err(Malformed { what: "first frame" });
    }
    let mut from = Reader::new(payload);
    let first = from.u64("first record")?;
    from.end("first frame")?;
    Ok(first)
}

pub(crate) fn damaged(path: &Path, at: usize, what: &str) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), offset: at as u64, what: what.to_owned() }
}

pub(crate) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    |source| OpenError::Io { path, source }
}

/// Folds whole segments into an image, for a snapshot. They were written by this process, so nothing may be torn.
pub(crate) fn fold(
    segments: &[(u64, PathBuf)],
    dir: &LogDir,
    shard: u8,
    image: &mut Image,
) -> Result<(), OpenError> {
    for (seq, path) in segments {
        let bytes = std::fs::read(path).map_err(io_at(path))?;
        match read_segment(&bytes, path, dir.header(FileKind::Log, shard, *seq), image)? {
            SegmentEnd::Whole { .. } => {}
            SegmentEnd::Torn { at } => {
                return Err(damaged(path, at, "a record of a full segment is not whole"));
            }
        }
    }
    Ok(())
}
