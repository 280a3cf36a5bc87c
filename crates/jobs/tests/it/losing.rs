//! A server that can lose its book, gateways that share it, and gateways that die at a given step.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tollbook_engine::{
    AdjustCall, Answer as Verb, Balance, Cursor, Drift, DueHold, Engine, EngineError, ErrorKind, ExpireCall,
    Inspection, JournalRecord, Loss, LostShards, PeriodSum, ProgressCall, RebookCall, Recovery, ReleaseCall,
    RenewCall, Repair, Reply, ReserveCall, RestoreCall, SettleCall, Shard, ShardState, Source, Verdict,
};
use tollbook_jobs::{Drain, JobError, Part, QuotaPeriod, QuotaPeriods, Recover, RestoreAnswer};
use tollbook_ledger::units::SECOND;
use tollbook_ledger::{AccountId, Expired, Measure, Posted, Renewed, ReservationId, Settled, SubjectId};
use tollbook_store::{
    Answer, Entry, EntryBody, EntryKey, EpochCause, Fleet, GatewayId, Journal, Name, Origin, Restored,
    Restorer, ShardEpoch, ShardSums, Side, Stage, StoreError, StoreErrorKind, shard_of,
};
use tollbook_store_sql::SqlStore;
use tollbook_telemetry::Metrics;

use crate::world::START;

pub(crate) const TENANT: &str = "acme";
pub(crate) const QUOTA: AccountId = AccountId { subject: SubjectId(7), name: 70 };

pub(crate) fn shard() -> Shard {
    Shard(shard_of(TENANT))
}

/// What a server keeps of one shard.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub(crate) epoch: u64,
    run: u64,
    pub(crate) closed: bool,
    seen: u64,
    pub(crate) posted: BTreeMap<(AccountId, u64), i64>,
    /// Calls it knows.
    calls: Vec<ReservationId>,
    pub(crate) stream: Vec<JournalRecord>,
}

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) shards: Mutex<BTreeMap<u8, Kept>>,
    run: AtomicU64,
    pub(crate) now: AtomicU64,
    pub(crate) owner: Mutex<Option<u64>>,
    /// Everything is lost just before the next rebuild begins.
    pub(crate) loses_at_begin: AtomicBool,
    /// A call ends just before the next rebuild begins, if the shard still takes it.
    pub(crate) ends_at_begin: Mutex<Option<JournalRecord>>,
    /// Its server does not answer.
    pub(crate) away: Mutex<Option<Shard>>,
}

impl Server {
    pub(crate) fn kept(&self) -> Kept {
        self.shards.lock().unwrap().get(&shard().0).cloned().unwrap_or_default()
    }

    pub(crate) fn posted(&self) -> i64 {
        self.kept().posted.values().sum()
    }

    pub(crate) fn flush(&self) {
        self.shards.lock().unwrap().clear();
        *self.owner.lock().unwrap() = None;
    }

    /// Another process answers, with what was there.
    pub(crate) fn restart(&self) {
        self.run.fetch_add(1, Ordering::SeqCst);
    }

    /// Goes back to an earlier state, as a replica that lagged does.
    pub(crate) fn back_to(&self, kept: Kept) {
        self.shards.lock().unwrap().insert(shard().0, kept);
        self.restart();
    }

    fn with<T>(&self, shard: Shard, verb: impl FnOnce(&mut Kept, u64) -> T) -> T {
        let run = self.run.load(Ordering::SeqCst);
        verb(self.shards.lock().unwrap().entry(shard.0).or_default(), run)
    }
}

/// Steps until a gateway dies.
#[derive(Clone)]
pub(crate) struct Steps(Arc<AtomicU64>);

impl Steps {
    pub(crate) fn all() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    pub(crate) fn set(&self, left: u64) {
        self.0.store(left, Ordering::SeqCst);
    }

    fn go(&self) -> bool {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            if left == u64::MAX { Some(left) } else { left.checked_sub(1) }
        });
        left.is_ok()
    }

    pub(crate) fn are_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

/// The server as one gateway meets it.
pub(crate) struct Handle {
    pub(crate) server: Arc<Server>,
    expected: AtomicU64,
    told: AtomicU64,
    steps: Steps,
}

