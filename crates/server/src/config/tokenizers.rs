//! The tokenizers' files that models name: read, looked at, and shared by all that hold the same bytes.
//!
//! A start looks only whether a file could be one, and the tokenizer is made in the background; `tollbook check` and a
//! reload make it at once, so that a file that cannot be used is never put in force.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tollbook_admission::TokenizerFile;
use tollbook_pricing::{TOKENIZER_BYTES_MAX, TokenizerError};

use super::mistakes::Mistakes;

/// How thoroughly files are looked at.
#[derive(Clone, Copy, Debug)]
pub enum Look<'a> {
    /// Whether they are JSON with a model in it.
    Light,
    /// The tokenizers are made; those already made of the same bytes are taken.
    Whole(&'a [Arc<TokenizerFile>]),
}

/// The files read so far.
#[derive(Debug)]
pub(super) struct Tokenizers<'a> {
    folder: &'a Path,
    look: Look<'a>,
    read: BTreeMap<PathBuf, Result<Arc<TokenizerFile>, String>>,
}

impl<'a> Tokenizers<'a> {
    pub(super) fn new(folder: &'a Path, look: Look<'a>) -> Self {
        Self { folder, look, read: BTreeMap::new() }
    }

    /// The tokenizer of a model; a file is read once, however many models name it, and told wrong at each of them.
    pub(super) fn take(
        &mut self,
        mistakes: &mut Mistakes,
        path: &str,
        file: &Path,
    ) -> Option<Arc<TokenizerFile>> {
        let file = self.folder.join(file);
        let look = self.look;
        let taken = self.read.entry(file).or_insert_with_key(|file| read(file, look));
        taken.as_ref().map_err(|what| mistakes.add(path, what)).ok().cloned()
    }
}

fn read(file: &Path, look: Look<'_>) -> Result<Arc<TokenizerFile>, String> {
    let name = file.display();
    let bytes = bytes_of(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    if bytes.len() > TOKENIZER_BYTES_MAX {
        return Err(format!("{name} {}", TokenizerError::TooLarge));
    }
    let new = TokenizerFile::new(name.to_string(), bytes);
    match look {
        Look::Light => new.with_bytes(shape).map(|()| Arc::new(new)).map_err(|what| format!("{name} {what}")),
        Look::Whole(known) => {
            let same = known.iter().find(|known| known.digest() == new.digest()).cloned();
            let file = same.unwrap_or_else(|| Arc::new(new));
            file.load().map_err(|error| format!("{name} {error}"))?;
            Ok(file)
        }
    }
}

fn bytes_of(file: &Path) -> std::io::Result<Vec<u8>> {
    // Opening a pipe would wait for whoever writes to it.
    if !std::fs::metadata(file)?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(TOKENIZER_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(file)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether bytes could be a tokenizer: a tenth of the time that making it takes.
fn shape(bytes: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Shape {
        #[serde(rename = "model")]
        _model: IgnoredAny,
    }
    let read: Result<Shape, _> = serde_json::from_slice(bytes);
    read.map(drop).map_err(|error| TokenizerError::Unreadable(error.to_string()).to_string())
}
