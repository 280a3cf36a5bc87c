//! The command line: names, help, and plain values; nothing is done here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

pub(super) use super::args_office::{
    Adjust, Apply, Changes, Export, LimitCommand, Limits, ObjectCommand, Objects, Operators, PriceCommand,
    Prices, Release,
};
pub(super) use super::args_reconcile::Reconcile;
use tollbook_store::{KEEP_DAYS_MAX, KEEP_DAYS_MIN};

use crate::config::values::Span;
use crate::report::By;

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
    /// Look at the server of a shared book: version, memory, persistence, permissions, latency
    Doctor(Doctor),
    /// Make keys
    Keys {
        #[command(subcommand)]
        command: Keys,
    },
    /// Ask a running gateway why a call is admitted or refused
    Explain(Explain),
    /// Show what the book keeps of a tenant: accounts, live reservations, what was learned
    Inspect(Inspect),
    /// Tenants in the store (config.source: sql)
    Tenant(Objects),
    /// Projects of a tenant: TENANT PROJECT
    Project(Objects),
    /// Keys of a project: TENANT PROJECT KEY; the secret is shown once
    Key(Objects),
    /// Services of a tenant: TENANT SERVICE
    Service(Objects),
    /// End users of a tenant, with limits of their own or disabled: TENANT USER
    User(Objects),
    /// Plans: sets of limits that tenants share
    Plan(Objects),
    /// Upstreams: accounts with providers; the key is sealed in the store
    Upstream(Objects),
    /// Models that clients may ask for, with their prices and limits
    Model(Objects),
    /// Operators: who may look at and change all this
    Operator(Objects),
    /// Limits: what is in force, and where it is written
    Limit(Limits),
    /// Prices: what is in force
    Price(Prices),
    /// Make the store's plans and tenants be what a file says; the difference is shown first
    Apply(Apply),
    /// Write the store's plans and tenants as a file that `apply` takes
    Export(Export),
    /// Post a difference to a quota: a credit, a top-up, a correction
    Adjust(Adjust),
    /// Free what a call holds that nobody ends
    Release(Release),
    /// Who changed what in the store, and when
    Changes(Changes),
    /// Read what calls were charged
    Journal {
        #[command(subcommand)]
        command: Journal,
    },
    /// Tell what calls were charged, by tenant, project, key, model and day
    Report(Report),
    /// Compare a provider's usage or invoice with the journal
    Reconcile(Reconcile),
    /// Make a configuration of another gateway's files
    Import {
        #[command(subcommand)]
        command: Import,
    },
    /// Replay a trace of calls against a limit, before it is in force
    Simulate(Simulate),
    /// Print what a shell needs to complete this program's commands and options
    Completions(Completions),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print every metric that the gateway exports, as JSON
    MetricsList,
    /// Print every error that the gateway answers with, as JSON
    ErrorsList,
}

#[derive(Debug, Args)]
#[command(after_help = "\
SIGINT or SIGTERM: stop accepting, finish or end what runs, settle everything, exit. A second
one exits at once.
SIGHUP, or a change of the file: put the new configuration in force; a bad one is told and
changes nothing.

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

#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 1 if something is bad: bookings could be lost or not be made.

Example:
  tollbook doctor -c tollbook.yaml")]
