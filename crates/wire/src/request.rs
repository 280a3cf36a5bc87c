//! Reads a request body: what routing, limits and prices need, borrowed from the client's bytes.
//!
//! Invariants: the body is one JSON object in valid UTF-8, without lone surrogates, at most `DEPTH_MAX` deep; a
//! declared member occurs once and in its exact spelling, so that what was checked is what the provider will read
//! (B145). One pass, linear in the body. The body itself is never changed here; see `splice`.
//! On failure: a `DecodeError` that names the parameter or the offset; nothing is counted by halves.

use std::borrow::Cow;
use std::ops::Range;

use crate::classes::Classifier;
use crate::content::{Content, MISSPELT, Sink, TWICE, Visitor, Walk};
use crate::error::DecodeError;
use crate::hosted::HostedTools;
use crate::json::{Fault, Json, Kind};
use crate::spelling::{may_misspell, misspells, spells};
use crate::surface::{Dialect, Surface};

/// Most answers that one request may ask for.
pub const CHOICES_MAX: u64 = 128;
/// Longest model name in bytes.
pub const MODEL_BYTES_MAX: usize = 512;
/// What completions without `max_tokens` are cut to, by the dialect's own word.
pub const COMPLETIONS_CAP_UNSAID: u64 = 16;
/// Largest output cap that is read; amounts above 2^53 − 1 have no place in an account.
pub const OUTPUT_CAP_MAX: u64 = (1 << 53) - 1;

#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    pub surface: Surface,
    pub model: Cow<'a, str>,
    pub stream: bool,
    /// The largest of the caps that the client sent.
    pub output_cap: Option<u64>,
    /// The most of what the provider reasons, where it says so: within the cap …
    pub thinking_cap: Option<u64>,
    /// … or on top of it.
    pub thinking_beside: Option<u64>,
    /// The cap that the surface itself sets where the client sends none.
    pub output_cap_unsaid: Option<u64>,
    /// Answers that are made, for all prompts together, also those that the client never sees (`best_of`).
    pub choices: u64,
    /// Answers that the client sees.
    pub choices_shown: u64,
    /// How often the answer repeats the prompts.
    pub echoes: u64,
    /// The client asked for the usage chunk of a stream.
    pub usage_asked: bool,
    pub stream_options_present: bool,
    pub content: Content,
    pub service_tier: Option<Cow<'a, str>>,
    /// Something in the body asks the provider to write its cache.
    pub cache_asked: bool,
    /// … with a lifetime of an hour.
    pub cache_hour_asked: bool,
    /// A hosted web search is offered to the model.
    pub web_search: bool,
    /// The most searches the client allows, where it says so.
    pub web_searches: Option<u64>,
    /// The model searches once whatever comes, and not every provider reports it.
    pub web_search_certain: bool,
    /// Other tools that the provider runs and may bill by the call.
    pub hosted: HostedTools,
    /// The most calls of hosted tools the client allows, where it says so.
    pub tool_calls_max: Option<u64>,
    /// The answer may contain sound.
    pub audio_asked: bool,
    pub tool_count: u64,
    pub(crate) spots: Spots,
}

/// Where things stand in the body, for splices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spots {
    /// Behind the opening brace.
    pub(crate) open: usize,
    pub(crate) model: Range<usize>,
    pub(crate) max_tokens: Option<Range<usize>>,
    pub(crate) max_completion_tokens: Option<Range<usize>>,
    pub(crate) max_output_tokens: Option<Range<usize>>,
    pub(crate) stream_options: Option<StreamOptions>,
}

#[derive(Debug, Clone)]
pub(crate) enum StreamOptions {
    Null(Range<usize>),
    Object { open: usize, empty: bool, include_usage: Option<Range<usize>> },
}

