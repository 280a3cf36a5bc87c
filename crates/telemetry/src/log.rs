//! Logs: one line per event, text for people or JSON for machines, on standard error.
//!
//! Invariants: colours only on a terminal; no prompt, answer, key or header value is ever a field. One span per call,
//! none per chunk.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    Text,
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug)]
pub struct LogSettings {
    pub format: LogFormat,
    /// Levels, as in `info,tollbook_gateway=debug`.
    pub filter: String,
}

/// What is logged unless configured otherwise.
pub const DEFAULT_FILTER: &str = "info,hyper=warn,hyper_util=warn,rustls=warn,sqlx=warn";

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Auto, filter: DEFAULT_FILTER.to_owned() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the log filter cannot be read: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("logs are set up already")]
    AlreadySet,
}

/// Sets up the process's logs on standard error; once.
pub fn init(settings: &LogSettings) -> Result<(), LogError> {
    let terminal = std::io::stderr().is_terminal();
    let coloured = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let subscriber = subscriber(settings, terminal, coloured, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadySet)
}

/// What `init` sets up, for any writer.
pub fn subscriber<W>(
    settings: &LogSettings,
    terminal: bool,
    coloured: bool,
    writer: W,
) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&settings.filter)?;
    let base = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(coloured)
        .with_span_events(FmtSpan::NONE);
    let json = match settings.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    if json {
        let json = base.json().flatten_event(true).with_current_span(true).with_span_list(false);
        return Ok(Box::new(json.finish()));
    }
    Ok(Box::new(base.compact().finish()))
}

/// Lets one line through per interval and counts the others, so that an outage does not flood the log.
#[derive(Debug)]
pub struct Every {
    interval: Duration,
    state: Mutex<EveryState>,
}

#[derive(Debug, Default)]
struct EveryState {
    last: Option<Instant>,
    suppressed: u64,
}

impl Every {
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// `Some(suppressed)` if a line may be written now; `suppressed` were not since the last one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}
