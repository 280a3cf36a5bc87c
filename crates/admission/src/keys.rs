//! Who shows a key, and what that one may use.
//!
//! A key is known by its keyed hash; why one is refused is not told. Where keys may have been made that this gateway cannot
//! know, none is called unknown: whoever is told so gives up for good.
//! A snapshot that has no callers of its own asks [`Callers`] for the tenant's: what was found before is there without
//! waiting; else the call waits for the lookup, and is told 503 where that fails.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::admit::Admission;
use crate::away;
use crate::refused::Refused;
use crate::snapshot::{Principal, Snapshot};

/// Who shows a key.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Somebody of the tenant whose snapshot this is.
    Of(Arc<Snapshot>),
    /// Nobody has the key.
    Nobody,
}

/// Callers cannot be looked up now; why is told where it happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("callers cannot be looked up now")]
pub struct CallersAway;

/// A lookup under way.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Caller, CallersAway>> + Send + 'a>>;

/// Finds callers, by the digest of what they show. Object safe.
///
/// What it finds stands on `base`: a call is decided by the tenant's limits and that one's models and prices together.
pub trait Callers: Send + Sync + 'static {
    /// What is known without waiting.
    fn known(&self, base: &Arc<Snapshot>, digest: &[u8; 32]) -> Option<Caller>;
    /// Looks the caller up.
    fn find<'a>(&'a self, base: &'a Arc<Snapshot>, digest: &'a [u8; 32]) -> Lookup<'a>;
}

impl Admission {
    /// Says whether keys may have been made that this gateway cannot know: one that it does not know is not told that it
    /// does not exist then.
    pub fn set_keys_behind(&self, behind: bool) {
        self.keys_behind.store(behind, Ordering::Relaxed);
    }

    /// Says where callers are looked up who are not in the snapshot itself; once, before the first call.
    pub fn set_callers(&self, callers: Arc<dyn Callers>) {
        // A second one is not meant, and changes nothing.
        let _ = self.callers.set(callers);
    }

    /// Finds who an API key belongs to, under a snapshot the caller has taken. `from`: the client's address, where that
    /// is looked at.
    ///
    /// # Errors
    /// `BadApiKey` for one that is unknown, disabled or expired; `KeysBehind` for one that cannot be looked up, or is
    /// unknown and may be new; `AddressForbidden` for a good one that may not call from there.
    pub async fn identify_in(
        &self,
        base: &Arc<Snapshot>,
        api_key: &str,
        from: Option<IpAddr>,
    ) -> Result<Principal, Refused> {
        let digest = base.api_key_hash.digest(api_key);
        let Some(callers) = self.callers.get() else {
            return come_from(self.principal(Arc::clone(base), digest)?, from);
        };
        let caller = if let Some(caller) = callers.known(base, &digest) {
            caller
        } else {
            let found = callers.find(base, &digest).await.map_err(|_| Refused::KeysBehind)?;
            self.note_found(&found, &digest);
            found
        };
        match caller {
            Caller::Of(snapshot) => come_from(self.principal(snapshot, digest)?, from),
            Caller::Nobody => Err(self.unknown()),
        }
    }

    /// Whether a caller is still who they were, under the snapshot that is in force now; no if it is not known.
    pub fn is_still(&self, base: &Arc<Snapshot>, caller: &Principal) -> bool {
        let Some(callers) = self.callers.get() else { return Arc::ptr_eq(base, caller.snapshot()) };
        let known = callers.known(base, caller.digest());
        matches!(known, Some(Caller::Of(snapshot)) if Arc::ptr_eq(&snapshot, caller.snapshot()))
    }

    /// Somebody who is new here may be one who is let in while the engine is away.
    fn note_found(&self, caller: &Caller, digest: &[u8; 32]) {
        let Caller::Of(snapshot) = caller else { return };
        let catalog = &snapshot.catalog;
        let admits = || catalog.key(digest).is_some_and(|key| away::admits(catalog, key, self.now_s()));
        if !self.admits_away.load(Ordering::Relaxed) && admits() {
            self.admits_away.store(true, Ordering::Relaxed);
        }
    }

    fn principal(&self, snapshot: Arc<Snapshot>, digest: [u8; 32]) -> Result<Principal, Refused> {
        let key = snapshot.catalog.key(&digest).ok_or_else(|| self.unknown())?;
        snapshot.catalog.check_key(key, &digest, self.now_s()).map_err(|_| Refused::BadApiKey)?;
        Principal::new(snapshot, digest).ok_or(Refused::BadApiKey)
    }

    fn unknown(&self) -> Refused {
        if self.keys_behind.load(Ordering::Relaxed) { Refused::KeysBehind } else { Refused::BadApiKey }
    }

    /// The models a caller may use, by id.
    pub fn models(&self, principal: &Principal) -> Vec<String> {
        let catalog = &principal.snapshot().catalog;
        let Some(key) = principal.key() else { return Vec::new() };
        catalog.models().iter().filter(|m| catalog.may_use(key, &m.id)).map(|m| m.id.clone()).collect()
    }
}

/// Whether somebody may call from where they do.
fn come_from(caller: Principal, from: Option<IpAddr>) -> Result<Principal, Refused> {
    let catalog = &caller.snapshot().catalog;
    let may = |from| caller.key().is_none_or(|key| catalog.may_come_from(key, from));
    if from.is_none_or(may) { Ok(caller) } else { Err(Refused::AddressForbidden) }
}
