//! Why a log could not be opened.

use std::io;
use std::path::PathBuf;

/// The engine did not start; nothing was changed that a later start could miss.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Two processes over one log would each keep half the truth.
    #[error("{path} is in use by another process", path = path.display())]
    InUse { path: PathBuf },
    /// Data that had reached the disk is not what was written. Nothing is skipped: restore the file from a copy, or
    /// start with an empty directory and accept that its reservations and balances are gone.
    #[error("{path} is damaged at byte {offset}: {what}", path = path.display())]
    Damaged { path: PathBuf, offset: u64, what: String },
    #[error("{path} has layout {found}, this version reads {known}", path = path.display())]
    Layout { path: PathBuf, found: u16, known: u16 },
    #[error("{what} must be {bounds}")]
    Option { what: &'static str, bounds: &'static str },
}
