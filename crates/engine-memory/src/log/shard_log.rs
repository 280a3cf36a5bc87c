//! Appends one shard's records, and says what is left to sync.
//!
//! Invariants: `hold_room` is called before the verb changes anything, so `commit` always has room. Segments are synced
//! oldest first, and a mark is written only after the sync it speaks of.
//! When no segment can be created: `hold_room` answers `Full` and nothing was written.

use std::io;
use std::sync::Arc;

use tollbook_ledger::Full;

use super::dir::LogDir;
use super::frame::{FRAME_HEAD, FrameBuffer, Kind, PAYLOAD_MAX};
use super::header::HEADER;
use super::segment::{Mapped, SegmentWriter};
use crate::wire::Writer;

/// One shard's end of the log.
#[derive(Debug)]
pub(crate) struct ShardLog {
    dir: Arc<LogDir>,
    shard: u8,
    active: SegmentWriter,
    /// Bytes of `active` known to be on the disk.
    synced: usize,
    /// Full segments that are not synced yet, oldest first, with their synced bytes.
    full: Vec<(SegmentWriter, usize)>,
    /// Created ahead, so that a verb need not.
    spare: Option<SegmentWriter>,
    next_seq: u64,
    /// A file was created since the directory was last synced.
    new_files: bool,
    frame: FrameBuffer,
    records: u64,
    /// Bytes appended since the start; a place in the log that only grows.
    position: u64,
    /// The first segment that no snapshot contains.
    base_seq: u64,
    /// The segments from there on, without the active one: sequence and bytes.
    behind: Vec<(u64, u64)>,
    /// Bytes of the last snapshot taken in this run.
    snapshot_bytes: u64,
    /// No segment could be created; a snapshot may free space.
    starved: bool,
    last_error: Option<String>,
}

/// Where a shard's log goes on after replay.
#[derive(Clone, Debug)]
pub(crate) struct Continue {
    pub(crate) next_seq: u64,
    pub(crate) records: u64,
    pub(crate) base_seq: u64,
    pub(crate) behind: Vec<(u64, u64)>,
}

/// Ranges to sync; done without the shard's lock.
#[derive(Debug)]
pub(crate) struct SyncWork {
    ranges: Vec<(Arc<Mapped>, usize, usize)>,
    new_files: bool,
    /// Everything before it is on the disk once this is done.
    pub(crate) position: u64,
}

impl SyncWork {
    pub(crate) fn perform(&self, dir: &LogDir) -> io::Result<()> {
        for (mapped, from, to) in &self.ranges {
            mapped.sync(*from, *to)?;
        }
        if self.new_files { dir.sync() } else { Ok(()) }
    }
}

impl ShardLog {
    /// Opens a new segment behind what replay has read.
    pub(crate) fn start(dir: Arc<LogDir>, shard: u8, from: Continue) -> io::Result<Self> {
        let mut active = dir.create_first_segment(shard, from.next_seq)?;
        let mut frame = FrameBuffer::default();
        open_segment(&mut active, &mut frame, from.records);
        Ok(Self {
            dir,
            shard,
            active,
            synced: 0,
            full: Vec::new(),
            spare: None,
            next_seq: from.next_seq.saturating_add(1),
            new_files: true,
            frame,
            records: from.records,
            position: 0,
            base_seq: from.base_seq,
            behind: from.behind,
            snapshot_bytes: 0,
            starved: false,
            last_error: None,
        })
    }

    /// Starts a record and hands out where its payload goes.
    pub(crate) fn stage(&mut self, kind: Kind) -> &mut Vec<u8> {
        self.frame.start(kind)
    }

