//! What `explain` shows of a call is what the door would hold for it.

use tollbook_admission::{Ending, Explanation, Outcome, Settings, Task};
use tollbook_policy::{EstimatorChoice, Hold, LimitDraft, Measure};
use tollbook_wire::Surface;

use crate::world::{World, daily};

async fn explained(world: &World) -> Explanation {
    explained_of(world, None).await
}

async fn explained_of(world: &World, task: Option<Task>) -> Explanation {
    let body = r#"{"model":"gpt","max_tokens":2000,"messages":[{"role":"user","content":"hello"}]}"#;
    let request = tollbook_wire::decode_request(Surface::Chat, body.as_bytes()).unwrap();
    let principal = world.principal().await.unwrap();
    world
        .admission
        .explain(&principal, "gpt", None, None, task, Some((&request, body.as_bytes())))
        .await
        .unwrap()
}

fn wrote(output: u64) -> Outcome {
    let usage = tollbook_wire::Usage {
        input: 10,
        output,
        complete: true,
        input_reported: true,
        output_reported: true,
        ..Default::default()
    };
    Outcome { usage: Some(usage), output_seen: true, ..Outcome::bare(Ending::Complete) }
}

fn expected(measure: Measure, ceiling: i128, estimator: EstimatorChoice) -> LimitDraft {
    LimitDraft { hold: Some(Hold::Expected), estimator: Some(estimator), ..daily(measure, ceiling) }
}

#[tokio::test(start_paused = true)]
async fn the_demand_shown_is_what_the_first_call_holds() {
    for (estimator, output) in [
        // Nothing is learned yet: the model's first guess stands in.
        (EstimatorChoice::Ema, 512),
        (EstimatorChoice::Constant(700), 700),
        (EstimatorChoice::Constant(9_000), 2_000),
        (EstimatorChoice::Capped, 2_000),
    ] {
        for measure in [Measure::OutputTokens, Measure::Tokens] {
            let limits = vec![expected(measure, 1_000_000, estimator)];
            let world = World::start(limits, Settings::default(), None).await;
            let shown = explained(&world).await;
            let input = if measure == Measure::Tokens { shown.input } else { 0 };
            assert_eq!(shown.lines[0].demand, Some(input + output), "{estimator:?}, {measure:?}");
            let admitted = world.admit(false).await.unwrap();
            let (_, held) = world.balance(0).await;
            assert_eq!(shown.lines[0].demand, u64::try_from(held).ok(), "{estimator:?}, {measure:?}");
            drop(admitted);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_demand_shown_is_the_learned_one() {
    let limits = vec![expected(Measure::OutputTokens, 1_000_000, EstimatorChoice::Ema)];
    let world = World::start(limits, Settings::default(), None).await;
    let mut admitted = world.admit(false).await.unwrap();
    admitted.ticket.sending();
    admitted.ticket.end(&wrote(90));
    let shown = explained(&world).await;
    assert_eq!(shown.lines[0].demand, Some(180), "twice the mean");
    let held = world.balance(0).await.1;
    let admitted = world.admit(false).await.unwrap();
    assert_eq!(world.balance(0).await.1 - held, 180);
    drop(admitted);
}

#[tokio::test(start_paused = true)]
async fn each_task_learns_by_itself_over_the_models_prior() {
    let limits = vec![expected(Measure::OutputTokens, 1_000_000, EstimatorChoice::Ema)];
    let world = World::start(limits, Settings::default(), None).await;
    for (tag, output) in [("titles", 5), ("essays", 900), ("titles", 5), ("essays", 900)] {
        let mut admitted = world.admit_task(tag).await.unwrap();
        admitted.ticket.sending();
        admitted.ticket.end(&wrote(output));
        explained(&world).await;
    }
    for (tag, output) in [("titles", 10), ("essays", 1_800)] {
        let shown = explained_of(&world, Task::new(tag)).await;
        assert_eq!(shown.lines[0].demand, Some(output), "{tag}");
        let held = world.balance(0).await.1;
        let admitted = world.admit_task(tag).await.unwrap();
        assert_eq!(u64::try_from(world.balance(0).await.1 - held), Ok(output), "{tag}");
        drop(admitted);
    }
    // 5, then by 0.3 towards 900, 5 and 900: of the model, for a task and for a key that are new.
    let prior = Some(810);
    assert_eq!(explained_of(&world, Task::new("other")).await.lines[0].demand, prior);
    assert_eq!(explained(&world).await.lines[0].demand, prior);
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_the_expected_output_would_refuse() {
    let limits = vec![expected(Measure::OutputTokens, 500, EstimatorChoice::Ema)];
    let world = World::start(limits, Settings::default(), None).await;
    let shown = explained(&world).await;
    assert_eq!(shown.lines[0].would_refuse, Some("the demand is above the ceiling"));
    assert_eq!(shown.refusing, [shown.lines[0].limit.clone()]);
    assert!(world.admit(false).await.is_err());
}
