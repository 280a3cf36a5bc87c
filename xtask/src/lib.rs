//! The project's own commands; `cargo xtask help` lists them.
//!
//! Everything that CI does is a command here, so that a developer can do the same with the same words.
//! A command stops at the first failure and says which step failed.

pub mod bench;
pub mod docs;
pub mod fuzz;
pub mod matrix;
pub mod pipeline;
pub mod repo;
pub mod run;
pub mod schema_page;
pub mod servers;
pub mod setup;
pub mod soak;
pub mod tidy;
