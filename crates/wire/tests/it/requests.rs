//! Requests: what is read, what is refused, what is spliced. Field cases EST and HTP.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use tollbook_wire::{
    At, Changes, Classes, Detail, Request, Side, Surface, apply_edits, decode_request, edited_len, edits,
    visit_text,
};

fn chat(body: &str) -> Request<'_> {
    decode_request(Surface::Chat, body.as_bytes()).unwrap_or_else(|e| panic!("{e}: {body}"))
}

fn messages(body: &str) -> Request<'_> {
    decode_request(Surface::Messages, body.as_bytes()).unwrap_or_else(|e| panic!("{e}: {body}"))
}

fn fault(surface: Surface, body: &[u8]) -> At {
    let error = decode_request(surface, body).expect_err("refused");
    assert_eq!(error.side, Side::Client);
    error.at
}

fn pieces(surface: Surface, body: &str) -> Vec<String> {
    let mut out = Vec::new();
    visit_text(surface, body.as_bytes(), &mut |text| out.push(text.to_owned())).unwrap();
    out
}

/// The text of a body, and a check that both ways of reading it see the same.
fn text_of(surface: Surface, body: &str) -> (Vec<String>, Classes) {
    let all = pieces(surface, body);
    let mut want = Classes::default();
    for piece in &all {
        want.add(&Classes::of(piece));
    }
    let got = decode_request(surface, body.as_bytes()).unwrap().content.text;
    assert_eq!(got, want);
    (all, got)
}

const PNG: [u8; 33] = *b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x03\0\x08\x06\0\0\0AAAA";

/// The base64 text of a picture of 1024 × 768 with that many bytes.
fn picture(bytes: usize) -> String {
    let mut png = PNG.to_vec();
    let mut noise = 1_u32;
    png.resize_with(bytes, || {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.to_be_bytes()[0]
    });
    STANDARD.encode(png)
}

#[test]
fn fields_of_a_chat_request() {
    let body = r#" {"model":"gpt-test","stream":true,"n":2,"max_tokens":100,"messages":[{"role":"user","name":"ann","content":"Hello"}],
        "stream_options":{"include_usage":true},"service_tier":"flex","tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"} "#;
    let request = chat(body);
    assert_eq!((&*request.model, request.stream, request.choices), ("gpt-test", true, 2));
    assert!(matches!(request.model, Cow::Borrowed(_)));
    assert_eq!(request.output_cap, Some(100));
    assert!(request.usage_asked && request.stream_options_present);
    assert_eq!(request.service_tier.as_deref(), Some("flex"));
    let content = &request.content;
    assert_eq!((content.messages, content.names, content.tools, request.tool_count), (1, 1, 1, 1));
    assert!(content.tool_choice_forced);
    assert_eq!(pieces(Surface::Chat, body), ["ann", "Hello", "f"]);
}

