//! Rooms and arrows: the table in ARCHITECTURE.md is what the manifests say, no more and no less.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree};
use crate::repo::Package;

const TABLE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- rooms: begin -->";
const END: &str = "<!-- rooms: end -->";
const PREFIX: &str = "tollbook-";

/// Drivers, and the one room each may enter through.
const DRIVERS: [(&str, &str); 2] = [("redis", "crates/engine-redis"), ("sqlx", "crates/store-sql")];

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Compares the table with the dependencies that ship, and keeps `testing/` out of what ships.
pub(super) fn arrows(tree: &Tree, out: &mut Vec<Finding>) {
    let here = |message: String| Finding { path: TABLE.to_owned(), line: 0, message };
    let Some(table) = tree.text(TABLE).and_then(table) else {
        out.push(here(format!("no table between '{BEGIN}' and '{END}'")));
        return;
    };
    let real: Arrows =
        tree.packages.iter().filter_map(room).map(|(room, package)| (room, uses(package))).collect();
    for (room, uses) in &real {
        let Some(allowed) = table.get(room) else {
            out.push(here(format!("room '{room}' is not in the table")));
            continue;
        };
        for arrow in uses.difference(allowed) {
            out.push(here(format!("'{room}' uses '{arrow}', and the table does not allow it")));
        }
        for arrow in allowed.difference(uses) {
            out.push(here(format!("'{room}' does not use '{arrow}': take it out of the table")));
        }
    }
    for room in table.keys().filter(|room| !real.contains_key(*room)) {
        out.push(here(format!("there is no room '{room}': take it out of the table")));
    }
    let testing: BTreeSet<String> = tree
        .packages
        .iter()
        .filter(|p| p.folder.starts_with("testing/"))
        .filter_map(room)
        .map(|(r, _)| r)
        .collect();
    for package in tree.packages.iter().filter(|package| package.folder.starts_with("crates/")) {
        for arrow in uses(package).intersection(&testing) {
            let message = format!("'{arrow}' never ships: it may be a dev-dependency only");
            out.push(Finding { path: format!("{}/Cargo.toml", package.folder), line: 0, message });
        }
    }
}

/// Rows `| room | role | uses, uses |`; `–` uses nothing.
fn table(text: &str) -> Option<Arrows> {
    let (_, rest) = text.split_once(BEGIN)?;
    let (rows, _) = rest.split_once(END)?;
    let mut table = Arrows::new();
    for row in rows.lines().filter(|row| row.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (room, uses) = (cells.first()?, cells.last()?);
        let uses = uses
            .split(',')
            .map(|name| name.trim().trim_matches('`'))
            .filter(|name| !matches!(*name, "" | "–"));
        table.insert(room.trim_matches('`').to_owned(), uses.map(str::to_owned).collect());
    }
    Some(table)
}

/// The name of the room that a package is, if it is one.
fn room(package: &Package) -> Option<(String, &Package)> {
    let (parent, name) = package.folder.split_once('/')?;
    matches!(parent, "crates" | "testing").then(|| (name.to_owned(), package))
}

fn uses(package: &Package) -> BTreeSet<String> {
    package.normal.iter().filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect()
}

pub(super) fn drivers(tree: &Tree, out: &mut Vec<Finding>) {
    for package in &tree.packages {
        let all = || package.normal.iter().chain(&package.dev);
        for (driver, home) in DRIVERS {
            if package.folder != home && all().any(|name| name == driver) {
                let message = format!("'{driver}' enters only through {home}");
                out.push(Finding { path: format!("{}/Cargo.toml", package.folder), line: 0, message });
            }
        }
    }
}

