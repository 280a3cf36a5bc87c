//! The program's memory over time, as the system tells it, and whether it is flat.
//!
//! Judged is anonymous memory; the log's pages are the system's to drop. The engine keeps a record of each ended call for
//! half an hour, so in a shorter run memory may grow by that much per call, and by no more: the median of the last
//! quarter of the samples against that of the first quarter after the warm-up.

use std::time::Duration;

use super::Plan;
use crate::http::metric;

/// What an ended call may take while the engine remembers it, in bytes.
const ENDED_BYTES: u64 = 512;
/// What may come and go besides.
const SLACK_BYTES: u64 = 8 << 20;
/// … and in hundredths of what there is.
const SLACK_PERCENT: u64 = 5;
/// Of the streams, how many must be open at the median, in hundredths.
const OPEN_PERCENT: u64 = 85;

/// One look at the program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    pub at: Duration,
    /// Anonymous memory, bytes.
    pub anonymous: u64,
    /// All memory in use, the log's pages included.
    pub resident: u64,
    pub streams: u64,
    /// Ended calls that the engine remembers.
    pub ended: u64,
}

/// How memory went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    pub early: Sample,
    pub late: Sample,
    pub peak: u64,
}

pub(super) fn sample(pid: u32, at: Duration, metrics: &str) -> Sample {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let count = |name: &str| metric(metrics, name, &[]).unwrap_or(0);
    Sample {
        at,
        anonymous: kib("RssAnon:").saturating_mul(1024),
        resident: kib("VmRSS:").saturating_mul(1024),
        streams: count("tollbook_calls_streams_open"),
        ended: count("tollbook_engine_tombstones"),
    }
}

impl Sample {
    pub(super) fn line(&self) -> String {
        format!(
            "{:>4} s: {} streams open, {:.1} MiB anonymous, {:.1} MiB resident, {} ended calls remembered",
            self.at.as_secs(),
            self.streams,
            mib(self.anonymous),
            mib(self.resident),
            self.ended
        )
    }
}

impl Shape {
    pub(super) fn of(samples: &[Sample], warm_up: Duration) -> Self {
        let warm: Vec<Sample> = samples.iter().filter(|sample| sample.at >= warm_up).copied().collect();
        let quarter = warm.len().div_ceil(4);
        let early = warm.get(..quarter).unwrap_or_default();
        let late = warm.get(warm.len().saturating_sub(quarter)..).unwrap_or_default();
        let peak = samples.iter().map(|sample| sample.anonymous).max().unwrap_or(0);
        Self { early: median(early), late: median(late), peak }
    }

    /// What memory may have come to.
    pub fn allowed(&self) -> u64 {
        let ended = self.late.ended.saturating_sub(self.early.ended);
        let slack = SLACK_BYTES.max(self.early.anonymous / 100 * SLACK_PERCENT);
        self.early.anonymous.saturating_add(ended.saturating_mul(ENDED_BYTES)).saturating_add(slack)
    }

    pub(super) fn fault(&self) -> Option<String> {
        if self.early.anonymous == 0 {
            return Some("memory was not measured".to_owned());
        }
        (self.late.anonymous > self.allowed()).then(|| format!("memory is not flat: {self}"))
    }
}

/// Each figure's own median.
fn median(samples: &[Sample]) -> Sample {
    let of = |figure: fn(&Sample) -> u64| {
        let mut figures: Vec<u64> = samples.iter().map(figure).collect();
        figures.sort_unstable();
        figures.get(figures.len() / 2).copied().unwrap_or(0)
    };
    Sample {
        at: samples.first().map_or(Duration::ZERO, |sample| sample.at),
        anonymous: of(|sample| sample.anonymous),
        resident: of(|sample| sample.resident),
        streams: of(|sample| sample.streams),
        ended: of(|sample| sample.ended),
    }
}

/// A soak that did not keep its streams open has shown nothing.
pub(super) fn too_few(samples: &[Sample], plan: Plan) -> Option<String> {
    let warm: Vec<Sample> = samples.iter().filter(|sample| sample.at >= plan.warm_up).copied().collect();
    let open = median(&warm).streams;
    let wanted = u64::try_from(plan.streams).unwrap_or(u64::MAX).saturating_mul(OPEN_PERCENT) / 100;
    (open < wanted).then(|| format!("{open} streams were open at the median, {wanted} are wanted"))
}

#[allow(clippy::cast_precision_loss, clippy::float_arithmetic, reason = "for people to read")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "anonymous memory: {:.1} MiB from {} s, {:.1} MiB from {} s (allowed {:.1}), peak {:.1}; {} and {} ended calls remembered",
            mib(self.early.anonymous),
            self.early.at.as_secs(),
            mib(self.late.anonymous),
            self.late.at.as_secs(),
            mib(self.allowed()),
            mib(self.peak),
            self.early.ended,
            self.late.ended
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(figure: impl Fn(u64) -> (u64, u64)) -> Vec<Sample> {
        let sample = |second| {
            let (anonymous, ended) = figure(second);
            Sample { at: Duration::from_secs(second), anonymous, ended, ..Sample::default() }
        };
        (0..100).map(sample).collect()
    }

    #[test]
    fn memory_is_flat_or_it_is_not() {
        let warm_up = Duration::from_secs(20);
        let judge = |figure: fn(u64) -> (u64, u64)| Shape::of(&samples(figure), warm_up).fault().is_none();
        // It grows while it warms up.
        assert!(judge(|second| ((50 << 20) + second.min(20) * (1 << 20), 0)));
        assert!(!judge(|second| ((50 << 20) + second * (1 << 20), 0)));
        // Only by what it remembers of ended calls.
        assert!(judge(|second| ((50 << 20) + second * 500_000, second * 1000)));
        assert!(!judge(|second| ((50 << 20) + second * 1_000_000, second * 1000)));
        // Never measured is not flat.
        assert!(!judge(|_| (0, 0)));
    }
}
