//! One server in trouble: each failure has its kind, says whether the call may have been applied, and comes in time.

use std::time::Duration;

use tollbook_engine::Applied;
use tollbook_engine_redis::{Kind, Link, Options, Script};
use tollbook_redis_world::{Mode, Plan, Proxy, Server, ports, wait_for};

use super::{COUNT, LIMIT, comes_to_count, comes_to_fail, count, fails_in_time, options, patient, what};

#[tokio::test]
async fn a_server_that_is_not_there_refuses_and_is_found_when_it_comes() {
    let port = ports::free();
    let link = Link::open(&options(port.number())).unwrap();
    let script = Script::new(COUNT);
    comes_to_fail(&link, &script, Kind::Refused, Applied::No).await;
    drop(port);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_found_again_with_what_it_acknowledged() {
    for plan in [Plan::redis().aof(), Plan::valkey().aof()] {
        let mut server = plan.start();
        let link = patient(server.port());
        let script = Script::new(COUNT);
        for round in 1..=3 {
            assert_eq!(comes_to_count(&link, &script, "a").await, round);
            server.kill();
            comes_to_fail(&link, &script, Kind::Refused, Applied::No).await;
            server.start_again();
        }
        assert_eq!(comes_to_count(&link, &script, "a").await, 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b196_a_frozen_server_costs_one_deadline_and_then_nothing_is_sent() {
    let server = Server::redis();
    let link = Link::open(&Options { connections: 1, ..options(server.port()) }).unwrap();
    let script = Script::new(COUNT);
    let before = comes_to_count(&link, &script, "a").await;
    server.freeze();
    assert_eq!(what(&fails_in_time(&link, &script).await), (Kind::Deadline, Applied::Unknown));
    for _ in 0..5 {
        assert_eq!(fails_in_time(&link, &script).await.applied, Applied::No);
    }
    server.thaw();
    // The one call that was on its way is applied late; those that were not sent never are.
    let applied = |count| move |server: &Server| server.ask(&["GET", "a"]).int() == Some(before + count);
    wait_for(LIMIT, || applied(1)(&server).then_some(())).expect("it is applied");
    comes_to_count(&link, &script, "b").await;
    assert!(applied(1)(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_in_the_network_is_left_for_a_new_connection() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let link = Link::open(&options(proxy.port())).unwrap();
    let script = Script::new(COUNT);
    comes_to_count(&link, &script, "a").await;
    proxy.set(Mode::Hole);
    comes_to_fail(&link, &script, Kind::Deadline, Applied::Unknown).await;
    for _ in 0..10 {
        fails_in_time(&link, &script).await;
    }
    // What was in the hole is lost: as if the old connections never came back.
    proxy.cut();
    proxy.set(Mode::Pass);
    comes_to_count(&link, &script, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_in_mid_call_is_unknown_and_was_applied_here() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let link = Link::open(&Options { deadline: LIMIT, ..options(proxy.port()) }).unwrap();
    let script = Script::new(COUNT);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    proxy.set(Mode::MuteAnswers);
    let (error, ()) = tokio::join!(count(&link, &script, "a"), async {
        let applied = || (server.ask(&["GET", "a"]).int() == Some(2)).then_some(());
        tokio::task::block_in_place(|| wait_for(LIMIT, applied)).expect("the call arrives");
        proxy.cut();
    });
    assert_eq!(what(&error.unwrap_err()), (Kind::Lost, Applied::Unknown));
    proxy.set(Mode::Pass);
    assert_eq!(comes_to_count(&link, &script, "a").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_is_not_lost() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let link = Link::open(&Options { deadline: LIMIT, ..options(proxy.port()) }).unwrap();
    let script = Script::new(COUNT);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    proxy.set(Mode::Delay(Duration::from_millis(50)));
    let taken = proxy.taken();
    for round in 2..=5 {
        assert_eq!(count(&link, &script, "a").await, Ok(round));
    }
    assert_eq!(proxy.taken(), taken);
}

#[tokio::test]
async fn a_full_memory_applies_nothing() {
    for plan in [Plan::redis(), Plan::valkey()] {
        let server = plan.start();
        let link = patient(server.port());
        let script = Script::new(COUNT);
        assert_eq!(comes_to_count(&link, &script, "a").await, 1);
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
        comes_to_fail(&link, &script, Kind::Memory, Applied::No).await;
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(comes_to_count(&link, &script, "a").await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b201_a_busy_server_applies_nothing() {
    let server = Plan::redis().line("busy-reply-threshold 50").start();
    let link = patient(server.port());
    let script = Script::new(COUNT);
    assert_eq!(comes_to_count(&link, &script, "a").await, 1);
    let mut other = server.client();
    other.send(&[b"EVAL", b"while true do end", b"0"]).unwrap();
    comes_to_fail(&link, &script, Kind::Busy, Applied::No).await;
    assert_eq!(server.ask(&["SCRIPT", "KILL"]).text(), "OK");
    let number = comes_to_count(&link, &script, "a").await;
    // A call that came before the server knew that it is busy is applied after all.
    assert_eq!(server.ask(&["GET", "a"]).int(), Some(number));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b200_a_server_that_loads_applies_nothing() {
    let mut server = Plan::redis().loads_slowly(Duration::from_millis(20)).start();
    for key in 0..100 {
        server.ask(&["SET", &key.to_string(), &"x".repeat(5000)]);
    }
    server.ask(&["SAVE"]);
    let link = patient(server.port());
    let script = Script::new(COUNT);
    assert_eq!(comes_to_count(&link, &script, "a").await, 1);
    server.kill();
    server.start_loading();
    comes_to_fail(&link, &script, Kind::Loading, Applied::No).await;
    assert_eq!(comes_to_count(&link, &script, "a").await, 1);
}

#[tokio::test]
async fn a_replica_takes_no_writes_and_is_not_stormed() {
    let primary = Server::redis();
    let replica = Plan::redis().replica_of(&primary).start();
    let link = patient(replica.port());
    let script = Script::new(COUNT);
    let before = replica.info("total_connections_received").unwrap().parse::<u64>().unwrap();
    for _ in 0..200 {
        let error = count(&link, &script, "a").await.unwrap_err();
        assert_eq!(error.applied, Applied::No, "{error}");
    }
    comes_to_fail(&link, &script, Kind::ReadOnly, Applied::No).await;
    let after = replica.info("total_connections_received").unwrap().parse::<u64>().unwrap();
    assert!(after - before < 60, "{before} to {after}");
}
