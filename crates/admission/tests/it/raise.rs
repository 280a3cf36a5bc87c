//! A ceiling that is higher for a while.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollbook_admission::{Refused, Settings};
use tollbook_policy::{LimitDraft, Measure, RaiseDraft};

use crate::settling::used;
use crate::world::{World, daily};

/// Where the test's clock begins, UTC seconds.
const NOW: u64 = 1_800_000_000;

async fn pass(world: &World, seconds: u64) {
    world.clock.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn is_admitted(gateway: &World) -> bool {
    match gateway.admit(false).await {
        Ok(mut admitted) => {
            admitted.ticket.sending();
            admitted.ticket.end(&used(10, 5));
            true
        }
        Err(Refused::Limit(refusal)) => {
            assert_eq!(refusal.measure, Measure::Requests);
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Two a day and five more until an instant: the same at a gateway that has resolved its limits long ago and at one that
/// has just started, up to the second and from the second on.
#[tokio::test(start_paused = true)]
async fn b227_a_raise_holds_at_every_gateway_until_its_instant() {
    let raise = Some(RaiseDraft { by: 5, until: NOW + 600 });
    let limits = || vec![LimitDraft { raise, ..daily(Measure::Requests, 2) }];
    let warm = World::start(limits(), Settings::default(), None).await;
    let (engine, clock) = (Arc::clone(&warm.engine), Arc::clone(&warm.clock));
    let cold = || World::on(Arc::clone(&engine), Arc::clone(&clock), limits(), Settings::default(), None);
    for _ in 0..2 {
        assert!(is_admitted(&warm).await);
        assert!(is_admitted(&cold().await).await);
    }
    pass(&warm, 599).await;
    assert!(is_admitted(&warm).await, "the last second");
    assert!(is_admitted(&cold().await).await);
    pass(&warm, 1).await;
    // A seventh would have fitted.
    assert!(!is_admitted(&warm).await, "the instant");
    assert!(!is_admitted(&cold().await).await);
    assert_eq!(warm.balance(0).await, (6, 0), "what was used stays used");
}
