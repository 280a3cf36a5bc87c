//! `serve`: start, stop, restart with a changed file, the operator's listener.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tollbook::demo::provider::Provider;
use tollbook_mock_collector::{MockCollector, attribute};

use crate::process::{OPERATOR, Tollbook, call, call_from, command, send, until};

/// A provider in this process, and a folder for the program.
struct World {
    runtime: tokio::runtime::Runtime,
    provider: Provider,
    folder: tempfile::TempDir,
}

impl World {
    fn new(pace: Duration) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let provider = runtime.block_on(Provider::start(pace)).unwrap();
        Self { runtime, provider, folder: tempfile::tempdir().unwrap() }
    }

    /// A file with these limits of tenant `t`, whose key is `secret`.
    fn write(&self, head: &str, limits: &str) -> String {
        let mut text = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0, api_key: {OPERATOR} }}\nlog: {{ level: warn }}\n{head}\n"
        );
        let addr = self.provider.addr;
        write!(
            text,
            "upstreams: [{{ name: u, dialect: openai, base_url: http://{addr}/v1 }}]
models: [{{ name: m, upstream: u, output: {{ default: 50 }}, price: {{ input: 1, output: 2 }} }}]
tenants:
  - id: t
    limits: [{limits}]
    projects: [{{ id: p, keys: [{{ id: k, secret: secret }}] }}]
"
        )
        .unwrap();
        let path = self.folder.path().join("t.yaml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn serve(&self, limits: &str) -> Tollbook {
        let path = self.write("", limits);
        Tollbook::start(&["serve", "-c", &path], self.folder.path())
    }
}

fn chat() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

