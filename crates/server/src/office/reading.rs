//! Reads one tenant: from the fleet's cache where it is new enough, else from the store; checked, and with its past.
//!
//! Invariant: what comes of it is what the store had at one revision. A definition of a limit that the history does not have
//! is written down before its limit is in force; after it only where the store is away, of a tenant whose own objects are
//! as they were. When the cache is away or has nonsense, it is as if it had nothing.

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flate2::read::DeflateDecoder;
use flate2::{Compress, Compression, FlushCompress, Status};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tollbook_jobs::{Forgets, Openings};
use tollbook_policy::{Catalog, OpeningNeeded};
use tollbook_store::{
    Cached, ConfigCache, Journal, LimitHistory, LimitRow, Look, Name, Object, ObjectKind, ObjectName,
    ObjectStore, StoreError,
};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::ReadFrom;

use super::tenants::{Ground, Opening};
use super::{Unreadable, kept, stopped, told};
use crate::config::{Directory, Fault, Form, Kept};
use crate::history::{self, Past};

/// Longest wait for new quotas to start from what the journal has; after it they are opened while calls run.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// Pause before the openings are looked up again in a store that was away.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// Where tenants are read.
pub(crate) struct Reader {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) history: Arc<dyn LimitHistory>,
    pub(crate) journal: Arc<dyn Journal>,
    /// What the gateways of a fleet have read, and what that has to forget.
    pub(crate) cache: Option<Arc<dyn ConfigCache>>,
    pub(crate) forgets: Option<Arc<Forgets>>,
    pub(crate) metrics: Arc<Metrics>,
}

/// A tenant that was read.
pub(crate) struct Read {
    pub(crate) catalog: Catalog,
    /// Quotas that begin in mid-period.
    pub(crate) needed: Vec<OpeningNeeded>,
    /// What the store had, at its revision: enough to make the same on other ground.
    pub(crate) source: Cached,
    /// The store was away: it is to be read as soon as that is back.
    pub(crate) makeshift: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("what operators defined does not fit this gateway's file: {}", told(.1))]
    Unfit(u64, Vec<Fault>),
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

/// What the store has of a tenant.
struct Found {
    revision: u64,
    objects: Directory,
    rows: Vec<LimitRow>,
}

/// The same, as the cache keeps it.
#[derive(Serialize, Deserialize)]
struct Text {
    objects: Vec<TextObject>,
    limits: Vec<TextRow>,
}

#[derive(Serialize, Deserialize)]
struct TextObject {
    kind: String,
    project: String,
    id: String,
    version: u64,
    document: String,
    created_at: u64,
    changed_at: u64,
}

#[derive(Serialize, Deserialize)]
struct TextRow {
    limit: String,
    version: u32,
    seen_at: u64,
    definition: String,
}

/// The same, small: what is kept of a tenant in case that its ground changes.
pub(crate) struct Packed {
    pub(crate) revision: u64,
    deflated: Box<[u8]>,
}

/// What deflates, one after another: its state is large.
pub(crate) struct Packer(Mutex<Compress>);

impl Default for Packer {
    fn default() -> Self {
        Self(Mutex::new(Compress::new(Compression::default(), false)))
    }
}

impl Packed {
    pub(crate) fn new(source: &Cached, packer: &Packer) -> Self {
        let text = source.text.as_bytes();
        // More than what cannot be deflated becomes.
        let mut deflated = Vec::with_capacity(text.len() + text.len() / 100 + 64);
        let mut packer = packer.0.lock().unwrap_or_else(PoisonError::into_inner);
        packer.reset();
        let done = packer.compress_vec(text, &mut deflated, FlushCompress::Finish);
        if !matches!(done, Ok(Status::StreamEnd)) {
            // It is read as nothing.
            deflated.clear();
        }
        Self { revision: source.revision, deflated: deflated.into_boxed_slice() }
    }

    fn unpack(&self) -> Option<Cached> {
        let mut text = String::new();
        DeflateDecoder::new(&*self.deflated).read_to_string(&mut text).ok()?;
        Some(Cached { revision: self.revision, text })
    }
}

impl Reader {
    /// Whose a mark is.
    pub(crate) async fn tenant_of(&self, mark: &str) -> Result<Option<Arc<str>>, StoreError> {
        let name = self.objects.marked(mark).await?;
        Ok(name.map(|name| Arc::from(name.tenant)))
    }

