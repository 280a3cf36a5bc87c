//! Digests over typed fields; two different lists of fields never feed the same bytes.
//!
//! What is digested is part of the stored form: accounts are found again by it. Change the domain text with the fields.

/// Collects fields, each with its own length where it has one.
#[derive(Debug)]
pub(crate) struct Digest(blake3::Hasher);

impl Digest {
    pub(crate) fn new(domain: &str) -> Self {
        let mut digest = Self(blake3::Hasher::new());
        digest.text(domain);
        digest
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.update(&[byte]);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    pub(crate) fn optional_text(&mut self, text: Option<&str>) {
        match text {
            None => self.byte(0),
            Some(text) => {
                self.byte(1);
                self.text(text);
            }
        }
    }

    /// The first 64 bits.
    pub(crate) fn short(&self) -> u64 {
        let mut first = [0; 8];
        self.0.finalize_xof().fill(&mut first);
        u64::from_le_bytes(first)
    }

    /// The first 128 bits.
    pub(crate) fn long(&self) -> u128 {
        let mut first = [0; 16];
        self.0.finalize_xof().fill(&mut first);
        u128::from_le_bytes(first)
    }
}
