//! Writes the pages of `docs/reference`, which are generated from the program itself, or checks them.
//!
//! The program prints facts as JSON; the pages are made here, so the product carries no Markdown.
//! A command that the program does not have yet leaves its page out, and says so.
//! The configuration that the READMEs show is loaded by the program, so that it cannot go stale either.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::repo::Repo;
use crate::run::{Console, output};
use crate::schema_page;

/// One generated page: the file, the command of `tollbook` that prints its facts, and what makes text of them.
struct Page {
    file: &'static str,
    command: &'static str,
    render: fn(&Value) -> Result<String>,
}

const FOLDER: &str = "docs/reference";
const PAGES: [Page; 3] = [
    Page { file: "configuration.md", command: "schema", render: schema_page::configuration },
    Page { file: "metrics.md", command: "metrics-list", render: metrics },
    Page { file: "errors.md", command: "errors-list", render: errors },
];

/// `cargo xtask docs`: builds the program first.
pub fn docs(repo: &Repo, console: &Console, only_check: bool) -> Result<()> {
    let (_, target) = repo.metadata()?;
    console.run(repo.cargo().args(["build", "--workspace", "--bins"]))?;
    if only_check { check(repo, console, &target) } else { write(repo, console, &target) }
}

/// Compares every page with what the built program says.
pub fn check(repo: &Repo, console: &Console, target: &Path) -> Result<()> {
    let mut stale = Vec::new();
    for (page, text) in made(repo, console, target)? {
        let file = format!("{FOLDER}/{}", page.file);
        let stands = std::fs::read_to_string(repo.root().join(&file)).unwrap_or_default();
        if stands != text {
            stale.push(format!("{file}: {}", first_difference(&stands, &text)));
        }
    }
    if !stale.is_empty() {
        bail!("run 'cargo xtask docs' and commit the result:\n{}", stale.join("\n"));
    }
    examples(repo, console, target)
}

/// What the examples of the READMEs take from the environment.
const VARIABLES: [(&str, &str); 3] = [
    ("OPENAI_API_KEY", "example"),
    ("ANTHROPIC_API_KEY", "example"),
    ("CHAT_PROD_HASH", "blake3:1111111111111111111111111111111111111111111111111111111111111111"),
];

/// Has the program check the configuration in each README.
fn examples(repo: &Repo, console: &Console, target: &Path) -> Result<()> {
    let program = target.join("debug").join("tollbook");
    if !program.exists() || !has_command(&output(Command::new(&program).arg("help"))?, "check") {
        console.line("    skipped the READMEs' examples: tollbook has no command 'check'");
        return Ok(());
    }
    for readme in ["README.md", "README.zh-CN.md"] {
        let text = std::fs::read_to_string(repo.root().join(readme))
            .with_context(|| format!("cannot read {readme}"))?;
        let example = fenced(&text, "yaml").with_context(|| format!("{readme} shows no configuration"))?;
        let file = target.join("readme-example.yaml");
        std::fs::write(&file, example).context("cannot write the example")?;
        let mut check = repo.command(&program);
        check.args(["check", "-c"]).arg(&file).envs(VARIABLES);
        output(&mut check).with_context(|| format!("the configuration in {readme} does not load"))?;
    }
    Ok(())
}

/// The first fenced block of a language.
fn fenced<'a>(text: &'a str, language: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("```{language}\n"))?;
    rest.split_once("```").map(|(block, _)| block)
}

fn write(repo: &Repo, console: &Console, target: &Path) -> Result<()> {
    let folder = repo.root().join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {FOLDER}"))?;
    for (page, text) in made(repo, console, target)? {
        std::fs::write(folder.join(page.file), text)
            .with_context(|| format!("cannot write {}", page.file))?;
        console.line(&format!("    wrote {FOLDER}/{}", page.file));
    }
    Ok(())
}

fn made(repo: &Repo, console: &Console, target: &Path) -> Result<Vec<(&'static Page, String)>> {
    let program = target.join("debug").join("tollbook");
    if !program.exists() {
        console.line("    skipped: there is no program tollbook");
        return Ok(Vec::new());
    }
    let known = output(Command::new(&program).arg("help")).context("tollbook has no help")?;
    let mut made = Vec::new();
    for page in &PAGES {
        let Page { file, command, render } = page;
        if !has_command(&known, command) {
            console.line(&format!("    skipped {file}: tollbook has no command '{command}'"));
            continue;
        }
        let printed = output(repo.command(&program).arg(command))?;
        let facts =
            serde_json::from_str(&printed).with_context(|| format!("'tollbook {command}' is not JSON"))?;
        let text = render(&facts).with_context(|| format!("'tollbook {command}'"))?;
        made.push((page, format!("<!-- Generated by `cargo xtask docs`; do not edit. -->\n\n{text}")));
    }
    Ok(made)
}

