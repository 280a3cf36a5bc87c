//! What the data plane is told at start: addresses, bounds, timeouts, upstreams. Validated by the server.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tollbook_wire::Dialect;

/// The data plane's settings. Bounds are in bytes unless said otherwise.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub bounds: Bounds,
    pub timeouts: Timeouts,
    pub passes: Passes,
    pub upstreams: Vec<Upstream>,
}

/// Where paths that are passed through go when no model in their body says it.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    /// Name of the upstream for OpenAI's paths (files, batches, …); without it they are not served.
    pub openai: Option<String>,
    /// The same for Anthropic's.
    pub anthropic: Option<String>,
    /// Paths of the table that are not passed, and what lies below them.
    pub off: Vec<String>,
}

/// What one client or one answer may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Largest request body; over it 413.
    pub body_max: usize,
    /// Sum of request bodies held at once; over it new bodies wait.
    pub bodies_in_flight_max: usize,
    /// Request head, all header lines together.
    pub head_max: usize,
    /// Most header lines of a request.
    pub headers_max: usize,
    /// Largest buffered (not streamed) upstream answer; over it 502.
    pub answer_max: usize,
    /// Connections accepted at once.
    pub connections_max: usize,
    /// Largest body that is passed through without being held; over it 413.
    pub upload_max: u64,
    /// Streams read on at once after their clients left, where an upstream says `drain`.
    pub drains_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_max: 32 << 20,
            bodies_in_flight_max: 1 << 30,
            head_max: 64 << 10,
            headers_max: 100,
            answer_max: 64 << 20,
            connections_max: 16_384,
            upload_max: 512 << 20,
            drains_max: 256,
        }
    }
}

/// Time limits are about silence, not about duration (except `drain` and `detached`).
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A client's request head, from its first byte or from the end of the answer before it.
    pub head: Duration,
    /// Silence while a request body arrives.
    pub body_silence: Duration,
    /// A client that takes no byte of its answer.
    pub write_stall: Duration,
    /// How long a shutdown lets calls finish.
    pub drain: Duration,
    /// How long a buffered call, or a stream of a draining upstream, is awaited after its client left.
    pub detached: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body_silence: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            detached: Duration::from_secs(120),
        }
    }
}

/// One provider account.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// As named by the models' targets.
    pub name: String,
    pub dialect: Dialect,
    /// Scheme, authority and path prefix, e.g. `https://api.openai.com/v1`.
    pub base_url: http::Uri,
    /// Our credential there; `None` sends none.
    pub api_key: Option<SecretString>,
    /// Tries after the first, before the first byte only.
    pub retries: u32,
    pub connect_timeout: Duration,
    /// From the end of our request to the head of the answer.
    pub first_byte_timeout: Duration,
    /// Between two chunks of an answer.
    pub silence_timeout: Duration,
    /// Idle pooled connections are closed after this.
    pub idle_timeout: Duration,
    /// Whether `stream_options.include_usage` may be asked for; some providers reject it.
    pub asks_usage: bool,
    /// Read a stream to its end, within `drain` bounds, after its client left: for providers that bill on all the same.
    pub drains: bool,
    /// Tell the provider which trace a call belongs to.
    pub trace_context: bool,
    /// Further paths that are passed to it, with what lies below them.
    pub passes: Vec<String>,
}

impl Upstream {
    /// An upstream with the default bounds.
    pub fn new(name: impl Into<String>, dialect: Dialect, base_url: http::Uri) -> Self {
        Self {
            name: name.into(),
            dialect,
            base_url,
            api_key: None,
            retries: 1,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(120),
            silence_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(15),
            asks_usage: true,
            drains: false,
            trace_context: false,
            passes: Vec::new(),
        }
    }
}

impl Upstream {
    /// Whether a client that was built for the other serves this one too.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // Taken apart, so that a new setting cannot be forgotten here.
        let Self {
            name,
            dialect,
            base_url,
            api_key,
            retries,
            connect_timeout,
            first_byte_timeout,
            silence_timeout,
            idle_timeout,
            asks_usage,
            drains,
            trace_context,
            // The plane's own matter: no connection depends on it.
            passes: _,
        } = self;
        let credential = |key: &Option<SecretString>| key.as_ref().map(|key| key.expose_secret().to_owned());
        *name == other.name
            && *dialect == other.dialect
            && *base_url == other.base_url
            && credential(api_key) == credential(&other.api_key)
            && *retries == other.retries
            && *connect_timeout == other.connect_timeout
            && *first_byte_timeout == other.first_byte_timeout
            && *silence_timeout == other.silence_timeout
            && *idle_timeout == other.idle_timeout
            && *asks_usage == other.asks_usage
            && *drains == other.drains
            && *trace_context == other.trace_context
    }
}
