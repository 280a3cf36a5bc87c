//! Admission with one key, one model and the limits a test wants.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollbook_admission::{
    Admission, Admitted, ApiKeyHash, Asking, Counting, Explanation, Losable, ModelPlan, Principal, Refused,
    Settings, Snapshot, Target, Task,
};
use tollbook_engine::ledger::{LimitId, Micros};
use tollbook_engine::{Cursor, Engine, JournalRecord, LostShards, Recovery};
use tollbook_engine_memory::{Clock, MemoryEngine, Options};
use tollbook_policy::{
    Catalog, Draft, Key, LimitDraft, Measure, MeterPair, PeriodKind, Pool, Project, Scope, Secret,
    ShapeDraft, Subject, Tenant,
};
use tollbook_pricing::{ModelFacts, PriceBook};
use tollbook_store::Fleet;
use tollbook_telemetry::Metrics;
use tollbook_wire::{Dialect, Surface, Surfaces};

use crate::flaky::Flaky;

pub(crate) const API_KEY: &str = "tb_key";

/// A clock a test moves, microseconds.
#[derive(Debug)]
pub(crate) struct TestClock(pub(crate) AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Micros {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) struct World {
    pub(crate) admission: Arc<Admission>,
    pub(crate) engine: Arc<Flaky>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop: tokio::sync::watch::Sender<bool>,
    pub(crate) running: tokio::task::JoinHandle<()>,
}

pub(crate) fn key() -> Scope {
    Scope::One(Subject::Key { tenant: "acme".into(), project: "web".into(), key: "k1".into() })
}

pub(crate) fn requests(ceiling: i128) -> LimitDraft {
    LimitDraft::new(
        key(),
        Measure::Requests,
        ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: None },
        ceiling,
    )
}

pub(crate) fn daily(measure: Measure, ceiling: i128) -> LimitDraft {
    LimitDraft::new(
        key(),
        measure,
        ShapeDraft::Quota { period: PeriodKind::Day, zone: None, anchor: None },
        ceiling,
    )
}

/// A daily quota of the one pool.
pub(crate) fn pool_daily(measure: Measure, ceiling: i128) -> LimitDraft {
    LimitDraft { scope: Scope::One(Subject::Pool { pool: "pool".into() }), ..daily(measure, ceiling) }
}

/// How the one model is counted.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) facts: ModelFacts,
    pub(crate) counting: Counting,
}

impl Default for Model {
    fn default() -> Self {
        Self { facts: ModelFacts::guessed("gpt-4o"), counting: Counting::default() }
    }
}

impl World {
    pub(crate) async fn start(limits: Vec<LimitDraft>, settings: Settings, spool: Option<&Path>) -> Self {
        Self::made(limits, settings, spool, Model::default()).await
    }

    /// With a model that is counted in a way of its own.
    pub(crate) async fn with(limits: Vec<LimitDraft>, settings: Settings, model: Model) -> Self {
        Self::made(limits, settings, None, model).await
    }

    async fn made(limits: Vec<LimitDraft>, settings: Settings, spool: Option<&Path>, model: Model) -> Self {
        let clock = Arc::new(TestClock(AtomicU64::new(1_800_000_000_000_000)));
        let options = Options { background: false, ..Options::on(Arc::clone(&clock) as Arc<dyn Clock>) };
        let engine = Arc::new(Flaky::new(MemoryEngine::open(None, options).unwrap().engine));
        Self::over(engine, clock, snapshot(limits, model), settings, spool).await
    }

    /// Another gateway over an engine that is already there.
    pub(crate) async fn on(
        engine: Arc<Flaky>,
        clock: Arc<TestClock>,
        limits: Vec<LimitDraft>,
        settings: Settings,
        spool: Option<&Path>,
    ) -> Self {
        Self::over(engine, clock, snapshot(limits, Model::default()), settings, spool).await
    }