impl Handle {
    fn answer<'a, T: Send + 'a>(
        &'a self,
        shard: Shard,
        verb: impl FnOnce(&mut Kept, u64) -> Result<T, EngineError>,
    ) -> Verb<'a, T> {
        if !self.steps.go() || *self.server.away.lock().unwrap() == Some(shard) {
            return dead();
        }
        let result = self.server.with(shard, |kept, run| Ok((verb(kept, run)?, kept.epoch)));
        let now = self.server.now.load(Ordering::SeqCst);
        Box::pin(ready(result.map(|(value, epoch)| Reply { epoch, now, value })))
    }

    /// One call restored, as `restore` does.
    fn take(&self, id: ReservationId, posted: Option<i64>) -> Result<(), EngineError> {
        if !self.steps.go() {
            return Err(EngineError::unknown(ErrorKind::Deadline));
        }
        let expected = self.expected.load(Ordering::SeqCst);
        self.server.with(shard(), |kept, run| {
            let lost = |loss| Err(EngineError::not_applied(ErrorKind::Lost(loss)));
            if kept.epoch == 0 || kept.epoch < expected {
                return lost(Loss::All);
            } else if kept.run != run {
                return lost(Loss::Tail);
            } else if kept.closed && kept.epoch != expected {
                return lost(Loss::Rebuilding);
            }
            if !kept.calls.contains(&id) {
                kept.calls.push(id);
                *kept.posted.entry((QUOTA, 0)).or_default() += posted.unwrap_or(0);
            }
            Ok(())
        })
    }
}

fn dead<'a, T: Send + 'a>() -> Verb<'a, T> {
    Box::pin(ready(Err(EngineError::unknown(ErrorKind::Deadline))))
}

impl Recovery for Handle {
    fn expect(&self, _: Shard, epoch: u64) {
        self.expected.fetch_max(epoch, Ordering::SeqCst);
    }
    fn epoch(&self, _: Shard) -> u64 {
        self.expected.load(Ordering::SeqCst).max(self.told.load(Ordering::SeqCst))
    }
    fn belongs(&self, fleet: u64) -> Verb<'_, bool> {
        let owner = &self.server.owner;
        self.answer(shard(), |_, _| Ok(*owner.lock().unwrap().get_or_insert(fleet) == fleet))
    }
    fn state(&self, shard: Shard) -> Verb<'_, ShardState> {
        self.answer(shard, |kept, run| {
            let (epoch, closed, seen) = (kept.epoch, kept.closed, kept.seen);
            Ok(ShardState { epoch, same_server: epoch > 0 && kept.run == run, closed, seen })
        })
    }
    fn begin(&self, shard: Shard, epoch: u64, clear: bool, known: ShardState) -> Verb<'_, bool> {
        if self.server.loses_at_begin.swap(false, Ordering::SeqCst) {
            self.server.flush();
        }
        if let Some(record) = self.server.ends_at_begin.lock().unwrap().take() {
            self.server.with(shard, |kept, _| {
                assert!(!kept.closed, "it takes calls until it is closed");
                kept.stream.push(record);
            });
        }
        self.answer(shard, |kept, run| {
            if kept.epoch > epoch || kept.epoch == epoch && kept.run != run {
                return Ok(false);
            }
            if kept.epoch < epoch {
                if !clear && (kept.epoch != known.epoch || kept.seen < known.seen) {
                    return Ok(false);
                }
                if clear {
                    (kept.posted, kept.calls) = (BTreeMap::new(), Vec::new());
                }
                (kept.epoch, kept.run, kept.closed) = (epoch, run, true);
            }
            Ok(true)
        })
    }
    fn post<'a>(&'a self, shard: Shard, epoch: u64, sums: &'a [PeriodSum]) -> Verb<'a, bool> {
        self.answer(shard, |kept, _| {
            if !kept.closed || kept.epoch != epoch {
                return Ok(false);
            }
            kept.posted.extend(sums.iter().map(|sum| ((sum.account, sum.period), sum.posted)));
            Ok(true)
        })
    }
    fn open(&self, shard: Shard, epoch: u64) -> Verb<'_, bool> {
        self.answer(shard, |kept, run| {
            let ours = kept.epoch == epoch && kept.run == run;
            kept.closed &= !ours;
            Ok(ours)
        })
    }
}

