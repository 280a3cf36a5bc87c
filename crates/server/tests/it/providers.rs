//! Upstreams and models in the store, changed while a gateway runs; their keys are sealed there.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use tollbook_mock_upstream::MockUpstream;

use crate::office_world::cli;
use crate::process::{OPERATOR, Tollbook, command, until};

const SECRETS_KEY: &str = "a-key-for-secrets-that-nobody-guesses";
const PROVIDERS_KEY: &str = "sk-of-the-provider-0123456789";

struct World {
    mock: MockUpstream,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self { mock, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, secrets_key: Option<&str>) -> String {
        let root = self.folder.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        let key = secrets_key.map(|key| format!(", secrets_key: {key}")).unwrap_or_default();
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0, api_key: {OPERATOR} }}\nlog: {{ level: warn }}\n\
             config: {{ source: sql{key} }}\njournal: {}\nupstreams: []\nmodels: []\n",
            self.store().display()
        );
        let path = root.join("t.yaml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn store(&self) -> std::path::PathBuf {
        self.folder.path().join("store.sqlite")
    }

    fn start(&self, name: &str) -> Tollbook {
        let path = self.file(name, Some(SECRETS_KEY));
        Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap())
    }

    fn upstream(&self) -> Value {
        json!({"dialect": "openai", "base_url": format!("{}/v1", self.mock.url()), "api_key": PROVIDERS_KEY})
    }
}

fn with(mut document: Value, id: &str) -> Value {
    document["id"] = json!(id);
    document
}

fn model() -> Value {
    json!({"upstream": "u", "output": {"default": 50}, "price": {"input": "1.00", "output": "2.00"}})
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

#[test]
fn a_provider_is_added_changed_and_deleted_while_gateways_run() {
    let world = World::new();
    let (one, other) = (world.start("a"), world.start("b"));
    let secret = one.with_key();
    assert_eq!(one.chat(&secret, &chat("m")).0, 404);
    one.ask("POST", "/upstreams", with(world.upstream(), "u"), 201);
    one.ask("POST", "/models", with(model(), "m"), 201);
    assert_eq!(one.chat(&secret, &chat("m")).0, 200);
    until("the other serves it", || (other.chat(&secret, &chat("m")).0 == 200).then_some(()));
    let key = format!("Bearer {PROVIDERS_KEY}");
    let calls = world.mock.calls_at_rest();
    assert!(
        calls
            .iter()
            .all(|call| call.headers.iter().any(|(name, value)| name == "authorization" && *value == key))
    );

    one.ask(
        "PATCH",
        "/models/m",
        json!({"aliases": ["m-latest"], "limits": [{"measure": "requests", "window": "1h", "ceiling": 1}]}),
        200,
    );
    assert_eq!(one.chat(&secret, &chat("m-latest")).0, 200);
    assert_eq!(one.chat(&secret, &chat("m-latest")).0, 429);
    one.ask("PATCH", "/models/m", json!({"limits": null}), 200);

    // Another key, and then none.
    one.ask("PATCH", "/upstreams/u", json!({"api_key": "sk-another"}), 200);
    assert_eq!(one.chat(&secret, &chat("m")).0, 200);
    let sent = |value: &str| {
        let calls = world.mock.calls_at_rest();
        let headers = calls.last().unwrap().headers.clone();
        headers.iter().any(|(name, text)| name == "authorization" && text == value)
    };
    assert!(sent("Bearer sk-another"));
    let read = one.ask("GET", "/upstreams/u", Value::Null, 200);
    one.ask("PATCH", "/upstreams/u", json!({"retries": 0}), 200);
    assert_eq!(one.chat(&secret, &chat("m")).0, 200);
    assert!(sent("Bearer sk-another"), "what is not told is not changed: {read}");
    one.ask("PATCH", "/upstreams/u", json!({"api_key": null}), 200);
    assert_eq!(one.chat(&secret, &chat("m")).0, 200);
    assert!(!sent("Bearer sk-another"));

    let refused = one.ask("DELETE", "/upstreams/u", Value::Null, 400);
    assert!(refused["detail"].as_str().unwrap().contains("there is no upstream `u`"), "{refused}");
    one.ask("DELETE", "/models/m", Value::Null, 200);
    one.ask("DELETE", "/upstreams/u", Value::Null, 200);
    assert_eq!(one.chat(&secret, &chat("m")).0, 404);
}

#[test]
fn a_providers_key_is_nowhere_in_the_clear() {
    let world = World::new();
    let gateway = world.start("a");
    gateway.ask("POST", "/upstreams", with(world.upstream(), "u"), 201);
    gateway.ask("POST", "/models", with(model(), "m"), 201);
    for path in ["/upstreams", "/upstreams/u", "/changes", "/export"] {
        let answer = gateway.ask("GET", path, Value::Null, 200);
        assert!(!answer.to_string().contains(PROVIDERS_KEY), "{path}: {answer}");
        assert!(path == "/export" || !answer.to_string().contains("sealed"), "{path}: {answer}");
    }
    // What was exported can be applied: the sealed key is for this object.
    let exported = gateway.ask("GET", "/export", Value::Null, 200);
    assert_eq!(gateway.ask("POST", "/apply?prune=true", exported.clone(), 200)["changed"], json!([]));
    let mut stolen = exported;
    stolen["upstreams"][0]["name"] = json!("mine");
    let refused = gateway.ask("POST", "/apply", stolen, 400);
    assert!(refused.to_string().contains("or for another object"), "{refused}");
    gateway.stop();
    let files = std::fs::read_dir(world.folder.path()).unwrap();
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes.windows(PROVIDERS_KEY.len()).any(|part| part == PROVIDERS_KEY.as_bytes());
        assert!(!found, "{}", file.display());
    }
    // Who has another key does not start, and says why.
    for other in [Some("a-quite-different-key-for-secrets"), None] {
        let path = world.file("b", other);
        let output = command(&["serve", "-c", &path]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("secrets_key") && output.status.code() == Some(1), "{said}");
    }
    world.start("b").stop();
}

