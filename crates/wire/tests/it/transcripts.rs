//! Golden transcripts: raw upstream bytes, replayed at every cut.

use bytes::Bytes;
use proptest::prelude::*;
use tollbook_wire::{
    ErrorDetail, ErrorKind, StreamError, StreamRelay, Surface, Usage, error_event, read_usage,
};

use crate::kit::{Outcome, at_every_cut, replay, whole};

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

enum End {
    /// Whole; true if the terminal marker must be appended.
    Whole(bool),
    Cut,
    Error(&'static str),
}

struct Case {
    file: &'static str,
    surface: Surface,
    usage: Option<Usage>,
    /// Bytes of text that streamed.
    text: &'static str,
    end: End,
    /// What the client does not see when it did not ask for usage.
    dropped: Option<&'static str>,
}

const BOTH: Usage = Usage {
    input_reported: true,
    output_reported: true,
    complete: true,
    split_estimated: false,
    input: 0,
    cached: 0,
    cache_write: 0,
    cache_write_1h: 0,
    output: 0,
    reasoning: 0,
    audio_input: 0,
    audio_output: 0,
    image_input: 0,
    web_searches: 0,
};

/// The usage chunk stands behind the finish reason and has no choices.
const USAGE_CHUNK: &str = r#"data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1790000000,"model":"gpt-test","choices":[],"usage":{"#;

fn cases() -> Vec<Case> {
    use Surface::{Chat, Messages};
    vec![
        Case {
            file: "openai-stream.sse",
            surface: Chat,
            usage: Some(Usage { input: 30, cached: 16, output: 7, ..BOTH }),
            text: "Grüße, 世界 😀\n",
            end: End::Whole(false),
            dropped: Some(USAGE_CHUNK),
        },
        Case {
            file: "openai-no-usage.sse",
            surface: Chat,
            usage: None,
            text: "Good morning, world.",
            end: End::Whole(false),
            dropped: None,
        },
        Case {
            file: "openai-tools.sse",
            surface: Chat,
            usage: Some(Usage { input: 88, output: 17, ..BOTH }),
            text: "get_weather{\"city\":\"Zürich\"}",
            end: End::Whole(false),
            dropped: Some(USAGE_CHUNK),
        },
        Case {
            file: "openai-reasoning.sse",
            surface: Chat,
            usage: Some(Usage { input: 20, output: 550, reasoning: 400, ..BOTH }),
            text: "First, add the two numbers.The sum is 42.",
            end: End::Whole(false),
            dropped: Some(USAGE_CHUNK),
        },
        Case {
            file: "openai-error-inside.sse",
            surface: Chat,
            usage: None,
            text: "Part",
            end: End::Error("server_error"),
            dropped: None,
        },
        Case {
            file: "openai-cut.sse",
            surface: Chat,
            usage: None,
            text: "One two three",
            end: End::Cut,
            dropped: None,
        },
        Case {
            file: "azure-preamble.sse",
            surface: Chat,
            usage: Some(Usage { input: 9, output: 2, ..BOTH }),
            text: "Hi",
            end: End::Whole(false),
            dropped: Some(USAGE_CHUNK),
        },
        Case {
            file: "openai-continuous.sse",
            surface: Chat,
            usage: Some(Usage { input: 10, output: 9, ..BOTH }),
            text: "abcdefghi",
            end: End::Whole(false),
            dropped: Some(USAGE_CHUNK),
        },
        Case {
            file: "openai-choices.sse",
            surface: Chat,
            usage: Some(Usage { input: 10, output: 18, ..BOTH }),
            text: "aabbccadbecf",
            end: End::Whole(false),
            dropped: Some(USAGE_CHUNK),
        },
        Case {
            file: "openai-sloppy.sse",
            surface: Chat,
            usage: Some(Usage { input: 5, output: 2, ..BOTH }),
            text: "Hi there",
            end: End::Whole(true),
            dropped: Some("data:{\"choices\":[],\ndata:\"usage\""),
        },
        Case {
            file: "anthropic-stream.sse",
            surface: Messages,
            usage: Some(Usage { input: 30, output: 20, ..BOTH }),
            text: "Grüße, 世界 😀",
            end: End::Whole(false),
            dropped: None,
        },
        Case {
            file: "anthropic-tools.sse",
            surface: Messages,
            usage: Some(Usage { input: 400, output: 70, ..BOTH }),
            text: "Let me look.get_weather{\"city\": \"Zürich\"}",
            end: End::Whole(false),
            dropped: None,
        },
        Case {
            file: "anthropic-thinking.sse",
            surface: Messages,
            usage: Some(Usage { input: 40, output: 311, reasoning: 200, ..BOTH }),
            text: "Adding the numbers.42",
            end: End::Whole(false),
            dropped: None,
        },
        Case {
            file: "anthropic-cache.sse",
            surface: Messages,
            usage: Some(Usage {
                input: 3088,
                cached: 2048,
                cache_write: 1000,
                cache_write_1h: 600,
                output: 5,
                web_searches: 2,
                ..BOTH
            }),
            text: "ok",
            end: End::Whole(false),
            dropped: None,
        },
        Case {
            file: "anthropic-error-inside.sse",
            surface: Messages,
            usage: Some(Usage { input: 40, output: 1, complete: false, ..BOTH }),
            text: "Hel",
            end: End::Error("overloaded_error"),
            dropped: None,
        },
        Case {
            file: "anthropic-cut.sse",
            surface: Messages,
            usage: Some(Usage { input: 40, output: 1, complete: false, ..BOTH }),
            text: "look_up{\"query\":\"half",
            end: End::Cut,
            dropped: None,
        },
    ]
}

fn check(case: &Case, got: &Outcome) {
    let name = case.file;
    assert_eq!(got.usage, case.usage, "{name}: usage");
    assert_eq!(got.output.bytes, u64::try_from(case.text.len()).unwrap(), "{name}: text");
    let chars = u64::try_from(case.text.chars().count()).unwrap();
    assert_eq!(got.output.chars(), chars, "{name}: text");
    match (&case.end, &got.end.error) {
        (End::Whole(marker), None) => {
            assert!(got.end.complete, "{name}: end");
            assert_eq!(got.end.marker_due, *marker, "{name}: marker");
        }
        (End::Cut, Some(StreamError::Truncated)) => assert!(!got.end.complete, "{name}: end"),
        (End::Error(kind), Some(StreamError::Upstream(facts))) => assert_eq!(facts.kind, *kind, "{name}"),
        (_, other) => panic!("{name}: end is {other:?}"),
    }
    assert_eq!(got.anomalies, tollbook_wire::Anomalies::default(), "{name}");
}

/// `bytes` without the event that starts with `mark`.
fn without(bytes: &[u8], mark: &str, line_end: &str) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let mark = mark.replace('\n', line_end);
    let at = text.find(&mark).expect("the mark stands in the transcript");
    let blank = format!("{line_end}{line_end}");
    let (head, tail) = text.split_at(at);
    let rest = tail.find(&blank).map_or("", |n| tail.split_at(n + blank.len()).1);
    format!("{head}{rest}").into_bytes()
}

