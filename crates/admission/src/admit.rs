//! The door: identify, resolve, estimate, reserve.
//!
//! Invariants: a call is admitted only with all its holds written (L1); tenant first, then pool, and no hold outlives a
//! denial; a verdict is asked for again at most once per reason (period starts, due holds, an exact count, a lost
//! reply, a lost shard). When the engine is away the limits of a call say what becomes of it (`away`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tollbook_engine::{
    Applied, DueHold, Engine, EngineError, ExpireCall, Receipt, Reply, ReserveCall, Shard, Verdict,
};
use tollbook_ledger::{Attempt, Denial, Leg, Micros, ReservationId, Reserve};
use tollbook_policy::{Limit, PeriodTable, WhenAway};
use tollbook_pricing::Task;
use tollbook_store::{Hold, Side};
use tollbook_telemetry::{Metrics, labels};
use tollbook_wire::Request;

use crate::away::{self, Away, AwayBounds, Degraded, Unanswered, base_id, is_local};
use crate::bound::{Bindings, Bound};
use crate::counting::{Budget, CountingBounds};
use crate::denials::Denials;
use crate::estimate::{self, Estimate};
use crate::figures::{Figure, Figures};
use crate::keys::Callers;
use crate::live::{Live, LiveCalls, Lives};
use crate::outcome::Outcome;
use crate::overflow::Overflow;
use crate::plans::{ACCOUNTS_MAX, Keeper, Plan, Plans};
use crate::refused::{LimitRefusal, Refused};
use crate::report;
use crate::settle::{SettleBounds, Settler};
use crate::snapshot::{Principal, Snapshot, Target};
use crate::spool::Spool;
use crate::ticket::{Open, Ticket, allowance};
use crate::time::EngineTime;
use crate::verb;
use crate::vouchers::{Losable, VoucherBounds, Vouchers};

/// Times a verdict is asked for at most: at first, and once more for each reason.
const ASKS_MAX: usize = 6;

/// Settings of admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    pub lives: Lives,
    pub settle: SettleBounds,
    /// Longest a reserve may take.
    pub deadline: Duration,
    /// Bound of the spool file, and of the files with what vouchers find no room in memory; bytes.
    pub spool_max: u64,
    /// Of a book that can be lost.
    pub vouchers: VoucherBounds,
    pub counting: CountingBounds,
    pub away: AwayBounds,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lives: Lives::default(),
            settle: SettleBounds::default(),
            deadline: Duration::from_millis(500),
            spool_max: 256 << 20,
            vouchers: VoucherBounds::default(),
            counting: CountingBounds::default(),
            away: AwayBounds::default(),
        }
    }
}

/// A call that asks to be admitted.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub principal: &'a Principal,
    pub request: &'a Request<'a>,
    pub body: &'a [u8],
    pub service: Option<&'a str>,
    pub user: Option<&'a str>,
    /// Calls of one task share an estimator, apart from the key's other calls.
    pub task: Option<Task>,
    pub request_id: &'a Arc<str>,
    pub way: Way<'a>,
}

/// Which way a call goes, and what of it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way<'a> {
    /// By one of the surfaces, counted as the surface is.
    #[default]
    Surface,
    /// Passed through to the target of its model, charged what the answer reports, else what was held.
    Passed,
    /// The same, but it uses nothing that is counted: it counts as a request and in flight. `Some`: it names no model
    /// and goes to this upstream.
    Free(Option<Place<'a>>),
}

/// Where a call without a model goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// The provider will work, and bill, without ever saying so in an answer to this call: closed to keys that are
    /// bound to models, or by a limit on llm_tokens or cost.
    pub spends: bool,
}

impl Way<'_> {
    pub(crate) fn is_free(&self) -> bool {
        matches!(self, Self::Free(_))
    }
}

/// A call that was admitted.
#[derive(Debug)]
pub struct Admitted {
    pub ticket: Ticket,
    pub target: Target,
    /// An output cap that must be written into the request, because a hard limit was held for it.
    pub output_cap_to_send: Option<u64>,
}

/// Whether calls are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Known outcomes find no room to wait in.
    SpoolFull,
    /// The engine gives no verdicts for some shards, and others are there, or some limits let calls in all the same.
    Degraded,
    /// The engine gives no verdicts: it cannot be reached, or cannot write.
    EngineAway,
}

