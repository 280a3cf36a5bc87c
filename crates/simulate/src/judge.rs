//! Judges decisions: what landed in every exact minute, and which refusals were needless.
//!
//! It knows nothing of the ledger and shares no code with it. From the decisions alone (arrival, admitted or not, start,
//! pace, input, output) it adds up what lands: input when the call arrives, output one llm_token at a time. Every exact
//! 60 s that ends on a grid of 0.25 s is compared with the limit. Shares are of the time from 120 s, when estimators have
//! seen something, to the last arrival, after which nobody asks any more; the peak is looked for until everything landed.
//! *Demand* is the same sum as if every call had been admitted. *Utilisation* is the mean of landed ÷ limit over the time
//! in which demand is at least the limit. A refusal is *false* if the call, as it truly would have run, fitted into every
//! exact 60 s beside all that really landed, also of calls admitted later, and beside the false refusals before it: so
//! many more calls could have been served than were, with perfect knowledge.

use crate::counts::{figure, index, wide};
use crate::replay::Decision;

/// Distance of two looks, in microseconds.
pub const STEP: u64 = 250_000;
/// Steps of an exact window: 60 s.
const WINDOW_STEPS: usize = 240;
/// Time before the first look that counts, in microseconds.
pub const WARM_UP: u64 = 120_000_000;

/// What of a call a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counted {
    #[default]
    Both,
    Input,
    Output,
}

impl Counted {
    pub fn of(self, input: u64, output: u64) -> u64 {
        match self {
            Self::Both => input.saturating_add(output),
            Self::Input => input,
            Self::Output => output,
        }
    }
}

/// What came of a limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    pub calls: u64,
    pub refused: u64,
    /// Refused although they would have fitted.
    pub false_refused: u64,
    /// llm_tokens that were asked for, and that were admitted.
    pub demanded: u64,
    pub admitted: u64,
    /// Mean of landed ÷ limit while demand is at least the limit; none if it never is.
    pub utilisation: Option<f64>,
    /// Shares of time in which more landed in the last 60 s than the limit, and than 1.05 times the limit.
    pub over: f64,
    pub over_5: f64,
    /// Most that landed in an exact 60 s, as a multiple of the limit.
    pub peak: f64,
    /// What was held for admitted calls ÷ what they used.
    pub hold_to_actual: Option<f64>,
    /// How often was looked; 0 if the trace is too short to be judged.
    pub looks: u64,
}

/// What landed and what was asked for, look by look, on one account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    pub account: u32,
    pub limit: u64,
    /// Time of the first look, in microseconds.
    pub from: u64,
    /// In the last 60 s, at every step.
    pub landed: Vec<u64>,
    pub demand: Vec<u64>,
    /// Arrival of every refused call, and whether the refusal was false.
    pub refusals: Vec<(u64, bool)>,
}

/// The figures, and the series of the account with the largest demand.
#[derive(Clone, PartialEq, Debug)]
pub struct Judgement {
    pub figures: Figures,
    pub series: Series,
}

/// Judges decisions in the order of arrival; `ceilings` has one limit per account.
pub fn judge(decisions: &[Decision], ceilings: &[u64], counted: Counted) -> Judgement {
    let mut accounts: Vec<Vec<&Decision>> = vec![Vec::new(); ceilings.len()];
    for decision in decisions {
        if let Some(account) = accounts.get_mut(index(u64::from(decision.account))) {
            account.push(decision);
        }
    }
    let last = decisions.last().map_or(0, |decision| decision.arrival);
    let mut sums = Sums::default();
    let mut widest = (0, Series::default());
    for (number, (account, limit)) in (0_u32..).zip(accounts.iter().zip(ceilings)) {
        let case = Case { decisions: account, limit: *limit, counted, last };
        let demanded = sums.add_calls(&case);
        let mut series = case.series(&mut sums);
        if demanded >= widest.0 {
            series.account = number;
            widest = (demanded, series);
        }
    }
    Judgement { figures: sums.figures(), series: widest.1 }
}

/// Sums over accounts and looks.
#[derive(Default)]
struct Sums {
    calls: u64,
    refused: u64,
    false_refused: u64,
    demanded: u64,
    admitted: u64,
    held: u64,
    looks: u64,
    busy: u64,
    used: f64,
    over: u64,
    over_5: u64,
    peak: f64,
}

