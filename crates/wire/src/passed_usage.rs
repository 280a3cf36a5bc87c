//! Finds a usage object in an answer that was passed through: a whole JSON body, or server-sent events.
//!
//! Such answers are not understood, only looked through: `usage` at the top, or inside `response` or `message`. The
//! rules for its figures are those of the dialect. Invariants: memory is bounded by the reader of events; nothing that
//! an upstream sends makes this fail. What has no usage has none: it is never zero.

use crate::json::{Fault, Json};
use crate::meter::{UpstreamErrorFacts, read_error};
use crate::sse::{SseItem, SseReader};
use crate::surface::Dialect;
use crate::usage::{Anomalies, Usage, bump};
use crate::{usage_anthropic, usage_openai};

/// What was found so far.
#[derive(Debug)]
pub struct PassedMeter {
    dialect: Dialect,
    reader: SseReader,
    openai: usage_openai::StreamUsage,
    anthropic: usage_anthropic::Figures,
    found: bool,
    pub error: Option<UpstreamErrorFacts>,
    pub anomalies: Anomalies,
    /// Something other than an error came.
    pub answered: bool,
    /// There is a list with something in it: an error may stand beside an answer.
    pub substance: bool,
}

impl PassedMeter {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            reader: SseReader::new(),
            openai: usage_openai::StreamUsage::default(),
            anthropic: usage_anthropic::Figures::default(),
            found: false,
            error: None,
            anomalies: Anomalies::default(),
            answered: false,
            substance: false,
        }
    }

    /// A whole body; false if it is no JSON object.
    pub fn body(&mut self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        let mut json = Json::lax(&text);
        let read = self.object(&mut json, 0).and_then(|()| json.end());
        if read.is_err() {
            bump(&mut self.anomalies.unparsable);
        }
        self.answered = self.error.is_none();
        read.is_ok()
    }

    /// Bytes of an event stream.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut reader = std::mem::take(&mut self.reader);
        reader.push(bytes, |item| self.see(item));
        self.reader = reader;
    }

    /// The event stream has ended.
    pub fn finish(&mut self) {
        let mut reader = std::mem::take(&mut self.reader);
        reader.finish(|item| self.see(item));
    }

    fn see(&mut self, item: SseItem<'_>) {
        match item {
            SseItem::Event(event) => {
                let data = event.data.trim_ascii();
                if data.starts_with(b"[DONE]") {
                    self.openai.close();
                    return;
                }
                if data.is_empty() {
                    return;
                }
                let text = String::from_utf8_lossy(data);
                let mut json = Json::lax(&text);
                if self.object(&mut json, 0).and_then(|()| json.end()).is_err() {
                    bump(&mut self.anomalies.unparsable);
                }
                self.answered |= self.error.is_none();
            }
            SseItem::Quiet { .. } => {}
            SseItem::Oversized => bump(&mut self.anomalies.oversized),
        }
    }

    fn object(&mut self, json: &mut Json<'_>, depth: u8) -> Result<(), Fault> {
        json.object(|json, key| match key.raw() {
            "usage" => self.usage(json),
            "error" => {
                let facts = read_error(json)?;
                self.error = self.error.take().or(facts);
                Ok(())
            }
            "response" | "message" if depth == 0 && json.kind()? == crate::json::Kind::Object => {
                self.object(json, 1)
            }
            _ => {
                let mut items = false;
                json.array_or_skip(|json| {
                    items = true;
                    json.skip()
                })?;
                self.substance |= items;
                Ok(())
            }
        })
    }

    fn usage(&mut self, json: &mut Json<'_>) -> Result<(), Fault> {
        let odd = &mut self.anomalies;
        match self.dialect {
            Dialect::OpenAi => {
                if let Some(figures) = usage_openai::Figures::read(json, usage_openai::Names::Both, odd)? {
                    self.openai.see(None, figures, odd);
                    self.found = true;
                }
            }
            Dialect::Anthropic => {
                if let Some(figures) = usage_anthropic::Figures::read(json, odd)? {
                    self.anthropic.merge(&figures);
                    self.found = true;
                }
            }
        }
        Ok(())
    }

    /// The usage of the whole, if there is one.
    pub fn usage_found(&mut self) -> Option<Usage> {
        if !self.found {
            return None;
        }
        match self.dialect {
            Dialect::OpenAi => self.openai.resolve(true, &mut self.anomalies),
            Dialect::Anthropic => self.anthropic.resolve(true, &mut self.anomalies),
        }
    }
}
