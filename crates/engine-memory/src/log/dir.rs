//! The directory of the log: names, the lock, the space taken.
//!
//! Files: `lock`; per shard `s<shard>-<seq>.log` (segments) and `s<shard>-<seq>.snap` (everything before segment
//! `seq`). A `.tmp` is a snapshot that was not finished; the next start removes it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::header::{FileKind, Header};
use super::segment::SegmentWriter;
use crate::error::OpenError;

/// One process's hold on a directory.
#[derive(Debug)]
pub(crate) struct LogDir {
    path: PathBuf,
    /// Held open: the lock ends with it.
    _lock: File,
    shards: u16,
    segment_bytes: usize,
    bytes_max: u64,
    bytes_taken: AtomicU64,
}

/// The files of one shard, by sequence.
#[derive(Default, Debug)]
pub(crate) struct ShardFiles {
    pub(crate) segments: Vec<(u64, PathBuf)>,
    pub(crate) snapshots: Vec<(u64, PathBuf)>,
}

impl LogDir {
    /// Takes the lock; creates the directory if it is not there.
    pub(crate) fn open(
        path: &Path,
        shards: u16,
        segment_bytes: usize,
        bytes_max: u64,
    ) -> Result<Self, OpenError> {
        let at = |source| OpenError::Io { path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(at)?;
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .map_err(at)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(at(source)),
        }
        let bytes_taken = AtomicU64::new(0);
        let mut dir =
            Self { path: path.to_owned(), _lock: lock, shards, segment_bytes, bytes_max, bytes_taken };
        dir.shards = dir.shards_found().map_err(at)?.unwrap_or(shards);
        Ok(dir)
    }

    /// How many shards the log in this directory has; fixed by its first file.
    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }

    pub(crate) fn bytes_taken(&self) -> u64 {
        self.bytes_taken.load(Ordering::Relaxed)
    }

    fn shards_found(&self) -> io::Result<Option<u16>> {
        for file in self.names()? {
            let Some((path, _, _)) = file else { continue };
            let bytes = read_head(&path)?;
            if let Ok((header, _)) = Header::decode(&bytes) {
                return Ok(Some(header.shards));
            }
        }
        Ok(None)
    }

    /// What is on the disk for each shard, in order; removes unfinished snapshots.
    pub(crate) fn scan(&self) -> io::Result<Vec<ShardFiles>> {
        let mut found: Vec<ShardFiles> = (0..self.shards).map(|_| ShardFiles::default()).collect();
        for (path, shard, name) in self.names()?.into_iter().flatten() {
            let Some(files) = found.get_mut(usize::from(shard)) else { continue };
            match name {
                Name::Segment(seq) => files.segments.push((seq, path)),
                Name::Snapshot(seq) => files.snapshots.push((seq, path)),
                Name::Unfinished => std::fs::remove_file(path)?,
            }
        }
        for files in &mut found {
            files.segments.sort();
            files.snapshots.sort();
        }
        Ok(found)
    }

    /// What is on the disk for one shard, in order. Leaves unfinished snapshots alone.
    pub(crate) fn scan_shard(&self, shard: u8) -> io::Result<ShardFiles> {
        let mut files = ShardFiles::default();
        for (path, _, name) in self.names()?.into_iter().flatten().filter(|(_, of, _)| *of == shard) {
            match name {
                Name::Segment(seq) => files.segments.push((seq, path)),
                Name::Snapshot(seq) => files.snapshots.push((seq, path)),
                Name::Unfinished => {}
            }
        }
        files.segments.sort();
        files.snapshots.sort();
        Ok(files)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> io::Result<Vec<Option<(PathBuf, u8, Name)>>> {
        std::fs::read_dir(&self.path)?
            .map(|file| {
                let path = file?.path();
                let parsed = path.file_name().and_then(|name| name.to_str()).and_then(Name::parse);
                Ok(parsed.map(|(shard, name)| (path, shard, name)))
            })
            .collect()
    }

    pub(crate) fn segment_path(&self, shard: u8, seq: u64) -> PathBuf {
        self.path.join(format!("s{shard:03}-{seq:010}.log"))
    }

    pub(crate) fn snapshot_path(&self, shard: u8, seq: u64) -> PathBuf {
        self.path.join(format!("s{shard:03}-{seq:010}.snap"))
    }

    pub(crate) fn header(&self, kind: FileKind, shard: u8, seq: u64) -> Header {
        Header { kind, shard, shards: self.shards, seq }
    }

    /// A new segment, unless the disk or the configured bound is full.
    pub(crate) fn create_segment(&self, shard: u8, seq: u64) -> io::Result<SegmentWriter> {
        let bytes = self.segment_bytes as u64;
        let taken = self.bytes_taken.fetch_add(bytes, Ordering::Relaxed);
        if taken.saturating_add(bytes) > self.bytes_max {
            self.give_back(bytes);
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the log's bound is reached"));
        }
        self.create_counted(shard, seq, bytes)
    }

    /// A shard's first segment of a run. The bound does not count: a full log must be able to start, or it could never
    /// be folded.
    pub(crate) fn create_first_segment(&self, shard: u8, seq: u64) -> io::Result<SegmentWriter> {
        let bytes = self.segment_bytes as u64;
        self.take(bytes);
        self.create_counted(shard, seq, bytes)
    }

    fn create_counted(&self, shard: u8, seq: u64, bytes: u64) -> io::Result<SegmentWriter> {
        let header = self.header(FileKind::Log, shard, seq);
        let made = SegmentWriter::create(&self.segment_path(shard, seq), &header, self.segment_bytes);
        if made.is_err() {
            self.give_back(bytes);
        }
        made
    }

    /// Counts space that a segment of an earlier run takes.
    pub(crate) fn take(&self, bytes: u64) {
        self.bytes_taken.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        // `fetch_update` cannot fail here: the closure always answers.
        let _previous = self
            .bytes_taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| Some(taken.saturating_sub(bytes)));
    }

    /// Makes the creation, renaming and removal of files durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Removes a segment and counts its space as free; its length.
    pub(crate) fn remove_segment(&self, path: &Path) -> io::Result<u64> {
        let bytes = std::fs::metadata(path)?.len();
        std::fs::remove_file(path)?;
        self.give_back(bytes);
        Ok(bytes)
    }
}

