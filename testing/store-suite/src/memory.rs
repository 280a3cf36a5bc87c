//! A cache in memory: gateways of one process share it. What ends it ends by hand; it has no clock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollbook_store::{
    Answer, CACHED_REVISION_MAX, Cached, ConfigCache, Gap, Look, StoreError, StoreErrorKind, is_cache_id,
    is_cacheable,
};

/// As the port tells.
#[derive(Debug, Default)]
pub struct MemoryCache {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The gaps that were handed out.
    gaps: u64,
    /// Nothing that was read before this revision counts.
    below: u64,
    known: BTreeMap<String, Known>,
    entries: BTreeMap<String, (u64, Cached)>,
    is_away: bool,
}

/// What is known of an id.
#[derive(Debug)]
struct Known {
    gap: u64,
    revision: u64,
}

impl MemoryCache {
    /// What is kept under an id has had its time.
    pub fn entry_ends(&self, id: &str) {
        self.inner().entries.remove(id);
    }

    /// What was forgotten of an id is not known any more.
    pub fn version_ends(&self, id: &str) {
        self.inner().known.remove(id);
    }

    /// Everything is gone.
    pub fn lose(&self) {
        let mut inner = self.inner();
        *inner = Inner { gaps: inner.gaps, is_away: inner.is_away, ..Inner::default() };
    }

    /// Every question fails, until it is back with all that it had.
    pub fn is_away(&self, is_away: bool) {
        self.inner().is_away = is_away;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T>(&self, verb: impl FnOnce(&mut Inner) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut inner = self.inner();
        if inner.is_away {
            return Err(StoreError::not_applied(StoreErrorKind::Away("the cache is away".to_owned())));
        }
        verb(&mut inner)
    }
}

impl Inner {
    fn known(&mut self, id: &str) -> &mut Known {
        if !self.known.contains_key(id) {
            self.gaps += 1;
            self.entries.remove(id);
        }
        let gap = self.gaps;
        self.known.entry(id.to_owned()).or_insert(Known { gap, revision: 0 })
    }

    fn get(&mut self, id: &str, least: u64) -> Look {
        let below = self.below;
        let known = self.known(id);
        known.revision = known.revision.max(least.min(CACHED_REVISION_MAX));
        let (gap, revision) = (known.gap, known.revision.max(below));
        match self.entries.get(id) {
            Some((of, read)) if *of == gap && read.revision >= revision => Look::Kept(read.clone()),
            _ => Look::Gap(Gap(gap)),
        }
    }

    fn put(&mut self, gap: Gap, id: &str, read: &Cached) -> bool {
        let Some(known) = self.known.get(id) else { return false };
        let newest = self.entries.get(id).filter(|(of, _)| *of == gap.0).map_or(0, |(_, read)| read.revision);
        let is_kept = known.gap == gap.0
            && read.revision >= known.revision.max(self.below).max(newest)
            && is_cacheable(read);
        if is_kept {
            self.entries.insert(id.to_owned(), (gap.0, read.clone()));
        }
        is_kept
    }

    fn forget(&mut self, id: &str, revision: u64) {
        let known = self.known(id);
        known.revision = known.revision.max(revision.min(CACHED_REVISION_MAX));
    }
}

impl ConfigCache for MemoryCache {
    fn get<'a>(&'a self, id: &'a str, least: u64) -> Answer<'a, Look> {
        Box::pin(async move {
            if !is_cache_id(id) {
                let why = "nothing is kept under such an id";
                return Err(StoreError::not_applied(StoreErrorKind::Refused(why)));
            }
            self.answer(|inner| Ok(inner.get(id, least)))
        })
    }

    fn put<'a>(&'a self, gap: Gap, id: &'a str, read: &'a Cached) -> Answer<'a, bool> {
        Box::pin(async move { self.answer(|inner| Ok(is_cache_id(id) && inner.put(gap, id, read))) })
    }

    fn forget<'a>(&'a self, ids: &'a [(String, u64)]) -> Answer<'a, ()> {
        Box::pin(async move {
            self.answer(|inner| {
                for (id, revision) in ids.iter().filter(|(id, _)| is_cache_id(id)) {
                    inner.forget(id, *revision);
                }
                Ok(())
            })
        })
    }

    fn forget_below(&self, revision: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            self.answer(|inner| {
                inner.below = inner.below.max(revision.min(CACHED_REVISION_MAX));
                Ok(())
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollbook_store::ConfigCache;

    use super::MemoryCache;
    use crate::Harness;

    struct Shared(Arc<MemoryCache>);

    impl Harness for Shared {
        fn gateway(&self) -> Arc<dyn ConfigCache> {
            self.0.clone()
        }

        fn entry_ends(&self, id: &str) {
            self.0.entry_ends(id);
        }

        fn version_ends(&self, id: &str) {
            self.0.version_ends(id);
        }

        fn lose(&self) {
            self.0.lose();
        }
    }

    fn memory() -> Box<dyn Harness> {
        Box::new(Shared(Arc::default()))
    }

    crate::cache_suite!(memory);
}
