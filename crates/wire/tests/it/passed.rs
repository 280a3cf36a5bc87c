//! Bodies and answers that are passed through.

use proptest::prelude::*;
use tollbook_wire::{
    At, Dialect, FORM_PARTS_MAX, PART_HEAD_MAX, Passed, PassedMeter, apply_edits, decode_passed,
};

const FORM: &str = "multipart/form-data; boundary=\"B0\"";

fn read<'a>(content_type: &str, body: &'a [u8]) -> Passed<'a> {
    decode_passed(Dialect::OpenAi, content_type, body).unwrap().unwrap()
}

fn fault(content_type: &str, body: &[u8]) -> At {
    decode_passed(Dialect::OpenAi, content_type, body).unwrap().unwrap_err().at
}

fn part(head: &str, value: &str) -> String {
    format!("--B0\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
}

fn form(parts: &[String]) -> Vec<u8> {
    format!("{}--B0--\r\n", parts.concat()).into_bytes()
}

#[test]
fn a_form_names_its_model_and_weighs_its_files() {
    let body = form(&[
        part("name=\"file\"; filename=\"a \\\"b\\\".wav\"", &"x".repeat(3_000)),
        part("name=prompt", "about tolls"),
        part("name=\"model\"", "whisper"),
        part("name=\"n\"", "3"),
    ]);
    let passed = read(FORM, &body);
    assert_eq!((&*passed.request.model, passed.request.choices), ("whisper", 3));
    let content = &passed.request.content;
    assert_eq!((content.other_media, content.other_media_bytes, content.text.bytes), (1, 4_000, 11));
    let renamed = apply_edits(&body, &passed.rename("whisper-large"));
    assert_eq!(read(FORM, &renamed).request.model, "whisper-large");
    assert_eq!(renamed.len(), body.len() + 6);
    assert!(passed.rename("whisper").is_empty());
}

#[test]
fn json_counts_all_its_text_and_keeps_its_bytes() {
    let body = br#"{"prompt":"a gate","model" : "m","n":2,"user":"u","size":"1024x1024","stream":true}"#;
    let passed = read("application/json; charset=utf-8", body);
    assert_eq!((&*passed.request.model, passed.request.choices, passed.request.stream), ("m", 2, true));
    assert_eq!(passed.request.content.text.bytes, 6 + 9);
    let renamed = apply_edits(body, &passed.rename("other"));
    let want = r#"{"prompt":"a gate","model" : "other","n":2,"user":"u","size":"1024x1024","stream":true}"#;
    assert_eq!(String::from_utf8(renamed).unwrap(), want);
    assert!(read("application/json", br#"{"input":"x"}"#).request.model.is_empty());
    assert_eq!(fault("application/json", br#"{"model":"a","model":"b"}"#), At::Param("model"));
    assert_eq!(fault("application/json", br#"{"MODEL":"a"}"#), At::Param("model"));
    assert!(decode_passed(Dialect::OpenAi, "text/plain", b"x").is_none());
}

#[test]
fn bounds_of_a_form_are_exact() {
    let field = |n: usize| part(&format!("name=\"f{n}\""), "v");
    let parts = |n: usize| form(&(0..n).map(field).collect::<Vec<_>>());
    read(FORM, &parts(FORM_PARTS_MAX));
    assert!(matches!(fault(FORM, &parts(FORM_PARTS_MAX + 1)), At::Byte(_)));
    let head = |len: usize| {
        let used = "Content-Disposition: form-data; name=\"a\"\r\nX: ".len();
        form(&[part(&format!("name=\"a\"\r\nX: {}", "y".repeat(len - used)), "v")])
    };
    read(FORM, &head(PART_HEAD_MAX - 4));
    assert!(matches!(fault(FORM, &head(PART_HEAD_MAX - 3)), At::Byte(_)));
}

#[test]
fn usage_is_found_where_answers_put_it() {
    for (dialect, body, want) in [
        (Dialect::OpenAi, r#"{"usage":{"input_tokens":7,"output_tokens":5}}"#, Some((7, 5))),
        (Dialect::OpenAi, r#"{"response":{"usage":{"input_tokens":7,"output_tokens":5}}}"#, Some((7, 5))),
        (Dialect::OpenAi, r#"{"usage":{"prompt_tokens":7,"total_tokens":7}}"#, Some((7, 0))),
        (Dialect::OpenAi, r#"{"usage":{"type":"duration","seconds":3}}"#, None),
        (Dialect::OpenAi, r#"{"data":{"usage":{"input_tokens":7}}}"#, None),
        (Dialect::OpenAi, r#"{"usage":null}"#, None),
        (
            Dialect::Anthropic,
            r#"{"usage":{"input_tokens":7,"cache_read_input_tokens":3,"output_tokens":5}}"#,
            Some((10, 5)),
        ),
    ] {
        let mut meter = PassedMeter::new(dialect);
        assert!(meter.body(body.as_bytes()));
        assert_eq!(meter.usage_found().map(|u| (u.input, u.output)), want, "{body}");
        // The same as an event, cut anywhere.
        let event = format!("event: x\ndata: {body}\n\ndata: [DONE]\n\n");
        for cut in 0..event.len() {
            let mut meter = PassedMeter::new(dialect);
            meter.push(&event.as_bytes()[..cut]);
            meter.push(&event.as_bytes()[cut..]);
            meter.finish();
            assert_eq!(meter.usage_found().map(|u| (u.input, u.output)), want, "{body} cut at {cut}");
        }
    }
    assert!(!PassedMeter::new(Dialect::OpenAi).body(b"not json"));
}

proptest! {
    #[test]
    fn no_form_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "(--B0|\r\n|name=|\"model\"|;|:|form-data|[a-z \\\\]){0,40}") {
        for body in [&bytes[..], text.as_bytes(), &[b"--B0\r\n", text.as_bytes()].concat()[..]] {
            for kind in [FORM, "application/json"] {
                if let Some(Ok(passed)) = decode_passed(Dialect::OpenAi, kind, body) {
                    drop(apply_edits(body, &passed.rename("other")));
                }
            }
        }
    }
}