impl Engine for Handle {
    fn reserve<'a>(&'a self, _: &'a ReserveCall) -> Verb<'a, Verdict> {
        dead()
    }
    fn rebook<'a>(&'a self, _: &'a RebookCall) -> Verb<'a, Verdict> {
        dead()
    }
    fn renew<'a>(&'a self, _: &'a [RenewCall]) -> Verb<'a, Vec<Renewed>> {
        dead()
    }
    fn progress<'a>(&'a self, _: &'a ProgressCall) -> Verb<'a, ()> {
        dead()
    }
    fn settle<'a>(&'a self, _: &'a SettleCall) -> Verb<'a, Settled> {
        dead()
    }
    fn release<'a>(&'a self, _: &'a ReleaseCall) -> Verb<'a, Settled> {
        dead()
    }
    fn expire<'a>(&'a self, _: &'a [ExpireCall]) -> Verb<'a, Vec<Expired>> {
        dead()
    }
    fn restore<'a>(&'a self, _: &'a RestoreCall) -> Verb<'a, ()> {
        dead()
    }
    fn adjust<'a>(&'a self, _: &'a AdjustCall) -> Verb<'a, bool> {
        dead()
    }
    fn balances<'a>(&'a self, _: Shard, _: &'a [AccountId]) -> Verb<'a, Vec<Option<Balance>>> {
        dead()
    }
    fn due(&self, _: Shard, _: usize) -> Verb<'_, Vec<DueHold>> {
        dead()
    }
    fn shards(&self) -> Vec<Shard> {
        vec![shard()]
    }
    fn inspect<'a>(&'a self, _: Shard, _: &'a Inspection) -> Verb<'a, String> {
        dead()
    }
    fn drift(&self, _: Shard, _: u64, _: usize) -> Verb<'_, Drift> {
        dead()
    }
    fn repair<'a>(&'a self, _: &'a Repair) -> Verb<'a, bool> {
        dead()
    }
    fn flush(&self) -> Verb<'_, ()> {
        dead()
    }
    fn journal_read(&self, shard: Shard, after: Cursor, max: usize) -> Verb<'_, Vec<JournalRecord>> {
        self.answer(shard, |kept, _| {
            Ok(kept.stream.iter().filter(|record| record.cursor > after).take(max).cloned().collect())
        })
    }
    fn journal_trim(&self, shard: Shard, upto: Cursor) -> Verb<'_, ()> {
        self.answer(shard, |kept, _| {
            kept.stream.retain(|record| record.cursor > upto);
            Ok(())
        })
    }
}

/// SQL as one gateway meets it.
pub(crate) struct Mortal {
    inner: SqlStore,
    steps: Steps,
}

impl Mortal {
    fn go<'a, T: Send + 'a>(&'a self, ask: impl FnOnce(&'a SqlStore) -> Answer<'a, T>) -> Answer<'a, T> {
        if self.steps.go() {
            return ask(&self.inner);
        }
        let error = StoreError::not_applied(StoreErrorKind::Away("a test".to_owned()));
        Box::pin(ready(Err(error)))
    }
}

