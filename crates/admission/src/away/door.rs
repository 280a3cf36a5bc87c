//! The door while the book is away: what each limit of a call says, and what is kept of a call that passes.

use std::future::Future;
use std::sync::Arc;

use tollbook_engine::{
    Applied, Claim, EngineError, ErrorKind, Receipt, ReleaseCall, ReserveCall, RestoreCall, RestoredState,
};
use tollbook_ledger::{DenyKind, End, Leg, Measure, Micros, ReleaseWhy, Verdict};
use tollbook_policy::{Binding, Catalog, Key, PeriodTable, WhenAway};
use tollbook_store::{Hold, Side};
use tollbook_telemetry::labels;

use super::Degraded;
use super::local::{LocalEnd, local_id};
use crate::admit::{Admission, Asked};
use crate::bound::Bound;
use crate::outcome::Posting;
use crate::refused::Refused;
use crate::report;

/// Keys whose limits are looked at to find one that is let in while the book is away.
const KEYS_LOOKED_AT_MAX: usize = 1_024;

/// A reserve that got no verdict.
pub(crate) struct Unanswered {
    pub(crate) call: ReserveCall,
    /// `None`: its shard was not asked.
    pub(crate) error: Option<EngineError>,
    /// Some try of it may have been applied.
    pub(crate) unknown: bool,
}

/// A call that ended in a local book.
pub(crate) struct Ended<'a> {
    pub(crate) receipt: &'a Receipt,
    /// What was used, per leg, and learned; or why nothing was.
    pub(crate) end: LocalEnd<'a>,
    pub(crate) entry: Option<Vec<u8>>,
}

impl Admission {
    /// The engine gave no verdict: the limits say what is done.
    pub(crate) fn without_engine(
        &self,
        (bound, side): (&Arc<Bound>, Side),
        streams: bool,
        unanswered: Unanswered,
        legs: impl Fn(&PeriodTable) -> Result<Vec<Leg>, Refused>,
    ) -> Result<Asked, Refused> {
        let Unanswered { call, error, unknown } = unanswered;
        if let Some(error) = &error {
            report::failed(&self.metrics, labels::Verb::Reserve, error);
            if let ErrorKind::Refused(refusal) = &error.kind {
                tracing::error!(%refusal, "the engine refused a reserve");
                return Err(Refused::Internal);
            }
        }
        if unknown || error.as_ref().is_some_and(|error| error.applied == Applied::Unknown) {
            self.give_back(&call);
        }
        let binding = bound.side(side);
        let catalog = &bound.snapshot.catalog;
        let (instead, limit) = strictest(catalog, binding);
        let shard = call.shard;
        let asked = match instead {
            WhenAway::Closed => Err(Refused::Away { limit }),
            WhenAway::Local => self.locally((bound, side), streams, (call, Degraded::Local), legs),
            WhenAway::Open => self.locally((bound, side), streams, (call, Degraded::Open), legs),
        };
        let instead = if asked.is_ok() { instead } else { WhenAway::Closed };
        self.away.unanswered(shard, instead, error.as_ref());
        asked
    }

    /// The local book decides.
    fn locally(
        &self,
        (bound, side): (&Arc<Bound>, Side),
        streams: bool,
        (mut call, how): (ReserveCall, Degraded),
        legs: impl Fn(&PeriodTable) -> Result<Vec<Leg>, Refused>,
    ) -> Result<Asked, Refused> {
        let (binding, catalog) = (bound.side(side), &bound.snapshot.catalog);
        let now = self.now();
        call.reserve.id = local_id(call.reserve.id);
        // Its periods were looked up before the engine was waited for.
        call.reserve.legs = legs(&bound.periods(now / 1_000_000))?;
        let shares = shares(catalog, binding, &call.reserve.legs, self.away.gateways());
        let asked = call.clone();
        let verdict = self.away.local().reserve(now, asked, shares.clone()).map_err(|refusal| {
            tracing::error!(%refusal, "a local book refused a reserve");
            Refused::Internal
        })?;
        match verdict {
            Verdict::Admit(receipt) => {
                call.reserve.legs = shares;
                let plan = self.local_plans.admitted(call.shard, &call.reserve, &receipt, streams);
                // No book of the engine's epochs has it.
                let receipt = Receipt { shard: call.shard, epoch: 0, receipt };
                self.note_admitted(side, binding, &receipt);
                Ok(Asked::Admitted { receipt, hold: Hold::default(), plan, degraded: Some(how) })
            }
            // Of a share nothing but "not yet" is true: the whole may have room, once the book is back.
            Verdict::Deny(denial) => Err(match denial.binding.kind {
                DenyKind::Busy(_) => degraded(Self::denied(bound, side, &denial, now)),
                _ => Refused::Away { limit: name(catalog, denial.binding.limit) },
            }),
            Verdict::Recalendar => Err(Refused::Away { limit: None }),
            other @ (Verdict::Ended(_) | Verdict::Conflict(_)) => {
                tracing::error!(verdict = ?other, "a verdict of a local book that cannot be");
                Err(Refused::Internal)
            }
        }
    }

