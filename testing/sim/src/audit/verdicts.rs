//! `reserve`, `rebook` and `renew`: what may be held, and what is told when it may not.

use tollbook_engine::ledger::units::DUE_MAX;
use tollbook_engine::ledger::{
    AMOUNT_MAX, Denial, DenyKind, Leg, LegReceipt, Measure, Micros, Receipt, Renewed, Reserve, Wait,
};
use tollbook_engine::{DueHold, EngineError, RebookCall, RenewCall, Reply, ReserveCall, Verdict};

use super::books::{Ended, Key, Live, amount};
use super::decide::{Block, Ending, Planned, Standing, Why};
use super::{Auditor, Checked, Known, ensure, open};

/// One second, the least that a likely wait says where it can.
const SECOND: Micros = 1_000_000;

impl Auditor {
    pub(crate) fn reserve(
        &mut self,
        shard: u8,
        call: &ReserveCall,
        got: &Result<Reply<Verdict>, EngineError>,
    ) -> Checked {
        let reply = match got {
            Ok(reply) => reply,
            Err(error) => return self.refused(error),
        };
        let key = Key { shard, id: call.reserve.id, attempt: call.reserve.attempt };
        match (self.known(key), &reply.value) {
            (Known::Live(live), _) => {
                repeated(live, &call.reserve, &reply.value)?;
                self.stats.repeats += 1;
                Ok(())
            }
            (Known::Ended(ended) | Known::Fading(ended), Verdict::Ended(end)) if *end == ended.end => {
                self.stats.repeats_ended += 1;
                Ok(())
            }
            (Known::Ended(ended), verdict) => {
                Err(format!("{key:?} has ended as {:?} and a repeat got {verdict:?}", ended.end))
            }
            (Known::Fading(_) | Known::Unknown, verdict) => {
                let planned = self.plan(reply.now, shard, &call.reserve, None);
                self.decided(reply.now, key, &call.reserve, planned, verdict, MayCount::Yes)
            }
        }
    }

    /// A verdict that was decided now.
    fn decided(
        &mut self,
        now: Micros,
        key: Key,
        reserve: &Reserve,
        planned: Option<Planned>,
        verdict: &Verdict,
        may_count: MayCount,
    ) -> Checked {
        let Some(planned) = planned else {
            ensure!(*verdict == Verdict::Recalendar, "no period fits, and the verdict is {verdict:?}");
            self.stats.recalendars += 1;
            return Ok(());
        };
        match verdict {
            Verdict::Admit(receipt) => {
                ensure!(planned.blocks.is_empty(), "over-admitted: {receipt:?} against {:?}", planned.blocks);
                self.admit(now, key, reserve, &planned);
                self.receipt(now, key, &receipt.receipt, &reserve.legs)?;
                self.stats.admits += 1;
                Ok(())
            }
            Verdict::Deny { denial, due } => {
                ensure!(!planned.blocks.is_empty(), "denied without a reason: {denial:?}");
                denied(reserve, &planned, denial)?;
                self.due(key.shard, due)?;
                let named = reserve.legs.iter().map(|leg| (key.shard, leg.account));
                self.never_opened = named.filter(|place| !self.accounts.contains_key(place)).collect();
                self.stats.denied(denial);
                if may_count == MayCount::Yes {
                    self.count(now, key.shard, reserve, &planned);
                }
                Ok(())
            }
            other => Err(format!("neither a repeat nor without a period, and the verdict is {other:?}")),
        }
    }

    /// Writes an admission into the books.
    fn admit(&mut self, now: Micros, key: Key, reserve: &Reserve, planned: &Planned) {
        for (index, leg) in planned.legs.iter().enumerate() {
            let standing = planned.standings[index];
            let account = open(&mut self.accounts, key.shard, reserve, index, self.moment);
            if account.is_quota() {
                account.open(leg.place, standing.end);
            }
            account.used = self.moment;
            account.live += 1;
            account.ceiling = match account.ceiling {
                Some(ceiling) if standing.enforced => Some(ceiling.max(standing.ceiling)),
                _ => None,
            };
            if leg.shadow_denied {
                account.shadow_denied += 1;
                account.shadow_demand += leg.decided;
                self.stats.shadow_denied += 1;
            }
            if let (super::books::Sides::Forecast(seconds), Some(flow)) =
                (&mut account.sides, &planned.flows[index])
            {
                seconds.plan(now, flow);
                self.stats.planned += 1;
            } else if leg.measure == Measure::Requests {
                account.post(now, leg.place, (leg.decided - leg.carried).cast_signed());
            } else {
                account.hold(leg.place, leg.held.cast_signed());
            }
        }
        self.lives.insert(
            key,
            Live {
                legs: planned.legs.clone(),
                learners: planned.learners.clone(),
                admitted: now,
                sent: false,
                context: reserve.context.clone(),
                lives: vec![(self.moment, reserve.life)],
            },
        );
    }