#[test]
fn it_serves_books_and_stops_in_good_order() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, window: 1h, ceiling: 2 }");
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 200);
    let (status, refusal) = program.chat("secret", &chat());
    assert_eq!((status, &refusal["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    assert_eq!(program.chat("other", &chat()).0, 401);
    assert_eq!((&program.limit("r")["posted"], &program.limit("r")["denied"]), (&json!(2), &json!(1)));
    let printed = program.stop();
    assert!(printed.starts_with("listening on http://127.0.0.1:"), "{printed}");
    drop(world.runtime);
}

#[test]
fn the_operators_listener_reads_heads_as_strictly_as_the_clients_door() {
    use std::io::{Read as _, Write as _};
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, window: 1h, ceiling: 2 }");
    let key = format!("authorization: Bearer {OPERATOR}\r\n");
    let smuggled = format!("GET /admin/v1/accounts HTTP/1.1\r\nhost: x\r\n{key}connection: close\r\n\r\n");
    let chunked = "transfer-encoding: chunked\r\n";
    for (name, lines, body) in [
        ("two lengths", format!("content-length: {}\r\n{chunked}", smuggled.len()), "0\r\n\r\n"),
        ("doubled length", "content-length: 2\r\ncontent-length: 0\r\n".to_owned(), "{}"),
        ("length of two", "content-length: 2, 0\r\n".to_owned(), "{}"),
        ("doubled coding", format!("{chunked}{chunked}"), "0\r\n\r\n"),
        ("unknown coding", "transfer-encoding: identity\r\ncontent-length: 0\r\n".to_owned(), ""),
        ("folded", "a: b\r\n c: d\r\n".to_owned(), ""),
        ("bare line end", "a: b\nc: d\r\n".to_owned(), ""),
        ("space in name", "content-length : 2\r\n".to_owned(), "{}"),
        ("two hosts", "host: y\r\n".to_owned(), ""),
        ("too large", format!("a: {}\r\n", "b".repeat(70_000)), ""),
        ("too many", "a: b\r\n".repeat(150), ""),
    ] {
        let text = format!("POST /admin/v1/explain HTTP/1.1\r\nhost: x\r\n{key}{lines}\r\n{body}{smuggled}");
        let mut socket = std::net::TcpStream::connect(program.admin.unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        let _: std::io::Result<usize> = socket.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        assert!(answer.contains("\"malformed_request\""), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer}");
    }
    let body = "{}";
    assert_eq!(call(program.admin.unwrap(), "POST", "/admin/v1/explain", OPERATOR, body).0, 400);
    assert_eq!(call(program.admin.unwrap(), "GET", "/admin/v1/accounts", OPERATOR, "").0, 200);
}

/// An id may be any text, so a path holds it percent-encoded.
#[test]
fn a_tenant_of_any_name_is_inspected() {
    let world = World::new(Duration::ZERO);
    let path = world.write("", "{ measure: concurrency, ceiling: 3 }");
    let mut file = std::fs::read_to_string(&path).unwrap();
    let ids = ["a", "a?b", "a b", "a/b", "a%3Fb", "ü"];
    for (index, id) in ids.iter().enumerate() {
        let keys = format!("[{{ id: k{index}, secret: secret-{index} }}]");
        writeln!(file, "  - {{ id: {id:?}, projects: [{{ id: p, keys: {keys} }}] }}").unwrap();
    }
    std::fs::write(&path, file).unwrap();
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    let listener = format!("http://{}", program.admin.unwrap());
    for id in ids {
        let shown = command(&["inspect", id, "-c", &path, "--admin", &listener, "--json"]).output().unwrap();
        assert!(shown.status.success(), "{id}: {}", String::from_utf8_lossy(&shown.stderr));
        assert_eq!(serde_json::from_slice::<Value>(&shown.stdout).unwrap()["tenant"], id);
    }
    for (method, part, want) in [("GET", "none", 404), ("GET", "a%zz", 400), ("POST", "a", 405)] {
        let (status, answer) = program.operators(method, &format!("/admin/v1/inspect/{part}"), &Value::Null);
        assert_eq!(status, want, "{method} {part}: {answer}");
    }
}

#[test]
fn the_operators_listener_needs_its_key() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, window: 1h, ceiling: 2 }");
    let admin = program.admin.unwrap();
    for (from, key) in (0..).zip(["", "wrong", "operators-ke", "operators-key2", "secret"]) {
        for (method, path, body) in
            [("GET", "/admin/v1/accounts", ""), ("POST", "/admin/v1/explain", "{}"), ("GET", "/nothing", "")]
        {
            assert_eq!(call_from(from, admin, (method, path, key), body).0, 401, "{method} {path} {key}");
        }
    }
    assert_eq!(program.operators("GET", "/nothing", &Value::Null).0, 404);
    assert_eq!(program.operators("GET", "/admin/v1/explain", &Value::Null).0, 405);
    for body in ["", "[]", "{", "{\"key_id\": 5}", "{\"nonsense\": 1}", "{}", "{\"key_id\": \"k\"}"] {
        let (status, answer) = call(admin, "POST", "/admin/v1/explain", OPERATOR, body);
        assert_eq!((status, &answer["code"]), (400, &json!("bad_question")), "{body}");
    }
    for question in [json!({"key_id": "none", "model": "m"}), json!({"key_id": "k", "model": "none"})] {
        assert_eq!(program.operators("POST", "/admin/v1/explain", &question).0, 404, "{question}");
    }
    program.stop();
}

#[test]
fn an_address_that_shows_wrong_keys_waits_and_locks_out_nobody_who_works_there() {
    let world = World::new(Duration::ZERO);
    let path = world.write("", "{ name: r, measure: requests, window: 1h, ceiling: 2 }");
    let log = world.folder.path().join("log");
    let program = Tollbook::start_logging(
        &["serve", "-c", &path],
        world.folder.path(),
        std::fs::File::create(&log).unwrap().into(),
    );
    let admin = program.admin.unwrap();
    let ask = |from: u16, key: &str| call_from(from, admin, ("GET", "/admin/v1/accounts", key), "");
    assert_eq!(ask(1, OPERATOR).0, 200);
    for _ in 0..10 {
        assert_eq!(ask(1, "a-try").0, 401);
        // No key is no guess.
        assert_eq!(ask(1, "").0, 401);
        assert_eq!(ask(2, "a-try").0, 401);
    }
    let (status, head, problem) = ask(1, "a-try");
    assert_eq!((status, &problem["code"]), (429, &json!("too_many_wrong_keys")), "{problem}");
    let wait =
        head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap().parse::<u64>().unwrap();
    assert!((1..=60).contains(&wait), "{head}");
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    // Who has worked there goes on; from the other address the same key would be a guess.
    assert_eq!(
        (ask(1, OPERATOR).0, ask(1, "").0, ask(2, OPERATOR).0, ask(3, OPERATOR).0),
        (200, 401, 429, 200)
    );
    let mut metrics = String::new();
    send(program.gateway, "GET", "/metrics", "", "").read_to_string(&mut metrics).unwrap();
    for line in [
        "tollbook_admin_logins_failed_total{login=\"wrong\"} 20",
        "tollbook_admin_logins_failed_total{login=\"limited\"} 2",
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line} in {metrics}");
    }
    program.stop();
    let log = std::fs::read_to_string(&log).unwrap();
    assert_eq!(log.matches("shows wrong operators' keys").count(), 2, "{log}");
    assert!(!log.contains("a-try") && !log.contains(OPERATOR), "{log}");
}

