//! How the families of models turn text into llm_tokens, without their vocabularies.
//!
//! Rates are thousandths of an llm_token per character of a class, tuned to err upwards. A family that is not known
//! counts like the worst of the known ones. Byte-level vocabularies never make more llm_tokens than bytes, so no
//! estimate does.

use crate::count::Kinds;
use crate::framing::Framing;
use crate::media::{ImageRule, PatchRule};
use tollbook_wire::Classes;

/// A vocabulary family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// gpt-4o and later.
    O200k,
    /// gpt-4, gpt-3.5, embeddings.
    Cl100k,
    Qwen,
    DeepSeek,
    /// Claude before 4.7.
    Claude,
    /// Claude 4.7 and later, whose vocabulary makes about 30 % more.
    ClaudeNew,
    Unknown,
}

/// Thousandths of an llm_token per character.
struct PerChar {
    ascii: u64,
    signs: u64,
    spaces: u64,
    digits: u64,
    dense: u64,
    latin: u64,
    vietnamese: u64,
    cyrillic: u64,
    greek: u64,
    hebrew: u64,
    arabic: u64,
    indic: u64,
    thai: u64,
    han: u64,
    kana: u64,
    hangul: u64,
    punctuation: u64,
    other: u64,
    /// Of the whole, in thousandths.
    multiplier: u64,
}

const O200K: PerChar = PerChar {
    ascii: 232,
    signs: 570,
    spaces: 115,
    digits: 400,
    dense: 750,
    latin: 950,
    vietnamese: 2_000,
    cyrillic: 300,
    greek: 430,
    hebrew: 470,
    arabic: 380,
    indic: 400,
    // prose is nearer 420; odd strings make one per character, and half of that is the least we say (B107)
    thai: 550,
    han: 950,
    kana: 850,
    hangul: 800,
    punctuation: 900,
    other: 1_800,
    multiplier: 1_000,
};

const CL100K: PerChar = PerChar {
    ascii: 256,
    signs: 630,
    spaces: 127,
    digits: 400,
    dense: 750,
    latin: 1_600,
    vietnamese: 2_200,
    cyrillic: 550,
    greek: 1_100,
    hebrew: 1_250,
    arabic: 880,
    indic: 1_450,
    thai: 1_100,
    han: 1_500,
    kana: 1_150,
    hangul: 1_350,
    punctuation: 1_000,
    other: 2_800,
    multiplier: 1_000,
};

const QWEN: PerChar = PerChar {
    ascii: 256,
    signs: 630,
    spaces: 127,
    digits: 1_000,
    dense: 1_000,
    latin: 1_200,
    vietnamese: 2_000,
    cyrillic: 370,
    greek: 1_000,
    hebrew: 480,
    arabic: 660,
    indic: 1_300,
    thai: 620,
    han: 750,
    kana: 720,
    hangul: 900,
    punctuation: 900,
    other: 1_600,
    multiplier: 1_000,
};

const DEEPSEEK: PerChar = PerChar {
    ascii: 256,
    signs: 630,
    spaces: 127,
    digits: 400,
    dense: 750,
    latin: 1_600,
    vietnamese: 2_000,
    cyrillic: 320,
    greek: 550,
    hebrew: 580,
    arabic: 460,
    indic: 660,
    thai: 420,
    han: 720,
    kana: 720,
    hangul: 950,
    punctuation: 900,
    other: 1_800,
    multiplier: 1_000,
};

const CLAUDE: PerChar = PerChar { multiplier: 1_150, ..CL100K };
const CLAUDE_NEW: PerChar = PerChar { multiplier: 1_500, ..CL100K };
const UNKNOWN: PerChar = PerChar { digits: 1_000, ..CL100K };

impl Family {
    /// llm_tokens of a text by its classes, rounded up; never more than its bytes, but a family's multiplier may.
    pub fn text(self, classes: &Classes) -> u64 {
        self.kinds(classes).total()
    }

