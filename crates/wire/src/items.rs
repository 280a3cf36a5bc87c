//! Input and output of the surfaces beside chat: items of the responses surface, prompts and llm_tokens as numbers.
//!
//! The rules are those of `content`: everything the provider will count is text, a shape that is not known counts as
//! text, encoded bytes never do. What an answer repeats (annotations, results of tools) is no output.

use crate::content::{MISSPELT, Sink, Step, TWICE, Walk, once};
use crate::hosted::{HostedCalls, HostedTool};
use crate::json::{Fault, Json, Kind, Str};
use crate::media::Image;
use crate::spelling::{may_misspell, misspells};

/// Members of an input item that are counted or steer how it counts, and how an error calls them.
const ITEM_DECLARED: [(&str, &str); 9] = [
    ("type", "input[].type"),
    ("role", "input[].role"),
    ("content", "input[].content"),
    ("name", "input[].name"),
    ("arguments", "input[].arguments"),
    ("input", "input[].input"),
    ("output", "input[].output"),
    ("summary", "input[].summary"),
    ("encrypted_content", "input[].encrypted_content"),
];

#[derive(Default)]
struct Item<'a> {
    image: bool,
    reference: bool,
    /// What a tool made: a picture if the item is one, else text.
    result: Option<Str<'a>>,
}

/// What an item of an answer is, apart from its text.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AnswerItem<'a> {
    /// Of a call of a tool; it is text of the answer.
    pub(crate) name: Option<Str<'a>>,
    pub(crate) web_search: bool,
    /// A web search that read pages, which has no fee of its own.
    pub(crate) free: bool,
    /// The call of another tool that the provider runs.
    pub(crate) hosted: Option<HostedTool>,
}

/// Web searches and calls of other hosted tools of one answer, as its items tell them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Searches {
    begun: u64,
    ended: u64,
    billed: u64,
    hosted_begun: HostedCalls,
    hosted_ended: HostedCalls,
}

impl Searches {
    pub(crate) fn begin(&mut self, item: &AnswerItem<'_>) {
        self.begun = self.begun.saturating_add(u64::from(item.web_search));
        if let Some(tool) = item.hosted {
            self.hosted_begun.add(tool, 1);
        }
    }

    pub(crate) fn end(&mut self, item: &AnswerItem<'_>) {
        self.ended = self.ended.saturating_add(u64::from(item.web_search));
        self.billed = self.billed.saturating_add(u64::from(item.web_search && !item.free));
        if let Some(tool) = item.hosted {
            self.hosted_ended.add(tool, 1);
        }
    }

    /// Calls of other hosted tools; here too one that was begun counts.
    pub(crate) fn hosted(self) -> HostedCalls {
        self.hosted_begun.max(self.hosted_ended)
    }

    /// One that was begun and never told its end counts.
    pub(crate) fn billed(self) -> u64 {
        self.billed.saturating_add(self.begun.saturating_sub(self.ended))
    }
}

impl<S: Sink> Walk<S> {
    /// Input of the responses surface: text, or a list of items.
    pub(crate) fn items(&mut self, json: &mut Json<'_>) -> Step {
        match json.kind()? {
            Kind::Null => json.null(),
            Kind::Array => json.array(|json| {
                self.content.messages += 1;
                self.item(json)
            }),
            _ => {
                self.content.messages += 1;
                self.parts(json)
            }
        }
    }

