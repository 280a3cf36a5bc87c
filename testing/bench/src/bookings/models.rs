//! What the ledger does not have: a bucket of llm_tokens with a percentile, and the provider behind a limit.
//!
//! Plain models, for comparison only. They are told the truth about calls and decide by their own rule.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tollbook_simulate::{Call, Counted, Decision, Offer};

const SECOND: u64 = 1_000_000;
/// Outputs the percentile is taken of.
const SAMPLES: usize = 100;
/// Steps in which output reaches a provider's account.
const STEP: u64 = 50_000;
const WINDOW_STEPS: usize = 1_200;

/// The SLO paper's way: a bucket that holds the limit and refills evenly takes input and the 95th percentile of the last
/// outputs; the difference to the truth is settled at the end.
pub(super) fn percentile_bucket(offer: &Offer, limit: u64, counted: Counted) -> Vec<Decision> {
    let mut bucket = Bucket::new(limit);
    let mut outputs: VecDeque<u64> = VecDeque::new();
    let mut ends: BinaryHeap<Reverse<(u64, u64, u64, u64)>> = BinaryHeap::new();
    let decide = |(id, call): (u64, &Call)| {
        while let Some(Reverse((end, held, used, output))) = ends.peek().copied()
            && end <= call.arrival
        {
            ends.pop();
            bucket.at(end);
            bucket.level += i128::from(held) - i128::from(used);
            if outputs.len() >= SAMPLES {
                outputs.pop_front();
            }
            outputs.push_back(output);
        }
        let cap = call.max_tokens.unwrap_or(u64::MAX);
        let expected = counted.of(call.input, percentile(&outputs).unwrap_or(500).min(cap)).min(limit);
        bucket.at(call.arrival);
        let admitted = bucket.level >= i128::from(expected);
        if admitted {
            bucket.level -= i128::from(expected);
            ends.push(Reverse((call.end(), expected, counted.of(call.input, call.output), call.output)));
        }
        decision(id, call, admitted, expected)
    };
    (0..).zip(&offer.calls).map(decide).collect()
}

fn decision(id: u64, call: &Call, admitted: bool, expected: u64) -> Decision {
    Decision {
        id,
        arrival: call.arrival,
        key: call.key,
        account: 0,
        admitted,
        start: call.arrival + call.first,
        pace: call.pace,
        input: call.input,
        output: call.output,
        expected,
    }
}

fn percentile(outputs: &VecDeque<u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = outputs.iter().copied().collect();
    sorted.sort_unstable();
    if sorted.len() < 5 {
        let sum: u64 = sorted.iter().sum();
        return (!sorted.is_empty()).then(|| sum * 3 / (2 * sorted.len() as u64));
    }
    sorted.get((sorted.len() * 95).div_ceil(100) - 1).copied()
}

/// A bucket of capacity `limit` that fills in a minute.
struct Bucket {
    limit: i128,
    /// May be below zero.
    level: i128,
    seen: u64,
    /// Of a refill, what is no whole llm_token yet.
    rest: i128,
}

impl Bucket {
    fn new(limit: u64) -> Self {
        Self { limit: i128::from(limit), level: i128::from(limit), seen: 0, rest: 0 }
    }

    fn at(&mut self, now: u64) {
        let minute = i128::from(60 * SECOND);
        let fresh = i128::from(now.saturating_sub(self.seen)) * self.limit + self.rest;
        self.seen = self.seen.max(now);
        (self.level, self.rest) = (self.level + fresh / minute, fresh % minute);
        if self.level >= self.limit {
            (self.level, self.rest) = (self.limit, 0);
        }
    }
}

/// How a provider keeps its own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    /// What landed in the last exact 60 s, and the input, must fit.
    Log,
    /// A bucket takes input at the door and output as it streams; the input must be there.
    Bucket,
}

