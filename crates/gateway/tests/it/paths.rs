//! Field case B144: no path around the limits. The paths are the product's own tables: a new one fails here until it is
//! told what a valid call to it is.

use serde_json::json;
use tollbook_gateway::{passed_paths, served_paths};
use tollbook_mock_upstream::Script;
use tollbook_policy::Measure;

use crate::world::{API_KEY, Plan, World, ask, key, rate};

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// Below a prefix that this world opens.
const OPENED: [&str; 2] = ["/v1/vector_stores", "/v1/vector_stores/*/files"];
/// They spend nothing, and answer with every limit spent.
const FREE: [&str; 6] = ["/v1/models", "/v1/models/x", "/v1/limits", "/healthz", "/readyz", "/metrics"];

fn plan(ceiling: i128) -> Plan {
    Plan {
        config: |c| {
            c.passes.openai = Some("openai".into());
            c.passes.anthropic = Some("anthropic".into());
            c.upstreams[0].passes = vec!["/v1/vector_stores".into()];
        },
        upstream: |u| u.retries = 0,
        ..Plan::with([rate(key(), Measure::Requests, ceiling)])
    }
}

/// Every path that a call can be made to.
fn limited() -> Vec<&'static str> {
    let own = served_paths().filter(|path| !FREE.contains(path) && *path != "/v1/realtime");
    let mut all: Vec<&str> = own.chain(passed_paths()).chain(OPENED).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Content type and body of a good call.
