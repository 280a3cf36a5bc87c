//! The tenants that call here: looked up one by one, kept in this process, looked up anew when something of theirs changed.
//!
//! Invariants: what is kept of a tenant is no older than the newest change of it that this gateway has heard of: a slow
//! reader cannot bring an old limit back, for what it read is compared with that before it is kept. One lookup of one key,
//! or of one tenant, is under way at a time; whoever asks meanwhile waits for it. A key that nobody has is remembered
//! shortly, and forgotten with every change.
//! When the store is away: tenants that are kept go on, also on another base, as long as nothing of their own has changed:
//! what was read of them is kept as text, and what that leaves open is read when the store is back. Others cannot be looked
//! up, which is said and not guessed. A tenant whose objects do not fit this gateway's file goes on by what is kept of it,
//! with an alarm.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};
use tollbook_admission::{Admission, Caller, Callers, CallersAway, Lookup, Snapshot};
use tollbook_jobs::Openings;
use tollbook_ledger::units::SECOND;
use tollbook_policy::{Catalog, OpeningNeeded};
use tollbook_telemetry::labels::ReadFrom;

use super::Whole;
use super::reading::{Packed, Packer, Read, ReadError, Reader, makeshift, moved};
use crate::config::Directory;
use crate::key::KeyHash;

/// Most keys and limits that are kept; beyond it the tenants that have not called for longest go, a tenth at once.
pub(crate) const KEPT_MAX: usize = 250_000;
/// Most keys remembered that nobody has, and for how long.
pub(crate) const NOBODIES_MAX: usize = 10_000;
const NOBODY_FOR: Duration = Duration::from_secs(5);
/// Most tenants whose newest change is remembered apart; of others it is the newest of all.
const CHANGED_MAX: usize = 10_000;
/// Lookups under way, after which no key's is begun: whoever asked may have left, and it goes on.
pub(crate) const FLIGHTS_MAX: usize = 10_000;
/// Keys that are looked up in the store at once.
const LOOKUPS_MAX: usize = 64;
/// Longest wait for a lookup.
const LOOKUP_WITHIN: Duration = Duration::from_secs(5);
/// How often a tenant is read anew because it changed meanwhile.
const READS: usize = 8;
/// Longest wait for the changes that what was read of a tenant takes for granted.
const SEEN_WITHIN: Duration = Duration::from_secs(1);
/// Longest wait for a store that does not answer, of a tenant that can go on without.
const STORE_WITHIN: Duration = Duration::from_secs(1);
/// How often the same failure is told.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Most tenants read anew at one look at the feed.
const ANEW_MAX: usize = 64;
/// Whoever changes something waits no longer for that than this, and one lookup.
const RENEW_WITHIN: Duration = Duration::from_millis(500);

/// What tenants' catalogs stand on.
pub(crate) struct Ground {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) whole: Arc<Whole>,
    /// Plans are among them.
    pub(crate) common: Arc<Directory>,
    /// The newest change of a plan: what was read of a tenant before it does not know what that left of its limits.
    pub(crate) plans_at: u64,
}

/// What lookups need of a running gateway.
pub(crate) struct Means {
    pub(crate) admission: Weak<Admission>,
    pub(crate) openings: Arc<Openings>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// What is looked up, and on which generation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Asked {
    Secret([u8; 32], u64),
    Tenant(Arc<str>, u64),
}

/// What came of a lookup; an error is why nothing can be said.
type Landed = Result<Option<Arc<Snapshot>>, Arc<str>>;
type Landing = watch::Receiver<Option<Landed>>;

pub(crate) struct Tenants {
    me: Weak<Self>,
    reader: Reader,
    packer: Packer,
    /// The newest, and the one before it: calls that came in under that are still on their way.
    grounds: ArcSwap<Vec<Arc<Ground>>>,
    means: OnceLock<Means>,
    kept: RwLock<Kept>,
    flights: Mutex<HashMap<Asked, Landing>>,
    lookups: Semaphore,
    /// Counts questions, so that the longest unused is found.
    ticks: AtomicU64,
    /// The last failure that was told.
    told: Mutex<Option<(Arc<str>, Instant)>>,
    /// The revision up to which what is everybody's is in force here.
    seen: watch::Sender<u64>,
}

