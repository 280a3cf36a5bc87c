//! What the gateways of one book tell each other.

use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tollbook_store::{
    Entry, EntryBody, EpochCause, Fleet, Journal, Name, Origin, Restored, Restorer, ShardEpoch, Side, Stage,
    shard_of,
};
use tollbook_store_sql::SqlStore;

use crate::make::{World, both, call, leg, store};

both!(
    a_gateway_lives_for_six_seconds_after_its_last_word,
    the_first_use_of_a_shard_is_begun_once_and_not_where_the_journal_knows_its_calls,
    l12_a_lease_is_one_gateways_until_the_databases_clock_ends_it,
    of_many_gateways_that_want_one_lease_one_gets_it,
    an_epoch_begins_after_the_one_that_was_seen_and_for_the_leases_holder_alone,
    who_lived_at_the_beginning_is_awaited_and_who_reports_is_told,
    a_shards_sums_are_its_own_and_stand_at_their_watermark,
    l08_the_watermark_of_sums_stands_until_everything_is_lost_again,
    entries_are_found_by_key_with_the_place_they_were_inserted_at,
    a_sum_keeps_its_shard_when_an_unreadable_entry_is_posted_to_it,
    a_clock_that_steps_back_holds_up_nobody,
    an_epochs_age_begins_anew_with_its_stage_and_opening_ends_the_lease,
    an_epoch_begins_after_the_stage_that_was_seen,
);

const SHARD: u8 = 7;
const A: u64 = u64::MAX;
const B: u64 = 2;

fn of(tenant: &str, id: u128, period: u64, amount: i64) -> Entry {
    let entry = call(id);
    let body = EntryBody { tenant: Name::from(tenant), ..entry.body };
    Entry { posted: vec![leg(u64::try_from(id).unwrap() % 3, 1, period, amount)], body, ..entry }
}

async fn begun(store: &SqlStore, gateway: u64, known: u64, cause: EpochCause) -> bool {
    store.lease(SHARD, gateway).await.unwrap()
        && store.epoch_begin(gateway, row(SHARD, known), known + 1, cause).await.unwrap()
}

/// A shard whose epoch, if it has one, was begun and got no further.
fn row(shard: u8, epoch: u64) -> ShardEpoch {
    ShardEpoch {
        shard,
        epoch,
        cause: EpochCause::All,
        stage: Stage::Begun,
        watermark: 0,
        age: Duration::ZERO,
    }
}

async fn a_gateway_lives_for_six_seconds_after_its_last_word(world: World) {
    let store = world.open().await;
    assert_eq!(store.beat(A).await.unwrap(), 1);
    assert_eq!(store.beat(B).await.unwrap(), 2);
    assert_eq!(store.beat(A).await.unwrap(), 2, "a repeat counts once");
    world.change("UPDATE gateway SET seen_at = seen_at - 6001 WHERE id = 2").await;
    assert_eq!(store.beat(A).await.unwrap(), 1);
    assert_eq!(store.beat(B).await.unwrap(), 2, "it is back");
    store.leave(B).await.unwrap();
    assert_eq!(store.beat(A).await.unwrap(), 1);
    // One that was not seen for a day is forgotten: its row is free again.
    world.change("INSERT INTO gateway VALUES (9, 0)").await;
    store.beat(A).await.unwrap();
    world.change("INSERT INTO gateway VALUES (9, 0)").await;
}

async fn the_first_use_of_a_shard_is_begun_once_and_not_where_the_journal_knows_its_calls(world: World) {
    let store = world.open().await;
    assert!(store.first_epoch(SHARD).await.unwrap());
    assert!(!store.first_epoch(SHARD).await.unwrap());
    let epochs = store.epochs().await.unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!((epochs[0].shard, epochs[0].epoch, epochs[0].stage), (SHARD, 1, Stage::Begun));
    assert_eq!(epochs[0].cause, EpochCause::First);
    let known = shard_of("acme");
    store.append(&[call(1)]).await.unwrap();
    assert!(!store.first_epoch(known).await.unwrap());
    assert_eq!(store.newest_end(known).await.unwrap(), Some(call(1).ended_at));
    assert_eq!(store.newest_end(SHARD).await.unwrap(), None);
}