/// Decides which calls may pass, and sees each of them to its end. One per process.
pub struct Admission {
    engine: Arc<dyn Engine>,
    pub(crate) settler: Arc<Settler>,
    pub(crate) live: Arc<LiveCalls>,
    plans: Arc<Plans>,
    /// Where the book can be lost.
    pub(crate) vouchers: Option<Arc<Vouchers>>,
    /// Of calls that local books have admitted.
    pub(crate) local_plans: Arc<Plans>,
    pub(crate) metrics: Arc<Metrics>,
    snapshot: ArcSwap<Snapshot>,
    pub(crate) bindings: Bindings,
    time: Arc<EngineTime>,
    settings: Settings,
    pub(crate) denials: Denials,
    pub(crate) away: Arc<Away>,
    /// Some key is let in while the engine is away.
    pub(crate) admits_away: AtomicBool,
    /// Keys may have been made that the snapshot does not have.
    pub(crate) keys_behind: AtomicBool,
    /// Where those are found who are not in the snapshot itself.
    pub(crate) callers: OnceLock<Arc<dyn Callers>>,
    pub(crate) counting: Arc<Budget>,
    ids: Ids,
}

impl Admission {
    /// Asks the engine for its time once, and takes up what an earlier run left in the spool.
    ///
    /// # Errors
    /// When the engine does not answer or the spool cannot be read.
    pub async fn open(
        engine: Arc<dyn Engine>,
        snapshot: Arc<Snapshot>,
        metrics: Arc<Metrics>,
        settings: Settings,
        spool_dir: Option<&std::path::Path>,
    ) -> Result<Arc<Self>, OpenError> {
        let now = verb::within(settings.deadline, engine.balances(Shard(0), &[])).await?.now;
        Self::open_at(now, (engine, None), snapshot, metrics, settings, spool_dir)
    }

    /// The same over a book that can be lost: what it acknowledges is remembered until the journal has it.
    ///
    /// # Errors
    /// When the engine does not answer or the spool cannot be read.
    pub async fn open_losable(
        book: Losable,
        snapshot: Arc<Snapshot>,
        metrics: Arc<Metrics>,
        settings: Settings,
        spool_dir: Option<&std::path::Path>,
    ) -> Result<Arc<Self>, OpenError> {
        let now = verb::within(settings.deadline, book.engine.state(Shard(0))).await?.now;
        let engine = Arc::clone(&book.engine) as Arc<dyn Engine>;
        Self::open_at(now, (engine, Some(book)), snapshot, metrics, settings, spool_dir)
    }

    fn open_at(
        now: Micros,
        (engine, losable): (Arc<dyn Engine>, Option<Losable>),
        snapshot: Arc<Snapshot>,
        metrics: Arc<Metrics>,
        settings: Settings,
        spool_dir: Option<&std::path::Path>,
    ) -> Result<Arc<Self>, OpenError> {
        let time = Arc::new(EngineTime::new(now));
        let vouchers = match losable {
            Some(book) => {
                let overflow = spool_dir.map(|dir| Overflow::open(dir, settings.spool_max)).transpose()?;
                Some(Arc::new(Vouchers::new(book, &time, &metrics, settings.vouchers, overflow)))
            }
            None => None,
        };
        let spool = match spool_dir {
            Some(dir) => Some(Spool::open(dir, settings.spool_max)?.0),
            None => None,
        };
        let lost = vouchers.as_ref().map(|vouchers| Arc::clone(&vouchers.lost));
        let away = Arc::new(Away::new(settings.away, Arc::clone(&metrics), lost));
        let asked = || (Arc::clone(&engine), Arc::clone(&away));
        let settler = Settler::new(
            asked(),
            Arc::clone(&time),
            Arc::clone(&metrics),
            settings.settle,
            spool,
            vouchers.clone(),
        );
        let (lives, deadline) = (settings.lives, settings.deadline);
        let live = LiveCalls::new(asked(), Arc::clone(&time), Arc::clone(&metrics), lives, deadline);
        let ids = Ids::new()?;
        let plans = |keeper, metrics| {
            let pauses = (settings.lives.flush, settings.deadline);
            Arc::new(Plans::new(keeper, Arc::clone(&time), metrics, ids.gateway, pauses, ACCOUNTS_MAX))
        };
        let local_plans = plans(Keeper::Local(Arc::clone(&away)), Arc::new(Metrics::new()));
        let plans = plans(Keeper::Engine(Arc::clone(&engine), Arc::clone(&away)), Arc::clone(&metrics));
        report::name(&metrics, &snapshot);
        Ok(Arc::new(Self {
            engine,
            settler: Arc::new(settler),
            live: Arc::new(live),
            plans,
            local_plans,
            vouchers,
            admits_away: AtomicBool::new(away::admits_any(&snapshot.catalog, now / 1_000_000)),
            keys_behind: AtomicBool::new(false),
            callers: OnceLock::new(),
            snapshot: ArcSwap::new(snapshot),
            bindings: Bindings::new(Arc::clone(&metrics)),
            time,
            settings,
            denials: Denials::default(),
            away,
            ids,
            counting: Budget::new(settings.counting),
            metrics,
        }))
    }

