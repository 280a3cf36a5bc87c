//! What the bookings are tried on: recorded and made traffic, small limits, calls on idle accounts, placed bursts.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};
use tollbook_simulate::make::{Kind, make};
use tollbook_simulate::random::Random;
use tollbook_simulate::trace::{Row, Trace};
use tollbook_simulate::{Counted, Habits, Offer, offer};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Random choices of this file.
const STREAM: u64 = 9;

/// One kind of traffic, before a seed.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) counted: Counted,
    source: Source,
    spread: u64,
    one_key: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Recorded(Trace),
    Made(Kind, u64),
}

impl Work {
    fn made(kind: Kind, length: u64) -> Self {
        Self {
            name: kind.name(),
            counted: Counted::Both,
            source: Source::Made(kind, length),
            spread: 0,
            one_key: false,
        }
    }

    pub(super) fn offer(&self, seed: u64) -> Offer {
        let habits = Habits { seed, spread: self.spread, ..Habits::default() };
        let mut offer = match &self.source {
            Source::Recorded(trace) => offer(trace, &habits),
            Source::Made(kind, length) => offer(&make(*kind, *length, seed), &habits),
        };
        if self.one_key {
            offer.calls.iter_mut().for_each(|call| call.key = 0);
            offer.keys.truncate(1);
        }
        offer
    }
}

/// The eight trace workloads, and whether they are the recordings; made ones stand in where there are none.
pub(super) fn traces(folder: Option<&Path>, short: bool) -> Result<(Vec<Work>, bool)> {
    let Some(folder) = folder.filter(|_| !short) else {
        let length = if short { 12 } else { 60 } * MINUTE;
        let mut works: Vec<Work> = [Kind::Conv, Kind::Code, Kind::Chat, Kind::Reasoning]
            .into_iter()
            .map(|kind| Work::made(kind, length))
            .collect();
        works.push(Work { name: "conv, output", counted: Counted::Output, ..Work::made(Kind::Conv, length) });
        return Ok((works, false));
    };
    let recorded = |name: &'static str, file: &str, counted: Counted| -> Result<Work> {
        let path = folder.join(file);
        let open = File::open(&path).with_context(|| format!("cannot open {file}"))?;
        let source = Source::Recorded(Trace::read(file, open)?);
        // Its times come in steps of three seconds.
        let spread = if name == "mooncake conversation" { 3 * SECOND } else { 0 };
        Ok(Work { name, counted, source, spread, one_key: false })
    };
    let works = [
        recorded("conv", "azure_conv_2023.csv.gz", Counted::Both)?,
        recorded("code", "azure_code_2023.csv.gz", Counted::Both)?,
        recorded("mooncake conversation", "mooncake_conversation.csv.gz", Counted::Both)?,
        recorded("mooncake synthetic", "mooncake_synthetic.csv.gz", Counted::Both)?,
        recorded("deepseek_r1", "servegen_deepseek_r1.csv.gz", Counted::Both)?,
        recorded("m_small", "servegen_m_small.csv.gz", Counted::Both)?,
        recorded("m_large", "servegen_m_large.csv.gz", Counted::Both)?,
        recorded("conv, output", "azure_conv_2023.csv.gz", Counted::Output)?,
    ];
    Ok((works.to_vec(), true))
}

/// Loads that strain a limit; the calls are of one key, or of the twenty that made traces have.
pub(super) fn stress(short: bool, one_key: bool) -> Vec<Work> {
    let length = if short { 15 } else { 60 } * MINUTE;
    let work = |kind: Kind| Work { one_key, ..Work::made(kind, length) };
    [Kind::OnOff, Kind::ModeSwitch, Kind::LongStreams].map(work).to_vec()
}

/// The calls of a work dealt out at random to keys that each ask for `load` thousandths of a limit of `per_window` mean
/// calls; and that limit.
pub(super) fn small(work: &Work, seed: u64, load: u64, per_window: u64) -> (Offer, u64) {
    let mut offer = work.offer(seed);
    let calls = offer.calls.len() as u64;
    let all: u64 = offer.calls.iter().map(|call| work.counted.of(call.input, call.output)).sum();
    let per_minute = calls * MINUTE / offer.span().max(1);
    let keys = (per_minute * 1_000 / (load * per_window).max(1)).max(1);
    let mut random = Random::new(seed, STREAM);
    for call in &mut offer.calls {
        call.key = u32::try_from(random.below(keys)).unwrap_or(0);
    }
    offer.keys = (0..keys).map(|key| key.to_string()).collect();
    (offer, (all / calls.max(1) * per_window).max(1))
}

/// The first calls of a work, each far from the one before and each of a key of its own, or all of one key.
pub(super) fn apart(work: &Work, seed: u64, own_keys: bool) -> Offer {
    let mut offer = work.offer(seed);
    offer.calls.truncate(400);
    for (number, call) in (0_u32..).zip(&mut offer.calls) {
        // Longer than the longest stream and the window after it.
        call.arrival = u64::from(number) * 2_000 * SECOND;
        call.key = if own_keys { number } else { 0 };
    }
    let keys = if own_keys { offer.calls.len() } else { 1 };
    offer.keys = (0..keys).map(|key| key.to_string()).collect();
    offer
}

/// Limit that bursts are placed against.
pub(super) const BURST_LIMIT: u64 = 100_000;

/// What a burst is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Burst {
    /// Chat calls over two seconds: half input, half output.
    Mixed,
    /// Input alone, all in a hundredth of a second: the worst there can be.
    Input,
}

/// Bursts of three times the limit, `every` microseconds one after the other, the first at `phase` within a second.
pub(super) fn bursts(kind: Burst, phase: u64, every: u64) -> Offer {
    let (input, output, spread) = match kind {
        Burst::Mixed => (250, 250, 2 * SECOND),
        Burst::Input => (499, 1, SECOND / 100),
    };
    let calls = 3 * BURST_LIMIT / (input + output);
    let mut rows = Vec::new();
    for burst in 0..8 {
        let from = 180 * SECOND + phase + burst * every;
        rows.extend((0..calls).map(|call| {
            let arrival = from + call * spread / calls;
            Row { arrival, input, output, key: 0, max_tokens: None }
        }));
    }
    let keys = vec![String::new()];
    let trace = Trace { name: "bursts".to_owned(), rows, keys, knows_caps: false };
    offer(&trace, &Habits::default())
}

/// A trace of a million calls as a file's text.
pub(super) fn million() -> String {
    let mut trace = make(Kind::Conv, 47 * 60 * MINUTE, 1);
    trace.rows.truncate(1_000_000);
    trace.csv()
}
