//! The seconds of a forecast account: what landed in those that have passed, what is planned in those ahead.
//!
//! Invariants: `past` is the sum over the window and the second before it, `ahead` the sum over the seconds planned;
//! together at most 2^53 − 1. Reading does not write: [`Track::at`] says where a time falls, the other reads take that.
//! Before a write comes [`Track::advance`]. A second ahead turns into a past one by the clock alone, so a plan that
//! nobody replaces is gone from every window [`FORECAST_AHEAD`] seconds and one window later.
//! When the clock steps back: by more than two windows the track restarts at the new time, with what was in the window
//! in the current second and no plan; by less it stands still.

use core::ops::RangeInclusive;

use crate::command::{Leg, Profile};
use crate::event::{GatewayRow, HeldLeg};
use crate::units::{
    AMOUNT_MAX, FORECAST_AHEAD, FORECAST_WINDOW_MAX, Micros, PROGRESS_GATEWAYS_MAX, PROGRESS_REMEMBER,
    SECOND, signed,
};

/// Cells of the ring: a power of two, at least window + 1 + [`FORECAST_AHEAD`] + 1.
const CELLS: usize = 128;
/// Seconds in which a decision looks for the fullest window: the current one and those that a plan reaches.
const LOOKS: usize = FORECAST_AHEAD as usize;
/// The part of a window that the discount of its oldest second is limited to.
const FORGOTTEN: u64 = 16;
/// Seconds that hold a call's planned output.
pub(super) const PLANNED: usize = FORECAST_AHEAD as usize + 1;
/// Seconds a decision can see: window and oldest second, the current one and those ahead, and as many moved on.
const SEEN: usize = FORECAST_WINDOW_MAX as usize + 2 * PLANNED + LOOKS;

#[derive(Clone, Debug)]
pub(crate) struct Track {
    /// By second modulo [`CELLS`]; `None`: all zero.
    cells: Option<Box<[u64; CELLS]>>,
    /// The last second written at.
    last: u64,
    past: u64,
    ahead: u64,
    window: u8,
    strict: bool,
    gateways: Vec<GatewayRow>,
}

/// Where a time falls on a track.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) second: u64,
    /// What is left of the second; all of it while standing still.
    left: Micros,
    restart: bool,
}

/// The seconds that a decision sees, and the end of those that hold something.
struct Seen {
    amounts: [u64; SEEN],
    end: usize,
}

/// How one call lands on a forecast account: input now, output after the time to the first llm_token, at a pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    base: u64,
    per_output: u64,
    output: u64,
    profile: Profile,
    /// What is left of the current second.
    left: Micros,
}

/// The same, second by second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) input: u64,
    /// Output that has landed by the end of the current second, and of each one after it.
    by: [u64; PLANNED],
    /// The first second by whose end all of it has landed.
    last: usize,
    /// An amount already posted that changes in the same step (L18): the second and the difference.
    moved: (u64, i64),
}

/// The window now, and the fullest window of those to come, without and with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fullest {
    pub(crate) now: u64,
    pub(crate) without: u64,
    pub(crate) with: u64,
}

/// What of a batch of progress found no place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Misplaced {
    /// Differences for seconds that have left, or are too far ahead.
    pub(crate) outside: u64,
    /// Amounts that would have made a second negative.
    pub(crate) below: u64,
    pub(crate) saturated: bool,
}

impl Track {
    /// The window is bounded by the shape check; a damaged log gets the nearest that can be.
    pub(crate) fn new(window: u8, strict: bool) -> Self {
        let window = window.clamp(1, FORECAST_WINDOW_MAX);
        Self { cells: None, last: 0, past: 0, ahead: 0, window, strict, gateways: Vec::new() }
    }

    pub(crate) fn shape(&self) -> (u8, bool) {
        (self.window, self.strict)
    }

    pub(crate) fn at(&self, now: Micros) -> At {
        let at = At::fresh(now);
        if at.second >= self.last {
            return at;
        }
        if self.last - at.second > 2 * u64::from(self.window) {
            return At { restart: true, ..at };
        }
        At { second: self.last, left: SECOND, restart: false }
    }

    /// Something is posted or planned at a time.
    #[inline]
    pub(crate) fn is_busy(&self, at: At) -> bool {
        self.past + self.ahead > 0 && (at.second == self.last || self.newest(at).is_some())
    }

