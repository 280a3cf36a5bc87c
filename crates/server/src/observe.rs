//! Tells the metrics what the memory engine keeps: only the wiring knows both.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tollbook_engine_memory::{MemoryEngine, Stats};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Alarm;

const EVERY: Duration = Duration::from_secs(2);

/// Repeats until `stop` turns true.
pub(crate) async fn run(engine: Arc<MemoryEngine>, metrics: Arc<Metrics>, mut stop: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => tell(&engine.stats(), &metrics),
            // A dropped sender is a stop too.
            _ = stop.wait_for(|stopped| *stopped) => return,
        }
    }
}

fn tell(stats: &Stats, metrics: &Metrics) {
    metrics.engine_log_records.raise_to((), stats.records);
    metrics.engine_log_bytes.set((), stats.log_bytes);
    metrics.journal_pending.set((), stats.journal_records);
    metrics.engine_reservations_live.set((), stats.live);
    metrics.engine_tombstones.set((), stats.tombstones);
    metrics.engine_accounts.set((), stats.accounts);
    let alarms = &stats.alarms;
    let other = [
        alarms.clock_steps_back,
        alarms.dropped_refunds,
        alarms.saturated,
        alarms.misfits,
        stats.shards_failed,
    ];
    let other = other.into_iter().chain([stats.snapshots_failed]).fold(0, u64::saturating_add);
    for (alarm, total) in [
        (Alarm::NegativeHeld, alarms.negative_held),
        (Alarm::RingRestart, alarms.ring_restarts),
        (Alarm::TornTail, stats.torn_tails),
        (Alarm::DroppedPeriod, alarms.dropped_postings),
        (Alarm::Other, other),
    ] {
        metrics.engine_alarms.raise_to((alarm,), total);
    }
}
