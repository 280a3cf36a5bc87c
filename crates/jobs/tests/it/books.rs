//! The journal equals the engine: after any mix of endings and drains, what the journal has posted to each quota is what
//! the engine has, and the entries of each call sum to its truth.

use proptest::prelude::*;
use tollbook_ledger::units::SECOND;
use tollbook_ledger::{Met, ReleaseWhy};

use crate::world::{World, failed, llm_tokens, requests, sum};

/// How a call ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Settle(i64),
    Fail,
    NeverSent,
    Expire,
    ExpireThenSettle(i64),
    ExpireThenFail,
    ExpireThenNeverSent,
    DoorThenSettle(i64),
    DoorThenNeverSent,
    SettleTwice(i64),
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![
        (0..60_i64).prop_map(End::Settle),
        Just(End::Fail),
        Just(End::NeverSent),
        Just(End::Expire),
        (0..60_i64).prop_map(End::ExpireThenSettle),
        Just(End::ExpireThenFail),
        Just(End::ExpireThenNeverSent),
        (0..60_i64).prop_map(End::DoorThenSettle),
        Just(End::DoorThenNeverSent),
        (0..60_i64).prop_map(End::SettleTwice),
    ]
}

/// The truth of a call: requests, llm_tokens. Input is 10, the expected demand 30.
fn truth(end: End) -> (i64, i64) {
    match end {
        End::Settle(output)
        | End::ExpireThenSettle(output)
        | End::DoorThenSettle(output)
        | End::SettleTwice(output) => (1, 10 + output),
        End::Fail | End::ExpireThenFail => (1, 0),
        End::NeverSent | End::ExpireThenNeverSent | End::DoorThenNeverSent => (0, 0),
        End::Expire => (1, 30),
    }
}

async fn begin(world: &World, id: u128, end: End) {
    match end {
        End::DoorThenSettle(_) | End::DoorThenNeverSent => world.reserve(id).await,
        _ => world.send(id).await,
    }
}

async fn before_expiry(world: &World, id: u128, end: End) {
    match end {
        End::Settle(output) => assert_eq!(world.settle(id, output).await.before, Met::Held),
        End::SettleTwice(output) => {
            world.settle(id, output).await;
            assert!(matches!(world.settle(id, output + 1).await.before, Met::Ended(_)));
        }
        End::Fail => drop(world.release(id, ReleaseWhy::Failed, Some(failed(id))).await),
        End::NeverSent => drop(world.release(id, ReleaseWhy::NeverSent, None).await),
        _ => {}
    }
}

async fn after_expiry(world: &World, id: u128, end: End) {
    match end {
        End::ExpireThenSettle(output) | End::DoorThenSettle(output) => {
            assert_eq!(world.settle(id, output).await.before, Met::Late);
        }
        End::ExpireThenFail => {
            assert_eq!(world.release(id, ReleaseWhy::Failed, Some(failed(id))).await, Met::Late);
        }
        End::ExpireThenNeverSent | End::DoorThenNeverSent => {
            assert_eq!(world.release(id, ReleaseWhy::NeverSent, None).await, Met::Late);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_journal_equals_the_engine_after_any_mix_of_endings(
        calls in prop::collection::vec((ends(), any::<bool>()), 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new().await;
            for (id, (end, _)) in (1..).zip(&calls) {
                begin(&world, id, *end).await;
            }
            for (id, (end, drain)) in (1..).zip(&calls) {
                before_expiry(&world, id, *end).await;
                if *drain {
                    world.drained().await;
                }
            }
            world.pass(61 * SECOND);
            world.swept().await;
            for (id, (end, drain)) in (1..).zip(&calls) {
                after_expiry(&world, id, *end).await;
                if *drain {
                    world.drained().await;
                }
            }
            world.drained().await;
            let (mut all_requests, mut all_llm_tokens) = (0, 0);
            for (id, (end, _)) in (1..).zip(&calls) {
                let (requests, llm_tokens, _) = sum(&world.entries(id).await);
                assert_eq!((requests, llm_tokens), truth(*end), "{end:?}");
                all_requests += requests;
                all_llm_tokens += llm_tokens;
            }
            for (account, total) in [(llm_tokens(), all_llm_tokens), (requests(), all_requests)] {
                assert_eq!(world.journaled(account).await, total);
                assert_eq!(world.balance(account).await, total);
            }
        });
    }
}
