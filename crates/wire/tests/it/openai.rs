//! Responses, completions and embeddings: what is read of requests, answers and streams. Field cases MOD, EST, DIS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tollbook_wire::{
    At, Changes, ErrorDetail, ErrorKind, Request, StopUsage, StreamError, StreamRelay, Surface, Usage,
    apply_edits, broken_stream, decode_request, edits, read_usage, stop_at_limit, visit_text,
};

use crate::kit::{Outcome, at_every_cut, named, sse, whole};

fn read(surface: Surface, body: &str) -> Request<'_> {
    decode_request(surface, body.as_bytes()).unwrap_or_else(|e| panic!("{e}: {body}"))
}

fn responses(body: &str) -> Request<'_> {
    read(Surface::Responses, body)
}

fn fault(surface: Surface, body: &str) -> At {
    decode_request(surface, body.as_bytes()).expect_err(body).at
}

fn pieces(surface: Surface, body: &str) -> Vec<String> {
    let mut out = Vec::new();
    visit_text(surface, body.as_bytes(), &mut |text| out.push(text.to_owned())).unwrap();
    out
}

/// The base64 text of a picture of 1024 × 768, large or not.
fn picture(bytes: usize) -> String {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x03\0\x08\x06\0\0\0AAAA".to_vec();
    png.resize(bytes, 7);
    STANDARD.encode(png)
}

#[test]
fn fields_of_a_responses_request() {
    let body = r#"{"model":"gpt-test","instructions":"Be kind.","stream":true,"max_output_tokens":70,"service_tier":"flex",
        "input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},
            {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},
            {"type":"function_call_output","call_id":"c1","output":"done"}],
        "tools":[{"type":"function","name":"f","description":"does f","parameters":{"type":"object"}}],"tool_choice":"required"}"#;
    let request = responses(body);
    assert_eq!((&*request.model, request.stream, request.output_cap), ("gpt-test", true, Some(70)));
    assert_eq!(request.service_tier.as_deref(), Some("flex"));
    let content = &request.content;
    assert_eq!((content.messages, content.tools, content.stored, content.bare), (4, 1, false, false));
    assert!(content.tool_choice_forced);
    let want = ["Be kind.", "Hi", "f", "{\"a\":1}", "done", "f", "does f", r#"{"type":"object"}"#];
    assert_eq!(pieces(Surface::Responses, body), want);
    let bare = responses(r#"{"model":"m","input":"Hello"}"#);
    assert_eq!((bare.content.messages, bare.output_cap, bare.choices), (1, None, 1));
    assert_eq!(pieces(Surface::Responses, r#"{"model":"m","input":"Hello"}"#), ["Hello"]);
    assert_eq!(fault(Surface::Responses, r#"{"input":"x"}"#), At::Param("model"));
}

#[test]
fn b097_caps_of_responses_are_read_from_their_own_member() {
    let request = responses(r#"{"model":"m","input":"x","max_output_tokens":700,"max_tokens":1}"#);
    assert_eq!(request.output_cap, Some(700));
    for wrong in ["-1", "\"100\"", "1.5", "[]"] {
        let body = format!(r#"{{"model":"m","input":"x","max_output_tokens":{wrong}}}"#);
        assert_eq!(fault(Surface::Responses, &body), At::Param("max_output_tokens"), "{wrong}");
    }
}

#[test]
fn b101_inline_images_of_responses_are_no_text() {
    let data = picture(300_000);
    let body = format!(
        r#"{{"model":"m","input":[{{"role":"user","content":[{{"type":"input_text","text":"what"}},
            {{"type":"input_image","image_url":"data:image/png;base64,{data}","detail":"low"}}]}}]}}"#
    );
    let request = responses(&body);
    assert_eq!(request.content.text.bytes, 4);
    let [image] = &request.content.images[..] else { panic!("one image") };
    assert_eq!((image.width, image.height, image.known), (1024, 768, true));
}

#[test]
fn b102_images_in_tool_outputs_count_as_images() {
    let data = picture(2_000);
    for item in [
        format!(
            r#"{{"type":"function_call_output","call_id":"c","output":[{{"type":"input_text","text":"see"}},{{"type":"input_image","image_url":"data:image/png;base64,{data}"}}]}}"#
        ),
        format!(
            r#"{{"type":"computer_call_output","call_id":"c","output":{{"type":"computer_screenshot","image_url":"data:image/png;base64,{data}"}}}}"#
        ),
        format!(r#"{{"type":"image_generation_call","id":"ig","status":"completed","result":"{data}"}}"#),
    ] {
        let body = format!(r#"{{"model":"m","input":[{item}]}}"#);
        let content = responses(&body).content;
        assert_eq!(content.images.len(), 1, "{item}");
        assert!(content.images[0].known && content.text.bytes < 10, "{item}");
    }
}

#[test]
fn b104_instructions_tools_and_formats_of_responses_are_counted() {
    let text = "x".repeat(300);
    let body = format!(
        r#"{{"model":"m","input":"hi","instructions":"{text}","tools":[{{"type":"function","name":"f","description":"{text}","parameters":{{}}}}],
            "text":{{"format":{{"type":"json_schema","schema":{{"description":"{text}"}}}}}}}}"#
    );
    assert!(responses(&body).content.text.bytes > 900);
}

#[test]
fn files_secrets_and_sealed_reasoning_are_no_text() {
    let body = r#"{"model":"m","input":[
        {"role":"user","content":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AAAABBBB"}]},
        {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],"encrypted_content":"0123456789"},
        {"role":"assistant","content":[{"type":"output_text","text":"yes","annotations":[{"type":"url_citation","url":"u"}],"logprobs":[]}]}],
        "tools":[{"type":"mcp","server_label":"l","server_url":"u","authorization":"secret","headers":{"x":"secret"}}]}"#;
    let content = responses(body).content;
    assert_eq!((content.other_media, content.other_media_bytes, content.sealed_bytes), (1, 36, 10));
    assert_eq!(pieces(Surface::Responses, body), ["a.pdf", "short", "yes", "l", "u"]);
}