/// What is kept.
#[derive(Default)]
struct Kept {
    by_secret: HashMap<[u8; 32], Arc<Entry>>,
    by_tenant: HashMap<Arc<str>, Arc<Entry>>,
    nobody: HashMap<[u8; 32], Instant>,
    /// The newest change heard of, by tenant; of those that are not named `floor`.
    changed: HashMap<Arc<str>, u64>,
    floor: u64,
    /// How often `nobody` was emptied.
    emptied: u64,
    /// Keys and limits of all, and how many of them there may be.
    weight: usize,
    most: usize,
}

struct Entry {
    tenant: Arc<str>,
    snapshot: Arc<Snapshot>,
    /// What the store had when it was read, at its revision.
    source: Packed,
    /// It came on this ground while the store was away: what that may have more of it is still to be read.
    makeshift: bool,
    /// Something of it has changed since it was read.
    is_old: AtomicBool,
    used: AtomicU64,
    weight: usize,
    /// Why what is newer is not in force, where calls go on by this nevertheless.
    unfit: Mutex<Option<Arc<str>>>,
    /// Opens its new quotas.
    opening: Option<Arc<Opening>>,
}

/// A task that ends with what it is for: opening these quotas.
pub(crate) struct Opening {
    pub(super) task: tokio::task::AbortHandle,
    pub(super) needed: Vec<OpeningNeeded>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tenants {
    /// `floor`: changes up to this revision may not have been heard of; `recent` are the newest of them.
    pub(crate) fn new(reader: Reader, seen: u64, floor: u64, recent: Vec<(Arc<str>, u64)>) -> Arc<Self> {
        // A gateway that died may not have told the others.
        reader.forget(&recent);
        let mut kept = Kept { floor, most: KEPT_MAX, ..Kept::default() };
        kept.changed.extend(recent);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            reader,
            packer: Packer::default(),
            grounds: ArcSwap::default(),
            means: OnceLock::new(),
            kept: RwLock::new(kept),
            flights: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            ticks: AtomicU64::new(0),
            told: Mutex::default(),
            seen: watch::Sender::new(seen),
        })
    }

    /// Once, before the first question.
    pub(crate) fn begin(&self, means: Means, ground: Ground) {
        let _ = self.means.set(means);
        self.stand_on(ground);
    }

    /// Another file, or other plans or models, are in force: what is kept is made anew when it is asked for.
    pub(crate) fn stand_on(&self, ground: Ground) {
        let mut grounds = vec![Arc::new(ground)];
        grounds.extend(self.grounds.load().first().cloned());
        self.grounds.store(Arc::new(grounds));
    }

    /// What changed. Nothing that was read before counts from now on.
    pub(crate) fn changed(&self, tenants: &[(Arc<str>, u64)]) {
        if tenants.is_empty() {
            return;
        }
        let mut kept = self.write();
        for (tenant, number) in tenants {
            kept.heard(tenant, *number);
        }
        kept.nobody.clear();
        kept.emptied += 1;
        drop(kept);
        self.reader.forget(tenants);
    }

    /// What is everybody's is in force up to a revision.
    pub(crate) fn saw(&self, revision: u64) {
        self.seen.send_replace(revision);
    }

    /// Reads anew what is kept of tenants that changed; some of them, the rest at the next call.
    ///
    /// # Errors
    /// When one cannot be read, or does not fit this gateway's file.
    pub(crate) async fn renew(&self) -> Result<(), Arc<str>> {
        let Some(ground) = self.newest() else { return Ok(()) };
        let generation = ground.snapshot.generation;
        let (old, unfit): (Vec<Arc<str>>, Option<Arc<str>>) = {
            let kept = self.read();
            let old = kept.by_tenant.values().filter(|entry| !entry.serves(generation) || entry.makeshift);
            // What does not fit will not do so before something changes.
            let unfit = kept.by_tenant.values().filter_map(|entry| entry.unfit(generation)).min();
            (old.take(ANEW_MAX).map(|entry| Arc::clone(&entry.tenant)).collect(), unfit)
        };
        let (mut failed, begun) = (unfit.map_or(Ok(()), Err), Instant::now());
        for tenant in old {
            failed = self.fly(Asked::Tenant(tenant, generation)).await.map(|_| ()).and(failed);
            if begun.elapsed() > RENEW_WITHIN {
                break;
            }
        }
        failed
    }

    /// The snapshot of a tenant by its id; none if there is no such tenant.
    pub(crate) async fn of(&self, tenant: &str) -> Landed {
        let ground = self.newest().ok_or_else(stopping)?;
        let generation = ground.snapshot.generation;
        let known = self.read().by_tenant.get(tenant).filter(|entry| entry.serves(generation)).cloned();
        match known {
            Some(entry) => Ok(Some(Arc::clone(&entry.snapshot))),
            None => self.fly(Asked::Tenant(Arc::from(tenant), generation)).await,
        }
    }

    /// The snapshot of the tenant that a key belongs to, by the key's id.
    pub(crate) async fn of_key(&self, id: &str) -> Landed {
        match self.reader.tenant_of(&super::mark_of_id(id)).await.map_err(|error| away(&error))? {
            Some(tenant) => self.of(&tenant).await,
            None => Ok(None),
        }
    }

    /// The tenants that are kept, those that called last first, with their snapshots.
    pub(crate) fn all(&self) -> Vec<Arc<Snapshot>> {
        let mut all: Vec<Arc<Entry>> = self.read().by_tenant.values().cloned().collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.used.load(Ordering::Relaxed)));
        all.iter().map(|entry| Arc::clone(&entry.snapshot)).collect()
    }

    /// The snapshots of the tenants that called after that turn, by tenant, and the turn it is now.
    pub(crate) fn used_since(&self, turn: u64) -> (u64, BTreeMap<Arc<str>, Arc<Snapshot>>) {
        let now = self.ticks.load(Ordering::Relaxed);
        let kept = self.read();
        let used = kept.by_tenant.values().filter(|entry| entry.used.load(Ordering::Relaxed) >= turn);
        (now, used.map(|entry| (Arc::clone(&entry.tenant), Arc::clone(&entry.snapshot))).collect())
    }

    #[cfg(test)]
    pub(super) fn opening(&self, tenant: &str) -> Option<Arc<Opening>> {
        self.read().by_tenant.get(tenant).and_then(|entry| entry.opening.clone())
    }

    #[cfg(test)]
    pub(super) fn nobodies(&self) -> usize {
        self.read().nobody.len()
    }

    #[cfg(test)]
    pub(super) fn keep_at_most(&self, most: usize) {
        self.write().most = most;
    }

    #[cfg(test)]
    pub(super) fn weight(&self) -> usize {
        self.read().weight
    }

    fn newest(&self) -> Option<Arc<Ground>> {
        self.grounds.load().first().cloned()
    }

    fn ground(&self, generation: u64) -> Option<Arc<Ground>> {
        self.grounds.load().iter().find(|ground| ground.snapshot.generation == generation).cloned()
    }

    fn read(&self) -> RwLockReadGuard<'_, Kept> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Kept> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept changes, and how many tenants that are is told.
    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        let mut kept = self.write();
        let done = change(&mut kept);
        self.reader.metrics.tenants_kept.set((), u64::try_from(kept.by_tenant.len()).unwrap_or(u64::MAX));
        done
    }

    /// Joins the lookup that is under way, or begins one. It goes on when those who wait for it leave.
    fn fly(&self, asked: Asked) -> Pin<Box<dyn Future<Output = Landed> + Send + '_>> {
        Box::pin(async move {
            let landing = self.begun(asked)?;
            let landed = landing.clone().wait_for(Option::is_some).await.map(|landed| landed.clone());
            landed.ok().flatten().unwrap_or_else(|| Err(stopping()))
        })
    }

    fn begun(&self, asked: Asked) -> Result<Landing, Arc<str>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(landing) = flights.get(&asked) {
            return Ok(landing.clone());
        }
        if flights.len() >= FLIGHTS_MAX && matches!(asked, Asked::Secret(..)) {
            return Err(Arc::from("too many lookups are under way"));
        }
        let me = self.me.upgrade().ok_or_else(stopping)?;
        let (land, landing) = watch::channel(None);
        flights.insert(asked.clone(), landing.clone());
        drop(tokio::spawn(async move {
            let landed = tokio::time::timeout(LOOKUP_WITHIN, me.look_up(&asked)).await;
            me.flights.lock().unwrap_or_else(PoisonError::into_inner).remove(&asked);
            land.send_replace(Some(landed.unwrap_or_else(|_| Err(Arc::from("it took too long")))));
        }));
        Ok(landing)
    }

    async fn look_up(&self, asked: &Asked) -> Landed {
        match asked {
            Asked::Secret(digest, generation) => self.by_secret(digest, *generation).await,
            Asked::Tenant(tenant, generation) => self.by_tenant(tenant, *generation).await,
        }
    }

    /// Looks a key up until nothing was changed meanwhile that could make it another's, or somebody's: whoever joined
    /// after a change is told nothing of before it.
    async fn by_secret(&self, digest: &[u8; 32], generation: u64) -> Landed {
        for _ in 0..READS {
            let (emptied, seen) = (self.read().emptied, *self.seen.borrow());
            if let Some(found) = self.holder(digest, generation).await? {
                if found.catalog.key(digest).is_some() {
                    return Ok(Some(found));
                }
                // It went elsewhere, or what was read of the tenant is from before a change that is still to be heard of.
                self.wait_for(seen.saturating_add(1)).await;
            } else if self.write().nobody(digest, emptied) {
                return Ok(None);
            }
        }
        Err(Arc::from("a key goes from one tenant to another faster than it can be followed"))
    }

    /// Where a key was last, else where the store says it is.
    async fn holder(&self, digest: &[u8; 32], generation: u64) -> Landed {
        let has = |snapshot: &Arc<Snapshot>| snapshot.catalog.key(digest).is_some();
        let last = self.read().by_secret.get(digest).map(|entry| Arc::clone(&entry.tenant));
        if let Some(tenant) = last {
            let found = self.fly(Asked::Tenant(tenant, generation)).await?;
            if let Some(found) = found.filter(has) {
                return Ok(Some(found));
            }
        }
        let _turn = self.lookups.acquire().await.map_err(|_| stopping())?;
        let mark = super::mark_of_hash(&KeyHash(*digest).to_string());
        match self.reader.tenant_of(&mark).await.map_err(|error| away(&error))? {
            Some(tenant) => self.fly(Asked::Tenant(tenant, generation)).await,
            None => Ok(None),
        }
    }

    async fn by_tenant(&self, tenant: &Arc<str>, generation: u64) -> Landed {
        let means = self.means.get().ok_or_else(stopping)?;
        let mut ground = self.ground(generation).or_else(|| self.newest()).ok_or_else(stopping)?;
        let mut waited = false;
        for _ in 0..READS {
            let least = self.read().least(tenant);
            let now = means.admission.upgrade().ok_or_else(stopping)?.now() / SECOND;
            let read = match self.read_on(tenant, &ground, (least, now)).await {
                Ok(read) => read,
                // What it says may be true of plans and models that are not in force here yet.
                Err(ReadError::Unfit(revision, _)) if !waited && revision > *self.seen.borrow() => {
                    self.wait_for(revision).await;
                    waited = true;
                    ground = self.newest().ok_or_else(stopping)?;
                    continue;
                }
                Err(error) => return self.without(tenant, &ground, &error),
            };
            let Some(Read { catalog, needed, source, makeshift }) = read else {
                if self.change(|kept| kept.gone(tenant, least)) {
                    return Ok(None);
                }
                continue;
            };
            let opening = self.open(means, tenant, &catalog, needed).await;
            let snapshot = Arc::new(ground.snapshot.with(catalog));
            let entry = Entry {
                tenant: Arc::clone(tenant),
                weight: weight(&snapshot.catalog),
                snapshot,
                source: Packed::new(&source, &self.packer),
                makeshift,
                is_old: AtomicBool::new(false),
                used: AtomicU64::new(self.tick()),
                unfit: Mutex::default(),
                opening,
            };
            if let Some(entry) = self.change(|kept| kept.keep(entry)) {
                return Ok(Some(Arc::clone(&entry.snapshot)));
            }
        }
        Err(Arc::from(format!("tenant {tenant} changes faster than it can be read")))
    }

    /// A tenant on this ground. One whose own objects are as they were when it was read comes there by what is kept of it,
    /// where nothing else can have changed for it, or the store is away.
    async fn read_on(
        &self,
        tenant: &Arc<str>,
        ground: &Ground,
        (least, now): (u64, u64),
    ) -> Result<Option<Read>, ReadError> {
        let kept = self.read().by_tenant.get(tenant).filter(|entry| entry.source.revision >= least).cloned();
        let reading = self.reader.read(tenant, ground, least, now);
        let Some(entry) = kept else { return reading.await };
        if !entry.makeshift
            && let Some(read) = moved(tenant, ground, &entry.source, now)
        {
            return Ok(Some(read));
        }
        let late = || Err(ReadError::Failed(anyhow::anyhow!("the store does not answer")));
        match tokio::time::timeout(STORE_WITHIN, reading).await.unwrap_or_else(|_| late()) {
            Err(ReadError::Failed(error)) => {
                let read = makeshift(tenant, ground, &entry.source, now);
                read.map(Some).ok_or(ReadError::Failed(error))
            }
            read => read,
        }
    }

    async fn open(
        &self,
        means: &Means,
        tenant: &str,
        catalog: &Catalog,
        needed: Vec<OpeningNeeded>,
    ) -> Option<Arc<Opening>> {
        if needed.is_empty() {
            return None;
        }
        let begun = self.read().by_tenant.get(tenant).and_then(|entry| entry.opening.clone());
        // The same quotas since the same time: they are open, or will be.
        if let Some(begun) = begun.filter(|begun| begun.needed == needed) {
            return Some(begun);
        }
        Some(Arc::new(self.reader.open(catalog, needed, (&means.openings, means.stop.clone())).await))
    }

    /// What is tried again after it may still not be seen.
    async fn wait_for(&self, revision: u64) {
        let mut seen = self.seen.subscribe();
        drop(tokio::time::timeout(SEEN_WITHIN, seen.wait_for(|seen| *seen >= revision)).await);
    }

    /// A tenant cannot be read. One that does not fit goes on by what is kept of it, if that stands on the same ground.
    fn without(&self, tenant: &str, ground: &Ground, error: &ReadError) -> Landed {
        let why: Arc<str> = Arc::from(format!("tenant {tenant}: {error}"));
        self.reader.metrics.tenants_read.inc((ReadFrom::Failed,));
        if let ReadError::Unfit(revision, _) = *error {
            let kept = self.read();
            let entry = kept.by_tenant.get(tenant);
            if let Some(entry) = entry.filter(|entry| entry.snapshot.generation == ground.snapshot.generation)
                && kept.least(tenant) <= revision
            {
                *entry.unfit.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&why));
                entry.is_old.store(false, Ordering::Relaxed);
            }
        }
        Err(why)
    }

    /// Told once, and again after a while.
    fn tell(&self, why: &Arc<str>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let again = told.as_ref().is_none_or(|(last, at)| last != why || at.elapsed() >= TOLD_EVERY);
        if again {
            tracing::warn!(error = &**why, "callers cannot be looked up");
            *told = Some((Arc::clone(why), Instant::now()));
        }
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tenants")
    }
}

