//! What lies in `deploy/` speaks of things that exist: metrics and labels in queries, runbooks, values of the chart.
//!
//! The metrics are those of the generated page, which is checked against the program. Templates are only looked at for
//! their shape: blocks that are not closed, values that are not declared.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::line_at;
use super::{Finding, Tree};

const METRICS: &str = "docs/reference/metrics.md";
const RUNBOOKS: &str = "docs/operations/alerts.md";
const RULES: &str = "deploy/prometheus/tollbook.rules.yml";
const RULES_TEST: &str = "deploy/prometheus/tollbook.rules.test.yml";
const CHART: &str = "deploy/helm/tollbook/";
const DOCKERFILE: &str = "deploy/docker/Dockerfile";
const TOOLCHAIN: &str = "rust-toolchain.toml";
const PREFIX: &str = "tollbook_";
/// Labels that a scrape adds, and a histogram's own.
const COMMON: [&str; 3] = ["job", "instance", "le"];

/// Labels of each metric, by the name it has in a query.
type Known<'a> = BTreeMap<String, BTreeSet<&'a str>>;

/// Every query of dashboards and alerts names metrics that exist, with labels that they have.
pub(super) fn queries(tree: &Tree, out: &mut Vec<Finding>) {
    let Some(page) = tree.text(METRICS) else { return };
    let known = known(page);
    for (path, text) in tree.files.iter().filter(|(path, _)| has_queries(path)) {
        for (number, line) in text.lines().enumerate() {
            for message in faults(line, &known) {
                out.push(Finding { path: path.clone(), line: number + 1, message });
            }
        }
    }
}

fn has_queries(path: &str) -> bool {
    matches!(path, RULES | RULES_TEST)
        || (path.starts_with("deploy/grafana/") && path.rsplit('.').next() == Some("json"))
}

fn known(page: &str) -> Known<'_> {
    let mut known = Known::new();
    for (name, kind, labels) in rows(page) {
        // `model (configured names, …); part (input, …)`
        let names = labels.split("; ").filter_map(|label| label.split(" (").next());
        let labels: BTreeSet<&str> = names.map(str::trim).filter(|name| *name != "–").collect();
        let parts: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        for part in parts {
            known.insert(format!("{name}{part}"), labels.clone());
        }
    }
    known
}

/// The rows of the generated table: name, kind, labels.
fn rows(page: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?;
        let row = (name, cells.next()?, cells.next()?);
        name.starts_with(PREFIX).then_some(row)
    })
}

/// What is wrong with the queries in one line.
fn faults(line: &str, known: &Known<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut labels: BTreeSet<&str> = COMMON.into();
    for (at, _) in line.match_indices(PREFIX) {
        let rest = line.get(at..).unwrap_or_default();
        let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        let Some(has) = known.get(name) else {
            faults.push(format!("there is no metric '{name}'"));
            continue;
        };
        labels.extend(has);
        let selector = rest.get(name.len()..).and_then(|rest| rest.strip_prefix('{')?.split('}').next());
        for pair in selector.unwrap_or_default().split(',').filter(|pair| !pair.is_empty()) {
            let label = pair.split(['=', '!', '~']).next().unwrap_or_default().trim();
            if !has.contains(label) && !COMMON.contains(&label) {
                faults.push(format!("metric '{name}' has no label '{label}'"));
            }
        }
    }
    for (at, _) in line.match_indices("by (") {
        let list = line.get(at + "by (".len()..).and_then(|rest| rest.split(')').next());
        for label in list.unwrap_or_default().split(',').map(str::trim) {
            if line.contains(PREFIX) && !labels.contains(label) {
                faults.push(format!("no metric of this query has a label '{label}'"));
            }
        }
    }
    faults
}

