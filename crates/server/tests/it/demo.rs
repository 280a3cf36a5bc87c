//! The demo: it runs, it holds limits, it explains, it leaves nothing behind.

use std::io::Read;

use serde_json::{Value, json};

use crate::process::{Tollbook, call, command, send};

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

/// The key of a tenant, and the operator's, out of what the demo prints.
fn key(printed: &str, word: &str) -> String {
    let line =
        printed.lines().find(|line| line.trim_start().starts_with(word) && line.contains("tb_")).unwrap();
    line.split_whitespace().find(|part| part.starts_with("tb_")).unwrap().to_owned()
}

#[test]
fn the_demo_runs_holds_limits_and_explains() {
    let folder = tempfile::tempdir().unwrap();
    let printed = folder.path().join("printed.txt");
    let data = folder.path().join("data");
    // Printed into a file, so that the keys can be read while it runs.
    let mut child = command(&["demo", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()])
        .stdout(std::fs::File::create(&printed).unwrap())
        .spawn()
        .unwrap();
    let text = crate::process::until("the introduction", || {
        let text = std::fs::read_to_string(&printed).ok()?;
        text.contains("listening on ").then_some(text)
    });
    let address = |word: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(word)).unwrap();
        let url = line.split_whitespace().find(|part| part.starts_with("http://")).unwrap();
        url.trim_start_matches("http://").parse().unwrap()
    };
    let (gateway, admin) = (address("gateway"), address("operators"));
    let (free, team) = (key(&text, "free "), key(&text, "team "));
    let operator = key(&text, "operators");

    for n in 1..=6 {
        let (status, answer) =
            call(gateway, "POST", "/v1/chat/completions", &free, &chat("demo-small").to_string());
        assert_eq!(status, if n <= 5 { 200 } else { 429 }, "call {n}: {answer}");
    }
    let mut stream = String::new();
    let body =
        json!({"model": "demo-large", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    send(gateway, "POST", "/v1/chat/completions", &team, &body.to_string())
        .read_to_string(&mut stream)
        .unwrap();
    assert!(stream.starts_with("HTTP/1.1 200") && stream.contains("data: [DONE]"), "{stream}");
    let body =
        json!({"model": "demo-claude", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]});
    let (status, answer) = call(gateway, "POST", "/v1/messages", &team, &body.to_string());
    assert_eq!((status, &answer["stop_reason"]), (200, &json!("max_tokens")), "{answer}");

    let (status, answer) = call(gateway, "POST", "/v1/messages/count_tokens", &team, &body.to_string());
    assert_eq!((status, answer["input_tokens"].as_u64().is_some_and(|n| n > 0)), (200, true), "{answer}");
    let body = json!({"model": "demo-small", "input": "hi", "max_output_tokens": 5});
    let (status, answer) = call(gateway, "POST", "/v1/responses", &team, &body.to_string());
    assert_eq!((status, &answer["status"]), (200, &json!("incomplete")), "{answer}");
    assert_eq!((&answer["object"], &answer["usage"]["output_tokens"]), (&json!("response"), &json!(5)));
    let body = json!({"model": "demo-small", "input": "hi", "stream": true});
    let mut stream = String::new();
    send(gateway, "POST", "/v1/responses", &team, &body.to_string()).read_to_string(&mut stream).unwrap();
    assert!(stream.starts_with("HTTP/1.1 200"), "{stream}");
    for event in ["response.created", "response.output_text.delta", "response.completed"] {
        assert!(stream.contains(&format!("event: {event}\n")), "{event}: {stream}");
    }

    embeddings(gateway, &team);

    let (status, page) = call(admin, "GET", "/admin/v1/accounts", &operator, "");
    let free_requests =
        page["data"].as_array().unwrap().iter().find(|line| line["limit"] == "tenant free requests rate");
    let line = free_requests.unwrap();
    assert_eq!((status, &line["posted"], &line["denied"]), (200, &json!(5), &json!(1)));
    // Each line says how it is booked, and what stands in held.
    let booked = |limit: &str| {
        let line = page["data"].as_array().unwrap().iter().find(|line| line["limit"] == limit);
        let line = line.unwrap_or_else(|| panic!("{limit} is not in {page}"));
        (line["shape"].clone(), line["booking"].clone(), line["planned"] == line["held"])
    };
    assert_eq!(booked("tenant free requests rate"), (json!("rate 60 s"), json!("held"), false));
    assert_eq!(booked("tenant free tokens rate"), (json!("rate 60 s by forecast"), json!("forecast"), true));
    assert_eq!(booked("tenant team concurrency"), (json!("concurrency"), json!(null), false));

    let url = format!("http://{admin}");
    let explained = command(&["explain", "--admin", &url, "--key-id", "free-1", "--model", "demo-small"])
        .env("TOLLBOOK_ADMIN_KEY", &operator)
        .output()
        .unwrap();
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(printed_ids(&printed), "the ids that explain asks for are printed");
    assert!(text.contains("tenant free · requests rate 60 s (soft): ceiling 5, posted 5"), "{text}");

    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(data.join("journal.sqlite").exists());
}

/// One text or several, as numbers or as the SDKs ask for them.
fn embeddings(gateway: std::net::SocketAddr, api_key: &str) {
    for (input, format, texts) in
        [(json!("hi"), "float", 1), (json!(["hi", "ho"]), "base64", 2), (json!([1, 2, 3]), "float", 1)]
    {
        let body = json!({"model": "demo-small", "input": input, "encoding_format": format});
        let (status, answer) = call(gateway, "POST", "/v1/embeddings", api_key, &body.to_string());
        assert_eq!((status, answer["data"].as_array().map(Vec::len)), (200, Some(texts)), "{answer}");
        assert_eq!(answer["data"][0]["embedding"].is_string(), format == "base64", "{answer}");
        assert!(answer["usage"]["prompt_tokens"].as_u64().is_some_and(|n| n > 0), "{answer}");
    }
}

fn printed_ids(printed: &std::path::Path) -> bool {
    let text = std::fs::read_to_string(printed).unwrap();
    ["id free-1", "id team-1", "id enterprise-1"].iter().all(|id| text.contains(id))
}

#[test]
fn the_demo_stops_by_itself_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(&["demo", "--listen", "127.0.0.1:0", "--no-table", "--for", "100ms"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(!String::from_utf8(output.stdout).unwrap().contains('\u{1b}'), "no colours on a pipe");
}

#[test]
fn a_demo_prints_its_addresses_for_programs_too() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Tollbook::start(&["demo", "--listen", "127.0.0.1:0"], folder.path());
    let (status, _) = call(demo.gateway, "GET", "/healthz", "", "");
    assert_eq!(status, 200);
    let printed = demo.stop();
    assert!(printed.contains("one call too many for the free plan"), "{printed}");
}