#[test]
fn without_a_key_there_is_no_operators_listener() {
    let world = World::new(Duration::ZERO);
    let path = world.write("", "");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(", api_key: operators-key", "")).unwrap();
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    assert_eq!(program.admin, None);
    assert!(!program.stop().contains("operators on"));
}

#[test]
fn a_call_is_explained_before_and_after() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, window: 1h, ceiling: 1 }, { name: b, measure: cost, period: day, ceiling: 1 }");
    let question = json!({"api_key": "secret", "body": chat()});
    let (status, answer) = program.operators("POST", "/admin/v1/explain", &question);
    assert_eq!(
        (status, &answer["admitted"], &answer["key"]["id"]),
        (200, &json!(true), &json!("k")),
        "{answer}"
    );

    let mut text = String::new();
    send(program.gateway, "POST", "/v1/chat/completions", "secret", &chat().to_string())
        .read_to_string(&mut text)
        .unwrap();
    let id = text.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap().to_owned();
    let (_, answer) = program.operators("POST", "/admin/v1/explain", &question);
    assert_eq!((&answer["admitted"], &answer["refusing"]), (&json!(false), &json!(["r"])), "{answer}");

    let kept = until("the journal", || {
        let (status, kept) = program.operators("POST", "/admin/v1/explain", &json!({"request_id": id}));
        (status == 200).then_some(kept)
    });
    let entry = &kept["entries"][0];
    assert_eq!(
        (&entry["figures"], &entry["ending"], &entry["key"]),
        (&json!("reported"), &json!("complete"), &json!("k"))
    );
    let used = (entry["usage"]["input"].as_i64().unwrap(), entry["usage"]["output"].as_i64().unwrap());
    assert_eq!(entry["cost_nano"].as_i64().unwrap(), used.0 * 1000 + used.1 * 2000);

    let admin = format!("http://{}", program.admin.unwrap());
    let output = command(&["explain", "--admin", &admin, "--request", &id]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed
            .starts_with("tenant attempt 0 seq 0: settled complete, figures reported\n  t/p/k -> m at u/m\n"),
        "{printed}"
    );
    let output = command(&["explain", "--admin", &admin, "--request", "req_none"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));

    let says = |arguments: &[&str], code: i32, want: &str| {
        let output = command(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(want), "{want} in {said}");
    };
    let of_key = ["explain", "--admin", &admin, "--key-id", "k", "--model", "m"];
    says(&of_key, 0, "would be refused by r");
    says(&[&of_key[..], &["--admin-key", "bad"]].concat(), 1, "tollbook: the operator's key is wrong\n");
    says(&["explain"], 2, "explain needs one of --key-id and --request");
    program.stop();
    says(&of_key, 1, "; it is closed until admin.api_key is set, or give --admin");
}

