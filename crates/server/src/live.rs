//! Puts another configuration in force while calls run: a file's, or the same with other objects of the store.
//!
//! All or nothing: everything that can fail comes before the first thing that changes, and the change itself is one swap.
//! A call keeps the generation it was decided under; what is new holds for the next one.
//! What a running process cannot change keeps its value, and is told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::sync::watch;
use tollbook_admission::{Admission, Settings, Snapshot};
use tollbook_gateway::{Config, Gateway};
use tollbook_jobs::{Opening, Openings};
use tollbook_ledger::units::SECOND;
use tollbook_policy::Catalog;
use tollbook_store_sql::{Place, SqlStore};
use tollbook_telemetry::Metrics;

use crate::admin::Admin;
use crate::config::file::Log;
use crate::config::{Alerts, Reconcile, Setup, Traces};
use crate::history;
use crate::office::{Done, Ground, Next, Office, OfficeError, Order, State};
use crate::prices;
use crate::run::warm;

/// Longest wait for new quotas to start from what the journal has; after it they are opened while calls run.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Everything of a running program that a configuration reaches.
pub struct Live {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) admission: Arc<Admission>,
    /// `None` where the operator's listener was not opened.
    pub(crate) admin: Option<Arc<Admin>>,
    pub(crate) store: SqlStore,
    pub(crate) openings: Arc<Openings>,
    /// The quotas that the running configuration has to open.
    pub(crate) lists: watch::Sender<Arc<Vec<Opening>>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pinned: Pinned,
    /// What operators define, where the store has it.
    pub(crate) office: Option<Arc<Office>>,
}

/// A configuration that came in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    pub generation: u64,
    /// Settings that differ from what the process runs with and need a restart.
    pub waiting: Vec<String>,
}

impl Live {
    /// Puts a checked configuration in force for every call from now on.
    ///
    /// # Errors
    /// When an upstream cannot be set up or the store is away; then nothing has changed.
    pub async fn apply(&self, setup: Setup) -> anyhow::Result<Applied> {
        let waiting = self.pinned.waiting(&Pinned::of(&setup));
        let Setup { gateway, admin, snapshot, base, .. } = setup;
        let generation = match (&self.office, base) {
            (None, None) => self.put(snapshot, Some(gateway), |_| {}).await?,
            (Some(office), Some(base)) => {
                let mut state = office.lock().await;
                office.read_on(&mut state).await?;
                let before = state.clone();
                let next = state.rebase(base)?;
                let put = match office.check_all(&state).await {
                    Ok(()) => self.put_next(office, next).await,
                    Err(unfit) => Err(unfit),
                };
                match &put {
                    Ok(_) => office.tenants.saw(state.revision()),
                    Err(_) => *state = before,
                }
                put?
            }
            _ => bail!("config.source cannot change while a gateway runs; start it again"),
        };
        if let Some(listener) = &self.admin {
            listener.set_key(admin.as_ref().map(|admin| &admin.api_key));
        }
        Ok(Applied { generation, waiting })
    }

    /// Takes what operators have changed since the last time, here or elsewhere.
    ///
    /// # Errors
    /// When the store is away, or what is there does not fit this gateway's file; what is in force stays.
    pub async fn follow(&self) -> anyhow::Result<()> {
        let Some(office) = &self.office else { return Ok(()) };
        let Some(mut state) = office.try_lock() else { return office.hear().await };
        office.read_on(&mut state).await?;
        self.put_objects(office, &mut state).await
    }

    /// Reads anew what is kept of tenants that changed.
    ///
    /// # Errors
    /// When one cannot be read or does not fit; what is kept of it stays where it may.
    pub(crate) async fn renew(&self) -> Result<(), Arc<str>> {
        match &self.office {
            Some(office) => office.tenants.renew().await,
            None => Ok(()),
        }
    }

    /// Changes objects, and puts them in force here before it answers; elsewhere they are a moment later.
    pub async fn edit(&self, order: &Order) -> Result<Done, OfficeError> {
        let Some(office) = &self.office else { return Err(OfficeError::File) };
        let mut state = office.lock().await;
        let done = office.write(&mut state, order).await?;
        if !order.dry_run
            && let Err(error) = self.put_objects(office, &mut state).await
        {
            // It is written, and tried again in a moment.
            tracing::error!(error = format!("{error:#}"), "a change is written and not in force here yet");
        }
        Ok(done)
    }

    async fn put_objects(&self, office: &Office, state: &mut State) -> anyhow::Result<()> {
        if let Some(next) = state.next()? {
            self.put_next(office, next).await?;
            state.is_in_force();
        }
        office.tenants.saw(state.revision());
        Ok(())
    }

    /// Tenants stand on it before the first call is decided by it: none is ever made on what was before for such a call.
    async fn put_next(&self, office: &Office, next: Next) -> anyhow::Result<u64> {
        let Next { catalog, whole, common, plans_at, providers } = next;
        let (prices, models) = (Arc::clone(&whole.prices), Arc::clone(&whole.models));
        let snapshot = Snapshot::new(0, catalog, prices, models, whole.hasher().clone());
        let settings = providers.then(|| whole.gateway.clone());
        let stand = |snapshot: &Arc<Snapshot>| {
            let snapshot = Arc::clone(snapshot);
            office.tenants.stand_on(Ground { snapshot, whole, common, plans_at });
        };
        self.put(snapshot, settings, stand).await
    }

