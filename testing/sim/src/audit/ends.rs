//! `settle`, `release`, `expire`, the end that a rebook makes, and `adjust`: what is posted, where, and what is journaled.

use tollbook_engine::ledger::units::REMEMBER;
use tollbook_engine::ledger::{
    AccountId, End, EstimatorKind, Expired, Measure, Met, Micros, Posted, Refusal, ReleaseWhy, Settled,
};
use tollbook_engine::{
    AdjustCall, EngineError, ErrorKind, ExpireCall, RebookCall, ReleaseCall, Reply, SEQ_ADJUST, SEQ_END,
    SEQ_LATE, SETTLE_AGE_MAX, SettleCall, Source,
};

use super::books::{Account, Effects, Ended, Key, Late, LateLeg, Learner, Live, LiveLeg, Mean, amount};
use super::decide::Planned;
use super::journal::Line;
use super::{Auditor, Checked, ensure};

/// How a live reservation ends.
#[derive(Clone, Copy)]
enum How<'a> {
    Used {
        actual: &'a [u64],
        /// Output that landed.
        landed: u64,
    },
    Released(ReleaseWhy),
    /// Expired after it was sent.
    Lapsed,
    Moved {
        actual: Option<&'a [u64]>,
        landed: u64,
        onto: &'a [LiveLeg],
    },
}

impl Auditor {
    pub(crate) fn settle(
        &mut self,
        shard: u8,
        call: &SettleCall,
        got: &Result<Reply<Settled>, EngineError>,
    ) -> Checked {
        let reply = match got {
            Ok(reply) => reply,
            Err(error) => return self.refused(error),
        };
        let key = Key { shard, id: call.claim.id, attempt: call.claim.attempt };
        let (now, settled) = (reply.now, &reply.value);
        if call.age > SETTLE_AGE_MAX {
            ensure!(settled.before == Met::Unknown, "a settle {} us old met {:?}", call.age, settled.before);
            self.journal.unbooked(key, now, &call.entry);
            self.stats.unbooked_old += 1;
            return Ok(());
        }
        if let Some(live) = self.lives.remove(&key) {
            let effects = self.end(
                now,
                key,
                &live,
                End::Settled,
                How::Used { actual: &call.actual, landed: call.landed },
            );
            self.learn(shard, &live.learners, call.learn);
            self.stats.settles += 1;
            self.stats.overruns += u64::from(effects.overrun.iter().any(|over| *over > 0));
            check(key, settled, Met::Held, &effects, live.admitted)?;
            let line = Line::new(Source::Settled, live.admitted, now, effects.posted, &call.entry);
            return self.journal.expect(key, SEQ_END, line);
        }
        if settled.before == Met::Late {
            let effects = self.correct(now, key, |quota| {
                let actual = call.actual[quota.index].cast_signed();
                if quota.leg.measure == Measure::Requests {
                    (actual.max(quota.charged) - quota.charged, 0)
                } else {
                    (actual - quota.charged, call.actual[quota.index].saturating_sub(quota.leg.decided))
                }
            })?;
            let (effects, ended) = effects;
            self.learn(shard, &ended.1, call.learn);
            self.stats.late_settles += 1;
            check(key, settled, Met::Late, &effects, ended.0)?;
            let line = Line::new(Source::Late, ended.0, now, effects.posted, &call.entry);
            return self.journal.expect(key, SEQ_LATE, line);
        }
        let met = self.unchanged(key, settled)?;
        if met == Met::Unknown {
            self.journal.unbooked(key, now, &call.entry);
            self.stats.unbooked_unknown += 1;
        }
        Ok(())
    }

