//! Bodies of requests: the decoder against itself, against `serde_json`, and against what its own splices make.

use serde_json::Value;
use serde_json::value::RawValue;
use tollbook_wire::{Changes, Classes, Request, Surface, apply_edits, decode_request, edits, visit_text};

use super::{Target, gist, must, same, signature, size, steered, surface};
use crate::corpus::Corpus;

pub(super) const TARGET: Target = Target {
    name: "request",
    check,
    dictionary: &[
        "\"input\":\"x\",",
        "\"prompt\":[\"a\",\"b\"],",
        "\"best_of\":3,",
        "\"echo\":true,",
        "\"max_output_tokens\":9,",
        "\"model\":\"m\",",
        "\"messages\":[],",
        "\"stream\":true,",
        "\"stream_options\":{\"include_usage\":true},",
        "\"stream_options\":null,",
        "\"stream_options\":{},",
        "\"max_tokens\":5,",
        "\"max_completion_tokens\":9,",
        "\"n\":2,",
        "\"Model\":\"x\",",
        "\"m\\u006fdel\":\"x\",",
        "\"role\":\"user\",",
        "\"content\":\"text\",",
        "\"content\":[{\"type\":\"text\",\"text\":\"a\"}],",
        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}}",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],",
        "\"system\":\"s\",",
        "\"tool_choice\":\"required\",",
        "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"},",
        "\\ud800",
        "\\ud83d\\ude00",
        "\\u0000",
        "[[[[[[[[",
        "{\"a\":",
        "null",
        "true",
        "\"prediction\":{\"content\":\"x\"},",
        "\"modalities\":[\"audio\"],",
        "\u{FEFF}",
        "\"service_tier\":\"flex\",",
        "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":99},",
        "\"é\":1,",
        "\t",
        "\"mcp_servers\":[{\"url\":\"x\"}],",
    ],
    corpus: || Corpus::read("request"),
    runs: 40_000,
};

const OTHER_MODEL: &str = "the-target's \"name\"";
const CAP: u64 = 7;

fn check(input: &[u8]) -> Result<u64, String> {
    let ([flags], body) = steered::<1>(input);
    let surface = surface(flags);
    let decoded = decode_request(surface, body);
    same("decoded twice", &format!("{:?}", decode_request(surface, body)), &format!("{decoded:?}"))?;
    let valid = serde_json::from_slice::<&RawValue>(body).is_ok();
    let request = match decoded {
        Ok(request) => request,
        Err(error) => {
            // Where it went wrong, roughly: names of parameters, but not offsets.
            return Ok(signature(&format!("{surface:?} {} {valid}", gist(&error.to_string()))));
        }
    };
    must(valid, || "what is no JSON was taken".to_owned())?;
    text_is_counted(surface, body, &request)?;
    spliced(surface, body, &request, flags)?;
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        agrees(surface, &value, &request)?;
    }
    let content = &request.content;
    Ok(signature(&format!(
        "{surface:?} {} {:?} {} {} {} {} {} {} {} {}",
        request.stream,
        request.output_cap.map(size),
        size(request.choices),
        request.usage_asked,
        request.cache_asked,
        request.web_search,
        request.audio_asked,
        size(content.text.bytes),
        size(content.messages),
        size(request.tool_count)
    )))
}

/// Both ways of reading the text see the same.
fn text_is_counted(surface: Surface, body: &[u8], request: &Request<'_>) -> Result<(), String> {
    let mut visited = Classes::default();
    let visit = visit_text(surface, body, &mut |text| visited.add(&Classes::of(text)));
    must(visit.is_ok(), || format!("decoded, but not visited: {visit:?}"))?;
    same("text", &visited, &request.content.text)
}

/// What both readers must see alike, and a floor for what is counted.
fn agrees(surface: Surface, value: &Value, request: &Request<'_>) -> Result<(), String> {
    same("model", &value.get("model").and_then(Value::as_str), &Some(&*request.model))?;
    same("stream", &value.get("stream").and_then(Value::as_bool).unwrap_or(false), &request.stream)?;
    let caps: &[&str] = match surface {
        Surface::Chat => &["max_tokens", "max_completion_tokens"],
        Surface::Responses => &["max_output_tokens"],
        _ => &["max_tokens"],
    };
    let cap = caps.iter().filter_map(|name| value.get(name)?.as_u64()).max();
    same("output cap", &request.output_cap, &cap)?;
    let messages = value.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // A member that stands twice may be counted twice; none may be left out.
    let told: usize =
        messages.iter().filter_map(|message| Some(message.get("content")?.as_str()?.len())).sum();
    let told = u64::try_from(told).unwrap_or(u64::MAX);
    must(request.content.text.bytes >= told, || {
        format!("{} bytes counted of {told} told", request.content.text.bytes)
    })
}

/// A spliced body is the changed request, and nothing else of it has changed.
fn spliced(surface: Surface, body: &[u8], request: &Request<'_>, flags: u8) -> Result<(), String> {
    let changes = Changes {
        model: (flags & 4 != 0).then_some(OTHER_MODEL),
        include_usage: flags & 8 != 0,
        output_cap: (flags & 16 != 0).then_some(CAP),
    };
    let made = apply_edits(body, &edits(request, &changes));
    let again = decode_request(surface, &made).map_err(|error| {
        format!("the spliced body is not read: {error}: {}", String::from_utf8_lossy(&made))
    })?;
    same("model", &&*again.model, &changes.model.unwrap_or(&request.model))?;
    let asked = request.usage_asked
        || matches!(surface, Surface::Chat | Surface::Completions) && changes.include_usage && request.stream;
    same("usage asked", &again.usage_asked, &asked)?;
    same("output cap", &again.output_cap, &changes.output_cap.or(request.output_cap))?;
    same("text", &again.content.text, &request.content.text)?;
    if let (Ok(Value::Object(mut old)), Ok(Value::Object(mut new))) =
        (serde_json::from_slice(body), serde_json::from_slice(&made))
    {
        for name in ["model", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens"] {
            old.remove(name);
            new.remove(name);
        }
        same("the rest of the body", &new, &old)?;
    }
    Ok(())
}
