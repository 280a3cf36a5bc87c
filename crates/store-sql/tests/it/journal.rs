//! Entries in, entries out; repeats; corrections.

use tollbook_ledger::{AMOUNT_MAX, ReservationId};
use tollbook_store::{
    Appended, Applied, BATCH_MAX, Entry, EntryBody, EntryPlace, Journal, Name, Origin, Side, Span,
    StoreErrorKind, Usage,
};

use crate::make::{World, at, both, call, full, leg, totals};

both!(
    an_entry_comes_back_as_it_was,
    a_repeated_batch_changes_nothing,
    a_repeat_with_other_figures_does_not_change_the_first,
    sides_attempts_and_corrections_are_entries_of_their_own,
    l08_a_late_settle_corrects_the_day_of_its_call,
    l08_unbooked_entries_are_kept_apart,
    b216_ids_compare_byte_for_byte,
    b087_the_sum_of_rows_is_the_total_bit_for_bit,
    l13_the_largest_amounts_are_kept_and_larger_ones_are_cut,
    totals_stay_integers_beyond_the_largest,
    a_batch_at_the_bound_is_taken_and_a_longer_one_refused,
    pages_tell_every_entry_once_in_order_of_end,
);

async fn an_entry_comes_back_as_it_was(world: World) {
    let store = world.open().await;
    let entries = [full(1), call(2)];
    assert_eq!(store.append(&entries).await, Ok(Appended { inserted: 2, repeated: 0 }));
    assert_eq!(store.by_reservation(ReservationId(1)).await.unwrap(), [full(1)]);
    assert_eq!(store.by_request("req_2").await.unwrap(), [call(2)]);
    assert!(store.by_request("req_3").await.unwrap().is_empty());
}

async fn a_repeated_batch_changes_nothing(world: World) {
    let store = world.open().await;
    let batch = [call(1), call(2)];
    store.append(&batch).await.unwrap();
    let before = totals(&store, Side::Tenant).await;
    assert_eq!(store.append(&batch).await, Ok(Appended { inserted: 0, repeated: 2 }));
    let half = [call(2), call(3), call(3)];
    assert_eq!(store.append(&half).await, Ok(Appended { inserted: 1, repeated: 2 }));
    let after = totals(&store, Side::Tenant).await;
    assert_eq!((before[0].entries, after[0].entries), (2, 3));
    assert_eq!((before[0].cost_nano, after[0].cost_nano), (16_000, 24_000));
    assert_eq!(store.posted_sum(leg(1, 1, 0, 0).account, 100).await, Ok(45));
}

async fn a_repeat_with_other_figures_does_not_change_the_first(world: World) {
    let store = world.open().await;
    store.append(&[call(1)]).await.unwrap();
    let mut other = call(1);
    other.body.cost_nano = 1;
    assert_eq!(store.append(&[other]).await.unwrap().repeated, 1);
    assert_eq!(store.by_reservation(ReservationId(1)).await.unwrap(), [call(1)]);
}

async fn sides_attempts_and_corrections_are_entries_of_their_own(world: World) {
    let store = world.open().await;
    let mut pool = call(1);
    pool.body.side = Side::Pool;
    let second = Entry { attempt: 1, ..call(1) };
    let correction = Entry { seq: 1, origin: Origin::Late, ..call(1) };
    let batch = [call(1), pool.clone(), second.clone(), correction.clone()];
    assert_eq!(store.append(&batch).await.unwrap().inserted, 4);
    let found = store.by_reservation(ReservationId(1)).await.unwrap();
    assert_eq!(found, [call(1), correction, second, pool]);
}

async fn l08_a_late_settle_corrects_the_day_of_its_call(world: World) {
    let store = world.open().await;
    let mut expired = call(1);
    expired.origin = Origin::Expired;
    let mut late = call(1);
    (late.seq, late.origin, late.requests, late.ended_at) = (1, Origin::Late, 0, at(1, 5));
    late.body.usage = Usage { input: 0, output: -3, ..Usage::default() };
    late.body.cost_nano = -2_000;
    late.posted = vec![leg(1, 1, 100, -3)];
    store.append(&[expired]).await.unwrap();
    store.append(&[late]).await.unwrap();
    let totals = totals(&store, Side::Tenant).await;
    assert_eq!(totals.len(), 1);
    assert_eq!((totals[0].requests, totals[0].usage.llm_tokens(), totals[0].cost_nano), (1, 12, 6_000));
    assert_eq!(store.posted_sum(leg(1, 1, 0, 0).account, 100).await, Ok(12));
}

