//! How far estimates are from what a provider counts, on texts of many kinds.
//!
//! The provider's count is that of its own vocabulary, chat template and all. Texts are cut into calls of one to eight
//! paragraphs, in an order of their own each; the same seed, the same calls.

use tollbook_pricing::{Family, Learned, ModelFacts, Vocabulary, count_exact, count_learned};
use tollbook_wire::{Content, Surface, decode_request, visit_text};

use crate::world::used;

const ENGLISH: &str = include_str!("texts/english.txt");
const CHINESE: &str = include_str!("texts/chinese.txt");
const CODE: &str = include_str!("texts/code.txt");
const MIXED: &str = include_str!("texts/mixed.txt");

/// Calls before anything is judged, and calls judged.
const LEARNING: usize = 20;
const JUDGED: usize = 120;

/// The next number of a small generator, below `most`.
fn draw(seed: &mut u64, most: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap() % most
}

/// The body of a call: some paragraphs over one to three messages.
fn body(text: &str, seed: &mut u64) -> String {
    let paragraphs: Vec<&str> = text.split("\n\n").filter(|p| !p.trim().is_empty()).collect();
    let quote = |text: &str| {
        let escaped =
            text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
        format!("\"{escaped}\"")
    };
    let message = |seed: &mut u64| {
        let chosen: Vec<&str> =
            (0..=draw(seed, 8)).map(|_| paragraphs[draw(seed, paragraphs.len())]).collect();
        format!("{{\"role\":\"user\",\"content\":{}}}", quote(&chosen.join("\n\n")))
    };
    let messages: Vec<String> = (0..=draw(seed, 3)).map(|_| message(seed)).collect();
    format!("{{\"model\":\"gpt-4o\",\"messages\":[{}]}}", messages.join(","))
}

/// What the call holds, and what the provider counts.
fn told(body: &str, vocabulary: Vocabulary, facts: &ModelFacts) -> (Content, u64) {
    let request = decode_request(Surface::Chat, body.as_bytes()).unwrap();
    let mut text = 0;
    visit_text(Surface::Chat, body.as_bytes(), &mut |piece| text += vocabulary.count(piece)).unwrap();
    let truth = count_exact(text, &request.content, facts);
    (request.content, truth.llm_tokens)
}

/// The calls of a key that takes from each text in turn, with what the provider counts of each.
fn calls(texts: &[&str]) -> Vec<(Content, u64)> {
    let provider = ModelFacts::of(Family::O200k);
    let mut seed = 7;
    let bodies = (0..LEARNING + JUDGED).map(|call| body(texts[call % texts.len()], &mut seed));
    bodies.map(|body| told(&body, Vocabulary::O200k, &provider)).collect()
}

/// The error that nine of ten calls stay within, in tenths of a percent, after the first calls have taught.
fn p90(calls: &[(Content, u64)], family: Family) -> u64 {
    let facts = ModelFacts::of(family);
    let (mut learned, mut errors) = (Learned::default(), Vec::new());
    for (call, (content, truth)) in calls.iter().enumerate() {
        let count = count_learned(content, &facts, &learned);
        if call >= LEARNING {
            errors.push(count.llm_tokens.abs_diff(*truth) * 1_000 / truth);
        }
        learned.learn(&count.built_in, &used(*truth, 1));
    }
    errors.sort_unstable();
    errors[errors.len() * 9 / 10]
}

/// One kind of text per key, and one key that writes all kinds in turn.
const STREAMS: [(&str, &[&str]); 7] = [
    ("english", &[ENGLISH]),
    ("chinese", &[CHINESE]),
    ("code", &[CODE]),
    ("mixed", &[MIXED]),
    ("all in turn", &[ENGLISH, CHINESE, CODE, MIXED]),
    ("english and chinese", &[ENGLISH, CHINESE]),
    ("english and code", &[ENGLISH, CODE]),
];

/// After twenty calls nine of ten estimates are within 8 % of the provider's count.
#[test]
fn learned_is_within_eight_percent_after_twenty_calls() {
    for (name, texts) in STREAMS {
        let tenths = p90(&calls(texts), Family::O200k);
        println!("{name}: {}.{} %", tenths / 10, tenths % 10);
        assert!(tenths <= 80, "{name}: {tenths}");
    }
}

/// The same for a model of which nothing is known, and for one whose table is of another vocabulary.
#[test]
fn a_wrong_table_is_learned_away() {
    for (name, texts) in STREAMS {
        let calls = calls(texts);
        for family in [Family::Unknown, Family::ClaudeNew] {
            let tenths = p90(&calls, family);
            println!("{name} as {family:?}: {}.{} %", tenths / 10, tenths % 10);
            assert!(tenths <= 150, "{name} as {family:?}: {tenths}");
        }
    }
}
