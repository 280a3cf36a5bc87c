//! What a gateway tells forecast accounts about its streams: when output landed, and when more is expected.
//!
//! Pure arithmetic, for those who call [`crate::Book::progress`]. A [`Stream`] is one call as one account sees it; a
//! [`Share`] is what one gateway has booked on one account. At every flush the share is told of all its live streams
//! and sends the difference between what it wants booked and what is booked. So an ended stream is removed by not being
//! told of, and a flush costs a few additions per stream however long it runs.
//! Invariant: `booked` is, second by second, what admissions and the batches that [`Share::flush`] made have written.
//! A batch is given out until it is acknowledged, always under the same number; nothing new is sent before that. Numbers
//! begin at the engine time at which a share is made: an account remembers its gateway for longer than a share lives, and
//! a share that is made anew must not be taken for a repeat. Time may step back, so a caller that forgets shares keeps the
//! largest number of those and makes new ones above it.

use crate::account::AccountId;
use crate::book::Landing;
use crate::command::{Profile, Progress};
use crate::units::{FORECAST_AHEAD, FORECAST_WINDOW_MAX, Micros, SECOND, signed};

/// Seconds a share keeps, by second modulo this.
const CELLS: usize = 128;
/// A stream is always expected to go on for so long.
const TAIL: Micros = 10 * SECOND;
/// What a stream's expected output is multiplied by when it turns out too small: it was twice a mean that no longer holds.
const OUTGROWS: u64 = 4;
/// Amounts per second are kept in parts of this, so that many slow streams do not round to nothing.
const PARTS: i64 = 1 << 16;
/// The largest output that one ramp carries: 2^26 llm_tokens.
const RAMP_MAX: u64 = 1 << 26;

/// Output that lands evenly over a span of engine time; negative takes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ramp {
    pub from: Micros,
    pub to: Micros,
    /// llm_tokens.
    pub output: i64,
}

/// What a gateway has seen of a call's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It streams: so much in all, the first of it at an engine time.
    Output { output: u64, first: Micros },
    /// An answer in one piece shows nothing until it is there: it is taken to go by its plan.
    Nothing,
}

/// One call's stream on one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    expected: u64,
    cap: u64,
    pace: Micros,
    /// When the first llm_token was planned, later when it was seen.
    begins: Micros,
    /// Taken as landed up to `flushed`.
    landed: u64,
    flushed: Micros,
}

/// What one flush says of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    pub landed: Ramp,
    pub coming: Ramp,
    /// The stream outgrew its forecast; so much is expected now, and is to be learned at once.
    pub outgrown: Option<u64>,
}

impl Stream {
    /// A call that was admitted at `now` with `expected` output on this account, `cap` at most.
    pub fn admitted(now: Micros, profile: Profile, expected: u64, cap: u64) -> Self {
        let begins = now.saturating_add(profile.ttft);
        Self { expected, cap, pace: profile.pace(), begins, landed: 0, flushed: now }
    }

    /// Where the stream stands now.
    pub fn flush(&mut self, now: Micros, seen: Seen) -> Told {
        let now = now.max(self.flushed);
        let (output, outgrown) = match seen {
            Seen::Output { output, first } => self.watched(now, output.max(self.landed), first),
            Seen::Nothing => return self.go_by_plan(now),
        };
        let landed = self.land(now, output);
        let left = self.tail(output) - output.min(self.tail(output));
        let from = now.max(if output == 0 { self.begins } else { 0 });
        let to = from.saturating_add(left.saturating_mul(self.pace));
        Told { landed, coming: Ramp { from, to, output: signed(left) }, outgrown }
    }

    /// The call has ended with so much output in all: what is still to be told. Nothing more is coming.
    pub fn end(mut self, now: Micros, seen: Seen, output: u64) -> [Ramp; 2] {
        let now = now.max(self.flushed);
        if seen == Seen::Nothing {
            // Only now it is known how the answer came: what was taken as landed makes way for it.
            let to = self.planned_at(self.landed);
            let taken = Ramp { from: self.begins, to, output: -signed(self.landed) };
            let from = self.begins.min(now);
            return [taken, Ramp { from, to: now, output: signed(output) }];
        }
        if let Seen::Output { first, .. } = seen {
            self.begins = first.min(now);
        }
        [self.land(now, output.max(self.landed)), Ramp::default()]
    }

