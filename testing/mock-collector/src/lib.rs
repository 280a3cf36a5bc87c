//! An OpenTelemetry collector for tests: takes traces over HTTP and decodes them with the published definitions.
//!
//! Invariants: it keeps everything it was sent, in order; what cannot be decoded is kept as a mistake. How it answers is
//! set from outside and holds until it is set anew. Never ships; knows nothing of any other room.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;
use tokio::net::TcpListener;

pub use opentelemetry_proto::tonic::trace::v1::Span;
pub use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

/// Longest wait for something to arrive.
const WAIT: Duration = Duration::from_secs(20);

/// How it answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mood {
    /// Takes everything.
    #[default]
    Good,
    /// Takes all but so many.
    Partial(i64),
    /// Answers with a status, and perhaps a `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// Reads the request and never answers.
    Silent,
}

/// One request that came.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    pub service: Option<String>,
    pub resource: Vec<KeyValue>,
    pub spans: Vec<Span>,
}

#[derive(Default)]
struct State {
    mood: Mood,
    /// For the next requests, one each.
    next: VecDeque<Mood>,
    received: Vec<Received>,
    mistakes: Vec<String>,
}

/// A running collector.
pub struct MockCollector {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: tokio::task::JoinHandle<()>,
}

impl MockCollector {
    /// Starts on a free port of this machine.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let state = Arc::<Mutex<State>>::default();
        let serving = tokio::spawn(serve(listener, Arc::clone(&state)));
        Ok(Self { addr, state, serving })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// From now on it answers so.
    pub fn mood(&self, mood: Mood) {
        lock(&self.state).mood = mood;
    }

    /// The next request that has no such word yet is answered so.
    pub fn next(&self, mood: Mood) {
        lock(&self.state).next.push_back(mood);
    }

    /// Everything that came so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.state).received.clone()
    }

    /// What could not be decoded.
    pub fn mistakes(&self) -> Vec<String> {
        lock(&self.state).mistakes.clone()
    }

    /// All spans that came so far.
    pub fn spans(&self) -> Vec<Span> {
        self.received().into_iter().flat_map(|received| received.spans).collect()
    }

    /// Waits for so many requests.
    ///
    /// # Errors
    /// With what had come, when time was up.
    pub async fn until_requests(&self, count: usize) -> Result<Vec<Received>, Vec<Received>> {
        self.until(Self::received, |received| received.len() >= count).await
    }

    /// Waits for so many spans.
    ///
    /// # Errors
    /// With what had come, when time was up.
    pub async fn until_spans(&self, count: usize) -> Result<Vec<Span>, Vec<Span>> {
        self.until(Self::spans, |spans| spans.len() >= count).await
    }

    async fn until<T>(&self, look: impl Fn(&Self) -> T, reached: impl Fn(&T) -> bool) -> Result<T, T> {
        let began = Instant::now();
        loop {
            let seen = look(self);
            if reached(&seen) {
                return Ok(seen);
            }
            if began.elapsed() > WAIT {
                return Err(seen);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for MockCollector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl std::fmt::Debug for MockCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockCollector").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// An attribute of a span as text, whatever its type; words of a list are joined by commas.
pub fn attribute(span: &Span, name: &str) -> Option<String> {
    text_of(&span.attributes, name)
}

fn text_of(attributes: &[KeyValue], name: &str) -> Option<String> {
    attributes.iter().find(|pair| pair.key == name)?.value.as_ref().map(text)
}

fn text(value: &AnyValue) -> String {
    match &value.value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::BoolValue(flag)) => flag.to_string(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::ArrayValue(list)) => {
            list.values.iter().map(text).collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    // Aborted with its collector, and the connections with it.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&state), request));
            let http = hyper::server::conn::http1::Builder::new();
            drop(http.serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mood = {
        let mut state = lock(&state);
        match ExportTraceServiceRequest::decode(body) {
            Ok(decoded) => state.received.push(received(head.uri.path(), head.headers, decoded)),
            Err(error) => state.mistakes.push(error.to_string()),
        }
        state.next.pop_front().unwrap_or(state.mood)
    };
    let mut response = Response::new(Full::new(Bytes::new()));
    match mood {
        Mood::Good => {}
        Mood::Partial(refused) => {
            let partial =
                ExportTracePartialSuccess { rejected_spans: refused, error_message: "no".to_owned() };
            let message = ExportTraceServiceResponse { partial_success: Some(partial) };
            *response.body_mut() = Full::new(Bytes::from(message.encode_to_vec()));
        }
        Mood::Status(status, wait) => {
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            if let Some(wait) = wait {
                response.headers_mut().insert(http::header::RETRY_AFTER, wait.into());
            }
        }
        Mood::Silent => std::future::pending().await,
    }
    Ok(response)
}

fn received(path: &str, headers: HeaderMap, request: ExportTraceServiceRequest) -> Received {
    let mut resource = Vec::new();
    let mut spans = Vec::new();
    for group in request.resource_spans {
        resource.extend(group.resource.into_iter().flat_map(|resource| resource.attributes));
        spans.extend(group.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    Received { path: path.to_owned(), headers, service: text_of(&resource, "service.name"), resource, spans }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
