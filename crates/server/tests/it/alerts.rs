//! Quotas that are used up are told to webhooks, once per threshold, by a signature that others can check.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::office_world::{World, chat};
use crate::process::{Tollbook, send, until};

const SECRET: &str = "a-secret-that-signs-what-is-sent";

/// What came in at a receiver, and what it answers.
#[derive(Clone)]
struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Value>>>,
    answer: Arc<Mutex<&'static str>>,
}

impl Receiver {
    fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Self { address, seen: Arc::default(), answer: Arc::new(Mutex::new(answer)) };
        let own = receiver.clone();
        drop(std::thread::spawn(move || {
            for socket in listener.incoming() {
                own.take(socket.unwrap());
            }
        }));
        receiver
    }

    fn take(&self, socket: TcpStream) {
        let mut reader = BufReader::new(socket);
        let (mut headers, mut line) = (std::collections::BTreeMap::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some((name, value)) = line.trim().split_once(": ") {
                headers.insert(name.to_ascii_lowercase(), value.to_owned());
            }
            line.clear();
        }
        let Some(length) = headers.get("content-length").and_then(|text| text.parse().ok()) else { return };
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let (id, at) = (&headers["webhook-id"], &headers["webhook-timestamp"]);
        let signed = mac(SECRET.as_bytes(), format!("{id}.{at}.{body}").as_bytes());
        assert_eq!(headers["webhook-signature"], format!("v1,{}", STANDARD.encode(signed)));
        let event: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(event["id"], id.as_str());
        let answer = *self.answer.lock().unwrap();
        self.seen.lock().unwrap().push(json!({"event": event, "answer": answer}));
        let _ = write!(
            reader.into_inner(),
            "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }

    fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until so many came in.
    fn until(&self, many: usize) -> Vec<Value> {
        until("events", || Some(self.seen()).filter(|seen| seen.len() >= many))
    }
}

/// By the text of RFC 2104, apart from what signs.
fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
    let inner = digest(&SHA256, &[pad(0x36), text.to_vec()].concat());
    digest(&SHA256, &[&pad(0x5c), inner.as_ref()].concat()).as_ref().to_vec()
}

fn start(world: &World, name: &str, receivers: &[(&str, &Receiver, &str)]) -> Tollbook {
    let path = world.file(name, &["m"]);
    let webhooks: Vec<String> = receivers
        .iter()
        .map(|(id, to, more)| {
            format!("{{ id: {id}, url: \"http://{}/x\", secret: {SECRET}{more} }}", to.address)
        })
        .collect();
    let alerts = format!("alerts: {{ every: 100ms, webhooks: [{}] }}\nconfig:", webhooks.join(", "));
    let text = std::fs::read_to_string(&path).unwrap().replacen("config:", &alerts, 1);
    std::fs::write(&path, text).unwrap();
    Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap())
}

fn told(seen: &Value) -> (&str, &str, i64, &str) {
    let event = &seen["event"];
    let text = |member: &str| event[member].as_str().unwrap();
    (
        text("type"),
        text("remaining"),
        event["threshold_percent"].as_i64().unwrap(),
        seen["answer"].as_str().unwrap(),
    )
}

/// Twenty calls use a quota up: below ten percent and below five are told once each, under one id at every try, through a
/// refusal and a kill of the gateway. A webhook of another tenant hears nothing.
#[test]
fn a_quota_that_is_used_up_is_told_once_per_threshold_and_survives_a_kill() {
    let world = World::new();
    let (ops, other) = (Receiver::start("500 No"), Receiver::start("200 OK"));
    let both = [("ops", &ops, ""), ("other", &other, ", tenant: other")];
    let gateway = start(&world, "a", &both);
    let secret = gateway.with_key();
    let limits = json!({"limits": [{"name": "day", "measure": "requests", "period": "day", "ceiling": 20}]});
    gateway.ask("PATCH", "/tenants/acme", limits, 200);
    for _ in 0..19 {
        assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    }
    let first = ops.until(1);
    assert_eq!(told(&first[0]), ("quota.remaining", "1", 10, "500 No"));
    let event = first[0]["event"].clone();
    assert_eq!((&event["tenant"], &event["limit"]), (&json!("acme"), &json!("day")));
    assert_eq!((&event["ceiling"], &event["posted"]), (&json!("20"), &json!("19")));

    gateway.signal(Signal::KILL);
    let _ = gateway.wait();
    *ops.answer.lock().unwrap() = "204 No Content";
    let gateway = start(&world, "a", &both);
    let seen = ops.until(2);
    assert_eq!(told(&seen[1]), ("quota.remaining", "1", 10, "204 No Content"));
    assert_eq!(seen[1]["event"], event, "the same event under the same id");

    assert_eq!(gateway.chat(&secret, &chat()).0, 200);
    let seen = ops.until(3);
    assert_eq!(told(&seen[2]), ("quota.remaining", "0", 5, "204 No Content"));
    assert_ne!(seen[2]["event"]["id"], event["id"]);
    assert_eq!(gateway.chat(&secret, &chat()).0, 429);
    gateway.stop();
    assert_eq!((ops.seen().len(), other.seen().len()), (3, 0));
}

