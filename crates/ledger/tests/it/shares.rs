//! A gateway's share of a forecast account: what the book has after every flush is what really landed.

use proptest::prelude::*;
use tollbook_ledger::stream::{Pace, Ramp, Seen, Share, Stream};
use tollbook_ledger::{
    AccountId, Book, Estimator, Event, Hold, Leg, Limit, LimitId, Measure, Micros, OnExpiry, Periods,
    Profile, ReservationId, Reserve, SECOND, Shape, SubjectId, Verdict,
};

use crate::book_desk::Follower;
use crate::random::{START, cases};

const ACCOUNT: AccountId = AccountId { subject: SubjectId(1), name: 2 };

fn reserve(id: u128, profile: Profile, expected: u64) -> Reserve {
    let limit = Limit {
        id: LimitId(1),
        ceiling: 8_000_000_000,
        hard: false,
        shadow: false,
        count_denied: false,
        hold: Hold::Expected,
        on_expiry: OnExpiry::Release,
    };
    let leg = Leg {
        account: ACCOUNT,
        measure: Measure::OutputTokens,
        shape: Shape::Forecast { window: 60, strict: false },
        periods: Periods::None,
        base: 0,
        per_output: 1000,
        cap: 20_000,
        worst: 20_000,
        estimator: Estimator::Constant { output: expected },
        refund_failed: false,
        limits: vec![limit],
    };
    Reserve { id: ReservationId(id), attempt: 0, life: SECOND, profile, legs: vec![leg], context: Vec::new() }
}

/// A stream as it really goes.
#[derive(Clone, Debug)]
struct Truth {
    comes: Micros,
    ttft: Micros,
    pace: Micros,
    output: u64,
    expected: u64,
    planned: Profile,
    buffered: bool,
}

impl Truth {
    fn first(&self) -> Micros {
        self.comes + self.ttft
    }

    fn ends(&self) -> Micros {
        self.first() + self.output * self.pace
    }

    /// llm_tokens that have come by a time.
    fn by(&self, now: Micros) -> u64 {
        (now.saturating_sub(self.first()) / self.pace).min(self.output)
    }

    fn seen(&self, now: Micros) -> Seen {
        if self.buffered {
            return Seen::Nothing;
        }
        Seen::Output { output: self.by(now), first: self.first() }
    }
}

fn truth() -> impl Strategy<Value = Truth> {
    let pace = || 2_000_u64..200_000;
    let ttft = || 0_u64..4 * SECOND;
    (0..100 * SECOND, ttft(), pace(), 1_u64..900, 0_u64..900, (ttft(), pace()), any::<bool>()).prop_map(
        |(comes, ttft, pace, output, expected, planned, buffered)| Truth {
            comes: START + comes,
            ttft,
            pace,
            output,
            expected,
            planned: Profile { ttft: planned.0, pace: planned.1 },
            buffered,
        },
    )
}

/// The book, the share, and the streams that are under way.
struct World {
    book: Book,
    log: Follower,
    share: Share,
    live: Vec<(Truth, Stream)>,
    now: Micros,
}

impl World {
    fn new() -> Self {
        Self {
            book: Book::new(),
            log: Follower::default(),
            share: Share::new(ACCOUNT, 60, START),
            live: Vec::new(),
            now: START,
        }
    }

    fn admit(&mut self, id: u128, truth: &Truth) {
        self.now = truth.comes;
        let cmd = reserve(id, truth.planned, truth.expected);
        let answer = self.book.reserve(self.now, &cmd, &mut self.log).expect("well formed");
        let Verdict::Admit(receipt) = answer else { panic!("{answer:?}") };
        let output = receipt.legs[0].output;
        self.share.admitted(self.now, truth.planned, (0, 1000), output);
        self.live.push((truth.clone(), Stream::admitted(self.now, truth.planned, output, 20_000)));
    }

