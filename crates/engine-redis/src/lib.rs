//! The engine of fleets: one book in Redis or Valkey, shared by any number of gateways.
//!
//! `link` is the way to the servers: which node, over which connection, until when, and whether a call that failed may
//! have been applied.

mod link;

pub use link::{Address, Kind, Link, LinkError, Options, Place, Script, Tls, WrongOptions};
