//! Secrets of keys: how they are made, and the hash by which a file names them.
//!
//! A secret is `tb_` and 256 random bits in letters and digits; it is shown once. Its hash is keyed with the pepper, so
//! a file without the pepper gives no key away, and looking one up needs no slow hash: nobody guesses 256 bits.
//! The hash itself is `admission`'s.

use std::fmt;

/// How every secret begins, so that people and secret scanners know it.
pub const PREFIX: &str = "tb_";
/// Digits that hold 256 bits in base 62.
const DIGITS: usize = 43;
/// How a hash begins in a file; names the way it was made.
const HASH_PREFIX: &str = "blake3:";
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A secret's hash, as a file writes it: `blake3:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix(HASH_PREFIX)?;
        let hash = blake3::Hash::from_hex(hex).ok()?;
        Some(Self(*hash.as_bytes()))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HASH_PREFIX}{}", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// A new secret.
pub fn generate() -> Result<String, getrandom::Error> {
    let mut bits = [0_u8; 32];
    getrandom::fill(&mut bits)?;
    Ok(format!("{PREFIX}{}", base62(bits)))
}

/// The number in base 62, most significant digit first, always [`DIGITS`] long.
fn base62(mut number: [u8; 32]) -> String {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        let mut rest = 0_u32;
        for byte in &mut number {
            let here = rest * 256 + u32::from(*byte);
            *byte = u8::try_from(here / 62).unwrap_or(u8::MAX);
            rest = here % 62;
        }
        *digit = usize::try_from(rest).ok().and_then(|rest| ALPHABET.get(rest)).copied().unwrap_or(b'0');
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use tollbook_admission::ApiKeyHash;

    use super::*;

    #[test]
    fn base62_is_the_number() {
        let mut number = [0_u8; 32];
        assert_eq!(base62(number), "0".repeat(43));
        number[31] = 61;
        assert_eq!(base62(number), format!("{}z", "0".repeat(42)));
        number[31] = 62;
        assert_eq!(base62(number), format!("{}10", "0".repeat(41)));
        // 2^256 - 1, computed elsewhere.
        assert_eq!(base62([255; 32]), "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1");
    }

    #[test]
    fn a_secret_is_readable_and_never_the_same() {
        let secret = generate().unwrap();
        assert!(secret.starts_with("tb_") && secret.len() == 46, "{secret}");
        assert!(secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        assert_ne!(secret, generate().unwrap());
    }

    #[test]
    fn a_hash_depends_on_the_pepper_and_reads_back() {
        let hash = |pepper, secret| KeyHash(ApiKeyHash::new(pepper).digest(secret));
        let plain = hash(None, "tb_x");
        assert_ne!(plain, hash(Some("pepper"), "tb_x"));
        assert_ne!(plain, hash(None, "tb_y"));
        assert_eq!(KeyHash::parse(&plain.to_string()), Some(plain));
        for text in ["", "blake3:", "blake3:00", &plain.to_string().replace("blake3:", "sha256:")] {
            assert_eq!(KeyHash::parse(text), None, "{text}");
        }
    }
}
