//! Every target, shortly: its kept inputs, then the same mutants in each run. `TOLLBOOK_FUZZ_SEED` gives other ones.
#![allow(clippy::panic, clippy::unwrap_used, reason = "test code: a panic is a failed test")]

use tollbook_fuzz::{ALL, Bound, Corpus, Target, fuzz};

const SEED: u64 = 1;

fn short(name: &str) {
    let target = ALL.iter().find(|target| target.name == name).unwrap();
    let seed = std::env::var("TOLLBOOK_FUZZ_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let corpus = (target.corpus)().unwrap();
    assert!(!corpus.inputs.is_empty(), "no corpus");
    match fuzz(target, &corpus, seed, Bound::Runs(target.runs)) {
        Ok(summary) => assert!(summary.learned > 0, "the mutants are all of one kind: {summary:?}"),
        Err(finding) => {
            let path = Corpus::write(name, &finding.input).unwrap();
            panic!("{name}, {}: {}\nkept as {}", finding.from, finding.why, path.display());
        }
    }
}

#[test]
fn sse() {
    short("sse");
}

#[test]
fn request() {
    short("request");
}

#[test]
fn usage() {
    short("usage");
}

#[test]
fn config() {
    short("config");
}

#[test]
fn log() {
    short("log");
}

/// A loop that finds nothing must be one that could.
#[test]
fn a_planted_fault_is_found_made_small_and_named() {
    let planted = Target {
        name: "planted",
        check: |input| {
            if input.windows(3).any(|three| three == b"[]{") {
                return Err("planted".to_owned());
            }
            Ok(u64::from(input.windows(2).any(|two| two == b"[]")))
        },
        dictionary: &["[", "]", "{"],
        corpus: || Ok(Corpus::default()),
        runs: 0,
    };
    let corpus = Corpus { inputs: [("seed".to_owned(), b"some text that is no fault".to_vec())].into() };
    let finding = fuzz(&planted, &corpus, 1, Bound::Runs(200_000)).unwrap_err();
    assert_eq!(finding.why, "planted");
    assert!(finding.input.len() < 12, "{:?}", finding.input);
    let panics = Target { check: |_| panic!("planted"), ..planted };
    let finding = fuzz(&panics, &corpus, 1, Bound::Runs(1)).unwrap_err();
    assert_eq!((finding.why.as_str(), finding.from.as_str()), ("panic: planted", "seed"));
}