/// Reads the body of a request.
pub fn decode_request(surface: Surface, body: &[u8]) -> Result<Request<'_>, DecodeError> {
    let (head, walk) = read(surface, body, Classifier::default()).map_err(DecodeError::client)?;
    let web_searches = searches_max(&walk, head.tool_calls_max);
    let mut content = walk.content;
    content.text = walk.sink.classes();
    Ok(Request {
        surface,
        model: head.model,
        stream: head.stream,
        output_cap: head.caps.iter().flatten().copied().max(),
        thinking_cap: head.thinking_cap,
        thinking_beside: head.thinking_beside,
        output_cap_unsaid: (surface == Surface::Completions).then_some(COMPLETIONS_CAP_UNSAID),
        choices: head.choices.max(head.best_of).saturating_mul(head.prompts),
        choices_shown: head.choices.saturating_mul(head.prompts),
        echoes: if head.echo { head.choices } else { 0 },
        usage_asked: head.usage_asked,
        stream_options_present: head.spots.stream_options.is_some(),
        tool_count: content.tools,
        content,
        service_tier: head.service_tier,
        cache_asked: walk.cache_asked,
        cache_hour_asked: walk.cache_hour_asked,
        web_search: walk.web_search,
        web_searches,
        web_search_certain: head.web_search_certain,
        hosted: walk.hosted,
        tool_calls_max: head.tool_calls_max,
        audio_asked: head.audio_asked,
        spots: head.spots,
    })
}

/// The most searches the client allows: by the tools it offers, or for all tools together.
fn searches_max<S: Sink>(walk: &Walk<S>, tool_calls_max: Option<u64>) -> Option<u64> {
    let by_tools = (!walk.web_search_unbounded).then_some(walk.web_searches);
    let least = [by_tools, tool_calls_max].into_iter().flatten().min();
    least.filter(|_| walk.web_search)
}

/// Hands out the same text that `decode_request` classified, piece by piece.
pub fn visit_text(surface: Surface, body: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), DecodeError> {
    let sink = Visitor { each, piece: String::new() };
    read(surface, body, sink).map(drop).map_err(DecodeError::client)
}

#[derive(Default)]
struct Head<'a> {
    model: Cow<'a, str>,
    stream: bool,
    caps: [Option<u64>; 2],
    thinking_cap: Option<u64>,
    thinking_beside: Option<u64>,
    choices: u64,
    best_of: u64,
    tool_calls_max: Option<u64>,
    web_search_certain: bool,
    prompts: u64,
    echo: bool,
    usage_asked: bool,
    audio_asked: bool,
    service_tier: Option<Cow<'a, str>>,
    spots: Spots,
    seen: u32,
}

/// Members that steer routing, limits or prices. Any other spelling of them is refused, because some providers
/// read keys without regard to case. The first two are required.
const DECLARED: [&str; 12] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "tools",
    "service_tier",
    "system",
    "tool_choice",
    "thinking",
];
/// What only the chat surface declares.
const DECLARED_CHAT: [&str; 16] = [
    "functions",
    "function_call",
    "response_format",
    "documents",
    "modalities",
    "audio",
    "web_search_options",
    "prediction",
    "prompt",
    "best_of",
    "thinking_budget",
    "chat_template",
    "plugins",
    "search_parameters",
    "enable_search",
    "models",
];
/// Members that are no input, though they hold text. Any other that nothing is known of counts as text: a template of
/// the provider may put it in front of the model (`chat_template_kwargs`, `guided_json`, `container`, …).
const NO_INPUT: [&str; 19] = [
    "metadata",
    "user",
    "stop",
    "stop_sequences",
    "logit_bias",
    "reasoning",
    "reasoning_effort",
    "verbosity",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_salt",
    "request_id",
    "inference_geo",
    "speed",
    "provider",
    "include",
    "truncation",
    "encoding_format",
];
/// What only the messages surface declares.
const DECLARED_MESSAGES: [&str; 4] = ["output_config", "output_format", "cache_control", "mcp_servers"];

/// Everything the responses surface declares; the first is required.
const DECLARED_RESPONSES: [&str; 19] = [
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "service_tier",
    "text",
    "prompt",
    "previous_response_id",
    "conversation",
    "background",
    "max_tool_calls",
    "models",
    "plugins",
    "search_parameters",
    "enable_search",
];
/// Everything the completions surface declares; the first is required.
const DECLARED_COMPLETIONS: [&str; 11] = [
    "model",
    "prompt",
    "suffix",
    "stream",
    "stream_options",
    "max_tokens",
    "n",
    "best_of",
    "echo",
    "service_tier",
    "models",
];
/// Everything the embeddings surface declares; the first two are required.
const DECLARED_EMBEDDINGS: [&str; 4] = ["model", "input", "service_tier", "models"];

/// Why background responses are refused.
const BACKGROUND: &str = "must be false: what a background response uses is known only long after the call";

