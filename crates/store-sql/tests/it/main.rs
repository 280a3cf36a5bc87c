//! Tests of the store, on a file and on a server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test may stop at once")]

mod alerts;
mod calls;
mod days;
mod desk;
mod file;
mod fleet;
mod history;
mod journal;
mod layouts;
mod make;
mod marks;
mod objects;
mod order;
mod parts;
mod server;
mod sums;
mod tls;
mod together;
mod upgrade;
