//! How the parts of a call's usage weigh in an account that counts llm_tokens.
//!
//! Weights are thousandths of an llm_token of the account. The measure masks them: an account of input llm_tokens never
//! counts output. A part without a weight of its own counts by the part that contains it.

use tollbook_ledger::Measure;

/// One llm_token counted once.
pub const WHOLE: u32 = 1000;
/// Largest weight: 100 llm_tokens for one (the steepest burndown known is 15).
pub const WEIGHT_MAX: u32 = 100_000;

/// Weights of the parts, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Meter {
    /// Text input neither read from nor written to a cache.
    pub uncached_input: u32,
    pub cache_read: u32,
    pub cache_write: u32,
    /// Output that is neither reasoning nor audio.
    pub output: u32,
    pub reasoning: u32,
    /// Image input, uncached.
    pub image: u32,
    /// Audio input, uncached.
    pub audio_input: u32,
    pub audio_output: u32,
}

impl Meter {
    /// Every llm_token counts once.
    pub const PLAIN: Self = Self {
        uncached_input: WHOLE,
        cache_read: WHOLE,
        cache_write: WHOLE,
        output: WHOLE,
        reasoning: WHOLE,
        image: WHOLE,
        audio_input: WHOLE,
        audio_output: WHOLE,
    };

    /// The part of the meter a measure counts: input, output, or both.
    pub fn masked(self, measure: Measure) -> Self {
        let input = !matches!(measure, Measure::OutputTokens);
        let output = !matches!(measure, Measure::InputTokens);
        let keep = |on: bool, weight: u32| if on { weight } else { 0 };
        Self {
            uncached_input: keep(input, self.uncached_input),
            cache_read: keep(input, self.cache_read),
            cache_write: keep(input, self.cache_write),
            output: keep(output, self.output),
            reasoning: keep(output, self.reasoning),
            image: keep(input, self.image),
            audio_input: keep(input, self.audio_input),
            audio_output: keep(output, self.audio_output),
        }
    }

    /// Every llm_token counts once, but input read from a cache does not count (B112).
    pub const WITHOUT_CACHE_READ: Self = Self { cache_read: 0, ..Self::PLAIN };

    /// Weights of input, cache read, cache write and output; reasoning and audio as output, media as input.
    pub const fn of(uncached_input: u32, cache_read: u32, cache_write: u32, output: u32) -> Self {
        Self {
            uncached_input,
            cache_read,
            cache_write,
            output,
            reasoning: output,
            image: uncached_input,
            audio_input: uncached_input,
            audio_output: output,
        }
    }

    /// The weights with their names, in the order of the fields.
    pub fn parts(&self) -> [(&'static str, u32); 8] {
        [
            ("uncached_input", self.uncached_input),
            ("cache_read", self.cache_read),
            ("cache_write", self.cache_write),
            ("output", self.output),
            ("reasoning", self.reasoning),
            ("image", self.image),
            ("audio_input", self.audio_input),
            ("audio_output", self.audio_output),
        ]
    }
}

/// A meter used when a call is admitted, and one used when it is settled; the same unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MeterPair {
    pub reserve: Meter,
    pub settle: Meter,
}

impl MeterPair {
    pub const PLAIN: Self = Self::same(Meter::PLAIN);
    pub const WITHOUT_CACHE_READ: Self = Self::same(Meter::WITHOUT_CACHE_READ);

    pub fn masked(self, measure: Measure) -> Self {
        Self { reserve: self.reserve.masked(measure), settle: self.settle.masked(measure) }
    }

    pub const fn same(meter: Meter) -> Self {
        Self { reserve: meter, settle: meter }
    }

    /// The pair by which a provider counts its own limits.
    pub fn preset(name: &str) -> Option<Self> {
        let pair = match name {
            "plain" | "openai" | "azure" => Self::PLAIN,
            "without_cache_read" => Self::WITHOUT_CACHE_READ,
            "anthropic_input" => Self::same(Meter::of(WHOLE, 0, WHOLE, 0)),
            "anthropic_output" => Self::same(Meter::of(0, 0, 0, WHOLE)),
            "gemini_input" => Self::same(Meter::of(WHOLE, WHOLE, WHOLE, 0)),
            // input with cache counts at the door; at the end cache reads are given back and output burns down
            "bedrock" => bedrock(1),
            "bedrock_5x" => bedrock(5),
            "bedrock_10x" => bedrock(10),
            "bedrock_15x" => bedrock(15),
            _ => return None,
        };
        Some(pair)
    }

    /// The names [`Self::preset`] knows.
    pub const PRESETS: [&'static str; 11] = [
        "plain",
        "openai",
        "azure",
        "without_cache_read",
        "anthropic_input",
        "anthropic_output",
        "gemini_input",
        "bedrock",
        "bedrock_5x",
        "bedrock_10x",
        "bedrock_15x",
    ];
}

const fn bedrock(burndown: u32) -> MeterPair {
    MeterPair {
        reserve: Meter::of(WHOLE, WHOLE, WHOLE, WHOLE),
        settle: Meter::of(WHOLE, 0, WHOLE, WHOLE * burndown),
    }
}

/// Whether a measure counts llm_tokens, so that a meter applies.
pub fn counts_llm_tokens(measure: Measure) -> bool {
    matches!(measure, Measure::Tokens | Measure::InputTokens | Measure::OutputTokens)
}