/// Every declared member of a surface; its place is its bit in `Head::seen`.
fn declared(surface: Surface) -> impl Iterator<Item = (usize, &'static str)> {
    let (shared, own): (&'static [&'static str], &'static [&'static str]) = match surface {
        Surface::Chat => (&DECLARED, &DECLARED_CHAT),
        Surface::Messages => (&DECLARED, &DECLARED_MESSAGES),
        Surface::Responses => (&DECLARED_RESPONSES, &[]),
        Surface::Completions => (&DECLARED_COMPLETIONS, &[]),
        Surface::Embeddings => (&DECLARED_EMBEDDINGS, &[]),
    };
    shared.iter().chain(own).copied().enumerate()
}

/// How many of the declared members have to be there.
fn required(surface: Surface) -> usize {
    match surface {
        Surface::Chat | Surface::Messages | Surface::Embeddings => 2,
        // Input may be stored with the provider, and completions begin from nothing.
        Surface::Responses | Surface::Completions => 1,
    }
}

fn read<S: Sink>(surface: Surface, body: &[u8], sink: S) -> Result<(Head<'_>, Walk<S>), Fault> {
    let mut json = Json::strict(body)?;
    if json.kind()? != Kind::Object {
        return json.fault("the body must be a JSON object");
    }
    let mut head = Head { choices: 1, prompts: 1, ..Head::default() };
    head.spots.open = json.at() + 1;
    let mut walk = Walk::new(sink);
    walk.param = match surface {
        Surface::Chat | Surface::Messages => "messages",
        Surface::Responses | Surface::Embeddings => "input",
        Surface::Completions => "prompt",
    };
    walk.content.bare = matches!(surface, Surface::Completions | Surface::Embeddings);
    json.object(|json, key| {
        key.with(|key| {
            head.declare(surface, key, json.at())?;
            head.member(surface, json, key, &mut walk)
        })
    })?;
    json.end()?;
    for (n, name) in declared(surface).take(required(surface)) {
        if head.seen & (1 << n) == 0 {
            return Err(Fault::param(name, 0, "is required"));
        }
    }
    Ok((head, walk))
}

impl<'a> Head<'a> {
    /// Each declared member once, in its own spelling.
    fn declare(&mut self, surface: Surface, key: &str, at: usize) -> Result<(), Fault> {
        let odd = may_misspell(key);
        for (n, name) in declared(surface) {
            if odd && misspells(key, name) {
                return Err(Fault::param(name, at, MISSPELT));
            }
            if key != name {
                continue;
            }
            if self.seen & (1 << n) != 0 {
                return Err(Fault::param(name, at, TWICE));
            }
            self.seen |= 1 << n;
        }
        Ok(())
    }

    fn member<S: Sink>(
        &mut self,
        surface: Surface,
        json: &mut Json<'a>,
        key: &str,
        walk: &mut Walk<S>,
    ) -> Result<(), Fault> {
        match (key, surface) {
            ("model", _) => self.model(json),
            ("service_tier", _) => {
                self.service_tier = json.string_or_skip()?.map(|tier| tier.decode());
                Ok(())
            }
            ("models", surface) if surface.dialect() == Dialect::OpenAi => match json.kind()? {
                Kind::Null => json.null(),
                _ => Err(Fault::param("models", json.at(), ONE_MODEL)),
            },
            (_, Surface::Embeddings) => match key {
                "input" => walk.inputs(json).map(drop),
                _ => rest(json, key, walk),
            },
            ("plugins" | "search_parameters" | "enable_search", Surface::Chat | Surface::Responses) => {
                if !matches!(json.kind()?, Kind::Null | Kind::Bool) || json.peek_true() {
                    walk.offer_search(None);
                }
                walk.beside(json)
            }
            ("stream", _) => {
                self.stream = flag(json, "stream")?;
                Ok(())
            }
            (_, Surface::Responses) => self.responses_member(json, key, walk),
            ("max_tokens", _) => {
                let (cap, spot) = cap(json, "max_tokens")?;
                self.caps[0] = cap;
                self.spots.max_tokens = Some(spot);
                Ok(())
            }
            ("n", Surface::Chat | Surface::Completions) => {
                self.choices = choices(json, "n")?;
                Ok(())
            }
            ("best_of", Surface::Chat | Surface::Completions) => {
                self.best_of = choices(json, "best_of")?;
                Ok(())
            }
            ("stream_options", Surface::Chat | Surface::Completions) => self.stream_options(json),
            (_, Surface::Completions) => self.completions_member(json, key, walk),
            ("messages", _) => match json.kind()? {
                Kind::Array => walk.messages(json),
                _ => Err(Fault::param("messages", json.at(), "must be an array")),
            },
            ("tools", _) | ("functions", Surface::Chat) => walk.tools(json),
            ("tool_choice", _) | ("function_call", Surface::Chat) => walk.tool_choice(json),
            ("thinking", _) => self.thinking(json),
            // No part of the chat dialect, but some providers of it put them before the messages.
            ("system", _) => walk.parts(json),
            (_, Surface::Chat) => self.chat_member(json, key, walk),
            ("output_config" | "output_format", Surface::Messages) => walk.text(json),
            ("mcp_servers", Surface::Messages) => walk.mcp_servers(json),
            ("cache_control", Surface::Messages) => walk.cache_control(json),
            _ => rest(json, key, walk),
        }
    }

