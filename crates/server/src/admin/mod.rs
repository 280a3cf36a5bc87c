//! The operator's listener: `explain`, the accounts, and what is kept of a tenant.
//!
//! Invariants: not opened without a key; every path needs the key, compared in constant time; it decides nothing and
//! holds nothing. Heads are screened as clients' are, bodies are bounded, a silent client is cut off.
//! When the engine or the journal is away: 503, and calls go on.

mod answer;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tollbook_admission::Admission;
use tollbook_gateway::{HeadBounds, Screen, refused_head};
use tollbook_store::Journal;

use crate::text::unescaped;

/// Longest body; it carries a client's whole call.
const BODY_MAX: usize = 34 << 20;
/// A request's head, and its lines.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_TIMEOUT: Duration = Duration::from_mins(1);
const EXPLAIN: &str = "/admin/v1/explain";
const ACCOUNTS: &str = "/admin/v1/accounts";
/// What stands before a tenant's id, which is percent-encoded.
const INSPECT: &str = "/admin/v1/inspect/";
/// Connections open at once.
const CONNECTIONS_MAX: usize = 64;

/// What the listener answers from.
pub struct Admin {
    pub admission: Arc<Admission>,
    pub journal: Arc<dyn Journal>,
    /// Digest of the key, so that the time of a comparison tells nothing of its length either; without one nobody comes in.
    key: ArcSwapOption<blake3::Hash>,
}

/// An answer that is no success.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admin")
    }
}

impl Admin {
    pub fn new(admission: Arc<Admission>, journal: Arc<dyn Journal>, key: &SecretString) -> Arc<Self> {
        let admin = Self { admission, journal, key: ArcSwapOption::empty() };
        admin.set_key(Some(key));
        Arc::new(admin)
    }

    /// Another key from now on, or none.
    pub fn set_key(&self, key: Option<&SecretString>) {
        let digest = |key: &SecretString| Arc::new(blake3::hash(key.expose_secret().as_bytes()));
        self.key.store(key.map(digest));
    }

    /// Serves until `stop` turns true; calls under way are cut off then, they hold nothing.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stopped| *stopped) => return,
            };
            while connections.try_join_next().is_some() {}
            let Ok((socket, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let admin = Arc::clone(&self);
            connections.spawn(async move {
                admin.connection(socket).await;
                drop(slot);
            });
        }
    }

    async fn connection(self: Arc<Self>, socket: TcpStream) {
        let service = service_fn(move |request| {
            let admin = Arc::clone(&self);
            async move { Ok::<_, Infallible>(admin.respond(request).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        let heads = HeadBounds { bytes: HEAD_MAX, lines: HEADERS_MAX };
        builder.max_headers(HEADERS_MAX.saturating_add(8)).max_buf_size(HEAD_MAX.saturating_add(1024));
        // The same screen as at the clients' door: one meaning of a head, or one refusal.
        let socket = TokioIo::new(Screen::alone(socket, heads, HEAD_TIMEOUT));
        if let Err(error) = builder.serve_connection(socket, service).await {
            tracing::debug!(%error, "an operator's connection ended early");
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, body) = match self.answer(request).await {
            Ok(value) => (StatusCode::OK, value),
            Err(refusal) => {
                (refusal.status, json!({"error": {"code": refusal.code, "message": refusal.message}}))
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Value, Refusal> {
        if let Some(why) = refused_head(&request) {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "malformed_request", why));
        }
        if !self.is_operator(&request) {
            return Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "the operator's key is needed",
            ));
        }
        let path = request.uri().path().to_owned();
        match (request.method(), path.as_str()) {
            (&Method::POST, EXPLAIN) => {
                let body = read(request).await?;
                answer::explain(self, &body).await
            }
            (&Method::GET, ACCOUNTS) => answer::accounts(self).await,
            (&Method::GET, path) if path.starts_with(INSPECT) => {
                let Some(tenant) = path.strip_prefix(INSPECT).and_then(unescaped) else {
                    let message = "the tenant's id is not percent-encoded UTF-8";
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_question", message));
                };
                answer::inspect(self, &tenant).await
            }
            (_, path) if matches!(path, EXPLAIN | ACCOUNTS) || path.starts_with(INSPECT) => {
                let message = "explain takes POST, accounts and inspect take GET";
                Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message))
            }
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")),
        }
    }

    fn is_operator(&self, request: &Request<Incoming>) -> bool {
        let shown = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, key)) = shown.and_then(|text| text.split_once(' ')) else { return false };
        let Some(expected) = self.key.load_full() else { return false };
        let digest = blake3::hash(key.trim().as_bytes());
        scheme.eq_ignore_ascii_case("bearer") && bool::from(digest.as_bytes().ct_eq(expected.as_bytes()))
    }
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let reading = Limited::new(request.into_body(), BODY_MAX).collect();
    match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body is larger than {BODY_MAX} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message))
        }
        Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "unreadable", "the body could not be read")),
        Err(_) => {
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not arrive in time"))
        }
    }
}