    /// Learn pace and begin of a stream that shows its output.
    fn watched(&mut self, now: Micros, output: u64, first: Micros) -> (u64, Option<u64>) {
        if output == 0 {
            return (0, None);
        }
        self.begins = first.min(now);
        let (slowest, fastest) = (Profile::PACES.1, Profile::PACES.0);
        self.pace = ((now - self.begins) / output).clamp(fastest, slowest);
        if output <= self.expected || self.expected >= self.cap {
            return (output, None);
        }
        let grown = self.expected.saturating_mul(OUTGROWS).max(output.saturating_add(TAIL / self.pace));
        self.expected = grown.min(self.cap);
        (output, Some(self.expected))
    }

    /// When the plan has so much output.
    fn planned_at(&self, output: u64) -> Micros {
        self.begins.saturating_add(output.saturating_mul(self.pace))
    }

    /// What was planned until now is taken as landed, the rest as coming.
    fn go_by_plan(&mut self, now: Micros) -> Told {
        let until = (now.saturating_sub(self.begins) / self.pace).min(self.expected).max(self.landed);
        let ramp = |from: u64, to: u64| Ramp {
            from: self.planned_at(from),
            to: self.planned_at(to),
            output: signed(to - from),
        };
        let (landed, coming) = (ramp(self.landed, until), ramp(until, self.expected.max(until)));
        (self.landed, self.flushed) = (until, now);
        Told { landed, coming, outgrown: None }
    }

    /// Output expected in all: never less than what ten more seconds would bring.
    fn tail(&self, output: u64) -> u64 {
        let expected = if output == 0 {
            self.expected
        } else {
            self.expected.max(output.saturating_add(TAIL / self.pace))
        };
        expected.min(self.cap)
    }

    fn land(&mut self, now: Micros, output: u64) -> Ramp {
        let from = self.flushed.max(self.begins.min(now));
        let ramp = Ramp { from, to: now, output: signed(output).saturating_sub(signed(self.landed)) };
        (self.landed, self.flushed) = (output, now);
        ramp
    }
}

/// What one gateway has booked on one forecast account.
#[derive(Clone, Debug)]
pub struct Share {
    account: AccountId,
    /// Of the account, in seconds: so many that have passed, and the one before, still count.
    window: u8,
    /// What is booked, by second.
    booked: Box<[i64; CELLS]>,
    /// What has landed, by second, in [`PARTS`].
    landed: Box<[i64; CELLS]>,
    /// What is coming, in [`PARTS`], told since the last flush: amounts, and changes of the amount per second.
    coming: Option<Box<Coming>>,
    /// The last second of `booked` and `landed` that has begun.
    last: u64,
    /// The first second that has changed since the last flush.
    changed: u64,
    seq: u64,
    unacknowledged: Option<Progress>,
}

#[derive(Clone, Debug)]
struct Coming {
    amounts: [i64; CELLS],
    slopes: [i64; CELLS],
}

impl Default for Coming {
    fn default() -> Self {
        Self { amounts: [0; CELLS], slopes: [0; CELLS] }
    }
}

impl Share {
    /// Nothing is booked; `window` is the account's, `now` is engine time.
    pub fn new(account: AccountId, window: u8, now: Micros) -> Self {
        let last = now / SECOND;
        Self {
            account,
            window: window.min(FORECAST_WINDOW_MAX),
            booked: Box::new([0; CELLS]),
            landed: Box::new([0; CELLS]),
            coming: None,
            last,
            changed: last,
            seq: now,
            unacknowledged: None,
        }
    }

    /// Its numbers begin above those of shares that its gateway has forgotten.
    #[must_use]
    pub fn above(mut self, seq: u64) -> Self {
        self.seq = self.seq.max(seq);
        self
    }

    pub fn account(&self) -> AccountId {
        self.account
    }

