//! Tenants that are looked up in a store that counts, waits and fails.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use tokio::sync::Semaphore;
use tollbook_admission::{Admission, Caller, Callers, Settings, Snapshot};
use tollbook_engine::Engine;
use tollbook_engine_memory::{MemoryEngine, Options};
use tollbook_jobs::{Drain, Forgets, Openings};
use tollbook_store::{
    Answer, Applied, Cached, Change, ChangesQuery, ConfigCache, Edit, Journal, LimitHistory, LimitPage,
    LimitPlace, LimitRow, Look, Object, ObjectKind, ObjectName, ObjectStore, Objects, ObjectsQuery,
    StoreError, StoreErrorKind,
};
use tollbook_store_sql::SqlStore;
use tollbook_store_suite::MemoryCache;
use tollbook_telemetry::Metrics;

use super::tenants::{FLIGHTS_MAX, KEPT_MAX, NOBODIES_MAX};
use super::*;
use crate::key::KeyHash;

/// Tenants in memory, each with its keys; what is asked of it is counted.
#[derive(Default)]
struct Shelf {
    tenants: Mutex<BTreeMap<String, Vec<Object>>>,
    common: Mutex<Vec<Object>>,
    marks: Mutex<BTreeMap<String, ObjectName>>,
    revision: AtomicU64,
    reads: AtomicU64,
    lookups: AtomicU64,
    is_away: AtomicBool,
    feed: Mutex<Vec<Change>>,
    /// Where there is one, a read of a tenant waits for a turn between what it saw and its answer.
    turns: Mutex<Option<Arc<Semaphore>>>,
    /// The same of a question for a mark.
    mark_turns: Mutex<Option<Arc<Semaphore>>>,
    /// The history of limits, where it is to be remembered.
    rows: Mutex<Option<BTreeMap<String, Vec<LimitRow>>>>,
}

fn away<T>() -> Result<T, StoreError> {
    Err(StoreError { kind: StoreErrorKind::Away("a cable".to_owned()), applied: Applied::No })
}

fn name(kind: ObjectKind, tenant: &str, project: &str, id: &str) -> ObjectName {
    ObjectName { kind, tenant: tenant.into(), project: project.into(), id: id.into() }
}

fn secret(tenant: &str, key: usize) -> String {
    format!("sk-{tenant}-{key}")
}

impl Shelf {
    /// A tenant with keys and a ceiling for each, as the next change.
    fn put(&self, hasher: &ApiKeyHash, tenant: &str, keys: usize, ceiling: u64) -> u64 {
        let number = self.revision.load(Ordering::SeqCst) + 1;
        let object = |name: ObjectName, document: String| Object {
            name,
            version: number,
            document,
            created_at: 0,
            changed_at: 0,
        };
        let limit = format!(r#"{{"limits":[{{"measure":"requests","window":"60s","ceiling":{ceiling}}}]}}"#);
        let mut objects = vec![
            object(name(ObjectKind::Tenant, tenant, "", ""), limit),
            object(name(ObjectKind::Project, tenant, "web", ""), "{}".to_owned()),
        ];
        for key in 0..keys {
            let hash = KeyHash(hasher.digest(&secret(tenant, key))).to_string();
            let id = format!("{tenant}-{key}");
            let named = name(ObjectKind::Key, tenant, "web", &id);
            self.marks.lock().unwrap().insert(mark_of_hash(&hash), named.clone());
            self.marks.lock().unwrap().insert(mark_of_id(&id), named.clone());
            objects.push(object(named, format!(r#"{{"hash":"{hash}"}}"#)));
        }
        self.tenants.lock().unwrap().insert(tenant.to_owned(), objects);
        self.revision.store(number, Ordering::SeqCst);
        number
    }

    fn seen(&self, objects: Vec<Object>) -> Objects {
        Objects { revision: self.revision.load(Ordering::SeqCst), objects }
    }
}

/// Where nothing is remembered of limits, they are new each time.
impl LimitHistory for Shelf {
    fn limit_rows<'a>(&'a self, tenant: &'a str) -> Answer<'a, Vec<LimitRow>> {
        let known = self.rows.lock().unwrap().as_ref().and_then(|rows| rows.get(tenant).cloned());
        Box::pin(async { Ok(known.unwrap_or_default()) })
    }

    fn limit_rows_append<'a>(&'a self, tenant: &'a str, rows: &'a [LimitRow]) -> Answer<'a, u64> {
        if let Some(known) = self.rows.lock().unwrap().as_mut() {
            known.entry(tenant.to_owned()).or_default().extend_from_slice(rows);
        }
        Box::pin(async { Ok(rows.len() as u64) })
    }

    fn limit_rows_page<'a>(&'a self, _: &'a LimitPlace, _: usize) -> Answer<'a, LimitPage> {
        unreachable!("nobody asks for all of it")
    }
}

impl ObjectStore for Shelf {
    fn objects(&self) -> Answer<'_, Objects> {
        unreachable!("nobody reads all of them")
    }

    fn objects_of<'a>(&'a self, _: &'a [ObjectKind]) -> Answer<'a, Objects> {
        Box::pin(async { Ok(self.seen(self.common.lock().unwrap().clone())) })
    }

    fn tenant_objects<'a>(&'a self, tenant: &'a str) -> Answer<'a, Objects> {
        Box::pin(async move {
            self.reads.fetch_add(1, Ordering::SeqCst);
            if self.is_away.load(Ordering::SeqCst) {
                return away();
            }
            let found = self.seen(self.tenants.lock().unwrap().get(tenant).cloned().unwrap_or_default());
            let turns = self.turns.lock().unwrap().clone();
            if let Some(turns) = turns {
                turns.acquire().await.unwrap().forget();
            }
            Ok(found)
        })
    }

    fn object<'a>(&'a self, _: &'a ObjectName) -> Answer<'a, Option<Object>> {
        unreachable!("no object is asked for by itself")
    }

    fn marked<'a>(&'a self, mark: &'a str) -> Answer<'a, Option<ObjectName>> {
        Box::pin(async move {
            self.lookups.fetch_add(1, Ordering::SeqCst);
            if self.is_away.load(Ordering::SeqCst) {
                return away();
            }
            let found = self.marks.lock().unwrap().get(mark).cloned();
            let turns = self.mark_turns.lock().unwrap().clone();
            if let Some(turns) = turns {
                turns.acquire().await.unwrap().forget();
            }
            Ok(found)
        })
    }

    fn objects_page<'a>(&'a self, _: &'a ObjectsQuery) -> Answer<'a, Objects> {
        unreachable!("no page is asked for")
    }

    fn changes_since(&self, revision: u64) -> Answer<'_, Vec<Change>> {
        let feed = self.feed.lock().unwrap();
        let newer = feed.iter().filter(|change| change.number > revision).cloned().collect();
        Box::pin(async move { Ok(newer) })
    }