    /// A receipt is what was written and how the accounts stand with it.
    fn receipt(&self, now: Micros, key: Key, receipt: &Receipt, legs: &[Leg]) -> Checked {
        let live = &self.lives[&key];
        let names = (receipt.id, receipt.attempt, receipt.now, receipt.legs.len());
        ensure!(
            names == (key.id, key.attempt, now, live.legs.len()),
            "the receipt of {key:?} is for {names:?}"
        );
        for ((got, held), leg) in receipt.legs.iter().zip(&live.legs).zip(legs) {
            let account = &self.accounts[&(key.shard, leg.account)];
            let want = LegReceipt {
                account: leg.account,
                place: held.place,
                expected: held.expected(),
                held: held.held,
                output: held.output,
                ceiling: ceiling(leg),
                posted: account.posted(now, held.place),
                held_total: account.held(now, held.place),
                reset: got.reset,
                shadow_denied: held.shadow_denied,
            };
            ensure!(*got == want, "a leg of {key:?} is {got:?}, not {want:?}");
        }
        Ok(())
    }

    /// Denials that are posted, once per account and bucket.
    fn count(&mut self, now: Micros, shard: u8, reserve: &Reserve, planned: &Planned) {
        for block in &planned.blocks {
            let leg = &reserve.legs[block.leg];
            let account = self.accounts.get_mut(&(shard, leg.account));
            // What a far step back left ahead starts anew where it stands in the way (L12).
            match account.map(|account| &mut account.sides) {
                Some(super::books::Sides::Rate { window, .. }) => window.restart(now),
                Some(super::books::Sides::Forecast(seconds)) => seconds.restart(now),
                _ => {}
            }
            if !block.limit.count_denied || !matches!(block.why, Why::Counted { .. } | Why::Likely { .. }) {
                continue;
            }
            let Some(account) = self.accounts.get_mut(&(shard, leg.account)) else { continue };
            let bucket = match &account.sides {
                super::books::Sides::Rate { window, .. } => window.bucket(now),
                super::books::Sides::Forecast(seconds) => seconds.second(now),
                _ => continue,
            };
            if account.counted == Some(bucket) {
                continue;
            }
            let fresh = planned.standings[block.leg].fresh;
            account.counted = Some(bucket);
            account.used = self.moment;
            account.post(now, bucket, fresh.cast_signed());
            account.excuse(now, 0, fresh);
            self.stats.denials_counted += 1;
        }
    }

    /// Holds that a denial or a sweep names are live, and old enough (L7).
    pub(crate) fn due(&self, shard: u8, due: &[DueHold]) -> Checked {
        for hold in due {
            let key = Key { shard, id: hold.claim.id, attempt: hold.claim.attempt };
            let Some(live) = self.lives.get(&key) else { return Err(format!("{key:?} is due and not live")) };
            ensure!(self.may_expire(live), "{key:?} is told as due before its time");
            let subjects: Vec<_> = live.legs.iter().map(|leg| leg.account.subject).collect();
            ensure!(
                subjects.iter().all(|subject| hold.subjects.contains(subject)),
                "{key:?} is due with subjects {:?}, not {subjects:?}",
                hold.subjects
            );
        }
        Ok(())
    }

    pub(super) fn may_expire(&self, live: &Live) -> bool {
        live.lives.iter().all(|(since, life)| self.age(*since).most >= *life)
    }

    pub(super) fn must_expire(&self, live: &Live) -> bool {
        live.lives.iter().all(|(since, life)| self.age(*since).least >= *life)
    }

