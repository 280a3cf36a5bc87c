//! The cases of the cache: what was forgotten never comes back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use tollbook_store::{CACHE_ID_MAX, CACHED_MAX, CACHED_REVISION_MAX, Cached, ConfigCache, Gap, Look};

use crate::{DEADLINE, Harness, wait};

/// Updates that a slow reader races.
const RACES: u64 = 1_000;
/// Ids that one question forgets.
const MANY: u64 = 10_000;

fn read(revision: u64) -> Cached {
    Cached { revision, text: format!("as of {revision}") }
}

fn get(cache: &dyn ConfigCache, id: &str) -> Look {
    wait(cache.get(id, 0)).expect("the cache answers")
}

fn gap(cache: &dyn ConfigCache, id: &str) -> Gap {
    match get(cache, id) {
        Look::Gap(gap) => gap,
        Look::Kept(kept) => panic!("{id} is kept: {kept:?}"),
    }
}

fn put(cache: &dyn ConfigCache, gap: Gap, id: &str, revision: u64) -> bool {
    wait(cache.put(gap, id, &read(revision))).expect("the cache answers")
}

fn forget(cache: &dyn ConfigCache, id: &str, revision: u64) {
    wait(cache.forget(&[(id.to_owned(), revision)])).expect("the cache answers");
}

pub fn what_one_gateway_has_read_is_there_for_all(harness: &dyn Harness) {
    let (one, other) = (harness.gateway(), harness.gateway());
    let seen = gap(&*one, "acme");
    assert!(put(&*one, seen, "acme", 7));
    assert_eq!(get(&*other, "acme"), Look::Kept(read(7)));
    assert_eq!(get(&*one, "acme"), Look::Kept(read(7)));
    // And goes by itself.
    harness.entry_ends("acme");
    let seen = gap(&*other, "acme");
    assert!(put(&*one, seen, "acme", 7));
    assert_eq!(get(&*other, "acme"), Look::Kept(read(7)));
}

pub fn what_is_forgotten_is_gone_and_what_is_newer_stays(harness: &dyn Harness) {
    let (one, other) = (harness.gateway(), harness.gateway());
    let seen = gap(&*one, "acme");
    assert!(put(&*one, seen, "acme", 7));
    forget(&*other, "acme", 6);
    assert_eq!(get(&*one, "acme"), Look::Kept(read(7)));
    // Read at that very revision, with what changed then.
    forget(&*other, "acme", 7);
    assert_eq!(get(&*one, "acme"), Look::Kept(read(7)));
    forget(&*other, "acme", 8);
    let seen = gap(&*one, "acme");
    assert!(!put(&*one, seen, "acme", 7));
    gap(&*one, "acme");
    assert!(put(&*one, seen, "acme", 8));
    assert_eq!(get(&*other, "acme"), Look::Kept(read(8)));
}

pub fn a_version_is_never_lowered(harness: &dyn Harness) {
    let cache = harness.gateway();
    forget(&*cache, "acme", 9);
    forget(&*cache, "acme", 3);
    let seen = gap(&*cache, "acme");
    assert!(!put(&*cache, seen, "acme", 8));
    assert!(put(&*cache, seen, "acme", 9));
    // The largest that there is.
    forget(&*cache, "acme", u64::MAX);
    let seen = gap(&*cache, "acme");
    assert!(!put(&*cache, seen, "acme", CACHED_REVISION_MAX - 1));
    assert!(put(&*cache, seen, "acme", CACHED_REVISION_MAX));
}

pub fn of_two_readers_the_newer_counts(harness: &dyn Harness) {
    let (one, other) = (harness.gateway(), harness.gateway());
    let (first, second) = (gap(&*one, "acme"), gap(&*other, "acme"));
    assert!(put(&*one, first, "acme", 5));
    assert!(!put(&*other, second, "acme", 4));
    assert_eq!(get(&*other, "acme"), Look::Kept(read(5)));
    assert!(put(&*other, second, "acme", 5));
    assert!(put(&*other, second, "acme", 6));
    assert_eq!(get(&*one, "acme"), Look::Kept(read(6)));
}

