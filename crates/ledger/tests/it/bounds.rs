//! Refusals in their order, bounds at the bound, and totality: nothing that comes in makes the book panic.

use proptest::prelude::*;
use tollbook_ledger::event::{
    AccountRow, Adjusted, Batch, Corrected, DeniedPost, Ended, EstimateRow, GatewayRow, Grown, HeldLeg,
    Learner, LiveRow, Opened, PeriodOpened, PeriodRow, Pruned, QuotaLeg, RenewedTo, Reserved, TombstoneRow,
};
use tollbook_ledger::{
    AMOUNT_MAX, AccountId, Adjust, Book, Drift, End, Estimator, EstimatorId, EstimatorKind, Event, ExpireOne,
    Growth, Hold, LEGS_MAX, Leg, Limit, LimitId, Measure, OnExpiry, Opening, Periods, Profile, Progress,
    Rebook, Refusal, Release, ReleaseWhy, Renew, ReservationId, Reserve, SECOND, Settle, Shape, SubjectId,
    Verdict, Weights,
    units::{BUCKETS_MAX, CONTEXT_MAX, LIMITS_PER_LEG_MAX, WIDTH_MAX},
};

use crate::book_desk::Follower;
use crate::random::{START, cases};

fn leg(name: u64) -> Leg {
    Leg {
        account: AccountId { subject: SubjectId(1), name },
        measure: Measure::Tokens,
        shape: Shape::Rate { buckets: 61, width: SECOND, weights: Weights::Whole },
        periods: Periods::None,
        base: 1_000,
        per_output: 1_000,
        cap: 10,
        worst: 11,
        estimator: Estimator::Capped,
        refund_failed: false,
        limits: vec![limit(1_000)],
    }
}

fn limit(ceiling: u64) -> Limit {
    Limit {
        id: LimitId(1),
        ceiling,
        hard: false,
        shadow: false,
        count_denied: false,
        hold: Hold::Expected,
        on_expiry: OnExpiry::Release,
    }
}

fn with(legs: Vec<Leg>) -> Reserve {
    Reserve {
        id: ReservationId(1),
        attempt: 0,
        life: SECOND,
        profile: Profile::default(),
        legs,
        context: Vec::new(),
    }
}

fn ask(cmd: &Reserve) -> Result<Verdict, Refusal> {
    let mut log = Follower::default();
    let answer = Book::new().reserve(START, cmd, &mut log);
    assert!(answer.is_ok() || log.events == 0, "a refusal writes nothing");
    answer
}

fn is_admitted(cmd: &Reserve) -> bool {
    matches!(ask(cmd), Ok(Verdict::Admit(_)))
}

/// Each refusal alone, then with every later one beside it: the earlier one wins.
#[test]
fn refusals_win_in_their_order() {
    let mut all = with(vec![leg(0), leg(1), leg(2), leg(3), leg(4)]);
    all.context = vec![0; CONTEXT_MAX + 1];
    assert_eq!(ask(&all), Err(Refusal::Context));
    all.legs[4].shape = Shape::Quota;
    assert_eq!(ask(&all), Err(Refusal::Shape(4)));
    all.legs[3].worst = AMOUNT_MAX + 1;
    assert_eq!(ask(&all), Err(Refusal::Amount(3)));
    all.legs[2].account = all.legs[0].account;
    assert_eq!(ask(&all), Err(Refusal::RepeatedAccount(2)));
    all.legs[1].limits.clear();
    assert_eq!(ask(&all), Err(Refusal::Limits(1)));
    let (one, many) = (all.legs[1].clone(), LEGS_MAX + 1);
    all.legs = vec![one; many];
    assert_eq!(ask(&all), Err(Refusal::TooManyLegs));
    all.legs.clear();
    assert_eq!(ask(&all), Err(Refusal::NoLegs));
}

#[test]
fn bounds_hold_at_the_bound() {
    let mut most = with((0..32).map(leg).collect());
    assert_eq!(most.legs.len(), LEGS_MAX);
    most.context = vec![0; CONTEXT_MAX];
    most.legs[31].limits = vec![limit(AMOUNT_MAX); LIMITS_PER_LEG_MAX];
    assert!(is_admitted(&most));
    most.legs[31].limits.push(limit(1));
    assert_eq!(ask(&most), Err(Refusal::Limits(31)));
}