    /// Renews and settles in the background until `stop` turns true; returns when everything is settled or spooled.
    pub async fn run(self: &Arc<Self>, stop: tokio::sync::watch::Receiver<bool>) {
        let stopped = |mut stop: tokio::sync::watch::Receiver<bool>| async move {
            // A dropped sender is a stop too.
            drop(stop.wait_for(|stopped| *stopped).await);
        };
        let renewing = Arc::clone(&self.live).run(stopped(stop.clone()));
        let planning = Arc::clone(&self.plans).run(stopped(stop.clone()));
        let planning_locally = Arc::clone(&self.local_plans).run(stopped(stop.clone()));
        let settling = Arc::clone(&self.settler).run(stopped(stop.clone()));
        tokio::join!(renewing, planning, planning_locally, settling, self.look_for_engine(stopped(stop)));
        if let Err(error) = verb::within(Duration::from_secs(5), self.engine.flush()).await {
            tracing::error!(%error, "the engine could not make its log durable");
        }
    }

    /// Puts another configuration in force for calls that come from now on.
    pub fn replace(&self, snapshot: Arc<Snapshot>) {
        report::name(&self.metrics, &snapshot);
        let admits_away = away::admits_any(&snapshot.catalog, self.now_s());
        match self.callers.get() {
            None => {
                let named = |limit: &Limit| (limit.scope.to_string(), limit.name.clone());
                self.denials.keep(&snapshot.catalog.rules().map(|(_, rule)| named(&rule.limit)).collect());
                self.admits_away.store(admits_away, Ordering::Relaxed);
            }
            // What tenants have is not among it: what was seen of them stays.
            Some(_) => drop(self.admits_away.fetch_or(admits_away, Ordering::Relaxed)),
        }
        self.snapshot.store(snapshot);
        // They hold the snapshot before this one.
        self.bindings.clear();
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Engine time as last told, in microseconds.
    pub fn now(&self) -> Micros {
        self.time.now()
    }

    pub(crate) fn time(&self) -> &EngineTime {
        &self.time
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.settings.deadline
    }

    pub(crate) fn now_s(&self) -> u64 {
        self.time.now() / 1_000_000
    }

    /// Whether calls are admitted, as far as it is known without one.
    pub fn readiness(&self) -> Readiness {
        if self.settler.is_full() {
            Readiness::SpoolFull
        } else if !self.away.is_away() {
            Readiness::Ready
        } else if self.admits_away.load(Ordering::Relaxed) || !self.is_all_away() {
            Readiness::Degraded
        } else {
            Readiness::EngineAway
        }
    }

    /// Whether it is the whole book that gives no verdicts: one in this process has one log, and is away in all its parts.
    fn is_all_away(&self) -> bool {
        self.vouchers.is_none() || self.away.is_whole_open()
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.readiness(), Readiness::Ready | Readiness::Degraded)
    }

