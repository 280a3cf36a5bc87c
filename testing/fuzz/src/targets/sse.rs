//! Event streams, cut anywhere: the reader against itself and an independent one, the relay against its own bytes.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tollbook_wire::{Anomalies, Classes, SseItem, SseReader, StreamEnd, StreamRelay, Surface, Usage};

use super::{Target, must, same, signature, size, steered, surface, surface_of, with_recordings};
use crate::random::Random;

pub(super) const TARGET: Target = Target {
    name: "sse",
    check,
    dictionary: &[
        "data: ",
        "data:",
        "event: ",
        "\n\n",
        "\r\n\r\n",
        "\r\r",
        "\r",
        ": ping\n\n",
        "id: 1\n",
        "retry: 3\n",
        "\u{FEFF}",
        "data: [DONE]\n\n",
        "[DONE]",
        "\"usage\":",
        "\"choices\":[]",
        "\"usage\":null",
        "event: error\n",
        "{\"error\":{\"message\":\"x\"}}",
        "\"finish_reason\":\"stop\"",
        "\"index\":1",
        "\"delta\":{\"content\":\"x\"}",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "\"prompt_tokens\":",
        "\"completion_tokens\":",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n",
        "{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":3}}",
        "\\ud83d",
        "\\n",
        "\u{2028}",
        "data\n",
    ],
    corpus: || with_recordings("sse", ".sse", |name| vec![surface_of(name), 7, 7]),
    runs: 1_500,
};

/// What a reader handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Event { name: Vec<u8>, data: Vec<u8>, id: Option<Vec<u8>>, retry: Option<Vec<u8>> },
    Quiet(u32),
    Oversized,
}

/// What a relay made of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Relayed {
    client: Vec<u8>,
    usage: Option<Usage>,
    output: Classes,
    end: StreamEnd,
    events: u64,
    quiet: u64,
    anomalies: Anomalies,
}

fn check(input: &[u8]) -> Result<u64, String> {
    let ([flags, cuts, seed], bytes) = steered::<3>(input);
    let surface = surface(flags);
    let sifted = flags & 4 != 0;
    let items = read([bytes]);
    let relayed = relay(surface, sifted, [bytes]);
    let parts = cut(bytes, usize::from(cuts), u64::from(seed));
    for parts in [bytes.chunks(1).collect(), bytes.chunks(2).collect(), parts] {
        same("items", &read(parts.iter().copied()), &items)?;
        same("relayed", &relay(surface, sifted, parts), &relayed)?;
    }
    against_independent(bytes)?;
    if sifted {
        must(is_within(&relayed.client, bytes), || "the client got what was not sent".to_owned())?;
    } else {
        same("bytes to the client", &relayed.client.as_slice(), &bytes)?;
    }
    relayed.usage.map_or(Ok(()), |usage| super::usage::fits(&usage))?;
    must(!relayed.end.complete || relayed.end.error.is_none(), || "complete with an error".to_owned())?;
    let bytes_of_text = relayed.output.bytes;
    must(bytes_of_text <= u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_mul(3), || {
        format!("{bytes_of_text} bytes of output out of {}", bytes.len())
    })?;
    let kinds: Vec<u8> = items
        .iter()
        .take(6)
        .map(|item| match item {
            Item::Event { name, data, id, retry } => {
                u8::from(!name.is_empty())
                    | u8::from(!data.is_empty()) << 1
                    | u8::from(id.is_some()) << 2
                    | u8::from(retry.is_some()) << 3
            }
            Item::Quiet(_) => 16,
            Item::Oversized => 17,
        })
        .collect();
    let error = relayed.end.error.as_ref().map(std::mem::discriminant);
    let used = relayed.usage.map(|usage| (size(usage.input), size(usage.output), usage.complete));
    Ok(signature(&format!(
        "{surface:?} {sifted} {kinds:?} {error:?} {used:?} {} {} {} {}",
        size(relayed.events),
        size(relayed.output.bytes),
        relayed.end.saw_done,
        size(u64::from(relayed.anomalies.unparsable))
    )))
}

fn read<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Item> {
    let mut reader = SseReader::new();
    let mut items = Vec::new();
    let mut each = |item: SseItem<'_>| {
        items.push(match item {
            SseItem::Event(event) => Item::Event {
                name: event.name.to_vec(),
                data: event.data.to_vec(),
                id: event.id.map(<[u8]>::to_vec),
                retry: event.retry.map(<[u8]>::to_vec),
            },
            SseItem::Quiet { comments } => Item::Quiet(comments),
            SseItem::Oversized => Item::Oversized,
        });
    };
    for part in parts {
        reader.push(part, &mut each);
    }
    reader.finish(&mut each);
    items
}

fn relay<'a>(surface: Surface, sifted: bool, parts: impl IntoIterator<Item = &'a [u8]>) -> Relayed {
    let mut relay = StreamRelay::new(surface, sifted);
    let mut out = Vec::new();
    for part in parts {
        relay.push(Bytes::copy_from_slice(part), &mut out);
    }
    let end = relay.end(&mut out);
    let meter = relay.meter();
    Relayed {
        client: out.concat(),
        usage: meter.usage,
        output: meter.output,
        end,
        events: meter.events,
        quiet: meter.quiet,
        anomalies: meter.anomalies,
    }
}

/// Up to `cuts` cuts at random places.
fn cut(bytes: &[u8], cuts: usize, seed: u64) -> Vec<&[u8]> {
    let mut random = Random::new(seed);
    let mut at: Vec<usize> = (0..cuts % 16).map(|_| random.below(bytes.len().saturating_add(1))).collect();
    at.push(bytes.len());
    at.sort_unstable();
    let mut from = 0;
    at.into_iter().map(|to| bytes.get(std::mem::replace(&mut from, to)..to).unwrap_or_default()).collect()
}

/// Names and data as `sse-stream` reads them. It takes no lone CR for a line end and wants UTF-8, a mark at the start only
/// and a number in `retry`; where these are not given it is no judge.
fn against_independent(bytes: &[u8]) -> Result<(), String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    let plain = text.replace("\r\n", "\n");
    if plain.contains(['\r', '\u{FEFF}', '\0']) || plain.contains("retry") {
        return Ok(());
    }
    // Closed, so that both agree on where the last event ends.
    let closed = format!("{text}\n\n");
    let body = stream::iter([Ok::<_, Infallible>(Bytes::from(closed.clone()))]);
    let theirs = sse_stream::SseStream::from_bytes_stream(body).collect::<Vec<_>>().now_or_never();
    let mut wanted = Vec::new();
    for event in theirs.unwrap_or_default() {
        let Ok(event) = event else { return Ok(()) };
        if let Some(data) = event.data {
            wanted.push((event.event.unwrap_or_default().into_bytes(), data.into_bytes()));
        }
    }
    let ours = read([closed.as_bytes()]);
    let ours: Vec<(Vec<u8>, Vec<u8>)> = ours
        .into_iter()
        .filter_map(|item| match item {
            Item::Event { name, data, .. } => Some((name, data)),
            Item::Quiet(_) | Item::Oversized => None,
        })
        .collect();
    same("events, beside those of an independent reader", &ours, &wanted)
}

/// All of `part` stands in `whole`, in order.
fn is_within(part: &[u8], whole: &[u8]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|byte| rest.any(|other| other == byte))
}
