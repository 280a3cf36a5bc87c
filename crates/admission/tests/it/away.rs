//! The engine slow or gone: what each limit says, what it costs a call, and what is posted afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tollbook_admission::{
    Admitted, AwayBounds, Degraded, Ending, Leave, Outcome, Readiness, Refused, Settings, shard,
};
use tollbook_engine::ledger::ReservationId;
use tollbook_engine::{JournalRecord, Loss, Source};
use tollbook_policy::{LimitDraft, Measure, ShapeDraft, Strictness, WhenAway};
use tollbook_store::EntryBody;
use tollbook_telemetry::labels::{Away, Surface, Turn};
use tollbook_telemetry::log::{LogFormat, LogSettings, subscriber};
use tollbook_wire::{Classes, Usage};

use crate::flaky::{Mood, SLOW};
use crate::world::{World, daily, key, pool_daily, requests};

/// More of them on demand.
const SEEDS_VARIABLE: &str = "TOLLBOOK_AWAY_SEEDS";
const SEEDS: u64 = 8;

fn used(input: u64, output: u64) -> Outcome {
    let usage = Usage {
        input,
        output,
        input_reported: true,
        output_reported: true,
        complete: true,
        ..Usage::default()
    };
    Outcome { usage: Some(usage), output_seen: true, ..Outcome::bare(Ending::Complete) }
}

fn says(when_away: WhenAway, limit: LimitDraft) -> LimitDraft {
    LimitDraft { when_away: Some(when_away), ..limit }
}

/// A rate on llm_tokens, booked by forecast.
fn llm_tokens(ceiling: i128) -> LimitDraft {
    LimitDraft::new(
        key(),
        Measure::Tokens,
        ShapeDraft::Rate { window_s: 60, bucket_s: None, weights: None },
        ceiling,
    )
}

fn calls_at_once(ceiling: i128) -> LimitDraft {
    LimitDraft::new(key(), Measure::Concurrency, ShapeDraft::Concurrency, ceiling)
}

fn shared_by(gateways: u32) -> Settings {
    Settings { away: AwayBounds { gateways, ..AwayBounds::default() }, ..Settings::default() }
}

/// Admits as many as it can, at most `most`.
async fn admit_all(world: &World, most: usize) -> (Vec<Admitted>, Option<Refused>) {
    let mut admitted = Vec::new();
    while admitted.len() < most {
        match world.admit(true).await {
            Ok(call) => admitted.push(call),
            Err(refused) => return (admitted, Some(refused)),
        }
    }
    (admitted, None)
}