#[test]
fn fields_of_a_messages_request() {
    let body = r#"{"model":"claude-test","max_tokens":10,"system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
        "messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}}"#;
    let request = messages(body);
    assert_eq!((request.output_cap, request.stream, request.choices), (Some(10), false, 1));
    assert!(request.cache_asked && request.cache_hour_asked && request.web_search);
    assert!(request.content.tool_choice_forced);
    assert_eq!(pieces(Surface::Messages, body), ["Be kind.", "Hi", "web_search"]);
    let plain = messages(r#"{"model":"c","max_tokens":1,"messages":[],"tool_choice":{"type":"auto"}}"#);
    assert!(!plain.cache_asked && !plain.content.tool_choice_forced && !plain.web_search);
}

#[test]
fn b097_two_output_caps_the_larger_counts() {
    let request = chat(r#"{"model":"m","messages":[],"max_tokens":1,"max_completion_tokens":700}"#);
    assert_eq!(request.output_cap, Some(700));
    let request = chat(r#"{"model":"m","messages":[],"max_tokens":900,"max_completion_tokens":700}"#);
    assert_eq!(request.output_cap, Some(900));
}

#[test]
fn b100_null_zero_and_wrong_typed_caps() {
    let with = |cap: &str| format!(r#"{{"model":"m","messages":[],"max_tokens":{cap}}}"#);
    for surface in [Surface::Chat, Surface::Messages] {
        let read = |cap: &str| decode_request(surface, with(cap).as_bytes()).map(|r| r.output_cap);
        assert_eq!(read("null"), Ok(None));
        assert_eq!(read("0"), Ok(Some(0)));
        assert_eq!(read("9007199254740991"), Ok(Some((1 << 53) - 1)));
        for wrong in
            ["-1", "\"100\"", "1.5", "[]", "{}", "true", "1e3", "9007199254740992", "99999999999999999999"]
        {
            assert_eq!(fault(surface, with(wrong).as_bytes()), At::Param("max_tokens"), "{wrong}");
        }
    }
    assert_eq!(chat(r#"{"model":"m","messages":[]}"#).output_cap, None);
    let body = br#"{"model":"m","messages":[],"max_completion_tokens":"9"}"#;
    assert_eq!(fault(Surface::Chat, body), At::Param("max_completion_tokens"));
}

#[test]
fn choices_are_bounded() {
    let with = |n: &str| format!(r#"{{"model":"m","messages":[],"n":{n}}}"#);
    for (n, want) in [("1", 1), ("128", 128), ("null", 1)] {
        assert_eq!(chat(&with(n)).choices, want);
    }
    for n in ["0", "129", "-1", "1.5", "\"2\""] {
        assert_eq!(fault(Surface::Chat, with(n).as_bytes()), At::Param("n"), "{n}");
    }
}

#[test]
fn wrong_types_name_their_parameter() {
    let cases = [
        (r#"{"messages":[]}"#, "model"),
        (r#"{"model":5,"messages":[]}"#, "model"),
        (r#"{"model":"","messages":[]}"#, "model"),
        (r#"{"model":"m"}"#, "messages"),
        (r#"{"model":"m","messages":"hi"}"#, "messages"),
        (r#"{"model":"m","messages":[],"stream":"yes"}"#, "stream"),
        (r#"{"model":"m","messages":[],"stream_options":[]}"#, "stream_options"),
        (
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":1}}"#,
            "stream_options.include_usage",
        ),
    ];
    for (body, param) in cases {
        assert_eq!(fault(Surface::Chat, body.as_bytes()), At::Param(param), "{body}");
    }
    let long = format!(r#"{{"model":"{}","messages":[]}}"#, "m".repeat(513));
    assert_eq!(fault(Surface::Chat, long.as_bytes()), At::Param("model"));
    assert!(
        decode_request(
            Surface::Chat,
            long.replacen('m', "", 0).replace(&"m".repeat(513), &"m".repeat(512)).as_bytes()
        )
        .is_ok()
    );
}

#[test]
fn malformed_bodies_name_their_byte() {
    for (body, at) in [
        (&b""[..], 0),
        (b"[]", 0),
        (b"{", 1),
        (br#"{"model":"m","messages":[]} x"#, 28),
        (br#"{"model":"m","messages":[],}"#, 27),
        (br#"{"model":"m" "messages":[]}"#, 13),
        (b"\xEF\xBB\xBF{}", 0),
    ] {
        assert_eq!(fault(Surface::Chat, body), At::Byte(at), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn b140_unpaired_surrogates_and_invalid_utf8() {
    for surface in [Surface::Chat, Surface::Messages] {
        for content in [r"x \ud83d", r"\ude00", r"\ud83d\u0041", r"\ud83dx"] {
            let body = format!(
                r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":"{content}"}}]}}"#
            );
            assert!(matches!(fault(surface, body.as_bytes()), At::Byte(_)), "{content}");
            // Also where nothing is read.
            let body =
                format!(r#"{{"model":"m","max_tokens":1,"messages":[],"metadata":{{"a":["{content}"]}}}}"#);
            assert!(matches!(fault(surface, body.as_bytes()), At::Byte(_)), "{content}");
        }
        let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x \ud83d\ude00"}]}"#;
        assert_eq!(text_of(surface, body).0, ["x 😀"]);
        let raw = b"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}";
        assert_eq!(fault(surface, raw), At::Byte(51));
    }
}

#[test]
fn b145_duplicate_and_misspelt_members() {
    let cases = [
        (r#"{"model":"cheap","model":"dear","messages":[]}"#, "model"),
        (r#"{"model":"m","messages":[],"max_tokens":1,"max_tokens":9000}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"stream":false,"stream":true}"#, "stream"),
        (r#"{"model":"m","messages":[],"messages":[]}"#, "messages"),
        (r#"{"model":"m","messages":[],"mod\u0065l":"dear"}"#, "model"),
        (r#"{"model":"m","messages":[],"Model":"dear"}"#, "model"),
        (r#"{"model":"m","messages":[],"MAX_TOKENS":9}"#, "max_tokens"),
        (r#"{"model":"m","messages":[],"n":1,"n":2}"#, "n"),
        (
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":true,"include_usage":false}}"#,
            "stream_options",
        ),
    ];
    for (body, param) in cases {
        assert_eq!(fault(Surface::Chat, body.as_bytes()), At::Param(param), "{body}");
    }
    // An escaped spelling alone is the member itself.
    assert_eq!(chat(r#"{"mod\u0065l":"m","messages":[]}"#).model, "m");
    // Members that steer nothing may repeat; the provider decides.
    chat(r#"{"model":"m","messages":[],"user":"a","user":"b"}"#);
}

/// B145: providers that fold case read the Kelvin sign as k and the long s as s.
#[test]
fn b145_letters_that_fold_into_ascii() {
    let (kelvin, long_s) = ("\u{212A}", "\u{17F}");
    let cases = [
        (r#""max_tokens":1,"max_to\u212aens":4000"#.to_owned(), "max_tokens"),
        (format!(r#""max_tokens":1,"max_to{kelvin}ens":4000"#), "max_tokens"),
        (format!(r#""MAX_to{kelvin}En{long_s}":4000"#), "max_tokens"),
        (r#""\u017ftream":true"#.to_owned(), "stream"),
        (format!(r#""{long_s}tream":true"#), "stream"),
        (format!(r#""{long_s}y{long_s}tem":"long""#), "system"),
        (format!(r#""{long_s}ervice_tier":"priority""#), "service_tier"),
        (format!(r#""tool{long_s}":[]"#), "tools"),
        (format!(r#""me{long_s}{long_s}age{long_s}":[]"#), "messages"),
    ];
    for surface in [Surface::Chat, Surface::Messages] {
        for (more, param) in &cases {
            let body = format!(r#"{{"model":"m","messages":[],{more}}}"#);
            assert_eq!(fault(surface, body.as_bytes()), At::Param(param), "{body}");
        }
    }
    let body = format!(r#"{{"model":"m","messages":[],"stream_options":{{"include_u{long_s}age":false}}}}"#);
    assert_eq!(fault(Surface::Chat, body.as_bytes()), At::Param("stream_options"));
    // Letters that fold elsewhere are other names.
    chat(r#"{"model":"m","messages":[],"ſtreamer":true,"ｍodel":"x","maẋ_tokens":1}"#);
}

#[test]
fn b145_every_member_that_counts_is_declared() {
    let both = [
        "model",
        "messages",
        "stream",
        "max_tokens",
        "tools",
        "service_tier",
        "system",
        "tool_choice",
        "thinking",
    ];
    let chat_only = [
        "stream_options",
        "max_completion_tokens",
        "n",
        "functions",
        "function_call",
        "response_format",
        "documents",
        "modalities",
        "audio",
        "web_search_options",
        "prediction",
        "prompt",
        "best_of",
        "thinking_budget",
        "chat_template",
        "plugins",
        "search_parameters",
        "enable_search",
        "models",
    ];
    let messages_only = ["output_config", "output_format", "cache_control", "mcp_servers"];
    for (surface, own) in [(Surface::Chat, &chat_only[..]), (Surface::Messages, &messages_only)] {
        for &name in both.iter().chain(own) {
            let misspelt = format!(r#"{{"model":"m","messages":[],"{}":null}}"#, name.to_uppercase());
            assert_eq!(fault(surface, misspelt.as_bytes()), At::Param(name), "{misspelt}");
            if !["model", "messages"].contains(&name) {
                let twice = format!(r#"{{"model":"m","messages":[],"{name}":null,"{name}":null}}"#);
                assert_eq!(fault(surface, twice.as_bytes()), At::Param(name), "{twice}");
            }
        }
    }
    // A member of the other surface is none here.
    chat(r#"{"model":"m","messages":[],"MCP_servers":null}"#);
    messages(r#"{"model":"m","messages":[],"Functions":null}"#);
}

#[test]
fn b145_misspelt_members_of_a_message() {
    let cases = [
        ("Content", "messages[].content"),
        ("CONTENT", "messages[].content"),
        ("c\\u004fntent", "messages[].content"),
        ("Role", "messages[].role"),
        ("nAme", "messages[].name"),
        ("tool_call\\u017f", "messages[].tool_calls"),
        ("tool_callſ", "messages[].tool_calls"),
        ("Function_call", "messages[].function_call"),
        ("refuſal", "messages[].refusal"),
        ("reaſoning", "messages[].reasoning"),
        ("Reasoning_content", "messages[].reasoning_content"),
        ("Cache_control", "messages[].cache_control"),
    ];
    for surface in [Surface::Chat, Surface::Messages] {
        for (key, param) in cases {
            let body =
                format!(r#"{{"model":"m","messages":[{{"role":"user","content":"a","{key}":"long"}}]}}"#);
            assert_eq!(fault(surface, body.as_bytes()), At::Param(param), "{body}");
        }
        // Other members are the provider's to judge, whatever their case; what they hold counts.
        let body = r#"{"model":"m","messages":[{"role":"user","content":"a","Mood":"b","größe":1}]}"#;
        assert_eq!(text_of(surface, body).0, ["a", "b"]);
    }
}

#[test]
fn b145_misspelt_members_deeper_inside_count() {
    let body = r#"{"model":"m","messages":[{"role":"assistant","tool_calls":[
        {"id":"c","Function":{"name":"f"}},{"function":{"name":"g","Argumentſ":"long"}}]}]}"#;
    assert_eq!(text_of(Surface::Chat, body).0, [r#"{"name":"f"}"#, "g", "long"]);
    let body = r#"{"model":"m","messages":[{"role":"user","content":[
        {"type":"text","Text":"words"},{"type":"image_url","image_url":{"URL":"https://example.com/a.png"}}]}],
        "tools":[{"Type":"web_ſearch","name":"w"},{"Type":"web_search"}]}"#;
    assert_eq!(text_of(Surface::Chat, body).0, ["words", "w"]);
    let request = chat(body);
    assert_eq!(request.content.images.len(), 1);
    assert!(request.web_search);
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[
        {"type":"document","source":{"type":"text","Data":"plain words"},"cache_control":{"type":"ephemeral","TTL":"1h"}}]}]}"#;
    assert_eq!(text_of(Surface::Messages, body).0, ["plain words"]);
    assert!(messages(body).cache_hour_asked);
}

#[test]
fn predictions_prompts_and_remote_tools_are_text() {
    let with = |more: &str| format!(r#"{{"model":"m","messages":[],{more}}}"#);
    let cases = [
        (r#""prediction":{"type":"content","content":"let x = 1;"}"#, vec!["let x = 1;"]),
        (
            r#""prediction":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"type":"content"}"#,
            vec!["a", "b"],
        ),
        (r#""prediction":{"type":"content","Content":"a"}"#, vec!["a"]),
        (r#""prediction":null"#, vec![]),
        (r#""system":"Be kind.","prompt":"Once upon a time""#, vec!["Be kind.", "Once upon a time"]),
        (r#""system":null,"prompt":null"#, vec![]),
    ];
    for (more, want) in cases {
        assert_eq!(text_of(Surface::Chat, &with(more)).0, want, "{more}");
    }
    let servers = r#""mcp_servers":[{"type":"url","url":"https://example.com/mcp","name":"tolls",
        "authorization_token":"secret","tool_configuration":{"allowed_tools":["look"]}}]"#;
    assert_eq!(
        text_of(Surface::Messages, &with(servers)).0,
        ["https://example.com/mcp", "tolls", r#"{"allowed_tools":["look"]}"#]
    );
    assert!(text_of(Surface::Messages, &with(r#""mcp_servers":null"#)).0.is_empty());
}

#[test]
fn nesting_is_bounded() {
    let nest =
        |n: usize| format!(r#"{{"model":"m","messages":[],"metadata":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    chat(&nest(63));
    assert!(matches!(fault(Surface::Chat, nest(64).as_bytes()), At::Byte(_)));
    let deep = format!(r#"{{"model":"m","messages":[{{"content":{}"#, r#"[{"content":"#.repeat(100_000));
    assert!(matches!(fault(Surface::Chat, deep.as_bytes()), At::Byte(_)));
}

#[test]
fn b101_inline_images_are_no_text() {
    let data = picture(2_500_000);
    let chat_body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"text","text":"word"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}","detail":"low"}}}}]}}]}}"#
    );
    let (text, classes) = text_of(Surface::Chat, &chat_body);
    assert_eq!((text, classes.bytes), (vec!["word".to_owned()], 4));
    let images = chat(&chat_body).content.images;
    assert_eq!(images.len(), 1);
    assert_eq!((images[0].width, images[0].height, images[0].known), (1024, 768, true));
    assert_eq!((images[0].detail, images[0].remote), (Detail::Low, false));

    // The members of a source come in any order.
    for source in [
        format!(r#""source":{{"type":"base64","media_type":"image/png","data":"{data}"}},"type":"image""#),
        format!(r#""type":"image","source":{{"data":"{data}","media_type":"image/png","type":"base64"}}"#),
    ] {
        let body = format!(
            r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":[{{{source}}},{{{source}}},{{"type":"text","text":"word"}}]}}]}}"#
        );
        assert_eq!(text_of(Surface::Messages, &body).0, ["word"]);
        let images = messages(&body).content.images;
        assert_eq!(images.iter().map(|i| (i.width, i.known)).collect::<Vec<_>>(), [(1024, true); 2]);
    }
    // Text that holds base64 is text.
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{data}"}}]}}"#);
    let classes = text_of(Surface::Chat, &body).1;
    assert_eq!(classes.bytes, u64::try_from(data.len()).unwrap());
    assert!(classes.dense > classes.bytes * 9 / 10);
}

#[test]
fn remote_images_and_other_media() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":[
        {"type":"image_url","image_url":{"url":"https://example.com/a.png"}},
        {"type":"image_url","image_url":"https://example.com/b.png","detail":"high"},
        {"type":"input_audio","input_audio":{"data":"AAAABBBB","format":"wav"}},
        {"type":"file","file":{"file_id":"file-1"}}]}]}"#;
    let content = chat(body).content;
    assert_eq!(
        content.images.iter().map(|i| (i.remote, i.detail)).collect::<Vec<_>>(),
        [(true, Detail::Auto), (true, Detail::High)]
    );
    assert_eq!((content.other_media, content.other_media_bytes, content.text.bytes), (2, 8, 0));
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[
        {"type":"image","source":{"type":"url","url":"https://example.com/a.png"}},
        {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0x"},"title":"Tolls"},
        {"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain words"}},
        {"type":"document","source":{"type":"content","content":[{"type":"text","text":"inner"}]}}]}]}"#;
    let content = messages(body).content;
    assert_eq!((content.images.len(), content.images[0].remote), (1, true));
    assert_eq!((content.other_media, content.other_media_bytes), (1, 8));
    assert_eq!(text_of(Surface::Messages, body).0, ["Tolls", "plain words", "inner"]);
}

#[test]
fn b102_images_in_tool_results() {
    let data = picture(20_000);
    let body = format!(
        r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":[
            {{"type":"text","text":"seen"}},{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}]}}]}}]}}"#
    );
    assert_eq!(text_of(Surface::Messages, &body).0, ["seen"]);
    assert_eq!(messages(&body).content.images.len(), 1);
    assert_eq!(messages(&body).content.images[0].width, 1024);
    // A result may also be plain text.
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"12 degrees"}]}]}"#;
    assert_eq!(text_of(Surface::Messages, body).0, ["12 degrees"]);
}

#[test]
fn too_many_images_are_refused() {
    let image = r#"{"type":"image_url","image_url":"https://example.com"}"#;
    let with =
        |n: usize| format!(r#"{{"model":"m","messages":[{{"content":[{}]}}]}}"#, vec![image; n].join(","));
    assert_eq!(chat(&with(2_000)).content.images.len(), 2_000);
    assert_eq!(fault(Surface::Chat, with(2_001).as_bytes()), At::Param("messages"));
}

#[test]
fn b104_tool_definitions_and_schemas_are_text() {
    let schema =
        r#"{ "type" : "object", "properties" : {"city": {"type":"string","description":"\u00e9"}} }"#;
    let compact = r#"{"type":"object","properties":{"city":{"type":"string","description":"é"}}}"#;
    let body = format!(
        r#"{{"model":"m","messages":[],"tools":[{{"type":"function","function":{{"name":"get","description":"Gets it","parameters":{schema},"strict":true}}}}],
           "functions":[{{"name":"old","parameters":{schema}}}],"response_format":{{"type":"json_schema","json_schema":{{"name":"out","schema":{schema}}}}}}}"#
    );
    let (text, _) = text_of(Surface::Chat, &body);
    assert_eq!(text[..5], ["get", "Gets it", compact, "old", compact]);
    assert!(text[5].contains(compact));
    assert_eq!(chat(&body).content.tools, 2);
    let body = format!(
        r#"{{"model":"m","max_tokens":1,"messages":[],"tools":[{{"name":"get","description":"Gets it","input_schema":{schema}}}]}}"#
    );
    assert_eq!(text_of(Surface::Messages, &body).0, ["get", "Gets it", compact]);
    // 21 tools with descriptions of 300 characters: nearly all of it is there.
    let tool = format!(
        r#"{{"type":"function","function":{{"name":"n","description":"{}","parameters":{schema}}}}}"#,
        "d".repeat(300)
    );
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"{}"}},{{"role":"user","content":"hi"}}],"tools":[{}]}}"#,
        "s".repeat(500),
        vec![tool; 21].join(",")
    );
    assert!(text_of(Surface::Chat, &body).1.bytes > 21 * 370 + 500);
}

#[test]
fn b105_earlier_tool_calls_are_text() {
    let arguments = "x".repeat(40_000);
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"assistant","content":null,"tool_calls":[{{"id":"c","type":"function","function":{{"name":"do","arguments":"{arguments}"}}}}]}},
            {{"role":"tool","tool_call_id":"c","content":"done"}},{{"role":"assistant","content":null,"function_call":{{"name":"old","arguments":"{{}}"}}}}]}}"#
    );
    let (text, classes) = text_of(Surface::Chat, &body);
    assert_eq!(text, ["do", &arguments, "done", "old", "{}"]);
    assert_eq!(classes.bytes, 40_000 + 2 + 4 + 3 + 2);
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"tool_use","id":"t1","name":"look","input":{"q": [1, true, null]}}]}]}"#;
    assert_eq!(text_of(Surface::Messages, body).0, ["hm", "look", r#"{"q":[1,true,null]}"#]);
}

#[test]
fn b107_long_text_without_spaces_is_linear() {
    // Unoptimised code is some ten times slower; quadratic code would be thousands of times slower.
    let limit = Duration::from_millis(if cfg!(debug_assertions) { 2_000 } else { 200 });
    for text in ["漢", "ก", "😀", "a1", "\\n", "\\u6f22", "/"] {
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#, text.repeat(100_000));
        let start = std::time::Instant::now();
        let classes = chat(&body).content.text;
        assert!(start.elapsed() < limit, "{text}: {:?}", start.elapsed());
        assert_eq!(classes.chars(), if text == "a1" { 200_000 } else { 100_000 }, "{text}");
    }
}

#[test]
fn b108_special_words_are_ordinary_text() {
    let body =
        r#"{"model":"m","messages":[{"role":"user","content":"<|endoftext|> <|im_start|> <|fim_prefix|>"}]}"#;
    assert_eq!(text_of(Surface::Chat, body).0, ["<|endoftext|> <|im_start|> <|fim_prefix|>"]);
}

#[test]
fn odd_shapes_are_counted_rather_than_refused() {
    let body = r#"{"model":"m","messages":["bare",{"role":"user","content":{"type":"text","text":"one"}},{"role":"user","content":["two",3]},{"content":null},7]}"#;
    assert_eq!(text_of(Surface::Chat, body).0, ["bare", "one", "two", "3", "7"]);
}

fn changed(surface: Surface, body: &str, changes: &Changes<'_>) -> String {
    let request = decode_request(surface, body.as_bytes()).unwrap();
    let edits = edits(&request, changes);
    let out = apply_edits(body.as_bytes(), &edits);
    assert_eq!(out.len(), edited_len(body.as_bytes(), &edits));
    String::from_utf8(out).unwrap()
}

#[test]
fn edits_are_splices() {
    let ask = Changes { include_usage: true, ..Changes::default() };
    let cases = [
        (
            r#"{"model":"m","stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}"#,
        ),
        (
            r#"{ "stream_options" : null ,"model":"m","stream":true,"messages":[]}"#,
            r#"{ "stream_options" : {"include_usage":true} ,"model":"m","stream":true,"messages":[]}"#,
        ),
        (
            r#"{"stream_options":{},"model":"m","stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}"#,
        ),
        (
            r#"{"stream_options":{ "x":1},"model":"m","stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage":true, "x":1},"model":"m","stream":true,"messages":[]}"#,
        ),
        // B046: an explicit no is overwritten upstream.
        (
            r#"{"stream_options":{"include_usage": false },"model":"m","stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage": true },"model":"m","stream":true,"messages":[]}"#,
        ),
        // Already so, or no stream: nothing to do.
        (
            r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}"#,
        ),
        (r#"{"model":"m","messages":[]}"#, r#"{"model":"m","messages":[]}"#),
    ];
    for (body, want) in cases {
        assert_eq!(changed(Surface::Chat, body, &ask), want);
    }
    let cap = Changes { output_cap: Some(50), model: Some("other \"name\""), ..Changes::default() };
    let cases = [
        (
            Surface::Chat,
            r#"{"model":"m","messages":[]}"#,
            r#"{"max_completion_tokens":50,"model":"other \"name\"","messages":[]}"#,
        ),
        (
            Surface::Chat,
            r#"{"max_tokens":9,"model":"m","messages":[]}"#,
            r#"{"max_tokens":50,"model":"other \"name\"","messages":[]}"#,
        ),
        (
            Surface::Chat,
            r#"{"max_tokens":null,"model":"m","messages":[],"max_completion_tokens": 7}"#,
            r#"{"max_tokens":50,"model":"other \"name\"","messages":[],"max_completion_tokens": 50}"#,
        ),
        (
            Surface::Messages,
            r#"{"model":"m","messages":[]}"#,
            r#"{"max_tokens":50,"model":"other \"name\"","messages":[]}"#,
        ),
    ];
    for (surface, body, want) in cases {
        assert_eq!(changed(surface, body, &cap), want);
    }
}

#[test]
fn edits_that_do_not_fit_leave_the_body_alone() {
    let request = chat(r#"{"model":"m","messages":[],"max_tokens":5}"#);
    let edits = edits(&request, &Changes { output_cap: Some(1), ..Changes::default() });
    assert_eq!(apply_edits(b"short", &edits), b"short");
}

/// A body with the members in any order and spelling.
fn any_body() -> impl Strategy<Value = String> {
    let optional = |values: &'static [&'static str]| prop::sample::select(values);
    (
        optional(&["", r#""max_tokens":7"#, r#""max_tokens" : null"#]),
        optional(&["", r#""max_completion_tokens":9"#]),
        optional(&["", r#""stream":true"#, r#""stream":false"#]),
        optional(&[
            "",
            r#""stream_options":null"#,
            r#""stream_options":{}"#,
            r#""stream_options":{"include_usage":false}"#,
            r#""stream_options":{"a":[1],"include_usage":true}"#,
        ]),
        Just(r#""messages":[{"role":"user","content":"\"model\":\"x\" é"}]"#),
        Just(r#""mod\u0065l":"m""#),
    )
        .prop_map(|(a, b, c, d, e, f)| {
            [a, b, c, d, e, f].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>()
        })
        .prop_shuffle()
        .prop_map(|members| format!("{{ {} }}", members.join(" ,\n ")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn a_spliced_body_reads_as_the_changed_request(body in any_body(), model in "[a-z\"\\\\é]{1,8}", usage in any::<bool>(), cap in prop::option::of(0..100_u64)) {
        let before = chat(&body);
        let changes = Changes { model: Some(&model), include_usage: usage, output_cap: cap };
        let out = changed(Surface::Chat, &body, &changes);
        let after = chat(&out);
        prop_assert_eq!(&*after.model, model.as_str());
        prop_assert_eq!(after.output_cap, cap.or(before.output_cap));
        prop_assert_eq!(after.usage_asked, before.usage_asked || (usage && before.stream));
        prop_assert_eq!(&after.content, &before.content);
        prop_assert_eq!(after.stream, before.stream);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        prop_assert!(value.is_object());
    }

    #[test]
    fn no_body_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\",:a-z0-9\\\\u]{0,200}") {
        for surface in [Surface::Chat, Surface::Messages] {
            let _ = decode_request(surface, &bytes);
            let _ = decode_request(surface, text.as_bytes());
        }
    }
}

/// B078: whether an answer may contain sound decides what it can cost.
#[test]
fn b078_sound_is_asked_for_by_modalities_or_audio() {
    let asked = |more: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}]{more}}}"#);
        decode_request(Surface::Chat, body.as_bytes()).unwrap().audio_asked
    };
    assert!(asked(r#","modalities":["text","audio"]"#));
    assert!(asked(r#","audio":{"voice":"alloy","format":"wav"}"#));
    for no in
        ["", r#","modalities":["text"]"#, r#","modalities":null"#, r#","modalities":"audio","audio":null"#]
    {
        assert!(!asked(no), "{no}");
    }
}
