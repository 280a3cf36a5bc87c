//! What is fuzzed, and by which oracle it is judged.

mod config;
mod log;
mod request;
mod sse;
mod usage;

use std::io;
use std::path::Path;

use tollbook_wire::Surface;

use crate::corpus::Corpus;

/// The signature of an input, or what is wrong.
pub type Check = fn(&[u8]) -> Result<u64, String>;

#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub check: Check,
    /// Pieces that mean something to it.
    pub dictionary: &'static [&'static str],
    pub corpus: fn() -> io::Result<Corpus>,
    /// Mutants in every test run; a few seconds of an unoptimised build.
    pub runs: u64,
}

pub const ALL: [Target; 5] = [sse::TARGET, request::TARGET, usage::TARGET, config::TARGET, log::TARGET];

/// Equal, or a finding that shows both.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, wanted: &T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what}:\n  {got:?}\nnot\n  {wanted:?}")) }
}

fn must(holds: bool, what: impl Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// A number from words that describe an input. Amounts go in by their size, else every input would be of its own kind.
fn signature(words: &str) -> u64 {
    u64::from(crc32fast::hash(words.as_bytes()))
}

/// A message without what it quotes from the input.
fn gist(message: &str) -> String {
    let outside = message.split('`').step_by(2).flat_map(str::chars);
    outside.filter(|c| c.is_ascii_alphabetic() || *c == ' ').take(60).collect()
}

/// How many bits an amount has.
fn size(amount: u64) -> u32 {
    u64::BITS.saturating_sub(amount.leading_zeros())
}

/// The first bytes of an input steer the target; the rest is what it reads.
fn steered<const N: usize>(input: &[u8]) -> ([u8; N], &[u8]) {
    match input.split_first_chunk::<N>() {
        Some((steer, rest)) => (*steer, rest),
        None => ([0; N], input),
    }
}

/// The corpus of a target with what `wire` has recorded of answers in it, each behind the bytes that steer.
fn with_recordings(target: &str, ending: &str, steer: impl Fn(&str) -> Vec<u8>) -> io::Result<Corpus> {
    let mut corpus = Corpus::read(target)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/wire/testdata");
    let transcripts = folder.join("transcripts");
    let surfaces = ["chat", "responses", "completions", "messages"].map(|surface| transcripts.join(surface));
    for folder in std::iter::once(folder).chain(surfaces) {
        let surface = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for file in std::fs::read_dir(folder)? {
            let path = file?.path();
            let name = format!("{surface}-{}", path.file_name().unwrap_or_default().to_string_lossy());
            if name.ends_with(ending) {
                let mut input = steer(&name);
                input.extend(std::fs::read(&path)?);
                corpus.inputs.insert(name, input);
            }
        }
    }
    Ok(corpus)
}

/// The bits of the steering byte that choose a surface.
const SURFACE_BITS: u8 = 0b11;

/// Which surface an input is for.
fn surface(steer: u8) -> Surface {
    match steer & SURFACE_BITS {
        0 => Surface::Chat,
        1 => Surface::Messages,
        2 => Surface::Responses,
        _ => Surface::Completions,
    }
}

/// The bits for a recording, by its name.
fn surface_of(name: &str) -> u8 {
    match name.split('-').next() {
        _ if name.contains("anthropic") => 1,
        Some("messages") => 1,
        Some("responses") => 2,
        Some("completions") => 3,
        _ => 0,
    }
}
