//! What a call asks for, read leniently from its body.
//!
//! Invariants: nothing in a body makes this fail; a field of the wrong type counts as absent.
//! A body that is no JSON object is still a call: it is answered as a plain one without a model.

use serde_json::{Map, Value};

use crate::record::Dialect;
use crate::script::{Script, ToolCall};

pub(crate) const SCRIPT_HEADER: &str = "x-mock-script";
/// What completions are cut to if they send no cap.
const COMPLETIONS_CAP: u64 = 16;
const USER_PREFIX: &str = "mock:";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Responses,
    Completions,
    Embeddings,
    Messages,
    CountInput,
    Models,
    Unknown,
}

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) route: Route,
    pub(crate) dialect: Dialect,
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    pub(crate) cap: Option<u64>,
    /// Answers that are sent: `n`, for each prompt.
    pub(crate) choices: u64,
    /// Answers that are made, `best_of` included.
    pub(crate) made: u64,
    /// The prompt, where the answer is to begin with it.
    pub(crate) echo: Option<String>,
    pub(crate) include_usage: bool,
    pub(crate) forced_tool: Option<ToolCall>,
    pub(crate) body_bytes: u64,
    /// A script that the call brought along.
    pub(crate) own_script: Option<Result<Script, String>>,
}

impl Ask {
    pub(crate) fn read(method: &str, target: &str, headers: &[(String, String)], body: &[u8]) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        let header = |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v);
        let anthropic = header("anthropic-version").is_some();
        let route = route(method, path);
        let dialect = match route {
            Route::Messages | Route::CountInput => Dialect::Anthropic,
            Route::Models | Route::Unknown if anthropic => Dialect::Anthropic,
            Route::Chat
            | Route::Responses
            | Route::Completions
            | Route::Embeddings
            | Route::Models
            | Route::Unknown => Dialect::OpenAi,
        };
        let object = match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => object,
            _ => Map::new(),
        };
        let own_script = match header(SCRIPT_HEADER) {
            Some(text) => Some(parse_script(text)),
            None => script_in_body(&object),
        };
        let prompts = match route {
            Route::Completions => prompts(object.get("prompt")),
            Route::Embeddings => prompts(object.get("input")),
            _ => 1,
        };
        let many = |name: &str| object.get(name).and_then(Value::as_u64).unwrap_or(1).clamp(1, 128);
        let choices = if route == Route::Embeddings { 1 } else { many("n") };
        Self {
            route,
            dialect,
            model: object.get("model").and_then(Value::as_str).map(str::to_owned),
            stream: route != Route::Embeddings
                && object.get("stream").and_then(Value::as_bool).unwrap_or(false),
            cap: cap(&object).or((route == Route::Completions).then_some(COMPLETIONS_CAP)),
            choices: choices.saturating_mul(prompts),
            made: choices.max(many("best_of")).saturating_mul(prompts),
            echo: echo(&object),
            include_usage: object
                .get("stream_options")
                .and_then(|options| options.get("include_usage"))
                .and_then(Value::as_bool)
                .unwrap_or(false),
            forced_tool: forced_tool(&object),
            body_bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
            own_script,
        }
    }

    pub(crate) fn model_or_default(&self) -> &str {
        self.model.as_deref().unwrap_or("mock")
    }
}

fn route(method: &str, path: &str) -> Route {
    match method {
        "POST" if path.ends_with("/chat/completions") => Route::Chat,
        "POST" if path.ends_with("/responses") => Route::Responses,
        "POST" if path.ends_with("/completions") => Route::Completions,
        "POST" if path.ends_with("/embeddings") => Route::Embeddings,
        "POST" if path.ends_with("/messages") => Route::Messages,
        "POST" if path.ends_with("/messages/count_tokens") => Route::CountInput,
        "GET" if path.ends_with("/models") => Route::Models,
        _ => Route::Unknown,
    }
}

/// How many inputs a prompt is: a list of texts or of lists is several.
fn prompts(input: Option<&Value>) -> u64 {
    let list = input.and_then(Value::as_array);
    let several = list.filter(|list| !list.iter().all(Value::is_number));
    several.map_or(1, |list| u64::try_from(list.len()).unwrap_or(u64::MAX)).max(1)
}

fn echo(object: &Map<String, Value>) -> Option<String> {
    object.get("echo").and_then(Value::as_bool).filter(|echo| *echo)?;
    object.get("prompt").and_then(Value::as_str).map(str::to_owned)
}

