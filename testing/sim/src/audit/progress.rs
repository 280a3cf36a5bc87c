//! `progress`: what a gateway's streams did in place of what was planned for them.

use tollbook_engine::ledger::Progress;
use tollbook_engine::ledger::units::PROGRESS_ACCOUNTS_MAX;
use tollbook_engine::{EngineError, ProgressCall, Reply};

use super::books::{Account, Sides};
use super::seconds::Batch;
use super::{Auditor, Checked, ensure};
use crate::clock::Moment;

impl Auditor {
    /// Some of the batches are new or not, by how long the engine says that it is since the last one.
    pub(crate) fn is_in_doubt(&self, shard: u8, call: &ProgressCall, now: Moment) -> bool {
        let either = |batch: &Progress| {
            let seconds = self.accounts.get(&(shard, batch.account)).and_then(Account::seconds);
            seconds.is_some_and(|seconds| seconds.heard(batch, now) == Batch::Either)
        };
        call.batches.len() > 1 && call.batches.iter().any(either)
    }

    /// Writes every batch that is new, once. `repeated`: so many of them the engine did not take for new.
    pub(crate) fn progress(
        &mut self,
        shard: u8,
        call: &ProgressCall,
        got: &Result<Reply<()>, EngineError>,
        repeated: u64,
    ) -> Checked {
        let reply = match got {
            Ok(reply) => reply,
            Err(error) => return self.refused(error),
        };
        ensure!(call.batches.len() <= PROGRESS_ACCOUNTS_MAX, "{} batches were taken", call.batches.len());
        let mut known = 0;
        for (index, batch) in call.batches.iter().enumerate() {
            let Some(account) = self.accounts.get_mut(&(shard, batch.account)) else { continue };
            let Sides::Forecast(seconds) = &mut account.sides else { continue };
            let is_doubled = call.batches.iter().take(index).any(|other| {
                (other.account, other.gateway) == (batch.account, batch.gateway) && other.seq >= batch.seq
            });
            let is_new = match seconds.heard(batch, self.moment) {
                Batch::New => true,
                Batch::Repeated => false,
                Batch::Either => repeated == 0,
            };
            if is_new && !is_doubled {
                self.stats.progress_lost += seconds.apply(reply.now, batch, self.moment);
                account.used = self.moment;
                self.stats.progress += 1;
            } else {
                known += 1;
            }
        }
        ensure!(repeated == known, "{repeated} batches were taken for repeated, and {known} were");
        self.stats.progress_repeated += known;
        Ok(())
    }
}
