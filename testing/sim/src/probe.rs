//! Tries hints out: denied until the promised instant, admitted then, with nobody else asking (L14).
//!
//! Engine time jumps while everybody else stands still, so nothing else happens in between. What lies in the way beside
//! live holds is filled up first: calls are admitted and settled at once until one is denied.

use tollbook_engine::ledger::{Denial, DenyKind, Leg, Micros, ReleaseWhy, ReservationId, Wait};
use tollbook_engine::{Claim, Receipt, ReleaseCall, SettleCall, Shard, Verdict};
use tollbook_engine_memory::Clock;
use tollbook_engine_suite::random::Random;

use crate::bank::Bank;
use crate::config::{Account, Config, Demand, S};
use crate::gateway::{PROFILES, reserve_call};
use crate::world::World;

/// Calls that are let through before a denial is given up on.
const FILL_MAX: usize = 16;

/// One key's limits under the eye of somebody who asks for the same again and again.
struct Probe<'a> {
    bank: &'a Bank,
    config: &'a Config,
    shard: Shard,
    accounts: Vec<usize>,
    demand: Demand,
    id: u128,
}

pub(crate) fn once(world: &World, random: &mut Random) {
    let config = world.config();
    let tenant = random.of(&config.tenants);
    let key = random.of(&tenant.keys);
    let accounts: Vec<usize> = tenant.accounts.iter().chain(&key.accounts).copied().collect();
    if accounts.is_empty() {
        return;
    }
    let (input, cap) = (1 + random.below(100), 1 + random.below(100));
    let demand = Demand { input, cap, expected: None, estimator: key.estimator };
    let id = u128::from(random.draw()) | 1 << 101;
    let mut probe = Probe { bank: &world.bank, config: &config, shard: tenant.shard, accounts, demand, id };
    let Some(denial) = probe.fill() else { return };
    let (DenyKind::Busy(wait) | DenyKind::Spent(wait)) = denial.binding.kind else { return };
    let is_tried = denial.firm && (1..=world.plan.jump_max()).contains(&wait.after);
    if is_tried && let Err(finding) = probe.wait(wait, &denial) {
        world.bank.fail(finding);
    }
}

impl Probe<'_> {
    /// Lets calls through until one is denied.
    fn fill(&mut self) -> Option<Denial> {
        for _ in 0..FILL_MAX {
            match self.ask()? {
                Verdict::Admit(receipt) => self.settle(&receipt),
                Verdict::Deny { denial, .. } => return Some(denial),
                Verdict::Ended(_) | Verdict::Conflict(_) | Verdict::Recalendar => return None,
            }
        }
        None
    }

    /// Asks more than a bucket before the promised instant, and at it. A forecast account looks at whole seconds from now:
    /// there it is asked at the one before.
    fn wait(&mut self, wait: Wait, denial: &Denial) -> Result<(), String> {
        let binding = self.accounts.get(denial.binding.leg).map(|at| &self.config.accounts[*at]);
        let margin = if binding.is_some_and(Account::is_planned) { S } else { self.bucket() + 1 };
        let early = wait.after.saturating_sub(margin);
        if early > 0 {
            self.bank.clock.step_forward(early);
            if let Some(Verdict::Admit(receipt)) = self.ask() {
                self.release(receipt.claim());
                return Err(format!("admitted {} us early: {denial:?}", wait.after - early));
            }
        }
        self.bank.clock.step_forward(wait.after - early);
        match self.ask() {
            Some(Verdict::Admit(receipt)) => {
                self.release(receipt.claim());
                self.bank.stats(|stats| stats.hints_probed += 1);
                Ok(())
            }
            Some(verdict) => Err(format!("not admitted when promised by {denial:?}: {verdict:?}")),
            // An engine that is away has kept no promise and broken none.
            None => Ok(()),
        }
    }

    /// The widest bucket in the way.
    fn bucket(&self) -> Micros {
        self.accounts.iter().map(|at| self.config.accounts[*at].bucket()).max().unwrap_or(0)
    }

    fn ask(&mut self) -> Option<Verdict> {
        // Calls of the same profile, which their ids choose.
        self.id += PROFILES;
        let now = self.bank.clock.now();
        let legs: Vec<Leg> =
            self.accounts.iter().map(|at| self.config.accounts[*at].leg(&self.demand, now)).collect();
        let call = reserve_call(self.shard, (ReservationId(self.id), 0), legs);
        self.bank.reserve(&call).ok().map(|reply| reply.value)
    }

    fn settle(&self, receipt: &Receipt) {
        // A journal that is full leaves the hold to its expiry.
        let legs = || receipt.receipt.legs.iter();
        drop(self.bank.settle(&SettleCall {
            claim: receipt.claim(),
            accounts: legs().map(|leg| leg.account).collect(),
            actual: legs().map(|leg| if leg.held > 0 { leg.held } else { leg.expected.max(1) }).collect(),
            landed: legs().map(|leg| leg.output).max().unwrap_or(0),
            learn: None,
            entry: b"probe".to_vec(),
            age: 0,
        }));
    }

    fn release(&self, claim: Claim) {
        let (accounts, why) = (Vec::new(), ReleaseWhy::NeverSent);
        drop(self.bank.release(&ReleaseCall { claim, accounts, why, entry: None }));
    }
}
