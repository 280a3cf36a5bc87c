//! Whole answers and their usage: the reader against itself, against `serde_json`, and against the same object in a stream.

use bytes::Bytes;
use serde_json::Value;
use tollbook_wire::{DEPTH_MAX, StreamRelay, Surface, USAGE_FIELD_MAX, Usage, read_usage};

use super::{Target, must, same, signature, size, steered, surface, surface_of, with_recordings};

pub(super) const TARGET: Target = Target {
    name: "usage",
    check,
    dictionary: &[
        "\"usage\":{",
        "\"usage\":null,",
        "\"prompt_tokens\":",
        "\"completion_tokens\":",
        "\"total_tokens\":",
        "\"input_tokens\":",
        "\"output_tokens\":",
        "\"cache_read_input_tokens\":",
        "\"cache_creation_input_tokens\":",
        "\"cache_creation\":{",
        "\"ephemeral_5m_input_tokens\":",
        "\"ephemeral_1h_input_tokens\":",
        "\"prompt_tokens_details\":{",
        "\"cached_tokens\":",
        "\"completion_tokens_details\":{",
        "\"reasoning_tokens\":",
        "\"audio_tokens\":",
        "\"server_tool_use\":{\"web_search_requests\":",
        "-1",
        "\"12\"",
        "12.7",
        "1e3",
        "1e400",
        "null",
        "{}",
        "[]",
        "true",
        "\"error\":{\"message\":\"x\",\"code\":429},",
        "\"finish_reason\":\"stop\"",
        "\"stop_reason\":\"end_turn\"",
        "\"choices\":[",
        "\"content\":[{\"type\":\"text\",\"text\":\"x\"}]",
        "\\u0075sage",
        "\u{FEFF}",
        "\"output_tokens_details\":{\"thinking_tokens\":",
    ],
    corpus: || with_recordings("usage", ".json", |name| vec![surface_of(name)]),
    runs: 8_000,
};

/// No single answer is believed to have used more than this.
const USED_MAX: u64 = 4 * USAGE_FIELD_MAX;

fn check(input: &[u8]) -> Result<u64, String> {
    let ([flags], body) = steered::<1>(input);
    let surface = surface(flags);
    let read = read_usage(surface, body);
    same("read twice", &read_usage(surface, body), &read)?;
    let text = String::from_utf8_lossy(body);
    let value = serde_json::from_str::<Value>(&text).ok();
    if value.as_ref().is_some_and(|value| value.is_object() && depth(value) <= DEPTH_MAX) {
        must(read.json, || "JSON was taken for none".to_owned())?;
    }
    read.usage.map_or(Ok(()), |usage| fits(&usage))?;
    if let Some(value) = &value {
        floor(surface, &text, value, read.usage)?;
        in_a_stream(surface, value)?;
    }
    let used = read.usage.map(|usage| {
        let flags = (usage.input_reported, usage.output_reported, usage.complete, usage.split_estimated);
        let parts = (size(usage.input), size(usage.output), size(usage.cached), size(usage.cache_write));
        (flags, parts, usage.reasoning > 0, usage.web_searches > 0, usage.cache_write_1h > 0)
    });
    let odd = read.anomalies;
    Ok(signature(&format!(
        "{surface:?} {} {used:?} {} {} {} {} {} {} {}",
        read.json,
        read.finish_seen,
        read.error.is_some(),
        odd.negative > 0,
        odd.absurd > 0,
        odd.malformed > 0,
        odd.inconsistent > 0,
        size(read.output.bytes)
    )))
}

fn depth(value: &Value) -> u32 {
    let inside = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    inside.unwrap_or(0).saturating_add(1)
}

/// Parts are parts of their wholes, and amounts are bounded.
pub(super) fn fits(usage: &Usage) -> Result<(), String> {
    let parts = [
        usage.cached.saturating_add(usage.cache_write) <= usage.input,
        usage.cache_write_1h <= usage.cache_write,
        usage.audio_input <= usage.input,
        usage.image_input <= usage.input,
        usage.reasoning <= usage.output,
        usage.audio_output <= usage.output,
    ];
    must(parts.iter().all(|holds| *holds), || format!("parts above their wholes: {usage:?}"))?;
    // The choices of a stream are summed.
    let bounded = usage.input <= USED_MAX && usage.output <= USED_MAX.saturating_mul(128);
    must(bounded, || format!("more than is believed: {usage:?}"))
}

/// What was plainly reported is not lost.
fn floor(surface: Surface, text: &str, value: &Value, usage: Option<Usage>) -> Result<(), String> {
    let names = match surface {
        Surface::Responses | Surface::Messages => ["input_tokens", "output_tokens"],
        _ => ["prompt_tokens", "completion_tokens"],
    };
    let once = |name: &str| text.matches(&format!("\"{name}\"")).count() == 1;
    if !once("usage") || !names.iter().all(|name| once(name)) || text.contains("\\u") {
        return Ok(());
    }
    let amount = |name: &str| {
        let amount = value.get("usage")?.get(name)?.as_u64()?;
        (amount <= USAGE_FIELD_MAX).then_some(amount)
    };
    let (Some(input), Some(output)) = (amount(names[0]), amount(names[1])) else { return Ok(()) };
    let Some(usage) = usage else { return Err("a plain usage object was not read".to_owned()) };
    must(usage.input >= input && usage.output >= output, || format!("{usage:?} for {input} and {output}"))
}

/// The same object at the end of a stream means the same.
fn in_a_stream(surface: Surface, value: &Value) -> Result<(), String> {
    let (Surface::Chat, Some(object)) = (surface, value.get("usage").filter(|usage| usage.is_object()))
    else {
        return Ok(());
    };
    let stream = format!("data: {{\"choices\":[],\"usage\":{object}}}\n\ndata: [DONE]\n\n");
    let mut relay = StreamRelay::new(surface, false);
    relay.push(Bytes::from(stream), &mut Vec::new());
    relay.end(&mut Vec::new());
    let whole = read_usage(surface, format!("{{\"usage\":{object}}}").as_bytes()).usage;
    let amounts =
        |usage: Option<Usage>| usage.map(|u| (u.input, u.output, u.cached, u.cache_write, u.reasoning));
    same("usage in a stream", &amounts(relay.meter().usage), &amounts(whole))
}
