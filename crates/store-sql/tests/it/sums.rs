//! Sums for rebuilding quotas (section 12) and for openings (L16).

use tollbook_store::{
    Day, DayRange, Entry, Journal, Name, Origin, Side, Span, StoreErrorKind, TotalsQuery, UsageQuery,
    UsageSum,
};
use tollbook_store_sql::SqlStore;

use crate::make::{DAY_0, World, at, both, call, leg};

both!(
    l16_a_subjects_usage_is_summed_by_each_part_of_its_name,
    l16_usage_counts_for_the_time_of_admission,
    l16_usage_sums_every_part_and_leaves_out_what_is_unbooked,
    l16_calls_that_posted_to_the_account_are_left_out,
    l16_users_are_told_in_pages_once_each,
    usage_of_everybody_is_refused,
    quotas_are_rebuilt_from_what_was_posted,
    totals_are_by_day_side_tenant_pool_and_model,
);

fn of(tenant: &str) -> UsageQuery {
    let all = Name::default;
    UsageQuery {
        side: Side::Tenant,
        tenant: Name::from(tenant),
        project: all(),
        key: all(),
        service: all(),
        user: all(),
        pool: all(),
        model: all(),
        admitted: Span { from: 0, to: u64::MAX },
        without: None,
    }
}

async fn requests(store: &SqlStore, query: &UsageQuery) -> i64 {
    store.usage_sum(query).await.unwrap().requests
}

async fn l16_a_subjects_usage_is_summed_by_each_part_of_its_name(world: World) {
    let store = world.open().await;
    let mut batch: Vec<Entry> = (0..6).map(call).collect();
    batch[1].body.project = Name::from("chat");
    batch[2].body.key = Name::from("key-2");
    batch[3].body.service = Name::from("ranker");
    batch[4].body.user = Name::from("u7");
    batch[5].body.model_used = Name::from("haiku");
    store.append(&batch).await.unwrap();
    let all = of("acme");
    assert_eq!(requests(&store, &all).await, 6);
    let name = Name::from;
    assert_eq!(requests(&store, &UsageQuery { project: name("chat"), ..all.clone() }).await, 1);
    assert_eq!(requests(&store, &UsageQuery { key: name("key-1"), ..all.clone() }).await, 5);
    assert_eq!(requests(&store, &UsageQuery { service: name("ranker"), ..all.clone() }).await, 1);
    assert_eq!(requests(&store, &UsageQuery { user: name("u7"), ..all.clone() }).await, 1);
    assert_eq!(requests(&store, &UsageQuery { model: name("haiku"), ..all.clone() }).await, 1);
    assert_eq!(requests(&store, &UsageQuery { model: name("HAIKU"), ..all.clone() }).await, 0);
    assert_eq!(requests(&store, &UsageQuery { pool: name("azure"), ..all }).await, 0);
}

async fn l16_usage_counts_for_the_time_of_admission(world: World) {
    let store = world.open().await;
    store.append(&[Entry { admitted_at: at(0, 10), ended_at: at(0, 90), ..call(1) }]).await.unwrap();
    let sum = |from, to| UsageQuery { admitted: Span { from: at(0, from), to: at(0, to) }, ..of("acme") };
    assert_eq!(requests(&store, &sum(10, 11)).await, 1);
    assert_eq!(requests(&store, &sum(0, 10)).await, 0);
    assert_eq!(requests(&store, &sum(11, 100)).await, 0);
}

async fn l16_usage_sums_every_part_and_leaves_out_what_is_unbooked(world: World) {
    let store = world.open().await;
    let mut pool = call(5);
    pool.body.side = Side::Pool;
    let unbooked = Entry { origin: Origin::Unbooked, ..call(4) };
    store.append(&[call(1), call(2), unbooked, pool]).await.unwrap();
    let one = call(1).body;
    let two = UsageSum { requests: 2, usage: one.usage.plus(&one.usage), cost_nano: 16_000 };
    assert_eq!(store.usage_sum(&of("acme")).await, Ok(two));
    assert_eq!(store.usage_sum(&of("nobody")).await, Ok(UsageSum::default()));
    let pools = UsageQuery { side: Side::Pool, pool: Name::from("openai"), ..of("") };
    assert_eq!(requests(&store, &pools).await, 1);
}

