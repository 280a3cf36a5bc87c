//! Calls through the built program: what the client sees, what the provider saw, and what is left in the book.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollbook_e2e::config::{
    CHAT_MODEL, Config, MESSAGES_MODEL, UPSTREAM_KEY, UPSTREAM_MODELS, concurrency, per_minute, quota, secret,
};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::{LIMIT, together};
use tollbook_e2e::journal::Journal;
use tollbook_e2e::python::sdk_many;
use tollbook_mock_upstream::{Ending, Generate, MockUpstream, Script};

const CHAT: &str = "/v1/chat/completions";

fn mock() -> MockUpstream {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    mock.set_default(Script::output(5));
    mock
}

fn acme(mock: &MockUpstream, limits: &Value) -> Gateway {
    Gateway::start(&Config::new(&mock.url()).simple_tenant("acme", limits))
}

fn chat() -> Value {
    json!({"model": CHAT_MODEL, "max_tokens": 32, "messages": [{"role": "user", "content": "hello"}]})
}

#[test]
fn plain_call_passes_and_the_keys_are_exchanged() {
    let mock = mock();
    let gateway = acme(&mock, &json!([per_minute("requests", 100)]));
    let answer = gateway.post(CHAT, &secret("acme-key"), &chat()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["usage"]["completion_tokens"], 5);
    assert!(answer.header("x-request-id").is_some());
    let calls = mock.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].header("authorization"), Some(format!("Bearer {UPSTREAM_KEY}").as_str()));
    assert_eq!(calls[0].model.as_deref(), Some(UPSTREAM_MODELS[0]));
    let wrong = gateway.post(CHAT, "tb_wrong", &chat()).unwrap();
    assert_eq!(wrong.status, 401);
    assert_eq!(mock.calls().len(), 1);
}

#[test]
fn both_sdks_work_through_the_gateway() {
    let mock = mock();
    let gateway = acme(&mock, &json!([per_minute("requests", 1000), quota("cost", "month", "100")]));
    let text = " the book of all calls";
    let cases = [
        ("openai_plain", "stop"),
        ("openai_stream", "stop"),
        ("openai_stream_usage", "stop"),
        ("openai_tools", "tool_calls"),
        ("openai_tools_stream", "tool_calls"),
    ];
    check_cases(&gateway, CHAT_MODEL, &cases, text);
    let cases = [
        ("anthropic_plain", "end_turn"),
        ("anthropic_stream", "end_turn"),
        ("anthropic_tools", "tool_use"),
        ("anthropic_tools_stream", "tool_use"),
    ];
    check_cases(&gateway, MESSAGES_MODEL, &cases, text);
    assert!(mock.calls_at_rest().iter().all(|call| call.ending == Ending::Complete && call.usage_complete));
}

#[test]
fn sdks_see_a_clean_end_when_a_hard_limit_stops_their_stream() {
    let mock = mock();
    let paced = Generate { output_llm_tokens: Some(64), chunk_every_ms: 8, ..Generate::default() };
    mock.set_default(paced.into());
    // It holds 8 of output; there is no room to grow towards the 64 that the calls may use.
    let limits = json!([{"measure": "output_tokens", "period": "lifetime", "ceiling": 20, "strictness": "hard",
        "hold": "expected", "estimator": {"kind": "constant", "output": 8}}]);
    let config = Config::new(&mock.url()).simple_tenant("open", &limits).simple_tenant("anthropic", &limits);
    let mut gateway = Gateway::start(&config);
    let cases = [
        ("openai_stream", CHAT_MODEL, "open", "length"),
        ("anthropic_stream", MESSAGES_MODEL, "anthropic", "max_tokens"),
    ];
    for (case, model, tenant, finish) in cases {
        let key = secret(&format!("{tenant}-key"));
        let outcome = &sdk_many(&[case], &gateway.url(), &key, &["--model", model])[0];
        let call = &outcome["calls"][0];
        assert_eq!(
            (&outcome["attempts"], call["finish"].as_str()),
            (&json!([200]), Some(finish)),
            "{outcome}"
        );
        let words = call["text"].as_str().unwrap().split_whitespace().count();
        assert!((1..64).contains(&words), "{outcome}");
    }
    assert!(mock.wait_until_blocking(LIMIT, |calls, totals| calls.len() == 2 && totals.in_flight == 0));
    assert!(mock.calls().iter().all(|call| call.ending == Ending::ClientGone));
    assert!(gateway.terminate().success());
    let journal = Journal::read(&gateway.data_dir());
    let ends: Vec<&str> = journal.entries.iter().map(|entry| entry.ending.as_str()).collect();
    assert_eq!(ends, ["stopped_at_limit"; 2]);
}