    pub(crate) fn restarts(&self, now: Micros) -> bool {
        self.at(now).restart
    }

    /// What may be used of a ceiling: with headroom 10/1024 is left for uncertainty. An empty account needs none, nor does
    /// one whose oldest second counts whole.
    #[inline]
    pub(crate) fn usable(ceiling: u64, headroom: bool) -> u64 {
        // Ceilings of forecast accounts are small enough; of others nothing is left over.
        if headroom { ceiling - ceiling.saturating_mul(10) / 1024 } else { ceiling }
    }

    /// The window at a time, the fullest of those to come, and the time until the account is empty if nothing else comes.
    pub(crate) fn standing(&self, now: Micros) -> (Fullest, Micros) {
        let at = self.at(now);
        let Some(cells) = self.cells_at(at) else {
            return (self.fullest(at, &Flow::NOTHING), self.reset(at, now));
        };
        let (fullest, planned) = self.look(cells, at.left, |_| 0, 0);
        // The look has found the last second that holds something, unless none of those ahead does.
        let newest = if planned > 0 { Some(self.last + planned as u64) } else { self.newest(at) };
        (fullest, newest.map_or(0, |second| self.empty_after(second, now)))
    }

    /// Nothing that a window sees from a time on is more than this.
    #[inline]
    pub(crate) fn most(&self, moved: (u64, i64)) -> u64 {
        let more = u64::try_from(moved.1).unwrap_or(0);
        (self.past + self.ahead).saturating_add(more)
    }

    /// The fullest of the windows that end with the current second and with each one a plan reaches.
    pub(crate) fn fullest(&self, at: At, flow: &Flow) -> Fullest {
        let whole = self.strict;
        let window = usize::from(self.window);
        match self.cells_at(at) {
            Some(cells) if flow.moved.1 == 0 => {
                self.look(cells, at.left, |step| flow.within(step, window, whole), flow.last).0
            }
            _ => self.fullest_seen(at, flow),
        }
    }

    /// As [`Track::look`], at any time and with an amount moved.
    fn fullest_seen(&self, at: At, flow: &Flow) -> Fullest {
        let seen = self.view(at, flow);
        let (mut now, mut without, mut with) = (0, 0, 0);
        self.windows(&seen, 0, at.left, flow, |step, existing, added| {
            if step == 0 {
                now = existing;
            }
            without = without.max(existing);
            with = with.max(existing.saturating_add(added));
            true
        });
        Fullest { now, without, with }
    }

    /// The cells, if they stand as a time sees them: its second was written at, and the window begins behind second 0.
    #[inline]
    fn cells_at(&self, at: At) -> Option<&[u64; CELLS]> {
        let as_kept = at.second == self.last && !at.restart && self.last >= u64::from(self.window);
        self.cells.as_deref().filter(|_| as_kept)
    }

    /// The fullest window from the last second written at on, and how many seconds ahead the last one with a plan is. Running sums tell where the first window begins and behind
    /// which second nothing is planned, so that only the seconds ahead that hold something are looked at.
    #[inline]
    fn look(
        &self,
        cells: &[u64; CELLS],
        left: Micros,
        added: impl Fn(usize) -> u64,
        last: usize,
    ) -> (Fullest, usize) {
        let first = index(self.last - u64::from(self.window));
        let amount = |place: usize| cells.get((first + place) % CELLS).copied().unwrap_or(0);
        let window = usize::from(self.window);
        let mut oldest = amount(0);
        let (mut sum, mut planned) = (self.past.saturating_sub(oldest), self.ahead);
        let (mut fullest, mut reach) = (Fullest::default(), 0);
        for step in 0..LOOKS {
            let more = added(step);
            // With its oldest second whole it would have to be fuller than the fullest so far.
            let most = sum + oldest;
            if most > fullest.without || most.saturating_add(more) > fullest.with {
                let existing = sum + self.inside(sum, oldest, left);
                fullest.without = fullest.without.max(existing);
                fullest.with = fullest.with.max(existing.saturating_add(more));
            }
            if step == 0 {
                fullest.now = fullest.without;
            }
            if planned == 0 && step >= last {
                break;
            }
            let comes = amount(step + window + 1);
            if comes > 0 {
                (planned, reach) = (planned.saturating_sub(comes), step + 1);
            }
            oldest = amount(step + 1);
            sum = (sum + comes).saturating_sub(oldest);
        }
        (fullest, reach)
    }

