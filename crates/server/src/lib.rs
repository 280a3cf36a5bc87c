//! Reads files and the environment, and wires everything: the program `tollbook` as a library, for its tests.

pub mod accounts;
pub mod admin;
pub mod cli;
pub mod config;
pub mod demo;
mod errors;
pub mod history;
pub mod key;
mod observe;
pub mod run;
mod text;