    fn write<'a>(&'a self, _: u64, _: &'a str, _: &'a [Edit]) -> Answer<'a, Option<u64>> {
        unreachable!("nothing is written")
    }

    fn changes<'a>(&'a self, _: &'a ChangesQuery) -> Answer<'a, Vec<Change>> {
        unreachable!("nobody asks for the history")
    }
}

/// A gateway's tenants over a shelf.
struct World {
    shelf: Arc<Shelf>,
    office: Office,
    base: Arc<Snapshot>,
    hasher: ApiKeyHash,
    _admission: Arc<Admission>,
    forgets: Option<Arc<Forgets>>,
    _stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
}

fn base(folder: &Path) -> Arc<Base> {
    let text = "config: { source: sql }\nadmin: { api_key: long-enough-to-be-no-trouble }\n\
        upstreams: [{ name: u, dialect: openai, base_url: http://127.0.0.1:9/v1 }]\n\
        models: [{ name: m, upstream: u, output: { default: 50 }, price: { input: 1, output: 2 } }]\n";
    crate::config::load_text("t", text, folder, &|_| None).unwrap().base.unwrap()
}

impl World {
    async fn new(shelf: Shelf) -> Self {
        Self::beside(Arc::new(shelf), None).await
    }

    /// One of several gateways over one shelf, with what keeps what they have read.
    async fn beside(shelf: Arc<Shelf>, cache: Option<Arc<MemoryCache>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache.map(|cache| cache as Arc<dyn ConfigCache>);
        let metrics = Arc::new(Metrics::new());
        let told = Arc::clone(&metrics);
        let forgets = cache.clone().map(|cache| Arc::new(Forgets::new(cache, Arc::clone(&metrics))));
        let store = SqlStore::open(&folder.path().join("store.sqlite")).await.unwrap();
        let (history, journal) = (Arc::clone(&shelf), Arc::new(store.clone()));
        let reader =
            |objects| Reader { objects, history, journal, cache, forgets: forgets.clone(), metrics: told };
        let (office, next) =
            Office::open(Arc::clone(&shelf) as Arc<dyn ObjectStore>, reader, base(folder.path()))
                .await
                .unwrap();
        let hasher = next.whole.hasher().clone();
        let (prices, models) = (Arc::clone(&next.whole.prices), Arc::clone(&next.whole.models));
        let base = Arc::new(Snapshot::new(1, next.catalog.clone(), prices, models, hasher.clone()));
        let options = Options { background: false, ..Options::default() };
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::open(None, options).unwrap().engine);
        let admission = Admission::open(
            Arc::clone(&engine),
            Arc::clone(&base),
            Arc::clone(&metrics),
            Settings::default(),
            None,
        );
        let admission = admission.await.unwrap();
        let drain = Arc::new(Drain::new(
            Arc::clone(&engine),
            Arc::new(store.clone()) as Arc<dyn Journal>,
            Arc::clone(&metrics),
        ));
        let openings = Arc::new(Openings::new(engine, Arc::new(store), drain, metrics));
        let stop = watch::Sender::new(false);
        let means = Means { admission: Arc::downgrade(&admission), openings, stop: stop.subscribe() };
        let Next { whole, common, plans_at, .. } = next;
        office.tenants.begin(means, Ground { snapshot: Arc::clone(&base), whole, common, plans_at });
        Self { shelf, office, base, hasher, _admission: admission, forgets, _stop: stop, _folder: folder }
    }

    fn digest(&self, secret: &str) -> [u8; 32] {
        self.hasher.digest(secret)
    }

    /// As a call asks.
    async fn ask(&self, secret: &str) -> Result<Caller, tollbook_admission::CallersAway> {
        let digest = self.digest(secret);
        match self.office.tenants.known(&self.base, &digest) {
            Some(caller) => Ok(caller),
            None => self.office.tenants.find(&self.base, &digest).await,
        }
    }

    async fn ceiling(&self, secret: &str) -> u64 {
        let Ok(Caller::Of(snapshot)) = self.ask(secret).await else { panic!("no caller") };
        snapshot.catalog.own_rules().next().unwrap().1.limit.ceiling
    }

    /// Other documents of what is everybody's are in force, as of a change of a plan.
    async fn stand_on(&mut self, common: Directory, number: u64) {
        let mut state = self.office.lock().await;
        (state.common, state.plans_at, state.common_in_force) = (Arc::new(common), number, false);
        let Next { catalog, whole, common, plans_at, .. } = state.next().unwrap().unwrap();
        let (prices, models) = (Arc::clone(&whole.prices), Arc::clone(&whole.models));
        let generation = self.base.generation + 1;
        let base = Arc::new(Snapshot::new(generation, catalog, prices, models, self.hasher.clone()));
        self.office.tenants.stand_on(Ground { snapshot: Arc::clone(&base), whole, common, plans_at });
        drop(state);
        self.base = base;
    }

    /// What the feed tells.
    fn changed(&self, tenant: &str, number: u64) {
        self.office.tenants.changed(&[(Arc::from(tenant), number)]);
        self.office.tenants.saw(number);
    }

    fn reads(&self) -> u64 {
        self.shelf.reads.load(Ordering::SeqCst)
    }
}

