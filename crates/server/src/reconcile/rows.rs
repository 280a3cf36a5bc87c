//! A provider's file as rows of named texts: CSV, or JSON as their APIs answer.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::config::node::{Kind, Node, Repeats, parse_with};
use crate::config::{Place, Problem};

/// Most rows of a file.
pub(crate) const ROWS_MAX: usize = 100_000;
/// Most columns of a file.
pub(crate) const COLUMNS_MAX: usize = 200;

/// A row: its line, and its fields.
pub(super) type Row = (u32, BTreeMap<String, String>);

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    /// It is a page, and says that another one follows.
    pub(super) goes_on: bool,
}

pub(super) fn problem(line: u32, what: impl Into<String>) -> Problem {
    Problem { place: Place { line, column: 1 }, path: String::new(), what: what.into(), help: String::new() }
}

pub(super) fn rows(text: &str) -> Result<Rows, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) { json(text) } else { csv(text) }
}

/// Rows of CSV; the first names the columns.
fn csv(text: &str) -> Result<Rows, Problem> {
    let mut rows = Vec::new();
    let mut head: Option<Vec<String>> = None;
    let mut reader = Csv { rest: text.chars().peekable(), line: 1 };
    while let Some((line, fields)) = reader.record()? {
        let fields = fields.into_iter().map(|field| field.trim().to_owned());
        let Some(head) = &head else {
            let names: Vec<String> = fields.collect();
            if names.len() > COLUMNS_MAX {
                return Err(problem(line, format!("more than {COLUMNS_MAX} columns")));
            }
            if let Some(twice) =
                names.iter().enumerate().find(|(at, name)| names.iter().take(*at).any(|n| n == *name))
            {
                return Err(problem(line, format!("has the column `{}` twice", twice.1)));
            }
            head = Some(names);
            continue;
        };
        if fields.len() != head.len() {
            let what = format!("has {} fields, the first line {}", fields.len(), head.len());
            return Err(problem(line, what));
        }
        if rows.len() >= ROWS_MAX {
            return Err(problem(line, format!("more than {ROWS_MAX} rows")));
        }
        rows.push((line, head.iter().cloned().zip(fields).collect()));
    }
    Ok(Rows { rows, goes_on: false })
}

struct Csv<'a> {
    rest: Peekable<Chars<'a>>,
    line: u32,
}

impl Csv<'_> {
    /// The next line that is not empty, and where it begins; quoted fields may hold line ends.
    fn record(&mut self) -> Result<Option<(u32, Vec<String>)>, Problem> {
        while let Some(c) = self.rest.next_if(|c| matches!(c, '\r' | '\n')) {
            self.line += u32::from(c == '\n');
        }
        if self.rest.peek().is_none() {
            return Ok(None);
        }
        let (start, mut fields, mut field, mut quoted) = (self.line, Vec::new(), String::new(), false);
        while let Some(c) = self.rest.next() {
            match c {
                '"' if quoted && self.rest.next_if_eq(&'"').is_some() => field.push('"'),
                '"' if quoted => quoted = false,
                '"' if field.is_empty() => quoted = true,
                '\n' if !quoted => {
                    self.line += 1;
                    fields.push(field);
                    return Ok(Some((start, fields)));
                }
                ',' if !quoted => fields.push(std::mem::take(&mut field)),
                '\r' if !quoted => {}
                c => {
                    self.line += u32::from(c == '\n');
                    field.push(c);
                }
            }
        }
        if quoted {
            return Err(problem(start, "a quoted field does not end"));
        }
        fields.push(field);
        Ok(Some((start, fields)))
    }
}

