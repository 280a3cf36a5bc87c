//! Field cases USE, ANT and NUM as whole calls: what the provider says, what the client gets, what is charged and told.

use serde_json::{Value, json};
use tollbook_mock_upstream::{Generate, Script, Step, UsageMode};
use tollbook_policy::{EstimatorChoice, Measure, MeterPair, PeriodKind, Scope, Subject};
use tollbook_pricing::{ModelFacts, Price, PriceDraft, RatesDraft};
use tollbook_store::{Ending, EntryBody, Figures, Side};
use tollbook_telemetry::labels::{Anomaly, Measure as Counted};

use crate::world::{
    API_KEY, Answer, OTHER_API_KEY, Plan, World, ask, ask_stream, fixture_price, key, quota, rate, tenant,
};

/// llm_tokens and money of a day, wide enough to pass.
fn wide() -> Plan {
    Plan::with([
        quota(tenant(), Measure::Tokens, PeriodKind::Day, 1_000_000_000),
        quota(tenant(), Measure::Cost, PeriodKind::Day, 1_000_000_000_000),
    ])
}

fn messages(stream: bool) -> Value {
    json!({ "model": "claude", "max_tokens": 50, "stream": stream, "messages": [{ "role": "user", "content": "hi" }] })
}

/// A whole chat answer whose usage object is this text, which need not be sound.
fn completion(usage: &str) -> Script {
    let body = format!(
        r#"{{"id":"c","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":"some words"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
    );
    Script::steps(vec![Step::Text(body)]).header("content-type", "application/json")
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

/// A whole stream of the messages dialect with usage in its first and in its last event.
fn stream_of_messages(start: &Value, delta: &Value) -> String {
    [
        json!({ "type": "message_start", "message": { "id": "m", "type": "message", "role": "assistant", "content": [], "usage": start } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "some words" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": delta }),
        json!({ "type": "message_stop" }),
    ]
    .iter()
    .map(event)
    .collect()
}

/// The last entry, once nothing is held any more.
async fn entry(world: &World) -> EntryBody {
    world.settled().await;
    world.journal().await.pop().expect("an entry").1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b057_a_missing_member_costs_no_answer_and_is_not_free() {
    let world = World::start(wide()).await;
    for usage in [
        r#"{"prompt_tokens":40,"total_tokens":55}"#,
        r#"{"completion_tokens":15,"total_tokens":55}"#,
        r#"{"total_tokens":55}"#,
    ] {
        let before = (world.balance(0).await.0, world.balance(1).await.0);
        world.up.script(completion(usage));
        let answer = world.chat(&ask("x")).await;
        assert_eq!(answer.status, 200, "{usage}");
        assert!(answer.text().contains(usage), "the client gets what the provider said");
        let entry = entry(&world).await;
        let (input, output) = (entry.usage.input, entry.usage.output);
        if usage.matches("tokens").count() > 1 {
            assert_eq!((input, output), (40, 15), "{usage}");
        }
        assert!(input + output == 55 && input > 0 && output > 0, "{usage}: {input} {output}");
        assert_eq!((entry.figures, entry.ending), (Figures::Reported, Ending::Complete));
        assert_eq!(entry.cost_nano, input * 2_000 + output * 10_000);
        let after = (world.balance(0).await.0, world.balance(1).await.0);
        assert_eq!((after.0 - before.0, after.1 - before.1), (55, entry.cost_nano), "{usage}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b058_b059_b065_a_stream_of_messages_costs_what_its_two_usages_say_together() {
    let cases = [
        (
            "b058",
            json!({ "input_tokens": 30, "output_tokens": 1 }),
            json!({ "output_tokens": 20 }),
            (30, 20, 260_000),
        ),
        (
            "b059",
            json!({ "input_tokens": 300, "cache_creation_input_tokens": 4_000, "cache_read_input_tokens": 0, "output_tokens": 1 }),
            json!({ "input_tokens": 300, "cache_creation_input_tokens": 4_000, "cache_read_input_tokens": 0, "output_tokens": 40 }),
            (4_300, 40, 11_000_000),
        ),
        (
            "b065",
            json!({ "input_tokens": 2_410, "output_tokens": 1 }),
            json!({ "input_tokens": 10, "cache_read_input_tokens": 2_400, "output_tokens": 5 }),
            (2_410, 5, 550_000),
        ),
    ];
    for (case, start, delta, (input, output, cost)) in cases {
        let world = World::start(wide()).await;
        let text = stream_of_messages(&start, &delta);
        world.up.script(Script::steps(vec![Step::Text(text.clone())]));
        let answer = world.post("/v1/messages", &messages(true)).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, text), "{case}");
        let entry = entry(&world).await;
        assert_eq!((entry.usage.input, entry.usage.output, entry.cost_nano), (input, output, cost), "{case}");
        assert_eq!(world.balance(0).await, (input + output, 0), "{case}");
        assert_eq!(world.balance(1).await, (cost, 0), "{case}");
        assert_eq!(entry.figures, Figures::Reported, "{case}");
    }
}

/// Posted amounts never fall, whatever is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b082_negative_usage_is_counted_as_odd_and_charged_as_estimated() {
    let world = World::start(wide()).await;
    world.up.script(Script::output(7));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let (llm_tokens, cost) = (world.balance(0).await.0, world.balance(1).await.0);
    let usage = r#"{"prompt_tokens":-500,"completion_tokens":-100,"total_tokens":-600}"#;
    world.up.script(completion(usage));
    let answer = world.chat(&ask("x")).await;
    assert!(answer.status == 200 && answer.text().contains(usage), "the answer is passed on");
    let plain = entry(&world).await;
    assert_eq!(plain.figures, Figures::Metered);
    assert!(plain.usage.input > 0 && plain.usage.output > 0 && plain.cost_nano > 0, "{plain:?}");
    let negative = |world: &World| world.metrics.usage_anomalies.get((Anomaly::Negative,));
    assert_eq!(negative(&world), 3, "each figure is counted");
    let after = (world.balance(0).await.0, world.balance(1).await.0);
    assert_eq!(after.0 - llm_tokens, plain.usage.input + plain.usage.output);
    assert_eq!(after.1 - cost, plain.cost_nano);

    world.up.script(Generate { usage: UsageMode::Negative, ..Generate::default() }.into());
    assert_eq!(world.chat(&ask_stream("x")).await.status, 200);
    assert_eq!(entry(&world).await.figures, Figures::Metered);
    assert!(world.balance(0).await.0 > after.0 && world.balance(1).await.0 > after.1);
    assert!(negative(&world) > 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b083_a_fraction_is_not_believed_and_fails_no_answer() {
    let world = World::start(wide()).await;
    let cases = [
        (r#""12""#, Some(12), None),
        ("12.0", Some(12), None),
        ("1e3", Some(1_000), None),
        // The case would have 13; design section 5 decides that a fractional usage is not believed.
        ("12.7", None, Some(Anomaly::Fraction)),
        (r#""12abc""#, None, Some(Anomaly::NotANumber)),
        ("true", None, Some(Anomaly::NotANumber)),
    ];
    for (input, want, anomaly) in cases {
        let odd = |world: &World| anomaly.map_or(0, |anomaly| world.metrics.usage_anomalies.get((anomaly,)));
        let before = odd(&world);
        world.up.script(completion(&format!(r#"{{"prompt_tokens":{input},"completion_tokens":5}}"#)));
        assert_eq!(world.chat(&ask("x")).await.status, 200, "{input}");
        let entry = entry(&world).await;
        assert_eq!(entry.usage.output, 5, "{input}");
        match want {
            Some(want) => {
                assert_eq!((entry.usage.input, entry.figures), (want, Figures::Reported), "{input}");
            }
            None => assert!(entry.usage.input > 0 && entry.figures == Figures::Metered, "{input}: {entry:?}"),
        }
        assert_eq!(odd(&world) - before, u64::from(anomaly.is_some()), "{input}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b084_absurd_usage_is_counted_as_odd_and_locks_nobody_out() {
    let world = World::start(wide()).await;
    let huge = i64::MAX;
    let both = json!({ "input_tokens": huge, "cache_read_input_tokens": huge, "output_tokens": 5 });
    let message = json!({ "id": "m", "type": "message", "role": "assistant", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": "some words" }], "usage": both });
    for output in ["2147483647", "9223372036854775807", "1e400", "sum"] {
        let before = (world.balance(0).await.0, world.metrics.usage_anomalies.get((Anomaly::TooLarge,)));
        let answer = if output == "sum" {
            world.up.script(Script::json(200, message.clone()));
            world.post("/v1/messages", &messages(false)).await
        } else {
            world.up.script(completion(&format!(r#"{{"prompt_tokens":9,"completion_tokens":{output}}}"#)));
            world.chat(&ask("x")).await
        };
        assert_eq!(answer.status, 200, "{output}: {}", answer.text());
        let entry = entry(&world).await;
        assert_eq!(entry.ending, Ending::Complete, "{output}");
        let charged = entry.usage.input + entry.usage.output;
        assert!(charged > 0 && charged <= i64::try_from(entry.hold.worst_llm_tokens).unwrap(), "{output}");
        assert!(entry.cost_nano > 0 && entry.cost_nano <= i64::try_from(entry.hold.worst_cost_nano).unwrap());
        assert_eq!(world.balance(0).await.0 - before.0, charged, "{output}");
        assert!(world.metrics.usage_anomalies.get((Anomaly::TooLarge,)) > before.1, "{output}");
    }
    for api_key in [API_KEY, OTHER_API_KEY] {
        let headers = [("x-api-key", api_key)];
        let answer = world.send("POST", "/v1/chat/completions", &headers, ask("x").to_string()).await;
        assert_eq!(answer.status, 200, "other calls go on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b089_money_is_the_same_integer_and_the_same_text_wherever_it_is_told() {
    let world = World::start(wide()).await;
    world.up.script(completion(r#"{"prompt_tokens":4,"completion_tokens":0,"total_tokens":4}"#));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    assert_eq!(entry(&world).await.cost_nano, 8_000);
    assert_eq!(world.balance(1).await, (8_000, 0));
    let limits = world.send("GET", "/v1/limits", &[("x-api-key", API_KEY)], "").await;
    let limits = limits.json();
    let money = limits["data"].as_array().unwrap().iter().find(|line| line["measure"] == "cost").unwrap();
    assert_eq!((&money["posted"], &money["unit"]), (&json!(8_000), &json!("nano-currency")));
    let text = json!({ "ceiling": "1000", "posted": "0.000008", "held": "0", "remaining": "999.999992" });
    assert_eq!(money["decimal"], text);
    let others = limits["data"].as_array().unwrap().iter().filter(|line| line["measure"] != "cost");
    assert!(others.into_iter().all(|line| line.get("decimal").is_none()));
    let scrape = world.send("GET", "/metrics", &[], "").await.text();
    assert!(scrape.contains("tollbook_usage_cost_nano_total{model=\"gpt\"} 8000\n"), "{scrape}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b090_a_served_call_without_a_price_is_counted_and_a_free_one_is_not() {
    let limit = || rate(tenant(), Measure::Requests, 9);
    let world = World::start(Plan { priced: false, claude_is_free: true, ..Plan::with([limit()]) }).await;
    let unpriced = |model: &str| world.metrics.usage_unpriced.get((world.metrics.label(model),));
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    let body = entry(&world).await;
    assert!(body.flags.unpriced && body.cost_nano == 0 && body.usage.output > 0, "{body:?}");
    assert_eq!((unpriced("gpt"), unpriced("claude")), (1, 0));
    assert_eq!(world.post("/v1/messages", &messages(false)).await.status, 200);
    let body = entry(&world).await;
    assert!(!body.flags.unpriced && body.cost_nano == 0 && body.usage.output > 0, "{body:?}");
    assert_eq!((unpriced("gpt"), unpriced("claude")), (1, 0), "the price 0 is a price");

    // A budget anywhere above the call refuses it, and nothing is sent.
    for scope in [tenant(), crate::world::project(), key()] {
        let budget = quota(scope, Measure::Cost, PeriodKind::Day, 1_000_000_000);
        let world = World::start(Plan { priced: false, ..Plan::with([limit(), budget]) }).await;
        let refused = world.chat(&ask("x")).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]["code"]),
            (400, &json!("model_unpriced"))
        );
        assert_eq!((world.up.calls().len(), world.balance(0).await), (0, (0, 0)));
    }
}

/// Twice the input price above 200,000 llm_tokens, twice everything for `priority`.
fn steep() -> Price {
    let step = RatesDraft { input: Some("4".to_owned()), ..RatesDraft::default() };
    let rates = RatesDraft { cache_write_5m: None, cache_write_1h: None, ..fixture_price().rates };
    let tiers = vec![("priority".to_owned(), "2".to_owned())];
    Price::new(&PriceDraft { rates, steps: vec![(200_000, step)], tiers, ..fixture_price() }).unwrap()
}

fn steeply(budget: i128) -> Plan {
    Plan {
        price: Some(steep()),
        // Without a public vocabulary: near the limit the count is the one of the door.
        facts: ModelFacts { context: None, ..ModelFacts::guessed("nobodys-model") },
        ..Plan::with([quota(key(), Measure::Cost, PeriodKind::Day, budget)])
    }
}

/// What one call holds of the budget, and its answer.
async fn held_by(world: &World, body: &Value, script: Script) -> (i64, Answer) {
    world.up.script(script);
    world.held_by("/v1/chat/completions", body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b092_long_prompts_and_dear_tiers_are_held_and_settled_at_their_own_price() {
    let of = |input: u64, tier: &str| {
        let usage = json!({ "prompt_tokens": input, "completion_tokens": 10, "total_tokens": input + 10 });
        let message = json!({ "role": "assistant", "content": "x" });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        Script::json(200, json!({ "id": "c", "choices": [choice], "usage": usage, "service_tier": tier }))
    };
    let mut long = ask(&"lorem ipsum ".repeat(77_000));
    long["max_tokens"] = json!(10);
    let mut dear = ask(&"lorem ipsum ".repeat(1_000));
    dear["max_tokens"] = json!(10);
    let mut base = dear.clone();
    dear["service_tier"] = json!("priority");
    base["service_tier"] = json!("default");

    // Each in a world of its own: what was learned from one call changes the hold of the next.
    let fresh = || World::start(steeply(1_000_000_000_000));
    let world = fresh().await;
    let (of_long, answer) = held_by(&world, &long, of(250_000, "default")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(of_long >= 240_000 * 4_000, "held at the price above the step: {of_long}");
    assert_eq!(entry(&world).await.cost_nano, 250_000 * 4_000 + 100_000, "the step of the true size");
    world.up.script(of(200_000, "default"));
    assert_eq!(world.chat(&long).await.status, 200);
    assert_eq!(entry(&world).await.cost_nano, 200_000 * 2_000 + 100_000, "not of the estimate");

    let world = fresh().await;
    let (of_base, _) = held_by(&world, &base, of(3_000, "default")).await;
    assert_eq!(entry(&world).await.cost_nano, 3_000 * 2_000 + 100_000);
    let world = fresh().await;
    let (of_dear, _) = held_by(&world, &dear, of(3_000, "priority")).await;
    assert_eq!(of_dear, 2 * of_base);
    assert_eq!(entry(&world).await.cost_nano, 2 * (3_000 * 2_000 + 100_000));
    world.up.script(of(3_000, "default"));
    assert_eq!(world.chat(&dear).await.status, 200);
    assert_eq!(entry(&world).await.cost_nano, 3_000 * 2_000 + 100_000, "the tier that served it is paid");

    // A budget one nano below what such a call may cost refuses it; one that covers it does not.
    for (body, held) in [(&long, of_long), (&dear, of_dear)] {
        let short = World::start(steeply(i128::from(held) - 1)).await;
        let refused = short.chat(body).await;
        assert!(matches!(refused.status.as_u16(), 413 | 429), "{}", refused.text());
        assert_eq!((short.up.calls().len(), short.balance(0).await), (0, (0, 0)));
        let enough = World::start(steeply(i128::from(held))).await;
        enough.up.script(of(10, "default"));
        assert_eq!(enough.chat(body).await.status, 200);
    }
}

/// 10,000 llm_tokens a call, 8,000 of them from a cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b112_cached_input_counts_toward_a_rate_by_setting_and_toward_quotas_always() {
    for (meter, served) in [(MeterPair::WITHOUT_CACHE_READ, 5), (MeterPair::PLAIN, 1)] {
        let mut per_minute = rate(key(), Measure::Tokens, 10_000);
        per_minute.meter = Some(meter);
        per_minute.estimator = Some(EstimatorChoice::Constant(10));
        let mut plan = wide();
        plan.limits.push(per_minute);
        let world = World::start(plan).await;
        world.up.set_default(
            Generate {
                input_llm_tokens: Some(9_990),
                cached_llm_tokens: 8_000,
                output_llm_tokens: Some(10),
                ..Generate::default()
            }
            .into(),
        );
        for _ in 0..served {
            let answer = world.chat(&ask("x")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let refused = world.chat(&ask("x")).await;
        assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded", "{served}");
        assert_eq!(world.balance(2).await, (10_000, 0));
        assert_eq!(world.balance(0).await, (served * 10_000, 0), "the day sees all");
        let cost = 1_990 * 2_000 + 8_000 * 200 + 10 * 10_000;
        assert_eq!(world.balance(1).await, (served * cost, 0), "money sees all");
    }
}

/// The provider's input is three times the estimate: it is settled in full, and the next call meets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b110_what_an_estimate_misses_is_refused_or_settled_in_full() {
    let mut body = ask(&"1\n".repeat(30_000));
    body["max_tokens"] = json!(10);
    let real =
        || Generate { input_llm_tokens: Some(60_000), output_llm_tokens: Some(10), ..Generate::default() };
    let world = World::start(Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 30_000)])).await;
    world.up.script(real().into());
    let first = world.chat(&body).await;
    if first.status == 200 {
        world.settled().await;
        assert_eq!(world.balance(0).await, (60_010, 0), "an overrun is settled in full");
        assert_eq!(world.metrics.settle_overruns.get((Counted::LlmTokens,)), 1);
    } else {
        assert_eq!((first.status.as_u16(), world.up.calls().len()), (413, 0), "{}", first.text());
        assert_eq!(world.balance(0).await, (0, 0));
    }
    let sent = world.up.calls().len();
    let next = world.chat(&body).await;
    assert!(matches!(next.status.as_u16(), 413 | 429), "{}", next.text());
    assert_eq!(world.up.calls().len(), sent);

    // Where it is let in, on a wider limit, what the estimate missed is all posted.
    let world = World::start(Plan::with([quota(key(), Measure::Tokens, PeriodKind::Day, 90_000)])).await;
    world.up.script(real().into());
    assert_eq!(world.chat(&body).await.status, 200);
    world.settled().await;
    assert_eq!(world.balance(0).await, (60_010, 0));
    let refused = world.chat(&body).await;
    assert_eq!(refused.json()["error"]["code"], "insufficient_quota", "the next one sees it");
    assert_eq!(world.up.calls().len(), 1);
}

/// What was expected of a call is told alike on both sides, also where the pool limits neither money nor llm_tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pools_entry_tells_what_the_tenants_receipt_expected() {
    let mut plan = wide();
    let pool = Scope::One(Subject::Pool { pool: "openai/gpt".into() });
    plan.limits.push(rate(pool, Measure::Requests, 100));
    let world = World::start(plan).await;
    for _ in 0..4 {
        world.up.script(Script::output(9));
        assert_eq!(world.chat(&ask("x")).await.status, 200);
        world.settled().await;
    }
    let journal = world.journal().await;
    let side = |side| journal.iter().rev().find(move |(_, entry)| entry.side == side).unwrap().1.hold;
    let (of_tenant, of_pool) = (side(Side::Tenant), side(Side::Pool));
    assert_eq!(of_pool.expected_cost_nano, of_tenant.expected_cost_nano);
    assert_eq!(of_pool.expected_llm_tokens, of_tenant.expected_llm_tokens);
    assert!(of_pool.expected_llm_tokens < 100, "learned, not guessed: {of_pool:?}");
}

/// Nothing asks for `[DONE]` but the dialects that end with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b125_a_stream_without_done_is_charged_exactly_and_other_dialects_get_nothing_added() {
    let world = World::start(wide()).await;
    let generate = Generate {
        omit_done: true,
        input_llm_tokens: Some(30),
        output_llm_tokens: Some(7),
        usage: UsageMode::Final,
        ..Generate::default()
    };
    world.up.script(generate.into());
    let text = world.chat(&ask_stream("x")).await.text();
    assert!(text.ends_with("\n\ndata: [DONE]\n\n") && text.matches("[DONE]").count() == 1, "{text}");
    let body = entry(&world).await;
    assert_eq!((body.figures, body.ending), (Figures::Reported, Ending::Complete));
    assert_eq!((body.usage.input, body.usage.output), (30, 7));
    assert_eq!(world.balance(0).await, (37, 0));

    let response = json!({ "model": "gpt", "input": "x", "max_output_tokens": 50, "stream": true });
    for (path, body, last) in
        [("/v1/messages", messages(true), "message_stop"), ("/v1/responses", response, "response.completed")]
    {
        let text = world.post(path, &body).await.text();
        let terminal = text.rfind("event: ").and_then(|at| text.get(at..)).unwrap_or_default();
        assert!(terminal.starts_with(&format!("event: {last}\n")), "{path}: {terminal}");
        assert!(terminal.ends_with("\n\n") && terminal.matches("\n\n").count() == 1, "{path}: {terminal}");
        assert!(!text.contains("[DONE]"), "{path}");
        assert_eq!(entry(&world).await.ending, Ending::Complete, "{path}");
    }
}
