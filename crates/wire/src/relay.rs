//! Relays a stream of the same dialect: bytes in, the same bytes out, and a meter that read them.
//!
//! Invariants: what comes out is what went in, in order, but for whole usage chunks that the client did not ask for; what comes
//! out in total does not depend on how the bytes were cut. Nothing is inserted but by `append`, which first makes
//! an event boundary. Without `drop_usage_chunk` no byte waits; with it an unfinished event waits, up to
//! `EVENT_BYTES_MAX`, because it might be the one to drop.
//! When the stream breaks: `end` says so, and what the client must still be told is for the caller to append.

use bytes::Bytes;

use crate::meter::{Meter, UpstreamErrorFacts, Verdict};
use crate::sse::SseReader;
use crate::surface::Surface;

#[derive(Debug)]
pub struct StreamRelay {
    reader: SseReader,
    meter: Meter,
    drop_usage_chunk: bool,
    /// The block before was dropped, so the LF of its CRLF goes with it.
    dropped: bool,
    /// What must follow the bytes that came out to make a boundary.
    closing: &'static [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// The upstream said so in the stream.
    Upstream(UpstreamErrorFacts),
    /// The bytes ended before the answer did.
    Truncated,
}

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEnd {
    /// The answer is whole: a finish reason or the terminal marker was seen, and no error.
    pub complete: bool,
    pub saw_done: bool,
    /// The terminal marker is missing at a good end and should be appended (`done_marker`).
    pub marker_due: bool,
    pub error: Option<StreamError>,
}

impl StreamRelay {
    pub fn new(surface: Surface, drop_usage_chunk: bool) -> Self {
        let mut reader = SseReader::new();
        reader.spill = drop_usage_chunk;
        reader.skims = surface == Surface::Responses;
        Self { reader, meter: Meter::new(surface), drop_usage_chunk, dropped: false, closing: b"" }
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Takes bytes from the upstream; appends to `out` what may go to the client.
    pub fn push(&mut self, bytes: Bytes, out: &mut Vec<Bytes>) {
        if self.drop_usage_chunk {
            self.sift(&bytes, out);
        } else {
            self.watch(&bytes);
            emit(bytes, out);
        }
    }

    /// Meters only.
    fn watch(&mut self, bytes: &[u8]) {
        let mut at = self.reader.lead(bytes);
        while let Some(item) = self.reader.next(bytes, &mut at) {
            self.meter.see(item);
            if let Some(short) = self.reader.skimmed() {
                self.meter.see_skimmed(&short);
            }
            self.reader.done();
        }
        self.closing = self.reader.closing();
    }

    /// Meters, and leaves out what the client did not ask for.
    fn sift(&mut self, bytes: &Bytes, out: &mut Vec<Bytes>) {
        let mut at = self.reader.lead(bytes);
        // Bytes before `from` are forwarded, dropped or held by the reader.
        let mut from = match (self.reader.at_boundary(), self.reader.passes_over()) {
            (true, _) if self.dropped => at,
            (true, _) | (_, true) => 0,
            (false, false) => at,
        };
        loop {
            let start = at;
            let held = !self.reader.at_boundary() && !self.reader.passes_over();
            let verdict = self.reader.next(bytes, &mut at).map(|item| self.meter.see(item));
            let spilled = std::mem::take(&mut self.reader.spilled);
            if !spilled.is_empty() {
                emit(bytes.slice(from..start), out);
                emit(Bytes::from(spilled), out);
                from = at;
            }
            match verdict {
                Some(Verdict::UsageOnly) => {
                    emit(bytes.slice(from..start.max(from)), out);
                    from = at;
                }
                Some(Verdict::Forward) if held && !self.reader.passes_over() => {
                    emit(Bytes::from(std::mem::take(&mut self.reader.partial)), out);
                    from = at;
                }
                Some(Verdict::Forward) => {}
                None => {
                    let until = if self.reader.passes_over() { bytes.len() } else { start };
                    emit(bytes.slice(from..until.max(from)), out);
                    break;
                }
            }
            self.dropped = verdict == Some(Verdict::UsageOnly);
            self.reader.done();
        }
        self.closing = if self.reader.passes_over() { self.reader.closing() } else { b"" };
    }

    /// The upstream's bytes have ended, well or not. Flushes what was held.
    pub fn end(&mut self, out: &mut Vec<Bytes>) -> StreamEnd {
        let verdict = self.reader.last().map(|item| self.meter.see_last(item));
        if self.drop_usage_chunk && !self.reader.passes_over() {
            // An event that was cut is of no use to the client; a whole one that lacks its blank line is.
            if verdict == Some(Some(Verdict::Forward)) {
                self.closing = self.reader.closing();
                emit(Bytes::from(std::mem::take(&mut self.reader.partial)), out);
            }
        }
        self.reader.done();
        self.meter.end()
    }

    /// Whole events, and nothing else, have come out so far.
    pub fn at_boundary(&self) -> bool {
        self.closing.is_empty()
    }

    /// A boundary where a keepalive may stand: not between the CR and the LF of one line end (B123, B124).
    pub fn takes_keepalive(&self) -> bool {
        self.at_boundary() && !self.reader.after_cr()
    }

    /// Appends the gateway's own event, behind a boundary that is made if need be.
    /// After this nothing may be pushed unless `at_boundary` was true.
    pub fn append(&mut self, event: Bytes, out: &mut Vec<Bytes>) {
        emit(Bytes::from_static(self.closing), out);
        self.closing = b"";
        emit(event, out);
    }
}

fn emit(bytes: Bytes, out: &mut Vec<Bytes>) {
    if !bytes.is_empty() {
        out.push(bytes);
    }
}
