//! The store on SQL: the journal, the limit history, what operators define and what a fleet shares, in one SQLite file or
//! one database of a MySQL or MariaDB server.
//!
//! Invariants: rows of the journal are inserted, and go with their day where it is told how many are kept; their keys never go.
//! Totals are only added to, in the transaction that inserts; a key that is there
//! already changes nothing, totals included. Writers take turns, over all processes, so none fails half-way.
//! Ids compare byte for byte. A commit is on disk before it is answered (on a server: as far as it is set up so).
//! When another process holds the file: writers wait up to five seconds, then say `Busy`, not applied. A file or a
//! database of a later layout, or one that is not ours, is not opened.
//! When a write fails, on a full disk for one, nothing of it stays and the next write starts on a connection that has no
//! transaction open. When a server is away, questions and writes say so within seconds; one that took a step of a write and
//! fell silent is waited for half a minute.

mod alerts;
mod append;
mod backfill;
mod days;
mod db;
mod desk;
mod edits;
mod error;
mod fleet;
#[cfg(test)]
mod full;
mod history;
mod journal;
mod line;
mod marks;
mod mysql;
mod objects;
mod open;
mod place;
#[cfg(test)]
mod plans;
mod range;
mod row;
mod sql;

use tollbook_store::StoreError;

use crate::db::Pools;
pub use crate::place::{Place, PlaceError, Server};

/// The journal, the limit history, what operators define and what a fleet shares, in SQL. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SqlStore {
    pools: Pools,
    place: Place,
}

impl SqlStore {
    /// Opens the file or the database, makes the file if it is not there, and brings the layout up to date.
    pub async fn open(place: impl Into<Place>) -> Result<Self, StoreError> {
        let place = place.into();
        let pools = match &place {
            Place::File(path) => {
                let (writer, readers) = open::open(path).await?;
                Pools::Sqlite { writer, readers }
            }
            Place::Server(server) => mysql::open(server).await?,
        };
        Ok(Self { pools, place })
    }

    /// Opens what is there for questions alone, also while a gateway writes to it; every write fails.
    pub async fn open_to_read(place: impl Into<Place>) -> Result<Self, StoreError> {
        let place = place.into();
        let pools = match &place {
            Place::File(path) => {
                let readers = open::open_to_read(path).await?;
                Pools::Sqlite { writer: readers.clone(), readers }
            }
            Place::Server(server) => mysql::open_to_read(server).await?,
        };
        Ok(Self { pools, place })
    }

    /// Changes what was written, as time would.
    #[cfg(feature = "test-clock")]
    pub async fn change(&self, statement: &'static str) -> Result<(), StoreError> {
        match &self.pools {
            Pools::Sqlite { writer, .. } => sqlx::raw_sql(statement).execute(writer).await.map(|_| ()),
            Pools::MySql { writer, .. } => sqlx::raw_sql(statement).execute(writer).await.map(|_| ()),
        }
        .map_err(error::not_applied)
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Waits for statements under way and closes every connection.
    pub async fn close(&self) {
        self.pools.close().await;
    }
}
