//! Traces: when calls came, and how much each used.
//!
//! A trace is CSV, plain or compressed with gzip. Its header names the columns, in any order: `arrival_s` (seconds since
//! the start of the trace), `input_tokens`, `output_tokens`, and if known `key` or `session`, and `max_tokens`. Other
//! columns are passed over.
//! Invariants: arrivals never go back, every number is inside its bound, a trace has at least one call.
//! A file that breaks a rule is refused as a whole, with the line that breaks it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tollbook_ledger::{Micros, SECOND};

use crate::counts::wide;

/// Most llm_tokens of one call, in each direction.
pub const LLM_TOKENS_MAX: u64 = 4_000_000;
/// Latest arrival, in seconds: 31 days.
pub const ARRIVAL_MAX_S: u64 = 31 * 86_400;
/// Most calls of one trace.
pub const CALLS_MAX: usize = 5_000_000;
/// Most different keys of one trace.
pub const KEYS_MAX: usize = 100_000;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 256;
/// Longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

const COLUMNS: [&str; 6] = ["arrival_s", "input_tokens", "output_tokens", "key", "session", "max_tokens"];
const REQUIRED: usize = 3;
const BOM: &[u8] = b"\xef\xbb\xbf";
const GZIP: &[u8] = &[0x1f, 0x8b];

/// One recorded call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub arrival: Micros,
    pub input: u64,
    pub output: u64,
    /// Index into [`Trace::keys`].
    pub key: u32,
    pub max_tokens: Option<u64>,
}

/// Recorded calls, in the order of their arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    pub name: String,
    pub rows: Vec<Row>,
    /// At least one; a trace without a key column has one key without a name.
    pub keys: Vec<String>,
    /// The trace says which calls sent `max_tokens`.
    pub knows_caps: bool,
}

/// Why a trace was refused.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{name}: cannot read the trace: {source}")]
    Read { name: String, source: io::Error },
    /// Compressed data that ends early or is damaged; everything up to `line` could be read.
    #[error("{name}:{line}: the compressed data is damaged or ends here: {source}")]
    Compressed { name: String, line: u64, source: io::Error },
    #[error("{name}:{line}: {what}")]
    Line { name: String, line: u64, what: String },
}

impl Trace {
    /// Reads a whole trace; `name` is what errors call it.
    pub fn read(name: &str, input: impl Read) -> Result<Self, TraceError> {
        let mut input = BufReader::with_capacity(64 * 1024, input);
        let start = input.fill_buf().map_err(|source| TraceError::Read { name: name.to_owned(), source })?;
        if start.starts_with(GZIP) {
            let unpacked = BufReader::with_capacity(64 * 1024, MultiGzDecoder::new(input));
            Reader::new(name, unpacked, true).read()
        } else {
            Reader::new(name, input, false).read()
        }
    }

    /// From the first arrival to the last.
    pub fn span(&self) -> Micros {
        let first = self.rows.first().map_or(0, |row| row.arrival);
        self.rows.last().map_or(0, |row| row.arrival).saturating_sub(first)
    }

    /// The trace as CSV, as [`Trace::read`] takes it.
    pub fn csv(&self) -> String {
        let mut out = String::from("arrival_s,input_tokens,output_tokens");
        let keyed = self.keys.iter().any(|key| !key.is_empty());
        out.push_str(if keyed { ",key" } else { "" });
        out.push_str(if self.knows_caps { ",max_tokens\n" } else { "\n" });
        for row in &self.rows {
            let (seconds, part) = (row.arrival / SECOND, row.arrival % SECOND);
            // Writing into a string cannot fail.
            let _ = write!(out, "{seconds}.{part:06},{},{}", row.input, row.output);
            if keyed {
                let key = usize::try_from(row.key).ok().and_then(|key| self.keys.get(key));
                let _ = write!(out, ",{}", quoted(key.map_or("", String::as_str)));
            }
            if self.knows_caps {
                let cap = row.max_tokens.map(|cap| cap.to_string()).unwrap_or_default();
                let _ = write!(out, ",{cap}");
            }
            out.push('\n');
        }
        out
    }
}

