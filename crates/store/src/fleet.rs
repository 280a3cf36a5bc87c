//! What the gateways of one shared book tell each other: who lives, which epoch a shard has, who makes it whole again.
//!
//! Invariants: a shard's epoch only grows, and only the holder of its lease begins a new one after the first; a lease and a
//! sign of life end by the store's own clock, never by a gateway's, also where that steps back. Every call may be repeated:
//! its second run finds what the first one did.
//! When the store is away: nobody can begin anything; what is under way goes on where it was.

use std::time::Duration;

use tollbook_ledger::Micros;

use crate::{Answer, Entry, EntryKey, PostedSum};

/// Names a gateway from its start to its end.
pub type GatewayId = u64;

/// How often a gateway says that it lives.
pub const BEAT_EVERY: Duration = Duration::from_secs(2);
/// A gateway that was not seen for this long does not live.
pub const LIVE_WITHIN: Duration = Duration::from_secs(6);
/// How long a lease lasts that is not kept up.
pub const LEASE: Duration = Duration::from_secs(5);
/// Gateways that were not seen for this long are forgotten.
pub const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);

/// The shard of a tenant or pool: crc32 of its id, modulo 256. Part of the stored form.
pub fn shard_of(owner: &str) -> u8 {
    let [low, ..] = crc32fast::hash(owner.as_bytes()).to_le_bytes();
    low
}

/// Why an epoch began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EpochCause {
    /// The shard was used for the first time.
    First,
    /// The last writes may be lost.
    Tail,
    /// Everything is lost.
    All,
}

/// How far an epoch is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Whoever holds the lease prepares the shard.
    Begun,
    /// Every gateway restores what it vouches for.
    Restoring,
    Open,
}

/// A shard's newest epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardEpoch {
    pub shard: u8,
    pub epoch: u64,
    pub cause: EpochCause,
    pub stage: Stage,
    /// Entries up to this place are in the sums that were written last, for this epoch or an earlier one; 0 where none were.
    pub watermark: i64,
    /// Since its stage began; the longest span if that cannot be told.
    pub age: Duration,
}

/// What the journal has posted to a shard's quotas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardSums {
    /// The newest entry that is in the sums.
    pub watermark: i64,
    pub sums: Vec<PostedSum>,
    /// Sums of which no shard is known; they are in none.
    pub astray: u64,
}

/// What a gateway restored of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Calls under way.
    pub held: u64,
    /// Calls that had ended.
    pub ended: u64,
    /// Vouchers that the book did not take.
    pub failed: u64,
}

/// A gateway and an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restorer {
    pub gateway: GatewayId,
    /// It lived when the epoch began.
    pub awaited: bool,
    /// `None` until it has reported.
    pub restored: Option<Restored>,
}

/// Keeps what gateways share beside the journal. Object safe.
pub trait Fleet: Send + Sync + 'static {
    /// Names the gateways that share this store.
    fn id(&self) -> Answer<'_, u64>;
    /// The gateway lives; how many do.
    fn beat(&self, gateway: GatewayId) -> Answer<'_, u32>;
    /// The gateway has ended in good order.
    fn leave(&self, gateway: GatewayId) -> Answer<'_, ()>;

    /// Every shard that was ever used.
    fn epochs(&self) -> Answer<'_, Vec<ShardEpoch>>;
    /// Begins epoch 1 of a shard that was never used. False if it was: it has an epoch, or the journal has calls of it.
    fn first_epoch(&self, shard: u8) -> Answer<'_, bool>;
    /// Takes or keeps the lease of a shard. False while another gateway has it.
    fn lease(&self, shard: u8, gateway: GatewayId) -> Answer<'_, bool>;
    /// Gives the lease back.
    fn lease_end(&self, shard: u8, gateway: GatewayId) -> Answer<'_, ()>;
    /// Begins epoch `next` after the one that is known (0: none), and awaits every gateway that lives. False if the gateway
    /// has no lease, or the shard's epoch or its stage is another one than is known.
    fn epoch_begin(
        &self,
        gateway: GatewayId,
        known: ShardEpoch,
        next: u64,
        cause: EpochCause,
    ) -> Answer<'_, bool>;
    /// The sums of the periods that start at or after `since` (UTC seconds) and of lifetime ones; notes their watermark in
    /// the same transaction. `None` if the epoch is not the newest, or beyond its beginning.
    fn shard_sums(&self, shard: u8, epoch: u64, since: u64) -> Answer<'_, Option<ShardSums>>;
    /// Moves an epoch on; the one that opens ends the shard's lease. False if it is not the newest, or there already.
    fn epoch_stage(&self, shard: u8, epoch: u64, stage: Stage) -> Answer<'_, bool>;
    /// A gateway has restored what it vouches for.
    fn report(&self, shard: u8, epoch: u64, gateway: GatewayId, restored: Restored) -> Answer<'_, ()>;
    /// Who is awaited, and who has reported.
    fn restorers(&self, shard: u8, epoch: u64) -> Answer<'_, Vec<Restorer>>;

    /// Engine time at which the newest entry of a shard's calls ended; `None` if there is no entry.
    fn newest_end(&self, shard: u8) -> Answer<'_, Option<Micros>>;
    /// Where entries stand among all, in the order of insertion; `None` for one that is not there. At most
    /// [`crate::BATCH_MAX`] keys.
    fn entry_places<'a>(&'a self, keys: &'a [EntryKey]) -> Answer<'a, Vec<Option<i64>>>;
    /// The entry of a key; `None` if there is none.
    fn entry(&self, key: EntryKey) -> Answer<'_, Option<Entry>>;
}
