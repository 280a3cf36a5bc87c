//! `tollbook demo`: the gateway in front of a built-in fake provider, with sample tenants and keys.

pub mod provider;
pub mod table;
