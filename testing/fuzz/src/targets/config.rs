//! Configuration files: loaded whole or not at all, the same each time, and without telling what must stay secret.

use std::path::Path;

use tollbook::config::{LoadError, PROBLEMS_MAX, Setup, load_text, read_text};

use super::{Target, gist, must, same, signature, size};
use crate::corpus::Corpus;

pub(super) const TARGET: Target = Target {
    name: "config",
    check,
    dictionary: &[
        "limits:\n",
        "  - ",
        "tenants:\n",
        "models:\n",
        "upstreams:\n",
        "{ measure: requests, window: 1m, ceiling: 1 }",
        "ceiling: ",
        "period: day",
        "measure: cost",
        "strictness: hard",
        "window: 60s",
        "${SECRET}",
        "${PORT}",
        "${NOPE}",
        "${NOPE:-x}",
        "$${",
        "null",
        "-1",
        "0",
        "1e9",
        "9007199254740992",
        "99999999999999999999",
        "&a ",
        "*a",
        "!!str ",
        "|\n  x\n",
        ">-\n",
        "---\n",
        "...\n",
        "\t",
        "# note\n",
        "\"",
        "'",
        "[",
        "]",
        "{",
        "}",
        ": ",
        "\u{FEFF}",
        "é",
        "? ",
        "<<: ",
        "api_key: ${SECRET}",
        "secret: ${SECRET}",
        "projects:\n",
        "keys:\n",
        "price: { input: \"1.00\", output: \"4.00\" }",
        "estimator: { kind: ema }",
        "zone: Europe/Berlin",
        "plan: free\n",
        "hold: worst",
        "on_expiry: charge",
        "when_away: closed",
        "booking: forecast",
    ],
    corpus: || {
        let mut corpus = Corpus::read("config")?;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.example.yaml");
        corpus.inputs.insert("example".to_owned(), std::fs::read(path)?);
        Ok(corpus)
    },
    runs: 3_000,
};

/// Of the environment; it must show nowhere.
const SECRET: &str = "hush-7f3a-secret-value";

fn lookup(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("9000".to_owned()),
        "NOPE" => None,
        _ => Some(SECRET.to_owned()),
    }
}

fn load(text: &str) -> Result<Setup, LoadError> {
    load_text("t.yaml", text, Path::new("/nowhere"), &lookup)
}

fn check(input: &[u8]) -> Result<u64, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(signature("no text")) };
    match load(text) {
        Ok(setup) => loaded(text, &setup),
        Err(LoadError::Read { file, source }) => Err(format!("{file} was read: {source}")),
        Err(LoadError::Invalid(report)) => {
            same("loaded twice", &load(text).err().map(|e| e.to_string()), &Some(report.to_string()))?;
            // A lone CR ends a line too.
            let lines = text.split(['\n', '\r']).count();
            let count = report.problems.len();
            must((1..=PROBLEMS_MAX).contains(&count), || format!("{count} problems"))?;
            for problem in &report.problems {
                let line = usize::try_from(problem.place.line).unwrap_or(usize::MAX);
                must((1..=lines).contains(&line), || format!("a place outside of the file: {report}"))?;
                must(!problem.what.is_empty(), || format!("a problem without words: {report}"))?;
            }
            must(!report.to_string().contains(SECRET), || format!("the secret is told: {report}"))?;
            let first = report.problems.first().map(|problem| problem.what.as_str()).unwrap_or_default();
            let count = size(u64::try_from(count).unwrap_or(0));
            let path = report.problems.first().map(|problem| gist(&problem.path)).unwrap_or_default();
            Ok(signature(&format!("{path} {} {count}", gist(first))))
        }
    }
}

/// Everything of the file is in the set-up, and a file with one mistake more is not loaded at all.
fn loaded(text: &str, setup: &Setup) -> Result<u64, String> {
    let (file, _) =
        read_text("t.yaml", text, &lookup).map_err(|report| format!("not read again: {report}"))?;
    let keys: usize =
        file.tenants.iter().flat_map(|tenant| &tenant.projects).map(|project| project.keys.len()).sum();
    let counts = [
        ("upstreams", file.upstreams.len(), setup.gateway.upstreams.len()),
        ("models", file.models.len(), setup.snapshot.models.len()),
        ("keys", keys, setup.snapshot.catalog.keys().len()),
    ];
    for (what, given, taken) in counts {
        must(given == taken, || format!("{given} {what} are given, {taken} were taken"))?;
    }
    let shown = format!("{setup:?}");
    must(!shown.contains(SECRET), || "the secret is shown".to_owned())?;
    let more = format!("{text}\nno_such_field_at_all: 1\n");
    must(load(&more).is_err(), || "a file with an unknown field was loaded".to_owned())?;
    Ok(signature(&format!("loaded {} {} {}", file.upstreams.len(), file.models.len(), keys)))
}
