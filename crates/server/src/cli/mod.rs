//! The program's commands.
//!
//! A command writes its result to `out` and everything else to `err`; its answer is the exit code. A reader that goes
//! away (`| head`) is no failure.

mod args;
mod args_office;
mod args_reconcile;
mod check;
mod client;
mod demo;
mod doctor;
mod explain;
mod import;
mod inspect;
mod journal;
mod keys;
mod limits;
mod objects;
mod output;
mod prices;
mod reconcile;
mod reconcile_unbooked;
mod release;
mod report;
mod serve;
mod simulate;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use tollbook_store::ObjectKind;
use tollbook_telemetry::{LabelDoc, MetricDoc, MetricKind, Metrics};

pub use args::Cli;
use args::{Command, Import, Journal, Keys, Shell};

use crate::{config, errors};

/// Where a command writes.
struct Console<'a> {
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// `out` is a terminal: a live table is welcome.
    terminal: bool,
    /// … and so are colours.
    colours: bool,
}

/// How a command ends when it does not go well.
#[derive(Debug)]
enum Failure {
    /// It failed while running.
    Run(anyhow::Error),
    /// The command line or the configuration is wrong.
    Usage(String),
    /// It went well, and found what must not be taken for none.
    Found(String),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Run(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Run(error.into())
    }
}

impl From<config::LoadError> for Failure {
    fn from(error: config::LoadError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Runs the program; 0 it went well, 1 it failed, 2 the command line or the configuration is wrong, 3 `reconcile`
/// found differences.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // It says itself whether it is help for stdout or a complaint for stderr.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    let terminal = io::stdout().is_terminal();
    // Not locked: a command that runs for long logs from several threads.
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut console = Console { out: &mut out, err: &mut err, terminal, colours };
    match run(cli, &mut console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Run(error)) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure::Run(error)) => {
            let _ = writeln!(console.err, "tollbook: {error:#}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(message)) => {
            let _ = writeln!(console.err, "{message}");
            ExitCode::from(2)
        }
        Err(Failure::Found(message)) => {
            let _ = writeln!(console.err, "{message}");
            ExitCode::from(3)
        }
    }
}

fn run(cli: Cli, console: &mut Console<'_>) -> Result<(), Failure> {
    match cli.command {
        Command::Check(args) => check::run(&args, console),
        Command::Doctor(args) => doctor::run(&args, console),
        Command::Keys { command: Keys::New(args) } => keys::new(&args, console),
        Command::Completions(args) => completions(args.shell, console),
        Command::Schema => json(console, &config::schema()),
        Command::Serve(args) => serve::run(&args, console),
        Command::Demo(args) => demo::run(&args, console),
        Command::Explain(args) => explain::run(&args, console),
        Command::Inspect(args) => inspect::run(&args, console),
        Command::Tenant(args) => objects::run(ObjectKind::Tenant, &args, console),
        Command::Project(args) => objects::run(ObjectKind::Project, &args, console),
        Command::Key(args) => objects::run(ObjectKind::Key, &args, console),
        Command::Service(args) => objects::run(ObjectKind::Service, &args, console),
        Command::User(args) => objects::run(ObjectKind::User, &args, console),
        Command::Plan(args) => objects::run(ObjectKind::Plan, &args, console),
        Command::Upstream(args) => objects::run(ObjectKind::Upstream, &args, console),
        Command::Model(args) => objects::run(ObjectKind::Model, &args, console),
        Command::Operator(args) => objects::run(ObjectKind::Operator, &args, console),
        Command::Limit(args) => limits::run(&args, console),
        Command::Price(args) => prices::run(&args, console),
        Command::Apply(args) => objects::apply(&args, console),
        Command::Export(args) => objects::export(&args, console),
        Command::Adjust(args) => objects::adjust(&args, console),
        Command::Release(args) => release::run(&args, console),
        Command::Changes(args) => objects::changes(&args, console),
        Command::Journal { command: Journal::Export(args) } => journal::export(&args, console),
        Command::Journal { command: Journal::Days(args) } => journal::days(&args, console),
        Command::Reconcile(args) => reconcile::run(&args, console),
        Command::Report(args) => report::run(&args, console),
        Command::Import { command: Import::LitellmPrices(args) } => import::prices(&args, console),
        Command::Import { command: Import::LitellmConfig(args) } => import::config(&args, console),
        Command::Simulate(args) => simulate::run(&args, console),
        Command::MetricsList => json(console, &metrics()),
        Command::ErrorsList => json(console, &errors::list()),
    }
}

fn completions(shell: Shell, console: &mut Console<'_>) -> Result<(), Failure> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    // Into memory first: the generator panics where its output cannot be written.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tollbook", &mut script);
    console.out.write_all(&script)?;
    Ok(())
}

fn metrics() -> serde_json::Value {
    let one = |metric: MetricDoc| {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let series = metric.series_max();
        let label = |label: LabelDoc| serde_json::json!({"name": label.name, "values": label.values});
        let labels: Vec<_> = metric.labels.into_iter().map(label).collect();
        serde_json::json!({
            "name": metric.name, "kind": kind, "labels": labels, "series_max": series, "help": metric.help,
        })
    };
    Metrics::list().into_iter().map(one).collect()
}

/// Prints a value as indented JSON.
fn json(console: &mut Console<'_>, value: &serde_json::Value) -> Result<(), Failure> {
    writeln!(console.out, "{value:#}")?;
    Ok(())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// A variable of the process's environment.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