    fn item(&mut self, json: &mut Json<'_>) -> Step {
        if json.kind()? != Kind::Object {
            return self.text(json);
        }
        let mut item = Item::default();
        let mut seen = 0_u32;
        json.object(|json, key| {
            key.with(|key| {
                let odd = may_misspell(key);
                for (n, (name, param)) in ITEM_DECLARED.into_iter().enumerate() {
                    if odd && misspells(key, name) {
                        return Err(Fault::param(param, json.at(), MISSPELT));
                    }
                    if key == name && !once(&mut seen, n) {
                        return Err(Fault::param(param, json.at(), TWICE));
                    }
                }
                self.item_member(json, key, &mut item)
            })
        })?;
        self.content.stored |= item.reference;
        match item.result {
            Some(picture) if item.image => self.push_image(Image::inline(&picture), json.at()).map(drop),
            Some(text) => {
                self.put(&text);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn item_member<'a>(&mut self, json: &mut Json<'a>, key: &str, item: &mut Item<'a>) -> Step {
        match key {
            "type" => {
                if let Some(kind) = json.string_or_skip()? {
                    item.image = kind.with(|kind| kind.contains("image"));
                    item.reference = kind.with(|kind| kind == "item_reference");
                }
                Ok(())
            }
            "content" | "output" | "summary" => self.parts(json),
            "result" if json.kind()? == Kind::String => {
                item.result = Some(json.string()?);
                Ok(())
            }
            "encrypted_content" => {
                let bytes = json.string_or_skip()?.map_or(0, |sealed| sealed.raw().len());
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.content.sealed_bytes = self.content.sealed_bytes.saturating_add(bytes);
                Ok(())
            }
            "role" | "id" | "status" | "call_id" | "phase" => json.skip(),
            "name" | "arguments" | "input" => self.text(json),
            _ => self.beside(json),
        }
    }

    /// A prompt that lies with the provider: its variables are text, the rest is not in the body.
    pub(crate) fn stored_prompt(&mut self, json: &mut Json<'_>) -> Step {
        self.content.stored |= json.kind()? != Kind::Null;
        json.object_or_skip(|json, key| match key.raw() {
            "variables" => self.text(json),
            _ => json.skip(),
        })
        .map(drop)
    }

    /// What completions and embeddings take: a text, one llm_token after another as numbers, or a list of these.
    /// Answers how many inputs they are.
    pub(crate) fn inputs(&mut self, json: &mut Json<'_>) -> Result<u64, Fault> {
        if json.kind()? != Kind::Array {
            self.parts(json)?;
            return Ok(1);
        }
        let (mut count, mut numbers) = (0_u64, false);
        json.array(|json| {
            match json.kind()? {
                Kind::Number => {
                    numbers = true;
                    return self.id(json);
                }
                Kind::Array => json.array(|json| match json.kind()? {
                    Kind::Number => self.id(json),
                    _ => self.parts(json),
                })?,
                _ => self.parts(json)?,
            }
            count = count.saturating_add(1);
            Ok(())
        })?;
        Ok(count.saturating_add(u64::from(numbers)))
    }

    fn id(&mut self, json: &mut Json<'_>) -> Step {
        json.number()?;
        self.content.ids = self.content.ids.saturating_add(1);
        Ok(())
    }

    /// The items of a whole answer; `text` says whether their text is still to be counted.
    pub(crate) fn answer_items(&mut self, json: &mut Json<'_>, text: bool) -> Result<Searches, Fault> {
        let mut searches = Searches::default();
        json.array_or_skip(|json| {
            let item = self.answer_item(json, text)?;
            if let Some(name) = item.name.filter(|_| text) {
                self.put(&name);
            }
            searches.end(&item);
            Ok(())
        })?;
        Ok(searches)
    }

    /// One item of an answer, its text with it if `text`.
    pub(crate) fn answer_item<'a>(
        &mut self,
        json: &mut Json<'a>,
        text: bool,
    ) -> Result<AnswerItem<'a>, Fault> {
        let mut item = AnswerItem::default();
        json.object_or_skip(|json, key| {
            match key.raw() {
                "type" => {
                    let kind = json.string_or_skip()?;
                    item.web_search = kind.is_some_and(|kind| kind.raw() == "web_search_call");
                    item.hosted = kind.and_then(|kind| HostedTool::called(kind.raw()));
                }
                "name" => item.name = json.string_or_skip()?,
                "action" => {
                    json.object_or_skip(|json, key| match key.raw() {
                        "type" => {
                            let kind = json.string_or_skip()?;
                            item.free = kind.is_some_and(|kind| kind.raw() != "search");
                            Ok(())
                        }
                        _ => json.skip(),
                    })?;
                }
                "content" | "summary" if text => self.parts(json)?,
                "arguments" | "input" | "code" if text => self.text(json)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        Ok(item)
    }
}
