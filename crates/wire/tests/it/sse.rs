//! The reader against an independent one, and the SSE cases.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use proptest::prelude::*;
use tollbook_wire::{EVENT_BYTES_MAX, SseItem, SseReader, StreamError, StreamRelay, Surface};

use crate::kit::{at_every_cut, replay, sse, whole};

/// Name and data of each event.
type Events = Vec<(String, String)>;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ours<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Events {
    let mut reader = SseReader::new();
    let mut out = Vec::new();
    let mut each = |item: SseItem<'_>| {
        if let SseItem::Event(event) = item {
            out.push((text(event.name), text(event.data)));
        }
    };
    for part in parts {
        reader.push(part, &mut each);
    }
    reader.finish(&mut each);
    out
}

fn oracle(bytes: &[u8]) -> Events {
    let body = stream::iter([Ok::<_, Infallible>(Bytes::copy_from_slice(bytes))]);
    let events = sse_stream::SseStream::from_bytes_stream(body)
        .filter_map(async |event| event.ok())
        .collect::<Vec<_>>()
        .now_or_never()
        .expect("all bytes are there");
    events.into_iter().filter_map(|event| Some((event.event.unwrap_or_default(), event.data?))).collect()
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "data: ?[a-zé{}\":, ]{0,12}",
        1 => "(event|id|retry|other): ?[a-z0-9]{0,6}",
        1 => ":[a-z ]{0,6}",
        2 => Just(String::new()),
        1 => "(data|event|x)",
    ]
}

fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
    let ends = prop_oneof![Just("\n"), Just("\r\n")];
    prop::collection::vec((line(), ends), 0..24)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect::<String>().into_bytes())
}

fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut at: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
    at.push(bytes.len());
    at.sort_unstable();
    let mut from = 0;
    at.into_iter().map(|n| bytes[std::mem::replace(&mut from, n)..n].to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn reads_what_an_independent_reader_reads(
        bytes in stream_bytes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        // Closed, so that both agree on where the last event ends.
        let bytes = [&bytes[..], b"\n\n"].concat();
        let parts = cut(&bytes, &cuts);
        prop_assert_eq!(ours(parts.iter().map(Vec::as_slice)), oracle(&bytes));
    }

    #[test]
    fn line_ends_do_not_matter(
        lines in prop::collection::vec(line(), 0..24),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let with = |end: &str| lines.iter().map(|line| format!("{line}{end}")).collect::<String>().into_bytes();
        let want = ours([with("\n").as_slice()]);
        for end in ["\r\n", "\r"] {
            let bytes = with(end);
            let parts = cut(&bytes, &cuts);
            prop_assert_eq!(ours(parts.iter().map(Vec::as_slice)), want.clone());
        }
    }

    #[test]
    fn nothing_is_added_lost_or_moved_whatever_the_bytes(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        messages in any::<bool>(),
    ) {
        // Line ends and field names are common, so that there are events.
        let bytes: Vec<u8> = noise
            .into_iter()
            .map(|b| match b {
                0..32 => b'\n',
                32..48 => b'\r',
                48..64 => b':',
                64..80 => b'd',
                _ => b,
            })
            .collect();
        let surface = if messages { Surface::Messages } else { Surface::Chat };
        let parts = cut(&bytes, &cuts);
        let got = replay(surface, false, parts.iter().map(Vec::as_slice));
        prop_assert_eq!(&got.client, &bytes);
        let sifted = replay(surface, true, parts.iter().map(Vec::as_slice));
        prop_assert_eq!(&sifted, &whole(surface, true, &bytes));
        // Only an event that was cut at the end may be missing.
        prop_assert!(bytes.starts_with(&sifted.client));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn b126_a_long_stream_cut_anywhere(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        let mut events: Vec<String> = (0..200)
            .map(|n| format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"w{n} é😀"}},"finish_reason":null}}],"usage":null}}"#))
            .collect();
        events.push(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#.into());
        events.push(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":200,"total_tokens":203}}"#.into());
        events.push("[DONE]".into());
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let bytes = sse(&events);
        let parts = cut(&bytes, &cuts);
        let got = replay(Surface::Chat, true, parts.iter().map(Vec::as_slice));
        prop_assert_eq!(&got, &whole(Surface::Chat, true, &bytes));
        prop_assert_eq!(got.usage.unwrap().output, 200);
        prop_assert_eq!(got.end.error, None);
    }
}

