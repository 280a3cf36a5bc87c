//! Checks that the source keeps the rules of ARCHITECTURE.md and CONTRIBUTING.md that a compiler does not know.
//!
//! Every check reads a [`Tree`] and adds findings; none reads a file, so each is tested on a few literal lines.
//! All findings are printed, then the command fails.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, bail};

use crate::repo::{Package, Repo};
use crate::run::Console;

mod code;
mod deploy;
mod documents;
mod metrics;
mod pure;
mod rooms;
mod scan;
mod spec;

pub use scan::Rust;

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    /// From 1; 0 where the whole file is meant.
    pub line: usize,
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// What the checks look at: all text files by path, Rust files also without comments and strings.
#[derive(Debug, Default)]
pub struct Tree {
    pub files: BTreeMap<String, String>,
    pub rust: BTreeMap<String, Rust>,
    pub packages: Vec<Package>,
}

impl Tree {
    pub fn new(files: impl IntoIterator<Item = (String, String)>, packages: Vec<Package>) -> Self {
        let files: BTreeMap<String, String> = files.into_iter().collect();
        let is_rust = |path: &str| path.rsplit_once('.').is_some_and(|(_, ending)| ending == "rs");
        let rust = files.iter().filter(|(path, _)| is_rust(path));
        let rust = rust.map(|(path, text)| (path.clone(), Rust::new(path, text))).collect();
        Self { files, rust, packages }
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

type Check = fn(&Tree, &mut Vec<Finding>);

const CHECKS: [(&str, Check); 19] = [
    ("rooms and arrows", rooms::arrows),
    ("drivers behind their ports", rooms::drivers),
    ("manifests", rooms::manifests),
    ("pure rooms", pure::pure_rooms),
    ("length of files", code::length),
    ("no stubs", code::stubs),
    ("no bare 'token'", code::bare_token),
    ("module headers", code::headers),
    ("length of ARCHITECTURE.md", documents::architecture),
    ("both READMEs", documents::readmes),
    ("links", documents::links),
    ("no machine paths", documents::machine_paths),
    ("no registry hosts", documents::registry_hosts),
    ("rules and their tests", spec::rules),
    ("metrics", metrics::set),
    ("queries of deploy", deploy::queries),
    ("alerts and their runbooks", deploy::alerts),
    ("the chart", deploy::chart),
    ("images", deploy::images),
];

/// `cargo xtask tidy`.
pub fn tidy(repo: &Repo, console: &Console) -> Result<()> {
    let (packages, _) = repo.metadata()?;
    let tree = Tree::new(repo.files()?, packages);
    let mut all = 0;
    for (title, check) in CHECKS {
        let mut findings = Vec::new();
        check(&tree, &mut findings);
        if findings.is_empty() {
            continue;
        }
        findings.sort();
        all += findings.len();
        console.line(&format!("{title}:"));
        for finding in &findings {
            console.line(&format!("  {finding}"));
        }
    }
    if all > 0 {
        bail!("tidy: {all} findings");
    }
    console.line(&format!("    tidy: {} checks, {} files, nothing found", CHECKS.len(), tree.files.len()));
    Ok(())
}

#[cfg(test)]
mod testing {
    //! A tree and its findings in one line each.

    use super::*;

    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::new(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())), Vec::new())
    }

    pub(crate) fn found(check: Check, tree: &Tree) -> Vec<String> {
        let mut findings = Vec::new();
        check(tree, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }
}
