//! The rules once more, the naive way: lists of postings and reservations, every figure by looking through them all.
//!
//! The model answers whole commands as the book does, so the two can be compared answer by answer. It knows only time
//! that goes forward and does not drop old periods: drivers stay within an hour and a half.

mod ends;
mod estimators;
mod windows;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tollbook_ledger::{
    AccountId, Adjust, Attempt, Binding, Denial, DenyKind, Due, End, EstimatorId, Growth, Hold, Leg,
    LegReceipt, Limit, Measure, Micros, Periods, Rebook, Receipt, Renew, Renewed, ReservationId, Reserve,
    SECOND, Settled, Shape, Verdict, Wait, Weights,
    units::{AMOUNT_MAX, DUE_MAX, REMEMBER},
};

use ends::Used;
use windows::{correction, landed, spares, usable};

#[derive(Clone, Default)]
pub(crate) struct Model {
    accounts: BTreeMap<AccountId, (Measure, Shape)>,
    ends: BTreeMap<(AccountId, u64), u64>,
    posts: Vec<(AccountId, u64, i64)>,
    calls: BTreeMap<(ReservationId, Attempt), Call>,
    /// When, how much, and whether it was a stream that outgrew its estimate.
    samples: BTreeMap<EstimatorId, Vec<(Micros, u64, bool)>>,
    batches: BTreeMap<(AccountId, u64), (u64, Micros)>,
    lived: BTreeMap<AccountId, Vec<Micros>>,
    denials: Vec<(AccountId, u64)>,
    adjusts: BTreeMap<u128, Micros>,
}

#[derive(Clone)]
struct Call {
    legs: Vec<Part>,
    admitted: Micros,
    due: Micros,
    sent: bool,
    context: Vec<u8>,
    end: Option<(End, Micros)>,
}

/// One leg of a call.
#[derive(Clone)]
struct Part {
    leg: Leg,
    place: u64,
    output: u64,
    held: u64,
    decided: u64,
    carried: u64,
    shadow_denied: bool,
    /// What the call has posted to the quota when it expired.
    charged: i64,
}

/// What a rebook takes off an account before the next attempt is decided.
#[derive(Clone, Copy, Default)]
struct Off {
    held: i64,
    posted: i64,
    carried: u64,
    place: Option<u64>,
    /// What the end changes in the second of its door.
    moved: (u64, i64),
}

fn amount(leg: &Leg, output: u64) -> u64 {
    (leg.base + leg.per_output * output).div_ceil(1000)
}

fn speaking(leg: &Leg) -> Vec<Limit> {
    let enforced: Vec<Limit> = leg.limits.iter().filter(|limit| !limit.shadow).copied().collect();
    if enforced.is_empty() { leg.limits.clone() } else { enforced }
}

fn enforced(leg: &Leg) -> Vec<Limit> {
    leg.limits.iter().filter(|limit| !limit.shadow).copied().collect()
}

fn counts_output(leg: &Leg) -> bool {
    !matches!(leg.measure, Measure::Requests | Measure::Concurrency)
}

impl Model {
    fn live(&self) -> impl Iterator<Item = (&(ReservationId, Attempt), &Call)> {
        self.calls.iter().filter(|(_, call)| call.end.is_none())
    }

    fn parts(&self, account: AccountId) -> impl Iterator<Item = &Part> {
        self.live().flat_map(|(_, call)| &call.legs).filter(move |part| part.leg.account == account)
    }

    fn likely(&self, account: AccountId, most: Micros) -> Micros {
        let mean = self
            .lived
            .get(&account)
            .into_iter()
            .flatten()
            .fold(0, |mean, lived| if mean == 0 { *lived } else { (mean * 7 + lived * 3) / 10 });
        let live = u64::try_from(self.parts(account).count().max(1)).unwrap();
        (mean / live).max(SECOND).min(most)
    }

    fn remembered(&self, key: (ReservationId, Attempt), now: Micros) -> Option<&Call> {
        self.calls.get(&key).filter(|call| call.end.is_none_or(|(_, at)| now < at + REMEMBER))
    }

    fn period(&self, leg: &Leg, now: Micros) -> Option<(u64, u64)> {
        let starts = match leg.periods {
            Periods::None => return Some((0, 0)),
            Periods::Lifetime => return Some((0, u64::MAX)),
            Periods::Calendar(starts) => starts,
        };
        let index = (0..3).find(|i| (starts[*i]..starts[i + 1]).contains(&(now / SECOND)))?;
        match self.newest(leg.account) {
            Some(newest) if newest > starts[index] => Some((newest, self.ends[&(leg.account, newest)])),
            _ => Some((starts[index], starts[index + 1])),
        }
    }

