//! The servers that other tests stand on do what they are told.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod groups;
mod proxy;
mod single;
