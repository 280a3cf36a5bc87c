//! The drivers' errors as the port's.

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use tollbook_store::{Applied, StoreError, StoreErrorKind};

/// An error of a statement that read, or that wrote inside a transaction which is now rolled back.
pub(crate) fn not_applied(error: sqlx::Error) -> StoreError {
    StoreError { kind: kind(error), applied: Applied::No }
}

/// An error of a commit: it may have reached the disk.
pub(crate) fn commit(error: sqlx::Error) -> StoreError {
    let kind = kind(error);
    // Both answer busy only where nothing was written, or all of it taken back; any other failure leaves the outcome open.
    let applied = if kind == StoreErrorKind::Busy { Applied::No } else { Applied::Unknown };
    StoreError { kind, applied }
}

fn kind(error: sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast_ref::<MySqlDatabaseError>() {
            Some(error) => server_kind(error),
            None => database_kind(&*error),
        },
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

/// By the numbers that MySQL and MariaDB share.
fn server_kind(error: &MySqlDatabaseError) -> StoreErrorKind {
    match error.number() {
        // A lock that stayed, a deadlock; the latter also where a cluster's members disagree at a commit.
        1205 | 1213 => StoreErrorKind::Busy,
        // Not null, not unique, too long, out of range, not of the type, a check.
        1048 | 1062 | 1264 | 1366 | 1406 | 1690 | 3819 | 4025 => {
            StoreErrorKind::Refused("a row breaks a rule of the schema")
        }
        // No such column, no such table.
        1054 | 1146 => StoreErrorKind::Damaged(error.message().to_owned()),
        _ => StoreErrorKind::Away(error.message().to_owned()),
    }
}
