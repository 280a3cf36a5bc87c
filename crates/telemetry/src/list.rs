//! The list of all metrics. Registrations and docs are made from it; nothing else registers a metric.
//!
//! A name is `tollbook_<area>_<noun>`, then the unit, then `_total` on counters.

use std::sync::Arc;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use crate::kinds::{Bounds, Counts, Gauges, Ratios, Times};
use crate::labels::{
    Alarm, Anomaly, Away, ConnectionCut, Counted, Delivery, Denial, Dialect, Ending, EngineTrouble, Figures,
    Form, Job, LabelDoc, LabelSet, Loaded, Login, Lost, Measure, Part, Problem, Protocol, ReadFrom, Run,
    Side, SpanLoss, Status, StoreTrouble, Surface, Turn, UpstreamTrouble, Verb,
};
use crate::names::{ModelLabel, NameLabel, Names, PoolLabel};

const PREFIX: &str = "tollbook";

/// Of what the gateway itself takes: microseconds to a tenth of a second.
const OWN: Bounds = Bounds(&[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1,
]);
/// Of what a provider takes: hundredths of a second to ten minutes.
const PROVIDER: Bounds =
    Bounds(&[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]);

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric, for the docs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricDoc {
    /// As it is scraped.
    pub name: String,
    pub kind: MetricKind,
    pub labels: Vec<LabelDoc>,
    pub help: &'static str,
}

impl MetricDoc {
    /// Most series it can have, whatever happens: a histogram counts once here, with all its buckets.
    pub fn series_max(&self) -> usize {
        self.labels.iter().map(|label| label.max).product()
    }
}

macro_rules! metrics {
    ($( $kind:ident $field:ident ($($label:ty),*) $([$bounds:ident])? $help:literal; )+) => {
        /// Every metric of the process.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            names: Arc<Names>,
            $( #[doc = $help] pub $field: $kind<($($label,)*)>, )+
        }

        impl Metrics {
            pub fn new() -> Self {
                let mut registry = Registry::with_prefix(PREFIX);
                let names = Arc::new(Names::default());
                $( let $field = metrics!(@new $kind registry $field names $help $([$bounds])?); )+
                Self { registry, names, $($field,)+ }
            }

            /// The list, in order.
            pub fn list() -> Vec<MetricDoc> {
                vec![$( MetricDoc {
                    name: metrics!(@name $kind $field),
                    kind: metrics!(@kind $kind),
                    labels: <($($label,)*)>::docs(),
                    help: $help,
                } ),+]
            }
        }
    };
    (@new Times $registry:ident $field:ident $names:ident $help:literal [$bounds:ident]) => {
        Times::new(&mut $registry, concat!(stringify!($field), "_seconds"), $help, &$names, $bounds)
    };
    (@new $kind:ident $registry:ident $field:ident $names:ident $help:literal) => {
        $kind::new(&mut $registry, stringify!($field), $help, &$names)
    };
    (@name Counts $field:ident) => { concat!("tollbook_", stringify!($field), "_total").to_owned() };
    (@name Gauges $field:ident) => { concat!("tollbook_", stringify!($field)).to_owned() };
    (@name Ratios $field:ident) => { concat!("tollbook_", stringify!($field)).to_owned() };
    (@name Times $field:ident) => { concat!("tollbook_", stringify!($field), "_seconds").to_owned() };
    (@kind Counts) => { MetricKind::Counter };
    (@kind Gauges) => { MetricKind::Gauge };
    (@kind Ratios) => { MetricKind::Gauge };
    (@kind Times) => { MetricKind::Histogram };
}