fn stopping() -> Arc<str> {
    Arc::from("the gateway starts or stops")
}

fn away(error: &tollbook_store::StoreError) -> Arc<str> {
    Arc::from(error.to_string())
}

/// Keys, limits and users.
fn weight(catalog: &Catalog) -> usize {
    (catalog.keys().len())
        .saturating_add(catalog.users().len())
        .saturating_add(catalog.own_rules().count())
        .saturating_add(1)
}

impl Entry {
    /// Whether calls are decided by it; reading it anew would bring nothing else.
    fn serves(&self, generation: u64) -> bool {
        self.snapshot.generation == generation && !self.is_old.load(Ordering::Relaxed)
    }

    /// Why what is newer is not in force.
    fn unfit(&self, generation: u64) -> Option<Arc<str>> {
        let why = || self.unfit.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.serves(generation).then(why).flatten()
    }

    fn secrets(&self) -> impl Iterator<Item = [u8; 32]> + '_ {
        self.snapshot.catalog.keys().iter().flat_map(|key| &key.secrets).map(|secret| secret.digest)
    }
}

impl Kept {
    /// The revision that what is read of a tenant has to have.
    fn least(&self, tenant: &str) -> u64 {
        self.changed.get(tenant).copied().unwrap_or(self.floor)
    }

