//! Runs other programs and tells the reader what runs and how long it took.
//!
//! Output goes to standard error, so that the output of the programs stays apart from it.

use std::ffi::OsStr;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Where the commands write what they do.
#[derive(Debug)]
pub struct Console {
    started: Instant,
}

impl Console {
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }

    /// Writes one line. A closed standard error is no reason to fail.
    pub fn line(&self, text: &str) {
        let _unheard = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Runs one named step and prints how long it took, also when it fails.
    pub fn step(&self, title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.line(&format!("==> {title}"));
        let begun = Instant::now();
        let done = work();
        let (word, took) = (if done.is_ok() { "ok" } else { "FAILED" }, begun.elapsed().as_millis());
        let all = self.started.elapsed().as_secs();
        self.line(&format!(
            "<== {title}: {word} in {}.{} s ({all} s so far)",
            took / 1000,
            took % 1000 / 100
        ));
        done.with_context(|| format!("step '{title}' failed"))
    }

    /// Runs a program with our own input and output; any end but success is an error.
    pub fn run(&self, command: &mut Command) -> Result<()> {
        let shown = shown(command);
        self.line(&format!("    $ {shown}"));
        let status = command.status().with_context(|| format!("cannot start '{shown}'"))?;
        if !status.success() {
            bail!("'{shown}' ended with {status}");
        }
        Ok(())
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

/// What a program printed, if it could be started and succeeded.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("cannot start '{shown}'"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("'{shown}' ended with {}: {}", output.status, reason.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("'{shown}' printed something that is not UTF-8"))
}

/// True where the run is one of CI, which sets `CI=true`.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
