//! The whole program, wired: engine, journal, admission, gateway, operator's listener.
//!
//! Start: the addresses are taken, the book is replayed, the journal opens; nothing is served before everything stands.
//! Stop, in this order: the gateway takes nothing new and lets calls finish; everything is settled or spooled; the journal
//! takes what has ended; the log is closed. A step that fails is told, and the next is still taken.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollbook_admission::{Admission, Callers, CountMode, Losable, Snapshot};
use tollbook_gateway::{Config, Gateway};
use tollbook_jobs::{Days, Drain, Drift, Forgets, Opening, Openings, Recover, Sweep};
use tollbook_ledger::units::SECOND;
use tollbook_policy::Catalog;
use tollbook_store::{GatewayId, Journal, PriceBooks};
use tollbook_store_sql::{Place, SqlStore};
use tollbook_telemetry::Metrics;

use crate::admin::Admin;
use crate::alerts::{Deliver, Watch};
use crate::book::OpenBook;
use crate::config::{Alerts, Base, Book, Setup};
use crate::live::{Live, Pinned};
use crate::office::{Ground, Means, Next, Office, Reader};
use crate::reconcile::daily::Daily;
use crate::{history, observe, office, prices, recovery};

/// Longest wait for the last drain of the journal at a stop; what is left is there at the next start.
const LAST_DRAIN: Duration = Duration::from_secs(10);

/// For the process's own user alone.
const DATA_DIR_MODE: u32 = 0o700;

/// Where the program listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    pub gateway: SocketAddr,
    /// Clients come in over TLS.
    pub secure: bool,
    pub admin: Option<SocketAddr>,
}

impl Addresses {
    /// Where clients come in.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.gateway)
    }
}

/// The running program.
pub struct Running {
    pub addresses: Addresses,
    pub admission: Arc<Admission>,
    pub metrics: Arc<Metrics>,
    /// What puts another configuration in force.
    pub live: Arc<Live>,
    book: OpenBook,
    store: SqlStore,
    stop: Stops,
    tasks: Tasks,
}

/// What tells the parts to stop, in order.
struct Stops {
    gateway: watch::Sender<bool>,
    admission: watch::Sender<bool>,
    jobs: watch::Sender<bool>,
}

struct Tasks {
    gateway: JoinHandle<()>,
    admin: Option<JoinHandle<()>>,
    admission: JoinHandle<()>,
    jobs: JoinHandle<()>,
    office: Option<JoinHandle<()>>,
    observer: JoinHandle<()>,
    traces: Option<JoinHandle<()>>,
    daily: Option<JoinHandle<()>>,
    alerts: Option<JoinHandle<()>>,
}

impl Stops {
    fn new() -> Self {
        let sender = || watch::Sender::new(false);
        Self { gateway: sender(), admission: sender(), jobs: sender() }
    }
}

/// What is kept on disk, taken up where it was left.
struct Books {
    book: OpenBook,
    store: SqlStore,
    /// With what the limits' past leaves behind.
    snapshot: Snapshot,
    openings: Vec<Opening>,
    /// Where the store defines who may ask, and what that begins with.
    office: Option<(Arc<Office>, Next)>,
    /// Tells the fleet's cache what changed.
    forgets: Option<Arc<Forgets>>,
    /// Settings of the data plane, with the store's upstreams.
    gateway: Config,
}

