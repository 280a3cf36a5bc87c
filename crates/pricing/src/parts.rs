//! A call's usage as disjoint parts, so that each llm_token is weighed or priced exactly once.

use crate::price::Rates;
use tollbook_policy::Meter;
use tollbook_wire::Usage;

/// Disjoint parts; their sums are the input and the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// Neither cached nor media.
    pub text_input: u64,
    pub cache_read: u64,
    pub cache_write_5m: u64,
    pub cache_write_1h: u64,
    pub audio_input: u64,
    pub image_input: u64,
    /// Neither reasoning nor audio.
    pub text_output: u64,
    pub reasoning: u64,
    pub audio_output: u64,
}

impl Parts {
    /// Takes a usage apart. Parts larger than what contains them are cut, so a contradiction never makes a negative
    /// part (B093). Media that may also be cached counts as media: the split errs upwards.
    pub fn of(usage: &Usage) -> Self {
        let mut input = usage.input;
        let mut output = usage.output;
        let cache_read = take(&mut input, usage.cached);
        let cache_write = take(&mut input, usage.cache_write);
        let cache_write_1h = usage.cache_write_1h.min(cache_write);
        let audio_input = take(&mut input, usage.audio_input);
        let image_input = take(&mut input, usage.image_input);
        let audio_output = take(&mut output, usage.audio_output);
        let reasoning = take(&mut output, usage.reasoning);
        Self {
            text_input: input,
            cache_read,
            cache_write_5m: cache_write - cache_write_1h,
            cache_write_1h,
            audio_input,
            image_input,
            text_output: output,
            reasoning,
            audio_output,
        }
    }

    pub fn input(&self) -> u64 {
        [
            self.text_input,
            self.cache_read,
            self.cache_write_5m,
            self.cache_write_1h,
            self.audio_input,
            self.image_input,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    pub fn output(&self) -> u64 {
        self.text_output.saturating_add(self.reasoning).saturating_add(self.audio_output)
    }

    /// Pico-currency.
    pub(crate) fn pico(&self, rates: &Rates) -> u128 {
        sum([
            (self.text_input, rates.input),
            (self.cache_read, rates.cache_read),
            (self.cache_write_5m, rates.cache_write_5m),
            (self.cache_write_1h, rates.cache_write_1h),
            (self.audio_input, rates.audio_input),
            (self.image_input, rates.image_input),
            (self.text_output, rates.output),
            (self.reasoning, rates.reasoning),
            (self.audio_output, rates.audio_output),
        ])
    }

    /// Thousandths of an account's llm_token; the meter is already masked by the measure.
    pub fn weighed(&self, meter: &Meter) -> u128 {
        let cache_write = self.cache_write_5m.saturating_add(self.cache_write_1h);
        sum([
            (self.text_input, u64::from(meter.uncached_input)),
            (self.cache_read, u64::from(meter.cache_read)),
            (cache_write, u64::from(meter.cache_write)),
            (self.audio_input, u64::from(meter.audio_input)),
            (self.image_input, u64::from(meter.image)),
            (self.text_output, u64::from(meter.output)),
            (self.reasoning, u64::from(meter.reasoning)),
            (self.audio_output, u64::from(meter.audio_output)),
            (0, 0),
        ])
    }
}

fn take(whole: &mut u64, part: u64) -> u64 {
    let taken = part.min(*whole);
    *whole -= taken;
    taken
}

fn sum(products: [(u64, u64); 9]) -> u128 {
    products
        .into_iter()
        .map(|(amount, rate)| u128::from(amount) * u128::from(rate))
        .fold(0, u128::saturating_add)
}
