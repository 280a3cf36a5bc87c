//! The operators' listener: `explain`, the accounts, what is kept of a tenant, and the objects that operators define.
//!
//! Invariants: not opened without a key; every path needs a key: the file's, compared in constant time, or an operator's,
//! known by its keyed hash; what that one may not see does not exist for it. It decides nothing and holds nothing.
//! An address that shows too many wrong keys is not listened to for a while.
//! Heads are screened as clients' are, bodies are bounded, a silent client is cut off.
//! When the engine or the store is away: 503, and calls go on. Answers that are no success are problems (RFC 9457).

mod answer;
mod limits;
mod logins;
mod objects;
mod openapi;
mod prices;
mod query;
mod routes;
mod strict;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, LOCATION, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tollbook_admission::{Admission, Snapshot};
use tollbook_gateway::{HeadBounds, Screen, refused_head};
use tollbook_ledger::units::SECOND;
use tollbook_store::{DOCUMENT_MAX, Journal, PriceBooks};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels;

use crate::adjust;
use crate::config::file::Role;
use crate::office::{Counter, Grant};
use crate::{reconcile, release};
use logins::{Login, Logins};
pub(crate) use routes::ROOT;
use routes::{Action, Found, Ids, Reach, Route};

/// Longest body where it carries a client's whole call, or many objects.
const BODY_MAX: usize = 34 << 20;
/// Longest body elsewhere: one document, with room for other ways to write the same.
const DOCUMENT_BODY_MAX: usize = 4 * DOCUMENT_MAX;
/// A request's head, and its lines.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_TIMEOUT: Duration = Duration::from_mins(1);
/// Connections open at once.
const CONNECTIONS_MAX: usize = 64;

/// Longest time for what is under way at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What the listener answers from.
pub struct Admin {
    pub admission: Arc<Admission>,
    pub journal: Arc<dyn Journal>,
    pub(crate) prices: Arc<dyn PriceBooks>,
    /// Where the store defines who may ask.
    pub(crate) counter: Option<Counter>,
    /// Digest of the key, so that the time of a comparison tells nothing of its length either; without one nobody comes in.
    key: ArcSwapOption<blake3::Hash>,
    logins: Logins,
    metrics: Arc<Metrics>,
}

/// An answer that is no success: a problem.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Members beside those that every problem has.
    more: Map<String, Value>,
    /// A header that goes with it: methods that the path has, how long to wait.
    header: Option<(HeaderName, String)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), more: Map::new(), header: None }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.more.insert(member.to_owned(), value);
        self
    }

    fn problem(self) -> Value {
        let title = self.status.canonical_reason().unwrap_or("No success");
        let mut problem = json!({
            "type": format!("urn:tollbook:problem:{}", self.code), "title": title,
            "status": self.status.as_u16(), "detail": self.message, "code": self.code,
        });
        if let Value::Object(members) = &mut problem {
            members.extend(self.more);
        }
        problem
    }
}

/// What the listener answers when it goes well.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    body: Value,
    /// Version of the object that it is about.
    version: Option<u64>,
    /// Where the object is that was made.
    location: Option<String>,
}

impl From<Value> for Answer {
    fn from(body: Value) -> Self {
        Self { status: StatusCode::OK, body, version: None, location: None }
    }
}

/// What was asked, taken apart.
pub(crate) struct Asked<'a> {
    pub(crate) grant: &'a Grant,
    pub(crate) ids: Ids,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admin")
    }
}

impl Admin {
    pub fn new(
        admission: Arc<Admission>,
        (journal, prices): (Arc<dyn Journal>, Arc<dyn PriceBooks>),
        counter: Option<Counter>,
        (key, metrics): (&SecretString, Arc<Metrics>),
    ) -> anyhow::Result<Arc<Self>> {
        let logins = Logins::new().context("the system gives no randomness")?;
        let admin =
            Self { admission, journal, prices, counter, key: ArcSwapOption::empty(), logins, metrics };
        admin.set_key(Some(key));
        Ok(Arc::new(admin))
    }

    /// Another key from now on, or none.
    pub fn set_key(&self, key: Option<&SecretString>) {
        let digest = |key: &SecretString| Arc::new(blake3::hash(key.expose_secret().as_bytes()));
        self.key.store(key.map(digest));
    }

