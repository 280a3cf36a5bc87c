//! The command line of `tollbook reconcile`.

use std::path::PathBuf;

use clap::Args;

use super::args::{Moment, Operators, moment};

#[derive(Debug, Args)]
#[command(after_help = "\
FILE is what a provider counted by day and model, CSV or JSON; - is the standard input. Every
amount in it is compared with what the journal has of that day, tenant or upstream, and model. A
call counts for the day it was admitted on, in UTC. Nothing is written without --post.

Known are Tollbook's own columns (date, tenant, pool, model, requests, input, cached, output,
cost; also the CSV of `tollbook report`), the usage and cost APIs of OpenAI and Anthropic, and
the exports of their consoles. Others: --columns day=COLUMN,model=COLUMN,…; what can be named is
day, tenant, pool, model, currency and the amounts. Columns joined by + are summed; a part of a
JSON object is named with a dot, as usage.input. input is the whole, cached is its part read
from a cache. Columns that nobody looked at are told.

A pool is an upstream, or an upstream and its model: openai/gpt-4o. A model is found by --model
THEIRS=OURS, by its name, or by that without a date at its end. What only the file or only the
journal has is a difference, also if the tolerance is large; the days are those of the file, or
--from and --to. The error rate is the sum of all differences of input and output, divided by
what the provider counted; of cost, where it counted no llm_tokens.

--post asks the running gateway to post the rows that differ, so that the journal says what the
provider says: one entry per row, and the difference to the running quotas of the tenant or
pool. A day must be over for an hour. A repeat finds no difference and posts nothing.

--unbooked takes no FILE: it tells calls that ended when the engine no longer knew them, and
what of them is missing; with --post each of them is posted, once. --from and --to are the days
they ended on.

Examples:
  tollbook reconcile usage.csv -c tollbook.yaml --upstream openai
  tollbook reconcile page-1.json page-2.json -c tollbook.yaml --upstream anthropic --json
  tollbook reconcile bill.csv -c tollbook.yaml --upstream azure \\
    --columns 'day=Date,model=Meter,input=Prompt,output=Completion,cost=Cost' --tolerance 2
  TOLLBOOK_ADMIN_KEY=… tollbook reconcile usage.csv -c tollbook.yaml --upstream openai --post
  tollbook reconcile --unbooked -c tollbook.yaml --from 7d

Exit codes:
  0  every amount is within the tolerance, no call is unbooked, or what was found is posted
  1  it failed while running: no journal, an output that cannot be written, a gateway that refuses
  2  the command line, the configuration or a FILE is wrong; its lines are named
  3  some amounts differ by more, or something of an unbooked call is missing")]
pub struct Reconcile {
    /// What the provider counted; several files are taken as one
    #[arg(value_name = "FILE", required_unless_present = "unbooked", conflicts_with = "unbooked")]
    pub files: Vec<PathBuf>,
    /// The configuration file, YAML or JSON; its `journal`, else its `data_dir`, says where the journal is
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// The upstream whose account it is, where the file does not say it
    #[arg(long, value_name = "NAME")]
    pub upstream: Option<String>,
    /// The tenant whose calls these are, where the file does not say it
    #[arg(long, value_name = "ID")]
    pub tenant: Option<String>,
    /// What the file's columns are, where its format is not known
    #[arg(long, value_name = "NAMES")]
    pub columns: Option<String>,
    /// A name of the provider's and ours; may be given several times
    #[arg(long = "model", value_name = "THEIRS=OURS")]
    pub models: Vec<String>,
    /// Only this day and later ones
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// Only this day and earlier ones
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
    /// Percent of the provider's amount that may differ
    #[arg(long, value_name = "PERCENT", default_value = "5")]
    pub tolerance: String,
    /// Ask the running gateway to post what differs
    #[arg(long)]
    pub post: bool,
    /// Tell calls that are in no account and no sum
    #[arg(long, conflicts_with_all = ["upstream", "tenant", "columns", "models", "csv"])]
    pub unbooked: bool,
    #[command(flatten)]
    pub operators: Operators,
    /// Print what is within the tolerance too
    #[arg(long)]
    pub all: bool,
    /// Where to write, compressed if the name ends in .gz; the standard output if absent
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV
    #[arg(long)]
    pub csv: bool,
}
