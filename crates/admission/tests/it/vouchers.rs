//! What a gateway remembers for a book that can be lost.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollbook_admission::{Admitted, Outcome, Readiness, Refused, Settings, VoucherBounds, shard};
use tollbook_engine::ledger::End;
use tollbook_engine::{
    Engine, ExpireCall, Loss, LostShards, RESTORED_ONCE, RestoreCall, RestoredState, Source,
};
use tollbook_policy::{LimitDraft, Measure, OnExpiry, WhenAway};
use tollbook_store::{
    Answer, Entry, EntryBody, EntryKey, EpochCause, Fleet, GatewayId, Origin, Restored, Restorer, ShardEpoch,
    ShardSums, Side, Stage, StoreError, StoreErrorKind,
};

use crate::away::leave;
use crate::flaky::Mood;
use crate::settling::{limits, used};
use crate::world::{World, daily, pool_daily};

/// Where the journal's store has entries.
#[derive(Default)]
struct Places {
    entries: Mutex<BTreeMap<EntryKey, (i64, Entry)>>,
    epoch: Mutex<Option<ShardEpoch>>,
    away: Mutex<bool>,
}

fn no<'a, T: Send + 'a>() -> Answer<'a, T> {
    Box::pin(ready(Err(StoreError::not_applied(StoreErrorKind::Away("a test".to_owned())))))
}

impl Fleet for Places {
    fn id(&self) -> Answer<'_, u64> {
        no()
    }
    fn beat(&self, _: GatewayId) -> Answer<'_, u32> {
        no()
    }
    fn leave(&self, _: GatewayId) -> Answer<'_, ()> {
        no()
    }
    fn epochs(&self) -> Answer<'_, Vec<ShardEpoch>> {
        let rows = self.epoch.lock().unwrap().iter().copied().collect();
        Box::pin(ready(Ok(rows)))
    }
    fn first_epoch(&self, _: u8) -> Answer<'_, bool> {
        no()
    }
    fn lease(&self, _: u8, _: GatewayId) -> Answer<'_, bool> {
        no()
    }
    fn lease_end(&self, _: u8, _: GatewayId) -> Answer<'_, ()> {
        no()
    }
    fn epoch_begin(&self, _: GatewayId, _: ShardEpoch, _: u64, _: EpochCause) -> Answer<'_, bool> {
        no()
    }
    fn shard_sums(&self, _: u8, _: u64, _: u64) -> Answer<'_, Option<ShardSums>> {
        no()
    }
    fn epoch_stage(&self, _: u8, _: u64, _: Stage) -> Answer<'_, bool> {
        no()
    }
    fn report(&self, _: u8, _: u64, _: GatewayId, _: Restored) -> Answer<'_, ()> {
        no()
    }
    fn restorers(&self, _: u8, _: u64) -> Answer<'_, Vec<Restorer>> {
        no()
    }
    fn newest_end(&self, _: u8) -> Answer<'_, Option<u64>> {
        no()
    }
    fn entry_places<'a>(&'a self, keys: &'a [EntryKey]) -> Answer<'a, Vec<Option<i64>>> {
        if *self.away.lock().unwrap() {
            return no();
        }
        let entries = self.entries.lock().unwrap();
        let places = keys.iter().map(|key| entries.get(key).map(|(place, _)| *place)).collect();
        Box::pin(ready(Ok(places)))
    }
    fn entry(&self, key: EntryKey) -> Answer<'_, Option<Entry>> {
        let entry = self.entries.lock().unwrap().get(&key).map(|(_, entry)| entry.clone());
        Box::pin(ready(Ok(entry)))
    }
}

