//! One gateway with everything it needs, on ports of its own, and the eyes to look at it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use serde_json::{Value, json};
use tokio::sync::watch;
use tollbook_admission::{Admission, ApiKeyHash, ModelPlan, Settings, Snapshot, Target};
use tollbook_engine::ledger::{AccountId, LimitId};
use tollbook_engine::{Cursor, Engine, ExpireCall, JournalRecord, Shard};
use tollbook_engine_memory::{MemoryEngine, Options};
use tollbook_gateway::{Config, Gateway, Upstream};
use tollbook_mock_upstream::MockUpstream;
use tollbook_policy::{
    Booking, Catalog, Draft, Key, LimitDraft, Measure, MeterPair, Model, PeriodKind, Pool, Project, Scope,
    Secret, ShapeDraft, Subject, Tenant,
};
use tollbook_pricing::{ModelFacts, Price, PriceBook, PriceDraft, RatesDraft};
use tollbook_store::EntryBody;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::trace::{Tracer, TracerSettings};
use tollbook_wire::{Dialect, Surfaces};

use crate::authority::Authority;
use crate::flaky::Flaky;

pub(crate) const API_KEY: &str = "tb_test_key";
pub(crate) const OTHER_API_KEY: &str = "tb_other_key";

/// How a world differs from the plain one.
pub(crate) struct Plan {
    pub(crate) limits: Vec<LimitDraft>,
    pub(crate) facts: ModelFacts,
    /// All of the model's dialect if absent.
    pub(crate) surfaces: Option<Surfaces>,
    pub(crate) priced: bool,
    /// In place of the price list of the field cases.
    pub(crate) price: Option<Price>,
    /// The model `claude` has the price 0.
    pub(crate) claude_is_free: bool,
    pub(crate) settings: Settings,
    pub(crate) config: fn(&mut Config),
    pub(crate) upstream: fn(&mut Upstream),
    pub(crate) traces: Option<TracerSettings>,
    pub(crate) via: Via,
}

/// How the world's client comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Http1,
    Http2,
    /// HTTP/2 as agreed in a TLS handshake.
    Tls,
}

impl Via {
    /// Tests that stand in `over_http2` are those of HTTP/1.1 once more: same code, other transport.
    fn of_this_test() -> Self {
        let thread = std::thread::current();
        if thread.name().is_some_and(|name| name.contains("over_http2")) { Self::Http2 } else { Self::Http1 }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            limits: Vec::new(),
            facts: ModelFacts::guessed("gpt-4o"),
            surfaces: None,
            priced: true,
            price: None,
            claude_is_free: false,
            settings: Settings::default(),
            config: |_| (),
            upstream: |_| (),
            traces: None,
            via: Via::of_this_test(),
        }
    }
}

impl Plan {
    pub(crate) fn with(limits: impl IntoIterator<Item = LimitDraft>) -> Self {
        Self { limits: limits.into_iter().collect(), ..Self::default() }
    }
}

pub(crate) fn tenant() -> Scope {
    Scope::One(Subject::Tenant { tenant: "acme".into() })
}

pub(crate) fn project() -> Scope {
    Scope::One(Subject::Project { tenant: "acme".into(), project: "web".into() })
}

pub(crate) fn key() -> Scope {
    Scope::One(Subject::Key { tenant: "acme".into(), project: "web".into(), key: "k1".into() })
}

/// Booked as held, so that figures are the truth as soon as a call is settled.
pub(crate) fn rate(scope: Scope, measure: Measure, ceiling: i128) -> LimitDraft {
    let counts_llm_tokens = matches!(measure, Measure::Tokens | Measure::InputTokens | Measure::OutputTokens);
    let booking = counts_llm_tokens.then_some(Booking::Held);
    LimitDraft { booking, ..forecast(scope, measure, ceiling) }
}

/// Booked as it is by default.
pub(crate) fn forecast(scope: Scope, measure: Measure, ceiling: i128) -> LimitDraft {
    LimitDraft::new(scope, measure, ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: None }, ceiling)
}

pub(crate) fn quota(scope: Scope, measure: Measure, period: PeriodKind, ceiling: i128) -> LimitDraft {
    LimitDraft::new(scope, measure, ShapeDraft::Quota { period, zone: None, anchor: None }, ceiling)
}

