//! What the input of a request consists of, for counting: text by class, messages, tools, images.
//!
//! Text is everything the provider will count: system, all message contents, names, tool calls, tool results,
//! tool definitions and schemas. Encoded bytes of images, sound and files are never text; plain text that
//! happens to hold base64 is. Structured values (schemas, tool inputs) count as compact JSON.
//! A shape that is not known is counted as text: the estimate errs upwards, and the provider decides what is valid.

use crate::classes::{Classes, Classifier};
use crate::hosted::{HostedTool, HostedTools};
use crate::json::{Fault, Json, Kind, Str};
use crate::media::{Detail, Image};
use crate::spelling::{may_misspell, misspells, spells};

/// Why a member that occurs twice is refused: which of the two counts is not the same for all readers.
pub(crate) const TWICE: &str = "occurs twice";
const PART_TWICE: &str = "holds a content part with the same member twice";

/// Why a declared member in a spelling other than its own is refused.
pub(crate) const MISSPELT: &str = "is misspelt: names are lower case";

/// Members of a message that are counted or steer how it counts, and how an error calls them. A provider that
/// folds case would read another spelling that passed here uncounted.
const MESSAGE_DECLARED: [(&str, &str); 10] = [
    ("content", "messages[].content"),
    ("role", "messages[].role"),
    ("name", "messages[].name"),
    ("tool_calls", "messages[].tool_calls"),
    ("function_call", "messages[].function_call"),
    ("refusal", "messages[].refusal"),
    ("reasoning", "messages[].reasoning"),
    ("reasoning_content", "messages[].reasoning_content"),
    ("reasoning_details", "messages[].reasoning_details"),
    ("cache_control", "messages[].cache_control"),
];

/// Members of a tool call that are text or hold it.
const TOOL_CALL_COUNTED: [&str; 5] = ["function", "custom", "name", "arguments", "input"];

/// Members of a content part, of its source and of what it points at. Twice the same, and two readers could count two
/// different things.
const PART_ONCE: [&str; 14] = [
    "type",
    "text",
    "image_url",
    "image",
    "input_audio",
    "audio_url",
    "video_url",
    "video",
    "file",
    "detail",
    "source",
    "content",
    "thinking",
    "input",
];
const SOURCE_ONCE: [&str; 6] = ["type", "media_type", "data", "url", "file_id", "content"];

/// Most images in one request.
pub const IMAGES_MAX: usize = 2_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    pub text: Classes,
    pub messages: u64,
    /// Messages that carry a `name`.
    pub names: u64,
    pub tools: u64,
    /// The client demands a tool call.
    pub tool_choice_forced: bool,
    pub images: Vec<Image>,
    /// Sound, video and files other than images.
    pub other_media: u64,
    /// Their encoded size; 0 for what is only named.
    pub other_media_bytes: u64,
    /// llm_tokens that were sent as numbers.
    pub ids: u64,
    /// Encrypted reasoning of earlier turns, in bytes.
    pub sealed_bytes: u64,
    /// The text goes to the model as it is, without a chat template around it.
    pub bare: bool,
    /// Part of the input lies with the provider and is only named: an earlier response, a conversation, a prompt.
    pub stored: bool,
}

/// Where text goes: to the classifier, or piece by piece to a visitor.
pub(crate) trait Sink {
    fn part(&mut self, text: &str);
    fn end(&mut self);
    fn whole(&mut self, text: &str) {
        self.part(text);
        self.end();
    }
}

impl Sink for Classifier {
    fn part(&mut self, text: &str) {
        Classifier::part(self, text);
    }
    fn end(&mut self) {
        Classifier::end(self);
    }
}

/// Hands out whole pieces; only pieces with escapes are copied.
pub(crate) struct Visitor<'f> {
    pub(crate) each: &'f mut dyn FnMut(&str),
    pub(crate) piece: String,
}

impl Sink for Visitor<'_> {
    fn part(&mut self, text: &str) {
        self.piece.push_str(text);
    }
    fn end(&mut self) {
        (self.each)(&self.piece);
        self.piece.clear();
    }
    fn whole(&mut self, text: &str) {
        (self.each)(text);
    }
}

