//! The command line of what operators define in the store.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where the operators' listener is, and who asks.
#[derive(Debug, Args)]
pub struct Operators {
    /// The gateway's admin listener
    #[arg(
        long,
        global = true,
        env = "TOLLBOOK_ADMIN",
        value_name = "URL",
        default_value = "http://127.0.0.1:8081"
    )]
    pub admin: String,
    /// The operator's key; better given by the environment
    #[arg(long, global = true, env = "TOLLBOOK_ADMIN_KEY", hide_env_values = true, value_name = "KEY")]
    pub admin_key: Option<String>,
    /// File that holds the operator's key
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "admin_key")]
    pub admin_key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Objects {
    #[command(flatten)]
    pub operators: Operators,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: ObjectCommand,
}

#[derive(Debug, Subcommand)]
pub enum ObjectCommand {
    /// List them
    List {
        /// What they belong to: the tenant, and of keys the project
        #[arg(value_name = "ID")]
        owner: Vec<String>,
        /// Only those whose id begins so
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
    },
    /// Show one
    Show {
        /// Its id, after those of what it belongs to
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Make one
    #[command(after_help = SET_HELP)]
    Create {
        /// Its id, after those of what it belongs to
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        #[command(flatten)]
        fields: Fields,
    },
    /// Change fields of one; the others stay
    #[command(after_help = SET_HELP)]
    Update {
        /// Its id, after those of what it belongs to
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        #[command(flatten)]
        fields: Fields,
    },
    /// Delete one
    Delete {
        /// Its id, after those of what it belongs to
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// And everything below it
        #[arg(long)]
        cascade: bool,
        /// Only say what would become of it
        #[arg(long)]
        dry_run: bool,
    },
    /// Give a key or an operator a new secret, which is shown once
    Rotate {
        /// Its id, after those of what it belongs to
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// How long a key's secret before works too, as 24h; not at all if absent
        #[arg(long, value_name = "TIME")]
        overlap: Option<String>,
    },
}

const SET_HELP: &str = "\
Fields are those of the configuration file (docs/reference/configuration.md). A value is YAML:
  tollbook tenant create acme --set zone=Europe/Amsterdam
  tollbook tenant update acme --set 'limits=[{ measure: requests, window: 60s, ceiling: 600 }]'
  tollbook key create acme web web-1 --set 'models=[gpt-4o]'
  tollbook key update acme web web-1 --set disabled=true
null takes a field away.";

#[derive(Debug, Args)]
pub struct Fields {
    /// A field and its value, as YAML writes it; may be given many times
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// Only say what would become of it
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file is a configuration, of which `plans` and `tenants` are taken, with variables of the
environment put in. Objects that it does not have stay, unless --prune is given. All of it is
changed, or nothing.

Example:
  tollbook apply -f tenants.yaml --dry-run")]
pub struct Apply {
    /// The file, YAML or JSON
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Take the file's upstreams and models too: their keys are sealed in the store
    #[arg(long)]
    pub providers: bool,
    /// Delete the plans and tenants, and what is in them, that the file does not have
    #[arg(long)]
    pub prune: bool,
    /// Only show the difference
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask, also where something is deleted
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub operators: Operators,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Export {
    /// Write it here instead of to the standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub operators: Operators,
    /// As JSON instead of YAML
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Changes {
    /// Only of this tenant's objects
    #[arg(long)]
    pub tenant: Option<String>,
    /// At most so many, the newest
    #[arg(long, default_value_t = 50)]
    pub limit: u16,
    #[command(flatten)]
    pub operators: Operators,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Limits {
    #[command(flatten)]
    pub operators: Operators,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: LimitCommand,
}

#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// List all limits in force: whose they are, what they allow, where they are written
    List {
        /// Only of this tenant, its projects, keys, services and users
        #[arg(long, value_name = "ID")]
        tenant: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Prices {
    #[command(flatten)]
    pub operators: Operators,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: PriceCommand,
}

#[derive(Debug, Subcommand)]
pub enum PriceCommand {
    /// List the prices in force, per million llm_tokens
    List,
    /// Show all parts of a model's price
    Show {
        /// The model, as it is configured
        model: String,
        /// What another version said, as entries of the journal name it; the one in force if absent
        #[arg(long, value_name = "VERSION")]
        version: Option<u64>,
    },
    /// List the last hundred versions of the price book, the newest first
    Versions,
}

#[derive(Debug, Args)]
#[command(after_help = "\
`tollbook inspect TENANT` shows the ids of live reservations. Both sides of the call are
freed, the tenant's and the pool's, as if they had expired: what a limit charges on expiry is
charged, and if the call ends later after all, it is booked then. A call that has not left the
gateway is refused: it ends by itself. The journal keeps who asked and why.

Example:
  tollbook release 9c1f0e7722ab41d00000000000000007 --reason 'gateway b hangs, ticket 4711'")]
pub struct Release {
    /// The reservation's id
    pub id: String,
    /// Why; it stands in the journal
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub operators: Operators,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Above 0 is used, below 0 is given back, in the limit's unit (of cost: currency). Only the
period that runs can be adjusted. The journal keeps an entry with the reason and who asked. A
repeat with the same --id posts nothing.

Example:
  tollbook adjust acme 'acme prepaid' -250.00 --reason 'invoice 2026-118 paid' --id invoice-2026-118")]
pub struct Adjust {
    /// The tenant
    pub tenant: String,
    /// The name of one of its quotas
    pub limit: String,
    /// What is posted, a decimal
    #[arg(allow_hyphen_values = true)]
    pub delta: String,
    /// Why; it stands in the journal
    #[arg(long)]
    pub reason: String,
    /// Of a limit on each user: which
    #[arg(long)]
    pub user: Option<String>,
    /// Makes a repeat harmless
    #[arg(long)]
    pub id: Option<String>,
    #[command(flatten)]
    pub operators: Operators,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
