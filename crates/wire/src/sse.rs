//! Reads server-sent events from bytes that are cut anywhere.
//!
//! Works in blocks: a block is everything up to and including a blank line. Lines end with LF, CRLF or a lone CR;
//! a CR at the end of the bytes counts as an end at once, and an LF that follows it belongs to what came before.
//! Invariants: the blocks do not depend on how the bytes are cut; time is linear; at most `EVENT_BYTES_MAX` are
//! kept of an unfinished block. A longer one is passed over unread and reported, whether or not it was cut.
//! Nothing is ever lost by failing: this only looks; bytes are forwarded elsewhere.

use memchr::{memchr, memchr2};

use crate::skim::Skim;

/// Largest block that is read.
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// Capacity that is kept between blocks.
const KEEP: usize = 16 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseItem<'a> {
    /// A block with at least one `data` line.
    Event(SseEvent<'a>),
    /// A block of comments or other fields only; a sign of life, no event.
    Quiet { comments: u32 },
    /// A block that was too large to be read.
    Oversized,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The event name; empty if none was given.
    pub name: &'a [u8],
    /// The data lines, joined with LF.
    pub data: &'a [u8],
    pub id: Option<&'a [u8]>,
    pub retry: Option<&'a [u8]>,
}

#[derive(Debug, Default)]
pub struct SseReader {
    /// The unfinished block; empty while it is passed over.
    pub(crate) partial: Vec<u8>,
    joined: Vec<u8>,
    /// Bytes of the unfinished block, read or passed over.
    pending: usize,
    /// The last byte was a CR, so a following LF belongs to it.
    after_cr: bool,
    /// Something stands on the current line.
    line_has_bytes: bool,
    started: bool,
    /// Keep what was held when a block grows too large, so that a relay can forward it.
    pub(crate) spill: bool,
    pub(crate) spilled: Vec<u8>,
    /// Read what matters out of a block that grows too large.
    pub(crate) skims: bool,
    skimming: Option<Box<Skim>>,
}