/// Walks the values of a body that make up the input.
#[derive(Debug)]
pub(crate) struct Walk<S> {
    pub(crate) sink: S,
    pub(crate) content: Content,
    pub(crate) cache_asked: bool,
    pub(crate) cache_hour_asked: bool,
    pub(crate) web_search: bool,
    /// Searches that the tools offered allow together, as far as they say so.
    pub(crate) web_searches: u64,
    /// A search is offered that says no number.
    pub(crate) web_search_unbounded: bool,
    pub(crate) hosted: HostedTools,
    /// The declared member that holds the input; faults in it name it.
    pub(crate) param: &'static str,
}

pub(crate) type Step = Result<(), Fault>;

impl<S: Sink> Walk<S> {
    pub(crate) fn new(sink: S) -> Self {
        Self {
            sink,
            content: Content::default(),
            cache_asked: false,
            cache_hour_asked: false,
            web_search: false,
            web_searches: 0,
            web_search_unbounded: false,
            hosted: HostedTools::default(),
            param: "messages",
        }
    }

    pub(crate) fn put(&mut self, text: &Str<'_>) {
        if text.is_empty() {
            return;
        }
        if text.escaped() {
            text.parts(|part| self.sink.part(part));
            self.sink.end();
        } else {
            self.sink.whole(text.raw());
        }
    }

    /// A string as text; any other value as compact JSON; null as nothing.
    pub(crate) fn text(&mut self, json: &mut Json<'_>) -> Step {
        match json.kind()? {
            Kind::String => {
                let text = json.string()?;
                self.put(&text);
                Ok(())
            }
            Kind::Null => json.null(),
            _ => {
                self.compact(json)?;
                self.sink.end();
                Ok(())
            }
        }
    }

    fn compact(&mut self, json: &mut Json<'_>) -> Step {
        match json.kind()? {
            Kind::Object => {
                self.sink.part("{");
                let mut first = true;
                json.object(|json, key| {
                    self.sink.part(if first { "\"" } else { ",\"" });
                    first = false;
                    key.parts(|part| self.sink.part(part));
                    self.sink.part("\":");
                    self.compact(json)
                })?;
                self.sink.part("}");
            }
            Kind::Array => {
                self.sink.part("[");
                let mut first = true;
                json.array(|json| {
                    if !first {
                        self.sink.part(",");
                    }
                    first = false;
                    self.compact(json)
                })?;
                self.sink.part("]");
            }
            Kind::String => {
                let text = json.string()?;
                if text.escaped() {
                    self.sink.part("\"");
                    text.parts(|part| self.sink.part(part));
                    self.sink.part("\"");
                } else {
                    self.sink.part(json.quoted(&text));
                }
            }
            Kind::Number => self.sink.part(json.number()?),
            Kind::Bool => self.sink.part(if json.boolean()? { "true" } else { "false" }),
            Kind::Null => {
                json.null()?;
                self.sink.part("null");
            }
        }
        Ok(())
    }

    pub(crate) fn messages(&mut self, json: &mut Json<'_>) -> Step {
        json.array(|json| {
            self.content.messages += 1;
            if json.kind()? != Kind::Object {
                return self.text(json);
            }
            let mut seen = 0_u32;
            json.object(|json, key| {
                key.with(|key| {
                    let odd = may_misspell(key);
                    for (n, (name, param)) in MESSAGE_DECLARED.into_iter().enumerate() {
                        if odd && misspells(key, name) {
                            return Err(Fault::param(param, json.at(), MISSPELT));
                        }
                        if key == name && !once(&mut seen, n) {
                            return Err(Fault::param(param, json.at(), TWICE));
                        }
                    }
                    match key {
                        "tool_call_id" | "id" | "role" => json.skip(),
                        // Sound of an earlier answer, named by its id, is input again.
                        "audio" => {
                            if json.object_or_skip(|json, _| json.skip())? {
                                self.other_media(0);
                            }
                            Ok(())
                        }
                        _ if Self::is_message_member(key) => self.message_member(json, key),
                        // What is not known may be read by a template all the same.
                        _ => self.beside(json),
                    }
                })
            })
        })
    }

    fn is_message_member(key: &str) -> bool {
        MESSAGE_DECLARED.iter().any(|(name, _)| *name == key)
    }

    /// A member that no rule speaks of: text, lists and objects count as text; flags and numbers are settings.
    pub(crate) fn beside(&mut self, json: &mut Json<'_>) -> Step {
        match json.kind()? {
            Kind::Number | Kind::Bool | Kind::Null => json.skip(),
            Kind::String | Kind::Array | Kind::Object => self.text(json),
        }
    }

