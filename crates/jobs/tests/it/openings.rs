//! Openings (L16): a quota added in mid-period starts from the journal, whoever runs the job and however often.

use std::sync::Arc;

use tollbook_engine::AdjustCall;
use tollbook_jobs::{Opened, Opening, Openings, users};
use tollbook_ledger::units::{REMEMBER, SECOND};
use tollbook_ledger::{self as ledger, AccountId, Measure, SubjectId};
use tollbook_store::{EntryBody, Journal, Name, Side, Span, UsageQuery};

use crate::world::{SHARD, START, World, body, leg, llm_tokens, requests};

/// The quota that is added: the tenant's llm_tokens under another account.
fn added() -> AccountId {
    AccountId { subject: SubjectId(1), name: 77 }
}

fn opening() -> Opening {
    let all = Name::default;
    Opening {
        id: 1 << 100,
        before: Vec::new(),
        shard: SHARD,
        account: added(),
        measure: Measure::Tokens,
        period: 0,
        end: u64::MAX,
        calls: UsageQuery {
            side: Side::Tenant,
            tenant: Name::from("acme"),
            project: all(),
            key: all(),
            service: all(),
            user: all(),
            pool: all(),
            model: all(),
            admitted: Span { from: 0, to: 0 },
            without: None,
        },
        amount: Arc::new(|sum| u64::try_from(sum.usage.llm_tokens()).unwrap_or(0)),
    }
}

fn job(world: &World) -> Openings {
    let drain = Arc::new(world.drain());
    Openings::new(world.engine.clone(), Arc::new(world.store.clone()), drain, world.metrics.clone())
}

async fn run(world: &World) -> Opened {
    job(world).once(&[opening()]).await.unwrap()
}

const ADJUSTED: Opened = Opened { adjusted: 1, unchanged: 0 };
const UNCHANGED: Opened = Opened { adjusted: 0, unchanged: 1 };

async fn call(world: &World, id: u128, output: i64) {
    world.send(id).await;
    world.settle(id, output).await;
}

#[tokio::test]
async fn l16_a_quota_added_in_mid_period_starts_from_the_journal() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    call(&world, 2, 7).await;
    assert_eq!(run(&world).await, ADJUSTED);
    assert_eq!(world.balance(added()).await, 32);
    assert_eq!(run(&world).await, UNCHANGED);
    assert_eq!((world.balance(added()).await, world.journaled(added()).await), (32, 32));
}

#[tokio::test]
async fn l16_calls_in_flight_at_the_change_are_added_by_a_later_round() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    world.send(2).await;
    assert_eq!(run(&world).await, ADJUSTED);
    world.settle(2, 7).await;
    assert_eq!(run(&world).await, ADJUSTED);
    assert_eq!(run(&world).await, UNCHANGED);
    assert_eq!(world.balance(added()).await, 32);
}

#[tokio::test]
async fn l16_calls_with_the_new_leg_are_not_counted_twice() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    // Admitted after the change: three legs, the new quota among them.
    let legs = vec![
        leg(llm_tokens(), Measure::Tokens),
        leg(requests(), Measure::Requests),
        leg(added(), Measure::Tokens),
    ];
    world.reserve_legs(SHARD, 2, legs).await;
    let settle = tollbook_engine::SettleCall {
        claim: crate::world::claim(2),
        accounts: vec![llm_tokens(), requests(), added()],
        actual: vec![17, 1, 17],
        landed: 0,
        learn: None,
        entry: body(2, 7).encode(),
        age: 0,
    };
    tollbook_engine::Engine::settle(&*world.engine, &settle).await.unwrap();
    assert_eq!(run(&world).await, ADJUSTED);
    assert_eq!(world.balance(added()).await, 32);
    assert_eq!(run(&world).await, UNCHANGED);
}

/// The engine remembers an adjust's id for half an hour, the journal for ever.
#[tokio::test]
async fn l16_an_opening_is_not_made_again_when_the_engine_has_forgotten_it() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    assert_eq!(run(&world).await, ADJUSTED);
    world.pass(2 * REMEMBER);
    world.engine.tick();
    assert_eq!(run(&world).await, UNCHANGED);
    assert_eq!(world.balance(added()).await, 15);
}

/// A quota that was away for a while is opened under another id; what it was opened with before is in it still.
#[tokio::test]
async fn l16_a_quota_that_comes_back_has_each_call_once() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    assert_eq!(run(&world).await, ADJUSTED);
    call(&world, 2, 7).await;
    let back = Opening { id: 1 << 101, before: vec![1 << 99, 1 << 100], ..opening() };
    assert_eq!(job(&world).once(std::slice::from_ref(&back)).await.unwrap(), ADJUSTED);
    assert_eq!(job(&world).once(&[back]).await.unwrap(), UNCHANGED);
    assert_eq!((world.balance(added()).await, world.journaled(added()).await), (32, 32));
}