    fn repeat(&self, now: Micros, cmd: &Reserve) -> Option<Verdict> {
        let call = self.remembered((cmd.id, cmd.attempt), now)?;
        if let Some((end, _)) = call.end {
            return Some(Verdict::Ended(end));
        }
        let content = |leg: &Leg| (leg.account, leg.base, leg.per_output, leg.cap, leg.worst);
        let longest = call.legs.len().max(cmd.legs.len());
        let differs = (0..longest)
            .find(|i| call.legs.get(*i).map(|part| content(&part.leg)) != cmd.legs.get(*i).map(content));
        Some(match differs {
            Some(leg) => Verdict::Conflict(leg),
            None => Verdict::Admit(self.receipt(now, cmd, call)),
        })
    }

    fn receipt(&self, now: Micros, cmd: &Reserve, call: &Call) -> Receipt {
        let leg = |(part, leg): (&Part, &Leg)| LegReceipt {
            account: leg.account,
            place: part.place,
            expected: amount(leg, part.output),
            held: part.held,
            output: part.output,
            ceiling: speaking(leg).iter().map(|limit| limit.ceiling).min().unwrap(),
            posted: self.posted(leg.account, now, part.place),
            held_total: self.held(leg.account, now, part.place),
            reset: self.reset(leg, now, part.place),
            shadow_denied: part.shadow_denied,
        };
        let legs = call.legs.iter().zip(&cmd.legs).map(leg).collect();
        Receipt { id: cmd.id, attempt: cmd.attempt, now: call.admitted, legs }
    }

    pub(crate) fn reserve(&mut self, now: Micros, cmd: &Reserve) -> Verdict {
        if let Some(verdict) = self.repeat(now, cmd) {
            return verdict;
        }
        match self.decide(now, cmd, &|_| Off::default()) {
            Ok(parts) => self.admit(now, cmd, parts),
            Err(None) => Verdict::Recalendar,
            Err(Some((denial, counted))) => {
                for (account, bucket, demand) in counted {
                    if !self.denials.contains(&(account, bucket)) {
                        self.denials.push((account, bucket));
                        self.posts.push((account, bucket, demand));
                    }
                }
                Verdict::Deny(denial)
            }
        }
    }

    fn admit(&mut self, now: Micros, cmd: &Reserve, parts: Vec<(Part, u64)>) -> Verdict {
        for (part, end) in &parts {
            let leg = &part.leg;
            self.accounts.insert(leg.account, (leg.measure, leg.shape));
            if leg.shape == Shape::Quota {
                self.ends.entry((leg.account, part.place)).or_insert(*end);
            }
            if leg.measure == Measure::Requests && part.decided > part.carried {
                let place = if leg.shape == Shape::Quota { part.place } else { Self::bucket(leg, now) };
                let fresh = i64::try_from(part.decided - part.carried).unwrap();
                self.posts.push((leg.account, place, fresh));
            }
            if let Shape::Forecast { .. } = leg.shape {
                let amount = |units: u64| i64::try_from(units).unwrap();
                self.put(leg.account, now, now / SECOND, amount(leg.base.div_ceil(1000)));
                let mut before = 0;
                for second in now / SECOND..=now / SECOND + 61 {
                    let all = landed(leg, now, cmd.profile, part.output, second);
                    self.put(leg.account, now, second, amount(all - before));
                    before = all;
                }
            }
        }
        let call = Call {
            legs: parts.into_iter().map(|(part, _)| part).collect(),
            admitted: now,
            due: now + cmd.life,
            sent: false,
            context: cmd.context.clone(),
            end: None,
        };
        self.calls.insert((cmd.id, cmd.attempt), call.clone());
        Verdict::Admit(self.receipt(now, cmd, &call))
    }

