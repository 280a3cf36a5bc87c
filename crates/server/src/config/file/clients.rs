//! How clients come in (TLS, HTTP/2, pages in browsers, proxies in front) and how providers are reached.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::{Secret, Size, Span};

/// TLS towards clients. The files are looked at again and again; new content serves the next connections, bad content is
/// logged and leaves the old one in use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate and those between it and its root, in PEM. Relative to this file.
    pub certificate_file: PathBuf,
    /// Its private key, in PEM.
    pub key_file: PathBuf,
    /// How often the files are looked at.
    #[serde(default = "default_check_every")]
    pub check_every: Span,
}

fn default_check_every() -> Span {
    Span::from_secs(10)
}

/// HTTP/2: over TLS where the client chooses it, else where a connection begins with its preface.
#[derive(Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http2 {
    /// Whether it is spoken at all.
    pub enabled: bool,
    /// Calls open at once on one connection.
    pub streams_max: u32,
    /// Bytes of one request that a client may send ahead.
    pub stream_window: Size,
    /// The same for a whole connection.
    pub connection_window: Size,
    /// Calls a client may reset per minute on one connection, and of calls not yet begun at most 32 at once; above either
    /// the connection ends.
    pub resets_max: u32,
    /// How often a client is asked whether it is still there.
    pub ping_every: Span,
    /// How long its answer is awaited before the connection ends.
    pub ping_within: Span,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            enabled: true,
            streams_max: 256,
            stream_window: Size(256 << 10),
            connection_window: Size(1 << 20),
            resets_max: 1_000,
            ping_every: Span::from_secs(30),
            ping_within: Span::from_secs(20),
        }
    }
}

/// Pages in a browser that may read answers. Their preflights need no key and cost nothing. Cookies are never asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cors {
    /// Their origins, as `https://app.example.com`; `*` stands for all.
    pub origins: Vec<String>,
    /// How long a browser may remember the answer to a preflight.
    #[serde(default = "default_max_age")]
    pub max_age: Span,
}

fn default_max_age() -> Span {
    Span::from_secs(600)
}

/// What stands in front of the gateway.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Proxies {
    /// Addresses, as `10.0.0.0/8`, that are believed when they name a client's address in `X-Forwarded-For` or
    /// `Forwarded`. From all others these headers mean nothing.
    pub trusted: Vec<String>,
    /// Whether connections from trusted addresses begin with a PROXY header (version 1 or 2). Then all of them have to.
    pub proxy_protocol: bool,
}

/// A proxy between the gateway and the providers, asked by CONNECT.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamProxy {
    /// As `http://proxy.example.com:3128`.
    pub url: String,
    /// Who we are there.
    #[serde(default)]
    pub user: Option<String>,
    /// Our password there.
    #[serde(default)]
    pub password: Option<Secret>,
    /// File that holds `password`.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Hosts that are reached without it: `example.com` and all below it, an address, a network as `10.0.0.0/8`, or `*`.
    #[serde(default)]
    pub except: Vec<String>,
}

/// Certificates between the gateway and a provider. They are always verified.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTls {
    /// Whether the public certificate authorities are trusted.
    pub public_roots: bool,
    /// Further authorities, in PEM. Relative to this file.
    pub ca_files: Vec<PathBuf>,
    /// Our certificate there, in PEM; with `key_file`.
    pub certificate_file: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key_file: Option<PathBuf>,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self { public_roots: true, ca_files: Vec::new(), certificate_file: None, key_file: None }
    }
}