    pub(crate) fn message_member(&mut self, json: &mut Json<'_>, key: &str) -> Step {
        match key {
            "content" => self.parts(json),
            "name" => {
                if let Some(name) = json.string_or_skip()? {
                    self.content.names += 1;
                    self.put(&name);
                }
                Ok(())
            }
            "tool_calls" => json.array_or_skip(|json| self.tool_call(json)).map(drop),
            "function_call" => self.tool_call(json),
            "refusal" | "reasoning_content" | "reasoning" | "reasoning_details" => self.text(json),
            "cache_control" => self.cache_control(json),
            _ => json.skip(),
        }
    }

    fn tool_call(&mut self, json: &mut Json<'_>) -> Step {
        json.object_or_skip(|json, key| {
            key.with(|key| match key {
                "function" | "custom" => self.tool_call(json),
                "name" | "arguments" | "input" => self.text(json),
                // What a provider that folds case would read as one of them counts whole.
                _ if TOOL_CALL_COUNTED.iter().any(|name| spells(key, name)) => self.text(json),
                _ => json.skip(),
            })
        })
        .map(drop)
    }

    /// A content: text, or an array of parts.
    pub(crate) fn parts(&mut self, json: &mut Json<'_>) -> Step {
        match json.kind()? {
            Kind::Array => json.array(|json| self.part(json)),
            Kind::Object => self.part(json),
            _ => self.text(json),
        }
    }

    fn part(&mut self, json: &mut Json<'_>) -> Step {
        if json.kind()? != Kind::Object {
            return self.text(json);
        }
        let mut part = Part::default();
        json.object(|json, key| key.with(|key| self.part_member(json, key, &mut part)))?;
        self.close_part(&mut part)
    }