    fn heard(&mut self, tenant: &Arc<str>, number: u64) {
        if self.changed.len() >= CHANGED_MAX {
            self.floor = self.changed.values().copied().max().unwrap_or(0).max(self.floor);
            self.changed.clear();
        }
        let newest = self.changed.entry(Arc::clone(tenant)).or_default();
        *newest = number.max(*newest);
        if let Some(entry) = self.by_tenant.get(tenant).filter(|entry| entry.source.revision < number) {
            entry.is_old.store(true, Ordering::Relaxed);
        }
    }

    /// Remembers that nobody has a key, unless something has changed meanwhile.
    fn nobody(&mut self, digest: &[u8; 32], emptied: u64) -> bool {
        if emptied != self.emptied {
            return false;
        }
        if self.nobody.len() >= NOBODIES_MAX {
            self.nobody.clear();
        }
        self.nobody.insert(*digest, Instant::now());
        true
    }

    /// A tenant is not there, unless something newer of it than `least` was heard of meanwhile.
    fn gone(&mut self, tenant: &str, least: u64) -> bool {
        if self.least(tenant) > least {
            return false;
        }
        self.remove(tenant);
        true
    }

    /// Keeps what was read, unless something newer was heard of meanwhile.
    fn keep(&mut self, entry: Entry) -> Option<Arc<Entry>> {
        if entry.source.revision < self.least(&entry.tenant) {
            return None;
        }
        self.remove(&entry.tenant);
        if self.weight.saturating_add(entry.weight) > self.most {
            self.make_room();
        }
        let entry = Arc::new(entry);
        self.weight = self.weight.saturating_add(entry.weight);
        for digest in entry.secrets() {
            self.nobody.remove(&digest);
            self.by_secret.insert(digest, Arc::clone(&entry));
        }
        self.by_tenant.insert(Arc::clone(&entry.tenant), Arc::clone(&entry));
        Some(entry)
    }