    /// The number of its last batch.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// A call was admitted at `now`: the account has written its plan. `coefficients` and `output` are those of its leg.
    pub fn admitted(&mut self, now: Micros, profile: Profile, coefficients: (u64, u64), output: u64) {
        self.advance(now);
        let landing = Landing::at_door(now, profile, coefficients, output);
        let second = now / SECOND;
        for (second, planned) in (second..).zip(landing.output()).filter(|(_, planned)| *planned > 0) {
            if self.is_kept(second)
                && let Some(cell) = self.booked.get_mut(index(second))
            {
                *cell = cell.saturating_add(signed(planned));
            }
        }
        self.changed = self.changed.min(second);
    }

    /// Output has landed; `per_output` as in the leg.
    pub fn land(&mut self, now: Micros, ramp: Ramp, per_output: u64) {
        self.advance(now);
        if ramp.output == 0 {
            return;
        }
        self.changed = self.changed.min(ramp.from / SECOND);
        let Pieces { first, rate, last } = Pieces::of(ramp, per_output);
        let (from, to) = (ramp.from / SECOND, ramp.to / SECOND);
        self.put(from, first);
        for second in (from + 1).max(self.oldest())..to {
            self.put(second, rate);
        }
        self.put(to, last);
    }

    /// Output is expected; forgotten by the flush that comes next.
    pub fn come(&mut self, ramp: Ramp, per_output: u64) {
        if ramp.output <= 0 {
            return;
        }
        let Pieces { first, rate, last } = Pieces::of(ramp, per_output);
        let horizon = self.last + u64::from(FORECAST_AHEAD);
        let (from, to) = (ramp.from / SECOND, ramp.to / SECOND);
        let Coming { amounts, slopes } = &mut **self.coming.get_or_insert_with(Box::default);
        let add = |cells: &mut [i64; CELLS], second: u64, amount: i64| {
            if second <= horizon
                && let Some(cell) = cells.get_mut(index(second))
            {
                *cell = cell.saturating_add(amount);
            }
        };
        add(amounts, from, first);
        // A slow one may have begun seconds ago: what it would have brought since then has passed.
        let full = (from + 1).max(self.last);
        if to >= full {
            add(slopes, full, rate);
            add(slopes, to, -rate);
            add(amounts, to, last);
        }
    }

    /// The batch that makes what is booked what was told of; `None` if it is that already. An unacknowledged batch comes
    /// again instead, and what was told since waits in the share.
    pub fn flush(&mut self, now: Micros, gateway: u64) -> Option<Progress> {
        self.advance(now);
        if self.unacknowledged.is_some() {
            self.coming = None;
            return self.unacknowledged.clone();
        }
        let coming = self.coming.take();
        let base_second = self.changed.max(self.oldest());
        let end = self.last + u64::from(FORECAST_AHEAD);
        let mut rate = 0_i64;
        let mut deltas = Vec::with_capacity(CELLS);
        for second in base_second..=end {
            let at = index(second);
            let mut wanted = self.landed.get(at).copied().unwrap_or(0);
            if second >= self.last {
                let told = |cells: fn(&Coming) -> &[i64; CELLS]| {
                    coming.as_deref().and_then(|coming| cells(coming).get(at)).copied().unwrap_or(0)
                };
                rate = rate.saturating_add(told(|coming| &coming.slopes));
                wanted = wanted.saturating_add(told(|coming| &coming.amounts).saturating_add(rate));
            }
            let wanted = wanted.max(0).saturating_add(PARTS / 2) / PARTS;
            let Some(booked) = self.booked.get_mut(at) else { continue };
            deltas.push(wanted - *booked);
            *booked = wanted;
        }
        while deltas.last() == Some(&0) {
            deltas.pop();
        }
        self.changed = self.last;
        if deltas.is_empty() {
            return None;
        }
        self.seq += 1;
        let batch = Progress { gateway, account: self.account, seq: self.seq, base_second, deltas };
        self.unacknowledged = Some(batch.clone());
        Some(batch)
    }

