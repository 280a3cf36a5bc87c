//! Files that commands write: whole or not at all, compressed if their name ends in `.gz`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Console, Failure};

pub(super) fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Writes a text to a file, or to the standard output if there is none or it is `-`.
pub(super) fn put(text: &str, to: Option<&Path>, console: &mut Console<'_>) -> Result<(), Failure> {
    let Some(path) = to.filter(|path| *path != Path::new("-")) else {
        return Ok(console.out.write_all(text.as_bytes())?);
    };
    let written = Whole::new(path).and_then(|mut file| {
        file.out.write_all(text.as_bytes())?;
        file.keep()
    });
    Ok(written.with_context(|| cannot_write(path))?)
}

/// A file under another name until it is whole. What is no regular file, as a pipe, is written in place.
pub(super) struct Whole {
    pub(super) out: Sink,
    /// Where it is, and where it belongs.
    beside: Option<(PathBuf, PathBuf)>,
}

pub(super) enum Sink {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
}

impl Whole {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let in_place = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let beside = (!in_place).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".new");
            (PathBuf::from(name), path.to_owned())
        });
        let file = match &beside {
            Some((beside, _)) => File::create(beside)?,
            None => File::options().write(true).open(path)?,
        };
        let file = BufWriter::new(file);
        let is_gzip = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
        let out = if is_gzip {
            Sink::Gzip(GzEncoder::new(file, Compression::default()))
        } else {
            Sink::Plain(file)
        };
        Ok(Self { out, beside })
    }

    pub(super) fn keep(mut self) -> io::Result<()> {
        match &mut self.out {
            Sink::Plain(file) => file.flush()?,
            Sink::Gzip(file) => {
                file.try_finish()?;
                file.get_mut().flush()?;
            }
        }
        if let Some((beside, path)) = &self.beside {
            std::fs::rename(beside, path)?;
        }
        self.beside = None;
        Ok(())
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.beside {
            let _ = std::fs::remove_file(beside);
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(file) => file.flush(),
        }
    }
}
