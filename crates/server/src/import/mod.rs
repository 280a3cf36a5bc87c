//! What other gateways' files say, as a configuration of Tollbook.
//!
//! Invariants: money stays decimal text from file to file, no float ever holds it; a secret never leaves its file, only
//! references to the environment do; whatever is not carried over is told. A mistake in a file stops the whole import.

mod emit;
mod providers;
mod proxy;
mod rates;
mod table;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

pub(crate) use emit::fragment;
pub(crate) use proxy::config;
pub(crate) use table::{Table, chosen};

use crate::config::node::{Field, Kind, Node, Scalar};
use crate::config::{FILE_BYTES_MAX, Problem};

/// Most names shown beside a note.
const NAMES_SHOWN: usize = 5;

/// What a reader of the result must know, each with the models that it is about.
#[derive(Debug, Default)]
pub(crate) struct Notes(BTreeMap<String, Vec<String>>);

impl Notes {
    fn add(&mut self, model: &str, what: impl Into<String>) {
        let models = self.0.entry(what.into()).or_default();
        if models.last().is_none_or(|last| last != model) {
            models.push(model.to_owned());
        }
    }

    fn append(&mut self, other: Self) {
        for (what, models) in other.0 {
            self.0.entry(what).or_default().extend(models);
        }
    }

    /// What, how many models, and the first of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(what, models)| (what.as_str(), models.as_slice()))
    }

    /// One line each.
    pub(crate) fn text(&self) -> String {
        let line = |(what, models): (&str, &[String])| {
            let shown: Vec<&str> = models.iter().take(NAMES_SHOWN).map(String::as_str).collect();
            let more = if models.len() > shown.len() { ", …" } else { "" };
            format!("{what}: {} ({}{more})\n", models.len(), shown.join(", "))
        };
        self.iter().map(line).collect()
    }
}

/// A file's text; `-` is the standard input.
pub(crate) fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let from: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path)?)
    };
    from.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        let what = format!("larger than {FILE_BYTES_MAX} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

fn problem(node: &Node, path: impl Into<String>, what: impl Into<String>) -> Problem {
    Problem { place: node.place, path: path.into(), what: what.into(), help: String::new() }
}

fn fields(node: &Node) -> Option<&[Field]> {
    match &node.kind {
        Kind::Map(fields) => Some(fields),
        _ => None,
    }
}

fn items(node: &Node) -> Option<&[Node]> {
    match &node.kind {
        Kind::List(items) => Some(items),
        _ => None,
    }
}

/// Of an object; the last where it is given twice, as other readers have it.
fn get<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let found = fields(node)?.iter().rev().find(|field| field.name == name);
    found.map(|field| &field.value).filter(|value| !is_null(value))
}

fn scalar(node: &Node) -> Option<&Scalar> {
    match &node.kind {
        Kind::Scalar(scalar) => Some(scalar),
        _ => None,
    }
}

fn is_null(node: &Node) -> bool {
    scalar(node).is_some_and(Scalar::is_null)
}

/// A text or a number, as it is written.
fn text(node: &Node) -> Option<&str> {
    scalar(node).filter(|scalar| !scalar.is_null()).map(|scalar| scalar.text.as_str())
}

/// `*` stands for any run of characters, `?` for one.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut from) = (0, 0);
    // Where the last star stands, and what it has swallowed so far.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || Some(wanted) == name.get(from) => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((place, swallowed)) => {
                    star = Some((place, swallowed + 1));
                    at = place + 1;
                    from = swallowed + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, want) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-4o*", "gpt-4o-mini", true),
            ("*", "", true),
            ("*4o*mini", "gpt-4o-x-mini", true),
            ("*4o*mini", "gpt-4o-x-min", false),
            ("azure/*", "azure/eu/gpt-4o", true),
            ("gpt-?o", "gpt-4o", true),
            ("gpt-?o", "gpt-o", false),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "abbbcbc", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
