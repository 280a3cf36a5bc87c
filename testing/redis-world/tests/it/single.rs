//! One server: starts, answers, keeps what it acknowledged, stands still, and is gone afterwards.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollbook_redis_world::{Plan, Server, wait_for};

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn redis_answers_and_ends_with_its_owner() {
    let server = Server::redis();
    assert_eq!(server.ask(&["PING"]).text(), "PONG");
    assert!(server.info("redis_version").unwrap().starts_with(['6', '7', '8']));
    let pid = server.pid().unwrap();
    assert!(is_there(pid));
    drop(server);
    assert!(!is_there(pid));
}

#[test]
fn it_ends_with_a_process_that_is_killed() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_redis-world"))
        .arg("redis")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("redis://127.0.0.1:"));
    let line = lines.next().unwrap().unwrap();
    let (pid, dir) = line.split_once(' ').unwrap();
    let pid = pid.parse().unwrap();
    assert!(is_there(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_for(Duration::from_secs(20), || (!is_there(pid)).then_some(())).expect("it ends");
    // Its folder goes when another process makes its first.
    assert!(Path::new(dir).exists());
    let other = Command::new(env!("CARGO_BIN_EXE_redis-world")).arg("redis").stdin(Stdio::null()).output();
    assert!(other.unwrap().status.success());
    assert!(!Path::new(dir).exists());
}

#[test]
fn it_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(Server::redis).join().unwrap();
    assert_eq!(server.ask(&["PING"]).text(), "PONG");
}

#[test]
fn with_aof_a_kill_loses_nothing_and_without_it_all() {
    for (plan, kept) in [(Plan::redis().aof(), "1"), (Plan::redis(), "")] {
        let mut server = plan.start();
        let addr = server.addr();
        assert_eq!(server.ask(&["SET", "a", "1"]).text(), "OK");
        server.restart();
        assert_eq!(server.addr(), addr);
        assert_eq!(server.ask(&["GET", "a"]).text(), kept);
    }
}

#[test]
fn a_server_that_loads_says_so() {
    let mut server = Plan::redis().loads_slowly(Duration::from_millis(20)).start();
    for key in 0..100 {
        server.ask(&["SET", &key.to_string(), &"x".repeat(5000)]);
    }
    assert_eq!(server.ask(&["SAVE"]).text(), "OK");
    server.kill();
    server.start_loading();
    assert!(server.ask(&["PING"]).text().starts_with("LOADING "));
    server.comes_to_answer();
    assert_eq!(server.ask(&["DBSIZE"]).int(), Some(100));
}

#[test]
fn a_full_memory_refuses() {
    let server = Plan::redis().memory_max(1).start();
    let reply = server.ask(&["SET", "a", "1"]);
    assert!(reply.text().starts_with("OOM "), "{reply:?}");
}

#[test]
fn only_its_user_is_let_in() {
    let server = Plan::redis().user("gateway", "secret").start();
    assert_eq!(server.ask(&["ACL", "WHOAMI"]).text(), "gateway");
    let mut stranger =
        tollbook_redis_world::resp::Client::connect(server.addr(), Duration::from_secs(5)).unwrap();
    assert!(stranger.ask(&[b"PING"]).unwrap().text().starts_with("NOAUTH"));
}

#[test]
fn a_frozen_server_answers_when_it_is_thawed() {
    let server = Server::redis();
    let mut client = server.client();
    server.freeze();
    client.send(&[b"INCR", b"a"]).unwrap();
    server.thaw();
    assert_eq!(client.read().unwrap().int(), Some(1));
}

#[test]
fn a_replica_follows() {
    let primary = Server::redis();
    let replica = Plan::redis().replica_of(&primary).start();
    let up = || (replica.info("master_link_status")? == "up").then_some(());
    wait_for(Duration::from_secs(20), up).expect("the replica follows");
    assert_eq!(primary.ask(&["SET", "a", "1"]).text(), "OK");
    let there = || (replica.ask(&["GET", "a"]).text() == "1").then_some(());
    wait_for(Duration::from_secs(20), there).expect("the write arrives");
    assert!(replica.ask(&["SET", "a", "2"]).text().starts_with("READONLY"));
}