    pub(crate) fn rebook(
        &mut self,
        shard: u8,
        call: &RebookCall,
        got: &Result<Reply<Verdict>, EngineError>,
    ) -> Checked {
        let reply = match got {
            Ok(reply) => reply,
            Err(error) => return self.refused(error),
        };
        let (now, reserve) = (reply.now, &call.next.reserve);
        let next = Key { shard, id: reserve.id, attempt: reserve.attempt };
        let old = Key { shard, id: reserve.id, attempt: call.receipt.receipt.attempt };
        match (self.known(next), &reply.value) {
            (Known::Live(live), verdict) => {
                repeated(live, reserve, verdict)?;
                self.stats.repeats += 1;
                return Ok(());
            }
            (Known::Ended(ended) | Known::Fading(ended), Verdict::Ended(end)) if *end == ended.end => {
                self.stats.repeats_ended += 1;
                return Ok(());
            }
            (Known::Ended(ended), verdict) => {
                return Err(format!("{next:?} has ended as {:?} and a repeat got {verdict:?}", ended.end));
            }
            (Known::Fading(_) | Known::Unknown, _) => {}
        }
        let Some(live) = self.lives.get(&old).cloned() else {
            return match &reply.value {
                Verdict::Ended(end) => self.met(old, tollbook_engine::ledger::Met::Ended(*end)).map(|_| ()),
                verdict => {
                    // Nothing is known of the old attempt: the next one stands by itself.
                    self.met(old, tollbook_engine::ledger::Met::Unknown)?;
                    let planned = self.plan(now, shard, reserve, None);
                    self.decided(now, next, reserve, planned, verdict, MayCount::Yes)
                }
            };
        };
        let actual = call.actual.as_deref();
        let planned =
            self.plan(now, shard, reserve, Some(Ending { live: &live, actual, landed: call.landed }));
        if matches!(reply.value, Verdict::Admit(_))
            && let Some(planned) = &planned
        {
            self.moved(now, old, call, planned)?;
            self.stats.rebooks += 1;
        } else {
            self.stats.rebooks_denied += 1;
        }
        self.decided(now, next, reserve, planned, &reply.value, MayCount::No)
    }

    pub(crate) fn renew(&mut self, shard: u8, call: &RenewCall, now: Micros, got: &Renewed) -> Checked {
        let key = Key { shard, id: call.claim.id, attempt: call.claim.attempt };
        if let Renewed::Ended(end) = got {
            return self.met(key, tollbook_engine::ledger::Met::Ended(*end)).map(|_: Option<&Ended>| ());
        }
        if *got == Renewed::Unknown {
            return self.met(key, tollbook_engine::ledger::Met::Unknown).map(|_| ());
        }
        let Some(live) = self.lives.get(&key) else { return Err(format!("{key:?} is not live: {got:?}")) };
        let grown = self.growth(now, shard, live, call.output_expected.unwrap_or(0));
        let learners = live.learners.clone();
        self.outgrown(shard, &learners, call.outgrown);
        let short: Vec<usize> = grown.iter().filter(|step| step.is_short).map(|step| step.leg).collect();
        let Some(live) = self.lives.get_mut(&key) else { return Ok(()) };
        live.lives.push((self.moment, call.life));
        live.sent |= call.sent;
        for step in grown.iter().filter(|step| short.is_empty() || !step.is_hard) {
            let leg = &mut live.legs[step.leg];
            let more = step.held - leg.held;
            (leg.output, leg.held) = (step.output, step.held);
            if step.is_hard {
                leg.decided = step.held;
                if !leg.has_soft {
                    leg.within_all = step.held;
                }
                self.stats.growth_decided += 1;
            } else {
                self.stats.growth_forced += u64::from(more > 0);
            }
            if let Some(account) = self.accounts.get_mut(&(shard, leg.account)) {
                account.hold(leg.place, more.cast_signed());
            }
        }
        self.stats.renewals += 1;
        self.stats.growth_short += u64::from(!short.is_empty());
        let want = if short.is_empty() {
            Renewed::Held(live.legs.iter().map(|leg| leg.held).collect())
        } else {
            Renewed::Short(short)
        };
        ensure!(*got == want, "a renewal of {key:?} answers {got:?}, not {want:?}");
        Ok(())
    }

    fn growth(&self, now: Micros, shard: u8, live: &Live, output: u64) -> Vec<Step> {
        let legs = live.legs.iter().enumerate();
        legs.filter(|(_, leg)| {
            leg.counts() && !leg.is_planned && !leg.at_worst && leg.output < output.min(leg.cap)
        })
        .map(|(index, leg)| {
            let output = output.min(leg.cap);
            let held = amount(leg.base, leg.per_output, output).max(leg.held);
            let more = (held - leg.held).cast_signed();
            let total = self
                .accounts
                .get(&(shard, leg.account))
                .map_or(0, |account| account.posted(now, leg.place) + account.held(now, leg.place));
            let is_short =
                leg.hard_ceiling.is_some_and(|ceiling| more > 0 && total + more > ceiling.cast_signed());
            Step { leg: index, output, held, is_hard: leg.hard_ceiling.is_some(), is_short }
        })
        .collect()
    }
}

/// Whether a denial may be posted; that of a rebook writes nothing at all (L18).
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayCount {
    Yes,
    No,
}

/// One leg that would hold more.
struct Step {
    leg: usize,
    output: u64,
    held: u64,
    is_hard: bool,
    is_short: bool,
}

