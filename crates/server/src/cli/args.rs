//! The command line: names, help, and plain values; nothing is done here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::values::Span;

const AFTER: &str = "\
Exit codes:
  0  it went well
  1  it failed while running
  2  the command line or the configuration is wrong

Examples:
  tollbook demo
  tollbook check -c tollbook.yaml
  tollbook serve -c tollbook.yaml";

/// An LLM gateway that keeps its limits as a book of accounts.
#[derive(Debug, Parser)]
#[command(name = "tollbook", version, about, after_help = AFTER, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway
    Serve(Serve),
    /// Run the gateway in front of a built-in fake provider, with sample tenants and keys
    Demo(Demo),
    /// Validate a configuration file and print what binds whom
    Check(Check),
    /// Make keys
    Keys {
        #[command(subcommand)]
        command: Keys,
    },
    /// Ask a running gateway why a call is admitted or refused
    Explain(Explain),
    /// Replay a trace of calls against a limit, before it is in force
    Simulate(Simulate),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print every metric that the gateway exports, as JSON
    MetricsList,
    /// Print every error that the gateway answers with, as JSON
    ErrorsList,
}

#[derive(Debug, Args)]
#[command(after_help = "\
SIGINT or SIGTERM: stop accepting, finish or end what runs, settle everything, exit. A second one exits at once.
SIGHUP, or a change of the file: put the new configuration in force; a bad one is told and changes nothing.

Example:
  OPENAI_API_KEY=sk-… tollbook serve -c tollbook.yaml")]
