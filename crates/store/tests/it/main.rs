//! Tests of the store port: stored forms, bounds, money as text.

mod codec;
mod entry;
