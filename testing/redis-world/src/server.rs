//! One server as a process, with a port and a folder of its own.
//!
//! Invariants: a `Server` that exists has answered; its port and its folder outlive restarts; it is killed when this is
//! dropped and when the test's process ends. One that does not start, or does not stop, is a panic with its log.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::ports::{self, Port};
use crate::resp::{Client, Reply};
use crate::{fail, folder, process, wait_for};

const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Longest a reply is waited for.
const REPLY_LIMIT: Duration = Duration::from_secs(10);
/// The same while it starts: who is not there yet is asked again.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// How a server is to be started.
#[derive(Debug, Clone)]
pub struct Plan {
    program: &'static str,
    config: String,
    /// The user that this crate's own questions come from.
    user: Option<(String, String)>,
    is_sentinel: bool,
    has_bus: bool,
    has_tls: bool,
}

impl Plan {
    pub fn redis() -> Self {
        Self::of("redis-server")
    }

    pub fn valkey() -> Self {
        Self::of("valkey-server")
    }

    fn of(program: &'static str) -> Self {
        let config = String::from("save \"\"\nappendonly no\nrepl-diskless-sync-delay 0\n");
        Self { program, config, user: None, is_sentinel: false, has_bus: false, has_tls: false }
    }

    /// One more line of its configuration; the last one of a name counts.
    pub fn line(mut self, line: &str) -> Self {
        // Writing to a string cannot fail.
        let _ = writeln!(self.config, "{line}");
        self
    }

    /// What it has acknowledged survives `kill -9`.
    pub fn aof(self) -> Self {
        self.line("appendonly yes").line("appendfsync always")
    }

    /// It refuses what would need more memory.
    pub fn memory_max(self, bytes: u64) -> Self {
        self.line(&format!("maxmemory {bytes}")).line("maxmemory-policy noeviction")
    }

    /// What it has saved takes so long per key to load, and it answers meanwhile.
    pub fn loads_slowly(self, per_key: Duration) -> Self {
        let delay = format!("key-load-delay {}", per_key.as_micros());
        self.line(&delay).line("loading-process-events-interval-bytes 1024")
    }

    /// Only this user may do anything.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some((name.to_owned(), password.to_owned()));
        self.line("user default off").line(&format!("user {name} on >{password} ~* &* +@all"))
    }

    /// It also listens for TLS, with a certificate that is its own authority, and asks other servers over it.
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.has_tls = true;
        let (certificate, key) = (certificate.display(), key.display());
        self.line(&format!("tls-cert-file {certificate}\ntls-ca-cert-file {certificate}\ntls-key-file {key}"))
            .line("tls-auth-clients no\ntls-replication yes")
    }

    pub fn replica_of(self, primary: &Server) -> Self {
        let port = primary.peer_port();
        self.line(&format!("replicaof 127.0.0.1 {port}"))
    }

    pub(crate) fn sentinel(&self) -> Self {
        let config = self.config.split_inclusive('\n').filter(|line| line.starts_with("tls-")).collect();
        Self { config, user: None, is_sentinel: true, ..self.clone() }
    }

    pub(crate) fn cluster(mut self) -> Self {
        self.has_bus = true;
        let tls = if self.has_tls { "yes" } else { "no" };
        self.line("cluster-enabled yes\ncluster-node-timeout 2000").line(&format!("tls-cluster {tls}"))
    }

    /// Returns when it answers.
    pub fn start(self) -> Server {
        let dir = folder::new();
        let (bus, tls) = (self.has_bus.then(ports::free), self.has_tls.then(ports::free));
        let mut server = Server { plan: self, dir, port: ports::free(), tls, bus, child: None };
        server.write_config();
        server.start_again();
        server
    }
}

/// A running server, or one that was killed and can be started again.
#[derive(Debug)]
pub struct Server {
    plan: Plan,
    dir: TempDir,
    port: Port,
    tls: Option<Port>,
    bus: Option<Port>,
    child: Option<Child>,
}

impl Server {
    pub fn redis() -> Self {
        Plan::redis().start()
    }

