//! What a shared book needs of its servers, looked at before it is relied on.
//!
//! Writes two keys below the prefix and removes them. What cannot be found out is told as such, never passed over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use tollbook_engine::Shard;

use crate::engine::RedisEngine;
use crate::journal::STREAMS_MAX;
use crate::link::{LinkError, Script};
use crate::reply::Items;

/// Oldest version whose commands and scripts suffice.
const VERSION_MIN: (u32, u32) = (6, 2);
/// A clock further off than this surprises people who compare logs; the book does not care.
const CLOCK_FAR: Duration = Duration::from_secs(2);
/// How often the latency is measured, and from when on it is told.
const PINGS: usize = 20;
const SLOW: Duration = Duration::from_millis(5);
/// Entries that wait for the journal where nothing is wrong: some seconds of a busy fleet.
const WAITING: u64 = 10_000;

/// What a user lacks that may not ask.
const INFO: &str =
    "the user needs INFO: by its run_id a gateway sees that the server is another one, or has started again";
const CLUSTER: &str = "the user needs CLUSTER SLOTS and CLUSTER INFO: without a map no call finds its node";
const ROLE: &str = "the user needs ROLE: by it a gateway sees that the server which the sentinels name is the primary already";

/// What the verbs use: a hash, a sorted set, a stream, a key with a time to live, MessagePack, time.
const PROBE: &str = "
local key = KEYS[1]
redis.call('HSET', key, 'a', cmsgpack.pack({ 1, 'x' }))
local row = cmsgpack.unpack(redis.call('HGET', key, 'a'))
redis.call('DEL', key)
redis.call('ZADD', key, 1, 'm')
redis.call('ZREM', key, 'm')
redis.call('XADD', key, '*', 'e', 'x')
redis.call('DEL', key)
redis.call('SET', key, '1', 'PX', 1000)
redis.call('DEL', key)
-- What gateways have read of the store is kept under other names.
local kept = KEYS[2]
redis.call('SET', kept, '1', 'PX', 1000)
redis.call('GET', kept)
redis.call('PEXPIRE', kept, 1000)
redis.call('DEL', kept)
return { row[2], redis.call('TIME')[1] }";

/// How a finding is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    Good,
    /// The book works, but not as well as it could.
    Poor,
    /// Bookings can be lost or cannot be made.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The server's name; empty for what concerns all.
    pub node: String,
    pub what: &'static str,
    pub health: Health,
    pub seen: String,
    /// What to change, and why; empty if nothing.
    pub advice: String,
}

impl RedisEngine {
    /// Looks at all servers of the book; `here` is the time on this machine, since 1970.
    pub async fn examine(&self, here: Duration) -> Vec<Finding> {
        let mut found = self.everywhere(redis::cmd("INFO").arg("everything"), INFO, server).await;
        if self.link().is_cluster() {
            found.extend(self.everywhere(redis::cmd("CLUSTER").arg("INFO"), CLUSTER, slots).await);
        }
        if self.link().asks_role() {
            found.extend(self.everywhere(&redis::cmd("ROLE"), ROLE, |_, _| Vec::new()).await);
        }
        found.push(self.probe(here).await);
        found.push(self.latency().await);
        // Who does not answer is told above.
        found.extend(self.journal_waiting().await.ok().map(streams));
        found
    }

    /// What every node says of itself; `needed` is the advice where the user may not ask.
    async fn everywhere(
        &self,
        command: &Cmd,
        needed: &str,
        read: fn(&str, &Value) -> Vec<Finding>,
    ) -> Vec<Finding> {
        let nodes = match self.link().everywhere(command).await {
            Ok(nodes) => nodes,
            Err(error) => return vec![away(String::new(), &error)],
        };
        let of = |(node, answer): (String, Result<Value, LinkError>)| match answer {
            Ok(told) => read(&node, &told),
            Err(error) if error.message.starts_with("NOPERM") => {
                vec![bad(node, "permissions", &error.to_string(), needed)]
            }
            Err(error) => vec![away(node, &error)],
        };
        nodes.into_iter().flat_map(of).collect()
    }

