//! Runs the benches against release builds of the programs that they measure.

use std::ffi::OsString;

use anyhow::{Result, bail};

use crate::repo::Repo;
use crate::run::Console;

/// What is measured, what measures, and what stands in for the provider.
const PACKAGES: [&str; 3] = ["tollbook", "tollbook-bench", "tollbook-mock-upstream"];

pub fn bench(repo: &Repo, console: &Console, args: &[OsString]) -> Result<()> {
    let (packages, target) = repo.metadata()?;
    if !packages.iter().any(|package| package.name == "tollbook-bench") {
        bail!("there is no package tollbook-bench");
    }
    let mut build = repo.cargo();
    build.args(["build", "--release", "--bins"]);
    // Bookings are compared without the programs.
    let alone = args.first().is_some_and(|first| first == "book");
    let wanted = if alone { PACKAGES.get(1..2).unwrap_or_default() } else { &PACKAGES[..] };
    for name in wanted.iter().filter(|name| packages.iter().any(|package| package.name == **name)) {
        build.args(["--package", name]);
    }
    console.run(&mut build)?;
    let program = target.join("release").join("tollbook-bench");
    let mut run = repo.command(program);
    // Options alone mean: all scenarios, with these options.
    if args.first().is_none_or(|first| first.to_string_lossy().starts_with('-')) {
        run.arg("all");
    }
    console.run(run.args(args))
}
