//! Answers of the OpenAI surfaces beside chat: responses, completions, embeddings, plain and streamed.
//!
//! The rules are those of `generate`. A response ends in the state that `finish_reason` names (`completed`, `incomplete`,
//! `failed`, `cancelled`); with `omit_finish` or `omit_done` its stream has no terminal event.

use serde_json::{Value, json};

use crate::generate::{Call, Events, add};
use crate::plan::Send;
use crate::script::UsageMode;
use crate::usage;

/// Numbers of one embedding.
const DIMENSIONS: usize = 4;

impl Call<'_> {
    // --- responses ---------------------------------------------------------------------------------------------

    pub(crate) fn response_body(&self) -> (Value, Option<Value>) {
        let reported = self.final_usage(&usage::responses(&self.total), true);
        (self.response(self.finish, true, reported.as_ref()), reported)
    }

    /// A response in a state; whole, or as it is before anything was written.
    fn response(&self, status: &str, whole: bool, usage: Option<&Value>) -> Value {
        let reason = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let error =
            (status == "failed").then(|| json!({"code": "server_error", "message": "the mock failed"}));
        let mut value = json!({
            "id": "resp_mock", "object": "response", "created_at": 0, "status": status, "error": error,
            "incomplete_details": reason, "model": self.ask.model_or_default(),
            "output": if whole { self.items() } else { Vec::new() },
            "parallel_tool_calls": true, "service_tier": "default", "tool_choice": "auto", "tools": []
        });
        add(&mut value, "usage", usage.cloned().or_else(|| (!whole).then_some(Value::Null)));
        value
    }

    fn items(&self) -> Vec<Value> {
        let mut items: Vec<Value> = (0..self.wanted.web_searches).map(search).collect();
        if self.wanted.reasoning_llm_tokens > 0 {
            items.push(json!({"type": "reasoning", "id": "rs_mock", "summary": []}));
        }
        items.push(match self.tool {
            Some(tool) => {
                json!({"type": "function_call", "id": "fc_mock", "call_id": "call_mock", "name": tool.name,
                "arguments": tool.arguments, "status": "completed"})
            }
            None => json!({"type": "message", "id": "msg_mock", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": self.text(), "annotations": []}]}),
        });
        items
    }

    pub(crate) fn responses_stream(&self, events: &mut Events<'_>) {
        let mut number = Numbered::default();
        for (name, status) in [("response.created", "in_progress"), ("response.in_progress", "in_progress")] {
            let value = json!({"type": name, "response": self.response(status, false, None)});
            number.push(events, value, Send::default());
        }
        for index in 0..self.wanted.web_searches {
            for kind in ["response.output_item.added", "response.output_item.done"] {
                let value = json!({"type": kind, "output_index": index, "item": search(index)});
                number.push(events, value, Send::default());
            }
        }
        let place = self.wanted.web_searches;
        let item = match self.tool {
            Some(tool) => {
                json!({"type": "function_call", "id": "fc_mock", "call_id": "call_mock", "name": tool.name,
                "arguments": "", "status": "in_progress"})
            }
            None => json!({"type": "message", "id": "msg_mock", "role": "assistant", "status": "in_progress",
                "content": []}),
        };
        let opening = json!({"type": "response.output_item.added", "output_index": place, "item": item});
        number.push(events, opening, Send::default());
        let next = number.0;
        let finished = self.content(events, |index, _, _| {
            let text = self.chunk_text(index);
            let mut delta = match self.tool {
                Some(_) => json!({"type": "response.function_call_arguments.delta", "item_id": "fc_mock"}),
                None => {
                    json!({"type": "response.output_text.delta", "item_id": "msg_mock", "content_index": 0})
                }
            };
            add(&mut delta, "output_index", Some(place.into()));
            add(&mut delta, "delta", Some(text.into()));
            add(&mut delta, "sequence_number", Some(next.saturating_add(index).into()));
            (delta, None)
        });
        if !finished {
            return;
        }
        number.0 = next.saturating_add(self.chunks);
        self.response_end(events, &mut number, place);
    }

    fn response_end(&self, events: &mut Events<'_>, number: &mut Numbered, place: u64) {
        let whole = match self.tool {
            Some(tool) => json!({"type": "response.function_call_arguments.done", "item_id": "fc_mock",
                "output_index": place, "arguments": tool.arguments}),
            None => json!({"type": "response.output_text.done", "item_id": "msg_mock", "output_index": place,
                "content_index": 0, "text": self.text()}),
        };
        number.push(events, whole, Send::default());
        let item = self.items().pop();
        let done = json!({"type": "response.output_item.done", "output_index": place, "item": item});
        number.push(events, done, Send::default());
        if self.wanted.omit_finish || self.wanted.omit_done {
            return;
        }
        let reported = self.final_usage(&usage::responses(&self.total), true);
        let response = self.response(self.finish, true, reported.as_ref());
        let last = json!({"type": format!("response.{}", self.finish), "response": response});
        number.push(events, last, Send { usage: reported, usage_is_final: true, ..Send::default() });
    }

    // --- completions -------------------------------------------------------------------------------------------

    pub(crate) fn completion_body(&self) -> (Value, Option<Value>) {
        let text = format!("{}{}", self.echo(), self.text());
        let choices: Vec<Value> = (0..self.ask.choices)
            .map(
                |index| json!({"index": index, "text": text, "logprobs": null, "finish_reason": self.finish}),
            )
            .collect();
        let mut body = json!({
            "id": "cmpl-mock", "object": "text_completion", "created": 0, "model": self.ask.model_or_default(),
            "choices": choices
        });
        let reported = self.final_usage(&usage::openai(&self.total), true);
        add(&mut body, "usage", reported.clone());
        (body, reported)
    }

    /// The prompt, where the answer begins with it.
    fn echo(&self) -> &str {
        self.ask.echo.as_deref().unwrap_or_default()
    }

    pub(crate) fn completions_stream(&self, events: &mut Events<'_>) {
        let null_usage = self.ask.include_usage && self.wanted.usage == UsageMode::Auto;
        let chunk = |choices: Value, usage: Option<Value>| {
            let mut value = json!({
                "id": "cmpl-mock", "object": "text_completion", "created": 0, "model": self.ask.model_or_default(),
                "choices": choices
            });
            add(&mut value, "usage", usage.or_else(|| null_usage.then_some(Value::Null)));
            value
        };
        let choice = |index: u64, text: &str, finish: Option<&str>| {
            chunk(json!([{"index": index, "text": text, "logprobs": null, "finish_reason": finish}]), None)
        };
        if !self.echo().is_empty() {
            for index in 0..self.ask.choices {
                events.push(None, &choice(index, self.echo(), None).to_string(), Send::default());
            }
        }
        let finished =
            self.content(events, |index, shown, _| (choice(shown, &self.chunk_text(index), None), None));
        if !finished {
            return;
        }
        if !self.wanted.omit_finish {
            for index in 0..self.ask.choices {
                let end = choice(index, "", Some(self.finish)).to_string();
                events.push(None, &end, Send::default());
            }
        }
        let last = self.final_usage(&usage::openai(&self.total), self.ask.include_usage);
        if let (Some(last), false) = (last, self.wanted.usage == UsageMode::Null) {
            let value = chunk(json!([]), Some(last.clone())).to_string();
            events.push(None, &value, Send { usage: Some(last), usage_is_final: true, ..Send::default() });
        }
        if !self.wanted.omit_done {
            events.push(None, "[DONE]", Send::default());
        }
    }

    // --- embeddings --------------------------------------------------------------------------------------------

    pub(crate) fn embedding_body(&self) -> (Value, Option<Value>) {
        let data: Vec<Value> = (0..self.ask.choices)
            .map(|index| json!({"object": "embedding", "index": index, "embedding": vec![0.25; DIMENSIONS]}))
            .collect();
        let mut body = json!({"object": "list", "data": data, "model": self.ask.model_or_default()});
        let reported = self.final_usage(&usage::embeddings(&self.total), true);
        add(&mut body, "usage", reported.clone());
        (body, reported)
    }
}

fn search(index: u64) -> Value {
    json!({"type": "web_search_call", "id": format!("ws_{index}"), "status": "completed",
        "action": {"type": "search", "query": "mock"}})
}

/// Events of the responses surface carry their number.
#[derive(Default)]
struct Numbered(u64);

impl Numbered {
    fn push(&mut self, events: &mut Events<'_>, mut value: Value, send: Send) {
        add(&mut value, "sequence_number", Some(self.0.into()));
        self.0 = self.0.saturating_add(1);
        let name = value.get("type").and_then(Value::as_str).map(str::to_owned);
        events.push(name.as_deref(), &value.to_string(), send);
    }
}