/// Rows of a list of objects, or of a page of an API: `data`, and the `results` of each of its parts.
fn json(text: &str) -> Result<Rows, Problem> {
    let Some(root) = parse_with(text, Repeats::Kept)? else { return Ok(Rows::default()) };
    let goes_on = member(&root, "has_more").and_then(scalar) == Some("true");
    let list = member(&root, "data").unwrap_or(&root);
    let Kind::List(items) = &list.kind else {
        let what = "must be a list of objects, or an object with a list `data`";
        return Err(problem(list.place.line, what));
    };
    let mut rows = Vec::new();
    for item in items {
        let mut outer = BTreeMap::new();
        flatten(item, "", &mut outer)?;
        // One library writes `result` for the list.
        let results = member(item, "results").or_else(|| member(item, "result"));
        match results.map(|results| &results.kind) {
            Some(Kind::List(results)) => {
                for result in results {
                    let mut row = outer.clone();
                    flatten(result, "", &mut row)?;
                    rows.push((result.place.line, row));
                }
            }
            _ => rows.push((item.place.line, outer)),
        }
    }
    Ok(Rows { rows, goes_on })
}

fn member<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let Kind::Map(fields) = &node.kind else { return None };
    fields.iter().rev().find(|field| field.name == name).map(|field| &field.value)
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Scalar(scalar) if !scalar.is_null() => Some(&scalar.text),
        _ => None,
    }
}

/// The texts and numbers of an object, those of its parts with their name and a dot before them. What is null is left out.
fn flatten(node: &Node, head: &str, row: &mut BTreeMap<String, String>) -> Result<(), Problem> {
    let Kind::Map(fields) = &node.kind else {
        return Err(problem(node.place.line, "must be an object"));
    };
    for field in fields {
        let name = format!("{head}{}", field.name);
        match &field.value.kind {
            Kind::Map(_) => flatten(&field.value, &format!("{name}."), row)?,
            Kind::Scalar(_) => {
                row.extend(scalar(&field.value).map(|text| (name, text.to_owned())));
            }
            Kind::List(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_quotes() {
        let read = rows("a,b\r\n\"x, \"\"y\"\"\n\",2\n\n3,4").unwrap().rows;
        let texts: Vec<(u32, Vec<&str>)> =
            read.iter().map(|(line, row)| (*line, row.values().map(String::as_str).collect())).collect();
        assert_eq!(texts, [(2, vec!["x, \"y\"", "2"]), (5, vec!["3", "4"])]);
        assert_eq!(rows("a,b\n1\n").unwrap_err().place.line, 2);
        assert!(rows("a,b\n1,\"2").unwrap_err().what.contains("does not end"));
        assert!(rows("a,b,a\n1,2,3").unwrap_err().what.contains("`a` twice"));
    }

    #[test]
    fn files_have_bounds() {
        let heads = |count: usize| (0..count).map(|n| format!("c{n}")).collect::<Vec<_>>().join(",");
        assert!(rows(&heads(COLUMNS_MAX)).is_ok());
        assert!(rows(&heads(COLUMNS_MAX + 1)).unwrap_err().what.contains("columns"));
        let lines = |count: usize| format!("a\n{}", "1\n".repeat(count));
        assert_eq!(rows(&lines(ROWS_MAX)).unwrap().rows.len(), ROWS_MAX);
        let error = rows(&lines(ROWS_MAX + 1)).unwrap_err();
        assert_eq!((error.place.line as usize, error.what.contains("rows")), (ROWS_MAX + 2, true));
    }

    #[test]
    fn json_is_a_page_of_buckets_or_a_list() {
        let page = r#"{"has_more": true, "data": [{"start": 1, "results": [{"m": "a", "c": {"d": 1.50}}, {"m": null}]}, {"start": 2}]}"#;
        let read = rows(page).unwrap();
        assert!(read.goes_on);
        let texts: Vec<String> = read.rows.iter().map(|(_, row)| format!("{row:?}")).collect();
        assert_eq!(
            texts,
            [r#"{"c.d": "1.50", "m": "a", "start": "1"}"#, r#"{"start": "1"}"#, r#"{"start": "2"}"#]
        );
        assert_eq!(rows("[]").unwrap().rows.len(), 0);
        for (text, want) in [("[1]", "must be an object"), (r#"{"data": 1}"#, "must be a list")] {
            assert!(rows(text).unwrap_err().what.contains(want), "{text}");
        }
        assert!(rows("[{\"a\": 1}").is_err());
    }
}
