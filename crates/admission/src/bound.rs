//! What binds the calls of one key, service, user and model: resolved once, kept until it could change.
//!
//! The cache is bounded; a full one is emptied, which costs a little time and nothing else. Learned input ratios outlive it
//! and the snapshot, because they belong to key × model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tollbook_engine::{Receipt, Shard};
use tollbook_ledger::{
    AMOUNT_MAX, AccountId, Denial, EstimatorId, Hold, Leg, Limit, LimitId, Measure, Micros, OnExpiry,
    Profile, Shape,
};
use tollbook_policy::{
    Binding, BoundAccount, Call, EstimatorChoice, FACTOR_ONE, Key, MeterPair, PeriodTable, Subject, WhenAway,
};
use tollbook_pricing::{EstimatorIds, Kinds, Learned, ModelFacts, Price, Vocabulary};
use tollbook_store::{EntryBody, Name, Side};
use tollbook_telemetry::{Metrics, ModelLabel, PoolLabel};
use tollbook_wire::{Dialect, Usage};

use crate::away::is_local;
use crate::counting::{CountMode, Counter, Counting};
use crate::ratios::{Ratio, Ratios};
use crate::refused::Refused;
use crate::snapshot::{ModelPlan, Principal, Snapshot, Target};
use crate::streaming::Streaming;
use crate::used::{AllUsed, Used};

/// Bindings kept at once.
const BINDINGS_MAX: usize = 65_536;
/// Paces of models kept at once.
const PACES_MAX: usize = 262_144;

/// The limits of a kind of call, with everything that is the same for all of them.
pub(crate) struct Bound {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) plan: ModelPlan,
    pub(crate) target: Target,
    pub(crate) tenant: Binding,
    pub(crate) pool: Binding,
    pub(crate) tenant_shard: Shard,
    pub(crate) pool_shard: Shard,
    pub(crate) estimators: EstimatorIds,
    ratio: Arc<Ratio>,
    /// How the model streams, whoever asks it.
    pace: Arc<Mutex<Streaming>>,
    /// By leg of the tenant's side, and of the pool's.
    used: Vec<Used>,
    pool_used: Vec<Used>,
    pub(crate) price: Option<Price>,
    pub(crate) model_label: ModelLabel,
    pub(crate) pool_label: PoolLabel,
    valid_until: u64,
    names: Names,
}

struct Names {
    tenant: Name,
    project: Name,
    key: Name,
    model: Name,
    pool: Name,
}

/// What a binding was resolved for.
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
struct Question<'a> {
    key: &'a [u8; 32],
    model: &'a str,
    service: Option<&'a str>,
    user: Option<&'a str>,
}

/// The same, owned.
struct Asked {
    key: [u8; 32],
    model: String,
    service: Option<String>,
    user: Option<String>,
}

impl Asked {
    fn of(question: Question<'_>) -> Self {
        Self {
            key: *question.key,
            model: question.model.to_owned(),
            service: question.service.map(str::to_owned),
            user: question.user.map(str::to_owned),
        }
    }

    fn question(&self) -> Question<'_> {
        Question {
            key: &self.key,
            model: &self.model,
            service: self.service.as_deref(),
            user: self.user.as_deref(),
        }
    }
}

/// All bindings in use, for one snapshot at a time; by a hash of what was asked, so that a hit allocates nothing. Two
/// questions of one hash push each other out.
pub(crate) struct Bindings {
    metrics: Arc<Metrics>,
    hasher: ahash::RandomState,
    bound: RwLock<HashMap<u64, (Asked, Arc<Bound>)>>,
    ratios: Ratios,
    used: AllUsed,
    paces: Mutex<HashMap<EstimatorId, Arc<Mutex<Streaming>>>>,
}

