//! Reads what a stream says about itself: usage, text, ends, errors. It reads a copy and changes nothing.
//!
//! Invariants: no event can make it fail; an event that is not JSON is counted and passed over (B128); memory is
//! bounded, whatever the upstream sends. What has not been reported stays `None` and is never zero.

use crate::classes::{Classes, Classifier};
use crate::content::{Sink, Walk};
use crate::hosted::HostedCalls;
use crate::items::Searches;
use crate::json::{Fault, Json, Kind};
use crate::names::finish_word;
use crate::relay::{StreamEnd, StreamError};
use crate::sse::{SseEvent, SseItem};
use crate::surface::{Dialect, Surface};
use crate::usage::{Anomalies, Usage, bump};
use crate::usage_openai::Names;
use crate::{usage_anthropic, usage_openai};

/// Longest text that is kept of an upstream's error message; ids and codes keep `WORD_MAX`.
const MESSAGE_MAX: usize = 1024;
pub(crate) const WORD_MAX: usize = 128;
/// Members of any chunk that say nothing by themselves.
const ENVELOPE: [&str; 6] = ["id", "object", "created", "model", "system_fingerprint", "obfuscation"];

/// What an upstream said about its failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamErrorFacts {
    /// `error.type`
    pub kind: String,
    /// `error.code`, or `error.details.error_code`
    pub code: String,
    pub message: String,
}

/// What the events so far have said.
#[derive(Debug)]
pub struct Meter {
    pub usage: Option<Usage>,
    /// Text that streamed: content, visible reasoning, refusals, names and arguments of tool calls.
    pub output: Classes,
    pub events: u64,
    /// Comments and blocks without data: signs of life.
    pub quiet: u64,
    /// Events that are signs of life and no more (`ping`); they count as events too.
    pub pings: u64,
    pub first_output_seen: bool,
    /// A finish or stop reason was seen (for every choice that spoke).
    pub finish_seen: bool,
    /// `[DONE]` or `message_stop`.
    pub saw_done: bool,
    pub error: Option<UpstreamErrorFacts>,
    pub anomalies: Anomalies,
    /// Some event was too large to be read.
    pub oversized: bool,
    /// The service tier that the upstream says it used.
    pub service_tier: Option<String>,
    /// Web searches that the events tell of.
    pub web_searches: u64,
    /// Calls of other hosted tools that the events tell of.
    pub hosted: HostedCalls,
    pub seen: Seen,
    surface: Surface,
    pub(crate) walk: Walk<Running>,
    /// Of every surface of the OpenAI dialect.
    pub(crate) chat: usage_openai::StreamUsage,
    pub(crate) searches: Searches,
    messages: usage_anthropic::Figures,
    /// A `message_delta` has counted the output.
    delta_counted: bool,
    /// Inconsistencies found by the last `resolve`, so that they are not counted again.
    unfit: Anomalies,
}

/// What the gateway must repeat when it ends the stream itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    pub id: String,
    pub model: String,
    pub created: u64,
    /// Choices that spoke and choices that have finished, one bit per index.
    pub choices: u128,
    pub finished: u128,
    /// Why the first choice that has finished did so, in a bounded set of words.
    pub reason: Option<&'static str>,
    /// `message_start` was seen.
    pub started: bool,
    /// The content block that is open.
    pub open_block: Option<u32>,
    /// Number of the last event, where the surface numbers them.
    pub sequence: Option<u64>,
    /// There are more choices than can be told apart.
    pub crowded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Forward,
    /// Nothing but the usage of the whole answer.
    UsageOnly,
}

/// A classifier for text that goes on from event to event.
#[derive(Debug, Default)]
pub(crate) struct Running(Classifier);

impl Sink for Running {
    fn part(&mut self, text: &str) {
        self.0.part(text);
    }
    fn end(&mut self) {}
}

impl Meter {
    pub(crate) fn new(surface: Surface) -> Self {
        Self {
            usage: None,
            output: Classes::default(),
            events: 0,
            quiet: 0,
            pings: 0,
            first_output_seen: false,
            finish_seen: false,
            saw_done: false,
            error: None,
            anomalies: Anomalies::default(),
            oversized: false,
            service_tier: None,
            web_searches: 0,
            hosted: HostedCalls::default(),
            searches: Searches::default(),
            seen: Seen::default(),
            surface,
            walk: Walk::new(Running::default()),
            chat: usage_openai::StreamUsage::default(),
            messages: usage_anthropic::Figures::default(),
            delta_counted: false,
            unfit: Anomalies::default(),
        }
    }

    /// How many events said something, read or not: comments and pings are none.
    pub fn told(&self) -> u64 {
        let unread = self.anomalies.unparsable.saturating_add(self.anomalies.oversized);
        self.events.saturating_sub(self.pings).saturating_add(u64::from(unread))
    }

