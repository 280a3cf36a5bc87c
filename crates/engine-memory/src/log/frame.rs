//! One record on disk: length, checksum, kind, payload.
//!
//! The checksum covers length, kind and payload. A length of zero ends a segment; everything behind it is zero.

/// Length u32, crc32 u32, kind u8.
pub(crate) const FRAME_HEAD: usize = 9;
/// Longest payload; a segment holds at least four of them.
pub(crate) const PAYLOAD_MAX: usize = 64 * 1024;

/// What a frame carries. The number is on disk: never reuse one, a changed payload gets a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// First frame of a segment in use: number of the record that follows.
    Open,
    /// An event of the book.
    Event,
    /// An event of the book and the journal record that belongs to it.
    EventAndEntry,
    /// A journal record without an event.
    Entry,
    /// The journal's store has everything up to a cursor.
    Trim,
    /// First frame of a snapshot.
    SnapshotHead,
    /// A piece of the book's state.
    SnapshotState,
    /// A journal record that waits for the store.
    SnapshotEntry,
    /// Last frame of a snapshot: number of frames before it.
    SnapshotEnd,
}

impl Kind {
    const ALL: [(Kind, u8); 9] = [
        (Kind::Open, 1),
        (Kind::Event, 2),
        (Kind::EventAndEntry, 3),
        (Kind::Entry, 4),
        (Kind::Trim, 5),
        (Kind::SnapshotHead, 32),
        (Kind::SnapshotState, 33),
        (Kind::SnapshotEntry, 34),
        (Kind::SnapshotEnd, 35),
    ];

    fn byte(self) -> u8 {
        match self {
            Kind::Open => 1,
            Kind::Event => 2,
            Kind::EventAndEntry => 3,
            Kind::Entry => 4,
            Kind::Trim => 5,
            Kind::SnapshotHead => 32,
            Kind::SnapshotState => 33,
            Kind::SnapshotEntry => 34,
            Kind::SnapshotEnd => 35,
        }
    }

    fn from_byte(byte: u8) -> Option<Kind> {
        Self::ALL.iter().find(|(_, known)| *known == byte).map(|(kind, _)| *kind)
    }
}

/// Builds one frame in a buffer that is kept between records.
#[derive(Default, Debug)]
pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
}

impl FrameBuffer {
    /// Starts a frame and hands out where its payload goes.
    pub(crate) fn start(&mut self, kind: Kind) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; FRAME_HEAD - 1]);
        self.bytes.push(kind.byte());
        &mut self.bytes
    }

    /// Where the payload of the started frame goes on.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn set_kind(&mut self, kind: Kind) {
        if let Some(byte) = self.bytes.get_mut(FRAME_HEAD - 1) {
            *byte = kind.byte();
        }
    }

    /// Bytes of the frame so far, its head included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes length and checksum; the frame is then ready to be copied.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let payload = u32::try_from(self.bytes.len().saturating_sub(FRAME_HEAD)).unwrap_or(u32::MAX);
        // An empty payload would read as the end of the segment.
        let len = payload.saturating_add(1).to_le_bytes();
        let crc = checksum(&len, self.bytes.get(FRAME_HEAD - 1..).unwrap_or_default()).to_le_bytes();
        for (byte, value) in self.bytes.iter_mut().zip(len.into_iter().chain(crc)) {
            *byte = value;
        }
        &self.bytes
    }
}

fn checksum(len: &[u8], kind_and_payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(len);
    hasher.update(kind_and_payload);
    hasher.finalize()
}

/// What stands at a place in a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Frame {
        kind: Kind,
        payload: &'a [u8],
        /// Where the next frame starts.
        next: usize,
    },
    /// Nothing more was written.
    End,
    /// Bytes that are no whole record.
    Bad,
}

/// Reads the frame at `at`.
pub(crate) fn step(bytes: &[u8], at: usize) -> Step<'_> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some((head, body)) = rest.split_at_checked(FRAME_HEAD - 1) else {
        return end_or_bad(rest);
    };
    let (Some(len), Some(crc)) = (u32_at(head, 0), u32_at(head, 4)) else {
        return Step::Bad;
    };
    if len == 0 {
        return end_or_bad(rest);
    }
    let Some(body) = usize::try_from(len).ok().and_then(|len| body.get(..len)) else {
        return Step::Bad;
    };
    if checksum(&len.to_le_bytes(), body) != crc {
        return Step::Bad;
    }
    match body.split_first() {
        Some((kind, payload)) => match Kind::from_byte(*kind) {
            Some(kind) => Step::Frame { kind, payload, next: at + FRAME_HEAD - 1 + body.len() },
            None => Step::Bad,
        },
        None => Step::Bad,
    }
}

/// A copy that was cut short may have written its end before its length, so look a record's length ahead.
fn end_or_bad(rest: &[u8]) -> Step<'static> {
    let ahead = rest.len().min(PAYLOAD_MAX + FRAME_HEAD);
    if rest.iter().take(ahead).all(|byte| *byte == 0) { Step::End } else { Step::Bad }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let raw = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(raw.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
        let mut buffer = FrameBuffer::default();
        buffer.start(kind).extend_from_slice(payload);
        buffer.finish().to_vec()
    }

    #[test]
    fn every_kind_has_its_own_byte() {
        for (kind, byte) in Kind::ALL {
            assert_eq!(kind.byte(), byte);
            assert_eq!(Kind::from_byte(byte), Some(kind));
        }
        assert_eq!(Kind::from_byte(0), None);
    }

    #[test]
    fn frames_follow_each_other_up_to_the_zeros() {
        let mut bytes = frame(Kind::Event, b"one");
        bytes.extend(frame(Kind::Trim, b""));
        bytes.extend([0; 40]);
        let Step::Frame { kind: Kind::Event, payload: b"one", next } = step(&bytes, 0) else { panic!() };
        let Step::Frame { kind: Kind::Trim, payload: b"", next } = step(&bytes, next) else { panic!() };
        assert_eq!(step(&bytes, next), Step::End);
        assert_eq!(step(&bytes, bytes.len()), Step::End);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_bad() {
        let good = frame(Kind::Event, b"payload");
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(step(&bytes, 0), Step::Bad, "bit {bit}");
        }
        for len in 1..good.len() {
            let mut bytes = good[..len].to_vec();
            assert_eq!(step(&bytes, 0), Step::Bad, "cut at {len}");
            bytes.resize(good.len() + 100, 0);
            assert_eq!(step(&bytes, 0), Step::Bad, "cut at {len}, zeros behind");
        }
        let mut headless = good;
        headless[..FRAME_HEAD].fill(0);
        assert_eq!(step(&headless, 0), Step::Bad);
    }
}