impl Places {
    /// The store takes every entry that the book has.
    async fn drain(&self, world: &World) {
        for record in world.journal().await {
            let entry = Entry {
                reservation: record.id,
                attempt: record.attempt,
                seq: record.seq,
                origin: match record.source {
                    Source::Settled => Origin::Settled,
                    Source::Released => Origin::Released,
                    Source::Expired => Origin::Expired,
                    Source::Late => Origin::Late,
                    other => panic!("{other:?}"),
                },
                admitted_at: record.admitted,
                ended_at: record.ended,
                requests: 1,
                posted: record.posted.clone(),
                body: EntryBody { side: Side::Tenant, ..EntryBody::default() },
            };
            let mut entries = self.entries.lock().unwrap();
            let place = i64::try_from(entries.len()).unwrap() + 1;
            entries.entry(entry.key()).or_insert((place, entry));
        }
    }
}

async fn start(limits: Vec<tollbook_policy::LimitDraft>) -> (World, Arc<LostShards>, Arc<Places>) {
    let fleet = Arc::new(Places::default());
    let (world, lost) =
        World::losable(limits, Settings::default(), Arc::clone(&fleet) as Arc<dyn Fleet>).await;
    (world, lost, fleet)
}

fn epoch(number: u64, cause: EpochCause, watermark: i64) -> ShardEpoch {
    let shard = shard("acme").0;
    ShardEpoch { shard, epoch: number, cause, stage: Stage::Restoring, watermark, age: Duration::ZERO }
}

async fn sent(world: &World) -> Admitted {
    let mut admitted = world.admit(false).await.unwrap();
    admitted.ticket.sending();
    admitted
}

/// As a rebuild does that this gateway hears of.
async fn restore(world: &World, fleet: &Places, row: ShardEpoch) -> Restored {
    *fleet.epoch.lock().unwrap() = Some(row);
    world.admission.restore(&row).await.unwrap()
}

/// The one call under way is swept, long after its time.
async fn expire(world: &World) {
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.clock.0.fetch_add(3_600_000_000, Ordering::SeqCst);
    let due = world.engine.due(shard("acme"), 10).await.unwrap().value;
    let due: Vec<_> = due.into_iter().map(|d| ExpireCall { claim: d.claim, subjects: d.subjects }).collect();
    assert_eq!(due.len(), 1);
    world.engine.expire(&due).await.unwrap();
}

fn kept(world: &World) -> u64 {
    world.admission.vouchers().unwrap().len()
}

fn restored(world: &World) -> Vec<RestoreCall> {
    std::mem::take(&mut *world.engine.restored.lock().unwrap())
}

/// How a call ended, what it posted, its output, and whether it has an entry.
fn ended(call: &RestoreCall) -> (End, Option<Vec<u64>>, u64, bool) {
    match &call.state {
        RestoredState::Ended { how, posted, landed, entry, .. } => {
            (*how, posted.clone(), *landed, entry.is_some())
        }
        RestoredState::Held { .. } => panic!("it has ended"),
    }
}

