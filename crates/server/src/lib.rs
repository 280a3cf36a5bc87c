//! Reads files and the environment, and wires everything: the program `tollbook` as a library, for its tests.

pub mod accounts;
mod adjust;
pub mod admin;
mod alerts;
mod book;
pub mod cli;
pub mod config;
pub mod demo;
mod errors;
pub mod history;
mod import;
pub mod inspect;
pub mod key;
pub mod live;
mod observe;
pub mod office;
mod prices;
mod reconcile;
mod recovery;
mod release;
pub mod reload;
pub mod report;
pub mod run;
mod seal;
mod text;
