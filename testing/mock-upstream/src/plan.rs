//! From a script and a call to the exact pieces that go on the wire. Pure: no sockets, no clock.
//!
//! Invariants: a piece carries the amounts that it makes visible, so that the player can keep the record without
//! understanding what it sends; the same script and call always give the same plan.
//! A script that cannot be planned (a repeat under a content coding) is an error with a reason.

use std::io::Write as _;

use base64::Engine as _;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::ask::{Ask, Route};
use crate::generate;
use crate::record::{Dialect, Usage};
use crate::script::{Answer, ErrorBody, Framing, Script, Step};

#[derive(Debug)]
pub(crate) struct Plan {
    /// None: the pieces are the whole answer, head included.
    pub(crate) head: Option<Head>,
    pub(crate) head_after_ms: u64,
    pub(crate) pieces: Vec<Piece>,
    /// What was used before the first piece: the input.
    pub(crate) used: Usage,
    pub(crate) write_bytes: Option<u64>,
    pub(crate) ignore_disconnect: bool,
    pub(crate) close_after: bool,
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: BodyFraming,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    Chunked,
    Length(u64),
    UntilClose,
}

#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Send(Send),
    Repeat { bytes: Bytes, times: u64, every_ms: u64 },
    DelayMs(u64),
    Stall,
    Reset,
    Close,
    HalfClose,
}

/// One write, and what is told or used by it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Send {
    pub(crate) bytes: Bytes,
    pub(crate) content: bool,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
    pub(crate) usage: Option<Value>,
    /// No further usage belongs to this answer.
    pub(crate) usage_is_final: bool,
}

impl Send {
    pub(crate) fn plain(bytes: impl Into<Bytes>) -> Piece {
        Piece::Send(Self { bytes: bytes.into(), ..Self::default() })
    }
}

pub(crate) fn plan(script: &Script, ask: &Ask, models: &[String]) -> Result<Plan, String> {
    let mut plan = Plan {
        head: None,
        head_after_ms: script.head_after_ms,
        pieces: Vec::new(),
        used: Usage::default(),
        write_bytes: None,
        ignore_disconnect: script.ignore_disconnect,
        close_after: script.close_after,
    };
    let mut status = script.status.unwrap_or(200);
    let mut content_type = "application/json";
    match &script.answer {
        Answer::Raw(steps) => {
            plan.pieces = pieces(steps)?;
            return Ok(plan);
        }
        Answer::Steps(steps) => {
            plan.pieces = pieces(steps)?;
            content_type = if ask.stream { "text/event-stream" } else { content_type };
        }
        Answer::Json(value) => plan.pieces = vec![whole_json(value)],
        Answer::Error(error) => plan.pieces = vec![Send::plain(error_body(ask.dialect, status, error))],
        Answer::Generate(wanted) => match ask.route {
            Route::Chat | Route::Responses | Route::Completions | Route::Embeddings | Route::Messages => {
                let made = generate::answer(wanted, ask);
                status = script.status.or(made.status).unwrap_or(200);
                content_type = if made.stream { "text/event-stream; charset=utf-8" } else { content_type };
                plan.head_after_ms = plan.head_after_ms.saturating_add(made.head_after_ms);
                plan.pieces = made.pieces;
                plan.used = made.used;
                plan.write_bytes = wanted.write_bytes;
                if made.headless {
                    return Ok(plan);
                }
            }
            Route::CountInput => {
                plan.pieces = vec![whole_json(&json!({"input_tokens": generate::input_count(ask)}))];
            }
            Route::Models => plan.pieces = vec![whole_json(&model_list(ask.dialect, models))],
            Route::Unknown => {
                status = script.status.unwrap_or(404);
                let error = ErrorBody { message: "no such path".into(), ..ErrorBody::default() };
                plan.pieces = vec![Send::plain(error_body(ask.dialect, status, &error))];
            }
        },
    }
    for coding in script.encodings.iter().filter(|coding| coding.as_str() == "gzip") {
        plan.pieces = gzip(std::mem::take(&mut plan.pieces))
            .map_err(|error| format!("mock script: {coding}: {error}"))?;
    }
    plan.head = Some(head(script, status, content_type, &plan.pieces));
    Ok(plan)
}

/// The answer to a call that the mock itself refuses.
pub(crate) fn refusal(ask: &Ask, status: u16, message: &str) -> Plan {
    let script = Script::error(status, message);
    let error = ErrorBody { message: message.to_owned(), ..ErrorBody::default() };
    let pieces = vec![Send::plain(error_body(ask.dialect, status, &error))];
    Plan {
        head: Some(head(&script, status, "application/json", &pieces)),
        head_after_ms: 0,
        pieces,
        used: Usage::default(),
        write_bytes: None,
        ignore_disconnect: false,
        close_after: true,
    }
}

