//! The SDKs against the fake provider alone: what they do without a gateway is what they must do with one.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollbook_e2e::python::sdk_many;
use tollbook_mock_upstream::{Generate, MockUpstream, Script, Usage};

const KEY: &str = "sk-any";

fn mock() -> MockUpstream {
    MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap()
}

const CASES: [&str; 11] = [
    "openai_plain",
    "openai_stream",
    "openai_stream_usage",
    "openai_tools",
    "openai_tools_stream",
    "anthropic_plain",
    "anthropic_stream",
    "anthropic_tools",
    "anthropic_tools_stream",
    "openai_models",
    "anthropic_models",
];

#[test]
fn both_sdks_understand_the_provider() {
    let mock = mock();
    mock.set_default(Generate { output_llm_tokens: Some(5), ..Generate::default() }.into());
    let text = " the book of all calls";
    let outcomes = sdk_many(&CASES, &mock.url(), KEY, &[]);
    let one = |case: &str| {
        let outcome = outcomes.iter().find(|outcome| outcome["case"] == case).unwrap();
        assert_eq!(outcome["attempts"], json!([200]), "{outcome}");
        outcome["calls"][0].clone()
    };
    let plain = one("openai_plain");
    assert_eq!((plain["text"].as_str(), plain["finish"].as_str()), (Some(text), Some("stop")));
    assert_eq!(plain["usage"]["completion_tokens"], 5);
    let stream = one("openai_stream");
    assert_eq!((stream["text"].as_str(), &stream["usage"]), (Some(text), &Value::Null));
    let stream = one("openai_stream_usage");
    assert_eq!(
        (&stream["usage"]["completion_tokens"], &stream["chunks_without_choice"]),
        (&json!(5), &json!(1))
    );
    for case in ["anthropic_plain", "anthropic_stream"] {
        let answer = one(case);
        assert_eq!((answer["text"].as_str(), answer["finish"].as_str()), (Some(text), Some("end_turn")));
        assert_eq!(answer["usage"]["output_tokens"], 5);
    }
    for case in CASES.iter().filter(|case| case.contains("tools")) {
        let answer = one(case);
        assert_eq!((&answer["tool"], &answer["arguments"]["days"]), (&json!("weather"), &json!(1)), "{case}");
    }
    for case in ["openai_models", "anthropic_models"] {
        assert_eq!(one(case)["models"], json!(["mock-large", "mock-small"]));
    }
    let calls = mock.calls_at_rest();
    assert_eq!(calls.len(), 11);
    assert!(calls.iter().take(9).all(|call| call.generated.output == 5));
    assert_eq!(
        calls[0].reported.map(|usage| Usage { input: 0, ..usage }),
        Some(Usage { output: 5, ..Usage::default() })
    );
}

#[test]
fn hint_is_obeyed_and_final_refusal_is_final() {
    let mock = mock();
    for _ in 0..2 {
        mock.script(Script::error(429, "later").header("retry-after", "1").header("retry-after-ms", "150"));
        mock.script(Script::output(1));
    }
    for _ in 0..2 {
        mock.script(Script::error(429, "never").header("x-should-retry", "false"));
    }
    let cases = ["openai_plain", "anthropic_plain", "openai_plain", "anthropic_plain"];
    let outcomes = sdk_many(&cases, &mock.url(), KEY, &[]);
    for outcome in &outcomes[..2] {
        assert_eq!(outcome["attempts"], json!([429, 200]), "{outcome}");
        assert_eq!(outcome["retry_counts"], json!(["0", "1"]));
        assert!(outcome["calls"][0]["elapsed_ms"].as_u64().unwrap() >= 150);
    }
    for outcome in &outcomes[2..] {
        assert_eq!(outcome["attempts"], json!([429]), "{outcome}");
        assert_eq!(outcome["calls"][0]["error"]["class"], "RateLimitError");
    }
    assert_eq!(mock.calls().len(), 6);
}
