//! What happens beside the verbs: due holds, drift, repair, room, people who look.

use std::collections::BTreeSet;

use tollbook_engine::ledger::units::DUE_MAX;
use tollbook_engine::ledger::{DenyKind, EstimatorKind, Measure, Micros, ReservationId};
use tollbook_engine::{
    EngineError, ErrorKind, Inspection, Repair, RestoreCall, RestoredState, Survey, Verdict,
};

use crate::harness::{Factory, Harness, wait};
use crate::legs::{R, S, SHARD, START, account, call, daily, rpm, slots, tpm};
use crate::table::{no_drift, sweep};

fn reserve(harness: &dyn Harness, call: &R) -> Verdict {
    let call = call.at(harness.now());
    wait(harness.engine().reserve(&call)).expect("reserve answers").value
}

fn held(harness: &dyn Harness, name: &str) -> i64 {
    let balances = wait(harness.engine().balances(SHARD, &[account(name)])).expect("balances answer").value;
    balances[0].expect("the account exists").standing.held
}

pub fn l07_a_denial_names_due_holds(factory: Factory) {
    let harness = factory(START);
    let many = u64::try_from(DUE_MAX).expect("small") + 4;
    for id in 0..many {
        let admitted = reserve(&*harness, &call(u128::from(id), [slots("k:slots", many)]));
        assert!(matches!(admitted, Verdict::Admit(_)), "{admitted:?}");
    }
    let denied = reserve(&*harness, &call(99, [slots("k:slots", many)]));
    let Verdict::Deny { due, .. } = denied else { panic!("{denied:?}") };
    assert_eq!(due, [], "nothing is due yet");
    harness.advance(15 * S);
    let denied = reserve(&*harness, &call(99, [slots("k:slots", many)]));
    let Verdict::Deny { due, .. } = denied else { panic!("{denied:?}") };
    assert_eq!(due.len(), DUE_MAX);
    assert!(due.iter().all(|due| due.subjects == [account("k:slots").subject]), "{due:?}");
    // The caller expires those and asks once more.
    let calls: Vec<_> = due
        .into_iter()
        .map(|due| tollbook_engine::ExpireCall { claim: due.claim, subjects: due.subjects })
        .collect();
    wait(harness.engine().expire(&calls)).expect("expire answers");
    assert!(matches!(reserve(&*harness, &call(99, [slots("k:slots", many)])), Verdict::Admit(_)));
    assert_eq!(sweep(&*harness), 4);
}

pub fn l10_held_is_the_sum_after_any_mix_of_endings(factory: Factory) {
    let harness = factory(START);
    let legs = || [rpm("k:rpm", 1000), tpm("k:tpm", 100_000, 7), daily("t:cost", Measure::Cost, 100_000, 11)];
    for id in 0..60_u128 {
        assert!(matches!(reserve(&*harness, &call(id, legs())), Verdict::Admit(_)));
        let claim = tollbook_engine::Claim { shard: SHARD, id: ReservationId(id), attempt: 1 };
        let accounts = legs().iter().map(|leg| leg.at(harness.now()).account).collect();
        match id % 4 {
            0 => {
                let (actual, entry) = (vec![1, 3, 5], b"e".to_vec());
                let call = tollbook_engine::SettleCall {
                    claim,
                    accounts,
                    actual,
                    landed: 0,
                    learn: None,
                    entry,
                    age: 0,
                };
                wait(harness.engine().settle(&call)).expect("settle answers");
            }
            1 => {
                let why = tollbook_engine::ledger::ReleaseWhy::Failed;
                let call = tollbook_engine::ReleaseCall { claim, accounts, why, entry: Some(b"e".to_vec()) };
                wait(harness.engine().release(&call)).expect("release answers");
            }
            2 => {
                let call = tollbook_engine::RenewCall {
                    claim,
                    subjects: Vec::new(),
                    sent: true,
                    life: 60 * S,
                    output_expected: None,
                    outgrown: None,
                };
                wait(harness.engine().renew(&[call])).expect("renew answers");
            }
            _ => {}
        }
        no_drift(&*harness, "after an ending");
        harness.advance(S / 10);
    }
    assert_eq!(held(&*harness, "k:tpm"), 30 * 7);
    harness.advance(75 * S);
    assert_eq!(sweep(&*harness), 30);
    no_drift(&*harness, "after the sweep");
    assert_eq!((held(&*harness, "k:tpm"), held(&*harness, "t:cost")), (0, 0));
}

/// The one difference that a shard shows.
fn difference(harness: &dyn Harness) -> (u64, i64, i64, u64) {
    for shard in harness.engine().shards() {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let drift = wait(harness.engine().drift(shard, at, 1000)).expect("drift answers").value;
            if let Some((_, period, held, sum, version)) = drift.differences.first() {
                return (*period, *held, *sum, *version);
            }
            cursor = drift.next;
        }
    }
    panic!("no difference is seen");
}

