//! Entry bodies as bytes: a compact JSON twin of [`EntryBody`] with short keys, absent meaning default.
//!
//! Invariants: what is encoded decodes to the same body within the bounds; an encoded body has at most [`BODY_MAX`]
//! bytes, a context at most `CONTEXT_MAX`. A field is never reused for another meaning; unknown fields of this version
//! are skipped, another version is an error.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tollbook_ledger::units::CONTEXT_MAX;

use crate::{
    Ending, EntryBody, Figures, Flags, Hold, LADDER_MAX, NAME_MAX, Name, Overrun, REQUEST_ID_MAX, Side, Usage,
};

/// Longest encoded body, in bytes.
pub const BODY_MAX: usize = 2048;

const VERSION: u8 = 1;

/// A body that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    #[error("the entry's body is longer than {BODY_MAX} bytes")]
    TooLong,
    #[error("the entry's body has version {0}, known is {VERSION}")]
    Version(u8),
    #[error("the entry's body is damaged at byte {0}")]
    Damaged(usize),
}

impl EntryBody {
    /// The bytes to hand to settle, release, rebook or adjust.
    pub fn encode(&self) -> Vec<u8> {
        let mut twin = Twin::of(self);
        let bytes = twin.bytes(768);
        if bytes.len() <= BODY_MAX {
            return bytes;
        }
        // Only names full of characters that JSON escapes get here.
        twin.ladder.clear();
        twin.shorten(BODY_MAX)
    }

    /// The shorter bytes a reservation carries for its expiry: who, what and the hold, but no outcome.
    pub fn context(&self) -> Vec<u8> {
        Twin::context_of(self).shorten(CONTEXT_MAX)
    }

    /// Reads what `encode` or `context` wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        if bytes.len() > BODY_MAX {
            return Err(CodecError::TooLong);
        }
        if bytes.first() != Some(&b'{') {
            return Err(CodecError::Damaged(0));
        }
        let twin: Twin<'_> =
            serde_json::from_slice(bytes).map_err(|e| CodecError::Damaged(e.column().saturating_sub(1)))?;
        if twin.version == VERSION { Ok(twin.body()) } else { Err(CodecError::Version(twin.version)) }
    }
}