    /// What counts of a window's oldest second, `sum` being in the others.
    #[inline]
    fn inside(&self, sum: u64, oldest: u64, left: Micros) -> u64 {
        if self.strict { oldest } else { part(oldest, left).max(least(sum, oldest)) }
    }

    /// Seconds after which the call fits below `ceiling` if nothing else comes: the first at which every window does.
    pub(crate) fn wait(&self, at: At, flow: &Flow, (ceiling, spares): (u64, bool)) -> Option<u64> {
        let seen = self.view(at, flow);
        (1..=PLANNED + usize::from(self.window)).find_map(|moved| {
            let busy = seen.amounts.iter().skip(moved).any(|amount| *amount > 0);
            let usable = Self::usable(ceiling, busy && spares);
            let fits = moved < SEEN
                && self.windows(&seen, moved, at.left, flow, |_, existing, added| {
                    existing.saturating_add(added) <= usable
                });
            fits.then_some(moved as u64)
        })
    }

    /// Calls `each` with every window's number of seconds ahead, what is there, and what the call would add, until it
    /// says no; `moved` seconds from now. Behind the last second that holds or gets something windows only get emptier:
    /// none of those is looked at.
    fn windows(
        &self,
        seen: &Seen,
        moved: usize,
        left: Micros,
        flow: &Flow,
        mut each: impl FnMut(usize, u64, u64) -> bool,
    ) -> bool {
        let window = usize::from(self.window);
        let amount = |index: usize| seen.amounts.get(index).copied().unwrap_or(0);
        // Index 0 is the oldest second, still partly inside the window that ends now.
        let mut sum: u64 = seen.amounts.iter().skip(moved + 1).take(window).sum();
        let changes = seen.end.saturating_sub(window + moved).max(flow.last + 1);
        for step in 0..changes.min(LOOKS) {
            let oldest = amount(moved + step);
            let inside = self.inside(sum, oldest, left);
            let added = flow.within(step, window, self.strict);
            if !each(step, sum + inside, added) {
                return false;
            }
            sum = (sum + amount(moved + step + window + 1)).saturating_sub(amount(moved + step + 1));
        }
        true
    }

    /// The seconds from the oldest one inside the window on, as a decision at a time sees them.
    fn view(&self, at: At, flow: &Flow) -> Seen {
        let window = u64::from(self.window);
        let mut seen = Seen { amounts: [0; SEEN], end: 0 };
        if self.past + self.ahead > 0 {
            let oldest = at.second.wrapping_sub(window);
            let seconds = (0..).map(|step| oldest.wrapping_add(step));
            let amounts = seen.amounts.iter_mut().take(usize::from(self.window) + PLANNED);
            for ((second, amount), end) in seconds.zip(amounts).zip(1..) {
                *amount = self.read(at, second);
                if *amount > 0 {
                    seen.end = end;
                }
            }
        }
        let (second, change) = flow.moved;
        if change != 0
            && let Some(index) =
                (second + window).checked_sub(at.second).and_then(|i| usize::try_from(i).ok())
            && let Some(amount) = seen.amounts.get_mut(index)
        {
            *amount = amount.saturating_add_signed(change);
            if *amount > 0 {
                seen.end = seen.end.max(index + 1);
            }
        }
        seen
    }

    fn read(&self, at: At, second: u64) -> u64 {
        if at.restart {
            return if second == at.second { self.past } else { 0 };
        }
        self.cell(second)
    }

    #[inline]
    fn kept(&self) -> RangeInclusive<u64> {
        let oldest = self.last.saturating_sub(u64::from(self.window));
        oldest..=self.last.saturating_add(u64::from(FORECAST_AHEAD))
    }

    #[inline]
    fn is_kept(&self, second: u64) -> bool {
        self.kept().contains(&second)
    }

    #[inline]
    fn cell(&self, second: u64) -> u64 {
        match &self.cells {
            Some(cells) if self.is_kept(second) => cells.get(index(second)).copied().unwrap_or(0),
            _ => 0,
        }
    }