    fn part_member<'a>(&mut self, json: &mut Json<'a>, key: &str, part: &mut Part<'a>) -> Step {
        if let Some(n) = PART_ONCE.iter().position(|name| *name == key)
            && !once(&mut part.seen, n)
            && !json.is_lax()
        {
            return Err(Fault::param(self.param, json.at(), PART_TWICE));
        }
        match key {
            "type" => {
                part.image =
                    json.string_or_skip()?.is_some_and(|kind| kind.with(|kind| kind.contains("image")));
                Ok(())
            }
            "image_url" | "image" => match member(json, &["url"], &mut part.detail, self.param)? {
                Some(url) => self.image(Image::from_url(&url), json.at(), part),
                None => Ok(()),
            },
            "input_audio" | "audio_url" | "video_url" | "video" | "file" => {
                let data = member(json, &["data", "file_data", "url"], &mut part.detail, self.param)?;
                self.other_media(data.map_or(0, |data| data.raw().len()));
                Ok(())
            }
            _ if misspells(key, "detail") && !json.is_lax() => {
                Err(Fault::param(self.param, json.at(), MISSPELT))
            }
            "detail" => {
                if let Some(word) = json.string_or_skip()? {
                    part.detail = word.with(Detail::read);
                }
                Ok(())
            }
            "source" => self.source(json, part),
            "content" => self.parts(json),
            "cache_control" => self.cache_control(json),
            // A file beside its type, as the responses surface has it.
            "file_data" | "file_url" => {
                let data = json.string_or_skip()?.filter(|_| key == "file_data");
                self.other_media(data.map_or(0, |data| data.raw().len()));
                Ok(())
            }
            // What an earlier answer said about its own text.
            "annotations" | "logprobs" => json.skip(),
            // Names of things and material that providers do not count as input.
            "id" | "tool_use_id" | "tool_call_id" | "is_error" | "signature" | "citations" | "file_id" => {
                json.skip()
            }
            _ => self.text(json),
        }
    }

    /// The source of an image or a document. Its members come in any order, so it is judged at the end.
    fn source<'a>(&mut self, json: &mut Json<'a>, part: &mut Part<'a>) -> Step {
        if json.kind()? != Kind::Object {
            return self.text(json);
        }
        let mut source = Source::default();
        let mut seen = 0_u32;
        json.object(|json, key| {
            if let Some(n) = SOURCE_ONCE.iter().position(|name| key.with(|key| spells(key, name)))
                && !once(&mut seen, n)
                && !json.is_lax()
            {
                return Err(Fault::param(self.param, json.at(), PART_TWICE));
            }
            key.with(|key| match key {
                "type" => {
                    source.text = json.string_or_skip()?.is_some_and(|kind| kind.with(|kind| kind == "text"));
                    Ok(())
                }
                "media_type" => {
                    source.image = json
                        .string_or_skip()?
                        .is_some_and(|kind| kind.with(|kind| kind.starts_with("image/")));
                    Ok(())
                }
                "data" => {
                    source.data = json.string_or_skip()?;
                    Ok(())
                }
                "url" | "file_id" => {
                    source.named |= json.string_or_skip()?.is_some();
                    Ok(())
                }
                "content" => self.parts(json),
                _ if spells(key, "data") || spells(key, "content") => self.text(json),
                _ => json.skip(),
            })
        })?;
        part.source = Some(source);
        part.at = json.at();
        Ok(())
    }

    fn close_part(&mut self, part: &mut Part<'_>) -> Step {
        let at = part.at;
        if let Some(source) = part.source.take() {
            match &source.data {
                Some(data) if source.text => self.put(data),
                Some(data) if part.image || source.image => self.image(Image::inline(data), at, part)?,
                Some(data) => self.other_media(data.raw().len()),
                None if source.named && part.image => self.image(Image::remote(), at, part)?,
                None if source.named => self.other_media(0),
                None => {}
            }
        }
        // `detail` may come after the image it belongs to.
        if let Some(image) = part.pushed.and_then(|n| self.content.images.get_mut(n)) {
            image.detail = part.detail;
        }
        Ok(())
    }

    fn image(&mut self, image: Image, at: usize, part: &mut Part<'_>) -> Step {
        part.pushed = Some(self.push_image(image, at)?);
        Ok(())
    }

    /// Counts an image; answers its place.
    pub(crate) fn push_image(&mut self, image: Image, at: usize) -> Result<usize, Fault> {
        let n = self.content.images.len();
        if n >= IMAGES_MAX {
            return Err(Fault::param(self.param, at, "holds too many images"));
        }
        self.content.images.push(image);
        Ok(n)
    }

    fn other_media(&mut self, encoded: usize) {
        self.content.other_media += 1;
        let bytes = u64::try_from(encoded).unwrap_or(u64::MAX);
        self.content.other_media_bytes = self.content.other_media_bytes.saturating_add(bytes);
    }

    pub(crate) fn cache_control(&mut self, json: &mut Json<'_>) -> Step {
        let asked = json.object_or_skip(|json, key| {
            let ttl = key.with(|key| spells(key, "ttl"));
            match json.string_or_skip()? {
                Some(value) if ttl => self.cache_hour_asked |= value.with(|value| value == "1h"),
                _ => {}
            }
            Ok(())
        })?;
        self.cache_asked |= asked;
        Ok(())
    }

    pub(crate) fn tools(&mut self, json: &mut Json<'_>) -> Step {
        json.array_or_skip(|json| {
            self.content.tools += 1;
            let mut searches = Offered::default();
            self.tool(json, &mut searches)?;
            if searches.search {
                self.offer_search(searches.uses);
            }
            if let Some(tool) = searches.hosted {
                self.hosted.add(tool);
            }
            Ok(())
        })
        .map(drop)
    }

    /// A hosted web search is offered, at most so often.
    pub(crate) fn offer_search(&mut self, uses: Option<u64>) {
        self.web_search = true;
        self.web_searches = self.web_searches.saturating_add(uses.unwrap_or(0));
        self.web_search_unbounded |= uses.is_none();
    }

    fn tool(&mut self, json: &mut Json<'_>, searches: &mut Offered) -> Step {
        json.object_or_skip(|json, key| {
            key.with(|key| match key {
                "function" | "custom" => {
                    // What a client runs may say of its own type what it likes.
                    let mut inner = Offered::default();
                    self.tool(json, &mut inner)?;
                    searches.search |= inner.search;
                    searches.uses = searches.uses.max(inner.uses);
                    Ok(())
                }
                _ if spells(key, "type") => {
                    if let Some(kind) = json.string_or_skip()? {
                        searches.search |= kind.with(|kind| kind.starts_with("web_search"));
                        searches.hosted = kind.with(HostedTool::offered).or(searches.hosted);
                    }
                    Ok(())
                }
                "cache_control" => self.cache_control(json),
                _ if spells(key, "max_uses") => {
                    if json.kind()? == Kind::Number {
                        searches.uses = searches.uses.max(json.number()?.parse().ok());
                        return Ok(());
                    }
                    json.skip()
                }
                "strict" | "defer_loading" | "allowed_callers" => json.skip(),
                // The secrets by which a remote tool is opened are no input.
                _ if spells(key, "authorization") || spells(key, "headers") => json.skip(),
                _ => self.text(json),
            })
        })
        .map(drop)
    }

    /// The predicted answer counts as input. What the model rejects of it is billed again, as output; the
    /// provider reports that part within its completion.
    pub(crate) fn prediction(&mut self, json: &mut Json<'_>) -> Step {
        if json.kind()? != Kind::Object {
            return self.text(json);
        }
        json.object(|json, key| {
            key.with(|key| match key {
                "type" => json.skip(),
                "content" => self.parts(json),
                _ => self.text(json),
            })
        })
    }

    /// Remote tools: what they are called and how they are set up. The secret they are opened with is no input.
    pub(crate) fn mcp_servers(&mut self, json: &mut Json<'_>) -> Step {
        if json.kind()? != Kind::Array {
            return self.text(json);
        }
        json.array(|json| {
            self.hosted.add(HostedTool::Mcp);
            if json.kind()? != Kind::Object {
                return self.text(json);
            }
            json.object(|json, key| {
                key.with(|key| match key {
                    "type" => json.skip(),
                    _ if spells(key, "authorization_token") => json.skip(),
                    _ => self.text(json),
                })
            })
        })
    }

    /// `tool_choice` and `function_call`: forced if the model must call something.
    pub(crate) fn tool_choice(&mut self, json: &mut Json<'_>) -> Step {
        let forced = |word: &str| !matches!(word, "auto" | "none");
        if let Kind::String = json.kind()? {
            self.content.tool_choice_forced |= json.string()?.with(forced);
            return Ok(());
        }
        let mut word = None;
        let object = json.object_or_skip(|json, key| {
            if key.with(|key| key == "type") {
                let again = json.string_or_skip()?.map(|kind| kind.with(forced));
                word = word.max(again);
                return Ok(());
            }
            json.skip()
        })?;
        self.content.tool_choice_forced |= object && word.unwrap_or(true);
        Ok(())
    }
}