#[test]
fn h07_bytes_pass_unchanged_and_facts_do_not_depend_on_cuts() {
    for case in cases() {
        let bytes = file(case.file);
        let got = at_every_cut(case.surface, false, &bytes);
        check(&case, &got);
        assert_eq!(got.client, bytes, "{}", case.file);
    }
}

#[test]
fn b047_only_the_usage_chunk_is_taken_out_at_every_cut() {
    for case in cases() {
        let bytes = file(case.file);
        let got = at_every_cut(case.surface, true, &bytes);
        check(&case, &got);
        let want = case.dropped.map_or(bytes.clone(), |mark| without(&bytes, mark, "\n"));
        assert_eq!(String::from_utf8_lossy(&got.client), String::from_utf8_lossy(&want), "{}", case.file);
    }
}

#[test]
fn b113_crlf_and_lone_cr_give_the_same_facts() {
    for case in cases() {
        for line_end in ["\r\n", "\r"] {
            let text = String::from_utf8(file(case.file)).unwrap().replace('\n', line_end);
            let got = at_every_cut(case.surface, true, text.as_bytes());
            check(&case, &got);
            let want = case
                .dropped
                .map_or(text.clone().into_bytes(), |mark| without(text.as_bytes(), mark, line_end));
            assert_eq!(String::from_utf8_lossy(&got.client), String::from_utf8_lossy(&want), "{}", case.file);
            assert_eq!(at_every_cut(case.surface, false, text.as_bytes()).client, text.as_bytes());
        }
    }
}