#[test]
fn b109_what_lies_with_the_provider_is_marked() {
    for body in [
        r#"{"model":"m","input":"x","previous_response_id":"resp_1"}"#,
        r#"{"model":"m","input":"x","conversation":{"id":"conv_1"}}"#,
        r#"{"model":"m","prompt":{"id":"pmpt_1","variables":{"city":"Delft"}}}"#,
        r#"{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}"#,
    ] {
        assert!(responses(body).content.stored, "{body}");
    }
    let none = r#"{"model":"m","input":"x","previous_response_id":null,"conversation":null,"prompt":null,"background":false}"#;
    assert!(!responses(none).content.stored);
    let prompt = r#"{"model":"m","prompt":{"id":"pmpt_1","variables":{"city":"Delft"}}}"#;
    assert_eq!(pieces(Surface::Responses, prompt), [r#"{"city":"Delft"}"#]);
}

#[test]
fn what_responses_cannot_be_booked_for_is_refused_by_name() {
    let with = |member: &str| format!(r#"{{"model":"m","input":"x",{member}}}"#);
    for (member, param) in [
        (r#""background":true"#, "background"),
        (r#""models":["n"]"#, "models"),
        (r#""Max_Output_Tokens":5"#, "max_output_tokens"),
        (r#""stream":1"#, "stream"),
        (r#""input":"y""#, "input"),
    ] {
        assert_eq!(fault(Surface::Responses, &with(member)), At::Param(param), "{member}");
    }
    let item = |member: &str| format!(r#"{{"model":"m","input":[{{"type":"message",{member}}}]}}"#);
    for (member, param) in [
        (r#""Content":"x""#, "input[].content"),
        (r#""content":"x","content":"y""#, "input[].content"),
        (r#""OUTPUT":"x""#, "input[].output"),
    ] {
        assert_eq!(fault(Surface::Responses, &item(member)), At::Param(param), "{member}");
    }
}

#[test]
fn hosted_searches_are_bounded_by_the_calls_a_client_allows() {
    let search = |rest: &str| {
        format!(r#"{{"model":"m","input":"x","tools":[{{"type":"web_search_preview"}}]{rest}}}"#)
    };
    assert!(responses(&search("")).web_search);
    assert_eq!(responses(&search("")).web_searches, None);
    assert_eq!(responses(&search(r#","max_tool_calls":3"#)).web_searches, Some(3));
    assert_eq!(responses(r#"{"model":"m","input":"x","max_tool_calls":3}"#).web_searches, None);
}

#[test]
fn b074_inputs_as_numbers_and_lists() {
    for (surface, body, ids, text, made) in [
        (Surface::Embeddings, r#"{"model":"e1","input":[[1,2,3],[4,5]]}"#, 5, "", 1),
        (Surface::Embeddings, r#"{"model":"e1","input":[7,8,9]}"#, 3, "", 1),
        (Surface::Embeddings, r#"{"model":"e1","input":["ab","cd"]}"#, 0, "abcd", 1),
        (Surface::Completions, r#"{"model":"m","prompt":[11,12]}"#, 2, "", 1),
        (Surface::Completions, r#"{"model":"m","prompt":[[11,12],[13]]}"#, 3, "", 2),
        (Surface::Completions, r#"{"model":"m","prompt":["ab","c"],"n":3}"#, 0, "abc", 6),
        (Surface::Completions, r#"{"model":"m","prompt":"ab","suffix":"z"}"#, 0, "abz", 1),
        (Surface::Completions, r#"{"model":"m"}"#, 0, "", 1),
        (Surface::Completions, r#"{"model":"m","prompt":[]}"#, 0, "", 1),
    ] {
        let request = read(surface, body);
        assert_eq!((request.content.ids, request.choices), (ids, made), "{body}");
        assert!(request.content.bare && request.content.messages == 0);
        assert_eq!(pieces(surface, body).concat(), text, "{body}");
    }
    assert_eq!(fault(Surface::Embeddings, r#"{"model":"m"}"#), At::Param("input"));
}

#[test]
fn answers_made_shown_and_echoed() {
    let request = read(
        Surface::Completions,
        r#"{"model":"m","prompt":["a","b"],"n":2,"best_of":5,"echo":true,"max_tokens":9}"#,
    );
    assert_eq!((request.choices, request.choices_shown, request.echoes), (10, 4, 2));
    assert_eq!((request.output_cap, request.output_cap_unsaid), (Some(9), Some(16)));
    for (member, param) in [
        (r#""n":129"#, "n"),
        (r#""best_of":0"#, "best_of"),
        (r#""best_of":129"#, "best_of"),
        (r#""echo":1"#, "echo"),
    ] {
        let body = format!(r#"{{"model":"m","prompt":"x",{member}}}"#);
        assert_eq!(fault(Surface::Completions, &body), At::Param(param), "{member}");
    }
}

#[test]
fn splices_of_every_surface() {
    let changes = Changes { model: Some("there"), include_usage: true, output_cap: Some(5) };
    for (surface, body, want) in [
        (
            Surface::Responses,
            r#"{"model":"m","input":"x","stream":true}"#,
            r#"{"max_output_tokens":5,"model":"there","input":"x","stream":true}"#,
        ),
        (
            Surface::Responses,
            r#"{"model":"m","max_output_tokens":90}"#,
            r#"{"model":"there","max_output_tokens":5}"#,
        ),
        (
            Surface::Completions,
            r#"{"model":"m","prompt":"x","stream":true}"#,
            r#"{"max_tokens":5,"stream_options":{"include_usage":true},"model":"there","prompt":"x","stream":true}"#,
        ),
        (Surface::Embeddings, r#"{"model":"m","input":"x"}"#, r#"{"model":"there","input":"x"}"#),
    ] {
        let request = read(surface, body);
        let edited = apply_edits(body.as_bytes(), &edits(&request, &changes));
        assert_eq!(std::str::from_utf8(&edited).unwrap(), want);
        read(surface, want);
    }
}

const CREATED: (&str, &str) = (
    "response.created",
    r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":17,"status":"in_progress","model":"gpt-test","service_tier":"auto","error":null,"usage":null,"output":[]}}"#,
);

fn delta(text: &str) -> String {
    format!(
        r#"{{"content_index":0,"delta":"{text}","item_id":"msg","sequence_number":4,"type":"response.output_text.delta"}}"#
    )
}

fn end(state: &str, more: &str) -> String {
    format!(
        r#"{{"type":"response.{state}","sequence_number":9,"response":{{"id":"resp_1","status":"{state}","service_tier":"default",
        "output":[{{"type":"message","content":[{{"type":"output_text","text":"one two","annotations":[]}}]}}]{more}}}}}"#
    )
    .replace('\n', "")
}

const USAGE: &str = r#","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":30,"cache_write_tokens":20},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":16},"total_tokens":150}"#;

fn stream(events: &[(&str, &str)]) -> Outcome {
    let bytes = named(events);
    let got = whole(Surface::Responses, false, &bytes);
    let single = crate::kit::replay(Surface::Responses, false, bytes.chunks(1));
    assert_eq!(single, got, "byte by byte");
    assert_eq!(got.client, bytes);
    got
}

#[test]
fn b070_every_terminal_event_carries_usage() {
    let (one, two) = (delta("one "), delta("two"));
    for state in ["completed", "incomplete", "cancelled", "failed"] {
        let error = if state == "failed" { r#","error":{"code":"server_error","message":"no"}"# } else { "" };
        let last = end(state, &format!("{error}{USAGE}"));
        let name = format!("response.{state}");
        let got = stream(&[
            CREATED,
            ("response.output_text.delta", &one),
            ("response.output_text.delta", &two),
            (&name, &last),
        ]);
        let usage = got.usage.expect(state);
        assert_eq!((usage.input, usage.cached, usage.cache_write), (100, 30, 20), "{state}");
        assert_eq!((usage.output, usage.reasoning, usage.complete), (50, 16, true), "{state}");
        assert_eq!(got.output.bytes, 7, "text counts once");
        assert_eq!(got.end.complete, state != "failed");
        assert!(got.end.saw_done && !got.end.marker_due && !got.anomalies.any());
        if let Some(StreamError::Upstream(facts)) = &got.end.error {
            assert_eq!((facts.code.as_str(), facts.message.as_str()), ("server_error", "no"));
        }
    }
    let last = end("failed", r#","error":{"code":"server_error","message":"no"},"usage":null"#);
    let got = stream(&[CREATED, ("response.failed", &last)]);
    assert_eq!((got.usage, got.end.complete), (None, false));
}

#[test]
fn b071_usage_is_nested_under_the_response() {
    let last = end("completed", USAGE);
    let got = at_every_cut(Surface::Responses, false, &named(&[("response.completed", &last)]));
    assert_eq!(got.usage.map(|usage| (usage.input, usage.output)), Some((100, 50)));
    assert_eq!(got.output.bytes, 7, "without deltas the text of the whole response counts");
}

#[test]
fn b034_a_cut_responses_stream_has_text_and_no_usage() {
    let one = delta("one ");
    let got = stream(&[CREATED, ("response.output_text.delta", &one)]);
    assert_eq!((got.usage, got.output.bytes), (None, 4));
    assert_eq!(got.end.error, Some(StreamError::Truncated));
    // Figures before the end are a lower bound.
    let running =
        r#"{"type":"response.in_progress","response":{"usage":{"input_tokens":10,"output_tokens":2}}}"#;
    let got = stream(&[CREATED, ("response.in_progress", running)]);
    assert!(!got.usage.unwrap().complete);
}

#[test]
fn every_kind_of_delta_counts_and_repeats_do_not() {
    let got = stream(&[
        CREATED,
        (
            "x",
            r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"get","arguments":""}}"#,
        ),
        ("x", r#"{"type":"response.function_call_arguments.delta","delta":"{\"a\":1}"}"#),
        ("x", r#"{"type":"response.function_call_arguments.done","arguments":"{\"a\":1}"}"#),
        ("x", r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#),
        ("x", r#"{"type":"response.reasoning_summary_text.delta","delta":"so"}"#),
        ("x", r#"{"type":"response.refusal.delta","delta":"no"}"#),
        ("x", r#"{"type":"response.audio.delta","delta":"AAAAAAAAAAAA"}"#),
        ("x", r#"{"type":"response.audio.transcript.delta","delta":"la"}"#),
        (
            "x",
            r#"{"type":"response.output_item.done","item":{"type":"function_call","name":"get","arguments":"{\"a\":1}"}}"#,
        ),
        (
            "x",
            r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","name":"get","arguments":"{\"a\":1}"}],"usage":null}}"#,
        ),
    ]);
    assert_eq!(got.output.bytes, 3 + 7 + 2 + 2 + 2 + 2);
    assert!(got.end.complete && got.usage.is_none());
}

#[test]
fn errors_of_a_responses_stream_in_each_shape() {
    for (name, event, code) in [
        (
            "error",
            r#"{"type":"error","code":"server_error","message":"no","param":null,"sequence_number":3}"#,
            "server_error",
        ),
        (
            "error",
            r#"{"type":"error","error":{"type":"x","code":"rate_limit_exceeded","message":"no"}}"#,
            "rate_limit_exceeded",
        ),
        (
            "response.failed",
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"invalid_prompt","message":"no"}}}"#,
            "invalid_prompt",
        ),
    ] {
        let one = delta("one ");
        let got = stream(&[CREATED, ("response.output_text.delta", &one), (name, event)]);
        let Some(StreamError::Upstream(facts)) = got.end.error else { panic!("{event}") };
        assert_eq!((facts.code.as_str(), facts.message.as_str()), (code, "no"));
    }
}

#[test]
fn a_done_marker_behind_a_response_is_harmless_and_one_without_an_end_ends_it() {
    let last = end("completed", USAGE);
    let mut bytes = named(&[CREATED, ("response.completed", &last)]);
    bytes.extend_from_slice(b"data: [DONE]\n\n");
    let got = whole(Surface::Responses, false, &bytes);
    assert!(got.end.complete && got.usage.unwrap().complete && !got.anomalies.any());
    let one = delta("one ");
    let mut bytes = named(&[("response.output_text.delta", &one)]);
    bytes.extend_from_slice(b"data: [DONE]\n\n");
    let got = whole(Surface::Responses, false, &bytes);
    assert!(got.end.complete && got.usage.is_none());
}

#[test]
fn the_tier_that_was_used_is_told_last() {
    let mut relay = StreamRelay::new(Surface::Responses, false);
    let last = end("completed", USAGE);
    relay.push(named(&[CREATED, ("response.completed", &last)]).into(), &mut Vec::new());
    assert_eq!(relay.meter().service_tier.as_deref(), Some("default"));
    assert_eq!((relay.meter().seen.id.as_str(), relay.meter().seen.created), ("resp_1", 17));
}

#[test]
fn b079_searches_of_a_response_are_counted_once() {
    let call =
        |action: &str| format!(r#"{{"type":"web_search_call","id":"ws","action":{{"type":"{action}"}}}}"#);
    let added = format!(
        r#"{{"type":"response.output_item.added","item":{}}}"#,
        r#"{"type":"web_search_call","id":"ws"}"#
    );
    let done = |action: &str| format!(r#"{{"type":"response.output_item.done","item":{}}}"#, call(action));
    let (search, open) = (done("search"), done("open_page"));
    let output = format!("[{},{},{}]", call("search"), call("open_page"), call("search"));
    let last = format!(
        r#"{{"type":"response.completed","response":{{"status":"completed","output":{output},"usage":{{"input_tokens":9,"output_tokens":1}}}}}}"#
    );
    let events = [
        ("x", &*added),
        ("x", &*search),
        ("x", &*added),
        ("x", &*open),
        ("x", &*added),
        ("x", &*search),
        ("x", &*last),
    ];
    assert_eq!(stream(&events).usage.unwrap().web_searches, 2);
    // Cut: two were told whole, and one that was begun counts.
    let mut relay = StreamRelay::new(Surface::Responses, false);
    relay.push(named(&events[..5]).into(), &mut Vec::new());
    assert_eq!(relay.meter().web_searches, 2);
    let body = format!(
        r#"{{"object":"response","status":"completed","output":{output},"usage":{{"input_tokens":9,"output_tokens":1}}}}"#
    );
    assert_eq!(read_usage(Surface::Responses, body.as_bytes()).usage.unwrap().web_searches, 2);
    // A count in the usage wins where it is more.
    let body = r#"{"output":[],"usage":{"input_tokens":9,"output_tokens":1,"tool_usage":{"web_search":4}}}"#;
    assert_eq!(read_usage(Surface::Responses, body.as_bytes()).usage.unwrap().web_searches, 4);
}

#[test]
fn a_whole_response_is_metered() {
    let body = r#"{"id":"r","object":"response","status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},
        "output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"xxxxxxxx"},
            {"type":"message","content":[{"type":"output_text","text":"four","annotations":[{"url":"u"}]},{"type":"refusal","refusal":"no"}]},
            {"type":"function_call","name":"f","arguments":"{}"},{"type":"mcp_call","name":"g","arguments":"{}","output":"not ours"}],
        "service_tier":"priority","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":60,"cache_write_tokens_details":{"ttl_30m_tokens":40,"ttl_12h_tokens":20}},"output_tokens":50,"total_tokens":150}}"#;
    let got = read_usage(Surface::Responses, body.as_bytes());
    assert!(got.json && got.finish_seen && got.is_answer && got.error.is_none());
    assert_eq!(got.output.bytes, 2 + 4 + 2 + 3 + 3);
    assert_eq!(got.service_tier.as_deref(), Some("priority"));
    let usage = got.usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.cache_write, usage.cache_write_1h), (100, 50, 60, 20));
    let failed = br#"{"object":"response","status":"failed","error":{"code":"server_error","message":"no"},"output":[],"usage":null}"#;
    let got = read_usage(Surface::Responses, failed);
    assert!(got.is_answer && got.usage.is_none() && got.error.is_some());
}

#[test]
fn embeddings_report_input_alone() {
    for (usage, input) in [
        (r#"{"prompt_tokens":80,"total_tokens":80}"#, Some(80)),
        (r#"{"prompt_tokens":80}"#, Some(80)),
        (r#"{"total_tokens":80}"#, Some(80)),
        (r#"{"input_tokens":80,"total_tokens":80,"output_tokens":0}"#, Some(80)),
        (r#"{"prompt_tokens":"x"}"#, None),
        ("null", None),
    ] {
        let body = format!(r#"{{"object":"list","data":[{{"embedding":[0.1,0.2]}}],"usage":{usage}}}"#);
        let got = read_usage(Surface::Embeddings, body.as_bytes());
        let want = input.map(|input| (input, 0, true));
        assert_eq!(got.usage.map(|u: Usage| (u.input, u.output, u.complete)), want, "{usage}");
        assert!(got.json && got.output.is_empty());
    }
}

#[test]
fn completions_stream_text_and_drop_the_usage_chunk() {
    let text = r#"{"id":"c","object":"text_completion","choices":[{"index":0,"text":"word","logprobs":null,"finish_reason":null}]}"#;
    let stop = r#"{"id":"c","choices":[{"index":0,"text":"","finish_reason":"stop"}]}"#;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}"#;
    let got = at_every_cut(Surface::Completions, true, &sse(&[text, stop, usage, "[DONE]"]));
    assert_eq!(got.client, sse(&[text, stop, "[DONE]"]));
    assert_eq!((got.output.bytes, got.usage.map(|u| (u.input, u.output))), (4, Some((9, 1))));
    assert!(got.end.complete && got.end.saw_done);
    let cut = whole(Surface::Completions, true, &sse(&[text]));
    assert_eq!(cut.end.error, Some(StreamError::Truncated));
    let unmarked = whole(Surface::Completions, true, &sse(&[text, stop]));
    assert!(unmarked.end.complete && unmarked.end.marker_due);
    // More choices than are told apart: only the marker says that all of them are through.
    let many = r#"{"choices":[{"index":200,"text":"x","finish_reason":"stop"}]}"#;
    assert!(!whole(Surface::Completions, true, &sse(&[many])).end.complete);
    assert!(whole(Surface::Completions, true, &sse(&[many, "[DONE]"])).end.complete);
    let body = br#"{"choices":[{"text":"word","finish_reason":"length"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let got = read_usage(Surface::Completions, body);
    assert!(got.finish_seen && got.output.bytes == 4 && got.usage.unwrap().complete);
}

#[test]
fn ends_that_the_gateway_writes_read_as_ends() {
    for (surface, first) in [
        (Surface::Responses, named(&[CREATED])),
        (
            Surface::Completions,
            sse(&[
                r#"{"id":"c","created":3,"model":"m","choices":[{"index":0,"text":"w","finish_reason":null}]}"#,
            ]),
        ),
    ] {
        let mut relay = StreamRelay::new(surface, false);
        relay.push(first.clone().into(), &mut Vec::new());
        let usage = StopUsage { input: 7, output: 3, asked: true };
        let stop = stop_at_limit(surface, relay.meter(), usage);
        let got = whole(surface, false, &[first.clone(), stop.clone()].concat());
        assert!(got.end.complete && got.end.saw_done, "{surface:?}");
        assert_eq!(got.usage.map(|u| (u.input, u.output)), Some((7, 3)), "{surface:?}");
        let broken = broken_stream(
            surface,
            relay.meter(),
            ErrorKind::StreamIncomplete,
            ErrorDetail::default(),
            "cut",
            "r",
        );
        let got = whole(surface, false, &[first, broken].concat());
        assert!(
            matches!(got.end.error, Some(StreamError::Upstream(facts)) if facts.message == "cut"),
            "{surface:?}"
        );
    }
    let relay = StreamRelay::new(Surface::Responses, false);
    let broken = broken_stream(
        Surface::Responses,
        relay.meter(),
        ErrorKind::Timeout,
        ErrorDetail::default(),
        "a\"b",
        "r",
    );
    let want = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"a\\\"b\",\"param\":null,\"sequence_number\":0}\n\n";
    assert_eq!(String::from_utf8(broken).unwrap(), want);
}

#[test]
fn b070_a_last_event_too_large_to_read_still_tells_its_usage() {
    let text = "x".repeat(tollbook_wire::EVENT_BYTES_MAX);
    let one = delta("one ");
    let last = format!(
        r#"{{"type":"response.completed","sequence_number":9,"response":{{"status":"completed","service_tier":"flex","output":[{{"type":"message","content":[{{"type":"output_text","text":"{text} \"usage\":{{\"input_tokens\":1}}"}}]}}],"tools":[{{"usage":{{"input_tokens":1,"output_tokens":1}}}}]{USAGE}}}}}"#
    );
    let bytes = named(&[CREATED, ("response.output_text.delta", &one), ("response.completed", &last)]);
    for step in [1_000, 70_000, bytes.len()] {
        let got = crate::kit::replay(Surface::Responses, false, bytes.chunks(step));
        assert_eq!(got.client, bytes);
        assert_eq!((got.end.complete, got.end.error.clone()), (true, None), "{step}");
        let usage = got.usage.unwrap();
        assert_eq!((usage.input, usage.output, usage.complete), (100, 50, true), "{step}");
        assert_eq!((got.output.bytes, got.anomalies.oversized), (4, 1), "{step}");
    }
}

/// Cut anywhere and with any byte replaced, nothing panics, and what is counted is what is handed out.
#[test]
fn broken_bytes_are_refused_or_read_alike() {
    let requests = [
        (
            Surface::Responses,
            r#"{"model":"m","input":[{"type":"message","content":[{"type":"input_image","image_url":"data:image/png;base64,AA"}]},{"type":"x","result":"r","encrypted_content":"e"}],"tools":[{"type":"web_search"}],"max_tool_calls":2}"#,
        ),
        (
            Surface::Completions,
            r#"{"model":"m","prompt":[[1,2],"a",{"text":"b"}],"n":2,"best_of":3,"echo":true}"#,
        ),
        (Surface::Embeddings, r#"{"model":"m","input":[1,"a",[2,[3]],{"text":"b"},null]}"#),
    ];
    for (surface, body) in requests {
        for at in 0..body.len() {
            for byte in [b'"', b'}', b'[', b'0', b'\\', 0x80] {
                let mut bytes = body.as_bytes().to_vec();
                bytes[at] = byte;
                let Ok(request) = decode_request(surface, &bytes) else { continue };
                let mut counted = tollbook_wire::Classes::default();
                visit_text(surface, &bytes, &mut |text| counted.add(&tollbook_wire::Classes::of(text)))
                    .unwrap();
                assert_eq!(request.content.text, counted, "{surface:?} {at} {byte}");
            }
            assert!(decode_request(surface, &body.as_bytes()[..at]).is_err());
        }
    }
    let one = delta("one ");
    let last = end("completed", USAGE);
    let stream = named(&[CREATED, ("response.output_text.delta", &one), ("response.completed", &last)]);
    for at in 0..stream.len() {
        for byte in [b'"', b'}', b'\n', b'-', 0xff] {
            let mut bytes = stream.clone();
            bytes[at] = byte;
            let got = whole(Surface::Responses, false, &bytes);
            assert_eq!(got.client, bytes);
            let _ = read_usage(Surface::Responses, &bytes);
            let _ = read_usage(Surface::Embeddings, &bytes);
        }
    }
}
