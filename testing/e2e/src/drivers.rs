//! Runs the clients of the SDK matrix: a process per family of SDKs with all its cells, and curl once per call.
//!
//! Invariants: a driver gets its plan on standard input and prints one JSON object as its last line; a driver that
//! fails is a panic with what it said. The Node packages lie in the target folder, where `cargo xtask setup` puts them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::matrix::{Cell, Driver, Fault, ROWS, Row, Seen, Surface};
use crate::python;

/// Set by the test runner; else `e2e-node` in the target folder is used.
const NODE_VARIABLE: &str = "TOLLBOOK_E2E_NODE";

/// What a driver printed.
#[derive(Debug, Default, Deserialize)]
pub struct Report {
    /// By package.
    pub versions: BTreeMap<String, String>,
    pub cells: Vec<Outcome>,
}

#[derive(Debug, Deserialize)]
pub struct Outcome {
    pub row: String,
    pub scenario: String,
    pub calls: Vec<Seen>,
}

/// Puts the driver's rows through all their cells.
pub fn run(driver: Driver, base_url: &str, cells: &[Cell]) -> Report {
    let own: Vec<&Cell> = cells.iter().filter(|cell| row(cell).driver == driver).collect();
    let plan = json!({"base_url": base_url, "cells": own}).to_string();
    match driver {
        Driver::Python | Driver::LiteLlm => {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/matrix.py");
            report(Command::new(python::interpreter()).arg(script), &plan)
        }
        Driver::Node => {
            let folder = node_folder();
            report(Command::new(node_program(&folder)).arg(node_script(&folder)), &plan)
        }
        Driver::Curl => Report { versions: BTreeMap::new(), cells: curl_cells(base_url, &own) },
    }
}

fn row(cell: &Cell) -> &'static Row {
    match ROWS.iter().find(|row| row.id == cell.row) {
        Some(row) => row,
        None => fail(&format!("no such row: {}", cell.row)),
    }
}

fn node_folder() -> PathBuf {
    let folder =
        std::env::var_os(NODE_VARIABLE).map_or_else(|| python::beside_the_tests("e2e-node"), PathBuf::from);
    if !folder.join("node_modules").exists() {
        fail(&format!("{} has no packages; make it: cargo xtask setup", folder.display()));
    }
    folder
}

/// Setup links one where the machine's own is missing or too old.
fn node_program(folder: &Path) -> PathBuf {
    let linked = folder.join("node");
    if linked.exists() { linked } else { PathBuf::from("node") }
}

/// Packages are found from the folder of the script, so it is put beside them.
fn node_script(folder: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node/matrix.mjs");
    let copy = folder.join("matrix.mjs");
    if let Err(error) = fs::copy(script, &copy) {
        fail(&format!("cannot copy to {}: {error}", copy.display()));
    }
    copy
}

fn report(command: &mut Command, plan: &str) -> Report {
    let output = with_input(command, plan);
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.trim_end().lines().last().unwrap_or_default();
    match serde_json::from_str(last) {
        Ok(report) if output.status.success() => report,
        _ => fail(&format!("{command:?}: {text}\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn with_input(command: &mut Command, input: &str) -> Output {
    let done = command
        // A proxy of the surroundings must not come between.
        .env("NO_PROXY", "*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            // The pipe is closed behind the plan.
            child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()))?;
            child.wait_with_output()
        });
    match done {
        Ok(output) => output,
        Err(error) => fail(&format!("cannot run {command:?}: {error}")),
    }
}

// --- curl ----------------------------------------------------------------------------------------------------------

fn curl_cells(base_url: &str, cells: &[&Cell]) -> Vec<Outcome> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = cells.iter().map(|cell| scope.spawn(|| curl_cell(base_url, cell))).collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

fn curl_cell(base_url: &str, cell: &Cell) -> Outcome {
    let calls = if matches!(cell.scenario, "rate" | "budget") { 2 } else { 1 };
    let surface = row(cell).surface;
    let calls = (0..calls).map(|_| curl(base_url, surface, cell)).collect();
    Outcome { row: cell.row.to_owned(), scenario: cell.scenario.to_owned(), calls }
}

