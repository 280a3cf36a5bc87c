//! The cache of what gateways have read of the store, on real servers.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tollbook_engine::Engine as _;
use tollbook_engine_redis::{Link, Options, RedisEngine};
use tollbook_engine_suite::legs::SHARD;
use tollbook_jobs::Forgets;
use tollbook_redis_world::resp::Reply;
use tollbook_redis_world::{Cluster, Mode, Plan, Proxy, Server, wait_for};
use tollbook_store::{CACHED_FOR, CACHED_MAX, Cached, ConfigCache, FORGOTTEN_FOR, Gap, Look, shard_of};
use tollbook_store_suite::{Harness, wait};
use tollbook_telemetry::Metrics;

use crate::harness::{SERVERS, Servers, connect, durable, place};

/// A machine that does other things too.
const LIMIT: Duration = Duration::from_secs(10);

struct Shared {
    runtime: Runtime,
    prefix: String,
}

pub(crate) fn redis() -> Box<dyn Harness> {
    on(|| Servers::One(durable(Plan::redis()).start()))
}

pub(crate) fn valkey() -> Box<dyn Harness> {
    on(|| Servers::One(durable(Plan::valkey()).start()))
}

pub(crate) fn cluster() -> Box<dyn Harness> {
    on(|| Servers::Three(Cluster::of(&durable(Plan::redis()))))
}

fn on(start: impl FnOnce() -> Servers) -> Box<dyn Harness> {
    let (prefix, runtime) = place(start);
    Box::new(Shared { runtime, prefix })
}

fn key(prefix: &str, what: &str, id: &str) -> String {
    format!("{prefix}:cfg:{{{}}}:{what}:{id}", shard_of(id))
}

impl Shared {
    fn delete(&self, what: &str, id: &str) {
        let (key, servers) = (key(&self.prefix, what, id), SERVERS.lock().unwrap());
        let server = match servers.as_ref().unwrap() {
            Servers::One(server) => server,
            Servers::Three(cluster) => {
                // Only the node that has the key does it.
                let done = cluster.nodes().iter().filter(|node| !node.ask(&["DEL", &key]).is_error()).count();
                assert_eq!(done, 1, "{key}");
                return;
            }
        };
        assert!(!server.ask(&["DEL", &key]).is_error());
    }
}

impl Harness for Shared {
    fn gateway(&self) -> Arc<dyn ConfigCache> {
        connect(&self.runtime, &self.prefix, &Arc::new(AtomicU64::new(0)))
    }

    fn entry_ends(&self, id: &str) {
        self.delete("e", id);
    }

    fn version_ends(&self, id: &str) {
        self.delete("v", id);
    }

    fn lose(&self) {
        let servers = SERVERS.lock().unwrap();
        let nodes = match servers.as_ref().unwrap() {
            Servers::One(server) => std::slice::from_ref(server),
            Servers::Three(cluster) => cluster.nodes(),
        };
        for node in nodes {
            assert!(!node.ask(&["FLUSHALL"]).is_error());
        }
    }
}

/// One gateway's way to a server.
struct World {
    engine: RedisEngine,
    /// Its tasks keep the connections.
    runtime: Runtime,
}

impl World {
    fn at(url: &str, change: impl FnOnce(&mut Options)) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let inside = runtime.enter();
        let mut options = Options { deadline: LIMIT, ..Options::parse(url).unwrap() };
        change(&mut options);
        let engine = RedisEngine::new(Link::open(&options).unwrap(), options.prefix.clone());
        drop(inside);
        let answer = wait_for(LIMIT, || wait(engine.due(SHARD, 1)).ok());
        assert!(answer.is_some(), "no answer from {url}");
        Self { engine, runtime }
    }

    fn of(server: &Server) -> Self {
        Self::at(&server.url(), |_| {})
    }

    fn get(&self, id: &str) -> Look {
        wait(self.engine.get(id, 0)).unwrap()
    }

    fn gap(&self, id: &str) -> Gap {
        match self.get(id) {
            Look::Gap(gap) => gap,
            Look::Kept(kept) => panic!("{kept:?} is kept"),
        }
    }

    fn fill(&self, id: &str, revision: u64) -> bool {
        let gap = self.gap(id);
        wait(self.engine.put(gap, id, &read(revision))).unwrap()
    }

    fn forget(&self, id: &str, revision: u64) {
        wait(self.engine.forget(&[(id.to_owned(), revision)])).unwrap();
    }
}

