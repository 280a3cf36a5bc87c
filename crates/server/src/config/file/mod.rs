//! The configuration file as it is written: field names, forms and defaults, no meaning.
//!
//! The comments here are the help of `tollbook schema` and of `docs/reference/configuration.md`.
//! Unknown fields are mistakes everywhere. Absent and null are the same.

mod alerts;
mod calls;
mod clients;
mod limit;
mod people;
mod reconcile;
mod traces;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{Decimal, Secret, Size, Span};
pub use alerts::*;
pub use calls::{Breaker, Calls};
pub use clients::*;
pub use limit::*;
pub use people::*;
pub use reconcile::Reconcile;
pub use traces::Traces;

/// `tollbook.yaml`: one gateway process. Any value may hold `${VARIABLE}` or `${VARIABLE:-default}`, replaced from the
/// environment at start; `$${` stands for a literal `${`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "tollbook.yaml")]
pub struct File {
    /// Address where clients come in. Port 0 takes a free port.
    #[serde(default = "default_listen")]
    pub listen: String,
    /// Certificate and key shown to clients; without them clients come in over plain TCP.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// HTTP/2 towards clients.
    #[serde(default)]
    pub http2: Http2,
    /// Pages in a browser that may read answers; without it none may.
    #[serde(default)]
    pub cors: Option<Cors>,
    /// What stands in front of the gateway.
    #[serde(default)]
    pub proxies: Proxies,
    /// The operator's listener. It stays closed without a key.
    #[serde(default)]
    pub admin: Admin,
    /// Folder for the book's log, the journal and the spool. Relative to this file.
    #[serde(default = "default_data_dir")]
    pub data_dir: PathBuf,
    /// Where the journal and the operators' objects are: an SQLite file, `journal.sqlite` in `data_dir` if none is named, or
    /// `mysql://user:password@host:port/database` of MySQL 8 or MariaDB 10.6 and newer (`mariadb://` is the same). The URL
    /// may say `?ssl-mode=VERIFY_IDENTITY`, `ssl-ca`, `ssl-cert`, `ssl-key` and `socket`. Gateways that share a book share
    /// it too; in a file, they run on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// File that holds the password of `journal`, if that is a URL without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_password_file: Option<PathBuf>,
    /// How many days the journal's entries are kept; for ever if it is absent. Daily totals, and what quotas counted, stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal_keep_days: Option<u32>,
    /// Where the book is kept.
    #[serde(default)]
    pub engine: Engine,
    /// How the gateway logs. No log line holds a prompt or a key.
    #[serde(default)]
    pub log: Log,
    /// Spans of calls, for an OpenTelemetry collector. Off without an endpoint.
    #[serde(default)]
    pub traces: Traces,
    /// Bounds on what one client or one answer may take.
    #[serde(default)]
    pub http: Http,
    /// Time limits; they are about silence, not about duration, unless they say so.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// How calls are booked.
    #[serde(default)]
    pub calls: Calls,
    /// Once a day, what providers counted is compared with the journal. Off without a folder.
    #[serde(default)]
    pub reconcile: Option<Reconcile>,
    /// Tells webhooks when quotas cross thresholds. Off without webhooks.
    #[serde(default)]
    pub alerts: Option<Alerts>,
    /// Mixed into the hashes of keys, so that a stolen file gives no key away. Changing it makes every key invalid.
    #[serde(default)]
    pub key_pepper: Option<Secret>,
    /// File that holds `key_pepper`.
    #[serde(default)]
    pub key_pepper_file: Option<PathBuf>,
    /// A proxy between the gateway and the providers.
    #[serde(default)]
    pub upstream_proxy: Option<UpstreamProxy>,
    /// Providers' accounts.
    pub upstreams: Vec<Upstream>,
    /// Paths that are passed through: audio, images, moderations, files, batches, the counting of input.
    #[serde(default)]
    pub passes: Passes,
    /// What clients may ask for.
    pub models: Vec<Model>,
    /// Price of every model that has none. Without it, a limit on `cost` refuses calls to models without a price.
    #[serde(default)]
    pub default_price: Option<Price>,
    /// Where plans, tenants, projects, keys and services are defined.
    #[serde(default)]
    pub config: Truth,
    /// Named sets of limits that tenants share.
    #[serde(default)]
    pub plans: Vec<Plan>,
    /// Who may ask.
    #[serde(default)]
    pub tenants: Vec<Tenant>,
}

fn default_listen() -> String {
    "127.0.0.1:8080".to_owned()
}

pub(super) fn default_data_dir() -> PathBuf {
    PathBuf::from("./tollbook-data")
}

