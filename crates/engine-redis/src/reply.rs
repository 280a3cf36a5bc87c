//! Answers of the scripts, read without trust: what is not as expected is damage, never a panic or a guess.

use redis::Value;
use tollbook_engine::ledger::codes::{ENDS, value_of};
use tollbook_engine::ledger::{
    AMOUNT_MAX, AccountId, Binding, Denial, DenyKind, End, LegReceipt, LimitId, Met, Micros, Posted, Settled,
    Wait,
};
use tollbook_engine::{DueHold, EngineError, ErrorKind, Shard};

use crate::journal::Head;
use crate::keys;
use crate::number::wholes;

/// What was not as expected.
#[derive(Debug)]
pub(crate) struct Odd(pub(crate) &'static str);

impl From<Odd> for EngineError {
    /// The script ran to its end, so the verb may be in the book.
    fn from(Odd(what): Odd) -> Self {
        Self::unknown(ErrorKind::Damaged(format!("the answer's {what} cannot be read")))
    }
}

pub(crate) fn array(value: Value) -> Result<Vec<Value>, Odd> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Nil => Ok(Vec::new()),
        _ => Err(Odd("array")),
    }
}

/// Takes the items of an array one by one; a missing one is nil.
pub(crate) struct Items(std::vec::IntoIter<Value>);

impl Items {
    pub(crate) fn of(value: Value) -> Result<Self, Odd> {
        array(value).map(|items| Self(items.into_iter()))
    }

    pub(crate) fn value(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Nil)
    }

    pub(crate) fn items(&mut self) -> Result<Self, Odd> {
        Self::of(self.value())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Odd> {
        match self.value() {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.into_bytes()),
            _ => Err(Odd("text")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Odd> {
        String::from_utf8(self.bytes()?).map_err(|_| Odd("text"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Odd> {
        match self.value() {
            Value::Int(number) => Ok(number),
            _ => Err(Odd("number")),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, Odd> {
        u64::try_from(self.signed()?).map_err(|_| Odd("number"))
    }

    pub(crate) fn index(&mut self) -> Result<usize, Odd> {
        usize::try_from(self.number()?).map_err(|_| Odd("index"))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Odd> {
        Ok(self.number()? != 0)
    }

    /// A span of time; the largest number stands for one that never ends.
    pub(crate) fn span(&mut self) -> Result<Micros, Odd> {
        let span = self.number()?;
        Ok(if span >= AMOUNT_MAX { Micros::MAX } else { span })
    }

    pub(crate) fn numbers(&mut self) -> Result<Vec<u64>, Odd> {
        let mut items = self.items()?;
        let mut all = Vec::new();
        while !items.is_empty() {
            all.push(items.number()?);
        }
        Ok(all)
    }

    pub(crate) fn each<T>(&mut self, read: impl FnMut(&mut Self) -> Result<T, Odd>) -> Result<Vec<T>, Odd> {
        self.items()?.all(read)
    }

    /// Whatever is left.
    pub(crate) fn all<T>(mut self, mut read: impl FnMut(&mut Self) -> Result<T, Odd>) -> Result<Vec<T>, Odd> {
        let mut all = Vec::new();
        while !self.is_empty() {
            all.push(read(&mut self)?);
        }
        Ok(all)
    }
}

pub(crate) fn end(code: u64) -> Result<End, Odd> {
    u8::try_from(code).ok().and_then(|code| value_of(&ENDS, code)).ok_or(Odd("end"))
}

pub(crate) fn account(items: &mut Items) -> Result<AccountId, Odd> {
    keys::account_of(&items.bytes()?).ok_or(Odd("account"))
}

pub(crate) fn posted(items: &mut Items) -> Result<Posted, Odd> {
    let mut items = items.items()?;
    Ok(Posted { account: account(&mut items)?, period: items.number()?, amount: items.signed()? })
}

/// In the order of `claimed` in `book.lua`.
pub(crate) fn settled(mut items: Items) -> Result<Settled, Odd> {
    let before = match items.number()? {
        0 => Met::Unknown,
        1 => Met::Held,
        2 => Met::Late,
        other => Met::Ended(end(other.saturating_sub(10))?),
    };
    let (overrun, posted) = (items.numbers()?, items.each(posted)?);
    Ok(Settled { before, overrun, posted, admitted: items.number()? })
}

/// Of the quick way: what it wrote to the journal, and the overruns of so many legs if there are any.
pub(crate) fn settled_quickly(entry: &[u8], overrun: &[u8], legs: usize) -> Result<Settled, Odd> {
    let head = Head::of(entry)?;
    let overrun = if overrun.is_empty() { vec![0; legs] } else { wholes(overrun).ok_or(Odd("overrun"))? };
    let overrun: Result<Vec<u64>, _> = overrun.into_iter().map(u64::try_from).collect();
    let overrun = overrun.map_err(|_| Odd("overrun"))?;
    Ok(Settled { before: Met::Held, overrun, posted: head.posted, admitted: head.admitted })
}

/// In the order of `receipt` in `plan.lua`.
pub(crate) fn leg_receipt(items: &mut Items, account: AccountId) -> Result<LegReceipt, Odd> {
    let mut items = items.items()?;
    Ok(LegReceipt {
        account,
        place: items.number()?,
        expected: items.number()?,
        held: items.number()?,
        output: items.number()?,
        ceiling: items.number()?,
        posted: items.signed()?,
        held_total: items.signed()?,
        reset: items.span()?,
        shadow_denied: items.flag()?,
    })
}

/// In the order of `denial_of` in `plan.lua`.
pub(crate) fn denial(items: &mut Items, shard: Shard) -> Result<(Denial, Vec<DueHold>), Odd> {
    let limit = LimitId(u32::try_from(items.number()?).map_err(|_| Odd("limit"))?);
    let (leg, hard, why) = (items.index()?, items.flag()?, items.number()?);
    let wait = Wait { after: items.span()?, firm: items.flag()? };
    let kind = match why {
        0 => DenyKind::TooLarge,
        1 => DenyKind::Exhausted,
        2 => DenyKind::Spent(wait),
        3 => DenyKind::Busy(wait),
        _ => return Err(Odd("reason")),
    };
    let binding = Binding {
        limit,
        leg,
        hard,
        kind,
        ceiling: items.number()?,
        posted: items.signed()?,
        held: items.signed()?,
        demand: items.number()?,
        reset: items.span()?,
    };
    let (firm, room) = (items.flag()?, items.numbers()?);
    let due: Vec<DueHold> = items.each(|items| due(&items.bytes()?, shard))?;
    let named =
        due.iter().map(|due| tollbook_engine::ledger::Due { id: due.claim.id, attempt: due.claim.attempt });
    Ok((Denial { binding, firm, room, due: named.collect() }, due))
}

/// A member of the due set.
pub(crate) fn due(member: &[u8], shard: Shard) -> Result<DueHold, Odd> {
    keys::due(member, shard).ok_or(Odd("due member"))
}
