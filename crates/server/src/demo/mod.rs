//! `tollbook demo`: the gateway in front of a built-in fake provider, with sample tenants and keys.
//!
//! Nothing leaves the machine. Keys are new at every start; the book is removed at the end unless a folder is given.

pub mod provider;
pub mod table;

use std::net::SocketAddr;

use crate::accounts::Line;
use crate::key;
use table::Row;

/// Keys of the sample tenants, and the operator's.
#[derive(Debug)]
pub struct Keys {
    pub free: String,
    pub team: String,
    pub enterprise: String,
    pub operator: String,
}

impl Keys {
    pub fn generate() -> anyhow::Result<Self> {
        let make = key::generate;
        Ok(Self { free: make()?, team: make()?, enterprise: make()?, operator: make()? })
    }
}

/// The demo's configuration file: three tenants, three models, one provider.
pub fn config(keys: &Keys, provider: SocketAddr, listen: SocketAddr, data_dir: &std::path::Path) -> String {
    let Keys { free, team, enterprise, operator } = keys;
    // A path in JSON's quotes is a path in YAML's.
    let data_dir = serde_json::Value::from(data_dir.to_string_lossy());
    format!(
        "\
listen: {listen}
admin: {{ listen: 127.0.0.1:0, api_key: {operator} }}
data_dir: {data_dir}
log: {{ level: error }}
upstreams:
  - {{ name: fake, dialect: openai, base_url: http://{provider}/v1 }}
  - {{ name: fake-anthropic, dialect: anthropic, base_url: http://{provider}/v1 }}
models:
  - name: demo-small
    upstream: fake
    vocabulary: o200k
    context: 128000
    output: {{ default: 400, max: 4096 }}
    price: {{ input: 0.15, cached: 0.075, output: 0.60 }}
  - name: demo-large
    upstream: fake
    vocabulary: o200k
    context: 128000
    output: {{ default: 400, max: 4096 }}
    price: {{ input: 2.50, cached: 1.25, output: 10.00 }}
    limits:
      - {{ measure: tokens, window: 60s, ceiling: 50000 }}
  - name: demo-claude
    upstream: fake-anthropic
    vocabulary: claude
    context: 200000
    output: {{ default: 400, max: 4096 }}
    price: {{ input: 3.00, cached: 0.30, output: 15.00 }}
tenants:
  - id: free
    limits:
      - {{ measure: requests, window: 60s, ceiling: 5 }}
      - {{ measure: tokens, window: 60s, ceiling: 2000 }}
    projects: [{{ id: app, keys: [{{ id: free-1, secret: {free}, models: [demo-small] }}] }}]
  - id: team
    limits:
      - {{ measure: requests, window: 60s, ceiling: 60 }}
      - {{ measure: tokens, window: 60s, ceiling: 20000 }}
      - {{ measure: concurrency, ceiling: 4 }}
    projects: [{{ id: app, keys: [{{ id: team-1, secret: {team} }}] }}]
  - id: enterprise
    limits:
      - {{ measure: tokens, window: 60s, ceiling: 200000 }}
      - {{ measure: cost, period: day, ceiling: 0.05 }}
    projects: [{{ id: app, keys: [{{ id: enterprise-1, secret: {enterprise} }}] }}]
"
    )
}

/// What to try, as one prints it.
pub fn introduction(keys: &Keys, gateway: SocketAddr, admin: Option<SocketAddr>) -> String {
    let Keys { free, team, enterprise, operator } = keys;
    let admin =
        admin.map(|admin| format!("\n  operators  http://{admin}   key {operator}")).unwrap_or_default();
    format!(
        "\
Tollbook in front of a fake provider; nothing leaves this machine.

  gateway    http://{gateway}{admin}

  free        {free}   id free-1: 5 calls and 2,000 llm_tokens a minute, demo-small only
  team        {team}   id team-1: 60 calls and 20,000 llm_tokens a minute, 4 at once
  enterprise  {enterprise}   id enterprise-1: a budget of 0.05 a day

Try:

  # a call that streams
  curl -N http://{gateway}/v1/chat/completions -H 'Authorization: Bearer {team}' \\
    -d '{{\"model\": \"demo-large\", \"stream\": true, \"messages\": [{{\"role\": \"user\", \"content\": \"Tell me of ledgers\"}}]}}'

  # one call too many for the free plan
  for n in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%{{http_code}}\\n' http://{gateway}/v1/chat/completions \\
    -H 'Authorization: Bearer {free}' -d '{{\"model\": \"demo-small\", \"messages\": [{{\"role\": \"user\", \"content\": \"hi\"}}]}}'; done

  # Anthropic's SDK
  ANTHROPIC_BASE_URL=http://{gateway} ANTHROPIC_API_KEY={enterprise} python3 -c 'import anthropic; print(
    anthropic.Anthropic().messages.create(model=\"demo-claude\", max_tokens=200, messages=[{{\"role\": \"user\", \"content\": \"hi\"}}]).usage)'
"
    )
}

/// A line of the table.
pub fn row(line: &Line) -> Row {
    let limit = match &line.model {
        Some(model) => format!("{}, {}, {model}", line.measure, line.form),
        None if line.measure == line.form => line.form.clone(),
        None => format!("{}, {}", line.measure, line.form),
    };
    Row {
        subject: line.subject.clone(),
        limit,
        ceiling: line.ceiling,
        posted: line.posted,
        held: line.held,
        planned: line.planned().is_some(),
        denied: line.denied,
        money: line.measure == "cost",
    }
}
