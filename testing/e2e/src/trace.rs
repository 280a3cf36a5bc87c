//! Recorded traffic: when calls came and how much they used. No text is in it.
//!
//! Invariant: the same calls every time, from the recording or, where it is absent, from a fixed seed. A recording that is
//! there and cannot be read is a panic.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::random::Random;

const FOLDER: &str = "../shared/traces";
const GENERATED_SEED: u64 = 2023;

/// One recorded call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    pub arrival_ms: u64,
    pub input: u64,
    pub output: u64,
}

/// The first calls of a recording, and where they are from.
pub fn first(name: &str, count: usize) -> (Vec<Traced>, String) {
    let path = folder().join(name);
    let Ok(file) = File::open(&path) else {
        let told = format!("{FOLDER}/{name} is not there; generated with seed {GENERATED_SEED}");
        return (generated(count), told);
    };
    let mut text = String::new();
    if let Err(error) = GzDecoder::new(file).read_to_string(&mut text) {
        fail(&format!("{}: {error}", path.display()));
    }
    let calls: Option<Vec<Traced>> = text.lines().skip(1).take(count).map(line).collect();
    match calls {
        Some(calls) if calls.len() == count => (calls, name.to_owned()),
        _ => fail(&format!("{} has not {count} calls that can be read", path.display())),
    }
}

/// Beside the repository's own folder.
fn folder() -> PathBuf {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    repo.join(FOLDER)
}

/// `arrival_s,input_tokens,output_tokens`.
fn line(text: &str) -> Option<Traced> {
    let mut fields = text.split(',');
    let (seconds, fraction) = fields.next()?.split_once('.')?;
    let milliseconds: u64 = fraction.get(..3)?.parse().ok()?;
    Some(Traced {
        arrival_ms: seconds.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(milliseconds)?,
        input: fields.next()?.parse().ok()?,
        output: fields.next()?.parse().ok()?,
    })
}

/// Quantiles of the recorded conversation service: what a call read and wrote, and the pause after it.
const INPUTS: [u64; 9] = [2, 203, 401, 700, 1032, 1155, 1996, 4079, 7930];
const OUTPUTS: [u64; 9] = [12, 57, 95, 150, 239, 330, 407, 460, 1000];
const PAUSES_MS: [u64; 9] = [0, 20, 57, 95, 140, 205, 284, 494, 1014];

fn generated(count: usize) -> Vec<Traced> {
    let mut random = Random::new(GENERATED_SEED);
    let mut arrival_ms = 0;
    let calls = (0..count).map(|_| {
        let call = Traced {
            arrival_ms,
            input: between(&mut random, &INPUTS),
            output: between(&mut random, &OUTPUTS),
        };
        arrival_ms = arrival_ms.saturating_add(between(&mut random, &PAUSES_MS));
        call
    });
    calls.collect()
}

/// A number from between two neighbours.
fn between(random: &mut Random, quantiles: &[u64]) -> u64 {
    let pairs: Vec<(u64, u64)> =
        quantiles.iter().zip(quantiles.iter().skip(1)).map(|(low, high)| (*low, *high)).collect();
    let (low, high) = random.pick(&pairs).copied().unwrap_or_default();
    low.saturating_add(random.below(high.saturating_sub(low).saturating_add(1)))
}

#[allow(clippy::panic, reason = "test code: a panic is a failed test")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_or_not() {
        let call = Traced { arrival_ms: 12_345, input: 3, output: 4 };
        assert_eq!(line("12.3456,3,4"), Some(call));
        for bad in ["", "12,3,4", "12.3,3,4", "12.3456,3", "12.3456,-3,4", "x.3456,3,4"] {
            assert_eq!(line(bad), None, "{bad}");
        }
    }

    #[test]
    fn generated_calls_are_the_same_every_time_and_in_order() {
        let calls = generated(500);
        assert_eq!(calls, generated(500));
        assert!(calls.is_sorted_by_key(|call| call.arrival_ms));
        assert!(calls.iter().all(|call| call.input >= 2 && call.output >= 12));
        let mean = calls.iter().map(|call| call.input).sum::<u64>() / 500;
        assert!((700..2500).contains(&mean), "{mean}");
    }
}