    /// The account has applied the batch, or had applied it before.
    pub fn acknowledged(&mut self, seq: u64) {
        if self.unacknowledged.as_ref().is_some_and(|batch| batch.seq <= seq) {
            self.unacknowledged = None;
        }
    }

    /// Nothing is booked or has landed that a window still sees, and no batch waits: the share can be forgotten.
    pub fn is_clear(&self) -> bool {
        let empty = |cells: &[i64; CELLS]| cells.iter().all(|amount| *amount == 0);
        self.unacknowledged.is_none() && empty(&self.booked) && empty(&self.landed)
    }

    fn oldest(&self) -> u64 {
        self.last.saturating_sub(u64::from(self.window))
    }

    fn is_kept(&self, second: u64) -> bool {
        (self.oldest()..=self.last + u64::from(FORECAST_AHEAD)).contains(&second)
    }

    fn put(&mut self, second: u64, parts: i64) {
        if second <= self.last
            && self.is_kept(second)
            && let Some(cell) = self.landed.get_mut(index(second))
        {
            *cell = cell.saturating_add(parts);
        }
    }

    /// Forget the seconds that leave, and begin those that come. A clock that steps back stands still.
    fn advance(&mut self, now: Micros) {
        let second = now / SECOND;
        if second <= self.last {
            return;
        }
        let skipped = (second - self.last).min(CELLS as u64);
        for step in 0..skipped {
            // What comes into reach takes the cells of what has left.
            let comes = index(second - step + u64::from(FORECAST_AHEAD));
            for cells in [&mut self.booked, &mut self.landed] {
                if let Some(cell) = cells.get_mut(comes) {
                    *cell = 0;
                }
            }
        }
        self.last = second;
    }
}

/// A ramp by seconds, in [`PARTS`] of the account's unit: its first second, every full one, its last.
struct Pieces {
    first: i64,
    rate: i64,
    last: i64,
}

impl Pieces {
    fn of(ramp: Ramp, per_output: u64) -> Self {
        let output = signed(ramp.output.unsigned_abs().min(RAMP_MAX));
        let units = if per_output == 1000 {
            output * PARTS
        } else {
            let parts = i128::from(output) * i128::from(per_output) * i128::from(PARTS) / 1000;
            i64::try_from(parts).unwrap_or(i64::MAX >> 8)
        };
        let sign = ramp.output.signum();
        let span = ramp.to.saturating_sub(ramp.from);
        let (from, to) = (ramp.from / SECOND, ramp.to / SECOND);
        if to <= from || span == 0 {
            return Self { first: sign * units, rate: 0, last: 0 };
        }
        let each = |micros: u64| {
            let parts = i128::from(units) * i128::from(micros) / i128::from(span);
            i64::try_from(parts).unwrap_or(0)
        };
        let first = each(SECOND - ramp.from % SECOND);
        let rate = each(SECOND);
        let full = i64::try_from(to - from - 1).unwrap_or(0);
        Self { first: sign * first, rate: sign * rate, last: sign * (units - first - rate * full) }
    }
}

/// Pace and time to the first llm_token of one model, as means of weight 0.1; 0: no sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    ttft: Micros,
    pace: Micros,
}

impl Pace {
    /// Learn from a stream that ended: when it began after its admission, how long it streamed, and how much.
    pub fn learn(&mut self, ttft: Micros, streamed: Micros, output: u64) {
        let (fastest, slowest) = Profile::PACES;
        let mean = |old: Micros, new: Micros| {
            if old == 0 { new } else { (old * 9 + new) / 10 }
        };
        self.ttft = mean(self.ttft, ttft.clamp(fastest, slowest * 30));
        if output > 1 {
            self.pace = mean(self.pace, (streamed / (output - 1)).clamp(fastest, slowest));
        }
    }

    /// What to plan the next call by.
    pub fn profile(&self) -> Profile {
        let first = Profile::default();
        let or = |value: Micros, default: Micros| if value == 0 { default } else { value };
        Profile { ttft: or(self.ttft, first.ttft), pace: or(self.pace, first.pace) }
    }
}

fn index(second: u64) -> usize {
    usize::try_from(second % CELLS as u64).unwrap_or(0)
}
