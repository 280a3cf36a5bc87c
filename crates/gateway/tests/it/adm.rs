//! Field cases ADM: asking for room and taking it are one step, over all dimensions and scopes.

use std::sync::Arc;

use serde_json::{Value, json};
use tollbook_mock_upstream::{Generate, Script};
use tollbook_policy::{EstimatorChoice, Hold, Measure, PeriodKind, Strictness};
use tollbook_telemetry::labels::{Denial, Measure as Counted, Side};

use crate::world::{Answer, OTHER_API_KEY, Plan, World, ask, concurrency, key, project, quota, rate, tenant};

/// Sends `n` calls at one moment and returns their answers.
async fn burst(world: &Arc<World>, n: usize, body: &Value) -> Vec<Answer> {
    let barrier = Arc::new(tokio::sync::Barrier::new(n));
    let calls: Vec<_> = (0..n)
        .map(|_| {
            let (world, barrier, body) = (Arc::clone(world), Arc::clone(&barrier), body.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                world.chat(&body).await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

fn count(answers: &[Answer], status: u16) -> usize {
    answers.iter().filter(|a| a.status == status).count()
}

/// A limit on llm_tokens whose hold is exactly `n` per call whatever the text: input weighs nothing.
fn output_rate(ceiling: i128, each: u64) -> tollbook_policy::LimitDraft {
    let mut limit = rate(key(), Measure::OutputTokens, ceiling);
    limit.estimator = Some(EstimatorChoice::Constant(each));
    limit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b001_concurrent_calls_against_a_limit_with_room_for_one() {
    for _ in 0..20 {
        let world = Arc::new(World::start(Plan::with([output_rate(100, 60)])).await);
        world.up.set_default(Script::output(60).head_after_ms(30));
        let answers = burst(&world, 5, &ask("hello")).await;
        assert_eq!((count(&answers, 200), count(&answers, 429)), (1, 4));
        assert_eq!(world.up.calls().len(), 1);
        assert_eq!(world.balance(0).await, (60, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b002_a_budget_is_not_passed_by_a_burst() {
    let mut budget = quota(key(), Measure::Cost, PeriodKind::Day, 1_000_000);
    budget.hold = Some(Hold::Worst);
    let world = Arc::new(World::start(Plan::with([budget])).await);
    // The worst case: about 30 of input and 50 of output at 10,000 each stays under one budget, two do not fit.
    let mut body = ask("hello");
    body["max_tokens"] = json!(60);
    world.up.set_default(Script::output(40));
    world.up.hold_until_released();
    let sent = {
        let (world, body) = (Arc::clone(&world), body.clone());
        tokio::spawn(async move { burst(&world, 20, &body).await })
    };
    let busy = (Side::Tenant, Counted::Cost, Denial::Busy);
    world.until("19 are refused", || world.metrics.admission_denied.get(busy) == 19).await;
    world.up.release();
    let answers = sent.await.unwrap();
    assert_eq!((count(&answers, 200), count(&answers, 429)), (1, 19));
    // A hold stands in their way, which may free what it holds: to wait is worth it.
    for refused in answers.iter().filter(|a| a.status == 429) {
        assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(world.up.calls().len(), 1);
    let (posted, held) = world.balance(0).await;
    assert!((400_000..=500_000).contains(&posted) && held == 0, "{posted} {held}");
    // What is posted stays: what does not fit beside it is refused for the day, what does is admitted.
    let spent = world.chat(&body).await;
    assert_eq!((spent.status.as_u16(), &spent.json()["error"]["code"]), (429, &json!("insufficient_quota")));
    body["max_tokens"] = json!(30);
    assert_eq!(world.chat(&body).await.status, 200);
    assert!(world.balance(0).await.0 <= 1_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b003_every_dimension_is_held() {
    let mut llm_tokens = quota(key(), Measure::OutputTokens, PeriodKind::Day, 1_000);
    llm_tokens.hold = Some(Hold::Worst);
    let money = quota(key(), Measure::Cost, PeriodKind::Day, 1_000_000_000_000);
    let world = Arc::new(World::start(Plan::with([llm_tokens, money])).await);
    world.up.set_default(Script::output(10).head_after_ms(50));
    let mut body = ask("hello");
    body["max_tokens"] = json!(400);
    world.up.hold_until_released();
    let sent = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { burst(&world, 10, &body).await })
    };
    world.until("two are at the provider", || world.up.calls().len() == 2).await;
    let (_, held) = world.balance(1).await;
    let (posted, tokens_held) = world.balance(0).await;
    assert_eq!((posted, tokens_held), (0, 800));
    world.up.release();
    let answers = sent.await.unwrap();
    assert_eq!((count(&answers, 200), count(&answers, 429)), (2, 8));
    assert!(held > 0, "the two hold money");
    let refusal = answers.iter().find(|a| a.status == 429).unwrap().json();
    assert!(refusal["error"]["message"].as_str().unwrap().contains("output tokens"), "{refusal}");
    assert_eq!(world.held().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b005_a_call_refused_by_one_limit_consumes_no_other() {
    let world =
        Arc::new(World::start(Plan::with([rate(key(), Measure::Requests, 2), concurrency(key(), 1)])).await);
    world.up.hold_until_released();
    let first = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.chat(&ask("a")).await })
    };
    world.until("A is at the provider", || world.up.calls().len() == 1).await;
    assert_eq!(world.chat(&ask("b")).await.status, 429);
    world.up.release();
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(world.chat(&ask("c")).await.status, 200);
    assert_eq!(world.balance(0).await, (2, 0));
    let refused = world.chat(&ask("d")).await;
    assert_eq!(refused.status, 429);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("requests"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b006_a_scope_with_room_is_not_charged_for_a_refusal_elsewhere() {
    let world = World::start(Plan::with([
        rate(tenant(), Measure::Requests, 100),
        rate(project(), Measure::Requests, 10),
    ]))
    .await;
    let mut admitted = 0;
    for _ in 0..60 {
        admitted += u32::from(world.chat(&ask("x")).await.status == 200);
    }
    assert_eq!(admitted, 10);
    assert_eq!(world.balance(0).await, (10, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b008_a_scope_counts_once_per_call() {
    let mut limit = rate(project(), Measure::Requests, 10);
    limit.model = Some("gpt".into());
    let world = World::start(Plan::with([limit])).await;
    for left in (0..10).rev() {
        let answer = world.chat(&ask("x")).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some(left.to_string().as_str()));
    }
    assert_eq!(world.chat(&ask("x")).await.status, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b009_usage_without_a_total_counts_in_full() {
    let mut limit = rate(key(), Measure::Tokens, 400);
    limit.estimator = Some(EstimatorChoice::Constant(20));
    let world = World::start(Plan::with([limit])).await;
    let usage = Generate {
        input_llm_tokens: Some(100),
        output_llm_tokens: Some(50),
        ignore_cap: true,
        ..Generate::default()
    };
    world.up.set_default(usage.into());
    let body =
        json!({ "model": "claude", "max_tokens": 20, "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(world.post("/v1/messages", &body).await.status, 200);
    assert_eq!(world.balance(0).await, (150, 0));
    assert_eq!(world.post("/v1/messages", &body).await.status, 200);
    assert_eq!(world.balance(0).await, (300, 0));
    let long = json!({ "model": "claude", "max_tokens": 20, "messages": [{ "role": "user", "content": "hi ".repeat(300) }] });
    assert_eq!(world.post("/v1/messages", &long).await.status, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b010_one_call_larger_than_the_whole_limit() {
    let world = World::start(Plan::with([rate(key(), Measure::Tokens, 100)])).await;
    let refused = world.chat(&ask(&"word ".repeat(20_000))).await;
    assert_eq!(refused.status, 413);
    assert_eq!(refused.json()["error"]["code"], "request_too_large");
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert_eq!(refused.header("retry-after"), None);
    assert_eq!(world.up.calls().len(), 0);
    assert_eq!(world.balance(0).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b011_the_last_unit_of_a_limit_can_be_used() {
    let world = World::start(Plan::with([rate(key(), Measure::Requests, 10)])).await;
    for _ in 0..9 {
        assert_eq!(world.chat(&ask("x")).await.status, 200);
    }
    let tenth = world.chat(&ask("x")).await;
    assert_eq!((tenth.status.as_u16(), tenth.header("x-ratelimit-remaining-requests")), (200, Some("0")));
    assert_eq!(world.chat(&ask("x")).await.status, 429);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b090_an_unpriced_model_does_not_pass_a_budget() {
    let budget = quota(tenant(), Measure::Cost, PeriodKind::Day, 1_000_000_000);
    let world = World::start(Plan { priced: false, ..Plan::with([budget]) }).await;
    let refused = world.chat(&ask("x")).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["code"], "model_unpriced");
    assert_eq!(world.up.calls().len(), 0);
    let world =
        World::start(Plan { priced: false, ..Plan::with([rate(tenant(), Measure::Requests, 9)]) }).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    assert!(world.journal().await[0].1.flags.unpriced);
}

/// 200 parallel calls against a limit with room for 10, 200 times; sampled while it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_of_two_hundred_parallel_calls_pass() {
    let world = Arc::new(
        World::start(Plan::with([rate(tenant(), Measure::Requests, 1_000_000), concurrency(key(), 10)]))
            .await,
    );
    for round in 1..=200_usize {
        world.up.hold_until_released();
        let sent = {
            let world = Arc::clone(&world);
            tokio::spawn(async move { burst(&world, 200, &ask("x")).await })
        };
        world.until("ten are at the provider", || world.up.totals().in_flight == 10).await;
        let (posted, held) = world.balance(1).await;
        assert!(posted == 0 && held <= 10, "held {held} in round {round}");
        // All others are refused while the ten are held.
        let before = world.up.totals().calls;
        world
            .until("the others were refused", || world.refused() >= u64::try_from(round * 190).unwrap())
            .await;
        world.up.release();
        let answers = sent.await.unwrap();
        assert_eq!((count(&answers, 200), count(&answers, 429)), (10, 190), "round {round}");
        assert_eq!(world.up.totals().calls, before);
        assert_eq!(usize::try_from(world.up.totals().calls).unwrap(), round * 10);
        assert_eq!(world.balance(1).await.1, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadow_limits_are_written_and_never_shown() {
    let mut shadow = rate(key(), Measure::Requests, 1);
    shadow.shadow = true;
    let world = World::start(Plan::with([shadow])).await;
    for n in 1..=3 {
        let answer = world.chat(&ask("x")).await;
        assert_eq!(answer.status, 200);
        assert!(answer.header("x-ratelimit-limit-requests").is_none());
        assert_eq!(world.balance(0).await, (n, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_one_key_does_not_bind_another() {
    let mut limit = rate(key(), Measure::Requests, 1);
    limit.strictness = Some(Strictness::Soft);
    let world = World::start(Plan::with([limit])).await;
    assert_eq!(world.chat(&ask("x")).await.status, 200);
    assert_eq!(world.chat(&ask("x")).await.status, 429);
    let headers = [("x-api-key", OTHER_API_KEY)];
    assert_eq!(world.send("POST", "/v1/chat/completions", &headers, ask("x").to_string()).await.status, 200);
}

/// An image nobody can measure (a remote one) has a flat hold: the budget is not passed by a burst of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b013_what_cannot_be_measured_is_held_flat() {
    let image =
        json!({ "type": "image_url", "image_url": { "url": "https://pictures.example/of-any-size.png" } });
    let body =
        json!({ "model": "gpt", "max_tokens": 10, "messages": [{ "role": "user", "content": [image] }] });
    let budget = |ceiling| Plan::with([quota(key(), Measure::Cost, PeriodKind::Day, ceiling)]);
    let world = Arc::new(World::start(budget(1_000_000_000_000)).await);
    world.up.hold_until_released();
    let measured = {
        let (world, body) = (Arc::clone(&world), body.clone());
        tokio::spawn(async move { world.chat(&body).await })
    };
    world.until("it is at the provider", || world.up.calls().len() == 1).await;
    let (_, held) = world.balance(0).await;
    world.up.release();
    assert_eq!(measured.await.unwrap().status, 200);
    assert!(held > 100_000, "a flat hold for the image: {held}");

    let world = Arc::new(World::start(budget(i128::from(held) * 3 / 2)).await);
    world.up.set_default(Script::output(1).head_after_ms(50));
    let answers = burst(&world, 10, &body).await;
    assert_eq!((count(&answers, 200), count(&answers, 429)), (1, 9));
    assert_eq!(world.up.calls().len(), 1);
}