fn curl(base_url: &str, surface: Surface, cell: &Cell) -> Seen {
    let stream = cell.scenario.starts_with("stream") || cell.scenario.ends_with("stream");
    let mut body = match surface {
        Surface::Responses => json!({"model": cell.model, "max_output_tokens": 64, "stream": stream,
            "input": "What is in the book?"}),
        Surface::Chat | Surface::Messages => json!({"model": cell.model, "max_tokens": 64, "stream": stream,
            "messages": [{"role": "user", "content": "What is in the book?"}]}),
    };
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    let (tools, choice, key) = match surface {
        Surface::Chat => (
            json!([{"type": "function", "function": {"name": "weather", "parameters": schema}}]),
            json!("required"),
            format!("authorization: Bearer {}", cell.key),
        ),
        Surface::Responses => (
            json!([{"type": "function", "name": "weather", "parameters": schema}]),
            json!("required"),
            format!("authorization: Bearer {}", cell.key),
        ),
        Surface::Messages => (
            json!([{"name": "weather", "input_schema": schema}]),
            json!({"type": "any"}),
            format!("x-api-key: {}", cell.key),
        ),
    };
    if let Some(object) = body.as_object_mut().filter(|_| cell.scenario.starts_with("tools")) {
        object.insert("tools".to_owned(), tools);
        object.insert("tool_choice".to_owned(), choice);
    }
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--no-buffer", "--retry", "2"]);
    command.args(["--write-out", "\n%{http_code}", "--header", "content-type: application/json"]);
    command.args(["--header", &key, "--header", "anthropic-version: 2023-06-01", "--data-binary", "@-"]);
    command.arg(format!("{base_url}{}", surface.path()));
    let output = with_input(&mut command, &body.to_string());
    let text = String::from_utf8_lossy(&output.stdout);
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", &text));
    let status = status.parse().unwrap_or(0);
    if status != 200 {
        return Seen { error: Some(fault(Some(status), body)), ..Seen::default() };
    }
    let mut seen = Seen::default();
    let mut arguments = String::new();
    if stream {
        for data in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
            let Ok(value) = serde_json::from_str::<Value>(data) else { continue };
            if value.get("error").is_some() || value.get("type").is_some_and(|kind| kind == "error") {
                seen.error = Some(fault(None, data));
            }
            read(&value, &mut seen, &mut arguments);
        }
    } else {
        // The refusal that a retry followed is printed too, in front.
        let values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
        let last = values.filter_map(Result::ok).last().unwrap_or_default();
        read(&last, &mut seen, &mut arguments);
    }
    if !arguments.is_empty() {
        seen.arguments = serde_json::from_str(&arguments).unwrap_or_default();
    }
    seen
}

fn fault(status: Option<u16>, message: &str) -> Fault {
    Fault { class: "curl".to_owned(), status, message: message.to_owned() }
}

/// Takes in a whole answer or one event, of either dialect.
fn read(value: &Value, seen: &mut Seen, arguments: &mut String) {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    if let Some(delta) = value.get("delta").and_then(Value::as_str) {
        seen.pieces = seen.pieces.saturating_add(1);
        if kind == "response.output_text.delta" {
            seen.text.push_str(delta);
        } else {
            arguments.push_str(delta);
        }
    }
    let texts = [
        "/choices/0/message/content",
        "/choices/0/delta/content",
        "/delta/text",
        "/content/0/text",
        "/output/0/content/0/text",
    ];
    for text in texts.iter().filter_map(|at| value.pointer(at)?.as_str()) {
        seen.text.push_str(text);
        seen.pieces = seen.pieces.saturating_add(u64::from(!text.is_empty()));
    }
    let pieces = [
        "/choices/0/message/tool_calls/0/function/arguments",
        "/choices/0/delta/tool_calls/0/function/arguments",
        "/delta/partial_json",
        "/output/0/arguments",
    ];
    for piece in pieces.iter().filter_map(|at| value.pointer(at)?.as_str()) {
        arguments.push_str(piece);
        seen.pieces = seen.pieces.saturating_add(u64::from(!piece.is_empty()));
    }
    if let Some(input) = value.pointer("/content/0/input") {
        seen.arguments = input.clone();
    }
    let first =
        |places: &[&str]| places.iter().find_map(|at| value.pointer(at).filter(|it| !it.is_null()).cloned());
    let word = |places: &[&str]| first(places)?.as_str().map(str::to_owned);
    let names = [
        "/choices/0/message/tool_calls/0/function/name",
        "/choices/0/delta/tool_calls/0/function/name",
        "/content_block/name",
        "/item/name",
        "/output/0/name",
        "/content/0/name",
    ];
    seen.tool = word(&names).or(seen.tool.take());
    let finishes =
        ["/choices/0/finish_reason", "/stop_reason", "/delta/stop_reason", "/status", "/response/status"];
    seen.finish = word(&finishes).or(seen.finish.take());
    let outputs = ["/usage/completion_tokens", "/usage/output_tokens", "/response/usage/output_tokens"];
    seen.output = first(&outputs).and_then(|output| output.as_u64()).or(seen.output);
}

#[allow(clippy::panic, reason = "test code: a panic is a failed test")]
fn fail(why: &str) -> ! {
    panic!("{why}")
}