    /// What may have been held is given back; it would be anyway, when its life at the door is over.
    fn give_back(&self, call: &ReserveCall) {
        let claim = Claim { shard: call.shard, id: call.reserve.id, attempt: call.reserve.attempt };
        let accounts = call.reserve.legs.iter().map(|leg| leg.account).collect();
        let release = ReleaseCall { claim, accounts, why: ReleaseWhy::NeverSent, entry: None };
        self.settler.post(Posting::Release(release));
    }

    /// Ends a call of a local book, and hands what the shared one has to be told to the settler.
    pub(crate) fn ended_locally(&self, ended: Ended<'_>) {
        let Ended { receipt, end, entry } = ended;
        let now = self.now();
        let Some(asked) = self.away.local().end(now, receipt.claim(), end) else {
            tracing::error!(claim = ?receipt.claim(), "a call of a local book has ended twice");
            return;
        };
        let (how, actual, landed) = match end {
            LocalEnd::Used { actual, landed, .. } => (End::Settled, Some(actual), landed),
            // Nothing left the gateway, and the shared book never heard of it.
            LocalEnd::Released(ReleaseWhy::NeverSent) => return,
            LocalEnd::Released(ReleaseWhy::Failed) => (End::Released, None, 0),
        };
        let posted = posted(&asked, receipt, actual);
        let state = RestoredState::Ended { how, posted: Some(posted), landed, age: 0, entry };
        let age = now.saturating_sub(receipt.receipt.now);
        let call = RestoreCall { asked, receipt: receipt.clone(), age, state };
        self.settler.post(Posting::Restore(Box::new(call)));
    }

    /// Asks shards that take no calls, again and again, whether they do.
    pub(crate) async fn look_for_engine(&self, stop: impl Future<Output = ()>) {
        let asking = async {
            loop {
                tokio::time::sleep(super::ASK_EVERY).await;
                if self.away.probe(&**self.engine(), self.deadline()).await {
                    self.settler.wake();
                }
                self.away.tidy(self.now());
            }
        };
        tokio::select! {
            () = asking => {}
            () = stop => {}
        }
    }

    /// Gateways that share the book, as the last count of those that live says.
    pub fn set_gateways(&self, gateways: u32) {
        self.away.set_gateways(gateways);
    }

    /// Among how many gateways a ceiling is shared while the book is away.
    pub fn gateways(&self) -> u32 {
        self.away.gateways()
    }

    /// The absence of the book that is under way, if one is.
    pub fn absence(&self) -> Option<super::AwayReport> {
        self.away.report()
    }
}

/// A refusal by a share says so.
fn degraded(mut refused: Refused) -> Refused {
    if let Refused::Limit(refusal) = &mut refused {
        refusal.figures.degraded = Some(Degraded::Local);
    }
    refused
}

/// The strictest of what the enforced limits say, and a limit that says so; `Open` where there is none.
fn strictest(catalog: &Catalog, binding: &Binding) -> (WhenAway, Option<Arc<str>>) {
    let enforced = binding.accounts.iter().filter(|account| account.enforced);
    let Some(account) = enforced.max_by_key(|account| account.when_away) else {
        return (WhenAway::Open, None);
    };
    let limits = account.limits.iter().filter(|limit| !limit.shadow);
    let says = limits.map(|limit| limit.id).find(|id| says(catalog, *id) == Some(account.when_away));
    (account.when_away, says.and_then(|id| name(catalog, id)))
}

