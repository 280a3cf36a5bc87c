//! `GET /v1/models` in both dialects. The gateway knows names, not birthdays: times are the epoch.

use serde::Serialize;

use crate::problem::json;
use crate::surface::Dialect;

#[derive(Serialize)]
struct OpenAiList<'a> {
    object: &'static str,
    data: Vec<OpenAiModel<'a>>,
}

#[derive(Serialize)]
struct OpenAiModel<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

#[derive(Serialize)]
struct AnthropicList<'a> {
    data: Vec<AnthropicModel<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

#[derive(Serialize)]
struct AnthropicModel<'a> {
    r#type: &'static str,
    id: &'a str,
    display_name: &'a str,
    created_at: &'static str,
}

fn openai(id: &str) -> OpenAiModel<'_> {
    OpenAiModel { id, object: "model", created: 0, owned_by: "tollbook" }
}

fn anthropic(id: &str) -> AnthropicModel<'_> {
    AnthropicModel { r#type: "model", id, display_name: id, created_at: "1970-01-01T00:00:00Z" }
}

/// The list of models that a key may use, in the order given.
pub fn models_body<S: AsRef<str>>(dialect: Dialect, names: &[S]) -> Vec<u8> {
    let ids = || names.iter().map(AsRef::as_ref);
    match dialect {
        Dialect::OpenAi => json(&OpenAiList { object: "list", data: ids().map(openai).collect() }),
        Dialect::Anthropic => json(&AnthropicList {
            data: ids().map(anthropic).collect(),
            has_more: false,
            first_id: ids().next(),
            last_id: ids().next_back(),
        }),
    }
}

/// One model (`GET /v1/models/{id}`).
pub fn model_body(dialect: Dialect, name: &str) -> Vec<u8> {
    match dialect {
        Dialect::OpenAi => json(&openai(name)),
        Dialect::Anthropic => json(&anthropic(name)),
    }
}
