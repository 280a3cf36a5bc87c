//! Counts input and output without asking anyone.
//!
//! Everything the provider will count is in: text by class, chat template, tools, images by formula, other media by a
//! flat figure and their size. Encoded bytes never count as text (B101, B102).

use crate::facts::{MEDIA_BYTES_PER_LLM_TOKEN, ModelFacts, SEALED_BYTES_PER_LLM_TOKEN};
use crate::learned::Learned;
use tollbook_wire::{Classes, Content};

/// The input of a call, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InputCount {
    /// What the provider will probably count.
    pub llm_tokens: u64,
    /// Before correction; what [`Learned::learn`] wants to see.
    pub built_in: u64,
    /// The part of `llm_tokens` that is images.
    pub images: u64,
    /// Nothing in it is estimated.
    pub exact: bool,
}

/// By byte classes and a learned ratio.
pub fn count_learned(content: &Content, facts: &ModelFacts, learned: &Learned) -> InputCount {
    let text = facts.family.text(&content.text);
    let (around, images) = around_text(content, facts);
    let estimated = text.saturating_add(around).saturating_add(images);
    let known = known(content, facts);
    let llm_tokens = learned.correct(estimated).saturating_add(known);
    InputCount {
        llm_tokens,
        built_in: estimated.saturating_add(known),
        images: learned.correct(images).min(llm_tokens),
        exact: estimated == 0 && !content.stored,
    }
}

/// With the text counted by a vocabulary. Exact if nothing else in the body had to be estimated.
pub fn count_exact(text: u64, content: &Content, facts: &ModelFacts) -> InputCount {
    let built_in = count_learned(content, facts, &Learned::default()).built_in;
    let (around, images) = around_text(content, facts);
    let llm_tokens = text.saturating_add(around).saturating_add(images).saturating_add(known(content, facts));
    let sized = content.images.iter().all(|image| image.known);
    InputCount {
        llm_tokens,
        built_in,
        images,
        exact: sized
            && content.tools == 0
            && content.other_media == 0
            && content.sealed_bytes == 0
            && !content.stored,
    }
}

/// Output that was seen, by classes: what stands in for a usage that never came.
pub fn count_output(output: &Classes, facts: &ModelFacts) -> u64 {
    facts.family.text(output)
}

/// What no ratio corrects: llm_tokens sent as numbers, and the configured size of what is stored (B074, B109).
fn known(content: &Content, facts: &ModelFacts) -> u64 {
    content.ids.saturating_add(if content.stored { facts.stored_input } else { 0 })
}

/// Framing and other media; images.
fn around_text(content: &Content, facts: &ModelFacts) -> (u64, u64) {
    let framing = &facts.framing;
    let tools = match (content.tools, content.tool_choice_forced) {
        (0, _) => 0,
        (_, false) => framing.tools,
        (_, true) => framing.tools_forced,
    };
    let media = facts
        .media_unknown
        .saturating_mul(content.other_media)
        .saturating_add(content.other_media_bytes / MEDIA_BYTES_PER_LLM_TOKEN);
    let around = [
        if content.bare { 0 } else { framing.per_request },
        content.sealed_bytes / SEALED_BYTES_PER_LLM_TOKEN,
        framing.per_message.saturating_mul(content.messages),
        framing.per_name.saturating_mul(content.names),
        tools,
        framing.per_tool.saturating_mul(content.tools),
        media,
    ];
    let images = content.images.iter().map(|image| facts.images.llm_tokens(image, facts.image_unknown));
    (around.into_iter().fold(0, u64::saturating_add), images.fold(0, u64::saturating_add))
}