    /// Nothing of these tenants that was read before counts any more, for any gateway.
    pub(crate) fn forget(&self, tenants: &[(Arc<str>, u64)]) {
        let Some(forgets) = self.forgets.clone().filter(|_| !tenants.is_empty()) else { return };
        let ids: Vec<(String, u64)> = tenants.iter().map(|(id, number)| (id.to_string(), *number)).collect();
        // What cannot be delivered waits there.
        drop(tokio::spawn(async move { forgets.forget(&ids).await }));
    }

    /// Reads a tenant at a revision that is at least `least`; none if it is not there. `now` in UTC seconds.
    pub(crate) async fn read(
        &self,
        tenant: &str,
        ground: &Ground,
        least: u64,
        now: u64,
    ) -> Result<Option<Read>, ReadError> {
        let mut gap = None;
        if let Some(cache) = &self.cache {
            match cache.get(tenant, least.max(ground.plans_at)).await {
                Ok(Look::Kept(cached)) => {
                    if let Some(read) = cached_read(tenant, ground, cached, now) {
                        self.metrics.tenants_read.inc((ReadFrom::Cache,));
                        return Ok(Some(read));
                    }
                }
                Ok(Look::Gap(seen)) => gap = Some(seen),
                // It tells so itself.
                Err(_) => {}
            }
        }
        let found = self.stored(tenant).await.map_err(ReadError::Failed)?;
        self.metrics.tenants_read.inc((ReadFrom::Store,));
        if found.objects.is_empty() {
            return Ok(None);
        }
        let read = self.made(tenant, ground, found, now).await?;
        if let (Some(cache), Some(gap)) = (&self.cache, gap) {
            // Whether it stays there is the cache's business; one that is away tells so itself.
            drop(cache.put(gap, tenant, &read.source).await);
        }
        Ok(Some(read))
    }

    async fn stored(&self, tenant: &str) -> anyhow::Result<Found> {
        // Rows are only ever added: those that are read later are none too few.
        let read = self.objects.tenant_objects(tenant).await?;
        let rows = self.history.limit_rows(tenant).await?;
        Ok(Found { revision: read.revision, objects: directory(read.objects)?, rows })
    }

    /// The catalog, with what the limits' past leaves behind.
    async fn made(
        &self,
        tenant: &str,
        ground: &Ground,
        mut found: Found,
        now: u64,
    ) -> Result<Read, ReadError> {
        let made = ground.whole.of_tenant(&ground.snapshot.catalog, &ground.common, &found.objects);
        let (catalog, _) = made.map_err(|faults| ReadError::Unfit(found.revision, faults))?;
        for _ in 0..history::TRIES {
            let past = history::past(catalog.clone(), &found.rows, now).map_err(ReadError::Failed)?;
            if past.write_down(self.history.as_ref(), tenant).await.map_err(ReadError::Failed)? {
                found.rows.extend(past.new.iter().cloned());
                let source = found.text().map_err(ReadError::Failed)?;
                return Ok(Read { catalog: past.catalog, needed: past.needed, source, makeshift: false });
            }
            let rows = self.history.limit_rows(tenant).await;
            found.rows = rows.map_err(|error| ReadError::Failed(error.into()))?;
        }
        Err(ReadError::Failed(anyhow::anyhow!(
            "other gateways write the history of the limits faster than this one can follow"
        )))
    }

    /// Opens quotas from what the journal has of their period: the first time before this returns, if that is soon; then
    /// in further rounds, for calls that end without the new account.
    pub(crate) async fn open(
        &self,
        catalog: &Catalog,
        needed: Vec<OpeningNeeded>,
        (openings, mut stop): (&Arc<Openings>, watch::Receiver<bool>),
    ) -> Opening {
        let (opened, first) = oneshot::channel();
        let (journal, openings) = (Arc::clone(&self.journal), Arc::clone(openings));
        let (catalog, quotas) = (catalog.clone(), needed.clone());
        let task = tokio::spawn(async move {
            let list = loop {
                match history::openings(&quotas, &catalog, journal.as_ref()).await {
                    Ok(list) => break list,
                    Err(error) => tracing::warn!(%error, "new quotas begin empty; they are opened later"),
                }
                tokio::select! {
                    () = tokio::time::sleep(OPEN_AGAIN) => {}
                    () = stopped(&mut stop) => return,
                }
            };
            drop(catalog);
            // Whoever waited may have gone on.
            openings.run_telling(&list, || _ = opened.send(()), stop).await;
        });
        let opening = Opening { task: task.abort_handle(), needed };
        if tokio::time::timeout(OPEN_WITHIN, first).await.is_err() {
            tracing::warn!("new quotas begin before all of them are opened");
        }
        opening
    }
}

