//! Gateways that share one book: what fits is admitted once, whichever of them is asked; what one leaves behind when it
//! dies the others free.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollbook_e2e::config::{CHAT_MODEL, Config, quota, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{self, LIMIT};
use tollbook_e2e::journal::Journal;
use tollbook_mock_upstream::{Generate, MockUpstream, Script};
use tollbook_redis_world::{Plan, Server};

const GATEWAYS: usize = 4;
const CLIENTS: usize = 400;
const ROOM: usize = 25;
/// How often the clients come at once; each time with another key.
const REPEATS_VARIABLE: &str = "TOLLBOOK_FLEET_REPEATS";
const REPEATS: usize = 3;
/// A life of 2 s, a sweep every second, and as much again for a machine that is busy.
const FREE_LIMIT: Duration = Duration::from_secs(8);

struct Fleet {
    mock: MockUpstream,
    gateways: Vec<Gateway>,
    redis: Server,
    shared: TempDir,
}

impl Fleet {
    fn start(count: usize, tenants: &[(String, Value)]) -> Self {
        let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let redis = Plan::redis().aof().start();
        let shared = tempfile::tempdir().unwrap();
        let config = Config::new(&mock.url())
            .set(
                "/calls",
                json!({
                    "door_life": "2s", "renewed_life": "2s", "renew_every": "150ms", "lost_wait": "5s",
                    "breaker": {"slow": "2s"},
                }),
            )
            .set("/journal", json!(shared.path().join("journal.sqlite")))
            .set("/engine", json!({"redis": {"url": redis.url(), "deadline": "5s", "fleet_size": count}}));
        let config = tenants.iter().fold(config, |config, (id, limits)| config.simple_tenant(id, limits));
        let gateways = (0..count).map(|_| Gateway::start(&config)).collect();
        Self { mock, gateways, redis, shared }
    }

    fn ask(&self, client: usize, tenant: &str, body: &Value) -> u16 {
        let gateway = &self.gateways[client % self.gateways.len()];
        gateway.post("/v1/chat/completions", &secret(&format!("{tenant}-key")), body).unwrap().status
    }

    /// Everything held by the tenants, as one of the gateways sees it.
    fn held(&self, gateway: usize) -> i64 {
        let page = self.gateways[gateway].admin_get("/admin/v1/accounts").unwrap().json();
        page["data"].as_array().unwrap().iter().map(|line| line["held"].as_i64().unwrap()).sum()
    }

    /// Held and posted of a tenant, on the first of its limits.
    fn taken(&self, tenant: &str) -> i64 {
        let page = self.gateways[0].admin_get("/admin/v1/accounts").unwrap().json();
        let lines = page["data"].as_array().unwrap();
        let line = lines.iter().find(|line| line["subject"].as_str().unwrap().ends_with(tenant)).unwrap();
        line["held"].as_i64().unwrap() + line["posted"].as_i64().unwrap()
    }

    fn is_free(&self, gateway: usize) {
        let free = wait_for(FREE_LIMIT, || (self.held(gateway) == 0).then_some(()));
        assert!(free.is_some(), "{} stays held", self.held(gateway));
    }

    /// Stops all gateways; what the journal says then.
    fn journal(mut self) -> Journal {
        for gateway in &mut self.gateways {
            if gateway.pid().is_some() {
                assert!(gateway.terminate().success(), "{}", gateway.log());
            }
        }
        assert!(self.redis.is_running());
        Journal::read(self.shared.path())
    }
}

fn chat(label: &str) -> Value {
    json!({"model": CHAT_MODEL, "max_tokens": 8, "user": label, "messages": [{"role": "user", "content": "Hello"}]})
}