pub fn l10_repair_loses_a_race_harmlessly(factory: Factory) {
    let harness = factory(START);
    let call_of = |id| call(id, [tpm("k:tpm", 1000, 60)]);
    assert!(matches!(reserve(&*harness, &call_of(1)), Verdict::Admit(_)));
    if !harness.corrupt_held(account("k:tpm"), 500) {
        return;
    }
    let (period, seen, sum, version) = difference(&*harness);
    assert_eq!((seen, sum), (500, 60));
    let repair = Repair { shard: SHARD, account: account("k:tpm"), period, version };
    // A reserve comes in between: what was seen is no longer true.
    assert!(matches!(reserve(&*harness, &call_of(2)), Verdict::Admit(_)));
    assert!(!wait(harness.engine().repair(&repair)).expect("repair answers").value);
    assert_eq!(held(&*harness, "k:tpm"), 560);
    let (period, _, sum, version) = difference(&*harness);
    assert_eq!(sum, 120);
    let repair = Repair { shard: SHARD, account: account("k:tpm"), period, version };
    assert!(wait(harness.engine().repair(&repair)).expect("repair answers").value);
    assert_eq!(held(&*harness, "k:tpm"), 120);
    no_drift(&*harness, "after the repair");
}

pub fn l11_a_negative_held_counts_as_zero(factory: Factory) {
    let harness = factory(START);
    let call_of = |id, demand| call(id, [tpm("k:tpm", 100, demand)]);
    assert!(matches!(reserve(&*harness, &call_of(1, 10)), Verdict::Admit(_)));
    if !harness.corrupt_held(account("k:tpm"), -50) {
        return;
    }
    // Kept as evidence: −50 + 100, not 0 + 100; but it made no room.
    assert!(matches!(reserve(&*harness, &call_of(2, 101)), Verdict::Deny { .. }));
    assert!(matches!(reserve(&*harness, &call_of(2, 100)), Verdict::Admit(_)));
    assert_eq!(held(&*harness, "k:tpm"), 50);
    let (_, seen, sum, _) = difference(&*harness);
    assert_eq!((seen, sum), (50, 110));
}

pub fn l14_a_denial_tells_the_room_of_every_leg(factory: Factory) {
    let harness = factory(START);
    let legs =
        |demand| [rpm("k:rpm", 10), tpm("k:tpm", 100, demand), daily("t:cost", Measure::Cost, 70, demand)];
    assert!(matches!(reserve(&*harness, &call(1, legs(60))), Verdict::Admit(_)));
    let Verdict::Deny { denial, .. } = reserve(&*harness, &call(2, legs(41))) else { panic!("denied") };
    assert_eq!(denial.room, [9, 40, 10]);
    let binding = denial.binding;
    assert_eq!((binding.ceiling, binding.posted, binding.demand), (100, 0, 41), "{binding:?}");
    // What was told as room fits.
    let fitting = [rpm("k:rpm", 10), tpm("k:tpm", 100, 40), daily("t:cost", Measure::Cost, 70, 10)];
    assert!(matches!(reserve(&*harness, &call(2, fitting)), Verdict::Admit(_)));
}

pub fn l14_a_likely_wait_is_within_bounds(factory: Factory) {
    let harness = factory(START);
    let leg = || [tpm("k:tpm", 100, 100)];
    for id in 0..4_u128 {
        let Verdict::Admit(receipt) = reserve(&*harness, &call(id, leg())) else { panic!("admitted") };
        let denied = reserve(&*harness, &call(90 + id, leg()));
        let Verdict::Deny { denial, .. } = denied else { panic!("{denied:?}") };
        let DenyKind::Busy(hint) = denial.binding.kind else { panic!("{denial:?}") };
        let bounds: std::ops::RangeInclusive<Micros> = S..=60 * S;
        assert!(!hint.firm && bounds.contains(&hint.after), "{hint:?}");
        harness.advance(4 * S);
        let call = tollbook_engine::SettleCall {
            claim: receipt.claim(),
            accounts: vec![account("k:tpm")],
            actual: vec![0],
            landed: 0,
            learn: None,
            entry: Vec::new(),
            age: 0,
        };
        wait(harness.engine().settle(&call)).expect("settle answers");
    }
}

pub fn a_reservation_and_an_account_can_be_inspected(factory: Factory) {
    let harness = factory(START);
    assert!(matches!(reserve(&*harness, &call(0xabcd, [tpm("k:tpm", 100, 60)])), Verdict::Admit(_)));
    let inspect = |what| wait(harness.engine().inspect(SHARD, &what)).expect("inspect answers").value;
    let text = inspect(Inspection::Account(account("k:tpm")));
    assert!(text.contains("60"), "{text}");
    let text = inspect(Inspection::Reservation(ReservationId(0xabcd)));
    assert!(text.contains("60"), "{text}");
    let none = inspect(Inspection::Reservation(ReservationId(1)));
    assert!(none.starts_with("no such"), "{none}");
}