impl Bindings {
    /// `metrics` has to know the names of a snapshot before the first call of it.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            hasher: ahash::RandomState::default(),
            bound: RwLock::default(),
            ratios: Ratios::default(),
            used: AllUsed::default(),
            paces: Mutex::default(),
        }
    }

    /// What binds a call, at engine time `now` (UTC seconds).
    pub(crate) fn get(
        &self,
        principal: &Principal,
        model: &str,
        service: Option<&str>,
        user: Option<&str>,
        now: u64,
    ) -> Result<Arc<Bound>, Refused> {
        let question = Question { key: principal.digest(), model, service, user };
        let hash = self.hasher.hash_one(question);
        {
            let all = self.bound.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((asked, bound)) = all.get(&hash)
                && asked.question() == question
                && bound.valid_until > now
                && Arc::ptr_eq(&bound.snapshot, principal.snapshot())
            {
                return Ok(Arc::clone(bound));
            }
        }
        let bound = Arc::new(self.resolve(principal, model, service, user, now)?);
        let mut all = self.bound.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= BINDINGS_MAX {
            all.clear();
        }
        all.insert(hash, (Asked::of(question), Arc::clone(&bound)));
        Ok(bound)
    }

    fn resolve(
        &self,
        principal: &Principal,
        asked: &str,
        service: Option<&str>,
        user: Option<&str>,
        now: u64,
    ) -> Result<Bound, Refused> {
        let snapshot = principal.snapshot();
        let catalog = &snapshot.catalog;
        let key = principal.key().ok_or(Refused::BadApiKey)?;
        let unknown = || Refused::ModelUnknown(asked.to_owned());
        let model = catalog.model(asked).ok_or_else(unknown)?;
        if !catalog.may_use(key, &model.id) {
            return Err(Refused::ModelForbidden(asked.to_owned()));
        }
        let plan = snapshot.models.get(&model.id).ok_or_else(unknown)?;
        self.bind(snapshot, key, &model.id, plan.clone(), (service, user), now)
    }

    fn bind(
        &self,
        snapshot: &Arc<Snapshot>,
        key: &Key,
        model: &str,
        plan: ModelPlan,
        (service, user): (Option<&str>, Option<&str>),
        now: u64,
    ) -> Result<Bound, Refused> {
        let catalog = &snapshot.catalog;
        let target = plan.targets.first().cloned().ok_or_else(|| Refused::ModelUnknown(model.to_owned()))?;
        let service = service.or(key.service.as_deref());
        if let Some(service) = service
            && catalog.service(&key.tenant, service).is_none()
        {
            return Err(Refused::BadSubject(format!("there is no service `{service}`, or it is off")));
        }
        let disabled = |user| catalog.user(&key.tenant, user).is_some_and(|user| user.disabled);
        if user.is_some_and(disabled) {
            return Err(Refused::UserDisabled);
        }
        let call = Call { key, service, user, model };
        let mut tenant = catalog.resolve(&call, now).map_err(|e| Refused::BadSubject(e.to_string()))?;
        if tenant.accounts.is_empty() {
            tenant.accounts.push(in_flight(&key.tenant));
        }
        let pool = catalog.resolve_pool(&target.pool, model, now);
        let valid_until = tenant.valid_until.min(pool.valid_until);
        let subject =
            Subject::Key { tenant: key.tenant.clone(), project: key.project.clone(), key: key.id.clone() };
        let estimators = EstimatorIds::new(subject.id(), model);
        Ok(Bound {
            tenant_shard: shard(&key.tenant),
            pool_shard: shard(&target.pool),
            estimators,
            ratio: self.ratios.get(estimators.own, now),
            pace: self.pace(estimators.prior),
            used: self.used.of(&tenant.accounts),
            pool_used: self.used.of(&pool.accounts),
            price: (!model.is_empty()).then(|| snapshot.prices.price(model).cloned()).flatten(),
            model_label: self.metrics.label(model),
            pool_label: self.metrics.label(&target.pool),
            valid_until,
            names: Names {
                tenant: Arc::from(key.tenant.as_str()),
                project: Arc::from(key.project.as_str()),
                key: Arc::from(key.id.as_str()),
                model: Arc::from(model),
                pool: Arc::from(target.pool.as_str()),
            },
            plan,
            target,
            tenant,
            pool,
            snapshot: Arc::clone(snapshot),
        })
    }

    /// Forgets what was resolved; what was learned stays.
    pub(crate) fn clear(&self) {
        self.bound.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What binds a call that names no model and goes to `upstream`. Not kept: such calls are few.
    pub(crate) fn at_place(
        &self,
        principal: &Principal,
        upstream: &str,
        dialect: Dialect,
        (service, user): (Option<&str>, Option<&str>),
        now: u64,
    ) -> Result<Bound, Refused> {
        let key = principal.key().ok_or(Refused::BadApiKey)?;
        let target = Target { pool: String::new(), upstream: upstream.to_owned(), model: String::new() };
        let surfaces = tollbook_wire::Surfaces::of(dialect);
        let plan = ModelPlan {
            dialect,
            surfaces,
            targets: vec![target],
            facts: ModelFacts::guessed(""),
            counting: Counting::default(),
        };
        self.bind(principal.snapshot(), key, "", plan, (service, user), now)
    }

    /// By the model's estimator, which no two models share.
    fn pace(&self, model: EstimatorId) -> Arc<Mutex<Streaming>> {
        let mut all = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= PACES_MAX {
            all.clear();
        }
        Arc::clone(all.entry(model).or_default())
    }
}

