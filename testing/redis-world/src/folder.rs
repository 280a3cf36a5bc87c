//! Folders of servers. They go with their server; those of a process that was killed, or that never dropped its servers,
//! go when the next one makes its first.

use std::fs;
use std::path::Path;
use std::sync::Once;

use tempfile::TempDir;

use crate::fail;

/// Followed by the number of the process it belongs to.
const PREFIX: &str = "tollbook-servers-";

/// A folder that goes with its server.
pub fn new() -> TempDir {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep(&std::env::temp_dir()));
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let made = tempfile::Builder::new().prefix(&prefix).tempdir();
    made.unwrap_or_else(|error| fail(&format!("no folder: {error}")))
}

/// Removes the folders of processes that are no more. Their servers ended with them.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let is_over = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
        if owner.is_some_and(is_over) {
            // Another process may be at it too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_go_and_others_stay() {
        let place = tempfile::tempdir().unwrap();
        // No process has such a number.
        let dead = place.path().join(format!("{PREFIX}{}-x", u32::MAX));
        let living = place.path().join(format!("{PREFIX}{}-x", std::process::id()));
        let other = place.path().join("other");
        for folder in [&dead, &living, &other] {
            fs::create_dir(folder).unwrap();
        }
        sweep(place.path());
        assert_eq!([&dead, &living, &other].map(|folder| folder.exists()), [false, true, true]);
    }
}
