//! Installs what the tests need, pinned, and nothing twice.
//!
//! The Python environment and the Node packages lie in the build folder and carry a stamp with what they were made
//! from; where the stamp fits, nothing is done. What is half made has no stamp and is made anew.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::repo::Repo;
use crate::run::{Console, output};

/// The test runner, at the version that the configuration in `.config/nextest.toml` was written for.
const NEXTEST: &str = "0.9.143";
const REQUIREMENTS: &str = "testing/e2e/python/requirements.txt";
/// Holds `package.json` and its lock file.
const NODE_FOLDER: &str = "testing/e2e/node";
/// The oldest major version of Node that the SDKs were seen to work with.
const NODE_MIN: u64 = 20;
const STAMP: &str = "tollbook.stamp";

/// Where the Python environment lies; the end-to-end tests get it as `TOLLBOOK_E2E_VENV`.
pub fn venv(target: &Path) -> PathBuf {
    target.join("e2e-venv")
}

/// Where the Node packages lie; the end-to-end tests get it as `TOLLBOOK_E2E_NODE`.
pub fn node_folder(target: &Path) -> PathBuf {
    target.join("e2e-node")
}

pub fn setup(repo: &Repo, console: &Console) -> Result<()> {
    let (_, target) = repo.metadata()?;
    nextest(repo, console)?;
    curl(repo, console)?;
    node(repo, console, &node_folder(&target))?;
    python(repo, console, &venv(&target))
}

/// One of the clients of the SDK matrix.
fn curl(repo: &Repo, console: &Console) -> Result<()> {
    if output(repo.command("curl").arg("--version")).is_err() {
        debian(repo, console, &["curl"]).context("curl is needed by the end-to-end tests")?;
    }
    Ok(())
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

/// The packages of the Node SDKs, exactly those of the lock file; none of their scripts is run.
fn node(repo: &Repo, console: &Console, folder: &Path) -> Result<()> {
    let found = node_version(repo, console)?;
    let read = |name: &str| {
        let path = repo.root().join(NODE_FOLDER).join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {NODE_FOLDER}/{name}"))
    };
    let files = [("package.json", read("package.json")?), ("package-lock.json", read("package-lock.json")?)];
    let stamp = format!("{found}\n{}\n{}", files[0].1, files[1].1);
    let stamp_file = folder.join(STAMP);
    if std::fs::read_to_string(&stamp_file).is_ok_and(|made_from| made_from == stamp) {
        console.line(&format!("    node {found}, packages as pinned"));
        return Ok(());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in &files {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let mut install = repo.command("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]);
    console.run(install.current_dir(folder)).context("cannot install the Node packages")?;
    std::fs::write(&stamp_file, stamp).with_context(|| format!("cannot write {}", stamp_file.display()))
}

/// The version of a Node that is new enough, with npm beside it; fetched where it is missing and can be.
fn node_version(repo: &Repo, console: &Console) -> Result<String> {
    let look = |program: &str| output(repo.command(program).arg("--version"));
    if look("node").is_err() || look("npm").is_err() {
        debian(repo, console, &["nodejs", "npm"])
            .context("node and npm are needed by the end-to-end tests")?;
    }
    let found = look("node")?.trim().trim_start_matches('v').to_owned();
    if version(&found).first().is_none_or(|major| *major < NODE_MIN) {
        bail!("node {found} is too old for the SDKs under test; {NODE_MIN} or newer is needed");
    }
    Ok(found)
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
    let stamp_file = venv.join(STAMP);
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
    debian(repo, console, &["python3-venv"]).context("python3 cannot make environments")
}

/// Installs Debian's packages, which only root can.
fn debian(repo: &Repo, console: &Console, packages: &[&str]) -> Result<()> {
    let is_root = output(repo.command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !is_root || output(repo.command("apt-get").arg("--version")).is_err() {
        bail!("install it (on Debian: apt-get install {})", packages.join(" "));
    }
    console.run(repo.command("apt-get").arg("update"))?;
    let mut install = repo.command("apt-get");
    install.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    console.run(install.env("DEBIAN_FRONTEND", "noninteractive"))
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
