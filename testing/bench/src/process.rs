//! Processes under measurement: started, timed, weighed, ended.
//!
//! Invariants: a process ends with its handle; it is ready when it has printed `listening on http://ADDRESS`,
//! or `https`.
//! CPU time is the sum over its threads as the scheduler accounts it, in nanoseconds; where the kernel does not tell
//! that, it is user and system time in clock ticks.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

const LISTENING: [&str; 2] = ["listening on http://", "listening on https://"];
/// USER_HZ, fixed for user space on all Linux architectures we build for.
const NANOS_PER_TICK: u64 = 10_000_000;

#[derive(Debug)]
pub struct Process {
    child: Child,
    addr: SocketAddr,
}

impl Process {
    /// Starts and waits for the line that tells the address.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let addr = loop {
            let Some(line) = lines.next().transpose()? else {
                bail!("{command:?} ended before it listened: {}", child.wait()?);
            };
            if let Some((_, addr)) = LISTENING.iter().find_map(|words| line.split_once(words)) {
                let end =
                    addr.find(|c: char| c.is_whitespace() || c == '/' || c == '"').unwrap_or(addr.len());
                break addr.chars().take(end).collect::<String>().parse().context("address")?;
            }
        };
        // Nobody reads the rest, but the pipe must not fill up.
        std::thread::spawn(move || lines.count());
        Ok(Self { child, addr })
    }

    /// This program itself in another role.
    pub fn start_self(arguments: &[&str]) -> Result<Self> {
        Self::start(Command::new(std::env::current_exe()?).args(arguments))
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// CPU time used so far, in nanoseconds.
    pub fn cpu_nanos(&self) -> Result<u64> {
        cpu_nanos_of(self.child.id())
    }

    pub fn memory(&self) -> Result<Memory> {
        memory_of(self.child.id())
    }
}

/// CPU time of any process so far, in nanoseconds.
pub fn cpu_nanos_of(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}");
    match scheduled_nanos(&folder) {
        Ok(nanos) if nanos > 0 => Ok(nanos),
        _ => ticks(&folder).map(|ticks| ticks.saturating_mul(NANOS_PER_TICK)),
    }
}

/// Memory of any process.
pub fn memory_of(pid: u32) -> Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib =
            line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib.saturating_mul(1024)).with_context(|| format!("no {name}"))
    };
    Ok(Memory { resident: bytes("VmRSS")?, anonymous: bytes("RssAnon")? })
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do about it here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub resident: u64,
    /// Without mapped files.
    pub anonymous: u64,
}

fn scheduled_nanos(folder: &str) -> Result<u64> {
    let mut sum = 0_u64;
    for task in std::fs::read_dir(format!("{folder}/task"))? {
        // A thread may end between the listing and the look.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let nanos: u64 = text.split_whitespace().next().context("empty schedstat")?.parse()?;
        sum = sum.saturating_add(nanos);
    }
    Ok(sum)
}

fn ticks(folder: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("{folder}/stat"))?;
    // The program's name may contain anything, so count from its closing bracket.
    let (_, rest) = text.rsplit_once(')').context("odd stat")?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next().context("no utime")?.parse()?;
    let system: u64 = fields.next().context("no stime")?.parse()?;
    Ok(user.saturating_add(system))
}

/// Thousands of sockets need more than the usual thousand descriptors; children inherit this.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it is not allowed, the scenario that needs it fails with the kernel's own message.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
