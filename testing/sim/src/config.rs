//! Who is there, and which limits bind whom, in one simulated world.
//!
//! The map of subjects and accounts is fixed for a run; the limits over them are data that changes while it runs.

use tollbook_engine::Shard;
use tollbook_engine::ledger::{
    AccountId, Estimator, EstimatorId, Hold, Leg, Limit, LimitId, Measure, Micros, OnExpiry, Periods, Shape,
    SubjectId, Weights,
};
use tollbook_engine_suite::random::Random;

/// One second of engine time.
pub(crate) const S: Micros = 1_000_000;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// Everything that could bind a call.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) accounts: Vec<Account>,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) pools: Vec<Pool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) shard: Shard,
    /// Accounts that bind every call of the tenant.
    pub(crate) accounts: Vec<usize>,
    pub(crate) keys: Vec<Key>,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) accounts: Vec<usize>,
    pub(crate) estimator: EstimatorId,
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) shard: Shard,
    pub(crate) accounts: Vec<usize>,
}

/// Where the starts of a quota's periods come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Calendar {
    None,
    Lifetime,
    /// Every so many seconds, shifted as by a time zone.
    Every {
        seconds: u64,
        shift: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Learning {
    Ema { first: u64 },
    Forecast { first: u64 },
    Capped,
    Constant { output: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) id: AccountId,
    pub(crate) measure: Measure,
    shape: Shape,
    pub(crate) calendar: Calendar,
    learning: Learning,
    refund_failed: bool,
    /// Thousandths of the account's unit per llm_token of input and of output.
    unit: (u64, u64),
    pub(crate) limits: Vec<Limit>,
}

/// What a call asks for, in llm_tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) input: u64,
    pub(crate) cap: u64,
    /// The output that the tenant's receipt expects; a pool takes it over.
    pub(crate) expected: Option<u64>,
    pub(crate) estimator: EstimatorId,
}

/// What all calls of the model have in common before their own key is known.
const PRIOR: EstimatorId = EstimatorId(0xa11);

impl Account {
    /// The leg of a call on this account, as seen at an engine time.
    pub(crate) fn leg(&self, demand: &Demand, now: Micros) -> Leg {
        let (base, per_output, worst) = match self.measure {
            Measure::Requests | Measure::Concurrency => (1000, 0, 1),
            _ => {
                let base = demand.input * self.unit.0;
                // A quarter on top of an estimated input.
                let worst = (base * 5 / 4 + demand.cap * self.unit.1).div_ceil(1000);
                (base, self.unit.1, worst)
            }
        };
        let learning = demand.expected.map_or(self.learning, |output| Learning::Constant { output });
        let estimator = match learning {
            Learning::Ema { first } => Estimator::Learned {
                kind: tollbook_engine::ledger::EstimatorKind::Ema,
                own: demand.estimator,
                prior: PRIOR,
                first,
            },
            Learning::Forecast { first } => Estimator::Learned {
                kind: tollbook_engine::ledger::EstimatorKind::Forecast,
                // Each kind has a state of its own.
                own: EstimatorId(demand.estimator.0 | 1 << 40),
                prior: EstimatorId(PRIOR.0 | 1 << 40),
                first,
            },
            Learning::Capped => Estimator::Capped,
            Learning::Constant { output } => Estimator::Constant { output },
        };
        Leg {
            account: self.id,
            measure: self.measure,
            shape: self.shape,
            periods: self.calendar.around(now),
            base,
            per_output,
            cap: demand.cap,
            worst,
            estimator,
            refund_failed: self.refund_failed,
            limits: self.limits.clone(),
        }
    }

    /// What a call has used of this account.
    pub(crate) fn used(&self, input: u64, output: u64) -> u64 {
        match self.measure {
            Measure::Requests | Measure::Concurrency => 1,
            _ => (input * self.unit.0 + output * self.unit.1).div_ceil(1000),
        }
    }

    /// Width of a rate's bucket.
    pub(crate) fn bucket(&self) -> Micros {
        match self.shape {
            Shape::Rate { width, .. } => width,
            Shape::Forecast { .. } | Shape::Quota | Shape::Concurrency => 0,
        }
    }

    pub(crate) fn is_quota(&self) -> bool {
        self.shape == Shape::Quota
    }