fn head(script: &Script, status: u16, content_type: &str, pieces: &[Piece]) -> Head {
    let total = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece_len(piece)));
    let body = match script.framing {
        Framing::Auto if content_type.starts_with("text/event-stream") => BodyFraming::Chunked,
        Framing::Auto | Framing::Length => BodyFraming::Length(total),
        Framing::Chunked => BodyFraming::Chunked,
        Framing::UntilClose => BodyFraming::UntilClose,
        Framing::WrongLength(length) => BodyFraming::Length(length),
    };
    let mut headers = vec![("content-type".to_owned(), content_type.to_owned())];
    if !script.encodings.is_empty() {
        headers.push(("content-encoding".to_owned(), script.encodings.join(", ")));
    }
    headers.retain(|(name, _)| !script.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
    headers.extend(script.headers.iter().cloned());
    Head { status, headers, body }
}

fn piece_len(piece: &Piece) -> u64 {
    let length = |bytes: &Bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    match piece {
        Piece::Send(send) => length(&send.bytes),
        Piece::Repeat { bytes, times, .. } => length(bytes).saturating_mul(*times),
        Piece::DelayMs(_) | Piece::Stall | Piece::Reset | Piece::Close | Piece::HalfClose => 0,
    }
}

fn pieces(steps: &[Step]) -> Result<Vec<Piece>, String> {
    let mut pieces = steps.iter().map(piece).collect::<Result<Vec<_>, _>>()?;
    let last = pieces.iter_mut().rev().find_map(|piece| match piece {
        Piece::Send(send) if send.usage.is_some() => Some(send),
        _ => None,
    });
    if let Some(last) = last {
        last.usage_is_final = true;
    }
    Ok(pieces)
}

fn piece(step: &Step) -> Result<Piece, String> {
    Ok(match step {
        Step::Text(text) => {
            Piece::Send(Send { bytes: text.clone().into(), content: true, ..Send::default() })
        }
        Step::Base64(text) => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| format!("mock script: base64: {error}"))?;
            Piece::Send(Send { bytes: bytes.into(), content: true, ..Send::default() })
        }
        Step::Usage { text, usage } => {
            Piece::Send(Send { bytes: text.clone().into(), usage: Some(usage.clone()), ..Send::default() })
        }
        Step::Repeat { text, times, every_ms } => {
            Piece::Repeat { bytes: text.clone().into(), times: *times, every_ms: *every_ms }
        }
        Step::DelayMs(ms) => Piece::DelayMs(*ms),
        Step::Stall => Piece::Stall,
        Step::Reset => Piece::Reset,
        Step::Close => Piece::Close,
        Step::HalfClose => Piece::HalfClose,
    })
}

/// A JSON body; its top-level `usage` is what it reports.
fn whole_json(value: &Value) -> Piece {
    Piece::Send(Send {
        bytes: value.to_string().into(),
        content: true,
        usage: value.get("usage").cloned(),
        usage_is_final: true,
        ..Send::default()
    })
}

/// Compresses piece by piece, so that each one can still be decoded when it arrives.
fn gzip(plain: Vec<Piece>) -> Result<Vec<Piece>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut out = Vec::with_capacity(plain.len().saturating_add(1));
    for piece in plain {
        match piece {
            Piece::Send(mut send) => {
                encoder.write_all(&send.bytes).map_err(|error| error.to_string())?;
                encoder.flush().map_err(|error| error.to_string())?;
                send.bytes = std::mem::take(encoder.get_mut()).into();
                out.push(Piece::Send(send));
            }
            Piece::Repeat { .. } => return Err("a repeat cannot be encoded".to_owned()),
            other => out.push(other),
        }
    }
    let tail = encoder.finish().map_err(|error| error.to_string())?;
    out.push(Send::plain(tail));
    Ok(out)
}

/// The error event of the responses surface.
pub(crate) fn flat_error(error: &ErrorBody) -> String {
    let code = error.code.as_deref().unwrap_or("server_error");
    json!({"type": "error", "code": code, "message": error.message, "param": null, "sequence_number": 99})
        .to_string()
}

pub(crate) fn error_body(dialect: Dialect, status: u16, error: &ErrorBody) -> String {
    let kind = if error.kind.is_empty() { usual_kind(dialect, status) } else { error.kind.as_str() };
    match dialect {
        Dialect::OpenAi => json!({
            "error": {"message": error.message, "type": kind, "param": null, "code": error.code}
        }),
        Dialect::Anthropic => json!({
            "type": "error",
            "error": {"type": kind, "message": error.message},
            "request_id": "req_mock"
        }),
    }
    .to_string()
}

