//! Reads the configuration again when its files change, or when told to.
//!
//! All or nothing: a file that cannot be taken leaves everything as it is, and is told with line and column, in the log
//! and as a metric, until one that can be taken is there. A file that somebody is still writing to is not read: it is
//! waited for until it is closed and quiet, and what was read counts only if it did not change meanwhile.
//! When the system tells of no changes: a look from time to time finds them. When the store is away: tried again then.

mod chain;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tollbook_ledger::units::SECOND;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Run;

use crate::config::{self, LoadError, Place, Setup};
use crate::live::{Applied, Live};
use watch::{Look, Watch};

/// Mistakes of one file that get a log line.
const LINES_MAX: usize = 16;
/// Times a file that changes while it is read is read again at once, when told to read it.
const READS_MAX: usize = 8;

/// How a variable of the environment is looked up.
pub type Lookup = fn(&str) -> Option<String>;

/// How long things are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long files must be quiet before they are read.
    pub quiet: Duration,
    /// How long files that never become quiet are waited for.
    pub patience: Duration,
    /// How long after a read another change still spoils it.
    pub settle: Duration,
    /// Pause between two looks, in case no event came.
    pub look: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(250),
            patience: Duration::from_secs(5),
            settle: Duration::from_millis(20),
            look: Duration::from_secs(30),
        }
    }
}

/// When files are read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// When they change, and on SIGHUP.
    Change,
    /// On SIGHUP alone.
    Signal,
}

/// Reads, checks, and puts in force.
#[derive(Debug)]
pub struct Reloader {
    path: PathBuf,
    lookup: Lookup,
    pace: Pace,
    on: On,
    metrics: Arc<Metrics>,
    /// Of what is in force.
    digest: blake3::Hash,
    /// What is looked at.
    files: Vec<PathBuf>,
    look: Look,
    /// What was told last of a file that cannot be taken.
    told: Option<String>,
    /// The last failure was not the file's.
    again: bool,
}

/// Why a configuration was not taken.
enum Failure {
    File(LoadError),
    Program(anyhow::Error),
}

impl Reloader {
    /// For a program that was started with what `path` said; `files` and `digest` are those of its set-up.
    pub fn new(
        path: &Path,
        (files, digest): (Vec<PathBuf>, blake3::Hash),
        metrics: Arc<Metrics>,
        lookup: Lookup,
        on: On,
    ) -> Self {
        let (path, pace) = (path.to_owned(), Pace::default());
        // Nothing was looked at yet: a file that has changed since it was read is seen by the first look.
        let look = Look::default();
        Self { path, lookup, pace, on, metrics, digest, files, look, told: None, again: false }
    }

    /// Other times, for tests.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Goes on for ever; dropping it is the way to stop it, at any moment.
    pub async fn run(mut self, live: &Live, mut hangups: Signal) {
        match self.on {
            On::Signal => loop {
                hangup(&mut hangups).await;
                self.told_to(live).await;
            },
            On::Change => self.watch(live, hangups).await,
        }
    }