fn cap(object: &Map<String, Value>) -> Option<u64> {
    ["max_tokens", "max_completion_tokens", "max_output_tokens"]
        .iter()
        .filter_map(|name| object.get(*name).and_then(Value::as_u64))
        .filter(|cap| *cap > 0)
        .max()
}

pub(crate) fn parse_script(text: &str) -> Result<Script, String> {
    serde_json::from_str(text).map_err(|error| format!("mock script: {error}"))
}

/// `metadata.mock` (a script or its JSON text), or `user` / `metadata.user_id` starting with `mock:`.
fn script_in_body(object: &Map<String, Value>) -> Option<Result<Script, String>> {
    let metadata = object.get("metadata");
    match metadata.and_then(|metadata| metadata.get("mock")) {
        Some(Value::String(text)) => return Some(parse_script(text)),
        Some(value) => return Some(parse_script(&value.to_string())),
        None => {}
    }
    let user_id = metadata.and_then(|metadata| metadata.get("user_id"));
    [object.get("user"), user_id]
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .find_map(|user| user.strip_prefix(USER_PREFIX))
        .map(parse_script)
}

fn forced_tool(object: &Map<String, Value>) -> Option<ToolCall> {
    let choice = object.get("tool_choice")?;
    let kind = choice.as_str().or_else(|| choice.get("type").and_then(Value::as_str))?;
    let wanted = choice.get("function").unwrap_or(choice).get("name").and_then(Value::as_str);
    if !matches!(kind, "required" | "any" | "tool" | "function") {
        return None;
    }
    let tools = object.get("tools")?.as_array()?;
    let tool = tools
        .iter()
        .map(|tool| tool.get("function").unwrap_or(tool))
        .find(|tool| wanted.is_none() || tool.get("name").and_then(Value::as_str) == wanted)?;
    let schema = tool.get("parameters").or_else(|| tool.get("input_schema"));
    Some(ToolCall {
        name: tool.get("name")?.as_str()?.to_owned(),
        arguments: sample_arguments(schema).to_string(),
    })
}

/// One value of the right type for each property.
fn sample_arguments(schema: Option<&Value>) -> Value {
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let mut arguments = Map::new();
    for (name, property) in properties.into_iter().flatten() {
        let value = match property.get("type").and_then(Value::as_str) {
            Some("integer" | "number") => Value::from(1),
            Some("boolean") => Value::from(true),
            Some("array") => Value::Array(Vec::new()),
            Some("object") => Value::Object(Map::new()),
            _ => Value::from("mock"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(body: &str) -> Ask {
        Ask::read("POST", "/v1/chat/completions", &[], body.as_bytes())
    }

    #[test]
    fn largest_cap_counts_and_odd_ones_do_not() {
        assert_eq!(ask(r#"{"max_tokens":5,"max_completion_tokens":9}"#).cap, Some(9));
        for odd in ["null", "0", "-1", "\"5\"", "1.5", "[]"] {
            assert_eq!(ask(&format!(r#"{{"max_tokens":{odd}}}"#)).cap, None, "{odd}");
        }
    }

    #[test]
    fn script_is_found_in_each_place() {
        let script = Script::output(3);
        let json = serde_json::to_string(&script).unwrap();
        let quoted = Value::from(json.clone()).to_string();
        let user = Value::from(format!("mock:{json}")).to_string();
        let bodies = [
            format!(r#"{{"metadata":{{"mock":{json}}}}}"#),
            format!(r#"{{"metadata":{{"mock":{quoted}}}}}"#),
            format!(r#"{{"user":{user}}}"#),
            format!(r#"{{"metadata":{{"user_id":{user}}}}}"#),
        ];
        for body in bodies {
            assert_eq!(ask(&body).own_script, Some(Ok(script.clone())), "{body}");
        }
        let headers = vec![("X-Mock-Script".to_owned(), json)];
        assert_eq!(Ask::read("POST", "/", &headers, b"").own_script, Some(Ok(script)));
        assert!(ask(r#"{"user":"mock:{"}"#).own_script.unwrap().is_err());
        assert!(ask(r#"{"user":"somebody"}"#).own_script.is_none());
    }

    #[test]
    fn forced_tool_gets_arguments_of_the_right_type() {
        let tools = r#""tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"type":"integer"},"b":{"type":"string"}}}}}]"#;
        let forced = ask(&format!(r#"{{{tools},"tool_choice":"required"}}"#)).forced_tool.unwrap();
        assert_eq!(forced, ToolCall { name: "f".into(), arguments: r#"{"a":1,"b":"mock"}"#.into() });
        assert!(ask(&format!(r#"{{{tools},"tool_choice":"auto"}}"#)).forced_tool.is_none());
    }
}
