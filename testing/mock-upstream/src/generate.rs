//! Chat answers made to measure, in both dialects, plain and streamed.
//!
//! Invariants: the sum of `output` over the pieces is the output of the call; a usage object tells exactly that, unless
//! the script asks for a lie; no piece mixes content and the final usage, unless `WithFinish` or a plain body does.
//! Opening events (role, `message_start`) come before content chunk 0 and are sent before any cut.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::ask::{Ask, Route};
use crate::plan::{Piece, Send, error_body, flat_error};
use crate::record::{Dialect, Usage};
use crate::script::{ErrorBody, Generate, LineEnd, ToolCall, UsageMode};
use crate::usage;

const OUTPUT_DEFAULT: u64 = 12;
const CHUNKS_DEFAULT_MAX: u64 = 64;
const BODY_BYTES_PER_LLM_TOKEN: u64 = 4;
/// Each is one llm_token in the common vocabularies.
const WORDS: [&str; 8] = [" the", " book", " of", " all", " calls", " is", " kept", " here"];

#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) status: Option<u16>,
    pub(crate) stream: bool,
    /// The first piece comes before any head.
    pub(crate) headless: bool,
    pub(crate) head_after_ms: u64,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) used: Usage,
}

pub(crate) fn input_count(ask: &Ask) -> u64 {
    ask.body_bytes.div_ceil(BODY_BYTES_PER_LLM_TOKEN)
}

pub(crate) fn answer(wanted: &Generate, ask: &Ask) -> Made {
    let call = Call::new(wanted, ask);
    if ask.stream { call.stream() } else { call.plain() }
}

/// One answer in the making.
pub(crate) struct Call<'a> {
    pub(crate) wanted: &'a Generate,
    pub(crate) ask: &'a Ask,
    /// The truth about the whole call.
    pub(crate) total: Usage,
    per_choice: u64,
    pub(crate) chunks: u64,
    pub(crate) tool: Option<&'a ToolCall>,
    pub(crate) finish: &'a str,
}

impl<'a> Call<'a> {
    fn new(wanted: &'a Generate, ask: &'a Ask) -> Self {
        let asked = wanted.output_llm_tokens.unwrap_or(OUTPUT_DEFAULT);
        let cap = if wanted.ignore_cap { u64::MAX } else { ask.cap.unwrap_or(u64::MAX) };
        let per_choice = asked.min(cap);
        let writes = ask.route != Route::Embeddings;
        let per_choice = if writes { per_choice } else { 0 };
        let total = Usage {
            input: wanted.input_llm_tokens.unwrap_or_else(|| input_count(ask)),
            cached: wanted.cached_llm_tokens,
            cache_write: wanted.cache_write_llm_tokens,
            output: per_choice.saturating_mul(ask.made),
            reasoning: wanted.reasoning_llm_tokens.min(per_choice).saturating_mul(ask.made),
        };
        let tool = wanted.tool_call.as_ref().or(ask.forced_tool.as_ref());
        let usual = match (ask.dialect, tool.is_some(), asked > cap) {
            (Dialect::OpenAi, _, true) if ask.route == Route::Responses => "incomplete",
            (Dialect::OpenAi, _, false) if ask.route == Route::Responses => "completed",
            (Dialect::OpenAi, _, true) => "length",
            (Dialect::OpenAi, true, false) => "tool_calls",
            (Dialect::OpenAi, false, false) => "stop",
            (Dialect::Anthropic, _, true) => "max_tokens",
            (Dialect::Anthropic, true, false) => "tool_use",
            (Dialect::Anthropic, false, false) => "end_turn",
        };
        Self {
            wanted,
            ask,
            total,
            per_choice,
            chunks: wanted.chunks.unwrap_or_else(|| per_choice.min(CHUNKS_DEFAULT_MAX)),
            tool,
            finish: wanted.finish_reason.as_deref().unwrap_or(usual),
        }
    }

    fn input_only(&self) -> Usage {
        Usage { output: 0, reasoning: 0, ..self.total }
    }

    // --- plain -------------------------------------------------------------------------------------------------

