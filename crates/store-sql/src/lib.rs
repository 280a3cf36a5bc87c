//! The store on SQL: the journal, the limit history, what operators define and what a fleet shares, in one SQLite file.
//!
//! Invariants: rows of the journal are only ever inserted, totals are only added to, both in one transaction; a key that is there
//! already changes nothing, totals included. Writers begin with the write lock, so none fails half-way for want of it.
//! Ids compare byte for byte. A commit is on disk before it is answered.
//! When another process holds the file: writers wait up to five seconds, then say `Busy`, not applied. A file of a
//! later layout, or one that is not ours, is not opened.
//! When a write fails, on a full disk for one, nothing of it stays and the next write starts on a connection that has no
//! transaction open.

mod append;
mod backfill;
mod error;
mod fleet;
#[cfg(test)]
mod full;
mod history;
mod journal;
mod line;
mod objects;
mod open;
mod row;
mod sql;

use std::path::{Path, PathBuf};

use sqlx::SqlitePool;
use tollbook_store::StoreError;

/// The journal, the limit history and what a fleet shares, in one SQLite file. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    /// One connection: writers take turns here, not inside SQLite.
    writer: SqlitePool,
    readers: SqlitePool,
    path: PathBuf,
}

impl SqliteStore {
    /// Opens the file, makes it if it is not there, and brings its layout up to date.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let (writer, readers) = open::open(path).await?;
        Ok(Self { writer, readers, path: path.to_owned() })
    }

    /// Opens a file that is there for questions alone, also while a gateway writes to it; every write fails.
    pub async fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        let readers = open::open_to_read(path).await?;
        Ok(Self { writer: readers.clone(), readers, path: path.to_owned() })
    }

    /// Changes what was written, as time would.
    #[cfg(feature = "test-clock")]
    pub async fn change(&self, statement: &'static str) -> Result<(), StoreError> {
        sqlx::raw_sql(statement).execute(&self.writer).await.map(|_| ()).map_err(error::not_applied)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for statements under way and closes the file.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
