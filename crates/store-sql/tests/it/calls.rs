//! Calls out of entries, tenant by tenant and over all of them; a file that is opened to read only.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tollbook_ledger::ReservationId;
use tollbook_store::{
    Call, CallPlace, Calls, CallsQuery, Entry, Figures, Journal, Name, Origin, PAGE_MAX, READ_AHEAD, Side,
    Span, StoreErrorKind, Usage,
};
use tollbook_store_sql::SqlStore;

use crate::make::{World, at, both, call, full, store};

both!(
    l08_a_call_is_the_sum_of_its_entries,
    l08_unbooked_entries_are_in_no_call_but_their_own,
    what_is_no_call_of_a_tenant_is_left_out,
    calls_of_all_tenants_come_in_the_order_of_their_admission,
    tenants_are_listed_page_by_page,
    pages_tell_every_call_once_and_none_is_longer_than_the_most,
    many_tenants_are_read_in_small_pages,
    a_store_opened_to_read_is_never_written,
);

const ALWAYS: Span = Span { from: 0, to: u64::MAX };

fn of(tenant: &str, id: u128, second: u64) -> Entry {
    let mut entry = call(id);
    entry.body.tenant = Name::from(tenant);
    (entry.admitted_at, entry.ended_at) = (at(0, second), at(0, second + 2));
    entry
}

