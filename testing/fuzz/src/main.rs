//! `tollbook-fuzz TARGET [SECONDS [SEED]]`: mutates until a finding or the time is up.
//!
//! A finding is written into the corpus, and the exit code says so.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use tollbook_fuzz::{ALL, Bound, Corpus, Target, fuzz};

const SECONDS_DEFAULT: u64 = 60;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let mut number = |default| arguments.next().map_or(Some(default), |text| text.parse::<u64>().ok());
    let (seconds, seed) = (number(SECONDS_DEFAULT), number(u64::from(std::process::id())));
    let (Some(target), Some(seconds), Some(seed)) =
        (ALL.iter().find(|target| target.name == name), seconds, seed)
    else {
        let names: Vec<&str> = ALL.iter().map(|target| target.name).collect();
        say(&format!("usage: tollbook-fuzz TARGET [SECONDS [SEED]]; targets are {}", names.join(", ")));
        return ExitCode::FAILURE;
    };
    match run(target, seconds, seed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("cannot use the corpus: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// False: something was found.
fn run(target: &Target, seconds: u64, seed: u64) -> io::Result<bool> {
    let corpus = (target.corpus)()?;
    say(&format!("{}: {} inputs, seed {seed}, {seconds} s", target.name, corpus.inputs.len()));
    // What is tested may panic; the finding tells where from.
    std::panic::set_hook(Box::new(|_| ()));
    match fuzz(target, &corpus, seed, Bound::Time(Duration::from_secs(seconds))) {
        Ok(summary) => {
            say(&format!(
                "{}: nothing found in {} runs, {} kinds of input, {} of them new",
                target.name, summary.runs, summary.kinds, summary.learned
            ));
            Ok(true)
        }
        Err(finding) => {
            let path = Corpus::write(target.name, &finding.input)?;
            say(&format!(
                "{}: found by {}: {}\nkept as {}",
                target.name,
                finding.from,
                finding.why,
                path.display()
            ));
            Ok(false)
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
