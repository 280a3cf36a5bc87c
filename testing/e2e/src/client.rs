//! Client processes: each a program of its own, all let go at the same moment.
//!
//! Invariant: a process that fails is a panic with what it said; none outlives the call.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::load::{Job, Outcome};

/// A client process that has read its plan.
#[derive(Debug)]
struct Client(Child);

/// Splits the calls evenly over so many processes of the client program with so many workers each, and makes them all.
/// The processes go round the gateways.
pub fn run(
    program: &Path,
    addrs: &[SocketAddr],
    jobs: &[Job],
    processes: usize,
    workers: usize,
) -> Vec<Outcome> {
    let plans = (0..processes).map(|first| jobs.iter().skip(first).step_by(processes));
    let gateways = addrs.iter().cycle();
    let clients: Vec<Client> =
        plans.zip(gateways).map(|(plan, addr)| Client::start(program, *addr, plan, workers)).collect();
    let clients: Vec<Client> = clients.into_iter().map(Client::go).collect();
    // Each is read in its own thread, so that none waits for another to be read.
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients.into_iter().map(|client| scope.spawn(|| client.outcomes())).collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcomes) => outcomes,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    })
}

impl Client {
    fn start<'a>(
        program: &Path,
        addr: SocketAddr,
        plan: impl Iterator<Item = &'a Job>,
        workers: usize,
    ) -> Self {
        let child = Command::new(program)
            .args([addr.to_string(), workers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut client = match child {
            Ok(child) => Self(child),
            Err(error) => fail(&format!("cannot start {}: {error}", program.display())),
        };
        for job in plan {
            client.say(&serde_json::to_string(job).unwrap_or_default());
        }
        client.say("");
        client
    }

    fn say(&mut self, line: &str) {
        let written = self.0.stdin.as_mut().map(|pipe| writeln!(pipe, "{line}"));
        if !matches!(written, Some(Ok(()))) {
            fail("a client process does not listen");
        }
    }

    fn go(mut self) -> Self {
        self.say("go");
        self
    }

    fn outcomes(mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let pipe = self.0.stdout.take().into_iter();
        for line in pipe.flat_map(|pipe| BufReader::new(pipe).lines()) {
            match line {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(error) => fail(&format!("a client process said {line}: {error}")),
                },
                Err(error) => fail(&format!("a client process broke off: {error}")),
            }
        }
        match self.0.wait() {
            Ok(status) if status.success() => outcomes,
            other => fail(&format!("a client process failed: {other:?}")),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[allow(clippy::panic, reason = "test code: a panic is a failed test")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}