#[test]
fn b114_cr_and_lf_in_different_chunks() {
    let parts: [&[u8]; 2] = [b"data: {\"a\":1}\r", b"\ndata: [more json line]\r\n\r\n"];
    let want = vec![(String::new(), "{\"a\":1}\n[more json line]".to_owned())];
    assert_eq!(ours(parts), want);
}

#[test]
fn b115_no_space_or_two_after_the_colon() {
    let want = |data: &str| vec![(String::new(), data.to_owned())];
    assert_eq!(ours([&b"data:x\n\n"[..]]), want("x"));
    assert_eq!(ours([&b"data: x\n\n"[..]]), want("x"));
    assert_eq!(ours([&b"data:  x\n\n"[..]]), want(" x"));
    let chunk = r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#;
    for space in ["", " ", "  "] {
        let stream = format!("data:{space}{chunk}\n\ndata:{space}[DONE]\n\n");
        let got = at_every_cut(Surface::Chat, true, stream.as_bytes());
        assert_eq!(got.usage.map(|u| (u.input, u.output)), Some((4, 2)));
        assert!(got.end.saw_done);
    }
}

#[test]
fn b116_split_characters_and_escaped_pairs() {
    let stream = sse(&[
        r#"{"choices":[{"index":0,"delta":{"content":"é世😀\ud83d\ude00"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4,"total_tokens":5}}"#,
    ]);
    let got = at_every_cut(Surface::Chat, false, &stream);
    assert_eq!(got.client, stream);
    assert_eq!((got.output.chars(), got.output.bytes), (4, 13));
    // A pair that the upstream itself cut in two is no error either.
    let halves = sse(&[
        r#"{"choices":[{"index":0,"delta":{"content":"\ud83d"},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"\ude00"},"finish_reason":"stop"}]}"#,
    ]);
    let got = at_every_cut(Surface::Chat, false, &halves);
    assert_eq!((got.output.chars(), got.anomalies.unparsable), (2, 0));
}

#[test]
fn b119_an_endless_line_takes_bounded_memory_and_is_forwarded() {
    for sifted in [false, true] {
        let mut relay = StreamRelay::new(Surface::Chat, sifted);
        let block = Bytes::from(vec![b'x'; 64 * 1024]);
        let (mut sent, mut received) = (0, 0);
        for _ in 0..1024 {
            let mut out = Vec::new();
            relay.push(block.clone(), &mut out);
            sent += block.len();
            received += out.iter().map(Bytes::len).sum::<usize>();
            assert!(sent - received <= EVENT_BYTES_MAX, "what waits is bounded");
        }
        let mut out = Vec::new();
        let end = relay.end(&mut out);
        received += out.iter().map(Bytes::len).sum::<usize>();
        assert_eq!((sent, received), (64 << 20, 64 << 20));
        assert!(relay.meter().oversized);
        assert_eq!(end.error, Some(StreamError::Truncated));
    }
}

#[test]
fn the_size_limit_is_exact_and_reading_goes_on_behind_it() {
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}"#;
    for (excess, oversized) in [(0, 0), (1, 1)] {
        let frame = "data: {\"choices\":[],\"pad\":\"\"}\n\n";
        let pad = "x".repeat(EVENT_BYTES_MAX - frame.len() + excess);
        let stream = format!("data: {{\"choices\":[],\"pad\":\"{pad}\"}}\n\n{usage}\n\ndata: [DONE]\n\n");
        let whole_stream = whole(Surface::Chat, true, stream.as_bytes());
        for size in [1 << 10, 8 << 10, 1 << 19, 2 << 20] {
            let got = replay(Surface::Chat, true, stream.as_bytes().chunks(size));
            assert_eq!(got, whole_stream, "chunks of {size}");
            assert_eq!(got.anomalies.oversized, oversized);
            assert_eq!(got.usage.map(|u| u.output), Some(2));
            assert!(!text(&got.client).contains("completion_tokens"));
        }
    }
}

#[test]
fn b120_comments_stay_comments_and_count_as_signs_of_life() {
    let stream = b": PROCESSING\n\n: PROCESSING\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
    let got = at_every_cut(Surface::Chat, true, stream);
    assert_eq!(got.client, stream);
    assert_eq!((got.quiet, got.events), (2, 1));
}

#[test]
fn b122_empty_data_and_other_fields_are_ignored_and_relayed() {
    let mut stream =
        b"\xEF\xBB\xBFretry: 3000\n\nid: 1\n\ndata: \n\ndata\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"
            .to_vec();
    stream.extend(sse(&[
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]));
    let got = at_every_cut(Surface::Chat, true, &stream);
    assert_eq!(got.client, stream);
    assert_eq!(got.anomalies.unparsable, 0);
    assert_eq!(got.output.bytes, 1);
    // The mark at the start is no part of the first field.
    let marked = at_every_cut(
        Surface::Chat,
        true,
        b"\xEF\xBB\xBFdata: {\"choices\":[],\"usage\":{\"total_tokens\":9}}\n\n",
    );
    assert_eq!(marked.usage.map(|u| u.total()), Some(9));
    assert!(marked.client.is_empty());
}

