//! Any order and any repetition of batches give the same totals, sums and entries.

use proptest::prelude::*;
use tollbook_ledger::ReservationId;
use tollbook_store::{Entry, Journal, Name, Origin, PostedSum, Side, Total};
use tollbook_store_sql::SqlStore;

use crate::make::{at, call, leg, store, totals};

/// Small worlds, so that keys, days and accounts meet often.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (0..6_u128, 0..2_u16, 0..3_u16, 0..3_u32, any::<bool>(), any::<bool>(), -50..50_i64);
    prop::collection::vec(one, 1..24).prop_map(|all| {
        let mut entries: Vec<Entry> = Vec::new();
        for (id, attempt, seq, day, pool, other, amount) in all {
            let mut entry = Entry { attempt, seq, admitted_at: at(day, 1), ..call(id) };
            entry.body.side = if pool { Side::Pool } else { Side::Tenant };
            entry.body.tenant = Name::from(if other { "other" } else { "acme" });
            entry.body.usage.input = amount;
            entry.body.cost_nano = amount * 1_000;
            entry.posted = vec![leg(1, u64::from(other), u64::from(day), amount)];
            if amount % 7 == 0 {
                (entry.origin, entry.posted) = (Origin::Unbooked, Vec::new());
            }
            // One content per key: what the engine promises.
            if entries.iter().all(|e| e.key() != entry.key()) {
                entries.push(entry);
            }
        }
        entries
    })
}

/// Everything a reader can see.
type Seen = (Vec<Total>, Vec<Total>, Vec<PostedSum>, Vec<Vec<Entry>>);

async fn seen(store: &SqlStore) -> Seen {
    let mut entries = Vec::new();
    for id in 0..6 {
        entries.push(store.by_reservation(ReservationId(id)).await.unwrap());
    }
    let sums = store.posted_sums(0, None, 1000).await.unwrap();
    (totals(store, Side::Tenant).await, totals(store, Side::Pool).await, sums, entries)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_order_and_repetition_of_batches_gives_the_same_books(
        entries in entries(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 1..6_usize), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_one, straight) = store().await;
            straight.append(&entries).await.unwrap();
            let (_two, shuffled) = store().await;
            let mut inserted = 0;
            for (start, length) in picks {
                let start = start.index(entries.len());
                let batch: Vec<Entry> = entries[start..].iter().rev().take(length).cloned().collect();
                inserted += shuffled.append(&batch).await.unwrap().inserted;
            }
            let backwards: Vec<Entry> = entries.iter().rev().cloned().collect();
            inserted += shuffled.append(&backwards).await.unwrap().inserted;
            assert_eq!(inserted, u64::try_from(entries.len()).unwrap());
            assert_eq!(seen(&straight).await, seen(&shuffled).await);

            // An outsider's sum: totals are what plain addition says.
            let booked = entries.iter().filter(|e| !e.is_unbooked());
            let cost: i64 = booked.clone().map(|e| e.body.cost_nano).sum();
            let mut total = 0;
            for side in [Side::Tenant, Side::Pool] {
                total += totals(&shuffled, side).await.iter().map(|t| t.cost_nano).sum::<i64>();
            }
            assert_eq!(total, cost);
        });
    }
}
