//! Usage objects of both dialects, written and read.
//!
//! Invariants: writing and reading are inverse for amounts that the dialect can express; anything that is no count
//! (negative, fractional, text, missing) is read as no amount, never as zero.

use serde_json::{Value, json};

use crate::record::{Dialect, Usage};

pub(crate) fn openai(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output),
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning}
    })
}

/// As the responses surface calls it.
pub(crate) fn responses(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input.saturating_add(usage.output)
    })
}

pub(crate) fn embeddings(usage: &Usage) -> Value {
    json!({"prompt_tokens": usage.input, "total_tokens": usage.input})
}

/// The input side, as `message_start` has it, with the output so far.
pub(crate) fn anthropic(usage: &Usage) -> Value {
    let mut value = json!({
        "input_tokens": usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_write),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "service_tier": "standard"
    });
    add_thinking(&mut value, usage);
    value
}

/// As `message_delta` has it: the total of the output.
pub(crate) fn anthropic_delta(usage: &Usage) -> Value {
    let mut value = json!({"output_tokens": usage.output});
    add_thinking(&mut value, usage);
    value
}

fn add_thinking(value: &mut Value, usage: &Usage) {
    if let (Some(object), true) = (value.as_object_mut(), usage.reasoning > 0) {
        object.insert("output_tokens_details".into(), json!({"thinking_tokens": usage.reasoning}));
    }
}

/// The same value with the sign of every count turned.
pub(crate) fn negated(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            Value::Object(object.iter().map(|(name, value)| (name.clone(), negated(value))).collect())
        }
        Value::Number(number) => match number.as_i64() {
            Some(count) => Value::from(count.saturating_neg()),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

/// What a careful reader would take from these objects, in the order in which they were sent.
pub(crate) fn read(dialect: Dialect, sent: &[Value]) -> Option<Usage> {
    match dialect {
        Dialect::OpenAi => sent.iter().rev().find_map(read_openai),
        Dialect::Anthropic => read_anthropic(sent),
    }
}

fn read_openai(value: &Value) -> Option<Usage> {
    let of = |chat: &str, responses: &str, detail: &str| {
        let one = |side: &str| count(value, &format!("/{side}{detail}"));
        one(chat).or_else(|| one(responses))
    };
    let input = of("prompt_tokens", "input_tokens", "")?;
    // Embeddings tell a total that is their input.
    let output = of("completion_tokens", "output_tokens", "");
    let rest = || count(value, "/total_tokens")?.checked_sub(input);
    Some(Usage {
        input,
        output: output.or_else(rest)?,
        cached: of("prompt_tokens", "input_tokens", "_details/cached_tokens").unwrap_or(0),
        cache_write: of("prompt_tokens", "input_tokens", "_details/cache_write_tokens").unwrap_or(0),
        reasoning: of("completion_tokens", "output_tokens", "_details/reasoning_tokens").unwrap_or(0),
    })
}

/// Field by field the last one counts.
fn read_anthropic(sent: &[Value]) -> Option<Usage> {
    let last = |pointer: &str| sent.iter().rev().find_map(|value| count(value, pointer));
    let cached = last("/cache_read_input_tokens").unwrap_or(0);
    let cache_write = last("/cache_creation_input_tokens").unwrap_or(0);
    Some(Usage {
        input: last("/input_tokens")?.saturating_add(cached).saturating_add(cache_write),
        output: last("/output_tokens")?,
        cached,
        cache_write,
        reasoning: last("/output_tokens_details/thinking_tokens").unwrap_or(0),
    })
}

fn count(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer)?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage { input: 100, cached: 30, cache_write: 20, output: 9, reasoning: 4 };

    #[test]
    fn reading_undoes_writing() {
        assert_eq!(read(Dialect::OpenAi, &[openai(&USAGE)]), Some(USAGE));
        assert_eq!(read(Dialect::OpenAi, &[responses(&USAGE)]), Some(USAGE));
        let input = Usage { input: 100, ..Usage::default() };
        assert_eq!(read(Dialect::OpenAi, &[embeddings(&USAGE)]), Some(input));
        let start = anthropic(&Usage { output: 1, reasoning: 0, ..USAGE });
        assert_eq!(start["input_tokens"], 50);
        assert_eq!(read(Dialect::Anthropic, &[start, anthropic_delta(&USAGE)]), Some(USAGE));
    }

    #[test]
    fn negative_and_odd_are_no_counts() {
        for value in [negated(&openai(&USAGE)), json!(null), json!({"prompt_tokens": "12"}), json!([])] {
            assert_eq!(read(Dialect::OpenAi, std::slice::from_ref(&value)), None, "{value}");
        }
        assert_eq!(negated(&openai(&USAGE))["prompt_tokens"], -100);
    }
}
