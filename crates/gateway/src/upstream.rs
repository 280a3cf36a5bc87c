//! One provider account: its connection pool, its address, its credential.
//!
//! A client per upstream, so that pools, certificates and timeouts differ. Idle connections are closed before the
//! provider closes them (a pooled connection that dies while we write is the classic lost call). Redirects are not
//! followed, wherever they lead: a call goes to the configured address and nowhere else.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use secrecy::ExposeSecret;
use tollbook_wire::Dialect;

use crate::config;
use crate::connect::Connector;
use crate::hidden::Hidden;
use crate::outgoing::{Outgoing, Sent};
use crate::upload::Progress;
use crate::{headers, trace};

/// Idle connections kept per upstream.
const IDLE_MAX: usize = 1024;

/// A connected upstream.
pub(crate) struct Upstream {
    pub(crate) config: config::Upstream,
    client: Client<Connector, Sent>,
    credential: Option<(HeaderName, HeaderValue)>,
    /// Looks for our key in what comes back.
    pub(crate) hidden: Hidden,
    prefix: String,
}

/// A call that is passed through.
pub(crate) struct Passing<'a> {
    pub(crate) method: http::Method,
    /// Below the base URL.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) client_headers: &'a HeaderMap,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) body: Sent,
    /// Of a body that streams.
    pub(crate) progress: Option<std::sync::Arc<Progress>>,
}

/// Why no answer's head came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Nothing of the call reached the provider.
    #[error("{0}{1}")]
    NeverSent(&'static str, Cause),
    /// The provider may have worked on it.
    #[error("{0}{1}")]
    Cut(&'static str, Cause),
    /// No head within the limit.
    #[error("no answer in time")]
    Timeout,
}

/// What lies at the bottom of an error, for the operator's log; clients are not told where a provider is.
#[derive(Debug, Default)]
pub(crate) struct Cause(String);

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}

impl SendError {
    fn unbuilt(text: &'static str) -> Self {
        Self::NeverSent(text, Cause::default())
    }

    fn of(error: &hyper_util::client::legacy::Error) -> Self {
        let mut at: &dyn std::error::Error = error;
        while let Some(deeper) = at.source() {
            at = deeper;
        }
        let cause = Cause(at.to_string());
        if error.is_connect() {
            Self::NeverSent("the upstream cannot be reached", cause)
        } else {
            Self::Cut("the upstream closed the connection before it answered", cause)
        }
    }
}

impl Upstream {
    /// Builds the client; fails when the credential cannot be a header or the address has no authority.
    pub(crate) fn new(config: config::Upstream) -> Result<Self, String> {
        let connector =
            Connector::new(&config).map_err(|error| format!("upstream {}: {error}", config.name))?;
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(config.idle_timeout)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_MAX)
            .retry_canceled_requests(true)
            .build(connector);
        if config.base_url.authority().is_none() || config.base_url.scheme().is_none() {
            return Err(format!("upstream {}: base_url needs scheme and host", config.name));
        }
        let credential = credential(&config)?;
        let prefix = config.base_url.path().trim_end_matches('/').to_owned();
        let hidden = Hidden::new(config.api_key.as_ref().map(|key| key.expose_secret().as_bytes()));
        Ok(Self { config, client, credential, hidden, prefix })
    }

    /// Sends one try and awaits the head of its answer.
    pub(crate) async fn send(
        &self,
        path: &str,
        query: Option<&str>,
        client_headers: &HeaderMap,
        body: Outgoing,
    ) -> Result<http::Response<Incoming>, SendError> {
        let json = Some(HeaderValue::from_static("application/json"));
        let method = http::Method::POST;
        let request = self
            .request(method, path, query, client_headers, json, Sent::Whole(body))
            .map_err(SendError::unbuilt)?;
        match tokio::time::timeout(self.config.first_byte_timeout, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(SendError::of(&error)),
            Err(_) => Err(SendError::Timeout),
        }
    }

    /// Sends a call that is passed through, and awaits the head of its answer: so long after the last piece of the body.
    pub(crate) async fn pass(&self, passing: Passing<'_>) -> Result<http::Response<Incoming>, SendError> {
        let Passing { method, path, query, client_headers, content_type, body, progress } = passing;
        let request = self
            .request(method, path, query, client_headers, content_type, body)
            .map_err(SendError::unbuilt)?;
        let patience = self.config.first_byte_timeout;
        let begun = tokio::time::Instant::now();
        let mut answer = std::pin::pin!(self.client.request(request));
        loop {
            let heard = progress.as_ref().map_or(begun, |progress| progress.last());
            match tokio::time::timeout_at(heard + patience, answer.as_mut()).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => return Err(SendError::of(&error)),
                Err(_) if progress.as_ref().is_none_or(|progress| progress.last() == heard) => {
                    return Err(SendError::Timeout);
                }
                Err(_) => {}
            }
        }
    }

    /// `path` is what follows the base URL, e.g. `/chat/completions`.
    fn request(
        &self,
        method: http::Method,
        path: &str,
        query: Option<&str>,
        client_headers: &HeaderMap,
        content_type: Option<HeaderValue>,
        body: Sent,
    ) -> Result<http::Request<Sent>, &'static str> {
        let uri = self.uri(path, query).ok_or("the upstream's address cannot be built")?;
        let mut request = http::Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers::for_upstream(client_headers);
        let out = request.headers_mut();
        if self.config.trace_context {
            trace::keep(client_headers, out);
        }
        out.remove(header::CONTENT_TYPE);
        if let Some(content_type) = content_type {
            out.insert(header::CONTENT_TYPE, content_type);
        }
        out.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some((name, value)) = &self.credential {
            out.insert(name.clone(), value.clone());
        }
        if self.config.dialect == Dialect::Anthropic && !out.contains_key("anthropic-version") {
            out.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        Ok(request)
    }

    /// Whether a text holds our credential: then no client may see it.
    pub(crate) fn is_named_in(&self, text: &[u8]) -> bool {
        self.hidden.is_in(text)
    }

    /// An answer's headers as the client may see them.
    pub(crate) fn for_client(&self, head: &HeaderMap) -> HeaderMap {
        let mut out = headers::for_client(head);
        let names: Vec<HeaderName> = out
            .iter()
            .filter(|(_, value)| self.is_named_in(value.as_bytes()))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            out.remove(name);
        }
        out
    }

    fn uri(&self, path: &str, query: Option<&str>) -> Option<Uri> {
        let mut text = String::with_capacity(self.prefix.len() + path.len() + query.map_or(0, str::len) + 1);
        text.push_str(&self.prefix);
        text.push_str(path);
        if let Some(query) = query {
            text.push('?');
            text.push_str(query);
        }
        let mut parts = self.config.base_url.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(text).ok()?);
        Uri::from_parts(parts).ok()
    }
}

fn credential(config: &config::Upstream) -> Result<Option<(HeaderName, HeaderValue)>, String> {
    let Some(api_key) = &config.api_key else { return Ok(None) };
    let (name, text) = match config.dialect {
        Dialect::OpenAi => (header::AUTHORIZATION, format!("Bearer {}", api_key.expose_secret())),
        Dialect::Anthropic => (HeaderName::from_static("x-api-key"), api_key.expose_secret().to_owned()),
    };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| format!("upstream {}: the api key has characters a header cannot carry", config.name))?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("name", &self.config.name).finish_non_exhaustive()
    }
}
