//! One client process of a load: `e2e-client ADDRESS WORKERS`.
//!
//! It reads calls, one as JSON on each line, until an empty line; makes them once it reads `go`; prints what became of
//! each, one as JSON on each line.

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;

use tollbook_e2e::load::{self, Job};

fn main() -> ExitCode {
    match client() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "e2e-client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn client() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let addr = arguments.next().and_then(|addr| addr.parse().ok());
    let workers = arguments.next().and_then(|workers| workers.parse().ok());
    let (Some(addr), Some(workers)) = (addr, workers) else {
        return Err(io::Error::other("usage: e2e-client ADDRESS WORKERS"));
    };
    let mut lines = io::stdin().lock().lines();
    let mut jobs: Vec<Job> = Vec::new();
    for line in lines.by_ref() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        jobs.push(serde_json::from_str(&line)?);
    }
    if lines.next().transpose()?.as_deref() != Some("go") {
        return Err(io::Error::other("nobody said go"));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for outcome in load::run(addr, &jobs, workers) {
        serde_json::to_writer(&mut out, &outcome)?;
        writeln!(out)?;
    }
    out.flush()
}
