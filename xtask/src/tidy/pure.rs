//! Pure rooms: no I/O, no async, no clock, no randomness, no floats, no hash maps.
//!
//! A function of a pure room gives the same answer to the same question, so every case can be a table and a
//! replay of a log ends in the same books. Hash maps are out because their order differs from run to run.

use super::scan::{line_at, words};
use super::{Finding, Tree};

pub(super) const PURE: [&str; 4] = ["ledger", "policy", "pricing", "wire"];

/// Words that no product code of a pure room contains.
const WORDS: [&str; 16] = [
    "SystemTime",
    "Instant",
    "HashMap",
    "HashSet",
    "f32",
    "f64",
    "tokio",
    "rand",
    "getrandom",
    "async",
    "await",
    "Mutex",
    "RwLock",
    "println",
    "eprintln",
    "dbg",
];

/// Modules of `std` that reach outside or make order uncertain.
const MODULES: [&str; 8] = ["time", "fs", "net", "env", "thread", "process", "io", "sync"];

/// Of `std::sync` alone this: sharing what never changes answers no question differently.
const SHARED: [&str; 2] = ["sync", "Arc"];

/// Packages that a pure room must not depend on, even unused.
const PACKAGES: [&str; 9] =
    ["tokio", "rand", "getrandom", "tracing", "log", "hyper", "futures-util", "sqlx", "redis"];

pub(super) fn pure_rooms(tree: &Tree, out: &mut Vec<Finding>) {
    for room in PURE {
        let folder = format!("crates/{room}/src/");
        for (path, rust) in tree.rust.iter().filter(|(path, _)| path.starts_with(&folder)) {
            let mut report = |at, what: &str| {
                let message = format!("'{what}' in a pure room");
                out.push(Finding { path: path.clone(), line: line_at(&rust.product, at), message });
            };
            for (at, word) in words(&rust.product).filter(|(_, word)| WORDS.contains(word)) {
                report(at, word);
            }
            for (at, module) in std_modules(&rust.product) {
                if MODULES.contains(&module) {
                    report(at, &format!("std::{module}"));
                }
            }
        }
        let package = tree.packages.iter().find(|package| package.folder == format!("crates/{room}"));
        let dependencies = package.into_iter().flat_map(|package| &package.normal);
        let is_banned =
            |name: &str| PACKAGES.contains(&name) || (room == "ledger" && name.starts_with("serde"));
        for name in dependencies.filter(|name| is_banned(name)) {
            let message = format!("a pure room must not depend on '{name}'");
            out.push(Finding { path: format!("crates/{room}/Cargo.toml"), line: 0, message });
        }
    }
}

/// Modules named in `std::x` and in `std::{x, y::{…}}`, with the place of the word `std`.
fn std_modules(code: &str) -> Vec<(usize, &str)> {
    let mut modules = Vec::new();
    for (at, _) in code.match_indices("std::") {
        let rest = code.get(at + "std::".len()..).unwrap_or_default();
        if words(rest).take(2).map(|(_, word)| word).eq(SHARED) && rest.starts_with("sync::Arc") {
            continue;
        }
        match rest.trim_start().strip_prefix('{') {
            Some(group) => modules.extend(heads(group).map(|word| (at, word))),
            None => modules.extend(words(rest).next().map(|(_, word)| (at, word))),
        }
    }
    modules
}

/// First words of the parts of a `use` group, up to the brace that closes it.
fn heads(group: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut end, mut begins) = (1_usize, group.len(), vec![0]);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 1 => begins.push(at + 1),
            _ => {}
        }
        if depth == 0 {
            end = at;
            break;
        }
    }
    begins.into_iter().filter_map(move |begin| words(group.get(begin..end)?).next().map(|(_, word)| word))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;
    use crate::repo::Package;

    #[test]
    fn impure_words_are_found_outside_tests() {
        let text = "//! HashMap\nuse std::collections::BTreeMap;\nfn f(x: f64) {}\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        let findings =
            found(pure_rooms, &tree(&[("crates/wire/src/a.rs", text), ("crates/engine/src/a.rs", text)]));
        assert_eq!(findings, ["crates/wire/src/a.rs:3: 'f64' in a pure room"]);
    }

    #[test]
    fn modules_of_std_are_found_in_groups() {
        let text = "//! x\nuse std::{collections::{BTreeMap, fs}, time::Duration, fmt};\nfn f() { std::env::var(\"x\"); }\n";
        let findings = found(pure_rooms, &tree(&[("crates/ledger/src/a.rs", text)]));
        assert_eq!(
            findings,
            [
                "crates/ledger/src/a.rs:2: 'std::time' in a pure room",
                "crates/ledger/src/a.rs:3: 'std::env' in a pure room"
            ]
        );
    }

    #[test]
    fn sharing_what_never_changes_is_pure() {
        let text = "//! x\nuse std::sync::Arc;\nuse std::sync::Mutex;\nuse std::sync::{Arc, OnceLock};\n";
        let findings = found(pure_rooms, &tree(&[("crates/policy/src/a.rs", text)]));
        let places: Vec<&str> = findings.iter().filter_map(|f| f.split(": ").next()).collect();
        assert_eq!(
            places,
            ["crates/policy/src/a.rs:3", "crates/policy/src/a.rs:3", "crates/policy/src/a.rs:4"]
        );
    }

    #[test]
    fn impure_dependencies_are_found() {
        let mut tree = tree(&[]);
        let depends = |folder: &str, name: &str| Package {
            folder: folder.into(),
            normal: vec![name.into()],
            ..Package::default()
        };
        tree.packages = vec![depends("crates/ledger", "serde"), depends("crates/wire", "serde_json")];
        tree.packages.push(depends("crates/policy", "tokio"));
        assert_eq!(
            found(pure_rooms, &tree),
            [
                "crates/ledger/Cargo.toml: a pure room must not depend on 'serde'",
                "crates/policy/Cargo.toml: a pure room must not depend on 'tokio'"
            ]
        );
    }
}