/// What one tool says of searches, and whether the provider runs it.
#[derive(Default)]
struct Offered {
    search: bool,
    uses: Option<u64>,
    hosted: Option<HostedTool>,
}

/// Marks a member as seen; false if it was.
pub(crate) fn once(seen: &mut u32, n: usize) -> bool {
    let bit = 1_u32.checked_shl(u32::try_from(n).unwrap_or(u32::MAX)).unwrap_or(0);
    let fresh = *seen & bit == 0;
    *seen |= bit;
    fresh
}

#[derive(Default)]
struct Part<'a> {
    /// Members seen, a bit each.
    seen: u32,
    /// Its type says that it is an image.
    image: bool,
    /// Index of the image it brought.
    pushed: Option<usize>,
    detail: Detail,
    source: Option<Source<'a>>,
    at: usize,
}

#[derive(Default)]
struct Source<'a> {
    text: bool,
    image: bool,
    named: bool,
    data: Option<Str<'a>>,
}

/// A string, or the member of that name (and `detail`) of an object.
fn member<'a>(
    json: &mut Json<'a>,
    names: &[&str],
    detail: &mut Detail,
    param: &'static str,
) -> Result<Option<Str<'a>>, Fault> {
    if json.kind()? == Kind::String {
        return json.string().map(Some);
    }
    let mut found = None;
    let mut seen = 0_u32;
    json.object_or_skip(|json, key| {
        key.with(|key| {
            let named = names.iter().position(|name| spells(key, name));
            let detailed = spells(key, "detail");
            let place = if detailed { Some(names.len()) } else { named };
            if place.is_some_and(|n| !once(&mut seen, n)) && !json.is_lax() {
                return Err(Fault::param(param, json.at(), PART_TWICE));
            }
            if named.is_some() {
                found = json.string_or_skip()?.or(found);
            } else if detailed {
                *detail = json.string_or_skip()?.map_or(Detail::Auto, |word| word.with(Detail::read));
            } else {
                json.skip()?;
            }
            Ok(())
        })
    })?;
    Ok(found)
}
