//! One process of the real admission, over a directory that outlives it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tollbook_admission::{Admission, Settings, SettleBounds, Snapshot};
use tollbook_engine::Engine;
use tollbook_telemetry::Metrics;

use super::port::Port;
use crate::bank::Bank;
use crate::wire::Wire;

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    admission: Arc<Admission>,
    wire: Arc<Wire>,
    stop: watch::Sender<bool>,
    calls: Mutex<JoinSet<()>>,
    /// Renewing and settling.
    running: Mutex<JoinSet<()>>,
    pub(crate) is_stopping: AtomicBool,
    /// It died with outcomes that it had told nobody.
    pub(crate) has_died: Arc<AtomicBool>,
}

impl Gateway {
    /// Starts one; `None` while the engine does not answer.
    pub(crate) async fn start(
        wire: &Arc<Wire>,
        snapshot: Arc<Snapshot>,
        spool: &Path,
        queue_max: usize,
    ) -> Option<Arc<Self>> {
        let engine: Arc<dyn Engine> = Arc::new(Port(Arc::clone(wire)));
        let settle = SettleBounds { queue_max, ..SettleBounds::default() };
        let settings = Settings { settle, ..Settings::default() };
        let metrics = Arc::new(Metrics::new());
        let opened = Admission::open(engine, snapshot, metrics, settings, Some(spool)).await;
        let admission = opened.ok()?;
        let stop = watch::Sender::new(false);
        let (running, stopped) = (Arc::clone(&admission), stop.subscribe());
        let mut background = JoinSet::new();
        background.spawn(async move { running.run(stopped).await });
        Some(Arc::new(Self {
            admission,
            wire: Arc::clone(wire),
            stop,
            calls: Mutex::new(JoinSet::new()),
            running: Mutex::new(background),
            is_stopping: AtomicBool::new(false),
            has_died: Arc::new(AtomicBool::new(false)),
        }))
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    pub(crate) fn bank(&self) -> &Arc<Bank> {
        &self.wire.bank
    }

    /// Runs a call.
    pub(crate) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        self.lock_calls().spawn(call);
    }

    /// Calls that have not ended; one that panicked is a finding.
    pub(crate) fn live(&self) -> usize {
        let mut calls = self.lock_calls();
        while let Some(done) = calls.try_join_next() {
            if let Err(error) = done {
                self.wire.bank.fail(format!("a call ended badly: {error}"));
            }
        }
        calls.len()
    }

    fn lock_calls(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dies: from now on it reaches nobody.
    pub(crate) fn die(&self) {
        self.has_died.store(true, Ordering::Relaxed);
        self.wire.cut();
    }

    /// Takes a dead one apart. Its Tickets still post what they know, to nobody.
    pub(crate) fn bury(&self) {
        drop(std::mem::take(&mut *self.lock_calls()));
        drop(std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// Stops in good order: streams end, then everything is settled or spooled.
    pub(crate) async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        for _ in 0..PATIENCE_S {
            if self.live() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.stop.send_replace(true);
        let mut running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = tokio::time::timeout(Duration::from_secs(PATIENCE_S), running.join_next()).await;
        let in_good_order = self.live() == 0 && matches!(ended, Ok(Some(Ok(()))));
        // One that dies while it stops owes nothing.
        if !in_good_order && !self.has_died.load(Ordering::Relaxed) {
            self.wire.bank.fail(format!("a gateway did not stop in good order: {ended:?}"));
        }
    }

    pub(crate) fn heal(&self) {
        self.wire.heal();
    }
}

/// Longest that anything may take when a gateway stops.
const PATIENCE_S: u64 = 120;

/// The directory of one gateway of a host.
pub(crate) fn directory(root: &Path, host: usize, number: u64) -> std::io::Result<PathBuf> {
    let path = root.join(format!("gateway-{host}-{number}"));
    std::fs::create_dir_all(&path)?;
    Ok(path)
}
