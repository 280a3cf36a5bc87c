//! Usage as providers report it, well and badly: field cases USE, ANT, NUM and the parts of MOD that apply.

use tollbook_wire::{StreamError, Surface, USAGE_FIELD_MAX, Usage, read_usage};

use crate::kit::{Outcome, at_every_cut, named, sse, whole};

fn parts(usage: Option<Usage>) -> Option<(u64, u64)> {
    usage.map(|usage| (usage.input, usage.output))
}

fn chat_body(usage: &str) -> tollbook_wire::BodyMeter {
    let body = format!(
        r#"{{"choices":[{{"index":0,"message":{{"role":"assistant","content":"some text"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
    );
    let got = read_usage(Surface::Chat, body.as_bytes());
    assert!(got.json);
    got
}

fn chat_usage(usage: &str) -> Usage {
    chat_body(usage).usage.expect("usage")
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}"#;

fn chat_stream(events: &[&str]) -> Outcome {
    at_every_cut(Surface::Chat, true, &sse(events))
}

#[test]
fn b045_usage_chunk_after_finish() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37}}"#;
    let stream = sse(&[TEXT, STOP, usage, "[DONE]"]);
    let dropped = at_every_cut(Surface::Chat, true, &stream);
    assert_eq!(parts(dropped.usage), Some((30, 7)));
    assert!(dropped.usage.unwrap().complete);
    assert_eq!(dropped.client, sse(&[TEXT, STOP, "[DONE]"]));
    let passed = at_every_cut(Surface::Chat, false, &stream);
    assert_eq!(passed.client, stream);
    assert_eq!(passed.usage, dropped.usage);
}

#[test]
fn b049_null_usage_on_every_chunk_is_missing_not_zero() {
    let text = r#"{"choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}],"usage":null}"#;
    let stop = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#;
    let got = chat_stream(&[text, text, text, stop, "[DONE]"]);
    assert_eq!(got.usage, None);
    assert_eq!(got.output.bytes, 15);
    assert_eq!(got.end.error, None);
    assert!(!got.anomalies.any());
}

#[test]
fn b050_cumulative_usage_is_not_summed() {
    let chunk = |n: u64| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":null}}],"usage":{{"prompt_tokens":10,"completion_tokens":{n},"total_tokens":{}}}}}"#,
            n + 10
        )
    };
    let chunks: Vec<String> = [1, 4, 5, 9].map(chunk).into();
    let last = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":9,"total_tokens":19}}"#;
    let mut events: Vec<&str> = chunks.iter().map(String::as_str).collect();
    // Cut before the end: the last value is known, and known not to be final.
    let cut = whole(Surface::Chat, false, &sse(&events));
    assert_eq!(parts(cut.usage), Some((10, 9)));
    assert!(!cut.usage.unwrap().complete);
    assert_eq!(cut.end.error, Some(StreamError::Truncated));
    events.extend([STOP, last, "[DONE]"]);
    let got = chat_stream(&events);
    assert_eq!(parts(got.usage), Some((10, 9)));
    assert!(got.usage.unwrap().complete);
}

#[test]
fn b050_zeros_do_not_replace_a_positive_usage() {
    let good = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":9,"total_tokens":19}}"#;
    let zero = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#;
    let part = r#"{"choices":[],"usage":{"completion_tokens":0}}"#;
    let got = chat_stream(&[TEXT, STOP, good, zero, part, "[DONE]"]);
    assert_eq!(parts(got.usage), Some((10, 9)));
    assert!(got.usage.unwrap().complete);
    assert_eq!(got.anomalies.inconsistent, 2);
    // Figures of a choice are kept from zeros for it and for the whole.
    let choice = |n: u64| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":null}}],"usage":{{"prompt_tokens":{n},"completion_tokens":{n}}}}}"#
        )
    };
    let got = chat_stream(&[TEXT, &choice(0), &choice(4), &choice(0), STOP, zero, "[DONE]"]);
    assert_eq!(parts(got.usage), Some((4, 4)));
    assert_eq!(got.anomalies.inconsistent, 2);
    // Zeros first, or zeros alone, are what was reported.
    let got = chat_stream(&[TEXT, STOP, zero, zero, good, "[DONE]"]);
    assert_eq!((parts(got.usage), got.anomalies.any()), (Some((10, 9)), false));
    let got = chat_stream(&[TEXT, STOP, zero, "[DONE]"]);
    assert_eq!((parts(got.usage), got.anomalies.any()), (Some((0, 0)), false));
    // A smaller usage that is not zero is still the last word.
    let less = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}"#;
    assert_eq!(parts(chat_stream(&[TEXT, STOP, good, less, "[DONE]"]).usage), Some((10, 2)));
}