fn hasher() -> ApiKeyHash {
    ApiKeyHash::new(None)
}

#[tokio::test]
async fn a_thousand_calls_after_a_change_read_the_store_once() {
    let world = World::new(Shelf::default()).await;
    let number = world.shelf.put(&world.hasher, "acme", 2, 5);
    world.changed("acme", number);
    let calls = || {
        futures_util::future::join_all(
            (0..1_000)
                .map(|at| world.ceiling(if at % 2 == 0 { "sk-acme-0" } else { "sk-acme-1" }).boxed_local()),
        )
    };
    assert!(calls().await.iter().all(|ceiling| *ceiling == 5));
    assert_eq!(world.reads(), 1, "nothing was known of it");
    let number = world.shelf.put(&world.hasher, "acme", 2, 7);
    assert_eq!(world.ceiling("sk-acme-0").await, 5, "of a change that was not heard of nothing is known");
    world.changed("acme", number);
    assert!(calls().await.iter().all(|ceiling| *ceiling == 7));
    assert_eq!(world.reads(), 2);
    assert!(world.shelf.lookups.load(Ordering::SeqCst) <= 2, "whose a key is, is known still");
}

/// Fault 6 of the papers: what was read before a change comes back after it, a thousand times.
#[tokio::test]
async fn a_slow_reader_never_brings_an_old_limit_back() {
    let world = World::new(Shelf::default()).await;
    let number = world.shelf.put(&world.hasher, "acme", 1, 1);
    world.changed("acme", number);
    let turns = Arc::new(Semaphore::new(0));
    *world.shelf.turns.lock().unwrap() = Some(Arc::clone(&turns));
    for ceiling in 2..1_002 {
        // A reader is on its way with the old limit: something else of the tenant has changed before.
        world.changed("acme", world.shelf.put(&world.hasher, "acme", 1, ceiling - 1));
        let before = world.reads();
        let slow = world.ceiling("sk-acme-0");
        tokio::pin!(slow);
        while world.reads() == before {
            assert!(futures_util::poll!(&mut slow).is_pending());
            tokio::task::yield_now().await;
        }
        // The limit changes, the change is heard of, and only then the reader comes back.
        world.changed("acme", world.shelf.put(&world.hasher, "acme", 1, ceiling));
        turns.add_permits(2);
        assert_eq!(slow.await, ceiling);
        assert_eq!(world.ceiling("sk-acme-0").await, ceiling);
        assert_eq!(world.reads(), before + 2, "what it read first was not kept");
    }
}

