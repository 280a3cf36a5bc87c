//! What operators change in the store, under load: every gateway of a fleet obeys within moments, calls under way end as
//! they began, and nobody else notices.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollbook_e2e::config::{ADMIN_KEY, CHAT_MODEL, Config};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{Connection, LIMIT};
use tollbook_mock_upstream::{Generate, MockUpstream};
use tollbook_redis_world::{Plan, Server};

/// Longest time until a change is in force everywhere while Redis is away.
const WITHOUT_REDIS: Duration = Duration::from_secs(5);
/// Clients of a tenant that nobody touches.
const BYSTANDERS: usize = 8;
/// Streams under way while their own tenant is changed.
const STREAMS: usize = 6;
const REPEATS_VARIABLE: &str = "TOLLBOOK_OFFICE_REPEATS";

struct World {
    gateways: Vec<Gateway>,
    config: Config,
    redis: Server,
    _mock: MockUpstream,
    _shared: TempDir,
}

impl World {
    fn start() -> Self {
        let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        mock.set_default(Generate { chunk_every_ms: 40, ..Generate::default() }.into());
        let redis = Plan::redis().aof().start();
        let shared = tempfile::tempdir().unwrap();
        let config = Config::new(&mock.url())
            .set("/config", json!({"source": "sql"}))
            .set("/calls", json!({"breaker": {"slow": "2s"}}))
            .set("/journal", json!(shared.path().join("journal.sqlite")))
            .set("/engine", json!({"redis": {"url": redis.url(), "deadline": "5s", "fleet_size": 2}}));
        let gateways = (0..2).map(|_| Gateway::start(&config)).collect();
        Self { gateways, config, redis, _mock: mock, _shared: shared }
    }