#[test]
fn what_a_call_without_its_body_needs_is_told_to_be_unknown() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, window: 1h, ceiling: 1 }");
    let body = world.folder.path().join("body.json");
    std::fs::write(&body, chat().to_string()).unwrap();
    let admin = format!("http://{}", program.admin.unwrap());
    let explained = |more: &[&str]| {
        let of_key = ["explain", "--admin", &admin, "--key-id", "k"];
        let output = command(&[&of_key[..], more].concat()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = explained(&["--model", "m"]);
    assert!(said.contains("no limit is used up; what this call needs is unknown: give --body"), "{said}");
    let said = explained(&["--body", body.to_str().unwrap()]);
    assert!(said.contains("would be admitted"), "{said}");
    program.stop();
}

#[test]
fn a_call_that_cannot_be_priced_is_not_explained_as_admitted() {
    let world = World::new(Duration::ZERO);
    let path = world.write("", "{ name: b, measure: cost, period: day, ceiling: 1 }");
    let text = std::fs::read_to_string(&path).unwrap().replace(", price: { input: 1, output: 2 }", "");
    std::fs::write(&path, text).unwrap();
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    let question = json!({"key_id": "k", "model": "m"});
    let (status, answer) = program.operators("POST", "/admin/v1/explain", &question);
    assert_eq!((status, &answer["code"]), (422, &json!("unpriced")), "{answer}");
    program.stop();
}

#[test]
fn a_stream_is_finished_before_the_program_stops() {
    let world = World::new(Duration::from_millis(5));
    let program = world.serve("{ name: t, measure: tokens, window: 1h, ceiling: 100000 }, { name: c, measure: concurrency, ceiling: 5 }");
    let mut body = chat();
    body["stream"] = json!(true);
    let mut socket = send(program.gateway, "POST", "/v1/chat/completions", "secret", &body.to_string());
    let mut first = [0; 200];
    socket.read_exact(&mut first).unwrap();
    assert_eq!(program.limit("c")["held"], 1);
    program.signal(Signal::TERM);
    let mut rest = String::new();
    socket.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(program.wait().0.code(), Some(0));
}

#[test]
fn a_second_signal_stops_at_once() {
    // A word an hour: the stream outlives any drain.
    let world = World::new(Duration::from_hours(1));
    let program = world.serve("{ name: c, measure: concurrency, ceiling: 5 }");
    let mut body = chat();
    body["stream"] = json!(true);
    let socket = send(program.gateway, "POST", "/v1/chat/completions", "secret", &body.to_string());
    until("the call", || (program.limit("c")["held"] == 1).then_some(()));
    program.signal(Signal::INT);
    until("the listener to close", || std::net::TcpStream::connect(program.gateway).is_err().then_some(()));
    program.signal(Signal::INT);
    assert_eq!(program.wait().0.code(), Some(1));
    drop(socket);
}

#[test]
fn two_programs_do_not_share_a_book() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("");
    let path = world.folder.path().join("t.yaml");
    let output = command(&["serve", "-c", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cannot open the book"), "{message}");
    assert!(message.contains("; stop it, or give this one its own data_dir"), "{message}");
    program.stop();
}

/// Their outcomes would go into one spool, which each empties when its own are settled.
#[test]
fn two_gateways_of_a_shared_book_do_not_share_a_folder() {
    let world = World::new(Duration::ZERO);
    let path = world.write(
        "data_dir: data\nengine: { redis: { url: \"redis://127.0.0.1:1\" } }\njournal: j.sqlite",
        "{ measure: concurrency, ceiling: 3, when_away: closed }",
    );
    let folder = world.folder.path().join("data");
    std::fs::create_dir_all(&folder).unwrap();
    let other = std::fs::File::create(folder.join("lock")).unwrap();
    other.lock().unwrap();
    let output = command(&["serve", "-c", &path]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("is in use by another process; stop it, or give this one its own data_dir"),
        "{message}"
    );
}

#[test]
fn an_address_that_is_taken_is_a_failure_and_no_panic() {
    let world = World::new(Duration::ZERO);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let path = world.write("", "");
    let text = std::fs::read_to_string(&path).unwrap();
    let listen = format!("listen: {}", taken.local_addr().unwrap());
    std::fs::write(&path, text.replace("listen: 127.0.0.1:0\n", &format!("{listen}\n"))).unwrap();
    let output = command(&["serve", "-c", &path]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cannot listen on "), "{message}");
    assert!(message.contains("; stop the other program or change listen"), "{message}");
}

#[test]
fn tls_that_is_added_to_a_running_gateways_file_waits_for_a_restart() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("");
    let folder = world.folder.path();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let waiting = |number: u64| {
        program.signal(Signal::HUP);
        let line = format!("tollbook_config_restart_needed {number}\n");
        until("settings that wait", || {
            let mut text = String::new();
            send(program.gateway, "GET", "/metrics", "", "").read_to_string(&mut text).unwrap();
            text.contains(&line).then_some(())
        });
        // In plain text, as before.
        assert_eq!(program.chat("secret", &chat()).0, 200);
    };
    world.write("tls: { certificate_file: cert.pem, key_file: key.pem }", "");
    waiting(1);
    world.write("", "");
    waiting(0);
    program.stop();
}

#[test]
fn the_data_folder_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new(Duration::ZERO);
    let path = world.write("data_dir: made/here", "");
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    let mode = std::fs::metadata(world.folder.path().join("made/here")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    program.stop();
}

#[test]
fn l16_a_changed_ceiling_meets_the_same_account_over_a_restart() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, period: month, ceiling: 2 }");
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 429);
    program.stop();
    let program = world.serve("{ name: r, measure: requests, period: month, ceiling: 3 }");
    assert_eq!(program.limit("r")["posted"], 2);
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 429);
    program.stop();
}