async fn l12_a_lease_is_one_gateways_until_the_databases_clock_ends_it(world: World) {
    let store = world.open().await;
    assert!(store.lease(SHARD, A).await.unwrap());
    assert!(store.lease(SHARD, A).await.unwrap(), "kept up");
    assert!(!store.lease(SHARD, B).await.unwrap());
    assert!(store.lease(SHARD + 1, B).await.unwrap(), "another shard's");
    world.change("UPDATE shard_lease SET until = until - 5001").await;
    assert!(store.lease(SHARD, B).await.unwrap());
    assert!(!store.lease(SHARD, A).await.unwrap());
    store.lease_end(SHARD, A).await.unwrap();
    assert!(!store.lease(SHARD, A).await.unwrap(), "nobody gives back what another has");
    store.lease_end(SHARD, B).await.unwrap();
    assert!(store.lease(SHARD, A).await.unwrap());
}

async fn of_many_gateways_that_want_one_lease_one_gets_it(world: World) {
    let store = world.open().await;
    let mut tasks = Vec::new();
    for gateway in 1..=16_u64 {
        let other = world.open().await;
        tasks.push(tokio::spawn(async move { begun(&other, gateway, 0, EpochCause::All).await }));
    }
    let mut won = 0;
    for task in tasks {
        won += u32::from(task.await.unwrap());
    }
    assert_eq!((won, store.epochs().await.unwrap()[0].epoch), (1, 1));
}

async fn an_epoch_begins_after_the_one_that_was_seen_and_for_the_leases_holder_alone(world: World) {
    let store = world.open().await;
    assert!(!store.epoch_begin(A, row(SHARD, 0), 1, EpochCause::All).await.unwrap(), "no lease");
    assert!(begun(&store, A, 0, EpochCause::All).await);
    assert!(!begun(&store, A, 0, EpochCause::All).await, "0 is not the newest any more");
    assert!(!begun(&store, B, 1, EpochCause::Tail).await, "the lease is another's");
    assert!(store.epoch_begin(A, row(SHARD, 1), 1, EpochCause::All).await.is_err(), "it only grows");
    world.change("UPDATE shard_lease SET until = until - 5001").await;
    assert!(!store.epoch_begin(A, row(SHARD, 1), 2, EpochCause::Tail).await.unwrap(), "the lease is over");
    assert!(begun(&store, B, 1, EpochCause::Tail).await);
    let epoch = store.epochs().await.unwrap()[0];
    assert_eq!((epoch.epoch, epoch.cause, epoch.stage), (2, EpochCause::Tail, Stage::Begun));
    assert!(epoch.age < Duration::from_secs(60));
    // The one that was overtaken moves nothing.
    assert!(!store.epoch_stage(SHARD, 1, Stage::Open).await.unwrap());
    assert_eq!(store.shard_sums(SHARD, 1, 0).await.unwrap(), None);
    assert!(store.epoch_stage(SHARD, 2, Stage::Restoring).await.unwrap());
    assert!(!store.epoch_stage(SHARD, 2, Stage::Restoring).await.unwrap());
    assert_eq!(store.shard_sums(SHARD, 2, 0).await.unwrap(), None, "sums are written before");
    assert!(store.epoch_stage(SHARD, 2, Stage::Open).await.unwrap());
    assert!(!store.epoch_stage(SHARD, 2, Stage::Restoring).await.unwrap(), "never back");
}

async fn who_lived_at_the_beginning_is_awaited_and_who_reports_is_told(world: World) {
    let store = world.open().await;
    store.beat(A).await.unwrap();
    store.beat(B).await.unwrap();
    store.beat(3).await.unwrap();
    world.change("UPDATE gateway SET seen_at = seen_at - 6001 WHERE id = 3").await;
    assert!(begun(&store, A, 0, EpochCause::All).await);
    let restored = Restored { held: 1, ended: 2, failed: 3 };
    store.report(SHARD, 1, A, Restored::default()).await.unwrap();
    store.report(SHARD, 1, A, restored).await.unwrap();
    store.report(SHARD, 1, 3, Restored::default()).await.unwrap();
    let told = store.restorers(SHARD, 1).await.unwrap();
    let of = |gateway| told.iter().find(|one| one.gateway == gateway).copied().unwrap();
    assert_eq!(of(A), Restorer { gateway: A, awaited: true, restored: Some(restored) });
    assert_eq!(of(B), Restorer { gateway: B, awaited: true, restored: None });
    assert_eq!(of(3), Restorer { gateway: 3, awaited: false, restored: Some(Restored::default()) });
    assert!(begun(&store, A, 1, EpochCause::Tail).await);
    assert!(store.restorers(SHARD, 1).await.unwrap().is_empty(), "forgotten with its epoch");
    assert_eq!(store.restorers(SHARD, 2).await.unwrap().len(), 2);
}

