//! `tollbook-bench`: runs scenarios and prints a table of ratios; in its other roles it is the provider or the baseline.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use http::uri::Authority;
use tokio::net::TcpListener;
use tollbook_bench::process::raise_descriptor_limit;
use tollbook_bench::report::{Row, table};
use tollbook_bench::scenario::{Bench, Plan};
use tollbook_bench::tls::Files;
use tollbook_bench::{book, bookings, count, pass_through, plans, provider, shared};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the gateway costs, as ratios to a minimal pass-through proxy in one run.
#[derive(Debug, Parser)]
#[command(name = "tollbook-bench")]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Every scenario.
    All(Options),
    /// Some scenarios.
    Only {
        #[arg(required = true)]
        scenarios: Vec<Scenario>,
        #[command(flatten)]
        options: Options,
    },
    /// Bookings of a rate limit compared: the targets of the forecast booking, the papers' bookings beside it
    Book(BookOptions),
    /// Pairs of reserve and settle in a shared book, one after the other: for a profiler around the server
    Pairs {
        /// Of accounts; 0: the literal layout of the ledger paper
        #[arg(long, default_value_t = 3)]
        levels: usize,
        /// llm_tokens per minute by forecast
        #[arg(long)]
        forecast: bool,
        /// Only the commands that no layout does without, nothing decided
        #[arg(long, conflicts_with = "forecast")]
        floor: bool,
        #[arg(long, default_value_t = 2_000)]
        count: usize,
    },
    /// Memory of accounts, in a process that has done nothing else.
    #[command(hide = true)]
    Weigh {
        #[arg(long)]
        own_accounts: bool,
    },
    /// The fixed provider, as a process of its own.
    #[command(hide = true)]
    Provider {
        #[arg(long)]
        tls: Option<PathBuf>,
    },
    /// The baseline, as a process of its own.
    #[command(hide = true)]
    PassThrough {
        #[arg(long)]
        upstream: Authority,
        /// Folder of the run's certificate; TLS on both sides then.
        #[arg(long)]
        tls: Option<PathBuf>,
    },
}

/// Calls of the past, after which a call must cost what it did at first: a million, and beyond the place where the server's
/// tables of keys double.
const PAST_CALLS: usize = 1_200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Small,
    Large,
    Chunks,
    Latency,
    Memory,
    Start,
    /// CPU per call with TLS on both sides, over HTTP/1.1 and HTTP/2.
    Tls,
    /// Memory per open stream with TLS on both sides.
    TlsMemory,
    /// The pure ledger and the memory engine.
    Ledger,
    /// Counting of input: byte classes and exact.
    Count,
    /// CPU of the server of a shared book; needs `redis-server`.
    Shared,
    /// Spread, latency and growth of a shared book; needs `redis-server`.
    SharedGrowth,
}

#[derive(Debug, Args)]
struct BookOptions {
    /// Folder of the recorded traces; made ones stand in if it is not there
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"))]
    traces: PathBuf,
    /// Seeds of each run
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Made traces of some minutes only
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// End with exit code 1 if a target is missed
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Args)]
struct Options {
    /// The gateway's program; the one beside this program if absent.
    #[arg(long)]
    gateway: Option<PathBuf>,
    /// Measure a second pass-through in the gateway's place: all ratios must be near 1.
    #[arg(long, conflicts_with = "gateway")]
    self_check: bool,
    /// A short run that shows that everything works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Rounds of each scenario.
    #[arg(long)]
    rounds: Option<u32>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// End with exit code 1 if a bound is missed.
    #[arg(long)]
    check: bool,
}

fn main() -> Result<()> {
    raise_descriptor_limit();
    let cli = Cli::parse();
    let mut runtime = match cli.role {
        // One thread for the provider: it must not compete with what is measured.
        Role::Provider { .. } => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.enable_all().build()?.block_on(run(cli.role))
}

async fn run(role: Role) -> Result<()> {
    match role {
        Role::Provider { tls } => {
            let tls = tls.map(|folder| Files::of(&folder).acceptor()).transpose()?;
            provider::serve(listen().await?, tls).await.context("provider")
        }
        Role::PassThrough { upstream, tls } => {
            let tls = tls.map(|folder| Files::of(&folder));
            pass_through::serve(listen().await?, upstream, tls).await.context("pass-through")
        }
        Role::Weigh { own_accounts } => {
            writeln!(std::io::stdout(), "{}", book::weigh(own_accounts)?)?;
            Ok(())
        }
        Role::Pairs { levels, forecast, floor, count } => shared::pairs(levels, forecast, floor, count).await,
        Role::Book(options) => tokio::task::spawn_blocking(move || compare(&options)).await?,
        Role::All(options) => measure(Scenario::value_variants(), &options).await,
        Role::Only { scenarios, options } => measure(&scenarios, &options).await,
    }
}

fn compare(options: &BookOptions) -> Result<()> {
    let recordings = options.traces.is_dir().then(|| options.traces.clone());
    let plan = bookings::Plan { seeds: options.seeds, recordings, short: options.quick };
    let report = bookings::run(&plan)?;
    let mut out = std::io::stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", report.text())?;
    }
    if options.check && report.targets.iter().any(|target| !target.met) {
        bail!("a target was missed");
    }
    Ok(())
}

async fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on http://{}", listener.local_addr()?)?;
    out.flush()?;
    Ok(listener)
}

async fn measure(scenarios: &[Scenario], options: &Options) -> Result<()> {
    let mut rows: Vec<Row> = Vec::new();
    // First and alone, as it weighs this process itself.
    if scenarios.contains(&Scenario::Ledger) {
        rows.extend(book::rows(book_plan(options)).await?);
        rows.extend(plans::rows(book_plan(options)).await?);
    }
    if scenarios.contains(&Scenario::Count) {
        rows.extend(count::rows(count_plan(options))?);
    }
    if scenarios.contains(&Scenario::Shared) {
        rows.extend(shared::rows(book_plan(options)).await?);
    }
    if scenarios.contains(&Scenario::SharedGrowth) {
        rows.extend(
            shared::growth_rows(book_plan(options), if options.quick { 10_000 } else { PAST_CALLS }).await?,
        );
    }
    let alone = |scenario: &Scenario| {
        matches!(scenario, Scenario::Ledger | Scenario::Count | Scenario::Shared | Scenario::SharedGrowth)
    };
    if !scenarios.iter().all(alone) {
        rows.extend(proxied(scenarios, options).await?);
    }
    let mut out = std::io::stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        write!(out, "{}", table(&rows))?;
    }
    if options.check && rows.iter().any(|row| row.met() == Some(false)) {
        bail!("a bound was missed");
    }
    Ok(())
}

/// The scenarios that need provider, baseline and gateway.
async fn proxied(scenarios: &[Scenario], options: &Options) -> Result<Vec<Row>> {
    let bench = Bench::start(plan(options)?)?;
    let mut rows = Vec::new();
    for scenario in scenarios {
        rows.extend(match scenario {
            Scenario::Small => bench.small().await?,
            Scenario::Large => bench.large().await?,
            Scenario::Chunks => bench.chunks().await?,
            Scenario::Latency => bench.latency().await?,
            Scenario::Memory => bench.memory().await?,
            Scenario::Start => bench.start_time().await?,
            Scenario::Tls => bench.tls().await?,
            Scenario::TlsMemory => bench.tls_memory().await?,
            Scenario::Ledger | Scenario::Count | Scenario::Shared | Scenario::SharedGrowth => Vec::new(),
        });
    }
    Ok(rows)
}

fn book_plan(options: &Options) -> book::Plan {
    let (rounds, round) =
        if options.quick { (1, Duration::from_millis(300)) } else { (5, Duration::from_secs(2)) };
    book::Plan { rounds: options.rounds.unwrap_or(rounds), round }
}

fn count_plan(options: &Options) -> count::Plan {
    let (rounds, round) =
        if options.quick { (1, Duration::from_millis(100)) } else { (5, Duration::from_secs(1)) };
    count::Plan { rounds: options.rounds.unwrap_or(rounds), round }
}

fn plan(options: &Options) -> Result<Plan> {
    let gateway = if options.self_check {
        None
    } else {
        let beside = std::env::current_exe()?.with_file_name("tollbook");
        let program = options.gateway.clone().unwrap_or(beside);
        if !program.exists() {
            bail!(
                "{} is missing; build it, or compare the baseline with itself: --self-check",
                program.display()
            );
        }
        Some(program)
    };
    let quick = options.quick;
    Ok(Plan {
        rounds: options.rounds.unwrap_or(if quick { 2 } else { 7 }),
        round: if quick { Duration::from_millis(400) } else { Duration::from_secs(3) },
        standing_streams: if quick { 200 } else { 1_500 },
        starts: if quick { 2 } else { 7 },
        gateway,
    })
}