/// A repeat gets the first answer, whatever the limits are by now (L2).
fn repeated(live: &Live, reserve: &Reserve, verdict: &Verdict) -> Checked {
    let differs = live.legs.iter().zip(&reserve.legs).position(|(held, leg)| {
        let is = (leg.account, leg.base, leg.per_output, leg.cap, leg.worst);
        is != (held.account, held.base, held.per_output, held.cap, held.worst)
    });
    let lengths = (live.legs.len(), reserve.legs.len());
    let differs = differs.or_else(|| (lengths.0 != lengths.1).then_some(lengths.0.min(lengths.1)));
    match (differs, verdict) {
        (Some(leg), Verdict::Conflict(got)) if *got == leg => Ok(()),
        (None, Verdict::Admit(receipt)) => {
            let is = receipt.receipt.legs.iter().map(|leg| (leg.account, leg.place, leg.output, leg.held));
            let want = live.legs.iter().map(|leg| (leg.account, leg.place, leg.output, leg.held));
            ensure!(is.eq(want), "a repeat got {receipt:?}, the first answer was {live:?}");
            ensure!(receipt.receipt.now == live.admitted, "a repeat was admitted anew: {receipt:?}");
            Ok(())
        }
        (differs, verdict) => Err(format!("a repeat got {verdict:?}; the legs differ at {differs:?}")),
    }
}

/// What a denial says against what stands in the way (L14).
fn denied(reserve: &Reserve, planned: &Planned, denial: &Denial) -> Checked {
    let room = |standing: &Standing| {
        let left = standing.ceiling.cast_signed() - standing.posted - standing.held;
        if standing.enforced { u64::try_from(left).unwrap_or(0) } else { AMOUNT_MAX }
    };
    let rooms: Vec<u64> = planned.standings.iter().map(room).collect();
    ensure!(denial.room == rooms, "the room told is {:?}, not {rooms:?}", denial.room);
    ensure!(denial.due.len() <= DUE_MAX, "{} due holds were told", denial.due.len());
    let is_firm =
        planned.blocks.iter().all(|block| matches!(block.why, Why::Firm { .. } | Why::Spent { .. }));
    ensure!(denial.firm == is_firm, "firm: {}, and in the way is {:?}", denial.firm, planned.blocks);

    let binding = &denial.binding;
    let named = |block: &&Block| {
        block.leg == binding.leg
            && block.limit.id == binding.limit
            && block.limit.ceiling == binding.ceiling
            && block.limit.hard == binding.hard
    };
    let Some(block) = planned.blocks.iter().find(named) else {
        return Err(format!("{binding:?} binds, and in the way is {:?}", planned.blocks));
    };
    let standing = planned.standings[block.leg];
    let figures = (binding.posted, binding.held, binding.demand);
    let want = (standing.posted, standing.held, block.demand);
    ensure!(
        figures == want,
        "{:?} is refused with (posted, held, demand) {figures:?}, not {want:?}",
        reserve.legs[block.leg].account
    );
    kind(block, binding.kind)?;
    binds(&planned.blocks, binding.kind)
}

/// The reason told for one limit.
fn kind(block: &Block, got: DenyKind) -> Checked {
    let agrees = match (block.why, got) {
        (Why::TooLarge, DenyKind::TooLarge) | (Why::Exhausted, DenyKind::Exhausted) => true,
        (Why::Spent { after }, DenyKind::Spent(wait)) | (Why::Firm { after }, DenyKind::Busy(wait)) => {
            wait == Wait { after, firm: true }
        }
        (Why::Counted { after }, DenyKind::Busy(wait)) => wait == Wait { after, firm: false },
        (Why::Likely { most }, DenyKind::Busy(wait)) => {
            !wait.firm && (SECOND.min(most)..=most).contains(&wait.after)
        }
        _ => false,
    };
    ensure!(agrees, "{:?} stands in the way, and {got:?} is told", block.why);
    Ok(())
}

/// Never comes first, in its order; then the longest wait.
fn binds(blocks: &[Block], got: DenyKind) -> Checked {
    let has = |why: Why| blocks.iter().any(|block| block.why == why);
    let first = match got {
        DenyKind::TooLarge => true,
        DenyKind::Exhausted => !has(Why::TooLarge),
        DenyKind::Spent(wait) | DenyKind::Busy(wait) => {
            let longest = blocks.iter().map(|block| match block.why {
                Why::TooLarge | Why::Exhausted => Micros::MAX,
                Why::Spent { after } | Why::Firm { after } | Why::Counted { after } => after,
                Why::Likely { most } => SECOND.min(most),
            });
            longest.max().is_none_or(|longest| longest <= wait.after)
        }
    };
    ensure!(first, "{got:?} is told, and in the way is {blocks:?}");
    Ok(())
}

/// The ceiling that a receipt shows.
fn ceiling(leg: &Leg) -> u64 {
    let enforced = leg.limits.iter().filter(|limit| !limit.shadow).map(|limit| limit.ceiling).min();
    enforced.or_else(|| leg.limits.iter().map(|limit| limit.ceiling).min()).unwrap_or(0)
}