    /// Puts a snapshot in force, and other settings of the data plane if there are; `first` is told of it as it is to be
    /// in force. Returns its generation.
    async fn put(
        &self,
        snapshot: Snapshot,
        settings: Option<Config>,
        first: impl FnOnce(&Arc<Snapshot>),
    ) -> anyhow::Result<u64> {
        let generation = self.admission.snapshot().generation.saturating_add(1);
        let mut tries = 0;
        let (snapshot, prepared, list) = loop {
            let now = self.admission.now() / SECOND;
            let past = history::look_up(Catalog::clone(&snapshot.catalog), &self.store, now).await?;
            let list = history::openings(&past.needed, &past.catalog, &self.store).await;
            let list = list.context("cannot read the journal")?;
            let (prices, models) = (Arc::clone(&snapshot.prices), Arc::clone(&snapshot.models));
            let hash = snapshot.api_key_hash.clone();
            let next = Arc::new(Snapshot::new(generation, past.catalog.clone(), prices, models, hash));
            let prepared = match &settings {
                Some(settings) => {
                    let prepared = self.gateway.prepare(settings.clone(), Arc::clone(&next));
                    prepared.map_err(|error| anyhow!("cannot set up the upstreams: {error}"))?
                }
                None => self.gateway.prepare_snapshot(Arc::clone(&next)),
            };
            if past.write_down(&self.store, history::EVERYBODY).await? {
                break (next, prepared, list);
            }
            tries += 1;
            if tries == history::TRIES {
                bail!("other gateways write the history of the limits faster than this one can follow");
            }
        };
        if snapshot.prices.version != self.admission.snapshot().prices.version {
            prices::keep(&self.store, &snapshot.prices).await?;
        }
        // Nothing fails from here on.
        self.open(list).await;
        first(&snapshot);
        self.gateway.replace(prepared);
        warm(&snapshot);
        self.metrics.config_generation.set((), generation);
        Ok(generation)
    }

    /// New quotas start from what the journal has, before the first call counts on them. A second round of the job
    /// catches calls that end without the new account.
    async fn open(&self, list: Vec<Opening>) {
        let same = self.lists.borrow().iter().map(key).eq(list.iter().map(key));
        if same {
            return;
        }
        match tokio::time::timeout(OPEN_WITHIN, self.openings.once(&list)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "new quotas begin empty; they are opened later"),
            Err(_) => tracing::warn!("new quotas begin before all of them are opened"),
        }
        self.lists.send_replace(Arc::new(list));
    }
}

/// What makes two openings the same.
fn key(opening: &Opening) -> (u128, u64) {
    (opening.id, opening.end)
}

/// What a process starts with and keeps to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pinned {
    listen: SocketAddr,
    /// Clients come in over TLS; with which certificate may change.
    tls: bool,
    /// `None`: closed.
    admin: Option<SocketAddr>,
    data_dir: PathBuf,
    journal: Place,
    journal_keep_days: Option<u32>,
    book: String,
    log: Log,
    calls: Settings,
    connections_max: usize,
    drains_max: usize,
    traces: Option<Traces>,
    reconcile: Option<Reconcile>,
    alerts: Option<Alerts>,
}

impl Pinned {
    pub(crate) fn of(setup: &Setup) -> Self {
        Self {
            listen: setup.gateway.listen,
            tls: setup.gateway.tls.is_some(),
            admin: setup.admin.as_ref().map(|admin| admin.listen),
            data_dir: setup.data_dir.clone(),
            journal: setup.journal.clone(),
            journal_keep_days: setup.journal_keep_days,
            book: setup.book.described(),
            log: setup.log.clone(),
            calls: setup.calls,
            connections_max: setup.gateway.bounds.connections_max,
            drains_max: setup.gateway.bounds.drains_max,
            traces: setup.traces.clone(),
            reconcile: setup.reconcile.clone(),
            alerts: setup.alerts.clone(),
        }
    }

    /// The settings of `file` that are not what runs.
    fn waiting(&self, file: &Self) -> Vec<String> {
        let admin =
            |listen: Option<SocketAddr>| listen.map_or_else(|| "closed".to_owned(), |at| at.to_string());
        let on = |tls: bool| if tls { "on" } else { "off" }.to_owned();
        let settings = [
            ("listen", self.listen.to_string(), file.listen.to_string()),
            ("tls", on(self.tls), on(file.tls)),
            ("admin.listen", admin(self.admin), admin(file.admin)),
            ("data_dir", self.data_dir.display().to_string(), file.data_dir.display().to_string()),
            ("journal", self.journal.to_string(), file.journal.to_string()),
            ("journal_keep_days", kept(self.journal_keep_days), kept(file.journal_keep_days)),
            ("engine", self.book.clone(), file.book.clone()),
            ("log", debug(&self.log), debug(&file.log)),
            ("calls", debug(&self.calls), debug(&file.calls)),
            ("http.connections_max", self.connections_max.to_string(), file.connections_max.to_string()),
            ("http.drains_max", self.drains_max.to_string(), file.drains_max.to_string()),
        ];
        let changed = settings.into_iter().filter(|(_, runs, wanted)| runs != wanted);
        let mut waiting: Vec<String> =
            changed.map(|(name, runs, wanted)| waits(name, &runs, &wanted)).collect();
        if self.reconcile != file.reconcile {
            waiting.push("reconcile stays as it was at the start".to_owned());
        }
        // Not shown: secrets are among it, and among the next.
        if self.alerts != file.alerts {
            waiting.push("alerts stays as it was at the start".to_owned());
        }
        if self.traces != file.traces {
            waiting.push("traces stays as it was at the start".to_owned());
        }
        waiting
    }
}

fn kept(days: Option<u32>) -> String {
    days.map_or_else(|| "for ever".to_owned(), |days| days.to_string())
}

fn debug(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// Groups of settings are not quoted.
fn waits(name: &str, runs: &str, wanted: &str) -> String {
    if runs.contains('{') {
        format!("{name} stays as it was at the start")
    } else {
        format!("{name} stays {runs}, not {wanted}")
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("pinned", &self.pinned).finish_non_exhaustive()
    }
}
