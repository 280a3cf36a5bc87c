//! Servers that belong together: a cluster, and a primary that sentinels watch.

use tollbook_redis_world::{Cluster, Plan, SLOTS, Sentinels};

#[test]
fn a_cluster_answers_for_every_slot_and_moves_one() {
    let cluster = Cluster::start();
    let owned = |slot| cluster.owner(slot);
    assert_eq!([0, SLOTS / 2, SLOTS - 1].map(owned), [0, 1, 2]);
    let slot = cluster.slot("{a}");
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
    assert_eq!(cluster.nodes()[from].ask(&["SET", "{a}", "1"]).text(), "OK");
    cluster.migration_begins(slot, to);
    let missing = cluster.nodes()[from].ask(&["GET", "{a}x"]).text();
    assert!(missing.starts_with("ASK "), "{missing}");
    cluster.keys_move(slot, to);
    cluster.migration_ends(slot, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(cluster.nodes()[to].ask(&["GET", "{a}"]).text(), "1");
    assert!(cluster.nodes()[from].ask(&["GET", "{a}"]).text().starts_with("MOVED "));
}

#[test]
fn a_node_of_a_cluster_comes_back() {
    let mut cluster = Cluster::of(&Plan::valkey().aof());
    let slot = cluster.slot("a");
    let owner = cluster.owner(slot);
    assert_eq!(cluster.nodes()[owner].ask(&["SET", "a", "1"]).text(), "OK");
    cluster.node(owner).restart();
    cluster.comes_to_serve();
    assert_eq!(cluster.nodes()[owner].ask(&["GET", "a"]).text(), "1");
}

#[test]
fn sentinels_name_the_replica_when_the_primary_dies() {
    let mut all = Sentinels::start();
    let old = all.primary_dies();
    let new = all.primary();
    assert_ne!(new, old);
    assert_eq!(all.data()[new].ask(&["SET", "a", "1"]).text(), "OK");
    // Who comes back follows.
    all.data()[old].start_again();
    all.comes_to_follow(old);
    assert_eq!(all.data()[old].ask(&["GET", "a"]).text(), "1");
}