async fn a_shards_sums_are_its_own_and_stand_at_their_watermark(world: World) {
    let store = world.open().await;
    let (ours, other) = ("acme", "globex");
    assert_ne!(shard_of(ours), shard_of(other));
    let batch = [of(ours, 1, 100, 15), of(ours, 4, 100, 5), of(ours, 2, 0, 7), of(other, 3, 100, 99)];
    store.append(&batch).await.unwrap();
    let pool = call(9);
    let body = EntryBody { side: Side::Pool, pool: Name::from(ours), ..pool.body };
    let late = Entry { posted: vec![leg(5, 6, 200, -3)], body, ..pool };
    store.append(&[late]).await.unwrap();
    let shard = shard_of(ours);
    assert!(store.lease(shard, A).await.unwrap());
    assert!(store.epoch_begin(A, row(shard, 0), 1, EpochCause::All).await.unwrap());
    let sums = store.shard_sums(shard, 1, 100).await.unwrap().unwrap();
    let told: Vec<_> = sums.sums.iter().map(|sum| (sum.account.subject.0, sum.period, sum.amount)).collect();
    assert_eq!(told, [(1, 100, 20), (2, 0, 7), (5, 200, -3)]);
    assert_eq!((sums.watermark, sums.astray), (5, 0));
    assert_eq!(store.epochs().await.unwrap()[0].watermark, 5);
    let since = store.shard_sums(shard, 1, 101).await.unwrap().unwrap();
    assert_eq!(since.sums.len(), 2, "the period that began before is left out, the lifetime one is not");
    // What an earlier layout wrote is in no shard until it is posted to again.
    world.change("UPDATE posted SET shard = NULL WHERE period = 100").await;
    let astray = store.shard_sums(shard, 1, 100).await.unwrap().unwrap();
    assert_eq!((astray.sums.len(), astray.astray), (2, 2));
    store.append(&[of(ours, 7, 100, 1)]).await.unwrap();
    let healed = store.shard_sums(shard, 1, 100).await.unwrap().unwrap();
    assert_eq!((healed.sums[0].amount, healed.sums.len(), healed.astray), (21, 3, 1));
}

async fn l08_the_watermark_of_sums_stands_until_everything_is_lost_again(world: World) {
    let store = world.open().await;
    store.append(&[of("acme", 1, 100, 15), of("acme", 2, 100, 5)]).await.unwrap();
    let shard = shard_of("acme");
    assert!(store.lease(shard, A).await.unwrap());
    let begin = async |next: u64, cause| {
        assert!(store.epoch_begin(A, row(shard, next - 1), next, cause).await.unwrap());
        store.epochs().await.unwrap()[0].watermark
    };
    assert_eq!(begin(1, EpochCause::All).await, 0, "before the sums are read");
    assert_eq!(store.shard_sums(shard, 1, 0).await.unwrap().unwrap().watermark, 2);
    store.append(&[of("acme", 3, 100, 1)]).await.unwrap();
    assert_eq!(begin(2, EpochCause::Tail).await, 2, "a lost tail leaves them there");
    assert_eq!(begin(3, EpochCause::All).await, 0);
}

