//! The drift check: which accounts are not the sums of their live holds (L10), and the repair of one.
//!
//! What is live is found by the due set, in pages and outside of a script; a script then compares at one moment. Every account
//! knows how many reservations hold something of it, so the script sees which of its accounts it was told too little of:
//! those are looked at again, and told as not confirmed in the end. No script is told of more than so many reservations:
//! others wait for the server meanwhile. A subject with more of them is looked at in steps (`wide`).

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;
use tollbook_engine::ledger::{AccountId, Attempt, ReservationId, SubjectId};
use tollbook_engine::{Drift, EngineError, Repair, Reply, Shard};

use crate::engine::RedisEngine;
use crate::keys::{self, ACCOUNT_BYTES};
use crate::pack::{self, packed};
use crate::reply::{self, Items, Odd};
use crate::wide::WIDE_MAX;

/// Reservations that one script is told of.
pub(crate) const DECLARED_MAX: usize = 512;
/// How often accounts are looked at that calls came to in between.
const CHECKS_MAX: usize = 5;
/// Members of the due set read at once.
const PAGE: usize = 512;
/// Most pages of one walk over it: more than a shard has calls for.
const PAGES_MAX: usize = 100_000;

/// Account, period, held, sum, version.
type Difference = (AccountId, u64, i64, i64, u64);

/// Accounts of some subjects, and the reservations that are live of those.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) accounts: Vec<AccountId>,
    /// At most so many as are looked at.
    pub(crate) live: BTreeSet<(ReservationId, Attempt)>,
}

impl Part {
    fn add(&mut self, id: ReservationId, attempt: Attempt) {
        if self.live.len() < WIDE_MAX {
            self.live.insert((id, attempt));
        }
    }

    /// More than one script is told of.
    fn is_wide(&self) -> bool {
        self.live.len() > DECLARED_MAX
    }

    /// Both in one script, if they fit into it.
    fn takes(&self, other: &Self) -> bool {
        self.live.len() + other.live.len() <= DECLARED_MAX
    }
}

/// What a check says of some accounts.
#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) differences: Vec<Difference>,
    /// Those of which too much is live, or changes too fast.
    pub(crate) unconfirmed: u64,
}

impl RedisEngine {
    /// One step of the check: the accounts among so many fields of the book, where the last step ended.
    pub(crate) async fn drift_call(
        &self,
        shard: Shard,
        cursor: u64,
        most: usize,
    ) -> Result<Reply<Drift>, EngineError> {
        let (from, most) = (cursor.to_string(), most.to_string());
        let (book, args) = (self.keys(shard).own("b"), [from.as_bytes(), b"COUNT", most.as_bytes()]);
        let mut scanned = Items::of(self.command("HSCAN", &book, &args).await?)?;
        let next: u64 = scanned.text()?.parse().map_err(|_| Odd("cursor"))?;
        let mut fields = scanned.items()?;
        let mut accounts = Vec::new();
        while !fields.is_empty() {
            let (field, _) = (fields.bytes()?, fields.bytes()?);
            accounts.extend(keys::account_of(&field).filter(|_| field.len() == ACCOUNT_BYTES));
        }
        let next = (next != 0).then_some(next);
        let Checked { differences, unconfirmed } = self.check(shard, accounts).await?;
        self.stamped(shard, Drift { differences, unconfirmed, next }).await
    }

    /// Which of some accounts are not the sums of their live holds.
    async fn check(&self, shard: Shard, mut accounts: Vec<AccountId>) -> Result<Checked, EngineError> {
        let mut checked = Checked::default();
        for _ in 0..CHECKS_MAX {
            if accounts.is_empty() {
                break;
            }
            let mut again = Vec::new();
            for part in self.parts(shard, &accounts).await? {
                if part.is_wide() {
                    let wide = self.check_wide(shard, part).await?;
                    checked.differences.extend(wide.differences);
                    checked.unconfirmed += wide.unconfirmed;
                } else {
                    again.extend(self.compare(shard, &part, &mut checked.differences).await?);
                }
            }
            accounts = again;
        }
        checked.unconfirmed += accounts.len() as u64;
        Ok(checked)
    }

