//! As much of the protobuf wire format as one message needs: writing, and reading two fields of an answer.

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Writes fields, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn raw(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or(0));
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.raw(field << 3 | wire);
    }

    pub(crate) fn varint(&mut self, field: u64, number: u64) {
        self.key(field, VARINT);
        self.raw(number);
    }

    pub(crate) fn fixed64(&mut self, field: u64, number: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn fixed32(&mut self, field: u64, number: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, BYTES);
        self.raw(u64::try_from(bytes.len()).unwrap_or(0));
        self.0.extend_from_slice(bytes);
    }

    /// A message inside the message.
    pub(crate) fn message(&mut self, field: u64, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// One field of a message that is read: its number and its value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Number(u64, u64),
    Bytes(u64, &'a [u8]),
}

/// Reads the next field off `rest`; nothing at the end, or where it makes no sense.
pub(crate) fn next<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    loop {
        let key = varint(rest)?;
        let field = key >> 3;
        match key & 7 {
            VARINT => return Some(Field::Number(field, varint(rest)?)),
            BYTES => {
                let length = usize::try_from(varint(rest)?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                *rest = after;
                return Some(Field::Bytes(field, bytes));
            }
            FIXED64 => *rest = rest.get(8..)?,
            FIXED32 => *rest = rest.get(4..)?,
            _ => return None,
        }
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in 0..10 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f).checked_shl(shift * 7)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut writer = Writer::default();
            writer.fixed64(9, 1);
            writer.fixed32(8, 1);
            writer.varint(3, number);
            let bytes = writer.finish();
            let mut rest = bytes.as_slice();
            assert_eq!(next(&mut rest), Some(Field::Number(3, number)));
            assert_eq!(next(&mut rest), None);
        }
    }

    #[test]
    fn every_cut_and_every_byte_is_read_without_a_panic() {
        let mut writer = Writer::default();
        writer.message(1, |inner| inner.varint(1, u64::MAX));
        writer.bytes(2, b"text");
        let bytes = writer.finish();
        for end in 0..bytes.len() {
            let mut rest = bytes.get(..end).unwrap();
            while next(&mut rest).is_some() {}
        }
        for first in 0..=255 {
            for filler in [0, 0x7f, 0x80, 0xff] {
                let hostile = [first, filler, filler, filler, filler, filler, filler, filler, filler, filler];
                let mut rest = hostile.as_slice();
                while next(&mut rest).is_some() {}
            }
        }
    }
}
