//! A shared book whose clock the tests move. A test's process has one server; each book on it has keys of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Runtime;
use tollbook_engine::Engine;
use tollbook_engine::ledger::{AccountId, Micros};
use tollbook_engine_redis::{Link, Options, RedisEngine};
use tollbook_engine_suite::legs::SHARD;
use tollbook_engine_suite::{Harness, wait};
use tollbook_redis_world::{Cluster, Plan, Server};

struct Shared {
    now: Arc<AtomicU64>,
    engine: Arc<RedisEngine>,
    runtime: Runtime,
    prefix: String,
}

/// Killed with the process.
pub(crate) static SERVERS: Mutex<Option<Servers>> = Mutex::new(None);
static BOOKS: AtomicU64 = AtomicU64::new(0);

pub(crate) enum Servers {
    One(Server),
    Three(Cluster),
}

impl Servers {
    fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Three(cluster) => {
                let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.addr().to_string()).collect();
                format!("redis+cluster://{}", nodes.join(","))
            }
        }
    }

    /// The one that keeps the shard dies and comes back.
    fn restart(&mut self) {
        match self {
            Self::One(server) => server.restart(),
            Self::Three(cluster) => {
                let owner = cluster.owner(cluster.slot(&format!("{{{}}}", SHARD.0)));
                cluster.node(owner).restart();
                cluster.comes_to_serve();
            }
        }
    }
}

pub(crate) fn redis(start: Micros) -> Box<dyn Harness> {
    on(start, || Servers::One(durable(Plan::redis()).start()))
}

pub(crate) fn valkey(start: Micros) -> Box<dyn Harness> {
    on(start, || Servers::One(durable(Plan::valkey()).start()))
}

pub(crate) fn cluster(start: Micros) -> Box<dyn Harness> {
    on(start, || Servers::Three(Cluster::of(&durable(Plan::redis()))))
}

/// Written before it is answered; kills of the process lose nothing.
pub(crate) fn durable(plan: Plan) -> Plan {
    plan.line("appendonly yes").line("appendfsync no")
}

fn on(start: Micros, start_servers: impl FnOnce() -> Servers) -> Box<dyn Harness> {
    let (prefix, runtime) = place(start_servers);
    let now = Arc::new(AtomicU64::new(start));
    let engine = connect(&runtime, &prefix, &now);
    Box::new(Shared { now, engine, runtime, prefix })
}

/// A prefix of its own on the servers of this process.
pub(crate) fn place(start_servers: impl FnOnce() -> Servers) -> (String, Runtime) {
    SERVERS.lock().unwrap().get_or_insert_with(start_servers);
    let prefix = format!("b{}", BOOKS.fetch_add(1, Ordering::Relaxed));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    (prefix, runtime)
}

pub(crate) fn connect(runtime: &Runtime, prefix: &str, now: &Arc<AtomicU64>) -> Arc<RedisEngine> {
    let _inside = runtime.enter();
    let url = SERVERS.lock().unwrap().as_ref().expect("it was started").url();
    let mut options = Options::parse(&url).unwrap();
    // The tests share two cores with everything else.
    options.deadline = Duration::from_secs(10);
    let now = Arc::clone(now);
    let link = Link::open(&options).unwrap();
    let clock = Arc::new(move || now.load(Ordering::Acquire));
    let engine = Arc::new(RedisEngine::with_clock(link, prefix, vec![SHARD], clock));
    tollbook_redis_world::wait_for(Duration::from_secs(10), || wait(engine.due(SHARD, 1)).ok())
        .expect("the server answers");
    engine
}

impl Harness for Shared {
    fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    fn shared(&self) -> Arc<dyn Engine> {
        self.engine.clone()
    }

    fn now(&self) -> Micros {
        self.now.load(Ordering::Acquire)
    }

    fn advance(&self, by: Micros) {
        self.now.fetch_add(by, Ordering::AcqRel);
    }

    fn step_back(&self, by: Micros) -> bool {
        self.now.fetch_sub(by, Ordering::AcqRel);
        true
    }

    /// Another gateway on the same book.
    fn restart(&mut self) -> bool {
        self.engine = connect(&self.runtime, &self.prefix, &self.now);
        true
    }

    /// The server, with what it wrote down.
    fn kill(&mut self) -> bool {
        SERVERS.lock().unwrap().as_mut().expect("it was started").restart();
        self.restart()
    }

    fn tick(&self) {
        wait(self.engine.tidy(SHARD)).expect("the shard is tidied");
    }

    fn corrupt_held(&self, account: AccountId, held: i64) -> bool {
        wait(self.engine.corrupt_held(SHARD, account, held)).is_ok()
    }
}
