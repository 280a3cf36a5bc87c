//! What operators define in the store: tenants, projects, keys, services, users, plans, operators; read, checked, changed live.
//!
//! The store is the truth. A gateway keeps in memory what all share (plans, operators, upstreams, models), as of a revision,
//! and the tenants that call here, each as it was when it was looked up; it follows the feed of changes.
//! Invariants: a change is checked together with everything that it touches, against the state it is written on: the store
//! takes it only if nothing was changed since, else it is checked anew. So whatever a gateway reads is right as a whole, for
//! the file it was checked with; objects that do not fit another gateway's file leave that gateway on what it had, with an
//! alarm.
//! When the store is away: tenants that are kept go on, others get 503, changes are refused and nothing of them stays.

mod check;
mod marks;
mod operators;
mod reading;
mod tenants;
#[cfg(test)]
mod tenants_tests;
mod whole;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tollbook_admission::{ApiKeyHash, ModelPlan, Snapshot, TokenizerFile};
use tollbook_policy::Catalog;
use tollbook_pricing::PriceBook;
use tollbook_store::{Change, Object, ObjectKind, ObjectName, ObjectStore, ObjectsQuery, StoreError};

use crate::config::{Base, Directory, Fault, Kept, form, place};
use crate::live::Live;
use crate::seal::Seal;

use reading::{directory, kept_of};

pub use marks::{mark_of_hash, mark_of_id};
pub use operators::{ADMIN_KEY_HOLDER, Grant};
pub(crate) use reading::Reader;
pub(crate) use tenants::{Ground, Means, Tenants};
pub use whole::{Secrets, closed, nested, wishes};
pub use write::{Changed, Done, Order, When, Wish};

/// Pause between two looks at the feed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Mistakes told of objects that do not fit.
const FAULTS_TOLD: usize = 5;
/// Orders that wait for their turn.
const ORDERS_MAX: usize = 64;
/// Changes before the start that are looked at for which tenants they are of.
const RECENT: u64 = 1_000;
/// The kinds that are everybody's, and are kept in memory.
pub const COMMON: [ObjectKind; 4] =
    [ObjectKind::Plan, ObjectKind::Operator, ObjectKind::Upstream, ObjectKind::Model];

/// Everything of the store's objects in this process.
pub struct Office {
    store: Arc<dyn ObjectStore>,
    /// Those that call here.
    pub(crate) tenants: Arc<Tenants>,
    /// Held for as long as a change, or a new file, is put in force: one at a time.
    state: Mutex<State>,
    view: Arc<ArcSwap<View>>,
    /// The newest change that was heard of beside the state.
    heard: AtomicU64,
}

/// The objects as of a revision, and the one that calls are decided by.
#[derive(Clone, Debug)]
pub struct State {
    /// The file's own.
    origin: Arc<Base>,
    whole: Arc<Whole>,
    revision: u64,
    /// The newest change of a plan that this gateway has heard of, or cannot have heard of.
    plans_at: u64,
    /// What is everybody's.
    common: Arc<Directory>,
    /// Whether that of `common` is in force which tenants and models are made with.
    common_in_force: bool,
    /// Whether the providers of `whole` are in force.
    providers_in_force: bool,
}

/// A gateway's file with the store's upstreams and models put in.
#[derive(Debug)]
pub struct Whole {
    base: Arc<Base>,
    pub gateway: tollbook_gateway::Config,
    pub prices: Arc<PriceBook>,
    pub models: Arc<BTreeMap<String, ModelPlan>>,
    /// The documents it has of the store.
    of: Vec<(ObjectName, String)>,
}

/// What is to come in force.
pub(crate) struct Next {
    pub(crate) catalog: Catalog,
    pub(crate) whole: Arc<Whole>,
    pub(crate) common: Arc<Directory>,
    pub(crate) plans_at: u64,
    /// Upstreams or models changed too.
    pub(crate) providers: bool,
}

/// What can be looked at without waiting for a change under way.
#[derive(Debug, Default)]
pub struct View {
    pub revision: u64,
    /// What is everybody's.
    pub common: Arc<Directory>,
    pub(crate) operators: BTreeMap<[u8; 32], ObjectName>,
    /// What seals secrets.
    pub(crate) seal: Option<Arc<Seal>>,
}

