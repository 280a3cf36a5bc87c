//! What a call holds that nobody ends, freed by an operator.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tollbook_ledger::ReservationId;
use tollbook_redis_world::Server;
use tollbook_store::{Journal as _, Origin, Side};
use tollbook_store_sql::SqlStore;

use crate::office_world::{World, chat, cli};
use crate::process::{OPERATOR, Tollbook, call, until};

/// A gateway that renews often, and whose model has limits of its own.
fn start(world: &World, engine: &str) -> Tollbook {
    let path = world.file("a", &["m"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("config:", &format!("calls: {{ renew_every: 50ms }}\n{engine}config:"));
    let text = text.replace("price:", "limits: [{ name: pool, measure: concurrency, ceiling: 9 }], price:");
    std::fs::write(&path, text).unwrap();
    Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap())
}

fn frees_a_stuck_call(world: &World, engine: &str) {
    let gateway = start(world, engine);
    let secret = gateway.with_key();
    let limits = json!({"limits": [
        {"name": "day", "measure": "tokens", "period": "day", "ceiling": 100_000},
        {"name": "slot", "measure": "concurrency", "ceiling": 1},
    ]});
    gateway.ask("PATCH", "/tenants/acme", limits, 200);
    gateway.ask("POST", "/tenants", json!({"id": "other"}), 201);
    let operator =
        |body: Value| gateway.ask("POST", "/operators", body, 201)["secret"].as_str().unwrap().to_owned();
    let stranger = operator(json!({"id": "s", "role": "admin", "tenant": "other"}));
    let bound = operator(json!({"id": "b", "role": "admin", "tenant": "acme"}));
    let viewer = operator(json!({"id": "v", "role": "viewer"}));

    let (address, key) = (gateway.gateway, secret.clone());
    let stream = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let body = stream.to_string();
    let long = std::thread::spawn(move || call(address, "POST", "/v1/chat/completions", &key, &body).0);
    let id = until("the call is sent", || {
        // A shard of a shared book that was never used is not there.
        let (_, kept) = gateway.operators("GET", "/admin/v1/inspect/acme", &Value::Null);
        let hold = kept["holds"].as_array()?.iter().find(|hold| hold["sent"] == true)?.clone();
        Some(hold["id"].as_str().unwrap().to_owned())
    });
    assert_eq!(gateway.chat(&secret, &json!({"model": "m", "messages": []})).0, 429);

    let admin = gateway.admin.unwrap();
    let path = format!("/admin/v1/holds/{id}/release");
    let order = json!({"reason": "it hangs: ü4711"}).to_string();
    let status = |key: &str, path: &str, order: &str| call(admin, "POST", path, key, order).0;
    assert_eq!(status(&viewer, &path, &order), 403);
    // Of another tenant it is what it would be if it were not there.
    let there = call(admin, "POST", &path, &stranger, &order);
    let (nothing, other) = ("0".repeat(32), "/admin/v1/holds/".to_owned());
    let absent = call(admin, "POST", &format!("{other}{nothing}/release"), &stranger, &order);
    assert_eq!((there.0, there.1.to_string()), (404, absent.1.to_string().replace(&nothing, &id)));
    for order in ["{}", r#"{"reason": " "}"#, r#"{"reason": "x", "id": 1}"#, &"x".repeat(600)] {
        assert_eq!(status(OPERATOR, &path, order), 400, "{order}");
    }
    let long_reason = json!({"reason": "x".repeat(428)}).to_string();
    assert_eq!(status(OPERATOR, &path, &long_reason), 400);
    assert_eq!(status(OPERATOR, &format!("{other}4711/release"), &order), 400);
    assert_eq!(status(OPERATOR, &format!("{other}{nothing}/release"), &order), 404);

    let (got, freed) = call(admin, "POST", &path, &bound, &order);
    assert_eq!(got, 200, "{freed}");
    let sides: Vec<&Value> = freed["released"].as_array().unwrap().iter().map(|one| &one["side"]).collect();
    assert_eq!(sides, ["tenant", "pool"], "{freed}");
    let limit = |name: &str| {
        let limit = gateway.limit(name);
        (limit["held"].as_i64().unwrap(), limit["live_holds"].as_u64().unwrap())
    };
    assert_eq!((limit("slot"), limit("pool"), limit("day")), ((0, 0), (0, 0), (0, 0)));
    let (code, out, err) = cli(&gateway, &["release", &id, "--reason", "again"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("it has ended, or there was none"), "{err}");

    // The call went on, and what it consumed is booked when it ends.
    assert_eq!(long.join().unwrap(), 200);
    let store = if engine.is_empty() { "store.sqlite" } else { "redis.sqlite" };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let number = ReservationId::parse(&id).unwrap();
    let entries = until("both entries", || {
        let entries = runtime.block_on(async {
            let store = SqlStore::open(&world.folder.path().join(store)).await.unwrap();
            let entries = store.by_reservation(number).await.unwrap();
            store.close().await;
            entries
        });
        (entries.len() == 2).then_some(entries)
    });
    let [freed, late] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((freed.origin, late.origin, freed.body.side), (Origin::Expired, Origin::Late, Side::Tenant));
    let ladder: Vec<&str> = freed.body.ladder.iter().map(AsRef::as_ref).collect();
    assert_eq!(ladder, ["by b", "it hangs: ü4711"]);
    let used: i64 = entries.iter().map(|entry| entry.body.usage.llm_tokens()).sum();
    let posted: i64 = entries.iter().flat_map(|entry| &entry.posted).map(|posted| posted.amount).sum();
    assert_eq!((gateway.limit("day")["posted"].as_i64().unwrap(), used), (posted, posted));
    assert!(used > 0 && late.body.usage.llm_tokens() != 0, "{entries:?}");
    assert_eq!(entries.iter().map(|entry| entry.requests).sum::<i64>(), 1);
    gateway.stop();
}

#[test]
fn a_stuck_hold_is_freed_once_with_a_reason_and_the_call_is_booked_when_it_ends() {
    frees_a_stuck_call(&World::paced(Duration::from_millis(60)), "");
}

#[test]
fn a_stuck_hold_of_a_shared_book_is_freed_too() {
    let redis = Server::redis();
    let mut world = World::paced(Duration::from_millis(60));
    world.keep_in("redis.sqlite");
    frees_a_stuck_call(
        &world,
        &format!("engine: {{ redis: {{ url: \"redis://{}\", fleet_size: 1 }} }}\n", redis.addr()),
    );
}

/// A gateway that stands still keeps a lost part of the book from being whole: what it knows of is waited for.
#[test]
fn what_a_lost_part_of_the_book_held_is_not_called_unknown() {
    let redis = Server::redis();
    let mut world = World::new();
    world.book = Some(format!("redis://{}", redis.addr()));
    let (gateway, other) = (world.start("a"), world.start("b"));
    let secret = gateway.with_key();
    let hard = json!({"limits": [{"name": "day", "measure": "requests", "period": "day", "ceiling": 1_000}]});
    gateway.ask("PATCH", "/tenants/acme", hard, 200);
    for one in [&gateway, &other] {
        until("both know the key", || (one.chat(&secret, &chat()).0 == 200).then_some(()));
    }
    let order = json!({"reason": "it hangs"});
    let path = "/admin/v1/holds/00000000000000000000000000004711/release";
    assert_eq!(gateway.operators("POST", path, &order).0, 404);
    other.signal(Signal::STOP);
    redis.ask(&["FLUSHALL"]);
    until("the loss is noticed", || (gateway.chat(&secret, &chat()).0 != 200).then_some(()));
    let (status, told) = gateway.operators("POST", path, &order);
    assert_eq!((status, &told["code"]), (503, &json!("away")), "{told}");
    assert!(told["detail"].as_str().unwrap().contains("lost"), "{told}");
    other.signal(Signal::CONT);
    until("the book is whole", || (gateway.operators("POST", path, &order).0 == 404).then_some(()));
    gateway.stop();
    other.stop();
}
