//! A cluster: every key is found, also while its slot moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollbook_engine::Applied;
use tollbook_engine_redis::{Kind, Link, Options, Place, Script};
use tollbook_redis_world::{Cluster, Plan};

use super::{COUNT, LIMIT, at, comes_to_count, count, what};

/// Knows one node; finds the others.
fn patient(cluster: &Cluster) -> Link {
    let place = Place::Cluster(vec![at(cluster.nodes()[0].port())]);
    Link::open(&Options { deadline: LIMIT, ..Options::new(place) }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_found() {
    for plan in [Plan::redis(), Plan::valkey()] {
        let cluster = Cluster::of(&plan);
        let link = patient(&cluster);
        let script = Script::new(COUNT);
        for key in 0..60 {
            assert_eq!(count(&link, &script, &format!("{{{key}}}:x")).await, Ok(1));
        }
        let sizes = cluster.nodes().iter().map(|node| node.ask(&["DBSIZE"]).int().unwrap());
        let sizes: Vec<i64> = sizes.collect();
        assert!(sizes.iter().all(|size| *size > 5) && sizes.iter().sum::<i64>() == 60, "{sizes:?}");
        let pongs = link.everywhere(&redis::cmd("PING")).await.unwrap();
        assert!(pongs.len() == 3 && pongs.iter().all(|(_, pong)| pong.is_ok()), "{pongs:?}");
        let mut get = redis::cmd("GET");
        get.arg("{7}:x");
        let got = link.command(&get, Some(b"{7}:x")).await;
        assert_eq!(got, Ok(redis::Value::BulkString(b"1".to_vec())));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_while_calls_go_on_and_none_is_lost_or_doubled() {
    let cluster = Cluster::start();
    let link = Arc::new(patient(&cluster));
    let script = Arc::new(Script::new(COUNT));
    assert_eq!(count(&link, &script, "{a}").await, Ok(1));
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (link, script, over) = (Arc::clone(&link), Arc::clone(&script), Arc::clone(&over));
            tokio::spawn(async move {
                let mut calls = 0;
                while !over.load(Ordering::Relaxed) {
                    count(&link, &script, "{a}").await.unwrap();
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let slot = cluster.slot("{a}");
    for _ in 0..3 {
        let to = (cluster.owner(slot) + 1) % 3;
        tokio::task::block_in_place(|| cluster.migrate(slot, to));
    }
    over.store(true, Ordering::Relaxed);
    let mut all = 1;
    for caller in callers {
        all += caller.await.unwrap();
    }
    assert!(all > 10, "{all}");
    let owner = cluster.owner(slot);
    assert_eq!(cluster.nodes()[owner].ask(&["GET", "{a}"]).int(), Some(all));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_new_keys_are_made_where_it_goes() {
    let cluster = Cluster::start();
    let link = patient(&cluster);
    let script = Script::new(COUNT);
    assert_eq!(count(&link, &script, "{a}old").await, Ok(1));
    let slot = cluster.slot("{a}");
    let to = (cluster.owner(slot) + 1) % 3;
    cluster.migration_begins(slot, to);
    assert_eq!(count(&link, &script, "{a}old").await, Ok(2));
    assert_eq!(count(&link, &script, "{a}new").await, Ok(1));
    assert_eq!(cluster.nodes()[to].ask(&["DBSIZE"]).int(), Some(1));
    // One key here and one there: no node can serve both until all are there.
    let keys = ["{a}old", "{a}new"].map(|key| key.as_bytes().to_vec());
    let error = link.call(&script, &keys, &[]).await.unwrap_err();
    assert_eq!(what(&error), (Kind::Cluster, Applied::No));
    cluster.keys_move(slot, to);
    cluster.migration_ends(slot, to);
    assert_eq!(count(&link, &script, "{a}old").await, Ok(3));
    assert_eq!(count(&link, &script, "{a}new").await, Ok(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_takes_only_its_own_keys_with_it() {
    let mut cluster = Cluster::of(&Plan::redis().aof().line("cluster-require-full-coverage no"));
    let link = patient(&cluster);
    let script = Script::new(COUNT);
    let owner = cluster.owner(cluster.slot("a"));
    let other =
        ["b", "c", "d", "e"].into_iter().find(|key| cluster.owner(cluster.slot(key)) != owner).unwrap();
    assert_eq!(comes_to_count(&link, &script, "a").await, 1);
    assert_eq!(comes_to_count(&link, &script, other).await, 1);
    cluster.node(owner).kill();
    for _ in 0..20 {
        assert!(count(&link, &script, "a").await.is_err());
    }
    comes_to_count(&link, &script, other).await;
    cluster.node(owner).start_again();
    let number = comes_to_count(&link, &script, "a").await;
    assert_eq!(number, 2);
}

#[tokio::test]
async fn keys_of_different_slots_are_refused() {
    let cluster = Cluster::start();
    let link = patient(&cluster);
    let keys = ["a", "b"].map(|key| key.as_bytes().to_vec());
    let error = link.call(&Script::new(COUNT), &keys, &[]).await.unwrap_err();
    assert_eq!(what(&error), (Kind::Cluster, Applied::No));
}

#[tokio::test]
async fn a_server_without_a_cluster_is_told() {
    let server = tollbook_redis_world::Server::redis();
    let link = Link::open(&Options::new(Place::Cluster(vec![at(server.port())]))).unwrap();
    let error = count(&link, &Script::new(COUNT), "a").await.unwrap_err();
    assert_eq!(error.applied, Applied::No, "{error}");
}
