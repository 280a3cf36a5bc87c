//! The journal by day: rows go with their day, keys, sums and totals stay, and nothing goes that something needs.

use std::time::{SystemTime, UNIX_EPOCH};

use tollbook_ledger::{AccountId, ReservationId, SubjectId};
use tollbook_store::{
    CallPlace, CallsQuery, Day, Entry, EntryKey, Fleet as _, Journal, JournalDays as _, Name, Origin, Side,
    Span, shard_of,
};
use tollbook_store_sql::SqlStore;

use crate::layouts::{DAYS, database, make, opened, steps};
use crate::make::{DAY_MICROS, Other, World, both, call, totals};

both!(
    old_days_go_and_their_keys_and_sums_stay,
    a_rebuild_finds_what_it_found_before_old_days_went,
    nothing_goes_that_was_written_lately_or_is_old_by_one_clock_alone,
    a_call_whose_first_entry_is_gone_is_no_call,
);

const KEEP: u32 = 35;

#[expect(clippy::disallowed_methods, reason = "a database has a clock of its own")]
fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400
}

/// A call that ended so many days ago.
fn ago(id: u128, days: u64) -> Entry {
    let at = (today() - days) * DAY_MICROS + 5;
    Entry { admitted_at: at, ended_at: at + 2, ..call(id) }
}

fn ids(days: &[u64]) -> Vec<Entry> {
    (1_u128..).zip(days).map(|(id, days)| ago(id, *days)).collect()
}

/// Written by an earlier version, long ago.
async fn upgraded(world: &World, entries: &[Entry]) -> SqlStore {
    let (place, mut other) = database(world, "store").await;
    make(&mut other, DAYS - 1, entries).await;
    other.close().await;
    let store = opened(&place).await;
    assert_eq!(store.day_begins().await, Ok(true));
    store
}

async fn settled(world: &World) {
    world.change("UPDATE journal_day SET day = day - 8").await;
}

async fn all_gone(store: &SqlStore, keep: u32) -> u64 {
    let mut gone = 0;
    loop {
        let some = store.let_go(keep).await.unwrap();
        gone += some.entries;
        if !some.more {
            return gone;
        }
    }
}

async fn days(store: &SqlStore) -> Vec<u64> {
    store.days().await.unwrap().iter().map(|rows| today() - u64::from(rows.day.0)).collect()
}

async fn old_days_go_and_their_keys_and_sums_stay(world: World) {
    let entries = ids(&[90, 60, 60, 36, 35, 1, 0]);
    let store = upgraded(&world, &entries).await;
    settled(&world).await;
    assert_eq!(days(&store).await, [90, 60, 36, 35, 1, 0]);
    assert_eq!(Journal::kept_since(&store).await, Ok(0));
    let account = AccountId { subject: SubjectId(1), name: 1 };
    let (before, posted) = (totals(&store, Side::Tenant).await, store.posted_sum(account, 100).await);
    all_gone(&store, KEEP).await;
    assert_eq!(days(&store).await, [35, 1, 0]);
    let kept = (today() - u64::from(KEEP)) * DAY_MICROS;
    assert_eq!(Journal::kept_since(&store).await, Ok(kept));
    assert_eq!(totals(&store, Side::Tenant).await, before);
    assert_eq!(store.posted_sum(account, 100).await, posted);
    assert!(store.by_reservation(ReservationId(1)).await.unwrap().is_empty());
    assert_eq!(store.was_written(ReservationId(1)).await, Ok(true));
    assert_eq!(store.was_written(ReservationId(99)).await, Ok(false));
    assert_eq!(store.by_reservation(ReservationId(5)).await.as_deref(), Ok(&entries[4..5]));
    // A repeat of what is gone is a repeat.
    let repeated = store.append(&entries).await.unwrap();
    assert_eq!((repeated.inserted, repeated.repeated), (0, 7));
    assert_eq!(totals(&store, Side::Tenant).await, before);
    let new = store.append(&[ago(1, 90), ago(8, 90), ago(8, 90), ago(9, 0)]).await.unwrap();
    assert_eq!((new.inserted, new.repeated), (2, 2));
    all_gone(&store, KEEP).await;
    assert_eq!(
        store.by_reservation(ReservationId(8)).await.as_deref(),
        Ok(&[ago(8, 90)][..]),
        "it came lately"
    );
    store.close().await;
}

/// What recovery asks: sums with their watermark, the newest end, where entries stand.
async fn a_rebuild_finds_what_it_found_before_old_days_went(world: World) {
    let entries = ids(&[90, 60, 41, 40]);
    let store = upgraded(&world, &entries).await;
    settled(&world).await;
    let shard = shard_of("acme");
    let keys: Vec<EntryKey> = entries.iter().map(Entry::key).collect();
    let told = async || {
        let watermark = match &mut world.other().await {
            Other::File(_) => None,
            other @ Other::Server(_) => Some(other.numbers("SELECT place FROM turn").await),
        };
        (watermark, store.newest_end(shard).await.unwrap(), store.entry_places(&keys).await.unwrap())
    };
    let epoch = async |known: u64| {
        let row = store.epochs().await.unwrap().into_iter().find(|row| row.shard == shard);
        assert_eq!(store.lease(shard, 1).await, Ok(true));
        let known = row.unwrap_or(tollbook_store::ShardEpoch {
            shard,
            epoch: known,
            cause: tollbook_store::EpochCause::First,
            stage: tollbook_store::Stage::Begun,
            watermark: 0,
            age: std::time::Duration::ZERO,
        });
        let next = known.epoch + 1;
        assert_eq!(store.epoch_begin(1, known, next, tollbook_store::EpochCause::All).await, Ok(true));
        store.shard_sums(shard, next, 0).await.unwrap().unwrap()
    };
    let (before, sums) = (told().await, epoch(0).await);
    assert_eq!((sums.watermark, sums.sums.len()), (4, 1));
    all_gone(&store, 0).await;
    assert_eq!(days(&store).await, [40], "the newest day stays");
    assert_eq!(told().await, before);
    assert_eq!(epoch(0).await, sums);
    // A place never comes again.
    store.append(&[ago(10, 0)]).await.unwrap();
    settled(&world).await;
    let places = store.entry_places(&[ago(10, 0).key()]).await.unwrap();
    assert!(places[0].unwrap() > sums.watermark, "{places:?}");
    store.close().await;
}

