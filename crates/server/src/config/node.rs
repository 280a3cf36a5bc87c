//! A configuration file as a tree that knows the place of each part.
//!
//! YAML, and JSON as its subset. Scalars stay text: what they mean is decided by the field that reads them, so `no` is
//! a fine name and `2.50` an exact price. Aliases are copied, within a bound; tags, duplicate keys and several documents
//! are mistakes.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::problem::{Place, Problem};

/// Largest file read.
pub const FILE_BYTES_MAX: u64 = 8 << 20;
/// Most parts of a file, aliases copied.
pub const NODES_MAX: usize = 500_000;
/// Deepest nesting.
pub const DEPTH_MAX: usize = 32;

/// One part of the file.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Field>),
}

#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// Written without quotes, so it may be null.
    pub(crate) plain: bool,
    /// The text before environment variables were put in; shown in messages in place of their values.
    pub(crate) written: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) value: Node,
}

impl Scalar {
    pub(crate) fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// What a message may show.
    pub(crate) fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.text)
    }
}

impl Node {
    /// The part that `path` names, or the deepest that exists on the way to it.
    pub(crate) fn locate(&self, path: &str) -> Place {
        let mut node = self;
        let mut place = self.place;
        for step in steps(path) {
            let next = match (&node.kind, step) {
                (Kind::Map(fields), Step::Name(name)) => {
                    fields.iter().find(|field| field.name == name).map(|field| (field.place, &field.value))
                }
                (Kind::List(items), Step::Index(index)) => items.get(index).map(|item| (item.place, item)),
                _ => None,
            };
            let Some((found, value)) = next else { break };
            place = if matches!(value.kind, Kind::Scalar(_)) { value.place } else { found };
            node = value;
        }
        place
    }
}

enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

/// Takes `a.b[2].c` apart.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split(['.', '[']).filter(|part| !part.is_empty()).map(|part| match part.strip_suffix(']') {
        Some(index) => Step::Index(index.parse().unwrap_or(usize::MAX)),
        None => Step::Name(part),
    })
}

/// What a field means that an object gives twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeats {
    /// A mistake.
    Refused,
    /// All of them are kept; whoever reads the object chooses.
    Kept,
}

/// Reads a whole file. `None` stands for an empty one.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, Problem> {
    parse_with(text, Repeats::Refused)
}

/// The same, of a file that others write.
pub(crate) fn parse_with(text: &str, repeats: Repeats) -> Result<Option<Node>, Problem> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text), anchors: BTreeMap::new(), nodes: 0, repeats };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(root),
            Event::DocumentStart(..) if root.is_some() => {
                return Err(mistake(place(&span), "a second document", "keep one document in the file"));
            }
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            event => root = Some(reader.node(event, &span, 0)?),
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
    repeats: Repeats,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(unreadable(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, Problem> {
        let at = place(span);
        self.count(1, at)?;
        if depth > DEPTH_MAX {
            return Err(mistake(at, format!("nested deeper than {DEPTH_MAX}"), ""));
        }
        let (kind, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = tag.as_ref().is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                refuse_tag(tag.is_some() && !text_tag, at)?;
                let plain = style == ScalarStyle::Plain && !text_tag;
                (Kind::Scalar(Scalar { text: text.into_owned(), plain, written: None }), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                refuse_tag(tag.is_some(), at)?;
                (Kind::List(self.list(depth)?), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                refuse_tag(tag.is_some(), at)?;
                (Kind::Map(self.map(depth)?), anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, at),
            _ => return Err(mistake(at, "cannot be read", "")),
        };
        let node = Node { place: at, kind };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, &span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Field>, Problem> {
        let mut fields: Vec<Field> = Vec::new();
        loop {
            let (name, at) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(fields),
                (Event::Scalar(name, ..), span) => (name.into_owned(), place(&span)),
                (_, span) => return Err(mistake(place(&span), "a field's name must be a plain text", "")),
            };
            let refused = self.repeats == Repeats::Refused;
            if let Some(first) = fields.iter().find(|field| refused && field.name == name) {
                let help = format!("it was given on line {} already", first.place.line);
                return Err(mistake(at, format!("`{name}` is given twice"), help));
            }
            let (event, span) = self.next()?;
            let value = self.node(event, &span, depth + 1)?;
            fields.push(Field { name, place: at, value });
        }
    }

    /// Copies what an alias stands for; its parts keep the places where they were written.
    fn alias(&mut self, anchor: usize, at: Place) -> Result<Node, Problem> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(mistake(at, "an alias inside its own anchor", ""));
        };
        self.count(size(&node), at)?;
        Ok(node)
    }

    fn count(&mut self, more: usize, at: Place) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(more);
        if self.nodes > NODES_MAX {
            return Err(mistake(
                at,
                format!("more than {NODES_MAX} parts"),
                "aliases count as what they stand for",
            ));
        }
        Ok(())
    }
}

fn size(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar(_) => 1,
        Kind::List(items) => items.iter().map(size).sum::<usize>() + 1,
        Kind::Map(fields) => fields.iter().map(|field| size(&field.value)).sum::<usize>() + 1,
    }
}

fn refuse_tag(tagged: bool, at: Place) -> Result<(), Problem> {
    if tagged { Err(mistake(at, "tags have no meaning here", "remove the tag")) } else { Ok(()) }
}

fn place(span: &Span) -> Place {
    at(span.start.line(), span.start.col())
}

fn at(line: usize, column_from_zero: usize) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: number(line.max(1)), column: number(column_from_zero).saturating_add(1) }
}

fn unreadable(error: &ScanError) -> Problem {
    let marker = error.marker();
    mistake(at(marker.line(), marker.col()), format!("not valid YAML: {}", error.info()), "")
}

fn mistake(place: Place, what: impl Into<String>, help: impl Into<String>) -> Problem {
    Problem { place, path: String::new(), what: what.into(), help: help.into() }
}