/// Why a change was not made; nothing of it stays.
#[derive(Debug, thiserror::Error)]
pub enum OfficeError {
    #[error("tenants, keys and limits are in the gateway's file (config.source: file); change them there")]
    File,
    /// What is wrong with it, object by object.
    #[error("the change is not right: {}", told(.0))]
    Wrong(Vec<Fault>),
    /// An object is not as the change takes it to be.
    #[error("{} {why}", place(.name))]
    Conflict { name: Box<ObjectName>, why: &'static str, now: Option<Arc<Kept>> },
    #[error("there is no {}", place(.0))]
    Missing(Box<ObjectName>),
    #[error(
        "the objects are changed by others faster than this change can be checked, or the gateway stops; try again"
    )]
    Busy,
    /// The order was for a revision that is past; the one that is there.
    #[error("the objects were changed since the difference was made; they are at revision {0}")]
    Moved(u64),
    #[error(
        "the store failed while the change was written, and may have it: look before it is made again: {0}"
    )]
    Unsure(StoreError),
    #[error("the store is away: {0}")]
    Away(#[from] StoreError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// An object that is in the store and that this version cannot read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}, which another version may have written: {why}", place(.name))]
pub struct Unreadable {
    pub name: Box<ObjectName>,
    why: String,
}

/// Some objects of a kind; of one that cannot be read its version.
pub type Page = BTreeMap<ObjectName, Result<Arc<Kept>, u64>>;

/// An order, and where its answer goes.
type Ordered = (Order, oneshot::Sender<Result<Done, OfficeError>>);

/// Where the operators' listener gives its orders and looks things up.
#[derive(Clone, Debug)]
pub struct Counter {
    view: Arc<ArcSwap<View>>,
    store: StoreRef,
    tenants: Arc<Tenants>,
    orders: mpsc::Sender<Ordered>,
}

#[derive(Clone)]
struct StoreRef(Arc<dyn ObjectStore>);

impl std::fmt::Debug for StoreRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObjectStore")
    }
}

impl Counter {
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub fn store(&self) -> &dyn ObjectStore {
        self.store.0.as_ref()
    }

    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// An object as it is now.
    pub async fn object(&self, name: &ObjectName) -> Result<Option<Arc<Kept>>, OfficeError> {
        if COMMON.contains(&name.kind) {
            return Ok(self.view().common.get(name).cloned());
        }
        let found = self.store().object(name).await?;
        let kept = found.map(|object| directory(vec![object]).map(|objects| objects.into_values().next()));
        Ok(kept.transpose()?.flatten())
    }

    /// A page of the objects of a kind, with the versions of those that cannot be read.
    pub async fn page(&self, query: &ObjectsQuery) -> Result<(u64, Page), OfficeError> {
        let page = self.store().objects_page(query).await?;
        let read = |object: Object| {
            let (name, version) = (object.name.clone(), object.version);
            (name, kept_of(object).map(|(_, kept)| kept).map_err(|_| version))
        };
        Ok((page.revision, page.objects.into_iter().map(read).collect()))
    }

    /// All objects as of a revision, for a document of all of them.
    pub async fn all(&self) -> Result<(u64, Directory), OfficeError> {
        let all = self.store().objects().await?;
        Ok((all.revision, directory(all.objects)?))
    }

    /// Makes a change, or says why not.
    pub async fn order(&self, order: Order) -> Result<Done, OfficeError> {
        let (answer, answered) = oneshot::channel();
        // Both ends are gone only while the process stops.
        self.orders.send((order, answer)).await.map_err(|_| OfficeError::Busy)?;
        answered.await.unwrap_or(Err(OfficeError::Busy))
    }
}

impl Office {
    /// Reads what is everybody's; what comes in force is that of those objects and the file.
    pub(crate) async fn open(
        store: Arc<dyn ObjectStore>,
        reader: impl FnOnce(Arc<dyn ObjectStore>) -> Reader,
        origin: Arc<Base>,
    ) -> anyhow::Result<(Self, Next)> {
        let read = store.objects_of(&COMMON).await.context("cannot read what operators defined")?;
        let (common, revision) = (Arc::new(directory(read.objects)?), read.revision);
        let floor = revision.saturating_sub(RECENT);
        let recent = store.changes_since(floor).await.context("cannot read what operators changed")?;
        let plans_at = recent.iter().filter(|change| change.name.kind == ObjectKind::Plan);
        let plans_at = plans_at.map(|change| change.number).max().unwrap_or(floor);
        let recent = recent.iter().filter_map(of_tenant).collect();
        let tenants = Tenants::new(reader(Arc::clone(&store)), revision, floor, recent);
        let whole = whole(&origin, &common, &[]).map_err(|faults| unfit(&faults))?;
        let (common_in_force, providers_in_force) = (true, true);
        let state = State { origin, whole, revision, plans_at, common, common_in_force, providers_in_force };
        let next = state.put(&state.whole, true)?;
        let view = Arc::new(ArcSwap::from_pointee(view(&state)));
        let (state, heard) = (Mutex::new(state), AtomicU64::new(revision));
        Ok((Self { store, tenants, state, view, heard }, next))
    }

    /// What the operators' listener needs, and the orders that come through it.
    pub fn counter(&self) -> (Counter, mpsc::Receiver<Ordered>) {
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        let store = StoreRef(Arc::clone(&self.store));
        let (view, tenants) = (Arc::clone(&self.view), Arc::clone(&self.tenants));
        (Counter { view, store, tenants, orders }, ordered)
    }