/// What another gateway has read; nothing where it is none of ours, or its limits' past has to be written first.
fn cached_read(tenant: &str, ground: &Ground, source: Cached, now: u64) -> Option<Read> {
    let (found, past) = past_of(tenant, ground, &source, now)?;
    drop(found);
    let is_whole = past.new.is_empty();
    is_whole.then_some(Read { catalog: past.catalog, needed: past.needed, source, makeshift: false })
}

/// What was read before, on other ground; nothing where the tenant's plan has changed since, so that the store may have
/// more of its limits' past, or some of that has to be written first.
pub(crate) fn moved(tenant: &str, ground: &Ground, kept: &Packed, now: u64) -> Option<Read> {
    let source = kept.unpack()?;
    let (found, past) = past_of(tenant, ground, &source, now)?;
    let plan = found.objects.get(&ObjectName::tenant(tenant)).and_then(|kept| match &kept.form {
        Form::Tenant(tenant) => tenant.plan.clone(),
        _ => None,
    });
    let plan = plan.and_then(|plan| ground.common.get(&ObjectName::common(ObjectKind::Plan, &plan)));
    let is_whole = past.new.is_empty() && plan.is_none_or(|plan| plan.version <= source.revision);
    is_whole.then_some(Read { catalog: past.catalog, needed: past.needed, source, makeshift: false })
}

/// The same while the store is away: what it may have more of the limits' past is read when it is back, and so is written
/// what is to be written.
pub(crate) fn makeshift(tenant: &str, ground: &Ground, kept: &Packed, now: u64) -> Option<Read> {
    let (mut found, past) = past_of(tenant, ground, &kept.unpack()?, now)?;
    found.rows.extend(past.new);
    let source = found.text().ok()?;
    Some(Read { catalog: past.catalog, needed: past.needed, source, makeshift: true })
}

fn past_of(tenant: &str, ground: &Ground, source: &Cached, now: u64) -> Option<(Found, Past)> {
    let text: Text = serde_json::from_str(&source.text).ok()?;
    let found = found_in(tenant, source.revision, text)?;
    let made = ground.whole.of_tenant(&ground.snapshot.catalog, &ground.common, &found.objects);
    let past = history::past(made.ok()?.0, &found.rows, now).ok()?;
    Some((found, past))
}

impl Found {
    fn text(&self) -> anyhow::Result<Cached> {
        let objects = self.objects.iter().map(|(name, kept)| TextObject {
            kind: name.kind.word().to_owned(),
            project: name.project.clone(),
            id: name.id.clone(),
            version: kept.version,
            document: kept.document.clone(),
            created_at: kept.created_at,
            changed_at: kept.changed_at,
        });
        let limits = self.rows.iter().map(|row| TextRow {
            limit: row.limit.to_string(),
            version: row.version,
            seen_at: row.seen_at,
            definition: row.definition.clone(),
        });
        let text = Text { objects: objects.collect(), limits: limits.collect() };
        Ok(Cached { revision: self.revision, text: serde_json::to_string(&text)? })
    }
}

fn found_in(tenant: &str, revision: u64, text: Text) -> Option<Found> {
    let mut objects = Vec::with_capacity(text.objects.len());
    for TextObject { kind, project, id, version, document, created_at, changed_at } in text.objects {
        let kind = ObjectKind::ALL.into_iter().find(|known| known.word() == kind)?;
        let name = ObjectName { kind, tenant: tenant.to_owned(), project, id };
        objects.push(Object { name, version, document, created_at, changed_at });
    }
    let row = |row: TextRow| LimitRow {
        limit: Name::from(row.limit),
        version: row.version,
        seen_at: row.seen_at,
        digest: *blake3::hash(row.definition.as_bytes()).as_bytes(),
        definition: row.definition,
    };
    let rows = text.limits.into_iter().map(row).collect();
    Some(Found { revision, objects: directory(objects).ok()?, rows })
}

/// Objects by name, typed.
pub(super) fn directory(objects: Vec<Object>) -> Result<Directory, Unreadable> {
    objects.into_iter().map(kept_of).collect()
}

/// One of them.
pub(super) fn kept_of(object: Object) -> Result<(ObjectName, Arc<Kept>), Unreadable> {
    let Object { name, version, document, created_at, changed_at } = object;
    let kept = kept(&name, document, version, (created_at, changed_at))?;
    Ok((name, Arc::new(kept)))
}
