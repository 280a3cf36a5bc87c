//! One file of the log, preallocated and mapped into memory. The only unsafe code of the room.
//!
//! Invariants: one [`SegmentWriter`] per file, the only one that writes; whoever holds the [`Mapped`] part may sync it
//! at any time. The disk space is allocated before the file is mapped, so a full disk is an error of `create` and not a
//! signal later. What is copied into the map survives the end of the process without a system call; it survives a
//! power cut once it is synced. Nobody else may shorten the file while it is mapped: the directory's lock says so.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};

use super::header::{HEADER, Header, MARK_AT, Mark};

/// The part of a segment that others may see while it is written.
#[derive(Debug)]
pub(crate) struct Mapped {
    map: MmapRaw,
    file: File,
    pub(crate) path: PathBuf,
    pub(crate) seq: u64,
}

impl Mapped {
    /// Writes the pages of a range to the disk and waits for it.
    pub(crate) fn sync(&self, from: usize, to: usize) -> io::Result<()> {
        self.let_go(from)?;
        self.map.flush_range(from, to.saturating_sub(from))
    }

    /// Takes the pages from a place on out of this process's memory; they stay, dirty, in the page cache. Otherwise every
    /// segment would count as ours, and the sync would have to tell all cores of each page that it cleans. The next copy
    /// finds its page again by a fault, one per sync and shard.
    fn let_go(&self, from: usize) -> io::Result<()> {
        let from = from / PAGE * PAGE;
        // SAFETY: the map is shared and of a file, so its pages keep what was copied into them when they leave this
        // process's page table; a later access finds them again. No Rust reference into the map exists.
        #[allow(unsafe_code, reason = "the only way to give mapped pages back")]
        unsafe {
            self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, self.size().saturating_sub(from))
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.map.len()
    }
}

/// The one who appends to a segment.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    mapped: Arc<Mapped>,
    /// Bytes written, the header included.
    len: usize,
    /// Bytes that are in the page cache; never behind `len`.
    warm: usize,
}

/// How much is brought into the page cache at a time. Writing zeros over a stretch costs a sixth of what the page
/// faults of reading it would, the more so the longer it is; 256 KiB take some 50 µs.
const WARM: usize = 256 * 1024;
/// No page is smaller; where pages are larger, the map rounds the start down.
const PAGE: usize = 4096;
static ZEROS: [u8; WARM] = [0; WARM];