    pub(crate) fn release(
        &mut self,
        shard: u8,
        call: &ReleaseCall,
        got: &Result<Reply<Settled>, EngineError>,
    ) -> Checked {
        let reply = match got {
            Ok(reply) => reply,
            Err(error) => return self.refused(error),
        };
        let key = Key { shard, id: call.claim.id, attempt: call.claim.attempt };
        let (now, settled) = (reply.now, &reply.value);
        let body = call.entry.as_deref().unwrap_or_default();
        if let Some(live) = self.lives.remove(&key) {
            let effects = self.end(now, key, &live, End::Released, How::Released(call.why));
            self.stats.releases += 1;
            check(key, settled, Met::Held, &effects, live.admitted)?;
            return match call.why {
                ReleaseWhy::Failed => {
                    let line = Line::new(Source::Released, live.admitted, now, effects.posted, body);
                    self.journal.expect(key, SEQ_END, line)
                }
                ReleaseWhy::NeverSent => {
                    self.journal.kept(key, &effects.posted);
                    Ok(())
                }
            };
        }
        if settled.before == Met::Late {
            let (effects, ended) = self.correct(now, key, |quota| {
                let keeps = call.why == ReleaseWhy::Failed
                    && quota.leg.measure == Measure::Requests
                    && !quota.leg.refund_failed;
                (if keeps { 0 } else { -quota.charged }, 0)
            })?;
            self.stats.late_releases += 1;
            check(key, settled, Met::Late, &effects, ended.0)?;
            let line = Line::new(Source::Late, ended.0, now, effects.posted, body);
            return self.journal.expect(key, SEQ_LATE, line);
        }
        let met = self.unchanged(key, settled)?;
        if let (Met::Unknown, Some(body)) = (met, &call.entry) {
            self.journal.unbooked(key, now, body);
            self.stats.unbooked_unknown += 1;
        }
        Ok(())
    }

    pub(crate) fn expire(&mut self, shard: u8, call: &ExpireCall, now: Micros, got: &Expired) -> Checked {
        let key = Key { shard, id: call.claim.id, attempt: call.claim.attempt };
        let (posted, context, admitted, sent) = match got {
            Expired::Expired { posted, context, admitted, sent } => (posted, context, *admitted, *sent),
            Expired::NotDue => {
                let Some(live) = self.lives.get(&key) else {
                    return Err(format!("{key:?} is not due, and not live"));
                };
                ensure!(!self.must_expire(live), "{key:?} is due and was not expired");
                self.stats.not_due += 1;
                return Ok(());
            }
            Expired::Ended(end) => return self.met(key, Met::Ended(*end)).map(|_| ()),
            Expired::Unknown => return self.met(key, Met::Unknown).map(|_| ()),
        };
        let Some(live) = self.lives.remove(&key) else {
            return Err(format!("{key:?} expired and was not live"));
        };
        ensure!(self.may_expire(&live), "{key:?} expired before its time");
        let how = if live.sent { How::Lapsed } else { How::Released(ReleaseWhy::NeverSent) };
        let effects = self.end(now, key, &live, End::Expired, how);
        let is = (posted, context, admitted, sent);
        let want = (&effects.posted, &live.context, live.admitted, live.sent);
        ensure!(is == want, "{key:?} expired with {is:?}, not {want:?}");
        if !live.sent {
            self.stats.expired_door += 1;
            self.journal.kept(key, &effects.posted);
            return Ok(());
        }
        self.stats.expired_sent += 1;
        self.stats.expired_charged += u64::from(live.legs.iter().any(|leg| leg.charge && leg.counts()));
        let line = Line::new(Source::Expired, live.admitted, now, effects.posted, &live.context);
        self.journal.expect(key, SEQ_END, line)
    }

    /// A rebook was admitted: the old attempt ends.
    pub(super) fn moved(&mut self, now: Micros, old: Key, call: &RebookCall, planned: &Planned) -> Checked {
        let Some(live) = self.lives.remove(&old) else { return Ok(()) };
        let actual = call.actual.as_deref();
        let how = How::Moved { actual, landed: call.landed, onto: &planned.legs };
        let effects = self.end(now, old, &live, End::Rebooked, how);
        let Some(body) = &call.entry else {
            self.journal.kept(old, &effects.posted);
            return Ok(());
        };
        let line = Line::new(Source::Rebooked, live.admitted, now, effects.posted, body);
        self.journal.expect(old, SEQ_END, line)
    }

