//! Stores in a fresh directory, and entries to put into them.

use tempfile::TempDir;
use tollbook_ledger::units::SECOND;
use tollbook_ledger::{AccountId, Posted, ReservationId, SubjectId};
use tollbook_store::{
    Day, DayRange, Ending, Entry, EntryBody, Figures, Flags, Hold, Journal, Name, Origin, Overrun, Side,
    Total, TotalsQuery, Usage,
};
use tollbook_store_sql::SqliteStore;

/// 2026-03-01 00:00 UTC.
pub(crate) const DAY_0: u32 = 20_513;
pub(crate) const DAY_MICROS: u64 = 86_400 * SECOND;

pub(crate) async fn store() -> (TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("store.db")).await.unwrap();
    (dir, store)
}

pub(crate) fn at(day: u32, second: u64) -> u64 {
    u64::from(DAY_0 + day) * DAY_MICROS + second * SECOND
}

/// A settled call of tenant `acme` on day 0, with usage and one quota leg.
pub(crate) fn call(id: u128) -> Entry {
    Entry {
        reservation: ReservationId(id),
        attempt: 0,
        seq: 0,
        origin: Origin::Settled,
        admitted_at: at(0, 10),
        ended_at: at(0, 12),
        requests: 1,
        posted: vec![leg(1, 1, 100, 15)],
        body: EntryBody {
            request_id: Name::from(format!("req_{id}")),
            tenant: Name::from("acme"),
            project: Name::from("search"),
            key: Name::from("key-1"),
            model_asked: Name::from("fast"),
            model_priced: Name::from("gpt-5"),
            model_used: Name::from("gpt-5"),
            pool: Name::from("openai"),
            usage: Usage { input: 10, cached: 4, output: 5, reasoning: 2, ..Usage::default() },
            cost_nano: 8_000,
            price_version: 3,
            ..EntryBody::default()
        },
    }
}

/// An entry with something in every column.
pub(crate) fn full(id: u128) -> Entry {
    let entry = call(id);
    Entry {
        attempt: 2,
        seq: 1,
        origin: Origin::Late,
        posted: vec![leg(u64::MAX, 1 << 63, u64::from(DAY_0) * 86_400, -7), leg(2, 3, 0, 9)],
        requests: -1,
        body: EntryBody {
            side: Side::Pool,
            service: Name::from("ranker"),
            user: Name::from("u-é\"\\7"),
            usage: Usage {
                input: -1,
                cached: 2,
                cache_write: 3,
                cache_write_1h: 4,
                output: 5,
                reasoning: 6,
                audio_input: 7,
                audio_output: 8,
                image_input: 9,
                web_searches: 10,
            },
            cost_nano: -11,
            price_version: u64::MAX,
            hold: Hold {
                input_llm_tokens: 12,
                expected_llm_tokens: 13,
                worst_llm_tokens: 14,
                expected_cost_nano: 15,
                worst_cost_nano: 16,
                charged_on_expiry: true,
            },
            figures: Figures::Partial,
            ending: Ending::ClientGone,
            overrun: Overrun { llm_tokens: 17, cost_nano: 18 },
            ladder: vec![Name::from("wait 1"), Name::from("clamp 2")],
            latency_ms: u32::MAX,
            ttft_ms: Some(0),
            attempts: u16::MAX,
            flags: Flags { unpriced: true, degraded: true, shortened: true, damaged: true },
            ..entry.body
        },
        ..entry
    }
}

pub(crate) fn leg(subject: u64, name: u64, period: u64, amount: i64) -> Posted {
    Posted { account: AccountId { subject: SubjectId(subject), name }, period, amount }
}

/// All totals of one side.
pub(crate) async fn totals(store: &SqliteStore, side: Side) -> Vec<Total> {
    let days = DayRange { from: Day(0), to: Day(u32::MAX) };
    let all = Name::default;
    store.totals(&TotalsQuery { days, side, tenant: all(), pool: all(), model: all() }).await.unwrap()
}
