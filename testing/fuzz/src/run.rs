//! The loop: replay what is kept, then mutate for so many runs or so long.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::corpus::Corpus;
use crate::mutate::Mutator;
use crate::targets::Target;

/// Most inputs that are kept in memory.
const POOL_MAX: usize = 4_000;
/// Tries to make a finding smaller.
const SHRINKS: usize = 400;

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    Runs(u64),
    Time(Duration),
}

#[derive(Debug, Clone)]
pub struct Finding {
    pub input: Vec<u8>,
    /// File name of the corpus, or seed and run.
    pub from: String,
    pub why: String,
}

#[derive(Debug, Clone, Copy)]
pub struct Summary {
    pub runs: u64,
    /// Different signatures met, those of the corpus included.
    pub kinds: usize,
    /// Of those, how many the mutants added.
    pub learned: usize,
}

/// Checks every kept input.
pub fn replay(target: &Target, corpus: &Corpus) -> Result<BTreeSet<u64>, Finding> {
    let mut kinds = BTreeSet::new();
    for (name, input) in &corpus.inputs {
        let kind =
            check(target, input).map_err(|why| Finding { input: input.clone(), from: name.clone(), why })?;
        kinds.insert(kind);
    }
    Ok(kinds)
}

/// Replays, then mutates until the bound or a finding.
pub fn fuzz(target: &Target, corpus: &Corpus, seed: u64, bound: Bound) -> Result<Summary, Finding> {
    let mut kinds = replay(target, corpus)?;
    let mut pool: Vec<Vec<u8>> = corpus.inputs.values().cloned().collect();
    let mut mutator = Mutator::new(seed, target.dictionary);
    let mut summary = Summary { runs: 0, kinds: kinds.len(), learned: 0 };
    let started = Instant::now();
    loop {
        let done = match bound {
            Bound::Runs(runs) => summary.runs >= runs,
            Bound::Time(time) => started.elapsed() >= time,
        };
        if done {
            summary.kinds = kinds.len();
            return Ok(summary);
        }
        summary.runs = summary.runs.saturating_add(1);
        let place = mutator.random.below(pool.len());
        let other = mutator.random.below(pool.len());
        let input = mutator.mutate(at(&pool, place), at(&pool, other));
        let Ok(kind) = check(target, &input) else {
            let input = shrink(target, input, &mut mutator);
            let why = check(target, &input).err().unwrap_or_default();
            return Err(Finding { input, from: format!("seed {seed}, run {}", summary.runs), why });
        };
        if kinds.insert(kind) {
            summary.learned = summary.learned.saturating_add(1);
            match pool.get_mut(place) {
                Some(old) if summary.learned > POOL_MAX => *old = input,
                _ => pool.push(input),
            }
        }
    }
}

fn at(pool: &[Vec<u8>], place: usize) -> &[u8] {
    pool.get(place).map(Vec::as_slice).unwrap_or_default()
}

/// A panic is a finding like any other.
fn check(target: &Target, input: &[u8]) -> Result<u64, String> {
    catch_unwind(AssertUnwindSafe(|| (target.check)(input))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("no message")))
    })
}

/// Leaves pieces out as long as the input stays a finding.
fn shrink(target: &Target, mut input: Vec<u8>, mutator: &mut Mutator<'_>) -> Vec<u8> {
    let mut size = input.len() / 2;
    for _ in 0..SHRINKS {
        if size == 0 || input.is_empty() {
            break;
        }
        let from = mutator.random.below(input.len());
        let to = from.saturating_add(size).min(input.len());
        let mut smaller = input.clone();
        smaller.drain(from..to);
        if check(target, &smaller).is_err() {
            input = smaller;
            size = size.min(input.len() / 2).max(1);
        } else if mutator.random.below(8) == 0 {
            size /= 2;
        }
    }
    input
}
