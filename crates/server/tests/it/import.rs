//! `tollbook import` from outside: what is printed, what is told, what is refused, and that `check` accepts it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

/// As LiteLLM's price table has its fields; the models are made up.
const TABLE: &str = r#"{
    "sample_spec": {"input_cost_per_token": 0.0, "max_tokens": "LEGACY parameter", "mode": "one of: chat, …"},
    "small-1": {
        "litellm_provider": "acme", "mode": "chat", "max_input_tokens": 128000, "max_output_tokens": 16384,
        "max_tokens": 16384, "input_cost_per_token": 1.5e-07, "cache_read_input_token_cost": 7.5e-08,
        "output_cost_per_token": 6e-07, "input_cost_per_token_flex": 7.5e-08,
        "cache_read_input_token_cost_flex": 3.75e-08, "output_cost_per_token_flex": 3e-07,
        "input_cost_per_token_batches": 7.5e-08, "supports_vision": true
    },
    "claude-like": {
        "litellm_provider": "anthropic", "mode": "chat", "max_input_tokens": 200000, "max_output_tokens": 64000,
        "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05, "cache_read_input_token_cost": 3e-07,
        "cache_creation_input_token_cost": 3.75e-06, "cache_creation_input_token_cost_above_1hr": 6e-06,
        "input_cost_per_token_above_200k_tokens": 6e-06, "output_cost_per_token_above_200k_tokens": 2.25e-05,
        "search_context_cost_per_query": {
            "search_context_size_low": 0.01, "search_context_size_medium": 0.01, "search_context_size_high": 0.01
        }
    },
    "azure/eu/small-1": {
        "litellm_provider": "azure", "mode": "chat", "input_cost_per_token": 1.65e-07, "output_cost_per_token": 6.6e-07,
        "input_cost_per_audio_token": 4e-05, "output_cost_per_audio_token": 8e-05
    },
    "embed-1": {"litellm_provider": "acme", "mode": "embedding", "input_cost_per_token": 2e-08, "max_input_tokens": 8191},
    "drawing-1": {"litellm_provider": "acme", "mode": "image_generation", "output_cost_per_image": 0.04},
    "free-1": {"litellm_provider": "local", "mode": "chat", "input_cost_per_token": 0.0, "output_cost_per_token": 0}
}"#;

const PROXY: &str = r#"model_list:
  - model_name: small
    litellm_params:
      model: openai/small-1
      api_key: os.environ/OPENAI_API_KEY
      rpm: 480
      tpm: 200000
      temperature: 0.2
  - model_name: small
    litellm_params: { model: azure/small-eu, api_base: os.environ/AZURE_API_BASE, api_key: os.environ/AZURE_API_KEY }
  - model_name: eu
    litellm_params:
      model: azure/small-eu
      api_base: os.environ/AZURE_API_BASE
      api_key: "sk-azure-written-down"
      api_version: "2024-10-21"
    model_info: { base_model: azure/eu/small-1, id: x }
  - model_name: claude
    litellm_params: { model: claude-like, extra_headers: { x-secret: sk-in-a-header } }
  - model_name: local
    litellm_params:
      model: hosted_vllm/Qwen/Qwen3-32B
      api_base: http://10.0.0.9:8000/v1/
    model_info: { input_cost_per_token: 1e-07, output_cost_per_token: 2e-07, max_input_tokens: 32768 }
  - model_name: "openai/*"
    litellm_params: { model: "openai/*" }
  - model_name: rock
    litellm_params: { model: bedrock/anthropic.claude, aws_secret_access_key: sk-aws }
  - model_name: hidden
    litellm_params: { model: openai/x, api_base: "https://user:sk-in-an-address@h/v1" }
general_settings:
  master_key: sk-master-key
  database_url: postgresql://u:sk-database@h/db
litellm_settings: { drop_params: true, num_retries: 2 }
router_settings: { routing_strategy: simple-shuffle }
environment_variables: { OPENAI_API_KEY: sk-variable }
"#;