fn usage(input: i64, output: i64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

async fn read(store: &SqlStore, tenant: Option<&str>, admitted: Span) -> Vec<Call> {
    let mut calls = Calls::open(store, tenant.map(Name::from), admitted).await.unwrap();
    let mut read = Vec::new();
    while let Some(call) = calls.next().await.unwrap() {
        read.push(call);
    }
    read
}

fn ids(calls: &[Call]) -> Vec<u128> {
    calls.iter().map(|call| call.reservation.0).collect()
}

async fn l08_a_call_is_the_sum_of_its_entries(world: World) {
    let store = world.open().await;
    // Expired as expected, then settled late with the truth.
    let mut expired = of("acme", 1, 10);
    (expired.origin, expired.body.figures, expired.body.usage) =
        (Origin::Expired, Figures::Expired, usage(10, 50));
    let mut late = Entry { seq: 1, origin: Origin::Late, ended_at: at(0, 300), ..of("acme", 1, 10) };
    late.body.usage = usage(2, -43);
    // A second attempt at another model, later than the call that comes next.
    let first = Entry { origin: Origin::Rebooked, ..of("acme", 2, 11) };
    let mut second = Entry { attempt: 1, admitted_at: at(0, 40), ..of("acme", 2, 40) };
    (second.body.figures, second.body.model_used) = (Figures::Metered, Name::from("other"));
    // Reconciled: the amounts move, the rest stays.
    let mut adjusted = Entry { seq: 1, origin: Origin::Adjusted, ..of("acme", 3, 12) };
    (adjusted.body.figures, adjusted.body.usage) = (Figures::Adjusted, usage(0, 1));
    // A correction may come to the journal before what it corrects.
    let batch = [late, expired, first, of("acme", 3, 12), second, adjusted];
    store.append(&batch).await.unwrap();

    let calls = read(&store, None, ALWAYS).await;
    assert_eq!(ids(&calls), [1, 2, 3]);
    let told: Vec<_> = calls.iter().map(|call| (call.usage.input, call.usage.output, call.figures)).collect();
    let want = [(12, 7, Figures::Reported), (20, 10, Figures::Metered), (10, 6, Figures::Reported)];
    assert_eq!(told, want);
    assert_eq!((calls[0].admitted_at, calls[0].ended_at), (at(0, 10), at(0, 300)));
    assert_eq!((calls[1].admitted_at, &*calls[1].model_used), (at(0, 11), "other"));
    assert_eq!((&*calls[0].key, &*calls[0].tenant), ("key-1", "acme"));
    assert!(calls.iter().all(Call::has_usage));
}

async fn l08_unbooked_entries_are_in_no_call_but_their_own(world: World) {
    let store = world.open().await;
    let unbooked = |id, second| Entry { origin: Origin::Unbooked, ..of("acme", id, second) };
    let mut released = of("acme", 2, 2);
    (released.origin, released.body.figures, released.body.usage) =
        (Origin::Expired, Figures::Expired, Usage::default());
    store.append(&[unbooked(1, 1), released, unbooked(2, 2), of("acme", 3, 3)]).await.unwrap();
    let calls = read(&store, None, ALWAYS).await;
    let told: Vec<_> =
        calls.iter().map(|call| (call.is_unbooked, call.has_usage(), call.usage.llm_tokens())).collect();
    assert_eq!(told, [(true, true, 0), (false, false, 0), (false, true, 15)]);
}

async fn what_is_no_call_of_a_tenant_is_left_out(world: World) {
    let store = world.open().await;
    let mut pool = of("acme", 1, 1);
    pool.body.side = Side::Pool;
    let opening = Entry { origin: Origin::Adjusted, ..of("acme", 2, 2) };
    store.append(&[pool, opening, full(3)]).await.unwrap();
    assert_eq!(store.tenants("", 10).await.unwrap(), [Name::from("acme")]);
    assert!(read(&store, None, ALWAYS).await.is_empty());
}

async fn calls_of_all_tenants_come_in_the_order_of_their_admission(world: World) {
    let store = world.open().await;
    let tenants = ["b", "a", "c", "B"];
    // Several at once, and none in the order of the journal.
    let batch: Vec<Entry> = (0..200_u64)
        .map(|i| of(tenants[usize::try_from(i % 4).unwrap()], u128::from(i), i * 37 % 100))
        .collect();
    store.append(&batch).await.unwrap();
    let calls = read(&store, None, ALWAYS).await;
    assert_eq!(calls.len(), 200);
    assert!(calls.is_sorted_by_key(|call| call.admitted_at));
    let mut all = ids(&calls);
    all.sort_unstable();
    assert_eq!(all, (0..200).collect::<Vec<_>>());
    let some = read(&store, Some("b"), Span { from: at(0, 4), to: at(0, 48) }).await;
    let want = batch.iter().filter(|entry| &*entry.body.tenant == "b");
    let want = want.filter(|entry| (at(0, 4)..at(0, 48)).contains(&entry.admitted_at)).count();
    assert_eq!(some.len(), want);
    assert!(read(&store, Some("nobody"), ALWAYS).await.is_empty());
}

async fn tenants_are_listed_page_by_page(world: World) {
    let store = world.open().await;
    let names = ["A", "a", "a b", "z", "é"];
    let batch: Vec<Entry> = (0..20_u128).map(|i| of(names[usize::try_from(i % 5).unwrap()], i, 1)).collect();
    store.append(&batch).await.unwrap();
    for max in 1..7 {
        let mut found: Vec<Name> = Vec::new();
        loop {
            let page = store.tenants(found.last().map_or("", |name| name), max).await.unwrap();
            assert!(page.len() <= max);
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, names.map(Name::from));
    }
}

async fn pages_tell_every_call_once_and_none_is_longer_than_the_most(world: World) {
    let store = world.open().await;
    let all = PAGE_MAX + 1;
    // Two calls in each moment, so that pages end between calls of one.
    let batch: Vec<Entry> =
        (0..u64::try_from(all).unwrap()).map(|i| of("acme", u128::from(i), i / 2)).collect();
    for part in batch.chunks(512) {
        store.append(part).await.unwrap();
    }
    let query = CallsQuery { tenant: Name::from("acme"), admitted: ALWAYS };
    let first = store.calls(&query, CallPlace::default(), usize::MAX).await.unwrap();
    assert_eq!(first.calls.len(), PAGE_MAX);
    let rest = store.calls(&query, first.next.unwrap(), usize::MAX).await.unwrap();
    assert_eq!((ids(&rest.calls), rest.next), (vec![u128::try_from(PAGE_MAX).unwrap()], None));
    for max in [1, 2, 7, 500] {
        let (mut seen, mut place) = (Vec::new(), Some(CallPlace::default()));
        while let Some(after) = place {
            let page = store.calls(&query, after, max).await.unwrap();
            assert!(page.calls.len() <= max);
            seen.extend(ids(&page.calls));
            place = page.next;
        }
        assert_eq!(seen, (0..u128::try_from(all).unwrap()).collect::<Vec<_>>(), "{max}");
    }
}

/// So many tenants that each is read in the smallest pages.
async fn many_tenants_are_read_in_small_pages(world: World) {
    let store = world.open().await;
    let tenants = u64::try_from(READ_AHEAD / 16 + 1).unwrap();
    let batch: Vec<Entry> = (0..tenants * 2)
        .map(|i| of(&format!("t{}", i % tenants), u128::from(i), (tenants * 2 - i) % 977))
        .collect();
    for part in batch.chunks(1024) {
        store.append(part).await.unwrap();
    }
    let calls = read(&store, None, ALWAYS).await;
    assert_eq!(calls.len(), batch.len());
    assert!(calls.is_sorted_by_key(|call| call.admitted_at));
}

/// A page costs what it holds, not what the journal holds.
#[tokio::test]
async fn calls_and_tenants_are_found_by_index() {
    let (dir, _store) = store().await;
    let options = SqliteConnectOptions::new().filename(dir.path().join("store.db"));
    let mut connection = options.connect().await.unwrap();
    for (name, text) in [
        ("call_list", include_str!("../../sql/sqlite/call_list.sql")),
        ("tenant_list", include_str!("../../sql/sqlite/tenant_list.sql")),
    ] {
        let query = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
        let rows = sqlx::raw_sql(query).fetch_all(&mut connection).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| sqlx::Row::get(row, "detail")).collect();
        let looks =
            |line: &String| line.contains(" entry") || line.contains(" first") || line.contains(" earlier");
        let entries: Vec<&String> = plan.iter().filter(|line| looks(line)).collect();
        assert!(!entries.is_empty(), "{name}: {plan:?}");
        assert!(entries.iter().all(|line| line.starts_with("SEARCH ")), "{name}: {plan:#?}");
    }
    connection.close().await.unwrap();
}

