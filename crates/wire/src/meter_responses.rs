//! Reads the events of the responses surface: named events, each with its `type` in the data.
//!
//! Text streams in events whose type ends in `.delta`; every `.done` event, and the last one, repeats it and is not
//! counted again. Usage, errors and the end stand in one terminal event, nested under `response` (B070, B071). The type
//! may stand behind what it names, so nothing is counted before the event was read.

use crate::items::AnswerItem;
use crate::json::{Fault, Json, Str};
use crate::meter::{Meter, UpstreamErrorFacts, Verdict, WORD_MAX, cut, error_member, keep_word, whole};
use crate::usage::{Anomalies, Usage};
use crate::usage_openai::{Figures, Names};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Output: text, arguments of a call, visible reasoning.
    Delta,
    /// Output that is no text: sound, pictures.
    Binary,
    ItemAdded,
    ItemDone,
    /// Terminal: completed, incomplete, cancelled.
    End,
    /// Terminal: failed, or the flat error event.
    Failed,
    Other,
}

impl Kind {
    fn read(word: &str) -> Self {
        match word {
            "response.output_item.added" => Self::ItemAdded,
            "response.output_item.done" => Self::ItemDone,
            "response.completed" | "response.incomplete" | "response.cancelled" | "response.done" => {
                Self::End
            }
            "response.failed" | "error" => Self::Failed,
            _ => match word.rsplit_once('.') {
                Some((_, "partial_image")) => Self::Binary,
                Some((of, "delta")) if of.contains("audio") && !of.contains("transcript") => Self::Binary,
                Some((_, "delta")) => Self::Delta,
                _ => Self::Other,
            },
        }
    }
}

/// What one event said, before it is known what it is.
#[derive(Default)]
struct Event<'a> {
    kind: Option<Kind>,
    delta: Option<Str<'a>>,
    item: AnswerItem<'a>,
    /// A response that says that it failed.
    failed: bool,
    usage: Option<Figures>,
    /// The members of a flat error event.
    flat: UpstreamErrorFacts,
}

impl Meter {
    pub(crate) fn responses_event(&mut self, json: &mut Json<'_>) -> Result<Verdict, Fault> {
        let mut event = Event::default();
        json.object(|json, key| {
            match key.raw() {
                "type" => event.kind = json.string_or_skip()?.map(|word| Kind::read(word.raw())),
                "delta" => event.delta = json.string_or_skip()?,
                "item" => event.item = self.walk.answer_item(json, false)?,
                "response" => self.response(json, &mut event)?,
                "sequence_number" => self.seen.sequence = whole(json)?.or(self.seen.sequence),
                "error" => self.take_error(json)?,
                name @ ("code" | "message") => error_member(&mut event.flat, json, name)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        self.responses_close(event);
        Ok(Verdict::Forward)
    }

    /// An event that was too large to read, without what made it so.
    pub(crate) fn see_skimmed(&mut self, event: &[u8]) {
        let text = String::from_utf8_lossy(event);
        let mut json = Json::lax(&text);
        // One that cannot be read was counted already, as too large.
        let _ = self.responses_event(&mut json);
    }

    fn responses_close(&mut self, event: Event<'_>) {
        let mut kind = event.kind.unwrap_or(Kind::Other);
        if kind == Kind::End && event.failed {
            kind = Kind::Failed;
        }
        match kind {
            Kind::Delta => {
                if let Some(text) = event.delta {
                    self.walk.put(&text);
                }
            }
            Kind::Binary => self.first_output_seen = true,
            Kind::ItemAdded => {
                if let Some(name) = event.item.name {
                    self.walk.put(&name);
                }
                self.searches.begin(&event.item);
            }
            Kind::ItemDone => self.searches.end(&event.item),
            Kind::End => (self.finish_seen, self.saw_done) = (true, true),
            Kind::Failed => {
                self.saw_done = true;
                self.error.get_or_insert(event.flat);
            }
            Kind::Other => {}
        }
        self.after_text();
        self.web_searches = self.web_searches.max(self.searches.billed());
        self.hosted = self.hosted.max(self.searches.hosted());
        if let Some(figures) = event.usage {
            self.chat.see(None, figures, &mut self.anomalies);
        }
        if self.saw_done || event.usage.is_some() {
            if self.saw_done {
                self.chat.close();
            }
            self.refresh();
        }
    }

    /// The response as an event tells it: whole in the terminal one, else its beginnings.
    fn response<'a>(&mut self, json: &mut Json<'a>, event: &mut Event<'a>) -> Result<(), Fault> {
        // Some servers send no deltas: then the text stands here alone.
        let unread = self.output.is_empty();
        json.object_or_skip(|json, key| {
            match key.raw() {
                "id" if self.seen.id.is_empty() => keep_word(&mut self.seen.id, json)?,
                "model" if self.seen.model.is_empty() => keep_word(&mut self.seen.model, json)?,
                "created_at" if self.seen.created == 0 => self.seen.created = whole(json)?.unwrap_or(0),
                "status" => event.failed = json.string_or_skip()?.is_some_and(|word| word.raw() == "failed"),
                // The first event repeats the tier that was asked for, the last one tells the tier that was used.
                "service_tier" => {
                    if let Some(tier) = json.string_or_skip()? {
                        self.service_tier = Some(cut(&tier.decode(), WORD_MAX));
                    }
                }
                "error" => self.take_error(json)?,
                "usage" => event.usage = Figures::read(json, Names::Both, &mut self.anomalies)?,
                "output" => {
                    let items = self.walk.answer_items(json, unread)?;
                    self.web_searches = self.web_searches.max(items.billed());
                    self.hosted = self.hosted.max(items.hosted());
                }
                _ => json.skip()?,
            }
            Ok(())
        })
        .map(drop)
    }

    /// The figures are final once the response is over.
    pub(crate) fn responses_usage(&self, odd: &mut Anomalies) -> Option<Usage> {
        let mut usage = self.chat.resolve(self.saw_done, odd)?;
        usage.complete &= self.saw_done;
        usage.web_searches = usage.web_searches.max(self.web_searches);
        Some(usage)
    }
}