pub fn a_shard_can_be_surveyed(factory: Factory) {
    let harness = factory(START);
    let survey = |max| wait(harness.engine().survey(SHARD, max)).expect("survey answers").value;
    assert_eq!(survey(10), Survey::default(), "nothing is kept yet");
    let legs = || [tpm("k:tpm", 1_000, 60).output(40).learning("k", 30), rpm("k:rpm", 10)];
    let mut receipts = Vec::new();
    for id in 1..=3_u64 {
        let verdict = reserve(&*harness, &call(u128::from(id), legs()));
        let Verdict::Admit(receipt) = verdict else { panic!("{verdict:?}") };
        receipts.push(receipt);
        harness.advance(S);
    }
    let accounts = vec![account("k:tpm"), account("k:rpm")];
    let settle = tollbook_engine::SettleCall {
        claim: receipts[0].claim(),
        accounts: accounts.clone(),
        actual: vec![67, 1],
        landed: 0,
        learn: Some(7),
        entry: Vec::new(),
        age: 0,
    };
    wait(harness.engine().settle(&settle)).expect("settle answers");
    harness.advance(S);

    let mut seen = survey(10);
    seen.accounts.sort_by_key(|row| accounts.iter().position(|id| *id == row.account));
    let balances = wait(harness.engine().balances(SHARD, &accounts)).expect("balances answer").value;
    assert_eq!(seen.accounts, balances.into_iter().flatten().collect::<Vec<_>>());
    let told: Vec<_> = seen.holds.iter().map(|hold| (hold.id.0, hold.age, hold.due, hold.sent)).collect();
    assert_eq!(told, [(2, 3 * S, 12 * S, false), (3, 2 * S, 13 * S, false)], "a life of 15 s, soonest first");
    let of: Vec<_> = seen.holds[0].legs.iter().map(|leg| (leg.account, leg.held, leg.decided)).collect();
    assert_eq!(of, [(accounts[0], 90, 90), (accounts[1], 0, 1)]);
    assert_eq!(seen.holds[0].legs[0].output, 30);
    let live = |id| wait(harness.engine().live(SHARD, ReservationId(id))).expect("live answers").value;
    assert_eq!((live(2), live(1), live(9)), (vec![seen.holds[0].clone()], vec![], vec![]));
    // The call's own estimator and its prior.
    let learned: Vec<_> = seen.learned.iter().map(|row| (row.kind, row.calls, row.mean, row.idle)).collect();
    assert_eq!(learned, [(EstimatorKind::Ema, 1, 7_000, S); 2]);
    assert!(!seen.more);

    let cut = survey(1);
    assert!(cut.more);
    assert_eq!((cut.accounts.len(), cut.holds.len(), cut.learned.len()), (1, 1, 1));
    assert_eq!(cut.holds[0], seen.holds[0]);
}

/// More than an engine reads at once.
pub fn a_large_shard_is_surveyed_whole_or_cut(factory: Factory) {
    const CALLS: usize = 600;
    let harness = factory(START);
    for id in 1..=CALLS as u64 {
        let legs = [tpm(&format!("{id}:tpm"), 1_000, 60), slots(&format!("{id}:slots"), 3)];
        let verdict = reserve(&*harness, &call(u128::from(id), legs));
        assert!(matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
    }
    let survey = |max| wait(harness.engine().survey(SHARD, max)).expect("survey answers").value;
    let whole = survey(2 * CALLS);
    assert_eq!((whole.accounts.len(), whole.holds.len(), whole.more), (2 * CALLS, CALLS, false));
    let accounts: BTreeSet<_> = whole.accounts.iter().map(|row| row.account).collect();
    let held: BTreeSet<_> = whole.holds.iter().flat_map(|hold| &hold.legs).map(|leg| leg.account).collect();
    assert_eq!((accounts.len(), &held), (2 * CALLS, &accounts), "each once, and every account has its call");
    let cut = survey(CALLS - 1);
    assert_eq!((cut.accounts.len(), cut.holds.len(), cut.more), (CALLS - 1, CALLS - 1, true));
    let few = survey(10);
    assert_eq!((few.accounts.len(), few.holds.len(), few.more), (10, 10, true));
    assert_eq!(few.holds, whole.holds[..10]);
}

/// `restore` and `progress` may be unsupported; then they say so and change nothing.
pub fn unsupported_verbs_say_so(factory: Factory) {
    let harness = factory(START);
    let first = call(1, [tpm("k:tpm", 100, 60)]);
    let Verdict::Admit(receipt) = reserve(&*harness, &first) else { panic!("admitted") };
    let asked = first.at(harness.now());
    let call = RestoreCall { asked, receipt, age: 0, state: RestoredState::Held { sent: false } };
    if let Err(error) = wait(harness.engine().restore(&call)) {
        assert_eq!(error, EngineError::not_applied(ErrorKind::Unsupported));
    }
    assert_eq!(held(&*harness, "k:tpm"), 60);
}

pub fn every_reply_carries_the_engine_time(factory: Factory) {
    let harness = factory(START);
    harness.advance(3 * S);
    let call = call(1, [tpm("k:tpm", 100, 60)]).at(harness.now());
    let reply = wait(harness.engine().reserve(&call)).expect("reserve answers");
    assert_eq!(reply.now, START + 3 * S);
    let Verdict::Admit(receipt) = reply.value else { panic!("admitted") };
    assert_eq!((receipt.receipt.now, receipt.epoch), (reply.now, reply.epoch));
    wait(harness.engine().flush()).expect("flush answers");
}
