//! What the gateway writes itself: errors, ends of streams, model lists.

use bytes::Bytes;
use serde_json::{Value, json};
use tollbook_wire::{
    Dialect, ErrorDetail, ErrorKind, SseItem, SseReader, StopUsage, StreamRelay, Surface, error_body,
    error_event, keepalive, model_body, models_body, stop_at_limit,
};

use crate::kit::{named, sse};

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

/// Names and data of the events in the bytes.
fn events(bytes: &[u8]) -> Vec<(String, Value)> {
    let mut reader = SseReader::new();
    let mut out = Vec::new();
    let mut each = |item: SseItem<'_>| {
        if let SseItem::Event(event) = item {
            let name = String::from_utf8(event.name.to_vec()).unwrap();
            let data = serde_json::from_slice(event.data).unwrap_or(Value::String("[DONE]".into()));
            out.push((name, data));
        }
    };
    reader.push(bytes, &mut each);
    assert!(reader.at_boundary());
    out
}

#[test]
fn b148_every_error_has_the_shape_and_type_of_its_dialect() {
    let anthropic = [
        (ErrorKind::InvalidRequest, 400, "invalid_request_error"),
        (ErrorKind::Authentication, 401, "authentication_error"),
        (ErrorKind::InsufficientQuota, 402, "billing_error"),
        (ErrorKind::Permission, 403, "permission_error"),
        (ErrorKind::NotFound, 404, "not_found_error"),
        (ErrorKind::TooLarge, 413, "request_too_large"),
        (ErrorKind::RateLimit, 429, "rate_limit_error"),
        (ErrorKind::Internal, 500, "api_error"),
        (ErrorKind::Upstream, 502, "api_error"),
        (ErrorKind::Unavailable, 503, "overloaded_error"),
        (ErrorKind::Timeout, 504, "timeout_error"),
        (ErrorKind::Overloaded, 529, "overloaded_error"),
    ];
    for (kind, status, word) in anthropic {
        assert_eq!(kind.status(Dialect::Anthropic), status);
        let body =
            value(&error_body(Dialect::Anthropic, kind, ErrorDetail::default(), "why \"so\"\n", "req_1"));
        assert_eq!(
            body,
            json!({"type":"error","error":{"type":word,"message":"why \"so\"\n"},"request_id":"req_1"})
        );
    }
    for kind in ErrorKind::ALL {
        let body = value(&error_body(Dialect::OpenAi, kind, ErrorDetail::default(), "why", "req_1"));
        let error = body["error"].as_object().unwrap();
        let mut members: Vec<&str> = error.keys().map(String::as_str).collect();
        members.sort_unstable();
        assert_eq!(members, ["code", "message", "param", "type"]);
        let word = error["type"].as_str().expect("a type");
        assert!(!word.is_empty() && word != "None");
        assert!((400..600).contains(&kind.status(Dialect::OpenAi)));
        // SDKs repeat 408 and 409 by themselves.
        assert!(![408, 409].contains(&kind.status(Dialect::OpenAi)));
    }
}

#[test]
fn h05_refusals_are_told_apart() {
    let rate = ErrorDetail { kind: Some("tokens"), ..ErrorDetail::default() };
    let body =
        value(&error_body(Dialect::OpenAi, ErrorKind::RateLimit, rate, "Please try again in 1.250s.", "r"));
    assert_eq!(
        body,
        json!({"error":{"message":"Please try again in 1.250s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}})
    );
    let body = value(&error_body(
        Dialect::OpenAi,
        ErrorKind::InsufficientQuota,
        ErrorDetail::default(),
        "spent",
        "r",
    ));
    assert_eq!(
        (&body["error"]["type"], &body["error"]["code"]),
        (&json!("insufficient_quota"), &json!("insufficient_quota"))
    );
    assert_eq!(ErrorKind::InsufficientQuota.status(Dialect::OpenAi), 429);
    let detail =
        ErrorDetail { code: Some("model_not_found"), param: Some("model"), ..ErrorDetail::default() };
    let body = value(&error_body(Dialect::OpenAi, ErrorKind::NotFound, detail, "no such model", "r"));
    assert_eq!(
        (&body["error"]["code"], &body["error"]["param"]),
        (&json!("model_not_found"), &json!("model"))
    );
}

#[test]
fn b042_b043_stream_errors_are_the_dialects_events() {
    let detail = ErrorDetail::default();
    let event =
        error_event(Dialect::OpenAi, ErrorKind::StreamIncomplete, detail, "the stream ended early", "r");
    let got = events(&event);
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].0.as_str(), &got[0].1["error"]["code"]), ("", &json!("stream_incomplete")));
    let event =
        error_event(Dialect::Anthropic, ErrorKind::StreamIncomplete, detail, "the stream ended early", "r");
    let got = events(&event);
    assert_eq!(
        (got[0].0.as_str(), &got[0].1["type"], &got[0].1["error"]["type"]),
        ("error", &json!("error"), &json!("api_error"))
    );
}

