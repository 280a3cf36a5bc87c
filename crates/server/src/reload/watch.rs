//! Sees that the configuration's files have changed, and whether somebody is still writing to one.
//!
//! Folders are watched, not files, because files are replaced. What counts is one number that rises with every event on
//! a name that matters, and the names that were written to and not closed since; so nothing queues up.
//! When the system gives no events (a network file system, no watches left): the caller's poll is what remains.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, Event, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _, WatcherKind};
use tokio::sync::watch;
use tokio::time::Instant;

use super::chain;

/// What has been seen so far.
#[derive(Clone, Default, Debug)]
struct Seen {
    changes: u64,
    /// Written to, and not closed since.
    writing: BTreeSet<PathBuf>,
}

/// Names that matter, shared with the thread that gets the events.
type Names = Arc<Mutex<BTreeSet<PathBuf>>>;

/// Watches the folders of a few files.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    names: Names,
    /// Folders watched, with what they were then: one that was made anew has to be watched anew.
    folders: BTreeMap<PathBuf, (u64, u64)>,
    seen: watch::Receiver<Seen>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let names = Names::default();
        let (sender, seen) = watch::channel(Seen::default());
        let handler = {
            let names = Arc::clone(&names);
            move |event: notify::Result<Event>| {
                let names = names.lock().unwrap_or_else(PoisonError::into_inner);
                sender.send_if_modified(|seen| note(seen, &names, event));
            }
        };
        let watcher = notify::recommended_watcher(handler);
        let watcher = watcher
            .inspect_err(|error| tracing::warn!(%error, "files cannot be watched; they are looked at from time to time"))
            .ok();
        Self { watcher, names, folders: BTreeMap::new(), seen }
    }

    /// Watches what these files depend on now, and nothing else.
    pub(super) fn follow(&mut self, files: &[PathBuf]) {
        let names: BTreeSet<PathBuf> = files.iter().flat_map(|file| chain::names(file)).collect();
        let folders: BTreeMap<PathBuf, (u64, u64)> = names
            .iter()
            .filter_map(|name| name.parent())
            .filter_map(|folder| Some((folder.to_owned(), identity(folder)?)))
            .collect();
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
        let Some(watcher) = &mut self.watcher else { return };
        for (folder, was) in &self.folders {
            if folders.get(folder) != Some(was) {
                // It may be gone, and its watch with it.
                let _ = watcher.unwatch(folder);
            }
        }
        let new = folders.iter().filter(|(folder, is)| self.folders.get(*folder) != Some(*is));
        let mut failed = Vec::new();
        for (folder, _) in new {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "a folder cannot be watched; its files are looked at from time to time");
                failed.push(folder.clone());
            }
        }
        self.folders = folders;
        for folder in failed {
            self.folders.remove(&folder);
        }
    }

    /// The number of events so far.
    pub(super) fn mark(&self) -> u64 {
        self.seen.borrow().changes
    }

    /// Returns once there were more events than `mark`.
    pub(super) async fn changed(&self, mark: u64) {
        wait(self.seen.clone(), |seen| seen.changes != mark).await;
    }

    /// Returns once nobody writes and nothing has happened for `pause`; at the latest `patience` after the last writer
    /// has closed. The number of events by then.
    pub(super) async fn quiet(&self, pause: Duration, patience: Duration) -> u64 {
        let mut seen = self.seen.clone();
        let mut end = None;
        loop {
            if !seen.borrow_and_update().writing.is_empty() {
                end = None;
                wait(seen.clone(), |seen| seen.writing.is_empty()).await;
                continue;
            }
            let end = *end.get_or_insert_with(|| Instant::now() + patience);
            let left = end.saturating_duration_since(Instant::now()).min(pause);
            if tokio::time::timeout(left, seen.changed()).await.is_err() {
                return self.mark();
            }
        }
    }
}

/// Waits for a state; for ever where nobody can tell of one.
async fn wait(mut seen: watch::Receiver<Seen>, reached: impl FnMut(&Seen) -> bool) {
    if seen.wait_for(reached).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Takes an event in; false if it does not matter.
fn note(seen: &mut Seen, names: &BTreeSet<PathBuf>, event: notify::Result<Event>) -> bool {
    let Ok(event) = event else {
        // Events were lost: what is open is not known any more.
        seen.writing.clear();
        seen.changes = seen.changes.wrapping_add(1);
        return true;
    };
    if event.need_rescan() {
        seen.writing.clear();
        seen.changes = seen.changes.wrapping_add(1);
        return true;
    }
    let closed = matches!(event.kind, EventKind::Access(AccessKind::Close(AccessMode::Write)));
    if matches!(event.kind, EventKind::Access(_)) && !closed {
        // Somebody read it; most often this process.
        return false;
    }
    let written = matches!(event.kind, EventKind::Modify(ModifyKind::Data(_))) && tells_closes();
    let mut matters = false;
    for path in event.paths.iter().filter(|path| names.contains(*path) || is_folder(names, path)) {
        matters = true;
        if written {
            seen.writing.insert(path.clone());
        } else if !matches!(event.kind, EventKind::Modify(ModifyKind::Metadata(_))) {
            // Closed, or another file has its name now.
            seen.writing.remove(path);
        }
    }
    if matters {
        seen.changes = seen.changes.wrapping_add(1);
    }
    matters
}

/// An event on a watched folder itself: it was moved or removed.
fn is_folder(names: &BTreeSet<PathBuf>, path: &Path) -> bool {
    names.iter().any(|name| name.parent() == Some(path))
}

/// Whether the system tells when a file that was written to is closed.
fn tells_closes() -> bool {
    RecommendedWatcher::kind() == WatcherKind::Inotify
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(folder).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// What files look like from outside; another look differs if one was replaced or written to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Look(Vec<Option<[i128; 5]>>);

impl Look {
    pub(super) fn at(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|file| std::fs::metadata(file).ok().map(|meta| traits(&meta))).collect())
    }
}

fn traits(meta: &std::fs::Metadata) -> [i128; 5] {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    [
        i128::from(meta.dev()),
        i128::from(meta.ino()),
        i128::from(meta.size()),
        nanos(meta.mtime(), meta.mtime_nsec()),
        nanos(meta.ctime(), meta.ctime_nsec()),
    ]
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("folders", &self.folders).finish_non_exhaustive()
    }
}