#[test]
fn l13_amounts_at_the_bound() {
    let mut cmd = with(vec![leg(0)]);
    cmd.legs[0].limits[0].ceiling = AMOUNT_MAX;
    (cmd.legs[0].base, cmd.legs[0].per_output, cmd.legs[0].cap) = (AMOUNT_MAX - 1_000, 1, 1_000);
    assert!(is_admitted(&cmd));
    cmd.legs[0].cap = 1_001;
    assert_eq!(ask(&cmd), Err(Refusal::Amount(0)));
    (cmd.legs[0].base, cmd.legs[0].per_output, cmd.legs[0].cap) = (0, u64::MAX, u64::MAX);
    assert_eq!(ask(&cmd), Err(Refusal::Amount(0)));
    (cmd.legs[0].base, cmd.legs[0].per_output, cmd.legs[0].cap) = (0, u64::MAX, 0);
    assert!(is_admitted(&cmd));
    cmd.legs[0].limits[0].ceiling = AMOUNT_MAX + 1;
    assert_eq!(ask(&cmd), Err(Refusal::Amount(0)));
}

#[test]
fn l13_amounts_are_rounded_up_once() {
    let mut cmd = with(vec![leg(0)]);
    (cmd.legs[0].base, cmd.legs[0].per_output, cmd.legs[0].cap) = (1, 333, 3);
    let Ok(Verdict::Admit(receipt)) = ask(&cmd) else { panic!("room") };
    assert_eq!((receipt.legs[0].expected, receipt.legs[0].held), (1, 1));
    cmd.legs[0].base = 2;
    let Ok(Verdict::Admit(receipt)) = ask(&cmd) else { panic!("room") };
    assert_eq!(receipt.legs[0].held, 2);
}

#[test]
fn shapes_that_can_not_be_are_refused() {
    let rate = |buckets, width| Shape::Rate { buckets, width, weights: Weights::Whole };
    let refused = |shape, measure, periods| {
        let mut cmd = with(vec![leg(0)]);
        (cmd.legs[0].shape, cmd.legs[0].measure, cmd.legs[0].periods) = (shape, measure, periods);
        ask(&cmd) == Err(Refusal::Shape(0))
    };
    assert!(!refused(rate(2, 1), Measure::Tokens, Periods::None));
    assert!(!refused(rate(BUCKETS_MAX, WIDTH_MAX), Measure::Tokens, Periods::None));
    assert!(refused(rate(1, SECOND), Measure::Tokens, Periods::None));
    assert!(refused(rate(BUCKETS_MAX + 1, SECOND), Measure::Tokens, Periods::None));
    assert!(refused(rate(2, 0), Measure::Tokens, Periods::None));
    assert!(refused(rate(2, WIDTH_MAX + 1), Measure::Tokens, Periods::None));
    assert!(refused(rate(2, SECOND), Measure::Tokens, Periods::Lifetime));
    assert!(refused(rate(2, SECOND), Measure::Concurrency, Periods::None));
    assert!(refused(Shape::Concurrency, Measure::Requests, Periods::None));
    assert!(refused(Shape::Quota, Measure::Cost, Periods::None));
    assert!(refused(Shape::Quota, Measure::Cost, Periods::Calendar([1, 2, 2, 3])));
}

#[test]
fn one_name_has_one_shape() {
    let (mut book, mut log) = (Book::new(), Follower::default());
    let mut cmd = with(vec![leg(0)]);
    assert!(matches!(book.reserve(START, &cmd, &mut log), Ok(Verdict::Admit(_))));
    cmd.id = ReservationId(2);
    cmd.legs[0].shape = Shape::Rate { buckets: 7, width: 10 * SECOND, weights: Weights::Whole };
    assert_eq!(book.reserve(START, &cmd, &mut log), Err(Refusal::Shape(0)));
    cmd.legs[0] = leg(0);
    cmd.legs[0].measure = Measure::InputTokens;
    assert_eq!(book.reserve(START, &cmd, &mut log), Err(Refusal::Shape(0)));
}

/// Holds that are not enforced could add up beyond any integer; they are cut, and the sum stays exact.
#[test]
fn l10_the_sum_of_shadow_holds_is_bounded() {
    let (mut book, mut log) = (Book::new(), Follower::default());
    let mut cmd = with(vec![leg(0)]);
    (cmd.legs[0].cap, cmd.legs[0].worst) = (0, AMOUNT_MAX);
    (cmd.legs[0].limits[0].shadow, cmd.legs[0].limits[0].hold) = (true, Hold::Worst);
    for id in 0..600 {
        cmd.id = ReservationId(id);
        assert!(matches!(book.reserve(START, &cmd, &mut log), Ok(Verdict::Admit(_))));
    }
    let balance = book.balance(START, cmd.legs[0].account).expect("open");
    assert_eq!(balance.held, 1 << 62);
    assert_eq!(book.drift(0, 9), (Vec::new(), None));
    for id in 0..600 {
        let settle =
            Settle { id: ReservationId(id), attempt: 0, actual: vec![AMOUNT_MAX], landed: 0, learn: None };
        book.settle(START, &settle, &mut log).expect("log");
    }
    let balance = book.balance(START, cmd.legs[0].account).expect("open");
    assert_eq!((balance.held, balance.posted), (0, (1 << 53) - 1));
    assert_eq!(book.alarms().saturated, 599);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0_u64),
        Just(1),
        Just(1_000),
        Just(AMOUNT_MAX),
        Just(AMOUNT_MAX + 1),
        Just(u64::MAX),
        0_u64..100,
        any::<u64>()
    ]
}

