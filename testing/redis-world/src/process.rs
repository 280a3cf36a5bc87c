//! Processes that cannot outlive the test's own, even when that is killed.
//!
//! The kernel kills a child when the *thread* that started it ends. Tests are threads that come and go, so all children
//! are started by one thread that stays until the process ends.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::fail;

/// Folder with the servers that `cargo xtask setup` has put there; set by the test runner.
const FOLDER_VARIABLE: &str = "TOLLBOOK_TEST_SERVERS";
/// Its name in the target folder.
const FOLDER: &str = "test-servers";
/// Sets the signal that a child gets at its parent's end, then becomes the program; in every Debian.
const WRAPPER: &str = "setpriv";

struct Job {
    command: Command,
    done: SyncSender<io::Result<Child>>,
}

/// Starts a program that dies with this process. What it writes goes to the file `log`.
pub fn start(program: &Path, args: &[String], folder: &Path, log: &Path) -> io::Result<Child> {
    let out = std::fs::File::options().create(true).append(true).open(log)?;
    let errors = out.try_clone()?;
    let mut command = Command::new(WRAPPER);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(args);
    command.current_dir(folder).stdin(Stdio::null()).stdout(out).stderr(errors);
    let (done, answer) = sync_channel(1);
    let gone = || io::Error::other("the thread that starts servers is gone");
    starter().send(Job { command, done }).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn starter() -> &'static SyncSender<Job> {
    static STARTER: OnceLock<SyncSender<Job>> = OnceLock::new();
    STARTER.get_or_init(|| {
        let (sender, jobs): (SyncSender<Job>, Receiver<Job>) = sync_channel(16);
        std::thread::spawn(move || {
            for mut job in jobs {
                // Who asked may have gone; then the child is dropped, and dies with this process.
                let child = job.command.spawn().map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => {
                        io::Error::other(format!("there is no {WRAPPER} (util-linux)"))
                    }
                    _ => error,
                });
                let _ = job.done.send(child);
            }
        });
        sender
    })
}

/// What setup has installed, else what the machine has.
pub fn find(name: &str) -> PathBuf {
    let folder = std::env::var_os(FOLDER_VARIABLE).map_or_else(beside_the_tests, PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(folder).chain(std::env::split_paths(&path));
    let found = places.map(|place| place.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| fail(&format!("there is no {name} for the tests; get it: cargo xtask setup")))
}

/// Tests lie in <target>/<profile>/deps.
fn beside_the_tests() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(3).unwrap_or(Path::new(".")).join(FOLDER)
}
