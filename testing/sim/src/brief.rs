//! Verbs in few words, for the trace of a failure.

use tollbook_engine::ledger::{AccountId, Leg, Limit, Progress, ReservationId};
use tollbook_engine::{
    AdjustCall, Claim, ExpireCall, ProgressCall, RebookCall, ReleaseCall, RenewCall, ReserveCall, SettleCall,
};

/// What a line of the trace says of a call.
pub(crate) trait Brief {
    fn brief(&self) -> String;
}

impl Brief for &str {
    fn brief(&self) -> String {
        (*self).to_owned()
    }
}

impl Brief for ReserveCall {
    fn brief(&self) -> String {
        let claim = Claim { shard: self.shard, id: self.reserve.id, attempt: self.reserve.attempt };
        let legs: Vec<String> = self.reserve.legs.iter().map(leg).collect();
        format!("reserve {}: {}", name(claim), legs.join("; "))
    }
}

impl Brief for RebookCall {
    fn brief(&self) -> String {
        format!("rebook {} used {:?} to {}", name(self.receipt.claim()), self.actual, self.next.brief())
    }
}

impl Brief for RenewCall {
    fn brief(&self) -> String {
        format!("renew {} sent {} output {:?}", name(self.claim), self.sent, self.output_expected)
    }
}

impl Brief for ProgressCall {
    fn brief(&self) -> String {
        let batch = |batch: &Progress| {
            let deltas = batch.deltas.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
            format!(
                "{} of {:04x} from {}: {deltas}",
                account(batch.account),
                batch.gateway & 0xffff,
                batch.base_second
            )
        };
        format!("progress {}", self.batches.iter().map(batch).collect::<Vec<_>>().join("; "))
    }
}

impl Brief for SettleCall {
    fn brief(&self) -> String {
        format!(
            "settle {} with {:?}, learn {:?}, age {}",
            name(self.claim),
            self.actual,
            self.learn,
            self.age
        )
    }
}

impl Brief for ReleaseCall {
    fn brief(&self) -> String {
        format!("release {} as {:?}", name(self.claim), self.why)
    }
}

impl Brief for ExpireCall {
    fn brief(&self) -> String {
        format!("expire {}", name(self.claim))
    }
}

impl Brief for AdjustCall {
    fn brief(&self) -> String {
        let adjust = &self.adjust;
        format!("adjust {} of {} by {}", account(adjust.account), adjust.period, adjust.delta)
    }
}

/// The gateway's last four digits, the call's number, and p for a pool's.
fn name(claim: Claim) -> String {
    let ReservationId(id) = claim.id;
    let (gateway, number) = (id >> 64 & 0xffff, id & 0xffff);
    let pool = if id >> 63 & 1 == 1 { "p" } else { "" };
    format!("{gateway:04x}:{number}{pool}.{} in shard {}", claim.attempt, claim.shard.0)
}

fn account(account: AccountId) -> String {
    format!("a{}", account.name)
}

fn leg(leg: &Leg) -> String {
    let limits: Vec<String> = leg.limits.iter().map(limit).collect();
    format!(
        "{} {:?} {} + {} per output, cap {}, worst {}, {:?}, {}",
        account(leg.account),
        leg.measure,
        leg.base,
        leg.per_output,
        leg.cap,
        leg.worst,
        leg.estimator,
        limits.join(" ")
    )
}

fn limit(limit: &Limit) -> String {
    let mark = |is: bool, mark: &'static str| if is { mark } else { "" };
    format!(
        "≤{}{}{}{}/{:?}/{:?}",
        limit.ceiling,
        mark(limit.hard, " hard"),
        mark(limit.shadow, " shadow"),
        mark(limit.count_denied, " counts"),
        limit.hold,
        limit.on_expiry
    )
}
