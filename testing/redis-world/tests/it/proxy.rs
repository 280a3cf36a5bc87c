//! The wire: passes, delays, holds back, is cut.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tollbook_redis_world::resp::Client;
use tollbook_redis_world::{Mode, Proxy, Server};

const LIMIT: Duration = Duration::from_secs(10);

fn client(proxy: &Proxy, limit: Duration) -> Client {
    Client::connect(proxy.addr(), limit).unwrap()
}

#[test]
fn it_passes_and_delays() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let mut client = client(&proxy, LIMIT);
    assert_eq!(client.ask(&[b"PING"]).unwrap().text(), "PONG");
    proxy.set(Mode::Delay(Duration::from_millis(30)));
    let begun = Instant::now();
    assert_eq!(client.ask(&[b"PING"]).unwrap().text(), "PONG");
    assert!(begun.elapsed() >= Duration::from_millis(60));
}

#[test]
fn it_is_cut_and_takes_new_connections() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let mut first = client(&proxy, LIMIT);
    assert_eq!(first.ask(&[b"PING"]).unwrap().text(), "PONG");
    proxy.cut();
    assert!(first.ask(&[b"PING"]).is_err());
    assert_eq!(client(&proxy, LIMIT).ask(&[b"PING"]).unwrap().text(), "PONG");
    proxy.set(Mode::Closed);
    assert!(client(&proxy, LIMIT).ask(&[b"PING"]).is_err());
    assert_eq!(proxy.taken(), 3);
}

#[test]
fn a_hole_holds_back_what_passes_when_it_is_healed() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let mut asker = client(&proxy, Duration::from_millis(50));
    proxy.set(Mode::Hole);
    let error = asker.ask(&[b"INCR", b"a"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    assert_eq!(server.ask(&["EXISTS", "a"]).int(), Some(0));
    proxy.set(Mode::Pass);
    assert_eq!(client(&proxy, LIMIT).ask(&[b"PING"]).unwrap().text(), "PONG");
    let there = || (server.ask(&["GET", "a"]).int() == Some(1)).then_some(());
    tollbook_redis_world::wait_for(LIMIT, there).expect("it passes");
}

#[test]
fn muted_answers_are_lost_with_their_connection() {
    let server = Server::redis();
    let proxy = Proxy::to(server.addr());
    let mut asker = client(&proxy, LIMIT);
    proxy.set(Mode::MuteAnswers);
    asker.send(&[b"INCR", b"a"]).unwrap();
    let there = || (server.ask(&["GET", "a"]).int() == Some(1)).then_some(());
    tollbook_redis_world::wait_for(LIMIT, there).expect("what is asked arrives");
    proxy.cut();
    assert!(asker.read().is_err());
}
