//! A forecast account by its definition: what landed in each second and what is planned for those ahead, every window
//! summed anew at every look.
//!
//! Planned is what admissions and applied batches wrote; nothing else ever changes a second that is to come. The clock
//! turns plan into fact, and takes both out of the windows.

use std::collections::BTreeMap;

use tollbook_engine::ledger::units::{FORECAST_AHEAD, PROGRESS_REMEMBER};
use tollbook_engine::ledger::{Leg, Measure, Micros, Profile, Progress, Shape};

use super::books::amount;
use crate::clock::Moment;
use crate::config::S;

/// Seconds that a plan reaches beyond the current one.
const AHEAD: u64 = FORECAST_AHEAD as u64;

#[derive(Clone, Debug)]
pub(crate) struct Seconds {
    window: u64,
    strict: bool,
    /// The last second that something was written at.
    last: u64,
    amounts: BTreeMap<u64, u64>,
    /// The last batch of each gateway, and when it came.
    heard: BTreeMap<u64, (u64, Moment)>,
}

/// Where a time falls.
#[derive(Clone, Copy, Debug)]
struct Look {
    second: u64,
    /// What is left of the second.
    left: Micros,
    /// The clock stepped back by more than two windows: what was in the window counts as posted now (L12).
    restart: bool,
}

/// How a call would land.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    input: u64,
    /// Output that has landed by the end of the current second, and of each one after it.
    by: Vec<u64>,
    /// An amount already there that changes in the same step: its second, and the difference.
    moved: (u64, i64),
}

/// The window that ends now, and the fullest of it and those to come, without and with a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fullest {
    pub(crate) now: u64,
    pub(crate) without: u64,
    pub(crate) with: u64,
}

/// What a batch may be to an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Batch {
    New,
    Repeated,
    /// A step of the clock leaves open whether its gateway's last one is remembered.
    Either,
}

impl Seconds {
    pub(crate) fn new(window: u8, strict: bool) -> Self {
        let (amounts, heard) = (BTreeMap::new(), BTreeMap::new());
        Self { window: u64::from(window), strict, last: 0, amounts, heard }
    }

    fn look(&self, now: Micros) -> Look {
        let (second, left) = (now / S, S - now % S);
        if second >= self.last {
            Look { second, left, restart: false }
        } else if self.last - second > 2 * self.window {
            Look { second, left, restart: true }
        } else {
            Look { second: self.last, left: S, restart: false }
        }
    }

    pub(crate) fn second(&self, now: Micros) -> u64 {
        self.look(now).second
    }

    fn is_kept(&self, second: u64) -> bool {
        (self.last.saturating_sub(self.window)..=self.last + AHEAD).contains(&second)
    }

    /// What is in every second that windows from `look` on see.
    fn amounts(&self, look: Look) -> Vec<(u64, u64)> {
        let oldest = self.last.saturating_sub(self.window);
        if look.restart {
            let past = self.amounts.range(oldest..=self.last).map(|(_, amount)| amount).sum();
            return vec![(look.second, past)];
        }
        let seen = look.second.saturating_sub(self.window)..=look.second + AHEAD;
        let kept = self.amounts.range(oldest..=self.last + AHEAD).map(|(second, amount)| (*second, *amount));
        kept.filter(|(second, _)| seen.contains(second)).collect()
    }

    /// The same from the oldest second on, one after the other.
    fn seen(&self, look: Look, flow: &Flow) -> Vec<u64> {
        let oldest = look.second.saturating_sub(self.window);
        let mut seen = vec![0_u64; usize::try_from(self.window + AHEAD + 1).unwrap_or(0)];
        let place = |second: u64| second.checked_sub(oldest).and_then(|at| usize::try_from(at).ok());
        for (second, there) in self.amounts(look) {
            if let Some(amount) = place(second).and_then(|at| seen.get_mut(at)) {
                *amount = there;
            }
        }
        let (second, change) = flow.moved;
        if let Some(amount) = place(second).and_then(|at| seen.get_mut(at)) {
            *amount = amount.saturating_add_signed(change);
        }
        seen
    }