/// One account and what was decided on it.
struct Case<'a> {
    decisions: &'a [&'a Decision],
    limit: u64,
    counted: Counted,
    /// Last arrival on any account.
    last: u64,
}

impl Sums {
    /// Counts the calls of an account; what they demanded.
    fn add_calls(&mut self, case: &Case<'_>) -> u64 {
        let before = self.demanded;
        for decision in case.decisions {
            let uses = case.counted.of(decision.input, decision.output);
            self.calls += 1;
            self.demanded += uses;
            if decision.admitted {
                self.admitted += uses;
                self.held = self.held.saturating_add(decision.expected);
            } else {
                self.refused += 1;
            }
        }
        self.demanded - before
    }

    #[allow(clippy::float_arithmetic, reason = "a figure for people")]
    fn look(&mut self, landed: u64, demand: u64, limit: u64) {
        self.looks += 1;
        if demand >= limit {
            self.busy += 1;
            self.used += figure(landed) / figure(limit.max(1));
        }
        self.over += u64::from(landed > limit);
        self.over_5 += u64::from(u128::from(landed) * 100 > u128::from(limit) * 105);
    }

    #[allow(clippy::float_arithmetic, reason = "figures for people")]
    fn figures(&self) -> Figures {
        let share = |part: u64| if self.looks == 0 { 0.0 } else { figure(part) / figure(self.looks) };
        Figures {
            calls: self.calls,
            refused: self.refused,
            false_refused: self.false_refused,
            demanded: self.demanded,
            admitted: self.admitted,
            utilisation: (self.busy > 0).then(|| self.used / figure(self.busy)),
            over: share(self.over),
            over_5: share(self.over_5),
            peak: self.peak,
            hold_to_actual: (self.admitted > 0).then(|| figure(self.held) / figure(self.admitted)),
            looks: self.looks,
        }
    }
}

impl Case<'_> {
    /// Looks at every step, and at every refusal.
    #[allow(clippy::float_arithmetic, reason = "the peak is a figure for people")]
    fn series(&self, sums: &mut Sums) -> Series {
        let counts = step_at(WARM_UP)..step_at(self.last) + 1;
        let landings = || self.decisions.iter().map(|decision| Landing::of(decision, self.counted));
        let from = landings().map(|landing| landing.input_at).min().unwrap_or(0);
        // Until everything has left the last window.
        let steps = landings().map(|landing| landing.end()).max().unwrap_or(0) + WINDOW_STEPS + 1 - from;
        let mut landed = vec![0_u64; steps];
        let mut demand = vec![0_u64; steps];
        for (decision, landing) in self.decisions.iter().zip(landings()) {
            landing.add(&mut demand, from);
            if decision.admitted {
                landing.add(&mut landed, from);
            }
        }
        let first = landed.first().copied().unwrap_or(0);
        let lands = Known { from, lands: landed.clone(), now: from, sum: first };
        sum_windows(&mut landed);
        sum_windows(&mut demand);
        // Outside of these steps nothing lands and nothing is asked for.
        let mut quiet = wide(counts.len());
        for (step, (landed, demand)) in (from..).zip(landed.iter().zip(&demand)) {
            if counts.contains(&step) {
                sums.look(*landed, *demand, self.limit);
                quiet -= 1;
            }
            if step >= counts.start {
                sums.peak = sums.peak.max(figure(*landed) / figure(self.limit.max(1)));
            }
        }
        sums.looks += quiet;
        let refusals = self.refusals(lands);
        sums.false_refused += wide(refusals.iter().filter(|(_, needless)| *needless).count());
        Series { account: 0, limit: self.limit, from: wide(from) * STEP, landed, demand, refusals }
    }

    /// Every refusal, and whether the call would have fitted.
    fn refusals(&self, mut known: Known) -> Vec<(u64, bool)> {
        let mut own = Vec::new();
        let mut refusals = Vec::new();
        for decision in self.decisions.iter().filter(|decision| !decision.admitted) {
            let landing = Landing::of(decision, self.counted);
            known.advance(landing.input_at);
            let needless = known.has_room(&landing, self.limit, &mut own);
            if needless {
                known.add(&landing);
            }
            refusals.push((decision.arrival, needless));
        }
        refusals
    }
}

