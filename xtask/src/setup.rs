//! Installs what the tests need, pinned, and nothing twice.
//!
//! The Python environment lies in the build folder and carries a stamp with what it was made from;
//! where the stamp fits, nothing is done. A half-made environment has no stamp and is made anew.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::repo::Repo;
use crate::run::{Console, output};

/// The test runner, at the version that the configuration in `.config/nextest.toml` was written for.
const NEXTEST: &str = "0.9.143";
const REQUIREMENTS: &str = "testing/e2e/python/requirements.txt";

/// Where the Python environment lies; the end-to-end tests get it as `TOLLBOOK_E2E_VENV`.
pub fn venv(target: &Path) -> PathBuf {
    target.join("e2e-venv")
}

pub fn setup(repo: &Repo, console: &Console) -> Result<()> {
    let (_, target) = repo.metadata()?;
    nextest(repo, console)?;
    node(repo, console);
    python(repo, console, &venv(&target))
}

fn nextest(repo: &Repo, console: &Console) -> Result<()> {
    let found = output(repo.cargo().args(["nextest", "--version"])).ok();
    let found = found.as_deref().and_then(|text| text.split_whitespace().nth(1)).unwrap_or("none");
    if version(found) >= version(NEXTEST) {
        console.line(&format!("    cargo-nextest {found}"));
        return Ok(());
    }
    console.line(&format!("    cargo-nextest: found {found}, installing {NEXTEST}"));
    let mut install = repo.cargo();
    // Without self-update it is a much smaller build.
    install.args(["install", "cargo-nextest", "--locked", "--version", NEXTEST]);
    install.args(["--no-default-features", "--features", "default-no-update"]);
    // Linked once and run for minutes: speed of the build matters more than speed of the program.
    install.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    // Not into the folder that the workspace builds in: flags differ.
    install.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_BUILD_TARGET_DIR");
    console.run(&mut install).context("cannot install cargo-nextest")
}

/// `1.2.3` as numbers; what is no version is smaller than any.
fn version(text: &str) -> Vec<u64> {
    text.split('.').map_while(|part| part.parse().ok()).collect()
}

/// Node is needed by no test yet; its absence is told, for the ones that will come.
fn node(repo: &Repo, console: &Console) {
    match output(repo.command("node").arg("--version")) {
        Ok(found) => console.line(&format!("    node {}", found.trim())),
        Err(_) => console.line("    node: not found (no test needs it yet)"),
    }
}

fn python(repo: &Repo, console: &Console, venv: &Path) -> Result<()> {
    let requirements = repo.root().join(REQUIREMENTS);
    if !requirements.exists() {
        console.line(&format!("    python: {REQUIREMENTS} does not exist, no environment made"));
        return Ok(());
    }
    let wanted =
        std::fs::read_to_string(&requirements).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    let found = output(repo.command("python3").arg("--version")).context(
        "python3 is needed by the end-to-end tests (on Debian: apt-get install python3 python3-venv)",
    )?;
    // The content itself, not a digest of it: a difference can be read.
    let stamp = format!("{}\n{wanted}", found.trim());
    let stamp_file = venv.join("tollbook.stamp");
    if std::fs::read_to_string(&stamp_file).is_ok_and(|made_from| made_from == stamp) {
        console.line(&format!("    {}, packages as pinned", found.trim()));
        return Ok(());
    }
    if output(repo.command("python3").args(["-c", "import venv, ensurepip"])).is_err() {
        install_venv_module(repo, console)?;
    }
    console.run(repo.command("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    let python = venv.join("bin").join("python");
    let python = python.to_str().context("the build folder's path is not UTF-8")?;
    let install = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "-r"];
    console.run(repo.command(python).args(install).arg(&requirements))?;
    std::fs::write(&stamp_file, stamp).with_context(|| format!("cannot write {}", stamp_file.display()))
}

/// Debian ships Python without the means to make an environment; as root we can fetch them.
fn install_venv_module(repo: &Repo, console: &Console) -> Result<()> {
    let is_root = output(repo.command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !is_root || output(repo.command("apt-get").arg("--version")).is_err() {
        bail!(
            "python3 cannot make environments; install its venv module (on Debian: apt-get install python3-venv)"
        );
    }
    console.run(repo.command("apt-get").arg("update"))?;
    let install = ["install", "--yes", "--no-install-recommends", "python3-venv"];
    console.run(repo.command("apt-get").args(install).env("DEBIAN_FRONTEND", "noninteractive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version("0.9.143") >= version(NEXTEST));
        assert!(version("0.10.1") > version("0.9.143"));
        assert!(version("0.9.99") < version("0.9.143"));
        assert!(version("none") < version("0.0.1"));
    }
}
