//! What a server may have lost, and how a shard is made whole again.
//!
//! Invariants: a guarded verb carries the epoch that its gateway expects and the server it meets, and writes nothing where
//! either is not what the shard says; the steps of a rebuild carry their epoch, and one that comes late changes nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::Value;
use tollbook_engine::ledger::{AMOUNT_MAX, End, Measure, ReleaseWhy};
use tollbook_engine::{
    Answer, EngineError, ErrorKind, PeriodSum, Recovery, ReleaseCall, Reply, RestoreCall, RestoredState,
    SettleCall, Shard, ShardState,
};

use crate::engine::{RedisEngine, check_amounts, check_entry, member};
use crate::keys;
use crate::pack::{self, exact, packed};
use crate::reply::{Items, Odd};

/// Keys removed in one step of clearing.
const CLEARED_AT_ONCE: usize = 512;
/// Most steps of one clearing: more than a shard can hold keys for.
const CLEARINGS_MAX: usize = 1_000_000;
/// Sums written in one step.
const SUMS_AT_ONCE: usize = 256;
/// Most that an account can have posted, either way.
const POSTED_MAX: i64 = AMOUNT_MAX.cast_signed();

/// What has to hold for a verb to be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// The shard is whole and open.
    Whole,
    /// The same, or it is being rebuilt for the epoch that is expected.
    Rebuilding,
    /// Nothing.
    Off,
}

/// What a gateway knows of the shards' epochs.
#[derive(Debug)]
pub(crate) struct Epochs {
    expected: Box<[AtomicU64]>,
    told: Box<[AtomicU64]>,
}

impl Default for Epochs {
    fn default() -> Self {
        let none = || (0..=u8::MAX).map(|_| AtomicU64::new(0)).collect();
        Self { expected: none(), told: none() }
    }
}

impl Epochs {
    /// As the scripts read it: a number, negative within a rebuild; nothing where nothing is to be looked at.
    pub(crate) fn expects(&self, guard: Guard, shard: Shard) -> Vec<u8> {
        let epoch = || of(&self.expected, shard).map_or(0, |epoch| epoch.load(Ordering::Acquire));
        match guard {
            Guard::Whole => epoch().to_string().into_bytes(),
            Guard::Rebuilding => format!("-{}", epoch()).into_bytes(),
            Guard::Off => Vec::new(),
        }
    }

    /// An answer carried it.
    pub(crate) fn told(&self, shard: Shard, epoch: u64) {
        if let Some(told) = of(&self.told, shard) {
            told.fetch_max(epoch, Ordering::AcqRel);
        }
    }

    fn expect(&self, shard: Shard, epoch: u64) {
        if let Some(expected) = of(&self.expected, shard) {
            expected.fetch_max(epoch, Ordering::AcqRel);
        }
    }

    fn newest(&self, shard: Shard) -> u64 {
        let read = |all: &[AtomicU64]| of(all, shard).map_or(0, |epoch| epoch.load(Ordering::Acquire));
        read(&self.expected).max(read(&self.told))
    }
}

fn of(all: &[AtomicU64], shard: Shard) -> Option<&AtomicU64> {
    all.get(usize::from(shard.0))
}

/// In the order of `told` in `restore.lua`: place, output, held, decided.
type Told = (u64, u64, u64, u64);

impl RedisEngine {
    pub(crate) async fn restore_call(&self, call: &RestoreCall) -> Result<Reply<()>, EngineError> {
        let reserve = &call.asked.reserve;
        reserve.check()?;
        let receipt = &call.receipt.receipt;
        let is_of = receipt.legs.iter().map(|leg| leg.account).eq(reserve.legs.iter().map(|leg| leg.account));
        if !is_of || (receipt.id, receipt.attempt) != (reserve.id, reserve.attempt) {
            return Err(tollbook_engine::ledger::Refusal::ActualCount.into());
        }
        let (how, sent, posted, landed, age, entry) = match &call.state {
            RestoredState::Held { sent } => (0_u8, *sent, None, 0, 0, None),
            RestoredState::Ended { how, posted, landed, age, entry } => {
                (code(*how), true, posted.as_ref(), *landed, *age, entry.as_ref())
            }
        };
        check_entry(entry.map(Vec::as_slice))?;
        check_amounts(posted.map(Vec::as_slice).unwrap_or_default())?;
        if posted.is_some_and(|posted| posted.len() != reserve.legs.len()) {
            return Err(tollbook_engine::ledger::Refusal::ActualCount.into());
        }
        let keys = self.keys(call.asked.shard).reservation(reserve.id, reserve.attempt).journal();
        let legs = pack::legs(&reserve.legs);
        let told: Vec<Told> = receipt
            .legs
            .iter()
            .zip(&reserve.legs)
            .map(|(told, leg)| {
                let decided = if leg.measure == Measure::Requests {
                    told.expected
                } else {
                    told.held.max(told.expected)
                };
                (exact(told.place), exact(told.output), exact(told.held), exact(decided))
            })
            .collect();
        let args = packed(&(
            how,
            legs,
            told,
            exact(reserve.life),
            u8::from(sent),
            exact(receipt.now),
            posted,
            exact(landed),
            exact(age),
            entry.is_some(),
        ));
        let text = match &call.state {
            RestoredState::Held { .. } => reserve.context.clone(),
            RestoredState::Ended { .. } => entry.cloned().unwrap_or_default(),
        };
        let args = vec![args, keys::claim(reserve.id.0, reserve.attempt), member(reserve), text];
        let said = self.call_as(Guard::Rebuilding, &self.scripts.restore, &keys, args).await?;
        let done = Reply { epoch: said.epoch, now: said.now, value: () };
        match Items::of(Value::Array(vec![said.value]))?.text()?.as_str() {
            "done" | "known" => Ok(done),
            "live" => self.end_restored(call).await,
            _ => Err(Odd("restore").into()),
        }
    }

