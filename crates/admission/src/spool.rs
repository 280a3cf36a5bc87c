//! The spool: outcomes on disk that found no room in the settle queue, or no engine.
//!
//! Invariants: a record is whole or it is cut off at reading (length, checksum); none is removed before the engine has
//! acknowledged it, and then by putting a new file in the place of the old one; replaying one twice changes nothing,
//! because claims end once. Bounded in bytes; a full spool is the caller's alarm: it closes the door and turns
//! readiness off. Without a directory there is no spool.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tollbook_engine::{ReleaseCall, SettleCall, Shard};
use tollbook_ledger::{Micros, ReleaseWhy};

use crate::bytes::{Reader, put_accounts, put_claim, put_u64};
use crate::outcome::Posting;
use crate::restoration;

/// Longest frame that is believed when reading back.
const FRAME_MAX: usize = 64 << 10;

/// An append-only file of postings.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    path: PathBuf,
    bytes: u64,
    bytes_max: u64,
    /// Whose records there are.
    shards: BTreeSet<Shard>,
}

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("the spool is full ({bytes_max} bytes)")]
    Full { bytes_max: u64 },
    #[error("the spool file cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// A posting and the engine time its call ended at.
#[derive(Debug, Clone)]
pub(crate) struct Spooled {
    pub(crate) posting: Posting,
    pub(crate) ended: Micros,
}

impl Spool {
    /// Opens `settle.spool` in `dir` and reads what an earlier run left; a torn tail is cut off.
    pub(crate) fn open(dir: &Path, bytes_max: u64) -> io::Result<(Self, Vec<Spooled>)> {
        let path = dir.join("settle.spool");
        let mut file = open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (left, good) = read_all(&bytes);
        file.set_len(good)?;
        let shards = shards_of(&left).collect();
        Ok((Self { file, path, bytes: good, bytes_max, shards }, left))
    }

    /// Appends one posting; it survives the death of this process.
    pub(crate) fn append(&mut self, spooled: &Spooled) -> Result<(), SpoolError> {
        let frame = encode(spooled);
        let after = self.bytes.saturating_add(u64::try_from(frame.len()).unwrap_or(u64::MAX));
        if after > self.bytes_max {
            return Err(SpoolError::Full { bytes_max: self.bytes_max });
        }
        if let Err(error) = self.file.write_all(&frame) {
            // A torn frame would hide every outcome behind it.
            self.file.set_len(self.bytes)?;
            return Err(error.into());
        }
        self.bytes = after;
        self.shards.insert(spooled.posting.claim().shard);
        Ok(())
    }

    /// Everything spooled so far, for another try, and how many bytes it takes; the file is kept.
    pub(crate) fn read_back(&mut self) -> io::Result<(Vec<Spooled>, u64)> {
        Ok(read_all(&self.read_from(0)?))
    }

    /// Keeps these of the first `read` bytes, the others were acknowledged, and all that was appended since.
    pub(crate) fn keep(&mut self, left: &[Spooled], read: u64) -> io::Result<()> {
        let since = self.read_from(read)?;
        let mut bytes: Vec<u8> = left.iter().flat_map(encode).collect();
        bytes.extend_from_slice(&since);
        if bytes.is_empty() {
            return self.clear();
        }
        let path = self.path.with_extension("spool.new");
        let mut file = open(&path)?;
        file.set_len(0)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&path, &self.path)?;
        self.file = file;
        self.bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.shards = shards_of(left).chain(shards_of(&read_all(&since).0)).collect();
        Ok(())
    }

    fn read_from(&mut self, at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Forgets everything; all of it was acknowledged.
    fn clear(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.bytes = 0;
        self.shards.clear();
        Ok(())
    }

    /// Whose records there are.
    pub(crate) fn shards(&self) -> &BTreeSet<Shard> {
        &self.shards
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Written at its end, wherever it was read last.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).open(path)
}

fn shards_of(spooled: &[Spooled]) -> impl Iterator<Item = Shard> {
    spooled.iter().map(|spooled| spooled.posting.claim().shard)
}

/// All whole frames of a file, and where they end.
fn read_all(bytes: &[u8]) -> (Vec<Spooled>, u64) {
    let mut out = Vec::new();
    let mut rest = bytes;
    let mut good = 0_u64;
    while let Some((spooled, used)) = decode(rest) {
        out.push(spooled);
        good = good.saturating_add(u64::try_from(used).unwrap_or(u64::MAX));
        rest = rest.get(used..).unwrap_or_default();
    }
    (out, good)
}

