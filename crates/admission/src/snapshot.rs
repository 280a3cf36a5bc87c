//! One version of the configuration, as admission uses it.
//!
//! A call takes one snapshot at its door and keeps it to its end, so no call is handled under two versions (B234). Where
//! callers are looked up tenant by tenant, that is its tenant's: the same models and prices, and a catalog on top of theirs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::counting::Counting;
use tollbook_policy::{Catalog, Key, PeriodTable};
use tollbook_pricing::{ModelFacts, PriceBook};
use tollbook_wire::{Dialect, Surface, Surfaces};

/// Everything configured about callers, models and prices.
#[derive(Debug)]
pub struct Snapshot {
    /// Rises with every change; told in metrics.
    pub generation: u64,
    pub catalog: Arc<Catalog>,
    pub prices: Arc<PriceBook>,
    /// By model id (not alias); one for every model of the catalog.
    pub models: Arc<BTreeMap<String, ModelPlan>>,
    pub api_key_hash: ApiKeyHash,
    /// Of the catalog's quotas, as last asked for.
    periods: RwLock<Arc<PeriodTable>>,
}

impl Snapshot {
    pub fn new(
        generation: u64,
        catalog: impl Into<Arc<Catalog>>,
        prices: impl Into<Arc<PriceBook>>,
        models: impl Into<Arc<BTreeMap<String, ModelPlan>>>,
        api_key_hash: ApiKeyHash,
    ) -> Self {
        let (catalog, prices, models) = (catalog.into(), prices.into(), models.into());
        Self { generation, catalog, prices, models, api_key_hash, periods: RwLock::default() }
    }

    /// The same with another catalog, of one generation with it.
    #[must_use]
    pub fn with(&self, catalog: Catalog) -> Self {
        Self {
            generation: self.generation,
            catalog: Arc::new(catalog),
            prices: Arc::clone(&self.prices),
            models: Arc::clone(&self.models),
            api_key_hash: self.api_key_hash.clone(),
            periods: RwLock::default(),
        }
    }

    /// The periods of its quotas around `now` (UTC seconds).
    pub(crate) fn periods(&self, now: u64) -> Arc<PeriodTable> {
        let held = Arc::clone(&self.periods.read().unwrap_or_else(PoisonError::into_inner));
        if held.valid(now) {
            return held;
        }
        let table = Arc::new(PeriodTable::new(self.catalog.calendars(), now));
        *self.periods.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&table);
        table
    }
}

/// How one model is served and counted.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    /// Calls come in this dialect, and its targets speak it.
    pub dialect: Dialect,
    /// Of that dialect's surfaces, those the targets serve.
    pub surfaces: Surfaces,
    /// In order of preference; the first is used until fallbacks are built.
    pub targets: Vec<Target>,
    pub facts: ModelFacts,
    /// How its input is counted.
    pub counting: Counting,
}

impl ModelPlan {
    /// Whether calls may come on a surface.
    pub fn serves(&self, surface: Surface) -> bool {
        surface.dialect() == self.dialect && self.surfaces.contains(surface)
    }
}

/// One upstream account × model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The pool its own limits hang on.
    pub pool: String,
    /// Name of the upstream.
    pub upstream: String,
    /// What the model is called there.
    pub model: String,
}

/// The keyed hash API keys are stored and looked up by.
#[derive(Clone)]
pub struct ApiKeyHash {
    pepper: [u8; 32],
}

impl ApiKeyHash {
    /// From a configured pepper of any length; without one, from a fixed text (API keys are 256 random bits).
    pub fn new(pepper: Option<&str>) -> Self {
        Self { pepper: blake3::derive_key("tollbook api key 1", pepper.unwrap_or_default().as_bytes()) }
    }

    /// The digest of an API key.
    pub fn digest(&self, api_key: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.pepper, api_key.as_bytes()).as_bytes()
    }
}

impl std::fmt::Debug for ApiKeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKeyHash")
    }
}

/// A caller whose API key was found valid, under one snapshot.
#[derive(Clone, Debug)]
pub struct Principal {
    snapshot: Arc<Snapshot>,
    digest: [u8; 32],
}

impl Principal {
    /// A key by its id, for operators. `None` when the snapshot knows none.
    pub fn of_key(snapshot: Arc<Snapshot>, id: &str) -> Option<Self> {
        let key = snapshot.catalog.keys().iter().find(|key| key.id == id)?;
        let digest = key.secrets.first()?.digest;
        Self::new(snapshot, digest)
    }

    /// `None` when the snapshot knows no key of that digest.
    pub(crate) fn new(snapshot: Arc<Snapshot>, digest: [u8; 32]) -> Option<Self> {
        snapshot.catalog.key(&digest)?;
        Some(Self { snapshot, digest })
    }

    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub(crate) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The key it was found by. Always there: [`Principal::new`] looked it up in the same snapshot.
    pub fn key(&self) -> Option<&Key> {
        self.snapshot.catalog.key(&self.digest)
    }
}
