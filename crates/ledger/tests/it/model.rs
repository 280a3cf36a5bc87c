//! The rules once more, the naive way: lists of postings and reservations, every figure by looking through them all.
//!
//! The model answers whole commands as the book does, so the two can be compared answer by answer. It knows only time
//! that goes forward and does not drop old periods: drivers stay within an hour and a half.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tollbook_ledger::{
    AccountId, Adjust, Attempt, Binding, Denial, DenyKind, Due, End, Estimator, EstimatorId, EstimatorKind,
    ExpireOne, Expired, Growth, Hold, Leg, LegReceipt, Limit, Measure, Met, Micros, OnExpiry, Periods,
    Posted, Profile, Progress, Rebook, Receipt, Release, ReleaseWhy, Renew, Renewed, ReservationId, Reserve,
    SECOND, Settle, Settled, Shape, Verdict, Wait, Weights,
    units::{AMOUNT_MAX, DUE_MAX, REMEMBER},
};

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
    // ---- figures

    fn bucket(leg: &Leg, now: Micros) -> u64 {
        match leg.shape {
            Shape::Rate { width, .. } => now / width,
            Shape::Forecast { .. } => now / SECOND,
            _ => 0,
        }
    }

    /// Posted by definition: the window at `now`, or the period.
    pub(crate) fn posted(&self, account: AccountId, now: Micros, place: u64) -> i64 {
        let at = |wanted: u64| -> i64 {
            self.posts.iter().filter(|(a, p, _)| (*a, *p) == (account, wanted)).map(|(_, _, x)| x).sum()
        };
        match self.accounts.get(&account).map(|(_, shape)| *shape) {
            Some(Shape::Rate { buckets, width, weights }) => {
                let (n, current) = (u64::from(buckets), now / width);
                let aged = |age: u64| i128::from(at(current - age));
                let whole: i128 = (0..n).map(aged).sum();
                let sum = match weights {
                    Weights::Whole => whole,
                    Weights::Oldest => {
                        let left = i128::from(width - now % width);
                        whole - aged(n - 1) + ceiling(aged(n - 1) * left, i128::from(width))
                    }
                    Weights::Decay => {
                        let sum = (0..n).map(|age| aged(age) * i128::from(n - age)).sum::<i128>();
                        ceiling(sum, i128::from(n))
                    }
                };
                i64::try_from(sum).unwrap()
            }
            Some(Shape::Forecast { window, strict }) => self.window(account, now, 0, (window, strict)),
            Some(Shape::Quota) => at(place),
            _ => 0,
        }
    }

    fn cell(&self, account: AccountId, second: u64) -> i64 {
        self.posts.iter().filter(|(a, p, _)| (*a, *p) == (account, second)).map(|(_, _, x)| x).sum()
    }

    /// What the window holds that ends so many seconds after `now`, as far as it is known now.
    fn window(&self, account: AccountId, now: Micros, ahead: u64, (window, strict): (u8, bool)) -> i64 {
        let (last, window) = (now / SECOND + ahead, u64::from(window));
        let inside: i64 = (last + 1 - window..=last).map(|second| self.cell(account, second)).sum();
        let oldest = self.cell(account, last - window);
        if strict {
            return inside + oldest;
        }
        let left = i128::from(SECOND - now % SECOND);
        let part = i64::try_from(ceiling(i128::from(oldest) * left, i128::from(SECOND))).unwrap();
        // Of a second that stands out no more than a sixteenth of all is forgotten.
        inside + part.max(oldest - (inside + oldest) / 16)
    }

    fn busy(&self, account: AccountId, now: Micros, window: u8) -> bool {
        let second = now / SECOND;
        (second - u64::from(window)..=second + 61).any(|second| self.cell(account, second) > 0)
    }

    /// Change a second as far as it can be changed.
    fn put(&mut self, account: AccountId, now: Micros, second: u64, amount: i64) {
        let Some((_, Shape::Forecast { window, .. })) = self.accounts.get(&account) else { return };
        if (now / SECOND - u64::from(*window)..=now / SECOND + 61).contains(&second) {
            let least = -self.cell(account, second);
            self.posts.push((account, second, amount.max(least)));
        }
    }

    /// A call fits: with it every window of the next minute stays below what is usable of the ceiling.
    fn forecast_fits(&self, now: Micros, leg: &Leg, profile: Profile, output: u64, most: u64) -> Option<i64> {
        let Shape::Forecast { window, strict } = leg.shape else { return None };
        let usable = usable(most, spares(leg) && self.busy(leg.account, now, window));
        let peak = (0..=60).map(|ahead| {
            let landed = |ahead: u64| landed(leg, now, profile, output, now / SECOND + ahead);
            let before = (ahead > u64::from(window)).then(|| landed(ahead - u64::from(window) - 1));
            // A strict window sees its oldest second whole.
            let input =
                if ahead < u64::from(window) + u64::from(strict) { leg.base.div_ceil(1000) } else { 0 };
            let added = i64::try_from(input + landed(ahead) - before.unwrap_or(0)).unwrap();
            self.window(leg.account, now, ahead, (window, strict)) + added
        });
        let peak = peak.max().unwrap();
        (peak <= i64::try_from(usable).unwrap()).then_some(peak)
    }

    pub(crate) fn progress(&mut self, now: Micros, cmd: &Progress) {
        if !self.accounts.contains_key(&cmd.account) {
            return;
        }
        let key = (cmd.account, cmd.gateway);
        if self.batches.get(&key).is_some_and(|(seq, at)| *seq >= cmd.seq && now < at + 130 * SECOND) {
            return;
        }
        self.batches.insert(key, (cmd.seq, now));
        for (second, delta) in (cmd.base_second..).zip(&cmd.deltas) {
            self.put(cmd.account, now, second, *delta);
        }
    }

    fn live(&self) -> impl Iterator<Item = (&(ReservationId, Attempt), &Call)> {
        self.calls.iter().filter(|(_, call)| call.end.is_none())
    }

    fn parts(&self, account: AccountId) -> impl Iterator<Item = &Part> {
        self.live().flat_map(|(_, call)| &call.legs).filter(move |part| part.leg.account == account)
    }

    /// Held by definition: the sum of live holds.
    pub(crate) fn held(&self, account: AccountId, now: Micros, place: u64) -> i64 {
        if let Some((_, Shape::Forecast { window, strict })) = self.accounts.get(&account) {
            let windows = (0..=60).map(|ahead| self.window(account, now, ahead, (*window, *strict)));
            return windows.max().unwrap() - self.posted(account, now, place);
        }
        let quota = self.accounts.get(&account).is_some_and(|(_, shape)| *shape == Shape::Quota);
        let here = self.parts(account).filter(|part| !quota || part.place == place);
        here.map(|part| i64::try_from(part.held).unwrap()).sum()
    }

    fn newest(&self, account: AccountId) -> Option<u64> {
        self.ends.keys().filter(|(a, _)| *a == account).map(|(_, start)| *start).max()
    }

    fn reset(&self, leg: &Leg, now: Micros, place: u64) -> Micros {
        match leg.shape {
            Shape::Concurrency => 0,
            Shape::Quota => match self.ends.get(&(leg.account, place)) {
                Some(&u64::MAX) => Micros::MAX,
                Some(end) => (end * SECOND).saturating_sub(now),
                None => 0,
            },
            Shape::Forecast { window, .. } => {
                let (second, window) = (now / SECOND, u64::from(window));
                let newest = (second - window..=second + 61).rev().find(|s| self.cell(leg.account, *s) > 0);
                newest.map_or(0, |newest| (newest + window + 1) * SECOND - now)
            }
            Shape::Rate { buckets, width, .. } => {
                let (n, current) = (u64::from(buckets), now / width);
                let in_bucket = |bucket: u64| -> i64 {
                    let here = self.posts.iter().filter(|(a, p, _)| (*a, *p) == (leg.account, bucket));
                    here.map(|(_, _, x)| x).sum()
                };
                let newest = match self.held(leg.account, now, 0) {
                    1.. => Some(current),
                    _ => (current - n + 1..=current).rev().find(|bucket| in_bucket(*bucket) > 0),
                };
                newest.map_or(0, |bucket| (bucket + n) * width - now)
            }
        }
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

    fn estimate(&self, now: Micros, estimator: &Estimator) -> u64 {
        match estimator {
            Estimator::Learned { kind, own, prior, first } => {
                let of = |id: &EstimatorId| expected(*kind, self.samples.get(id)?, now);
                let young = |id: &EstimatorId| {
                    self.samples.get(id).is_none_or(|all| all.iter().all(|(_, _, grows)| *grows))
                };
                of(own).filter(|_| !young(own)).or_else(|| of(prior)).unwrap_or(*first)
            }
            Estimator::Capped => u64::MAX,
            Estimator::Constant { output } => *output,
        }
    }

    fn learn(&mut self, now: Micros, parts: &[Part], learn: Option<u64>, grows: bool) {
        let Some(output) = learn else { return };
        let mut pairs = Vec::new();
        for part in parts {
            if let Estimator::Learned { kind, own, prior, .. } = part.leg.estimator
                && !pairs.contains(&(own, prior))
                && (!grows || kind == EstimatorKind::Forecast)
            {
                pairs.push((own, prior));
            }
        }
        for (own, prior) in pairs {
            self.samples.entry(own).or_default().push((now, output, grows));
            if own != prior {
                self.samples.entry(prior).or_default().push((now, output, grows));
            }
        }
    }

    // ---- reserve and rebook

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

    fn forecast_why(&self, now: Micros, leg: &Leg, limit: &Limit, part: &Part, profile: Profile) -> DenyKind {
        if part.decided > limit.ceiling {
            return DenyKind::TooLarge;
        }
        let fits = |after: &u64| {
            self.forecast_fits(now + after * SECOND, leg, profile, part.output, limit.ceiling).is_some()
        };
        let after = (1..200).find(fits).unwrap() * SECOND;
        DenyKind::Busy(Wait { after, firm: !limit.count_denied })
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

    // ---- ends

    fn met(&self, key: (ReservationId, Attempt), now: Micros) -> Settled {
        let call = self.remembered(key, now);
        Settled {
            before: call.and_then(|call| call.end).map_or(Met::Unknown, |(end, _)| Met::Ended(end)),
            overrun: vec![0; call.map_or(0, |call| call.legs.len())],
            posted: Vec::new(),
            admitted: call.map_or(0, |call| call.admitted),
        }
    }

    fn end(
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

/// How one leg of an ending call is used.
struct Used {
    amount: u64,
    back: bool,
    moved: bool,
    over: bool,
    /// On a forecast account: the whole amount used if any was, and the output that landed; `None` changes nothing.
    truth: Option<(Option<u64>, u64)>,
}

#[derive(Clone, Copy)]
struct Figures {
    posted: i64,
    held: i64,
    fresh: i64,
    extra: i64,
    end: u64,
}

/// A busy account leaves something, but for a strict one that counts no output.
fn spares(leg: &Leg) -> bool {
    !matches!(leg.shape, Shape::Forecast { strict: true, .. }) || leg.measure != Measure::InputTokens
}

fn usable(ceiling: u64, headroom: bool) -> u64 {
    if headroom { ceiling - ceiling * 10 / 1024 } else { ceiling }
}

/// Units of planned output that land by the end of a second: every llm_token has its own instant.
fn landed(leg: &Leg, now: Micros, profile: Profile, output: u64, second: u64) -> u64 {
    let pace = profile.pace.clamp(1_000, 2_000_000);
    let on_time = |nth: &u64| now + profile.ttft + nth * pace <= (second + 1) * SECOND;
    let streamed = (1..=output).take_while(on_time).count();
    (leg.base + leg.per_output * u64::try_from(streamed).unwrap()).div_ceil(1000) - leg.base.div_ceil(1000)
}

/// True input − estimated input.
fn correction(part: &Part, used: Option<u64>, landed: u64) -> i64 {
    let estimated = part.leg.base.div_ceil(1000);
    let output = (part.leg.base + part.leg.per_output * landed).div_ceil(1000) - estimated;
    let input = used.unwrap_or(0).saturating_sub(output);
    i64::try_from(input).unwrap() - i64::try_from(estimated).unwrap()
}

/// What is expected after some samples, by the definition of each kind.
fn expected(kind: EstimatorKind, samples: &[(Micros, u64, bool)], now: Micros) -> Option<u64> {
    let outputs: Vec<u64> = samples.iter().map(|(_, output, _)| *output).collect();
    match kind {
        EstimatorKind::Ema => {
            let first = outputs[0] * 1000;
            Some(2 * outputs[1..].iter().fold(first, |m, output| (m * 7 + output * 3000) / 10) / 1000)
        }
        EstimatorKind::Forecast => {
            let (mut n, mut m) = (0_i64, 0_i64);
            for (_, output, grows) in samples {
                n += i64::from(!grows);
                let w = (1024 / n.max(1)).max(51);
                m += ((i64::try_from(*output).unwrap() * 1000 - m) * w).div_euclid(1024);
            }
            (n > 0 || m > 0).then_some(2 * u64::try_from(m).unwrap() / 1000)
        }
        EstimatorKind::P95 => {
            let mut last: Vec<u64> = outputs.iter().rev().take(100).copied().collect();
            last.sort_unstable();
            if last.len() < 5 {
                return Some(last.iter().sum::<u64>() * 3 / (2 * u64::try_from(last.len()).unwrap()));
            }
            let enough =
                |value: &&u64| 100 * last.iter().filter(|other| other <= value).count() >= 95 * last.len();
            last.iter().find(enough).copied()
        }
        EstimatorKind::RecentMean => {
            let minute = |at: Micros| at / SECOND / 60;
            let recent = |at: &Micros| minute(*at) < minute(now) && minute(*at) + 10 >= minute(now);
            let found: Vec<u64> =
                samples.iter().filter(|(at, ..)| recent(at)).map(|(_, output, _)| *output).collect();
            let calls = u64::try_from(found.len()).unwrap();
            (calls > 0).then(|| found.iter().sum::<u64>() / calls)
        }
    }
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

fn ceiling(value: i128, by: i128) -> i128 {
    let floor = value.div_euclid(by);
    if value.rem_euclid(by) > 0 { floor + 1 } else { floor }
}