fn good(path: &str) -> (&'static str, Vec<u8>) {
    const FORM: &str = "multipart/form-data; boundary=B0";
    let json = |body: serde_json::Value| ("application/json", body.to_string().into_bytes());
    let form = |fields: &[&str]| {
        let field = |name: &&str| {
            let (file, value) = match *name {
                "model" => ("", "gpt"),
                "file" | "image" | "data" => ("; filename=\"a\"", "bytes"),
                _ => ("", "x"),
            };
            format!("--B0\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
        };
        (FORM, (fields.iter().map(field).collect::<String>() + "--B0--\r\n").into_bytes())
    };
    let message =
        json!({ "model": "claude", "max_tokens": 5, "messages": [{ "role": "user", "content": "x" }] });
    match path {
        "/v1/chat/completions" => json(ask("x")),
        "/v1/responses" | "/v1/embeddings" | "/v1/moderations" => {
            json(json!({ "model": "gpt", "input": "x" }))
        }
        "/v1/completions" | "/v1/images/generations" => json(json!({ "model": "gpt", "prompt": "x" })),
        "/v1/messages" | "/v1/messages/count_tokens" => json(message),
        "/v1/audio/speech" => json(json!({ "model": "gpt", "input": "x", "voice": "alloy" })),
        "/v1/audio/transcriptions" | "/v1/audio/translations" => form(&["model", "file"]),
        "/v1/images/edits" => form(&["model", "prompt", "image"]),
        "/v1/images/variations" => form(&["model", "image"]),
        "/v1/files" => form(&["purpose", "file"]),
        "/v1/uploads/*/parts" => form(&["data"]),
        "/v1/uploads"
        | "/v1/uploads/*/complete"
        | "/v1/uploads/*/cancel"
        | "/v1/batches"
        | "/v1/batches/*/cancel"
        | "/v1/messages/batches"
        | "/v1/messages/batches/*/cancel" => json(json!({ "purpose": "x" })),
        "/v1/vector_stores" | "/v1/vector_stores/*/files" => json(json!({ "name": "x" })),
        // Nothing is sent there.
        "/v1/files/*"
        | "/v1/files/*/content"
        | "/v1/batches/*"
        | "/v1/messages/batches/*"
        | "/v1/messages/batches/*/results" => json(json!({})),
        other => panic!("say what a good call to {other} is"),
    }
}

/// Calls a path by all methods in both dialects' manners; the statuses that are not 404 or 405.
async fn called(world: &World, row: &str) -> Vec<(String, u16)> {
    let (content_type, body) = good(row);
    let path = row.replace('*', "id_1");
    let mut out = Vec::new();
    for method in METHODS {
        for anthropic in [false, true] {
            let mut headers = vec![("x-api-key", API_KEY)];
            if anthropic {
                headers.push(("anthropic-version", "2023-06-01"));
            }
            let sends = !matches!(method, "GET" | "HEAD" | "DELETE");
            if sends {
                headers.push(("content-type", content_type));
            }
            let body = if sends { body.clone() } else { Vec::new() };
            let status = world.send(method, &path, &headers, body).await.status.as_u16();
            if !matches!(status, 404 | 405) {
                out.push((format!("{method} {path}, anthropic: {anthropic}"), status));
            }
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b144_every_path_is_refused_by_the_limit_and_by_nothing_else() {
    let paths = limited();
    assert!(paths.len() > 20, "{paths:?}");
    // Where there is room, each of these calls reaches the provider: there is nothing else to refuse it.
    let world = World::start(plan(1_000)).await;
    world.up.set_default(Script::json(200, json!({ "id": "x" })));
    let mut before = 0;
    let mut ways = Vec::new();
    for path in &paths {
        let calls = called(&world, path).await;
        assert!(!calls.is_empty(), "{path} is served by no method");
        let refused: Vec<_> = calls.iter().filter(|(_, status)| (400..500).contains(status)).collect();
        assert!(refused.is_empty(), "{refused:?}");
        let now = world.up.calls_at_rest().len();
        assert_eq!(now - before, calls.len(), "{calls:?}");
        before = now;
        ways.push(calls.len());
    }
    assert_eq!(world.balance(0).await.0, i64::try_from(before).unwrap(), "each counts as one request");
    // Where there is none, each is refused by the limit.
    let world = World::start(plan(1)).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    for (path, ways) in paths.iter().zip(ways) {
        let calls = called(&world, path).await;
        assert_eq!(calls.len(), ways);
        let passed: Vec<_> = calls.iter().filter(|(_, status)| *status != 429).collect();
        assert!(passed.is_empty(), "{passed:?}");
    }
    assert_eq!(world.up.calls().len(), 1);
    assert_eq!(world.balance(0).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b144_a_path_spelt_otherwise_is_no_path() {
    let world = World::start(plan(1_000)).await;
    for row in limited() {
        let (content_type, body) = good(row);
        let path = row.replace('*', "id_1");
        let (front, last) = path.rsplit_once('/').unwrap();
        for odd in [
            format!("/{path}"),
            format!("{path}/"),
            path.to_ascii_uppercase(),
            format!("{front}%2F{last}"),
            format!("/v1/..{path}"),
            format!("/v1/./{}", path.trim_start_matches("/v1/")),
        ] {
            for method in METHODS {
                let headers = [("x-api-key", API_KEY), ("content-type", content_type)];
                let status = world.send(method, &odd, &headers, body.clone()).await.status.as_u16();
                assert!(matches!(status, 404 | 405), "{method} {odd}: {status}");
            }
        }
    }
    assert!(world.up.calls().is_empty());
    assert_eq!(world.balance(0).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b144_what_spends_nothing_stays_open_and_realtime_is_refused() {
    let world = World::start(plan(1)).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let headers = [("x-api-key", API_KEY)];
    for path in FREE {
        let want = if path == "/v1/models/x" { 404 } else { 200 };
        assert_eq!(world.send("GET", path, &headers, "").await.status, want, "{path}");
        assert!(served_paths().any(|served| served == path), "{path}");
    }
    for method in METHODS {
        assert_eq!(world.send(method, "/v1/realtime", &headers, "").await.status, 400, "{method}");
    }
    assert_eq!(world.up.calls().len(), 1);
    assert_eq!(world.balance(0).await, (1, 0));
}
