//! Responses, completions and embeddings: every surface, plain and streamed, through each ending.

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollbook_mock_upstream::{Generate, Script, Step, ToolCall, UsageMode};
use tollbook_policy::{Measure, PeriodKind};
use tollbook_store::{Ending, EntryBody, Figures};
use tollbook_wire::{Surface, Surfaces};

use crate::world::{Plan, World, key, quota, rate, tenant, used};

const RESPONSES: &str = "/v1/responses";
const COMPLETIONS: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";

fn limits() -> Plan {
    Plan::with([
        rate(tenant(), Measure::Requests, 1_000),
        rate(key(), Measure::Tokens, 1_000_000),
        quota(tenant(), Measure::Tokens, PeriodKind::Day, 10_000_000),
        quota(tenant(), Measure::Cost, PeriodKind::Month, 100_000_000_000),
    ])
}

/// A small request of a surface.
fn ask(path: &str, stream: bool) -> Value {
    let mut body = match path {
        RESPONSES => json!({ "model": "gpt", "input": "hello", "max_output_tokens": 100 }),
        COMPLETIONS => json!({ "model": "gpt", "prompt": "hello", "max_tokens": 100 }),
        _ => json!({ "model": "gpt", "input": ["hello", "you"] }),
    };
    if stream {
        body["stream"] = json!(true);
    }
    body
}

/// The only entry of the journal; nothing is held any more.
async fn entry(world: &World) -> EntryBody {
    world.settled().await;
    let mut journal = world.journal().await;
    assert_eq!(journal.len(), 1);
    journal.remove(0).1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_surface_is_booked_as_the_provider_reports_it() {
    let cases = [
        (RESPONSES, false),
        (RESPONSES, true),
        (COMPLETIONS, false),
        (COMPLETIONS, true),
        (EMBEDDINGS, false),
    ];
    for (path, stream) in cases {
        let world = World::start(limits()).await;
        world.up.script(
            Generate {
                input_llm_tokens: Some(300),
                cached_llm_tokens: 100,
                output_llm_tokens: Some(40),
                reasoning_llm_tokens: 8,
                ..Generate::default()
            }
            .into(),
        );
        let answer = world.post(path, &ask(path, stream)).await;
        assert_eq!(answer.status, 200, "{path} {}", answer.text());
        let call = world.up.calls_at_rest().remove(0);
        assert_eq!(call.path(), path, "the upstream has the same path");
        let (input, output) = used(&call);
        let entry = entry(&world).await;
        assert_eq!((entry.figures, entry.ending), (Figures::Reported, Ending::Complete), "{path} {stream}");
        let told = |amount: i64| u64::try_from(amount).unwrap();
        assert_eq!((told(entry.usage.input), told(entry.usage.output)), (input, output), "{path} {stream}");
        let total = i64::try_from(input + output).unwrap();
        assert_eq!(world.balance(0).await, (1, 0));
        assert_eq!(world.balance(1).await, (total, 0));
        assert_eq!(world.balance(2).await, (total, 0));
        if path != EMBEDDINGS {
            assert_eq!((entry.usage.cached, entry.usage.reasoning), (100, 8), "{path} {stream}");
            let cost = 200 * 2_000 + 100 * 200 + i64::try_from(output).unwrap() * 10_000;
            assert_eq!((entry.cost_nano, world.balance(3).await.0), (cost, cost), "{path} {stream}");
        }
        assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("1000"));
        assert_eq!(call.json()["model"], "gpt-upstream");
    }
}