async fn nothing_goes_that_was_written_lately_or_is_old_by_one_clock_alone(world: World) {
    let store = upgraded(&world, &ids(&[90, 80])).await;
    assert_eq!(all_gone(&store, 1).await, 0, "written today, as far as the store knows");
    settled(&world).await;
    assert_eq!(
        store.due(1).await.unwrap().from,
        Day(u32::try_from(today() - 81).unwrap()),
        "by the newest end"
    );
    all_gone(&store, 10).await;
    assert_eq!(days(&store).await, [90, 80]);
    all_gone(&store, 1).await;
    assert_eq!(days(&store).await, [80]);
    store.close().await;
}

async fn a_call_whose_first_entry_is_gone_is_no_call(world: World) {
    let late = Entry { seq: 1, origin: Origin::Late, admitted_at: ago(1, 60).admitted_at, ..ago(1, 2) };
    let store = upgraded(&world, &[ago(1, 60), late.clone(), ago(2, 2)]).await;
    settled(&world).await;
    let query = CallsQuery { tenant: Name::from("acme"), admitted: Span { from: 0, to: u64::MAX } };
    let calls = async || store.calls(&query, CallPlace::default(), 10).await.unwrap().calls;
    assert_eq!(calls().await.len(), 2);
    all_gone(&store, KEEP).await;
    let left: Vec<_> = calls().await.iter().map(|call| call.reservation.0).collect();
    assert_eq!(left, [2]);
    assert_eq!(store.by_reservation(ReservationId(1)).await.unwrap(), [late]);
    store.close().await;
}

/// On a server what no day takes stands in the last part, and moves when there are few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_never_fails_for_want_of_a_part() {
    let world = World::server();
    let store = world.open().await;
    let parts = "SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'entry_row'";
    let mut other = world.other().await;
    let whole = other.numbers(parts).await;
    // As after a week without a gateway.
    for day in 2..=8 {
        other.say(&format!("ALTER TABLE entry_row DROP PARTITION to_{}", today() + day)).await;
    }
    let ahead = |id: u128, days: u64| Entry { ended_at: (today() + days) * DAY_MICROS, ..ago(id, 0) };
    let far = Entry { ended_at: u64::MAX, ..ago(3, 0) };
    store.append(&[ahead(1, 3), ahead(2, 1), far]).await.unwrap();
    assert_eq!(store.day_begins().await, Ok(true));
    assert_eq!(other.numbers(parts).await, whole);
    for (part, rows) in
        [(format!("to_{}", today() + 4), 1), (format!("to_{}", today() + 2), 1), ("rest".to_owned(), 1)]
    {
        assert_eq!(
            other.numbers(&format!("SELECT COUNT(*) FROM entry_row PARTITION ({part})")).await,
            [rows],
            "{part}"
        );
    }
    assert_eq!(store.by_reservation(ReservationId(1)).await.as_deref(), Ok(&[ahead(1, 3)][..]));
    // Too many are not moved.
    let many = "INSERT INTO entry_row SELECT 1000 + seq, reservation, side, attempt, seq, unbooked, origin, admitted_at, ended_at, \
         requests, request_id, tenant, pool, posted, body FROM entry_row PARTITION (rest), seq_1_to_10000";
    other
        .say(
            &many
                .replace("attempt, seq,", "attempt, entry_row.seq,")
                .replace("1000 + seq", "1000 + seq_1_to_10000.seq"),
        )
        .await;
    other.say(&format!("ALTER TABLE entry_row DROP PARTITION to_{}", today() + 8)).await;
    assert_eq!(store.day_begins().await, Ok(false));
    other.close().await;
    store.close().await;
}

/// However far the change of the layout came before it broke off, the next start goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_division_that_broke_off_anywhere_is_gone_on_with() {
    let world = World::server();
    let entries = ids(&[50, 3, 0]);
    for (done, noted) in (0..steps(DAYS).len()).flat_map(|done| [(done, 0), (done, done)]).skip(1) {
        let (place, mut other) = database(&world, &format!("broken_{done}_{noted}")).await;
        make(&mut other, DAYS - 1, &entries).await;
        for step in &steps(DAYS)[..done] {
            other.say(step).await;
        }
        if noted > 0 {
            other.say(&format!("INSERT INTO tollbook_layout VALUES ({DAYS}, {noted})")).await;
        }
        let store = opened(&place).await;
        assert_eq!(store.append(&entries).await.unwrap().repeated, 3, "{done} {noted}");
        assert_eq!(store.append(&[ago(9, 0)]).await.unwrap().inserted, 1, "{done} {noted}");
        assert!(store.entry_places(&[ago(9, 0).key()]).await.unwrap()[0] > Some(3), "{done} {noted}");
        assert_eq!(days(&store).await, [50, 3, 0], "{done} {noted}");
        store.close().await;
        other.close().await;
    }
}
