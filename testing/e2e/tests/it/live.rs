//! The configuration is changed while the program runs: what comes in force, when, and what does not.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tollbook_e2e::config::{ADMIN_KEY, CHAT_MODEL, Config, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{self, Connection, LIMIT, metric};
use tollbook_e2e::journal::Journal;
use tollbook_e2e::load::pause_until;
use tollbook_mock_upstream::{Generate, MockUpstream};

/// Long enough for a change that was taken too early to be seen.
const WHILE: Duration = Duration::from_millis(1500);

fn provider() -> MockUpstream {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    mock.set_default(
        Generate { input_llm_tokens: Some(30), output_llm_tokens: Some(7), ..Generate::default() }.into(),
    );
    mock
}

fn requests(ceiling: u64) -> Value {
    json!([{"name": "calls", "measure": "requests", "period": "lifetime", "ceiling": ceiling}])
}

/// A file in which tenant `acme` may make so many calls.
fn config(mock: &MockUpstream, ceiling: u64) -> Config {
    Config::new(&mock.url()).simple_tenant("acme", &requests(ceiling))
}

fn body() -> Value {
    json!({"model": CHAT_MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]})
}

fn call(gateway: &Gateway, tenant: &str) -> u16 {
    gateway.post("/v1/chat/completions", &secret(&format!("{tenant}-key")), &body()).unwrap().status
}

fn ceiling(gateway: &Gateway) -> u64 {
    line(gateway, "calls")["ceiling"].as_u64().unwrap()
}

fn line(gateway: &Gateway, limit: &str) -> Value {
    let page = gateway.admin_get("/admin/v1/accounts").unwrap().json();
    let mut lines = page["data"].as_array().unwrap().iter();
    let line = lines.find(|line| line["limit"] == limit);
    line.cloned().unwrap_or_else(|| panic!("{limit} is not in {page}"))
}

fn gauge(gateway: &Gateway, name: &str) -> u64 {
    metric(&gateway.metrics(), &format!("tollbook_config_{name}"), &[]).unwrap()
}

/// A stream whose head and first word were read, and that waits for the script's word.
fn open_stream(gateway: &Gateway, script: &Value) -> Connection {
    let mut connection = Connection::open(gateway.addr()).unwrap();
    let bearer = format!("Bearer {}", secret("acme-key"));
    let mut body = body();
    body["stream"] = json!(true);
    let script = script.to_string();
    let headers = [("authorization", bearer.as_str()), ("x-mock-script", script.as_str())];
    connection.post("/v1/chat/completions", &headers, body.to_string().as_bytes()).unwrap();
    connection.read_events(2).unwrap();
    connection
}

fn slow(chunks: u64, every_ms: u64) -> Value {
    json!({"answer": {"generate": {"output_llm_tokens": chunks, "chunk_every_ms": every_ms}}})
}

#[test]
fn file_that_is_replaced_or_rewritten_comes_in_force() {
    let mock = provider();
    let gateway = Gateway::start(&config(&mock, 100));
    assert_eq!((gateway.generation(), ceiling(&gateway)), (1, 100));
    let started = gauge(&gateway, "loaded_unix");
    gateway.replace_config(&config(&mock, 200));
    gateway.comes_to_generation(2);
    assert_eq!(ceiling(&gateway), 200);
    gateway.configure(&config(&mock, 300));
    gateway.comes_to_generation(3);
    assert_eq!(ceiling(&gateway), 300);
    assert!(gauge(&gateway, "loaded_unix") >= started);
    assert_eq!((gauge(&gateway, "error"), gauge(&gateway, "restart_needed")), (0, 0));
    // Touched, and written as it is: nothing new.
    gateway.configure(&config(&mock, 300));
    pause_until(Instant::now() + WHILE);
    assert_eq!(gateway.generation(), 3);
}

