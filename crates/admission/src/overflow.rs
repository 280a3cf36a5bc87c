//! Vouchers on disk that found no room in memory: where each lies, and no more of it in memory.
//!
//! Invariants: what is read is what was written, or nothing (length, checksum). Bounded in bytes of all its files; a file of
//! which nothing is needed any more is gone. It serves the process that wrote it: what an earlier one left is removed.
//! When the disk cannot be written or is full: nothing is put, and the caller tells it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From this size on another file is begun.
const FILE_BYTES: u64 = 16 << 20;
const NAME: &str = "vouchers-";
const ENDING: &str = ".spill";

/// Where something lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    file: u64,
    at: u64,
    length: u32,
    crc: u32,
}

/// The files of one gateway.
#[derive(Debug)]
pub(crate) struct Overflow {
    dir: PathBuf,
    bytes_max: u64,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    all: BTreeMap<u64, Part>,
    next: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Part {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// How much of it is needed.
    extents: u64,
}

impl Overflow {
    pub(crate) fn open(dir: &Path, bytes_max: u64) -> io::Result<Self> {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(NAME) && name.ends_with(ENDING) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(Self { dir: dir.to_owned(), bytes_max, files: Mutex::default() })
    }

    /// Nothing where there is no room.
    pub(crate) fn put(&self, bytes: &[u8]) -> io::Result<Option<Extent>> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut files = self.files();
        if files.bytes.saturating_add(u64::from(length)) > self.bytes_max {
            return Ok(None);
        }
        let (file, part) = files.last(&self.dir)?;
        let at = part.bytes;
        // What is written in part is written over.
        part.file.write_all_at(bytes, at)?;
        part.bytes += u64::from(length);
        part.extents += 1;
        files.bytes += u64::from(length);
        Ok(Some(Extent { file, at, length, crc: crc32fast::hash(bytes) }))
    }

    pub(crate) fn get(&self, extent: Extent) -> io::Result<Vec<u8>> {
        let files = self.files();
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let part = files.all.get(&extent.file).ok_or_else(gone)?;
        let mut bytes = vec![0; usize::try_from(extent.length).map_err(io::Error::other)?];
        part.file.read_exact_at(&mut bytes, extent.at)?;
        if crc32fast::hash(&bytes) == extent.crc {
            Ok(bytes)
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidData))
        }
    }

    /// It is not needed any more.
    pub(crate) fn remove(&self, extent: Extent) {
        let mut files = self.files();
        let Some(part) = files.all.get_mut(&extent.file) else { return };
        part.extents = part.extents.saturating_sub(1);
        if part.extents == 0
            && let Some(gone) = files.all.remove(&extent.file)
        {
            files.bytes = files.bytes.saturating_sub(gone.bytes);
            // One that stays is removed at the next start.
            let _ = std::fs::remove_file(gone.path);
        }
    }

    /// Bytes of its files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files().bytes
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    /// The file that is written at its end.
    fn last(&mut self, dir: &Path) -> io::Result<(u64, &mut Part)> {
        let has_room = self.all.last_key_value().is_some_and(|(_, part)| part.bytes < FILE_BYTES);
        if !has_room {
            let path = dir.join(format!("{NAME}{}{ENDING}", self.next));
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
            self.all.insert(self.next, Part { file, path, bytes: 0, extents: 0 });
            self.next += 1;
        }
        let last = self.all.last_entry().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok((*last.key(), last.into_mut()))
    }
}

impl Drop for Overflow {
    fn drop(&mut self) {
        for part in self.files().all.values() {
            let _ = std::fs::remove_file(&part.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(dir: &Path) -> usize {
        std::fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn what_was_put_is_read_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let overflow = Overflow::open(dir.path(), 1 << 20).unwrap();
        let put = |text: &str| overflow.put(text.as_bytes()).unwrap().unwrap();
        let (one, two) = (put("one"), put("two"));
        assert_eq!(overflow.get(one).unwrap(), b"one");
        assert_eq!(overflow.get(two).unwrap(), b"two");
        overflow.remove(one);
        assert_eq!((overflow.get(two).unwrap(), count(dir.path())), (b"two".to_vec(), 1));
        overflow.remove(two);
        assert!(overflow.get(two).is_err());
        assert_eq!((overflow.bytes(), count(dir.path())), (0, 0));
        // Files are not mixed up.
        let three = put("one");
        assert!(overflow.get(one).is_err());
        assert_eq!(overflow.get(three).unwrap(), b"one");
    }

    #[test]
    fn it_is_full_at_its_bound_and_has_room_again() {
        let dir = tempfile::tempdir().unwrap();
        let overflow = Overflow::open(dir.path(), 2 * FILE_BYTES).unwrap();
        let half = vec![7; usize::try_from(FILE_BYTES / 2).unwrap()];
        let extents: Vec<Extent> = (0..4).map(|_| overflow.put(&half).unwrap().unwrap()).collect();
        assert_eq!((overflow.bytes(), count(dir.path())), (2 * FILE_BYTES, 2));
        assert_eq!(overflow.put(b"x").unwrap(), None);
        overflow.remove(extents[0]);
        assert_eq!(overflow.put(b"x").unwrap(), None);
        overflow.remove(extents[1]);
        assert_eq!((overflow.bytes(), count(dir.path())), (FILE_BYTES, 1));
        assert!(overflow.put(&half).unwrap().is_some() && overflow.get(extents[3]).unwrap() == half);
    }

    #[test]
    fn what_is_damaged_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let overflow = Overflow::open(dir.path(), 1 << 20).unwrap();
        let extent = overflow.put(b"whole").unwrap().unwrap();
        let path = dir.path().join("vouchers-0.spill");
        std::fs::write(&path, b"whose").unwrap();
        assert!(overflow.get(extent).is_err());
        std::fs::write(&path, b"who").unwrap();
        assert!(overflow.get(extent).is_err());
    }

    #[test]
    fn what_an_earlier_run_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["vouchers-3.spill", "settle.spool", "vouchers.txt"] {
            std::fs::write(dir.path().join(name), b"x").unwrap();
        }
        let overflow = Overflow::open(dir.path(), 1 << 20).unwrap();
        assert_eq!(count(dir.path()), 2);
        overflow.put(b"x").unwrap().unwrap();
        drop(overflow);
        assert_eq!(count(dir.path()), 2);
    }
}
