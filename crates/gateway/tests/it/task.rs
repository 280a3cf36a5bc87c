//! Calls of one task are forecast by what its own calls wrote, and the tag stays with us.

use serde_json::json;
use tollbook_mock_upstream::Script;
use tollbook_policy::Measure;
use tollbook_store::Side;

use crate::world::{API_KEY, Answer, Plan, World, ask, forecast, key, rate, tenant};

const TASK: &str = "x-tollbook-task";

async fn world() -> World {
    let limits = [forecast(key(), Measure::Tokens, 1_000_000), rate(tenant(), Measure::Requests, 1_000)];
    World::start(Plan::with(limits)).await
}

async fn chat(world: &World, headers: &[(&str, &str)]) -> Answer {
    let bearer = format!("Bearer {API_KEY}");
    let mut all = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
    all.extend_from_slice(headers);
    let mut body = ask("hello");
    body["max_tokens"] = json!(4_000);
    world.send("POST", "/v1/chat/completions", &all, body.to_string()).await
}

/// One more call that writes `output`, and the output that was expected of it.
async fn expected(world: &World, headers: &[(&str, &str)], output: u64) -> u64 {
    world.up.script(Script::output(output));
    let answer = chat(world, headers).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    world.settled().await;
    let journal = world.journal().await;
    let hold = journal.iter().rev().find(|(_, entry)| entry.side == Side::Tenant).unwrap().1.hold;
    hold.expected_llm_tokens - hold.input_llm_tokens
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_task_of_a_key_is_forecast_by_its_own_calls() {
    let world = world().await;
    let (titles, essays) = ([(TASK, "titles")], [(TASK, "essays")]);
    assert_eq!(expected(&world, &titles, 5).await, 512, "the model's first guess");
    // The prior is the model's: it has heard of the titles.
    assert_eq!(expected(&world, &essays, 900).await, 10);
    assert_eq!(expected(&world, &titles, 5).await, 10);
    assert_eq!(expected(&world, &essays, 900).await, 1_800);
    assert_eq!(expected(&world, &titles, 5).await, 10);
    // A call without a task is of none of them; its key has no sample yet. 5, 900, 5, 900, 5 have the mean 363.
    let untold = expected(&world, &[], 50).await;
    assert!((720..=726).contains(&untold), "{untold}");
    assert_eq!(expected(&world, &[], 50).await, 100);
    for call in world.up.calls_at_rest() {
        assert!(call.headers.iter().all(|(name, _)| !name.starts_with("x-tollbook")), "{:?}", call.headers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_tag_is_refused_before_anything_is_held() {
    let world = world().await;
    let longest = "x".repeat(64);
    let longer = "x".repeat(65);
    assert_eq!(chat(&world, &[(TASK, &longest)]).await.status, 200);
    for headers in [
        vec![(TASK, longer.as_str())],
        vec![(TASK, "two words")],
        vec![(TASK, "größe")],
        vec![(TASK, "")],
        vec![(TASK, "a"), (TASK, "a")],
    ] {
        let answer = chat(&world, &headers).await;
        assert_eq!(answer.status, 400, "{headers:?}");
        assert_eq!(answer.json()["error"]["code"], "invalid_task", "{headers:?}");
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains(TASK) && !message.contains("words"), "{message}");
    }
    world.settled().await;
    assert_eq!((world.up.calls_at_rest().len(), world.balance(1).await), (1, (1, 0)));
}