#[tokio::test(start_paused = true)]
async fn a_soft_limit_gives_out_its_share_and_says_so() {
    let world = World::start(vec![requests(10)], shared_by(4), None).await;
    world.engine.set(Mood::Away);
    let (admitted, refused) = admit_all(&world, 100).await;
    assert_eq!(admitted.len(), 3, "a quarter of ten, rounded up");
    for call in &admitted {
        assert_eq!(call.ticket.degraded(), Some(Degraded::Local));
        assert_eq!(call.ticket.figures().requests.unwrap().ceiling, 3);
    }
    let Some(Refused::Limit(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!((refusal.ceiling, refusal.posted, refusal.figures.degraded), (3, 3, Some(Degraded::Local)));
    assert!(refusal.wait().is_some());
    assert_eq!(world.admission.readiness(), Readiness::Degraded);
    assert!(world.admission.is_ready());
    // The window goes on without the engine.
    tokio::time::sleep(Duration::from_secs(62)).await;
    let kept = world.admit(true).await.unwrap();
    let done = |instead| world.metrics.admission_degraded.get((instead,));
    assert_eq!((done(Away::Local), done(Away::Closed)), (4, 1), "what a share refuses is refused");
    // A gateway more, and the share is smaller; the last one is told of zero gateways and knows better.
    world.admission.set_gateways(10);
    assert!(matches!(world.admit(true).await, Err(Refused::Limit(_))));
    world.admission.set_gateways(0);
    assert_eq!(world.admission.gateways(), 1);
    assert!(world.admit(true).await.is_ok());
    drop(kept);
}

/// However the calls spread, and however many gateways there are.
#[tokio::test(start_paused = true)]
async fn the_shares_of_all_gateways_are_the_ceiling_but_for_rounding() {
    for (ceiling, gateways) in [(0, 3), (1, 1), (7, 1), (1, 4), (10, 4), (12, 4), (100, 7)] {
        let mut sum = 0;
        for _ in 0..gateways {
            let world =
                World::start(vec![requests(ceiling), calls_at_once(1_000)], shared_by(gateways), None).await;
            world.engine.set(Mood::Away);
            sum += admit_all(&world, 1_000).await.0.len();
        }
        let (ceiling, gateways) = (usize::try_from(ceiling).unwrap(), usize::try_from(gateways).unwrap());
        let most = if ceiling == 0 { 0 } else { ceiling + gateways - 1 };
        assert!((ceiling..=most).contains(&sum), "{sum} of {ceiling} by {gateways}");
    }
}

#[tokio::test(start_paused = true)]
async fn b012_a_hard_limit_admits_nothing_without_its_book_and_is_named() {
    let worlds = [
        (vec![requests(100), daily(Measure::Tokens, 1_000_000)], "key acme/web/k1 tokens quota day"),
        (vec![requests(100), pool_daily(Measure::Requests, 1_000)], "pool pool requests quota day"),
        (
            vec![LimitDraft { strictness: Some(Strictness::Hard), ..requests(100) }],
            "key acme/web/k1 requests rate",
        ),
        (vec![says(WhenAway::Closed, requests(100))], "key acme/web/k1 requests rate"),
    ];
    for (limits, name) in worlds {
        let world = World::start(limits, Settings::default(), None).await;
        for mood in [Mood::Away, Mood::Silent, Mood::LosesReplies, Mood::Lost] {
            world.engine.set(mood);
            for _ in 0..10 {
                let refused = world.admit(true).await.err();
                let Some(Refused::Away { limit }) = refused else { panic!("{mood:?}: {refused:?}") };
                assert_eq!(limit.as_deref(), Some(name), "{mood:?}");
            }
            assert_eq!(world.admission.readiness(), Readiness::EngineAway);
        }
        world.engine.set(Mood::Well);
        world.until("the engine is back", async || world.admission.readiness() == Readiness::Ready).await;
        assert!(world.admit(true).await.is_ok());
        let absent = world.metrics.away_calls.get(());
        assert_eq!(absent, 0, "no local book has a call");
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_limit_admits_and_counts() {
    let limits = vec![
        says(WhenAway::Open, requests(2)),
        says(WhenAway::Open, daily(Measure::Tokens, 10)),
        LimitDraft { shadow: true, ..pool_daily(Measure::Requests, 0) },
    ];
    let world = World::start(limits, Settings::default(), None).await;
    world.engine.set(Mood::Away);
    let (admitted, refused) = admit_all(&world, 50).await;
    assert!(refused.is_none());
    assert!(admitted.iter().all(|call| call.ticket.degraded() == Some(Degraded::Open)));
    assert_eq!(admitted[0].ticket.figures().requests, None, "nothing is known of it");
    // A reservation for the tenant and one for the pool.
    assert_eq!(world.metrics.admission_degraded.get((Away::Open,)), 100);
    assert_eq!(world.metrics.away_calls.get(()), 100);
    drop((admitted, refused));
    assert_eq!(world.metrics.away_calls.get(()), 0);
}

/// The strictest of what the limits of a call say; a share is never a reason to say "never".
#[tokio::test(start_paused = true)]
async fn what_a_share_cannot_hold_is_not_refused_for_good() {
    let limits =
        vec![says(WhenAway::Open, requests(1)), says(WhenAway::Local, daily(Measure::Tokens, 3_000))];
    let world = World::start(limits, shared_by(4), None).await;
    assert!(world.admit(true).await.is_ok(), "the whole has room for the call");
    world.engine.set(Mood::Away);
    let refused = world.admit(true).await.err();
    let Some(Refused::Away { limit: Some(name) }) = refused else { panic!("{refused:?}") };
    assert_eq!(&*name, "key acme/web/k1 tokens quota day");
    world.admission.set_gateways(1);
    let (admitted, _) = admit_all(&world, 50).await;
    assert_eq!(admitted.len(), 1, "the open limit of one a minute only looks on");
    assert_eq!(admitted[0].ticket.degraded(), Some(Degraded::Local));
}

#[tokio::test(start_paused = true)]
async fn b197_an_open_breaker_lets_no_call_wait() {
    let limits = || vec![says(WhenAway::Closed, requests(10_000))];
    for mood in [Mood::Silent, Mood::Slow, Mood::Away] {
        let world = World::start(limits(), Settings::default(), None).await;
        world.engine.set(mood);
        let mut waited = 0;
        let began = Instant::now();
        while world.metrics.away_shards.get(()) == 0 {
            let asked = Instant::now();
            drop(world.admit(true).await);
            waited += u32::from(asked.elapsed() > Duration::ZERO);
            assert!(waited <= 32, "{mood:?}");
        }
        assert!(began.elapsed() <= SLOW * 40, "{mood:?}: {:?}", began.elapsed());
        let (asked, at) = (world.engine.reserves.load(Ordering::SeqCst), Instant::now());
        for _ in 0..1_000 {
            assert!(matches!(world.admit(true).await, Err(Refused::Away { limit: Some(_) })));
        }
        assert_eq!(at.elapsed(), Duration::ZERO, "{mood:?}: a call has waited");
        assert_eq!(world.engine.reserves.load(Ordering::SeqCst), asked, "{mood:?}: the engine was asked");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(matches!(world.admit(true).await, Err(Refused::Away { .. })), "{mood:?}: it is still so");
        world.engine.set(Mood::Well);
        let back = Instant::now();
        world.until("calls are let in", async || world.admit(true).await.is_ok()).await;
        assert!(back.elapsed() <= Duration::from_secs(2), "{mood:?}: {:?}", back.elapsed());
        assert_eq!(world.metrics.away_shards.get(()), 0);
        let turns = |turn| world.metrics.away_breaker.get((turn,));
        assert!(turns(Turn::Opened) > 0 && turns(Turn::Opened) == turns(Turn::Closed), "{mood:?}");
    }
}

/// A gateway that was stopped for a while finds deadlines that are long over, and a book that is there.
#[tokio::test(start_paused = true)]
async fn a_gateway_that_stood_still_does_not_take_the_book_for_away() {
    let world = World::start(vec![says(WhenAway::Closed, requests(10_000))], Settings::default(), None).await;
    // Answers have arrived meanwhile, or are lost.
    for mood in [Mood::Remote, Mood::Silent] {
        world.engine.set(mood);
        let stopped = async {
            tokio::task::yield_now().await;
            world.engine.set(Mood::Remote);
            tokio::time::advance(Duration::from_secs(5)).await;
        };
        let (calls, ()) = tokio::join!(join_all((0..50).map(|_| world.admit(true))), stopped);
        assert!(calls.iter().all(Result::is_ok), "{mood:?}: none is refused");
        assert_eq!(world.metrics.away_breaker.get((Turn::Opened,)), 0, "{mood:?}");
    }
}

/// What a thread has logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn b198_a_blip_under_load_is_two_lines_in_the_log() {
    let lines = Lines::default();
    let writer = lines.clone();
    let settings = LogSettings { format: LogFormat::Json, ..LogSettings::default() };
    let subscriber = subscriber(&settings, false, false, move || writer.clone()).unwrap();
    let _logged = tracing::subscriber::set_default(subscriber);
    let world = World::start(vec![requests(1_000_000)], Settings::default(), None).await;
    for blip in 1..=2 {
        for mood in [Mood::Slow, Mood::Away, Mood::Well, Mood::Away] {
            world.engine.set(mood);
            for _ in 0..5 {
                drop(join_all((0..100).map(|_| world.admit(true))).await);
            }
        }
        world.engine.set(Mood::Well);
        world.until("it is back", async || world.admission.readiness() == Readiness::Ready).await;
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let told: Vec<&str> = text.lines().collect();
        assert_eq!(told.len(), 2 * blip, "{text}");
        assert!(
            told[told.len() - 2].contains("the book is away")
                && told[told.len() - 1].contains("the book is back")
        );
        // Absences that follow closely are one flood.
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
}

/// One failure is no absence: the next call finds the engine there.
#[tokio::test(start_paused = true)]
async fn a_single_failure_opens_nothing() {
    let world = World::start(vec![requests(1_000)], Settings::default(), None).await;
    for _ in 0..100 {
        world.engine.set(Mood::Away);
        let local = world.admit(true).await.unwrap();
        assert_eq!(local.ticket.degraded(), Some(Degraded::Local));
        world.engine.set(Mood::Well);
        let call = world.admit(true).await.unwrap();
        assert_eq!((call.ticket.degraded(), world.admission.readiness()), (None, Readiness::Ready));
    }
    assert_eq!(world.metrics.away_breaker.get((Turn::Opened,)), 0);
}

/// A store that has lost data answers at once: no breaker keeps calls from a shard that has just been made whole.
#[tokio::test(start_paused = true)]
async fn a_lost_shard_is_away_at_once_and_not_a_moment_longer_than_it_is_lost() {
    let world = World::start(vec![requests(1_000)], Settings::default(), None).await;
    world.engine.set(Mood::Lost);
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(world.admit(true).await.unwrap().ticket.degraded(), Some(Degraded::Local));
    }
    assert_eq!((began.elapsed(), world.admission.readiness()), (Duration::ZERO, Readiness::Degraded));
    assert_eq!(world.metrics.away_shards.get(()), 0);
    world.engine.set(Mood::Well);
    assert_eq!(world.admit(true).await.unwrap().ticket.degraded(), None);
    assert_eq!(world.admission.readiness(), Readiness::Ready);
}

/// Data that cannot be read is no absence: the shard is there for others.
#[tokio::test(start_paused = true)]
async fn damaged_data_of_one_call_does_not_turn_readiness_off() {
    let world = World::start(vec![says(WhenAway::Closed, requests(1_000))], Settings::default(), None).await;
    world.engine.set(Mood::Damaged);
    for _ in 0..50 {
        assert!(matches!(world.admit(true).await, Err(Refused::Away { limit: Some(_) })));
        assert_eq!((world.admission.readiness(), world.admission.absence()), (Readiness::Ready, None));
    }
    world.engine.set(Mood::Well);
    assert!(world.admit(true).await.is_ok());
}

/// A server that starts again is there, whatever it has lost: the breaker closes, and calls wait for their shard alone.
#[tokio::test(start_paused = true)]
async fn a_breaker_closes_when_the_store_is_back_without_its_data() {
    let world = World::start(vec![requests(1_000)], Settings::default(), None).await;
    world.engine.set(Mood::Away);
    drop(admit_all(&world, 50).await);
    assert_eq!(world.metrics.away_shards.get(()), 256);
    world.engine.set(Mood::Lost);
    world.until("it is asked again", async || world.metrics.away_shards.get(()) == 0).await;
    assert_eq!(world.admission.readiness(), Readiness::Degraded, "it is not whole");
    world.engine.set(Mood::Well);
    assert_eq!(world.admit(true).await.unwrap().ticket.degraded(), None);
}

fn flags(record: &JournalRecord) -> EntryBody {
    EntryBody::decode(&record.body).unwrap()
}

/// Whatever a call of the local book comes to, the engine hears of it once it is back.
#[tokio::test(start_paused = true)]
async fn what_a_local_book_admitted_is_posted_afterwards_with_one_entry_each() {
    let limits =
        vec![requests(1_000), says(WhenAway::Open, daily(Measure::Tokens, 1_000_000)), llm_tokens(1_000_000)];
    let world = World::start(limits, Settings::default(), None).await;
    world.engine.set(Mood::Away);
    let mut calls = admit_all(&world, 6).await.0;
    for call in &mut calls {
        call.ticket.sending();
    }
    // Two end while the engine is away, one of them at the provider's.
    calls.pop().unwrap().ticket.end(&used(10, 5));
    calls.pop().unwrap().ticket.end(&Outcome::upstream_error());
    // One never left the gateway: nobody has to hear of it.
    drop(world.admit(true).await.unwrap());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.journal().await.is_empty());
    world.engine.set(Mood::Well);
    world.until("the two are posted", async || world.journal().await.len() == 2).await;
    assert_eq!(world.balance(1).await, (15, 0));
    // The others end when it is back, one as a stream that is cut.
    calls.pop().unwrap().ticket.end(&used(20, 7));
    calls.pop().unwrap().ticket.end(&used(30, 8));
    calls.pop().unwrap().ticket.end(&Outcome::bare(Ending::ClientGone));
    drop(calls);
    world.until("all are posted", async || world.journal().await.len() == 6).await;
    let journal = world.journal().await;
    let sources: Vec<Source> = journal.iter().map(|record| record.source).collect();
    assert_eq!(sources.iter().filter(|source| **source == Source::Settled).count(), 5);
    assert_eq!(sources.iter().filter(|source| **source == Source::Released).count(), 1);
    assert!(journal.iter().all(|record| record.seq == 0 && flags(record).flags.degraded));
    assert_eq!(world.balance(0).await, (6, 0), "each is one request");
    let posted: i64 = journal.iter().flat_map(|record| &record.posted).map(|posted| posted.amount).sum();
    assert_eq!(world.balance(1).await, (posted, 0));
    assert_eq!((world.metrics.settle_restored.get(()), world.metrics.settle_unknown.get(())), (6, 0));
}

/// An engine that knows no restore: the entry is there, kept apart, and raises an alarm.
#[tokio::test(start_paused = true)]
async fn an_engine_without_restore_gets_an_unbooked_entry() {
    let world = World::start(vec![requests(1_000)], Settings::default(), None).await;
    world.engine.restores.store(false, Ordering::SeqCst);
    world.engine.set(Mood::Away);
    let mut calls = admit_all(&world, 3).await.0;
    for call in &mut calls {
        call.ticket.sending();
    }
    world.engine.set(Mood::Well);
    for call in calls {
        call.ticket.end(&used(10, 5));
    }
    world.until("they are in the journal", async || world.journal().await.len() == 3).await;
    let journal = world.journal().await;
    assert!(journal.iter().all(|r| r.source == Source::Unbooked && flags(r).usage.output == 5));
    assert_eq!(world.metrics.settle_unknown.get(()), 3);
    assert_eq!(world.balance(0).await, (0, 0), "no account changed");
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_posted_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let limits = || vec![requests(1_000), says(WhenAway::Open, daily(Measure::Tokens, 1_000_000))];
    let world = World::start(limits(), Settings::default(), Some(dir.path())).await;
    world.engine.set(Mood::Away);
    for call in admit_all(&world, 7).await.0 {
        let mut call = call;
        call.ticket.sending();
        call.ticket.end(&used(10, 5));
    }
    let (engine, clock) = world.shut_down().await;
    assert!(std::fs::metadata(dir.path().join("settle.spool")).unwrap().len() > 0);
    engine.set(Mood::Well);
    let world = World::on(engine, clock, limits(), Settings::default(), Some(dir.path())).await;
    world.until("all seven are posted", async || world.journal().await.len() == 7).await;
    assert_eq!((world.balance(0).await, world.balance(1).await), ((7, 0), (7 * 15, 0)));
}

/// A shard that is away keeps back what belongs to it, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_pool_that_is_away_holds_up_no_tenants_settles() {
    let limits = vec![requests(1_000), pool_daily(Measure::Requests, 1_000)];
    let world = World::start(limits, Settings::default(), None).await;
    let mut calls = admit_all(&world, 5).await.0;
    for call in &mut calls {
        call.ticket.sending();
    }
    world.engine.set(Mood::PoolSilent);
    for _ in 0..10 {
        assert!(matches!(world.admit(true).await, Err(Refused::Away { .. })));
    }
    assert_eq!(world.metrics.away_shards.get(()), 1, "the pool's");
    for call in calls {
        call.ticket.end(&used(10, 5));
    }
    world.until("the tenant's side is posted", async || world.journal().await.len() == 5).await;
    assert_eq!(world.balance(0).await, (5, 0));
}

/// A client that leaves while its pool is asked leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_left_at_its_pool_holds_nothing_in_the_local_book() {
    let limits = vec![requests(3), pool_daily(Measure::Requests, 1_000)];
    let world = World::start(limits, Settings::default(), None).await;
    *world.engine.lost.lock().unwrap() = Some((shard("acme"), Loss::All));
    world.engine.set(Mood::PoolSilent);
    let (left, refused) = leave(&world).await;
    assert!(left && refused.is_none(), "{refused:?}");
    assert_eq!(world.metrics.away_calls.get(()), 0);
    assert_eq!(world.metrics.calls_in_flight.get((Surface::Chat,)), 0);
}