    pub fn valkey() -> Self {
        Plan::valkey().start()
    }

    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port()))
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where other servers find it, and clients by TLS where it has that.
    pub fn peer_port(&self) -> u16 {
        self.tls.as_ref().unwrap_or(&self.port).number()
    }

    /// Where nodes of a cluster talk to each other.
    pub fn bus_port(&self) -> Option<u16> {
        self.bus.as_ref().map(Port::number)
    }

    /// `redis://…`, without user and password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Where its data lies.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn write_config(&self) {
        let mut text = format!("port {}\nbind 127.0.0.1\ndir {}\n", self.port(), self.dir().display());
        text.push_str("daemonize no\nlogfile \"\"\n");
        if let Some(bus) = self.bus_port() {
            let _ = writeln!(text, "cluster-port {bus}");
        }
        if self.tls.is_some() {
            let _ = writeln!(text, "tls-port {}", self.peer_port());
        }
        text.push_str(&self.plan.config);
        fs::write(self.config_file(), text).unwrap_or_else(|error| fail(&format!("no config: {error}")));
    }

    fn config_file(&self) -> PathBuf {
        self.dir().join("server.conf")
    }

    fn log_file(&self) -> PathBuf {
        self.dir().join("log")
    }

    /// What it has written since it was first started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Starts on the same port and the same data.
    pub fn start_again(&mut self) {
        self.start_process();
        self.comes_to_answer();
    }

    /// The same, but returns when it answers anything, which may be that it loads its data.
    pub fn start_loading(&mut self) {
        self.start_process();
        self.comes_to_say(|_| true);
    }

    /// Waits until it serves.
    pub fn comes_to_answer(&mut self) {
        self.comes_to_say(|reply| reply.text() == "PONG");
    }

    fn start_process(&mut self) {
        if self.child.is_some() {
            fail("it runs already");
        }
        let program = process::find(self.plan.program);
        let mut args = vec![self.config_file().display().to_string()];
        if self.plan.is_sentinel {
            args.push("--sentinel".to_owned());
        }
        let child = process::start(&program, &args, self.dir(), &self.log_file())
            .unwrap_or_else(|error| fail(&format!("cannot start {}: {error}", program.display())));
        self.child = Some(child);
    }

    fn comes_to_say(&mut self, wanted: impl Fn(&Reply) -> bool) {
        let ready = wait_for(START_LIMIT, || {
            self.must_run();
            let reply = self.connect(LOOK_LIMIT).ok()?.ask(&[b"PING"]).ok()?;
            wanted(&reply).then_some(())
        });
        if ready.is_none() {
            fail(&format!("not ready in time\n{}", self.log()));
        }
    }

    fn must_run(&mut self) {
        if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
            fail(&format!("{} ended: {status}\n{}", self.plan.program, self.log()));
        }
    }

    /// A connection of its own, as the plan's user.
    pub fn client(&self) -> Client {
        self.connect(REPLY_LIMIT).unwrap_or_else(|error| fail(&format!("no connection: {error}")))
    }

    fn connect(&self, limit: Duration) -> io::Result<Client> {
        let mut client = Client::connect(self.addr(), limit)?;
        if let Some((name, password)) = &self.plan.user {
            let reply = client.ask(&[b"AUTH", name.as_bytes(), password.as_bytes()])?;
            if reply.is_error() {
                return Err(io::Error::other(reply.text()));
            }
        }
        Ok(client)
    }

    /// One command over a connection of its own; no reply is a panic, an error is a reply.
    pub fn ask(&self, words: &[&str]) -> Reply {
        let reply = self.try_ask(words);
        reply.unwrap_or_else(|error| fail(&format!("no reply: {error}\n{}", self.log())))
    }

    /// The same of a server that may be away, or change its role, which closes connections.
    pub fn try_ask(&self, words: &[&str]) -> io::Result<Reply> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.connect(REPLY_LIMIT)?.ask(&words)
    }

    /// One figure of `INFO`; nothing while it does not answer.
    pub fn info(&self, name: &str) -> Option<String> {
        let info = self.try_ask(&["INFO", "everything"]).ok()?.text();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// SIGKILL: what a crash leaves behind.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Killed and started on the same port and the same data.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// SIGSTOP: connections stay, nothing is answered. Returns when it stands still.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid().unwrap_or_default());
        let stopped = || fs::read_to_string(&stat).ok()?.contains(") T ").then_some(());
        if wait_for(STOP_LIMIT, stopped).is_none() {
            fail("does not stand still");
        }
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { fail("not running") };
        if let Err(error) = kill_process(pid, signal) {
            fail(&format!("no signal: {error}"));
        }
    }

    fn wait(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if wait_for(STOP_LIMIT, || child.try_wait().ok().flatten()).is_none() {
            self.child = Some(child);
            fail(&format!("did not end in time\n{}", self.log()));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            use std::io::Write as _;
            let _ = writeln!(io::stderr(), "--- log of {} ---\n{}", self.plan.program, self.log());
        }
    }
}
