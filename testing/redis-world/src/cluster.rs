//! Three primaries that share all slots.
//!
//! Invariants: a `Cluster` that exists serves every slot, and every node says so. There are no replicas: a node that is
//! killed takes its slots with it until it is started again.

#![allow(clippy::indexing_slicing, reason = "test code: a panic is a failed test")]

use std::time::Duration;

use crate::resp::Reply;
use crate::server::{Plan, Server};
use crate::{fail, wait_for};

pub const SLOTS: u16 = 16_384;
const NODES: u16 = 3;
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Keys moved at a time.
const KEYS_AT_ONCE: &str = "100";

#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Self {
        Self::of(&Plan::redis())
    }

    /// All nodes by the same plan.
    pub fn of(plan: &Plan) -> Self {
        let nodes: Vec<Server> = (0..NODES).map(|_| plan.clone().cluster().start()).collect();
        let cluster = Self { nodes };
        let mut first = 0;
        for (number, node) in (1..).zip(&cluster.nodes) {
            let last = SLOTS / NODES * number - 1;
            let last = if number == NODES { SLOTS - 1 } else { last };
            ok(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            // Else they settle it among themselves, which takes a while.
            ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &number.to_string()]);
            first = last + 1;
        }
        for node in cluster.nodes.iter().skip(1) {
            let (port, bus) = (node.port().to_string(), node.bus_port().unwrap_or_default().to_string());
            ok(&cluster.nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        cluster.comes_to_serve();
        cluster
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    pub fn node(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// Waits until every node serves and all tell the same map.
    pub fn comes_to_serve(&self) {
        let serves = || {
            let maps: Vec<Reply> = self.nodes.iter().map(|node| node.ask(&["CLUSTER", "SLOTS"])).collect();
            let is_whole = covered(maps.first()?) == SLOTS;
            let is_same = maps.iter().all(|map| owners(map) == owners(&maps[0]));
            let is_ok = |node: &Server| node.ask(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok");
            (is_whole && is_same && self.nodes.iter().all(is_ok)).then_some(())
        };
        if wait_for(READY_LIMIT, serves).is_none() {
            fail(&format!("the cluster does not serve\n{}", self.nodes[0].ask(&["CLUSTER", "NODES"]).text()));
        }
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]).int();
        slot.and_then(|slot| u16::try_from(slot).ok()).unwrap_or_else(|| fail("no slot"))
    }

    /// Which node has a slot, as they say themselves.
    pub fn owner(&self, slot: u16) -> usize {
        let map = self.nodes[0].ask(&["CLUSTER", "SLOTS"]);
        let port = owners(&map).into_iter().find(|range| (range.0..=range.1).contains(&i64::from(slot)));
        let owner =
            port.and_then(|(.., port)| self.nodes.iter().position(|node| i64::from(node.port()) == port));
        owner.unwrap_or_else(|| fail(&format!("nobody has slot {slot}")))
    }

    /// Begins to move a slot: its keys are in both places from now on, and who asks is sent on by ASK.
    pub fn migration_begins(&self, slot: u16, to: usize) {
        let (from, slot) = (self.owner(slot), slot.to_string());
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        ok(target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(source)]);
        ok(source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(target)]);
    }

    /// Moves the keys of a slot whose migration has begun.
    pub fn keys_move(&self, slot: u16, to: usize) {
        let (source, target) = (&self.nodes[self.owner(slot)], &self.nodes[to]);
        let (slot, port) = (slot.to_string(), target.peer_port().to_string());
        loop {
            let keys = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_AT_ONCE]);
            let keys: Vec<String> = keys.items().iter().map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            ok(source, &words);
        }
    }

    /// Tells all nodes the new owner; who asks the old one is sent on by MOVED.
    pub fn migration_ends(&self, slot: u16, to: usize) {
        let (owner, slot) = (id(&self.nodes[to]), slot.to_string());
        // The new owner first, so that it never happens that nobody has it.
        let others = self.nodes.iter().enumerate().filter(|(index, _)| *index != to).map(|(_, node)| node);
        for node in std::iter::once(&self.nodes[to]).chain(others) {
            ok(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &owner]);
        }
        self.comes_to_serve();
    }

    /// The whole way of a slot to another node.
    pub fn migrate(&self, slot: u16, to: usize) {
        self.migration_begins(slot, to);
        self.keys_move(slot, to);
        self.migration_ends(slot, to);
    }
}

fn id(node: &Server) -> String {
    node.ask(&["CLUSTER", "MYID"]).text()
}

/// First slot, last slot, port of the primary.
fn owners(map: &Reply) -> Vec<(i64, i64, i64)> {
    let range = |range: &Reply| {
        let items = range.items();
        let port = items.get(2)?.items().get(1)?.int()?;
        Some((items.first()?.int()?, items.get(1)?.int()?, port))
    };
    let mut ranges: Vec<_> = map.items().iter().filter_map(range).collect();
    ranges.sort_unstable();
    ranges
}

fn covered(map: &Reply) -> u16 {
    let all: i64 = owners(map).iter().map(|(first, last, _)| last - first + 1).sum();
    u16::try_from(all).unwrap_or_default()
}

fn ok(node: &Server, words: &[&str]) {
    let reply = node.ask(words);
    if reply.is_error() {
        fail(&format!("{words:?}: {}", reply.text()));
    }
}
