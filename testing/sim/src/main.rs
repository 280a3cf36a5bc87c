//! Runs seeds of the simulation, or one of them again with its last verbs written down.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use tollbook_sim::{Knobs, Stats, TRACE_SHOWN, Trouble, explain, run, run_seeds};

/// Simulates gateways against one engine on virtual time.
#[derive(Debug, Parser)]
struct Args {
    /// The seed, or the first of them.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds to run; at the first failure it is made smaller and shown.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// At most so many gateways.
    #[arg(long)]
    gateways: Option<u64>,
    /// At most so many calls.
    #[arg(long)]
    calls: Option<u64>,
    /// Leave a kind of trouble out; may be given more than once.
    #[arg(long)]
    without: Vec<Trouble>,
    /// How many of the last verbs before a failure to show.
    #[arg(long, default_value_t = TRACE_SHOWN)]
    lines: usize,
    /// Run the real admission instead of its model.
    #[arg(long)]
    real: bool,
    /// Write a wrong amount past the verbs, to see that it is found.
    #[arg(long)]
    sabotage: bool,
}

fn main() -> std::io::Result<ExitCode> {
    let args = Args::parse();
    let mut out = std::io::stdout().lock();
    let done = if args.seeds > 1 { run_seeds(args.seed, args.seeds, args.real) } else { one(&args) };
    match done {
        Ok(stats) => {
            for (name, count) in stats.all() {
                writeln!(out, "{count:>9} {name}")?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(text) => {
            writeln!(out, "{text}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn one(args: &Args) -> Result<Stats, String> {
    let usual = Knobs::of(args.seed);
    let knobs = Knobs {
        seed: args.seed,
        gateways: args.gateways.unwrap_or(usual.gateways),
        calls: args.calls.unwrap_or(usual.calls),
        without: args.without.clone(),
        is_real: args.real,
        is_sabotaged: args.sabotage,
    };
    let report = run(&knobs, false);
    match report.failure {
        None => Ok(report.stats),
        Some(failure) => Err(explain(&knobs, &failure, args.lines)),
    }
}
