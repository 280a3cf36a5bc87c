//! The door over a book that can be lost: what it waits for, and what it tells of its calls.

use std::sync::Arc;

use tollbook_engine::{Balance, EngineError, Reply, Shard};
use tollbook_ledger::AccountId;
use tollbook_store::{Restored, ShardEpoch};

use crate::admit::Admission;
use crate::verb;
use crate::vouchers::{VoucherError, Vouchers};

impl Admission {
    /// What is remembered for a book that can be lost.
    pub fn vouchers(&self) -> Option<&Arc<Vouchers>> {
        self.vouchers.as_ref()
    }

    /// Balances of accounts. A shard that was never used is opened for it, where the book can be lost.
    ///
    /// # Errors
    /// When the engine does not answer in time, or the shard is lost.
    pub async fn balances(
        &self,
        shard: Shard,
        accounts: &[AccountId],
    ) -> Result<Reply<Vec<Option<Balance>>>, EngineError> {
        let ask = || verb::within(self.deadline(), self.engine().balances(shard, accounts));
        match ask().await {
            Err(error) if self.is_whole_again(shard, &error).await => ask().await,
            answer => answer,
        }
    }

    /// Restores what this gateway knows of a shard.
    ///
    /// # Errors
    /// When the book or the store does not answer; it is to be repeated.
    pub async fn restore(&self, epoch: &ShardEpoch) -> Result<Restored, VoucherError> {
        match &self.vouchers {
            Some(vouchers) => {
                let (restored, again) = vouchers.restore(epoch, &self.live.sent()).await?;
                for posting in again {
                    self.settler.post(posting);
                }
                Ok(restored)
            }
            None => Ok(Restored::default()),
        }
    }

    /// Whether a part of the book was found lost and is not whole again.
    pub fn is_losing(&self) -> bool {
        self.vouchers.as_ref().is_some_and(|vouchers| !vouchers.lost.list().is_empty())
    }

    /// Waits a moment for a shard that was found lost, unless another call has done so in vain.
    pub(crate) async fn is_whole_again(&self, shard: Shard, error: &EngineError) -> bool {
        match &self.vouchers {
            Some(vouchers) if vouchers.lost.met(shard, error) => {
                vouchers.lost.wait_in_hope(shard, vouchers.bounds.wait).await
            }
            _ => false,
        }
    }
}
