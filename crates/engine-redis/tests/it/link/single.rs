//! One server that is well.

use std::sync::Arc;

use redis::Value;
use tollbook_engine::Applied;
use tollbook_engine_redis::{Kind, Script};
use tollbook_redis_world::{Server, wait_for};

use super::{COUNT, LIMIT, count, patient, what};

const MANY: i64 = 3000;

#[tokio::test]
async fn a_script_is_brought_and_called() {
    for server in [Server::redis(), Server::valkey()] {
        let link = patient(server.port());
        let script = Script::new(COUNT);
        assert_eq!(count(&link, &script, "a").await, Ok(1));
        assert_eq!(count(&link, &script, "a").await, Ok(2));
    }
}

#[tokio::test]
async fn keys_and_arguments_arrive_as_they_are() {
    let server = Server::redis();
    let link = patient(server.port());
    let script = Script::new("return {KEYS[1], KEYS[2], ARGV[1], #ARGV, ARGV[2]}");
    let (keys, args) = ([b"a\r\n".to_vec(), vec![0, 255]], [vec![b'x'; 100_000]]);
    let answer = link.call(&script, &keys, &args).await.unwrap();
    let text = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
    let run = server.info("run_id").unwrap();
    let own = [text(&keys[0]), text(&keys[1]), text(&args[0])];
    assert_eq!(answer, Value::Array([&own[..], &[Value::Int(2), text(run.as_bytes())]].concat()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b193_a_script_that_was_flushed_is_brought_again_and_not_by_all() {
    for server in [Server::redis(), Server::valkey()] {
        let link = Arc::new(patient(server.port()));
        let script = Arc::new(Script::new(COUNT));
        assert_eq!(count(&link, &script, "a").await, Ok(1));
        for round in 1..=3 {
            assert_eq!(server.ask(&["SCRIPT", "FLUSH"]).text(), "OK");
            let calls: Vec<_> = (0..100)
                .map(|_| {
                    let (link, script) = (Arc::clone(&link), Arc::clone(&script));
                    tokio::spawn(async move { count(&link, &script, "a").await })
                })
                .collect();
            for call in calls {
                assert!(call.await.unwrap().is_ok());
            }
            assert_eq!(server.ask(&["GET", "a"]).int(), Some(1 + 100 * round));
        }
        let loads = server.info("cmdstat_script|load").unwrap();
        let loads: u32 = loads.split(['=', ',']).nth(1).unwrap().parse().unwrap();
        assert!((4..=12).contains(&loads), "{loads}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_fit_on_the_connections_take_turns() {
    let server = Server::redis();
    let link = Arc::new(patient(server.port()));
    let script = Arc::new(Script::new(COUNT));
    let calls: Vec<_> = (0..MANY)
        .map(|_| {
            let (link, script) = (Arc::clone(&link), Arc::clone(&script));
            tokio::spawn(async move { count(&link, &script, "a").await })
        })
        .collect();
    let mut numbers = Vec::new();
    for call in calls {
        numbers.push(call.await.unwrap().unwrap());
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=MANY));
}

#[tokio::test]
async fn a_command_is_answered() {
    let server = Server::redis();
    let link = patient(server.port());
    let pong = Value::SimpleString("PONG".to_owned());
    assert_eq!(link.command(&redis::cmd("PING"), None).await, Ok(pong.clone()));
    assert_eq!(link.everywhere(&redis::cmd("PING")).await, Ok(vec![(server.addr().to_string(), Ok(pong))]));
}

#[tokio::test]
async fn a_command_that_is_refused_is_not_applied() {
    let server = Server::redis();
    let link = patient(server.port());
    let error = link.command(&redis::cmd("NONSENSE"), None).await.unwrap_err();
    assert_eq!(what(&error), (Kind::Other, Applied::No), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_connections_serve_all_and_are_closed_with_the_link() {
    let server = Server::redis();
    let clients = || server.ask(&["CLIENT", "LIST", "TYPE", "normal"]).text().lines().count() - 1;
    let come_to = |wanted| {
        let there = || (clients() == wanted).then_some(());
        tokio::task::block_in_place(|| wait_for(LIMIT, there)).expect("so many connections");
    };
    let link = patient(server.port());
    let script = Script::new(COUNT);
    come_to(2);
    for number in 1..=20 {
        assert_eq!(count(&link, &script, "a").await, Ok(number));
    }
    assert_eq!(clients(), 2);
    drop(link);
    come_to(0);
}

#[tokio::test]
async fn a_script_that_fails_may_have_been_applied() {
    let server = Server::redis();
    let link = patient(server.port());
    server.ask(&["SET", "a", "text"]);
    let wrong_type = Script::new("redis.call('INCR', 'b') return redis.call('LPUSH', KEYS[1], 'x')");
    let error = count(&link, &wrong_type, "a").await.unwrap_err();
    assert!(error.message.starts_with("WRONGTYPE"), "{error}");
    assert_eq!(what(&error), (Kind::Script, Applied::Unknown));
    assert_eq!(server.ask(&["GET", "b"]).int(), Some(1));
    let broken = Script::new("return nil + 1");
    assert_eq!(what(&count(&link, &broken, "a").await.unwrap_err()), (Kind::Script, Applied::Unknown));
}

#[tokio::test]
async fn a_script_that_no_server_takes_is_not_applied() {
    let server = Server::redis();
    let link = patient(server.port());
    let error = count(&link, &Script::new("this is no Lua"), "a").await.unwrap_err();
    assert_eq!(error.applied, Applied::No, "{error}");
}
