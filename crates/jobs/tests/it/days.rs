//! Old days of the journal go by one gateway at a time, and what was opened from them stays opened.

use std::sync::Arc;

use tokio::sync::watch;
use tollbook_jobs::Days;
use tollbook_ledger::ReservationId;
use tollbook_ledger::units::SECOND;
use tollbook_store::{Entry, EntryBody, Journal, KEEP_DAYS_MIN, Name, Origin};
use tollbook_store_sql::SqlStore;
use tollbook_telemetry::Metrics;

const DAY: u64 = 86_400 * SECOND;
/// The first day of the entries.
const FIRST: u64 = 20_000;

fn entry(day: u64) -> Entry {
    let body = EntryBody { tenant: Name::from("acme"), ..EntryBody::default() };
    let at = (FIRST + day) * DAY;
    Entry {
        reservation: ReservationId(u128::from(day) + 1),
        attempt: 0,
        seq: 0,
        origin: Origin::Settled,
        admitted_at: at,
        ended_at: at + 1,
        requests: 1,
        posted: Vec::new(),
        body,
    }
}

fn job(store: &SqlStore, gateway: u64, keep: Option<u32>) -> (Days, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    let (days, leases) = (Arc::new(store.clone()), Arc::new(store.clone()));
    (Days::new(days, leases, (gateway, keep), Arc::clone(&metrics)), metrics)
}

#[tokio::test]
async fn one_gateway_lets_old_days_go_and_the_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqlStore::open(&folder.path().join("store.db")).await.unwrap();
    let entries: Vec<Entry> = (0..=50).map(entry).collect();
    store.append(&entries).await.unwrap();
    let stop = watch::Sender::new(false).subscribe();
    let (one, metrics) = job(&store, 1, Some(KEEP_DAYS_MIN));
    let (other, _) = job(&store, 2, Some(KEEP_DAYS_MIN));
    let (keeps, _) = job(&store, 1, None);
    assert_eq!(one.once(&stop).await.unwrap(), 0, "it was written today");
    store.change("UPDATE journal_day SET day = day - 8").await.unwrap();
    assert_eq!(other.once(&stop).await.unwrap(), 0, "the first one does it");
    assert_eq!(keeps.once(&stop).await.unwrap(), 0, "for ever");
    assert_eq!(one.once(&stop).await.unwrap(), 15);
    assert_eq!(one.once(&stop).await.unwrap(), 0);
    let since = (FIRST + 15) * DAY;
    assert_eq!(store.kept_since().await.unwrap(), since);
    let told = metrics.encode();
    assert!(told.contains(&format!("tollbook_journal_kept_since_unix {}", since / SECOND)), "{told}");
    assert!(told.contains("tollbook_journal_rows_gone_total 15"), "{told}");
    store.close().await;
}
