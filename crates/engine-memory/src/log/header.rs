//! The first 64 bytes of every file of the log.

use super::frame::u32_at;

/// Bytes before the first frame.
pub(crate) const HEADER: usize = 64;
/// Where the mark stands; eight bytes, aligned, so one store writes them.
pub(crate) const MARK_AT: usize = 32;
const MAGIC: [u8; 8] = *b"TOLLBOOK";
/// Changes when files of an older version can no longer be read frame by frame.
pub(crate) const LAYOUT: u16 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    Log,
    Snapshot,
}

/// Which file this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: FileKind,
    pub(crate) shard: u8,
    pub(crate) shards: u16,
    /// Log: its place among the shard's segments. Snapshot: the first segment it does not contain.
    pub(crate) seq: u64,
}

/// Why a header cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadHeader {
    /// All zero, or cut off: the power went before it reached the disk.
    Unwritten,
    /// Written by a version this one does not know.
    Layout(u16),
    Damaged,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let kind: u32 = match self.kind {
            FileKind::Log => 1,
            FileKind::Snapshot => 2,
        };
        let mut fields = Vec::with_capacity(HEADER);
        fields.extend_from_slice(&MAGIC);
        fields.extend_from_slice(&LAYOUT.to_le_bytes());
        fields.extend_from_slice(&[self.shard, 0]);
        fields.extend_from_slice(&self.shards.to_le_bytes());
        fields.extend_from_slice(&[0, 0]);
        fields.extend_from_slice(&self.seq.to_le_bytes());
        fields.extend_from_slice(&kind.to_le_bytes());
        fields.extend_from_slice(&crc32fast::hash(&fields).to_le_bytes());
        fields.extend_from_slice(&Mark::at(HEADER).encode());
        let mut out = [0; HEADER];
        for (byte, value) in out.iter_mut().zip(fields) {
            *byte = value;
        }
        out
    }

    /// The header, and how far the file is known to be on the disk.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, usize), BadHeader> {
        let Some(head) = bytes.get(..HEADER) else { return Err(BadHeader::Unwritten) };
        if head.iter().all(|byte| *byte == 0) {
            return Err(BadHeader::Unwritten);
        }
        let fields = Self::fields(head).ok_or(BadHeader::Damaged)?;
        let (layout, header, mark) = fields;
        if layout != LAYOUT {
            return Err(BadHeader::Layout(layout));
        }
        Ok((header.ok_or(BadHeader::Damaged)?, mark.ok_or(BadHeader::Damaged)?))
    }

    fn fields(head: &[u8]) -> Option<(u16, Option<Self>, Option<usize>)> {
        if head.get(..8)? != MAGIC || crc32fast::hash(head.get(..28)?) != u32_at(head, 28)? {
            return None;
        }
        let layout = u16::from_le_bytes(head.get(8..10)?.try_into().ok()?);
        let shard = *head.get(10)?;
        let shards = u16::from_le_bytes(head.get(12..14)?.try_into().ok()?);
        let seq = u64::from_le_bytes(head.get(16..24)?.try_into().ok()?);
        let kind = match u32_at(head, 24)? {
            1 => Some(FileKind::Log),
            2 => Some(FileKind::Snapshot),
            _ => None,
        };
        let header = kind.map(|kind| Self { kind, shard, shards, seq });
        Some((layout, header, Mark::decode(head.get(MARK_AT..MARK_AT + 8)?)))
    }
}

/// How far a segment is known to be on the disk, written twice so that a damaged one is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(u32);

impl Mark {
    pub(crate) fn at(len: usize) -> Self {
        Self(u32::try_from(len).unwrap_or(u32::MAX))
    }

    pub(crate) fn encode(self) -> [u8; 8] {
        (u64::from(self.0) | u64::from(!self.0) << 32).to_le_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<usize> {
        let (len, check) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?);
        if len == !check { usize::try_from(len).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_who_it_is_and_any_flipped_bit_is_seen() {
        let header = Header { kind: FileKind::Snapshot, shard: 200, shards: 256, seq: u64::MAX };
        let good = header.encode();
        assert_eq!(Header::decode(&good), Ok((header, HEADER)));
        for bit in 0..40 * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes), Err(BadHeader::Damaged), "bit {bit}");
        }
        assert_eq!(Header::decode(&good[..63]), Err(BadHeader::Unwritten));
        assert_eq!(Header::decode(&[0; 100]), Err(BadHeader::Unwritten));
    }

    #[test]
    fn a_newer_layout_is_named() {
        let mut bytes = Header { kind: FileKind::Log, shard: 0, shards: 1, seq: 1 }.encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(BadHeader::Layout(2)));
    }
}
