//! Behind sentinels: the link goes where the primary is.

use std::time::Instant;

use tollbook_engine::Applied;
use tollbook_engine_redis::{Kind, Link, Options, Place, Script};
use tollbook_redis_world::{Plan, SERVICE, Sentinels, Server};

use super::{COUNT, LIMIT, at, comes_to_count, comes_to_fail, count};

fn link(all: &Sentinels) -> Link {
    let nodes = all.sentinels().iter().map(|sentinel| at(sentinel.port())).collect();
    Link::open(&Options::new(Place::Sentinel { service: SERVICE.to_owned(), nodes })).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b195_it_follows_when_the_primary_dies_and_when_it_steps_down() {
    let mut all = Sentinels::of(&Plan::redis().aof());
    let link = link(&all);
    let script = Script::new(COUNT);
    comes_to_count(&link, &script, "a").await;
    let old = tokio::task::block_in_place(|| all.primary_dies());
    comes_to_count(&link, &script, "b").await;
    assert!(all.data()[1 - old].ask(&["GET", "b"]).int().is_some());
    tokio::task::block_in_place(|| {
        all.data()[old].start_again();
        all.comes_to_follow(old);
    });
    tokio::task::block_in_place(|| all.fail_over());
    // The one that steps down may still take a write before it knows.
    let deadline = Instant::now() + LIMIT;
    loop {
        let number = comes_to_count(&link, &script, "c").await;
        if all.data()[old].try_ask(&["GET", "c"]).is_ok_and(|reply| reply.int() == Some(number)) {
            break;
        }
        assert!(Instant::now() < deadline, "it does not follow");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_leaves_a_primary_that_stands_still() {
    let mut all = Sentinels::start();
    let link = link(&all);
    let script = Script::new(COUNT);
    comes_to_count(&link, &script, "a").await;
    let old = all.primary();
    all.data()[old].freeze();
    tokio::task::block_in_place(|| all.comes_to_lead(1 - old));
    comes_to_count(&link, &script, "b").await;
    assert!(all.data()[1 - old].ask(&["GET", "b"]).int().is_some());
    all.data()[old].thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_sentinel_is_enough_to_find_the_primary() {
    let mut all = Sentinels::start();
    all.sentinel(0).kill();
    all.sentinel(1).kill();
    let link = link(&all);
    comes_to_count(&link, &Script::new(COUNT), "a").await;
}

#[tokio::test]
async fn a_service_that_no_sentinel_knows_is_not_reached() {
    let server = Server::redis();
    let text = format!("redis+sentinel://{}/book", server.addr());
    let link = Link::open(&Options::parse(&text).unwrap()).unwrap();
    let error = count(&link, &Script::new(COUNT), "a").await.unwrap_err();
    assert_eq!(error.applied, Applied::No, "{error}");
    drop(server);
    comes_to_fail(&link, &Script::new(COUNT), Kind::Refused, Applied::No).await;
}
