//! Writes the page of the SDK matrix. The test that runs the matrix makes the page, and fails in any other run if it is stale.

use anyhow::Result;

use crate::repo::Repo;
use crate::run::Console;
use crate::setup;

const TEST: &str = "sdk_matrix::every_client_passes_every_scenario";

pub fn matrix(repo: &Repo, console: &Console) -> Result<()> {
    let (_, target) = repo.metadata()?;
    console.run(repo.cargo().args(["build", "--workspace", "--bins"]))?;
    let mut test = repo.cargo();
    test.args(["nextest", "run", "--package", "tollbook-e2e", TEST]);
    test.env("TOLLBOOK_E2E_VENV", setup::venv(&target));
    test.env("TOLLBOOK_E2E_NODE", setup::node_folder(&target));
    console.run(test.env("TOLLBOOK_WRITE_PAGES", "1"))
}