#[test]
fn mounted_folder_whose_links_are_swapped_comes_in_force() {
    let mock = provider();
    let mut gateway = Gateway::prepare();
    // As a cluster mounts a configuration map: file -> ..data/file, ..data -> the version's folder.
    let (root, data) = (gateway.dir().to_owned(), gateway.data_dir());
    let mounted = root.join("mounted");
    let version = |name: &str, ceiling: u64| {
        fs::create_dir_all(mounted.join(name)).unwrap();
        let text = config(&mock, ceiling).lines(&data);
        fs::write(mounted.join(name).join("tollbook.yaml"), text).unwrap();
        symlink(name, mounted.join("..data.new")).unwrap();
        fs::rename(mounted.join("..data.new"), mounted.join("..data")).unwrap();
    };
    version("..1", 100);
    symlink("..data/tollbook.yaml", mounted.join("tollbook.yaml")).unwrap();
    gateway.set_config_file("mounted/tollbook.yaml");
    gateway.start_again();
    for (name, ceiling) in [("..2", 200), ("..3", 300)] {
        version(name, ceiling);
        gateway.comes_to_generation(ceiling / 100);
        assert_eq!(self::ceiling(&gateway), ceiling);
    }
    fs::remove_dir_all(mounted.join("..1")).unwrap();
    // The folder itself is replaced.
    fs::rename(&mounted, root.join("before")).unwrap();
    fs::create_dir(&mounted).unwrap();
    fs::write(mounted.join("tollbook.yaml"), config(&mock, 400).lines(&data)).unwrap();
    gateway.comes_to_generation(4);
    assert_eq!(ceiling(&gateway), 400);
}

#[test]
fn file_that_is_still_written_is_never_taken_half() {
    let mock = provider();
    let gateway = Gateway::start(&config(&mock, 100).simple_tenant("late", &json!([])));
    let next = config(&mock, 200).simple_tenant("late", &json!([]));
    let text = next.lines(&gateway.data_dir());
    // Cut behind the first tenant it is a good file, in which the second does not exist.
    let half = text.rfind("- {").unwrap();
    let mut file = fs::File::create(gateway.config_file()).unwrap();
    file.write_all(&text.as_bytes()[..half]).unwrap();
    file.sync_all().unwrap();
    let end = Instant::now() + WHILE;
    loop {
        let seen = (gateway.generation(), call(&gateway, "late"));
        // An answer that came later says nothing: a file at rest for so long is one that is whole.
        if Instant::now() >= end {
            break;
        }
        assert_eq!(seen, (1, 200));
    }
    file.write_all(&text.as_bytes()[half..]).unwrap();
    drop(file);
    let whole = wait_for(LIMIT, || ((call(&gateway, "late"), ceiling(&gateway)) == (200, 200)).then_some(()));
    assert!(whole.is_some(), "{}", gateway.log());
    assert!(!gateway.log().contains("is not taken"), "{}", gateway.log());
}

#[test]
fn bad_file_changes_nothing_and_is_told_with_its_place() {
    let mock = provider();
    let gateway = Gateway::start(&config(&mock, 100));
    let good = config(&mock, 200).lines(&gateway.data_dir());
    let bad = good.replace(
        "tenants:\n",
        "tenants:\n- {id: a, limits: [{measure: requests, window: 60s, ceiling: -1}]}\n",
    );
    let line = bad.lines().position(|line| line.contains("ceiling: -1")).unwrap() + 1;
    let column = bad.lines().nth(line - 1).unwrap().find("-1").unwrap() + 1;
    fs::write(gateway.config_file(), &bad).unwrap();
    wait_for(LIMIT, || (gauge(&gateway, "error") == 1).then_some(())).unwrap();
    let (line, column) = (u64::try_from(line).unwrap(), u64::try_from(column).unwrap());
    assert_eq!((gauge(&gateway, "error_line"), gauge(&gateway, "error_column")), (line, column));
    let log = gateway.log();
    let told = log.lines().find(|line| line.contains("is not taken")).unwrap_or_else(|| panic!("{log}"));
    let told: Value = serde_json::from_str(told).unwrap();
    let text = told.to_string();
    for part in
        [format!("\"line\":{line}"), format!("\"column\":{column}"), "tenants[0].limits[0].ceiling".into()]
    {
        assert!(text.contains(&part), "{part} in {text}");
    }
    assert_eq!((gateway.generation(), ceiling(&gateway), call(&gateway, "acme")), (1, 100, 200));
    assert_eq!(metric(&gateway.metrics(), "tollbook_config_reloads_total", &["run=\"failed\""]), Some(1));
    fs::write(gateway.config_file(), good).unwrap();
    gateway.comes_to_generation(2);
    let gauges = ["error", "error_line", "error_column"].map(|name| gauge(&gateway, name));
    assert_eq!((gauges, ceiling(&gateway)), ([0; 3], 200));
}

