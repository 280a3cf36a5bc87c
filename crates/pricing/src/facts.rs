//! What is configured or guessed about a model: how it counts, and how much it may put out.

use crate::family::{Family, guess};
use crate::framing::{Framing, framing};
use crate::media::ImageRule;

/// Output reserved when neither client nor configuration says anything, in llm_tokens (B111).
pub const OUTPUT_DEFAULT: u64 = 4_096;
/// Expected output before anything was learned.
pub const FIRST_OUTPUT: u64 = 512;
/// Flat part of sound, video and files of unknown length.
pub const MEDIA_DEFAULT: u64 = 2_000;
/// Encoded bytes of such media that make one more llm_token.
pub const MEDIA_BYTES_PER_LLM_TOKEN: u64 = 64;
/// Encrypted bytes of earlier reasoning that make one llm_token: four characters, encrypted and in base64.
pub const SEALED_BYTES_PER_LLM_TOKEN: u64 = 5;
/// Input that a call only names, because it lies with the provider: an earlier response, a conversation.
pub const STORED_INPUT: u64 = 8_192;
/// Searches the worst case allows for when the client offers a hosted web search.
pub const WEB_SEARCHES_WORST: u64 = 10;
/// Most searches of one call that are believed; a client may allow more, and is charged what was made.
pub const WEB_SEARCHES_MAX: u64 = 1_000;
/// Largest cap, context or default that is believed.
pub const FACT_MAX: u64 = 10_000_000;

/// How one model counts, and its caps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelFacts {
    pub family: Family,
    pub framing: Framing,
    /// The framing is the provider's own, not a guess.
    pub framing_known: bool,
    pub images: ImageRule,
    /// Of an image whose size is not in the body; absent: the family's most.
    pub image_unknown: Option<u64>,
    /// The flat part of any other medium.
    pub media_unknown: u64,
    /// Input and output together, as the provider limits them.
    pub context: Option<u64>,
    /// The provider's own output limit per choice.
    pub output_max: Option<u64>,
    /// Our limit per choice; written into the request where the client asks for more.
    pub output_cap: Option<u64>,
    /// Reserved per choice when the client sends no cap.
    pub output_default: u64,
    /// Expected output before anything was learned.
    pub first_output: u64,
    /// The provider writes its cache although the body does not ask for it.
    pub caches_unasked: bool,
    /// Hosted web searches, or calls of another hosted tool, that a call is taken to make where its client says no number.
    pub web_searches_worst: u64,
    /// What a call is taken to read of a conversation that lies with the provider.
    pub stored_input: u64,
}

impl ModelFacts {
    /// What a model's name suggests.
    pub fn guessed(model: &str) -> Self {
        let (family, images) = guess(model);
        Self { images, framing: framing(model, family), ..Self::of(family) }
    }

    /// The defaults of a family.
    pub fn of(family: Family) -> Self {
        Self {
            family,
            framing: family.framing(),
            framing_known: matches!(family, Family::O200k | Family::Cl100k),
            images: family.images(),
            image_unknown: None,
            media_unknown: MEDIA_DEFAULT,
            context: None,
            output_max: None,
            output_cap: None,
            output_default: OUTPUT_DEFAULT,
            first_output: FIRST_OUTPUT,
            caches_unasked: !matches!(family, Family::Claude | Family::ClaudeNew),
            web_searches_worst: WEB_SEARCHES_WORST,
            stored_input: STORED_INPUT,
        }
    }

    /// Names of fields whose values are not believed: 0 where something must pass, or above [`FACT_MAX`].
    pub fn problems(&self) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        let mut positive = |field: &'static str, value: Option<u64>| {
            if value.is_some_and(|value| value == 0 || value > FACT_MAX) {
                wrong.push(field);
            }
        };
        positive("context", self.context);
        positive("output_max", self.output_max);
        positive("output_cap", self.output_cap);
        positive("output_default", Some(self.output_default));
        positive("first_output", Some(self.first_output));
        positive("image_unknown", self.image_unknown);
        positive("media_unknown", Some(self.media_unknown));
        positive("stored_input", Some(self.stored_input));
        for (field, value) in [
            ("per_request", self.framing.per_request),
            ("per_message", self.framing.per_message),
            ("per_name", self.framing.per_name),
        ] {
            if value > FACT_MAX {
                wrong.push(field);
            }
        }
        wrong
    }
}