fn has_command(help: &str, command: &str) -> bool {
    help.lines().any(|line| line.starts_with("  ") && line.split_whitespace().next() == Some(command))
}

fn first_difference(stands: &str, made: &str) -> String {
    let differs = stands.lines().zip(made.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or_else(|| stands.lines().count().min(made.lines().count()));
    let wanted = made.lines().nth(line).unwrap_or("(end of file)");
    format!("differs at line {}, should be: {wanted}", line + 1)
}

/// A page of an array of objects: one row each, sorted by the first column.
fn table(facts: &Value, keys: &[(&str, &str)]) -> Result<String> {
    let rows = facts.as_array().context("not an array")?;
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let mut cells = Vec::with_capacity(keys.len());
        for (position, (key, _)) in keys.iter().enumerate() {
            let cell = cell(row.get(key).with_context(|| format!("a row has no '{key}'"))?);
            cells.push(if position == 0 { format!("`{cell}`") } else { cell });
        }
        lines.push(format!("| {} |", cells.join(" | ")));
    }
    lines.sort();
    let titles: Vec<&str> = keys.iter().map(|(_, title)| *title).collect();
    let rule = vec!["---"; keys.len()];
    Ok(format!("| {} |\n| {} |\n{}\n", titles.join(" | "), rule.join(" | "), lines.join("\n")))
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "–".to_owned(),
        Value::String(text) if text.is_empty() => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts.is_empty() => "–".to_owned(),
        Value::Array(parts) => parts.iter().map(cell).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    };
    text.replace('|', "\\|").replace('\n', " ")
}

fn metrics(facts: &Value) -> Result<String> {
    let keys = [
        ("name", "metric"),
        ("kind", "kind"),
        ("labels", "labels"),
        ("help", "meaning"),
        ("series_max", "series at most"),
    ];
    let mut rows = facts.clone();
    for row in rows.as_array_mut().context("not an array")? {
        if let Some(labels) = row.get_mut("labels").and_then(Value::as_array_mut) {
            for label in labels {
                let part = |key: &str| label.get(key).and_then(Value::as_str).map(str::to_owned);
                let (name, values) = (part("name").context("a label has no name")?, part("values"));
                *label = Value::String(format!("{name} ({})", values.context("a label has no values")?));
            }
        }
    }
    Ok(format!(
        "# Metrics\n\nServed at `/metrics`; labels never carry keys, prompts or users, and every one has a bounded \
         number of values, so a metric has no more series than its last column says. A histogram counts once there, with \
         all its buckets.\n\n{}",
        table(&rows, &keys)?
    ))
}

fn errors(facts: &Value) -> Result<String> {
    let keys = [
        ("code", "code"),
        ("status", "status"),
        ("openai", "OpenAI dialect"),
        ("anthropic", "Anthropic dialect"),
        ("meaning", "meaning"),
    ];
    Ok(format!(
        "# Error codes\n\nEvery answer that the gateway itself gives instead of the provider's. Anthropic's shape carries \
         no code: read `error.type`. A request that cannot be read (400), or whose encoding or content type is not taken \
         (415), has `code` null and `type` invalid_request_error.\n\n{}",
        table(facts, &keys)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_sorted_and_escaped() {
        let facts = serde_json::json!([
            { "name": "b_total", "kind": "counter", "labels": [{ "name": "model", "values": "x, y" }],
              "series_max": 2, "help": "b | c" },
            { "name": "a_total", "kind": "counter", "labels": [], "series_max": 1, "help": "a" },
        ]);
        let page = metrics(&facts).unwrap();
        let rows: Vec<&str> = page.lines().skip(6).collect();
        assert_eq!(
            rows,
            ["| `a_total` | counter | – | a | 1 |", "| `b_total` | counter | model (x, y) | b \\| c | 2 |"]
        );
    }

    #[test]
    fn a_row_without_a_column_is_an_error() {
        let error = metrics(&serde_json::json!([{ "name": "a_total" }])).unwrap_err();
        assert_eq!(error.to_string(), "a row has no 'kind'");
    }

    #[test]
    fn commands_are_found_in_help() {
        let help = "Usage: tollbook <COMMAND>\n\nCommands:\n  serve   Run it\n  schema  Print it\n";
        assert!(has_command(help, "schema"));
        assert!(!has_command(help, "metrics-list"));
        assert!(!has_command(help, "Usage:"));
    }

    #[test]
    fn the_block_of_a_language_is_found() {
        let text = "```sh\na\n```\n```yaml\nb: 1\n```\n";
        assert_eq!(fenced(text, "yaml"), Some("b: 1\n"));
        assert_eq!(fenced(text, "json"), None);
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), "differs at line 2, should be: c");
        assert_eq!(first_difference("", "a\n"), "differs at line 1, should be: a");
        assert_eq!(first_difference("a\nb\n", "a\n"), "differs at line 2, should be: (end of file)");
    }
}