fn read(revision: u64) -> Cached {
    Cached { revision, text: format!("as of {revision}") }
}

fn floor(id: &str) -> String {
    format!("tb:cfg:{{{}}}:floor", shard_of(id))
}

fn lives(server: &Server, key: &str) -> Duration {
    let lives = server.ask(&["PTTL", key]).int().unwrap();
    Duration::from_millis(u64::try_from(lives).unwrap_or_else(|_| panic!("{key}: {lives}")))
}

/// An entry has its ten minutes; what was forgotten is known an hour longer, counted from whoever reads last.
#[test]
fn every_key_goes_by_itself_and_a_version_after_its_entry() {
    let server = Server::redis();
    let world = World::of(&server);
    let (entry, version, floor) = (key("tb", "e", "acme"), key("tb", "v", "acme"), floor("acme"));
    let long = CACHED_FOR + FORGOTTEN_FOR;
    let is_new = |key: &str, life: Duration| {
        let lives = lives(&server, key);
        assert!(lives <= life && lives + LIMIT > life, "{key} lives {lives:?} of {life:?}");
    };
    let gap = world.gap("acme");
    is_new(&version, long);
    is_new(&floor, long);
    let age = || {
        for key in [&version, &floor] {
            server.ask(&["PEXPIRE", key, "300000"]);
        }
    };
    // Whoever reads has all that time, also where another one began before.
    age();
    world.gap("acme");
    is_new(&version, long);
    is_new(&floor, long);
    age();
    assert!(wait(world.engine.put(gap, "acme", &read(5))).unwrap());
    is_new(&entry, CACHED_FOR);
    is_new(&version, long);
    is_new(&floor, long);
    // A hit prolongs nothing.
    server.ask(&["PEXPIRE", &entry, "200000"]);
    assert_eq!(world.get("acme"), Look::Kept(read(5)));
    assert!(lives(&server, &entry) <= Duration::from_secs(200));
    age();
    world.forget("acme", 6);
    is_new(&version, long);
    is_new(&floor, long);
    let keys: Vec<String> = server.ask(&["KEYS", "tb:cfg:*"]).items().iter().map(Reply::text).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
}

/// Whatever lies under the three keys: a gap, which can be filled, and then all is well.
#[test]
fn what_is_not_ours_or_is_damaged_is_a_gap() {
    let server = Server::redis();
    let world = World::of(&server);
    let names = [floor("acme"), key("tb", "v", "acme"), key("tb", "e", "acme")];
    let mut looked_at = 0;
    for name in &names {
        server.ask(&["DEL", &names[2]]);
        assert!(world.fill("acme", 5));
        let ours = server.ask(&["GET", name]).text();
        let mut values: Vec<String> =
            ["", "x", "1", "1 ", "2 5 1 ", "1 5", "1 -5 1 ", "1 5.5 1 ", "1 1e3 1 "]
                .map(str::to_owned)
                .to_vec();
        values.extend(
            ["1 99999999999999999999 99999999999999999999 ", "1 9007199254740992 1 1 "].map(str::to_owned),
        );
        values.push(ours.replacen('1', "2", 1));
        values.push(format!(" {ours}"));
        if name != &names[1] {
            values.push(format!("{ours}x"));
            values.extend((0..ours.len()).map(|length| ours.chars().take(length).collect()));
        }
        for value in values {
            server.ask(&["DEL", &names[2]]);
            assert!(world.fill("acme", 5), "{value:?}");
            assert_eq!(world.get("acme"), Look::Kept(read(5)));
            let lives = server.ask(&["PTTL", name]).text();
            assert_eq!(server.ask(&["SET", name, &value, "KEEPTTL"]).text(), "OK");
            assert!(!server.ask(&["GET", name]).is_error(), "{lives}");
            if let Look::Kept(kept) = world.get("acme") {
                panic!("{kept:?} with {value:?} under {name}");
            }
            world.forget("acme", 5);
            looked_at += 1;
        }
        for make in [["RPUSH", "x"], ["SADD", "x"], ["PFADD", "x"]] {
            server.ask(&["DEL", &names[2]]);
            assert!(world.fill("acme", 5));
            server.ask(&["DEL", name]);
            assert!(!server.ask(&[make[0], name, make[1]]).is_error());
            world.gap("acme");
            server.ask(&["DEL", name]);
            assert!(!server.ask(&[make[0], name, make[1]]).is_error());
            world.forget("acme", 5);
            server.ask(&["DEL", name]);
            assert!(!server.ask(&[make[0], name, make[1]]).is_error());
            assert!(!wait(world.engine.put(Gap(7), "acme", &read(5))).unwrap());
            wait(world.engine.forget_below(5)).unwrap();
            looked_at += 1;
        }
    }
    assert!(looked_at > 60, "{looked_at}");
    assert!(world.fill("acme", 5) && world.get("acme") == Look::Kept(read(5)));
}

