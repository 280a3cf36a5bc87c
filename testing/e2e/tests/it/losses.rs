//! A server that loses the book while calls go on: the shards are rebuilt from the journal and from what the gateways know,
//! no hard limit is passed, nothing stays held, and the journal is the provider's record.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollbook_e2e::config::{CHAT_MODEL, Config, quota, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::journal::Journal;
use tollbook_mock_upstream::{MockUpstream, Script};
use tollbook_redis_world::{Plan, Server};

const CLIENTS: usize = 8;
/// Requests that fit into the hard quota; fewer than the clients try, more than they had before the loss.
const ROOM: u64 = 150;
const BEFORE_LOSS: u64 = 60;
/// A rebuild takes a part of a second; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(40);

struct World {
    mock: MockUpstream,
    gateways: Vec<Gateway>,
    redis: Server,
    shared: tempfile::TempDir,
}

fn start() -> World {
    start_with(|config| {
        config
            .simple_tenant("scarce", &json!([quota("requests", "lifetime", &ROOM.to_string())]))
            .simple_tenant("wide", &json!([quota("tokens", "day", "100000000")]))
    })
}

fn start_with(tenants: impl FnOnce(Config) -> Config) -> World {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let redis = Plan::redis().line("save \"\"").start();
    let shared = tempfile::tempdir().unwrap();
    let config = Config::new(&mock.url())
        .set("/journal", json!(shared.path().join("journal.sqlite")))
        .set(
            "/calls",
            json!({
                "renew_every": "500ms", "lost_wait": "5s", "decide_within": "5s", "breaker": {"slow": "1800ms"},
            }),
        )
        .set("/engine", json!({"redis": {"url": redis.url(), "deadline": "2s", "fleet_size": 2}}));
    let config = tenants(config);
    let gateways = (0..2).map(|_| Gateway::start(&config)).collect();
    mock.set_default(Script::output(3));
    World { mock, gateways, redis, shared }
}

impl World {
    fn ask(&self, client: usize, tenant: &str, label: &str) -> u16 {
        let gateway = &self.gateways[client % self.gateways.len()];
        let body = json!({"model": CHAT_MODEL, "max_tokens": 8, "user": label,
            "messages": [{"role": "user", "content": "Hello"}]});
        gateway.post("/v1/chat/completions", &secret(&format!("{tenant}-key")), &body).unwrap().status
    }

    fn accounts(&self) -> Vec<Value> {
        let page = self.gateways[1].admin_get("/admin/v1/accounts").unwrap();
        page.json()["data"].as_array().cloned().unwrap_or_default()
    }

    fn sum(&self, tenant: &str, what: &str) -> Option<i64> {
        let lines = self.accounts();
        let of: Vec<&Value> = lines
            .iter()
            .filter(|line| line["subject"].as_str().unwrap_or_default().contains(tenant))
            .collect();
        (!of.is_empty()).then(|| of.iter().map(|line| line[what].as_i64().unwrap()).sum())
    }

    fn logs(&self) -> String {
        self.gateways.iter().map(Gateway::log).collect()
    }
}

/// Calls on two gateways; once enough were served, `lose` happens to the server, and calls go on until the hard quota is
/// used up.
fn survives(lose: impl FnOnce(&mut Server) + Send) {
    let mut world = start();
    let (served, spent) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    let mut redis = std::mem::replace(&mut world.redis, Plan::redis().start());
    let statuses = std::thread::scope(|threads| {
        let calls: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (world, served, spent) = (&world, &served, &spent);
                threads.spawn(move || {
                    let mut statuses = Vec::new();
                    let mut number = 0;
                    while began.elapsed() < LIMIT && !(spent.load(Ordering::SeqCst) && number > 10) {
                        let tenant = if number % 3 == 0 { "wide" } else { "scarce" };
                        let status = world.ask(client, tenant, &format!("{client} {number}"));
                        match status {
                            200 => _ = served.fetch_add(1, Ordering::SeqCst),
                            429 => spent.store(true, Ordering::SeqCst),
                            _ => {}
                        }
                        statuses.push(status);
                        number += 1;
                    }
                    statuses
                })
            })
            .collect();
        let enough = wait_for(LIMIT, || (served.load(Ordering::SeqCst) >= BEFORE_LOSS).then_some(()));
        assert!(enough.is_some() && !spent.load(Ordering::SeqCst), "{}", world.logs());
        lose(&mut redis);
        calls.into_iter().flat_map(|call| call.join().unwrap()).collect::<Vec<u16>>()
    });
    assert!(spent.load(Ordering::SeqCst), "the quota was used up: {}", world.logs());
    assert!(statuses.iter().all(|status| [200, 429, 503].contains(status)), "{statuses:?}");
    let free = wait_for(LIMIT, || (world.sum("", "held") == Some(0)).then_some(()));
    assert!(free.is_some(), "{:?} stays held\n{}", world.accounts(), world.logs());
    let sent = world.mock.calls_at_rest();
    let scarce = || world.sum("scarce", "posted").unwrap();
    assert_eq!(scarce(), i64::try_from(ROOM).unwrap(), "{}", world.logs());
    let whole = world.logs().matches("a lost shard is whole again").count();
    assert!(whole >= 2, "both tenants' shards were rebuilt:\n{}", world.logs());
    let wide = world.sum("wide", "posted").unwrap();
    for gateway in &mut world.gateways {
        assert!(gateway.terminate().success(), "{}", gateway.log());
    }
    let journal = Journal::read(world.shared.path());
    assert_eq!(journal.repeated(), Vec::<String>::new());
    let entries: Vec<_> = journal.entries.iter().filter(|entry| entry.side == "tenant").collect();
    assert_eq!(entries.len(), sent.len(), "each call of the provider is one entry");
    assert!(entries.iter().all(|entry| entry.figures == "reported" && entry.unbooked == 0));
    assert_eq!(journal.posted(), journal.sums);
    let of = |tenant: &str| entries.iter().filter(|entry| entry.tenant == tenant).collect::<Vec<_>>();
    assert_eq!(of("scarce").len(), usize::try_from(ROOM).unwrap(), "exactly what fits, before and after");
    let used: i64 = of("wide").iter().map(|entry| entry.llm_tokens()).sum();
    assert_eq!(wide, used, "the quota has what was used");
    let refused = statuses.iter().filter(|status| **status == 503).count();
    let line = format!(
        "losses: {} calls, {refused} refused while the book was lost, {} entries\n",
        statuses.len(),
        entries.len()
    );
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