#[test]
fn l16_a_changed_window_is_enforced_beside_the_old_one_over_a_restart() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, window: 2h, ceiling: 2 }");
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 200);
    program.stop();
    let program = world.serve("{ name: r, measure: requests, window: 1h, ceiling: 5 }");
    let (status, refusal) = program.chat("secret", &chat());
    assert_eq!(status, 429, "the old window still binds: {refusal}");
    program.stop();
}

#[test]
fn l16_a_quota_added_in_mid_period_starts_from_the_journal() {
    let world = World::new(Duration::ZERO);
    let program = world.serve("{ name: r, measure: requests, window: 1h, ceiling: 100 }");
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 200);
    program.stop();
    let program = world.serve(
        "{ name: r, measure: requests, window: 1h, ceiling: 100 }, { name: q, measure: requests, period: lifetime, ceiling: 3 }, { name: z, measure: requests, period: lifetime, ceiling: 3, opening: zero, model: m }",
    );
    until("the opening", || (program.limit("q")["posted"] == 2).then_some(()));
    assert_eq!(program.limit("z")["posted"], 0);
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 429);
    program.stop();
}

#[test]
fn what_was_booked_survives_kill_9() {
    let world = World::new(Duration::ZERO);
    let limits = "{ name: r, measure: requests, period: month, ceiling: 10 }, { name: t, measure: tokens, period: month, ceiling: 100000 }";
    let program = world.serve(limits);
    assert_eq!(program.chat("secret", &chat()).0, 200);
    let before = until("the settle", || {
        let line = program.limit("t");
        (line["held"] == 0 && line["posted"] != 0).then_some(line)
    });
    program.signal(Signal::KILL);
    assert_eq!(program.wait().0.code(), None);
    let program = world.serve(limits);
    assert_eq!(program.limit("t")["posted"], before["posted"]);
    assert_eq!(program.limit("r")["posted"], 1);
    program.stop();
    assert!(Path::new(&world.folder.path().join("tollbook-data/journal.sqlite")).exists());
}