fn wild_leg() -> impl Strategy<Value = Leg> {
    let shape = prop_oneof![
        (any::<u8>(), number(), 0_u8..3).prop_map(|(buckets, width, weights)| Shape::Rate {
            buckets,
            width,
            weights: [Weights::Whole, Weights::Oldest, Weights::Decay][usize::from(weights)],
        }),
        (2_u8..5, 1_u64..9, 0_u8..3).prop_map(|(buckets, width, weights)| Shape::Rate {
            buckets,
            width,
            weights: [Weights::Whole, Weights::Oldest, Weights::Decay][usize::from(weights)],
        }),
        (any::<u8>(), any::<bool>())
            .prop_map(|(window, strict)| Shape::Forecast { window: window % 70, strict }),
        Just(Shape::Quota),
        Just(Shape::Concurrency),
    ];
    let periods = prop_oneof![
        Just(Periods::None),
        Just(Periods::Lifetime),
        [number(), number(), number(), number()].prop_map(Periods::Calendar),
        Just(Periods::Calendar([0, 1, 2, u64::MAX])),
    ];
    let measure = prop_oneof![
        Just(Measure::Tokens),
        Just(Measure::Requests),
        Just(Measure::Cost),
        Just(Measure::Concurrency)
    ];
    let limit = (number(), any::<u8>()).prop_map(|(ceiling, flags)| Limit {
        hard: flags & 1 > 0,
        shadow: flags & 6 == 6,
        count_denied: flags & 8 > 0,
        hold: if flags & 16 > 0 { Hold::Worst } else { Hold::Expected },
        on_expiry: if flags & 32 > 0 { OnExpiry::Charge } else { OnExpiry::Release },
        ..self::limit(ceiling)
    });
    let estimator = prop_oneof![
        Just(Estimator::Capped),
        number().prop_map(|output| Estimator::Constant { output }),
        number().prop_map(|first| Estimator::Learned {
            kind: EstimatorKind::Ema,
            own: EstimatorId(1),
            prior: EstimatorId(2),
            first
        }),
    ];
    (
        0_u64..5,
        (measure, shape, periods, estimator),
        (number(), number(), number(), number()),
        any::<bool>(),
        prop::collection::vec(limit, 0..10),
    )
        .prop_map(
            |(
                name,
                (measure, shape, periods, estimator),
                (base, per_output, cap, worst),
                refund_failed,
                limits,
            )| {
                Leg {
                    measure,
                    shape,
                    periods,
                    base,
                    per_output,
                    cap,
                    worst,
                    estimator,
                    refund_failed,
                    limits,
                    ..leg(name)
                }
            },
        )
}

#[derive(Clone, Debug)]
struct Wild {
    now: u64,
    verb: u8,
    id: u128,
    attempt: u16,
    legs: Vec<Leg>,
    numbers: [u64; 4],
}

fn wild() -> impl Strategy<Value = Wild> {
    (
        number(),
        0_u8..14,
        0_u128..3,
        0_u16..3,
        prop::collection::vec(wild_leg(), 0..4),
        [number(), number(), number(), number()],
    )
        .prop_map(|(now, verb, id, attempt, legs, numbers)| Wild {
            now,
            verb,
            id,
            attempt,
            legs,
            numbers,
        })
}