    pub(crate) fn see(&mut self, item: SseItem<'_>) -> Verdict {
        match item {
            SseItem::Event(event) => self.event(&event, false).unwrap_or(Verdict::Forward),
            SseItem::Quiet { .. } => {
                self.quiet = self.quiet.saturating_add(1);
                Verdict::Forward
            }
            SseItem::Oversized => {
                self.oversized = true;
                bump(&mut self.anomalies.oversized);
                Verdict::Forward
            }
        }
    }

    /// The last event, which may have been cut; nothing if it was.
    pub(crate) fn see_last(&mut self, item: SseItem<'_>) -> Option<Verdict> {
        match item {
            SseItem::Event(event) => self.event(&event, true),
            other => Some(self.see(other)),
        }
    }

    /// Nothing if the event cannot be read.
    fn event(&mut self, event: &SseEvent<'_>, last: bool) -> Option<Verdict> {
        let data = event.data.trim_ascii();
        if data.is_empty() {
            self.quiet = self.quiet.saturating_add(1);
            return Some(Verdict::Forward);
        }
        if self.surface.dialect() == Dialect::OpenAi && data.starts_with(b"[DONE]") {
            self.saw_done = true;
            self.chat.close();
            self.refresh();
            return Some(Verdict::Forward);
        }
        let lossy;
        let text = if let Ok(text) = std::str::from_utf8(data) {
            text
        } else {
            lossy = String::from_utf8_lossy(data);
            &lossy
        };
        let mut json = Json::lax(text);
        let read = match self.surface {
            // Nothing streams from embeddings; what comes all the same is read like a chunk.
            Surface::Chat | Surface::Completions | Surface::Embeddings => self.chat_chunk(&mut json),
            Surface::Responses => self.responses_event(&mut json),
            Surface::Messages => self.messages_event(&mut json),
        };
        if let Ok(verdict) = read.and_then(|verdict| json.end().map(|()| verdict)) {
            self.events = self.events.saturating_add(1);
            return Some(verdict);
        }
        if !last {
            bump(&mut self.anomalies.unparsable);
        }
        None
    }

    fn chat_chunk(&mut self, json: &mut Json<'_>) -> Result<Verdict, Fault> {
        let mut count = 0_u32;
        let mut index = 0;
        let mut usage = None;
        let (mut told, mut more) = (false, false);
        let mut finished = false;
        json.object(|json, key| {
            match key.raw() {
                "choices" => {
                    json.array_or_skip(|json| {
                        count = count.saturating_add(1);
                        let (n, done) = self.choice(json)?;
                        index = n;
                        finished |= done;
                        Ok(())
                    })?;
                }
                "usage" => {
                    told = true;
                    usage = usage_openai::Figures::read(json, Names::Prompt, &mut self.anomalies)?;
                }
                "error" => self.take_error(json)?,
                "id" if self.seen.id.is_empty() => keep_word(&mut self.seen.id, json)?,
                "model" if self.seen.model.is_empty() => keep_word(&mut self.seen.model, json)?,
                "created" if self.seen.created == 0 => self.seen.created = whole(json)?.unwrap_or(0),
                "service_tier" => self.take_tier(json)?,
                name => {
                    more |= !ENVELOPE.contains(&name);
                    json.skip()?;
                }
            }
            Ok(())
        })?;
        self.after_text();
        // One that tells no figures is one all the same, unless it carries something else.
        let only = count == 0 && (usage.is_some() || told && !more) && self.error.is_none();
        if let Some(figures) = usage {
            self.chat.see((count == 1).then_some(index), figures, &mut self.anomalies);
        }
        self.finish_seen =
            self.seen.choices != 0 && self.seen.choices == self.seen.finished && !self.seen.crowded;
        if finished || only || usage.is_some() {
            self.refresh();
        }
        Ok(if only { Verdict::UsageOnly } else { Verdict::Forward })
    }

