//! Members that providers bill though nobody looks for them: counted, or refused by name.

use tollbook_wire::{At, Request, Surface, decode_request, visit_text};

use crate::kit::{at_every_cut, named, sse, whole};

fn with(more: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"a"}}],{more}}}"#)
}

fn texts(surface: Surface, body: &str) -> Vec<String> {
    let mut out = Vec::new();
    visit_text(surface, body.as_bytes(), &mut |piece| out.push(piece.to_owned())).unwrap();
    out
}

fn read(surface: Surface, body: &str) -> Request<'_> {
    decode_request(surface, body.as_bytes()).unwrap_or_else(|e| panic!("{e}: {body}"))
}

fn refused(surface: Surface, body: &str) -> At {
    match decode_request(surface, body.as_bytes()) {
        Ok(_) => panic!("was taken: {body}"),
        Err(error) => error.at,
    }
}

/// B095: everything that a provider's template may put in front of the model is in the count.
#[test]
fn b095_members_nobody_declared_count_as_text() {
    for (more, want) in [
        (r#""chat_template_kwargs":{"persona":"pirate"}"#, r#"{"persona":"pirate"}"#),
        (r#""guided_json":{"type":"object"}"#, r#"{"type":"object"}"#),
        (r#""guided_regex":"[a-z]+""#, "[a-z]+"),
        (r#""guided_choice":["yes","no"]"#, r#"["yes","no"]"#),
        (r#""guided_grammar":"root ::= a""#, "root ::= a"),
        (r#""structured_outputs":{"regex":"x"}"#, r#"{"regex":"x"}"#),
        (r#""extra_body":{"preamble":"p"}"#, r#"{"preamble":"p"}"#),
    ] {
        assert_eq!(texts(Surface::Chat, &with(more)), ["a", want], "{more}");
    }
    let container = with(r#""container":{"id":"c_1","skills":[{"skill_id":"pptx"}]}"#);
    let want = r#"{"id":"c_1","skills":[{"skill_id":"pptx"}]}"#;
    assert_eq!(texts(Surface::Messages, &container), ["a", want]);
    // Settings and what is kept beside the call are no input.
    for more in [
        r#""temperature":0.7,"seed":3,"logprobs":true,"user":"somebody","stop":["END"]"#,
        r#""metadata":{"trace":"0123456789"},"logit_bias":{"50256":-100},"reasoning_effort":"high""#,
    ] {
        assert_eq!(texts(Surface::Chat, &with(more)), ["a"], "{more}");
    }
}

#[test]
fn b095_reasoning_sent_back_is_input() {
    let body = r#"{"model":"m","messages":[{"role":"assistant","content":"a",
        "reasoning_details":[{"type":"reasoning.text","text":"long thoughts"}],"notes":"n"}]}"#;
    assert_eq!(
        texts(Surface::Chat, body),
        ["a", r#"[{"type":"reasoning.text","text":"long thoughts"}]"#, "n"]
    );
    let sound = r#"{"model":"m","messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}"#;
    assert_eq!(read(Surface::Chat, sound).content.other_media, 1);
}

#[test]
fn what_cannot_be_counted_or_priced_is_refused_by_name() {
    let template = with(r#""chat_template":"{% for i in range(1000000) %}x{% endfor %}""#);
    assert_eq!(refused(Surface::Chat, &template), At::Param("chat_template"));
    assert_eq!(refused(Surface::Chat, &with(r#""models":["dear/model"]"#)), At::Param("models"));
    read(Surface::Chat, &with(r#""chat_template":null,"models":null"#));
}

#[test]
fn answers_that_are_made_and_not_shown_count() {
    for (more, want) in [
        (r#""best_of":5"#, 5),
        (r#""n":2,"best_of":5"#, 5),
        (r#""n":7,"best_of":5"#, 7),
        (r#""best_of":null"#, 1),
    ] {
        assert_eq!(read(Surface::Chat, &with(more)).choices, want, "{more}");
    }
    for odd in ["0", "129", "-1", "\"3\""] {
        assert_eq!(refused(Surface::Chat, &with(&format!(r#""best_of":{odd}"#))), At::Param("best_of"));
    }
}

#[test]
fn reasoning_has_a_cap_of_its_own() {
    for surface in [Surface::Chat, Surface::Messages] {
        let body = with(r#""max_tokens":100,"thinking":{"type":"enabled","budget_tokens":9000}"#);
        let request = read(surface, &body);
        assert_eq!((request.output_cap, request.thinking_cap), (Some(100), Some(9000)));
        // The larger of two counts, in whatever spelling.
        let body = with(r#""thinking":{"budget_tokens":9000,"budget_tokens":1,"Budget_tokens":10000}"#);
        assert_eq!(read(surface, &body).thinking_cap, Some(10_000));
        for odd in ["-1", "1.5", "\"9\"", "99999999999999999999"] {
            let body = with(&format!(r#""thinking":{{"budget_tokens":{odd}}}"#));
            assert_eq!(refused(surface, &body), At::Param("thinking"), "{odd}");
        }
    }
    let beside = with(r#""enable_thinking":true,"thinking_budget":38912"#);
    assert_eq!(read(Surface::Chat, &beside).thinking_beside, Some(38_912));
}

#[test]
fn b079_searches_are_bounded_by_what_the_client_allows() {
    let tools = |tools: &str| with(&format!(r#""tools":[{tools}]"#));
    for (given, offered, most) in [
        (r#"{"type":"web_search_20250305","name":"web_search","max_uses":3}"#, true, Some(3)),
        (r#"{"max_uses":3,"type":"web_search_20250305","max_uses":40}"#, true, Some(40)),
        (r#"{"type":"web_search_20250305","name":"web_search"}"#, true, None),
        (
            r#"{"type":"web_search_20250305","max_uses":3},{"type":"web_search_20250305","max_uses":4}"#,
            true,
            Some(7),
        ),
        (r#"{"type":"web_search_20250305","max_uses":3},{"type":"web_search_20250305"}"#, true, None),
        (r#"{"type":"web_fetch_20250910","name":"web_fetch","max_uses":9}"#, false, None),
    ] {
        let body = tools(given);
        let request = read(Surface::Messages, &body);
        assert_eq!((request.web_search, request.web_searches), (offered, most), "{given}");
    }
    for (more, offered, certain) in [
        (r#""web_search_options":{}"#, true, true),
        (r#""plugins":[{"id":"web"}]"#, true, false),
        (r#""search_parameters":{"mode":"on"}"#, true, false),
        (r#""enable_search":true"#, true, false),
        (r#""enable_search":false"#, false, false),
        (r#""plugins":null"#, false, false),
    ] {
        let body = with(more);
        let request = read(Surface::Chat, &body);
        assert_eq!((request.web_search, request.web_search_certain), (offered, certain), "{more}");
    }
}

/// Which of two members of one name counts is not the same for all readers.
#[test]
fn b145_members_that_occur_twice_inside_a_message_are_refused() {
    let long = "QUJD".repeat(1000);
    let parts = [
        format!(
            r#"{{"type":"document","source":{{"type":"base64","data":"{long}"}},"source":{{"type":"text","data":"a"}}}}"#
        ),
        r#"{"type":"text","type":"image","text":"a"}"#.to_owned(),
        r#"{"type":"text","text":"a","text":"b"}"#.to_owned(),
        r#"{"type":"image_url","image_url":{"url":"https://e.example/a.png"},"image_url":{"url":"b"}}"#
            .to_owned(),
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{long}","url":"b"}}}}"#),
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{long}","URL":"b"}}}}"#),
        r#"{"type":"image_url","image_url":{"url":"b","detail":"low","detail":"high"}}"#.to_owned(),
        r#"{"type":"image_url","image_url":{"url":"b","detail":"low","Detail":"high"}}"#.to_owned(),
        r#"{"type":"image_url","image_url":"b","detail":"low","Detail":"high"}"#.to_owned(),
        format!(r#"{{"type":"file","file":{{"file_data":"{long}"}},"file":{{"file_id":"f"}}}}"#),
        format!(r#"{{"type":"document","source":{{"type":"base64","data":"{long}","data":"a"}}}}"#),
        format!(r#"{{"type":"document","source":{{"type":"base64","data":"{long}","Data":"a"}}}}"#),
        r#"{"type":"document","source":{"type":"text","type":"base64","data":"a"}}"#.to_owned(),
        r#"{"type":"tool_result","content":"a","content":[]}"#.to_owned(),
    ];
    for part in parts {
        for surface in [Surface::Chat, Surface::Messages] {
            let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
            assert_eq!(refused(surface, &body), At::Param("messages"), "{part}");
        }
    }
    let twice = r#"{"model":"m","messages":[{"role":"user","content":"long","content":""}]}"#;
    assert_eq!(refused(Surface::Chat, twice), At::Param("messages[].content"));
}

#[test]
fn reasoning_under_three_names_counts_once() {
    let event = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{{delta}}}}}]}}"#);
    let done = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    for delta in [
        r#""reasoning":"think","reasoning_details":[{"type":"reasoning.text","text":"think"}]"#,
        r#""reasoning":"","reasoning_details":[{"type":"reasoning.text","text":"think"}]"#,
        r#""reasoning_details":[{"type":"reasoning.text","text":"think"}],"reasoning_content":"think""#,
        r#""reasoning_details":[{"type":"reasoning.encrypted","data":"QUJD"}],"reasoning":"think""#,
    ] {
        let outcome = at_every_cut(Surface::Chat, false, &sse(&[&event(delta), done, "[DONE]"]));
        assert_eq!(outcome.output.bytes, 5, "{delta}");
        let body = format!(r#"{{"choices":[{{"message":{{{delta}}},"finish_reason":"stop"}}]}}"#);
        assert_eq!(tollbook_wire::read_usage(Surface::Chat, body.as_bytes()).output.bytes, 5, "{delta}");
    }
}

#[test]
fn usage_behind_the_end_changes_nothing_that_is_complete() {
    let text = r#"{"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let usage = |input: u64, output: u64| {
        format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{input},"completion_tokens":{output}}}}}"#)
    };
    for (events, want, odd) in [
        (vec![text.to_owned(), "[DONE]".into(), usage(30, 7)], (30, 7), 0),
        (vec![text.to_owned(), usage(30, 7), "[DONE]".into(), usage(1, 1)], (30, 7), 1),
        (vec![text.to_owned(), usage(30, 7), "[DONE]".into(), usage(0, 0)], (30, 7), 1),
        (vec![text.to_owned(), usage(30, 7), "[DONE]".into(), usage(30, 70)], (30, 7), 1),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let outcome = at_every_cut(Surface::Chat, true, &sse(&events));
        let got = outcome.usage.unwrap();
        assert_eq!((got.input, got.output), want, "{events:?}");
        assert_eq!(outcome.anomalies.inconsistent, odd, "{events:?}");
        assert!(!String::from_utf8(outcome.client).unwrap().contains("usage"));
    }
}

#[test]
fn searches_are_read_under_every_name() {
    for more in [
        r#""server_tool_use":{"web_search_requests":4}"#,
        r#""web_search_requests":4"#,
        r#""num_search_queries":4"#,
        r#""num_sources_used":4"#,
    ] {
        let body = format!(r#"{{"choices":[],"usage":{{"prompt_tokens":1,"completion_tokens":1,{more}}}}}"#);
        let usage = tollbook_wire::read_usage(Surface::Chat, body.as_bytes()).usage.unwrap();
        assert_eq!(usage.web_searches, 4, "{more}");
    }
}

/// Compaction and advisors are billed and stand in no total; rounds of the message itself stand in it.
#[test]
fn rounds_beside_the_answer_are_added() {
    let usage = r#"{"input_tokens":100,"output_tokens":10,"iterations":[
        {"type":"compaction","input_tokens":5000,"cache_read_input_tokens":20,"output_tokens":300},
        {"type":"message","input_tokens":100,"output_tokens":10},
        {"type":"advisor_message","input_tokens":7,"output_tokens":1}]}"#;
    let body = format!(r#"{{"type":"message","content":[],"stop_reason":"end_turn","usage":{usage}}}"#);
    let got = tollbook_wire::read_usage(Surface::Messages, body.as_bytes()).usage.unwrap();
    assert_eq!((got.input, got.cached, got.output), (5_127, 20, 311));
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1}}}"#;
    let delta = format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{}}}"#,
        usage.replace('\n', "")
    );
    let events =
        [("message_start", start), ("message_delta", &delta), ("message_stop", r#"{"type":"message_stop"}"#)];
    let got = whole(Surface::Messages, false, &named(&events)).usage.unwrap();
    assert_eq!((got.input, got.cached, got.output), (5_127, 20, 311));
}

#[test]
fn figures_that_cannot_be_true_are_not_believed() {
    for value in ["-1", "1e30", "\"many\"", "{}", "[1]", "true", "1.7976931348623157e308", "-0.5"] {
        let body =
            format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{value},"completion_tokens":{value}}}}}"#);
        let meter = tollbook_wire::read_usage(Surface::Chat, body.as_bytes());
        assert!(meter.usage.is_none() && meter.anomalies.any(), "{value}");
        let body = format!(r#"{{"content":[],"usage":{{"input_tokens":{value},"output_tokens":{value}}}}}"#);
        let meter = tollbook_wire::read_usage(Surface::Messages, body.as_bytes());
        assert!(meter.usage.is_none() && meter.anomalies.any(), "{value}");
    }
}
