//! The demo's fake provider: chat, responses, messages and counting, plain and streamed, and embeddings, with believable text and usage.
//!
//! It answers from a small stock of sentences chosen by the request's own bytes, a word every few milliseconds, and
//! reports usage as the real ones do. It keeps no state and checks no key.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Longest body read.
const BODY_MAX: usize = 32 << 20;
/// Longest answer, in words.
const WORDS_MAX: u64 = 400;
/// Most texts of one call for embeddings.
const TEXTS_MAX: usize = 2048;
/// Numbers of an embedding: enough to be seen.
const DIMENSIONS: u64 = 8;
const SENTENCES: [&str; 8] = [
    "A ledger keeps two columns for every account, what is held and what is posted, and the sum of both is what the limit sees.",
    "When a call is admitted its cost is not yet known, so an estimate is held until the answer has ended.",
    "Nothing is overwritten in a good book; a mistake is corrected by another entry, and everyone can follow it.",
    "The harbour master counts ships at the gate, not at the pier, because the pier is where it is too late.",
    "If two clerks decide at the same time, only one of them may be right, and the book says which.",
    "A refusal that names the time to come back is kinder than one that does not, and it causes less traffic.",
    "Streams end in many ways, by a full stop, by a broken line or by a reader who has left, and each must be paid for.",
    "The period belongs to the calendar of the place, so a day may have twenty-three hours, and the budget must not mind.",
];

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The running provider.
#[derive(Debug)]
pub struct Provider {
    pub addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Provider {
    /// Listens on a free port of this machine; `pace` is the time between two words of a stream.
    pub async fn start(pace: Duration) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, pace));
        Ok(Self { addr, task })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, pace: Duration) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(async move {
            let service =
                service_fn(move |request| async move { Ok::<_, Infallible>(answer(request, pace).await) });
            // A client that hangs up is no news.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, pace: Duration) -> Response<Body> {
    let Some(door) = Door::of(&request) else {
        return refuse(StatusCode::NOT_FOUND, "there is nothing here");
    };
    let Ok(body) = Limited::new(request.into_body(), BODY_MAX).collect().await else {
        return refuse(StatusCode::BAD_REQUEST, "the body could not be read");
    };
    let body = body.to_bytes();
    let Ok(asked) = serde_json::from_slice::<Value>(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "the body is not JSON");
    };
    let reply = Arc::new(Reply::to(&asked, &body));
    let streamed = asked.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let usage_asked =
        asked.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or(false);
    match (door, streamed) {
        (Door::Count, _) => whole(json!({"input_tokens": reply.input}), Duration::ZERO, &reply).await,
        (Door::Embeddings, _) => whole(reply.embeddings(&asked), Duration::ZERO, &reply).await,
        (Door::Chat, false) => whole(reply.openai(), pace, &reply).await,
        (Door::Responses, false) => whole(reply.response(), pace, &reply).await,
        (Door::Messages, false) => whole(reply.anthropic(), pace, &reply).await,
        (Door::Chat, true) => events(reply.openai_events(usage_asked), pace),
        (Door::Responses, true) => events(reply.response_events(), pace),
        (Door::Messages, true) => events(reply.anthropic_events(), pace),
    }
}

/// What is served.
#[derive(Clone, Copy)]
enum Door {
    Chat,
    Responses,
    Messages,
    Count,
    Embeddings,
}

impl Door {
    fn of(request: &Request<Incoming>) -> Option<Self> {
        let path = request.uri().path();
        if request.method() != Method::POST {
            return None;
        }
        [
            ("/chat/completions", Self::Chat),
            ("/responses", Self::Responses),
            ("/messages", Self::Messages),
            ("/messages/count_tokens", Self::Count),
            ("/embeddings", Self::Embeddings),
        ]
        .into_iter()
        .find_map(|(end, door)| path.ends_with(end).then_some(door))
    }
}

/// What is said, and what it costs.
struct Reply {
    model: String,
    words: Vec<String>,
    input: u64,
    /// Cut by the client's cap.
    cut: bool,
    id: u64,
}

