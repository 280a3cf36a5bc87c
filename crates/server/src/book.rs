//! The book that the configuration names: opened, watched and closed.
//!
//! In this process it is replayed before anything is served. A shared one is connected to in the background; a start waits
//! for its first answer, so that a wrong address or password is told at once and not at the first call.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::watch;
use tollbook_engine::{Cursor, Engine, EngineError, Recovery, Shard};
use tollbook_engine_memory::{Durability, MemoryEngine, OpenError, Options};
use tollbook_engine_redis::{Link, RedisEngine, STREAMS_MAX};
use tollbook_ledger::Micros;
use tollbook_store::ConfigCache;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::log::Every;

use crate::config::{Book, file};
use crate::observe;

/// One segment for each shard of the log, and the journal's file.
const FIRST_START_MIB: u32 = 130;
/// Longest a start waits for the shared book's first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// Pause between two tries of it.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Pause between two steps of tidying the shared book: all its shards have their turn in four minutes.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// How many of those steps it is until it is looked at again what waits for the journal.
const COUNTED_EVERY: u64 = 10;
/// One line about streams that are too long in this time.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// An open book.
#[derive(Clone, Debug)]
pub(crate) enum OpenBook {
    Memory(Arc<MemoryEngine>),
    /// And the lock of the folder, which is one gateway's alone.
    Redis(Arc<RedisEngine>, Arc<File>),
}

impl OpenBook {
    pub(crate) async fn open(book: &Book, data_dir: &Path) -> anyhow::Result<Self> {
        Ok(match book {
            Book::Memory(durability) => Self::Memory(replayed(&data_dir.join("book"), *durability).await?),
            Book::Redis(options) => {
                let lock = locked(data_dir)?;
                let link = Link::open(options).context("engine.redis cannot be used")?;
                let engine = RedisEngine::new(link, options.prefix.clone()).guarded();
                answered(&engine).await.map_err(|error| {
                    anyhow!("the shared book at {} does not answer: {error}", book.described())
                })?;
                tracing::info!(book = book.described(), "the shared book answers");
                Self::Redis(Arc::new(engine), Arc::new(lock))
            }
        })
    }

    pub(crate) fn shared(&self) -> Arc<dyn Engine> {
        match self {
            Self::Memory(engine) => Arc::clone(engine) as Arc<dyn Engine>,
            Self::Redis(engine, _) => Arc::clone(engine) as Arc<dyn Engine>,
        }
    }

    /// The book as one that can be lost, if it can.
    pub(crate) fn losable(&self) -> Option<Arc<dyn Recovery>> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(engine, _) => Some(Arc::clone(engine) as Arc<dyn Recovery>),
        }
    }

    /// Where the gateways that share it keep what they read of the store.
    pub(crate) fn cache(&self) -> Option<Arc<dyn ConfigCache>> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(engine, _) => Some(Arc::clone(engine) as Arc<dyn ConfigCache>),
        }
    }

    /// The engine's time, told also by a book that has lost its accounts.
    pub(crate) async fn now(&self) -> Result<Micros, EngineError> {
        self.shared().journal_read(Shard(0), Cursor(0), 1).await.map(|reply| reply.now)
    }

    /// What goes on beside the verbs, until `stop` turns true.
    pub(crate) async fn watch(self, metrics: Arc<Metrics>, stop: watch::Receiver<bool>) {
        match self {
            Self::Memory(engine) => observe::run(engine, metrics, stop).await,
            Self::Redis(engine, _lock) => tidied(&engine, &metrics, stop).await,
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Memory(engine) => close(engine).await,
            Self::Redis(engine, lock) => drop((engine, lock)),
        }
    }
}

