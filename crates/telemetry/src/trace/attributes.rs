//! The list of all attributes a span can have. Nothing else is ever told.
//!
//! Names follow OpenTelemetry's conventions for generative AI and HTTP where there is one; the rest begin with
//! `tollbook.`.

use std::sync::Arc;

/// Longest text of an attribute, in bytes; more is cut off.
pub const TEXT_MAX: usize = 128;

/// What an attribute says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Word(&'static str),
    Text(Arc<str>),
    Number(i64),
    Flag(bool),
    Words(Vec<&'static str>),
}

/// One attribute, for the docs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeDoc {
    pub name: &'static str,
    pub help: &'static str,
}

macro_rules! attributes {
    ($( $key:ident $name:literal $help:literal; )+) => {
        /// The name of an attribute.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Key { $( #[doc = $help] $key ),+ }

        impl Key {
            pub const ALL: &[Self] = &[$(Self::$key),+];

            /// As it is exported.
            pub fn name(self) -> &'static str {
                match self { $(Self::$key => $name),+ }
            }

            /// Name and meaning.
            pub fn doc(self) -> AttributeDoc {
                match self { $(Self::$key => AttributeDoc { name: $name, help: $help }),+ }
            }
        }
    };
}

attributes! {
    // what was asked
    Operation "gen_ai.operation.name" "`chat`, `text_completion` or `embeddings`";
    Provider "gen_ai.provider.name" "The provider's dialect: `openai` or `anthropic`";
    System "gen_ai.system" "The same under its older name";
    RequestModel "gen_ai.request.model" "On a call: the model the client named, cut to 128 bytes; on a try: the model asked of the provider";
    RequestStream "gen_ai.request.stream" "Whether the answer was asked for as a stream";
    // what came
    ResponseModel "gen_ai.response.model" "The model the provider says it used, cut to 128 bytes";
    ResponseId "gen_ai.response.id" "The provider's id of the answer, cut to 128 bytes";
    FinishReasons "gen_ai.response.finish_reasons" "Why the output ended; a word that no provider documents is `other`";
    InputUsage "gen_ai.usage.input_tokens" "Input charged, what was read from or written to a cache included";
    OutputUsage "gen_ai.usage.output_tokens" "Output charged, reasoning included";
    CacheReadUsage "gen_ai.usage.cache_read.input_tokens" "Input read from the provider's cache; part of the input";
    CacheWriteUsage "gen_ai.usage.cache_creation.input_tokens" "Input written to the provider's cache; part of the input";
    ReasoningUsage "gen_ai.usage.reasoning.output_tokens" "Output that was reasoning; part of the output";
    // transport
    HttpMethod "http.request.method" "The method of the request";
    HttpRoute "http.route" "The path that was called; one of the gateway's own";
    HttpStatus "http.response.status_code" "The status of the answer: on a call the gateway's, on a try the provider's";
    HttpResend "http.request.resend_count" "Which retry a try is; absent on the first";
    ServerAddress "server.address" "Host of the upstream";
    ServerPort "server.port" "Port of the upstream";
    ErrorType "error.type" "Why the span failed: an error code of the gateway, an ending, or a status";
    // the book
    RequestId "tollbook.request_id" "The id in `x-request-id` and in the journal";
    Decision "tollbook.decision" "`admit`, `deny` (by a limit) or `reject` (for another reason)";
    Tenant "tollbook.tenant" "Id of the tenant";
    Project "tollbook.project" "Id of the project";
    Pool "tollbook.pool" "Id of the pool that serves the call";
    Generation "tollbook.generation" "Number of the configuration the call was decided with";
    Limit "tollbook.limit.name" "The limit that refused the call";
    LimitMeasure "tollbook.limit.measure" "What that limit counts";
    LimitKind "tollbook.limit.denial" "`too_large`, `exhausted`, `spent` or `busy`";
    RetryAfter "tollbook.limit.retry_after_ms" "When the refused call would fit, in milliseconds";
    HoldLlmTokens "tollbook.hold.llm_tokens" "llm_tokens the call was expected to use when it was let in";
    HoldWorstLlmTokens "tollbook.hold.worst_llm_tokens" "llm_tokens it could use at most";
    HoldNano "tollbook.hold.cost_nano" "Nano-currency it was expected to cost";
    ActualLlmTokens "tollbook.actual.llm_tokens" "llm_tokens charged";
    ActualNano "tollbook.actual.cost_nano" "Nano-currency charged";
    Figures "tollbook.figures" "Where the charge comes from: `reported`, `metered`, `partial`, `unknown` or `nothing`";
    Ending "tollbook.ending" "How the call ended, in the journal's words";
    Attempts "tollbook.attempts" "Times the call was sent to a provider";
    Upstream "tollbook.upstream" "Name of the upstream a try went to";
    FirstOutput "tollbook.ttft_ms" "Milliseconds from the door to the first output of a stream";
}

/// A text from outside, within the bound and at a character's boundary.
pub(super) fn cut(text: &str) -> Arc<str> {
    let mut end = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Arc::from(text.get(..end).unwrap_or_default())
}

impl From<&'static str> for Value {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&Arc<str>> for Value {
    fn from(text: &Arc<str>) -> Self {
        if text.len() <= TEXT_MAX { Self::Text(Arc::clone(text)) } else { Self::Text(cut(text)) }
    }
}

impl Value {
    /// A text that is only borrowed.
    pub fn text(text: &str) -> Self {
        Self::Text(cut(text))
    }
}