/// A field as CSV writes it.
pub fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) || field.trim() != field {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// Where the known columns stand.
struct Header {
    places: [Option<usize>; COLUMNS.len()],
    fields: usize,
}

struct Reader<'a, R> {
    name: &'a str,
    input: R,
    compressed: bool,
    line: u64,
    bytes: Vec<u8>,
    keys: HashMap<String, u32>,
    trace: Trace,
}

impl<'a, R: BufRead> Reader<'a, R> {
    fn new(name: &'a str, input: R, compressed: bool) -> Self {
        let trace = Trace { name: name.to_owned(), rows: Vec::new(), keys: Vec::new(), knows_caps: false };
        Self { name, input, compressed, line: 0, bytes: Vec::new(), keys: HashMap::new(), trace }
    }

    fn read(mut self) -> Result<Trace, TraceError> {
        if !self.next_line()? {
            return Err(self.wrong("the file is empty"));
        }
        if self.bytes.starts_with(BOM) {
            self.bytes.drain(..BOM.len());
        }
        let header = self.in_line(|line, _, _| header(line))?;
        self.trace.knows_caps = header.places.last().is_some_and(Option::is_some);
        let mut ended = None;
        while self.next_line()? {
            if self.bytes.iter().all(u8::is_ascii_whitespace) {
                ended = ended.or(Some(self.line));
                continue;
            }
            if let Some(line) = ended {
                self.line = line;
                return Err(self.wrong("an empty line"));
            }
            if self.trace.rows.len() >= CALLS_MAX {
                return Err(self.wrong(&format!("more than {CALLS_MAX} calls")));
            }
            let row = self.in_line(|line, keys, names| row(line, &header, keys, names))?;
            if self.trace.rows.last().is_some_and(|last| last.arrival > row.arrival) {
                return Err(self.wrong("arrival_s goes back: the lines must be in the order of time"));
            }
            self.trace.rows.push(row);
        }
        if self.trace.rows.is_empty() {
            return Err(self.wrong("no call follows the header"));
        }
        Ok(self.trace)
    }

