//! Names of keys and of the book's fields. Only ids and digests appear in them; user text never does.
//!
//! Invariant: all keys of one verb share the hash tag of its shard, and every key a script touches is declared: the book,
//! the due set, what the verb itself names, and last the journal where it writes one.

use tollbook_engine::Shard;
use tollbook_engine::ledger::{AccountId, Attempt, EstimatorId, ReservationId, SubjectId};
use tollbook_engine::{Claim, DueHold};

/// The keys of one verb.
#[derive(Debug)]
pub(crate) struct Keys {
    shard: Shard,
    tag: String,
    all: Vec<Vec<u8>>,
}

impl Keys {
    pub(crate) fn of(prefix: &str, shard: Shard) -> Self {
        let tag = format!("{prefix}:{{{}}}:", shard.0);
        let all = ["b", "due"].map(|name| format!("{tag}{name}").into_bytes()).to_vec();
        Self { shard, tag, all }
    }

    pub(crate) fn shard(&self) -> Shard {
        self.shard
    }

    fn with(mut self, name: std::fmt::Arguments<'_>) -> Self {
        self.all.push(format!("{}{name}", self.tag).into_bytes());
        self
    }

    pub(crate) fn reservation(self, id: ReservationId, attempt: Attempt) -> Self {
        self.with(format_args!("r:{:032x}:{attempt}", id.0))
    }

    pub(crate) fn adjust(self, id: u128) -> Self {
        self.with(format_args!("x:{id:032x}"))
    }

    /// The last one.
    pub(crate) fn journal(self) -> Self {
        self.with(format_args!("j"))
    }

    pub(crate) fn list(&self) -> &[Vec<u8>] {
        &self.all
    }

    /// One of the shard's own keys: `b`, `due`, `j`.
    pub(crate) fn own(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.tag).into_bytes()
    }
}

/// Bytes of an account's field.
pub(crate) const ACCOUNT_BYTES: usize = 16;
/// Bytes of an id and its attempt.
pub(crate) const CLAIM_BYTES: usize = 18;

/// An account's field: subject, name.
pub(crate) fn account(account: &AccountId) -> [u8; ACCOUNT_BYTES] {
    (u128::from(account.subject.0) << u64::BITS | u128::from(account.name)).to_be_bytes()
}

pub(crate) fn account_of(field: &[u8]) -> Option<AccountId> {
    let field = u128::from_be_bytes(field.try_into().ok()?);
    let (subject, name) =
        (u64::try_from(field >> u64::BITS).ok()?, u64::try_from(field & u128::from(u64::MAX)).ok()?);
    Some(AccountId { subject: SubjectId(subject), name })
}

/// An account's field, or one of what belongs to it.
pub(crate) fn is_of_account(field: &[u8]) -> bool {
    field.len() == ACCOUNT_BYTES || field.len() == ACCOUNT_BYTES + 1
}

/// What an estimator's field begins with.
pub(crate) const ESTIMATOR: u8 = b'e';

pub(crate) fn estimator(id: EstimatorId) -> [u8; 8] {
    id.0.to_be_bytes()
}

pub(crate) fn estimator_id(bytes: &[u8]) -> Option<EstimatorId> {
    Some(EstimatorId(u64::from_be_bytes(bytes.try_into().ok()?)))
}

/// An estimator's field.
pub(crate) fn estimator_of(field: &[u8]) -> Option<EstimatorId> {
    estimator_id(field.strip_prefix(&[ESTIMATOR])?)
}

/// An id and its attempt.
pub(crate) fn claim(id: u128, attempt: Attempt) -> Vec<u8> {
    let mut claim = id.to_be_bytes().to_vec();
    claim.extend(attempt.to_le_bytes());
    claim
}

pub(crate) fn claim_of(bytes: &[u8]) -> Option<(ReservationId, Attempt)> {
    let (id, attempt) = bytes.split_at_checked(ACCOUNT_BYTES)?;
    let (id, attempt) = (id.try_into().ok()?, attempt.try_into().ok()?);
    Some((ReservationId(u128::from_be_bytes(id)), Attempt::from_le_bytes(attempt)))
}

/// A member of the due set: the claim, and the subjects of its accounts, each once.
pub(crate) fn member<'a>(
    id: ReservationId,
    attempt: Attempt,
    accounts: impl IntoIterator<Item = &'a AccountId>,
) -> Vec<u8> {
    let mut member = claim(id.0, attempt);
    let mut known: Vec<SubjectId> = Vec::new();
    for account in accounts {
        if !known.contains(&account.subject) {
            known.push(account.subject);
            member.extend(account.subject.0.to_be_bytes());
        }
    }
    member
}

pub(crate) fn due(member: &[u8], shard: Shard) -> Option<DueHold> {
    let (claim, subjects) = member.split_at_checked(CLAIM_BYTES)?;
    let (id, attempt) = claim_of(claim)?;
    let (subjects, rest) = subjects.as_chunks::<8>();
    let subjects = subjects.iter().map(|subject| SubjectId(u64::from_be_bytes(*subject))).collect();
    rest.is_empty().then_some(DueHold { claim: Claim { shard, id, attempt }, subjects })
}

#[cfg(test)]
mod tests {
    use tollbook_engine::Shard;
    use tollbook_engine::ledger::{AccountId, ReservationId, SubjectId};

    use super::{account, account_of, due, member};

    #[test]
    fn names_are_read_as_they_were_written() {
        let accounts = [(1, 2), (u64::MAX, 7), (1, 3)]
            .map(|(subject, name)| AccountId { subject: SubjectId(subject), name });
        for one in accounts {
            assert_eq!(account_of(&account(&one)), Some(one));
        }
        let written = member(ReservationId(9), 258, &accounts);
        let read = due(&written, Shard(3)).unwrap();
        assert_eq!((read.claim.id, read.claim.attempt), (ReservationId(9), 258));
        assert_eq!(read.subjects, [SubjectId(1), SubjectId(u64::MAX)]);
        assert!(due(&written[..20], Shard(3)).is_none());
    }
}