/// Any verb with any numbers.
fn run(book: &mut Book, log: &mut Follower, wild: &Wild) {
    let (now, id, attempt, [a, b, c, d]) = (wild.now, ReservationId(wild.id), wild.attempt, wild.numbers);
    let reserve = Reserve {
        id,
        attempt,
        life: a,
        profile: Profile { ttft: c, pace: d },
        legs: wild.legs.clone(),
        context: vec![1; 3],
    };
    let growth = if b % 2 == 0 { Growth::Unchanged } else { Growth::Output(c) };
    let account = leg(d % 5).account;
    let delta = i64::from_ne_bytes(b.to_ne_bytes());
    match wild.verb {
        0..=3 => drop(book.reserve(now, &reserve, log)),
        4 => drop(book.rebook(
            now,
            &Rebook { ended: attempt.wrapping_sub(1), actual: Some(vec![b, c]), landed: d, reserve },
            log,
        )),
        5 => drop(book.renew(
            now,
            &Renew { id, attempt, life: a, sent: b % 2 == 0, growth, outgrown: Some(c) },
            log,
        )),
        6 => drop(book.settle(
            now,
            &Settle { id, attempt, actual: vec![a, b, c], landed: b, learn: Some(d) },
            log,
        )),
        7 => drop(book.settle(now, &Settle { id, attempt, actual: vec![a], landed: d, learn: Some(d) }, log)),
        8 => drop(book.release(now, &Release { id, attempt, why: ReleaseWhy::NeverSent }, log)),
        9 => drop(book.expire(now, &ExpireOne { id, attempt }, log)),
        10 => {
            let opening = (c % 2 == 0).then_some(Opening { measure: Measure::Cost, end: c });
            let cmd = Adjust { id: u128::from(a % 3), account, period: b, delta, opening };
            let _ = book.adjust(now, &cmd, log);
        }
        11 => drop(book.prune(now, 7, log)),
        12 => {
            let deltas = vec![delta, i64::from(wild.attempt), 9, -9];
            let second = if c % 2 == 0 { now / SECOND } else { d };
            let cmd = Progress { gateway: a % 3, account, seq: b, base_second: second, deltas };
            let _ = book.progress(now, &[cmd.clone(), cmd], log);
        }
        _ => {
            let seen = Drift { account, period: a, held: delta, sum: 0, version: 0 };
            let _ = book.repair(now, &seen, log);
        }
    }
    drop(book.due(now, 3));
    assert!(book.balances(now).count() <= 99);
    drop(book.drift(0, 100));
}

/// A check in steps finds what a check at one moment finds, however small its steps.
#[test]
fn l10_a_check_in_steps_finds_a_drift_and_ends() {
    let (mut book, mut log) = (Book::new(), Follower::default());
    for id in 0..9 {
        let cmd = Reserve {
            id: ReservationId(id),
            attempt: 0,
            life: SECOND,
            profile: Profile::default(),
            legs: vec![leg(1)],
            context: Vec::new(),
        };
        book.reserve(START, &cmd, &mut log).unwrap();
    }
    let whole = |book: &mut Book, max: u32| {
        let (mut found, mut step, mut steps) = (Vec::new(), Some(0), 0);
        while let Some(at) = step {
            let (more, next) = book.audit(at, max);
            found.extend(more);
            (step, steps) = (next, steps + 1);
        }
        (found, steps)
    };
    for max in [1, 2, 100] {
        let (found, steps) = whole(&mut book, max);
        assert_eq!(found, Vec::new());
        assert!(steps > 9 / max, "{steps} steps of {max}");
    }
    let Some(slot) = slot_of(&book, leg(1).account) else { panic!("no account") };
    book.apply(&Event::Repaired { now: START, slot, period: 0, held: 77 });
    let expected = book.drift(0, 100).0;
    assert_eq!(expected.len(), 1);
    for max in [1, 100] {
        assert_eq!(whole(&mut book, max).0, expected);
    }
    // Two checks at once: the older one ends.
    let (_, old) = book.audit(0, 1);
    let (_, next) = book.audit(old.unwrap(), 1);
    book.audit(0, 1);
    assert_eq!(book.audit(next.unwrap(), 1), (Vec::new(), None));
}

fn slot_of(book: &Book, account: AccountId) -> Option<u32> {
    let mut found = None;
    book.inspect_account(account, &mut |row| {
        if let Event::Account(row) = row {
            found = Some(row.opened.slot);
        }
    });
    found
}

fn held_leg() -> impl Strategy<Value = HeldLeg> {
    (
        [number(), number(), number(), number()],
        [number(), number(), number(), number()],
        0_u32..6,
        any::<u8>(),
    )
        .prop_map(|([place, base, per_output, cap], [output, held, decided, carried], slot, flags)| {
            HeldLeg {
                slot,
                at_worst: flags & 1 > 0,
                charge: flags & 2 > 0,
                refund_failed: flags & 4 > 0,
                shadow_denied: flags & 8 > 0,
                place,
                base,
                per_output,
                cap,
                worst: base,
                output,
                held,
                decided,
                carried,
                hard_ceiling: place,
            }
        })
}