    /// Decides a call. On success its holds are written and its Ticket must be ended.
    ///
    /// # Errors
    /// Why it may not pass; nothing is held then.
    pub async fn admit(self: &Arc<Self>, asking: Asking<'_>) -> Result<Admitted, Refused> {
        let started = Instant::now();
        if self.settler.is_full() {
            return Err(Refused::AWAY);
        }
        let bound = self.bind(&asking)?;
        let mut estimate = match asking.way {
            Way::Free(_) => Estimate::free(&bound),
            Way::Surface | Way::Passed => estimate::of(&bound, asking.request, asking.task, self.now_s()),
        };
        if bound.counts_always() {
            self.count_exactly(&bound, &mut estimate, &asking).await;
        }
        let mut decided = self.decide(&bound, &mut estimate, &asking, started).await;
        // A denial by a hard limit is asked once more with the exact count, where there is one.
        if let Err(refused) = &decided
            && refused.is_by_hard_limit_on_input()
            && self.count_exactly(&bound, &mut estimate, &asking).await
        {
            decided = self.decide(&bound, &mut estimate, &asking, started).await;
        }
        if asking.way == Way::Surface {
            report::counted(&self.metrics, estimate.counted);
        }
        if let Err(refused) = &decided {
            self.note_refused(refused);
        }
        decided
    }

    /// Asks for both reservations of a call.
    async fn decide(
        self: &Arc<Self>,
        bound: &Arc<Bound>,
        estimate: &mut Estimate,
        asking: &Asking<'_>,
        started: Instant,
    ) -> Result<Admitted, Refused> {
        match self.reserve_tenant(bound, estimate, asking).await? {
            Asked::Admitted { receipt, hold, plan, degraded } => {
                let held = (receipt, hold, plan, degraded);
                self.open_ticket(Arc::clone(bound), estimate.clone(), held, asking, started).await
            }
            Asked::Denied(denial, now) => Err(Self::denied(bound, Side::Tenant, &denial, now)),
        }
    }

    /// True if the text was not counted exactly before, and is now. What came by no surface cannot be.
    async fn count_exactly(&self, bound: &Bound, estimate: &mut Estimate, asking: &Asking<'_>) -> bool {
        let text = (asking.request, asking.body);
        asking.way == Way::Surface
            && estimate.count_exactly(bound, (&self.counting, self.now_s()), text).await
    }

    fn bind(&self, asking: &Asking<'_>) -> Result<Arc<Bound>, Refused> {
        let model = asking.request.model.as_ref();
        if let Way::Free(Some(place)) = asking.way {
            return self.bind_place(asking, &place);
        }
        let bound = self.bindings.get(asking.principal, model, asking.service, asking.user, self.now_s())?;
        if !bound.plan.serves(asking.request.surface) {
            return Err(Refused::WrongDialect(model.to_owned()));
        }
        if bound.price.is_none() && bound.counts_cost() && !asking.way.is_free() {
            return Err(Refused::Unpriced(model.to_owned()));
        }
        if !asking.way.is_free() {
            bound.check_tools(asking.request)?;
        }
        Ok(bound)
    }

    /// What binds a call that names no model.
    fn bind_place(&self, asking: &Asking<'_>, place: &Place<'_>) -> Result<Arc<Bound>, Refused> {
        let dialect = asking.request.surface.dialect();
        let subjects = (asking.service, asking.user);
        let bound =
            self.bindings.at_place(asking.principal, place.upstream, dialect, subjects, self.now_s())?;
        let bound_to_models = asking.principal.key().is_none_or(|key| key.models.is_some());
        if place.spends && (bound_to_models || bound.counts_use()) {
            return Err(Refused::Unmetered);
        }
        Ok(Arc::new(bound))
    }