    /// Permissions, scripts and the clock, by doing what the verbs do.
    async fn probe(&self, here: Duration) -> Finding {
        let keys = [self.keys(Shard(0)).own("doctor"), self.cache_key(Shard(0).0, "doctor")];
        let done = self.link().call(&Script::new(PROBE), &keys, &[]).await;
        let what = "scripts and permissions";
        match done.map(|value| Items::of(value).and_then(|mut items| Ok((items.text()?, items.text()?)))) {
            Ok(Ok((_, second))) => {
                let there = Duration::from_secs(second.parse().unwrap_or_default());
                let far = here.abs_diff(there);
                let (health, advice) = if far > CLOCK_FAR {
                    (
                        Health::Poor,
                        "the book goes by the server's clock; set the clocks of both machines by NTP",
                    )
                } else {
                    (Health::Good, "")
                };
                let seen = format!("allowed; its clock is {} s away", far.as_secs());
                Finding { node: String::new(), what, health, seen, advice: advice.to_owned() }
            }
            Ok(Err(_)) => bad(String::new(), what, "an odd answer", "is this Redis 6.2 or newer, or Valkey?"),
            Err(error) => bad(
                String::new(),
                what,
                &error.to_string(),
                "the user needs EVALSHA, SCRIPT LOAD, and the commands on hashes, sorted sets, streams and strings below the prefix",
            ),
        }
    }

    async fn latency(&self) -> Finding {
        let mut times = Vec::new();
        for _ in 0..PINGS {
            let began = Instant::now();
            if self.link().command(&redis::cmd("PING"), None).await.is_ok() {
                times.push(began.elapsed());
            }
        }
        times.sort_unstable();
        let (Some(median), Some(most)) = (times.get(times.len() / 2), times.last()) else {
            return bad(String::new(), "latency", "no answer", "is the server reachable from here?");
        };
        let slow = *median > SLOW;
        let advice =
            if slow { "every call waits for two round trips: run the server near the gateways" } else { "" };
        Finding {
            node: String::new(),
            what: "latency",
            health: if slow { Health::Poor } else { Health::Good },
            seen: format!("median {} µs, longest {} µs of {PINGS}", median.as_micros(), most.as_micros()),
            advice: advice.to_owned(),
        }
    }
}

/// Of so many entries that wait for the journal.
fn streams(waiting: u64) -> Finding {
    let (health, advice) = if waiting <= WAITING {
        (Health::Good, "")
    } else if waiting <= STREAMS_MAX {
        (
            Health::Poor,
            "the journal takes less than comes: look at its store, and at the log of the gateways for its job 'drain'",
        )
    } else {
        (
            Health::Bad,
            "the server's memory fills up with calls that the journal has not taken, and then it takes no call any more: make the journal's store take them, or give the server more memory meanwhile; nothing may be deleted there",
        )
    };
    let seen = format!("{waiting} ended calls wait for the journal");
    Finding { node: String::new(), what: "journal's streams", health, seen, advice: advice.to_owned() }
}

fn away(node: String, error: &LinkError) -> Finding {
    bad(
        node,
        "connection",
        &error.to_string(),
        "address, password, network and TLS: what does the server's log say?",
    )
}

fn bad(node: String, what: &'static str, seen: &str, advice: &str) -> Finding {
    Finding { node, what, health: Health::Bad, seen: seen.to_owned(), advice: advice.to_owned() }
}

