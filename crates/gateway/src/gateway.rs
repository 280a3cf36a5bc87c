//! The gateway: what every call shares, and the way down. What is served where stands in `paths`.
//!
//! Shutdown: readiness off, nothing new accepted, calls finish within the drain time, then streams end with
//! their dialect's error event; the last thing is that everything is settled.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tollbook_admission::{Admission, Readiness, Snapshot};
use tollbook_telemetry::trace::{CallTrace, Tracer};
use tollbook_telemetry::{InFlight, Metrics, PoolLabel, labels};
use tollbook_wire::{Dialect, ErrorKind, Surface};

use crate::body::OutBody;
use crate::config::Config;
use crate::headers::{self, Shown};
use crate::open::Open;
use crate::passes::{self, Passing};
use crate::paths::{self, Door, Found};
use crate::plane::{Plane, Prepared};
use crate::problem::{self, Problem};
use crate::relay::Drains;
use crate::screen::{self, Malformed};
use crate::upstream::{SendError, Upstream};
use crate::{call, cors, limits, listen, pass, peer, tls, trace};

/// After the drain time: how long streams may take to write their last event.
const CUT_GRACE: Duration = Duration::from_secs(5);

/// The data plane of one process.
pub struct Gateway {
    pub(crate) admission: Arc<Admission>,
    plane: ArcSwap<Plane>,
    /// Streams by key, over all configurations.
    pub(crate) open: Open,
    metrics: Arc<Metrics>,
    ids: Ids,
    ready: AtomicBool,
    drain_slots: Arc<Semaphore>,
    cut: watch::Sender<bool>,
    tracer: OnceLock<Arc<Tracer>>,
}

impl Gateway {
    /// Builds the upstreams' clients; nothing is connected yet.
    pub fn new(
        config: Config,
        admission: Arc<Admission>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, String> {
        let drains_max = config.bounds.drains_max.min(Semaphore::MAX_PERMITS);
        let plane = Plane::new(config, admission.snapshot())?;
        Ok(Arc::new(Self {
            admission,
            plane: ArcSwap::from_pointee(plane),
            open: Open::default(),
            metrics,
            ids: Ids::new(),
            ready: AtomicBool::new(true),
            drain_slots: Arc::new(Semaphore::new(drains_max)),
            cut: watch::Sender::new(false),
            tracer: OnceLock::new(),
        }))
    }

    /// Builds what another configuration needs. Nothing changes before [`Gateway::replace`].
    ///
    /// # Errors
    /// When an upstream cannot be set up.
    pub fn prepare(&self, config: Config, snapshot: Arc<Snapshot>) -> Result<Prepared, String> {
        Ok(Prepared(Arc::new(self.plane.load().after(config, snapshot)?)))
    }

    /// The same settings with another snapshot; nothing of it can fail.
    pub fn prepare_snapshot(&self, snapshot: Arc<Snapshot>) -> Prepared {
        Prepared(Arc::new(self.plane.load().with(snapshot)))
    }

    /// Puts another configuration in force, for admission too. Calls whose body is there end on the one they began with.
    pub fn replace(&self, prepared: Prepared) {
        // First, because a call must find its names among the metrics.
        self.admission.replace(Arc::clone(&prepared.0.snapshot));
        self.plane.store(prepared.0);
    }

    pub(crate) fn plane(&self) -> Arc<Plane> {
        self.plane.load_full()
    }

    /// From now on calls are traced; once.
    pub fn trace_by(&self, tracer: Arc<Tracer>) {
        drop(self.tracer.set(tracer));
    }

    /// The trace of a call at the door; nothing where nobody watches, or the call is not sampled.
    pub(crate) fn trace(
        &self,
        surface: Surface,
        headers: &http::HeaderMap,
        request_id: &Arc<str>,
    ) -> Option<CallTrace> {
        self.tracer.get().and_then(|tracer| trace::begin(tracer, surface, headers, request_id))
    }

    /// Serves until `stop` turns true, then drains. Returns once every connection has closed or was cut.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let gateway = Arc::clone(&self);
        let handler = Arc::new(move |peer, request| Arc::clone(&gateway).handle(peer, request));
        tokio::spawn(Arc::clone(&self).watch_certificate(stop.clone()));
        let front = || Arc::clone(&self.plane.load().front);
        let metrics = Arc::clone(&self.metrics);
        let mut serving = std::pin::pin!(listen::serve(listener, front, metrics, stop.clone(), handler));
        tokio::select! {
            () = &mut serving => return,
            () = listen::stopped(&mut stop) => {}
        }
        self.ready.store(false, Ordering::Relaxed);
        if tokio::time::timeout(front().timeouts.drain, &mut serving).await.is_ok() {
            return;
        }
        tracing::warn!("the drain time is over: open streams are ended");
        self.cut.send_replace(true);
        if tokio::time::timeout(CUT_GRACE, &mut serving).await.is_err() {
            tracing::warn!("some connections did not close in time");
        }
    }

