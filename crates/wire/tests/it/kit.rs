//! Replays bytes through a relay, cut as a test wants.

use bytes::Bytes;
use tollbook_wire::{Anomalies, Classes, StreamEnd, StreamRelay, Surface, Usage};

/// Everything that must not depend on how the bytes were cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) client: Vec<u8>,
    pub(crate) usage: Option<Usage>,
    pub(crate) output: Classes,
    pub(crate) end: StreamEnd,
    pub(crate) events: u64,
    pub(crate) quiet: u64,
    pub(crate) anomalies: Anomalies,
}

pub(crate) fn replay<'a>(
    surface: Surface,
    drop_usage: bool,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> Outcome {
    let mut relay = StreamRelay::new(surface, drop_usage);
    let mut out = Vec::new();
    for part in parts {
        relay.push(Bytes::copy_from_slice(part), &mut out);
    }
    let end = relay.end(&mut out);
    let meter = relay.meter();
    Outcome {
        client: out.concat(),
        usage: meter.usage,
        output: meter.output,
        events: meter.events,
        quiet: meter.quiet,
        anomalies: meter.anomalies,
        end,
    }
}

pub(crate) fn whole(surface: Surface, drop_usage: bool, bytes: &[u8]) -> Outcome {
    replay(surface, drop_usage, [bytes])
}

/// The outcome of the whole, after a check that every cut gives the same: at each position, byte by byte, and for
/// short streams at each pair of positions.
pub(crate) fn at_every_cut(surface: Surface, drop_usage: bool, bytes: &[u8]) -> Outcome {
    let want = whole(surface, drop_usage, bytes);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(replay(surface, drop_usage, single), want, "byte by byte");
    for n in 0..=bytes.len() {
        let (a, b) = bytes.split_at(n);
        assert_eq!(replay(surface, drop_usage, [a, b]), want, "cut at {n}");
    }
    if bytes.len() <= 300 {
        for n in 0..=bytes.len() {
            let (a, rest) = bytes.split_at(n);
            for m in 0..=rest.len() {
                let (b, c) = rest.split_at(m);
                assert_eq!(replay(surface, drop_usage, [a, b, c]), want, "cut at {n} and {}", n + m);
            }
        }
    }
    want
}

pub(crate) fn sse(events: &[&str]) -> Vec<u8> {
    events.iter().map(|data| format!("data: {data}\n\n")).collect::<String>().into_bytes()
}

/// A Messages stream from a start usage and the events that follow, as (type, data) pairs.
pub(crate) fn named(events: &[(&str, &str)]) -> Vec<u8> {
    events
        .iter()
        .map(|(name, data)| format!("event: {name}\ndata: {data}\n\n"))
        .collect::<String>()
        .into_bytes()
}
