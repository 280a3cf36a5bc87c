//! Field cases that need the whole program: keys that go and come back, calendars as holders of keys see them, logs.

use std::io::{Read, Write};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tollbook::demo::provider::Provider;

use crate::process::{OPERATOR, Tollbook, call, command, until};

/// A provider in this process, and a folder for the program.
struct World {
    // Lives as long as its provider is asked.
    _runtime: tokio::runtime::Runtime,
    provider: Provider,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let provider = runtime.block_on(Provider::start(Duration::ZERO)).unwrap();
        Self { _runtime: runtime, provider, folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, log: &str, tenant: &str) -> String {
        let addr = self.provider.addr;
        let text = format!(
            "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0, api_key: {OPERATOR} }}
log: {{ level: {log} }}
upstreams:
  - {{ name: u, dialect: openai, base_url: http://{addr}/v1, api_key: provider-secret }}
  - {{ name: a, dialect: anthropic, base_url: http://{addr}/v1, api_key: provider-secret }}
  - {{ name: gone, dialect: openai, base_url: http://127.0.0.1:1/v1, api_key: provider-secret, retries: 0 }}
models:
  - {{ name: m, upstream: u, output: {{ default: 50 }}, price: {{ input: 2, output: 10 }} }}
  - {{ name: claude, upstream: a, output: {{ default: 50 }}, price: {{ input: 2, output: 10 }} }}
  - {{ name: lost, upstream: gone, price: {{ input: 2, output: 10 }} }}
tenants:
  - id: t
{tenant}
"
        );
        let path = self.folder.path().join("t.yaml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn chat(model: &str) -> Value {
    json!({"model": model, "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]})
}

/// Tenant and project with a budget each, and these keys.
fn budgets(keys: &str) -> String {
    format!(
        "    limits: [{{ name: of-tenant, measure: tokens, period: month, ceiling: 1000000 }}]
    projects:
      - id: p
        limits: [{{ name: of-project, measure: tokens, period: month, ceiling: 1000000 }}]
        keys: [{keys}]"
    )
}

fn key(id: &str, secret: &str, ceiling: u64) -> String {
    format!(
        "{{ id: {id}, secret: {secret}, limits: [{{ name: of-{id}, measure: tokens, period: month, ceiling: {ceiling} }}] }}"
    )
}

#[test]
fn b094_a_key_that_is_deleted_gives_nothing_back_and_made_anew_owes_nothing_more() {
    let world = World::new();
    let path = world.write("error", &budgets(&key("k", "secret", 10_000)));
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    let change = |keys: &str| {
        world.write("error", &budgets(keys));
        program.signal(Signal::HUP);
    };
    let limits = |secret: &str| call(program.gateway, "GET", "/v1/limits", secret, "");
    let posted = |name: &str| program.limit(name)["posted"].as_i64().unwrap();
    assert_eq!(program.chat("secret", &chat("m")).0, 200);
    let spent = until("the call", || Some(posted("of-k")).filter(|posted| *posted > 0));
    assert_eq!((posted("of-project"), posted("of-tenant")), (spent, spent));

    // Overdrawn: what it has used is more than what it may.
    change(&key("k", "secret", 1));
    until("the ceiling", || (program.limit("of-k")["ceiling"] == 1).then_some(()));
    let refused = program.chat("secret", &chat("m"));
    assert!(matches!(refused.0, 413 | 429), "{refused:?}");

    // Deleted; another takes its place.
    change(&key("other", "secret-2", 10_000));
    until("the key", || (limits("secret").0 == 401).then_some(()));
    assert_eq!((posted("of-project"), posted("of-tenant")), (spent, spent), "nothing is given back");
    assert_eq!(posted("of-other"), 0, "a new key owes nothing of its own");
    assert_eq!(program.chat("secret-2", &chat("m")).0, 200);
    let second = until("the call", || Some(posted("of-other")).filter(|posted| *posted > 0));
    assert_eq!((posted("of-project"), posted("of-tenant")), (spent + second, spent + second));

    // An account is named by its subject: the same id, made again in the same period, is no second budget.
    change(&key("k", "secret-3", 10_000));
    until("the key", || (limits("secret-2").0 == 401).then_some(()));
    assert_eq!(posted("of-k"), spent);
    assert_eq!((posted("of-project"), posted("of-tenant")), (spent + second, spent + second));
    program.stop();
}

#[test]
fn b190_every_quota_that_is_accepted_shows_when_it_resets() {
    let world = World::new();
    let periods =
        [("minute", 60), ("hour", 3_600), ("day", 25 * 3_600), ("week", 8 * 86_400), ("month", 32 * 86_400)];
    let lines: Vec<String> = periods
        .iter()
        .map(|(period, _)| format!("{{ name: {period}, measure: cost, period: {period}, ceiling: 100 }}"))
        .collect();
    let keys = "    projects: [{ id: p, keys: [{ id: k, secret: secret }] }]";
    let path = world.write("error", &format!("    limits: [{}]\n{keys}", lines.join(", ")));
    let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
    let shown = || {
        let (status, page) = call(program.gateway, "GET", "/v1/limits", "secret", "");
        assert_eq!(status, 200);
        page["data"].as_array().unwrap().clone()
    };
    for used in [false, true] {
        let limits = shown();
        assert_eq!(limits.len(), periods.len());
        for (period, longest) in periods {
            let line = limits.iter().find(|line| line["limit"] == period).unwrap();
            let reset = line["reset_s"].as_u64().unwrap();
            assert!(reset <= longest && (reset > 0 || !used), "{period}, used {used}: {line}");
        }
        if !used {
            assert_eq!(program.chat("secret", &chat("m")).0, 200);
            until("the call", || shown().iter().all(|line| line["posted"].as_i64() > Some(0)).then_some(()));
        }
    }
    program.stop();

    for (limit, why) in [
        ("{ measure: cost, ceiling: 100 }", "a limit needs a window or a period"),
        ("{ measure: cost, period: day, ceiling: -1 }", "ceiling"),
    ] {
        let path = world.write("error", &format!("    limits: [{limit}]\n{keys}"));
        let output = command(&["check", "-c", &path]).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.code() != Some(0) && said.contains(why), "{limit}: {said}");
    }
    for limit in ["{ measure: cost, period: day, ceiling: null }", "{ measure: cost, period: day }"] {
        let path = world.write("error", &format!("    limits: [{limit}]\n{keys}"));
        let program = Tollbook::start(&["serve", "-c", &path], world.folder.path());
        let (_, page) = call(program.gateway, "GET", "/v1/limits", "secret", "");
        assert_eq!(page["data"], json!([]), "no amount, no budget: {limit}");
        assert_eq!(program.chat("secret", &chat("m")).0, 200);
        program.stop();
    }
}

/// Whatever goes wrong, and however much is logged: no credential is in it.
#[test]
fn b141_no_log_shows_a_credential() {
    const SECRET: &str = "tb_an-api-key-of-a-client";
    let world = World::new();
    let tenant = format!("    projects: [{{ id: p, keys: [{{ id: k, secret: {SECRET} }}] }}]");
    let path = world.write("debug", &tenant);
    let log = world.folder.path().join("log.txt");
    let file = std::fs::File::create(&log).unwrap();
    let program = Tollbook::start_logging(&["serve", "-c", &path], world.folder.path(), file.into());
    for (path, body) in [
        ("/v1/chat/completions", chat("m")),
        ("/v1/messages", chat("claude")),
        ("/v1/chat/completions", chat("lost")),
        ("/v1/chat/completions", chat("unknown")),
        ("/v1/nowhere", json!({})),
        ("/v1/chat/completions", json!("no object")),
    ] {
        for query in ["", "?key=", "?api-key=", "?beta=true&key="] {
            let query = if query.is_empty() { String::new() } else { format!("{query}{SECRET}") };
            let body = body.to_string();
            let mut socket = std::net::TcpStream::connect(program.gateway).unwrap();
            write!(
                socket,
                "POST {path}{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\nx-api-key: {SECRET}\r\n\
                 api-key: {SECRET}\r\ncookie: a={SECRET}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 ") && !answer.contains(SECRET), "{path}{query}: {answer}");
            assert!(!answer.contains("provider-secret"), "{path}{query}: {answer}");
        }
    }
    let printed = program.stop();
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(logged.contains("the upstream gave no answer"), "something is logged: {logged}");
    let lost = logged.lines().find(|line| line.contains("the upstream gave no answer")).unwrap();
    assert!(lost.contains("the upstream cannot be reached: ") && !lost.contains("NeverSent"), "{lost}");
    assert!(lost.to_lowercase().contains("refused"), "with its cause: {lost}");
    for secret in [SECRET, "provider-secret", OPERATOR] {
        assert!(!logged.contains(secret) && !printed.contains(secret), "{secret}");
    }
}
