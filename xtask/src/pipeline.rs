//! All tests, in the order in which a failure costs least: what is quick and often wrong comes first.

use anyhow::{Result, bail};

use crate::repo::Repo;
use crate::run::{Console, in_ci, output};
use crate::{docs, servers, setup, tidy};

/// What `cargo xtask test` does; the first failure ends it.
pub fn test(repo: &Repo, console: &Console, quick: bool) -> Result<()> {
    let (_, target) = repo.metadata()?;
    let cargo = |args: &[&str]| {
        let mut command = repo.cargo();
        command.args(args).env("TOLLBOOK_E2E_VENV", setup::venv(&target));
        command.env("TOLLBOOK_E2E_NODE", setup::node_folder(&target));
        command.env("TOLLBOOK_TEST_SERVERS", servers::folder(&target));
        if in_ci() {
            // Nothing is built twice in CI, so what incremental builds keep is waste.
            command.env("CARGO_INCREMENTAL", "0");
        }
        console.run(&mut command)
    };
    if !quick {
        console.step("setup", || setup::setup(repo, console))?;
    }
    console.step("format", || cargo(&["fmt", "--all", "--check"]))?;
    console.step("tidy", || tidy::tidy(repo, console))?;
    console.step("lock file", || lock_file(repo, console))?;
    console.step("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // One build for programs and tests: other selections of packages would build dependencies anew.
    console.step("build", || cargo(&["build", "--workspace", "--bins", "--tests"]))?;
    if !quick {
        console.step("documents", || docs::check(repo, console, &target))?;
        console.step("licences", || deny(repo, console))?;
        console.step("doctests", || cargo(&["test", "--workspace", "--doc", "--quiet"]))?;
    }
    // Last, so that the summary of the tests is what a run ends with.
    let mut tests =
        vec!["nextest", "run", "--workspace", "--profile", if in_ci() { "ci" } else { "default" }];
    if quick {
        tests.extend(SLOW.iter().flat_map(|package| ["--exclude", package]));
    }
    console.step("tests", || cargo(&tests))
}

/// Packages whose tests take minutes, or need the built program or the servers of the setup.
const SLOW: [&str; 4] = ["tollbook-e2e", "tollbook-sim", "tollbook-redis-world", "tollbook-engine-redis"];

/// Cargo mends a stale lock file silently; then CI would test other versions than a clone gets later.
fn lock_file(repo: &Repo, console: &Console) -> Result<()> {
    let unchanged =
        output(repo.command("git").args(["diff", "--exit-code", "HEAD", "--", "Cargo.lock"])).is_ok();
    if !unchanged && in_ci() {
        bail!("Cargo.lock is not what cargo makes of the manifests: commit it with them");
    }
    if !unchanged {
        console.line("    note: Cargo.lock has changed and is not committed; CI will refuse that");
    }
    Ok(())
}

/// Licences, bans and sources; advisories too where their database can be fetched.
fn deny(repo: &Repo, console: &Console) -> Result<()> {
    if output(repo.cargo().args(["deny", "--version"])).is_err() {
        console.line("    skipped: cargo-deny is not installed (cargo install cargo-deny --locked)");
        return Ok(());
    }
    // Advisories change without a commit of ours: `cargo deny check advisories` is for a nightly run.
    console.run(repo.cargo().args([
        "deny",
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
}
