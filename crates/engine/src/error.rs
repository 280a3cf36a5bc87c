//! Trouble with an engine; a denial is not one.

use tollbook_ledger::Refusal;

/// What went wrong, and whether the verb was applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} (applied: {applied:?})")]
pub struct EngineError {
    pub kind: ErrorKind,
    pub applied: Applied,
}

/// Whether the verb took effect. After `Unknown` the caller repeats with the same id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    No,
    Unknown,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ErrorKind {
    /// A caller's mistake; repeating does not help.
    #[error("the command was refused: {0}")]
    Refused(#[from] Refusal),
    #[error("the entry is longer than {} bytes", crate::ENTRY_MAX)]
    EntryTooLong,
    #[error("this engine does not support the verb")]
    Unsupported,
    #[error("the shard is not kept here")]
    NoSuchShard,
    /// The engine cannot be reached or cannot write.
    #[error("the engine is away: {0}")]
    Away(String),
    #[error("the engine did not answer in time")]
    Deadline,
    /// The store has lost what it had of the shard, or is being made whole again; nothing was written (see [`crate::Recovery`]).
    #[error("the store has lost {0} of the shard")]
    Lost(Loss),
    /// Stored data cannot be read.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
}

/// What a store has lost of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Loss {
    /// Perhaps the last writes: another server answers, or the same one after a restart.
    Tail,
    /// Everything, or so much that the journal knows more.
    All,
    /// It is known, and somebody is making the shard whole.
    Rebuilding,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tail => "the tail",
            Self::All => "all",
            Self::Rebuilding => "a part, and is being rebuilt,",
        })
    }
}

impl EngineError {
    /// The verb was certainly not applied.
    pub fn not_applied(kind: ErrorKind) -> Self {
        Self { kind, applied: Applied::No }
    }

    /// Nobody can say whether the verb was applied.
    pub fn unknown(kind: ErrorKind) -> Self {
        Self { kind, applied: Applied::Unknown }
    }
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::LogFull => ErrorKind::Away("the log is full".to_owned()),
            other => ErrorKind::Refused(other),
        };
        Self::not_applied(kind)
    }
}
