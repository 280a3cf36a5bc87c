//! What a gateway does for forecast accounts while streams run: it measures their pace, and tells the book every two
//! seconds what has landed and what is still expected.
//!
//! Invariant: a stream is told of from its admission to its end, and each batch is applied at once, so nothing is lost.

use std::collections::BTreeMap;

use tollbook_ledger::stream::{Pace, Seen, Share, Stream};
use tollbook_ledger::{AccountId, Leg, Micros, Profile, Progress, SECOND};

use crate::offer::Call;

/// Time between two rounds.
const ROUND: Micros = 2 * SECOND;
const GATEWAY: u64 = 1;

/// One gateway in front of one model.
pub(crate) struct Teller {
    pace: Pace,
    shares: BTreeMap<AccountId, Share>,
    live: BTreeMap<usize, Live>,
    /// The next round, if there is anything to tell.
    next: Micros,
}

struct Live {
    stream: Stream,
    account: AccountId,
    per_output: u64,
}

impl Teller {
    pub(crate) fn new(now: Micros) -> Self {
        Self { pace: Pace::default(), shares: BTreeMap::new(), live: BTreeMap::new(), next: now + ROUND }
    }

    /// How the next call is expected to stream.
    pub(crate) fn profile(&self) -> Profile {
        self.pace.profile()
    }

    /// When the next round is due.
    pub(crate) fn next(&self) -> Option<Micros> {
        (!self.shares.is_empty()).then_some(self.next)
    }

    /// A call was admitted with so much expected output.
    pub(crate) fn admitted(&mut self, now: Micros, number: usize, leg: &Leg, output: u64) {
        if self.shares.is_empty() {
            // Rounds are at the same instants, whoever was there in between.
            self.next = self.next.max(now / ROUND * ROUND + ROUND);
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

    /// A round: looks at every stream; the calls that outgrew their forecast, and what is expected of them now.
    pub(crate) fn look(&mut self, now: Micros, seen: impl Fn(usize) -> (u64, Micros)) -> Vec<(usize, u64)> {
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
        self.next = now.saturating_add(ROUND);
        outgrown
    }

    /// … and tells the accounts.
    pub(crate) fn batches(&mut self, now: Micros) -> Vec<Progress> {
        let mut batches = Vec::new();
        for share in self.shares.values_mut() {
            if let Some(batch) = share.flush(now, GATEWAY) {
                share.acknowledged(batch.seq);
                batches.push(batch);
            }
        }
        let live: std::collections::BTreeSet<AccountId> =
            self.live.values().map(|live| live.account).collect();
        self.shares.retain(|account, share| live.contains(account) || !share.is_clear());
        batches
    }
}