impl Fleet for Mortal {
    fn id(&self) -> Answer<'_, u64> {
        self.go(|sql| sql.id())
    }
    fn beat(&self, gateway: GatewayId) -> Answer<'_, u32> {
        self.go(|sql| sql.beat(gateway))
    }
    fn leave(&self, gateway: GatewayId) -> Answer<'_, ()> {
        self.go(|sql| sql.leave(gateway))
    }
    fn epochs(&self) -> Answer<'_, Vec<ShardEpoch>> {
        self.go(|sql| sql.epochs())
    }
    fn first_epoch(&self, shard: u8) -> Answer<'_, bool> {
        self.go(|sql| sql.first_epoch(shard))
    }
    fn lease(&self, shard: u8, gateway: GatewayId) -> Answer<'_, bool> {
        self.go(|sql| sql.lease(shard, gateway))
    }
    fn lease_end(&self, shard: u8, gateway: GatewayId) -> Answer<'_, ()> {
        self.go(|sql| sql.lease_end(shard, gateway))
    }
    fn epoch_begin(
        &self,
        gateway: GatewayId,
        known: ShardEpoch,
        next: u64,
        cause: EpochCause,
    ) -> Answer<'_, bool> {
        self.go(|sql| sql.epoch_begin(gateway, known, next, cause))
    }
    fn shard_sums(&self, shard: u8, epoch: u64, since: u64) -> Answer<'_, Option<ShardSums>> {
        self.go(|sql| sql.shard_sums(shard, epoch, since))
    }
    fn epoch_stage(&self, shard: u8, epoch: u64, stage: Stage) -> Answer<'_, bool> {
        self.go(|sql| sql.epoch_stage(shard, epoch, stage))
    }
    fn report(&self, shard: u8, epoch: u64, gateway: GatewayId, restored: Restored) -> Answer<'_, ()> {
        self.go(|sql| sql.report(shard, epoch, gateway, restored))
    }
    fn restorers(&self, shard: u8, epoch: u64) -> Answer<'_, Vec<Restorer>> {
        self.go(|sql| sql.restorers(shard, epoch))
    }
    fn newest_end(&self, shard: u8) -> Answer<'_, Option<u64>> {
        self.go(|sql| sql.newest_end(shard))
    }
    fn entry_places<'a>(&'a self, keys: &'a [EntryKey]) -> Answer<'a, Vec<Option<i64>>> {
        self.go(|sql| sql.entry_places(keys))
    }
    fn entry(&self, key: EntryKey) -> Answer<'_, Option<Entry>> {
        self.go(|sql| sql.entry(key))
    }
}

/// The calls of a gateway that ended, as its vouchers tell.
struct Vouched {
    handle: Arc<Handle>,
    fleet: Arc<Mortal>,
    restored: AtomicU64,
    ended: Mutex<Vec<(EntryKey, i64)>>,
}

impl Part for Vouched {
    fn restored(&self, _: Shard) -> u64 {
        self.restored.load(Ordering::SeqCst)
    }
    fn restore(&self, epoch: ShardEpoch) -> RestoreAnswer<'_> {
        Box::pin(async move {
            self.handle.expect(shard(), epoch.epoch);
            let ended = self.ended.lock().unwrap().clone();
            let keys: Vec<EntryKey> = ended.iter().map(|(key, _)| *key).collect();
            let places = self.fleet.entry_places(&keys).await?;
            for ((key, amount), place) in ended.iter().zip(places) {
                let summed = place.is_some_and(|at| at <= epoch.watermark);
                self.handle.take(key.reservation, (!summed).then_some(*amount))?;
            }
            self.restored.fetch_max(epoch.epoch, Ordering::SeqCst);
            Ok(Restored { ended: ended.len() as u64, ..Restored::default() })
        })
    }
    fn forget(&self) -> std::pin::Pin<Box<dyn Future<Output = Result<(), JobError>> + Send + '_>> {
        Box::pin(ready(Ok(())))
    }
    fn lives(&self, _: u32) {}
}

pub(crate) struct Gateway {
    pub(crate) recover: Recover,
    pub(crate) lost: Arc<LostShards>,
    pub(crate) steps: Steps,
    pub(crate) metrics: Arc<Metrics>,
    handle: Arc<Handle>,
    vouched: Arc<Vouched>,
}

/// A server, a journal, and what really happened.
pub(crate) struct Losing {
    pub(crate) server: Arc<Server>,
    pub(crate) sql: SqlStore,
    _dir: TempDir,
    /// What all calls posted.
    pub(crate) truth: i64,
    next: u128,
}

