//! The servers of a shared book, and what breaks them.

use std::time::Duration;

use tollbook_redis_world::resp::{Client, Reply};
use tollbook_redis_world::{Cluster, Plan, Proxy, SERVICE, Sentinels, Server};

/// What the book is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// One server that keeps what it acknowledged.
    Durable,
    /// The same behind a wire.
    Wired,
    /// One server that keeps nothing.
    Volatile,
    Sentinels,
    Cluster,
}

/// Those servers, running.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) wire: Option<Proxy>,
    single: Option<Server>,
    pub(crate) sentinels: Option<Sentinels>,
    pub(crate) cluster: Option<Cluster>,
    /// Kept open until the fault is healed.
    holding: Option<Client>,
}

impl Servers {
    pub(crate) fn start(place: Place) -> Self {
        let mut all = Self { wire: None, single: None, sentinels: None, cluster: None, holding: None };
        match place {
            Place::Durable | Place::Wired | Place::Volatile => {
                let plan = if place == Place::Volatile { Plan::redis() } else { Plan::redis().aof() };
                let server = plan.line("lua-time-limit 100").start();
                all.wire = (place == Place::Wired).then(|| Proxy::to(server.addr()));
                all.single = Some(server);
            }
            Place::Sentinels => all.sentinels = Some(Sentinels::of(&Plan::redis().aof())),
            Place::Cluster => all.cluster = Some(Cluster::of(&Plan::redis().aof())),
        }
        all
    }

    pub(crate) fn url(&self) -> String {
        let list = |servers: &[Server]| {
            let all: Vec<String> = servers.iter().map(|server| server.addr().to_string()).collect();
            all.join(",")
        };
        if let Some(sentinels) = &self.sentinels {
            return format!("redis+sentinel://{}/{SERVICE}", list(sentinels.sentinels()));
        }
        if let Some(cluster) = &self.cluster {
            return format!("redis+cluster://{}", list(cluster.nodes()));
        }
        self.wire.as_ref().map_or_else(|| self.one().url(), |wire| format!("redis://{}", wire.addr()))
    }

    /// The only one.
    pub(crate) fn one(&self) -> &Server {
        self.single.as_ref().expect("a single server")
    }

    pub(crate) fn one_mut(&mut self) -> &mut Server {
        self.single.as_mut().expect("a single server")
    }

    pub(crate) fn wire(&self) -> &Proxy {
        self.wire.as_ref().expect("a wire")
    }

    /// Every server that takes writes.
    fn primaries(&mut self) -> Vec<&Server> {
        if let Some(sentinels) = &mut self.sentinels {
            let primary = sentinels.primary();
            return sentinels.data().iter().skip(primary).take(1).collect();
        }
        self.single.iter().chain(self.cluster.iter().flat_map(Cluster::nodes)).collect()
    }

    /// Keys that match, wherever they are.
    pub(crate) fn keys(&mut self, pattern: &str) -> Vec<String> {
        let asked = self.primaries().into_iter().map(|server| server.ask(&["KEYS", pattern]));
        let all: Vec<_> = asked.collect();
        all.iter().flat_map(Reply::items).map(Reply::text).collect()
    }

    /// Entries that nobody has taken to the journal, and reservations that are not over.
    pub(crate) fn left_over(&mut self) -> (i64, i64) {
        let count = |servers: &mut Self, pattern: &str, command: &str| {
            let keys = servers.keys(pattern);
            let asked = |server: &Server| {
                let replies = keys.iter().map(|key| server.ask(&[command, key]));
                replies.filter_map(|reply| reply.int()).sum::<i64>()
            };
            servers.primaries().into_iter().map(asked).sum::<i64>()
        };
        (count(self, "tb:*:j", "XLEN"), count(self, "tb:*:due", "ZCARD"))
    }

    pub(crate) fn runs_a_script_without_end(&mut self) {
        let mut client = self.one().client();
        client.send(&[b"EVAL", b"while true do end", b"0"]).expect("the script is sent");
        self.holding = Some(client);
    }

    pub(crate) fn script_is_ended(&mut self) {
        let ended = tollbook_redis_world::wait_for(LIMIT, || {
            (!self.one().ask(&["SCRIPT", "KILL"]).is_error()).then_some(())
        });
        assert!(ended.is_some(), "the script cannot be ended");
        self.holding = None;
    }

    /// Puts a text in the place of a key, in one step; the key itself is kept.
    pub(crate) fn key_is_replaced(&self, key: &str) {
        self.swap("redis.call('RENAME', KEYS[1], KEYS[2]) redis.call('SET', KEYS[1], ARGV[1])", key);
    }

    /// Gives the key back; the foreign value must still be there.
    pub(crate) fn key_is_given_back(&self, key: &str) {
        assert_eq!(self.one().ask(&["GET", key]).text(), FOREIGN, "the evidence is gone");
        self.swap("redis.call('RENAME', KEYS[2], KEYS[1])", key);
    }

    fn swap(&self, script: &str, key: &str) {
        let done = self.one().ask(&["EVAL", script, "2", key, &format!("kept:{key}"), FOREIGN]);
        assert!(!done.is_error(), "{}", done.text());
    }

    /// Another primary, which has everything: writes are held back until the replica has those before.
    pub(crate) fn primary_steps_down(&mut self) {
        let sentinels = self.sentinels.as_mut().expect("sentinels");
        let old = sentinels.primary();
        let [first, second] = sentinels.data();
        let (primary, replica) = if old == 0 { (first, second) } else { (second, first) };
        assert!(!primary.ask(&["CLIENT", "PAUSE", "30000", "WRITE"]).is_error());
        let has_all =
            || (primary.info("master_repl_offset")? == replica.info("slave_repl_offset")?).then_some(());
        assert!(tollbook_redis_world::wait_for(LIMIT, has_all).is_some(), "the replica lags behind");
        sentinels.fail_over();
        // What was held back is refused by a replica; a primary would take it, and lose it. The sentinels would tell it too,
        // but their words wait behind what is held back.
        let data = sentinels.data();
        let port = data[1 - old].port().to_string();
        for words in [&["REPLICAOF", "127.0.0.1", &port][..], &["CLIENT", "UNPAUSE"]] {
            assert!(!data[old].ask(words).is_error(), "{words:?}");
        }
    }

    /// The primary sends its replica nothing from now on.
    pub(crate) fn replica_hears_nothing(&mut self) {
        let sentinels = self.sentinels.as_mut().expect("sentinels");
        let primary = sentinels.primary();
        let primary = &sentinels.data()[primary];
        for words in
            [&["ACL", "SETUSER", "default", "-psync", "-sync"][..], &["CLIENT", "KILL", "TYPE", "replica"]]
        {
            assert!(!primary.ask(words).is_error(), "{words:?}");
        }
    }

    /// The replica takes its place, with what it has.
    pub(crate) fn primary_dies(&mut self) {
        let sentinels = self.sentinels.as_mut().expect("sentinels");
        let old = sentinels.primary_dies();
        sentinels.data()[old].start_again();
    }

    /// Moves every slot that has keys of ours to the next node, one after the other.
    pub(crate) fn slots_move(&mut self) {
        let keys = self.keys("tb:*");
        let cluster = self.cluster.as_ref().expect("a cluster");
        let mut slots: Vec<u16> = keys.iter().map(|key| cluster.slot(key)).collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            let to = (cluster.owner(slot) + 1) % cluster.nodes().len();
            cluster.migrate(slot, to);
        }
    }
}

/// Longest a server is waited for.
const LIMIT: Duration = Duration::from_secs(20);
const FOREIGN: &str = "not of this book";