    /// Some accounts with what is live of their subjects, as they go into one script each.
    async fn parts(&self, shard: Shard, accounts: &[AccountId]) -> Result<Vec<Part>, EngineError> {
        let mut parts: BTreeMap<SubjectId, Part> = BTreeMap::new();
        for account in accounts {
            parts.entry(account.subject).or_default().accounts.push(*account);
        }
        self.each_due(shard, |subject, (id, attempt)| {
            if let Some(part) = parts.get_mut(&subject) {
                part.add(id, attempt);
            }
        })
        .await?;
        let mut together: Vec<Part> = Vec::new();
        for part in parts.into_values() {
            match together.last_mut().filter(|last| last.takes(&part)) {
                Some(last) => {
                    last.accounts.extend(part.accounts);
                    last.live.extend(part.live);
                }
                None => together.push(part),
            }
        }
        Ok(together)
    }

    /// What is live of some subjects, at most so many as are looked at.
    pub(crate) async fn live_of(
        &self,
        shard: Shard,
        subjects: &BTreeSet<SubjectId>,
    ) -> Result<BTreeSet<(ReservationId, Attempt)>, EngineError> {
        let mut live = BTreeSet::new();
        self.each_due(shard, |subject, place| {
            if subjects.contains(&subject) && live.len() < WIDE_MAX {
                live.insert(place);
            }
        })
        .await?;
        Ok(live)
    }

    /// Walks over the due set, in pages: the subjects of each reservation.
    async fn each_due(
        &self,
        shard: Shard,
        mut each: impl FnMut(SubjectId, (ReservationId, Attempt)),
    ) -> Result<(), EngineError> {
        let due = self.keys(shard).own("due");
        for page in 0..PAGES_MAX {
            let (from, to) = (page * PAGE, (page + 1) * PAGE - 1);
            let (from, to) = (from.to_string(), to.to_string());
            let members = self.command("ZRANGE", &due, &[from.as_bytes(), to.as_bytes()]).await?;
            let members = Items::of(members)?.all(|items| reply::due(&items.bytes()?, shard))?;
            for member in &members {
                for subject in &member.subjects {
                    each(*subject, (member.claim.id, member.claim.attempt));
                }
            }
            if members.len() < PAGE {
                break;
            }
        }
        Ok(())
    }

    /// Those of a part that have to be looked at again.
    async fn compare(
        &self,
        shard: Shard,
        part: &Part,
        into: &mut Vec<Difference>,
    ) -> Result<Vec<AccountId>, EngineError> {
        let names: Vec<_> = part.accounts.iter().map(pack::account).collect();
        let keys =
            (part.live.iter()).fold(self.keys(shard), |keys, (id, attempt)| keys.reservation(*id, *attempt));
        let said = self.call(&self.scripts.check, &keys, vec![packed(&names)]).await?;
        let mut items = Items::of(said.value)?;
        into.extend(items.each(difference)?);
        Ok(items.each(reply::account)?)
    }

    pub(crate) async fn repair_call(&self, call: &Repair) -> Result<Reply<bool>, EngineError> {
        let drift = self.check(call.shard, vec![call.account]).await?.differences;
        let wanted = (call.account, call.period, call.version);
        let seen = drift
            .into_iter()
            .find(|(account, period, _, _, version)| (*account, *period, *version) == wanted);
        let Some((.., sum, version)) = seen else { return self.stamped(call.shard, false).await };
        let args = packed(&(pack::account(&call.account), call.period, version, sum));
        let said = self.call(&self.scripts.repair, &self.keys(call.shard), vec![args]).await?;
        Ok(Reply { epoch: said.epoch, now: said.now, value: matches!(said.value, Value::Int(1)) })
    }
}

fn difference(items: &mut Items) -> Result<Difference, Odd> {
    let mut items = items.items()?;
    let account = reply::account(&mut items)?;
    Ok((account, items.number()?, items.signed()?, items.signed()?, items.number()?))
}
