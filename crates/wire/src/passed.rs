//! Reads the body of a call that is passed through: which model it names, and how much it probably is.
//!
//! Two shapes: a JSON object, and `multipart/form-data` with files. Everything the paths of a provider may hold is
//! unknown here, so all text counts and files count as media. Invariants: the model is named once, in one spelling, so
//! that what was checked is what the provider reads; a form that two readers could take apart differently is refused.
//! Nothing is changed but the model's name, by a splice.

use std::ops::Range;

use memchr::memmem;

use crate::classes::Classifier;
use crate::content::{MISSPELT, TWICE, Walk};
use crate::error::DecodeError;
use crate::json::{Fault, Json, Kind};
use crate::request::{MODEL_BYTES_MAX, Request, choices, flag};
use crate::spelling::{misspells, spells};
use crate::splice::{Edit, quoted};
use crate::surface::{Dialect, Surface};

/// Most parts of a form.
pub const FORM_PARTS_MAX: usize = 256;
/// Longest head of one part of a form, and longest boundary (RFC 2046).
pub const PART_HEAD_MAX: usize = 4096;
const BOUNDARY_MAX: usize = 70;

/// What a passed call says of itself.
#[derive(Debug, Clone)]
pub struct Passed<'a> {
    /// Without a model, the name is empty.
    pub request: Request<'a>,
    spot: Range<usize>,
    form: bool,
}

/// Members that steer routing, demand or the shape of the answer.
const DECLARED: [&str; 4] = ["model", "stream", "n", "stream_format"];

/// The part of a content type before its parameters, in lower case.
fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body by its content type. `None`: it is neither JSON nor a form.
pub fn decode_passed<'a>(
    dialect: Dialect,
    content_type: &str,
    body: &'a [u8],
) -> Option<Result<Passed<'a>, DecodeError>> {
    let read = match essence(content_type).as_str() {
        "application/json" | "" => json(dialect, body),
        "multipart/form-data" => form(dialect, content_type, body),
        _ => return None,
    };
    Some(read.map_err(DecodeError::client))
}

impl Passed<'_> {
    /// The splice that makes the body name another model; none where it names that one already.
    pub fn rename(&self, model: &str) -> Vec<Edit> {
        if self.spot.is_empty() || self.request.model == model {
            return Vec::new();
        }
        let text = if self.form { model.as_bytes().to_vec() } else { quoted(model) };
        vec![Edit { range: self.spot.clone(), text }]
    }
}

impl Request<'_> {
    /// Of a call whose body is not looked at. Its surface tells no more than its dialect.
    pub fn bare(dialect: Dialect) -> Self {
        let surface = match dialect {
            Dialect::OpenAi => Surface::Chat,
            Dialect::Anthropic => Surface::Messages,
        };
        Self { surface, choices: 1, ..Self::default() }
    }
}

fn json(dialect: Dialect, body: &[u8]) -> Result<Passed<'_>, Fault> {
    let mut request = Request::bare(dialect);
    let mut json = Json::strict(body)?;
    if json.kind()? != Kind::Object {
        return json.fault("the body must be a JSON object");
    }
    let mut walk = Walk::new(Classifier::default());
    let mut spot = 0..0;
    let mut seen = [false; DECLARED.len()];
    json.object(|json, key| {
        key.with(|key| {
            for (name, seen) in DECLARED.into_iter().zip(&mut seen) {
                if misspells(key, name) {
                    return Err(Fault::param(name, json.at(), MISSPELT));
                }
                if key == name && std::mem::replace(seen, true) {
                    return Err(Fault::param(name, json.at(), TWICE));
                }
            }
            match key {
                "model" if json.kind()? != Kind::String => json.null(),
                "model" => {
                    let start = json.at();
                    request.model = json.string()?.decode();
                    if request.model.is_empty() || request.model.len() > MODEL_BYTES_MAX {
                        return Err(Fault::param("model", start, "is empty or too long"));
                    }
                    spot = start..json.at();
                    Ok(())
                }
                "stream" => {
                    request.stream = flag(json, "stream")?;
                    Ok(())
                }
                "n" => {
                    request.choices = choices(json, "n")?;
                    Ok(())
                }
                "user" | "metadata" => json.skip(),
                // The same shape as of a conversation where there is one; text otherwise.
                "messages" if json.kind()? == Kind::Array => walk.messages(json),
                "tools" => walk.tools(json),
                "system" => walk.parts(json),
                _ => walk.beside(json),
            }
        })
    })?;
    json.end()?;
    let mut content = walk.content;
    content.text = walk.sink.classes();
    request.content = content;
    Ok(Passed { request, spot, form: false })
}

