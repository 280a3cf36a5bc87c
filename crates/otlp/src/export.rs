//! The exporter: one task that takes batches and sees each of them to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::watch;
use tollbook_telemetry::labels::SpanLoss;
use tollbook_telemetry::log::Every;
use tollbook_telemetry::trace::Tracer;

use crate::encode::{Resource, encode, rejected};

/// Most spans in one request.
pub const BATCH_MAX: usize = 512;
/// Times a batch is sent at most.
pub const TRIES_MAX: u32 = 5;
/// Longest pause between two tries, whatever the collector asks for.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Shortest pause between two tries, whatever the collector says.
const WAIT_MIN: Duration = Duration::from_millis(100);
/// First pause between two tries; it doubles.
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// Longest answer that is read.
const ANSWER_MAX: usize = 64 << 10;
/// Where traces go, below the collector's address.
const PATH: &str = "/v1/traces";
/// A log line about the collector at most every so often.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Where spans go, and how long that may take.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The collector's address; `/v1/traces` is added unless it ends so.
    pub endpoint: Uri,
    /// Sent with every request; the values are secrets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Longest one request may take.
    pub timeout: Duration,
    /// Longest a finished span waits before it is sent.
    pub every: Duration,
    /// Longest the last spans are seen to at a stop.
    pub flush: Duration,
    pub resource: Resource,
}

/// Why a batch was not taken.
#[derive(Debug)]
enum Trouble {
    /// Another try can help, after this if the collector said so.
    Passing(String, Option<Duration>),
    Lasting(String),
}

/// Sends what a tracer keeps.
pub struct Exporter {
    settings: Settings,
    tracer: Arc<Tracer>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    tell: Every,
}

impl Exporter {
    /// Builds the client; nothing is connected yet.
    ///
    /// # Errors
    /// When the address cannot be one.
    pub fn new(settings: Settings, tracer: Arc<Tracer>) -> Result<Self, String> {
        let uri = address(&settings.endpoint).ok_or("the collector's address needs a scheme and a host")?;
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        http.set_connect_timeout(Some(settings.timeout));
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)
            .map_err(|error| error.to_string())?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(15))
            .pool_max_idle_per_host(1)
            .build(https);
        Ok(Self { settings, tracer, client, uri, tell: Every::new(TELL_EVERY) })
    }

    /// Sends until `stop` turns true; then what waits, within the bound.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let mut stopping = stop.clone();
        let bound = async {
            stopped(&mut stopping).await;
            tokio::time::sleep(self.settings.flush).await;
        };
        // Past the bound a batch under way is given up too, and counted.
        tokio::select! {
            () = self.work(stop) => {}
            () = bound => {}
        }
        self.count_lost(SpanLoss::Shutdown, self.tracer.take(usize::MAX).len());
    }

    async fn work(&self, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(self.settings.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut stopping = false;
        while !stopping {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.tracer.batch_waits() => {}
                () = stopped(&mut stop) => stopping = true,
            }
            while self.batch(&mut stop).await {}
        }
    }

    /// Sends one batch, and again if that can help; false when nothing waited. While stopping it is tried once.
    async fn batch(&self, stop: &mut watch::Receiver<bool>) -> bool {
        let spans = self.tracer.take(BATCH_MAX);
        if spans.is_empty() {
            return false;
        }
        // Counted as lost if this is given up in the middle.
        let mut fate = Fate { exporter: self, count: spans.len(), loss: Some(SpanLoss::Shutdown) };
        let body = Bytes::from(encode(&self.settings.resource, &spans));
        drop(spans);
        let mut pause = WAIT_FIRST;
        for tries in 1..=TRIES_MAX {
            let trouble = match self.send(body.clone()).await {
                Ok(refused) => {
                    fate.taken(refused);
                    return true;
                }
                Err(trouble) => trouble,
            };
            let (what, wait) = match trouble {
                Trouble::Passing(what, wait) => (what, wait.unwrap_or(pause)),
                Trouble::Lasting(what) => {
                    self.tell(&what);
                    fate.loss = Some(SpanLoss::Refused);
                    return true;
                }
            };
            self.tell(&what);
            let stopping = *stop.borrow();
            if tries == TRIES_MAX || stopping {
                fate.loss = Some(if stopping { SpanLoss::Shutdown } else { SpanLoss::Away });
                return true;
            }
            pause = pause.saturating_mul(2);
            // A stop ends the pause: one more try, then it is over.
            drop(tokio::time::timeout(wait.clamp(WAIT_MIN, WAIT_MAX), stopped(stop)).await);
        }
        true
    }

    /// Sends one request; answers how many spans were refused.
    async fn send(&self, body: Bytes) -> Result<u64, Trouble> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let out = request.headers_mut();
        for (name, value) in &self.settings.headers {
            out.insert(name.clone(), value.clone());
        }
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        out.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("tollbook/", env!("CARGO_PKG_VERSION"))),
        );
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| {
                let what = if error.is_connect() { "cannot be reached" } else { "closed the connection" };
                Trouble::Passing(what.to_owned(), None)
            })?;
            let (head, body) = response.into_parts();
            let answer =
                Limited::new(body, ANSWER_MAX).collect().await.map(http_body_util::Collected::to_bytes);
            verdict(head.status, head.headers.get(header::RETRY_AFTER), &answer.unwrap_or_default())
        };
        tokio::time::timeout(self.settings.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(Trouble::Passing("did not answer in time".to_owned(), None)))
    }

    fn tell(&self, what: &str) {
        if let Some(suppressed) = self.tell.pass(Instant::now()) {
            tracing::warn!(suppressed, "traces: the collector {what}");
        }
    }

    fn count_lost(&self, why: SpanLoss, count: usize) {
        self.tracer.metrics().traces_dropped.add((why,), u64::try_from(count).unwrap_or(u64::MAX));
    }
}