pub fn who_knows_of_a_change_gets_nothing_older(harness: &dyn Harness) {
    let (one, other) = (harness.gateway(), harness.gateway());
    let seen = gap(&*one, "acme");
    assert!(put(&*one, seen, "acme", 5));
    assert_eq!(wait(other.get("acme", 5)).unwrap(), Look::Kept(read(5)));
    let Look::Gap(seen) = wait(other.get("acme", 6)).unwrap() else { panic!("an old one") };
    // Nobody gets it any more, whatever they know.
    gap(&*one, "acme");
    assert!(!put(&*one, seen, "acme", 5));
    assert!(put(&*other, seen, "acme", 6));
    assert_eq!(get(&*one, "acme"), Look::Kept(read(6)));
    // Of an id that nobody has asked for.
    let Look::Gap(seen) = wait(other.get("new", 6)).unwrap() else { panic!("from nowhere") };
    assert!(!put(&*one, seen, "new", 5));
    assert!(put(&*one, seen, "new", 6));
}

pub fn a_gap_is_filled_only_while_it_is_known(harness: &dyn Harness) {
    let cache = harness.gateway();
    let seen = gap(&*cache, "acme");
    harness.version_ends("acme");
    assert!(!put(&*cache, seen, "acme", 5), "nobody knows what was forgotten since");
    let again = gap(&*cache, "acme");
    assert_ne!(again, seen);
    assert!(!put(&*cache, seen, "acme", 5));
    assert!(put(&*cache, again, "acme", 5));
    // An entry alone does not count either.
    harness.version_ends("acme");
    let seen = gap(&*cache, "acme");
    harness.lose();
    assert!(!put(&*cache, seen, "acme", 5));
    assert!(!put(&*cache, Gap(0), "acme", 5));
    assert!(!put(&*cache, Gap(u64::MAX), "acme", 5));
    let again = gap(&*cache, "acme");
    assert!(!put(&*cache, seen, "acme", 5));
    assert!(put(&*cache, again, "acme", 5));
}

pub fn what_is_below_a_revision_is_gone_of_all_ids(harness: &dyn Harness) {
    let (one, other) = (harness.gateway(), harness.gateway());
    let ids: Vec<String> = (0..40).map(|number| format!("tenant {number}")).collect();
    let fill = |revision| {
        for id in &ids {
            let seen = gap(&*one, id);
            assert!(put(&*one, seen, id, revision), "{id}");
        }
    };
    fill(5);
    let slow = gap(&*one, "slow");
    wait(other.forget_below(5)).unwrap();
    assert!(ids.iter().all(|id| get(&*one, id) == Look::Kept(read(5))));
    wait(other.forget_below(8)).unwrap();
    wait(other.forget_below(6)).unwrap();
    assert!(!put(&*one, slow, "slow", 7));
    for id in &ids {
        let seen = gap(&*one, id);
        assert!(!put(&*one, seen, id, 7), "{id}");
    }
    fill(8);
    assert!(put(&*one, slow, "slow", 8));
    assert!(ids.iter().all(|id| get(&*other, id) == Look::Kept(read(8))));
}

/// The steps of a reader (asks, reads the store, puts) and of a writer (writes, forgets), in every order, with or without a
/// loss in between.
pub fn a_slow_reader_brings_nothing_old_back(harness: &dyn Harness) {
    let (reader, writer) = (harness.gateway(), harness.gateway());
    let orders = ["arpwf", "arwpf", "arwfp", "awrpf", "awrfp", "awfrp", "warpf", "warfp", "wafrp", "wfarp"];
    let losses: [&dyn Fn(); 4] =
        [&|| {}, &|| harness.version_ends("acme"), &|| harness.entry_ends("acme"), &|| harness.lose()];
    let (mut kept, mut refused, mut store) = (0, 0, 1_u64);
    for race in 0..RACES {
        let nth = usize::try_from(race).unwrap();
        let order = orders[nth % orders.len()];
        // Before which step something is lost.
        let (loss, lost_at) = (losses[nth / orders.len() % losses.len()], nth / 40 % 5);
        let (mut seen, mut value) = (None, 0);
        harness.entry_ends("acme");
        for (step, what) in order.chars().enumerate() {
            if step == lost_at {
                loss();
            }
            match what {
                'a' => {
                    seen = match get(&*reader, "acme") {
                        Look::Gap(gap) => Some(gap),
                        Look::Kept(_) => None,
                    }
                }
                'r' => value = store,
                'w' => store += 1,
                'f' => forget(&*writer, "acme", store),
                _ => {
                    let Some(seen) = seen else { continue };
                    let counts = if put(&*reader, seen, "acme", value) { &mut kept } else { &mut refused };
                    *counts += 1;
                }
            }
        }
        if let Look::Kept(found) = get(&*writer, "acme") {
            assert_eq!(found, read(store), "{order}, loss before step {lost_at}");
        }
    }
    assert!(kept > RACES / 4 && refused > RACES / 4, "{kept} were kept, {refused} were not");
}