impl SseReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes and hands out every block that ended in them.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(SseItem<'_>)) {
        let mut at = self.lead(bytes);
        while let Some(item) = self.next(bytes, &mut at) {
            each(item);
            self.done();
        }
    }

    /// The stream has ended: hands out what stands in a last block without a blank line.
    pub fn finish(&mut self, mut each: impl FnMut(SseItem<'_>)) {
        if let Some(item) = self.last() {
            each(item);
        }
        self.done();
    }

    /// All bytes so far end with a blank line, or there are none.
    pub fn at_boundary(&self) -> bool {
        self.pending == 0
    }

    /// The last byte was a CR, of which the LF may still come.
    pub(crate) fn after_cr(&self) -> bool {
        self.after_cr
    }

    /// What makes a boundary of the place that was reached.
    pub(crate) fn closing(&self) -> &'static [u8] {
        match (self.pending, self.line_has_bytes) {
            (0, _) => b"",
            (_, false) => b"\n",
            (_, true) => b"\n\n",
        }
    }

    /// How many bytes at the front belong to the line end before: the LF of a CRLF that was cut.
    pub(crate) fn lead(&mut self, bytes: &[u8]) -> usize {
        if self.after_cr && bytes.first() == Some(&b'\n') {
            self.after_cr = false;
            if self.pending > 0 {
                self.keep(b"\n");
            }
            return 1;
        }
        0
    }

    /// The next block that ends at or behind `*at`, which is moved behind it. The caller calls `done` after it has
    /// looked. Without one, the rest of the bytes is kept.
    pub(crate) fn next<'a>(&'a mut self, bytes: &'a [u8], at: &mut usize) -> Option<SseItem<'a>> {
        let start = *at;
        let Some(end) = self.boundary(bytes, start) else {
            let rest = bytes.get(start..).unwrap_or_default();
            *at = bytes.len();
            self.keep(rest);
            return None;
        };
        *at = end;
        let here = bytes.get(start..end).unwrap_or_default();
        let first = !std::mem::replace(&mut self.started, true);
        if self.pending == 0 {
            if here.len() > EVENT_BYTES_MAX {
                self.skim(here);
                return Some(SseItem::Oversized);
            }
            return Some(parse(here, first, &mut self.joined));
        }
        self.keep(here);
        if self.partial.is_empty() {
            return Some(SseItem::Oversized);
        }
        Some(parse(&self.partial, first, &mut self.joined))
    }

    /// The unfinished block at the end of the stream.
    pub(crate) fn last(&mut self) -> Option<SseItem<'_>> {
        if self.pending == 0 {
            return None;
        }
        if self.partial.is_empty() {
            return Some(SseItem::Oversized);
        }
        let first = !std::mem::replace(&mut self.started, true);
        Some(parse(&self.partial, first, &mut self.joined))
    }

    /// Forgets the block that was handed out.
    pub(crate) fn done(&mut self) {
        self.pending = 0;
        self.partial.clear();
        if self.partial.capacity() > KEEP {
            self.partial = Vec::new();
        }
        self.joined.clear();
        if self.joined.capacity() > KEEP {
            self.joined = Vec::new();
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let read = self.pending == self.partial.len();
        self.pending = self.pending.saturating_add(bytes.len());
        if read && self.pending <= EVENT_BYTES_MAX {
            self.partial.extend_from_slice(bytes);
        } else {
            let held = std::mem::take(&mut self.partial);
            self.skim(&held);
            self.skim(bytes);
            if read && self.spill {
                self.spilled = held;
                self.spilled.extend_from_slice(bytes);
            }
        }
    }

    /// What was skimmed of the block that was too large, if it was told to skim.
    pub(crate) fn skimmed(&mut self) -> Option<Vec<u8>> {
        self.skimming.take().and_then(|skim| skim.take())
    }

    fn skim(&mut self, bytes: &[u8]) {
        if self.skims && !bytes.is_empty() {
            self.skimming.get_or_insert_default().push(bytes);
        }
    }

    /// The unfinished block is too large; it is passed over.
    pub(crate) fn passes_over(&self) -> bool {
        self.pending > 0 && self.partial.is_empty()
    }

    /// The end of the block that goes on at `at`, if it ends in these bytes.
    fn boundary(&mut self, bytes: &[u8], mut at: usize) -> Option<usize> {
        loop {
            let rest = bytes.get(at..)?;
            if rest.is_empty() {
                return None;
            }
            self.after_cr = false;
            let Some(n) = memchr2(b'\n', b'\r', rest) else {
                self.line_has_bytes = true;
                return None;
            };
            let blank = n == 0 && !self.line_has_bytes;
            self.line_has_bytes = false;
            at += n + 1;
            if rest.get(n) == Some(&b'\r') {
                match bytes.get(at) {
                    Some(b'\n') => at += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            if blank {
                return Some(at);
            }
        }
    }
}

/// Reads the lines of one block.
fn parse<'a>(block: &'a [u8], first: bool, joined: &'a mut Vec<u8>) -> SseItem<'a> {
    let mut rest = block;
    if first && rest.starts_with(BOM) {
        rest = rest.get(BOM.len()..).unwrap_or_default();
    }
    let mut name: &[u8] = b"";
    let (mut id, mut retry) = (None, None);
    let mut data: Option<&[u8]> = None;
    let mut lines = 0_u32;
    let mut comments = 0_u32;
    while !rest.is_empty() {
        let n = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let (line, tail) = rest.split_at(n);
        let ends = if tail.starts_with(b"\r\n") { 2 } else { 1 };
        rest = tail.get(ends..).unwrap_or_default();
        if line.is_empty() {
            continue;
        }
        let (field, value) = split(line);
        match field {
            b"" => comments = comments.saturating_add(1),
            b"data" => {
                if let Some(before) = data {
                    if lines == 1 {
                        joined.clear();
                        joined.extend_from_slice(before);
                    }
                    joined.push(b'\n');
                    joined.extend_from_slice(value);
                } else {
                    data = Some(value);
                }
                lines = lines.saturating_add(1);
            }
            b"event" => name = value,
            b"id" => id = Some(value),
            b"retry" => retry = Some(value),
            _ => {}
        }
    }
    match data {
        None => SseItem::Quiet { comments },
        Some(one) if lines == 1 => SseItem::Event(SseEvent { name, data: one, id, retry }),
        Some(_) => SseItem::Event(SseEvent { name, data: joined, id, retry }),
    }
}

/// Field and value; exactly one space behind the colon is no part of the value.
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    if let Some(rest) = line.strip_prefix(b"data:") {
        return (b"data", rest.strip_prefix(b" ").unwrap_or(rest));
    }
    let Some(n) = memchr(b':', line) else { return (line, b"") };
    let (field, rest) = line.split_at(n);
    let value = rest.get(1..).unwrap_or_default();
    (field, value.strip_prefix(b" ").unwrap_or(value))
}
