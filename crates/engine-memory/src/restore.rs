//! `restore` of a call that has ended: its truth, posted as if it had been reserved and settled just now.
//!
//! Nothing is ever lost here, so the only reservations to restore are those that a gateway admitted while the log could not
//! be written. Each leg asks for exactly what was posted, under limits that only look on: nothing is decided. The entry
//! tells the time of the posting as that of the admission.
//! Done twice it changes nothing: the second time meets the end of the first. What a quota was charged in a period that is
//! over by now is not supported, and left to the caller to journal apart.

use tollbook_engine::{
    Claim, EngineError, ErrorKind, ReleaseCall, RestoreCall, RestoredState, SettleCall, Verdict,
};
use tollbook_ledger::{End, Estimator, Leg, Micros, Periods, ReleaseWhy, SECOND};

use crate::shard::ShardState;

fn unsupported() -> EngineError {
    EngineError::not_applied(ErrorKind::Unsupported)
}

impl ShardState {
    pub(crate) fn restore(&mut self, now: Micros, call: &RestoreCall) -> Result<(), EngineError> {
        let RestoredState::Ended { how, posted: Some(posted), entry, .. } = &call.state else {
            return Err(unsupported());
        };
        let legs = &call.asked.reserve.legs;
        let told = &call.receipt.receipt.legs;
        if legs.len() != posted.len()
            || !legs.iter().zip(told).all(|(leg, told)| is_current(leg, told.place, now))
        {
            return Err(unsupported());
        }
        let mut asked = call.asked.clone();
        asked.reserve.legs = legs.iter().zip(posted).map(|(leg, amount)| exactly(leg, *amount)).collect();
        let claim = match self.reserve(now, &asked)? {
            Verdict::Admit(receipt) => receipt.claim(),
            // The log took the hold and not its end, which came again when the hold was over: the truth is still missing.
            Verdict::Ended(End::Expired) => {
                Claim { shard: asked.shard, id: asked.reserve.id, attempt: asked.reserve.attempt }
            }
            Verdict::Ended(_) => return Ok(()),
            Verdict::Recalendar | Verdict::Conflict(_) | Verdict::Deny { .. } => return Err(unsupported()),
        };
        let (accounts, entry) = (legs.iter().map(|leg| leg.account).collect(), entry.clone());
        if *how == End::Settled {
            let (actual, entry) = (posted.clone(), entry.unwrap_or_default());
            let settle = SettleCall { claim, accounts, actual, landed: 0, learn: None, entry, age: 0 };
            self.settle(now, &settle).map(drop)
        } else {
            self.release(now, &ReleaseCall { claim, accounts, why: ReleaseWhy::Failed, entry }).map(drop)
        }
    }
}

/// Whether the period that a quota's leg was held in goes on.
fn is_current(leg: &Leg, place: u64, now: Micros) -> bool {
    let Periods::Calendar(starts) = leg.periods else { return true };
    let next = starts.iter().position(|start| *start == place).and_then(|at| starts.get(at.checked_add(1)?));
    next.is_some_and(|next| now / SECOND < *next)
}

/// A leg that takes so much, whatever its ceilings.
fn exactly(leg: &Leg, amount: u64) -> Leg {
    let mut leg = leg.clone();
    // What does not fit is refused by the book.
    leg.base = amount.saturating_mul(1_000);
    (leg.per_output, leg.cap, leg.worst) = (0, 0, amount);
    leg.estimator = Estimator::Capped;
    leg.refund_failed = false;
    for limit in &mut leg.limits {
        limit.shadow = true;
        limit.count_denied = false;
    }
    leg
}