#[test]
fn b051_usage_in_the_middle_counts_once() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}}"#;
    let got = chat_stream(&[TEXT, usage, TEXT, TEXT, "[DONE]"]);
    assert_eq!(got.usage.map(|u| u.total()), Some(25));
    let beside = r#"{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}}"#;
    let got = chat_stream(&[TEXT, beside, TEXT, TEXT, "[DONE]"]);
    assert_eq!(got.usage.map(|u| u.total()), Some(25));
    assert!(got.usage.unwrap().complete);
}

#[test]
fn b052_several_choices_share_the_prompt() {
    let chunk = |index: u32, n: u64| {
        format!(
            r#"{{"choices":[{{"index":{index},"delta":{{"content":"x"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":10,"completion_tokens":{n},"total_tokens":{}}}}}"#,
            n + 10
        )
    };
    let chunks = [chunk(0, 1), chunk(1, 2), chunk(0, 5), chunk(2, 6), chunk(1, 7)];
    let mut events: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let missing = chat_stream(&[&events[..], &["[DONE]"]].concat());
    assert_eq!(parts(missing.usage), Some((10, 18)));
    assert!(!missing.usage.unwrap().complete, "a sum of ours is flagged");
    events.extend([
        r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":18,"total_tokens":28}}"#,
        "[DONE]",
    ]);
    let got = chat_stream(&events);
    assert_eq!(parts(got.usage), Some((10, 18)));
    assert!(got.usage.unwrap().complete);
}

#[test]
fn b053_usage_and_done_in_one_write_or_two() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37}}"#;
    // Every cut is tried, so the two writes of the case are among them.
    assert_eq!(parts(chat_stream(&[STOP, usage, "[DONE]"]).usage), Some((30, 7)));
}

#[test]
fn b056_preamble_and_annotations_are_relayed_in_order() {
    let preamble = r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#;
    let annotation =
        r#"{"choices":[{"index":0,"finish_reason":null,"content_filter_results":{}}],"usage":null}"#;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;
    let got = chat_stream(&[preamble, TEXT, annotation, STOP, usage, "[DONE]"]);
    assert_eq!(got.client, sse(&[preamble, TEXT, annotation, STOP, "[DONE]"]));
    assert_eq!(parts(got.usage), Some((9, 2)));
    assert!(!got.anomalies.any());
}

