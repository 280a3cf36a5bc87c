//! Reads a whole JSON answer: usage, text, ends and errors.
//!
//! Failure is a fact, not an error: a body that is no JSON object says so (`json: false`) and has no usage.

use std::borrow::Cow;

use crate::classes::{Classes, Classifier};
use crate::content::Walk;
use crate::hosted::HostedCalls;
use crate::json::{Fault, Json};
use crate::meter::{UpstreamErrorFacts, error_member, keep_word, read_error, reasoning};
use crate::surface::Surface;
use crate::usage::{Anomalies, Usage, bump};
use crate::usage_anthropic;
use crate::usage_openai::{Figures, Names};

/// The states of a response that is over.
const ENDED: [&str; 4] = ["completed", "incomplete", "failed", "cancelled"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BodyMeter {
    /// The body is one JSON object.
    pub json: bool,
    pub usage: Option<Usage>,
    pub output: Classes,
    /// A finish or stop reason was given.
    pub finish_seen: bool,
    /// The body is an error, whatever its status says (B147).
    pub error: Option<UpstreamErrorFacts>,
    pub anomalies: Anomalies,
    pub service_tier: Option<String>,
    /// Web searches that the answer tells of, item by item.
    pub web_searches: u64,
    /// Calls of other hosted tools, item by item.
    pub hosted: HostedCalls,
    /// The body has the shape of an answer, though it may tell of a failure (a response that is `failed`).
    pub is_answer: bool,
}

/// Meters an answer that came in one piece.
pub fn read_usage(surface: Surface, body: &[u8]) -> BodyMeter {
    let mut out = BodyMeter::default();
    // Checked whole first: looking for bad bytes one by one costs several times as much.
    let text = std::str::from_utf8(body).map_or_else(|_| String::from_utf8_lossy(body), Cow::Borrowed);
    let mut walk = Walk::new(Classifier::default());
    let mut json = Json::lax(&text);
    let read = out.object(surface, &mut json, &mut walk).and_then(|()| json.end());
    out.output = walk.sink.classes();
    out.json = read.is_ok();
    if !out.json {
        bump(&mut out.anomalies.unparsable);
    }
    out
}

impl BodyMeter {
    /// The body is an error and nothing else. One beside something that was written and paid for is an answer.
    pub fn is_failure(&self) -> bool {
        self.error.is_some() && !self.is_answer && (self.usage.is_none() || self.output.is_empty())
    }

    fn object(
        &mut self,
        surface: Surface,
        json: &mut Json<'_>,
        walk: &mut Walk<Classifier>,
    ) -> Result<(), Fault> {
        // A flat error: the members of `error` stand beside `"object":"error"`.
        let mut flat = UpstreamErrorFacts::default();
        let mut is_error = false;
        json.object(|json, key| {
            match (key.raw(), surface) {
                ("usage", _) => self.usage(surface, json)?,
                ("error", _) => self.error = read_error(json)?,
                ("choices", Surface::Chat) => {
                    json.array_or_skip(|json| self.choice(json, walk))?;
                }
                ("choices", Surface::Completions) => {
                    json.array_or_skip(|json| self.text_choice(json, walk))?;
                }
                ("output", Surface::Responses) => {
                    let items = walk.answer_items(json, true)?;
                    (self.web_searches, self.hosted) = (items.billed(), items.hosted());
                }
                ("status", Surface::Responses) => {
                    let status = json.string_or_skip()?;
                    self.finish_seen |= status.is_some_and(|word| ENDED.contains(&word.raw()));
                }
                ("content", Surface::Messages) => walk.parts(json)?,
                ("stop_reason", Surface::Messages) => {
                    self.finish_seen |= json.string_or_skip()?.is_some_and(|why| !why.is_empty());
                }
                ("object", _) => {
                    let kind = json.string_or_skip()?;
                    is_error |= kind.is_some_and(|kind| kind.raw() == "error");
                    self.is_answer |= kind.is_some_and(|kind| kind.raw() == "response");
                }
                ("service_tier", _) => {
                    let mut tier = String::new();
                    keep_word(&mut tier, json)?;
                    self.service_tier = Some(tier).filter(|tier| !tier.is_empty());
                }
                (name @ ("type" | "code" | "message"), _) => error_member(&mut flat, json, name)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        if self.error.is_none() && (is_error || flat.kind == "error") {
            self.error = Some(flat);
        }
        if let Some(usage) = &mut self.usage {
            usage.web_searches = usage.web_searches.max(self.web_searches);
        }
        Ok(())
    }

    fn usage(&mut self, surface: Surface, json: &mut Json<'_>) -> Result<(), Fault> {
        let odd = &mut self.anomalies;
        self.usage = match surface {
            Surface::Chat | Surface::Completions => {
                Figures::read(json, Names::Prompt, odd)?.and_then(|figures| figures.resolve(odd))
            }
            Surface::Responses => {
                Figures::read(json, Names::Both, odd)?.and_then(|figures| figures.resolve(odd))
            }
            Surface::Embeddings => {
                Figures::read(json, Names::Both, odd)?.and_then(|figures| figures.resolve_input(odd))
            }
            Surface::Messages => {
                let figures = usage_anthropic::Figures::read(json, odd)?;
                // Merging into nothing applies the same rules as in a stream.
                let mut merged = usage_anthropic::Figures::default();
                figures.and_then(|figures| {
                    merged.merge(&figures);
                    merged.resolve(true, odd)
                })
            }
        };
        Ok(())
    }

    fn choice(&mut self, json: &mut Json<'_>, walk: &mut Walk<Classifier>) -> Result<(), Fault> {
        json.object_or_skip(|json, key| {
            match key.raw() {
                "message" => {
                    let mut reasoned = false;
                    json.object_or_skip(|json, key| match key.raw() {
                        "reasoning" | "reasoning_content" | "reasoning_details" if reasoned => json.skip(),
                        name @ ("reasoning" | "reasoning_content" | "reasoning_details") => {
                            let before = walk.sink.classes().bytes;
                            reasoning(walk, json, name)?;
                            reasoned = walk.sink.classes().bytes != before;
                            Ok(())
                        }
                        name => walk.message_member(json, name),
                    })?;
                }
                "finish_reason" => {
                    self.finish_seen |= json.string_or_skip()?.is_some_and(|why| !why.is_empty());
                }
                _ => json.skip()?,
            }
            Ok(())
        })
        .map(drop)
    }

    /// A choice of the completions surface.
    fn text_choice(&mut self, json: &mut Json<'_>, walk: &mut Walk<Classifier>) -> Result<(), Fault> {
        json.object_or_skip(|json, key| {
            match key.raw() {
                "text" => walk.text(json)?,
                "finish_reason" => {
                    self.finish_seen |= json.string_or_skip()?.is_some_and(|why| !why.is_empty());
                }
                _ => json.skip()?,
            }
            Ok(())
        })
        .map(drop)
    }
}