    /// Looks for a new certificate until `stop` turns true.
    async fn watch_certificate(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        loop {
            let every = self.plane().front.tls.as_ref().map_or(tls::CHECK_EVERY, |tls| tls.check_every());
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = listen::stopped(&mut stop) => return,
            }
            if let Some(tls) = self.plane().front.tls.clone() {
                tls.look(&self.metrics).await;
            }
        }
    }

    /// Answers a request from `peer`, and says to pages in a browser whether they may read it.
    async fn handle(self: Arc<Self>, peer: IpAddr, mut request: Request<Incoming>) -> Response<OutBody> {
        let front = Arc::clone(&self.plane.load().front);
        let client = peer::client(peer, request.headers(), &front.proxies.trusted);
        request.extensions_mut().insert(peer::Client(client));
        if let Some(cors) = &front.cors
            && let Some(preflight) = cors.preflight(&request, || self.methods(&request))
        {
            return preflight;
        }
        let allowed = front.cors.as_ref().map(|cors| cors.allows(request.headers()));
        let mut response = self.answer(request).await;
        if let Some(allowed) = allowed {
            allowed.write(response.headers_mut());
        }
        if response.status().as_u16() >= 400 {
            let request_id = response.headers().get(headers::X_REQUEST_ID).and_then(|id| id.to_str().ok());
            tracing::debug!(%client, request_id, status = response.status().as_u16(), "a request was refused");
        }
        response
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<OutBody> {
        let path = request.uri().path();
        if path == screen::PATH {
            return self.malformed(&request);
        }
        // Of HTTP/1.1 heads the screen counts the lines; HTTP/2 bounds only their bytes.
        if request.headers().len() > self.plane.load().config.bounds.headers_max {
            return self.refuse_head(&request, Malformed::TooMany, "the request has too many header fields");
        }
        if let Some(problem) = pass::realtime_refused(path, request.headers()) {
            return problem.respond(dialect_of(&request), &self.request_id());
        }
        match paths::find(request.method(), path) {
            Found::Door(Door::Call(surface)) => call::serve(self, surface, request).await,
            Found::Door(Door::Healthz) => plain(StatusCode::OK, "ok\n"),
            Found::Door(Door::Readyz) => self.readyz(),
            Found::Door(Door::Metrics) => self.metrics_page(),
            Found::Door(Door::Models) => self.models(&request, None).await,
            Found::Door(Door::Model) => self.models(&request, Some(paths::model_name(path))).await,
            Found::Door(Door::Limits) => self.limits(&request).await,
            Found::OnlyBy(method) => self.not_allowed(&request, method),
            Found::Nothing => self.elsewhere(request).await,
        }
    }

    /// The methods a page may use on a path, as far as they are told apart.
    fn methods(&self, request: &Request<Incoming>) -> cors::Methods {
        let config = &self.plane.load().config;
        let dialect = dialect_of(request);
        match passes::find(config, &Method::PUT, request.uri().path(), dialect) {
            Passing::Pass(_) => cors::Methods::All,
            _ => cors::Methods::Usual,
        }
    }

    /// A path that the gateway does not serve itself: passed through, or nothing.
    async fn elsewhere(self: Arc<Self>, request: Request<Incoming>) -> Response<OutBody> {
        let dialect = dialect_of(&request);
        let plane = self.plane();
        match passes::find(&plane.config, request.method(), request.uri().path(), dialect) {
            Passing::Pass(pass) => pass::serve(self, plane, pass, request).await,
            Passing::OnlyBy(methods) => self.not_allowed(&request, methods),
            Passing::Nothing => {
                let text = "there is nothing at this path";
                let problem =
                    Problem::new(ErrorKind::NotFound, StatusCode::NOT_FOUND, text).code("not_found");
                problem.respond(dialect, &self.request_id())
            }
        }
    }

    /// The head of a request was refused before it was read.
    fn malformed(&self, request: &Request<Incoming>) -> Response<OutBody> {
        let word = request.headers().get(screen::REASON).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let (why, text) =
            Malformed::read(word).unwrap_or((Malformed::RequestLine, "the request is malformed"));
        self.refuse_head(request, why, text)
    }

    fn refuse_head(&self, request: &Request<Incoming>, why: Malformed, text: &str) -> Response<OutBody> {
        let status = match why {
            Malformed::TooLarge | Malformed::TooMany => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        let dialect = dialect_of(request);
        let problem = match why {
            Malformed::Busy => Problem::unavailable(text).code("overloaded"),
            _ => Problem::new(ErrorKind::InvalidRequest, status, text).code("malformed_request"),
        };
        let surface = if dialect == Dialect::Anthropic { Surface::Messages } else { Surface::Chat };
        self.note_refused(surface, &problem);
        problem.respond(dialect, &self.request_id())
    }

    fn not_allowed(&self, request: &Request<Incoming>, allowed: &'static str) -> Response<OutBody> {
        let text = format!("this path takes {allowed}");
        let problem = Problem::new(ErrorKind::InvalidRequest, StatusCode::METHOD_NOT_ALLOWED, text);
        let mut response =
            problem.code("method_not_allowed").respond(dialect_of(request), &self.request_id());
        response.headers_mut().insert(header::ALLOW, http::HeaderValue::from_static(allowed));
        response
    }

    fn readyz(&self) -> Response<OutBody> {
        let why = match self.admission.readiness() {
            _ if !self.ready.load(Ordering::Relaxed) => "shutting down\n",
            Readiness::Ready => return plain(StatusCode::OK, "ready\n"),
            Readiness::Degraded => {
                return plain(
                    StatusCode::OK,
                    "degraded: the book or a part of it is away, `when_away` of the limits says what becomes of calls\n",
                );
            }
            Readiness::SpoolFull => "outcomes cannot be kept: the spool is full\n",
            Readiness::EngineAway => {
                "the book takes no bookings: is the disk of its log full, or its server away, full or a replica?\n"
            }
        };
        plain(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    fn metrics_page(&self) -> Response<OutBody> {
        self.admission.observe();
        let ready = self.ready.load(Ordering::Relaxed) && self.admission.is_ready();
        self.metrics.process_ready.set((), u64::from(ready));
        let mut response = Response::new(OutBody::full(self.metrics.encode()));
        let kind = http::HeaderValue::from_static(tollbook_telemetry::CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    /// The models open to the key; spends nothing and works with every budget exhausted (B252).
    async fn models(&self, request: &Request<Incoming>, only: Option<&str>) -> Response<OutBody> {
        let dialect = dialect_of(request);
        let id = self.request_id();
        let principal = match self.principal(request).await {
            Ok(principal) => principal,
            Err(problem) => return problem.respond(dialect, &id),
        };
        let names = self.admission.models(&principal);
        match only {
            None => problem::json(StatusCode::OK, tollbook_wire::models_body(dialect, &names), &id),
            Some(name) if names.iter().any(|n| n == name) => {
                problem::json(StatusCode::OK, tollbook_wire::model_body(dialect, name), &id)
            }
            Some(name) => {
                let unknown = tollbook_admission::Refused::ModelUnknown(name.to_owned());
                Problem::refused(unknown, dialect, 0).respond(dialect, &id)
            }
        }
    }

    /// A key holder's own limits.
    async fn limits(&self, request: &Request<Incoming>) -> Response<OutBody> {
        let dialect = dialect_of(request);
        let id = self.request_id();
        let principal = match self.principal(request).await {
            Ok(principal) => principal,
            Err(problem) => return problem.respond(dialect, &id),
        };
        match self.admission.standing(&principal).await {
            Ok(lines) => problem::json(StatusCode::OK, limits::body(&lines), &id),
            Err(refused) => Problem::refused(refused, dialect, self.jitter()).respond(dialect, &id),
        }
    }

    async fn principal(&self, request: &Request<Incoming>) -> Result<tollbook_admission::Principal, Problem> {
        let refused = |refused| Problem::refused(refused, dialect_of(request), 0);
        match headers::shown_api_key(request.headers()) {
            Shown::ApiKey(api_key) => {
                let snapshot = self.admission.snapshot();
                let from = peer::told(request.extensions());
                self.admission.identify_in(&snapshot, api_key, from).await.map_err(refused)
            }
            Shown::Nothing => Err(refused(tollbook_admission::Refused::NoApiKey)),
            Shown::Contradiction => Err(refused(tollbook_admission::Refused::BadApiKey)),
        }
    }

    pub(crate) fn request_id(&self) -> Arc<str> {
        self.ids.next()
    }

    /// A number that differs from call to call; spreads hints.
    pub(crate) fn jitter(&self) -> u16 {
        self.ids.scatter()
    }

    /// A pause and 0–50 % of it on top, never less than told.
    pub(crate) fn spread(&self, pause: Duration) -> Duration {
        pause + pause * u32::from(self.jitter() % 512) / 1024
    }

    /// How streams of an upstream are read on after their clients left; `None` where they are cut.
    pub(crate) fn drains(&self, upstream: &Upstream) -> Option<Drains> {
        let bound = self.plane.load().config.timeouts.detached;
        upstream.config.drains.then(|| Drains { slots: Arc::clone(&self.drain_slots), bound })
    }

    pub(crate) fn cut_signal(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }

    /// A call was answered before it was sent anywhere.
    pub(crate) fn note_refused(&self, surface: Surface, problem: &Problem) {
        let kind = match problem.status.as_u16() {
            401 => labels::Problem::Unauthorized,
            403 => labels::Problem::Forbidden,
            404 => labels::Problem::UnknownModel,
            413 => labels::Problem::TooLarge,
            503 if problem.code == Some("overloaded") => labels::Problem::Overloaded,
            503 => labels::Problem::EngineAway,
            429 if problem.code == Some("too_many_streams") => labels::Problem::Overloaded,
            402 | 429 => return, // counted as a denial by admission
            500.. => labels::Problem::Internal,
            _ => labels::Problem::BadRequest,
        };
        self.metrics.calls_rejected.inc((dialect_label(surface.dialect()), kind));
    }

    /// A call was admitted and the client gets an error.
    pub(crate) fn note_failed(request_id: &str, problem: &Problem) {
        let status = problem.status.as_u16();
        tracing::info!(request_id, status, code = problem.code, "a call failed upstream");
    }

    /// A call goes out for the first time, so long after its body was there.
    pub(crate) fn note_dispatch(&self, surface: Surface, stream: bool, took: Duration) {
        let form = if stream { labels::Form::Stream } else { labels::Form::Plain };
        self.metrics.calls_overhead.observe((surface_label(surface), form), took);
    }

    /// A try was answered with a status, or not at all.
    pub(crate) fn note_tried(&self, pool: PoolLabel, status: Option<StatusCode>, took: Duration) {
        let label = status.map_or(labels::Status::None, |status| match status.as_u16() {
            429 => labels::Status::Refused,
            ..300 => labels::Status::Ok,
            300..400 => labels::Status::Redirect,
            400..500 => labels::Status::ClientError,
            500.. => labels::Status::ServerError,
        });
        self.metrics.upstream_requests.inc((pool, label));
        if status.is_some() {
            self.metrics.upstream_answer.observe((pool,), took);
        }
    }

    /// Counts a streamed answer until the returned value is dropped.
    pub(crate) fn stream_opened(&self) -> InFlight {
        self.metrics.calls_streams_open.enter(())
    }

    pub(crate) fn note_upstream_error(&self, pool: PoolLabel, upstream: &str, status: StatusCode) {
        let trouble = match status.as_u16() {
            429 => labels::UpstreamTrouble::RateLimited,
            402 => labels::UpstreamTrouble::Quota,
            503 | 529 => labels::UpstreamTrouble::Overloaded,
            400..=499 => labels::UpstreamTrouble::ClientError,
            _ => labels::UpstreamTrouble::ServerError,
        };
        self.metrics.upstream_errors.inc((pool, trouble));
        tracing::warn!(upstream, status = status.as_u16(), "the upstream refused a call");
    }

    pub(crate) fn note_unsent(&self, pool: PoolLabel, upstream: &str, error: &SendError) {
        let trouble = match error {
            SendError::NeverSent(..) => labels::UpstreamTrouble::Connect,
            SendError::Cut(..) => labels::UpstreamTrouble::Reset,
            SendError::Timeout => labels::UpstreamTrouble::Timeout,
        };
        self.metrics.upstream_errors.inc((pool, trouble));
        tracing::warn!(upstream, %error, "the upstream gave no answer");
    }

    pub(crate) fn note_retry(&self, pool: PoolLabel) {
        self.metrics.upstream_retries.inc((pool,));
    }
}

fn surface_label(surface: Surface) -> labels::Surface {
    match surface {
        Surface::Chat => labels::Surface::Chat,
        Surface::Responses => labels::Surface::Responses,
        Surface::Completions => labels::Surface::Completions,
        Surface::Embeddings => labels::Surface::Embeddings,
        Surface::Messages => labels::Surface::Messages,
    }
}

fn dialect_label(dialect: Dialect) -> labels::Dialect {
    match dialect {
        Dialect::OpenAi => labels::Dialect::OpenAi,
        Dialect::Anthropic => labels::Dialect::Anthropic,
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("listen", &self.plane.load().config.listen).finish_non_exhaustive()
    }
}

/// The dialect an error is told in where the path does not say: Anthropic's clients name their API version.
fn dialect_of(request: &Request<Incoming>) -> Dialect {
    let anthropic = request.headers().contains_key("anthropic-version")
        || request.uri().path().starts_with("/v1/messages");
    if anthropic { Dialect::Anthropic } else { Dialect::OpenAi }
}

fn plain(status: StatusCode, text: &'static str) -> Response<OutBody> {
    let mut response = Response::new(OutBody::full(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Request ids: random at start, then a counter; unique, cheap, and telling nothing of load to outsiders.
struct Ids {
    start: u64,
    counter: AtomicU64,
}

impl Ids {
    fn new() -> Self {
        let mut seed = [0; 8];
        // Without randomness ids are still unique within the process.
        let _ = getrandom::fill(&mut seed);
        Self { start: u64::from_le_bytes(seed), counter: AtomicU64::new(0) }
    }

    fn next(&self) -> Arc<str> {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        // The counted half comes first: ids that follow each other are neighbours in the journal's index.
        Arc::from(format!(
            "req_{:016x}{:016x}",
            self.start.wrapping_add(n),
            mix(self.start ^ n.rotate_left(32))
        ))
    }

    fn scatter(&self) -> u16 {
        let n = self.counter.load(Ordering::Relaxed);
        u16::try_from(mix(self.start.wrapping_add(n)) >> 48).unwrap_or(0)
    }
}

/// A fixed bijection that scatters neighbouring numbers (the finalizer of splitmix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