    async fn open_ticket(
        self: &Arc<Self>,
        bound: Arc<Bound>,
        estimate: Estimate,
        (tenant, hold, plan, degraded): (Receipt, Hold, Plan, Option<Degraded>),
        asking: &Asking<'_>,
        started: Instant,
    ) -> Result<Admitted, Refused> {
        let text = |text: Option<&str>| -> Arc<str> { Arc::from(text.unwrap_or_default()) };
        let live = Arc::new(Live::new(&tenant, None, allowance(&bound, &tenant)));
        let (target, output_cap_to_send) = (bound.target.clone(), estimate.demand.inject_cap);
        let service = asking.service.or_else(|| asking.principal.key().and_then(|k| k.service.as_deref()));
        // Before the pool is asked: whoever leaves meanwhile leaves a Ticket behind, which gives back what is held.
        let mut ticket = Ticket::new(Open {
            hold,
            stream: asking.request.stream,
            surface: asking.request.surface,
            free: asking.way.is_free(),
            passed: asking.way != Way::Surface,
            figures: Figures { degraded, ..figures(&bound, &tenant, self.away.gateways()) },
            service: text(service),
            user: text(asking.user),
            model_asked: Arc::from(asking.request.model.as_ref()),
            request_id: Arc::clone(asking.request_id),
            admission: Arc::clone(self),
            live: Arc::clone(&live),
            plan,
            pool: None,
            pool_plan: Plan::default(),
            attempts: 0,
            bound,
            estimate,
            tenant,
            started,
            trace: None,
            _in_flight: self.enter(asking.request.surface, asking.way),
        });
        if let Err(refused) = ticket.reserve_pool(0).await {
            // No hold outlives a denial (L1): the call was never sent, so all of it is given back.
            ticket.end(&Outcome::never_sent());
            return Err(refused);
        }
        self.live.register(&live);
        Ok(Admitted { ticket, target, output_cap_to_send })
    }

    async fn reserve_tenant(
        self: &Arc<Self>,
        bound: &Arc<Bound>,
        estimate: &mut Estimate,
        asking: &Asking<'_>,
    ) -> Result<Asked, Refused> {
        let mut first = estimate.legs(bound, &bound.periods(self.now_s()))?;
        let near = bound.is_near(Side::Tenant, &first) || self.is_pool_near(bound, estimate)?;
        if near && self.count_exactly(bound, estimate, asking).await {
            first = estimate.legs(bound, &bound.periods(self.now_s()))?;
        }
        let estimate = &*estimate;
        let legs = |periods: &PeriodTable| estimate.legs(bound, periods);
        let hold = estimate::hold(&first, estimate);
        let context = estimate::context(bound, hold, estimate::lapse(&first), asking);
        let reserve = self.fresh(self.ids.next(), 0, bound, first, context);
        Ok(match self.reserve(bound, Side::Tenant, asking.request.stream, reserve, legs).await? {
            Asked::Admitted { receipt, plan, degraded, .. } => {
                bound.seen(Side::Tenant, &receipt);
                Asked::Admitted { receipt, hold, plan, degraded }
            }
            Asked::Denied(denial, now) => {
                bound.seen_denied(Side::Tenant, &denial);
                Asked::Denied(denial, now)
            }
        })
    }

    /// Whether the call's worst case, which no output changes, comes near a hard limit of the pool.
    fn is_pool_near(&self, bound: &Bound, estimate: &Estimate) -> Result<bool, Refused> {
        if !bound.pool.accounts.iter().any(|account| account.hard) {
            return Ok(false);
        }
        let legs = estimate.pool_legs(bound, &bound.periods(self.now_s()), 0)?;
        Ok(bound.is_near(Side::Pool, &legs))
    }

    /// Takes the pool's reservation of an admitted call, with its plan; `None` where the pool has no limits.
    pub(crate) async fn reserve_pool(
        self: &Arc<Self>,
        open: &Open,
        attempt: Attempt,
    ) -> Result<(Option<Receipt>, Plan, Option<Degraded>), Refused> {
        let bound = &open.bound;
        // What is free at the provider has a rate of its own there.
        if bound.pool.accounts.is_empty() || open.free {
            return Ok((None, Plan::default(), None));
        }
        let expected = open.tenant.receipt.legs.iter().map(|leg| leg.output).max();
        let output = expected.unwrap_or(open.estimate.demand.cap);
        let context = open.opening(Side::Pool).context();
        let legs = |periods: &PeriodTable| open.estimate.pool_legs(bound, periods, output);
        let first = legs(&bound.periods(self.now_s()))?;
        let reserve = self.fresh(pool_id(open.tenant.receipt.id), attempt, bound, first, context);
        match self.reserve(bound, Side::Pool, open.stream, reserve, legs).await? {
            Asked::Admitted { receipt, plan, degraded, .. } => {
                bound.seen(Side::Pool, &receipt);
                Ok((Some(receipt), plan, degraded))
            }
            Asked::Denied(denial, now) => {
                bound.seen_denied(Side::Pool, &denial);
                Err(Self::denied(bound, Side::Pool, &denial, now))
            }
        }
    }