/// What a reader saw before is no gap any more, whichever of the keys was lost since.
#[test]
fn a_lost_floor_lets_nothing_old_in() {
    let server = Server::redis();
    let world = World::of(&server);
    assert!(world.fill("acme", 5));
    // Another id of the same tag, whose reader is slow.
    let other =
        (0..10_000).map(|number| format!("o{number}")).find(|id| shard_of(id) == shard_of("acme")).unwrap();
    let slow = world.gap(&other);
    wait(world.engine.forget_below(9)).unwrap();
    server.ask(&["DEL", &floor("acme")]);
    assert!(!wait(world.engine.put(slow, &other, &read(8))).unwrap());
    world.gap("acme");
    assert!(!wait(world.engine.put(slow, &other, &read(8))).unwrap());
    let again = world.gap(&other);
    assert!(again > slow);
    assert!(wait(world.engine.put(again, &other, &read(8))).unwrap());
}

/// A server that was started again may have lost its last writes, a forget among them.
#[test]
fn what_another_run_of_the_server_kept_does_not_count() {
    let mut server = Plan::redis().aof().start();
    let world = World::of(&server);
    assert!(world.fill("acme", 5));
    let slow = world.gap("slow");
    server.restart();
    let answers = || wait(world.engine.get("acme", 0)).ok();
    assert!(!server.ask(&["GET", &key("tb", "e", "acme")]).text().is_empty(), "it was lost anyway");
    assert!(matches!(wait_for(LIMIT, answers), Some(Look::Gap(_))));
    assert!(!wait(world.engine.put(slow, "slow", &read(5))).unwrap());
    assert!(world.fill("acme", 5) && world.fill("slow", 5));
}

#[test]
fn scripts_come_back() {
    let server = Server::valkey();
    let world = World::of(&server);
    let flush = || assert!(!server.ask(&["SCRIPT", "FLUSH"]).is_error());
    let gap = world.gap("acme");
    flush();
    assert!(wait(world.engine.put(gap, "acme", &read(5))).unwrap());
    flush();
    assert_eq!(world.get("acme"), Look::Kept(read(5)));
    flush();
    world.forget("acme", 6);
    flush();
    wait(world.engine.forget_below(6)).unwrap();
    world.gap("acme");
}

/// A full memory takes no new text, and forgets what it has.
#[test]
fn a_full_memory_still_forgets() {
    let server = Plan::redis().memory_max(64 << 20).start();
    let world = World::of(&server);
    assert!(world.fill("acme", 5) && world.fill("other", 5));
    let gap = world.gap("new");
    server.ask(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let large = Cached { revision: 5, text: "x".repeat(CACHED_MAX) };
    assert!(wait(world.engine.put(gap, "new", &large)).is_err());
    assert!(wait(world.engine.get("never seen", 0)).is_err());
    assert_eq!(world.get("acme"), Look::Kept(read(5)));
    world.forget("acme", 6);
    wait(world.engine.forget_below(7)).unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "64mb"]);
    let gap = world.gap("acme");
    assert!(!wait(world.engine.put(gap, "acme", &read(6))).unwrap());
    world.gap("other");
    assert!(world.fill("acme", 7));
}

/// A slow server costs a question two fifths of a verb's time, and no verb its connection.
#[test]
fn who_waits_in_vain_gives_up_first_and_breaks_no_connection() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let deadline = Duration::from_secs(5);
    let world = World::at(&format!("redis://{}", proxy.addr()), |options| {
        (options.deadline, options.connections) = (deadline, 1);
    });
    assert!(world.fill("acme", 5));
    let connections = proxy.taken();
    proxy.set(Mode::Delay(Duration::from_millis(1_100)));
    let began = Instant::now();
    let (asked, verb) = world.runtime.block_on(async {
        tokio::join!(world.engine.get("acme", 0), async { world.engine.due(SHARD, 1).await })
    });
    assert!(asked.is_err(), "{asked:?}");
    assert!(verb.is_ok(), "{verb:?}");
    assert!(began.elapsed() < deadline);
    proxy.set(Mode::Pass);
    assert!(wait_for(LIMIT, || wait(world.engine.get("acme", 0)).ok()) == Some(Look::Kept(read(5))));
    assert_eq!(proxy.taken(), connections);
}

