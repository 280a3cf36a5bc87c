//! When a text is counted exactly, by what, and what happens where it cannot be.

use std::sync::Arc;
use std::time::Duration;

use tollbook_admission::{
    CountMode, Counted, Counting, CountingBounds, Ending, Fallback, Outcome, Refused, Settings, TokenizerFile,
};
use tollbook_policy::Measure;
use tollbook_pricing::ModelFacts;
use tollbook_wire::Usage;

use crate::world::{Model, World, daily, pool_daily};

/// Words that the built-in ratio counts too high.
fn easy_text(words: usize) -> String {
    "information ".repeat(words)
}

fn mode(mode: CountMode) -> Model {
    Model { counting: Counting { mode, file: None }, ..Model::default() }
}

/// A tokenizer that makes one llm_token of each word it knows, and one of each that it does not.
pub(crate) fn words_file() -> Arc<TokenizerFile> {
    let json = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
        "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
        "model":{"type":"WordLevel","vocab":{"[UNK]":0,"information":1},"unk_token":"[UNK]"}}"#;
    Arc::new(TokenizerFile::new("words.json".to_owned(), json.as_bytes().to_vec()))
}

/// A model of a family without a vocabulary, with a tokenizer of its own.
fn by_file(mode: CountMode, file: &Arc<TokenizerFile>) -> Model {
    let facts = ModelFacts { framing_known: true, ..ModelFacts::guessed("mistral-large") };
    Model { facts, counting: Counting { mode, file: Some(Arc::clone(file)) } }
}

fn reported(input: u64) -> Outcome {
    let usage = Usage {
        input,
        output: 10,
        input_reported: true,
        output_reported: true,
        complete: true,
        ..Usage::default()
    };
    Outcome { usage: Some(usage), ..Outcome::bare(Ending::Complete) }
}