#[test]
fn b224_b232_every_place_tells_the_same_figures_of_the_same_limit() {
    let world = World::new(Duration::ZERO);
    let path = world.write("", "");
    let text = std::fs::read_to_string(&path).unwrap();
    let project = "{ id: p, limits: [{ name: the project's budget, measure: cost, period: lifetime, ceiling: 0.001 }], keys";
    std::fs::write(&path, text.replace("{ id: p, keys", project)).unwrap();
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    let refusal = until("the budget's end", || {
        let (status, answer) = program.chat("secret", &chat());
        (status != 200).then_some(answer)
    });
    let line = until("every settle", || {
        let line = program.limit("the project's budget");
        (line["held"] == 0).then_some(line)
    });
    let (_, page) = call(program.gateway, "GET", "/v1/limits", "secret", "");
    let own = &page["data"][0];
    let (_, explained) =
        program.operators("POST", "/admin/v1/explain", &json!({"key_id": "k", "body": chat()}));
    let told = &explained["limits"][0];
    assert_eq!(explained["refusing"], json!(["the project's budget"]), "{explained}");
    for field in ["limit", "subject", "measure", "ceiling", "posted", "held"] {
        assert_eq!((&own[field], &told[field]), (&line[field], &line[field]), "{field}");
    }
    let message = refusal["error"]["message"].as_str().unwrap();
    for part in ["the project's budget", "project t/p", "cost", "limit 0.001000000", "lifetime"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let metrics = until("the metrics", || {
        let mut text = String::new();
        send(program.gateway, "GET", "/metrics", "", "").read_to_string(&mut text).unwrap();
        text.contains("tollbook_engine_log_records_total").then_some(text)
    });
    assert!(!metrics.contains("secret"));
    program.stop();
}

#[test]
fn b228_b230_a_new_secret_starts_no_new_budget_and_an_old_one_ends() {
    let world = World::new(Duration::ZERO);
    let hash =
        |secret: &str| tollbook::key::KeyHash(tollbook_admission::ApiKeyHash::new(None).digest(secret));
    let serve = |key: &str| {
        let path = world.write("", "");
        let text = std::fs::read_to_string(&path).unwrap();
        let key = format!("id: k, {key}, limits: [{{ measure: requests, period: lifetime, ceiling: 2 }}]");
        std::fs::write(&path, text.replace("id: k, secret: secret", &key)).unwrap();
        Tollbook::start(&["serve", "-c", &path], world.folder.path())
    };
    let program = serve("secret: old");
    assert_eq!(program.chat("old", &chat()).0, 200);
    assert_eq!(program.chat("old", &chat()).0, 200);
    program.stop();
    let rotated = |until: &str| {
        format!("hash: \"{}\", previous: {{ hash: \"{}\", until: {until} }}", hash("new"), hash("old"))
    };
    let program = serve(&rotated("2999-01-01T00:00:00Z"));
    for secret in ["old", "new"] {
        let (status, answer) = program.chat(secret, &chat());
        assert_eq!((status, &answer["error"]["code"]), (429, &json!("insufficient_quota")), "{secret}");
    }
    program.stop();
    let program = serve(&rotated("2026-01-01T00:00:00+02:00"));
    assert_eq!((program.chat("old", &chat()).0, program.chat("new", &chat()).0), (401, 429));
    program.stop();
    for refused in ["disabled: true", "expires: 2026-01-01T00:00:00+02:00"] {
        let program = serve(&format!("secret: new, {refused}"));
        assert_eq!(program.chat("new", &chat()).0, 401, "{refused}");
        program.stop();
    }
}

#[test]
fn traces_reach_a_collector_and_a_stop_sends_the_last() {
    let world = World::new(Duration::ZERO);
    let collector = world.runtime.block_on(MockCollector::start()).unwrap();
    let traces = format!(
        "traces: {{ endpoint: {}, every: 1h, service_name: edge, headers: {{ x-collector: sesame }} }}",
        collector.url()
    );
    let path = world.write(&traces, "{ name: r, measure: requests, window: 1h, ceiling: 1 }");
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    assert_eq!(program.chat("secret", &chat()).0, 200);
    assert_eq!(program.chat("secret", &chat()).0, 429);
    program.stop();
    let received = collector.received();
    assert_eq!(collector.mistakes(), Vec::<String>::new());
    assert!(received.iter().all(|each| each.service.as_deref() == Some("edge")));
    assert!(received.iter().all(|each| each.headers["x-collector"] == "sesame"));
    let spans = collector.spans();
    let decisions: Vec<_> = spans.iter().filter_map(|span| attribute(span, "tollbook.decision")).collect();
    assert_eq!(decisions, ["admit", "deny"], "{spans:#?}");
    let limits: Vec<_> = spans.iter().filter_map(|span| attribute(span, "tollbook.limit.name")).collect();
    assert_eq!(limits, ["r"]);
    assert_eq!(spans.len(), 3, "one call has a try");
    assert!(spans.iter().any(|span| attribute(span, "tollbook.actual.llm_tokens").is_some()));
}

#[test]
fn a_collector_that_is_not_there_keeps_nothing_up() {
    let world = World::new(Duration::ZERO);
    let traces = "traces: { endpoint: \"http://127.0.0.1:1\", flush: 100ms }";
    let path = world.write(traces, "{ name: r, measure: requests, window: 1h, ceiling: 9 }");
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    assert_eq!(program.chat("secret", &chat()).0, 200);
    let stopping = std::time::Instant::now();
    program.stop();
    assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
}