fn relay_of(surface: Surface, bytes: &[u8]) -> StreamRelay {
    let mut relay = StreamRelay::new(surface, true);
    relay.push(Bytes::copy_from_slice(bytes), &mut Vec::new());
    relay
}

#[test]
fn l09_a_chat_stream_stopped_at_a_limit_ends_as_length() {
    let relay = relay_of(
        Surface::Chat,
        &sse(&[
            r#"{"id":"chatcmpl-9","created":5,"model":"gpt-test","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"id":"chatcmpl-9","created":5,"model":"gpt-test","choices":[{"index":1,"delta":{"content":"b"},"finish_reason":null}]}"#,
        ]),
    );
    let usage = StopUsage { input: 10, output: 4, asked: true };
    let got = events(&stop_at_limit(Surface::Chat, relay.meter(), usage));
    assert_eq!(
        got[0].1,
        json!({"id":"chatcmpl-9","object":"chat.completion.chunk","created":5,"model":"gpt-test",
        "choices":[{"index":1,"delta":{},"finish_reason":"length"}]})
    );
    assert_eq!(got[1].1["choices"], json!([]));
    assert_eq!(got[1].1["usage"], json!({"prompt_tokens":10,"completion_tokens":4,"total_tokens":14}));
    assert_eq!(got[2].1, json!("[DONE]"));
    let unasked = events(&stop_at_limit(Surface::Chat, relay.meter(), StopUsage { asked: false, ..usage }));
    assert_eq!(unasked.len(), 2);
    // Before the first chunk, too.
    let relay = relay_of(Surface::Chat, b"");
    let got = events(&stop_at_limit(Surface::Chat, relay.meter(), StopUsage::default()));
    assert_eq!(got[0].1["choices"], json!([{"index":0,"delta":{},"finish_reason":"length"}]));
    assert_eq!(got[1].1, json!("[DONE]"));
}

