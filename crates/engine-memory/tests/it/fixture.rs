//! Logs of older versions stay readable: a directory written by each layout, and what must be read from it.
//!
//! `TOLLBOOK_WRITE_FIXTURE=<new directory>` writes one anew; only a new layout calls for that.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollbook_engine::ledger::{Adjust, Measure, Micros, ReleaseWhy, ReservationId, Weights};
use tollbook_engine::{
    AdjustCall, Claim, Cursor, Engine, ExpireCall, RebookCall, ReleaseCall, RenewCall, SettleCall, Shard,
    Verdict,
};
use tollbook_engine_memory::{Clock, MemoryEngine, Options};
use tollbook_engine_suite::legs::{M, R, S, SHARD, START, account, call, daily, lifetime, rpm, slots, tpm};
use tollbook_engine_suite::wait;

use crate::harness::{Hand, options};

const ACCOUNTS: [&str; 7] = ["t:rpm", "t:tpm", "t:cost", "k:day", "k:slots", "k:life", "k:shadow"];

fn opened(dir: &Path, clock: Arc<Hand>) -> MemoryEngine {
    let options = Options { shards: 1, snapshot_bytes: 100_000, ..options(clock) };
    let opened = MemoryEngine::open(Some(dir), options).unwrap();
    assert_eq!(opened.report.torn_tails, 0);
    opened.engine
}

/// The calls of the fixture, by id.
fn calls() -> Vec<R> {
    let usual = |id| {
        call(
            id,
            [
                rpm("t:rpm", 1000).refunds_failed(),
                tpm("t:tpm", 1_000_000, 10).output(500).learning("k:m", 40).counts_denied(),
                daily("t:cost", Measure::Cost, 1_000_000, 100).output(50).expecting(20),
                daily("k:day", Measure::Requests, 1000, 1),
                slots("k:slots", 100),
                lifetime("k:life", 1_000_000, 7).holds_expected().output(300).expecting(30),
                rpm("k:shadow", 2).window(7, 10 * S).weights(Weights::Decay).shadow(),
            ],
        )
        .life(M)
    };
    (1..=9).map(usual).chain([usual(5).attempt(2)]).collect()
}

fn claim(id: u128, attempt: u16) -> Claim {
    Claim { shard: SHARD, id: ReservationId(id), attempt }
}

fn settle(engine: &dyn Engine, id: u128, attempt: u16, entry: usize) {
    let (actual, entry) = (vec![1, 120, 90, 1, 0, 30, 1], vec![b'e'; entry]);
    let claim = claim(id, attempt);
    let call = SettleCall { claim, accounts: Vec::new(), actual, landed: 0, learn: Some(110), entry, age: 0 };
    wait(engine.settle(&call)).unwrap();
}

/// Every kind of record, most of them twice: once before a snapshot and once behind it.
fn write(dir: &Path) {
    let clock = Hand::at(START);
    let engine = opened(dir, clock.clone());
    let calls = calls();
    book(&engine, &clock, &calls);
    // Large entries fill a segment, so that a snapshot is worth it; the store has them, so it stays small.
    let mut id = 100;
    while engine.stats().snapshots == 0 {
        let call = call(id, [slots("k:slots", 100)]).at(clock.now());
        wait(engine.reserve(&call)).unwrap();
        let (claim, entry) = (claim(id, 1), vec![b'f'; 16_000]);
        let call = SettleCall {
            claim,
            accounts: Vec::new(),
            actual: vec![0],
            landed: 0,
            learn: None,
            entry,
            age: 0,
        };
        wait(engine.settle(&call)).unwrap();
        wait(engine.journal_trim(SHARD, Cursor(u64::MAX))).unwrap();
        engine.tick();
        id += 1;
    }
    clock.set(clock.now() + 40 * M);
    engine.tick();
    book(&engine, &clock, &calls.into_iter().map(|call| R { id: call.id + 20, ..call }).collect::<Vec<_>>());
    engine.close().unwrap();
}