    async fn over(
        engine: Arc<Flaky>,
        clock: Arc<TestClock>,
        snapshot: Snapshot,
        settings: Settings,
        spool: Option<&Path>,
    ) -> Self {
        let dynamic: Arc<dyn Engine> = Arc::clone(&engine) as Arc<dyn Engine>;
        let metrics = Arc::new(Metrics::new());
        let admission = Admission::open(dynamic, Arc::new(snapshot), Arc::clone(&metrics), settings, spool)
            .await
            .unwrap();
        let stop = tokio::sync::watch::Sender::new(false);
        let (running, stopped) = (Arc::clone(&admission), stop.subscribe());
        let running = tokio::spawn(async move { running.run(stopped).await });
        Self { admission, engine, clock, metrics, stop, running }
    }

    /// A gateway over a book that can be lost.
    pub(crate) async fn losable(
        limits: Vec<LimitDraft>,
        settings: Settings,
        fleet: Arc<dyn Fleet>,
    ) -> (Self, Arc<LostShards>) {
        Self::losable_in(limits, settings, fleet, None).await
    }

    /// With a folder for what finds no room in memory.
    pub(crate) async fn losable_in(
        limits: Vec<LimitDraft>,
        settings: Settings,
        fleet: Arc<dyn Fleet>,
        dir: Option<&std::path::Path>,
    ) -> (Self, Arc<LostShards>) {
        let clock = Arc::new(TestClock(AtomicU64::new(1_800_000_000_000_000)));
        let options = Options { background: false, ..Options::on(Arc::clone(&clock) as Arc<dyn Clock>) };
        let engine = Arc::new(Flaky::new(MemoryEngine::open(None, options).unwrap().engine));
        let (metrics, lost) = (Arc::new(Metrics::new()), Arc::new(LostShards::default()));
        let recovery = Arc::clone(&engine) as Arc<dyn Recovery>;
        let book = Losable { engine: recovery, fleet, lost: Arc::clone(&lost) };
        let snapshot = Arc::new(snapshot(limits, Model::default()));
        let admission =
            Admission::open_losable(book, snapshot, Arc::clone(&metrics), settings, dir).await.unwrap();
        let stop = tokio::sync::watch::Sender::new(false);
        let (running, stopped) = (Arc::clone(&admission), stop.subscribe());
        let running = tokio::spawn(async move { running.run(stopped).await });
        (Self { admission, engine, clock, metrics, stop, running }, lost)
    }

    pub(crate) async fn admit(&self, stream: bool) -> Result<Admitted, Refused> {
        self.admit_call(stream, "hello", None).await
    }

    /// A call of a task.
    pub(crate) async fn admit_task(&self, tag: &str) -> Result<Admitted, Refused> {
        self.admit_call(false, "hello", Task::new(tag)).await
    }

    pub(crate) async fn admit_text(&self, text: &str) -> Result<Admitted, Refused> {
        self.admit_call(false, text, None).await
    }

    async fn admit_call(&self, stream: bool, text: &str, task: Option<Task>) -> Result<Admitted, Refused> {
        let body = format!(
            r#"{{"model":"gpt","stream":{stream},"max_tokens":2000,"messages":[{{"role":"user","content":"{text}"}}]}}"#
        );
        let request = tollbook_wire::decode_request(Surface::Chat, body.as_bytes()).unwrap();
        let principal = self.principal().await?;
        let request_id: Arc<str> = Arc::from("req_test");
        let asking = Asking {
            principal: &principal,
            request: &request,
            body: body.as_bytes(),
            service: None,
            user: None,
            task,
            request_id: &request_id,
            way: tollbook_admission::Way::Surface,
        };
        self.admission.admit(asking).await
    }

    pub(crate) async fn principal(&self) -> Result<Principal, Refused> {
        self.admission.identify_in(&self.admission.snapshot(), API_KEY, None).await
    }