    /// The reservation is there and its end was lost: it ends now with its amounts, as any other does, and once.
    async fn end_restored(&self, call: &RestoreCall) -> Result<Reply<()>, EngineError> {
        let RestoredState::Ended { how, posted: Some(actual), landed, age, entry } = &call.state else {
            return Err(EngineError::unknown(ErrorKind::Unsupported));
        };
        let claim = call.receipt.claim();
        let accounts: Vec<_> = call.receipt.receipt.legs.iter().map(|leg| leg.account).collect();
        let reply = if *how == End::Released {
            let why = if entry.is_some() { ReleaseWhy::Failed } else { ReleaseWhy::NeverSent };
            let release = ReleaseCall { claim, accounts, why, entry: entry.clone() };
            self.release_call(&release, Guard::Rebuilding).await?
        } else {
            let (actual, landed, entry) = (actual.clone(), *landed, entry.clone().unwrap_or_default());
            let settle = SettleCall { claim, accounts, actual, landed, learn: None, entry, age: *age };
            self.settle_call(&settle, Guard::Rebuilding).await?
        };
        Ok(Reply { epoch: reply.epoch, now: reply.now, value: () })
    }

    async fn state_call(&self, shard: Shard) -> Result<Reply<ShardState>, EngineError> {
        let keys = self.keys(shard);
        let said = self.call_as(Guard::Off, &self.scripts.state, &keys, vec![nothing()]).await?;
        let mut items = Items::of(said.value)?;
        let value = ShardState {
            epoch: items.number()?,
            same_server: items.flag()?,
            closed: items.flag()?,
            seen: items.number()?,
        };
        Ok(Reply { epoch: said.epoch, now: said.now, value })
    }

    /// Whose book it is, if anybody's.
    pub async fn owner(&self) -> Result<Option<u64>, EngineError> {
        match self.command("GET", &self.owner_key(), &[]).await? {
            Value::Nil => Ok(None),
            told => {
                let text = Items::of(Value::Array(vec![told]))?.text()?;
                Ok(Some(u64::from_str_radix(&text, 16).map_err(|_| Odd("owner"))?))
            }
        }
    }

    async fn belongs_call(&self, fleet: u64) -> Result<Reply<bool>, EngineError> {
        let mut owner = self.owner().await?;
        if owner.is_none() {
            let id = format!("{fleet:016x}");
            self.command("SET", &self.owner_key(), &[id.as_bytes(), b"NX"]).await?;
            owner = self.owner().await?;
        }
        // It is no shard's answer.
        Ok(Reply { epoch: 0, now: 0, value: owner == Some(fleet) })
    }

    async fn begin_call(
        &self,
        shard: Shard,
        epoch: u64,
        clear: bool,
        known: ShardState,
    ) -> Result<Reply<bool>, EngineError> {
        let epoch = exact(epoch);
        if clear {
            self.clear(shard, epoch).await?;
        }
        let args = packed(&(epoch, u8::from(clear), exact(known.epoch), exact(known.seen)));
        self.step(&self.scripts.begin, shard, args).await
    }