async fn a_store_opened_to_read_is_never_written(world: World) {
    let writer = world.open().await;
    writer.append(&[of("acme", 1, 1)]).await.unwrap();
    let reader = SqlStore::open_to_read(world.place()).await.unwrap();
    assert_eq!(read(&reader, None, ALWAYS).await.len(), 1);
    // What is committed later is seen, too: the writer is not kept waiting.
    writer.append(&[of("acme", 2, 2)]).await.unwrap();
    assert_eq!(read(&reader, None, ALWAYS).await.len(), 2);
    assert!(reader.append(&[of("acme", 3, 3)]).await.is_err());
    assert_eq!(read(&writer, None, ALWAYS).await.len(), 2);
    reader.close().await;
    writer.close().await;
    // Nobody has it open now.
    let reader = SqlStore::open_to_read(world.place()).await.unwrap();
    assert_eq!(ids(&read(&reader, None, ALWAYS).await), [1, 2]);
    assert_eq!(reader.by_reservation(ReservationId(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_file_that_is_not_a_journal_of_this_layout_is_not_read() {
    let (dir, store) = store().await;
    let absent = dir.path().join("absent.db");
    assert!(matches!(SqlStore::open_to_read(&absent).await.unwrap_err().kind, StoreErrorKind::Away(_)));
    assert!(!absent.exists());
    let path = dir.path().join("store.db");
    store.close().await;
    for (pragma, want) in [("user_version = 99", "layout 99"), ("application_id = 7", "another program's")] {
        let options = SqliteConnectOptions::new().filename(&path);
        let mut other = options.connect().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("PRAGMA {pragma}"))).execute(&mut other).await.unwrap();
        other.close().await.unwrap();
        let kind = SqlStore::open_to_read(&path).await.unwrap_err().kind;
        assert!(matches!(&kind, StoreErrorKind::Damaged(text) if text.contains(want)), "{kind:?}");
    }
    std::fs::write(&absent, "no database at all, but long enough to be looked at").unwrap();
    let kind = SqlStore::open_to_read(&absent).await.unwrap_err().kind;
    assert!(matches!(kind, StoreErrorKind::Damaged(_)), "{kind:?}");
}