    pub(crate) async fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().await
    }

    /// The state, unless it is being changed.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Takes the changes since the state's revision.
    pub(crate) async fn read_on(&self, state: &mut State) -> anyhow::Result<()> {
        loop {
            let changes = self.store.changes_since(state.revision).await?;
            if changes.is_empty() {
                return Ok(());
            }
            let mut common: Option<Directory> = None;
            let (mut revision, mut touched) = (state.revision, Vec::new());
            for change in changes {
                revision = change.number;
                touched.extend(of_tenant(&change));
                if COMMON.contains(&change.name.kind) {
                    state.common_in_force &= change.name.kind == ObjectKind::Operator;
                    if change.name.kind == ObjectKind::Plan {
                        state.plans_at = change.number;
                    }
                    take(common.get_or_insert_with(|| Directory::clone(&state.common)), change)?;
                }
            }
            state.revision = revision;
            if let Some(common) = common {
                state.common = Arc::new(common);
            }
            self.view.store(Arc::new(view(state)));
            self.tenants.changed(&touched);
        }
    }

    /// Hears what was changed of tenants while the state is not to be had: a long change waits for nobody, and nobody
    /// for it.
    pub(crate) async fn hear(&self) -> anyhow::Result<()> {
        let mut revision = self.heard.load(Ordering::Relaxed).max(self.view.load().revision);
        loop {
            let changes = self.store.changes_since(revision).await?;
            let Some(last) = changes.last() else { return Ok(()) };
            revision = last.number;
            let touched: Vec<_> = changes.iter().filter_map(of_tenant).collect();
            self.tenants.changed(&touched);
            self.heard.store(revision, Ordering::Relaxed);
        }
    }
}

/// Whose a change is, and its number.
fn of_tenant(change: &Change) -> Option<(Arc<str>, u64)> {
    let is_common = COMMON.contains(&change.name.kind);
    (!is_common).then(|| (Arc::from(change.name.tenant.as_str()), change.number))
}

impl Whole {
    /// The hash by which keys are known.
    pub(crate) fn hasher(&self) -> &ApiKeyHash {
        self.base.hasher()
    }

    /// The catalog of one tenant's objects, and what is legal but probably not meant.
    pub(crate) fn of_tenant(
        &self,
        shared: &Arc<Catalog>,
        common: &Directory,
        objects: &Directory,
    ) -> Result<(Catalog, Vec<String>), Vec<Fault>> {
        self.base.of_tenant(shared, common, objects)
    }
}

impl State {
    /// What is in force with another file, whose own base this is.
    pub(crate) fn rebase(&mut self, origin: Arc<Base>) -> anyhow::Result<Next> {
        let whole = whole(&origin, &self.common, &self.tokenizers()).map_err(|faults| unfit(&faults))?;
        let next = self.put(&whole, true)?;
        (self.origin, self.whole) = (origin, whole);
        self.is_in_force();
        Ok(next)
    }

    /// What is to come in force; nothing if it is what is.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<Next>> {
        if self.common_in_force {
            return Ok(None);
        }
        let whole = self.whole_with(&self.common).map_err(|faults| unfit(&faults))?;
        if !Arc::ptr_eq(&whole, &self.whole) {
            (self.whole, self.providers_in_force) = (Arc::clone(&whole), false);
        }
        self.put(&whole, !self.providers_in_force).map(Some)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn is_in_force(&mut self) {
        (self.common_in_force, self.providers_in_force) = (true, true);
    }

    fn put(&self, whole: &Arc<Whole>, providers: bool) -> anyhow::Result<Next> {
        let catalog = whole.base.shared(&self.common).map_err(|faults| unfit(&faults))?;
        let (whole, common) = (Arc::clone(whole), Arc::clone(&self.common));
        Ok(Next { catalog, whole, common, plans_at: self.plans_at, providers })
    }

    /// The file with the providers among those objects; made anew only where they differ.
    fn whole_with(&self, objects: &Directory) -> Result<Arc<Whole>, Vec<Fault>> {
        if self.whole.of == providers(objects) {
            return Ok(Arc::clone(&self.whole));
        }
        whole(&self.origin, objects, &self.tokenizers())
    }

    fn tokenizers(&self) -> Vec<Arc<TokenizerFile>> {
        self.whole.models.values().filter_map(|plan| plan.counting.file.clone()).collect()
    }
}

fn unfit(faults: &[Fault]) -> anyhow::Error {
    anyhow!("what operators defined does not fit this gateway's file: {}", told(faults))
}

