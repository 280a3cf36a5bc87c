//! Mutated inputs against oracles, on stable Rust: what a hostile client or a broken provider may send, and what a disk
//! may give back.
//!
//! A target takes bytes, and says what they were like (its *signature*) or what is wrong. The loop takes an input of the
//! corpus, mutates it, and keeps in memory every mutant with a signature that was not seen before: that is what stands in
//! for coverage. Invariants: the same seed, corpus and number of runs give the same inputs; a finding is written into the
//! corpus folder of its target, where the test run replays it for ever after.
//! A panic of what is tested is a finding. Whatever hangs is found by the test runner's time limit.

mod corpus;
mod mutate;
mod random;
mod run;
pub mod targets;

pub use corpus::{Corpus, folder};
pub use mutate::Mutator;
pub use random::Random;
pub use run::{Bound, Finding, Summary, fuzz, replay};
pub use targets::{ALL, Target};
