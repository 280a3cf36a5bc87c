//! What the data plane is told at start: addresses, bounds, timeouts, upstreams. Validated by the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tollbook_admission::Network;
use tollbook_wire::Dialect;

/// The data plane's settings. Bounds are in bytes unless said otherwise.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// `None`: clients come in over plain TCP.
    pub tls: Option<Tls>,
    pub http2: Http2,
    /// `None`: no page in a browser may read an answer.
    pub cors: Option<Cors>,
    pub proxies: Proxies,
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

/// The certificate clients are shown, as files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The certificate and those between it and its root.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// How often the files are looked at for new content.
    pub check_every: Duration,
}

/// HTTP/2 towards clients: over TLS where the client chooses it, on plain listeners where it begins with its preface.
#[derive(Clone, Copy, Debug)]
pub struct Http2 {
    pub enabled: bool,
    /// Streams open at once on one connection.
    pub streams_max: u32,
    /// Bytes of one request a client may send ahead.
    pub stream_window: u32,
    /// The same for all streams of a connection.
    pub connection_window: u32,
    /// Calls a client may reset per minute and connection; beyond it the connection ends, and also where it resets more
    /// than 32 at once that were not begun yet.
    pub resets_max: u32,
    /// A connection is asked for a sign of life so often.
    pub ping_every: Duration,
    /// And ends if none comes within this.
    pub ping_within: Duration,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            enabled: true,
            streams_max: 256,
            stream_window: 256 << 10,
            connection_window: 1 << 20,
            resets_max: 1_000,
            ping_every: Duration::from_secs(30),
            ping_within: Duration::from_secs(20),
        }
    }
}

/// Which pages in a browser may read answers.
#[derive(Clone, Debug)]
pub struct Cors {
    /// As a browser names them, `https://app.example.com`; `*` stands for all.
    pub origins: Vec<String>,
    /// How long a browser may remember the answer to a preflight.
    pub max_age: Duration,
}

/// What stands in front of the gateway.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// Peers that are believed when they name a client's address.
    pub trusted: Vec<Network>,
    /// Whether their connections begin with a PROXY header; they all do then.
    pub proxy_protocol: bool,
}

/// A proxy between the gateway and an upstream: asked by CONNECT, whatever the upstream's scheme.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// `http://host:port`.
    pub url: http::Uri,
    /// Value of `Proxy-Authorization`.
    pub authorization: Option<SecretString>,
}

/// How an upstream's certificate is verified, and what it is shown. There is no way not to verify.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamTls {
    /// Whether the public certificate authorities are trusted.
    pub public_roots: bool,
    /// Further authorities, in PEM.
    pub ca_files: Vec<PathBuf>,
    /// Our certificate there and its key, in PEM.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Of the files' content when the configuration was read: a client is built anew when it changes.
    pub digest: u64,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self { public_roots: true, ca_files: Vec::new(), client: None, digest: 0 }
    }
}

/// What one client or one answer may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Largest request body; over it 413.
    pub body_max: usize,
    /// Sum of request bodies held at once, what is decoded of them included; over it 503.
    pub bodies_in_flight_max: usize,
    /// Request head, all header lines together.
    pub head_max: usize,
    /// What unfinished heads of all HTTP/1.1 connections hold at once beyond 4 KiB each; over it 503.
    pub heads_in_flight_max: usize,
    /// Most header lines of a request.
    pub headers_max: usize,
    /// Largest buffered (not streamed) upstream answer; over it 502.
    pub answer_max: usize,
    /// Sum of buffered answers held at once; over it 503.
    pub answers_in_flight_max: usize,
    /// Connections accepted at once.
    pub connections_max: usize,
    /// Largest body that is passed through without being held; over it 413.
    pub upload_max: u64,
    /// Bytes per second below which a client that sends or takes a body counts as silent; 0 asks for no pace.
    pub pace_min: usize,
    /// Streams one key may have open.
    pub streams_per_key_max: usize,
    /// Streams read on at once after their clients left, where an upstream says `drain`.
    pub drains_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_max: 32 << 20,
            bodies_in_flight_max: 1 << 30,
            head_max: 64 << 10,
            heads_in_flight_max: 64 << 20,
            headers_max: 100,
            answer_max: 64 << 20,
            answers_in_flight_max: 1 << 30,
            connections_max: 16_384,
            upload_max: 512 << 20,
            pace_min: 1024,
            streams_per_key_max: 4096,
            drains_max: 256,
        }
    }
}

/// Time limits are about silence, not about duration (except `drain` and `detached`).
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// What comes before the first request: the PROXY header, the TLS handshake.
    pub handshake: Duration,
    /// A client's request head: the first one of a connection from its beginning, each further one from its first byte.
    pub head: Duration,
    /// A connection without a call. Longer than a load balancer keeps one unused (60 s is common): of two that end a
    /// connection at the same moment one sends a request into nothing.
    pub idle: Duration,
    /// Silence while a request body arrives.
    pub body_silence: Duration,
    /// A client that takes no byte of its answer.
    pub write_stall: Duration,
    /// A stream that gives nothing for so long gets a keepalive; zero sends none.
    pub keepalive: Duration,
    /// How long a shutdown lets calls finish.
    pub drain: Duration,
    /// How long a buffered call, or a stream of a draining upstream, is awaited after its client left.
    pub detached: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            body_silence: Duration::from_secs(30),
            write_stall: Duration::from_secs(30),
            keepalive: Duration::from_secs(15),
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
    /// Between two events of a stream; comments and pings are none.
    pub event_timeout: Duration,
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
    pub tls: UpstreamTls,
    pub proxy: Option<Proxy>,
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
            event_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(15),
            asks_usage: true,
            drains: false,
            trace_context: false,
            passes: Vec::new(),
            tls: UpstreamTls::default(),
            proxy: None,
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
            event_timeout,
            idle_timeout,
            asks_usage,
            drains,
            trace_context,
            // The plane's own matter: no connection depends on it.
            passes: _,
            tls,
            proxy,
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
            && *event_timeout == other.event_timeout
            && *idle_timeout == other.idle_timeout
            && *asks_usage == other.asks_usage
            && *drains == other.drains
            && *trace_context == other.trace_context
            && *tls == other.tls
            && match (proxy, &other.proxy) {
                (None, None) => true,
                (Some(one), Some(other)) => {
                    one.url == other.url && credential(&one.authorization) == credential(&other.authorization)
                }
                _ => false,
            }
    }
}
