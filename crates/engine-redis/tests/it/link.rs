//! The way to the servers, and what it says when there is none.

mod single;

use redis::Value;
use tollbook_engine_redis::{Address, Link, LinkError, Options, Place, Script};
use tollbook_redis_world::Server;

/// Counts its calls in the key, so that what was applied can be looked up.
const COUNT: &str = "return redis.call('INCR', KEYS[1])";

fn options(port: u16) -> Options {
    Options::new(Place::Single(Address { host: "127.0.0.1".to_owned(), port }))
}

fn link(server: &Server) -> Link {
    Link::open(&options(server.port())).expect("good options")
}

async fn count(link: &Link, script: &Script, key: &str) -> Result<i64, LinkError> {
    match link.call(script, &[key.as_bytes().to_vec()], &[]).await? {
        Value::Int(number) => Ok(number),
        other => panic!("not a number: {other:?}"),
    }
}
