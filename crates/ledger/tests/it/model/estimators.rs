//! What calls are expected to use: every kind by its definition, from all samples there ever were.

use tollbook_ledger::{Estimator, EstimatorId, EstimatorKind, Micros, SECOND};

use super::{Model, Part};

impl Model {
    pub(super) fn estimate(&self, now: Micros, estimator: &Estimator) -> u64 {
        match estimator {
            Estimator::Learned { kind, own, prior, first } => {
                let of = |id: &EstimatorId| expected(*kind, self.samples.get(id)?, now);
                let young = |id: &EstimatorId| {
                    self.samples.get(id).is_none_or(|all| all.iter().all(|(_, _, grows)| *grows))
                };
                of(own).filter(|_| !young(own)).or_else(|| of(prior)).unwrap_or(*first)
            }
            Estimator::Capped => u64::MAX,
            Estimator::Constant { output } => *output,
        }
    }

    pub(super) fn learn(&mut self, now: Micros, parts: &[Part], learn: Option<u64>, grows: bool) {
        let Some(output) = learn else { return };
        let mut pairs = Vec::new();
        for part in parts {
            if let Estimator::Learned { kind, own, prior, .. } = part.leg.estimator
                && !pairs.contains(&(own, prior))
                && (!grows || kind == EstimatorKind::Forecast)
            {
                pairs.push((own, prior));
            }
        }
        for (own, prior) in pairs {
            self.samples.entry(own).or_default().push((now, output, grows));
            if own != prior {
                self.samples.entry(prior).or_default().push((now, output, grows));
            }
        }
    }
}

/// What is expected after some samples, by the definition of each kind.
fn expected(kind: EstimatorKind, samples: &[(Micros, u64, bool)], now: Micros) -> Option<u64> {
    let outputs: Vec<u64> = samples.iter().map(|(_, output, _)| *output).collect();
    match kind {
        EstimatorKind::Ema => {
            let first = outputs[0] * 1000;
            Some(2 * outputs[1..].iter().fold(first, |m, output| (m * 7 + output * 3000) / 10) / 1000)
        }
        EstimatorKind::Forecast => {
            let (mut n, mut m) = (0_i64, 0_i64);
            for (_, output, grows) in samples {
                n += i64::from(!grows);
                let w = (1024 / n.max(1)).max(51);
                m += ((i64::try_from(*output).unwrap() * 1000 - m) * w).div_euclid(1024);
            }
            (n > 0 || m > 0).then_some(2 * u64::try_from(m).unwrap() / 1000)
        }
        EstimatorKind::P95 => {
            let mut last: Vec<u64> = outputs.iter().rev().take(100).copied().collect();
            last.sort_unstable();
            if last.len() < 5 {
                return Some(last.iter().sum::<u64>() * 3 / (2 * u64::try_from(last.len()).unwrap()));
            }
            let enough =
                |value: &&u64| 100 * last.iter().filter(|other| other <= value).count() >= 95 * last.len();
            last.iter().find(enough).copied()
        }
        EstimatorKind::RecentMean => {
            let minute = |at: Micros| at / SECOND / 60;
            let recent = |at: &Micros| minute(*at) < minute(now) && minute(*at) + 10 >= minute(now);
            let found: Vec<u64> =
                samples.iter().filter(|(at, ..)| recent(at)).map(|(_, output, _)| *output).collect();
            let calls = u64::try_from(found.len()).unwrap();
            (calls > 0).then(|| found.iter().sum::<u64>() / calls)
        }
    }
}