impl SegmentWriter {
    /// Creates, allocates and maps a new file with its header.
    pub(crate) fn create(path: &Path, header: &Header, size: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let made = allocate(&file, size)
            .and_then(|()| write_zeros(&file, 0, size.min(WARM)))
            .and_then(|()| file.write_all_at(&header.encode(), 0))
            .and_then(|()| MmapOptions::new().len(size).map_raw(&file));
        match made {
            Ok(map) => {
                let mapped = Arc::new(Mapped { map, file, path: path.to_owned(), seq: header.seq });
                Ok(Self { mapped, len: HEADER, warm: size.min(WARM) })
            }
            Err(error) => {
                // Half a segment is of no use; the next attempt starts anew. A failed removal shows at that attempt.
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    pub(crate) fn mapped(&self) -> &Arc<Mapped> {
        &self.mapped
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn room(&self) -> usize {
        self.mapped.size().saturating_sub(self.len)
    }

    /// Brings the next `bytes` into the page cache, so that copying them is no chain of page faults.
    pub(crate) fn warm_up(&mut self, bytes: usize) -> io::Result<()> {
        let wanted = self.len.saturating_add(bytes).min(self.mapped.size());
        while self.warm < wanted {
            // Behind everything that was copied: only this writer copies, and it copies below `warm`.
            let stretch = self.mapped.size().saturating_sub(self.warm).min(WARM);
            write_zeros(&self.mapped.file, self.warm, stretch)?;
            self.warm += stretch;
        }
        Ok(())
    }

    /// Copies one frame behind the last one; false if there is no room, and then nothing was written.
    #[must_use]
    pub(crate) fn append(&mut self, frame: &[u8]) -> bool {
        let fits = self.copy(self.len, frame);
        if fits {
            self.len += frame.len();
        }
        fits
    }

    /// Notes that everything before `len` is on the disk. Written through the file, so that the first page need not be
    /// mapped for it; without the mark the next start only calls less of the log proven.
    pub(crate) fn mark(&mut self, len: usize) {
        let _outcome = self.mapped.file.write_all_at(&Mark::at(len).encode(), MARK_AT as u64);
    }

    #[allow(unsafe_code, reason = "a copy into mapped pages survives kill -9 without a system call")]
    fn copy(&mut self, at: usize, bytes: &[u8]) -> bool {
        let fits = at.checked_add(bytes.len()).is_some_and(|end| end <= self.mapped.size());
        if fits {
            // SAFETY: `at + bytes.len() <= size`, so the target lies inside the live, writable map; `bytes` is a Rust
            // slice and cannot overlap it, because no slice of the map is ever handed out. `&mut self` on the only
            // writer excludes a second copy at the same time; others only ask the kernel to sync pages. The file is as
            // long as the map (allocated in `create`, shortened only in `seal`, which takes the map down first).
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    self.mapped.map.as_mut_ptr().add(at),
                    bytes.len(),
                );
            }
        }
        fits
    }

    /// Syncs, marks all of it, and cuts the file to what was written. Of use only when nobody else holds the map.
    pub(crate) fn seal(mut self) -> io::Result<()> {
        self.mapped.sync(0, self.len)?;
        self.mark(self.len);
        self.mapped.sync(0, HEADER)?;
        let len = self.len as u64;
        match Arc::try_unwrap(self.mapped) {
            Ok(Mapped { map, file, .. }) => {
                drop(map);
                file.set_len(len)?;
                file.sync_all()
            }
            // A sync still runs: the zeros behind the last frame stay, which replay reads as the end.
            Err(_shared) => Ok(()),
        }
    }
}

/// Takes the disk space now.
fn allocate(file: &File, size: usize) -> io::Result<()> {
    use rustix::io::Errno;
    let len = size as u64;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(()),
        // File systems without the call: writing zeros takes the space as well.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => write_zeros(file, 0, size),
        Err(error) => Err(error.into()),
    }
}

fn write_zeros(file: &File, mut at: usize, len: usize) -> io::Result<()> {
    let end = at.saturating_add(len);
    while at < end {
        let zeros = ZEROS.get(..end.saturating_sub(at).min(WARM)).unwrap_or_default();
        file.write_all_at(zeros, at as u64)?;
        at += zeros.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::header::FileKind;

    fn header() -> Header {
        Header { kind: FileKind::Log, shard: 3, shards: 16, seq: 9 }
    }

    #[test]
    fn what_is_appended_is_in_the_file_and_a_full_segment_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut writer = SegmentWriter::create(&path, &header(), 4096).unwrap();
        assert!(writer.append(b"hello"));
        assert!(!writer.append(&[1; 4096]));
        assert_eq!(writer.len(), HEADER + 5);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(&bytes[HEADER..HEADER + 6], b"hello\0");
        assert!(writer.append(&[7; 4096 - HEADER - 5]));
        assert_eq!(writer.room(), 0);
        writer.seal().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
    }

    #[test]
    fn warming_up_leaves_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut writer = SegmentWriter::create(&path, &header(), 3 * WARM + 100).unwrap();
        let frame = [9; 1000];
        let mut frames = 0;
        while writer.room() >= frame.len() {
            writer.warm_up(frame.len()).unwrap();
            assert!(writer.append(&frame));
            frames += 1;
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(Header::decode(&bytes), Ok((header(), HEADER)));
        assert!(bytes[HEADER..HEADER + frames * 1000].iter().all(|byte| *byte == 9));
        assert!(bytes[HEADER + frames * 1000..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_sealed_segment_is_cut_and_marked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut writer = SegmentWriter::create(&path, &header(), 1 << 20).unwrap();
        assert!(writer.append(b"abc"));
        writer.seal().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), HEADER + 3);
        assert_eq!(Header::decode(&bytes), Ok((header(), HEADER + 3)));
    }

    #[test]
    fn a_file_that_exists_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        std::fs::write(&path, b"mine").unwrap();
        assert!(SegmentWriter::create(&path, &header(), 4096).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn zeros_take_the_whole_space() {
        let file = tempfile::tempfile().unwrap();
        write_zeros(&file, 0, 600_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 600_000);
    }
}
