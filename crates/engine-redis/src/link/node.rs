//! One node: a few connections that come back by themselves, shared by all calls to it.
//!
//! Invariants: a call is on at most one connection at a time; a connection carries at most `IN_FLIGHT_MAX` calls; a try
//! to connect is at least `PAUSE_MIN` after a failed one. A call that gets no answer by its deadline, on a connection
//! that brought no other answer since, ends that connection: it may be a hole.
//! Behind sentinels the node is the primary: who is named and says it is one. Where another is named later, the connections
//! to the old one are given up, even if it still answers.
//! When the node is away: a call waits only where a connection is being opened for the first time or was just lost, else
//! it fails at once with what the last try said.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::connect::{Connector, Opened};
use super::error::{Kind, LinkError};
use super::options::Address;
use super::script::Script;
use super::sentinel::Sentinels;

/// Most calls on one connection; more wait for their turn.
pub(super) const IN_FLIGHT_MAX: usize = 1024;
/// First and longest pause between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A connection that lived so long is opened anew at once.
const STEADY: Duration = Duration::from_secs(1);
/// Sentinels are asked again, though all is well, in case they see what a connection does not.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where a node is.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Fixed(Address),
    Sentinels(Arc<Sentinels>),
}

/// Connections to one server.
#[derive(Debug)]
pub(super) struct Node {
    source: Source,
    lines: Box<[Line]>,
    next: AtomicUsize,
    /// Held while a script is brought to the server.
    loading: Mutex<()>,
    /// How many scripts were brought.
    loaded: AtomicU64,
}

/// One connection and the task that keeps it.
#[derive(Debug)]
struct Line {
    state: watch::Receiver<State>,
    keeper: AbortHandle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

#[derive(Debug, Clone)]
enum State {
    Opening,
    Up(Arc<Wire>),
    /// Until the next try; with what the last one said.
    Down(LinkError),
}

/// An open connection.
struct Wire {
    connection: MultiplexedConnection,
    /// The server's `run_id`.
    run: Vec<u8>,
    turns: Semaphore,
    /// How many answers it has brought.
    answers: AtomicU64,
    /// Why it is given up, once it is.
    end: OnceLock<LinkError>,
    ended: Notify,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("end", &self.end).finish_non_exhaustive()
    }
}

impl State {
    /// The wire, unless it was given up and its keeper has not seen it yet.
    fn wire(&self) -> Option<&Arc<Wire>> {
        match self {
            Self::Up(wire) if wire.end.get().is_none() => Some(wire),
            _ => None,
        }
    }

    /// What a call that finds no wire is told; nothing while it may wait for one.
    fn trouble(&self) -> Option<&LinkError> {
        match self {
            Self::Down(error) => Some(error),
            _ => None,
        }
    }
}

impl Wire {
    fn give_up(&self, why: &LinkError) {
        // The first reason is kept.
        let _ = self.end.set(LinkError::no(why.kind, why.message.clone()));
        self.ended.notify_one();
    }
}

impl Node {
    pub(super) fn new(source: Source, connector: &Arc<Connector>, connections: usize) -> Self {
        let line = |_| {
            let (sender, state) = watch::channel(State::Opening);
            let keeper = tokio::spawn(keep(source.clone(), Arc::clone(connector), sender)).abort_handle();
            Line { state, keeper }
        };
        let lines = (0..connections).map(line).collect();
        let (next, loaded) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { source, lines, next, loading: Mutex::new(()), loaded }
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        match &self.source {
            Source::Fixed(address) => address.to_string(),
            Source::Sentinels(sentinels) => sentinels.service().to_owned(),
        }
    }

    pub(super) fn is_named_by_sentinels(&self) -> bool {
        matches!(self.source, Source::Sentinels(_))
    }

    /// An address that the node told; without a host it is the node's own.
    pub(super) fn near(&self, host: String, port: u16) -> Address {
        match &self.source {
            Source::Fixed(own) if host.is_empty() => Address { host: own.host.clone(), port },
            _ => Address { host, port },
        }
    }

    /// One command, answered or failed by `until`. `is_asking`: for a slot that is on its way to this node.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        is_asking: bool,
        until: Instant,
    ) -> Result<Value, LinkError> {
        let wire = self.wire(until).await?;
        self.send_on(&wire, command, is_asking, until).await
    }

    async fn send_on(
        &self,
        wire: &Wire,
        command: &Cmd,
        is_asking: bool,
        until: Instant,
    ) -> Result<Value, LinkError> {
        let mut connection = wire.connection.clone();
        if !is_asking {
            return over(wire, until, connection.send_packed_command(command)).await;
        }
        let mut both = redis::Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        let answer = async {
            let answers = connection.send_packed_commands(&both, 0, 2).await?;
            Ok(answers.into_iter().nth(1).unwrap_or(Value::Nil))
        };
        over(wire, until, answer).await
    }

    /// The call of a script, which is brought to the server where it does not know it. The server's `run_id` is added to its
    /// arguments.
    pub(super) async fn run(
        &self,
        script: &Script,
        call: &Cmd,
        is_asking: bool,
        until: Instant,
    ) -> Result<Value, LinkError> {
        let mut has_loaded = false;
        loop {
            let seen = self.loaded.load(Ordering::Acquire);
            let wire = self.wire(until).await?;
            let mut told = call.clone();
            told.arg(&wire.run);
            let error = match self.send_on(&wire, &told, is_asking, until).await {
                Err(error) if error.kind == Kind::NoScript => error,
                answer => return answer,
            };
            if has_loaded {
                return Err(error);
            }
            let late =
                |_| LinkError::no(Kind::Deadline, "the script could not be brought to the server in time");
            let turn = timeout_at(until, self.loading.lock()).await.map_err(late)?;
            // Somebody may have brought it while this call waited; if that was another script, the next round tells.
            if self.loaded.load(Ordering::Acquire) == seen {
                let loaded = self.send(&script.load(), false, until).await;
                // Nothing is applied by bringing a script.
                loaded.map_err(|error| LinkError::no(error.kind, error.message))?;
                self.loaded.fetch_add(1, Ordering::Release);
                has_loaded = true;
            }
            drop(turn);
        }
    }

    /// An open connection, or why there is none.
    async fn wire(&self, until: Instant) -> Result<Arc<Wire>, LinkError> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.lines.len().max(1);
        let in_turn = || self.lines.iter().cycle().skip(first % count).take(count);
        let mut why = LinkError::no(Kind::Refused, "no connection");
        let mut opening = None;
        for line in in_turn() {
            let state = line.state.borrow();
            match (state.wire(), state.trouble()) {
                (Some(wire), _) => return Ok(Arc::clone(wire)),
                (None, Some(trouble)) => why = trouble.clone(),
                (None, None) => opening = Some(line),
            }
        }
        let Some(line) = opening else { return Err(why) };
        let mut state = line.state.clone();
        let settled = |state: &State| state.wire().is_some() || state.trouble().is_some();
        match timeout_at(until, state.wait_for(settled)).await {
            Ok(Ok(state)) => state.wire().cloned().ok_or_else(|| state.trouble().cloned().unwrap_or(why)),
            Ok(Err(_)) => Err(why),
            Err(_) => Err(LinkError::no(Kind::Deadline, "no connection in time")),
        }
    }
}