    /// Asks the engine, and once more for each reason there is to.
    async fn reserve(
        self: &Arc<Self>,
        bound: &Arc<Bound>,
        side: Side,
        streams: bool,
        reserve: Reserve,
        legs: impl Fn(&PeriodTable) -> Result<Vec<Leg>, Refused>,
    ) -> Result<Asked, Refused> {
        let (shard, binding) = match side {
            Side::Pool => (bound.pool_shard, &bound.pool),
            Side::Tenant | Side::Unreadable => (bound.tenant_shard, &bound.tenant),
        };
        let mut call = ReserveCall { shard, reserve, class: 0, waiting: false };
        let (mut recalendared, mut swept, mut repeated, mut waited) = (false, false, false, false);
        for _ in 0..ASKS_MAX {
            if self.away.is_open(shard) {
                let unanswered = Unanswered { call, error: None, unknown: repeated };
                return self.without_engine((bound, side), streams, unanswered, legs);
            }
            let answer = self.away.timed(shard, self.settings.deadline, self.engine.reserve(&call)).await;
            let reply = match answer {
                Ok(reply) => reply,
                Err(error) if error.applied == Applied::Unknown && !repeated => {
                    report::failed(&self.metrics, labels::Verb::Reserve, &error);
                    repeated = true;
                    continue;
                }
                // A shard that is used for the first time is lost too, for as long as it takes to open it.
                Err(error) if !waited && self.is_whole_again(shard, &error).await => {
                    report::failed(&self.metrics, labels::Verb::Reserve, &error);
                    waited = true;
                    continue;
                }
                Err(error) => {
                    let unanswered = Unanswered { call, error: Some(error), unknown: repeated };
                    return self.without_engine((bound, side), streams, unanswered, legs);
                }
            };
            self.time.told(reply.now);
            self.away.answered(shard);
            match reply.value {
                Verdict::Admit(receipt) => {
                    self.note_admitted(side, binding, &receipt);
                    let plan = self.plans.admitted(shard, &call.reserve, &receipt.receipt, streams);
                    if let Some(vouchers) = &self.vouchers {
                        vouchers.admitted(side, call, &receipt);
                    }
                    return Ok(Asked::Admitted { receipt, hold: Hold::default(), plan, degraded: None });
                }
                Verdict::Recalendar if !recalendared => {
                    recalendared = true;
                    self.metrics.admission_recalendared.inc(());
                    call.reserve.legs = legs(&bound.periods(reply.now / 1_000_000))?;
                }
                Verdict::Deny { due, .. } if !due.is_empty() && !swept => {
                    swept = true;
                    self.expire(due).await;
                }
                Verdict::Deny { denial, .. } => return Ok(Asked::Denied(Box::new(denial), reply.now)),
                // The engine's clock ran away while an answer was under way: the hold has expired, or one more period has
                // begun. Nothing is held, nothing was sent.
                Verdict::Ended(_) if repeated => return Err(Refused::AWAY),
                Verdict::Recalendar => return Err(Refused::AWAY),
                other => {
                    tracing::error!(verdict = ?other, "a verdict that cannot be");
                    return Err(Refused::Internal);
                }
            }
        }
        Err(Refused::Internal)
    }

    fn fresh(
        &self,
        id: ReservationId,
        attempt: Attempt,
        bound: &Bound,
        legs: Vec<Leg>,
        context: Vec<u8>,
    ) -> Reserve {
        let life = Micros::try_from(self.settings.lives.door.as_micros()).unwrap_or(Micros::MAX);
        Reserve { id, attempt, life, profile: bound.profile(), legs, context }
    }

    /// Expires holds a denial told of (L7).
    async fn expire(&self, due: Vec<DueHold>) {
        let calls: Vec<ExpireCall> =
            due.into_iter().map(|d| ExpireCall { claim: d.claim, subjects: d.subjects }).collect();
        if let Err(error) = verb::within(self.settings.deadline, self.engine.expire(&calls)).await {
            report::failed(&self.metrics, labels::Verb::Expire, &error);
            tracing::warn!(%error, "due holds could not be expired");
        }
    }