#[test]
fn l08_an_emptied_server_is_rebuilt_under_load() {
    survives(|redis| {
        assert_eq!(redis.ask(&["FLUSHALL"]).text(), "OK");
    });
}

#[test]
fn l08_a_server_that_starts_again_empty_is_rebuilt_under_load() {
    survives(|redis| {
        redis.kill();
        redis.start_again();
    });
}

/// The shard of a tenant: crc32 of its id, modulo 256.
fn shard_of(tenant: &str) -> u32 {
    let of =
        |crc: u32| (0..8).fold(crc, |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 });
    !tenant.bytes().fold(u32::MAX, |crc, byte| of(crc ^ u32::from(byte))) % 256
}

/// A tenant in each of the book's shards, a call of each, and everything is lost at once.
#[test]
fn l08_all_shards_are_lost_at_once() {
    let mut of = std::collections::BTreeMap::new();
    for number in 0_u32.. {
        let tenant = format!("t{number}");
        of.entry(shard_of(&tenant)).or_insert(tenant);
        if of.len() == 256 {
            break;
        }
    }
    let tenants: Vec<String> = of.into_values().collect();
    let quota = json!([quota("requests", "lifetime", "1000")]);
    let world = start_with(|config| {
        tenants.iter().fold(config, |config, tenant| config.simple_tenant(tenant, &quota))
    });
    // Each tenant until it is served, by as many clients as in the other tests.
    let all_served = |round: usize| {
        std::thread::scope(|threads| {
            for client in 0..CLIENTS {
                let (world, tenants) = (&world, &tenants);
                threads.spawn(move || {
                    for tenant in tenants.iter().skip(client).step_by(CLIENTS) {
                        let label = format!("{tenant} {round}");
                        let served =
                            wait_for(LIMIT, || (world.ask(client, tenant, &label) == 200).then_some(()));
                        assert!(served.is_some(), "{tenant}\n{}", world.logs());
                    }
                });
            }
        });
    };
    let began = Instant::now();
    all_served(0);
    let first = began.elapsed();
    world.redis.ask(&["FLUSHALL"]);
    let began = Instant::now();
    all_served(1);
    let whole = || {
        let logs = world.logs();
        (logs.matches("a lost shard is whole again").count() >= 256).then_some(logs)
    };
    let logs = wait_for(LIMIT, whole).unwrap_or_else(|| {
        let logs = world.logs();
        panic!("{} shards\n{logs}", logs.matches("a lost shard is whole again").count())
    });
    let line = format!(
        "losses: 256 shards first used within {first:?}, lost at once and open again within {:?}\n",
        began.elapsed()
    );
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    let missing: Vec<&str> = logs
        .lines()
        .filter(|line| {
            line.contains("gateways_missing")
                && !line.contains("gateways_missing=0")
                && !line.contains("\"gateways_missing\":0")
        })
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "nobody is missing");
    let posted = wait_for(LIMIT, || (world.sum("", "posted") == Some(512)).then_some(()));
    assert!(posted.is_some(), "{:?} of 512 calls are posted", world.sum("", "posted"));
}