#[test]
fn file_that_is_gone_changes_nothing_and_its_return_is_seen() {
    let mock = provider();
    let gateway = Gateway::start(&config(&mock, 100));
    let text = fs::read(gateway.config_file()).unwrap();
    fs::remove_file(gateway.config_file()).unwrap();
    wait_for(LIMIT, || (gauge(&gateway, "error") == 1).then_some(())).unwrap();
    assert_eq!((gateway.generation(), call(&gateway, "acme")), (1, 200));
    // The same again: nothing is wrong any more, and nothing is new.
    fs::write(gateway.config_file(), text).unwrap();
    wait_for(LIMIT, || (gauge(&gateway, "error") == 0).then_some(())).unwrap();
    assert_eq!(gateway.generation(), 1);
    fs::remove_file(gateway.config_file()).unwrap();
    wait_for(LIMIT, || (gauge(&gateway, "error") == 1).then_some(())).unwrap();
    gateway.configure(&config(&mock, 200));
    gateway.comes_to_generation(2);
    assert_eq!((ceiling(&gateway), gauge(&gateway, "error")), (200, 0));
}

#[test]
fn hangup_reads_the_file_at_once_and_without_watching_nothing_else_does() {
    let mock = provider();
    let mut gateway = Gateway::prepare();
    gateway.configure(&config(&mock, 100));
    gateway.set_options(&["--no-watch"]);
    gateway.start_again();
    gateway.replace_config(&config(&mock, 200));
    pause_until(Instant::now() + WHILE);
    assert_eq!(gateway.generation(), 1);
    gateway.signal(Signal::HUP);
    gateway.comes_to_generation(2);
    assert_eq!(ceiling(&gateway), 200);
    // Told to read what is in force: it lives on, and nothing changes.
    gateway.signal(Signal::HUP);
    wait_for(LIMIT, || gateway.log().contains("is the one in force").then_some(())).unwrap();
    assert_eq!((gateway.generation(), call(&gateway, "acme")), (2, 200));
    fs::write(gateway.config_file(), "{").unwrap();
    gateway.signal(Signal::HUP);
    wait_for(LIMIT, || (gauge(&gateway, "error") == 1).then_some(())).unwrap();
    assert_eq!(call(&gateway, "acme"), 200);
    assert!(gateway.terminate().success());
}

#[test]
fn what_needs_a_restart_is_told_and_keeps_its_value() {
    let mock = provider();
    let gateway = Gateway::start(&config(&mock, 100));
    let next = config(&mock, 200)
        .set("/listen", json!("127.0.0.1:1"))
        .set("/admin", json!({"listen": "127.0.0.1:2", "api_key": "another operator's key, long enough"}))
        .set("/calls", json!({"renew_every": "4s"}));
    gateway.replace_config(&next);
    gateway.comes_to_generation(2);
    assert_eq!((call(&gateway, "acme"), gauge(&gateway, "restart_needed")), (200, 3));
    let log = gateway.log();
    for told in ["listen stays 127.0.0.1:0, not 127.0.0.1:1", "admin.listen stays", "calls stays"] {
        assert!(log.contains(told), "{told} in {log}");
    }
    // The operator's key is not of that kind.
    assert_eq!(gateway.admin_get("/admin/v1/accounts").unwrap().status, 401);
    let admin = gateway.admin_addr().unwrap();
    let answer = http::get(admin, "/admin/v1/accounts", "another operator's key, long enough").unwrap();
    assert_eq!(answer.status, 200);
    gateway.replace_config(&config(&mock, 200).set("/admin", json!({"listen": "127.0.0.1:0"})));
    gateway.comes_to_generation(3);
    for key in [ADMIN_KEY, "another operator's key, long enough", ""] {
        assert_eq!(http::get(admin, "/admin/v1/accounts", key).unwrap().status, 401);
    }
}

#[test]
fn key_that_is_disabled_ends_at_once_and_its_stream_does_not() {
    let mock = provider();
    let gateway = Gateway::start(&config(&mock, 100));
    let mut stream = open_stream(&gateway, &slow(40, 50));
    gateway.replace_config(&config(&mock, 100).set("/tenants/0/projects/0/keys/0/disabled", json!(true)));
    gateway.comes_to_generation(2);
    assert_eq!(call(&gateway, "acme"), 401);
    let answer = stream.answer().unwrap();
    assert!(answer.complete && answer.text().contains("[DONE]"), "{}", answer.text());
    // A body that was under way when the key was disabled does not slip in.
    gateway.replace_config(&config(&mock, 101));
    gateway.comes_to_generation(3);
    let mut late = Connection::open(gateway.addr()).unwrap();
    let (text, bearer) = (body().to_string(), secret("acme-key"));
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: e2e\r\nauthorization: Bearer {bearer}\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    late.send(head.as_bytes()).unwrap();
    late.send(&text.as_bytes()[..10]).unwrap();
    // It is known to have been let in when a later call on the same path was answered.
    assert_eq!(call(&gateway, "acme"), 200);
    gateway.replace_config(&config(&mock, 101).set("/tenants/0/projects/0/keys/0/disabled", json!(true)));
    gateway.comes_to_generation(4);
    late.send(&text.as_bytes()[10..]).unwrap();
    assert_eq!(late.answer().unwrap().status, 401);
}

