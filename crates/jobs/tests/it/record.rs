//! Records as entries, where an engine is not needed to tell.

use tollbook_engine::{Cursor, JournalRecord, Source};
use tollbook_jobs::entry;
use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_store::{Ending, Entry, EntryBody, Figures, Name, Origin, Side, Usage};
use tollbook_telemetry::labels;

use crate::doubles::record;
use crate::world::body;

fn of(source: Source, body: &EntryBody) -> JournalRecord {
    JournalRecord { source, ..record(1, 7, body.encode()) }
}

fn posted(subject: u64, amount: i64) -> Vec<Posted> {
    vec![Posted { account: AccountId { subject: SubjectId(subject), name: 1 }, period: 0, amount }]
}

#[test]
fn l18_a_rebooked_attempt_adds_no_request_for_a_tenant_and_one_for_a_pool() {
    let tenant = entry(&of(Source::Rebooked, &body(7, 3)), &[]).unwrap();
    assert_eq!((tenant.origin, tenant.requests), (Origin::Rebooked, 0));
    let pool = entry(&of(Source::Rebooked, &EntryBody { side: Side::Pool, ..body(7, 3) }), &[]).unwrap();
    assert_eq!(pool.requests, 1);
}

#[test]
fn an_adjustment_is_no_call() {
    let adjusted = entry(&of(Source::Adjusted, &EntryBody::default()), &[]).unwrap();
    assert_eq!((adjusted.requests, adjusted.body.figures), (0, Figures::Adjusted));
    assert_eq!(adjusted.body.ending, Ending::Adjusted);
}

#[test]
fn l07_an_expiry_without_charge_adds_the_request_alone() {
    let mut body = body(7, 0);
    body.hold.charged_on_expiry = false;
    let context = body.context();
    let expired = entry(&JournalRecord { source: Source::Expired, ..record(1, 7, context) }, &[]).unwrap();
    assert_eq!((expired.requests, expired.body.usage, expired.body.cost_nano), (1, Usage::default(), 0));
}

/// Both sides of a call have expired; a late release without a body is told by its subjects.
#[test]
fn l08_a_correction_without_a_body_finds_its_side() {
    let before = |side, subject| {
        let body = EntryBody { side, tenant: Name::from("acme"), ..body(7, 20) };
        let record = JournalRecord { posted: posted(subject, 30), ..of(Source::Settled, &body) };
        entry(&record, &[]).unwrap()
    };
    let both = [before(Side::Tenant, 1), before(Side::Pool, 2)];
    let late = |subject| JournalRecord {
        seq: 1,
        source: Source::Late,
        posted: posted(subject, -30),
        body: Vec::new(),
        ..of(Source::Late, &EntryBody::default())
    };
    for (subject, side) in [(1, Side::Tenant), (2, Side::Pool)] {
        let correction = entry(&late(subject), &both).unwrap();
        assert_eq!((correction.body.side, correction.body.usage.llm_tokens()), (side, -30));
    }
    let stranger = entry(&late(3), &both).unwrap();
    assert_eq!((stranger.body.side, stranger.body.flags.damaged), (Side::Unreadable, true));
    assert_eq!(stranger.posted, posted(3, -30));
}

#[test]
fn l08_a_correction_reads_only_its_own_attempt_and_side() {
    let settled = |attempt, side| Entry {
        attempt,
        ..entry(&of(Source::Settled, &EntryBody { side, ..body(7, 20) }), &[]).unwrap()
    };
    let unbooked = entry(&of(Source::Unbooked, &body(7, 20)), &[]).unwrap();
    let earlier = [settled(1, Side::Tenant), settled(0, Side::Pool), unbooked, settled(0, Side::Tenant)];
    let record = JournalRecord { seq: 1, admitted: 0, ..of(Source::Late, &body(7, 5)) };
    let late = entry(&record, &earlier).unwrap();
    assert_eq!((late.body.usage.input, late.body.usage.output, late.requests), (0, -15, 0));
    // The admission the engine no longer knew is that of the entry before.
    assert_eq!(late.admitted_at, 1);
}

#[test]
fn any_bytes_become_an_entry_that_keeps_what_was_posted() {
    for bytes in [&b"\xff\xfe"[..], b"{}", b"{\"v\":9}", b"[1]", b" "] {
        let record = JournalRecord {
            cursor: Cursor(1),
            id: ReservationId(7),
            posted: posted(1, 5),
            ..record(1, 7, bytes.to_vec())
        };
        let entry = entry(&record, &[]).unwrap();
        assert!(entry.body.flags.damaged);
        assert_eq!(entry.posted, posted(1, 5));
    }
}

/// Metrics and journal use one word for one thing.
#[test]
fn the_words_of_metrics_are_the_words_of_the_journal() {
    assert!(Ending::ALL.iter().all(|e| labels::Ending::from_word(e.word()).is_some()));
    assert_eq!(Ending::ALL.len(), labels::Ending::ALL.len());
    assert!(Figures::ALL.iter().all(|f| labels::Figures::from_word(f.word()).is_some()));
    assert_eq!(Figures::ALL.len(), labels::Figures::ALL.len());
}

/// The expected output is learned in the engine; what the quotas were charged tells it.
#[test]
fn l07_an_expiry_tells_the_output_and_cost_that_the_quotas_were_charged_for() {
    use tollbook_ledger::{AccountId, Posted, SubjectId};
    use tollbook_store::{Lapse, Line};
    let mut told = body(7, 3);
    told.lapse = Lapse {
        output: Some(Line { account: 5, base: 10_000, per_output: 1_000 }),
        cost: Some(Line { account: 6, base: 1_000_000, per_output: 200_000 }),
    };
    let posted =
        |name, amount| Posted { account: AccountId { subject: SubjectId(1), name }, period: 0, amount };
    let expired = |posted| {
        let record = JournalRecord { source: Source::Expired, posted, ..record(1, 7, told.context()) };
        let body = entry(&record, &[]).unwrap().body;
        assert_eq!(body.lapse, Lapse::default());
        (body.usage.output, body.cost_nano, body.hold.expected_llm_tokens, body.hold.expected_cost_nano)
    };
    assert_eq!(expired(vec![posted(5, 10 + 37)]), (37, 8_400, 47, 8_400));
    // A budget is told as it was charged.
    assert_eq!(expired(vec![posted(6, 9_000), posted(5, 47)]), (37, 9_000, 47, 9_000));
    // Charged nothing that tells of it: the guess stands.
    assert_eq!(expired(vec![posted(4, 1)]), (20, 3_000, 30, 3_000));
    // No amount makes it panic.
    assert_eq!(expired(vec![posted(5, i64::MIN)]).0, 20);
    assert!(expired(vec![posted(5, i64::MAX)]).0 > 0);
}