/// Waits for a turn on the wire and for the answer.
async fn over(
    wire: &Wire,
    until: Instant,
    answer: impl Future<Output = RedisResult<Value>>,
) -> Result<Value, LinkError> {
    let busy = |_| LinkError::no(Kind::Deadline, "too many calls wait for an answer");
    let turn = timeout_at(until, wire.turns.acquire()).await.map_err(busy)?;
    let seen = wire.answers.load(Ordering::Relaxed);
    let answered = timeout_at(until, answer).await;
    drop(turn);
    match answered {
        Ok(Ok(answer)) => {
            wire.answers.fetch_add(1, Ordering::Relaxed);
            let Value::ServerError(error) = answer else { return Ok(answer) };
            let error = LinkError::told(&error);
            if error.kind == Kind::ReadOnly {
                // Another may be the primary by now.
                wire.give_up(&error);
            }
            Err(error)
        }
        Ok(Err(error)) => {
            let error = LinkError::under_way(&error);
            wire.give_up(&error);
            Err(error)
        }
        Err(_) => {
            let error = LinkError::unknown(Kind::Deadline, "no answer in time");
            if wire.answers.load(Ordering::Relaxed) == seen {
                wire.give_up(&error);
            }
            Err(error)
        }
    }
}

/// Keeps one connection open for as long as somebody looks at its state.
async fn keep(source: Source, connector: Arc<Connector>, state: watch::Sender<State>) {
    let mut pause = PAUSE_MIN;
    loop {
        let error = match source.open(&connector).await {
            Ok((address, made)) => {
                let opened = Instant::now();
                let end = tokio::select! {
                    end = hold(made, &state) => end,
                    new = source.leaves(&address) => LinkError::no(Kind::ReadOnly, format!("the primary is {new}")),
                };
                if opened.elapsed() >= STEADY {
                    pause = PAUSE_MIN;
                    state.send_replace(State::Opening);
                    continue;
                }
                end
            }
            Err(error) => error,
        };
        state.send_replace(State::Down(error));
        sleep(spread(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

impl Source {
    async fn open(&self, connector: &Connector) -> Result<(Address, Opened), LinkError> {
        match self {
            Self::Fixed(address) => Ok((address.clone(), connector.open(address).await?)),
            Self::Sentinels(sentinels) => {
                let address = sentinels.primary().await?;
                let mut made = connector.open(&address).await?;
                connector.is_primary(&made.connection, &mut made.driver).await?;
                Ok((address, made))
            }
        }
    }

    /// Waits until another address is named.
    async fn leaves(&self, address: &Address) -> Address {
        let Self::Sentinels(sentinels) = self else { return std::future::pending().await };
        loop {
            sleep(LOOK_EVERY).await;
            if let Ok(named) = sentinels.primary().await
                && named != *address
            {
                return named;
            }
        }
    }
}

/// From the opening of a connection to its end, and why it ended. Calls that are on it then fail.
async fn hold(made: Opened, state: &watch::Sender<State>) -> LinkError {
    let Opened { connection, driver, run } = made;
    let wire = Arc::new(Wire {
        connection,
        run,
        turns: Semaphore::new(IN_FLIGHT_MAX),
        answers: AtomicU64::new(0),
        end: OnceLock::new(),
        ended: Notify::new(),
    });
    state.send_replace(State::Up(Arc::clone(&wire)));
    tokio::select! {
        () = driver => {}
        () = wire.ended.notified() => {}
    }
    let lost = || LinkError::no(Kind::Lost, "the server closed the connection");
    wire.end.get().cloned().unwrap_or_else(lost)
}

/// Three quarters to all of it, so that those who lost the same server do not come back together.
fn spread(pause: Duration) -> Duration {
    let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    let chance = RandomState::new().hash_one(nanos);
    Duration::from_nanos(nanos - chance % (nanos / 4).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_within_bounds() {
        for _ in 0..1000 {
            let spread = spread(PAUSE_MAX);
            assert!(spread <= PAUSE_MAX && spread >= PAUSE_MAX * 3 / 4);
        }
    }
}