#[tokio::test(start_paused = true)]
async fn l08_a_call_is_remembered_until_the_journal_has_its_end() {
    let (world, _, fleet) = start(limits()).await;
    let vouchers = world.admission.vouchers().unwrap();
    let (first, second) = (sent(&world).await, sent(&world).await);
    assert_eq!(kept(&world), 2);
    first.ticket.end(&used(10, 5));
    assert_eq!((vouchers.ask().await, kept(&world)), (Ok(0), 2), "the journal has not its entry yet");
    *fleet.away.lock().unwrap() = true;
    assert!(vouchers.ask().await.is_err());
    *fleet.away.lock().unwrap() = false;
    fleet.drain(&world).await;
    assert_eq!((vouchers.ask().await, kept(&world)), (Ok(1), 1));
    // What never left the gateway gave everything back: there is nothing to remember.
    second.ticket.end(&Outcome::never_sent());
    drop(world.admit(false).await.unwrap());
    assert_eq!(kept(&world), 0);
    assert!(vouchers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn both_sides_of_a_call_are_remembered() {
    let (world, _, _) =
        start(vec![daily(Measure::Tokens, 1_000_000), pool_daily(Measure::Tokens, 1_000_000)]).await;
    let admitted = sent(&world).await;
    assert_eq!(kept(&world), 2);
    admitted.ticket.end(&used(10, 5));
    assert_eq!(kept(&world), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_left_at_its_pool_is_not_remembered() {
    let (world, _, _) =
        start(vec![daily(Measure::Tokens, 1_000_000), pool_daily(Measure::Tokens, 1_000_000)]).await;
    world.engine.set(Mood::PoolSilent);
    assert!(leave(&world).await.0, "it waits for its pool");
    assert_eq!((world.balance(0).await, kept(&world)), ((0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_book_hears_of_calls_under_way_and_of_those_that_have_ended() {
    let (world, _, fleet) = start(limits()).await;
    let (live, at_the_door) = (sent(&world).await, world.admit(false).await.unwrap());
    sent(&world).await.ticket.end(&used(10, 5));
    fleet.drain(&world).await;
    sent(&world).await.ticket.end(&used(20, 7));
    sent(&world).await.ticket.end(&Outcome::upstream_error());
    let told = world.admission.restore(&epoch(2, EpochCause::All, 1)).await.unwrap();
    assert_eq!(told, Restored { held: 2, ended: 3, failed: 0 });
    let mut calls = restored(&world);
    calls.sort_by_key(|call| call.receipt.receipt.id);
    assert!(matches!(calls[0].state, RestoredState::Held { sent: true }));
    assert!(matches!(calls[1].state, RestoredState::Held { sent: false }));
    // In the sums already; the book only remembers that it has ended.
    assert_eq!(ended(&calls[2]), (End::Settled, None, 5, false));
    assert_eq!(ended(&calls[3]), (End::Settled, Some(vec![1, 27]), 7, true));
    assert_eq!(ended(&calls[4]), (End::Released, Some(vec![1, 0]), 0, true));
    assert!(calls.iter().all(|call| call.asked.reserve.id == call.receipt.receipt.id));
    // A lost tail is no loss of sums: what the journal has is told with its amounts.
    world.admission.restore(&epoch(3, EpochCause::Tail, 0)).await.unwrap();
    assert_eq!(
        restored(&world)
            .iter()
            .filter(|call| matches!(&call.state, RestoredState::Ended { posted: None, .. }))
            .count(),
        0
    );
    assert_eq!(world.admission.vouchers().unwrap().restored(shard("acme")), 3);
    drop((live, at_the_door));
}

/// A call whose hold has expired is the journal's: nobody holds it again.
#[tokio::test(start_paused = true)]
async fn l08_what_has_expired_is_not_held_again() {
    let (world, _, fleet) = start(limits()).await;
    let live = sent(&world).await;
    assert_eq!(world.admission.restore(&epoch(2, EpochCause::All, 0)).await.unwrap().held, 1);
    expire(&world).await;
    fleet.drain(&world).await;
    for watermark in [1, 0] {
        let told = world.admission.restore(&epoch(3, EpochCause::All, watermark)).await.unwrap();
        assert_eq!(told, Restored::default());
    }
    drop(live);
}

#[tokio::test(start_paused = true)]
async fn ends_wait_while_the_shard_is_lost_and_until_its_calls_are_restored() {
    let (world, lost, _) = start(limits()).await;
    let (first, second) = (sent(&world).await, sent(&world).await);
    *world.engine.lost.lock().unwrap() = Some((shard("acme"), Loss::All));
    first.ticket.end(&used(10, 5));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(lost.list(), [shard("acme")], "it is told to who mends it");
    assert!(world.admission.restore(&epoch(2, EpochCause::All, 0)).await.is_err(), "it is still lost");
    *world.engine.lost.lock().unwrap() = None;
    // The shard is open for others; this gateway has not restored its calls for it.
    second.ticket.end(&used(10, 5));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(world.journal().await.is_empty(), "the book would not know them");
    world.admission.restore(&epoch(2, EpochCause::All, 0)).await.unwrap();
    assert!(restored(&world).iter().all(|call| matches!(call.state, RestoredState::Held { .. })));
    world.until("both are settled", async || world.journal().await.len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_a_moment_for_a_shard_that_is_being_opened() {
    let (world, lost, _) = start(limits()).await;
    let lose = |loss| *world.engine.lost.lock().unwrap() = loss;
    let refused = async || {
        let began = tokio::time::Instant::now();
        assert!(matches!(world.admit(false).await, Err(Refused::Away { .. })), "nobody opens it");
        began.elapsed()
    };
    for _ in 0..2 {
        lose(Some((shard("acme"), Loss::All)));
        let opened = async {
            lost.next().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            lose(None);
            lost.whole(shard("acme"));
        };
        let (admitted, ()) = tokio::join!(world.admit(false), opened);
        assert!(admitted.is_ok());
        lose(Some((shard("acme"), Loss::All)));
        assert_eq!(refused().await, VoucherBounds::default().wait);
        lost.next().await;
        for _ in 0..100 {
            assert_eq!(refused().await, Duration::ZERO, "once is enough");
        }
        lost.whole(shard("acme"));
    }
}

/// Of a shared book one shard says nothing of the others; where it is gone as a whole, other gateways may reach it.
#[tokio::test(start_paused = true)]
async fn one_shard_that_is_away_leaves_a_gateway_ready_whose_limits_are_closed() {
    let (world, _, _) = start(vec![daily(Measure::Tokens, 1_000_000)]).await;
    let refused = async || matches!(world.admit(false).await, Err(Refused::Away { .. }));
    *world.engine.lost.lock().unwrap() = Some((shard("acme"), Loss::All));
    for _ in 0..50 {
        assert!(refused().await);
        assert_eq!(world.admission.readiness(), Readiness::Degraded);
    }
    *world.engine.lost.lock().unwrap() = None;
    world.engine.set(Mood::Away);
    for _ in 0..50 {
        assert!(refused().await);
    }
    assert_eq!(world.admission.readiness(), Readiness::EngineAway);
    world.engine.set(Mood::Well);
    world.until("it is back", async || world.admission.readiness() == Readiness::Ready).await;
    assert!(world.admit(false).await.is_ok());
}

/// What one shard has lost concerns its own holds alone; those who mend it hear of it.
#[tokio::test(start_paused = true)]
async fn a_lost_shard_keeps_no_other_from_being_renewed() {
    let (world, lost, _) =
        start(vec![daily(Measure::Tokens, 1_000_000), pool_daily(Measure::Tokens, 1_000_000)]).await;
    let call = sent(&world).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    *world.engine.lost.lock().unwrap() = Some((shard("pool"), Loss::All));
    let renewed = world.metrics.admission_renewed.get(());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.metrics.admission_renewed.get(()) > renewed);
    assert_eq!(lost.list(), [shard("pool")]);
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_is_counted_and_the_call_goes_on() {
    let fleet = Arc::new(Places::default());
    let vouchers = VoucherBounds { memory_max: 6_000, ..VoucherBounds::default() };
    let settings = Settings { vouchers, ..Settings::default() };
    let (world, _) = World::losable(limits(), settings, fleet as Arc<dyn Fleet>).await;
    let mut calls = Vec::new();
    while world.metrics.voucher_unkept.get(()) == 0 {
        calls.push(sent(&world).await);
        assert!(calls.len() < 100);
    }
    assert!(kept(&world) >= 1 && kept(&world) < u64::try_from(calls.len()).unwrap());
    for call in calls.drain(..) {
        call.ticket.end(&used(10, 5));
    }
    assert!(world.journal().await.len() > usize::try_from(kept(&world)).unwrap());
}

/// What finds no room in memory is on disk: it is restored, sent again and forgotten as if it were here.
#[tokio::test(start_paused = true)]
async fn what_finds_no_room_in_memory_is_remembered_on_disk() {
    const CALLS: usize = 40;
    let (fleet, dir) = (Arc::new(Places::default()), tempfile::tempdir().unwrap());
    let vouchers = VoucherBounds { memory_max: 6_000, ..VoucherBounds::default() };
    let settings = Settings { vouchers, ..Settings::default() };
    let places = Arc::clone(&fleet) as Arc<dyn Fleet>;
    let (world, _) = World::losable_in(limits(), settings, places, Some(dir.path())).await;
    let files = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("vouchers-")).count()
    };
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        calls.push(sent(&world).await);
    }
    assert_eq!((kept(&world), files()), (40, 1));
    for (number, call) in calls.drain(CALLS / 2..).enumerate() {
        call.ticket.end(&used(10 + number as u64, 5));
    }
    world.until("they have ended", async || world.journal().await.len() == CALLS / 2).await;
    let told = restore(&world, &fleet, epoch(2, EpochCause::All, 0)).await;
    assert_eq!(told, Restored { held: 20, ended: 20, failed: 0 });
    let calls_told = restored(&world);
    let is_held = |call: &&RestoreCall| matches!(call.state, RestoredState::Held { sent: true });
    assert_eq!(calls_told.iter().filter(is_held).count(), CALLS / 2);
    let mut posted: Vec<_> = calls_told.iter().filter(|call| !is_held(call)).map(ended).collect();
    posted.sort_by_key(|(_, posted, ..)| posted.clone());
    let want = (0..20).map(|number| (End::Settled, Some(vec![1, 15 + number]), 5, true));
    assert_eq!(posted, want.collect::<Vec<_>>());
    let place = |call: &RestoreCall| (call.asked.reserve.id, call.receipt.receipt.id);
    assert!(calls_told.iter().map(place).all(|(asked, told)| asked == told));
    assert!(calls_told.iter().all(|call| call.asked.reserve.legs.len() == call.receipt.receipt.legs.len()));
    fleet.drain(&world).await;
    let vouchers = world.admission.vouchers().unwrap();
    assert_eq!((vouchers.ask().await, kept(&world)), (Ok(20), 20));
    for call in calls.drain(..) {
        call.ticket.end(&Outcome::never_sent());
    }
    world.until("nothing is remembered", async || kept(&world) == 0).await;
    assert_eq!((files(), world.metrics.voucher_unkept.get(())), (0, 0));
}

/// Beyond both bounds it is told as it was without a folder.
#[tokio::test(start_paused = true)]
async fn what_finds_no_room_on_disk_either_is_counted() {
    let (fleet, dir) = (Arc::new(Places::default()), tempfile::tempdir().unwrap());
    let vouchers = VoucherBounds { memory_max: 6_000, ..VoucherBounds::default() };
    let settings = Settings { vouchers, spool_max: 8_000, ..Settings::default() };
    let (world, _) = World::losable_in(limits(), settings, fleet as Arc<dyn Fleet>, Some(dir.path())).await;
    let mut calls = Vec::new();
    while world.metrics.voucher_unkept.get(()) == 0 {
        calls.push(sent(&world).await);
        assert!(calls.len() < 100);
    }
    let remembered = kept(&world);
    assert!(remembered > 4 && remembered < calls.len() as u64, "{remembered} of {}", calls.len());
    for call in calls.drain(..) {
        call.ticket.end(&used(10, 5));
    }
    // An end that finds no room is not remembered as a call under way.
    assert!(world.journal().await.len() > usize::try_from(kept(&world)).unwrap());
    assert!(world.metrics.voucher_unkept.get(()) > 1);
}

/// What local books admitted is lost with the tail like anything else, until the journal has it.
#[tokio::test(start_paused = true)]
async fn l08_what_a_local_book_admitted_is_restored_again_after_another_loss() {
    let local = |limit| LimitDraft { when_away: Some(WhenAway::Local), ..limit };
    let (world, _, fleet) =
        start(vec![local(daily(Measure::Tokens, 1_000_000)), local(pool_daily(Measure::Tokens, 1_000_000))])
            .await;
    world.engine.set(Mood::Away);
    sent(&world).await.ticket.end(&used(20, 7));
    drop(world.admit(false).await.unwrap());
    assert_eq!(kept(&world), 0, "the book has taken none of it");
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.engine.set(Mood::Well);
    world.until("both sides are restored", async || world.metrics.settle_restored.get(()) == 2).await;
    assert_eq!(kept(&world), 2);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let told = restore(&world, &fleet, epoch(2, EpochCause::Tail, 0)).await;
    assert_eq!(told, Restored { ended: 1, ..Restored::default() }, "the pool's shard has lost nothing");
    let calls = restored(&world);
    assert_eq!(ended(&calls[0]), (End::Settled, Some(vec![27]), 7, true));
    let RestoredState::Ended { age, .. } = calls[0].state else { panic!() };
    assert!(age >= 60_000_000, "since the call ended: {age}");
    assert_eq!(world.journal().await.len(), 1);
    fleet.drain(&world).await;
    restore(&world, &fleet, epoch(3, EpochCause::All, 1)).await;
    assert_eq!(ended(&restored(&world)[0]), (End::Settled, None, 7, false), "it is in the sums");
    let vouchers = world.admission.vouchers().unwrap();
    assert_eq!((vouchers.ask().await, kept(&world)), (Ok(1), 1), "the pool's has no entry in this journal");
}

/// A drain that read before everything was lost appends after the sums were taken.
#[tokio::test(start_paused = true)]
async fn l08_what_came_after_the_sums_is_remembered_until_it_is_restored() {
    let (world, _, fleet) = start(limits()).await;
    let vouchers = world.admission.vouchers().unwrap();
    sent(&world).await.ticket.end(&used(10, 5));
    let row = epoch(2, EpochCause::All, 0);
    *fleet.epoch.lock().unwrap() = Some(row);
    fleet.drain(&world).await;
    assert_eq!((vouchers.ask().await, kept(&world)), (Ok(0), 1), "this gateway has not heard of the epoch");
    restore(&world, &fleet, row).await;
    assert_eq!(ended(&restored(&world)[0]), (End::Settled, Some(vec![1, 15]), 5, true));
    assert_eq!((vouchers.ask().await, kept(&world)), (Ok(1), 0));
}

/// Sums that were written stand until everything is lost again.
#[tokio::test(start_paused = true)]
async fn l08_what_is_in_the_sums_is_not_posted_again_after_a_lost_tail() {
    let (world, _, fleet) = start(limits()).await;
    sent(&world).await.ticket.end(&used(10, 5));
    fleet.drain(&world).await;
    sent(&world).await.ticket.end(&used(20, 7));
    fleet.drain(&world).await;
    restore(&world, &fleet, epoch(3, EpochCause::Tail, 1)).await;
    let mut calls = restored(&world);
    calls.sort_by_key(|call| call.receipt.receipt.id);
    assert_eq!(ended(&calls[0]), (End::Settled, None, 5, false));
    assert_eq!(ended(&calls[1]), (End::Settled, Some(vec![1, 27]), 7, true));
}

/// A book forgets after a while that a call has ended; its end would be posted once more.
#[tokio::test(start_paused = true)]
async fn l08_a_lost_tail_brings_back_no_end_that_is_older() {
    let (world, _, fleet) = start(limits()).await;
    sent(&world).await.ticket.end(&used(10, 5));
    tokio::time::sleep(Duration::from_micros(RESTORED_ONCE)).await;
    let told = restore(&world, &fleet, epoch(2, EpochCause::Tail, 0)).await;
    assert_eq!(told.ended, 1, "at the bound");
    // It may have been there all the time, and is forgotten no later for that.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(restore(&world, &fleet, epoch(3, EpochCause::Tail, 0)).await, Restored::default());
    // Now the book has it anew.
    assert_eq!(restore(&world, &fleet, epoch(4, EpochCause::All, 0)).await.ended, 1);
    tokio::time::sleep(Duration::from_micros(RESTORED_ONCE)).await;
    assert_eq!(restore(&world, &fleet, epoch(5, EpochCause::Tail, 0)).await.ended, 1);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(restore(&world, &fleet, epoch(6, EpochCause::Tail, 0)).await, Restored::default());
}

#[tokio::test(start_paused = true)]
async fn l08_an_end_that_cannot_be_restored_is_settled_once_more() {
    let (world, _, fleet) = start(limits()).await;
    let settles = || world.engine.settles.load(Ordering::SeqCst);
    // Its hold has expired, and the journal has the entry of that alone.
    let late = sent(&world).await;
    expire(&world).await;
    fleet.drain(&world).await;
    late.ticket.end(&used(10, 5));
    assert_eq!((settles(), world.journal().await.len()), (1, 2));
    let told = restore(&world, &fleet, epoch(2, EpochCause::All, 1)).await;
    assert_eq!((told, settles()), (Restored::default(), 2));
    assert_eq!((world.journal().await.len(), kept(&world)), (2, 1), "this book had it");
    fleet.drain(&world).await;
    assert_eq!(world.admission.vouchers().unwrap().ask().await, Ok(1));
    // What the book refuses: an end is settled again, a call under way is forgotten.
    let live = sent(&world).await;
    sent(&world).await.ticket.end(&used(20, 7));
    assert_eq!((settles(), kept(&world)), (3, 2));
    world.engine.refuses.store(true, Ordering::SeqCst);
    let told = restore(&world, &fleet, epoch(3, EpochCause::All, 2)).await;
    assert_eq!((told.failed, settles(), kept(&world)), (2, 4, 1));
    live.ticket.end(&used(1, 1));
    assert_eq!((settles(), world.journal().await.len()), (5, 4));
}

/// The book that acknowledged it is gone by the time its answer comes.
#[tokio::test(start_paused = true)]
async fn l08_an_end_that_a_lost_book_acknowledged_is_sent_again() {
    let (world, _, fleet) = start(limits()).await;
    let (call, gone) = (sent(&world).await, world.admit(false).await.unwrap());
    world.engine.set(Mood::Slow);
    call.ticket.end(&used(10, 5));
    drop(gone);
    world.engine.set(Mood::Well);
    let told = restore(&world, &fleet, epoch(2, EpochCause::All, 0)).await;
    assert_eq!(told.held, 2, "nothing has been said of their ends yet");
    let settles = || world.engine.settles.load(Ordering::SeqCst);
    assert_eq!(settles(), 1);
    world.until("it is settled again", async || settles() == 2).await;
    world.until("the other is given back again", async || kept(&world) == 1).await;
    restored(&world);
    assert_eq!(restore(&world, &fleet, epoch(3, EpochCause::All, 0)).await.ended, 1);
    assert_eq!(ended(&restored(&world)[0]), (End::Settled, Some(vec![1, 15]), 5, true));
}

/// The book that is gone took an end and said so too late, and a drain wrote its entry: up to the watermark the sums have
/// it, after it nobody posts it but the call itself.
#[tokio::test(start_paused = true)]
async fn l08_an_end_nobody_heard_of_is_posted_unless_the_sums_have_it() {
    let settles = |world: &World| world.engine.settles.load(Ordering::SeqCst);
    for (cause, watermark, in_sums) in [
        (EpochCause::All, 0, false),
        (EpochCause::All, 1, true),
        (EpochCause::Tail, 0, false),
        (EpochCause::Tail, 1, true),
    ] {
        let (world, _, fleet) = start(limits()).await;
        let call = sent(&world).await;
        world.engine.set(Mood::Slow);
        call.ticket.end(&used(10, 5));
        world.engine.set(Mood::Well);
        fleet.drain(&world).await;
        let told = restore(&world, &fleet, epoch(2, cause, watermark)).await;
        let state = restored(&world).remove(0).state;
        if in_sums {
            assert_eq!(told, Restored { ended: 1, ..Restored::default() }, "{cause:?}");
            assert!(matches!(
                state,
                RestoredState::Ended { how: End::Settled, posted: None, entry: None, .. }
            ));
        } else {
            assert_eq!(told, Restored { held: 1, ..Restored::default() }, "{cause:?}");
            assert!(matches!(state, RestoredState::Held { sent: true }));
        }
        assert_eq!(settles(&world), 1);
        world.until("it is settled again", async || settles(&world) == 2).await;
        assert_eq!((world.admission.vouchers().unwrap().ask().await, kept(&world)), (Ok(1), 0));
    }
}

/// The same of a call that failed, and of a tail that was lost long after: the book has it.
#[tokio::test(start_paused = true)]
async fn l08_an_end_nobody_heard_of_is_not_brought_back_by_an_old_tail() {
    let (world, _, fleet) = start(limits()).await;
    let call = sent(&world).await;
    world.engine.set(Mood::Breaks);
    call.ticket.end(&Outcome::upstream_error());
    fleet.drain(&world).await;
    assert_eq!(restore(&world, &fleet, epoch(2, EpochCause::Tail, 0)).await.held, 1);
    restored(&world);
    tokio::time::sleep(Duration::from_micros(RESTORED_ONCE + 1)).await;
    let told = restore(&world, &fleet, epoch(3, EpochCause::Tail, 0)).await;
    assert_eq!(told, Restored::default());
    restore(&world, &fleet, epoch(4, EpochCause::All, 1)).await;
    let state = restored(&world).remove(0).state;
    assert!(matches!(state, RestoredState::Ended { how: End::Released, posted: None, entry: None, .. }));
}

/// A correction that was written after the sums is in them no more than any other end.
#[tokio::test(start_paused = true)]
async fn l08_a_correction_that_came_after_the_sums_is_restored() {
    let released = |limit| LimitDraft { on_expiry: Some(OnExpiry::Release), ..limit };
    let limits = [daily(Measure::Requests, 1_000), daily(Measure::Tokens, 1_000_000)];
    let (world, _, fleet) = start(limits.map(released).to_vec()).await;
    let late = sent(&world).await;
    expire(&world).await;
    late.ticket.end(&used(10, 5));
    fleet.drain(&world).await;
    for (number, watermark, posted) in [(2, 0, vec![1, 15]), (3, 1, vec![0, 15])] {
        restore(&world, &fleet, epoch(number, EpochCause::All, watermark)).await;
        assert_eq!(ended(&restored(&world)[0]), (End::Corrected, Some(posted), 0, false));
    }
    assert_eq!(restore(&world, &fleet, epoch(4, EpochCause::All, 2)).await, Restored::default());
}

#[tokio::test(start_paused = true)]
async fn l08_a_call_that_a_lost_book_admitted_is_restored_after_the_others() {
    let (world, _, fleet) = start(limits()).await;
    let vouchers = world.admission.vouchers().unwrap();
    let row = epoch(2, EpochCause::All, 0);
    world.engine.set(Mood::Slow);
    let (admitted, ()) = tokio::join!(world.admit(false), async {
        tokio::task::yield_now().await;
        assert_eq!(restore(&world, &fleet, row).await, Restored::default(), "nobody knows of it");
        world.engine.set(Mood::Well);
    });
    let mut admitted = admitted.unwrap();
    assert_eq!(vouchers.restored(shard("acme")), 0, "there is something to restore");
    admitted.ticket.sending();
    admitted.ticket.end(&used(10, 5));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.engine.settles.load(Ordering::SeqCst), 0, "the book does not know it");
    assert_eq!(restore(&world, &fleet, row).await.held, 1);
    assert_eq!(vouchers.restored(shard("acme")), 2);
    world.until("it is settled", async || world.engine.settles.load(Ordering::SeqCst) == 1).await;
}