/// What the client gets is what the provider sent, byte for byte, but for the usage chunk nobody asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_the_providers_own() {
    let world = World::start(limits()).await;
    for path in [RESPONSES, COMPLETIONS] {
        let mut asked = ask(path, true);
        if path == COMPLETIONS {
            asked["stream_options"] = json!({ "include_usage": true });
        }
        let direct = direct(&world, path, &asked).await;
        let through = world.post(path, &asked).await;
        assert_eq!(through.text().replace("gpt-upstream", "gpt"), direct, "{path}");
    }
    let silent = world.post(COMPLETIONS, &ask(COMPLETIONS, true)).await.text();
    assert!(!silent.contains("usage\":{") && silent.ends_with("data: [DONE]\n\n"), "{silent}");
    for path in [RESPONSES, COMPLETIONS, EMBEDDINGS] {
        let direct = direct(&world, path, &ask(path, false)).await;
        let through = world.post(path, &ask(path, false)).await.text().replace("gpt-upstream", "gpt");
        // The mock counts input by the length of a body, and the model's name is longer there.
        let bare = |text: &str| {
            let mut value: Value = serde_json::from_str(text).unwrap();
            value.as_object_mut().unwrap().remove("usage");
            value
        };
        assert_eq!(bare(&through), bare(&direct), "{path}");
    }
}

