//! Python programs, each in a process of its own: the official SDKs, run as a user would, the reader of the journal, and
//! schemathesis.
//!
//! Invariant: the SDKs are unmodified and pinned in `python/requirements.txt`. The environment is made by
//! `cargo xtask setup`; where it is missing, a test fails and says so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Set by the test runner; else `e2e-venv` in the target folder is used.
const VENV_VARIABLE: &str = "TOLLBOOK_E2E_VENV";

/// Runs one case of `python/sdk.py` and returns what it printed of it.
pub fn sdk(case: &str, base_url: &str, api_key: &str, more: &[&str]) -> Value {
    sdk_many(&[case], base_url, api_key, more).pop().unwrap_or_default()
}

/// Runs the cases one after another in one process, as the SDKs take seconds to load.
pub fn sdk_many(cases: &[&str], base_url: &str, api_key: &str, more: &[&str]) -> Vec<Value> {
    let mut args = cases.to_vec();
    args.extend(["--base-url", base_url, "--key", api_key]);
    args.extend(more);
    run("sdk.py", &args)
}

/// What a script of `python/` prints as JSON.
pub fn run<T: DeserializeOwned>(script: &str, args: &[&str]) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script);
    let output = Command::new(interpreter())
        .arg(path)
        .args(args)
        .stdin(Stdio::null())
        // A proxy of the surroundings must not come between.
        .env("NO_PROXY", "*")
        .output();
    match output {
        Ok(output) if output.status.success() => match serde_json::from_slice(&output.stdout) {
            Ok(value) => value,
            Err(error) => fail(&format!("{script}: {error}: {}", String::from_utf8_lossy(&output.stdout))),
        },
        Ok(output) => fail(&format!("{script}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => fail(&format!("{script}: {error}")),
    }
}

/// Questions that schemathesis makes of an OpenAPI document: whether every answer was as the document says, and what it
/// printed. What it keeps of a run lies in `folder`.
pub fn schemathesis(folder: &Path, args: &[&str]) -> (bool, String) {
    let program = interpreter().with_file_name("schemathesis");
    if !program.exists() {
        fail(&format!("{} is missing; make it: cargo xtask setup", program.display()));
    }
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("NO_PROXY", "*")
        .output();
    match output {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&said).into_owned())
        }
        Err(error) => fail(&format!("schemathesis: {error}")),
    }
}

pub(crate) fn interpreter() -> PathBuf {
    let venv = std::env::var_os(VENV_VARIABLE).map_or_else(|| beside_the_tests("e2e-venv"), PathBuf::from);
    let python = venv.join("bin").join("python");
    if !python.exists() {
        fail(&format!("{} is missing; make it: cargo xtask setup", python.display()));
    }
    python
}

/// What setup put into the target folder; tests lie in <target>/<profile>/deps.
pub(crate) fn beside_the_tests(folder: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(3).unwrap_or(Path::new(".")).join(folder)
}

#[allow(clippy::panic, reason = "test code: a panic is a failed test")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}
