//! Tells the metrics what the memory engine keeps, and sends traces: only the wiring knows both sides.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollbook_engine_memory::{MemoryEngine, Stats};
use tollbook_gateway::Gateway;
use tollbook_otlp::Exporter;
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::Alarm;
use tollbook_telemetry::trace::Tracer;

use crate::config::Traces;

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

/// Starts tracing the gateway's calls; the task that sends what is finished until `stop` turns true.
pub(crate) fn trace(
    traces: Traces,
    gateway: &Gateway,
    metrics: Arc<Metrics>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<JoinHandle<()>> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| anyhow!("there is no randomness: {error}"))?;
    let number = u128::from_le_bytes(random);
    let seed = u64::try_from(number >> 64).unwrap_or_default();
    let Traces { tracer, mut export } = traces;
    // Of the other half: what is told outside says nothing of the seed.
    export.resource.instance = format!("{:016x}", number & u128::from(u64::MAX));
    let tracer = Tracer::new(tracer, metrics, seed);
    let exporter = Exporter::new(export, Arc::clone(&tracer))
        .map_err(|error| anyhow!("cannot set up traces: {error}"))?;
    gateway.trace_by(tracer);
    Ok(tokio::spawn(exporter.run(stop)))
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
        (Alarm::PlanOutside, alarms.progress_outside),
        (Alarm::PlanBelow, alarms.progress_below),
        (Alarm::Other, other),
    ] {
        metrics.engine_alarms.raise_to((alarm,), total);
    }
}