    fn remove(&mut self, tenant: &str) {
        let Some(entry) = self.by_tenant.remove(tenant) else { return };
        self.weight = self.weight.saturating_sub(entry.weight);
        for digest in entry.secrets() {
            // A secret that went to another tenant is that one's.
            if self.by_secret.get(&digest).is_some_and(|other| Arc::ptr_eq(other, &entry)) {
                self.by_secret.remove(&digest);
            }
        }
    }

    fn make_room(&mut self) {
        let mut all: Vec<(u64, Arc<str>)> = (self.by_tenant.values())
            .map(|entry| (entry.used.load(Ordering::Relaxed), Arc::clone(&entry.tenant)))
            .collect();
        all.sort_unstable();
        for (_, tenant) in all {
            if self.weight <= self.most - self.most / 10 {
                break;
            }
            self.remove(&tenant);
        }
    }
}

impl Callers for Tenants {
    fn known(&self, base: &Arc<Snapshot>, digest: &[u8; 32]) -> Option<Caller> {
        let kept = self.read();
        if let Some(entry) = kept.by_secret.get(digest) {
            if !entry.serves(base.generation) {
                return None;
            }
            entry.used.store(self.tick(), Ordering::Relaxed);
            return Some(Caller::Of(Arc::clone(&entry.snapshot)));
        }
        let since = kept.nobody.get(digest)?;
        (since.elapsed() < NOBODY_FOR).then_some(Caller::Nobody)
    }

    fn find<'a>(&'a self, base: &'a Arc<Snapshot>, digest: &'a [u8; 32]) -> Lookup<'a> {
        Box::pin(async move {
            let landed = self.fly(Asked::Secret(*digest, base.generation)).await;
            match landed {
                Ok(Some(snapshot)) => Ok(Caller::Of(snapshot)),
                Ok(None) => Ok(Caller::Nobody),
                Err(why) => {
                    // What is newer may not fit this gateway's file: it goes on by what is kept.
                    let known = self.known(base, digest).filter(|caller| matches!(caller, Caller::Of(_)));
                    known.ok_or_else(|| {
                        self.tell(&why);
                        CallersAway
                    })
                }
            }
        })
    }
}
