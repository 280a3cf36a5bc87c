//! Integers and byte strings as the log spells them.
//!
//! Little-endian varints (7 bits per byte, low first), signed ones zigzag; byte strings carry their length. Reading is
//! total: a short, overlong or oversized input is an error with its place, never a panic.

/// Appends values to a buffer.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    #[inline]
    pub(crate) fn u64(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(low_byte(value) | 0x80);
            value >>= 7;
        }
        self.out.push(low_byte(value));
    }

    #[inline]
    pub(crate) fn i64(&mut self, value: i64) {
        self.u64(zigzag(value));
    }

    /// As many signed values one after the other; written in pieces, as long runs of them are.
    pub(crate) fn i64s(&mut self, values: &[i64]) {
        for some in values.chunks(16) {
            let mut bytes = [0; 16 * VARINT_MAX];
            let mut places = bytes.iter_mut();
            let mut len = 0;
            for value in some {
                let mut value = zigzag(*value);
                loop {
                    let more = if value >= 0x80 { 0x80 } else { 0 };
                    // There is a place for every byte of sixteen values.
                    let Some(place) = places.next() else { break };
                    *place = low_byte(value) & 0x7f | more;
                    len += 1;
                    value >>= 7;
                    if more == 0 {
                        break;
                    }
                }
            }
            self.out.extend_from_slice(bytes.get(..len).unwrap_or_default());
        }
    }

    /// Eight bytes; for digests, which a varint would lengthen.
    #[inline]
    pub(crate) fn fixed64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    pub(crate) fn fixed128(&mut self, value: u128) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.u64(value.len() as u64);
        self.out.extend_from_slice(value);
    }

    #[inline]
    pub(crate) fn count(&mut self, value: usize) {
        self.u64(value as u64);
    }
}

/// Bytes of the longest varint.
const VARINT_MAX: usize = 10;

#[inline]
fn zigzag(value: i64) -> u64 {
    value.cast_unsigned() << 1 ^ (value >> 63).cast_unsigned()
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// A payload that passed its checksum and still makes no sense: written by a newer version, or by a fault of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unreadable {what}")]
pub(crate) struct Malformed {
    pub(crate) what: &'static str,
}

pub(crate) type Read<T> = Result<T, Malformed>;

/// Takes values from the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    #[inline]
    fn take(&mut self, len: usize, what: &'static str) -> Read<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Malformed { what })?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn u8(&mut self, what: &'static str) -> Read<u8> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed { what })?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn u64(&mut self, what: &'static str) -> Read<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed { what });
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed { what })
    }

    #[inline]
    pub(crate) fn i64(&mut self, what: &'static str) -> Read<i64> {
        let raw = self.u64(what)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Read<u32> {
        u32::try_from(self.u64(what)?).map_err(|_| Malformed { what })
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Read<u16> {
        u16::try_from(self.u64(what)?).map_err(|_| Malformed { what })
    }

    #[inline]
    pub(crate) fn fixed64(&mut self, what: &'static str) -> Read<u64> {
        let raw = self.take(8, what)?;
        Ok(u64::from_le_bytes(raw.try_into().map_err(|_| Malformed { what })?))
    }

    #[inline]
    pub(crate) fn fixed128(&mut self, what: &'static str) -> Read<u128> {
        let raw = self.take(16, what)?;
        Ok(u128::from_le_bytes(raw.try_into().map_err(|_| Malformed { what })?))
    }

    #[inline]
    pub(crate) fn bytes(&mut self, what: &'static str) -> Read<&'a [u8]> {
        let len = usize::try_from(self.u64(what)?).map_err(|_| Malformed { what })?;
        self.take(len, what)
    }

    /// A number of things that follow, each at least one byte long, so at most what is left.
    #[inline]
    pub(crate) fn count(&mut self, what: &'static str) -> Read<usize> {
        let count = usize::try_from(self.u64(what)?).map_err(|_| Malformed { what })?;
        if count > self.rest.len() { Err(Malformed { what }) } else { Ok(count) }
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn end(self, what: &'static str) -> Read<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed { what }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_at_their_bounds() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        let unsigned = [0, 1, 127, 128, 16_383, 16_384, (1 << 53) - 1, u64::MAX];
        let signed = [0, -1, 1, i64::MIN, i64::MAX];
        for value in unsigned {
            writer.u64(value);
        }
        for value in signed {
            writer.i64(value);
        }
        writer.fixed64(u64::MAX - 1);
        writer.fixed128(u128::MAX - 2);
        writer.bytes(b"abc");
        let mut reader = Reader::new(&out);
        for value in unsigned {
            assert_eq!(reader.u64("u"), Ok(value));
        }
        for value in signed {
            assert_eq!(reader.i64("i"), Ok(value));
        }
        assert_eq!(reader.fixed64("f"), Ok(u64::MAX - 1));
        assert_eq!(reader.fixed128("f"), Ok(u128::MAX - 2));
        assert_eq!(reader.bytes("b"), Ok(&b"abc"[..]));
        assert_eq!(reader.end("e"), Ok(()));
    }

    #[test]
    fn many_signed_values_are_written_as_one_after_the_other() {
        let values: Vec<i64> = (0..100)
            .flat_map(|shift| [1_i64 << (shift % 63), -1 << (shift % 64), i64::MIN, 0, i64::MAX - shift])
            .collect();
        for count in [0, 1, 15, 16, 17, 32, values.len()] {
            let (mut one, mut all) = (Vec::new(), Vec::new());
            values[..count].iter().for_each(|value| Writer::new(&mut one).i64(*value));
            Writer::new(&mut all).i64s(&values[..count]);
            assert_eq!(one, all, "{count}");
        }
    }

    #[test]
    fn short_and_oversized_inputs_are_errors() {
        assert!(Reader::new(&[0x80; 9]).u64("x").is_err());
        assert!(Reader::new(&[0xff; 10]).u64("x").is_err());
        assert!(Reader::new(&[0xff; 11]).u64("x").is_err());
        assert!(Reader::new(&[5, 1, 2]).bytes("x").is_err());
        assert!(Reader::new(&[200, 1]).count("x").is_err());
        assert!(Reader::new(&[0x80, 0x80, 0x04]).u16("x").is_err());
        assert!(Reader::new(&[1]).end("x").is_err());
    }
}
