//! The operators' API against the document it serves, by questions that schemathesis makes of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tollbook_e2e::config::{ADMIN_KEY, Config};
use tollbook_e2e::gateway::Gateway;
use tollbook_e2e::python::schemathesis;
use tollbook_mock_upstream::MockUpstream;

/// Printed when it fails, so that the same questions can be asked again.
const SEED: &str = "20261130";
/// Questions of each operation.
const EXAMPLES: &str = "5";
/// A document without operations would be kept too.
const CASES_MIN: u32 = 200;
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";
/// Longest it may take, on a busy machine; alone it takes a minute at most.
const LIMIT: Duration = Duration::from_secs(240);

/// Questions by chance, within what the document allows and beyond.
#[test]
fn the_operators_api_answers_as_its_document_says() {
    println!("{}", answers_as_described("fuzzing", &[]));
}

/// Each bound and each kind of value that the document names, and what is just outside. The forms of models, upstreams and
/// plans have so many that they alone would take a minute; what is made by chance is asked of them above.
#[test]
fn at_the_bounds_of_its_document_too() {
    let few = "^/admin/v1/(apply|models|plans|upstreams)";
    println!("{}", answers_as_described("coverage", &["--workers", "4", "--exclude-path-regex", few]));
}

/// What it did.
fn answers_as_described(phase: &str, more: &[&str]) -> String {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let config = Config::new(&mock.url())
        .set("/config", json!({"source": "sql", "secrets_key": "0123456789abcdef0123456789abcdef"}))
        .set("/log", json!({"level": "warn", "format": "json"}));
    let gateway = Gateway::start(&config);
    let document = format!("http://{}/admin/v1/openapi.json", gateway.admin_addr().unwrap());
    let key = format!("Authorization: Bearer {ADMIN_KEY}");
    let began = Instant::now();
    let asked = [
        "run",
        &document,
        "-H",
        &key,
        "--seed",
        SEED,
        "--max-examples",
        EXAMPLES,
        "--checks",
        CHECKS,
        "--phases",
        phase,
        "--no-shrink",
        "--generation-database",
        "none",
        "--max-failures",
        "20",
        "--request-timeout",
        "10",
        "--suppress-health-check",
        "all",
        "--warnings",
        "off",
        "--no-color",
    ];
    let (good, said) = schemathesis(&gateway.data_dir(), &[&asked, more].concat());
    assert!(good, "seed {SEED}:\n{said}");
    // `592 generated, 592 passed`
    let cases = said.lines().find(|line| line.contains(" generated, ")).unwrap_or_default().trim();
    let told = format!("{phase}, seed {SEED}, {:?}: {cases}", began.elapsed());
    let count = cases.split(' ').next().and_then(|count| count.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count >= CASES_MIN), "it says what it did:\n{said}");
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    // What it was asked has broken nothing.
    assert_eq!(gateway.admin_get("/admin/v1/openapi.json").unwrap().status, 200);
    told
}