fn repeats() -> usize {
    std::env::var(REPEATS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(REPEATS)
}

#[test]
fn l01_four_gateways_admit_exactly_what_fits() {
    let repeats = repeats();
    let tenants: Vec<(String, Value)> = (0..repeats)
        .map(|number| (format!("t{number}"), json!([quota("requests", "lifetime", &ROOM.to_string())])))
        .collect();
    let fleet = Fleet::start(GATEWAYS, &tenants);
    fleet.mock.set_default(Script::output(3));
    for (tenant, _) in &tenants {
        let label = |client| format!("{tenant} {client}");
        let answers = http::together(CLIENTS, |client| fleet.ask(client, tenant, &chat(&label(client))));
        let admitted = answers.iter().filter(|status| **status == 200).count();
        assert_eq!(admitted, ROOM, "{tenant}: {answers:?}");
        assert!(answers.iter().all(|status| [200, 429].contains(status)), "{answers:?}");
    }
    fleet.is_free(0);
    let sent = fleet.mock.calls_at_rest().len();
    assert_eq!(sent, ROOM * repeats, "what the provider saw");
    let journal = fleet.journal();
    assert_eq!(journal.repeated(), Vec::<String>::new());
    let entries = journal.entries.iter().filter(|entry| entry.side == "tenant");
    assert_eq!(entries.clone().count(), sent, "each call of the provider is one entry");
    assert_eq!(entries.filter(|entry| entry.figures != "reported").count(), 0);
}

#[test]
fn l07_the_holds_of_a_dead_gateway_are_freed_by_another() {
    let limits = json!([{"measure": "concurrency", "ceiling": 10}]);
    let mut fleet = Fleet::start(2, &[("t".to_owned(), limits)]);
    fleet.mock.set_default(Generate { stall_at_chunk: Some(1), ..Generate::default() }.into());
    let first = fleet.gateways[0].addr();
    let streams: Vec<_> = (0..10)
        .map(|number| {
            let mut body = chat(&format!("call {number}"));
            body["stream"] = json!(true);
            let key = format!("Bearer {}", secret("t-key"));
            let mut stream = http::Connection::open(first).unwrap();
            let headers = [("authorization", key.as_str())];
            stream.post("/v1/chat/completions", &headers, body.to_string().as_bytes()).unwrap();
            stream
        })
        .collect();
    let full = wait_for(LIMIT, || (fleet.held(1) == 10).then_some(()));
    assert!(full.is_some(), "the other gateway sees {} held", fleet.held(1));
    assert_eq!(fleet.ask(1, "t", &chat("one too many")), 429, "the other gateway refuses");
    fleet.gateways[0].kill();
    drop(streams);
    fleet.is_free(1);
    fleet.mock.set_default(Script::output(3));
    assert_eq!(fleet.ask(1, "t", &chat("again")), 200, "{}", fleet.gateways[1].log());
}

/// Gateways with two journals' files would count epochs apart, each taking for lost what the other opened.
#[test]
fn a_gateway_with_another_journals_file_does_not_start() {
    let fleet = Fleet::start(1, &[("t".to_owned(), json!([quota("requests", "lifetime", "100")]))]);
    fleet.mock.set_default(Script::output(3));
    assert_eq!(fleet.ask(0, "t", &chat("first")), 200);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tollbook.yaml");
    let with = |journal: &std::path::Path, what: &str| {
        let config = Config::new(&fleet.mock.url())
            .simple_tenant("t", &json!([quota("requests", "lifetime", "100")]))
            .set("/journal", json!(journal))
            .set("/engine", json!({"redis": {"url": fleet.redis.url(), "fleet_size": 2}}));
        std::fs::write(&file, config.lines(dir.path())).unwrap();
        let output = tollbook_e2e::gateway::run(&[what, "-c", &file.to_string_lossy()]);
        let told = [output.stdout, output.stderr].map(|told| String::from_utf8_lossy(&told).into_owned());
        (output.status.success(), told.concat())
    };
    let other = dir.path().join("other.sqlite");
    for what in ["doctor", "serve", "doctor"] {
        let (good, told) = with(&other, what);
        assert!(!good && told.contains("<prefix>:owner"), "{what}: {told}");
    }
    let (good, told) = with(&fleet.shared.path().join("journal.sqlite"), "doctor");
    assert!(good && told.contains("good  journal"), "{told}");
    assert_eq!(fleet.ask(0, "t", &chat("second")), 200, "nothing has changed for the first");
}

#[test]
fn the_doctor_tells_what_a_server_lacks() {
    let examined = |plan: Plan, user: Option<(&str, &str)>| {
        let server = plan.start();
        let dir = tempfile::tempdir().unwrap();
        let mut redis = json!({"url": server.url()});
        if let Some((name, password)) = user {
            (redis["username"], redis["password"]) = (json!(name), json!(password));
        }
        let config = Config::new("http://127.0.0.1:9")
            .simple_tenant("t", &json!([quota("requests", "lifetime", "1")]))
            .set("/journal", json!(dir.path().join("journal.sqlite")))
            .set("/engine", json!({"redis": redis}));
        let file = dir.path().join("tollbook.yaml");
        std::fs::write(&file, config.lines(dir.path())).unwrap();
        let output = tollbook_e2e::gateway::run(&["doctor", "--json", "-c", &file.to_string_lossy()]);
        let told = || String::from_utf8_lossy(&output.stderr).into_owned();
        let findings: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told()));
        let of = |what: &str| {
            let found = findings["findings"].as_array().unwrap().iter().find(|one| one["what"] == what);
            found.map_or_else(|| "nothing".to_owned(), |one| one["health"].as_str().unwrap().to_owned())
        };
        let all = [
            "version",
            "role",
            "eviction",
            "persistence",
            "scripts and permissions",
            "latency",
            "connection",
        ];
        (all.map(of), output.status.success())
    };
    let ([version, role, eviction, persistence, scripts, ..], sound) = examined(Plan::redis().aof(), None);
    assert_eq!([version, role, eviction, persistence, scripts].map(|word| word == "good"), [true; 5]);
    assert!(sound);
    let evicts = Plan::redis().line("maxmemory 100mb").line("maxmemory-policy allkeys-lru");
    let ([_, _, eviction, persistence, ..], sound) = examined(evicts, None);
    assert_eq!((eviction.as_str(), persistence.as_str(), sound), ("bad", "poor", false));
    // What the guide asks for is enough, and less is told.
    let user = |rights: &str| Plan::redis().aof().line(&format!("user gateway on >secret {rights}"));
    let rights = "~tb:* +@all -@admin -@dangerous +info";
    let ([.., scripts, _, connection], sound) = examined(user(rights), Some(("gateway", "secret")));
    assert_eq!((scripts.as_str(), connection.as_str(), sound), ("good", "nothing", true));
    let ([.., scripts, _, connection], sound) =
        examined(user("~tb:* +@all -info"), Some(("gateway", "secret")));
    assert_eq!(
        (scripts.as_str(), connection.as_str(), sound),
        ("good", "nothing", false),
        "restarts go unseen"
    );
    let ([.., scripts, _, _], sound) = examined(user("~other:* +@all"), Some(("gateway", "secret")));
    assert_eq!((scripts.as_str(), sound), ("bad", false));
    let ([.., connection], sound) = examined(user(rights), Some(("gateway", "wrong")));
    assert_eq!((connection.as_str(), sound), ("bad", false));
}

