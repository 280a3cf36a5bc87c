//! Tests of the background jobs, on the memory engine and the SQLite store, and on doubles where something must fail.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

mod books;
mod days;
mod doubles;
mod drain;
mod drift;
mod forgets;
mod late;
mod losing;
mod openings;
mod pace;
mod record;
mod recovery;
mod sweep;
mod world;
