//! A memory engine whose clock the tests move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tollbook_engine::Engine;
use tollbook_engine::ledger::{AccountId, Micros};
use tollbook_engine_memory::{Clock, MemoryEngine, Options};
use tollbook_engine_suite::Harness;
use tollbook_engine_suite::legs::SHARD;

/// Stands still until it is moved.
#[derive(Debug)]
pub(crate) struct Hand(AtomicU64);

impl Hand {
    pub(crate) fn at(now: Micros) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(now)))
    }

    pub(crate) fn set(&self, now: Micros) {
        self.0.store(now, Ordering::Release);
    }
}

impl Clock for Hand {
    fn now(&self) -> Micros {
        self.0.load(Ordering::Acquire)
    }
}

/// Small files, so that tests meet their ends; no threads, so that tests repeat.
pub(crate) fn options(clock: Arc<dyn Clock>) -> Options {
    let mut options = Options::on(clock);
    options.segment_bytes = 256 * 1024;
    options.snapshot_bytes = 256 * 1024;
    options.shards = 4;
    options.background = false;
    options
}

struct Memory {
    clock: Arc<Hand>,
    dir: Option<TempDir>,
    engine: Option<Arc<MemoryEngine>>,
}

pub(crate) fn without_log(start: Micros) -> Box<dyn Harness> {
    let clock = Hand::at(start);
    let engine = MemoryEngine::open(None, options(clock.clone())).unwrap().engine;
    Box::new(Memory { clock, dir: None, engine: Some(Arc::new(engine)) })
}

pub(crate) fn with_log(start: Micros) -> Box<dyn Harness> {
    let clock = Hand::at(start);
    let dir = tempfile::tempdir().unwrap();
    let engine = MemoryEngine::open(Some(dir.path()), options(clock.clone())).unwrap().engine;
    Box::new(Memory { clock, dir: Some(dir), engine: Some(Arc::new(engine)) })
}

impl Memory {
    fn get(&self) -> &Arc<MemoryEngine> {
        self.engine.as_ref().unwrap()
    }

    fn again(&mut self, end: impl FnOnce(MemoryEngine)) -> bool {
        let Some(dir) = &self.dir else { return false };
        let engine = Arc::try_unwrap(self.engine.take().unwrap()).expect("nobody else uses the engine");
        end(engine);
        let opened = MemoryEngine::open(Some(dir.path()), options(self.clock.clone())).unwrap();
        assert_eq!(opened.report.torn_tails, 0);
        self.engine = Some(Arc::new(opened.engine));
        true
    }
}

impl Harness for Memory {
    fn engine(&self) -> &dyn Engine {
        &**self.get()
    }

    fn shared(&self) -> Arc<dyn Engine> {
        self.get().clone()
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn advance(&self, by: Micros) {
        self.clock.set(self.clock.now() + by);
    }

    fn step_back(&self, by: Micros) -> bool {
        self.clock.set(self.clock.now() - by);
        true
    }

    fn restart(&mut self) -> bool {
        self.again(|engine| engine.close().unwrap())
    }

    fn kill(&mut self) -> bool {
        self.again(MemoryEngine::abandon)
    }

    fn tick(&self) {
        self.get().tick();
    }

    fn corrupt_held(&self, account: AccountId, held: i64) -> bool {
        self.get().corrupt_held(SHARD, account, 0, held)
    }
}
