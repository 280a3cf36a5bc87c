//! `tollbook simulate` from outside: what it prints, what it writes, which command lines and traces it refuses.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollbook"));
    command.arg("simulate").args(arguments).env_clear().output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A file with a made trace.
fn made(folder: &TempDir, kind: &str, length: &str) -> PathBuf {
    let output = simulate(&["--make", kind, "--for", length, "--seed", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let path = folder.path().join(format!("{kind}.csv"));
    std::fs::write(&path, output.stdout).unwrap();
    path
}

#[test]
fn configurations_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let trace = made(&folder, "conv", "10m");
    let arguments = [
        trace.to_str().unwrap(),
        "--load",
        "1.5",
        "--config",
        "booking=held,window=7x10s,estimator=ema",
        "--config",
        "booking=forecast",
    ];
    let output = simulate(&arguments);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("trace  booking"), "{}", lines[0]);
    assert!(lines[1].starts_with("conv   held 7x10s ema") && lines[2].starts_with("conv   forecast "));
    // The same again, and as JSON.
    assert_eq!(simulate(&arguments).stdout, output.stdout);
    let json = simulate(&[&arguments[..], &["--json"]].concat());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let utilisation = |run: usize| json["runs"][run]["utilisation"].as_f64().unwrap();
    assert!(utilisation(0) > 0.5 && utilisation(1) > utilisation(0), "{json}");
    assert_eq!(json["runs"][0]["configuration"], "held 7x10s ema");
}

#[test]
fn decisions_have_a_row_per_call() {
    let folder = tempfile::tempdir().unwrap();
    let trace = made(&folder, "code", "5m");
    let file = folder.path().join("decisions.csv");
    let output = simulate(&[trace.to_str().unwrap(), "--load", "3", "--decisions", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (trace, decisions) =
        (std::fs::read_to_string(trace).unwrap(), std::fs::read_to_string(file).unwrap());
    assert_eq!(decisions.lines().count(), trace.lines().count());
    let mut rows = decisions.lines();
    assert_eq!(
        rows.next(),
        Some("id,arrival_s,key,admitted,start_s,pace_s,input_tokens,output_tokens,expected_tokens")
    );
    for (row, call) in rows.zip(trace.lines().skip(1)) {
        let (row, call): (Vec<&str>, Vec<&str>) = (row.split(',').collect(), call.split(',').collect());
        assert_eq!([row[1], row[6], row[7], row[2]], [call[0], call[1], call[2], call[3]]);
        assert!(["0", "1"].contains(&row[3]));
    }
}

#[test]
fn a_report_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let output =
        simulate(&["--make", "conv", "--for", "5m", "--load", "2", "--report", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(file).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
}

#[test]
fn a_made_trace_can_be_replayed_at_once() {
    let output = simulate(&["--make", "on-off", "--for", "10m", "--limit", "100000", "--per-key"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("100,000 per key"));
    let short = simulate(&["--make", "conv", "--for", "1m", "--limit", "100000"]);
    assert_eq!(short.status.code(), Some(0));
    assert!(text(&short.stderr).contains("too short to be judged"));
}

#[test]
fn a_bad_trace_is_two_and_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.csv");
    std::fs::write(&path, "arrival_s,input_tokens,output_tokens\n0,1,2\n1,-5,2\n").unwrap();
    let decisions = folder.path().join("decisions.csv");
    let (path, written) = (path.to_str().unwrap(), decisions.to_str().unwrap());
    let output = simulate(&[path, "--limit", "9", "--decisions", written]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    assert_eq!(text(&output.stderr), format!("tollbook: {path}:3: input_tokens is negative: -5\n"));
    assert!(!decisions.exists());
    let absent = folder.path().join("absent.csv");
    let output = simulate(&[absent.to_str().unwrap(), "--limit", "9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("absent.csv: cannot read the trace"), "{}", text(&output.stderr));
}

#[test]
fn wrong_command_lines_are_two() {
    let folder = tempfile::tempdir().unwrap();
    let trace = made(&folder, "code", "3m");
    let trace = trace.to_str().unwrap();
    for (arguments, want) in [
        (&["--limit", "5"][..], "give a trace"),
        (&[trace], "give --limit N or --load X"),
        (&[trace, "--limit", "0"], "--limit is at least 1"),
        (&[trace, "--load", "0"], "--load: '0'"),
        (&[trace, "--load", "x"], "--load: 'x'"),
        (&[trace, "--load", "1", "--limit", "1"], "cannot be used with"),
        (&[trace, "--limit", "5", "--config", "booking=held,window=60s"], "window is minute, or"),
        (&[trace, "--limit", "5", "--strict", "--booking", "held"], "strict goes with booking=forecast"),
        (&[trace, "--limit", "5", "--config", "", "--window", "minute"], "cannot be used with"),
        (
            &[trace, "--limit", "5", "--config", "", "--config", "", "--decisions", "x"],
            "--decisions takes one",
        ),
        (&[trace, "--limit", "9000000001"], "the limit 9000000001 is above 9000000000"),
        (&[trace, "--limit", "9007199254740993"], "the limit 9007199254740993 is above 9000000000"),
        (&[trace, "--limit", "18446744073709551616"], "invalid value '18446744073709551616'"),
        (
            &[trace, "--limit", "9007199254740992", "--booking", "held"],
            "the limit 9007199254740992 is above 9007199254740991",
        ),
        (&[trace, "--limit", "5", "--pace", "30ms"], "--pace is"),
        (&[trace, "--limit", "5", "--pace", "2s-3s"], "--pace is"),
        (&["--make", "talk"], "--make is one of conv"),
        (&[trace, "--make", "conv"], "cannot be used with"),
        (&["--make", "conv", "--for", "8d", "--limit", "1"], "--for is at most 7d"),
    ] {
        let output = simulate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(want), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn an_output_that_cannot_be_written_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let trace = made(&folder, "code", "3m");
    let file = folder.path().join("no").join("decisions.csv");
    let output = simulate(&[trace.to_str().unwrap(), "--limit", "5", "--decisions", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    assert!(text(&output.stderr).starts_with("tollbook: cannot write "), "{}", text(&output.stderr));
}

#[test]
fn no_trace_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let trace = made(&folder, "conv", "5m");
    let before = std::fs::read(&trace).unwrap();
    let trace = trace.to_str().unwrap();
    let detour = folder.path().join(".").join("conv.csv");
    for (option, file) in
        [("--report", trace), ("--decisions", trace), ("--report", detour.to_str().unwrap())]
    {
        let output = simulate(&[trace, "--load", "2", option, file]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(text(&output.stderr).ends_with("is a trace, it would be overwritten\n"), "{option}");
    }
    assert_eq!(std::fs::read(trace).unwrap(), before);
    let file = folder.path().join("out");
    let file = file.to_str().unwrap();
    let output = simulate(&[trace, "--load", "2", "--report", file, "--decisions", file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("name the same file"));
}