/// Whether a call that is left after a moment was under way then, or what it came to.
pub(crate) async fn leave(world: &World) -> (bool, Option<Refused>) {
    match tokio::time::timeout(Duration::from_millis(100), world.admit(true)).await {
        Err(_) => (true, None),
        Ok(answer) => (false, answer.err()),
    }
}

/// L9 at a local book: a stream on a hard limit that is held at the expected demand grows there, and stops there.
#[tokio::test(start_paused = true)]
async fn l09_a_stream_grows_in_the_local_book() {
    let quota = LimitDraft {
        hold: Some(tollbook_policy::Hold::Expected),
        estimator: Some(tollbook_policy::EstimatorChoice::Constant(500)),
        ..says(WhenAway::Local, daily(Measure::OutputTokens, 2_000))
    };
    let world = World::start(vec![quota], shared_by(2), None).await;
    world.engine.set(Mood::Away);
    let mut call = world.admit(true).await.unwrap();
    call.ticket.sending();
    assert!(call.ticket.is_bounded());
    let (mut written, mut stopped) = (0, false);
    let first = Some(std::time::Instant::now());
    while !stopped && written < 20_000 {
        written += 20;
        let output = Classes { ascii: written * 4, bytes: written * 4, ..Classes::default() };
        stopped = call.ticket.streamed(&output, first, None) == Leave::Stop;
        // The step that it may have asked for is answered.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(stopped && (501..=1_000).contains(&written), "{written} of a share of 1,000");
}

/// Random absences, in every mood, over calls that end in every way: each sent call has one entry, nothing is held, and
/// quotas have what the entries say.
#[tokio::test(start_paused = true)]
async fn random_absences_lose_and_repeat_nothing() {
    let seeds = std::env::var(SEEDS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut degraded = 0;
    for seed in 1..=seeds {
        let dir = tempfile::tempdir().unwrap();
        degraded += random_absences(seed, dir.path()).await;
    }
    assert!(degraded > 0, "some seeds meet an absence");
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// How many calls were admitted without the engine.
async fn random_absences(seed: u64, dir: &std::path::Path) -> usize {
    let limits = || {
        vec![
            requests(400),
            says(WhenAway::Open, daily(Measure::Tokens, 1_000_000_000)),
            llm_tokens(2_000_000),
            calls_at_once(60),
        ]
    };
    let mut dice = Dice(seed);
    let settings =
        Settings { away: AwayBounds { gateways: 2, ..AwayBounds::default() }, ..Settings::default() };
    let world = World::start(limits(), settings, Some(dir)).await;
    let moods =
        [Mood::Well, Mood::Well, Mood::Away, Mood::Silent, Mood::LosesReplies, Mood::Slow, Mood::Lost];
    let (mut calls, mut sent, mut degraded) = (Vec::new(), 0_usize, 0_usize);
    for _ in 0..120 {
        match dice.roll(10) {
            0 => world.engine.set(moods[usize::try_from(dice.roll(7)).unwrap()]),
            1..=5 => {
                if let Ok(mut call) = world.admit(dice.roll(2) == 0).await {
                    degraded += usize::from(call.ticket.degraded().is_some());
                    let is_sent = dice.roll(8) > 0;
                    if is_sent {
                        call.ticket.sending();
                        sent += 1;
                    }
                    calls.push(call);
                }
            }
            6..=8 if !calls.is_empty() => {
                let at = usize::try_from(dice.roll(u64::try_from(calls.len()).unwrap())).unwrap();
                let call: Admitted = calls.swap_remove(at);
                match dice.roll(4) {
                    0 => drop(call),
                    1 => call.ticket.end(&Outcome::upstream_error()),
                    _ => call.ticket.end(&used(dice.roll(50), dice.roll(50))),
                }
            }
            _ => {
                let pause = dice.roll(3_000);
                world.clock.0.fetch_add(pause * 1_000, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
    }
    drop(calls);
    world.engine.set(Mood::Well);
    let mut last = Vec::new();
    world
        .until("every sent call is journaled", async || {
            last = world.journal().await;
            last.len() >= sent && world.admission.readiness() == Readiness::Ready
        })
        .await;
    check(&world, &last, sent, seed).await;
    degraded
}

async fn check(world: &World, journal: &[JournalRecord], sent: usize, seed: u64) {
    // What was released by the provider's error without being sent leaves none: those are at most the rest.
    let mut entries: BTreeMap<(ReservationId, u16), u32> = BTreeMap::new();
    for record in journal {
        *entries.entry((record.id, record.seq)).or_default() += 1;
    }
    assert!(entries.values().all(|count| *count == 1), "seed {seed}: twice in the journal");
    assert!(journal.iter().all(|r| r.source != Source::Unbooked), "seed {seed}");
    assert!(journal.len() >= sent, "seed {seed}: {} of {sent}", journal.len());
    world
        .until("nothing is held", async || world.balance(1).await.1 == 0 && world.balance(3).await.1 == 0)
        .await;
    let posted: i64 = journal.iter().flat_map(|record| &record.posted).map(|posted| posted.amount).sum();
    assert_eq!(world.balance(1).await.0, posted, "seed {seed}: the quota is not the sum of its entries");
    assert_eq!(world.metrics.away_calls.get(()), 0, "seed {seed}");
}