    /// Serves until `stop` turns true; what is under way then has a moment to be answered: it may be a change that is
    /// made, or a secret that is shown once.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let next = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                next = next => next,
                () = stopped(&mut stop) => break,
            };
            while connections.try_join_next().is_some() {}
            let (Ok(slot), Ok((socket, peer))) = (slot, accepted) else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let (admin, stop) = (Arc::clone(&self), stop.clone());
            connections.spawn(async move {
                admin.connection(socket, peer.ip(), stop).await;
                drop(slot);
            });
        }
        drop(listener);
        let answered = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ANSWERS, answered).await.is_err() {
            tracing::warn!("operators' questions were cut off: they took too long");
        }
    }

    async fn connection(self: Arc<Self>, socket: TcpStream, peer: IpAddr, mut stop: watch::Receiver<bool>) {
        let service = service_fn(move |request| {
            let admin = Arc::clone(&self);
            async move { Ok::<_, Infallible>(admin.respond(request, peer).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        let heads = HeadBounds { bytes: HEAD_MAX, lines: HEADERS_MAX };
        builder.max_headers(HEADERS_MAX.saturating_add(8)).max_buf_size(HEAD_MAX.saturating_add(1024));
        // The same screen as at the clients' door: one meaning of a head, or one refusal.
        let socket = TokioIo::new(Screen::alone(socket, heads, HEAD_TIMEOUT));
        let mut serving = std::pin::pin!(builder.serve_connection(socket, service));
        let served = tokio::select! {
            served = serving.as_mut() => served,
            () = stopped(&mut stop) => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "an operator's connection ended early");
        }
    }

    async fn respond(&self, request: Request<Incoming>, peer: IpAddr) -> Response<Full<Bytes>> {
        let answer = self.answer(request, peer).await;
        let mut header = None;
        let (kind, answer) = match answer {
            Ok(answer) => ("application/json", answer),
            Err(mut refusal) => {
                let status = refusal.status;
                header = refusal.header.take();
                let body = refusal.problem();
                ("application/problem+json", Answer { status, body, version: None, location: None })
            }
        };
        let Answer { status, body, version, location } = answer;
        let body =
            if status == StatusCode::NO_CONTENT { Bytes::new() } else { Bytes::from(body.to_string()) };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        // Secrets are shown once; nobody on the way keeps them.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let challenge = (status == StatusCode::UNAUTHORIZED).then(|| "Bearer".to_owned());
        let told = [
            (ETAG, version.map(|version| format!("\"{version}\""))),
            (LOCATION, location),
            (WWW_AUTHENTICATE, challenge),
        ];
        for (name, text) in told.into_iter().chain(header.map(|(name, text)| (name, Some(text)))) {
            if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }

    async fn answer(&self, request: Request<Incoming>, peer: IpAddr) -> Result<Answer, Refusal> {
        if let Some(why) = refused_head(&request) {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "malformed_request", why));
        }
        let grant = self.login(request.headers(), peer)?;
        let (route, ids) = match routes::find(request.method(), request.uri().path()) {
            Found::Route(route, ids) => (route, ids),
            Found::Method(methods) => {
                let known: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
                let message = format!("this path takes {}", known.join(", "));
                let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message);
                return Err(Refusal { header: Some((ALLOW, known.join(", "))), ..refusal });
            }
            Found::BadId => {
                let message = "an id in the path is not percent-encoded UTF-8";
                return Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_question", message));
            }
            Found::Nothing => return Err(nothing()),
        };
        authorize(&grant, route, &ids)?;
        let (head, body) = request.into_parts();
        let body = read(body, body_max(route.action)).await?;
        let query = head.uri.query().unwrap_or_default();
        let asked = Asked { grant: &grant, ids, query, headers: &head.headers, body };
        match route.action {
            Action::Explain => answer::explain(self, &asked.body).await.map(Answer::from),
            Action::Accounts => answer::accounts(self).await.map(Answer::from),
            Action::Limits => limits::answer(self, &asked).await.map(Answer::from),
            Action::Prices => prices::answer(self, &asked).await.map(Answer::from),
            Action::Inspect => {
                answer::inspect(self, &asked.ids.tenant, grant.tenant.is_none()).await.map(Answer::from)
            }
            Action::Adjust => self.adjust(&asked).await.map(Answer::from),
            Action::Release => self.release(&asked).await.map(Answer::from),
            Action::Reconcile => self.reconcile(&asked).await.map(Answer::from),
            Action::OpenApi => Ok(openapi::document().into()),
            action => objects::answer(self, action, asked).await,
        }
    }

    async fn adjust(&self, asked: &Asked<'_>) -> Result<Value, Refusal> {
        let order = serde_json::from_slice(&asked.body);
        let order = order.map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, "bad_question", format!("the body is no order: {error}"))
        })?;
        let whose = (asked.ids.tenant.as_str(), asked.grant.who.as_str());
        let snapshot = self.snapshot_of(whose.0).await?;
        let books = (self.admission.as_ref(), self.journal.as_ref(), snapshot.catalog.as_ref());
        adjust::post(books, whose, &order).await
    }

    async fn release(&self, asked: &Asked<'_>) -> Result<Value, Refusal> {
        let order = serde_json::from_slice(&asked.body);
        let order = order.map_err(|error| adjust::bad(format!("the body is no order: {error}")))?;
        release::release(&self.admission, asked.grant, &asked.ids.id, &order).await
    }

    async fn reconcile(&self, asked: &Asked<'_>) -> Result<Value, Refusal> {
        let order = serde_json::from_slice(&asked.body);
        let order = order.map_err(|error| adjust::bad(format!("the body is no order: {error}")))?;
        let (catalogs, now) = (reconcile::quotas::Catalogs::Of(self), self.admission.now());
        let (engine, journal, who) =
            (self.admission.engine().as_ref(), self.journal.as_ref(), &asked.grant.who);
        let books = reconcile::quotas::Books { catalogs, engine, journal, now, who };
        reconcile::post::post(&books, &order).await
    }

    /// What a tenant's calls are decided by.
    pub(crate) async fn snapshot_of(&self, tenant: &str) -> Result<Arc<Snapshot>, Refusal> {
        let Some(counter) = self.counter.as_ref().filter(|_| !tenant.is_empty()) else {
            return Ok(self.admission.snapshot());
        };
        let found = counter.tenants().of(tenant).await.map_err(|why| answer::away(&why))?;
        // Of a tenant that is not there: what all share.
        Ok(found.unwrap_or_else(|| self.admission.snapshot()))
    }

    /// What all share, and the tenants that called here lately.
    pub(crate) async fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        let mut all = vec![self.admission.snapshot()];
        if let Some(counter) = &self.counter {
            // One that cannot be read is shown as it was.
            drop(counter.tenants().renew().await);
            all.extend(counter.tenants().all());
        }
        all
    }

    /// What the key of a request allows, unless too many wrong ones came from where it comes from.
    fn login(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Grant, Refusal> {
        let unauthorized =
            || Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", "the operator's key is needed");
        let Some(key) = shown_key(headers) else { return Err(unauthorized()) };
        let said = match self.logins.try_key(peer, key, Instant::now(), || self.grant(key)) {
            Login::Good(grant) => return Ok(grant),
            Login::Wrong { is_last } => {
                if is_last {
                    let (wrong, window) = (logins::WRONG_MAX, logins::WINDOW);
                    tracing::warn!(%peer, wrong, ?window, "an address shows wrong operators' keys, and waits");
                }
                (labels::Login::Wrong, unauthorized())
            }
            Login::Limited(wait) => {
                let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
                let message = "too many wrong keys came from this address; ask again after Retry-After";
                let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_wrong_keys", message);
                let header = Some((RETRY_AFTER, seconds.to_string()));
                (labels::Login::Limited, Refusal { header, ..refusal })
            }
        };
        let (login, refusal) = said;
        self.metrics.admin_logins_failed.inc((login,));
        Err(refusal)
    }

    fn grant(&self, key: &str) -> Option<Grant> {
        let digest = blake3::hash(key.as_bytes());
        let expected = self.key.load_full();
        if expected.is_some_and(|expected| bool::from(digest.as_bytes().ct_eq(expected.as_bytes()))) {
            return Some(Grant::owner());
        }
        let digest = self.admission.snapshot().api_key_hash.digest(key);
        self.counter.as_ref()?.view().grant(&digest, self.admission.now() / SECOND)
    }
}