struct World(TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn tollbook(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollbook"));
    command.args(arguments).env_clear();
    for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_API_KEY", "TOLLBOOK_AZURE_API_KEY"] {
        command.env(name, "k");
    }
    command.env("AZURE_API_BASE", "https://x.openai.azure.com").output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn good(arguments: &[&str]) -> (String, String) {
    let output = tollbook(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
}

fn bad(arguments: &[&str], code: i32) -> String {
    let output = tollbook(arguments);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{arguments:?}");
    text(&output.stderr).to_owned()
}

#[test]
fn prices_are_a_part_of_a_configuration_exact_to_the_last_place() {
    let world = World::new();
    let table = world.file("prices.json", TABLE);
    let (out, err) = good(&["import", "litellm-prices", &table]);
    let want = r#"models:
  - name: small-1
    upstream: acme
    context: 144384
    output: { max: 16384 }
    price: { input: "0.15", cached: "0.075", output: "0.6", tiers: { flex: "0.5" } }
  - name: claude-like
    upstream: anthropic
    context: 264000
    output: { max: 64000 }
    price: { input: "3", cached: "0.3", cache_write: "3.75", cache_write_1h: "6", output: "15", steps: [{ above: 200000, input: "6", output: "22.5" }], web_search: "0.01" }
  - name: azure/eu/small-1
    upstream: azure
    upstream_model: eu/small-1
    price: { input: "0.165", audio_input: "40", output: "0.66", audio_output: "80" }
  - name: embed-1
    upstream: acme
    surfaces: [embeddings]
    context: 8191
    price: { input: "0.02", output: "0" }
  - name: free-1
    upstream: local
    price: { input: "0", output: "0" }
"#;
    assert_eq!(out, want);
    let told = "left out: drawing-1: priced by output_cost_per_image\n\
                prices of batches have no place: batches are billed where the gateway does not look: 1 (small-1)\n\
                free: 1 cost 0, so no limit on cost ever stops them\n";
    assert_eq!(err, told);

    let upstreams = ["acme", "anthropic", "azure", "local"].map(|name| {
        let dialect = if name == "anthropic" { name } else { "openai" };
        format!("  - {{ name: {name}, dialect: {dialect}, base_url: \"http://h/v1\" }}\n")
    });
    let whole = world.file("t.yaml", &format!("upstreams:\n{}{out}", upstreams.concat()));
    good(&["check", "-c", &whole]);
}

#[test]
fn models_are_chosen_and_the_result_may_be_json_or_a_file() {
    let world = World::new();
    let table = world.file("prices.json", TABLE);
    let (out, err) = good(&[
        "import",
        "litellm-prices",
        &table,
        "--json",
        "--only",
        "*small*",
        "--only",
        "drawing-?",
        "--upstream",
        "u",
    ]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(err, "");
    let names: Vec<&Value> = told["models"].as_array().unwrap().iter().map(|model| &model["name"]).collect();
    assert_eq!(names, ["small-1", "azure/eu/small-1"]);
    assert!(told["models"].as_array().unwrap().iter().all(|model| model["upstream"] == "u"));
    assert_eq!(
        told["left_out"],
        json!([{"model": "drawing-1", "reason": "priced by output_cost_per_image"}])
    );
    assert_eq!(told["notes"][0]["models"], json!(["small-1"]));

    let to = world.path("models.yaml");
    let (out, _) =
        good(&["import", "litellm-prices", &table, "--only", "embed-1", "-o", to.to_str().unwrap()]);
    assert_eq!((out.as_str(), fs::read_to_string(&to).unwrap().lines().count()), ("", 6));

    let err = bad(&["import", "litellm-prices", &table, "--only", "nobody*"], 1);
    assert!(err.ends_with("is left\n"), "{err}");
}

#[test]
fn a_broken_table_is_refused_whole_and_the_place_is_named() {
    let world = World::new();
    let model = |price: &str| {
        format!(
            "{{\"fine\": {{\"input_cost_per_token\": 1e-06, \"output_cost_per_token\": 1e-06}},\n\"m\": {{\"output_cost_per_token\": 1e-06,\n  \"input_cost_per_token\": {price}}}}}"
        )
    };
    for (name, content, want) in [
        (
            "cut",
            "{\n  \"m\": {\"input_cost_per_token\": 1e-06,\n".to_owned(),
            ":3:0: not valid JSON: EOF".replace(":3:0", ":3:1"),
        ),
        ("page", "<html>".to_owned(), ":1:1: not valid JSON: expected value".to_owned()),
        ("list", "[]".to_owned(), ":1:1: must be an object of models".to_owned()),
        ("entry", "{\"m\": 1}".to_owned(), ":1:7: m: must be an object".to_owned()),
        ("text", model("\"1e-06\""), ":3:27: m.input_cost_per_token: must be a number".to_owned()),
        (
            "negative",
            model("-1e-06"),
            ":3:27: m.input_cost_per_token: `-1e-06` must not be negative".to_owned(),
        ),
        ("large", model("1e+30"), ":3:27: m.input_cost_per_token: `1e+30` is too large".to_owned()),
    ] {
        let file = world.file(&format!("{name}.json"), &content);
        let err = bad(&["import", "litellm-prices", &file], 2);
        assert!(err.starts_with(&format!("{file}{want}")), "{name}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let broken = world.file("negative.json", &model("-1e-06"));
    good(&["import", "litellm-prices", &broken, "--only", "fine"]);
    assert!(bad(&["import", "litellm-prices", "/nowhere.json"], 2).contains("cannot be read"));
    let twice = world.file(
        "twice.json",
        "{\"m\": {}, \"m\": {\"input_cost_per_token\": 1e-06, \"output_cost_per_token\": 2e-06}}",
    );
    let (out, err) = good(&["import", "litellm-prices", &twice]);
    assert!(out.contains("input: \"1\", output: \"2\"") && err.contains("given twice"), "{out}{err}");
}

#[test]
fn a_proxys_configuration_becomes_a_whole_one_that_check_accepts() {
    let world = World::new();
    let (proxy, table) = (world.file("config.yaml", PROXY), world.file("prices.json", TABLE));
    let (out, err) = good(&["import", "litellm-config", &proxy, "--prices", &table]);
    assert!(!out.contains("sk-") && !err.contains("sk-"), "{out}{err}");
    let body = out.lines().skip_while(|line| *line != "upstreams:").take_while(|line| !line.starts_with('#'));
    let body = body.collect::<Vec<_>>().join("\n") + "\n";
    let want = r#"upstreams:
  - name: openai
    dialect: openai
    base_url: "https://api.openai.com/v1"
    api_key: "${OPENAI_API_KEY}"
  - name: azure
    dialect: openai
    base_url: "${AZURE_API_BASE}/openai/v1"
    api_key: "${TOLLBOOK_AZURE_API_KEY}"
  - name: anthropic
    dialect: anthropic
    base_url: "https://api.anthropic.com/v1"
    api_key: "${ANTHROPIC_API_KEY}"
  - name: hosted_vllm
    dialect: openai
    base_url: "http://10.0.0.9:8000/v1"

models:
  - name: small
    upstream: openai
    upstream_model: small-1
    context: 144384
    output: { max: 16384 }
    price: { input: "0.15", cached: "0.075", output: "0.6", tiers: { flex: "0.5" } }
    limits: [{ measure: requests, window: "60s", ceiling: 480 }, { measure: tokens, window: "60s", ceiling: 200000 }]
  - name: eu
    upstream: azure
    upstream_model: small-eu
    price: { input: "0.165", audio_input: "40", output: "0.66", audio_output: "80" }
  - name: claude
    upstream: anthropic
    upstream_model: claude-like
    context: 264000
    output: { max: 64000 }
    price: { input: "3", cached: "0.3", cache_write: "3.75", cache_write_1h: "6", output: "15", steps: [{ above: 200000, input: "6", output: "22.5" }], web_search: "0.01" }
  - name: local
    upstream: hosted_vllm
    upstream_model: Qwen/Qwen3-32B
    context: 32768
    price: { input: "0.1", output: "0.2" }

"#;
    assert_eq!(body, want);
    for told in [
        ":8:20: model_list[0].litellm_params.temperature: what a client sends is not changed",
        ":9:5: model_list[1]: model `small`: model_list[0] is taken",
        ":15:16: model_list[2].litellm_params.api_key: a key is not copied: set TOLLBOOK_AZURE_API_KEY",
        ":17:53: model_list[2].model_info.id: has no place",
        "model_list[3].litellm_params.extra_headers: has no place",
        "model_list[5]: model `openai/*`: names with `*` are not served",
        "model_list[6]: model `rock`: `bedrock` speaks neither dialect",
        "model_list[7].litellm_params.api_base: model `hidden`: must be a URL without user",
        "general_settings.master_key: is not copied",
        "general_settings.database_url: LiteLLM's keys, teams and budgets live there",
        "litellm_settings.drop_params: has no place",
        "litellm_settings.num_retries: see `upstreams[].retries`",
        "router_settings: routing, fallbacks",
        "environment_variables: is not copied",
        "Azure is called by its v1 surface",
    ] {
        assert!(err.contains(told), "{told}\n{err}");
    }
    let to = world.path("tollbook.yaml");
    good(&["import", "litellm-config", &proxy, "-o", to.to_str().unwrap()]);
    let (_, warned) = good(&["check", "-c", to.to_str().unwrap()]);
    assert!(!warned.contains("mistake"), "{warned}");
}

/// The older form, with the limits beside `litellm_params`; and whatever has no place is told.
#[test]
fn limits_beside_the_parameters_are_carried_over_and_nothing_is_dropped_silently() {
    let world = World::new();
    let proxy = r#"model_list:
  - model_name: old
    litellm_params: { model: openai/x, api_version: v1, base_url: "https://h/v1", api_base: "https://i/v1" }
    rpm: 60
    tpm: 9000
    weight: 2
    litellm_credential_name: cn
    input_cost_per_token: 1
    model_info: { mode: completion, max_tokens: 8192, input_cost_per_token: 0, output_cost_per_token: 0 }
  - model_name: twice
    litellm_params: { model: openai/y, rpm: 5, mode: embedding, max_input_tokens: 100 }
    rpm: 7
    model_info: { rpm: 8, tpm: 1000 }
  - model_name: third
    litellm_params: { model: openai/z }
    model_info: { mode: rerank }
  - model_name: fourth
    litellm_params: { model: azure/w, api_base: "https://w", api_version: v1 }
    model_info: none
general_settings: none
litellm_settings: [a]
"#;
    let (out, err) = good(&["import", "litellm-config", &world.file("config.yaml", proxy)]);
    for carried in [
        r#"ceiling: 60 }, { measure: tokens, window: "60s", ceiling: 9000 }]"#,
        r#"ceiling: 5 }, { measure: tokens, window: "60s", ceiling: 1000 }]"#,
        "  - name: old\n    upstream: openai\n    upstream_model: x\n    surfaces: [completions]\n",
        "    surfaces: [embeddings]\n    context: 100\n",
        "  - name: third\n    upstream: openai-2\n    upstream_model: z\n",
    ] {
        assert!(out.contains(carried), "{carried}\n{out}");
    }
    let told: Vec<(&str, &str)> = err
        .lines()
        .filter_map(|line| line.split_once(".yaml:"))
        .filter_map(|(_, line)| line.splitn(3, ':').nth(2)?.trim().split_once(": "))
        .collect();
    let none = "has no place";
    for told_once in [
        ("model_list[0].litellm_params.api_version", none),
        ("model_list[0].litellm_params.base_url", "`api_base` is taken"),
        ("model_list[0].weight", "a model is served by one upstream"),
        ("model_list[0].litellm_credential_name", none),
        ("model_list[0].input_cost_per_token", none),
        (
            "model_list[0].model_info.max_tokens",
            "may mean input or output: `max_input_tokens` and `max_output_tokens` are read",
        ),
        ("model_list[1].rpm", "model_list[1].litellm_params.rpm is taken"),
        ("model_list[1].model_info.rpm", "model_list[1].litellm_params.rpm is taken"),
        (
            "model_list[2].model_info.mode",
            "is no surface of its own: the model takes calls on those of its upstream",
        ),
        ("model_list[3].model_info", "is no object and is not read"),
        ("general_settings", none),
        ("litellm_settings", none),
    ] {
        assert_eq!(told.iter().filter(|line| **line == told_once).count(), 1, "{told_once:?}\n{err}");
    }
    assert_eq!(told.len(), 12, "{err}");
    assert!(err.contains("costs 0: no limit on cost ever stops calls to it: 1 (old)"), "{err}");
}

#[test]
fn a_broken_proxys_configuration_is_refused_whole() {
    let world = World::new();
    let list = |params: &str| {
        format!("model_list:\n  - model_name: a\n    litellm_params: {{ model: gpt-x{params} }}\n")
    };
    for (content, want) in [
        ("", ":1:1: the file is empty"),
        ("models: []\n", ":1:1: has no `model_list`"),
        ("model_list: 1\n", ":1:13: model_list: must be a list"),
        ("model_list: [{ model_name: a\n", "not valid YAML"),
        ("model_list: [{ model_name: a }]\n", "model_list[0].litellm_params: must be an object"),
        ("model_list: [{ litellm_params: { model: gpt-x } }]\n", "model_list[0].model_name: must be a text"),
        (&list(", rpm: many"), ":3:42: model_list[0].litellm_params.rpm: must be a whole number"),
        (&list(", rpm: -1"), "litellm_params.rpm: must be a whole number"),
        (&list(", api_key: [x]"), "litellm_params.api_key: must be a text"),
        (&list(", custom_llm_provider: [x]"), "litellm_params.custom_llm_provider: must be a text"),
        (&list(", input_cost_per_token: -1"), "a.input_cost_per_token: `-1` must not be negative"),
        (&list(", model: b"), "`model` is given twice"),
    ] {
        let file = world.file("config.yaml", content);
        let err = bad(&["import", "litellm-config", &file], 2);
        assert!(err.contains(want), "{content}: {err}");
    }
    let file = world
        .file("config.yaml", "model_list: [{ model_name: a, litellm_params: { model: sagemaker/x } }]\n");
    let err = bad(&["import", "litellm-config", &file], 1);
    assert!(err.contains("`sagemaker` speaks neither dialect") && err.contains("no model of"), "{err}");
}