    fn chat_member<S: Sink>(
        &mut self,
        json: &mut Json<'a>,
        key: &str,
        walk: &mut Walk<S>,
    ) -> Result<(), Fault> {
        match key {
            "response_format" | "documents" | "prompt" => walk.text(json),
            "max_completion_tokens" => {
                let (cap, spot) = cap(json, "max_completion_tokens")?;
                self.caps[1] = cap;
                self.spots.max_completion_tokens = Some(spot);
                Ok(())
            }
            "web_search_options" => {
                if json.object_or_skip(|json, _| json.skip())? {
                    walk.offer_search(None);
                    self.web_search_certain = true;
                }
                Ok(())
            }
            "modalities" => self.modalities(json),
            "audio" => {
                self.audio_asked |= json.object_or_skip(|json, _| json.skip())?;
                Ok(())
            }
            "prediction" => walk.prediction(json),
            "thinking_budget" => {
                self.thinking_beside = cap(json, "thinking_budget")?.0;
                Ok(())
            }
            "chat_template" => match json.kind()? {
                Kind::Null => json.null(),
                _ => Err(Fault::param("chat_template", json.at(), UNCOUNTABLE)),
            },
            _ => rest(json, key, walk),
        }
    }

    fn responses_member<S: Sink>(
        &mut self,
        json: &mut Json<'a>,
        key: &str,
        walk: &mut Walk<S>,
    ) -> Result<(), Fault> {
        match key {
            "input" | "instructions" => walk.items(json),
            "text" => walk.text(json),
            "prompt" => walk.stored_prompt(json),
            "tools" => walk.tools(json),
            "tool_choice" => walk.tool_choice(json),
            "max_output_tokens" => {
                let (cap, spot) = cap(json, "max_output_tokens")?;
                self.caps[0] = cap;
                self.spots.max_output_tokens = Some(spot);
                Ok(())
            }
            "previous_response_id" | "conversation" => {
                walk.content.stored |= json.kind()? != Kind::Null;
                json.skip()
            }
            "max_tool_calls" => {
                self.tool_calls_max = cap(json, "max_tool_calls")?.0;
                Ok(())
            }
            "background" => {
                let at = json.at();
                if flag(json, "background")? {
                    return Err(Fault::param("background", at, BACKGROUND));
                }
                Ok(())
            }
            _ => rest(json, key, walk),
        }
    }

    fn completions_member<S: Sink>(
        &mut self,
        json: &mut Json<'a>,
        key: &str,
        walk: &mut Walk<S>,
    ) -> Result<(), Fault> {
        match key {
            "prompt" => {
                self.prompts = walk.inputs(json)?.max(1);
                Ok(())
            }
            "suffix" => walk.text(json),
            "echo" => {
                self.echo = flag(json, "echo")?;
                Ok(())
            }
            _ => rest(json, key, walk),
        }
    }

    fn model(&mut self, json: &mut Json<'a>) -> Result<(), Fault> {
        if json.kind()? != Kind::String {
            return Err(Fault::param("model", json.at(), "must be a string"));
        }
        let start = json.at();
        self.model = json.string()?.decode();
        if self.model.is_empty() {
            return Err(Fault::param("model", start, "is empty"));
        }
        if self.model.len() > MODEL_BYTES_MAX {
            return Err(Fault::param("model", start, "is too long"));
        }
        self.spots.model = start..json.at();
        Ok(())
    }