async fn held(world: &World) -> i64 {
    world.balance(0).await.1
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_a_hard_limit_is_asked_again_with_the_exact_count() {
    // By its classes the text is about 12,000 llm_tokens × 1.25; exactly it is 4,000 × 1.02.
    let world = World::start(vec![daily(Measure::InputTokens, 5_000)], Settings::default(), None).await;
    let admitted = world.admit_text(&easy_text(4_000)).await.unwrap();
    assert!((4_000..=5_000).contains(&held(&world).await), "{}", held(&world).await);
    admitted.ticket.end(&Outcome::never_sent());
    assert!(matches!(world.admit_text(&easy_text(6_000)).await, Err(Refused::Limit(_))));
    // A denial that is asked again is none.
    let told = world.metrics.encode();
    let denied = told.lines().filter(|line| line.starts_with("tollbook_admission_denied_total{"));
    assert_eq!(denied.map(|line| line.ends_with(" 1")).collect::<Vec<_>>(), [true], "{told}");
    assert_eq!(world.admission.denials().values().sum::<u64>(), 1);
}

/// A better count of the input helps no limit that does not count it.
#[tokio::test(start_paused = true)]
async fn a_denial_by_a_limit_without_input_is_not_asked_again() {
    let world = World::start(vec![daily(Measure::OutputTokens, 1_000)], Settings::default(), None).await;
    assert!(matches!(world.admit_text(&easy_text(4_000)).await, Err(Refused::Limit(_))));
    assert_eq!((world.counted("learned"), world.counted("exact")), (1, 0));
}

/// The pool's hard limits count as much as the tenant's: the whole call is asked again.
#[tokio::test(start_paused = true)]
async fn a_denial_by_a_pools_hard_limit_is_asked_again_too() {
    let limits = vec![daily(Measure::InputTokens, 1_000_000), pool_daily(Measure::InputTokens, 5_000)];
    let world = World::start(limits, Settings::default(), None).await;
    let admitted = world.admit_text(&easy_text(4_000)).await.unwrap();
    assert!((4_000..=5_000).contains(&held(&world).await), "the tenant's hold is of the exact count");
    admitted.ticket.end(&Outcome::never_sent());
    assert!(matches!(world.admit_text(&easy_text(6_000)).await, Err(Refused::Limit(limit)) if limit.pool));
}

#[tokio::test(start_paused = true)]
async fn near_a_hard_limit_the_text_is_counted_exactly_at_once() {
    let world = World::start(vec![daily(Measure::InputTokens, 26_000)], Settings::default(), None).await;
    let mut amounts = Vec::new();
    let mut open = Vec::new();
    for _ in 0..3 {
        let before = held(&world).await;
        open.push(world.admit_text(&easy_text(4_000)).await.unwrap());
        amounts.push(held(&world).await - before);
    }
    assert!(amounts[0] > 10_000, "far from the limit by the ratio: {amounts:?}");
    assert!(amounts[1] < 5_000 && amounts[2] < 5_000, "near it exactly: {amounts:?}");
    assert_eq!((world.counted("learned"), world.counted("exact")), (1, 2));
}

/// `exact` counts every call, `learned` none: not even one that a hard limit refuses.
#[tokio::test(start_paused = true)]
async fn the_mode_decides_whether_a_text_is_counted() {
    let limits = || vec![daily(Measure::InputTokens, 1_000_000)];
    let exact = World::with(limits(), Settings::default(), mode(CountMode::Exact)).await;
    let _open = exact.admit_text(&easy_text(4_000)).await.unwrap();
    assert!((4_000..=4_200).contains(&held(&exact).await), "× 1.02: {}", held(&exact).await);
    assert_eq!(exact.counted("exact"), 1);

    let learned = World::with(limits(), Settings::default(), mode(CountMode::Learned)).await;
    let _open = learned.admit_text(&easy_text(4_000)).await.unwrap();
    assert!(held(&learned).await > 10_000, "× 1.25: {}", held(&learned).await);
    let tight = vec![daily(Measure::InputTokens, 5_000)];
    let tight = World::with(tight, Settings::default(), mode(CountMode::Learned)).await;
    assert!(matches!(tight.admit_text(&easy_text(4_000)).await, Err(Refused::Limit(_))));
    assert_eq!((tight.counted("learned"), tight.counted("exact")), (1, 0));
}

/// The margin is that of the count that was used, and the journal's hold is of the same count.
#[tokio::test(start_paused = true)]
async fn the_margin_follows_the_count() {
    let limits = vec![daily(Measure::InputTokens, 1_000_000)];
    let world = World::with(limits, Settings::default(), mode(CountMode::Exact)).await;
    let _open = world.admit_text(&easy_text(100)).await.unwrap();
    // 100 words and a space, in a frame of seven
    let count = i64::try_from(tollbook_pricing::Vocabulary::O200k.count(&easy_text(100))).unwrap() + 7;
    assert_eq!(held(&world).await, (count * 1_020 + 999) / 1_000);
}

/// A call that ends with a usage teaches; the next one of the same key × model is estimated by it.
#[tokio::test(start_paused = true)]
async fn settled_usage_teaches_the_next_estimate() {
    let limits = vec![daily(Measure::InputTokens, 10_000_000)];
    let world = World::with(limits, Settings::default(), mode(CountMode::Learned)).await;
    let mut holds = Vec::new();
    for _ in 0..20 {
        let (posted, before) = world.balance(0).await;
        let admitted = world.admit_text(&easy_text(4_000)).await.unwrap();
        holds.push(held(&world).await - before);
        admitted.ticket.end(&reported(4_007));
        world.until("it is settled", async || world.balance(0).await.0 == posted + 4_007).await;
    }
    assert!(holds[0] > 10_000, "{holds:?}");
    let last = holds[19];
    assert!((4_007 * 125 / 100..4_007 * 125 / 100 * 108 / 100).contains(&last), "within 8 %: {holds:?}");
}

/// What was no complete answer, and what was not reported, teaches nothing.
#[tokio::test(start_paused = true)]
async fn cut_and_unreported_answers_teach_nothing() {
    let limits = vec![daily(Measure::InputTokens, 10_000_000)];
    let world = World::with(limits, Settings::default(), mode(CountMode::Learned)).await;
    let mut holds = Vec::new();
    let started = Outcome {
        usage: Some(Usage { input: 4_007, input_reported: true, ..Usage::default() }),
        output_seen: true,
        ..Outcome::bare(Ending::ClientGone)
    };
    for outcome in [started, Outcome::bare(Ending::Complete), Outcome::bare(Ending::Timeout), reported(0)] {
        let mut admitted = world.admit_text(&easy_text(4_000)).await.unwrap();
        holds.push(held(&world).await);
        admitted.ticket.sending();
        admitted.ticket.end(&outcome);
        world.until("nothing is held", async || held(&world).await == 0).await;
    }
    assert!(holds.iter().all(|hold| *hold == holds[0]), "{holds:?}");
}

/// A family without a built-in vocabulary is counted by its file: off the workers, as soon as that is loaded.
#[tokio::test(start_paused = true)]
async fn a_configured_file_counts_its_model() {
    let file = words_file();
    let limits = || vec![daily(Measure::InputTokens, 1_000_000)];
    let world = World::with(limits(), Settings::default(), by_file(CountMode::Exact, &file)).await;
    let open = world.admit_text(&easy_text(1_000)).await.unwrap();
    assert!(held(&world).await > 3_000, "estimated until it is loaded");
    assert_eq!(world.counted("loading"), 1);
    drop(open);
    file.load().unwrap();
    world.until("nothing is held", async || held(&world).await == 0).await;
    let _open = world.admit_text(&easy_text(1_000)).await.unwrap();
    let frame = ModelFacts::guessed("mistral-large").framing;
    let count = i64::try_from(1_000 + frame.per_request + frame.per_message).unwrap();
    assert_eq!(held(&world).await, (count * 1_020 + 999) / 1_000);
    assert_eq!(world.counted("exact"), 1);
}

/// A file that holds no tokenizer: its models are estimated, and that is told.
#[tokio::test(start_paused = true)]
async fn a_broken_file_leaves_its_model_estimated() {
    let file = Arc::new(TokenizerFile::new("broken.json".to_owned(), b"{\"model\":{}}".to_vec()));
    assert!(file.load().is_err());
    let limits = vec![daily(Measure::InputTokens, 1_000_000)];
    let world = World::with(limits, Settings::default(), by_file(CountMode::Exact, &file)).await;
    let _open = world.admit_text(&easy_text(1_000)).await.unwrap();
    assert_eq!((world.counted("loading"), world.counted("exact")), (1, 0));
}

/// Beyond the budget a call is estimated at once, says so, and passes; nobody waits.
#[tokio::test(start_paused = true)]
async fn beyond_the_budget_the_learned_count_stands_and_says_so() {
    let none = CountingBounds { jobs_max: 0, ..CountingBounds::default() };
    let small = CountingBounds { bytes_max: 20_000, ..CountingBounds::default() };
    for counting in [none, small] {
        let settings = Settings { counting, ..Settings::default() };
        let limits = vec![daily(Measure::InputTokens, 10_000_000)];
        let world = World::with(limits, settings, mode(CountMode::Exact)).await;
        let _open = world.admit_text(&easy_text(4_000)).await.unwrap();
        assert!(held(&world).await > 10_000);
        assert_eq!((world.counted("budget"), world.counted("exact")), (1, 0));
        let explained = world.explain(&easy_text(4_000)).await;
        assert_eq!(explained.counted, Some(Counted::Fallback(Fallback::Budget)));
        assert!(!explained.exact);
    }
}

/// A mebibyte is counted beside the calls: a small call that comes while it is counted is decided before it.
#[tokio::test]
async fn a_mebibyte_never_stalls_another_call() {
    let limits = vec![daily(Measure::InputTokens, 100_000_000)];
    let world = World::with(limits, Settings::default(), mode(CountMode::Exact)).await;
    // one worker: whatever counted on it would hold up everything
    tollbook_admission::warm(tollbook_pricing::Vocabulary::O200k);
    let text = easy_text((1 << 20) / 12);
    let order = std::sync::Mutex::new(Vec::new());
    let noted = |what: &'static str| order.lock().unwrap().push(what);
    let large = async {
        let admitted = world.admit_text(&text).await.unwrap();
        noted("large");
        admitted
    };
    let small = async {
        tokio::task::yield_now().await;
        let mut open = Vec::new();
        for _ in 0..5 {
            open.push(world.admit_text("hello").await.unwrap());
        }
        noted("small");
        open
    };
    let joined = tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(large, small) });
    let (_large, _small) = joined.await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["small", "large"]);
    assert_eq!(world.counted("exact"), 6);
}

/// What `explain` says is what the door does: by which count, and what it is corrected by.
#[tokio::test(start_paused = true)]
async fn explain_tells_the_count_and_the_ratio() {
    let limits = || vec![daily(Measure::InputTokens, 20_000)];
    let world = World::start(limits(), Settings::default(), None).await;
    let few = world.explain("hello there").await;
    assert_eq!((few.counted, few.ratio, few.learned.samples()), (Some(Counted::Learned), Some(1_000), 0));
    let near = world.explain(&easy_text(6_000)).await;
    assert_eq!((near.counted, near.exact), (Some(Counted::Exact), true));
    assert!((6_000..=6_010).contains(&near.input), "{}", near.input);
    assert!(near.refusing.is_empty());

    let admitted = world.admit_text(&easy_text(4_000)).await.unwrap();
    admitted.ticket.end(&reported(4_007));
    world.until("it is settled", async || world.balance(0).await.0 == 4_007).await;
    let taught = world.explain(&easy_text(100)).await;
    assert_eq!(taught.learned.samples(), 1);
    assert!(taught.ratio.unwrap() < 800, "{:?}", taught.ratio);
}
