//! What a call used, as its provider reported it: one shape for every dialect.
//!
//! Invariants: `cached + cache_write ≤ input`, `cache_write_1h ≤ cache_write`, `reasoning ≤ output`; every
//! figure is at most a few times `USAGE_FIELD_MAX`. Missing is not zero: what was not reported says so.
//! Figures that contradict each other are clamped to the safe side and counted in `Anomalies`.

use crate::number::{Odd, Reading};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input, cached or not.
    pub input: u64,
    /// Part of `input` read from the provider's cache.
    pub cached: u64,
    /// Part of `input` written to the provider's cache, any lifetime.
    pub cache_write: u64,
    /// Part of `cache_write` with a lifetime of an hour.
    pub cache_write_1h: u64,
    /// All output, reasoning included.
    pub output: u64,
    /// Part of `output`.
    pub reasoning: u64,
    /// Part of `input`.
    pub audio_input: u64,
    /// Part of `output`.
    pub audio_output: u64,
    /// Part of `input`.
    pub image_input: u64,
    /// Web searches that the provider ran and bills by the call.
    pub web_searches: u64,
    /// `input` was reported (or follows from what was).
    pub input_reported: bool,
    /// `output` was reported. If not, it is 0 and means nothing.
    pub output_reported: bool,
    /// The figures are final. If not, `output` is a lower bound.
    pub complete: bool,
    /// Only a total was reported: it stands in `input`, and `split` divides it by an estimate.
    pub split_estimated: bool,
}

impl Usage {
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Divides a usage of which only the total is known; leaves any other as it is.
    pub fn split(mut self, input_estimate: u64) -> Self {
        if self.split_estimated {
            let total = self.total();
            self.input = input_estimate.min(total);
            self.output = total - self.input;
        }
        self
    }

    /// Makes the parts fit their wholes; counts each correction.
    pub(crate) fn fit(&mut self, anomalies: &mut Anomalies) {
        let mut clamp = |part: &mut u64, whole: u64| {
            if *part > whole {
                *part = whole;
                bump(&mut anomalies.inconsistent);
            }
        };
        clamp(&mut self.cached, self.input);
        clamp(&mut self.cache_write, self.input - self.cached);
        clamp(&mut self.cache_write_1h, self.cache_write);
        clamp(&mut self.audio_input, self.input);
        clamp(&mut self.image_input, self.input);
        clamp(&mut self.reasoning, self.output);
        clamp(&mut self.audio_output, self.output);
    }
}

/// How often an upstream said something that cannot be true. All counters saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Anomalies {
    pub negative: u32,
    /// Above `USAGE_FIELD_MAX`.
    pub absurd: u32,
    /// A usage field that is a number, but not a whole one.
    pub fraction: u32,
    /// A usage field that is no number.
    pub malformed: u32,
    /// Parts larger than their whole, totals that are not the sum, zeros after a positive usage.
    pub inconsistent: u32,
    /// Events or bodies that are not JSON.
    pub unparsable: u32,
    /// Events beyond the size limit; they were forwarded unread.
    pub oversized: u32,
}

impl Anomalies {
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// The value of a reading; a rejected one is counted and reads as nothing.
    pub(crate) fn take(&mut self, reading: Reading) -> Option<u64> {
        match reading {
            Reading::Absent => None,
            Reading::Value(n) => Some(n),
            Reading::Rejected(odd) => {
                bump(match odd {
                    Odd::Negative => &mut self.negative,
                    Odd::Absurd => &mut self.absurd,
                    Odd::Fraction => &mut self.fraction,
                    Odd::Malformed => &mut self.malformed,
                });
                None
            }
        }
    }
}

pub(crate) fn bump(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}
