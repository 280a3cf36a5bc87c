//! The shared book frozen, then killed, under calls: what each limit says while it is away, and what is in it afterwards.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollbook_e2e::config::{CHAT_MODEL, Config, per_minute, quota, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{self, Answer, LIMIT};
use tollbook_e2e::journal::Journal;
use tollbook_mock_upstream::{MockUpstream, Script};
use tollbook_redis_world::{Plan, Server};

const GATEWAYS: usize = 2;
/// Requests a minute of the soft limit; each gateway may give out the half of it.
const CEILING: u64 = 30;
const SHARE: usize = 15;
/// Two tries of a booking, and a machine that is busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

struct Fleet {
    mock: MockUpstream,
    gateways: Vec<Gateway>,
    redis: Server,
    shared: TempDir,
}

impl Fleet {
    fn start() -> Self {
        let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        mock.set_default(Script::output(3));
        let redis = Plan::redis().aof().start();
        let shared = tempfile::tempdir().unwrap();
        let mut open = quota("requests", "lifetime", "1");
        (open["when_away"], open["ceiling"]) = (json!("open"), json!("100000"));
        let calls = json!({
            "door_life": "2s", "renewed_life": "2s", "renew_every": "150ms", "decide_within": "1s",
            "breaker": {"failures": 3, "slow": "900ms"},
        });
        let config = Config::new(&mock.url())
            .set("/calls", calls)
            .set("/journal", json!(shared.path().join("journal.sqlite")))
            .set("/engine", json!({"redis": {"url": redis.url(), "deadline": "1s", "fleet_size": GATEWAYS}}))
            .simple_tenant("soft", &json!([per_minute("requests", CEILING)]))
            .simple_tenant("hard", &json!([quota("requests", "lifetime", "100000")]))
            .simple_tenant("open", &json!([open]));
        let gateways = (0..GATEWAYS).map(|_| Gateway::start(&config)).collect();
        Self { mock, gateways, redis, shared }
    }

    fn ask(&self, gateway: usize, tenant: &str) -> Answer {
        let body = json!({
            "model": CHAT_MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}],
        });
        let began = Instant::now();
        let key = secret(&format!("{tenant}-key"));
        let answer = self.gateways[gateway].post("/v1/chat/completions", &key, &body).unwrap();
        assert!(began.elapsed() < ANSWER_LIMIT, "{tenant}: {:?}", began.elapsed());
        answer
    }

    /// Waits until a call of the hard limit is let in by every gateway, or by none.
    fn comes_to(&self, status: u16) {
        for gateway in 0..GATEWAYS {
            let come = wait_for(LIMIT, || (self.ask(gateway, "hard").status == status).then_some(()));
            assert!(come.is_some(), "{}", self.gateways[gateway].log());
        }
    }

    /// What all three limits say at every gateway while the book is away.
    fn is_away(&self) {
        self.comes_to(503);
        for gateway in 0..GATEWAYS {
            let began = Instant::now();
            let answers = http::together(SHARE + 10, |_| self.ask(gateway, "soft"));
            let hard = http::together(10, |_| self.ask(gateway, "hard"));
            let open = http::together(10, |_| self.ask(gateway, "open"));
            // Sixty calls by a tenth of the time that those would take which wait for the book.
            assert!(began.elapsed() < ANSWER_LIMIT, "{:?}", began.elapsed());
            assert!(answers.iter().all(|answer| answer.header("x-tollbook-degraded") == Some("local")));
            let admitted = answers.iter().filter(|answer| answer.status == 200).count();
            assert_eq!(admitted, SHARE, "{}", self.gateways[gateway].log());
            assert!(answers.iter().all(|answer| [200, 429].contains(&answer.status)));
            assert!(
                hard.iter()
                    .all(|answer| answer.status == 503 && answer.text().contains("hard requests quota"))
            );
            let is_open = |answer: &Answer| {
                answer.status == 200 && answer.header("x-tollbook-degraded") == Some("open")
            };
            assert!(open.iter().all(is_open));
            let metrics = self.gateways[gateway].metrics();
            assert_eq!(http::metric(&metrics, "tollbook_away_shards", &[]), Some(256));
            let ready = self.gateways[gateway].get("/readyz", "").unwrap();
            assert!(ready.status == 200 && ready.text().starts_with("degraded"), "{}", ready.text());
            let page = self.gateways[gateway].admin_get("/admin/v1/accounts").unwrap();
            assert!(page.status == 503 && page.text().contains("the book is away for"), "{}", page.text());
        }
    }

    /// Posted by the tenant `open`, as one of the gateways sees it.
    fn posted(&self) -> Option<(i64, i64)> {
        let page = self.gateways[0].admin_get("/admin/v1/accounts").unwrap();
        let lines = (page.status == 200).then(|| page.json())?;
        let lines = lines["data"].as_array()?.clone();
        let held = lines.iter().map(|line| line["held"].as_i64().unwrap()).sum();
        let open: &Value = lines.iter().find(|line| line["subject"] == "tenant open")?;
        Some((open["posted"].as_i64().unwrap(), held))
    }
}

#[test]
fn b196_b197_a_book_that_freezes_and_one_that_dies_is_met_as_the_limits_say() {
    let mut fleet = Fleet::start();
    fleet.comes_to(200);
    let answer = fleet.ask(0, "open");
    assert_eq!((answer.status, answer.header("x-tollbook-degraded")), (200, None));
    fleet.redis.freeze();
    fleet.is_away();
    fleet.redis.thaw();
    fleet.comes_to(200);
    let once = 1 + 10 * i64::try_from(GATEWAYS).unwrap();
    let posted = wait_for(LIMIT, || (fleet.posted() == Some((once, 0))).then_some(()));
    assert!(posted.is_some(), "{:?} of {once}: {}", fleet.posted(), fleet.gateways[0].log());
    // A minute later, as far as the local parts know: they are dropped, and begin anew. A restart does the same.
    for gateway in &mut fleet.gateways {
        assert!(gateway.terminate().success());
        gateway.start_again();
    }
    fleet.redis.kill();
    fleet.is_away();
    // What is known when they stop is in their spools.
    for gateway in &mut fleet.gateways {
        assert!(gateway.terminate().success());
    }
    fleet.redis.start_again();
    fleet.gateways.iter_mut().for_each(Gateway::start_again);
    fleet.comes_to(200);
    let twice = once + 10 * i64::try_from(GATEWAYS).unwrap();
    let posted = wait_for(LIMIT, || (fleet.posted() == Some((twice, 0))).then_some(()));
    assert!(posted.is_some(), "{:?} of {twice}: {}", fleet.posted(), fleet.gateways[0].log());
    let sent = fleet.mock.calls_at_rest().len();
    for gateway in &mut fleet.gateways {
        assert!(gateway.terminate().success());
    }
    let journal = Journal::read(fleet.shared.path());
    assert_eq!(journal.repeated(), Vec::<String>::new());
    let entries: Vec<_> = journal.entries.iter().filter(|entry| entry.side == "tenant").collect();
    assert_eq!(entries.len(), sent, "each call of the provider is one entry");
    assert!(entries.iter().all(|entry| entry.unbooked == 0 && entry.figures == "reported"));
    let soft = entries.iter().filter(|entry| entry.tenant == "soft").count();
    assert_eq!(soft, 2 * GATEWAYS * SHARE);
}
