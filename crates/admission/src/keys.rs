//! Who shows a key, and what that one may use.
//!
//! A key is known by its keyed hash; why one is refused is not told. Where keys may have been made that this gateway cannot
//! know, none is called unknown: whoever is told so gives up for good.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::admit::Admission;
use crate::refused::Refused;
use crate::snapshot::{Principal, Snapshot};

impl Admission {
    /// Says whether keys may have been made that this gateway cannot know: one that it does not know is not told that it
    /// does not exist then.
    pub fn set_keys_behind(&self, behind: bool) {
        self.keys_behind.store(behind, Ordering::Relaxed);
    }

    /// Finds who an API key belongs to.
    ///
    /// # Errors
    /// `BadApiKey` for one that is unknown, disabled or expired; `KeysBehind` for an unknown one that may be new.
    pub fn identify(&self, api_key: &str) -> Result<Principal, Refused> {
        self.identify_in(&self.snapshot(), api_key)
    }

    /// The same under a snapshot the caller has taken.
    ///
    /// # Errors
    /// `BadApiKey` for one that is unknown, disabled or expired.
    pub fn identify_in(&self, snapshot: &Arc<Snapshot>, api_key: &str) -> Result<Principal, Refused> {
        let digest = snapshot.api_key_hash.digest(api_key);
        self.principal(snapshot, digest)
    }

    pub(crate) fn principal(&self, snapshot: &Arc<Snapshot>, digest: [u8; 32]) -> Result<Principal, Refused> {
        let unknown = || {
            if self.keys_behind.load(Ordering::Relaxed) { Refused::KeysBehind } else { Refused::BadApiKey }
        };
        let key = snapshot.catalog.key(&digest).ok_or_else(unknown)?;
        snapshot.catalog.check_key(key, &digest, self.now_s()).map_err(|_| Refused::BadApiKey)?;
        Principal::new(Arc::clone(snapshot), digest).ok_or(Refused::BadApiKey)
    }

    /// The models a caller may use, by id.
    pub fn models(&self, principal: &Principal) -> Vec<String> {
        let catalog = &principal.snapshot().catalog;
        let Some(key) = principal.key() else { return Vec::new() };
        catalog.models().iter().filter(|m| catalog.may_use(key, &m.id)).map(|m| m.id.clone()).collect()
    }
}
