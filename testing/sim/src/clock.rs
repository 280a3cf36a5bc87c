//! Engine time: virtual time, and every step that was made on top of it.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;
use tollbook_engine::ledger::Micros;
use tollbook_engine_memory::Clock;

/// Follows the paused clock of the runtime; steps when told to.
#[derive(Debug)]
pub(crate) struct SimClock {
    start: Instant,
    moves: Mutex<Moves>,
}

#[derive(Debug)]
struct Moves {
    now: Micros,
    /// Virtual time at `now`.
    elapsed: Micros,
    so_far: Moment,
}

/// How far engine time has gone, each way, since the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moment {
    forward: Micros,
    back: Micros,
}

/// How old something is on any clock that an engine may measure lives by: a step back stands still on the best of them,
/// and costs its whole length on the worst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Age {
    pub(crate) least: Micros,
    pub(crate) most: Micros,
}

impl SimClock {
    pub(crate) fn at(now: Micros) -> Self {
        let moves = Moves { now, elapsed: 0, so_far: Moment::default() };
        Self { start: Instant::now(), moves: Mutex::new(moves) }
    }

    pub(crate) fn moment(&self) -> Moment {
        self.with(|moves| moves.so_far)
    }

    pub(crate) fn step_forward(&self, by: Micros) {
        self.with(|moves| moves.forward(by));
    }

    pub(crate) fn step_back(&self, by: Micros) {
        self.with(|moves| {
            moves.now = moves.now.saturating_sub(by);
            moves.so_far.back += by;
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Moves) -> T) -> T {
        let elapsed = Micros::try_from(self.start.elapsed().as_micros()).unwrap_or(Micros::MAX);
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = elapsed.saturating_sub(moves.elapsed);
        moves.elapsed = elapsed;
        moves.forward(passed);
        act(&mut moves)
    }
}

impl Moves {
    fn forward(&mut self, by: Micros) {
        self.now += by;
        self.so_far.forward += by;
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        self.with(|moves| moves.now)
    }
}

impl Moment {
    /// Engine time has stepped back at least once.
    pub(crate) fn is_behind(self) -> bool {
        self.back > 0
    }

    pub(crate) fn age(self, now: Self) -> Age {
        let most = now.forward - self.forward;
        Age { least: most.saturating_sub(now.back - self.back), most }
    }
}
