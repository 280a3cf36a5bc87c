//! The three kinds of metrics. Each keeps one cell per combination of its labels; a cell becomes a series at first use.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::labels::LabelSet;
use crate::names::Names;

type Pairs = Vec<(&'static str, Arc<str>)>;

/// Series by label set, found by index.
struct Series<L, M, C> {
    cells: Box<[OnceLock<M>]>,
    family: Family<Pairs, M, C>,
    names: Arc<Names>,
    labels: PhantomData<fn(L)>,
}

impl<L: LabelSet, M: Clone, C: MetricConstructor<M> + Clone> Series<L, M, C> {
    fn new(constructor: C, names: &Arc<Names>) -> Self {
        let cells: Box<[OnceLock<M>]> = (0..L::SIZE).map(|_| OnceLock::new()).collect();
        let family = Family::new_with_constructor(constructor);
        let series = Self { cells, family, names: Arc::clone(names), labels: PhantomData };
        if L::docs().is_empty() {
            // A metric without labels is shown from the start.
            series.first();
        }
        series
    }

    fn first(&self) {
        if let Some(cell) = self.cells.first() {
            cell.get_or_init(|| self.family.get_or_create_owned(&Vec::new()));
        }
    }

    fn at(&self, labels: L) -> Option<&M> {
        let cell = self.cells.get(labels.index())?;
        Some(cell.get_or_init(|| self.family.get_or_create_owned(&labels.pairs(&self.names))))
    }
}

/// Counters.
pub struct Counts<L>(Series<L, Counter, fn() -> Counter>);

impl<L: LabelSet> Counts<L> {
    pub(crate) fn new(registry: &mut Registry, name: &str, help: &str, names: &Arc<Names>) -> Self {
        let series = Series::new(Counter::default as fn() -> Counter, names);
        registry.register(name, help, series.family.clone());
        Self(series)
    }

    pub fn inc(&self, labels: L) {
        self.add(labels, 1);
    }

    pub fn add(&self, labels: L, amount: u64) {
        if let Some(counter) = self.0.at(labels) {
            counter.inc_by(amount);
        }
    }

    /// Raises the counter to a total that is counted elsewhere; never lowers it.
    pub fn raise_to(&self, labels: L, total: u64) {
        if let Some(counter) = self.0.at(labels) {
            counter.inner().fetch_max(total, Ordering::Relaxed);
        }
    }

    pub fn get(&self, labels: L) -> u64 {
        self.0.at(labels).map_or(0, Counter::get)
    }
}

/// Values that go up and down.
pub struct Gauges<L>(Series<L, Gauge, fn() -> Gauge>);

impl<L: LabelSet> Gauges<L> {
    pub(crate) fn new(registry: &mut Registry, name: &str, help: &str, names: &Arc<Names>) -> Self {
        let series = Series::new(Gauge::default as fn() -> Gauge, names);
        registry.register(name, help, series.family.clone());
        Self(series)
    }

    /// Above `i64::MAX` it stays there.
    pub fn set(&self, labels: L, value: u64) {
        if let Some(gauge) = self.0.at(labels) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    pub fn add(&self, labels: L, difference: i64) {
        if let Some(gauge) = self.0.at(labels) {
            gauge.inc_by(difference);
        }
    }

    /// Counts one up until the returned value is dropped.
    pub fn enter(&self, labels: L) -> InFlight {
        let gauge = self.0.at(labels).cloned();
        if let Some(gauge) = &gauge {
            gauge.inc();
        }
        InFlight(gauge)
    }

    pub fn get(&self, labels: L) -> i64 {
        self.0.at(labels).map_or(0, Gauge::get)
    }
}

type Ratio = Gauge<f64, AtomicU64>;

/// Shares of one, which go up and down.
pub struct Ratios<L>(Series<L, Ratio, fn() -> Ratio>);

impl<L: LabelSet> Ratios<L> {
    pub(crate) fn new(registry: &mut Registry, name: &str, help: &str, names: &Arc<Names>) -> Self {
        let series = Series::new(Ratio::default as fn() -> Ratio, names);
        registry.register(name, help, series.family.clone());
        Self(series)
    }

    pub fn set_millionths(&self, labels: L, millionths: u64) {
        if let Some(gauge) = self.0.at(labels) {
            // As a millionth of a second is one of a share.
            gauge.set(Duration::from_micros(millionths).as_secs_f64());
        }
    }
}

/// Counts one on a gauge while it lives.
#[derive(Debug)]
#[must_use]
pub struct InFlight(Option<Gauge>);

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.dec();
        }
    }
}

/// Bucket bounds of a histogram, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Bounds(pub(crate) &'static [f64]);

impl MetricConstructor<Histogram> for Bounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Distributions of durations, in seconds.
pub struct Times<L>(Series<L, Histogram, Bounds>);

impl<L: LabelSet> Times<L> {
    pub(crate) fn new(
        registry: &mut Registry,
        name: &str,
        help: &str,
        names: &Arc<Names>,
        bounds: Bounds,
    ) -> Self {
        let series = Series::new(bounds, names);
        registry.register(name, help, series.family.clone());
        Self(series)
    }

    pub fn observe(&self, labels: L, time: Duration) {
        if let Some(histogram) = self.0.at(labels) {
            histogram.observe(time.as_secs_f64());
        }
    }
}

/// Printing a metric would print thousands of cells; its kind is enough.
macro_rules! opaque_debug {
    ($($kind:ident),+) => { $(
        impl<L> fmt::Debug for $kind<L> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($kind))
            }
        }
    )+ };
}

opaque_debug!(Counts, Gauges, Ratios, Times);