#[test]
fn l09_a_messages_stream_stopped_at_a_limit_ends_as_max_tokens() {
    let begun = named(&[
        (
            "message_start",
            r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":9,"output_tokens":1}}}"#,
        ),
        (
            "content_block_start",
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        ),
    ]);
    let relay = relay_of(Surface::Messages, &begun);
    let got = events(&stop_at_limit(
        Surface::Messages,
        relay.meter(),
        StopUsage { input: 9, output: 7, asked: false },
    ));
    assert_eq!(
        got,
        [
            ("content_block_stop".into(), json!({"type":"content_block_stop","index":2})),
            (
                "message_delta".into(),
                json!({"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":7}})
            ),
            ("message_stop".into(), json!({"type":"message_stop"})),
        ]
    );
    // With the block closed, its stop is not repeated.
    let closed =
        [begun, named(&[("content_block_stop", r#"{"type":"content_block_stop","index":2}"#)])].concat();
    let got = events(&stop_at_limit(
        Surface::Messages,
        relay_of(Surface::Messages, &closed).meter(),
        StopUsage::default(),
    ));
    assert_eq!(got.iter().map(|e| e.0.as_str()).collect::<Vec<_>>(), ["message_delta", "message_stop"]);
    // Before the start, the message is begun first.
    let got = events(&stop_at_limit(
        Surface::Messages,
        relay_of(Surface::Messages, b"").meter(),
        StopUsage::default(),
    ));
    assert_eq!(
        got.iter().map(|e| e.0.as_str()).collect::<Vec<_>>(),
        ["message_start", "message_delta", "message_stop"]
    );
    assert_eq!(got[0].1["message"]["usage"], json!({"input_tokens":0,"output_tokens":0}));
}

/// B069, in what we write ourselves: a message that we begin tells whole figures, of the input what was estimated.
#[test]
fn b069_a_message_that_is_begun_here_has_its_usage() {
    let usage = StopUsage { input: 9, output: 7, asked: false };
    let got = events(&stop_at_limit(Surface::Messages, relay_of(Surface::Messages, b"").meter(), usage));
    let begun = &got[0].1["message"]["usage"];
    assert_eq!((&begun["input_tokens"], begun["output_tokens"].is_u64()), (&json!(9), true), "{begun}");
    let ended = got.iter().find(|(name, _)| name == "message_delta").unwrap();
    assert_eq!(ended.1["usage"]["output_tokens"], 7);
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(members) => members.values().any(has_null),
        _ => false,
    }
}

/// B072, in what we write ourselves: every figure is a number, on every surface, whatever came before.
#[test]
fn b072_figures_of_our_own_ends_are_numbers_and_never_null() {
    let created = r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","created_at":5,"status":"in_progress","model":"m","usage":null}}"#;
    let usage = StopUsage { input: 10, output: 4, asked: true };
    for (surface, begun, names) in [
        (
            Surface::Responses,
            named(&[("response.created", created)]),
            ["input_tokens", "output_tokens", "total_tokens"],
        ),
        (
            Surface::Chat,
            sse(&[r#"{"id":"c","choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}"#]),
            ["prompt_tokens", "completion_tokens", "total_tokens"],
        ),
        (
            Surface::Completions,
            sse(&[r#"{"id":"c","choices":[{"index":0,"text":"a"}],"usage":null}"#]),
            ["prompt_tokens", "completion_tokens", "total_tokens"],
        ),
    ] {
        for before in [&begun[..], b""] {
            let got = events(&stop_at_limit(surface, relay_of(surface, before).meter(), usage));
            let told = |event: &Value| {
                [&event["response"]["usage"], &event["usage"]].into_iter().find(|u| u.is_object()).cloned()
            };
            let figures: Vec<Value> = got.iter().filter_map(|(_, event)| told(event)).collect();
            assert_eq!(figures.len(), 1, "{surface:?}: {got:?}");
            assert!(!has_null(&figures[0]), "{surface:?}: {figures:?}");
            assert_eq!(
                names.map(|name| figures[0][name].as_u64()),
                [Some(10), Some(4), Some(14)],
                "{surface:?}"
            );
        }
    }
}

#[test]
fn a_stopped_stream_reads_as_whole() {
    for (surface, begun) in [
        (
            Surface::Chat,
            sse(&[r#"{"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#]),
        ),
        (
            Surface::Messages,
            named(&[(
                "message_start",
                r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#,
            )]),
        ),
    ] {
        let mut relay = StreamRelay::new(surface, false);
        let mut out = Vec::new();
        // The stop comes in the middle of an event.
        relay.push(Bytes::from([&begun[..], b"data: {\"cho"].concat()), &mut out);
        let stop = stop_at_limit(surface, relay.meter(), StopUsage { input: 9, output: 1, asked: true });
        relay.append(Bytes::from(stop), &mut out);
        let end = crate::kit::whole(surface, false, &out.concat()).end;
        assert!(end.complete && end.saw_done && end.error.is_none(), "{surface:?}");
    }
}

#[test]
fn b123_keepalives_are_no_events_of_a_chat_stream() {
    let chunk = sse(&["{}"]);
    let stream = [&chunk[..], keepalive(Surface::Chat), keepalive(Surface::Chat), &chunk].concat();
    assert_eq!(events(&stream).len(), 2);
    assert!(!keepalive(Surface::Chat).ends_with(b"\n\n"), "no blank line that could dispatch an empty event");
    assert_eq!(events(keepalive(Surface::Messages))[0].0, "ping");
}

#[test]
fn model_lists() {
    let body = value(&models_body(Dialect::OpenAi, &["a", "b"]));
    assert_eq!(body["object"], "list");
    assert_eq!(body["data"][1], json!({"id":"b","object":"model","created":0,"owned_by":"tollbook"}));
    let body = value(&models_body(Dialect::Anthropic, &["a", "b"]));
    assert_eq!(
        (&body["first_id"], &body["last_id"], &body["has_more"]),
        (&json!("a"), &json!("b"), &json!(false))
    );
    assert_eq!(
        body["data"][0],
        json!({"type":"model","id":"a","display_name":"a","created_at":"1970-01-01T00:00:00Z"})
    );
    let none: [&str; 0] = [];
    assert_eq!(value(&models_body(Dialect::Anthropic, &none))["first_id"], Value::Null);
    assert_eq!(value(&model_body(Dialect::OpenAi, "a"))["id"], "a");
}

#[test]
fn b138_signs_of_life_tell_nothing_and_events_do_even_unread() {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let chunk = "data: {\"choices\":[]}\n\n";
    let stop = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
    for (surface, life, event) in [
        (Surface::Chat, ": hi\n\n", chunk),
        (Surface::Responses, ": hi\n\n", "data: {\"type\":\"response.in_progress\"}\n\n"),
        (Surface::Messages, ping, stop),
    ] {
        let mut relay = StreamRelay::new(surface, false);
        let mut told = |text: &'static str| {
            relay.push(Bytes::from(text), &mut Vec::new());
            relay.meter().told()
        };
        assert_eq!((told(life), told(life)), (0, 0), "{surface:?}");
        assert_eq!((told(event), told(life)), (1, 1), "{surface:?}");
        assert_eq!(told("data: {no JSON\n\n"), 2, "{surface:?}");
    }
}

#[test]
fn b124_a_keepalive_stands_between_whole_line_ends_only() {
    for dropping in [false, true] {
        let mut relay = StreamRelay::new(Surface::Chat, dropping);
        assert!(relay.takes_keepalive());
        for (piece, fits) in [("data: {}\r\n\r", false), ("\n", true), ("data: {}\n\n", true)] {
            relay.push(Bytes::from(piece), &mut Vec::new());
            assert_eq!(relay.takes_keepalive(), fits, "{piece:?}, dropping: {dropping}");
        }
    }
    let mut relay = StreamRelay::new(Surface::Chat, false);
    relay.push(Bytes::from("data: {"), &mut Vec::new());
    assert!(!relay.takes_keepalive());
}