#[test]
fn l16_limits_change_under_way_and_keep_what_was_used() {
    let mock = provider();
    let gateway = Gateway::start(&config(&mock, 5));
    let mut generation = 1;
    let mut change = |limits: &Value| {
        gateway.replace_config(&Config::new(&mock.url()).simple_tenant("acme", limits));
        generation += 1;
        gateway.comes_to_generation(generation);
    };
    let calls = |count: usize| (0..count).filter(|_| call(&gateway, "acme") == 200).count();
    assert_eq!(calls(3), 3);
    // Below what is posted: nothing passes, nothing is forgotten.
    change(&requests(2));
    assert_eq!((calls(2), line(&gateway, "calls")["posted"].as_i64()), (0, Some(3)));
    change(&requests(5));
    assert_eq!(calls(4), 2);
    // Removed, and made again by another name: what was used meanwhile is in it, from the first call on.
    change(&json!([]));
    assert_eq!(calls(1), 1);
    change(&json!([{"name": "again", "measure": "requests", "period": "lifetime", "ceiling": 7}]));
    let posted = || line(&gateway, "again")["posted"].as_i64();
    assert!(wait_for(LIMIT, || (posted() == Some(6)).then_some(())).is_some(), "{:?}", posted());
    assert_eq!(calls(3), 1);
    // A changed window: the old account is enforced beside the new one.
    let rate = |window: &str, ceiling: u64| json!([{"name": "pace", "measure": "requests", "window": window, "ceiling": ceiling}]);
    change(&rate("2h", 4));
    assert_eq!(calls(3), 3);
    change(&rate("1h", 10));
    assert_eq!((line(&gateway, "pace")["posted"].as_i64(), calls(4)), (Some(0), 1));
}

#[test]
fn provider_that_moves_takes_new_calls_and_streams_end_where_they_began() {
    let (before, after) = (provider(), provider());
    let gateway = Gateway::start(&config(&before, 100));
    let mut streams: Vec<Connection> = (0..10).map(|_| open_stream(&gateway, &slow(40, 50))).collect();
    gateway.replace_config(&config(&after, 100));
    gateway.comes_to_generation(2);
    assert_eq!(call(&gateway, "acme"), 200);
    assert_eq!((before.totals().calls, after.totals().calls), (10, 1));
    for stream in &mut streams {
        let answer = stream.answer().unwrap();
        assert!(answer.complete && answer.text().contains("[DONE]"), "{}", answer.text());
    }
    // No connection to the old address is kept.
    assert!(before.calls_at_rest().iter().all(|call| call.reported.is_some()));
}

/// Changes made while calls run.
const CHANGES: u64 = 200;
const CALLERS: usize = 4;

/// Configuration number n: whatever a call meets of it says n. The pool and the provider's model are named by it, the
/// provider is shown a key of it, and a llm_token of output costs n.
fn numbered(mock: &MockUpstream, n: u64) -> Config {
    config(mock, 1_000_000)
        .set("/upstreams/0/api_key", json!(format!("sk-{n}")))
        .set("/models/0/upstream_model", json!(format!("model-{n}")))
        .set("/models/0/price", json!({"input": "0", "output": n.to_string()}))
}

#[test]
fn b234_200_changes_under_load_and_each_call_is_decided_wholly_by_one_configuration() {
    let mock = provider();
    let mut gateway = Gateway::start(&numbered(&mock, 1));
    let stop = AtomicBool::new(false);
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, stop, made) = (&gateway, &stop, &made);
            scope.spawn(move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    numbered_call(gateway, &format!("{caller}-{count}"), (caller + count) % 2 == 0);
                    made.fetch_add(1, Ordering::Relaxed);
                    count += 1;
                }
            });
        }
        for n in 2..=CHANGES + 1 {
            gateway.replace_config(&numbered(&mock, n));
            gateway.signal(Signal::HUP);
            gateway.comes_to_generation(n);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(gateway.terminate().success());
    let journal = Journal::read(&gateway.data_dir());
    let entries = journal.by_call("tenant");
    let calls = mock.calls_at_rest();
    assert_eq!(u64::try_from(calls.len()).unwrap(), made.load(Ordering::Relaxed));
    let mut seen = BTreeSet::new();
    for call in &calls {
        let label = call.label.as_deref().unwrap();
        let [entry] = entries[label][..] else { panic!("{label}: {:?}", entries[label]) };
        let model = call.model.as_deref().unwrap();
        let n: i64 = model.strip_prefix("model-").unwrap().parse().unwrap();
        let told = call.reported.unwrap();
        assert_eq!(call.header("authorization"), Some(format!("Bearer sk-{n}").as_str()), "{label}");
        assert_eq!(
            (entry.pool.as_str(), entry.figures.as_str()),
            (format!("open/{model}").as_str(), "reported")
        );
        assert_eq!(entry.cost_nano, n * 1000 * i64::try_from(told.output).unwrap(), "{label}: {entry:?}");
        seen.insert(n);
    }
    println!("{} calls under {} configurations", calls.len(), seen.len());
    assert!(seen.len() > 50, "too few configurations met a call: {seen:?}");
}