    /// The most the model may think, in whatever spelling; the larger of two counts.
    fn thinking(&mut self, json: &mut Json<'a>) -> Result<(), Fault> {
        json.object_or_skip(|json, key| {
            if !key.with(|key| spells(key, "budget_tokens")) {
                return json.skip();
            }
            let budget = cap(json, "thinking")?.0;
            self.thinking_cap = self.thinking_cap.max(budget);
            Ok(())
        })
        .map(drop)
    }

    fn modalities(&mut self, json: &mut Json<'a>) -> Result<(), Fault> {
        let each = |json: &mut Json<'a>| {
            let kind = json.string_or_skip()?;
            self.audio_asked |= kind.is_some_and(|kind| kind.with(|kind| kind == "audio"));
            Ok(())
        };
        json.array_or_skip(each).map(drop)
    }

    fn stream_options(&mut self, json: &mut Json<'a>) -> Result<(), Fault> {
        let kind = json.kind()?;
        let start = json.at();
        match kind {
            Kind::Null => {
                json.null()?;
                self.spots.stream_options = Some(StreamOptions::Null(start..json.at()));
            }
            Kind::Object => {
                let (mut empty, mut include_usage) = (true, None);
                json.object(|json, key| {
                    empty = false;
                    if !key.with(|key| spells(key, "include_usage")) {
                        return json.skip();
                    }
                    if include_usage.is_some() || key.with(|key| key != "include_usage") {
                        let what = "holds include_usage twice or misspelt";
                        return Err(Fault::param("stream_options", json.at(), what));
                    }
                    json.kind()?;
                    let start = json.at();
                    self.usage_asked = flag(json, "stream_options.include_usage")?;
                    include_usage = Some(start..json.at());
                    Ok(())
                })?;
                self.spots.stream_options =
                    Some(StreamOptions::Object { open: start + 1, empty, include_usage });
            }
            _ => return Err(Fault::param("stream_options", start, "must be an object")),
        }
        Ok(())
    }
}

/// Why a template from a client is not taken.
const UNCOUNTABLE: &str = "is not taken: what it makes of the messages cannot be counted";

/// Why a list of models to fall back on is not taken.
const ONE_MODEL: &str = "is not taken: a call is checked and priced for one model";

/// A member that no rule speaks of.
fn rest<S: Sink>(json: &mut Json<'_>, key: &str, walk: &mut Walk<S>) -> Result<(), Fault> {
    if NO_INPUT.contains(&key) { json.skip() } else { walk.beside(json) }
}

/// How many answers are made; one if nothing is said.
pub(crate) fn choices(json: &mut Json<'_>, param: &'static str) -> Result<u64, Fault> {
    let at = json.at();
    let n = cap(json, param)?.0.unwrap_or(1);
    if (1..=CHOICES_MAX).contains(&n) { Ok(n) } else { Err(Fault::param(param, at, "must be from 1 to 128")) }
}

/// `true` or `false`; null is false.
pub(crate) fn flag(json: &mut Json<'_>, param: &'static str) -> Result<bool, Fault> {
    match json.kind()? {
        Kind::Bool => json.boolean(),
        Kind::Null => json.null().map(|()| false),
        _ => Err(Fault::param(param, json.at(), "must be true or false")),
    }
}

/// A whole number from 0 to `OUTPUT_CAP_MAX`; null is none.
fn cap(json: &mut Json<'_>, param: &'static str) -> Result<(Option<u64>, Range<usize>), Fault> {
    let kind = json.kind()?;
    let start = json.at();
    let wrong = || Fault::param(param, start, "must be a whole number, 0 or more");
    let value = match kind {
        Kind::Null => json.null().map(|()| None)?,
        Kind::Number => {
            let text = json.number()?;
            if !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(wrong());
            }
            match text.parse::<u64>() {
                Ok(n) if n <= OUTPUT_CAP_MAX => Some(n),
                _ => return Err(Fault::param(param, start, "is too large")),
            }
        }
        _ => return Err(wrong()),
    };
    Ok((value, start..json.at()))
}
