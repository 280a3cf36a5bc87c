//! Expiry, and what comes after it (L7, L8): the entries of a call sum to the truth.

use tollbook_ledger::units::SECOND;
use tollbook_ledger::{Met, ReleaseWhy};
use tollbook_store::{Ending, Figures, Origin};

use crate::world::{World, failed, llm_tokens, requests, sum};

#[tokio::test]
async fn l07_an_expired_hold_that_charges_is_an_entry_of_the_expected_demand() {
    let world = World::new().await;
    world.send(1).await;
    world.pass(61 * SECOND);
    assert_eq!(world.swept().await.expired, 1);
    world.drained().await;
    let entries = world.entries(1).await;
    let entry = &entries[0];
    assert_eq!(
        (entry.origin, entry.body.figures, entry.body.ending),
        (Origin::Expired, Figures::Expired, Ending::Expired)
    );
    assert_eq!((entry.body.usage.input, entry.body.usage.output), (10, 20));
    assert_eq!(sum(&entries), (1, 30, 3_000));
    assert_eq!((world.journaled(llm_tokens()).await, world.balance(llm_tokens()).await), (30, 30));
    assert_eq!(&*entry.body.tenant, "acme");
}

#[tokio::test]
async fn l08_a_late_settle_is_a_correction_and_the_sum_is_the_truth() {
    let world = World::new().await;
    world.send(1).await;
    world.pass(61 * SECOND);
    world.swept().await;
    world.drained().await;
    assert_eq!(world.settle(1, 5).await.before, Met::Late);
    world.drained().await;
    let entries = world.entries(1).await;
    assert_eq!((entries.len(), entries[1].seq, entries[1].origin), (2, 1, Origin::Late));
    assert_eq!(entries[1].body.usage.output, -15);
    assert_eq!(sum(&entries), (1, 15, 1_500));
    assert_eq!((world.journaled(llm_tokens()).await, world.balance(llm_tokens()).await), (15, 15));
    assert_eq!((world.journaled(requests()).await, world.balance(requests()).await), (1, 1));
}

/// Expiry and correction in one batch: the correction looks at the entry before it in the batch.
#[tokio::test]
async fn l08_a_late_settle_drained_with_its_expiry_sums_the_same() {
    let world = World::new().await;
    world.send(1).await;
    world.pass(61 * SECOND);
    world.swept().await;
    world.settle(1, 5).await;
    assert_eq!(world.drained().await.inserted, 2);
    assert_eq!(sum(&world.entries(1).await), (1, 15, 1_500));
    assert_eq!(world.journaled(llm_tokens()).await, 15);
}

/// Expired at the door, everything was given back; the call went on and its late settle posts all of it.
#[tokio::test]
async fn l08_a_late_settle_after_an_expiry_at_the_door_is_the_whole_call() {
    let world = World::new().await;
    world.reserve(1).await;
    world.pass(16 * SECOND);
    assert_eq!(world.swept().await.expired, 1);
    world.drained().await;
    assert!(world.entries(1).await.is_empty());
    assert_eq!(world.settle(1, 5).await.before, Met::Late);
    world.drained().await;
    let entries = world.entries(1).await;
    assert_eq!((entries.len(), entries[0].seq), (1, 1));
    assert_eq!(sum(&entries), (1, 15, 1_500));
    assert_eq!((world.journaled(llm_tokens()).await, world.balance(llm_tokens()).await), (15, 15));
    assert_eq!((world.journaled(requests()).await, world.balance(requests()).await), (1, 1));
}

#[tokio::test]
async fn l08_a_late_release_takes_the_charge_back() {
    let world = World::new().await;
    world.send(1).await;
    world.pass(61 * SECOND);
    world.swept().await;
    assert_eq!(world.release(1, ReleaseWhy::Failed, Some(failed(1))).await, Met::Late);
    world.drained().await;
    let entries = world.entries(1).await;
    assert_eq!(sum(&entries), (1, 0, 0));
    assert_eq!((world.journaled(llm_tokens()).await, world.balance(llm_tokens()).await), (0, 0));
}

/// A release that writes no body is told from the entry it takes back.
#[tokio::test]
async fn l08_a_late_release_without_a_body_is_of_the_call_it_takes_back() {
    let world = World::new().await;
    world.send(1).await;
    world.pass(61 * SECOND);
    world.swept().await;
    assert_eq!(world.release(1, ReleaseWhy::NeverSent, None).await, Met::Late);
    world.drained().await;
    let entries = world.entries(1).await;
    assert_eq!(
        (entries.len(), &*entries[1].body.tenant, entries[1].body.ending),
        (2, "acme", Ending::NeverSent)
    );
    assert_eq!(sum(&entries), (0, 0, 0));
    assert_eq!((world.journaled(llm_tokens()).await, world.balance(llm_tokens()).await), (0, 0));
    assert_eq!((world.journaled(requests()).await, world.balance(requests()).await), (0, 0));
}

#[tokio::test]
async fn l08_a_late_release_of_a_call_that_expired_at_the_door_tells_nothing() {
    let world = World::new().await;
    world.reserve(1).await;
    world.pass(16 * SECOND);
    world.swept().await;
    assert_eq!(world.release(1, ReleaseWhy::NeverSent, None).await, Met::Late);
    assert_eq!(world.drained().await.inserted, 0);
    assert!(world.entries(1).await.is_empty());
    assert_eq!(world.drained().await.repeated, 0);
}