#[test]
fn b057_one_member_missing() {
    assert_eq!(parts(Some(chat_usage(r#"{"prompt_tokens":40,"total_tokens":55}"#))), Some((40, 15)));
    assert_eq!(parts(Some(chat_usage(r#"{"completion_tokens":15,"total_tokens":55}"#))), Some((40, 15)));
    let total = chat_usage(r#"{"total_tokens":55}"#);
    assert!(total.split_estimated);
    assert_eq!(total.total(), 55);
    assert_eq!(parts(Some(total.split(30))), Some((30, 25)));
    assert_eq!(parts(Some(total.split(70))), Some((55, 0)));
    // Only one side known: the other is not zero but unknown.
    let usage = chat_usage(r#"{"prompt_tokens":40}"#);
    assert!(usage.input_reported && !usage.output_reported && !usage.complete);
    // A total that is less than its part says nothing.
    let got = chat_body(r#"{"prompt_tokens":40,"total_tokens":30}"#);
    assert!(!got.usage.unwrap().output_reported);
    assert_eq!(got.anomalies.inconsistent, 1);
}

#[test]
fn b075_reasoning_beside_the_completion_is_added() {
    let usage = chat_usage(
        r#"{"prompt_tokens":20,"completion_tokens":150,"total_tokens":570,"completion_tokens_details":{"reasoning_tokens":400}}"#,
    );
    assert_eq!((usage.input, usage.output, usage.reasoning), (20, 550, 400));
    // Without a total, reasoning larger than the completion can only stand beside it.
    let usage = chat_usage(
        r#"{"prompt_tokens":20,"completion_tokens":150,"completion_tokens_details":{"reasoning_tokens":400}}"#,
    );
    assert_eq!(usage.output, 550);
}

#[test]
fn b076_reasoning_inside_the_completion_is_not_added() {
    let got = chat_body(
        r#"{"prompt_tokens":20,"completion_tokens":550,"total_tokens":570,"completion_tokens_details":{"reasoning_tokens":400}}"#,
    );
    let usage = got.usage.unwrap();
    assert_eq!((usage.output, usage.reasoning), (550, 400));
    assert!(!got.anomalies.any());
}

#[test]
fn b078_audio_output_is_a_part() {
    let usage = chat_usage(
        r#"{"prompt_tokens":5,"completion_tokens":60,"total_tokens":65,"prompt_tokens_details":{"audio_tokens":3,"image_tokens":1},"completion_tokens_details":{"audio_tokens":40,"text_tokens":0,"reasoning_tokens":20}}"#,
    );
    assert_eq!((usage.output, usage.audio_output, usage.reasoning), (60, 40, 20));
    assert_eq!((usage.audio_input, usage.image_input), (3, 1));
}

#[test]
fn relatives_of_the_dialect_put_details_elsewhere() {
    let deepseek = r#"{"prompt_tokens":100,"completion_tokens":5,"total_tokens":105,"prompt_cache_hit_tokens":64,"prompt_cache_miss_tokens":36}"#;
    assert_eq!(chat_usage(deepseek).cached, 64);
    let moonshot = r#"{"prompt_tokens":100,"completion_tokens":5,"total_tokens":105,"cached_tokens":32}"#;
    assert_eq!(chat_usage(moonshot).cached, 32);
    let sglang = r#"{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,"reasoning_tokens":40,"prompt_tokens_details":null}"#;
    assert_eq!(chat_usage(sglang).reasoning, 40);
    let writes = r#"{"prompt_tokens":100,"completion_tokens":5,"total_tokens":105,"prompt_tokens_details":{"cached_tokens":10,"cache_write_tokens":20}}"#;
    assert_eq!((chat_usage(writes).cached, chat_usage(writes).cache_write), (10, 20));
    // Some put the usage into the choice.
    let got = chat_stream(&[
        TEXT,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}}]}"#,
        "[DONE]",
    ]);
    assert_eq!(parts(got.usage), Some((8, 2)));
}

#[test]
fn b082_negative_usage_is_not_reported() {
    let got = chat_body(r#"{"prompt_tokens":-500,"completion_tokens":-100,"total_tokens":-600}"#);
    assert_eq!(got.usage, None);
    assert_eq!(got.anomalies.negative, 3);
    assert!(got.output.bytes > 0, "the text is there for the estimate");
    let got = chat_stream(&[
        TEXT,
        STOP,
        r#"{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":-1,"total_tokens":-6}}"#,
        "[DONE]",
    ]);
    assert_eq!((got.usage, got.anomalies.negative), (None, 3));
}

/// The case would have 13 for 12.7; design section 5 decides: a fractional usage is not believed.
#[test]
fn b083_strings_and_floats() {
    let cases = [
        ("\"12\"", Some(12)),
        ("12.0", Some(12)),
        ("12.7", None),
        ("\"12.7\"", None),
        ("\"12abc\"", None),
        ("true", None),
        ("1e3", Some(1000)),
        ("null", None),
        ("[12]", None),
    ];
    for (value, want) in cases {
        let got = chat_body(&format!(r#"{{"prompt_tokens":{value},"completion_tokens":1}}"#));
        let usage = got.usage.unwrap();
        assert_eq!(usage.input_reported.then_some(usage.input), want, "{value}");
        let fraction = value.contains("12.7");
        assert_eq!(got.anomalies.fraction, u32::from(fraction), "{value}");
        let malformed = want.is_none() && value != "null" && !fraction;
        assert_eq!(got.anomalies.malformed, u32::from(malformed), "{value}");
    }
}

#[test]
fn b084_absurd_magnitudes_are_not_reported() {
    for value in ["2147483647", "9223372036854775807", "1e400", "10000001"] {
        let got = chat_body(&format!(r#"{{"prompt_tokens":1,"completion_tokens":{value}}}"#));
        assert!(!got.usage.unwrap().output_reported, "{value}");
        assert_eq!(got.anomalies.absurd, 1, "{value}");
    }
    let got =
        chat_body(&format!(r#"{{"prompt_tokens":{USAGE_FIELD_MAX},"completion_tokens":{USAGE_FIELD_MAX}}}"#));
    assert_eq!(got.usage.unwrap().total(), 2 * USAGE_FIELD_MAX);
}

#[test]
fn b093_a_cached_part_larger_than_the_prompt() {
    let usage = chat_usage(
        r#"{"prompt_tokens":1000,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":900}}"#,
    );
    assert_eq!((usage.input - usage.cached, usage.cached, usage.output), (100, 900, 50));
    let got = chat_body(
        r#"{"prompt_tokens":100,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":150}}"#,
    );
    let usage = got.usage.unwrap();
    assert_eq!((usage.input, usage.cached), (100, 100));
    assert_eq!(got.anomalies.inconsistent, 1);
    // In a stream it is one anomaly too, however often the figures are looked at.
    let odd = r#"{"choices":[{"index":0,"delta":{},"finish_reason":null}],"usage":{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":150}}}"#;
    let got = chat_stream(&[odd, odd, STOP, "[DONE]"]);
    assert_eq!(got.anomalies.inconsistent, 1);
}

const START: &str =
    r#"{"type":"message_start","message":{"id":"msg_1","role":"assistant","content":[],"usage":USAGE}}"#;
const DELTA: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":USAGE}"#;

fn messages_stream(start: &str, deltas: &[&str]) -> Outcome {
    let start = START.replace("USAGE", start);
    let deltas: Vec<String> = deltas.iter().map(|usage| DELTA.replace("USAGE", usage)).collect();
    let mut events = vec![
        ("message_start", start.as_str()),
        (
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"some words"}}"#,
        ),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
    ];
    events.extend(deltas.iter().map(|delta| ("message_delta", delta.as_str())));
    events.push(("message_stop", r#"{"type":"message_stop"}"#));
    let got = at_every_cut(Surface::Messages, true, &named(&events));
    assert_eq!(got.client, named(&events));
    assert_eq!(got.end.error, None);
    got
}

fn messages_usage(start: &str, delta: &str) -> Usage {
    messages_stream(start, &[delta]).usage.expect("usage")
}

#[test]
fn b058_output_is_cumulative_not_added() {
    let usage = messages_usage(r#"{"input_tokens":30,"output_tokens":1}"#, r#"{"output_tokens":20}"#);
    assert_eq!((usage.input, usage.output, usage.complete), (30, 20, true));
    // Several deltas: the last one counts.
    let got = messages_stream(
        r#"{"input_tokens":30,"output_tokens":1}"#,
        &[r#"{"output_tokens":20}"#, r#"{"output_tokens":25}"#],
    );
    assert_eq!(parts(got.usage), Some((30, 25)));
}

#[test]
fn b059_cache_counters_are_not_doubled() {
    let usage = messages_usage(
        r#"{"input_tokens":300,"cache_creation_input_tokens":4000,"cache_read_input_tokens":0,"output_tokens":1}"#,
        r#"{"input_tokens":300,"cache_creation_input_tokens":4000,"cache_read_input_tokens":0,"output_tokens":40}"#,
    );
    assert_eq!((usage.input, usage.cache_write, usage.cached, usage.output), (4300, 4000, 0, 40));
    assert_eq!(usage.total(), 4340);
}

#[test]
fn b061_totals_come_from_merged_parts() {
    let usage = messages_usage(r#"{"input_tokens":5000,"output_tokens":1}"#, r#"{"output_tokens":20}"#);
    assert_eq!(usage.total(), 5020);
}

#[test]
fn b062_the_delta_does_not_erase_the_start() {
    let usage = messages_usage(
        r#"{"input_tokens":4,"cache_read_input_tokens":10000,"cache_creation_input_tokens":500,"output_tokens":1}"#,
        r#"{"output_tokens":100}"#,
    );
    assert_eq!(usage.total(), 10_604);
}

#[test]
fn b063_missing_and_null_fields_in_the_delta() {
    let start = r#"{"input_tokens":9000,"output_tokens":2}"#;
    let cases = [
        (r#"{"output_tokens":70}"#, 70, true),
        (r#"{"output_tokens":70,"input_tokens":null}"#, 70, true),
        ("{}", 2, false),
        ("null", 2, false),
    ];
    for (delta, output, complete) in cases {
        let usage = messages_usage(start, delta);
        assert_eq!((usage.input, usage.output, usage.complete), (9000, output, complete), "{delta}");
    }
    // No usage member at all.
    let got = messages_stream(start, &[]);
    assert_eq!(parts(got.usage), Some((9000, 2)));
    assert!(!got.usage.unwrap().complete);
    assert!(got.output.bytes > 0);
}

#[test]
fn b064_cache_reported_only_in_one_event() {
    let late = messages_usage(
        r#"{"input_tokens":12,"output_tokens":0}"#,
        r#"{"input_tokens":12,"cache_read_input_tokens":6,"cache_creation_input_tokens":3,"output_tokens":20}"#,
    );
    let early = messages_usage(
        r#"{"input_tokens":12,"cache_read_input_tokens":6,"cache_creation_input_tokens":3,"output_tokens":0}"#,
        r#"{"input_tokens":12,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":20}"#,
    );
    for usage in [late, early] {
        assert_eq!((usage.input, usage.cached, usage.cache_write, usage.output), (21, 6, 3, 20));
    }
}

#[test]
fn b065_full_prompt_in_the_start_net_prompt_in_the_delta() {
    let usage = messages_usage(
        r#"{"input_tokens":2410,"output_tokens":1}"#,
        r#"{"input_tokens":10,"cache_read_input_tokens":2400,"output_tokens":5}"#,
    );
    assert_eq!((usage.input, usage.cached, usage.output), (2410, 2400, 5));
}

#[test]
fn b068_lifetimes_of_cache_writes() {
    let start = r#"{"input_tokens":10,"output_tokens":1}"#;
    let usage = messages_usage(
        start,
        r#"{"input_tokens":10,"cache_creation_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":400,"ephemeral_1h_input_tokens":600},"output_tokens":1}"#,
    );
    assert_eq!((usage.input, usage.cache_write, usage.cache_write_1h), (1010, 1000, 600));
    let usage = messages_usage(start, r#"{"cache_creation_input_tokens":1000,"output_tokens":1}"#);
    assert_eq!((usage.cache_write, usage.cache_write_1h), (1000, 0));
    // A split that came with an older total does not outlive it.
    let usage = messages_usage(
        r#"{"input_tokens":10,"cache_creation_input_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":50},"output_tokens":1}"#,
        r#"{"cache_creation_input_tokens":1000,"output_tokens":1}"#,
    );
    assert_eq!((usage.cache_write, usage.cache_write_1h), (1000, 0));
    // Zeros in the delta keep the split of the start.
    let usage = messages_usage(
        r#"{"input_tokens":10,"cache_creation_input_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":50},"output_tokens":1}"#,
        r#"{"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"cache_creation_input_tokens":50,"output_tokens":1}"#,
    );
    assert_eq!((usage.cache_write, usage.cache_write_1h), (50, 50));
}

#[test]
fn b079_web_searches_are_counted() {
    let usage = messages_usage(
        r#"{"input_tokens":10,"output_tokens":1}"#,
        r#"{"output_tokens":5,"server_tool_use":{"web_search_requests":2}}"#,
    );
    assert_eq!(usage.web_searches, 2);
    let body = br#"{"type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1,"server_tool_use":{"web_search_requests":2}}}"#;
    assert_eq!(read_usage(Surface::Messages, body).usage.unwrap().web_searches, 2);
}

#[test]
fn b082_negative_usage_of_messages_keeps_what_was_known() {
    let got = messages_stream(
        r#"{"input_tokens":30,"output_tokens":1}"#,
        &[r#"{"input_tokens":-5,"output_tokens":-20}"#],
    );
    assert_eq!(parts(got.usage), Some((30, 1)));
    assert!(!got.usage.unwrap().complete);
    assert_eq!(got.anomalies.negative, 2);
}

#[test]
fn b035_a_cancelled_messages_stream_has_exact_input_and_text() {
    let start = START.replace("USAGE", r#"{"input_tokens":40,"output_tokens":1}"#);
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}"#;
    let mut events = vec![("message_start", start.as_str())];
    events.extend([("content_block_delta", delta); 5]);
    let got = whole(Surface::Messages, false, &named(&events));
    let usage = got.usage.unwrap();
    assert!(usage.input_reported && !usage.complete);
    assert_eq!((usage.input, got.output.bytes), (40, 25));
    assert_eq!(got.end.error, Some(StreamError::Truncated));
}

#[test]
fn b147_an_error_in_a_body_with_status_200() {
    let got = read_usage(Surface::Chat, br#"{"error":{"message":"no","type":"server_error","code":500}}"#);
    let facts = got.error.unwrap();
    assert_eq!(
        (facts.kind.as_str(), facts.code.as_str(), facts.message.as_str()),
        ("server_error", "500", "no")
    );
    let flat = br#"{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}"#;
    let facts = read_usage(Surface::Chat, flat).error.unwrap();
    assert_eq!((facts.kind.as_str(), facts.code.as_str()), ("BadRequestError", "400"));
    let anthropic =
        br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#;
    assert_eq!(read_usage(Surface::Messages, anthropic).error.unwrap().kind, "overloaded_error");
    assert_eq!(
        read_usage(Surface::Chat, br#"{"error":"server busy"}"#).error.unwrap().message,
        "server busy"
    );
    for no in [r#"{"choices":[],"error":null}"#, r#"{"choices":[],"error":""}"#, "{}"] {
        assert_eq!(read_usage(Surface::Chat, no.as_bytes()).error, None, "{no}");
    }
    for (body, json) in [(&b""[..], false), (b"<html>429</html>", false), (b"{}", true)] {
        assert_eq!(read_usage(Surface::Chat, body).json, json);
    }
}

#[test]
fn b162_an_error_as_the_first_event_comes_before_any_output() {
    let stream = b": hello\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let got = at_every_cut(Surface::Messages, false, stream);
    assert_eq!((got.events, got.quiet, got.output.bytes, got.usage), (1, 1, 0, None));
    let Some(StreamError::Upstream(facts)) = got.end.error else { panic!("an upstream error") };
    assert_eq!((facts.kind.as_str(), facts.message.as_str()), ("overloaded_error", "Overloaded"));
}

#[test]
fn long_error_texts_are_cut_at_a_character() {
    let body = format!(r#"{{"error":{{"message":"{}","type":"{}"}}}}"#, "é".repeat(3_000), "t".repeat(3_000));
    let facts = read_usage(Surface::Chat, body.as_bytes()).error.unwrap();
    assert_eq!((facts.message.len(), facts.kind.len()), (1024, 128));
}
