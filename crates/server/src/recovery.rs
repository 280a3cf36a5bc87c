//! A shared book, which its servers can lose, wired to what makes it whole again.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use tollbook_admission::{Admission, Losable, Settings, Snapshot, VoucherError};
use tollbook_engine::{LostShards, Shard};
use tollbook_jobs::{Drain, JobError, Part, QuotaPeriod, QuotaPeriods, Recover, RestoreAnswer};
use tollbook_ledger::{AccountId, Measure};
use tollbook_policy::{Calendar, Limit};
use tollbook_store::{Fleet, LIMIT_ROWS_MAX, LimitHistory as _, LimitPlace, ShardEpoch, StoreError};
use tollbook_store_sql::SqlStore;
use tollbook_telemetry::Metrics;

use crate::book::OpenBook;

/// What to do where the book is another journal's.
pub(crate) const FOREIGN_ADVICE: &str = "all gateways of a book need the same `journal`, or another engine.redis.prefix; if the other journal is gone for good, remove the key <prefix>:owner";
/// Counts of which the highest is taken: shares grow only some beats after a gateway has gone, and not while some start.
const COUNTS: usize = 8;

/// What a book that can be lost needs, if it is one; an error if gateways with another journal keep it.
pub(crate) async fn losable(book: &OpenBook, store: &SqlStore) -> anyhow::Result<Option<Losable>> {
    let Some(engine) = book.losable() else { return Ok(None) };
    let id = store.id().await.context("cannot read the journal")?;
    let ours =
        engine.belongs(id).await.map_err(|error| anyhow!("the shared book does not answer: {error}"))?;
    if !ours.value {
        bail!(
            "the shared book is kept by gateways with another journal than {}; {FOREIGN_ADVICE}",
            store.place()
        );
    }
    Ok(Some(Losable { engine, fleet: Arc::new(store.clone()), lost: Arc::new(LostShards::default()) }))
}

/// Opens the door to either kind of book.
pub(crate) async fn door(
    book: &OpenBook,
    losable: Option<Losable>,
    (snapshot, metrics, settings): (Arc<Snapshot>, Arc<Metrics>, Settings),
    spool: Option<&Path>,
) -> anyhow::Result<Arc<Admission>> {
    let opened = match losable {
        Some(book) => Admission::open_losable(book, snapshot, metrics, settings, spool).await,
        None => Admission::open(book.shared(), snapshot, metrics, settings, spool).await,
    };
    opened.context("cannot open the door")
}

/// The job that makes lost shards whole.
pub(crate) fn recover(
    (book, store): (Losable, &SqlStore),
    admission: Arc<Admission>,
    drain: Arc<Drain>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Recover> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).ok().context("the system gives no randomness for the gateway's id")?;
    let quotas = quotas(Arc::clone(&admission), store.clone());
    let here = (u64::from_le_bytes(seed), book.engine, book.fleet);
    Ok(Recover::new(here, drain, Arc::new(Calls::new(admission)), quotas, book.lost, metrics))
}

/// Names of accounts without their subject, with what they count and over which calendar.
type Quotas = BTreeMap<u64, (Measure, Calendar)>;

/// Periods of quotas by the limits in force, and by all that the history has: tenants that do not call here are not in
/// memory, and what was posted to a limit that is gone counts again if it returns.
fn quotas(admission: Arc<Admission>, store: SqlStore) -> QuotaPeriods {
    let kept: Arc<Mutex<Option<Arc<Quotas>>>> = Arc::default();
    Arc::new(move |fresh| {
        let (admission, store, kept) = (Arc::clone(&admission), store.clone(), Arc::clone(&kept));
        Box::pin(async move {
            let last = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let named = if let Some(named) = last.filter(|_| !fresh) {
                named
            } else {
                let named = Arc::new(all_quotas(&admission, &store).await?);
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&named));
                named
            };
            let quota = move |account: AccountId, period| {
                let (measure, calendar) = named.get(&account.name)?;
                Some((*measure, calendar.current(period).1))
            };
            Ok(Box::new(quota) as QuotaPeriod)
        })
    })
}

async fn all_quotas(admission: &Admission, store: &SqlStore) -> Result<Quotas, StoreError> {
    let snapshot = admission.snapshot();
    let mut named: Quotas = (snapshot.catalog.quotas())
        .map(|(name, measure, calendar)| (name, (measure, calendar.clone())))
        .collect();
    let mut after = Some(LimitPlace::default());
    while let Some(place) = after {
        let page = store.limit_rows_page(&place, LIMIT_ROWS_MAX).await?;
        for (_, row) in &page.rows {
            // One that is gone has no definition, and one that cannot be read is told where it is in force.
            let Ok(limit) = Limit::from_text(&row.definition) else { continue };
            named.extend(limit.quota().map(|(name, calendar)| (name, (limit.measure, calendar))));
        }
        after = page.next;
    }
    Ok(named)
}

/// The calls of this gateway, and among how many they are shared.
struct Calls {
    admission: Arc<Admission>,
    /// The last counts of gateways that live, the newest first.
    lives: Mutex<[u32; COUNTS]>,
}

impl Calls {
    fn new(admission: Arc<Admission>) -> Self {
        let lives = Mutex::new([admission.gateways(); COUNTS]);
        Self { admission, lives }
    }
}

impl Part for Calls {
    fn restored(&self, shard: Shard) -> u64 {
        self.admission.vouchers().map_or(u64::MAX, |vouchers| vouchers.restored(shard))
    }

    fn restore(&self, epoch: ShardEpoch) -> RestoreAnswer<'_> {
        Box::pin(async move { self.admission.restore(&epoch).await.map_err(job_error) })
    }

    fn forget(&self) -> Pin<Box<dyn Future<Output = Result<(), JobError>> + Send + '_>> {
        Box::pin(async move {
            match self.admission.vouchers() {
                Some(vouchers) => vouchers.ask().await.map(|_| ()).map_err(JobError::from),
                None => Ok(()),
            }
        })
    }

    fn lives(&self, gateways: u32) {
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        lives.rotate_right(1);
        if let Some(newest) = lives.first_mut() {
            *newest = gateways;
        }
        let most = lives.iter().copied().max().unwrap_or(gateways);
        if most != self.admission.gateways() {
            tracing::debug!(
                gateways = most,
                "gateways among which ceilings are shared while the book is away"
            );
            self.admission.set_gateways(most);
        }
    }
}

fn job_error(error: VoucherError) -> JobError {
    match error {
        VoucherError::Engine(error) => error.into(),
        VoucherError::Store(error) => error.into(),
    }
}