    fn plain(&self) -> Made {
        let mut made = Made {
            status: None,
            stream: false,
            headless: false,
            head_after_ms: self
                .wanted
                .first_chunk_after_ms
                .saturating_add(self.wanted.chunk_every_ms.saturating_mul(self.chunks)),
            pieces: Vec::new(),
            used: self.input_only(),
        };
        if self.wanted.error_at_chunk.is_some() {
            let error = ErrorBody { message: "the mock failed".into(), ..ErrorBody::default() };
            made.status = Some(500);
            made.pieces = vec![Send::plain(error_body(self.ask.dialect, 500, &error))];
            return made;
        }
        let (body, reported) = match (self.ask.route, self.ask.dialect) {
            (Route::Responses, _) => self.response_body(),
            (Route::Completions, _) => self.completion_body(),
            (Route::Embeddings, _) => self.embedding_body(),
            (_, Dialect::OpenAi) => self.openai_body(),
            (_, Dialect::Anthropic) => self.anthropic_body(),
        };
        let text = body.to_string();
        let whole = Send {
            bytes: text.clone().into(),
            content: true,
            output: self.total.output,
            reasoning: self.total.reasoning,
            usage: reported,
            usage_is_final: true,
        };
        let Some((at, cut)) = self.cut() else {
            made.pieces = vec![Piece::Send(whole)];
            return made;
        };
        made.headless = at == 0;
        if at > 0 {
            let all = Bytes::from(text);
            let half = all.len() / 2;
            made.pieces.push(Send::plain(all.slice(..half)));
            made.pieces.push(cut);
            made.pieces.push(Piece::Send(Send { bytes: all.slice(half..), ..whole }));
        } else {
            made.pieces.push(cut);
        }
        made
    }

    fn openai_body(&self) -> (Value, Option<Value>) {
        let choices: Vec<Value> = (0..self.ask.choices)
            .map(|index| {
                let message = match self.tool {
                    Some(tool) => json!({"role": "assistant", "content": null, "tool_calls": [{
                        "id": "call_mock", "type": "function",
                        "function": {"name": tool.name, "arguments": tool.arguments}}]}),
                    None => json!({"role": "assistant", "content": self.text(), "refusal": null}),
                };
                json!({"index": index, "message": message, "logprobs": null, "finish_reason": self.finish})
            })
            .collect();
        let mut body = json!({
            "id": "chatcmpl-mock", "object": "chat.completion", "created": 0,
            "model": self.ask.model_or_default(), "choices": choices
        });
        let reported = self.final_usage(&usage::openai(&self.total), true);
        add(&mut body, "usage", reported.clone());
        (body, reported)
    }

    fn anthropic_body(&self) -> (Value, Option<Value>) {
        let content = match self.tool {
            Some(tool) => json!([{"type": "tool_use", "id": "toolu_mock", "name": tool.name,
                "input": serde_json::from_str::<Value>(&tool.arguments).unwrap_or(Value::Null)}]),
            None => json!([{"type": "text", "text": self.text()}]),
        };
        let mut body = json!({
            "id": "msg_mock", "type": "message", "role": "assistant",
            "model": self.ask.model_or_default(), "content": content,
            "stop_reason": self.finish, "stop_sequence": null
        });
        let reported = self.final_usage(&usage::anthropic(&self.total), true);
        add(&mut body, "usage", reported.clone());
        (body, reported)
    }

    /// The usage object at the end: none = no field, null = the field is null.
    pub(crate) fn final_usage(&self, honest: &Value, asked: bool) -> Option<Value> {
        match &self.wanted.usage {
            UsageMode::Auto => asked.then(|| honest.clone()),
            UsageMode::Final | UsageMode::WithFinish | UsageMode::Cumulative => Some(honest.clone()),
            UsageMode::Never => None,
            UsageMode::Null => Some(Value::Null),
            UsageMode::Negative => Some(usage::negated(honest)),
            UsageMode::Odd(value) => Some(value.clone()),
        }
    }

    // --- content -----------------------------------------------------------------------------------------------

    /// llm_tokens of content chunk `index` of one choice.
    fn share(&self, index: u64) -> u64 {
        let upto = |part: u64| {
            let part = u128::from(self.per_choice).saturating_mul(u128::from(part));
            u64::try_from(part.checked_div(u128::from(self.chunks)).unwrap_or(0)).unwrap_or(u64::MAX)
        };
        upto(index.saturating_add(1)).saturating_sub(upto(index))
    }

    /// One choice's text; the reasoning is not seen.
    pub(crate) fn text(&self) -> String {
        words(0, self.per_choice.saturating_sub(self.reasoning_per_choice()))
    }