pub struct Doctor {
    /// The configuration file, YAML or JSON; its `engine.redis` names the server
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
  1  it cannot be: no such key, model or request, a model that the key may not use or that has no
     price, no answer
  2  the command line is wrong")]
pub struct Explain {
    #[command(flatten)]
    pub operators: Operators,
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
    /// … of this task, as the header x-tollbook-task gives it
    #[arg(long, value_name = "TAG", requires = "key_id")]
    pub task: Option<String>,
    /// What the journal kept of a past call
    #[arg(long, value_name = "ID", conflicts_with = "key_id")]
    pub request: Option<String>,
    /// Print the answer's JSON as it came
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A shared book (engine.redis) is asked directly, also while no gateway runs. A book in the
gateway's own process is asked through that gateway's admin listener, with the configuration's
admin.api_key.

Of an account: what is posted and what is held, or planned where a rate is booked by forecast,
in the unit of its measure; who limits it; when it is empty if nothing else comes. Accounts that
the configuration does not name, as those of end users, may be another tenant's of the same
shard. Of a reservation: its age, when it is due to be swept, whether it was sent, and its
accounts.

Examples:
  tollbook inspect acme -c tollbook.yaml
  tollbook inspect acme -c tollbook.yaml --json | jq '.holds | length'

Exit codes:
  0  it is shown
  1  it cannot be: no such tenant, no answer, no admin.api_key for a book in the gateway's own
     process
  2  the command line or the configuration is wrong")]
pub struct Inspect {
    /// The tenant's id in the configuration
    pub tenant: String,
    /// The configuration file, YAML or JSON; it says where the book is, and names what is in it
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// The gateway's admin listener; the configuration's if absent
    #[arg(long, value_name = "URL")]
    pub admin: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Journal {
    /// Write the calls as a trace, which `tollbook simulate` reads
    Export(JournalExport),
    /// Show the days that have entries, and which of them go next; nothing is changed
    Days(JournalDays),
}

#[derive(Debug, Args)]
#[command(after_help = "\
state is `kept`, `goes` (a gateway lets it go within minutes) or `waits` (it is old, and was
written less than a week ago). Without a number of days to keep everything is kept. Each day is
counted, which takes a moment where days are large.

Examples:
  tollbook journal days -c tollbook.yaml
  tollbook journal days -c tollbook.yaml --keep-days 62

Exit codes:
  0  they are shown
  1  it failed while running: no journal
  2  the command line or the configuration is wrong")]
pub struct JournalDays {
    /// The configuration file, YAML or JSON; its `journal`, else its `data_dir`, says where the journal is
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// As if so many days were kept; `journal_keep_days` of the file if absent
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(i64::from(KEEP_DAYS_MIN)..=i64::from(KEEP_DAYS_MAX)))]
    pub keep_days: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
One line per call, in the order of admission, as CSV: arrival_s (seconds since the first call
that is written), input_tokens, output_tokens, key, tenant, model, ended_s, figures. Corrections
are summed into their call. figures says where the usage comes from: reported by the provider,
metered, partial, unknown or expired (what was expected stands).

Left out and counted: calls without usage, unbooked ones, and those that no trace can tell. A
call that was refused at the door is not in the journal, so a trace tells what passed, not what
was asked. The gateway may be running; what ended in the last seconds may not be there yet.

TIME is 2026-03-01T12:00:00Z, 2026-03-01T12:00:00+01:00, 2026-03-01 (midnight, UTC), or so long
ago: 7d, 12h.

Examples:
  tollbook journal export -c tollbook.yaml --since 7d -o calls.csv.gz
  tollbook journal export -c tollbook.yaml --tenant acme | tollbook simulate - --limit 200000

Exit codes:
  0  it is written
  1  it failed while running: no journal, no call to write, an output that cannot be written
  2  the command line or the configuration is wrong")]
pub struct JournalExport {
    /// The configuration file, YAML or JSON; its `journal`, else its `data_dir`, says where the journal is
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Calls admitted at this time or later
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Moment>,
    /// Calls admitted before this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Moment>,
    /// Calls of this tenant
    #[arg(long, value_name = "ID")]
    pub tenant: Option<String>,
    /// Calls of this model, as the configuration names it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Where to write, compressed if the name ends in .gz; the standard output if absent
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print a summary as JSON
    #[arg(long, requires = "output")]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Sums of the journal's entries: corrections and adjustments are in them, unbooked entries are
not. A call counts for the day it was admitted on, in UTC. The gateway may be running; what
ended in the last seconds may not be there yet.

A table shows some parts of the usage, CSV and JSON all: input contains cached, cache_write,
image_input and audio_input, output contains reasoning and audio_output. cost is exact. Daily
totals answer day, tenant, model and pool; the other columns read every entry since --from.

TIME is 2026-03-01 or so long ago: 7d. Both days are included.

Examples:
  tollbook report -c tollbook.yaml --from 7d
  tollbook report -c tollbook.yaml --by day,tenant,key,model --from 2026-03-01 --to 2026-03-31 --csv

Exit codes:
  0  it is printed, also if no call is in it
  1  it failed while running: no journal, an output that cannot be written
  2  the command line or the configuration is wrong")]
pub struct Report {
    /// The configuration file, YAML or JSON; its `journal`, else its `data_dir`, says where the journal is
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// The columns that rows are made by, joined by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [By::Tenant, By::Model])]
    pub by: Vec<By>,
    /// Calls admitted on this day or later
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// Calls admitted on this day or before
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
    /// Calls of this tenant
    #[arg(long, value_name = "ID")]
    pub tenant: Option<String>,
    /// Calls of this model, as the configuration names it
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where to write, compressed if the name ends in .gz; the standard output if absent
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Import {
    /// Make models with prices of LiteLLM's public price table
    LitellmPrices(ImportPrices),
    /// Make a whole configuration of a LiteLLM proxy's
    LitellmConfig(ImportConfig),
}

#[derive(Debug, Args)]
#[command(after_help = "\
FILE is model_prices_and_context_window.json; - is the standard input. Prices are read from
their text, exactly, and written per million llm_tokens: 1.5e-07 is 0.15. What is printed is the
models: part of a configuration; upstream is LiteLLM's name of the provider unless --upstream
names yours.

What has no place in a price is told on the standard error: prices per image, second or page, of
batches, service tiers that are no one multiple of the standard prices. Models without a price
per llm_token are left out. A mistake in a price stops the import, and nothing is printed.

Examples:
  tollbook import litellm-prices prices.json --only 'gpt-4o*' --only o3 > models.yaml
  tollbook import litellm-prices prices.json --only 'azure/*' --upstream azure-eu --json

Exit codes:
  0  it is printed
  1  no model is left, or the output cannot be written
  2  the command line or the file is wrong; the place is named")]
pub struct ImportPrices {
    /// The price table, JSON
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Models whose names match; * stands for any characters, ? for one; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,
    /// The upstream that serves them
    #[arg(long, value_name = "NAME")]
    pub upstream: Option<String>,
    /// Where to write; the standard output if absent
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write JSON: the models, what was left out, and notes
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
FILE is the config.yaml of a LiteLLM proxy; - is the standard input. What is printed is a
whole configuration that tollbook check accepts. What is not carried over is told on the
standard error, with line, column and reason.

Keys are never copied: os.environ/NAME becomes ${NAME}, and for a key that stands in the file a
variable is named. LiteLLM's own keys, teams and budgets are in its database: a tenant without
keys stands in their place. Of several deployments of a model the first is taken.

Example:
  tollbook import litellm-config config.yaml --prices prices.json -o tollbook.yaml
  tollbook check -c tollbook.yaml

Exit codes:
  0  it is printed
  1  no model is left, or the output cannot be written
  2  the command line or a file is wrong; the place is named")]
pub struct ImportConfig {
    /// The configuration of a LiteLLM proxy, YAML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// LiteLLM's price table, for models that have no price in FILE
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Where to write; the standard output if absent
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollbook completions bash > /usr/share/bash-completion/completions/tollbook
  tollbook completions zsh > ~/.zfunc/_tollbook      (with fpath+=~/.zfunc before compinit)
  tollbook completions fish > ~/.config/fish/completions/tollbook.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// A time, as the command line gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Microseconds since 1970.
    At(u64),
    Ago(Duration),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A trace is CSV, plain or gzip; tollbook journal export writes one. Its header names the
columns, in any order: arrival_s (seconds since the start of the trace), input_tokens,
output_tokens, and if known key (or session) and max_tokens; others are passed over. Lines are
in the order of time.

A configuration is written as parts joined by commas; the options of the same names make one:
  booking=forecast | held
  window=61x1s | 7x10s | minute     of a held booking
  estimator=forecast | ema | recent_mean | p95 | capped | constant:N | perfect | none
  factor=1.25                       multiplies what is held
  strict                            of a forecast booking: counts the oldest second whole
  gateways=4                        so many share the book, each knows its own streams only

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
    /// Gateways that share the book of a forecast booking, each knowing its own streams only
    #[arg(long, value_name = "N", conflicts_with = "configs")]
    pub gateways: Option<String>,
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

pub(super) fn moment(text: &str) -> Result<Moment, String> {
    if let Some(span) = Span::parse(text) {
        return Ok(Moment::Ago(span.0));
    }
    let midnight =
        || text.parse::<Date>().ok()?.to_zoned_datetime(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    // A time without a zone would be read as a date, and its hours passed over.
    let is_date = !text.contains([':', 'T', 't', ' ']);
    let at = if is_date { midnight() } else { text.parse::<Timestamp>().ok() };
    at.and_then(|at| u64::try_from(at.as_microsecond()).ok())
        .map(Moment::At)
        .ok_or_else(|| "write 2026-03-01T12:00:00Z, 2026-03-01, or a time from now as 12h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// What follows the options is broken by hand; a terminal of usual width breaks none of it again.
    #[test]
    fn help_is_not_broken_twice() {
        fn told(command: &clap::Command, wide: &mut Vec<String>) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = |line: &&str| line.trim_start().starts_with("tollbook ");
            wide.extend(
                text.lines()
                    .filter(|line| line.chars().count() > 98)
                    .filter(|line| !examples(line))
                    .map(str::to_owned),
            );
            command.get_subcommands().for_each(|inner| told(inner, wide));
        }
        let mut wide = Vec::new();
        told(&Cli::command(), &mut wide);
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn moments() {
        const NOON: u64 = 1_772_366_400_000_000;
        let hours = |n: u64| n * 3_600_000_000;
        for (text, want) in [
            ("7d", Moment::Ago(Duration::from_hours(168))),
            ("1h30m", Moment::Ago(Duration::from_mins(90))),
            ("2026-03-01T12:00:00Z", Moment::At(NOON)),
            ("2026-03-01T12:00:00+01:00", Moment::At(NOON - hours(1))),
            ("2026-03-01 12:00:00.5Z", Moment::At(NOON + 500_000)),
            ("2026-03-01", Moment::At(NOON - hours(12))),
            ("1970-01-01", Moment::At(0)),
        ] {
            assert_eq!(moment(text), Ok(want), "{text}");
        }
        for text in ["", "now", "7", "-7d", "2026-03-01T12:00:00", "2026-02-30", "1969-12-31", "12:00"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }
}