/// The provider's own answer, asked without the gateway.
async fn direct(world: &World, path: &str, body: &Value) -> String {
    let url = format!("{}{path}", world.up.url().trim_end_matches("/v1"));
    // As long as the body that the gateway sends.
    let mut body = body.clone();
    body["model"] = json!("gpt-upstream");
    let request = http::Request::post(url)
        .body(http_body_util::Full::new(bytes::Bytes::from(body.to_string())))
        .unwrap();
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<http_body_util::Full<bytes::Bytes>>();
    let answer = client.request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(answer.to_vec()).unwrap().replace("gpt-upstream", "gpt")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b070_every_terminal_event_of_a_response_is_charged_by_its_usage() {
    for (state, ending) in [
        ("completed", Ending::Complete),
        ("incomplete", Ending::Complete),
        ("cancelled", Ending::Complete),
        ("failed", Ending::UpstreamError),
    ] {
        for stream in [false, true] {
            let world = World::start(limits()).await;
            world.up.script(
                Generate {
                    input_llm_tokens: Some(100),
                    output_llm_tokens: Some(50),
                    finish_reason: Some(state.into()),
                    ..Generate::default()
                }
                .into(),
            );
            let answer = world.post(RESPONSES, &ask(RESPONSES, stream)).await;
            assert_eq!(answer.status, 200, "{state} {stream}: {}", answer.text());
            assert!(answer.text().contains(&format!("\"status\":\"{state}\"")), "{state} {stream}");
            let entry = entry(&world).await;
            assert_eq!((entry.usage.input, entry.usage.output), (100, 50), "{state} {stream}");
            assert_eq!((entry.figures, entry.ending), (Figures::Reported, ending), "{state} {stream}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b070_a_failed_response_without_usage_and_output_costs_nothing() {
    let failed = json!({"id": "resp_1", "object": "response", "status": "failed", "output": [],
        "error": {"code": "server_error", "message": "no"}});
    for stream in [false, true] {
        let world = World::start(limits()).await;
        let created = json!({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1",
            "object": "response", "status": "in_progress", "output": [], "usage": null}});
        let last = json!({"type": "response.failed", "sequence_number": 1, "response": failed});
        world.up.script(if stream {
            Script::steps(vec![
                Step::Text(format!("event: response.created\ndata: {created}\n\n")),
                Step::Text(format!("event: response.failed\ndata: {last}\n\n")),
            ])
        } else {
            Script::json(200, failed.clone())
        });
        let answer = world.post(RESPONSES, &ask(RESPONSES, stream)).await;
        assert_eq!(answer.status, 200, "the response itself tells the client");
        assert!(answer.text().contains("\"status\":\"failed\""));
        let entry = entry(&world).await;
        assert_eq!((entry.figures, entry.ending), (Figures::Nothing, Ending::UpstreamError), "{stream}");
        assert_eq!(world.balance(0).await, (1, 0), "the request is kept");
        assert_eq!(world.balance(2).await, (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b034_a_cut_responses_stream_is_charged_what_was_seen() {
    let delta = |n: u64| {
        let value = json!({"type": "response.output_text.delta", "sequence_number": n, "item_id": "msg",
            "output_index": 0, "content_index": 0, "delta": " word"});
        Step::Text(format!("event: response.output_text.delta\ndata: {value}\n\n"))
    };
    for cut in [Step::Close, Step::Reset] {
        let world = World::start(limits()).await;
        let mut steps = vec![Step::Text(
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\n\n"
                .into(),
        )];
        steps.extend((1..=40).map(delta));
        steps.push(Step::DelayMs(50));
        steps.push(cut);
        world.up.script(Script::steps(steps));
        let mut body = ask(RESPONSES, true);
        body["max_output_tokens"] = json!(3_000);
        let answer = world.post(RESPONSES, &body).await;
        let text = answer.text();
        assert!(
            text.contains("event: error\ndata: {\"type\":\"error\",\"code\":\"stream_incomplete\""),
            "{text}"
        );
        assert!(text.contains("\"sequence_number\":41}"), "the error is the next event: {text}");
        assert!(!text.contains("response.completed") && !text.contains("[DONE]"));
        let entry = entry(&world).await;
        assert_eq!(entry.figures, Figures::Partial);
        assert!((40..=3_000).contains(&entry.usage.output), "{:?}", entry.usage);
        assert!(entry.usage.input > 0 && entry.cost_nano > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b034_every_cut_of_every_stream_is_charged_once() {
    for path in [RESPONSES, COMPLETIONS] {
        for cut in ["client", "reset", "close", "stall", "error"] {
            let plan =
                Plan { upstream: |u| u.silence_timeout = std::time::Duration::from_millis(300), ..limits() };
            let world = World::start(plan).await;
            let base = Generate {
                output_llm_tokens: Some(100),
                chunks: Some(100),
                chunk_every_ms: 2,
                ignore_cap: true,
                ..Generate::default()
            };
            world.up.script(
                match cut {
                    "reset" => Generate { reset_at_chunk: Some(5), ..base },
                    "close" => Generate { close_at_chunk: Some(5), ..base },
                    "stall" => Generate { stall_at_chunk: Some(5), ..base },
                    "error" => Generate { error_at_chunk: Some(5), ..base },
                    _ => base,
                }
                .into(),
            );
            let body = ask(path, true);
            if cut == "client" {
                let mut response = world.open_stream(path, &body).await;
                let mut text = Vec::new();
                while text.windows(5).filter(|w| *w == b" book").count() < 1 {
                    let frame = response.body_mut().frame().await.unwrap().unwrap();
                    text.extend_from_slice(&frame.into_data().unwrap());
                }
                drop(response);
            } else {
                let text = world.post(path, &body).await.text();
                assert_eq!(text.matches("error\"").count().min(1), 1, "{path} {cut}: {text}");
                assert!(!text.contains("[DONE]") && !text.contains("response.completed"), "{path} {cut}");
            }
            let entry = entry(&world).await;
            assert_eq!(entry.figures, Figures::Partial, "{path} {cut}");
            assert!(entry.usage.output > 0 && entry.cost_nano > 0, "{path} {cut}: {entry:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b071_a_client_that_closes_after_the_terminal_event_has_not_cut_it() {
    let world = World::start(limits()).await;
    world.up.script(
        Generate { input_llm_tokens: Some(100), output_llm_tokens: Some(50), ..Generate::default() }.into(),
    );
    let mut response = world.open_stream(RESPONSES, &ask(RESPONSES, true)).await;
    let mut text = String::new();
    while !text.contains("event: response.completed") {
        let Some(frame) = response.body_mut().frame().await else { break };
        text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
    }
    drop(response);
    let entry = entry(&world).await;
    assert_eq!((entry.figures, entry.ending), (Figures::Reported, Ending::Complete));
    assert_eq!(world.balance(2).await, (150, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b073_every_surface_is_counted() {
    for path in [RESPONSES, COMPLETIONS, EMBEDDINGS] {
        let world = World::start(Plan::with([rate(key(), Measure::Tokens, 100)])).await;
        let text = "word ".repeat(58);
        let mut body = match path {
            COMPLETIONS => json!({ "model": "gpt", "prompt": text }),
            _ => json!({ "model": "gpt", "input": text }),
        };
        if path == RESPONSES {
            body["max_output_tokens"] = json!(1);
        }
        if path == COMPLETIONS {
            body["max_tokens"] = json!(1);
        }
        world.up.script(
            Generate { input_llm_tokens: Some(79), output_llm_tokens: Some(1), ..Generate::default() }.into(),
        );
        assert_eq!(world.post(path, &body).await.status, 200, "{path}");
        let again = world.post(path, &body).await;
        assert_eq!(again.status, 429, "{path}: {}", again.text());
        assert_eq!(again.json()["error"]["code"], "rate_limit_exceeded");
        assert_eq!(world.up.calls().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b074_llm_tokens_as_numbers_are_forwarded_and_counted_exactly() {
    for (path, body, count) in [
        (EMBEDDINGS, r#"{"model":"gpt","input":[[1,2,3],[4,5]]}"#, 5),
        (EMBEDDINGS, r#"{"model":"gpt","input":[7,8,9]}"#, 3),
        (COMPLETIONS, r#"{"model":"gpt","prompt":[11,12],"max_tokens":1}"#, 2),
    ] {
        let world = World::start(limits()).await;
        let headers = [("authorization", "Bearer tb_test_key")];
        let answer = world.send("POST", path, &headers, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(world.up.calls_at_rest()[0].body, body.replace("\"gpt\"", "\"gpt-upstream\""));
        assert_eq!(entry(&world).await.hold.input_llm_tokens, count, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b079_hosted_searches_of_a_response_are_charged() {
    for stream in [false, true] {
        for usage in [UsageMode::Auto, UsageMode::Never] {
            let world = World::start(limits()).await;
            let metered = usage == UsageMode::Never;
            world.up.script(
                Generate {
                    input_llm_tokens: Some(100),
                    output_llm_tokens: Some(10),
                    web_searches: 2,
                    usage,
                    ..Generate::default()
                }
                .into(),
            );
            let mut body = ask(RESPONSES, stream);
            body["tools"] = json!([{ "type": "web_search" }]);
            assert_eq!(world.post(RESPONSES, &body).await.status, 200);
            let entry = entry(&world).await;
            assert_eq!(entry.usage.web_searches, 2, "{stream}");
            assert!(entry.cost_nano >= 20_000_000, "{stream}");
            if !metered {
                assert_eq!(entry.cost_nano, 20_000_000 + 100 * 2_000 + 10 * 10_000);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complete_without_usage_is_metered_on_every_surface() {
    for (path, stream) in [
        (RESPONSES, false),
        (RESPONSES, true),
        (COMPLETIONS, false),
        (COMPLETIONS, true),
        (EMBEDDINGS, false),
    ] {
        let world = World::start(limits()).await;
        world.up.script(
            Generate { usage: UsageMode::Never, output_llm_tokens: Some(40), ..Generate::default() }.into(),
        );
        assert_eq!(world.post(path, &ask(path, stream)).await.status, 200);
        let entry = entry(&world).await;
        assert_eq!((entry.figures, entry.ending), (Figures::Metered, Ending::Complete), "{path} {stream}");
        assert!(entry.usage.input > 0, "{path} {stream}");
        let written = if path == EMBEDDINGS { 0..=0 } else { 30..=60 };
        assert!(written.contains(&entry.usage.output), "{path} {stream}: {:?}", entry.usage);
    }
}

/// `best_of` answers are made and paid, and only `n` of them come; a prompt that is repeated is no output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_do_not_come_are_held_and_charged_and_echoes_are_not() {
    for usage in [UsageMode::Auto, UsageMode::Never] {
        let plan = Plan::with([quota(key(), Measure::OutputTokens, PeriodKind::Day, 100_000)]);
        let world = World::start(plan).await;
        let reported = usage == UsageMode::Auto;
        let script = Generate { usage, output_llm_tokens: Some(30), ..Generate::default() };
        world.up.script(Script::from(script).head_after_ms(300));
        let mut body = ask(COMPLETIONS, false);
        body["prompt"] = json!(["one", "two"]);
        body["best_of"] = json!(4);
        body["n"] = json!(2);
        let call = world.post(COMPLETIONS, &body);
        let held = world.until_held(2 * 4 * 100);
        let (answer, ()) = tokio::join!(call, held);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["choices"].as_array().unwrap().len(), 4);
        let output = entry(&world).await.usage.output;
        assert!(if reported { output == 240 } else { (200..=320).contains(&output) }, "{reported}: {output}");
    }
    let world = World::start(limits()).await;
    world.up.script(
        Generate { usage: UsageMode::Never, output_llm_tokens: Some(10), ..Generate::default() }.into(),
    );
    let mut body = ask(COMPLETIONS, true);
    body["prompt"] = json!("a long prompt that comes back ".repeat(50));
    body["echo"] = json!(true);
    assert_eq!(world.post(COMPLETIONS, &body).await.status, 200);
    let usage = entry(&world).await.usage;
    assert!((5..=30).contains(&usage.output) && usage.input > 200, "{usage:?}");
}

/// Where the client says nothing the cap that is held, and sent where a hard limit needs it, is the dialect's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caps_are_written_in_the_surfaces_own_words() {
    for (path, member, cap) in [(RESPONSES, "max_output_tokens", 4_096), (COMPLETIONS, "max_tokens", 16)] {
        let plan = Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)]);
        let world = World::start(plan).await;
        let mut body = ask(path, false);
        body.as_object_mut().unwrap().remove(member);
        assert_eq!(world.post(path, &body).await.status, 200);
        assert_eq!(world.up.calls_at_rest()[0].json()[member], cap, "{path}");
    }
    let plan = Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 1_000_000)]);
    let world = World::start(plan).await;
    assert_eq!(world.post(EMBEDDINGS, &ask(EMBEDDINGS, false)).await.status, 200);
    let sent = world.up.calls_at_rest()[0].json();
    assert_eq!(sent.as_object().unwrap().len(), 2, "nothing is added: {sent}");
}

/// A hard limit that was held at the expected demand ends the stream as the surface ends at a cap (L9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_uses_up_a_hard_limit_ends_as_if_at_its_cap() {
    for (path, end) in
        [(RESPONSES, "\"reason\":\"max_output_tokens\""), (COMPLETIONS, "\"finish_reason\":\"length\"")]
    {
        let mut limit = quota(key(), Measure::OutputTokens, PeriodKind::Day, 600);
        limit.hold = Some(tollbook_policy::Hold::Expected);
        let world = World::start(Plan::with([limit])).await;
        world.up.script(
            Generate {
                output_llm_tokens: Some(5_000),
                chunks: Some(500),
                chunk_every_ms: 1,
                ignore_cap: true,
                ..Generate::default()
            }
            .into(),
        );
        let mut body = ask(path, true);
        body[if path == RESPONSES { "max_output_tokens" } else { "max_tokens" }] = json!(4_000);
        let text = world.post(path, &body).await.text();
        let last = text.trim_end().rsplit("\n\n").find(|event| !event.contains("[DONE]")).unwrap();
        assert!(last.contains(end), "{path}: {last}");
        assert_eq!(text.ends_with("data: [DONE]\n\n"), path == COMPLETIONS);
        if path == RESPONSES {
            let data: Value = serde_json::from_str(last.split_once("data: ").unwrap().1).unwrap();
            assert_eq!(data["type"], "response.incomplete");
            assert!(data["response"]["usage"]["total_tokens"].is_u64(), "b072: figures are numbers");
            assert_eq!(data["response"]["usage"]["input_tokens_details"]["cached_tokens"], 0);
        }
        assert_eq!(entry(&world).await.ending, Ending::StoppedAtLimit, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_stream_and_are_metered() {
    for stream in [false, true] {
        let world = World::start(limits()).await;
        let tool = ToolCall { name: "get_weather".into(), arguments: r#"{"city":"Delft","days":3}"#.into() };
        world.up.script(
            Generate { tool_call: Some(tool), usage: UsageMode::Never, ..Generate::default() }.into(),
        );
        let answer = world.post(RESPONSES, &ask(RESPONSES, stream)).await;
        assert!(answer.text().contains("function_call"));
        let output = entry(&world).await.usage.output;
        assert!((8..=20).contains(&output), "{stream}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_booked_is_refused_by_name() {
    let world = World::start(limits()).await;
    let mut body = ask(RESPONSES, false);
    body["background"] = json!(true);
    let answer = world.post(RESPONSES, &body).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["param"], "background");
    for path in [RESPONSES, COMPLETIONS, EMBEDDINGS] {
        let mut body = ask(path, false);
        body["models"] = json!(["dear"]);
        assert_eq!(world.post(path, &body).await.json()["error"]["param"], "models");
        let answer = world.send("GET", path, &[("authorization", "Bearer tb_test_key")], "").await;
        assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, Some("POST")));
    }
    // What was stored by one call is not to be had by a second: it may be another tenant's.
    for path in ["/v1/responses/resp_1", "/v1/responses/resp_1/cancel"] {
        assert_eq!(world.post(path, &json!({})).await.status, 404);
    }
    assert!(world.up.calls().is_empty());
    assert_eq!(world.balance(0).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_served_on_its_surfaces_only() {
    let surfaces: Surfaces = [Surface::Chat, Surface::Embeddings].into_iter().collect();
    let world = World::start(Plan { surfaces: Some(surfaces), ..limits() }).await;
    assert_eq!(world.post(EMBEDDINGS, &ask(EMBEDDINGS, false)).await.status, 200);
    for path in [RESPONSES, COMPLETIONS] {
        let answer = world.post(path, &ask(path, false)).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["code"], "model_not_on_path", "{}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    let mut body = ask(RESPONSES, false);
    body["model"] = json!("claude");
    assert_eq!(world.post(RESPONSES, &body).await.json()["error"]["code"], "model_not_on_path");
    assert_eq!(world.up.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b109_a_stored_conversation_is_held_and_charged_in_full() {
    let limit = quota(key(), Measure::Tokens, PeriodKind::Day, 200_000);
    let world = World::start(Plan::with([limit])).await;
    world.up.hold_until_released();
    let script: Script =
        Generate { input_llm_tokens: Some(100_000), output_llm_tokens: Some(10), ..Generate::default() }
            .into();
    world.up.set_default(script);
    let mut body = ask(RESPONSES, false);
    body["previous_response_id"] = json!("resp_0");
    let calls = (0..5).map(|_| world.post(RESPONSES, &body));
    let release = async {
        world.until("five are held", || world.up.calls().len() == 5).await;
        assert!(world.held().await >= 5 * 8_192, "the configured size of a stored conversation is held");
        world.up.release();
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(calls), release);
    assert!(answers.iter().all(|answer| answer.status == 200));
    world.settled().await;
    assert_eq!(world.balance(0).await, (500_050, 0), "none of it is dropped");
    assert_eq!(world.post(RESPONSES, &body).await.status, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b162_an_error_as_the_first_event_is_an_error_answer() {
    let flat = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"no\",\"param\":null,\"sequence_number\":0}\n\n";
    for (path, text) in [
        (RESPONSES, flat),
        (COMPLETIONS, "data: {\"error\":{\"message\":\"no\",\"type\":\"server_error\"}}\n\n"),
    ] {
        let world = World::start(limits()).await;
        world.up.script(Script::steps(vec![Step::Text(text.into())]));
        let answer = world.post(path, &ask(path, true)).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "server_error");
        assert_eq!(entry(&world).await.figures, Figures::Nothing);
        assert_eq!(world.balance(2).await, (0, 0));
    }
}
