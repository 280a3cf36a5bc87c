//! Chat template and tools, against what providers publish and what their templates do.

use tollbook_pricing::{
    Family, Framing, Learned, ModelFacts, Vocabulary, count_exact, count_learned, framing,
};
use tollbook_wire::{Surface, decode_request, visit_text};

use crate::world::used;

/// The text of a body by the vocabulary, and the body's count.
fn counted(body: &str, model: &str) -> (u64, u64) {
    let facts = ModelFacts::guessed(model);
    let vocabulary = Vocabulary::of(facts.family).unwrap();
    let request = decode_request(Surface::Chat, body.as_bytes()).unwrap();
    let mut text = 0;
    visit_text(Surface::Chat, body.as_bytes(), &mut |piece| text += vocabulary.count(piece)).unwrap();
    (text, count_exact(text, &request.content, &facts).llm_tokens)
}

fn chat(messages: &str) -> String {
    format!("{{\"model\":\"m\",\"messages\":[{messages}]}}")
}

/// `OpenAI`: three per message and the word of its role, one per name, three for the answer's beginning.
#[test]
fn the_frame_of_a_chat_is_as_published() {
    for model in ["gpt-4o", "gpt-4", "gpt-3.5-turbo"] {
        let one = r#"{"role":"user","content":"Name three rivers."}"#;
        let named = r#"{"role":"system","name":"guide","content":"You know every river."}"#;
        let (text, all) = counted(&chat(one), model);
        assert_eq!(all - text, 3 + 4, "{model}");
        let (text, all) = counted(&chat(&format!("{named},{one},{one}")), model);
        assert_eq!(all - text, 3 + 3 * 4 + 1, "{model}");
        let (text, all) = counted(&chat(""), model);
        assert_eq!((text, all), (0, 3), "{model}");
    }
}

/// Templates of open models, and prompts that providers put before every call.
#[test]
fn templates_and_hidden_prompts_are_as_published() {
    let of = |model: &str| {
        let Framing { per_request, per_message, .. } = ModelFacts::guessed(model).framing;
        (per_request, per_message)
    };
    assert_eq!(of("qwen2.5-7b-instruct"), (23, 5), "default system prompt and generation prompt");
    assert_eq!(of("meta-llama/Llama-3.1-8B-Instruct"), (5, 5));
    assert_eq!(of("deepseek-v4-flash"), (24, 2), "its hidden 23 and the first mark");
    assert_eq!(of("deepseek-v4-pro"), (77, 2));
    assert_eq!(of("kimi-k3").0, 64 + 5);
    assert_eq!(of("x-ai/grok-4.3").0, 185);
    let grok = ModelFacts::guessed("grok-4.3").framing;
    assert_eq!(grok.per_request + grok.tools, 214);
}

#[test]
fn tool_prompts_of_claude_are_as_published() {
    for (model, auto, any) in [
        ("claude-opus-4-8", 290, 410),
        ("claude-opus-4.7", 675, 804),
        ("claude-opus-4-6", 497, 589),
        ("claude-sonnet-4-6", 497, 589),
        ("claude-opus-4-5-20251101", 496, 588),
        ("claude-sonnet-4-5", 496, 588),
        ("anthropic/claude-sonnet-5", 354, 474),
        ("claude-sonnet-4-20250514", 313, 315),
        ("claude-opus-4-1-20250805", 313, 315),
        // not told: as the family's
        ("claude-3-5-sonnet", 497, 589),
        ("claude-fable-5", 675, 804),
    ] {
        let framing = ModelFacts::guessed(model).framing;
        assert_eq!((framing.tools, framing.tools_forced), (auto, any), "{model}");
    }
    // a model's name goes before the family that a configuration gives
    assert_eq!(framing("claude-opus-4-8", Family::ClaudeNew).tools, 290);
}

/// 21 tools with descriptions and schemas.
fn tools() -> String {
    let sentence = "Looks up one record of the store by its number and returns what is known of it, with the day of the \
        last change and who made it; use it when a customer names a number or asks about an order, an invoice or a \
        delivery, and never for questions about people, prices that are not out yet, or the state of the stock today.";
    let tool = |n: u32| {
        format!(
            r#"{{"type":"function","function":{{"name":"look_up_{n}","description":"{sentence}","parameters":{{"type":"object","properties":{{"number":{{"type":"string","description":"The number, as written on the paper"}},"kind":{{"type":"string","enum":["order","invoice","delivery"]}}}},"required":["number"]}}}}}}"#
        )
    };
    (0..21).map(tool).collect::<Vec<_>>().join(",")
}

/// What is published of tools is an estimate itself: their text, 9 to 12 once, 7 to 10 for each. We are within 30 %
/// of its upper end, counted or estimated, and never below 70 %.
#[test]
fn b104_tools_are_within_thirty_percent_of_the_reference() {
    let system = "Answer in the language of the customer, in at most three sentences, and say so when you do not know. ".repeat(5);
    let messages = format!(r#"{{"role":"system","content":"{system}"}},{{"role":"user","content":"hi"}}"#);
    let body = format!("{{\"model\":\"m\",\"messages\":[{messages}],\"tools\":[{}]}}", tools());
    let (text, exact) = counted(&body, "gpt-4o");
    // the wire reads the whole JSON of a tool as its text; the reference reads name, description and parameters
    let names = Vocabulary::O200k
        .count("{\"type\":\"function\",\"function\":{\"name\":\"\",\"description\":\"\",\"parameters\":}}");
    let reference = text - 21 * names + 3 + 2 * 4 + 12 + 21 * 10;
    let request = decode_request(Surface::Chat, body.as_bytes()).unwrap();
    assert_eq!(request.content.tools, 21);
    let estimate = count_learned(&request.content, &ModelFacts::guessed("gpt-4o"), &Learned::default());
    for (how, count) in [("exact", exact), ("estimate", estimate.llm_tokens)] {
        let percent = count * 100 / reference;
        assert!((70..=130).contains(&percent), "{how}: {count} of {reference}");
    }
    // and a tool's overhead, not known for certain, keeps the margin of an estimate
    let facts = ModelFacts::guessed("gpt-4o");
    assert!(!count_exact(text, &request.content, &facts).exact);
    // once the provider has told, it is near
    let mut learned = Learned::default();
    for _ in 0..20 {
        learned.learn(&estimate.built_in, &used(reference, 1));
    }
    let after = count_learned(&request.content, &facts, &learned).llm_tokens;
    assert!(after.abs_diff(reference) * 100 <= 8 * reference, "{after} of {reference}");
}