/// Kinds of payload; on disk, so none is used again.
const SETTLE_WITHOUT_LANDED: u8 = 1;
const SETTLE: u8 = 5;
const RESTORE: u8 = 6;

/// Frame: length u32, crc32 u32, payload; little endian.
pub(crate) fn encode(spooled: &Spooled) -> Vec<u8> {
    let mut payload = Vec::with_capacity(256);
    put_u64(&mut payload, spooled.ended);
    match &spooled.posting {
        Posting::Settle(call) => {
            payload.push(SETTLE);
            put_claim(&mut payload, call.claim);
            put_accounts(&mut payload, &call.accounts);
            for amount in &call.actual {
                put_u64(&mut payload, *amount);
            }
            payload.push(u8::from(call.learn.is_some()));
            put_u64(&mut payload, call.learn.unwrap_or(0));
            put_u64(&mut payload, call.landed);
            payload.extend_from_slice(&call.entry);
        }
        Posting::Release(call) => {
            payload.push(match (call.why, &call.entry) {
                (ReleaseWhy::NeverSent, _) => 2,
                (ReleaseWhy::Failed, None) => 3,
                (ReleaseWhy::Failed, Some(_)) => 4,
            });
            put_claim(&mut payload, call.claim);
            put_accounts(&mut payload, &call.accounts);
            payload.extend_from_slice(call.entry.as_deref().unwrap_or_default());
        }
        Posting::Restore(call) => {
            payload.push(RESTORE);
            restoration::put(&mut payload, call);
        }
    }
    let mut frame = Vec::with_capacity(payload.len() + 8);
    frame.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    frame.append(&mut payload);
    frame
}

/// One frame off the front of `bytes`, and how long it was; `None` at the end or at a torn tail.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Spooled, usize)> {
    let mut head = Reader { rest: bytes };
    let length = usize::try_from(head.u32()?).ok()?;
    let crc = head.u32()?;
    if length > FRAME_MAX {
        return None;
    }
    let payload = head.rest.get(..length)?;
    if crc32fast::hash(payload) != crc {
        return None;
    }
    let spooled = decode_payload(payload)?;
    Some((spooled, length.checked_add(8)?))
}

fn decode_payload(payload: &[u8]) -> Option<Spooled> {
    let mut reader = Reader { rest: payload };
    let ended = reader.u64()?;
    let kind = reader.u8()?;
    if kind == RESTORE {
        let posting = Posting::Restore(Box::new(restoration::take(&mut reader)?));
        return Some(Spooled { posting, ended });
    }
    let claim = reader.claim()?;
    let accounts = reader.accounts()?;
    let posting = match kind {
        SETTLE_WITHOUT_LANDED | SETTLE => {
            let actual: Option<Vec<u64>> = accounts.iter().map(|_| reader.u64()).collect();
            let learns = reader.u8()? != 0;
            let output = reader.u64()?;
            let landed = if kind == SETTLE { reader.u64()? } else { 0 };
            Posting::Settle(SettleCall {
                claim,
                accounts,
                actual: actual?,
                landed,
                learn: learns.then_some(output),
                entry: reader.rest.to_vec(),
                age: 0,
            })
        }
        2 | 3 => {
            let why = if kind == 2 { ReleaseWhy::NeverSent } else { ReleaseWhy::Failed };
            Posting::Release(ReleaseCall { claim, accounts, why, entry: None })
        }
        4 => {
            let entry = Some(reader.rest.to_vec());
            Posting::Release(ReleaseCall { claim, accounts, why: ReleaseWhy::Failed, entry })
        }
        _ => return None,
    };
    Some(Spooled { posting, ended })
}

#[cfg(test)]
mod tests {
    use tollbook_engine::{Claim, Shard};
    use tollbook_ledger::{AccountId, ReservationId, SubjectId};

    use super::*;
    use crate::restoration::tests::{call, states};

    fn restore() -> Spooled {
        Spooled { posting: Posting::Restore(Box::new(call(states().remove(0)))), ended: 17 }
    }