    /// All windows as a call finds them that comes `later` seconds from now: what is there, and what it would add.
    fn windows(&self, seen: &[u64], left: Micros, flow: &Flow, later: u64) -> Vec<(u64, u64)> {
        let mut until = vec![0];
        until.extend(seen.iter().scan(0, |sum, amount| {
            *sum += amount;
            Some(*sum)
        }));
        // The sum of all before a place.
        let before = |place: u64| {
            let at = usize::try_from(place).unwrap_or(usize::MAX).min(seen.len());
            until.get(at).copied().unwrap_or(0)
        };
        let of_window = |step: u64| {
            let oldest = later + step;
            let inside: u64 = before(oldest + 1 + self.window) - before(oldest + 1);
            let old: u64 = before(oldest + 1) - before(oldest);
            let counted = if self.strict {
                old
            } else {
                // Of a second that stands out no more than a sixteenth of all is forgotten.
                (old * left).div_ceil(S).max(old - old.min((inside + old) / 16))
            };
            (inside + counted, flow.within(step, self.window, self.strict))
        };
        (0..AHEAD).map(of_window).collect()
    }

    /// Without a call: the window that ends now, and how much fuller the fullest one to come is.
    pub(crate) fn figures(&self, now: Micros) -> (i64, i64) {
        if self.amounts.is_empty() {
            return (0, 0);
        }
        let fullest = self.fullest(now, &Flow::NOTHING);
        (fullest.now.cast_signed(), (fullest.without - fullest.now).cast_signed())
    }

    pub(crate) fn fullest(&self, now: Micros, flow: &Flow) -> Fullest {
        let look = self.look(now);
        let windows = self.windows(&self.seen(look, flow), look.left, flow, 0);
        let most = |of: fn(&(u64, u64)) -> u64| windows.iter().map(of).max().unwrap_or(0);
        Fullest {
            now: windows.first().map_or(0, |(there, _)| *there),
            without: most(|(there, _)| *there),
            with: most(|(there, added)| there + added),
        }
    }

    /// Time after which the call fits if nothing else comes, by whole seconds.
    pub(crate) fn wait(&self, now: Micros, flow: &Flow, ceiling: u64, spares: bool) -> Option<Micros> {
        let look = self.look(now);
        let seen = self.seen(look, flow);
        let fits = |later: &u64| {
            let is_busy = seen.iter().skip(usize::try_from(*later).unwrap_or(0)).any(|amount| *amount > 0);
            let most = usable(ceiling, is_busy && spares);
            let windows = self.windows(&seen, look.left, flow, *later);
            windows.iter().all(|(there, added)| there + added <= most)
        };
        let later = (1..=self.window + AHEAD + 1).find(fits)?;
        Some(((look.second + later + 1) * S - look.left).saturating_sub(now))
    }

    /// The longest wait that is told.
    pub(crate) fn longest(&self) -> Micros {
        (self.window + AHEAD + 1) * S
    }

    pub(crate) fn is_busy(&self, now: Micros) -> bool {
        self.newest(now).is_some()
    }

    fn newest(&self, now: Micros) -> Option<u64> {
        self.amounts(self.look(now))
            .into_iter()
            .rev()
            .find(|(_, amount)| *amount > 0)
            .map(|(second, _)| second)
    }

    /// Time until nothing counts any more.
    pub(crate) fn reset(&self, now: Micros) -> Micros {
        self.newest(now).map_or(0, |second| ((second + self.window + 1) * S).saturating_sub(now))
    }

    pub(crate) fn advance(&mut self, now: Micros) {
        let look = self.look(now);
        if look.restart {
            self.amounts = self.amounts(look).into_iter().collect();
        }
        self.last = look.second;
        self.amounts = self.amounts.split_off(&self.last.saturating_sub(self.window));
    }

    /// Starts anew if the clock is far behind.
    pub(crate) fn restart(&mut self, now: Micros) {
        if self.look(now).restart {
            self.advance(now);
        }
    }

