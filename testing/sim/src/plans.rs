//! What a gateway tells forecast accounts of its streams: one share per account, a round every two seconds.
//!
//! As in the real one: a batch is given out until it is acknowledged, an ended stream is no longer told of, and what a
//! dead gateway has planned dies by the clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollbook_engine::ledger::stream::{Seen, Share, Stream};
use tollbook_engine::ledger::units::PROGRESS_ACCOUNTS_MAX;
use tollbook_engine::ledger::{Leg, Micros, Profile, Shape};
use tollbook_engine::{ProgressCall, Receipt, Shard};

use crate::gateway::Live;

/// The plans of one gateway.
#[derive(Debug)]
pub(crate) struct Plans {
    gateway: u64,
    accounts: Vec<Shared>,
}

#[derive(Debug)]
struct Shared {
    shard: Shard,
    share: Share,
    streams: Vec<Followed>,
}

#[derive(Debug)]
struct Followed {
    live: Arc<Live>,
    stream: Stream,
    per_output: u64,
}

impl Plans {
    pub(crate) fn new(gateway: u64) -> Self {
        Self { gateway, accounts: Vec::new() }
    }

    /// A call was admitted: its accounts have written its plan.
    pub(crate) fn admitted(&mut self, receipt: &Receipt, legs: &[Leg], profile: Profile, live: &Arc<Live>) {
        let now = receipt.receipt.now;
        for (leg, got) in legs.iter().zip(&receipt.receipt.legs) {
            let Shape::Forecast { window, .. } = leg.shape else { continue };
            let known = self.accounts.iter().position(|shared| shared.share.account() == leg.account);
            let at = known.unwrap_or_else(|| {
                let share = Share::new(leg.account, window, now);
                self.accounts.push(Shared { shard: receipt.shard, share, streams: Vec::new() });
                self.accounts.len() - 1
            });
            let shared = &mut self.accounts[at];
            shared.share.admitted(now, profile, (leg.base, leg.per_output), got.output);
            if leg.per_output > 0 {
                let stream = Stream::admitted(now, profile, got.output, leg.cap);
                shared.streams.push(Followed { live: Arc::clone(live), stream, per_output: leg.per_output });
            }
        }
    }

    /// A call goes on under another attempt: what was planned for this one is nobody's.
    pub(crate) fn left(&mut self, live: &Arc<Live>) {
        for shared in &mut self.accounts {
            shared.streams.retain(|followed| !Arc::ptr_eq(&followed.live, live));
        }
    }

    /// What is to be told now.
    pub(crate) fn ask(&mut self, now: Micros) -> Vec<ProgressCall> {
        let mut calls: Vec<ProgressCall> = Vec::new();
        for shared in &mut self.accounts {
            let Some(batch) = shared.ask(now, self.gateway) else { continue };
            let open = calls
                .iter_mut()
                .find(|call| call.shard == shared.shard && call.batches.len() < PROGRESS_ACCOUNTS_MAX);
            match open {
                Some(call) => call.batches.push(batch),
                None => calls.push(ProgressCall { shard: shared.shard, batches: vec![batch] }),
            }
        }
        self.accounts.retain(|shared| !shared.streams.is_empty() || !shared.share.is_clear());
        calls
    }

    pub(crate) fn acknowledged(&mut self, call: &ProgressCall) {
        for batch in &call.batches {
            let shared = self.accounts.iter_mut().find(|shared| shared.share.account() == batch.account);
            if let Some(shared) = shared {
                shared.share.acknowledged(batch.seq);
            }
        }
    }
}

impl Shared {
    fn ask(&mut self, now: Micros, gateway: u64) -> Option<tollbook_engine::ledger::Progress> {
        let share = &mut self.share;
        self.streams.retain_mut(|Followed { live, stream, per_output }| {
            let (output, first) = (live.output.load(Ordering::Relaxed), live.first.load(Ordering::Relaxed));
            let seen = Seen::Output { output, first };
            if live.has_ended.load(Ordering::Relaxed) {
                for ramp in stream.end(now, seen, output) {
                    share.land(now, ramp, *per_output);
                }
                return false;
            }
            let told = stream.flush(now, seen);
            share.land(now, told.landed, *per_output);
            share.come(told.coming, *per_output);
            if let Some(expected) = told.outgrown {
                live.outgrown.fetch_max(expected, Ordering::Relaxed);
            }
            true
        });
        share.flush(now, gateway)
    }
}