impl Bound {
    /// The periods of its quotas around `now` (UTC seconds).
    pub(crate) fn periods(&self, now: u64) -> Arc<PeriodTable> {
        self.snapshot.periods(now)
    }

    /// How the next call is expected to stream.
    pub(crate) fn profile(&self) -> Profile {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).pace.profile()
    }

    /// The output that a provider will report for so much as is counted from the text.
    pub(crate) fn reported_for(&self, counted: u64) -> u64 {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).reported_for(counted)
    }

    /// A stream has ended: when it began after its admission, how long it streamed, how much the provider reports, and
    /// how much was counted from its text.
    pub(crate) fn paced(&self, ttft: Micros, streamed: Micros, output: u64, counted: u64) {
        let mut streaming = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        streaming.pace.learn(ttft, streamed, output);
        streaming.learn(output, counted);
    }

    pub(crate) fn facts(&self) -> &ModelFacts {
        &self.plan.facts
    }

    /// What counts the model's text exactly, where something does and may.
    pub(crate) fn counter(&self) -> Option<Counter> {
        let counting = &self.plan.counting;
        let built_in = || Vocabulary::of(self.plan.facts.family).map(Counter::BuiltIn);
        let counter = counting.file.clone().map(Counter::File).or_else(built_in);
        counter.filter(|_| counting.mode != CountMode::Learned)
    }

    /// Every text of the model is to be counted exactly.
    pub(crate) fn counts_always(&self) -> bool {
        self.plan.counting.mode == CountMode::Exact
    }

    /// Whether a demand comes near what was left of a hard limit: then its input is worth counting exactly.
    pub(crate) fn is_near(&self, side: Side, legs: &[Leg]) -> bool {
        legs.iter().zip(self.used(side)).any(|(leg, used)| used.is_near(leg))
    }

    /// Remembers what a receipt shows of the hard limits.
    pub(crate) fn seen(&self, side: Side, receipt: &Receipt) {
        // A local book knows nothing of what was used before.
        if is_local(receipt.receipt.id) {
            return;
        }
        for (leg, used) in receipt.receipt.legs.iter().zip(self.used(side)) {
            used.show(leg.posted, leg.held_total);
        }
    }

    /// The same of a denial, for the limit that bound.
    pub(crate) fn seen_denied(&self, side: Side, denial: &Denial) {
        if let Some(used) = self.used(side).get(denial.binding.leg) {
            used.show(denial.binding.posted, denial.binding.held);
        }
    }

    /// The limits of one side.
    pub(crate) fn side(&self, side: Side) -> &Binding {
        match side {
            Side::Pool => &self.pool,
            Side::Tenant | Side::Unreadable => &self.tenant,
        }
    }

    fn used(&self, side: Side) -> &[Used] {
        match side {
            Side::Pool => &self.pool_used,
            Side::Tenant | Side::Unreadable => &self.used,
        }
    }

    /// What settled usage has taught so far.
    pub(crate) fn learned(&self, now: u64) -> Learned {
        self.ratio.learned(now)
    }

    /// Learns from a usage the provider reported; `built_in` is the estimate before correction.
    pub(crate) fn learn(&self, built_in: &Kinds, usage: &Usage, now: u64) {
        self.ratio.learn(built_in, usage, now);
    }

    pub(crate) fn price_version(&self) -> u64 {
        self.snapshot.prices.version
    }

    /// Hosted tools that a call offers need a fee where an account counts cost, as its model needs a price.
    pub(crate) fn check_tools(&self, request: &tollbook_wire::Request<'_>) -> Result<(), Refused> {
        let price = self.price.as_ref().filter(|_| self.counts_cost() && !request.hosted.is_empty());
        match price.and_then(|price| price.unpriced(request.hosted)) {
            Some(tool) => Err(Refused::UnpricedTool(tool.name())),
            None => Ok(()),
        }
    }

    /// Some account of the call counts cost.
    pub(crate) fn counts_cost(&self) -> bool {
        let all = self.tenant.accounts.iter().chain(&self.pool.accounts);
        all.into_iter().any(|a| a.measure == Measure::Cost)
    }

    /// Some enforced account of the call counts llm_tokens or cost.
    pub(crate) fn counts_use(&self) -> bool {
        self.tenant.accounts.iter().any(|account| {
            account.enforced && !matches!(account.measure, Measure::Requests | Measure::Concurrency)
        })
    }

    /// The entry fields that name who and what.
    pub(crate) fn entry_names(&self) -> EntryBody {
        let names = &self.names;
        EntryBody {
            tenant: Arc::clone(&names.tenant),
            project: Arc::clone(&names.project),
            key: Arc::clone(&names.key),
            model_priced: Arc::clone(&names.model),
            model_used: Arc::clone(&names.model),
            pool: Arc::clone(&names.pool),
            ..EntryBody::default()
        }
    }

    pub(crate) fn model(&self) -> &str {
        &self.names.model
    }
}

