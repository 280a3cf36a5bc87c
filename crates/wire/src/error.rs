//! Bytes that cannot be read: whose they are, where, and why.

use std::fmt;

use crate::json::Fault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Upstream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Offset in the body.
    Byte(usize),
    /// A declared parameter.
    Param(&'static str),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(n) => write!(f, "byte {n}"),
            Self::Param(name) => write!(f, "parameter {name}"),
        }
    }
}

/// Safe to show to the client: it holds nothing of the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {message}")]
pub struct DecodeError {
    pub side: Side,
    pub at: At,
    pub message: &'static str,
}

impl DecodeError {
    pub(crate) fn client(fault: Fault) -> Self {
        let at = fault.param.map_or(At::Byte(fault.at), At::Param);
        Self { side: Side::Client, at, message: fault.what }
    }

    /// The parameter at fault, if it was one.
    pub fn param(&self) -> Option<&'static str> {
        if let At::Param(name) = self.at { Some(name) } else { None }
    }
}