    fn set(&mut self, second: u64, amount: u64) {
        if self.cells.is_none() && amount == 0 {
            return;
        }
        let cells = self.cells.get_or_insert_with(|| Box::new([0; CELLS]));
        if let Some(cell) = cells.get_mut(index(second)) {
            *cell = amount;
        }
    }

    /// Make the second of `now` the last one; true if the track had to restart.
    pub(crate) fn advance(&mut self, now: Micros) -> bool {
        let at = self.at(now);
        if at.second == self.last {
            return false;
        }
        let (window, reach) = (u64::from(self.window), u64::from(FORECAST_AHEAD));
        if at.restart || at.second - self.last > window + reach {
            let kept = if at.restart { self.past } else { 0 };
            self.cells = None;
            (self.last, self.past, self.ahead) = (at.second, kept, 0);
            self.set(at.second, kept);
            return kept > 0;
        }
        for second in self.last + 1..=at.second {
            let leaves = second.checked_sub(window + 1).map_or(0, |oldest| self.cell(oldest));
            let lands = self.cell(second);
            self.past = (self.past + lands).saturating_sub(leaves);
            self.ahead = self.ahead.saturating_sub(lands);
            self.last = second;
            self.set(second + reach, 0);
        }
        false
    }

    /// Add to a second, never below zero; what could not be added. The track has been advanced.
    fn add(&mut self, second: u64, amount: i64) -> u64 {
        if !self.is_kept(second) {
            return amount.unsigned_abs();
        }
        let cell = self.cell(second);
        let room = AMOUNT_MAX.saturating_sub(self.past + self.ahead);
        let wanted = amount.unsigned_abs();
        let done = if amount < 0 { wanted.min(cell) } else { wanted.min(room) };
        let side = if second > self.last { &mut self.ahead } else { &mut self.past };
        if amount < 0 {
            *side -= done;
            self.set(second, cell - done);
        } else {
            *side += done;
            self.set(second, cell + done);
        }
        wanted - done
    }

    /// Write an admitted call: its input now, its output into the seconds to come. True if an amount was cut.
    pub(crate) fn plan(&mut self, landing: &Landing) -> bool {
        let mut cut = self.add(self.last, signed(landing.input()));
        for (second, planned) in (self.last..).zip(landing.output()).filter(|(_, planned)| *planned > 0) {
            cut += self.add(second, signed(planned));
        }
        cut > 0
    }

    /// Change the second that took a call's input, while it is in the window; what found no place.
    pub(crate) fn correct(&mut self, second: u64, amount: i64) -> u64 {
        if second > self.last {
            return amount.unsigned_abs();
        }
        self.add(second, amount)
    }

    /// A batch of a gateway is new: it has a larger number than the one before.
    pub(crate) fn is_new(&self, gateway: u64, seq: u64, steady: Micros) -> bool {
        let known = self.gateways.iter().find(|row| row.gateway == gateway);
        known.is_none_or(|row| seq > row.seq || is_forgotten(row, steady))
    }

    /// Apply a batch; the track has been advanced.
    pub(crate) fn progress(&mut self, base: u64, deltas: &[i64]) -> Misplaced {
        let mut misplaced = Misplaced::default();
        let kept = self.kept();
        let (mut past, mut ahead) = (self.past, self.ahead);
        let cells = self.cells.get_or_insert_with(|| Box::new([0; CELLS]));
        let seconds = (0..).map(|step| base.saturating_add(step));
        for (second, delta) in seconds.zip(deltas.iter().copied()).filter(|(_, delta)| *delta != 0) {
            let wanted = delta.unsigned_abs();
            let cell = cells.get_mut(index(second)).filter(|_| kept.contains(&second));
            let Some(cell) = cell else {
                misplaced.outside = misplaced.outside.saturating_add(wanted);
                continue;
            };
            let room = if delta < 0 { *cell } else { AMOUNT_MAX.saturating_sub(past + ahead) };
            let done = wanted.min(room);
            let side = if second > self.last { &mut ahead } else { &mut past };
            if delta < 0 {
                (*cell, *side) = (*cell - done, *side - done);
                misplaced.below = misplaced.below.saturating_add(wanted - done);
            } else {
                (*cell, *side) = (*cell + done, *side + done);
                misplaced.saturated |= done < wanted;
            }
        }
        (self.past, self.ahead) = (past, ahead);
        misplaced
    }

