//! Makes a new input of an old one: small damage, and pieces that the target's grammar knows.

use crate::random::Random;

/// Longest input; what is larger finds nothing that this does not, and is slow.
pub(crate) const INPUT_BYTES_MAX: usize = 64 * 1024;
const STEPS_MAX: usize = 6;
const PIECE_MAX: usize = 64;
/// Numbers at bounds, as text.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "127",
    "128",
    "255",
    "4294967295",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551615",
    "1e400",
    "-0.0",
    "1.5",
    "10000000",
    "10000001",
    "1e-400",
];
const BYTES: [u8; 12] = [0, 0x0A, 0x0D, 0x20, 0x22, 0x3A, 0x5B, 0x5C, 0x7B, 0x7F, 0x80, 0xFF];

#[derive(Debug)]
pub struct Mutator<'a> {
    pub random: Random,
    /// Pieces that mean something to the target.
    dictionary: &'a [&'a str],
}

impl<'a> Mutator<'a> {
    pub fn new(seed: u64, dictionary: &'a [&'a str]) -> Self {
        Self { random: Random::new(seed), dictionary }
    }

    /// A mutant of `input`; `other` is an input to take a piece from.
    pub fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.random.below(STEPS_MAX) {
            self.step(&mut bytes, other);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }

    fn step(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.random.below(bytes.len().saturating_add(1));
        match self.random.below(12) {
            0 => {
                let bit = self.random.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1_u8.wrapping_shl(u32::try_from(bit).unwrap_or(0));
                }
            }
            1 => {
                let put = self.random.byte();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = put;
                }
            }
            2 => {
                let put = self.random.of(&BYTES).copied().unwrap_or(0);
                insert(bytes, at, &[put]);
            }
            3 => {
                let range = self.range(bytes.len(), at);
                bytes.drain(range);
            }
            4 => bytes.truncate(at),
            5 => {
                let piece = bytes.get(self.range(bytes.len(), at)).unwrap_or_default().to_vec();
                let to = self.random.below(bytes.len().saturating_add(1));
                insert(bytes, to, &piece);
            }
            6 => {
                let from = self.random.below(other.len());
                let piece = other.get(self.range(other.len(), from)).unwrap_or_default();
                insert(bytes, at, piece);
            }
            7 => {
                // The head of one, the tail of the other.
                let from = self.random.below(other.len().saturating_add(1));
                bytes.truncate(at);
                bytes.extend_from_slice(other.get(from..).unwrap_or_default());
            }
            8 => {
                let number = self.random.of(&NUMBERS).copied().unwrap_or("0");
                replace_number(bytes, at, number);
            }
            _ => {
                let word = self.random.of(self.dictionary).copied().unwrap_or_default();
                insert(bytes, at, word.as_bytes());
            }
        }
    }

    fn range(&mut self, length: usize, at: usize) -> std::ops::Range<usize> {
        let at = at.min(length);
        let end = at.saturating_add(1).saturating_add(self.random.below(PIECE_MAX)).min(length);
        at..end
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    let tail = bytes.split_off(at.min(bytes.len()));
    bytes.extend_from_slice(piece);
    bytes.extend_from_slice(&tail);
}

/// The first run of digits at or behind `at` becomes another number.
fn replace_number(bytes: &mut Vec<u8>, at: usize, number: &str) {
    let behind = bytes.get(at..).unwrap_or_default();
    let Some(start) = behind.iter().position(u8::is_ascii_digit).map(|offset| at.saturating_add(offset))
    else {
        return;
    };
    let digits = bytes.get(start..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
    bytes.splice(start..start.saturating_add(digits), number.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_mutants() {
        let run = |seed| {
            let mut mutator = Mutator::new(seed, &["data: "]);
            (0..100).map(|_| mutator.mutate(b"data: {\"a\":1}\n\n", b"other")).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn mutants_are_bounded_and_nothing_is_an_input_too() {
        let mut mutator = Mutator::new(1, &["x"]);
        let large = vec![b'1'; INPUT_BYTES_MAX];
        for _ in 0..200 {
            assert!(mutator.mutate(&large, &large).len() <= INPUT_BYTES_MAX);
            mutator.mutate(b"", b"");
        }
    }

    #[test]
    fn a_number_is_replaced_whole() {
        let mut bytes = b"{\"a\":123,\"b\":4}".to_vec();
        replace_number(&mut bytes, 2, "-1");
        assert_eq!(bytes, b"{\"a\":-1,\"b\":4}");
    }
}
