//! The engine as a real gateway and real jobs see it: the port, over a wire that may lose and delay.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tollbook_engine::ledger::{AccountId, Expired, Renewed, Settled};
use tollbook_engine::{
    AdjustCall, Answer, Balance, Cursor, Drift, DueHold, Engine, EngineError, ErrorKind, ExpireCall,
    Inspection, JournalRecord, ProgressCall, RebookCall, ReleaseCall, RenewCall, Repair, ReserveCall,
    RestoreCall, SettleCall, Shard, Verdict,
};

use crate::wire::Wire;

/// Far beyond any deadline of a caller: what is lost stays lost until the caller gives up.
const NEVER: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub(crate) struct Port(pub(crate) Arc<Wire>);

fn unsupported<'a, T: Send + 'a>() -> Answer<'a, T> {
    Box::pin(ready(Err(EngineError::not_applied(ErrorKind::Unsupported))))
}

impl Engine for Port {
    fn reserve<'a>(&'a self, call: &'a ReserveCall) -> Answer<'a, Verdict> {
        Box::pin(self.0.reserve(NEVER, call))
    }

    fn rebook<'a>(&'a self, call: &'a RebookCall) -> Answer<'a, Verdict> {
        Box::pin(self.0.rebook(NEVER, call))
    }

    fn renew<'a>(&'a self, calls: &'a [RenewCall]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(self.0.renew(NEVER, calls.to_vec()))
    }

    fn progress<'a>(&'a self, call: &'a ProgressCall) -> Answer<'a, ()> {
        Box::pin(self.0.progress(NEVER, call.clone()))
    }

    fn settle<'a>(&'a self, call: &'a SettleCall) -> Answer<'a, Settled> {
        Box::pin(self.0.settle(NEVER, call.clone()))
    }

    fn release<'a>(&'a self, call: &'a ReleaseCall) -> Answer<'a, Settled> {
        Box::pin(self.0.release(NEVER, call.clone()))
    }

    fn expire<'a>(&'a self, calls: &'a [ExpireCall]) -> Answer<'a, Vec<Expired>> {
        Box::pin(self.0.expire(NEVER, calls.to_vec()))
    }

    fn restore<'a>(&'a self, _: &'a RestoreCall) -> Answer<'a, ()> {
        unsupported()
    }

    fn adjust<'a>(&'a self, call: &'a AdjustCall) -> Answer<'a, bool> {
        Box::pin(self.0.adjust(NEVER, call.clone()))
    }

    fn balances<'a>(&'a self, shard: Shard, accounts: &'a [AccountId]) -> Answer<'a, Vec<Option<Balance>>> {
        Box::pin(ready(self.0.bank.balances(shard, accounts)))
    }

    fn due(&self, shard: Shard, max: usize) -> Answer<'_, Vec<DueHold>> {
        Box::pin(ready(self.0.bank.due(shard, max)))
    }

    fn shards(&self) -> Vec<Shard> {
        self.0.bank.shards().collect()
    }

    fn inspect<'a>(&'a self, _: Shard, _: &'a Inspection) -> Answer<'a, String> {
        unsupported()
    }

    fn drift(&self, _: Shard, _: u64, _: usize) -> Answer<'_, Drift> {
        unsupported()
    }

    fn repair<'a>(&'a self, _: &'a Repair) -> Answer<'a, bool> {
        unsupported()
    }

    /// The auditor sees every record that is read.
    fn journal_read(&self, shard: Shard, _: Cursor, max: usize) -> Answer<'_, Vec<JournalRecord>> {
        let read = self.0.bank.journal_read(shard, max);
        if let Ok(reply) = &read {
            self.0.bank.append(shard, &reply.value);
        }
        Box::pin(ready(read))
    }

    fn journal_trim(&self, shard: Shard, upto: Cursor) -> Answer<'_, ()> {
        Box::pin(ready(self.0.bank.journal_trim(shard, upto)))
    }

    fn flush(&self) -> Answer<'_, ()> {
        Box::pin(ready(self.0.bank.now()))
    }
}