/// What lands at each step, before and after `now`.
struct Known {
    /// Number of the first step.
    from: usize,
    lands: Vec<u64>,
    now: usize,
    /// In the window that ends at `now`.
    sum: u64,
}

impl Known {
    fn at(&self, step: usize) -> u64 {
        step.checked_sub(self.from).and_then(|step| self.lands.get(step)).copied().unwrap_or(0)
    }

    /// The sum of the window that ends one step after the one whose sum this is.
    fn next(&self, sum: u64, step: usize) -> u64 {
        (sum + self.at(step)).saturating_sub(step.checked_sub(WINDOW_STEPS).map_or(0, |gone| self.at(gone)))
    }

    fn advance(&mut self, to: usize) {
        while self.now < to {
            self.now += 1;
            self.sum = self.next(self.sum, self.now);
        }
    }

    fn add(&mut self, landing: &Landing) {
        let before = self.at(self.now);
        landing.add(&mut self.lands, self.from);
        self.sum += self.at(self.now) - before;
    }

    /// A call fits in every window that it touches.
    fn has_room(&self, landing: &Landing, limit: u64, own: &mut Vec<u64>) -> bool {
        own.clear();
        own.resize(landing.end() - self.now + WINDOW_STEPS, 0);
        landing.add(own, self.now);
        let (mut others, mut mine) = (self.sum, 0_u64);
        for (offset, lands) in own.iter().enumerate() {
            if offset > 0 {
                others = self.next(others, self.now + offset);
            }
            let gone = offset.checked_sub(WINDOW_STEPS).and_then(|gone| own.get(gone));
            mine = (mine + lands).saturating_sub(gone.copied().unwrap_or(0));
            if others + mine > limit {
                return false;
            }
        }
        true
    }
}

/// How one call lands: its input at one step, its output spread over many.
#[derive(Clone, Copy)]
struct Landing {
    input: u64,
    output: u64,
    input_at: usize,
    start: u64,
    pace: u64,
}

impl Landing {
    fn of(decision: &Decision, counted: Counted) -> Self {
        let (input, output) = match counted {
            Counted::Both => (decision.input, decision.output),
            Counted::Input => (decision.input, 0),
            Counted::Output => (0, decision.output),
        };
        let input_at = step_at(decision.arrival);
        Self { input, output, input_at, start: decision.start, pace: decision.pace }
    }

    /// The step at which all has landed.
    fn end(&self) -> usize {
        let streaming = self.pace.saturating_mul(self.output.saturating_sub(1));
        let last = if self.output == 0 { 0 } else { step_at(self.start.saturating_add(streaming)) };
        last.max(self.input_at)
    }

    /// Adds to steps that begin with number `from`.
    fn add(&self, steps: &mut [u64], from: usize) {
        let mut put = |step: usize, amount: u64| {
            if let Some(cell) = step.checked_sub(from).and_then(|step| steps.get_mut(step)) {
                *cell += amount;
            }
        };
        put(self.input_at, self.input);
        let mut step = step_at(self.start);
        if self.pace == 0 {
            return put(step, self.output);
        }
        // llm_token k lands at start + k × pace; `since` is the time from the landing of the next one to the step.
        let mut left = self.output;
        let mut since = wide(step) * STEP - self.start;
        while left > 0 {
            let lands = (since / self.pace + 1).min(left);
            put(step, lands);
            left -= lands;
            let wait = self.pace - since % self.pace;
            let skip = wait.div_ceil(STEP);
            since = skip * STEP - wait;
            step += index(skip);
        }
    }
}

/// The first step at or after a time.
fn step_at(time: u64) -> usize {
    index(time.div_ceil(STEP))
}