/// Any event with any numbers, as a damaged log might hold.
fn apply_wild(book: &mut Book, wild: &Wild, held: &[HeldLeg]) {
    let (now, id, attempt, [a, b, c, d]) = (wild.now, ReservationId(wild.id), wild.attempt, wild.numbers);
    let slot = u32::try_from(a % 70).expect("small");
    let delta = i64::from_ne_bytes(b.to_ne_bytes());
    let leg = wild.legs.first().cloned().unwrap_or_else(|| self::leg(9));
    let opened = Opened { slot, account: leg.account, measure: leg.measure, shape: leg.shape };
    let period = PeriodOpened { slot, start: c, end: d };
    let learner = Learner { own: EstimatorId(a), prior: EstimatorId(b), kind: EstimatorKind::Ema };
    let row = PeriodRow { start: a, end: b, posted: delta, held: delta };
    let quota = QuotaLeg {
        account: leg.account,
        leg: 200,
        requests: a % 2 == 0,
        refund_failed: false,
        period: c,
        charged: b,
        decided: d,
    };
    let ended = Ended { now, id, attempt, end: End::Expired, posted: &[delta, -1, 1], learned: Some(c) };
    let reserved = Reserved {
        now,
        id,
        attempt,
        due: a,
        profile: Profile { ttft: b, pace: c },
        context: &[],
        opened: &[opened, opened],
        periods: &[period],
        learners: &[learner],
        legs: held,
    };
    let grown = Grown { leg: 0, output: a, held: b, decided: c };
    let event = match wild.verb {
        0..=2 => Event::Reserved(reserved),
        3 => Event::Ended(ended),
        4 => Event::Rebooked { ended, reserved },
        5 => Event::Renewed(RenewedTo {
            now,
            id,
            attempt,
            due: a,
            sent: true,
            outgrown: Some(b),
            grown: &[grown],
        }),
        6 => Event::Corrected(Corrected { now, id, attempt, posted: &[delta], learned: Some(a) }),
        7 => Event::Denied { now, posts: &[DeniedPost { slot, amount: b }] },
        8 => Event::Adjusted(Adjusted {
            now,
            id: 1,
            opened: Some(opened),
            period_opened: Some(period),
            slot,
            period: c,
            delta,
        }),
        9 => Event::Repaired { now, slot, period: c, held: delta },
        10 => Event::Pruned(Pruned {
            now,
            tombstones: 3,
            adjusts: 3,
            estimators: &[EstimatorId(a)],
            accounts: &[slot],
            trimmed: &[slot],
        }),
        11 => Event::Account(AccountRow {
            opened,
            held: delta,
            live: 9,
            version: u32::MAX,
            mean_hold: d,
            used: a,
            shadow_denied: b,
            shadow_demand: c,
            denied_bucket: d,
            newest: a,
            buckets: &[b, c, d],
            gateways: &[GatewayRow { gateway: a, seq: b, heard: c }],
            periods: &[row],
        }),
        _ if a % 4 == 3 => Event::Progressed {
            now,
            batches: &[Batch { slot, gateway: b, seq: c, base_second: d, seconds: 2 }; 2],
            deltas: &[delta, i64::MIN, i64::MAX],
        },
        _ if a % 3 == 0 => Event::Live(LiveRow {
            id,
            attempt,
            admitted: a,
            due: b,
            sent: true,
            context: &[],
            learners: &[learner],
            legs: held,
        }),
        _ if a % 3 == 1 => Event::Tombstone(TombstoneRow {
            id,
            attempt,
            end: End::Expired,
            admitted: a,
            ended: b,
            legs: 1,
            learners: &[learner],
            quotas: &[quota],
        }),
        _ => Event::Estimate(EstimateRow {
            id: EstimatorId(a % 2 + 1),
            kind: [
                EstimatorKind::Ema,
                EstimatorKind::Forecast,
                EstimatorKind::P95,
                EstimatorKind::RecentMean,
            ][usize::try_from(b % 4).unwrap()],
            samples: &[a, b, c],
            n: b,
            m: c.min(AMOUNT_MAX * 1000),
            used: d,
        }),
    };
    book.apply(&event);
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn no_command_panics(steps in prop::collection::vec(wild(), 1..40)) {
        let (mut book, mut log) = (Book::new(), Follower::default());
        for wild in &steps {
            run(&mut book, &mut log, wild);
            prop_assert!(book == log.book);
        }
    }

    #[test]
    fn no_event_panics(
        steps in prop::collection::vec((any::<bool>(), wild(), prop::collection::vec(held_leg(), 0..3)), 1..40),
    ) {
        let (mut book, mut log) = (Book::new(), Follower::default());
        for (damaged, wild, held) in &steps {
            if *damaged {
                apply_wild(&mut book, wild, held);
            } else {
                run(&mut book, &mut log, wild);
            }
        }
    }
}