/// A call, or a stream that lasts over several changes; both must succeed.
fn numbered_call(gateway: &Gateway, label: &str, stream: bool) {
    let mut connection = Connection::open(gateway.addr()).unwrap();
    let bearer = format!("Bearer {}", secret("acme-key"));
    // Six pauses before a stream's words: it lasts over several changes. A plain answer waits as long for its head.
    let every = if stream { 30 } else { 5 };
    let generate = json!({"input_llm_tokens": 30, "output_llm_tokens": 7, "chunk_every_ms": every});
    let script = json!({"label": label, "answer": {"generate": generate}}).to_string();
    let headers =
        [("authorization", bearer.as_str()), ("x-tollbook-user", label), ("x-mock-script", script.as_str())];
    let mut body = body();
    body["stream"] = json!(stream);
    connection.post("/v1/chat/completions", &headers, body.to_string().as_bytes()).unwrap();
    let answer = connection.answer().unwrap();
    assert!(answer.status == 200 && answer.complete, "{label}: {} {}", answer.status, answer.text());
}

/// A `tokenizer.json` that makes one llm_token of each piece its `split` leaves.
fn tokenizer(split: &Value) -> String {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": split, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
    })
    .to_string()
}

/// How a call of three words, thirteen characters long, is counted: how, and to how many.
fn counted(gateway: &Gateway) -> (String, u64) {
    let body = json!({"model": CHAT_MODEL, "messages": [{"role": "user", "content": "one two three"}]});
    let question = json!({"key_id": "acme-key", "body": body});
    let answer = gateway.admin_post("/admin/v1/explain", &question).unwrap().json();
    let demand = &answer["demand"];
    let how = demand["counted"].as_str().unwrap_or_else(|| panic!("{answer}"));
    (how.to_owned(), demand["input_llm_tokens"].as_u64().unwrap())
}

#[test]
fn tokenizers_file_is_followed_and_one_that_cannot_be_used_changes_nothing() {
    let mock = provider();
    let mut gateway = Gateway::prepare();
    let file = gateway.dir().join("tokenizer.json");
    let words = tokenizer(&json!({"type": "Whitespace"}));
    let letters =
        json!({"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false});
    fs::write(&file, words).unwrap();
    let counted_by_file = config(&mock, 100)
        .set("/models/0/tokenizer", json!(file))
        .set("/models/0/input_count", json!("exact"))
        .set("/models/0/framing", json!({"per_request": 0, "per_message": 0}));
    gateway.configure(&counted_by_file);
    gateway.start_again();
    // It is made in the background.
    wait_for(LIMIT, || (counted(&gateway) == ("exact".to_owned(), 3)).then_some(())).unwrap();

    for gone in [true, false] {
        if gone {
            fs::remove_file(&file).unwrap();
        } else {
            fs::write(&file, "{\"model\": {\"type\": \"Unheard\"}}").unwrap();
        }
        wait_for(LIMIT, || (gauge(&gateway, "error") == 1).then_some(())).unwrap();
        assert_eq!((gateway.generation(), counted(&gateway)), (1, ("exact".to_owned(), 3)));
        let log = gateway.log();
        let told = log.lines().any(|line| {
            line.contains("models[0].tokenizer")
                && line.contains("tokenizer.json")
                && line.contains("is not taken")
        });
        assert!(told, "{log}");
    }

    fs::write(&file, tokenizer(&letters)).unwrap();
    gateway.comes_to_generation(2);
    assert_eq!((counted(&gateway), gauge(&gateway, "error")), (("exact".to_owned(), 13), 0));
    assert_eq!(call(&gateway, "acme"), 200);
}