    /// The legs to write, or why not: `None` is a recalendar.
    #[allow(clippy::type_complexity, clippy::result_large_err, reason = "seen once")]
    fn decide(
        &self,
        now: Micros,
        cmd: &Reserve,
        off: &dyn Fn(AccountId) -> Off,
    ) -> Result<Vec<(Part, u64)>, Option<(Denial, Vec<(AccountId, u64, i64)>)>> {
        let (mut parts, mut room, mut blocks, mut counted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (index, leg) in cmd.legs.iter().enumerate() {
            let off = off(leg.account);
            let (place, end) = match (leg.shape, off.place) {
                (Shape::Quota, Some(place)) => (place, self.ends[&(leg.account, place)]),
                (Shape::Quota, None) => self.period(leg, now).ok_or(None)?,
                (_, Some(place)) if leg.measure == Measure::Requests => (place, 0),
                _ => (Self::bucket(leg, now), 0),
            };
            let mut seen = self.clone();
            if off.moved.1 != 0 {
                seen.put(leg.account, now, off.moved.0, off.moved.1);
            }
            let part = seen.part(now, leg, place, off.carried);
            let fresh = i64::try_from(part.decided - part.carried).unwrap();
            let posted = seen.posted(leg.account, now, place) + off.posted;
            let held = seen.held(leg.account, now, place) - off.held;
            let total = posted + held + fresh;
            let blocked = |limit: &Limit| {
                let free = (leg.base, leg.per_output * leg.cap, leg.worst) == (0, 0, 0);
                (fresh > 0 || (part.carried == 0 && !free))
                    && (part.decided > limit.ceiling
                        || match leg.shape {
                            Shape::Forecast { .. } => seen
                                .forecast_fits(now, leg, cmd.profile, part.output, limit.ceiling)
                                .is_none(),
                            _ => total > i64::try_from(limit.ceiling).unwrap(),
                        })
            };
            for limit in enforced(leg).into_iter().filter(blocked) {
                let figures = Figures { posted, held, fresh, extra: off.posted, end };
                let kind = match leg.shape {
                    Shape::Forecast { .. } => seen.forecast_why(now, leg, &limit, &part, cmd.profile),
                    _ => self.why(now, leg, &limit, part.decided, figures),
                };
                if limit.count_denied
                    && matches!(kind, DenyKind::Busy(_))
                    && matches!(leg.shape, Shape::Rate { .. } | Shape::Forecast { .. })
                {
                    counted.push((leg.account, Self::bucket(leg, now), fresh));
                }
                let binding = Binding {
                    limit: limit.id,
                    leg: index,
                    hard: limit.hard,
                    kind,
                    ceiling: limit.ceiling,
                    posted,
                    held,
                    demand: part.decided,
                    reset: if self.accounts.contains_key(&leg.account) {
                        self.reset(leg, now, place)
                    } else {
                        0
                    },
                };
                blocks.push(binding);
            }
            let left = |limit: &Limit| i64::try_from(limit.ceiling).unwrap() - posted - held.max(0);
            let least = enforced(leg).iter().map(left).min();
            room.push(least.map_or(AMOUNT_MAX, |left| u64::try_from(left.max(0)).unwrap()));
            let shadow_denied = leg.limits.iter().any(|limit| limit.shadow && blocked(limit));
            parts.push((Part { shadow_denied, ..part }, end));
        }
        let rank = |binding: &&Binding| {
            let (never, after) = match binding.kind {
                DenyKind::TooLarge => (0, 0),
                DenyKind::Exhausted => (1, 0),
                DenyKind::Spent(wait) | DenyKind::Busy(wait) => (2, wait.after),
            };
            (never, Reverse(after), binding.leg, binding.ceiling)
        };
        let Some(binding) = blocks.iter().min_by_key(rank).copied() else { return Ok(parts) };
        let is_firm = |binding: &Binding| match binding.kind {
            DenyKind::Spent(wait) | DenyKind::Busy(wait) => wait.firm,
            _ => false,
        };
        let firm = blocks.iter().all(is_firm);
        Err(Some((Denial { binding, firm, room, due: self.due(now, DUE_MAX) }, counted)))
    }

    fn part(&self, now: Micros, leg: &Leg, place: u64, carried: u64) -> Part {
        let mut output = self.estimate(now, &leg.estimator).min(leg.cap);
        let soft = match leg.shape {
            Shape::Forecast { window, .. } => {
                let busy = spares(leg) && self.busy(leg.account, now, window);
                speaking(leg).iter().map(|limit| usable(limit.ceiling, busy)).min()
            }
            _ => enforced(leg).iter().filter(|limit| !limit.hard).map(|limit| limit.ceiling).min(),
        };
        if let Some(soft) = soft
            && leg.per_output > 0
        {
            output = output.min((soft * 1000).saturating_sub(leg.base) / leg.per_output);
        }
        let expected = amount(leg, output);
        let asked = speaking(leg).into_iter().map(|limit| match limit.hold {
            Hold::Expected => expected,
            Hold::Worst => leg.worst.max(expected),
        });
        let decided = asked.max().unwrap().max(carried);
        let holds = leg.measure != Measure::Requests && !matches!(leg.shape, Shape::Forecast { .. });
        let held = if holds { decided } else { 0 };
        Part { leg: leg.clone(), place, output, held, decided, carried, shadow_denied: false, charged: 0 }
    }

    fn why(&self, now: Micros, leg: &Leg, limit: &Limit, demand: u64, figures: Figures) -> DenyKind {
        if demand > limit.ceiling {
            return DenyKind::TooLarge;
        }
        let ceiling = i64::try_from(limit.ceiling).unwrap();
        let Figures { posted, held, fresh, extra, end } = figures;
        let likely = |most| DenyKind::Busy(Wait { after: self.likely(leg.account, most), firm: false });
        match leg.shape {
            Shape::Forecast { .. } => panic!("plans have their own reason"),
            Shape::Concurrency => likely(60 * SECOND),
            Shape::Quota if end == u64::MAX || end * SECOND <= now => {
                if posted + fresh > ceiling {
                    DenyKind::Exhausted
                } else {
                    likely(60 * SECOND)
                }
            }
            Shape::Quota => {
                let after = end * SECOND - now;
                if posted + fresh > ceiling {
                    DenyKind::Spent(Wait { after, firm: true })
                } else {
                    likely(after.min(60 * SECOND))
                }
            }
            Shape::Rate { buckets, width, .. } if held + fresh > ceiling => {
                likely(width * u64::from(buckets - 1))
            }
            Shape::Rate { buckets, width, weights } => {
                // Try every instant at which something can change: each boundary, and inside a bucket by bisection.
                let mut later = self.clone();
                later.posts.push((leg.account, now / width, extra));
                let fits = |at: Micros| later.posted(leg.account, at, 0) + held + fresh <= ceiling;
                let boundary = |step: u64| if step == 0 { now } else { (now / width + step) * width };
                let step = (0..=u64::from(buckets)).find(|step| fits(boundary(*step)));
                let mut at = boundary(step.expect("an empty window fits"));
                if weights == Weights::Oldest && step > Some(0) {
                    let (mut no, mut yes) = (boundary(step.unwrap() - 1), at);
                    while yes - no > 1 {
                        let middle = no.midpoint(yes);
                        if fits(middle) { yes = middle } else { no = middle }
                    }
                    at = yes;
                }
                DenyKind::Busy(Wait { after: at - now, firm: !limit.count_denied })
            }
        }
    }

    pub(crate) fn rebook(&mut self, now: Micros, cmd: &Rebook) -> (Verdict, Option<Settled>) {
        let (next, key) = (&cmd.reserve, (cmd.reserve.id, cmd.ended));
        if let Some(verdict) = self.repeat(now, next) {
            let met = matches!(verdict, Verdict::Admit(_)).then(|| self.met(key, now));
            return (verdict, met);
        }
        let Some(call) = self.remembered(key, now).cloned() else {
            let met = self.met(key, now);
            return (self.reserve(now, next), Some(met));
        };
        if let Some((end, _)) = call.end {
            return (Verdict::Ended(end), None);
        }
        let actual = |index: usize| cmd.actual.as_ref().map_or(0, |actual| actual[index]);
        let off = |account: AccountId| {
            let Some(index) = call.legs.iter().position(|part| part.leg.account == account) else {
                return Off::default();
            };
            let part = &call.legs[index];
            let counts = counts_output(&part.leg);
            if let Shape::Forecast { .. } = part.leg.shape {
                let used = cmd.actual.as_ref().map(|actual| actual[index]);
                return Off {
                    place: Some(part.place),
                    moved: (part.place, correction(part, used, cmd.landed)),
                    ..Off::default()
                };
            }
            Off {
                held: i64::try_from(part.held).unwrap(),
                posted: if counts { i64::try_from(actual(index)).unwrap() } else { 0 },
                carried: if part.leg.measure == Measure::Requests { part.decided } else { 0 },
                place: Some(part.place),
                moved: (0, 0),
            }
        };
        match self.decide(now, next, &off) {
            Err(None) => (Verdict::Recalendar, None),
            Err(Some((denial, _))) => (Verdict::Deny(denial), None),
            Ok(parts) => {
                let moves = |part: &Part| parts.iter().any(|(next, _)| next.leg.account == part.leg.account);
                let settled = self.end(now, key, End::Rebooked, &|index, part| {
                    let back = cmd.actual.is_none() && part.leg.refund_failed && !moves(part);
                    let truth = cmd
                        .actual
                        .as_ref()
                        .map(|actual| (Some(actual[index]), cmd.landed))
                        .or(Some((None, 0)));
                    Used { amount: actual(index), back, moved: moves(part), over: true, truth }
                });
                (self.admit(now, next, parts), Some(settled))
            }
        }
    }

    pub(crate) fn renew(&mut self, now: Micros, cmd: &Renew) -> Renewed {
        let key = (cmd.id, cmd.attempt);
        let Some(mut call) = self.remembered(key, now).cloned() else { return Renewed::Unknown };
        if let Some((end, _)) = call.end {
            return Renewed::Ended(end);
        }
        call.due = call.due.max(now + cmd.life);
        call.sent |= cmd.sent;
        self.learn(now, &call.legs, cmd.outgrown, true);
        let hard = |part: &Part| enforced(&part.leg).iter().filter(|l| l.hard).map(|l| l.ceiling).min();
        let mut short = Vec::new();
        if let Growth::Output(output) = cmd.growth {
            let wants = |part: &Part| {
                let worst = speaking(&part.leg).iter().any(|limit| limit.hold == Hold::Worst);
                let output = output.min(part.leg.cap);
                let holds = counts_output(&part.leg) && !matches!(part.leg.shape, Shape::Forecast { .. });
                (holds && !worst && output > part.output)
                    .then(|| (output, amount(&part.leg, output).max(part.held)))
            };
            for (index, part) in call.legs.iter().enumerate() {
                let (Some((_, wanted)), Some(ceiling)) = (wants(part), hard(part)) else { continue };
                let total = self.posted(part.leg.account, now, part.place)
                    + self.held(part.leg.account, now, part.place)
                    + i64::try_from(wanted - part.held).unwrap();
                if wanted > part.held && total > i64::try_from(ceiling).unwrap() {
                    short.push(index);
                }
            }
            for part in &mut call.legs {
                let Some((output, wanted)) = wants(part) else { continue };
                if hard(part).is_none() || short.is_empty() {
                    (part.output, part.held) = (output, wanted);
                    if hard(part).is_some() {
                        part.decided = wanted;
                    }
                }
            }
        }
        let held = call.legs.iter().map(|part| part.held).collect();
        self.calls.insert(key, call);
        if short.is_empty() { Renewed::Held(held) } else { Renewed::Short(short) }
    }

    pub(crate) fn adjust(&mut self, now: Micros, cmd: &Adjust) -> Option<bool> {
        if self.adjusts.get(&cmd.id).is_some_and(|applied| now < applied + REMEMBER) {
            return Some(false);
        }
        let known = self.ends.contains_key(&(cmd.account, cmd.period));
        let newest = self.newest(cmd.account);
        match cmd.opening {
            Some(opening) if newest.is_none_or(|newest| newest < cmd.period) => {
                self.accounts.insert(cmd.account, (opening.measure, Shape::Quota));
                self.ends.insert((cmd.account, cmd.period), opening.end);
            }
            None if newest.is_none_or(|newest| newest < cmd.period) => return None,
            _ if !known => {
                self.adjusts.insert(cmd.id, now);
                return Some(true);
            }
            _ => {}
        }
        self.posts.push((cmd.account, cmd.period, cmd.delta));
        self.adjusts.insert(cmd.id, now);
        Some(true)
    }

    /// Everything that is due, by second; within a second any order will do.
    pub(crate) fn due(&self, now: Micros, max: usize) -> Vec<Due> {
        let mut due: Vec<(Micros, Due)> = self
            .live()
            .filter(|(_, call)| call.due <= now)
            .map(|((id, attempt), call)| (call.due / SECOND, Due { id: *id, attempt: *attempt }))
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, due)| due).take(max).collect()
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = AccountId> {
        self.accounts.keys().copied()
    }

    pub(crate) fn periods(&self) -> impl Iterator<Item = (AccountId, u64)> {
        self.ends.keys().copied()
    }
}

#[derive(Clone, Copy)]
struct Figures {
    posted: i64,
    held: i64,
    fresh: i64,
    extra: i64,
    end: u64,
}
