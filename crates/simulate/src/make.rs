//! Makes traces without any data: seven kinds of traffic, from integers and a seed alone.
//!
//! Lengths are drawn from tables of quantiles, arrivals are exponential, so the same seed gives the same trace on every
//! machine. The first four kinds are like published traces in rate, lengths and burstiness; the other three are made to
//! strain a limit.

use core::str::FromStr;

use tollbook_ledger::{Micros, SECOND};

use crate::random::Random;
use crate::trace::{Row, Trace};

/// A kind of traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A conversation service: six calls a second, short answers.
    Conv,
    /// Code completion: long inputs, very short outputs, in bursts.
    Code,
    /// Long-context chat.
    Chat,
    /// A reasoning model: outputs of thousands of llm_tokens.
    Reasoning,
    /// Bursts of 20 calls a second, 30 s on and 60 s off in the mean.
    OnOff,
    /// Every five minutes from chat to long text and back.
    ModeSwitch,
    /// Few calls; 15 % of them stream 4,000 to 16,000 llm_tokens.
    LongStreams,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Conv,
        Self::Code,
        Self::Chat,
        Self::Reasoning,
        Self::OnOff,
        Self::ModeSwitch,
        Self::LongStreams,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Conv => "conv",
            Self::Code => "code",
            Self::Chat => "chat",
            Self::Reasoning => "reasoning",
            Self::OnOff => "on-off",
            Self::ModeSwitch => "mode-switch",
            Self::LongStreams => "long-streams",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| format!("one of {}", names()))
    }
}

/// Longest trace that is made.
pub const LENGTH_MAX: Micros = 7 * 86_400 * SECOND;
const KEYS: u64 = 20;

/// Makes a trace of a length.
pub fn make(kind: Kind, length: Micros, seed: u64) -> Trace {
    let mut random = Random::new(seed, 100);
    let mut maker = Maker { random: &mut random, rows: Vec::new(), end: length.min(LENGTH_MAX) };
    match kind {
        Kind::Conv => maker.steady(Pause(168_000), &CONV),
        Kind::Code => {
            maker.bursts(&CODE, Bursts { on: 20 * SECOND, off: 15 * SECOND, pause: Pause(220_000) });
        }
        Kind::Chat => maker.steady(Pause(294_000), &CHAT),
        Kind::Reasoning => maker.steady(Pause(335_000), &REASONING),
        Kind::OnOff => {
            maker.bursts(&ON_OFF, Bursts { on: 30 * SECOND, off: 60 * SECOND, pause: Pause(50_000) });
        }
        Kind::ModeSwitch => maker.switching(),
        Kind::LongStreams => maker.long_streams(),
    }
    let keys = (1..=KEYS).map(|number| format!("key-{number}")).collect();
    let mut rows = maker.rows;
    // Key k comes 1 / k times as often as the first.
    let weights: Vec<u64> = (1..=KEYS).map(|rank| 10_000 / rank).collect();
    let all: u64 = weights.iter().sum();
    for row in &mut rows {
        let mut drawn = random.below(all);
        for (key, weight) in (0..).zip(&weights) {
            row.key = key;
            match drawn.checked_sub(*weight) {
                Some(left) => drawn = left,
                None => break,
            }
        }
    }
    Trace { name: kind.name().to_owned(), rows, keys, knows_caps: false }
}

/// Mean time between two calls.
#[derive(Clone, Copy)]
struct Pause(Micros);

/// Times on and off, exponential with these means.
#[derive(Clone, Copy)]
struct Bursts {
    on: Micros,
    off: Micros,
    pause: Pause,
}

/// How long the calls of one kind are.
struct Lengths {
    input: Quantiles,
    output: Quantiles,
}

/// Values at [`PLACES`], linear in between.
type Quantiles = [u64; PLACES.len()];

/// In ten-thousandths.
const PLACES: [u64; 12] = [0, 100, 500, 1_000, 2_500, 5_000, 7_500, 9_000, 9_500, 9_900, 9_990, 10_000];

const CONV: Lengths = Lengths {
    input: [2, 31, 181, 237, 396, 860, 1_180, 2_900, 4_086, 4_122, 5_219, 14_050],
    output: [7, 16, 39, 50, 80, 114, 330, 421, 447, 598, 937, 1_000],
};
const CODE: Lengths = Lengths {
    input: [3, 17, 75, 147, 578, 1_469, 2_745, 5_000, 7_000, 7_436, 7_437, 7_437],
    output: [6, 6, 6, 7, 9, 13, 24, 45, 80, 230, 824, 1_899],
};
const CHAT: Lengths = Lengths {
    input: [891, 894, 901, 964, 2_307, 6_909, 15_000, 26_000, 38_000, 80_000, 121_000, 126_195],
    output: [1, 3, 10, 24, 157, 350, 472, 597, 698, 1_100, 1_900, 2_000],
};
const REASONING: Lengths = Lengths {
    input: [4, 8, 15, 25, 55, 124, 277, 1_200, 5_000, 18_000, 33_888, 54_954],
    output: [55, 167, 266, 354, 671, 1_911, 3_900, 6_600, 8_926, 14_746, 21_601, 25_755],
};
const ON_OFF: Lengths = Lengths {
    input: [13, 34, 66, 95, 174, 342, 671, 1_232, 1_771, 3_502, 7_517, 11_787],
    output: [15, 33, 56, 75, 122, 209, 359, 583, 780, 1_346, 2_479, 3_553],
};
const SHORT_CHAT: Lengths = Lengths {
    input: [16, 39, 72, 100, 173, 317, 582, 1_005, 1_394, 2_572, 5_116, 7_669],
    output: [12, 22, 36, 47, 71, 114, 183, 280, 360, 581, 991, 1_358],
};
const LONG_TEXT: Lengths = Lengths {
    input: [22, 45, 72, 93, 142, 228, 365, 558, 720, 1_160, 1_980, 2_713],
    output: [369, 598, 840, 1_007, 1_364, 1_911, 2_677, 3_627, 4_350, 6_116, 8_961, 11_221],
};
const PLAIN: Lengths = Lengths {
    input: [17, 44, 88, 127, 232, 456, 895, 1_642, 2_362, 4_668, 10_020, 15_712],
    output: [7, 15, 29, 40, 69, 126, 233, 402, 557, 1_029, 2_046, 3_067],
};