#[tokio::test]
async fn while_the_store_is_away_those_who_are_kept_go_on() {
    let world = World::new(Shelf::default()).await;
    for tenant in ["acme", "globex"] {
        let number = world.shelf.put(&world.hasher, tenant, 1, 5);
        world.changed(tenant, number);
    }
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    world.shelf.is_away.store(true, Ordering::SeqCst);
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    assert!(world.ask("sk-globex-0").await.is_err(), "it cannot be looked up");
    assert!(world.ask("sk-nobody").await.is_err(), "nobody is called unknown");
    world.shelf.is_away.store(false, Ordering::SeqCst);
    assert_eq!(world.ceiling("sk-globex-0").await, 5);
    assert!(matches!(world.ask("sk-nobody").await, Ok(Caller::Nobody)));
}

#[tokio::test]
async fn a_key_that_nobody_has_is_remembered_until_something_changes() {
    let world = World::new(Shelf::default()).await;
    let lookups = || world.shelf.lookups.load(Ordering::SeqCst);
    for _ in 0..5 {
        assert!(matches!(world.ask("sk-acme-0").await, Ok(Caller::Nobody)));
    }
    assert_eq!(lookups(), 1);
    let number = world.shelf.put(&world.hasher, "acme", 1, 5);
    world.changed("acme", number);
    assert_eq!(world.ceiling("sk-acme-0").await, 5, "it is there from the change on");
    // However many ask for what is not there, no more of it is remembered than this.
    for at in 0..=NOBODIES_MAX {
        assert!(matches!(world.ask(&format!("sk-{at}")).await, Ok(Caller::Nobody)));
        assert!(world.office.tenants.nobodies() <= NOBODIES_MAX);
    }
}

#[tokio::test]
async fn a_tenant_that_is_deleted_is_nobody() {
    let world = World::new(Shelf::default()).await;
    let number = world.shelf.put(&world.hasher, "acme", 1, 5);
    world.changed("acme", number);
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    world.shelf.tenants.lock().unwrap().clear();
    world.shelf.marks.lock().unwrap().clear();
    let number = world.shelf.revision.fetch_add(1, Ordering::SeqCst) + 1;
    world.changed("acme", number);
    assert!(matches!(world.ask("sk-acme-0").await, Ok(Caller::Nobody)));
    assert_eq!(world.office.tenants.all().len(), 0);
}

