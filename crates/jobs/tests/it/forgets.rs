//! What the cache has to forget, while it is there and while it is not.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_jobs::{FORGETS_EVERY, FORGETS_MAX, Forgets};
use tollbook_store::{Cached, ConfigCache, Look};
use tollbook_store_suite::MemoryCache;
use tollbook_telemetry::Metrics;

struct World {
    cache: Arc<MemoryCache>,
    metrics: Arc<Metrics>,
    forgets: Arc<Forgets>,
}

impl World {
    fn new() -> Self {
        let (cache, metrics) = (Arc::<MemoryCache>::default(), Arc::new(Metrics::new()));
        let forgets = Arc::new(Forgets::new(cache.clone(), Arc::clone(&metrics)));
        Self { cache, metrics, forgets }
    }

    async fn fill(&self, id: &str, revision: u64) -> bool {
        let Look::Gap(gap) = self.cache.get(id, 0).await.unwrap() else { panic!("{id} is kept") };
        self.cache.put(gap, id, &Cached { revision, text: "{}".to_owned() }).await.unwrap()
    }

    async fn is_kept(&self, id: &str) -> bool {
        matches!(self.cache.get(id, 0).await.unwrap(), Look::Kept(_))
    }

    fn waiting(&self) -> u64 {
        u64::try_from(self.metrics.objects_forgets_waiting.get(())).unwrap()
    }
}

fn of(id: &str, revision: u64) -> Vec<(String, u64)> {
    vec![(id.to_owned(), revision)]
}

#[tokio::test]
async fn what_can_be_delivered_is_at_once() {
    let world = World::new();
    assert!(world.fill("a", 5).await);
    assert!(world.forgets.forget(&of("a", 6)).await);
    assert!(!world.is_kept("a").await);
    assert_eq!(world.waiting(), 0);
    assert_eq!(world.forgets.once().await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_waits_until_the_cache_is_back() {
    let world = World::new();
    assert!(world.fill("a", 5).await && world.fill("b", 5).await && world.fill("c", 5).await);
    let (stop, stopped) = watch::channel(false);
    let forgets = Arc::clone(&world.forgets);
    let running = tokio::spawn(async move { forgets.run(stopped).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.cache.is_away(true);
    assert!(!world.forgets.forget(&of("a", 6)).await);
    assert!(!world.forgets.forget(&of("a", 9)).await);
    assert!(!world.forgets.forget(&of("b", 5)).await);
    assert_eq!(world.waiting(), 2);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.waiting(), 2);
    world.cache.is_away(false);
    tokio::time::sleep(FORGETS_EVERY + Duration::from_secs(1)).await;
    assert_eq!(world.waiting(), 0);
    assert!(!world.is_kept("a").await && !world.fill("a", 8).await && world.fill("a", 9).await);
    // It was read at the revision at which it changed.
    assert!(world.is_kept("b").await && world.is_kept("c").await);
    stop.send(true).unwrap();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_everything_older_is_forgotten() {
    let world = World::new();
    assert!(world.fill("a", 5).await && world.fill("b", 5).await && world.fill("new", 90_000).await);
    world.cache.is_away(true);
    let many: Vec<_> =
        (0..FORGETS_MAX as u64).map(|number| (format!("tenant {number}"), 10 + number)).collect();
    assert!(!world.forgets.forget(&many).await);
    assert_eq!(world.waiting(), FORGETS_MAX as u64);
    assert!(!world.forgets.forget(&of("a", 50_000)).await);
    assert!(!world.forgets.forget(&of("c", 60_000)).await);
    assert_eq!(world.waiting(), FORGETS_MAX as u64 + 1);
    world.cache.is_away(false);
    assert_eq!(world.forgets.once().await, Ok(1));
    assert_eq!(world.waiting(), 0);
    assert!(!world.is_kept("a").await && !world.is_kept("b").await && world.is_kept("new").await);
    assert!(!world.fill("b", 49_999).await);
    assert!(world.fill("b", 50_000).await);
    assert!(!world.is_kept("c").await && !world.fill("c", 59_999).await);
}

/// Whoever wrote the change may be gone before the cache has answered.
#[tokio::test]
async fn what_was_handed_over_waits_without_who_did() {
    let world = World::new();
    assert!(world.fill("a", 5).await);
    world.cache.is_away(true);
    let ids = of("a", 6);
    let forgetting = world.forgets.forget(&ids);
    assert!(!forgetting.await);
    world.cache.is_away(false);
    assert_eq!(world.forgets.once().await, Ok(1));
    assert!(!world.is_kept("a").await);
}