fn shown_key(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (scheme, key) = shown.and_then(|text| text.split_once(' '))?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone stops too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Whether somebody may take a route.
fn authorize(grant: &Grant, route: &Route, ids: &Ids) -> Result<(), Refusal> {
    let forbidden = |what: String| Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", what));
    if let Some(tenant) = &grant.tenant {
        match route.reach {
            Reach::All => return forbidden(format!("`{}` is bound to one tenant", grant.who)),
            // Whether another tenant has it is not told either.
            Reach::Tenant if ids.tenant != *tenant => return Err(nothing()),
            Reach::Tenant | Reach::Filtered => {}
        }
    }
    if grant.role < route.role {
        let role = match route.role {
            Role::Viewer => "a viewer",
            Role::Admin => "an admin",
            Role::Owner => "an owner",
        };
        return forbidden(format!("`{}` has to be {role} for this", grant.who));
    }
    Ok(())
}

/// What is not there, and what is not to be seen, are told alike.
pub(crate) const NOTHING: &str = "there is nothing at this path";

fn nothing() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "not_found", NOTHING)
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "bad_question", message)
}

/// What is read as a tree takes many times the memory of its text.
fn body_max(action: Action) -> usize {
    if matches!(action, Action::Explain | Action::Apply) { BODY_MAX } else { DOCUMENT_BODY_MAX }
}

async fn read(body: Incoming, most: usize) -> Result<Bytes, Refusal> {
    let reading = Limited::new(body, most).collect();
    match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body is larger than {most} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message))
        }
        Ok(Err(_)) => Err(Refusal::new(StatusCode::BAD_REQUEST, "unreadable", "the body could not be read")),
        Err(_) => {
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not arrive in time"))
        }
    }
}