    /// Remember a gateway's last batch, and forget the gateways that are silent.
    pub(crate) fn heard(&mut self, gateway: u64, seq: u64, steady: Micros) {
        // Most accounts hear of one gateway.
        if let [row] = self.gateways.as_mut_slice()
            && row.gateway == gateway
        {
            (row.seq, row.heard) = (seq, steady);
            return;
        }
        self.gateways.retain(|row| row.gateway != gateway && !is_forgotten(row, steady));
        if self.gateways.len() >= PROGRESS_GATEWAYS_MAX {
            let oldest = self.gateways.iter().enumerate().min_by_key(|(_, row)| row.heard);
            if let Some((index, _)) = oldest {
                self.gateways.remove(index);
            }
        }
        self.gateways.push(GatewayRow { gateway, seq, heard: steady });
    }

    /// Time until the account is empty if nothing else comes.
    pub(crate) fn reset(&self, at: At, now: Micros) -> Micros {
        self.newest(at).map_or(0, |second| self.empty_after(second, now))
    }

    /// Time until what is in a second has left the window.
    fn empty_after(&self, second: u64, now: Micros) -> Micros {
        let after = u64::from(self.window) + 1;
        second.saturating_add(after).saturating_mul(SECOND).saturating_sub(now)
    }

    /// The last second with an amount that some window from a time on sees.
    fn newest(&self, at: At) -> Option<u64> {
        if self.past + self.ahead == 0 {
            return None;
        }
        let from = at.second.saturating_sub(u64::from(self.window));
        let reach = if self.ahead > 0 { u64::from(FORECAST_AHEAD) } else { 0 };
        let to = at.second.saturating_add(reach);
        (from..=to).rev().find(|second| self.read(at, *second) > 0)
    }

    /// Nothing is in any window from `now` on.
    pub(crate) fn is_clear(&self, now: Micros) -> bool {
        self.newest(self.at(now)).is_none()
    }

    /// What could be taken back out of a second now.
    pub(crate) fn refundable(&self, at: At, second: u64) -> u64 {
        if second <= at.second { self.read(at, second) } else { 0 }
    }

    pub(crate) fn gateways(&self) -> &[GatewayRow] {
        &self.gateways
    }

    /// The last second written, and the amounts from the oldest kept second on, without trailing zeros.
    pub(crate) fn dump(&self, into: &mut Vec<u64>) -> u64 {
        into.clear();
        let oldest = self.last.saturating_sub(u64::from(self.window));
        let seconds = usize::from(self.window) + PLANNED;
        into.extend((oldest..).take(seconds).map(|second| self.cell(second)));
        while into.last() == Some(&0) {
            into.pop();
        }
        self.last
    }

    /// The inverse of [`Track::dump`], on a new track.
    pub(crate) fn load(&mut self, last: u64, amounts: &[u64], gateways: &[GatewayRow]) {
        // No later second than engine time can name.
        self.last = last.min(Micros::MAX / SECOND);
        let last = self.last;
        let oldest = last.saturating_sub(u64::from(self.window));
        let seconds = usize::from(self.window) + PLANNED;
        for (second, amount) in (oldest..).zip(amounts.iter().take(seconds)) {
            self.add(second, signed(*amount));
        }
        self.gateways.extend(gateways.iter().take(PROGRESS_GATEWAYS_MAX));
    }
}

impl At {
    /// The time so many whole seconds later.
    pub(crate) fn after(self, seconds: u64) -> Micros {
        (self.second + seconds + 1).saturating_mul(SECOND).saturating_sub(self.left)
    }

    /// On an account that nothing was written to.
    pub(crate) fn fresh(now: Micros) -> Self {
        Self { second: now / SECOND, left: SECOND - now % SECOND, restart: false }
    }
}

impl Landing {
    pub(crate) fn new(at: At, profile: Profile, coefficients: (u64, u64), output: u64) -> Self {
        let (base, per_output) = coefficients;
        Self { base, per_output, output, profile, left: at.left }
    }

    /// As an account that stands still for nobody plans it at its door.
    pub(crate) fn at_door(now: Micros, profile: Profile, coefficients: (u64, u64), output: u64) -> Self {
        Self::new(At::fresh(now), profile, coefficients, output)
    }

