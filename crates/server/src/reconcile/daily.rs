//! Once a day, and at a start: what providers' files say beside the journal, as a metric and as lines of the log.
//!
//! Invariants: nothing is posted; of the gateways that share a journal one does it, as long as it lives; files and lines of
//! the log are bounded. What cannot be read is told and tried again later; the figures of the time before stand meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tollbook_store::{Day, DayRange, GatewayId, JobLeases, Journal, Name, Side, TotalsQuery};
use tollbook_telemetry::labels::{Job, Run};
use tollbook_telemetry::{Metrics, PoolLabel};

use super::files::Read;
use super::post::OVER_AFTER;
use super::{Found, Line, Usage, Whose, compare, error_millionths, ours, renamed};
use crate::config::Reconcile;
use crate::report::day_text;
use crate::text::exact;

const JOB: &str = "reconcile";
/// How long another gateway waits for one that does the job and fell silent, and how often that one says that it lives.
const LEASE: Duration = Duration::from_secs(90);
const KEPT_EVERY: Duration = Duration::from_secs(30);
/// Pause after a try that failed.
const AGAIN_AFTER: Duration = Duration::from_mins(15);
/// Files that are read at once.
const FILES_MAX: usize = 1_000;
/// Differences that are told, each with a line.
const LINES_MAX: usize = 100;
const DAY_S: u64 = 86_400;

pub(crate) struct Daily {
    settings: Reconcile,
    journal: Arc<dyn Journal>,
    leases: Arc<dyn JobLeases>,
    metrics: Arc<Metrics>,
    gateway: GatewayId,
    /// Pools that have a figure which is not 0.
    told: Vec<PoolLabel>,
    /// The day's turn that was taken last; `None`: this gateway has done none since the job is its own.
    turn: Option<u64>,
    not_before: Instant,
}

impl Daily {
    pub(crate) fn new(
        settings: Reconcile,
        journal: Arc<dyn Journal>,
        leases: Arc<dyn JobLeases>,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let mut gateway = [0; 8];
        getrandom::fill(&mut gateway).map_err(|error| anyhow!("no random bits: {error}"))?;
        let gateway = GatewayId::from_le_bytes(gateway);
        let (told, turn, not_before) = (Vec::new(), None, Instant::now());
        Ok(Self { settings, journal, leases, metrics, gateway, told, turn, not_before })
    }