fn form<'a>(dialect: Dialect, content_type: &str, body: &'a [u8]) -> Result<Passed<'a>, Fault> {
    let mut request = Request::bare(dialect);
    let mut spot = 0..0;
    let mut text = Classifier::default();
    let mut seen = [false; DECLARED.len()];
    let boundary = boundary(content_type).ok_or(Fault::at(0, "the form has no boundary that can be used"))?;
    each_part(body, &boundary, |part| {
        if part.file {
            let bytes = u64::try_from(part.value.len()).unwrap_or(u64::MAX);
            request.content.other_media += 1;
            // As if it were encoded: a third more.
            let encoded = bytes.saturating_add(bytes / 3);
            request.content.other_media_bytes = request.content.other_media_bytes.saturating_add(encoded);
        }
        for (name, seen) in DECLARED.into_iter().zip(&mut seen) {
            if misspells(part.name, name) || (part.name == name && part.file) {
                return Err(Fault::param(name, part.value.start, MISSPELT));
            }
            if part.name == name && std::mem::replace(seen, true) {
                return Err(Fault::param(name, part.value.start, TWICE));
            }
        }
        let at = part.value.start;
        let value = body.get(part.value.clone()).unwrap_or_default();
        if part.file {
            return Ok(());
        }
        let value =
            std::str::from_utf8(value).map_err(|_| Fault::at(at, "a field of the form is not UTF-8"))?;
        match part.name {
            "model" if value.is_empty() || value.len() > MODEL_BYTES_MAX => {
                return Err(Fault::param("model", at, "is empty or too long"));
            }
            "model" => {
                request.model = value.into();
                spot = part.value;
            }
            "stream" => request.stream = value.eq_ignore_ascii_case("true") || value == "1",
            "n" => {
                let mut json = Json::lax(value);
                request.choices = choices(&mut json, "n")?;
                json.end()?;
            }
            _ => {
                text.part(value);
                text.end();
            }
        }
        Ok(())
    })?;
    request.content.text = text.classes();
    Ok(Passed { request, spot, form: true })
}

/// One part of a form.
struct Part<'a> {
    name: &'a str,
    file: bool,
    value: Range<usize>,
}

fn boundary(content_type: &str) -> Option<String> {
    let mut found = None;
    for parameter in content_type.split(';').skip(1) {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        if !name.trim().eq_ignore_ascii_case("boundary") {
            continue;
        }
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
        let fits = (1..=BOUNDARY_MAX).contains(&value.len())
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&b));
        if found.is_some() || !fits {
            return None;
        }
        found = Some(value.to_owned());
    }
    found
}

fn each_part<'a>(
    body: &'a [u8],
    boundary: &str,
    mut each: impl FnMut(Part<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let first = format!("--{boundary}");
    let next = format!("\r\n--{boundary}");
    if !body.starts_with(first.as_bytes()) {
        return Err(Fault::at(0, "the form does not begin with its boundary"));
    }
    let finder = memmem::Finder::new(next.as_bytes());
    let mut at = first.len();
    for _ in 0..=FORM_PARTS_MAX {
        let rest = body.get(at..).unwrap_or_default();
        if let Some(tail) = rest.strip_prefix(b"--") {
            return if tail.is_empty() || tail == b"\r\n" {
                Ok(())
            } else {
                Err(Fault::at(at, "unexpected bytes behind the form"))
            };
        }
        if !rest.starts_with(b"\r\n") {
            return Err(Fault::at(at, "a boundary of the form does not end its line"));
        }
        let head_at = at + 2;
        let head = body.get(head_at..).unwrap_or_default();
        let window = head.get(..head.len().min(PART_HEAD_MAX)).unwrap_or_default();
        let Some(head_len) = memmem::find(window, b"\r\n\r\n") else {
            return Err(Fault::at(head_at, "the head of a part is too long or does not end"));
        };
        let (name, file) = disposition(head.get(..head_len).unwrap_or_default())
            .ok_or(Fault::at(head_at, "the head of a part cannot be read"))?;
        let start = head_at + head_len + 4;
        let Some(len) = finder.find(body.get(start..).unwrap_or_default()) else {
            return Err(Fault::at(start, "the form does not end"));
        };
        each(Part { name, file, value: start..start + len })?;
        at = start + len + next.len();
    }
    Err(Fault::at(at, "the form has too many parts"))
}

/// The name of a part, and whether it is a file: exactly one `Content-Disposition: form-data` with one plain name.
fn disposition(head: &[u8]) -> Option<(&str, bool)> {
    let head = std::str::from_utf8(head).ok()?;
    let mut found = None;
    for line in head.split("\r\n") {
        if line.contains(['\r', '\n', '\0']) || line.starts_with([' ', '\t']) {
            return None;
        }
        let (field, value) = line.split_once(':')?;
        if !spells(field.trim_end(), "content-disposition") {
            continue;
        }
        if found.is_some() {
            return None;
        }
        found = Some(parameters(value)?);
    }
    found
}

fn parameters(value: &str) -> Option<(&str, bool)> {
    let mut rest = value.trim_start().strip_prefix("form-data")?;
    let (mut name, mut file) = (None, false);
    while let Some(parameter) = rest.trim_start().strip_prefix(';') {
        let (key, after) = parameter.trim_start().split_once('=')?;
        let text;
        if let Some(quoted) = after.strip_prefix('"') {
            let end = quoted.find(['"', '\\'])?;
            let (inside, tail) = quoted.split_at(end);
            text = inside;
            // An escaped quote is read in two ways by different readers; in a file's name it does no harm.
            if tail.starts_with('\\') && key.eq_ignore_ascii_case("name") {
                return None;
            }
            rest = closing(tail)?;
        } else {
            let end = after.find(';').unwrap_or(after.len());
            let (inside, tail) = after.split_at(end);
            text = inside.trim();
            rest = tail;
        }
        if key.eq_ignore_ascii_case("name") {
            if name.replace(text).is_some() {
                return None;
            }
        } else if key.eq_ignore_ascii_case("filename") || key.eq_ignore_ascii_case("filename*") {
            file = true;
        } else {
            return None;
        }
    }
    if rest.trim().is_empty() { Some((name?, file)) } else { None }
}

/// What follows the closing quote; backslashes escape the character behind them.
fn closing(mut tail: &str) -> Option<&str> {
    loop {
        if let Some(rest) = tail.strip_prefix('"') {
            return Some(rest);
        }
        let rest = tail.strip_prefix('\\')?;
        let mut chars = rest.chars();
        chars.next()?;
        let rest = chars.as_str();
        tail = rest.get(rest.find(['"', '\\'])?..)?;
    }
}