    /// Streams that have ended by now say so, at their time.
    fn end(&mut self, now: Micros) {
        let (ended, live): (Vec<_>, Vec<_>) = self.live.drain(..).partition(|(truth, _)| truth.ends() <= now);
        self.live = live;
        for (truth, stream) in ended {
            for ramp in stream.end(truth.ends(), truth.seen(truth.ends()), truth.output) {
                self.share.land(now, ramp, 1000);
            }
        }
    }

    fn flush(&mut self, now: Micros) {
        self.now = now;
        self.end(now);
        for (truth, stream) in &mut self.live {
            let told = stream.flush(now, truth.seen(now));
            self.share.land(now, told.landed, 1000);
            self.share.come(told.coming, 1000);
        }
        if let Some(batch) = self.share.flush(now, 7) {
            self.book.progress(now, std::slice::from_ref(&batch), &mut self.log).expect("a good batch");
            self.share.acknowledged(batch.seq);
        }
    }

    /// Amounts of the seconds that a window still sees, oldest first.
    fn seconds(&self) -> (u64, Vec<u64>) {
        let mut found = (0, Vec::new());
        self.book.inspect_account(ACCOUNT, &mut |row| {
            if let Event::Account(row) = row {
                found = (row.newest - 60, row.buckets.to_vec());
            }
        });
        found
    }
}

proptest! {
    #![proptest_config(cases(48))]

    /// Whatever was planned, at whatever pace it came, streamed or in one piece: when all has ended, every second of the
    /// window has what landed in it.
    #[test]
    fn facts_replace_plans(
        mut truths in prop::collection::vec(truth(), 1..30),
        every in 1_u64..6,
        streamed in any::<bool>(),
    ) {
        for truth in &mut truths {
            truth.buffered &= !streamed;
        }
        truths.sort_by_key(|truth| truth.comes);
        let mut world = World::new();
        let mut due = START;
        for (id, truth) in (1..).zip(&truths) {
            while due < truth.comes {
                world.flush(due);
                due += every * SECOND;
            }
            world.admit(id, truth);
        }
        let last = truths.iter().map(Truth::ends).max().unwrap();
        while due < last + every * SECOND {
            world.flush(due);
            due += every * SECOND;
        }
        world.flush(due);
        let (oldest, amounts) = world.seconds();
        // When an answer in one piece was made nobody knows; only how much of it there is.
        let shown = !truths.iter().any(|truth| truth.buffered);
        for (second, amount) in (oldest..).zip(&amounts).filter(|_| shown) {
            let (from, to) = (second * SECOND, (second + 1) * SECOND);
            let landed: u64 = truths.iter().map(|truth| truth.by(to) - truth.by(from)).sum();
            // A ramp is straight: each stream's first and last llm_token may be a neighbour's second's.
            let most = landed / 4 + 3 * u64::try_from(truths.len()).unwrap();
            prop_assert!(amount.abs_diff(landed) <= most, "second {second}: {amount}, landed {landed}");
        }
        let all: u64 = amounts.iter().sum();
        let landed: u64 = truths.iter().map(|truth| truth.by(due) - truth.by(oldest * SECOND)).sum();
        let most = 30 + u64::try_from(truths.len()).unwrap() * 3;
        let known = |truth: &Truth| !truth.buffered || truth.comes >= oldest * SECOND;
        if truths.iter().all(known) {
            prop_assert!(all.abs_diff(landed) <= most, "{all} in the window, landed {landed}");
        }
        prop_assert_eq!(world.book.alarms().progress_outside, 0);
        prop_assert!(world.book == world.log.book);
    }
}