    /// Removes accounts and live reservations, unless the shard has the epoch already.
    async fn clear(&self, shard: Shard, epoch: u64) -> Result<(), EngineError> {
        let (last, some) = ((CLEARED_AT_ONCE - 1).to_string(), CLEARED_AT_ONCE.to_string());
        let mut cursor = Some("0".to_owned());
        for _ in 0..CLEARINGS_MAX {
            let mut keys = self.keys(shard);
            let due = self.command("ZRANGE", &keys.own("due"), &[b"0", last.as_bytes()]).await?;
            let due = Items::of(Value::Array(vec![due]))?.each(Items::bytes)?;
            for member in &due {
                let due = crate::reply::due(member, shard)?;
                keys = keys.reservation(due.claim.id, due.claim.attempt);
            }
            let mut fields = Vec::new();
            if let Some(from) = cursor.take() {
                let scan: [&[u8]; 3] = [from.as_bytes(), b"COUNT", some.as_bytes()];
                let mut scanned = Items::of(self.command("HSCAN", &keys.own("b"), &scan).await?)?;
                cursor = Some(scanned.text()?).filter(|next| next != "0");
                let mut found = scanned.items()?;
                while !found.is_empty() {
                    let (field, _) = (found.bytes()?, found.bytes()?);
                    fields.extend(keys::is_of_account(&field).then_some(pack::Raw(field)));
                }
            }
            let due: Vec<_> = due.into_iter().map(pack::Raw).collect();
            let args = vec![packed(&(epoch, due, fields))];
            let said = self.call_as(Guard::Off, &self.scripts.clear, &keys, args).await?;
            match said.value {
                Value::Int(0) if cursor.is_none() => return Ok(()),
                Value::Int(left) if left >= 0 => {}
                Value::Int(_) => return Ok(()),
                _ => return Err(Odd("clear").into()),
            }
        }
        Err(EngineError::not_applied(ErrorKind::Away("the shard does not come to an end".to_owned())))
    }

    async fn sums_call(
        &self,
        shard: Shard,
        epoch: u64,
        sums: &[PeriodSum],
    ) -> Result<Reply<bool>, EngineError> {
        let state = self.state_call(shard).await?;
        let value = state.value.closed && state.value.epoch == epoch;
        let mut last = Reply { epoch: state.epoch, now: state.now, value };
        for some in sums.chunks(SUMS_AT_ONCE) {
            let keys = self.keys(shard);
            let rows: Vec<_> = (some.iter())
                .map(|sum| {
                    let (account, measure) = (pack::account(&sum.account), pack::measure(sum.measure));
                    (
                        account,
                        measure,
                        exact(sum.period),
                        exact(sum.end),
                        sum.posted.clamp(-POSTED_MAX, POSTED_MAX),
                    )
                })
                .collect();
            let args = vec![packed(&(exact(epoch), rows))];
            let said = self.call_as(Guard::Off, &self.scripts.sums, &keys, args).await?;
            let reply =
                Reply { epoch: said.epoch, now: said.now, value: matches!(said.value, Value::Int(1)) };
            if !reply.value {
                return Ok(reply);
            }
            last = reply;
        }
        Ok(last)
    }

    /// A script that says whether it did it.
    async fn step(
        &self,
        script: &crate::link::Script,
        shard: Shard,
        args: Vec<u8>,
    ) -> Result<Reply<bool>, EngineError> {
        let said = self.call_as(Guard::Off, script, &self.keys(shard), vec![args]).await?;
        Ok(Reply { epoch: said.epoch, now: said.now, value: matches!(said.value, Value::Int(1)) })
    }
}

fn nothing() -> Vec<u8> {
    let none: [u8; 0] = [];
    packed(&none)
}

/// As reservations keep it. What another gateway expired is remembered as released: nobody corrects it.
fn code(end: End) -> u8 {
    match end {
        End::Settled => 1,
        End::Released | End::Expired => 2,
        End::Corrected => 4,
        End::Rebooked => 5,
    }
}

impl Recovery for RedisEngine {
    fn expect(&self, shard: Shard, epoch: u64) {
        if let Some(epochs) = &self.epochs {
            epochs.expect(shard, exact(epoch));
        }
    }

    fn epoch(&self, shard: Shard) -> u64 {
        self.epochs.as_ref().map_or(0, |epochs| epochs.newest(shard))
    }

    fn belongs(&self, fleet: u64) -> Answer<'_, bool> {
        self.on(self.belongs_call(fleet))
    }

    fn state(&self, shard: Shard) -> Answer<'_, ShardState> {
        self.on(self.state_call(shard))
    }

    fn begin(&self, shard: Shard, epoch: u64, clear: bool, known: ShardState) -> Answer<'_, bool> {
        self.on(self.begin_call(shard, epoch, clear, known))
    }

    fn post<'a>(&'a self, shard: Shard, epoch: u64, sums: &'a [PeriodSum]) -> Answer<'a, bool> {
        self.on(self.sums_call(shard, epoch, sums))
    }

    fn open(&self, shard: Shard, epoch: u64) -> Answer<'_, bool> {
        self.on(self.step(&self.scripts.open, shard, packed(&exact(epoch))))
    }
}