#[test]
fn what_a_provider_may_not_be_is_told() {
    let world = World::new();
    let gateway = world.start("a");
    let wrong = [
        ("/upstreams", json!({"api_key_file": "/etc/passwd"}), "api_key_file"),
        ("/upstreams", json!({"tls": {"ca_files": ["/etc/passwd"]}}), "tls"),
        ("/upstreams", json!({"base_url": "file:///etc/passwd"}), "base_url"),
        ("/upstreams", json!({"dialect": "latin"}), "dialect"),
        ("/models", json!({"tokenizer": "/etc/passwd"}), "tokenizer"),
        ("/models", json!({"upstream": "nobody"}), "upstream"),
        ("/models", json!({"price": {"input": "-1", "output": "1"}}), "price.input"),
    ];
    gateway.ask("POST", "/upstreams", with(world.upstream(), "u"), 201);
    for (path, change, field) in wrong {
        let mut document = if path == "/models" { model() } else { world.upstream() };
        document.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = gateway.ask("POST", path, with(document, "x"), 400);
        let fault = &refused["faults"][0];
        assert_eq!(
            (&fault["object"], &fault["field"]),
            (&json!(format!("{}/x", path.trim_start_matches('/'))), &json!(field)),
            "{refused}"
        );
    }
    gateway.stop();
    let path = world.file("c", None);
    let text = std::fs::read_to_string(&path).unwrap().replace("store.sqlite", "another.sqlite");
    std::fs::write(&path, text).unwrap();
    let gateway = Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap());
    let refused = gateway.ask("POST", "/upstreams", with(world.upstream(), "u"), 400);
    assert!(refused["detail"].as_str().unwrap().contains("config.secrets_key"), "{refused}");
    let mut open = world.upstream();
    open.as_object_mut().unwrap().remove("api_key");
    gateway.ask("POST", "/upstreams", with(open, "u"), 201);
}

#[test]
fn a_files_providers_move_into_the_store() {
    let world = World::new();
    let gateway = world.start("a");
    let secret = gateway.with_key();
    let file = world.folder.path().join("providers.yaml");
    let text = format!(
        "upstreams: [{{ name: u, dialect: openai, base_url: {}/v1, api_key: {PROVIDERS_KEY} }}]\n\
         models: [{{ name: m, upstream: u, output: {{ default: 50 }}, price: {{ input: 1, output: 2 }} }}]\n\
         tenants: [{{ id: acme }}]\n",
        world.mock.url()
    );
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let (_, told, _) = cli(&gateway, &["apply", "-f", file]);
    assert_eq!(told, "nothing to change\n", "upstreams and models are taken if asked for");
    let (code, told, said) = cli(&gateway, &["apply", "-f", file, "--providers"]);
    assert!(code == 0 && told.contains("+ upstreams/u") && told.contains("+ models/m"), "{told}{said}");
    assert!(!told.contains(PROVIDERS_KEY), "{told}");
    assert_eq!(gateway.chat(&secret, &chat("m")).0, 200);
    let (_, told, _) = cli(&gateway, &["model", "list"]);
    assert!(told.starts_with("ID") && told.contains("m "), "{told}");
}
