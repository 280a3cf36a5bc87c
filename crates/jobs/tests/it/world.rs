//! An engine with a clock in hand, a store, and calls to book.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tollbook_engine::{
    AdjustCall, Claim, Engine, ReleaseCall, RenewCall, ReserveCall, SettleCall, Shard, Verdict,
};
use tollbook_engine_memory::{Clock, MemoryEngine, Options};
use tollbook_jobs::{Drain, Drained, Sweep, Swept};
use tollbook_ledger::units::{DOOR_LIFE, RENEWED_LIFE, SECOND};
use tollbook_ledger::{
    AccountId, Estimator, Hold as HoldWhat, Leg, Limit, LimitId, Measure, Met, Micros, OnExpiry, Periods,
    ReleaseWhy, ReservationId, Reserve, Settled, Shape, SubjectId,
};
use tollbook_store::{Entry, EntryBody, Figures, Hold, Journal, Name, Side, Usage};
use tollbook_store_sql::SqlStore;
use tollbook_telemetry::Metrics;

/// 2026-03-01 00:00 UTC.
pub(crate) const START: Micros = 1_772_323_200 * SECOND;
pub(crate) const SHARD: Shard = Shard(3);
/// Input every call is expected to have, and has.
pub(crate) const INPUT: u64 = 10;
/// Output every call is expected to have.
pub(crate) const OUTPUT: u64 = 20;

/// A clock that stands until it is moved.
#[derive(Debug)]
pub(crate) struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Micros {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) struct World {
    pub(crate) clock: Arc<Hand>,
    pub(crate) engine: Arc<MemoryEngine>,
    pub(crate) store: SqlStore,
    pub(crate) metrics: Arc<Metrics>,
    _dir: TempDir,
}

/// The quota of a tenant's llm_tokens that charges on expiry, and the one of its requests.
pub(crate) fn llm_tokens() -> AccountId {
    AccountId { subject: SubjectId(1), name: 1 }
}

pub(crate) fn requests() -> AccountId {
    AccountId { subject: SubjectId(1), name: 2 }
}

pub(crate) fn leg(account: AccountId, measure: Measure) -> Leg {
    let whole = measure == Measure::Requests;
    let limit = Limit {
        id: LimitId(1),
        ceiling: 1 << 40,
        hard: true,
        shadow: false,
        count_denied: false,
        hold: HoldWhat::Expected,
        on_expiry: OnExpiry::Charge,
    };
    Leg {
        account,
        measure,
        shape: Shape::Quota,
        periods: Periods::Lifetime,
        base: if whole { 1000 } else { INPUT * 1000 },
        per_output: if whole { 0 } else { 1000 },
        cap: 1000,
        worst: if whole { 1 } else { INPUT + 1000 },
        estimator: Estimator::Constant { output: OUTPUT },
        refund_failed: false,
        limits: vec![limit],
    }
}

pub(crate) fn body(id: u128, output: i64) -> EntryBody {
    let name = Name::from;
    EntryBody {
        request_id: Name::from(format!("req_{id}")),
        tenant: name("acme"),
        project: name("search"),
        key: name("key-1"),
        model_asked: name("gpt-5"),
        model_priced: name("gpt-5"),
        model_used: name("gpt-5"),
        usage: Usage { input: 10, output, ..Usage::default() },
        cost_nano: (10 + output) * 100,
        hold: Hold {
            input_llm_tokens: INPUT,
            expected_llm_tokens: INPUT + OUTPUT,
            worst_llm_tokens: INPUT + 1000,
            expected_cost_nano: 3_000,
            worst_cost_nano: 101_000,
            charged_on_expiry: true,
        },
        ..EntryBody::default()
    }
}

pub(crate) fn claim(id: u128) -> Claim {
    Claim { shard: SHARD, id: ReservationId(id), attempt: 0 }
}

