//! What comes late, in vain or in crumbs: usage behind the end, usage chunks that tell nothing, a million tiny pieces.

use bytes::Bytes;
use tollbook_wire::{StreamRelay, Surface};

use crate::kit::{at_every_cut, sse, whole};

const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

fn usage(prompt: u64, completion: u64) -> String {
    format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion}}}}}"#)
}

#[test]
fn the_first_complete_usage_behind_the_marker_stands() {
    let (good, more, less) = (usage(10, 9), usage(1_000, 900), usage(1, 1));
    let partial = r#"{"choices":[],"usage":{"prompt_tokens":10}}"#;
    for (events, odd) in [
        (vec![TEXT, STOP, &good, "[DONE]", &more], 1),
        (vec![TEXT, STOP, &good, "[DONE]", &less, &more], 2),
        (vec![TEXT, STOP, &good, "[DONE]", &good], 0),
        (vec![TEXT, STOP, "[DONE]", &good, &more], 1),
        (vec![TEXT, STOP, partial, "[DONE]", &good, &more], 1),
        // In front of the marker the last word counts, because figures may be cumulative (B050).
        (vec![TEXT, STOP, &less, &more, &good, "[DONE]"], 0),
    ] {
        let got = at_every_cut(Surface::Chat, true, &sse(&events));
        let told = got.usage.unwrap();
        assert_eq!((told.input, told.output, told.complete), (10, 9, true), "{events:?}");
        assert_eq!(got.anomalies.inconsistent, odd, "{events:?}");
    }
    let of_choice = |n: u64| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":null}}],"usage":{{"prompt_tokens":10,"completion_tokens":{n}}}}}"#
        )
    };
    let got = at_every_cut(
        Surface::Chat,
        true,
        &sse(&[TEXT, &of_choice(9), STOP, "[DONE]", &of_choice(90), &more]),
    );
    assert_eq!((got.usage.unwrap().output, got.anomalies.inconsistent), (9, 2));
}

#[test]
fn usage_behind_the_last_event_of_the_other_surfaces_changes_nothing() {
    let end = |n: u64| {
        format!(
            r#"{{"type":"response.completed","response":{{"status":"completed","usage":{{"input_tokens":10,"output_tokens":{n}}}}}}}"#
        )
    };
    let got = at_every_cut(Surface::Responses, false, &sse(&[&end(9), &end(90)]));
    assert_eq!((got.usage.unwrap().output, got.anomalies.inconsistent), (9, 1));
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}"#;
    let delta = |n: u64| {
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{{"output_tokens":{n}}}}}"#
        )
    };
    let stop = r#"{"type":"message_stop"}"#;
    // In front of its end a message's figures are cumulative.
    let events = [start, &delta(3), &delta(9), stop, &delta(90)];
    let got = at_every_cut(Surface::Messages, false, &sse(&events));
    let told = got.usage.unwrap();
    assert_eq!((told.input, told.output, told.complete), (10, 9, true));
    assert_eq!(got.anomalies.inconsistent, 1);
}

#[test]
fn b046_a_usage_chunk_that_tells_nothing_reaches_no_client_that_did_not_ask() {
    let envelope =
        r#""id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":null"#;
    for value in ["null", "\"free\"", "[]", "{}", "7", r#"{"prompt_tokens":-1,"completion_tokens":"x"}"#] {
        for chunk in [
            format!(r#"{{{envelope},"choices":[],"usage":{value}}}"#),
            format!(r#"{{"usage":{value},{envelope},"choices":[]}}"#),
            format!(r#"{{"choices":null,"usage":{value}}}"#),
        ] {
            let stream = sse(&[TEXT, STOP, &chunk, "[DONE]"]);
            let got = whole(Surface::Chat, true, &stream);
            assert_eq!(got.client, sse(&[TEXT, STOP, "[DONE]"]), "{chunk}");
            // Who asked for it gets what the provider says.
            assert_eq!(whole(Surface::Chat, false, &stream).client, stream, "{chunk}");
        }
    }
    let stream = sse(&[STOP, r#"{"choices":[],"usage":null}"#, "[DONE]"]);
    assert_eq!(at_every_cut(Surface::Chat, true, &stream).client, sse(&[STOP, "[DONE]"]));
    // What carries something else is not the usage chunk (B056).
    for chunk in [
        r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}],"usage":null}"#,
        r#"{"choices":[],"error":{"message":"no"},"usage":null}"#,
        r#"{"choices":[],"created":1}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}"#,
    ] {
        let stream = sse(&[chunk, TEXT, STOP, "[DONE]"]);
        assert_eq!(whole(Surface::Chat, true, &stream).client, stream, "{chunk}");
    }
}

#[test]
fn a_million_tiny_pieces_are_metered_once() {
    const PIECES: usize = 1_000_000;
    let event = format!("data: {TEXT}\n\n");
    let events = PIECES / event.len() + 1;
    let text = Bytes::from(event.repeat(events));
    let end = sse(&[STOP, &usage(30, 70), "[DONE]"]);
    for drops in [true, false] {
        let mut relay = StreamRelay::new(Surface::Chat, drops);
        let (mut out, mut length) = (Vec::new(), 0);
        for at in 0..text.len() {
            relay.push(text.slice(at..=at), &mut out);
            length += out.drain(..).map(|piece| piece.len()).sum::<usize>();
        }
        assert!(length >= PIECES);
        relay.push(Bytes::from(end.clone()), &mut out);
        assert!(relay.end(&mut out).complete);
        let told = relay.meter().usage.unwrap();
        assert_eq!((told.input, told.output), (30, 70));
        let output = relay.meter().output;
        assert_eq!(output.ascii + output.spaces, u64::try_from(events * "word ".len()).unwrap());
    }
}