    /// Writes an admission: its input now, its output into the seconds to come.
    pub(crate) fn plan(&mut self, now: Micros, flow: &Flow) {
        self.advance(now);
        self.add(self.last, flow.input.cast_signed());
        let mut before = 0;
        for (second, by) in (self.last..).zip(&flow.by) {
            self.add(second, (by - before).cast_signed());
            before = *by;
        }
    }

    /// Changes a second that has begun, while a window still sees it.
    pub(crate) fn correct(&mut self, now: Micros, second: u64, change: i64) {
        self.advance(now);
        if second <= self.last {
            self.add(second, change);
        }
    }

    pub(crate) fn heard(&self, batch: &Progress, now: Moment) -> Batch {
        let Some((seq, at)) = self.heard.get(&batch.gateway) else { return Batch::New };
        let age = at.age(now);
        if batch.seq > *seq || age.least >= PROGRESS_REMEMBER {
            Batch::New
        } else if age.most < PROGRESS_REMEMBER {
            Batch::Repeated
        } else {
            Batch::Either
        }
    }

    /// Writes a batch; how much of it found no place.
    pub(crate) fn apply(&mut self, now: Micros, batch: &Progress, moment: Moment) -> u64 {
        self.advance(now);
        let seconds = (batch.base_second..).zip(&batch.deltas);
        let lost = seconds.map(|(second, delta)| self.add(second, *delta)).sum();
        self.heard.insert(batch.gateway, (batch.seq, moment));
        lost
    }

    /// Never below zero; what could not be added.
    fn add(&mut self, second: u64, change: i64) -> u64 {
        if change == 0 || !self.is_kept(second) {
            return change.unsigned_abs();
        }
        let there = self.amounts.entry(second).or_default();
        let below = if change < 0 { change.unsigned_abs().saturating_sub(*there) } else { 0 };
        *there = there.saturating_add_signed(change);
        below
    }
}

impl Flow {
    pub(crate) const NOTHING: Self = Self { input: 0, by: Vec::new(), moved: (0, 0) };

    /// `seconds`: the account, if there is one.
    pub(crate) fn of(
        seconds: Option<&Seconds>,
        now: Micros,
        profile: Profile,
        (base, per_output): (u64, u64),
        output: u64,
    ) -> Self {
        let left = seconds.map_or(S - now % S, |seconds| seconds.look(now).left);
        let input = base.div_ceil(1000);
        let pace = profile.pace.clamp(1_000, 2_000_000);
        let by = (0..=AHEAD).map(|step| {
            let streamed = (left + step * S).saturating_sub(profile.ttft) / pace;
            amount(base, per_output, streamed.min(output)) - input
        });
        Self { input, by: by.collect(), moved: (0, 0) }
    }

    pub(crate) fn moving(self, moved: (u64, i64)) -> Self {
        Self { moved, ..self }
    }

    /// What it adds to the window that ends `step` seconds from now; a strict one sees its oldest second whole.
    fn within(&self, step: u64, window: u64, strict: bool) -> u64 {
        let by = |step: Option<u64>| {
            let at = step.and_then(|step| usize::try_from(step).ok());
            at.and_then(|at| self.by.get(at)).copied().unwrap_or(0)
        };
        let input = if step < window + u64::from(strict) { self.input } else { 0 };
        input + by(Some(step)) - by(step.checked_sub(window + 1))
    }
}

/// A busy account leaves a hundredth, but for a strict one that counts no output.
pub(crate) fn usable(ceiling: u64, headroom: bool) -> u64 {
    if headroom { ceiling - ceiling * 10 / 1024 } else { ceiling }
}

pub(crate) fn spares(leg: &Leg) -> bool {
    match leg.shape {
        Shape::Forecast { strict, .. } => !strict || leg.measure != Measure::InputTokens,
        Shape::Rate { .. } | Shape::Quota | Shape::Concurrency => false,
    }
}
