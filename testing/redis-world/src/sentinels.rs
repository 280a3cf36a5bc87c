//! A primary, a replica, and three sentinels that watch them.
//!
//! Invariants: `Sentinels` that exist know each other and the replica, so that a failover can happen from the first
//! moment on; two of three decide it.

#![allow(clippy::indexing_slicing, reason = "test code: a panic is a failed test")]

use std::time::Duration;

use crate::resp::Reply;
use crate::server::{Plan, Server};
use crate::{fail, pause, wait_for};

/// What the sentinels call the service.
pub const SERVICE: &str = "book";
const SENTINELS: usize = 3;
const READY_LIMIT: Duration = Duration::from_secs(30);
const FAILOVER_LIMIT: Duration = Duration::from_secs(60);
/// A primary that is silent for so long is thought to be down.
const DOWN_AFTER_MS: u32 = 1000;
const FAILOVER_TIMEOUT_MS: u32 = 4000;
const BETWEEN_FAILOVERS: Duration = Duration::from_millis(200);
/// Sentinels look at servers and at each other every 2 to 10 seconds; tests do not wait for that.
const PERIODS: [&str; 8] =
    ["info-period", "200", "publish-period", "200", "ask-period", "200", "min-link-reconnect-period", "200"];

#[derive(Debug)]
pub struct Sentinels {
    data: [Server; 2],
    sentinels: Vec<Server>,
}

impl Sentinels {
    pub fn start() -> Self {
        Self::of(&Plan::redis())
    }

    /// Primary and replica by the same plan, without a user.
    pub fn of(plan: &Plan) -> Self {
        let primary = plan.clone().start();
        let replica = plan.clone().replica_of(&primary).start();
        let linked = || (replica.info("master_link_status")? == "up").then_some(());
        if wait_for(READY_LIMIT, linked).is_none() {
            fail(&format!("the replica does not follow\n{}", replica.log()));
        }
        let sentinels = (0..SENTINELS).map(|_| sentinel(plan, &primary).start()).collect();
        let all = Self { data: [primary, replica], sentinels };
        for sentinel in &all.sentinels {
            let reply = sentinel.ask(&[&["SENTINEL", "DEBUG"], &PERIODS[..]].concat());
            if reply.is_error() {
                fail(&reply.text());
            }
        }
        all.come_to_know_each_other();
        all
    }

    fn come_to_know_each_other(&self) {
        let others = (SENTINELS - 1).to_string();
        let knows = |sentinel: &Server| {
            let reply = sentinel.ask(&["SENTINEL", "MASTER", SERVICE]);
            let words: Vec<String> = reply.items().iter().map(Reply::text).collect();
            let value =
                |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
            value("num-slaves").is_some_and(|count| count == "1")
                && value("num-other-sentinels") == Some(&others)
                && value("flags").is_some_and(|flags| flags == "master")
        };
        let all_know = || self.sentinels.iter().all(knows).then_some(());
        if wait_for(READY_LIMIT, all_know).is_none() {
            fail(&format!("the sentinels do not find each other\n{}", self.sentinels[0].log()));
        }
    }

    /// The sentinels themselves.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    pub fn sentinel(&mut self, index: usize) -> &mut Server {
        &mut self.sentinels[index]
    }

    /// The two servers with data, in no order.
    pub fn data(&mut self) -> &mut [Server; 2] {
        &mut self.data
    }

    /// Which of the two the sentinels name as primary.
    pub fn primary(&self) -> usize {
        let mut running = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
        running
            .find_map(|sentinel| self.named_by(sentinel))
            .unwrap_or_else(|| fail("no sentinel names a primary"))
    }

    fn named_by(&self, sentinel: &Server) -> Option<usize> {
        let reply = sentinel.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok()?;
        let port = reply.items().get(1)?.int()?;
        self.data.iter().position(|server| i64::from(server.peer_port()) == port)
    }

    /// Kills the primary and waits until all sentinels name the other, which takes writes then. Returns the old one.
    pub fn primary_dies(&mut self) -> usize {
        let old = self.primary();
        self.data[old].kill();
        self.comes_to_lead(1 - old);
        old
    }

    /// Asks for a failover while all are well. Returns the old primary.
    pub fn fail_over(&mut self) -> usize {
        let old = self.primary();
        // A replica that has just come back is not good enough until the sentinel has looked at it twice: asked again.
        let changes = || {
            let sentinel = &self.sentinels[0];
            (self.named_by(sentinel) == Some(1 - old)).then_some(()).or_else(|| {
                sentinel.ask(&["SENTINEL", "FAILOVER", SERVICE]);
                pause(BETWEEN_FAILOVERS);
                None
            })
        };
        if wait_for(FAILOVER_LIMIT, changes).is_none() {
            fail(&format!("no failover\n{}", self.sentinels[0].log()));
        }
        self.comes_to_lead(1 - old);
        old
    }

    /// Waits until one of the two is a replica that has what the other has.
    pub fn comes_to_follow(&self, index: usize) {
        let server = &self.data[index];
        let follows =
            || (server.info("role")? == "slave" && server.info("master_link_status")? == "up").then_some(());
        if wait_for(FAILOVER_LIMIT, follows).is_none() {
            fail(&format!("it does not follow\n{}", server.log()));
        }
    }

    /// Waits until all sentinels name one of the two, and it agrees.
    pub fn comes_to_lead(&self, new: usize) {
        let leads = || {
            let names = |sentinel: &Server| self.named_by(sentinel) == Some(new);
            let is_primary = || self.data[new].info("role").is_some_and(|role| role == "master");
            (self.sentinels.iter().all(names) && is_primary()).then_some(())
        };
        if wait_for(FAILOVER_LIMIT, leads).is_none() {
            fail(&format!("no failover\n{}", self.sentinels[0].log()));
        }
    }
}

fn sentinel(plan: &Plan, primary: &Server) -> Plan {
    plan.sentinel()
        .line(&format!("sentinel monitor {SERVICE} 127.0.0.1 {} 2", primary.peer_port()))
        .line(&format!("sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}"))
        .line(&format!("sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}"))
}