async fn entries_are_found_by_key_with_the_place_they_were_inserted_at(world: World) {
    let store = world.open().await;
    let high = Entry { reservation: tollbook_ledger::ReservationId(u128::MAX - 1), ..call(1) };
    store.append(&[call(1), call(2), high.clone()]).await.unwrap();
    let late = tollbook_store::EntryKey { seq: 1, ..call(2).key() };
    let keys = [call(2).key(), call(3).key(), high.key(), late, call(1).key()];
    assert_eq!(store.entry_places(&keys).await.unwrap(), [Some(2), None, Some(3), None, Some(1)]);
    assert_eq!(store.entry_places(&[]).await.unwrap(), []);
    let many = vec![call(1).key(); tollbook_store::BATCH_MAX + 1];
    assert!(store.entry_places(&many).await.is_err());
    assert!(store.entry_places(&many[1..]).await.unwrap().iter().all(|place| *place == Some(1)));
    assert_eq!(store.entry(high.key()).await.unwrap(), Some(high));
    assert_eq!(store.entry(late).await.unwrap(), None);
}

#[tokio::test]
async fn a_file_of_the_second_layout_learns_its_shards_as_it_is_posted_to() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(dir.path().join("store.db")).create_if_missing(true);
    let mut raw = options.connect().await.unwrap();
    for layout in [
        include_str!("../../sql/sqlite/migrations/0001_journal.sql"),
        include_str!("../../sql/sqlite/migrations/0002_limit_history.sql"),
        "INSERT INTO posted (subject, account, period, amount) VALUES (1, 1, 100, 40)",
        "PRAGMA user_version = 2; PRAGMA application_id = 1414283851",
    ] {
        sqlx::raw_sql(layout).execute(&mut raw).await.unwrap();
    }
    raw.close().await.unwrap();
    let store = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
    let shard = shard_of("acme");
    assert!(store.lease(shard, A).await.unwrap());
    assert!(store.epoch_begin(A, row(shard, 0), 1, EpochCause::All).await.unwrap());
    let before = store.shard_sums(shard, 1, 0).await.unwrap().unwrap();
    assert_eq!((before.sums.len(), before.astray), (0, 1));
    store.append(&[of("acme", 1, 100, 2)]).await.unwrap();
    let after = store.shard_sums(shard, 1, 0).await.unwrap().unwrap();
    assert_eq!((after.sums[0].amount, after.astray), (42, 0));
}

/// Calls of an earlier version count: an empty store is not taken for one that was never used.
#[tokio::test]
async fn a_file_of_the_second_layout_finds_its_shards_from_its_entries() {
    let (ours, other) = ("acme", "globex");
    let batch: Vec<Entry> = (0..5_000_u128)
        .map(|id| Entry { ended_at: call(id).ended_at + u64::try_from(id).unwrap(), ..of(ours, id, 100, 1) })
        .collect();
    let pool = call(9_001);
    let body = EntryBody { side: Side::Pool, pool: Name::from(other), ..pool.body };
    let pool = Entry { posted: vec![leg(5, 6, 200, 8)], body, ..pool };
    let unbooked = Entry { origin: Origin::Unbooked, ended_at: u64::MAX >> 1, ..of(other, 9_002, 100, 7) };
    let world = World::file();
    let mut raw = world.other().await;
    crate::layouts::make(&mut raw, 2, &[batch, vec![pool.clone(), unbooked]].concat()).await;
    raw.close().await;
    let store = world.open().await;
    let shard = shard_of(ours);
    assert_eq!(store.newest_end(shard).await.unwrap(), Some(call(0).ended_at + 4_999));
    assert_eq!(store.newest_end(shard_of(other)).await.unwrap(), Some(pool.ended_at));
    assert!(!store.first_epoch(shard).await.unwrap(), "it was used");
    for (owner, told) in [(ours, vec![1_667, 1_667, 1_666]), (other, vec![8])] {
        let shard = shard_of(owner);
        assert!(store.lease(shard, A).await.unwrap());
        assert!(store.epoch_begin(A, row(shard, 0), 1, EpochCause::All).await.unwrap());
        let sums = store.shard_sums(shard, 1, 0).await.unwrap().unwrap();
        assert_eq!(sums.sums.iter().map(|sum| sum.amount).collect::<Vec<_>>(), told);
        assert_eq!((sums.watermark, sums.astray), (5_002, 0));
    }
}

