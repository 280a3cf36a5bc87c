//! Entry point of `cargo xtask`: parses the command line and hands over to the library.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::repo::Repo;
use xtask::run::Console;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what the tests need, pinned; does nothing where it is already there.
    ///
    /// Looks for the programs that the tests start, makes a Python environment with the packages of
    /// testing/e2e/python/requirements.txt, installs the Node packages of testing/e2e/node, with a Node for them where
    /// the machine's own does not do, and installs cargo-nextest if it is missing or too old.
    Setup,
    /// Check the source itself: rooms and arrows, pure rooms, sizes, words, documents and links.
    Tidy,
    /// Run all tests: setup, format, tidy, clippy, build, tests, doctests, licences, generated documents.
    Test {
        /// Leave out setup, the end-to-end tests, the simulation, doctests, licences and documents.
        #[arg(long)]
        quick: bool,
    },
    /// Mutate inputs of one target until something is found or the time is up; a finding is kept in its corpus.
    Fuzz {
        /// sse, request, usage, config or log.
        target: String,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Repeat an earlier run; the seed is printed at its start.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run the SDK matrix and write its page, docs/reference/sdk-matrix.md.
    Matrix,
    /// Build in release mode and run the benches; arguments go to tollbook-bench.
    Bench {
        /// Arguments for tollbook-bench (default: all).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Build in release mode and run the soak: many streams for long, while everything changes.
    Soak {
        /// Arguments for e2e-soak: `--minutes 10 --streams 2000 --seed 1`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Write the generated pages of docs/reference from the built program.
    Docs {
        /// Write nothing; fail if a page differs.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let console = Console::new();
    let done = Repo::here().and_then(|repo| match cli.command {
        Task::Setup => xtask::setup::setup(&repo, &console),
        Task::Tidy => xtask::tidy::tidy(&repo, &console),
        Task::Test { quick } => xtask::pipeline::test(&repo, &console, quick),
        Task::Fuzz { target, seconds, seed } => xtask::fuzz::fuzz(&repo, &console, &target, seconds, seed),
        Task::Matrix => xtask::matrix::matrix(&repo, &console),
        Task::Bench { args } => xtask::bench::bench(&repo, &console, &args),
        Task::Soak { args } => xtask::soak::soak(&repo, &console, &args),
        Task::Docs { check } => xtask::docs::docs(&repo, &console, check),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console.line(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