/// What lands at each step becomes what has landed in the window that ends there.
fn sum_windows(steps: &mut [u64]) {
    let mut window = [0_u64; WINDOW_STEPS];
    let mut sum = 0_u64;
    for (cell, gone) in steps.iter_mut().zip((0..WINDOW_STEPS).cycle()) {
        if let Some(old) = window.get_mut(gone) {
            sum += *cell;
            sum -= core::mem::replace(old, *cell);
        }
        *cell = sum;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn call(arrival: u64, admitted: bool, input: u64, output: u64, pace: u64) -> Decision {
        let start = arrival + SECOND / 2;
        let expected = input + 2 * output;
        Decision { id: 0, arrival, key: 0, account: 0, admitted, start, pace, input, output, expected }
    }

    /// What has landed at a time, one llm_token after the other.
    fn landed_by(decisions: &[Decision], time: u64, counted: Counted) -> u64 {
        let one = |d: &Decision| {
            let input = u64::from(d.arrival <= time) * d.input;
            let output = (0..d.output).filter(|k| d.start + k * d.pace <= time).count() as u64;
            counted.of(input, output)
        };
        decisions.iter().filter(|d| d.admitted).map(one).sum()
    }

    #[test]
    fn windows_are_those_of_the_definition() {
        let calls = [
            call(1, true, 100, 900, 70_001),
            call(3 * SECOND, true, 10, 3, 31 * SECOND),
            call(3 * SECOND + 250_000, true, 7, 1, 5),
            call(4 * SECOND, false, 1_000, 1_000, 20_000),
            call(59 * SECOND + 999_999, true, 3, 50, 1),
            call(61 * SECOND, true, 5, 20, 0),
            call(62 * SECOND, true, 5, 0, 30_000),
        ];
        for counted in [Counted::Both, Counted::Input, Counted::Output] {
            let series = judge(&calls, &[5_000], counted).series;
            assert_eq!(series.from, STEP);
            for (step, landed) in series.landed.iter().enumerate() {
                let time = series.from + step as u64 * STEP;
                let before = time.checked_sub(60 * SECOND);
                let want = landed_by(&calls, time, counted)
                    - before.map_or(0, |before| landed_by(&calls, before, counted));
                assert_eq!(*landed, want, "{counted:?} at {time}");
            }
            assert_eq!(series.landed.last(), Some(&0));
        }
    }

    proptest! {
        /// Every look of any calls, and every refusal, by definition.
        #[test]
        fn looks_and_refusals_are_those_of_the_definition(
            calls in prop::collection::vec((0_u64..40, 0_u64..40, any::<bool>(), 0_u64..60, 0_u64..60, 0_u64..900_000), 1..9),
            limit in 20_u64..200,
        ) {
            let mut now = 0;
            let mut calls: Vec<Decision> = calls
                .into_iter()
                .map(|(seconds, quarters, admitted, input, output, pace)| {
                    now += seconds * SECOND + quarters * 50_000;
                    call(now, admitted, input, output, pace)
                })
                .collect();
            let series = judge(&calls, &[limit], Counted::Both).series;
            let window = |calls: &[Decision], time: u64| {
                let before = time.checked_sub(60 * SECOND);
                let gone = before.map_or(0, |before| landed_by(calls, before, Counted::Both));
                landed_by(calls, time, Counted::Both) - gone
            };
            for (step, landed) in series.landed.iter().enumerate() {
                prop_assert_eq!(*landed, window(&calls, series.from + step as u64 * STEP));
            }
            // A refusal is false if with it no look is over that it touches; then it takes its room.
            let mut judged = series.refusals.iter();
            for at in 0..calls.len() {
                if calls[at].admitted {
                    continue;
                }
                let refused = calls[at];
                calls[at].admitted = true;
                let looks = (0..series.landed.len() as u64).map(|step| series.from + step * STEP);
                let fits = looks
                    .filter(|time| touches(&refused, *time))
                    .all(|time| window(&calls, time) <= limit);
                let Some((_, needless)) = judged.next() else { panic!("a refusal is missing") };
                prop_assert_eq!(*needless, fits, "{:?} of {:?}", refused, calls);
                calls[at].admitted = fits;
            }
        }
    }

    /// The look lies between the call's arrival and the last one whose window has something of it.
    fn touches(call: &Decision, time: u64) -> bool {
        let last = if call.output == 0 { call.arrival } else { call.start + call.pace * (call.output - 1) };
        let looks = last.max(call.arrival).div_ceil(STEP) * STEP + 60 * SECOND;
        (call.arrival..looks).contains(&time)
    }

    #[test]
    fn shares_are_of_the_time_between_warm_up_and_the_last_arrival() {
        // From 180 s to 240 s exactly 105 % of the limit, then nothing, to the last arrival at 360 s.
        let calls = [
            call(180 * SECOND, true, 105, 0, 0),
            call(300 * SECOND, true, 106, 0, 0),
            call(360 * SECOND, false, 1, 0, 0),
        ];
        let figures = judge(&calls, &[100], Counted::Both).figures;
        assert_eq!((figures.calls, figures.refused, figures.demanded, figures.admitted), (3, 1, 212, 211));
        // 961 looks; each of the two is in 240 windows.
        assert!((figures.over - 480.0 / 961.0).abs() < 1e-9, "{}", figures.over);
        assert!((figures.over_5 - 240.0 / 961.0).abs() < 1e-9, "{}", figures.over_5);
        assert!((figures.peak - 1.06).abs() < 1e-9);
        let utilisation = figures.utilisation.unwrap();
        assert!((utilisation - 1.055).abs() < 1e-9, "{utilisation}");
        assert!((figures.hold_to_actual.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_refusal_is_false_if_the_true_use_fitted() {
        let judged = |calls: &[Decision]| {
            let refusals = judge(calls, &[1_000], Counted::Both).series.refusals;
            refusals.iter().map(|(_, needless)| *needless).collect::<Vec<bool>>()
        };
        let full = call(0, true, 600, 0, 0);
        let second = 10 * SECOND;
        assert_eq!(judged(&[full, call(second, false, 400, 0, 0)]), [true]);
        assert_eq!(judged(&[full, call(second, false, 401, 0, 0)]), [false]);
        // Its output lands after the other has left the window: 300 + 600 never stand together with the first 600.
        assert_eq!(judged(&[full, call(second, false, 300, 600, 100_000)]), [false]);
        assert_eq!(judged(&[full, call(second, false, 300, 600, 600_000)]), [true]);
        // What the other one will stream counts too, though none of it has landed yet.
        let streaming = call(0, true, 0, 600, 90_000);
        assert_eq!(judged(&[streaming, call(STEP, false, 401, 0, 0)]), [false]);
        assert_eq!(judged(&[streaming, call(STEP, false, 400, 0, 0)]), [true]);
        // So does a call that was admitted later, and a refusal that was false itself.
        let small = call(second, false, 400, 0, 0);
        assert_eq!(judged(&[small, call(2 * second, true, 601, 0, 0)]), [false]);
        assert_eq!(judged(&[full, small, call(second, false, 1, 0, 0)]), [true, false]);
        assert_eq!(judged(&[full, small, call(7 * second, false, 600, 0, 0)]), [true, true]);
        // A call above the limit fits if it streams for long enough.
        assert_eq!(judged(&[call(0, false, 500, 501, 10_000)]), [false]);
        assert_eq!(judged(&[call(0, false, 500, 501, 1_000_000)]), [true]);
    }

    #[test]
    fn accounts_are_judged_apart_and_their_looks_are_pooled() {
        let on = |account: u32, mut decision: Decision| {
            decision.account = account;
            decision
        };
        let calls = [
            on(0, call(180 * SECOND, true, 200, 0, 0)),
            on(1, call(180 * SECOND, true, 200, 0, 0)),
            on(1, call(240 * SECOND, false, 1, 0, 0)),
        ];
        let judged = judge(&calls, &[100, 400, 7], Counted::Both);
        // 481 looks per account, of three; one is over in 240 of them.
        assert!((judged.figures.over - 240.0 / 1443.0).abs() < 1e-9, "{}", judged.figures.over);
        assert!((judged.figures.peak - 2.0).abs() < 1e-9);
        assert_eq!((judged.series.account, judged.series.limit), (1, 400));
    }

    #[test]
    fn nothing_to_judge_is_no_figure() {
        let figures = judge(&[], &[100], Counted::Both).figures;
        assert_eq!((figures.calls, figures.utilisation, figures.hold_to_actual), (0, None, None));
        let figures = judge(&[call(0, true, 1, 1, 1)], &[100], Counted::Both).figures;
        assert_eq!((figures.utilisation, figures.looks), (None, 0));
    }
}
