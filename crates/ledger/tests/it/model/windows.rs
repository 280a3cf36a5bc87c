//! What an account shows at a time: windows by looking through all postings, plans llm_token by llm_token.

use tollbook_ledger::{
    AccountId, DenyKind, Leg, Limit, Measure, Micros, Profile, Progress, SECOND, Shape, Wait, Weights,
};

use super::{Model, Part};

impl Model {
    pub(super) fn bucket(leg: &Leg, now: Micros) -> u64 {
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
    pub(super) fn window(
        &self,
        account: AccountId,
        now: Micros,
        ahead: u64,
        (window, strict): (u8, bool),
    ) -> i64 {
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

    pub(super) fn busy(&self, account: AccountId, now: Micros, window: u8) -> bool {
        let second = now / SECOND;
        (second - u64::from(window)..=second + 61).any(|second| self.cell(account, second) > 0)
    }

    /// Change a second as far as it can be changed.
    pub(super) fn put(&mut self, account: AccountId, now: Micros, second: u64, amount: i64) {
        let Some((_, Shape::Forecast { window, .. })) = self.accounts.get(&account) else { return };
        if (now / SECOND - u64::from(*window)..=now / SECOND + 61).contains(&second) {
            let least = -self.cell(account, second);
            self.posts.push((account, second, amount.max(least)));
        }
    }

    /// A call fits: with it every window of the next minute stays below what is usable of the ceiling.
    pub(super) fn forecast_fits(
        &self,
        now: Micros,
        leg: &Leg,
        profile: Profile,
        output: u64,
        most: u64,
    ) -> Option<i64> {
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

    pub(super) fn forecast_why(
        &self,
        now: Micros,
        leg: &Leg,
        limit: &Limit,
        part: &Part,
        profile: Profile,
    ) -> DenyKind {
        if part.decided > limit.ceiling {
            return DenyKind::TooLarge;
        }
        let fits = |after: &u64| {
            self.forecast_fits(now + after * SECOND, leg, profile, part.output, limit.ceiling).is_some()
        };
        let after = (1..200).find(fits).unwrap() * SECOND;
        DenyKind::Busy(Wait { after, firm: !limit.count_denied })
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

    pub(super) fn newest(&self, account: AccountId) -> Option<u64> {
        self.ends.keys().filter(|(a, _)| *a == account).map(|(_, start)| *start).max()
    }

    pub(super) fn reset(&self, leg: &Leg, now: Micros, place: u64) -> Micros {
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
}

/// A busy account leaves something, but for a strict one that counts no output.
pub(super) fn spares(leg: &Leg) -> bool {
    !matches!(leg.shape, Shape::Forecast { strict: true, .. }) || leg.measure != Measure::InputTokens
}

pub(super) fn usable(ceiling: u64, headroom: bool) -> u64 {
    if headroom { ceiling - ceiling * 10 / 1024 } else { ceiling }
}

/// Units of planned output that land by the end of a second: every llm_token has its own instant.
pub(super) fn landed(leg: &Leg, now: Micros, profile: Profile, output: u64, second: u64) -> u64 {
    let pace = profile.pace.clamp(1_000, 2_000_000);
    let on_time = |nth: &u64| now + profile.ttft + nth * pace <= (second + 1) * SECOND;
    let streamed = (1..=output).take_while(on_time).count();
    (leg.base + leg.per_output * u64::try_from(streamed).unwrap()).div_ceil(1000) - leg.base.div_ceil(1000)
}

/// True input − estimated input.
pub(super) fn correction(part: &Part, used: Option<u64>, landed: u64) -> i64 {
    let estimated = part.leg.base.div_ceil(1000);
    let output = (part.leg.base + part.leg.per_output * landed).div_ceil(1000) - estimated;
    let input = used.unwrap_or(0).saturating_sub(output);
    i64::try_from(input).unwrap() - i64::try_from(estimated).unwrap()
}

pub(super) fn ceiling(value: i128, by: i128) -> i128 {
    let floor = value.div_euclid(by);
    if value.rem_euclid(by) > 0 { floor + 1 } else { floor }
}