/// An entry whose owner cannot be told takes nothing from what is known of its account.
async fn a_sum_keeps_its_shard_when_an_unreadable_entry_is_posted_to_it(world: World) {
    let store = world.open().await;
    store.append(&[of("acme", 1, 100, 2)]).await.unwrap();
    let unreadable = of("acme", 4, 100, 3);
    let body = EntryBody { side: Side::Unreadable, ..unreadable.body };
    store.append(&[Entry { body, ..unreadable }]).await.unwrap();
    let shard = shard_of("acme");
    assert!(store.lease(shard, A).await.unwrap());
    assert!(store.epoch_begin(A, row(shard, 0), 1, EpochCause::All).await.unwrap());
    let sums = store.shard_sums(shard, 1, 0).await.unwrap().unwrap();
    assert_eq!((sums.sums.len(), sums.sums[0].amount, sums.astray), (1, 5, 0));
}

async fn a_clock_that_steps_back_holds_up_nobody(world: World) {
    let store = world.open().await;
    store.beat(B).await.unwrap();
    assert!(begun(&store, B, 0, EpochCause::All).await);
    // An hour back: what was written is an hour ahead.
    world
        .change(
            "UPDATE gateway SET seen_at = seen_at + 3600000; UPDATE shard_lease SET until = until + 3600000;
         UPDATE shard_epoch SET staged_at = staged_at + 3600000",
        )
        .await;
    assert_eq!(store.epochs().await.unwrap()[0].age, Duration::MAX, "it is not known how old it is");
    assert_eq!(store.beat(A).await.unwrap(), 1, "nobody knows whether the other lives");
    assert!(begun(&store, A, 1, EpochCause::All).await, "a lease never lasts so long");
    let awaited = store.restorers(SHARD, 2).await.unwrap();
    assert_eq!(awaited.iter().map(|one| one.gateway).collect::<Vec<_>>(), [A]);
    // A correction by less than a lease is no reason for haste.
    world.change("UPDATE shard_epoch SET staged_at = staged_at + 4000").await;
    assert_eq!(store.epochs().await.unwrap()[0].age, Duration::ZERO);
    // A row so far ahead is forgotten like one that is old.
    world.change("UPDATE gateway SET seen_at = seen_at + 90000000 WHERE id = 2").await;
    store.beat(A).await.unwrap();
    world.change("INSERT INTO gateway VALUES (2, 0)").await;
}

async fn an_epochs_age_begins_anew_with_its_stage_and_opening_ends_the_lease(world: World) {
    let store = world.open().await;
    assert!(begun(&store, A, 0, EpochCause::All).await);
    world.change("UPDATE shard_epoch SET staged_at = staged_at - 60000").await;
    assert!(store.epochs().await.unwrap()[0].age >= Duration::from_secs(60));
    assert!(store.epoch_stage(SHARD, 1, Stage::Restoring).await.unwrap());
    assert!(store.epochs().await.unwrap()[0].age < Duration::from_secs(60));
    assert!(!store.lease(SHARD, B).await.unwrap());
    assert!(store.epoch_stage(SHARD, 1, Stage::Open).await.unwrap());
    assert!(store.lease(SHARD, B).await.unwrap());
}

/// Who judged by what it read a while ago begins nothing where another has gone on.
async fn an_epoch_begins_after_the_stage_that_was_seen(world: World) {
    let store = world.open().await;
    assert!(begun(&store, A, 0, EpochCause::All).await);
    let seen = store.epochs().await.unwrap()[0];
    for stage in [Stage::Restoring, Stage::Open] {
        assert!(store.epoch_stage(SHARD, 1, stage).await.unwrap());
        assert!(store.lease(SHARD, A).await.unwrap());
        assert!(!store.epoch_begin(A, seen, 2, EpochCause::All).await.unwrap(), "it is {stage:?}");
    }
    let now = store.epochs().await.unwrap()[0];
    assert!(store.epoch_begin(A, now, 2, EpochCause::Tail).await.unwrap());
}

#[tokio::test]
async fn a_file_names_its_gateways_once_and_another_file_others() {
    let (dir, store) = store().await;
    let again = SqlStore::open(&dir.path().join("store.db")).await.unwrap();
    assert_eq!(store.id().await.unwrap(), again.id().await.unwrap());
    let other = SqlStore::open(&dir.path().join("other.db")).await.unwrap();
    assert_ne!(store.id().await.unwrap(), other.id().await.unwrap());
}
