//! The gateway as it is measured: its configuration and how it is started.
//!
//! Three levels, each with RPM, TPM and a daily quota of llm_tokens, all far from full; log and journal on; a free
//! port. The configuration is JSON, which is YAML.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::process::Process;
use crate::tls::{self, Files};

pub const API_KEY: &str = "tb_bench_0123456789abcdefghijklmnopqrstuvwxyzABCDE";

/// Starts the program in `dir`, in front of the provider.
pub fn start(program: &Path, dir: &Path, provider: SocketAddr, tls: Option<&Files>) -> Result<Process> {
    let file = dir.join("tollbook.yaml");
    let config = configuration(&dir.join("data"), provider, tls).to_string();
    std::fs::write(&file, config).with_context(|| format!("cannot write {}", file.display()))?;
    Process::start(Command::new(program).arg("serve").arg("-c").arg(&file).stderr(Stdio::inherit()))
}

/// With TLS on both sides, or on none.
fn configuration(data_dir: &Path, provider: SocketAddr, tls: Option<&Files>) -> Value {
    let limits = json!([
        {"measure": "requests", "window": "60s", "ceiling": 1_000_000_000},
        {"measure": "tokens", "window": "60s", "ceiling": 1_000_000_000_000_u64},
        {"measure": "tokens", "period": "day", "ceiling": 1_000_000_000_000_000_u64}
    ]);
    let (base_url, trusted) = match tls {
        None => (format!("http://{provider}/v1"), Vec::new()),
        Some(files) => (format!("https://{}:{}/v1", tls::NAME, provider.port()), vec![&files.certificate]),
    };
    let certificate = tls.map(|files| json!({"certificate_file": files.certificate, "key_file": files.key}));
    json!({
        "listen": "127.0.0.1:0",
        "tls": certificate,
        "data_dir": data_dir,
        "log": {"level": "warn"},
        "upstreams": [
            {"name": "bench", "dialect": "openai", "base_url": base_url, "api_key": "sk-bench",
             "tls": {"ca_files": trusted}}
        ],
        "models": [{"name": "bench", "upstream": "bench", "price": {"input": "1", "output": "4"}}],
        "tenants": [{"id": "bench", "limits": limits, "projects": [
            {"id": "bench", "limits": limits, "keys": [{"id": "bench", "secret": API_KEY, "limits": limits}]}
        ]}]
    })
}
