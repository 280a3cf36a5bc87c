//! The built program as a process, with a folder of its own.
//!
//! Invariants: a `Gateway` that exists has answered `/readyz`; it never outlives its owner; its folder outlives restarts.
//! A program that does not start, or does not stop, is a panic with its log.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::config::{ADMIN_KEY, Config};
use crate::http::{self, Answer};

const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Path of the program under test; else it is looked for beside the test program.
const PROGRAM_VARIABLE: &str = "TOLLBOOK_BIN";

#[derive(Debug)]
pub struct Gateway {
    dir: TempDir,
    child: Option<Child>,
    addr: SocketAddr,
    admin: Option<SocketAddr>,
    starts: u32,
    config: PathBuf,
    options: &'static [&'static str],
}

/// What one limit's account stands at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub limit: String,
    pub posted: i64,
    pub held: i64,
}

impl Gateway {
    pub fn start(config: &Config) -> Self {
        let mut gateway = Self::prepare();
        gateway.configure(config);
        gateway.start_again();
        gateway
    }

    /// A folder without a file yet, and a program that was not started.
    pub fn prepare() -> Self {
        let dir = tempfile::tempdir().unwrap_or_else(|error| fail(&format!("no folder: {error}")));
        let config = dir.path().join("tollbook.yaml");
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { dir, child: None, addr, admin: None, starts: 0, config, options: &[] }
    }

    /// The file it is started with, from the next start on.
    pub fn set_config_file(&mut self, path: &str) {
        self.config = self.dir.path().join(path);
    }

