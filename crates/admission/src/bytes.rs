//! Numbers and names as bytes, for what is kept in files: little endian, of fixed width.

use tollbook_engine::{Claim, Shard};
use tollbook_ledger::{AccountId, LEGS_MAX, ReservationId, SubjectId};

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_claim(out: &mut Vec<u8>, claim: Claim) {
    out.push(claim.shard.0);
    out.extend_from_slice(&claim.id.0.to_le_bytes());
    out.extend_from_slice(&claim.attempt.to_le_bytes());
}

pub(crate) fn put_accounts(out: &mut Vec<u8>, accounts: &[AccountId]) {
    put_count(out, accounts.len());
    for account in accounts {
        put_account(out, *account);
    }
}

pub(crate) fn put_account(out: &mut Vec<u8>, account: AccountId) {
    put_u64(out, account.subject.0);
    put_u64(out, account.name);
}

/// Of a list that is bounded far below what fits.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    out.push(u8::try_from(count).unwrap_or(u8::MAX));
}

/// Text of a length of its own.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Takes what was put; `None` where it is not there.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[b]| b)
    }

    /// 0 or 1.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    pub(crate) fn claim(&mut self) -> Option<Claim> {
        let shard = Shard(self.u8()?);
        let id = ReservationId(self.take().map(u128::from_le_bytes)?);
        let attempt = self.u16()?;
        Some(Claim { shard, id, attempt })
    }

    pub(crate) fn account(&mut self) -> Option<AccountId> {
        Some(AccountId { subject: SubjectId(self.u64()?), name: self.u64()? })
    }

    pub(crate) fn accounts(&mut self) -> Option<Vec<AccountId>> {
        let count = self.count(LEGS_MAX)?;
        (0..count).map(|_| self.account()).collect()
    }

    /// The length of a list of at most `max`.
    pub(crate) fn count(&mut self, max: usize) -> Option<usize> {
        Some(usize::from(self.u8()?)).filter(|count| *count <= max)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }
}
