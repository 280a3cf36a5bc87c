//! How calls end: one end each, and one correction of an expired one.

use tollbook_ledger::{
    AccountId, Attempt, End, ExpireOne, Expired, Leg, Measure, Met, Micros, OnExpiry, Posted, Release,
    ReleaseWhy, ReservationId, Settle, Settled, Shape,
};

use super::windows::correction;
use super::{Model, Part, amount, speaking};

impl Model {
    pub(super) fn met(&self, key: (ReservationId, Attempt), now: Micros) -> Settled {
        let call = self.remembered(key, now);
        Settled {
            before: call.and_then(|call| call.end).map_or(Met::Unknown, |(end, _)| Met::Ended(end)),
            overrun: vec![0; call.map_or(0, |call| call.legs.len())],
            posted: Vec::new(),
            admitted: call.map_or(0, |call| call.admitted),
        }
    }

    pub(super) fn end(
        &mut self,
        now: Micros,
        key: (ReservationId, Attempt),
        end: End,
        how: &dyn Fn(usize, &Part) -> Used,
    ) -> Settled {
        let mut call = self.calls[&key].clone();
        let mut settled =
            Settled { before: Met::Held, overrun: Vec::new(), posted: Vec::new(), admitted: call.admitted };
        for (index, part) in call.legs.iter_mut().enumerate() {
            let Used { amount: used, back, moved, over, truth } = how(index, part);
            let (account, quota) = (part.leg.account, part.leg.shape == Shape::Quota);
            let mut overrun = 0;
            part.charged = 0;
            match part.leg.measure {
                _ if matches!(part.leg.shape, Shape::Forecast { .. }) => {
                    if let Some((used, landed)) = truth {
                        self.put(account, now, part.place, correction(part, used, landed));
                    }
                    overrun = if over { used.saturating_sub(part.decided) } else { 0 };
                }
                Measure::Concurrency => {}
                Measure::Requests => {
                    let here = if quota || Self::bucket(&part.leg, now) < part.place + ring(&part.leg) {
                        let at = |(a, p, _): &&(AccountId, u64, i64)| (*a, *p) == (account, part.place);
                        self.posts.iter().filter(at).map(|(_, _, x)| x).sum::<i64>().max(0)
                    } else {
                        0
                    };
                    let decided = i64::try_from(part.decided).unwrap();
                    let given = if back { decided.min(here) } else { 0 };
                    self.posts.push((account, part.place, -given));
                    part.charged = decided - given;
                }
                _ => {
                    let place = if quota { part.place } else { Self::bucket(&part.leg, now) };
                    part.charged = i64::try_from(used).unwrap();
                    self.posts.push((account, place, part.charged));
                    overrun = if over { used.saturating_sub(part.decided) } else { 0 };
                }
            }
            if part.leg.measure != Measure::Requests && !matches!(part.leg.shape, Shape::Forecast { .. }) {
                self.lived.entry(account).or_default().push(now - call.admitted);
            }
            settled.overrun.push(overrun);
            if quota && part.charged != 0 && !moved_requests(part, moved) {
                settled.posted.push(Posted { account, period: part.place, amount: part.charged });
            }
        }
        call.end = Some((end, now));
        self.calls.insert(key, call);
        settled
    }

    fn late(
        &mut self,
        now: Micros,
        key: (ReservationId, Attempt),
        correction: &dyn Fn(usize, &Part) -> (i64, u64),
    ) -> Settled {
        let mut settled = self.met(key, now);
        if settled.before != Met::Ended(End::Expired) {
            return settled;
        }
        settled.before = Met::Late;
        let mut call = self.calls[&key].clone();
        for (index, part) in call.legs.iter().enumerate().filter(|(_, part)| part.leg.shape == Shape::Quota) {
            let (amount, overrun) = correction(index, part);
            settled.overrun[index] = overrun;
            if amount != 0 {
                self.posts.push((part.leg.account, part.place, amount));
                settled.posted.push(Posted { account: part.leg.account, period: part.place, amount });
            }
        }
        call.end = call.end.map(|(_, at)| (End::Corrected, at));
        self.calls.insert(key, call);
        settled
    }

    pub(crate) fn settle(&mut self, now: Micros, cmd: &Settle) -> Settled {
        let key = (cmd.id, cmd.attempt);
        let parts = self.remembered(key, now).map(|call| call.legs.clone()).unwrap_or_default();
        let is_live = self.calls.get(&key).is_some_and(|call| call.end.is_none());
        let settled = if is_live {
            let used = |index: usize, _: &Part| Used {
                amount: cmd.actual[index],
                back: false,
                moved: false,
                over: true,
                truth: Some((Some(cmd.actual[index]), cmd.landed)),
            };
            self.end(now, key, End::Settled, &used)
        } else {
            self.late(now, key, &|index, part| {
                let actual = i64::try_from(cmd.actual[index]).unwrap();
                if part.leg.measure == Measure::Requests {
                    (actual.max(part.charged) - part.charged, 0)
                } else {
                    (actual - part.charged, cmd.actual[index].saturating_sub(part.decided))
                }
            })
        };
        if matches!(settled.before, Met::Held | Met::Late) {
            self.learn(now, &parts, cmd.learn, false);
        }
        settled
    }

    pub(crate) fn release(&mut self, now: Micros, cmd: &Release) -> Settled {
        let key = (cmd.id, cmd.attempt);
        let gives = |part: &Part| cmd.why == ReleaseWhy::NeverSent || part.leg.refund_failed;
        if self.calls.get(&key).is_some_and(|call| call.end.is_none()) {
            let how = |_, part: &Part| Used {
                amount: 0,
                back: gives(part),
                moved: false,
                over: true,
                truth: Some((None, 0)),
            };
            return self.end(now, key, End::Released, &how);
        }
        self.late(now, key, &|_, part| {
            let kept = part.leg.measure == Measure::Requests && !gives(part);
            (if kept { 0 } else { -part.charged }, 0)
        })
    }

    pub(crate) fn expire(&mut self, now: Micros, cmd: &ExpireOne) -> Expired {
        let key = (cmd.id, cmd.attempt);
        let Some(call) = self.remembered(key, now).cloned() else { return Expired::Unknown };
        if let Some((end, _)) = call.end {
            return Expired::Ended(end);
        }
        if now < call.due {
            return Expired::NotDue;
        }
        let settled = self.end(now, key, End::Expired, &|_, part| {
            let charges = speaking(&part.leg).iter().any(|limit| limit.on_expiry == OnExpiry::Charge);
            let used = if call.sent && charges { amount(&part.leg, part.output) } else { 0 };
            let truth = (!call.sent).then_some((None, 0));
            Used { amount: used, back: !call.sent, moved: false, over: false, truth }
        });
        Expired::Expired {
            posted: settled.posted,
            context: call.context,
            sent: call.sent,
            admitted: call.admitted,
        }
    }
}

/// How one leg of an ending call is used.
pub(super) struct Used {
    pub(super) amount: u64,
    pub(super) back: bool,
    pub(super) moved: bool,
    pub(super) over: bool,
    /// On a forecast account: the whole amount used if any was, and the output that landed; `None` changes nothing.
    pub(super) truth: Option<(Option<u64>, u64)>,
}

fn moved_requests(part: &Part, moved: bool) -> bool {
    moved && part.leg.measure == Measure::Requests
}

fn ring(leg: &Leg) -> u64 {
    match leg.shape {
        Shape::Rate { buckets, .. } => u64::from(buckets),
        _ => 0,
    }
}
