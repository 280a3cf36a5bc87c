//! What gateways admitted while the log could not be written, posted afterwards.

use tollbook_engine::ledger::{AccountId, End, Expired, Measure, ReservationId};
use tollbook_engine::{
    Cursor, ENTRY_MAX, Engine, ErrorKind, ExpireCall, Receipt, RestoreCall, RestoredState, Source, Verdict,
};
use tollbook_engine_memory::{Clock as _, MemoryEngine};
use tollbook_engine_suite::legs::{
    D, H, R, S, SHARD, START, account, call, daily, lifetime, rpm, slots, tpm,
};
use tollbook_engine_suite::wait;

use crate::harness::{Hand, options};

const ACCOUNTS: [&str; 5] = ["t:rpm", "t:tpm", "t:cost", "k:slots", "k:life"];

fn engine(clock: &std::sync::Arc<Hand>) -> MemoryEngine {
    MemoryEngine::open(None, options(clock.clone())).unwrap().engine
}

/// A call with every shape, its ceilings far below what it uses.
fn usual(id: u128) -> R {
    call(
        id,
        [
            rpm("t:rpm", 1),
            tpm("t:tpm", 20, 10).output(500),
            daily("t:cost", Measure::Cost, 100, 90).output(5),
            slots("k:slots", 1),
            lifetime("k:life", 10, 7),
        ],
    )
}

/// As a local book answers it: the same verb on a book of its own.
fn admitted(clock: &std::sync::Arc<Hand>, id: u128) -> (tollbook_engine::ReserveCall, Receipt) {
    let asked = usual(id).at(clock.now());
    let verdict = wait(engine(clock).reserve(&asked)).unwrap().value;
    let Verdict::Admit(receipt) = verdict else { panic!("{verdict:?}") };
    (asked, receipt)
}

fn restore(clock: &std::sync::Arc<Hand>, id: u128, how: End, posted: [u64; 5]) -> RestoreCall {
    let (asked, receipt) = admitted(clock, id);
    let (posted, entry) = (Some(posted.to_vec()), Some(vec![7]));
    RestoreCall {
        asked,
        receipt,
        age: 3 * S,
        state: RestoredState::Ended { how, posted, landed: 4, age: S, entry },
    }
}

fn standing(engine: &MemoryEngine) -> Vec<(i64, i64)> {
    let ids: Vec<AccountId> = ACCOUNTS.iter().map(|name| account(name)).collect();
    let balances = wait(engine.balances(SHARD, &ids)).unwrap().value;
    balances.iter().map(|b| b.map_or((0, 0), |b| (b.standing.posted, b.standing.held))).collect()
}

#[test]
fn an_ended_call_is_posted_whole_and_once_whatever_the_ceilings_say() {
    let clock = Hand::at(START);
    let engine = engine(&clock);
    for id in 1..=3 {
        let call = restore(&clock, id, End::Settled, [1, 300, 250, 0, 9]);
        for _ in 0..3 {
            wait(engine.restore(&call)).unwrap();
        }
    }
    assert_eq!(standing(&engine), [(3, 0), (900, 0), (750, 0), (0, 0), (27, 0)]);
    let failed = restore(&clock, 4, End::Released, [1, 0, 0, 0, 0]);
    for _ in 0..2 {
        wait(engine.restore(&failed)).unwrap();
    }
    assert_eq!(standing(&engine), [(4, 0), (900, 0), (750, 0), (0, 0), (27, 0)]);
    let records = wait(engine.journal_read(SHARD, Cursor(0), 100)).unwrap().value;
    let told: Vec<_> = records.iter().map(|r| (r.id, r.source, r.posted.len(), r.body.as_slice())).collect();
    let row = |id, source, posted| (ReservationId(id), source, posted, [7].as_slice());
    assert_eq!(
        told,
        [
            row(1, Source::Settled, 2),
            row(2, Source::Settled, 2),
            row(3, Source::Settled, 2),
            row(4, Source::Released, 0)
        ]
    );
}

/// What is not written is the end alone, and its next try comes when the hold is over.
#[test]
fn a_call_whose_hold_expired_before_its_end_was_written_is_posted_late() {
    for how in [End::Settled, End::Released] {
        let clock = Hand::at(START);
        let engine = engine(&clock);
        let posted = if how == End::Settled { [1, 300, 250, 0, 9] } else { [1, 0, 0, 0, 0] };
        let call = restore(&clock, 1, how, posted);
        let mut unwritten = call.clone();
        if let RestoredState::Ended { entry, .. } = &mut unwritten.state {
            *entry = Some(vec![7; ENTRY_MAX + 1]);
        }
        let error = wait(engine.restore(&unwritten)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::EntryTooLong);
        clock.set(START + H);
        let claim = call.receipt.claim();
        let expired = wait(engine.expire(&[ExpireCall { claim, subjects: Vec::new() }])).unwrap().value;
        assert!(matches!(expired[..], [Expired::Expired { .. }]), "{expired:?}");
        for _ in 0..2 {
            wait(engine.restore(&call)).unwrap();
        }
        let quotas: Vec<_> = standing(&engine).split_off(2);
        let amount = |at: usize| (i64::try_from(posted[at]).unwrap(), 0);
        assert_eq!(quotas, [amount(2), (0, 0), amount(4)], "{how:?}");
        let records = wait(engine.journal_read(SHARD, Cursor(0), 100)).unwrap().value;
        let late: Vec<_> = records.iter().filter(|record| record.source == Source::Late).collect();
        assert_eq!((late.len(), late[0].body.as_slice()), (1, [7].as_slice()), "{how:?}");
    }
}

#[test]
fn a_call_of_a_period_that_is_over_is_left_to_the_caller() {
    let clock = Hand::at(START);
    let engine = engine(&clock);
    let call = restore(&clock, 1, End::Settled, [1, 300, 250, 0, 9]);
    let next = START + D + S;
    clock.set(next);
    for _ in 0..2 {
        let error = wait(engine.restore(&call)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(standing(&engine).iter().all(|(posted, held)| (*posted, *held) == (0, 0)));
    }
    assert!(wait(engine.journal_read(SHARD, Cursor(0), 100)).unwrap().value.is_empty());
}