    /// The longest there can be is believed when it is read back.
    #[test]
    fn a_restore_of_the_longest_reservation_fits_a_frame() {
        let Posting::Restore(mut longest) = restore().posting else { panic!("it is one") };
        let most = longest.asked.reserve.legs[6].limits[0];
        for leg in &mut longest.asked.reserve.legs {
            leg.limits = vec![most; tollbook_ledger::units::LIMITS_PER_LEG_MAX];
        }
        if let tollbook_engine::RestoredState::Ended { entry, .. } = &mut longest.state {
            *entry = Some(vec![1; tollbook_engine::ENTRY_MAX]);
        }
        let frame = encode(&Spooled { posting: Posting::Restore(longest), ended: 1 });
        assert!(frame.len() <= FRAME_MAX && read_all(&frame).0.len() == 1, "{}", frame.len());
    }

    fn settle(n: u64) -> Spooled {
        let account = AccountId { subject: SubjectId(n), name: n + 1 };
        let claim = Claim { shard: Shard(7), id: ReservationId(u128::from(n) << 64), attempt: 3 };
        let call = SettleCall {
            claim,
            accounts: vec![account; 2],
            actual: vec![n, 5],
            landed: n,
            learn: Some(9),
            entry: vec![1, 2],
            age: 0,
        };
        Spooled { posting: Posting::Settle(call), ended: 11 }
    }

    fn release(why: ReleaseWhy, entry: Option<Vec<u8>>) -> Spooled {
        let claim = Claim { shard: Shard(1), id: ReservationId(2), attempt: 0 };
        Spooled {
            posting: Posting::Release(ReleaseCall { claim, accounts: Vec::new(), why, entry }),
            ended: 1,
        }
    }

    #[test]
    fn what_was_spooled_is_read_back_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let written = [
            settle(1),
            release(ReleaseWhy::NeverSent, None),
            restore(),
            release(ReleaseWhy::Failed, Some(vec![8])),
        ];
        let (mut spool, left) = Spool::open(dir.path(), 1 << 20).unwrap();
        assert!(left.is_empty());
        for spooled in &written {
            spool.append(spooled).unwrap();
        }
        drop(spool);
        let (mut spool, left) = Spool::open(dir.path(), 1 << 20).unwrap();
        assert_eq!(format!("{left:?}"), format!("{written:?}"));
        spool.keep(&[], spool.bytes()).unwrap();
        assert!(spool.is_empty() && spool.shards().is_empty());
        assert!(Spool::open(dir.path(), 1 << 20).unwrap().1.is_empty());
    }

    #[test]
    fn what_was_acknowledged_goes_and_what_came_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (mut spool, _) = Spool::open(dir.path(), 1 << 20).unwrap();
        for n in 1..=3 {
            spool.append(&settle(n)).unwrap();
        }
        let (mut all, read) = spool.read_back().unwrap();
        let other = release(ReleaseWhy::NeverSent, None);
        spool.append(&other).unwrap();
        let left = vec![all.remove(1)];
        spool.keep(&left, read).unwrap();
        assert_eq!(spool.shards(), &[Shard(1), Shard(7)].into());
        spool.append(&settle(9)).unwrap();
        let expected = format!("{:?}", [settle(2), other, settle(9)]);
        assert_eq!(format!("{:?}", spool.read_back().unwrap().0), expected);
        let bytes = spool.bytes();
        let (spool, left) = Spool::open(dir.path(), 1 << 20).unwrap();
        assert_eq!((format!("{left:?}"), spool.bytes()), (expected, bytes));
    }

    #[test]
    fn a_torn_tail_is_cut_at_every_byte() {
        let whole = [encode(&settle(1)), encode(&settle(2))].concat();
        let first = encode(&settle(1)).len();
        for cut in 0..whole.len() {
            let (left, good) = read_all(&whole[..cut]);
            let expected = usize::from(cut >= first);
            assert_eq!(left.len(), expected, "cut at {cut}");
            assert_eq!(good, u64::try_from(expected * first).unwrap());
        }
    }

    #[test]
    fn the_spool_is_full_at_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let size = u64::try_from(encode(&settle(1)).len()).unwrap();
        let (mut spool, _) = Spool::open(dir.path(), 2 * size).unwrap();
        spool.append(&settle(1)).unwrap();
        spool.append(&settle(2)).unwrap();
        assert!(matches!(spool.append(&settle(3)), Err(SpoolError::Full { .. })));
        assert_eq!(spool.read_back().unwrap().0.len(), 2);
    }
}