    /// What `explain` tells of a call with this text.
    pub(crate) async fn explain(&self, text: &str) -> Explanation {
        let body = format!(
            r#"{{"model":"gpt","max_tokens":2000,"messages":[{{"role":"user","content":"{text}"}}]}}"#
        );
        let request = tollbook_wire::decode_request(Surface::Chat, body.as_bytes()).unwrap();
        let principal = self.principal().await.unwrap();
        let asked = Some((&request, body.as_bytes()));
        self.admission.explain(&principal, "gpt", None, None, None, asked).await.unwrap()
    }

    /// Calls whose input was counted in one way.
    pub(crate) fn counted(&self, by: &str) -> u64 {
        let line = format!("tollbook_admission_counted_total{{by=\"{by}\"}} ");
        let told = self.metrics.encode();
        told.lines().find_map(|l| l.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
    }

    /// Posted and held of a limit's account.
    pub(crate) async fn balance(&self, limit: u32) -> (i64, i64) {
        let snapshot = self.admission.snapshot();
        let key = snapshot.catalog.keys().first().unwrap();
        let call = tollbook_policy::Call { key, service: None, user: None, model: "gpt" };
        let binding = snapshot.catalog.resolve(&call, 0).unwrap();
        let account =
            binding.accounts.iter().find(|a| a.limits.iter().any(|l| l.id == LimitId(limit))).unwrap();
        let shard = tollbook_admission::shard("acme");
        let reply = self.engine.balances(shard, &[account.account]).await.unwrap();
        reply.value[0].as_ref().map_or((0, 0), |b| (b.standing.posted, b.standing.held))
    }

    pub(crate) async fn journal(&self) -> Vec<JournalRecord> {
        let shard = tollbook_admission::shard("acme");
        self.engine.journal_read(shard, Cursor(0), 100_000).await.unwrap().value
    }

    /// Stops the gateway in good order.
    pub(crate) async fn shut_down(self) -> (Arc<Flaky>, Arc<TestClock>) {
        self.stop.send_replace(true);
        self.running.await.unwrap();
        (self.engine, self.clock)
    }

    /// Waits on the paused clock until something holds.
    pub(crate) async fn until(&self, what: &str, mut reached: impl AsyncFnMut() -> bool) {
        for _ in 0..10_000 {
            if reached().await {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("waited in vain until {what}");
    }
}

fn snapshot(limits: Vec<LimitDraft>, model: Model) -> Snapshot {
    let hash = ApiKeyHash::new(None);
    let draft = Draft {
        tenants: vec![Tenant { id: "acme".into(), disabled: false }],
        projects: vec![Project { tenant: "acme".into(), id: "web".into(), disabled: false }],
        keys: vec![Key {
            tenant: "acme".into(),
            project: "web".into(),
            id: "k1".into(),
            secrets: vec![Secret { digest: hash.digest(API_KEY), expires_at: None }],
            disabled: false,
            expires_at: None,
            models: None,
            addresses: None,
            service: None,
        }],
        pools: vec![Pool { id: "pool".into(), meter: MeterPair::PLAIN }],
        models: vec![tollbook_policy::Model {
            id: "gpt".into(),
            aliases: Vec::new(),
            pools: vec!["pool".into()],
        }],
        limits,
        ..Draft::default()
    };
    let target = Target { pool: "pool".into(), upstream: "up".into(), model: "gpt".into() };
    let plan = ModelPlan {
        dialect: Dialect::OpenAi,
        surfaces: Surfaces::of(Dialect::OpenAi),
        targets: vec![target],
        facts: model.facts,
        counting: model.counting,
    };
    let catalog = Catalog::new(draft).unwrap_or_else(|p| panic!("{p:?}"));
    let prices = PriceBook { version: 0, models: BTreeMap::new(), default: None };
    Snapshot::new(1, catalog, prices, BTreeMap::from([("gpt".to_owned(), plan)]), hash)
}