    /// One choice of a chunk; answers its index and whether it has finished.
    fn choice(&mut self, json: &mut Json<'_>) -> Result<(u32, bool), Fault> {
        let mut index = 0;
        let mut finished = false;
        let mut usage = None;
        json.object_or_skip(|json, key| {
            match key.raw() {
                "index" => {
                    let n = whole(json)?.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
                    index = n.min(usage_openai::CHOICES_MAX - 1);
                    self.seen.crowded |= index != n;
                }
                "text" if self.surface == Surface::Completions => self.walk.text(json)?,
                "delta" | "message" => self.delta(json)?,
                "finish_reason" => finished = self.finish(json)?,
                "usage" => usage = usage_openai::Figures::read(json, Names::Prompt, &mut self.anomalies)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        let bit = 1_u128 << index;
        self.seen.choices |= bit;
        if finished {
            self.seen.finished |= bit;
        }
        if let Some(figures) = usage {
            self.chat.see(Some(index), figures, &mut self.anomalies);
        }
        Ok((index, finished))
    }

    fn delta(&mut self, json: &mut Json<'_>) -> Result<(), Fault> {
        let mut reasoned = false;
        json.object_or_skip(|json, key| match key.raw() {
            // Some upstreams send the same reasoning under two or three names.
            "reasoning" | "reasoning_content" | "reasoning_details" if reasoned => json.skip(),
            name @ ("reasoning" | "reasoning_content" | "reasoning_details") => {
                let before = self.walk.sink.0.classes().bytes;
                reasoning(&mut self.walk, json, name)?;
                reasoned = self.walk.sink.0.classes().bytes != before;
                Ok(())
            }
            // Encoded sound is output, though no text.
            "audio" => {
                self.first_output_seen |= json.object_or_skip(|json, _| json.skip())?;
                Ok(())
            }
            "name" => json.skip(),
            name => self.walk.message_member(json, name),
        })
        .map(drop)
    }

    fn messages_event(&mut self, json: &mut Json<'_>) -> Result<Verdict, Fault> {
        let mut kind = None;
        let mut index = None;
        let mut stopped = false;
        let mut usage = None;
        json.object(|json, key| {
            match key.raw() {
                "type" => kind = json.string_or_skip()?.map(|s| EventKind::read(s.raw())),
                "index" => index = whole(json)?.and_then(|n| u32::try_from(n).ok()),
                "delta" => stopped = self.block_delta(json)?,
                "content_block" => drop(json.object_or_skip(|json, key| match key.raw() {
                    "text" | "thinking" | "name" => self.walk.text(json),
                    _ => json.skip(),
                })?),
                "message" => self.message_start(json)?,
                "usage" => usage = usage_anthropic::Figures::read(json, &mut self.anomalies)?,
                "error" => self.take_error(json)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        self.after_text();
        if let Some(figures) = usage {
            if self.saw_done && self.usage.is_some_and(|usage| usage.complete) {
                // As behind `[DONE]`: what is complete stands.
                bump(&mut self.anomalies.inconsistent);
            } else {
                self.messages.merge(&figures);
                self.delta_counted |= figures.reports_output();
            }
        }
        self.finish_seen |= stopped;
        match kind {
            Some(EventKind::Start) => self.seen.started = true,
            Some(EventKind::BlockStart) => self.seen.open_block = index,
            Some(EventKind::BlockStop) => self.seen.open_block = None,
            Some(EventKind::Stop) => {
                self.saw_done = true;
                self.finish_seen = true;
            }
            Some(EventKind::Ping) => self.pings = self.pings.saturating_add(1),
            Some(EventKind::Other) | None => {}
        }
        if usage.is_some() || stopped || matches!(kind, Some(EventKind::Start | EventKind::Stop)) {
            self.refresh();
        }
        Ok(Verdict::Forward)
    }

    /// The delta of a block or of the message; answers whether it stops the message.
    fn block_delta(&mut self, json: &mut Json<'_>) -> Result<bool, Fault> {
        let mut stopped = false;
        json.object_or_skip(|json, key| match key.raw() {
            "text" | "thinking" | "partial_json" => self.walk.text(json),
            "stop_reason" => {
                stopped = self.finish(json)?;
                Ok(())
            }
            _ => json.skip(),
        })?;
        Ok(stopped)
    }

    /// A finish or stop reason; answers whether there is one.
    fn finish(&mut self, json: &mut Json<'_>) -> Result<bool, Fault> {
        let reason = json.string_or_skip()?.and_then(|why| finish_word(why.raw()));
        self.seen.reason = self.seen.reason.or(reason);
        Ok(reason.is_some())
    }

    fn message_start(&mut self, json: &mut Json<'_>) -> Result<(), Fault> {
        json.object_or_skip(|json, key| {
            match key.raw() {
                "id" => keep_word(&mut self.seen.id, json)?,
                "model" => keep_word(&mut self.seen.model, json)?,
                "usage" => {
                    if let Some(figures) = usage_anthropic::Figures::read(json, &mut self.anomalies)? {
                        self.messages.merge(&figures);
                    }
                }
                _ => json.skip()?,
            }
            Ok(())
        })
        .map(drop)
    }

    fn take_tier(&mut self, json: &mut Json<'_>) -> Result<(), Fault> {
        if let Some(tier) = json.string_or_skip()?
            && self.service_tier.is_none()
        {
            self.service_tier = Some(cut(&tier.decode(), WORD_MAX));
        }
        Ok(())
    }

    pub(crate) fn take_error(&mut self, json: &mut Json<'_>) -> Result<(), Fault> {
        if let Some(facts) = read_error(json)?
            && self.error.is_none()
        {
            self.error = Some(facts);
        }
        Ok(())
    }

    pub(crate) fn after_text(&mut self) {
        let classes = self.walk.sink.0.classes();
        if classes.bytes != self.output.bytes {
            self.output = classes;
            self.first_output_seen = true;
        }
    }

    /// Brings `usage` up to date.
    pub(crate) fn refresh(&mut self) {
        let mut unfit = Anomalies::default();
        self.usage = match self.surface {
            Surface::Chat | Surface::Completions | Surface::Embeddings => {
                self.chat.resolve(self.saw_done || self.finish_seen, &mut unfit)
            }
            Surface::Responses => self.responses_usage(&mut unfit),
            Surface::Messages => self.messages.resolve(self.finish_seen && self.delta_counted, &mut unfit),
        };
        let known = self.anomalies.inconsistent.saturating_sub(self.unfit.inconsistent);
        self.anomalies.inconsistent = known.saturating_add(unfit.inconsistent);
        self.unfit = unfit;
    }

    /// The verdict on the whole stream.
    pub(crate) fn end(&mut self) -> StreamEnd {
        self.walk.sink.0.end();
        self.output = self.walk.sink.0.classes();
        self.refresh();
        let ended = self.finish_seen || self.saw_done;
        let error = match &self.error {
            Some(facts) => Some(StreamError::Upstream(facts.clone())),
            None if ended => None,
            None => Some(StreamError::Truncated),
        };
        let complete = error.is_none();
        let marker_due = complete && !self.saw_done && self.surface.has_usage_option();
        StreamEnd { complete, saw_done: self.saw_done, marker_due, error }
    }
}

/// Reasoning under one of its names. Of its details only what is read out is text: the rest is for the provider itself.
pub(crate) fn reasoning<S: Sink>(walk: &mut Walk<S>, json: &mut Json<'_>, name: &str) -> Result<(), Fault> {
    if name != "reasoning_details" {
        return walk.message_member(json, name);
    }
    let each = |json: &mut Json<'_>| {
        json.object_or_skip(|json, key| match key.raw() {
            "text" | "summary" => walk.text(json),
            _ => json.skip(),
        })
        .map(drop)
    };
    json.array_or_skip(each).map(drop)
}

#[derive(Debug, Clone, Copy)]
enum EventKind {
    Start,
    BlockStart,
    BlockStop,
    Stop,
    Ping,
    Other,
}

impl EventKind {
    fn read(word: &str) -> Self {
        match word {
            "message_start" => Self::Start,
            "content_block_start" => Self::BlockStart,
            "content_block_stop" => Self::BlockStop,
            "message_stop" => Self::Stop,
            "ping" => Self::Ping,
            _ => Self::Other,
        }
    }
}

/// The value of `error`: an object, or the message alone. `null`, `false` and empty ones are no error.
pub(crate) fn read_error(json: &mut Json<'_>) -> Result<Option<UpstreamErrorFacts>, Fault> {
    let mut facts = UpstreamErrorFacts::default();
    match json.kind()? {
        Kind::String => facts.message = cut(&json.string()?.decode(), MESSAGE_MAX),
        Kind::Object => {
            let mut members = false;
            json.object(|json, key| {
                members = true;
                error_member(&mut facts, json, key.raw())
            })?;
            return Ok(members.then_some(facts));
        }
        _ => json.skip()?,
    }
    Ok((!facts.message.is_empty()).then_some(facts))
}

pub(crate) fn error_member(
    facts: &mut UpstreamErrorFacts,
    json: &mut Json<'_>,
    key: &str,
) -> Result<(), Fault> {
    match key {
        "type" => keep_word(&mut facts.kind, json)?,
        "code" if facts.code.is_empty() => match json.kind()? {
            Kind::Number => facts.code = cut(json.number()?, WORD_MAX),
            _ => keep_word(&mut facts.code, json)?,
        },
        "message" => {
            if let Some(text) = json.string_or_skip()? {
                facts.message = cut(&text.decode(), MESSAGE_MAX);
            }
        }
        "details" => {
            json.object_or_skip(|json, key| match key.raw() {
                "error_code" => keep_word(&mut facts.code, json),
                _ => json.skip(),
            })?;
        }
        _ => json.skip()?,
    }
    Ok(())
}

/// Keeps a string member, cut to a bound.
pub(crate) fn keep_word(slot: &mut String, json: &mut Json<'_>) -> Result<(), Fault> {
    if let Some(word) = json.string_or_skip()? {
        *slot = cut(&word.decode(), WORD_MAX);
    }
    Ok(())
}

pub(crate) fn cut(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("").to_owned()
}

/// A whole number, or nothing for any other value.
pub(crate) fn whole(json: &mut Json<'_>) -> Result<Option<u64>, Fault> {
    if json.kind()? == Kind::Number {
        return Ok(json.number()?.parse().ok());
    }
    json.skip().map(|()| None)
}