/// All lines of an answer.
fn lines(told: &Value) -> String {
    match told {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// What one node of a cluster sees of it.
fn slots(node: &str, told: &Value) -> Vec<Finding> {
    let text = lines(told);
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).map_or("unknown", |value| value.trim());
    let good = field("cluster_state") == "ok" && field("cluster_slots_ok") == "16384";
    vec![Finding {
        node: node.to_owned(),
        what: "slots",
        health: if good { Health::Good } else { Health::Bad },
        seen: format!(
            "cluster {}, {} of 16384 slots served",
            field("cluster_state"),
            field("cluster_slots_ok")
        ),
        advice: if good {
            ""
        } else {
            "give every slot to a primary: tenants whose slot nobody serves are refused"
        }
        .to_owned(),
    }]
}

/// What one server tells of itself.
fn server(node: &str, info: &Value) -> Vec<Finding> {
    let text = lines(info);
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let field = |name: &str| fields.get(name).map_or("unknown", |value| value.trim());
    let finding = |what, health, seen: String, advice: &str| Finding {
        node: node.to_owned(),
        what,
        health,
        seen,
        advice: if health == Health::Good { String::new() } else { advice.to_owned() },
    };
    let judged = |good: bool, otherwise: Health| if good { Health::Good } else { otherwise };
    let version = field("redis_version");
    let name = if fields.contains_key("valkey_version") { "Valkey, as Redis" } else { "Redis" };
    let (policy, limit) = (field("maxmemory_policy"), field("maxmemory_human"));
    let keeps = field("aof_enabled") == "1";
    let wrote = ["aof_last_write_status", "rdb_last_bgsave_status"].iter().all(|name| field(name) != "err");
    vec![
        finding(
            "version",
            judged(is_enough(version), Health::Bad),
            format!("{name} {version}"),
            "Redis 6.2 or newer, or Valkey, is needed",
        ),
        finding(
            "role",
            judged(field("role") != "slave", Health::Bad),
            field("role").to_owned(),
            "name the primary, or the sentinels that know it: a replica takes no bookings",
        ),
        finding(
            "eviction",
            judged(policy == "noeviction", Health::Bad),
            format!("maxmemory {limit}, maxmemory-policy {policy}"),
            "set maxmemory-policy noeviction: a key that is evicted is a budget that begins anew",
        ),
        finding(
            "persistence",
            judged(keeps && wrote, if wrote { Health::Poor } else { Health::Bad }),
            format!(
                "appendonly {}, last writes {}",
                if keeps { "yes" } else { "no" },
                if wrote { "ok" } else { "failed" }
            ),
            "set appendonly yes and see that the disk has room: a restart forgets what was not written down",
        ),
    ]
}

fn is_enough(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= VERSION_MIN
}

#[cfg(test)]
mod tests {
    use super::{Health, STREAMS_MAX, WAITING, is_enough, server, slots, streams};

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, enough) in
            [("6.2.0", true), ("10.0", true), ("6.0.16", false), ("5.0", false), ("unknown", false)]
        {
            assert_eq!(is_enough(version), enough, "{version}");
        }
    }

    #[test]
    fn what_a_server_does_not_tell_is_not_good() {
        let found =
            server("node", &redis::Value::BulkString(b"# Server\r\nredis_version:7.0.1\r\n".to_vec()));
        let of = |what: &str| found.iter().find(|one| one.what == what).map(|one| one.health);
        assert_eq!((of("version"), of("eviction")), (Some(Health::Good), Some(Health::Bad)));
        assert_eq!(of("persistence"), Some(Health::Poor));
    }

    #[test]
    fn streams_that_grow_are_told_at_their_bounds() {
        for (waiting, health) in [
            (0, Health::Good),
            (WAITING, Health::Good),
            (WAITING + 1, Health::Poor),
            (STREAMS_MAX, Health::Poor),
            (STREAMS_MAX + 1, Health::Bad),
            (u64::MAX, Health::Bad),
        ] {
            assert_eq!(streams(waiting).health, health, "{waiting}");
        }
    }

    #[test]
    fn a_cluster_with_a_hole_is_bad() {
        let seen = |text: &str| slots("node", &redis::Value::BulkString(text.into()))[0].health;
        assert_eq!(seen("cluster_state:ok\r\ncluster_slots_ok:16384\r\n"), Health::Good);
        assert_eq!(seen("cluster_state:fail\r\ncluster_slots_ok:16384\r\n"), Health::Bad);
        assert_eq!(seen("cluster_state:ok\r\ncluster_slots_ok:16383\r\n"), Health::Bad);
        assert_eq!(seen(""), Health::Bad);
    }
}
