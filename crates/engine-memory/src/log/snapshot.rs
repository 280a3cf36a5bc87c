//! A shard's state as one file: everything before a segment.
//!
//! Made by folding the last snapshot and the full segments behind it, beside the engine and without its locks, so no
//! verb waits for it; it also proves that the log can be read. Written under another name, synced, renamed; only then
//! the segments it contains are removed. When it fails nothing is lost: the segments stay.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tollbook_engine::Cursor;

use super::dir::LogDir;
use super::frame::{FrameBuffer, Kind, PAYLOAD_MAX, Step, step};
use super::header::{BadHeader, FileKind, HEADER, Header, LAYOUT};
use super::replay::{Image, damaged, fold, io_at};
use crate::codec::{Arena, encode};
use crate::error::OpenError;
use crate::journal::JournalQueue;
use crate::wire::{Malformed, Read, Reader, Writer};

/// What a snapshot replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) seq: u64,
    /// Bytes of the segments it replaced.
    pub(crate) bytes: u64,
    pub(crate) snapshot_bytes: u64,
}

/// Folds segments `from..upto` into a new snapshot and removes them.
pub(crate) fn take(dir: &LogDir, shard: u8, (from, upto): (u64, u64)) -> Result<Taken, OpenError> {
    let files = dir.scan_shard(shard).map_err(io_at(dir.path()))?;
    let mut image = Image::default();
    if let Some((seq, path)) = files.snapshots.iter().rfind(|(seq, _)| *seq <= from) {
        image = read(path, dir.header(FileKind::Snapshot, shard, *seq))?;
    }
    let segments: Vec<_> = files.segments.into_iter().filter(|(seq, _)| (from..upto).contains(seq)).collect();
    let before = image.records;
    fold(&segments, dir, shard, &mut image)?;
    let path = dir.snapshot_path(shard, upto);
    if image.records == before {
        return Err(damaged(&path, 0, "the segments to take in hold no record"));
    }
    let snapshot_bytes =
        write(&path, dir.header(FileKind::Snapshot, shard, upto), &image).map_err(io_at(&path))?;
    dir.sync().map_err(io_at(dir.path()))?;
    let mut bytes = 0;
    for (_, path) in &segments {
        bytes += dir.remove_segment(path).map_err(io_at(path))?;
    }
    for (_, path) in files.snapshots.iter().filter(|(seq, _)| *seq < upto) {
        std::fs::remove_file(path).map_err(io_at(path))?;
    }
    Ok(Taken { seq: upto, bytes, snapshot_bytes })
}

/// Writes an image under a temporary name, syncs it, renames it.
pub(crate) fn write(path: &Path, header: Header, image: &Image) -> io::Result<u64> {
    let unfinished = path.with_extension("tmp");
    let mut out = Out {
        file: BufWriter::new(File::create(&unfinished)?),
        frame: FrameBuffer::default(),
        frames: 0,
        bytes: HEADER as u64,
        failed: None,
    };
    out.file.write_all(&header.encode())?;
    out.put(Kind::SnapshotHead, |payload| {
        let mut to = Writer::new(payload);
        to.u64(image.records);
        to.u64(image.journal.trimmed().0);
        to.u64(image.seen);
    });
    image.book.dump(&mut |row| out.put(Kind::SnapshotState, |payload| encode(row, payload)));
    for entry in image.journal.encoded() {
        out.put(Kind::SnapshotEntry, |payload| payload.extend_from_slice(entry));
    }
    let frames = out.frames;
    out.put(Kind::SnapshotEnd, |payload| Writer::new(payload).u64(frames));
    if let Some(error) = out.failed {
        return Err(error);
    }
    let file = out.file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    Ok(out.bytes)
}

/// A snapshot under way.
struct Out {
    file: BufWriter<File>,
    frame: FrameBuffer,
    frames: u64,
    bytes: u64,
    failed: Option<io::Error>,
}

impl Out {
    fn put(&mut self, kind: Kind, fill: impl FnOnce(&mut Vec<u8>)) {
        if self.failed.is_some() {
            return;
        }
        fill(self.frame.start(kind));
        let frame = self.frame.finish();
        self.frames += 1;
        self.bytes += frame.len() as u64;
        if let Err(error) = self.file.write_all(frame) {
            self.failed = Some(error);
        }
    }
}

/// Reads a snapshot; it is whole or damaged.
pub(crate) fn read(path: &Path, expected: Header) -> Result<Image, OpenError> {
    let bytes = std::fs::read(path).map_err(io_at(path))?;
    match Header::decode(&bytes) {
        Ok((header, _)) if header == expected => {}
        Ok(_) => return Err(damaged(path, 0, "the header is another file's")),
        Err(BadHeader::Layout(found)) => {
            return Err(OpenError::Layout { path: path.to_owned(), found, known: LAYOUT });
        }
        Err(_) => return Err(damaged(path, 0, "the header does not match its checksum")),
    }
    let mut image = Image::default();
    let mut arena = Arena::default();
    let mut at = HEADER;
    let mut frames = 0;
    loop {
        let Step::Frame { kind, payload, next } = step(&bytes, at) else {
            return Err(damaged(path, at, "a record of the snapshot is not whole"));
        };
        let ended = take_in(&mut image, &mut arena, frames, kind, payload);
        if ended.map_err(|error| damaged(path, at, &error.to_string()))? {
            return Ok(image);
        }
        at = next;
        frames += 1;
    }
}

/// Takes in one frame; true at the end.
fn take_in(image: &mut Image, arena: &mut Arena, frames: u64, kind: Kind, payload: &[u8]) -> Read<bool> {
    let mut from = Reader::new(payload);
    match (kind, frames) {
        (Kind::SnapshotHead, 0) => {
            image.records = from.u64("records")?;
            image.journal = JournalQueue::after(Cursor(from.u64("trimmed")?));
            image.seen = from.u64("seen")?;
        }
        (Kind::SnapshotState, 1..) => {
            let event = arena.decode(&mut from)?;
            image.book.apply(&event);
        }
        (Kind::SnapshotEntry, 1..) => {
            image.journal.push_checked(from.rest())?;
            return Ok(false);
        }
        (Kind::SnapshotEnd, 1..) => {
            if from.u64("frames")? != frames {
                return Err(Malformed { what: "number of frames" });
            }
            from.end("end of frame")?;
            return Ok(true);
        }
        _ => return Err(Malformed { what: "order of frames" }),
    }
    from.end("end of frame")?;
    Ok(false)
}

/// Every row of a dump fits one frame.
const _: () = assert!(PAYLOAD_MAX >= 32 * 1024);