/// Admitted calls that a provider with the same limit would refuse, of how many; what it refuses does not land.
pub(super) fn refused_behind(decisions: &[Decision], limit: u64, provider: Provider) -> (u64, u64) {
    let mut landing = Landing { cells: Vec::new(), now: 0, sum: 0, bucket: Bucket::new(limit) };
    let (mut refused, mut all) = (0, 0);
    for call in decisions.iter().filter(|decision| decision.admitted) {
        landing.advance(call.arrival.div_ceil(STEP));
        landing.bucket.at(call.arrival);
        all += 1;
        let fits = match provider {
            Provider::Log => landing.sum + call.input <= limit,
            Provider::Bucket => landing.bucket.level >= i128::from(call.input),
        };
        if fits {
            landing.add(call);
        } else {
            refused += 1;
        }
    }
    (refused, all)
}

/// What lands at the provider, in steps.
struct Landing {
    cells: Vec<u64>,
    now: u64,
    /// In the last 60 s.
    sum: u64,
    bucket: Bucket,
}

impl Landing {
    fn cell(&self, step: u64) -> u64 {
        usize::try_from(step).ok().and_then(|step| self.cells.get(step)).copied().unwrap_or(0)
    }

    fn advance(&mut self, to: u64) {
        while self.now < to {
            self.now += 1;
            let lands = self.cell(self.now);
            self.sum += lands;
            self.sum -= self.now.checked_sub(WINDOW_STEPS as u64).map_or(0, |gone| self.cell(gone));
            self.bucket.at(self.now * STEP);
            self.bucket.level -= i128::from(lands);
        }
    }

    fn add(&mut self, call: &Decision) {
        self.put(self.now, call.input);
        self.sum += call.input;
        self.bucket.level -= i128::from(call.input);
        for number in 0..call.output {
            // Strictly after the door, so that it is counted when its step comes.
            let step = (call.start + number * call.pace).div_ceil(STEP).max(self.now + 1);
            self.put(step, 1);
        }
    }

    fn put(&mut self, step: u64, amount: u64) {
        let Ok(step) = usize::try_from(step) else { return };
        if self.cells.len() <= step {
            self.cells.resize(step + 4_096, 0);
        }
        if let Some(cell) = self.cells.get_mut(step) {
            *cell += amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arrival: u64, input: u64, output: u64) -> Call {
        Call { arrival, input, output, key: 0, max_tokens: None, first: 0, pace: 0 }
    }

    fn admitted(calls: Vec<Call>) -> Vec<bool> {
        let offer = Offer { name: String::new(), calls, keys: vec![String::new()] };
        percentile_bucket(&offer, 600, Counted::Both).iter().map(|decision| decision.admitted).collect()
    }

    #[test]
    fn a_bucket_refills_by_a_limit_a_minute_and_learns_from_what_ended() {
        // 500 are expected of the first. It uses 10 and ends after a second: 490 are given back, 10 have come by then, and
        // ten more a second later; of the next 15 are expected.
        let calls = [call(0, 100, 10), call(0, 0, 10), call(2 * SECOND, 495, 0), call(2 * SECOND, 1, 0)];
        let calls = calls.map(|call| Call { first: SECOND, ..call });
        assert_eq!(admitted(calls.to_vec()), [true, false, true, false]);
        // Ten llm_tokens a second come back.
        let after = |seconds: u64| admitted(vec![call(0, 600, 0), call(seconds * SECOND, 100, 0)]);
        assert_eq!((after(9), after(10)), (vec![true, false], vec![true, true]));
    }

    #[test]
    fn a_provider_refuses_what_its_own_limit_has_no_room_for() {
        let decided = |arrival: u64, input: u64, output: u64| Decision {
            pace: SECOND,
            ..decision(0, &call(arrival, input, output), true, 0)
        };
        let calls = [
            decided(0, 50, 40),
            // 50 + 11 have landed.
            decided(10 * SECOND + 1, 39, 0),
            decided(11 * SECOND, 1, 0),
            // 100 s later nothing is left of it.
            decided(110 * SECOND, 100, 0),
        ];
        assert_eq!(refused_behind(&calls, 100, Provider::Log), (1, 4));
        // The bucket has got back 18 by then.
        assert_eq!(refused_behind(&calls, 100, Provider::Bucket), (0, 4));
        let passed = Decision { admitted: false, ..decided(0, 500, 0) };
        assert_eq!(refused_behind(&[passed], 100, Provider::Log), (0, 0));
    }
}