/// The rights that the documents name are enough.
#[test]
fn the_user_of_the_documents_may_do_it() {
    let server = Server::redis();
    let rights = "ACL SETUSER tollbook on >secret ~tb:* +@all -@admin -@dangerous +info";
    let words: Vec<&str> = rights.split(' ').collect();
    assert_eq!(server.ask(&words).text(), "OK");
    let world = World::at(&format!("redis://tollbook:secret@{}", server.addr()), |_| {});
    assert!(world.fill("acme", 5));
    assert_eq!(world.get("acme"), Look::Kept(read(5)));
    world.forget("acme", 6);
    wait(world.engine.forget_below(6)).unwrap();
    world.gap("acme");
}

/// One gateway loses its way to the server while it changes something; others go on, and the change reaches them when it is
/// back, or as soon as they know of it themselves.
#[test]
fn forgets_are_delivered_when_the_way_is_back() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let short = |options: &mut Options| options.deadline = Duration::from_millis(500);
    let cut_off = World::at(&format!("redis://{}", proxy.addr()), short);
    let other = World::of(&server);
    assert!(other.fill("acme", 5) && other.fill("known", 5) && other.fill("unchanged", 5));
    let slow = other.gap("slow");
    let World { engine, runtime } = cut_off;
    let metrics = Arc::new(Metrics::new());
    let forgets = Arc::new(Forgets::new(Arc::new(engine), Arc::clone(&metrics)));
    let (stop, stopped) = watch::channel(false);
    let running = runtime.spawn({
        let forgets = Arc::clone(&forgets);
        async move { forgets.run(stopped).await }
    });
    for mode in [Mode::Hole, Mode::Closed] {
        proxy.set(mode);
        if mode == Mode::Closed {
            proxy.cut();
        }
        let began = Instant::now();
        let ids = ["acme", "known", "slow"].map(|id| (id.to_owned(), 6));
        assert!(!runtime.block_on(forgets.forget(&ids)), "{mode:?}");
        assert!(began.elapsed() < LIMIT);
    }
    assert_eq!(metrics.objects_forgets_waiting.get(()), 3);
    assert_eq!(other.get("acme"), Look::Kept(read(5)), "nobody has told it");
    assert!(matches!(wait(other.engine.get("known", 6)).unwrap(), Look::Gap(_)));
    proxy.set(Mode::Pass);
    assert!(wait_for(LIMIT * 3, || (metrics.objects_forgets_waiting.get(()) == 0).then_some(())).is_some());
    let gap = other.gap("acme");
    assert!(!wait(other.engine.put(gap, "acme", &read(5))).unwrap());
    assert!(!wait(other.engine.put(slow, "slow", &read(5))).unwrap());
    assert!(wait(other.engine.put(gap, "acme", &read(6))).unwrap());
    assert_eq!(other.get("unchanged"), Look::Kept(read(5)));
    stop.send(true).unwrap();
    runtime.block_on(running).unwrap();
}

/// The same of a server that dies and comes back with what it had.
#[test]
fn forgets_are_delivered_to_a_server_that_comes_back() {
    let mut server = Plan::redis().aof().start();
    let world = World::of(&server);
    assert!(world.fill("acme", 5));
    let World { engine, runtime } = world;
    let engine = Arc::new(engine);
    let metrics = Arc::new(Metrics::new());
    let forgets = Forgets::new(engine.clone(), Arc::clone(&metrics));
    server.kill();
    assert!(!runtime.block_on(forgets.forget(&[("acme".to_owned(), 6)])));
    server.start_again();
    assert!(wait_for(LIMIT, || runtime.block_on(forgets.once()).ok()).is_some());
    let Look::Gap(gap) = wait(engine.get("acme", 0)).unwrap() else { panic!("the old one") };
    assert!(!wait(engine.put(gap, "acme", &read(5))).unwrap());
    assert!(wait(engine.put(gap, "acme", &read(6))).unwrap());
}