    pub(crate) fn adjust(
        &mut self,
        shard: u8,
        call: &AdjustCall,
        got: &Result<Reply<bool>, EngineError>,
    ) -> Checked {
        let adjust = &call.adjust;
        let place = (shard, adjust.account);
        let reply = match got {
            Ok(reply) => reply,
            Err(EngineError { kind: ErrorKind::Refused(Refusal::NoSuchQuota), .. }) => {
                let newest = self.accounts.get(&place).and_then(Account::newest);
                let is_known = newest.is_some_and(|(start, _)| start >= adjust.period);
                ensure!(adjust.opening.is_none() && !is_known, "there is such a quota: {adjust:?}");
                return Ok(());
            }
            Err(error) => return self.refused(error),
        };
        let before = self.adjusts.get(&(shard, adjust.id)).map(|at| self.age(*at));
        let must_be_first = before.is_none_or(|age| age.least >= REMEMBER);
        let must_repeat = before.is_some_and(|age| age.most < REMEMBER);
        ensure!(
            if reply.value { !must_repeat } else { !must_be_first },
            "an adjust was applied: {}; it had been before: {before:?}",
            reply.value
        );
        if !reply.value {
            self.stats.adjusts_repeated += 1;
            return Ok(());
        }
        self.adjusts.insert((shard, adjust.id), self.moment);
        if let Some(opening) = adjust.opening {
            let new = || Account::new(opening.measure, tollbook_engine::ledger::Shape::Quota, self.moment);
            let account = self.accounts.entry(place).or_insert_with(new);
            if account.newest().is_none_or(|(start, _)| start < adjust.period) {
                account.open(adjust.period, opening.end);
            }
        }
        if let Some(account) = self.accounts.get_mut(&place) {
            account.used = self.moment;
            account.post(reply.now, adjust.period, adjust.delta);
            account.excuse(reply.now, adjust.period, u64::try_from(adjust.delta).unwrap_or(0));
        }
        self.stats.adjusts += 1;
        let posted = Posted { account: adjust.account, period: adjust.period, amount: adjust.delta };
        let line = Line::new(Source::Adjusted, 0, reply.now, vec![posted], &call.entry);
        let key = Key { shard, id: tollbook_engine::ledger::ReservationId(adjust.id), attempt: 0 };
        self.journal.expect(key, SEQ_ADJUST, line)
    }

    /// Frees every hold, posts what is due, and remembers the end.
    fn end(&mut self, now: Micros, key: Key, live: &Live, end: End, how: How<'_>) -> Effects {
        let mut effects = Effects::default();
        let mut quotas = Vec::new();
        for (index, leg) in live.legs.iter().enumerate() {
            let Some(account) = self.accounts.get_mut(&(key.shard, leg.account)) else { continue };
            let (post, over, charged) = match leg.measure {
                Measure::Concurrency => (0, 0, 0),
                Measure::Requests => {
                    let wanted = how.gives_back(leg);
                    let back = if wanted > 0 { wanted.min(account.refundable(now, leg.place)) } else { 0 };
                    self.stats.requests_given_back += u64::from(back > 0);
                    self.stats.requests_gone += u64::from(back < wanted);
                    let kept = if how.carries(leg) { 0 } else { leg.decided - back };
                    (-back.cast_signed(), 0, kept)
                }
                _ => {
                    let used = how.used(index, leg);
                    let over = if matches!(how, How::Lapsed) { 0 } else { used.saturating_sub(leg.decided) };
                    if leg.is_planned {
                        let change = how.corrects(index, leg);
                        self.stats.inputs_corrected += u64::from(change != 0);
                        (change, over, 0)
                    } else {
                        (used.cast_signed(), over, used)
                    }
                }
            };
            account.used = self.moment;
            account.live -= 1;
            account.hold(leg.place, -leg.held.cast_signed());
            if post != 0 {
                account.post(now, leg.place, post);
            }
            account.excuse(now, leg.place, charged.saturating_sub(leg.within_all));
            effects.overrun.push(over);
            if account.is_quota() {
                if charged != 0 {
                    let amount = charged.cast_signed();
                    effects.posted.push(Posted { account: leg.account, period: leg.place, amount });
                }
                quotas.push(LateLeg { index, leg: leg.clone(), charged: charged.cast_signed() });
            }
        }
        let late = (end == End::Expired).then(|| Late { quotas, learners: live.learners.clone() });
        let ended = Ended { end, at: self.moment, admitted: live.admitted, legs: live.legs.len(), late };
        self.ended.insert(key, ended);
        effects
    }

    /// The one correction of an expired reservation; its admission and learners are told beside.
    #[allow(clippy::type_complexity, reason = "two lines use it")]
    fn correct(
        &mut self,
        now: Micros,
        key: Key,
        correction: impl Fn(&LateLeg) -> (i64, u64),
    ) -> Result<(Effects, (Micros, Vec<Learner>)), String> {
        self.met(key, Met::Ended(End::Expired))?;
        let Some(ended) = self.ended.get_mut(&key) else { return Err(format!("{key:?} never ended")) };
        ended.end = End::Corrected;
        let Some(late) = ended.late.take() else { return Err(format!("{key:?} was corrected twice")) };
        let mut effects = Effects { overrun: vec![0; ended.legs], posted: Vec::new() };
        let admitted = ended.admitted;
        for quota in &late.quotas {
            let (amount, over) = correction(quota);
            effects.overrun[quota.index] = over;
            if amount == 0 {
                continue;
            }
            let (account, period): (AccountId, u64) = (quota.leg.account, quota.leg.place);
            effects.posted.push(Posted { account, period, amount });
            if let Some(account) = self.accounts.get_mut(&(key.shard, account)) {
                account.post(now, period, amount);
                account.excuse(now, period, u64::try_from(amount).unwrap_or(0));
            }
        }
        Ok((effects, (admitted, late.learners)))
    }