/// A package takes its lints and its version from the workspace and is named after its folder.
pub(super) fn manifests(tree: &Tree, out: &mut Vec<Finding>) {
    for package in &tree.packages {
        let path = format!("{}/Cargo.toml", package.folder);
        let text = tree.text(&path).unwrap_or_default();
        let mut report = |message: String| out.push(Finding { path: path.clone(), line: 0, message });
        let lints = text.split_once("[lints]").map(|(_, rest)| rest.trim_start());
        if !lints.is_some_and(|rest| rest.starts_with("workspace = true")) {
            report("'[lints] workspace = true' is missing".to_owned());
        }
        for field in ["version", "edition", "rust-version", "license", "publish"] {
            if !text.contains(&format!("\n{field}.workspace = true")) {
                report(format!("'{field}.workspace = true' is missing"));
            }
        }
        // The program's package has the program's name, so that `cargo run` and `cargo install` say it.
        let named =
            |room: &str| if room == "server" { "tollbook".to_owned() } else { format!("{PREFIX}{room}") };
        if let Some((room, _)) = room(package)
            && package.name != named(&room)
        {
            report(format!("the package is named '{}', its folder '{room}'", package.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;

    fn package(folder: &str, normal: &[&str], dev: &[&str]) -> Package {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let name = format!("tollbook-{}", folder.rsplit('/').next().unwrap());
        Package { name, folder: folder.to_owned(), normal: owned(normal), dev: owned(dev) }
    }

    fn with_table(rows: &str) -> Tree {
        let text = format!("# x\n\n{BEGIN}\n\n| room | role | uses |\n| --- | --- | --- |\n{rows}\n{END}\n");
        tree(&[(TABLE, &text)])
    }

    #[test]
    fn equal_tables_pass() {
        let mut tree = with_table(
            "| ledger | books | – |\n| `policy` | binds | `ledger` |\n| sim | judges | ledger, policy |",
        );
        tree.packages = vec![
            package("crates/ledger", &["thiserror"], &["tollbook-sim"]),
            package("crates/policy", &["tollbook-ledger"], &[]),
            package("testing/sim", &["tollbook-ledger", "tollbook-policy"], &[]),
            package("xtask", &["anyhow"], &[]),
        ];
        assert_eq!(found(arrows, &tree), Vec::<String>::new());
    }

    #[test]
    fn differences_are_found_both_ways() {
        let mut tree = with_table("| ledger | books | policy |\n| gone | nothing | – |");
        tree.packages = vec![
            package("crates/ledger", &["tollbook-sim"], &[]),
            package("crates/policy", &[], &[]),
            package("testing/sim", &[], &[]),
        ];
        assert_eq!(
            found(arrows, &tree),
            [
                "ARCHITECTURE.md: 'ledger' uses 'sim', and the table does not allow it",
                "ARCHITECTURE.md: 'ledger' does not use 'policy': take it out of the table",
                "ARCHITECTURE.md: room 'policy' is not in the table",
                "ARCHITECTURE.md: room 'sim' is not in the table",
                "ARCHITECTURE.md: there is no room 'gone': take it out of the table",
                "crates/ledger/Cargo.toml: 'sim' never ships: it may be a dev-dependency only",
            ]
        );
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(found(arrows, &tree(&[(TABLE, "# x\n")])).len(), 1);
        assert_eq!(found(arrows, &tree(&[])).len(), 1);
    }

    #[test]
    fn drivers_stay_in_their_rooms() {
        let mut tree = tree(&[]);
        tree.packages =
            vec![package("crates/store-sql", &["sqlx"], &[]), package("crates/jobs", &[], &["sqlx"])];
        assert_eq!(
            found(drivers, &tree),
            ["crates/jobs/Cargo.toml: 'sqlx' enters only through crates/store-sql"]
        );
    }

    #[test]
    fn manifests_inherit() {
        let good = "[package]\nname = \"tollbook-a\"\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\n[lints]\nworkspace = true\n";
        let bad = good.replace("edition.workspace", "edition").replace("[lints]\nworkspace = true\n", "");
        let mut tree = tree(&[("crates/a/Cargo.toml", good), ("crates/b/Cargo.toml", &bad)]);
        tree.packages = vec![package("crates/a", &[], &[]), package("crates/b", &[], &[])];
        tree.packages[1].name = "tollbook-a".into();
        assert_eq!(
            found(manifests, &tree),
            [
                "crates/b/Cargo.toml: '[lints] workspace = true' is missing",
                "crates/b/Cargo.toml: 'edition.workspace = true' is missing",
                "crates/b/Cargo.toml: the package is named 'tollbook-a', its folder 'b'"
            ]
        );
    }
}
