//! Configuration files for tests, written as JSON, which is YAML.
//!
//! Invariants: ports are free ones, the data folder is the test's own, secrets are fixed and known.
//! The start: one fake provider behind two upstreams (one per dialect), one model on each, no tenant.

use std::path::Path;

use serde_json::{Value, json};

/// A model served in the OpenAI dialect.
pub const CHAT_MODEL: &str = "chat-small";
/// A model served in the Anthropic dialect.
pub const MESSAGES_MODEL: &str = "messages-small";
/// The provider's names of the two.
pub const UPSTREAM_MODELS: [&str; 2] = ["mock-small", "mock-large"];
pub const UPSTREAM_KEY: &str = "sk-upstream-e2e";
pub const ADMIN_KEY: &str = "tb_admin_e2e_0123456789abcdefghijklmnopqrstuvwxyz";

#[derive(Debug, Clone)]
pub struct Config {
    value: Value,
}

impl Config {
    /// `upstream_url` without a path.
    pub fn new(upstream_url: &str) -> Self {
        let upstream = |name: &str, dialect: &str| {
            json!({"name": name, "dialect": dialect, "base_url": format!("{upstream_url}/v1"),
                "api_key": UPSTREAM_KEY, "retries": 0})
        };
        let model = |name: &str, upstream: &str, there: &str| {
            json!({"name": name, "upstream": upstream, "upstream_model": there, "context": 128_000,
                "output": {"default": 64, "max": 4096}, "price": {"input": "1.00", "output": "4.00"}})
        };
        Self {
            value: json!({
                "listen": "127.0.0.1:0",
                "admin": {"listen": "127.0.0.1:0", "api_key": ADMIN_KEY},
                "log": {"level": "info", "format": "json"},
                "upstreams": [upstream("open", "openai"), upstream("anthropic", "anthropic")],
                "models": [
                    model(CHAT_MODEL, "open", UPSTREAM_MODELS[0]),
                    model(MESSAGES_MODEL, "anthropic", UPSTREAM_MODELS[1])
                ],
                "tenants": []
            }),
        }
    }

    /// A tenant with one project `<id>-project` and one key `<id>-key`, limits on the tenant.
    #[must_use]
    pub fn simple_tenant(self, id: &str, limits: &Value) -> Self {
        let key = format!("{id}-key");
        self.tenant(json!({"id": id, "limits": limits, "projects": [
            {"id": format!("{id}-project"), "keys": [{"id": key, "secret": secret(&key)}]}
        ]}))
    }

    #[must_use]
    pub fn tenant(mut self, tenant: Value) -> Self {
        if let Some(tenants) = self.value.get_mut("tenants").and_then(Value::as_array_mut) {
            tenants.push(tenant);
        }
        self
    }

    /// Appends to the list at a JSON pointer.
    #[must_use]
    pub fn push(mut self, pointer: &str, value: Value) -> Self {
        if let Some(Value::Array(list)) = self.value.pointer_mut(pointer) {
            list.push(value);
        }
        self
    }

    /// Sets the value at a JSON pointer, whose parent must exist.
    #[must_use]
    pub fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        match self.value.pointer_mut(parent) {
            Some(Value::Object(object)) => {
                object.insert(name.to_owned(), value);
            }
            Some(Value::Array(list)) => {
                if let Some(place) = name.parse::<usize>().ok().and_then(|index| list.get_mut(index)) {
                    *place = value;
                }
            }
            _ => {}
        }
        self
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    /// A line for each field and each tenant, tenants last: cut anywhere behind a line, it is still a configuration.
    pub fn lines(&self, data_dir: &Path) -> String {
        let config = self.clone().set("/data_dir", json!(data_dir));
        let mut lines = Vec::new();
        for (name, value) in config.value.as_object().into_iter().flatten() {
            if name != "tenants" {
                lines.push(format!("{name}: {value}\n"));
            }
        }
        lines.push("tenants:\n".to_owned());
        for tenant in config.value.get("tenants").and_then(Value::as_array).into_iter().flatten() {
            lines.push(format!("- {tenant}\n"));
        }
        lines.concat()
    }

    pub(crate) fn text(&self, data_dir: &Path) -> String {
        let config = self.clone().set("/data_dir", json!(data_dir));
        config.value.to_string()
    }
}

/// The secret of the key with this id.
pub fn secret(key_id: &str) -> String {
    format!("tb_{key_id}_0123456789abcdefghijklmnopqrstuvwxyzABCD")
}

/// A rolling minute.
pub fn per_minute(measure: &str, ceiling: u64) -> Value {
    json!({"measure": measure, "window": "60s", "ceiling": ceiling})
}

pub fn quota(measure: &str, period: &str, ceiling: &str) -> Value {
    json!({"measure": measure, "period": period, "ceiling": ceiling})
}

pub fn concurrency(ceiling: u64) -> Value {
    json!({"measure": "concurrency", "ceiling": ceiling})
}
