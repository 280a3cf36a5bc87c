//! How an answer is to be given: the script language, as Rust values and as JSON.
//!
//! Invariants: a script is plain data and says nothing about a particular call; every field has a default, an unknown
//! field is an error. The empty script `{}` is the polite provider: it answers in the dialect asked, with usage as asked.
//! A script that cannot be read never changes an answer silently: the call is answered 400 and recorded as such.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One way to answer one call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Copied into the record, so that a test finds its calls again.
    pub label: Option<String>,
    /// 200 if absent.
    pub status: Option<u16>,
    /// A header named here replaces the one the mock would have sent; a name may occur more than once.
    pub headers: Vec<(String, String)>,
    /// Content codings in the order in which they are applied. `gzip` is applied, any other name is only claimed.
    pub encodings: Vec<String>,
    pub framing: Framing,
    /// Silence between the whole request and the first byte of the answer.
    pub head_after_ms: u64,
    /// Go on generating when the client has gone, as providers do that do not notice.
    pub ignore_disconnect: bool,
    /// Close the connection after a complete answer, without having announced it.
    pub close_after: bool,
    pub answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A chat answer in the dialect and form that the call asked for.
    Generate(Box<Generate>),
    /// This JSON as the whole body.
    Json(Value),
    /// An error body in the dialect of the call; the status is the script's.
    Error(ErrorBody),
    /// These bytes as the body, behind a head made by the mock.
    Steps(Vec<Step>),
    /// These bytes on the socket, head included. The connection is closed afterwards.
    Raw(Vec<Step>),
}