    fn reasoning_per_choice(&self) -> u64 {
        self.wanted.reasoning_llm_tokens.min(self.per_choice)
    }

    /// The visible part of content chunk `index`: text, or a piece of the tool's arguments.
    pub(crate) fn chunk_text(&self, index: u64) -> String {
        if let Some(tool) = self.tool {
            return slice_of(&tool.arguments, index, self.chunks);
        }
        let before: u64 = (0..index).map(|earlier| self.share(earlier)).fold(0, u64::saturating_add);
        let after = before.saturating_add(self.share(index));
        let hidden = self.reasoning_per_choice();
        words(before.saturating_sub(hidden), after.saturating_sub(hidden))
    }

    fn cut(&self) -> Option<(u64, Piece)> {
        let wanted = self.wanted;
        [
            (wanted.reset_at_chunk, Piece::Reset),
            (wanted.close_at_chunk, Piece::Close),
            (wanted.stall_at_chunk, Piece::Stall),
        ]
        .into_iter()
        .find_map(|(at, piece)| at.map(|at| (at, piece)))
    }

    // --- stream ------------------------------------------------------------------------------------------------

    fn stream(&self) -> Made {
        let mut events = Events::new(self);
        if self.wanted.first_chunk_after_ms > 0 {
            events.pieces.push(Piece::DelayMs(self.wanted.first_chunk_after_ms));
        }
        match (self.ask.route, self.ask.dialect) {
            (Route::Responses, _) => self.responses_stream(&mut events),
            (Route::Completions, _) => self.completions_stream(&mut events),
            (_, Dialect::OpenAi) => self.openai_stream(&mut events),
            (_, Dialect::Anthropic) => self.anthropic_stream(&mut events),
        }
        Made {
            status: None,
            stream: true,
            headless: false,
            head_after_ms: 0,
            pieces: events.pieces,
            used: self.input_only(),
        }
    }

    /// All content chunks; `event` renders one. False: the stream is over.
    pub(crate) fn content(
        &self,
        events: &mut Events<'_>,
        event: impl Fn(u64, u64, &Usage) -> (Value, Option<Value>),
    ) -> bool {
        let mut so_far = self.input_only();
        let mut sent = 0_u64;
        for index in 0..self.chunks {
            for choice in 0..self.ask.choices {
                if self.stop_before(events, sent) {
                    return false;
                }
                if self.wanted.chunk_every_ms > 0 {
                    events.pieces.push(Piece::DelayMs(self.wanted.chunk_every_ms));
                }
                // What is made and not shown is made before the first text is sent.
                let unseen = if sent == 0 { self.ask.made.saturating_sub(self.ask.choices) } else { 0 };
                let output = self.share(index).saturating_add(unseen.saturating_mul(self.per_choice));
                let reasoning = if index == 0 { self.reasoning_per_choice() } else { 0 };
                so_far.output = so_far.output.saturating_add(output);
                so_far.reasoning = so_far.reasoning.saturating_add(reasoning);
                let (value, usage) = event(index, choice, &so_far);
                let name = match (self.ask.dialect, self.ask.route) {
                    (Dialect::Anthropic, _) => Some("content_block_delta"),
                    (_, Route::Responses) => value.get("type").and_then(Value::as_str),
                    _ => None,
                };
                events.push(
                    name,
                    &value.to_string(),
                    Send { content: true, output, reasoning, usage, ..Send::default() },
                );
                sent = sent.saturating_add(1);
            }
        }
        !self.stop_before(events, sent)
    }

    /// What the script wants after `sent` content chunks, if it ends the stream there.
    fn stop_before(&self, events: &mut Events<'_>, sent: u64) -> bool {
        if self.wanted.error_at_chunk == Some(sent) {
            let error = ErrorBody {
                message: "the mock failed in mid-stream".into(),
                kind: match self.ask.dialect {
                    Dialect::OpenAi => "server_error".into(),
                    Dialect::Anthropic => "overloaded_error".into(),
                },
                code: None,
            };
            let flat = self.ask.route == Route::Responses;
            let name = (flat || self.ask.dialect == Dialect::Anthropic).then_some("error");
            let body = if flat { flat_error(&error) } else { error_body(self.ask.dialect, 500, &error) };
            events.push(name, &body, Send::default());
            return true;
        }
        match self.cut() {
            Some((at, cut)) if at == sent => {
                events.pieces.push(cut);
                true
            }
            _ => false,
        }
    }

