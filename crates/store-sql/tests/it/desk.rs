//! Versions of the price book, and leases of jobs.

use std::time::Duration;

use tollbook_store::{JobLeases, PRICE_BOOK_MAX, PriceBooks, StoreErrorKind};

use crate::make::{World, both};

both!(
    a_version_keeps_what_it_said_first,
    the_newest_versions_come_first,
    a_price_book_at_its_bound_is_kept_and_not_one_byte_more,
    one_gateway_has_the_lease_of_a_job,
);

/// As large as an entry of the journal can name.
const LARGEST: u64 = (1 << 63) - 1;

async fn a_version_keeps_what_it_said_first(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    let said = r#"{"models":{"ü":{"input":"1"}}}"#;
    assert_eq!(one.price_book_keep(LARGEST, said).await, Ok(true));
    assert_eq!(other.price_book_keep(LARGEST, "something else").await, Ok(false));
    let kept = other.price_book(LARGEST).await.unwrap().unwrap();
    assert_eq!((kept.version, kept.document.as_str()), (LARGEST, said));
    assert!(kept.first_at > 1_700_000_000_000, "{}", kept.first_at);
    assert_eq!(one.price_book(1).await, Ok(None));
}

async fn the_newest_versions_come_first(world: World) {
    let store = world.open().await;
    for version in [7, 3, 5] {
        store.price_book_keep(version, "{}").await.unwrap();
    }
    let all = store.price_versions(100).await.unwrap();
    assert!(all.len() == 3 && all.is_sorted_by(|a, b| a.1 >= b.1), "{all:?}");
    assert_eq!(store.price_versions(2).await.unwrap(), all[..2]);
}

async fn a_price_book_at_its_bound_is_kept_and_not_one_byte_more(world: World) {
    let store = world.open().await;
    let mut document = "x".repeat(PRICE_BOOK_MAX);
    assert_eq!(store.price_book_keep(1, &document).await, Ok(true));
    assert_eq!(store.price_book(1).await.unwrap().unwrap().document.len(), PRICE_BOOK_MAX);
    document.push('x');
    let refused = store.price_book_keep(2, &document).await.unwrap_err();
    assert!(matches!(refused.kind, StoreErrorKind::Refused(_)), "{refused:?}");
}

async fn one_gateway_has_the_lease_of_a_job(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    let (long, none) = (Duration::from_mins(1), Duration::ZERO);
    assert_eq!(one.job_lease("a", 1, long).await, Ok(true));
    assert_eq!(other.job_lease("a", 2, long).await, Ok(false));
    assert_eq!(one.job_lease("a", 1, long).await, Ok(true), "it is kept");
    assert_eq!(other.job_lease("b", 2, long).await, Ok(true), "another job's is another one");
    // Only who has it gives it back.
    other.job_leave("a", 2).await.unwrap();
    assert_eq!(other.job_lease("a", 2, long).await, Ok(false));
    one.job_leave("a", 1).await.unwrap();
    assert_eq!(other.job_lease("a", 2, none).await, Ok(true));
    // It has ended by the store's clock.
    assert_eq!(one.job_lease("a", u64::MAX, long).await, Ok(true));
}
