//! Crossings of thresholds, and what is delivered of them.

use tollbook_store::{ALERT_BODY_MAX, ALERTS_MAX, AlertMark, Alerts, Delivery, StoreErrorKind, Told};

use crate::make::{World, both};

both!(
    a_crossing_is_written_once_with_what_is_delivered_of_it,
    a_threshold_that_was_left_is_crossed_again_by_one,
    what_is_over_is_not_told_and_the_rest_comes_in_pages,
    what_is_due_comes_in_its_order_until_it_is_told,
    what_is_old_is_forgotten,
    a_body_at_its_bound_is_kept_and_not_one_byte_more,
);

fn mark(turn: u64) -> AlertMark {
    AlertMark {
        tenant: "bé".to_owned(),
        account: "0123:4567".to_owned(),
        period: 1_772_323_200,
        threshold: "remaining 10 abc".to_owned(),
        turn,
        crossed: true,
    }
}

fn delivery(webhook: &str, id: &str, created_at: u64) -> Delivery {
    let body = "{\"type\":\"ü\"}".to_owned();
    Delivery { webhook: webhook.to_owned(), id: id.to_owned(), body, created_at, tries: 0 }
}

async fn a_crossing_is_written_once_with_what_is_delivered_of_it(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    let both = [delivery("ops", "e1", 5), delivery("acme", "e1", 5)];
    let first = (mark(1), u64::MAX);
    let (a, b) =
        tokio::join!(one.alert_cross(&first.0, first.1, &both), other.alert_cross(&first.0, first.1, &both));
    assert!(a.unwrap() != b.unwrap(), "one of two gateways is the first");
    assert_eq!(other.alert_cross(&mark(1), 9, &[delivery("ops", "e2", 6)]).await, Ok(false));
    assert_eq!(one.alert_marks("bé", 0, None).await.unwrap(), [mark(1)]);
    assert_eq!(one.alert_marks("be", 0, None).await.unwrap(), []);
    assert_eq!(one.deliveries_due("ops", 5, 10).await.unwrap(), [delivery("ops", "e1", 5)]);
    assert_eq!(one.deliveries_due("acme", 5, 10).await.unwrap(), [delivery("acme", "e1", 5)]);
    assert_eq!(one.deliveries_waiting().await, Ok(2));
    // Another threshold, period or account is another crossing.
    for mark in [
        AlertMark { threshold: "remaining 5 abc".to_owned(), ..mark(1) },
        AlertMark { period: 7, ..mark(1) },
        AlertMark { account: "x".to_owned(), ..mark(1) },
    ] {
        assert_eq!(one.alert_cross(&mark, u64::MAX, &[]).await, Ok(true), "{mark:?}");
    }
}

async fn a_threshold_that_was_left_is_crossed_again_by_one(world: World) {
    let (one, other) = (world.open().await, world.open().await);
    assert_eq!(one.alert_cross(&mark(2), 9, &[]).await, Ok(false), "there was no first time");
    assert_eq!(one.alert_cross(&mark(1), 9, &[]).await, Ok(true));
    assert_eq!(one.alert_cross(&mark(2), 9, &[]).await, Ok(false), "it was not left");
    assert_eq!(other.alert_rearm(&mark(1)).await, Ok(true));
    assert_eq!(one.alert_rearm(&mark(1)).await, Ok(false));
    assert_eq!(one.alert_marks("bé", 0, None).await.unwrap(), [AlertMark { crossed: false, ..mark(1) }]);
    let again = [delivery("ops", "e2", 5)];
    assert_eq!(one.alert_cross(&mark(2), 9, &again).await, Ok(true));
    assert_eq!(other.alert_cross(&mark(2), 9, &again).await, Ok(false));
    assert_eq!(one.alert_marks("bé", 0, None).await.unwrap(), [mark(2)]);
    assert_eq!(one.deliveries_waiting().await, Ok(1));
}