    /// The same by kind of text. Rounding falls on the last kind there is.
    pub(crate) fn kinds(self, classes: &Classes) -> Kinds {
        let per = self.per_char();
        let sum = |rates: &[(u64, u64)]| {
            let products = rates.iter().map(|(chars, rate)| u128::from(*chars) * u128::from(*rate));
            products.fold(0u128, u128::saturating_add)
        };
        let ascii = sum(&[
            (classes.ascii, per.ascii),
            (classes.spaces, per.spaces),
            (classes.digits, per.digits),
            (classes.dense, per.dense),
        ]);
        let signs = sum(&[(classes.signs, per.signs)]);
        let cjk = sum(&[
            (classes.han, per.han),
            (classes.kana, per.kana),
            (classes.hangul, per.hangul),
            (classes.punctuation, per.punctuation),
        ]);
        let other = sum(&[
            (classes.latin, per.latin),
            (classes.vietnamese, per.vietnamese),
            (classes.cyrillic, per.cyrillic),
            (classes.greek, per.greek),
            (classes.hebrew, per.hebrew),
            (classes.arabic, per.arabic),
            (classes.indic, per.indic),
            (classes.thai, per.thai),
            (classes.other, per.other),
        ]);
        let whole = [ascii, signs, cjk, other].into_iter().fold(0, u128::saturating_add);
        let plain = whole.div_ceil(1_000).min(u128::from(classes.bytes));
        let total = (plain * u128::from(per.multiplier)).div_ceil(1_000);
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        let share = |part: u128| times_over(total, part, whole);
        let mut kinds = Kinds {
            ascii: share(ascii),
            signs: share(signs),
            cjk: share(cjk),
            other: share(other),
            ..Kinds::default()
        };
        let rest = total.saturating_sub(kinds.total());
        let last = [
            (&mut kinds.other, other),
            (&mut kinds.cjk, cjk),
            (&mut kinds.ascii, ascii),
            (&mut kinds.signs, signs),
        ];
        if let Some((kind, _)) = last.into_iter().find(|(_, part)| *part > 0) {
            *kind = kind.saturating_add(rest);
        }
        kinds
    }

    fn per_char(self) -> &'static PerChar {
        match self {
            Self::O200k => &O200K,
            Self::Cl100k => &CL100K,
            Self::Qwen => &QWEN,
            Self::DeepSeek => &DEEPSEEK,
            Self::Claude => &CLAUDE,
            Self::ClaudeNew => &CLAUDE_NEW,
            Self::Unknown => &UNKNOWN,
        }
    }

    pub fn framing(self) -> Framing {
        let (per_request, per_message, tools, tools_forced, per_tool) = match self {
            // three, and the word of the role
            Self::O200k | Self::Cl100k => (3, 4, 12, 12, 10),
            Self::Qwen => (23, 5, 12, 12, 10),
            Self::DeepSeek => (24, 2, 12, 12, 10),
            Self::Claude => (8, 4, 497, 589, 10),
            Self::ClaudeNew => (8, 4, 675, 804, 10),
            Self::Unknown => (24, 5, 12, 12, 10),
        };
        Framing { per_request, per_message, per_name: 1, tools, tools_forced, per_tool }
    }

    /// The image formula, where a model says no other.
    pub fn images(self) -> ImageRule {
        match self {
            Self::O200k | Self::Cl100k => ImageRule::Tile { base: 85, per_tile: 170 },
            Self::Qwen => ImageRule::Qwen { patch: 32, most_patches: 2_560 },
            Self::DeepSeek => ImageRule::Flat(1_024),
            Self::Claude => ImageRule::Claude { edge: 1_568, most: 1_568 },
            Self::ClaudeNew => ImageRule::Claude { edge: 2_576, most: 4_784 },
            Self::Unknown => ImageRule::Flat(crate::media::IMAGE_DEFAULT),
        }
    }
}