/// The stored form.
#[derive(Clone, Serialize, Deserialize)]
struct Twin<'a> {
    #[serde(rename = "v")]
    version: u8,
    #[serde(rename = "s", default, skip_serializing_if = "is_default")]
    side: u8,
    #[serde(rename = "r", borrow, default, skip_serializing_if = "str::is_empty")]
    request_id: Cow<'a, str>,
    #[serde(rename = "t", borrow, default, skip_serializing_if = "str::is_empty")]
    tenant: Cow<'a, str>,
    #[serde(rename = "p", borrow, default, skip_serializing_if = "str::is_empty")]
    project: Cow<'a, str>,
    #[serde(rename = "k", borrow, default, skip_serializing_if = "str::is_empty")]
    key: Cow<'a, str>,
    #[serde(rename = "b", borrow, default, skip_serializing_if = "str::is_empty")]
    service: Cow<'a, str>,
    #[serde(rename = "u", borrow, default, skip_serializing_if = "str::is_empty")]
    user: Cow<'a, str>,
    /// The three model names are equal in most calls; one is written then.
    #[serde(rename = "ma", borrow, default, skip_serializing_if = "Option::is_none")]
    model_asked: Option<Cow<'a, str>>,
    #[serde(rename = "mp", borrow, default, skip_serializing_if = "Option::is_none")]
    model_priced: Option<Cow<'a, str>>,
    #[serde(rename = "m", borrow, default, skip_serializing_if = "str::is_empty")]
    model_used: Cow<'a, str>,
    #[serde(rename = "o", borrow, default, skip_serializing_if = "str::is_empty")]
    pool: Cow<'a, str>,
    #[serde(rename = "ui", default, skip_serializing_if = "is_default")]
    input: i64,
    #[serde(rename = "uc", default, skip_serializing_if = "is_default")]
    cached: i64,
    #[serde(rename = "uw", default, skip_serializing_if = "is_default")]
    cache_write: i64,
    #[serde(rename = "uh", default, skip_serializing_if = "is_default")]
    cache_write_1h: i64,
    #[serde(rename = "uo", default, skip_serializing_if = "is_default")]
    output: i64,
    #[serde(rename = "ur", default, skip_serializing_if = "is_default")]
    reasoning: i64,
    #[serde(rename = "ai", default, skip_serializing_if = "is_default")]
    audio_input: i64,
    #[serde(rename = "ao", default, skip_serializing_if = "is_default")]
    audio_output: i64,
    #[serde(rename = "im", default, skip_serializing_if = "is_default")]
    image_input: i64,
    #[serde(rename = "ws", default, skip_serializing_if = "is_default")]
    web_searches: i64,
    #[serde(rename = "c", default, skip_serializing_if = "is_default")]
    cost_nano: i64,
    #[serde(rename = "pv", default, skip_serializing_if = "is_default")]
    price_version: u64,
    #[serde(rename = "hi", default, skip_serializing_if = "is_default")]
    hold_input: u64,
    #[serde(rename = "he", default, skip_serializing_if = "is_default")]
    hold_expected: u64,
    #[serde(rename = "hw", default, skip_serializing_if = "is_default")]
    hold_worst: u64,
    #[serde(rename = "hc", default, skip_serializing_if = "is_default")]
    hold_expected_cost: u64,
    #[serde(rename = "hd", default, skip_serializing_if = "is_default")]
    hold_worst_cost: u64,
    #[serde(rename = "hx", default, skip_serializing_if = "is_default")]
    charged_on_expiry: bool,
    #[serde(rename = "f", default, skip_serializing_if = "is_default")]
    figures: u8,
    #[serde(rename = "e", default, skip_serializing_if = "is_default")]
    ending: u8,
    #[serde(rename = "x", default, skip_serializing_if = "is_default")]
    overrun_llm_tokens: u64,
    #[serde(rename = "xc", default, skip_serializing_if = "is_default")]
    overrun_cost: u64,
    #[serde(rename = "l", borrow, default, skip_serializing_if = "Vec::is_empty")]
    ladder: Vec<Cow<'a, str>>,
    #[serde(rename = "d", default, skip_serializing_if = "is_default")]
    latency_ms: u32,
    #[serde(rename = "df", default, skip_serializing_if = "Option::is_none")]
    ttft_ms: Option<u32>,
    #[serde(rename = "n", default, skip_serializing_if = "is_default")]
    attempts: u16,
    #[serde(rename = "g", default, skip_serializing_if = "is_default")]
    flags: u8,
}