#[test]
fn an_ended_stream_is_removed_by_the_next_flush() {
    let profile = Profile { ttft: 0, pace: 10_000 };
    let mut share = Share::new(ACCOUNT, 60, START);
    share.admitted(START, profile, (0, 1000), 1_000);
    let stream = Stream::admitted(START, profile, 1_000, 1_000);
    let end = START + SECOND / 2;
    for ramp in stream.end(end, Seen::Output { output: 40, first: START }, 40) {
        share.land(end, ramp, 1000);
    }
    let batch = share.flush(START + SECOND, 7).expect("the plan has changed");
    // 100 a second were planned for ten seconds; 40 landed in the first.
    assert_eq!((batch.base_second, &batch.deltas[..3]), (START / SECOND, &[-60, -100, -100][..]));
    assert_eq!(batch.deltas.iter().sum::<i64>(), 40 - 1_000);
}

#[test]
fn a_batch_comes_again_until_it_is_acknowledged() {
    let profile = Profile { ttft: 0, pace: 10_000 };
    let mut share = Share::new(ACCOUNT, 60, START);
    share.admitted(START, profile, (0, 1000), 100);
    let first = share.flush(START + SECOND, 7).expect("nothing streams");
    assert_eq!(first.deltas, [-100]);
    share.land(START + 2 * SECOND, Ramp { from: START, to: START + SECOND, output: 9 }, 1000);
    assert_eq!(share.flush(START + 2 * SECOND, 7).as_ref(), Some(&first));
    assert!(!share.is_clear());
    share.acknowledged(first.seq);
    let second = share.flush(START + 3 * SECOND, 7).expect("what waited");
    assert_eq!(second.seq, first.seq + 1);
    assert_eq!((second.base_second, &second.deltas[..]), (START / SECOND, &[9][..]));
    share.acknowledged(second.seq);
    assert!(!share.is_clear(), "nine are still in a window");
    assert_eq!(share.flush(START + 70 * SECOND, 7), None);
    assert!(share.is_clear());
}

#[test]
fn a_share_made_anew_is_not_taken_for_a_repeat() {
    let profile = Profile { ttft: 0, pace: 10_000 };
    let mut world = World::new();
    // Calls that fail leave nothing, so the share is forgotten between them; the account remembers its gateway.
    for id in 1..=3 {
        let comes = START + u64::try_from(id).unwrap() * 10 * SECOND;
        world.share = Share::new(ACCOUNT, 60, comes);
        let fails = Truth {
            comes,
            ttft: SECOND,
            pace: 10_000,
            output: 0,
            expected: 500,
            planned: profile,
            buffered: false,
        };
        world.admit(id, &fails);
        world.flush(comes + 2 * SECOND);
        assert!(world.share.is_clear());
        assert_eq!(world.seconds().1.iter().sum::<u64>(), 0, "call {id} planned what it never brought");
    }
    assert_eq!(world.book.alarms().progress_repeated, 0);
}

#[test]
fn what_landed_and_is_not_told_yet_keeps_a_share() {
    let mut share = Share::new(ACCOUNT, 60, START);
    assert!(share.is_clear());
    share.land(START + SECOND, Ramp { from: START, to: START + SECOND, output: 9 }, 1000);
    assert!(!share.is_clear());
    let batch = share.flush(START + SECOND, 7).expect("it has landed");
    share.acknowledged(batch.seq);
    assert_eq!(share.flush(START + 70 * SECOND, 7), None);
    assert!(share.is_clear());
}

#[test]
fn a_slow_answer_in_one_piece_takes_nothing_from_its_neighbours() {
    // One llm_token in two seconds: the one under way began two seconds before that of the flush.
    let slow = Profile { ttft: 9 * SECOND / 10, pace: 2 * SECOND };
    let mut share = Share::new(ACCOUNT, 60, START);
    let now = START + 28 * SECOND / 10;
    let mut told = |slow_ones: u64| {
        for _ in 0..slow_ones {
            let coming = Stream::admitted(START, slow, 20, 20).flush(now, Seen::Nothing).coming;
            share.come(coming, 1000);
        }
        share.come(Ramp { from: now, to: now + 50 * SECOND, output: 5_000 }, 1000);
        let batch = share.flush(now, 7).expect("something is coming");
        share.acknowledged(batch.seq);
        batch.deltas.iter().sum::<i64>()
    };
    let alone = told(0);
    // The first of twenty is half made.
    assert!((19 * 40..20 * 40).contains(&told(40)), "beside {alone}");
}