pub struct Serve {
    /// The configuration file, YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Write the addresses that were bound to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub addr_file: Option<PathBuf>,
    /// Read the file again only on SIGHUP, not when it changes
    #[arg(long)]
    pub no_watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollbook demo
  tollbook demo --for 10s --no-table")]
pub struct Demo {
    /// Where clients come in; 127.0.0.1:8080 or, if that is taken, any free port
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Keep the book here instead of in a folder that is removed at the end
    #[arg(long, value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
    /// No live table
    #[arg(long)]
    pub no_table: bool,
    /// Stop by itself after this long
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub stop_after: Option<Duration>,
    /// Write the addresses that were bound to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub addr_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollbook check -c tollbook.yaml
  tollbook check -c tollbook.yaml --json | jq '.bindings[0]'")]
pub struct Check {
    /// The configuration file, YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Make a key; its secret is printed once, and its hash as a line for the configuration file
    New(KeysNew),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollbook keys new --id web-1 -c tollbook.yaml")]
pub struct KeysNew {
    /// The key's id in the configuration file
    #[arg(long, default_value = "key-1")]
    pub id: String,
    /// The configuration file whose `key_pepper` the hash is made with
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollbook explain --key-id web-1 --model gpt-4o --body request.json
  tollbook explain --request 018f3c…

Exit codes:
  0  it is explained, also a call that a limit would refuse
  1  it cannot be: no such key, model or request, a model that the key may not use or that has no price, no answer
  2  the command line is wrong")]
pub struct Explain {
    /// The gateway's admin listener
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub admin: String,
    /// The operator's key; better given by the environment
    #[arg(long, env = "TOLLBOOK_ADMIN_KEY", hide_env_values = true, value_name = "KEY")]
    pub admin_key: Option<String>,
    /// File that holds the operator's key
    #[arg(long, value_name = "FILE", conflicts_with = "admin_key")]
    pub admin_key_file: Option<PathBuf>,
    /// A call of this key
    #[arg(long)]
    pub key_id: Option<String>,
    /// … to this model; the body's if absent
    #[arg(long, requires = "key_id")]
    pub model: Option<String>,
    /// … with this body, as the client would send it
    #[arg(long, value_name = "FILE", requires = "key_id")]
    pub body: Option<PathBuf>,
    /// … of this service
    #[arg(long, requires = "key_id")]
    pub service: Option<String>,
    /// … for this end user
    #[arg(long, requires = "key_id")]
    pub user: Option<String>,
    /// What the journal kept of a past call
    #[arg(long, value_name = "ID", conflicts_with = "key_id")]
    pub request: Option<String>,
    /// Print the answer's JSON as it came
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A trace is CSV, plain or gzip. Its header names the columns, in any order: arrival_s (seconds
since the start of the trace), input_tokens, output_tokens, and if known key (or session) and
max_tokens. Lines are in the order of time.

A configuration is written as parts joined by commas; the options of the same names make one:
  booking=forecast | held
  window=61x1s | 7x10s | minute     of a held booking
  estimator=forecast | ema | recent_mean | p95 | capped | constant:N | perfect | none
  factor=1.25                       multiplies what is held
  strict                            of a forecast booking: counts the oldest second whole

Columns: util is landed by limit while at least the limit is asked for; over 1.00 and 1.05 are
shares of time in which more landed in the last exact 60 s; false is how many more calls could
have been served within the limit. A refused call does not come again.

Examples:
  tollbook simulate calls.csv.gz --limit 200000
  tollbook simulate calls.csv --load 1.5 --report out.html \\
    --config booking=held,window=7x10s --config booking=forecast
  tollbook simulate --make chat --load 3
  tollbook simulate --make reasoning --for 2h > reasoning.csv

Exit codes:
  0  it is simulated
  1  it failed while running, as when an output file cannot be written
  2  the command line or a trace is wrong; the line is named")]
pub struct Simulate {
    /// Traces, each replayed on its own; - is the standard input
    #[arg(value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// The limit in llm_tokens per 60 s
    #[arg(long, value_name = "N", conflicts_with = "load")]
    pub limit: Option<u64>,
    /// Set the limit so that the trace's demand is X times it
    #[arg(long, value_name = "X")]
    pub load: Option<String>,
    /// A configuration, as booking=held,window=7x10s,estimator=ema; give several to compare them
    #[arg(long = "config", value_name = "PARTS")]
    pub configs: Vec<String>,
    /// forecast: what lands counts, and what is expected to; held: the expected demand, until the call ends
    #[arg(long, value_name = "BOOKING", conflicts_with = "configs")]
    pub booking: Option<String>,
    /// Window of a held booking: 61x1s, 7x10s or minute
    #[arg(long, value_name = "WINDOW", conflicts_with = "configs")]
    pub window: Option<String>,
    /// Where the expected output comes from
    #[arg(long, value_name = "ESTIMATOR", conflicts_with = "configs")]
    pub estimator: Option<String>,
    /// Count the oldest second of a forecast booking whole
    #[arg(long, conflicts_with = "configs")]
    pub strict: bool,
    /// Multiplies what is held
    #[arg(long, value_name = "X", conflicts_with = "configs")]
    pub factor: Option<String>,
    /// What the limit counts
    #[arg(long, value_name = "MEASURE", default_value = "tokens", value_parser = ["tokens", "input_tokens", "output_tokens"])]
    pub measure: String,
    /// One limit per key of the trace instead of one for all
    #[arg(long)]
    pub per_key: bool,
    /// Seed of everything that a trace does not tell
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Time per llm_token of output, uniform by call between the two
    #[arg(long, value_name = "TIME-TIME", default_value = "20ms-40ms")]
    pub pace: String,
    /// Time to the first llm_token of output
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = time)]
    pub first: Duration,
    /// What half of the calls send as max_tokens, where the trace does not tell
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub max_tokens: u64,
    /// Move each arrival later by up to this much: for traces whose times are coarse
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub spread: Duration,
    /// Make the trace: conv, code, chat, reasoning, on-off, mode-switch or long-streams; without a limit it is printed
    #[arg(long, value_name = "KIND", conflicts_with = "traces")]
    pub make: Option<String>,
    /// Length of the trace that is made
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = time)]
    pub length: Duration,
    /// Write one line per call to this file, as CSV; of one trace and one configuration
    #[arg(long, value_name = "FILE")]
    pub decisions: Option<PathBuf>,
    /// Write a page with pictures to this file, as HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    Span::parse(text).map(|span| span.0).ok_or_else(|| "write a number and its unit, as 10s or 5m".to_owned())
}