impl<'a> Twin<'a> {
    fn of(body: &'a EntryBody) -> Self {
        let mut shortened = body.flags.shortened || body.ladder.len() > LADDER_MAX;
        let mut clip = |text: &'a Name, max: usize| {
            let cut = text.get(..text.floor_char_boundary(max)).unwrap_or_default();
            shortened |= cut.len() < text.len();
            Cow::Borrowed(cut)
        };
        let request_id = clip(&body.request_id, REQUEST_ID_MAX);
        let mut name = |text| clip(text, NAME_MAX);
        let model_used = name(&body.model_used);
        let model_asked = Some(name(&body.model_asked)).filter(|m| *m != model_used);
        let model_priced = Some(name(&body.model_priced)).filter(|m| *m != model_used);
        let (usage, hold) = (&body.usage, &body.hold);
        Self {
            version: VERSION,
            side: body.side.code(),
            request_id,
            tenant: name(&body.tenant),
            project: name(&body.project),
            key: name(&body.key),
            service: name(&body.service),
            user: name(&body.user),
            model_asked,
            model_priced,
            model_used,
            pool: name(&body.pool),
            input: usage.input,
            cached: usage.cached,
            cache_write: usage.cache_write,
            cache_write_1h: usage.cache_write_1h,
            output: usage.output,
            reasoning: usage.reasoning,
            audio_input: usage.audio_input,
            audio_output: usage.audio_output,
            image_input: usage.image_input,
            web_searches: usage.web_searches,
            cost_nano: body.cost_nano,
            price_version: body.price_version,
            hold_input: hold.input_llm_tokens,
            hold_expected: hold.expected_llm_tokens,
            hold_worst: hold.worst_llm_tokens,
            hold_expected_cost: hold.expected_cost_nano,
            hold_worst_cost: hold.worst_cost_nano,
            charged_on_expiry: hold.charged_on_expiry,
            figures: body.figures.code(),
            ending: body.ending.code(),
            overrun_llm_tokens: body.overrun.llm_tokens,
            overrun_cost: body.overrun.cost_nano,
            ladder: body.ladder.iter().take(LADDER_MAX).map(&mut name).collect(),
            latency_ms: body.latency_ms,
            ttft_ms: body.ttft_ms,
            attempts: body.attempts,
            flags: Flags { shortened, ..body.flags }.bits(),
        }
    }

    fn context_of(body: &'a EntryBody) -> Self {
        let empty = Usage::default();
        let mut twin = Self::of(body);
        twin.ladder.clear();
        Self {
            input: empty.input,
            cached: 0,
            cache_write: 0,
            cache_write_1h: 0,
            output: 0,
            reasoning: 0,
            audio_input: 0,
            audio_output: 0,
            image_input: 0,
            web_searches: 0,
            cost_nano: 0,
            figures: 0,
            ending: 0,
            overrun_llm_tokens: 0,
            overrun_cost: 0,
            latency_ms: 0,
            ttft_ms: None,
            ..twin
        }
    }

    /// Leaves out the least needed names, one by one, until the bytes fit. What identifies the charge goes last.
    fn shorten(mut self, max: usize) -> Vec<u8> {
        let steps: [fn(&mut Self); 10] = [
            |t| t.model_asked = None,
            |t| t.model_priced = None,
            |t| t.user = Cow::default(),
            |t| t.project = Cow::default(),
            |t| t.service = Cow::default(),
            |t| t.request_id = Cow::default(),
            |t| t.pool = Cow::default(),
            |t| t.model_used = Cow::default(),
            |t| t.key = Cow::default(),
            |t| t.tenant = Cow::default(),
        ];
        let mut bytes = self.bytes(max);
        for step in steps {
            if bytes.len() <= max {
                break;
            }
            step(&mut self);
            self.flags |= Flags { shortened: true, ..Flags::default() }.bits();
            bytes = self.bytes(max);
        }
        bytes
    }

    fn bytes(&self, capacity: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(capacity);
        // Writing plain fields to memory cannot fail; were it to, the entry would be one of no call rather than a panic.
        if serde_json::to_writer(&mut bytes, self).is_err() {
            bytes.clear();
        }
        bytes
    }

    fn body(self) -> EntryBody {
        let name = |text: Cow<'_, str>| Name::from(text);
        let model_used = name(self.model_used);
        EntryBody {
            side: Side::of(self.side),
            request_id: name(self.request_id),
            tenant: name(self.tenant),
            project: name(self.project),
            key: name(self.key),
            service: name(self.service),
            user: name(self.user),
            model_asked: self.model_asked.map_or_else(|| Name::clone(&model_used), name),
            model_priced: self.model_priced.map_or_else(|| Name::clone(&model_used), name),
            model_used,
            pool: name(self.pool),
            usage: Usage {
                input: self.input,
                cached: self.cached,
                cache_write: self.cache_write,
                cache_write_1h: self.cache_write_1h,
                output: self.output,
                reasoning: self.reasoning,
                audio_input: self.audio_input,
                audio_output: self.audio_output,
                image_input: self.image_input,
                web_searches: self.web_searches,
            },
            cost_nano: self.cost_nano,
            price_version: self.price_version,
            hold: Hold {
                input_llm_tokens: self.hold_input,
                expected_llm_tokens: self.hold_expected,
                worst_llm_tokens: self.hold_worst,
                expected_cost_nano: self.hold_expected_cost,
                worst_cost_nano: self.hold_worst_cost,
                charged_on_expiry: self.charged_on_expiry,
            },
            figures: Figures::of(self.figures),
            ending: Ending::of(self.ending),
            overrun: Overrun { llm_tokens: self.overrun_llm_tokens, cost_nano: self.overrun_cost },
            ladder: self.ladder.into_iter().take(LADDER_MAX).map(name).collect(),
            latency_ms: self.latency_ms,
            ttft_ms: self.ttft_ms,
            attempts: self.attempts,
            flags: Flags::of(self.flags),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