#[test]
fn a_stream_that_stalls_keeps_a_short_tail_and_one_without_a_token_its_plan() {
    let profile = Profile { ttft: SECOND, pace: 100_000 };
    let mut stream = Stream::admitted(START, profile, 50, 4_000);
    let told = stream.flush(START + 60 * SECOND, Seen::Output { output: 0, first: 0 });
    assert_eq!((told.landed.output, told.coming.output), (0, 50), "it may still come");
    assert_eq!(told.coming.from, START + 60 * SECOND);
    let at = START + 100 * SECOND;
    let told = stream.flush(at, Seen::Output { output: 10, first: START + 99 * SECOND });
    assert_eq!(
        (told.landed.output, told.coming.output, told.outgrown),
        (10, 100, None),
        "ten seconds at its pace"
    );
    // Minutes of silence: the pace is the slowest that is believed, the rest of the plan stays.
    let told = stream.flush(at + 300 * SECOND, Seen::Output { output: 10, first: START + 99 * SECOND });
    assert_eq!((told.landed.output, told.coming.output), (0, 40));
    assert_eq!(told.coming.to - told.coming.from, 40 * 2 * SECOND);
}

#[test]
fn what_outgrows_its_estimate_is_expected_to_be_four_times_that_up_to_the_cap() {
    let profile = Profile { ttft: 0, pace: 20_000 };
    let first = START;
    // 150 in 3 s, so 500 more in ten seconds.
    for (expected, cap, grown) in [(100, 4_000, 650), (149, 4_000, 650), (150, 4_000, 150), (100, 600, 600)] {
        let mut stream = Stream::admitted(START, profile, expected, cap);
        let told = stream.flush(START + 3 * SECOND, Seen::Output { output: 150, first });
        assert_eq!(told.outgrown, (grown != expected).then_some(grown), "{expected} of {cap} at most");
    }
    // 1,001 in 20 s, so 500 more in ten seconds, are less than four times 1,000.
    let mut stream = Stream::admitted(START, profile, 1_000, 10_000);
    let told = stream.flush(START + 20 * SECOND, Seen::Output { output: 1_001, first });
    assert_eq!((told.outgrown, told.coming.output), (Some(4_000), 2_999));
    let mut stream = Stream::admitted(START, profile, 100, 600);
    let told = stream.flush(START + 3 * SECOND, Seen::Output { output: 150, first });
    assert_eq!((told.outgrown, told.coming.output), (Some(600), 450));
    let told = stream.flush(START + 13 * SECOND, Seen::Output { output: 650, first });
    assert_eq!((told.outgrown, told.coming.output), (None, 0), "above the cap nothing is expected");
}

#[test]
fn pace_is_a_mean_of_weight_a_tenth_within_what_is_believed() {
    let mut pace = Pace::default();
    assert_eq!(pace.profile(), Profile::default());
    pace.learn(SECOND, 2 * SECOND, 101);
    assert_eq!(pace.profile(), Profile { ttft: SECOND, pace: 20_000 });
    pace.learn(2 * SECOND, 3 * SECOND, 101);
    assert_eq!(pace.profile(), Profile { ttft: 1_100_000, pace: 21_000 });
    pace.learn(SECOND, 0, 1);
    assert_eq!(pace.profile().pace, 21_000, "one llm_token has no pace");
    for _ in 0..200 {
        pace.learn(0, 0, 1_000_000);
    }
    assert!(pace.profile().pace >= 1_000, "{pace:?}");
    for _ in 0..200 {
        pace.learn(u64::MAX, u64::MAX / 2, 2);
    }
    assert!(pace.profile().pace <= 2_000_000, "{pace:?}");
}