impl Reply {
    fn to(asked: &Value, body: &[u8]) -> Self {
        let id = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let sentences = 1 + id % 5;
        let mut words: Vec<String> = Vec::new();
        for n in 0..sentences {
            let at = usize::try_from((id >> (8 * n)) % 8).unwrap_or(0);
            words.extend(
                SENTENCES
                    .iter()
                    .cycle()
                    .nth(at)
                    .into_iter()
                    .flat_map(|text| text.split(' '))
                    .map(str::to_owned),
            );
        }
        let cap = ["max_completion_tokens", "max_tokens", "max_output_tokens"]
            .iter()
            .filter_map(|name| asked.get(*name)?.as_u64())
            .max();
        let room = usize::try_from(cap.unwrap_or(WORDS_MAX).min(WORDS_MAX)).unwrap_or(usize::MAX);
        let cut = words.len() > room;
        words.truncate(room);
        let model = asked.get("model").and_then(Value::as_str).unwrap_or("demo").to_owned();
        Self { model, words, input: u64::try_from(body.len()).unwrap_or(u64::MAX) / 4 + 3, cut, id }
    }

    fn output(&self) -> u64 {
        u64::try_from(self.words.len()).unwrap_or(u64::MAX)
    }

    fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The words as pieces of a stream; joined they are the text.
    fn pieces(&self) -> impl Iterator<Item = String> + '_ {
        self.words.iter().enumerate().map(|(n, word)| if n == 0 { word.clone() } else { format!(" {word}") })
    }

    fn openai_usage(&self) -> Value {
        json!({"prompt_tokens": self.input, "completion_tokens": self.output(), "total_tokens": self.input + self.output()})
    }

    fn openai(&self) -> Value {
        let finish = if self.cut { "length" } else { "stop" };
        json!({
            "id": format!("chatcmpl-{:016x}", self.id), "object": "chat.completion", "created": 1_767_225_600, "model": self.model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": self.text()}, "finish_reason": finish}],
            "usage": self.openai_usage(),
        })
    }

    fn openai_events(&self, usage_asked: bool) -> Vec<String> {
        let chunk = |delta: &Value, finish: &Value| {
            json!({
                "id": format!("chatcmpl-{:016x}", self.id), "object": "chat.completion.chunk", "created": 1_767_225_600,
                "model": self.model, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            })
        };
        let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), &Value::Null)];
        events.extend(self.pieces().map(|piece| chunk(&json!({"content": piece}), &Value::Null)));
        events.push(chunk(&json!({}), &json!(if self.cut { "length" } else { "stop" })));
        if usage_asked {
            let mut last = chunk(&json!({}), &Value::Null);
            if let Some(fields) = last.as_object_mut() {
                fields.insert("choices".to_owned(), json!([]));
                fields.insert("usage".to_owned(), self.openai_usage());
            }
            events.push(last);
        }
        let mut lines: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        lines.push("data: [DONE]\n\n".to_owned());
        lines
    }

    /// Of each text one: numbers that mean nothing, the same for the same request. SDKs ask for them in base64.
    fn embeddings(&self, asked: &Value) -> Value {
        let texts = match asked.get("input").and_then(Value::as_array) {
            // A list of numbers is one text, in llm_tokens.
            Some(list) if list.iter().all(|item| !item.is_number()) => list.len().min(TEXTS_MAX),
            _ => 1,
        };
        let numbers = |text: u64| -> Vec<f32> {
            let byte = |n: u64| {
                self.id.rotate_left(u32::try_from(8 * n).unwrap_or(0)).wrapping_add(text).to_le_bytes()[0]
            };
            (0..DIMENSIONS).map(|n| f32::from(i8::from_le_bytes([byte(n)]))).collect()
        };
        let encoded = asked.get("encoding_format").and_then(Value::as_str) == Some("base64");
        let embedding = |text: u64| {
            let numbers = numbers(text);
            if encoded {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                json!(base64::engine::general_purpose::STANDARD.encode(bytes))
            } else {
                json!(numbers)
            }
        };
        let data: Vec<Value> = (0..u64::try_from(texts).unwrap_or(0))
            .map(|text| json!({"object": "embedding", "index": text, "embedding": embedding(text)}))
            .collect();
        json!({
            "object": "list", "data": data, "model": self.model,
            "usage": {"prompt_tokens": self.input, "total_tokens": self.input},
        })
    }

    /// The response at a moment: without its text while it is being made.
    fn response_object(&self, done: bool) -> Value {
        let status = match (done, self.cut) {
            (false, _) => "in_progress",
            (true, false) => "completed",
            (true, true) => "incomplete",
        };
        let output = if done { json!([self.response_item()]) } else { json!([]) };
        let usage = json!({
            "input_tokens": self.input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": self.output(),
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": self.input + self.output(),
        });
        let why = if done && self.cut { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        json!({
            "id": format!("resp_{:016x}", self.id), "object": "response", "created_at": 1_767_225_600, "model": self.model,
            "status": status, "error": null, "incomplete_details": why, "instructions": null, "metadata": {},
            "parallel_tool_calls": true, "temperature": null, "top_p": null, "tool_choice": "auto", "tools": [],
            "output": output, "usage": if done { usage } else { Value::Null },
        })
    }

    fn response_item(&self) -> Value {
        let status = if self.cut { "incomplete" } else { "completed" };
        let part = json!({"type": "output_text", "text": self.text(), "annotations": []});
        json!({"id": self.item_id(), "type": "message", "role": "assistant", "status": status, "content": [part]})
    }

    fn item_id(&self) -> String {
        format!("msg_{:016x}", self.id)
    }

    fn response(&self) -> Value {
        self.response_object(true)
    }

    fn response_events(&self) -> Vec<String> {
        let place = |kind: &str| json!({"type": kind, "item_id": self.item_id(), "output_index": 0, "content_index": 0});
        let with = |mut event: Value, name: &str, value: Value| {
            if let Some(fields) = event.as_object_mut() {
                fields.insert(name.to_owned(), value);
            }
            event
        };
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        let item = json!({"id": self.item_id(), "type": "message", "role": "assistant", "status": "in_progress", "content": []});
        let mut events = vec![
            json!({"type": "response.created", "response": self.response_object(false)}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
            with(place("response.content_part.added"), "part", part("")),
        ];
        events.extend(
            self.pieces().map(|piece| with(place("response.output_text.delta"), "delta", json!(piece))),
        );
        events.push(with(place("response.output_text.done"), "text", json!(self.text())));
        events.push(with(place("response.content_part.done"), "part", part(&self.text())));
        events.push(
            json!({"type": "response.output_item.done", "output_index": 0, "item": self.response_item()}),
        );
        let last = if self.cut { "response.incomplete" } else { "response.completed" };
        events.push(json!({"type": last, "response": self.response_object(true)}));
        let numbered = events.into_iter().enumerate();
        named(&numbered.map(|(n, event)| with(event, "sequence_number", json!(n))).collect::<Vec<_>>())
    }

    fn anthropic_message(&self, content: &Value, stop: &Value, output: u64) -> Value {
        json!({
            "id": format!("msg_{:016x}", self.id), "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": {"input_tokens": self.input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output},
        })
    }

    fn stop(&self) -> Value {
        json!(if self.cut { "max_tokens" } else { "end_turn" })
    }

    fn anthropic(&self) -> Value {
        self.anthropic_message(&json!([{"type": "text", "text": self.text()}]), &self.stop(), self.output())
    }

    fn anthropic_events(&self) -> Vec<String> {
        let mut events = vec![
            json!({"type": "message_start", "message": self.anthropic_message(&json!([]), &Value::Null, 1)}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ];
        events.extend(self.pieces().map(|piece| {
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
        }));
        events.push(json!({"type": "content_block_stop", "index": 0}));
        let delta = json!({"stop_reason": self.stop(), "stop_sequence": null});
        events.push(
            json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": self.output()}}),
        );
        events.push(json!({"type": "message_stop"}));
        named(&events)
    }
}

/// Events under the names of their types.
fn named(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect()
}

async fn whole(answer: Value, pace: Duration, reply: &Reply) -> Response<Body> {
    tokio::time::sleep(pace.saturating_mul(u32::try_from(reply.output() / 4).unwrap_or(u32::MAX))).await;
    respond(StatusCode::OK, "application/json", Full::new(Bytes::from(answer.to_string())).boxed_unsync())
}

fn events(events: Vec<String>, pace: Duration) -> Response<Body> {
    let frames: BoxStream<'static, Result<Frame<Bytes>, Infallible>> = stream::iter(events)
        .then(move |event| async move {
            tokio::time::sleep(pace).await;
            Ok(Frame::data(Bytes::from(event)))
        })
        .boxed();
    respond(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync())
}

fn refuse(status: StatusCode, message: &str) -> Response<Body> {
    let body =
        json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}});
    respond(status, "application/json", Full::new(Bytes::from(body.to_string())).boxed_unsync())
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
