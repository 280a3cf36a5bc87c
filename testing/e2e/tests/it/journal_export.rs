//! Calls through the running program, written out as a trace while it runs, and replayed by its simulator; the provider's
//! own record is the judge.

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, quota, secret};
use tollbook_e2e::gateway::{Gateway, run, wait_for};
use tollbook_e2e::http::LIMIT;
use tollbook_mock_upstream::{MockUpstream, Script};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

fn body(model: &str, number: usize) -> Value {
    json!({"model": model, "max_tokens": 64, "stream": number.is_multiple_of(2),
        "messages": [{"role": "user", "content": "the book of all calls ".repeat(number + 1)}]})
}

/// input, output and key of every line, sorted.
fn lines(csv: &str, columns: [&str; 3]) -> Vec<[String; 3]> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let places = columns.map(|column| names.iter().position(|name| *name == column).unwrap());
    let mut found: Vec<[String; 3]> = lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            places.map(|place| fields[place].to_owned())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn calls_of_a_running_gateway_are_a_trace_that_simulate_replays() {
    let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let limits = json!([quota("tokens", "month", "1000000")]);
    let config = Config::new(&mock.url()).simple_tenant("acme", &limits).simple_tenant("beta", &json!([]));
    let mut gateway = Gateway::start(&config);
    for number in 0..12 {
        mock.set_default(Script::output(3 + u64::try_from(number).unwrap()));
        let (model, path) = if number % 3 == 0 { (MESSAGES_MODEL, MESSAGES) } else { (CHAT_MODEL, CHAT) };
        let key = if number % 4 == 0 { "beta-key" } else { "acme-key" };
        let answer = gateway.post(path, &secret(key), &body(model, number)).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // The provider used nothing for this one.
    mock.set_default(Script::error(400, "no"));
    assert_eq!(gateway.post(CHAT, &secret("acme-key"), &body(CHAT_MODEL, 0)).unwrap().status, 400);

    let (trace, decisions) = (gateway.dir().join("calls.csv.gz"), gateway.dir().join("decisions.csv"));
    let (trace, decisions) = (trace.to_str().unwrap(), decisions.to_str().unwrap());
    let config = gateway.config_file();
    let export = ["journal", "export", "-c", config.to_str().unwrap()];
    let all = wait_for(LIMIT, || {
        let output = run(&[&export[..], &["--json", "-o", trace]].concat());
        let told: Value = serde_json::from_slice(&output.stdout).ok()?;
        (told["calls"] == 12 && told["left_out"]["without_usage"] == 1).then_some(told)
    });
    let told = all.expect("not every call came to the journal");
    assert_eq!(told["figures"], json!({"reported": 12}));

    let output = run(&export);
    assert!(output.status.success(), "{output:?}");
    let written =
        lines(std::str::from_utf8(&output.stdout).unwrap(), ["input_tokens", "output_tokens", "key"]);
    let served = mock.calls_at_rest().into_iter().filter(|call| call.status == Some(200));
    let mut provided: Vec<[String; 2]> =
        served.map(|call| [call.generated.input.to_string(), call.generated.output.to_string()]).collect();
    provided.sort();
    let amounts: Vec<[String; 2]> =
        written.iter().map(|[input, output, _]| [input.clone(), output.clone()]).collect();
    assert_eq!(amounts, provided);
    assert_eq!(written.iter().filter(|[_, _, key]| key == "beta-key").count(), 3);

    let replayed = run(&["simulate", trace, "--limit", "1000000", "--decisions", decisions]);
    assert!(replayed.status.success(), "{replayed:?}");
    let decided = fs::read_to_string(decisions).unwrap();
    assert_eq!(lines(&decided, ["input_tokens", "output_tokens", "key"]), written);

    // A tenant's calls alone, and the same once nobody writes the journal.
    let of_beta = [&export[..], &["--tenant", "beta"]].concat();
    let running = run(&of_beta).stdout;
    assert_eq!(running.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 4);
    assert!(gateway.terminate().success());
    assert_eq!(run(&of_beta).stdout, running);
    // Reading has left the book and the journal as they are.
    gateway.start_again();
    assert_eq!(gateway.post(CHAT, &secret("acme-key"), &body(CHAT_MODEL, 0)).unwrap().status, 400);
}
