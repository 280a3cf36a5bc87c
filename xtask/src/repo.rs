//! Where the project lies, which files it has and which packages it is made of.
//!
//! Only files that Git knows or would add count; what `.gitignore` names does not exist for us.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::output;

/// The checkout that a command works on.
#[derive(Debug)]
pub struct Repo {
    root: PathBuf,
}

/// One package of the workspace with the names of the packages it depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    /// Folder below the root, with forward slashes.
    pub folder: String,
    /// Dependencies of the product itself, build scripts included.
    pub normal: Vec<String>,
    /// Dependencies of its tests alone.
    pub dev: Vec<String>,
}

impl Repo {
    /// The checkout that cargo was called in.
    pub fn here() -> Result<Self> {
        // At run time first: the compiled-in folder is another one when two checkouts share a target folder.
        let manifest =
            std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().context("xtask has no parent folder")?;
        Ok(Self { root: root.to_path_buf() })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A program that starts in the root folder.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// The cargo that called us.
    pub fn cargo(&self) -> Command {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        self.command(&cargo)
    }

    /// The text files of the project, by path below the root; binary files are left out.
    pub fn files(&self) -> Result<Vec<(String, String)>> {
        let listed = output(self.command("git").args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))
        .context("tidy needs a Git checkout")?;
        let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            match std::fs::read(self.root.join(path)) {
                Ok(bytes) => files.extend(String::from_utf8(bytes).ok().map(|text| (path.to_owned(), text))),
                // Deleted, but the deletion is not staged yet.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            }
        }
        Ok(files)
    }

    /// The packages of the workspace and the folder that cargo builds into.
    pub fn metadata(&self) -> Result<(Vec<Package>, PathBuf)> {
        let text = output(self.cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
        let value: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
        let target = value.get("target_directory").and_then(Value::as_str).context("no target directory")?;
        Ok((packages(&value)?, PathBuf::from(target)))
    }
}

/// Reads what `cargo metadata --no-deps` printed.
pub fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let root = string(metadata, "workspace_root")?;
    let listed = metadata.get("packages").and_then(Value::as_array).context("no packages")?;
    let mut found = Vec::with_capacity(listed.len());
    for package in listed {
        let manifest = string(package, "manifest_path")?;
        let folder = manifest.strip_prefix(root).unwrap_or(manifest).trim_end_matches("Cargo.toml");
        let mut read = Package {
            name: string(package, "name")?.to_owned(),
            folder: folder.trim_matches('/').to_owned(),
            ..Package::default()
        };
        for dependency in package.get("dependencies").and_then(Value::as_array).into_iter().flatten() {
            let name = string(dependency, "name")?.to_owned();
            let is_dev = dependency.get("kind").and_then(Value::as_str) == Some("dev");
            if is_dev { read.dev.push(name) } else { read.normal.push(name) }
        }
        found.push(read);
    }
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(found)
}

fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).with_context(|| format!("cargo metadata has no '{key}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_sorted_by_kind() {
        let metadata = serde_json::json!({
            "workspace_root": "/x",
            "packages": [{
                "name": "tollbook-policy", "manifest_path": "/x/crates/policy/Cargo.toml",
                "dependencies": [
                    { "name": "tollbook-ledger", "kind": null },
                    { "name": "cc", "kind": "build" },
                    { "name": "proptest", "kind": "dev" },
                ],
            }],
        });
        let read = packages(&metadata).unwrap();
        let expected = Package {
            name: "tollbook-policy".into(),
            folder: "crates/policy".into(),
            normal: vec!["tollbook-ledger".into(), "cc".into()],
            dev: vec!["proptest".into()],
        };
        assert_eq!(read, [expected]);
    }

    #[test]
    fn metadata_of_another_shape_is_an_error() {
        assert!(packages(&serde_json::json!({ "workspace_root": "/x" })).is_err());
        assert!(packages(&serde_json::json!({ "packages": [] })).is_err());
    }
}