fn read_head(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut head = Vec::with_capacity(super::header::HEADER);
    File::open(path)?.take(super::header::HEADER as u64).read_to_end(&mut head)?;
    Ok(head)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    Segment(u64),
    Snapshot(u64),
    Unfinished,
}

impl Name {
    fn parse(name: &str) -> Option<(u8, Name)> {
        let (shard, rest) = name.strip_prefix('s')?.split_once('-')?;
        let shard = shard.parse().ok()?;
        let (seq, ending) = rest.split_once('.')?;
        let seq = seq.parse().ok()?;
        let name = match ending {
            "log" => Name::Segment(seq),
            "snap" => Name::Snapshot(seq),
            "tmp" => Name::Unfinished,
            _ => return None,
        };
        Some((shard, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, bytes_max: u64) -> Result<LogDir, OpenError> {
        LogDir::open(path, 16, 64 * 1024, bytes_max)
    }

    #[test]
    fn a_directory_has_one_owner() {
        let temp = tempfile::tempdir().unwrap();
        let first = open(temp.path(), u64::MAX).unwrap();
        assert!(matches!(open(temp.path(), u64::MAX), Err(OpenError::InUse { .. })));
        drop(first);
        open(temp.path(), u64::MAX).unwrap();
    }

    #[test]
    fn files_are_found_by_name_and_others_are_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let dir = open(temp.path(), u64::MAX).unwrap();
        drop(dir.create_segment(3, 12).unwrap());
        drop(dir.create_segment(3, 2).unwrap());
        std::fs::write(dir.snapshot_path(3, 2), b"").unwrap();
        std::fs::write(temp.path().join("s003-0000000007.tmp"), b"").unwrap();
        std::fs::write(temp.path().join("notes.txt"), b"").unwrap();
        std::fs::write(temp.path().join("s999-1.log"), b"").unwrap();
        let found = dir.scan().unwrap();
        let of_three = &found[3];
        assert_eq!(of_three.segments.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [2, 12]);
        assert_eq!(of_three.snapshots.len(), 1);
        assert!(!temp.path().join("s003-0000000007.tmp").exists());
        assert!(temp.path().join("notes.txt").exists());
    }

    #[test]
    fn the_bound_refuses_and_space_given_back_is_free_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = open(temp.path(), 2 * 64 * 1024).unwrap();
        drop(dir.create_segment(0, 1).unwrap());
        drop(dir.create_segment(0, 2).unwrap());
        assert_eq!(dir.create_segment(0, 3).unwrap_err().kind(), io::ErrorKind::StorageFull);
        dir.remove_segment(&dir.segment_path(0, 1)).unwrap();
        drop(dir.create_segment(0, 3).unwrap());
    }

    #[test]
    fn the_first_file_fixes_the_number_of_shards() {
        let temp = tempfile::tempdir().unwrap();
        let dir = LogDir::open(temp.path(), 4, 64 * 1024, u64::MAX).unwrap();
        drop(dir.create_segment(0, 1).unwrap());
        drop(dir);
        assert_eq!(open(temp.path(), u64::MAX).unwrap().shards(), 4);
    }
}