impl Losing {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sql = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
        let server = Arc::new(Server::default());
        server.now.store(START, Ordering::SeqCst);
        Self { server, sql, _dir: dir, truth: 0, next: 1 }
    }

    pub(crate) async fn gateway(&self, id: GatewayId) -> Gateway {
        let steps = Steps::all();
        let handle = Arc::new(Handle {
            server: Arc::clone(&self.server),
            expected: AtomicU64::new(0),
            told: AtomicU64::new(0),
            steps: steps.clone(),
        });
        let fleet = Arc::new(Mortal { inner: self.sql.clone(), steps: steps.clone() });
        fleet.beat(id).await.unwrap();
        let (metrics, lost) = (Arc::new(Metrics::new()), Arc::new(LostShards::default()));
        let vouched = Arc::new(Vouched {
            handle: Arc::clone(&handle),
            fleet: Arc::clone(&fleet),
            restored: AtomicU64::new(0),
            ended: Mutex::default(),
        });
        let drain = Drain::new(
            Arc::clone(&handle) as Arc<dyn Engine>,
            Arc::new(self.sql.clone()),
            Arc::clone(&metrics),
        );
        let quotas: QuotaPeriods = Arc::new(|_| {
            let quota =
                |account: AccountId, _| (account.name == QUOTA.name).then_some((Measure::Tokens, u64::MAX));
            Box::pin(async move { Ok(Box::new(quota) as QuotaPeriod) })
        });
        let recover = Recover::new(
            (id, Arc::clone(&handle) as Arc<dyn Recovery>, fleet),
            Arc::new(drain),
            Arc::clone(&vouched) as Arc<dyn Part>,
            quotas,
            Arc::clone(&lost),
            Arc::clone(&metrics),
        );
        Gateway { recover, lost, steps, metrics, handle, vouched }
    }

    /// A call of a gateway ends: the server has it, its entry waits in the stream.
    pub(crate) fn ends(&mut self, gateway: &Gateway, amount: i64) -> Entry {
        let id = ReservationId(self.next);
        let now = self.server.now.fetch_add(SECOND, Ordering::SeqCst) + SECOND;
        let body = EntryBody { tenant: Name::from(TENANT), ..EntryBody::default() };
        let posted = vec![Posted { account: QUOTA, period: 0, amount }];
        let entry = Entry {
            reservation: id,
            attempt: 0,
            seq: 0,
            origin: Origin::Settled,
            admitted_at: now - 1,
            ended_at: now,
            requests: 1,
            posted: posted.clone(),
            body: body.clone(),
        };
        assert_eq!(entry.key().side, Side::Tenant);
        gateway.vouched.ended.lock().unwrap().push((entry.key(), amount));
        self.server.with(shard(), |kept, _| {
            assert!(kept.epoch > 0 && !kept.closed, "the shard is open");
            kept.seen = now;
            kept.calls.push(id);
            *kept.posted.entry((QUOTA, 0)).or_default() += amount;
            let cursor = Cursor(u64::try_from(self.next).unwrap());
            kept.stream.push(JournalRecord {
                cursor,
                id,
                attempt: 0,
                seq: 0,
                source: Source::Settled,
                admitted: now - 1,
                ended: now,
                posted,
                body: body.encode(),
            });
        });
        self.next += 1;
        self.truth += amount;
        entry
    }

    /// SQL takes what waits in the stream.
    pub(crate) async fn drain(&self) {
        let stream = self.server.kept().stream;
        let entries: Vec<Entry> =
            stream.iter().filter_map(|record| tollbook_jobs::entry(record, &[])).collect();
        self.sql.append(&entries).await.unwrap();
        self.server.with(shard(), |kept, _| kept.stream.clear());
    }

    /// Time passes for SQL: leases end, epochs get old.
    pub(crate) async fn pass(&self, what: &'static str) {
        self.sql.change(what).await.unwrap();
    }

    pub(crate) async fn leases_end(&self) {
        self.pass("UPDATE shard_lease SET until = 0").await;
    }

    pub(crate) async fn row(&self) -> Option<ShardEpoch> {
        self.sql.epochs().await.unwrap().into_iter().find(|row| row.shard == shard().0)
    }

    pub(crate) fn is_open(&self) -> bool {
        let kept = self.server.kept();
        kept.epoch > 0 && !kept.closed && kept.run == self.server.run.load(Ordering::SeqCst)
    }
}

impl Gateway {
    /// A call met the loss.
    pub(crate) fn meets_loss(&self) {
        self.lost.found(shard());
    }

    pub(crate) async fn step(&self) -> bool {
        self.recover.once().await.1.is_ok()
    }

    /// Its verbs learned of an epoch by an answer.
    pub(crate) fn hears(&self, epoch: u64) {
        self.handle.told.fetch_max(epoch, Ordering::SeqCst);
    }
}
