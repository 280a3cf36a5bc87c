//! The driver's errors as the port's.

use sqlx::error::DatabaseError;
use tollbook_store::{Applied, StoreError, StoreErrorKind};

/// An error of a statement that read, or that wrote inside a transaction which is now rolled back.
pub(crate) fn not_applied(error: sqlx::Error) -> StoreError {
    StoreError { kind: kind(error), applied: Applied::No }
}

/// An error of a commit: it may have reached the disk.
pub(crate) fn commit(error: sqlx::Error) -> StoreError {
    let kind = kind(error);
    // SQLite answers busy before it writes anything; any other failure leaves the outcome open.
    let applied = if kind == StoreErrorKind::Busy { Applied::No } else { Applied::Unknown };
    StoreError { kind, applied }
}

fn kind(error: sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(error) => database_kind(&*error),
        sqlx::Error::PoolTimedOut => StoreErrorKind::Busy,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => {
            StoreErrorKind::Damaged(error.to_string())
        }
        other => StoreErrorKind::Away(other.to_string()),
    }
}

/// By SQLite's primary result code, the low byte of the extended one.
fn database_kind(error: &dyn DatabaseError) -> StoreErrorKind {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    const CORRUPT: u32 = 11;
    const CONSTRAINT: u32 = 19;
    const MISMATCH: u32 = 20;
    const NOT_A_DATABASE: u32 = 26;
    let code = error.code().and_then(|c| c.parse::<u32>().ok()).map(|c| c & 0xff);
    match code {
        Some(BUSY | LOCKED) => StoreErrorKind::Busy,
        Some(CORRUPT | NOT_A_DATABASE) => StoreErrorKind::Damaged(error.message().to_owned()),
        Some(CONSTRAINT | MISMATCH) => StoreErrorKind::Refused("a row breaks a rule of the schema"),
        _ => StoreErrorKind::Away(error.message().to_owned()),
    }
}