    /// Booked by forecast.
    pub(crate) fn is_planned(&self) -> bool {
        matches!(self.shape, Shape::Forecast { .. })
    }

    /// A hard limit that holds the expected demand watches the stream (L9).
    pub(crate) fn is_watched(&self) -> bool {
        let mut enforced = self.limits.iter().filter(|limit| !limit.shadow);
        self.unit.1 > 0
            && !self.is_planned()
            && self.limits.iter().any(|limit| !limit.shadow && limit.hard)
            && enforced.all(|limit| limit.hold == Hold::Expected)
    }
}

impl Calendar {
    fn around(self, now: Micros) -> Periods {
        match self {
            Self::None => Periods::None,
            Self::Lifetime => Periods::Lifetime,
            Self::Every { .. } => {
                let (start, seconds) = self.current(now);
                Periods::Calendar([start - seconds, start, start + seconds, start + 2 * seconds])
            }
        }
    }

    /// Start and length of the period at a time, seconds.
    pub(crate) fn current(self, now: Micros) -> (u64, u64) {
        match self {
            Self::Every { seconds, shift } => ((now / S - shift) / seconds * seconds + shift, seconds),
            Self::None | Self::Lifetime => (0, u64::MAX),
        }
    }
}

/// Draws a world.
pub(crate) fn draw(random: &mut Random) -> Config {
    let mut config = Config { accounts: Vec::new(), tenants: Vec::new(), pools: Vec::new() };
    let mut subjects = 0;
    for _ in 0..2 + random.below(3) {
        let few = 1 + random.below(3);
        let accounts = config.accounts_of(random, &mut subjects, few, false);
        let keys = (0..=random.below(3))
            .map(|_| {
                let few = random.below(4);
                let accounts = config.accounts_of(random, &mut subjects, few, false);
                Key { accounts, estimator: EstimatorId(0xe000 + subjects) }
            })
            .collect();
        config.tenants.push(Tenant { shard: any_shard(random), accounts, keys });
    }
    for _ in 0..=random.below(3) {
        let few = random.below(4);
        let accounts = config.accounts_of(random, &mut subjects, few, true);
        config.pools.push(Pool { shard: any_shard(random), accounts });
    }
    config
}

fn any_shard(random: &mut Random) -> Shard {
    Shard(u8::try_from(random.below(256)).unwrap_or(0))
}

impl Config {
    /// New accounts of a new subject.
    fn accounts_of(
        &mut self,
        random: &mut Random,
        subjects: &mut u64,
        count: u64,
        is_pool: bool,
    ) -> Vec<usize> {
        *subjects += 1;
        let subject = SubjectId(0x5000_0000 + *subjects);
        (0..count)
            .map(|_| {
                let id = AccountId { subject, name: self.accounts.len() as u64 + 1 };
                self.accounts.push(account(random, id, is_pool));
                self.accounts.len() - 1
            })
            .collect()
    }
}

fn account(random: &mut Random, id: AccountId, is_pool: bool) -> Account {
    let measures = [
        Measure::Requests,
        Measure::Requests,
        Measure::Tokens,
        Measure::Tokens,
        Measure::Tokens,
        Measure::InputTokens,
        Measure::OutputTokens,
        Measure::Cost,
        Measure::Concurrency,
    ];
    let measure = *random.of(&measures);
    let is_quota = measure != Measure::Concurrency && random.below(5) < 2;
    let shape = match measure {
        Measure::Concurrency => Shape::Concurrency,
        _ if is_quota => Shape::Quota,
        _ if !is_pool && is_of_llm_tokens(measure) && random.one_in(2) => forecast(random),
        _ => rate(random),
    };
    let calendar = if is_quota { calendar(random) } else { Calendar::None };
    let unit = match measure {
        Measure::Requests | Measure::Concurrency => (0, 0),
        Measure::InputTokens => (1000, 0),
        Measure::OutputTokens => (0, 1000),
        Measure::Cost => *random.of(&[(150, 600), (2500, 10_000)]),
        Measure::Tokens => *random.of(&[(1000, 1000), (1000, 1000), (250, 4000)]),
    };
    let learning = match random.below(4) {
        0 => Learning::Capped,
        1 => Learning::Constant { output: 1 + random.below(80) },
        2 if matches!(shape, Shape::Forecast { .. }) => Learning::Forecast { first: 1 + random.below(150) },
        _ => Learning::Ema { first: 1 + random.below(150) },
    };
    let refund_failed = !is_pool && random.one_in(3);
    let scale = scale(random, measure, shape, unit);
    let mut limits = vec![limit(random, is_quota, scale)];
    while random.one_in(4) && limits.len() < 3 {
        limits.push(limit(random, is_quota, scale));
    }
    for (at, limit) in limits.iter_mut().enumerate() {
        limit.id = LimitId(u32::try_from(id.name * 8 + at as u64).unwrap_or(0));
        if matches!(shape, Shape::Forecast { .. }) {
            // A worst case is held, not planned.
            limit.hold = Hold::Expected;
        }
    }
    Account { id, measure, shape, calendar, learning, refund_failed, unit, limits }
}

