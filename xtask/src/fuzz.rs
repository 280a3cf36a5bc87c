//! Fuzzes one target for as long as wanted; every test run does it shortly.

use anyhow::Result;

use crate::repo::Repo;
use crate::run::Console;

/// `seed` repeats an earlier run; without one it is another each time.
pub fn fuzz(repo: &Repo, console: &Console, target: &str, seconds: u64, seed: Option<u64>) -> Result<()> {
    // Not in release mode: overflow checks and debug assertions are part of the search.
    let mut run = repo.cargo();
    run.args(["run", "--quiet", "--package", "tollbook-fuzz", "--", target, &seconds.to_string()]);
    console.run(run.args(seed.map(|seed| seed.to_string())))
}
