//! The handle that tests hold, and the server behind it.
//!
//! Invariants: everything the server knows is in one state behind one lock that is never held across an await; each
//! change of the record wakes those who wait for it.
//! Stopping closes the listener and every connection; calls that had not ended are recorded as stopped.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ask::Ask;
use crate::record::{Ending, Record, Recorded, Totals};
use crate::script::Script;
use crate::serve;

/// Scripts waiting in the queue.
pub const QUEUE_MAX: usize = 100_000;

/// A running fake provider. Dropping it stops it.
#[derive(Debug)]
pub struct MockUpstream {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl MockUpstream {
    /// On a free port of 127.0.0.1, in the current runtime.
    pub async fn start() -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    pub async fn start_at(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new());
        tokio::spawn(run(listener, Arc::clone(&shared)));
        Ok(Self { addr, shared, thread: None })
    }

    /// In a thread and runtime of its own, for callers that have none.
    pub fn start_in_thread(addr: SocketAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(addr))?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new());
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("mock-upstream".to_owned())
            .spawn(move || runtime.block_on(run(listener, inner)))?;
        Ok(Self { addr, shared, thread: Some(thread) })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All calls so far, in order of arrival.
    pub fn calls(&self) -> Vec<Recorded> {
        self.shared.lock().record.calls.clone()
    }

    pub fn totals(&self) -> Totals {
        self.shared.lock().record.totals
    }

    /// Forgets the calls; the numbering goes on.
    pub fn clear(&self) {
        self.shared.lock().record.clear();
    }

    /// The next call that brings no script of its own, and whose model has none, is answered like this.
    pub fn script(&self, script: Script) {
        let mut state = self.shared.lock();
        if state.queue.len() < QUEUE_MAX {
            state.queue.push_back(script);
        }
    }

    /// How calls are answered for which nothing else is said.
    pub fn set_default(&self, script: Script) {
        self.shared.lock().default = script;
    }

    pub fn set_for_model(&self, model: &str, script: Script) {
        self.shared.lock().by_model.insert(model.to_owned(), script);
    }

    pub fn set_models(&self, models: Vec<String>) {
        self.shared.lock().models = models;
    }

    /// From now on no answer begins.
    pub fn hold_until_released(&self) {
        self.shared.hold.send_replace(true);
    }

    /// Lets every held answer begin, at once.
    pub fn release(&self) {
        self.shared.hold.send_replace(false);
    }

    /// Closes the connections that carry no call at this moment.
    pub fn close_idle(&self) {
        self.shared.close_idle();
    }

    /// Waits until `reached` holds; false if it does not within `limit`.
    pub async fn wait_until(&self, limit: Duration, reached: impl Fn(&[Recorded], &Totals) -> bool) -> bool {
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.mark_unchanged();
            {
                let state = self.shared.lock();
                if reached(&state.record.calls, &state.record.totals) {
                    return true;
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return false },
                () = &mut deadline => return false,
            }
        }
    }

    /// The same for callers without a runtime.
    pub fn wait_until_blocking(
        &self,
        limit: Duration,
        reached: impl Fn(&[Recorded], &Totals) -> bool,
    ) -> bool {
        let started = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if reached(&state.record.calls, &state.record.totals) {
                return true;
            }
            let Some(left) = limit.checked_sub(started.elapsed()) else { return false };
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The record once no call is in flight any more, or after five seconds as it is then. What a client has read may not
    /// be recorded yet: a count moves only after the bytes it speaks of have left.
    pub fn calls_at_rest(&self) -> Vec<Recorded> {
        let _: bool = self.wait_until_blocking(Duration::from_secs(5), |_, totals| totals.in_flight == 0);
        self.calls()
    }

    /// Stops and waits until the port is closed.
    pub async fn stop(mut self) {
        self.shared.stop.send_replace(true);
        let mut done = self.shared.done.subscribe();
        // The sender lives in `shared`, so this ends only by the value.
        let _ = done.wait_for(|done| *done).await;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// The same for a mock that runs in its own thread.
    pub fn stop_blocking(mut self) {
        self.shared.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for MockUpstream {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

async fn run(listener: TcpListener, shared: Arc<Shared>) {
    let mut stop = shared.stop.subscribe();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let _ = stream.set_nodelay(true);
                connections.spawn(serve::connection(stream, Arc::clone(&shared)));
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
    shared.end_all();
    shared.done.send_replace(true);
}

#[derive(Debug)]
pub(crate) struct Shared {
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
    changes: watch::Sender<()>,
    hold: watch::Sender<bool>,
    close_idle: watch::Sender<u64>,
    stop: watch::Sender<bool>,
    done: watch::Sender<bool>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) record: Record,
    pub(crate) default: Script,
    pub(crate) queue: VecDeque<Script>,
    pub(crate) by_model: BTreeMap<String, Script>,
    pub(crate) models: Vec<String>,
}

impl Shared {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            state: Mutex::new(State {
                record: Record::default(),
                default: Script::default(),
                queue: VecDeque::new(),
                by_model: BTreeMap::new(),
                models: vec!["mock-small".to_owned(), "mock-large".to_owned()],
            }),
            changed: Condvar::new(),
            changes: watch::Sender::new(()),
            hold: watch::Sender::new(false),
            close_idle: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            done: watch::Sender::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wake(&self) {
        self.changed.notify_all();
        self.changes.send_replace(());
    }

    pub(crate) fn open(&self, call: Recorded) -> u64 {
        let order = self.lock().record.open(call);
        self.wake();
        order
    }

    pub(crate) fn update(&self, order: u64, change: impl FnOnce(&mut Recorded)) {
        if let Some(call) = self.lock().record.call_mut(order) {
            change(call);
        }
        self.wake();
    }

    pub(crate) fn end(&self, order: u64, ending: Ending) {
        let now = self.now_ms();
        self.lock().record.end(order, ending, now);
        self.wake();
    }

    fn end_all(&self) {
        let now = self.now_ms();
        let mut state = self.lock();
        for call in &mut state.record.calls {
            if call.ending == Ending::Open {
                call.ending = Ending::Stopped;
                call.ended_ms = Some(now);
            }
        }
        state.record.totals.in_flight = 0;
        state.record.totals.waiting = 0;
        drop(state);
        self.wake();
    }

    pub(crate) fn connected(&self) -> u64 {
        let mut state = self.lock();
        let totals = &mut state.record.totals;
        totals.connections = totals.connections.saturating_add(1);
        totals.connections
    }

    /// Own script, that of the model, the next of the queue, the default; in this order.
    pub(crate) fn choose(&self, ask: &Ask) -> Result<Script, String> {
        if let Some(own) = &ask.own_script {
            return own.clone();
        }
        let mut state = self.lock();
        let of_model = ask.model.as_ref().and_then(|model| state.by_model.get(model).cloned());
        Ok(of_model.or_else(|| state.queue.pop_front()).unwrap_or_else(|| state.default.clone()))
    }

    pub(crate) fn held(&self) -> watch::Receiver<bool> {
        self.hold.subscribe()
    }

    pub(crate) fn set_held(&self, held: bool) {
        self.hold.send_replace(held);
    }

    pub(crate) fn close_idle(&self) {
        self.close_idle.send_modify(|generation| *generation = generation.wrapping_add(1));
    }

    pub(crate) fn idle_closer(&self) -> watch::Receiver<u64> {
        self.close_idle.subscribe()
    }

    /// Counts a call at the barrier for as long as the guard lives.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        self.count_waiting(1);
        Waiting(self)
    }

    fn count_waiting(&self, change: i64) {
        let mut state = self.lock();
        let totals = &mut state.record.totals;
        totals.waiting = totals.waiting.saturating_add_signed(change);
        drop(state);
        self.wake();
    }
}

#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Shared);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count_waiting(-1);
    }
}
