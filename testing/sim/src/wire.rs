//! The way between a gateway and the engine: where requests and replies are lost, late, or delivered twice.
//!
//! A request that was sent arrives whatever becomes of its sender. Once the run is healed everything arrives at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tollbook_engine::ledger::{Expired, Renewed, Settled};
use tollbook_engine::{
    AdjustCall, EngineError, ErrorKind, ExpireCall, ProgressCall, RebookCall, ReleaseCall, RenewCall,
    ReserveCall, SettleCall, Verdict,
};
use tollbook_engine_suite::random::Random;

use crate::bank::{Bank, Outcome};
use crate::knobs::{Plan, Trouble};

#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) bank: Arc<Bank>,
    lost: bool,
    slow: bool,
    twice: bool,
    is_healed: AtomicBool,
    is_cut: AtomicBool,
    random: Mutex<Random>,
}

/// What becomes of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Straight,
    RequestLost,
    ReplyLost,
    Slow { there: Duration, back: Duration },
    Twice { again: Duration },
}

impl Wire {
    pub(crate) fn new(bank: Arc<Bank>, plan: &Plan, random: Random) -> Self {
        Self {
            bank,
            lost: plan.has(Trouble::Lost),
            slow: plan.has(Trouble::Slow),
            twice: plan.has(Trouble::Twice),
            is_healed: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            random: Mutex::new(random),
        }
    }

    pub(crate) fn heal(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
    }

    /// Its sender is dead: nothing more gets through, but what is on its way arrives.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub(crate) async fn reserve(&self, deadline: Duration, call: &ReserveCall) -> Outcome<Verdict> {
        let call = call.clone();
        self.carry(deadline, move |bank| bank.reserve(&call)).await
    }

    pub(crate) async fn rebook(&self, deadline: Duration, call: &RebookCall) -> Outcome<Verdict> {
        let call = call.clone();
        self.carry(deadline, move |bank| bank.rebook(&call)).await
    }

    pub(crate) async fn renew(&self, deadline: Duration, calls: Vec<RenewCall>) -> Outcome<Vec<Renewed>> {
        self.carry(deadline, move |bank| bank.renew(&calls)).await
    }

    pub(crate) async fn expire(&self, deadline: Duration, calls: Vec<ExpireCall>) -> Outcome<Vec<Expired>> {
        self.carry(deadline, move |bank| bank.expire(&calls)).await
    }

    pub(crate) async fn progress(&self, deadline: Duration, call: ProgressCall) -> Outcome<()> {
        self.carry(deadline, move |bank| bank.progress(&call)).await
    }

    pub(crate) async fn settle(&self, deadline: Duration, call: SettleCall) -> Outcome<Settled> {
        self.carry(deadline, move |bank| bank.settle(&call)).await
    }

    pub(crate) async fn release(&self, deadline: Duration, call: ReleaseCall) -> Outcome<Settled> {
        self.carry(deadline, move |bank| bank.release(&call)).await
    }

    pub(crate) async fn adjust(&self, deadline: Duration, call: AdjustCall) -> Outcome<bool> {
        self.carry(deadline, move |bank| bank.adjust(&call)).await
    }

    /// Brings a request there and its reply back. After the deadline nobody can say whether it was applied.
    async fn carry<T: Send + 'static>(
        &self,
        deadline: Duration,
        run: impl Fn(&Bank) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let unknown = || EngineError::unknown(ErrorKind::Deadline);
        if self.is_cut.load(Ordering::Relaxed) {
            return Err(EngineError::not_applied(ErrorKind::Away("the sender is dead".to_owned())));
        }
        match self.fate() {
            Fate::Straight => run(&self.bank),
            Fate::RequestLost => {
                self.bank.stats(|stats| stats.requests_lost += 1);
                tokio::time::sleep(deadline).await;
                Err(unknown())
            }
            Fate::ReplyLost => {
                drop(run(&self.bank));
                self.bank.stats(|stats| stats.replies_lost += 1);
                tokio::time::sleep(deadline).await;
                Err(unknown())
            }
            Fate::Slow { there, back } => {
                self.bank.stats(|stats| stats.delivered_slowly += 1);
                let (tell, told) = oneshot::channel();
                let bank = Arc::clone(&self.bank);
                tokio::spawn(async move {
                    tokio::time::sleep(there).await;
                    let reply = run(&bank);
                    tokio::time::sleep(back).await;
                    // Nobody may be waiting any more.
                    drop(tell.send(reply));
                });
                match tokio::time::timeout(deadline, told).await {
                    Ok(Ok(reply)) => reply,
                    Ok(Err(_)) | Err(_) => Err(unknown()),
                }
            }
            Fate::Twice { again } => {
                self.bank.stats(|stats| stats.delivered_twice += 1);
                let reply = run(&self.bank);
                let bank = Arc::clone(&self.bank);
                tokio::spawn(async move {
                    tokio::time::sleep(again).await;
                    drop(run(&bank));
                });
                reply
            }
        }
    }

    fn fate(&self) -> Fate {
        if self.is_healed.load(Ordering::Relaxed) {
            return Fate::Straight;
        }
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let mut millis = |most: u64| Duration::from_millis(random.below(most));
        let (short, long, again) = (millis(900), millis(5000), millis(90_000));
        match random.below(24) {
            0 if self.lost => Fate::RequestLost,
            1 if self.lost => Fate::ReplyLost,
            2 | 3 if self.slow => Fate::Slow { there: short, back: short / 2 },
            4 if self.slow => Fate::Slow { there: long, back: short },
            5 | 6 if self.twice => Fate::Twice { again: if random.one_in(2) { again } else { short } },
            _ => Fate::Straight,
        }
    }
}
