//! Runs the soak against a release build of the program.

use std::ffi::OsString;

use anyhow::Result;

use crate::repo::Repo;
use crate::run::Console;

pub fn soak(repo: &Repo, console: &Console, args: &[OsString]) -> Result<()> {
    let (_, target) = repo.metadata()?;
    let mut build = repo.cargo();
    build.args(["build", "--release", "--package", "tollbook", "--package", "tollbook-e2e", "--bins"]);
    console.run(&mut build)?;
    let release = target.join("release");
    let mut run = repo.command(release.join("e2e-soak"));
    run.env("TOLLBOOK_BIN", release.join("tollbook")).env("TOLLBOOK_E2E_VENV", target.join("e2e-venv"));
    console.run(run.args(args))
}
