//! Streams on hard limits that are held at the expected demand: they grow in steps, and stop where a step is refused.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Instant;

use tollbook_admission::{Ending, Leave, Outcome, Settings, Ticket};
use tollbook_policy::{EstimatorChoice, Hold, Measure};
use tollbook_wire::Classes;

use crate::flaky::Mood;
use crate::world::{World, daily};

fn expected(ceiling: i128, first: u64) -> Vec<tollbook_policy::LimitDraft> {
    let mut limit = daily(Measure::OutputTokens, ceiling);
    limit.hold = Some(Hold::Expected);
    limit.estimator = Some(EstimatorChoice::Constant(first));
    vec![limit]
}

/// Held by whom a stream will be woken.
struct Asked;

impl Wake for Asked {
    fn wake(self: Arc<Self>) {}
}

/// Tells of so much output, and waits until the step that it may ask for is answered.
async fn streamed(world: &World, ticket: &Ticket, output: u64, begun: Instant) -> Leave {
    let asked = Arc::new(Asked);
    let leave = ticket.streamed(&text(output), Some(begun), Some(&Waker::from(Arc::clone(&asked))));
    world.until("a step is answered", async || Arc::strong_count(&asked) == 1).await;
    leave
}

/// Text of about that many llm_tokens.
fn text(llm_tokens: u64) -> Classes {
    Classes { ascii: llm_tokens * 4, bytes: llm_tokens * 4, ..Classes::default() }
}

#[tokio::test(start_paused = true)]
async fn l09_a_hold_on_a_hard_limit_grows_before_the_stream_gets_there() {
    let world = World::start(expected(1_000_000, 500), Settings::default(), None).await;
    let mut admitted = world.admit(true).await.unwrap();
    admitted.ticket.sending();
    assert!(admitted.ticket.is_bounded());
    assert_eq!(world.balance(0).await, (0, 500));
    let begun = Instant::now();
    for output in (0..1_900).step_by(50) {
        assert_eq!(streamed(&world, &admitted.ticket, output, begun).await, Leave::GoOn);
        let counted = i64::try_from(admitted.ticket.metered(&text(output)).1).unwrap();
        let (_, held) = world.balance(0).await;
        assert!(held >= counted, "{held} held for {counted}");
    }
}

#[tokio::test(start_paused = true)]
async fn l09_a_refused_step_ends_the_stream_when_its_hold_is_used_up() {
    let world = World::start(expected(1_000, 500), Settings::default(), None).await;
    let mut admitted = world.admit(true).await.unwrap();
    admitted.ticket.sending();
    let begun = Instant::now();
    let mut stopped = None;
    for output in (0..3_000).step_by(10) {
        if streamed(&world, &admitted.ticket, output, begun).await == Leave::Stop {
            stopped = Some(admitted.ticket.metered(&text(output)).1);
            break;
        }
    }
    let stopped = stopped.expect("the stream is stopped");
    assert!((500..=1_010).contains(&stopped), "{stopped}");
    let (_, held) = world.balance(0).await;
    assert!(held <= 1_000);
    let outcome =
        Outcome { output: text(stopped), output_seen: true, ..Outcome::bare(Ending::StoppedAtLimit) };
    admitted.ticket.end(&outcome);
    assert_eq!(world.balance(0).await.1, 0);
}

#[tokio::test(start_paused = true)]
async fn l09_no_answer_is_no_room_on_a_hard_limit() {
    let world = World::start(expected(1_000_000, 500), Settings::default(), None).await;
    let mut admitted = world.admit(true).await.unwrap();
    admitted.ticket.sending();
    world.engine.set(Mood::Away);
    let begun = Instant::now();
    assert_eq!(streamed(&world, &admitted.ticket, 490, begun).await, Leave::GoOn);
    assert_eq!(streamed(&world, &admitted.ticket, 600, begun).await, Leave::Stop);
}

#[tokio::test(start_paused = true)]
async fn l09_a_hold_at_the_worst_case_is_not_watched() {
    let world = World::start(vec![daily(Measure::OutputTokens, 1_000_000)], Settings::default(), None).await;
    let admitted = world.admit(true).await.unwrap();
    assert!(!admitted.ticket.is_bounded());
    assert_eq!(world.balance(0).await, (0, 2_000));
}

#[tokio::test(start_paused = true)]
async fn l09_an_overrun_of_a_hold_that_grew_is_journaled_as_the_engine_counts_it() {
    let mut limit = daily(Measure::Tokens, 1_000_000);
    limit.hold = Some(Hold::Expected);
    limit.estimator = Some(EstimatorChoice::Constant(500));
    let world = World::start(vec![limit], Settings::default(), None).await;
    let mut admitted = world.admit(true).await.unwrap();
    admitted.ticket.sending();
    let begun = Instant::now();
    for output in (0..1_000).step_by(50) {
        assert_eq!(streamed(&world, &admitted.ticket, output, begun).await, Leave::GoOn);
    }
    let held = u64::try_from(world.balance(0).await.1).unwrap();
    assert!(held > 1_000, "it grew: {held}");
    let usage = tollbook_wire::Usage {
        input: 10,
        output: held,
        complete: true,
        input_reported: true,
        output_reported: true,
        ..Default::default()
    };
    let outcome = Outcome { usage: Some(usage), output_seen: true, ..Outcome::bare(Ending::Complete) };
    admitted.ticket.end(&outcome);
    let records = world.journal().await;
    let [record] = &records[..] else { panic!("{records:?}") };
    let entry = tollbook_store::EntryBody::decode(&record.body).unwrap();
    assert_eq!(entry.overrun.llm_tokens, 10, "{entry:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_cut_before_its_first_byte_was_handed_over_is_given_back() {
    for ending in [Ending::ClientGone, Ending::Timeout, Ending::Reset, Ending::Shutdown] {
        let world = World::start(vec![daily(Measure::Requests, 10)], Settings::default(), None).await;
        let mut admitted = world.admit(true).await.unwrap();
        let sent = admitted.ticket.dispatching().unwrap();
        admitted.ticket.end(&Outcome::buffered_cut(ending));
        assert_eq!(world.balance(0).await, (0, 0), "{ending:?}");
        assert!(world.journal().await.is_empty());
        drop(sent);
        let mut admitted = world.admit(true).await.unwrap();
        admitted.ticket.dispatching().unwrap().mark();
        admitted.ticket.end(&Outcome::buffered_cut(ending));
        assert_eq!(world.balance(0).await, (1, 0), "{ending:?}");
    }
    let world = World::start(vec![daily(Measure::Requests, 10)], Settings::default(), None).await;
    let mut admitted = world.admit(true).await.unwrap();
    drop(admitted.ticket.dispatching());
    drop(admitted);
    assert_eq!(world.balance(0).await, (0, 0));
}
