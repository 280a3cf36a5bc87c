//! What is wrong with a configuration file: where, what, and what to do about it.

use std::fmt;

/// A place in the file; lines and columns count from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

/// One mistake. `path` names the object (`tenants[0].limits[2].ceiling`), empty for the whole file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    pub place: Place,
    pub path: String,
    pub what: String,
    /// What to do; empty where `what` says it already.
    pub help: String,
}

/// Every mistake found, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The file's name as it was given.
    pub file: String,
    pub problems: Vec<Problem>,
    /// More were found than are listed.
    pub more: bool,
}

/// A file that cannot even be read as text.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{file}: cannot read the configuration: {source}")]
    Read { file: String, source: std::io::Error },
    #[error("{0}")]
    Invalid(Report),
}

/// Most mistakes listed at once.
pub const PROBLEMS_MAX: usize = 50;

impl Report {
    /// Sorts, removes repeats and cuts to [`PROBLEMS_MAX`].
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        let more = problems.len() > PROBLEMS_MAX;
        problems.truncate(PROBLEMS_MAX);
        Self { file: file.to_owned(), problems, more }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{}:{}: ", self.file, problem.place.line, problem.place.column)?;
            if !problem.path.is_empty() {
                write!(f, "{}: ", problem.path)?;
            }
            write!(f, "{}", problem.what)?;
            if !problem.help.is_empty() {
                write!(f, "; {}", problem.help)?;
            }
        }
        if self.more {
            write!(f, "\n{}: more mistakes follow", self.file)?;
        }
        Ok(())
    }
}
