//! The program as an operator uses it: a bad file, a new key, what binds it, why a call was refused, the demo.

use std::fs;
use std::net::SocketAddr;
use std::process::Output;

use serde_json::{Value, json};
use tollbook_e2e::config::{ADMIN_KEY, CHAT_MODEL, Config, quota, secret};
use tollbook_e2e::gateway::{Gateway, run, wait_for};
use tollbook_e2e::http::LIMIT;
use tollbook_mock_upstream::{MockUpstream, Script};

const CHAT: &str = "/v1/chat/completions";

fn mock() -> MockUpstream {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    mock.set_default(Script::output(5));
    mock
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn chat() -> Value {
    json!({"model": CHAT_MODEL, "max_tokens": 32, "messages": [{"role": "user", "content": "hello"}]})
}

#[test]
fn bad_configuration_starts_nothing_and_says_where() {
    let rest = "upstreams:\n  - { name: u, dialect: openai, base_url: http://127.0.0.1:1 }\nmodels:\n  - { name: m, upstream: u }\n";
    let limit = |limit: &str| format!("{rest}tenants:\n  - id: t\n    limits:\n      - {{ {limit} }}\n");
    let rows = [
        (format!("listn: a\n{rest}"), ":1:1:"),
        (format!("listen: 127.0.0.1\n{rest}"), ":1:9:"),
        (format!("{rest}tenants: [\n"), ":5:10:"),
        (limit("measure: requests, window: 60s, ceiling: -1"), ":8:52:"),
        (limit("measure: requests, window: 60s, period: day, ceiling: 1"), ":8:51:"),
        (limit("measure: requests, ceiling: 1"), ":8:9:"),
        (limit("measure: tokens, window: 61s, ceiling: 5, booking: forecast"), ":8:62:"),
        (limit("measure: requests, window: 60s, ceiling: \"${NOT_SET_ANYWHERE}\""), ":8:52:"),
    ];
    for (text, place) in rows {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bad.yaml");
        fs::write(&file, &text).unwrap();
        let addresses = folder.path().join("addresses.json");
        let file = file.to_str().unwrap();
        let served = run(&["serve", "-c", file, "--addr-file", addresses.to_str().unwrap()]);
        let message = String::from_utf8(served.stderr).unwrap();
        assert_eq!(served.status.code(), Some(2), "{text}\n{message}");
        assert!(message.contains(&format!("{file}{place}")), "{place} in {message}");
        assert!(!addresses.exists() && !folder.path().join("tollbook-data").exists(), "{text}");
        let checked = run(&["check", "-c", file]);
        assert_eq!((checked.status.code(), String::from_utf8(checked.stderr).unwrap()), (Some(2), message));
    }
}

#[test]
fn new_key_is_let_in_bound_and_explained() {
    let mock = mock();
    let made: Value =
        serde_json::from_slice(&run(&["keys", "new", "--id", "fresh", "--json"]).stdout).unwrap();
    let limits = json!([quota("requests", "lifetime", "1")]);
    let tenant = json!({"id": "acme", "limits": limits, "projects": [
        {"id": "web", "keys": [{"id": "fresh", "hash": made["hash"]}]}
    ]});
    let gateway = Gateway::start(&Config::new(&mock.url()).tenant(tenant));
    let api_key = made["secret"].as_str().unwrap();

    let checked = run(&["check", "-c", gateway.config_file().to_str().unwrap()]);
    assert!(checked.status.success(), "{checked:?}");
    let text = printed(&checked);
    assert!(text.contains("acme/web/fresh") && text.contains("quota lifetime"), "{text}");
    assert!(!text.contains(api_key) && !text.contains(ADMIN_KEY), "a secret is printed");

    let body = gateway.dir().join("call.json");
    fs::write(&body, chat().to_string()).unwrap();
    let admin = format!("http://{}", gateway.admin_addr().unwrap());
    let explain = |more: &[&str]| {
        let output =
            run(&[&["explain", "--admin", &admin, "--admin-key", ADMIN_KEY, "--json"], more].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let asked = ["--key-id", "fresh", "--body", body.to_str().unwrap()];
    assert_eq!(explain(&asked)["admitted"], true);

    let answer = gateway.post(CHAT, api_key, &chat()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.post(CHAT, api_key, &chat()).unwrap().status, 429);
    assert_eq!(explain(&asked)["admitted"], false);
    let id = answer.header("x-request-id").unwrap();
    let is_kept =
        || run(&["explain", "--admin", &admin, "--admin-key", ADMIN_KEY, "--request", id]).status.success();
    assert!(wait_for(LIMIT, || is_kept().then_some(())).is_some());
    let kept = explain(&["--request", id]);
    let used = &kept["entries"][0]["usage"];
    let provider = mock.calls_at_rest()[0].generated;
    assert_eq!((&used["input"], &used["output"]), (&json!(provider.input), &json!(provider.output)));

    let wrong = run(&["explain", "--admin", &admin, "--admin-key", &secret("other"), "--key-id", "fresh"]);
    assert_eq!(wrong.status.code(), Some(1));
}

#[test]
fn demo_runs_for_its_time_and_ends_well() {
    let output = run(&["demo", "--listen", "127.0.0.1:0", "--for", "1s", "--no-table"]);
    assert!(output.status.success(), "{output:?}");
    let text = printed(&output);
    for plan in ["free", "team", "enterprise"] {
        let line = text.lines().find(|line| line.trim_start().starts_with(plan));
        assert!(line.is_some_and(|line| line.contains(" tb_")), "{plan} has no key in {text}");
    }
    let (_, commands) = text.split_once("Try:").unwrap();
    assert_eq!(commands.lines().filter(|line| line.trim_start().starts_with("# ")).count(), 3, "{text}");
}