    pub(crate) fn denied(bound: &Bound, side: Side, denial: &Denial, now: Micros) -> Refused {
        let binding = match side {
            Side::Pool => &bound.pool,
            Side::Tenant | Side::Unreadable => &bound.tenant,
        };
        let b = &denial.binding;
        let Some(rule) = bound.snapshot.catalog.rule(b.limit) else { return Refused::Internal };
        let Some(account) = binding.accounts.get(b.leg) else { return Refused::Internal };
        let window = window(&account.shape);
        let mut figures = Figures::default();
        figures.take(account.measure, Figure::new(b.ceiling, b.posted, b.held, b.reset, window));
        Refused::Limit(Box::new(LimitRefusal {
            limit: rule.limit.name.clone(),
            subject: rule.limit.scope.to_string(),
            pool: side == Side::Pool,
            measure: account.measure,
            span: rule.limit.form.to_string(),
            hard: b.hard,
            kind: b.kind,
            ceiling: b.ceiling,
            posted: b.posted,
            held: b.held,
            demand: b.demand,
            reset: b.reset,
            now,
            figures,
        }))
    }
}

/// What a reserve came to.
pub(crate) enum Asked {
    Admitted {
        receipt: Receipt,
        hold: Hold,
        plan: Plan,
        degraded: Option<Degraded>,
    },
    /// With the engine time of the decision.
    Denied(Box<Denial>, Micros),
}

/// The window of a rate; 0 for anything else.
pub(crate) fn window(shape: &tollbook_ledger::Shape) -> Micros {
    match shape {
        tollbook_ledger::Shape::Rate { buckets, width, .. } => {
            width.saturating_mul(u64::from(buckets.saturating_sub(1)))
        }
        tollbook_ledger::Shape::Forecast { window, .. } => Micros::from(*window) * 1_000_000,
        _ => 0,
    }
}

/// The tightest soft limits, as the receipt shows them. Of a local book these are shares, and what has none is not shown.
fn figures(bound: &Bound, receipt: &Receipt, gateways: u32) -> Figures {
    let local = is_local(receipt.receipt.id);
    let mut figures = Figures::default();
    for (account, leg) in bound.tenant.accounts.iter().zip(&receipt.receipt.legs) {
        if local && account.when_away != WhenAway::Local {
            continue;
        }
        let window = window(&account.shape);
        for limit in account.limits.iter().filter(|l| !l.hard && !l.shadow) {
            let ceiling = if local { away::share(limit.ceiling, gateways) } else { limit.ceiling };
            figures
                .take(account.measure, Figure::new(ceiling, leg.posted, leg.held_total, leg.reset, window));
        }
    }
    figures
}

/// The id of a call's reservation on its pool. Tenant and pool may be kept in one shard, where identity is (id, attempt),
/// so it is not the tenant's; the counter in the lower half never gets that far. Which book admitted the tenant's side
/// says nothing of this one.
pub fn pool_id(tenant: ReservationId) -> ReservationId {
    ReservationId(base_id(tenant).0 | POOL_BIT)
}

/// Whether a reservation is one on a pool.
pub(crate) fn is_of_pool(id: ReservationId) -> bool {
    id.0 & POOL_BIT != 0
}

const POOL_BIT: u128 = 1 << 63;

/// Reservation ids: 64 bits drawn at start, then a counter (L2).
struct Ids {
    gateway: u64,
    next: AtomicU64,
}

impl Ids {
    fn new() -> Result<Self, OpenError> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|_| OpenError::NoRandomness)?;
        Ok(Self { gateway: u64::from_le_bytes(seed), next: AtomicU64::new(0) })
    }

    fn next(&self) -> ReservationId {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        ReservationId((u128::from(self.gateway) << 64) | u128::from(n))
    }
}

/// Why admission cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the engine does not answer: {0}")]
    Engine(#[from] EngineError),
    #[error("the spool cannot be opened: {0}")]
    Spool(#[from] std::io::Error),
    #[error("the system gives no randomness for reservation ids")]
    NoRandomness,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A reply's value, its time noted.
pub(crate) fn noted<T>(time: &EngineTime, reply: Reply<T>) -> T {
    time.told(reply.now);
    reply.value
}