    fn openai_stream(&self, events: &mut Events<'_>) {
        let null_usage = match self.wanted.usage {
            UsageMode::Auto => self.ask.include_usage,
            UsageMode::Final | UsageMode::Null => true,
            _ => false,
        };
        let chunk = |choices: Value, usage: Option<Value>| {
            let mut value = json!({
                "id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0,
                "model": self.ask.model_or_default(), "choices": choices
            });
            add(&mut value, "usage", usage.or_else(|| null_usage.then_some(Value::Null)));
            value
        };
        let delta = |choice: u64, delta: Value, finish: Option<&str>, usage: Option<Value>| {
            chunk(
                json!([{"index": choice, "delta": delta, "logprobs": null, "finish_reason": finish}]),
                usage,
            )
        };
        for choice in 0..self.ask.choices {
            let opening = match self.tool {
                Some(tool) => json!({"role": "assistant", "content": null, "tool_calls": [{"index": 0,
                    "id": "call_mock", "type": "function", "function": {"name": tool.name, "arguments": ""}}]}),
                None => json!({"role": "assistant", "content": ""}),
            };
            events.push(None, &delta(choice, opening, None, None).to_string(), Send::default());
        }
        let finished = self.content(events, |index, choice, so_far| {
            let running = (self.wanted.usage == UsageMode::Cumulative).then(|| usage::openai(so_far));
            let text = self.chunk_text(index);
            let body = match self.tool {
                Some(_) => json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
                None => json!({"content": text}),
            };
            (delta(choice, body, None, running.clone()), running)
        });
        if !finished {
            return;
        }
        let honest = usage::openai(&self.total);
        let last = self.final_usage(&honest, self.ask.include_usage);
        if !self.wanted.omit_finish {
            for choice in 0..self.ask.choices {
                let here = (self.wanted.usage == UsageMode::WithFinish
                    && choice.saturating_add(1) == self.ask.choices)
                    .then(|| honest.clone());
                let value = delta(choice, json!({}), Some(self.finish), here.clone());
                events.push(
                    None,
                    &value.to_string(),
                    Send { usage: here, usage_is_final: true, ..Send::default() },
                );
            }
        }
        if let (Some(last), false) =
            (last, matches!(self.wanted.usage, UsageMode::WithFinish | UsageMode::Null))
        {
            let value = chunk(json!([]), Some(last.clone()));
            events.push(
                None,
                &value.to_string(),
                Send { usage: Some(last), usage_is_final: true, ..Send::default() },
            );
        }
        if !self.wanted.omit_done {
            events.push(None, "[DONE]", Send::default());
        }
    }

    fn anthropic_stream(&self, events: &mut Events<'_>) {
        let start = match &self.wanted.usage {
            UsageMode::Never => None,
            UsageMode::Null => Some(Value::Null),
            _ => Some(usage::anthropic(&Usage { output: self.total.output.min(1), ..self.input_only() })),
        };
        let mut message = json!({
            "id": "msg_mock", "type": "message", "role": "assistant", "model": self.ask.model_or_default(),
            "content": [], "stop_reason": null, "stop_sequence": null
        });
        add(&mut message, "usage", start.clone());
        let opening = json!({"type": "message_start", "message": message}).to_string();
        events.push(Some("message_start"), &opening, Send { usage: start, ..Send::default() });
        let block = match self.tool {
            Some(tool) => json!({"type": "tool_use", "id": "toolu_mock", "name": tool.name, "input": {}}),
            None => json!({"type": "text", "text": ""}),
        };
        let block = json!({"type": "content_block_start", "index": 0, "content_block": block});
        events.push(Some("content_block_start"), &block.to_string(), Send::default());
        events.push(Some("ping"), r#"{"type":"ping"}"#, Send::default());
        let finished = self.content(events, |index, _, _| {
            let text = self.chunk_text(index);
            let delta = match self.tool {
                Some(_) => json!({"type": "input_json_delta", "partial_json": text}),
                None => json!({"type": "text_delta", "text": text}),
            };
            (json!({"type": "content_block_delta", "index": 0, "delta": delta}), None)
        });
        if !finished {
            return;
        }
        events.push(
            Some("content_block_stop"),
            r#"{"type":"content_block_stop","index":0}"#,
            Send::default(),
        );
        self.anthropic_end(events);
    }

    fn anthropic_end(&self, events: &mut Events<'_>) {
        let delta = |stop: Option<&str>, usage: Option<&Value>| {
            let mut value =
                json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}});
            add(&mut value, "usage", usage.cloned());
            value.to_string()
        };
        if self.wanted.usage == UsageMode::Cumulative {
            let half = Usage { output: self.total.output / 2, reasoning: 0, ..self.total };
            let running = usage::anthropic_delta(&half);
            events.push(
                Some("message_delta"),
                &delta(None, Some(&running)),
                Send { usage: Some(running.clone()), ..Send::default() },
            );
        }
        let last = self.final_usage(&usage::anthropic_delta(&self.total), true);
        if !self.wanted.omit_finish {
            let text = delta(Some(self.finish), last.as_ref());
            events.push(
                Some("message_delta"),
                &text,
                Send { usage: last, usage_is_final: true, ..Send::default() },
            );
        }
        if !self.wanted.omit_done {
            events.push(Some("message_stop"), r#"{"type":"message_stop"}"#, Send::default());
        }
    }
}

