//! The engine of fleets: one book in Redis or Valkey, shared by any number of gateways.
//!
//! One Lua script per verb over a shared prelude (`lua/`): read, decide, write, in one round trip for all accounts of the
//! shard. The rules are those of the pure ledger; a differential run compares the two. Time is the server's (L12).
//! `link` is the way to the servers: which node, over which connection, until when, and whether a call that failed may
//! have been applied. After *unknown* the caller repeats with the same id.
//! `cache` keeps beside the book what its gateways have read of the store.

mod cache;
mod doctor;
mod drift;
mod engine;
mod inspect;
mod journal;
mod keys;
mod link;
mod number;
mod pack;
mod quick;
mod recovery;
mod reply;
mod rows;
mod script;
mod survey;
mod wide;

pub use doctor::{Finding, Health};
#[cfg(feature = "test-clock")]
pub use engine::GivenClock;
pub use engine::RedisEngine;
pub use journal::STREAMS_MAX;
pub use link::{Address, Kind, Link, LinkError, Options, Place, Script, Tls, WrongOptions};
#[cfg(feature = "test-clock")]
pub use quick::{Counts, RESERVES, SETTLES};