fn book(engine: &MemoryEngine, clock: &Hand, calls: &[R]) {
    let reserve = |at: usize| wait(engine.reserve(&calls[at].at(clock.now()))).unwrap().value;
    let ids: Vec<u128> = calls.iter().map(|call| call.id).collect();
    for at in 0..8 {
        assert!(matches!(reserve(at), Verdict::Admit(_)));
        clock.set(clock.now() + S);
    }
    let renewals: Vec<_> = ids[..4]
        .iter()
        .map(|id| RenewCall {
            claim: claim(*id, 1),
            subjects: Vec::new(),
            sent: true,
            life: M,
            output_expected: Some(200),
            outgrown: None,
        })
        .collect();
    wait(engine.renew(&renewals)).unwrap();
    settle(engine, ids[0], 1, 20);
    for (id, why) in [(ids[5], ReleaseWhy::NeverSent), (ids[6], ReleaseWhy::Failed)] {
        let call = ReleaseCall { claim: claim(id, 1), accounts: Vec::new(), why, entry: Some(b"r".to_vec()) };
        wait(engine.release(&call)).unwrap();
    }
    let Verdict::Admit(receipt) = reserve(4) else { panic!("a repeat is admitted") };
    let actual = Some(vec![1, 10, 20, 1, 0, 5, 1]);
    let next = calls[9].at(clock.now());
    let call = RebookCall { receipt, actual, landed: 0, entry: Some(b"b".to_vec()), next };
    assert!(matches!(wait(engine.rebook(&call)).unwrap().value, Verdict::Admit(_)));
    let denied = tollbook_engine_suite::legs::call(ids[0] + 10, [tpm("t:tpm", 1, 1).counts_denied()]);
    assert!(matches!(wait(engine.reserve(&denied.at(clock.now()))).unwrap().value, Verdict::Deny { .. }));
    let adjust =
        Adjust { id: ids[0], account: account("t:cost"), period: START / S, delta: -3, opening: None };
    wait(engine.adjust(&AdjustCall { shard: SHARD, adjust, entry: b"a".to_vec() })).unwrap();
    clock.set(clock.now() + 2 * M);
    let expired: Vec<_> =
        ids[1..3].iter().map(|id| ExpireCall { claim: claim(*id, 1), subjects: Vec::new() }).collect();
    wait(engine.expire(&expired)).unwrap();
    settle(engine, ids[1], 1, 21);
    settle(engine, 777, 1, 22);
}

/// What a reader must find, in words that no change of the code's own types touches.
fn render(engine: &MemoryEngine, now: Micros) -> String {
    let mut text = String::new();
    for name in ACCOUNTS {
        let balance = wait(engine.balances(SHARD, &[account(name)])).unwrap().value[0].unwrap();
        let (posted, held, live) = (balance.standing.posted, balance.standing.held, balance.live_holds);
        let (denied, demand) = (balance.shadow_denied, balance.shadow_demand);
        writeln!(text, "{name}: posted {posted}, held {held}, live {live}, shadow {denied} {demand}")
            .unwrap();
    }
    let due = wait(engine.due(Shard(0), 100)).unwrap().value;
    writeln!(text, "due: {:?}", due.iter().map(|due| due.claim.id.0).collect::<Vec<_>>()).unwrap();
    for record in wait(engine.journal_read(SHARD, Cursor(0), 1000)).unwrap().value {
        let posted: Vec<_> = record.posted.iter().map(|posted| posted.amount).collect();
        writeln!(
            text,
            "entry {}: {} {} {} {:?} admitted {} ended {} posted {posted:?} body {}",
            record.cursor.0,
            record.id.0,
            record.attempt,
            record.seq,
            record.source,
            record.admitted,
            record.ended,
            record.body.len()
        )
        .unwrap();
    }
    let calls = calls();
    for call in calls.iter().cloned().chain(calls.iter().cloned().map(|call| R { id: call.id + 20, ..call }))
    {
        let verdict = match wait(engine.reserve(&call.at(now))).unwrap().value {
            Verdict::Admit(receipt) => {
                let receipt = receipt.receipt;
                let legs: Vec<_> =
                    receipt.legs.iter().map(|leg| (leg.expected, leg.held, leg.output)).collect();
                format!("admitted at {}, {legs:?}", receipt.now)
            }
            Verdict::Ended(end) => format!("{end:?}"),
            other => format!("{other:?}"),
        };
        writeln!(text, "call {} {}: {verdict}", call.id, call.attempt).unwrap();
    }
    text
}

fn check(name: &str) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let temp = tempfile::tempdir().unwrap();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|is| is == "log" || is == "snap");
    let files = std::fs::read_dir(&kept).unwrap().map(|file| file.unwrap().path()).filter(is_log);
    let mut kinds = Vec::new();
    for file in files {
        kinds.push(file.extension().unwrap().to_owned());
        std::fs::copy(&file, temp.path().join(file.file_name().unwrap())).unwrap();
    }
    assert!(kinds.contains(&"log".into()) && kinds.contains(&"snap".into()), "{kinds:?}");
    let now = START + 60 * M;
    let text = render(&opened(temp.path(), Hand::at(now)), now);
    let expected = std::fs::read_to_string(kept.join("expected.txt")).unwrap();
    assert_eq!(text, expected);
}

#[test]
fn a_log_of_layout_1_is_read_as_it_was_written() {
    if let Ok(dir) = std::env::var("TOLLBOOK_WRITE_FIXTURE") {
        write(Path::new(&dir));
        let now = START + 60 * M;
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap()) {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let text = render(&opened(copy.path(), Hand::at(now)), now);
        std::fs::write(Path::new(&dir).join("expected.txt"), text).unwrap();
    }
    check("v1");
}
