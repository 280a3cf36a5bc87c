//! Ends of streams that the gateway writes itself, and the keepalive between events.
//!
//! Invariants: what is written here begins and ends at an event boundary; a stream that is stopped at a limit ends
//! as if the model had reached its output cap, which no client takes for an error. No end is invented for a
//! stream that broke: that is an error event (`problem`).

use serde::Serialize;

use crate::meter::Meter;
use crate::problem::{ErrorDetail, ErrorKind, error_event, json};
use crate::surface::Surface;

const DONE: &[u8] = b"data: [DONE]\n\n";

/// The marker behind the last event; where the last event is the marker there is none.
pub fn done_marker(surface: Surface) -> Option<&'static [u8]> {
    match surface {
        Surface::Chat | Surface::Completions => Some(DONE),
        Surface::Responses | Surface::Embeddings | Surface::Messages => None,
    }
}

/// A sign of life that no client can take for an event: one comment line, without the blank line that would
/// make some clients dispatch an empty event (B123). To be written at a boundary.
pub fn keepalive(surface: Surface) -> &'static [u8] {
    match surface {
        Surface::Chat | Surface::Responses | Surface::Completions | Surface::Embeddings => b": keepalive\n",
        Surface::Messages => b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
    }
}

/// The figures to tell the client when the gateway ends its stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopUsage {
    pub input: u64,
    pub output: u64,
    /// The client asked for the usage chunk (OpenAI dialect; the other always tells it).
    pub asked: bool,
}

/// The clean end of a stream that reached a limit: the dialect's "length" ending.
pub fn stop_at_limit(surface: Surface, meter: &Meter, usage: StopUsage) -> Vec<u8> {
    let mut out = Vec::new();
    match surface {
        Surface::Chat => stop_chunks(&mut out, meter, usage, &CHAT),
        Surface::Completions => stop_chunks(&mut out, meter, usage, &COMPLETIONS),
        Surface::Responses => stop_response(&mut out, meter, usage),
        Surface::Messages => stop_messages(&mut out, meter, usage),
        Surface::Embeddings => {}
    }
    out
}

/// The error event that ends a stream which broke after it had begun.
pub fn broken_stream(
    surface: Surface,
    meter: &Meter,
    kind: ErrorKind,
    detail: ErrorDetail<'_>,
    message: &str,
    request_id: &str,
) -> Vec<u8> {
    if surface != Surface::Responses {
        return error_event(surface.dialect(), kind, detail, message, request_id);
    }
    let mut out = Vec::new();
    let code = detail.code.unwrap_or_else(|| kind.openai_type());
    let flat =
        FlatError { r#type: "error", code, message, param: detail.param, sequence_number: next(meter) };
    event(&mut out, "error", &flat);
    out
}

/// The number of the next event of a surface that numbers them.
fn next(meter: &Meter) -> u64 {
    meter.seen.sequence.map_or(0, |last| last.saturating_add(1))
}

/// The error event of the responses surface.
#[derive(Serialize)]
struct FlatError<'a> {
    r#type: &'static str,
    code: &'a str,
    message: &'a str,
    param: Option<&'a str>,
    sequence_number: u64,
}

/// What differs between the two surfaces that stream chunks of choices.
struct Shape {
    object: &'static str,
    id: &'static str,
    has_delta: bool,
}

const CHAT: Shape = Shape { object: "chat.completion.chunk", id: "chatcmpl-stopped", has_delta: true };
const COMPLETIONS: Shape = Shape { object: "text_completion", id: "cmpl-stopped", has_delta: false };

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ChatUsage>,
}

#[derive(Serialize)]
struct Choice {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Nothing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'static str>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
#[allow(clippy::struct_field_names, reason = "these are the names on the wire")]
struct ChatUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

fn stop_chunks(out: &mut Vec<u8>, meter: &Meter, usage: StopUsage, shape: &Shape) {
    let seen = &meter.seen;
    let chunk = |choices, usage| Chunk {
        id: if seen.id.is_empty() { shape.id } else { &seen.id },
        object: shape.object,
        created: seen.created,
        model: &seen.model,
        choices,
        usage,
    };
    // A choice that never spoke still gets its end: clients wait for index 0.
    let open = if seen.choices == 0 { 1 } else { seen.choices & !seen.finished };
    let choices: Vec<Choice> = (0..128)
        .filter(|index| open & (1_u128 << index) != 0)
        .map(|index| Choice {
            index,
            delta: shape.has_delta.then_some(Nothing {}),
            text: (!shape.has_delta).then_some(""),
            finish_reason: "length",
        })
        .collect();
    if !choices.is_empty() {
        event(out, "", &chunk(choices, None));
    }
    if usage.asked {
        let total_tokens = usage.input.saturating_add(usage.output);
        let figures = ChatUsage { prompt_tokens: usage.input, completion_tokens: usage.output, total_tokens };
        event(out, "", &chunk(Vec::new(), Some(figures)));
    }
    if !meter.saw_done {
        out.extend_from_slice(DONE);
    }
}

#[derive(Serialize)]
struct ResponseEnd<'a> {
    r#type: &'static str,
    sequence_number: u64,
    response: Response<'a>,
}

