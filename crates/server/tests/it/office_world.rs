//! Gateways that read tenants from a store, and how operators ask them.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tollbook::demo::provider::Provider;

use crate::process::{OPERATOR, Tollbook, call_with, command};

/// A provider in this process, and a folder for gateways that share a store.
pub(crate) struct World {
    pub(crate) _runtime: tokio::runtime::Runtime,
    pub(crate) provider: Provider,
    pub(crate) folder: tempfile::TempDir,
    /// Of a server's store, instead of the file.
    pub(crate) store: Option<String>,
    /// Of a server's book, instead of each gateway's own.
    pub(crate) book: Option<String>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::paced(Duration::ZERO)
    }

    /// With a provider that takes its time for each word of a stream.
    pub(crate) fn paced(pace: Duration) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let provider = runtime.block_on(Provider::start(pace)).unwrap();
        Self { _runtime: runtime, provider, folder: tempfile::tempdir().unwrap(), store: None, book: None }
    }

    /// Another file than the usual.
    pub(crate) fn keep_in(&mut self, name: &str) {
        self.store = Some(self.folder.path().join(name).display().to_string());
    }

    /// A gateway's file: models, no tenants, and a folder of its own.
    pub(crate) fn file(&self, name: &str, models: &[&str]) -> String {
        let root = self.folder.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        let mut text = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0, api_key: {OPERATOR} }}\nlog: {{ level: warn }}\n\
             config: {{ source: sql }}\njournal: {}\n\
             upstreams: [{{ name: u, dialect: openai, base_url: http://{}/v1 }}]\nmodels:\n",
            self.store.clone().unwrap_or_else(|| self
                .folder
                .path()
                .join("store.sqlite")
                .display()
                .to_string()),
            self.provider.addr
        );
        if let Some(book) = &self.book {
            text = format!("engine: {{ redis: {{ url: {book}, fleet_size: 2 }} }}\n{text}");
        }
        for model in models {
            writeln!(text, "  - {{ name: {model}, upstream: u, output: {{ default: 50 }}, price: {{ input: 1, output: 2 }} }}")
                .unwrap();
        }
        let path = root.join("t.yaml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn start(&self, name: &str) -> Tollbook {
        let path = self.file(name, &["m"]);
        Tollbook::start(&["serve", "-c", &path], Path::new(&path).parent().unwrap())
    }
}

impl Tollbook {
    /// An operator's question; what is not expected stops the test.
    pub(crate) fn ask(&self, method: &str, path: &str, body: impl Into<Value>, status: u16) -> Value {
        let (got, answer) = self.operators(method, &format!("/admin/v1{path}"), &body.into());
        assert_eq!(got, status, "{method} {path}: {answer}");
        answer
    }

    pub(crate) fn as_of(
        &self,
        method: &str,
        path: &str,
        version: &str,
        body: &Value,
    ) -> (u16, String, Value) {
        let line = format!("if-match: {version}\r\n");
        let path = format!("/admin/v1{path}");
        call_with(self.admin.unwrap(), method, &path, OPERATOR, &line, &body.to_string())
    }

    /// Tenant `acme`, project `web`, key `k`; the key's secret.
    pub(crate) fn with_key(&self) -> String {
        self.ask("POST", "/tenants", json!({"id": "acme"}), 201);
        self.ask("POST", "/tenants/acme/projects", json!({"id": "web"}), 201);
        let key = self.ask("POST", "/tenants/acme/projects/web/keys", json!({"id": "k"}), 201);
        key["secret"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn chat() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

/// A command that asks a gateway's operators' listener: its exit code, and what it printed on either side.
pub(crate) fn cli(gateway: &Tollbook, arguments: &[&str]) -> (i32, String, String) {
    let admin = format!("http://{}", gateway.admin.unwrap());
    let output = command(arguments).args(["--admin", &admin]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