struct Maker<'a> {
    random: &'a mut Random,
    rows: Vec<Row>,
    end: Micros,
}

impl Maker<'_> {
    fn steady(&mut self, pause: Pause, lengths: &Lengths) {
        self.fill(0, self.end, pause, lengths);
    }

    fn bursts(&mut self, lengths: &Lengths, bursts: Bursts) {
        let mut now = 0;
        while now < self.end {
            let until = now.saturating_add(self.random.exponential(bursts.on)).min(self.end);
            self.fill(now, until, bursts.pause, lengths);
            now = until.saturating_add(self.random.exponential(bursts.off)).saturating_add(1);
        }
    }

    fn switching(&mut self) {
        let (mut now, mut long) = (0, false);
        while now < self.end {
            let until = now.saturating_add(300 * SECOND).min(self.end);
            let (pause, lengths) = if long { (500_000, &LONG_TEXT) } else { (125_000, &SHORT_CHAT) };
            self.fill(now, until, Pause(pause), lengths);
            (now, long) = (until, !long);
        }
    }

    fn long_streams(&mut self) {
        self.fill(0, self.end, Pause(400_000), &PLAIN);
        for row in &mut self.rows {
            if self.random.below(100) < 15 {
                row.output = self.random.between(4_000, 16_000);
            }
        }
    }

    /// Calls from a time to another, exponential pauses between them.
    fn fill(&mut self, from: Micros, until: Micros, pause: Pause, lengths: &Lengths) {
        let mut now = from.saturating_add(self.random.exponential(pause.0));
        while now < until {
            let (input, output) = (self.draw(&lengths.input), self.draw(&lengths.output));
            self.rows.push(Row { arrival: now, input, output, key: 0, max_tokens: None });
            now = now.saturating_add(self.random.exponential(pause.0)).saturating_add(1);
        }
    }

    fn draw(&mut self, quantiles: &Quantiles) -> u64 {
        let place = self.random.below(10_000);
        let pairs = |values: &Quantiles| {
            values.iter().copied().zip(values.iter().copied().skip(1)).collect::<Vec<_>>()
        };
        let segments = pairs(&PLACES).into_iter().zip(pairs(quantiles));
        let mut segments = segments.filter(|((from, to), _)| (*from..*to).contains(&place));
        let Some(((from, to), (low, high))) = segments.next() else { return 0 };
        low + (high - low) * (place - from) / (to - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls per minute and mean lengths over ten hours.
    fn means(kind: Kind) -> (u64, u64, u64) {
        let trace = make(kind, 36_000 * SECOND, 5);
        let calls = trace.rows.len() as u64;
        let mean = |of: fn(&Row) -> u64| trace.rows.iter().map(of).sum::<u64>() / calls;
        (calls / 600, mean(|row| row.input), mean(|row| row.output))
    }

    #[test]
    fn each_kind_has_the_rate_and_the_lengths_it_is_like() {
        for (kind, rate, input, output) in [
            // Published traces.
            (Kind::Conv, 356, 1_208, 200),
            (Kind::Code, 154, 2_048, 28),
            (Kind::Chat, 204, 12_035, 343),
            (Kind::Reasoning, 179, 1_110, 2_947),
            // What strains a limit: by definition.
            (Kind::OnOff, 400, 600, 300),
            (Kind::ModeSwitch, 300, 460, 560),
            (Kind::LongStreams, 150, 800, 1_670),
        ] {
            let made = means(kind);
            for (made, want) in [(made.0, rate), (made.1, input), (made.2, output)] {
                assert!(made.abs_diff(want) * 100 <= want * 9, "{}: {made} for {want}", kind.name());
            }
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("talk".parse::<Kind>().unwrap_err().starts_with("one of conv, code"));
    }

    #[test]
    fn a_length_of_nothing_is_no_call_and_one_beyond_the_bound_ends_at_it() {
        assert!(make(Kind::Conv, 0, 1).rows.is_empty());
        let last = make(Kind::LongStreams, Micros::MAX, 1).rows.last().map(|row| row.arrival);
        assert!(last.is_some_and(|last| last < LENGTH_MAX));
    }
}