#[derive(Serialize)]
struct Response<'a> {
    id: &'a str,
    object: &'static str,
    created_at: u64,
    status: &'static str,
    error: Option<()>,
    incomplete_details: Reason,
    model: &'a str,
    output: [(); 0],
    parallel_tool_calls: bool,
    tool_choice: &'static str,
    tools: [(); 0],
    usage: ResponseUsage,
}

#[derive(Serialize)]
struct Reason {
    reason: &'static str,
}

#[derive(Serialize)]
struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: Cached,
    output_tokens: u64,
    output_tokens_details: Reasoning,
    total_tokens: u64,
}

#[derive(Serialize)]
struct Cached {
    cached_tokens: u64,
}

#[derive(Serialize)]
struct Reasoning {
    reasoning_tokens: u64,
}

/// Details are whole numbers, never null: strict clients fail on null (B072).
fn stop_response(out: &mut Vec<u8>, meter: &Meter, usage: StopUsage) {
    if meter.saw_done {
        return;
    }
    let seen = &meter.seen;
    let response = Response {
        id: if seen.id.is_empty() { "resp_stopped" } else { &seen.id },
        object: "response",
        created_at: seen.created,
        status: "incomplete",
        error: None,
        incomplete_details: Reason { reason: "max_output_tokens" },
        model: &seen.model,
        output: [],
        parallel_tool_calls: true,
        tool_choice: "auto",
        tools: [],
        usage: ResponseUsage {
            input_tokens: usage.input,
            input_tokens_details: Cached { cached_tokens: 0 },
            output_tokens: usage.output,
            output_tokens_details: Reasoning { reasoning_tokens: 0 },
            total_tokens: usage.input.saturating_add(usage.output),
        },
    };
    let end = ResponseEnd { r#type: "response.incomplete", sequence_number: next(meter), response };
    event(out, "response.incomplete", &end);
}

#[derive(Serialize)]
struct MessageStart<'a> {
    r#type: &'static str,
    message: Message<'a>,
}

#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: [(); 0],
    stop_reason: Option<()>,
    stop_sequence: Option<()>,
    usage: MessageUsage,
}

#[derive(Serialize)]
struct MessageUsage {
    input_tokens: u64,
    output_tokens: u64,
}

#[derive(Serialize)]
struct BlockStop {
    r#type: &'static str,
    index: u32,
}

#[derive(Serialize)]
struct MessageDelta {
    r#type: &'static str,
    delta: StopDelta,
    usage: OutputUsage,
}

#[derive(Serialize)]
struct StopDelta {
    stop_reason: &'static str,
    stop_sequence: Option<()>,
}

#[derive(Serialize)]
struct OutputUsage {
    output_tokens: u64,
}

#[derive(Serialize)]
struct MessageStop {
    r#type: &'static str,
}

fn stop_messages(out: &mut Vec<u8>, meter: &Meter, usage: StopUsage) {
    let seen = &meter.seen;
    if !seen.started {
        let message = Message {
            id: "msg_stopped",
            r#type: "message",
            role: "assistant",
            model: &seen.model,
            content: [],
            stop_reason: None,
            stop_sequence: None,
            usage: MessageUsage { input_tokens: usage.input, output_tokens: 0 },
        };
        event(out, "message_start", &MessageStart { r#type: "message_start", message });
    }
    if let Some(index) = seen.open_block {
        event(out, "content_block_stop", &BlockStop { r#type: "content_block_stop", index });
    }
    if !meter.finish_seen {
        let delta = MessageDelta {
            r#type: "message_delta",
            delta: StopDelta { stop_reason: "max_tokens", stop_sequence: None },
            usage: OutputUsage { output_tokens: usage.output },
        };
        event(out, "message_delta", &delta);
    }
    if !meter.saw_done {
        event(out, "message_stop", &MessageStop { r#type: "message_stop" });
    }
}

fn event(out: &mut Vec<u8>, name: &str, data: &impl Serialize) {
    if !name.is_empty() {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(&json(data));
    out.extend_from_slice(b"\n\n");
}