/// Every alert says what to do, where that stands; the chart's rules are the same.
pub(super) fn alerts(tree: &Tree, out: &mut Vec<Finding>) {
    let Some(rules) = tree.text(RULES) else { return };
    let runbooks = tree.text(RUNBOOKS).unwrap_or_default();
    let mut at = 0;
    for block in rules.split("- alert: ") {
        let line = line_at(rules, at);
        let name = block.lines().next().unwrap_or_default();
        let is_first = at == 0;
        at += block.len() + "- alert: ".len();
        if is_first {
            continue;
        }
        let link = format!("runbook: {RUNBOOKS}#{}", name.to_lowercase());
        if !block.lines().any(|line| line.trim() == link) {
            out.push(Finding { path: RULES.to_owned(), line, message: format!("{name} has no '{link}'") });
        }
        if !runbooks.lines().any(|line| line.strip_prefix("## ") == Some(name)) {
            let message = format!("{RUNBOOKS} has no section '{name}'");
            out.push(Finding { path: RULES.to_owned(), line, message });
        }
    }
    let copy = format!("{CHART}files/tollbook.rules.yml");
    if tree.text(&copy).is_some_and(|copy| copy != rules) {
        let message = format!("differs from {RULES}; copy it");
        out.push(Finding { path: copy, line: 0, message });
    }
}

/// Templates close what they open and use values that are declared.
pub(super) fn chart(tree: &Tree, out: &mut Vec<Finding>) {
    let Some(values) = tree.text(&format!("{CHART}values.yaml")) else { return };
    let declared = paths(values);
    let templates = format!("{CHART}templates/");
    for (path, text) in tree.files.iter().filter(|(path, _)| path.starts_with(&templates)) {
        let actions = || text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}").map(|(a, _)| a));
        let begins = |words: &[&str]| {
            let first = |action: &str| {
                let action = action.trim_start_matches('-').trim_start();
                action.split([' ', '-']).next().is_some_and(|word| words.contains(&word))
            };
            actions().filter(|action| first(action)).count()
        };
        let (opened, closed) = (begins(&["if", "with", "range", "define"]), begins(&["end"]));
        if opened != closed {
            let message = format!("{opened} blocks are opened and {closed} closed");
            out.push(Finding { path: path.clone(), line: 0, message });
        }
        if text.matches("{{").count() != text.matches("}}").count() {
            let message = "an action is not closed".to_owned();
            out.push(Finding { path: path.clone(), line: 0, message });
        }
        for (at, _) in text.match_indices(".Values.") {
            let rest = text.get(at + ".Values.".len()..).unwrap_or_default();
            let value =
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').next().unwrap_or_default();
            if !declared.contains(value) {
                let message = format!("values.yaml has no '{value}'");
                out.push(Finding { path: path.clone(), line: line_at(text, at), message });
            }
        }
    }
}

/// All paths of keys of a plain YAML file, joined by dots.
fn paths(yaml: &str) -> BTreeSet<String> {
    let mut stack: Vec<(usize, &str)> = Vec::new();
    let mut paths = BTreeSet::new();
    for line in yaml.lines() {
        let indent = line.len() - line.trim_start().len();
        let Some((key, _)) = line.trim_start().split_once(':') else { continue };
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric()) {
            continue;
        }
        stack.retain(|(depth, _)| *depth < indent);
        stack.push((indent, key));
        paths.insert(stack.iter().map(|(_, key)| *key).collect::<Vec<_>>().join("."));
    }
    paths
}