/// Two gateways with one folder would empty each other's spool. A book in this process has a lock of its own.
fn locked(data_dir: &Path) -> anyhow::Result<File> {
    let path = data_dir.join("lock");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(in_use(&OpenError::InUse { path: data_dir.to_owned() })),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

fn in_use(error: &OpenError) -> anyhow::Error {
    anyhow!("{error}; stop it, or give this one its own data_dir")
}

/// Waits for the first answer. What waiting cannot mend is told at once by the last try alike.
async fn answered(engine: &RedisEngine) -> Result<(), EngineError> {
    let began = tokio::time::Instant::now();
    loop {
        match engine.state(Shard(0)).await {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() >= FIRST_ANSWER => return Err(error),
            Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}

/// Tidies one shard after the other, and tells what waits for the journal; what fails is done another time.
async fn tidied(engine: &RedisEngine, metrics: &Metrics, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(TIDY_EVERY);
    let warn = Every::new(WARN_EVERY);
    for (step, shard) in (0_u64..).zip((0..=u8::MAX).cycle()) {
        tokio::select! {
            _ = ticks.tick() => {}
            // A dropped sender is a stop too.
            _ = stop.wait_for(|stopped| *stopped) => return,
        }
        if let Err(error) = engine.tidy(Shard(shard)).await {
            tracing::debug!(%error, shard, "a shard was not tidied");
        }
        if step % COUNTED_EVERY == 0 {
            waiting(engine, metrics, &warn).await;
        }
    }
}

/// The streams to the journal have no bound but the server's memory.
async fn waiting(engine: &RedisEngine, metrics: &Metrics, warn: &Every) {
    let waiting = match engine.journal_waiting().await {
        Ok(waiting) => waiting,
        Err(error) => return tracing::debug!(%error, "it is not known what waits for the journal"),
    };
    metrics.journal_pending.set((), waiting);
    if waiting > STREAMS_MAX
        && let Some(suppressed) = warn.pass(tokio::time::Instant::now().into_std())
    {
        tracing::error!(
            waiting,
            suppressed,
            "the shared book's server fills up with ended calls that the journal has not taken"
        );
    }
}

/// Replays the log; off the runtime's workers, because it reads and computes.
async fn replayed(dir: &Path, durability: file::Durability) -> anyhow::Result<Arc<MemoryEngine>> {
    let dir = PathBuf::from(dir);
    let options = Options {
        durability: match durability {
            file::Durability::Mapped => Durability::Mapped,
            file::Durability::Fsync => Durability::Fsync,
        },
        ..Options::default()
    };
    let opened = tokio::task::spawn_blocking(move || MemoryEngine::open(Some(&dir), options)).await?;
    let opened = opened.map_err(explained).context("cannot open the book")?;
    let report = &opened.report;
    tracing::info!(
        records = report.records,
        torn_tails = report.torn_tails,
        journal_waiting = report.journal_waiting,
        took_ms = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX),
        "the book is open"
    );
    Ok(Arc::new(opened.engine))
}

/// With what to do: of a disk that is too small, and of a log that another process uses.
fn explained(error: OpenError) -> anyhow::Error {
    if matches!(error, OpenError::InUse { .. }) {
        return in_use(&error);
    }
    let full =
        matches!(&error, OpenError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull);
    let error = anyhow::Error::new(error);
    if full {
        error.context(format!("a first start needs {FIRST_START_MIB} MiB of disk for the log"))
    } else {
        error
    }
}

async fn close(engine: Arc<MemoryEngine>) {
    let Some(engine) = Arc::into_inner(engine) else {
        tracing::warn!("the book is still in use; its log is synced, not sealed");
        return;
    };
    match tokio::task::spawn_blocking(move || engine.close()).await {
        Ok(Ok(())) => tracing::info!("the book is closed"),
        Ok(Err(error)) => tracing::error!(%error, "the book could not be closed"),
        Err(error) => tracing::error!(%error, "closing the book broke off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this nobody would see that the journal takes nothing: the drain tells what it moved, not what is left.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_waits_in_a_shared_book_is_told() {
        let server = tollbook_redis_world::Server::redis();
        for (shard, entries) in [(5, 3), (200, 2)] {
            for _ in 0..entries {
                server.ask(&["XADD", &format!("tb:{{{shard}}}:j"), "*", "e", "x", "b", "y"]);
            }
        }
        let options = tollbook_engine_redis::Options::parse(&server.url()).unwrap();
        let engine = RedisEngine::new(Link::open(&options).unwrap(), "tb");
        answered(&engine).await.unwrap();
        let metrics = Metrics::new();
        let (stop, stopped) = watch::channel(false);
        let told = async {
            let began = tokio::time::Instant::now();
            while metrics.journal_pending.get(()) != 5 {
                assert!(began.elapsed() < FIRST_ANSWER, "{} wait", metrics.journal_pending.get(()));
                tokio::task::yield_now().await;
            }
            stop.send(true).unwrap();
        };
        tokio::join!(tidied(&engine, &metrics, stopped), told);
    }
}