    /// Where the payload of the staged record goes on.
    pub(crate) fn staged(&mut self) -> &mut Vec<u8> {
        self.frame.payload()
    }

    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.frame.set_kind(kind);
    }

    /// Makes sure that a record of any size will fit. What is left of a segment that is too short for it is given up.
    pub(crate) fn hold_any(&mut self) -> Result<(), Full> {
        // The frame of the last record is no longer needed, and none is staged between verbs.
        let need = PAYLOAD_MAX + FRAME_HEAD;
        let rolled = if need <= self.active.room() { Ok(()) } else { self.roll() };
        rolled.and_then(|()| self.active.warm_up(need)).map_err(|error| self.starve(&error))
    }

    fn starve(&mut self, error: &io::Error) -> Full {
        self.last_error = Some(error.to_string());
        self.starved = true;
        Full
    }

    /// Makes sure that the staged record and `more` bytes will fit.
    pub(crate) fn hold_room(&mut self, more: usize) -> Result<(), Full> {
        let need = self.frame.len().saturating_add(more);
        if need > PAYLOAD_MAX + FRAME_HEAD {
            return Err(Full);
        }
        let rolled = if need <= self.active.room() { Ok(()) } else { self.roll() };
        rolled.and_then(|()| self.active.warm_up(need)).map_err(|error| self.starve(&error))
    }

    /// Writes the staged record. Room was held before.
    pub(crate) fn commit(&mut self) {
        let frame = self.frame.finish();
        let written = self.active.append(frame);
        // A record without room would be lost silently; `hold_room` has made that impossible.
        assert!(written, "a record was committed without room for it");
        self.position = self.position.saturating_add(frame.len() as u64);
        self.records = self.records.saturating_add(1);
    }

    fn roll(&mut self) -> io::Result<()> {
        let mut next = if let Some(spare) = self.spare.take() {
            spare
        } else {
            let made = self.dir.create_segment(self.shard, self.next_seq)?;
            self.next_seq = self.next_seq.saturating_add(1);
            self.new_files = true;
            made
        };
        // The staged record waits in `self.frame`; the first frame of a segment gets a buffer of its own.
        open_segment(&mut next, &mut FrameBuffer::default(), self.records);
        let full = std::mem::replace(&mut self.active, next);
        self.behind.push((full.mapped().seq, full.len() as u64));
        self.full.push((full, std::mem::take(&mut self.synced)));
        self.starved = false;
        Ok(())
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes on disk that the next start would replay.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_behind().saturating_add(self.active.len() as u64)
    }

    fn bytes_behind(&self) -> u64 {
        self.behind.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Why the last segment could not be created.
    pub(crate) fn last_error(&self) -> &str {
        self.last_error.as_deref().unwrap_or("a record is too long")
    }

    /// What is not on the disk yet, if anything.
    pub(crate) fn sync_work(&self) -> Option<SyncWork> {
        let full = self.full.iter().map(|(writer, synced)| (writer, *synced));
        let ranges: Vec<_> = full
            .chain([(&self.active, self.synced)])
            .filter(|(writer, synced)| writer.len() > *synced)
            .map(|(writer, synced)| (Arc::clone(writer.mapped()), synced, writer.len()))
            .collect();
        if ranges.is_empty() && !self.new_files {
            return None;
        }
        Some(SyncWork { ranges, new_files: self.new_files, position: self.position })
    }

    /// Notes that a sync was done.
    pub(crate) fn synced(&mut self, work: &SyncWork) {
        if work.new_files {
            self.new_files = false;
        }
        for (mapped, _, to) in &work.ranges {
            let full = self.full.iter_mut().map(|(writer, synced)| (writer, synced));
            for (writer, synced) in full.chain([(&mut self.active, &mut self.synced)]) {
                if Arc::ptr_eq(writer.mapped(), mapped) && *synced < *to {
                    *synced = *to;
                    writer.mark(*to);
                }
            }
        }
        self.full.retain(|(writer, synced)| writer.len() > *synced);
    }

    /// The sequence of a segment worth creating ahead.
    pub(crate) fn want_spare(&mut self) -> Option<u64> {
        let half = self.active.room() <= self.active.len();
        if self.spare.is_some() || !half {
            return None;
        }
        let seq = self.next_seq;
        self.next_seq = self.next_seq.saturating_add(1);
        Some(seq)
    }

    /// Takes a segment created ahead. One that comes too late is handed back: its place in the order has passed.
    pub(crate) fn put_spare(&mut self, spare: SegmentWriter) -> Option<SegmentWriter> {
        if self.spare.is_some() || spare.mapped().seq <= self.active.mapped().seq {
            return Some(spare);
        }
        self.new_files = true;
        self.spare = Some(spare);
        None
    }

    /// The segments a snapshot may take in: from, and up to but without. Worth it if they hold more than `bytes` and
    /// more than the last snapshot, or if any shard is starved.
    pub(crate) fn snapshot_span(&self, bytes: u64, starved: bool) -> Option<(u64, u64)> {
        let behind = self.bytes_behind();
        let worth = behind > bytes.max(self.snapshot_bytes) || (starved && behind > 0);
        worth.then_some((self.base_seq, self.active.mapped().seq))
    }

    /// No segment could be created for the last record that needed one.
    pub(crate) fn starved(&self) -> bool {
        self.starved
    }

    /// Notes that a snapshot of everything before `seq` is on the disk.
    pub(crate) fn snapshot_taken(&mut self, seq: u64, bytes: u64) {
        self.base_seq = seq;
        self.snapshot_bytes = bytes;
        self.behind.retain(|(behind, _)| *behind >= seq);
    }

    /// Syncs everything and cuts the files to what was written.
    pub(crate) fn close(self) -> io::Result<()> {
        for (writer, _) in self.full {
            writer.seal()?;
        }
        if let Some(spare) = self.spare {
            self.dir.remove_segment(&spare.mapped().path)?;
        }
        self.active.seal()?;
        self.dir.sync()
    }
}

/// Writes a segment's first frame: how many records came before it.
fn open_segment(segment: &mut SegmentWriter, frame: &mut FrameBuffer, records: u64) {
    let payload = frame.start(Kind::Open);
    Writer::new(payload).u64(records);
    let written = segment.append(frame.finish());
    assert!(written && segment.len() > HEADER, "a new segment has room for its first frame");
}