/// The same without an order.
pub fn readers_and_writers_at_once_see_nothing_old(harness: &dyn Harness) {
    let gateways = [(); 3].map(|()| harness.gateway());
    let writer = harness.gateway();
    let (store, forgotten) = (Mutex::new(1_u64), AtomicU64::new(0));
    let (is_over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for gateway in &gateways {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let before = forgotten.load(Ordering::Acquire);
                    match get(&**gateway, "acme") {
                        Look::Kept(found) => {
                            assert!(found.revision >= before, "{found:?}, and {before} was forgotten before");
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                        Look::Gap(gap) => {
                            let value = *store.lock().unwrap();
                            thread::yield_now();
                            put(&**gateway, gap, "acme", value);
                        }
                    }
                }
            });
        }
        for _ in 0..RACES {
            let revision = {
                let mut store = store.lock().unwrap();
                *store += 1;
                *store
            };
            forget(&*writer, "acme", revision);
            forgotten.store(revision, Ordering::Release);
            if revision % 10 == 0 {
                // Somebody is served before it goes on.
                let (seen, began) = (hits.load(Ordering::Relaxed), Instant::now());
                while hits.load(Ordering::Relaxed) == seen && began.elapsed() < DEADLINE {
                    thread::yield_now();
                }
            }
        }
        is_over.store(true, Ordering::Release);
    });
    let hits = hits.load(Ordering::Relaxed);
    assert!(hits >= RACES / 10, "only {hits} were served");
}

pub fn bounds_hold(harness: &dyn Harness) {
    let cache = harness.gateway();
    let text = |length: usize| Cached { revision: 5, text: "x".repeat(length) };
    let longest = "i".repeat(CACHE_ID_MAX);
    let seen = gap(&*cache, &longest);
    assert!(!wait(cache.put(seen, &longest, &text(CACHED_MAX + 1))).unwrap());
    gap(&*cache, &longest);
    assert!(wait(cache.put(seen, &longest, &text(CACHED_MAX))).unwrap());
    assert_eq!(get(&*cache, &longest), Look::Kept(text(CACHED_MAX)));
    assert!(wait(cache.put(seen, &longest, &text(0))).unwrap());
    assert_eq!(get(&*cache, &longest), Look::Kept(text(0)));
    forget(&*cache, &longest, 6);
    let seen = gap(&*cache, &longest);
    assert!(!put(&*cache, seen, &longest, CACHED_REVISION_MAX + 1));
    assert!(put(&*cache, seen, &longest, CACHED_REVISION_MAX));
    assert_eq!(get(&*cache, &longest), Look::Kept(read(CACHED_REVISION_MAX)));
    for id in [format!("{longest}i"), String::new()] {
        assert!(wait(cache.get(&id, 0)).is_err());
        assert!(!put(&*cache, seen, &id, 5));
        // Nothing is kept of it, so nothing has to be forgotten.
        forget(&*cache, &id, 6);
    }
}

pub fn many_ids_are_forgotten_at_once(harness: &dyn Harness) {
    let cache = harness.gateway();
    let ids: Vec<(String, u64)> = (0..MANY).map(|number| (format!("tenant {number}"), number + 2)).collect();
    let some = || ids.iter().step_by(997);
    for (id, revision) in some() {
        let seen = gap(&*cache, id);
        assert!(put(&*cache, seen, id, revision - 1));
    }
    wait(cache.forget(&ids)).unwrap();
    wait(cache.forget(&[])).unwrap();
    for (id, revision) in some() {
        let seen = gap(&*cache, id);
        assert!(!put(&*cache, seen, id, revision - 1));
        assert!(put(&*cache, seen, id, *revision));
    }
}

pub fn ids_are_told_apart(harness: &dyn Harness) {
    let cache = harness.gateway();
    let ids = [
        "acme",
        "acme ",
        "Acme",
        "acme}",
        "{acme}",
        "{}",
        "}{",
        ":",
        "e:acme",
        "v:acme",
        "e:e:acme",
        "floor",
        "über",
        "u\u{308}ber",
        "a\0b",
        "a\r\nb",
        "*",
        "0",
        "1 2 3",
    ];
    for (revision, id) in (1..).zip(ids) {
        let seen = gap(&*cache, id);
        assert!(put(&*cache, seen, id, revision), "{id:?}");
    }
    for (revision, id) in (1..).zip(ids) {
        assert_eq!(get(&*cache, id), Look::Kept(read(revision)), "{id:?}");
    }
    forget(&*cache, "{acme}", 1_000);
    let left = ids.iter().filter(|id| matches!(get(&*cache, id), Look::Kept(_))).count();
    assert_eq!(left, ids.len() - 1);
}