fn says(catalog: &Catalog, id: tollbook_ledger::LimitId) -> Option<WhenAway> {
    catalog.rule(id).map(|rule| rule.limit.when_away)
}

fn name(catalog: &Catalog, id: tollbook_ledger::LimitId) -> Option<Arc<str>> {
    catalog.rule(id).map(|rule| Arc::from(rule.limit.name.as_str()))
}

/// The share of a ceiling that one of so many gateways may give out.
pub(crate) fn share(ceiling: u64, gateways: u32) -> u64 {
    ceiling.div_ceil(u64::from(gateways.max(1)))
}

/// The legs as the local book decides them.
fn shares(catalog: &Catalog, binding: &Binding, legs: &[Leg], gateways: u32) -> Vec<Leg> {
    let enforced = |at: usize| binding.accounts.get(at).is_some_and(|account| account.enforced);
    let mut legs = legs.to_vec();
    for (at, leg) in legs.iter_mut().enumerate() {
        for limit in &mut leg.limits {
            if enforced(at) && !limit.shadow && says(catalog, limit.id) == Some(WhenAway::Local) {
                limit.ceiling = share(limit.ceiling, gateways);
            } else {
                limit.shadow = true;
                limit.count_denied = false;
            }
        }
    }
    legs
}

/// What the shared book has to post per leg: `requests` as its door would have, the rest as it was used.
fn posted(asked: &ReserveCall, receipt: &Receipt, actual: Option<&[u64]>) -> Vec<u64> {
    let legs = asked.reserve.legs.iter().zip(&receipt.receipt.legs).enumerate();
    let post = |(at, (leg, taken)): (usize, (&Leg, &tollbook_ledger::LegReceipt))| match leg.measure {
        Measure::Concurrency => 0,
        Measure::Requests if actual.is_none() && leg.refund_failed => 0,
        Measure::Requests => taken.expected,
        _ => actual.and_then(|actual| actual.get(at)).copied().unwrap_or(0),
    };
    legs.map(post).collect()
}

/// Whether some key is let in while the book is away: of the first so many, each with its first model and pool. One that is
/// overlooked is let in all the same, and the gateway says that it is not ready.
pub(crate) fn admits_any(catalog: &Catalog, now: u64) -> bool {
    catalog.keys().iter().take(KEYS_LOOKED_AT_MAX).any(|key| admits(catalog, key, now))
}

/// Whether a key is let in while the book is away, with its first model and pool.
pub(crate) fn admits(catalog: &Catalog, key: &Key, now: u64) -> bool {
    let open = |binding: &Binding| strictest(catalog, binding).0 != WhenAway::Closed;
    let model = catalog.models().iter().find(|model| catalog.may_use(key, &model.id));
    let Some(model) = model else { return false };
    let call = tollbook_policy::Call { key, service: key.service.as_deref(), user: None, model: &model.id };
    let pool = model.pools.first().map(|pool| catalog.resolve_pool(pool, &model.id, now));
    catalog.resolve(&call, now).is_ok_and(|tenant| open(&tenant)) && pool.as_ref().is_none_or(open)
}

/// The end of a call that the engine does not know how to restore: its entry, kept apart (L8).
pub(crate) fn unbooked(call: &RestoreCall) -> tollbook_engine::SettleCall {
    let receipt = &call.receipt;
    let (landed, age, entry) = match &call.state {
        RestoredState::Ended { landed, age, entry, .. } => (*landed, *age, entry.clone().unwrap_or_default()),
        RestoredState::Held { .. } => (0, 0, Vec::new()),
    };
    tollbook_engine::SettleCall {
        claim: receipt.claim(),
        accounts: receipt.receipt.legs.iter().map(|leg| leg.account).collect(),
        actual: vec![0; receipt.receipt.legs.len()],
        landed,
        learn: None,
        entry,
        age,
    }
}

/// A restore as old as it is now, `later` after it was made.
pub(crate) fn aged(call: &mut RestoreCall, later: Micros) {
    call.age = call.age.saturating_add(later);
    if let RestoredState::Ended { age, .. } = &mut call.state {
        *age = age.saturating_add(later);
    }
}