#[test]
fn b124_boundaries_are_known_and_nothing_is_put_inside_an_event() {
    let mut relay = StreamRelay::new(Surface::Chat, false);
    let mut out = Vec::new();
    assert!(relay.at_boundary());
    relay.push(Bytes::from_static(b"data: {\"choices\""), &mut out);
    assert!(!relay.at_boundary());
    relay.push(Bytes::from_static(b":[]}\n"), &mut out);
    assert!(!relay.at_boundary());
    relay.push(Bytes::from_static(b"\n"), &mut out);
    assert!(relay.at_boundary());
    // Where events are sifted, half an event is held back, so the client is always at a boundary.
    let mut relay = StreamRelay::new(Surface::Chat, true);
    let mut out = Vec::new();
    relay.push(Bytes::from_static(b"data: {}\n\ndata: {\"cho"), &mut out);
    assert!(relay.at_boundary());
    assert_eq!(out.concat(), b"data: {}\n\n");
}

#[test]
fn b124_an_event_of_ours_behind_half_an_event_is_read_as_its_own() {
    for half in ["data: {\"choices\":[", "data: {\"choices\":[]}\n", "data: {}\n\n", "data: {}\r\n\r\n", ""] {
        for sifted in [false, true] {
            let mut relay = StreamRelay::new(Surface::Chat, sifted);
            let mut out = Vec::new();
            relay.push(Bytes::copy_from_slice(half.as_bytes()), &mut out);
            relay.end(&mut out);
            relay.append(Bytes::from_static(b"data: {\"error\":{}}\n\n"), &mut out);
            let events = ours([out.concat().as_slice()]);
            assert_eq!(events.last().unwrap().1, "{\"error\":{}}", "{half:?} {sifted}");
        }
    }
}

#[test]
fn b127_last_event_without_a_blank_line() {
    let chunk = r#"data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#;
    for tail in ["", "\n", "\r", "\r\n"] {
        let stream = format!("{chunk}{tail}");
        let got = at_every_cut(Surface::Chat, true, stream.as_bytes());
        assert_eq!(got.usage.map(|u| (u.input, u.output)), Some((4, 2)), "{tail:?}");
        assert!(got.client.is_empty());
        assert_eq!(at_every_cut(Surface::Chat, false, stream.as_bytes()).client, stream.as_bytes());
    }
}

#[test]
fn b128_one_broken_event_in_a_good_stream() {
    let mut events = vec![r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#; 50];
    events.insert(25, r#"{"choices":[{"delta":{"con"#);
    events.push(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
    events.push(r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":50,"total_tokens":54}}"#);
    events.push("[DONE]");
    let stream = sse(&events);
    let got = whole(Surface::Chat, false, &stream);
    assert_eq!(got.client, stream);
    assert_eq!(got.anomalies.unparsable, 1);
    assert_eq!(got.output.ascii, 50);
    assert_eq!(got.usage.map(|u| u.output), Some(50));
    assert_eq!(got.end.error, None);
}

#[test]
fn b042_a_chat_stream_without_an_end_is_truncated() {
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
    let got = at_every_cut(Surface::Chat, true, &sse(&[chunk, chunk, chunk]));
    assert_eq!(got.end.error, Some(StreamError::Truncated));
    assert!(!got.end.complete && !got.end.marker_due);
    // Of two choices one has not finished.
    let got = whole(
        Surface::Chat,
        true,
        &sse(&[
            r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"a"},"finish_reason":null}]}"#,
        ]),
    );
    assert_eq!(got.end.error, Some(StreamError::Truncated));
    // Nothing at all.
    assert_eq!(whole(Surface::Chat, true, b"").end.error, Some(StreamError::Truncated));
}

#[test]
fn b125_a_good_end_without_done_asks_for_the_marker() {
    let stream = sse(&[
        r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5}}"#,
    ]);
    let got = at_every_cut(Surface::Chat, true, &stream);
    assert!(got.end.complete && got.end.marker_due);
    assert_eq!(tollbook_wire::done_marker(Surface::Chat), Some(&b"data: [DONE]\n\n"[..]));
    assert_eq!(tollbook_wire::done_marker(Surface::Messages), None);
}