    /// Does it every day until `stop` turns true.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            self.step().await;
            tokio::select! {
                () = tokio::time::sleep(KEPT_EVERY) => {}
                // A sender that is gone stops too.
                _ = stop.wait_for(|stopped| *stopped) => break,
            }
        }
        if let Err(error) = self.leases.job_leave(JOB, self.gateway).await {
            tracing::debug!(%error, "the lease of the daily comparison ends by itself");
        }
    }

    async fn step(&mut self) {
        let leads = match self.leases.job_lease(JOB, self.gateway, LEASE).await {
            Ok(leads) => leads,
            // Whose it is cannot be told; what is there stands.
            Err(error) => return self.failed(&anyhow!("{error}")),
        };
        if !leads {
            if self.turn.take().is_some() {
                self.clear();
            }
            return;
        }
        let now = now();
        let turn = now.saturating_sub(self.settings.at) / DAY_S;
        if self.turn == Some(turn) || Instant::now() < self.not_before {
            return;
        }
        match self.compared(now).await {
            Ok(found) => {
                self.turn = Some(turn);
                self.metrics.jobs_runs.inc((Job::Reconcile, Run::Ok));
                self.tell(&found, now);
            }
            Err(error) => {
                self.not_before = Instant::now() + AGAIN_AFTER;
                self.failed(&error);
            }
        }
    }

    fn failed(&self, error: &anyhow::Error) {
        self.metrics.jobs_runs.inc((Job::Reconcile, Run::Failed));
        tracing::error!(error = format!("{error:#}"), "providers' files were not compared with the journal");
    }

    async fn compared(&self, now: u64) -> anyhow::Result<Found> {
        let settings = self.settings.clone();
        let read =
            tokio::task::spawn_blocking(move || files(&settings)).await.context("reading broke off")??;
        let all = days(&self.settings, now);
        let usage: Usage =
            read.usage.into_iter().filter(|(key, _)| (all.from..=all.to).contains(&key.day)).collect();
        let (Some((first, _)), Some((last, _))) = (usage.first_key_value(), usage.last_key_value()) else {
            tracing::warn!(folder = %self.settings.folder.display(), "no provider's file has a day of the last ones");
            return Ok(Found::default());
        };
        let days = DayRange { from: first.day, to: last.day };
        let all = Name::default;
        let query = TotalsQuery { days, side: Side::Tenant, tenant: all(), pool: all(), model: all() };
        let totals = self.journal.totals(&query).await.context("cannot read the journal")?;
        let ours = ours(&totals, &usage.keys().map(|key| key.scope.clone()).collect());
        Ok(compare(&renamed(usage, &ours, &self.settings.models), &ours, self.settings.tolerance))
    }

    fn tell(&mut self, found: &Found, now: u64) {
        let above = found.above().count();
        for line in found.above().take(LINES_MAX) {
            let cost = line.measure == "cost";
            let text = |amount: i128| if cost { exact(amount) } else { amount.to_string() };
            let counted = line.provider.map(|counted| text(i128::try_from(counted).unwrap_or(i128::MAX)));
            tracing::warn!(
                day = day_text(line.key.day),
                tenant = line.key.scope.tenant,
                upstream = line.key.scope.upstream,
                model = line.key.model,
                measure = line.measure,
                provider = counted.as_deref().unwrap_or("missing"),
                journal = line.journal.map(text).as_deref().unwrap_or("missing"),
                "a provider counted otherwise than the journal"
            );
        }
        if above > LINES_MAX {
            tracing::warn!(
                more = above - LINES_MAX,
                "further amounts differ; `tollbook reconcile` tells them"
            );
        }
        let mut lines: HashMap<PoolLabel, Vec<&Line>> = HashMap::new();
        for line in &found.lines {
            let pool = format!("{}/{}", line.key.scope.upstream, line.key.model);
            lines.entry(self.metrics.label(&pool)).or_default().push(line);
        }
        let rates =
            lines.into_iter().filter_map(|(pool, lines)| Some((pool, error_millionths(lines.into_iter())?)));
        let rates: HashMap<PoolLabel, u128> = rates.collect();
        // One that is not compared any more does not keep its figure.
        let gone = self.told.drain(..).filter(|pool| !rates.contains_key(pool)).map(|pool| (pool, 0));
        for (pool, rate) in gone.chain(rates.clone()) {
            self.metrics
                .reconcile_error_ratio
                .set_millionths((pool,), u64::try_from(rate).unwrap_or(u64::MAX));
        }
        self.told = rates.into_keys().collect();
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.metrics.reconcile_compared.set((), count(found.lines.len()));
        self.metrics.reconcile_differing.set((), count(above));
        self.metrics.reconcile_done_unix.set((), now);
        tracing::info!(
            compared = found.lines.len(),
            above,
            "providers' files were compared with the journal"
        );
    }

    /// What another gateway tells is 0 here.
    fn clear(&mut self) {
        let metrics = &self.metrics;
        for pool in self.told.drain(..) {
            metrics.reconcile_error_ratio.set_millionths((pool,), 0);
        }
        for gauge in [&metrics.reconcile_compared, &metrics.reconcile_differing, &metrics.reconcile_done_unix]
        {
            gauge.set((), 0);
        }
    }
}

fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or(0)
}

/// The days that are over for long enough, as many as are wanted.
fn days(settings: &Reconcile, now: u64) -> DayRange {
    let today = now.saturating_sub(OVER_AFTER) / DAY_S;
    let back = |days: u64| Day(u32::try_from(today.saturating_sub(days)).unwrap_or(u32::MAX));
    DayRange { from: back(settings.days.into()), to: back(1) }
}