/// What was topped up above a threshold crosses it anew, under another id.
#[test]
fn a_top_up_makes_the_next_crossing_another_event() {
    let world = World::new();
    let ops = Receiver::start("200 OK");
    let gateway = start(&world, "a", &[("ops", &ops, ", events: [quota.remaining]")]);
    let secret = gateway.with_key();
    let limits = json!({"limits": [{"name": "day", "measure": "requests", "period": "day", "ceiling": 10}]});
    gateway.ask("PATCH", "/tenants/acme", limits, 200);
    let call = |times: usize| {
        for _ in 0..times {
            assert_eq!(gateway.chat(&secret, &chat()).0, 200);
        }
    };
    call(10);
    let mut first: Vec<i64> = ops.until(2).iter().map(|seen| told(seen).2).collect();
    first.sort_unstable();
    assert_eq!(first, [5, 10], "both at once");
    let topped = json!({"limit": "day", "delta": "-10", "reason": "paid"});
    gateway.ask("POST", "/tenants/acme/adjust", topped, 200);
    call(1);
    let store = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let marks = || {
        store.block_on(async {
            use tollbook_store::Alerts as _;
            let path = world.folder.path().join("store.sqlite");
            let store = tollbook_store_sql::SqlStore::open_to_read(&path).await.unwrap();
            let marks = store.alert_marks("acme", 0, None).await.unwrap();
            store.close().await;
            marks
        })
    };
    until("the thresholds are left", || marks().iter().all(|mark| !mark.crossed).then_some(()));
    call(9);
    let seen = ops.until(4);
    let ids: std::collections::BTreeSet<&str> =
        seen.iter().map(|seen| seen["event"]["id"].as_str().unwrap()).collect();
    assert_eq!((seen.len(), ids.len()), (4, 4));
    gateway.stop();
}

/// Two gateways over one book and one store see the same crossing: it is told once, under one id. What the receiver says
/// beyond yes and no is nothing: a redirect is not followed.
#[test]
fn two_gateways_tell_one_crossing_once() {
    let redis = tollbook_redis_world::Server::redis();
    let mut world = World::new();
    world.book = Some(format!("redis://{}", redis.addr()));
    let elsewhere = Receiver::start("200 OK");
    let ops = Receiver::start("302 Found\r\nlocation: http://127.0.0.1:1/");
    let both = [("ops", &ops, ", events: [quota.remaining]")];
    let (one, other) = (start(&world, "a", &both), start(&world, "b", &both));
    let secret = one.with_key();
    let limits = json!({"limits": [{"name": "day", "measure": "requests", "period": "day", "ceiling": 20}]});
    one.ask("PATCH", "/tenants/acme", limits, 200);
    until("both know the key", || (other.chat(&secret, &json!({"model": "none"})).0 != 401).then_some(()));
    for at in 0..19 {
        let gateway = if at % 2 == 0 { &one } else { &other };
        until("it is served", || (gateway.chat(&secret, &chat()).0 == 200).then_some(()));
    }
    let first = ops.until(1);
    assert_eq!(told(&first[0]).2, 10);
    *ops.answer.lock().unwrap() = "200 OK";
    // It comes again, five seconds later, and is the same.
    let seen = ops.until(2);
    assert_eq!(seen[0]["event"], seen[1]["event"]);
    let crossed = |gateway: &Tollbook| {
        let mut text = String::new();
        send(gateway.gateway, "GET", "/metrics", "", "").read_to_string(&mut text).unwrap();
        let line =
            text.lines().find(|line| line.starts_with("tollbook_alerts_crossed_total ")).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    assert_eq!(crossed(&one) + crossed(&other), 1);
    let shown = one.ask("GET", "/export", Value::Null, 200).to_string();
    assert!(!shown.contains(SECRET));
    one.stop();
    other.stop();
    assert_eq!((ops.seen().len(), elsewhere.seen().len()), (2, 0));
}
