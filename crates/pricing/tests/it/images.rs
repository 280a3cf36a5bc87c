//! Image formulas against the vendors' published examples.

use proptest::prelude::*;
use tollbook_pricing::{IMAGE_DEFAULT, ImageRule, ModelFacts, PatchRule};
use tollbook_wire::{Detail, Image};

fn image(width: u32, height: u32) -> Image {
    Image { width, height, known: true, ..Image::default() }
}

fn cost(rule: ImageRule, width: u32, height: u32) -> u64 {
    rule.llm_tokens(&image(width, height), None)
}

const SMALL: ImageRule = ImageRule::Patch(PatchRule::small(1_000));
const GPT_4O: ImageRule = ImageRule::Tile { base: 85, per_tile: 170 };
const CLAUDE_OLD: ImageRule = ImageRule::Claude { edge: 1_568, most: 1_568 };
const CLAUDE_NEW: ImageRule = ImageRule::Claude { edge: 2_576, most: 4_784 };
const QWEN: ImageRule = ImageRule::Qwen { patch: 32, most_patches: 2_560 };

#[test]
fn published_examples() {
    for (rule, width, height, llm_tokens) in [
        (SMALL, 1024, 1024, 1_024),
        (SMALL, 1800, 2400, 1_452),
        (SMALL, 2400, 1800, 1_452),
        (SMALL, 1, 1, 1),
        (GPT_4O, 1024, 1024, 765),
        (GPT_4O, 2048, 4096, 1_105),
        (GPT_4O, 512, 512, 255),
        (CLAUDE_OLD, 200, 200, 64),
        (CLAUDE_OLD, 1000, 1000, 1_296),
        (CLAUDE_OLD, 1920, 1080, 1_560),
        (CLAUDE_NEW, 1920, 1080, 2_691),
        (CLAUDE_OLD, 3840, 2160, 1_560),
        (CLAUDE_NEW, 3840, 2160, 4_784),
        (QWEN, 1024, 1024, 1_026),
        (QWEN, 3840, 2160, 2_481),
        (QWEN, 1, 1, 6),
        (ImageRule::Doubao, 1280, 720, 522),
        (ImageRule::Doubao, 10_000, 10_000, 5_120),
        (ImageRule::Gemini2, 384, 384, 258),
        (ImageRule::Gemini2, 1536, 768, 516),
        (ImageRule::Gemini3, 1, 1, 1_120),
        (ImageRule::Flat(1_600), 5, 5, 1_600),
    ] {
        assert_eq!(cost(rule, width, height), llm_tokens, "{rule:?} {width}x{height}");
    }
}

#[test]
fn detail_changes_what_the_family_says_it_changes() {
    let of = |rule: ImageRule, detail| rule.llm_tokens(&Image { detail, ..image(4000, 3000) }, None);
    let wide = |auto_is_original| {
        let original = Some((10_000, 6_000));
        ImageRule::Patch(PatchRule { high: (2_500, 2_048), original, auto_is_original, multiplier: 1_000 })
    };
    assert_eq!(of(GPT_4O, Detail::Low), 85);
    assert_eq!(of(SMALL, Detail::Low), 256);
    assert_eq!(of(ImageRule::Patch(PatchRule::small(1_620)), Detail::Low), 415);
    assert_eq!(of(ImageRule::Gemini3, Detail::Low), 280);
    assert_eq!(of(ImageRule::Doubao, Detail::Low), 1_213);
    // 125 × 94 = 11,750 patches as they are
    assert_eq!(of(wide(true), Detail::Auto), of(wide(false), Detail::Original));
    assert!(of(wide(true), Detail::Auto) > 9_000);
    assert!((2_400..=2_500).contains(&of(wide(false), Detail::Auto)));
    let unresized =
        PatchRule { high: (2_500, 2_048), original: None, auto_is_original: true, multiplier: 1_200 };
    assert_eq!(of(ImageRule::Patch(unresized), Detail::Auto), 11_750 * 12 / 10);
}

/// An image whose size is not in the body costs the family's most, or what is configured; never nothing.
#[test]
fn images_of_unknown_size_cost_the_most() {
    let remote = Image { remote: true, ..Image::default() };
    let of = |rule: ImageRule| rule.llm_tokens(&remote, None);
    assert_eq!(of(SMALL), 1_536);
    assert_eq!(of(GPT_4O), 85 + 8 * 170);
    assert_eq!(of(CLAUDE_NEW), 4_784);
    assert_eq!(of(QWEN), 2_562);
    assert_eq!(of(ImageRule::Gemini2), IMAGE_DEFAULT);
    assert_eq!(CLAUDE_NEW.llm_tokens(&remote, Some(900)), 900);
    assert_eq!(CLAUDE_NEW.llm_tokens(&image(200, 200), Some(900)), 64);
}

#[test]
fn names_suggest_formulas() {
    for (name, width, height, llm_tokens) in [
        ("gpt-4o-2024-11-20", 1024, 1024, 765),
        ("gpt-4o-mini", 512, 512, 2_833 + 5_667),
        ("openai/gpt-5", 512, 512, 210),
        ("gpt-5-mini", 1024, 1024, 1_659),
        ("o3", 512, 512, 225),
        ("claude-sonnet-4-5-20250929", 1920, 1080, 1_560),
        ("claude-opus-4-8", 1920, 1080, 2_691),
        ("qwen3-vl-plus", 1024, 1024, 1_026),
        ("gemini-2.5-flash", 384, 384, 258),
        ("doubao-seed-1.8", 1280, 720, 522),
        ("something-else", 1280, 720, IMAGE_DEFAULT),
    ] {
        assert_eq!(cost(ModelFacts::guessed(name).images, width, height), llm_tokens, "{name}");
    }
}

proptest! {
    /// Whatever the sides, a formula stays within its bounds and does not panic.
    #[test]
    fn formulas_stay_within_their_bounds(width in 1u32..=65_535, height in 1u32..=65_535) {
        for (rule, most) in [
            (SMALL, 1_536),
            (GPT_4O, 85 + 8 * 170),
            (CLAUDE_OLD, 1_568),
            (CLAUDE_NEW, 4_784),
            (QWEN, 2_562),
            (ImageRule::Doubao, 5_120),
        ] {
            let cost = cost(rule, width, height);
            prop_assert!((1..=most).contains(&cost), "{:?} {}", rule, cost);
        }
    }

    /// A picture on its side costs the same, and one twice as large never less than half its size.
    #[test]
    fn formulas_do_not_care_for_orientation(width in 1u32..=8_000, height in 1u32..=8_000) {
        for rule in [SMALL, GPT_4O, CLAUDE_NEW, QWEN, ImageRule::Doubao, ImageRule::Gemini2] {
            prop_assert_eq!(cost(rule, width, height), cost(rule, height, width), "{:?}", rule);
        }
    }
}