fn is_of_llm_tokens(measure: Measure) -> bool {
    matches!(measure, Measure::Tokens | Measure::InputTokens | Measure::OutputTokens)
}

fn forecast(random: &mut Random) -> Shape {
    Shape::Forecast { window: *random.of(&[60, 60, 60, 10, 1]), strict: random.one_in(3) }
}

/// Any n × w: the usual minute, the ledger paper's, and small ones that turn quickly.
fn rate(random: &mut Random) -> Shape {
    let (buckets, width) = *random.of(&[
        (61, S),
        (61, S),
        (7, 10 * S),
        (2, 60 * S),
        (2, S),
        (11, S / 2),
        (64, 7 * S),
        (16, 60 * S),
    ]);
    let weights = match random.below(6) {
        0 => Weights::Oldest,
        1 => Weights::Decay,
        _ => Weights::Whole,
    };
    Shape::Rate { buckets, width, weights }
}

fn calendar(random: &mut Random) -> Calendar {
    let seconds = *random.of(&[MINUTE, HOUR, DAY, DAY, 7 * DAY, 30 * DAY, 0]);
    match seconds {
        0 => Calendar::Lifetime,
        seconds => Calendar::Every { seconds, shift: *random.of(&[0, 0, HOUR, 11 * HOUR + 30 * MINUTE]) },
    }
}

/// A ceiling at which calls meet.
fn scale(random: &mut Random, measure: Measure, shape: Shape, unit: (u64, u64)) -> u64 {
    let calls = match shape {
        Shape::Quota => *random.of(&[4, 12, 40, 120]),
        _ => *random.of(&[1, 3, 6, 12, 30]),
    };
    match measure {
        Measure::Requests | Measure::Concurrency => calls,
        _ => (calls * (150 * unit.0 + 250 * unit.1)).div_ceil(1000).max(1),
    }
}

fn limit(random: &mut Random, is_quota: bool, scale: u64) -> Limit {
    // A quota is hard and a rate soft, unless said otherwise.
    let hard = is_quota != random.one_in(4);
    let hold = if hard == random.one_in(3) { Hold::Expected } else { Hold::Worst };
    let on_expiry = if hard == random.one_in(3) { OnExpiry::Release } else { OnExpiry::Charge };
    Limit {
        id: LimitId(0),
        ceiling: (scale * (50 + random.below(100)) / 100).max(1),
        hard,
        shadow: random.one_in(7),
        count_denied: random.one_in(8),
        hold,
        on_expiry,
    }
}

/// Another ceiling for one limit: none passes, half, double, or about the same; seldom another kind altogether.
pub(crate) fn change(random: &mut Random, config: &mut Config) {
    let at = usize::try_from(random.below(config.accounts.len() as u64)).unwrap_or(0);
    let Some(account) = config.accounts.get_mut(at) else { return };
    let which = usize::try_from(random.below(account.limits.len() as u64)).unwrap_or(0);
    let Some(limit) = account.limits.get_mut(which) else { return };
    match random.below(8) {
        0 => limit.ceiling = 0,
        1 | 2 => limit.ceiling /= 2,
        3 | 4 => limit.ceiling = limit.ceiling * 2 + 1,
        5 => limit.shadow = !limit.shadow,
        6 => limit.hard = !limit.hard,
        _ => limit.ceiling = limit.ceiling * (90 + random.below(20)) / 100 + 1,
    }
}