/// `total` × `part` ÷ `whole`, rounded down, for parts that are at most the whole.
fn times_over(total: u64, part: u128, whole: u128) -> u64 {
    // sums of the largest counts leave no room for a product: a few of the lowest bits do not matter then
    let spare = whole.leading_zeros();
    let shift = 64u32.saturating_sub(spare);
    let share = (u128::from(total) * (part >> shift)).checked_div(whole >> shift).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX).min(total)
}

/// The family and image formula that a model's name suggests; configuration overrides both.
pub fn guess(model: &str) -> (Family, ImageRule) {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let family = family_of(&name);
    (family, image_rule_of(&name, family))
}

fn family_of(name: &str) -> Family {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if starts(&[
        "gpt-4o",
        "gpt-4.1",
        "gpt-4.5",
        "gpt-5",
        "gpt-6",
        "gpt-oss",
        "o1",
        "o3",
        "o4",
        "chatgpt-4o",
        "codex",
    ]) {
        Family::O200k
    } else if starts(&["gpt-4", "gpt-3.5", "text-embedding"]) {
        Family::Cl100k
    } else if starts(&["qwen", "qwq", "qvq"]) {
        Family::Qwen
    } else if starts(&["deepseek"]) {
        Family::DeepSeek
    } else if name.contains("claude") {
        if claude_is_old(name) { Family::Claude } else { Family::ClaudeNew }
    } else {
        Family::Unknown
    }
}

/// Versions up to 4.6; everything unread counts as newer, which errs upwards.
fn claude_is_old(name: &str) -> bool {
    const OLD: [&str; 16] = [
        "claude-2",
        "claude-3",
        "claude-instant",
        "opus-3",
        "sonnet-3",
        "haiku-3",
        "-4-0",
        "-4-1",
        "-4-5",
        "-4-6",
        "-4.0",
        "-4.1",
        "-4.5",
        "-4.6",
        "opus-4-2025",
        "sonnet-4-2025",
    ];
    OLD.iter().any(|old| name.contains(old)) || name.ends_with("opus-4") || name.ends_with("sonnet-4")
}

fn image_rule_of(name: &str, family: Family) -> ImageRule {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let wide = |auto_is_original, multiplier| {
        let original = Some((10_000, 6_000));
        ImageRule::Patch(PatchRule { high: (2_500, 2_048), original, auto_is_original, multiplier })
    };
    if starts(&["gpt-5.6", "gpt-6"]) {
        ImageRule::Patch(PatchRule {
            high: (2_500, 2_048),
            original: None,
            auto_is_original: true,
            multiplier: 1_200,
        })
    } else if starts(&["gpt-5.4-mini", "gpt-5-mini", "gpt-4.1-mini"]) {
        ImageRule::Patch(PatchRule::small(1_620))
    } else if starts(&["gpt-5.4-nano", "gpt-5-nano", "gpt-4.1-nano"]) {
        ImageRule::Patch(PatchRule::small(2_460))
    } else if starts(&["o4-mini"]) {
        ImageRule::Patch(PatchRule::small(1_720))
    } else if starts(&["gpt-5.2", "gpt-5.3-codex", "codex-mini"]) {
        ImageRule::Patch(PatchRule::small(1_000))
    } else if starts(&["gpt-5.5"]) {
        wide(true, 1_000)
    } else if starts(&["gpt-5.4"]) {
        wide(false, 1_000)
    } else if starts(&["gpt-5"]) {
        ImageRule::Tile { base: 70, per_tile: 140 }
    } else if starts(&["gpt-4o-mini"]) {
        ImageRule::Tile { base: 2_833, per_tile: 5_667 }
    } else if starts(&["o1", "o3"]) {
        ImageRule::Tile { base: 75, per_tile: 150 }
    } else if starts(&["gemini-1", "gemini-2"]) {
        ImageRule::Gemini2
    } else if starts(&["gemini"]) {
        ImageRule::Gemini3
    } else if starts(&["doubao"]) {
        ImageRule::Doubao
    } else {
        family.images()
    }
}