impl World {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
        let clock = Arc::new(Hand(AtomicU64::new(START)));
        let mut options = Options::on(Arc::clone(&clock) as Arc<dyn Clock>);
        (options.background, options.shards) = (false, 8);
        let engine = Arc::new(MemoryEngine::open(None, options).unwrap().engine);
        Self { clock, engine, store, metrics: Arc::new(Metrics::new()), _dir: dir }
    }

    pub(crate) fn pass(&self, time: Micros) {
        self.clock.0.fetch_add(time, Ordering::SeqCst);
    }

    pub(crate) fn drain(&self) -> Drain {
        Drain::new(self.engine.clone(), Arc::new(self.store.clone()), Arc::clone(&self.metrics))
    }

    pub(crate) async fn drained(&self) -> Drained {
        self.drain().once().await.unwrap()
    }

    pub(crate) async fn swept(&self) -> Swept {
        Sweep::new(self.engine.clone(), Arc::clone(&self.metrics)).once().await.unwrap()
    }

    /// Books a call at the door.
    pub(crate) async fn reserve(&self, id: u128) {
        let legs = vec![leg(llm_tokens(), Measure::Tokens), leg(requests(), Measure::Requests)];
        self.reserve_legs(SHARD, id, legs).await;
    }

    pub(crate) async fn reserve_legs(&self, shard: Shard, id: u128, legs: Vec<Leg>) {
        let context = body(id, 0).context();
        let reserve = Reserve {
            id: ReservationId(id),
            attempt: 0,
            life: DOOR_LIFE,
            profile: tollbook_engine::ledger::Profile::default(),
            legs,
            context,
        };
        let call = ReserveCall { shard, reserve, class: 0, waiting: false };
        let verdict = self.engine.reserve(&call).await.unwrap().value;
        assert!(matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
    }

    /// Books a call and says it was sent.
    pub(crate) async fn send(&self, id: u128) {
        self.reserve(id).await;
        let renew = RenewCall {
            claim: claim(id),
            subjects: Vec::new(),
            sent: true,
            life: RENEWED_LIFE,
            output_expected: None,
            outgrown: None,
        };
        self.engine.renew(&[renew]).await.unwrap();
    }

    pub(crate) async fn settle(&self, id: u128, output: i64) -> Settled {
        self.settle_body(id, output, body(id, output).encode()).await
    }

    pub(crate) async fn settle_body(&self, id: u128, output: i64, entry: Vec<u8>) -> Settled {
        let call = SettleCall {
            claim: claim(id),
            accounts: vec![llm_tokens(), requests()],
            actual: vec![INPUT + u64::try_from(output).unwrap(), 1],
            landed: 0,
            learn: None,
            entry,
            age: 0,
        };
        self.engine.settle(&call).await.unwrap().value
    }

    pub(crate) async fn release(&self, id: u128, why: ReleaseWhy, entry: Option<EntryBody>) -> Met {
        let entry = entry.map(|body| body.encode());
        let call = ReleaseCall { claim: claim(id), accounts: vec![llm_tokens(), requests()], why, entry };
        self.engine.release(&call).await.unwrap().value.before
    }

    /// Every entry of a call, booked or not.
    pub(crate) async fn entries(&self, id: u128) -> Vec<Entry> {
        self.store.by_reservation(ReservationId(id)).await.unwrap()
    }

    pub(crate) async fn adjust(&self, call: &AdjustCall) -> bool {
        self.engine.adjust(call).await.unwrap().value
    }

    /// What the engine has posted to an account; 0 if it was never opened.
    pub(crate) async fn balance(&self, account: AccountId) -> i64 {
        let balances = self.engine.balances(SHARD, &[account]).await.unwrap().value;
        balances[0].map_or(0, |balance| balance.standing.posted)
    }

    /// What the journal has posted to an account.
    pub(crate) async fn journaled(&self, account: AccountId) -> i64 {
        self.store.posted_sum(account, 0).await.unwrap()
    }
}

/// The body of a call the provider refused.
pub(crate) fn failed(id: u128) -> EntryBody {
    let body = body(id, 0);
    EntryBody { usage: Usage::default(), cost_nano: 0, figures: Figures::Nothing, side: Side::Tenant, ..body }
}

/// What the booked entries of a call sum to: requests, llm_tokens, cost.
pub(crate) fn sum(entries: &[Entry]) -> (i64, i64, i64) {
    entries.iter().filter(|e| !e.is_unbooked()).fold((0, 0, 0), |(requests, llm_tokens, cost), e| {
        (requests + e.requests, llm_tokens + e.body.usage.llm_tokens(), cost + e.body.cost_nano)
    })
}
