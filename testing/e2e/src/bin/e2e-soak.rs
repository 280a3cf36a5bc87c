//! The soak: `e2e-soak [--minutes 10] [--streams 2000] [--seed 1]`. Ends with 1 if something is not as it must be.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use tollbook_e2e::random::seed;
use tollbook_e2e::soak::{self, Plan};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut minutes, mut streams, mut number) = (10, 2000, seed(1));
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--minutes", Some(value)) => minutes = value,
            ("--streams", Some(value)) => streams = value,
            ("--seed", Some(value)) => number = value,
            _ => {
                let _ = writeln!(io::stderr(), "usage: e2e-soak [--minutes 10] [--streams 2000] [--seed 1]");
                return ExitCode::from(2);
            }
        }
    }
    let length = Duration::from_secs(minutes.saturating_mul(60));
    let plan = Plan::long(length, usize::try_from(streams).unwrap_or(usize::MAX), number);
    let report = soak::run(plan, |line| {
        let _ = writeln!(io::stdout(), "{line}");
    });
    let _ = writeln!(io::stdout(), "{report}");
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