    /// An operator's change at one of the gateways; what is not expected stops the test.
    fn order(&self, gateway: usize, method: &str, path: &str, body: &Value) -> Value {
        let text = body.to_string();
        let mut connection = Connection::open(self.gateways[gateway].admin_addr().unwrap()).unwrap();
        let request = format!(
            "{method} /admin/v1{path} HTTP/1.1\r\nhost: operators\r\nauthorization: Bearer {ADMIN_KEY}\r\n\
             content-length: {}\r\n\r\n{text}",
            text.len()
        );
        connection.send(request.as_bytes()).unwrap();
        let answer = connection.answer().unwrap();
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.text());
        answer.json()
    }

    /// A tenant with a key; its secret.
    fn tenant(&self, id: &str) -> String {
        self.order(0, "POST", "/tenants", &json!({"id": id}));
        self.order(0, "POST", &format!("/tenants/{id}/projects"), &json!({"id": "p"}));
        let key = self.order(
            1,
            "POST",
            &format!("/tenants/{id}/projects/p/keys"),
            &json!({"id": format!("{id}-k")}),
        );
        key["secret"].as_str().unwrap().to_owned()
    }

    fn chat(&self, gateway: usize, secret: &str) -> u16 {
        let body =
            json!({"model": CHAT_MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
        self.gateways[gateway].post("/v1/chat/completions", secret, &body).unwrap().status
    }

    /// Begins streams at both gateways, that run for about a second.
    fn streams(&self, secret: &str) -> Vec<Connection> {
        let body = json!({"model": CHAT_MODEL, "max_tokens": 24, "stream": true,
            "messages": [{"role": "user", "content": "Tell me more"}]});
        let key = format!("Bearer {secret}");
        let begin = |number: usize| {
            let mut stream = Connection::open(self.gateways[number % 2].addr()).unwrap();
            let headers = [("authorization", key.as_str())];
            stream.post("/v1/chat/completions", &headers, body.to_string().as_bytes()).unwrap();
            stream.read_events(1).unwrap();
            stream
        };
        (0..STREAMS).map(begin).collect()
    }

    /// How long it takes until both gateways answer so.
    fn obeyed(&self, what: &str, secret: &str, status: u16) -> Duration {
        let began = Instant::now();
        for gateway in 0..2 {
            let done = wait_for(LIMIT, || (self.chat(gateway, secret) == status).then_some(()));
            assert!(done.is_some(), "{what}: gateway {gateway} answers {}", self.chat(gateway, secret));
        }
        began.elapsed()
    }

    /// One change under way of calls: the streams that run end as they began.
    fn changed(&self, what: &str, secret: &str, change: impl Fn(), status: u16) -> Duration {
        let streams = self.streams(secret);
        change();
        let took = self.obeyed(what, secret, status);
        for mut stream in streams {
            let text = stream.read_until("[DONE]").unwrap();
            assert!(text.starts_with("HTTP/1.1 200") && !text.contains("\"error\""), "{what}: {text}");
        }
        took
    }
}

#[test]
fn what_is_changed_at_one_gateway_is_obeyed_by_all_under_load() {
    let repeats = std::env::var(REPEATS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let world = World::start();
    let calm = world.tenant("calm");
    world.obeyed("made", &calm, 200);
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let bystander = |number: usize| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(world.chat(number % 2, &calm), 200, "nobody touches this tenant");
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        let threads: Vec<_> = (0..BYSTANDERS).map(|number| scope.spawn(move || bystander(number))).collect();
        for round in 0..repeats {
            let changes = changes(&world, &format!("t{round}"));
            eprintln!("obeyed by both gateways: {changes:?}");
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert!(calls.load(Ordering::Relaxed) > BYSTANDERS, "the load ran");
}

/// Every kind of change of a tenant, and how long it took until both gateways obeyed.
fn changes(world: &World, id: &str) -> Vec<(&'static str, Duration)> {
    let secret = world.tenant(id);
    world.obeyed("made", &secret, 200);
    let tenant = format!("/tenants/{id}");
    let key = format!("{tenant}/projects/p/keys/{id}-k");
    let limits =
        |ceiling: Value| json!({"limits": [{"measure": "requests", "window": "1h", "ceiling": ceiling}]});
    let patch = |gateway: usize, path: &str, body: Value| {
        world.order(gateway, "PATCH", path, &body);
    };
    let mut told = Vec::new();
    let mut change = |what: &'static str, order: &dyn Fn(), status: u16| {
        told.push((what, world.changed(what, &secret, order, status)));
    };
    change("limit lowered", &|| patch(0, &tenant, limits(json!(1))), 429);
    patch(1, &tenant, json!({"limits": null}));
    world.obeyed("limit taken away", &secret, 200);
    change("key disabled", &|| patch(1, &key, json!({"disabled": true})), 401);
    patch(0, &key, json!({"disabled": null}));
    world.obeyed("key enabled", &secret, 200);
    let next = std::cell::RefCell::new(String::new());
    let rotate = || {
        let answer = world.order(0, "POST", &format!("{key}/rotate"), &json!({}));
        next.replace(answer["secret"].as_str().unwrap().to_owned());
    };
    change("key rotated", &rotate, 401);
    let secret = next.into_inner();
    world.obeyed("the new secret", &secret, 200);
    let delete = || {
        world.order(1, "DELETE", &format!("{tenant}?cascade=true"), &json!({}));
    };
    told.push(("tenant deleted", world.changed("tenant deleted", &secret, delete, 401)));
    told
}

/// Redis has the tenant and stands still while the key is disabled: both gateways obey all the same, and when it is back it
/// serves what it had to nobody, also not to a gateway that starts then.
#[test]
fn a_change_is_in_force_while_redis_is_away_and_stays_so_when_it_is_back() {
    let world = World::start();
    let (secret, calm) = (world.tenant("acme"), world.tenant("calm"));
    world.obeyed("made", &secret, 200);
    world.obeyed("made", &calm, 200);
    assert!(!world.redis.ask(&["KEYS", "*cfg*acme*"]).items().is_empty(), "it has the tenant");

    world.redis.freeze();
    world.order(0, "PATCH", "/tenants/acme/projects/p/keys/acme-k", &json!({"disabled": true}));
    let took = world.obeyed("disabled", &secret, 401);
    eprintln!("obeyed by both gateways without Redis: {took:?}");
    assert!(took < WITHOUT_REDIS);
    world.redis.thaw();

    let later = Gateway::start(&world.config);
    let body =
        json!({"model": CHAT_MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
    let asked = |secret: &str| later.post("/v1/chat/completions", secret, &body).unwrap().status;
    assert_eq!(asked(&secret), 401);
    let calls = wait_for(LIMIT, || (asked(&calm) == 200).then_some(()));
    assert!(calls.is_some(), "the book is back");
    world.order(0, "PATCH", "/tenants/acme/projects/p/keys/acme-k", &json!({"disabled": false}));
    world.obeyed("enabled", &secret, 200);
}
