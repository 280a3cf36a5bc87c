//! Reads files and the environment, and wires everything: the program `tollbook` as a library, for its tests.

pub mod cli;
pub mod config;
pub mod demo;
pub mod key;
mod text;
