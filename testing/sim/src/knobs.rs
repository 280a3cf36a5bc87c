//! What a seed chooses, and what may be taken away from it to make a failure smaller.

use std::fmt::Write as _;

use tollbook_engine_suite::random::Random;

use crate::config::{DAY, S};
use tollbook_engine::ledger::Micros;

macro_rules! troubles {
    ($($(#[$note:meta])* $name:ident = $word:literal,)+) => {
        /// A kind of trouble that a run may have.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Trouble {
            $($(#[$note])* $name,)+
        }

        impl Trouble {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

troubles! {
    /// Requests and replies get lost.
    Lost = "lost",
    /// Requests and replies are late, and overtake each other.
    Slow = "slow",
    /// Requests arrive twice.
    Twice = "twice",
    /// The engine is away for a while.
    Away = "away",
    /// The engine ends or is killed, and starts on its log.
    Restart = "restart",
    /// Few ended calls may wait for the journal.
    Full = "full",
    /// Gateways die.
    Crash = "crash",
    /// Gateways shut down in order.
    Stop = "stop",
    /// Gateways miss their renewals.
    Stall = "stall",
    /// Engine time jumps forward.
    Forward = "forward",
    /// Engine time steps back.
    Back = "back",
    /// Limits are changed.
    Limits = "limits",
    /// Operators adjust quotas.
    Adjust = "adjust",
    /// Hints are tried out.
    Probe = "probe",
    /// Nobody sweeps for a while.
    Unswept = "unswept",
    /// Drains die between append and trim.
    Torn = "torn",
    /// Gateways ask again with other legs.
    Conflict = "conflict",
    /// Somebody expires what is not due.
    Hasty = "hasty",
    /// A gateway that left outcomes on its disk comes back after half an hour.
    Lull = "lull",
}

impl std::str::FromStr for Trouble {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|trouble| trouble.word() == text);
        found.copied().ok_or_else(|| format!("no trouble is named {text}"))
    }
}

/// One run: a seed, and what is taken away from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knobs {
    pub seed: u64,
    /// At most so many gateways.
    pub gateways: u64,
    /// At most so many calls in all.
    pub calls: u64,
    pub without: Vec<Trouble>,
    /// The real admission instead of its model.
    pub is_real: bool,
    /// Write a wrong amount past the verbs, to see that it is found.
    pub is_sabotaged: bool,
}

impl Knobs {
    pub fn of(seed: u64) -> Self {
        Self { seed, gateways: 8, calls: 1000, without: Vec::new(), is_real: false, is_sabotaged: false }
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        let mut command = format!("cargo run -p tollbook-sim -- --seed {}", self.seed);
        let usual = Self::of(self.seed);
        if self.gateways < usual.gateways {
            let _infallible = write!(command, " --gateways {}", self.gateways);
        }
        if self.is_real {
            command += " --real";
        }
        if self.is_sabotaged {
            command += " --sabotage";
        }
        if self.calls < usual.calls {
            let _infallible = write!(command, " --calls {}", self.calls);
        }
        for trouble in &self.without {
            let _infallible = write!(command, " --without {}", trouble.word());
        }
        command
    }
}

/// A part of a run with a stream of choices of its own, so that taking one part away leaves the others as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Plan,
    Config,
    Arrivals,
    Network,
    Chaos,
    Jobs,
    Gateway(u64),
}

pub(crate) fn stream(seed: u64, part: Part) -> Random {
    let number = match part {
        Part::Plan => 1,
        Part::Config => 2,
        Part::Arrivals => 3,
        Part::Network => 4,
        Part::Chaos => 5,
        Part::Jobs => 6,
        Part::Gateway(n) => 1000 + n,
    };
    let mut seeded = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 32));
    Random::new(seeded.draw())
}

/// The shape of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) gateways: u64,
    pub(crate) calls: u64,
    pub(crate) start: Micros,
    pub(crate) shards: u8,
    pub(crate) has_log: bool,
    pub(crate) journal_records_max: usize,
    pub(crate) settle_queue_max: usize,
    pub(crate) is_sabotaged: bool,
    troubles: Vec<Trouble>,
}

impl Plan {
    pub(crate) fn draw(knobs: &Knobs) -> Self {
        let mut random = stream(knobs.seed, Part::Plan);
        // Every run has some of the troubles, and none has all of them: each gets runs in which it stands out.
        let share = 2 + random.below(4);
        let mut troubles = Vec::new();
        for trouble in Trouble::ALL {
            // A log is written on a real disk: fewer runs.
            let odds = if *trouble == Trouble::Restart { 8 } else { share };
            if random.one_in(odds) {
                troubles.push(*trouble);
            }
        }
        let near_a_boundary = [0, 30 * S, DAY * S / 2, DAY * S - 50 * S, DAY * S - 10 * S];
        let start = 20_758 * DAY * S + random.of(&near_a_boundary) + random.below(5 * S);
        let gateways = (3 + random.below(6)).min(knobs.gateways);
        let calls = (30 + random.below(90)).min(knobs.calls);
        let shards = u8::try_from(1 + random.below(4)).unwrap_or(1);
        let full = 2 + random.below(20);
        let settle_queue_max = usize::try_from(1 + random.below(6)).unwrap_or(1);
        if troubles.contains(&Trouble::Twice) || troubles.contains(&Trouble::Slow) {
            // Half an hour passes by a jump; see `jump_max`.
            troubles.retain(|trouble| *trouble != Trouble::Lull);
        }
        troubles.retain(|trouble| !knobs.without.contains(trouble));
        let has_log = troubles.contains(&Trouble::Restart);
        let journal_records_max = if troubles.contains(&Trouble::Full) { full } else { 1 << 16 };
        let journal_records_max = usize::try_from(journal_records_max).unwrap_or(1);
        Self {
            gateways,
            calls,
            start,
            shards,
            has_log,
            journal_records_max,
            settle_queue_max,
            is_sabotaged: knobs.is_sabotaged,
            troubles,
        }
    }

    /// The farthest jump forward that may be made at once: what is still on its way must not arrive after its reservation
    /// has been forgotten, because then it is a new one (L2).
    pub(crate) fn jump_max(&self) -> Micros {
        if self.has(Trouble::Twice) || self.has(Trouble::Slow) { 100 * S } else { 2 * 3600 * S }
    }

    pub(crate) fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }
}