impl Books {
    async fn open(
        (data_dir, journal): (&Path, &Place),
        book: &Book,
        (mut snapshot, base, mut gateway): (Snapshot, Option<Arc<Base>>, Config),
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        // What it holds is nobody else's to read; a folder that is there keeps its rights.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(DATA_DIR_MODE)
            .create(data_dir)
            .with_context(|| format!("cannot make the folder {}", data_dir.display()))?;
        let opened = async {
            SqlStore::open(journal).await.with_context(|| format!("cannot open the journal {journal}"))
        };
        let (book, store) = tokio::try_join!(OpenBook::open(book, data_dir), opened)?;
        let now = book.now().await.context("the book does not answer")?;
        let (mut office, mut forgets) = (None, None);
        if let Some(base) = base {
            forgets = book.cache().map(|cache| Arc::new(Forgets::new(cache, Arc::clone(metrics))));
            let reader = |objects| Reader {
                objects,
                history: Arc::new(store.clone()),
                journal: Arc::new(store.clone()),
                cache: book.cache(),
                forgets: forgets.clone(),
                metrics: Arc::clone(metrics),
            };
            let (opened, next) = Office::open(Arc::new(store.clone()), reader, base).await?;
            gateway = next.whole.gateway.clone();
            snapshot.catalog = Arc::new(next.catalog.clone());
            (snapshot.prices, snapshot.models) =
                (Arc::clone(&next.whole.prices), Arc::clone(&next.whole.models));
            office = Some((Arc::new(opened), next));
        }
        let (catalog, openings) =
            history::take_up(Catalog::clone(&snapshot.catalog), &store, &store, now / SECOND).await?;
        snapshot.catalog = Arc::new(catalog);
        prices::keep(&store, &snapshot.prices).await?;
        metrics.process_start_unix.set((), now / SECOND);
        metrics.config_loaded_unix.set((), now / SECOND);
        warm(&snapshot);
        Ok(Self { book, store, snapshot, openings, office, forgets, gateway })
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Running {
    /// Starts everything, or nothing. The addresses are taken first, so that a start that fails for one of them has
    /// written nothing.
    pub async fn start(setup: Setup) -> anyhow::Result<Self> {
        let pinned = Pinned::of(&setup);
        let listener = bind("listen", setup.gateway.listen).await?;
        let operators = match setup.admin {
            Some(admin) => Some((bind("admin.listen", admin.listen).await?, admin.api_key)),
            None => None,
        };
        let addresses = Addresses {
            gateway: listener.local_addr()?,
            secure: setup.gateway.tls.is_some(),
            admin: operators.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?,
        };
        let metrics = Arc::new(Metrics::new());
        let files = (setup.data_dir.as_path(), &setup.journal);
        let defined = (setup.snapshot, setup.base, setup.gateway);
        let Books { book, store, snapshot, openings, office, forgets, gateway } =
            Books::open(files, &setup.book, defined, &metrics).await?;
        let (office, begin) = office.unzip();
        let losable = recovery::losable(&book, &store).await?;
        let (snapshot, spool) = (Arc::new(snapshot), Some(setup.data_dir.as_path()));
        let door = (Arc::clone(&snapshot), Arc::clone(&metrics), setup.calls);
        let admission = recovery::door(&book, losable.clone(), door, spool).await?;
        let gateway = Gateway::new(gateway, Arc::clone(&admission), Arc::clone(&metrics))
            .map_err(|error| anyhow!("cannot set up the upstreams: {error}"))?;
        let (counter, orders) = office.as_ref().map(|office| office.counter()).unzip();
        let admin = operators.map(|(listener, key)| {
            let (admission, metrics) = (Arc::clone(&admission), Arc::clone(&metrics));
            let kept =
                (Arc::new(store.clone()) as Arc<dyn Journal>, Arc::new(store.clone()) as Arc<dyn PriceBooks>);
            let admin = Admin::new(admission, kept, counter, (&key, metrics))?;
            anyhow::Ok((listener, admin))
        });
        let admin = admin.transpose()?;
        let losable = losable.map(|book| (book, Arc::clone(&admission)));
        let days = days(&store, setup.journal_keep_days, &metrics)?;
        let jobs = Jobs { forgets, days: Some(days), ..Jobs::new(&book, &store, &metrics, losable)? };
        let live = Live {
            gateway: Arc::clone(&gateway),
            admission: Arc::clone(&admission),
            admin: admin.as_ref().map(|(_, admin)| Arc::clone(admin)),
            store: store.clone(),
            openings: Arc::clone(&jobs.openings),
            lists: watch::Sender::new(Arc::new(openings)),
            metrics: Arc::clone(&metrics),
            pinned,
            office,
        };
        let live = Arc::new(live);
        let stop = Stops::new();
        if let (Some(office), Some(Next { whole, common, plans_at, .. })) = (&live.office, begin) {
            let means = Means {
                admission: Arc::downgrade(&admission),
                openings: Arc::clone(&live.openings),
                stop: stop.jobs.subscribe(),
            };
            office.tenants.begin(means, Ground { snapshot, whole, common, plans_at });
            admission.set_callers(Arc::clone(&office.tenants) as Arc<dyn Callers>);
        }
        let traces = setup
            .traces
            .map(|traces| observe::trace(traces, &gateway, Arc::clone(&metrics), stop.jobs.subscribe()));
        let traces = traces.transpose()?;
        let daily = setup.reconcile.map(|settings| {
            let (journal, leases) = (Arc::new(store.clone()), Arc::new(store.clone()));
            Daily::new(settings, journal, leases, Arc::clone(&metrics))
        });
        let daily = daily.transpose()?;
        let alerts =
            setup.alerts.map(|settings| alerts(settings, &live, stop.jobs.subscribe())).transpose()?;
        let tasks = Tasks {
            gateway: tokio::spawn(gateway.serve(listener, stop.gateway.subscribe())),
            admin: admin
                .map(|(listener, admin)| tokio::spawn(admin.serve(listener, stop.gateway.subscribe()))),
            admission: tokio::spawn({
                let (admission, stop) = (Arc::clone(&admission), stop.admission.subscribe());
                async move { admission.run(stop).await }
            }),
            jobs: tokio::spawn(jobs.run(live.lists.subscribe(), stop.jobs.subscribe())),
            office: orders
                .map(|orders| tokio::spawn(office::run(Arc::clone(&live), orders, stop.jobs.subscribe()))),
            observer: tokio::spawn(book.clone().watch(Arc::clone(&metrics), stop.jobs.subscribe())),
            traces,
            daily: daily.map(|daily| tokio::spawn(daily.run(stop.jobs.subscribe()))),
            alerts,
        };
        Ok(Self { addresses, admission, metrics, live, book, store, stop, tasks })
    }

    /// Stops everything, in order; returns when all of it is on disk.
    pub async fn stop(self) {
        let Self { admission, live, book, store, stop, tasks, .. } = self;
        stop.gateway.send_replace(true);
        ended("the gateway", tasks.gateway.await);
        if let Some(admin) = tasks.admin {
            ended("the operator's listener", admin.await);
        }
        stop.admission.send_replace(true);
        ended("settling", tasks.admission.await);
        stop.jobs.send_replace(true);
        let drained = tokio::time::timeout(LAST_DRAIN, tasks.jobs).await;
        drained.map_or_else(
            |_| tracing::warn!("the journal did not take everything in time; the next start goes on"),
            |done| ended("the journal's drain", done),
        );
        if let Some(daily) = tasks.daily {
            ended("the daily comparison", daily.await);
        }
        if let Some(alerts) = tasks.alerts {
            ended("alerts", alerts.await);
        }
        if let Some(office) = tasks.office {
            ended("following the operators", office.await);
        }
        ended("the observer", tasks.observer.await);
        if let Some(traces) = tasks.traces {
            ended("sending traces", traces.await);
        }
        drop((admission, live));
        store.close().await;
        book.close().await;
    }
}

/// Watches quotas, and delivers what is told of them.
fn alerts(settings: Alerts, live: &Live, stop: watch::Receiver<bool>) -> anyhow::Result<JoinHandle<()>> {
    let (store, metrics) = (Arc::new(live.store.clone()), Arc::clone(&live.metrics));
    let deliver = Deliver::new(&settings.webhooks, store.clone(), store.clone(), Arc::clone(&metrics))?;
    let admission = Arc::clone(&live.admission);
    let tenants = live.office.as_ref().map(|office| Arc::clone(&office.tenants));
    let watch = Watch { settings, admission, tenants, store, metrics };
    Ok(tokio::spawn(async move {
        tokio::join!(watch.run(stop.clone()), deliver.run(stop));
    }))
}

/// What runs beside the calls.
struct Jobs {
    sweep: Sweep,
    drift: Drift,
    drain: Arc<Drain>,
    openings: Arc<Openings>,
    /// Where the book can be lost.
    recover: Option<Recover>,
    forgets: Option<Arc<Forgets>>,
    days: Option<Days>,
}

/// What looks after the journal's days.
fn days(store: &SqlStore, keep: Option<u32>, metrics: &Arc<Metrics>) -> anyhow::Result<Days> {
    let mut gateway = [0; 8];
    getrandom::fill(&mut gateway).map_err(|error| anyhow!("no random bits: {error}"))?;
    let (days, leases) = (Arc::new(store.clone()), Arc::new(store.clone()));
    Ok(Days::new(days, leases, (GatewayId::from_le_bytes(gateway), keep), Arc::clone(metrics)))
}

impl Jobs {
    fn new(
        book: &OpenBook,
        store: &SqlStore,
        metrics: &Arc<Metrics>,
        losable: Option<(Losable, Arc<Admission>)>,
    ) -> anyhow::Result<Self> {
        let engine = || book.shared();
        let journal = || Arc::new(store.clone()) as Arc<dyn Journal>;
        let metrics = || Arc::clone(metrics);
        let drain = Arc::new(Drain::new(engine(), journal(), metrics()));
        let openings = Openings::new(engine(), journal(), Arc::clone(&drain), metrics());
        let (openings, recover) = match losable {
            Some((book, admission)) => {
                let openings = openings.telling(Arc::clone(&book.lost));
                (openings, Some(recovery::recover((book, store), admission, Arc::clone(&drain), metrics())?))
            }
            None => (openings, None),
        };
        Ok(Self {
            sweep: Sweep::new(engine(), metrics()),
            drift: Drift::new(engine(), metrics()),
            openings: Arc::new(openings),
            drain,
            recover,
            forgets: None,
            days: None,
        })
    }

    /// Sweeps, drains, checks and opens until `stop` turns true; the last drain takes what has ended by then.
    async fn run(self, lists: watch::Receiver<Arc<Vec<Opening>>>, stop: watch::Receiver<bool>) {
        tokio::join!(
            self.sweep.run(stop.clone()),
            self.drift.run(stop.clone()),
            self.drain.run(stop.clone()),
            self.openings.follow(lists, stop.clone()),
            async {
                if let Some(recover) = &self.recover {
                    recover.run(stop.clone()).await;
                }
            },
            async {
                if let Some(forgets) = &self.forgets {
                    forgets.run(stop.clone()).await;
                }
            },
            async {
                if let Some(days) = &self.days {
                    days.run(stop.clone()).await;
                }
            },
        );
    }
}

async fn bind(setting: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("cannot listen on {address}: {error}; stop the other program or change {setting}")
        }
        _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    })
}

/// Loads the tokenizers that the models need, beside the start. One that cannot be used leaves its models estimated.
pub(crate) fn warm(snapshot: &Snapshot) {
    let plans = || snapshot.models.iter().filter(|(_, plan)| plan.counting.mode != CountMode::Learned);
    let without_file = plans().filter(|(_, plan)| plan.counting.file.is_none());
    let needed: BTreeSet<_> =
        without_file.filter_map(|(_, plan)| tollbook_pricing::Vocabulary::of(plan.facts.family)).collect();
    for vocabulary in needed {
        drop(tokio::task::spawn_blocking(move || tollbook_admission::warm(vocabulary)));
    }
    for (model, plan) in plans() {
        let Some(file) = plan.counting.file.clone() else { continue };
        let model = model.clone();
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = file.load() {
                let (field, file) = ("tokenizer", file.name());
                tracing::error!(model, field, file, %error, "a tokenizer cannot be used; its models are estimated");
            }
        }));
    }
}

fn ended(what: &str, result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result {
        tracing::error!(%error, "{what} broke off");
    }
}