impl Default for Answer {
    fn default() -> Self {
        Self::Generate(Box::default())
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// Chunked for event streams, content length for anything else.
    #[default]
    Auto,
    Chunked,
    Length,
    /// Neither; the end of the connection is the end of the body.
    UntilClose,
    /// A content length that is a lie.
    WrongLength(u64),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorBody {
    pub message: String,
    /// `type` of the error object; a usual one for the status if empty.
    pub kind: String,
    pub code: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Text(String),
    Base64(String),
    /// Text that carries a usage object; once written, the record has `usage` as reported and complete.
    Usage {
        text: String,
        usage: Value,
    },
    /// `text`, `times` times, one write each.
    Repeat {
        text: String,
        times: u64,
        every_ms: u64,
    },
    DelayMs(u64),
    /// Nothing more, for ever; the connection stays open.
    Stall,
    /// TCP reset.
    Reset,
    /// FIN, before the body is complete.
    Close,
    /// FIN on the sending side only; reading goes on.
    HalfClose,
}

/// What a generated answer looks like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Generate {
    /// Total input, cached and cache-written included. Body bytes ÷ 4, rounded up, if absent.
    pub input_llm_tokens: Option<u64>,
    pub cached_llm_tokens: u64,
    pub cache_write_llm_tokens: u64,
    /// Per choice, reasoning included. 12 if absent; never above the cap that the call sent, unless `ignore_cap`.
    pub output_llm_tokens: Option<u64>,
    pub reasoning_llm_tokens: u64,
    pub ignore_cap: bool,
    /// Content chunks of a stream; as many as there are llm_tokens, at most 64, if absent.
    pub chunks: Option<u64>,
    /// Pause before each content chunk; a plain answer waits the sum before its head.
    pub chunk_every_ms: u64,
    /// Pause between the head and the first event.
    pub first_chunk_after_ms: u64,
    pub usage: UsageMode,
    /// After that many content chunks: an error event (stream) or a 500 (plain).
    pub error_at_chunk: Option<u64>,
    /// After that many content chunks (plain: 0 = before the head, else in mid-body) a TCP reset.
    pub reset_at_chunk: Option<u64>,
    /// The same with a clean end of the connection.
    pub close_at_chunk: Option<u64>,
    /// The same with silence.
    pub stall_at_chunk: Option<u64>,
    /// Hosted web searches that the answer tells of (responses).
    pub web_searches: u64,
    /// Instead of `stop` / `end_turn`; of a response its state at the end.
    pub finish_reason: Option<String>,
    pub omit_finish: bool,
    /// Leave out `[DONE]` / `message_stop` / the terminal event of a response.
    pub omit_done: bool,
    /// A call of this tool instead of text. Absent: text, unless the call forces a tool.
    pub tool_call: Option<ToolCall>,
    pub line_end: LineEnd,
    /// `data:{` instead of `data: {`.
    pub no_space: bool,
    /// A comment line before each event.
    pub comments: bool,
    /// Cut each event into writes of that many bytes.
    pub write_bytes: Option<u64>,
}

impl Default for Generate {
    fn default() -> Self {
        Self {
            input_llm_tokens: None,
            cached_llm_tokens: 0,
            cache_write_llm_tokens: 0,
            output_llm_tokens: None,
            reasoning_llm_tokens: 0,
            ignore_cap: false,
            chunks: None,
            chunk_every_ms: 0,
            first_chunk_after_ms: 0,
            usage: UsageMode::Auto,
            error_at_chunk: None,
            reset_at_chunk: None,
            close_at_chunk: None,
            stall_at_chunk: None,
            web_searches: 0,
            finish_reason: None,
            omit_finish: false,
            omit_done: false,
            tool_call: None,
            line_end: LineEnd::Lf,
            no_space: false,
            comments: false,
            write_bytes: None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageMode {
    /// OpenAI: plain always, stream if `include_usage`. Anthropic: always.
    #[default]
    Auto,
    /// Always, in the usual place.
    Final,
    /// On the chunk that carries the finish reason (OpenAI dialect; else as `Final`).
    WithFinish,
    Never,
    /// The field is there and null.
    Null,
    /// A running total on every content chunk, and at the end.
    Cumulative,
    /// The right amounts with the wrong sign.
    Negative,
    /// This value in place of the usage object.
    Odd(Value),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolCall {
    pub name: String,
    /// JSON text, sent in as many pieces as there are chunks.
    pub arguments: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnd {
    #[default]
    Lf,
    CrLf,
    Cr,
}

impl Script {
    /// A chat answer of that many output llm_tokens.
    pub fn output(llm_tokens: u64) -> Self {
        Generate { output_llm_tokens: Some(llm_tokens), ..Generate::default() }.into()
    }

    pub fn json(status: u16, body: Value) -> Self {
        Self { status: Some(status), answer: Answer::Json(body), ..Self::default() }
    }

    /// An error of the dialect asked.
    pub fn error(status: u16, message: &str) -> Self {
        let body = ErrorBody { message: message.to_owned(), ..ErrorBody::default() };
        Self { status: Some(status), answer: Answer::Error(body), ..Self::default() }
    }

    pub fn steps(steps: Vec<Step>) -> Self {
        Self { answer: Answer::Steps(steps), ..Self::default() }
    }

    pub fn raw(steps: Vec<Step>) -> Self {
        Self { answer: Answer::Raw(steps), ..Self::default() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }

    pub fn ignore_disconnect(mut self) -> Self {
        self.ignore_disconnect = true;
        self
    }

    pub fn gzip(mut self) -> Self {
        self.encodings.push("gzip".to_owned());
        self
    }

    pub fn head_after_ms(mut self, ms: u64) -> Self {
        self.head_after_ms = ms;
        self
    }
}

impl From<Generate> for Script {
    fn from(generate: Generate) -> Self {
        Self { answer: Answer::Generate(Box::new(generate)), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_object_is_the_polite_provider() {
        assert_eq!(serde_json::from_str::<Script>("{}").unwrap(), Script::default());
    }

    #[test]
    fn json_and_rust_say_the_same() {
        let text = r#"{"status":200,"headers":[["a","b"]],"answer":{"steps":[{"text":"x"},{"delay_ms":3},"reset"]}}"#;
        let read: Script = serde_json::from_str(text).unwrap();
        let mut built =
            Script::steps(vec![Step::Text("x".into()), Step::DelayMs(3), Step::Reset]).header("a", "b");
        built.status = Some(200);
        assert_eq!(read, built);
        let again: Script = serde_json::from_str(&serde_json::to_string(&built).unwrap()).unwrap();
        assert_eq!(again, built);
    }

    #[test]
    fn misspelt_field_is_an_error() {
        assert!(serde_json::from_str::<Script>(r#"{"answer":{"generate":{"output":3}}}"#).is_err());
    }
}