    pub(crate) fn of_leg(at: At, profile: Profile, leg: &Leg, output: u64) -> Self {
        Self::new(at, profile, (leg.base, leg.per_output), output)
    }

    pub(crate) fn of_held(at: At, profile: Profile, leg: &HeldLeg) -> Self {
        Self::new(at, profile, (leg.base, leg.per_output), leg.output)
    }

    #[inline]
    pub(crate) fn input(&self) -> u64 {
        self.base.div_ceil(1000)
    }

    /// Output that is planned for the current second and each one after it, until all of it has landed.
    #[inline]
    pub(crate) fn output(&self) -> impl Iterator<Item = u64> + '_ {
        let (input, pace) = (self.input(), self.profile.pace());
        let mut landed = 0;
        let mut done = self.per_output == 0 || self.output == 0;
        (0..PLANNED as u64).map_while(move |step| {
            if done {
                return None;
            }
            let ends = self.left + step * SECOND;
            let streamed = (ends.saturating_sub(self.profile.ttft) / pace).min(self.output);
            done = streamed == self.output;
            let by =
                self.base.saturating_add(self.per_output.saturating_mul(streamed)).div_ceil(1000) - input;
            Some(by - core::mem::replace(&mut landed, by))
        })
    }
}

impl Flow {
    pub(crate) const NOTHING: Self = Self { input: 0, by: [0; PLANNED], last: 0, moved: (0, 0) };

    pub(crate) fn new(landing: &Landing) -> Self {
        let mut flow = Self { input: landing.input(), ..Self::NOTHING };
        if landing.per_output == 0 || landing.output == 0 {
            return flow;
        }
        let mut sum = 0;
        let mut seconds = 0;
        for (by, planned) in flow.by.iter_mut().zip(landing.output()) {
            sum += planned;
            *by = sum;
            seconds += 1;
        }
        flow.last = seconds - 1;
        if let Some(rest) = flow.by.get_mut(seconds..) {
            rest.fill(sum);
        }
        flow
    }

    /// With what an ending attempt changes in the same step.
    pub(crate) fn moving(self, moved: (u64, i64)) -> Self {
        Self { moved, ..self }
    }

    /// What the call adds to the window that ends `step` seconds from now; with its oldest second `whole`, the input stays
    /// for one more.
    #[inline]
    fn within(&self, step: usize, window: usize, whole: bool) -> u64 {
        let by = |index: Option<usize>| index.and_then(|index| self.by.get(index)).copied().unwrap_or(0);
        let input = if step < window + usize::from(whole) { self.input } else { 0 };
        input + (by(Some(step)) - by(step.checked_sub(window + 1)))
    }
}

/// The part of the oldest second's amount still inside the window, rounded up.
#[inline]
fn part(amount: u64, left: Micros) -> u64 {
    if amount == 0 || left >= SECOND {
        return amount;
    }
    // Amounts below 2^43 fit, and more is rare.
    if let Some(product) = amount.checked_mul(left) {
        return product.div_ceil(SECOND);
    }
    let inside = (u128::from(amount) * u128::from(left)).div_ceil(u128::from(SECOND));
    u64::try_from(inside).unwrap_or(amount)
}

/// What counts of the oldest second at the least: at most a sixteenth of all is forgotten of it, however little is still
/// inside the window. Where it is more, it did not land evenly, and a burst would be half forgotten before it has left.
#[inline]
fn least(sum: u64, oldest: u64) -> u64 {
    oldest.saturating_sub((sum + oldest) / FORGOTTEN)
}

fn is_forgotten(row: &GatewayRow, steady: Micros) -> bool {
    row.heard.saturating_add(PROGRESS_REMEMBER) <= steady
}

#[inline]
fn index(second: u64) -> usize {
    usize::try_from(second % CELLS as u64).unwrap_or(0)
}

/// Equal state: what is kept, not what lies in cells that are no longer read.
impl PartialEq for Track {
    fn eq(&self, other: &Self) -> bool {
        let oldest = self.last.saturating_sub(u64::from(self.window));
        let seconds = usize::from(self.window) + PLANNED;
        (self.last, self.window, self.strict) == (other.last, other.window, other.strict)
            && self.gateways == other.gateways
            && (oldest..).take(seconds).all(|second| self.cell(second) == other.cell(second))
    }
}

impl Eq for Track {}