/// Calls that posted to the account are in its balance already; only the others are its opening.
async fn l16_calls_that_posted_to_the_account_are_left_out(world: World) {
    let store = world.open().await;
    let mut batch: Vec<Entry> = (0..4).map(call).collect();
    batch[1].posted = vec![leg(1, 2, 100, 15), leg(1, 1, 100, 1)];
    batch[2].posted = vec![leg(1, 2, 100, 15)];
    batch[3].posted = Vec::new();
    // The end of call 4 posted elsewhere, its correction to the account: the whole call is in the balance.
    batch.push(Entry { posted: vec![leg(1, 9, 100, 1)], ..call(4) });
    batch.push(Entry {
        seq: 1,
        origin: Origin::Late,
        requests: 0,
        posted: vec![leg(1, 1, 100, 1)],
        ..call(4)
    });
    store.append(&batch).await.unwrap();
    let without = |name| UsageQuery { without: Some(leg(1, name, 0, 0).account), ..of("acme") };
    assert_eq!(requests(&store, &without(1)).await, 2);
    assert_eq!(requests(&store, &without(2)).await, 3);
    assert_eq!(requests(&store, &without(3)).await, 5);
    assert_eq!(requests(&store, &of("acme")).await, 5);
}

async fn l16_users_are_told_in_pages_once_each(world: World) {
    let store = world.open().await;
    let batch: Vec<Entry> = (0..)
        .zip(["u3", "u1", "", "u2", "u1", "U1"])
        .map(|(id, user)| {
            let mut entry = call(id);
            entry.body.user = Name::from(user);
            entry
        })
        .collect();
    store.append(&batch).await.unwrap();
    let always = Span { from: 0, to: u64::MAX };
    for max in 1..6 {
        let mut seen: Vec<Name> = Vec::new();
        loop {
            let after = seen.last().cloned().unwrap_or_default();
            let page = store.users("acme", always, &after, max).await.unwrap();
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        assert_eq!(seen.iter().map(|u| &**u).collect::<Vec<_>>(), ["U1", "u1", "u2", "u3"]);
    }
    assert!(store.users("acme", Span { from: 0, to: 1 }, "", 9).await.unwrap().is_empty());
}

async fn usage_of_everybody_is_refused(world: World) {
    let store = world.open().await;
    let error = store.usage_sum(&of("")).await.unwrap_err();
    assert!(matches!(error.kind, StoreErrorKind::Refused(_)));
}

async fn quotas_are_rebuilt_from_what_was_posted(world: World) {
    let store = world.open().await;
    let mut batch: Vec<Entry> = (0..4).map(call).collect();
    batch[0].posted = vec![leg(u64::MAX, 1, 0, 5), leg(2, 9, 200, 7)];
    batch[1].posted = vec![leg(u64::MAX, 1, 0, 6), leg(2, 9, 100, 1)];
    batch[2].posted = vec![leg(2, 9, 200, -3), leg(2, 8, 200, 4)];
    batch[3].posted = vec![leg(2, 9, 300, 1)];
    store.append(&batch).await.unwrap();
    let expected = [(u64::MAX, 1, 0, 11), (2, 8, 200, 4), (2, 9, 200, 4), (2, 9, 300, 1)];
    for max in 1..6 {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let sums = store.posted_sums(200, after, max).await.unwrap();
            let Some(last) = sums.last() else { break };
            after = Some((last.account, last.period));
            found.extend(sums.iter().map(|s| (s.account.subject.0, s.account.name, s.period, s.amount)));
        }
        assert_eq!(found, expected, "pages of {max}");
    }
}

async fn totals_are_by_day_side_tenant_pool_and_model(world: World) {
    let store = world.open().await;
    let mut batch: Vec<Entry> = (0..6).map(call).collect();
    batch[1].admitted_at = at(1, 0);
    batch[2].body.tenant = Name::from("other");
    batch[3].body.pool = Name::from("azure");
    batch[4].body.model_used = Name::from("haiku");
    batch[5].body.side = Side::Pool;
    store.append(&batch).await.unwrap();
    let all = Name::default;
    let query = TotalsQuery {
        days: DayRange { from: Day(DAY_0), to: Day(DAY_0) },
        side: Side::Tenant,
        tenant: all(),
        pool: all(),
        model: all(),
    };
    let rows = async |query: &TotalsQuery| store.totals(query).await.unwrap();
    assert_eq!(rows(&query).await.len(), 4);
    assert_eq!(rows(&TotalsQuery { tenant: Name::from("acme"), ..query.clone() }).await.len(), 3);
    assert_eq!(rows(&TotalsQuery { pool: Name::from("azure"), ..query.clone() }).await.len(), 1);
    assert_eq!(rows(&TotalsQuery { model: Name::from("haiku"), ..query.clone() }).await.len(), 1);
    let days = DayRange { from: Day(DAY_0), to: Day(DAY_0 + 1) };
    assert_eq!(rows(&TotalsQuery { days, ..query.clone() }).await.len(), 5);
    let pool = rows(&TotalsQuery { side: Side::Pool, ..query }).await;
    assert_eq!((pool.len(), pool[0].usage, pool[0].requests), (1, call(0).body.usage, 1));
}