metrics! {
    // calls
    Counts calls_ended(Dialect, Surface, Ending) "Calls the tenant's limits let in, by how they ended";
    Counts calls_rejected(Dialect, Problem) "Calls answered with an error and not admitted, other than by a limit";
    Gauges calls_in_flight(Surface) "Calls that were admitted and have not ended";
    Gauges calls_streams_open() "Streamed answers being relayed";
    Times calls_overhead(Surface, Form) [OWN] "Time the gateway itself takes: from the last byte of a request to its first dispatch";
    Times calls_ttft(ModelLabel) [PROVIDER] "Time from the door to the first output byte of a stream";
    Times calls_duration(ModelLabel) [PROVIDER] "Time from the door to the end of the call";

    // the door
    Counts admission_admitted(Side) "Reservations admitted";
    Counts admission_denied(Side, Measure, Denial) "Reservations denied, by the limit that bound";
    Counts admission_shadow_denied(Measure) "Admitted calls that a shadow limit would have denied";
    Counts admission_degraded(Away) "Reservations that got no verdict from the engine, by what was done instead";
    Counts admission_recalendared() "Reserves asked again because a period had changed";
    Counts admission_counted(Counted) "Calls whose input was counted at the door, by how; the last three should have been counted exactly and were estimated";
    Counts admission_renewed() "Renewals of live calls";
    Counts admission_short() "Renewals whose hard limits had no room to grow";

    // the book away
    Gauges away_shards() "Shards of the book that calls are not asked of, because it failed or was slow there";
    Counts away_breaker(Turn) "Times a breaker opened or closed, that of the whole book and those of its shards";
    Gauges away_books() "Local books kept while the book is away and a while after";
    Gauges away_calls() "Calls admitted by local books that have not ended";

    // plans
    Gauges plan_streams() "Streams followed on forecast accounts at the last flush, one for each account";
    Counts plan_unfollowed() "Legs of calls on forecast accounts beyond those that are followed at once";
    Counts plan_batches() "Batches of progress that the engine has applied";
    Times plan_flush() [OWN] "Time to ask all followed streams of this process";

    // the end
    Counts settle_figures(Side, Figures) "Charges, by where their figures come from";
    Counts settle_late() "Settles and releases that came after the hold had expired";
    Counts settle_unknown() "Settles of calls the engine no longer knew";
    Counts settle_overruns(Measure) "Calls that used more than was last decided for them";
    Counts settle_overrun_llm_tokens() "llm_tokens used above what was last decided";
    Counts settle_overrun_nano() "Nano-currency used above what was last decided";
    Gauges settle_queue_depth() "Outcomes waiting to be settled";
    Counts settle_spooled() "Outcomes written to the spool file";
    Gauges settle_spool_bytes() "Bytes in the spool file";
    Counts settle_restored() "Reservations admitted while the book was away whose truth it has taken since";
    Counts settle_retried() "Settles and releases the engine did not take and that are repeated";

    // what a lost book is rebuilt from
    Gauges voucher_count() "Calls whose bookings the gateway can restore, because the journal has not all of them yet";
    Gauges voucher_bytes() "Memory for them, about";
    Gauges voucher_spilled_bytes() "Bytes on disk of those that found no room in memory";
    Counts voucher_unkept() "Calls that found no room there, nor on disk: a loss of the book would lose their holds";
    Counts voucher_restored() "Bookings restored after the book was lost";

    Gauges recovery_gateways() "Gateways that share the book and live, this one included";
    Gauges recovery_shards_lost() "Shards of the book that take no call until they are whole again";
    Counts recovery_opened(Lost) "Shards this process has opened, by what they had lost";
    Counts recovery_missing() "Gateways that lived when a shard was lost and did not restore their calls in time";
    Counts recovery_unnamed() "Sums of the journal that no limit of this configuration names; they were left out";
    Gauges recovery_astray() "Sums of the journal of which no shard is known, as of the last rebuild; they were left out";

    // usage
    Counts usage_llm_tokens(ModelLabel, Part) "llm_tokens charged to tenants";
    Counts usage_cost_nano(ModelLabel) "Nano-currency charged to tenants";
    Counts usage_unpriced(ModelLabel) "Calls charged without a price: their cost is not known";
    Counts usage_anomalies(Anomaly) "Usage figures of providers that were not believed";

    // the engine
    Counts engine_failures(Verb, EngineTrouble) "Verbs of calls that got no answer, or an error";
    Counts engine_alarms(Alarm) "Alarms of the book; any increase wants a look";
    Gauges engine_reservations_live() "Reservations that hold something";
    Gauges engine_tombstones() "Ended reservations still remembered";
    Gauges engine_accounts() "Accounts kept";
    Gauges engine_log_bytes() "Bytes in the log since the last snapshot";
    Counts engine_log_records() "Records written to the log";
    Counts engine_expired() "Reservations ended by expiry";
    Gauges engine_drift() "Accounts whose held differed from the sum of their holds at the last check";
    Gauges engine_drift_unconfirmed() "Accounts that the last check could not compare: too much of them was live or changed";

    // the journal
    Gauges journal_pending() "Ended calls that wait in the engine for the store; of a shared book every gateway tells all of them";
    Counts journal_drained() "Entries written to the store";
    Counts journal_repeated() "Entries the store had already";
    Counts journal_unbooked() "Entries of calls the engine no longer knew; any increase wants a look";
    Counts journal_damaged() "Records whose body could not be read";
    Counts journal_rows_gone() "Entries whose rows have gone with their day; about so many where the journal is in a database";
    Gauges journal_kept_since_unix() "Entries that ended from then on can be read, in seconds since 1970; 0 while none has gone";
    Counts journal_store_errors(StoreTrouble) "Failed writes to the store";
    Counts jobs_runs(Job, Run) "Runs of background jobs";

    // the daily comparison
    Ratios reconcile_error_ratio(PoolLabel) "By how much the journal differs from what the provider counted, of its llm_tokens, or of its cost where it tells no llm_tokens; `other` is what no configured pool is. 0 in gateways that do not compare";
    Gauges reconcile_compared() "Amounts compared by the last daily comparison";
    Gauges reconcile_differing() "Amounts of them that differed by more than the tolerance";
    Gauges reconcile_done_unix() "When the last daily comparison was done, in seconds since 1970; 0 in gateways that do not compare";

    // alerts
    Counts alerts_crossed() "Thresholds of quotas that this gateway was the first to see crossed";
    Counts webhook_deliveries(Delivery) "Tries to deliver an event to a webhook";
    Gauges webhook_waiting() "Events that wait to be delivered; 0 in gateways that do not deliver";

    // upstreams
    Counts upstream_requests(PoolLabel, Status) "Requests sent to a pool";
    Counts upstream_errors(PoolLabel, UpstreamTrouble) "Failures of a pool";
    Counts upstream_retries(PoolLabel) "Requests sent to a pool again";
    Times upstream_answer(PoolLabel) [PROVIDER] "Time from dispatch to the head of the answer";

    // traces
    Counts traces_sent() "Spans a collector took";
    Counts traces_dropped(SpanLoss) "Spans that no collector took, by why";

    // clients' connections
    Counts connections_accepted(Protocol) "Connections on which calls can come in";
    Counts connections_cut(ConnectionCut) "Connections the gateway ended for what their client did or left undone";
    Gauges connections_open() "Connections open, those without a call included";
    Counts tls_reloads(Loaded) "Changed certificates that were found; a bad one leaves the old one in use";

    // the operators' listener
    Counts admin_logins_failed(Login) "Operators' keys that opened nothing; `limited` came after too many wrong ones from the same address and was not looked at";

    // the process
    Gauges config_generation() "Number of the configuration in force; rises with every reload";
    Gauges config_loaded_unix() "When the configuration was last read and found good, in seconds since 1970";
    Gauges config_error() "1 while the configuration file cannot be taken; the one in force is the one before";
    Gauges config_error_line() "Line of the first mistake in the file while it cannot be taken; else 0";
    Gauges config_error_column() "Column of that mistake; else 0";
    Gauges objects_behind() "1 while what operators changed in the store is not in force in this gateway, or not of every tenant; what was before is";
    Gauges tenants_kept() "Tenants of the store that are kept in this process";
    Counts tenants_read(ReadFrom) "Tenants that were looked up, by where they were read; failed: they could not be, or did not fit this gateway's file";
    Gauges objects_forgets_waiting() "Changed ids that the fleet's cache in the shared book has not been told of yet; 10001 where it is more than that, and everything older waits to be forgotten";
    Gauges config_restart_needed() "Settings that were changed in the file and wait for a restart";
    Counts config_reloads(Run) "Times a changed file was read and taken, or not";
    Gauges process_ready() "1 while the gateway accepts calls";
    Gauges process_start_unix() "Start of the process, in seconds since 1970";
}

impl Metrics {
    /// Gives configured models labels of their own, up to the bound; those past it are `other`.
    pub fn models_set<'a>(&self, models: impl IntoIterator<Item = &'a str>) {
        for model in models {
            let _: ModelLabel = self.names.define(model);
        }
    }

    /// Gives configured pools labels of their own, up to the bound; those past it are `other`.
    pub fn pools_set<'a>(&self, pools: impl IntoIterator<Item = &'a str>) {
        for pool in pools {
            let _: PoolLabel = self.names.define(pool);
        }
    }

    /// The label of a configured name; `other` for any other text. Callers on a hot path keep it.
    pub fn label<L: NameLabel>(&self, name: &str) -> L {
        self.names.find(name)
    }

    /// All series in the Prometheus text format.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a string cannot fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