async fn what_is_due_comes_in_its_order_until_it_is_told(world: World) {
    let store = world.open().await;
    let all = [delivery("ops", "a", 30), delivery("ops", "b", 10), delivery("ops", "c", 20)];
    assert_eq!(store.alert_cross(&mark(1), 9, &all).await, Ok(true));
    let due = async |now: u64, most: usize| -> Vec<(String, u32)> {
        let due = store.deliveries_due("ops", now, most).await.unwrap();
        due.into_iter().map(|one| (one.id, one.tries)).collect()
    };
    let of = |ids: &[(&str, u32)]| -> Vec<(String, u32)> {
        ids.iter().map(|(id, tries)| ((*id).to_owned(), *tries)).collect()
    };
    assert_eq!(due(9, 10).await, of(&[]));
    assert_eq!(due(20, 10).await, of(&[("b", 0), ("c", 0)]));
    assert_eq!(due(30, 2).await, of(&[("b", 0), ("c", 0)]));
    store.delivery_told("ops", "b", Told::Again(25)).await.unwrap();
    store.delivery_told("ops", "c", Told::Delivered).await.unwrap();
    assert_eq!(due(30, 10).await, of(&[("b", 1), ("a", 0)]));
    store.delivery_told("ops", "a", Told::GivenUp).await.unwrap();
    // What has ended stays so.
    store.delivery_told("ops", "a", Told::Again(1)).await.unwrap();
    store.delivery_told("ops", "c", Told::Again(1)).await.unwrap();
    assert_eq!(due(u64::MAX, 10).await, of(&[("b", 1)]));
    assert_eq!(store.deliveries_waiting().await, Ok(1));
}

async fn what_is_old_is_forgotten(world: World) {
    let store = world.open().await;
    store.alert_cross(&mark(1), 9, &[delivery("ops", "a", 10)]).await.unwrap();
    store.alerts_forget(8, 9).await.unwrap();
    assert_eq!(
        (store.alert_marks("bé", 0, None).await.unwrap().len(), store.deliveries_waiting().await),
        (1, Ok(1))
    );
    store.alerts_forget(9, 10).await.unwrap();
    assert_eq!(
        (store.alert_marks("bé", 0, None).await.unwrap().len(), store.deliveries_waiting().await),
        (0, Ok(0))
    );
}

async fn a_body_at_its_bound_is_kept_and_not_one_byte_more(world: World) {
    let store = world.open().await;
    let long = |bytes| [Delivery { body: "x".repeat(bytes), ..delivery("ops", "a", 1) }];
    let refused = store.alert_cross(&mark(1), 9, &long(ALERT_BODY_MAX + 1)).await.unwrap_err();
    assert!(matches!(refused.kind, StoreErrorKind::Refused(_)), "{refused:?}");
    assert_eq!(store.alert_cross(&mark(1), 9, &long(ALERT_BODY_MAX)).await, Ok(true));
    assert_eq!(store.deliveries_due("ops", 1, 1).await.unwrap()[0].body.len(), ALERT_BODY_MAX);
}

async fn what_is_over_is_not_told_and_the_rest_comes_in_pages(world: World) {
    let store = world.open().await;
    let number =
        |at: usize| AlertMark { account: format!("{:05}", at / 2), period: (at % 2) as u64, ..mark(1) };
    for at in 0..ALERTS_MAX + 3 {
        assert_eq!(store.alert_cross(&number(at), 100 + (at as u64 % 3), &[]).await, Ok(true));
    }
    let whose = mark(1).tenant;
    let first = store.alert_marks(&whose, 99, None).await.unwrap();
    assert_eq!(first, (0..ALERTS_MAX).map(number).collect::<Vec<_>>());
    let rest = store.alert_marks(&whose, 99, first.last()).await.unwrap();
    assert_eq!(rest, (ALERTS_MAX..ALERTS_MAX + 3).map(number).collect::<Vec<_>>());
    let living = store.alert_marks(&whose, 101, None).await.unwrap();
    assert_eq!(living, (0..ALERTS_MAX + 3).filter(|at| at % 3 == 2).map(number).collect::<Vec<_>>());
}