/// Server-sent events in the form that the script wants.
pub(crate) struct Events<'a> {
    wanted: &'a Generate,
    pieces: Vec<Piece>,
}

impl<'a> Events<'a> {
    fn new(call: &Call<'a>) -> Self {
        Self { wanted: call.wanted, pieces: Vec::new() }
    }

    pub(crate) fn push(&mut self, name: Option<&str>, data: &str, mut send: Send) {
        let end = match self.wanted.line_end {
            LineEnd::Lf => "\n",
            LineEnd::CrLf => "\r\n",
            LineEnd::Cr => "\r",
        };
        let space = if self.wanted.no_space { "" } else { " " };
        let comment = if self.wanted.comments { format!(": mock{end}") } else { String::new() };
        let event = name.map(|name| format!("event:{space}{name}{end}")).unwrap_or_default();
        send.bytes = format!("{comment}{event}data:{space}{data}{end}{end}").into();
        self.pieces.push(Piece::Send(send));
    }
}

fn words(from: u64, to: u64) -> String {
    let count = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    let skip = usize::try_from(from % 8).unwrap_or(0);
    WORDS.iter().cycle().skip(skip).take(count).copied().collect()
}

/// Piece `index` of `text` cut into `parts` at character boundaries.
fn slice_of(text: &str, index: u64, parts: u64) -> String {
    let total = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    let at = |part: u64| total.saturating_mul(part).checked_div(parts).unwrap_or(0);
    let from = at(index);
    let length = at(index.saturating_add(1)).saturating_sub(from);
    let as_size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    text.chars().skip(as_size(from)).take(as_size(length)).collect()
}