pub(crate) fn concurrency(scope: Scope, ceiling: i128) -> LimitDraft {
    LimitDraft::new(scope, Measure::Concurrency, ShapeDraft::Concurrency, ceiling)
}

/// A running gateway.
pub(crate) struct World {
    pub(crate) up: MockUpstream,
    pub(crate) addr: std::net::SocketAddr,
    pub(crate) admission: Arc<Admission>,
    pub(crate) engine: Arc<Flaky>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) serving: tokio::task::JoinHandle<()>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) config: Config,
    limits: u32,
    via: Via,
    pub(crate) authority: Option<Authority>,
    client: WorldClient,
}

pub(crate) type WorldClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {:?}", self.body))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|v| v.to_str().unwrap())
    }
}

impl World {
    pub(crate) async fn start(plan: Plan) -> Self {
        let up = MockUpstream::start().await.unwrap();
        let options = Options { background: false, ..Options::default() };
        let engine = Arc::new(Flaky::new(MemoryEngine::open(None, options).unwrap().engine));
        let metrics = Arc::new(Metrics::new());
        let snapshot = Arc::new(snapshot(&plan));
        let dynamic: Arc<dyn Engine> = Arc::clone(&engine) as Arc<dyn Engine>;
        let admission =
            Admission::open(dynamic, snapshot, Arc::clone(&metrics), plan.settings, None).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut config = Config {
            listen: addr,
            tls: None,
            http2: tollbook_gateway::Http2::default(),
            cors: None,
            proxies: tollbook_gateway::Proxies::default(),
            bounds: tollbook_gateway::Bounds::default(),
            timeouts: tollbook_gateway::Timeouts::default(),
            passes: tollbook_gateway::Passes::default(),
            upstreams: Vec::new(),
        };
        for (name, dialect) in [("openai", Dialect::OpenAi), ("anthropic", Dialect::Anthropic)] {
            let mut upstream = Upstream::new(
                name,
                dialect,
                format!("{}/v1", up.url().trim_end_matches("/v1")).parse().unwrap(),
            );
            upstream.api_key = Some("provider-secret".to_owned().into());
            (plan.upstream)(&mut upstream);
            config.upstreams.push(upstream);
        }
        let authority = (plan.via == Via::Tls).then(Authority::new);
        if let Some(authority) = &authority {
            config.tls = Some(authority.serve("localhost"));
        }
        (plan.config)(&mut config);
        let gateway = Gateway::new(config.clone(), Arc::clone(&admission), Arc::clone(&metrics)).unwrap();
        let tracer = plan.traces.map(|settings| Tracer::new(settings, Arc::clone(&metrics), 11));
        if let Some(tracer) = &tracer {
            gateway.trace_by(Arc::clone(tracer));
        }
        let stop = watch::Sender::new(false);
        let serving = tokio::spawn(Arc::clone(&gateway).serve(listener, stop.subscribe()));
        let running = Arc::clone(&admission);
        let stopped = stop.subscribe();
        tokio::spawn(async move { running.run(stopped).await });
        let via = plan.via;
        let client = client(via, authority.as_ref(), usize::MAX);
        let limits = u32::try_from(plan.limits.len()).unwrap();
        Self {
            up,
            addr,
            admission,
            engine,
            metrics,
            tracer,
            stop,
            serving,
            gateway,
            config,
            limits,
            via,
            authority,
            client,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        match self.via {
            Via::Http1 | Via::Http2 => format!("http://{}{path}", self.addr),
            Via::Tls => format!("https://localhost:{}{path}", self.addr.port()),
        }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = http::Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// A request with an empty body, of which the head was read.
    pub(crate) async fn request(
        &self,
        request: http::request::Builder,
    ) -> Result<http::Response<hyper::body::Incoming>, hyper_util::client::legacy::Error> {
        self.client.request(request.body(Full::default()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        let headers = [("authorization", "Bearer tb_test_key"), ("content-type", "application/json")];
        self.send("POST", path, &headers, body.to_string()).await
    }

    pub(crate) async fn chat(&self, body: &Value) -> Answer {
        self.post("/v1/chat/completions", body).await
    }

    /// What a call holds on the first limit while it is at the provider, and its answer.
    pub(crate) async fn held_by(&self, path: &str, body: &Value) -> (i64, Answer) {
        self.up.hold_until_released();
        let calls = self.up.calls().len();
        let watch = async {
            self.until("the call is at the provider", || self.up.calls().len() > calls).await;
            let held = self.balance(0).await.1;
            self.up.release();
            held
        };
        let (answer, held) = tokio::join!(self.post(path, body), watch);
        (held, answer)
    }

    /// A stream of which the head was read; the body is the caller's to read or drop.
    pub(crate) async fn open_stream(
        &self,
        path: &str,
        body: &Value,
    ) -> http::Response<hyper::body::Incoming> {
        self.open_stream_with(path, &[], body).await
    }

    pub(crate) async fn open_stream_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> http::Response<hyper::body::Incoming> {
        // A client of its own over HTTP/1.1, so that dropping the body closes the connection; over HTTP/2 the stream is
        // reset, and the connection serves on.
        let client = match self.via {
            Via::Http1 => client(self.via, self.authority.as_ref(), 0),
            Via::Http2 | Via::Tls => self.client.clone(),
        };
        let mut request =
            http::Request::post(self.url(path)).header("authorization", format!("Bearer {API_KEY}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        client.request(request).await.unwrap()
    }

    /// Posted and held of the account a limit (by its index) counts in.
    pub(crate) async fn balance(&self, limit: u32) -> (i64, i64) {
        let snapshot = self.admission.snapshot();
        let rule = snapshot.catalog.rule(LimitId(limit)).unwrap();
        let (shard, account) = account_of(&snapshot, LimitId(limit), &rule.limit.scope);
        let reply = self.engine.balances(shard, &[account]).await.unwrap();
        reply.value[0].as_ref().map_or((0, 0), |b| (b.standing.posted, b.standing.held))
    }

    /// Held on all limits together; negative amounts would show.
    pub(crate) async fn held(&self) -> i64 {
        let mut sum = 0;
        for limit in 0..self.limits {
            sum += self.balance(limit).await.1.abs();
        }
        sum
    }

    /// Waits until nothing is held any more.
    pub(crate) async fn settled(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while self.held().await != 0 {
            assert!(tokio::time::Instant::now() < deadline, "something stays held");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until that much is held on all limits together.
    pub(crate) async fn until_held(&self, amount: i64) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while self.held().await != amount {
            assert!(tokio::time::Instant::now() < deadline, "never was {amount} held");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) async fn until(&self, what: &str, mut reached: impl FnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while !reached() {
            assert!(tokio::time::Instant::now() < deadline, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The journal's records with their bodies, in the order they were written, over all shards.
    pub(crate) async fn journal(&self) -> Vec<(JournalRecord, EntryBody)> {
        let mut all = Vec::new();
        for shard in self.engine.shards() {
            for record in self.engine.journal_read(shard, Cursor(0), 10_000).await.unwrap().value {
                let body = EntryBody::decode(&record.body).unwrap();
                all.push((record, body));
            }
        }
        all.sort_by_key(|(record, _)| (record.ended, record.id, record.seq));
        all
    }

    /// Calls refused by a limit on calls in flight.
    pub(crate) fn refused(&self) -> u64 {
        use tollbook_telemetry::labels::{Denial, Measure as Counted, Side};
        self.metrics.admission_denied.get((Side::Tenant, Counted::Concurrency, Denial::Busy))
    }

    /// Expires what is due, everywhere.
    pub(crate) async fn sweep(&self) -> usize {
        let mut expired = 0;
        for shard in self.engine.shards() {
            let due = self.engine.due(shard, 10_000).await.unwrap().value;
            let calls: Vec<ExpireCall> =
                due.into_iter().map(|d| ExpireCall { claim: d.claim, subjects: d.subjects }).collect();
            expired += self.engine.expire(&calls).await.unwrap().value.len();
        }
        expired
    }
}

fn client(via: Via, authority: Option<&Authority>, kept: usize) -> WorldClient {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let roots = authority.map_or_else(RootCertStore::empty, Authority::roots);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    let connector = match via {
        Via::Http1 => builder.enable_http1().wrap_connector(http),
        Via::Http2 | Via::Tls => builder.enable_http2().wrap_connector(http),
    };
    Client::builder(TokioExecutor::new())
        .http2_only(via != Via::Http1)
        .pool_max_idle_per_host(kept)
        .build(connector)
}

fn account_of(snapshot: &Snapshot, limit: LimitId, scope: &Scope) -> (Shard, AccountId) {
    let catalog = &snapshot.catalog;
    let key = catalog.keys().first().unwrap();
    for model in catalog.models() {
        let call = tollbook_policy::Call { key, service: None, user: None, model: &model.id };
        let mut bindings = vec![("acme".to_owned(), catalog.resolve(&call, 0).unwrap())];
        bindings.extend(model.pools.iter().map(|p| (p.clone(), catalog.resolve_pool(p, &model.id, 0))));
        for (id, binding) in bindings {
            let found = binding.accounts.iter().find(|a| a.limits.iter().any(|l| l.id == limit));
            if let Some(found) = found {
                return (tollbook_admission::shard(&id), found.account);
            }
        }
    }
    panic!("limit {limit:?} of {scope} binds no call");
}

fn snapshot(plan: &Plan) -> Snapshot {
    let hash = ApiKeyHash::new(None);
    let key = |id: &str, api_key: &str| Key {
        tenant: "acme".into(),
        project: "web".into(),
        id: id.into(),
        secrets: vec![Secret { digest: hash.digest(api_key), expires_at: None }],
        disabled: false,
        expires_at: None,
        models: None,
        addresses: None,
        service: None,
    };
    let model = |id: &str, pool: &str| Model { id: id.into(), aliases: Vec::new(), pools: vec![pool.into()] };
    let draft = Draft {
        tenants: vec![Tenant { id: "acme".into(), disabled: false }],
        projects: vec![Project { tenant: "acme".into(), id: "web".into(), disabled: false }],
        keys: vec![key("k1", API_KEY), key("k2", OTHER_API_KEY)],
        pools: vec![
            Pool { id: "openai/gpt".into(), meter: MeterPair::PLAIN },
            Pool { id: "anthropic/claude".into(), meter: MeterPair::PLAIN },
        ],
        models: vec![model("gpt", "openai/gpt"), model("claude", "anthropic/claude")],
        limits: plan.limits.clone(),
        ..Draft::default()
    };
    let catalog = Catalog::new(draft).unwrap_or_else(|problems| panic!("{problems:?}"));
    let target = |pool: &str, upstream: &str, model: &str| Target {
        pool: pool.into(),
        upstream: upstream.into(),
        model: model.into(),
    };
    let plans = |dialect, target| ModelPlan {
        dialect,
        surfaces: plan.surfaces.unwrap_or(Surfaces::of(dialect)),
        targets: vec![target],
        facts: plan.facts,
        counting: tollbook_admission::Counting::default(),
    };
    let models = BTreeMap::from([
        ("gpt".to_owned(), plans(Dialect::OpenAi, target("openai/gpt", "openai", "gpt-upstream"))),
        (
            "claude".to_owned(),
            plans(Dialect::Anthropic, target("anthropic/claude", "anthropic", "claude-upstream")),
        ),
    ]);
    let mut prices = PriceBook { version: 1, models: BTreeMap::new(), default: None };
    if plan.priced {
        prices.default = Some(plan.price.clone().unwrap_or_else(|| Price::new(&fixture_price()).unwrap()));
    }
    if plan.claude_is_free {
        let nothing = || Some("0".to_owned());
        let rates = RatesDraft { input: nothing(), output: nothing(), ..RatesDraft::default() };
        let free = Price::new(&PriceDraft { rates, ..PriceDraft::default() }).unwrap();
        prices.models.insert("claude".to_owned(), free);
    }
    Snapshot::new(1, catalog, prices, models, hash)
}

/// Price list `fx-1` of the field cases, currency units per million.
pub(crate) fn fixture_price() -> PriceDraft {
    let text = |t: &str| Some(t.to_owned());
    let rates = RatesDraft {
        input: text("2"),
        output: text("10"),
        cache_read: text("0.2"),
        cache_write_5m: text("2.5"),
        cache_write_1h: text("4"),
        audio_output: text("12"),
        ..RatesDraft::default()
    };
    PriceDraft { rates, web_search: text("0.01"), ..PriceDraft::default() }
}

/// A chat request.
pub(crate) fn ask(text: &str) -> Value {
    json!({ "model": "gpt", "messages": [{ "role": "user", "content": text }] })
}

pub(crate) fn ask_stream(text: &str) -> Value {
    let mut body = ask(text);
    body["stream"] = json!(true);
    body
}

/// What the provider really used for its n-th call: input and output.
pub(crate) fn used(call: &tollbook_mock_upstream::Recorded) -> (u64, u64) {
    (call.generated.input, call.generated.output)
}