/// The one leg of a call that nothing limits: its tenant's calls in flight, written and never enforced. So such a call
/// has a reservation, an end and a journal entry like any other.
fn in_flight(tenant: &str) -> BoundAccount {
    let limit = Limit {
        id: LimitId(u32::MAX),
        ceiling: AMOUNT_MAX,
        hard: false,
        shadow: true,
        count_denied: false,
        hold: Hold::Expected,
        on_expiry: OnExpiry::Release,
    };
    BoundAccount {
        account: AccountId { subject: Subject::Tenant { tenant: tenant.to_owned() }.id(), name: 0 },
        measure: Measure::Concurrency,
        shape: Shape::Concurrency,
        calendar: None,
        meter: MeterPair::PLAIN,
        estimator: EstimatorChoice::Capped,
        expected_factor: FACTOR_ONE,
        worst_factor: FACTOR_ONE,
        refund_failed: false,
        hard: false,
        enforced: false,
        when_away: WhenAway::Open,
        limits: vec![limit],
    }
}

/// The shard of a tenant or pool: crc32 of its id, modulo 256. Part of the stored form.
pub fn shard(id: &str) -> Shard {
    Shard(tollbook_store::shard_of(id))
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound")
            .field("key", &self.names.key)
            .field("model", &self.names.model)
            .finish_non_exhaustive()
    }
}