/// What a call may use is held before the next is asked, llm_tokens and money alike, whichever gateway is asked.
#[test]
fn b001_b002_a_burst_of_first_calls_passes_no_cap() {
    const CALLS: usize = 80;
    let tenants = [
        ("counted".to_owned(), json!([quota("tokens", "lifetime", "1000")])),
        ("paid".to_owned(), json!([quota("cost", "lifetime", "0.001")])),
    ];
    let fleet = Fleet::start(GATEWAYS, &tenants);
    fleet.mock.set_default(Script::output(8));
    for (tenant, ceiling) in [("counted", 1_000), ("paid", 1_000_000)] {
        fleet.mock.clear();
        fleet.mock.hold_until_released();
        let refused = AtomicUsize::new(0);
        let ask = |client: usize| {
            let status = fleet.ask(client, tenant, &chat(&format!("{tenant} {client}")));
            assert!([200, 429].contains(&status), "{status}");
            refused.fetch_add(usize::from(status != 200), Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            let burst = scope.spawn(|| http::together(CALLS, ask));
            let decided = || {
                let in_flight = usize::try_from(fleet.mock.totals().in_flight).unwrap();
                (in_flight + refused.load(Ordering::Relaxed) == CALLS).then_some(in_flight)
            };
            let admitted = wait_for(LIMIT, decided);
            let taken = fleet.taken(tenant);
            fleet.mock.release();
            burst.join().unwrap();
            assert!(admitted.is_some_and(|count| (2..CALLS / 2).contains(&count)), "{admitted:?}");
            assert!(taken > 0 && taken <= ceiling, "{tenant}: {taken} of {ceiling} held at once");
        });
        let used: u64 = fleet
            .mock
            .calls_at_rest()
            .iter()
            .map(|call| match tenant {
                "paid" => call.generated.input * 1_000 + call.generated.output * 4_000,
                _ => call.generated.input + call.generated.output,
            })
            .sum();
        assert!(i64::try_from(used).unwrap() <= ceiling, "{tenant}: {used} used of {ceiling}");
    }
    fleet.is_free(0);
}