/// Counts what became of a batch, also when its sending is given up.
struct Fate<'a> {
    exporter: &'a Exporter,
    count: usize,
    loss: Option<SpanLoss>,
}

impl Fate<'_> {
    /// The collector took the batch, but for some.
    fn taken(&mut self, refused: u64) {
        let refused = usize::try_from(refused).unwrap_or(usize::MAX).min(self.count);
        let sent = u64::try_from(self.count - refused).unwrap_or(u64::MAX);
        self.exporter.tracer.metrics().traces_sent.add((), sent);
        self.exporter.count_lost(SpanLoss::Refused, refused);
        self.loss = None;
    }
}

impl Drop for Fate<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.loss {
            self.exporter.count_lost(why, self.count);
        }
    }
}

fn verdict(status: StatusCode, retry_after: Option<&HeaderValue>, answer: &[u8]) -> Result<u64, Trouble> {
    if status.is_success() {
        return Ok(rejected(answer));
    }
    let what = format!("answered {}", status.as_u16());
    // Those that the protocol calls worth another try.
    if matches!(status.as_u16(), 429 | 502 | 503 | 504) {
        let seconds = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        return Err(Trouble::Passing(what, seconds.map(Duration::from_secs)));
    }
    Err(Trouble::Lasting(what))
}

fn address(endpoint: &Uri) -> Option<Uri> {
    let path = endpoint.path().trim_end_matches('/');
    let path = if path.ends_with(PATH) { path.to_owned() } else { format!("{path}{PATH}") };
    let mut parts = endpoint.clone().into_parts();
    parts.authority.as_ref()?;
    parts.scheme.as_ref()?;
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

/// Resolves once `stop` is true, or nobody is left to say so.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stopped| *stopped).await);
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_once() {
        let rows = [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("https://c/otlp", "https://c/otlp/v1/traces"),
            ("https://c/otlp/v1/traces/", "https://c/otlp/v1/traces"),
        ];
        for (given, want) in rows {
            assert_eq!(address(&given.parse().unwrap()).unwrap().to_string(), want, "{given}");
        }
        assert!(address(&"/only/a/path".parse().unwrap()).is_none());
    }

    #[test]
    fn only_some_statuses_are_worth_another_try() {
        let wait = HeaderValue::from_static("7");
        assert!(matches!(verdict(StatusCode::OK, None, b""), Ok(0)));
        for status in [429, 502, 503, 504] {
            let status = StatusCode::from_u16(status).unwrap();
            let trouble = verdict(status, Some(&wait), b"").unwrap_err();
            assert!(matches!(trouble, Trouble::Passing(_, Some(wait)) if wait == Duration::from_secs(7)));
        }
        for status in [301, 400, 401, 403, 404, 413, 500] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(matches!(verdict(status, Some(&wait), b""), Err(Trouble::Lasting(_))), "{status}");
        }
    }
}