/// The operator's listener: `explain`, `inspect` and the accounts.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address of the operator's listener.
    pub listen: String,
    /// The operator's key, sent as a bearer key. Without one the listener is not opened.
    #[serde(skip_serializing)]
    pub api_key: Option<Secret>,
    /// File that holds `api_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: "127.0.0.1:8081".to_owned(), api_key: None, api_key_file: None }
    }
}

/// Where the book is kept: in this process, with a log on disk, or in a server that gateways share.
#[derive(Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// When a booking counts as written; of the book in this process.
    pub durability: Durability,
    /// One book in Redis or Valkey for any number of gateways, instead of the one in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisBook>,
}

/// The shared book: Redis 6.2 or newer, or Valkey.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RedisBook {
    /// `redis://host:port/database`, `rediss://` over TLS, `redis+sentinel://host:port,host:port/service` or
    /// `redis+cluster://host:port,host:port`.
    pub url: String,
    /// The user that signs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Its password.
    #[serde(default, skip_serializing)]
    pub password: Option<Secret>,
    /// File that holds `password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// What every key begins with.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// Certificate authorities (PEM) to trust beside the public ones.
    #[serde(default)]
    pub ca_files: Vec<PathBuf>,
    /// Connections that all calls share.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// Longest one booking may take.
    #[serde(default = "default_deadline")]
    pub deadline: Span,
    /// How many gateways share the book, until they have counted each other: while it is away, each of them gives
    /// out so large a part of a limit with `when_away: local`. Needed where there is such a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_size: Option<u32>,
}

fn default_prefix() -> String {
    "tb".to_owned()
}

fn default_connections() -> usize {
    2
}

fn default_deadline() -> Span {
    Span::from_millis(250)
}

/// When a booking counts as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Once it is in the log file's pages: survives a crash of the process; a power cut loses at most the last 50 ms.
    #[default]
    Mapped,
    /// Once it is on the disk: survives a power cut, and costs the time of a disk write.
    Fsync,
}

/// How the gateway logs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// The least severe level that is written.
    pub level: LogLevel,
    /// The form of a line.
    pub format: LogFormat,
}

/// Severity, from the worst down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

/// The form of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Bounds on what one client or one answer may take.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Largest request body; above it 413.
    pub body_max: Size,
    /// Sum of the request bodies held at once, what is decoded of them included; above it 503.
    pub bodies_in_flight_max: Size,
    /// All header lines of a request together.
    pub head_max: Size,
    /// What unfinished heads of all HTTP/1.1 connections hold at once beyond 4 KiB each; above it 503.
    pub heads_in_flight_max: Size,
    /// Most header lines of a request.
    pub headers_max: u32,
    /// Largest answer that is not streamed; above it 502.
    pub answer_max: Size,
    /// Sum of the answers held at once that are not streamed; above it 503.
    pub answers_in_flight_max: Size,
    /// Connections accepted at once.
    pub connections_max: u32,
    /// Largest body that is passed through without being held (files); above it 413.
    pub upload_max: Size,
    /// Bytes per second below which a client that sends or takes a body counts as silent; 0 asks for no pace.
    pub pace_min: Size,
    /// Streams that one key may have open at once; above it 429.
    pub streams_per_key_max: u32,
    /// Streams read on at once after their clients left, where the upstream says `drains`. 0 reads none on.
    pub drains_max: u32,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            body_max: Size(32 << 20),
            bodies_in_flight_max: Size(1 << 30),
            head_max: Size(64 << 10),
            heads_in_flight_max: Size(64 << 20),
            headers_max: 100,
            answer_max: Size(64 << 20),
            answers_in_flight_max: Size(1 << 30),
            connections_max: 16_384,
            upload_max: Size(512 << 20),
            pace_min: Size(1024),
            streams_per_key_max: 4096,
            drains_max: 256,
        }
    }
}

/// Time limits; they are about silence, not about duration, unless they say so.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// What comes before the first request of a connection, as a TLS handshake: a duration.
    pub handshake: Span,
    /// A client's request head: the first of a connection from its beginning, each further one from its first byte.
    pub head: Span,
    /// A connection without a call. Keep it above what a load balancer in front of it has (60 s is common).
    pub idle: Span,
    /// Silence while a request body arrives.
    pub body_silence: Span,
    /// A client that takes no byte of its answer.
    pub write_stall: Span,
    /// A stream of which nothing comes for so long gets a sign of life: a comment, or Anthropic's `ping`. 0s sends none.
    pub keepalive: Span,
    /// How long a shutdown lets calls finish: a duration.
    pub drain: Span,
    /// How long the answer of a buffered call, or of a stream where the upstream says `drains`, is awaited after its
    /// client left: a duration.
    pub detached: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Span::from_secs(10),
            head: Span::from_secs(10),
            idle: Span::from_secs(75),
            body_silence: Span::from_secs(30),
            write_stall: Span::from_secs(30),
            keepalive: Span::from_secs(15),
            drain: Span::from_secs(30),
            detached: Span::from_secs(120),
        }
    }
}