    /// A claim that changes nothing.
    fn unchanged(&mut self, key: Key, settled: &Settled) -> Result<Met, String> {
        let ended = self.met(key, settled.before)?;
        let effects = Effects { overrun: vec![0; ended.map_or(0, |ended| ended.legs)], posted: Vec::new() };
        let admitted = ended.map_or(0, |ended| ended.admitted);
        let is_unknown = settled.before == Met::Unknown;
        if !is_unknown {
            check(key, settled, settled.before, &effects, admitted)?;
        }
        self.stats.claims_too_late += u64::from(!is_unknown);
        Ok(settled.before)
    }

    /// One true output.
    fn learn(&mut self, shard: u8, learners: &[Learner], output: Option<u64>) {
        let Some(output) = output else { return };
        for learner in learners {
            self.teach(shard, learner, |mean| mean.learn(learner.0, output));
            self.stats.learned += 1;
        }
    }

    /// A stream outgrew its estimate: forecasts move at once, and it is no sample.
    pub(super) fn outgrown(&mut self, shard: u8, learners: &[Learner], output: Option<u64>) {
        let Some(output) = output else { return };
        for learner in learners.iter().filter(|(kind, ..)| *kind == EstimatorKind::Forecast) {
            self.teach(shard, learner, |mean| mean.blend(output));
            self.stats.outgrown += 1;
        }
    }

    fn teach(&mut self, shard: u8, (_, own, prior): &Learner, change: impl Fn(&mut Mean)) {
        let both = [Some(own), Some(prior).filter(|prior| *prior != own)];
        for id in both.into_iter().flatten() {
            change(self.means.entry((shard, *id)).or_default());
        }
    }
}

/// True input − estimated input: of what was used, all that did not land as output.
pub(super) fn input_difference(leg: &LiveLeg, used: Option<u64>, landed: u64) -> i64 {
    let estimated = leg.base.div_ceil(1000);
    let output = amount(leg.base, leg.per_output, landed) - estimated;
    used.unwrap_or(0).saturating_sub(output).cast_signed() - estimated.cast_signed()
}

fn check(key: Key, got: &Settled, before: Met, effects: &Effects, admitted: Micros) -> Checked {
    let want = Settled { before, overrun: effects.overrun.clone(), posted: effects.posted.clone(), admitted };
    ensure!(*got == want, "a claim on {key:?} is answered {got:?}, not {want:?}");
    Ok(())
}

impl How<'_> {
    /// `requests` to give back (L6).
    fn gives_back(&self, leg: &LiveLeg) -> u64 {
        let is_due = match self {
            How::Released(ReleaseWhy::NeverSent) => true,
            How::Released(ReleaseWhy::Failed) => leg.refund_failed,
            How::Moved { actual: None, .. } => leg.refund_failed && !self.carries(leg),
            How::Used { .. } | How::Lapsed | How::Moved { .. } => false,
        };
        if is_due { leg.decided } else { 0 }
    }

    /// The next attempt takes these `requests` over (L18).
    fn carries(&self, leg: &LiveLeg) -> bool {
        matches!(self, How::Moved { onto, .. } if onto.iter().any(|next| {
            next.account == leg.account && next.place == leg.place
        }))
    }

    /// What the second of the door gets on a forecast account: its input as it really was, or nothing of it.
    fn corrects(&self, index: usize, leg: &LiveLeg) -> i64 {
        match self {
            How::Used { actual, landed } | How::Moved { actual: Some(actual), landed, .. } => {
                input_difference(leg, Some(actual[index]), *landed)
            }
            How::Released(_) | How::Moved { actual: None, .. } => input_difference(leg, None, 0),
            How::Lapsed => 0,
        }
    }

    fn used(&self, index: usize, leg: &LiveLeg) -> u64 {
        match self {
            How::Used { actual, .. } | How::Moved { actual: Some(actual), .. } => actual[index],
            How::Lapsed if leg.charge => leg.expected(),
            _ => 0,
        }
    }
}