#[test]
fn an_event_that_was_cut_is_not_sent_on_where_events_are_sifted() {
    let bytes = file("openai-cut-inside.sse");
    let whole_events = file("openai-cut.sse");
    let got = at_every_cut(Surface::Chat, true, &bytes);
    assert_eq!(got.client, whole_events);
    assert_eq!(got.end.error, Some(StreamError::Truncated));
    assert_eq!(whole(Surface::Chat, false, &bytes).client, bytes);
}

#[test]
fn whole_answers() {
    let got = read_usage(Surface::Chat, &file("openai-plain.json"));
    assert_eq!(got.usage, Some(Usage { input: 19, output: 4, ..BOTH }));
    assert_eq!((got.output.bytes, got.finish_seen, got.json), (12, true, true));
    assert_eq!(got.service_tier.as_deref(), Some("default"));
    assert_eq!(got.error, None);

    let got = read_usage(Surface::Chat, &file("openai-tools.json"));
    assert_eq!(got.usage, Some(Usage { input: 90, output: 18, ..BOTH }));
    assert_eq!(got.output.bytes, u64::try_from("get_weather{\"city\":\"Oslo\"}".len()).unwrap());

    let got = read_usage(Surface::Messages, &file("anthropic-plain.json"));
    let want = Usage { input: 21, cached: 6, cache_write: 3, output: 20, ..BOTH };
    assert_eq!(got.usage, Some(want));
    assert_eq!(got.output.bytes, u64::try_from("Hello there.look_up{\"query\":\"tolls\"}".len()).unwrap());
}

#[test]
fn whole_answers_survive_any_truncation() {
    for (surface, name) in [(Surface::Chat, "openai-plain.json"), (Surface::Messages, "anthropic-plain.json")]
    {
        let bytes = file(name);
        for n in 0..bytes.len() {
            let got = read_usage(surface, &bytes[..n]);
            assert!(!got.json, "{name} cut at {n}");
            assert_eq!(got.anomalies.unparsable, 1);
        }
    }
}

#[test]
fn b043_a_messages_stream_that_broke_ends_with_an_error_event_only() {
    let bytes = file("anthropic-cut.sse");
    let mut relay = StreamRelay::new(Surface::Messages, false);
    let mut out = Vec::new();
    relay.push(Bytes::from(bytes.clone()), &mut out);
    let end = relay.end(&mut out);
    assert_eq!((end.complete, end.marker_due, &end.error), (false, false, &Some(StreamError::Truncated)));
    let dialect = Surface::Messages.dialect();
    let event = error_event(dialect, ErrorKind::StreamIncomplete, ErrorDetail::default(), "cut", "req_1");
    relay.append(Bytes::from(event), &mut out);
    let client = String::from_utf8(out.concat()).unwrap();
    let tail = client.strip_prefix(std::str::from_utf8(&bytes).unwrap()).unwrap();
    assert!(
        tail.starts_with("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\""),
        "{tail}"
    );
    assert!(!client.contains("message_stop") && !client.contains("end_turn"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn damaged_transcripts_are_survived_and_read_alike_at_any_cut(
        case in 0..16_usize,
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        size in 1..400_usize,
        sifted in any::<bool>(),
    ) {
        let case = &cases()[case];
        let mut bytes = file(case.file);
        for (at, b) in hits {
            let n = at.index(bytes.len());
            bytes[n] = b;
        }
        let want = whole(case.surface, sifted, &bytes);
        prop_assert_eq!(&replay(case.surface, sifted, bytes.chunks(size)), &want);
        if !sifted {
            prop_assert_eq!(want.client, bytes);
        }
        if let Some(usage) = want.usage {
            prop_assert!(usage.cached + usage.cache_write <= usage.input);
            prop_assert!(usage.cache_write_1h <= usage.cache_write);
            prop_assert!(usage.reasoning <= usage.output && usage.audio_output <= usage.output);
        }
    }

    #[test]
    fn damaged_answers_are_survived(
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for (surface, name) in [(Surface::Chat, "openai-tools.json"), (Surface::Messages, "anthropic-plain.json")] {
            let mut bytes = file(name);
            for (at, b) in &hits {
                let n = at.index(bytes.len());
                bytes[n] = *b;
            }
            let got = read_usage(surface, &bytes);
            prop_assert_eq!(got.anomalies.unparsable, u32::from(!got.json));
        }
    }
}