    async fn watch(&mut self, live: &Live, mut hangups: Signal) {
        let mut watch = Watch::new();
        watch.follow(&self.files);
        let mut mark = watch.mark();
        let mut looks = tokio::time::interval(self.pace.look);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let quiet = async {
                tokio::select! {
                    () = watch.changed(mark) => {}
                    () = self.differs(&mut looks) => {}
                }
                watch.quiet(self.pace.quiet, self.pace.patience).await
            };
            let seen = tokio::select! {
                seen = quiet => Some(seen),
                () = hangup(&mut hangups) => None,
            };
            match seen {
                Some(seen) => {
                    mark = seen;
                    // Before it is read, so that no change after that is missed.
                    watch.follow(&self.files);
                    if let Some((result, look)) = self.read(live).await
                        && watch.mark() == mark
                    {
                        self.take(live, result, look, false).await;
                    }
                }
                None => self.told_to(live).await,
            }
            watch.follow(&self.files);
        }
    }

    /// Returns when a look finds the files changed, or something is to be tried again.
    async fn differs(&self, looks: &mut tokio::time::Interval) {
        loop {
            looks.tick().await;
            // What stands in the way of a file may lie outside of it.
            if self.again || self.told.is_some() || Look::at(&self.files) != self.look {
                return;
            }
        }
    }

    /// Reads at once, whatever is being written.
    async fn told_to(&mut self, live: &Live) {
        tracing::info!("told to read the configuration again");
        for _ in 0..READS_MAX {
            if let Some((result, look)) = self.read(live).await {
                return self.take(live, result, look, true).await;
            }
        }
        tracing::error!("the configuration changes faster than it can be read; what is in force stays");
    }

    /// Reads and checks; `None` if the files changed meanwhile.
    async fn read(&self, live: &Live) -> Option<(Result<Box<Setup>, LoadError>, Look)> {
        let (path, lookup, files) = (self.path.clone(), self.lookup, self.files.clone());
        let settle = self.pace.settle;
        let running = live.admission.snapshot();
        let known: Vec<_> = running.models.values().filter_map(|plan| plan.counting.file.clone()).collect();
        let reading = tokio::task::spawn_blocking(move || {
            let before = Look::at(&files);
            let result = config::load_whole(&path, &lookup, &known).map(Box::new);
            (before, result, files)
        });
        let (before, result, files) = reading.await.ok()?;
        tokio::time::sleep(settle).await;
        if Look::at(&files) != before {
            return None;
        }
        let look = result.as_ref().map_or(before, |setup| Look::at(&setup.files));
        Some((result, look))
    }

    /// Does what a read came to.
    async fn take(&mut self, live: &Live, result: Result<Box<Setup>, LoadError>, look: Look, asked: bool) {
        self.look = look;
        self.again = false;
        let setup = match result {
            Ok(setup) => setup,
            Err(error) => return self.failed(&Failure::File(error), asked),
        };
        self.files.clone_from(&setup.files);
        let (digest, warnings) = (setup.digest, setup.warnings.clone());
        if digest == self.digest {
            if asked || self.told.is_some() {
                tracing::info!("the configuration is the one in force");
            }
            return self.good(live);
        }
        match live.apply(*setup).await {
            Ok(applied) => {
                self.digest = digest;
                self.taken(&applied, &warnings);
                self.good(live);
            }
            Err(error) => {
                self.again = true;
                self.failed(&Failure::Program(error), asked);
            }
        }
    }

    fn taken(&self, applied: &Applied, warnings: &[String]) {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        for waiting in &applied.waiting {
            tracing::warn!("until a restart, {waiting}");
        }
        let waiting = u64::try_from(applied.waiting.len()).unwrap_or(u64::MAX);
        self.metrics.config_restart_needed.set((), waiting);
        self.metrics.config_reloads.inc((Run::Ok,));
        tracing::info!(generation = applied.generation, "another configuration is in force");
    }

    fn good(&mut self, live: &Live) {
        self.told = None;
        self.metrics.config_loaded_unix.set((), live.admission.now() / SECOND);
        self.tell_place(None);
    }

    fn failed(&mut self, failure: &Failure, asked: bool) {
        let (text, place) = match failure {
            Failure::File(error) => (error.to_string(), place(error)),
            Failure::Program(error) => (format!("{error:#}"), Place { line: 0, column: 0 }),
        };
        self.tell_place(Some(place));
        if !asked && self.told.as_ref() == Some(&text) {
            return;
        }
        self.metrics.config_reloads.inc((Run::Failed,));
        match failure {
            Failure::File(LoadError::Invalid(report)) => log_report(report),
            Failure::File(LoadError::Read { .. }) | Failure::Program(_) => {
                tracing::error!(error = text, "the configuration is not taken; the one in force stays");
            }
        }
        self.told = Some(text);
    }

    /// The place of the first mistake while there is one.
    fn tell_place(&self, place: Option<Place>) {
        let Place { line, column } = place.unwrap_or(Place { line: 0, column: 0 });
        self.metrics.config_error.set((), u64::from(place.is_some()));
        self.metrics.config_error_line.set((), u64::from(line));
        self.metrics.config_error_column.set((), u64::from(column));
    }
}

fn place(error: &LoadError) -> Place {
    let first = match error {
        LoadError::Invalid(report) => report.problems.first().map(|problem| problem.place),
        LoadError::Read { .. } => None,
    };
    first.unwrap_or(Place { line: 0, column: 0 })
}

fn log_report(report: &config::Report) {
    for problem in report.problems.iter().take(LINES_MAX) {
        let Place { line, column } = problem.place;
        tracing::error!(
            file = report.file,
            line,
            column,
            at = problem.path,
            what = problem.what,
            help = problem.help,
            "the configuration is not taken; the one in force stays"
        );
    }
    let more = report.problems.len().saturating_sub(LINES_MAX);
    if more > 0 || report.more {
        tracing::error!(file = report.file, "more mistakes follow; `tollbook check` lists them");
    }
}

/// Waits for the next SIGHUP.
async fn hangup(hangups: &mut Signal) {
    if hangups.recv().await.is_none() {
        // The runtime's signals are gone; so is the process, soon.
        std::future::pending::<()>().await;
    }
}
