//! The SDK matrix: unmodified clients, all of them, through the built program.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, quota};
use tollbook_e2e::drivers::{self, Report};
use tollbook_e2e::gateway::Gateway;
use tollbook_e2e::journal::{Entry, Journal};
use tollbook_e2e::matrix::{Cell, Driver, Evidence, OUTPUT, REFUSAL, ROWS, Row, SCENARIOS, Surface, page};
use tollbook_e2e::tap::Tap;
use tollbook_mock_upstream::{Generate, MockUpstream, Script};

const PAGE: &str = "../../docs/reference/sdk-matrix.md";
/// Set by `cargo xtask matrix`: write the page instead of comparing it.
const WRITE_VARIABLE: &str = "TOLLBOOK_WRITE_PAGES";
const DRIVERS: [Driver; 4] = [Driver::LiteLlm, Driver::Python, Driver::Node, Driver::Curl];

#[test]
fn every_client_passes_every_scenario() {
    let mock = provider();
    let cells = cells();
    let mut gateway = Gateway::start(&config(&mock, &cells));
    let tap = Tap::start(gateway.addr()).unwrap();
    let reports = reports(&tap.url(), &cells);
    assert!(gateway.terminate().success());
    let journal = Journal::read(&gateway.data_dir());
    let mut entries: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
    for entry in journal.entries.iter().filter(|entry| entry.side == "tenant") {
        entries.entry(&entry.key_id).or_default().push(entry.clone());
    }
    let failed: BTreeMap<(&str, &str), String> = cells
        .iter()
        .filter_map(|cell| {
            let key = format!("{}-key", cell.id());
            let charged = entries.get(key.as_str()).map(Vec::as_slice).unwrap_or_default();
            let why = judge(cell, &reports, &tap, charged).err()?;
            Some(((cell.row, cell.scenario), why))
        })
        .collect();
    let text = page(
        |row, scenario| !failed.contains_key(&(row.id, scenario)),
        |row, package| version(&reports, row, package),
    );
    assert!(failed.is_empty(), "{} cells fail:\n{}", failed.len(), list(&failed));
    let all: usize = entries.values().map(Vec::len).sum();
    assert_eq!(mock.calls_at_rest().len(), all, "each call of the provider is one entry");
    written(&text);
}

/// Its answer depends on the model it is asked for.
fn provider() -> MockUpstream {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    mock.set_default(Script::output(OUTPUT));
    mock.set_for_model("refuses", Script::error(400, REFUSAL));
    let breaks = Generate { output_llm_tokens: Some(OUTPUT), error_at_chunk: Some(2), ..Generate::default() };
    mock.set_for_model("breaks", breaks.into());
    mock
}

fn cells() -> Vec<Cell> {
    let rows = ROWS.iter().flat_map(|row| SCENARIOS.iter().map(move |(scenario, _)| (row, *scenario)));
    rows.map(|(row, scenario)| Cell {
        row: row.id,
        scenario,
        model: model(row.surface, scenario),
        key: Cell::api_key(row.id, scenario),
    })
    .collect()
}

fn model(surface: Surface, scenario: &str) -> &'static str {
    match (surface, scenario) {
        (Surface::Messages, "error") => "messages-refuses",
        (Surface::Messages, "stream_error") => "messages-breaks",
        (Surface::Messages, _) => MESSAGES_MODEL,
        (_, "error") => "chat-refuses",
        (_, "stream_error") => "chat-breaks",
        (_, _) => CHAT_MODEL,
    }
}

fn config(mock: &MockUpstream, cells: &[Cell]) -> Config {
    let mut config = Config::new(&mock.url());
    for (prefix, upstream) in [("chat", "open"), ("messages", "anthropic")] {
        for there in ["refuses", "breaks"] {
            let model = json!({"name": format!("{prefix}-{there}"), "upstream": upstream,
                "upstream_model": there, "price": {"input": "1.00", "output": "4.00"}});
            config = config.push("/models", model);
        }
    }
    cells.iter().fold(config, |config, cell| config.simple_tenant(&cell.id(), &limits(cell.scenario)))
}

fn limits(scenario: &str) -> Value {
    match scenario {
        // Long enough for the slowest client to ask a second time within it.
        "rate" => json!([{"measure": "requests", "window": "8s", "ceiling": 1}]),
        "budget" => json!([quota("requests", "lifetime", "1")]),
        _ => json!([quota("cost", "month", "100")]),
    }
}

/// All drivers at once: much of their time is waiting.
fn reports(base_url: &str, cells: &[Cell]) -> Vec<(Driver, Report)> {
    std::thread::scope(|scope| {
        let threads =
            DRIVERS.map(|driver| scope.spawn(move || (driver, drivers::run(driver, base_url, cells))));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn judge(cell: &Cell, reports: &[(Driver, Report)], tap: &Tap, journal: &[Entry]) -> Result<(), String> {
    let row = ROWS.iter().find(|row| row.id == cell.row).ok_or("no such row")?;
    let outcome = reports
        .iter()
        .flat_map(|(_, report)| &report.cells)
        .find(|outcome| outcome.row == cell.row && outcome.scenario == cell.scenario)
        .ok_or("the driver did not run it")?;
    let passed = tap.passed(&cell.key);
    Evidence { row, seen: &outcome.calls, passed: &passed, journal }.judge(cell.scenario)
}

fn version(reports: &[(Driver, Report)], row: &Row, package: &str) -> String {
    let report = reports.iter().find(|(driver, _)| *driver == row.driver);
    report.and_then(|(_, report)| report.versions.get(package)).cloned().unwrap_or_default()
}

fn list(failed: &BTreeMap<(&str, &str), String>) -> String {
    let lines: Vec<String> =
        failed.iter().map(|((row, scenario), why)| format!("{row}, {scenario}: {why}")).collect();
    lines.join("\n")
}

fn written(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    for (stands, made) in stands.lines().zip(text.lines()) {
        assert_eq!(stands, made, "the page is stale: cargo xtask matrix");
    }
    assert_eq!(stands.len(), text.len(), "the page is stale: cargo xtask matrix");
}
