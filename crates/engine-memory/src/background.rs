//! The engine's own threads: one syncs and prunes, one takes snapshots, so that a long snapshot delays no sync.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::engine::Inner;

const PRUNE_EVERY: Duration = Duration::from_millis(100);
const SNAPSHOT_EVERY: Duration = Duration::from_millis(100);

/// Running threads; dropping stops them and waits for them.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    syncer: Option<JoinHandle<()>>,
    snapshots: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(inner: &Arc<Inner>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let every = inner.options.sync_every;
        let mut started = Self { stop: Arc::clone(&stop), syncer: None, snapshots: None };
        started.syncer = Some(spawn("tollbook-sync", inner, &stop, every, {
            let mut pruned = Instant::now();
            move |inner| {
                inner.sync_all();
                if pruned.elapsed() >= PRUNE_EVERY {
                    pruned = Instant::now();
                    inner.prune();
                }
            }
        })?);
        if inner.dir.is_some() {
            started.snapshots =
                Some(spawn("tollbook-snap", inner, &stop, SNAPSHOT_EVERY, Inner::snapshot_all)?);
        }
        Ok(started)
    }

    /// Someone waits for the disk.
    pub(crate) fn wake(&self) {
        if let Some(syncer) = &self.syncer {
            syncer.thread().unpark();
        }
    }
}

fn spawn(
    name: &str,
    inner: &Arc<Inner>,
    stop: &Arc<AtomicBool>,
    every: Duration,
    mut work: impl FnMut(&Inner) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // Weak: the threads must not keep an engine alive that nobody uses any more.
    let inner: Weak<Inner> = Arc::downgrade(inner);
    let stop = Arc::clone(stop);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        while !stop.load(Ordering::Acquire) {
            let Some(inner) = inner.upgrade() else { return };
            work(&inner);
            drop(inner);
            if !stop.load(Ordering::Acquire) {
                thread::park_timeout(every);
            }
        }
    })
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in [self.syncer.take(), self.snapshots.take()].into_iter().flatten() {
            thread.thread().unpark();
            // A thread that panicked has poisoned its shard; the verbs say so.
            let _outcome = thread.join();
        }
    }
}