/// One account with a provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Named by models.
    pub name: String,
    /// The shapes this provider speaks.
    pub dialect: Dialect,
    /// Scheme, host and path before the dialect's own, as `https://api.openai.com/v1` or `https://api.anthropic.com/v1`.
    pub base_url: String,
    /// Our key with this provider; without one none is sent.
    #[serde(default)]
    pub api_key: Option<Secret>,
    /// File that holds `api_key`.
    #[serde(default)]
    pub api_key_file: Option<PathBuf>,
    /// Tries after the first one; only before the first byte of an answer.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// What this provider serves; everything of its dialect if absent.
    #[serde(default)]
    pub surfaces: Option<Vec<Surface>>,
    /// Whether the provider knows `stream_options.include_usage`.
    #[serde(default = "yes")]
    pub asks_usage: bool,
    /// Read a stream to its end after its client left, for the usage: for providers that bill on all the same.
    #[serde(default)]
    pub drains: bool,
    /// Tell this provider which trace a call belongs to (`traceparent`, `tracestate`): for servers of your own. Others
    /// are told nothing, because a trace's id ties a tenant's calls together. `baggage` is never passed on.
    #[serde(default)]
    pub trace_context: bool,
    /// Further paths that are passed through to this provider with all that lies below them, as `/v1/vector_stores`.
    /// Calls count as requests; a usage in an answer is charged, any other cost is not seen.
    #[serde(default)]
    pub passes: Vec<String>,
    /// Time limits towards this provider.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// Certificates: whose are trusted, and ours.
    #[serde(default)]
    pub tls: UpstreamTls,
}

fn default_retries() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// Paths that are passed through.
///
/// A path whose body names a model goes where that model is served. The others need an upstream named here. What they
/// keep lies in the provider's account, where every key that may call them sees it, whichever tenant it belongs to.
#[derive(Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Passes {
    /// Upstream of OpenAI's paths without a model: files, uploads, batches. Without one they are not served.
    pub openai: Option<String>,
    /// Upstream of Anthropic's paths without a model: files, message batches. Without one they are not served.
    pub anthropic: Option<String>,
    /// Paths that are not passed, with all that lies below them, as `/v1/images`.
    pub off: Vec<String>,
}

/// The shapes of requests and answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// `POST /chat/completions`, as OpenAI and many others serve it.
    Openai,
    /// `POST /messages`, as Anthropic serves it.
    Anthropic,
}

/// One kind of call, by its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/messages`
    Messages,
}

/// Time limits towards a provider.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTimeouts {
    /// To open a connection, TLS included.
    pub connect: Span,
    /// From the end of a request to the head of its answer.
    pub first_byte: Span,
    /// Between two pieces of an answer.
    pub silence: Span,
    /// Between two events of a stream that say something; comments and pings do not.
    pub event: Span,
    /// An idle connection is closed after this.
    pub idle: Span,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Span::from_secs(5),
            first_byte: Span::from_secs(120),
            silence: Span::from_secs(60),
            event: Span::from_secs(600),
            idle: Span::from_secs(15),
        }
    }
}

/// A model as clients name it, and where it is served.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What clients put into `model`.
    pub name: String,
    /// Other names clients may use for it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The upstream that serves it.
    pub upstream: String,
    /// The model's name there; the same name if absent.
    #[serde(default)]
    pub upstream_model: Option<String>,
    /// What it is served on; everything its upstream serves if absent.
    #[serde(default)]
    pub surfaces: Option<Vec<Surface>>,
    /// How its llm_tokens are counted before a provider has told; guessed from its name there if absent.
    #[serde(default)]
    pub vocabulary: Option<Vocabulary>,
    /// How its input is counted at the door.
    #[serde(default)]
    pub input_count: InputCount,
    /// A `tokenizer.json` (Hugging Face) that counts its text exactly, instead of the vocabulary's own.
    #[serde(default)]
    pub tokenizer: Option<PathBuf>,
    /// llm_tokens that its chat template adds, where they are known; else the vocabulary's usual ones are taken.
    #[serde(default)]
    pub framing: Option<Framing>,
    /// Most llm_tokens of input and output together; usage above it is not believed.
    #[serde(default)]
    pub context: Option<u64>,
    /// llm_tokens of an image whose size is not in the request; the most its provider counts if absent.
    #[serde(default)]
    pub image_unknown: Option<u64>,
    /// llm_tokens that a call is taken to read of a conversation stored with the provider (`previous_response_id`,
    /// `conversation`, a stored prompt): the request only names it. 8192 if absent.
    #[serde(default)]
    pub stored_input: Option<u64>,
    /// Bounds of its output.
    #[serde(default)]
    pub output: Output,
    /// What it costs. An explicit 0 is free; no price at all is unknown.
    #[serde(default)]
    pub price: Option<Price>,
    /// How the provider counts llm_tokens against its own limits; plain for OpenAI's dialect, without what is read from
    /// a cache for Anthropic's.
    #[serde(default)]
    pub meter: Option<Meter>,
    /// The provider's own limits on us: pool limits, across tenants.
    #[serde(default)]
    pub limits: Vec<Limit>,
}