    /// More words of the command line, from the next start on.
    pub fn set_options(&mut self, options: &'static [&'static str]) {
        self.options = options;
    }

    /// What clients are pointed at, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn config_file(&self) -> PathBuf {
        self.config.clone()
    }

    /// Writes another configuration in place.
    pub fn configure(&self, config: &Config) {
        let text = config.text(&self.data_dir());
        fs::write(self.config_file(), text).unwrap_or_else(|error| fail(&format!("no config: {error}")));
    }

    /// Puts another configuration in the file's place, in one step.
    pub fn replace_config(&self, config: &Config) {
        let beside = self.dir.path().join("tollbook.yaml.new");
        let written = fs::write(&beside, config.text(&self.data_dir()));
        let replaced = written.and_then(|()| fs::rename(&beside, self.config_file()));
        replaced.unwrap_or_else(|error| fail(&format!("no config: {error}")));
    }

    /// Number of the configuration in force.
    pub fn generation(&self) -> u64 {
        http::metric(&self.metrics(), "tollbook_config_generation", &[]).unwrap_or_default()
    }

    /// Waits until so many configurations have come in force.
    pub fn comes_to_generation(&self, number: u64) {
        if wait_for(START_LIMIT, || (self.generation() == number).then_some(())).is_none() {
            fail(&format!("generation is {}, not {number}", self.generation()));
        }
    }

    /// Starts on the same folder; the ports are new ones.
    pub fn start_again(&mut self) {
        self.starts = self.starts.saturating_add(1);
        let addr_file = self.dir.path().join(format!("addresses-{}.json", self.starts));
        let log = File::create(self.log_file()).unwrap_or_else(|error| fail(&format!("no log: {error}")));
        let errors = log.try_clone().unwrap_or_else(|error| fail(&format!("no log: {error}")));
        // A file that may not grow is an error to be told, not the end of the process.
        let child = Command::new("/bin/sh")
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(program())
            .arg("serve")
            .arg("-c")
            .arg(self.config_file())
            .arg("--addr-file")
            .arg(&addr_file)
            .args(self.options)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| fail(&format!("cannot start {}: {error}", program().display())));
        self.child = Some(child);
        let ready = wait_for(START_LIMIT, || {
            self.must_run();
            let (addr, admin) = read_addresses(&addr_file)?;
            let answer = http::get(addr, "/readyz", "").ok()?;
            (answer.status == 200).then_some((addr, admin))
        });
        match ready {
            Some((addr, admin)) => (self.addr, self.admin) = (addr, admin),
            None => fail(&format!("not ready in time\n{}", self.log())),
        }
    }

    fn must_run(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = ended {
            fail(&format!("the program ended: {status}\n{}", self.log()));
        }
    }

    /// Sends a signal and returns at once.
    pub fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // A process that has ended meanwhile needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// SIGTERM, and the orderly end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// SIGKILL: what a crash leaves behind.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        let Some(mut child) = self.child.take() else { fail("not running") };
        if let Some(status) = wait_for(STOP_LIMIT, || child.try_wait().ok().flatten()) {
            return status;
        }
        self.child = Some(child);
        fail(&format!("did not end in time\n{}", self.log()))
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join(format!("log-{}", self.starts))
    }

    /// What this start has written to its standard streams.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub fn post(&self, path: &str, api_key: &str, body: &Value) -> io::Result<Answer> {
        http::post(self.addr, path, api_key, body)
    }

    pub fn get(&self, path: &str, api_key: &str) -> io::Result<Answer> {
        http::get(self.addr, path, api_key)
    }

    pub fn metrics(&self) -> String {
        self.get("/metrics", "").map(|answer| answer.text()).unwrap_or_default()
    }

    /// On the operator's listener, with its key.
    pub fn admin_post(&self, path: &str, body: &Value) -> io::Result<Answer> {
        http::post(self.admin_addr()?, path, ADMIN_KEY, body)
    }

    pub fn admin_get(&self, path: &str) -> io::Result<Answer> {
        http::get(self.admin_addr()?, path, ADMIN_KEY)
    }

    /// Every account as the operators' page has it.
    pub fn accounts(&self) -> Vec<Account> {
        let page = self.admin_get("/admin/v1/accounts").map(|answer| answer.json()).unwrap_or_default();
        let Some(lines) = page.get("data").and_then(Value::as_array) else {
            fail(&format!("no accounts: {page}"));
        };
        let number = |line: &Value, name| line.get(name).and_then(Value::as_i64);
        let account = |line: &Value| Account {
            limit: line.get("limit").and_then(Value::as_str).unwrap_or_default().to_owned(),
            posted: number(line, "posted").unwrap_or_default(),
            held: number(line, "held").unwrap_or_default(),
        };
        lines.iter().map(account).collect()
    }

    pub fn admin_addr(&self) -> io::Result<SocketAddr> {
        self.admin.ok_or_else(|| io::Error::other("no operator's listener"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            use std::io::Write as _;
            let _ = writeln!(io::stderr(), "--- log of the gateway ---\n{}", self.log());
        }
    }
}

/// `tollbook` with these arguments, run to its end.
pub fn run(args: &[&str]) -> std::process::Output {
    Command::new(program())
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| fail(&format!("cannot start {}: {error}", program().display())))
}

/// The program under test.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return path.into();
    }
    // Tests lie in <target>/<profile>/deps, programs one folder up.
    let beside = std::env::current_exe().ok();
    let folder = beside.as_deref().and_then(Path::parent).and_then(Path::parent);
    let path = folder.unwrap_or(Path::new(".")).join("tollbook");
    if !path.exists() {
        fail(&format!("{} is missing; build it: cargo build --bin tollbook", path.display()));
    }
    path
}

/// Asks until there is an answer, for at most `limit`.
pub fn wait_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "a test's own thread, between two looks at another process"
        )]
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The public and the operator's address, once the file is whole.
fn read_addresses(file: &Path) -> Option<(SocketAddr, Option<SocketAddr>)> {
    let value: Value = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
    let object = value.as_object()?;
    let parse = |value: &Value| {
        let text = value.as_str()?;
        text.strip_prefix("http://").unwrap_or(text).parse::<SocketAddr>().ok()
    };
    let admin = object.get("admin").and_then(parse);
    let public = object.iter().filter(|(name, _)| *name != "admin").find_map(|(_, value)| parse(value))?;
    Some((public, admin))
}

#[allow(clippy::panic, reason = "test code: a panic is a failed test")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}
