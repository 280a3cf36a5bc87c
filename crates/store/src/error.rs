//! Trouble with a store.

use crate::ObjectName;

/// What went wrong, and whether the write took effect.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} (applied: {applied:?})")]
pub struct StoreError {
    pub kind: StoreErrorKind,
    pub applied: Applied,
}

/// Whether a write took effect. Writes are idempotent: after either answer the caller may repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    No,
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreErrorKind {
    /// A caller's mistake; repeating does not help.
    #[error("the store refused: {0}")]
    Refused(&'static str),
    /// The mark of an object is another one's. Neither is told in the text: it may be shown to those who must not know.
    #[error("the store refused: a mark of an object is another one's")]
    Taken { mark: String, by: Box<ObjectName> },
    /// The store cannot be reached or cannot write now.
    #[error("the store is away: {0}")]
    Away(String),
    /// Another process held the store for longer than the caller was willing to wait.
    #[error("the store is busy")]
    Busy,
    /// Stored data cannot be read, or has a layout this version does not know.
    #[error("stored data is damaged or of another version: {0}")]
    Damaged(String),
}

impl StoreError {
    /// The write was certainly not applied.
    pub fn not_applied(kind: StoreErrorKind) -> Self {
        Self { kind, applied: Applied::No }
    }

    /// Nobody can say whether the write was applied.
    pub fn unknown(kind: StoreErrorKind) -> Self {
        Self { kind, applied: Applied::Unknown }
    }

    /// Repeating later may help.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Away(_) | StoreErrorKind::Busy)
    }
}
