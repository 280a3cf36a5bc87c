//! Compares ways to append a record so that it survives `kill -9`: a copy into mapped pages (allocated only; brought
//! into the page cache by writing zeros ahead, 64 KiB or 256 KiB at a time), write(2), and write(2) per 16 records.
//! Each syncs every 50 ms in a second thread. Prints time on a core per record.
//!
//! `cargo run --release -p tollbook-engine-memory --example append_ways [records]`

#![allow(
    unsafe_code,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measuring program"
)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};

const RECORD: usize = 400;
const SEGMENT: usize = 8 * 1024 * 1024;

fn main() {
    let records = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2_000_000);
    let dir = std::env::temp_dir().join(format!("tollbook-append-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let record = vec![0x5a; RECORD];
    for _ in 0..2 {
        mapped(&dir, &record, records, 0);
        mapped(&dir, &record, records, 64 * 1024);
        mapped(&dir, &record, records, 256 * 1024);
        written(&dir, &record, records, 1);
        written(&dir, &record, records, 16);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Time this thread has spent on a core.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn create(dir: &Path, n: usize) -> (PathBuf, File) {
    let path = dir.join(format!("{n}.log"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SEGMENT as u64).unwrap();
    (path, file)
}

/// Runs `work` beside a thread that syncs what `work` hands it.
fn beside_sync<S: Send + Sync + 'static>(
    sync: impl Fn(&S) + Send + 'static,
    work: impl FnOnce(&dyn Fn(Arc<S>)),
) {
    let current: Arc<std::sync::Mutex<Option<Arc<S>>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let syncer = thread::spawn({
        let (current, stop) = (current.clone(), stop.clone());
        move || {
            while !stop.load(Ordering::Acquire) {
                thread::park_timeout(Duration::from_millis(50));
                let target = current.lock().unwrap().clone();
                if let Some(target) = target {
                    sync(&target);
                }
            }
        }
    });
    work(&|target| *current.lock().unwrap() = Some(target));
    stop.store(true, Ordering::Release);
    syncer.thread().unpark();
    syncer.join().unwrap();
}

fn print(name: &str, began: u64, records: usize) {
    println!("{name}: {} ns per record", (cpu_nanos() - began) / records as u64);
}

fn mapped(dir: &Path, record: &[u8], records: usize, ahead: usize) {
    let zeros = vec![0; ahead];
    beside_sync(
        |map: &MmapRaw| map.flush().unwrap(),
        |target| {
            let began = cpu_nanos();
            let (mut n, mut at) = (0, SEGMENT);
            let (mut open, mut warm) = (None, 0);
            for _ in 0..records {
                if at + RECORD > SEGMENT {
                    let (path, file) = create(dir, n);
                    let new = Arc::new(MmapOptions::new().len(SEGMENT).map_raw(&file).unwrap());
                    target(new.clone());
                    (open, at, n, warm) = (Some((new, file)), 0, n + 1, 0);
                    // The disk of a measuring machine is not to be filled.
                    std::fs::remove_file(path).unwrap();
                }
                let (map, file) = open.as_ref().unwrap();
                while ahead > 0 && warm < at + RECORD {
                    file.write_all_at(&zeros, warm as u64).unwrap();
                    warm += ahead;
                }
                // SAFETY: inside the map (checked above); nobody else writes.
                unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), map.as_mut_ptr().add(at), RECORD) };
                at += RECORD;
            }
            print(&format!("mapped pages, {ahead} bytes ahead"), began, records);
        },
    );
}

fn written(dir: &Path, record: &[u8], records: usize, batch: usize) {
    beside_sync(
        |file: &File| file.sync_data().unwrap(),
        |target| {
            let began = cpu_nanos();
            let (mut n, mut at) = (0, SEGMENT);
            let mut file = None;
            let mut buffer = Vec::with_capacity(batch * RECORD);
            for _ in 0..records {
                if at + RECORD > SEGMENT {
                    let (path, new) = create(dir, n);
                    let new = Arc::new(new);
                    target(new.clone());
                    (file, at, n) = (Some(new), 0, n + 1);
                    std::fs::remove_file(path).unwrap();
                }
                buffer.extend_from_slice(record);
                at += RECORD;
                if buffer.len() == batch * RECORD {
                    let mut file: &File = file.as_ref().unwrap();
                    file.write_all(&buffer).unwrap();
                    buffer.clear();
                }
            }
            print(&format!("write(2) per {batch}"), began, records);
        },
    );
}