#[tokio::test]
async fn l16_a_late_settle_below_the_charge_lowers_the_opening() {
    let world = World::new().await;
    world.send(1).await;
    world.pass(61 * SECOND);
    world.swept().await;
    assert_eq!(run(&world).await, ADJUSTED);
    assert_eq!(world.balance(added()).await, 30);
    world.settle(1, 5).await;
    assert_eq!(run(&world).await, ADJUSTED);
    assert_eq!(world.balance(added()).await, 15);
}

#[tokio::test]
async fn l16_only_calls_of_the_period_and_the_subject_count() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    let start = START / SECOND;
    let other = Opening { calls: UsageQuery { tenant: Name::from("other"), ..opening().calls }, ..opening() };
    assert_eq!(job(&world).once(&[other]).await, Ok(UNCHANGED));
    let next = Opening { period: start + 86_400, end: start + 2 * 86_400, ..opening() };
    assert_eq!(job(&world).once(&[next]).await, Ok(UNCHANGED));
    let current = Opening { period: start, end: start + 86_400, ..opening() };
    assert_eq!(job(&world).once(&[current]).await, Ok(ADJUSTED));
    assert_eq!(world.balance(added()).await, 15);
}

#[tokio::test]
async fn an_opening_writes_an_entry_that_adds_no_usage() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    run(&world).await;
    world.drained().await;
    let entry = &world.entries(1 << 100).await[0];
    assert_eq!((entry.requests, entry.body.usage.llm_tokens(), entry.body.cost_nano), (0, 0, 0));
    assert_eq!((&*entry.body.tenant, entry.posted[0].amount), ("acme", 15));
    let query = UsageQuery { admitted: Span { from: 0, to: u64::MAX }, ..opening().calls };
    assert_eq!(world.store.usage_sum(&query).await.unwrap().usage.llm_tokens(), 15);
}

/// Someone else used the id of a round: the next one takes the next id.
#[tokio::test]
async fn rounds_go_on_where_the_journal_ends() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    run(&world).await;
    let adjust = ledger::Adjust { id: (1 << 100) + 1, account: added(), period: 0, delta: 4, opening: None };
    world.adjust(&AdjustCall { shard: SHARD, adjust, entry: EntryBody::default().encode() }).await;
    assert_eq!(run(&world).await, ADJUSTED);
    assert_eq!(world.balance(added()).await, 15);
}

#[tokio::test]
async fn users_of_a_tenant_are_told() {
    let world = World::new().await;
    for (id, user) in [(1, "u2"), (2, "u1"), (3, "u2"), (4, "")] {
        world.send(id).await;
        let body = EntryBody { user: Name::from(user), ..body(id, 1) };
        world.settle_body(id, 1, body.encode()).await;
    }
    world.drained().await;
    let always = Span { from: 0, to: u64::MAX };
    let told = users(&world.store, &Name::from("acme"), always).await.unwrap();
    assert_eq!(told.iter().map(|u| &**u).collect::<Vec<_>>(), ["u1", "u2"]);
}

/// Later rounds leave out what was admitted since: those calls carry the new leg.
#[tokio::test]
async fn l16_a_round_looks_only_at_calls_from_before_its_bound() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    let job = job(&world);
    assert_eq!(job.once_before(&[opening()], START).await.unwrap(), UNCHANGED);
    assert_eq!(job.once_before(&[opening()], START + 3_600 * SECOND).await.unwrap(), ADJUSTED);
}

/// A lifetime quota goes back beyond every number of days. What is left of its calls is no sum to go by.
#[tokio::test]
async fn l16_a_quota_whose_calls_have_gone_stays_as_it_was_opened() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    assert_eq!(run(&world).await, ADJUSTED);
    let opened = world.balance(added()).await;
    assert!(opened > 0);
    world
        .store
        .change("DELETE FROM entry_row; UPDATE journal_kept SET since = 1772323201000000, place = 1000")
        .await
        .unwrap();
    call(&world, 2, 5).await;
    assert_eq!(run(&world).await, UNCHANGED);
    assert_eq!(world.balance(added()).await, opened);
}

/// One that was not opened yet is opened with what is kept.
#[tokio::test]
async fn l16_a_quota_whose_calls_have_gone_is_opened_with_what_is_kept() {
    let world = World::new().await;
    call(&world, 1, 5).await;
    world.drained().await;
    world
        .store
        .change("DELETE FROM entry_row; UPDATE journal_kept SET since = 1772323201000000, place = 1000")
        .await
        .unwrap();
    call(&world, 2, 7).await;
    assert_eq!(run(&world).await, ADJUSTED);
    assert_eq!(world.balance(added()).await, 17);
}