fn usual_kind(dialect: Dialect, status: u16) -> &'static str {
    match (dialect, status) {
        (Dialect::OpenAi, 429) => "requests",
        (Dialect::OpenAi, 500..) => "server_error",
        (Dialect::Anthropic, 401) => "authentication_error",
        (Dialect::Anthropic, 402) => "billing_error",
        (Dialect::Anthropic, 403) => "permission_error",
        (Dialect::Anthropic, 404) => "not_found_error",
        (Dialect::Anthropic, 413) => "request_too_large",
        (Dialect::Anthropic, 429) => "rate_limit_error",
        (Dialect::Anthropic, 504) => "timeout_error",
        (Dialect::Anthropic, 529) => "overloaded_error",
        (Dialect::Anthropic, 500..) => "api_error",
        _ => "invalid_request_error",
    }
}

fn model_list(dialect: Dialect, models: &[String]) -> Value {
    let data: Vec<Value> = models
        .iter()
        .map(|id| match dialect {
            Dialect::OpenAi => json!({"id": id, "object": "model", "created": 0, "owned_by": "mock"}),
            Dialect::Anthropic => {
                json!({"type": "model", "id": id, "display_name": id, "created_at": "1970-01-01T00:00:00Z"})
            }
        })
        .collect();
    match dialect {
        Dialect::OpenAi => json!({"object": "list", "data": data}),
        Dialect::Anthropic => {
            json!({"data": data, "has_more": false, "first_id": models.first(), "last_id": models.last()})
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::script::Generate;

    fn ask(path: &str, body: &str) -> Ask {
        Ask::read("POST", path, &[], body.as_bytes())
    }

    fn body_of(plan: &Plan) -> Vec<u8> {
        plan.pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Send(send) => Some(send.bytes.to_vec()),
                _ => None,
            })
            .flatten()
            .collect()
    }

    #[test]
    fn length_is_that_of_the_body_also_when_cut() {
        let script = Script::steps(vec![Step::Text("abc".into()), Step::Reset, Step::Text("defg".into())]);
        let plan = plan(&script, &ask("/v1/x", "{}"), &[]).unwrap();
        assert_eq!(plan.head.unwrap().body, BodyFraming::Length(7));
    }

    #[test]
    fn gzip_twice_decodes_twice() {
        let mut script = Script::json(200, json!({"a": "b"})).gzip().gzip();
        script.headers.push(("Content-Type".into(), "text/odd".into()));
        let plan = plan(&script, &ask("/v1/x", "{}"), &[]).unwrap();
        let mut once = Vec::new();
        flate2::read::GzDecoder::new(body_of(&plan).as_slice()).read_to_end(&mut once).unwrap();
        let mut twice = String::new();
        flate2::read::GzDecoder::new(once.as_slice()).read_to_string(&mut twice).unwrap();
        assert_eq!(twice, r#"{"a":"b"}"#);
        let headers = plan.head.unwrap().headers;
        assert_eq!(headers[0], ("content-encoding".to_owned(), "gzip, gzip".to_owned()));
        assert_eq!(headers[1], ("Content-Type".to_owned(), "text/odd".to_owned()));
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn each_gzip_piece_decodes_when_it_arrives() {
        let script: Script = Generate::default().into();
        let ask = ask("/v1/messages", r#"{"stream":true}"#);
        let plain = plan(&script, &ask, &[]).unwrap();
        let coded = plan(&script.gzip(), &ask, &[]).unwrap();
        let mut decoder = flate2::write::GzDecoder::new(Vec::new());
        let mut expected = Vec::new();
        for (plain, coded) in plain.pieces.iter().zip(&coded.pieces) {
            let (Piece::Send(plain), Piece::Send(coded)) = (plain, coded) else { panic!("only sends here") };
            expected.extend_from_slice(&plain.bytes);
            decoder.write_all(&coded.bytes).unwrap();
            decoder.flush().unwrap();
            assert_eq!(decoder.get_ref(), &expected);
        }
    }

    #[test]
    fn repeat_under_gzip_is_refused() {
        let script = Script::steps(vec![Step::Repeat { text: "x".into(), times: 3, every_ms: 0 }]).gzip();
        assert!(plan(&script, &ask("/v1/x", "{}"), &[]).is_err());
    }

    #[test]
    fn errors_speak_the_dialect() {
        let script = Script::error(429, "slow down");
        let open = plan(&script, &ask("/v1/chat/completions", "{}"), &[]).unwrap();
        let value: Value = serde_json::from_slice(&body_of(&open)).unwrap();
        assert_eq!(value["error"]["type"], "requests");
        let anthropic = plan(&script, &ask("/v1/messages", "{}"), &[]).unwrap();
        let value: Value = serde_json::from_slice(&body_of(&anthropic)).unwrap();
        assert_eq!(value["error"]["type"], "rate_limit_error");
    }
}
