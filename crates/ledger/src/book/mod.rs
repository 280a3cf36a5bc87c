//! One shard's accounts and reservations, and the verbs over them.
//!
//! Signatures first, so that other rooms can build against them; the verbs refuse until they are written.

use crate::account::AccountId;
use crate::command::{Adjust, ExpireOne, Rebook, Release, Renew, Reserve, Settle};
use crate::event::{Event, Log};
use crate::reply::{Alarms, Balance, Drift, Due, Expired, PruneCount, Refusal, Renewed, Settled, Verdict};
use crate::units::Micros;

/// The state of one shard.
#[derive(Debug, Default)]
pub struct Book {
    alarms: Alarms,
}

#[allow(
    unused_variables,
    clippy::unused_self,
    clippy::needless_pass_by_ref_mut,
    reason = "verbs are written next"
)]
impl Book {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn reserve(&mut self, now: Micros, cmd: &Reserve, log: &mut impl Log) -> Result<Verdict, Refusal> {
        Err(Refusal::LogFull)
    }

    pub fn rebook(
        &mut self,
        now: Micros,
        cmd: &Rebook,
        log: &mut impl Log,
    ) -> Result<(Verdict, Option<Settled>), Refusal> {
        Err(Refusal::LogFull)
    }

    pub fn renew(&mut self, now: Micros, cmd: &Renew, log: &mut impl Log) -> Result<Renewed, Refusal> {
        Err(Refusal::LogFull)
    }

    pub fn settle(&mut self, now: Micros, cmd: &Settle, log: &mut impl Log) -> Result<Settled, Refusal> {
        Err(Refusal::LogFull)
    }

    pub fn release(&mut self, now: Micros, cmd: &Release, log: &mut impl Log) -> Result<Settled, Refusal> {
        Err(Refusal::LogFull)
    }

    pub fn expire(&mut self, now: Micros, cmd: &ExpireOne, log: &mut impl Log) -> Result<Expired, Refusal> {
        Err(Refusal::LogFull)
    }

    /// True if it was applied now, false if this id had been applied before.
    pub fn adjust(&mut self, now: Micros, cmd: &Adjust, log: &mut impl Log) -> Result<bool, Refusal> {
        Err(Refusal::LogFull)
    }

    /// Forget what no rule needs any more, at most `max` things.
    pub fn prune(&mut self, now: Micros, max: usize, log: &mut impl Log) -> Result<PruneCount, Refusal> {
        Err(Refusal::LogFull)
    }

    /// Set `held` of a drifted account to the sum of its live holds; false if it has changed since `seen`.
    pub fn repair(&mut self, now: Micros, seen: &Drift, log: &mut impl Log) -> Result<bool, Refusal> {
        Err(Refusal::LogFull)
    }

    /// Reservations that are due, oldest second first.
    pub fn due(&self, now: Micros, max: usize) -> Vec<Due> {
        Vec::new()
    }

    /// Accounts among the `max` slots from `cursor` whose held is not the sum of their live holds; where to go on.
    pub fn drift(&self, cursor: u32, max: u32) -> (Vec<Drift>, Option<u32>) {
        (Vec::new(), None)
    }

    pub fn balance(&self, now: Micros, account: AccountId) -> Option<Balance> {
        None
    }

    pub fn balances(&self, now: Micros) -> impl Iterator<Item = Balance> + '_ {
        core::iter::empty()
    }

    /// Apply one event or snapshot row. Never fails; what does not fit is counted and changes nothing.
    pub fn apply(&mut self, event: &Event<'_>) {}

    /// The whole state as events: folding them into a new book gives an equal one.
    pub fn dump(&self, row: &mut dyn FnMut(&Event<'_>)) {}

    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }
}