/// How the input of a call is counted before its provider has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputCount {
    /// By a tokenizer, for every call; beyond the budget of `calls.count_jobs_max` and `calls.count_bytes_max` as
    /// `learned`.
    Exact,
    /// By kinds of characters, corrected by what the provider reported of the key's earlier calls.
    Learned,
    /// As `learned`; exactly where a call comes within a tenth of what is left of a hard limit, or is refused by one.
    #[default]
    Auto,
}

/// llm_tokens of a chat template, around the text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Framing {
    /// Once per call.
    pub per_request: Option<u64>,
    /// For each message.
    pub per_message: Option<u64>,
    /// For each message with a `name`.
    pub per_name: Option<u64>,
}

/// How llm_tokens are counted before a provider has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Vocabulary {
    /// OpenAI since GPT-4o; counted exactly where it matters.
    O200k,
    /// OpenAI before GPT-4o; counted exactly where it matters.
    Cl100k,
    /// Claude before 4.7.
    Claude,
    /// Claude 4.7 and later.
    ClaudeNew,
    /// Qwen.
    Qwen,
    /// DeepSeek.
    Deepseek,
    /// As the dearest of the others, until the provider's reports have corrected it.
    Unknown,
}

/// Bounds of a model's output, in llm_tokens and per choice. A missing cap is never unlimited.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Output {
    /// Cap assumed for a call that sends none; 4096 if absent.
    pub default: Option<u64>,
    /// The provider's largest cap; more counts as this.
    pub max: Option<u64>,
    /// Our largest cap; more is cut down to this in the request.
    pub cap: Option<u64>,
    /// What the first calls are expected to use, before anything was learned; 512 if absent.
    pub first: Option<u64>,
}

/// Prices in the currency of the ceilings. A part without one costs as the part that contains it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// How many llm_tokens the prices below are for.
    #[serde(default)]
    pub unit: PriceUnit,
    /// Input that is not from a cache.
    pub input: Decimal,
    /// Input read from the provider's cache.
    #[serde(default)]
    pub cached: Option<Decimal>,
    /// Input written into the provider's cache.
    #[serde(default)]
    pub cache_write: Option<Decimal>,
    /// Input written into the provider's cache for an hour.
    #[serde(default)]
    pub cache_write_1h: Option<Decimal>,
    /// Images sent.
    #[serde(default)]
    pub image_input: Option<Decimal>,
    /// Sound sent.
    #[serde(default)]
    pub audio_input: Option<Decimal>,
    /// Output.
    pub output: Decimal,
    /// Output that is reasoning.
    #[serde(default)]
    pub reasoning: Option<Decimal>,
    /// Sound received.
    #[serde(default)]
    pub audio_output: Option<Decimal>,
    /// One web search, in whole currency units.
    #[serde(default)]
    pub web_search: Option<Decimal>,
    /// One call of a tool that the provider runs, in whole currency units: `code_interpreter`, `file_search`,
    /// `image_generation`, `computer_use`, `mcp`; `other` is for every tool that is not named. A call that offers a tool
    /// without a fee is refused where a limit counts cost; 0 is free.
    #[serde(default)]
    pub tools: BTreeMap<String, Decimal>,
    /// Other prices for calls with much input, by size.
    #[serde(default)]
    pub steps: Vec<PriceStep>,
    /// Multipliers of the provider's service tiers, as `flex: 0.5`.
    #[serde(default)]
    pub tiers: BTreeMap<String, Decimal>,
}

/// Prices of calls whose whole input is larger than `above`. What is absent costs as without the step.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceStep {
    /// llm_tokens of input.
    pub above: u64,
    /// As in Price.
    #[serde(default)]
    pub input: Option<Decimal>,
    /// As in Price.
    #[serde(default)]
    pub cached: Option<Decimal>,
    /// As in Price.
    #[serde(default)]
    pub cache_write: Option<Decimal>,
    /// As in Price.
    #[serde(default)]
    pub cache_write_1h: Option<Decimal>,
    /// As in Price.
    #[serde(default)]
    pub output: Option<Decimal>,
    /// As in Price.
    #[serde(default)]
    pub reasoning: Option<Decimal>,
}

/// How many llm_tokens a price is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PriceUnit {
    /// A million.
    #[default]
    Million,
    /// A single one.
    One,
}