fn whole(origin: &Base, objects: &Directory, known: &[Arc<TokenizerFile>]) -> Result<Arc<Whole>, Vec<Fault>> {
    let setup = origin.with_providers(objects, known)?;
    let Some(base) = setup.base else { return Err(Vec::new()) };
    let (gateway, of) = (setup.gateway, providers(objects));
    let Snapshot { prices, models, .. } = setup.snapshot;
    Ok(Arc::new(Whole { base, gateway, prices, models, of }))
}

/// The upstreams and models, as the store has them.
fn providers(objects: &Directory) -> Vec<(ObjectName, String)> {
    let kinds = [ObjectKind::Upstream, ObjectKind::Model];
    let of_kinds = objects
        .range(ObjectName::before(ObjectKind::Upstream)..)
        .filter(|(name, _)| kinds.contains(&name.kind));
    of_kinds.map(|(name, kept)| (name.clone(), kept.document.clone())).collect()
}

fn view(state: &State) -> View {
    let operators = operators::by_key(&state.common);
    let seal = state.origin.seal().cloned();
    View { revision: state.revision, common: Arc::clone(&state.common), operators, seal }
}

fn take(objects: &mut Directory, change: Change) -> anyhow::Result<()> {
    let Change { number, at, name, after, .. } = change;
    match after {
        None => drop(objects.remove(&name)),
        Some(document) => {
            let created_at = objects.get(&name).map_or(at, |before| before.created_at);
            let kept = kept(&name, document, number, (created_at, at))?;
            objects.insert(name, Arc::new(kept));
        }
    }
    Ok(())
}

fn kept(
    name: &ObjectName,
    document: String,
    version: u64,
    (created_at, changed_at): (u64, u64),
) -> Result<Kept, Unreadable> {
    let unreadable = |why| Unreadable { name: Box::new(name.clone()), why };
    let fields = serde_json::from_str(&document);
    let fields: Map<String, Value> = fields.map_err(|_| unreadable("it is no JSON object".to_owned()))?;
    let form = form(name, &fields).map_err(|faults| unreadable(told(&faults)))?;
    Ok(Kept { version, document, created_at, changed_at, form })
}

/// The first of what is wrong.
fn told(faults: &[Fault]) -> String {
    let first: Vec<String> = faults.iter().take(FAULTS_TOLD).map(ToString::to_string).collect();
    let more = faults.len().saturating_sub(FAULTS_TOLD);
    let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
    first.join(", ") + &rest
}

/// Follows the feed and carries orders out until `stop` turns true.
pub async fn run(live: Arc<Live>, mut orders: mpsc::Receiver<Ordered>, mut stop: watch::Receiver<bool>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let renew = || {
        let live = Arc::clone(&live);
        Box::pin(async move { live.renew().await.err().map(|why| why.to_string()) })
    };
    // Beside the looks: a tenant that is slow to read keeps nobody from what the feed tells.
    let mut renewing = None;
    // So does an order, which may take long: one at a time.
    let mut ordered: Option<JoinHandle<()>> = None;
    let mut behind = Behind::default();
    loop {
        tokio::select! {
            () = stopped(&mut stop) => {
                if let Some(order) = ordered {
                    // What is written is answered. One that broke off answers by that.
                    let _ = order.await;
                }
                return;
            }
            _ = looks.tick() => {
                behind.of_feed = live.follow().await.err().map(|error| format!("{error:#}"));
                live.admission.set_keys_behind(behind.of_feed.is_some());
                behind.tell(&live);
                if behind.of_feed.is_none() && renewing.is_none() {
                    renewing = Some(renew());
                }
            }
            failed = async { renewing.as_mut()?.await }, if renewing.is_some() => {
                renewing = None;
                behind.of_tenants = failed;
                behind.tell(&live);
            }
            _ = async { ordered.as_mut()?.await.ok() }, if ordered.is_some() => ordered = None,
            Some((order, answer)) = orders.recv(), if ordered.is_none() => {
                let live = Arc::clone(&live);
                ordered = Some(tokio::spawn(async move {
                    // Whoever asked may have left.
                    let _ = answer.send(live.edit(&order).await);
                }));
            }
        }
    }
}

/// Why this gateway is behind what operators have changed.
#[derive(Default)]
struct Behind {
    of_feed: Option<String>,
    of_tenants: Option<String>,
    /// What was told last.
    told: Option<String>,
}

impl Behind {
    fn tell(&mut self, live: &Live) {
        let failed = self.of_feed.as_ref().or(self.of_tenants.as_ref());
        if let Some(error) = failed
            && self.told.as_ref() != failed
        {
            tracing::error!(error, "what operators changed is not in force here; what was stays");
        }
        if failed.is_none() && self.told.is_some() {
            tracing::info!("what operators changed is in force again");
        }
        live.metrics.objects_behind.set((), u64::from(failed.is_some()));
        self.told = failed.cloned();
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone stops too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

impl std::fmt::Debug for Office {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Office")
    }
}
