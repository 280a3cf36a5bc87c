//! Metrics, logs and traces: what operators see.
//!
//! Invariants: every metric stands in `list`, with type, unit, labels and help; a label's values are an enum or names
//! from the configuration, up to a stated bound, then `other`; no key, user, tenant, prompt or client text is ever a
//! label, a log field or an attribute. Counting takes no lock and allocates nothing once a series exists.
//! Nothing here can fail a call: a number that cannot be counted is not counted.

mod kinds;
pub mod labels;
mod list;
pub mod log;
mod names;
pub mod trace;

pub use kinds::{Counts, Gauges, InFlight, Ratios, Times};
pub use labels::{LabelDoc, LabelSet};
pub use list::{MetricDoc, MetricKind, Metrics};
pub use names::{MODELS_MAX, ModelLabel, NameLabel, POOLS_MAX, PoolLabel};
/// The `Content-Type` of what [`Metrics::encode`] returns.
pub use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