/// Nobody is read before they call, and no key takes more than a kibibyte. `TOLLBOOK_OFFICE_TENANTS` says how many tenants
/// there are, each with ten keys.
#[tokio::test]
async fn tenants_are_read_when_they_call_and_are_small() {
    const KEYS: usize = 10;
    let count = std::env::var("TOLLBOOK_OFFICE_TENANTS").ok().and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(4_000);
    let shelf = Shelf::default();
    for tenant in 0..count {
        shelf.put(&hasher(), &format!("tenant-{tenant}"), KEYS, 5);
    }
    let world = World::new(shelf).await;
    assert_eq!((world.reads(), world.office.tenants.all().len()), (0, 0), "a start reads none of them");
    let before = resident();
    for tenant in 0..count {
        assert_eq!(world.ceiling(&secret(&format!("tenant-{tenant}"), 0)).await, 5);
    }
    let each = (resident().saturating_sub(before)) / (count * KEYS);
    println!("{each} bytes a key, {KEYS} of them a tenant with a limit");
    assert!(each <= 1_024, "{each} bytes a key");
    assert_eq!(world.reads(), count as u64);

    let asked: Vec<[u8; 32]> = (0..count * KEYS)
        .map(|at| world.digest(&secret(&format!("tenant-{}", at % count), at % KEYS)))
        .collect();
    let begun = std::time::Instant::now();
    for digest in &asked {
        assert!(world.office.tenants.known(&world.base, digest).is_some());
    }
    println!("{} ns a key that is known", begun.elapsed().as_nanos() / (count * KEYS) as u128);
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap();
    told.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

#[tokio::test]
async fn no_more_is_kept_than_the_bound_and_the_longest_unused_goes() {
    const KEYS: usize = 50;
    const MOST: usize = 1_000;
    assert_eq!(KEPT_MAX, 250_000, "about as many mebibytes");
    let world = World::new(Shelf::default()).await;
    world.office.tenants.keep_at_most(MOST);
    let tenants = MOST / KEYS + 4;
    for tenant in 0..tenants {
        let tenant = format!("t{tenant}");
        let number = world.shelf.put(&world.hasher, &tenant, KEYS, 5);
        world.changed(&tenant, number);
        assert_eq!(world.ceiling(&secret(&tenant, 0)).await, 5);
        // The first one calls all the time.
        assert_eq!(world.ceiling(&secret("t0", 0)).await, 5);
        assert!(world.office.tenants.weight() <= MOST);
    }
    let before = world.reads();
    assert_eq!(world.ceiling(&secret("t0", 1)).await, 5);
    assert_eq!(world.reads(), before, "it was not put out");
    assert_eq!(world.ceiling(&secret("t1", 1)).await, 5);
    assert_eq!(world.reads(), before + 1, "it was, and is read again");
}

/// What one gateway has read of the store the others need not read again, and they obey what they have heard of, whatever
/// the cache has.
#[tokio::test]
async fn gateways_share_what_they_have_read_and_obey_without_it() {
    let (shelf, cache) = (Arc::new(Shelf::default()), Arc::new(MemoryCache::default()));
    let one = World::beside(Arc::clone(&shelf), Some(Arc::clone(&cache))).await;
    let other = World::beside(Arc::clone(&shelf), Some(Arc::clone(&cache))).await;
    let all_hear = |number| {
        one.changed("acme", number);
        other.changed("acme", number);
    };
    all_hear(shelf.put(&one.hasher, "acme", 1, 5));
    assert_eq!((one.ceiling("sk-acme-0").await, one.reads()), (5, 1));
    assert_eq!((other.ceiling("sk-acme-0").await, one.reads()), (5, 1), "the first had read it");

    all_hear(shelf.put(&one.hasher, "acme", 1, 6));
    assert_eq!((one.ceiling("sk-acme-0").await, other.ceiling("sk-acme-0").await), (6, 6));
    assert_eq!(one.reads(), 2);

    // The cache is away while the limit changes: nobody can tell it, and it has the old one when it is back.
    cache.is_away(true);
    all_hear(shelf.put(&one.hasher, "acme", 1, 7));
    assert_eq!((one.ceiling("sk-acme-0").await, other.ceiling("sk-acme-0").await), (7, 7));
    all_hear(shelf.put(&one.hasher, "acme", 1, 8));
    cache.is_away(false);
    assert_eq!((one.ceiling("sk-acme-0").await, other.ceiling("sk-acme-0").await), (8, 8));
    // What waited is delivered, so that one that starts now is not served what is old either.
    one.forgets.as_ref().unwrap().once().await.unwrap();
    let later = World::beside(Arc::clone(&shelf), Some(Arc::clone(&cache))).await;
    assert_eq!(later.ceiling("sk-acme-0").await, 8);

    // Nonsense under the id is as nothing.
    cache.lose();
    all_hear(shelf.put(&one.hasher, "acme", 1, 9));
    let Ok(Look::Gap(gap)) = cache.get("acme", 0).await else { panic!("lost") };
    let nonsense = Cached { revision: shelf.revision.load(Ordering::SeqCst), text: "{}".to_owned() };
    assert!(cache.put(gap, "acme", &nonsense).await.unwrap());
    assert_eq!(other.ceiling("sk-acme-0").await, 9);
}

/// Who asks after a change is answered never joins those who are told what was before it.
#[tokio::test]
async fn a_lookup_under_way_at_a_change_does_not_call_a_new_key_unknown() {
    let world = World::new(Shelf::default()).await;
    let turns = Arc::new(Semaphore::new(0));
    *world.shelf.mark_turns.lock().unwrap() = Some(Arc::clone(&turns));
    let early = world.ask("sk-acme-0");
    tokio::pin!(early);
    while world.shelf.lookups.load(Ordering::SeqCst) == 0 {
        assert!(futures_util::poll!(&mut early).is_pending());
        tokio::task::yield_now().await;
    }
    // It has seen that nobody has the key; then the key is made.
    let number = world.shelf.put(&world.hasher, "acme", 1, 5);
    world.changed("acme", number);
    let late = world.ask("sk-acme-0");
    tokio::pin!(late);
    assert!(futures_util::poll!(&mut late).is_pending());
    turns.add_permits(8);
    assert!(matches!(late.await, Ok(Caller::Of(_))), "it was made before it was asked for");
}

/// Those who ask for keys that nobody has and leave cannot make it remember more and more questions.
#[tokio::test]
async fn beyond_the_bound_no_lookup_is_begun_and_those_under_way_are_joined() {
    let world = World::new(Shelf::default()).await;
    world.shelf.put(&world.hasher, "acme", 1, 5);
    let turns = Arc::new(Semaphore::new(0));
    *world.shelf.mark_turns.lock().unwrap() = Some(Arc::clone(&turns));
    let first = world.ask("sk-acme-0");
    tokio::pin!(first);
    assert!(futures_util::poll!(&mut first).is_pending());
    for at in 1..FLIGHTS_MAX {
        assert!(world.ask(&format!("sk-nobody-{at}")).now_or_never().is_none(), "{at}");
    }
    assert!(world.ask("sk-one-more").await.is_err());
    let joined = world.ask("sk-acme-0");
    tokio::pin!(joined);
    assert!(futures_util::poll!(&mut joined).is_pending());
    turns.add_permits(2 * FLIGHTS_MAX);
    assert!(matches!((first.await, joined.await), (Ok(Caller::Of(_)), Ok(Caller::Of(_)))));
    while world.ask("sk-one-more").await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lookup_under_way_at_a_change_does_not_call_a_new_tenant_gone() {
    let world = World::new(Shelf::default()).await;
    let turns = Arc::new(Semaphore::new(0));
    *world.shelf.turns.lock().unwrap() = Some(Arc::clone(&turns));
    let early = world.office.tenants.of("acme");
    tokio::pin!(early);
    while world.reads() == 0 {
        assert!(futures_util::poll!(&mut early).is_pending());
        tokio::task::yield_now().await;
    }
    let number = world.shelf.put(&world.hasher, "acme", 1, 5);
    world.changed("acme", number);
    let late = world.office.tenants.of("acme");
    tokio::pin!(late);
    assert!(futures_util::poll!(&mut late).is_pending());
    turns.add_permits(8);
    assert!(late.await.unwrap().is_some(), "it was made before it was asked for");
}

/// Also the call that finds out that it does not fit.
#[tokio::test]
async fn a_tenant_that_does_not_fit_loses_no_call() {
    let world = World::new(Shelf::default()).await;
    let number = world.shelf.put(&world.hasher, "acme", 1, 5);
    world.changed("acme", number);
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    let number = world.shelf.put(&world.hasher, "acme", 2, 7);
    for object in world.shelf.tenants.lock().unwrap().get_mut("acme").unwrap() {
        if object.name.kind == ObjectKind::Tenant {
            object.document = r#"{"plan":"of another gateway"}"#.to_owned();
        }
    }
    world.changed("acme", number);
    assert_eq!(world.ceiling("sk-acme-0").await, 5, "it goes on by what is kept");
    assert!(world.ask("sk-acme-1").await.is_err(), "a new key of it is not called unknown");
    let reads = world.reads();
    assert!(world.office.tenants.renew().await.is_err(), "and it is told");
    assert_eq!(world.reads(), reads, "it is not read again before something changes");
    let number = world.shelf.put(&world.hasher, "acme", 2, 8);
    world.changed("acme", number);
    assert!(world.office.tenants.renew().await.is_ok());
    assert_eq!(world.ceiling("sk-acme-1").await, 8);
}

/// Nor are its quotas opened again because something else of it has changed.
#[tokio::test]
async fn quotas_that_are_open_are_not_opened_at_each_change() {
    let shelf = Shelf::default();
    *shelf.rows.lock().unwrap() = Some(BTreeMap::new());
    let world = World::new(shelf).await;
    let budget = |ceiling: u64| {
        let number = world.shelf.put(&world.hasher, "acme", 1, 5);
        for object in world.shelf.tenants.lock().unwrap().get_mut("acme").unwrap() {
            if object.name.kind == ObjectKind::Tenant {
                object.document = format!(
                    r#"{{"limits":[{{"measure":"requests","period":"lifetime","ceiling":{ceiling}}}]}}"#
                );
            }
        }
        world.changed("acme", number);
    };
    budget(5);
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    let first = world.office.tenants.opening("acme").unwrap();
    budget(6);
    assert_eq!(world.ceiling("sk-acme-0").await, 6);
    let second = world.office.tenants.opening("acme").unwrap();
    assert!(Arc::ptr_eq(&first, &second), "it was opened when it was new");
}

/// A window that was away for a moment and is back leaves the other one behind (L16), also for a gateway that has only
/// seen what the tenant's limits were before.
#[tokio::test]
async fn what_plans_leave_behind_is_not_hidden_by_the_cache() {
    let (shelf, cache) = (Arc::new(Shelf::default()), Arc::new(MemoryCache::default()));
    *shelf.rows.lock().unwrap() = Some(BTreeMap::new());
    let plan = |window: &str, number: u64| {
        shelf.revision.store(number, Ordering::SeqCst);
        let document =
            format!(r#"{{"limits":[{{"name":"w","measure":"requests","window":"{window}","ceiling":5}}]}}"#);
        let name = name(ObjectKind::Plan, "", "", "p");
        let object = Object { name, version: number, document, created_at: 0, changed_at: 0 };
        directory(vec![object]).unwrap()
    };
    let mut one = World::beside(Arc::clone(&shelf), Some(Arc::clone(&cache))).await;
    let mut other = World::beside(Arc::clone(&shelf), Some(Arc::clone(&cache))).await;
    let number = shelf.put(&one.hasher, "acme", 1, 5);
    for object in shelf.tenants.lock().unwrap().get_mut("acme").unwrap() {
        if object.name.kind == ObjectKind::Tenant {
            object.document = r#"{"plan":"p"}"#.to_owned();
        }
    }
    one.changed("acme", number);
    other.changed("acme", number);
    let windows = async |world: &World| {
        let Ok(Caller::Of(snapshot)) = world.ask("sk-acme-0").await else { panic!("no caller") };
        snapshot.catalog.own_rules().count()
    };
    one.stand_on(plan("60s", 10), 10).await;
    assert_eq!(windows(&one).await, 1);
    one.stand_on(plan("600s", 11), 11).await;
    assert_eq!(windows(&one).await, 2, "the one of before binds still");
    // The other one hears of both changes at once.
    let back = plan("60s", 12);
    one.stand_on(back.clone(), 12).await;
    assert_eq!(windows(&one).await, 2);
    other.stand_on(back, 12).await;
    assert_eq!(windows(&other).await, 2);
}

/// A long change holds the state, and what others change is heard of all the same.
#[tokio::test]
async fn a_change_is_heard_of_while_another_one_is_made() {
    let world = World::new(Shelf::default()).await;
    let number = world.shelf.put(&world.hasher, "acme", 1, 5);
    world.changed("acme", number);
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    let state = world.office.lock().await;
    assert!(world.office.try_lock().is_none());
    let number = world.shelf.put(&world.hasher, "acme", 1, 7);
    let name = ObjectName::tenant("acme");
    let (who, before, after) = ("another gateway".to_owned(), None, Some("{}".to_owned()));
    world.shelf.feed.lock().unwrap().push(Change { number, at: 0, who, name, before, after });
    world.office.hear().await.unwrap();
    assert_eq!(world.ceiling("sk-acme-0").await, 7);
    let reads = world.reads();
    world.office.hear().await.unwrap();
    assert_eq!(world.ceiling("sk-acme-0").await, 7);
    assert_eq!(world.reads(), reads, "it is heard of once");
    drop(state);
}

/// A plan is made and given to a tenant; the tenant is read before the plan is in force here.
#[tokio::test]
async fn a_tenant_waits_for_the_plan_that_it_has() {
    let mut world = World::new(Shelf::default()).await;
    let number = world.shelf.put(&world.hasher, "acme", 1, 5) + 1;
    for object in world.shelf.tenants.lock().unwrap().get_mut("acme").unwrap() {
        if object.name.kind == ObjectKind::Tenant {
            object.document = r#"{"plan":"p"}"#.to_owned();
        }
    }
    world.shelf.revision.store(number, Ordering::SeqCst);
    world.office.tenants.changed(&[(Arc::from("acme"), number)]);
    let (tenants, base) = (Arc::clone(&world.office.tenants), Arc::clone(&world.base));
    let digest = world.digest("sk-acme-0");
    let asked = tokio::spawn(async move { tenants.find(&base, &digest).await });
    while world.reads() == 0 {
        tokio::task::yield_now().await;
    }
    let document = r#"{"limits":[{"measure":"requests","window":"60s","ceiling":3}]}"#.to_owned();
    let name = ObjectName::common(ObjectKind::Plan, "p");
    let plan = Object { name, version: number, document, created_at: 0, changed_at: 0 };
    world.stand_on(directory(vec![plan]).unwrap(), number).await;
    world.office.tenants.saw(number);
    let Ok(Caller::Of(snapshot)) = asked.await.unwrap() else { panic!("it was not waited for") };
    assert_eq!(snapshot.catalog.own_rules().next().unwrap().1.limit.ceiling, 3);
}

/// A plan with a window and a ceiling, as of a change.
fn plan(id: &str, (window, ceiling): (&str, u64), number: u64) -> Object {
    let document = format!(
        r#"{{"limits":[{{"name":"w","measure":"requests","window":"{window}","ceiling":{ceiling}}}]}}"#
    );
    let name = ObjectName::common(ObjectKind::Plan, id);
    Object { name, version: number, document, created_at: 0, changed_at: 0 }
}

impl World {
    /// A tenant on a plan, which has called.
    async fn on_plan(&self, tenant: &str, plan: &str) {
        let number = self.shelf.put(&self.hasher, tenant, 1, 5);
        for object in self.shelf.tenants.lock().unwrap().get_mut(tenant).unwrap() {
            if object.name.kind == ObjectKind::Tenant {
                object.document = format!(r#"{{"plan":"{plan}"}}"#);
            }
        }
        self.changed(tenant, number);
        assert_eq!(self.ceiling(&secret(tenant, 0)).await, 5);
    }

    /// The ceilings that bind a tenant.
    async fn ceilings(&self, tenant: &str) -> Vec<u64> {
        let Ok(Caller::Of(snapshot)) = self.ask(&secret(tenant, 0)).await else { panic!("no caller") };
        assert_eq!(snapshot.generation, self.base.generation);
        snapshot.catalog.own_rules().map(|(_, rule)| rule.limit.ceiling).collect()
    }
}

/// A plan changes, and then the store is away: its tenants go on with what it says now; what the store has to know is
/// written when it is back. What has changed of a tenant itself is never passed over.
#[tokio::test]
async fn a_changed_plan_needs_no_store_of_tenants_that_are_kept() {
    let shelf = Shelf::default();
    *shelf.rows.lock().unwrap() = Some(BTreeMap::new());
    shelf.revision.store(10, Ordering::SeqCst);
    let mut world = World::new(shelf).await;
    world.stand_on(directory(vec![plan("p", ("60s", 5), 10), plan("q", ("60s", 5), 10)]).unwrap(), 10).await;
    world.on_plan("acme", "p").await;
    world.on_plan("other", "q").await;
    world.on_plan("gone", "p").await;

    world.shelf.revision.store(20, Ordering::SeqCst);
    world.shelf.is_away.store(true, Ordering::SeqCst);
    world.stand_on(directory(vec![plan("p", ("600s", 3), 20), plan("q", ("60s", 5), 10)]).unwrap(), 20).await;
    assert_eq!(world.ceilings("acme").await, [3, 5], "the window of before binds still");
    let reads = world.reads();
    assert_eq!(world.ceilings("acme").await, [3, 5]);
    assert_eq!(world.ceilings("other").await, [5]);
    assert_eq!(world.reads(), reads, "what nothing changed for is not read at all");
    // A key of one of them is disabled, say.
    world.changed("gone", 21);
    assert!(world.ask("sk-gone-0").await.is_err(), "of that nothing is known");

    let written = |shelf: &Shelf| shelf.rows.lock().unwrap().as_ref().unwrap()["acme"].len();
    assert_eq!(written(&world.shelf), 1);
    world.shelf.is_away.store(false, Ordering::SeqCst);
    world.shelf.revision.store(21, Ordering::SeqCst);
    assert!(world.office.tenants.renew().await.is_ok());
    assert_eq!(written(&world.shelf), 2, "what it left behind is in the history");
    assert_eq!(world.ceilings("acme").await, [3, 5]);
    let reads = world.reads();
    assert!(world.office.tenants.renew().await.is_ok());
    assert_eq!(world.reads(), reads, "it is whole");
}

/// As many users as a tenant may have, each with a limit: more than the fleet's cache takes of one tenant.
#[tokio::test]
async fn a_tenant_of_as_many_users_as_may_be_is_read_soon_and_moved_without_the_store() {
    let shelf = Arc::new(Shelf::default());
    *shelf.rows.lock().unwrap() = Some(BTreeMap::new());
    let cache = Arc::new(MemoryCache::default());
    let mut world = World::beside(Arc::clone(&shelf), Some(cache)).await;
    let put = |ceiling: u64| {
        let number = shelf.put(&world.hasher, "acme", 1, 5);
        let users = (0..tollbook_policy::USERS_MAX).map(|at| Object {
            name: name(ObjectKind::User, "acme", "", &format!("customer-{at}")),
            version: number,
            document: format!(
                r#"{{"limits":[{{"ceiling":{ceiling},"measure":"requests","window":"60s"}}],"status":"{}"}}"#,
                if at == 7 { "disabled" } else { "active" }
            ),
            created_at: 0,
            changed_at: 0,
        });
        shelf.tenants.lock().unwrap().get_mut("acme").unwrap().extend(users);
        number
    };
    let (before, number) = (resident(), put(3));
    world.changed("acme", number);
    let begun = std::time::Instant::now();
    let Ok(Caller::Of(snapshot)) = world.ask("sk-acme-0").await else { panic!("no caller") };
    let first = begun.elapsed();
    let each = (resident() - before) / tollbook_policy::USERS_MAX;
    assert!(snapshot.catalog.user("acme", "customer-7").unwrap().disabled);
    assert_eq!(snapshot.catalog.resolve_user("acme", "customer-8", "m", 0).accounts.len(), 1);
    let begun = std::time::Instant::now();
    world.changed("acme", put(4));
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    let again = begun.elapsed();
    shelf.is_away.store(true, Ordering::SeqCst);
    let begun = std::time::Instant::now();
    world.stand_on(Directory::new(), 0).await;
    assert_eq!(world.ceiling("sk-acme-0").await, 5);
    println!("first {first:?}, after a change {again:?}, moved {:?}, {each} bytes a user", begun.elapsed());
}
