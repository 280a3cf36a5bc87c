//! Why a call failed, and whether it may have been applied.
//!
//! Invariant: *no* is said only where the server itself refused, or where nothing was sent.

use redis::{RedisError, ServerError};
use tollbook_engine::Applied;

/// Longest part of a server's own words that is kept.
const WORDS_MAX: usize = 200;

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct LinkError {
    pub kind: Kind,
    pub applied: Applied,
    /// Bounded, and without secrets.
    pub message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Kind {
    /// No connection could be made.
    #[error("the server cannot be reached")]
    Refused,
    #[error("no answer in time")]
    Deadline,
    /// The connection broke while the call was under way.
    #[error("the connection was lost")]
    Lost,
    /// A replica, or a primary that lacks the replicas or the disk it is told to have.
    #[error("the server takes no writes")]
    ReadOnly,
    #[error("the server's memory is full")]
    Memory,
    /// Somebody's script runs for too long.
    #[error("the server is busy with a script")]
    Busy,
    #[error("the server loads its data")]
    Loading,
    /// Unknown user, wrong password, or not allowed.
    #[error("the server refuses this user")]
    Auth,
    #[error("the server does not know the script")]
    NoScript,
    /// Slots are not served, move, or are not where the others say.
    #[error("the cluster does not serve this key")]
    Cluster,
    /// The script itself failed; where it stopped is known only to who wrote it.
    #[error("the script failed")]
    Script,
    #[error("the server refused")]
    Other,
}

/// First words of errors, sent by the server before it does anything.
const REFUSALS: [(&str, Kind); 17] = [
    ("NOSCRIPT", Kind::NoScript),
    ("READONLY", Kind::ReadOnly),
    ("NOREPLICAS", Kind::ReadOnly),
    ("MISCONF", Kind::ReadOnly),
    ("MASTERDOWN", Kind::ReadOnly),
    ("OOM", Kind::Memory),
    ("BUSY", Kind::Busy),
    ("LOADING", Kind::Loading),
    ("NOAUTH", Kind::Auth),
    ("WRONGPASS", Kind::Auth),
    ("NOPERM", Kind::Auth),
    ("DENIED", Kind::Auth),
    ("MOVED", Kind::Cluster),
    ("ASK", Kind::Cluster),
    ("TRYAGAIN", Kind::Cluster),
    ("CLUSTERDOWN", Kind::Cluster),
    ("CROSSSLOT", Kind::Cluster),
];

impl LinkError {
    pub(super) fn no(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, applied: Applied::No, message: message.into() }
    }

    pub(super) fn unknown(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, applied: Applied::Unknown, message: message.into() }
    }

    /// What a server answered instead of a result.
    pub(super) fn told(error: &ServerError) -> Self {
        let details = error.details().unwrap_or_default();
        let message = bounded(&format!("{} {details}", error.code()));
        match kind(error.code(), details) {
            Some(kind) => Self::no(kind, message),
            None => Self::unknown(Kind::Script, message),
        }
    }

    /// The same of a command that is no script: it did nothing, where a script may have stopped anywhere.
    pub(super) fn of_command(self) -> Self {
        if self.kind == Kind::Script { Self::no(Kind::Other, self.message) } else { self }
    }

    /// What went wrong after the call was handed to the connection.
    pub(super) fn under_way(error: &RedisError) -> Self {
        Self::unknown(Kind::Lost, bounded(&error.to_string()))
    }

    /// What went wrong while the connection was made: no call was on it.
    pub(super) fn before(error: &RedisError) -> Self {
        let code = error.code().unwrap_or_default();
        let details = error.detail().unwrap_or_default();
        let found = match error.kind() {
            redis::ErrorKind::AuthenticationFailed => Some(Kind::Auth),
            _ => kind(code, details),
        };
        Self::no(found.unwrap_or(Kind::Refused), bounded(&error.to_string()))
    }
}

fn kind(code: &str, details: &str) -> Option<Kind> {
    let named = |word: &str| REFUSALS.iter().find(|(code, _)| *code == word).map(|(_, kind)| *kind);
    if let Some(kind) = named(code) {
        return Some(kind);
    }
    // Before Redis 7 a script's first forbidden write is told inside another error: "… @user_script: 1: -OOM command …".
    let told = details.strip_prefix("Error running script")?;
    let inner = told.split(" -").nth(1)?;
    named(inner.split(' ').next()?).filter(|kind| matches!(kind, Kind::ReadOnly | Kind::Memory))
}

fn bounded(text: &str) -> String {
    text.chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_failures() {
        for (code, details, want) in [
            ("OOM", "command not allowed when used memory > 'maxmemory'.", Some(Kind::Memory)),
            ("READONLY", "You can't write against a read only replica.", Some(Kind::ReadOnly)),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed",
                Some(Kind::Memory),
            ),
            (
                "ERR",
                "Error running script (call to f_1): @user_script:1: -READONLY You can't",
                Some(Kind::ReadOnly),
            ),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", None),
            ("ERR", "user_script:1: attempt to index a nil value - OOM", None),
            ("ERR", "", None),
        ] {
            assert_eq!(kind(code, details), want, "{code} {details}");
        }
    }

    #[test]
    fn a_servers_words_are_bounded() {
        assert_eq!(bounded(&"ä".repeat(WORDS_MAX + 1)).chars().count(), WORDS_MAX);
    }
}
