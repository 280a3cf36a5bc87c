//! How many llm_tokens an image costs, by the formula of its provider's family; whole numbers only.
//!
//! Sizes come from the image's own header. An image of unknown size (remote, unreadable) costs what the family charges
//! at most, or a flat figure where there is no such bound; nothing is ever downloaded.

use tollbook_wire::{Detail, Image};

/// For families without a formula.
pub const IMAGE_DEFAULT: u64 = 1_600;
/// Whatever a formula says, an image costs at least this.
const IMAGE_MIN: u64 = 1;

/// The formula of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageRule {
    /// OpenAI's patches of 32 × 32.
    Patch(PatchRule),
    /// OpenAI's tiles of 512 × 512.
    Tile { base: u64, per_tile: u64 },
    /// Anthropic's patches of 28 × 28 within a longest edge and a most.
    Claude { edge: u64, most: u64 },
    /// Gemini 2 and earlier.
    Gemini2,
    /// Gemini 3 and later.
    Gemini3,
    /// Qwen-VL: patches of `patch` × `patch` within `most_patches`.
    Qwen { patch: u64, most_patches: u64 },
    /// Doubao 1.8 and later.
    Doubao,
    /// The same for every image.
    Flat(u64),
}

/// Patches, resized to a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PatchRule {
    /// Most patches and longest side of `high`.
    pub high: (u64, u64),
    /// Of `original`; absent: not resized.
    pub original: Option<(u64, u64)>,
    pub auto_is_original: bool,
    /// llm_tokens per patch, in thousandths.
    pub multiplier: u64,
}

impl PatchRule {
    /// The rule of the smaller models: 1,536 patches, whatever the detail.
    pub const fn small(multiplier: u64) -> Self {
        Self { high: (1_536, 2_048), original: Some((1_536, 2_048)), auto_is_original: false, multiplier }
    }
}

impl ImageRule {
    /// llm_tokens of an image. An unknown size costs `unknown`, or what the family charges at most.
    pub fn llm_tokens(&self, image: &Image, unknown: Option<u64>) -> u64 {
        let (w, h) = (u64::from(image.width), u64::from(image.height));
        let sized = image.known && w > 0 && h > 0;
        let amount = match self {
            Self::Flat(flat) => *flat,
            // these do not look at the size
            Self::Patch(rule) if image.detail == Detail::Low => (256 * rule.multiplier).div_ceil(1000),
            Self::Tile { base, .. } if image.detail == Detail::Low => *base,
            Self::Gemini3 => gemini3(image.detail),
            _ if !sized => unknown.unwrap_or_else(|| self.most()),
            Self::Patch(rule) => (patches(rule, image.detail, w, h) * rule.multiplier).div_ceil(1000),
            Self::Tile { base, per_tile } => base + per_tile * tiles(w, h),
            Self::Claude { edge, most } => claude(w, h, *edge, *most),
            Self::Gemini2 => gemini2(w, h),
            Self::Qwen { patch, most_patches } => qwen(w, h, *patch, *most_patches),
            Self::Doubao => {
                let cap = if image.detail == Detail::Low { 1_213 } else { 5_120 };
                (w * h / 1_764).min(cap)
            }
        };
        amount.max(IMAGE_MIN)
    }

    /// What an image of unknown size is taken for.
    fn most(&self) -> u64 {
        match self {
            Self::Patch(rule) => (rule.high.0 * rule.multiplier).div_ceil(1000),
            // 2048 × 768 is the largest after resizing: 4 × 2 tiles
            Self::Tile { base, per_tile } => base + per_tile * 8,
            Self::Claude { most, .. } => *most,
            Self::Qwen { most_patches, .. } => most_patches + 2,
            Self::Doubao => 5_120,
            Self::Gemini2 | Self::Gemini3 | Self::Flat(_) => IMAGE_DEFAULT,
        }
    }
}

