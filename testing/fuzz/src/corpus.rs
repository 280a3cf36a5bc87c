//! The kept inputs of a target: seeds that were written by hand, and findings of earlier runs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the inputs of a target lie.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Inputs by file name, so that their order is the same everywhere.
#[derive(Debug, Clone, Default)]
pub struct Corpus {
    pub inputs: BTreeMap<String, Vec<u8>>,
}

impl Corpus {
    /// Everything in the folder; what other rooms keep for their tests is added by its target.
    pub fn read(target: &str) -> io::Result<Self> {
        let mut inputs = BTreeMap::new();
        for file in fs::read_dir(folder(target))? {
            let file = file?;
            inputs.insert(file.file_name().to_string_lossy().into_owned(), fs::read(file.path())?);
        }
        Ok(Self { inputs })
    }

    /// Writes a finding; its name follows from its bytes, so that the same one is written once.
    pub fn write(target: &str, input: &[u8]) -> io::Result<PathBuf> {
        let path = folder(target).join(format!("found-{:08x}", crc32fast::hash(input)));
        fs::write(&path, input)?;
        Ok(path)
    }
}
