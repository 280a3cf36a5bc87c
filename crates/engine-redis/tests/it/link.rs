//! The way to the servers, and what it says when there is none.

mod cluster;
mod login;
mod sentinel;
mod single;
mod trouble;

use std::time::{Duration, Instant};

use redis::Value;
use tollbook_engine::Applied;
use tollbook_engine_redis::{Address, Kind, Link, LinkError, Options, Place, Script};

/// Counts its calls in the key, so that what was applied can be looked up.
const COUNT: &str = "return redis.call('INCR', KEYS[1])";
/// Longest anything is waited for.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest a call may take on a machine that does other things too; the deadline is a quarter of a second.
const CALL_LIMIT: Duration = Duration::from_secs(2);

fn at(port: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port }
}

fn options(port: u16) -> Options {
    Options::new(Place::Single(at(port)))
}

/// For tests whose calls are meant to succeed however slow the machine is.
fn patient(port: u16) -> Link {
    Link::open(&Options { deadline: LIMIT, ..options(port) }).unwrap()
}

async fn count(link: &Link, script: &Script, key: &str) -> Result<i64, LinkError> {
    match link.call(script, &[key.as_bytes().to_vec()], &[]).await? {
        Value::Int(number) => Ok(number),
        other => panic!("not a number: {other:?}"),
    }
}

/// Calls once, which is to fail, and not long after the deadline.
async fn fails_in_time(link: &Link, script: &Script) -> LinkError {
    let begun = Instant::now();
    let error = count(link, script, "a").await.unwrap_err();
    let took = begun.elapsed();
    assert!(took < CALL_LIMIT, "{took:?}");
    error
}

/// Calls until one succeeds.
async fn comes_to_count(link: &Link, script: &Script, key: &str) -> i64 {
    let deadline = Instant::now() + LIMIT;
    loop {
        match count(link, script, key).await {
            Ok(number) => return number,
            Err(error) => assert!(Instant::now() < deadline, "still {error}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Calls until one fails as wanted; what comes before is passed over.
async fn comes_to_fail(link: &Link, script: &Script, kind: Kind, applied: Applied) -> LinkError {
    let deadline = Instant::now() + LIMIT;
    loop {
        match count(link, script, "a").await {
            Err(error) if error.kind == kind && error.applied == applied => return error,
            other => assert!(Instant::now() < deadline, "still {other:?}"),
        }
        tokio::task::yield_now().await;
    }
}

/// Without telling whether it may have been applied.
fn what(error: &LinkError) -> (Kind, Applied) {
    (error.kind, error.applied)
}