/// Neither a start nor a running gateway fails for good because the server is still reading its data.
#[test]
fn b200_a_server_that_loads_is_waited_for() {
    let mut redis = Plan::redis().loads_slowly(Duration::from_millis(20)).start();
    for key in 0..100 {
        redis.ask(&["SET", &key.to_string(), &"x".repeat(5_000)]);
    }
    redis.ask(&["SAVE"]);
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let shared = tempfile::tempdir().unwrap();
    let config = Config::new(&mock.url())
        .set("/journal", json!(shared.path().join("journal.sqlite")))
        .set("/engine", json!({"redis": {"url": redis.url(), "deadline": "2s"}}))
        .simple_tenant("t", &json!([quota("requests", "lifetime", "1000")]));
    let loads = |redis: &mut Server| {
        redis.kill();
        redis.start_loading();
        assert!(redis.ask(&["GET", "0"]).text().starts_with("LOADING"), "it loads too fast for this test");
    };
    loads(&mut redis);
    let gateway = Gateway::start(&config);
    let ask =
        |label: &str| gateway.post("/v1/chat/completions", &secret("t-key"), &chat(label)).unwrap().status;
    assert_eq!(ask("after the start"), 200, "{}", gateway.log());
    loads(&mut redis);
    assert_eq!(ask("while it loads"), 503);
    let back = wait_for(LIMIT, || (ask("is it back") == 200).then_some(()));
    assert!(back.is_some(), "{}", gateway.log());
}

/// The server dies with what it has acknowledged on its disk, and comes back: nothing is counted twice or lost.
#[test]
fn a_server_that_restarts_under_load_keeps_the_book() {
    let limits = json!([quota("requests", "lifetime", "100000"), quota("tokens", "lifetime", "100000000")]);
    let mut fleet = Fleet::start(2, &[("t".to_owned(), limits)]);
    fleet.mock.set_default(Script::output(3));
    let ask = |fleet: &Fleet, from: usize| {
        http::together(40, |client| fleet.ask(client, "t", &chat(&format!("call {}", from + client))))
    };
    let before = ask(&fleet, 0);
    fleet.redis.kill();
    let away = ask(&fleet, 1_000);
    fleet.redis.start_again();
    // Each gateway finds out by itself, within a second.
    for gateway in 0..2 {
        let back = wait_for(LIMIT, || (fleet.ask(gateway, "t", &chat("is it back")) == 200).then_some(()));
        assert!(back.is_some(), "{}", fleet.gateways[gateway].log());
    }
    let after = ask(&fleet, 2_000);
    for (when, answers, allowed) in [("before", &before, 200), ("away", &away, 503), ("after", &after, 200)] {
        assert!(answers.iter().all(|status| *status == allowed), "{when}: {answers:?}");
    }
    fleet.is_free(1);
    let sent = fleet.mock.calls_at_rest().len();
    let journal = fleet.journal();
    let entries: Vec<_> = journal.entries.iter().filter(|entry| entry.side == "tenant").collect();
    assert_eq!((journal.repeated(), entries.len()), (Vec::new(), sent));
}