/// What the files of the folder say: those of each folder in it of the upstream that is named so.
fn files(settings: &Reconcile) -> anyhow::Result<Read> {
    let mut read = Read::default();
    let (own, folders) = listed(&settings.folder)?;
    let mut groups = vec![(Whose { tenant: None, upstream: None }, own)];
    for folder in folders {
        let name = folder.file_name().and_then(|name| name.to_str());
        let Some(upstream) = name.filter(|name| !name.starts_with('.')).map(str::to_owned) else { continue };
        groups.push((Whose { tenant: None, upstream: Some(upstream) }, listed(&folder)?.0));
    }
    if groups.iter().map(|(_, files)| files.len()).sum::<usize>() > FILES_MAX {
        bail!("{}: more than {FILES_MAX} files", settings.folder.display());
    }
    for (whose, files) in groups {
        read.take(&files, settings.columns.as_ref(), &whose).map_err(|what| anyhow!("{what}"))?;
    }
    read.in_one_currency().map_err(|what| anyhow!("{what}"))?;
    Ok(read)
}

/// Files that may be a provider's, and folders, each in the order of their names.
fn listed(folder: &Path) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut folders) = (BTreeSet::new(), BTreeSet::new());
    let cannot = || format!("cannot read the folder {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let kind = path.extension().and_then(|kind| kind.to_str()).map(str::to_ascii_lowercase);
        if path.is_dir() {
            folders.insert(path);
        } else if matches!(kind.as_deref(), Some("csv" | "json")) {
            files.insert(path);
        }
        if files.len().saturating_add(folders.len()) > FILES_MAX {
            bail!("{}: more than {FILES_MAX} files", folder.display());
        }
    }
    Ok((files.into_iter().collect(), folders.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(folder: &Path) -> Reconcile {
        let folder = folder.to_owned();
        Reconcile { folder, at: 21_600, tolerance: 5_000, days: 7, models: BTreeMap::new(), columns: None }
    }

    #[test]
    fn only_days_that_are_over_for_an_hour_are_compared() {
        let settings = settings(Path::new("x"));
        let at = |now: u64| (days(&settings, now).from.0, days(&settings, now).to.0);
        assert_eq!(at(100 * DAY_S + OVER_AFTER), (93, 99));
        assert_eq!(at(100 * DAY_S + OVER_AFTER - 1), (92, 98));
    }

    #[test]
    fn a_folder_in_the_folder_is_an_upstreams() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("all.csv", "date,tenant,model,input\n2026-03-01,acme,m,5\n");
        write("openai/1.csv", "date,model,input\n2026-03-01,m,6\n");
        write("openai/2.CSV", "date,model,input\n2026-03-01,m,7\n");
        write("openai/readme.txt", "nothing");
        write(".hidden/1.csv", "nonsense");
        let read = files(&settings(folder.path())).unwrap();
        let told: Vec<(&str, &str, Option<u128>)> = read
            .usage
            .iter()
            .map(|(key, amounts)| (key.scope.tenant.as_str(), key.scope.upstream.as_str(), amounts[1]))
            .collect();
        assert_eq!(told, [("", "openai", Some(13)), ("acme", "", Some(5))]);
        write("openai/3.csv", "date,model,input\n2026-03-01,m,x\n");
        assert!(files(&settings(folder.path())).err().unwrap().to_string().contains("3.csv:2"));
    }

    #[test]
    fn so_many_files_are_read_and_not_one_more() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..FILES_MAX {
            std::fs::write(
                folder.path().join(format!("{n}.csv")),
                format!("date,tenant,model,input\n2026-03-01,a,m,{n}\n"),
            )
            .unwrap();
        }
        assert!(files(&settings(folder.path())).is_ok());
        std::fs::write(folder.path().join("more.csv"), "date,tenant,model,input\n").unwrap();
        assert!(files(&settings(folder.path())).err().unwrap().to_string().contains("more than 1000 files"));
    }
}