pub(crate) fn add(target: &mut Value, name: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (target.as_object_mut(), value) {
        let object: &mut Map<String, Value> = object;
        object.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = "/v1/chat/completions";
    const MESSAGES: &str = "/v1/messages";

    fn make(path: &str, body: &str, wanted: &Generate) -> Made {
        answer(wanted, &Ask::read("POST", path, &[], body.as_bytes()))
    }

    fn sends(made: &Made) -> Vec<Send> {
        made.pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Send(send) => Some(send.clone()),
                _ => None,
            })
            .collect()
    }

    fn output(made: &Made) -> u64 {
        sends(made).iter().map(|send| send.output).sum()
    }

    #[test]
    fn output_of_the_pieces_is_that_of_the_usage() {
        for (path, dialect) in [(CHAT, Dialect::OpenAi), (MESSAGES, Dialect::Anthropic)] {
            for stream in [true, false] {
                for llm_tokens in [0, 1, 7, 64, 65, 1000] {
                    let wanted = Generate {
                        output_llm_tokens: Some(llm_tokens),
                        reasoning_llm_tokens: 3,
                        input_llm_tokens: Some(50),
                        cached_llm_tokens: 10,
                        usage: UsageMode::Final,
                        ..Generate::default()
                    };
                    let made = make(path, &format!(r#"{{"stream":{stream}}}"#), &wanted);
                    let sent: Vec<Value> = sends(&made).into_iter().filter_map(|send| send.usage).collect();
                    let read = usage::read(dialect, &sent).unwrap();
                    assert_eq!(read.output, llm_tokens, "{path} {stream}");
                    assert_eq!(output(&made), llm_tokens, "{path} {stream}");
                    assert_eq!((read.input, read.cached), (50, 10));
                    assert_eq!(read.reasoning, llm_tokens.min(3), "{path} {stream}");
                }
            }
        }
    }

    #[test]
    fn usage_chunk_comes_only_if_asked() {
        let silent = make(CHAT, r#"{"stream":true}"#, &Generate::default());
        assert!(sends(&silent).iter().all(|send| send.usage.is_none()));
        let body = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
        let asked = make(CHAT, body, &Generate::default());
        let with: Vec<Send> = sends(&asked).into_iter().filter(|send| send.usage.is_some()).collect();
        assert_eq!(with.len(), 1);
        assert!(String::from_utf8_lossy(&with[0].bytes).contains(r#""choices":[]"#));
    }

    #[test]
    fn cap_cuts_and_says_length() {
        let made = make(CHAT, r#"{"max_tokens":5}"#, &Generate::default());
        assert_eq!(output(&made), 5);
        assert!(String::from_utf8_lossy(&sends(&made)[0].bytes).contains(r#""finish_reason":"length""#));
        let wanted = Generate { ignore_cap: true, ..Generate::default() };
        assert_eq!(output(&make(CHAT, r#"{"max_tokens":5}"#, &wanted)), OUTPUT_DEFAULT);
    }

    #[test]
    fn choices_multiply_the_output() {
        for stream in [true, false] {
            let made = make(CHAT, &format!(r#"{{"n":3,"stream":{stream}}}"#), &Generate::default());
            assert_eq!(output(&made), 3 * OUTPUT_DEFAULT);
        }
    }

    #[test]
    fn cut_comes_after_exactly_that_many_content_chunks() {
        for path in [CHAT, MESSAGES] {
            for at in 0..=4 {
                let wanted = Generate { chunks: Some(4), reset_at_chunk: Some(at), ..Generate::default() };
                let made = make(path, r#"{"stream":true}"#, &wanted);
                assert!(matches!(made.pieces.last(), Some(Piece::Reset)));
                let content = sends(&made).iter().filter(|send| send.content).count();
                assert_eq!(u64::try_from(content).unwrap(), at);
            }
        }
    }

    #[test]
    fn plain_cut_falls_before_the_head_or_into_the_body() {
        let wanted = Generate { stall_at_chunk: Some(0), ..Generate::default() };
        let made = make(CHAT, "{}", &wanted);
        assert!(made.headless);
        assert_eq!(made.pieces.len(), 1);
        let wanted = Generate { stall_at_chunk: Some(1), ..Generate::default() };
        let made = make(CHAT, "{}", &wanted);
        assert!(matches!(made.pieces[1], Piece::Stall));
        assert!(sends(&made)[0].usage.is_none());
    }

    #[test]
    fn tool_arguments_are_whole_when_joined() {
        let tool = ToolCall { name: "f".into(), arguments: r#"{"città":"Roma"}"#.into() };
        for chunks in [1, 2, 5, 40] {
            let joined: String = (0..chunks).map(|index| slice_of(&tool.arguments, index, chunks)).collect();
            assert_eq!(joined, tool.arguments);
        }
        let wanted = Generate { tool_call: Some(tool), ..Generate::default() };
        let made = make(MESSAGES, r#"{"stream":true}"#, &wanted);
        let all: String =
            sends(&made).iter().map(|send| String::from_utf8_lossy(&send.bytes).into_owned()).collect();
        assert!(all.contains("input_json_delta"));
        assert!(all.contains(r#""stop_reason":"tool_use""#));
    }

    #[test]
    fn line_form_is_as_wanted() {
        let wanted =
            Generate { line_end: LineEnd::CrLf, no_space: true, comments: true, ..Generate::default() };
        let made = make(MESSAGES, r#"{"stream":true}"#, &wanted);
        let first = String::from_utf8(sends(&made)[0].bytes.to_vec()).unwrap();
        assert!(first.starts_with(": mock\r\nevent:message_start\r\ndata:{"));
        assert!(first.ends_with("}\r\n\r\n"));
    }
}