    /// The next line without its ending into `bytes`; false at the end.
    fn next_line(&mut self) -> Result<bool, TraceError> {
        self.bytes.clear();
        let most = wide(LINE_BYTES_MAX) + 2;
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut self.bytes);
        let read = read.map_err(|source| self.broken(source))?;
        if read == 0 {
            return Ok(false);
        }
        self.line += 1;
        for ending in [b'\n', b'\r'] {
            if self.bytes.last() == Some(&ending) {
                self.bytes.pop();
            }
        }
        if self.bytes.len() > LINE_BYTES_MAX {
            return Err(self.wrong(&format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(true)
    }

    fn in_line<T>(
        &mut self,
        parse: impl FnOnce(&str, &mut HashMap<String, u32>, &mut Vec<String>) -> Result<T, String>,
    ) -> Result<T, TraceError> {
        let parsed = match std::str::from_utf8(&self.bytes) {
            Ok(line) => parse(line, &mut self.keys, &mut self.trace.keys),
            Err(_) => Err("the line is not UTF-8".to_owned()),
        };
        parsed.map_err(|what| self.wrong(&what))
    }

    fn wrong(&self, what: &str) -> TraceError {
        TraceError::Line { name: self.name.to_owned(), line: self.line.max(1), what: what.to_owned() }
    }

    fn broken(&self, source: io::Error) -> TraceError {
        let name = self.name.to_owned();
        if self.compressed {
            TraceError::Compressed { name, line: self.line + 1, source }
        } else {
            TraceError::Read { name, source }
        }
    }
}

fn header(line: &str) -> Result<Header, String> {
    let fields = split(line)?;
    let mut places = [None; COLUMNS.len()];
    for (at, field) in fields.iter().enumerate() {
        for (place, column) in places.iter_mut().zip(COLUMNS) {
            if field.trim() != column {
                continue;
            }
            if place.replace(at).is_some() {
                return Err(format!("the column {column} stands twice"));
            }
        }
    }
    let missing = COLUMNS.iter().zip(&places).take(REQUIRED).find(|(_, place)| place.is_none());
    match missing {
        Some((column, _)) => {
            Err(format!("no column {column}; the header must name arrival_s, input_tokens and output_tokens"))
        }
        None => Ok(Header { places, fields: fields.len() }),
    }
}

fn row(
    line: &str,
    header: &Header,
    keys: &mut HashMap<String, u32>,
    names: &mut Vec<String>,
) -> Result<Row, String> {
    let fields = split(line)?;
    if fields.len() != header.fields {
        return Err(format!("{} fields where the header has {}", fields.len(), header.fields));
    }
    let [arrival, input, output, key, session, max_tokens] =
        header.places.map(|place| place.and_then(|at| fields.get(at)).map(|field| field.trim()));
    let max_tokens = max_tokens.filter(|text| !text.is_empty());
    Ok(Row {
        arrival: seconds("arrival_s", arrival.unwrap_or(""))?,
        input: count("input_tokens", input.unwrap_or(""))?,
        output: count("output_tokens", output.unwrap_or(""))?,
        key: key_number(key.or(session).unwrap_or(""), keys, names)?,
        max_tokens: max_tokens.map(|text| count("max_tokens", text)).transpose()?,
    })
}

fn key_number(key: &str, keys: &mut HashMap<String, u32>, names: &mut Vec<String>) -> Result<u32, String> {
    if let Some(number) = keys.get(key) {
        return Ok(*number);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(format!("the key is longer than {KEY_BYTES_MAX} bytes"));
    }
    let number = u32::try_from(names.len()).ok().filter(|_| names.len() < KEYS_MAX);
    let number = number.ok_or_else(|| format!("more than {KEYS_MAX} different keys"))?;
    keys.insert(key.to_owned(), number);
    names.push(key.to_owned());
    Ok(number)
}

/// Fields of a line; one may be quoted, with quotes inside doubled.
fn split(line: &str) -> Result<Vec<std::borrow::Cow<'_, str>>, String> {
    if !line.contains('"') {
        return Ok(line.split(',').map(Into::into).collect());
    }
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let Some(quoted) = rest.trim_start().strip_prefix('"') else {
            let (field, after) = rest.split_once(',').map_or((rest, None), |(f, after)| (f, Some(after)));
            fields.push(field.into());
            match after {
                Some(after) => rest = after,
                None => return Ok(fields),
            }
            continue;
        };
        let (field, after) = unquote(quoted).ok_or("a quoted field does not end in its line")?;
        fields.push(field.into());
        match after.trim_start().strip_prefix(',') {
            Some(after) => rest = after,
            None if after.trim().is_empty() => return Ok(fields),
            None => return Err("text after a quoted field".to_owned()),
        }
    }
}

/// The field up to its closing quote, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        field.push_str(part);
        let Some(doubled) = after.strip_prefix('"') else { return Some((field, after)) };
        field.push('"');
        rest = doubled;
    }
}

fn count(column: &str, text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err(format!("{column} is negative: {}", short(text)));
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{column} is no whole number: '{}'", short(text)));
    }
    let value = text.parse().ok().filter(|value| *value <= LLM_TOKENS_MAX);
    value.ok_or_else(|| format!("{column} is above {LLM_TOKENS_MAX}: {}", short(text)))
}

/// Decimal seconds as microseconds; what is finer is cut off.
fn seconds(column: &str, text: &str) -> Result<Micros, String> {
    if text.starts_with('-') {
        return Err(format!("{column} is negative: {}", short(text)));
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return Err(format!("{column} is no number of seconds: '{}'", short(text)));
    }
    let whole = whole.parse::<u64>().ok().filter(|whole| *whole <= ARRIVAL_MAX_S);
    let whole = whole.ok_or_else(|| {
        format!("{column} counts from the start of the trace, at most {ARRIVAL_MAX_S}: {}", short(text))
    })?;
    let micros = part.bytes().chain(std::iter::repeat(b'0')).take(6);
    let micros = micros.fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Ok(whole * SECOND + micros)
}

/// So much of a field as an error shows.
fn short(text: &str) -> String {
    const SHOWN: usize = 40;
    let mut shown: String = text.chars().take(SHOWN).filter(|c| !c.is_control()).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
