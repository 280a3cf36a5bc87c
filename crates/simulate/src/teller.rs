//! What a gateway does for forecast accounts while streams run: it measures their pace, and tells the book every two
//! seconds what has landed and what is still expected.
//!
//! Where several gateways share the book, each has a teller of its own, which knows nothing of the others' streams; its
//! rounds lie apart from theirs, and what it says reaches the book [`WAY`] later.
//! Invariant: a stream is told of from its admission to its end, and each batch is applied once, so nothing is lost.

use std::collections::{BTreeMap, BTreeSet};

use tollbook_ledger::stream::{Pace, Seen, Share, Stream};
use tollbook_ledger::{AccountId, Leg, Micros, Profile, Progress, SECOND};

use crate::offer::Call;

/// Time between two rounds.
const ROUND: Micros = 2 * SECOND;
/// From a gateway of several to the book: a slow network, and a book that is asked by others too.
const WAY: Micros = 50_000;

/// One gateway in front of one model.
pub(crate) struct Teller {
    gateway: u64,
    /// Its rounds begin so much after a full one.
    phase: Micros,
    way: Micros,
    /// What was said in the last round and is still under way.
    said: Option<Said>,
    pace: Pace,
    shares: BTreeMap<AccountId, Share>,
    live: BTreeMap<usize, Live>,
    /// The next round, if there is anything to tell.
    next: Micros,
}

/// What one round has to say.
pub(crate) struct Said {
    arrives: Micros,
    /// Calls that outgrew their forecast, and what is expected of them now.
    pub(crate) outgrown: Vec<(usize, u64)>,
    pub(crate) batches: Vec<Progress>,
}

struct Live {
    stream: Stream,
    account: AccountId,
    per_output: u64,
}

impl Teller {
    /// The gateways that share a book.
    pub(crate) fn all(now: Micros, count: u64) -> Vec<Self> {
        let way = if count > 1 { WAY } else { 0 };
        (0..count).map(|number| Self::new(now, number + 1, (number * ROUND / count, way))).collect()
    }

    fn new(now: Micros, gateway: u64, (phase, way): (Micros, Micros)) -> Self {
        Self {
            gateway,
            phase,
            way,
            said: None,
            pace: Pace::default(),
            shares: BTreeMap::new(),
            live: BTreeMap::new(),
            next: now + phase + ROUND,
        }
    }

    /// How the next call is expected to stream.
    pub(crate) fn profile(&self) -> Profile {
        self.pace.profile()
    }

    /// When the next round is due, or what was said in the last one arrives.
    pub(crate) fn next(&self) -> Option<Micros> {
        match &self.said {
            Some(said) => Some(said.arrives),
            None => (!self.shares.is_empty()).then_some(self.next),
        }
    }

    /// What has arrived at the book by now; else a round is due.
    pub(crate) fn arrived(&mut self, now: Micros) -> Option<Said> {
        let said = self.said.take_if(|said| said.arrives <= now)?;
        for batch in &said.batches {
            if let Some(share) = self.shares.get_mut(&batch.account) {
                share.acknowledged(batch.seq);
            }
        }
        let live: BTreeSet<AccountId> = self.live.values().map(|live| live.account).collect();
        self.shares.retain(|account, share| live.contains(account) || !share.is_clear());
        Some(said)
    }

    /// A call was admitted with so much expected output.
    pub(crate) fn admitted(&mut self, now: Micros, number: usize, leg: &Leg, output: u64) {
        if self.shares.is_empty() {
            // Rounds are at the same instants, whoever was there in between.
            self.next = self.next.max(now / ROUND * ROUND + ROUND + self.phase);
        }
        let profile = self.profile();
        let share = self.shares.entry(leg.account).or_insert_with(|| Share::new(leg.account, 60, now));
        share.admitted(now, profile, (leg.base, leg.per_output), output);
        let stream = Stream::admitted(now, profile, output, leg.cap);
        self.live.insert(number, Live { stream, account: leg.account, per_output: leg.per_output });
    }

    /// A call has ended as it was to.
    pub(crate) fn ended(&mut self, now: Micros, number: usize, call: &Call, arrival: Micros) {
        let first = arrival.saturating_add(call.first);
        self.pace.learn(call.first, now.saturating_sub(first), call.output);
        let Some(live) = self.live.remove(&number) else { return };
        let Some(share) = self.shares.get_mut(&live.account) else { return };
        for ramp in live.stream.end(now, Seen::Output { output: call.output, first }, call.output) {
            share.land(now, ramp, live.per_output);
        }
    }

    /// A round: looks at every stream, and says to the accounts what has changed.
    pub(crate) fn round(&mut self, now: Micros, seen: impl Fn(usize) -> (u64, Micros)) {
        let mut outgrown = Vec::new();
        for (number, live) in &mut self.live {
            let (output, first) = seen(*number);
            let told = live.stream.flush(now, Seen::Output { output, first });
            if let Some(share) = self.shares.get_mut(&live.account) {
                share.land(now, told.landed, live.per_output);
                share.come(told.coming, live.per_output);
            }
            outgrown.extend(told.outgrown.map(|output| (*number, output)));
        }
        let batches = self.shares.values_mut().filter_map(|share| share.flush(now, self.gateway)).collect();
        self.said = Some(Said { arrives: now.saturating_add(self.way), outgrown, batches });
        self.next = now.saturating_add(ROUND);
    }
}
