//! Counts input and output without asking anyone.
//!
//! Everything the provider will count is in: text by class, chat template, tools, images by formula, other media by a
//! flat figure and their size. Encoded bytes never count as text (B101, B102).

use crate::facts::{MEDIA_BYTES_PER_LLM_TOKEN, ModelFacts, SEALED_BYTES_PER_LLM_TOKEN};
use crate::learned::Learned;
use tollbook_wire::{Classes, Content};

/// llm_tokens by what they were counted from; each kind but the last is corrected by a ratio of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds {
    /// ASCII but signs.
    pub ascii: u64,
    /// ASCII signs and line ends: code has many, prose few.
    pub signs: u64,
    pub cjk: u64,
    /// Text of any other script.
    pub other: u64,
    /// Chat template, tools, images and other media.
    pub around: u64,
    /// What no ratio corrects: llm_tokens sent as numbers, and the configured size of what is stored (B074, B109).
    pub known: u64,
}

impl Kinds {
    pub fn total(&self) -> u64 {
        let all = [self.ascii, self.signs, self.cjk, self.other, self.around, self.known];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// The input of a call, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InputCount {
    /// What the provider will probably count.
    pub llm_tokens: u64,
    /// Before correction; what [`Learned::learn`] wants to see.
    pub built_in: Kinds,
    /// The part of `llm_tokens` that is images.
    pub images: u64,
    /// Nothing in it is estimated.
    pub exact: bool,
}

/// By byte classes and learned ratios.
pub fn count_learned(content: &Content, facts: &ModelFacts, learned: &Learned) -> InputCount {
    let (built_in, images) = built_in(content, facts);
    let llm_tokens = learned.correct(&built_in);
    InputCount {
        llm_tokens,
        built_in,
        images: learned.correct_around(images).min(llm_tokens),
        exact: built_in.total() == built_in.known && !content.stored,
    }
}

/// With the text counted by a vocabulary. Exact if nothing else in the body had to be estimated.
pub fn count_exact(text: u64, content: &Content, facts: &ModelFacts) -> InputCount {
    let (built_in, images) = built_in(content, facts);
    let sized = content.images.iter().all(|image| image.known);
    InputCount {
        llm_tokens: text.saturating_add(built_in.around).saturating_add(built_in.known),
        built_in,
        images,
        exact: sized
            && facts.framing_known
            && content.tools == 0
            && content.other_media == 0
            && content.sealed_bytes == 0
            && !content.stored,
    }
}

/// The estimate before anything was learned, and the part of it that is images.
fn built_in(content: &Content, facts: &ModelFacts) -> (Kinds, u64) {
    let (around, images) = around_text(content, facts);
    let stored = if content.stored { facts.stored_input } else { 0 };
    let kinds = Kinds {
        around: around.saturating_add(images),
        known: content.ids.saturating_add(stored),
        ..facts.family.kinds(&content.text)
    };
    (kinds, images)
}

/// Output that was seen, by classes: what stands in for a usage that never came.
pub fn count_output(output: &Classes, facts: &ModelFacts) -> u64 {
    facts.family.text(output)
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
