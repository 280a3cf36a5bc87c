//! Callers that are looked up tenant by tenant.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tollbook_admission::{
    Admission, ApiKeyHash, Caller, Callers, CallersAway, Lookup, Refused, Settings, Snapshot,
};
use tollbook_policy::{Catalog, Draft, Key, Project, Secret, Tenant};

use crate::world::{API_KEY, World};

/// What is found by a lookup, and after it without one.
#[derive(Default)]
struct Book {
    /// By what stands in the store; nothing: the store is away.
    stored: Mutex<Option<BTreeMap<[u8; 32], Catalog>>>,
    found: Mutex<BTreeMap<[u8; 32], Arc<Snapshot>>>,
    lookups: AtomicUsize,
}

impl Callers for Book {
    fn known(&self, _: &Arc<Snapshot>, digest: &[u8; 32]) -> Option<Caller> {
        self.found.lock().unwrap().get(digest).cloned().map(Caller::Of)
    }

    fn find<'a>(&'a self, base: &'a Arc<Snapshot>, digest: &'a [u8; 32]) -> Lookup<'a> {
        Box::pin(async move {
            self.lookups.fetch_add(1, Ordering::Relaxed);
            let stored = self.stored.lock().unwrap();
            let Some(catalog) = stored.as_ref().ok_or(CallersAway)?.get(digest) else {
                return Ok(Caller::Nobody);
            };
            let snapshot = Arc::new(base.with(catalog.clone()));
            self.found.lock().unwrap().insert(*digest, Arc::clone(&snapshot));
            Ok(Caller::Of(snapshot))
        })
    }
}

fn digest(api_key: &str) -> [u8; 32] {
    ApiKeyHash::new(None).digest(api_key)
}

/// A tenant with one key.
fn tenant(base: &Snapshot, api_key: &str, disabled: bool) -> Catalog {
    let (tenant, id) = ("globex".to_owned(), "web".to_owned());
    let key = Key {
        tenant: tenant.clone(),
        project: id.clone(),
        id: "k9".to_owned(),
        secrets: vec![Secret { digest: digest(api_key), expires_at: None }],
        disabled,
        expires_at: None,
        models: None,
        addresses: None,
        service: None,
    };
    let draft = Draft {
        tenants: vec![Tenant { id: tenant.clone(), disabled: false }],
        projects: vec![Project { tenant, id, disabled: false }],
        keys: vec![key],
        ..Draft::default()
    };
    Catalog::on(&base.catalog, draft).unwrap()
}

fn ask(admission: &Admission, book: &Arc<Book>) {
    admission.set_callers(Arc::clone(book) as Arc<dyn Callers>);
}

#[tokio::test]
async fn a_caller_is_looked_up_once_and_known_then() {
    let world = World::start(Vec::new(), Settings::default(), None).await;
    let (admission, base, book) = (&world.admission, world.admission.snapshot(), Arc::new(Book::default()));
    *book.stored.lock().unwrap() = Some(BTreeMap::from([(digest("sk-9"), tenant(&base, "sk-9", false))]));
    ask(admission, &book);
    for _ in 0..3 {
        let caller = admission.identify_in(&base, "sk-9", None).await.unwrap();
        assert_eq!(caller.key().unwrap().id, "k9");
        assert_eq!(admission.models(&caller), ["gpt"], "the models are the base's");
        assert!(admission.is_still(&base, &caller));
    }
    assert_eq!(book.lookups.load(Ordering::Relaxed), 1);
    let nobody = admission.identify_in(&base, "sk-none", None).await;
    assert!(matches!(nobody, Err(Refused::BadApiKey)), "{nobody:?}");
    // The base's own callers are not asked where others say who calls.
    let own = admission.identify_in(&base, API_KEY, None).await;
    assert!(matches!(own, Err(Refused::BadApiKey)), "{own:?}");
}

#[tokio::test]
async fn where_lookups_fail_nobody_is_called_unknown() {
    let world = World::start(Vec::new(), Settings::default(), None).await;
    let (admission, base, book) = (&world.admission, world.admission.snapshot(), Arc::new(Book::default()));
    ask(admission, &book);
    let away = admission.identify_in(&base, "sk-9", None).await;
    assert!(matches!(away, Err(Refused::KeysBehind)), "{away:?}");
    *book.stored.lock().unwrap() = Some(BTreeMap::new());
    let unknown = admission.identify_in(&base, "sk-9", None).await;
    assert!(matches!(unknown, Err(Refused::BadApiKey)), "{unknown:?}");
    admission.set_keys_behind(true);
    let behind = admission.identify_in(&base, "sk-9", None).await;
    assert!(matches!(behind, Err(Refused::KeysBehind)), "{behind:?}");
}

/// What changes while a body comes is seen before the call is admitted.
#[tokio::test]
async fn a_caller_that_changed_is_not_still_the_same() {
    let world = World::start(Vec::new(), Settings::default(), None).await;
    let (admission, base, book) = (&world.admission, world.admission.snapshot(), Arc::new(Book::default()));
    *book.stored.lock().unwrap() = Some(BTreeMap::from([(digest("sk-9"), tenant(&base, "sk-9", false))]));
    ask(admission, &book);
    let caller = admission.identify_in(&base, "sk-9", None).await.unwrap();
    book.found.lock().unwrap().clear();
    assert!(!admission.is_still(&base, &caller));
    *book.stored.lock().unwrap() = Some(BTreeMap::from([(digest("sk-9"), tenant(&base, "sk-9", true))]));
    let disabled = admission.identify_in(&base, "sk-9", None).await;
    assert!(matches!(disabled, Err(Refused::BadApiKey)), "{disabled:?}");
}