fn check_cases(gateway: &Gateway, model: &str, cases: &[(&str, &str)], text: &str) {
    let names: Vec<&str> = cases.iter().map(|case| case.0).collect();
    let outcomes = sdk_many(&names, &gateway.url(), &secret("acme-key"), &["--model", model]);
    for (outcome, (case, finish)) in outcomes.iter().zip(cases) {
        let call = &outcome["calls"][0];
        assert_eq!(outcome["attempts"], json!([200]), "{outcome}");
        assert_eq!(call["finish"].as_str(), Some(*finish), "{outcome}");
        if case.contains("tools") {
            assert_eq!(call["arguments"]["days"], 1, "{outcome}");
        } else {
            assert_eq!(call["text"].as_str(), Some(text), "{outcome}");
        }
        // The gateway asks for usage either way; the client sees it only if it asked.
        let asked = *case != "openai_stream" && !case.ends_with("tools_stream");
        assert_eq!(!call["usage"].is_null(), asked, "{outcome}");
    }
}

#[test]
fn sdk_retries_a_rate_refusal_and_passes_but_not_a_spent_budget() {
    let mock = mock();
    let requests = json!([{"measure": "requests", "window": "2s", "ceiling": 1}]);
    let budget = json!([quota("requests", "lifetime", "1")]);
    let gateway = Gateway::start(
        &Config::new(&mock.url()).simple_tenant("rated", &requests).simple_tenant("spent", &budget),
    );
    for (case, model) in [("openai_plain", CHAT_MODEL), ("anthropic_plain", MESSAGES_MODEL)] {
        let more = ["--model", model, "--calls", "2"];
        // The window may still hold the case before; the SDK waits for that as well.
        let rated = &sdk_many(&[case], &gateway.url(), &secret("rated-key"), &more)[0];
        assert_eq!(rated["calls"][1]["attempts"], json!([429, 200]), "{rated}");
        assert!(rated["calls"][1].get("error").is_none(), "{rated}");
    }
    let before = mock.calls().len();
    let more = ["--model", CHAT_MODEL, "--calls", "2"];
    let spent = &sdk_many(&["openai_plain"], &gateway.url(), &secret("spent-key"), &more)[0];
    assert_eq!(spent["attempts"], json!([200, 429]), "{spent}");
    assert_eq!(spent["calls"][1]["error"]["code"], "insufficient_quota", "{spent}");
    let more = ["--model", MESSAGES_MODEL];
    let spent = &sdk_many(&["anthropic_plain"], &gateway.url(), &secret("spent-key"), &more)[0];
    assert_eq!(spent["attempts"], json!([402]), "{spent}");
    assert_eq!(spent["calls"][0]["error"]["type"], "billing_error", "{spent}");
    assert_eq!(mock.calls().len(), before + 1);
}

#[test]
fn burst_lets_exactly_the_ceiling_through() {
    let mock = mock();
    mock.hold_until_released();
    let gateway = acme(&mock, &json!([concurrency(10)]));
    let statuses = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            together(50, |_| {
                let answer = gateway.post(CHAT, &secret("acme-key"), &chat()).unwrap();
                statuses.lock().unwrap().push(answer.status);
            });
        });
        // All but ten have their answer while those ten are in flight.
        assert!(wait_for(LIMIT, || (statuses.lock().unwrap().len() == 40).then_some(())).is_some());
        assert!(mock.wait_until_blocking(LIMIT, |_, totals| totals.waiting == 10));
        assert_eq!(*statuses.lock().unwrap(), [429; 40]);
        mock.release();
    });
    assert_eq!((mock.totals().calls, mock.totals().in_flight_max), (10, 10));
    assert_eq!(statuses.lock().unwrap()[40..], [200; 10]);
}

#[test]
fn spent_quota_stays_spent_over_a_kill_and_a_restart() {
    let mock = mock();
    let mut gateway = acme(&mock, &json!([quota("requests", "day", "2")]));
    for _ in 0..2 {
        assert_eq!(gateway.post(CHAT, &secret("acme-key"), &chat()).unwrap().status, 200);
    }
    assert_eq!(gateway.post(CHAT, &secret("acme-key"), &chat()).unwrap().status, 429);
    gateway.kill();
    gateway.start_again();
    assert_eq!(gateway.post(CHAT, &secret("acme-key"), &chat()).unwrap().status, 429);
    assert!(gateway.terminate().success());
    gateway.start_again();
    assert_eq!(gateway.post(CHAT, &secret("acme-key"), &chat()).unwrap().status, 429);
    assert_eq!(mock.calls().len(), 2);
}