/// What `tollbook inspect` says of a tenant, for programs and for people.
fn inspected(gateway: &Gateway, tenant: &str, more: &[&str]) -> (Value, String) {
    let file = gateway.config_file();
    let file = file.to_string_lossy();
    let asked = |form: &[&str]| {
        let output = tollbook_e2e::gateway::run(&[&["inspect", tenant, "-c", &file], more, form].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    (serde_json::from_str(&asked(&["--json"])).unwrap(), asked(&[]))
}

/// One call has ended, one is under way; both engines show the same of it.
fn one_ended_and_one_under_way(mock: &MockUpstream, gateway: &Gateway, more: &[&str]) {
    let ask =
        |label: &str| gateway.post("/v1/chat/completions", &secret("t-key"), &chat(label)).unwrap().status;
    mock.set_default(Script::output(5));
    assert_eq!(ask("ended"), 200, "{}", gateway.log());
    mock.set_default(Generate { stall_at_chunk: Some(1), ..Generate::default() }.into());
    let mut stream = http::Connection::open(gateway.addr()).unwrap();
    let mut body = chat("under way");
    body["stream"] = json!(true);
    let key = format!("Bearer {}", secret("t-key"));
    stream
        .post("/v1/chat/completions", &[("authorization", key.as_str())], body.to_string().as_bytes())
        .unwrap();
    let shown = wait_for(LIMIT, || {
        let shown = inspected(gateway, "t", more);
        let one = |what: &str| shown.0[what].as_array().unwrap().len() == 1;
        (one("holds") && shown.0["estimators"][0]["calls"] == 1).then_some(shown)
    });
    let (shown, text) = shown.expect("the call under way is shown, and what the other taught");
    let account = |limit: &str| {
        let named = |row: &&Value| row["limits"][0]["limit"] == limit;
        shown["accounts"].as_array().unwrap().iter().find(named).unwrap_or_else(|| panic!("{limit}: {shown}"))
    };
    let (slots, day, minute) = (account("t slots"), account("t day"), account("t minute"));
    assert_eq!(
        (&slots["held"], &slots["live_holds"], &slots["shape"]),
        (&json!(1), &json!(1), &json!("concurrency"))
    );
    assert_eq!((&day["shape"], &day["limits"][0]["ceiling"]), (&json!("quota"), &json!(100_000)));
    assert!(day["posted"].as_i64().unwrap() > 0 && day["held"].as_i64().unwrap() > 0, "{day}");
    assert_eq!(minute["shape"], "rate 60 s by forecast");
    assert!(minute["posted"].as_i64().unwrap() > day["posted"].as_i64().unwrap(), "two inputs: {minute}");
    assert!(minute["reset_ms"].as_u64().unwrap() > 0);
    let hold = &shown["holds"][0];
    let on: Vec<&str> =
        hold["legs"].as_array().unwrap().iter().map(|leg| leg["limits"][0].as_str().unwrap()).collect();
    assert!(["t slots", "t day", "t minute"].iter().all(|limit| on.contains(limit)), "{hold}");
    assert!(hold["due_ms"].as_u64().unwrap() > 0 && hold["attempt"].is_u64(), "{hold}");
    let estimators = shown["estimators"].as_array().unwrap();
    let own = estimators.iter().find(|row| {
        row["kind"] == "forecast" && row["of"].as_str().unwrap().starts_with("key t/t-project/t-key on ")
    });
    assert_eq!(own.expect("the key's own")["mean_llm_tokens_thousandths"], 5_000, "{shown}");
    for part in [
        "tenant t, shard ",
        "t minute of tenant t: rate 60 s by forecast, ceiling 50,000, soft",
        hold["id"].as_str().unwrap(),
        "live reservations: 1",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let nobody = tollbook_e2e::gateway::run(
        &[&["inspect", "nobody", "-c", &gateway.config_file().to_string_lossy()], more].concat(),
    );
    assert_eq!(nobody.status.code(), Some(1), "{}", String::from_utf8_lossy(&nobody.stderr));
}

fn inspectable() -> Value {
    json!([
        {"name": "t slots", "measure": "concurrency", "ceiling": 10},
        {"name": "t day", "measure": "tokens", "period": "day", "ceiling": 100_000},
        {"name": "t minute", "measure": "tokens", "window": "60s", "ceiling": 50_000},
    ])
}

#[test]
fn what_a_shared_book_keeps_of_a_tenant_is_shown() {
    let others = json!([{"name": "other slots", "measure": "concurrency", "ceiling": 10}]);
    let fleet = Fleet::start(1, &[("t".to_owned(), inspectable()), ("other".to_owned(), others)]);
    one_ended_and_one_under_way(&fleet.mock, &fleet.gateways[0], &[]);
}

#[test]
fn what_a_book_of_its_own_keeps_of_a_tenant_is_shown_by_its_gateway() {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let gateway = Gateway::start(&Config::new(&mock.url()).simple_tenant("t", &inspectable()));
    let admin = format!("http://{}", gateway.admin_addr().unwrap());
    one_ended_and_one_under_way(&mock, &gateway, &["--admin", &admin]);
}