/// OpenAI: fit into the longest side, then into the budget so that one side is a whole number of patches.
fn patches(rule: &PatchRule, detail: Detail, w: u64, h: u64) -> u64 {
    let original = match detail {
        Detail::Original => true,
        Detail::Auto => rule.auto_is_original,
        Detail::High | Detail::Low => false,
    };
    let bounds = if original { rule.original } else { Some(rule.high) };
    let Some((budget, side)) = bounds else { return w.div_ceil(32) * h.div_ceil(32) };
    let (w, h) = fit(w, h, side);
    let n = w.div_ceil(32) * h.div_ceil(32);
    if n <= budget {
        return n;
    }
    // with a = w·s/32 = √(budget·w/h) patches across and b down: the side that loses more by rounding down decides
    let across = (budget * w / h).isqrt().max(1);
    let down = (budget * h / w).isqrt().max(1);
    let n = if across * h <= down * w {
        across * (across * h).div_ceil(w)
    } else {
        down * (down * w).div_ceil(h)
    };
    n.min(budget)
}

/// OpenAI: fit into 2048 × 2048, then the shortest side to 768, only ever smaller; tiles of 512.
fn tiles(w: u64, h: u64) -> u64 {
    let (w, h) = fit(w, h, 2_048);
    let short = w.min(h);
    let (w, h) = if short > 768 { (scaled(w, 768, short), scaled(h, 768, short)) } else { (w, h) };
    w.div_ceil(512) * h.div_ceil(512)
}

/// Anthropic: the largest whole long edge at which both edges and the count fit.
fn claude(w: u64, h: u64, edge: u64, most: u64) -> u64 {
    let (long, short) = (w.max(h), w.min(h));
    let count = |candidate: u64| {
        let other = half_even(short * candidate, long).max(1);
        let fits = candidate.div_ceil(28) * 28 <= edge && other.div_ceil(28) * 28 <= edge;
        let n = candidate.div_ceil(28) * other.div_ceil(28);
        (fits && n <= most).then_some(n)
    };
    if let Some(n) = count(long) {
        return n;
    }
    let (mut fits, mut too_large) = (1, long);
    while too_large - fits > 1 {
        let middle = u64::midpoint(fits, too_large);
        if count(middle).is_some() { fits = middle } else { too_large = middle }
    }
    count(fits).unwrap_or(most)
}

fn gemini2(w: u64, h: u64) -> u64 {
    if w <= 384 && h <= 384 { 258 } else { 258 * w.div_ceil(768) * h.div_ceil(768) }
}

fn gemini3(detail: Detail) -> u64 {
    match detail {
        Detail::Low => 280,
        Detail::Auto | Detail::High => 1_120,
        Detail::Original => 2_240,
    }
}

/// Qwen-VL: sides rounded to patches, scaled down into the most, or up to four patches.
fn qwen(w: u64, h: u64, patch: u64, most: u64) -> u64 {
    let round = |side: u64| half_even(side, patch).max(1);
    let (across, down) = (round(w), round(h));
    if across * down > most {
        // ⌊√(most·p²·w/h) / p⌋ is ⌊√(most·w/h)⌋
        let across = (most * w / h).isqrt().max(1);
        let down = (most * h / w).isqrt().max(1);
        // a side of one patch leaves the other unbounded
        return across.saturating_mul(down).min(most) + 2;
    }
    if across * down < 4 {
        return root_up(4 * w, h) * root_up(4 * h, w) + 2;
    }
    across * down + 2
}

/// ⌈√(a / b)⌉ for a > 0.
fn root_up(a: u64, b: u64) -> u64 {
    a.div_ceil(b).saturating_sub(1).isqrt() + 1
}

/// Scales down so that the longest side is at most `side`.
fn fit(w: u64, h: u64, side: u64) -> (u64, u64) {
    let long = w.max(h);
    if long <= side { (w, h) } else { (scaled(w, side, long), scaled(h, side, long)) }
}

fn scaled(length: u64, to: u64, from: u64) -> u64 {
    (length * to + from / 2).checked_div(from).unwrap_or(0).max(1)
}

/// a / b rounded to the nearest whole number, halves to the even one.
fn half_even(a: u64, b: u64) -> u64 {
    let (whole, rest) = (a / b, a % b);
    match (2 * rest).cmp(&b) {
        core::cmp::Ordering::Less => whole,
        core::cmp::Ordering::Greater => whole + 1,
        core::cmp::Ordering::Equal => whole + whole % 2,
    }
}