/// The image is built with the project's own toolchain, does not run as root, and names no registry.
pub(super) fn images(tree: &Tree, out: &mut Vec<Finding>) {
    for (path, text) in tree.files.iter().filter(|(path, _)| path.starts_with("deploy/")) {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let image = line.strip_prefix("FROM ").or_else(|| line.strip_prefix("image: "));
            let host = image.and_then(|image| image.split_once('/')).map(|(host, _)| host.trim_matches('"'));
            if host.is_some_and(|host| !host.contains("{{") && host.contains(['.', ':'])) {
                let message = "an image names a registry".to_owned();
                out.push(Finding { path: path.clone(), line: number + 1, message });
            }
        }
    }
    let (Some(file), Some(toolchain)) = (tree.text(DOCKERFILE), tree.text(TOOLCHAIN)) else { return };
    let whole = |message: String| Finding { path: DOCKERFILE.to_owned(), line: 0, message };
    let channel = toolchain.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next());
    let channel = channel.and_then(|channel| channel.rsplit_once('.')).map_or("", |(minor, _)| minor);
    if !file.contains(&format!("FROM rust:{channel}-")) {
        out.push(whole(format!("is not built with Rust {channel}")));
    }
    let user = file.lines().rev().find_map(|line| line.strip_prefix("USER "));
    let is_number = |user: &str| user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0));
    if !user.is_some_and(is_number) {
        out.push(whole("does not end as a user with a number that is not root's".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;

    const PAGE: &str = "# M\n| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n\
                        | `tollbook_a_total` | counter | pool (p, q); status (2xx) | A | 2 |\n\
                        | `tollbook_b_seconds` | histogram | – | B | 1 |\n";
    const BOARD: &str = "deploy/grafana/t.json";

    #[test]
    fn a_query_of_what_there_is_passes() {
        let good = "\"expr\": \"sum by (pool, le) (rate(tollbook_a_total{job=~\\\"$job\\\",status!=\\\"2xx\\\"}[5m]))\"\n\
                    \"expr\": \"rate(tollbook_b_seconds_bucket[5m])\"\n";
        let series = "- { series: 'tollbook_a_total{instance=\"a\",pool=\"p\"}', values: '1x60' }\n";
        let files = [(METRICS, PAGE), (BOARD, good), (RULES_TEST, series)];
        assert!(found(queries, &tree(&files)).is_empty());
    }

    #[test]
    fn a_query_of_what_there_is_not_is_found() {
        let bad = "tollbook_a\ntollbook_a_total{verb=\"x\"}\nsum by (verb) (tollbook_a_total)\ntollbook_b_seconds\n";
        let want = [
            "deploy/grafana/t.json:1: there is no metric 'tollbook_a'",
            "deploy/grafana/t.json:2: metric 'tollbook_a_total' has no label 'verb'",
            "deploy/grafana/t.json:3: no metric of this query has a label 'verb'",
            "deploy/grafana/t.json:4: there is no metric 'tollbook_b_seconds'",
        ];
        assert_eq!(found(queries, &tree(&[(METRICS, PAGE), (BOARD, bad)])), want);
        let series = "- { series: 'tollbook_a_total{mode=\"p\"}', values: '1x60' }\n";
        let want =
            ["deploy/prometheus/tollbook.rules.test.yml:1: metric 'tollbook_a_total' has no label 'mode'"];
        assert_eq!(found(queries, &tree(&[(METRICS, PAGE), (RULES_TEST, series)])), want);
    }

    #[test]
    fn an_alert_needs_its_runbook_and_the_chart_its_copy() {
        let rules =
            "rules:\n  - alert: A\n    runbook: docs/operations/alerts.md#a\n  - alert: B\n    expr: x\n";
        let copy = format!("{CHART}files/tollbook.rules.yml");
        let tree = tree(&[(RULES, rules), (RUNBOOKS, "# R\n## A\n"), (&copy, "old")]);
        let want = [
            format!("{RULES}:4: B has no 'runbook: {RUNBOOKS}#b'"),
            format!("{RULES}:4: {RUNBOOKS} has no section 'B'"),
            format!("{copy}: differs from {RULES}; copy it"),
        ];
        assert_eq!(found(alerts, &tree), want);
    }

    #[test]
    fn templates_are_closed_and_their_values_declared() {
        let (values, file) = (format!("{CHART}values.yaml"), format!("{CHART}templates/a.yaml"));
        let declared = "image:\n  tag: x   # a: b\nname: y\n";
        let good = "{{- if .Values.image.tag }}\n{{ .Values.name }}\n{{- end }}\n";
        assert!(found(chart, &tree(&[(&values, declared), (&file, good)])).is_empty());
        let bad = "{{- with .Values.image }}\n{{ .Values.image.name }}\n{{- range .x\n";
        let want = [
            format!("{file}: 1 blocks are opened and 0 closed"),
            format!("{file}: an action is not closed"),
            format!("{file}:2: values.yaml has no 'image.name'"),
        ];
        assert_eq!(found(chart, &tree(&[(&values, declared), (&file, bad)])), want);
    }

    #[test]
    fn images_are_plain_and_not_root() {
        let toolchain = (TOOLCHAIN, "channel = \"1.95.0\"\n");
        let good = "FROM rust:1.95-bookworm AS build\nFROM debian:bookworm-slim\nUSER 10001:10001\n";
        assert!(found(images, &tree(&[toolchain, (DOCKERFILE, good)])).is_empty());
        let bad = "FROM registry.example/rust:1.94\nUSER 0\n";
        let want = [
            format!("{DOCKERFILE}:1: an image names a registry"),
            format!("{DOCKERFILE}: is not built with Rust 1.95"),
            format!("{DOCKERFILE}: does not end as a user with a number that is not root's"),
        ];
        assert_eq!(found(images, &tree(&[toolchain, (DOCKERFILE, bad)])), want);
    }
}