async fn l08_unbooked_entries_are_kept_apart(world: World) {
    let store = world.open().await;
    let unbooked = Entry { origin: Origin::Unbooked, posted: Vec::new(), ..call(1) };
    store.append(&[call(1), unbooked.clone()]).await.unwrap();
    assert_eq!(store.by_reservation(ReservationId(1)).await.unwrap(), [call(1), unbooked.clone()]);
    assert_eq!(totals(&store, Side::Tenant).await[0].entries, 1);
    assert_eq!(store.append(&[unbooked]).await.unwrap().repeated, 1);
}

async fn b216_ids_compare_byte_for_byte(world: World) {
    let store = world.open().await;
    let names = ["Key", "key", "kéy", "key ", "ｋｅｙ"];
    for (i, name) in names.iter().enumerate() {
        let mut entry = call(u128::try_from(i).unwrap());
        entry.body.tenant = Name::from(*name);
        entry.body.request_id = Name::from(*name);
        store.append(&[entry]).await.unwrap();
    }
    assert_eq!(totals(&store, Side::Tenant).await.len(), names.len());
    for name in names {
        let found = store.by_request(name).await.unwrap();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(&*found[0].body.tenant, name);
    }
}

async fn b087_the_sum_of_rows_is_the_total_bit_for_bit(world: World) {
    let store = world.open().await;
    let batch: Vec<Entry> = (0..10)
        .map(|i| {
            let body = EntryBody { cost_nano: 100_000_000, ..call(i).body };
            Entry { body, ..call(i) }
        })
        .collect();
    store.append(&batch).await.unwrap();
    let mut one = call(10);
    one.body.cost_nano = 1;
    store.append(&[one]).await.unwrap();
    assert_eq!(totals(&store, Side::Tenant).await[0].cost_nano, 1_000_000_001);
}

async fn l13_the_largest_amounts_are_kept_and_larger_ones_are_cut(world: World) {
    let store = world.open().await;
    let largest = i64::try_from(AMOUNT_MAX).unwrap();
    for (id, amount) in [(1, largest), (2, i64::MAX), (3, i64::MIN)] {
        let mut entry = call(id);
        entry.body.cost_nano = amount;
        entry.posted = vec![leg(1, 1, 100, amount)];
        store.append(&[entry]).await.unwrap();
    }
    assert_eq!(totals(&store, Side::Tenant).await[0].cost_nano, largest);
    let stored = store.by_reservation(ReservationId(3)).await.unwrap();
    assert_eq!((stored[0].body.cost_nano, stored[0].posted[0].amount), (-largest, -largest));
}

/// Two thousand calls of the largest amount: the sum of the day is beyond an integer, and must not become a real.
async fn totals_stay_integers_beyond_the_largest(world: World) {
    let store = world.open().await;
    for part in 0..4_u128 {
        let batch: Vec<Entry> = (0..512)
            .map(|i| {
                let mut entry = call(part * 512 + i);
                entry.body.cost_nano = i64::MAX;
                entry.posted = Vec::new();
                entry
            })
            .collect();
        store.append(&batch).await.unwrap();
    }
    let total = &totals(&store, Side::Tenant).await[0];
    assert_eq!((total.entries, total.cost_nano), (2048, i64::MAX));
}

async fn a_batch_at_the_bound_is_taken_and_a_longer_one_refused(world: World) {
    let store = world.open().await;
    let mut batch: Vec<Entry> = (0..u128::try_from(BATCH_MAX).unwrap()).map(call).collect();
    assert_eq!(store.append(&batch).await.unwrap().inserted, u64::try_from(BATCH_MAX).unwrap());
    batch.push(call(0));
    let error = store.append(&batch).await.unwrap_err();
    assert_eq!(error.applied, Applied::No);
    assert!(matches!(error.kind, StoreErrorKind::Refused(_)));
    assert_eq!(store.append(&[]).await, Ok(Appended::default()));
}

async fn pages_tell_every_entry_once_in_order_of_end(world: World) {
    let store = world.open().await;
    // Inserted out of order, several of one end.
    let ends = [5, 3, 3, 9, 1, 3, 7, 2];
    let batch: Vec<Entry> =
        (0..).zip(ends).map(|(i, end)| Entry { ended_at: at(0, end), ..call(i) }).collect();
    store.append(&batch).await.unwrap();
    let span = Span { from: at(0, 2), to: at(0, 9) };
    for max in 1..8 {
        let mut seen = Vec::new();
        let mut place = EntryPlace::default();
        loop {
            let page = store.entries(span, place, max).await.unwrap();
            assert!(page.entries.len() <= max);
            seen.extend(page.entries.iter().map(|e| (e.ended_at - at(0, 0)) / 1_000_000));
            match page.next {
                Some(next) => place = next,
                None => break,
            }
        }
        assert_eq!(seen, [2, 3, 3, 3, 5, 7]);
    }
}
