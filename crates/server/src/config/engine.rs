//! Where the book is kept, from the file.

use std::path::Path;

use tollbook_admission::GATEWAYS_MAX;
use tollbook_engine_redis::{Options, WrongOptions};
use tollbook_policy::{Catalog, WhenAway};

use super::file::{Durability, File};
use super::mistakes::Mistakes;
use super::setup::secret;

/// Where the book is kept.
#[derive(Clone, Debug)]
pub enum Book {
    /// In this process, with a log on disk.
    Memory(Durability),
    /// In servers that gateways share.
    Redis(Box<Options>),
}

impl Book {
    /// As text that tells one from another and holds no secret.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Memory(durability) => format!("this process, {durability:?}"),
            Self::Redis(options) => format!("{:?}, prefix {}", options.place, options.prefix),
        }
    }
}

/// A local share is of something: the gateways that share the book have to be known, where a limit wants one.
pub(super) fn gateways(mistakes: &mut Mistakes, file: &File, catalog: Option<&Catalog>) -> u32 {
    let Some(given) = &file.engine.redis else { return 1 };
    match given.fleet_size {
        Some(size) if (1..=GATEWAYS_MAX).contains(&size) => return size,
        Some(_) => mistakes.add("engine.redis.fleet_size", format!("must be from 1 to {GATEWAYS_MAX}")),
        None => {
            let mut rules = catalog.into_iter().flat_map(Catalog::rules).map(|(_, rule)| &rule.limit);
            if let Some(limit) = rules.find(|limit| !limit.shadow && limit.when_away == WhenAway::Local) {
                let what = format!(
                    "is missing: while the book is away `{}` admits within its part of the ceiling, as soft limits do unless they say otherwise",
                    limit.name
                );
                let help = "say how many gateways share the book, or give such limits `when_away: closed`";
                mistakes.add_with_help("engine.redis.fleet_size", what, help);
            }
        }
    }
    1
}

pub(super) fn book(mistakes: &mut Mistakes, file: &File, folder: &Path) -> Book {
    let memory = Book::Memory(file.engine.durability);
    let Some(given) = &file.engine.redis else { return memory };
    if file.engine.durability != Durability::default() {
        mistakes.add(
            "engine.durability",
            "is of the book in this process; with `engine.redis` the server decides",
        );
    }
    if file.journal.is_none() {
        let what = "is missing: gateways that share a book share one journal; name its file or its database, the same for all of them";
        mistakes.add("journal", what);
    }
    let mut options = match Options::parse(&given.url) {
        Ok(options) => options,
        Err(error) => {
            mistakes.add("engine.redis.url", error.to_string());
            return memory;
        }
    };
    options.username = given.username.clone().or(options.username);
    let path = "engine.redis.password";
    options.password =
        secret(mistakes, path, given.password.as_ref(), given.password_file.as_deref(), folder)
            .or(options.password);
    if !given.ca_files.is_empty() {
        match &mut options.tls {
            Some(tls) => tls.ca_files = given.ca_files.iter().map(|path| folder.join(path)).collect(),
            None => mistakes.add("engine.redis.ca_files", "are of use with a `rediss` address alone"),
        }
    }
    options.prefix.clone_from(&given.prefix);
    options.connections = given.connections;
    options.deadline = given.deadline.0;
    if let Err(error) = options.check() {
        mistakes.add(format!("engine.redis{}", place_of(&error)), error.to_string());
    }
    Book::Redis(Box::new(options))
}

/// The setting that an error is about.
fn place_of(error: &WrongOptions) -> &'static str {
    match error {
        WrongOptions::Connections => ".connections",
        WrongOptions::Deadline => ".deadline",
        WrongOptions::Prefix => ".prefix",
        WrongOptions::Tls(_) => ".ca_files",
        _ => ".url",
    }
}
